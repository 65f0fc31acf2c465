//! In place of zstd.rs in a build without the cargo feature `zstd`: every use is refused.

use super::unfold::{Pieces, Room};
use super::{Codec, CompressionError, invalid};

pub(super) struct Decompressor;

impl Decompressor {
    pub(super) fn create() -> Decompressor {
        Decompressor
    }

    pub(super) fn sizeof(&self) -> usize {
        0
    }
}

pub(super) fn compress(_level: Option<i32>, _input: &[u8], _out: &mut Vec<u8>) {
    unreachable!("a codec that is not built in is refused by the configuration")
}

pub(super) fn decompress(
    _input: &[u8],
    _limit_bytes: usize,
    _out: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    Err(not_built())
}

/// No value of it exists.
pub(super) enum ZstdPieces {}

impl ZstdPieces {
    pub(super) fn new(
        _input: &[u8],
        _context: &mut Decompressor,
        _out: &mut [u8],
        _room: Room<'_>,
    ) -> Result<ZstdPieces, CompressionError> {
        Err(not_built())
    }
}

impl Pieces for ZstdPieces {
    fn piece(&self) -> &[u8] {
        match *self {}
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        match *self {}
    }
}

fn not_built() -> CompressionError {
    invalid(Codec::Zstd, "this build lacks the cargo feature `zstd`")
}
