//! Produce with transactional batches (KIP-98, KIP-890): before anything is appended, the
//! transaction coordinator is asked about the partitions in which the producer has no open
//! transaction yet.
//!
//! - Up to version 11 the client has added the partitions to its transaction (AddPartitionsToTxn),
//!   which is verified; from 12 on the question adds them.
//! - While the coordinator decides, the request is copied, and later requests of its connection
//!   wait: the order of a producer's batches is theirs.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::DecodeError;
use ottla_wire::produce::{ProducePartition, ProduceRequest, TopicName};
use ottla_wire::records::batch::{BatchHeader, MAGIC};

use super::admitted::Admitting;
use super::produce::{Admitted, Begun, PartitionRefusal, serve};
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedTopic;
use crate::image::topics::TopicImage;
use crate::node::Node;
use crate::partition::Partition;
use crate::pending::Handled;
use crate::placement::Unfolding;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::{OwnedRequest, Request};
use crate::transaction::admission::{Question, TransactionalWrite};

/// From this version on Produce adds partitions to the transaction itself (KIP-890).
const FIRST_VERSION_THAT_ADDS: i16 = 12;

/// From this version on clients know TRANSACTION_ABORTABLE (KIP-890).
const FIRST_VERSION_WITH_ABORTABLE: i16 = 11;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    produce: ProduceRequest<'_>,
    unfolding: Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<Handled, DecodeError> {
    let mut begun = Begun::new(node, request, &produce);
    let Some(transactional_id) = begun.transactional_id.take() else {
        return serve(node, request, produce, begun, unfolding, reply);
    };
    let entered = Entered::new(node, request, produce.clone())?;
    let timeout_ms = produce.timeout_ms;
    begun.admitted = entered.admitted;
    if let Some(refusal) = entered.refusal {
        begun.refusal = Some(refusal);
        return serve(node, request, produce, begun, unfolding, reply);
    }
    let question = match request.api_version {
        FIRST_VERSION_THAT_ADDS.. => Question::Add,
        _ => Question::Verify,
    };
    let is_verified = question == Question::Verify && !node.write_gate.verifies(&node.storage);
    let (Some(producer), false) = (entered.producer, entered.asked.is_empty() || is_verified) else {
        return serve(node, request, produce, begun, unfolding, reply);
    };
    let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
    let write = TransactionalWrite {
        transactional_id,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        partitions: entered.names,
        question,
        deadline: request.received.after_ms(timeout_ms),
    };
    let mut admission = node.write_gate.admit(&node.storage, write);
    // Decided at once unless a log must be written or another transaction ends first.
    if let Poll::Ready(decisions) = admission.poll(node.services(), Waker::noop()) {
        begun.decide(&entered.asked, decisions, request.api_version);
        return serve(node, request, produce, begun, unfolding, reply);
    }
    let asked = entered.asked;
    let serve = move |node: &Node, request: &OwnedRequest, decisions, reply: &mut ReplyBuffer| {
        let request = request.borrow();
        begun.decide(&asked, decisions, request.api_version);
        let served = ProduceRequest::decode(request.body, request.api_version)
            .and_then(|produce| serve(node, &request, produce, begun, unfolding, reply));
        served.expect("the same bytes were decoded before")
    };
    Ok(Admitting::handled(
        OwnedRequest::of(request),
        admission,
        Box::new(serve),
    ))
}

impl Begun {
    /// Notes the coordinator's decisions about the partitions at the places `asked`.
    fn decide(&mut self, asked: &[usize], decisions: Vec<Result<(), Refusal>>, version: i16) {
        assert_eq!(asked.len(), decisions.len(), "every partition is decided about");
        for (place, decision) in asked.iter().zip(decisions) {
            if let Err(refusal) = decision {
                let code = code_for_producer(refusal.code, version);
                let refusal = PartitionRefusal::with_message(code, refusal.message);
                self.admitted[*place] = Admitted::Refused(refusal);
            }
        }
    }
}

/// Translates a coordinator's code into one that producers of the version know how to take.
fn code_for_producer(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::TransactionAbortable if version < FIRST_VERSION_WITH_ABORTABLE => {
            ErrorCode::InvalidTxnState
        }
        // A fenced producer may abort and go on; that its id has a new owner it learns from the
        // coordinator.
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        // Every producer retries this code, and none asks for new metadata because of it.
        ErrorCode::ConcurrentTransactions if version < FIRST_VERSION_THAT_ADDS => {
            ErrorCode::NotEnoughReplicas
        }
        ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
        code => code,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Producer {
    id: i64,
    epoch: i16,
}

/// The partitions of a request before the coordinator is asked.
#[derive(Default)]
struct Entered {
    /// Of all transactional batches.
    producer: Option<Producer>,
    /// By the place of the partition in the request.
    admitted: Vec<Admitted>,
    /// Places of the partitions in which the producer has no open transaction, and their names.
    asked: Vec<usize>,
    names: Vec<(Arc<str>, i32)>,
    /// Refuses every partition.
    refusal: Option<PartitionRefusal>,
}

impl Entered {
    fn new(
        node: &Node,
        request: &Request<'_>,
        mut produce: ProduceRequest<'_>,
    ) -> Result<Entered, DecodeError> {
        let image = node.image();
        let caller = node.access.caller(request);
        let begins_at_zero = request.api_version >= FIRST_VERSION_THAT_ADDS;
        let mut entered = Entered::default();
        while let Some(asked) = produce.next_topic()? {
            let topic = match asked.topic {
                TopicName::Name(name) => image.topic(name),
                TopicName::Id(id) => image.topic_by_id(id),
            };
            // A denial is answered, and counted, when the request is served.
            let writable = topic.and_then(|topic| Some((topic, may_write(&caller, topic)?)));
            while let Some(part) = produce.next_partition()? {
                let Some(header) = transactional_header(&part) else {
                    entered.admitted.push(Admitted::Plain);
                    continue;
                };
                if !entered.is_by_one_producer(&header) {
                    return Ok(entered);
                }
                let found = writable
                    .ok_or(ErrorCode::UnknownTopicOrPartition)
                    .and_then(|(topic, granted)| node.partition(granted, topic, part.index));
                match found {
                    Ok(partition) => entered.enter(&partition, &header, begins_at_zero),
                    Err(code) => {
                        let refused = Admitted::Refused(PartitionRefusal::code(code));
                        entered.admitted.push(refused);
                    }
                }
            }
        }
        Ok(entered)
    }

    /// Takes a ticket, before the question: see `ottla_log::Ticket`.
    fn enter(&mut self, partition: &Partition, header: &BatchHeader, begins_at_zero: bool) {
        let entry = partition.enter_transaction(header.producer_id, header.producer_epoch, begins_at_zero);
        if !entry.is_open {
            self.asked.push(self.admitted.len());
            self.names.push((partition.topic.clone(), partition.index));
        }
        self.admitted.push(Admitted::Ticket(entry.ticket));
    }

    /// A request belongs to one transaction, so its batches have one producer id and epoch.
    fn is_by_one_producer(&mut self, header: &BatchHeader) -> bool {
        let producer = Producer {
            id: header.producer_id,
            epoch: header.producer_epoch,
        };
        let (code, message) = if !header.has_producer_id() {
            (
                ErrorCode::InvalidTxnState,
                "a transactional batch needs a producer id",
            )
        } else if *self.producer.get_or_insert(producer) != producer {
            (
                ErrorCode::InvalidProducerIdMapping,
                "transactional batches of one request need one producer id and epoch",
            )
        } else {
            return true;
        };
        self.refusal = Some(PartitionRefusal::with_message(code, message.to_owned()));
        false
    }
}

fn may_write<'t>(caller: &Caller<'_>, topic: &'t TopicImage) -> Option<GrantedTopic<'t>> {
    let granted = caller.topic_if_allowed(Operation::Write, &topic.name);
    granted.filter(|_| !topic.is_internal())
}

fn transactional_header(part: &ProducePartition<'_>) -> Option<BatchHeader> {
    let header = part.records?.first_chunk().map(BatchHeader::decode)?;
    (header.magic == MAGIC && header.is_transactional()).then_some(header)
}
