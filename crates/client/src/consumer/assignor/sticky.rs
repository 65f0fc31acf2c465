//! `sticky` and `cooperative-sticky`: balance first, then as little movement as possible.
//!
//! Both number members and partitions once and work on the numbers. Where every member subscribes
//! to the same topics, `constrained` assigns in one pass; else `general` moves partitions until no
//! move improves the balance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::constrained;
use super::general;
use super::java_order;
use super::racks::Racks;
use super::subscription::MemberSubscription;
use super::topics::TopicReplicas;
use super::user_data::{self, MemberData, NO_GENERATION};
use super::{GroupAssignment, empty_assignment};
use crate::consumer::topic_partition::TopicPartition;

/// A group in numbers: members in the order of Kafka's hash map, partitions by topic and index.
pub struct Problem<'a> {
    pub members: Vec<Member<'a>>,
    pub topics: Vec<Topic<'a>>,
    /// The topic of each partition.
    pub partition_topics: Vec<usize>,
    pub racks: Racks,
    pub is_subscribed_alike: bool,
    /// Claimed by two members in the same generation: treated as unowned, and not to be assigned at
    /// once.
    pub doubly_claimed: BTreeSet<usize>,
    pub generation_max: i32,
}

pub struct Member<'a> {
    pub subscription: &'a MemberSubscription,
    /// Rank of the member's id in Java's sort order.
    pub rank: usize,
    /// Subscribed topics that exist.
    pub topics: BTreeSet<usize>,
    /// Partitions that the member claims and no member claims with a higher generation.
    pub owned: Vec<usize>,
    /// All partitions that it claims.
    pub claimed: Vec<usize>,
    pub generation: Option<i32>,
}

pub struct Topic<'a> {
    pub name: &'a Arc<str>,
    /// The number of its partition 0; the others follow.
    pub first: usize,
    pub count: usize,
}

/// The result of an algorithm, by member number.
pub struct Solution {
    pub partitions: Vec<Vec<usize>>,
    /// Partitions that go from one member to another, where the algorithm knows it.
    pub moved: Option<BTreeSet<usize>>,
}

pub fn assign(topics: &BTreeMap<Arc<str>, TopicReplicas>, members: &[MemberSubscription]) -> GroupAssignment {
    let problem = Problem::new(topics, members, user_data::sticky);
    let solution = problem.solve();
    problem.named(members, &solution, &BTreeSet::new())
}

/// Like `assign`, but a partition that another member still owns stays unassigned: its owner sees
/// that it must revoke it, and the following rebalance assigns it (KIP-429).
pub fn assign_cooperatively(
    topics: &BTreeMap<Arc<str>, TopicReplicas>,
    members: &[MemberSubscription],
) -> GroupAssignment {
    let problem = Problem::new(topics, members, user_data::cooperative_sticky);
    let solution = problem.solve();
    let moved = match &solution.moved {
        Some(moved) => moved.clone(),
        None => problem.moved(&solution),
    };
    problem.named(members, &solution, &moved)
}

impl<'a> Problem<'a> {
    fn new(
        topics: &'a BTreeMap<Arc<str>, TopicReplicas>,
        members: &'a [MemberSubscription],
        data: fn(&MemberSubscription) -> MemberData,
    ) -> Problem<'a> {
        let mut numbered: Vec<Topic<'_>> = Vec::new();
        let mut partition_topics = Vec::new();
        for (name, replicas) in topics {
            // Topics without subscribers do not take part.
            if replicas.partition_count() == 0 || !members.iter().any(|member| member.topics.contains(name)) {
                continue;
            }
            let first = partition_topics.len();
            let count = replicas.partition_count();
            partition_topics.extend(std::iter::repeat_n(numbered.len(), count));
            numbered.push(Topic { name, first, count });
        }
        let ordered: Vec<&MemberSubscription> =
            java_order::hash_map_order(members.iter().map(|member| &*member.member_id))
                .into_iter()
                .map(|index| &members[index])
                .collect();
        let racks = Racks::new(
            ordered.iter().copied(),
            numbered.iter().flat_map(|topic| topics[topic.name].racks.iter()),
        );
        let mut problem = Problem {
            members: Vec::new(),
            topics: numbered,
            partition_topics,
            racks,
            is_subscribed_alike: is_subscribed_alike(&ordered),
            doubly_claimed: BTreeSet::new(),
            generation_max: NO_GENERATION,
        };
        problem.number_members(&ordered, data);
        problem
    }

    fn number_members(
        &mut self,
        ordered: &[&'a MemberSubscription],
        data: fn(&MemberSubscription) -> MemberData,
    ) {
        let by_name: BTreeMap<&str, usize> = self
            .topics
            .iter()
            .enumerate()
            .map(|(index, topic)| (&**topic.name, index))
            .collect();
        let mut by_rank: Vec<usize> = (0..ordered.len()).collect();
        by_rank.sort_by(|left, right| {
            java_order::compare(&ordered[*left].member_id, &ordered[*right].member_id)
        });
        let mut ranks = vec![0; ordered.len()];
        for (rank, index) in by_rank.into_iter().enumerate() {
            ranks[index] = rank;
        }
        let mut owners: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, subscription) in ordered.iter().enumerate() {
            let MemberData {
                partitions,
                generation,
            } = data(subscription);
            let generation_or_none = generation.unwrap_or(NO_GENERATION);
            self.generation_max = self.generation_max.max(generation_or_none);
            let named = subscription.topics.iter();
            self.members.push(Member {
                subscription,
                rank: ranks[index],
                topics: named.filter_map(|topic| by_name.get(&**topic).copied()).collect(),
                owned: Vec::new(),
                claimed: Vec::new(),
                generation,
            });
            for partition in &partitions {
                // Partitions that do not exist (the topic was recreated with fewer) have no owner.
                if let Some(number) = self.number(&by_name, partition) {
                    self.members[index].claimed.push(number);
                    self.claim(number, index, generation_or_none, &mut owners);
                }
            }
        }
    }

    fn number(&self, by_name: &BTreeMap<&str, usize>, partition: &TopicPartition) -> Option<usize> {
        let topic = &self.topics[*by_name.get(&*partition.topic)?];
        let index = usize::try_from(partition.partition).ok()?;
        (index < topic.count).then_some(topic.first + index)
    }

    fn claim(
        &mut self,
        partition: usize,
        member: usize,
        generation: i32,
        owners: &mut BTreeMap<usize, usize>,
    ) {
        let Some(&other) = owners.get(&partition) else {
            self.members[member].owned.push(partition);
            owners.insert(partition, member);
            return;
        };
        let other_generation = self.members[other]
            .subscription
            .generation
            .unwrap_or(NO_GENERATION);
        if generation < other_generation {
            return;
        }
        remove(&mut self.members[other].owned, partition);
        owners.insert(partition, member);
        if generation == other_generation {
            self.doubly_claimed.insert(partition);
        } else {
            self.members[member].owned.push(partition);
        }
    }

    fn solve(&self) -> Solution {
        if self.is_subscribed_alike {
            constrained::solve(self)
        } else {
            general::solve(self)
        }
    }

    /// The partitions that one member lost and another got.
    fn moved(&self, solution: &Solution) -> BTreeSet<usize> {
        let by_name: BTreeMap<&str, usize> = self
            .topics
            .iter()
            .enumerate()
            .map(|(index, topic)| (&**topic.name, index))
            .collect();
        let mut added = BTreeSet::new();
        let mut revoked = BTreeSet::new();
        for (member, partitions) in self.members.iter().zip(&solution.partitions) {
            let owned = member.subscription.owned.iter();
            let owned: BTreeSet<usize> = owned
                .filter_map(|partition| self.number(&by_name, partition))
                .collect();
            let assigned: BTreeSet<usize> = partitions.iter().copied().collect();
            added.extend(assigned.difference(&owned).copied());
            revoked.extend(owned.difference(&assigned).copied());
        }
        added.intersection(&revoked).copied().collect()
    }

    fn named(
        &self,
        members: &[MemberSubscription],
        solution: &Solution,
        withheld: &BTreeSet<usize>,
    ) -> GroupAssignment {
        let mut assignment = empty_assignment(members);
        for (member, partitions) in self.members.iter().zip(&solution.partitions) {
            let named = partitions
                .iter()
                .filter(|partition| !withheld.contains(partition))
                .map(|partition| {
                    let topic = &self.topics[self.partition_topics[*partition]];
                    TopicPartition::new(topic.name.clone(), (partition - topic.first) as i32)
                });
            assignment.insert(member.subscription.member_id.clone(), named.collect());
        }
        assignment
    }
}

/// Kafka skips members without topics (a pattern that matches nothing) when they come first, and
/// then assigns them partitions that they must refuse, forever; here such members count as
/// different from the others.
fn is_subscribed_alike(ordered: &[&MemberSubscription]) -> bool {
    let Some((first, others)) = ordered.split_first() else {
        return true;
    };
    let topics: BTreeSet<&Arc<str>> = first.topics.iter().collect();
    others.iter().all(|member| {
        member.topics.len() == topics.len() && member.topics.iter().all(|topic| topics.contains(topic))
    })
}

pub fn remove(partitions: &mut Vec<usize>, partition: usize) {
    if let Some(index) = partitions.iter().position(|other| *other == partition) {
        partitions.remove(index);
    }
}
