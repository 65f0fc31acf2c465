//! ListTransactions, versions 0 to 2 (KIP-664). 1: KIP-994, by duration. 2: KIP-1152, by a pattern
//! in RE2/J's syntax, which the whole id must match.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_transactions::{
    ListTransactionsRequest, ListTransactionsResponse, TransactionState,
};
use regex::bytes::Regex;

use super::transaction_calls::reply_when_all_answered;
use crate::access::Caller;
use crate::access::acl::{Operation, ResourceType};
use crate::group::consumer::regex::compile;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::time::Timestamp;
use crate::transaction::coordinator::Answer;
use crate::transaction::request::{Reply, Request as Ask};
use crate::transaction::state::{Status, TransactionState as Known};

/// States that Apache Kafka knows and never writes.
const UNWRITTEN_STATES: [&str; 2] = ["Dead", "PrepareEpochFence"];

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: ListTransactionsRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let pattern = body
        .transactional_id_pattern
        .filter(|pattern| !pattern.is_empty());
    let Ok(pattern) = pattern.map(compile).transpose() else {
        encode(ErrorCode::InvalidRegularExpression, &[], &[], version, reply);
        return Handled::Replied;
    };
    let filter = Filter {
        states: body
            .state_filters
            .iter()
            .map(|state| (*state).to_owned())
            .collect(),
        producer_ids: body.producer_id_filters.clone(),
        duration_ms: body.duration_filter,
        pattern,
        now: node.clock().timestamp(),
    };
    let caller = caller.keep();
    reply_when_all_answered(node, &Ask::List, reply, move |_, answers, reply| {
        let caller = caller.borrow();
        let (error, mut listed) = gather(answers);
        listed.retain(|(id, known)| {
            filter.permits(id, known) && caller.may(Operation::Describe, ResourceType::TransactionalId, id)
        });
        encode(error, &filter.unknown_states(), &listed, version, reply);
    })
}

/// Empty and negative: everything passes.
struct Filter {
    states: Vec<String>,
    producer_ids: Vec<i64>,
    duration_ms: i64,
    pattern: Option<Regex>,
    now: Timestamp,
}

impl Filter {
    fn permits(&self, id: &str, known: &Known) -> bool {
        let has_state = |state: &String| state == known.status.name();
        let is_old = || !known.status.is_idle() && self.now.0 - known.started.0 > self.duration_ms;
        (self.states.is_empty() || self.states.iter().any(has_state))
            && (self.producer_ids.is_empty() || self.producer_ids.contains(&known.producer_id))
            && (self.duration_ms < 0 || is_old())
            && self
                .pattern
                .as_ref()
                .is_none_or(|pattern| pattern.is_match(id.as_bytes()))
    }

    fn unknown_states(&self) -> Vec<&str> {
        let is_known = |state: &&String| {
            let written = Status::ALL.iter().any(|status| status.name() == state.as_str());
            written || UNWRITTEN_STATES.contains(&state.as_str())
        };
        let unknown = self.states.iter().filter(|state| !is_known(state));
        unknown.map(String::as_str).collect()
    }
}

type Listed = Vec<(Arc<str>, Known)>;

/// Merges the coordinators' answers. A list without those of one coordinator would look complete,
/// so one failure fails the request.
fn gather(answers: Vec<Answer>) -> (ErrorCode, Listed) {
    let mut listed = Vec::new();
    for answer in answers {
        match answer {
            Ok(Reply::List(more)) => listed.extend(more),
            Ok(_) => return (ErrorCode::UnknownServerError, Vec::new()),
            Err(error) => return (error, Vec::new()),
        }
    }
    (ErrorCode::None, listed)
}

fn encode(
    error: ErrorCode,
    unknown_states: &[&str],
    listed: &[(Arc<str>, Known)],
    version: i16,
    reply: &mut ReplyBuffer,
) {
    let states = listed.iter().map(|(id, known)| TransactionState {
        transactional_id: id,
        producer_id: known.producer_id,
        transaction_state: known.status.name(),
    });
    let response = ListTransactionsResponse {
        error_code: error.code(),
        unknown_state_filters: unknown_states.to_vec(),
        transaction_states: states.collect(),
        ..ListTransactionsResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
