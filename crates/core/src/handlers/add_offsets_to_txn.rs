//! AddOffsetsToTxn, versions 0 to 4 (KIP-98): adds the partition that holds a group's offsets.
//! Clients of KIP-890 leave it out: TxnOffsetCommit adds the partition.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::transaction_calls::{code_for, patience, reply_when_answered};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::group::OFFSETS_TOPIC;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{InternalTopic, ensure_internal_topic};
use crate::transaction::request::{AddRequest, Reply, Request as Ask};

const FIRST_VERSION_WITH_FENCED: i16 = 2;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: AddOffsetsToTxnRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let found = caller
        .transactional_id(Operation::Write, body.transactional_id)
        .and_then(|id| {
            let group = caller.group(Operation::Read, body.group_id)?;
            let index = node.groups.partition_of(&node.storage, group).ok_or_else(|| {
                // The client comes again; the topic exists by then.
                ensure_internal_topic(node, InternalTopic::ConsumerOffsets);
                ErrorCode::CoordinatorLoadInProgress
            })?;
            Ok((id.keep(), index))
        });
    let (id, index) = match found {
        Ok(found) => found,
        Err(error) => {
            answer(Err(error), version, reply);
            return Handled::Replied;
        }
    };
    let add = AddRequest {
        id: id.name().clone(),
        producer_id: body.producer_id,
        producer_epoch: body.producer_epoch,
        partitions: vec![(OFFSETS_TOPIC.into(), index)],
        client_version: 0,
        until: patience(node),
    };
    let asks = vec![(id, Ask::Add(add))];
    reply_when_answered(node, asks, reply, move |_, mut answers, reply| {
        let added = match answers.pop() {
            Some(Ok(Reply::Add(added))) => added,
            Some(Err(error)) => Err(error),
            _ => Err(ErrorCode::UnknownServerError),
        };
        answer(added, version, reply);
    })
}

fn answer(added: Result<(), ErrorCode>, version: i16, reply: &mut ReplyBuffer) {
    let error = added.err().unwrap_or(ErrorCode::None);
    let error = code_for(error, version, FIRST_VERSION_WITH_FENCED);
    reply.seen.errors.see(error);
    let response = AddOffsetsToTxnResponse {
        error_code: error.code(),
        ..AddOffsetsToTxnResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
