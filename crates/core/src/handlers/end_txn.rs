//! EndTxn, versions 0 to 5 (KIP-98): commits or aborts. 5: KIP-890, an epoch for every transaction;
//! the answer has that of the next one.
//!
//! - The answer comes when the decision is durable: from then on it stands, and markers follow.
//! - A request that repeats the decision is answered with it, also while markers are being written,
//!   where Apache Kafka answers CONCURRENT_TRANSACTIONS.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};

use super::transaction_calls::{client_version, code_for, patience, reply_when_answered};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::transaction::request::{EndRequest, Producer, Reply, Request as Ask};

const FIRST_VERSION_WITH_FENCED: i16 = 2;
const FIRST_VERSION_WITH_EPOCHS: i16 = 5;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: EndTxnRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let id = match caller.transactional_id(Operation::Write, body.transactional_id) {
        Ok(granted) => granted.keep(),
        Err(error) => {
            answer(Err(error), version, reply);
            return Handled::Replied;
        }
    };
    let end = EndRequest {
        id: id.name().clone(),
        producer_id: body.producer_id,
        producer_epoch: body.producer_epoch,
        is_commit: body.committed,
        client_version: client_version(request, FIRST_VERSION_WITH_EPOCHS),
        until: patience(node),
    };
    let asks = vec![(id, Ask::End(end))];
    reply_when_answered(node, asks, reply, move |_, mut answers, reply| {
        let ended = match answers.pop() {
            Some(Ok(Reply::End(ended))) => ended,
            Some(Err(error)) => Err(error),
            _ => Err(ErrorCode::UnknownServerError),
        };
        answer(ended, version, reply);
    })
}

fn answer(ended: Result<Producer, ErrorCode>, version: i16, reply: &mut ReplyBuffer) {
    let response = match ended {
        Ok((producer_id, producer_epoch)) if version >= FIRST_VERSION_WITH_EPOCHS => EndTxnResponse {
            producer_id,
            producer_epoch,
            ..EndTxnResponse::default()
        },
        Ok(_) => EndTxnResponse::default(),
        Err(error) => {
            let error = code_for(error, version, FIRST_VERSION_WITH_FENCED);
            reply.seen.errors.see(error);
            EndTxnResponse {
                error_code: error.code(),
                ..EndTxnResponse::default()
            }
        }
    };
    response.encode(&mut reply.bytes, version);
}
