//! The committed offsets of one group.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub offset: i64,
    /// −1: unknown.
    pub leader_epoch: i32,
    pub metadata: Box<str>,
    pub commit_timestamp: Timestamp,
    /// Set by clients of OffsetCommit 2 to 4 only; for others the broker's retention applies.
    pub expire_timestamp: Option<Timestamp>,
    /// Zero: unknown.
    pub topic_id: Uuid,
}

/// Offsets by topic and partition. `order` tells which of two records was applied later.
#[derive(Clone, Debug, Default)]
pub struct Offsets {
    by_topic: BTreeMap<Arc<str>, BTreeMap<i32, (u64, CommittedOffset)>>,
    commits: u64,
}

impl Offsets {
    pub fn insert(&mut self, topic: Arc<str>, partition: i32, order: u64, value: CommittedOffset) {
        self.commits += 1;
        self.by_topic
            .entry(topic)
            .or_default()
            .insert(partition, (order, value));
    }

    /// Offsets that were committed, also those that later ones replaced; since this broker read the
    /// log, which compaction shortens.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    pub fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.by_topic.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    pub fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.by_topic.get(topic)?.get(&partition).map(|(_, value)| value)
    }

    pub fn order(&self, topic: &str, partition: i32) -> Option<u64> {
        self.by_topic.get(topic)?.get(&partition).map(|(order, _)| *order)
    }

    /// Returns the stored copy of the topic's name, for sharing.
    pub fn topic_name(&self, topic: &str) -> Option<Arc<str>> {
        self.by_topic.get_key_value(topic).map(|(name, _)| name.clone())
    }

    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i32, &CommittedOffset)> {
        self.by_topic.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, (_, value))| (topic, *partition, value))
        })
    }

    pub fn topics(&self) -> impl Iterator<Item = (&Arc<str>, impl Iterator<Item = (i32, &CommittedOffset)>)> {
        self.by_topic.iter().map(|(topic, partitions)| {
            (
                topic,
                partitions
                    .iter()
                    .map(|(partition, (_, value))| (*partition, value)),
            )
        })
    }
}
