//! CreateAcls, versions 1 to 3 (KIP-140). 1: KIP-290, prefixed patterns.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_acls::{
    AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse,
};

use super::describe_acls::no_authorizer;
use crate::controller::acls::NewAcl;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    body: CreateAclsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let count = body.creations.len();
    if !node.access.is_on() {
        answer(&vec![Err(no_authorizer()); count], version, reply);
        return Handled::Replied;
    }
    let acls: Vec<NewAcl> = body.creations.iter().map(new_acl).collect();
    let slot = submit(node, move |node, controller| {
        controller.create_acls(&acls, node.clock().timestamp())
    });
    let write =
        move |_: &Node, results: Result<Vec<Result<(), Refusal>>, Refusal>, reply: &mut ReplyBuffer| {
            let results = results.unwrap_or_else(|refusal| vec![Err(refusal); count]);
            answer(&results, version, reply);
        };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

pub(crate) fn deny(body: &CreateAclsRequest<'_>, refusal: Refusal, version: i16, reply: &mut ReplyBuffer) {
    answer(&vec![Err(refusal); body.creations.len()], version, reply);
}

fn new_acl(creation: &AclCreation<'_>) -> NewAcl {
    NewAcl {
        resource_type: creation.resource_type,
        resource_name: creation.resource_name.to_owned(),
        pattern_type: creation.resource_pattern_type,
        principal: creation.principal.to_owned(),
        host: creation.host.to_owned(),
        operation: creation.operation,
        permission_type: creation.permission_type,
    }
}

fn answer(results: &[Result<(), Refusal>], version: i16, reply: &mut ReplyBuffer) {
    let results = results.iter().map(|result| {
        let refusal = result.as_ref().err();
        AclCreationResult {
            error_code: refusal.map_or(ErrorCode::None, |refusal| refusal.code).code(),
            error_message: refusal.map(|refusal| &*refusal.message),
        }
    });
    let response = CreateAclsResponse {
        results: results.collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}
