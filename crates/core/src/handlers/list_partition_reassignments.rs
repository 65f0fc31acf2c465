//! ListPartitionReassignments, version 0 (KIP-455): what is being moved between brokers. On one node that is nothing.

use ottla_wire::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::node::Node;
use crate::reply::{Handled, ReplyBuffer};
use crate::request::Request;

pub(crate) fn handle(
    _node: &Node,
    request: &Request<'_>,
    _body: ListPartitionReassignmentsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    // Whoever asks about topics that do not exist gets the same answer from Apache Kafka: they are not being moved.
    let response = ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
