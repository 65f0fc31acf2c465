//! InitProducerId, versions 0 to 5 (KIP-98). 3: KIP-360, a producer that lost its sequence asks
//! with its old id.
//!
//! With a transactional id the coordinator answers. It aborts what the predecessor has left open,
//! and the answer waits for that; Apache Kafka answers CONCURRENT_TRANSACTIONS.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};

use super::transaction_calls::{code_for, patience, reply_when_answered};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedTransactionalId;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};
use crate::transaction::request::{InitRequest, Producer, Reply, Request as Ask};

const FIRST_VERSION_WITH_FENCED: i16 = 4;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: InitProducerIdRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let checked = match body.transactional_id {
        Some(id) => caller.transactional_id(Operation::Write, id).map(Some),
        None => caller.idempotent_write().map(|()| None),
    };
    let transactional_id = match checked {
        Ok(granted) => granted,
        Err(error) => {
            answer(Err(error), version, reply);
            return Handled::Replied;
        }
    };
    // KIP-360: a producer's id and epoch are given both or not at all.
    let is_half = (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH);
    if is_half {
        answer(Err(ErrorCode::InvalidRequest), version, reply);
        return Handled::Replied;
    }
    if let Some(id) = transactional_id {
        return register(node, id, &body, version, reply);
    }
    if let Some(id) = node.producer_ids.take() {
        answer(Ok((id, 0)), version, reply);
        return Handled::Replied;
    }
    let slot = submit(node, |node, controller| {
        node.producer_ids
            .take_or_allocate(controller, node.clock().timestamp())
    });
    let write = move |_: &Node, id: Result<i64, Refusal>, reply: &mut ReplyBuffer| {
        // The client retries; the disk may have space by then.
        answer(
            id.map(|id| (id, 0))
                .map_err(|_refusal| ErrorCode::CoordinatorLoadInProgress),
            version,
            reply,
        );
    };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

/// Registers a transactional producer with its coordinator.
fn register(
    node: &Node,
    id: GrantedTransactionalId<'_>,
    body: &InitProducerIdRequest<'_>,
    version: i16,
    reply: &mut ReplyBuffer,
) -> Handled {
    let timeout_ms = body.transaction_timeout_ms;
    let refusal = match id.name() {
        "" => Some(ErrorCode::InvalidRequest),
        _ if !(1..=node.transactions.config().timeout_ms_max).contains(&timeout_ms) => {
            Some(ErrorCode::InvalidTransactionTimeout)
        }
        _ => None,
    };
    if let Some(error) = refusal {
        answer(Err(error), version, reply);
        return Handled::Replied;
    }
    let id = id.keep();
    let init = InitRequest {
        id: id.name().clone(),
        timeout_ms,
        expected: (body.producer_id != NO_PRODUCER_ID).then_some((body.producer_id, body.producer_epoch)),
        until: patience(node),
    };
    let asks = vec![(id, Ask::Init(init))];
    reply_when_answered(node, asks, reply, move |_, mut answers, reply| {
        let registered = match answers.pop() {
            Some(Ok(Reply::Init(registered))) => registered,
            Some(Err(error)) => Err(error),
            _ => Err(ErrorCode::UnknownServerError),
        };
        answer(registered, version, reply);
    })
}

// Without a transactional id there is no state to keep: every request gets an unused id, at epoch
// 0.
fn answer(producer: Result<Producer, ErrorCode>, version: i16, reply: &mut ReplyBuffer) {
    let response = match producer {
        Ok((producer_id, producer_epoch)) => InitProducerIdResponse {
            producer_id,
            producer_epoch,
            ..Default::default()
        },
        Err(error) => InitProducerIdResponse {
            error_code: code_for(error, version, FIRST_VERSION_WITH_FENCED).code(),
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        },
    };
    response.encode(&mut reply.bytes, version);
}
