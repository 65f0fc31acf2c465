//! Who sent a heartbeat: a member that is known, one that joins, or one that is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use crate::group::classic::Group;
use crate::group::join::TIMERS_MAX;
use crate::group::record::GroupRecord;
use crate::group::timer::Timer;
use crate::group::turn::Turn;

use super::member::{CurrentAssignment, MemberState};
use super::record::ConsumerRecord;
use super::request::{ConsumerHeartbeat, HeartbeatRefusal, JOIN_EPOCH};

type Admission = Result<Arc<str>, HeartbeatRefusal>;

impl Group {
    /// Returns the id of the member that sent the heartbeat. It is not recorded yet if it is new.
    pub(super) fn admit(&mut self, turn: &mut Turn<'_>, request: &ConsumerHeartbeat<'_>) -> Admission {
        if self.consumer.is_none() {
            self.check_kind(request)?;
        }
        self.check_room_for(turn, request)?;
        if !self.members.is_empty() {
            self.upgrade(turn, &request.topics)?;
        }
        match request.instance_id {
            Some(instance_id) => self.admit_static(turn, request, instance_id),
            None => self.admit_dynamic(turn, request),
        }
    }

    fn check_kind(&self, request: &ConsumerHeartbeat<'_>) -> Result<(), HeartbeatRefusal> {
        let group_id = &self.group_id;
        if self.is_void() && request.member_epoch != JOIN_EPOCH {
            return Err(HeartbeatRefusal::new(
                ErrorCode::GroupIdNotFound,
                format!("there is no group {group_id}"),
            ));
        }
        if !self.foreign.is_empty() || request.member_epoch != JOIN_EPOCH {
            return Err(HeartbeatRefusal::new(
                ErrorCode::GroupIdNotFound,
                format!("group {group_id} is not a consumer group"),
            ));
        }
        Ok(())
    }

    fn check_room_for(
        &self,
        turn: &Turn<'_>,
        request: &ConsumerHeartbeat<'_>,
    ) -> Result<(), HeartbeatRefusal> {
        let members = self.consumer.as_ref().map(|consumer| &consumer.members);
        if members.is_some_and(|members| members.contains_key(request.member_id)) {
            return Ok(());
        }
        let size_max = turn.config.consumer.size_max;
        if members.map_or(self.members.len(), BTreeMap::len) >= size_max {
            return Err(HeartbeatRefusal::new(
                ErrorCode::GroupMaxSizeReached,
                format!("the group has {size_max} members, as many as group.consumer.max.size allows"),
            ));
        }
        if request.member_epoch == JOIN_EPOCH && turn.timers.count() >= TIMERS_MAX {
            return Err(HeartbeatRefusal::new(
                ErrorCode::CoordinatorNotAvailable,
                "the coordinator has too many members",
            ));
        }
        Ok(())
    }

    fn admit_dynamic(&mut self, turn: &mut Turn<'_>, request: &ConsumerHeartbeat<'_>) -> Admission {
        let current = self.current_of(request.member_id);
        match current {
            Some(_) if request.member_epoch == JOIN_EPOCH => Ok(request.member_id.into()),
            Some(current) => {
                check_epoch(&current, request)?;
                Ok(request.member_id.into())
            }
            None if request.member_epoch != JOIN_EPOCH => Err(unknown_member(request)),
            None => {
                self.become_consumer(turn);
                Ok(match request.member_id {
                    "" => turn.ids.next(request.client_id),
                    member_id => member_id.into(),
                })
            }
        }
    }

    fn admit_static(
        &mut self,
        turn: &mut Turn<'_>,
        request: &ConsumerHeartbeat<'_>,
        instance_id: &str,
    ) -> Admission {
        let consumer = self.consumer.as_ref();
        let known = consumer
            .and_then(|consumer| consumer.static_member(instance_id))
            .cloned();
        let is_same = known.as_deref() == Some(request.member_id);
        let member_id = || match request.member_id {
            "" => None,
            member_id => Some(Arc::from(member_id)),
        };
        match known {
            None if request.member_epoch != JOIN_EPOCH => Err(unknown_member(request)),
            None => {
                self.become_consumer(turn);
                Ok(member_id().unwrap_or_else(|| turn.ids.next(instance_id)))
            }
            Some(known) if request.member_epoch == JOIN_EPOCH && is_same => Ok(known),
            Some(known) if request.member_epoch == JOIN_EPOCH => {
                self.check_released(&known, instance_id)?;
                let new = member_id().unwrap_or_else(|| turn.ids.next(instance_id));
                self.replace_member(turn, &known, &new);
                Ok(new)
            }
            Some(known) if !is_same => Err(HeartbeatRefusal::new(
                ErrorCode::FencedInstanceId,
                format!("instance {instance_id} belongs to member {known}"),
            )),
            Some(known) => {
                check_epoch(&self.current_of(&known).unwrap_or_default(), request)?;
                Ok(known)
            }
        }
    }

    /// An instance id can be taken over from a member that has left for a while, and from a classic
    /// one.
    fn check_released(&self, known: &str, instance_id: &str) -> Result<(), HeartbeatRefusal> {
        let member = self.consumer_member(known).unwrap_or_default();
        if member.current.is_away() || member.metadata.classic.is_some() {
            return Ok(());
        }
        Err(HeartbeatRefusal::new(
            ErrorCode::UnreleasedInstanceId,
            format!("instance {instance_id} is still used by member {known}"),
        ))
    }

    /// A classic group is replaced; its offsets stay.
    pub(super) fn become_consumer(&mut self, turn: &mut Turn<'_>) {
        if self.consumer.is_some() {
            return;
        }
        turn.timers.cancel(Timer::Join(self.group_id.clone()));
        turn.timers.cancel(Timer::Sync(self.group_id.clone()));
        if self.stored.is_some() {
            let group = self.group_id.clone();
            turn.record(self, GroupRecord::Group { group, value: None });
        }
        self.consumer = Some(Box::default());
    }

    /// KIP-345: a static member that comes back under another id gets what it had.
    pub(super) fn replace_member(&mut self, turn: &mut Turn<'_>, old: &Arc<str>, new: &Arc<str>) {
        let consumer = self.consumer.as_ref().expect("it has a static member");
        let member = consumer.members[old].clone();
        let target = consumer.target_of(old);
        let current = CurrentAssignment {
            epoch: JOIN_EPOCH,
            previous_epoch: JOIN_EPOCH,
            state: MemberState::Stable,
            assigned: member.current.assigned.clone(),
            revoking: Default::default(),
        };
        self.cancel_timers(turn, old);
        self.record_removal(turn, old);
        for record in [
            ConsumerRecord::Member(new.clone(), Some(member.metadata)),
            ConsumerRecord::Target(new.clone(), Some(target)),
            ConsumerRecord::Current(new.clone(), Some(Arc::new(current))),
        ] {
            self.record_consumer(turn, record);
        }
    }

    fn current_of(&self, member_id: &str) -> Option<Arc<CurrentAssignment>> {
        let member = self.consumer.as_ref()?.members.get(member_id)?;
        Some(member.current.clone())
    }
}

/// A member one epoch behind has missed an answer, which it may if it owns nothing that was taken
/// from it since.
fn check_epoch(current: &CurrentAssignment, request: &ConsumerHeartbeat<'_>) -> Result<(), HeartbeatRefusal> {
    let epoch = request.member_epoch;
    let missed_answer = epoch == current.previous_epoch
        && epoch < current.epoch
        && request.owned.as_ref().is_some_and(|owned| current.covers(owned));
    if epoch == current.epoch || missed_answer {
        return Ok(());
    }
    Err(HeartbeatRefusal::new(
        ErrorCode::FencedMemberEpoch,
        format!(
            "the member's epoch is {}, not {epoch}; it must join again",
            current.epoch
        ),
    ))
}

pub(super) fn unknown_member(request: &ConsumerHeartbeat<'_>) -> HeartbeatRefusal {
    let (member_id, group_id) = (request.member_id, request.group_id);
    HeartbeatRefusal::new(
        ErrorCode::UnknownMemberId,
        format!("{member_id} is no member of group {group_id}"),
    )
}
