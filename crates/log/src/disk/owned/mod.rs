//! Log files whose newest bytes lie in memory of the log's own, not in the page cache.
//!
//! An append copies bytes into memory and returns. A sync hands everything that was appended to the
//! device in one write that is durable when it returns, past the page cache. Readers at the tail
//! are served from the same memory; older bytes are read past the page cache into a bounded part of
//! it.
//!
//! The files are those of any other disk: what lies below needs no knowledge of this module, and
//! the simulated disk can lose, tear and reorder its writes like all others. Only the last block of
//! a file is special: it is written whole, padded with zeros, and again when more is appended to
//! it.
//!
//! Reading order: the modules below, top to bottom.

mod file;
mod tail;
mod memory;
mod chunk;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{DirectoryEntry, DirectoryLock, Disk, DiskFile, OpenMode, Space};
pub(super) use chunk::AlignedBuffer;
pub use chunk::Pinned;
use file::OwnedFile;
pub(crate) use file::padding_bytes_max;
pub use memory::{LogMemory, MemoryUse};

/// The unit of the device: direct writes begin at, and have lengths of, multiples of this.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// A disk that keeps the newest bytes of log files in `memory`; all other files are those of the
/// disk below.
#[derive(Debug)]
pub struct OwnedDisk {
    below: Arc<dyn Disk>,
    memory: Arc<LogMemory>,
}

impl OwnedDisk {
    pub fn new(below: Arc<dyn Disk>, memory: Arc<LogMemory>) -> OwnedDisk {
        OwnedDisk { below, memory }
    }
}

fn owned(file: &Arc<dyn DiskFile>) -> Option<&OwnedFile> {
    let file: &dyn Any = &**file;
    file.downcast_ref()
}

impl Disk for OwnedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.below.open(path, mode)
    }

    fn open_log(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(OwnedFile::open(&self.below, path, mode, &self.memory)?)
    }

    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(OwnedFile::create(&self.below, path, &self.memory))
    }

    fn is_direct(&self, file: &Path) -> bool {
        self.below.is_direct(file)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        self.below.list(directory)
    }

    fn exists(&self, path: &Path) -> bool {
        self.below.exists(path)
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        self.below.create_directories(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.below.remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        self.below.remove_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.below.sync_directory(directory)
    }

    /// Log files are written out first, each durable on its own; one sync below then covers the
    /// lengths that were trimmed, all other files, and the names.
    fn sync_all(&self, files: &[Arc<dyn DiskFile>], directories: &[&Path]) -> io::Result<()> {
        let mut below = Vec::with_capacity(files.len());
        let mut trimmed_logs = Vec::new();
        for file in files {
            match owned(file) {
                Some(log) => trimmed_logs.extend(log.write_out()?.map(|trimmed| (log, trimmed))),
                None => below.push(Arc::clone(file)),
            }
        }
        below.extend(trimmed_logs.iter().map(|(_, trimmed)| Arc::clone(&trimmed.below)));
        self.below.sync_all(&below, directories)?;
        for (log, trimmed) in &trimmed_logs {
            log.note_synced(trimmed);
        }
        Ok(())
    }

    fn settle(&self, directory: &Path) {
        self.below.settle(directory);
    }

    fn pause(&self) {
        self.below.pause();
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.below.space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.below.lock(path)
    }

    fn memory(&self) -> Option<&Arc<LogMemory>> {
        Some(&self.memory)
    }

    fn below(&self) -> Option<&Arc<dyn Disk>> {
        Some(&self.below)
    }
}
