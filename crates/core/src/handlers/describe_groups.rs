//! DescribeGroups, versions 0 to 6. 3: KIP-430, authorized operations. 4: KIP-345, instance ids. 6:
//! KIP-1043, an unknown group is an error.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};

use super::authorized::{NOT_ASKED, group_operations};
use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::foreign::ForeignKind;
use crate::group::reply::{DescribedGroup as Described, DescribedMember, GroupReply};
use crate::group::request::GroupRequest;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

const FIRST_VERSION_WITH_NOT_FOUND: i16 = 6;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeGroupsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let call = |group_id: &&str| match caller.group(Operation::Describe, group_id) {
        Ok(granted) => node
            .groups
            .call(&node.storage, granted, GroupRequest::Describe(vec![group_id])),
        Err(error) => Call::answered(Err(error)),
    };
    let calls = body.groups.iter().map(call).collect();
    let group_ids: Vec<String> = body
        .groups
        .iter()
        .map(|group_id| (*group_id).to_owned())
        .collect();
    let asks_for_operations = body.include_authorized_operations;
    let caller = caller.keep();
    reply_when_answered(node, calls, reply, move |_, answers, reply| {
        let groups: Vec<Described> = group_ids
            .iter()
            .zip(answers)
            .map(|(group_id, answer)| described(group_id, answer))
            .collect();
        let response = DescribeGroupsResponse {
            groups: groups
                .iter()
                .map(|group| {
                    let is_asked = asks_for_operations && group.error == ErrorCode::None;
                    let operations = if is_asked {
                        group_operations(&caller.borrow(), &group.group_id)
                    } else {
                        NOT_ASKED
                    };
                    group_response(group, version, operations)
                })
                .collect(),
            ..DescribeGroupsResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

fn described(group_id: &str, answer: GroupAnswer) -> Described {
    let error = match answer {
        Ok(GroupReply::Describe(mut groups)) if groups.len() == 1 => return groups.remove(0),
        Ok(_) => ErrorCode::UnknownServerError,
        Err(error) => error,
    };
    Described {
        error,
        group_id: group_id.into(),
        state: "",
        protocol_type: "".into(),
        protocol: "".into(),
        members: Vec::new(),
        kept_as: None,
    }
}

fn group_response(group: &Described, version: i16, authorized_operations: i32) -> DescribedGroup<'_> {
    let is_unknown = group.error == ErrorCode::GroupIdNotFound;
    let tells_unknown = version >= FIRST_VERSION_WITH_NOT_FOUND;
    DescribedGroup {
        error_code: if is_unknown && !tells_unknown {
            0
        } else {
            group.error.code()
        },
        error_message: (is_unknown && tells_unknown).then_some(match group.kept_as {
            None => "no classic group with this id",
            Some(ForeignKind::Share) => "this is a share group: it is kept, not served",
            Some(ForeignKind::Streams) => "this is a streams group: it is kept, not served",
        }),
        group_id: &group.group_id,
        group_state: group.state,
        protocol_type: &group.protocol_type,
        protocol_data: &group.protocol,
        members: group.members.iter().map(member_response).collect(),
        authorized_operations,
    }
}

fn member_response(member: &DescribedMember) -> DescribedGroupMember<'_> {
    DescribedGroupMember {
        member_id: &member.member_id,
        group_instance_id: member.group_instance_id.as_deref(),
        client_id: &member.client_id,
        client_host: &member.client_host,
        member_metadata: &member.metadata,
        member_assignment: &member.assignment,
    }
}
