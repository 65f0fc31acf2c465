//! The `consumer` protocol's messages between members and leader, which the coordinator passes on
//! without reading them: subscription and assignment.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::messages::consumer_protocol_assignment::{self, ConsumerProtocolAssignment};
use ottla_wire::messages::consumer_protocol_subscription::{self, ConsumerProtocolSubscription};
use ottla_wire::primitives::{DecodeError, Reader, put_i16};

use super::java_order;
use crate::consumer::topic_partition::TopicPartition;

/// A member's subscription as the leader sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberSubscription {
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub topics: Vec<Arc<str>>,
    pub user_data: Option<Vec<u8>>,
    pub owned: Vec<TopicPartition>,
    /// `None` from members that do not send it (version 0 and 1) or have none.
    pub generation: Option<i32>,
    /// Never an empty string.
    pub rack: Option<Arc<str>>,
}

/// The newest version that both messages have; every member understands newer ones up to the fields
/// it knows.
const VERSION: i16 = ConsumerProtocolSubscription::MAX_VERSION;

impl MemberSubscription {
    pub fn decode(
        member_id: &str,
        group_instance_id: Option<&str>,
        bytes: &[u8],
    ) -> Result<MemberSubscription, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = known_version(reader.i16()?)?;
        let message = ConsumerProtocolSubscription::decode(&mut reader, version)?;
        // Members repeat the same few topics; share one allocation per topic.
        let mut names: BTreeMap<&str, Arc<str>> = BTreeMap::new();
        let mut name = |text| names.entry(text).or_insert_with(|| text.into()).clone();
        let mut owned = Vec::new();
        for topic in &message.owned_partitions {
            let topic_name = name(topic.topic);
            owned.extend(
                topic
                    .partitions
                    .iter()
                    .map(|index| TopicPartition::new(topic_name.clone(), *index)),
            );
        }
        Ok(MemberSubscription {
            member_id: member_id.into(),
            group_instance_id: group_instance_id.map(Arc::from),
            topics: message.topics.iter().map(|topic| name(topic)).collect(),
            user_data: message.user_data.map(<[u8]>::to_vec),
            owned,
            generation: (message.generation_id >= 0).then_some(message.generation_id),
            rack: message.rack_id.filter(|rack| !rack.is_empty()).map(Arc::from),
        })
    }

    /// The order in which range and round robin serve members: static ones by instance id, then the
    /// others.
    pub fn compare(&self, other: &MemberSubscription) -> Ordering {
        match (&self.group_instance_id, &other.group_instance_id) {
            (Some(left), Some(right)) => java_order::compare(left, right),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => java_order::compare(&self.member_id, &other.member_id),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut topics: Vec<&str> = self.topics.iter().map(|topic| &**topic).collect();
        topics.sort_unstable();
        let message = ConsumerProtocolSubscription {
            topics,
            user_data: self.user_data.as_deref(),
            owned_partitions: by_topic(self.owned.iter())
                .into_iter()
                .map(
                    |(topic, partitions)| consumer_protocol_subscription::TopicPartition {
                        topic,
                        partitions,
                    },
                )
                .collect(),
            generation_id: self.generation.unwrap_or(-1),
            rack_id: self.rack.as_deref(),
        };
        let mut bytes = Vec::new();
        put_i16(&mut bytes, VERSION);
        message.encode(&mut bytes, VERSION);
        bytes
    }
}

/// - Errors: `UnsupportedVersion` for a negative version. Future versions begin like the newest
///   known one.
fn known_version(version: i16) -> Result<i16, DecodeError> {
    if version < 0 {
        return Err(DecodeError::UnsupportedVersion { version });
    }
    Ok(version.min(VERSION))
}

fn by_topic<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> BTreeMap<&'a str, Vec<i32>> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics
            .entry(&partition.topic)
            .or_default()
            .push(partition.partition);
    }
    topics.values_mut().for_each(|indexes| indexes.sort_unstable());
    topics
}

pub fn encode_assignment(partitions: &BTreeSet<TopicPartition>) -> Vec<u8> {
    let message = ConsumerProtocolAssignment {
        assigned_partitions: by_topic(partitions.iter())
            .into_iter()
            .map(|(topic, partitions)| consumer_protocol_assignment::TopicPartition { topic, partitions })
            .collect(),
        user_data: None,
    };
    let mut bytes = Vec::new();
    put_i16(&mut bytes, VERSION);
    message.encode(&mut bytes, VERSION);
    bytes
}

pub fn decode_assignment(bytes: &[u8]) -> Result<BTreeSet<TopicPartition>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = known_version(reader.i16()?)?;
    let message = ConsumerProtocolAssignment::decode(&mut reader, version)?;
    let mut partitions = BTreeSet::new();
    for topic in &message.assigned_partitions {
        let name: Arc<str> = topic.topic.into();
        partitions.extend(
            topic
                .partitions
                .iter()
                .map(|index| TopicPartition::new(name.clone(), *index)),
        );
    }
    Ok(partitions)
}
