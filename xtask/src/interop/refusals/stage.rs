//! Two brokers on copies of one directory, with the topics that the cases are about.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
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

use super::case::{Body, Scene, TOPIC, TOPIC_PARTITIONS};
use super::exchange::{Ask, Outcome, Wire};
use crate::interop::server::{Programs, Server, Site, Target};

/// Beside [`TOPIC`]: name and settings. Each has [`OTHER_PARTITIONS`].
const OTHER_TOPICS: [(&str, &[(&str, &str)]); 5] = [
    ("compacted", &[("cleanup.policy", "compact")]),
    ("tight", &[("max.message.bytes", "200")]),
    ("clocked", &[("message.timestamp.type", "LogAppendTime")]),
    ("recent", &[("message.timestamp.before.max.ms", "3600000")]),
    ("unpacked", &[("compression.type", "uncompressed")]),
];
const OTHER_PARTITIONS: i32 = 20;

pub struct Stage {
    kafka: Server,
    ottla: Server,
    kafka_site: Site,
    ottla_site: Site,
    topic_id: Uuid,
    now_ms: i64,
}

impl Stage {
    /// Ottla makes the topics; then Kafka opens a copy of its directory.
    pub fn set(programs: &Programs) -> Result<Stage> {
        let (kafka_site, ottla_site) = (
            Site::create("refusals-kafka", &[])?,
            Site::create("refusals-ottla", &[])?,
        );
        let ottla = ottla_site.start(programs, Target::Ottla)?;
        let topic_id = create_topics(ottla_site.port)?;
        ottla.stop()?;
        copy(&ottla_site.directory, &kafka_site.directory)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let ottla = ottla_site.start(programs, Target::Ottla)?;
        let kafka = kafka_site
            .start(programs, Target::Kafka)
            .context("Kafka on a copy of the directory")?;
        for port in [ottla_site.port, kafka_site.port] {
            wait_for_leaders(port)?;
            wait_for_coordinator(port)?;
        }
        Ok(Stage {
            ottla,
            kafka,
            kafka_site,
            ottla_site,
            topic_id,
            now_ms: i64::try_from(now.as_millis())?,
        })
    }

    pub fn scene(&self, partition: i32) -> Scene {
        Scene {
            now_ms: self.now_ms,
            topic_id: self.topic_id,
            partition,
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

/// A broker that answers may still be about to lead its partitions.
fn wait_for_leaders(port: u16) -> Result<()> {
    let others = OTHER_TOPICS.map(|(name, _)| (name, OTHER_PARTITIONS));
    let began = Instant::now();
    for (name, partitions) in [(TOPIC, TOPIC_PARTITIONS)].into_iter().chain(others) {
        while !(0..partitions).all(|partition| log_end(port, name, partition).is_ok()) {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "{name} has partitions without a leader"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Asks for a group's coordinator until there is one, which makes the topic that it keeps its groups in.
fn wait_for_coordinator(port: u16) -> Result<()> {
    let began = Instant::now();
    let ask = Ask::new(ApiKey::FindCoordinator, 2, Body::new().str("some").i8(0));
    while !answer(port, &ask)?[4..].starts_with(&[0; 6]) {
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "there is no coordinator"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The offset that the partition's next record will get.
pub fn log_end(port: u16, topic: &str, partition: i32) -> Result<i64> {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic,
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                current_leader_epoch: -1,
                timestamp: -1,
            }],
        }],
        ..ListOffsetsRequest::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 7);
    let frame = answer(port, &Ask::new(ApiKey::ListOffsets, 7, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::ListOffsets, 7)?;
    let response = ListOffsetsResponse::decode(&mut reader, 7)?;
    let found = &response.topics[0].partitions[0];
    ensure!(found.error_code == 0, "error code {}", found.error_code);
    Ok(found.offset)
}

/// What the partition holds, as a consumer gets it.
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
    Ok(response.responses[0].partitions[0]
        .records
        .unwrap_or_default()
        .to_vec())
}

fn answer(port: u16, ask: &Ask) -> Result<Vec<u8>> {
    match Wire::connect(port, Duration::from_secs(60))?.ask(ask)? {
        Outcome::Answer(frame) => Ok(frame),
        other => anyhow::bail!("{} was not answered: {other:?}", ask.api_key),
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

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("copying {}", entry.path().display()))?;
        }
    }
    Ok(())
}
