//! OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, KIP-320): the end offset of a leader epoch.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedTopic;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: OffsetForLeaderEpochRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    // Followers ask with the one permission, consumers with the other (KIP-320).
    let follower = caller.cluster_if_allowed(Operation::ClusterAction);
    let topics = body
        .topics
        .iter()
        .map(|topic| {
            let checked = match follower {
                Some(granted) => Ok(granted.topic(topic.topic)),
                None => caller.topic(Operation::Describe, topic.topic),
            };
            OffsetForLeaderTopicResult {
                topic: topic.topic,
                partitions: topic
                    .partitions
                    .iter()
                    .map(|asked| answer(node, checked, asked))
                    .collect(),
            }
        })
        .collect();
    let response = OffsetForLeaderEpochResponse {
        topics,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

fn answer(
    node: &Node,
    checked: Result<GrantedTopic<'_>, ErrorCode>,
    asked: &OffsetForLeaderPartition,
) -> EpochEndOffset {
    let unknown = EpochEndOffset {
        partition: asked.partition,
        leader_epoch: -1,
        end_offset: -1,
        ..Default::default()
    };
    let found = checked
        .and_then(|granted| node.partition_by_name(granted, asked.partition))
        .and_then(|partition| {
            partition
                .check_leader_epoch(asked.current_leader_epoch)
                .map(|()| partition)
        });
    match found {
        Ok(partition) => match partition.end_of_epoch(asked.leader_epoch) {
            Some(end) => EpochEndOffset {
                leader_epoch: end.leader_epoch,
                end_offset: end.end_offset,
                ..unknown
            },
            None => unknown,
        },
        Err(error) => EpochEndOffset {
            error_code: ErrorCode::code(error),
            ..unknown
        },
    }
}
