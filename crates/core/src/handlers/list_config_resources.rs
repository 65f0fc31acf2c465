//! ListConfigResources, versions 0 and 1 (KIP-1142): the resources that can be described. Version 0
//! covers client metrics only.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};

use crate::config::ConfigResourceType;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: ListConfigResourcesRequest,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let supported: &[i8] = if version == 0 {
        &[CLIENT_METRICS]
    } else {
        &[TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP]
    };
    let asked = if body.resource_types.is_empty() {
        supported
    } else {
        &body.resource_types
    };
    if asked
        .iter()
        .any(|resource_type| !supported.contains(resource_type))
    {
        let error_code = ErrorCode::UnsupportedVersion.code();
        ListConfigResourcesResponse {
            error_code,
            ..Default::default()
        }
        .encode(&mut reply.bytes, version);
        return Handled::Replied;
    }
    let image = node.image();
    let node_id = node.config().node_id.to_string();
    let mut config_resources = Vec::new();
    let mut add = |resource_name, resource_type| {
        config_resources.push(ConfigResource {
            resource_name,
            resource_type,
        })
    };
    for resource in image.configs.keys() {
        let code = resource.resource_type.code();
        let is_named = matches!(
            resource.resource_type,
            ConfigResourceType::Group | ConfigResourceType::ClientMetrics
        );
        if is_named && asked.contains(&code) {
            add(
                &*resource.name,
                if version == 0 {
                    ConfigResource::default().resource_type
                } else {
                    code
                },
            );
        }
    }
    if asked.contains(&BROKER) {
        add(&node_id, BROKER);
    }
    if asked.contains(&TOPIC) {
        image.topics.iter().for_each(|topic| add(&topic.name, TOPIC));
    }
    ListConfigResourcesResponse {
        config_resources,
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
    Handled::Replied
}

pub(crate) fn deny(_: &ListConfigResourcesRequest, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    ListConfigResourcesResponse {
        error_code: refusal.code.code(),
        ..Default::default()
    }
    .encode(&mut reply.bytes, version);
}
