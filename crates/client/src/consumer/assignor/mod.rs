//! Assignors: the leader of a group distributes partitions over its members.
//!
//! The results equal those of Apache Kafka's assignors for the same input, down to choices that
//! depend there on the order of a hash table: in a group of mixed clients the leader changes, and
//! partitions must not move because of that.

pub mod subscription;
pub mod topics;
mod java_order;
mod range;
mod round_robin;
mod racks;
mod sticky;
mod constrained;
mod general;
mod movements;
pub mod user_data;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::subscription::MemberSubscription;
use self::topics::TopicReplicas;
use super::topic_partition::TopicPartition;
use crate::config::AssignorKind;

/// Partitions by member id; every member has an entry.
pub type GroupAssignment = BTreeMap<Arc<str>, BTreeSet<TopicPartition>>;

/// How a rebalance treats the partitions that members own (KIP-429).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebalanceProtocol {
    /// All partitions are given up before the group is joined.
    Eager,
    /// Only partitions that go to another member are given up, after the assignment says so; then
    /// the group is joined again.
    Cooperative,
}

impl AssignorKind {
    /// The name in JoinGroup and in `partition.assignment.strategy`.
    pub fn protocol_name(self) -> &'static str {
        match self {
            AssignorKind::Range => "range",
            AssignorKind::RoundRobin => "roundrobin",
            AssignorKind::Sticky => "sticky",
            AssignorKind::CooperativeSticky => "cooperative-sticky",
        }
    }

    fn supports(self, protocol: RebalanceProtocol) -> bool {
        protocol == RebalanceProtocol::Eager || self == AssignorKind::CooperativeSticky
    }

    /// - `members`: in the order of the JoinGroup response.
    pub fn assign(
        self,
        topics: &BTreeMap<Arc<str>, TopicReplicas>,
        members: &[MemberSubscription],
    ) -> GroupAssignment {
        match self {
            AssignorKind::Range => range::assign(topics, members),
            AssignorKind::RoundRobin => round_robin::assign(topics, members),
            AssignorKind::Sticky => sticky::assign(topics, members),
            AssignorKind::CooperativeSticky => sticky::assign_cooperatively(topics, members),
        }
    }
}

/// The highest protocol that all assignors support: a group moves from eager to cooperative when
/// the last eager assignor is removed from the members' lists.
pub fn common_protocol(assignors: &[AssignorKind]) -> RebalanceProtocol {
    let is_cooperative = assignors
        .iter()
        .all(|assignor| assignor.supports(RebalanceProtocol::Cooperative));
    if is_cooperative && !assignors.is_empty() {
        RebalanceProtocol::Cooperative
    } else {
        RebalanceProtocol::Eager
    }
}

fn empty_assignment(members: &[MemberSubscription]) -> GroupAssignment {
    members
        .iter()
        .map(|member| (member.member_id.clone(), BTreeSet::new()))
        .collect()
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;
