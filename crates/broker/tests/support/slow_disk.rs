//! Real files on a disk whose cold reads are slow, and which records the threads that waited for
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::HANG;
use ottla_log::disk::os::{Descriptor, OsDisk};
use ottla_log::disk::{DirectoryEntry, DirectoryLock, Disk, DiskFile, OpenMode, Space};

const PAGE_BYTES: u64 = 4096;

/// A handle; clones share the disk.
#[derive(Clone)]
pub struct SlowDisk {
    shared: Arc<Shared>,
}

struct Shared {
    inner: OsDisk,
    /// The duration of every read of a cold range.
    delay: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Pages that must be read from the device, by file.
    cold: BTreeMap<PathBuf, BTreeSet<u64>>,
    /// While true, no cold read ends.
    is_closed: bool,
    /// Reads that are waiting now.
    waiting: usize,
    /// Names of the threads that waited, once per wait.
    waits: Vec<String>,
}

impl fmt::Debug for SlowDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowDisk")
    }
}

impl SlowDisk {
    pub fn new(delay: Duration) -> SlowDisk {
        SlowDisk {
            shared: Arc::new(Shared {
                inner: OsDisk::default(),
                delay,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// Marks everything below `directory` as cold, except the last page of each log, to which its
    /// partition keeps appending.
    pub fn evict(&self, directory: &Path) {
        let mut cold = BTreeMap::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let pages = entry.metadata().unwrap().len() / PAGE_BYTES;
            cold.insert(entry.path(), (0..pages).collect());
        }
        self.state().cold.extend(cold);
    }

    /// From now on no cold read ends until [`SlowDisk::open_gate`].
    pub fn close_gate(&self) {
        self.state().is_closed = true;
    }

    pub fn open_gate(&self) {
        self.state().is_closed = false;
        self.shared.changed.notify_all();
    }

    /// Returns when `count` reads are waiting at once; panics if that does not happen in time.
    pub fn wait_for_waiting(&self, count: usize) {
        let state = self.state();
        let is_less = |state: &mut State| state.waiting < count;
        let (state, timeout) = (self.shared.changed)
            .wait_timeout_while(state, HANG, is_less)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!timeout.timed_out(), "no read waits for the device");
    }

    pub fn waits(&self) -> Vec<String> {
        self.state().waits.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, path: &Path, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(SlowFile {
            disk: self.clone(),
            path: path.to_path_buf(),
            inner,
        })
    }
}

impl Disk for SlowDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, self.shared.inner.open(path, mode)?))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.shared.inner.list(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        self.shared.inner.exists(path)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        self.shared.inner.create_directories(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.shared.inner.remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        self.shared.inner.remove_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.shared.inner.sync_directory(directory)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.shared.inner.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.shared.inner.lock(path)
    }
}

struct SlowFile {
    disk: SlowDisk,
    path: PathBuf,
    inner: Arc<dyn DiskFile>,
}

impl fmt::Debug for SlowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowFile({})", self.path.display())
    }
}

fn pages(position: u64, bytes: u64) -> Range<u64> {
    position / PAGE_BYTES..(position + bytes).div_ceil(PAGE_BYTES)
}

impl SlowFile {
    fn first_cold(&self, pages: Range<u64>) -> Option<u64> {
        let state = self.disk.state();
        state.cold.get(&self.path)?.range(pages).next().copied()
    }

    /// Waits as the device would make a reader of a cold page wait.
    fn wait_for(&self, pages: Range<u64>) {
        if self.first_cold(pages.clone()).is_none() {
            return;
        }
        let shared = &self.disk.shared;
        let mut state = self.disk.state();
        let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
        state.waits.push(thread);
        state.waiting += 1;
        shared.changed.notify_all();
        drop(state);
        std::thread::sleep(shared.delay);
        let mut state = self.disk.state();
        while state.is_closed {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        if let Some(cold) = state.cold.get_mut(&self.path) {
            cold.retain(|page| !pages.contains(page));
        }
    }
}

impl DiskFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.wait_for(pages(position, buffer.len() as u64));
        self.inner.read_at(buffer, position)
    }

    fn read_parts_at(&self, parts: &mut [io::IoSliceMut<'_>], position: u64) -> io::Result<usize> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.wait_for(pages(position, bytes as u64));
        self.inner.read_parts_at(parts, position)
    }

    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let Some(cold) = self.first_cold(pages(position, buffer.len() as u64)) else {
            return self.inner.read_at(buffer, position);
        };
        match (cold * PAGE_BYTES).saturating_sub(position) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            resident => self.inner.read_at(&mut buffer[..resident as usize], position),
        }
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        // Writing a part of a page requires reading it first.
        if !position.is_multiple_of(PAGE_BYTES) {
            self.wait_for(pages(position, 1));
        }
        if let Some(cold) = self.disk.state().cold.get_mut(&self.path) {
            let written = pages(position, bytes as u64);
            cold.retain(|page| !written.contains(page));
        }
        self.inner.write_at(parts, position)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.inner.bytes()
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.inner.set_bytes(bytes)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.inner.reserve(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn start_writeback(&self, position: u64, bytes: u64) -> io::Result<()> {
        self.inner.start_writeback(position, bytes)
    }

    fn is_resident(&self, position: u64, bytes: u64) -> bool {
        self.first_cold(pages(position, bytes)).is_none()
    }

    fn load(&self, position: u64, bytes: u64) -> io::Result<()> {
        self.wait_for(pages(position, bytes));
        self.inner.load(position, bytes)
    }

    fn forget(&self, position: u64, bytes: u64) {
        let forgotten = position.div_ceil(PAGE_BYTES)..(position + bytes) / PAGE_BYTES;
        let mut state = self.disk.state();
        state.cold.entry(self.path.clone()).or_default().extend(forgotten);
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.inner.descriptor()
    }
}
