//! TxnOffsetCommit, versions 0 to 5 (KIP-98): commits offsets in a producer's transaction. 3:
//! KIP-447, the consumer's member id and generation. 5: KIP-890, adds the partition of the offsets
//! to the transaction.

use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic, TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use ottla_wire::primitives::Reader;

use super::admitted::{Admitting, Decisions};
use super::group_calls::reply_when_answered;
use super::offset_commit::with_error;
use super::transaction_calls::patience;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::{GrantedGroup, GrantedTransactionalId};
use crate::group::commits::refuse;
use crate::group::coordinator::Call;
use crate::group::reply::{CommittedTopic, GroupReply};
use crate::group::request::{MemberRequest, OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic};
use crate::image::MetadataImage;
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::request::{OwnedRequest, Request};
use crate::transaction::admission::{Question, TransactionalWrite};

/// From this version on the request adds the partition of the offsets to the transaction.
const FIRST_VERSION_THAT_ADDS: i16 = 5;
/// From this version on clients know TRANSACTION_ABORTABLE.
const FIRST_VERSION_WITH_ABORTABLE: i16 = 4;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: TxnOffsetCommitRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    let id = caller.transactional_id(Operation::Write, body.transactional_id);
    let allowed = id.and_then(|id| Ok((id, caller.group(Operation::Read, body.group_id)?)));
    let (id, group) = match allowed {
        Ok(allowed) => allowed,
        Err(denial) => {
            // Nothing is told about topics.
            let mut denied = refuse(&resolve(&node.image(), &caller, &body), denial);
            let partitions = denied.iter_mut().flat_map(|topic| &mut topic.partitions);
            partitions.for_each(|(_, code)| *code = denial);
            encode(&denied, version, reply);
            return Handled::Replied;
        }
    };
    let Entered { ticket, question } = match enter(node, id, group, &body, version) {
        Ok(entered) => entered,
        Err(error) => return refuse_all(node, &caller, &body, error, version, reply),
    };
    let Some(question) = question else {
        return commit(node, &caller, &body, (group, ticket), version, reply);
    };
    let mut admission = node.write_gate.admit(&node.storage, question);
    if let Poll::Ready(decisions) = admission.poll(node.services(), Waker::noop()) {
        return match decided(decisions, version) {
            Ok(()) => commit(node, &caller, &body, (group, ticket), version, reply),
            Err(error) => refuse_all(node, &caller, &body, error, version, reply),
        };
    }
    let (caller, group) = (caller.keep(), group.keep());
    let serve = move |node: &Node, request: &OwnedRequest, decisions, reply: &mut ReplyBuffer| {
        let request = request.borrow();
        let body = TxnOffsetCommitRequest::decode(&mut Reader::new(request.body), version);
        let body = body.expect("the same bytes were decoded before");
        let (caller, group) = (caller.borrow(), group.borrow());
        match decided(decisions, version) {
            Ok(()) => commit(node, &caller, &body, (group, ticket), version, reply),
            Err(error) => refuse_all(node, &caller, &body, error, version, reply),
        }
    };
    Admitting::handled(OwnedRequest::of(request), admission, Box::new(serve))
}

struct Entered {
    ticket: ottla_log::Ticket,
    /// `None`: the transaction is open in this partition.
    question: Option<TransactionalWrite>,
}

/// Takes a ticket for the partition of the offsets before the coordinator is asked.
fn enter(
    node: &Node,
    id: GrantedTransactionalId<'_>,
    group: GrantedGroup<'_>,
    body: &TxnOffsetCommitRequest<'_>,
    version: i16,
) -> Result<Entered, ErrorCode> {
    let partition = node.offsets_partition(group);
    let partition = partition.ok_or(ErrorCode::CoordinatorNotAvailable)??;
    let entry = partition.enter_transaction(body.producer_id, body.producer_epoch, false);
    let question = match version {
        FIRST_VERSION_THAT_ADDS.. => Question::Add,
        _ => Question::Verify,
    };
    let is_let_in =
        entry.is_open || (question == Question::Verify && !node.write_gate.verifies(&node.storage));
    let question = (!is_let_in).then(|| TransactionalWrite {
        transactional_id: id.keep(),
        producer_id: body.producer_id,
        producer_epoch: body.producer_epoch,
        partitions: vec![(partition.topic.clone(), partition.index)],
        question,
        deadline: patience(node),
    });
    Ok(Entered {
        ticket: entry.ticket,
        question,
    })
}

/// What the coordinator has decided about the one partition.
fn decided(mut decisions: Decisions, version: i16) -> Result<(), ErrorCode> {
    let decision = decisions.pop().expect("one partition was asked about");
    decision.map_err(|refusal| code_for_client(refusal.code, version))
}

/// Translates a coordinator's code into one that clients of the version know how to take.
fn code_for_client(code: ErrorCode, version: i16) -> ErrorCode {
    match code {
        ErrorCode::TransactionAbortable if version < FIRST_VERSION_WITH_ABORTABLE => {
            ErrorCode::InvalidTxnState
        }
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        // Every client retries this code.
        ErrorCode::ConcurrentTransactions if version < FIRST_VERSION_THAT_ADDS => {
            ErrorCode::CoordinatorLoadInProgress
        }
        code => code,
    }
}

fn commit(
    node: &Node,
    caller: &Caller<'_>,
    body: &TxnOffsetCommitRequest<'_>,
    (group, ticket): (GrantedGroup<'_>, ottla_log::Ticket),
    version: i16,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let commit = resolve(&image, caller, body);
    // Needed again only for the rare refusal.
    let unanswered = refuse(&commit, ErrorCode::None);
    let producer = (body.producer_id, body.producer_epoch);
    let call = node
        .groups
        .commit_in_transaction(&node.storage, group, commit, producer, ticket);
    reply_with(node, call, unanswered, version, reply)
}

fn refuse_all(
    node: &Node,
    caller: &Caller<'_>,
    body: &TxnOffsetCommitRequest<'_>,
    error: ErrorCode,
    version: i16,
    reply: &mut ReplyBuffer,
) -> Handled {
    let image = node.image();
    let unanswered = refuse(&resolve(&image, caller, body), ErrorCode::None);
    reply_with(node, Call::answered(Err(error)), unanswered, version, reply)
}

fn reply_with(
    node: &Node,
    call: Call,
    unanswered: Vec<CommittedTopic>,
    version: i16,
    reply: &mut ReplyBuffer,
) -> Handled {
    reply_when_answered(node, vec![call], reply, move |_, mut answers, reply| {
        let topics = match answers.pop() {
            Some(Ok(GroupReply::OffsetCommit(topics))) => topics,
            Some(Err(error)) => with_error(unanswered, error),
            _ => with_error(unanswered, ErrorCode::UnknownServerError),
        };
        encode(&topics, version, reply);
    })
}

fn resolve<'a>(
    image: &'a MetadataImage,
    caller: &Caller<'_>,
    body: &TxnOffsetCommitRequest<'a>,
) -> OffsetCommitRequest<'a> {
    OffsetCommitRequest {
        member: MemberRequest {
            group_id: body.group_id,
            generation_id: body.generation_id,
            member_id: body.member_id,
            group_instance_id: body.group_instance_id,
        },
        is_transactional: true,
        knows_group_id_not_found: false,
        retention_ms: None,
        topics: body
            .topics
            .iter()
            .map(|topic| resolve_topic(image, caller, topic))
            .collect(),
    }
}

fn resolve_topic<'a>(
    image: &'a MetadataImage,
    caller: &Caller<'_>,
    topic: &TxnOffsetCommitRequestTopic<'a>,
) -> OffsetCommitTopic<'a> {
    let known = image.topic(topic.name);
    let denied = caller.topic(Operation::Read, topic.name).err();
    let error_of = |partition: i32| match known {
        _ if let Some(denied) = denied => denied,
        Some(known) if known.partition(partition).is_some() => ErrorCode::None,
        _ => ErrorCode::UnknownTopicOrPartition,
    };
    let partitions = topic.partitions.iter().map(|partition| OffsetCommitPartition {
        partition: partition.partition_index,
        offset: partition.committed_offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: partition.committed_metadata.unwrap_or(""),
        error: error_of(partition.partition_index),
    });
    OffsetCommitTopic {
        name: topic.name,
        topic_id: known.map_or_else(Default::default, |known| known.id),
        partitions: partitions.collect(),
    }
}

fn encode(topics: &[CommittedTopic], version: i16, reply: &mut ReplyBuffer) {
    let code = |error: ErrorCode| match error {
        // The code that the clients of this API know for it.
        ErrorCode::StaleMemberEpoch => ErrorCode::IllegalGeneration,
        error => error,
    };
    let topics = topics.iter().map(|topic| TxnOffsetCommitResponseTopic {
        name: &topic.name,
        partitions: topic
            .partitions
            .iter()
            .map(|(partition, error)| TxnOffsetCommitResponsePartition {
                partition_index: *partition,
                error_code: code(*error).code(),
            })
            .collect(),
    });
    let response = TxnOffsetCommitResponse {
        topics: topics.collect(),
        ..TxnOffsetCommitResponse::default()
    };
    response.encode(&mut reply.bytes, version);
}
