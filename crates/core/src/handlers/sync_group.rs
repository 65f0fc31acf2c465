//! SyncGroup, versions 0 to 5. 3: KIP-345, static members. 5: KIP-559, the member repeats the
//! protocol it joined with.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::{GroupReply, SyncReply};
use crate::group::request::{GroupRequest, MemberRequest, SyncRequest};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: SyncGroupRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let lacks_protocol = version >= 5 && (body.protocol_type.is_none() || body.protocol_name.is_none());
    let granted = match caller.group(Operation::Read, body.group_id) {
        Ok(_) if body.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
        Ok(_) if lacks_protocol => Err(ErrorCode::InconsistentGroupProtocol),
        checked => checked,
    };
    let sync = GroupRequest::Sync(SyncRequest {
        member: MemberRequest {
            group_id: body.group_id,
            generation_id: body.generation_id,
            member_id: body.member_id,
            group_instance_id: body.group_instance_id,
        },
        protocol_type: body.protocol_type,
        protocol_name: body.protocol_name,
        assignments: body
            .assignments
            .iter()
            .map(|one| (one.member_id, one.assignment))
            .collect(),
        topics: node.image().topics.clone(),
    });
    let call = match granted {
        Ok(granted) => node.groups.call(&node.storage, granted, sync),
        Err(error) => Call::answered(Err(error)),
    };
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        encode(answers.pop(), version, reply);
    })
}

fn encode(answer: Option<GroupAnswer>, version: i16, reply: &mut ReplyBuffer) {
    let synced = match answer {
        Some(Ok(GroupReply::Sync(synced))) => synced,
        Some(Err(error)) => SyncReply::error(error),
        _ => SyncReply::error(ErrorCode::UnknownServerError),
    };
    let response = SyncGroupResponse {
        error_code: synced.error.code(),
        protocol_type: synced.protocol_type.as_deref(),
        protocol_name: synced.protocol_name.as_deref(),
        assignment: &synced.assignment,
        ..SyncGroupResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
