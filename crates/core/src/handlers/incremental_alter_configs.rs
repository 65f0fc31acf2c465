//! IncrementalAlterConfigs, versions 0 and 1 (KIP-339): sets, removes, and edits lists.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::altered::{Altered, alterable, merge};
use super::authorized::config_resource;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedConfig;
use crate::controller::configs::{ConfigChange, ConfigOperation};
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: IncrementalAlterConfigsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let keys = body
        .resources
        .iter()
        .map(|resource| (resource.resource_type, resource.resource_name));
    let altered = Altered::check(keys, |index| {
        let resource = &body.resources[index];
        let (resource_type, name) = (resource.resource_type, resource.resource_name);
        let granted = config_resource(&caller, Operation::AlterConfigs, resource_type, name)?;
        change(granted, resource)
    });
    let (resources, checked, changes) = altered.into_parts();
    let validate_only = body.validate_only;
    let slot = submit(node, move |node, controller| {
        controller.alter_configs_incrementally(&changes, validate_only, node.clock().timestamp())
    });
    let write =
        move |_: &Node, results: Result<Vec<Result<(), Refusal>>, Refusal>, reply: &mut ReplyBuffer| {
            let results = merge(checked, results);
            let responses = resources
                .iter()
                .zip(&results)
                .map(|((resource_type, resource_name), result)| {
                    let refusal = result.as_ref().err();
                    AlterConfigsResourceResponse {
                        error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
                        error_message: refusal.map(|refusal| &*refusal.message),
                        resource_type: *resource_type,
                        resource_name,
                    }
                });
            IncrementalAlterConfigsResponse {
                responses: responses.collect(),
                ..Default::default()
            }
            .encode(&mut reply.bytes, version);
        };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

fn change(
    granted: Option<GrantedConfig>,
    resource: &AlterConfigsResource<'_>,
) -> Result<ConfigChange, Refusal> {
    let names = resource.configs.iter().map(|config| config.name);
    let granted = alterable(granted, resource.resource_type, names)?;
    let mut operations = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        let value = |value: Option<&str>| {
            value.map(str::to_owned).ok_or_else(|| {
                Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Null value not supported for : {}", config.name),
                )
            })
        };
        let operation = match config.config_operation {
            SET => ConfigOperation::Set(value(config.value)?),
            DELETE => ConfigOperation::Delete,
            APPEND => ConfigOperation::Append(value(config.value)?),
            SUBTRACT => ConfigOperation::Subtract(value(config.value)?),
            other => {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Unknown operations type {other}"),
                ));
            }
        };
        operations.push((config.name.to_owned(), operation));
    }
    Ok(ConfigChange {
        resource: granted,
        operations,
    })
}
