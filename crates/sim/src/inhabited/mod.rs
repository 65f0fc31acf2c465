//! Fills a directory with data of every kind, knows what must be found there, and reads it back:
//! the same for a simulated broker and for a process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ottla_core::time::Clock;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};
use ottla_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_wire::messages::fetch::{
    AbortedTransaction, FetchPartition, FetchRequest, FetchResponse, FetchTopic,
};
use ottla_wire::messages::find_coordinator::FindCoordinatorRequest;
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
use ottla_wire::records::batch::{self, Batch};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::world::{Outcome, World};

pub mod access;
pub mod members;
pub mod producers;

use producers::{Producer, Producers, Transaction};

/// A broker that answers encoded requests.
pub trait Caller {
    /// Returns the answer's body.
    fn answer(&mut self, api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8>;

    /// Lets time pass until checkpoints were written, and compaction and retention have run.
    fn settle(&mut self);

    /// Waits for a moment.
    fn pause(&mut self);

    /// The time of new records: producers of old records are forgotten.
    fn now_ms(&self) -> i64;
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

    fn now_ms(&self) -> i64 {
        self.clock.timestamp().0
    }
}

/// Topic and partition index.
pub type Place = (&'static str, i32);

/// A topic with retention by time and size, from which a client has deleted some records.
pub const ORDERS: &str = "orders";
/// A compacted topic: the last value of each key stays.
pub const USERS: &str = "users";
/// A topic of one producer with an id and sequence numbers.
pub const LEDGER: &str = "ledger";
/// A topic of transactions.
pub const PAYMENTS: &str = "payments";
pub const PLACES: [Place; 7] = [
    (ORDERS, 0),
    (ORDERS, 1),
    (USERS, 0),
    (LEDGER, 0),
    (PAYMENTS, 0),
    (PAYMENTS, 1),
    (PAYMENTS, 2),
];
/// What producers without ids write to.
const PLAIN: [Place; 3] = [(ORDERS, 0), (ORDERS, 1), (USERS, 0)];
/// Groups that commit without members, and one of the consumer protocol.
pub const GROUPS: [&str; 4] = ["billing", "search", "audit", MEMBERS];
/// The group with a member.
pub(crate) const MEMBERS: &str = "members";

/// What was acknowledged to clients.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Every acknowledged record that was not deleted.
    pub records: BTreeMap<Place, BTreeMap<i64, String>>,
    /// Deleted by a client; may be there again after a crash before the checkpoint.
    pub deleted: BTreeMap<Place, BTreeSet<i64>>,
    /// The offset that each group committed for the first partition of `orders`.
    pub commits: BTreeMap<&'static str, i64>,
    pub transactions: Vec<Transaction>,
    /// Every producer id that was given out.
    pub producer_ids: BTreeSet<i64>,
    /// The producer of `ledger`, which goes on after the damage.
    pub ledger: Option<Producer>,
    /// Its last batch, and the first offset of it.
    pub last_of_ledger: (Vec<(String, String)>, i64),
    /// What describes the member of the consumer protocol.
    pub members: String,
    /// Rules, quotas and users, as described.
    pub access: Vec<String>,
}

/// What a reader of a partition wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    Uncommitted = 0,
    Committed = 1,
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
const PRODUCE_VERSION: i16 = 11;
const FETCH_VERSION: i16 = 12;
const LIST_OFFSETS_VERSION: i16 = 5;
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const OFFSET_COMMIT_VERSION: i16 = 9;
const OFFSET_FETCH_VERSION: i16 = 8;

/// Fills an empty directory: closed segments, a compacted topic, groups of both protocols, a
/// deleted topic, records deleted by a client, transactions with each outcome, rules, quotas and
/// users.
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
    let small = [
        ("internal.segment.bytes", "4096"),
        ("index.interval.bytes", "1024"),
        ("retention.ms", "-1"),
    ];
    create(broker, LEDGER, 1, &small);
    create(broker, PAYMENTS, 3, &small);
    access::define(broker);
    let mut producers = Producers::start(broker, &mut expected);
    for round in 0..60 {
        for place in PLAIN {
            produce_some(broker, place, round, &mut expected);
        }
        producers.write(broker, round, &mut expected);
        if round % 10 == 0 {
            broker.settle();
        }
        for (index, group) in GROUPS[..3].iter().copied().enumerate() {
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
        for place in PLAIN {
            produce_some(broker, place, round, &mut expected);
        }
        producers.write(broker, round, &mut expected);
        commit(broker, GROUPS[0], round as i64).expect("groups are served");
        expected.commits.insert(GROUPS[0], round as i64);
    }
    producers.leave_open(broker, &mut expected);
    members::join_and_commit(broker, 17);
    expected.commits.insert(MEMBERS, 17);
    expected.members = members::described(broker).expect("groups are served");
    expected.access = access::described(broker);
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

fn produce_some(broker: &mut impl Caller, place: Place, round: usize, expected: &mut Expected) {
    let values = values_of(round);
    let base_offset = produce(broker, place, &values).expect("intact partitions take records");
    let records = expected.records.entry(place).or_default();
    for (offset, (key, value)) in (base_offset..).zip(values) {
        if place.0 == USERS {
            let prefix = format!("{key}=");
            records.retain(|_, known| !known.starts_with(&prefix));
        }
        records.insert(offset, format!("{key}={value}"));
    }
}

/// One to four records of different lengths.
pub(crate) fn values_of(round: usize) -> Vec<(String, String)> {
    let keys = ["a", "b", "c"];
    let value = |nth: usize| {
        let key = keys[(round + nth) % keys.len()].to_owned();
        let padding = "x".repeat(20 + (round * 37 + nth * 11) % 200);
        (key, format!("{round}.{nth} {padding}"))
    };
    (0..1 + round % 4).map(value).collect()
}

/// Returns the first offset.
pub fn produce(
    broker: &mut impl Caller,
    place: Place,
    values: &[(String, String)],
) -> Result<i64, ErrorCode> {
    produce_as(broker, place, values, BatchOptions::default(), None)
}

/// The same as a producer with an id.
pub(crate) fn produce_as(
    broker: &mut impl Caller,
    place: Place,
    values: &[(String, String)],
    options: BatchOptions,
    transactional_id: Option<&str>,
) -> Result<i64, ErrorCode> {
    let mut builder = BatchBuilder::new(options);
    let now_ms = broker.now_ms();
    for (key, value) in values {
        builder.append(now_ms, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    let records = builder.finish();
    let partition = PartitionProduceData {
        index: place.1,
        records: Some(&records),
    };
    let request = ProduceRequest {
        transactional_id,
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
    commit_as(broker, group, "", -1, offset)
}

pub(crate) fn commit_as(
    broker: &mut impl Caller,
    group: &'static str,
    member_id: &str,
    member_epoch: i32,
    offset: i64,
) -> Result<(), ErrorCode> {
    for _ in 0..1_000 {
        let request = OffsetCommitRequest {
            group_id: group,
            generation_id_or_member_epoch: member_epoch,
            member_id,
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

pub(crate) fn is_coming(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::CoordinatorLoadInProgress | ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable
    )
}

pub(crate) fn find_coordinator(broker: &mut impl Caller, group: &str) {
    find(broker, group, 0);
}

/// Asks for the coordinator of a group (key type 0) or of a transactional id (1).
pub(crate) fn find(broker: &mut impl Caller, key: &str, key_type: i8) {
    let request = FindCoordinatorRequest {
        key,
        key_type,
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
    read_as(broker, place, Isolation::Uncommitted)
}

/// The same for a reader of one or the other isolation level, which drops aborted records as
/// clients do.
pub fn read_as(broker: &mut impl Caller, place: Place, isolation: Isolation) -> Result<Found, String> {
    let mut found = Found::default();
    let bounds = offset_at(broker, place, EARLIEST, isolation)
        .and_then(|start| Ok((start, offset_at(broker, place, LATEST, isolation)?)));
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
            isolation_level: isolation as i8,
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
        let mut aborted = Aborted::new(partition.aborted_transactions.iter().flatten());
        for batch in batch::batches(partition.records.unwrap_or_default()) {
            let Ok(batch) = batch else { break };
            batch
                .verify_checksum()
                .map_err(|error| format!("{place:?} gives out a damaged batch at {offset}: {error}"))?;
            offset = batch.header.next_offset();
            if aborted.hides(&batch) || batch.header.is_control() {
                continue;
            }
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
        }
        if offset == before {
            return Err(format!("{place:?} gives out nothing at {offset}"));
        }
    }
    Ok(found)
}

/// The aborted transactions of an answer, as a consumer follows them.
struct Aborted<'a> {
    /// Those whose first records were not reached yet, in order.
    coming: VecDeque<&'a AbortedTransaction>,
    producers: BTreeSet<i64>,
}

impl<'a> Aborted<'a> {
    fn new(all: impl Iterator<Item = &'a AbortedTransaction>) -> Aborted<'a> {
        let mut coming: Vec<&AbortedTransaction> = all.collect();
        coming.sort_by_key(|aborted| aborted.first_offset);
        Aborted {
            coming: coming.into(),
            producers: BTreeSet::new(),
        }
    }

    /// Whether the records of the next batch are aborted. Markers are for it alone.
    fn hides(&mut self, batch: &Batch<'_>) -> bool {
        let header = &batch.header;
        while let Some(aborted) = self
            .coming
            .pop_front_if(|next| next.first_offset <= header.last_offset())
        {
            self.producers.insert(aborted.producer_id);
        }
        if header.is_control() {
            // A commit ends no transaction of the list.
            self.producers.remove(&header.producer_id);
        }
        header.is_transactional() && self.producers.contains(&header.producer_id)
    }
}

/// Whether readers of committed records are held up before the last record.
pub fn is_held_up(broker: &mut impl Caller, place: Place) -> bool {
    let last = [Isolation::Uncommitted, Isolation::Committed]
        .map(|isolation| offset_at(broker, place, LATEST, isolation));
    last[0] != last[1]
}

/// Returns the answer of ListOffsets for a timestamp, or for a special value such as -1.
fn offset_at(
    broker: &mut impl Caller,
    place: Place,
    timestamp: i64,
    isolation: Isolation,
) -> Result<i64, ErrorCode> {
    let partition = ListOffsetsPartition {
        partition_index: place.1,
        timestamp,
        ..Default::default()
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation as i8,
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

pub(crate) fn code(code: i16) -> ErrorCode {
    ErrorCode::from_i16(code).expect("a known code")
}
