//! Offsets that groups have committed: list, alter, delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use ottla_wire::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse};
use ottla_wire::primitives::Uuid;

use super::context::{AdminAnswer, Context, Destination, Versions, decode_with};
use super::partitions::{PartitionResults, group_by_topic};
use super::{Admin, body, resource_error, resource_result};
use crate::consumer::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::pending::Pending;

/// Later versions name topics by id, which an admin client may not know.
const VERSION_BEFORE_TOPIC_IDS: i16 = 9;

impl Admin {
    /// Returns every offset that the group has committed.
    pub fn list_group_offsets(&self, group: &str) -> Pending<BTreeMap<TopicPartition, OffsetAndMetadata>> {
        let group: Arc<str> = group.into();
        self.call("list group offsets", |context| list(context, group))
    }

    /// Commits for the group, which must have no members.
    pub fn alter_group_offsets(
        &self,
        group: &str,
        offsets: BTreeMap<TopicPartition, OffsetAndMetadata>,
    ) -> Pending<PartitionResults<()>> {
        let group: Arc<str> = group.into();
        self.call("alter group offsets", |context| alter(context, group, offsets))
    }

    /// Deletes the group's offsets of these partitions; no member may be subscribed to their
    /// topics.
    pub fn delete_group_offsets(
        &self,
        group: &str,
        partitions: BTreeSet<TopicPartition>,
    ) -> Pending<PartitionResults<()>> {
        let group: Arc<str> = group.into();
        self.call("delete group offsets", |context| {
            delete(context, group, partitions)
        })
    }
}

async fn list(
    context: Context,
    group: Arc<str>,
) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
    let asked = group.clone();
    let encode = move |version| {
        let request = OffsetFetchRequest {
            group_id: if version < 8 { &asked } else { "" },
            // No list: all of them.
            topics: if version < 8 { None } else { Some(Vec::new()) },
            groups: match version {
                ..8 => Vec::new(),
                _ => vec![OffsetFetchRequestGroup {
                    group_id: &asked,
                    member_epoch: -1,
                    topics: None,
                    ..OffsetFetchRequestGroup::default()
                }],
            },
            require_stable: false,
        };
        body(|out| request.encode(out, version))
    };
    // Version 2 is the first that can ask for all.
    let versions = Versions {
        min: 2,
        max: VERSION_BEFORE_TOPIC_IDS,
    };
    let coordinator = Destination::Coordinator(group.clone());
    let decode = |answer: &AdminAnswer| committed(answer, &group);
    context
        .ask(coordinator, ApiKey::OffsetFetch, versions, encode, decode)
        .await
}

fn committed(
    answer: &AdminAnswer,
    group: &str,
) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
    let response = decode_with(answer, OffsetFetchResponse::decode)?;
    let group_code = response
        .groups
        .first()
        .map_or(response.error_code, |group| group.error_code);
    if let Some(error) = resource_error(group_code, None, || format!("group {group}")) {
        return Err(error);
    }
    let mut offsets = BTreeMap::new();
    let mut add =
        |topic: &str, index: i32, code: i16, offset: i64, leader_epoch: i32, metadata: Option<&str>| {
            let key = TopicPartition::new(topic, index);
            if let Some(error) = resource_error(code, None, || format!("offset of {key} in group {group}")) {
                return Err(error);
            }
            // −1: no offset is committed.
            if offset >= 0 {
                let committed = OffsetAndMetadata {
                    offset,
                    leader_epoch: (leader_epoch >= 0).then_some(leader_epoch),
                    metadata: metadata.unwrap_or_default().into(),
                };
                offsets.insert(key, committed);
            }
            Ok(())
        };
    for topic in &response.topics {
        for part in &topic.partitions {
            let (offset, epoch) = (part.committed_offset, part.committed_leader_epoch);
            add(
                topic.name,
                part.partition_index,
                part.error_code,
                offset,
                epoch,
                part.metadata,
            )?;
        }
    }
    for topic in response.groups.iter().flat_map(|group| &group.topics) {
        for part in &topic.partitions {
            let (offset, epoch) = (part.committed_offset, part.committed_leader_epoch);
            add(
                topic.name,
                part.partition_index,
                part.error_code,
                offset,
                epoch,
                part.metadata,
            )?;
        }
    }
    Ok(offsets)
}

async fn alter(
    context: Context,
    group: Arc<str>,
    offsets: BTreeMap<TopicPartition, OffsetAndMetadata>,
) -> Result<PartitionResults<()>, Error> {
    let asked = group.clone();
    let encode = move |version| {
        let topics = group_by_topic(offsets.iter())
            .into_iter()
            .map(|(name, partitions)| {
                let partitions =
                    partitions
                        .into_iter()
                        .map(|(partition_index, offset)| OffsetCommitRequestPartition {
                            partition_index,
                            committed_offset: offset.offset,
                            committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
                            committed_metadata: Some(&offset.metadata),
                        });
                OffsetCommitRequestTopic {
                    name,
                    topic_id: Uuid::ZERO,
                    partitions: partitions.collect(),
                }
            });
        // Sent without a member id: accepted only while the group has no members.
        let request = OffsetCommitRequest {
            group_id: &asked,
            generation_id_or_member_epoch: -1,
            member_id: "",
            group_instance_id: None,
            retention_time_ms: -1,
            topics: topics.collect(),
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, OffsetCommitResponse::decode)?;
        let mut results = PartitionResults::new();
        for topic in &response.topics {
            for part in &topic.partitions {
                let key = TopicPartition::new(topic.name, part.partition_index);
                let what = || format!("offset of {key} in group {group}");
                let result = resource_result((), part.error_code, None, what);
                results.insert(key, coordinator_error(result)?);
            }
        }
        Ok(results)
    };
    let coordinator = Destination::Coordinator(group.clone());
    let versions = Versions {
        min: 2,
        max: VERSION_BEFORE_TOPIC_IDS,
    };
    context
        .ask(coordinator, ApiKey::OffsetCommit, versions, encode, decode)
        .await
}

/// Turns a coordinator's error for one partition into one of the whole request, which is then
/// retried: it cannot serve the others either.
fn coordinator_error(result: Result<(), Error>) -> Result<Result<(), Error>, Error> {
    use ottla_wire::error_code::ErrorCode::{
        CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator,
    };
    match result {
        Err(Error::Broker {
            code: CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator,
            ..
        }) => result.map(Ok),
        result => Ok(result),
    }
}

async fn delete(
    context: Context,
    group: Arc<str>,
    partitions: BTreeSet<TopicPartition>,
) -> Result<PartitionResults<()>, Error> {
    let asked = group.clone();
    let encode = move |version| {
        let by_topic = group_by_topic(partitions.iter().map(|key| (key, ())));
        let topics = by_topic
            .into_iter()
            .map(|(name, partitions)| OffsetDeleteRequestTopic {
                name,
                partitions: partitions
                    .into_iter()
                    .map(|(partition_index, ())| OffsetDeleteRequestPartition { partition_index })
                    .collect(),
            });
        let request = OffsetDeleteRequest {
            group_id: &asked,
            topics: topics.collect(),
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, OffsetDeleteResponse::decode)?;
        if let Some(error) = resource_error(response.error_code, None, || format!("group {group}")) {
            return Err(error);
        }
        let results = response.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|part| {
                let key = TopicPartition::new(topic.name, part.partition_index);
                let what = || format!("offset of {key} in group {group}");
                let result = resource_result((), part.error_code, None, what);
                (key, result)
            })
        });
        Ok(results.collect())
    };
    let coordinator = Destination::Coordinator(group.clone());
    context
        .ask(coordinator, ApiKey::OffsetDelete, Versions::ALL, encode, decode)
        .await
}
