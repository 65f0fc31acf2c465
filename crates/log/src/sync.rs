//! Work that waits for the device, cut out of the log so that it runs without the partition's lock: begin under the lock,
//! run without it, finish under the lock.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::checkpoint::write_file_unnamed;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::LogError;
use crate::read_mode::ReadMode;
use crate::reader::Bound;
use crate::segment::{FileKind, Segment, file_path};
use crate::transaction_index::AbortedTransaction;

/// One group commit: makes everything durable that was appended before it began.
#[derive(Debug)]
pub struct SyncJob {
    pub(crate) active: Arc<dyn DiskFile>,
    /// Closed segments that were never synced, oldest first.
    pub(crate) sealed: Vec<Arc<dyn DiskFile>>,
    /// Set when a segment was created: its name must be durable before what is in it counts.
    pub(crate) directory: Option<(Arc<dyn Disk>, Arc<Path>)>,
    pub(crate) end: Bound,
    pub(crate) checkpoint: Option<Box<CheckpointJob>>,
    pub(crate) truncations: u64,
}

impl SyncJob {
    /// Waits for the device. An error poisons the log when it is handed to `finish_sync`.
    pub fn run(&self) -> io::Result<()> {
        for file in &self.sealed {
            file.sync()?;
        }
        self.active.sync()?;
        match &self.directory {
            Some((disk, directory)) => disk.sync_directory(directory),
            None => Ok(()),
        }
    }

    /// What is durable after success.
    pub fn end(&self) -> Bound {
        self.end
    }
}

/// Writes everything that shortens recovery: index entries, producer state, leader epochs. The data itself is durable.
#[derive(Debug)]
pub struct CheckpointJob {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: Arc<Path>,
    pub(crate) segments: Vec<IndexWrite>,
    /// Offset and bytes of producer snapshots.
    pub(crate) snapshots: Vec<(i64, Vec<u8>)>,
    /// Offsets of snapshots that nobody needs once the new ones are there.
    pub(crate) stale_snapshots: Vec<i64>,
    pub(crate) leader_epochs: Option<Vec<u8>>,
    pub(crate) recovery_point: i64,
    pub(crate) appended_bytes: u64,
    pub(crate) truncations: u64,
}

/// The index entries of one segment that its files lack.
#[derive(Debug)]
pub(crate) struct IndexWrite {
    pub segment: Arc<Segment>,
    pub offsets: (u64, Vec<u8>),
    pub times: (u64, Vec<u8>),
    pub aborted: (usize, Vec<AbortedTransaction>),
    /// Length of the log file if the segment is closed: reserved space behind it goes back to the file system.
    pub sealed_bytes: Option<u64>,
}

impl IndexWrite {
    pub fn of(segment: &Arc<Segment>, sealed: bool) -> IndexWrite {
        let indexes = segment.indexes();
        IndexWrite {
            segment: Arc::clone(segment),
            offsets: indexes.offsets.unwritten(),
            times: indexes.times.unwritten(),
            aborted: (
                indexes.aborted_in_file,
                indexes.aborted[indexes.aborted_in_file..].to_vec(),
            ),
            sealed_bytes: sealed.then(|| segment.bytes()),
        }
    }

    pub fn run(&self, disk: &dyn Disk) -> Result<(), LogError> {
        if self.segment.is_retired() {
            return Ok(());
        }
        self.write_index(FileKind::OffsetIndex, &self.offsets)?;
        self.write_index(FileKind::TimeIndex, &self.times)?;
        self.write_aborted(disk)?;
        match self.sealed_bytes {
            Some(bytes) => self
                .segment
                .file
                .set_bytes(bytes)
                .map_err(|source| LogError::io("trim", &self.segment.path(FileKind::Log), source)),
            None => Ok(()),
        }
    }

    fn write_index(&self, kind: FileKind, (position, bytes): &(u64, Vec<u8>)) -> Result<(), LogError> {
        // Kafka expects both index files of every segment to exist, empty ones too.
        let write = || -> io::Result<()> {
            let file = self.segment.index_file(kind, ReadMode::Blocking)?;
            if !bytes.is_empty() {
                file.write_at(&[io::IoSlice::new(bytes)], *position)?;
                file.sync()?;
            }
            Ok(())
        };
        write().map_err(|source| LogError::io("write", &self.segment.path(kind), source))
    }

    fn write_aborted(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let (in_file, aborted) = &self.aborted;
        if aborted.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(aborted.len() * AbortedTransaction::BYTES);
        aborted.iter().for_each(|aborted| aborted.encode(&mut bytes));
        let path = self.segment.path(FileKind::TransactionIndex);
        let write = || -> io::Result<()> {
            let file = disk.open(&path, OpenMode::Create)?;
            file.write_at(
                &[io::IoSlice::new(&bytes)],
                (in_file * AbortedTransaction::BYTES) as u64,
            )?;
            file.sync()
        };
        write().map_err(|source| LogError::io("write", &path, source))
    }

    /// Tells the segment that its files have caught up.
    pub fn finish(&self) {
        let mut indexes = self.segment.indexes();
        indexes
            .offsets
            .written(self.offsets.0 + self.offsets.1.len() as u64);
        indexes.times.written(self.times.0 + self.times.1.len() as u64);
        indexes.aborted_in_file = indexes.aborted_in_file.max(self.aborted.0 + self.aborted.1.len());
    }
}

impl CheckpointJob {
    /// Waits for the device. An error does not harm the log: the next recovery is longer, that is all.
    pub fn run(&self) -> Result<(), LogError> {
        for segment in &self.segments {
            segment.run(&*self.disk)?;
        }
        for (offset, bytes) in &self.snapshots {
            let path = file_path(&self.directory, *offset, FileKind::Snapshot);
            write_file_unnamed(&*self.disk, &path, bytes)?;
        }
        if let Some(bytes) = &self.leader_epochs {
            write_file_unnamed(&*self.disk, &self.directory.join(crate::LEADER_EPOCH_FILE), bytes)?;
        }
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))?;
        for offset in &self.stale_snapshots {
            let path = file_path(&self.directory, *offset, FileKind::Snapshot);
            if let Err(source) = self.disk.remove_file(&path)
                && source.kind() != io::ErrorKind::NotFound
            {
                return Err(LogError::io("remove", &path, source));
            }
        }
        Ok(())
    }
}

/// Hands dirty pages to the device early, so that the kernel never has a flood of them to write at once.
#[derive(Debug)]
pub struct WritebackJob {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
}

impl WritebackJob {
    /// May wait when the device's queue is full. An error here says nothing; the next sync reports it.
    pub fn run(&self) -> io::Result<()> {
        self.file.start_writeback(self.position, self.bytes)
    }
}
