//! The state machine of a group member: finds the coordinator, joins, sends heartbeats, commits and
//! fetches offsets.
//!
//! The consumer's machine passes on replies and calls `turn`; the front passes on the application's
//! calls. Nothing here uses sockets, clocks or threads.
//!
//! This file: inputs and outputs. `rebalance` is a member's way from the decision to join to its
//! assignment, `join` the requests on that way, `heartbeat` how membership is kept and given up,
//! `commit` and `committed` the offsets, `coordinator` the broker that receives all of these
//! requests.
//!
//! Rebalance listeners run on the application's thread, inside `poll`. The machine therefore
//! requests the call (`GroupEvent::Call`) and continues only when it is acknowledged
//! (`acknowledge`); heartbeats continue meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::assignor::user_data::LastAssignment;
use super::assignor::{RebalanceProtocol, common_protocol};
use super::commit::Commits;
use super::committed::Fetches;
use super::coordinator::{Coordinator, CoordinatorKind, CoordinatorLookup};
use super::group_network::GroupNetwork;
use super::heartbeat::Heartbeat;
use super::membership::Membership;
use super::poll_activity::PollActivity;
use super::rebalance::{Generation, MemberState, Rebalance, Step, Watch};
use super::subscription::Subscription;
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::config::{ConsumerConfig, GroupProtocol};
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::metrics::ConsumerMetrics;
use crate::network::backoff::{Backoff, Random};
use crate::network::cluster::Reply;
use crate::time::Moment;

/// Offsets by partition, as committed and fetched.
pub type Offsets = BTreeMap<TopicPartition, OffsetAndMetadata>;

/// What the group's machine reports to the consumer's.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupEvent {
    /// The application's thread must do this inside its next `poll` (or `close`, `unsubscribe`),
    /// then `acknowledge` it. A new call replaces an unanswered one (`close` in the middle of a
    /// rebalance).
    Call(RebalanceCall),
    /// From now on exactly these partitions are assigned. New ones must not be fetched, nor their
    /// offsets requested, before the following `Assigned` call is acknowledged: the listener may
    /// seek.
    AssignmentChanged(BTreeSet<TopicPartition>),
    /// In the order in which the commits were requested.
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
    /// The next `poll` must fail with this; the machine retries at the poll after that. After a
    /// fatal error it does nothing more.
    Failed(Error),
    /// The member has left, as `unsubscribe` or `close` requested.
    Left,
}

/// A rebalance step for the application's thread.
#[derive(Clone, Debug, PartialEq)]
pub struct RebalanceCall {
    pub id: u64,
    pub step: RebalanceStep,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RebalanceStep {
    /// A rebalance begins. Records of `pause` are no longer handed out, fetched ones are dropped;
    /// the acknowledgement carries the consumed offsets of every assigned partition (an automatic
    /// commit follows).
    Prepare { pause: BTreeSet<TopicPartition> },
    /// `onPartitionsRevoked`: still owned during the callback, which may commit.
    Revoked(BTreeSet<TopicPartition>),
    /// `onPartitionsLost`: others may own them already.
    Lost(BTreeSet<TopicPartition>),
    /// `onPartitionsAssigned` with the added ones, possibly none.
    Assigned(BTreeSet<TopicPartition>),
}

/// How long a commit is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitKind {
    /// `commitSync`: retriable errors are retried until the deadline.
    Sync { deadline: Moment },
    /// `commitAsync`: one attempt, so that a retry never overtakes a later commit.
    Async,
}

/// The data with which a producer commits offsets in a transaction for this member.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupMetadata {
    pub group_id: Arc<str>,
    pub generation_id: i32,
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
}

/// Kept with a request of the group and returned with its reply.
#[derive(Clone, Debug)]
pub enum GroupTicket {
    FindCoordinator,
    /// `attempt` distinguishes the awaited answer from those of abandoned attempts.
    Join {
        attempt: u64,
        sent: Generation,
    },
    Sync {
        attempt: u64,
        sent: Generation,
    },
    Heartbeat {
        sent: Generation,
    },
    Leave,
    /// DescribeGroups, of the own group.
    Describe {
        sent: Generation,
    },
    /// ConsumerGroupHeartbeat (KIP-848); below 0 to leave.
    Membership {
        sent_epoch: i32,
    },
    Commit {
        number: u64,
        sent: Generation,
    },
    FetchOffsets {
        ticket: u64,
    },
}

/// The state machine of one group member.
pub struct GroupMembership {
    pub(super) config: Arc<ConsumerConfig>,
    pub(super) group_id: Arc<str>,
    pub(super) protocol: RebalanceProtocol,
    pub(super) activity: Arc<PollActivity>,
    pub(super) metrics: Arc<ConsumerMetrics>,
    pub(super) backoff: Backoff,
    pub(super) random: Random,

    pub(super) coordinator: Coordinator,
    pub(super) subscription: Subscription,
    /// The topics that `subscription` resolves to.
    pub(super) topics: BTreeSet<Arc<str>>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) watch: Watch,
    /// Topics whose metadata is wanted.
    pub(super) wanted: Option<BTreeSet<Arc<str>>>,

    pub(super) state: MemberState,
    pub(super) generation: Generation,
    pub(super) assignment: BTreeSet<TopicPartition>,
    pub(super) last_assignment: LastAssignment,
    pub(super) rebalance: Rebalance,
    pub(super) step: Step,
    pub(super) calls: u64,
    pub(super) heartbeat: Heartbeat,
    /// With `group.protocol=consumer`, in place of joining and `heartbeat`.
    pub(super) membership: Option<Membership>,
    pub(super) commits: Commits,
    pub(super) fetches: Fetches,

    /// The deadline of `close`.
    pub(super) closing: Option<Moment>,
    pub(super) is_closed: bool,
    /// A fatal error was reported.
    pub(super) is_failed: bool,
    /// No retry before the application has polled more often than this.
    pub(super) polls_before_retry: Option<u64>,
    pub(super) events: Vec<GroupEvent>,
}

impl fmt::Debug for GroupMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMembership")
            .field("state", &self.state)
            .field("generation", &self.generation)
            .field("step", &self.step)
            .field("subscription", &self.subscription)
            .field("topics", &self.topics)
            .field("assignment", &self.assignment)
            .field("coordinator", &self.coordinator)
            .field("rebalance", &self.rebalance)
            .field("heartbeat", &self.heartbeat)
            .finish_non_exhaustive()
    }
}

impl GroupMembership {
    /// - `config.group_id` must be set.
    /// - `seed`: of the jitter in backoffs.
    pub fn new(
        config: Arc<ConsumerConfig>,
        activity: Arc<PollActivity>,
        metrics: Arc<ConsumerMetrics>,
        seed: u64,
    ) -> GroupMembership {
        let group_id = config.group_id.clone().unwrap_or_else(|| "".into());
        let client = &config.client;
        let backoff = Backoff::new(client.retry_backoff_ms, client.retry_backoff_ms_max);
        let coordinator = Coordinator::new(
            CoordinatorKind::Group,
            group_id.clone(),
            client.request_timeout_ms,
            backoff,
            seed ^ 0xc00d,
        );
        let mut random = Random::new(seed);
        let membership = match config.group_protocol {
            GroupProtocol::Classic => None,
            GroupProtocol::Consumer => Some(Membership::new(&mut random)),
        };
        GroupMembership {
            membership,
            protocol: common_protocol(&config.assignors),
            coordinator,
            heartbeat: Heartbeat::new(&config),
            commits: Commits::default(),
            fetches: Fetches::default(),
            group_id,
            activity,
            metrics,
            backoff,
            random,
            subscription: Subscription::None,
            topics: BTreeSet::new(),
            snapshot: Arc::default(),
            watch: Watch::default(),
            wanted: Some(BTreeSet::new()),
            state: MemberState::Unjoined,
            generation: Generation::default(),
            assignment: BTreeSet::new(),
            last_assignment: LastAssignment::default(),
            rebalance: Rebalance::default(),
            step: Step::Idle,
            calls: 0,
            closing: None,
            is_closed: false,
            is_failed: false,
            polls_before_retry: None,
            events: Vec::new(),
            config,
        }
    }

    /// Changes the subscription; `Subscription::None` is `unsubscribe`: a call revokes the
    /// assignment, the member leaves the group, and `Left` is reported.
    pub fn subscribe(&mut self, now: Moment, subscription: Subscription) {
        if self.closing.is_some() || self.is_closed {
            return;
        }
        self.watch.pattern_since = self.snapshot.version;
        self.subscription = subscription;
        self.resolve_subscription();
        if self.subscription.is_none() {
            self.begin_leaving(now);
        } else if self.rebalance.rejoin_reason.is_none() && self.state == MemberState::Unjoined {
            self.request_rejoin("");
        }
    }

    /// `Consumer.enforceRebalance` (KIP-568).
    pub fn request_rejoin(&mut self, reason: &str) {
        self.rebalance.rejoin_reason = Some(reason.into());
    }

    /// Commits automatically if enabled, has a call revoke the assignment, leaves the group (a
    /// static member stays) and waits for requests in flight, at most until `deadline`. Then
    /// `is_closed` is true.
    pub fn close(&mut self, now: Moment, deadline: Moment) {
        if self.closing.is_some() || self.is_closed {
            return;
        }
        self.closing = Some(deadline);
        self.activity.set_auto_commit_due(Moment::NEVER);
        self.begin_closing(now);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The partitions that the member owns as far as it knows.
    pub fn assignment(&self) -> &BTreeSet<TopicPartition> {
        &self.assignment
    }

    /// All topics whose metadata must be kept; `None`: all, for a pattern. A leader needs more once
    /// it has joined.
    pub fn metadata_topics(&self) -> Option<BTreeSet<Arc<str>>> {
        self.wanted.clone()
    }

    /// Whether it has its assignment, the application's thread knows it, and no rebalance is
    /// needed.
    pub fn is_stable(&self) -> bool {
        self.state == MemberState::Stable
            && matches!(self.step, Step::Idle)
            && self.rebalance.rejoin_reason.is_none()
    }

    pub fn group_metadata(&self) -> GroupMetadata {
        GroupMetadata {
            group_id: self.group_id.clone(),
            generation_id: self.generation.id,
            member_id: self.generation.member_id.clone(),
            group_instance_id: self.config.group_instance_id.clone(),
        }
    }

    /// Handles a reply. Requests that follow from it are sent in the next `turn`.
    pub fn take_reply(&mut self, now: Moment, reply: Reply<GroupTicket>) {
        if self.is_closed {
            return;
        }
        let is_to_coordinator = !matches!(reply.ticket, GroupTicket::FindCoordinator);
        if is_to_coordinator && reply.result.is_err() {
            self.coordinator.lost(now, reply.node);
        }
        match reply.ticket.clone() {
            GroupTicket::FindCoordinator => match self.coordinator.answered(now, &reply) {
                CoordinatorLookup::Yes => self.heartbeat.reset_session(now),
                CoordinatorLookup::No(error) => self.commits.coordinator_not_found(&error),
                CoordinatorLookup::Refused(error) => {
                    self.commits.coordinator_not_found(&error);
                    self.fetches.end(&error);
                    self.fail(error);
                }
            },
            GroupTicket::Join { attempt, sent } => self.joined(now, attempt, &sent, &reply),
            GroupTicket::Sync { attempt, sent } => self.synced(now, attempt, &sent, &reply),
            GroupTicket::Heartbeat { sent } => self.heartbeat_answered(now, &sent, &reply),
            GroupTicket::Leave => self.left(now),
            GroupTicket::Describe { sent } => self.described(&sent, &reply),
            GroupTicket::Membership { sent_epoch } => self.membership_answered(now, sent_epoch, &reply),
            GroupTicket::Commit { number, sent } => self.commit_answered(now, number, &sent, &reply),
            GroupTicket::FetchOffsets { ticket } => self.offsets_answered(now, ticket, &reply),
        }
    }

    /// Does what is due and appends the events.
    pub fn turn(&mut self, now: Moment, network: &mut dyn GroupNetwork, events: &mut Vec<GroupEvent>) {
        if !self.is_closed && !self.is_failed {
            self.notice_metadata(network);
            self.begin_auto_commits(now);
            self.expire(now);
            let node = self.coordinator_node(now, network);
            if self.membership.is_some() {
                while self.advance_membership(now, network) {}
                self.send_membership(now, node, network);
            } else {
                while self.advance(now, node, network) {}
                self.send_heartbeat(now, node, network);
                self.send_describe(now, node, network);
            }
            self.send_commits(now, node, network);
            self.send_fetches(now, node, network);
        }
        self.finish_closing(now);
        self.report_commits(now);
        events.append(&mut self.events);
        self.fetches.report(events);
    }

    /// The coordinator, if there is something to send to it and it can be sent.
    fn coordinator_node(&mut self, now: Moment, network: &mut dyn GroupNetwork) -> Option<NodeId> {
        if !self.needs_coordinator() {
            return None;
        }
        match self.coordinator.ready(now, network) {
            Ok(node) => node,
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn needs_coordinator(&self) -> bool {
        let is_member = !self.subscription.is_none() && self.may_try();
        let has_work = is_member || self.has_leave_to_send();
        has_work || self.step.is_leaving() || !self.commits.is_empty() || !self.fetches.is_empty()
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        if self.is_closed {
            return None;
        }
        if self.is_failed {
            return self.closing;
        }
        let coordinator = self.coordinator.due().filter(|_| self.needs_coordinator());
        [
            coordinator,
            self.closing,
            self.step_deadline(),
            self.heartbeat_deadline(),
            self.commits.next_deadline(self.coordinator.is_known()),
            self.fetches.next_deadline(self.coordinator.is_known()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Reports the error, and retries nothing before the application polls again.
    pub(super) fn fail(&mut self, error: Error) {
        if error.is_fatal() {
            self.is_failed = true;
            self.commits.end(&error);
            self.fetches.end(&error);
        }
        events::group_failed(&self.config.client.client_id, &self.group_id, &error);
        self.polls_before_retry = Some(self.activity.polls());
        self.activity.await_poll();
        self.events.push(GroupEvent::Failed(error));
    }

    /// Whether the application polls often enough, and has polled since the last failure.
    pub(super) fn may_try(&self) -> bool {
        self.polls_before_retry
            .is_none_or(|polls| self.activity.polls() > polls)
    }

    pub(super) fn backoff_after(&mut self, now: Moment, failures: u32) -> Moment {
        Moment::from_nanos(
            now.nanos()
                .saturating_add(self.backoff.nanos(failures, &mut self.random)),
        )
    }
}
