//! The operator's configuration, parsed once into typed values; later code looks up no strings.

mod authorizer;
mod connections;
mod consumer_limits;
mod dynamic;
mod first_user;
mod jaas;
mod listener;
mod oauth;
mod quota;
mod resource;
mod sasl;
mod security;
mod topic;
mod transaction;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ottla_wire::config_keys::{self, ConfigKey, ConfigValue};

pub use authorizer::AuthorizerConfig;
pub use connections::{ConnectionLimit, ConnectionLimits};
pub use consumer_limits::{ConsumerLimits, Limits};
pub use dynamic::{
    broker_update_problem, effective_settings, is_of_connections, is_of_tls, key_of, scope_of, values_error,
};
pub use first_user::FirstUser;
pub use listener::{Listener, SecurityProtocol};
pub use oauth::OauthSettings;
pub use quota::QuotaConfig;
pub use resource::{ConfigResource, ConfigResourceType, ConfigValues};
pub use sasl::{
    MechanismSettings, SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN, SaslMechanism, SaslSettings, Secret,
};
pub use security::{ListenerSecurity, SecurityByListener, is_of_security, oauth_settings};
pub use topic::{TopicCompression, TopicConfig, topic_values_error};
pub use transaction::TransactionConfig;

use crate::random::{SecretSeed, Seed};
use crate::tenant::{TenantConfig, TenantKind, TenantLimits};

/// A line of the configuration that prevents a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub key: String,
    pub value: String,
    pub problem: String,
}

impl ConfigError {
    pub fn new(key: &str, value: &str, problem: impl fmt::Display) -> ConfigError {
        let is_secret = config_keys::broker_or_listener_key(key).is_some_and(ConfigKey::is_sensitive);
        let shown = if is_secret && !value.is_empty() {
            "[hidden]"
        } else {
            value
        };
        ConfigError {
            key: key.to_owned(),
            value: shown.to_owned(),
            problem: problem.to_string(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}: {}", self.key, self.value, self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// The configuration file as written, for answering requests about it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StaticConfig {
    pub node_id: i32,
    pub values: BTreeMap<Arc<str>, Arc<str>>,
}

// Some values are passwords.
impl fmt::Debug for StaticConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("StaticConfig")
            .field("node_id", &self.node_id)
            .field("values", &self.values.keys())
            .finish()
    }
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
    pub consumer: ConsumerGroupConfig,
}

/// Settings of groups of KIP-848, in Kafka's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupConfig {
    pub is_enabled: bool,
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    pub assignment_interval_ms: i32,
    pub limits: ConsumerLimits,
    pub members_max: i32,
    /// Short names of assignors.
    pub assignors: Vec<String>,
    pub regex_refresh_interval_ms: i32,
    pub migration: MigrationPolicy,
}

/// `group.consumer.migration.policy`: which way a group with members may change its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationPolicy {
    Bidirectional,
    Upgrade,
    Downgrade,
    Disabled,
}

impl MigrationPolicy {
    /// Reads one of the names that the table of keys allows, in any case.
    fn of(name: &str) -> MigrationPolicy {
        match name.trim().to_ascii_lowercase().as_str() {
            "upgrade" => MigrationPolicy::Upgrade,
            "downgrade" => MigrationPolicy::Downgrade,
            "disabled" => MigrationPolicy::Disabled,
            _ => MigrationPolicy::Bidirectional,
        }
    }

    /// Whether a classic group may become one of the consumer protocol.
    pub fn allows_upgrade(self) -> bool {
        matches!(self, MigrationPolicy::Bidirectional | MigrationPolicy::Upgrade)
    }

    /// The reverse of `allows_upgrade`.
    pub fn allows_downgrade(self) -> bool {
        matches!(self, MigrationPolicy::Bidirectional | MigrationPolicy::Downgrade)
    }
}

/// How `__consumer_offsets` is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsTopicConfig {
    pub partition_count: i32,
    pub segment_bytes: i32,
    /// Kafka's codec number for coordinator records.
    pub compression_codec: i32,
}

/// Settings of the log layer that do not belong to a topic.
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
    /// Bytes of metadata records between two snapshots of the metadata log.
    pub metadata_bytes_between_snapshots: i64,
    pub metadata_segment_bytes: i32,
    /// Memory for the newest bytes of all logs, with `Durability::Disk`.
    pub log_memory_bytes: u64,
    /// How much memory (with `Durability::PageCache`, of the page cache) is left to data read for
    /// consumers that lag behind.
    pub cold_read_cache_bytes: u64,
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
    /// As the file says; what was set at run time comes before it.
    pub connections: ConnectionLimits,
    pub connection_idle_ms_max: i64,
    /// `connection.failed.authentication.delay.ms`
    pub failed_authentication_delay_ms: i32,
    /// `ottla.authentication.timeout.ms`
    pub authentication_timeout_ms: i32,
    /// `fetch.max.bytes`
    pub fetch_bytes_max: i32,
    pub fetch_sessions_max: i32,
}

/// Client metrics (KIP-714).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// `telemetry.max.bytes`: size of a push as received, usually compressed.
    pub bytes_max: i32,
    /// Push interval of a client that no subscription matches; 0: it does not push.
    pub default_interval_ms: u32,
}

/// Losses that the operator accepts for this one start. They are set by command-line options, not
/// in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryConfig {
    /// Rebuild the metadata log from its intact records and from the partitions' directories.
    pub recover_metadata: bool,
    /// Partitions, by directory name (`orders-0`), that are served without their lost records.
    pub accept_loss: BTreeSet<String>,
}

/// The complete configuration of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    pub node_id: i32,
    pub rack: Option<Arc<str>>,
    /// The addresses that clients connect to, in the order of `listeners`, without the
    /// controller's.
    pub listeners: Vec<Listener>,
    /// The advertised addresses, one per listener.
    pub advertised_listeners: Vec<Listener>,
    /// The address of a controller of Apache Kafka once it has taken over the directory.
    pub controller_listener: Listener,
    pub inter_broker_listener_name: Arc<str>,
    /// The security of each listener in `listeners`, as configured in the file.
    pub security: SecurityByListener,
    /// `None`: everyone may do everything.
    pub authorizer: Option<AuthorizerConfig>,
    pub log_directories: Vec<PathBuf>,
    /// One of the log directories, unless `metadata.log.dir` names another.
    pub metadata_directory: PathBuf,
    pub durability: Durability,
    /// Host and port of the admin address; `None` disables it.
    pub admin_listener: Option<(Arc<str>, u16)>,
    /// The file with its token; `None`: none is named.
    pub admin_token_file: Option<PathBuf>,
    /// Whether it may be reachable from other machines without a token.
    pub admin_is_insecure: bool,
    /// Further host names accepted in requests to it.
    pub admin_hosts: Vec<String>,
    pub partition_count_default: i32,
    pub replication_factor_default: i16,
    /// With less free space than this, writes are refused; reads continue.
    pub disk_reserve_bytes: i64,
    /// −1: slow requests are not logged.
    pub slow_request_ms: i64,
    pub auto_create_topics: bool,
    pub delete_topics: bool,
    pub group: GroupConfig,
    pub offsets_topic: OffsetsTopicConfig,
    pub transactions: TransactionConfig,
    pub storage: StorageConfig,
    pub network: NetworkConfig,
    pub telemetry: TelemetryConfig,
    pub tenants: TenantConfig,
    pub quota: QuotaConfig,
    pub recovery: RecoveryConfig,
    pub static_config: Arc<StaticConfig>,
    /// Users that an empty metadata log begins with; an error refuses to begin one.
    pub first_users: Result<Vec<FirstUser>, ConfigError>,
    /// Seed of all random names: topic ids, directory ids, member ids.
    pub seed: Seed,
    /// Seed of what must not be guessed: nonces. The names above are public, and enough of them
    /// reveal `seed`, so the shell sets another one.
    pub secret_seed: SecretSeed,
    /// Problems to log at the start.
    pub warnings: Vec<String>,
}

/// The text of all given keys, with typed access.
struct Properties<'a> {
    values: &'a BTreeMap<String, String>,
}

impl<'a> Properties<'a> {
    /// Returns the value without surrounding blanks; an empty value counts as not set.
    fn text(&self, key: &str) -> Option<&'a str> {
        self.values
            .get(key)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Returns the value or the default; the key must have one of them.
    fn value(&self, name: &str) -> Result<ConfigValue, ConfigError> {
        self.value_at(name, name)
    }

    /// - `name`: the key as written, which may have a listener's prefix.
    fn value_at(&self, name: &str, key: &str) -> Result<ConfigValue, ConfigError> {
        let key = config_keys::broker_key(key).expect("every key read here is in the table");
        let text = self
            .text(name)
            .or(key.default)
            .expect("a key without default is not read as a value");
        config_keys::parse_value(key, text).map_err(|error| ConfigError::new(name, text, error.why))
    }

    fn long(&self, name: &str) -> Result<i64, ConfigError> {
        self.long_at(name, name)
    }

    fn long_at(&self, name: &str, key: &str) -> Result<i64, ConfigError> {
        Ok(self
            .value_at(name, key)?
            .as_i64()
            .expect("the table says that it is a number"))
    }

    fn int(&self, name: &str) -> Result<i32, ConfigError> {
        Ok(i32::try_from(self.long(name)?).expect("the table says that it is an int"))
    }

    fn list(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        let value = self.value(name)?;
        Ok(value
            .as_list()
            .expect("the table says that it is a list")
            .to_vec())
    }

    fn boolean(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(self
            .value(name)?
            .as_bool()
            .expect("the table says that it is a boolean"))
    }
}

/// What the names of a listener's own settings begin with.
fn listener_prefix(listener: &str) -> String {
    format!("{}{}.", config_keys::LISTENER_PREFIX, listener.to_lowercase())
}

/// Returns the security of every listener according to a broker's settings.
///
/// - `settings`: those of `effective_settings`.
/// - Errors: the first setting that cannot be served.
pub fn security_of(
    listeners: &[Listener],
    settings: &BTreeMap<String, String>,
) -> Result<SecurityByListener, ConfigError> {
    security::read(&Properties { values: settings }, listeners, &mut Vec::new())
}

/// Whether a broker's key says where its listeners are.
pub fn is_of_addresses(name: &str) -> bool {
    listener::DYNAMIC.contains(&name)
}

/// Checks whether a start with these settings would find its listeners, as `security_of`. Ottla
/// keeps its addresses until then.
pub fn check_addresses(settings: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    listener::check_dynamic(&Properties { values: settings })
}

/// Returns the limits of connections according to a broker's settings, as `security_of`.
pub fn connection_limits_of(
    listeners: &[Listener],
    settings: &BTreeMap<String, String>,
) -> Result<ConnectionLimits, ConfigError> {
    connections::read(&Properties { values: settings }, listeners)
}

/// Splits comma-separated words and trims them.
fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}

const MINUTE_MS: i64 = 60 * 1000;

impl NodeConfig {
    /// Reads a configuration in the format of Apache Kafka's server.properties.
    ///
    /// - `seed`: from the operating system's random numbers, or from a simulation.
    /// - Errors: the first line that prevents a start.
    pub fn from_properties(
        properties: &BTreeMap<String, String>,
        seed: Seed,
    ) -> Result<NodeConfig, ConfigError> {
        check_known_keys(properties)?;
        let read = Properties { values: properties };
        let node_id = node_id(&read)?;
        let listeners = listener::Listeners::read(&read)?;
        let mut warnings = listeners.warnings;
        let security = security::read(&read, &listeners.served, &mut warnings)?;
        let connections = connections::read(&read, &listeners.served)?;
        let log_directories = log_directories(&read)?;
        let metadata_directory = read
            .text("metadata.log.dir")
            .map_or_else(|| log_directories[0].clone(), PathBuf::from);
        let static_config = StaticConfig {
            node_id,
            values: properties
                .iter()
                .map(|(key, value)| (key.as_str().into(), value.trim().into()))
                .collect(),
        };
        let mut config = NodeConfig {
            node_id,
            rack: read.text("broker.rack").map(Arc::from),
            listeners: listeners.served,
            advertised_listeners: listeners.advertised,
            controller_listener: listeners.controller,
            inter_broker_listener_name: listeners.inter_broker_name,
            security,
            authorizer: authorizer::read(&read)?,
            log_directories,
            metadata_directory,
            durability: match read.value("ottla.durability")?.as_str() {
                Some("page-cache") => Durability::PageCache,
                _ => Durability::Disk,
            },
            admin_listener: admin_listener(properties)?,
            admin_token_file: read.text("ottla.admin.token.file").map(PathBuf::from),
            admin_is_insecure: read.boolean("ottla.admin.insecure")?,
            admin_hosts: words(read.text("ottla.admin.hosts").unwrap_or_default())
                .map(str::to_owned)
                .collect(),
            partition_count_default: read.int("num.partitions")?,
            replication_factor_default: i16::try_from(read.int("default.replication.factor")?)
                .expect("the table limits it to a short"),
            disk_reserve_bytes: read.long("ottla.disk.reserve.bytes")?,
            slow_request_ms: read.long("ottla.slow.request.ms")?,
            auto_create_topics: read.boolean("auto.create.topics.enable")?,
            delete_topics: read.boolean("delete.topic.enable")?,
            group: group_config(&read)?,
            offsets_topic: OffsetsTopicConfig {
                partition_count: read.int("offsets.topic.num.partitions")?,
                segment_bytes: read.int("offsets.topic.segment.bytes")?,
                compression_codec: read.int("offsets.topic.compression.codec")?,
            },
            transactions: transaction_config(&read)?,
            storage: storage_config(&read)?,
            network: network_config(&read, connections)?,
            telemetry: telemetry_config(&read)?,
            tenants: tenant_config(&read)?,
            quota: quota_config(&read)?,
            recovery: RecoveryConfig::default(),
            static_config: Arc::new(static_config),
            first_users: Ok(Vec::new()),
            seed,
            secret_seed: SecretSeed(seed),
            warnings: Vec::new(),
        };
        warnings.extend(dynamic::warnings(properties, &config));
        config.warnings = warnings;
        Ok(config)
    }

    /// Records the actual address of a listener, which replaces port 0 and an empty host in the
    /// advertised addresses.
    ///
    /// - `host`: replaces an empty host: the name by which other machines reach this one.
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
    let node_id = read.int("node.id")?;
    // The older name; as in Kafka, either is accepted, but they must not differ.
    let Some(value) = read.text("broker.id") else {
        return Ok(node_id);
    };
    match read.int("broker.id")? {
        broker_id if read.text("node.id").is_none() => Ok(broker_id),
        broker_id if broker_id == node_id => Ok(node_id),
        _ => Err(ConfigError::new(
            "broker.id",
            value,
            format!("contradicts node.id={node_id}"),
        )),
    }
}

fn default_text(name: &str) -> &'static str {
    config_keys::broker_key(name)
        .and_then(|key| key.default)
        .expect("the table has a default for it")
}

fn log_directories(read: &Properties<'_>) -> Result<Vec<PathBuf>, ConfigError> {
    let key = if read.text("log.dirs").is_some() {
        "log.dirs"
    } else {
        "log.dir"
    };
    let given = read.text(key).unwrap_or(default_text("log.dir"));
    let directories: Vec<PathBuf> = words(given).map(PathBuf::from).collect();
    if directories.len() != 1 {
        let problem = format!("{} log directories, one is supported", directories.len());
        return Err(ConfigError::new(key, given, problem));
    }
    Ok(directories)
}

/// Checks the value of every known key, whether the key has an effect here or not.
fn check_known_keys(properties: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for (name, value) in properties {
        let Some(key) = config_keys::broker_or_listener_key(name) else {
            continue;
        };
        if !value.trim().is_empty() {
            config_keys::parse_value(key, value).map_err(|error| ConfigError::new(name, value, error.why))?;
        }
    }
    Ok(())
}

fn admin_listener(properties: &BTreeMap<String, String>) -> Result<Option<(Arc<str>, u16)>, ConfigError> {
    const KEY: &str = "ottla.admin.listener";
    let value = properties
        .get(KEY)
        .map_or(default_text(KEY), |value| value.trim());
    if value.is_empty() {
        return Ok(None);
    }
    let (host, port) = value
        .rsplit_once(':')
        .ok_or_else(|| ConfigError::new(KEY, value, "must be host:port, or empty for off"))?;
    let port = port
        .parse()
        .map_err(|_| ConfigError::new(KEY, value, "port is not a number from 0 to 65535"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Some((host.into(), port)))
}

fn group_config(read: &Properties<'_>) -> Result<GroupConfig, ConfigError> {
    Ok(GroupConfig {
        session_timeout_ms_min: read.int("group.min.session.timeout.ms")?,
        session_timeout_ms_max: read.int("group.max.session.timeout.ms")?,
        initial_rebalance_delay_ms: read.int("group.initial.rebalance.delay.ms")?,
        members_max: read.int("group.max.size")?,
        offset_metadata_bytes_max: read.int("offset.metadata.max.bytes")?,
        offsets_retention_ms: i64::from(read.int("offsets.retention.minutes")?) * MINUTE_MS,
        offsets_retention_check_interval_ms: read.long("offsets.retention.check.interval.ms")?,
        offset_commit_timeout_ms: read.int("offsets.commit.timeout.ms")?,
        consumer: consumer_group_config(read)?,
    })
}

fn consumer_group_config(read: &Properties<'_>) -> Result<ConsumerGroupConfig, ConfigError> {
    const ASSIGNORS: &str = "group.consumer.assignors";
    let assignors = read.list(ASSIGNORS)?;
    let protocols = read.list("group.coordinator.rebalance.protocols")?;
    let migration = read.value("group.consumer.migration.policy")?;
    Ok(ConsumerGroupConfig {
        is_enabled: protocols.iter().any(|protocol| protocol == "consumer"),
        session_timeout_ms: read.int("group.consumer.session.timeout.ms")?,
        heartbeat_interval_ms: read.int("group.consumer.heartbeat.interval.ms")?,
        assignment_interval_ms: read.int("group.consumer.assignment.interval.ms")?,
        limits: ConsumerLimits::read(|key| read.int(key))?,
        members_max: read.int("group.consumer.max.size")?,
        assignors: (assignors.iter().map(|name| assignor(ASSIGNORS, name))).collect::<Result<_, _>>()?,
        regex_refresh_interval_ms: read.int("group.consumer.regex.refresh.interval.ms")?,
        migration: MigrationPolicy::of(migration.as_str().unwrap_or_default()),
    })
}

/// Returns the short name of an assignor, which Apache Kafka also knows by its class.
fn assignor(key: &str, name: &str) -> Result<String, ConfigError> {
    match name {
        "uniform" | "org.apache.kafka.coordinator.group.assignor.UniformAssignor" => Ok("uniform".to_owned()),
        "range" | "org.apache.kafka.coordinator.group.assignor.RangeAssignor" => Ok("range".to_owned()),
        _ => Err(ConfigError::new(key, name, "the assignors are uniform and range")),
    }
}

fn transaction_config(read: &Properties<'_>) -> Result<TransactionConfig, ConfigError> {
    Ok(TransactionConfig {
        timeout_ms_max: read.int("transaction.max.timeout.ms")?,
        expiration_ms: read.int("transactional.id.expiration.ms")?.into(),
        expiry_interval_ms: read
            .int("transaction.remove.expired.transaction.cleanup.interval.ms")?
            .unsigned_abs()
            .into(),
        verifies: read.boolean("transaction.partition.verification.enable")?,
        partition_count: read.int("transaction.state.log.num.partitions")?,
        segment_bytes: read.int("transaction.state.log.segment.bytes")?,
        min_in_sync: read.int("transaction.state.log.min.isr")?,
    })
}

fn telemetry_config(read: &Properties<'_>) -> Result<TelemetryConfig, ConfigError> {
    const KEY: &str = "ottla.telemetry.default.interval.ms";
    /// As the minimum of a subscription's `interval.ms`.
    const INTERVAL_MS_MIN: u32 = 100;
    let default_interval_ms = u32::try_from(read.int(KEY)?).expect("the table limits it to 0 and more");
    if default_interval_ms > 0 && default_interval_ms < INTERVAL_MS_MIN {
        let given = default_interval_ms.to_string();
        let problem = format!("must be 0 (none) or from {INTERVAL_MS_MIN} to 3600000");
        return Err(ConfigError::new(KEY, &given, problem));
    }
    Ok(TelemetryConfig {
        bytes_max: read.int("telemetry.max.bytes")?,
        default_interval_ms,
    })
}

fn tenant_config(read: &Properties<'_>) -> Result<TenantConfig, ConfigError> {
    const KEY: &str = "ottla.tenant.key";
    let key: Vec<TenantKind> = words(read.text(KEY).unwrap_or(default_text(KEY)))
        .map(|word| TenantKind::from_key(word).expect("the table lists these words"))
        .collect();
    if key.is_empty() {
        let given = read.text(KEY).unwrap_or_default();
        return Err(ConfigError::new(
            KEY,
            given,
            "names nothing; without a value it is user,client-id,address",
        ));
    }
    let size = |name: &str| Ok(usize::try_from(read.int(name)?).expect("the table limits it to 0 and more"));
    Ok(TenantConfig {
        key: key.into(),
        limits: TenantLimits {
            known_max: size("ottla.tenant.known.max")?,
            new_per_minute: u32::try_from(read.int("ottla.tenant.new.per.minute")?)
                .expect("the table limits it to 1 and more"),
        },
        metrics_max: size("ottla.tenant.metrics.max")?,
    })
}

fn quota_config(read: &Properties<'_>) -> Result<QuotaConfig, ConfigError> {
    let seconds = |key| {
        Ok(Duration::from_secs(
            u64::try_from(read.int(key)?).expect("the table says at least 1"),
        ))
    };
    let samples = u32::try_from(read.int("controller.quota.window.num")?).expect("the table says at least 1");
    Ok(QuotaConfig {
        window: seconds("quota.window.size.seconds")?,
        controller_window: seconds("controller.quota.window.size.seconds")?.saturating_mul(samples),
        is_dry_run: read.boolean("ottla.quota.dry.run")?,
    })
}

fn storage_config(read: &Properties<'_>) -> Result<StorageConfig, ConfigError> {
    Ok(StorageConfig {
        retention_check_interval_ms: read.long("log.retention.check.interval.ms")?,
        cleaner_enabled: read.boolean("log.cleaner.enable")?,
        cleaner_backoff_ms: read.long("log.cleaner.backoff.ms")?,
        cleaner_dedupe_buffer_bytes: read.long("log.cleaner.dedupe.buffer.size")?,
        recovery_point_checkpoint_interval_ms: read.int("log.flush.offset.checkpoint.interval.ms")?.into(),
        log_start_offset_checkpoint_interval_ms: read
            .int("log.flush.start.offset.checkpoint.interval.ms")?
            .into(),
        high_watermark_checkpoint_interval_ms: read.long("replica.high.watermark.checkpoint.interval.ms")?,
        producer_id_expiration_ms: read.int("producer.id.expiration.ms")?,
        log_memory_bytes: u64::try_from(read.long("ottla.log.memory.bytes")?)
            .expect("the table limits it to 16 MiB and more"),
        cold_read_cache_bytes: u64::try_from(read.long("ottla.cold.read.cache.bytes")?)
            .expect("the table limits it to 1 MiB and more"),
        producer_id_expiration_check_interval_ms: read.int("producer.id.expiration.check.interval.ms")?,
        metadata_bytes_between_snapshots: read.long("metadata.log.max.record.bytes.between.snapshots")?,
        metadata_segment_bytes: read.int("metadata.log.segment.bytes")?,
    })
}

fn network_config(
    read: &Properties<'_>,
    connections: ConnectionLimits,
) -> Result<NetworkConfig, ConfigError> {
    Ok(NetworkConfig {
        network_threads: read.int("num.network.threads")?,
        request_bytes_max: read.int("socket.request.max.bytes")?,
        queued_request_bytes_max: read.long("queued.max.request.bytes")?,
        send_buffer_bytes: read.int("socket.send.buffer.bytes")?,
        receive_buffer_bytes: read.int("socket.receive.buffer.bytes")?,
        listen_backlog: read.int("socket.listen.backlog.size")?,
        connections,
        connection_idle_ms_max: read.long("connections.max.idle.ms")?,
        failed_authentication_delay_ms: read.int("connection.failed.authentication.delay.ms")?,
        authentication_timeout_ms: read.int("ottla.authentication.timeout.ms")?,
        fetch_bytes_max: read.int("fetch.max.bytes")?,
        fetch_sessions_max: read.int("max.incremental.fetch.session.cache.slots")?,
    })
}
