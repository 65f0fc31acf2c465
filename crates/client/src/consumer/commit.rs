//! Offset commits, in the order of the requests: a retry never overtakes a later commit, and
//! results are reported in that order.

use std::collections::VecDeque;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::primitives::Reader;

use super::group::{CommitKind, GroupEvent, GroupMembership, GroupTicket, Offsets};
use super::group_network::GroupNetwork;
use super::join::{malformed, needed_for_static};
use super::rebalance::{Generation, MemberState};
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::Reply;
use crate::time::Moment;

/// First versions with leader epochs (KIP-320) and `group_instance_id` (KIP-345).
const LEADER_EPOCH_VERSION: i16 = 6;
const STATIC_VERSION: i16 = 7;
/// The first version with member epochs (KIP-848).
const MEMBER_EPOCH_VERSION: i16 = 9;
/// Later versions name topics by id.
const NAMES_MAX_VERSION: i16 = 9;

/// Where a commit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    User {
        ticket: u64,
    },
    /// Every auto.commit.interval.ms.
    Auto,
    /// A step of a rebalance or of closing.
    Step,
}

#[derive(Debug)]
struct Commit {
    number: u64,
    origin: Origin,
    offsets: Offsets,
    kind: CommitKind,
    /// When waiting for the coordinator, or for retries, ends.
    expires: Moment,
    failures: u32,
    not_before: Option<Moment>,
    state: CommitState,
}

#[derive(Clone, Debug, PartialEq)]
enum CommitState {
    Waiting,
    Sent,
    Done(Result<(), Error>),
}

#[derive(Debug, Default)]
pub struct Commits {
    queue: VecDeque<Commit>,
    next_number: u64,
    /// Offsets for an automatic commit whose timeout starts with the next turn.
    is_auto_commit_timed: bool,
}

impl Commits {
    pub fn push(&mut self, origin: Origin, offsets: Offsets, kind: CommitKind, expires: Moment) {
        self.next_number += 1;
        let is_wrong = offsets.values().find(|offset| offset.offset < 0);
        let state = match is_wrong {
            Some(wrong) => CommitState::Done(Err(Error::InvalidArgument {
                message: format!("offset {} cannot be committed", wrong.offset).into(),
            })),
            None if offsets.is_empty() => CommitState::Done(Ok(())),
            None => CommitState::Waiting,
        };
        self.queue.push_back(Commit {
            number: self.next_number,
            origin,
            offsets,
            kind,
            expires,
            failures: 0,
            not_before: None,
            state,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn is_step_done(&self) -> bool {
        !self
            .queue
            .iter()
            .any(|commit| commit.origin == Origin::Step && !matches!(commit.state, CommitState::Done(_)))
    }

    /// Drops the step's commit: nothing waits for it any more.
    pub fn forget_step(&mut self) {
        self.queue.retain(|commit| commit.origin != Origin::Step);
    }

    /// `commitAsync` makes one attempt, and finding the coordinator is part of it.
    pub fn coordinator_not_found(&mut self, error: &Error) {
        for commit in &mut self.queue {
            if commit.kind == CommitKind::Async && commit.state == CommitState::Waiting {
                commit.state = CommitState::Done(Err(error.clone()));
            }
        }
    }

    /// Fails everything; nothing is sent any more.
    pub fn end(&mut self, error: &Error) {
        for commit in &mut self.queue {
            if !matches!(commit.state, CommitState::Done(_)) {
                commit.state = CommitState::Done(Err(error.clone()));
            }
        }
    }

    pub fn next_deadline(&self, is_coordinator_known: bool) -> Option<Moment> {
        let of_commit = |commit: &Commit| match commit.state {
            CommitState::Done(_) => None,
            CommitState::Sent => matches!(commit.kind, CommitKind::Sync { .. }).then_some(commit.expires),
            CommitState::Waiting => {
                let retry = commit.not_before.filter(|_| is_coordinator_known);
                Some(retry.map_or(commit.expires, |retry| retry.min(commit.expires)))
            }
        };
        self.queue.iter().filter_map(of_commit).min()
    }

    fn expire(&mut self, now: Moment, timeout: impl Fn() -> Error) {
        for commit in &mut self.queue {
            let is_limited = match commit.state {
                CommitState::Waiting => true,
                CommitState::Sent => matches!(commit.kind, CommitKind::Sync { .. }),
                CommitState::Done(_) => false,
            };
            if is_limited && commit.expires <= now {
                commit.state = CommitState::Done(Err(timeout()));
            }
        }
    }
}

impl GroupMembership {
    /// Commits on the application's behalf; `ticket` is the caller's and comes back in `Committed`.
    pub fn commit(&mut self, now: Moment, ticket: u64, offsets: Offsets, kind: CommitKind) {
        let expires = match kind {
            CommitKind::Sync { deadline } => deadline,
            CommitKind::Async => now.after_ms(self.config.client.request_timeout_ms),
        };
        self.commits.push(Origin::User { ticket }, offsets, kind, expires);
        if self.is_closed || self.is_failed {
            self.commits.end(&Error::Closed);
        }
    }

    /// Automatic commit of the consumed offsets; see `PollActivity::auto_commit_due`.
    pub fn auto_commit(&mut self, now: Moment, consumed: Offsets) {
        if !self.config.auto_commit_enabled || self.closing.is_some() {
            return;
        }
        self.postpone_auto_commit(now, self.config.auto_commit_interval_ms);
        let expires = now.after_ms(self.config.client.request_timeout_ms);
        self.commits
            .push(Origin::Auto, consumed, CommitKind::Async, expires);
    }

    pub(super) fn begin_auto_commits(&mut self, now: Moment) {
        if self.config.auto_commit_enabled && !self.commits.is_auto_commit_timed {
            self.commits.is_auto_commit_timed = true;
            self.postpone_auto_commit(now, self.config.auto_commit_interval_ms);
        }
    }

    pub(super) fn postpone_auto_commit(&mut self, now: Moment, by_ms: u64) {
        if self.config.auto_commit_enabled && self.closing.is_none() {
            self.activity.set_auto_commit_due(now.after_ms(by_ms));
        }
    }

    pub(super) fn send_commits(&mut self, now: Moment, node: Option<NodeId>, network: &mut dyn GroupNetwork) {
        let limit_ms = self.config.default_api_timeout_ms;
        self.commits.expire(now, || Error::Timeout {
            what: "offset commit".into(),
            limit_ms,
            setting: "default.api.timeout.ms",
        });
        for index in 0..self.commits.queue.len() {
            let commit = &mut self.commits.queue[index];
            if commit.state == CommitState::Waiting {
                if commit.not_before.is_some_and(|not_before| not_before > now) {
                    return;
                }
                commit.not_before = None;
                let Some(node) = node else {
                    return;
                };
                self.send_commit(now, index, node, network);
            }
            // A commit that may be retried must be done before a later one is sent.
            let commit = &self.commits.queue[index];
            if commit.kind != CommitKind::Async && !matches!(commit.state, CommitState::Done(_)) {
                return;
            }
        }
    }

    fn send_commit(&mut self, now: Moment, index: usize, node: NodeId, network: &mut dyn GroupNetwork) {
        let as_member = !self.subscription.is_none() || !self.assignment.is_empty();
        let generation = match (as_member, self.state) {
            (false, _) => Generation::default(),
            (true, MemberState::Stable) => self.generation.clone(),
            (true, MemberState::Unjoined) => {
                let reason =
                    "the consumer is not part of an active group; it is likely that it was kicked out of it";
                self.commits.queue[index].state = CommitState::Done(Err(Error::CommitFailed {
                    reason: reason.into(),
                }));
                return;
            }
            (true, _) => {
                let error = self.refused(ErrorCode::RebalanceInProgress.code());
                self.commits.queue[index].state = CommitState::Done(Err(error));
                return;
            }
        };
        let instance_id = self.config.group_instance_id.clone().filter(|_| as_member);
        let needed_min = match self.membership {
            Some(_) => MEMBER_EPOCH_VERSION,
            None => needed_for_static(instance_id.is_some(), STATIC_VERSION),
        };
        let version = network.version_within(node, ApiKey::OffsetCommit, needed_min, NAMES_MAX_VERSION);
        let api_version = match version {
            Ok(version) => version,
            Err(error) => {
                self.commits.queue[index].state = CommitState::Done(Err(error));
                return;
            }
        };
        let commit = &mut self.commits.queue[index];
        let message = OffsetCommitRequest {
            group_id: &self.group_id,
            generation_id_or_member_epoch: generation.id,
            member_id: &generation.member_id,
            group_instance_id: instance_id.as_deref(),
            topics: topics(&commit.offsets, api_version >= LEADER_EPOCH_VERSION),
            ..OffsetCommitRequest::default()
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        commit.state = CommitState::Sent;
        let number = commit.number;
        let request = self.small_request(ApiKey::OffsetCommit, api_version, body);
        network.send(
            now,
            node,
            request,
            GroupTicket::Commit {
                number,
                sent: generation,
            },
        );
    }

    pub(super) fn commit_answered(
        &mut self,
        now: Moment,
        number: u64,
        sent: &Generation,
        reply: &Reply<GroupTicket>,
    ) {
        let result = match &reply.result {
            Err(error) => Err(error.clone()),
            Ok(body) => {
                self.metrics.committed(reply.latency_nanos);
                match OffsetCommitResponse::decode(&mut Reader::new(body), reply.api_version) {
                    Ok(response) => self.judge_commit(now, sent, &response),
                    Err(error) => Err(malformed("OffsetCommit", &error)),
                }
            }
        };
        let Some(index) = self
            .commits
            .queue
            .iter()
            .position(|commit| commit.number == number)
        else {
            return;
        };
        let failures = self.commits.queue[index].failures;
        let retry_at = self.backoff_after(now, failures);
        let commit = &mut self.commits.queue[index];
        if commit.state != CommitState::Sent {
            return;
        }
        match result {
            // The next heartbeat brings the newer epoch.
            Err(error) if (error.is_retriable() || is_stale(&error)) && commit.kind != CommitKind::Async => {
                commit.failures = failures.saturating_add(1);
                commit.not_before = Some(retry_at);
                commit.state = CommitState::Waiting;
            }
            result => commit.state = CommitState::Done(result),
        }
    }

    /// The first error decides, as in Kafka; only topics that we may not read are collected.
    fn judge_commit(
        &mut self,
        now: Moment,
        sent: &Generation,
        response: &OffsetCommitResponse<'_>,
    ) -> Result<(), Error> {
        let mut unauthorized = Vec::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let code = ErrorCode::from_i16(partition.error_code);
                match code {
                    Some(ErrorCode::None) => {}
                    Some(ErrorCode::TopicAuthorizationFailed) => {
                        if !unauthorized.contains(&topic.name) {
                            unauthorized.push(topic.name);
                        }
                    }
                    Some(ErrorCode::GroupAuthorizationFailed) => {
                        return Err(self.refused(partition.error_code));
                    }
                    Some(
                        code @ (ErrorCode::UnknownMemberId
                        | ErrorCode::IllegalGeneration
                        | ErrorCode::FencedInstanceId
                        | ErrorCode::RebalanceInProgress),
                    ) => return Err(self.commit_out_of_place(sent, code)),
                    _ => {
                        if matches!(
                            code,
                            Some(
                                ErrorCode::CoordinatorNotAvailable
                                    | ErrorCode::NotCoordinator
                                    | ErrorCode::RequestTimedOut
                            )
                        ) {
                            self.coordinator.forget(now, true);
                        }
                        let what = || format!("{}-{}", topic.name, partition.partition_index).into();
                        return Err(Error::from_code(partition.error_code, what).unwrap_or(Error::Closed));
                    }
                }
            }
        }
        if unauthorized.is_empty() {
            Ok(())
        } else {
            Err(Error::broker(
                ErrorCode::TopicAuthorizationFailed,
                unauthorized.join(", "),
            ))
        }
    }

    /// The group does not accept commits from this member or from this generation.
    fn commit_out_of_place(&mut self, sent: &Generation, code: ErrorCode) -> Error {
        let failed = || Error::CommitFailed {
            reason: "the group has already rebalanced and assigned the partitions to another member".into(),
        };
        let rebalancing = self.refused(ErrorCode::RebalanceInProgress.code());
        let is_current = self.generation == *sent;
        let has_moved_on = !is_current && self.state == MemberState::PreparingRebalance;
        match code {
            ErrorCode::RebalanceInProgress => {
                if self.state == MemberState::Stable {
                    self.request_rejoin("offset commit failed since group is already rebalancing");
                }
                rebalancing
            }
            _ if sent.is_lost() => self.refused(code.code()),
            ErrorCode::FencedInstanceId if is_current => {
                let error = self.refused(code.code());
                self.fail(error.clone());
                error
            }
            _ if has_moved_on => rebalancing,
            ErrorCode::FencedInstanceId => failed(),
            _ => {
                if is_current {
                    let reason = format!("encountered {} from OFFSET_COMMIT response", code.name());
                    self.reset(&reason, code == ErrorCode::IllegalGeneration);
                }
                failed()
            }
        }
    }

    /// Reports results from the front of the queue.
    pub(super) fn report_commits(&mut self, now: Moment) {
        while let Some(CommitState::Done(_)) = self.commits.queue.front().map(|commit| &commit.state) {
            let Some(commit) = self.commits.queue.pop_front() else {
                return;
            };
            let CommitState::Done(result) = commit.state else {
                return;
            };
            match (commit.origin, result) {
                (Origin::User { ticket }, result) => {
                    self.events.push(GroupEvent::Committed {
                        ticket,
                        offsets: commit.offsets,
                        result,
                    });
                }
                (Origin::Auto, Err(error)) if error.is_retriable() => {
                    self.postpone_auto_commit(now, self.config.client.retry_backoff_ms);
                }
                (Origin::Auto | Origin::Step, _) => {}
            }
        }
    }
}

/// The member has a newer epoch than the request.
pub(super) fn is_stale(error: &Error) -> bool {
    matches!(
        error,
        Error::Broker {
            code: ErrorCode::StaleMemberEpoch,
            ..
        }
    )
}

fn topics(offsets: &Offsets, with_leader_epochs: bool) -> Vec<OffsetCommitRequestTopic<'_>> {
    let mut topics: Vec<OffsetCommitRequestTopic<'_>> = Vec::new();
    for (partition, offset) in offsets {
        if topics.last().is_none_or(|last| *last.name != *partition.topic) {
            topics.push(OffsetCommitRequestTopic {
                name: &partition.topic,
                ..Default::default()
            });
        }
        let leader_epoch = offset.leader_epoch.filter(|_| with_leader_epochs);
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(OffsetCommitRequestPartition {
                partition_index: partition.partition,
                committed_offset: offset.offset,
                committed_leader_epoch: leader_epoch.unwrap_or(-1),
                committed_metadata: Some(&offset.metadata),
            });
        }
    }
    topics
}
