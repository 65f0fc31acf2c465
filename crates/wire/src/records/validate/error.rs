//! Why a partition's records are refused, as text and as Kafka's error codes.

use std::fmt;

use super::super::batch::{BatchError, MAGIC, attributes};
use super::super::compression::CompressionError;
use super::super::record::RecordError;
use super::super::walk::WalkError;
use super::FIRST_PRODUCE_VERSION_WITH_ZSTD;
use crate::error_code::ErrorCode;

/// What is wrong with one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// The record's index in the batch, from 0: `BatchIndex` in Produce responses from version 8 on
    /// (KIP-467).
    pub batch_index: i32,
    pub message: String,
}

/// Why a partition's records are refused. Nothing of the batch is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProduceError {
    /// There is no batch.
    Empty,
    /// Since version 3 there is one batch per partition (KIP-98); `trailing_bytes` follow it.
    MoreThanOneBatch {
        trailing_bytes: usize,
    },
    Batch(BatchError),
    UnknownCodec {
        attributes: i16,
    },
    ZstdTooEarly {
        produce_version: i16,
    },
    TooLarge {
        batch_bytes: usize,
        max_message_bytes: usize,
    },
    BaseOffset {
        base_offset: i64,
    },
    /// The header's count of records is not the number of offsets it spans, or not positive.
    Count {
        record_count: i32,
        last_offset_delta: i32,
    },
    ControlBatch,
    Sequence {
        producer_id: i64,
        base_sequence: i32,
    },
    /// A producer epoch below -1, which stands for none.
    ProducerEpoch {
        producer_epoch: i16,
    },
    /// Bits that only a broker sets, or that are unassigned.
    Attributes {
        attributes: i16,
    },
    Decompression(CompressionError),
    /// The compressed batches of the request decompress to more than its limit in total.
    UnfoldsTooMuch {
        limit_bytes: usize,
    },
    /// The records are not what the batch announces; `index` counts from 0; for trailing bytes it
    /// is the number of records.
    Structure {
        index: i32,
        error: RecordError,
    },
    /// A producer must not claim the broker's time.
    LogAppendTimeFromClient,
    /// Records at other offsets than the batch announces, or without a key in a compacted topic.
    InvalidRecords {
        faults: Vec<RecordFault>,
        fault_count: usize,
    },
    /// Timestamps too far from the broker's clock.
    InvalidTimestamps {
        faults: Vec<RecordFault>,
        fault_count: usize,
    },
}

impl fmt::Display for ProduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProduceError::Empty => f.write_str("there is no record batch for the partition"),
            ProduceError::MoreThanOneBatch { trailing_bytes } => {
                write!(
                    f,
                    "only one record batch per partition is allowed, but {trailing_bytes} bytes follow it"
                )
            }
            ProduceError::Batch(error) => error.fmt(f),
            ProduceError::UnknownCodec { attributes } => {
                write!(
                    f,
                    "compression codec {} does not exist",
                    attributes & attributes::CODEC_MASK
                )
            }
            ProduceError::ZstdTooEarly { produce_version } => {
                write!(
                    f,
                    "zstd needs Produce version {FIRST_PRODUCE_VERSION_WITH_ZSTD}, this is {produce_version}"
                )
            }
            ProduceError::TooLarge {
                batch_bytes,
                max_message_bytes,
            } => {
                write!(
                    f,
                    "record batch of {batch_bytes} bytes exceeds max.message.bytes, {max_message_bytes}"
                )
            }
            ProduceError::BaseOffset { base_offset } => {
                write!(f, "a producer's base offset must be 0, not {base_offset}")
            }
            ProduceError::Count {
                record_count,
                last_offset_delta,
            } => {
                write!(
                    f,
                    "{record_count} records cannot have a last offset delta of {last_offset_delta}"
                )
            }
            ProduceError::ControlBatch => f.write_str("clients may not write control records"),
            ProduceError::Sequence {
                producer_id,
                base_sequence,
            } => {
                write!(f, "producer id {producer_id} comes with sequence {base_sequence}")
            }
            ProduceError::ProducerEpoch { producer_epoch } => {
                write!(f, "producer epoch {producer_epoch} is invalid")
            }
            ProduceError::Attributes { attributes } => {
                write!(
                    f,
                    "batch attributes {attributes:#06x} have bits that a producer cannot set: it may set only codec and transaction"
                )
            }
            ProduceError::Decompression(error) => error.fmt(f),
            ProduceError::UnfoldsTooMuch { limit_bytes } => {
                write!(
                    f,
                    "the compressed batches of one request may decompress to at most {limit_bytes} bytes in total"
                )
            }
            ProduceError::Structure { index, error } => write!(f, "record {index}: {error}"),
            ProduceError::LogAppendTimeFromClient => {
                f.write_str("a producer cannot set the timestamp type to LogAppendTime")
            }
            ProduceError::InvalidRecords { faults, fault_count }
            | ProduceError::InvalidTimestamps { faults, fault_count } => {
                let first = faults.first().expect("the first fault is always kept");
                write!(f, "record {}: {}", first.batch_index, first.message)?;
                match fault_count - 1 {
                    0 => Ok(()),
                    more => write!(f, ", and {more} more records are refused"),
                }
            }
        }
    }
}

impl std::error::Error for ProduceError {}

impl From<BatchError> for ProduceError {
    fn from(error: BatchError) -> ProduceError {
        ProduceError::Batch(error)
    }
}

impl From<CompressionError> for ProduceError {
    fn from(error: CompressionError) -> ProduceError {
        match error {
            CompressionError::LimitExceeded { limit_bytes, .. } => {
                ProduceError::UnfoldsTooMuch { limit_bytes }
            }
            CompressionError::Invalid { .. } => ProduceError::Decompression(error),
        }
    }
}

impl From<WalkError> for ProduceError {
    fn from(error: WalkError) -> ProduceError {
        match error {
            WalkError::Codec(error) => error.into(),
            WalkError::Record { index, error } => ProduceError::Structure { index, error },
        }
    }
}

impl ProduceError {
    /// - Shape: retriable only if sending the same records again can help.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            // Damage in transit shows as a wrong length, format or checksum; a retry can help.
            ProduceError::Batch(BatchError::Checksum { .. } | BatchError::InvalidLength { .. }) => {
                ErrorCode::CorruptMessage
            }
            // 0 and 1 are older formats.
            ProduceError::Batch(BatchError::UnsupportedMagic { magic, .. })
                if !(0..MAGIC).contains(magic) =>
            {
                ErrorCode::CorruptMessage
            }
            ProduceError::TooLarge { .. } | ProduceError::UnfoldsTooMuch { .. } => ErrorCode::MessageTooLarge,
            ProduceError::ProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            ProduceError::UnknownCodec { .. } | ProduceError::ZstdTooEarly { .. } => {
                ErrorCode::UnsupportedCompressionType
            }
            ProduceError::LogAppendTimeFromClient | ProduceError::InvalidTimestamps { .. } => {
                ErrorCode::InvalidTimestamp
            }
            ProduceError::Empty
            | ProduceError::MoreThanOneBatch { .. }
            | ProduceError::Batch(_)
            | ProduceError::BaseOffset { .. }
            | ProduceError::Count { .. }
            | ProduceError::ControlBatch
            | ProduceError::Sequence { .. }
            | ProduceError::Attributes { .. }
            | ProduceError::Decompression(_)
            | ProduceError::Structure { .. }
            | ProduceError::InvalidRecords { .. } => ErrorCode::InvalidRecord,
        }
    }

    /// The records at fault, at most [`super::RECORD_FAULTS_MAX`]; empty if the whole batch is at
    /// fault.
    pub fn record_faults(&self) -> Vec<RecordFault> {
        match self {
            ProduceError::InvalidRecords { faults, .. } | ProduceError::InvalidTimestamps { faults, .. } => {
                faults.clone()
            }
            // Trailing bytes belong to no record.
            ProduceError::Structure {
                error: RecordError::TrailingBytes { .. },
                ..
            } => Vec::new(),
            ProduceError::Structure { index, error } => vec![RecordFault {
                batch_index: *index,
                message: error.to_string(),
            }],
            _ => Vec::new(),
        }
    }
}
