//! OffsetCommit, versions 2 to 10.
//!
//! 2 to 4: a retention per commit. 6: KIP-320, leader epochs. 7: KIP-345, static members. 9:
//! KIP-848, an unknown group has its own error code. 10: KIP-848, topics by id.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use ottla_wire::primitives::Uuid;

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::commits::refuse;
use crate::group::coordinator::Call;
use crate::group::reply::{CommittedTopic, GroupReply};
use crate::group::request::{
    GroupRequest, MemberRequest, OffsetCommitPartition, OffsetCommitRequest as Commit, OffsetCommitTopic,
};
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 10;
/// The client leaves the retention to the broker.
const BROKER_RETENTION: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: OffsetCommitRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let image = node.image();
    let checked = caller.group(Operation::Read, body.group_id);
    let denied = checked.err();
    let commit = Commit {
        member: MemberRequest {
            group_id: body.group_id,
            generation_id: body.generation_id_or_member_epoch,
            member_id: body.member_id,
            group_instance_id: body.group_instance_id,
        },
        is_transactional: false,
        knows_group_id_not_found: version >= 9,
        retention_ms: Some(body.retention_time_ms).filter(|ms| *ms != BROKER_RETENTION && version <= 4),
        topics: body
            .topics
            .iter()
            .map(|topic| resolve(&image, &caller, denied, topic, version))
            .collect(),
    };
    // Needed again only for the rare refusal.
    let unanswered = refuse(&commit, ErrorCode::None);
    let call = match checked {
        Err(error) => Call::answered(Err(error)),
        Ok(granted) => node
            .groups
            .call(&node.storage, granted, GroupRequest::OffsetCommit(commit)),
    };
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        let topics = match answers.pop() {
            Some(Ok(GroupReply::OffsetCommit(topics))) => topics,
            Some(Err(error)) => with_error(unanswered, error),
            _ => with_error(unanswered, ErrorCode::UnknownServerError),
        };
        encode(&topics, version, reply);
    })
}

/// Finds the topic by name or id, and returns the errors of its partitions.
///
/// - `denied`: the client may not use the group; nothing else is told.
fn resolve<'a>(
    image: &'a MetadataImage,
    caller: &Caller<'_>,
    denied: Option<ErrorCode>,
    topic: &OffsetCommitRequestTopic<'a>,
    version: i16,
) -> OffsetCommitTopic<'a> {
    let by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let known = if by_id {
        image.topic_by_id(topic.topic_id)
    } else {
        image.topic(topic.name)
    };
    let name = known.map_or(topic.name, |known| &*known.name);
    // An unknown id has no name to ask about.
    let is_named = known.is_some() || !by_id;
    let check = || caller.topic(Operation::Read, name).err();
    let denied = denied.or_else(|| is_named.then(check).flatten());
    let error_of = |partition: i32| match known {
        _ if let Some(denied) = denied => denied,
        None if by_id => ErrorCode::UnknownTopicId,
        Some(known) if known.partition(partition).is_some() => ErrorCode::None,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    let partitions = topic.partitions.iter().map(|partition| OffsetCommitPartition {
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.unwrap_or(""),
        error: error_of(partition.partition_index),
    });
    OffsetCommitTopic {
        name,
        topic_id: known.map_or(topic.topic_id, |known| known.id),
        partitions: partitions.collect(),
    }
}

pub(super) fn with_error(mut topics: Vec<CommittedTopic>, error: ErrorCode) -> Vec<CommittedTopic> {
    let partitions = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    for (_, earlier) in partitions.filter(|(_, earlier)| *earlier == ErrorCode::None) {
        *earlier = error;
    }
    topics
}

fn encode(topics: &[CommittedTopic], version: i16, reply: &mut ReplyBuffer) {
    let by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let topics = topics.iter().map(|topic| OffsetCommitResponseTopic {
        name: if by_id { "" } else { &topic.name },
        topic_id: if by_id { topic.topic_id } else { Uuid::ZERO },
        partitions: topic
            .partitions
            .iter()
            .map(|(partition, error)| OffsetCommitResponsePartition {
                partition_index: *partition,
                error_code: error.code(),
            })
            .collect(),
    });
    let response = OffsetCommitResponse {
        topics: topics.collect(),
        ..OffsetCommitResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
