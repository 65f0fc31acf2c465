//! Variable-length integers: seven bits a byte, the lowest first. Every reader of them in Ottla
//! comes here, whatever gives it its bytes.

/// What happens to bits of an integer's last byte that are beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExcessBits {
    /// The integer is too long: clients read such integers differently.
    Refused,
    /// As Apache Kafka reads records: bytes that it stored must stay readable.
    CutOff,
}

/// An unsigned integer of `BITS` bits (32 or 64); `next` gives its bytes.
///
/// - Returns `None` for an integer that is too long; its bytes up to the one that makes it so were
///   taken.
#[inline(always)]
pub(crate) fn read<const BITS: u32, E>(
    excess: ExcessBits,
    mut next: impl FnMut() -> Result<u8, E>,
) -> Result<Option<u64>, E> {
    // Two bytes reach to 16,383: the lengths and deltas of most records.
    let first = next()?;
    if first < 0x80 {
        return Ok(Some(first.into()));
    }
    let second = next()?;
    let mut value = u64::from(first & 0x7F) | u64::from(second & 0x7F) << 7;
    if second < 0x80 {
        return Ok(Some(value));
    }
    let mut shift = 14;
    while shift < BITS {
        let byte = next()?;
        value |= u64::from(byte & 0x7F) << shift;
        let bits_left = BITS - shift;
        if bits_left < 7 && excess == ExcessBits::Refused && byte >> bits_left != 0 {
            return Ok(None);
        }
        if byte < 0x80 {
            return Ok(Some(value));
        }
        shift += 7;
    }
    Ok(None)
}

/// The signed integer behind the zigzag form; bits beyond 32 are cut off.
#[inline(always)]
pub(crate) fn unzigzag_i32(value: u64) -> i32 {
    let value = value as u32;
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// The signed integer behind the zigzag form.
#[inline(always)]
pub(crate) fn unzigzag_i64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline(always)]
pub(crate) fn zigzag_i32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline(always)]
pub(crate) fn zigzag_i64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
