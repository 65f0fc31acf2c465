//! The codecs of record batches, in the framings that Kafka's clients write.
//!
//! Decompression is bounded: a batch of a few kilobytes can announce or unfold to gigabytes, so every decoder stops at a limit
//! that its caller names, and none allocates by an announced size that its input cannot fill.

mod lz4;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use zstd::zstd_safe;

const KIB: usize = 1024;

/// How the records of a batch are compressed; the numbers are those of the batch attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Codec {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

impl Codec {
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    pub fn from_id(id: i16) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.id() == id)
    }

    pub fn id(self) -> i16 {
        self as i16
    }

    /// The codec by its name in `compression.type`.
    pub fn from_name(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gzip",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A codec and how hard it should try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    pub codec: Codec,
    /// gzip 1 to 9, zstd -131072 to 22. `None` takes the codec's usual one (6 and 3). The others have no levels here: our
    /// lz4 encoder knows only the fast mode.
    pub level: Option<i32>,
}

impl Compression {
    pub const NONE: Compression = Compression {
        codec: Codec::None,
        level: None,
    };
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Compression {
        Compression { codec, level: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompressionError {
    /// The output would be larger than the caller allows.
    LimitExceeded { codec: Codec, limit_bytes: usize },
    /// The input is not what the codec writes.
    Invalid { codec: Codec, reason: String },
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompressionError::LimitExceeded { codec, limit_bytes } => {
                write!(
                    f,
                    "{codec} data unfolds to more than the limit of {limit_bytes} bytes"
                )
            }
            CompressionError::Invalid { codec, reason } => write!(f, "invalid {codec} data: {reason}"),
        }
    }
}

impl std::error::Error for CompressionError {}

/// Appends the compressed form of `input` to `out`.
///
/// - Shape: gzip members, snappy in 32 KiB blocks in the Java framing, lz4 frames of independent 64 KiB blocks, zstd frames.
pub fn compress(compression: Compression, input: &[u8], out: &mut Vec<u8>) {
    const CANNOT_FAIL: &str = "writing to memory does not fail";
    match compression.codec {
        Codec::None => out.extend_from_slice(input),
        Codec::Gzip => {
            let level = compression.level.map_or(6, |level| level.clamp(1, 9) as u32);
            let mut encoder = GzEncoder::new(out, flate2::Compression::new(level));
            encoder.write_all(input).expect(CANNOT_FAIL);
            encoder.finish().expect(CANNOT_FAIL);
        }
        Codec::Snappy => compress_snappy(input, out),
        Codec::Lz4 => lz4::compress(input, out),
        Codec::Zstd => {
            let level = compression
                .level
                .unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL)
                .clamp(-131_072, 22);
            let start = out.len();
            out.resize(start + zstd_safe::compress_bound(input.len()), 0);
            let written = ZSTD_COMPRESSOR
                .with_borrow_mut(|compressor| compressor.compress(&mut out[start..], input, level))
                .expect("the bound leaves room for the output");
            out.truncate(start + written);
        }
    }
}

/// Appends the decompressed form of `input` to `out`.
///
/// - Errors: `LimitExceeded` when more than `limit_bytes` would be appended; `out` then holds an unspecified part.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    match codec {
        Codec::None => {
            check_limit(codec, input.len(), limit_bytes)?;
            out.extend_from_slice(input);
            Ok(())
        }
        Codec::Gzip => read_bounded(codec, MultiGzDecoder::new(input), limit_bytes, out),
        Codec::Snappy => decompress_snappy(input, limit_bytes, out),
        Codec::Lz4 => lz4::decompress(input, limit_bytes, out),
        Codec::Zstd => decompress_zstd(input, limit_bytes, out),
    }
}

/// Checks that `input` is framed as `codec` frames its output, without unfolding it.
///
/// - Shape: a few comparisons per block of the frame. Damage inside a block stays unseen.
pub fn check_framing(codec: Codec, input: &[u8]) -> Result<(), CompressionError> {
    const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
    // Header 10, an empty deflate block 2, checksum 4, size 4.
    const GZIP_BYTES_MIN: usize = 10 + 2 + 4 + 4;
    let is_framed = match codec {
        Codec::None => true,
        Codec::Gzip => input.starts_with(&GZIP_MAGIC) && input.len() >= GZIP_BYTES_MIN,
        Codec::Snappy => snappy_blocks_are_whole(input),
        Codec::Lz4 => lz4::is_whole(input),
        Codec::Zstd => zstd_frames_are_whole(input),
    };
    if is_framed {
        Ok(())
    } else {
        Err(invalid(codec, "the bytes are not framed as this codec does"))
    }
}

fn snappy_blocks_are_whole(input: &[u8]) -> bool {
    if !input.starts_with(&XERIAL_MAGIC) {
        // A bare block says how much it unfolds to, and nothing else about itself.
        return snap::raw::decompress_len(input).is_ok_and(|announced| {
            !input.is_empty()
                && announced <= snappy_bytes_max(input.len())
                && input.len() <= snap::raw::max_compress_len(announced)
        });
    }
    let mut rest = input;
    while !rest.is_empty() {
        let next = if rest.starts_with(&XERIAL_MAGIC) {
            rest.get(XERIAL_HEADER_BYTES..)
        } else {
            rest.split_first_chunk::<4>()
                .and_then(|(length, after)| after.get(u32::from_be_bytes(*length) as usize..))
        };
        match next {
            Some(next) => rest = next,
            None => return false,
        }
    }
    true
}

fn zstd_frames_are_whole(input: &[u8]) -> bool {
    let mut rest = input;
    while !rest.is_empty() {
        match zstd_safe::find_frame_compressed_size(rest) {
            Ok(frame_bytes) if (1..=rest.len()).contains(&frame_bytes) => rest = &rest[frame_bytes..],
            _ => return false,
        }
    }
    !input.is_empty()
}

fn check_limit(codec: Codec, output_bytes: usize, limit_bytes: usize) -> Result<(), CompressionError> {
    if output_bytes > limit_bytes {
        return Err(limit_exceeded(codec, limit_bytes));
    }
    Ok(())
}

fn limit_exceeded(codec: Codec, limit_bytes: usize) -> CompressionError {
    CompressionError::LimitExceeded { codec, limit_bytes }
}

fn invalid(codec: Codec, reason: impl fmt::Display) -> CompressionError {
    CompressionError::Invalid {
        codec,
        reason: reason.to_string(),
    }
}

fn read_bounded(
    codec: Codec,
    decoder: impl Read,
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    // One byte more than allowed tells "exactly full" from "too much".
    let mut bounded = decoder.take(limit_bytes as u64 + 1);
    let appended = bounded
        .read_to_end(out)
        .map_err(|error: io::Error| invalid(codec, error))?;
    check_limit(codec, appended, limit_bytes)
}

/// What Java's snappy streams begin with, and sometimes repeat in the middle.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic 8, version 4, oldest compatible version 4.
const XERIAL_HEADER_BYTES: usize = 8 + 4 + 4;
const XERIAL_BLOCK_BYTES: usize = 32 * KIB;

fn compress_snappy(input: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&XERIAL_MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in input.chunks(XERIAL_BLOCK_BYTES) {
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

/// Takes Java's framing, and a bare snappy block as librdkafka and others may write it.
fn decompress_snappy(input: &[u8], limit_bytes: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    if !input.starts_with(&XERIAL_MAGIC) {
        return decompress_snappy_block(input, limit_bytes, limit_bytes, out);
    }
    let truncated = || invalid(Codec::Snappy, "the stream ends inside a block");
    let mut rest = input;
    let mut remaining_bytes = limit_bytes;
    while !rest.is_empty() {
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER_BYTES..).ok_or_else(truncated)?;
            continue;
        }
        let (length_bytes, after_length) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
        let length = u32::from_be_bytes(*length_bytes) as usize;
        let block = after_length.get(..length).ok_or_else(truncated)?;
        let before = out.len();
        decompress_snappy_block(block, remaining_bytes, limit_bytes, out)?;
        remaining_bytes -= out.len() - before;
        rest = &after_length[length..];
    }
    Ok(())
}

/// The densest element is a copy of 64 bytes in three bytes of input.
fn snappy_bytes_max(compressed_bytes: usize) -> usize {
    compressed_bytes.saturating_mul(64) / 3 + 64
}

fn decompress_snappy_block(
    block: &[u8],
    remaining_bytes: usize,
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let announced = snap::raw::decompress_len(block).map_err(|error| invalid(Codec::Snappy, error))?;
    if announced > remaining_bytes {
        return Err(limit_exceeded(Codec::Snappy, limit_bytes));
    }
    if announced > snappy_bytes_max(block.len()) {
        return Err(invalid(
            Codec::Snappy,
            format_args!("{} bytes cannot unfold to {announced}", block.len()),
        ));
    }
    let start = out.len();
    out.resize(start + announced, 0);
    snap::raw::Decoder::new()
        .decompress(block, &mut out[start..])
        .map_err(|error| invalid(Codec::Snappy, error))?;
    Ok(())
}

// Hundreds of KiB each, which a batch of a few KiB should not have to allocate and fault in.
thread_local! {
    static ZSTD_COMPRESSOR: RefCell<zstd_safe::CCtx<'static>> = RefCell::new(zstd_safe::CCtx::create());
    static ZSTD_DECOMPRESSOR: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}

/// One call per attempt instead of a stream: a stream would allocate the window that the frame announces, up to 128 MiB.
fn decompress_zstd(input: &[u8], limit_bytes: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
    let mut capacity = first_zstd_capacity(input).min(limit_bytes);
    let start = out.len();
    loop {
        out.truncate(start);
        out.resize(start + capacity, 0);
        let outcome = ZSTD_DECOMPRESSOR
            .with_borrow_mut(|decompressor| decompressor.decompress(&mut out[start..], input));
        match outcome {
            Ok(written) => {
                out.truncate(start + written);
                return Ok(());
            }
            Err(code) if is_output_too_small(code) && capacity < limit_bytes => {
                capacity = (capacity.max(KIB) * 4).min(limit_bytes);
            }
            Err(code) if is_output_too_small(code) => {
                return Err(limit_exceeded(Codec::Zstd, limit_bytes));
            }
            Err(code) => return Err(invalid(Codec::Zstd, zstd_safe::get_error_name(code))),
        }
    }
}

/// The announced size if the input could plausibly fill it, else four times the input.
fn first_zstd_capacity(input: &[u8]) -> usize {
    let usual = input.len().saturating_mul(4).max(4 * KIB);
    match zstd_safe::get_frame_content_size(input) {
        Ok(Some(announced)) => usize::try_from(announced)
            .ok()
            .filter(|&announced| announced <= usual.saturating_mul(16))
            .unwrap_or(usual),
        _ => usual,
    }
}

fn is_output_too_small(code: zstd_safe::ErrorCode) -> bool {
    // Errors are negative sizes; 70 is ZSTD_error_dstSize_tooSmall, fixed since zstd 1.3.1.
    code == 0usize.wrapping_sub(70)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPRESSING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn compressed(codec: Codec, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec.into(), input, &mut out);
        out
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes as u64)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x3F)
            .collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        for codec in Codec::ALL {
            for size in [0, 1, 100, XERIAL_BLOCK_BYTES, XERIAL_BLOCK_BYTES + 1, 300_000] {
                let input = text(size);
                let mut out = b"before".to_vec();
                decompress(codec, &compressed(codec, &input), size, &mut out).unwrap();
                assert_eq!(&out[..6], b"before");
                assert!(out[6..] == input, "{codec} with {size} bytes");
            }
        }
    }

    #[test]
    fn every_level_gives_back_what_it_took() {
        let input = text(20_000);
        for (codec, level) in [
            (Codec::Gzip, 1),
            (Codec::Gzip, 9),
            (Codec::Zstd, -5),
            (Codec::Zstd, 19),
        ] {
            let mut packed = Vec::new();
            compress(
                Compression {
                    codec,
                    level: Some(level),
                },
                &input,
                &mut packed,
            );
            let mut out = Vec::new();
            decompress(codec, &packed, input.len(), &mut out).unwrap();
            assert!(out == input, "{codec} level {level}");
        }
    }

    #[test]
    fn one_byte_over_the_limit_is_an_error_that_names_it() {
        for codec in Codec::ALL {
            let packed = compressed(codec, &text(100_001));
            let error = decompress(codec, &packed, 100_000, &mut Vec::new()).unwrap_err();
            assert_eq!(
                error,
                CompressionError::LimitExceeded {
                    codec,
                    limit_bytes: 100_000
                }
            );
            assert!(error.to_string().contains("100000"));
        }
    }

    #[test]
    fn a_bomb_costs_no_more_than_the_limit() {
        let limit_bytes = 1 << 20;
        for codec in COMPRESSING {
            let bomb = compressed(codec, &vec![0; 64 << 20]);
            let mut out = Vec::new();
            let error = decompress(codec, &bomb, limit_bytes, &mut out).unwrap_err();
            assert_eq!(error, CompressionError::LimitExceeded { codec, limit_bytes });
            assert!(
                out.capacity() <= 3 * limit_bytes,
                "{codec} took {} bytes",
                out.capacity()
            );
        }
    }

    #[test]
    fn truncated_input_is_an_error() {
        for codec in COMPRESSING {
            let packed = compressed(codec, &text(5_000));
            for cut in 1..packed.len() {
                // A snappy stream may end after its header: that is an empty stream.
                if codec == Codec::Snappy && cut == XERIAL_HEADER_BYTES {
                    continue;
                }
                let outcome = decompress(codec, &packed[..cut], 1 << 20, &mut Vec::new());
                assert!(outcome.is_err(), "{codec} cut at {cut} of {}", packed.len());
            }
        }
    }

    #[test]
    fn flipped_bytes_never_panic() {
        for codec in COMPRESSING {
            let packed = compressed(codec, &text(700));
            for position in 0..packed.len() {
                for flip in [0x01, 0x80, 0xFF] {
                    let mut hostile = packed.clone();
                    hostile[position] ^= flip;
                    let mut out = Vec::new();
                    let _ = decompress(codec, &hostile, 64 * KIB, &mut out);
                    assert!(out.len() <= 64 * KIB + 1);
                }
            }
        }
    }

    #[test]
    fn framing_is_told_from_what_is_not_one() {
        for codec in COMPRESSING {
            for size in [0, 1, 100, 300_000] {
                let packed = compressed(codec, &text(size));
                assert_eq!(check_framing(codec, &packed), Ok(()), "{codec} with {size} bytes");
            }
            let packed = compressed(codec, &text(100_000));
            // A gzip member does not say where it ends.
            if codec != Codec::Gzip {
                assert!(
                    check_framing(codec, &packed[..packed.len() - 1]).is_err(),
                    "{codec}"
                );
            }
            assert!(check_framing(codec, &[0xFF; 100]).is_err(), "{codec}");
            assert!(check_framing(codec, &[]).is_err(), "{codec}");
            for other in COMPRESSING
                .into_iter()
                .filter(|other| *other != codec && *other != Codec::Snappy)
            {
                assert!(check_framing(other, &packed).is_err(), "{codec} as {other}");
            }
        }
    }

    #[test]
    fn bare_snappy_blocks_are_taken_too() {
        let input = text(10_000);
        let bare = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        let mut out = Vec::new();
        decompress(Codec::Snappy, &bare, 10_000, &mut out).unwrap();
        assert_eq!(out, input);
    }

    #[test]
    fn snappy_cannot_announce_what_it_cannot_hold() {
        // A length of 1 GiB as a varint, then nothing.
        let hostile = [0x80, 0x80, 0x80, 0x80, 0x04];
        let error = decompress(Codec::Snappy, &hostile, usize::MAX, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, CompressionError::Invalid { .. }), "{error}");
    }

    #[test]
    fn joined_snappy_streams_are_one() {
        let mut joined = compressed(Codec::Snappy, b"first ");
        joined.extend_from_slice(&compressed(Codec::Snappy, b"second"));
        let mut out = Vec::new();
        decompress(Codec::Snappy, &joined, 100, &mut out).unwrap();
        assert_eq!(out, b"first second");
    }
}
