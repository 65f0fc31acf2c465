//! Sets of partitions: what a member owns, what it is assigned, and what it is meant to get.

use std::collections::{BTreeMap, BTreeSet};

use ottla_wire::primitives::Uuid;

/// A topic's id and a partition number.
pub type TopicPartition = (Uuid, i32);

pub type Partitions = BTreeSet<TopicPartition>;

/// Partitions, each with the member epoch at which its member got it (KIP-1251).
pub type Assigned = BTreeMap<TopicPartition, i32>;

/// Groups sorted partitions by topic, as records and answers list them.
pub fn by_topic(partitions: impl IntoIterator<Item = TopicPartition>) -> Vec<(Uuid, Vec<i32>)> {
    let mut topics: Vec<(Uuid, Vec<i32>)> = Vec::new();
    for (topic_id, partition) in partitions {
        match topics.last_mut() {
            Some((last, partitions)) if *last == topic_id => partitions.push(partition),
            _ => topics.push((topic_id, vec![partition])),
        }
    }
    topics
}

/// The reverse of `by_topic`.
pub fn flat<'a>(topics: impl IntoIterator<Item = (Uuid, &'a Vec<i32>)>) -> Partitions {
    topics
        .into_iter()
        .flat_map(|(topic_id, partitions)| partitions.iter().map(move |partition| (topic_id, *partition)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_survive_being_grouped_by_topic() {
        let partitions: Partitions = [(Uuid([1; 16]), 0), (Uuid([1; 16]), 3), (Uuid([2; 16]), 1)].into();
        let topics = by_topic(partitions.clone());
        assert_eq!(topics, [(Uuid([1; 16]), vec![0, 3]), (Uuid([2; 16]), vec![1])]);
        assert_eq!(flat(topics.iter().map(|(id, list)| (*id, list))), partitions);
    }
}
