//! Life of a produce, between 5 and 6: one sync makes durable everything appended before it began.

use std::io;
use std::sync::Arc;

use ottla_log::{LogError, SyncJob, Visible, WritebackJob};
use tracing::warn;

use super::{Partition, SyncState, wake};
use crate::config::Durability;
use crate::services::{Commit, Services, Syncable};

/// A group commit under way: begun, run, finished. The partition may change in any way between
/// these steps.
#[derive(Debug)]
struct GroupCommit {
    partition: Arc<Partition>,
    /// Bytes appended when it began.
    appended_bytes: u64,
    job: Option<SyncJob>,
    writeback: Option<WritebackJob>,
    result: Option<io::Result<()>>,
}

impl Commit for GroupCommit {
    /// With `Durability::PageCache` only starts write-back, unless a checkpoint asked for a sync.
    fn run(&mut self) {
        let partition = Arc::clone(&self.partition);
        // A sync creates the files of segments that were begun since the last one.
        let Some(_name) = partition.hold_directory_name() else {
            return;
        };
        if let Some(writeback) = self.writeback.take()
            && let Err(error) = writeback.run()
        {
            // Only a hint failed; the next sync will report the error.
            let (topic, partition) = (&*self.partition.topic, self.partition.index);
            warn!(topic, partition, %error, "write-back failed");
        }
        self.result = self.job.as_ref().map(|job| job.run());
    }

    fn finish(self: Box<Self>, services: &Services) {
        let partition = self.partition;
        let mut state = partition.lock();
        let mut woken = Vec::new();
        if let (Some(job), Some(result)) = (self.job, self.result) {
            match state.log.finish_sync(job, result) {
                Ok(durable) if partition.durability == Durability::Disk => {
                    let visible = Visible {
                        bound: durable,
                        bytes: self.appended_bytes,
                    };
                    woken = partition.move_high_watermark(&mut state, visible);
                }
                Ok(_) => {}
                Err(error) if error.is_shortage() => partition.put_off_sync(services, &error),
                Err(_) => woken = partition.fail_if_poisoned(services, &mut state),
            }
        }
        let again = state.sync == SyncState::Running { again: true };
        state.sync = if again {
            SyncState::Requested
        } else {
            SyncState::Idle
        };
        drop(state);
        if services.batch_times.is_on() {
            let now = services.clock.moment();
            services
                .batch_times
                .moved(partition.key(), partition.high_watermark(), now);
        }
        wake(woken);
        if again {
            services.executor().sync(partition);
        }
    }
}

impl Syncable for Partition {
    fn request_sync(self: Arc<Self>, services: &Services) {
        if self.lock().sync.request() {
            services.executor().sync(self);
        }
    }

    fn begin_commit(self: Arc<Self>) -> Box<dyn Commit> {
        let mut state = self.lock();
        state.sync = SyncState::Running { again: false };
        let syncs = self.durability == Durability::Disk || state.log.wants_checkpoint();
        let commit = GroupCommit {
            partition: self.clone(),
            appended_bytes: state.appended_bytes,
            job: if syncs { state.log.begin_sync() } else { None },
            writeback: if syncs { None } else { state.log.begin_writeback() },
            result: None,
        };
        drop(state);
        Box::new(commit)
    }
}

impl Partition {
    /// Postpones a sync that found no descriptor; the next sync covers it.
    fn put_off_sync(self: &Arc<Self>, services: &Services, error: &LogError) {
        let sync: Arc<dyn Syncable> = self.clone();
        services.put_off(Arc::downgrade(&sync));
        if let Some(suppressed) = services.complaints.lacks.pass(services.clock.moment()) {
            let (topic, partition) = (&*self.topic, self.index);
            warn!(topic, partition, %error, suppressed, "sync put off");
        }
    }
}
