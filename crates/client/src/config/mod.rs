//! Kafka's client settings: one table of keys, typed structs made from it once.

use std::sync::Arc;

use crate::error::Error;
use crate::network::io::Address;

/// Settings as the user wrote them: Kafka's keys, text values.
///
/// ```
/// let config = ottla_client::config::Config::new().set("bootstrap.servers", "localhost:9092").set("linger.ms", "10");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub(crate) entries: Vec<(String, String)>,
}

impl Config {
    pub fn new() -> Config {
        Config::default()
    }

    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl ToString) -> Config {
        self.entries.push((key.into(), value.to_string()));
        self
    }
}

/// What every client needs: `bootstrap.servers`, `client.id`, time limits, sockets, security.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub bootstrap_servers: Vec<Address>,
    pub client_id: Arc<str>,
    pub client_rack: Arc<str>,
    pub request_timeout_ms: u64,
    pub retry_backoff_ms: u64,
    pub retry_backoff_ms_max: u64,
    pub reconnect_backoff_ms: u64,
    pub reconnect_backoff_ms_max: u64,
    pub connection_setup_timeout_ms: u64,
    pub connection_setup_timeout_ms_max: u64,
    pub connections_idle_ms_max: u64,
    pub metadata_age_ms_max: u64,
    pub metadata_idle_ms_max: u64,
    /// Ask again from the bootstrap servers when no known node answered for so long (KIP-899); `None`: never.
    pub rebootstrap_after_ms: Option<u64>,
    /// `allow.auto.create.topics` of a consumer; producers allow it.
    pub allow_auto_create_topics: bool,
    /// −1 in Kafka's terms is `None`: the system's default.
    pub send_buffer_bytes: Option<usize>,
    pub receive_buffer_bytes: Option<usize>,
    pub security: Security,
    pub metrics_push_enabled: bool,
    pub metrics_sample_window_ms: u64,
    pub metrics_sample_count: u32,
}

/// Placeholder of the security settings; see config/security.rs.
#[derive(Clone, Debug, Default)]
pub struct Security {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    None,
    Leader,
    All,
}

impl Acks {
    pub fn code(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ProducerConfig {
    pub client: Arc<ClientConfig>,
    pub acks: Acks,
    pub enable_idempotence: bool,
    pub batch_bytes: usize,
    pub buffer_memory_bytes: usize,
    pub compression: ottla_wire::records::compression::Compression,
    pub linger_ms: u64,
    pub max_block_ms: u64,
    pub max_request_bytes: usize,
    pub max_in_flight_requests_per_connection: usize,
    pub delivery_timeout_ms: u64,
    pub retries: u32,
    pub partitioner: PartitionerKind,
    pub partitioner_ignore_keys: bool,
    pub partitioner_adaptive: bool,
    /// 0: off.
    pub partitioner_availability_timeout_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionerKind {
    /// KIP-794: keys by murmur2, others sticky by bytes.
    Default,
    RoundRobin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// KIP-1106: back from now.
    ByDuration {
        ms: u64,
    },
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignorKind {
    Range,
    RoundRobin,
    Sticky,
    CooperativeSticky,
}

#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub client: Arc<ClientConfig>,
    pub group_id: Option<Arc<str>>,
    pub group_instance_id: Option<Arc<str>>,
    /// In the order of preference.
    pub assignors: Vec<AssignorKind>,
    pub session_timeout_ms: u64,
    pub heartbeat_interval_ms: u64,
    pub max_poll_interval_ms: u64,
    pub max_poll_records: usize,
    pub auto_commit_enabled: bool,
    pub auto_commit_interval_ms: u64,
    pub auto_offset_reset: OffsetReset,
    pub read_committed: bool,
    pub fetch_bytes_min: u32,
    pub fetch_bytes_max: u32,
    pub fetch_wait_ms_max: u32,
    pub partition_fetch_bytes_max: u32,
    pub check_crcs: bool,
    pub default_api_timeout_ms: u64,
    pub exclude_internal_topics: bool,
}

#[derive(Clone, Debug)]
pub struct AdminConfig {
    pub client: Arc<ClientConfig>,
    pub default_api_timeout_ms: u64,
    pub retries: u32,
}

impl ProducerConfig {
    /// - Errors: `Config` with Kafka's text; the first key that is wrong.
    pub fn from_config(_config: &Config) -> Result<ProducerConfig, Error> {
        todo!()
    }
}

impl ConsumerConfig {
    pub fn from_config(_config: &Config) -> Result<ConsumerConfig, Error> {
        todo!()
    }
}

impl AdminConfig {
    pub fn from_config(_config: &Config) -> Result<AdminConfig, Error> {
        todo!()
    }
}
