//! Fills a directory with data of every kind, knows what must be found there, and reads it back:
//! the same for a simulated broker and for a process.

use std::collections::{BTreeMap, BTreeSet};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use ottla_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::world::{Outcome, World};

/// A broker that answers encoded requests.
pub trait Caller {
    /// Returns the answer's body.
    fn answer(&mut self, api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8>;

    /// Lets time pass until checkpoints were written, and compaction and retention have run.
    fn settle(&mut self);

    /// Waits for a moment.
    fn pause(&mut self);
}

impl Caller for World {
    fn answer(&mut self, api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
        match self.complete(api_key, version, body) {
            Outcome::Answer(answer) => answer,
            Outcome::Lost(reason) => panic!("seed {}: {api_key}: {reason}", self.seed),
        }
    }

    fn settle(&mut self) {
        for _ in 0..130 {
            self.clock.advance(1_000_000);
            self.maintain();
            while self.step() {}
        }
    }

    fn pause(&mut self) {
        self.step();
    }
}

/// Topic and partition index.
pub type Place = (&'static str, i32);

/// A topic with retention by time and size, from which a client has deleted some records.
pub const ORDERS: &str = "orders";
/// A compacted topic: the last value of each key stays.
pub const USERS: &str = "users";
pub const PLACES: [Place; 3] = [(ORDERS, 0), (ORDERS, 1), (USERS, 0)];
pub const GROUPS: [&str; 3] = ["billing", "search", "audit"];

/// What was acknowledged to clients.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Every acknowledged record that was not deleted.
    pub records: BTreeMap<Place, BTreeMap<i64, String>>,
    /// Deleted by a client; may be there again after a crash before the checkpoint.
    pub deleted: BTreeMap<Place, BTreeSet<i64>>,
    /// The offset that each group committed for the first partition of `orders`.
    pub commits: BTreeMap<&'static str, i64>,
}

/// What was read from one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub records: BTreeMap<i64, String>,
    /// Offsets that cannot be read, with the error code of the answer.
    pub unreadable: BTreeMap<i64, ErrorCode>,
    /// Set if nothing can be read.
    pub refusal: Option<ErrorCode>,
}

const CREATE_TOPICS_VERSION: i16 = 7;
const DELETE_TOPICS_VERSION: i16 = 5;
const DELETE_RECORDS_VERSION: i16 = 2;
const INIT_PRODUCER_ID_VERSION: i16 = 4;
const PRODUCE_VERSION: i16 = 11;
const FETCH_VERSION: i16 = 12;
const LIST_OFFSETS_VERSION: i16 = 5;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const OFFSET_COMMIT_VERSION: i16 = 8;
const OFFSET_FETCH_VERSION: i16 = 8;

/// Fills an empty directory: closed segments, a compacted topic, groups, a deleted topic, records
/// deleted by a client.
pub fn fill(broker: &mut impl Caller) -> Expected {
    let mut expected = Expected::default();
    create(
        broker,
        ORDERS,
        2,
        &[("internal.segment.bytes", "4096"), ("retention.ms", "-1")],
    );
    create(
        broker,
        USERS,
        1,
        &[
            ("internal.segment.bytes", "4096"),
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
        ],
    );
    create(broker, "gone", 1, &[]);
    let mut producer = Producer::new(broker);
    for round in 0..60 {
        for place in PLACES {
            produce_some(broker, &mut producer, place, round, &mut expected);
        }
        if round == 0 {
            // The first one's only batches have sequence 0, as those of any new producer.
            producer = Producer::new(broker);
        }
        if round % 10 == 0 {
            broker.settle();
        }
        for (index, group) in GROUPS.into_iter().enumerate() {
            if round % (index + 2) == 0 {
                commit(broker, group, round as i64).expect("groups are served");
                expected.commits.insert(group, round as i64);
            }
        }
    }
    delete_records(broker, (ORDERS, 1), 40, &mut expected);
    delete_topic(broker, "gone");
    broker.settle();
    // Written after the last checkpoint.
    for round in 60..63 {
        for place in PLACES {
            produce_some(broker, &mut producer, place, round, &mut expected);
        }
        commit(broker, GROUPS[0], round as i64).expect("groups are served");
        expected.commits.insert(GROUPS[0], round as i64);
    }
    expected
}

/// Creates a topic with one partition and no settings.
pub fn create_topic(broker: &mut impl Caller, name: &str) {
    create(broker, name, 1, &[]);
}

fn create(broker: &mut impl Caller, name: &str, partition_count: i32, configs: &[(&str, &str)]) {
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name,
        value: Some(value),
    });
    let topic = CreatableTopic {
        name,
        num_partitions: partition_count,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, CREATE_TOPICS_VERSION);
    let answer = broker.answer(ApiKey::CreateTopics, CREATE_TOPICS_VERSION, &body);
    let response = CreateTopicsResponse::decode(&mut Reader::new(&answer), CREATE_TOPICS_VERSION);
    assert_eq!(response.expect("decodes").topics[0].error_code, 0, "{name}");
}

pub fn delete_topic(broker: &mut impl Caller, name: &str) {
    let request = DeleteTopicsRequest {
        topics: Vec::<DeleteTopicState<'_>>::new(),
        topic_names: vec![name],
        timeout_ms: 10_000,
    };
    let mut body = Vec::new();
    request.encode(&mut body, DELETE_TOPICS_VERSION);
    broker.answer(ApiKey::DeleteTopics, DELETE_TOPICS_VERSION, &body);
}

fn delete_records(broker: &mut impl Caller, place: Place, before: i64, expected: &mut Expected) {
    let partition = DeleteRecordsPartition {
        partition_index: place.1,
        offset: before,
    };
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: place.0,
            partitions: vec![partition],
        }],
        timeout_ms: 10_000,
    };
    let mut body = Vec::new();
    request.encode(&mut body, DELETE_RECORDS_VERSION);
    let answer = broker.answer(ApiKey::DeleteRecords, DELETE_RECORDS_VERSION, &body);
    let response = DeleteRecordsResponse::decode(&mut Reader::new(&answer), DELETE_RECORDS_VERSION);
    assert_eq!(response.expect("decodes").topics[0].partitions[0].error_code, 0);
    let records = expected.records.entry(place).or_default();
    let kept = records.split_off(&before);
    let deleted = std::mem::replace(records, kept);
    expected.deleted.entry(place).or_default().extend(deleted.keys());
}

fn produce_some(
    broker: &mut impl Caller,
    producer: &mut Producer,
    place: Place,
    round: usize,
    expected: &mut Expected,
) {
    let keys = ["a", "b", "c"];
    let values: Vec<(String, String)> = (0..1 + round % 4)
        .map(|nth| {
            let key = keys[(round + nth) % keys.len()].to_owned();
            let padding = "x".repeat(20 + (round * 37 + nth * 11) % 200);
            (key, format!("{round}.{nth} {padding}"))
        })
        .collect();
    let base_offset = producer
        .produce(broker, place, &values)
        .expect("intact partitions take records");
    let records = expected.records.entry(place).or_default();
    for (offset, (key, value)) in (base_offset..).zip(values) {
        if place.0 == USERS {
            let prefix = format!("{key}=");
            records.retain(|_, known| !known.starts_with(&prefix));
        }
        records.insert(offset, format!("{key}={value}"));
    }
}

/// Produces as a new producer; returns the first offset.
pub fn produce(
    broker: &mut impl Caller,
    place: Place,
    values: &[(String, String)],
) -> Result<i64, ErrorCode> {
    Producer::new(broker).produce(broker, place, values)
}

/// An idempotent producer: a broker that takes it for another one refuses its batches, or
/// acknowledges them without an append.
struct Producer {
    id: i64,
    epoch: i16,
    next_sequences: BTreeMap<Place, i32>,
}

impl Producer {
    fn new(broker: &mut impl Caller) -> Producer {
        let request = InitProducerIdRequest {
            transactional_id: None,
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, INIT_PRODUCER_ID_VERSION);
        for _ in 0..1_000 {
            let answer = broker.answer(ApiKey::InitProducerId, INIT_PRODUCER_ID_VERSION, &body);
            let response =
                InitProducerIdResponse::decode(&mut Reader::new(&answer), INIT_PRODUCER_ID_VERSION)
                    .expect("decodes");
            match code(response.error_code) {
                ErrorCode::None => {
                    return Producer {
                        id: response.producer_id,
                        epoch: response.producer_epoch,
                        next_sequences: BTreeMap::new(),
                    };
                }
                // Apache Kafka asks its controller for ids when the first one is wanted.
                error if is_coming(error) => broker.pause(),
                error => panic!("no producer id: {error}"),
            }
        }
        panic!("no producer id comes")
    }

    /// Returns the first offset.
    fn produce(
        &mut self,
        broker: &mut impl Caller,
        place: Place,
        values: &[(String, String)],
    ) -> Result<i64, ErrorCode> {
        let sequence = self.next_sequences.entry(place).or_default();
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id: self.id,
            producer_epoch: self.epoch,
            base_sequence: *sequence,
            ..BatchOptions::default()
        });
        for (key, value) in values {
            builder.append(
                1_790_000_000_000,
                Some(key.as_bytes()),
                Some(value.as_bytes()),
                &[],
            );
        }
        *sequence += i32::try_from(values.len()).expect("few");
        send(broker, place, &builder.finish())
    }
}

fn send(broker: &mut impl Caller, place: Place, records: &[u8]) -> Result<i64, ErrorCode> {
    let partition = PartitionProduceData {
        index: place.1,
        records: Some(records),
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: place.0,
            partition_data: vec![partition],
            ..Default::default()
        }],
    };
    let mut body = Vec::new();
    request.encode(&mut body, PRODUCE_VERSION);
    let answer = broker.answer(ApiKey::Produce, PRODUCE_VERSION, &body);
    let response = ProduceResponse::decode(&mut Reader::new(&answer), PRODUCE_VERSION).expect("decodes");
    let partition = &response.responses[0].partition_responses[0];
    match code(partition.error_code) {
        ErrorCode::None => Ok(partition.base_offset),
        error => Err(error),
    }
}

fn commit(broker: &mut impl Caller, group: &'static str, offset: i64) -> Result<(), ErrorCode> {
    for _ in 0..1_000 {
        let request = OffsetCommitRequest {
            group_id: group,
            generation_id_or_member_epoch: -1,
            topics: vec![OffsetCommitRequestTopic {
                name: ORDERS,
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: 0,
                    committed_offset: offset,
                    committed_metadata: Some(""),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, OFFSET_COMMIT_VERSION);
        let answer = broker.answer(ApiKey::OffsetCommit, OFFSET_COMMIT_VERSION, &body);
        let response = OffsetCommitResponse::decode(&mut Reader::new(&answer), OFFSET_COMMIT_VERSION);
        match code(response.expect("decodes").topics[0].partitions[0].error_code) {
            ErrorCode::None => return Ok(()),
            error if is_coming(error) => {
                find_coordinator(broker, group);
                broker.pause();
            }
            error => return Err(error),
        }
    }
    Err(ErrorCode::CoordinatorNotAvailable)
}

/// Returns the offset that a group has committed; `None` if it has none.
pub fn committed(broker: &mut impl Caller, group: &'static str) -> Result<Option<i64>, ErrorCode> {
    let mut last = ErrorCode::CoordinatorNotAvailable;
    for _ in 0..1_000 {
        let topics = vec![OffsetFetchRequestTopics {
            name: ORDERS,
            partition_indexes: vec![0],
            ..Default::default()
        }];
        let request = OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: group,
                topics: Some(topics),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, OFFSET_FETCH_VERSION);
        let answer = broker.answer(ApiKey::OffsetFetch, OFFSET_FETCH_VERSION, &body);
        let response = OffsetFetchResponse::decode(&mut Reader::new(&answer), OFFSET_FETCH_VERSION);
        let response = response.expect("decodes");
        let found = &response.groups[0];
        match code(found.error_code) {
            ErrorCode::None => {
                let offset = found.topics[0].partitions[0].committed_offset;
                return Ok((offset >= 0).then_some(offset));
            }
            error if is_coming(error) => {
                last = error;
                find_coordinator(broker, group);
                broker.pause();
            }
            error => return Err(error),
        }
    }
    Err(last)
}

fn is_coming(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::CoordinatorLoadInProgress | ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable
    )
}

fn find_coordinator(broker: &mut impl Caller, group: &'static str) {
    let request = ottla_wire::messages::find_coordinator::FindCoordinatorRequest {
        key: group,
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 1);
    broker.answer(ApiKey::FindCoordinator, 1, &body);
}

/// Reads a partition from start to end, skipping unreadable offsets.
///
/// - Errors: the broker returned something that it must not return.
pub fn read(broker: &mut impl Caller, place: Place) -> Result<Found, String> {
    let mut found = Found::default();
    let bounds =
        offset_at(broker, place, EARLIEST).and_then(|start| Ok((start, offset_at(broker, place, LATEST)?)));
    let (mut offset, end) = match bounds {
        Ok(bounds) => bounds,
        Err(error) => {
            found.refusal = Some(error);
            return Ok(found);
        }
    };
    while offset < end {
        let partition = FetchPartition {
            partition: place.1,
            fetch_offset: offset,
            partition_max_bytes: 1_500,
            ..Default::default()
        };
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 3_000,
            topics: vec![FetchTopic {
                topic: place.0,
                partitions: vec![partition],
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut body = Vec::new();
        request.encode(&mut body, FETCH_VERSION);
        let answer = broker.answer(ApiKey::Fetch, FETCH_VERSION, &body);
        let response = FetchResponse::decode(&mut Reader::new(&answer), FETCH_VERSION).expect("decodes");
        let partition = &response.responses[0].partitions[0];
        match code(partition.error_code) {
            ErrorCode::None => {}
            error @ (ErrorCode::CorruptMessage | ErrorCode::KafkaStorageError) => {
                found.unreadable.insert(offset, error);
                offset += 1;
                continue;
            }
            error => {
                found.refusal = Some(error);
                return Ok(found);
            }
        }
        let before = offset;
        for batch in batch::batches(partition.records.unwrap_or_default()) {
            let Ok(batch) = batch else { break };
            batch
                .verify_checksum()
                .map_err(|error| format!("{place:?} gives out a damaged batch at {offset}: {error}"))?;
            for record in batch.records() {
                let record = record.expect("records of an intact batch are intact");
                if record.offset >= before {
                    let text = |bytes: Option<&[u8]>| {
                        String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
                    };
                    let line = format!("{}={}", text(record.key), text(record.value));
                    found.records.insert(record.offset, line);
                }
            }
            offset = batch.header.next_offset();
        }
        if offset == before {
            return Err(format!("{place:?} gives out nothing at {offset}"));
        }
    }
    Ok(found)
}

/// Returns the answer of ListOffsets for a timestamp, or for a special value such as -1.
fn offset_at(broker: &mut impl Caller, place: Place, timestamp: i64) -> Result<i64, ErrorCode> {
    let partition = ListOffsetsPartition {
        partition_index: place.1,
        timestamp,
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: place.0,
            partitions: vec![partition],
        }],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, LIST_OFFSETS_VERSION);
    let answer = broker.answer(ApiKey::ListOffsets, LIST_OFFSETS_VERSION, &body);
    let response =
        ListOffsetsResponse::decode(&mut Reader::new(&answer), LIST_OFFSETS_VERSION).expect("decodes");
    let partition = &response.topics[0].partitions[0];
    match code(partition.error_code) {
        ErrorCode::None => Ok(partition.offset),
        error => Err(error),
    }
}

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).expect("a known code")
}
