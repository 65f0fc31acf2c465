//! CreatePartitions, versions 0 to 3 (KIP-195). 3: KIP-599, a topic beyond the quota is refused.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};

use super::altered::merge;
use super::deadline;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::{OwnedGrant, Topic};
use crate::controller::topics::NewPartitions;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

/// The first version with an error code for an exceeded quota.
const FIRST_VERSION_WITH_STRICT_QUOTA: i16 = 3;

type Results = Vec<Result<(), Refusal>>;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: CreatePartitionsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let names: Vec<String> = body.topics.iter().map(|topic| topic.name.to_owned()).collect();
    let mut topics = Vec::new();
    let mut check = |topic: &CreatePartitionsTopic<'_>| match caller.topic(Operation::Alter, topic.name) {
        Ok(granted) => {
            topics.push(new_partitions(granted.keep(), topic));
            Ok(())
        }
        Err(code) => Err(Refusal::denial(code)),
    };
    let checked: Results = body.topics.iter().map(&mut check).collect();
    let validate_only = body.validate_only;
    let mut quota = request.mutation_quota(FIRST_VERSION_WITH_STRICT_QUOTA);
    let slot = submit(node, move |node, controller| {
        let now = node.clock().timestamp();
        let results = controller.create_partitions(&mut quota, &topics, validate_only, now)?;
        Ok((results, quota.throttle_ms()))
    });
    let write = move |_: &Node, results: Result<(Results, u32), Refusal>, reply: &mut ReplyBuffer| {
        let results = results.map(|(results, throttle_ms)| {
            reply.throttle_ms = throttle_ms;
            results
        });
        let results = merge(checked, results);
        let results = names.iter().zip(&results);
        let response = CreatePartitionsResponse {
            results: results.map(|(name, result)| topic_result(name, result)).collect(),
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

fn new_partitions(granted: OwnedGrant<Topic>, topic: &CreatePartitionsTopic<'_>) -> NewPartitions {
    let assignments = topic.assignments.as_ref();
    NewPartitions {
        topic: granted,
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
