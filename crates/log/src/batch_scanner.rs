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
        let gap = self.offset..=self.gaps_below;
        base_offset == self.offset || gap.contains(&base_offset) && is_near
    }
}

/// - Units: positions count bytes of the file.
pub(crate) struct BatchScanner<'a> {
    file: &'a dyn DiskFile,
    position: u64,
    end: u64,
    trust: Trust,
    expected: Option<Expected>,
    /// Batches that claim offsets from here on are not trusted.
    ends_by: i64,
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
            ends_by: i64::MAX,
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

    /// A batch that claims offsets from `offset` on is checked against its checksum, also where
    /// headers are trusted.
    pub fn ending_by(mut self, offset: i64) -> BatchScanner<'a> {
        self.ends_by = offset;
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
        if self.trust == Trust::Checksums || header.next_offset() > self.ends_by {
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
        if header.base_offset == expected.offset {
            return Ok(false);
        }
        let bytes = self.bytes_at(self.position + header.total_bytes() as u64, HEADER_BYTES)?;
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
        while self.bytes_at(from, HEADER_BYTES)?.is_some() {
            let buffered = &self.buffer[(from - self.buffer_start) as usize..];
            if let Some(found) = buffered[MAGIC_AT..].iter().position(|byte| *byte == MAGIC as u8) {
                return Ok(Some(from + found as u64));
            }
            from += (buffered.len() - MAGIC_AT) as u64;
        }
        Ok(None)
    }

    fn whole_batch_at(&mut self, position: u64, effort: &mut u64) -> io::Result<Option<BatchHeader>> {
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

    /// Returns `bytes` bytes at `position`, at most a buffer full; `None` if what may be read ends
    /// before.
    fn bytes_at(&mut self, position: u64, bytes: usize) -> io::Result<Option<&[u8]>> {
        if position + bytes as u64 > self.end {
            return Ok(None);
        }
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ottla_wire::records::batch::{LENGTH_PREFIX_BYTES, seal};
    use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::{Disk, OpenMode};

    const BASE_OFFSET_AT: usize = 0;
    const LENGTH_AT: usize = 8;
    const RECORD_COUNT_AT: usize = HEADER_BYTES - 4;

    /// A batch of one record.
    fn batch(base_offset: i64, value: &[u8]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset,
            ..BatchOptions::default()
        });
        builder.append(1, None, Some(value), &[]);
        builder.finish()
    }

    /// A batch as compaction empties it.
    fn emptied(base_offset: i64) -> Vec<u8> {
        let original = BatchHeader::parse(&batch(base_offset, b"")).expect("built");
        BatchBuilder::replacing(&original, Vec::new(), None).finish()
    }

    /// The header of a batch that would take `total_bytes`, with a wrong checksum.
    fn bait(base_offset: i64, total_bytes: usize) -> Vec<u8> {
        let mut bytes = batch(base_offset, b"")[..HEADER_BYTES].to_vec();
        put_length(&mut bytes, total_bytes);
        bytes
    }

    fn put_length(batch: &mut [u8], total_bytes: usize) {
        let length = i32::try_from(total_bytes - LENGTH_PREFIX_BYTES).expect("short");
        batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn put_base_offset(batch: &mut [u8], base_offset: i64) {
        batch[BASE_OFFSET_AT..8].copy_from_slice(&base_offset.to_be_bytes());
    }

    fn damage(batch: &mut [u8]) {
        *batch.last_mut().expect("not empty") ^= 1;
    }

    fn file(bytes: &[u8]) -> Arc<dyn DiskFile> {
        let disk = MemoryDisk::new(1);
        disk.write_file(Path::new("file"), bytes);
        disk.open(Path::new("file"), OpenMode::Read).expect("there")
    }

    fn with_gaps(offset: i64) -> Expected {
        Expected {
            offset,
            gaps_below: i64::MAX,
        }
    }

    /// The base offset of the next batch, or why there is none.
    fn next(scanner: &mut BatchScanner<'_>) -> Result<Option<i64>, String> {
        match scanner.next().expect("readable") {
            Scanned::Batch { header, .. } => Ok(Some(header.base_offset)),
            Scanned::End => Ok(None),
            Scanned::Invalid { reason } => Err(reason),
        }
    }

    /// The base offset and position of the next batch behind damage.
    fn behind(scanner: &mut BatchScanner<'_>) -> Option<(i64, u64)> {
        let found = scanner.next_behind_damage().expect("readable");
        found.map(|(header, position)| (header.base_offset, position))
    }

    /// What is behind the damage with which `parts` begin, from offset 0 on.
    fn behind_in(parts: &[&[u8]]) -> Option<(i64, u64)> {
        let bytes = parts.concat();
        let file = file(&bytes);
        let scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Checksums);
        let mut scanner = scanner.expecting(with_gaps(0));
        next(&mut scanner).expect_err("it begins with damage");
        behind(&mut scanner)
    }

    #[test]
    fn gaps_are_allowed_up_to_an_offset_and_within_31_bits() {
        let far = i64::from(i32::MAX);
        for (offset, gaps_below, base_offset, expected) in [
            (5, 5, 5, true),
            (5, 0, 5, true),
            (5, 0, 6, false),
            (5, 10, 4, false),
            (5, 10, 10, true),
            (5, 10, 11, false),
            (5, i64::MAX, 5 + far, true),
            (5, i64::MAX, 6 + far, false),
        ] {
            let next = Expected { offset, gaps_below };
            assert_eq!(next.is_met_by(base_offset), expected, "{next:?}, {base_offset}");
        }
    }

    #[test]
    fn a_batch_that_reaches_beyond_the_end_is_invalid() {
        let bytes = [batch(0, b"a"), batch(1, b"b")].concat();
        let file = file(&bytes);
        for trust in [Trust::Headers, Trust::Checksums] {
            let end = bytes.len() as u64 - 1;
            let mut scanner = BatchScanner::new(&*file, 0, end, trust);
            assert_eq!(next(&mut scanner), Ok(Some(0)));
            let reason = next(&mut scanner).expect_err("one byte is missing");
            assert!(reason.contains("bytes left"), "{reason}");
            assert_eq!(scanner.position(), batch(0, b"a").len() as u64);
        }
    }

    #[test]
    fn a_batch_larger_than_the_buffer_is_compared_with_its_checksum_to_its_end() {
        let value: Vec<u8> = (0..700_000u32).map(|number| number as u8).collect();
        let intact = batch(0, &value);
        for at in [None, Some(200_000), Some(400_000), Some(intact.len() - 1)] {
            let mut bytes = intact.clone();
            if let Some(at) = at {
                bytes[at] ^= 1;
            }
            let file = file(&bytes);
            let mut scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Checksums);
            assert_eq!(next(&mut scanner).is_ok(), at.is_none(), "damaged at {at:?}");
        }
    }

    /// No checksum covers the base offset.
    #[test]
    fn a_base_offset_that_the_next_batch_contradicts_is_invalid() {
        let mut moved = batch(1, b"moved");
        put_base_offset(&mut moved, 5);
        let scan = |third: &[u8], end: usize, trust| {
            let bytes = [&batch(0, b"first"), &moved, third].concat();
            let file = file(&bytes);
            let end = (bytes.len() - third.len() + end) as u64;
            let mut scanner = BatchScanner::new(&*file, 0, end, trust).expecting(with_gaps(0));
            assert_eq!(next(&mut scanner), Ok(Some(0)));
            let found = next(&mut scanner).map_err(|reason| {
                assert_eq!(reason, "offset 5, expected 1");
                behind(&mut scanner)
            });
            (found, next(&mut scanner))
        };
        let at = (batch(0, b"first").len() + moved.len()) as u64;
        for trust in [Trust::Headers, Trust::Checksums] {
            for offset in [1, 2, 5] {
                // With records and without any.
                for third in [batch(offset, b"third"), emptied(offset)] {
                    let found = scan(&third, third.len(), trust);
                    assert_eq!(found, (Err(Some((offset, at))), Ok(None)), "{trust:?}");
                }
            }
            for third in [batch(6, b"third"), emptied(9)] {
                let offset = BatchHeader::parse(&third).expect("built").base_offset;
                assert_eq!(scan(&third, third.len(), trust), (Ok(Some(5)), Ok(Some(offset))));
            }
            // What is behind the end does not count.
            assert_eq!(scan(&batch(2, b"third"), 0, trust), (Ok(Some(5)), Ok(None)));
        }
    }

    /// The next one has damage of its own.
    #[test]
    fn a_contradicted_batch_is_not_found_again_behind_itself() {
        let mut moved = batch(0, b"moved");
        put_base_offset(&mut moved, 5);
        let mut second = batch(1, b"second");
        damage(&mut second);
        let third = batch(2, b"third");
        let at = moved.len() + second.len();
        assert_eq!(behind_in(&[&moved, &second, &third]), Some((2, at as u64)));
    }

    #[test]
    fn a_batch_within_a_damaged_record_is_not_taken_for_the_next_one() {
        let first = batch(0, b"first");
        let mut damaged = batch(1, &[&batch(7, b"copied from another log")[..], b"..."].concat());
        damage(&mut damaged);
        let third = batch(2, b"third");
        let bytes = [&first[..], &damaged, &third].concat();
        let file = file(&bytes);
        let scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Checksums);
        let mut scanner = scanner.expecting(with_gaps(0));
        assert_eq!(next(&mut scanner), Ok(Some(0)));
        next(&mut scanner).expect_err("damaged");
        let at = first.len() + damaged.len();
        assert_eq!(behind(&mut scanner), Some((2, at as u64)));
    }

    /// The length of the second one is too large; that is seen only where it leads to.
    #[test]
    fn a_wrong_length_hides_no_batch_where_headers_are_trusted() {
        let mut parts = [
            batch(0, b"first"),
            batch(1, b"second"),
            batch(2, b"third"),
            batch(3, b"fourth"),
        ];
        let longer = parts[1].len() + 7;
        put_length(&mut parts[1], longer);
        let bytes = parts.concat();
        let file = file(&bytes);
        let mut scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Headers);
        assert_eq!(
            (next(&mut scanner), next(&mut scanner)),
            (Ok(Some(0)), Ok(Some(1)))
        );
        next(&mut scanner).expect_err("within the third one");
        let third_at = (parts[0].len() + parts[1].len()) as u64;
        assert_eq!(behind(&mut scanner), Some((2, third_at)));
        assert_eq!((next(&mut scanner), next(&mut scanner)), (Ok(Some(3)), Ok(None)));
    }

    /// Its length is right, so what it leads to is what is damaged.
    #[test]
    fn a_batch_before_damage_stays_where_headers_are_trusted() {
        let (first, third) = (batch(0, b"first"), batch(2, b"third"));
        let bytes = [&first[..], &[0; 100], &third].concat();
        let file = file(&bytes);
        let mut scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Headers);
        assert_eq!(next(&mut scanner), Ok(Some(0)));
        next(&mut scanner).expect_err("zeros");
        assert_eq!(behind(&mut scanner), Some((2, first.len() as u64 + 100)));
    }

    /// Around the end of the buffer, and behind several buffers full.
    #[test]
    fn a_batch_behind_many_damaged_bytes_is_found_wherever_it_begins() {
        let far = (BUFFER_BYTES - 40..BUFFER_BYTES + 40).chain([3 * BUFFER_BYTES + 5]);
        for at in far {
            for found in [batch(9, b"found"), emptied(9)] {
                assert_eq!(behind_in(&[&vec![0; at], &found]), Some((9, at as u64)));
            }
        }
    }

    /// A checksum can be right by intent only: these bytes were in a record.
    #[test]
    fn batches_that_cannot_follow_are_skipped_behind_damage() {
        let mut too_many = batch(9, b"one offset");
        too_many[RECORD_COUNT_AT..HEADER_BYTES].copy_from_slice(&5i32.to_be_bytes());
        seal(&mut too_many);
        let too_far = batch(1 << 40, b"more than 31 bits away");
        let found = batch(9, b"found");
        for skipped in [too_many, too_far] {
            let at = (100 + skipped.len()) as u64;
            assert_eq!(behind_in(&[&[0; 100], &skipped, &found]), Some((9, at)));
        }
        let (older, found) = (batch(1, b"older"), batch(2, b"found"));
        let bytes = [&[0; 100], &older[..], &found].concat();
        let file = file(&bytes);
        let scanner = BatchScanner::new(&*file, 0, bytes.len() as u64, Trust::Checksums);
        let mut scanner = scanner.expecting(with_gaps(2));
        assert_eq!(behind(&mut scanner), Some((2, (100 + older.len()) as u64)));
    }

    #[test]
    fn a_search_costs_a_bounded_number_of_checksums() {
        // The baits take this much of what is behind them, or of the file.
        let search = |healthy_bytes: usize, baits: usize, bait_bytes: Option<usize>| {
            let healthy = batch(0, &vec![0; healthy_bytes]);
            let found = batch(2, &vec![0; 20_000]);
            let end = healthy.len() + 100 + baits * HEADER_BYTES + found.len();
            let bait = bait(2, bait_bytes.unwrap_or(end));
            let bytes = [&healthy[..], &[0; 100], &bait.repeat(baits), &found].concat();
            let file = file(&bytes);
            let scanner = BatchScanner::new(&*file, 0, end as u64, Trust::Checksums);
            let mut scanner = scanner.expecting(with_gaps(0));
            assert_eq!(next(&mut scanner), Ok(Some(0)));
            next(&mut scanner).expect_err("zeros");
            behind(&mut scanner).map(|(offset, _)| offset)
        };
        assert_eq!(search(10, 4, Some(15_000)), Some(2));
        assert_eq!(search(10, 40, Some(15_000)), None);
        assert_eq!(
            search(100_000, 40, Some(15_000)),
            None,
            "what came before does not count"
        );
        // There is nothing to read for those that claim too much.
        assert_eq!(search(10_000, 40, None), Some(2));
    }
}
