//! Commits and fetches of offsets by members of a consumer group.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::group::classic::Group;
use crate::group::request::{MemberRequest, OffsetCommitRequest, OffsetFetchRequest};

use super::group::ConsumerGroup;

impl ConsumerGroup {
    /// Checks what a commit says about its member. An old epoch is judged for each partition.
    pub fn check_commit(&self, request: &OffsetCommitRequest<'_>) -> Result<(), ErrorCode> {
        let asked = &request.member;
        if asked.generation_id < 0 && self.members.is_empty() {
            // A commit by an administration tool, or by a consumer that manages its partitions
            // itself.
            return Ok(());
        }
        if request.is_transactional && names_nobody(asked) {
            // KIP-447: a transactional producer may name the group alone.
            return Ok(());
        }
        let member = self
            .members
            .get(asked.member_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        let is_classic = member.metadata.classic.is_some();
        if !request.knows_group_id_not_found && !request.is_transactional && !is_classic {
            // Its client would not understand the error codes of this protocol.
            return Err(ErrorCode::UnsupportedVersion);
        }
        if asked.generation_id > member.current.epoch {
            return Err(stale(is_classic));
        }
        Ok(())
    }

    /// KIP-1251: a member that has not seen its new epoch may commit for partitions that it had at
    /// the epoch that it names, and still has.
    pub fn check_commit_of(
        &self,
        request: &OffsetCommitRequest<'_>,
        topic_id: Uuid,
        partition: i32,
    ) -> ErrorCode {
        let epoch = request.member.generation_id;
        let Some(member) = self.members.get(request.member.member_id) else {
            return ErrorCode::None;
        };
        let held = (member.current.assigned.get(&(topic_id, partition)))
            .or_else(|| member.current.revoking.get(&(topic_id, partition)));
        if epoch == member.current.epoch || held.is_some_and(|since| *since <= epoch) {
            ErrorCode::None
        } else {
            stale(member.metadata.classic.is_some())
        }
    }
}

/// A classic client does not know member epochs.
fn stale(is_classic: bool) -> ErrorCode {
    match is_classic {
        true => ErrorCode::IllegalGeneration,
        false => ErrorCode::StaleMemberEpoch,
    }
}

fn names_nobody(member: &MemberRequest<'_>) -> bool {
    member.generation_id < 0 && member.member_id.is_empty() && member.group_instance_id.is_none()
}

impl Group {
    /// Checks a member's claim in OffsetFetch. A group that does not exist has no offsets, and says
    /// so without an error.
    pub(in crate::group) fn check_fetch(&self, request: &OffsetFetchRequest<'_>) -> Result<(), ErrorCode> {
        let Some((member_id, epoch)) = request.member else {
            return Ok(());
        };
        match &self.consumer {
            None => Ok(()),
            Some(consumer) => match consumer.members.get(member_id) {
                None => Err(ErrorCode::UnknownMemberId),
                Some(member) if member.current.epoch != epoch => {
                    Err(stale(member.metadata.classic.is_some()))
                }
                Some(_) => Ok(()),
            },
        }
    }
}
