//! DescribeQuorum, versions 0 to 2 (KIP-595). 1: KIP-836, times. 2: KIP-853, directories and nodes.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData,
    DescribeQuorumResponse, DescribeQuorumResponsePartitionData, DescribeQuorumResponseTopicData, Listener,
    Node as QuorumNode, ReplicaState,
};
use ottla_wire::primitives::Uuid;

use crate::image::METADATA_TOPIC;
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DescribeQuorumRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let version = request.api_version;
    let topics = body.topics.iter().map(|topic| DescribeQuorumResponseTopicData {
        topic_name: topic.topic_name,
        partitions: topic
            .partitions
            .iter()
            .map(|asked| partition(node, &image, topic, asked, version))
            .collect(),
    });
    let controllers = image.controllers.values().filter(|_| version >= 2);
    let nodes = controllers.map(|controller| QuorumNode {
        node_id: controller.controller_id,
        listeners: controller
            .endpoints
            .iter()
            .map(|endpoint| Listener {
                name: &endpoint.listener_name,
                host: &endpoint.host,
                port: endpoint.port,
            })
            .collect(),
    });
    let response = DescribeQuorumResponse {
        topics: topics.collect(),
        nodes: nodes.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
    Handled::Replied
}

pub(crate) fn deny(_: &DescribeQuorumRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    DescribeQuorumResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message)
            .filter(|_| version >= 2)
            .map(|message| &**message),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

/// The quorum has one voter, this node: the log end is its high watermark.
fn partition<'a>(
    node: &Node,
    image: &MetadataImage,
    topic: &DescribeQuorumRequestTopicData<'_>,
    asked: &DescribeQuorumRequestPartitionData,
    version: i16,
) -> DescribeQuorumResponsePartitionData<'a> {
    let partition_index = asked.partition_index;
    if topic.topic_name != METADATA_TOPIC || partition_index != 0 {
        let error_code = ErrorCode::UnknownTopicOrPartition.code();
        return DescribeQuorumResponsePartitionData {
            partition_index,
            error_code,
            ..Default::default()
        };
    }
    let end_offset = image.provenance.last_offset + 1;
    let now = node.clock().timestamp().0;
    let time = if version >= 1 { now } else { -1 };
    let voter = ReplicaState {
        replica_id: node.config().node_id,
        replica_directory_id: if version >= 2 {
            node.metadata_directory_id()
        } else {
            Uuid::ZERO
        },
        log_end_offset: end_offset,
        last_fetch_timestamp: time,
        last_caught_up_timestamp: time,
    };
    DescribeQuorumResponsePartitionData {
        partition_index,
        leader_id: node.config().node_id,
        leader_epoch: image.provenance.last_epoch,
        high_watermark: end_offset,
        current_voters: vec![voter],
        ..Default::default()
    }
}
