//! DescribeTopicPartitions, version 0 (KIP-966): partitions in pages, with their eligible leaders.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};

use super::authorized::{NOT_ASKED, topic_operations};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::controller::topics::topic_name_problem;
use crate::image::MetadataImage;
use crate::image::topics::{NO_LEADER, PartitionImage, TopicImage, is_internal};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

/// `max.request.partition.size.limit` of Apache Kafka.
const PARTITIONS_PER_RESPONSE_MAX: i32 = 2_000;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeTopicPartitionsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let cursor = body
        .cursor
        .as_ref()
        .map(|cursor| (cursor.topic_name, cursor.partition_index));
    let names: BTreeSet<&str> = body.topics.iter().map(|topic| topic.name).collect();
    if let Some((topic, index)) = cursor
        && (index < 0 || (!names.is_empty() && !names.contains(topic)))
    {
        refuse(&body, reply, request.api_version);
        return Handled::Replied;
    }
    let from = cursor.map_or("", |(topic, _)| topic);
    let mut page = Page {
        image: &image,
        caller: &caller,
        left: body
            .response_partition_limit
            .clamp(1, PARTITIONS_PER_RESPONSE_MAX) as usize,
        topics: Vec::new(),
        next: None,
    };
    let first_of =
        |name: &str| cursor.map_or(0, |(topic, index)| if topic == name { index as usize } else { 0 });
    if names.is_empty() {
        let is_shown = |topic: &&Arc<TopicImage>| caller.may_on_topic(Operation::Describe, &topic.name);
        for topic in image.topics.iter_from(from, true).filter(is_shown) {
            if !page.add(topic, first_of(&topic.name)) {
                break;
            }
        }
    } else {
        for name in names.range(from..) {
            match image.topic(name) {
                _ if caller.topic(Operation::Describe, name).is_err() => page.topics.push(denied(name)),
                Some(topic) if !page.add(topic, first_of(name)) => break,
                Some(_) => {}
                None => page.topics.push(unknown(&caller, name)),
            }
        }
    }
    let next_cursor = page.next.map(
        |(topic_name, partition_index)| DescribeTopicPartitionsResponseCursor {
            topic_name,
            partition_index,
        },
    );
    let response = DescribeTopicPartitionsResponse {
        topics: page.topics,
        next_cursor,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

/// Refuses a cursor at a partition below 0, or at a topic that the request does not name.
fn refuse(body: &DescribeTopicPartitionsRequest<'_>, reply: &mut ReplyBuffer, version: i16) {
    let topics = body
        .topics
        .iter()
        .map(|topic| DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::InvalidRequest.code(),
            name: Some(topic.name),
            ..Default::default()
        });
    let response = DescribeTopicPartitionsResponse {
        topics: topics.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

struct Page<'a> {
    image: &'a MetadataImage,
    caller: &'a Caller<'a>,
    left: usize,
    topics: Vec<DescribeTopicPartitionsResponseTopic<'a>>,
    next: Option<(&'a str, i32)>,
}

impl<'a> Page<'a> {
    /// Adds partitions to the page; false when it is full and `next` says where to continue.
    fn add(&mut self, topic: &'a TopicImage, first: usize) -> bool {
        if self.left == 0 {
            self.next = Some((&topic.name, first as i32));
            return false;
        }
        let end = topic.partitions.len().min(first.saturating_add(self.left));
        let shown = topic.partitions.iter().enumerate().take(end).skip(first);
        let partitions: Vec<_> = shown
            .map(|(index, partition)| self.partition(index, partition))
            .collect();
        self.left -= partitions.len();
        self.topics.push(DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(&topic.name),
            topic_id: topic.id,
            is_internal: topic.is_internal(),
            partitions,
            topic_authorized_operations: topic_operations(self.caller, &topic.name),
        });
        if end < topic.partitions.len() {
            self.next = Some((&topic.name, end as i32));
            return false;
        }
        true
    }

    fn partition(
        &self,
        index: usize,
        partition: &PartitionImage,
    ) -> DescribeTopicPartitionsResponsePartition {
        let is_alive = |id: &i32| self.image.brokers.get(id).is_some_and(|broker| !broker.fenced);
        DescribeTopicPartitionsResponsePartition {
            error_code: ErrorCode::None.code(),
            partition_index: index as i32,
            leader_id: if is_alive(&partition.leader) {
                partition.leader
            } else {
                NO_LEADER
            },
            leader_epoch: partition.leader_epoch,
            replica_nodes: partition.replicas.to_vec(),
            isr_nodes: partition.isr.to_vec(),
            eligible_leader_replicas: Some(partition.eligible_leader_replicas.to_vec()),
            last_known_elr: Some(partition.last_known_elr.to_vec()),
            offline_replicas: partition
                .replicas
                .iter()
                .copied()
                .filter(|id| !is_alive(id))
                .collect(),
        }
    }
}

/// Tells nothing about the topic, not even whether it exists.
fn denied<'a>(name: &&'a str) -> DescribeTopicPartitionsResponseTopic<'a> {
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::TopicAuthorizationFailed.code(),
        name: Some(name),
        topic_authorized_operations: NOT_ASKED,
        ..Default::default()
    }
}

fn unknown<'a>(caller: &Caller<'_>, name: &&'a str) -> DescribeTopicPartitionsResponseTopic<'a> {
    let error = match topic_name_problem(name) {
        Some(_) => ErrorCode::InvalidTopicException,
        None => ErrorCode::UnknownTopicOrPartition,
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(name),
        is_internal: is_internal(name),
        topic_authorized_operations: topic_operations(caller, name),
        ..Default::default()
    }
}
