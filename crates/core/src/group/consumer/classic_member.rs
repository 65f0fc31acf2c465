//! Members of the classic protocol in a consumer group: JoinGroup takes the place of their
//! heartbeat with a subscription, SyncGroup tells them what they are assigned, and the broker
//! assigns.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use crate::group::classic::{CONSUMER_PROTOCOL_TYPE, Group};
use crate::group::overview::Departure;
use crate::group::rebalances::Cause;
use crate::group::reply::{GroupReply, JoinReply, SyncReply};
use crate::group::request::{JoinRequest, MemberRequest, SyncRequest, Ticket};
use crate::group::timer::Timer;
use crate::group::turn::Turn;

use super::group::ConsumerGroup;
use super::member::{ClassicMember, ConsumerMember, MemberMetadata, MemberState};
use super::protocol::{Subscription, decode_subscription, encode_assignment};
use super::record::ConsumerRecord;

impl Group {
    pub(in crate::group) fn join_consumer(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        request: &JoinRequest<'_>,
    ) {
        let joined = self.join_as_classic(turn, request);
        let reply = joined.unwrap_or_else(|error| JoinReply::error(error, "".into()));
        turn.reply(ticket, GroupReply::Join(reply));
    }

    fn join_as_classic(
        &mut self,
        turn: &mut Turn<'_>,
        request: &JoinRequest<'_>,
    ) -> Result<JoinReply, ErrorCode> {
        let subscription = self.check_classic_join(turn, request)?;
        let member_id = match request.member_id {
            "" => turn
                .ids
                .next(request.group_instance_id.unwrap_or(request.client_id)),
            member_id => member_id.into(),
        };
        match request.group_instance_id {
            Some(instance_id) => self.take_instance(turn, request, instance_id, &member_id)?,
            None if request.member_id.is_empty() && request.requires_known_member_id => {
                self.assign_id(turn, request, &member_id)?;
                return Ok(JoinReply::error(ErrorCode::MemberIdRequired, member_id));
            }
            None if request.member_id.is_empty() => {}
            None => self.check_known(&member_id)?,
        }
        let is_new = self.consumer_member(&member_id).is_none();
        let has_subscription_changed = self.update_classic(turn, request, &subscription, &member_id);
        self.drop_unused_regexes(turn);
        let topics = &request.topics;
        let why = match is_new {
            true => Cause::Joined(request.client_id.into()),
            false => Cause::Asked(request.client_id.into()),
        };
        self.update_epoch(turn, topics, has_subscription_changed.then_some(why));
        // At once: until there is a target for its epoch, the member would join again and again.
        self.update_target(turn, topics, 0);
        let owned = Some(&subscription.owned);
        self.reconcile(turn, &member_id, topics, owned, has_subscription_changed)
            .map_err(|_| ErrorCode::UnknownMemberId)?;
        let session = Timer::Session(self.group_id.clone(), member_id.clone());
        turn.schedule(session, request.session_timeout_ms);
        let rejoin = Timer::Rejoin(self.group_id.clone(), member_id.clone());
        turn.schedule(rejoin, request.rebalance_timeout_ms);
        let generation_id = self.consumer_member(&member_id).unwrap_or_default().current.epoch;
        if self.has_only_classic_members(turn.config) && self.is_reconciled() {
            self.downgrade(turn, topics);
        }
        Ok(JoinReply {
            error: ErrorCode::None,
            generation_id,
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            protocol_name: request.protocols.first().map(|(name, _)| Arc::from(*name)),
            // No member leads: the broker assigns.
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        })
    }

    /// Checks that the group has room, and that its classic members have a protocol in common.
    fn check_classic_join<'a>(
        &self,
        turn: &Turn<'_>,
        request: &JoinRequest<'a>,
    ) -> Result<Subscription<'a>, ErrorCode> {
        let consumer = self
            .consumer
            .as_ref()
            .expect("the group is one of the consumer protocol");
        let is_known = consumer.members.contains_key(request.member_id);
        if !is_known && consumer.members.len() >= turn.config.consumer.size_max {
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        let others = consumer.members.iter();
        let others: Vec<&ClassicMember> = others
            .filter(|(member_id, _)| ***member_id != *request.member_id)
            .filter_map(|(_, member)| member.metadata.classic.as_ref())
            .collect();
        let is_common = |name: &str| others.iter().all(|other| other.supports(name));
        let mut names = request.protocols.iter().map(|(name, _)| *name);
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE || !names.any(is_common) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let (_, metadata) = request
            .protocols
            .first()
            .ok_or(ErrorCode::InconsistentGroupProtocol)?;
        decode_subscription(metadata, &request.topics).map_err(|_| ErrorCode::InconsistentGroupProtocol)
    }

    /// A member that was removed must not come back as if nothing had happened, as in Apache Kafka:
    /// what it says that it owns may belong to others by now.
    fn check_known(&mut self, member_id: &Arc<str>) -> Result<(), ErrorCode> {
        let is_new = self.pending_join.remove(member_id);
        let consumer = self.consumer.as_ref();
        match is_new || consumer.is_some_and(|consumer| consumer.members.contains_key(member_id)) {
            true => Ok(()),
            false => Err(ErrorCode::UnknownMemberId),
        }
    }

    /// KIP-345: a member that comes without an id takes the place of the instance's last one,
    /// whatever protocol that one speaks.
    fn take_instance(
        &mut self,
        turn: &mut Turn<'_>,
        request: &JoinRequest<'_>,
        instance_id: &str,
        member_id: &Arc<str>,
    ) -> Result<(), ErrorCode> {
        let consumer = self.consumer.as_ref();
        let known = consumer
            .and_then(|consumer| consumer.static_member(instance_id))
            .cloned();
        match known {
            None if request.member_id.is_empty() => Ok(()),
            None => Err(ErrorCode::UnknownMemberId),
            Some(known) if request.member_id.is_empty() => {
                self.replace_member(turn, &known, member_id);
                Ok(())
            }
            Some(known) if known != *member_id => Err(ErrorCode::FencedInstanceId),
            Some(_) => Ok(()),
        }
    }

    /// Records the member if it is new or has changed; returns whether its subscription has.
    fn update_classic(
        &mut self,
        turn: &mut Turn<'_>,
        request: &JoinRequest<'_>,
        subscription: &Subscription<'_>,
        member_id: &Arc<str>,
    ) -> bool {
        let before = self.consumer_member(member_id);
        let known_instance = before
            .as_ref()
            .and_then(|member| member.metadata.instance_id.clone());
        let metadata = MemberMetadata {
            // A static member stays one, also if it does not name its instance again.
            instance_id: request.group_instance_id.map(Arc::from).or(known_instance),
            rack_id: subscription.rack_id.map(Arc::from),
            client_id: request.client_id.into(),
            client_host: request.client_host.into(),
            topic_names: subscription.topics.iter().map(|name| Arc::from(*name)).collect(),
            regex: None,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            assignor: None,
            classic: Some(ClassicMember::joining(request)),
        };
        let known = before.as_ref().map(|member| &*member.metadata);
        let has_subscription_changed = known.is_none_or(|known| !metadata.subscribes_as(known));
        if known != Some(&metadata) {
            let record = ConsumerRecord::Member(member_id.clone(), Some(Arc::new(metadata)));
            self.record_consumer(turn, record);
        }
        has_subscription_changed
    }

    pub(in crate::group) fn sync_consumer(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        request: &SyncRequest<'_>,
    ) {
        let synced = self.sync_as_classic(turn, request);
        turn.reply(ticket, GroupReply::Sync(synced.unwrap_or_else(SyncReply::error)));
    }

    fn sync_as_classic(
        &mut self,
        turn: &mut Turn<'_>,
        request: &SyncRequest<'_>,
    ) -> Result<SyncReply, ErrorCode> {
        let (member, classic) = self.classic_member(&request.member)?;
        let is_type_known = request
            .protocol_type
            .is_none_or(|protocol_type| protocol_type == CONSUMER_PROTOCOL_TYPE);
        let is_name_known = request.protocol_name.is_none_or(|name| classic.supports(name));
        if !is_type_known || !is_name_known {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let epoch = self.consumer.as_ref().map_or(0, |consumer| consumer.epoch);
        // A member that gives up partitions has to learn first which it keeps.
        if epoch > member.current.epoch && member.current.state != MemberState::Unrevoked {
            self.await_rejoin(turn, request.member.member_id, &member);
            return Err(ErrorCode::RebalanceInProgress);
        }
        let rejoin = Timer::Rejoin(self.group_id.clone(), request.member.member_id.into());
        turn.timers.cancel(rejoin);
        self.renew_classic_session(turn, request.member.member_id, &classic);
        let assigned = member.current.assigned.keys().copied().collect();
        Ok(SyncReply {
            error: ErrorCode::None,
            protocol_type: Some(CONSUMER_PROTOCOL_TYPE.into()),
            protocol_name: classic.protocols.first().map(|(name, _)| name.clone()),
            assignment: encode_assignment(&assigned, &request.topics, classic.subscription()),
        })
    }

    pub(in crate::group) fn heartbeat_consumer(
        &mut self,
        turn: &mut Turn<'_>,
        request: &MemberRequest<'_>,
    ) -> ErrorCode {
        let (member, classic) = match self.classic_member(request) {
            Ok(known) => known,
            Err(error) => return error,
        };
        self.renew_classic_session(turn, request.member_id, &classic);
        let consumer = self.consumer.as_ref().expect("it has a member");
        let has_to_join = member.current.epoch < consumer.epoch
            || member.current.state == MemberState::Unrevoked
            || member.current.state == MemberState::Unreleased
                && !consumer.waits_for_others(request.member_id, &member);
        if !has_to_join {
            return ErrorCode::None;
        }
        self.await_rejoin(turn, request.member_id, &member);
        ErrorCode::RebalanceInProgress
    }

    /// Returns the classic member that sent a request of its generation.
    fn classic_member(
        &self,
        request: &MemberRequest<'_>,
    ) -> Result<(ConsumerMember, ClassicMember), ErrorCode> {
        let consumer = self.consumer.as_ref().ok_or(ErrorCode::UnknownMemberId)?;
        if let Some(instance_id) = request.group_instance_id {
            let known = consumer.static_member(instance_id);
            let known = known.ok_or(ErrorCode::UnknownMemberId)?;
            if **known != *request.member_id {
                return Err(ErrorCode::FencedInstanceId);
            }
        }
        let member = consumer.members.get(request.member_id);
        let member = member.ok_or(ErrorCode::UnknownMemberId)?.clone();
        let classic = member
            .metadata
            .classic
            .clone()
            .ok_or(ErrorCode::UnknownMemberId)?;
        if request.generation_id != member.current.epoch {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok((member, classic))
    }

    fn renew_classic_session(&self, turn: &mut Turn<'_>, member_id: &str, classic: &ClassicMember) {
        let session = Timer::Session(self.group_id.clone(), member_id.into());
        turn.schedule(session, classic.session_timeout_ms);
    }

    /// A member that was told to join has its rebalance timeout to do so.
    fn await_rejoin(&self, turn: &mut Turn<'_>, member_id: &str, member: &ConsumerMember) {
        let timer = Timer::Rejoin(self.group_id.clone(), member_id.into());
        if !turn.timers.has(&timer) {
            turn.schedule(timer, member.metadata.rebalance_timeout_ms);
        }
    }

    pub(in crate::group) fn on_rejoin_deadline(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        self.remove_consumer_member(turn, member_id, Departure::DidNotRejoin);
    }

    fn is_reconciled(&self) -> bool {
        let consumer = self.consumer.as_ref();
        consumer.is_some_and(|consumer| consumer.state_name() == "Stable")
    }
}

impl ConsumerGroup {
    /// Whether a partition of the member's target is still held by another member.
    fn waits_for_others(&self, member_id: &str, member: &ConsumerMember) -> bool {
        let target = self.target_of(member_id);
        let mut missing = target
            .iter()
            .filter(|partition| !member.current.assigned.contains_key(*partition));
        missing.any(|partition| !self.is_free(partition))
    }
}
