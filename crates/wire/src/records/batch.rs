//! The header of a v2 record batch, and iteration over consecutive batches.

use std::fmt;

use super::compression::Codec;
use super::crc32c;
use super::record::Records;

/// Base offset 8, batch length 4: what precedes the bytes that `batch_length` counts.
pub const LENGTH_PREFIX_BYTES: usize = 8 + 4;

/// Base offset 8, batch length 4, leader epoch 4, magic 1, CRC 4, attributes 2, last offset delta
/// 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2, base sequence 4, record
/// count 4.
pub const HEADER_BYTES: usize = 8 + 4 + 4 + 1 + 4 + 2 + 4 + 8 + 8 + 8 + 2 + 4 + 4;
const _: () = assert!(HEADER_BYTES == 61);

/// The checksum covers everything from the attributes on, so that a broker can assign offsets and
/// the leader epoch without touching it.
pub const CRC_START: usize = 8 + 4 + 4 + 1 + 4;
const _: () = assert!(CRC_START == 21);

pub const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;

/// The only format of batches that is written since Kafka 4.0 (KIP-724); 0 and 1 are the formats
/// before it.
pub const MAGIC: i8 = 2;

pub const NO_PRODUCER_ID: i64 = -1;
pub const NO_PRODUCER_EPOCH: i16 = -1;
pub const NO_SEQUENCE: i32 = -1;
pub const NO_LEADER_EPOCH: i32 = -1;
pub const NO_TIMESTAMP: i64 = -1;

/// The bits of the batch attributes.
pub mod attributes {
    pub const CODEC_MASK: i16 = 0b0000_0111;
    pub const LOG_APPEND_TIME: i16 = 0b0000_1000;
    pub const TRANSACTIONAL: i16 = 0b0001_0000;
    pub const CONTROL: i16 = 0b0010_0000;
    /// The base timestamp is the time after which tombstones of this batch may go (KIP-534).
    pub const DELETE_HORIZON: i16 = 0b0100_0000;
    /// The bits that a producer may set. Bits above the delete horizon are unassigned.
    pub const OF_PRODUCERS: i16 = CODEC_MASK | TRANSACTIONAL;
}

/// Whether a record's timestamp was set by the producer, or by the broker at the append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    #[default]
    CreateTime,
    LogAppendTime,
}

/// The 61 bytes in front of a batch's records.
///
/// - Units: offsets count records, `batch_length` counts the bytes after itself, timestamps are
///   milliseconds since 1970.
/// - Source: KIP-98.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    pub batch_length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

/// Why bytes are not a v2 batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The bytes end before the batch does; `needed` counts from the batch's first byte.
    Truncated {
        needed: usize,
        available: usize,
    },
    /// `batch_length` is too small to hold a header, or negative.
    InvalidLength {
        batch_length: i32,
    },
    /// Another format; `batch_length` gives the start of the next batch.
    UnsupportedMagic {
        magic: i8,
        batch_length: i32,
    },
    NegativeRecordCount {
        record_count: i32,
    },
    NegativeLastOffsetDelta {
        last_offset_delta: i32,
    },
    NegativeBaseOffset {
        base_offset: i64,
    },
    /// Base offset plus last offset delta leaves no room for a next offset.
    OffsetOverflow {
        base_offset: i64,
        last_offset_delta: i32,
    },
    Checksum {
        expected: u32,
        actual: u32,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BatchError::Truncated { needed, available } => {
                write!(f, "batch needs {needed} bytes but only {available} are there")
            }
            BatchError::InvalidLength { batch_length } => {
                write!(f, "batch length {batch_length} cannot hold a batch header")
            }
            BatchError::UnsupportedMagic { magic, .. } => {
                write!(f, "record format {magic} is not supported, only {MAGIC}")
            }
            BatchError::NegativeRecordCount { record_count } => {
                write!(f, "record count {record_count} is negative")
            }
            BatchError::NegativeLastOffsetDelta { last_offset_delta } => {
                write!(f, "last offset delta {last_offset_delta} is negative")
            }
            BatchError::NegativeBaseOffset { base_offset } => {
                write!(f, "base offset {base_offset} is negative")
            }
            BatchError::OffsetOverflow {
                base_offset,
                last_offset_delta,
            } => {
                write!(
                    f,
                    "base offset {base_offset} plus {last_offset_delta} exceeds the largest offset"
                )
            }
            BatchError::Checksum { expected, actual } => {
                write!(
                    f,
                    "batch says its checksum is {expected:#010x} but it is {actual:#010x}"
                )
            }
        }
    }
}

impl std::error::Error for BatchError {}

impl BatchHeader {
    /// Reads and checks the header at the start of `bytes`, which may end before the records do.
    ///
    /// - Shape: afterwards `total_bytes`, `last_offset` and `next_offset` cannot overflow.
    /// - Errors: every variant but `Checksum`; `Truncated` only if the header itself is cut.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(header_bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(Self::explain_short(bytes));
        };
        let header = Self::decode(header_bytes);
        if header.batch_length < 0 || header.magic == MAGIC && header.total_bytes() < HEADER_BYTES {
            return Err(BatchError::InvalidLength {
                batch_length: header.batch_length,
            });
        }
        if header.magic != MAGIC {
            return Err(BatchError::UnsupportedMagic {
                magic: header.magic,
                batch_length: header.batch_length,
            });
        }
        header.check_offsets()?;
        Ok(header)
    }

    /// Returns the error of fewer than 61 bytes, which can be more specific than `Truncated`.
    fn explain_short(bytes: &[u8]) -> BatchError {
        let available = bytes.len();
        let Some(length_bytes) = bytes.get(8..12).and_then(|slice| slice.first_chunk::<4>()) else {
            return BatchError::Truncated {
                needed: HEADER_BYTES,
                available,
            };
        };
        let batch_length = i32::from_be_bytes(*length_bytes);
        if batch_length < 0 {
            return BatchError::InvalidLength { batch_length };
        }
        let needed = LENGTH_PREFIX_BYTES + batch_length as usize;
        match bytes.get(MAGIC_AT) {
            Some(&magic) if magic as i8 != MAGIC => BatchError::UnsupportedMagic {
                magic: magic as i8,
                batch_length,
            },
            _ if needed < HEADER_BYTES => BatchError::InvalidLength { batch_length },
            _ => BatchError::Truncated { needed, available },
        }
    }

    fn check_offsets(&self) -> Result<(), BatchError> {
        if self.record_count < 0 {
            return Err(BatchError::NegativeRecordCount {
                record_count: self.record_count,
            });
        }
        if self.last_offset_delta < 0 {
            return Err(BatchError::NegativeLastOffsetDelta {
                last_offset_delta: self.last_offset_delta,
            });
        }
        if self.base_offset < 0 {
            return Err(BatchError::NegativeBaseOffset {
                base_offset: self.base_offset,
            });
        }
        if self.base_offset > i64::MAX - 1 - i64::from(self.last_offset_delta) {
            return Err(BatchError::OffsetOverflow {
                base_offset: self.base_offset,
                last_offset_delta: self.last_offset_delta,
            });
        }
        Ok(())
    }

    /// Decodes the 61 bytes without checking them.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> BatchHeader {
        let mut fields = FieldReader(bytes);
        BatchHeader {
            base_offset: i64::from_be_bytes(fields.take()),
            batch_length: i32::from_be_bytes(fields.take()),
            leader_epoch: i32::from_be_bytes(fields.take()),
            magic: i8::from_be_bytes(fields.take()),
            crc: u32::from_be_bytes(fields.take()),
            attributes: i16::from_be_bytes(fields.take()),
            last_offset_delta: i32::from_be_bytes(fields.take()),
            base_timestamp: i64::from_be_bytes(fields.take()),
            max_timestamp: i64::from_be_bytes(fields.take()),
            producer_id: i64::from_be_bytes(fields.take()),
            producer_epoch: i16::from_be_bytes(fields.take()),
            base_sequence: i32::from_be_bytes(fields.take()),
            record_count: i32::from_be_bytes(fields.take()),
        }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut fields = FieldWriter(&mut bytes);
        fields.put(self.base_offset.to_be_bytes());
        fields.put(self.batch_length.to_be_bytes());
        fields.put(self.leader_epoch.to_be_bytes());
        fields.put(self.magic.to_be_bytes());
        fields.put(self.crc.to_be_bytes());
        fields.put(self.attributes.to_be_bytes());
        fields.put(self.last_offset_delta.to_be_bytes());
        fields.put(self.base_timestamp.to_be_bytes());
        fields.put(self.max_timestamp.to_be_bytes());
        fields.put(self.producer_id.to_be_bytes());
        fields.put(self.producer_epoch.to_be_bytes());
        fields.put(self.base_sequence.to_be_bytes());
        fields.put(self.record_count.to_be_bytes());
        bytes
    }

    /// Bytes of the whole batch, header included. A negative length counts as none.
    pub fn total_bytes(&self) -> usize {
        LENGTH_PREFIX_BYTES + usize::try_from(self.batch_length).unwrap_or(0)
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after this batch, whether or not records at its end were compacted away.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// The sequence number of the last record; sequences wrap from `i32::MAX` to 0. `NO_SEQUENCE`
    /// without one.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            NO_SEQUENCE
        } else {
            add_to_sequence(self.base_sequence, self.last_offset_delta)
        }
    }

    /// The codec of the records; `None` for the three bit patterns that name no codec.
    pub fn compression(&self) -> Option<Codec> {
        Codec::from_id(self.attributes & attributes::CODEC_MASK)
    }

    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes & attributes::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & attributes::TRANSACTIONAL != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & attributes::CONTROL != 0
    }

    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & attributes::DELETE_HORIZON != 0
    }

    /// The wall-clock time after which this batch's tombstones may be removed.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    pub fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }
}

/// `sequence + increment` modulo 2^31; neither may be negative.
pub fn add_to_sequence(sequence: i32, increment: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(increment);
    i32::try_from(sum & 0x7FFF_FFFF).expect("31 bits fit")
}

struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self
            .0
            .split_first_chunk::<N>()
            .expect("the fields' sizes add up to the header's");
        self.0 = rest;
        *field
    }
}

struct FieldWriter<'a>(&'a mut [u8]);

impl FieldWriter<'_> {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        let (head, rest) = std::mem::take(&mut self.0)
            .split_first_chunk_mut::<N>()
            .expect("the fields' sizes add up to the header's");
        *head = field;
        self.0 = rest;
    }
}

/// One whole batch, borrowed from a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    pub header: BatchHeader,
    /// Header and records, exactly `header.total_bytes()` long.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads the batch at the start of `bytes`; what follows it is ignored.
    ///
    /// - Errors: as [`BatchHeader::parse`], and `Truncated` if the records are cut. The checksum is
    ///   not
    ///   checked.
    pub fn parse(bytes: &'a [u8]) -> Result<Batch<'a>, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let needed = header.total_bytes();
        match bytes.get(..needed) {
            Some(bytes) => Ok(Batch { header, bytes }),
            None => Err(BatchError::Truncated {
                needed,
                available: bytes.len(),
            }),
        }
    }

    /// Computes the checksum of the bytes.
    pub fn checksum(&self) -> u32 {
        crc32c::checksum(&self.bytes[CRC_START..])
    }

    pub fn verify_checksum(&self) -> Result<(), BatchError> {
        let (expected, actual) = (self.header.crc, self.checksum());
        if expected == actual {
            Ok(())
        } else {
            Err(BatchError::Checksum { expected, actual })
        }
    }

    /// The bytes after the header: records, or their compressed form.
    pub fn record_bytes(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The records of an uncompressed batch. For a compressed one, decompress
    /// [`Batch::record_bytes`] and make a [`Records`] over the result.
    pub fn records(&self) -> Records<'a> {
        debug_assert_eq!(self.header.compression(), Some(Codec::None));
        Records::new(&self.header, self.record_bytes())
    }
}

/// Iterates over consecutive batches. See [`Batches`].
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches {
        bytes,
        position: 0,
        failed: false,
    }
}

/// The batches of a buffer in order; an error is the last item.
///
/// - Shape: consumes at least a header's bytes per item, whatever lengths are announced, so it
///   ends.
/// - Errors: the item after the last whole batch says why the rest is not one, e.g. `Truncated`.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl Batches<'_> {
    /// Bytes of the batches returned so far: the position of the next one, or of the faulty one
    /// after an error.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.bytes[self.position..];
        if rest.is_empty() || self.failed {
            return None;
        }
        let batch = Batch::parse(rest);
        match &batch {
            Ok(batch) => self.position += batch.bytes.len(),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}

impl std::iter::FusedIterator for Batches<'_> {}

/// Sets the fields that a broker may assign without changing the checksum.
pub fn assign_offset_and_epoch(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[LENGTH_PREFIX_BYTES..MAGIC_AT].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// Writes the checksum over everything after it into a batch's header.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c::checksum(&batch[CRC_START..]);
    batch[CRC_AT..CRC_START].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::builder::{BatchBuilder, BatchOptions};

    fn batch_at(base_offset: i64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            ..BatchOptions::default()
        });
        builder.append(1, Some(b"key"), Some(b"value"), &[]);
        builder.finish()
    }

    fn check_error(change: impl FnOnce(&mut BatchHeader), expected: BatchError) {
        let mut header = BatchHeader::parse(&batch_at(3)).unwrap();
        change(&mut header);
        assert_eq!(BatchHeader::parse(&header.encode()), Err(expected));
    }

    #[test]
    fn a_header_survives_encoding() {
        let header = BatchHeader {
            base_offset: 0x0102_0304_0506_0708,
            batch_length: 0x090A_0B0C,
            leader_epoch: 0x0D0E_0F10,
            magic: MAGIC,
            crc: 0xFEDC_BA98,
            attributes: 0x1112,
            last_offset_delta: 0x1314_1516,
            base_timestamp: -2,
            max_timestamp: i64::MAX,
            producer_id: 0x1718_191A_1B1C_1D1E,
            producer_epoch: -1,
            base_sequence: 0x1F20_2122,
            record_count: 0x2324_2526,
        };
        assert_eq!(BatchHeader::parse(&header.encode()), Ok(header));
    }

    #[test]
    fn every_invalid_field_has_its_error() {
        check_error(
            |h| h.batch_length = 48,
            BatchError::InvalidLength { batch_length: 48 },
        );
        check_error(
            |h| h.batch_length = -1,
            BatchError::InvalidLength { batch_length: -1 },
        );
        check_error(
            |h| {
                h.magic = 1;
                h.batch_length = 30;
            },
            BatchError::UnsupportedMagic {
                magic: 1,
                batch_length: 30,
            },
        );
        check_error(
            |h| h.record_count = -1,
            BatchError::NegativeRecordCount { record_count: -1 },
        );
        check_error(
            |h| h.last_offset_delta = -5,
            BatchError::NegativeLastOffsetDelta {
                last_offset_delta: -5,
            },
        );
        check_error(
            |h| h.base_offset = -1,
            BatchError::NegativeBaseOffset { base_offset: -1 },
        );
        check_error(
            |h| h.base_offset = i64::MAX,
            BatchError::OffsetOverflow {
                base_offset: i64::MAX,
                last_offset_delta: 0,
            },
        );
    }

    #[test]
    fn every_truncation_says_how_much_is_missing() {
        let bytes = batch_at(0);
        for available in 0..bytes.len() {
            let expected = if available < 12 { HEADER_BYTES } else { bytes.len() };
            assert_eq!(
                Batch::parse(&bytes[..available]),
                Err(BatchError::Truncated {
                    needed: expected,
                    available
                })
            );
        }
    }

    #[test]
    fn the_walk_stops_at_the_first_fault_and_knows_where() {
        let first = batch_at(0);
        let mut bytes = [first.clone(), batch_at(1), batch_at(2)].concat();
        bytes[2 * first.len() + MAGIC_AT] = 0;
        let mut walk = batches(&bytes);
        assert_eq!(walk.next().unwrap().unwrap().header.base_offset, 0);
        assert_eq!(walk.next().unwrap().unwrap().header.base_offset, 1);
        assert!(matches!(
            walk.next(),
            Some(Err(BatchError::UnsupportedMagic { magic: 0, .. }))
        ));
        assert_eq!(walk.next(), None);
        assert_eq!(walk.position(), 2 * first.len());
    }

    #[test]
    fn no_bytes_make_the_iteration_panic() {
        let bytes = [batch_at(0), batch_at(1)].concat();
        for position in 0..bytes.len() {
            for value in [0x00, 0x7F, 0x80, 0xFF] {
                let mut hostile = bytes.clone();
                hostile[position] = value;
                for batch in batches(&hostile).map_while(Result::ok) {
                    let _ = batch.verify_checksum();
                    assert!(batch.header.next_offset() > batch.header.base_offset);
                    if batch.header.compression() == Some(Codec::None) {
                        for record in batch.records() {
                            let _ = record;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn offset_and_epoch_are_outside_the_checksum() {
        let mut bytes = batch_at(0);
        assign_offset_and_epoch(&mut bytes, 123_456, 42);
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(
            (batch.header.base_offset, batch.header.leader_epoch),
            (123_456, 42)
        );
        batch.verify_checksum().unwrap();
    }

    #[test]
    fn a_flipped_bit_breaks_the_checksum() {
        let mut bytes = batch_at(0);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(matches!(
            Batch::parse(&bytes).unwrap().verify_checksum(),
            Err(BatchError::Checksum { .. })
        ));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(add_to_sequence(5, 3), 8);
        assert_eq!(add_to_sequence(i32::MAX, 0), i32::MAX);
        assert_eq!(add_to_sequence(i32::MAX, 1), 0);
        assert_eq!(add_to_sequence(i32::MAX - 1, 4), 2);
    }
}
