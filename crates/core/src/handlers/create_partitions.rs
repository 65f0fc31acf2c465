//! CreatePartitions, versions 0 to 3 (KIP-195).

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};

use super::deadline;
use crate::controller::service::{ControllerReply, submit};
use crate::controller::topics::{NewPartitions, Refusal};
use crate::node::Node;
use crate::reply::{Handled, ReplyBuffer};
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: CreatePartitionsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let topics: Vec<NewPartitions> = body.topics.iter().map(new_partitions).collect();
    let names: Vec<String> = topics.iter().map(|topic| topic.topic.clone()).collect();
    let validate_only = body.validate_only;
    let slot = submit(node, move |node, controller| {
        controller.create_partitions(&topics, validate_only, node.clock.timestamp())
    });
    let write =
        move |_: &Node, results: Result<Vec<Result<(), Refusal>>, Refusal>, reply: &mut ReplyBuffer| {
            let results = results.unwrap_or_else(|refusal| vec![Err(refusal); names.len()]);
            let response = CreatePartitionsResponse {
                results: names
                    .iter()
                    .zip(&results)
                    .map(|(name, result)| topic_result(name, result))
                    .collect(),
                ..Default::default()
            };
            response.encode(&mut reply.bytes, version);
        };
    Handled::Pending(ControllerReply::boxed(
        slot,
        Some(deadline(request, body.timeout_ms)),
        write,
    ))
}

fn new_partitions(topic: &CreatePartitionsTopic<'_>) -> NewPartitions {
    let assignments = topic.assignments.as_ref();
    NewPartitions {
        topic: topic.name.to_owned(),
        count: topic.count,
        assignments: assignments.map(|assignments| {
            assignments
                .iter()
                .map(|assignment| assignment.broker_ids.clone())
                .collect()
        }),
    }
}

fn topic_result<'a>(name: &'a str, result: &'a Result<(), Refusal>) -> CreatePartitionsTopicResult<'a> {
    let refusal = result.as_ref().err();
    CreatePartitionsTopicResult {
        name,
        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
        error_message: refusal.map(|refusal| &*refusal.message),
    }
}
