//! Decompression piece by piece, for callers that inspect the contents and need not keep them.
//!
//! It is strict where [`super::decompress`] is lenient: data that passes to its end can be read
//! completely by every client and has no trailing bytes. Buffers and contexts are thread-local, so
//! a piece costs no allocation.

use std::cell::Cell;

use flate2::Decompress;

use super::gzip::GzipPieces;
use super::lz4::Lz4Pieces;
use super::snappy::SnappyPieces;
use super::zstd::{Decompressor, ZstdPieces};
use super::{Codec, CompressionError, KIB, limit_exceeded};

/// Decompressed contents, in pieces.
pub trait Pieces {
    /// The current piece; empty before the first call of `next` and after the last.
    fn piece(&self) -> &[u8];

    /// Decompresses the next piece in place of the last; false at the end of complete data.
    ///
    /// - Errors: the data is invalid for the codec, or decompresses to more than allowed.
    fn next(&mut self) -> Result<bool, CompressionError>;
}

/// Uncompressed bytes as one piece.
pub struct Plain<'a> {
    rest: &'a [u8],
    piece: &'a [u8],
}

impl<'a> Plain<'a> {
    pub fn new(bytes: &'a [u8]) -> Plain<'a> {
        Plain {
            rest: bytes,
            piece: &[],
        }
    }
}

impl Pieces for Plain<'_> {
    fn piece(&self) -> &[u8] {
        self.piece
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        self.piece = std::mem::take(&mut self.rest);
        Ok(!self.piece.is_empty())
    }
}

/// The number of bytes to which compressed data may still decompress, e.g. all batches of a
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfoldingBudget {
    limit_bytes: usize,
    left_bytes: usize,
    packing_weight: usize,
}

impl UnfoldingBudget {
    pub fn new(limit_bytes: usize) -> UnfoldingBudget {
        UnfoldingBudget {
            limit_bytes,
            left_bytes: limit_bytes,
            packing_weight: 0,
        }
    }

    /// Also counts bytes that must be recompressed, each with `packing_weight`.
    pub fn with_packing(self, packing_weight: usize) -> UnfoldingBudget {
        UnfoldingBudget {
            packing_weight,
            ..self
        }
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// Takes `bytes` from the budget.
    ///
    /// - Errors: the budget is too small; it is then empty.
    fn take(&mut self, codec: Codec, bytes: usize) -> Result<(), CompressionError> {
        let left_bytes = self.left_bytes.checked_sub(bytes);
        self.left_bytes = left_bytes.unwrap_or(0);
        match left_bytes {
            Some(_) => Ok(()),
            None => Err(limit_exceeded(codec, self.limit_bytes)),
        }
    }

    /// Takes the weighted cost of compressing this many bytes.
    pub(in crate::records) fn take_for_packing(&mut self, bytes: usize) -> Result<(), CompressionError> {
        self.take(Codec::None, bytes.saturating_mul(self.packing_weight))
    }
}

/// One batch's share of the budget.
pub(super) struct Room<'a> {
    codec: Codec,
    budget: &'a mut UnfoldingBudget,
}

impl Room<'_> {
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), CompressionError> {
        self.budget.take(self.codec, bytes)
    }

    pub(super) fn left_bytes(&self) -> usize {
        self.budget.left_bytes
    }

    /// Returns the error of an exceeded budget.
    pub(super) fn exceeded(&mut self) -> CompressionError {
        self.budget.left_bytes = 0;
        limit_exceeded(self.codec, self.budget.limit_bytes)
    }
}

/// A piece fits into the second-level cache between the codec that writes it and its reader.
const PIECE_BYTES: usize = 128 * KIB;

/// Larger buffers are freed after the batch instead of being kept by the thread.
const KEPT_BYTES_MAX: usize = 512 * KIB;

/// The limit of a kept zstd context: clients' default level has a window of 2 MiB if the size is
/// not known in advance, and such a context is kept.
const KEPT_CONTEXT_BYTES_MAX: usize = 4096 * KIB;

/// Buffers and contexts that a thread keeps from batch to batch.
struct Scratch {
    out: Vec<u8>,
    inflate: Decompress,
    zstd: Decompressor,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch {
            out: vec![0; PIECE_BYTES],
            inflate: Decompress::new(false),
            zstd: Decompressor::create(),
        }
    }

    fn trim(&mut self) {
        if self.out.len() > KEPT_BYTES_MAX {
            self.out.truncate(PIECE_BYTES);
            self.out.shrink_to_fit();
        }
        if self.zstd.sizeof() > KEPT_CONTEXT_BYTES_MAX {
            self.zstd = Decompressor::create();
        }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Calls `read` with the decompressed pieces of `input`, up to `budget`.
///
/// - Errors: an invalid header; later errors are reported to `read`.
pub fn unfold<T>(
    codec: Codec,
    input: &[u8],
    budget: &mut UnfoldingBudget,
    read: impl FnOnce(&mut dyn Pieces) -> T,
) -> Result<T, CompressionError> {
    if codec == Codec::None {
        return Ok(read(&mut Plain::new(input)));
    }
    let mut scratch = SCRATCH.take().unwrap_or_else(|| Box::new(Scratch::new()));
    let room = Room { codec, budget };
    let Scratch { out, inflate, zstd } = &mut *scratch;
    let outcome =
        match codec {
            Codec::None => unreachable!("not compressed"),
            Codec::Gzip => GzipPieces::new(input, inflate, &mut out[..PIECE_BYTES], room)
                .map(|mut pieces| read(&mut pieces)),
            Codec::Snappy => SnappyPieces::new(input, out, room).map(|mut pieces| read(&mut pieces)),
            Codec::Lz4 => Lz4Pieces::new(input, out, room).map(|mut pieces| read(&mut pieces)),
            Codec::Zstd => ZstdPieces::new(input, zstd, &mut out[..PIECE_BYTES], room)
                .map(|mut pieces| read(&mut pieces)),
        };
    scratch.trim();
    SCRATCH.set(Some(scratch));
    outcome
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::records::compression::compress;

    const COMPRESSING: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    fn packed(codec: Codec, input: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compress(codec.into(), input, &mut out);
        out
    }

    fn text(bytes: usize) -> Vec<u8> {
        let word = |i: usize| format!("{{\"order\":{},\"amount\":{}}} ", i, i * 7919 % 1000);
        (0..).flat_map(|i| word(i).into_bytes()).take(bytes).collect()
    }

    /// Collects all pieces; `budget` is reduced by their size.
    fn collect(
        codec: Codec,
        input: &[u8],
        budget: &mut UnfoldingBudget,
    ) -> Result<Vec<u8>, CompressionError> {
        unfold(codec, input, budget, |pieces| {
            assert!(pieces.piece().is_empty());
            let mut all = Vec::new();
            while pieces.next()? {
                assert!(!pieces.piece().is_empty());
                all.extend_from_slice(pieces.piece());
            }
            assert!(pieces.piece().is_empty());
            assert_eq!(pieces.next(), Ok(false));
            Ok(all)
        })?
    }

    fn collect_all(codec: Codec, input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        collect(codec, input, &mut UnfoldingBudget::new(1 << 24))
    }

    #[test]
    fn the_pieces_are_the_original_bytes() {
        for codec in Codec::ALL {
            for size in [
                0,
                1,
                100,
                PIECE_BYTES - 1,
                PIECE_BYTES,
                PIECE_BYTES + 1,
                3_000_000,
            ] {
                let input = text(size);
                let mut budget = UnfoldingBudget::new(size);
                let out = collect(codec, &packed(codec, &input), &mut budget).unwrap();
                assert!(out == input, "{codec} with {size} bytes");
                let left = if codec == Codec::None { size } else { 0 };
                assert_eq!(budget.left_bytes(), left);
            }
        }
    }

    #[test]
    fn truncated_data_is_never_accepted() {
        for codec in COMPRESSING {
            let packed = packed(codec, &text(5_000));
            for cut in 0..packed.len() {
                let outcome = collect_all(codec, &packed[..cut]);
                // A snappy stream has no end mark: its header alone is a stream of nothing.
                let is_empty_stream = codec == Codec::Snappy && (cut == 0 || cut == 16);
                assert_eq!(
                    outcome.is_err(),
                    !is_empty_stream,
                    "{codec} cut at {cut} of {}",
                    packed.len()
                );
            }
        }
    }

    #[test]
    fn nothing_may_follow_the_data() {
        for codec in COMPRESSING {
            for more in [&b"more"[..], &[0], &[0; 8]] {
                let input = [&packed(codec, &text(500))[..], more].concat();
                assert!(collect_all(codec, &input).is_err(), "{codec} and {more:?}");
            }
        }
    }

    #[test]
    fn only_zstd_data_may_have_several_frames() {
        let (first, second) = (text(3_000), text(70));
        for codec in COMPRESSING {
            let input = [packed(codec, &first), packed(codec, &second)].concat();
            let outcome = collect_all(codec, &input);
            match codec {
                Codec::Zstd => assert!(outcome.unwrap() == [&first[..], &second].concat()),
                _ => assert!(outcome.is_err(), "{codec}"),
            }
        }
    }

    #[test]
    fn damage_does_not_affect_the_threads_next_batch() {
        for codec in COMPRESSING {
            let input = text(300_000);
            let sound = packed(codec, &input);
            for position in [0, 4, 10, 20, sound.len() / 2, sound.len() - 1] {
                let mut harmed = sound.clone();
                harmed[position] ^= 0xFF;
                let _ = collect_all(codec, &harmed);
                let _ = collect_all(codec, &sound[..position]);
                assert!(
                    collect_all(codec, &sound).unwrap() == input,
                    "{codec} after {position}"
                );
            }
        }
    }

    #[test]
    fn a_decompression_bomb_takes_no_more_than_the_budget() {
        let limit_bytes = 1 << 20;
        for codec in COMPRESSING {
            let bomb = packed(codec, &vec![0; 8 << 20]);
            let mut budget = UnfoldingBudget::new(limit_bytes);
            let error = collect(codec, &bomb, &mut budget).unwrap_err();
            assert_eq!(error, CompressionError::LimitExceeded { codec, limit_bytes });
            assert_eq!(budget.left_bytes(), 0);
            // The next batch is refused as well.
            let error = collect(codec, &packed(codec, b"a"), &mut budget).unwrap_err();
            assert_eq!(error, CompressionError::LimitExceeded { codec, limit_bytes });
            SCRATCH.set(Some({
                let scratch = SCRATCH.take().unwrap();
                assert!(scratch.out.capacity() <= KEPT_BYTES_MAX, "{codec}");
                assert!(scratch.zstd.sizeof() <= KEPT_CONTEXT_BYTES_MAX, "{codec}");
                scratch
            }));
        }
    }

    #[test]
    fn a_block_larger_than_the_buffer_gets_its_own_which_is_freed() {
        let input = vec![7; 3 << 20];
        let bare = snap::raw::Encoder::new().compress_vec(&input).unwrap();
        assert!(collect_all(Codec::Snappy, &bare).unwrap() == input);
        let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max4MB);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(&input).unwrap();
        assert!(collect_all(Codec::Lz4, &encoder.finish().unwrap()).unwrap() == input);
        let scratch = SCRATCH.take().unwrap();
        assert_eq!(scratch.out.len(), PIECE_BYTES);
    }

    #[test]
    fn lz4_blocks_that_depend_on_each_other_are_refused() {
        use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
        for (mode, is_read) in [(BlockMode::Independent, true), (BlockMode::Linked, false)] {
            let info = FrameInfo::new().block_mode(mode).content_checksum(true);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&text(200_000)).unwrap();
            let outcome = collect_all(Codec::Lz4, &encoder.finish().unwrap());
            assert_eq!(outcome.is_ok(), is_read, "{outcome:?}");
        }
    }

    #[test]
    fn gzip_headers_may_have_every_optional_field() {
        let input = text(1_000);
        let builder = || {
            flate2::GzBuilder::new()
                .filename("records")
                .comment("none")
                .extra(&b"extra"[..])
        };
        let mut encoder = builder().write(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&input).unwrap();
        let packed = encoder.finish().unwrap();
        assert!(collect_all(Codec::Gzip, &packed).unwrap() == input);
        for cut in 0..60 {
            assert!(collect_all(Codec::Gzip, &packed[..cut]).is_err());
        }
        let mut unknown = packed;
        unknown[3] |= 0x80;
        assert!(collect_all(Codec::Gzip, &unknown).is_err());
    }

    #[test]
    fn recompression_is_weighted_if_requested() {
        let mut budget = UnfoldingBudget::new(100).with_packing(8);
        assert_eq!(budget.take_for_packing(12), Ok(()));
        assert_eq!(budget.left_bytes(), 4);
        assert!(budget.take_for_packing(1).is_err());
        assert_eq!(UnfoldingBudget::new(0).take_for_packing(usize::MAX), Ok(()));
    }
}
