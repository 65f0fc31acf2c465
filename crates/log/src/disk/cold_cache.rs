//! Page cache use of lagging readers: data read from the device for them is bounded, first in,
//! first out.
//!
//! A consumer that catches up touches every page once. Left to the kernel, these pages would evict
//! those written last, which all other consumers are about to read.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{DiskFile, FileRegion};

/// A file is hot this close to its end: its writer, and readers at the tail, need these pages.
const TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// A read of fewer bytes says little about the device's speed.
const MEASURED_BYTES_MIN: u64 = 64 * 1024;

/// Loads ranges of files, and lets the oldest leave the page cache when there are too many.
#[derive(Debug)]
pub struct ColdCache {
    bytes_max: u64,
    /// Bytes that the device gave in a millisecond lately; 0 while that is not known.
    speed: AtomicU64,
    loaded: Mutex<Loaded>,
    read_bytes: AtomicU64,
    forgotten_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Loaded {
    /// Oldest first. Weak: a file deleted meanwhile is not kept open.
    ranges: VecDeque<LoadedRange>,
    bytes: u64,
}

#[derive(Debug)]
struct LoadedRange {
    file: Weak<dyn DiskFile>,
    position: u64,
    bytes: u64,
}

impl ColdCache {
    /// - Units: at most `bytes_max` bytes of the page cache, plus what is loaded in one call.
    pub fn new(bytes_max: u64) -> ColdCache {
        ColdCache {
            bytes_max,
            speed: AtomicU64::new(0),
            loaded: Mutex::default(),
            read_bytes: AtomicU64::new(0),
            forgotten_bytes: AtomicU64::new(0),
        }
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Notes that the device gave `bytes` in `micros`.
    pub fn note_speed(&self, bytes: u64, micros: u64) {
        if bytes < MEASURED_BYTES_MIN || micros == 0 {
            return;
        }
        let sample = (bytes.saturating_mul(1_000) / micros).max(1);
        let before = self.speed.load(Ordering::Relaxed);
        // Of two threads at the same time one sample may be lost.
        let after = match before {
            0 => sample,
            before => before - before / 8 + sample / 8,
        };
        self.speed.store(after.max(1), Ordering::Relaxed);
    }

    /// Returns what the device gives in this time at the speed of its last reads; 0 while that is
    /// not known.
    pub fn bytes_in(&self, milliseconds: u64) -> u64 {
        self.speed.load(Ordering::Relaxed).saturating_mul(milliseconds)
    }

    /// Makes sure that the pages of `region` are in the page cache. May wait for the device.
    ///
    /// - Returns the bytes that were not resident before, whole regions only.
    pub fn load(&self, region: &FileRegion) -> io::Result<u64> {
        if region.bytes == 0 || region.file.stays_resident(region.position, region.bytes) {
            return Ok(0);
        }
        region.file.load(region.position, region.bytes)?;
        self.read_bytes.fetch_add(region.bytes, Ordering::Relaxed);
        let is_tail = region.position + region.bytes + TAIL_BYTES > region.file.bytes()?;
        if !is_tail {
            self.note(region);
        }
        Ok(region.bytes)
    }

    /// Bytes read from the device so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes given back to the kernel so far.
    pub fn forgotten_bytes(&self) -> u64 {
        self.forgotten_bytes.load(Ordering::Relaxed)
    }

    /// Bytes kept now.
    pub fn kept_bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn note(&self, region: &FileRegion) {
        let mut surplus = Vec::new();
        {
            let mut loaded = self.lock();
            loaded.bytes += region.bytes;
            loaded.ranges.push_back(LoadedRange {
                file: Arc::downgrade(&region.file),
                position: region.position,
                bytes: region.bytes,
            });
            while loaded.bytes > self.bytes_max
                && loaded.ranges.len() > 1
                && let Some(oldest) = loaded.ranges.pop_front()
            {
                loaded.bytes -= oldest.bytes;
                surplus.push(oldest);
            }
        }
        // Without the lock: the kernel may have to visit every page.
        for range in surplus {
            self.forgotten_bytes.fetch_add(range.bytes, Ordering::Relaxed);
            if let Some(file) = range.file.upgrade() {
                file.forget(range.position, range.bytes);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        // Under this lock nothing panics except a failed allocation.
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::{Disk, OpenMode};

    const MIB: u64 = 1024 * 1024;

    fn cold_file(disk: &MemoryDisk) -> Arc<dyn DiskFile> {
        let file = disk.open(Path::new("a"), OpenMode::Create).expect("opened");
        let bytes = vec![7; 16 * MIB as usize];
        file.write_at(&[io::IoSlice::new(&bytes)], 0).expect("written");
        file.sync().expect("synced");
        disk.evict();
        file
    }

    fn region(file: &Arc<dyn DiskFile>, position: u64) -> FileRegion {
        FileRegion {
            file: file.clone(),
            position,
            bytes: MIB,
        }
    }

    #[test]
    fn the_speed_of_the_device_is_that_of_its_last_reads() {
        let cache = ColdCache::new(MIB);
        assert_eq!(cache.bytes_in(4), 0);
        for (bytes, micros) in [(MIB, 0), (MEASURED_BYTES_MIN - 1, 1)] {
            cache.note_speed(bytes, micros);
            assert_eq!(cache.bytes_in(4), 0, "{bytes} bytes in {micros} µs say nothing");
        }
        cache.note_speed(MIB, 1_000);
        assert_eq!(cache.bytes_in(4), 4 * MIB);
        cache.note_speed(MIB, 2_000);
        assert_eq!(cache.bytes_in(16), 15 * MIB);
        (0..200).for_each(|_| cache.note_speed(MIB, 1_000_000));
        assert!(cache.bytes_in(1_000) < 2 * MIB);
    }

    #[test]
    fn the_range_loaded_first_is_evicted_first() {
        let file = cold_file(&MemoryDisk::new(1));
        let cache = ColdCache::new(3 * MIB);
        for index in 0..5 {
            assert_eq!(cache.load(&region(&file, index * MIB)).expect("loaded"), MIB);
        }
        assert!(!file.is_resident(0, MIB) && !file.is_resident(MIB, MIB));
        assert!(file.is_resident(2 * MIB, 3 * MIB));
        assert_eq!((cache.kept_bytes(), cache.forgotten_bytes()), (3 * MIB, 2 * MIB));
    }

    #[test]
    fn what_is_resident_is_neither_read_nor_forgotten() {
        let disk = MemoryDisk::new(1);
        let file = cold_file(&disk);
        let cache = ColdCache::new(MIB);
        file.read_at(&mut vec![0; 2 * MIB as usize], 0)
            .expect("warmed by another reader");
        assert_eq!(cache.load(&region(&file, 0)).expect("there"), 0);
        for index in 4..8 {
            cache.load(&region(&file, index * MIB)).expect("loaded");
        }
        assert!(file.is_resident(0, 2 * MIB));
    }

    #[test]
    fn the_tail_of_a_file_is_loaded_and_stays() {
        let file = cold_file(&MemoryDisk::new(1));
        let cache = ColdCache::new(MIB);
        for index in [15, 14, 0, 1, 2] {
            cache.load(&region(&file, index * MIB)).expect("loaded");
        }
        assert!(file.is_resident(14 * MIB, 2 * MIB), "the tail");
        assert!(!file.is_resident(0, MIB), "the rest has its bound");
    }

    /// The tail begins 4 MiB before the end, and what was loaded just now is about to be sent.
    #[test]
    fn the_newest_range_stays_although_it_is_larger_than_all_that_is_kept() {
        let file = cold_file(&MemoryDisk::new(1));
        let cache = ColdCache::new(MIB / 2);
        cache.load(&region(&file, 11 * MIB)).expect("loaded");
        assert_eq!((cache.kept_bytes(), cache.read_bytes()), (MIB, MIB));
        assert!(file.is_resident(11 * MIB, MIB));
        cache.load(&region(&file, 12 * MIB)).expect("loaded");
        assert_eq!(
            (cache.kept_bytes(), cache.read_bytes()),
            (MIB, 2 * MIB),
            "the tail"
        );
        cache.load(&region(&file, 0)).expect("loaded");
        assert_eq!((cache.kept_bytes(), cache.forgotten_bytes()), (MIB, MIB));
        assert!(file.is_resident(0, MIB) && !file.is_resident(11 * MIB, MIB));
    }

    #[test]
    fn a_file_that_is_closed_meanwhile_is_released() {
        let disk = MemoryDisk::new(1);
        let file = cold_file(&disk);
        let cache = ColdCache::new(MIB);
        cache.load(&region(&file, 0)).expect("loaded");
        let held = Arc::downgrade(&file);
        drop(file);
        assert!(held.upgrade().is_none());
        let other = cold_file(&disk);
        cache.load(&region(&other, 0)).expect("loaded");
        assert_eq!(cache.kept_bytes(), MIB);
    }
}
