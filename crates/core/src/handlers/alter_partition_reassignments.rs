//! AlterPartitionReassignments, versions 0 and 1 (KIP-455). 1: KIP-860, whether the replication
//! factor may change.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartitionResponse,
    ReassignableTopicResponse,
};

use super::deadline;
use crate::controller::reassignments::Reassignment;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

type Results = Vec<Result<(), Refusal>>;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: AlterPartitionReassignmentsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let allow_replication_factor_change = body.allow_replication_factor_change;
    let deadline = deadline(request, body.timeout_ms);
    let names: Vec<String> = (body.topics.iter()).map(|topic| topic.name.to_owned()).collect();
    let reassignments: Vec<Vec<Reassignment>> = body
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|partition| Reassignment {
                topic: topic.name.to_owned(),
                partition: partition.partition_index,
                replicas: partition.replicas.clone(),
            });
            partitions.collect()
        })
        .collect();
    let asked = reassignments.clone();
    let slot = submit(node, move |_, controller| {
        let topics = reassignments.iter();
        Ok(topics
            .map(|partitions| controller.reassign_partitions(partitions))
            .collect())
    });
    let write = move |_: &Node, results: Result<Vec<Results>, Refusal>, reply: &mut ReplyBuffer| {
        let (results, refusal) = match results {
            Ok(results) => (results, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        AlterPartitionReassignmentsResponse {
            allow_replication_factor_change,
            error_code: refusal
                .as_ref()
                .map_or(ErrorCode::None, |refusal| refusal.code)
                .code(),
            error_message: refusal.as_ref().map(|refusal| &*refusal.message),
            responses: names
                .iter()
                .zip(asked.iter().zip(&results))
                .map(|(name, (partitions, results))| ReassignableTopicResponse {
                    name,
                    partitions: partitions.iter().zip(results).map(partition_response).collect(),
                })
                .collect(),
            ..Default::default()
        }
        .encode(&mut reply.bytes, version);
    };
    Handled::Pending(ControllerReply::boxed(slot, Some(deadline), write))
}

pub(crate) fn deny(
    body: &AlterPartitionReassignmentsRequest<'_>,
    refusal: Refusal,
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let responses = body.topics.iter().map(|topic| ReassignableTopicResponse {
        name: topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|partition| ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: refusal.code.code(),
                error_message: Some(&refusal.message),
            })
            .collect(),
    });
    AlterPartitionReassignmentsResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        responses: responses.collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}

fn partition_response<'a>(
    (wanted, result): (&Reassignment, &'a Result<(), Refusal>),
) -> ReassignablePartitionResponse<'a> {
    let refusal = result.as_ref().err();
    ReassignablePartitionResponse {
        partition_index: wanted.partition,
        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
        error_message: refusal.map(|refusal| &*refusal.message),
    }
}
