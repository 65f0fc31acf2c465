//! Heartbeat, versions 0 to 4. 3: KIP-345, static members.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::Call;
use crate::group::reply::GroupReply;
use crate::group::request::{GroupRequest, MemberRequest};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: HeartbeatRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let granted = match caller.group(Operation::Read, body.group_id) {
        Ok(_) if body.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
        checked => checked,
    };
    let heartbeat = GroupRequest::Heartbeat(MemberRequest {
        group_id: body.group_id,
        generation_id: body.generation_id,
        member_id: body.member_id,
        group_instance_id: body.group_instance_id,
    });
    let call = match granted {
        Ok(granted) => node.groups.call(&node.storage, granted, heartbeat),
        Err(error) => Call::answered(Err(error)),
    };
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        let error = match answers.pop() {
            Some(Ok(GroupReply::Heartbeat(error))) => error,
            // While the group is loading, a heartbeat succeeds: an error would cause a needless
            // rebalance. A client that is no member learns that once the group is loaded.
            Some(Err(ErrorCode::CoordinatorLoadInProgress)) => ErrorCode::None,
            Some(Err(error)) => error,
            _ => ErrorCode::UnknownServerError,
        };
        let response = HeartbeatResponse {
            error_code: error.code(),
            ..HeartbeatResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}
