//! A sequential walk over the batches of a segment file, with or without verifying checksums, and
//! past damage.

use std::io;

use ottla_wire::records::batch::{BatchHeader, CRC_START, HEADER_BYTES, MAGIC, MAGIC_AT};
use ottla_wire::records::crc32c;

use crate::disk::DiskFile;
use crate::read_mode::{ReadMode, read_up_to};

/// What a scan trusts.
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
    /// There is no valid batch at the scanner's position.
    Invalid {
        reason: String,
    },
}

const BUFFER_BYTES: usize = 256 * 1024;

/// After damage, bytes that look like a header cost a checksum over the length they claim. Record
/// values may hold any number of them, so a search gives up after this many times the bytes it
/// covers.
const SEARCH_EFFORT: u64 = 8;

/// The offset with which the next batch must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub offset: i64,
    /// Compaction leaves gaps: below this offset the next batch may also begin at a later offset.
    pub gaps_below: i64,
}

impl Expected {
    pub fn is_met_by(self, base_offset: i64) -> bool {
        // Offsets of a segment are within 31 bits of each other.
        let is_near = base_offset.saturating_sub(self.offset) <= i64::from(i32::MAX);
        base_offset == self.offset || base_offset > self.offset && base_offset <= self.gaps_below && is_near
    }
}

/// - Units: positions count bytes of the file.
pub(crate) struct BatchScanner<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    trust: Trust,
    expected: Option<Expected>,
    /// The position of the previous batch, and the offset expected there.
    previous: Option<(u64, Option<Expected>)>,
    buffer: Vec<u8>,
    buffer_start: u64,
    /// How much a refill reads: little if only headers are wanted and they are far apart.
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
            expected: None,
            previous: None,
            buffer: Vec::new(),
            buffer_start: 0,
            refill_bytes,
        }
    }

    /// Like `new`, but a batch whose offsets do not follow is invalid.
    pub fn expecting(mut self, expected: Expected) -> BatchScanner<'a> {
        self.expected = Some(expected);
        self
    }

    /// The position of the next batch; after `Invalid`, the end of the valid ones.
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
        if let Some(expected) = self.expected
            && (!expected.is_met_by(header.base_offset) || self.next_contradicts(&header, expected)?)
        {
            let reason = format!("offset {}, expected {}", header.base_offset, expected.offset);
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
        self.step_over(&header, position);
        Ok(Scanned::Batch { header, position })
    }

    /// Whether the next batch shows that this batch's base offset is wrong. No checksum covers a
    /// base offset; where gaps are allowed and this batch leaves one, the next batch may prove that
    /// there is none.
    fn next_contradicts(&mut self, header: &BatchHeader, expected: Expected) -> io::Result<bool> {
        let next = self.position + header.total_bytes() as u64;
        if header.base_offset == expected.offset || next + HEADER_BYTES as u64 > self.end {
            return Ok(false);
        }
        let bytes = self.bytes_at(next, HEADER_BYTES)?;
        let next = bytes.and_then(|bytes| BatchHeader::parse(bytes).ok());
        Ok(next.is_some_and(|next| (expected.offset..=header.last_offset()).contains(&next.base_offset)))
    }

    fn step_over(&mut self, header: &BatchHeader, position: u64) {
        self.previous = Some((position, self.expected));
        self.position = position + header.total_bytes() as u64;
        if let Some(expected) = &mut self.expected {
            expected.offset = header.next_offset();
        }
    }

    /// After `Invalid`: finds the next complete batch with a right checksum and later offsets, and
    /// continues after it. `None`: there is none, and the position is unchanged.
    pub fn next_behind_damage(&mut self) -> io::Result<Option<(BatchHeader, u64)>> {
        self.step_back_if_led_astray()?;
        let from = self.position;
        // The usual case: one batch is damaged and its length is right.
        let header_bytes = self.bytes_at(from, HEADER_BYTES)?;
        let framed = header_bytes.and_then(|bytes| BatchHeader::parse(bytes).ok());
        let mut effort = SEARCH_EFFORT * (self.end - from);
        if let Some(header) = framed
            && let Some(header) = self.whole_batch_at(from + header.total_bytes() as u64, &mut effort)?
        {
            let position = from + framed.map_or(0, |damaged| damaged.total_bytes() as u64);
            self.step_over(&header, position);
            return Ok(Some((header, position)));
        }
        let mut position = from + 1;
        while let Some(candidate) = self.next_magic(position)? {
            if let Some(header) = self.whole_batch_at(candidate, &mut effort)? {
                self.step_over(&header, candidate);
                return Ok(Some((header, candidate)));
            }
            position = candidate + 1;
        }
        Ok(None)
    }

    /// Where headers are trusted, the length of the previous batch may be what is wrong.
    fn step_back_if_led_astray(&mut self) -> io::Result<()> {
        let Some((position, expected)) = self.previous.take_if(|_| self.trust == Trust::Headers) else {
            return Ok(());
        };
        let (astray, expected_there) = (self.position, self.expected);
        (self.position, self.expected) = (position, expected);
        if self.whole_batch_here()?.is_some() {
            (self.position, self.expected) = (astray, expected_there);
        }
        Ok(())
    }

    /// Returns the batch at the scanner's position if its checksum is right, whether or not its
    /// offsets follow.
    pub fn whole_batch_here(&mut self) -> io::Result<Option<BatchHeader>> {
        let expected = self.expected.take();
        let mut effort = u64::MAX;
        let found = self.whole_batch_at(self.position, &mut effort);
        self.expected = expected;
        found
    }

    /// Whether there is a batch with a right checksum at `position`.
    pub fn is_whole_at(&mut self, position: u64) -> io::Result<bool> {
        let mut effort = u64::MAX;
        Ok(self.whole_batch_at(position, &mut effort)?.is_some())
    }

    /// Returns the first position from `from` on where a header's magic byte would be right.
    fn next_magic(&mut self, mut from: u64) -> io::Result<Option<u64>> {
        self.refill_bytes = BUFFER_BYTES;
        while from + HEADER_BYTES as u64 <= self.end {
            if self.bytes_at(from, HEADER_BYTES)?.is_none() {
                return Ok(None);
            }
            let buffered = &self.buffer[(from - self.buffer_start) as usize..];
            if let Some(found) = buffered[MAGIC_AT..].iter().position(|byte| *byte == MAGIC as u8) {
                return Ok(Some(from + found as u64));
            }
            from += (buffered.len() - MAGIC_AT) as u64;
        }
        Ok(None)
    }

    fn whole_batch_at(&mut self, position: u64, effort: &mut u64) -> io::Result<Option<BatchHeader>> {
        if position + HEADER_BYTES as u64 > self.end {
            return Ok(None);
        }
        let Some(bytes) = self.bytes_at(position, HEADER_BYTES)? else {
            return Ok(None);
        };
        let Ok(header) = BatchHeader::parse(bytes) else {
            return Ok(None);
        };
        let total_bytes = header.total_bytes() as u64;
        let is_later = self.expected.is_none_or(|expected| {
            let ahead = header.base_offset.saturating_sub(expected.offset);
            (0..=i64::from(i32::MAX)).contains(&ahead)
        });
        let fits = total_bytes <= self.end - position && header.record_count - 1 <= header.last_offset_delta;
        if !is_later || !fits || total_bytes > *effort {
            return Ok(None);
        }
        *effort -= total_bytes;
        let checksum = self.checksum(position + CRC_START as u64, position + total_bytes)?;
        Ok((checksum == Some(header.crc)).then_some(header))
    }

    /// Returns the checksum of a range, read in pieces so that a hostile length costs no memory.
    fn checksum(&mut self, from: u64, to: u64) -> io::Result<Option<u32>> {
        let mut checksum: Option<u32> = None;
        let mut at = from;
        while at < to {
            let wanted = usize::try_from(to - at).unwrap_or(usize::MAX).min(BUFFER_BYTES);
            let Some(bytes) = self.bytes_at(at, wanted)? else {
                return Ok(None);
            };
            let piece = crc32c::checksum(bytes);
            // Combining costs as much as the checksum of 100 KiB, and nearly all batches fit in one
            // piece.
            checksum = Some(match checksum {
                Some(before) => crc32c::combine(before, piece, bytes.len()),
                None => piece,
            });
            at += wanted as u64;
        }
        Ok(Some(checksum.unwrap_or_default()))
    }

    /// Returns `bytes` bytes at `position`, at most a buffer full; `None` if the file ends before.
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
