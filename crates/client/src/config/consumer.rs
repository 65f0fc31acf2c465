//! The settings of a consumer.

use std::sync::Arc;

use ottla_wire::config_keys::duration;

use super::client::ClientConfig;
use super::settings::{Settings, config_error};
use super::{ClientKind, Config};
use crate::error::Error;

/// `auto.offset.reset`: where to read without a valid committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetReset {
    /// At the start of the log.
    Earliest,
    /// At the end of the log.
    Latest,
    /// KIP-1106: this long before now.
    ByDuration {
        /// Milliseconds before now.
        ms: u64,
    },
    /// Nowhere: `poll` returns an error.
    None,
}

/// `partition.assignment.strategy`: how a group's leader distributes partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssignorKind {
    /// Kafka's RangeAssignor.
    Range,
    /// Kafka's RoundRobinAssignor.
    RoundRobin,
    /// Kafka's StickyAssignor (KIP-54).
    Sticky,
    /// Kafka's CooperativeStickyAssignor (KIP-429).
    CooperativeSticky,
}

/// `group.protocol`: who assigns a group's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupProtocol {
    /// A member, with one of `partition.assignment.strategy`.
    Classic,
    /// The broker (KIP-848).
    Consumer,
}

/// Settings that only the other protocol has.
const NOT_CLASSIC: [&str; 3] = [
    "group.remote.assignor",
    "share.acknowledgement.mode",
    "share.acquire.mode",
];
const NOT_CONSUMER: [&str; 5] = [
    "partition.assignment.strategy",
    "heartbeat.interval.ms",
    "session.timeout.ms",
    "share.acknowledgement.mode",
    "share.acquire.mode",
];

/// A consumer's settings, checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// What every client has.
    pub client: Arc<ClientConfig>,
    /// `group.id`.
    pub group_id: Option<Arc<str>>,
    /// `group.instance.id` (KIP-345).
    pub group_instance_id: Option<Arc<str>>,
    /// `group.protocol`.
    pub group_protocol: GroupProtocol,
    /// `group.remote.assignor`; not set: the group's own default.
    pub remote_assignor: Option<Arc<str>>,
    /// In order of preference.
    pub assignors: Vec<AssignorKind>,
    /// `session.timeout.ms`.
    pub session_timeout_ms: u64,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval_ms: u64,
    /// `max.poll.interval.ms`.
    pub max_poll_interval_ms: u64,
    /// `max.poll.records`.
    pub max_poll_records: usize,
    /// `enable.auto.commit`.
    pub auto_commit_enabled: bool,
    /// `auto.commit.interval.ms`.
    pub auto_commit_interval_ms: u64,
    /// `auto.offset.reset`.
    pub auto_offset_reset: OffsetReset,
    /// Whether `isolation.level` is `read_committed`.
    pub read_committed: bool,
    /// `fetch.min.bytes`.
    pub fetch_bytes_min: u32,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: u32,
    /// `fetch.max.wait.ms`.
    pub fetch_wait_ms_max: u32,
    /// `max.partition.fetch.bytes`.
    pub partition_fetch_bytes_max: u32,
    /// `check.crcs`.
    pub check_crcs: bool,
    /// `default.api.timeout.ms`.
    pub default_api_timeout_ms: u64,
    /// `exclude.internal.topics`.
    pub exclude_internal_topics: bool,
}

impl ConsumerConfig {
    /// - Errors: `Config` with Kafka's text, for the first wrong key.
    pub fn from_config(config: &Config) -> Result<ConsumerConfig, Error> {
        let settings = Settings::new(ClientKind::Consumer, config)?;
        let protocol = settings.text("group.protocol").unwrap_or_default();
        let (group_protocol, others): (_, &[&str]) = match protocol.eq_ignore_ascii_case("consumer") {
            true => (GroupProtocol::Consumer, &NOT_CONSUMER),
            false => (GroupProtocol::Classic, &NOT_CLASSIC),
        };
        for key in others.iter().copied() {
            if settings.is_written(key) && settings.is_filled(key) {
                let protocol = protocol.to_uppercase();
                let message = format!("{key} cannot be set when group.protocol={protocol}");
                return Err(config_error(key, message));
            }
        }
        let remote_assignor = settings.filled("group.remote.assignor").map(Arc::from);
        let group_id: Option<Arc<str>> = settings.text("group.id").map(Arc::from);
        if group_id.as_deref() == Some("") {
            let message = "The configured group.id should not be an empty string or whitespace.";
            return Err(config_error("group.id", message));
        }
        if let Some(name) = settings.text("group.instance.id") {
            check_instance_id(name)?;
        }
        let auto_commit_enabled = auto_commit(&settings, group_id.is_some())?;
        let u32_of = |key| u32::try_from(settings.number(key)).expect("an int of at least 0");
        let session_timeout_ms = settings.number("session.timeout.ms");
        let heartbeat_interval_ms = settings.number("heartbeat.interval.ms");
        if group_id.is_some() && heartbeat_interval_ms >= session_timeout_ms {
            let message = "Heartbeat must be set lower than the session timeout";
            return Err(config_error("heartbeat.interval.ms", message));
        }
        Ok(ConsumerConfig {
            group_protocol,
            remote_assignor,
            group_id,
            group_instance_id: settings.text("group.instance.id").map(Arc::from),
            assignors: assignors(settings.list("partition.assignment.strategy"))?,
            session_timeout_ms: u64::try_from(session_timeout_ms).unwrap_or(0),
            heartbeat_interval_ms: u64::try_from(heartbeat_interval_ms).unwrap_or(0),
            max_poll_interval_ms: settings.natural("max.poll.interval.ms"),
            max_poll_records: settings.size("max.poll.records"),
            auto_commit_enabled,
            auto_commit_interval_ms: settings.natural("auto.commit.interval.ms"),
            auto_offset_reset: offset_reset(settings.text("auto.offset.reset").unwrap_or_default())
                .expect("checked with the table's rule"),
            read_committed: settings.text("isolation.level") == Some("read_committed"),
            fetch_bytes_min: u32_of("fetch.min.bytes"),
            fetch_bytes_max: u32_of("fetch.max.bytes"),
            fetch_wait_ms_max: u32_of("fetch.max.wait.ms"),
            partition_fetch_bytes_max: u32_of("max.partition.fetch.bytes"),
            check_crcs: settings.boolean("check.crcs"),
            default_api_timeout_ms: settings.natural("default.api.timeout.ms"),
            exclude_internal_topics: settings.boolean("exclude.internal.topics"),
            client: Arc::new(ClientConfig::new(ClientKind::Consumer, settings)?),
        })
    }
}

/// A static member's name must satisfy the rules of topic names.
fn check_instance_id(name: &str) -> Result<(), Error> {
    const LENGTH_MAX: usize = 249;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let why = match name {
        "." | ".." => format!("'{name}' is not allowed"),
        _ if name.len() > LENGTH_MAX => {
            format!("the length of '{name}' is longer than the max allowed length {LENGTH_MAX}")
        }
        _ if !name.chars().all(is_letter) => format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ),
        _ => return Ok(()),
    };
    Err(config_error(
        "group.instance.id",
        format!("Group instance id is invalid: {why}"),
    ))
}

fn auto_commit(settings: &Settings, has_group: bool) -> Result<bool, Error> {
    const KEY: &str = "enable.auto.commit";
    if has_group || !settings.is_written(KEY) {
        return Ok(has_group && settings.boolean(KEY));
    }
    if settings.boolean(KEY) {
        let message = format!("{KEY} cannot be set to true when default group id (null) is used.");
        return Err(config_error(KEY, message));
    }
    Ok(false)
}

/// `None` when the text is none of Kafka's values.
fn offset_reset(text: &str) -> Option<OffsetReset> {
    match text {
        "earliest" => Some(OffsetReset::Earliest),
        "latest" => Some(OffsetReset::Latest),
        "none" => Some(OffsetReset::None),
        _ => duration::parse_ms(text.strip_prefix("by_duration:")?).map(|ms| OffsetReset::ByDuration { ms }),
    }
}

fn assignors(words: &[String]) -> Result<Vec<AssignorKind>, Error> {
    const KEY: &str = "partition.assignment.strategy";
    let kinds = words.iter().map(|word| {
        let short = word
            .strip_prefix("class ")
            .unwrap_or(word)
            .trim_start_matches("org.apache.kafka.clients.consumer.");
        match short {
            "RangeAssignor" | "range" => Ok(AssignorKind::Range),
            "RoundRobinAssignor" | "roundrobin" => Ok(AssignorKind::RoundRobin),
            "StickyAssignor" | "sticky" => Ok(AssignorKind::Sticky),
            "CooperativeStickyAssignor" | "cooperative-sticky" => Ok(AssignorKind::CooperativeSticky),
            _ => {
                let message = format!("{word} ClassNotFoundException exception occurred");
                Err(config_error(KEY, message))
            }
        }
    });
    kinds.collect()
}
