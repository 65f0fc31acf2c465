//! DeleteTopics, versions 1 to 6. 5: error messages; KIP-599, a topic beyond the quota is refused.
//! 6: KIP-516, by id.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::primitives::Uuid;

use super::deadline;
use crate::access::Caller;
use crate::access::acl::Operation;
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
    });
    let by_either = body.topics.iter().map(|topic| TopicToDelete {
        name: topic.name.map(str::to_owned),
        id: topic.topic_id,
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
    let checked: Vec<Option<DeletedTopic>> = {
        let image = node.image();
        topics
            .iter()
            .map(|topic| denied(&image, &caller, topic))
            .collect()
    };
    let asked: Vec<TopicToDelete> = (topics.into_iter().zip(&checked))
        .filter_map(|(topic, denied)| denied.is_none().then_some(topic))
        .collect();
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
            let merged = checked
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

/// Returns the answer to a client that may not delete the topic.
fn denied(image: &MetadataImage, caller: &Caller<'_>, topic: &TopicToDelete) -> Option<DeletedTopic> {
    if caller.may_on_cluster(Operation::Delete) {
        return None;
    }
    match &topic.name {
        Some(name) => denied_by_name(image, caller, name),
        None => denied_by_id(caller, image.topic_by_id(topic.id)?),
    }
}

/// By name a deletion needs DESCRIBE, too, and the answer has no id. Whether a topic of this name
/// exists is told to those who may describe it.
fn denied_by_name(image: &MetadataImage, caller: &Caller<'_>, name: &str) -> Option<DeletedTopic> {
    let may = |operation| caller.may_on_topic(operation, name);
    let refusal = match image.topic(name) {
        // Not left to the controller: by then the topic may exist.
        None if may(Operation::Describe) && !may(Operation::Delete) => {
            Refusal::plain(ErrorCode::UnknownTopicOrPartition)
        }
        _ => {
            let checked = caller.topic(Operation::Delete, name);
            let checked = checked.and_then(|_| caller.topic(Operation::Describe, name));
            Refusal::denial(checked.err()?)
        }
    };
    Some(DeletedTopic {
        name: Some(name.to_owned()),
        id: Uuid::ZERO,
        refusal: Some(refusal),
    })
}

/// By id a deletion needs DELETE alone: that a topic of this id exists is no secret, its name is.
fn denied_by_id(caller: &Caller<'_>, topic: &TopicImage) -> Option<DeletedTopic> {
    let error = caller.topic(Operation::Delete, &topic.name).err()?;
    let may_describe = caller.may_on_topic(Operation::Describe, &topic.name);
    Some(DeletedTopic {
        name: may_describe.then(|| topic.name.to_string()),
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
