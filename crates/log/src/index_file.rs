//! Binary search in a file of ascending entries of equal length, page by page: a closed segment's
//! index is in memory only as far as the operating system caches it.

use std::io;

use crate::disk::DiskFile;
use crate::read_mode::{ReadMode, read_up_to};

/// A kind of index entry.
pub(crate) trait IndexEntry: Copy {
    const BYTES: usize;
    fn decode(bytes: &[u8]) -> Self;
    fn encode(&self, out: &mut Vec<u8>);
}

const PAGE_BYTES: usize = 4096;

/// Returns the last of the first `count` entries for which `precedes` holds, with its index; it
/// must hold for a prefix of them.
pub(crate) fn last_where<E: IndexEntry>(
    file: &dyn DiskFile,
    count: u32,
    mode: ReadMode,
    precedes: impl Fn(&E) -> bool,
) -> io::Result<Option<(u32, E)>> {
    let entries_per_page = (PAGE_BYTES / E::BYTES) as u32;
    let mut buffer = [0; PAGE_BYTES];
    let page_count = count.div_ceil(entries_per_page);
    let (mut low, mut high) = (0, page_count);
    // Invariant: `precedes` holds for the first entry of every page below `low`, and for none from
    // `high` on.
    while low < high {
        let middle = low + (high - low) / 2;
        if precedes(&read_entry::<E>(file, middle * entries_per_page, mode)?) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let Some(page) = low.checked_sub(1) else {
        return Ok(None);
    };
    let first = page * entries_per_page;
    let in_page = (count - first).min(entries_per_page) as usize;
    let page_bytes = &mut buffer[..in_page * E::BYTES];
    read_whole(file, page_bytes, u64::from(first) * E::BYTES as u64, mode)?;
    let mut last = None;
    for (index, entry) in (first..).zip(page_bytes.chunks_exact(E::BYTES).map(E::decode)) {
        if !precedes(&entry) {
            break;
        }
        last = Some((index, entry));
    }
    Ok(last)
}

fn read_entry<E: IndexEntry>(file: &dyn DiskFile, index: u32, mode: ReadMode) -> io::Result<E> {
    let mut buffer = [0; 32];
    let bytes = &mut buffer[..E::BYTES];
    read_whole(file, bytes, u64::from(index) * E::BYTES as u64, mode)?;
    Ok(E::decode(bytes))
}

fn read_whole(file: &dyn DiskFile, buffer: &mut [u8], position: u64, mode: ReadMode) -> io::Result<()> {
    if read_up_to(file, buffer, position, mode)? == buffer.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The entries of an index: the first `in_file` in the file, the rest in memory until the next
/// checkpoint.
#[derive(Debug)]
pub(crate) struct SparseIndex<E> {
    in_file: u32,
    tail: Vec<E>,
}

/// Where a search continues.
pub(crate) enum Floor<E> {
    Memory(E),
    /// Among this many first entries of the file.
    InFile(u32),
    Nothing,
}

impl<E: IndexEntry> SparseIndex<E> {
    pub fn new(in_file: u32) -> SparseIndex<E> {
        SparseIndex {
            in_file,
            tail: Vec::new(),
        }
    }

    pub fn count(&self) -> u32 {
        self.in_file + self.tail.len() as u32
    }

    pub fn push(&mut self, entry: E) {
        self.tail.push(entry);
    }

    pub fn floor(&self, precedes: impl Fn(&E) -> bool) -> Floor<E> {
        match self.tail.partition_point(precedes) {
            0 if self.in_file == 0 => Floor::Nothing,
            0 => Floor::InFile(self.in_file),
            count => Floor::Memory(self.tail[count - 1]),
        }
    }

    pub fn is_written(&self) -> bool {
        self.tail.is_empty()
    }

    /// Returns the entries missing in the file, and the position where they belong.
    pub fn unwritten(&self) -> (u64, Vec<u8>) {
        let mut bytes = Vec::with_capacity(self.tail.len() * E::BYTES);
        for entry in &self.tail {
            entry.encode(&mut bytes);
        }
        (u64::from(self.in_file) * E::BYTES as u64, bytes)
    }

    /// Notes that the file now holds everything up to `bytes`.
    pub fn written(&mut self, bytes: u64) {
        let count = (bytes / E::BYTES as u64) as u32;
        let new = count.saturating_sub(self.in_file) as usize;
        self.tail.drain(..new.min(self.tail.len()));
        self.in_file = self.in_file.max(count);
        self.tail.shrink_to(64);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::{Disk, OpenMode};
    use crate::time_index::TimeEntry;

    fn entry(index: u32) -> TimeEntry {
        TimeEntry {
            timestamp: i64::from(index) * 10,
            relative_offset: index as i32,
        }
    }

    #[test]
    fn the_last_preceding_entry_is_found_in_files_of_every_length() {
        // 341 entries of 12 bytes fill a page: lengths around one and two pages, and positions
        // everywhere.
        for count in [0, 1, 2, 340, 341, 342, 682, 683, 1_000] {
            let disk = MemoryDisk::new(1);
            let mut bytes = Vec::new();
            (0..count).for_each(|index| entry(index).encode(&mut bytes));
            disk.write_file(Path::new("i"), &bytes);
            let file = disk.open(Path::new("i"), OpenMode::Read).expect("there");
            for target in 0..=count * 10 + 1 {
                let found = last_where(&*file, count, ReadMode::Blocking, |entry: &TimeEntry| {
                    entry.timestamp < i64::from(target)
                });
                let expected = target.div_ceil(10).min(count).checked_sub(1);
                let expected = expected.map(|index| (index, entry(index)));
                assert_eq!(
                    found.expect("readable"),
                    expected,
                    "{count} entries, target {target}"
                );
            }
        }
    }

    #[test]
    fn entries_move_from_memory_to_the_file() {
        let mut index = SparseIndex::new(2);
        (2..10).for_each(|number| index.push(entry(number)));
        let floor = |index: &SparseIndex<TimeEntry>, timestamp| match index
            .floor(|entry| entry.timestamp < timestamp)
        {
            Floor::Memory(entry) => Some(entry.relative_offset),
            Floor::InFile(count) => Some(-(count as i32)),
            Floor::Nothing => None,
        };
        assert_eq!((floor(&index, 25), floor(&index, 20)), (Some(2), Some(-2)));
        let (position, bytes) = index.unwritten();
        assert_eq!((position, bytes.len()), (24, 96));
        index.push(entry(10));
        index.written(position + bytes.len() as u64);
        assert!(!index.is_written());
        assert_eq!(
            (index.count(), floor(&index, 25), floor(&index, 101)),
            (11, Some(-10), Some(10))
        );
        index.written(11 * 12);
        assert!(index.is_written());
        assert_eq!(floor(&SparseIndex::new(0), 5), None);
    }
}
