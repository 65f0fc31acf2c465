//! Decodes bytes to values, with limits on memory.

use super::varint::{self, ExcessBits, unzigzag_i32, unzigzag_i64};
use super::{DecodeError, STRING_BYTES_MAX, Uuid};

type Result<T> = std::result::Result<T, DecodeError>;

/// Memory that the arrays of a frame may take for each of its bytes.
const MEMORY_PER_FRAME_BYTE: usize = 4;
/// Memory that the arrays of even the smallest frame may take.
const MEMORY_FLOOR_BYTES: usize = 16 * 1024 * 1024;

/// Reads one frame from front to back. Strings and bytes are borrowed from it.
///
/// An array's elements are larger in memory than on the wire (an empty string is 1 byte on the wire
/// and 16 bytes in memory), so a frame of many small elements would multiply in memory. Two limits
/// prevent that: a count is refused if the remaining bytes cannot hold that many elements of
/// minimum size, and all arrays of one frame together take at most 16 MiB plus four times the
/// frame.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    memory_left: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        let budget = bytes
            .len()
            .saturating_mul(MEMORY_PER_FRAME_BYTE)
            .saturating_add(MEMORY_FLOOR_BYTES);
        Reader::with_memory_budget(bytes, budget)
    }

    /// `memory_bytes`: limit of the memory of all array elements together.
    pub fn with_memory_budget(bytes: &'a [u8], memory_bytes: usize) -> Reader<'a> {
        Reader {
            rest: bytes,
            memory_left: memory_bytes,
        }
    }

    /// The number of bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless everything was read.
    pub fn finish(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { count }),
        }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated {
            needed: count,
            remaining: self.rest.len(),
        })?;
        self.rest = tail;
        Ok(head)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated {
            needed: N,
            remaining: self.rest.len(),
        })?;
        self.rest = tail;
        Ok(*head)
    }

    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.fixed::<1>()?[0] != 0)
    }

    pub fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_be_bytes(self.fixed()?))
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.fixed::<1>()?[0])
    }

    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.fixed()?))
    }

    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.fixed()?))
    }

    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.fixed()?))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_be_bytes(self.fixed()?))
    }

    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_be_bytes(self.fixed()?))
    }

    pub fn uuid(&mut self) -> Result<Uuid> {
        Ok(Uuid(self.fixed()?))
    }

    /// An unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self) -> Result<u32> {
        Ok(self.unsigned::<32>()? as u32)
    }

    /// An unsigned varint of at most 64 bits.
    pub fn uvarlong(&mut self) -> Result<u64> {
        self.unsigned::<64>()
    }

    fn unsigned<const BITS: u32>(&mut self) -> Result<u64> {
        let mut rest = self.rest.iter();
        let truncated = DecodeError::Truncated {
            needed: self.rest.len() + 1,
            remaining: self.rest.len(),
        };
        let value = varint::read::<BITS, _>(ExcessBits::Refused, || rest.next().copied().ok_or(truncated))?
            .ok_or(DecodeError::VarintTooLong)?;
        self.rest = rest.as_slice();
        Ok(value)
    }

    /// A zigzag varint of 32 bits, as in records.
    pub fn varint(&mut self) -> Result<i32> {
        Ok(unzigzag_i32(self.unsigned::<32>()?))
    }

    /// A zigzag varint of 64 bits, as in records.
    pub fn varlong(&mut self) -> Result<i64> {
        Ok(unzigzag_i64(self.unsigned::<64>()?))
    }

    /// The length before a string: compact forms store length + 1, and 0 for null.
    fn string_length(&mut self, flexible: bool) -> Result<Option<usize>> {
        let length = if flexible {
            i64::from(self.uvarint()?) - 1
        } else {
            i64::from(self.i16()?)
        };
        length_or_null(length)
    }

    /// The length before bytes or the count before an array.
    fn long_length(&mut self, flexible: bool) -> Result<Option<usize>> {
        let length = if flexible {
            i64::from(self.uvarint()?) - 1
        } else {
            i64::from(self.i32()?)
        };
        length_or_null(length)
    }

    pub fn nullable_string(&mut self, flexible: bool) -> Result<Option<&'a str>> {
        let Some(length) = self.string_length(flexible)? else {
            return Ok(None);
        };
        if length > STRING_BYTES_MAX {
            return Err(DecodeError::StringTooLong { length });
        }
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(error) => Err(DecodeError::NotUtf8 {
                valid_bytes: error.valid_up_to(),
            }),
        }
    }

    pub fn string(&mut self, flexible: bool) -> Result<&'a str> {
        self.nullable_string(flexible)?.ok_or(DecodeError::UnexpectedNull)
    }

    pub fn nullable_bytes(&mut self, flexible: bool) -> Result<Option<&'a [u8]>> {
        match self.long_length(flexible)? {
            Some(length) => self.take(length).map(Some),
            None => Ok(None),
        }
    }

    pub fn bytes(&mut self, flexible: bool) -> Result<&'a [u8]> {
        self.nullable_bytes(flexible)?.ok_or(DecodeError::UnexpectedNull)
    }

    /// Charges `bytes` of memory to this frame's budget.
    fn charge(&mut self, bytes: usize) -> Result<()> {
        match self.memory_left.checked_sub(bytes) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(DecodeError::MemoryBudget {
                needed: bytes,
                left: self.memory_left,
            }),
        }
    }

    /// Reads an array's count and allocates its elements, within both limits.
    fn elements<T>(&mut self, flexible: bool, min_element_bytes: usize) -> Result<Option<(usize, Vec<T>)>> {
        let Some(count) = self.long_length(flexible)? else {
            return Ok(None);
        };
        if count > self.rest.len() / min_element_bytes.max(1) {
            return Err(DecodeError::CountTooLarge {
                count: count as u64,
                remaining: self.rest.len(),
            });
        }
        self.charge(count.saturating_mul(size_of::<T>()))?;
        Ok(Some((count, Vec::with_capacity(count))))
    }

    /// An array of structs, or null. `min_element_bytes`: minimum size of an element on the wire.
    pub fn nullable_array<T>(
        &mut self,
        version: i16,
        flexible: bool,
        min_element_bytes: usize,
        element: fn(&mut Reader<'a>, i16) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some((count, mut elements)) = self.elements(flexible, min_element_bytes)? else {
            return Ok(None);
        };
        for _ in 0..count {
            elements.push(element(self, version)?);
        }
        Ok(Some(elements))
    }

    /// An array of structs. `min_element_bytes`: minimum size of an element on the wire.
    pub fn array<T>(
        &mut self,
        version: i16,
        flexible: bool,
        min_element_bytes: usize,
        element: fn(&mut Reader<'a>, i16) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.nullable_array(version, flexible, min_element_bytes, element)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    /// An array of numbers, or null.
    pub fn nullable_values<T>(
        &mut self,
        flexible: bool,
        value: fn(&mut Reader<'a>) -> Result<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some((count, mut values)) = self.elements(flexible, size_of::<T>())? else {
            return Ok(None);
        };
        for _ in 0..count {
            values.push(value(self)?);
        }
        Ok(Some(values))
    }

    /// An array of numbers.
    pub fn values<T>(&mut self, flexible: bool, value: fn(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        self.nullable_values(flexible, value)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    /// An array of strings, or null.
    pub fn nullable_strings(&mut self, flexible: bool) -> Result<Option<Vec<&'a str>>> {
        let least = if flexible { 1 } else { 2 };
        let Some((count, mut strings)) = self.elements(flexible, least)? else {
            return Ok(None);
        };
        for _ in 0..count {
            strings.push(self.string(flexible)?);
        }
        Ok(Some(strings))
    }

    /// An array of strings.
    pub fn strings(&mut self, flexible: bool) -> Result<Vec<&'a str>> {
        self.nullable_strings(flexible)?
            .ok_or(DecodeError::UnexpectedNull)
    }

    /// Whether a nullable struct in a normal position follows: a signed byte, 1 or -1.
    pub fn is_present(&mut self) -> Result<bool> {
        match self.i8()? {
            1 => Ok(true),
            -1 => Ok(false),
            marker => Err(DecodeError::PresenceMarker {
                marker: marker.into(),
            }),
        }
    }

    /// Whether a nullable struct in a tagged field follows: an unsigned varint, 1 or 0.
    pub fn is_present_in_tag(&mut self) -> Result<bool> {
        match self.uvarint()? {
            1 => Ok(true),
            0 => Ok(false),
            marker => Err(DecodeError::PresenceMarker {
                marker: marker.into(),
            }),
        }
    }

    /// The number of tagged fields that follow; each takes at least two bytes.
    pub fn tagged_field_count(&mut self) -> Result<u32> {
        let count = self.uvarint()?;
        if count as usize > self.rest.len() / 2 {
            return Err(DecodeError::CountTooLarge {
                count: count.into(),
                remaining: self.rest.len(),
            });
        }
        Ok(count)
    }

    /// A tagged field's tag, and the number of bytes that remain after its value.
    pub fn tagged_field(&mut self) -> Result<(u32, usize)> {
        let tag = self.uvarint()?;
        let size = self.uvarint()? as usize;
        let end = self.rest.len().checked_sub(size).ok_or(DecodeError::Truncated {
            needed: size,
            remaining: self.rest.len(),
        })?;
        Ok((tag, end))
    }

    /// Skips the value of an unknown tagged field.
    pub fn skip_tagged_field(&mut self, end: usize) {
        self.rest = &self.rest[self.rest.len() - end..];
    }

    /// Checks that a known tagged field filled its announced size.
    pub fn end_tagged_field(&mut self, end: usize) -> Result<()> {
        match self.rest.len() as isize - end as isize {
            0 => Ok(()),
            excess => Err(DecodeError::TaggedFieldSize { excess }),
        }
    }

    /// Skips all tagged fields of a struct that defines none.
    pub fn skip_tagged_fields(&mut self) -> Result<()> {
        for _ in 0..self.tagged_field_count()? {
            let (_, end) = self.tagged_field()?;
            self.skip_tagged_field(end);
        }
        Ok(())
    }
}

fn length_or_null(length: i64) -> Result<Option<usize>> {
    match usize::try_from(length) {
        Ok(length) => Ok(Some(length)),
        Err(_) if length == -1 => Ok(None),
        Err(_) => Err(DecodeError::NegativeLength { length }),
    }
}
