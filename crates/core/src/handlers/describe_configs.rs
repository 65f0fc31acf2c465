//! DescribeConfigs, versions 1 to 4 (KIP-133, KIP-226). 3: KIP-569, types and documentation.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};

use super::authorized::config_resource;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::config::{ConfigResource, ConfigResourceType, ConfigValues};
use crate::controller::topics::topic_name_problem;
use crate::effective_config::{
    EffectiveValue, describe_broker, describe_client_metrics, describe_cluster_default, describe_group,
    describe_topic,
};
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const BROKER_LOGGER: i8 = 8;
const UNKNOWN_TYPE: i8 = 0;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeConfigsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let described: Vec<Result<Vec<EffectiveValue>, Refusal>> = body
        .resources
        .iter()
        .map(|resource| {
            let (resource_type, name) = (resource.resource_type, resource.resource_name);
            config_resource(&caller, Operation::DescribeConfigs, resource_type, name)?;
            describe(node, &image, resource)
        })
        .collect();
    let results = body
        .resources
        .iter()
        .zip(&described)
        .map(|(resource, described)| {
            let result = DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
                ..Default::default()
            };
            match described {
                Err(refusal) => DescribeConfigsResult {
                    error_code: refusal.code.code(),
                    error_message: Some(&refusal.message),
                    ..result
                },
                Ok(values) => DescribeConfigsResult {
                    error_code: ErrorCode::None.code(),
                    error_message: None,
                    configs: values
                        .iter()
                        .map(|value| config(resource, value, &body, request.api_version))
                        .collect(),
                    ..result
                },
            }
        });
    let response = DescribeConfigsResponse {
        results: results.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

fn describe(
    node: &Node,
    image: &MetadataImage,
    resource: &DescribeConfigsResource<'_>,
) -> Result<Vec<EffectiveValue>, Refusal> {
    let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    let name = resource.resource_name;
    let Some(resource_type) = ConfigResourceType::from_code(resource.resource_type) else {
        return match resource.resource_type {
            BROKER_LOGGER => invalid("this broker has no loggers to configure".to_owned()),
            other => invalid(format!("Unsupported resource type: {other}")),
        };
    };
    let own = image.config(&ConfigResource {
        resource_type,
        name: name.into(),
    });
    let own: Arc<ConfigValues> = own.cloned().unwrap_or_default();
    let mut values = match resource_type {
        ConfigResourceType::Topic => {
            if let Some(problem) = topic_name_problem(name) {
                return Err(Refusal::new(ErrorCode::InvalidTopicException, problem));
            }
            if image.topic(name).is_none() {
                return Err(Refusal::plain(ErrorCode::UnknownTopicOrPartition));
            }
            describe_topic(image, &own)
        }
        ConfigResourceType::Broker if name.is_empty() => describe_cluster_default(image),
        ConfigResourceType::Broker => match name.parse::<i32>() {
            Ok(id) if id == node.config().node_id => describe_broker(image),
            Ok(id) => {
                return invalid(format!(
                    "Unexpected broker id, expected {} or empty string, but received {id}",
                    node.config().node_id
                ));
            }
            Err(_) => return invalid(format!("Broker id must be an integer, but it is: {name}")),
        },
        ConfigResourceType::Group if name.is_empty() => {
            return invalid("Group name must not be empty".to_owned());
        }
        ConfigResourceType::Group => describe_group(image, &own),
        ConfigResourceType::ClientMetrics if name.is_empty() => {
            return invalid("Client metrics subscription name must not be empty".to_owned());
        }
        ConfigResourceType::ClientMetrics => describe_client_metrics(&own),
    };
    if let Some(keys) = resource
        .configuration_keys
        .as_ref()
        .filter(|keys| !keys.is_empty())
    {
        values.retain(|value| keys.contains(&&*value.name));
    }
    Ok(values)
}

fn config<'a>(
    resource: &DescribeConfigsResource<'_>,
    value: &'a EffectiveValue,
    body: &DescribeConfigsRequest<'_>,
    version: i16,
) -> DescribeConfigsResourceResult<'a> {
    let is_broker = resource.resource_type == ConfigResourceType::Broker.code();
    let synonyms = value.synonyms.iter().filter(|_| body.include_synonyms);
    DescribeConfigsResourceResult {
        name: &value.name,
        value: value.value.as_deref(),
        read_only: is_broker && !value.key.is_some_and(|key| key.update.is_dynamic()),
        config_source: value.source().code(),
        is_sensitive: value.is_sensitive(),
        synonyms: synonyms
            .map(|given| DescribeConfigsSynonym {
                name: &given.name,
                value: given.value.as_deref(),
                source: given.source.code(),
            })
            .collect(),
        config_type: if version >= 3 {
            value.key.map_or(UNKNOWN_TYPE, |key| key.value_type.code())
        } else {
            UNKNOWN_TYPE
        },
        documentation: value
            .key
            .filter(|_| body.include_documentation)
            .map(|key| key.doc),
    }
}
