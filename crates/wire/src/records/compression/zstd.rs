//! Zstandard frames, by the reference implementation.

use std::cell::RefCell;

use zstd::zstd_safe::{self, CCtx, DCtx, InBuffer, OutBuffer};

use super::unfold::{Pieces, Room};
use super::{Codec, CompressionError, KIB, invalid, limit_exceeded};

/// A context that one thread decompresses with.
pub(super) type Decompressor = DCtx<'static>;

// Contexts have hundreds of KiB each, too much to allocate and fault in for a batch of a few KiB.
thread_local! {
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(DCtx::create());
}

pub(super) fn compress(level: Option<i32>, input: &[u8], out: &mut Vec<u8>) {
    let level = level
        .unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL)
        .clamp(-131_072, 22);
    let start = out.len();
    out.resize(start + zstd_safe::compress_bound(input.len()), 0);
    let written = COMPRESSOR
        .with_borrow_mut(|compressor| compressor.compress(&mut out[start..], input, level))
        .expect("the bound leaves room for the output");
    out.truncate(start + written);
}

/// One call per attempt instead of a stream: a stream would allocate the window that the frame
/// announces, up to 128 MiB.
pub(super) fn decompress(
    input: &[u8],
    limit_bytes: usize,
    out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let mut capacity = first_capacity(input).min(limit_bytes);
    let start = out.len();
    loop {
        out.truncate(start);
        out.resize(start + capacity, 0);
        let outcome =
            DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(&mut out[start..], input));
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
            Err(code) => return Err(wrong(zstd_safe::get_error_name(code))),
        }
    }
}

fn wrong(reason: &str) -> CompressionError {
    invalid(Codec::Zstd, reason)
}

/// Returns the announced size if the input can plausibly fill it, else four times the input.
fn first_capacity(input: &[u8]) -> usize {
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

/// The contents of frames, one buffer at a time. The context has a window of the frame's size, at
/// most 128 MiB (the decoder's default, as in every client), of which it writes only what is
/// decompressed.
pub(super) struct ZstdPieces<'a> {
    input: InBuffer<'a>,
    context: &'a mut Decompressor,
    out: &'a mut [u8],
    unfolded: usize,
    is_over: bool,
    room: Room<'a>,
}

impl<'a> ZstdPieces<'a> {
    pub(super) fn new(
        input: &'a [u8],
        context: &'a mut Decompressor,
        out: &'a mut [u8],
        room: Room<'a>,
    ) -> Result<ZstdPieces<'a>, CompressionError> {
        if input.is_empty() {
            return Err(wrong("there is no frame"));
        }
        context
            .reset(zstd_safe::ResetDirective::SessionOnly)
            .map_err(|code| wrong(zstd_safe::get_error_name(code)))?;
        Ok(ZstdPieces {
            input: InBuffer::around(input),
            context,
            out,
            unfolded: 0,
            is_over: false,
            room,
        })
    }
}

impl Pieces for ZstdPieces<'_> {
    fn piece(&self) -> &[u8] {
        &self.out[..self.unfolded]
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        self.unfolded = 0;
        while !self.is_over && self.unfolded == 0 {
            let mut out = OutBuffer::around(&mut *self.out);
            let missing = self
                .context
                .decompress_stream(&mut out, &mut self.input)
                .map_err(|code| wrong(zstd_safe::get_error_name(code)))?;
            self.unfolded = out.pos();
            self.room.take(self.unfolded)?;
            let is_read = self.input.pos() == self.input.src.len();
            // 0: a frame has ended, and all of it was written.
            self.is_over = is_read && missing == 0;
            if is_read && missing > 0 && self.unfolded == 0 {
                return Err(wrong("the data ends inside a frame"));
            }
        }
        Ok(self.unfolded > 0)
    }
}
