//! Closes logs so that their directories open without recovery; many at once when a broker stops.
//!
//! Like a sync: begun under a partition's lock, run without it, finished under it again.

use std::sync::Arc;

use crate::crew::{Alone, Crew};
use crate::disk::Disk;
use crate::error::LogError;
use crate::partition_log::PartitionLog;
use crate::sync::{CheckpointJob, SyncJob, run_together};

/// What must be written and synced to close a log.
#[derive(Debug)]
pub struct CloseJob {
    sync: Option<SyncJob>,
    checkpoint: CheckpointJob,
}

impl PartitionLog {
    /// Returns the work left for a log that is no longer appended to; `None` if its files are up to
    /// date.
    ///
    /// - Errors: the log is poisoned, so its contents are not what was acknowledged.
    pub fn begin_close(&mut self) -> Result<Option<CloseJob>, LogError> {
        if let Some(reason) = &self.poison {
            return Err(LogError::Poisoned {
                reason: Arc::clone(reason),
            });
        }
        // A checkpoint captured earlier may be outdated.
        if let Some(job) = self.checkpoints.ready.take() {
            self.put_back_checkpoint(*job);
        }
        self.active.progress.finish(&self.active.segment);
        if self.is_settled() {
            return Ok(None);
        }
        self.checkpoints.wanted = true;
        let mut checkpoint = self
            .capture_checkpoint()
            .expect("none is in flight and one is wanted");
        for write in &mut checkpoint.segments {
            write.sealed_bytes = Some(write.segment.bytes());
        }
        Ok(Some(CloseJob {
            sync: (!self.is_durable()).then(|| self.begin_sync_with(None)),
            checkpoint: *checkpoint,
        }))
    }

    /// Applies the outcome; returns the offset for `recovery-point-offset-checkpoint`.
    pub fn finish_close(&mut self, job: CloseJob, result: Result<(), LogError>) -> Result<i64, LogError> {
        let synced = job.sync.map(|sync| {
            let synced = result.as_ref().copied().map_err(LogError::as_io);
            self.finish_sync(sync, synced)
        });
        let recovery_point = self.finish_checkpoint(job.checkpoint, result)?;
        self.active.is_trimmed = true;
        synced.transpose()?;
        Ok(recovery_point)
    }

    /// Makes everything durable and leaves a directory that opens without recovery. Waits for the
    /// device.
    pub fn close(&mut self) -> Result<i64, LogError> {
        let Some(job) = self.begin_close()? else {
            return Ok(self.recovery_point);
        };
        let disk = Arc::clone(&self.disk);
        let result = CloseJob::run_all(&*disk, std::slice::from_ref(&job), &Alone);
        self.finish_close(job, result)
    }

    fn is_durable(&self) -> bool {
        self.durable.offset == self.end_offset && !self.unsynced.directory
    }

    /// Whether nothing has been written since the last checkpoint or clean stop.
    fn is_settled(&self) -> bool {
        self.is_durable()
            && self.recovery_point == self.end_offset
            && self.checkpoints.sealed.is_empty()
            && self.checkpoints.snapshots.is_empty()
            && self.checkpoints.stale_snapshots.is_empty()
            && self.active.is_trimmed
            && self.active.segment.indexes().are_written()
            && !self.has_new_epochs()
            // Without a snapshot the next start would read the log to rebuild the producer state.
            && (self.checkpoints.last_snapshot == Some(self.end_offset) || self.start_offset == self.end_offset)
    }
}

impl CloseJob {
    /// Writes for all of them, then syncs everything together. Waits for the device.
    ///
    /// - Errors: the first error of any of them; none is closed then.
    pub fn run_all(disk: &dyn Disk, jobs: &[CloseJob], crew: &dyn Crew) -> Result<(), LogError> {
        let checkpoints: Vec<&CheckpointJob> = jobs.iter().map(|job| &job.checkpoint).collect();
        let syncs: Vec<&SyncJob> = jobs.iter().filter_map(|job| job.sync.as_ref()).collect();
        run_together(disk, &checkpoints, &syncs, crew)
    }
}
