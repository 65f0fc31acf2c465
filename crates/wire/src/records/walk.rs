//! The fast walk over uncompressed records that only answers "is it well-formed, and within what bounds".
//!
//! It looks at lengths and deltas and skips over keys and values, so a record costs a few nanoseconds however long it is. When
//! it finds nothing wrong, [`super::record::Records`] finds nothing wrong either; when it does, that decoder has the last word.

use super::batch::BatchHeader;

/// What all records of a batch have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// In milliseconds since 1970, like `max_timestamp`.
    pub min_timestamp: i64,
    pub max_timestamp: i64,
    pub has_null_key: bool,
}

/// Checks that `uncompressed` holds exactly the announced records, at offset deltas 0, 1, 2, ….
///
/// - Shape: `None` if not, or if in doubt. Timestamps are the records' own, whatever the header's timestamp type.
pub fn walk(header: &BatchHeader, uncompressed: &[u8]) -> Option<Walk> {
    let mut rest = uncompressed;
    let (mut min_delta, mut max_delta) = (i64::MAX, i64::MIN);
    let mut has_null_key = false;
    for offset_delta in 0..header.record_count {
        // The next record starts where this one's length says, which a processor knows before it has walked this one.
        let mut prefix = Steps {
            bytes: rest,
            position: 0,
        };
        let record_bytes = prefix.length()?;
        let (record, after) = rest[prefix.position..].split_at_checked(record_bytes)?;
        rest = after;
        // After the attributes byte, which has no meaning so far.
        let mut steps = Steps {
            bytes: record,
            position: 1,
        };
        let timestamp_delta = steps.varlong()?;
        if steps.varint()? != offset_delta {
            return None;
        }
        has_null_key |= steps.skip_nullable()?;
        steps.skip_nullable()?;
        let header_count = steps.length()?;
        if header_count > 0 {
            steps.skip_headers(header_count)?;
        }
        if steps.position != record.len() {
            return None;
        }
        min_delta = min_delta.min(timestamp_delta);
        max_delta = max_delta.max(timestamp_delta);
    }
    if !rest.is_empty() || header.record_count <= 0 {
        return None;
    }
    Some(Walk {
        min_timestamp: header.base_timestamp.checked_add(min_delta)?,
        max_timestamp: header.base_timestamp.checked_add(max_delta)?,
        has_null_key,
    })
}

struct Steps<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Steps<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    #[inline(always)]
    fn varint(&mut self) -> Option<i32> {
        let first = self.byte()?;
        let mut value = u32::from(first);
        if first >= 0x80 {
            let second = self.byte()?;
            value = u32::from(first & 0x7F) | u32::from(second) << 7;
            if second >= 0x80 {
                value = self.long_varint(value & 0x3FFF)?;
            }
        }
        Some((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// The rest of an integer whose first two bytes gave `value`.
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

    #[inline(always)]
    fn varlong(&mut self) -> Option<i64> {
        let first = self.byte()?;
        let mut value = u64::from(first);
        if first >= 0x80 {
            let second = self.byte()?;
            value = u64::from(first & 0x7F) | u64::from(second) << 7;
            if second >= 0x80 {
                value = self.long_varlong(value & 0x3FFF)?;
            }
        }
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The rest of an integer whose first two bytes gave `value`.
    fn long_varlong(&mut self, mut value: u64) -> Option<u64> {
        for shift in [14, 21, 28, 35, 42, 49, 56, 63] {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A length that must not be negative.
    #[inline(always)]
    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    #[inline(always)]
    fn skip(&mut self, bytes: usize) -> Option<()> {
        // Reads check the end themselves, and the record's end is compared, so a position beyond the bytes goes nowhere.
        self.position = self.position.checked_add(bytes)?;
        Some(())
    }

    /// Skips bytes that may be null, and says whether they are.
    #[inline(always)]
    fn skip_nullable(&mut self) -> Option<bool> {
        match self.varint()? {
            -1 => Some(true),
            length => {
                self.skip(usize::try_from(length).ok()?)?;
                Some(false)
            }
        }
    }

    fn skip_headers(&mut self, header_count: usize) -> Option<()> {
        for _ in 0..header_count {
            let key_bytes = self.length()?;
            self.skip(key_bytes)?;
            self.skip_nullable()?;
        }
        Some(())
    }
}
