//! LeaveGroup, versions 0 to 5. 3: KIP-345, many members in one request, also by instance id. 5:
//! KIP-800, reasons.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::GroupReply;
use crate::group::request::{GroupRequest, LeaveRequest};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

/// The first version with several members.
const FIRST_BATCH_VERSION: i16 = 3;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: LeaveGroupRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let granted = match caller.group(Operation::Read, body.group_id) {
        Ok(_) if body.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
        checked => checked,
    };
    let members = if version < FIRST_BATCH_VERSION {
        vec![(body.member_id, None)]
    } else {
        body.members
            .iter()
            .map(|member| (member.member_id, member.group_instance_id))
            .collect()
    };
    let leave = GroupRequest::Leave(LeaveRequest {
        group_id: body.group_id,
        members,
        reason: body.members.iter().find_map(|member| member.reason),
    });
    let call = match granted {
        Ok(granted) => node.groups.call(&node.storage, granted, leave),
        Err(error) => Call::answered(Err(error)),
    };
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        encode(answers.pop(), version, reply);
    })
}

fn encode(answer: Option<GroupAnswer>, version: i16, reply: &mut ReplyBuffer) {
    let (error, left) = match answer {
        Some(Ok(GroupReply::Leave(left))) => (ErrorCode::None, left),
        Some(Err(error)) => (error, Vec::new()),
        _ => (ErrorCode::UnknownServerError, Vec::new()),
    };
    let only_error = left.first().map_or(error, |member| member.error);
    let members = left.iter().map(|member| MemberResponse {
        member_id: &member.member_id,
        group_instance_id: member.group_instance_id.as_deref(),
        error_code: member.error.code(),
    });
    let response = if version < FIRST_BATCH_VERSION {
        LeaveGroupResponse {
            error_code: only_error.code(),
            ..LeaveGroupResponse::default()
        }
    } else {
        LeaveGroupResponse {
            error_code: error.code(),
            members: members.collect(),
            ..LeaveGroupResponse::default()
        }
    };
    response.encode(&mut reply.bytes, version);
}
