//! A topic's settings, typed.

use std::sync::Arc;

use ottla_log::LogConfig;
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::compression::{Codec, Compression};

use super::values::{ValueError, boolean, choice, integer, list, ratio};
use crate::image::{ConfigResource, ConfigValues, MetadataImage};

/// What the broker does with the codec of batches it receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopicCompression {
    /// `producer`: batches are stored as they come.
    Producer,
    /// `uncompressed` or a codec: batches in another codec are written anew.
    Codec(Codec),
}

/// - Units: as in the names. -1 means "no limit" where Kafka says so.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub log: LogConfig,
    pub compression: TopicCompression,
    pub gzip_level: i32,
    pub lz4_level: i32,
    pub zstd_level: i32,
    /// `max.message.bytes`: the largest batch, compressed.
    pub max_message_bytes: i32,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    pub min_insync_replicas: i32,
    /// `flush.messages`
    pub flush_records: i64,
    pub flush_ms: i64,
    pub preallocate: bool,
    pub unclean_leader_election: bool,
}

const HOUR_MS: i64 = 60 * 60 * 1000;

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            log: LogConfig::default(),
            compression: TopicCompression::Producer,
            gzip_level: -1,
            lz4_level: 9,
            zstd_level: 3,
            // 1 MiB of records and a batch header.
            max_message_bytes: 1024 * 1024 + 12,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: HOUR_MS,
            min_insync_replicas: 1,
            flush_records: i64::MAX,
            flush_ms: i64::MAX,
            preallocate: false,
            unclean_leader_election: false,
        }
    }
}

impl TopicConfig {
    /// What holds for `topic` in `image`.
    pub fn effective(image: &MetadataImage, topic: &str) -> Arc<TopicConfig> {
        match image.config(&ConfigResource::topic(topic)) {
            None => image.topic_defaults.clone(),
            Some(values) => Arc::new(TopicConfig::from_values(image, values)),
        }
    }

    /// What would hold for a topic with these settings of its own.
    pub fn from_values(image: &MetadataImage, values: &ConfigValues) -> TopicConfig {
        let mut config = TopicConfig::clone(&image.topic_defaults);
        for (key, value) in values {
            // A key that cannot be used is kept in the image, as Apache Kafka keeps it, and has no effect.
            let _unusable = config.set(key, value);
        }
        // The internal twin wins over segment.bytes, in whichever order they come.
        if let Some(value) = values.get("internal.segment.bytes") {
            let _unusable = config.set("internal.segment.bytes", value);
        }
        config
    }

    /// What holds for a topic without settings of its own: this broker's over the cluster's over the file's.
    pub fn defaults(image: &MetadataImage) -> TopicConfig {
        let mut config = TopicConfig::default();
        let node_id = image.static_config.node_id;
        for (key, synonyms) in TOPIC_SYNONYMS {
            let dynamic = synonyms.iter().find_map(|name| Some((*name, image.dynamic_broker_value(node_id, name)?)));
            let found = dynamic
                .or_else(|| synonyms.iter().find_map(|name| Some((*name, image.static_config.values.get(*name)?))));
            if let Some((name, value)) = found {
                let _unusable = config.set_scaled(key, value, synonym_factor(name));
            }
        }
        // A broker setting that the log needs as well.
        if let Some(value) = image.static_config.values.get("producer.id.expiration.ms")
            && let Ok(expiration) = integer(value, 1, i64::from(i32::MAX))
        {
            config.log.producer_id_expiration_ms = expiration;
        }
        config
    }

    /// Sets one topic setting.
    ///
    /// - Errors: the key is unknown or the value is not allowed; nothing changes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ValueError> {
        self.set_scaled(key, value, 1)
    }

    /// - `factor`: what one of the value's units is in the key's unit.
    pub(super) fn set_scaled(&mut self, key: &str, value: &str, factor: i64) -> Result<(), ValueError> {
        const INT: i64 = i32::MAX as i64;
        let long = |min: i64| integer(value, i64::MIN, i64::MAX).and_then(|number| {
            // A negative number is a word, like "no limit", in any unit.
            let scaled = if number < 0 { number } else { number.saturating_mul(factor) };
            if scaled < min { Err(ValueError::OutOfRange { min, max: i64::MAX }) } else { Ok(scaled) }
        });
        let int = |min: i64, max: i64| integer(value, min, max).map(|number| number as i32);
        match key {
            "cleanup.policy" => {
                let policies = list(value, &["compact", "delete"])?;
                // An empty list is allowed since KIP-1161 and keeps everything for ever.
                self.log.compact = policies.contains(&"compact");
                self.log.delete = policies.contains(&"delete");
            }
            "compression.type" => {
                self.compression = match choice(
                    value,
                    &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"],
                )? {
                    "uncompressed" => TopicCompression::Codec(Codec::None),
                    "zstd" => TopicCompression::Codec(Codec::Zstd),
                    "lz4" => TopicCompression::Codec(Codec::Lz4),
                    "snappy" => TopicCompression::Codec(Codec::Snappy),
                    "gzip" => TopicCompression::Codec(Codec::Gzip),
                    _ => TopicCompression::Producer,
                };
            }
            "compression.gzip.level" => {
                let level = int(-1, 9)?;
                if level == 0 {
                    return Err(ValueError::Other("must be -1 or 1 to 9".to_owned()));
                }
                self.gzip_level = level;
            }
            "compression.lz4.level" => self.lz4_level = int(1, 17)?,
            "compression.zstd.level" => self.zstd_level = int(-131_072, 22)?,
            "delete.retention.ms" => self.log.delete_retention_ms = long(0)?,
            "file.delete.delay.ms" => self.log.file_delete_delay_ms = long(0)?,
            "flush.messages" => self.flush_records = long(1)?,
            "flush.ms" => self.flush_ms = long(0)?,
            "index.interval.bytes" => self.log.index_interval_bytes = int(0, INT)? as u32,
            "max.compaction.lag.ms" => self.log.max_compaction_lag_ms = long(1)?,
            "max.message.bytes" => self.max_message_bytes = int(0, INT)?,
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms = long(0)?,
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms = long(0)?,
            "message.timestamp.type" => {
                self.timestamp_type = match choice(value, &["CreateTime", "LogAppendTime"])? {
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => TimestampType::CreateTime,
                };
            }
            "min.cleanable.dirty.ratio" => self.log.min_cleanable_dirty_ratio = ratio(value)?,
            "min.compaction.lag.ms" => self.log.min_compaction_lag_ms = long(0)?,
            "min.insync.replicas" => self.min_insync_replicas = int(1, INT)?,
            "preallocate" => self.preallocate = boolean(value)?,
            "retention.bytes" => self.log.retention_bytes = long(i64::MIN)?.max(-1),
            "retention.ms" => self.log.retention_ms = long(-1)?,
            // Kafka 4 demands at least 1 MiB. The key's internal twin is for tests.
            "segment.bytes" => self.log.segment_bytes = int(1024 * 1024, INT)? as u32,
            "internal.segment.bytes" => self.log.segment_bytes = int(14, INT)? as u32,
            "segment.index.bytes" => self.log.segment_index_bytes = int(4, INT)? as u32,
            "segment.jitter.ms" => self.log.segment_jitter_ms = long(0)?,
            "segment.ms" => self.log.segment_ms = long(1)?,
            "unclean.leader.election.enable" => self.unclean_leader_election = boolean(value)?,
            // Known, checked and without effect on one machine without tiered storage.
            "local.retention.bytes" | "local.retention.ms" => {
                long(-2)?;
            }
            "remote.storage.enable" => {
                if boolean(value)? {
                    return Err(ValueError::Other("tiered storage is not supported".to_owned()));
                }
            }
            "remote.log.copy.disable" | "remote.log.delete.on.disable" => {
                boolean(value)?;
            }
            "leader.replication.throttled.replicas" | "follower.replication.throttled.replicas" => {}
            _ => return Err(ValueError::UnknownKey),
        }
        Ok(())
    }

    /// What to compress with when batches are written anew; `None` keeps the producer's codec.
    pub fn target_compression(&self) -> Option<Compression> {
        let TopicCompression::Codec(codec) = self.compression else { return None };
        let level = match codec {
            Codec::Gzip if self.gzip_level >= 0 => Some(self.gzip_level),
            Codec::Lz4 => Some(self.lz4_level),
            Codec::Zstd => Some(self.zstd_level),
            _ => None,
        };
        Some(Compression { codec, level })
    }
}

/// Why these cannot be a topic's settings, in the words the client will show; `None` when they can.
pub fn topic_values_error(values: &ConfigValues) -> Option<String> {
    let mut config = TopicConfig::default();
    for (key, value) in values {
        match config.set(key, value) {
            Ok(()) => {}
            Err(ValueError::UnknownKey) => return Some(format!("Unknown topic config name: {key}")),
            Err(error) => return Some(format!("Invalid value {value} for configuration {key}: {error}")),
        }
    }
    if config.log.min_compaction_lag_ms > config.log.max_compaction_lag_ms {
        return Some(format!(
            "conflict: min.compaction.lag.ms ({}) is above max.compaction.lag.ms ({})",
            config.log.min_compaction_lag_ms, config.log.max_compaction_lag_ms
        ));
    }
    None
}

/// Topic settings and the broker settings that are their defaults, the strongest first. From Apache Kafka's table of
/// synonyms.
pub(crate) const TOPIC_SYNONYMS: &[(&str, &[&str])] = &[
    ("cleanup.policy", &["log.cleanup.policy"]),
    ("compression.gzip.level", &["compression.gzip.level"]),
    ("compression.lz4.level", &["compression.lz4.level"]),
    ("compression.type", &["compression.type"]),
    ("compression.zstd.level", &["compression.zstd.level"]),
    ("delete.retention.ms", &["log.cleaner.delete.retention.ms"]),
    ("file.delete.delay.ms", &["log.segment.delete.delay.ms"]),
    ("flush.messages", &["log.flush.interval.messages"]),
    ("flush.ms", &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"]),
    ("index.interval.bytes", &["log.index.interval.bytes"]),
    ("local.retention.bytes", &["log.local.retention.bytes"]),
    ("local.retention.ms", &["log.local.retention.ms"]),
    ("max.compaction.lag.ms", &["log.cleaner.max.compaction.lag.ms"]),
    ("max.message.bytes", &["message.max.bytes"]),
    ("message.timestamp.after.max.ms", &["log.message.timestamp.after.max.ms"]),
    ("message.timestamp.before.max.ms", &["log.message.timestamp.before.max.ms"]),
    ("message.timestamp.type", &["log.message.timestamp.type"]),
    ("min.cleanable.dirty.ratio", &["log.cleaner.min.cleanable.ratio"]),
    ("min.compaction.lag.ms", &["log.cleaner.min.compaction.lag.ms"]),
    ("min.insync.replicas", &["min.insync.replicas"]),
    ("preallocate", &["log.preallocate"]),
    ("retention.bytes", &["log.retention.bytes"]),
    ("retention.ms", &["log.retention.ms", "log.retention.minutes", "log.retention.hours"]),
    ("segment.bytes", &["log.segment.bytes"]),
    ("segment.index.bytes", &["log.index.size.max.bytes"]),
    ("segment.jitter.ms", &["log.roll.jitter.ms", "log.roll.jitter.hours"]),
    ("segment.ms", &["log.roll.ms", "log.roll.hours"]),
    ("unclean.leader.election.enable", &["unclean.leader.election.enable"]),
];

/// What one unit of a broker setting is in the unit of its topic setting.
pub(crate) fn synonym_factor(name: &str) -> i64 {
    if name.ends_with(".hours") {
        HOUR_MS
    } else if name.ends_with(".minutes") {
        60 * 1000
    } else {
        1
    }
}
