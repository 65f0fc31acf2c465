//! JoinGroup: admission of members, and the rebalances it starts.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::classic::{Group, GroupState};
use super::member::Member;
use super::rebalances::Cause;
use super::record::StoredGroup;
use super::reply::{GroupReply, JoinReply, SyncReply};
use super::request::{JoinRequest, Ticket};
use super::timer::Timer;
use super::turn::Turn;

/// A new member without an id may wait this long for a rebalance: it cannot send heartbeats, and
/// its disconnect goes unseen.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1_000;

/// At most this many ids of one group are assigned and not used yet. Each costs some 300 bytes
/// until its session ends.
const PENDING_JOINS_MAX: usize = 5_000;

/// At most this many timers per machine: it bounds members and pending ids of all its groups
/// together, about 300 bytes each.
pub(super) const TIMERS_MAX: usize = 200_000;

/// Checks everything about a join that does not depend on its group.
pub(super) fn check_request(request: &JoinRequest<'_>, turn: &Turn<'_>) -> Result<(), ErrorCode> {
    if request.group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    let limits = turn.config.session_timeout_ms_min..=turn.config.session_timeout_ms_max;
    if !limits.contains(&request.session_timeout_ms) {
        return Err(ErrorCode::InvalidSessionTimeout);
    }
    let mut names: Vec<&str> = request.protocols.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    if names.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) || request.protocol_type.is_empty()
    {
        return Err(ErrorCode::InconsistentGroupProtocol);
    }
    // All members' subscriptions must fit into one record, so one member may take a quarter of it.
    let metadata_bytes: usize = request
        .protocols
        .iter()
        .map(|(name, metadata)| name.len() + metadata.len())
        .sum();
    if metadata_bytes > turn.config.batch_bytes_max / 4 {
        return Err(ErrorCode::InvalidRequest);
    }
    let is_new = request.member_id.is_empty();
    if is_new && turn.timers.count() >= TIMERS_MAX {
        return Err(ErrorCode::CoordinatorNotAvailable);
    }
    Ok(())
}

impl Group {
    pub(super) fn join(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: &JoinRequest<'_>) {
        let checked = self.check_join(turn, request);
        let result = match checked {
            Err(error) => Err((error, request.member_id)),
            Ok(()) if request.member_id.is_empty() => {
                self.join_new(turn, ticket, request).map_err(|e| (e, ""))
            }
            Ok(()) => self
                .join_existing(turn, ticket, request)
                .map_err(|e| (e, request.member_id)),
        };
        if let Err((error, member_id)) = result {
            turn.reply(
                ticket,
                GroupReply::Join(JoinReply::error(error, member_id.into())),
            );
        }
    }

    fn check_join(&mut self, turn: &mut Turn<'_>, request: &JoinRequest<'_>) -> Result<(), ErrorCode> {
        if !self.has_room_for(turn, request.member_id) {
            self.remove_member(request.member_id);
            turn.timers
                .cancel(Timer::Session(self.group_id.clone(), request.member_id.into()));
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        if !self.supports_protocols_of(request) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let others: usize = self
            .members
            .values()
            .filter(|member| *member.member_id != *request.member_id)
            .map(Member::subscription_bytes_max)
            .sum();
        let own = request
            .protocols
            .iter()
            .map(|(_, metadata)| metadata.len())
            .max()
            .unwrap_or(0);
        // A quarter of the record is left for assignments and names.
        if others + own > turn.config.batch_bytes_max / 4 * 3 {
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        Ok(())
    }

    /// Whether the group has room. While a rebalance gathers members, `group.max.size` counts those
    /// that wait, so that the last to arrive are refused.
    fn has_room_for(&self, turn: &Turn<'_>, member_id: &str) -> bool {
        let size_max = turn.config.group_size_max;
        let member = self.members.get(member_id);
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                member.is_some_and(|member| member.awaiting_join.is_some())
                    || self.awaiting_join_count() < size_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                member.is_some() || self.members.len() < size_max
            }
        }
    }

    fn join_new(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        request: &JoinRequest<'_>,
    ) -> Result<(), ErrorCode> {
        let member_id = turn
            .ids
            .next(request.group_instance_id.unwrap_or(request.client_id));
        if let Some(instance_id) = request.group_instance_id {
            match self.static_members.get(instance_id).cloned() {
                Some(old_member_id) => {
                    self.replace_static_member(turn, instance_id, &old_member_id, &member_id);
                    self.join_as_replacement(turn, ticket, request, old_member_id, &member_id);
                }
                None => self.add_member(turn, ticket, request, member_id),
            }
        } else if request.requires_known_member_id {
            self.assign_id(turn, request, &member_id)?;
            turn.reply(
                ticket,
                GroupReply::Join(JoinReply::error(ErrorCode::MemberIdRequired, member_id)),
            );
        } else {
            self.add_member(turn, ticket, request, member_id);
        }
        Ok(())
    }

    /// KIP-394: a new member has to join again with this id.
    pub(super) fn assign_id(
        &mut self,
        turn: &mut Turn<'_>,
        request: &JoinRequest<'_>,
        member_id: &Arc<str>,
    ) -> Result<(), ErrorCode> {
        if self.pending_join.len() >= PENDING_JOINS_MAX {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.pending_join.insert(member_id.clone());
        let timer = Timer::Session(self.group_id.clone(), member_id.clone());
        turn.schedule(timer, request.session_timeout_ms);
        Ok(())
    }

    fn join_existing(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        request: &JoinRequest<'_>,
    ) -> Result<(), ErrorCode> {
        let member_id: Arc<str> = request.member_id.into();
        if self.pending_join.contains(&member_id) {
            // Only dynamic members have pending ids.
            if request.group_instance_id.is_some() {
                return Err(ErrorCode::InvalidRequest);
            }
            self.add_member(turn, ticket, request, member_id);
            return Ok(());
        }
        self.check_member(&member_id, request.group_instance_id)?;
        let is_unchanged = self
            .members
            .get(&member_id)
            .is_some_and(|member| member.matches(request));
        match self.state {
            GroupState::Empty => return Err(ErrorCode::UnknownMemberId),
            // The member may have missed the answer to its join: the generation stays.
            GroupState::CompletingRebalance if is_unchanged => {
                self.reply_unchanged(turn, ticket, &member_id);
            }
            GroupState::Stable if is_unchanged && !self.is_leader(&member_id) => {
                self.reply_unchanged(turn, ticket, &member_id);
            }
            _ => {
                self.await_join(turn, ticket, &member_id, request);
                self.rebalances
                    .begin(turn.now.timestamp, Cause::Asked(request.client_id.into()));
                self.rebalance_or_complete_join(turn);
            }
        }
        Ok(())
    }

    fn reply_unchanged(&mut self, turn: &mut Turn<'_>, ticket: Ticket, member_id: &Arc<str>) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.is_abandoned = false;
        }
        let reply = self.join_reply(member_id);
        turn.reply(ticket, GroupReply::Join(reply));
    }

    fn add_member(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: &JoinRequest<'_>, id: Arc<str>) {
        if self.stored.is_none() {
            // From here on the group is in the log; assigning an id alone leaves no trace in it.
            let stored = StoredGroup::empty(turn.now.timestamp);
            turn.record_group(self, stored);
        }
        if self.initial_delay.is_some() {
            self.new_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.into());
        }
        let mut member = Member::new(id.clone(), request);
        member.awaiting_join = Some(ticket);
        self.insert_member(member);
        self.rebalances
            .begin(turn.now.timestamp, Cause::Joined(request.client_id.into()));
        turn.schedule(
            Timer::Session(self.group_id.clone(), id),
            NEW_MEMBER_JOIN_TIMEOUT_MS,
        );
        self.rebalance_or_complete_join(turn);
    }

    /// Parks the ticket. An earlier parked ticket of the same member is answered with an error.
    fn await_join(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        member_id: &Arc<str>,
        request: &JoinRequest<'_>,
    ) {
        let displaced = JoinReply::error(ErrorCode::RebalanceInProgress, member_id.clone());
        self.answer_join(turn, member_id, displaced);
        let member = self.members.get_mut(member_id).expect("checked by the caller");
        member.update(request);
        member.awaiting_join = Some(ticket);
    }

    /// KIP-345: replaces a static member that came back under a new id. Clients that still use the
    /// old id are fenced.
    fn replace_static_member(
        &mut self,
        turn: &mut Turn<'_>,
        instance_id: &str,
        old_member_id: &Arc<str>,
        new_member_id: &Arc<str>,
    ) {
        let fenced = ErrorCode::FencedInstanceId;
        self.answer_join(
            turn,
            old_member_id,
            JoinReply::error(fenced, old_member_id.clone()),
        );
        self.answer_sync(turn, old_member_id, SyncReply::error(fenced));
        turn.timers
            .cancel(Timer::Session(self.group_id.clone(), old_member_id.clone()));
        self.pending_sync.remove(old_member_id);
        let mut member = self
            .members
            .remove(old_member_id)
            .expect("listed as static member");
        member.member_id = new_member_id.clone();
        member.is_new = false;
        self.members.insert(new_member_id.clone(), member);
        self.static_members
            .insert(instance_id.into(), new_member_id.clone());
        if self.is_leader(old_member_id) {
            self.leader = Some(new_member_id.clone());
        }
    }

    fn join_as_replacement(
        &mut self,
        turn: &mut Turn<'_>,
        ticket: Ticket,
        request: &JoinRequest<'_>,
        old_member_id: Arc<str>,
        member_id: &Arc<str>,
    ) {
        let was_leader = self.is_leader(member_id);
        let again = Cause::Asked(request.client_id.into());
        self.await_join(turn, ticket, member_id, request);
        self.renew_session(turn, member_id);
        match self.state {
            GroupState::Stable if self.elect_protocol() == self.protocol => {
                let stored = self.to_stored(turn.now.timestamp);
                if stored.size_bytes() > turn.config.batch_bytes_max {
                    self.rebalances.begin(turn.now.timestamp, again);
                    return self.prepare_rebalance(turn);
                }
                // Only the id changes, so the other members need not know.
                turn.record_group(self, stored);
                let mut reply = self.join_reply(member_id);
                if request.supports_skipping_assignment {
                    reply.skip_assignment = was_leader;
                } else if was_leader {
                    // An older client would compute a new assignment if it learned that it leads.
                    reply.leader = old_member_id;
                    reply.members = Vec::new();
                }
                self.answer_join(turn, member_id, reply);
            }
            // The leader may be assigning to the old id at this moment.
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.rebalances.begin(turn.now.timestamp, again);
                self.prepare_rebalance(turn);
            }
            GroupState::PreparingRebalance => self.complete_join_if_all_are_here(turn),
            GroupState::Empty => unreachable!("an empty group has no static member"),
        }
    }

    /// Checks a member's ids. KIP-345: an instance id determines the member id.
    pub(super) fn check_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(current) if **current != *member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UnknownMemberId)
        }
    }
}
