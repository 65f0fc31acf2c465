//! DeleteGroups, versions 0 to 2 (KIP-229).

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};

use super::group_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::coordinator::{Call, GroupAnswer};
use crate::group::reply::GroupReply;
use crate::group::request::GroupRequest;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DeleteGroupsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let call = |group_id: &&str| match caller.group(Operation::Delete, group_id) {
        Ok(granted) => node
            .groups
            .call(&node.storage, granted, GroupRequest::Delete(vec![group_id])),
        Err(error) => Call::answered(Err(error)),
    };
    let calls = body.groups_names.iter().map(call).collect();
    let group_ids: Vec<Arc<str>> = body
        .groups_names
        .iter()
        .map(|group_id| Arc::from(*group_id))
        .collect();
    reply_when_answered(node, calls, reply, move |_, answers, reply| {
        let results = group_ids
            .iter()
            .zip(answers)
            .map(|(group_id, answer)| DeletableGroupResult {
                group_id,
                error_code: error_of(answer).code(),
            });
        let response = DeleteGroupsResponse {
            results: results.collect(),
            ..DeleteGroupsResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

fn error_of(answer: GroupAnswer) -> ErrorCode {
    match answer {
        Ok(GroupReply::Delete(results)) => results
            .first()
            .map_or(ErrorCode::UnknownServerError, |(_, error)| *error),
        Ok(_) => ErrorCode::UnknownServerError,
        Err(error) => error,
    }
}
