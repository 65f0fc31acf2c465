//! DeleteTopics, versions 1 to 6. 5: error messages; KIP-599, a topic beyond the quota is refused.
//! 6: KIP-516, by id.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::primitives::Uuid;

use super::deadline;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::{OwnedGrant, Topic};
use crate::controller::topics::{DeletedTopic, TopicToDelete};
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

const FIRST_VERSION_WITH_DELETION_DISABLED: i16 = 3;
/// The first version with an error code for an exceeded quota.
const FIRST_VERSION_WITH_STRICT_QUOTA: i16 = 5;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DeleteTopicsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let by_name = body.topic_names.iter().map(|name| TopicToDelete {
        name: Some((*name).to_owned()),
        id: Uuid::ZERO,
        granted: None,
    });
    let by_either = body.topics.iter().map(|topic| TopicToDelete {
        name: topic.name.map(str::to_owned),
        id: topic.topic_id,
        granted: None,
    });
    let topics: Vec<TopicToDelete> = by_name.chain(by_either).collect();
    if !node.config().delete_topics {
        let code = if version < FIRST_VERSION_WITH_DELETION_DISABLED {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        answer(&refuse_all(&topics, &Refusal::plain(code)), version, reply);
        return Handled::Replied;
    }
    let mut asked: Vec<TopicToDelete> = Vec::new();
    let mut denied: Vec<Option<DeletedTopic>> = Vec::new();
    let image = node.image();
    for topic in topics {
        let granted = grant(&image, &caller, &topic);
        let granted = granted.map(|granted| asked.push(TopicToDelete { granted, ..topic }));
        denied.push(granted.err());
    }
    drop(image);
    let topics = asked.clone();
    let mut quota = request.mutation_quota(FIRST_VERSION_WITH_STRICT_QUOTA);
    let slot = submit(node, move |node, controller| {
        let results = controller.delete_topics(&mut quota, &topics, node.clock().timestamp())?;
        Ok((results, quota.throttle_ms()))
    });
    let write =
        move |_: &Node, results: Result<(Vec<DeletedTopic>, u32), Refusal>, reply: &mut ReplyBuffer| {
            let (results, throttle_ms) = results.unwrap_or_else(|refusal| (refuse_all(&asked, &refusal), 0));
            reply.throttle_ms = throttle_ms;
            let mut results = results.into_iter();
            let merged = denied
                .into_iter()
                .filter_map(|denied| denied.or_else(|| results.next()));
            let results: Vec<DeletedTopic> = merged.collect();
            answer(&results, version, reply);
        };
    Handled::Pending(ControllerReply::boxed(
        slot,
        Some(deadline(request, body.timeout_ms)),
        write,
    ))
}

/// Returns leave to delete the topic; `None`: the id is of no topic.
///
/// - Errors: the answer to a client that may not.
fn grant(
    image: &MetadataImage,
    caller: &Caller<'_>,
    topic: &TopicToDelete,
) -> Result<Option<OwnedGrant<Topic>>, DeletedTopic> {
    let by_id = || image.topic_by_id(topic.id);
    if let Some(cluster) = caller.cluster_if_allowed(Operation::Delete) {
        let name = topic.name.as_deref().or_else(|| Some(&by_id()?.name));
        return Ok(name.map(|name| cluster.topic(name).keep()));
    }
    match (&topic.name, by_id()) {
        (Some(name), _) => grant_by_name(image, caller, name).map(Some),
        (None, Some(existing)) => grant_by_id(caller, existing).map(Some),
        (None, None) => Ok(None),
    }
}

/// By name a deletion needs DESCRIBE, too, and the answer has no id. Whether a topic of this name
/// exists is told to those who may describe it.
fn grant_by_name(
    image: &MetadataImage,
    caller: &Caller<'_>,
    name: &str,
) -> Result<OwnedGrant<Topic>, DeletedTopic> {
    let may = |operation| caller.may_on_topic(operation, name);
    let granted = match image.topic(name) {
        // Not left to the controller: by then the topic may exist.
        None if may(Operation::Describe) && !may(Operation::Delete) => {
            Err(Refusal::plain(ErrorCode::UnknownTopicOrPartition))
        }
        _ => {
            let granted = caller.topic(Operation::Delete, name);
            let described = granted.and_then(|granted| {
                caller.topic(Operation::Describe, name)?;
                Ok(granted.keep())
            });
            described.map_err(Refusal::denial)
        }
    };
    granted.map_err(|refusal| DeletedTopic {
        name: Some(name.to_owned()),
        id: Uuid::ZERO,
        refusal: Some(refusal),
    })
}

/// By id a deletion needs DELETE alone: that a topic of this id exists is no secret, its name is.
fn grant_by_id(caller: &Caller<'_>, topic: &TopicImage) -> Result<OwnedGrant<Topic>, DeletedTopic> {
    let granted = caller.topic(Operation::Delete, &topic.name);
    granted
        .map(|granted| granted.keep())
        .map_err(|error| DeletedTopic {
            name: caller
                .may_on_topic(Operation::Describe, &topic.name)
                .then(|| topic.name.to_string()),
            id: topic.id,
            refusal: Some(Refusal::denial(error)),
        })
}

fn refuse_all(topics: &[TopicToDelete], refusal: &Refusal) -> Vec<DeletedTopic> {
    let refuse = |topic: &TopicToDelete| DeletedTopic {
        name: topic.name.clone(),
        id: topic.id,
        refusal: Some(refusal.clone()),
    };
    topics.iter().map(refuse).collect()
}

fn answer(results: &[DeletedTopic], version: i16, reply: &mut ReplyBuffer) {
    let response = DeleteTopicsResponse {
        responses: results.iter().map(topic_result).collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

fn topic_result(topic: &DeletedTopic) -> DeletableTopicResult<'_> {
    DeletableTopicResult {
        // Before version 6 topics are always named.
        name: topic.name.as_deref(),
        topic_id: topic.id,
        error_code: topic
            .refusal
            .as_ref()
            .map_or(ErrorCode::None, |refusal| refusal.code)
            .code(),
        error_message: topic.refusal.as_ref().map(|refusal| &*refusal.message),
    }
}
