//! A member of a group as a machine: finds the coordinator, joins, keeps its place, commits and fetches offsets.
//!
//! The consumer's machine passes on replies and calls `turn`; the front passes on what the user does. Nothing here
//! knows sockets, clocks or threads.
//!
//! Rebalance listeners run on the user's thread, inside `poll`. The machine therefore asks (`GroupEvent::Call`) and
//! goes on only when it is answered (`acknowledge`); heartbeats continue meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::group_network::GroupNetwork;
use super::poll_activity::PollActivity;
use super::subscription::Subscription;
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::metrics::ConsumerMetrics;
use crate::network::cluster::Reply;
use crate::time::Moment;

/// Offsets by partition, as they are committed and fetched.
pub type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// What the group's machine reports to the consumer's.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupEvent {
    /// The user's thread shall do this inside its next `poll` (or `close`, `unsubscribe`), then `acknowledge` it. There
    /// is never more than one unanswered call.
    Call(RebalanceCall),
    /// From now on these partitions, and no others, are assigned. Those that are new must not be fetched, nor their
    /// offsets asked for, before the `Assigned` call that follows is acknowledged: the listener may seek.
    AssignmentChanged(BTreeSet<TopicPartition>),
    /// In the order in which the commits were asked for.
    Committed {
        ticket: u64,
        offsets: Offsets,
        result: Result<(), Error>,
    },
    /// Partitions without a committed offset are not in the map.
    OffsetsFetched {
        ticket: u64,
        result: Result<Offsets, Error>,
    },
    /// The next `poll` shall fail with this. After a fatal error the machine does nothing more.
    Failed(Error),
    /// The member has left, as `unsubscribe` or `close` wanted it.
    Left,
}

/// A rebalance's step that belongs to the user's thread.
#[derive(Clone, Debug, PartialEq)]
pub struct RebalanceCall {
    pub id: u64,
    pub step: RebalanceStep,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RebalanceStep {
    /// A rebalance begins. Records of `pause` are no longer handed out, fetched ones are dropped; the acknowledgement
    /// carries what was consumed of every assigned partition (an automatic commit follows).
    Prepare { pause: BTreeSet<TopicPartition> },
    /// `onPartitionsRevoked`: still owned during the callback, which may commit.
    Revoked(BTreeSet<TopicPartition>),
    /// `onPartitionsLost`: others may own them already.
    Lost(BTreeSet<TopicPartition>),
    /// `onPartitionsAssigned` with the added ones, perhaps none.
    Assigned(BTreeSet<TopicPartition>),
}

/// How long a commit is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitKind {
    /// `commitSync`: retriable errors are retried until the deadline.
    Sync { deadline: Moment },
    /// `commitAsync`: one attempt, so that a retry never overtakes a later commit.
    Async,
}

/// What a producer needs to commit offsets in a transaction for this member.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMetadata {
    pub group_id: Arc<str>,
    pub generation_id: i32,
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
}

/// Travels with a request of the group and comes back with its reply.
#[derive(Clone, Debug)]
pub struct GroupTicket {
    pub(super) _kind: (),
}

#[derive(Debug)]
pub struct GroupMembership {
    _private: (),
}

impl GroupMembership {
    /// - `config.group_id` must be there.
    /// - `seed`: of the jitter in back-offs.
    pub fn new(
        _config: Arc<ConsumerConfig>,
        _activity: Arc<PollActivity>,
        _metrics: Arc<ConsumerMetrics>,
        _seed: u64,
    ) -> GroupMembership {
        todo!()
    }

    /// Changes what the member wants; `Subscription::None` is `unsubscribe`: the assignment is revoked by a call, the
    /// group left, and `Left` reported.
    pub fn subscribe(&mut self, _now: Moment, _subscription: Subscription) {
        todo!()
    }

    /// The user's thread has done what a `Call` asked for. `consumed` is needed for `Prepare` only.
    pub fn acknowledge(&mut self, _now: Moment, _call_id: u64, _consumed: Offsets) {
        todo!()
    }

    /// Commits on the user's behalf; `ticket` is the caller's and comes back in `Committed`.
    pub fn commit(&mut self, _now: Moment, _ticket: u64, _offsets: Offsets, _kind: CommitKind) {
        todo!()
    }

    /// An automatic commit of what the user has consumed; see `PollActivity::auto_commit_due`.
    pub fn auto_commit(&mut self, _now: Moment, _consumed: Offsets) {
        todo!()
    }

    /// Asks the coordinator for committed offsets, again until `deadline` where the error is retriable.
    pub fn fetch_offsets(
        &mut self,
        _now: Moment,
        _ticket: u64,
        _partitions: BTreeSet<TopicPartition>,
        _deadline: Moment,
    ) {
        todo!()
    }

    /// `Consumer.enforceRebalance` (KIP-568).
    pub fn request_rejoin(&mut self, _reason: &str) {
        todo!()
    }

    /// Commits automatically where that is on, has the assignment revoked by a call, leaves the group (a static member
    /// stays) and waits for what is under way, at most until `deadline`. Then `is_closed`.
    pub fn close(&mut self, _now: Moment, _deadline: Moment) {
        todo!()
    }

    pub fn is_closed(&self) -> bool {
        todo!()
    }

    /// The partitions that the member owns as far as it knows.
    pub fn assignment(&self) -> &BTreeSet<TopicPartition> {
        todo!()
    }

    /// Every topic whose metadata must be kept; `None`: all, for a pattern.
    pub fn metadata_topics(&self) -> Option<BTreeSet<Arc<str>>> {
        todo!()
    }

    pub fn group_metadata(&self) -> GroupMetadata {
        todo!()
    }

    pub fn take_reply(&mut self, _now: Moment, _reply: Reply<GroupTicket>, _network: &mut dyn GroupNetwork) {
        todo!()
    }

    /// Does what is due and appends what happened.
    pub fn turn(&mut self, _now: Moment, _network: &mut dyn GroupNetwork, _events: &mut Vec<GroupEvent>) {
        todo!()
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        todo!()
    }
}
