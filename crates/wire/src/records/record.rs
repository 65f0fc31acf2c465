//! One record inside a batch: varints, deltas, and borrowed key, value and headers.

use std::fmt;

use super::batch::{BatchHeader, TimestampType};
use crate::primitives::varint::{self, ExcessBits, unzigzag_i32, unzigzag_i64, zigzag_i32, zigzag_i64};
use crate::primitives::{put_varint, put_varlong};

/// Why bytes are not the records that the batch announces. `position` counts bytes from the first
/// record's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes end in the middle of a record.
    Truncated { position: usize },
    /// A variable-length integer with more bytes than its type can have.
    VarintTooLong { position: usize },
    /// A length below -1, or -1 where null is not allowed, or one that reaches beyond the record.
    InvalidLength { position: usize, length: i64 },
    /// The record's fields end before or after the length it announces.
    LengthMismatch {
        position: usize,
        announced: usize,
        actual: usize,
    },
    /// The batch announces fewer records than there are bytes for.
    TrailingBytes { position: usize, trailing: usize },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            RecordError::Truncated { position } => write!(f, "records end early, at byte {position}"),
            RecordError::VarintTooLong { position } => {
                write!(f, "variable-length integer too long at byte {position}")
            }
            RecordError::InvalidLength { position, length } => {
                write!(
                    f,
                    "invalid length {length} in the record that ends or breaks at byte {position}"
                )
            }
            RecordError::LengthMismatch {
                position,
                announced,
                actual,
            } => {
                write!(
                    f,
                    "record at byte {position} announces {announced} bytes but its fields take {actual}"
                )
            }
            RecordError::TrailingBytes { position, trailing } => {
                write!(
                    f,
                    "{trailing} bytes follow the last announced record, at byte {position}"
                )
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// A record that borrows from its batch.
///
/// - Units: `offset` counts records, `timestamp` is in milliseconds since 1970; both are absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: i64,
    pub timestamp: i64,
    /// All bits are unassigned so far.
    pub attributes: i8,
    pub key: Option<&'a [u8]>,
    /// Null marks a deletion (a tombstone) in compacted topics.
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// A record's headers, in the order in which the producer added them; keys may repeat. They were
/// checked when the record was decoded: iterating cannot fail.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: usize,
    bytes: &'a [u8],
}

/// One header. Keys should be UTF-8, but neither clients nor brokers enforce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> HeaderIter<'a> {
        HeaderIter {
            remaining: self.count,
            cursor: Cursor::new(self.bytes, 0, ExcessBits::CutOff),
        }
    }

    /// The value of the last header with this key.
    pub fn last(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let found = self.iter().filter(|header| header.key == key).last()?;
        Some(found.value)
    }

    /// The encoded headers of the batch, without their count.
    fn encoded(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The headers of a record.
#[derive(Clone, Debug)]
pub struct HeaderIter<'a> {
    remaining: usize,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.cursor.header().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}

/// Decodes the uncompressed records of one batch; an error is the last item.
///
/// - Shape: as many items as the batch announces; bytes after them are an error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
    remaining: i32,
    base_offset: i64,
    base_timestamp: i64,
    log_append_time: Option<i64>,
}

impl<'a> Records<'a> {
    /// `bytes` are the uncompressed records, without the batch's header.
    pub fn new(header: &BatchHeader, bytes: &'a [u8]) -> Records<'a> {
        let log_append_time = match header.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(header.max_timestamp),
        };
        Records {
            bytes,
            position: 0,
            remaining: header.record_count,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            log_append_time,
        }
    }

    /// The position of the next record, in bytes after the batch's header.
    pub fn position(&self) -> usize {
        self.position
    }

    fn record(&mut self) -> Result<Record<'a>, RecordError> {
        let (raw, position) = RawRecord::decode(self.bytes, self.position)?;
        self.position = position;
        Ok(Record {
            offset: self.base_offset.wrapping_add(i64::from(raw.offset_delta)),
            timestamp: self
                .log_append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(raw.timestamp_delta)),
            attributes: raw.attributes,
            key: raw.key,
            value: raw.value,
            headers: raw.headers,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining <= 0 {
            let trailing = self.bytes.len() - self.position;
            if self.remaining == 0 && trailing > 0 {
                self.remaining = -1;
                return Some(Err(RecordError::TrailingBytes {
                    position: self.position,
                    trailing,
                }));
            }
            return None;
        }
        self.remaining -= 1;
        let record = self.record();
        if record.is_err() {
            self.remaining = -1;
        }
        Some(record)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// A record with its encoded deltas, for callers that do not know the base yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    pub attributes: i8,
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

impl<'a> RawRecord<'a> {
    /// Decodes the record at `position` of `bytes`; returns it with the position after it.
    ///
    /// - Integers are read as Apache Kafka reads them: bits beyond their type are cut off.
    #[inline(always)]
    pub fn decode(bytes: &'a [u8], position: usize) -> Result<(RawRecord<'a>, usize), RecordError> {
        RawRecord::decode_with(bytes, position, ExcessBits::CutOff)
    }

    #[inline(always)]
    pub(super) fn decode_with(
        bytes: &'a [u8],
        position: usize,
        excess: ExcessBits,
    ) -> Result<(RawRecord<'a>, usize), RecordError> {
        let mut prefix = Cursor::new(&bytes[position..], position, excess);
        let length = prefix.varint()?;
        let announced = usize::try_from(length).map_err(|_| RecordError::InvalidLength {
            position,
            length: length.into(),
        })?;
        let start = prefix.absolute();
        // The next record's start is known before this one is decoded, so that a processor can
        // overlap both (instruction-level parallelism).
        let body = bytes[start..].get(..announced).ok_or(RecordError::Truncated {
            position: bytes.len(),
        })?;
        let mut body = Cursor::new(body, start, excess);
        let attributes = body.byte()? as i8;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.nullable_bytes()?;
        let value = body.nullable_bytes()?;
        let headers = body.headers()?;
        if body.position != announced {
            return Err(RecordError::LengthMismatch {
                position,
                announced,
                actual: body.position,
            });
        }
        let record = RawRecord {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers,
        };
        Ok((record, start + announced))
    }

    /// Bytes of the record after its own length.
    fn body_bytes(&self) -> usize {
        1 + varlong_bytes(self.timestamp_delta)
            + varint_bytes(self.offset_delta)
            + nullable_bytes_bytes(self.key)
            + nullable_bytes_bytes(self.value)
            + varint_bytes(length_i32(self.headers.len()))
            + self.headers.encoded().len()
    }

    /// Appends the record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, length_i32(self.body_bytes()));
        self.encode_fields(out);
        put_varint(out, length_i32(self.headers.len()));
        out.extend_from_slice(self.headers.encoded());
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        out.push(self.attributes as u8);
        put_varlong(out, self.timestamp_delta);
        put_varint(out, self.offset_delta);
        put_nullable_bytes(out, self.key);
        put_nullable_bytes(out, self.value);
    }

    /// Appends the record to `out` with `headers` instead of its own.
    pub(super) fn encode_with_headers(&self, headers: &[Header<'_>], out: &mut Vec<u8>) {
        let payload = Payload {
            key: self.key,
            value: self.value,
            headers: headers.iter().copied(),
        };
        let payload_bytes = payload.byte_count();
        payload.encode(payload_bytes, self.timestamp_delta, self.offset_delta, out);
    }
}

/// A record's contents independent of its place in a batch: encodes a producer's fields to bytes.
///
/// There are two steps, so that the first can run before a batch is locked:
/// [`Payload::byte_count`], then [`Payload::encode`].
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a, H> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: H,
}

/// The maximum size of a record without its payload: length 5, attributes 1, timestamp delta 10,
/// offset delta 5.
pub const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 1 + 10 + 5;

/// The size of a record whose payload takes `payload_bytes`.
#[inline]
pub fn record_bytes(payload_bytes: usize, timestamp_delta: i64, offset_delta: i32) -> usize {
    let body_bytes = 1 + varlong_bytes(timestamp_delta) + varint_bytes(offset_delta) + payload_bytes;
    varint_bytes(length_i32(body_bytes)) + body_bytes
}

impl<'a, H: ExactSizeIterator<Item = Header<'a>> + Clone> Payload<'a, H> {
    /// Bytes of key, value and headers with their lengths and the headers' count.
    #[inline]
    pub fn byte_count(&self) -> usize {
        let header_bytes: usize = self
            .headers
            .clone()
            .map(|header| nullable_bytes_bytes(Some(header.key)) + nullable_bytes_bytes(header.value))
            .sum();
        nullable_bytes_bytes(self.key)
            + nullable_bytes_bytes(self.value)
            + varint_bytes(length_i32(self.headers.len()))
            + header_bytes
    }

    /// Appends the record to `out`; `payload_bytes` is the result of [`Payload::byte_count`].
    #[inline]
    pub fn encode(self, payload_bytes: usize, timestamp_delta: i64, offset_delta: i32, out: &mut Vec<u8>) {
        let body_bytes = 1 + varlong_bytes(timestamp_delta) + varint_bytes(offset_delta) + payload_bytes;
        let mut front = Front::default();
        front.put(zigzag_i32(length_i32(body_bytes)).into());
        front.put(0);
        front.put(zigzag_i64(timestamp_delta));
        front.put(zigzag_i32(offset_delta).into());
        match self.key {
            None => front.put(NULL_LENGTH),
            Some(key) => {
                front.put(zigzag_i32(length_i32(key.len())).into());
                out.extend_from_slice(front.bytes());
                out.extend_from_slice(key);
                front.clear();
            }
        }
        match self.value {
            None => front.put(NULL_LENGTH),
            Some(value) => {
                front.put(zigzag_i32(length_i32(value.len())).into());
                out.extend_from_slice(front.bytes());
                out.extend_from_slice(value);
                front.clear();
            }
        }
        front.put(zigzag_i32(length_i32(self.headers.len())).into());
        out.extend_from_slice(front.bytes());
        for header in self.headers {
            put_nullable_bytes(out, Some(header.key));
            put_nullable_bytes(out, header.value);
        }
    }
}

/// The zigzag form of length -1: null.
const NULL_LENGTH: u64 = 1;

/// Integers collected on the stack, so that one copy appends them all: a capacity check of the
/// buffer for each of them costs more than writing them.
#[derive(Default)]
struct Front {
    bytes: [u8; Front::CAPACITY],
    length: usize,
}

impl Front {
    /// The largest run: a record's overhead, the lengths of a null key and value, the count of
    /// headers.
    const CAPACITY: usize = 32;

    #[inline]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes[self.length] = value as u8 | 0x80;
            self.length += 1;
            value >>= 7;
        }
        self.bytes[self.length] = value as u8;
        self.length += 1;
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    #[inline]
    fn clear(&mut self) {
        self.length = 0;
    }
}
const _: () = assert!(RECORD_OVERHEAD_BYTES_MAX + 1 + 5 + 5 <= Front::CAPACITY);

/// Reads record bytes from front to back.
#[derive(Clone, Debug)]
struct Cursor<'a> {
    bytes: &'a [u8],
    /// In `bytes`.
    position: usize,
    /// The position of `bytes` in what is decoded, for errors.
    start: usize,
    excess: ExcessBits,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn new(bytes: &'a [u8], start: usize, excess: ExcessBits) -> Cursor<'a> {
        Cursor {
            bytes,
            position: 0,
            start,
            excess,
        }
    }

    #[inline(always)]
    fn absolute(&self) -> usize {
        self.start + self.position
    }

    #[inline(always)]
    fn byte(&mut self) -> Result<u8, RecordError> {
        let byte = *self.bytes.get(self.position).ok_or(RecordError::Truncated {
            position: self.absolute(),
        })?;
        self.position += 1;
        Ok(byte)
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<i32, RecordError> {
        match varint::read::<32, _>(self.excess, || self.byte())? {
            Some(value) => Ok(unzigzag_i32(value)),
            None => Err(self.too_long()),
        }
    }

    #[inline(always)]
    fn varlong(&mut self) -> Result<i64, RecordError> {
        match varint::read::<64, _>(self.excess, || self.byte())? {
            Some(value) => Ok(unzigzag_i64(value)),
            None => Err(self.too_long()),
        }
    }

    fn too_long(&self) -> RecordError {
        RecordError::VarintTooLong {
            position: self.absolute(),
        }
    }

    fn invalid_length(&self, length: i32) -> RecordError {
        RecordError::InvalidLength {
            position: self.absolute(),
            length: length.into(),
        }
    }

    #[inline(always)]
    fn take(&mut self, length: i32) -> Result<&'a [u8], RecordError> {
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| self.bytes.get(self.position..self.position.checked_add(length)?))
            .ok_or_else(|| self.invalid_length(length))?;
        self.position += taken.len();
        Ok(taken)
    }

    #[inline(always)]
    fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.take(length).map(Some),
        }
    }

    #[inline(always)]
    fn header(&mut self) -> Result<Header<'a>, RecordError> {
        let key_bytes = self.varint()?;
        let key = self.take(key_bytes)?;
        let value = self.nullable_bytes()?;
        Ok(Header { key, value })
    }

    #[inline(always)]
    fn headers(&mut self) -> Result<Headers<'a>, RecordError> {
        match self.varint()? {
            0 => Ok(Headers::default()),
            announced => self.some_headers(announced),
        }
    }

    fn some_headers(&mut self, announced: i32) -> Result<Headers<'a>, RecordError> {
        // A header takes at least two bytes: the lengths of its key and of its value.
        let count_max = (self.bytes.len() - self.position) / 2;
        let count = usize::try_from(announced)
            .ok()
            .filter(|count| *count <= count_max)
            .ok_or_else(|| self.invalid_length(announced))?;
        let start = self.position;
        for _ in 0..count {
            self.header()?;
        }
        Ok(Headers {
            count,
            bytes: &self.bytes[start..self.position],
        })
    }
}

/// Bytes of `value` as a zigzag varint: 1 to 5.
pub fn varint_bytes(value: i32) -> usize {
    let bits = 32 - (zigzag_i32(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Bytes of `value` as a zigzag varlong: 1 to 10.
pub fn varlong_bytes(value: i64) -> usize {
    let bits = 64 - (zigzag_i64(value) | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

fn nullable_bytes_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint_bytes(length_i32(bytes.len())) + bytes.len())
}

fn put_nullable_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            put_varint(out, length_i32(bytes.len()));
            out.extend_from_slice(bytes);
        }
        None => put_varint(out, -1),
    }
}

/// A length on the wire is an i32; a record of 2 GiB or more is a bug of the caller.
fn length_i32(length: usize) -> i32 {
    i32::try_from(length).expect("a record's parts are shorter than 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_varint(value: i32) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out.len(), varint_bytes(value), "{value}");
        let mut cursor = Cursor::new(&out, 0, ExcessBits::Refused);
        assert_eq!(cursor.varint(), Ok(value));
        assert_eq!(cursor.position, out.len());
    }

    fn check_varlong(value: i64) {
        let mut out = Vec::new();
        put_varlong(&mut out, value);
        assert_eq!(out.len(), varlong_bytes(value), "{value}");
        let mut cursor = Cursor::new(&out, 0, ExcessBits::Refused);
        assert_eq!(cursor.varlong(), Ok(value));
        assert_eq!(cursor.position, out.len());
    }

    #[test]
    fn variable_length_integers_survive_at_every_length() {
        for shift in 0..32 {
            for near in [-1, 0, 1] {
                let value = 1i32.wrapping_shl(shift).wrapping_add(near);
                check_varint(value);
                check_varint(value.wrapping_neg());
            }
        }
        for shift in 0..64 {
            for near in [-1, 0, 1] {
                let value = 1i64.wrapping_shl(shift).wrapping_add(near);
                check_varlong(value);
                check_varlong(value.wrapping_neg());
            }
        }
    }

    #[test]
    fn overlong_integers_are_errors() {
        for excess in [ExcessBits::Refused, ExcessBits::CutOff] {
            let cursor = |bytes| Cursor::new(bytes, 0, excess);
            assert_eq!(
                cursor(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]).varint(),
                Err(RecordError::VarintTooLong { position: 5 })
            );
            assert_eq!(
                cursor(&[0x80; 11]).varlong(),
                Err(RecordError::VarintTooLong { position: 10 })
            );
            assert_eq!(
                cursor(&[0x80]).varint(),
                Err(RecordError::Truncated { position: 1 })
            );
        }
    }

    #[test]
    fn excess_bits_are_cut_off_where_stored_records_are_read() {
        let five = [0x80, 0x80, 0x80, 0x80, 0x7F];
        assert_eq!(
            Cursor::new(&five, 0, ExcessBits::CutOff).varint(),
            Ok(unzigzag_i32(0xF000_0000))
        );
        assert_eq!(
            Cursor::new(&five, 0, ExcessBits::Refused).varint(),
            Err(RecordError::VarintTooLong { position: 5 })
        );
        let ten = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 3];
        assert_eq!(
            Cursor::new(&ten, 0, ExcessBits::CutOff).varlong(),
            Ok(unzigzag_i64(1 << 63))
        );
        assert_eq!(
            Cursor::new(&ten, 0, ExcessBits::Refused).varlong(),
            Err(RecordError::VarintTooLong { position: 10 })
        );
    }

    fn header(record_count: i32) -> BatchHeader {
        let mut header = BatchHeader::decode(&[0; 61]);
        header.record_count = record_count;
        header
    }

    /// Decodes one record with body `body` and its correct length.
    fn decode_one(body: &[u8]) -> Result<(), RecordError> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, body.len() as i32);
        bytes.extend_from_slice(body);
        Records::new(&header(1), &bytes).try_for_each(|record| record.map(drop))
    }

    #[test]
    fn lengths_are_checked_one_by_one() {
        // Attributes, timestamp delta, offset delta, key length, value length, header count; -1 is
        // encoded as 1.
        assert_eq!(decode_one(&[0, 0, 0, 1, 1, 0]), Ok(()));
        assert_eq!(
            decode_one(&[0, 0, 0, 3, 1, 0]),
            Err(RecordError::InvalidLength {
                position: 5,
                length: -2
            })
        );
        assert_eq!(
            decode_one(&[0, 0, 0, 8, 1, 0]),
            Err(RecordError::InvalidLength {
                position: 5,
                length: 4
            })
        );
        assert_eq!(
            decode_one(&[0, 0, 0, 1, 1, 1]),
            Err(RecordError::InvalidLength {
                position: 7,
                length: -1
            })
        );
        assert_eq!(
            decode_one(&[0, 0, 0, 1, 1, 4]),
            Err(RecordError::InvalidLength {
                position: 7,
                length: 2
            })
        );
        // A header whose key is null.
        assert_eq!(
            decode_one(&[0, 0, 0, 1, 1, 2, 1, 1]),
            Err(RecordError::InvalidLength {
                position: 8,
                length: -1
            })
        );
        assert_eq!(
            decode_one(&[0, 0, 0, 1, 1, 0, 9]),
            Err(RecordError::LengthMismatch {
                position: 0,
                announced: 7,
                actual: 6
            })
        );
        assert_eq!(
            decode_one(&[0, 0, 0, 1, 1]),
            Err(RecordError::Truncated { position: 6 })
        );
    }

    #[test]
    fn the_batch_must_hold_exactly_the_announced_records() {
        let one = [12, 0, 0, 0, 1, 1, 0];
        let count = |announced| Records::new(&header(announced), &one).collect::<Vec<_>>();
        assert_eq!(count(1).len(), 1);
        assert_eq!(count(2)[1], Err(RecordError::Truncated { position: 7 }));
        assert_eq!(
            count(0),
            [Err(RecordError::TrailingBytes {
                position: 0,
                trailing: 7
            })]
        );
    }
}
