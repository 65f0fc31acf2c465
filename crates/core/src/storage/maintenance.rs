//! Background work: retention, compaction, checkpoints, expiry of producers, removal of deleted
//! topics. Runs once a second on the maintenance thread.
//!
//! What fails again and again is logged once, again when its error changes, and once a day. A
//! damaged log is read again for a compaction after a wait that doubles up to ten minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_log::crew::Alone;
use ottla_log::{CheckpointJob, LogError, ReadError, SegmentRemoval};
use tracing::warn;

use super::Storage;
use crate::batch_times::Key;
use crate::partition::Partition;
use crate::time::{Moment, Timestamp};

/// When each kind of work was last done, the removals that are left, and what fails.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    checkpoint: Moment,
    retention: Moment,
    cleaning: Moment,
    producers: Moment,
    tails: Moment,
    removals: Vec<(Arc<Partition>, SegmentRemoval)>,
    failures: Failures,
}

/// How often the last page of every log is touched: pages used this often stay in the page cache
/// for minutes.
const TAIL_INTERVAL_MS: i64 = 10_000;

/// `log.cleaner.backoff.ms`, also as set at run time: how long compaction rests.
pub fn cleaner_backoff_ms(storage: &Storage) -> i64 {
    let of_file = storage.config.storage.cleaner_backoff_ms;
    storage.image().live_number("log.cleaner.backoff.ms", of_file)
}

/// Upper bound, approximately, of the bytes of a partition that are read again after a crash.
const RECOVERY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// At most this many checkpoints are made durable together; they are kept in memory until then.
const CHECKPOINTS_TOGETHER_MAX: usize = 1_024;

/// How often a failure that lasts is logged.
const REMINDER_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// A damaged log is read again for a compaction after the first number, then after twice as long
/// each time, up to the second one: retention may have removed the damage.
const RETRY_MS_MIN: u64 = 30 * 1_000;
const RETRY_MS_MAX: u64 = 10 * 60 * 1_000;

/// Work on a partition that may fail again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Compaction,
    CompactionTimes,
    RetentionTimes,
}

/// The work that failed the last time that it was done.
#[derive(Debug, Default)]
struct Failures {
    known: BTreeMap<(Key, Work), Failure>,
}

#[derive(Debug)]
struct Failure {
    error: String,
    failed: Moment,
    logged: Moment,
    /// How long a compaction waits. Only damage lasts.
    wait_ms: u64,
}

impl Failures {
    /// Notes how work ended; true if its error is to be logged.
    fn note(&mut self, key: Key, work: Work, outcome: Result<(), &ReadError>, now: Moment) -> bool {
        let Err(error) = outcome else {
            self.known.remove(&(key, work));
            return false;
        };
        let is_damage = matches!(error, ReadError::Log(LogError::Corrupt { .. }));
        let error = error.to_string();
        let before = self
            .known
            .get(&(key, work))
            .filter(|before| before.error == error);
        let logged = before.map(|before| before.logged);
        let logged = logged.filter(|logged| now.micros_since(*logged) < REMINDER_MICROS);
        let wait_ms = match before {
            _ if !is_damage => 0,
            None => RETRY_MS_MIN,
            Some(before) => (2 * before.wait_ms).min(RETRY_MS_MAX),
        };
        let failure = Failure {
            error,
            failed: now,
            logged: logged.unwrap_or(now),
            wait_ms,
        };
        self.known.insert((key, work), failure);
        logged.is_none()
    }

    /// Forgets partitions that are gone.
    fn keep(&mut self, partitions: &[Arc<Partition>]) {
        if !self.known.is_empty() {
            let there: BTreeSet<Key> = partitions.iter().map(|partition| partition.key()).collect();
            self.known.retain(|(key, _), _| there.contains(key));
        }
    }

    /// Whether the partition's log is damaged and was read for a compaction not long ago.
    fn is_waiting(&self, key: Key, now: Moment) -> bool {
        [Work::Compaction, Work::CompactionTimes].iter().any(|work| {
            let failure = self.known.get(&(key, *work));
            failure.is_some_and(|failure| now.ms_since(failure.failed) < failure.wait_ms)
        })
    }
}

impl Maintenance {
    pub(crate) fn run(&mut self, storage: &Storage) {
        let services = &storage.services;
        let (now, timestamp) = (services.clock.moment(), services.clock.timestamp());
        let config = &storage.config.storage;
        storage.look_at_disk();
        let partitions = storage.partitions.all();
        if is_due(&mut self.tails, now, TAIL_INTERVAL_MS) {
            while_running(storage, &partitions, keep_tail);
        }
        let all_are_due = is_due(
            &mut self.checkpoint,
            now,
            config.recovery_point_checkpoint_interval_ms,
        );
        write_checkpoints(storage, &partitions, |partition| {
            partition.with_log(|log| {
                let behind = log.bytes_behind_recovery_point();
                behind > RECOVERY_BYTES_MAX || (all_are_due && behind > 0) || log.has_checkpoint_ready()
            })
        });
        let producers_ms = i64::from(config.producer_id_expiration_check_interval_ms);
        if is_due(&mut self.producers, now, producers_ms) {
            for partition in &partitions {
                partition.with_log(|log| log.expire_producers(timestamp.0));
            }
        }
        if is_due(&mut self.retention, now, config.retention_check_interval_ms) {
            self.failures.keep(&partitions);
            self.retain(storage, &partitions, now, timestamp);
        }
        if config.cleaner_enabled
            && is_due(&mut self.cleaning, now, cleaner_backoff_ms(storage))
            && self.clean(storage, &partitions, now, timestamp)
        {
            // The rest, for which the key map had no room, need not wait for the backoff.
            self.cleaning = Moment::default();
        }
        self.remove_segments(timestamp);
        storage.partitions.remove_deleted(&*storage.disk, timestamp);
    }

    /// Retires old segments; `remove_segments` renames and removes their files.
    fn retain(
        &mut self,
        storage: &Storage,
        partitions: &[Arc<Partition>],
        now: Moment,
        timestamp: Timestamp,
    ) {
        let mut planned = Vec::new();
        while_running(storage, partitions, |partition| {
            self.load_retention_times(partition, now);
            match forget_old_segments(partition, timestamp) {
                Ok(removal) => planned.extend(removal.map(|removal| (Arc::clone(partition), removal))),
                Err(error) => {
                    let (topic, index) = (&*partition.topic, partition.index);
                    warn!(topic, partition = index, %error, "cannot remove old segments");
                }
            }
        });
        if planned.is_empty() {
            return;
        }
        // The log start checkpoint is written before the files go: a segment that is missing above
        // its log start was lost.
        if let Err(error) = storage.write_log_starts() {
            warn!(%error, "cannot write the log start offsets; old segments are removed anyway");
            if let Err(error) = storage.log_directory.unsign() {
                return warn!(%error, "old segments stay until the next start");
            }
        }
        self.removals.extend(planned);
    }

    /// Reads timestamps without the partition's lock; a segment whose timestamps cannot be read is
    /// kept.
    fn load_retention_times(&mut self, partition: &Partition, now: Moment) {
        let loaded = partition.view().reader.load_timestamps();
        let (key, outcome) = (partition.key(), loaded.as_ref().copied());
        if self.failures.note(key, Work::RetentionTimes, outcome, now)
            && let Err(error) = &loaded
        {
            let (topic, partition) = (&*partition.topic, partition.index);
            warn!(topic, partition, %error, "cannot read timestamps for retention");
        }
    }

    /// Runs one round of compaction of all logs that are due. Returns whether there was any.
    fn clean(
        &mut self,
        storage: &Storage,
        partitions: &[Arc<Partition>],
        now: Moment,
        timestamp: Timestamp,
    ) -> bool {
        let compacted: Vec<Arc<Partition>> = partitions
            .iter()
            .filter(|partition| partition.with_log(|log| log.config().compact))
            .filter(|partition| !self.failures.is_waiting(partition.key(), now))
            .cloned()
            .collect();
        for partition in &compacted {
            self.prepare_compaction(partition, now, timestamp);
        }
        // Only records below the recovery point are compacted, and it is up to a minute behind.
        write_checkpoints(storage, &compacted, |partition| {
            let (first_dirty, high_watermark) = (partition.first_dirty_offset(), partition.high_watermark());
            partition.with_log(|log| log.must_move_recovery_point(timestamp.0, first_dirty, high_watermark))
        });
        let of_file = storage.config.storage.cleaner_dedupe_buffer_bytes;
        let map_bytes_max = storage
            .image()
            .live_number("log.cleaner.dedupe.buffer.size", of_file);
        let map_bytes_max = usize::try_from(map_bytes_max).unwrap_or(usize::MAX);
        let mut was_any = false;
        while_running(storage, &compacted, |partition| {
            let compacted = compact(partition, timestamp, map_bytes_max).map_err(ReadError::Log);
            was_any |= *compacted.as_ref().unwrap_or(&false);
            let outcome = compacted.as_ref().map(|_| ());
            let is_news = self
                .failures
                .note(partition.key(), Work::Compaction, outcome, now);
            if let Err(error) = &compacted {
                if is_news {
                    let (topic, index) = (&*partition.topic, partition.index);
                    warn!(topic, partition = index, %error, "compaction failed");
                }
                partition.end_if_poisoned(&storage.services);
            }
        });
        was_any
    }

    /// Rolls a segment that has been open too long, and reads the timestamps that tell when
    /// compaction is due.
    fn prepare_compaction(&mut self, partition: &Partition, now: Moment, timestamp: Timestamp) {
        let (topic, index) = (&*partition.topic, partition.index);
        if let Err(error) = partition.with_log(|log| log.roll_if_overdue(timestamp.0)) {
            warn!(topic, partition = index, %error, "cannot begin a segment");
        }
        let first_dirty = partition.first_dirty_offset();
        let loaded = partition.view().reader.load_compaction_times(first_dirty);
        let (key, outcome) = (partition.key(), loaded.as_ref().copied());
        if self.failures.note(key, Work::CompactionTimes, outcome, now)
            && let Err(error) = &loaded
        {
            warn!(topic, partition = index, %error, "cannot read timestamps for compaction");
        }
    }

    /// Renames the files of old segments, and removes them when `file.delete.delay.ms` have passed.
    fn remove_segments(&mut self, now: Timestamp) {
        self.removals.retain_mut(|(partition, removal)| {
            // The files of a deleted topic are removed with their directory.
            let Some(_name) = partition.hold_directory_name() else {
                return false;
            };
            if !removal.is_renamed() {
                let renamed = removal.rename();
                if let Err(error) = &renamed {
                    warn!(%error, "cannot rename old segments");
                }
                // A shortage of descriptors ends, so try again; after any other error the next
                // start removes the segments.
                return !renamed.is_err_and(|error| !error.is_shortage());
            }
            let is_due = now.0 >= removal.purge_at_ms;
            if is_due && let Err(error) = removal.purge() {
                warn!(%error, "cannot remove the files of old segments");
            }
            !is_due
        });
    }
}

/// Calls `work` for each partition until the broker stops: a stop does not wait for background
/// work.
fn while_running(storage: &Storage, partitions: &[Arc<Partition>], mut work: impl FnMut(&Arc<Partition>)) {
    for partition in partitions {
        if storage.is_stopping() {
            return;
        }
        work(partition);
    }
}

/// Keeps the half-filled page at the end of a log in the page cache. On a page cache miss the
/// kernel reads it back from the device in the middle of the next append, which stalls the event
/// loop.
fn keep_tail(partition: &Arc<Partition>) {
    if let Some(page) = partition.with_log(|log| log.unfilled_page())
        && let Err(error) = page.file.keep_resident(page.position)
    {
        warn!(topic = &*partition.topic, partition = partition.index, %error, "cannot read the end of a log");
    }
}

/// Advances the recovery points of the partitions that are due.
fn write_checkpoints(storage: &Storage, partitions: &[Arc<Partition>], is_due: impl Fn(&Partition) -> bool) {
    let mut moved = false;
    let mut begun: Vec<(&Partition, CheckpointJob)> = Vec::new();
    for partition in partitions {
        if storage.is_stopping() {
            break;
        }
        if is_due(partition)
            && let Some(job) = partition.begin_checkpoint(&storage.services)
        {
            begun.push((partition, job));
        }
        if begun.len() == CHECKPOINTS_TOGETHER_MAX {
            moved |= finish_checkpoints(storage, std::mem::take(&mut begun));
        }
    }
    moved |= finish_checkpoints(storage, begun);
    if moved && let Err(error) = storage.write_checkpoints() {
        warn!(%error, "cannot write the offset checkpoints");
    }
}

fn finish_checkpoints(storage: &Storage, mut begun: Vec<(&Partition, CheckpointJob)>) -> bool {
    let mut names = Vec::with_capacity(begun.len());
    begun.retain(|(partition, _)| {
        let name = partition.hold_directory_name();
        let is_held = name.is_some();
        names.extend(name);
        is_held
    });
    let (partitions, jobs): (Vec<&Partition>, Vec<CheckpointJob>) = begun.into_iter().unzip();
    let results = CheckpointJob::run_all(&*storage.disk, &jobs, &Alone);
    let mut moved = false;
    for ((partition, job), result) in partitions.iter().zip(jobs).zip(results) {
        moved |= partition.finish_checkpoint(job, result);
    }
    moved
}

fn forget_old_segments(partition: &Partition, now: Timestamp) -> Result<Option<SegmentRemoval>, LogError> {
    let high_watermark = partition.view().offsets.high_watermark;
    partition.with_log(|log| log.retain(now.0, high_watermark))
}

/// Runs one round of compaction, if due: see `ottla_log::CompactionJob`. Returns whether it ran.
fn compact(partition: &Partition, now: Timestamp, map_bytes_max: usize) -> Result<bool, LogError> {
    let (first_dirty, high_watermark) = (partition.first_dirty_offset(), partition.high_watermark());
    let Some(mut job) = partition.with_log(|log| log.plan_compaction(now.0, first_dirty, high_watermark))
    else {
        return Ok(false);
    };
    let outcome = job.run(map_bytes_max).and_then(|()| {
        let Some(_name) = partition.hold_directory_name() else {
            return Ok(());
        };
        partition.with_log(|log| log.install_compaction(&job));
        job.replace_files()
    });
    let next_dirty = partition.with_log(|log| log.finish_compaction(job));
    if outcome.is_ok() {
        partition.set_first_dirty_offset(next_dirty);
    }
    outcome.map(|()| true)
}

/// True when `interval_ms` have passed; the interval then restarts at `now`.
fn is_due(last: &mut Moment, now: Moment, interval_ms: i64) -> bool {
    let interval = u64::try_from(interval_ms).unwrap_or(0) * 1_000;
    let is_due = now.micros_since(*last) >= interval;
    if is_due {
        *last = now;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ottla_wire::primitives::Uuid;

    use super::*;

    const SECOND_MICROS: u64 = 1_000_000;

    fn damage(position: u64) -> ReadError {
        ReadError::Log(LogError::corrupt(Path::new("1.log"), position, "wrong"))
    }

    fn full() -> ReadError {
        ReadError::Log(LogError::NoSpace {
            path: "1.log".into(),
            needed_bytes: 5,
        })
    }

    fn after(seconds: u64) -> Moment {
        Moment::from_micros(seconds * SECOND_MICROS)
    }

    #[test]
    fn a_failure_is_logged_when_it_begins_or_changes_and_once_a_day() {
        let mut failures = Failures::default();
        let mut is_logged = |index, outcome: Result<(), ReadError>, seconds| {
            let key = (Uuid([1; 16]), index);
            failures.note(key, Work::Compaction, outcome.as_ref().copied(), after(seconds))
        };
        assert!(is_logged(0, Err(damage(7)), 0));
        assert!(!is_logged(0, Err(damage(7)), 600));
        assert!(is_logged(1, Err(damage(7)), 600), "another partition");
        assert!(is_logged(0, Err(damage(9)), 900), "another place");
        assert!(!is_logged(0, Err(damage(9)), 900 + 86_399));
        assert!(is_logged(0, Err(damage(9)), 900 + 86_400));
        assert!(!is_logged(0, Err(damage(9)), 900 + 86_401));
        assert!(!is_logged(0, Ok(()), 100_000));
        assert!(is_logged(0, Err(damage(9)), 100_001), "again after a success");
    }

    #[test]
    fn a_damaged_log_is_compacted_again_after_longer_and_longer_waits_and_a_full_disk_after_none() {
        let key = (Uuid([1; 16]), 0);
        let mut failures = Failures::default();
        let mut now = 0;
        for wait in [30, 60, 120, 240, 480, 600, 600] {
            failures.note(key, Work::Compaction, Err(&damage(7)), after(now));
            assert!(failures.is_waiting(key, after(now + wait - 1)), "{wait}");
            now += wait;
            assert!(!failures.is_waiting(key, after(now)), "{wait}");
        }
        failures.note(key, Work::Compaction, Err(&full()), after(now));
        assert!(!failures.is_waiting(key, after(now)));
        // What is damaged for retention may be compacted, and the other way round.
        failures.note(key, Work::RetentionTimes, Err(&damage(7)), after(now));
        assert!(!failures.is_waiting(key, after(now)));
        failures.note(key, Work::CompactionTimes, Err(&damage(7)), after(now));
        assert!(failures.is_waiting(key, after(now)));
        failures.note(key, Work::CompactionTimes, Ok(()), after(now));
        assert!(!failures.is_waiting(key, after(now)));
    }
}
