//! InitProducerId, versions 0 to 5 (KIP-98). 3: KIP-360, a producer that lost its sequence asks
//! with its old id.
//!
//! Deviation: a transactional id is refused with INVALID_REQUEST. Transactions are not served, and
//! no code says so better; FindCoordinator, which transactional producers send first, refuses with
//! the same code and a message.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::node::Node;
use crate::pending::Handled;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::submit::{ControllerReply, submit};

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller,
    body: InitProducerIdRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let checked = match body.transactional_id {
        Some(id) => caller.transactional_id(Operation::Write, id),
        None => caller.idempotent_write(),
    };
    if let Err(error) = checked {
        answer(Err(error), version, reply);
        return Handled::Replied;
    }
    // KIP-360: a producer's id and epoch are given both or not at all.
    let is_half = (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_PRODUCER_EPOCH);
    if body.transactional_id.is_some() || is_half {
        answer(Err(ErrorCode::InvalidRequest), version, reply);
        return Handled::Replied;
    }
    if let Some(id) = node.producer_ids.take() {
        answer(Ok(id), version, reply);
        return Handled::Replied;
    }
    let slot = submit(node, |node, controller| {
        node.producer_ids
            .take_or_allocate(controller, node.clock().timestamp())
    });
    let write = move |_: &Node, id: Result<i64, Refusal>, reply: &mut ReplyBuffer| {
        // The client retries; the disk may have space by then.
        answer(
            id.map_err(|_refusal| ErrorCode::CoordinatorLoadInProgress),
            version,
            reply,
        );
    };
    Handled::Pending(ControllerReply::boxed(slot, None, write))
}

// Without a transactional id there is no state to keep: every request gets an unused id, at epoch
// 0.
fn answer(id: Result<i64, ErrorCode>, version: i16, reply: &mut ReplyBuffer) {
    let response = match id {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..Default::default()
        },
        Err(error) => InitProducerIdResponse {
            error_code: error.code(),
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        },
    };
    response.encode(&mut reply.bytes, version);
}
