//! Rebalances: from a change in membership to a new generation that all members know.
//!
//! Empty or Stable -> PreparingRebalance: members join again -> CompletingRebalance: the leader
//! assigns -> Stable.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::classic::{Group, GroupState, InitialDelay};
use super::overview::{Departed, Departure};
use super::rebalances::Cause;
use super::record::StoredGroup;
use super::reply::{GroupReply, JoinReply, SyncReply};
use super::timer::Timer;
use super::turn::Turn;

impl Group {
    pub(super) fn rebalance_or_complete_join(&mut self, turn: &mut Turn<'_>) {
        if self.state == GroupState::PreparingRebalance {
            self.complete_join_if_all_are_here(turn);
        } else {
            self.prepare_rebalance(turn);
        }
    }

    pub(super) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>) {
        if self.state == GroupState::CompletingRebalance {
            self.revoke_assignments(turn, ErrorCode::RebalanceInProgress);
        }
        self.pending_sync.clear();
        turn.timers.cancel(Timer::Sync(self.group_id.clone()));
        let is_initial = self.state == GroupState::Empty;
        self.state = GroupState::PreparingRebalance;
        if is_initial {
            let delay_ms = turn.config.initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms).max(0);
            self.initial_delay = Some(InitialDelay {
                delay_ms,
                remaining_ms,
            });
            turn.schedule(Timer::Join(self.group_id.clone()), delay_ms);
        } else if self.have_all_joined() {
            self.complete_join(turn);
        } else {
            turn.schedule(Timer::Join(self.group_id.clone()), self.rebalance_timeout_ms());
        }
    }

    /// Ends the join phase when all members have joined. The first rebalance of an empty group ends
    /// with its timer instead.
    pub(super) fn complete_join_if_all_are_here(&mut self, turn: &mut Turn<'_>) {
        let is_waiting = self.state == GroupState::PreparingRebalance && self.initial_delay.is_none();
        if is_waiting && self.have_all_joined() {
            self.complete_join(turn);
        }
    }

    pub(super) fn on_join_deadline(&mut self, turn: &mut Turn<'_>) {
        if self.state != GroupState::PreparingRebalance {
            return;
        }
        match self.initial_delay {
            Some(InitialDelay {
                delay_ms,
                remaining_ms,
            }) if self.new_member_added && remaining_ms > 0 => {
                self.new_member_added = false;
                let next_ms = turn.config.initial_rebalance_delay_ms.min(remaining_ms);
                let remaining_ms = remaining_ms.saturating_sub(delay_ms).max(0);
                self.initial_delay = Some(InitialDelay {
                    delay_ms: next_ms,
                    remaining_ms,
                });
                turn.schedule(Timer::Join(self.group_id.clone()), next_ms);
            }
            _ => self.complete_join(turn),
        }
    }

    /// Ends the join phase with the members that have joined. Static members keep their place until
    /// their session ends (KIP-345).
    pub(super) fn complete_join(&mut self, turn: &mut Turn<'_>) {
        turn.timers.cancel(Timer::Join(self.group_id.clone()));
        self.initial_delay = None;
        self.new_member_added = false;
        let missing: Vec<Arc<str>> = self
            .members
            .values()
            .filter(|member| member.awaiting_join.is_none() && !member.is_static())
            .map(|member| member.member_id.clone())
            .collect();
        for member_id in missing {
            self.drop_member(turn, &member_id, Departure::DidNotRejoin);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            turn.schedule(Timer::Join(self.group_id.clone()), self.rebalance_timeout_ms());
            return;
        }
        self.pending_sync.clear();
        if self.members.is_empty() {
            self.record_empty(turn);
        } else {
            self.begin_generation(turn);
        }
    }

    fn record_empty(&mut self, turn: &mut Turn<'_>) {
        let stored = StoredGroup {
            protocol_type: self.protocol_type.clone(),
            generation: self.generation.wrapping_add(1).max(0),
            protocol: None,
            leader: None,
            state_timestamp: Some(turn.now.timestamp),
            members: Vec::new(),
        };
        turn.record_group(self, stored);
    }

    fn begin_generation(&mut self, turn: &mut Turn<'_>) {
        self.generation = self.generation.wrapping_add(1).max(0);
        self.protocol = self.elect_protocol();
        self.subscribed_topics = self.read_subscribed_topics();
        self.state = GroupState::CompletingRebalance;
        let member_ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in &member_ids {
            let reply = self.join_reply(member_id);
            self.answer_join(turn, member_id, reply);
            self.renew_session(turn, member_id);
        }
        for member in self.members.values_mut() {
            member.is_new = false;
        }
        self.pending_sync.extend(member_ids);
        turn.schedule(Timer::Sync(self.group_id.clone()), self.rebalance_timeout_ms());
    }

    fn elect_joined_leader(&mut self) -> bool {
        let is_here = |group: &Group, member_id: &Arc<str>| {
            group
                .members
                .get(member_id)
                .is_some_and(|member| member.awaiting_join.is_some())
        };
        if self.leader.as_ref().is_some_and(|leader| is_here(self, leader)) {
            return true;
        }
        let successor = self
            .members
            .keys()
            .find(|member_id| is_here(self, member_id))
            .cloned();
        if successor.is_some() {
            self.leader = successor.clone();
        }
        successor.is_some()
    }

    /// Removes members that have not synced and hold up the group; the others start over.
    pub(super) fn on_sync_deadline(&mut self, turn: &mut Turn<'_>) {
        let is_syncing = matches!(self.state, GroupState::CompletingRebalance | GroupState::Stable);
        if !is_syncing || self.pending_sync.is_empty() {
            return;
        }
        for member_id in std::mem::take(&mut self.pending_sync) {
            self.drop_member(turn, &member_id, Departure::DidNotSync);
        }
        self.prepare_rebalance(turn);
    }

    pub(super) fn on_session_deadline(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        if self.consumer.is_some() {
            self.pending_join.remove(member_id);
            self.remove_consumer_member(turn, member_id, Departure::SessionExpired);
        } else if self.pending_join.remove(member_id) {
            self.complete_join_if_nobody_is_missing(turn);
        } else if self
            .members
            .get(member_id)
            .is_some_and(|member| !member.is_excused())
        {
            self.expel_member(turn, member_id, Departure::SessionExpired);
            match self.state {
                GroupState::Stable | GroupState::CompletingRebalance => self.rebalance_or_complete_join(turn),
                GroupState::PreparingRebalance => self.complete_join_if_nobody_is_missing(turn),
                GroupState::Empty => {}
            }
        }
    }

    /// Unlike `complete_join_if_all_are_here` this also cuts an initial delay short: no member is
    /// missing.
    fn complete_join_if_nobody_is_missing(&mut self, turn: &mut Turn<'_>) {
        if self.state == GroupState::PreparingRebalance && self.have_all_joined() {
            self.complete_join(turn);
        }
    }

    /// Removes a member and, if it waits, answers it with an error that lets it join again.
    pub(super) fn expel_member(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>, why: Departure) {
        self.answer_join(
            turn,
            member_id,
            JoinReply::error(ErrorCode::UnknownMemberId, "".into()),
        );
        self.answer_sync(turn, member_id, SyncReply::error(ErrorCode::UnknownMemberId));
        self.drop_member(turn, member_id, why);
    }

    fn drop_member(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>, why: Departure) {
        if let Some(member) = self.remove_member(member_id) {
            self.rebalances
                .begin(turn.now.timestamp, Cause::Left(member.client_id.clone()));
            self.departures.add(Departed {
                member: member.overview(),
                at: turn.now.timestamp,
                why,
            });
        }
        turn.timers
            .cancel(Timer::Session(self.group_id.clone(), member_id.clone()));
    }

    /// Answers all members that wait for an assignment with the one in the group record.
    pub(super) fn hand_out_assignments(&mut self, turn: &mut Turn<'_>) {
        let member_ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in member_ids {
            let reply = self.sync_reply(&member_id);
            if self.answer_sync(turn, &member_id, reply) {
                self.renew_session(turn, &member_id);
            }
        }
    }

    pub(super) fn revoke_assignments(&mut self, turn: &mut Turn<'_>, error: ErrorCode) {
        let member_ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in member_ids {
            if let Some(member) = self.members.get_mut(&member_id) {
                member.assignment = Arc::from([]);
            }
            if self.answer_sync(turn, &member_id, SyncReply::error(error)) {
                self.renew_session(turn, &member_id);
            }
        }
    }

    pub(super) fn renew_session(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        if let Some(member) = self.members.get(member_id) {
            let timer = Timer::Session(self.group_id.clone(), member_id.clone());
            turn.schedule(timer, member.session_timeout_ms);
        }
    }

    pub(super) fn join_reply(&self, member_id: &Arc<str>) -> JoinReply {
        JoinReply {
            error: ErrorCode::None,
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| "".into()),
            skip_assignment: false,
            member_id: member_id.clone(),
            members: if self.is_leader(member_id) {
                self.members_for_leader()
            } else {
                Vec::new()
            },
        }
    }

    pub(super) fn sync_reply(&self, member_id: &Arc<str>) -> SyncReply {
        SyncReply {
            error: ErrorCode::None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: self
                .members
                .get(member_id)
                .map_or_else(|| Arc::from([]), |m| m.assignment.clone()),
        }
    }

    /// Answers a waiting join; true if the member was waiting.
    pub(super) fn answer_join(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &Arc<str>,
        reply: JoinReply,
    ) -> bool {
        let ticket = self
            .members
            .get_mut(member_id)
            .and_then(|member| member.awaiting_join.take());
        if let Some(ticket) = ticket {
            turn.reply(ticket, GroupReply::Join(reply));
        }
        ticket.is_some()
    }

    /// Answers a waiting sync; true if the member was waiting.
    pub(super) fn answer_sync(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &Arc<str>,
        reply: SyncReply,
    ) -> bool {
        let ticket = self
            .members
            .get_mut(member_id)
            .and_then(|member| member.awaiting_sync.take());
        if let Some(ticket) = ticket {
            turn.reply(ticket, GroupReply::Sync(reply));
        }
        ticket.is_some()
    }
}
