//! ConsumerGroupDescribe, versions 0 and 1 (KIP-848). 1: member types (KIP-1099).

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_describe::{
    Assignment, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, DescribedGroup, Member,
    TopicPartitions,
};

use super::authorized::{NOT_ASKED, group_operations};
use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::consumer::assignment::{Partitions, by_topic};
use crate::group::consumer::describe::{DescribedConsumer, DescribedConsumerGroup};
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::GroupReply;
use crate::group::request::GroupRequest;
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: ConsumerGroupDescribeRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let call = |group_id: &&str| match caller.group(Operation::Describe, group_id) {
        Ok(granted) => node
            .groups
            .call(&node.storage, granted, GroupRequest::ConsumerDescribe(group_id)),
        Err(error) => Call::answered(Err(error)),
    };
    let calls = body.group_ids.iter().map(call).collect();
    let group_ids: Vec<String> = body
        .group_ids
        .iter()
        .map(|group_id| (*group_id).to_owned())
        .collect();
    let asks_for_operations = body.include_authorized_operations;
    let caller = caller.keep();
    reply_when_answered(node, calls, reply, move |node, answers, reply| {
        let (image, caller) = (node.image(), caller.borrow());
        let described: Vec<_> = answers
            .into_iter()
            .map(|answer| described(answer, &image, &caller))
            .collect();
        let groups = group_ids.iter().zip(&described).map(|(group_id, described)| {
            let operations = match described {
                Ok(_) if asks_for_operations => group_operations(&caller, group_id),
                _ => NOT_ASKED,
            };
            group_response(group_id, described, &image, operations)
        });
        let response = ConsumerGroupDescribeResponse {
            groups: groups.collect(),
            ..ConsumerGroupDescribeResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

type Described = Result<DescribedConsumerGroup, (ErrorCode, &'static str)>;

fn described(answer: GroupAnswer, image: &MetadataImage, caller: &Caller<'_>) -> Described {
    let group = match answer {
        Ok(GroupReply::ConsumerDescribe(Some(group))) => group,
        Ok(GroupReply::ConsumerDescribe(None)) => {
            return Err((ErrorCode::GroupIdNotFound, "no consumer group with this id"));
        }
        Ok(_) => return Err((ErrorCode::UnknownServerError, "")),
        Err(error) => return Err((error, "")),
    };
    let may_see = |name: &str| caller.may_on_topic(Operation::Describe, name);
    let is_hidden = |member: &DescribedConsumer| {
        let assigned = member.assigned.iter().chain(&*member.target);
        let mut names = assigned.filter_map(|(topic_id, _)| image.topic_by_id(*topic_id));
        member.metadata.topic_names.iter().any(|name| !may_see(name))
            || names.any(|topic| !may_see(&topic.name))
    };
    if !caller.is_unlimited() && group.members.iter().any(is_hidden) {
        let message = "the group has topics that the client may not describe";
        return Err((ErrorCode::TopicAuthorizationFailed, message));
    }
    Ok(group)
}

fn group_response<'a>(
    group_id: &'a str,
    described: &'a Described,
    image: &'a MetadataImage,
    authorized_operations: i32,
) -> DescribedGroup<'a> {
    match described {
        Err((error, message)) => DescribedGroup {
            error_code: error.code(),
            error_message: Some(*message).filter(|message| !message.is_empty()),
            group_id,
            authorized_operations,
            ..DescribedGroup::default()
        },
        Ok(group) => DescribedGroup {
            error_code: 0,
            error_message: None,
            group_id,
            group_state: group.state,
            group_epoch: group.epoch,
            assignment_epoch: group.target_epoch,
            assignor_name: group.assignor,
            members: group
                .members
                .iter()
                .map(|member| member_response(member, image))
                .collect(),
            authorized_operations,
        },
    }
}

fn member_response<'a>(member: &'a DescribedConsumer, image: &'a MetadataImage) -> Member<'a> {
    let metadata = &member.metadata;
    Member {
        member_id: &member.member_id,
        instance_id: metadata.instance_id.as_deref(),
        rack_id: metadata.rack_id.as_deref(),
        member_epoch: member.epoch,
        client_id: &metadata.client_id,
        client_host: &metadata.client_host,
        subscribed_topic_names: metadata.topic_names.iter().map(|name| &**name).collect(),
        // Apache Kafka's answer has an empty one where the member has none.
        subscribed_topic_regex: Some(metadata.regex.as_deref().unwrap_or_default()),
        assignment: assignment(&member.assigned, image),
        target_assignment: assignment(&member.target, image),
        member_type: match metadata.classic {
            Some(_) => CLASSIC_MEMBER,
            None => CONSUMER_MEMBER,
        },
    }
}

/// Deleted topics have no name any more and are left out.
fn assignment<'a>(partitions: &Partitions, image: &'a MetadataImage) -> Assignment<'a> {
    let topics = by_topic(partitions.iter().copied()).into_iter();
    let named = topics.filter_map(|(topic_id, partitions)| {
        Some(TopicPartitions {
            topic_id,
            topic_name: &image.topic_by_id(topic_id)?.name,
            partitions,
        })
    });
    Assignment {
        topic_partitions: named.collect(),
    }
}
