//! OffsetDelete, version 0 (KIP-496).

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::reply::{GroupReply, OffsetDeleteReply};
use crate::group::request::{GroupRequest, OffsetDeleteRequest as Delete, OffsetDeleteTopic};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: OffsetDeleteRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let checked = match caller.group(Operation::Delete, body.group_id) {
        Ok(_) if body.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
        checked => checked,
    };
    let granted = match checked {
        Ok(granted) => granted,
        Err(error) => {
            let topics = Vec::new();
            encode(&OffsetDeleteReply { error, topics }, version, reply);
            return Handled::Replied;
        }
    };
    let image = node.image();
    let topics = body.topics.iter().map(|topic| {
        let known = image.topic(topic.name);
        let denied = caller.topic(Operation::Read, topic.name).err();
        let error_of = |partition: i32| match known.and_then(|known| known.partition(partition)) {
            _ if denied.is_some() => ErrorCode::TopicAuthorizationFailed,
            Some(_) => ErrorCode::None,
            None => ErrorCode::UnknownTopicOrPartition,
        };
        let partitions = topic.partitions.iter().map(|partition| partition.partition_index);
        OffsetDeleteTopic {
            name: topic.name,
            partitions: partitions
                .map(|partition| (partition, error_of(partition)))
                .collect(),
        }
    });
    let delete = Delete {
        group_id: body.group_id,
        topics: topics.collect(),
    };
    let call = node
        .groups
        .call(&node.storage, granted, GroupRequest::OffsetDelete(delete));
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        let deleted = match answers.pop() {
            Some(Ok(GroupReply::OffsetDelete(deleted))) => deleted,
            Some(Err(error)) => OffsetDeleteReply {
                error,
                topics: Vec::new(),
            },
            _ => OffsetDeleteReply {
                error: ErrorCode::UnknownServerError,
                topics: Vec::new(),
            },
        };
        encode(&deleted, version, reply);
    })
}

fn encode(deleted: &OffsetDeleteReply, version: i16, reply: &mut ReplyBuffer) {
    let topics = deleted
        .topics
        .iter()
        .map(|(name, partitions)| OffsetDeleteResponseTopic {
            name,
            partitions: partitions
                .iter()
                .map(|(partition, error)| OffsetDeleteResponsePartition {
                    partition_index: *partition,
                    error_code: error.code(),
                })
                .collect(),
        });
    let response = OffsetDeleteResponse {
        error_code: deleted.error.code(),
        topics: topics.collect(),
        ..OffsetDeleteResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
