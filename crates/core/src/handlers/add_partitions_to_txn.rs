//! AddPartitionsToTxn, versions 0 to 5 (KIP-98): partitions that a transaction is about to write
//! to. Up to 3 from clients; 4 and 5 from brokers, for many transactions at once, also to verify
//! only (KIP-890).
//!
//! - All partitions of a transaction are added, or none: where one is unknown or forbidden, the
//!   others are answered OPERATION_NOT_ATTEMPTED.
//! - While the producer's previous transaction is being ended, the request waits; Apache Kafka
//!   answers CONCURRENT_TRANSACTIONS.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult, AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult,
};

use super::transaction_calls::{code_for, patience, reply_when_answered};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::{GrantedCluster, GrantedTransactionalId};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::Request;
use crate::transaction::coordinator::Answer;
use crate::transaction::request::{AddRequest, Reply, Request as Ask};
use crate::transaction::state::Place;

const FIRST_VERSION_WITH_FENCED: i16 = 2;
const FIRST_VERSION_OF_BROKERS: i16 = 4;
const FIRST_VERSION_WITH_EPOCHS: i16 = 5;

/// One transaction of the request.
struct Transaction {
    id: Arc<str>,
    places: Vec<Place>,
    /// Parallel to `places`, where nothing was asked of the coordinator.
    refused: Option<Vec<ErrorCode>>,
}

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: AddPartitionsToTxnRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let broker = match version {
        ..FIRST_VERSION_OF_BROKERS => None,
        _ => match caller.cluster(Operation::ClusterAction) {
            Ok(granted) => Some(granted),
            Err(error) => return refuse(error, version, reply),
        },
    };
    let mut asks = Vec::new();
    let mut transactions = Vec::new();
    let until = patience(node);
    for_each_transaction(&body, version, |id, producer, verify_only, topics| {
        let (transaction, allowed) = check(node, &caller, broker, id, topics);
        if let Some(granted) = allowed {
            let add = AddRequest {
                id: transaction.id.clone(),
                producer_id: producer.0,
                producer_epoch: producer.1,
                partitions: transaction.places.clone(),
                client_version: if version >= FIRST_VERSION_WITH_EPOCHS {
                    2
                } else {
                    0
                },
                until,
            };
            let ask = if verify_only {
                Ask::Verify(add)
            } else {
                Ask::Add(add)
            };
            asks.push((granted.keep(), ask));
        }
        transactions.push(transaction);
    });
    reply_when_answered(node, asks, reply, move |_, answers, reply| {
        let mut answers = answers.into_iter();
        let outcomes = transactions.into_iter().map(|mut transaction| {
            let codes = match transaction.refused.take() {
                Some(codes) => codes,
                None => codes(transaction.places.len(), answers.next(), version),
            };
            (transaction, codes)
        });
        let outcomes: Vec<(Transaction, Vec<ErrorCode>)> = outcomes.collect();
        encode(&outcomes, version, reply);
    })
}

type Topics<'b, 'a> = &'b [AddPartitionsToTxnTopic<'a>];

/// Calls `take` with the id, the producer, whether to verify only, and the topics.
fn for_each_transaction<'b, 'a>(
    body: &'b AddPartitionsToTxnRequest<'a>,
    version: i16,
    mut take: impl FnMut(&'a str, (i64, i16), bool, Topics<'b, 'a>),
) {
    if version < FIRST_VERSION_OF_BROKERS {
        let producer = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch);
        let topics = &body.v3_and_below_topics;
        return take(body.v3_and_below_transactional_id, producer, false, topics);
    }
    for transaction in &body.transactions {
        let producer = (transaction.producer_id, transaction.producer_epoch);
        take(
            transaction.transactional_id,
            producer,
            transaction.verify_only,
            &transaction.topics,
        );
    }
}

/// Returns the id to ask the coordinator about, too, unless the transaction is refused.
///
/// - `broker`: the client is one, and need not ask for each id and topic.
fn check<'a>(
    node: &Node,
    caller: &Caller<'_>,
    broker: Option<GrantedCluster>,
    id: &'a str,
    topics: Topics<'_, '_>,
) -> (Transaction, Option<GrantedTransactionalId<'a>>) {
    let image = node.image();
    let granted = match broker {
        Some(broker) => Ok(broker.transactional_id(id)),
        None => caller.transactional_id(Operation::Write, id),
    };
    let denied = granted.err();
    let mut places: Vec<Place> = Vec::new();
    let mut codes = Vec::new();
    for topic in topics {
        let name: Arc<str> = topic.name.into();
        let forbidden = match broker {
            Some(_) => None,
            None => caller.topic(Operation::Write, topic.name).err(),
        };
        let known = image.topic(topic.name);
        for index in &topic.partitions {
            let is_known = known.is_some_and(|known| known.partition(*index).is_some());
            let unknown = (!is_known).then_some(ErrorCode::UnknownTopicOrPartition);
            codes.push(denied.or(forbidden).or(unknown).unwrap_or(ErrorCode::None));
            places.push((name.clone(), *index));
        }
    }
    let is_refused = denied.is_some() || codes.iter().any(|code| *code != ErrorCode::None);
    if is_refused {
        for code in codes.iter_mut().filter(|code| **code == ErrorCode::None) {
            *code = ErrorCode::OperationNotAttempted;
        }
    }
    let transaction = Transaction {
        id: id.into(),
        places,
        refused: is_refused.then_some(codes),
    };
    (transaction, granted.ok().filter(|_| !is_refused))
}

/// The coordinator's answer for each partition.
fn codes(count: usize, answer: Option<Answer>, version: i16) -> Vec<ErrorCode> {
    let for_all = |error| vec![code_for(error, version, FIRST_VERSION_WITH_FENCED); count];
    match answer {
        Some(Ok(Reply::Add(Ok(())))) => for_all(ErrorCode::None),
        Some(Ok(Reply::Verify(Ok(belong)))) => belong
            .into_iter()
            .map(|belongs| match belongs {
                true => ErrorCode::None,
                false => ErrorCode::TransactionAbortable,
            })
            .collect(),
        Some(Ok(Reply::Add(Err(error)) | Reply::Verify(Err(error))) | Err(error)) => for_all(error),
        _ => for_all(ErrorCode::UnknownServerError),
    }
}

fn refuse(error: ErrorCode, version: i16, reply: &mut ReplyBuffer) -> Handled {
    reply.seen.errors.see(error);
    let response = AddPartitionsToTxnResponse {
        error_code: error.code(),
        ..AddPartitionsToTxnResponse::default()
    };
    response.encode(&mut reply.bytes, version);
    Handled::Replied
}

fn encode(outcomes: &[(Transaction, Vec<ErrorCode>)], version: i16, reply: &mut ReplyBuffer) {
    for code in outcomes.iter().flat_map(|(_, codes)| codes) {
        reply.seen.errors.see(*code);
    }
    let mut response = AddPartitionsToTxnResponse::default();
    for (transaction, codes) in outcomes {
        let topic_results = topic_results(&transaction.places, codes);
        if version < FIRST_VERSION_OF_BROKERS {
            response.results_by_topic_v3_and_below = topic_results;
        } else {
            response.results_by_transaction.push(AddPartitionsToTxnResult {
                transactional_id: &transaction.id,
                topic_results,
            });
        }
    }
    response.encode(&mut reply.bytes, version);
}

/// Neighbours with one topic are one entry, as they were asked for.
fn topic_results<'p>(places: &'p [Place], codes: &[ErrorCode]) -> Vec<AddPartitionsToTxnTopicResult<'p>> {
    let mut results: Vec<AddPartitionsToTxnTopicResult<'p>> = Vec::new();
    for ((topic, index), code) in places.iter().zip(codes) {
        let result = AddPartitionsToTxnPartitionResult {
            partition_index: *index,
            partition_error_code: code.code(),
        };
        match results.last_mut() {
            Some(last) if last.name == &**topic => last.results_by_partition.push(result),
            _ => results.push(AddPartitionsToTxnTopicResult {
                name: topic,
                results_by_partition: vec![result],
            }),
        }
    }
    results
}
