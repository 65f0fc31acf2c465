//! CreateTopics, versions 2 to 7. 4: defaults for partitions and replicas. 5: KIP-525, settings in
//! the answer. 6: KIP-599, a topic beyond the quota is refused. 7: KIP-516, topic ids.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};

use super::deadline;
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
    body: CreateTopicsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let topics: Vec<NewTopic> = body.topics.iter().map(new_topic).collect();
    let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
    let validate_only = body.validate_only;
    let mut quota = request.mutation_quota(FIRST_VERSION_WITH_STRICT_QUOTA);
    let slot = submit(node, move |node, controller| {
        let now = node.clock().timestamp();
        let results = controller.create_topics(&mut quota, &topics, validate_only, now)?;
        Ok((results, quota.throttle_ms()))
    });
    let write = move |node: &Node, results: Result<(Results, u32), Refusal>, reply: &mut ReplyBuffer| {
        let results = match results {
            Ok((results, throttle_ms)) => {
                reply.throttle_ms = throttle_ms;
                results
            }
            Err(refusal) => vec![Err(refusal); names.len()],
        };
        answer(node, &names, &results, version, reply);
    };
    Handled::Pending(ControllerReply::boxed(
        slot,
        Some(deadline(request, body.timeout_ms)),
        write,
    ))
}

fn new_topic(topic: &CreatableTopic<'_>) -> NewTopic {
    let configs = topic
        .configs
        .iter()
        .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)));
    let assignments = topic.assignments.iter();
    NewTopic {
        name: topic.name.to_owned(),
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
            .map(|((name, result), values)| topic_result(name, result, values, version))
            .collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

fn topic_result<'a>(
    name: &'a str,
    result: &'a Result<CreatedTopic, Refusal>,
    values: &'a [EffectiveValue],
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
            num_partitions: topic.partition_count,
            replication_factor: topic.replication_factor,
            configs: (version >= 5).then(|| values.iter().map(config).collect()),
            ..Default::default()
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
