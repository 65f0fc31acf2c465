//! A member's way through a rebalance: give up partitions, join, receive an assignment, apply it;
//! and the way out of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assignor::RebalanceProtocol;
use super::assignor::topics::{TopicReplicas, replicas};
use super::commit::Origin;
use super::group::{CommitKind, GroupEvent, GroupMembership, Offsets, RebalanceCall, RebalanceStep};
use super::group_network::GroupNetwork;
use super::join::Joined;
use super::subscription::Subscription;
use super::topic_partition::TopicPartition;
use crate::config::AssignorKind;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::time::Moment;

/// A member's identity with the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// −1: none.
    pub id: i32,
    /// Empty: none.
    pub member_id: Arc<str>,
    pub protocol: Option<AssignorKind>,
}

impl Default for Generation {
    fn default() -> Generation {
        Generation {
            id: -1,
            member_id: "".into(),
            protocol: None,
        }
    }
}

impl Generation {
    /// Whether the assignment is lost: other members may have it.
    pub fn is_lost(&self) -> bool {
        self.id < 0 || self.member_id.is_empty()
    }
}

/// Kafka's names for a member's state with the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    Unjoined,
    /// A JoinGroup is sent or about to be.
    PreparingRebalance,
    /// It was answered; the assignment is not known yet.
    CompletingRebalance,
    Stable,
}

/// State kept between steps.
#[derive(Debug)]
pub struct Rebalance {
    /// Why the group must be joined (again).
    pub rejoin_reason: Option<Arc<str>>,
    /// Partitions may have to be given up before joining.
    pub needs_prepare: bool,
    pub not_before: Option<Moment>,
    pub failures: u32,
    /// Grows with every JoinGroup, and whenever the one in flight no longer counts.
    pub attempt: u64,
    /// When the first JoinGroup of this rebalance was sent.
    pub started: Option<Moment>,
    /// The topics in the subscription of the last JoinGroup.
    pub joined_topics: Option<BTreeSet<Arc<str>>>,
    pub is_leader: bool,
}

impl Default for Rebalance {
    fn default() -> Rebalance {
        Rebalance {
            rejoin_reason: None,
            needs_prepare: true,
            not_before: None,
            failures: 0,
            attempt: 0,
            started: None,
            joined_topics: None,
            is_leader: false,
        }
    }
}

/// The part of the metadata that matters to the group.
#[derive(Debug, Default)]
pub struct Watch {
    /// The snapshot that was current when a pattern was subscribed to; topics are matched against
    /// later ones.
    pub pattern_since: u64,
    /// The topics that any member subscribes to; the leader watches them.
    pub group_topics: BTreeSet<Arc<str>>,
    /// The partitions that the leader assigned: when they change, the group must be rebalanced.
    pub distributed: Option<BTreeMap<Arc<str>, TopicReplicas>>,
    pub is_outdated: bool,
    /// The assignment was kept and not made, and may lack partitions (`kept_assignment.rs`).
    pub is_unchecked: bool,
}

/// What a member is doing now.
#[derive(Debug)]
pub enum Step {
    Idle,
    /// The application's thread has something to do.
    Calling {
        call: u64,
        after: After,
    },
    /// An automatic commit must be answered before partitions are given up.
    Committing {
        until: Moment,
        after: After,
    },
    /// JoinGroup is to be sent.
    Join,
    Joining,
    /// As leader: metadata of topics that others subscribe to is missing.
    AwaitingMetadata {
        joined: Joined,
        until: Moment,
    },
    /// SyncGroup is to be sent; by member id, empty for followers.
    Sync {
        assignments: Vec<(Arc<str>, Vec<u8>)>,
    },
    Syncing,
    /// Closing: all partitions are given up, the last answers are awaited.
    Parting,
}

impl Step {
    pub fn is_leaving(&self) -> bool {
        match self {
            Step::Parting => true,
            Step::Calling { after, .. } | Step::Committing { after, .. } => {
                matches!(
                    after,
                    After::CommitAndDepart | After::GiveUpAndDepart | After::Depart
                )
            }
            _ => false,
        }
    }
}

/// How to continue when the application's thread or a commit is done.
#[derive(Clone, Debug)]
pub enum After {
    /// Commit consumed offsets, then give up partitions.
    CommitAndGiveUp,
    GiveUp,
    /// Own these from now on, and join.
    KeepAndJoin(BTreeSet<TopicPartition>),
    /// Own these from now on: an assignment, of this generation.
    Take(BTreeSet<TopicPartition>, i32),
    Settle,
    CommitAndDepart,
    GiveUpAndDepart,
    Depart,
}

impl GroupMembership {
    /// Takes one step if one can be taken.
    pub(super) fn advance(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) -> bool {
        match &self.step {
            Step::Idle => self.begin(now, node),
            Step::Committing { .. } => self.end_commit(now),
            Step::Join => self.send_join(now, node, network),
            Step::AwaitingMetadata { .. } => self.distribute_when_known(now),
            Step::Sync { .. } => self.send_sync(now, node, network),
            Step::Calling { .. } | Step::Joining | Step::Syncing | Step::Parting => false,
        }
    }

    /// Goes on when the commit of this step is answered, or has taken too long.
    pub(super) fn end_commit(&mut self, now: Moment) -> bool {
        let Step::Committing { until, after } = &self.step else {
            return false;
        };
        if *until > now && !self.commits.is_step_done() {
            return false;
        }
        let after = after.clone();
        self.commits.forget_step();
        self.go_on(now, after, Offsets::new());
        true
    }

    pub(super) fn step_deadline(&self) -> Option<Moment> {
        match &self.step {
            Step::Committing { until, .. } | Step::AwaitingMetadata { until, .. } => Some(*until),
            Step::Join => self.rebalance.not_before,
            _ => None,
        }
    }

    /// Follows the metadata: which topics a pattern matches, and whether the assigned partitions
    /// are still all.
    pub(super) fn notice_metadata(&mut self, network: &mut dyn GroupNetwork) {
        let snapshot = network.snapshot();
        if snapshot.version == self.snapshot.version {
            return;
        }
        self.snapshot = snapshot;
        self.resolve_subscription();
        let is_changed = |distributed: &BTreeMap<Arc<str>, TopicReplicas>| {
            *distributed != self.watched_replicas(&self.watch.group_topics)
        };
        self.watch.is_outdated = self.watch.distributed.as_ref().is_some_and(is_changed);
    }

    /// Racks matter only if this client names its own (KIP-881).
    pub(super) fn watched_replicas(&self, topics: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, TopicReplicas> {
        let mut found = replicas(&self.snapshot, topics);
        if self.config.client.client_rack.is_empty() {
            for topic in found.values_mut() {
                *topic = TopicReplicas::without_racks(topic.partition_count());
            }
        }
        found
    }

    pub(super) fn resolve_subscription(&mut self) {
        self.topics = self
            .subscription
            .resolve(&self.snapshot, self.config.exclude_internal_topics);
        self.wanted = match self.subscription {
            Subscription::Pattern(_) => None,
            _ => Some(self.topics.union(&self.watch.group_topics).cloned().collect()),
        };
    }

    fn rejoin_if_unasked(&mut self, reason: &str) {
        if self.rebalance.rejoin_reason.is_none() {
            self.request_rejoin(reason);
        }
    }

    /// Idle: checks whether there is a reason to join.
    fn begin(&mut self, now: Moment, node: Option<NodeId>) -> bool {
        let awaits_match = matches!(self.subscription, Subscription::Pattern(_))
            && self.rebalance.joined_topics.is_none()
            && self.snapshot.version <= self.watch.pattern_since;
        if self.subscription.is_none() || awaits_match || !self.has_polled() {
            return false;
        }
        if self.rebalance.is_leader && self.watch.is_outdated {
            self.rejoin_if_unasked("cached metadata has changed");
        }
        if self
            .rebalance
            .joined_topics
            .as_ref()
            .is_some_and(|joined| *joined != self.topics)
        {
            self.rejoin_if_unasked("subscription has changed");
        }
        if self.rebalance.rejoin_reason.is_none() {
            return false;
        }
        if !self.rebalance.needs_prepare {
            self.step = Step::Join;
            return true;
        }
        // Lost partitions are given up at once; the rest is kept while there is no coordinator to
        // rebalance with.
        if self.generation.is_lost() || (node.is_some() && self.may_try()) {
            self.rebalance.needs_prepare = false;
            let reason = self.rebalance.rejoin_reason.as_deref().unwrap_or_default();
            events::rebalance_started(&self.config.client.client_id, &self.group_id, reason);
            self.prepare(now);
            return true;
        }
        false
    }

    /// As in Kafka, nothing begins before the first poll.
    pub(super) fn has_polled(&self) -> bool {
        if self.activity.polls() == 0 {
            self.activity.await_poll();
        }
        self.activity.polls() > 0
    }

    fn prepare(&mut self, now: Moment) {
        let must_commit = self.config.auto_commit_enabled && !self.generation.is_lost();
        if !must_commit || self.assignment.is_empty() {
            return self.give_up(now);
        }
        // Without a pause the position would run ahead of the commit, and the next owner would read
        // those records twice.
        let pause = match self.protocol {
            RebalanceProtocol::Eager => self.assignment.clone(),
            RebalanceProtocol::Cooperative => BTreeSet::new(),
        };
        self.call(RebalanceStep::Prepare { pause }, After::CommitAndGiveUp);
    }

    fn give_up(&mut self, now: Moment) {
        if self.membership.is_some() {
            return self.give_up_untargeted(now);
        }
        if self.generation.is_lost() {
            if self.assignment.is_empty() {
                return self.go_on(now, After::KeepAndJoin(BTreeSet::new()), Offsets::new());
            }
            let lost = self.assignment.clone();
            return self.call(RebalanceStep::Lost(lost), After::KeepAndJoin(BTreeSet::new()));
        }
        let is_kept = |partition: &&TopicPartition| {
            self.protocol == RebalanceProtocol::Cooperative && self.topics.contains(&partition.topic)
        };
        let (kept, revoked): (BTreeSet<&TopicPartition>, BTreeSet<&TopicPartition>) =
            self.assignment.iter().partition(is_kept);
        let kept: BTreeSet<TopicPartition> = kept.into_iter().cloned().collect();
        let revoked: BTreeSet<TopicPartition> = revoked.into_iter().cloned().collect();
        // As in Kafka, an eager listener is called in every rebalance, a cooperative one only if
        // partitions change.
        if revoked.is_empty() && self.protocol == RebalanceProtocol::Cooperative {
            return self.go_on(now, After::KeepAndJoin(kept), Offsets::new());
        }
        self.call(RebalanceStep::Revoked(revoked), After::KeepAndJoin(kept));
    }

    /// Applies the assignment of the SyncGroup response.
    pub(super) fn complete(&mut self, now: Moment, assigned: BTreeSet<TopicPartition>) {
        self.rebalance.needs_prepare = true;
        let is_wanted = |partition: &TopicPartition| match &self.subscription {
            Subscription::Pattern(pattern) => pattern.matches(&partition.topic),
            _ => self.topics.contains(&partition.topic),
        };
        if !assigned.iter().all(is_wanted) {
            self.step = Step::Idle;
            return self.request_rejoin("received assignment does not match the current subscription");
        }
        let generation = self.generation.id;
        let revoked: BTreeSet<TopicPartition> = self.assignment.difference(&assigned).cloned().collect();
        let after = After::Take(assigned, generation);
        if self.protocol == RebalanceProtocol::Cooperative && !revoked.is_empty() {
            // The next rebalance assigns them to their new owners, once they have no owner.
            self.request_rejoin("need to revoke partitions and re-join");
            return self.call(RebalanceStep::Revoked(revoked), after);
        }
        self.go_on(now, after, Offsets::new());
    }

    fn take(&mut self, now: Moment, assigned: BTreeSet<TopicPartition>, generation: i32) {
        if let (Subscription::Pattern(_), Some(joined)) =
            (&self.subscription, &mut self.rebalance.joined_topics)
        {
            // The leader knows topics that we have not seen yet, and they match the pattern.
            for partition in &assigned {
                if joined.insert(partition.topic.clone()) {
                    self.topics.insert(partition.topic.clone());
                }
            }
        }
        self.last_assignment.remember(&assigned, generation);
        self.postpone_auto_commit(now, self.config.auto_commit_interval_ms);
        let added = assigned.difference(&self.assignment).cloned().collect();
        self.own(assigned);
        self.call(RebalanceStep::Assigned(added), After::Settle);
    }

    pub(super) fn own(&mut self, partitions: BTreeSet<TopicPartition>) {
        if self.assignment != partitions {
            self.assignment = partitions;
            self.metrics.assigned_partitions(self.assignment.len());
            self.events
                .push(GroupEvent::AssignmentChanged(self.assignment.clone()));
        }
    }

    pub(super) fn call(&mut self, step: RebalanceStep, after: After) {
        self.calls += 1;
        self.events
            .push(GroupEvent::Call(RebalanceCall { id: self.calls, step }));
        self.step = Step::Calling {
            call: self.calls,
            after,
        };
    }

    /// The application's thread has done a `Call`. `consumed` is needed for `Prepare` only.
    pub fn acknowledge(&mut self, now: Moment, call_id: u64, consumed: Offsets) {
        match &self.step {
            Step::Calling { call, after } if *call == call_id => {
                let after = after.clone();
                self.go_on(now, after, consumed);
            }
            _ => {}
        }
    }

    pub(super) fn go_on(&mut self, now: Moment, after: After, consumed: Offsets) {
        match after {
            After::CommitAndGiveUp => {
                // The group removes a member that takes longer than this.
                let until = now.after_ms(self.config.max_poll_interval_ms);
                self.commit_for_step(now, consumed, until, After::GiveUp);
            }
            After::GiveUp => self.give_up(now),
            After::KeepAndJoin(kept) => {
                self.own(kept);
                self.rebalance.is_leader = false;
                self.watch.group_topics.clear();
                self.resolve_subscription();
                self.step = Step::Join;
            }
            After::Take(assigned, generation) => self.take(now, assigned, generation),
            After::Settle => self.step = Step::Idle,
            After::CommitAndDepart => {
                let until = self.closing.unwrap_or(now);
                self.commit_for_step(now, consumed, until, After::GiveUpAndDepart);
            }
            After::GiveUpAndDepart => self.begin_leaving(now),
            After::Depart => self.depart(now),
        }
    }

    fn commit_for_step(&mut self, now: Moment, consumed: Offsets, until: Moment, after: After) {
        if consumed.is_empty() {
            return self.go_on(now, after, Offsets::new());
        }
        self.commits.push(
            Origin::Step,
            consumed,
            CommitKind::Sync { deadline: until },
            until,
        );
        self.step = Step::Committing { until, after };
    }

    /// The coordinator no longer knows us under this generation, or at all.
    pub(super) fn reset(&mut self, reason: &str, keeps_member_id: bool) {
        let member_id = if keeps_member_id {
            self.generation.member_id.clone()
        } else {
            "".into()
        };
        self.generation = Generation {
            member_id,
            ..Generation::default()
        };
        if let Some(membership) = &mut self.membership {
            membership.fence();
        }
        self.state = MemberState::Unjoined;
        self.rebalance.needs_prepare = true;
        self.rebalance.attempt += 1;
        self.request_rejoin(reason);
        let is_joining = matches!(
            self.step,
            Step::Join | Step::Joining | Step::AwaitingMetadata { .. } | Step::Sync { .. } | Step::Syncing
        );
        if is_joining {
            self.step = Step::Idle;
        }
    }

    /// The application did not poll for too long: gives the partitions to others. The next poll
    /// reports it.
    pub(super) fn leave_for_poll_timeout(&mut self, now: Moment) {
        self.queue_leave(now, "consumer poll timeout has expired");
        self.reset("consumer pro-actively leaving the group", false);
        // No thread answers calls now; the partitions they were about are lost.
        if !self.step.is_leaving() {
            self.step = Step::Idle;
        }
    }

    /// Starts `unsubscribe`, and `close` after its commit.
    pub(super) fn begin_leaving(&mut self, now: Moment) {
        self.rebalance.attempt += 1;
        if self.assignment.is_empty() {
            return self.depart(now);
        }
        let owned = self.assignment.clone();
        let is_lost = self.generation.is_lost() || self.state != MemberState::Stable;
        let step = if is_lost {
            RebalanceStep::Lost(owned)
        } else {
            RebalanceStep::Revoked(owned)
        };
        self.call(step, After::Depart);
    }

    pub(super) fn begin_closing(&mut self, now: Moment) {
        if !self.config.auto_commit_enabled || self.is_failed {
            return self.begin_leaving(now);
        }
        let pause = self.assignment.clone();
        self.call(RebalanceStep::Prepare { pause }, After::CommitAndDepart);
    }

    fn depart(&mut self, now: Moment) {
        self.own(BTreeSet::new());
        let reason = match self.closing {
            Some(_) => "the consumer is being closed",
            None => "the consumer unsubscribed from all topics",
        };
        self.queue_leave(now, reason);
        self.state = MemberState::Unjoined;
        self.generation = Generation::default();
        let attempt = self.rebalance.attempt + 1;
        self.rebalance = Rebalance {
            attempt,
            ..Rebalance::default()
        };
        self.watch.distributed = None;
        self.watch.group_topics.clear();
        self.resolve_subscription();
        if self.closing.is_some() {
            self.step = Step::Parting;
            return;
        }
        self.step = Step::Idle;
        self.events.push(GroupEvent::Left);
        if !self.subscription.is_none() {
            self.request_rejoin("");
        }
    }

    pub(super) fn finish_closing(&mut self, now: Moment) {
        let Some(deadline) = self.closing.filter(|_| !self.is_closed) else {
            return;
        };
        let is_parted =
            matches!(self.step, Step::Parting) && self.commits.is_empty() && !self.is_leave_awaited();
        if is_parted || deadline <= now {
            self.own(BTreeSet::new());
            self.is_closed = true;
            self.commits.end(&Error::Closed);
            self.fetches.end(&Error::Closed);
            self.events.push(GroupEvent::Left);
        }
    }
}
