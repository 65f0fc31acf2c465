//! Records wait here in open batches, one per partition, until the sender takes them.
//!
//! Two sides. User threads: `append`. The sender's machine, alone on its thread: everything else.

use std::sync::Arc;

use super::batch::SealedBatch;
use super::buffer_pool::BufferPool;
use super::record::{Callback, Record};
use crate::config::ProducerConfig;
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::metrics::ProducerMetrics;
use crate::time::Moment;

/// All open and waiting batches of a producer.
#[derive(Debug)]
pub struct Accumulator {
    _private: (),
}

/// What `append` did.
#[derive(Debug)]
pub struct Appended {
    pub completion: Arc<super::completion::BatchCompletion>,
    /// The record's place in `completion`.
    pub index: u32,
    pub partition: i32,
    pub timestamp: i64,
    /// A batch was closed or the queue was empty before: the sender has something to plan.
    pub sender_must_wake: bool,
}

/// One partition's queue as the sender sees it. Cloned `Arc`s are kept by the sender while the partition is active.
#[derive(Debug)]
pub struct PartitionQueue {
    pub topic: Arc<str>,
    pub partition: i32,
}

/// What stands in a queue, read under its lock once per turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Closed batches, retries included.
    pub sealed_batches: usize,
    /// Wire bytes of the first one, header included.
    pub first_bytes: usize,
    pub first_retry_not_before: Option<Moment>,
    /// Since when the oldest batch (closed or open) exists.
    pub oldest_created_at: Option<Moment>,
    /// Since when the open batch exists.
    pub open_since: Option<Moment>,
}

impl Accumulator {
    pub fn new(_config: Arc<ProducerConfig>, _metrics: Arc<ProducerMetrics>) -> Accumulator {
        todo!()
    }

    pub fn pool(&self) -> &BufferPool {
        todo!()
    }

    /// Appends to the partition's open batch; never waits. `partition` was chosen by the partitioner.
    ///
    /// - Errors: `BufferExhausted` when there is no room now (`send` then waits for it and tries again), `RecordTooLarge`, `Closed`. The callback is handed back.
    pub fn append(
        &self,
        _now: Moment,
        _topic: &Arc<Topic>,
        _partition: i32,
        _record: &Record<'_>,
        _timestamp: i64,
        _callback: Option<Callback>,
    ) -> Result<Appended, (Error, Option<Callback>)> {
        todo!()
    }

    /// Partitions whose queue was empty and is no longer, since the last call.
    pub fn take_activated(&self, _into: &mut Vec<Arc<PartitionQueue>>) {
        todo!()
    }

    /// Closes every open batch now: `flush`, `close`.
    pub fn seal_all(&self, _now: Moment) {
        todo!()
    }

    /// No record is taken any more.
    pub fn close(&self) {
        todo!()
    }

    /// Records appended and not completed (a flush waits for those that were there when it began).
    pub fn incomplete_batches(&self) -> usize {
        todo!()
    }
}

impl PartitionQueue {
    pub fn state(&self) -> QueueState {
        todo!()
    }

    /// The first closed batch; with `seal_open`, the open one is closed (and compressed) when no closed one is left.
    pub fn take(&self, _now: Moment, _seal_open: bool) -> Option<SealedBatch> {
        todo!()
    }

    /// Back to its place for a retry: before every batch with a later sequence.
    pub fn put_back(&self, _batch: SealedBatch) {
        todo!()
    }

    /// Takes out closed batches (and closes and takes the open one) created at or before `created_before`.
    pub fn take_expired(&self, _created_before: Moment) -> Vec<SealedBatch> {
        todo!()
    }

    /// True when the queue is empty and was removed from the active ones: the next append activates it again.
    pub fn deactivate_if_empty(&self) -> bool {
        todo!()
    }
}
