//! Two brokers on copies of one directory, with the topics of the cases.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::records::batch::{self, BatchHeader};

use super::case::{Body, Scene, TOPIC, TOPIC_PARTITIONS, produce};
use super::exchange::{Ask, Outcome, Wire};
use super::forged::Forged;
use crate::interop::server::{Programs, Server, Site, Target, copy_directory};

/// Topics in addition to [`TOPIC`]: name and settings. Each has [`OTHER_PARTITIONS`].
const OTHER_TOPICS: [(&str, &[(&str, &str)]); 5] = [
    ("compacted", &[("cleanup.policy", "compact")]),
    ("tight", &[("max.message.bytes", "200")]),
    ("clocked", &[("message.timestamp.type", "LogAppendTime")]),
    ("recent", &[("message.timestamp.before.max.ms", "3600000")]),
    ("unpacked", &[("compression.type", "uncompressed")]),
];
pub const OTHER_PARTITIONS: i32 = 20;

/// Timeout of the preparations.
pub const START_MAX: Duration = Duration::from_secs(60);

pub struct Stage {
    kafka: Server,
    ottla: Server,
    kafka_site: Site,
    ottla_site: Site,
    scene: Scene,
}

impl Stage {
    /// Has Ottla create the topics and write three records to partition 0; then Kafka opens a copy
    /// of its
    /// directory.
    pub fn set(programs: &Programs) -> Result<Stage> {
        let (kafka_site, ottla_site) = (
            Site::create("refusals-kafka", &[])?,
            Site::create("refusals-ottla", &[])?,
        );
        let ottla = ottla_site.start(programs, Target::Ottla)?;
        let scene = Scene {
            now_ms: i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?,
            topic_id: create_topics(ottla_site.port)?,
            partition: 0,
        };
        let three_records = Forged::new(scene.now_ms).bytes();
        answer(ottla_site.port, &produce(&scene, &three_records))?;
        ottla.stop()?;
        copy_directory(&ottla_site.directory, &kafka_site.directory)?;
        let ottla = ottla_site.start(programs, Target::Ottla)?;
        let kafka = kafka_site
            .start(programs, Target::Kafka)
            .context("Kafka on a copy of the directory")?;
        for port in [ottla_site.port, kafka_site.port] {
            wait_for_leaders(port)?;
            let group = Body::new().str("some").i8(0);
            wait_for(port, &Ask::new(ApiKey::FindCoordinator, 2, group))?;
            let producer = Body::new().i16(-1).i32(60_000);
            wait_for(port, &Ask::new(ApiKey::InitProducerId, 1, producer))?;
        }
        Ok(Stage {
            ottla,
            kafka,
            kafka_site,
            ottla_site,
            scene,
        })
    }

    pub fn scene(&self, partition: i32) -> Scene {
        Scene {
            partition,
            ..self.scene
        }
    }

    pub fn kafka_port(&self) -> u16 {
        self.kafka_site.port
    }

    pub fn ottla_port(&self) -> u16 {
        self.ottla_site.port
    }

    pub fn strike(self) -> Result<()> {
        self.ottla.stop()?;
        self.kafka.stop()
    }
}

/// All topics.
pub fn topics() -> Vec<&'static str> {
    let others = OTHER_TOPICS.iter().map(|(name, _)| *name);
    [TOPIC].into_iter().chain(others).collect()
}

/// Waits for leaders: a broker that answers may not lead its partitions yet.
fn wait_for_leaders(port: u16) -> Result<()> {
    let others = OTHER_TOPICS.map(|(name, _)| (name, OTHER_PARTITIONS));
    let began = Instant::now();
    for (name, partitions) in [(TOPIC, TOPIC_PARTITIONS)].into_iter().chain(others) {
        while !is_led(port, name, partitions)? {
            ensure!(
                began.elapsed() < START_MAX,
                "{name} has partitions without a leader"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Whether every partition returns its log end offset.
pub fn is_led(port: u16, topic: &str, partitions: i32) -> Result<bool> {
    let latest = |partition_index| ListOffsetsPartition {
        partition_index,
        current_leader_epoch: -1,
        timestamp: -1,
    };
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic,
            partitions: (0..partitions).map(latest).collect(),
        }],
        ..ListOffsetsRequest::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 7);
    let frame = answer(port, &Ask::new(ApiKey::ListOffsets, 7, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::ListOffsets, 7)?;
    let response = ListOffsetsResponse::decode(&mut reader, 7)?;
    let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    Ok(partitions.all(|partition| partition.error_code == 0))
}

/// Repeats the request until the answer, after its correlation id, begins with a throttle time and
/// error code 0: a coordinator first creates its topic, and producer ids are allocated by the
/// controller in blocks of a thousand.
pub fn wait_for(port: u16, ask: &Ask) -> Result<()> {
    let began = Instant::now();
    while !answer(port, ask)?[4..].starts_with(&[0; 4 + 2]) {
        ensure!(began.elapsed() < START_MAX, "{} is not served", ask.api_key);
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Returns the partition's records as a consumer gets them, without leader epochs.
pub fn stored(port: u16, topic: &str, partition: i32) -> Result<Vec<u8>> {
    let request = FetchRequest {
        replica_id: -1,
        max_wait_ms: 100,
        min_bytes: 0,
        max_bytes: i32::MAX,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic,
            partitions: vec![FetchPartition {
                partition,
                current_leader_epoch: -1,
                partition_max_bytes: i32::MAX,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 11);
    let frame = answer(port, &Ask::new(ApiKey::Fetch, 11, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::Fetch, 11)?;
    let response = FetchResponse::decode(&mut reader, 11)?;
    let records = response.responses[0].partitions[0].records;
    let mut records = records.unwrap_or_default().to_vec();
    let mut position = 0;
    while let Ok(header) = BatchHeader::parse(&records[position..]) {
        batch::assign_offset_and_epoch(&mut records[position..], header.base_offset, -1);
        position += header.total_bytes();
    }
    Ok(records)
}

pub fn answer(port: u16, ask: &Ask) -> Result<Vec<u8>> {
    match Wire::connect(port, START_MAX)?.ask(ask)? {
        Outcome::Answer(frame) => Ok(frame),
        other => bail!("{} was not answered: {other:?}", ask.api_key),
    }
}

/// Returns the id of [`TOPIC`].
fn create_topics(port: u16) -> Result<Uuid> {
    let topic = |name, num_partitions, settings: &'static [(&str, &str)]| CreatableTopic {
        name,
        num_partitions,
        replication_factor: 1,
        configs: settings
            .iter()
            // Some records are older than any default retention.
            .chain(&[("retention.ms", "-1")])
            .map(|(name, value)| CreatableTopicConfig {
                name,
                value: Some(value),
            })
            .collect(),
        ..CreatableTopic::default()
    };
    let mut topics = vec![topic(TOPIC, TOPIC_PARTITIONS, &[])];
    topics.extend(OTHER_TOPICS.map(|(name, settings)| topic(name, OTHER_PARTITIONS, settings)));
    let request = CreateTopicsRequest {
        topics,
        timeout_ms: 30_000,
        validate_only: false,
    };
    let mut body = Vec::new();
    request.encode(&mut body, 7);
    let frame = answer(port, &Ask::new(ApiKey::CreateTopics, 7, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::CreateTopics, 7)?;
    let response = CreateTopicsResponse::decode(&mut reader, 7)?;
    for made in &response.topics {
        ensure!(made.error_code == 0, "{}: {:?}", made.name, made.error_message);
    }
    let lies = response.topics.iter().find(|made| made.name == TOPIC);
    Ok(lies.context("no answer for the topic")?.topic_id)
}
