//! DescribeAcls, versions 1 to 3 (KIP-140). 1: KIP-290, prefixed patterns.

use std::collections::BTreeMap;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_acls::{
    AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse,
};

use crate::access::filter::{AclFilter, FilterParts};
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DescribeAclsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    if !node.access.is_on() {
        deny(&body, no_authorizer(), request.api_version, reply);
        return Handled::Replied;
    }
    let filter = match filter(&body) {
        Ok(filter) => filter,
        Err(refusal) => {
            deny(&body, refusal, request.api_version, reply);
            return Handled::Replied;
        }
    };
    let image = node.image();
    let mut resources = BTreeMap::<(i8, &str, i8), Vec<AclDescription<'_>>>::new();
    for acl in image.acls.values().filter(|acl| filter.matches(acl)) {
        let resource = (acl.resource_type, &*acl.resource_name, acl.pattern_type);
        resources.entry(resource).or_default().push(AclDescription {
            principal: &acl.principal,
            host: &acl.host,
            operation: acl.operation,
            permission_type: acl.permission_type,
        });
    }
    let resources = resources
        .into_iter()
        .map(
            |((resource_type, resource_name, pattern_type), acls)| DescribeAclsResource {
                resource_type,
                resource_name,
                pattern_type,
                acls,
            },
        );
    let response = DescribeAclsResponse {
        error_message: None,
        resources: resources.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}

pub(crate) fn deny(_: &DescribeAclsRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    let response = DescribeAclsResponse {
        error_code: refusal.code.code(),
        error_message: Some(&refusal.message),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

/// Why ACLs can be neither seen nor changed without `authorizer.class.name`. In Kafka's words,
/// which its tools show.
pub(super) fn no_authorizer() -> Refusal {
    Refusal::new(ErrorCode::SecurityDisabled, "No Authorizer is configured.")
}

fn filter(body: &DescribeAclsRequest<'_>) -> Result<AclFilter, Refusal> {
    AclFilter::new(FilterParts {
        resource_type: body.resource_type_filter,
        resource_name: body.resource_name_filter,
        pattern_type: body.pattern_type_filter,
        principal: body.principal_filter,
        host: body.host_filter,
        operation: body.operation,
        permission_type: body.permission_type,
    })
}
