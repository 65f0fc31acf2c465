//! Life of a produce, between 5 and 6: one sync makes durable everything appended before it began.

use std::io;
use std::sync::Arc;

use ottla_log::{SyncJob, WritebackJob};
use tracing::warn;

use super::{Partition, SyncState, wake};
use crate::config::Durability;
use crate::node::Node;

/// A group commit under way: begun, run, finished. The partition may change in any way between
/// these steps.
#[derive(Debug)]
pub struct GroupCommit {
    partition: Arc<Partition>,
    /// Bytes appended when it began.
    appended_bytes: u64,
    job: Option<SyncJob>,
    writeback: Option<WritebackJob>,
    result: Option<io::Result<()>>,
}

impl GroupCommit {
    /// Syncs. Waits for the disk.
    pub fn run(&mut self) {
        if let Some(writeback) = self.writeback.take()
            && let Err(error) = writeback.run()
        {
            // Only a hint failed; the next sync will report the error.
            let (topic, partition) = (&*self.partition.topic, self.partition.index);
            warn!(topic, partition, %error, "write-back failed");
        }
        self.result = self.job.as_ref().map(|job| job.run());
    }

    /// Publishes what is durable now, and begins the next commit if more was appended meanwhile.
    pub fn finish(self, node: &Node) {
        let partition = self.partition;
        let mut state = partition.lock();
        let mut woken = Vec::new();
        if let (Some(job), Some(result)) = (self.job, self.result) {
            match state.log.finish_sync(job, result) {
                Ok(durable) if partition.durability == Durability::Disk => {
                    woken = partition.move_high_watermark(&mut state, durable, self.appended_bytes);
                }
                Ok(_) => {}
                Err(error) if error.is_shortage() => node.partitions.note_unsynced(&partition, node, &error),
                Err(_) => woken = partition.fail_if_poisoned(node, &mut state),
            }
        }
        let again = state.sync == SyncState::Running { again: true };
        state.sync = if again {
            SyncState::Requested
        } else {
            SyncState::Idle
        };
        drop(state);
        if node.batch_times.is_on() {
            node.batch_times
                .moved(&partition, partition.high_watermark(), node.clock.moment());
        }
        wake(woken);
        if again {
            node.executor().sync(partition);
        }
    }
}

impl Partition {
    /// Begins a group commit; called on a sync thread after `Executor::sync`.
    pub fn begin_commit(self: &Arc<Self>) -> GroupCommit {
        let mut state = self.lock();
        state.sync = SyncState::Running { again: false };
        let syncs = self.durability == Durability::Disk || state.log.wants_checkpoint();
        GroupCommit {
            partition: self.clone(),
            appended_bytes: state.appended_bytes,
            job: if syncs { state.log.begin_sync() } else { None },
            writeback: if syncs { None } else { state.log.begin_writeback() },
            result: None,
        }
    }
}
