//! Offsets of a group that open transactions hold: they count when their transactions commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offsets::CommittedOffset;

/// Offsets by topic, partition and producer id. `order` is that of their records in the log.
#[derive(Clone, Debug, Default)]
pub struct PendingOffsets {
    by_topic: BTreeMap<Arc<str>, BTreeMap<i32, ByProducer>>,
}

type ByProducer = BTreeMap<i64, (u64, CommittedOffset)>;

impl PendingOffsets {
    /// Of two offsets in one transaction the later one counts.
    pub fn insert(
        &mut self,
        topic: Arc<str>,
        partition: i32,
        producer_id: i64,
        order: u64,
        value: CommittedOffset,
    ) {
        let partitions = self.by_topic.entry(topic).or_default();
        let producers = partitions.entry(partition).or_default();
        producers.insert(producer_id, (order, value));
    }

    /// Takes out what a transaction that ends has held.
    pub fn take(&mut self, topic: &str, partition: i32, producer_id: i64) -> Option<(u64, CommittedOffset)> {
        let producers = self.by_topic.get_mut(topic)?.get_mut(&partition)?;
        let taken = producers.remove(&producer_id);
        if producers.is_empty() {
            self.remove(topic, partition);
        }
        taken
    }

    /// Forgets what any transaction holds for a partition.
    pub fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.by_topic.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    /// Whether an open transaction may still change the offset of a partition.
    pub fn contains(&self, topic: &str, partition: i32) -> bool {
        let partitions = self.by_topic.get(topic);
        partitions.is_some_and(|partitions| partitions.contains_key(&partition))
    }

    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i32, &CommittedOffset)> {
        self.by_topic.iter().flat_map(|(topic, partitions)| {
            partitions.iter().flat_map(move |(partition, producers)| {
                producers
                    .values()
                    .map(move |(_, value)| (topic, *partition, value))
            })
        })
    }
}
