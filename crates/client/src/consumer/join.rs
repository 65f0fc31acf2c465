//! JoinGroup and SyncGroup: a member's subscription, and the assignment that a leader sends.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_wire::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use ottla_wire::primitives::Reader;

use super::assignor::subscription::{MemberSubscription, decode_assignment, encode_assignment};
use super::assignor::topics::replicas;
use super::group::{GroupMembership, GroupTicket};
use super::group_network::GroupNetwork;
use super::rebalance::{Generation, MemberState, Step};
use crate::config::AssignorKind;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::{Reply, Request};
use crate::time::Moment;

pub const PROTOCOL_TYPE: &str = "consumer";
/// What JoinGroup may take beyond the rebalance timeout, as in Kafka.
const JOIN_LAPSE_MS: u64 = 5_000;
/// How long a leader waits for metadata of topics new to it before it assigns the partitions it
/// knows. Topics that appear later start another rebalance.
const METADATA_WAIT_MS: u64 = 2_000;
/// A topic still missing this many metadata responses after the request does not exist: the first
/// may have been in flight already.
const METADATA_ANSWERS: u64 = 2;
/// Longer reasons are cut, as in Kafka (KIP-800).
const REASON_CHARS_MAX: usize = 255;

/// First versions with `group_instance_id` (KIP-345).
const JOIN_STATIC_VERSION: i16 = 5;
const SYNC_STATIC_VERSION: i16 = 3;
/// First version with protocol type and name (KIP-559).
const SYNC_PROTOCOL_VERSION: i16 = 5;

/// A group as described to its leader.
#[derive(Debug)]
pub struct Joined {
    assignor: AssignorKind,
    members: Vec<MemberSubscription>,
    topics: BTreeSet<Arc<str>>,
    /// A static leader came back: every member keeps its partitions (KIP-814).
    keeps_assignment: bool,
    snapshot_version: u64,
}

pub fn text_cut(text: &str) -> &str {
    text.char_indices()
        .nth(REASON_CHARS_MAX)
        .map_or(text, |(end, _)| &text[..end])
}

pub fn needed_for_static(is_static: bool, version: i16) -> i16 {
    if is_static { version } else { 0 }
}

impl GroupMembership {
    pub(super) fn send_join(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) -> bool {
        if self
            .rebalance
            .not_before
            .is_some_and(|not_before| not_before > now)
        {
            return false;
        }
        self.rebalance.not_before = None;
        let (Some(node), true) = (node, self.may_try() && self.is_user_alive(now)) else {
            self.activity.await_poll();
            return false;
        };
        let is_static = self.config.group_instance_id.is_some();
        let needed_min = needed_for_static(is_static, JOIN_STATIC_VERSION);
        let api_version = match network.version(node, ApiKey::JoinGroup, needed_min) {
            Ok(version) => version,
            Err(error) => {
                self.fail(error);
                return false;
            }
        };
        let body = self.join_request(api_version);
        let client = &self.config.client;
        let request = Request {
            api_key: ApiKey::JoinGroup,
            api_version,
            body: vec![body.into()],
            timeout_ms: client
                .request_timeout_ms
                .max(self.config.max_poll_interval_ms.saturating_add(JOIN_LAPSE_MS)),
            expects_answer: true,
        };
        self.rebalance.attempt += 1;
        self.rebalance.started.get_or_insert(now);
        self.rebalance.joined_topics = Some(self.topics.clone());
        self.state = MemberState::PreparingRebalance;
        self.step = Step::Joining;
        let ticket = GroupTicket::Join {
            attempt: self.rebalance.attempt,
            sent: self.generation.clone(),
        };
        network.send(now, node, request, ticket);
        true
    }

    fn join_request(&self, api_version: i16) -> Vec<u8> {
        let protocols: Vec<(&str, Vec<u8>)> = self
            .config
            .assignors
            .iter()
            .map(|assignor| {
                let subscription = MemberSubscription {
                    topics: self.topics.iter().cloned().collect(),
                    user_data: self.last_assignment.user_data(*assignor),
                    owned: self.assignment.iter().cloned().collect(),
                    generation: Some(self.generation.id).filter(|id| *id >= 0),
                    rack: Some(self.config.client.client_rack.clone()).filter(|rack| !rack.is_empty()),
                    ..MemberSubscription::default()
                };
                (assignor.protocol_name(), subscription.encode())
            })
            .collect();
        let message = JoinGroupRequest {
            group_id: &self.group_id,
            session_timeout_ms: millis(self.config.session_timeout_ms),
            rebalance_timeout_ms: millis(self.config.max_poll_interval_ms),
            member_id: &self.generation.member_id,
            group_instance_id: self.config.group_instance_id.as_deref(),
            protocol_type: PROTOCOL_TYPE,
            protocols: protocols
                .iter()
                .map(|(name, metadata)| JoinGroupRequestProtocol { name, metadata })
                .collect(),
            reason: self.rebalance.rejoin_reason.as_deref().map(text_cut),
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        body
    }

    pub(super) fn joined(
        &mut self,
        now: Moment,
        attempt: u64,
        sent: &Generation,
        reply: &Reply<GroupTicket>,
    ) {
        if attempt != self.rebalance.attempt || !matches!(self.step, Step::Joining) {
            return;
        }
        let body = match &reply.result {
            Ok(body) => body,
            Err(error) => return self.join_again_or_fail(now, error.clone()),
        };
        let response = match JoinGroupResponse::decode(&mut Reader::new(body), reply.api_version) {
            Ok(response) => response,
            Err(error) => return self.join_failed(malformed("JoinGroup", &error)),
        };
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => {
                self.metrics.group_joined(reply.latency_nanos);
                if let Err(error) = self.accept_join(now, &response) {
                    self.join_failed(error);
                }
            }
            Some(ErrorCode::MemberIdRequired) => {
                // KIP-394: the coordinator has chosen our id and adds the member only when it comes
                // back with it.
                self.generation = Generation {
                    member_id: response.member_id.into(),
                    ..Generation::default()
                };
                self.request_rejoin(&format!(
                    "need to re-join with the given member-id: {}",
                    response.member_id
                ));
                self.metrics.rebalance_failed();
                self.step = Step::Join;
            }
            Some(ErrorCode::UnknownMemberId) => {
                if self.generation == *sent {
                    self.reset("encountered UNKNOWN_MEMBER_ID from JOIN_GROUP response", false);
                }
                self.join_at_once();
            }
            Some(ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator) => {
                self.coordinator.forget(now, true);
                self.join_later(now);
            }
            Some(ErrorCode::CoordinatorLoadInProgress) => self.join_later(now),
            Some(ErrorCode::RebalanceInProgress) => self.join_at_once(),
            _ => self.join_failed(self.refused(response.error_code)),
        }
    }

    fn accept_join(&mut self, now: Moment, response: &JoinGroupResponse<'_>) -> Result<(), Error> {
        if response
            .protocol_type
            .is_some_and(|protocol| protocol != PROTOCOL_TYPE)
        {
            return Err(self.refused(ErrorCode::InconsistentGroupProtocol.code()));
        }
        let name = response.protocol_name.unwrap_or_default();
        let assignor = self.assignor(name)?;
        self.generation = Generation {
            id: response.generation_id,
            member_id: response.member_id.into(),
            protocol: Some(assignor),
        };
        self.metrics.member_named(&self.generation.member_id);
        self.state = MemberState::CompletingRebalance;
        self.rebalance.failures = 0;
        self.heartbeat.reset(now);
        if response.leader != response.member_id {
            self.step = Step::Sync {
                assignments: Vec::new(),
            };
            return Ok(());
        }
        let mut members = Vec::new();
        for member in &response.members {
            let decoded =
                MemberSubscription::decode(member.member_id, member.group_instance_id, member.metadata);
            members.push(decoded.map_err(|error| malformed(member.member_id, &error))?);
        }
        let topics: BTreeSet<Arc<str>> = members
            .iter()
            .flat_map(|member| member.topics.iter().cloned())
            .collect();
        self.rebalance.is_leader = true;
        self.watch.group_topics = topics.clone();
        self.watch.distributed = None;
        self.watch.is_unchecked = false;
        self.resolve_subscription();
        let joined = Joined {
            assignor,
            members,
            topics,
            keeps_assignment: response.skip_assignment,
            snapshot_version: self.snapshot.version,
        };
        self.step = Step::AwaitingMetadata {
            joined,
            until: now.after_ms(METADATA_WAIT_MS),
        };
        Ok(())
    }

    fn assignor(&self, name: &str) -> Result<AssignorKind, Error> {
        let found = self
            .config
            .assignors
            .iter()
            .find(|assignor| assignor.protocol_name() == name);
        found.copied().ok_or_else(|| Error::IllegalState {
            message: format!(
                "the coordinator of {} chose {name:?}, which this member did not offer",
                self.group_id
            )
            .into(),
        })
    }

    pub(super) fn distribute_when_known(&mut self, now: Moment) -> bool {
        let Step::AwaitingMetadata { joined, until } = &self.step else {
            return false;
        };
        let is_known = |topic: &Arc<str>| {
            self.snapshot.topics.contains_key(topic) || self.snapshot.refused.contains_key(topic)
        };
        let is_fresh = self.snapshot.version >= joined.snapshot_version + METADATA_ANSWERS;
        if !is_fresh && *until > now && !joined.topics.iter().all(is_known) {
            return false;
        }
        let assignments = if joined.keeps_assignment {
            Vec::new()
        } else {
            joined
                .assignor
                .assign(&replicas(&self.snapshot, &joined.topics), &joined.members)
                .iter()
                .map(|(member, partitions)| (member.clone(), encode_assignment(partitions)))
                .collect()
        };
        self.watch.distributed = Some(self.watched_replicas(&joined.topics));
        self.watch.is_outdated = false;
        self.watch.is_unchecked = joined.keeps_assignment;
        self.step = Step::Sync { assignments };
        true
    }

    pub(super) fn send_sync(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) -> bool {
        let (Some(node), Step::Sync { assignments }) = (node, &self.step) else {
            return false;
        };
        let is_static = self.config.group_instance_id.is_some();
        let needed_min = needed_for_static(is_static, SYNC_STATIC_VERSION);
        let api_version = match network.version(node, ApiKey::SyncGroup, needed_min) {
            Ok(version) => version,
            Err(error) => {
                self.join_failed(error);
                return false;
            }
        };
        let names_protocol = api_version >= SYNC_PROTOCOL_VERSION;
        let message = SyncGroupRequest {
            group_id: &self.group_id,
            generation_id: self.generation.id,
            member_id: &self.generation.member_id,
            group_instance_id: self.config.group_instance_id.as_deref(),
            protocol_type: names_protocol.then_some(PROTOCOL_TYPE),
            protocol_name: self
                .generation
                .protocol
                .filter(|_| names_protocol)
                .map(AssignorKind::protocol_name),
            assignments: assignments
                .iter()
                .map(|(member_id, assignment)| SyncGroupRequestAssignment {
                    member_id,
                    assignment,
                })
                .collect(),
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        let request = Request {
            api_key: ApiKey::SyncGroup,
            api_version,
            body: vec![body.into()],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        let ticket = GroupTicket::Sync {
            attempt: self.rebalance.attempt,
            sent: self.generation.clone(),
        };
        self.step = Step::Syncing;
        network.send(now, node, request, ticket);
        true
    }

    pub(super) fn synced(
        &mut self,
        now: Moment,
        attempt: u64,
        sent: &Generation,
        reply: &Reply<GroupTicket>,
    ) {
        if attempt != self.rebalance.attempt || !matches!(self.step, Step::Syncing) {
            return;
        }
        let body = match &reply.result {
            Ok(body) => body,
            Err(error) => return self.join_again_or_fail(now, error.clone()),
        };
        let response = match SyncGroupResponse::decode(&mut Reader::new(body), reply.api_version) {
            Ok(response) => response,
            Err(error) => return self.join_failed(malformed("SyncGroup", &error)),
        };
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => {
                self.metrics.group_synced(reply.latency_nanos);
                if let Err(error) = self.accept_sync(now, &response) {
                    self.join_failed(error);
                }
            }
            Some(ErrorCode::RebalanceInProgress) => self.join_at_once(),
            Some(code @ (ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration)) => {
                if self.generation == *sent {
                    let reason = format!("encountered {} from SYNC_GROUP response", code.name());
                    self.reset(&reason, code == ErrorCode::IllegalGeneration);
                }
                self.join_at_once();
            }
            Some(ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator) => {
                self.coordinator.forget(now, true);
                self.join_later(now);
            }
            _ => self.join_failed(self.refused(response.error_code)),
        }
    }

    fn accept_sync(&mut self, now: Moment, response: &SyncGroupResponse<'_>) -> Result<(), Error> {
        let chosen = self.generation.protocol.map(AssignorKind::protocol_name);
        let is_other_name = response.protocol_name.is_some() && response.protocol_name != chosen;
        if is_other_name
            || response
                .protocol_type
                .is_some_and(|protocol| protocol != PROTOCOL_TYPE)
        {
            return Err(self.refused(ErrorCode::InconsistentGroupProtocol.code()));
        }
        let assigned =
            decode_assignment(response.assignment).map_err(|error| malformed("assignment", &error))?;
        self.state = MemberState::Stable;
        self.rebalance.rejoin_reason = None;
        let started = self.rebalance.started.take().unwrap_or(now);
        self.metrics.rebalanced(now, now.nanos_since(started));
        let Generation { id, member_id, .. } = &self.generation;
        let client_id = &self.config.client.client_id;
        events::rebalanced(client_id, &self.group_id, *id, member_id, assigned.len());
        self.complete(now, assigned);
        Ok(())
    }

    fn join_again_or_fail(&mut self, now: Moment, error: Error) {
        if error.is_retriable() {
            self.join_later(now)
        } else {
            self.join_failed(error)
        }
    }

    /// Rejoins at once; our assignment may have changed meanwhile, so start from the beginning.
    fn join_at_once(&mut self) {
        self.metrics.rebalance_failed();
        self.step = Step::Idle;
        if self.rebalance.rejoin_reason.is_none() {
            self.request_rejoin("rebalance failed");
        }
    }

    fn join_later(&mut self, now: Moment) {
        self.join_at_once();
        self.rebalance.not_before = Some(self.backoff_after(now, self.rebalance.failures));
        self.rebalance.failures = self.rebalance.failures.saturating_add(1);
    }

    fn join_failed(&mut self, error: Error) {
        self.join_at_once();
        self.fail(error);
    }

    pub(super) fn refused(&self, code: i16) -> Error {
        Error::from_code(code, || self.group_id.clone()).unwrap_or(Error::Closed)
    }
}

pub fn millis(ms: u64) -> i32 {
    i32::try_from(ms).unwrap_or(i32::MAX)
}

pub fn malformed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Malformed {
        address: what.into(),
        reason: error.to_string().into(),
    }
}
