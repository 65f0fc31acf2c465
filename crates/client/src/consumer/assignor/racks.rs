//! Racks of members and partitions (KIP-881): prefer a member that can read from a nearby replica.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::subscription::MemberSubscription;

/// Whether rack awareness can gain anything: members and partitions share a rack, and not every
/// partition is in every rack.
pub fn make_a_difference(
    member_racks: &BTreeSet<&Arc<str>>,
    partition_racks: &[&BTreeSet<Arc<str>>],
) -> bool {
    let all: BTreeSet<&Arc<str>> = partition_racks.iter().flat_map(|racks| racks.iter()).collect();
    if member_racks.is_disjoint(&all) {
        return false;
    }
    // `all` is the union, so a set of the same size is the same set.
    !partition_racks.iter().all(|racks| racks.len() == all.len())
}

/// Racks of a whole group, for the sticky assignors, which number members and partitions.
pub struct Racks {
    /// Empty when racks make no difference.
    members: Vec<Option<Arc<str>>>,
    partitions: Vec<BTreeSet<Arc<str>>>,
    /// Number of members in the racks of a partition; empty when no member names a rack.
    nearby_members: Vec<usize>,
}

impl Racks {
    pub fn new<'a>(
        members: impl Iterator<Item = &'a MemberSubscription> + Clone,
        partitions: impl Iterator<Item = &'a BTreeSet<Arc<str>>>,
    ) -> Racks {
        let mut member_counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for rack in members.clone().filter_map(|member| member.rack.as_ref()) {
            *member_counts.entry(rack).or_default() += 1;
        }
        let mut racks = Racks {
            members: Vec::new(),
            partitions: Vec::new(),
            nearby_members: Vec::new(),
        };
        if member_counts.is_empty() {
            return racks;
        }
        let partitions: Vec<&BTreeSet<Arc<str>>> = partitions.collect();
        let nearby = |partition: &&BTreeSet<Arc<str>>| {
            partition.iter().filter_map(|rack| member_counts.get(rack)).sum()
        };
        racks.nearby_members = partitions.iter().map(nearby).collect();
        if make_a_difference(&member_counts.keys().copied().collect(), &partitions) {
            racks.members = members.map(|member| member.rack.clone()).collect();
            racks.partitions = partitions.into_iter().cloned().collect();
        }
        racks
    }

    pub fn are_used(&self) -> bool {
        !self.members.is_empty()
    }

    /// Whether the member names a rack that has no replica.
    pub fn mismatch(&self, member: usize, partition: usize) -> bool {
        match self.members.get(member) {
            Some(Some(rack)) => !self.partitions[partition].contains(rack),
            _ => false,
        }
    }

    /// Whether the member names a rack that has a replica.
    pub fn match_exactly(&self, member: usize, partition: usize) -> bool {
        match self.members.get(member) {
            Some(Some(rack)) => self.partitions[partition].contains(rack),
            _ => false,
        }
    }

    /// Sorts partitions with few nearby members first.
    pub fn sort_by_nearby_members(&self, partitions: &mut [usize]) {
        if !self.nearby_members.is_empty() {
            partitions.sort_by_key(|partition| self.nearby_members[*partition]);
        }
    }

    /// The first nearby member of the partition, searching cyclically from `first`.
    pub fn next_nearby(&self, partition: usize, members: &[usize], first: usize) -> Option<usize> {
        (0..members.len())
            .map(|step| (first + step) % members.len())
            .find(|index| self.match_exactly(members[*index], partition))
    }
}
