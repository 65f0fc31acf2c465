//! ElectLeaders, versions 0 to 2. 1: KIP-460, preferred or unclean, which are the same with one
//! replica.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

use super::deadline;
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

/// Preferred and unclean.
const ELECTION_TYPES: std::ops::RangeInclusive<i8> = 0..=1;

/// From this version on an answer has an error of its own, beside those of the partitions.
const FIRST_VERSION_WITH_ERROR: i16 = 1;

type Elections = Vec<((String, i32), Result<(), Refusal>)>;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: ElectLeadersRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let deadline = deadline(request, body.timeout_ms);
    let named: Option<Vec<(String, i32)>> = body.topic_partitions.map(|topics| {
        let partitions = topics.iter().flat_map(|topic| {
            let indexes = topic.partitions.iter();
            indexes.map(|index| (topic.topic.to_owned(), *index))
        });
        partitions.collect()
    });
    if !ELECTION_TYPES.contains(&body.election_type) {
        let problem = format!("there is no election type {}", body.election_type);
        let refusal = Refusal::new(ErrorCode::InvalidRequest, problem);
        let refused = named.into_iter().flatten();
        let elections: Elections = refused
            .map(|partition| (partition, Err(refusal.clone())))
            .collect();
        write(&elections, refusal.code, version, reply);
        return Handled::Replied;
    }
    let slot = submit(node, move |_, controller| {
        // A request without partitions means all that need an election; the others are left out of
        // the answer.
        let is_about_all = named.is_none();
        let partitions = named.unwrap_or_else(|| all_partitions(controller.image()));
        let results = controller.elect_leaders(&partitions);
        let elections = partitions.into_iter().zip(results);
        let is_told =
            |result: &Result<(), Refusal>| !is_about_all || !is_error(result, ErrorCode::ElectionNotNeeded);
        Ok(elections.filter(|(_, result)| is_told(result)).collect())
    });
    let write = move |_: &Node, results: Result<Elections, Refusal>, reply: &mut ReplyBuffer| match results {
        Ok(elections) => write(&elections, ErrorCode::None, version, reply),
        Err(refusal) => write(&Vec::new(), refusal.code, version, reply),
    };
    Handled::Pending(ControllerReply::boxed(slot, Some(deadline), write))
}

pub(crate) fn deny(body: &ElectLeadersRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    let topics = body.topic_partitions.iter().flatten();
    let partitions = topics.flat_map(|topic| {
        let indexes = topic.partitions.iter();
        indexes.map(|index| ((topic.topic.to_owned(), *index), Err(refusal.clone())))
    });
    write(&partitions.collect(), refusal.code, version, reply);
}

fn all_partitions(image: &MetadataImage) -> Vec<(String, i32)> {
    let topics = image.topics.iter();
    topics
        .flat_map(|topic| {
            (0..)
                .zip(&topic.partitions)
                .map(|(index, _)| (topic.name.to_string(), index))
        })
        .collect()
}

fn is_error(result: &Result<(), Refusal>, code: ErrorCode) -> bool {
    result.as_ref().is_err_and(|refusal| refusal.code == code)
}

fn write(elections: &Elections, code: ErrorCode, version: i16, reply: &mut ReplyBuffer) {
    let mut topics: BTreeMap<&str, Vec<PartitionResult<'_>>> = BTreeMap::new();
    for ((topic, index), result) in elections {
        let refusal = result.as_ref().err();
        topics.entry(topic).or_default().push(PartitionResult {
            partition_id: *index,
            error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
            error_message: refusal.map(|refusal| &*refusal.message),
        });
    }
    ElectLeadersResponse {
        error_code: if version >= FIRST_VERSION_WITH_ERROR {
            code.code()
        } else {
            0
        },
        replica_election_results: topics
            .into_iter()
            .map(|(topic, partition_result)| ReplicaElectionResult {
                topic,
                partition_result,
            })
            .collect(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}
