//! OffsetFetch, versions 1 to 10.
//!
//! 2: all topics, and an error for the whole group. 5: KIP-320, leader epochs. 7: KIP-447, stable
//! offsets only. 8: KIP-709, several groups. 9: KIP-848, a member epoch. 10: KIP-848, topics
//! by id.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use ottla_wire::primitives::Uuid;

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::{FetchedPartition, FetchedTopic, GroupReply};
use crate::group::request::{GroupRequest, OffsetFetchRequest as Fetch, OffsetFetchTopic};
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::placement::ENTRIES_UNBOUNDED;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const FIRST_VERSION_WITH_GROUP_ERROR: i16 = 2;
const FIRST_VERSION_WITH_GROUPS: i16 = 8;
const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 10;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: OffsetFetchRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    if version < FIRST_VERSION_WITH_GROUPS {
        handle_one(node, version, caller, body, reply)
    } else {
        handle_many(node, version, caller, body, reply)
    }
}

/// The measure of an OffsetFetch: no list of topics stands for all that a group has committed.
pub(crate) fn answer_entries(_: &Node, request: &Request<'_>, body: &OffsetFetchRequest<'_>) -> u64 {
    let is_all_of_one = request.api_version < FIRST_VERSION_WITH_GROUPS && body.topics.is_none();
    if is_all_of_one || body.groups.iter().any(|group| group.topics.is_none()) {
        ENTRIES_UNBOUNDED
    } else {
        0
    }
}

fn handle_one(
    node: &Node,
    version: i16,
    caller: Caller<'_>,
    body: OffsetFetchRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let topics = body.topics.as_ref().map(|topics| {
        let topic = topics
            .iter()
            .map(|topic| by_name(&image, &caller, topic.name, &topic.partition_indexes));
        topic.collect::<Vec<_>>()
    });
    let asked = asked_of(topics.as_deref());
    let is_about_all = body.topics.is_none();
    let fetch = Fetch {
        group_id: body.group_id,
        member: None,
        topics,
        require_stable: body.require_stable,
    };
    let call = call(node, &caller, body.group_id, fetch);
    let caller = caller.keep();
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        let caller = caller.borrow();
        let (error, topics) = match fetched(answers.pop(), is_about_all.then_some(&caller)) {
            Ok(topics) => (ErrorCode::None, topics),
            // Version 1 has no group-level error, only one per partition.
            Err(error) => (error, with_error(asked, error)),
        };
        let says_so = version >= FIRST_VERSION_WITH_GROUP_ERROR;
        let topics = if error != ErrorCode::None && says_so {
            &[][..]
        } else {
            &topics
        };
        let response = OffsetFetchResponse {
            topics: topics.iter().map(topic_response).collect(),
            error_code: if says_so { error.code() } else { 0 },
            ..OffsetFetchResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

fn handle_many(
    node: &Node,
    version: i16,
    caller: Caller<'_>,
    body: OffsetFetchRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS;
    let image = node.image();
    let mut calls = Vec::with_capacity(body.groups.len());
    let mut asked = Vec::with_capacity(body.groups.len());
    for group in &body.groups {
        let fetch = Fetch {
            group_id: group.group_id,
            member: member_of(group),
            topics: resolve(&image, &caller, group, by_id),
            require_stable: body.require_stable,
        };
        calls.push(call(node, &caller, group.group_id, fetch));
        asked.push((group.group_id.to_owned(), group.topics.is_none()));
    }
    let caller = caller.keep();
    reply_when_answered(node, calls, reply, move |node, answers, reply| {
        let (image, caller) = (node.image(), caller.borrow());
        let groups: Vec<(ErrorCode, Vec<FetchedTopic>)> = answers
            .into_iter()
            .zip(&asked)
            .map(
                |(answer, (_, is_about_all))| match fetched(Some(answer), is_about_all.then_some(&caller)) {
                    Ok(topics) if by_id => (ErrorCode::None, with_ids(&image, topics)),
                    Ok(topics) => (ErrorCode::None, topics),
                    Err(error) => (error, Vec::new()),
                },
            )
            .collect();
        let groups =
            asked
                .iter()
                .zip(&groups)
                .map(|((group_id, _), (error, topics))| OffsetFetchResponseGroup {
                    group_id,
                    topics: topics
                        .iter()
                        .map(|topic| topic_of_group_response(topic, by_id))
                        .collect(),
                    error_code: error.code(),
                });
        let response = OffsetFetchResponse {
            groups: groups.collect(),
            ..OffsetFetchResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

/// A client that is no member names none, or no epoch.
fn member_of<'a>(group: &OffsetFetchRequestGroup<'a>) -> Option<(&'a str, i32)> {
    let member_id = group.member_id.unwrap_or("");
    (group.member_id.is_some() || group.member_epoch >= 0).then_some((member_id, group.member_epoch))
}

fn call(node: &Node, caller: &Caller<'_>, group_id: &str, fetch: Fetch<'_>) -> Call {
    match caller.group(Operation::Describe, group_id) {
        Ok(granted) => node
            .groups
            .call(&node.storage, granted, GroupRequest::OffsetFetch(fetch)),
        Err(error) => Call::answered(Err(error)),
    }
}

/// The id excludes offsets that were committed for an earlier topic of this name.
fn by_name<'a>(
    image: &MetadataImage,
    caller: &Caller<'_>,
    name: &'a str,
    partitions: &[i32],
) -> OffsetFetchTopic<'a> {
    OffsetFetchTopic {
        name,
        topic_id: image.topic(name).map_or(Uuid::ZERO, |known| known.id),
        partitions: partitions.to_vec(),
        error: caller
            .topic(Operation::Describe, name)
            .err()
            .unwrap_or(ErrorCode::None),
    }
}

fn resolve<'a>(
    image: &'a MetadataImage,
    caller: &Caller<'_>,
    group: &OffsetFetchRequestGroup<'a>,
    by_id: bool,
) -> Option<Vec<OffsetFetchTopic<'a>>> {
    let topics = group.topics.as_ref()?.iter().map(|topic| {
        if !by_id {
            return by_name(image, caller, topic.name, &topic.partition_indexes);
        }
        let known = image.topic_by_id(topic.topic_id);
        OffsetFetchTopic {
            name: known.map_or("", |known| &*known.name),
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes.clone(),
            error: match known.map(|known| caller.topic(Operation::Describe, &known.name)) {
                Some(Ok(_)) => ErrorCode::None,
                Some(Err(error)) => error,
                None => ErrorCode::UnknownTopicId,
            },
        }
    });
    Some(topics.collect())
}

/// Adds ids to topics that were found by asking for all of them. A deleted topic has no id to be
/// named by. A request for the zero id is answered with it.
fn with_ids(image: &MetadataImage, topics: Vec<FetchedTopic>) -> Vec<FetchedTopic> {
    let with_id = |mut topic: FetchedTopic| {
        if topic.topic_id == Uuid::ZERO && !topic.name.is_empty() {
            topic.topic_id = image.topic(&topic.name)?.id;
        }
        Some(topic)
    };
    topics.into_iter().filter_map(with_id).collect()
}

/// - `filter`: all topics were asked for; those that it may not describe are left out.
fn fetched(answer: Option<GroupAnswer>, filter: Option<&Caller<'_>>) -> Result<Vec<FetchedTopic>, ErrorCode> {
    match answer {
        Some(Ok(GroupReply::OffsetFetch(mut topics))) => {
            if let Some(caller) = filter {
                topics.retain(|topic| caller.may_on_topic(Operation::Describe, &topic.name));
            }
            Ok(topics)
        }
        Some(Ok(GroupReply::Refused(error)) | Err(error)) => Err(error),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

fn asked_of(topics: Option<&[OffsetFetchTopic<'_>]>) -> Vec<(String, Vec<i32>)> {
    let topics = topics.unwrap_or_default().iter();
    topics
        .map(|topic| (topic.name.to_owned(), topic.partitions.clone()))
        .collect()
}

fn with_error(asked: Vec<(String, Vec<i32>)>, error: ErrorCode) -> Vec<FetchedTopic> {
    let topic = |(name, partitions): (String, Vec<i32>)| FetchedTopic {
        name,
        topic_id: Uuid::ZERO,
        partitions: partitions
            .into_iter()
            .map(|partition| FetchedPartition::error(partition, error))
            .collect(),
    };
    asked.into_iter().map(topic).collect()
}

fn topic_response(topic: &FetchedTopic) -> OffsetFetchResponseTopic<'_> {
    let partitions = topic
        .partitions
        .iter()
        .map(|fetched| OffsetFetchResponsePartition {
            partition_index: fetched.partition,
            committed_offset: fetched.offset,
            committed_leader_epoch: fetched.leader_epoch,
            metadata: Some(&fetched.metadata),
            error_code: fetched.error.code(),
        });
    OffsetFetchResponseTopic {
        name: &topic.name,
        partitions: partitions.collect(),
    }
}

fn topic_of_group_response(topic: &FetchedTopic, by_id: bool) -> OffsetFetchResponseTopics<'_> {
    let partitions = topic
        .partitions
        .iter()
        .map(|fetched| OffsetFetchResponsePartitions {
            partition_index: fetched.partition,
            committed_offset: fetched.offset,
            committed_leader_epoch: fetched.leader_epoch,
            metadata: Some(&fetched.metadata),
            error_code: fetched.error.code(),
        });
    OffsetFetchResponseTopics {
        name: if by_id { "" } else { &topic.name },
        topic_id: if by_id { topic.topic_id } else { Uuid::ZERO },
        partitions: partitions.collect(),
    }
}
