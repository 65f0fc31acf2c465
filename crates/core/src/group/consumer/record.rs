//! The records of consumer groups in `__consumer_offsets`: types 3 to 8 and 16.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::coordinator_records::GroupRecordKey;
use ottla_wire::coordinator_records::consumer_group_current_member_assignment::{
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, TopicPartitions,
};
use ottla_wire::coordinator_records::consumer_group_member_metadata::{
    ClassicMemberMetadata, ClassicProtocol, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue,
};
use ottla_wire::coordinator_records::consumer_group_metadata::{
    ConsumerGroupMetadataKey, ConsumerGroupMetadataValue,
};
use ottla_wire::coordinator_records::consumer_group_partition_metadata::ConsumerGroupPartitionMetadataKey;
use ottla_wire::coordinator_records::consumer_group_regular_expression::{
    ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue,
};
use ottla_wire::coordinator_records::consumer_group_target_assignment_member::{
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, TopicPartition,
};
use ottla_wire::coordinator_records::consumer_group_target_assignment_metadata::{
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue,
};
use ottla_wire::primitives::DecodeError;

use crate::time::Timestamp;

use super::assignment::{Assigned, Partitions, by_topic, flat};
use super::member::{ClassicMember, CurrentAssignment, MemberMetadata, MemberState};

const VALUE_VERSION: i16 = 0;

/// A record of a consumer group without the group's id. No value: a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerRecord {
    Epoch(Option<GroupEpoch>),
    /// Written by Apache Kafka before 4.1; here it only gets a tombstone.
    PartitionMetadata {
        is_present: bool,
    },
    Member(Arc<str>, Option<Arc<MemberMetadata>>),
    TargetEpoch(Option<TargetEpoch>),
    Target(Arc<str>, Option<Arc<Partitions>>),
    Current(Arc<str>, Option<Arc<CurrentAssignment>>),
    Regex(Arc<str>, Option<Arc<ResolvedRegex>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEpoch {
    pub epoch: i32,
    /// Of the subscribed topics; 0 if there are none.
    pub metadata_hash: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetEpoch {
    pub epoch: i32,
    /// When it was computed; 0 if unknown.
    pub timestamp: Timestamp,
}

/// The topics that a regular expression has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedRegex {
    pub topics: BTreeSet<Arc<str>>,
    /// Of the metadata; as the record names it.
    pub version: i64,
    pub timestamp: Timestamp,
}

impl ConsumerRecord {
    /// Encodes the key, and the value unless this is a tombstone.
    pub fn encode<'b>(&self, group_id: &str, key: &mut Vec<u8>, value: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        match self {
            ConsumerRecord::Epoch(stored) => {
                ConsumerGroupMetadataKey { group_id }.encode_key(key);
                let stored = stored.as_ref()?;
                ConsumerGroupMetadataValue {
                    epoch: stored.epoch,
                    metadata_hash: stored.metadata_hash,
                }
                .encode_value(value, VALUE_VERSION);
            }
            ConsumerRecord::PartitionMetadata { is_present } => {
                assert!(!is_present, "these records are only ever removed");
                ConsumerGroupPartitionMetadataKey { group_id }.encode_key(key);
                return None;
            }
            ConsumerRecord::Member(member_id, metadata) => {
                ConsumerGroupMemberMetadataKey { group_id, member_id }.encode_key(key);
                encode_member(metadata.as_ref()?, value);
            }
            ConsumerRecord::TargetEpoch(stored) => {
                ConsumerGroupTargetAssignmentMetadataKey { group_id }.encode_key(key);
                let stored = stored.as_ref()?;
                ConsumerGroupTargetAssignmentMetadataValue {
                    assignment_epoch: stored.epoch,
                    assignment_timestamp: stored.timestamp.0,
                }
                .encode_value(value, VALUE_VERSION);
            }
            ConsumerRecord::Target(member_id, partitions) => {
                ConsumerGroupTargetAssignmentMemberKey { group_id, member_id }.encode_key(key);
                encode_target(partitions.as_ref()?, value);
            }
            ConsumerRecord::Current(member_id, current) => {
                ConsumerGroupCurrentMemberAssignmentKey { group_id, member_id }.encode_key(key);
                encode_current(current.as_ref()?, value);
            }
            ConsumerRecord::Regex(regular_expression, resolved) => {
                ConsumerGroupRegularExpressionKey {
                    group_id,
                    regular_expression,
                }
                .encode_key(key);
                encode_regex(resolved.as_ref()?, value);
            }
        }
        Some(value)
    }

    /// Decodes a record whose key has one of the types of consumer groups; returns the group's id.
    pub fn decode(
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<Option<(Arc<str>, ConsumerRecord)>, DecodeError> {
        let (group_id, record) = match GroupRecordKey::decode(key)? {
            GroupRecordKey::ConsumerGroupMetadata(key) => (
                key.group_id,
                ConsumerRecord::Epoch(value.map(decode_epoch).transpose()?),
            ),
            GroupRecordKey::ConsumerGroupPartitionMetadata(key) => {
                let is_present = value.is_some();
                (key.group_id, ConsumerRecord::PartitionMetadata { is_present })
            }
            GroupRecordKey::ConsumerGroupMemberMetadata(key) => {
                let metadata = value.map(decode_member).transpose()?.map(Arc::new);
                (
                    key.group_id,
                    ConsumerRecord::Member(key.member_id.into(), metadata),
                )
            }
            GroupRecordKey::ConsumerGroupTargetAssignmentMetadata(key) => {
                let stored = value.map(decode_target_epoch).transpose()?;
                (key.group_id, ConsumerRecord::TargetEpoch(stored))
            }
            GroupRecordKey::ConsumerGroupTargetAssignmentMember(key) => {
                let partitions = value.map(decode_target).transpose()?.map(Arc::new);
                (
                    key.group_id,
                    ConsumerRecord::Target(key.member_id.into(), partitions),
                )
            }
            GroupRecordKey::ConsumerGroupCurrentMemberAssignment(key) => {
                let current = value.map(decode_current).transpose()?.map(Arc::new);
                (
                    key.group_id,
                    ConsumerRecord::Current(key.member_id.into(), current),
                )
            }
            GroupRecordKey::ConsumerGroupRegularExpression(key) => {
                let resolved = value.map(decode_regex).transpose()?.map(Arc::new);
                let record = ConsumerRecord::Regex(key.regular_expression.into(), resolved);
                (key.group_id, record)
            }
            _ => return Ok(None),
        };
        Ok(Some((group_id.into(), record)))
    }

    pub fn is_tombstone(&self) -> bool {
        match self {
            ConsumerRecord::Epoch(value) => value.is_none(),
            ConsumerRecord::PartitionMetadata { is_present } => !is_present,
            ConsumerRecord::Member(_, value) => value.is_none(),
            ConsumerRecord::TargetEpoch(value) => value.is_none(),
            ConsumerRecord::Target(_, value) => value.is_none(),
            ConsumerRecord::Current(_, value) => value.is_none(),
            ConsumerRecord::Regex(_, value) => value.is_none(),
        }
    }
}

fn decode_epoch(bytes: &[u8]) -> Result<GroupEpoch, DecodeError> {
    let value = ConsumerGroupMetadataValue::decode_value(bytes)?;
    Ok(GroupEpoch {
        epoch: value.epoch,
        metadata_hash: value.metadata_hash,
    })
}

fn decode_target_epoch(bytes: &[u8]) -> Result<TargetEpoch, DecodeError> {
    let value = ConsumerGroupTargetAssignmentMetadataValue::decode_value(bytes)?;
    Ok(TargetEpoch {
        epoch: value.assignment_epoch,
        timestamp: Timestamp(value.assignment_timestamp),
    })
}

fn encode_member(metadata: &MemberMetadata, buffer: &mut Vec<u8>) {
    let classic = metadata.classic.as_ref().map(|classic| ClassicMemberMetadata {
        session_timeout_ms: classic.session_timeout_ms,
        supported_protocols: classic
            .protocols
            .iter()
            .map(|(name, metadata)| ClassicProtocol { name, metadata })
            .collect(),
    });
    ConsumerGroupMemberMetadataValue {
        instance_id: metadata.instance_id.as_deref(),
        rack_id: metadata.rack_id.as_deref(),
        client_id: &metadata.client_id,
        client_host: &metadata.client_host,
        subscribed_topic_names: metadata.topic_names.iter().map(|name| &**name).collect(),
        // Apache Kafka writes the empty text for a member without an expression.
        subscribed_topic_regex: Some(metadata.regex.as_deref().unwrap_or("")),
        rebalance_timeout_ms: metadata.rebalance_timeout_ms,
        server_assignor: metadata.assignor.as_deref(),
        classic_member_metadata: classic,
    }
    .encode_value(buffer, VALUE_VERSION);
}

fn decode_member(bytes: &[u8]) -> Result<MemberMetadata, DecodeError> {
    let value = ConsumerGroupMemberMetadataValue::decode_value(bytes)?;
    let classic = value
        .classic_member_metadata
        .filter(|classic| *classic != ClassicMemberMetadata::default())
        .map(|classic| ClassicMember {
            session_timeout_ms: classic.session_timeout_ms,
            protocols: classic
                .supported_protocols
                .iter()
                .map(|protocol| (protocol.name.into(), protocol.metadata.into()))
                .collect(),
        });
    Ok(MemberMetadata {
        instance_id: value.instance_id.map(Arc::from),
        rack_id: value.rack_id.map(Arc::from),
        client_id: value.client_id.into(),
        client_host: value.client_host.into(),
        topic_names: value.subscribed_topic_names.into_iter().map(Arc::from).collect(),
        regex: value
            .subscribed_topic_regex
            .filter(|regex| !regex.is_empty())
            .map(Arc::from),
        rebalance_timeout_ms: value.rebalance_timeout_ms,
        assignor: value.server_assignor.map(Arc::from),
        classic,
    })
}

fn encode_target(partitions: &Partitions, buffer: &mut Vec<u8>) {
    let topic_partitions = by_topic(partitions.iter().copied())
        .into_iter()
        .map(|(topic_id, partitions)| TopicPartition { topic_id, partitions })
        .collect();
    ConsumerGroupTargetAssignmentMemberValue { topic_partitions }.encode_value(buffer, VALUE_VERSION);
}

fn decode_target(bytes: &[u8]) -> Result<Partitions, DecodeError> {
    let value = ConsumerGroupTargetAssignmentMemberValue::decode_value(bytes)?;
    let topics = value.topic_partitions.iter();
    Ok(flat(topics.map(|topic| (topic.topic_id, &topic.partitions))))
}

fn encode_current(current: &CurrentAssignment, buffer: &mut Vec<u8>) {
    ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: current.epoch,
        previous_member_epoch: current.previous_epoch,
        state: current.state.code(),
        assigned_partitions: with_epochs(&current.assigned),
        partitions_pending_revocation: with_epochs(&current.revoking),
    }
    .encode_value(buffer, VALUE_VERSION);
}

fn decode_current(bytes: &[u8]) -> Result<CurrentAssignment, DecodeError> {
    let value = ConsumerGroupCurrentMemberAssignmentValue::decode_value(bytes)?;
    let epoch = value.member_epoch;
    Ok(CurrentAssignment {
        epoch,
        previous_epoch: value.previous_member_epoch,
        state: MemberState::of(value.state),
        assigned: without_gaps(&value.assigned_partitions, epoch),
        revoking: without_gaps(&value.partitions_pending_revocation, epoch),
    })
}

fn with_epochs(assigned: &Assigned) -> Vec<TopicPartitions> {
    let topics = by_topic(assigned.keys().copied());
    let topic = |(topic_id, partitions): (_, Vec<i32>)| TopicPartitions {
        topic_id,
        assignment_epochs: Some(
            partitions
                .iter()
                .map(|partition| assigned[&(topic_id, *partition)])
                .collect(),
        ),
        partitions,
    };
    topics.into_iter().map(topic).collect()
}

/// Apache Kafka before 4.3 wrote no assignment epochs: the member's epoch stands for them.
fn without_gaps(topics: &[TopicPartitions], member_epoch: i32) -> Assigned {
    let mut assigned = Assigned::new();
    for topic in topics {
        let epochs = topic.assignment_epochs.as_deref().unwrap_or_default();
        for (index, partition) in topic.partitions.iter().enumerate() {
            let epoch = epochs.get(index).copied().unwrap_or(member_epoch);
            assigned.insert((topic.topic_id, *partition), epoch);
        }
    }
    assigned
}

fn encode_regex(resolved: &ResolvedRegex, buffer: &mut Vec<u8>) {
    ConsumerGroupRegularExpressionValue {
        topics: resolved.topics.iter().map(|topic| &**topic).collect(),
        version: resolved.version,
        timestamp: resolved.timestamp.0,
    }
    .encode_value(buffer, VALUE_VERSION);
}

fn decode_regex(bytes: &[u8]) -> Result<ResolvedRegex, DecodeError> {
    let value = ConsumerGroupRegularExpressionValue::decode_value(bytes)?;
    Ok(ResolvedRegex {
        topics: value.topics.into_iter().map(Arc::from).collect(),
        version: value.version,
        timestamp: Timestamp(value.timestamp),
    })
}
