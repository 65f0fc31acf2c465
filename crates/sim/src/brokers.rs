//! Several brokers that share partitions: real logs and real checks of sequences and epochs;
//! leadership and errors are simulated.
//!
//! There is one log per partition, the surviving one: a batch appended just before its leader lost
//! the leadership is either in it or lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ottla_client::machine::network::io::Event;
use ottla_client::machine::time::Moment;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::{AppendError, BatchToAppend, Bound, LogConfig, PartitionLog, Read, ReadMode};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::frame::RequestHeader;
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use ottla_wire::messages::init_producer_id::InitProducerIdResponse;
use ottla_wire::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use ottla_wire::messages::produce::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse,
    TopicProduceResponse,
};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::produce::{ProduceRequest, TopicName};
use ottla_wire::records::batch::{Batch, batches};
use ottla_wire::records::compression::decompress;
use ottla_wire::records::record::Records;

use crate::network::{Begun, Finished, Network, Server, response_frame};
use crate::producing::Backend;

pub const TOPIC: &str = "simulated";
const TOPIC_ID: Uuid = Uuid([7; 16]);
/// Broker n listens here plus n.
const PORT_BASE: u16 = 1000;
const HOST: &str = "broker";
/// The brokers refuse records whose value starts with this (KIP-467).
pub const REFUSED_PREFIX: &str = "refuse ";

/// Faults injected at the brokers; a rate of n is once in n requests or batches.
#[derive(Clone, Copy, Debug)]
pub struct Mishaps {
    pub error_before_append: u64,
    pub error_after_append: u64,
    /// A batch is refused as out of order although it is in order; only batches that are not in the
    /// log.
    pub forgets_producer: u64,
    pub hangs: u64,
    /// A produce request that is not handled and never answered.
    pub produce_hangs: u64,
    /// A duplicate that is answered with DUPLICATE_SEQUENCE_NUMBER, which names no offset.
    pub refuses_duplicates: u64,
    pub throttles: u64,
    pub init_producer_id_fails: u64,
    /// Answers that violate the protocol.
    pub nonsense: u64,
    pub service_micros_max: u64,
    /// Once in this many steps of the simulation.
    pub leader_change: u64,
    pub broker_down: u64,
}

impl Mishaps {
    pub const NONE: Mishaps = Mishaps {
        error_before_append: u64::MAX,
        error_after_append: u64::MAX,
        forgets_producer: u64::MAX,
        hangs: u64::MAX,
        produce_hangs: u64::MAX,
        refuses_duplicates: u64::MAX,
        throttles: u64::MAX,
        init_producer_id_fails: u64::MAX,
        nonsense: u64::MAX,
        service_micros_max: 300,
        leader_change: u64::MAX,
        broker_down: u64::MAX,
    };
}

struct SharedPartition {
    log: PartitionLog,
    leader: i32,
    epoch: i32,
    /// The values in the log, to know whether a refusal would be wrong.
    values: std::collections::BTreeSet<String>,
}

struct Broker {
    is_up: bool,
    versions: BTreeMap<ApiKey, i16>,
    /// Leader and epoch of each partition as last known to this broker.
    view: Vec<(i32, i32)>,
}

/// Counts of injected faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    pub appends: u64,
    pub duplicates: u64,
    /// Duplicates answered with DUPLICATE_SEQUENCE_NUMBER.
    pub refused_duplicates: u64,
    pub out_of_order: u64,
    pub fenced_epochs: u64,
    pub leader_changes: u64,
    pub not_leader: u64,
    pub errors_before: u64,
    pub errors_after: u64,
    pub too_large: u64,
    pub hangs: u64,
    pub throttles: u64,
    pub nonsense: u64,
    pub epochs_above_zero: u64,
    pub producer_ids: u64,
    pub without_producer_id: u64,
    /// Starts of our own broker.
    pub starts: u64,
}

pub struct Brokers {
    pub mishaps: Mishaps,
    pub played: Played,
    seed: u64,
    random: Random,
    brokers: Vec<Broker>,
    partitions: Vec<SharedPartition>,
    next_producer_id: i64,
    first_producer_epoch: i16,
    batch_bytes_max: usize,
    is_traced: bool,
}

/// A request in progress.
#[derive(Debug)]
pub struct Work {
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Ready(Vec<u8>),
    Produce {
        acks: i16,
        throttle_ms: i32,
        partitions: Vec<(i32, Fate)>,
    },
}

/// The outcome of one batch.
#[derive(Debug)]
enum Fate {
    Appended {
        base_offset: i64,
        epoch: i32,
    },
    Failed(i16),
    /// These records of the batch were refused.
    Refused(Vec<i32>),
}

impl Brokers {
    /// - `first_producer_epoch`: assigned by InitProducerId; near the maximum, epochs run out soon.
    pub fn new(seed: u64, broker_count: usize, partition_count: usize, mishaps: Mishaps) -> Brokers {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(seed).shared();
        let partitions = (0..partition_count)
            .map(|index| SharedPartition {
                log: PartitionLog::create(
                    disk.clone(),
                    &PathBuf::from(format!("/data/{TOPIC}-{index}")),
                    TOPIC_ID,
                    LogConfig::default(),
                    0,
                    0,
                )
                .expect("an empty disk takes a log"),
                leader: random.below(broker_count as u64) as i32,
                epoch: 0,
                values: Default::default(),
            })
            .collect::<Vec<_>>();
        let view: Vec<(i32, i32)> = partitions.iter().map(|one| (one.leader, one.epoch)).collect();
        let brokers = (0..broker_count)
            .map(|_| Broker {
                is_up: true,
                versions: versions(&mut random),
                view: view.clone(),
            })
            .collect();
        Brokers {
            mishaps,
            played: Played::default(),
            seed,
            random,
            brokers,
            partitions,
            next_producer_id: 4000,
            first_producer_epoch: 0,
            batch_bytes_max: usize::MAX,
            is_traced: std::env::var_os("OTTLA_SIM_TRACE").is_some(),
        }
    }

    /// Sets the first epoch that InitProducerId assigns: near `i16::MAX` epochs run out soon.
    pub fn set_first_producer_epoch(&mut self, epoch: i16) {
        self.first_producer_epoch = epoch;
    }

    /// `max.message.bytes`
    pub fn set_batch_bytes_max(&mut self, bytes: usize) {
        self.batch_bytes_max = bytes;
    }

    /// Moves the partition's leadership to another running broker.
    fn change_leader(&mut self, partition: usize) {
        let up: Vec<usize> = (0..self.brokers.len())
            .filter(|broker| self.brokers[*broker].is_up)
            .collect();
        if up.is_empty() {
            return;
        }
        let next = up[self.random.below(up.len() as u64) as usize];
        let shared = &mut self.partitions[partition];
        shared.leader = next as i32;
        shared.epoch += 1;
        self.played.leader_changes += 1;
        // The old and the new leader know immediately, the others when they are told.
        let told = self.random.below(1 << self.brokers.len());
        for (index, broker) in self.brokers.iter_mut().enumerate() {
            if index == next || told & (1 << index) != 0 {
                broker.view[partition] = (next as i32, self.partitions[partition].epoch);
            }
        }
    }

    /// Tells every broker the current leaders.
    fn tell_all(&mut self) {
        let view: Vec<(i32, i32)> = self
            .partitions
            .iter()
            .map(|one| (one.leader, one.epoch))
            .collect();
        for broker in &mut self.brokers {
            broker.view.clone_from(&view);
        }
    }

    /// Stops the broker, if another is running; its partitions move to others.
    fn take_down(&mut self, broker: usize) -> Option<u16> {
        let up = self.brokers.iter().filter(|broker| broker.is_up).count();
        if up < 2 || !self.brokers[broker].is_up {
            return None;
        }
        self.brokers[broker].is_up = false;
        for partition in 0..self.partitions.len() {
            if self.partitions[partition].leader == broker as i32 {
                self.change_leader(partition);
            }
        }
        Some(PORT_BASE + broker as u16)
    }

    /// The values in a partition's log, in order of offset; offsets have no gaps.
    fn read(&self, partition: usize) -> Vec<String> {
        let log = &self.partitions[partition].log;
        let mut values = Vec::new();
        let mut offset = 0;
        while offset < log.end_offset() {
            let bound = Bound {
                offset: log.end_offset(),
                position: None,
            };
            let read = log
                .reader()
                .read(offset, 1 << 20, true, bound, ReadMode::Blocking)
                .expect("the offset is in the log");
            let Read::Region(read) = read else {
                panic!("seed {}: nothing at offset {offset}", self.seed);
            };
            let mut bytes = vec![0; read.region.bytes as usize];
            let count = read
                .region
                .file
                .read_at(&mut bytes, read.region.position)
                .expect("the memory disk reads");
            bytes.truncate(count);
            let before = offset;
            for batch in batches(&bytes).map_while(Result::ok) {
                if batch.header.base_offset >= offset {
                    assert_eq!(batch.header.base_offset, offset, "offsets have no gaps");
                    values.extend(values_of(&batch));
                    offset = batch.header.next_offset();
                }
            }
            assert!(
                offset > before,
                "seed {}: reading stands still at {offset}",
                self.seed
            );
        }
        values
    }

    fn produce(&mut self, broker: usize, body: &[u8], version: i16) -> Answer {
        let mut request = ProduceRequest::decode(body, version).expect("the client encodes well");
        let acks = request.acks;
        let mut partitions = Vec::new();
        while let Some(topic) = request.next_topic().expect("decoded once") {
            let is_known = match topic.topic {
                TopicName::Name(name) => name == TOPIC,
                TopicName::Id(id) => id == TOPIC_ID,
            };
            assert!(
                is_known,
                "seed {}: a topic that no client wrote to: {:?}",
                self.seed, topic.topic
            );
            while let Some(partition) = request.next_partition().expect("decoded once") {
                let bytes = partition.records.expect("a batch is sent");
                let fate = self.append(broker, partition.index as usize, bytes, version);
                self.trace(broker, partition.index, bytes, &fate);
                partitions.push((partition.index, fate));
            }
        }
        let throttle_ms = match self.random.one_in(self.mishaps.throttles) {
            true => {
                self.played.throttles += 1;
                1 + self.random.below(300) as i32
            }
            false => 0,
        };
        Answer::Produce {
            acks,
            throttle_ms,
            partitions,
        }
    }

    /// Prints the outcome of each batch, for debugging a failed seed.
    fn trace(&self, broker: usize, index: i32, bytes: &[u8], fate: &Fate) {
        if !self.is_traced {
            return;
        }
        let batch = Batch::parse(bytes).expect("a whole batch");
        let header = batch.header;
        let names = |value: &String| value.splitn(3, ':').take(2).collect::<Vec<_>>().join(":");
        let values: Vec<String> = values_of(&batch).iter().map(names).collect();
        eprintln!(
            "broker {broker} partition {index} producer {} epoch {} sequence {}: {values:?}: {fate:?}",
            header.producer_id, header.producer_epoch, header.base_sequence
        );
    }

    fn append(&mut self, broker: usize, index: usize, bytes: &[u8], version: i16) -> Fate {
        let batch = Batch::parse(bytes).expect("a whole batch");
        assert_eq!(
            batch.bytes.len(),
            bytes.len(),
            "seed {}: one batch per partition",
            self.seed
        );
        batch.verify_checksum().expect("the checksum is right");
        self.played.without_producer_id += u64::from(!batch.header.has_producer_id());
        let values = values_of(&batch);
        assert_eq!(values.len(), batch.header.record_count as usize);
        let is_zstd = batch.header.compression() == Some(ottla_wire::records::compression::Codec::Zstd);
        assert!(!is_zstd || version >= 7, "zstd came with version {version}");
        if self.partitions[index].leader != broker as i32 {
            self.played.not_leader += 1;
            return Fate::Failed(ErrorCode::NotLeaderOrFollower.code());
        }
        if bytes.len() > self.batch_bytes_max {
            self.played.too_large += 1;
            return Fate::Failed(ErrorCode::MessageTooLarge.code());
        }
        let refused: Vec<i32> = (0..)
            .zip(&values)
            .filter(|(_, value)| value.starts_with(REFUSED_PREFIX))
            .map(|(index, _)| index)
            .collect();
        if !refused.is_empty() {
            return Fate::Refused(refused);
        }
        if let Some(code) = self.error_before(index, &values, batch.header.has_producer_id()) {
            return Fate::Failed(code);
        }
        self.append_to_log(index, &batch, values)
    }

    fn append_to_log(&mut self, index: usize, batch: &Batch<'_>, values: Vec<String>) -> Fate {
        let shared = &mut self.partitions[index];
        match shared.log.append(&[BatchToAppend::from(*batch)], shared.epoch, 0) {
            Ok(appended) => {
                self.played.appends += 1;
                self.played.duplicates += u64::from(appended.duplicate);
                self.played.epochs_above_zero += u64::from(batch.header.producer_epoch > 0);
                shared.values.extend(values);
                if appended.duplicate && self.random.one_in(self.mishaps.refuses_duplicates) {
                    self.played.refused_duplicates += 1;
                    return Fate::Failed(ErrorCode::DuplicateSequenceNumber.code());
                }
                if self.random.one_in(self.mishaps.error_after_append) {
                    self.played.errors_after += 1;
                    return Fate::Failed(self.pick(&[
                        ErrorCode::NotEnoughReplicasAfterAppend.code(),
                        ErrorCode::RequestTimedOut.code(),
                        ErrorCode::KafkaStorageError.code(),
                        ErrorCode::UnknownServerError.code(),
                        // An error code of a future protocol version.
                        999,
                    ]));
                }
                Fate::Appended {
                    base_offset: appended.base_offset,
                    epoch: shared.epoch,
                }
            }
            Err(AppendError::OutOfOrderSequence { .. }) => {
                self.played.out_of_order += 1;
                Fate::Failed(ErrorCode::OutOfOrderSequenceNumber.code())
            }
            Err(AppendError::InvalidProducerEpoch { .. }) => {
                self.played.fenced_epochs += 1;
                Fate::Failed(ErrorCode::InvalidProducerEpoch.code())
            }
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn error_before(&mut self, index: usize, values: &[String], is_idempotent: bool) -> Option<i16> {
        if self.random.one_in(self.mishaps.error_before_append) {
            self.played.errors_before += 1;
            return Some(self.pick(&[
                ErrorCode::NotEnoughReplicas.code(),
                ErrorCode::KafkaStorageError.code(),
                ErrorCode::LeaderNotAvailable.code(),
                ErrorCode::UnknownTopicOrPartition.code(),
                ErrorCode::CorruptMessage.code(),
            ]));
        }
        let is_new = values
            .first()
            .is_some_and(|value| !self.partitions[index].values.contains(value));
        if is_idempotent && is_new && self.random.one_in(self.mishaps.forgets_producer) {
            return Some(self.pick(&[
                ErrorCode::OutOfOrderSequenceNumber.code(),
                ErrorCode::UnknownProducerId.code(),
            ]));
        }
        None
    }

    fn pick(&mut self, codes: &[i16]) -> i16 {
        codes[self.random.below(codes.len() as u64) as usize]
    }

    fn encode_produce(&mut self, version: i16, throttle_ms: i32, fates: Vec<(i32, Fate)>) -> Vec<u8> {
        let mut response = ProduceResponse {
            throttle_time_ms: throttle_ms,
            ..Default::default()
        };
        let mut topic = TopicProduceResponse {
            name: if version < 13 { TOPIC } else { "" },
            topic_id: if version < 13 { Uuid::ZERO } else { TOPIC_ID },
            partition_responses: Vec::new(),
        };
        for (index, fate) in fates {
            let answer = self.partition_answer(version, index, fate, &mut response.node_endpoints);
            topic.partition_responses.push(answer);
        }
        response.responses.push(topic);
        let mut body = Vec::new();
        if self.random.one_in(self.mishaps.nonsense) {
            self.played.nonsense += 1;
            return self.nonsense(version, response);
        }
        response.encode(&mut body, version);
        body
    }

    fn partition_answer(
        &mut self,
        version: i16,
        index: i32,
        fate: Fate,
        endpoints: &mut Vec<NodeEndpoint<'static>>,
    ) -> PartitionProduceResponse<'static> {
        let mut answer = PartitionProduceResponse {
            index,
            base_offset: -1,
            ..Default::default()
        };
        if version >= 5 {
            answer.log_start_offset = 0;
        }
        let shared = &self.partitions[index as usize];
        match fate {
            // Appended, but not replicated before the leadership was lost.
            Fate::Appended { epoch, .. } if epoch != shared.epoch => {
                answer.error_code = ErrorCode::NotLeaderOrFollower.code();
            }
            Fate::Appended { base_offset, .. } => answer.base_offset = base_offset,
            Fate::Failed(code) => answer.error_code = code,
            Fate::Refused(records) => {
                answer.error_code = ErrorCode::InvalidRecord.code();
                if version >= 8 {
                    answer.record_errors = records
                        .into_iter()
                        .map(|batch_index| BatchIndexAndErrorMessage {
                            batch_index,
                            batch_index_error_message: Some("this value is not allowed"),
                        })
                        .collect();
                }
            }
        }
        let is_outdated = answer.error_code == ErrorCode::NotLeaderOrFollower.code();
        if is_outdated && version >= 10 && self.random.one_in(2) {
            answer.current_leader = LeaderIdAndEpoch {
                leader_id: shared.leader,
                leader_epoch: shared.epoch,
            };
            endpoints.push(NodeEndpoint {
                node_id: shared.leader,
                host: HOST,
                port: i32::from(PORT_BASE) + shared.leader,
                rack: None,
            });
        }
        answer
    }

    /// Turns an answer into one that violates the protocol.
    fn nonsense(&mut self, version: i16, mut response: ProduceResponse<'_>) -> Vec<u8> {
        let partitions = &mut response.responses[0].partition_responses;
        let mut body = Vec::new();
        match self.random.below(4) {
            0 => {
                partitions.pop();
            }
            1 => {
                let mut unknown = partitions[0].clone();
                unknown.index = 7_000;
                unknown.base_offset = 12;
                partitions.insert(0, unknown);
            }
            2 => response.responses.clear(),
            _ => {
                response.encode(&mut body, version);
                body.truncate(body.len() / 2);
                return body;
            }
        }
        response.encode(&mut body, version);
        body
    }

    fn init_producer_id(&mut self, version: i16) -> Vec<u8> {
        let mut response = InitProducerIdResponse::default();
        if self.random.one_in(self.mishaps.init_producer_id_fails) {
            response.error_code = self.pick(&[
                ErrorCode::CoordinatorLoadInProgress.code(),
                ErrorCode::CoordinatorNotAvailable.code(),
            ]);
        } else {
            response.producer_id = self.next_producer_id;
            response.producer_epoch = self.first_producer_epoch;
            self.next_producer_id += 1;
            self.played.producer_ids += 1;
        }
        let mut body = Vec::new();
        response.encode(&mut body, version);
        body
    }

    fn metadata(&self, broker: usize, body: &[u8], version: i16) -> Vec<u8> {
        let request = MetadataRequest::decode(&mut Reader::new(body), version).expect("decodes");
        let asked: Vec<&str> = match &request.topics {
            None => vec![TOPIC],
            Some(topics) => topics.iter().filter_map(|topic| topic.name).collect(),
        };
        let brokers = (0..self.brokers.len())
            .filter(|index| self.brokers[*index].is_up)
            .map(|index| MetadataResponseBroker {
                node_id: index as i32,
                host: HOST,
                port: i32::from(PORT_BASE) + index as i32,
                rack: None,
            })
            .collect();
        let topics = asked
            .into_iter()
            .map(|name| {
                assert_eq!(name, TOPIC, "seed {}: asked for an unused topic", self.seed);
                MetadataResponseTopic {
                    name: Some(TOPIC),
                    topic_id: if version >= 10 { TOPIC_ID } else { Uuid::ZERO },
                    partitions: self.partition_metadata(broker),
                    ..Default::default()
                }
            })
            .collect();
        let response = MetadataResponse {
            brokers,
            cluster_id: Some("simulated"),
            controller_id: 0,
            topics,
            ..Default::default()
        };
        let mut out = Vec::new();
        response.encode(&mut out, version);
        out
    }

    fn partition_metadata(&self, broker: usize) -> Vec<MetadataResponsePartition> {
        let view = self.brokers[broker].view.iter().enumerate();
        view.map(|(index, (leader, epoch))| {
            let is_up = self.brokers[*leader as usize].is_up;
            MetadataResponsePartition {
                error_code: match is_up {
                    true => 0,
                    false => ErrorCode::LeaderNotAvailable.code(),
                },
                partition_index: index as i32,
                leader_id: if is_up { *leader } else { -1 },
                leader_epoch: *epoch,
                replica_nodes: (0..self.brokers.len() as i32).collect(),
                isr_nodes: vec![*leader],
                offline_replicas: Vec::new(),
            }
        })
        .collect()
    }

    fn api_versions(&self, broker: usize, version: i16) -> Vec<u8> {
        let is_supported = version <= ApiVersionsRequest::MAX_VERSION;
        let response = ApiVersionsResponse {
            error_code: if is_supported {
                0
            } else {
                ErrorCode::UnsupportedVersion.code()
            },
            api_keys: self.brokers[broker]
                .versions
                .iter()
                .map(|(api_key, max_version)| ApiVersion {
                    api_key: api_key.code(),
                    min_version: 0,
                    max_version: *max_version,
                })
                .collect(),
            ..Default::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, if is_supported { version } else { 0 });
        body
    }
}

/// Random API versions, as of Kafka 2.1 or newer.
fn versions(random: &mut Random) -> BTreeMap<ApiKey, i16> {
    let mut between = |low: u64, high: u64| (low + random.below(high - low + 1)) as i16;
    BTreeMap::from([
        (ApiKey::Produce, between(7, 13)),
        (ApiKey::Metadata, between(7, 13)),
        (ApiKey::ApiVersions, between(3, 4)),
        (ApiKey::InitProducerId, between(1, 5)),
    ])
}

/// Reads the values of a batch's records, which are text.
fn values_of(batch: &Batch<'_>) -> Vec<String> {
    let codec = batch.header.compression().expect("a known codec");
    let mut records = Vec::new();
    decompress(codec, batch.record_bytes(), 1 << 24, &mut records).expect("decompresses");
    Records::new(&batch.header, &records)
        .map(|record| {
            let record = record.expect("well encoded");
            let value = record.value.expect("values are not null");
            String::from_utf8(value.to_vec()).expect("values are text")
        })
        .collect()
}

impl Server for Brokers {
    type Work = Work;

    fn is_up(&self, port: u16) -> bool {
        self.brokers[usize::from(port - PORT_BASE)].is_up
    }

    fn begin(&mut self, _now: Moment, port: u16, frame: &[u8]) -> Begun<Work> {
        let broker = usize::from(port - PORT_BASE);
        if !self.brokers[broker].is_up {
            return Begun::Closes;
        }
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).expect("the client encodes well");
        let body = reader.rest();
        let version = header.api_version;
        let is_produce = header.api_key == ApiKey::Produce;
        if self.random.one_in(self.mishaps.hangs)
            || is_produce && self.random.one_in(self.mishaps.produce_hangs)
        {
            self.played.hangs += 1;
            return Begun::Hangs;
        }
        let answer = match header.api_key {
            ApiKey::ApiVersions => Answer::Ready(self.api_versions(broker, version)),
            ApiKey::Metadata => Answer::Ready(self.metadata(broker, body, version)),
            ApiKey::InitProducerId => Answer::Ready(self.init_producer_id(version)),
            ApiKey::Produce => self.produce(broker, body, version),
            other => panic!("seed {}: {other} is not what a producer asks", self.seed),
        };
        Begun::Works {
            micros: self.random.below(self.mishaps.service_micros_max + 1),
            work: Work {
                api_key: header.api_key,
                api_version: version,
                correlation_id: header.correlation_id,
                answer,
            },
        }
    }

    fn finish(&mut self, _now: Moment, _port: u16, work: Work) -> Finished<Work> {
        let body = match work.answer {
            Answer::Ready(body) => body,
            Answer::Produce { acks: 0, .. } => return Finished::Silently,
            Answer::Produce {
                throttle_ms,
                partitions,
                ..
            } => self.encode_produce(work.api_version, throttle_ms, partitions),
        };
        let frame = response_frame(work.api_key, work.api_version, work.correlation_id, &body);
        Finished::Answer(frame)
    }
}

impl Backend for Brokers {
    fn addresses(&self) -> String {
        let all: Vec<String> = (0..self.brokers.len())
            .map(|broker| format!("{HOST}:{}", PORT_BASE + broker as u16))
            .collect();
        all.join(",")
    }

    fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    fn values(&mut self, partition: usize) -> Vec<String> {
        self.read(partition)
    }

    fn shake(&mut self, now: Moment, network: &mut Network<Work>, events: &mut Vec<Event>) {
        if self.random.one_in(self.mishaps.leader_change) {
            network.settle_abandoned(now, self);
            let partition = self.random.below(self.partitions.len() as u64) as usize;
            self.change_leader(partition);
        }
        if self.random.one_in(20) {
            self.tell_all();
        }
        if self.random.one_in(self.mishaps.broker_down) {
            network.settle_abandoned(now, self);
            let broker = self.random.below(self.brokers.len() as u64) as usize;
            if let Some(port) = self.take_down(broker) {
                network.cut(port, events);
            }
        }
        if self.random.one_in(50) {
            let broker = self.random.below(self.brokers.len() as u64) as usize;
            self.brokers[broker].is_up = true;
        }
    }

    fn calm_down(&mut self) {
        self.mishaps = Mishaps::NONE;
        for broker in &mut self.brokers {
            broker.is_up = true;
        }
        self.tell_all();
    }

    fn played(&self) -> Played {
        self.played
    }
}
