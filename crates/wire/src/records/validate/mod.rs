//! Validates one partition's records of a Produce request before the leader appends them.
//!
//! A batch that passes can be read completely by every client, and is written as `[patched
//! header][record bytes as received]`. Uncompressed records are walked in place, compressed ones
//! are decompressed piece by piece; there is no allocation per record. The error names the first
//! record that breaks a rule.
//!
//! Deviations from Apache Kafka, which also decompresses compressed batches: records must be
//! numbered 0, 1, 2, … (KIP-98) in uncompressed batches too, a record's announced length must be
//! right in compressed batches too, compressed data is one stream without trailing bytes, and
//! attribute bits that belong to the broker or are unassigned are refused.

mod error;

use std::borrow::Cow;
use std::fmt;

use super::batch::{
    BatchError, BatchHeader, CRC_START, HEADER_BYTES, NO_PRODUCER_EPOCH, NO_TIMESTAMP, TimestampType,
    attributes,
};
use super::builder::{BatchBuilder, BatchOptions};
use super::compression::unfold::{UnfoldingBudget, unfold};
use super::compression::{Codec, Compression, decompress};
use super::crc32c;
use super::record::Records;
use super::walk::{Seen, Visit, walk};

pub use error::{ProduceError, RecordFault};

/// zstd was introduced with version 7 (KIP-110): older clients may not support it.
const FIRST_PRODUCE_VERSION_WITH_ZSTD: i16 = 7;

/// Limit of reported faults: each takes memory and response bytes, and a batch can have a million.
pub const RECORD_FAULTS_MAX: usize = 100;

/// The rules for a partition's records, from the topic, the request and the clock.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules {
    pub produce_version: i16,
    /// `max.message.bytes`: limit of the stored batch, header included.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`; `i64::MAX` is no limit.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// Whether `cleanup.policy` contains `compact`: then every record needs a key.
    pub is_compacted: bool,
    /// `compression.type`; `None` is `producer`: keep the batch's codec.
    pub compression: Option<Compression>,
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: i64,
}

/// A batch that may be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidBatch<'a> {
    /// The header to be stored, except for base offset and leader epoch, which the log assigns. The
    /// checksum is right.
    pub header: BatchHeader,
    /// The bytes after the header: the request's own, or recompressed ones if the topic has another
    /// codec.
    pub record_bytes: Cow<'a, [u8]>,
}

impl ValidBatch<'_> {
    /// The 61 bytes to write before [`ValidBatch::record_bytes`]. The checksum covers neither
    /// argument.
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

    /// The number of offsets that the batch takes.
    pub fn record_count(&self) -> i32 {
        self.header.record_count
    }
}

/// Validates the records of one partition in a Produce request of version 3 or later.
///
/// - Units: `bytes` is the partition's whole `records` field; `budget` is the number of bytes to
///   which
///   the request's batches may still decompress.
/// - Shape: costs one checksum, one walk, and one decompression of compressed batches; walk and
///   decompression run a second time only if a record breaks a rule.
/// - Errors: the first that applies; faults of records are collected.
pub fn validate<'a>(
    bytes: &'a [u8],
    rules: &ProduceRules,
    budget: &mut UnfoldingBudget,
) -> Result<ValidBatch<'a>, ProduceError> {
    let header = check_envelope(bytes, rules)?;
    let codec = header.compression().ok_or(ProduceError::UnknownCodec {
        attributes: header.attributes,
    })?;
    check_checksum(&header, bytes)?;
    check_header(&header)?;
    let record_bytes = &bytes[HEADER_BYTES..];
    let checked = check_records(&header, codec, record_bytes, rules, budget)?;
    match rules.compression.filter(|target| target.codec != codec) {
        None => Ok(in_place(&header, record_bytes, checked.max_timestamp, rules)),
        Some(target) => {
            budget.take_for_packing(checked.plain_bytes)?;
            recompress(&header, codec, record_bytes, checked.plain_bytes, target, rules)
        }
    }
}

/// Checks that there is exactly one batch, of a known format and allowed size.
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
    if header.has_producer_id() && header.producer_epoch < NO_PRODUCER_EPOCH {
        return Err(ProduceError::ProducerEpoch {
            producer_epoch: header.producer_epoch,
        });
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
    if header.attributes & !attributes::OF_PRODUCERS != 0 {
        return Err(ProduceError::Attributes {
            attributes: header.attributes,
        });
    }
    Ok(())
}

fn is_too_late(timestamp: i64, rules: &ProduceRules) -> bool {
    timestamp > rules.now_ms.saturating_add(rules.timestamp_after_max_ms)
}

fn is_too_early(timestamp: i64, rules: &ProduceRules) -> bool {
    timestamp < rules.now_ms.saturating_sub(rules.timestamp_before_max_ms)
}

/// A record without a timestamp is never too old.
fn has_bad_timestamp(timestamp: i64, rules: &ProduceRules) -> bool {
    rules.timestamp_type == TimestampType::CreateTime
        && timestamp != NO_TIMESTAMP
        && (is_too_late(timestamp, rules) || is_too_early(timestamp, rules))
}

/// The result for valid records.
struct Checked {
    /// In milliseconds since 1970.
    max_timestamp: i64,
    /// Size of the records without compression.
    plain_bytes: usize,
}

/// Checks the records in one walk; a second one names the faults if there are any.
fn check_records(
    header: &BatchHeader,
    codec: Codec,
    record_bytes: &[u8],
    rules: &ProduceRules,
    budget: &mut UnfoldingBudget,
) -> Result<Checked, ProduceError> {
    let mut extent = Extent::default();
    let count = header.record_count;
    let plain_bytes = unfold(codec, record_bytes, budget, |pieces| {
        walk(count, pieces, &mut extent)
    })??;
    if let Some(max_timestamp) = extent.max_timestamp_of_sound(header, rules) {
        return Ok(Checked {
            max_timestamp,
            plain_bytes,
        });
    }
    let mut faults = Faults::new(header, rules);
    let mut again = UnfoldingBudget::new(plain_bytes);
    unfold(codec, record_bytes, &mut again, |pieces| {
        walk(count, pieces, &mut faults)
    })??;
    faults.finish().map(|max_timestamp| Checked {
        max_timestamp,
        plain_bytes,
    })
}

/// Bounds over all records of a batch.
struct Extent {
    min_delta: i64,
    max_delta: i64,
    has_null_key: bool,
    is_numbered: bool,
}

impl Default for Extent {
    fn default() -> Extent {
        Extent {
            min_delta: i64::MAX,
            max_delta: i64::MIN,
            has_null_key: false,
            is_numbered: true,
        }
    }
}

impl Visit for Extent {
    #[inline(always)]
    fn record(&mut self, index: i32, seen: Seen) {
        self.min_delta = self.min_delta.min(seen.timestamp_delta);
        self.max_delta = self.max_delta.max(seen.timestamp_delta);
        self.has_null_key |= !seen.has_key;
        self.is_numbered &= seen.offset_delta == index;
    }
}

impl Extent {
    /// The largest timestamp; `None` if a record may break a rule.
    fn max_timestamp_of_sound(&self, header: &BatchHeader, rules: &ProduceRules) -> Option<i64> {
        let max_timestamp = header.base_timestamp.checked_add(self.max_delta)?;
        let min_timestamp = header.base_timestamp.checked_add(self.min_delta)?;
        let may_be_bad = rules.timestamp_type == TimestampType::CreateTime
            && (is_too_late(max_timestamp, rules) || is_too_early(min_timestamp, rules));
        let is_sound = self.is_numbered && !(rules.is_compacted && self.has_null_key) && !may_be_bad;
        is_sound.then_some(max_timestamp)
    }
}

/// The faults of single records.
struct Faults<'a> {
    base_timestamp: i64,
    max_timestamp: i64,
    rules: &'a ProduceRules,
    found: Vec<RecordFault>,
    count: usize,
    has_timestamp_fault: bool,
}

impl<'a> Faults<'a> {
    fn new(header: &BatchHeader, rules: &'a ProduceRules) -> Faults<'a> {
        Faults {
            base_timestamp: header.base_timestamp,
            max_timestamp: NO_TIMESTAMP,
            rules,
            found: Vec::new(),
            count: 0,
            has_timestamp_fault: false,
        }
    }

    /// The largest timestamp.
    fn finish(self) -> Result<i64, ProduceError> {
        let (faults, fault_count) = (self.found, self.count);
        match (fault_count, self.has_timestamp_fault) {
            (0, _) => Ok(self.max_timestamp),
            (_, true) => Err(ProduceError::InvalidTimestamps { faults, fault_count }),
            (_, false) => Err(ProduceError::InvalidRecords { faults, fault_count }),
        }
    }
}

impl Visit for Faults<'_> {
    fn record(&mut self, index: i32, seen: Seen) {
        // Java adds deltas with wrap-around too.
        let timestamp = self.base_timestamp.wrapping_add(seen.timestamp_delta);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let Some(fault) = Fault::of(index, timestamp, &seen, self.rules) else {
            return;
        };
        self.has_timestamp_fault |= matches!(fault, Fault::Timestamp { .. });
        self.count += 1;
        if self.found.len() < RECORD_FAULTS_MAX {
            self.found.push(RecordFault {
                batch_index: index,
                message: fault.to_string(),
            });
        }
    }
}

enum Fault {
    OffsetDelta {
        expected: i32,
        actual: i32,
    },
    NoKey,
    Timestamp {
        timestamp: i64,
        earliest: i64,
        latest: i64,
    },
}

impl Fault {
    fn of(index: i32, timestamp: i64, seen: &Seen, rules: &ProduceRules) -> Option<Fault> {
        if seen.offset_delta != index {
            Some(Fault::OffsetDelta {
                expected: index,
                actual: seen.offset_delta,
            })
        } else if rules.is_compacted && !seen.has_key {
            Some(Fault::NoKey)
        } else if has_bad_timestamp(timestamp, rules) {
            Some(Fault::Timestamp {
                timestamp,
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

/// Keeps the record bytes; changes the header, and its checksum, only if needed.
fn in_place<'a>(
    header: &BatchHeader,
    record_bytes: &'a [u8],
    max_timestamp: i64,
    rules: &ProduceRules,
) -> ValidBatch<'a> {
    let mut patched = *header;
    match rules.timestamp_type {
        TimestampType::CreateTime => patched.max_timestamp = max_timestamp.max(NO_TIMESTAMP),
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

/// Recompresses the records with the topic's `compression.type`.
fn recompress<'a>(
    header: &BatchHeader,
    codec: Codec,
    record_bytes: &[u8],
    plain_bytes: usize,
    target: Compression,
    rules: &ProduceRules,
) -> Result<ValidBatch<'a>, ProduceError> {
    if target.codec == Codec::None {
        check_size(HEADER_BYTES + plain_bytes, rules)?;
    }
    let plain = match codec {
        Codec::None => Cow::Borrowed(record_bytes),
        codec => {
            let mut plain = Vec::with_capacity(plain_bytes);
            decompress(codec, record_bytes, plain_bytes, &mut plain)?;
            Cow::Owned(plain)
        }
    };
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
    for record in Records::new(header, &plain) {
        let record = record.expect("the walk found the records whole");
        builder
            .append_record(&record)
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
