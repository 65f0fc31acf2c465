//! ListGroups, versions 0 to 5. 4: KIP-518, states. 5: KIP-848, types.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::{Operation, ResourceType};
use crate::group::coordinator::GroupAnswer;
use crate::group::reply::{GroupReply, ListedGroup as Listed};
use crate::group::request::{GroupRequest, ListRequest};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: ListGroupsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let lower = |filter: &Vec<&str>| filter.iter().map(|wanted| wanted.trim().to_lowercase()).collect();
    let list = ListRequest {
        states: lower(&body.states_filter),
        types: lower(&body.types_filter),
    };
    let calls = node.groups.call_all(&node.storage, &GroupRequest::List(list));
    let caller = caller.keep();
    reply_when_answered(node, calls, reply, move |_, answers, reply| {
        let caller = caller.borrow();
        let (error, mut groups) = gather(answers);
        if !caller.may_on_cluster(Operation::Describe) {
            groups.retain(|group| caller.may(Operation::Describe, ResourceType::Group, &group.group_id));
        }
        let response = ListGroupsResponse {
            error_code: error.code(),
            groups: groups.iter().map(group_response).collect(),
            ..ListGroupsResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

/// Merges the coordinators' answers. A list without one coordinator's groups would look complete,
/// so one failure fails the request.
fn gather(answers: Vec<GroupAnswer>) -> (ErrorCode, Vec<Listed>) {
    let mut groups = Vec::new();
    for answer in answers {
        match answer {
            Ok(GroupReply::List(listed)) => groups.extend(listed),
            Ok(_) => return (ErrorCode::UnknownServerError, Vec::new()),
            Err(error) => return (error, Vec::new()),
        }
    }
    (ErrorCode::None, groups)
}

fn group_response(group: &Listed) -> ListedGroup<'_> {
    ListedGroup {
        group_id: &group.group_id,
        protocol_type: &group.protocol_type,
        group_state: group.state,
        group_type: group.group_type,
    }
}
