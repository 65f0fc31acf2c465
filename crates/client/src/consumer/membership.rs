//! Membership of `group.protocol=consumer` (KIP-848): the broker assigns, and one request,
//! ConsumerGroupHeartbeat, carries everything: joining, the subscription, the assignment, what the
//! member owns, and leaving.
//!
//! `reconcile` is a member's way from the assignment that the broker wants to the one it has;
//! `send_membership` says what has changed since the last heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
};
use ottla_wire::primitives::{Reader, Uuid};

use super::group::{GroupMembership, GroupTicket, RebalanceStep};
use super::group_network::GroupNetwork;
use super::rebalance::{After, Generation, MemberState, Step};
use super::subscription::Subscription;
use super::topic_partition::TopicPartition;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::backoff::Random;
use crate::network::cluster::Reply;
use crate::time::Moment;

/// The member epochs with a meaning of their own.
const JOIN: i32 = 0;
const LEAVE: i32 = -1;
/// A static member leaves and is expected back.
const LEAVE_STATIC: i32 = -2;
/// The first version with a pattern.
const PATTERN_VERSION: i16 = 1;

/// Partitions by topic id.
type ById = BTreeMap<Uuid, BTreeSet<i32>>;

/// Topic names, and a pattern.
type Subscribed = (BTreeSet<Arc<str>>, Option<Arc<str>>);

#[derive(Debug)]
pub struct Membership {
    /// Made by the member, and kept when it joins again.
    member_id: Arc<str>,
    /// `JOIN`: not a member.
    epoch: i32,
    /// What the broker wants this member to have; `None` before it has said so.
    target: Option<ById>,
    /// The target that the application's thread knows.
    reconciled: Option<ById>,
    /// Every id of the target had a name.
    is_complete: bool,
    /// Names that ids had; they outlive their topic's deletion.
    names: BTreeMap<Uuid, Arc<str>>,
    must_acknowledge: bool,
    /// Say everything, not only what has changed.
    must_say_all: bool,
    said: Option<Subscribed>,
    is_under_way: bool,
    is_held_up: bool,
    next: Moment,
    interval_ms: u64,
    failures: u32,
    leave: Option<i32>,
    leaves_under_way: u32,
}

impl Membership {
    pub fn new(random: &mut Random) -> Membership {
        Membership {
            member_id: random_id(random).to_string().into(),
            epoch: JOIN,
            target: None,
            reconciled: None,
            is_complete: true,
            names: BTreeMap::new(),
            must_acknowledge: false,
            must_say_all: true,
            said: None,
            is_under_way: false,
            is_held_up: false,
            next: Moment::from_nanos(0),
            interval_ms: 5_000,
            failures: 0,
            leave: None,
            leaves_under_way: 0,
        }
    }

    /// The broker does not know the member, or the member is leaving.
    pub fn fence(&mut self) {
        self.epoch = JOIN;
        self.target = None;
        self.reconciled = None;
        self.must_acknowledge = false;
        self.must_say_all = true;
        self.next = Moment::from_nanos(0);
    }

    pub fn queue_leave(&mut self, is_static: bool) {
        if self.epoch > JOIN {
            self.leave = Some(if is_static { LEAVE_STATIC } else { LEAVE });
        }
        self.fence();
    }

    pub fn has_leave_to_send(&self) -> bool {
        self.leave.is_some()
    }

    pub fn is_leave_awaited(&self) -> bool {
        self.leave.is_some() || self.leaves_under_way > 0
    }
}

/// Version 4, as KIP-848 recommends for member ids.
fn random_id(random: &mut Random) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&random.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&random.next_u64().to_be_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

/// A topic that was deleted and made again has two ids; that of the target counts.
fn by_id(
    partitions: &BTreeSet<TopicPartition>,
    names: &BTreeMap<Uuid, Arc<str>>,
    target: Option<&ById>,
) -> ById {
    let is_wanted = |id: &Uuid| target.is_some_and(|target| target.contains_key(id));
    let mut ids: BTreeMap<&Arc<str>, &Uuid> = names.iter().map(|(id, name)| (name, id)).collect();
    ids.extend(
        names
            .iter()
            .filter(|(id, _)| is_wanted(id))
            .map(|(id, name)| (name, id)),
    );
    let mut found = ById::new();
    for partition in partitions {
        if let Some(id) = ids.get(&partition.topic) {
            found.entry(**id).or_default().insert(partition.partition);
        }
    }
    found
}

impl GroupMembership {
    /// Takes one step if one can be taken.
    pub(super) fn advance_membership(&mut self, now: Moment, network: &mut dyn GroupNetwork) -> bool {
        match &self.step {
            Step::Idle => self.reconcile(now, network),
            // The partitions are given up; there is no request to join with.
            Step::Join => {
                self.step = Step::Idle;
                true
            }
            Step::Committing { .. } => self.end_commit(now),
            _ => false,
        }
    }

    /// Moves towards the target: first what must be given up, then what is new.
    fn reconcile(&mut self, now: Moment, network: &mut dyn GroupNetwork) -> bool {
        if self.subscription.is_none() || !self.has_polled() {
            return false;
        }
        let Some(epoch) = self.membership.as_ref().map(|membership| membership.epoch) else {
            return false;
        };
        if epoch == JOIN {
            if self.assignment.is_empty() {
                return false;
            }
            let lost = self.assignment.clone();
            self.call(RebalanceStep::Lost(lost), After::KeepAndJoin(BTreeSet::new()));
            return true;
        }
        self.rebalance.rejoin_reason = None;
        let Some(wanted) = self.resolve_target(network) else {
            return false;
        };
        let revoked: BTreeSet<TopicPartition> = self.assignment.difference(&wanted).cloned().collect();
        if !revoked.is_empty() {
            let reason = "the broker assigns partitions to others";
            events::rebalance_started(&self.config.client.client_id, &self.group_id, reason);
            if self.config.auto_commit_enabled {
                self.call(RebalanceStep::Prepare { pause: revoked }, After::CommitAndGiveUp);
            } else {
                self.give_up_untargeted(now);
            }
            return true;
        }
        self.take_target(now, wanted)
    }

    fn take_target(&mut self, now: Moment, wanted: BTreeSet<TopicPartition>) -> bool {
        let added: BTreeSet<TopicPartition> = wanted.difference(&self.assignment).cloned().collect();
        let Some(membership) = &mut self.membership else {
            return false;
        };
        if membership.reconciled == membership.target && added.is_empty() {
            return false;
        }
        membership.reconciled.clone_from(&membership.target);
        membership.must_acknowledge = true;
        let epoch = membership.epoch;
        self.postpone_auto_commit(now, self.config.auto_commit_interval_ms);
        events::rebalanced(
            &self.config.client.client_id,
            &self.group_id,
            epoch,
            &self.generation.member_id,
            wanted.len(),
        );
        self.own(wanted);
        self.call(RebalanceStep::Assigned(added), After::Settle);
        true
    }

    /// Gives up what the target lacks; the automatic commit is done.
    pub(super) fn give_up_untargeted(&mut self, now: Moment) {
        if self.generation.is_lost() {
            // `reconcile` says that they are lost.
            self.step = Step::Idle;
            return;
        }
        let wanted = self.named_target();
        let (kept, revoked): (BTreeSet<TopicPartition>, BTreeSet<TopicPartition>) = self
            .assignment
            .iter()
            .cloned()
            .partition(|partition| wanted.contains(partition));
        if revoked.is_empty() {
            return self.go_on(now, After::Settle, BTreeMap::new());
        }
        self.call(RebalanceStep::Revoked(revoked), After::KeepAndJoin(kept));
    }

    /// The target by names, as far as its ids have names; `None` when nothing is to be done.
    fn resolve_target(&mut self, network: &mut dyn GroupNetwork) -> Option<BTreeSet<TopicPartition>> {
        let snapshot = Arc::clone(&self.snapshot);
        let membership = self.membership.as_mut()?;
        let target = membership.target.as_ref()?;
        if membership.is_complete && membership.reconciled == membership.target {
            return None;
        }
        let unnamed: BTreeSet<&Uuid> = target
            .keys()
            .filter(|id| !membership.names.contains_key(id))
            .collect();
        for topic in snapshot
            .topics
            .values()
            .filter(|topic| unnamed.contains(&topic.id))
        {
            membership.names.insert(topic.id, Arc::clone(&topic.name));
        }
        membership.is_complete = target.keys().all(|id| membership.names.contains_key(id));
        if !membership.is_complete {
            network.request_metadata();
        }
        Some(self.named_target())
    }

    fn named_target(&self) -> BTreeSet<TopicPartition> {
        let Some(membership) = &self.membership else {
            return BTreeSet::new();
        };
        let named = membership.target.iter().flatten().filter_map(|(id, partitions)| {
            let name = membership.names.get(id)?;
            Some(
                partitions
                    .iter()
                    .map(|partition| TopicPartition::new(Arc::clone(name), *partition)),
            )
        });
        named.flatten().collect()
    }

    pub(super) fn membership_deadline(&self) -> Option<Moment> {
        let membership = self.membership.as_ref()?;
        let can_send = self.coordinator.is_known() && !membership.is_under_way && !membership.is_held_up;
        let heartbeat = (can_send && self.wants_membership()).then_some(membership.next);
        let poll_check = (membership.epoch > JOIN && self.closing.is_none()).then(|| self.poll_check());
        [heartbeat, poll_check].into_iter().flatten().min()
    }

    fn wants_membership(&self) -> bool {
        !self.subscription.is_none() && self.closing.is_none() && self.may_try()
    }

    /// The application does not poll: leave, so that others get the partitions.
    pub(super) fn expire_membership(&mut self, now: Moment) {
        let is_member = self
            .membership
            .as_ref()
            .is_some_and(|membership| membership.epoch > JOIN);
        if is_member && self.closing.is_none() && !self.is_user_alive(now) {
            self.leave_for_poll_timeout(now);
            self.activity.await_poll();
        }
    }

    pub(super) fn send_membership(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) {
        let Some(mut membership) = self.membership.take() else {
            return;
        };
        membership.is_held_up = node.is_none();
        if let Some(node) = node {
            if let Some(epoch) = membership.leave.take() {
                self.say_leave(now, node, network, &mut membership, epoch);
            }
            self.say(now, node, network, &mut membership);
        } else if !self.coordinator.is_known() {
            // The session will expire.
            membership.leave = None;
        }
        self.membership = Some(membership);
    }

    fn say_leave(
        &mut self,
        now: Moment,
        node: NodeId,
        network: &mut dyn GroupNetwork,
        membership: &mut Membership,
        epoch: i32,
    ) {
        let Ok(version) = network.version(node, ApiKey::ConsumerGroupHeartbeat, 0) else {
            return;
        };
        let message = ConsumerGroupHeartbeatRequest {
            group_id: &self.group_id,
            member_id: &membership.member_id,
            member_epoch: epoch,
            instance_id: self.config.group_instance_id.as_deref(),
            ..ConsumerGroupHeartbeatRequest::default()
        };
        let mut body = Vec::new();
        message.encode(&mut body, version);
        let request = self.small_request(ApiKey::ConsumerGroupHeartbeat, version, body);
        membership.leaves_under_way += 1;
        let ticket = GroupTicket::Membership { sent_epoch: epoch };
        network.send(now, node, request, ticket);
    }

    fn say(
        &mut self,
        now: Moment,
        node: NodeId,
        network: &mut dyn GroupNetwork,
        membership: &mut Membership,
    ) {
        if !self.wants_membership() || membership.is_under_way || membership.leaves_under_way > 0 {
            return;
        }
        let is_joining = membership.epoch == JOIN;
        let is_ready = self.assignment.is_empty() && matches!(self.step, Step::Idle);
        if is_joining && !(is_ready && self.has_polled() && self.is_user_alive(now)) {
            return;
        }
        let subscribed = self.subscribed();
        let is_changed = membership.said.as_ref() != Some(&subscribed);
        let acknowledges = membership.must_acknowledge && matches!(self.step, Step::Idle);
        let is_urgent = (acknowledges || is_changed) && membership.failures == 0;
        if membership.next > now && !is_urgent {
            return;
        }
        let needed_min = if subscribed.1.is_some() {
            PATTERN_VERSION
        } else {
            0
        };
        let version = match network.version(node, ApiKey::ConsumerGroupHeartbeat, needed_min) {
            Ok(version) => version,
            Err(error) => return self.fail(error),
        };
        let says_all = is_joining || membership.must_say_all;
        let owned = if is_joining {
            ById::new()
        } else {
            by_id(&self.assignment, &membership.names, membership.target.as_ref())
        };
        let message = ConsumerGroupHeartbeatRequest {
            group_id: &self.group_id,
            member_id: &membership.member_id,
            member_epoch: membership.epoch,
            instance_id: self.config.group_instance_id.as_deref(),
            rack_id: Some(&*self.config.client.client_rack).filter(|rack| says_all && !rack.is_empty()),
            rebalance_timeout_ms: match says_all {
                true => i32::try_from(self.config.max_poll_interval_ms).unwrap_or(i32::MAX),
                false => -1,
            },
            subscribed_topic_names: (says_all || is_changed)
                .then(|| subscribed.0.iter().map(|name| &**name).collect()),
            subscribed_topic_regex: (version >= PATTERN_VERSION && (says_all || is_changed))
                .then(|| subscribed.1.as_deref().unwrap_or_default())
                .filter(|pattern| !pattern.is_empty() || !is_joining),
            server_assignor: self.config.remote_assignor.as_deref().filter(|_| says_all),
            topic_partitions: (says_all || acknowledges).then(|| {
                let parts =
                    owned
                        .iter()
                        .map(|(id, partitions)| ConsumerGroupHeartbeatRequestTopicPartitions {
                            topic_id: *id,
                            partitions: partitions.iter().copied().collect(),
                        });
                parts.collect()
            }),
        };
        let mut body = Vec::new();
        message.encode(&mut body, version);
        let request = self.small_request(ApiKey::ConsumerGroupHeartbeat, version, body);
        let ticket = GroupTicket::Membership {
            sent_epoch: membership.epoch,
        };
        network.send(now, node, request, ticket);
        self.metrics.heartbeat_sent(now);
        membership.said = Some(subscribed);
        membership.must_say_all = false;
        membership.must_acknowledge &= !acknowledges && !says_all;
        membership.is_under_way = true;
        membership.next = now.after_ms(membership.interval_ms);
    }

    fn subscribed(&self) -> Subscribed {
        match &self.subscription {
            Subscription::None => (BTreeSet::new(), None),
            Subscription::Topics(topics) => (topics.clone(), None),
            Subscription::Pattern(pattern) => (BTreeSet::new(), Some(pattern.as_str().into())),
        }
    }

    pub(super) fn membership_answered(&mut self, now: Moment, sent_epoch: i32, reply: &Reply<GroupTicket>) {
        let Some(membership) = &mut self.membership else {
            return;
        };
        if sent_epoch < JOIN {
            membership.leaves_under_way = membership.leaves_under_way.saturating_sub(1);
            return;
        }
        membership.is_under_way = false;
        let decoded = reply.result.as_ref().ok().and_then(|body| {
            ConsumerGroupHeartbeatResponse::decode(&mut Reader::new(body), reply.api_version).ok()
        });
        let Some(answer) = decoded else {
            return self.membership_failed(now);
        };
        self.metrics.heartbeat_answered(reply.latency_nanos);
        let is_current = membership.epoch == sent_epoch && self.closing.is_none();
        match ErrorCode::from_i16(answer.error_code) {
            Some(ErrorCode::None) if is_current => self.joined_or_confirmed(now, &answer),
            _ if !is_current => {}
            Some(code @ (ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId)) => {
                self.reset(&format!("encountered {} from a heartbeat", code.name()), true);
            }
            Some(ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator) => {
                self.coordinator.forget(now, true);
                self.membership_failed(now);
            }
            Some(ErrorCode::CoordinatorLoadInProgress) => self.membership_failed(now),
            _ => {
                self.membership_failed(now);
                let what = match answer.error_message {
                    Some(text) => format!("{}: {text}", self.group_id),
                    None => self.group_id.to_string(),
                };
                let error = Error::from_code(answer.error_code, || what.into());
                self.fail(error.unwrap_or(Error::Closed));
            }
        }
    }

    fn joined_or_confirmed(&mut self, now: Moment, answer: &ConsumerGroupHeartbeatResponse<'_>) {
        let Some(membership) = &mut self.membership else {
            return;
        };
        membership.failures = 0;
        membership.epoch = answer.member_epoch;
        if let Ok(interval_ms @ 1..) = u64::try_from(answer.heartbeat_interval_ms) {
            membership.interval_ms = interval_ms;
        }
        membership.next = now.after_ms(membership.interval_ms);
        if let Some(assignment) = &answer.assignment {
            let target = assignment
                .topic_partitions
                .iter()
                .map(|topic| (topic.topic_id, topic.partitions.iter().copied().collect()));
            membership.target = Some(target.collect());
            // Also the same one again is to be confirmed.
            membership.reconciled = None;
        }
        self.generation = Generation {
            id: membership.epoch,
            member_id: Arc::clone(&membership.member_id),
            protocol: None,
        };
        self.state = MemberState::Stable;
        self.rebalance.rejoin_reason = None;
    }

    fn membership_failed(&mut self, now: Moment) {
        let failures = self
            .membership
            .as_ref()
            .map_or(0, |membership| membership.failures);
        let next = self.backoff_after(now, failures);
        if let Some(membership) = &mut self.membership {
            membership.must_say_all = true;
            membership.next = next;
            membership.failures = failures.saturating_add(1);
        }
    }
}
