//! A walk over the batches of a segment file in order, with or without a look at their checksums.

use std::io;

use ottla_wire::records::batch::{BatchHeader, CRC_START, HEADER_BYTES};
use ottla_wire::records::crc32c;

use crate::disk::DiskFile;
use crate::read_mode::{ReadMode, read_up_to};

/// What a scan believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Headers are enough: the bytes were on the medium at a checkpoint.
    Headers,
    /// Every byte is checked against the batch's checksum.
    Checksums,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    Batch {
        header: BatchHeader,
        position: u64,
    },
    End,
    /// What lies at the scanner's position is no valid batch.
    Invalid {
        reason: String,
    },
}

const BUFFER_BYTES: usize = 256 * 1024;

/// - Units: positions count bytes of the file.
pub(crate) struct BatchScanner<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    trust: Trust,
    buffer: Vec<u8>,
    buffer_start: u64,
    /// How much a refill reads: little when headers are far apart and only they are wanted.
    refill_bytes: usize,
}

impl<'a> BatchScanner<'a> {
    pub fn new(file: &'a dyn DiskFile, position: u64, end: u64, trust: Trust) -> BatchScanner<'a> {
        let refill_bytes = match trust {
            Trust::Headers => 16 * 1024,
            Trust::Checksums => BUFFER_BYTES,
        };
        BatchScanner {
            file,
            position,
            end,
            trust,
            buffer: Vec::new(),
            buffer_start: 0,
            refill_bytes,
        }
    }

    /// Where the next batch begins; after `Invalid`, where the valid ones ended.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Not an `Iterator`: an I/O error must not look like an item.
    pub fn next(&mut self) -> io::Result<Scanned> {
        if self.position >= self.end {
            return Ok(Scanned::End);
        }
        let available = self.end - self.position;
        if available < HEADER_BYTES as u64 {
            return Ok(Scanned::Invalid {
                reason: format!("{available} bytes are too few for a batch header"),
            });
        }
        let position = self.position;
        let Some(header_bytes) = self.bytes_at(position, HEADER_BYTES)? else {
            return Ok(Scanned::Invalid {
                reason: "the file is shorter than it was".to_string(),
            });
        };
        let header = match BatchHeader::parse(header_bytes) {
            Ok(header) => header,
            Err(error) => {
                return Ok(Scanned::Invalid {
                    reason: error.to_string(),
                });
            }
        };
        let total_bytes = header.total_bytes() as u64;
        if total_bytes > available {
            let reason = format!("batch of {total_bytes} bytes with {available} bytes left");
            return Ok(Scanned::Invalid { reason });
        }
        if self.trust == Trust::Checksums {
            match self.checksum(position + CRC_START as u64, position + total_bytes)? {
                Some(actual) if actual == header.crc => {}
                Some(actual) => {
                    let reason = format!("checksum is {actual:#010x}, batch says {:#010x}", header.crc);
                    return Ok(Scanned::Invalid { reason });
                }
                None => {
                    return Ok(Scanned::Invalid {
                        reason: "the file is shorter than it was".to_string(),
                    });
                }
            }
        }
        self.position = position + total_bytes;
        Ok(Scanned::Batch { header, position })
    }

    /// Checksum of a range, read in pieces, so that a hostile length costs no memory.
    fn checksum(&mut self, from: u64, to: u64) -> io::Result<Option<u32>> {
        let mut checksum: Option<u32> = None;
        let mut at = from;
        while at < to {
            let wanted = usize::try_from(to - at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            let Some(bytes) = self.bytes_at(at, wanted)? else {
                return Ok(None);
            };
            let piece = crc32c::checksum(bytes);
            // Combining costs as much as the checksum of 100 KiB, and nearly all batches come in one piece.
            checksum = Some(match checksum {
                Some(before) => crc32c::combine(before, piece, bytes.len()),
                None => piece,
            });
            at += wanted as u64;
        }
        Ok(Some(checksum.unwrap_or_default()))
    }

    /// `bytes` bytes at `position`, at most a buffer full; `None` if the file ends before.
    fn bytes_at(&mut self, position: u64, bytes: usize) -> io::Result<Option<&[u8]>> {
        let buffer_end = self.buffer_start + self.buffer.len() as u64;
        if position < self.buffer_start || position + bytes as u64 > buffer_end {
            let rest = usize::try_from(self.end - position).unwrap_or(usize::MAX);
            let wanted = self.refill_bytes.max(bytes).min(rest);
            self.buffer.resize(wanted, 0);
            self.buffer_start = position;
            let read = read_up_to(self.file, &mut self.buffer, position, ReadMode::Blocking)?;
            self.buffer.truncate(read);
        }
        let start = usize::try_from(position - self.buffer_start).expect("within the buffer");
        Ok(self.buffer.get(start..start + bytes))
    }
}
