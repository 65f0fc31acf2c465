//! From what a member has to its target: first it gives up what is not in the target, then it gets
//! what no other member holds any more.

use std::collections::BTreeSet;

use ottla_wire::error_code::ErrorCode;

use crate::image::topics::TopicsImage;

use super::assignment::{Assigned, Partitions, TopicPartition};
use super::group::ConsumerGroup;
use super::member::{CurrentAssignment, MemberState};
use super::request::HeartbeatRefusal;

/// A member that may have to change.
pub(super) struct Reconciliation<'a> {
    pub group: &'a ConsumerGroup,
    pub current: &'a CurrentAssignment,
    pub target: Partitions,
    /// What the member is assigned, without topics that it does not subscribe to any more.
    pub wanted: Partitions,
    /// What the member says that it owns; `None`: it does not say, and may own everything.
    pub owned: Option<&'a Partitions>,
    pub has_subscription_changed: bool,
}

/// Returns the member's target without topics that it does not subscribe to: the target may be
/// older than the subscription.
pub(super) fn subscribed(target: &Partitions, topics: &TopicsImage, names: &BTreeSet<&str>) -> Partitions {
    let is_subscribed = |partition: &&TopicPartition| {
        let topic = topics.by_id(partition.0);
        topic.is_some_and(|topic| names.contains(&*topic.name))
    };
    target.iter().filter(is_subscribed).copied().collect()
}

impl Reconciliation<'_> {
    /// Returns what the member is to be told; equal to `current` if nothing changes.
    pub fn next(&self) -> Result<CurrentAssignment, HeartbeatRefusal> {
        let current = self.current;
        let target_epoch = self.group.target_epoch.epoch;
        Ok(match current.state {
            MemberState::Stable if current.epoch == target_epoch && !self.has_subscription_changed => {
                current.clone()
            }
            MemberState::Unrevoked if self.owns_any(&current.revoking) => self.without_unwanted(),
            MemberState::Stable | MemberState::Unreleased | MemberState::Unrevoked => {
                self.step(current.epoch)
            }
            MemberState::Unknown if self.owned.is_some_and(Partitions::is_empty) => self.step(target_epoch),
            MemberState::Unknown => {
                return Err(HeartbeatRefusal::new(
                    ErrorCode::FencedMemberEpoch,
                    "the member is in an unknown state; it must give up its partitions and join again",
                ));
            }
        })
    }

    /// The member has something to give up, and more where it does not subscribe to a topic any
    /// more.
    fn without_unwanted(&self) -> CurrentAssignment {
        let assigned = self.current.assigned.iter();
        let (assigned, unwanted): (Assigned, Assigned) =
            assigned.partition(|(partition, _)| self.wanted.contains(*partition));
        let mut next = self.current.clone();
        next.assigned = assigned;
        next.revoking.extend(unwanted);
        next
    }

    fn step(&self, epoch: i32) -> CurrentAssignment {
        let assigned = &self.current.assigned;
        let (kept, revoked): (Assigned, Assigned) = assigned
            .iter()
            .partition(|(partition, _)| self.target.contains(*partition));
        if self.owns_any(&revoked) {
            return self.at(epoch, MemberState::Unrevoked, kept, revoked);
        }
        let target_epoch = self.group.target_epoch.epoch;
        let missing = self
            .target
            .iter()
            .filter(|partition| !kept.contains_key(*partition));
        let (free, held): (Vec<&TopicPartition>, Vec<&TopicPartition>) =
            missing.partition(|partition| self.is_free(partition, &revoked));
        let state = if held.is_empty() {
            MemberState::Stable
        } else {
            MemberState::Unreleased
        };
        let new = free.into_iter().map(|partition| (*partition, target_epoch));
        let assigned = kept
            .iter()
            .map(|(partition, epoch)| (*partition, *epoch))
            .chain(new)
            .collect();
        self.at(target_epoch, state, assigned, Assigned::new())
    }

    /// A partition that the member has just given up is free only when that is recorded. One that
    /// the member was to give up, and is to have again, is held by no other member.
    fn is_free(&self, partition: &TopicPartition, revoked: &Assigned) -> bool {
        let is_own = self.current.revoking.contains_key(partition);
        (is_own || self.group.is_free(partition)) && !revoked.contains_key(partition)
    }

    fn at(
        &self,
        epoch: i32,
        state: MemberState,
        assigned: Assigned,
        revoking: Assigned,
    ) -> CurrentAssignment {
        let previous_epoch = if epoch == self.current.epoch {
            self.current.previous_epoch
        } else {
            self.current.epoch
        };
        CurrentAssignment {
            epoch,
            previous_epoch,
            state,
            assigned,
            revoking,
        }
    }

    fn owns_any(&self, revoked: &Assigned) -> bool {
        match self.owned {
            None => !revoked.is_empty(),
            Some(owned) => revoked.keys().any(|partition| owned.contains(partition)),
        }
    }
}
