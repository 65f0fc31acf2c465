//! DescribeAcls, versions 1 to 3 (KIP-140). There is no authorizer; the answer is
//! SECURITY_DISABLED.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};

use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    _node: &Node,
    request: &Request<'_>,
    _body: DescribeAclsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let response = DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured."),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, request.api_version);
    Handled::Replied
}
