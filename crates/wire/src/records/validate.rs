//! What a leader checks before it appends one partition's records of a Produce request.
//!
//! A batch that passes is written as `[patched header][record bytes as they came]`. Records are decoded only where a rule needs
//! them; but uncompressed ones are always walked, because a batch with a good checksum and broken records would stop every
//! consumer of the partition.
//!
//! Deviations from Apache Kafka, which unfolds every compressed batch: here that happens only for compacted topics, for a limit
//! on timestamps of the past, for recompression, and when the header's max timestamp is beyond the limit. Otherwise the
//! codec's framing is checked, and the header's count and max timestamp are believed. Records that are seen must be numbered
//! 0, 1, 2, … (KIP-98); Kafka does not look in uncompressed batches, and renumbers compressed ones.

use std::borrow::Cow;
use std::fmt;

use super::batch::{
    BatchError, BatchHeader, CRC_START, HEADER_BYTES, NO_TIMESTAMP, TimestampType, attributes,
};
use super::builder::{BatchBuilder, BatchOptions};
use super::compression::{Codec, Compression, CompressionError, check_framing, decompress};
use super::crc32c;
use super::record::{Record, RecordError, Records};
use super::walk::{Walk, walk};
use crate::error_code::ErrorCode;

/// zstd came with version 7 (KIP-110): consumers that produce with less may not know it.
const FIRST_PRODUCE_VERSION_WITH_ZSTD: i16 = 7;

/// Every fault costs memory here and bytes in the response; a batch can hold a million of them.
pub const RECORD_FAULTS_MAX: usize = 100;

/// What the topic, the request and the clock say about a partition's records.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules {
    pub produce_version: i16,
    /// `max.message.bytes`: of the batch as it is stored, header included.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`; `i64::MAX` is no limit.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether `cleanup.policy` holds `compact`: then every record needs a key.
    pub is_compacted: bool,
    /// `compression.type`; `None` is `producer`: keep what came.
    pub compression: Option<Compression>,
    /// The most that one batch may unfold to when its records must be seen.
    pub uncompressed_limit_bytes: usize,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidBatch<'a> {
    /// As it shall be stored, but for base offset and leader epoch, which only the log knows. The checksum is right.
    pub header: BatchHeader,
    /// What follows the header: the request's own bytes, or new ones if the topic wants another codec.
    pub record_bytes: Cow<'a, [u8]>,
}

impl ValidBatch<'_> {
    /// The 61 bytes to write in front of [`ValidBatch::record_bytes`]. The checksum covers neither argument.
    pub fn header_bytes(&self, base_offset: i64, leader_epoch: i32) -> [u8; HEADER_BYTES] {
        BatchHeader {
            base_offset,
            leader_epoch,
            ..self.header
        }
        .encode()
    }

    pub fn total_bytes(&self) -> usize {
        HEADER_BYTES + self.record_bytes.len()
    }

    /// How many offsets the batch takes.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }
}

/// What is wrong with one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFault {
    /// The record's place in the batch, counted from 0: `BatchIndex` in Produce responses from version 8 on (KIP-467).
    pub batch_index: i32,
    pub message: String,
}

/// Why a partition's records are refused. Nothing of the batch is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProduceError {
    /// No batch at all.
    Empty,
    /// One batch per partition since version 3 (KIP-98); `trailing_bytes` follow it.
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
    Decompression(CompressionError),
    Structure(RecordError),
    /// A producer must not claim the broker's time.
    LogAppendTimeFromClient,
    /// Records at other offsets than the batch announces, or without a key where the topic needs one.
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
            ProduceError::Decompression(error) => error.fmt(f),
            ProduceError::Structure(error) => error.fmt(f),
            ProduceError::LogAppendTimeFromClient => {
                f.write_str("a producer cannot set the timestamp type to LogAppendTime")
            }
            ProduceError::InvalidRecords { faults, fault_count }
            | ProduceError::InvalidTimestamps { faults, fault_count } => {
                write!(f, "{fault_count} records are refused")?;
                match faults.first() {
                    Some(first) => write!(f, ", the first at index {}: {}", first.batch_index, first.message),
                    None => Ok(()),
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

impl From<RecordError> for ProduceError {
    fn from(error: RecordError) -> ProduceError {
        ProduceError::Structure(error)
    }
}

impl From<CompressionError> for ProduceError {
    fn from(error: CompressionError) -> ProduceError {
        ProduceError::Decompression(error)
    }
}

impl ProduceError {
    /// - Shape: retriable only where a second transmission of the same records can help.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            // A damaged frame shows as a wrong length or checksum; sent again it may arrive whole.
            ProduceError::Batch(BatchError::Checksum { .. } | BatchError::InvalidLength { .. }) => {
                ErrorCode::CorruptMessage
            }
            ProduceError::TooLarge { .. }
            | ProduceError::Decompression(CompressionError::LimitExceeded { .. }) => {
                ErrorCode::MessageTooLarge
            }
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
            | ProduceError::Decompression(CompressionError::Invalid { .. })
            | ProduceError::Structure(_)
            | ProduceError::InvalidRecords { .. } => ErrorCode::InvalidRecord,
        }
    }

    /// The records at fault, at most [`RECORD_FAULTS_MAX`]; empty if the batch as a whole is.
    pub fn record_faults(&self) -> &[RecordFault] {
        match self {
            ProduceError::InvalidRecords { faults, .. } | ProduceError::InvalidTimestamps { faults, .. } => {
                faults
            }
            _ => &[],
        }
    }
}

/// Checks the records of one partition in a Produce request of version 3 or later.
///
/// - Units: `bytes` is the partition's whole `records` field.
/// - Shape: costs one checksum, and for uncompressed batches one walk, without allocating; more only where a rule needs it.
/// - Errors: the first that applies; faults of records are collected.
pub fn validate<'a>(bytes: &'a [u8], rules: &ProduceRules) -> Result<ValidBatch<'a>, ProduceError> {
    let header = check_envelope(bytes, rules)?;
    let codec = header.compression().ok_or(ProduceError::UnknownCodec {
        attributes: header.attributes,
    })?;
    check_checksum(&header, bytes)?;
    check_header(&header)?;

    let record_bytes = &bytes[HEADER_BYTES..];
    let target = rules.compression.filter(|target| target.codec != codec);
    if codec == Codec::None {
        let walked = check_records(&header, record_bytes, rules)?;
        return match target {
            None => Ok(in_place(&header, record_bytes, walked.max_timestamp, rules)),
            Some(target) => recompress(&header, record_bytes, target, rules),
        };
    }
    if target.is_none() && !must_unfold(&header, rules) {
        check_framing(codec, record_bytes)?;
        return Ok(in_place(&header, record_bytes, header.max_timestamp, rules));
    }
    let mut unfolded = Vec::new();
    decompress(codec, record_bytes, rules.uncompressed_limit_bytes, &mut unfolded)?;
    let walked = check_records(&header, &unfolded, rules)?;
    match target {
        None => Ok(in_place(&header, record_bytes, walked.max_timestamp, rules)),
        Some(target) => recompress(&header, &unfolded, target, rules),
    }
}

/// That there is exactly one batch of a known format and allowed size.
fn check_envelope(bytes: &[u8], rules: &ProduceRules) -> Result<BatchHeader, ProduceError> {
    if bytes.is_empty() {
        return Err(ProduceError::Empty);
    }
    let header = BatchHeader::parse(bytes)?;
    let batch_bytes = header.total_bytes();
    if header.compression() == Some(Codec::Zstd) && rules.produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD {
        return Err(ProduceError::ZstdTooEarly {
            produce_version: rules.produce_version,
        });
    }
    if batch_bytes > bytes.len() {
        return Err(BatchError::Truncated {
            needed: batch_bytes,
            available: bytes.len(),
        }
        .into());
    }
    if batch_bytes < bytes.len() {
        return Err(ProduceError::MoreThanOneBatch {
            trailing_bytes: bytes.len() - batch_bytes,
        });
    }
    if header.base_offset != 0 {
        return Err(ProduceError::BaseOffset {
            base_offset: header.base_offset,
        });
    }
    check_size(batch_bytes, rules)?;
    Ok(header)
}

fn check_size(batch_bytes: usize, rules: &ProduceRules) -> Result<(), ProduceError> {
    let max_message_bytes = rules.max_message_bytes;
    if batch_bytes > max_message_bytes {
        return Err(ProduceError::TooLarge {
            batch_bytes,
            max_message_bytes,
        });
    }
    Ok(())
}

fn check_checksum(header: &BatchHeader, bytes: &[u8]) -> Result<(), ProduceError> {
    let actual = crc32c::checksum(&bytes[CRC_START..]);
    if actual != header.crc {
        return Err(BatchError::Checksum {
            expected: header.crc,
            actual,
        }
        .into());
    }
    Ok(())
}

fn check_header(header: &BatchHeader) -> Result<(), ProduceError> {
    let (record_count, last_offset_delta) = (header.record_count, header.last_offset_delta);
    if record_count <= 0 || last_offset_delta != record_count - 1 {
        return Err(ProduceError::Count {
            record_count,
            last_offset_delta,
        });
    }
    if header.is_control() {
        return Err(ProduceError::ControlBatch);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        let (producer_id, base_sequence) = (header.producer_id, header.base_sequence);
        return Err(ProduceError::Sequence {
            producer_id,
            base_sequence,
        });
    }
    if header.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ProduceError::LogAppendTimeFromClient);
    }
    Ok(())
}

/// Whether a compressed batch must be decompressed although it keeps its codec.
fn must_unfold(header: &BatchHeader, rules: &ProduceRules) -> bool {
    let checks_timestamps = rules.timestamp_type == TimestampType::CreateTime;
    rules.is_compacted
        || checks_timestamps && rules.timestamp_before_max_ms != i64::MAX
        || checks_timestamps && is_too_late(header.max_timestamp, rules)
}

fn is_too_late(timestamp: i64, rules: &ProduceRules) -> bool {
    timestamp.saturating_sub(rules.now_ms) > rules.timestamp_after_max_ms
}

fn is_too_early(timestamp: i64, rules: &ProduceRules) -> bool {
    rules.now_ms.saturating_sub(timestamp) > rules.timestamp_before_max_ms
}

/// Checks uncompressed records in one pass; a second pass names the faults if there are any.
fn check_records(
    header: &BatchHeader,
    uncompressed: &[u8],
    rules: &ProduceRules,
) -> Result<Walk, ProduceError> {
    let walked = walk(header, uncompressed);
    let is_suspect = |walked: &Walk| {
        rules.is_compacted && walked.has_null_key
            || rules.timestamp_type == TimestampType::CreateTime
                && (is_too_late(walked.max_timestamp, rules) || is_too_early(walked.min_timestamp, rules))
    };
    match walked {
        Some(walked) if !is_suspect(&walked) => Ok(walked),
        _ => find_faults(header, uncompressed, rules),
    }
}

/// The slow path: decodes records one by one to say what is wrong with each.
fn find_faults(
    header: &BatchHeader,
    uncompressed: &[u8],
    rules: &ProduceRules,
) -> Result<Walk, ProduceError> {
    let mut walked = Walk {
        min_timestamp: i64::MAX,
        max_timestamp: i64::MIN,
        has_null_key: false,
    };
    let mut faults = Vec::new();
    let mut fault_count = 0;
    let mut has_timestamp_fault = false;
    for (batch_index, record) in (0i32..).zip(Records::new(header, uncompressed)) {
        let record = record?;
        walked.min_timestamp = walked.min_timestamp.min(record.timestamp);
        walked.max_timestamp = walked.max_timestamp.max(record.timestamp);
        walked.has_null_key |= record.key.is_none();
        let Some(fault) = Fault::of(&record, batch_index, rules) else {
            continue;
        };
        has_timestamp_fault |= matches!(fault, Fault::Timestamp { .. });
        fault_count += 1;
        if faults.len() < RECORD_FAULTS_MAX {
            faults.push(RecordFault {
                batch_index,
                message: fault.to_string(),
            });
        }
    }
    match (fault_count, has_timestamp_fault) {
        (0, _) => Ok(walked),
        (_, true) => Err(ProduceError::InvalidTimestamps { faults, fault_count }),
        (_, false) => Err(ProduceError::InvalidRecords { faults, fault_count }),
    }
}

enum Fault {
    OffsetDelta {
        expected: i32,
        actual: i64,
    },
    NoKey,
    Timestamp {
        timestamp: i64,
        earliest: i64,
        latest: i64,
    },
}

impl Fault {
    fn of(record: &Record<'_>, batch_index: i32, rules: &ProduceRules) -> Option<Fault> {
        // The base offset of a producer's batch is 0, so offsets are deltas.
        if record.offset != i64::from(batch_index) {
            Some(Fault::OffsetDelta {
                expected: batch_index,
                actual: record.offset,
            })
        } else if rules.is_compacted && record.key.is_none() {
            Some(Fault::NoKey)
        } else if has_bad_timestamp(record.timestamp, rules) {
            Some(Fault::Timestamp {
                timestamp: record.timestamp,
                earliest: rules.now_ms.saturating_sub(rules.timestamp_before_max_ms),
                latest: rules.now_ms.saturating_add(rules.timestamp_after_max_ms),
            })
        } else {
            None
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OffsetDelta { expected, actual } => {
                write!(f, "offset delta {actual} where {expected} is due")
            }
            Fault::NoKey => f.write_str("no key, but the topic is compacted"),
            Fault::Timestamp {
                timestamp,
                earliest,
                latest,
            } => {
                write!(f, "timestamp {timestamp} is not between {earliest} and {latest}")
            }
        }
    }
}

/// A record without a timestamp is never too old.
fn has_bad_timestamp(timestamp: i64, rules: &ProduceRules) -> bool {
    rules.timestamp_type == TimestampType::CreateTime
        && timestamp != NO_TIMESTAMP
        && (is_too_late(timestamp, rules) || is_too_early(timestamp, rules))
}

/// Keeps the record bytes; changes the header, and with it the checksum, only where it must.
fn in_place<'a>(
    header: &BatchHeader,
    record_bytes: &'a [u8],
    max_timestamp: i64,
    rules: &ProduceRules,
) -> ValidBatch<'a> {
    let mut patched = *header;
    match rules.timestamp_type {
        TimestampType::CreateTime => patched.max_timestamp = max_timestamp,
        TimestampType::LogAppendTime => {
            patched.attributes |= attributes::LOG_APPEND_TIME;
            patched.max_timestamp = rules.now_ms;
        }
    }
    if patched != *header {
        let covered = |header: &BatchHeader| crc32c::checksum(&header.encode()[CRC_START..]);
        patched.crc =
            crc32c::replace_beginning(header.crc, covered(header), covered(&patched), record_bytes.len());
    }
    ValidBatch {
        header: patched,
        record_bytes: Cow::Borrowed(record_bytes),
    }
}

/// Packs the records again, as `compression.type` of the topic says.
fn recompress<'a>(
    header: &BatchHeader,
    uncompressed: &[u8],
    target: Compression,
    rules: &ProduceRules,
) -> Result<ValidBatch<'a>, ProduceError> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: target,
        log_append_time: match rules.timestamp_type {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(rules.now_ms),
        },
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        is_transactional: header.is_transactional(),
        ..BatchOptions::default()
    });
    for record in Records::new(header, uncompressed) {
        builder
            .append_record(&record?)
            .expect("the walk found the offsets in order");
    }
    let mut batch = builder.finish();
    check_size(batch.len(), rules)?;
    let header = BatchHeader::parse(&batch)?;
    batch.drain(..HEADER_BYTES);
    Ok(ValidBatch {
        header,
        record_bytes: Cow::Owned(batch),
    })
}

#[cfg(test)]
mod tests;
