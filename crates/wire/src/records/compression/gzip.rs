//! Decompresses one gzip member (RFC 1952), piece by piece.

use crc_fast::{CrcAlgorithm, Digest};
use flate2::{Decompress, FlushDecompress, Status};

use super::unfold::{Pieces, Room};
use super::{Codec, CompressionError, invalid};

const MAGIC: [u8; 2] = [0x1F, 0x8B];
const DEFLATE: u8 = 8;

// The flags of a member.
const HEADER_CHECKSUM: u8 = 0b0000_0010;
const EXTRA: u8 = 0b0000_0100;
const NAME: u8 = 0b0000_1000;
const COMMENT: u8 = 0b0001_0000;
const RESERVED: u8 = 0b1110_0000;

/// Exactly one member: of several, Java reads all and librdkafka only the first.
pub(super) struct GzipPieces<'a> {
    /// The input after the member's header.
    rest: &'a [u8],
    inflate: &'a mut Decompress,
    out: &'a mut [u8],
    unfolded: usize,
    total_bytes: u32,
    checksum: Digest,
    is_over: bool,
    room: Room<'a>,
}

impl<'a> GzipPieces<'a> {
    pub(super) fn new(
        input: &'a [u8],
        inflate: &'a mut Decompress,
        out: &'a mut [u8],
        room: Room<'a>,
    ) -> Result<GzipPieces<'a>, CompressionError> {
        inflate.reset(false);
        Ok(GzipPieces {
            rest: behind_header(input).map_err(wrong)?,
            inflate,
            out,
            unfolded: 0,
            total_bytes: 0,
            checksum: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
            is_over: false,
            room,
        })
    }

    /// Checks the checksum and size of the output, and that nothing follows them.
    fn check_end(&self) -> Result<(), &'static str> {
        let Some((trailer, behind)) = self.rest.split_first_chunk::<8>() else {
            return Err(CUT);
        };
        let [a, b, c, d, e, f, g, h] = *trailer;
        if u64::from(u32::from_le_bytes([a, b, c, d])) != self.checksum.finalize() {
            return Err("the checksum does not match");
        }
        if u32::from_le_bytes([e, f, g, h]) != self.total_bytes {
            return Err("the member does not hold as many bytes as it says");
        }
        match behind {
            [] => Ok(()),
            _ => Err("something follows the member"),
        }
    }
}

const CUT: &str = "the member is cut";

fn wrong(reason: impl std::fmt::Display) -> CompressionError {
    invalid(Codec::Gzip, reason)
}

/// Returns the input after a member's header.
fn behind_header(input: &[u8]) -> Result<&[u8], &'static str> {
    // Magic 2, method 1, flags 1, time 4, extra flags 1, operating system 1.
    let (fixed, mut rest) = input.split_first_chunk::<10>().ok_or(CUT)?;
    let flags = fixed[3];
    if fixed[..2] != MAGIC || fixed[2] != DEFLATE {
        return Err("it does not begin as a member does");
    }
    if flags & RESERVED != 0 {
        return Err("the member has unknown flags");
    }
    if flags & EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>().ok_or(CUT)?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..).ok_or(CUT)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0).ok_or(CUT)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & HEADER_CHECKSUM != 0 {
        rest = rest.get(2..).ok_or(CUT)?;
    }
    Ok(rest)
}

impl Pieces for GzipPieces<'_> {
    fn piece(&self) -> &[u8] {
        &self.out[..self.unfolded]
    }

    fn next(&mut self) -> Result<bool, CompressionError> {
        self.unfolded = 0;
        while !self.is_over && self.unfolded == 0 {
            let (read_before, written_before) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress(self.rest, self.out, FlushDecompress::None)
                .map_err(wrong)?;
            let read = (self.inflate.total_in() - read_before) as usize;
            self.unfolded = (self.inflate.total_out() - written_before) as usize;
            self.rest = &self.rest[read..];
            self.room.take(self.unfolded)?;
            self.total_bytes = self.total_bytes.wrapping_add(self.unfolded as u32);
            self.checksum.update(&self.out[..self.unfolded]);
            if status == Status::StreamEnd {
                self.is_over = true;
                self.check_end().map_err(wrong)?;
            } else if read == 0 && self.unfolded == 0 {
                return Err(wrong(CUT));
            }
        }
        Ok(self.unfolded > 0)
    }
}
