//! SyncGroup, Heartbeat and LeaveGroup: requests of present members.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::classic::{Group, GroupState};
use super::overview::Departure;
use super::reply::{GroupReply, LeftMember, SyncReply};
use super::request::{LeaveRequest, MemberRequest, SyncRequest, Ticket};
use super::timer::Timer;
use super::turn::Turn;

impl Group {
    pub(super) fn sync(&mut self, turn: &mut Turn<'_>, ticket: Ticket, request: &SyncRequest<'_>) {
        if self.consumer.is_some() {
            return self.sync_consumer(turn, ticket, request);
        }
        if let Err(error) = self.check_sync(request) {
            turn.reply(ticket, GroupReply::Sync(SyncReply::error(error)));
            return;
        }
        let member_id: Arc<str> = request.member.member_id.into();
        self.pending_sync.remove(&member_id);
        if self.pending_sync.is_empty() {
            turn.timers.cancel(Timer::Sync(self.group_id.clone()));
        }
        if self.state == GroupState::Stable {
            let reply = self.sync_reply(&member_id);
            turn.reply(ticket, GroupReply::Sync(reply));
            return;
        }
        let displaced = SyncReply::error(ErrorCode::RebalanceInProgress);
        self.answer_sync(turn, &member_id, displaced);
        let member = self.members.get_mut(&member_id).expect("checked above");
        member.awaiting_sync = Some(ticket);
        // A member that waits again is not gone.
        member.is_abandoned = false;
        if self.is_leader(&member_id) {
            self.record_assignments(turn, &request.assignments);
        }
    }

    fn check_sync(&self, request: &SyncRequest<'_>) -> Result<(), ErrorCode> {
        let differs = |asked: Option<&str>, own: &Option<Arc<str>>| matches!((asked, own), (Some(asked), Some(own)) if *asked != **own);
        self.check_member(request.member.member_id, request.member.group_instance_id)?;
        if request.member.generation_id != self.generation {
            Err(ErrorCode::IllegalGeneration)
        } else if differs(request.protocol_type, &self.protocol_type)
            || differs(request.protocol_name, &self.protocol)
        {
            Err(ErrorCode::InconsistentGroupProtocol)
        } else {
            match self.state {
                GroupState::Empty => Err(ErrorCode::UnknownMemberId),
                GroupState::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
                GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
            }
        }
    }

    /// Records the leader's assignments, which makes the generation stable; a member without one
    /// gets an empty assignment.
    fn record_assignments(&mut self, turn: &mut Turn<'_>, assignments: &[(&str, &[u8])]) {
        let assignments: BTreeMap<&str, &[u8]> = assignments.iter().copied().collect();
        let mut stored = self.to_stored(turn.now.timestamp);
        for member in &mut stored.members {
            member.assignment = assignments
                .get(&*member.member_id)
                .copied()
                .unwrap_or_default()
                .into();
        }
        if stored.size_bytes() > turn.config.batch_bytes_max {
            self.revoke_assignments(turn, ErrorCode::UnknownServerError);
            self.prepare_rebalance(turn);
            return;
        }
        turn.record_group(self, stored);
        self.hand_out_assignments(turn);
    }

    pub(super) fn heartbeat(&mut self, turn: &mut Turn<'_>, request: &MemberRequest<'_>) -> ErrorCode {
        if self.consumer.is_some() {
            return self.heartbeat_consumer(turn, request);
        }
        if let Err(error) = self.check_member(request.member_id, request.group_instance_id) {
            return error;
        }
        if request.generation_id != self.generation {
            return ErrorCode::IllegalGeneration;
        }
        self.renew_session(turn, &request.member_id.into());
        match self.state {
            GroupState::Empty => ErrorCode::UnknownMemberId,
            GroupState::PreparingRebalance => ErrorCode::RebalanceInProgress,
            GroupState::CompletingRebalance | GroupState::Stable => ErrorCode::None,
        }
    }

    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, request: &LeaveRequest<'_>) -> Vec<LeftMember> {
        let mut left = Vec::with_capacity(request.members.len());
        for (member_id, instance_id) in &request.members {
            let result = self.leave_one(turn, member_id, *instance_id, request.reason);
            left.push(LeftMember {
                member_id: (*member_id).to_owned(),
                group_instance_id: instance_id.map(str::to_owned),
                error: result.err().unwrap_or(ErrorCode::None),
            });
        }
        if left.iter().any(|member| member.error == ErrorCode::None) {
            self.after_departures(turn);
            match self.state {
                GroupState::Stable | GroupState::CompletingRebalance => self.prepare_rebalance(turn),
                GroupState::PreparingRebalance => self.complete_join_if_all_are_here(turn),
                GroupState::Empty => {}
            }
        }
        left
    }

    fn leave_one(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &str,
        instance_id: Option<&str>,
        reason: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if self.consumer.is_some() {
            return self.leave_consumer(turn, member_id, instance_id, reason);
        }
        let member_id: Arc<str> = if member_id.is_empty() {
            instance_id
                .and_then(|instance_id| self.static_members.get(instance_id).cloned())
                .ok_or(ErrorCode::UnknownMemberId)?
        } else {
            if !self.pending_join.contains(member_id) {
                self.check_member(member_id, instance_id)?;
            }
            member_id.into()
        };
        self.expel_member(turn, &member_id, Departure::left(reason));
        Ok(())
    }

    /// Handles the closing of the connection behind a parked answer. Its member has one session
    /// timeout to return.
    pub(super) fn abandon(&mut self, turn: &mut Turn<'_>, ticket: Ticket) {
        let member = self
            .members
            .values_mut()
            .find(|member| member.awaiting_join == Some(ticket) || member.awaiting_sync == Some(ticket));
        if let Some(member) = member {
            member.is_abandoned = true;
            let member_id = member.member_id.clone();
            self.renew_session(turn, &member_id);
        }
    }
}
