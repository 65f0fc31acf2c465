//! Two brokers, a topic, and a consumer's machine whose clock advances only when a test moves it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader, encode_response_header};
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use ottla_wire::messages::fetch::{
    FetchRequest, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
};
use ottla_wire::messages::metadata::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_wire::primitives::{Reader as FrameReader, Uuid};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use crate::config::{Config, ConsumerConfig};
use crate::consumer::assignment::Assignment;
use crate::consumer::exchange::{Command, Exchange};
use crate::consumer::machine::ConsumerMachine;
use crate::consumer::poll_activity::PollActivity;
use crate::consumer::reader::Reader;
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientKind, ClientMetrics};
use crate::network::io::{Action, ConnectionId, Event, Machine, Wake};
use crate::time::{Moment, SystemClock, Timestamp};

/// The initial id of topic `t`.
pub const TOPIC_ID: Uuid = Uuid([7; 16]);
pub const SESSION: i32 = 77;

/// A request as a broker sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub node: i32,
    pub connection: ConnectionId,
    pub api_key: ApiKey,
    pub api_version: i16,
    correlation_id: i32,
    pub body: Vec<u8>,
}

impl Seen {
    pub fn fetch(&self) -> FetchRequest<'_> {
        FetchRequest::decode(&mut FrameReader::new(&self.body), self.api_version).unwrap()
    }

    /// Partition and offset of everything that a fetch names.
    pub fn asked(&self) -> Vec<(i32, i64)> {
        let fetch = self.fetch();
        let topics = fetch.topics.iter();
        topics
            .flat_map(|topic| &topic.partitions)
            .map(|partition| (partition.partition, partition.fetch_offset))
            .collect()
    }
}

#[derive(Debug)]
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

pub struct World {
    pub machine: ConsumerMachine,
    pub exchange: Arc<Exchange>,
    reader: Reader,
    pub now: Moment,
    connections: BTreeMap<ConnectionId, i32>,
    /// Node and leader epoch by partition of topic `t`.
    pub leaders: BTreeMap<i32, (i32, i32)>,
    pub topic_id: Uuid,
    pub versions_max: BTreeMap<ApiKey, i16>,
    seen: VecDeque<Seen>,
    /// Metadata requests behind a request without an answer: brokers answer in order.
    held: Vec<Seen>,
    /// Connection and correlation id of every request without an answer.
    unanswered: BTreeSet<(ConnectionId, i32)>,
}

impl World {
    /// - `settings`: in addition to Kafka's defaults.
    /// - Shape: topic `t` with this many partitions, all led by node 1 in leader epoch 5.
    pub fn new(partition_count: i32, settings: &[(&str, &str)]) -> World {
        let mut config = Config::new()
            .set("bootstrap.servers", "broker:9001")
            .set("enable.metrics.push", "false")
            .set("auto.offset.reset", "earliest");
        for (key, value) in settings {
            config = config.set(*key, *value);
        }
        let config = Arc::new(ConsumerConfig::from_config(&config).unwrap());
        let metrics = ClientMetrics::new(
            ClientKind::Consumer,
            &config.client,
            Arc::new(SystemClock::default()),
        );
        let assignment = Assignment::new(config.group_id.is_some(), config.auto_offset_reset);
        let exchange = Exchange::new(assignment, Arc::new(NoWake));
        let machine = ConsumerMachine::new(
            Arc::clone(&config),
            Arc::clone(&exchange),
            Arc::new(MetadataCell::new(Interest::Named)),
            Arc::new(PollActivity::default()),
            &metrics,
            1,
        );
        let reader = Reader::new(
            Arc::clone(&exchange),
            Arc::clone(metrics.consumer()),
            config.max_poll_records,
        );
        World {
            machine,
            exchange,
            reader,
            now: Moment::from_nanos(1_000_000_000),
            connections: BTreeMap::new(),
            leaders: (0..partition_count).map(|index| (index, (1, 5))).collect(),
            topic_id: TOPIC_ID,
            versions_max: BTreeMap::new(),
            seen: VecDeque::new(),
            held: Vec::new(),
            unanswered: BTreeSet::new(),
        }
    }

    /// Assigned to all partitions of `t`, each at this offset.
    pub fn assigned(partition_count: i32, offset: i64, settings: &[(&str, &str)]) -> World {
        let mut world = World::new(partition_count, settings);
        world.assign(partition_count);
        for partition in 0..partition_count {
            world.seek(partition, offset);
        }
        world.run();
        world
    }

    pub fn assign(&mut self, partition_count: i32) {
        let names: BTreeSet<_> = (0..partition_count).map(name).collect();
        self.exchange.lock().assignment.replace(names, false);
    }

    pub fn seek(&mut self, partition: i32, offset: i64) {
        let position = crate::consumer::position::Position::at(offset);
        let mut state = self.exchange.lock();
        state.assignment.seek(&name(partition), position).unwrap();
    }

    pub fn command(&mut self, command: Command) {
        self.exchange.command(command);
        self.run();
    }

    pub fn advance(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.run();
    }

    /// Runs turns until nothing happens any more.
    pub fn run(&mut self) {
        for _ in 0..1000 {
            let mut actions = Vec::new();
            self.machine
                .turn(self.now, Timestamp(1_700_000_000_000), &mut actions);
            let is_due = self.machine.next_deadline().is_some_and(|due| due <= self.now);
            if actions.is_empty() && !is_due {
                return;
            }
            for action in actions {
                self.act(action);
            }
        }
        panic!("the machine loops forever");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Connect { connection, address } => {
                self.connections
                    .insert(connection, i32::from(address.port) - 9000);
                self.machine.handle(self.now, Event::Connected { connection });
            }
            Action::Send { connection, frame } => {
                let bytes: Vec<u8> = frame.parts.concat();
                let mut reader = FrameReader::new(&bytes[LENGTH_BYTES..]);
                let header = RequestHeader::decode(&mut reader).unwrap();
                let seen = Seen {
                    node: self.connections[&connection],
                    connection,
                    api_key: header.api_key,
                    api_version: header.api_version,
                    correlation_id: header.correlation_id,
                    body: reader.rest().to_vec(),
                };
                match seen.api_key {
                    ApiKey::ApiVersions => self.answer_api_versions(&seen),
                    ApiKey::Metadata if self.is_first(&seen) => self.answer_metadata(&seen),
                    ApiKey::Metadata => self.held.push(seen),
                    _ => {
                        self.unanswered.insert((seen.connection, seen.correlation_id));
                        self.seen.push_back(seen);
                    }
                }
            }
            Action::Close { connection } => {
                self.connections.remove(&connection);
                self.forget(connection);
            }
        }
    }

    /// The oldest request not yet examined, which must be of this API.
    pub fn expect(&mut self, api_key: ApiKey) -> Seen {
        let seen = self.seen.pop_front().expect("a request was sent");
        assert_eq!(seen.api_key, api_key);
        seen
    }

    pub fn try_expect(&mut self, api_key: ApiKey) -> Option<Seen> {
        (!self.seen.is_empty()).then(|| self.expect(api_key))
    }

    pub fn expect_nothing(&self) {
        assert!(self.seen.is_empty(), "{:?}", self.seen);
    }

    /// Answers without running a turn.
    pub fn put(&mut self, seen: &Seen, body: impl FnOnce(&mut Vec<u8>, i16)) {
        self.unanswered.remove(&(seen.connection, seen.correlation_id));
        let mut frame = Vec::new();
        encode_response_header(&mut frame, seen.api_key, seen.api_version, seen.correlation_id);
        body(&mut frame, seen.api_version);
        let event = Event::Received {
            connection: seen.connection,
            frame: Bytes::from(frame),
        };
        self.machine.handle(self.now, event);
    }

    fn is_first(&self, seen: &Seen) -> bool {
        let earlier = (seen.connection, 0)..(seen.connection, seen.correlation_id);
        self.unanswered.range(earlier).next().is_none()
    }

    pub fn answer(&mut self, seen: &Seen, body: impl FnOnce(&mut Vec<u8>, i16)) {
        self.put(seen, body);
        for held in std::mem::take(&mut self.held) {
            match self.is_first(&held) {
                true => self.answer_metadata(&held),
                false => self.held.push(held),
            }
        }
        self.run();
    }

    /// Answers a fetch with these partitions, in session `SESSION` if the request allows one.
    pub fn answer_fetch(&mut self, seen: &Seen, partitions: Vec<PartitionData<'_>>) {
        let session_id = if seen.api_version >= 7 { SESSION } else { 0 };
        let response = FetchResponse {
            session_id,
            responses: vec![FetchableTopicResponse {
                topic: if seen.api_version < 13 { "t" } else { "" },
                topic_id: if seen.api_version < 13 {
                    Uuid::ZERO
                } else {
                    self.topic_id
                },
                partitions,
            }],
            ..FetchResponse::default()
        };
        self.answer(seen, |body, version| response.encode(body, version));
    }

    pub fn break_connection(&mut self, seen: &Seen) {
        let reason = Error::Disconnected {
            address: "broker".into(),
            reason: "broken".into(),
        };
        let connection = seen.connection;
        self.machine
            .handle(self.now, Event::Closed { connection, reason });
        self.connections.remove(&connection);
        self.forget(connection);
        self.run();
    }

    fn forget(&mut self, closed: ConnectionId) {
        self.seen.retain(|seen| seen.connection != closed);
        self.held.retain(|seen| seen.connection != closed);
        self.unanswered.retain(|(connection, _)| *connection != closed);
    }

    fn answer_api_versions(&mut self, seen: &Seen) {
        let api_keys = ApiKey::ALL.iter().map(|key| ApiVersion {
            api_key: key.code(),
            min_version: key.known_versions().min,
            max_version: self
                .versions_max
                .get(key)
                .copied()
                .unwrap_or(key.known_versions().max),
        });
        let response = ApiVersionsResponse {
            api_keys: api_keys.collect(),
            ..ApiVersionsResponse::default()
        };
        self.put(seen, |body, version| response.encode(body, version));
    }

    fn answer_metadata(&mut self, seen: &Seen) {
        let partitions = self
            .leaders
            .iter()
            .map(
                |(&partition_index, &(leader_id, leader_epoch))| MetadataResponsePartition {
                    partition_index,
                    leader_id,
                    leader_epoch,
                    replica_nodes: vec![1, 2],
                    isr_nodes: vec![1, 2],
                    ..MetadataResponsePartition::default()
                },
            )
            .collect();
        let response = MetadataResponse {
            brokers: [1, 2]
                .map(|node_id| MetadataResponseBroker {
                    node_id,
                    host: "broker",
                    port: 9000 + node_id,
                    ..MetadataResponseBroker::default()
                })
                .to_vec(),
            topics: vec![MetadataResponseTopic {
                name: Some("t"),
                topic_id: if seen.api_version >= 10 {
                    self.topic_id
                } else {
                    Uuid::ZERO
                },
                partitions,
                ..MetadataResponseTopic::default()
            }],
            ..MetadataResponse::default()
        };
        self.put(seen, |body, version| response.encode(body, version));
    }

    /// Partition and offset of the records that one poll returns.
    pub fn poll(&mut self) -> Result<Vec<(i32, i64)>, Error> {
        let records = self.reader.take()?;
        let found = records
            .iter()
            .map(|record| (record.partition, record.offset))
            .collect();
        drop(records);
        self.run();
        Ok(found)
    }

    pub fn position(&self, partition: i32) -> Option<i64> {
        let state = self.exchange.lock();
        let partition = state.assignment.get(&name(partition)).unwrap();
        partition.valid_position().map(|position| position.offset)
    }

    /// Answers the first fetch and returns the next one.
    pub fn second_fetch(&mut self, first: Vec<PartitionData<'_>>) -> Seen {
        let seen = self.expect(ApiKey::Fetch);
        self.second_fetch_from(&seen, first)
    }

    pub fn second_fetch_from(&mut self, seen: &Seen, first: Vec<PartitionData<'_>>) -> Seen {
        self.answer_fetch(seen, first);
        self.expect(ApiKey::Fetch)
    }
}

pub fn name(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

/// A response without records; the log ranges from 0 to 1000.
pub fn nothing(partition: i32) -> PartitionData<'static> {
    PartitionData {
        partition_index: partition,
        error_code: 0,
        high_watermark: 1000,
        last_stable_offset: 1000,
        log_start_offset: 0,
        aborted_transactions: None,
        preferred_read_replica: -1,
        current_leader: LeaderIdAndEpoch::default(),
        records: None,
        ..PartitionData::default()
    }
}

pub fn with_records(partition: i32, records: &[u8]) -> PartitionData<'_> {
    PartitionData {
        records: Some(records),
        ..nothing(partition)
    }
}

pub fn with_error(partition: i32, error_code: ottla_wire::error_code::ErrorCode) -> PartitionData<'static> {
    PartitionData {
        error_code: error_code.code(),
        high_watermark: -1,
        ..nothing(partition)
    }
}

/// A batch of records named by their offsets, in leader epoch 5.
pub fn batch(offsets: std::ops::Range<i64>) -> Vec<u8> {
    batch_with(offsets, BatchOptions::default())
}

pub fn batch_with(offsets: std::ops::Range<i64>, options: BatchOptions) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset: offsets.start,
        leader_epoch: 5,
        ..options
    });
    for offset in offsets {
        builder.append(offset, None, Some(format!("{offset}").as_bytes()), &[]);
    }
    builder.finish()
}
