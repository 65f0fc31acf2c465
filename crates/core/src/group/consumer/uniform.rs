//! The assignor `uniform`: shares differ by at most 1 where subscriptions allow it, and a member
//! keeps as much of its last target as its share allows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use super::assignment::{Partitions, TopicPartition};
use super::assignor::AssignorInput;

/// The unit in which numbers of partitions for each subscriber are compared.
const SHARE_SCALE: u64 = 1 << 20;

/// With overlapping subscriptions loads may even out slowly: Apache Kafka ends after as many
/// rounds.
const ROUNDS_MAX: usize = 16;

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

/// Subscriptions differ: keep what is allowed, give the rest to the least loaded subscribers, then
/// move partitions as long as that makes two loads more equal.
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
    let topics = in_order(input, &subscribers);
    for (topic_id, subscribers) in &topics {
        for partition in free.range(all_of(*topic_id)) {
            let index = least_loaded(subscribers, &assigned);
            assigned[index].insert(*partition);
        }
    }
    for _ in 0..ROUNDS_MAX {
        let moves = topics
            .iter()
            .map(|(topic_id, subscribers)| even_out(input, *topic_id, subscribers, &mut assigned));
        if moves.sum::<usize>() == 0 {
            break;
        }
    }
    assigned
}

/// Returns the topics, those with many partitions for each subscriber first: the others even the
/// loads out.
fn in_order<'s>(
    input: &AssignorInput,
    subscribers: &'s BTreeMap<Uuid, Vec<usize>>,
) -> Vec<(Uuid, &'s Vec<usize>)> {
    let mut topics: Vec<(Uuid, &Vec<usize>)> = subscribers.iter().map(|(id, all)| (*id, all)).collect();
    topics.sort_by_key(|(topic_id, subscribers)| {
        let count = u64::from(input.partition_counts[topic_id].unsigned_abs());
        let share = count * SHARE_SCALE / subscribers.len() as u64;
        (Reverse(share), subscribers.len(), *topic_id)
    });
    topics
}

/// Moves partitions of a topic from its most loaded subscriber to its least loaded one as long as
/// that makes two loads more equal; returns how many.
fn even_out(
    input: &AssignorInput,
    topic_id: Uuid,
    subscribers: &[usize],
    assigned: &mut [Partitions],
) -> usize {
    let holding = |index: &usize| {
        let mut own: Vec<TopicPartition> = assigned[*index].range(all_of(topic_id)).copied().collect();
        // The last is given away first: what the member did not have.
        own.sort_by_key(|partition| !input.members[*index].target.contains(partition));
        (*index, own)
    };
    let mut holdings: Vec<(usize, Vec<TopicPartition>)> = subscribers.iter().map(holding).collect();
    let mut moved = 0;
    loop {
        let least = least_loaded(subscribers, assigned);
        let givers = holdings.iter_mut().filter(|(_, own)| !own.is_empty());
        let Some((most, own)) = givers.max_by_key(|(index, _)| assigned[*index].len()) else {
            return moved;
        };
        if assigned[*most].len() <= assigned[least].len() + 1 {
            return moved;
        }
        let partition = own.pop().expect("it holds one");
        assigned[*most].remove(&partition);
        assigned[least].insert(partition);
        moved += 1;
    }
}

fn all_of(topic_id: Uuid) -> RangeInclusive<TopicPartition> {
    (topic_id, i32::MIN)..=(topic_id, i32::MAX)
}

fn least_loaded(subscribers: &[usize], assigned: &[Partitions]) -> usize {
    let least = subscribers
        .iter()
        .copied()
        .min_by_key(|index| assigned[*index].len());
    least.expect("a topic of the input has subscribers")
}

/// Returns the partitions of all topics with subscribers.
fn all_partitions(input: &AssignorInput) -> BTreeSet<TopicPartition> {
    let topics: BTreeSet<&Uuid> = input.members.iter().flat_map(|member| &member.topics).collect();
    topics
        .into_iter()
        .flat_map(|topic_id| (0..input.partition_counts[topic_id]).map(move |index| (*topic_id, index)))
        .collect()
}
