//! ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848). 1: regular expressions, and a member makes
//! its own id.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_heartbeat::{
    Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
};

use super::group_calls::reply_when_answered;
use super::join_group::java_address;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedGroup;
use crate::config::Limits;
use crate::group::config::ConsumerConfig;
use crate::group::consumer::assignment::flat;
use crate::group::consumer::request::{
    ConsumerHeartbeat, GroupSettings, HeartbeatRefusal, HeartbeatResult, JOIN_EPOCH, LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
};
use crate::group::coordinator::GroupAnswer;
use crate::group::reply::GroupReply;
use crate::group::request::GroupRequest;
use crate::image::MetadataImage;
use crate::image::features::GROUP_VERSION;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const FIRST_VERSION_WITH_OWN_MEMBER_ID: i16 = 1;
/// The members' subscriptions are records: one may take a quarter of a batch.
const SUBSCRIPTION_SHARE: usize = 4;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: ConsumerGroupHeartbeatRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let image = node.image();
    let config = node.groups.config();
    let checked = check_served(&image, &config.consumer)
        .and_then(|()| check_access(&caller, &body))
        .and_then(|granted| check(&body, version, &config.consumer).map(|()| granted))
        .and_then(|granted| check_size(&body, config.batch_bytes_max).map(|()| granted));
    let granted = match checked {
        Ok(granted) => granted,
        Err(refusal) => {
            encode(&Err(refusal), version, reply);
            return Handled::Replied;
        }
    };
    let client_host = java_address(request.connection.peer_address);
    let owned = body.topic_partitions.as_ref();
    let heartbeat = ConsumerHeartbeat {
        group_id: body.group_id,
        member_id: body.member_id,
        member_epoch: body.member_epoch,
        instance_id: body.instance_id,
        rack_id: body.rack_id,
        rebalance_timeout_ms: Some(body.rebalance_timeout_ms).filter(|timeout_ms| *timeout_ms != -1),
        topic_names: body.subscribed_topic_names,
        regex: body.subscribed_topic_regex,
        assignor: body.server_assignor,
        owned: owned.map(|topics| flat(topics.iter().map(|topic| (topic.topic_id, &topic.partitions)))),
        client_id: request.client_id.unwrap_or(""),
        client_host: &client_host,
        settings: settings_of(&image, &config.consumer, body.group_id),
        topics: image.topics.clone(),
        caller,
    };
    let heartbeat = GroupRequest::ConsumerHeartbeat(Box::new(heartbeat));
    let call = node.groups.call(&node.storage, granted, heartbeat);
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        encode(&result_of(answers.pop()), version, reply);
    })
}

/// Returns the settings of a group, within the broker's limits: its own, else those changed while
/// the broker runs, else the file's.
fn settings_of(image: &MetadataImage, config: &ConsumerConfig, group_id: &str) -> GroupSettings {
    let own = image.group_config(group_id);
    let limits = &config.limits;
    let of = |key: &str, otherwise: i32, limits: Limits| {
        let broker_key = format!("group.{key}");
        let value = own
            .and_then(|values| values.get(key))
            .or_else(|| image.dynamic_broker_value(image.static_config.node_id, &broker_key));
        let value = value.and_then(|value| value.trim().parse().ok());
        limits.clamp(value.unwrap_or(otherwise))
    };
    GroupSettings {
        session_timeout_ms: of(
            "consumer.session.timeout.ms",
            config.session_timeout_ms,
            limits.session_timeout_ms,
        ),
        heartbeat_interval_ms: of(
            "consumer.heartbeat.interval.ms",
            config.heartbeat_interval_ms,
            limits.heartbeat_interval_ms,
        ),
        assignment_interval_ms: of(
            "consumer.assignment.interval.ms",
            config.assignment_interval_ms,
            limits.assignment_interval_ms,
        ),
    }
}

fn check_served(image: &MetadataImage, config: &ConsumerConfig) -> Result<(), HeartbeatRefusal> {
    if config.is_enabled && image.features.level(GROUP_VERSION) >= 1 {
        return Ok(());
    }
    Err(HeartbeatRefusal::new(
        ErrorCode::UnsupportedVersion,
        "consumer groups need group.version 1 and `consumer` in group.coordinator.rebalance.protocols",
    ))
}

/// The group, and every topic that the member names.
fn check_access<'a>(
    caller: &Caller<'_>,
    body: &ConsumerGroupHeartbeatRequest<'a>,
) -> Result<GrantedGroup<'a>, HeartbeatRefusal> {
    let denied = |error| HeartbeatRefusal::new(error, "");
    let granted = caller.group(Operation::Read, body.group_id).map_err(denied)?;
    for topic in body.subscribed_topic_names.iter().flatten() {
        caller.topic(Operation::Describe, topic).map_err(denied)?;
    }
    Ok(granted)
}

/// Checks what needs no group, in Apache Kafka's order.
fn check(
    body: &ConsumerGroupHeartbeatRequest<'_>,
    version: i16,
    config: &ConsumerConfig,
) -> Result<(), HeartbeatRefusal> {
    let needs_id = version >= FIRST_VERSION_WITH_OWN_MEMBER_ID
        || body.member_epoch > JOIN_EPOCH
        || body.member_epoch == LEAVE_EPOCH;
    let problem = if needs_id && body.member_id.is_empty() {
        Some("MemberId can't be empty.")
    } else if body.group_id.is_empty() {
        Some("GroupId can't be empty.")
    } else if body.instance_id == Some("") {
        Some("InstanceId can't be empty.")
    } else if body.rack_id == Some("") {
        Some("RackId can't be empty.")
    } else {
        epoch_problem(body)
    };
    if let Some(problem) = problem {
        return Err(HeartbeatRefusal::new(ErrorCode::InvalidRequest, problem));
    }
    match body.server_assignor {
        Some(name) if !config.assignors.iter().any(|assignor| assignor.name() == name) => {
            let names: Vec<&str> = config.assignors.iter().map(|assignor| assignor.name()).collect();
            let message = format!(
                "ServerAssignor {name} is not supported; supported: {}.",
                names.join(", ")
            );
            Err(HeartbeatRefusal::new(ErrorCode::UnsupportedAssignor, message))
        }
        _ => Ok(()),
    }
}

fn epoch_problem(body: &ConsumerGroupHeartbeatRequest<'_>) -> Option<&'static str> {
    match body.member_epoch {
        JOIN_EPOCH if body.rebalance_timeout_ms == -1 => {
            Some("RebalanceTimeoutMs must be provided in first request.")
        }
        JOIN_EPOCH
            if body
                .topic_partitions
                .as_ref()
                .is_none_or(|owned| !owned.is_empty()) =>
        {
            Some("TopicPartitions must be empty when (re-)joining.")
        }
        JOIN_EPOCH if body.subscribed_topic_names.is_none() && body.subscribed_topic_regex.is_none() => {
            Some("SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.")
        }
        STATIC_LEAVE_EPOCH if body.instance_id.is_none() => Some("InstanceId can't be null."),
        epoch if epoch < STATIC_LEAVE_EPOCH => Some("MemberEpoch is invalid."),
        _ => None,
    }
}

fn check_size(
    body: &ConsumerGroupHeartbeatRequest<'_>,
    batch_bytes_max: usize,
) -> Result<(), HeartbeatRefusal> {
    let names = body
        .subscribed_topic_names
        .iter()
        .flatten()
        .map(|name| name.len())
        .sum::<usize>();
    let texts = [
        Some(body.member_id),
        body.instance_id,
        body.rack_id,
        body.subscribed_topic_regex,
    ];
    let bytes = names + texts.iter().flatten().map(|text| text.len()).sum::<usize>();
    if bytes <= batch_bytes_max / SUBSCRIPTION_SHARE {
        return Ok(());
    }
    let limit = batch_bytes_max / SUBSCRIPTION_SHARE;
    Err(HeartbeatRefusal::new(
        ErrorCode::InvalidRequest,
        format!("the member's subscription has {bytes} bytes, {limit} are allowed"),
    ))
}

fn result_of(answer: Option<GroupAnswer>) -> HeartbeatResult {
    match answer {
        Some(Ok(GroupReply::ConsumerHeartbeat(result))) => result,
        Some(Err(error)) => Err(HeartbeatRefusal::new(error, "")),
        _ => Err(HeartbeatRefusal::new(ErrorCode::UnknownServerError, "")),
    }
}

fn encode(result: &HeartbeatResult, version: i16, reply: &mut ReplyBuffer) {
    let response = match result {
        Err(refusal) => ConsumerGroupHeartbeatResponse {
            error_code: refusal.error.code(),
            error_message: Some(refusal.message.as_str()).filter(|message| !message.is_empty()),
            member_id: None,
            ..ConsumerGroupHeartbeatResponse::default()
        },
        Ok(accepted) => ConsumerGroupHeartbeatResponse {
            error_message: None,
            member_id: Some(&accepted.member_id),
            member_epoch: accepted.member_epoch,
            heartbeat_interval_ms: accepted.heartbeat_interval_ms,
            assignment: accepted.assignment.as_ref().map(|topics| Assignment {
                topic_partitions: topics
                    .iter()
                    .map(
                        |(topic_id, partitions)| ConsumerGroupHeartbeatResponseTopicPartitions {
                            topic_id: *topic_id,
                            partitions: partitions.clone(),
                        },
                    )
                    .collect(),
            }),
            ..ConsumerGroupHeartbeatResponse::default()
        },
    };
    response.encode(&mut reply.bytes, version);
}
