//! Decodes records on the application's thread, twice: first to validate them, then during
//! iteration.

use super::records::{Header, Headers};

/// A record as encoded in its batch, with deltas against the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordFields<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The first record of `bytes` and the rest; `None` when it is incomplete or inconsistent.
#[inline]
pub(super) fn split_record(bytes: &[u8]) -> Option<(RecordFields<'_>, &[u8])> {
    let mut cursor = Cursor { bytes, position: 0 };
    let record_bytes = usize::try_from(cursor.varint()?).ok()?;
    // The next record's start is known before this one is decoded, so that the processor can
    // overlap both.
    let (body, rest) = bytes[cursor.position..].split_at_checked(record_bytes)?;
    // After the attributes, none of which has a meaning so far.
    let mut cursor = Cursor {
        bytes: body,
        position: 1,
    };
    let timestamp_delta = cursor.varlong()?;
    let offset_delta = cursor.varint()?;
    let key = cursor.nullable_bytes()?;
    let value = cursor.nullable_bytes()?;
    let header_count = cursor.varint()?;
    let headers = if header_count == 0 {
        Headers::default()
    } else {
        cursor.headers(header_count)?
    };
    if cursor.position != body.len() {
        return None;
    }
    let fields = RecordFields {
        timestamp_delta,
        offset_delta,
        key,
        value,
        headers,
    };
    Some((fields, rest))
}

/// The first header of `bytes` and the rest.
pub(super) fn split_header(bytes: &[u8]) -> Option<(Header<'_>, &[u8])> {
    let mut cursor = Cursor { bytes, position: 0 };
    let header = cursor.header()?;
    Some((header, &bytes[cursor.position..]))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    /// A zigzag varint of at most 32 bits; excess bits of the fifth byte are ignored, as in Kafka.
    #[inline]
    fn varint(&mut self) -> Option<i32> {
        let first = self.byte()?;
        let mut value = u32::from(first & 0x7F);
        if first >= 0x80 {
            // Two bytes reach to 8,191: the length of most records.
            let second = self.byte()?;
            value |= u32::from(second & 0x7F) << 7;
            if second >= 0x80 {
                value = self.long_varint(value)?;
            }
        }
        Some((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    fn long_varint(&mut self, mut value: u32) -> Option<u32> {
        for shift in [14, 21, 28] {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn varlong(&mut self) -> Option<i64> {
        let first = self.byte()?;
        let mut value = u64::from(first & 0x7F);
        if first >= 0x80 {
            value = self.long_varlong(value)?;
        }
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn long_varlong(&mut self, mut value: u64) -> Option<u64> {
        for shift in [7, 14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(length)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    #[inline]
    fn nullable_bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => self.take(usize::try_from(length).ok()?).map(Some),
        }
    }

    fn header(&mut self) -> Option<Header<'a>> {
        let key_bytes = usize::try_from(self.varint()?).ok()?;
        let key = self.take(key_bytes)?;
        let value = self.nullable_bytes()?;
        Some(Header { key, value })
    }

    fn headers(&mut self, header_count: i32) -> Option<Headers<'a>> {
        let count = u32::try_from(header_count).ok()?;
        let start = self.position;
        for _ in 0..count {
            self.header()?;
        }
        Some(Headers {
            count,
            bytes: &self.bytes[start..self.position],
        })
    }
}
