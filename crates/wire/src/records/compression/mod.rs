//! The codecs of record batches, in the framings that Kafka's clients write.
//!
//! Decompression is bounded: a batch of a few kilobytes can announce or decompress to gigabytes, so
//! every decoder stops at its caller's limit, and none allocates an announced size that its input
//! cannot fill.

pub mod unfold;
mod gzip;
mod snappy;
mod lz4;
#[cfg(feature = "zstd")]
mod zstd;
#[cfg(not(feature = "zstd"))]
#[path = "without_zstd.rs"]
mod zstd;

use std::fmt;
use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

const KIB: usize = 1024;

/// The compression codec of a batch; the numbers are those of the batch attributes.
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

    /// Whether this build can compress and decompress: zstd is a cargo feature.
    pub const fn is_built(self) -> bool {
        !matches!(self, Codec::Zstd) || cfg!(feature = "zstd")
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

/// A codec and its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    pub codec: Codec,
    /// gzip 1 to 9, zstd -131072 to 22. `None` is the codec's default (6 and 3). The others have no
    /// levels here: our lz4 encoder has only the fast mode.
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
    /// The output exceeds the caller's limit.
    LimitExceeded { codec: Codec, limit_bytes: usize },
    /// The input is not valid for the codec.
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
/// - Shape: gzip members, snappy in 32 KiB blocks in the Java framing, lz4 frames of independent 64
///   KiB
///   blocks, zstd frames.
/// - Panics: for a codec that is not built in (`Codec::is_built`).
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
        Codec::Snappy => snappy::compress(input, out),
        Codec::Lz4 => lz4::compress(input, out),
        Codec::Zstd => zstd::compress(compression.level, input, out),
    }
}

/// Appends the decompressed form of `input` to `out`.
///
/// - Errors: `LimitExceeded` when more than `limit_bytes` would be appended; `out` then holds an
///   unspecified part.
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
        Codec::Snappy => snappy::decompress(input, limit_bytes, out),
        Codec::Lz4 => lz4::decompress(input, limit_bytes, out),
        Codec::Zstd => zstd::decompress(input, limit_bytes, out),
    }
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
    // Reading one byte more than allowed distinguishes a full output from an excessive one.
    let mut bounded = decoder.take(limit_bytes as u64 + 1);
    let appended = bounded
        .read_to_end(out)
        .map_err(|error: io::Error| invalid(codec, error))?;
    check_limit(codec, appended, limit_bytes)
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
    fn every_codec_round_trips() {
        for codec in Codec::ALL {
            for size in [0, 1, 100, snappy::BLOCK_BYTES, snappy::BLOCK_BYTES + 1, 300_000] {
                let input = text(size);
                let mut out = b"before".to_vec();
                decompress(codec, &compressed(codec, &input), size, &mut out).unwrap();
                assert_eq!(&out[..6], b"before");
                assert!(out[6..] == input, "{codec} with {size} bytes");
            }
        }
    }

    #[test]
    fn every_level_round_trips() {
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
    fn a_decompression_bomb_costs_no_more_than_the_limit() {
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
                if codec == Codec::Snappy && cut == snappy::HEADER_BYTES {
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
    fn bare_snappy_blocks_are_accepted_too() {
        let input = text(10_000);
        let bare = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        let mut out = Vec::new();
        decompress(Codec::Snappy, &bare, 10_000, &mut out).unwrap();
        assert_eq!(out, input);
    }

    #[test]
    fn snappy_cannot_announce_more_than_its_input_can_hold() {
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
