//! Settings that may change while the broker runs: which there are, and what they may say.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::topic::{TOPIC_SYNONYMS, TopicConfig, synonym_factor};
use super::values::{ValueError, boolean, choice, integer};
use super::{Durability, NodeConfig};
use crate::image::{ConfigResourceType, ConfigValues};

/// The form of a value, as DescribeConfigs names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Boolean,
    String,
    Int,
    Short,
    Long,
    Double,
    List,
    Class,
    Password,
}

impl ValueKind {
    /// The number of the type in a DescribeConfigs response (KIP-569).
    pub fn code(self) -> i8 {
        match self {
            ValueKind::Boolean => 1,
            ValueKind::String => 2,
            ValueKind::Int => 3,
            ValueKind::Short => 4,
            ValueKind::Long => 5,
            ValueKind::Double => 6,
            ValueKind::List => 7,
            ValueKind::Class => 8,
            ValueKind::Password => 9,
        }
    }
}

/// Broker settings beside the topic defaults that Apache Kafka lets change at run time. Those of TLS, SASL and the
/// listeners are not among them: here they cannot change without a restart.
const DYNAMIC_BROKER_KEYS: &[&str] = &[
    "background.threads",
    "group.consumer.assignment.interval.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
    // Replication throttles.
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// Settings of one group and their defaults: the consumer protocol of KIP-848. Those of share and Streams groups are
/// kept, because a directory may come from Apache Kafka with them.
const GROUP_KEYS: &[(&str, i64, i64)] = &[
    ("consumer.session.timeout.ms", 45_000, 1),
    ("consumer.heartbeat.interval.ms", 5_000, 1),
    ("consumer.assignment.interval.ms", 1_000, 0),
    ("share.session.timeout.ms", 45_000, 1),
    ("share.heartbeat.interval.ms", 5_000, 1),
    ("share.record.lock.duration.ms", 30_000, 1_000),
    ("share.delivery.count.limit", 5, 2),
    ("share.partition.max.record.locks", 2_000, 100),
    ("share.assignment.interval.ms", 1_000, 0),
    ("streams.session.timeout.ms", 45_000, 1),
    ("streams.heartbeat.interval.ms", 5_000, 1),
    ("streams.num.standby.replicas", 0, 0),
    ("streams.initial.rebalance.delay.ms", 3_000, 0),
    ("streams.assignment.interval.ms", 1_000, 0),
];

fn topic_key_of(broker_key: &str) -> Option<&'static str> {
    TOPIC_SYNONYMS.iter().find(|(_, synonyms)| synonyms.contains(&broker_key)).map(|(key, _)| *key)
}

/// True when `key` may be set with AlterConfigs on a broker or on the cluster default.
pub fn is_dynamic_broker_key(key: &str) -> bool {
    DYNAMIC_BROKER_KEYS.contains(&key)
        // Only the strongest name of each topic default: hours and minutes are for the file.
        || TOPIC_SYNONYMS.iter().any(|(_, synonyms)| synonyms.first() == Some(&key))
}

/// Why `key` cannot be set on a running broker; `None` when it can.
pub fn broker_update_problem(key: &str, _cluster_default: bool) -> Option<String> {
    if is_dynamic_broker_key(key) {
        return None;
    }
    Some(format!("Cannot update these configs dynamically: Set({key})"))
}

/// Why these cannot be the run-time settings of a broker; `None` when they can.
pub fn broker_values_error(values: &ConfigValues) -> Option<String> {
    let problem = |key: &Arc<str>, value: &Arc<str>| {
        if let Some(topic_key) = topic_key_of(key) {
            return TopicConfig::default().set_scaled(topic_key, value, synonym_factor(key)).err();
        }
        match kind_of(key)? {
            ValueKind::Boolean => boolean(value).err(),
            ValueKind::Int => integer(value, i32::MIN.into(), i32::MAX.into()).err(),
            ValueKind::Short => integer(value, i16::MIN.into(), i16::MAX.into()).err(),
            ValueKind::Long => integer(value, i64::MIN, i64::MAX).err(),
            ValueKind::Double => value.trim().parse::<f64>().err().map(|_| ValueError::NotANumber),
            ValueKind::String | ValueKind::List | ValueKind::Class | ValueKind::Password => None,
        }
    };
    first_problem(values, problem)
}

/// Why these cannot be a group's settings; `None` when they can.
pub fn group_values_error(values: &ConfigValues) -> Option<String> {
    first_problem(values, |key, value| match &**key {
        "share.auto.offset.reset" => {
            let duration = value.strip_prefix("by_duration:").is_some_and(|text| text.starts_with('P'));
            if duration { None } else { choice(value, &["latest", "earliest"]).err() }
        }
        "share.isolation.level" => choice(value, &["read_committed", "read_uncommitted"]).err(),
        "share.renew.acknowledge.enable" => boolean(value).err(),
        key => match GROUP_KEYS.iter().find(|(known, ..)| *known == key) {
            Some((_, _, min)) => integer(value, *min, i32::MAX.into()).err(),
            None => Some(ValueError::UnknownKey),
        },
    })
}

/// Why these cannot be the settings of a client metrics subscription (KIP-714); `None` when they can.
pub fn client_metrics_values_error(values: &ConfigValues) -> Option<String> {
    first_problem(values, |key, value| match &**key {
        "interval.ms" => integer(value, 100, 3_600_000).err(),
        "metrics" | "match" => None,
        _ => Some(ValueError::UnknownKey),
    })
}

fn first_problem(
    values: &ConfigValues,
    problem: impl Fn(&Arc<str>, &Arc<str>) -> Option<ValueError>,
) -> Option<String> {
    values.iter().find_map(|(key, value)| {
        Some(match problem(key, value)? {
            ValueError::UnknownKey => format!("Unknown configuration name: {key}"),
            error => format!("Invalid value {value} for configuration {key}: {error}"),
        })
    })
}

fn kind_of(_key: &str) -> Option<ValueKind> {
    None
}

pub fn value_kind(resource_type: ConfigResourceType, key: &str) -> Option<ValueKind> {
    match (resource_type, key) {
        (ConfigResourceType::Topic, "cleanup.policy") => Some(ValueKind::List),
        _ => None,
    }
}

pub fn default_value(_resource_type: ConfigResourceType, _key: &str) -> Option<&'static str> {
    None
}

pub(super) fn warnings(_properties: &BTreeMap<String, String>, config: &NodeConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.durability == Durability::PageCache {
        warnings.push("ottla.durability=page-cache: acknowledged records do not survive a power cut".to_owned());
    }
    warnings
}
