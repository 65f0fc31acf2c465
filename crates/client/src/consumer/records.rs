//! The result of `poll`: records that point into the fetched memory and are decoded during
//! iteration.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::record::RawRecord;
pub use ottla_wire::records::record::{Header, HeaderIter, Headers};

use super::topic_partition::TopicPartition;

/// The records of one `poll`, by partition.
///
/// They keep the fetched memory alive (see `Consumer::poll` for how much that can be): drop them
/// soon, or copy what must be kept longer. They may be sent to another thread.
#[derive(Clone, Debug, Default)]
pub struct ConsumerRecords {
    partitions: Vec<PartitionRecords>,
    record_count: usize,
    record_bytes: usize,
}

/// The result of one `push`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    pub records: u64,
    pub bytes: u64,
}

/// The records of one partition, in the order of their offsets.
#[derive(Clone, Debug)]
pub struct PartitionRecords {
    topic_partition: TopicPartition,
    runs: Vec<Run>,
}

/// Consecutive records of one batch, already validated: decoding them again cannot fail.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub base_offset: i64,
    pub base_timestamp: i64,
    pub timestamp_type: TimestampType,
    pub leader_epoch: i32,
    pub record_count: u32,
    /// Their encoded form, uncompressed.
    pub bytes: Bytes,
}

/// One record. Key, value and headers borrow from its `ConsumerRecords`.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ConsumerRecord<'a> {
    /// The topic's name.
    pub topic: &'a str,
    /// Counted from 0.
    pub partition: i32,
    /// The record's offset in its partition.
    pub offset: i64,
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Whether the producer or the broker set `timestamp`.
    pub timestamp_type: TimestampType,
    /// `None` is Kafka's null.
    pub key: Option<&'a [u8]>,
    /// `None`: a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// In the order in which they were sent; decoded while they are read.
    pub headers: Headers<'a>,
    /// Of the leader that appended it; `None` from brokers that do not send it.
    pub leader_epoch: Option<i32>,
}

impl ConsumerRecords {
    pub(super) fn push(&mut self, topic_partition: &TopicPartition, runs: Vec<Run>) -> Pushed {
        let pushed = Pushed {
            records: runs.iter().map(|run| u64::from(run.record_count)).sum(),
            bytes: runs.iter().map(|run| run.bytes.len() as u64).sum(),
        };
        if runs.is_empty() {
            return pushed;
        }
        self.record_count += pushed.records as usize;
        self.record_bytes += pushed.bytes as usize;
        match self.partitions.last_mut() {
            Some(last) if last.topic_partition == *topic_partition => last.runs.extend(runs),
            _ => self.partitions.push(PartitionRecords {
                topic_partition: topic_partition.clone(),
                runs,
            }),
        }
        pushed
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.record_count
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Encoded bytes of all records, uncompressed.
    pub fn encoded_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The records by partition; a partition that was fetched twice since the last `poll` may occur
    /// twice.
    pub fn partitions(&self) -> &[PartitionRecords] {
        &self.partitions
    }

    /// All records; those of a partition together and in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            partitions: self.partitions.iter(),
            current: None,
            remaining: self.record_count,
        }
    }
}

impl<'a> IntoIterator for &'a ConsumerRecords {
    type Item = ConsumerRecord<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl PartitionRecords {
    /// The topic's name.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic_partition.topic
    }

    /// Counted from 0.
    pub fn partition(&self) -> i32 {
        self.topic_partition.partition
    }

    /// Topic and partition as one value.
    pub fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.record_count as usize).sum()
    }

    /// Always false: a partition without records is left out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of these records as encoded in their batches, uncompressed, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.bytes.len()).sum()
    }

    /// The records in the order of their offsets.
    pub fn iter(&self) -> PartitionIter<'_> {
        PartitionIter {
            topic: &self.topic_partition.topic,
            partition: self.topic_partition.partition,
            runs: self.runs.iter(),
            current: RunCursor::EMPTY,
        }
    }
}

impl<'a> IntoIterator for &'a PartitionRecords {
    type Item = ConsumerRecord<'a>;
    type IntoIter = PartitionIter<'a>;

    fn into_iter(self) -> PartitionIter<'a> {
        self.iter()
    }
}

/// All records of a `ConsumerRecords`.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    partitions: std::slice::Iter<'a, PartitionRecords>,
    current: Option<PartitionIter<'a>>,
    remaining: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = ConsumerRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<ConsumerRecord<'a>> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(record) = current.next()
            {
                self.remaining -= 1;
                return Some(record);
            }
            self.current = Some(self.partitions.next()?.iter());
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The records of one partition of a `ConsumerRecords`.
#[derive(Clone, Debug)]
pub struct PartitionIter<'a> {
    topic: &'a str,
    partition: i32,
    runs: std::slice::Iter<'a, Run>,
    current: RunCursor<'a>,
}

#[derive(Clone, Copy, Debug)]
struct RunCursor<'a> {
    rest: &'a [u8],
    base_offset: i64,
    base_timestamp: i64,
    timestamp_type: TimestampType,
    leader_epoch: i32,
}

impl<'a> RunCursor<'a> {
    const EMPTY: RunCursor<'static> = RunCursor {
        rest: &[],
        base_offset: 0,
        base_timestamp: 0,
        timestamp_type: TimestampType::CreateTime,
        leader_epoch: -1,
    };

    fn new(run: &'a Run) -> RunCursor<'a> {
        RunCursor {
            rest: &run.bytes,
            base_offset: run.base_offset,
            base_timestamp: run.base_timestamp,
            timestamp_type: run.timestamp_type,
            leader_epoch: run.leader_epoch,
        }
    }

    #[inline]
    fn record(&self, topic: &'a str, partition: i32, fields: &RawRecord<'a>) -> ConsumerRecord<'a> {
        let timestamp = match self.timestamp_type {
            TimestampType::CreateTime => self.base_timestamp.wrapping_add(fields.timestamp_delta),
            // The batch's timestamp applies to all its records.
            TimestampType::LogAppendTime => self.base_timestamp,
        };
        ConsumerRecord {
            topic,
            partition,
            offset: self.base_offset.wrapping_add(i64::from(fields.offset_delta)),
            timestamp,
            timestamp_type: self.timestamp_type,
            key: fields.key,
            value: fields.value,
            headers: fields.headers,
            leader_epoch: (self.leader_epoch >= 0).then_some(self.leader_epoch),
        }
    }
}

impl<'a> Iterator for PartitionIter<'a> {
    type Item = ConsumerRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<ConsumerRecord<'a>> {
        while self.current.rest.is_empty() {
            self.current = RunCursor::new(self.runs.next()?);
        }
        let (fields, end) =
            RawRecord::decode(self.current.rest, 0).expect("a run was decoded before it became one");
        self.current.rest = &self.current.rest[end..];
        Some(self.current.record(self.topic, self.partition, &fields))
    }
}

impl fmt::Debug for ConsumerRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes_of = |bytes: Option<&[u8]>| bytes.map(<[u8]>::len);
        f.debug_struct("ConsumerRecord")
            .field("topic", &self.topic)
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .field("timestamp", &self.timestamp)
            .field("key_bytes", &bytes_of(self.key))
            .field("value_bytes", &bytes_of(self.value))
            .field("headers", &self.headers.len())
            .finish_non_exhaustive()
    }
}
