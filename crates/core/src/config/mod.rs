//! What the operator wrote, parsed once into typed values; after that nobody looks up a string.

mod dynamic;
mod listener;
mod topic;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use dynamic::{
    ValueKind, broker_update_problem, broker_values_error, client_metrics_values_error, default_value,
    group_values_error, value_kind,
};
pub use listener::{Listener, SecurityProtocol};
pub(crate) use topic::{TOPIC_SYNONYMS, synonym_factor};
pub use topic::{TopicCompression, TopicConfig, topic_values_error};
pub use values::ValueError;

use crate::random::Seed;
use values::{boolean, choice, integer, ratio, words};

/// A line of the configuration that makes a start impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub key: String,
    pub value: String,
    pub problem: String,
}

impl ConfigError {
    fn new(key: &str, value: &str, problem: impl fmt::Display) -> ConfigError {
        ConfigError { key: key.to_owned(), value: value.to_owned(), problem: problem.to_string() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.key, self.value, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// The configuration file as it is, for everyone who answers questions about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticConfig {
    pub node_id: i32,
    pub values: BTreeMap<Arc<str>, Arc<str>>,
}

/// What `acks=all` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The data is on the disk.
    Disk,
    /// The data is in the operating system's page cache.
    PageCache,
}

/// Settings of the group coordinator, in Kafka's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    pub session_timeout_ms_min: i32,
    pub session_timeout_ms_max: i32,
    pub initial_rebalance_delay_ms: i32,
    pub members_max: i32,
    pub offset_metadata_bytes_max: i32,
    pub offsets_retention_ms: i64,
    pub offsets_retention_check_interval_ms: i64,
    pub offset_commit_timeout_ms: i32,
}

/// How `__consumer_offsets` is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsTopicConfig {
    pub partition_count: i32,
    pub segment_bytes: i32,
    /// Kafka's codec number for coordinator records.
    pub compression_codec: i32,
}

/// Settings of the log layer that are not a topic's.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageConfig {
    pub retention_check_interval_ms: i64,
    pub cleaner_enabled: bool,
    pub cleaner_backoff_ms: i64,
    pub cleaner_dedupe_buffer_bytes: i64,
    pub recovery_point_checkpoint_interval_ms: i64,
    pub log_start_offset_checkpoint_interval_ms: i64,
    pub high_watermark_checkpoint_interval_ms: i64,
    pub producer_id_expiration_ms: i32,
    pub producer_id_expiration_check_interval_ms: i32,
    /// Metadata records between two snapshots of the metadata log.
    pub metadata_bytes_between_snapshots: i64,
    pub metadata_segment_bytes: i32,
}

/// Settings of connections and requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    pub network_threads: i32,
    pub request_bytes_max: i32,
    pub queued_request_bytes_max: i64,
    pub send_buffer_bytes: i32,
    pub receive_buffer_bytes: i32,
    pub listen_backlog: i32,
    pub connections_max: i32,
    pub connections_per_ip_max: i32,
    pub connection_idle_ms_max: i64,
    /// `fetch.max.bytes`
    pub fetch_bytes_max: i32,
    pub fetch_sessions_max: i32,
}

/// Everything a node is started with.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    pub node_id: i32,
    pub rack: Option<Arc<str>>,
    /// Where clients connect, in the order of `listeners`, without those of the controller.
    pub listeners: Vec<Listener>,
    /// What clients are told, one per listener.
    pub advertised_listeners: Vec<Listener>,
    /// Where a controller of Apache Kafka would be reached after taking the directory over.
    pub controller_listener: Listener,
    pub inter_broker_listener_name: Arc<str>,
    pub log_directories: Vec<PathBuf>,
    /// One of the log directories, unless `metadata.log.dir` says otherwise.
    pub metadata_directory: PathBuf,
    pub durability: Durability,
    /// Host and port of the admin address; `None` switches it off.
    pub admin_listener: Option<(Arc<str>, u16)>,
    pub partition_count_default: i32,
    pub replication_factor_default: i16,
    pub auto_create_topics: bool,
    pub delete_topics: bool,
    pub group: GroupConfig,
    pub offsets_topic: OffsetsTopicConfig,
    pub storage: StorageConfig,
    pub network: NetworkConfig,
    pub static_config: Arc<StaticConfig>,
    /// Feeds every random name: topic ids, directory ids, member ids.
    pub seed: Seed,
    /// What the operator should know before the first client does.
    pub warnings: Vec<String>,
}

/// The text of every key, with the way to read it.
struct Properties<'a> {
    values: &'a BTreeMap<String, String>,
}

impl<'a> Properties<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.values.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn read<T>(&self, key: &str, default: T, read: impl Fn(&str) -> Result<T, ValueError>) -> Result<T, ConfigError> {
        match self.text(key) {
            None => Ok(default),
            Some(value) => read(value).map_err(|problem| ConfigError::new(key, value, problem)),
        }
    }

    fn int(&self, key: &str, default: i32, min: i32) -> Result<i32, ConfigError> {
        self.read(key, default, |value| integer(value, min.into(), i32::MAX.into()).map(|number| number as i32))
    }

    fn long(&self, key: &str, default: i64, min: i64) -> Result<i64, ConfigError> {
        self.read(key, default, |value| integer(value, min, i64::MAX))
    }

    fn boolean(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        self.read(key, default, boolean)
    }
}

const MINUTE_MS: i64 = 60 * 1000;
const DEFAULT_DATA_DIRECTORY: &str = "./ottla-data";
const DEFAULT_LISTENERS: &str = "PLAINTEXT://127.0.0.1:9092";
const DEFAULT_ADMIN_LISTENER: &str = "127.0.0.1:9644";

impl NodeConfig {
    /// Reads a configuration in the form of Apache Kafka's server.properties.
    ///
    /// - `seed`: from the operating system's random numbers, or from a simulation.
    /// - Errors: the first line that makes a start impossible.
    pub fn from_properties(properties: &BTreeMap<String, String>, seed: Seed) -> Result<NodeConfig, ConfigError> {
        let read = Properties { values: properties };
        let node_id = node_id(&read)?;
        let listeners = listener::Listeners::read(&read)?;
        let log_directories = log_directories(&read);
        let metadata_directory =
            read.text("metadata.log.dir").map_or_else(|| log_directories[0].clone(), PathBuf::from);
        let static_config = StaticConfig {
            node_id,
            values: properties.iter().map(|(key, value)| (key.as_str().into(), value.trim().into())).collect(),
        };
        check_topic_defaults(&static_config)?;
        let mut config = NodeConfig {
            node_id,
            rack: read.text("broker.rack").map(Arc::from),
            listeners: listeners.served,
            advertised_listeners: listeners.advertised,
            controller_listener: listeners.controller,
            inter_broker_listener_name: listeners.inter_broker_name,
            log_directories,
            metadata_directory,
            durability: read.read("ottla.durability", Durability::Disk, |value| {
                Ok(match choice(value, &["disk", "page-cache"])? {
                    "disk" => Durability::Disk,
                    _ => Durability::PageCache,
                })
            })?,
            admin_listener: admin_listener(properties)?,
            partition_count_default: read.int("num.partitions", 1, 1)?,
            replication_factor_default: read
                .read("default.replication.factor", 1, |value| integer(value, 1, i16::MAX.into()).map(|n| n as i16))?,
            auto_create_topics: read.boolean("auto.create.topics.enable", true)?,
            delete_topics: read.boolean("delete.topic.enable", true)?,
            group: group_config(&read)?,
            offsets_topic: OffsetsTopicConfig {
                partition_count: read.int("offsets.topic.num.partitions", 50, 1)?,
                segment_bytes: read.int("offsets.topic.segment.bytes", 100 * 1024 * 1024, 1)?,
                compression_codec: read.int("offsets.topic.compression.codec", 0, 0)?,
            },
            storage: storage_config(&read)?,
            network: network_config(&read)?,
            static_config: Arc::new(static_config),
            seed,
            warnings: Vec::new(),
        };
        read.read("log.cleaner.min.cleanable.ratio", 0.5, ratio)?;
        config.warnings = dynamic::warnings(properties, &config);
        Ok(config)
    }

    /// Notes where a listener was really bound, so that port 0 and an empty host are told to clients as what they are.
    ///
    /// - `host`: what stands for an empty host, as this machine is called by others.
    pub fn bound(&mut self, listener_name: &str, port: u16, host: &str) {
        for listener in &mut self.listeners {
            if &*listener.name == listener_name {
                listener.port = port;
            }
        }
        for advertised in &mut self.advertised_listeners {
            if &*advertised.name == listener_name {
                if advertised.port == 0 {
                    advertised.port = port;
                }
                if advertised.host.is_empty() {
                    advertised.host = host.into();
                }
            }
        }
        if self.controller_listener.host.is_empty() {
            self.controller_listener.host = host.into();
        }
    }
}

fn node_id(read: &Properties<'_>) -> Result<i32, ConfigError> {
    let node_id = read.int("node.id", 1, 0)?;
    // The older name; Kafka takes either, but not two answers.
    let broker_id = read.int("broker.id", node_id, 0)?;
    match (read.text("node.id"), read.text("broker.id")) {
        (None, Some(_)) => Ok(broker_id),
        (Some(_), Some(value)) if broker_id != node_id => {
            Err(ConfigError::new("broker.id", value, format!("contradicts node.id={node_id}")))
        }
        _ => Ok(node_id),
    }
}

fn log_directories(read: &Properties<'_>) -> Vec<PathBuf> {
    let given = read.text("log.dirs").or_else(|| read.text("log.dir")).unwrap_or(DEFAULT_DATA_DIRECTORY);
    words(given).map(PathBuf::from).collect()
}

fn check_topic_defaults(static_config: &StaticConfig) -> Result<(), ConfigError> {
    for (key, synonyms) in TOPIC_SYNONYMS {
        for name in *synonyms {
            let Some(value) = static_config.values.get(*name) else { continue };
            TopicConfig::default()
                .set_scaled(key, value, synonym_factor(name))
                .map_err(|problem| ConfigError::new(name, value, problem))?;
        }
    }
    Ok(())
}

fn admin_listener(properties: &BTreeMap<String, String>) -> Result<Option<(Arc<str>, u16)>, ConfigError> {
    const KEY: &str = "ottla.admin.listener";
    let value = properties.get(KEY).map_or(DEFAULT_ADMIN_LISTENER, |value| value.trim());
    if value.is_empty() {
        return Ok(None);
    }
    let (host, port) =
        value.rsplit_once(':').ok_or_else(|| ConfigError::new(KEY, value, "must be host:port, or empty for off"))?;
    let port = port.parse().map_err(|_| ConfigError::new(KEY, value, "port is not a number from 0 to 65535"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Some((host.into(), port)))
}

fn group_config(read: &Properties<'_>) -> Result<GroupConfig, ConfigError> {
    Ok(GroupConfig {
        session_timeout_ms_min: read.int("group.min.session.timeout.ms", 6_000, 0)?,
        session_timeout_ms_max: read.int("group.max.session.timeout.ms", 1_800_000, 0)?,
        initial_rebalance_delay_ms: read.int("group.initial.rebalance.delay.ms", 3_000, 0)?,
        members_max: read.int("group.max.size", i32::MAX, 1)?,
        offset_metadata_bytes_max: read.int("offset.metadata.max.bytes", 4_096, 0)?,
        offsets_retention_ms: i64::from(read.int("offsets.retention.minutes", 7 * 24 * 60, 1)?) * MINUTE_MS,
        offsets_retention_check_interval_ms: read.long("offsets.retention.check.interval.ms", 10 * MINUTE_MS, 1)?,
        offset_commit_timeout_ms: read.int("offsets.commit.timeout.ms", 5_000, 1)?,
    })
}

fn storage_config(read: &Properties<'_>) -> Result<StorageConfig, ConfigError> {
    Ok(StorageConfig {
        retention_check_interval_ms: read.long("log.retention.check.interval.ms", 5 * MINUTE_MS, 1)?,
        cleaner_enabled: read.boolean("log.cleaner.enable", true)?,
        cleaner_backoff_ms: read.long("log.cleaner.backoff.ms", 15_000, 0)?,
        cleaner_dedupe_buffer_bytes: read.long("log.cleaner.dedupe.buffer.size", 128 * 1024 * 1024, 1)?,
        recovery_point_checkpoint_interval_ms: read
            .int("log.flush.offset.checkpoint.interval.ms", 60_000, 0)?
            .into(),
        log_start_offset_checkpoint_interval_ms: read
            .int("log.flush.start.offset.checkpoint.interval.ms", 60_000, 0)?
            .into(),
        high_watermark_checkpoint_interval_ms: read.long("replica.high.watermark.checkpoint.interval.ms", 5_000, 1)?,
        producer_id_expiration_ms: read.int("producer.id.expiration.ms", 24 * 60 * 60 * 1000, 1)?,
        producer_id_expiration_check_interval_ms: read.int("producer.id.expiration.check.interval.ms", 600_000, 1)?,
        metadata_bytes_between_snapshots: read
            .long("metadata.log.max.record.bytes.between.snapshots", 20 * 1024 * 1024, 1)?,
        metadata_segment_bytes: read.int("metadata.log.segment.bytes", 1024 * 1024 * 1024, 12)?,
    })
}

fn network_config(read: &Properties<'_>) -> Result<NetworkConfig, ConfigError> {
    Ok(NetworkConfig {
        network_threads: read.int("num.network.threads", 3, 1)?,
        request_bytes_max: read.int("socket.request.max.bytes", 100 * 1024 * 1024, 1)?,
        queued_request_bytes_max: read.long("queued.max.request.bytes", -1, -1)?,
        send_buffer_bytes: read.int("socket.send.buffer.bytes", 100 * 1024, -1)?,
        receive_buffer_bytes: read.int("socket.receive.buffer.bytes", 100 * 1024, -1)?,
        listen_backlog: read.int("socket.listen.backlog.size", 50, 1)?,
        connections_max: read.int("max.connections", i32::MAX, 0)?,
        connections_per_ip_max: read.int("max.connections.per.ip", i32::MAX, 0)?,
        connection_idle_ms_max: read.long("connections.max.idle.ms", 10 * MINUTE_MS, -1)?,
        fetch_bytes_max: read.int("fetch.max.bytes", 55 * 1024 * 1024, 1024)?,
        fetch_sessions_max: read.int("max.incremental.fetch.session.cache.slots", 1_000, 0)?,
    })
}
