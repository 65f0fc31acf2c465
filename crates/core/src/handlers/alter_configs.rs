//! AlterConfigs, versions 0 to 2 (KIP-133): replaces all settings of a resource.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
};

use super::altered::{Altered, alterable, merge};
use super::authorized::config_resource;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedConfig;
use crate::controller::configs::ConfigReplacement;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: AlterConfigsRequest<'_>,
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
        replacement(granted, resource)
    });
    let (resources, checked, replacements) = altered.into_parts();
    let validate_only = body.validate_only;
    let slot = submit(node, move |node, controller| {
        controller.replace_configs(&replacements, validate_only, node.clock().timestamp())
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
            AlterConfigsResponse {
                responses: responses.collect(),
                ..Default::default()
            }
            .encode(&mut reply.bytes, version);
        };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

fn replacement(
    granted: Option<GrantedConfig>,
    resource: &AlterConfigsResource<'_>,
) -> Result<ConfigReplacement, Refusal> {
    let names = resource.configs.iter().map(|config| config.name);
    let granted = alterable(granted, resource.resource_type, names)?;
    let values = resource
        .configs
        .iter()
        .map(|config| (config.name.to_owned(), config.value.map(str::to_owned)));
    Ok(ConfigReplacement {
        resource: granted,
        values: values.collect(),
    })
}
