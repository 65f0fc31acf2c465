//! Members that leave, or are fenced because they were not heard of in time.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use crate::group::classic::Group;
use crate::group::overview::{Departed, Departure};
use crate::group::rebalances::Cause;
use crate::group::timer::Timer;
use crate::group::turn::Turn;

use super::admission::unknown_member;
use super::member::{CurrentAssignment, MemberState};
use super::record::ConsumerRecord;
use super::request::{
    ConsumerHeartbeat, HeartbeatRefusal, HeartbeatReply, HeartbeatResult, STATIC_LEAVE_EPOCH,
};

impl Group {
    pub(super) fn consumer_leave(
        &mut self,
        turn: &mut Turn<'_>,
        request: &ConsumerHeartbeat<'_>,
    ) -> HeartbeatResult {
        let member_id = self.leaving_member(request)?;
        if request.member_epoch == STATIC_LEAVE_EPOCH {
            self.leave_for_a_while(turn, &member_id);
        } else {
            if let Some(consumer) = &mut self.consumer {
                consumer.seen = Arc::downgrade(&request.topics);
            }
            self.remove_consumer_member(turn, &member_id, Departure::left(None));
        }
        Ok(HeartbeatReply {
            member_id,
            member_epoch: request.member_epoch,
            heartbeat_interval_ms: 0,
            assignment: None,
        })
    }

    fn leaving_member(&self, request: &ConsumerHeartbeat<'_>) -> Result<Arc<str>, HeartbeatRefusal> {
        let Some(consumer) = &self.consumer else {
            return Err(HeartbeatRefusal::new(
                ErrorCode::GroupIdNotFound,
                format!("there is no consumer group {}", request.group_id),
            ));
        };
        let known = match request.instance_id {
            Some(instance_id) => consumer.static_member(instance_id),
            None => consumer
                .members
                .get_key_value(request.member_id)
                .map(|(member_id, _)| member_id),
        };
        match known {
            None => Err(unknown_member(request)),
            Some(known) if **known != *request.member_id => Err(HeartbeatRefusal::new(
                ErrorCode::FencedInstanceId,
                format!("the instance belongs to member {known}"),
            )),
            Some(known) => Ok(known.clone()),
        }
    }

    /// KIP-345: the member's place is kept until its session ends.
    fn leave_for_a_while(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        let current = self.consumer_member(member_id).unwrap_or_default().current;
        let away = CurrentAssignment {
            epoch: STATIC_LEAVE_EPOCH,
            previous_epoch: current.previous_epoch,
            state: MemberState::Stable,
            assigned: current.assigned.clone(),
            revoking: Default::default(),
        };
        let timer = Timer::Revocation(self.group_id.clone(), member_id.clone());
        turn.timers.cancel(timer);
        self.record_consumer(
            turn,
            ConsumerRecord::Current(member_id.clone(), Some(Arc::new(away))),
        );
    }

    /// Removes a member: its partitions are free, and the next heartbeat of another member computes
    /// a target without it.
    pub(in crate::group) fn remove_consumer_member(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &Arc<str>,
        why: Departure,
    ) {
        if self.consumer_member(member_id).is_some() {
            self.take_out(turn, member_id, why);
            self.after_departures(turn);
        }
    }

    /// Takes a member out; `after_departures` has to follow.
    fn take_out(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>, why: Departure) {
        let Some(member) = self.consumer_member(member_id) else {
            return;
        };
        self.departures.add(Departed {
            member: member.overview(member_id, turn.config.consumer.session_timeout_ms),
            at: turn.now.timestamp,
            why,
        });
        self.rebalances
            .begin(turn.now.timestamp, Cause::Left(member.metadata.client_id.clone()));
        self.cancel_timers(turn, member_id);
        self.record_removal(turn, member_id);
        self.drop_unused_regexes(turn);
    }

    /// Members that leave with one request raise the epoch once.
    pub(in crate::group) fn after_departures(&mut self, turn: &mut Turn<'_>) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        let seen = consumer.seen.upgrade();
        // Without topics to compare with, the next heartbeat does it.
        let metadata_hash = seen.map_or(consumer.metadata_hash, |topics| consumer.hash_of(&topics));
        self.raise_epoch(turn, metadata_hash);
        self.end_rebalance(turn);
    }

    pub(super) fn record_removal(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        for record in [
            ConsumerRecord::Current(member_id.clone(), None),
            ConsumerRecord::Target(member_id.clone(), None),
            ConsumerRecord::Member(member_id.clone(), None),
        ] {
            self.record_consumer(turn, record);
        }
    }

    pub(super) fn cancel_timers(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        for timer in [Timer::Session, Timer::Revocation, Timer::Rejoin] {
            turn.timers
                .cancel(timer(self.group_id.clone(), member_id.clone()));
        }
    }

    /// LeaveGroup, by a classic member or by an administration tool, which removes static members.
    /// Others leave by their heartbeat. `after_departures` has to follow.
    pub(in crate::group) fn leave_consumer(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &str,
        instance_id: Option<&str>,
        reason: Option<&str>,
    ) -> Result<(), ErrorCode> {
        let consumer = self.consumer.as_ref().ok_or(ErrorCode::UnknownMemberId)?;
        let known = match instance_id {
            Some(instance_id) => consumer.static_member(instance_id),
            None => consumer.classic_member_id(member_id),
        };
        let known = known.cloned().ok_or(ErrorCode::UnknownMemberId)?;
        if !member_id.is_empty() && *known != *member_id {
            return Err(ErrorCode::FencedInstanceId);
        }
        self.take_out(turn, &known, Departure::left(reason));
        Ok(())
    }

    /// The end of a member's time to give up partitions, its rebalance timeout.
    pub(in crate::group) fn on_revocation_deadline(&mut self, turn: &mut Turn<'_>, member_id: &Arc<str>) {
        let current = self.consumer_member(member_id).unwrap_or_default().current;
        if current.state == MemberState::Unrevoked {
            self.remove_consumer_member(turn, member_id, Departure::DidNotRejoin);
        }
    }

    /// Starts the timers of all members in the log.
    pub(in crate::group) fn arm_consumer(&self, turn: &mut Turn<'_>) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        for (member_id, member) in &consumer.members {
            let session = Timer::Session(self.group_id.clone(), member_id.clone());
            let classic = member.metadata.classic.as_ref();
            let timeout_ms = classic.map(|classic| classic.session_timeout_ms);
            turn.schedule(
                session,
                timeout_ms.unwrap_or(turn.config.consumer.session_timeout_ms),
            );
            if member.current.state == MemberState::Unrevoked {
                let timer = Timer::Revocation(self.group_id.clone(), member_id.clone());
                turn.schedule(timer, member.metadata.rebalance_timeout_ms);
            }
        }
    }

    /// Removes what is left of a consumer group without members.
    pub(in crate::group) fn remove_consumer(&mut self, turn: &mut Turn<'_>) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        for record in consumer.removal() {
            self.record_consumer(turn, record);
        }
    }

    pub fn has_consumer_members(&self) -> bool {
        self.consumer
            .as_ref()
            .is_some_and(|consumer| !consumer.members.is_empty())
    }
}
