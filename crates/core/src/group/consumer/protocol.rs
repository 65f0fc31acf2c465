//! Subscriptions and assignments as members of the classic protocol exchange them, by topic name.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::messages::consumer_protocol_assignment::{ConsumerProtocolAssignment, TopicPartition};
use ottla_wire::messages::consumer_protocol_subscription::ConsumerProtocolSubscription;
use ottla_wire::primitives::{DecodeError, Reader, put_i16};

use crate::image::topics::TopicsImage;

use super::assignment::Partitions;

/// The newest version of both messages. Later ones begin like it.
const VERSION_MAX: i16 = ConsumerProtocolSubscription::MAX_VERSION;

/// What a member says in JoinGroup.
#[derive(Debug, PartialEq)]
pub(super) struct Subscription<'a> {
    pub topics: Vec<&'a str>,
    pub rack_id: Option<&'a str>,
    /// Without topics that do not exist. Empty before version 1.
    pub owned: Partitions,
}

pub(super) fn decode_subscription<'a>(
    bytes: &'a [u8],
    topics: &TopicsImage,
) -> Result<Subscription<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = known_version(reader.i16()?)?;
    let message = ConsumerProtocolSubscription::decode(&mut reader, version)?;
    let owned = message.owned_partitions.iter();
    Ok(Subscription {
        topics: message.topics,
        rack_id: message.rack_id.filter(|rack_id| !rack_id.is_empty()),
        owned: owned
            .flat_map(|topic| in_topic(topics, topic.topic, &topic.partitions))
            .collect(),
    })
}

/// Reads an assignment without topics that do not exist. A member that was not assigned anything
/// yet has no bytes.
pub(in crate::group) fn decode_assignment(
    bytes: &[u8],
    topics: &TopicsImage,
) -> Result<Partitions, DecodeError> {
    if bytes.is_empty() {
        return Ok(Partitions::new());
    }
    let mut reader = Reader::new(bytes);
    let version = known_version(reader.i16()?)?;
    let message = ConsumerProtocolAssignment::decode(&mut reader, version)?;
    let assigned = message.assigned_partitions.iter();
    Ok(assigned
        .flat_map(|topic| in_topic(topics, topic.topic, &topic.partitions))
        .collect())
}

/// Writes an assignment for a member, in the version of its subscription.
pub(super) fn encode_assignment(
    partitions: &Partitions,
    topics: &TopicsImage,
    subscription: &[u8],
) -> Arc<[u8]> {
    let version = Reader::new(subscription)
        .i16()
        .and_then(known_version)
        .unwrap_or(0);
    let mut by_name: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic_id, partition) in partitions {
        if let Some(topic) = topics.by_id(*topic_id) {
            by_name.entry(&topic.name).or_default().push(*partition);
        }
    }
    let assigned = by_name.into_iter();
    let message = ConsumerProtocolAssignment {
        assigned_partitions: assigned
            .map(|(topic, partitions)| TopicPartition { topic, partitions })
            .collect(),
        user_data: None,
    };
    let mut bytes = Vec::new();
    put_i16(&mut bytes, version);
    message.encode(&mut bytes, version);
    bytes.into()
}

fn in_topic<'a>(
    topics: &TopicsImage,
    name: &str,
    partitions: &'a [i32],
) -> impl Iterator<Item = super::assignment::TopicPartition> + use<'a> {
    let topic_id = topics.by_name(name).map(|topic| topic.id);
    topic_id
        .into_iter()
        .flat_map(move |id| partitions.iter().map(move |partition| (id, *partition)))
}

fn known_version(version: i16) -> Result<i16, DecodeError> {
    if version < 0 {
        return Err(DecodeError::UnsupportedVersion { version });
    }
    Ok(version.min(VERSION_MAX))
}
