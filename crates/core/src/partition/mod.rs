//! Life of a produce, 4 of 6. Before: handlers/produce.rs. After: log/src/partition_log.rs.
//! Life of a fetch, 4 of 6. Before: fetch/read.rs. After: log/src/reader.rs.
//!
//! One partition: appends under its lock, moves the high watermark, wakes its waiters.
//!
//! The lock is held for an append to memory or the page cache, never across a sync or a disk read.

mod directory_name;
mod group_commit;
mod traffic;
mod transactions;
mod unreadable;
mod waiters;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use ottla_log::{AppendError, CheckpointJob, LogError};
use ottla_log::{BatchToAppend, PartitionLog};
use ottla_log::{Bound, LogReader, Origin, Visible};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch;
use tracing::{error, warn};

use crate::batch_times::{BatchTimes, Key, NewBatch};
use crate::config::Durability;
use crate::services::Services;

use directory_name::{DirectoryName, HeldName};
use traffic::Counters;
pub use traffic::{Requests, Traffic};
pub use transactions::Entry;
use unreadable::Unreadable;
use waiters::Waiters;
pub use waiters::{Threshold, WaitToken};

/// A partition that this broker leads.
#[derive(Debug)]
pub struct Partition {
    pub topic_id: Uuid,
    pub topic: Arc<str>,
    pub index: i32,
    durability: Durability,
    /// Copy of `PartitionState::high_watermark` for readers without the lock.
    high_watermark: AtomicI64,
    /// Set once: the log no longer takes writes, or the topic is gone.
    ended: AtomicBool,
    counters: Counters,
    /// The offset at which the next compaction begins: `cleaner-offset-checkpoint`.
    first_dirty_offset: AtomicI64,
    unreadable: Unreadable,
    directory_name: DirectoryName,
    state: Mutex<PartitionState>,
}

#[derive(Debug)]
struct PartitionState {
    log: PartitionLog,
    leader_epoch: i32,
    /// What readers may see: below the high watermark.
    visible: Visible,
    /// What readers of committed records may see: below the last stable offset. It may be below the
    /// log's start.
    stable: Visible,
    records_in: u64,
    /// Bytes appended since the partition was opened.
    appended_bytes: u64,
    sync: SyncState,
    waiters: Waiters,
    failure: Option<Failure>,
}

/// At most one sync of a partition runs at a time; the next one covers what is appended meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncState {
    Idle,
    /// `Executor::sync` was called, the commit has not begun.
    Requested,
    Running {
        again: bool,
    },
}

/// Whether an append asks for a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    Sync,
    None,
}

/// The identity of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub topic_id: Uuid,
    pub topic: Arc<str>,
    pub index: i32,
}

/// Why a partition takes no more writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A write or sync failed; reads still work. Carries the reason for the answer.
    Storage(Arc<str>),
    /// The topic was deleted.
    Deleted,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    pub log_start_offset: i64,
    /// The log end after the batches; for a duplicate, the log end now.
    pub end: Bound,
    /// Bytes that consumers must not see yet, because they are not durable.
    pub unsynced_bytes: u64,
}

/// Where a partition's log begins and ends, at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    pub start: i64,
    pub last_stable: i64,
    pub high_watermark: i64,
    pub end: i64,
}

/// The end of one leader epoch: the first offset that no longer belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    pub leader_epoch: i32,
    pub end_offset: i64,
}

/// A partition as its readers see it.
#[derive(Debug)]
pub struct View {
    pub reader: LogReader,
    pub offsets: Offsets,
    /// The high watermark with its position.
    pub bound: Bound,
    /// The last stable offset with its position.
    pub stable: Bound,
}

impl Partition {
    /// Wraps an open log, as its leader.
    pub fn new(
        identity: Identity,
        leader_epoch: i32,
        durability: Durability,
        mut log: PartitionLog,
    ) -> Partition {
        log.assign_leader_epoch(leader_epoch);
        // Everything that recovery kept is intact; the first sync makes durable what a killed
        // process left in the page cache.
        let visible = Visible {
            bound: log.end(),
            bytes: 0,
        };
        let stable = log.high_watermark_moved(visible);
        Partition {
            topic_id: identity.topic_id,
            topic: identity.topic,
            index: identity.index,
            durability,
            high_watermark: AtomicI64::new(visible.bound.offset),
            ended: AtomicBool::new(false),
            counters: Counters::default(),
            first_dirty_offset: AtomicI64::new(0),
            unreadable: Unreadable::default(),
            directory_name: DirectoryName::default(),
            state: Mutex::new(PartitionState {
                log,
                leader_epoch,
                visible,
                stable,
                records_in: 0,
                appended_bytes: 0,
                sync: SyncState::Idle,
                waiters: Waiters::default(),
                failure: None,
            }),
        }
    }

    /// Appends validated batches as the leader and asks for a sync.
    ///
    /// - Units: offsets count records.
    /// - Errors: see `AppendError`; the log is unchanged, and takes no more writes after
    ///   `Poisoned`.
    pub fn append(
        self: &Arc<Self>,
        services: &Services,
        origin: Origin,
        batches: &[BatchToAppend<'_>],
    ) -> Result<Appended, AppendError> {
        self.append_with(services, origin, batches, Urgency::Sync)
    }

    fn append_with(
        self: &Arc<Self>,
        services: &Services,
        origin: Origin,
        batches: &[BatchToAppend<'_>],
        urgency: Urgency,
    ) -> Result<Appended, AppendError> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.refusal());
        }
        let leader_epoch = state.leader_epoch;
        let now_ms = services.clock.timestamp().0;
        let outcome = state.log.append_from(origin, batches, leader_epoch, now_ms);
        let log_start_offset = state.log.start_offset();
        let end = state.log.end();
        let mut woken = Vec::new();
        let mut wants_thread = false;
        match &outcome {
            Ok(appended) if !appended.duplicate => {
                state.count(batches);
                if self.durability == Durability::PageCache {
                    let bytes = state.appended_bytes;
                    let visible = Visible { bound: end, bytes };
                    woken = self.move_high_watermark(&mut state, visible);
                }
                // Without syncs the broker must start write-back itself, or dirty pages pile up
                // until the kernel stalls writers.
                let is_urgent = self.durability == Durability::Disk && urgency == Urgency::Sync;
                if is_urgent || state.log.wants_writeback() {
                    wants_thread = state.sync.request();
                }
            }
            Ok(_) => {}
            Err(error) => {
                woken = self.fail_if_poisoned(services, &mut state);
                self.tell_of_lack(services, error);
            }
        }
        let unsynced_bytes = state.appended_bytes.saturating_sub(state.visible.bytes);
        drop(state);
        if wants_thread {
            services.executor().sync(self.clone());
        }
        wake(woken);
        let appended = outcome?;
        Ok(Appended {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            log_start_offset,
            end,
            unsynced_bytes,
        })
    }

    /// Appends batches that the broker built itself: coordinator records.
    pub fn append_internal(
        self: &Arc<Self>,
        services: &Services,
        batches: &[u8],
    ) -> Result<Appended, AppendError> {
        self.append_built(services, Origin::Broker, batches)
    }

    /// The same without asking for a sync. The batches become durable with whatever is appended
    /// next, with a checkpoint, or when the log is closed; call `request_sync` when something waits
    /// for them.
    pub fn append_unhurried(
        self: &Arc<Self>,
        services: &Services,
        batches: &[u8],
    ) -> Result<Appended, AppendError> {
        self.append_with(services, Origin::Broker, &parsed(batches), Urgency::None)
    }

    fn append_built(
        self: &Arc<Self>,
        services: &Services,
        origin: Origin,
        batches: &[u8],
    ) -> Result<Appended, AppendError> {
        self.append(services, origin, &parsed(batches))
    }

    /// The first step of a checkpoint; `None` if there is nothing to write, or not before the next
    /// sync. Run the job where waiting for the disk is allowed.
    pub(crate) fn begin_checkpoint(self: &Arc<Self>, services: &Services) -> Option<CheckpointJob> {
        let mut state = self.lock();
        state.log.request_checkpoint();
        let job = state.log.take_checkpoint();
        let wants_sync = state.log.wants_checkpoint() && state.sync.request();
        drop(state);
        if wants_sync {
            services.executor().sync(self.clone());
        }
        job
    }

    /// The last step of a checkpoint. Returns whether the recovery point moved.
    pub(crate) fn finish_checkpoint(&self, job: CheckpointJob, result: Result<(), LogError>) -> bool {
        let finished = self.with_log(|log| log.finish_checkpoint(job, result));
        if let Err(error) = &finished {
            warn!(topic = &*self.topic, partition = self.index, %error, "checkpoint failed");
        }
        finished.is_ok()
    }

    /// Records when a batch was appended. The watermark is read after that: a later move of it
    /// finds the batch recorded.
    pub fn record_append(&self, times: &BatchTimes, batch: NewBatch) {
        times.appended(self.key(), &self.topic, batch);
        let high_watermark = self.high_watermark();
        if high_watermark > batch.last_offset {
            times.moved(self.key(), high_watermark, batch.appended);
        }
    }

    pub fn key(&self) -> Key {
        (self.topic_id, self.index)
    }

    /// Whether records can be read and acknowledged only when they are on the disk.
    pub fn is_read_when_durable(&self) -> bool {
        self.durability == Durability::Disk
    }

    pub fn high_watermark(&self) -> i64 {
        self.high_watermark.load(Ordering::Acquire)
    }

    pub fn offsets(&self) -> Offsets {
        let state = self.lock();
        state.offsets()
    }

    pub fn leader_epoch(&self) -> i32 {
        self.lock().leader_epoch
    }

    /// Returns what a read needs, taken at one instant; the read itself runs without the lock.
    pub fn view(&self) -> View {
        let state = self.lock();
        View {
            reader: state.log.reader(),
            offsets: state.offsets(),
            bound: state.visible.bound,
            stable: state.stable_bound(),
        }
    }

    /// Registers `waker` for the moment `threshold` is reached or the partition ends. Check again
    /// after registering.
    pub fn wait(self: &Arc<Self>, threshold: Threshold, waker: &Waker) -> WaitToken {
        let id = self.lock().waiters.add(threshold, waker.clone());
        WaitToken {
            partition: Arc::downgrade(self),
            id,
        }
    }

    pub fn wait_for_high_watermark(self: &Arc<Self>, offset: i64, waker: &Waker) -> WaitToken {
        self.wait(
            Threshold {
                high_watermark: offset,
                ..Threshold::default()
            },
            waker,
        )
    }

    /// Returns the bytes that became readable since the partition was opened, the unit of
    /// `Threshold::visible_bytes`.
    pub fn visible_bytes(&self) -> u64 {
        self.lock().visible.bytes
    }

    /// Returns how many of them are below the last stable offset, the unit of
    /// `Threshold::stable_bytes`.
    pub fn stable_bytes(&self) -> u64 {
        self.lock().stable.bytes
    }

    /// Returns why the partition takes no more writes, if it does not.
    pub fn failure(&self) -> Option<Failure> {
        if !self.ended.load(Ordering::Acquire) {
            return None;
        }
        self.lock().failure.clone()
    }

    pub fn traffic(&self) -> Traffic {
        let state = self.lock();
        Traffic {
            records_in: state.records_in,
            bytes_in: state.appended_bytes,
            bytes_out: self.counters.bytes_out(),
            requests: self.counters.requests(),
        }
    }

    pub fn first_dirty_offset(&self) -> i64 {
        self.first_dirty_offset.load(Ordering::Relaxed)
    }

    pub fn set_first_dirty_offset(&self, offset: i64) {
        self.first_dirty_offset.store(offset, Ordering::Relaxed);
    }

    /// Counts a produce request that was decided for this partition.
    pub fn count_produce(&self) {
        self.counters.produced();
    }

    /// Counts a produce request that is answered with an error for this partition.
    pub fn count_failed_produce(&self) {
        self.counters.produce_failed();
    }

    /// Counts an answered fetch.
    ///
    /// - `bytes`: of record batches in the answer.
    pub fn count_fetch(&self, bytes: u64, has_failed: bool) {
        self.counters.fetched(bytes, has_failed);
    }

    /// Returns the epoch in which the record at `offset` was (or will be) written; −1 when the log
    /// does not know.
    pub fn epoch_at(&self, offset: i64) -> i32 {
        self.lock().log.leader_epochs().epoch_at(offset).unwrap_or(-1)
    }

    /// KIP-320: a client that names a leader epoch other than ours sees another history; −1 names
    /// none.
    pub fn check_leader_epoch(&self, asked: i32) -> Result<(), ErrorCode> {
        if asked < 0 {
            return Ok(());
        }
        match asked.cmp(&self.leader_epoch()) {
            std::cmp::Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
        }
    }

    /// Returns where the largest epoch up to `leader_epoch` ended; `None` when the log knows none.
    pub fn end_of_epoch(&self, leader_epoch: i32) -> Option<EpochEnd> {
        let state = self.lock();
        let found = state
            .log
            .leader_epochs()
            .end_offset_for(leader_epoch, state.log.end_offset());
        found.map(|(leader_epoch, end_offset)| EpochEnd {
            leader_epoch,
            end_offset,
        })
    }

    pub fn is_deleted(&self) -> bool {
        self.failure() == Some(Failure::Deleted)
    }

    /// The topic is gone: refuses everything from now on and wakes all waiters. Waits for the jobs
    /// that use the directory's name; the directory may be renamed afterwards.
    pub fn delete(&self) {
        let woken = {
            let mut state = self.lock();
            self.end(&mut state, Failure::Deleted)
        };
        wake(woken);
        self.directory_name.give_up();
    }

    /// Holds off `delete` while a job creates, renames or removes files of the log; `None`: the
    /// topic is gone, and its files may have another topic's names.
    pub(crate) fn hold_directory_name(&self) -> Option<HeldName<'_>> {
        self.directory_name.hold()
    }

    /// Runs work on the log that no request needs: settings, retention, checkpoints. `work` must
    /// not wait for the disk longer than a metadata operation takes.
    pub fn with_log<T>(&self, work: impl FnOnce(&mut PartitionLog) -> T) -> T {
        work(&mut self.lock().log)
    }

    fn move_high_watermark(&self, state: &mut PartitionState, visible: Visible) -> Vec<Waker> {
        let offset = visible.bound.offset;
        if offset <= state.visible.bound.offset {
            return Vec::new();
        }
        state.visible = visible;
        state.stable = state.log.high_watermark_moved(visible);
        self.high_watermark.store(offset, Ordering::Release);
        state.waiters.take_reached(Threshold {
            high_watermark: offset,
            visible_bytes: visible.bytes,
            stable_bytes: state.stable.bytes,
        })
    }

    /// Ends the partition if its log was poisoned by background work.
    pub(crate) fn end_if_poisoned(&self, services: &Services) {
        let woken = self.fail_if_poisoned(services, &mut self.lock());
        wake(woken);
    }

    fn fail_if_poisoned(&self, services: &Services, state: &mut PartitionState) -> Vec<Waker> {
        match state.log.poison() {
            Some(reason) if state.failure.is_none() => {
                let reason: Arc<str> = reason.into();
                if let Some(suppressed) = services.complaints.failures.pass(services.clock.moment()) {
                    let (topic, partition) = (&*self.topic, self.index);
                    error!(
                        topic,
                        partition, %reason, suppressed, "storage failed: the partition refuses writes until a restart"
                    );
                }
                self.end(state, Failure::Storage(reason))
            }
            _ => Vec::new(),
        }
    }

    fn tell_of_lack(&self, services: &Services, error: &AppendError) {
        if let AppendError::Log(error) = error
            && error.is_lack()
            && let Some(suppressed) = services.complaints.lacks.pass(services.clock.moment())
        {
            let (topic, partition) = (&*self.topic, self.index);
            warn!(topic, partition, %error, suppressed, "write refused, may be tried again");
        }
    }

    fn end(&self, state: &mut PartitionState, failure: Failure) -> Vec<Waker> {
        state.failure = Some(failure);
        self.ended.store(true, Ordering::Release);
        state.waiters.take_all()
    }

    fn forget_waiter(&self, id: u64) {
        self.lock().waiters.remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, PartitionState> {
        // A panic under the lock may leave the log half changed, so it must not be used again.
        self.state
            .lock()
            .expect("no panic happened while a partition was locked")
    }
}

impl Failure {
    fn refusal(&self) -> AppendError {
        let reason = match self {
            Failure::Storage(reason) => reason.clone(),
            Failure::Deleted => "the topic was deleted".into(),
        };
        AppendError::Log(LogError::Poisoned { reason })
    }
}

impl PartitionState {
    fn count(&mut self, batches: &[BatchToAppend<'_>]) {
        for batch in batches {
            self.records_in += u64::from(batch.header.record_count.unsigned_abs());
            self.appended_bytes += batch.header.total_bytes() as u64;
        }
    }

    /// Records of an open transaction may be gone (DeleteRecords, retention): readers never wait
    /// below the log's start.
    fn stable_bound(&self) -> Bound {
        let start = self.log.start_offset();
        if self.stable.bound.offset >= start {
            return self.stable.bound;
        }
        Bound {
            offset: start.min(self.visible.bound.offset),
            position: None,
        }
    }

    fn offsets(&self) -> Offsets {
        Offsets {
            start: self.log.start_offset(),
            last_stable: self.stable_bound().offset,
            high_watermark: self.visible.bound.offset,
            end: self.log.end_offset(),
        }
    }
}

impl SyncState {
    /// Registers the wish for a sync; true when `Executor::sync` must be called.
    fn request(&mut self) -> bool {
        match self {
            SyncState::Idle => {
                *self = SyncState::Requested;
                true
            }
            SyncState::Requested => false,
            SyncState::Running { again } => {
                *again = true;
                false
            }
        }
    }
}

fn parsed(batches: &[u8]) -> Vec<BatchToAppend<'_>> {
    batch::batches(batches)
        .map(|batch| batch.map(BatchToAppend::from))
        .collect::<Result<_, _>>()
        .expect("the broker builds whole batches")
}

fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
