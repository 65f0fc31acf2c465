//! The assignor `uniform`: shares differ by at most 1 where subscriptions allow it, and a member
//! keeps as much of its last target as its share allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use super::assignment::{Partitions, TopicPartition};
use super::assignor::AssignorInput;

pub(super) fn assign(input: &AssignorInput) -> BTreeMap<Arc<str>, Partitions> {
    let are_equal = input
        .members
        .windows(2)
        .all(|pair| pair[0].topics == pair[1].topics);
    let assigned = if are_equal {
        assign_equally(input)
    } else {
        balance(input)
    };
    input.with_ids(assigned)
}

/// All members subscribe to the same topics.
fn assign_equally(input: &AssignorInput) -> Vec<Partitions> {
    let mut free = all_partitions(input);
    let member_count = input.members.len();
    if member_count == 0 {
        return Vec::new();
    }
    let (share, mut extra) = (free.len() / member_count, free.len() % member_count);
    let mut assigned = Vec::with_capacity(member_count);
    for member in &input.members {
        let mut kept: Vec<TopicPartition> = member
            .target
            .iter()
            .filter(|partition| free.contains(*partition))
            .copied()
            .collect();
        let takes_extra = kept.len() > share && extra > 0;
        extra -= usize::from(takes_extra);
        kept.truncate(share + usize::from(takes_extra));
        for partition in &kept {
            free.remove(partition);
        }
        assigned.push(kept.into_iter().collect::<Partitions>());
    }
    let mut free: VecDeque<TopicPartition> = free.into_iter().collect();
    for own in &mut assigned {
        let missing = share.saturating_sub(own.len());
        own.extend(free.drain(..missing.min(free.len())));
    }
    for own in assigned.iter_mut().filter(|own| own.len() == share) {
        own.extend(free.pop_front());
    }
    assigned
}

/// Subscriptions differ: keep what is allowed, give the rest to the least loaded subscriber, then
/// move partitions as long as that makes two loads more equal. Each move lowers the sum of squared
/// loads, so the loop ends.
fn balance(input: &AssignorInput) -> Vec<Partitions> {
    let subscribers = input.subscribers();
    let mut free = all_partitions(input);
    let mut assigned = Vec::with_capacity(input.members.len());
    for member in &input.members {
        let is_kept =
            |partition: &&TopicPartition| member.topics.contains(&partition.0) && free.contains(*partition);
        let kept: Partitions = member.target.iter().filter(is_kept).copied().collect();
        for partition in &kept {
            free.remove(partition);
        }
        assigned.push(kept);
    }
    let mut free: Vec<TopicPartition> = free.into_iter().collect();
    // Topics with few subscribers first: the others even the loads out.
    free.sort_by_key(|partition| (subscribers.get(&partition.0).map_or(0, Vec::len), *partition));
    for partition in free {
        if let Some(index) = least_loaded(&subscribers, &assigned, partition.0) {
            assigned[index].insert(partition);
        }
    }
    while move_once_each(&subscribers, &mut assigned) {}
    assigned
}

/// Looks at every partition once; returns whether any was moved.
fn move_once_each(subscribers: &BTreeMap<Uuid, Vec<usize>>, assigned: &mut [Partitions]) -> bool {
    let mut has_moved = false;
    for index in 0..assigned.len() {
        let own: Vec<TopicPartition> = assigned[index].iter().copied().collect();
        for partition in own {
            let Some(other) = least_loaded(subscribers, assigned, partition.0) else {
                continue;
            };
            if assigned[index].len() > assigned[other].len() + 1 {
                assigned[index].remove(&partition);
                assigned[other].insert(partition);
                has_moved = true;
            }
        }
    }
    has_moved
}

fn least_loaded(
    subscribers: &BTreeMap<Uuid, Vec<usize>>,
    assigned: &[Partitions],
    topic_id: Uuid,
) -> Option<usize> {
    let candidates = subscribers.get(&topic_id)?.iter().copied();
    candidates.min_by_key(|index| assigned[*index].len())
}

/// Returns the partitions of all topics with subscribers.
fn all_partitions(input: &AssignorInput) -> BTreeSet<TopicPartition> {
    let topics: BTreeSet<&Uuid> = input.members.iter().flat_map(|member| &member.topics).collect();
    topics
        .into_iter()
        .flat_map(|topic_id| (0..input.partition_counts[topic_id]).map(move |index| (*topic_id, index)))
        .collect()
}
