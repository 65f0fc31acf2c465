//! DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827): the contents of the log directory and their
//! sizes.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};

use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DescribeLogDirsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let asked = body.topics.map(|topics| {
        let entries = topics.into_iter().map(|topic| (topic.topic, topic.partitions));
        entries.collect::<BTreeMap<&str, Vec<i32>>>()
    });
    let partitions = node.storage.partitions.all();
    let mut topics: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in &partitions {
        let topic: &str = &partition.topic;
        let is_asked = match &asked {
            Some(asked) => asked
                .get(topic)
                .is_some_and(|indexes| indexes.contains(&partition.index)),
            None => true,
        };
        if is_asked {
            topics.entry(topic).or_default().push(DescribeLogDirsPartition {
                partition_index: partition.index,
                partition_size: i64::try_from(partition.with_log(|log| log.bytes())).unwrap_or(i64::MAX),
                offset_lag: 0,
                is_future_key: false,
            });
        }
    }
    let directory = directory_name(node);
    let space = node.storage.disk.space(node.storage.log_directory.path()).ok();
    let result = DescribeLogDirsResult {
        error_code: if space.is_some() {
            ErrorCode::None.code()
        } else {
            ErrorCode::KafkaStorageError.code()
        },
        log_dir: &directory,
        topics: topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic { name, partitions })
            .collect(),
        total_bytes: space.map_or(-1, |space| i64::try_from(space.total_bytes).unwrap_or(i64::MAX)),
        usable_bytes: space.map_or(-1, |space| i64::try_from(space.free_bytes).unwrap_or(i64::MAX)),
        ..Default::default()
    };
    let response = DescribeLogDirsResponse {
        results: vec![result],
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

pub(crate) fn deny(_: &DescribeLogDirsRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    // Before version 3 the answer has no error: its list is empty.
    DescribeLogDirsResponse {
        error_code: refusal.code.code(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

/// Returns the log directory as tools name it: `kafka-reassign-partitions` takes absolute paths
/// only.
pub(super) fn directory_name(node: &Node) -> String {
    let path = node.storage.log_directory.path();
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).to_string_lossy().into_owned()
}
