//! Partitions and offsets as values, for the consumer's calls.

use std::fmt;
use std::sync::Arc;

/// A partition by its topic's name and its index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Counted from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition, which need not exist.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> TopicPartition {
        TopicPartition {
            topic: topic.into(),
            partition,
        }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// An offset that a group stores for a partition, with a note by the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// Of the next record to read.
    pub offset: i64,
    /// The leader epoch of the preceding record, by which log truncation is detected (KIP-320).
    pub leader_epoch: Option<i32>,
    /// Free text, kept with the offset.
    pub metadata: Arc<str>,
}

impl OffsetAndMetadata {
    /// An offset without leader epoch and metadata.
    pub fn new(offset: i64) -> OffsetAndMetadata {
        OffsetAndMetadata {
            offset,
            leader_epoch: None,
            metadata: Arc::from(""),
        }
    }
}

/// The first record at or after a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetAndTimestamp {
    /// The first record at or after the time that was asked for.
    pub offset: i64,
    /// Milliseconds since the Unix epoch; −1 where the broker returns none.
    pub timestamp: i64,
    /// The epoch of the leader that appended the record; `None`: not known.
    pub leader_epoch: Option<i32>,
}
