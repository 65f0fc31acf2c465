//! Rebalance listeners: the application's part in a rebalance.

use std::collections::BTreeSet;

use super::exchange::Command;
use super::front::Consumer;
use super::group::{Offsets, RebalanceCall, RebalanceStep};
use super::topic_partition::TopicPartition;
use crate::metrics::RebalanceCallback;

/// Called when partitions are assigned or revoked, inside `poll`, `unsubscribe` and `close`.
/// Kafka's `ConsumerRebalanceListener`.
///
/// The listener may call everything on the consumer except `poll`: commit processed offsets before
/// partitions are revoked, seek before the first record of a new partition is fetched.
pub trait RebalanceListener: Send {
    /// Called after a rebalance, with the added partitions; possibly none.
    fn partitions_assigned(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>);

    /// Called before a rebalance takes these partitions away: they still belong to this member.
    fn partitions_revoked(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>);

    /// Called when the group has given these partitions to others without waiting: commits for them
    /// fail.
    fn partitions_lost(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        self.partitions_revoked(consumer, partitions);
    }
}

impl Consumer {
    /// Does the calls that the group's machine waits for.
    pub(super) fn run_calls(&mut self) {
        // Not reentrant: a listener that waits for a commit must not be called from inside itself.
        if self.is_in_listener {
            return;
        }
        loop {
            let call = self.exchange.lock().calls.pop_front();
            let Some(RebalanceCall { id, step }) = call else {
                return;
            };
            let consumed = self.run_step(step);
            self.exchange.command(Command::Acknowledge {
                call_id: id,
                consumed,
            });
        }
    }

    fn run_step(&mut self, step: RebalanceStep) -> Offsets {
        match step {
            RebalanceStep::Prepare { pause } => {
                let mut state = self.exchange.lock();
                state.assignment.hold(&pause);
                return state.assignment.consumed();
            }
            RebalanceStep::Revoked(partitions) => {
                self.run_listener(RebalanceCallback::Revoked, &partitions);
            }
            RebalanceStep::Lost(partitions) => self.run_listener(RebalanceCallback::Lost, &partitions),
            RebalanceStep::Assigned(partitions) => {
                self.run_listener(RebalanceCallback::Assigned, &partitions);
                self.exchange.lock().assignment.release();
            }
        }
        Offsets::new()
    }

    fn run_listener(&mut self, callback: RebalanceCallback, partitions: &BTreeSet<TopicPartition>) {
        let Some(mut listener) = self.listener.take() else {
            return;
        };
        let started = self.clock.moment();
        self.is_in_listener = true;
        match callback {
            RebalanceCallback::Assigned => listener.partitions_assigned(self, partitions),
            RebalanceCallback::Revoked => listener.partitions_revoked(self, partitions),
            RebalanceCallback::Lost => listener.partitions_lost(self, partitions),
        }
        self.is_in_listener = false;
        // Unless the listener has itself set another one.
        self.listener.get_or_insert(listener);
        let nanos = self.clock.moment().nanos_since(started);
        self.metrics.consumer().rebalance_callback_ran(callback, nanos);
    }
}
