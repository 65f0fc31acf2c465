//! DescribeProducers, version 0 (KIP-664): the recently active producers of a partition.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::controller::topics::topic_name_problem;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeProducersRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let topics = body
        .topics
        .iter()
        .map(|topic| TopicResponse {
            name: topic.name,
            partitions: topic
                .partition_indexes
                .iter()
                .map(|index| describe(node, &caller, topic.name, *index))
                .collect(),
        })
        .collect();
    let response = DescribeProducersResponse {
        topics,
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

fn describe(
    node: &Node,
    caller: &Caller<'_>,
    topic: &str,
    partition_index: i32,
) -> PartitionResponse<'static> {
    let found = match topic_name_problem(topic) {
        Some(_) => Err(ErrorCode::InvalidTopicException),
        None => caller
            .topic(Operation::Read, topic)
            .and_then(|granted| node.partition_by_name(granted, partition_index)),
    };
    match found {
        Ok(partition) => PartitionResponse {
            partition_index,
            active_producers: partition.with_log(|log| log.active_producers().map(state).collect()),
            ..Default::default()
        },
        Err(error) => PartitionResponse {
            partition_index,
            error_code: error.code(),
            ..Default::default()
        },
    }
}

fn state(producer: ottla_log::ActiveProducer) -> ProducerState {
    ProducerState {
        producer_id: producer.producer_id,
        producer_epoch: i32::from(producer.producer_epoch),
        last_sequence: producer.last_sequence,
        last_timestamp: producer.last_timestamp,
        coordinator_epoch: producer.coordinator_epoch,
        current_txn_start_offset: producer.transaction_first_offset,
    }
}
