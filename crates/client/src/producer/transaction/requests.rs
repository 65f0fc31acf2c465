//! The requests of a transaction: encoding, versions, and what their answers say.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
};
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::records::batch::{NO_PRODUCER_EPOCH, NO_PRODUCER_ID};

use super::super::sequence::ProducerId;
use super::calls::OffsetsToCommit;
use super::state::{Answer, Ask, Protocol};
use crate::consumer::TopicPartition;
use crate::error::Error;

/// The first version with the expected id and epoch (KIP-360).
const EXPECTED_PRODUCER_VERSION: i16 = 3;
/// Version 6 is not stable.
const INIT_VERSION_MAX: i16 = 5;
/// Later versions are for brokers.
const ADD_PARTITIONS_CLIENT_VERSION_MAX: i16 = 3;
/// The first version with member and generation (KIP-447).
const MEMBER_VERSION: i16 = 3;
/// The first version of TxnOffsetCommit and of EndTxn that belongs to `transaction.version` 2.
const IMPLICIT_VERSION: i16 = 5;

/// The producer in whose name a request is sent: its transactional id, producer id and epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub transactional_id: &'a str,
    pub timeout_ms: i32,
    pub producer: Option<ProducerId>,
}

pub(super) fn api_key(ask: &Ask) -> ApiKey {
    match ask {
        Ask::Init { .. } => ApiKey::InitProducerId,
        Ask::AddPartitions(_) => ApiKey::AddPartitionsToTxn,
        Ask::AddOffsets(_) => ApiKey::AddOffsetsToTxn,
        Ask::CommitOffsets(_) => ApiKey::TxnOffsetCommit,
        Ask::End { .. } => ApiKey::EndTxn,
    }
}

/// The versions that may be used, lowest and highest.
pub(super) fn versions(ask: &Ask, protocol: Protocol) -> (i16, i16) {
    let is_implicit = protocol == Protocol::Implicit;
    match ask {
        Ask::Init { expected: None } => (0, INIT_VERSION_MAX),
        Ask::Init { expected: Some(_) } => (EXPECTED_PRODUCER_VERSION, INIT_VERSION_MAX),
        Ask::AddPartitions(_) => (0, ADD_PARTITIONS_CLIENT_VERSION_MAX),
        Ask::AddOffsets(_) => (0, i16::MAX),
        Ask::CommitOffsets(_) | Ask::End { .. } if is_implicit => (IMPLICIT_VERSION, IMPLICIT_VERSION),
        // An older broker would not check the member.
        Ask::CommitOffsets(offsets) if offsets.has_member() => (MEMBER_VERSION, IMPLICIT_VERSION - 1),
        Ask::CommitOffsets(_) | Ask::End { .. } => (0, IMPLICIT_VERSION - 1),
    }
}

impl OffsetsToCommit {
    fn has_member(&self) -> bool {
        !self.group.member_id.is_empty() || self.group.group_instance_id.is_some()
    }
}

pub(super) fn encode(ask: &Ask, sender: Sender<'_>, version: i16) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    let transactional_id = sender.transactional_id;
    let used = sender.producer.unwrap_or(NO_PRODUCER);
    match ask {
        Ask::Init { expected } => {
            let expected = expected.unwrap_or(NO_PRODUCER);
            InitProducerIdRequest {
                transactional_id: Some(transactional_id),
                transaction_timeout_ms: sender.timeout_ms,
                producer_id: expected.id,
                producer_epoch: expected.epoch,
            }
            .encode(&mut body, version);
        }
        Ask::AddPartitions(partitions) => AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: transactional_id,
            v3_and_below_producer_id: used.id,
            v3_and_below_producer_epoch: used.epoch,
            v3_and_below_topics: partitions
                .chunk_by(|one, other| one.0 == other.0)
                .map(|chunk| AddPartitionsToTxnTopic {
                    name: &chunk[0].0,
                    partitions: chunk.iter().map(|(_, partition)| *partition).collect(),
                })
                .collect(),
            ..Default::default()
        }
        .encode(&mut body, version),
        Ask::AddOffsets(offsets) => AddOffsetsToTxnRequest {
            transactional_id,
            producer_id: used.id,
            producer_epoch: used.epoch,
            group_id: &offsets.group.group_id,
        }
        .encode(&mut body, version),
        Ask::CommitOffsets(offsets) => {
            commit_offsets(offsets, transactional_id, used, version).encode(&mut body, version);
        }
        Ask::End { is_commit } => EndTxnRequest {
            transactional_id,
            producer_id: used.id,
            producer_epoch: used.epoch,
            committed: *is_commit,
        }
        .encode(&mut body, version),
    }
    body
}

const NO_PRODUCER: ProducerId = ProducerId {
    id: NO_PRODUCER_ID,
    epoch: NO_PRODUCER_EPOCH,
};

fn commit_offsets<'a>(
    offsets: &'a OffsetsToCommit,
    transactional_id: &'a str,
    used: ProducerId,
    version: i16,
) -> TxnOffsetCommitRequest<'a> {
    let all: Vec<_> = offsets.offsets.iter().collect();
    let topics = all.chunk_by(|one, other| one.0.topic == other.0.topic);
    let mut request = TxnOffsetCommitRequest {
        transactional_id,
        group_id: &offsets.group.group_id,
        producer_id: used.id,
        producer_epoch: used.epoch,
        topics: topics
            .map(|chunk| TxnOffsetCommitRequestTopic {
                name: &chunk[0].0.topic,
                partitions: chunk
                    .iter()
                    .map(|(name, offset)| TxnOffsetCommitRequestPartition {
                        partition_index: name.partition,
                        committed_offset: offset.offset,
                        committed_leader_epoch: offset.leader_epoch.filter(|_| version >= 2).unwrap_or(-1),
                        committed_metadata: Some(&offset.metadata),
                    })
                    .collect(),
            })
            .collect(),
        ..Default::default()
    };
    if version >= MEMBER_VERSION {
        request.generation_id = offsets.group.generation_id;
        request.member_id = &offsets.group.member_id;
        request.group_instance_id = offsets.group.group_instance_id.as_deref();
    }
    request
}

/// An answer and the pause that the broker asks for.
pub(super) struct Decoded {
    pub throttle_time_ms: i32,
    pub result: Result<Answer, Error>,
}

/// - Errors: the answer cannot be decoded.
pub(super) fn decode(
    ask: &Ask,
    transactional_id: &str,
    body: &Bytes,
    version: i16,
) -> Result<Decoded, DecodeError> {
    let mut reader = Reader::new(body);
    let what = || -> Arc<str> { format!("transaction of {transactional_id}").into() };
    let check = |code: i16| Error::from_code(code, what).map_or(Ok(()), Err);
    Ok(match ask {
        Ask::Init { .. } => {
            let answer = InitProducerIdResponse::decode(&mut reader, version)?;
            let producer = ProducerId {
                id: answer.producer_id,
                epoch: answer.producer_epoch,
            };
            let result =
                check(answer.error_code).and_then(|()| match producer.id >= 0 && producer.epoch >= 0 {
                    true => Ok(Answer::Initialized(producer)),
                    false => Err(Error::Malformed {
                        address: "transaction coordinator".into(),
                        reason: format!("producer id {} and epoch {}", producer.id, producer.epoch).into(),
                    }),
                });
            Decoded {
                throttle_time_ms: answer.throttle_time_ms,
                result,
            }
        }
        Ask::AddPartitions(_) => {
            let answer = AddPartitionsToTxnResponse::decode(&mut reader, version)?;
            let results = answer.results_by_topic_v3_and_below.iter().flat_map(|topic| {
                topic.results_by_partition.iter().map(|partition| {
                    let index = partition.partition_index;
                    let what =
                        || format!("{}-{index} in a transaction of {transactional_id}", topic.name).into();
                    let error = Error::from_code(partition.partition_error_code, what);
                    ((Arc::from(topic.name), index), error)
                })
            });
            Decoded {
                throttle_time_ms: answer.throttle_time_ms,
                result: Ok(Answer::PartitionsAdded(results.collect())),
            }
        }
        Ask::AddOffsets(_) => {
            let answer = AddOffsetsToTxnResponse::decode(&mut reader, version)?;
            Decoded {
                throttle_time_ms: answer.throttle_time_ms,
                result: check(answer.error_code).map(|()| Answer::OffsetsAdded),
            }
        }
        Ask::CommitOffsets(offsets) => {
            let answer = TxnOffsetCommitResponse::decode(&mut reader, version)?;
            Decoded {
                throttle_time_ms: answer.throttle_time_ms,
                result: committed(offsets, &answer),
            }
        }
        Ask::End { .. } => {
            let answer = EndTxnResponse::decode(&mut reader, version)?;
            let next = (answer.producer_id >= 0 && answer.producer_epoch >= 0).then_some(ProducerId {
                id: answer.producer_id,
                epoch: answer.producer_epoch,
            });
            Decoded {
                throttle_time_ms: answer.throttle_time_ms,
                result: check(answer.error_code).map(|()| Answer::Ended(next)),
            }
        }
    })
}

/// The first refusal that does not go away by asking again, else the first.
fn committed(offsets: &OffsetsToCommit, answer: &TxnOffsetCommitResponse<'_>) -> Result<Answer, Error> {
    let mut refusal: Option<Error> = None;
    let mut answered = 0;
    for topic in &answer.topics {
        for partition in &topic.partitions {
            let name = TopicPartition::new(topic.name, partition.partition_index);
            answered += usize::from(offsets.offsets.contains_key(&name));
            let what = || format!("offset of {name} in group {}", offsets.group.group_id).into();
            let Some(error) = Error::from_code(partition.error_code, what) else {
                continue;
            };
            if refusal
                .as_ref()
                .is_none_or(|first| first.is_retriable() && !error.is_retriable())
            {
                refusal = Some(error);
            }
        }
    }
    match refusal {
        Some(error) => Err(error),
        None if answered < offsets.offsets.len() => Err(Error::Malformed {
            address: "group coordinator".into(),
            reason: format!(
                "TxnOffsetCommit: {answered} of {} partitions are answered",
                offsets.offsets.len()
            )
            .into(),
        }),
        None => Ok(Answer::OffsetsCommitted),
    }
}
