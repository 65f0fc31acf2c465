//! `range`: each topic's partitions are split into contiguous runs, one per member; topics with the
//! same partition count are split alike, so that a member gets the same indexes of each
//! (co-partitioning). With racks: KIP-881.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::racks;
use super::subscription::MemberSubscription;
use super::topics::TopicReplicas;
use super::{GroupAssignment, empty_assignment};
use crate::consumer::topic_partition::TopicPartition;

/// The remaining work for one topic.
struct TopicState<'a> {
    name: &'a Arc<str>,
    replicas: &'a TopicReplicas,
    /// The topic's members in the order in which they are served.
    members: Vec<&'a MemberSubscription>,
    /// At least one member names a rack.
    knows_racks: bool,
    needs_rack_awareness: bool,
    unassigned: BTreeSet<usize>,
    /// By index in `members`.
    assigned_counts: Vec<usize>,
    partitions_per_member: usize,
    members_left_with_extra: usize,
}

pub fn assign(topics: &BTreeMap<Arc<str>, TopicReplicas>, members: &[MemberSubscription]) -> GroupAssignment {
    let mut sorted: Vec<&MemberSubscription> = members.iter().collect();
    sorted.sort_by(|left, right| left.compare(right));
    let mut states: Vec<TopicState<'_>> = topics
        .iter()
        .filter_map(|(name, replicas)| TopicState::new(name, replicas, &sorted))
        .collect();
    let mut assignment = empty_assignment(members);
    if states.iter().any(|state| state.needs_rack_awareness) {
        assign_with_racks(&mut states, &mut assignment);
    }
    for state in &mut states {
        state.assign_runs(|_, _| true, &mut assignment);
    }
    assignment
}

impl<'a> TopicState<'a> {
    fn new(
        name: &'a Arc<str>,
        replicas: &'a TopicReplicas,
        sorted: &[&'a MemberSubscription],
    ) -> Option<TopicState<'a>> {
        let members: Vec<&MemberSubscription> = sorted
            .iter()
            .copied()
            .filter(|member| member.topics.contains(name))
            .collect();
        let count = replicas.partition_count();
        if members.is_empty() || count == 0 {
            return None;
        }
        let member_racks: BTreeSet<&Arc<str>> =
            members.iter().filter_map(|member| member.rack.as_ref()).collect();
        let partition_racks: Vec<&BTreeSet<Arc<str>>> = replicas.racks.iter().collect();
        Some(TopicState {
            name,
            replicas,
            knows_racks: !member_racks.is_empty(),
            needs_rack_awareness: racks::make_a_difference(&member_racks, &partition_racks),
            unassigned: (0..count).collect(),
            assigned_counts: vec![0; members.len()],
            partitions_per_member: count / members.len(),
            members_left_with_extra: count % members.len(),
            members,
        })
    }

    fn rack_matches(&self, place: usize, partition: usize) -> bool {
        match &self.members[place].rack {
            None => true,
            Some(rack) => self
                .replicas
                .racks
                .get(partition)
                .is_some_and(|racks| racks.contains(rack)),
        }
    }

    /// The number of partitions that the member may still get.
    fn room(&self, place: usize) -> usize {
        let limit = self.partitions_per_member + usize::from(self.members_left_with_extra > 0);
        limit.saturating_sub(self.assigned_counts[place])
    }

    fn assign_runs(
        &mut self,
        may_assign: impl Fn(&TopicState<'_>, (usize, usize)) -> bool,
        assignment: &mut GroupAssignment,
    ) {
        for place in 0..self.members.len() {
            let run: Vec<usize> = self
                .unassigned
                .iter()
                .copied()
                .filter(|partition| may_assign(self, (place, *partition)))
                .take(self.room(place))
                .collect();
            if !run.is_empty() {
                self.assign(place, &run, assignment);
            }
        }
    }

    fn assign(&mut self, place: usize, partitions: &[usize], assignment: &mut GroupAssignment) {
        for partition in partitions {
            self.unassigned.remove(partition);
        }
        self.assigned_counts[place] += partitions.len();
        if self.assigned_counts[place] > self.partitions_per_member {
            self.members_left_with_extra = self.members_left_with_extra.saturating_sub(1);
        }
        if let Some(assigned) = assignment.get_mut(&self.members[place].member_id) {
            let named = partitions
                .iter()
                .map(|partition| TopicPartition::new(self.name.clone(), *partition as i32));
            assigned.extend(named);
        }
    }
}

/// Topics with the same members and the same partition count are kept aligned; others are assigned
/// one by one.
fn assign_with_racks(states: &mut [TopicState<'_>], assignment: &mut GroupAssignment) {
    let mut groups: BTreeMap<(Vec<&Arc<str>>, usize), Vec<usize>> = BTreeMap::new();
    for (index, state) in states.iter().enumerate() {
        let ids = state.members.iter().map(|member| &member.member_id).collect();
        // A topic whose members name no rack counts as one without partitions here, as in Kafka.
        let count = if state.knows_racks {
            state.replicas.partition_count()
        } else {
            0
        };
        groups.entry((ids, count)).or_default().push(index);
    }
    let groups: Vec<(usize, Vec<usize>)> = groups
        .into_iter()
        .map(|((_, count), indexes)| (count, indexes))
        .collect();
    for (count, indexes) in groups {
        match indexes[..] {
            [index] if states[index].needs_rack_awareness => {
                let matches =
                    |state: &TopicState<'_>, (place, partition)| state.rack_matches(place, partition);
                states[index].assign_runs(matches, assignment);
            }
            [_] => {}
            _ => assign_aligned(states, &indexes, count, assignment),
        }
    }
}

fn assign_aligned(
    states: &mut [TopicState<'_>],
    indexes: &[usize],
    partition_count: usize,
    assignment: &mut GroupAssignment,
) {
    let mut places: Vec<usize> = (0..states[indexes[0]].members.len()).collect();
    for partition in 0..partition_count {
        let fits = |place: &usize| {
            indexes.iter().all(|index| {
                states[*index].rack_matches(*place, partition) && states[*index].room(*place) > 0
            })
        };
        let Some(place) = places.iter().copied().find(fits) else {
            continue;
        };
        for index in indexes {
            states[*index].assign(place, &[partition], assignment);
        }
        if indexes.iter().all(|index| states[*index].room(place) == 0) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                break;
            }
        }
    }
}
