//! CreateTopics, versions 2 to 7. 4: defaults for partitions and replicas. 5: KIP-525, settings in
//! the answer. 6: KIP-599, a topic beyond the quota is refused. 7: KIP-516, topic ids.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};

use super::altered::merge;
use super::deadline;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::{OwnedGrant, Topic};
use crate::controller::topics::{CreatedTopic, NewTopic};
use crate::effective_config::{EffectiveValue, describe_topic};
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

/// The first version with an error code for an exceeded quota.
const FIRST_VERSION_WITH_STRICT_QUOTA: i16 = 6;

type Results = Vec<Result<CreatedTopic, Refusal>>;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: CreateTopicsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let names: Vec<String> = body.topics.iter().map(|topic| topic.name.to_owned()).collect();
    let mut topics = Vec::new();
    let mut add =
        |topic, granted: Result<_, Refusal>| granted.map(|name| topics.push(new_topic(name, topic)));
    let granted = body.topics.iter().zip(may_create(&caller, &names));
    let checked: Vec<Result<(), Refusal>> = granted.map(|(topic, granted)| add(topic, granted)).collect();
    let validate_only = body.validate_only;
    let mut quota = request.mutation_quota(FIRST_VERSION_WITH_STRICT_QUOTA);
    let slot = submit(node, move |node, controller| {
        let now = node.clock().timestamp();
        let results = controller.create_topics(&mut quota, &topics, validate_only, now)?;
        Ok((results, quota.throttle_ms()))
    });
    let caller = caller.keep();
    let write = move |node: &Node, results: Result<(Results, u32), Refusal>, reply: &mut ReplyBuffer| {
        let results = results.map(|(results, throttle_ms)| {
            reply.throttle_ms = throttle_ms;
            results
        });
        let results = merge(checked, results);
        answer(node, &caller.borrow(), &names, &results, version, reply);
    };
    Handled::Pending(ControllerReply::boxed(
        slot,
        Some(deadline(request, body.timeout_ms)),
        write,
    ))
}

/// A permission for the whole cluster, or for the topic's name.
fn may_create(caller: &Caller<'_>, names: &[String]) -> Vec<Result<OwnedGrant<Topic>, Refusal>> {
    let cluster = caller.cluster_if_allowed(Operation::Create);
    let check = |name: &String| match cluster {
        Some(cluster) => Ok(cluster.topic(name).keep()),
        None => match caller.topic(Operation::Create, name) {
            Ok(granted) => Ok(granted.keep()),
            Err(code) => Err(Refusal::new(code, "Authorization failed.")),
        },
    };
    names.iter().map(check).collect()
}

fn new_topic(name: OwnedGrant<Topic>, topic: &CreatableTopic<'_>) -> NewTopic {
    let configs = topic
        .configs
        .iter()
        .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)));
    let assignments = topic.assignments.iter();
    NewTopic {
        name,
        partition_count: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: assignments
            .map(|partition| (partition.partition_index, partition.broker_ids.clone()))
            .collect(),
        configs: configs.collect(),
    }
}

fn answer(
    node: &Node,
    caller: &Caller<'_>,
    names: &[String],
    results: &[Result<CreatedTopic, Refusal>],
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let image = node.image();
    let described: Vec<Vec<EffectiveValue>> = results
        .iter()
        .map(|result| {
            result
                .as_ref()
                .map_or(Vec::new(), |topic| describe_topic(&image, &topic.values))
        })
        .collect();
    let parts = names.iter().zip(results).zip(&described);
    let response = CreateTopicsResponse {
        topics: parts
            .map(|((name, result), values)| {
                let is_shown = caller.may_on_topic(Operation::DescribeConfigs, name);
                topic_result(name, result, is_shown.then_some(values), version)
            })
            .collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

/// - `values`: `None`: the client may not see the topic's settings.
fn topic_result<'a>(
    name: &'a str,
    result: &'a Result<CreatedTopic, Refusal>,
    values: Option<&'a Vec<EffectiveValue>>,
    version: i16,
) -> CreatableTopicResult<'a> {
    match result {
        Err(refusal) => CreatableTopicResult {
            name,
            error_code: refusal.code.code(),
            error_message: Some(&refusal.message),
            ..Default::default()
        },
        Ok(topic) => CreatableTopicResult {
            name,
            topic_id: topic.id,
            error_code: ErrorCode::None.code(),
            error_message: None,
            topic_config_error_code: match values {
                Some(_) => ErrorCode::None.code(),
                None => ErrorCode::TopicAuthorizationFailed.code(),
            },
            num_partitions: values.map_or(-1, |_| topic.partition_count),
            replication_factor: values.map_or(-1, |_| topic.replication_factor),
            // Empty, not null, where they may not be seen, as Apache Kafka answers.
            configs: (version >= 5).then(|| values.into_iter().flatten().map(config).collect()),
        },
    }
}

fn config(value: &EffectiveValue) -> CreatableTopicConfigs<'_> {
    CreatableTopicConfigs {
        name: &value.name,
        value: value.value.as_deref(),
        read_only: false,
        config_source: value.source().code(),
        is_sensitive: value.is_sensitive(),
    }
}
