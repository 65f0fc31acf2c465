//! Group commits and checkpoints from the log's side: what they capture, and how their outcome is
//! applied.

use std::io;
use std::sync::Arc;

use crate::disk::is_shortage;
use crate::error::LogError;
use crate::leader_epoch::LeaderEpochs;
use crate::partition_log::PartitionLog;
use crate::reader::Bound;
use crate::sync::{CheckpointJob, IndexWrite, SyncJob, WritebackJob};

/// Dirty pages are handed to the device in pieces of at least this many bytes.
const WRITEBACK_BYTES: u64 = 1024 * 1024;
pub(crate) const PAGE_BYTES: u64 = 4096;

impl PartitionLog {
    /// Captures what a sync would make durable now; `None` if there is nothing to do, a sync is
    /// under way, or the log is poisoned.
    pub fn begin_sync(&mut self) -> Option<SyncJob> {
        if self.unsynced.in_flight || self.poison.is_some() || self.durable.offset == self.end_offset {
            return None;
        }
        let checkpoint = self.capture_checkpoint();
        Some(self.begin_sync_with(checkpoint))
    }

    pub(crate) fn begin_sync_with(&mut self, checkpoint: Option<Box<CheckpointJob>>) -> SyncJob {
        self.unsynced.in_flight = true;
        let directory = std::mem::take(&mut self.unsynced.directory)
            .then(|| (Arc::clone(&self.disk), Arc::clone(&self.directory)));
        SyncJob {
            active: Arc::clone(&self.active.segment.file),
            sealed: std::mem::take(&mut self.unsynced.sealed),
            directory,
            end: self.end(),
            checkpoint,
        }
    }

    /// Applies the outcome of a sync: on success everything it covered is durable, on failure the
    /// log is poisoned.
    ///
    /// - Errors: after a shortage the log is as it was before the sync began, and needs another
    ///   one.
    pub fn finish_sync(&mut self, job: SyncJob, result: io::Result<()>) -> Result<Bound, LogError> {
        self.unsynced.in_flight = false;
        match result {
            Ok(()) => {}
            Err(error) if is_shortage(&error) => {
                self.put_back_sync(job);
                return Err(LogError::io("sync", &self.directory, error));
            }
            Err(error) => {
                return Err(self.poison_with(format!("sync of {} failed: {error}", self.directory.display())));
            }
        }
        if let Some(reason) = &self.poison {
            return Err(LogError::Poisoned {
                reason: Arc::clone(reason),
            });
        }
        self.durable = job.end;
        self.active.written_back = self.active.written_back.max(match job.end.position {
            Some(end) if end.segment_base_offset == self.active.segment.base_offset => end.position,
            _ => 0,
        });
        if let Some(checkpoint) = job.checkpoint {
            self.checkpoints.ready = Some(checkpoint);
        }
        Ok(self.durable)
    }

    /// Merges a sync that could not even begin into the next one. A part of it may be synced twice.
    fn put_back_sync(&mut self, job: SyncJob) {
        self.unsynced.sealed.splice(0..0, job.sealed);
        self.unsynced.directory |= job.directory.is_some();
        if let Some(checkpoint) = job.checkpoint {
            self.put_back_checkpoint(*checkpoint);
            self.checkpoints.wanted = true;
        }
    }

    /// The bytes that recovery would have to read after a crash now.
    pub fn bytes_behind_recovery_point(&self) -> u64 {
        self.appended_bytes
            .saturating_add_signed(-self.recovery_point_bytes)
    }

    /// Requests a checkpoint. It is captured at the next sync (at once if everything is already
    /// durable) and handed out by `take_checkpoint` after that sync has succeeded.
    pub fn request_checkpoint(&mut self) {
        if self.recovery_point == self.end_offset && self.checkpoints.sealed.is_empty() {
            return;
        }
        self.checkpoints.wanted = true;
        let idle = !self.unsynced.in_flight && self.durable.offset == self.end_offset;
        if idle && self.poison.is_none() && self.checkpoints.ready.is_none() {
            self.checkpoints.ready = self.capture_checkpoint();
        }
    }

    pub(crate) fn capture_checkpoint(&mut self) -> Option<Box<CheckpointJob>> {
        if !self.checkpoints.wanted || self.checkpoints.in_flight || self.checkpoints.ready.is_some() {
            return None;
        }
        self.checkpoints.wanted = false;
        let mut segments: Vec<IndexWrite> = self
            .checkpoints
            .sealed
            .drain(..)
            .map(|segment| IndexWrite::of(&segment, true))
            .collect();
        segments.push(IndexWrite::of(&self.active.segment, false));
        let mut snapshots = std::mem::take(&mut self.checkpoints.snapshots);
        // A snapshot that was put back may be there twice: another one is taken when a segment is
        // closed at the same offset.
        snapshots.sort_by_key(|(offset, _)| *offset);
        snapshots.dedup_by_key(|(offset, _)| *offset);
        let has_snapshot = snapshots
            .last()
            .is_some_and(|(offset, _)| *offset == self.end_offset)
            || self.checkpoints.last_snapshot == Some(self.end_offset);
        if !has_snapshot {
            snapshots.push((self.end_offset, self.producers.encode_snapshot()));
        }
        let mut stale_snapshots = std::mem::take(&mut self.checkpoints.stale_snapshots);
        if let Some(last) = self.checkpoints.last_snapshot.replace(self.end_offset)
            && last != self.end_offset
            && !self.is_segment_base(last)
        {
            stale_snapshots.push(last);
        }
        Some(Box::new(CheckpointJob {
            disk: Arc::clone(&self.disk),
            directory: Arc::clone(&self.directory),
            segments,
            snapshots,
            stale_snapshots,
            leader_epochs: self.has_new_epochs().then(|| self.leader_epochs.clone()),
            recovery_point: self.end_offset,
            appended_bytes: self.appended_bytes,
        }))
    }

    /// Whether the leader epoch file lacks an epoch that has records. An epoch without records is
    /// not worth a write: the next process that opens the log leads in an epoch of its own.
    pub(crate) fn has_new_epochs(&self) -> bool {
        let with_records = |epochs: &LeaderEpochs| {
            let entries = epochs.entries();
            let count = entries.partition_point(|entry| entry.start_offset < self.end_offset);
            entries[..count].to_vec()
        };
        with_records(&self.leader_epochs) != with_records(&self.stored_epochs)
    }

    fn is_segment_base(&self, offset: i64) -> bool {
        let state = self.reader.state();
        state
            .segments
            .binary_search_by_key(&offset, |segment| segment.base_offset)
            .is_ok()
    }

    /// Takes the checkpoint that is ready to be written, if any. Run it without the partition's
    /// lock.
    pub fn take_checkpoint(&mut self) -> Option<CheckpointJob> {
        let job = self.checkpoints.ready.take()?;
        self.checkpoints.in_flight = true;
        Some(*job)
    }

    /// Applies the outcome of a checkpoint; returns the new recovery point for
    /// `recovery-point-offset-checkpoint`.
    pub fn finish_checkpoint(
        &mut self,
        job: CheckpointJob,
        result: Result<(), LogError>,
    ) -> Result<i64, LogError> {
        self.checkpoints.in_flight = false;
        if let Err(error) = result {
            self.put_back_checkpoint(job);
            return Err(error);
        }
        job.segments.iter().for_each(IndexWrite::finish);
        if let Some(epochs) = job.leader_epochs {
            self.stored_epochs = epochs;
        }
        if job.recovery_point >= self.recovery_point {
            self.recovery_point = job.recovery_point;
            self.recovery_point_bytes = i64::try_from(job.appended_bytes).expect("a disk has fewer bytes");
        }
        Ok(self.recovery_point)
    }

    /// Puts back a checkpoint that failed: the next one writes the same entries again, at the price
    /// of memory and recovery time.
    pub(crate) fn put_back_checkpoint(&mut self, job: CheckpointJob) {
        let sealed = job
            .segments
            .into_iter()
            .filter(|write| write.sealed_bytes.is_some());
        let active_base = self.active.segment.base_offset;
        self.checkpoints.sealed.extend(
            sealed
                .map(|write| write.segment)
                .filter(|segment| segment.base_offset != active_base),
        );
        self.checkpoints.snapshots.splice(0..0, job.snapshots);
        self.checkpoints.stale_snapshots.extend(job.stale_snapshots);
    }

    /// Whether `take_checkpoint` would return one.
    pub fn has_checkpoint_ready(&self) -> bool {
        self.checkpoints.ready.is_some()
    }

    /// Whether a checkpoint has been requested and waits for a sync.
    pub fn wants_checkpoint(&self) -> bool {
        self.checkpoints.wanted && !self.checkpoints.in_flight && self.checkpoints.ready.is_none()
    }

    /// Whether `begin_writeback` would find something to do.
    pub fn wants_writeback(&self) -> bool {
        self.active.position / PAGE_BYTES * PAGE_BYTES >= self.active.written_back + WRITEBACK_BYTES
    }

    /// Returns dirty pages worth handing to the device now; never the last page, which the next
    /// append changes.
    pub fn begin_writeback(&mut self) -> Option<WritebackJob> {
        let active = &mut self.active;
        let full_pages = active.position / PAGE_BYTES * PAGE_BYTES;
        if full_pages < active.written_back + WRITEBACK_BYTES {
            return None;
        }
        let position = std::mem::replace(&mut active.written_back, full_pages);
        Some(WritebackJob {
            file: Arc::clone(&active.segment.file),
            position,
            bytes: full_pages - position,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ottla_wire::primitives::Uuid;
    use ottla_wire::records::batch::Batch;
    use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

    use super::*;
    use crate::config::LogConfig;
    use crate::disk::memory::MemoryDisk;
    use crate::partition_log::BatchToAppend;

    fn created(disk: &MemoryDisk, segment_bytes: u32) -> PartitionLog {
        let config = LogConfig {
            segment_bytes,
            ..LogConfig::default()
        };
        let path = Path::new("topic-0");
        PartitionLog::create(disk.shared(), path, Uuid([1; 16]), config, 0, 0).expect("created")
    }

    /// Appends a batch of this length.
    fn append(log: &mut PartitionLog, bytes: usize) {
        let build = |value_bytes: usize| {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(0, None, Some(&vec![b'v'; value_bytes]), &[]);
            builder.finish()
        };
        let built = (bytes - 80..bytes).map(build).find(|batch| batch.len() == bytes);
        let built = built.expect("some value has the right length");
        let batch = BatchToAppend::from(Batch::parse(&built).expect("built"));
        log.append(&[batch], 0, 0).expect("appended");
    }

    fn append_pages(log: &mut PartitionLog, count: u64) {
        (0..count).for_each(|_| append(log, PAGE_BYTES as usize));
    }

    /// Takes what is to be written back: position and bytes.
    fn taken(log: &mut PartitionLog) -> Option<(u64, u64)> {
        let wanted = log.wants_writeback();
        let job = log.begin_writeback();
        assert_eq!(job.is_some(), wanted);
        job.map(|job| {
            job.run().expect("there is power");
            (job.position, job.bytes)
        })
    }

    #[test]
    fn full_pages_are_written_back_a_mebibyte_at_a_time() {
        let mut log = created(&MemoryDisk::new(1), 1 << 30);
        append_pages(&mut log, 255);
        append(&mut log, PAGE_BYTES as usize - 1);
        assert_eq!(taken(&mut log), None, "the last page is not full");
        append(&mut log, 101);
        assert_eq!(taken(&mut log), Some((0, WRITEBACK_BYTES)));
        append_pages(&mut log, 255);
        assert_eq!(taken(&mut log), None);
        append_pages(&mut log, 3);
        let bytes = WRITEBACK_BYTES + 2 * PAGE_BYTES;
        assert_eq!(taken(&mut log), Some((WRITEBACK_BYTES, bytes)));
        assert_eq!(taken(&mut log), None);
    }

    #[test]
    fn what_a_sync_has_written_is_not_written_back() {
        let mut log = created(&MemoryDisk::new(1), 300 * PAGE_BYTES as u32);
        append_pages(&mut log, 280);
        let job = log.begin_sync().expect("something to sync");
        let result = job.run();
        log.finish_sync(job, result).expect("synced");
        assert_eq!(taken(&mut log), None);
        // A sync that began in the segment before does not count.
        append_pages(&mut log, 19);
        let job = log.begin_sync().expect("something to sync");
        append_pages(&mut log, 257);
        assert_eq!(log.active.position, 256 * PAGE_BYTES, "in the next segment");
        let result = job.run();
        log.finish_sync(job, result).expect("synced");
        assert_eq!(taken(&mut log), Some((0, WRITEBACK_BYTES)));
    }

    #[test]
    fn an_error_of_the_device_is_reported_by_a_write_back() {
        let disk = MemoryDisk::new(1);
        let mut log = created(&disk, 1 << 30);
        append_pages(&mut log, 256);
        let job = log.begin_writeback().expect("a full mebibyte");
        disk.power_cut();
        job.run().expect_err("the file is gone");
    }
}
