//! DescribeTransactions, version 0 (KIP-664).

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData, TransactionState,
};

use super::transaction_calls::reply_when_answered;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::transaction::coordinator::Answer;
use crate::transaction::request::{Reply, Request as Ask};
use crate::transaction::state::TransactionState as Known;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DescribeTransactionsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let mut asks = Vec::new();
    let asked = body.transactional_ids.iter().map(|id| {
        let denied = match caller.transactional_id(Operation::Describe, id) {
            Ok(granted) => {
                let id = granted.keep();
                let ask = Ask::Describe(id.name().clone());
                asks.push((id, ask));
                None
            }
            Err(error) => Some(error),
        };
        (Arc::<str>::from(*id), denied)
    });
    let asked: Vec<(Arc<str>, Option<ErrorCode>)> = asked.collect();
    let caller = caller.keep();
    reply_when_answered(node, asks, reply, move |_, answers, reply| {
        let caller = caller.borrow();
        let mut answers = answers.into_iter();
        let found = asked.iter().map(|(_, denied)| match denied {
            Some(error) => Err(*error),
            None => known(answers.next()),
        });
        let found: Vec<Result<Known, ErrorCode>> = found.collect();
        let ids = asked.iter().map(|(id, _)| id);
        let states = ids.zip(&found).map(|(id, found)| describe(&caller, id, found));
        let response = DescribeTransactionsResponse {
            transaction_states: states.collect(),
            ..DescribeTransactionsResponse::default()
        };
        response.encode(&mut reply.bytes, version);
    })
}

fn known(answer: Option<Answer>) -> Result<Known, ErrorCode> {
    match answer {
        Some(Ok(Reply::Describe(Some(state)))) => Ok(state),
        Some(Ok(Reply::Describe(None))) => Err(ErrorCode::TransactionalIdNotFound),
        Some(Err(error)) => Err(error),
        _ => Err(ErrorCode::UnknownServerError),
    }
}

fn describe<'a>(
    caller: &Caller<'_>,
    id: &'a str,
    found: &'a Result<Known, ErrorCode>,
) -> TransactionState<'a> {
    let known = match found {
        Ok(known) => known,
        Err(error) => {
            return TransactionState {
                error_code: error.code(),
                transactional_id: id,
                ..TransactionState::default()
            };
        }
    };
    let mut topics: Vec<TopicData<'a>> = Vec::new();
    for (topic, index) in &known.partitions {
        match topics.last_mut() {
            Some(last) if last.topic == &**topic => last.partitions.push(*index),
            _ => topics.push(TopicData {
                topic,
                partitions: vec![*index],
            }),
        }
    }
    topics.retain(|topic| caller.may_on_topic(Operation::Describe, topic.topic));
    TransactionState {
        error_code: ErrorCode::None.code(),
        transactional_id: id,
        transaction_state: known.status.name(),
        transaction_timeout_ms: known.timeout_ms,
        transaction_start_time_ms: known.started.0,
        producer_id: known.producer_id,
        producer_epoch: known.producer_epoch,
        topics,
    }
}
