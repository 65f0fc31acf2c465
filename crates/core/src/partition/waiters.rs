//! Waiters for the progress of a partition: acks=all produces, coordinator writes and long polls.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::task::Waker;

use super::Partition;

/// What a waiter waits for, all of it; and how far a partition has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// The high watermark is at least this offset.
    pub high_watermark: i64,
    /// At least this many bytes have become visible since the partition was opened
    /// (`Partition::visible_bytes`).
    pub visible_bytes: u64,
    /// The same for readers of committed records (`Partition::stable_bytes`): batches of an open
    /// transaction do not wake them.
    pub stable_bytes: u64,
}

impl Threshold {
    fn is_reached(self, now: Threshold) -> bool {
        now.high_watermark >= self.high_watermark
            && now.visible_bytes >= self.visible_bytes
            && now.stable_bytes >= self.stable_bytes
    }
}

/// The registered waiters of one partition, in order of registration.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next_id: u64,
    entries: BTreeMap<u64, (Threshold, Waker)>,
}

impl Waiters {
    pub(super) fn add(&mut self, threshold: Threshold, waker: Waker) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.entries.insert(id, (threshold, waker));
        id
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.entries.remove(&id);
    }

    /// Removes and returns the waiters whose threshold is reached. Wake them after the partition's
    /// lock is released.
    pub(super) fn take_reached(&mut self, now: Threshold) -> Vec<Waker> {
        self.entries
            .extract_if(.., |_, (threshold, _)| threshold.is_reached(now))
            .map(|(_, (_, waker))| waker)
            .collect()
    }

    /// Removes and returns all waiters: the partition is poisoned or deleted.
    pub(super) fn take_all(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.entries)
            .into_values()
            .map(|(_, waker)| waker)
            .collect()
    }
}

/// A registration; dropping it undoes the registration.
#[derive(Debug)]
pub struct WaitToken {
    pub(super) partition: Weak<Partition>,
    pub(super) id: u64,
}

impl Drop for WaitToken {
    fn drop(&mut self) {
        if let Some(partition) = self.partition.upgrade() {
            partition.forget_waiter(self.id);
        }
    }
}
