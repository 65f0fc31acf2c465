//! Jobs that wait for the device, separated from the log so that they run without the partition's
//! lock: begin under the lock, run without it, finish under the lock.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::{temporary_path, write_temporary};
use crate::crew::Crew;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::LogError;
use crate::leader_epoch::LeaderEpochs;
use crate::read_mode::ReadMode;
use crate::reader::Bound;
use crate::segment::{FileKind, Segment, file_path};
use crate::transaction_index::AbortedTransaction;

/// One group commit: makes everything durable that was appended before the job began.
#[derive(Debug)]
pub struct SyncJob {
    pub(crate) active: Arc<dyn DiskFile>,
    /// Closed segments that were never synced, oldest first.
    pub(crate) sealed: Vec<Arc<Segment>>,
    /// Set when a segment was created: its directory entry must be durable before its contents
    /// count.
    pub(crate) directory: Option<(Arc<dyn Disk>, Arc<Path>)>,
    pub(crate) end: Bound,
    pub(crate) checkpoint: Option<Box<CheckpointJob>>,
}

impl SyncJob {
    /// Waits for the device. An error poisons the log when passed to `finish_sync`, unless it is a
    /// shortage.
    pub fn run(&self) -> io::Result<()> {
        self.finish_sealed()?;
        self.active.sync()?;
        match &self.directory {
            Some((disk, directory)) => disk.sync_directory(directory),
            None => Ok(()),
        }
    }

    /// Comes before anything of the next segment is durable: a log whose middle ends in padding or
    /// reserved space would look damaged to a recovery, and Apache Kafka's would remove what
    /// follows.
    fn finish_sealed(&self) -> io::Result<()> {
        for segment in &self.sealed {
            segment.file.set_bytes(segment.bytes())?;
            segment.file.sync()?;
        }
        Ok(())
    }

    /// The end of what is durable after success.
    pub fn end(&self) -> Bound {
        self.end
    }
}

/// Writes everything that shortens recovery: index entries, producer state, leader epochs. The data
/// itself is already durable.
#[derive(Debug)]
pub struct CheckpointJob {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: Arc<Path>,
    pub(crate) segments: Vec<IndexWrite>,
    /// Offset and bytes of producer snapshots.
    pub(crate) snapshots: Vec<(i64, Vec<u8>)>,
    /// Offsets of snapshots that are superseded once the new ones exist.
    pub(crate) stale_snapshots: Vec<i64>,
    /// `None` if the file is up to date.
    pub(crate) leader_epochs: Option<LeaderEpochs>,
    pub(crate) recovery_point: i64,
    pub(crate) appended_bytes: u64,
}

/// The index entries of one segment that are missing in its files.
#[derive(Debug)]
pub(crate) struct IndexWrite {
    pub segment: Arc<Segment>,
    pub offsets: (u64, Vec<u8>),
    pub times: (u64, Vec<u8>),
    pub aborted: (usize, Vec<AbortedTransaction>),
    /// Length of the log file if the segment is closed: space reserved beyond it is given back to
    /// the file system.
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
        let mut files = Vec::new();
        self.write(disk, &mut files)?;
        sync_files(disk, &files, &self.segment.path(FileKind::Log))
    }

    /// Writes the entries and adds the files that must be synced for them.
    fn write(&self, disk: &dyn Disk, files: &mut Vec<Arc<dyn DiskFile>>) -> Result<(), LogError> {
        if self.segment.is_retired() {
            return Ok(());
        }
        // Index entries without a log file would look like the remains of a lost segment.
        let created = self.segment.file.create();
        created.map_err(|source| LogError::io("create", &self.segment.path(FileKind::Log), source))?;
        self.write_index(FileKind::OffsetIndex, &self.offsets, files)?;
        self.write_index(FileKind::TimeIndex, &self.times, files)?;
        self.write_aborted(disk, files)?;
        let Some(bytes) = self.sealed_bytes else {
            return Ok(());
        };
        files.push(Arc::clone(&self.segment.file));
        let trimmed = self.segment.file.set_bytes(bytes);
        trimmed.map_err(|source| LogError::io("trim", &self.segment.path(FileKind::Log), source))
    }

    fn write_index(
        &self,
        kind: FileKind,
        (position, bytes): &(u64, Vec<u8>),
        files: &mut Vec<Arc<dyn DiskFile>>,
    ) -> Result<(), LogError> {
        // Kafka expects both index files of every segment to exist, even if empty.
        let write = || -> io::Result<Arc<dyn DiskFile>> {
            let file = self.segment.index_file(kind, ReadMode::Blocking)?;
            if !bytes.is_empty() {
                file.write_at(&[io::IoSlice::new(bytes)], *position)?;
            }
            Ok(file)
        };
        let file = write().map_err(|source| LogError::io("write", &self.segment.path(kind), source))?;
        if !bytes.is_empty() {
            files.push(file);
        }
        Ok(())
    }

    fn write_aborted(&self, disk: &dyn Disk, files: &mut Vec<Arc<dyn DiskFile>>) -> Result<(), LogError> {
        let (in_file, aborted) = &self.aborted;
        if aborted.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(aborted.len() * AbortedTransaction::BYTES);
        aborted.iter().for_each(|aborted| aborted.encode(&mut bytes));
        let path = self.segment.path(FileKind::TransactionIndex);
        let write = || -> io::Result<Arc<dyn DiskFile>> {
            let file = disk.open(&path, OpenMode::Create)?;
            file.write_at(
                &[io::IoSlice::new(&bytes)],
                (in_file * AbortedTransaction::BYTES) as u64,
            )?;
            Ok(file)
        };
        files.push(write().map_err(|source| LogError::io("write", &path, source))?);
        Ok(())
    }

    /// Notes in the segment that its files are up to date.
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
    /// Waits for the device. An error does not harm the log: it only makes the next recovery
    /// longer.
    pub fn run(&self) -> Result<(), LogError> {
        let mut files = Vec::new();
        self.write(&mut files)?;
        sync_files(&*self.disk, &files, &self.directory)?;
        self.name_files()?;
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))?;
        self.remove_stale()
    }

    /// Runs many jobs with one joint sync. Each has an outcome of its own.
    pub fn run_all(disk: &dyn Disk, jobs: &[CheckpointJob], crew: &dyn Crew) -> Vec<Result<(), LogError>> {
        let all: Vec<&CheckpointJob> = jobs.iter().collect();
        match run_together(disk, &all, &[], crew) {
            Ok(()) => jobs.iter().map(|_| Ok(())).collect(),
            // One of them failed; the others need not fail with it.
            Err(_) => jobs.iter().map(CheckpointJob::run).collect(),
        }
    }

    /// First step: writes everything, under temporary names where a file is replaced, and adds the
    /// files to be synced.
    pub(crate) fn write(&self, files: &mut Vec<Arc<dyn DiskFile>>) -> Result<(), LogError> {
        for segment in &self.segments {
            segment.write(&*self.disk, files)?;
        }
        for (path, bytes) in self.small_files() {
            files.push(write_temporary(&*self.disk, &path, &bytes)?);
        }
        Ok(())
    }

    /// Second step, after that sync: renames the files. The directory must then be synced.
    pub(crate) fn name_files(&self) -> Result<(), LogError> {
        for (path, _) in self.small_files() {
            self.disk
                .rename(&temporary_path(&path), &path)
                .map_err(|source| LogError::io("rename", &path, source))?;
        }
        Ok(())
    }

    /// Third step, after the directory sync.
    pub(crate) fn remove_stale(&self) -> Result<(), LogError> {
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

    /// The files that are replaced as a whole.
    fn small_files(&self) -> impl Iterator<Item = (PathBuf, Cow<'_, [u8]>)> {
        let snapshots = self.snapshots.iter().map(|(offset, bytes)| {
            let path = file_path(&self.directory, *offset, FileKind::Snapshot);
            (path, bytes.as_slice().into())
        });
        let leader_epochs = self.leader_epochs.iter().map(|epochs| {
            let path = self.directory.join(crate::LEADER_EPOCH_FILE);
            (path, epochs.encode().into())
        });
        snapshots.chain(leader_epochs)
    }
}

/// Runs all of these together: one `sync_all` for the data, one for the names. Waits for the
/// device.
///
/// - Errors: the first error of any of them. None is done then, and each may be run again on its
///   own, except a sync: one that failed is never retried unless it failed for a shortage.
pub(crate) fn run_together(
    disk: &dyn Disk,
    checkpoints: &[&CheckpointJob],
    syncs: &[&SyncJob],
    crew: &dyn Crew,
) -> Result<(), LogError> {
    let written: Mutex<Vec<Arc<dyn DiskFile>>> = Mutex::default();
    try_for_each(crew, checkpoints, |job| {
        let mut files = Vec::new();
        let outcome = job.write(&mut files);
        written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(files);
        outcome
    })?;
    // Batches first, then the index entries that point to them.
    let batches = syncs.iter().flat_map(|sync| {
        let sealed = sync.sealed.iter().map(|segment| &segment.file);
        sealed.chain([&sync.active])
    });
    let mut files: Vec<Arc<dyn DiskFile>> = batches.cloned().collect();
    files.extend(written.into_inner().unwrap_or_else(PoisonError::into_inner));
    let directories: Vec<&Path> = checkpoints.iter().map(|job| &*job.directory).collect();
    let Some(some_directory) = directories.first() else {
        return Ok(());
    };
    syncs
        .iter()
        .try_for_each(|sync| sync.finish_sealed())
        .map_err(|source| LogError::io("sync", some_directory, source))?;
    sync_files(disk, &files, some_directory)?;
    try_for_each(crew, checkpoints, CheckpointJob::name_files)?;
    disk.sync_all(&[], &directories)
        .map_err(|source| LogError::io("sync", some_directory, source))?;
    try_for_each(crew, checkpoints, CheckpointJob::remove_stale)
}

/// Runs `work` for all jobs; returns the first error, if any, without stopping the others.
fn try_for_each(
    crew: &dyn Crew,
    jobs: &[&CheckpointJob],
    work: impl Fn(&CheckpointJob) -> Result<(), LogError> + Sync,
) -> Result<(), LogError> {
    let failed: Mutex<Option<LogError>> = Mutex::default();
    crew.for_each(jobs.len(), &|index| {
        if let Err(error) = work(jobs[index]) {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(error);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}

fn sync_files(disk: &dyn Disk, files: &[Arc<dyn DiskFile>], path: &Path) -> Result<(), LogError> {
    disk.sync_all(files, &[])
        .map_err(|source| LogError::io("sync", path, source))
}

/// Hands dirty pages to the device early, so that the kernel never has to write a flood of them at
/// once.
#[derive(Debug)]
pub struct WritebackJob {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
}

impl WritebackJob {
    /// May wait when the device's queue is full. An error here may be ignored; the next sync
    /// reports it.
    pub fn run(&self) -> io::Result<()> {
        self.file.start_writeback(self.position, self.bytes)
    }
}
