//! Offsets of partitions by time, and record deletion.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

use super::context::{Context, Destination, Versions, decode_with};
use super::partitions::{PartitionResults, ask_leaders, group_by_topic};
use super::{Admin, body, resource_result};
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// Which offset of a partition to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetSpec {
    /// The first that still exists.
    Earliest,
    /// The offset that the next record gets.
    Latest,
    /// The first whose timestamp is at or after these milliseconds since the Unix epoch.
    Timestamp(i64),
    /// That of the record with the largest timestamp (KIP-734, Kafka 3.0).
    MaxTimestamp,
    /// The first on the broker's own disks, with tiered storage (KIP-405, Kafka 3.4).
    EarliestLocal,
    /// The last that was moved to tiered storage (KIP-1005, Kafka 3.9).
    LatestTiered,
}

impl OffsetSpec {
    /// The special timestamp that encodes it, and the first version that supports it.
    fn code(self) -> (i64, i16) {
        match self {
            OffsetSpec::Timestamp(at) => (at, 1),
            OffsetSpec::Latest => (-1, 1),
            OffsetSpec::Earliest => (-2, 1),
            OffsetSpec::MaxTimestamp => (-3, 7),
            OffsetSpec::EarliestLocal => (-4, 8),
            OffsetSpec::LatestTiered => (-5, 9),
        }
    }
}

/// An offset that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedOffset {
    /// −1 when no record matches.
    pub offset: i64,
    /// Of that record; −1 where it is not known.
    pub timestamp: i64,
    /// -1: not known.
    pub leader_epoch: i32,
}

impl Admin {
    /// Like `list_offsets_at`, for the view of a consumer with `read_uncommitted`.
    pub fn list_offsets(
        &self,
        partitions: BTreeMap<TopicPartition, OffsetSpec>,
    ) -> Pending<PartitionResults<ListedOffset>> {
        self.call("list offsets", |context| list_offsets(context, partitions, false))
    }

    /// Offsets in the view of a consumer with `read_committed`: `Latest` is the last stable offset.
    pub fn list_committed_offsets(
        &self,
        partitions: BTreeMap<TopicPartition, OffsetSpec>,
    ) -> Pending<PartitionResults<ListedOffset>> {
        self.call("list offsets", |context| list_offsets(context, partitions, true))
    }

    /// Deletes the records before these offsets (−1: all); returns the new first offsets.
    pub fn delete_records(&self, before: BTreeMap<TopicPartition, i64>) -> Pending<PartitionResults<i64>> {
        self.call("delete records", |context| async move {
            ask_leaders(&context, before, |leader, partitions| {
                delete_records(context.clone(), leader, partitions)
            })
            .await
        })
    }
}

async fn list_offsets(
    context: Context,
    partitions: BTreeMap<TopicPartition, OffsetSpec>,
    is_committed: bool,
) -> Result<PartitionResults<ListedOffset>, Error> {
    ask_leaders(&context, partitions, |leader, partitions| {
        list_offsets_of_leader(context.clone(), leader, partitions, is_committed)
    })
    .await
}

/// The same error for every partition of one request.
fn failed<V, T>(partitions: &BTreeMap<TopicPartition, V>, error: &Error) -> PartitionResults<T> {
    partitions
        .keys()
        .map(|key| (key.clone(), Err(error.clone())))
        .collect()
}

async fn list_offsets_of_leader(
    context: Context,
    leader: NodeId,
    partitions: BTreeMap<TopicPartition, OffsetSpec>,
    is_committed: bool,
) -> PartitionResults<ListedOffset> {
    let version_min = partitions.values().map(|spec| spec.code().1).max().unwrap_or(1);
    let asked = partitions.clone();
    let clock = context.clone();
    let encode = move |version| {
        let topics = group_by_topic(asked.iter())
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name,
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, spec)| ListOffsetsPartition {
                        partition_index,
                        current_leader_epoch: -1,
                        timestamp: spec.code().0,
                    })
                    .collect(),
            });
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(is_committed),
            topics: topics.collect(),
            timeout_ms: clock.remaining_ms(),
        };
        body(|out| request.encode(out, version))
    };
    // read_committed is supported from version 2 on.
    let versions = Versions::from(version_min.max(if is_committed { 2 } else { 1 }));
    let asked = context
        .ask(
            Destination::Node(leader),
            ApiKey::ListOffsets,
            versions,
            encode,
            |answer| {
                let response = decode_with(answer, ListOffsetsResponse::decode)?;
                let results = response.topics.iter().flat_map(|topic| {
                    topic.partitions.iter().map(|partition| {
                        let listed = ListedOffset {
                            offset: partition.offset,
                            timestamp: partition.timestamp,
                            leader_epoch: partition.leader_epoch,
                        };
                        let key = TopicPartition::new(topic.name, partition.partition_index);
                        let what = || format!("partition {key}");
                        let result = resource_result(listed, partition.error_code, None, what);
                        (key, result)
                    })
                });
                Ok(results.collect())
            },
        )
        .await;
    asked.unwrap_or_else(|error| failed(&partitions, &error))
}

async fn delete_records(
    context: Context,
    leader: NodeId,
    partitions: BTreeMap<TopicPartition, i64>,
) -> PartitionResults<i64> {
    let asked = partitions.clone();
    let clock = context.clone();
    let encode = move |version| {
        let topics = group_by_topic(asked.iter())
            .into_iter()
            .map(|(name, partitions)| DeleteRecordsTopic {
                name,
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, offset)| DeleteRecordsPartition {
                        partition_index,
                        offset: *offset,
                    })
                    .collect(),
            });
        let request = DeleteRecordsRequest {
            topics: topics.collect(),
            timeout_ms: clock.remaining_ms(),
        };
        body(|out| request.encode(out, version))
    };
    let asked = context
        .ask(
            Destination::Node(leader),
            ApiKey::DeleteRecords,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, DeleteRecordsResponse::decode)?;
                let results = response.topics.iter().flat_map(|topic| {
                    topic.partitions.iter().map(|partition| {
                        let key = TopicPartition::new(topic.name, partition.partition_index);
                        let what = || format!("partition {key}");
                        let result =
                            resource_result(partition.low_watermark, partition.error_code, None, what);
                        (key, result)
                    })
                });
                Ok(results.collect())
            },
        )
        .await;
    asked.unwrap_or_else(|error| failed(&partitions, &error))
}
