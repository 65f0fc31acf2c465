//! What no request waits for: retention, compaction, checkpoints, silent producers, deleted topics. One call a second on the maintenance thread.

use std::sync::Arc;

use ottla_log::{LogError, SegmentRemoval};
use tracing::warn;

use crate::node::Node;
use crate::partition::Partition;
use crate::time::{Moment, Timestamp};

/// When each kind of work was done last, and what is left to do.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    checkpoint: Moment,
    retention: Moment,
    cleaning: Moment,
    producers: Moment,
    tails: Moment,
    removals: Vec<SegmentRemoval>,
}

/// How often the last page of every log is looked at: the kernel keeps for minutes what is used that often.
const TAIL_INTERVAL_MS: i64 = 10_000;

/// After a crash about this many bytes of a partition are read again at most.
const RECOVERY_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl Maintenance {
    pub(crate) fn run(&mut self, node: &Node) {
        let (now, timestamp) = (node.clock.moment(), node.clock.timestamp());
        let storage = &node.config.storage;
        node.look_at_disk();
        let partitions = node.partitions.all();
        let all_are_due = is_due(
            &mut self.checkpoint,
            now,
            storage.recovery_point_checkpoint_interval_ms,
        );
        if is_due(&mut self.tails, now, TAIL_INTERVAL_MS) {
            partitions.iter().for_each(|partition| keep_tail(partition));
        }
        let mut moved = false;
        for partition in &partitions {
            let behind = partition.with_log(|log| log.bytes_behind_recovery_point());
            if behind > RECOVERY_BYTES_MAX || (all_are_due && behind > 0) {
                moved |= partition.run_checkpoint(node);
            }
        }
        if moved && let Err(error) = node.write_checkpoints() {
            warn!(%error, "cannot write the offset checkpoints");
        }
        if is_due(
            &mut self.producers,
            now,
            i64::from(storage.producer_id_expiration_check_interval_ms),
        ) {
            for partition in &partitions {
                partition.with_log(|log| log.expire_producers(timestamp.0));
            }
        }
        if is_due(&mut self.retention, now, storage.retention_check_interval_ms) {
            self.retain(node, &partitions, timestamp);
        }
        if storage.cleaner_enabled && is_due(&mut self.cleaning, now, storage.cleaner_backoff_ms) {
            let map_bytes_max = usize::try_from(storage.cleaner_dedupe_buffer_bytes).unwrap_or(usize::MAX);
            for partition in &partitions {
                if let Err(error) = compact(partition, timestamp, map_bytes_max) {
                    let (topic, index) = (&*partition.topic, partition.index);
                    warn!(topic, partition = index, %error, "compaction failed");
                }
            }
        }
        self.removals.retain(|removal| {
            let is_due = timestamp.0 >= removal.purge_at_ms;
            if is_due && let Err(error) = removal.purge() {
                warn!(%error, "cannot remove the files of old segments");
            }
            !is_due
        });
        node.partitions.remove_deleted(&*node.disk, timestamp);
    }

    fn retain(&mut self, node: &Node, partitions: &[Arc<Partition>], now: Timestamp) {
        let mut planned = Vec::new();
        for partition in partitions {
            match forget_old_segments(partition, now) {
                Ok(removal) => planned.extend(removal),
                Err(error) => {
                    let (topic, index) = (&*partition.topic, partition.index);
                    warn!(topic, partition = index, %error, "cannot remove old segments");
                }
            }
        }
        if planned.is_empty() {
            return;
        }
        // The checkpoint of log starts comes before the files go: segments that are missing above it were lost.
        if let Err(error) = node.write_log_starts() {
            warn!(%error, "cannot write where logs start; old segments are removed all the same");
            if let Err(error) = node.log_directory.unsign() {
                return warn!(%error, "old segments stay until the next start");
            }
        }
        for mut removal in planned {
            match removal.rename() {
                Ok(()) => self.removals.push(removal),
                Err(error) => warn!(%error, "cannot remove old segments"),
            }
        }
    }
}

/// Keeps the half-filled page at the end of a log in the page cache. Where it is missing, the kernel reads it back from the
/// device in the middle of the next append, and with it waits the event loop that appends.
fn keep_tail(partition: &Partition) {
    if let Some(page) = partition.with_log(|log| log.unfilled_page())
        && let Err(error) = page.file.read_at(&mut [0], page.position)
    {
        warn!(topic = &*partition.topic, partition = partition.index, %error, "cannot read the end of a log");
    }
}

fn forget_old_segments(partition: &Partition, now: Timestamp) -> Result<Option<SegmentRemoval>, LogError> {
    let view = partition.view();
    // Read without the partition's lock; what cannot be read keeps its segment.
    if let Err(error) = view.reader.load_timestamps() {
        warn!(topic = &*partition.topic, partition = partition.index, %error, "cannot read timestamps for retention");
    }
    partition.with_log(|log| log.retain(now.0, view.offsets.high_watermark))
}

/// One round of compaction, if it is due: see `ottla_log::CompactionJob`.
fn compact(partition: &Partition, now: Timestamp, map_bytes_max: usize) -> Result<(), LogError> {
    if !partition.with_log(|log| log.config().compact) {
        return Ok(());
    }
    let view = partition.view();
    if let Err(error) = view.reader.load_timestamps() {
        warn!(topic = &*partition.topic, partition = partition.index, %error, "cannot read timestamps for compaction");
    }
    let (first_dirty, high_watermark) = (partition.first_dirty_offset(), view.offsets.high_watermark);
    let Some(mut job) = partition.with_log(|log| log.plan_compaction(now.0, first_dirty, high_watermark))
    else {
        return Ok(());
    };
    let outcome = job.run(map_bytes_max).and_then(|()| {
        let is_installed = partition.with_log(|log| log.install_compaction(&job));
        if is_installed {
            return job.replace_files();
        }
        // The log was truncated meanwhile: what was written belongs to records that are gone.
        job.discard()
    });
    let next_dirty = partition.with_log(|log| log.finish_compaction(job));
    if outcome.is_ok() {
        partition.set_first_dirty_offset(next_dirty);
    }
    outcome
}

/// True when `interval_ms` have passed; then the next turn counts from now.
fn is_due(last: &mut Moment, now: Moment, interval_ms: i64) -> bool {
    let interval = u64::try_from(interval_ms).unwrap_or(0) * 1_000;
    let is_due = now.micros_since(*last) >= interval;
    if is_due {
        *last = now;
    }
    is_due
}
