//! Builds one v2 batch from records.

use std::fmt;

use super::batch::{
    self, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType, attributes,
};
use super::compression::{self, Codec, Compression};
use super::record::{Header, Headers, RawRecord, Record};

/// Everything about a batch that does not come from its records.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    pub base_offset: i64,
    pub leader_epoch: i32,
    pub compression: Compression,
    /// `Some` replaces the timestamp of every record.
    pub log_append_time: Option<i64>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub is_transactional: bool,
    pub is_control: bool,
    pub delete_horizon_ms: Option<i64>,
}

impl Default for BatchOptions {
    /// Offset 0, no epoch, uncompressed, no producer.
    fn default() -> BatchOptions {
        BatchOptions {
            base_offset: 0,
            leader_epoch: NO_LEADER_EPOCH,
            compression: Compression::NONE,
            log_append_time: None,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            is_transactional: false,
            is_control: false,
            delete_horizon_ms: None,
        }
    }
}

/// A record that cannot be in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// Offsets must increase from the base offset on, by less than 2^31 in total.
    OffsetOutOfOrder { offset: i64, next_offset: i64 },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::OffsetOutOfOrder { offset, next_offset } => {
                write!(
                    f,
                    "offset {offset} cannot follow: the batch continues at {next_offset}"
                )
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Appends records one by one; `finish` gives the batch.
///
/// Uncompressed records are encoded in place. The buffer can be reused from batch to batch.
#[derive(Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// The caller's earlier bytes, then the batch's header (blank until the end) and records.
    buffer: Vec<u8>,
    start: usize,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    next_offset: i64,
    record_count: i32,
    last_offset_delta: Option<i32>,
    /// The max timestamp of a batch without records.
    empty_max_timestamp: i64,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> BatchBuilder {
        BatchBuilder::append_to(Vec::new(), options)
    }

    /// Builds the batch at the end of `buffer`, after its existing contents.
    pub fn append_to(mut buffer: Vec<u8>, options: BatchOptions) -> BatchBuilder {
        let start = buffer.len();
        buffer.resize(start + HEADER_BYTES, 0);
        BatchBuilder {
            options,
            buffer,
            start,
            base_timestamp: options.delete_horizon_ms,
            max_timestamp: NO_TIMESTAMP,
            next_offset: options.base_offset,
            record_count: 0,
            last_offset_delta: None,
            empty_max_timestamp: NO_TIMESTAMP,
        }
    }

    /// Builds the batch that replaces `original` after some of its records were removed: same
    /// offsets, producer and flags.
    ///
    /// - Shape: the offset span stays the original's even if the last records, or all, are gone.
    pub fn replacing(
        original: &BatchHeader,
        buffer: Vec<u8>,
        delete_horizon_ms: Option<i64>,
    ) -> BatchBuilder {
        let log_append_time = match original.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(original.max_timestamp),
        };
        let options = BatchOptions {
            base_offset: original.base_offset,
            leader_epoch: original.leader_epoch,
            compression: original.compression().unwrap_or_default().into(),
            log_append_time,
            producer_id: original.producer_id,
            producer_epoch: original.producer_epoch,
            base_sequence: original.base_sequence,
            is_transactional: original.is_transactional(),
            is_control: original.is_control(),
            delete_horizon_ms,
        };
        let mut builder = BatchBuilder::append_to(buffer, options);
        builder.last_offset_delta = Some(original.last_offset_delta);
        builder.empty_max_timestamp = original.max_timestamp;
        builder
    }

    /// Appends a record at the next offset.
    pub fn append(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> &mut BatchBuilder {
        let raw = self
            .raw(self.next_offset, timestamp, key, value)
            .expect("the next offset is in order");
        raw.encode_with_headers(headers, &mut self.buffer);
        self.count(self.next_offset, timestamp);
        self
    }

    /// Appends a decoded record at its own offset; gaps are allowed.
    pub fn append_record(&mut self, record: &Record<'_>) -> Result<&mut BatchBuilder, BuildError> {
        let mut raw = self.raw(record.offset, record.timestamp, record.key, record.value)?;
        raw.attributes = record.attributes;
        raw.headers = record.headers;
        raw.encode(&mut self.buffer);
        self.count(record.offset, record.timestamp);
        Ok(self)
    }

    fn raw<'a>(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
    ) -> Result<RawRecord<'a>, BuildError> {
        let error = BuildError::OffsetOutOfOrder {
            offset,
            next_offset: self.next_offset,
        };
        if offset < self.next_offset {
            return Err(error);
        }
        let offset_delta = i32::try_from(offset - self.options.base_offset).map_err(|_| error)?;
        let base_timestamp = *self.base_timestamp.get_or_insert(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(base_timestamp);
        Ok(RawRecord {
            attributes: 0,
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers: Headers::default(),
        })
    }

    fn count(&mut self, offset: i64, timestamp: i64) {
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.next_offset = offset + 1;
        self.record_count += 1;
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    /// The offset that [`BatchBuilder::append`] will give.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Bytes of the batch so far, header included, before compression.
    pub fn uncompressed_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Returns the buffer with the finished batch at its end.
    pub fn finish(mut self) -> Vec<u8> {
        if self.options.compression.codec != Codec::None && self.record_count > 0 {
            let records = self.buffer.split_off(self.start + HEADER_BYTES);
            compression::compress(self.options.compression, &records, &mut self.buffer);
        }
        let header = self.header();
        let batch = &mut self.buffer[self.start..];
        batch[..HEADER_BYTES].copy_from_slice(&header.encode());
        batch::seal(batch);
        self.buffer
    }

    fn header(&self) -> BatchHeader {
        let options = &self.options;
        let span = self.next_offset - options.base_offset;
        let appended_delta = i32::try_from(span - 1)
            .expect("every offset delta was checked")
            .max(0);
        let total_bytes = self.buffer.len() - self.start;
        let create_time_max = if self.record_count == 0 {
            self.empty_max_timestamp
        } else {
            self.max_timestamp
        };
        BatchHeader {
            base_offset: options.base_offset,
            batch_length: i32::try_from(total_bytes - LENGTH_PREFIX_BYTES)
                .expect("a batch is shorter than 2 GiB"),
            leader_epoch: options.leader_epoch,
            magic: MAGIC,
            crc: 0,
            attributes: self.attributes(),
            last_offset_delta: self.last_offset_delta.unwrap_or(0).max(appended_delta),
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: options.log_append_time.unwrap_or(create_time_max),
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            record_count: self.record_count,
        }
    }

    fn attributes(&self) -> i16 {
        let options = &self.options;
        let flag = |condition: bool, bit: i16| if condition { bit } else { 0 };
        let codec = if self.record_count == 0 {
            Codec::None
        } else {
            options.compression.codec
        };
        codec.id()
            | flag(options.log_append_time.is_some(), attributes::LOG_APPEND_TIME)
            | flag(options.is_transactional, attributes::TRANSACTIONAL)
            | flag(options.is_control, attributes::CONTROL)
            | flag(options.delete_horizon_ms.is_some(), attributes::DELETE_HORIZON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::batch::Batch;
    use crate::records::record::Records;

    /// Offset, timestamp, key, value.
    type Owned = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn records_of(bytes: &[u8]) -> Vec<Owned> {
        let batch = Batch::parse(bytes).unwrap();
        batch.verify_checksum().unwrap();
        let mut plain = Vec::new();
        let codec = batch.header.compression().unwrap();
        compression::decompress(codec, batch.record_bytes(), 1 << 20, &mut plain).unwrap();
        Records::new(&batch.header, &plain)
            .map(|record| record.unwrap())
            .map(|r| {
                (
                    r.offset,
                    r.timestamp,
                    r.key.map(<[u8]>::to_vec),
                    r.value.map(<[u8]>::to_vec),
                )
            })
            .collect()
    }

    #[test]
    fn appended_records_are_read_back_with_every_codec() {
        for codec in Codec::ALL {
            let mut builder = BatchBuilder::new(BatchOptions {
                base_offset: 1_000,
                leader_epoch: 7,
                compression: codec.into(),
                ..BatchOptions::default()
            });
            builder
                .append(50, Some(b"k"), Some(b"v"), &[])
                .append(40, None, None, &[]);
            let bytes = builder.finish();
            let header = BatchHeader::parse(&bytes).unwrap();
            assert_eq!((header.base_timestamp, header.max_timestamp), (50, 50));
            assert_eq!(
                (header.next_offset(), header.leader_epoch, header.record_count),
                (1_002, 7, 2)
            );
            assert_eq!(header.compression(), Some(codec));
            assert_eq!(
                records_of(&bytes),
                [
                    (1_000, 50, Some(b"k".to_vec()), Some(b"v".to_vec())),
                    (1_001, 40, None, None)
                ]
            );
        }
    }

    #[test]
    fn headers_are_kept_in_order_with_null_and_empty_values() {
        let headers = [
            Header {
                key: b"a",
                value: Some(b"1"),
            },
            Header {
                key: b"",
                value: None,
            },
            Header {
                key: b"a",
                value: Some(b""),
            },
        ];
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(0, None, Some(b"v"), &headers);
        let bytes = builder.finish();
        let record = Batch::parse(&bytes).unwrap().records().next().unwrap().unwrap();
        assert_eq!(record.headers.len(), 3);
        assert!(record.headers.iter().eq(headers));
    }

    #[test]
    fn several_batches_are_built_in_one_buffer() {
        let mut buffer = Vec::new();
        for base_offset in [0, 1, 2] {
            let mut builder = BatchBuilder::append_to(
                buffer,
                BatchOptions {
                    base_offset,
                    ..BatchOptions::default()
                },
            );
            builder.append(base_offset * 10, None, Some(b"x"), &[]);
            buffer = builder.finish();
        }
        let offsets: Vec<i64> = batch::batches(&buffer)
            .map(|batch| batch.unwrap().header.base_offset)
            .collect();
        assert_eq!(offsets, [0, 1, 2]);
    }

    #[test]
    fn log_append_time_overrides_the_records_timestamps() {
        let mut builder = BatchBuilder::new(BatchOptions {
            log_append_time: Some(99),
            ..BatchOptions::default()
        });
        builder.append(5, None, Some(b"v"), &[]);
        let bytes = builder.finish();
        assert_eq!(
            BatchHeader::parse(&bytes).unwrap().timestamp_type(),
            TimestampType::LogAppendTime
        );
        assert_eq!(records_of(&bytes)[0].1, 99);
    }

    #[test]
    fn a_replacement_keeps_the_span_of_offsets() {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: 10,
            producer_id: 4,
            producer_epoch: 1,
            base_sequence: 77,
            compression: Codec::Lz4.into(),
            ..BatchOptions::default()
        });
        for i in 0..5 {
            builder.append(100 + i, Some(b"k"), Some(b"v"), &[]);
        }
        let original = BatchHeader::parse(&builder.finish()).unwrap();

        let mut some = BatchBuilder::replacing(&original, Vec::new(), None);
        let headers = Headers::default();
        let kept = Record {
            offset: 12,
            timestamp: 102,
            attributes: 0,
            key: Some(b"k"),
            value: None,
            headers,
        };
        some.append_record(&kept).unwrap();
        let header = BatchHeader::parse(&some.finish()).unwrap();
        assert_eq!(
            (header.base_offset, header.last_offset(), header.record_count),
            (10, 14, 1)
        );
        assert_eq!((header.base_sequence, header.last_sequence()), (77, 81));
        assert_eq!((header.base_timestamp, header.max_timestamp), (102, 102));

        let none = BatchBuilder::replacing(&original, Vec::new(), None).finish();
        let header = BatchHeader::parse(&none).unwrap();
        assert_eq!(
            (header.last_offset(), header.record_count, header.max_timestamp),
            (14, 0, 104)
        );
        assert_eq!(
            (header.compression(), none.len()),
            (Some(Codec::None), HEADER_BYTES)
        );
    }

    #[test]
    fn a_delete_horizon_is_the_base_of_the_timestamps() {
        let original = BatchHeader::parse(&BatchBuilder::new(BatchOptions::default()).finish()).unwrap();
        let mut builder = BatchBuilder::replacing(&original, Vec::new(), Some(5_000));
        builder.append(300, Some(b"k"), None, &[]);
        let bytes = builder.finish();
        assert_eq!(
            BatchHeader::parse(&bytes).unwrap().delete_horizon_ms(),
            Some(5_000)
        );
        assert_eq!(records_of(&bytes)[0].1, 300);
    }

    #[test]
    fn offsets_cannot_go_back() {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: 5,
            ..BatchOptions::default()
        });
        builder.append(0, None, None, &[]);
        let headers = Headers::default();
        let record = Record {
            offset: 5,
            timestamp: 0,
            attributes: 0,
            key: None,
            value: None,
            headers,
        };
        let error = builder.append_record(&record).unwrap_err();
        assert_eq!(
            error,
            BuildError::OffsetOutOfOrder {
                offset: 5,
                next_offset: 6
            }
        );
    }
}
