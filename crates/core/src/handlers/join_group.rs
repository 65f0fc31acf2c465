//! JoinGroup, versions 0 to 9.
//!
//! 1: a separate rebalance timeout. 4: KIP-394, the member id is assigned before it is used. 5:
//! KIP-345, static members. 8: KIP-800, a reason, which is ignored. 9: KIP-814, a leader may be
//! told to keep the assignment.

use std::net::IpAddr;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::{GroupReply, JoinReply};
use crate::group::request::{GroupRequest, JoinRequest};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: JoinGroupRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let client_host = java_address(request.connection.peer_address);
    let join = JoinRequest {
        group_id: body.group_id,
        member_id: body.member_id,
        group_instance_id: body.group_instance_id,
        client_id: request.client_id.unwrap_or(""),
        client_host: &client_host,
        session_timeout_ms: body.session_timeout_ms,
        rebalance_timeout_ms: match version {
            0 => body.session_timeout_ms,
            _ => body.rebalance_timeout_ms,
        },
        protocol_type: body.protocol_type,
        protocols: body
            .protocols
            .iter()
            .map(|protocol| (protocol.name, protocol.metadata))
            .collect(),
        requires_known_member_id: version >= 4,
        supports_skipping_assignment: version >= 9,
        topics: node.image().topics.clone(),
    };
    let member_id = body.member_id.to_owned();
    let call = match caller.group(Operation::Read, body.group_id) {
        Ok(granted) => node.groups.call(&node.storage, granted, GroupRequest::Join(join)),
        Err(error) => Call::answered(Err(error)),
    };
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        encode(answers.pop(), &member_id, version, reply);
    })
}

fn encode(answer: Option<GroupAnswer>, member_id: &str, version: i16, reply: &mut ReplyBuffer) {
    let joined = match answer {
        Some(Ok(GroupReply::Join(joined))) => joined,
        Some(Err(error)) => JoinReply::error(error, member_id.into()),
        _ => JoinReply::error(ErrorCode::UnknownServerError, member_id.into()),
    };
    // Before version 7 the field is not nullable.
    let no_protocol = if version < 7 { Some("") } else { None };
    let response = JoinGroupResponse {
        error_code: joined.error.code(),
        generation_id: joined.generation_id,
        protocol_type: joined.protocol_type.as_deref(),
        protocol_name: joined.protocol_name.as_deref().or(no_protocol),
        leader: &joined.leader,
        skip_assignment: joined.skip_assignment,
        member_id: &joined.member_id,
        members: joined
            .members
            .iter()
            .map(|member| JoinGroupResponseMember {
                member_id: &member.member_id,
                group_instance_id: member.group_instance_id.as_deref(),
                metadata: &member.metadata,
            })
            .collect(),
        ..JoinGroupResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}

/// Formats an address as Java prints one without a host name: the form that group records and tools
/// have always shown.
pub(super) fn java_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let parts: Vec<String> = address
                .segments()
                .iter()
                .map(|segment| format!("{segment:x}"))
                .collect();
            format!("/{}", parts.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_look_as_java_prints_them() {
        assert_eq!(java_address("127.0.0.1".parse().unwrap()), "/127.0.0.1");
        assert_eq!(java_address("::1".parse().unwrap()), "/0:0:0:0:0:0:0:1");
    }
}
