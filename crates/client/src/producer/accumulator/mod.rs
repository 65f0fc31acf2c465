//! Holds records in open batches, one per partition, until the sender takes them.
//!
//! Two sides: application threads call `append`; everything else is called by the sender's machine
//! on its one thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use arc_swap::ArcSwap;
use ottla_wire::records::batch::HEADER_BYTES;

use super::batch::{CompressionRatio, Draft, OpenBatch, Origin, SealedBatch};
use super::buffer_pool::{BufferPool, Memory};
use super::callbacks::CallbackQueue;
use super::completion::BatchCompletion;
use super::incomplete::Incomplete;
use super::partitioner::{Availability, RoundRobin, Sticky, Stuck};
use super::record::{Callback, Record};
use crate::config::ProducerConfig;
use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Topic};
use crate::metrics::{BufferState, ProducerMetrics};
use crate::time::Moment;

/// All open and waiting batches of a producer.
#[derive(Debug)]
pub struct Accumulator {
    shared: Arc<Shared>,
    /// Replaced when a topic is first seen or has grown; read by every `append` without a lock.
    topics: ArcSwap<BTreeMap<Arc<str>, Arc<TopicQueues>>>,
    /// Held while `topics` is replaced.
    growing: Mutex<()>,
    /// Seed of the random partition choices.
    seed: u64,
}

/// What all queues share.
#[derive(Debug)]
struct Shared {
    config: Arc<ProducerConfig>,
    pool: BufferPool,
    incomplete: Arc<Incomplete>,
    is_closed: AtomicBool,
    activated: Mutex<Vec<Arc<PartitionQueue>>>,
    availability: Availability,
    callbacks: Option<Arc<CallbackQueue>>,
}

/// The queues of a topic, by partition.
#[derive(Debug)]
pub(super) struct TopicQueues {
    partitions: Vec<Arc<PartitionQueue>>,
    origin: Arc<Origin>,
    pub(super) round_robin: Arc<RoundRobin>,
    sticky: Arc<Sticky>,
}

/// The result of `append`.
#[derive(Debug)]
pub struct Appended {
    pub completion: Arc<BatchCompletion>,
    /// The record's index in `completion`.
    pub index: u32,
    pub partition: i32,
    pub timestamp: i64,
    /// A batch was closed, or the queue was empty before: the sender has something to plan.
    pub sender_must_wake: bool,
}

/// One partition's queue, as the sender sees it. The sender keeps clones of the `Arc` while the
/// partition is active.
///
/// Aligned against false sharing: threads that fill different partitions share no cache line, nor
/// the pair of lines that processors prefetch.
#[repr(align(128))]
pub struct PartitionQueue {
    pub topic: Arc<str>,
    pub partition: i32,
    shared: Arc<Shared>,
    origin: Arc<Origin>,
    /// Number of closed batches, for the partitioner; read without the lock.
    closed_count: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    open: Option<OpenBatch>,
    /// Oldest first.
    closed: VecDeque<Closed>,
    /// How many of them are being compressed.
    gap_count: usize,
    /// The sender knows of this queue.
    is_active: bool,
    /// Bytes of records without a key since this partition was chosen for them.
    sticky_bytes: usize,
}

/// A closed batch's place in the queue.
#[derive(Debug)]
struct Closed {
    order: (u64, u32),
    /// `None` while a thread compresses it.
    batch: Option<SealedBatch>,
}

/// A summary of a queue, read under its lock once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Closed batches that can be taken, retries included. One that is still being compressed
    /// blocks those behind it.
    pub sealed_batches: usize,
    /// Wire bytes of the first one, header included.
    pub first_bytes: usize,
    pub first_retry_not_before: Option<Moment>,
    /// Creation time of the oldest batch (closed or open) that can be taken.
    pub oldest_created_at: Option<Moment>,
    /// Creation time of the open batch. `None` while an earlier one is being compressed: the end of
    /// that wakes the sender.
    pub open_since: Option<Moment>,
}

/// Why a queue did not accept a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AppendRefusal {
    /// A new batch of this size is needed and the pool has no room now.
    NoMemory {
        wanted_bytes: usize,
    },
    /// Records without a key go to another partition now.
    Moved {
        sender_must_wake: bool,
    },
    Closed,
}

/// A record that goes to the topic's current sticky partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stickiness<'a> {
    pub(super) queues: &'a TopicQueues,
    pub(super) topic: &'a Topic,
    pub(super) stuck: Stuck,
}

/// The result of `PartitionQueue::append`.
#[derive(Debug)]
pub(super) struct Taken {
    /// Only if the caller wants it.
    pub(super) completion: Option<Arc<BatchCompletion>>,
    pub(super) index: u32,
    pub(super) sender_must_wake: bool,
}

impl Accumulator {
    pub fn new(config: Arc<ProducerConfig>, metrics: Arc<ProducerMetrics>) -> Accumulator {
        Accumulator::seeded(config, metrics, 0, None)
    }

    /// - `seed`: of the random choice of partitions for records without a key.
    /// - `callbacks`: gets those of batches that are dropped without a result.
    pub fn seeded(
        config: Arc<ProducerConfig>,
        metrics: Arc<ProducerMetrics>,
        seed: u64,
        callbacks: Option<Arc<CallbackQueue>>,
    ) -> Accumulator {
        let shared = Arc::new(Shared {
            pool: BufferPool::new(config.buffer_memory_bytes, config.batch_bytes),
            config,
            incomplete: Arc::default(),
            is_closed: AtomicBool::new(false),
            activated: Mutex::default(),
            availability: Availability::default(),
            callbacks,
        });
        let watched = Arc::downgrade(&shared);
        metrics.watch_buffer(move || {
            let shared = watched.upgrade()?;
            Some(BufferState {
                total_bytes: shared.pool.total_bytes(),
                available_bytes: shared.pool.available_bytes(),
                waiting_threads: shared.pool.waiting_threads(),
            })
        });
        Accumulator {
            shared,
            seed,
            topics: ArcSwap::default(),
            growing: Mutex::default(),
        }
    }

    pub fn pool(&self) -> &BufferPool {
        &self.shared.pool
    }

    pub(super) fn incomplete(&self) -> &Arc<Incomplete> {
        &self.shared.incomplete
    }

    /// Appends to the partition's open batch; never waits. `partition` is the partitioner's choice.
    ///
    /// - Errors: `BufferExhausted` when there is no room now (`send` then waits for it and tries
    ///   again), `RecordTooLarge`, `Closed`. The callback is handed back.
    pub fn append(
        &self,
        now: Moment,
        topic: &Arc<Topic>,
        partition: i32,
        record: &Record<'_>,
        timestamp: i64,
        callback: Option<Callback>,
    ) -> Result<Appended, (Error, Option<Callback>)> {
        let draft = Draft::new(record, timestamp);
        if let Err(error) = self.check_size(&draft) {
            return Err((error, callback));
        }
        let queues = self.topic_queues(topic);
        let Some(queue) = queues.partition(partition) else {
            let message = format!("topic {} has no partition {partition}", topic.name);
            return Err((
                Error::InvalidArgument {
                    message: message.into(),
                },
                callback,
            ));
        };
        let mut callback = callback;
        match queue.append(now, &draft, None, &mut None, &mut callback, true) {
            Ok(taken) => Ok(Appended {
                completion: taken.completion.expect("it was asked for"),
                index: taken.index,
                partition,
                timestamp,
                sender_must_wake: taken.sender_must_wake,
            }),
            Err(AppendRefusal::NoMemory { wanted_bytes }) => {
                Err((self.pool().exhausted(wanted_bytes, 0), callback))
            }
            Err(AppendRefusal::Closed) => Err((Error::Closed, callback)),
            Err(AppendRefusal::Moved { .. }) => unreachable!("the partition is the caller's"),
        }
    }

    /// Notes whether the data ready for a node could be sent: a node that accepts nothing for
    /// longer than `partitioner.availability.timeout.ms` gets no new records without a key.
    pub fn note_node(&self, node: NodeId, now: Moment, is_taken: bool) {
        if self.shared.config.partitioner_availability_timeout_ms > 0 {
            self.shared.availability.note(node, now, is_taken);
        }
    }

    /// - Errors: `RecordTooLarge` with the setting that is too small.
    pub(super) fn check_size(&self, draft: &Draft<'_>) -> Result<(), Error> {
        let config = &self.shared.config;
        let bytes = draft.batch_bytes_max();
        for (limit_bytes, setting) in [
            (config.max_request_bytes, "max.request.size"),
            (config.buffer_memory_bytes, "buffer.memory"),
        ] {
            if bytes > limit_bytes {
                return Err(Error::RecordTooLarge {
                    bytes,
                    limit_bytes,
                    setting,
                });
            }
        }
        Ok(())
    }

    /// The topic's queues, at least as many as it has partitions.
    pub(super) fn topic_queues(&self, topic: &Topic) -> Arc<TopicQueues> {
        if let Some(queues) = self.topics.load().get(&topic.name)
            && queues.partitions.len() >= topic.partitions.len()
        {
            return Arc::clone(queues);
        }
        self.grow(topic)
    }

    #[cold]
    fn grow(&self, topic: &Topic) -> Arc<TopicQueues> {
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut topics = BTreeMap::clone(&self.topics.load());
        let known = topics.get(&topic.name);
        if let Some(queues) = known
            && queues.partitions.len() >= topic.partitions.len()
        {
            return Arc::clone(queues);
        }
        let origin = match known {
            Some(queues) => Arc::clone(&queues.origin),
            None => self.shared.origin(&topic.name),
        };
        let mut partitions = known.map_or_else(Vec::new, |queues| queues.partitions.clone());
        for index in partitions.len()..topic.partitions.len() {
            let partition = i32::try_from(index).expect("partitions are numbered by i32");
            partitions.push(Arc::new(PartitionQueue::new(&self.shared, &origin, partition)));
        }
        let queues = Arc::new(TopicQueues {
            partitions,
            origin,
            round_robin: known
                .map(|queues| Arc::clone(&queues.round_robin))
                .unwrap_or_default(),
            sticky: match known {
                Some(queues) => Arc::clone(&queues.sticky),
                // Each topic of a producer gets its own seed, so that their choices are
                // independent.
                None => Arc::new(Sticky::new(self.seed.wrapping_add(topics.len() as u64))),
            },
        });
        topics.insert(Arc::clone(&topic.name), Arc::clone(&queues));
        self.topics.store(Arc::new(topics));
        queues
    }

    /// Partitions whose queue has become non-empty since the last call.
    pub fn take_activated(&self, into: &mut Vec<Arc<PartitionQueue>>) {
        into.append(&mut self.shared.lock_activated());
    }

    /// Closes every open batch now: `flush`, `close`.
    pub fn seal_all(&self, _now: Moment) {
        // Orders this after `close`: a thread that grows the table later sees that it is closed.
        drop(self.growing.lock());
        for queues in self.topics.load().values() {
            for queue in &queues.partitions {
                queue.seal_open();
            }
        }
    }

    /// Fails everything that waits here, because the sender has ended.
    pub fn fail_all(&self, error: &Error, callbacks: &CallbackQueue) {
        drop(self.growing.lock());
        for queues in self.topics.load().values() {
            for queue in &queues.partitions {
                for batch in queue.take_expired(Moment::NEVER) {
                    batch.finish(Err(error.clone()), callbacks);
                }
            }
        }
    }

    /// Refuses records from now on.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
    }

    /// Batches not yet completed; a flush waits for those that exist when it begins.
    pub fn incomplete_batches(&self) -> usize {
        self.shared.incomplete.count()
    }
}

impl Shared {
    fn lock_activated(&self) -> MutexGuard<'_, Vec<Arc<PartitionQueue>>> {
        self.activated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn origin(&self, topic: &Arc<str>) -> Arc<Origin> {
        Arc::new(Origin {
            topic: Arc::clone(topic),
            pool: self.pool.clone(),
            compression: self.config.compression,
            batch_bytes: self.config.batch_bytes,
            ratio: CompressionRatio::default(),
            callbacks: self.callbacks.clone(),
            callback_count: AtomicUsize::new(0),
        })
    }
}

impl TopicQueues {
    pub(super) fn partition(&self, partition: i32) -> Option<&Arc<PartitionQueue>> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }

    /// The topic's current choice of partition for records without a key.
    pub(super) fn stuck(&self, topic: &Topic) -> Stuck {
        self.sticky.current(|sticky| self.choose(sticky, topic))
    }

    fn switch(&self, from: Stuck, topic: &Topic) {
        self.sticky.switch(from, self.choose(&self.sticky, topic));
    }

    /// KIP-794: brokers that are slow to accept batches have longer queues and get fewer records.
    fn choose(&self, sticky: &Sticky, topic: &Topic) -> i32 {
        let shared = &self.partitions.first().map(|queue| &queue.shared);
        let timeout_ms = shared.map_or(0, |shared| shared.config.partitioner_availability_timeout_ms);
        let is_adaptive = shared.is_some_and(|shared| shared.config.partitioner_adaptive);
        sticky.choose(topic.partitions.len(), |index| {
            let leader = topic.partitions[index].leader?;
            if !is_adaptive {
                return Some(0);
            }
            let queue = self.partitions.get(index)?;
            if timeout_ms > 0 && !queue.shared.availability.is_available(leader, timeout_ms) {
                return None;
            }
            Some(queue.closed_count.load(Ordering::Relaxed))
        })
    }
}

impl Stickiness<'_> {
    fn is_current(&self) -> bool {
        self.queues.sticky.is_current(self.stuck)
    }

    fn switch(&self) {
        self.queues.switch(self.stuck, self.topic);
    }
}

impl PartitionQueue {
    fn new(shared: &Arc<Shared>, origin: &Arc<Origin>, partition: i32) -> PartitionQueue {
        PartitionQueue {
            topic: Arc::clone(&origin.topic),
            partition,
            shared: Arc::clone(shared),
            origin: Arc::clone(origin),
            closed_count: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    /// The lock is held for about fifty nanoseconds, much less than a sleep costs, so spin for a
    /// while first. The standard lock stops spinning as soon as any thread sleeps, and from then on
    /// every unlock is a system call.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        const SPINS: u32 = 6;
        const YIELDS: u32 = 4;
        for round in 0..SPINS + YIELDS {
            match self.queue.try_lock() {
                Ok(queue) => return queue,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if round < SPINS => {
                    for _ in 0..1 << round {
                        std::hint::spin_loop();
                    }
                }
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to the open batch, or to a new one.
    ///
    /// - `memory`: for a new batch, if the caller has waited for it; stays with the caller when it
    ///   is not needed.
    /// - `callback`: stays with the caller when the record is refused.
    pub(super) fn append(
        self: &Arc<PartitionQueue>,
        now: Moment,
        draft: &Draft<'_>,
        stickiness: Option<Stickiness<'_>>,
        memory: &mut Option<Memory>,
        callback: &mut Option<Callback>,
        wants_completion: bool,
    ) -> Result<Taken, AppendRefusal> {
        let mut queue = self.lock();
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(AppendRefusal::Closed);
        }
        if stickiness.is_some_and(|stickiness| !stickiness.is_current()) {
            return Err(AppendRefusal::Moved {
                sender_must_wake: false,
            });
        }
        let appended = queue.open.as_mut().and_then(|open| open.append(draft, now));
        let Some(index) = appended else {
            return self.append_to_new(queue, now, draft, stickiness, memory, callback, wants_completion);
        };
        if let Some(stickiness) = stickiness {
            self.count_sticky(&mut queue, draft, stickiness);
        }
        let taken = queue.taken(index, draft, callback, wants_completion);
        let is_full = queue.open.as_ref().is_some_and(OpenBatch::is_full);
        if is_full {
            self.close_open(queue);
        }
        Ok(Taken {
            sender_must_wake: is_full,
            ..taken
        })
    }

    #[cold]
    #[expect(
        clippy::too_many_arguments,
        reason = "the rest of `append`, which is short for speed"
    )]
    fn append_to_new(
        self: &Arc<PartitionQueue>,
        mut queue: MutexGuard<'_, Queue>,
        now: Moment,
        draft: &Draft<'_>,
        stickiness: Option<Stickiness<'_>>,
        memory: &mut Option<Memory>,
        callback: &mut Option<Callback>,
        wants_completion: bool,
    ) -> Result<Taken, AppendRefusal> {
        let sender_must_wake = queue.open.is_some();
        let unfinished = self.detach_open(&mut queue);
        // Switch partitions only when the batch is full, so that no small batch is left behind.
        if let Some(stickiness) = stickiness
            && queue.sticky_bytes > 0
            && HEADER_BYTES + queue.sticky_bytes + draft.record_bytes() > self.origin.batch_bytes
        {
            queue.sticky_bytes = 0;
            stickiness.switch();
            drop(queue);
            self.finish_closing(unfinished);
            return Err(AppendRefusal::Moved { sender_must_wake });
        }
        let wanted_bytes = self.origin.batch_bytes.max(draft.batch_bytes_max());
        let memory = memory
            .take_if(|memory| memory.reserved_bytes() >= wanted_bytes)
            .or_else(|| self.shared.pool.try_take(wanted_bytes));
        let Some(memory) = memory else {
            drop(queue);
            self.finish_closing(unfinished);
            return Err(AppendRefusal::NoMemory { wanted_bytes });
        };
        let completion = BatchCompletion::tracked(self.partition, &self.shared.incomplete);
        let mut open = OpenBatch::new(&self.origin, completion, memory, draft, now);
        let index = open
            .append(draft, now)
            .expect("the memory was measured for this record");
        queue.open = Some(open);
        self.activate(&mut queue);
        if let Some(stickiness) = stickiness {
            self.count_sticky(&mut queue, draft, stickiness);
        }
        let taken = queue.taken(index, draft, callback, wants_completion);
        if queue.open.as_ref().is_some_and(OpenBatch::is_full) {
            self.close_open(queue);
        } else {
            drop(queue);
        }
        self.finish_closing(unfinished);
        Ok(taken)
    }

    /// Where batches leave before they are full, switch after twice the batch size, as Kafka does.
    fn count_sticky(&self, queue: &mut Queue, draft: &Draft<'_>, stickiness: Stickiness<'_>) {
        queue.sticky_bytes += draft.record_bytes();
        if queue.sticky_bytes >= self.origin.batch_bytes.saturating_mul(2) && !self.origin.is_compressed() {
            queue.sticky_bytes = 0;
            stickiness.switch();
        }
    }

    /// Closes the open batch; compresses it without holding the lock.
    fn close_open(&self, mut queue: MutexGuard<'_, Queue>) {
        let unfinished = self.detach_open(&mut queue);
        drop(queue);
        self.finish_closing(unfinished);
    }

    /// Moves the open batch to its place among the closed ones. A batch that must still be
    /// compressed is returned and leaves a gap, which keeps the order.
    fn detach_open(&self, queue: &mut Queue) -> Option<OpenBatch> {
        let open = queue.open.take()?;
        let order = (open.completion.id(), 0);
        let (batch, unfinished) = if self.origin.is_compressed() {
            (None, Some(open))
        } else {
            (Some(open.seal(&self.origin, self.partition)), None)
        };
        queue.gap_count += usize::from(batch.is_none());
        queue.closed.push_back(Closed { order, batch });
        self.closed_count.store(queue.closed.len(), Ordering::Relaxed);
        unfinished
    }

    /// Compresses the batch that `detach_open` returned and fills its gap.
    fn finish_closing(&self, unfinished: Option<OpenBatch>) {
        let Some(open) = unfinished else { return };
        let order = (open.completion.id(), 0);
        let batch = open.seal(&self.origin, self.partition);
        let mut queue = self.lock();
        let place = queue.closed.partition_point(|closed| closed.order < order);
        let gap = queue
            .closed
            .get_mut(place)
            .filter(|closed| closed.order == order && closed.batch.is_none());
        gap.expect("only this thread fills or removes its gap").batch = Some(batch);
        queue.gap_count -= 1;
    }

    fn activate(self: &Arc<PartitionQueue>, queue: &mut Queue) {
        if !queue.is_active {
            queue.is_active = true;
            self.shared.lock_activated().push(Arc::clone(self));
        }
    }

    fn seal_open(&self) {
        let queue = self.lock();
        self.close_open(queue);
    }

    pub fn state(&self) -> QueueState {
        let queue = self.lock();
        let first = queue.first();
        let open_since = queue
            .open
            .as_ref()
            .filter(|_| queue.gap_count == 0)
            .map(|open| open.created_at);
        QueueState {
            sealed_batches: queue.ready_count(),
            first_bytes: first.map_or(0, SealedBatch::wire_bytes),
            first_retry_not_before: first.and_then(|first| first.sending.retry_not_before),
            oldest_created_at: first.map(|first| first.created_at).or(open_since),
            open_since,
        }
    }

    /// Takes the first closed batch; with `seal_open`, closes (and compresses) the open one when no
    /// closed one is left.
    pub fn take(&self, _now: Moment, seal_open: bool) -> Option<SealedBatch> {
        let mut queue = self.lock();
        if let Some(closed) = queue.closed.front_mut() {
            let batch = closed.batch.take()?;
            queue.closed.pop_front();
            self.closed_count.store(queue.closed.len(), Ordering::Relaxed);
            return Some(batch);
        }
        if !seal_open {
            return None;
        }
        let open = queue.open.take()?;
        drop(queue);
        Some(open.seal(&self.origin, self.partition))
    }

    /// Puts a batch back in its place for a retry: before every batch that was opened later.
    pub fn put_back(self: &Arc<PartitionQueue>, batch: SealedBatch) {
        let order = batch.order();
        let mut queue = self.lock();
        let place = queue.closed.partition_point(|closed| closed.order < order);
        queue.closed.insert(
            place,
            Closed {
                order,
                batch: Some(batch),
            },
        );
        self.closed_count.store(queue.closed.len(), Ordering::Relaxed);
        self.activate(&mut queue);
    }

    /// Takes out the closed batches (and closes and takes the open one) created at or before
    /// `created_before`.
    pub fn take_expired(&self, created_before: Moment) -> Vec<SealedBatch> {
        let mut expired = Vec::new();
        let mut queue = self.lock();
        while let Some(closed) = queue.closed.front_mut() {
            match closed.batch.take_if(|batch| batch.created_at <= created_before) {
                Some(batch) => expired.push(batch),
                None => break,
            }
            queue.closed.pop_front();
        }
        self.closed_count.store(queue.closed.len(), Ordering::Relaxed);
        if queue.closed.is_empty()
            && let Some(open) = queue.open.take_if(|open| open.created_at <= created_before)
        {
            expired.push(open.seal_uncompressed(&self.origin, self.partition));
        }
        expired
    }

    /// Deactivates the queue if it is empty and returns whether it did; the next append activates
    /// it again.
    pub fn deactivate_if_empty(&self) -> bool {
        let mut queue = self.lock();
        let is_empty = queue.open.is_none() && queue.closed.is_empty();
        if is_empty {
            queue.is_active = false;
        }
        is_empty
    }
}

impl fmt::Debug for PartitionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionQueue({}-{})", self.topic, self.partition)
    }
}

impl Queue {
    /// Returns the result for the record at `index` of the open batch; index 0 means that the batch
    /// is new.
    fn taken(
        &mut self,
        index: u32,
        draft: &Draft<'_>,
        callback: &mut Option<Callback>,
        wants_completion: bool,
    ) -> Taken {
        let open = self.open.as_mut().expect("a record was appended to it");
        if let Some(callback) = callback.take() {
            open.register(index, draft.timestamp(), callback);
        }
        Taken {
            completion: wants_completion.then(|| Arc::clone(&open.completion)),
            index,
            sender_must_wake: index == 0,
        }
    }

    /// Number of closed batches before the first that is being compressed. A full buffer can be
    /// thousands of batches, so they are searched only if there is such a gap.
    fn ready_count(&self) -> usize {
        if self.gap_count == 0 {
            return self.closed.len();
        }
        let is_ready = |closed: &&Closed| closed.batch.is_some();
        self.closed.iter().take_while(is_ready).count()
    }

    fn first(&self) -> Option<&SealedBatch> {
        self.closed.front()?.batch.as_ref()
    }
}

#[cfg(test)]
mod tests;
