//! Snappy, in the framing of Java's streams and as the bare block of librdkafka and others.

use super::unfold::{Pieces, Room};
use super::{Codec, CompressionError, KIB, invalid, limit_exceeded};

/// The start of Java's snappy streams, sometimes repeated in the middle.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic 8, version 4, oldest compatible version 4.
pub(super) const HEADER_BYTES: usize = 8 + 4 + 4;
pub(super) const BLOCK_BYTES: usize = 32 * KIB;

const CUT: &str = "the stream ends inside a block";

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + snap::raw::max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[start..])
            .expect("the bound leaves room for the output");
        out.truncate(start + written);
        let length = u32::try_from(written).expect("a 32 KiB block stays small");
        out[length_at..start].copy_from_slice(&length.to_be_bytes());
    }
}

pub(super) fn decompress(
    input: &[u8],
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    if !input.starts_with(&MAGIC) {
        return append_block(input, limit_bytes, limit_bytes, out);
    }
    let mut rest = input;
    let mut remaining_bytes = limit_bytes;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest = rest.get(HEADER_BYTES..).ok_or_else(|| wrong(CUT))?;
            continue;
        }
        let before = out.len();
        append_block(take_block(&mut rest)?, remaining_bytes, limit_bytes, out)?;
        remaining_bytes -= out.len() - before;
    }
    Ok(())
}

fn wrong(reason: impl std::fmt::Display) -> CompressionError {
    invalid(Codec::Snappy, reason)
}

/// Takes a length and its block from a stream.
fn take_block<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], CompressionError> {
    let (length, after) = rest.split_first_chunk::<4>().ok_or_else(|| wrong(CUT))?;
    let length = u32::from_be_bytes(*length) as usize;
    let (block, after) = after.split_at_checked(length).ok_or_else(|| wrong(CUT))?;
    *rest = after;
    Ok(block)
}

/// Returns the size that a block announces, if its input can produce that much.
fn announced_bytes(block: &[u8]) -> Result<usize, CompressionError> {
    let announced = snap::raw::decompress_len(block).map_err(wrong)?;
    // The densest element is a copy of 64 bytes in three bytes of input.
    if announced > block.len().saturating_mul(64) / 3 + 64 {
        let bytes = block.len();
        return Err(wrong(format_args!(
            "{bytes} bytes cannot decompress to {announced}"
        )));
    }
    Ok(announced)
}

fn append_block(
    block: &[u8],
    remaining_bytes: usize,
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let announced = announced_bytes(block)?;
    if announced > remaining_bytes {
        return Err(limit_exceeded(Codec::Snappy, limit_bytes));
    }
    let start = out.len();
    out.resize(start + announced, 0);
    unfold_block(block, &mut out[start..])
}

/// Decompresses a block.
///
/// - Shape: `out` is as long as the block announces.
fn unfold_block(block: &[u8], out: &mut [u8]) -> Result<(), CompressionError> {
    snap::raw::Decoder::new()
        .decompress(block, out)
        .map(drop)
        .map_err(wrong)
}

/// The blocks of a stream one by one, or the one bare block.
///
/// Stricter than [`decompress`]: Java accepts a second header in the middle of a stream, but
/// librdkafka reads it as a block.
pub(super) struct SnappyPieces<'a> {
    rest: &'a [u8],
    is_bare: bool,
    out: &'a mut Vec<u8>,
    unfolded: usize,
    room: Room<'a>,
}

impl<'a> SnappyPieces<'a> {
    pub(super) fn new(
        input: &'a [u8],
        out: &'a mut Vec<u8>,
        room: Room<'a>,
    ) -> Result<SnappyPieces<'a>, CompressionError> {
        let is_bare = !input.starts_with(&MAGIC);
        let header_bytes = if is_bare { 0 } else { HEADER_BYTES };
        let cut = || wrong("the stream ends inside its header");
        let rest = input.get(header_bytes..).ok_or_else(cut)?;
        Ok(SnappyPieces {
            rest,
            is_bare,
            out,
            unfolded: 0,
            room,
        })
    }
}

impl Pieces for SnappyPieces<'_> {
    fn piece(&self) -> &[u8] {
        &self.out[..self.unfolded]
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        self.unfolded = 0;
        while !self.rest.is_empty() {
            let block = if self.is_bare {
                std::mem::take(&mut self.rest)
            } else {
                take_block(&mut self.rest)?
            };
            let announced = announced_bytes(block)?;
            self.room.take(announced)?;
            if self.out.len() < announced {
                self.out.resize(announced, 0);
            }
            unfold_block(block, &mut self.out[..announced])?;
            self.unfolded = announced;
            if announced > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
