//! Clients that send encoded requests to the simulated broker and remember what was acknowledged.

use std::collections::VecDeque;

use ottla_log::disk::memory::Random;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::oracle::Oracle;
use crate::world::{Call, Outcome, World};

pub const TOPIC: &str = "simulated";

const CREATE_TOPICS_VERSION: i16 = 7;
const INIT_PRODUCER_ID_VERSION: i16 = 4;
const PRODUCE_VERSION: i16 = 11;
const FETCH_VERSION: i16 = 12;

/// Maximum number of a producer's batches in flight for one partition, as in Kafka's clients.
const IN_FLIGHT_MAX: usize = 5;

/// Creates the topic if it does not exist; false if the broker went down meanwhile.
pub fn create_topic(world: &mut World, partition_count: i32) -> bool {
    match try_to_create_topic(world, partition_count) {
        Some(ErrorCode::None | ErrorCode::TopicAlreadyExists) => true,
        Some(code) if world.disk.has_power() => panic!("seed {}: CreateTopics answered {code:?}", world.seed),
        _ => false,
    }
}

/// Returns the answer of CreateTopics; `None` if the broker went down meanwhile.
pub fn try_to_create_topic(world: &mut World, partition_count: i32) -> Option<ErrorCode> {
    // Segments far below the allowed minimum, so that a short run closes many.
    let segment_bytes = CreatableTopicConfig {
        name: "internal.segment.bytes",
        value: Some("4096"),
    };
    let topic = CreatableTopic {
        name: TOPIC,
        num_partitions: partition_count,
        replication_factor: 1,
        configs: vec![segment_bytes],
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, CREATE_TOPICS_VERSION);
    let Outcome::Answer(answer) = world.complete(ApiKey::CreateTopics, CREATE_TOPICS_VERSION, &body) else {
        return None;
    };
    let response =
        CreateTopicsResponse::decode(&mut Reader::new(&answer), CREATE_TOPICS_VERSION).expect("decodes");
    ErrorCode::from_i16(response.topics[0].error_code)
}

/// An idempotent producer (KIP-98) that retries until it is told that a batch is stored.
pub struct Producer {
    number: u64,
    identity: Option<Identity>,
    /// Number in the next record, so that every value is unique.
    next_value: u64,
    partitions: Vec<Lane>,
}

#[derive(Clone, Copy)]
struct Identity {
    producer_id: i64,
    producer_epoch: i16,
}

/// A producer's state for one partition.
#[derive(Default)]
struct Lane {
    next_sequence: i32,
    /// Oldest first. A batch without a call must be sent (again), after those before it.
    unacknowledged: VecDeque<Sent>,
}

struct Sent {
    base_sequence: i32,
    values: Vec<String>,
    call: Option<Call>,
}

impl Producer {
    pub fn new(number: u64, partition_count: i32) -> Producer {
        Producer {
            number,
            identity: None,
            next_value: 0,
            partitions: (0..partition_count).map(|_| Lane::default()).collect(),
        }
    }

    pub fn is_idle(&self) -> bool {
        self.partitions.iter().all(|lane| lane.unacknowledged.is_empty())
    }

    /// Makes a new batch for a random partition.
    pub fn produce(&mut self, random: &mut Random) {
        let index = random.below(self.partitions.len() as u64) as usize;
        let lane = &mut self.partitions[index];
        if lane.unacknowledged.len() >= IN_FLIGHT_MAX {
            return;
        }
        let count = 1 + random.below(4);
        let values = (0..count)
            .map(|nth| format!("{}:{}", self.number, self.next_value + nth))
            .collect();
        self.next_value += count;
        lane.unacknowledged.push_back(Sent {
            base_sequence: lane.next_sequence,
            values,
            call: None,
        });
        lane.next_sequence += count as i32;
    }

    /// Sends pending batches and handles arrived answers.
    pub fn turn(&mut self, world: &mut World, oracle: &mut Oracle) {
        if !world.is_running() {
            return;
        }
        let Some(identity) = self.identity.or_else(|| init_producer_id(world)) else {
            return;
        };
        self.identity = Some(identity);
        for (index, lane) in self.partitions.iter_mut().enumerate() {
            lane.take_answers(index as i32, world, oracle);
            lane.send(index as i32, identity, world);
        }
    }
}

impl Lane {
    fn take_answers(&mut self, index: i32, world: &mut World, oracle: &mut Oracle) {
        let mut keeps = VecDeque::new();
        let mut failed = false;
        for mut sent in std::mem::take(&mut self.unacknowledged) {
            let outcome = sent.call.as_mut().and_then(|call| world.poll(call));
            let answer = match outcome {
                Some(Outcome::Answer(answer)) => Some(produced(&answer)),
                Some(Outcome::Lost(_)) => Some(Err(ErrorCode::NetworkException)),
                None => None,
            };
            match answer {
                Some(Ok(base_offset)) => oracle.acknowledged(index, base_offset, &sent.values),
                Some(Err(error)) => {
                    let is_expected = error.is_retriable() || !world.disk.has_power() || failed;
                    assert!(
                        is_expected,
                        "seed {}: partition {index} answered {error:?}",
                        world.seed
                    );
                    failed = true;
                    sent.call = None;
                    keeps.push_back(sent);
                }
                None => keeps.push_back(sent),
            }
        }
        if failed {
            // As in Kafka's clients: batches after a failed one wait until that was sent again.
            keeps.iter_mut().for_each(|sent| sent.call = None);
        }
        self.unacknowledged = keeps;
    }

    fn send(&mut self, index: i32, identity: Identity, world: &mut World) {
        for sent in self.unacknowledged.iter_mut().filter(|sent| sent.call.is_none()) {
            let body = produce_request(index, identity, sent);
            sent.call = Some(world.call(ApiKey::Produce, PRODUCE_VERSION, &body));
        }
    }
}

/// Produces one record with `acks=all`, without idempotence, and returns its offset.
pub fn produce_once(world: &mut World, index: i32, value: &str) -> Result<i64, ErrorCode> {
    let nobody = Identity {
        producer_id: -1,
        producer_epoch: -1,
    };
    let sent = Sent {
        base_sequence: -1,
        values: vec![value.to_string()],
        call: None,
    };
    match world.complete(
        ApiKey::Produce,
        PRODUCE_VERSION,
        &produce_request(index, nobody, &sent),
    ) {
        Outcome::Answer(answer) => produced(&answer),
        Outcome::Lost(_) => Err(ErrorCode::NetworkException),
    }
}

fn init_producer_id(world: &mut World) -> Option<Identity> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, INIT_PRODUCER_ID_VERSION);
    let Outcome::Answer(answer) = world.complete(ApiKey::InitProducerId, INIT_PRODUCER_ID_VERSION, &body)
    else {
        return None;
    };
    let version = INIT_PRODUCER_ID_VERSION;
    let response = InitProducerIdResponse::decode(&mut Reader::new(&answer), version).expect("decodes");
    (response.error_code == 0).then_some(Identity {
        producer_id: response.producer_id,
        producer_epoch: response.producer_epoch,
    })
}

fn produce_request(index: i32, identity: Identity, sent: &Sent) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: identity.producer_id,
        producer_epoch: identity.producer_epoch,
        base_sequence: sent.base_sequence,
        ..Default::default()
    });
    for value in &sent.values {
        builder.append(1_790_000_000_000, None, Some(value.as_bytes()), &[]);
    }
    let records = builder.finish();
    let partition = PartitionProduceData {
        index,
        records: Some(&records),
    };
    let topic = TopicProduceData {
        name: TOPIC,
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
    };
    let mut body = Vec::new();
    request.encode(&mut body, PRODUCE_VERSION);
    body
}

fn produced(answer: &[u8]) -> Result<i64, ErrorCode> {
    let response = ProduceResponse::decode(&mut Reader::new(answer), PRODUCE_VERSION).expect("decodes");
    let partition = &response.responses[0].partition_responses[0];
    match ErrorCode::from_i16(partition.error_code).expect("a known code") {
        ErrorCode::None => Ok(partition.base_offset),
        error => Err(error),
    }
}

/// Reads offsets and values of a partition from `offset` to the high watermark. `None` if the
/// broker went down.
pub fn read_to_end(world: &mut World, index: i32, mut offset: i64) -> Option<Vec<(i64, String)>> {
    let mut records = Vec::new();
    loop {
        let partition = FetchPartition {
            partition: index,
            fetch_offset: offset,
            partition_max_bytes: 2_000,
            ..Default::default()
        };
        let topic = FetchTopic {
            topic: TOPIC,
            partitions: vec![partition],
            ..Default::default()
        };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 4_000,
            topics: vec![topic],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, FETCH_VERSION);
        let Outcome::Answer(answer) = world.complete(ApiKey::Fetch, FETCH_VERSION, &body) else {
            return None;
        };
        let response = FetchResponse::decode(&mut Reader::new(&answer), FETCH_VERSION).expect("decodes");
        let found = &response.responses[0].partitions[0];
        assert_eq!(
            found.error_code, 0,
            "seed {}: fetch of partition {index} at {offset}",
            world.seed
        );
        let before = offset;
        for batch in batch::batches(found.records.unwrap_or_default()) {
            // The limit may cut the last batch; the next fetch returns it whole.
            let Ok(batch) = batch else { break };
            batch.verify_checksum().expect("stored batches are intact");
            for record in batch.records() {
                let record = record.expect("stored records are intact");
                if record.offset >= before {
                    let value = String::from_utf8(record.value.expect("values are not null").to_vec());
                    records.push((record.offset, value.expect("values are text")));
                }
            }
            offset = batch.header.next_offset();
        }
        if offset >= found.high_watermark {
            return Some(records);
        }
        assert!(
            offset > before,
            "seed {}: fetch of partition {index} at {offset} stands still",
            world.seed
        );
    }
}
