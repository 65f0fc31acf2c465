//! Heartbeats: how a member keeps its place in the group, notices that the group is rebalancing or
//! has removed it, and how it leaves.

use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use ottla_wire::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_wire::primitives::Reader;

use super::group::{GroupMembership, GroupTicket};
use super::group_network::GroupNetwork;
use super::join::{needed_for_static, text_cut};
use super::membership::Membership;
use super::rebalance::{Generation, MemberState};
use crate::config::ConsumerConfig;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::{Reply, Request};
use crate::time::Moment;

/// First versions with `group_instance_id` (KIP-345), and with a list of leaving members.
const HEARTBEAT_STATIC_VERSION: i16 = 3;
const LEAVE_LIST_VERSION: i16 = 3;
/// First version with a reason (KIP-800).
const LEAVE_REASON_VERSION: i16 = 5;

#[derive(Debug)]
pub struct Heartbeat {
    interval_ms: u64,
    session_timeout_ms: u64,
    next: Moment,
    is_under_way: bool,
    /// A heartbeat is due and cannot be sent: wait for a connection event.
    is_held_up: bool,
    failures: u32,
    session_end: Moment,
    /// When to check again whether the application polls.
    poll_check: Moment,
    leave: Option<Leave>,
    leaves_under_way: u32,
}

#[derive(Debug)]
struct Leave {
    member_id: Arc<str>,
    reason: &'static str,
}

impl Heartbeat {
    pub fn new(config: &ConsumerConfig) -> Heartbeat {
        Heartbeat {
            interval_ms: config.heartbeat_interval_ms,
            session_timeout_ms: config.session_timeout_ms,
            next: Moment::from_nanos(0),
            is_under_way: false,
            is_held_up: false,
            failures: 0,
            session_end: Moment::NEVER,
            poll_check: Moment::from_nanos(0),
            leave: None,
            leaves_under_way: 0,
        }
    }

    pub fn reset_session(&mut self, now: Moment) {
        self.session_end = now.after_ms(self.session_timeout_ms);
    }

    /// Starts all timers, for a new generation.
    pub fn reset(&mut self, now: Moment) {
        self.reset_session(now);
        self.next = now.after_ms(self.interval_ms);
        self.poll_check = now;
        self.failures = 0;
    }
}

impl GroupMembership {
    /// Only a member with an assignment sends heartbeats; a waiting JoinGroup is itself a sign of
    /// life.
    fn has_place(&self) -> bool {
        matches!(self.state, MemberState::CompletingRebalance | MemberState::Stable)
    }

    pub(super) fn is_user_alive(&self, now: Moment) -> bool {
        let limit_ms = self.config.max_poll_interval_ms;
        let is_late = |since: Moment| since.after_ms(limit_ms) <= now;
        !self.activity.outside_since().is_some_and(is_late)
    }

    /// Handles timeouts: the coordinator does not answer, or the application does not poll.
    pub(super) fn expire(&mut self, now: Moment) {
        if self.membership.is_some() {
            return self.expire_membership(now);
        }
        if !self.has_place() {
            return;
        }
        if self.coordinator.is_known() && self.heartbeat.session_end <= now {
            self.coordinator.forget(now, true);
            self.heartbeat.reset_session(now);
        }
        if self.closing.is_none() && !self.is_user_alive(now) {
            self.leave_for_poll_timeout(now);
            self.activity.await_poll();
        }
        let since = self.activity.outside_since().unwrap_or(now);
        self.heartbeat.poll_check = since.after_ms(self.config.max_poll_interval_ms);
    }

    /// When to check whether the application polls.
    pub(super) fn poll_check(&self) -> Moment {
        let since = self.activity.outside_since();
        since.map_or(Moment::NEVER, |since| {
            since.after_ms(self.config.max_poll_interval_ms)
        })
    }

    pub(super) fn heartbeat_deadline(&self) -> Option<Moment> {
        if self.membership.is_some() {
            return self.membership_deadline();
        }
        if !self.has_place() {
            return None;
        }
        let heartbeat = &self.heartbeat;
        let is_open = self.coordinator.is_known() && !heartbeat.is_under_way && !heartbeat.is_held_up;
        [
            is_open.then_some(heartbeat.next),
            self.coordinator.is_known().then_some(heartbeat.session_end),
            self.closing.is_none().then_some(heartbeat.poll_check),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(super) fn send_heartbeat(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) {
        self.heartbeat.is_held_up = node.is_none();
        let Some(node) = node else {
            // Without a coordinator there is no LeaveGroup; the session will expire.
            if !self.coordinator.is_known() {
                self.heartbeat.leave = None;
            }
            return;
        };
        self.send_leave(now, node, network);
        if !self.has_place() || self.heartbeat.is_under_way || self.heartbeat.next > now {
            return;
        }
        let is_static = self.config.group_instance_id.is_some();
        let needed_min = needed_for_static(is_static, HEARTBEAT_STATIC_VERSION);
        let Ok(api_version) = network.version(node, ApiKey::Heartbeat, needed_min) else {
            // JoinGroup succeeded, so the coordinator supports heartbeats; it is being replaced.
            self.heartbeat.next = now.after_ms(self.heartbeat.interval_ms);
            return;
        };
        let message = HeartbeatRequest {
            group_id: &self.group_id,
            generation_id: self.generation.id,
            member_id: &self.generation.member_id,
            group_instance_id: self.config.group_instance_id.as_deref(),
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        let request = self.small_request(ApiKey::Heartbeat, api_version, body);
        network.send(
            now,
            node,
            request,
            GroupTicket::Heartbeat {
                sent: self.generation.clone(),
            },
        );
        self.metrics.heartbeat_sent(now);
        self.heartbeat.is_under_way = true;
        self.heartbeat.next = now.after_ms(self.heartbeat.interval_ms);
    }

    pub(super) fn small_request(&self, api_key: ApiKey, api_version: i16, body: Vec<u8>) -> Request {
        Request {
            api_key,
            api_version,
            body: vec![body.into()],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        }
    }

    pub(super) fn heartbeat_answered(&mut self, now: Moment, sent: &Generation, reply: &Reply<GroupTicket>) {
        self.heartbeat.is_under_way = false;
        let response = reply
            .result
            .as_ref()
            .ok()
            .and_then(|body| HeartbeatResponse::decode(&mut Reader::new(body), reply.api_version).ok());
        let Some(response) = response else {
            return self.heartbeat_failed(now);
        };
        self.metrics.heartbeat_answered(reply.latency_nanos);
        let is_current = self.generation == *sent;
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => self.heartbeat_received(now),
            Some(ErrorCode::RebalanceInProgress) => {
                // Our membership is safe until the group has waited for max.poll.interval.ms.
                self.heartbeat_received(now);
                if self.state == MemberState::Stable && is_current {
                    self.request_rejoin("group is already rebalancing");
                }
            }
            Some(ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator) => {
                self.coordinator.forget(now, true);
                self.heartbeat_failed(now);
            }
            Some(
                code @ (ErrorCode::IllegalGeneration
                | ErrorCode::UnknownMemberId
                | ErrorCode::FencedInstanceId),
            ) => {
                if !is_current || !self.has_place() {
                    return self.heartbeat_received(now);
                }
                let reason = format!("encountered {} from HEARTBEAT response", code.name());
                // The member id is still valid when only the generation is old.
                self.reset(&reason, code == ErrorCode::IllegalGeneration);
                if code == ErrorCode::FencedInstanceId {
                    self.fail(self.refused(response.error_code));
                }
            }
            Some(ErrorCode::CoordinatorLoadInProgress) => self.heartbeat_failed(now),
            _ => {
                self.heartbeat_failed(now);
                self.fail(self.refused(response.error_code));
            }
        }
    }

    fn heartbeat_received(&mut self, now: Moment) {
        self.heartbeat.reset_session(now);
        self.heartbeat.failures = 0;
    }

    fn heartbeat_failed(&mut self, now: Moment) {
        self.heartbeat.next = self.backoff_after(now, self.heartbeat.failures);
        self.heartbeat.failures = self.heartbeat.failures.saturating_add(1);
    }

    /// A static member keeps its place: it is expected back within the session timeout (KIP-345).
    pub(super) fn queue_leave(&mut self, _now: Moment, reason: &'static str) {
        if let Some(membership) = &mut self.membership {
            membership.queue_leave(self.config.group_instance_id.is_some());
            if membership.has_leave_to_send() {
                events::member_leaves(&self.config.client.client_id, &self.group_id, reason);
            }
            return;
        }
        let is_member = self.state != MemberState::Unjoined && !self.generation.member_id.is_empty();
        if is_member && self.config.group_instance_id.is_none() {
            let member_id = self.generation.member_id.clone();
            events::member_leaves(&self.config.client.client_id, &self.group_id, reason);
            self.heartbeat.leave = Some(Leave { member_id, reason });
        }
    }

    pub(super) fn has_leave_to_send(&self) -> bool {
        self.heartbeat.leave.is_some()
            || self
                .membership
                .as_ref()
                .is_some_and(Membership::has_leave_to_send)
    }

    pub(super) fn is_leave_awaited(&self) -> bool {
        let is_awaited = self.membership.as_ref().is_some_and(Membership::is_leave_awaited);
        is_awaited || self.heartbeat.leave.is_some() || self.heartbeat.leaves_under_way > 0
    }

    fn send_leave(&mut self, now: Moment, node: NodeId, network: &mut dyn GroupNetwork) {
        let Some(leave) = self.heartbeat.leave.take() else {
            return;
        };
        let Ok(api_version) = network.version(node, ApiKey::LeaveGroup, 0) else {
            return;
        };
        let is_list = api_version >= LEAVE_LIST_VERSION;
        let member = MemberIdentity {
            member_id: &leave.member_id,
            group_instance_id: None,
            reason: Some(text_cut(leave.reason)).filter(|_| api_version >= LEAVE_REASON_VERSION),
        };
        let message = LeaveGroupRequest {
            group_id: &self.group_id,
            member_id: if is_list { "" } else { &leave.member_id },
            members: if is_list { vec![member] } else { Vec::new() },
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        let request = self.small_request(ApiKey::LeaveGroup, api_version, body);
        self.heartbeat.leaves_under_way += 1;
        network.send(now, node, request, GroupTicket::Leave);
    }

    /// The member has left, whatever the coordinator answered.
    pub(super) fn left(&mut self, _now: Moment) {
        self.heartbeat.leaves_under_way = self.heartbeat.leaves_under_way.saturating_sub(1);
    }
}
