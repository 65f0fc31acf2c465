//! Tracks which partition moved between which members: instead of moving a partition back along
//! such a path, another one of the topic that came the opposite way is returned.

use std::collections::BTreeMap;

use super::java_order::HashSetOrder;

/// From a member, to a member.
type Pair = (usize, usize);

#[derive(Debug, Default)]
pub struct Movements {
    by_topic: BTreeMap<usize, BTreeMap<Pair, HashSetOrder>>,
    by_partition: BTreeMap<usize, Pair>,
}

impl Movements {
    /// - `hash`: the partition's hash in Java.
    pub fn record(&mut self, topic: usize, partition: usize, hash: i32, from: usize, to: usize) {
        let Some(pair) = self.by_partition.remove(&partition) else {
            return self.add(topic, partition, hash, (from, to));
        };
        self.forget(topic, partition, pair);
        // On a second move only the first and the last owner count; moved back counts as not moved.
        if pair.0 != to {
            self.add(topic, partition, hash, (pair.0, to));
        }
    }

    fn add(&mut self, topic: usize, partition: usize, hash: i32, pair: Pair) {
        self.by_partition.insert(partition, pair);
        self.by_topic
            .entry(topic)
            .or_default()
            .entry(pair)
            .or_default()
            .insert(hash, partition);
    }

    fn forget(&mut self, topic: usize, partition: usize, pair: Pair) {
        let Some(pairs) = self.by_topic.get_mut(&topic) else {
            return;
        };
        if let Some(partitions) = pairs.get_mut(&pair) {
            partitions.remove(partition);
            if partitions.is_empty() {
                pairs.remove(&pair);
            }
        }
        if pairs.is_empty() {
            self.by_topic.remove(&topic);
        }
    }

    /// The partition to move in place of this one so that the fewest change owners.
    pub fn to_be_moved(&self, topic: usize, partition: usize, from: usize, to: usize) -> usize {
        let from = self.by_partition.get(&partition).map_or(from, |pair| pair.0);
        let reverse = self.by_topic.get(&topic).and_then(|pairs| pairs.get(&(to, from)));
        reverse.and_then(HashSetOrder::first).unwrap_or(partition)
    }
}
