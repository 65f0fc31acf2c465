//! ListPartitionReassignments, version 0 (KIP-455): partitions being moved between brokers. On one
//! node there are none.

use ottla_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    _node: &Node,
    request: &Request<'_>,
    _body: ListPartitionReassignmentsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    // Apache Kafka gives the same answer for topics that do not exist: they are not being moved.
    let response = ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

pub(crate) fn deny(
    _: &ListPartitionReassignmentsRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    ListPartitionReassignmentsResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}
