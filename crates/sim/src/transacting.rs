//! A transactional producer that sends encoded requests to a simulated broker, and stops when the
//! broker loses power.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::find_coordinator::FindCoordinatorRequest;
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::client::TOPIC;
use crate::inhabited::{code, is_coming};
use crate::world::{Outcome, World};

/// After this a transaction that its producer has left is aborted.
pub const TIMEOUT_MS: i32 = 60_000;

const ID: &str = "billing";
const INIT_PRODUCER_ID_VERSION: i16 = 5;
const ADD_PARTITIONS_VERSION: i16 = 3;

/// A client by its versions: since KIP-890, or before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    New,
    Old,
}

impl Kind {
    fn produce_version(self) -> i16 {
        match self {
            Kind::New => 12,
            Kind::Old => 9,
        }
    }

    fn end_version(self) -> i16 {
        match self {
            Kind::New => 5,
            Kind::Old => 4,
        }
    }
}

/// Every call returns `None` if the broker went down.
#[derive(Clone, Debug)]
pub struct TransactionalProducer {
    kind: Kind,
    producer_id: i64,
    producer_epoch: i16,
    /// Of the next record, by partition.
    sequences: BTreeMap<i32, i32>,
}

impl TransactionalProducer {
    pub fn init(world: &mut World, kind: Kind) -> Option<TransactionalProducer> {
        let version = INIT_PRODUCER_ID_VERSION;
        let request = InitProducerIdRequest {
            transactional_id: Some(ID),
            transaction_timeout_ms: TIMEOUT_MS,
            producer_id: -1,
            producer_epoch: -1,
        };
        ask(
            world,
            ApiKey::InitProducerId,
            version,
            |body| request.encode(body, version),
            |answer| {
                let response =
                    InitProducerIdResponse::decode(&mut Reader::new(answer), version).expect("decodes");
                let producer = TransactionalProducer {
                    kind,
                    producer_id: response.producer_id,
                    producer_epoch: response.producer_epoch,
                    sequences: BTreeMap::new(),
                };
                (response.error_code, producer)
            },
        )
    }

    /// Sends a record to each of the partitions.
    pub fn send(&mut self, world: &mut World, partitions: &[i32], value: &str) -> Option<()> {
        if self.kind == Kind::Old {
            self.add(world, partitions)?;
        }
        let version = self.kind.produce_version();
        let batches: Vec<(i32, Vec<u8>)> = partitions
            .iter()
            .map(|index| (*index, self.batch(*index, value)))
            .collect();
        let data = batches.iter().map(|(index, records)| PartitionProduceData {
            index: *index,
            records: Some(records),
        });
        let request = ProduceRequest {
            transactional_id: Some(ID),
            acks: -1,
            timeout_ms: 30_000,
            topic_data: vec![TopicProduceData {
                name: TOPIC,
                partition_data: data.collect(),
                ..Default::default()
            }],
        };
        ask(
            world,
            ApiKey::Produce,
            version,
            |body| request.encode(body, version),
            |answer| {
                let response = ProduceResponse::decode(&mut Reader::new(answer), version).expect("decodes");
                let answers = response.responses[0].partition_responses.iter();
                (first_error(answers.map(|answer| answer.error_code)), ())
            },
        )?;
        for index in partitions {
            *self.sequences.entry(*index).or_default() += 1;
        }
        Some(())
    }

    fn batch(&self, index: i32, value: &str) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.sequences.get(&index).copied().unwrap_or(0),
            is_transactional: true,
            ..BatchOptions::default()
        });
        builder.append(1_790_000_000_000, None, Some(value.as_bytes()), &[]);
        builder.finish()
    }

    fn add(&self, world: &mut World, partitions: &[i32]) -> Option<()> {
        let version = ADD_PARTITIONS_VERSION;
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: ID,
            v3_and_below_producer_id: self.producer_id,
            v3_and_below_producer_epoch: self.producer_epoch,
            v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                name: TOPIC,
                partitions: partitions.to_vec(),
            }],
            ..Default::default()
        };
        ask(
            world,
            ApiKey::AddPartitionsToTxn,
            version,
            |body| request.encode(body, version),
            |answer| {
                let response =
                    AddPartitionsToTxnResponse::decode(&mut Reader::new(answer), version).expect("decodes");
                let results = response.results_by_topic_v3_and_below[0]
                    .results_by_partition
                    .iter();
                (first_error(results.map(|result| result.partition_error_code)), ())
            },
        )
    }

    pub fn end(&mut self, world: &mut World, committed: bool) -> Option<()> {
        let version = self.kind.end_version();
        let body = self.end_request(committed);
        let next = ask(
            world,
            ApiKey::EndTxn,
            version,
            |all| all.extend(&body),
            |answer| {
                let response = EndTxnResponse::decode(&mut Reader::new(answer), version).expect("decodes");
                (
                    response.error_code,
                    (response.producer_id, response.producer_epoch),
                )
            },
        )?;
        if self.kind == Kind::New {
            (self.producer_id, self.producer_epoch) = next;
            self.sequences.clear();
        }
        Some(())
    }

    /// Sends the end of the transaction, and leaves before anything else happens.
    pub fn ask_for_end(&self, world: &mut World, committed: bool) {
        world.call(
            ApiKey::EndTxn,
            self.kind.end_version(),
            &self.end_request(committed),
        );
    }

    fn end_request(&self, committed: bool) -> Vec<u8> {
        let request = EndTxnRequest {
            transactional_id: ID,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            committed,
        };
        let mut body = Vec::new();
        request.encode(&mut body, self.kind.end_version());
        body
    }
}

fn first_error(mut codes: impl Iterator<Item = i16>) -> i16 {
    codes.find(|code| *code != 0).unwrap_or(0)
}

/// Sends a request until it is answered without an error; other errors than those of a coordinator
/// that is coming are the broker's fault.
fn ask<T>(
    world: &mut World,
    api_key: ApiKey,
    version: i16,
    encode: impl FnOnce(&mut Vec<u8>),
    decode: impl Fn(&[u8]) -> (i16, T),
) -> Option<T> {
    let mut body = Vec::new();
    encode(&mut body);
    for _ in 0..10_000 {
        let Outcome::Answer(answer) = world.complete(api_key, version, &body) else {
            return None;
        };
        let (error, value) = decode(&answer);
        match code(error) {
            ErrorCode::None => return Some(value),
            _ if !world.disk.has_power() => {}
            error if is_coming(error) => find(world),
            error => panic!("seed {}: {api_key} answered {error:?}", world.seed),
        }
        world.step();
    }
    panic!("seed {}: {api_key} does not succeed", world.seed);
}

/// Asks for the coordinator, which creates its topic.
fn find(world: &mut World) {
    let request = FindCoordinatorRequest {
        key: ID,
        key_type: 1,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 1);
    world.complete(ApiKey::FindCoordinator, 1, &body);
}
