//! DeleteAcls, versions 1 to 3 (KIP-140). 1: KIP-290, prefixed patterns.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest, DeleteAclsResponse,
};

use super::describe_acls::no_authorizer;
use crate::access::filter::{AclFilter, FilterParts};
use crate::controller::acls::DeletedAcls;
use crate::image::access::AclImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: DeleteAclsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let count = body.filters.len();
    if !node.access.is_on() {
        answer(&vec![Err(no_authorizer()); count], version, reply);
        return Handled::Replied;
    }
    let filters: Vec<Result<AclFilter, Refusal>> = body.filters.iter().map(filter).collect();
    let slot = submit(node, move |node, controller| {
        controller.delete_acls(&filters, node.clock().timestamp())
    });
    let write = move |_: &Node, results: Result<DeletedAcls, Refusal>, reply: &mut ReplyBuffer| {
        let results = results.unwrap_or_else(|refusal| vec![Err(refusal); count]);
        answer(&results, version, reply);
    };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

pub(crate) fn deny(body: &DeleteAclsRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    answer(&vec![Err(refusal); body.filters.len()], version, reply);
}

fn filter(filter: &DeleteAclsFilter<'_>) -> Result<AclFilter, Refusal> {
    AclFilter::new(FilterParts {
        resource_type: filter.resource_type_filter,
        resource_name: filter.resource_name_filter,
        pattern_type: filter.pattern_type_filter,
        principal: filter.principal_filter,
        host: filter.host_filter,
        operation: filter.operation,
        permission_type: filter.permission_type,
    })
}

fn answer(results: &[Result<Vec<AclImage>, Refusal>], version: i16, reply: &mut ReplyBuffer) {
    let filter_results = results.iter().map(|result| match result {
        Ok(acls) => DeleteAclsFilterResult {
            error_code: ErrorCode::None.code(),
            error_message: None,
            matching_acls: acls.iter().map(matching_acl).collect(),
        },
        Err(refusal) => DeleteAclsFilterResult {
            error_code: refusal.code.code(),
            error_message: Some(&refusal.message),
            matching_acls: Vec::new(),
        },
    });
    let response = DeleteAclsResponse {
        filter_results: filter_results.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

fn matching_acl(acl: &AclImage) -> DeleteAclsMatchingAcl<'_> {
    DeleteAclsMatchingAcl {
        error_code: ErrorCode::None.code(),
        error_message: None,
        resource_type: acl.resource_type,
        resource_name: &acl.resource_name,
        pattern_type: acl.pattern_type,
        principal: &acl.principal,
        host: &acl.host,
        operation: acl.operation,
        permission_type: acl.permission_type,
    }
}
