//! Group settings of the operator, parsed.

use crate::config;

use super::consumer::assignor::Assignor;

/// Limits and times of the group coordinator. Defaults are those of Apache Kafka 4.3.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_ms_max: i32,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members.
    pub initial_rebalance_delay_ms: i32,
    /// `group.max.size`.
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`, in UTF-16 units, as Java counts.
    pub offset_metadata_length_max: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: u64,
    /// `offset.commit.timeout.ms`: timeout for an answer's records to become durable.
    pub offset_commit_timeout_ms: u64,
    /// `message.max.bytes`: the largest batch a coordinator may append.
    pub batch_bytes_max: usize,
    pub consumer: ConsumerConfig,
}

/// Settings of groups of KIP-848.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// Whether `group.coordinator.rebalance.protocols` has `consumer`.
    pub is_enabled: bool,
    /// `group.consumer.session.timeout.ms`; a group may have its own.
    pub session_timeout_ms: i32,
    /// `group.consumer.heartbeat.interval.ms`; a group may have its own.
    pub heartbeat_interval_ms: i32,
    /// `group.consumer.assignment.interval.ms`; a group may have its own.
    pub assignment_interval_ms: i32,
    pub limits: config::ConsumerLimits,
    /// `group.consumer.max.size`.
    pub size_max: usize,
    /// `group.consumer.assignors`; the first is used for members that name none.
    pub assignors: Vec<Assignor>,
    /// `group.consumer.regex.refresh.interval.ms`.
    pub regex_refresh_ms: u64,
    /// `group.consumer.migration.policy`.
    pub migration: config::MigrationPolicy,
}

impl GroupConfig {
    /// Reads the broker's configuration; `batch_bytes_max`, a setting of the topic, keeps its
    /// default.
    pub fn of(config: &config::GroupConfig) -> GroupConfig {
        GroupConfig {
            session_timeout_ms_min: config.session_timeout_ms_min,
            session_timeout_ms_max: config.session_timeout_ms_max,
            initial_rebalance_delay_ms: config.initial_rebalance_delay_ms,
            group_size_max: usize::try_from(config.members_max).unwrap_or(0),
            offset_metadata_length_max: usize::try_from(config.offset_metadata_bytes_max).unwrap_or(0),
            offsets_retention_ms: config.offsets_retention_ms,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms.unsigned_abs(),
            offset_commit_timeout_ms: u64::from(config.offset_commit_timeout_ms.unsigned_abs()),
            consumer: ConsumerConfig::of(&config.consumer),
            ..GroupConfig::default()
        }
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        GroupConfig {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_size_max: i32::MAX as usize,
            offset_metadata_length_max: 4_096,
            offsets_retention_ms: 604_800_000,
            offsets_retention_check_interval_ms: 600_000,
            offset_commit_timeout_ms: 5_000,
            batch_bytes_max: 1_048_588,
            consumer: ConsumerConfig::default(),
        }
    }
}

impl ConsumerConfig {
    fn of(config: &config::ConsumerGroupConfig) -> ConsumerConfig {
        let named = config.assignors.iter();
        ConsumerConfig {
            is_enabled: config.is_enabled,
            session_timeout_ms: config.session_timeout_ms,
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            assignment_interval_ms: config.assignment_interval_ms,
            limits: config.limits.clone(),
            size_max: usize::try_from(config.members_max).unwrap_or(0),
            assignors: named.filter_map(|name| Assignor::of(name)).collect(),
            regex_refresh_ms: u64::from(config.regex_refresh_interval_ms.unsigned_abs()),
            migration: config.migration,
        }
    }
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        ConsumerConfig {
            is_enabled: true,
            session_timeout_ms: 45_000,
            heartbeat_interval_ms: 5_000,
            assignment_interval_ms: 1_000,
            limits: config::ConsumerLimits::default(),
            size_max: i32::MAX as usize,
            assignors: Assignor::ALL.to_vec(),
            regex_refresh_ms: 600_000,
            migration: config::MigrationPolicy::Bidirectional,
        }
    }
}
