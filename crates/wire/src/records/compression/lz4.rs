//! The LZ4 frame format (version 1.6.1 of its description), block by block, straight into the
//! output.
//!
//! Library frame codecs are streams: they keep their own windows and copy every byte once more.
//! Batches are whole in memory, so here each block is coded in place.

use std::hash::Hasher;

use lz4_flex::block::{
    CompressTable, DecompressError, compress_into_with_table, decompress_into, decompress_into_with_dict,
    get_maximum_output_size,
};
use twox_hash::XxHash32;

use super::unfold::{Pieces, Room};
use super::{Codec, CompressionError, KIB, invalid, limit_exceeded};

const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
/// Flag in a block's length: the block is stored uncompressed.
const STORED: u32 = 1 << 31;
const BLOCK_BYTES: usize = 64 * KIB;
/// How far back a block may refer to the ones before it.
const WINDOW_BYTES: usize = 64 * KIB;

// The flags of a frame.
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT_BLOCKS: u8 = 0b0010_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const DICTIONARY_ID: u8 = 0b0000_0001;
/// Reserved bits of the flags, and of the byte after them.
const RESERVED: [u8; 2] = [0b0000_0010, 0b1000_1111];

/// Independent blocks of 64 KiB without checksums, as Java's producer writes them; the batch has
/// its own checksum.
const HEADER: [u8; 7] = {
    let [a, b, c, d] = MAGIC;
    // The last byte is a checksum of the two before it.
    [a, b, c, d, VERSION_1 | INDEPENDENT_BLOCKS, 0x40, 0x82]
};

/// Appends the frame of `input` to `out`.
pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&HEADER);
    let mut table = CompressTable::large();
    for block in input.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let written = compress_into_with_table(block, &mut out[start..], &mut table)
            .expect("the bound leaves room for the output");
        let length = if written < block.len() {
            out.truncate(start + written);
            written as u32
        } else {
            out.truncate(start);
            out.extend_from_slice(block);
            block.len() as u32 | STORED
        };
        out[length_at..start].copy_from_slice(&length.to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
}

/// The header of a frame, and the position of its first block.
struct Header {
    flags: u8,
    block_bytes_max: usize,
    content_bytes: Option<u64>,
    bytes: usize,
}

impl Header {
    /// - Errors: the reason as text.
    fn parse(input: &[u8]) -> Result<Header, &'static str> {
        const CUT: &str = "the frame ends inside its header";
        if !input.starts_with(&MAGIC) {
            return Err("it does not begin with the magic number of a frame");
        }
        let &[flags, block_size] = input.get(4..).and_then(<[u8]>::first_chunk).ok_or(CUT)?;
        if flags & VERSION_MASK != VERSION_1 {
            return Err("the frame is of another version than 1");
        }
        if flags & DICTIONARY_ID != 0 {
            return Err("the frame wants a dictionary");
        }
        let block_bytes_max = match block_size >> 4 & 0b111 {
            4 => 64 * KIB,
            5 => 256 * KIB,
            6 => 1024 * KIB,
            7 => 4096 * KIB,
            _ => return Err("the frame's block size is none that is defined"),
        };
        let mut position = 6;
        let mut content_bytes = None;
        if flags & CONTENT_SIZE != 0 {
            let size = input.get(position..).and_then(<[u8]>::first_chunk).ok_or(CUT)?;
            content_bytes = Some(u64::from_le_bytes(*size));
            position += 8;
        }
        let checksum = *input.get(position).ok_or(CUT)?;
        if (XxHash32::oneshot(0, &input[4..position]) >> 8) as u8 != checksum {
            return Err("the checksum of the frame's header does not match");
        }
        Ok(Header {
            flags,
            block_bytes_max,
            content_bytes,
            bytes: position + 1,
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// An encoded block of a frame.
struct Block<'a> {
    bytes: &'a [u8],
    is_stored: bool,
    checksum: Option<u32>,
}

/// Iterates over the blocks of a frame, after its header.
struct Blocks<'a> {
    rest: &'a [u8],
    has_checksums: bool,
}

impl<'a> Blocks<'a> {
    /// Returns the next block; `Ok(None)` at the end mark, which is consumed too.
    fn next(&mut self) -> Result<Option<Block<'a>>, &'static str> {
        // A frame that is cut between two blocks must not be taken for a shorter one.
        const CUT: &str = "the frame ends inside a block";
        let word = take_u32(&mut self.rest).ok_or(CUT)?;
        let length = (word & !STORED) as usize;
        if length == 0 {
            return Ok(None);
        }
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(CUT)?;
        self.rest = rest;
        let checksum = if self.has_checksums {
            Some(take_u32(&mut self.rest).ok_or(CUT)?)
        } else {
            None
        };
        Ok(Some(Block {
            bytes,
            is_stored: word & STORED != 0,
            checksum,
        }))
    }
}

impl Block<'_> {
    fn check(&self, header: &Header) -> Result<(), &'static str> {
        if self
            .checksum
            .is_some_and(|checksum| XxHash32::oneshot(0, self.bytes) != checksum)
        {
            return Err("the checksum of a block does not match");
        }
        if self.bytes.len() > header.block_bytes_max {
            return Err("a block is larger than its frame allows");
        }
        Ok(())
    }
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_le_bytes(*bytes))
}

/// Appends the contents of the frame at the start of `input`; bytes after it are ignored.
pub(super) fn decompress(
    input: &[u8],
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let wrong = |reason| invalid(Codec::Lz4, reason);
    let header = Header::parse(input).map_err(wrong)?;
    let mut blocks = Blocks {
        rest: &input[header.bytes..],
        has_checksums: header.has(BLOCK_CHECKSUM),
    };
    let start = out.len();
    while let Some(block) = blocks.next().map_err(wrong)? {
        block.check(&header).map_err(wrong)?;
        let left_bytes = limit_bytes - (out.len() - start);
        if block.is_stored {
            if block.bytes.len() > left_bytes {
                return Err(limit_exceeded(Codec::Lz4, limit_bytes));
            }
            out.extend_from_slice(block.bytes);
            continue;
        }
        let allowed_bytes = header.block_bytes_max.min(left_bytes);
        let window_start = if header.has(INDEPENDENT_BLOCKS) {
            out.len()
        } else {
            start.max(out.len().saturating_sub(WINDOW_BYTES))
        };
        match unfold(block.bytes, allowed_bytes, window_start, out) {
            Ok(()) => {}
            Err(DecompressError::OutputTooSmall { .. }) if left_bytes < header.block_bytes_max => {
                return Err(limit_exceeded(Codec::Lz4, limit_bytes));
            }
            Err(error) => return Err(invalid(Codec::Lz4, error)),
        }
    }
    let content = &out[start..];
    if header
        .content_bytes
        .is_some_and(|announced| announced != content.len() as u64)
    {
        return Err(wrong("the frame does not hold as many bytes as it announces"));
    }
    if header.has(CONTENT_CHECKSUM) {
        let checksum = take_u32(&mut blocks.rest);
        if checksum.ok_or_else(|| wrong("the frame ends before its checksum"))?
            != XxHash32::oneshot(0, content)
        {
            return Err(wrong("the checksum of the content does not match"));
        }
    }
    Ok(())
}

/// Appends the contents of one block.
///
/// - `allowed_bytes`: limit of its size. Memory is zeroed before it is written, so a smaller guess
///   is
///   tried first.
/// - `window_start`: the block may refer to the contents of `out` from there on.
fn unfold(
    block: &[u8],
    allowed_bytes: usize,
    window_start: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    let start = out.len();
    let mut capacity = allowed_bytes.min((8 * block.len()).max(4 * KIB));
    loop {
        out.resize(start + capacity, 0);
        let (before, fresh) = out.split_at_mut(start);
        let window = &before[window_start..];
        let outcome = if window.is_empty() {
            decompress_into(block, fresh)
        } else {
            decompress_into_with_dict(block, fresh, window)
        };
        match outcome {
            Err(DecompressError::OutputTooSmall { .. }) if capacity < allowed_bytes => {
                capacity = allowed_bytes.min(4 * capacity);
            }
            outcome => {
                out.truncate(start + *outcome.as_ref().unwrap_or(&0));
                return outcome.map(drop);
            }
        }
    }
}

/// One frame of independent blocks, block by block.
///
/// Stricter than [`decompress`]: Java cannot read blocks that refer to earlier ones, and librdkafka
/// reads nothing after the frame.
pub(super) struct Lz4Pieces<'a> {
    header: Header,
    blocks: Blocks<'a>,
    out: &'a mut Vec<u8>,
    unfolded: usize,
    total_bytes: u64,
    checksum: Option<XxHash32>,
    is_over: bool,
    room: Room<'a>,
}

impl<'a> Lz4Pieces<'a> {
    pub(super) fn new(
        input: &'a [u8],
        out: &'a mut Vec<u8>,
        room: Room<'a>,
    ) -> Result<Lz4Pieces<'a>, CompressionError> {
        let wrong = |reason| invalid(Codec::Lz4, reason);
        let header = Header::parse(input).map_err(wrong)?;
        if input[4] & RESERVED[0] != 0 || input[5] & RESERVED[1] != 0 {
            return Err(wrong("the frame has unknown flags"));
        }
        if !header.has(INDEPENDENT_BLOCKS) {
            return Err(wrong("the frame's blocks depend on each other"));
        }
        Ok(Lz4Pieces {
            blocks: Blocks {
                rest: &input[header.bytes..],
                has_checksums: header.has(BLOCK_CHECKSUM),
            },
            checksum: header.has(CONTENT_CHECKSUM).then(|| XxHash32::with_seed(0)),
            header,
            out,
            unfolded: 0,
            total_bytes: 0,
            is_over: false,
            room,
        })
    }

    /// Decompresses the block to the front of the buffer.
    fn unfold(&mut self, block: &Block<'_>) -> Result<usize, CompressionError> {
        if block.is_stored {
            self.room.take(block.bytes.len())?;
            self.make_room(block.bytes.len());
            self.out[..block.bytes.len()].copy_from_slice(block.bytes);
            return Ok(block.bytes.len());
        }
        let allowed_bytes = self.header.block_bytes_max.min(self.room.left_bytes());
        loop {
            let offered_bytes = allowed_bytes.min(self.out.len());
            match decompress_into(block.bytes, &mut self.out[..offered_bytes]) {
                Ok(unfolded) => {
                    self.room.take(unfolded)?;
                    return Ok(unfolded);
                }
                Err(DecompressError::OutputTooSmall { .. }) if offered_bytes < allowed_bytes => {
                    self.make_room(allowed_bytes.min(4 * offered_bytes));
                }
                Err(DecompressError::OutputTooSmall { .. })
                    if allowed_bytes < self.header.block_bytes_max =>
                {
                    return Err(self.room.exceeded());
                }
                Err(error) => return Err(invalid(Codec::Lz4, error)),
            }
        }
    }

    fn make_room(&mut self, bytes: usize) {
        if self.out.len() < bytes {
            self.out.resize(bytes, 0);
        }
    }

    fn check_end(&mut self) -> Result<(), &'static str> {
        let announced = self.header.content_bytes;
        if announced.is_some_and(|announced| announced != self.total_bytes) {
            return Err("the frame does not hold as many bytes as it announces");
        }
        if let Some(checksum) = &self.checksum {
            let told = take_u32(&mut self.blocks.rest).ok_or("the frame ends before its checksum")?;
            if u64::from(told) != checksum.finish() {
                return Err("the checksum of the content does not match");
            }
        }
        match self.blocks.rest {
            [] => Ok(()),
            _ => Err("something follows the frame"),
        }
    }
}

impl Pieces for Lz4Pieces<'_> {
    fn piece(&self) -> &[u8] {
        &self.out[..self.unfolded]
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        let wrong = |reason| invalid(Codec::Lz4, reason);
        self.unfolded = 0;
        while !self.is_over && self.unfolded == 0 {
            let Some(block) = self.blocks.next().map_err(wrong)? else {
                self.is_over = true;
                self.check_end().map_err(wrong)?;
                break;
            };
            block.check(&self.header).map_err(wrong)?;
            self.unfolded = self.unfold(&block)?;
            self.total_bytes += self.unfolded as u64;
            if let Some(checksum) = &mut self.checksum {
                checksum.write(&self.out[..self.unfolded]);
            }
        }
        Ok(self.unfolded > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    fn text(bytes: usize) -> Vec<u8> {
        let word = |i: usize| format!("{{\"order\":{},\"amount\":{}}} ", i, i * 7919 % 1000);
        (0..).flat_map(|i| word(i).into_bytes()).take(bytes).collect()
    }

    /// Incompressible bytes.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    /// Frames of another encoder, with every optional part of a frame.
    fn frames(input: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            for size in [
                BlockSize::Max64KB,
                BlockSize::Max256KB,
                BlockSize::Max1MB,
                BlockSize::Max4MB,
            ] {
                for has_checksums in [false, true] {
                    let info = FrameInfo::new()
                        .block_mode(mode)
                        .block_size(size)
                        .block_checksums(has_checksums)
                        .content_checksum(has_checksums)
                        .content_size(has_checksums.then_some(input.len() as u64));
                    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                    encoder.write_all(input).unwrap();
                    frames.push(encoder.finish().unwrap());
                }
            }
        }
        frames
    }

    #[test]
    fn every_kind_of_frame_is_read() {
        for input in [
            Vec::new(),
            text(1),
            text(200_000),
            noise(200_000),
            vec![7; 1 << 20],
        ] {
            for frame in frames(&input) {
                let mut out = b"before".to_vec();
                decompress(&frame, input.len(), &mut out).unwrap();
                assert!(out[6..] == input);
            }
        }
    }

    #[test]
    fn another_decoder_reads_our_frames() {
        for input in [Vec::new(), text(1), text(64 * KIB), text(200_000), noise(200_000)] {
            let mut frame = Vec::new();
            compress(&input, &mut frame);
            let mut out = Vec::new();
            std::io::copy(&mut lz4_flex::frame::FrameDecoder::new(&*frame), &mut out).unwrap();
            assert!(out == input);
            assert!(frame.len() <= input.len() + HEADER.len() + 4 + 4 * input.len().div_ceil(BLOCK_BYTES));
        }
    }

    #[test]
    fn damage_that_a_checksum_covers_is_detected() {
        let input = text(100_000);
        for frame in frames(&input).into_iter().skip(1).step_by(2) {
            for position in (0..frame.len()).step_by(97) {
                let mut hostile = frame.clone();
                hostile[position] ^= 0x10;
                let outcome = decompress(&hostile, 1 << 20, &mut Vec::new());
                assert!(outcome.is_err(), "byte {position} of {}", frame.len());
            }
        }
    }

    #[test]
    fn one_byte_over_the_limit_is_told_from_a_damaged_block() {
        for frame in frames(&text(100_000)) {
            let error = decompress(&frame, 99_999, &mut Vec::new()).unwrap_err();
            assert_eq!(error, limit_exceeded(Codec::Lz4, 99_999));
        }
    }
}
