//! AlterReplicaLogDirs, versions 1 and 2 (KIP-113). There is one log directory: a move to it is a
//! no-op, a move to any other is LOG_DIR_NOT_FOUND.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};

use super::describe_log_dirs::directory_name;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: AlterReplicaLogDirsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let directory = directory_name(node);
    let mut results: BTreeMap<&str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for wanted in &body.dirs {
        for topic in &wanted.topics {
            let answers = topic.partitions.iter().map(|index| {
                let error = match node.storage.partition_by_name(topic.name, *index) {
                    _ if wanted.path != directory => ErrorCode::LogDirNotFound,
                    Err(error) => error,
                    Ok(_) => ErrorCode::None,
                };
                AlterReplicaLogDirPartitionResult {
                    partition_index: *index,
                    error_code: error.code(),
                }
            });
            results.entry(topic.name).or_default().extend(answers);
        }
    }
    let response = AlterReplicaLogDirsResponse {
        results: results
            .into_iter()
            .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult {
                topic_name,
                partitions,
            })
            .collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

pub(crate) fn deny(
    body: &AlterReplicaLogDirsRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let topics = body.dirs.iter().flat_map(|directory| &directory.topics);
    let results = topics.map(|topic| AlterReplicaLogDirTopicResult {
        topic_name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|index| AlterReplicaLogDirPartitionResult {
                partition_index: *index,
                error_code: refusal.code.code(),
            })
            .collect(),
    });
    AlterReplicaLogDirsResponse {
        results: results.collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}
