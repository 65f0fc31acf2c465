//! A topic's settings, typed.

use std::sync::Arc;

use ottla_log::LogConfig;
use ottla_wire::config_keys::{self, ConfigKey, ConfigValue, TOPIC_KEYS};
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::compression::{Codec, Compression};

use super::StaticConfig;
use super::resource::ConfigValues;

/// What the broker does with the codec of batches it receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TopicCompression {
    /// `producer`: batches are stored as they come.
    Producer,
    /// `uncompressed` or a codec: batches in another codec are recompressed.
    Codec(Codec),
}

/// A topic's settings.
///
/// - Units: as in the names. −1 means "no limit" where Kafka says so.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub log: LogConfig,
    pub compression: TopicCompression,
    pub gzip_level: i32,
    pub zstd_level: i32,
    /// `max.message.bytes`: the largest batch, compressed.
    pub max_message_bytes: i32,
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`
    pub timestamp_after_max_ms: i64,
    pub min_insync_replicas: i32,
}

const HOUR_MS: i64 = 60 * 60 * 1000;
/// A broker setting that every log needs.
const PRODUCER_EXPIRATION: &str = "producer.id.expiration.ms";

impl Default for TopicConfig {
    fn default() -> TopicConfig {
        TopicConfig {
            log: LogConfig::default(),
            compression: TopicCompression::Producer,
            gzip_level: -1,
            zstd_level: 3,
            // 1 MiB of records and a batch header.
            max_message_bytes: 1024 * 1024 + 12,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: HOUR_MS,
            min_insync_replicas: 1,
        }
    }
}

impl TopicConfig {
    /// Returns these settings with values of a topic's own.
    pub fn with(&self, values: &ConfigValues) -> TopicConfig {
        let mut config = self.clone();
        for (key, value) in values {
            // An invalid value is kept in the image, as in Apache Kafka, and has no effect.
            let _unusable = config.set(key, value);
        }
        // The internal key takes precedence over segment.bytes, whatever their order.
        if let Some(value) = values.get("internal.segment.bytes") {
            let _unusable = config.set("internal.segment.bytes", value);
        }
        config
    }

    /// Returns the settings of a topic without values of its own: dynamic values of brokers over
    /// those of the file.
    pub fn defaults<'a>(
        static_config: &'a StaticConfig,
        dynamic: impl Fn(&str) -> Option<&'a Arc<str>>,
    ) -> TopicConfig {
        let mut config = TopicConfig::default();
        for key in TOPIC_KEYS {
            let mut synonyms = key.synonyms.iter();
            let changed = synonyms.find_map(|synonym| Some((synonym.factor, dynamic(synonym.name)?)));
            let found = changed.or_else(|| {
                key.synonyms
                    .iter()
                    .find_map(|synonym| Some((synonym.factor, static_config.values.get(synonym.name)?)))
            });
            if let Some((factor, value)) = found {
                let _unusable = config.set_scaled(key, value, factor);
            }
        }
        let expiration =
            dynamic(PRODUCER_EXPIRATION).or_else(|| static_config.values.get(PRODUCER_EXPIRATION));
        if let Some(expiration) = expiration.and_then(|value| value.trim().parse().ok()) {
            config.log.producer_id_expiration_ms = expiration;
        }
        config
    }

    /// Sets one topic setting.
    ///
    /// - Errors: the key is unknown or the value is not allowed, as a message for people; nothing
    ///   changes.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let key = config_keys::topic_key(name).ok_or_else(|| format!("Unknown topic config name: {name}"))?;
        self.set_scaled(key, value, 1)
    }

    /// As `set`, for a value in another unit.
    ///
    /// - `factor`: one of the value's units in the key's unit.
    fn set_scaled(&mut self, key: &ConfigKey, text: &str, factor: i64) -> Result<(), String> {
        let describe =
            |problem: String| format!("Invalid value {text} for configuration {}: {problem}", key.name);
        let scaled = match text.trim().parse::<i64>() {
            // A negative number has a special meaning, like "no limit", in any unit.
            Ok(number) if factor != 1 && number >= 0 => Some(number.saturating_mul(factor).to_string()),
            _ => None,
        };
        let value = config_keys::parse_value(key, scaled.as_deref().unwrap_or(text))
            .map_err(|error| describe(error.why))?;
        if key.name == "remote.storage.enable" && value == ConfigValue::Boolean(true) {
            return Err(describe("there is no tiered storage".to_owned()));
        }
        self.store(key.name, &value);
        Ok(())
    }

    fn store(&mut self, name: &str, value: &ConfigValue) {
        // The table has checked type and range, so the casts below lose nothing.
        let long = value.as_i64().unwrap_or_default();
        let int = long as i32;
        let has = |word: &str| {
            value
                .as_list()
                .is_some_and(|words| words.iter().any(|known| known == word))
        };
        match name {
            // An empty list is allowed since KIP-1161 and keeps everything for ever.
            "cleanup.policy" => (self.log.compact, self.log.delete) = (has("compact"), has("delete")),
            "compression.type" => {
                self.compression = match value.as_str() {
                    Some("uncompressed") => TopicCompression::Codec(Codec::None),
                    Some("zstd") => TopicCompression::Codec(Codec::Zstd),
                    Some("lz4") => TopicCompression::Codec(Codec::Lz4),
                    Some("snappy") => TopicCompression::Codec(Codec::Snappy),
                    Some("gzip") => TopicCompression::Codec(Codec::Gzip),
                    _ => TopicCompression::Producer,
                };
            }
            "compression.gzip.level" => self.gzip_level = int,
            "compression.zstd.level" => self.zstd_level = int,
            "delete.retention.ms" => self.log.delete_retention_ms = long,
            "file.delete.delay.ms" => self.log.file_delete_delay_ms = long,
            "index.interval.bytes" => self.log.index_interval_bytes = long as u32,
            "max.compaction.lag.ms" => self.log.max_compaction_lag_ms = long,
            "max.message.bytes" => self.max_message_bytes = int,
            "message.timestamp.before.max.ms" => self.timestamp_before_max_ms = long,
            "message.timestamp.after.max.ms" => self.timestamp_after_max_ms = long,
            "message.timestamp.type" => {
                self.timestamp_type = match value.as_str() {
                    Some("LogAppendTime") => TimestampType::LogAppendTime,
                    _ => TimestampType::CreateTime,
                };
            }
            "min.cleanable.dirty.ratio" => {
                self.log.min_cleanable_dirty_ratio = value.as_f64().unwrap_or_default()
            }
            "min.compaction.lag.ms" => self.log.min_compaction_lag_ms = long,
            "min.insync.replicas" => self.min_insync_replicas = int,
            "retention.bytes" => self.log.retention_bytes = long.max(-1),
            "retention.ms" => self.log.retention_ms = long,
            "segment.bytes" | "internal.segment.bytes" => self.log.segment_bytes = long as u32,
            "segment.index.bytes" => self.log.segment_index_bytes = long as u32,
            "segment.jitter.ms" => self.log.segment_jitter_ms = long,
            "segment.ms" => self.log.segment_ms = long,
            // Known and checked, but without effect on one machine without tiered storage.
            _ => {}
        }
    }

    /// Returns the codec for recompression; `None` keeps the producer's codec.
    pub fn target_compression(&self) -> Option<Compression> {
        let TopicCompression::Codec(codec) = self.compression else {
            return None;
        };
        let level = match codec {
            Codec::Gzip if self.gzip_level >= 0 => Some(self.gzip_level),
            Codec::Zstd => Some(self.zstd_level),
            _ => None,
        };
        Some(Compression { codec, level })
    }
}

/// Returns why these values are invalid for a topic, as a message for the client; `None` when they
/// are valid.
pub fn topic_values_error(values: &ConfigValues) -> Option<String> {
    let mut config = TopicConfig::default();
    if let Some(problem) = values
        .iter()
        .find_map(|(key, value)| config.set(key, value).err())
    {
        return Some(problem);
    }
    if config.log.min_compaction_lag_ms > config.log.max_compaction_lag_ms {
        return Some(format!(
            "conflict: min.compaction.lag.ms ({}) is above max.compaction.lag.ms ({})",
            config.log.min_compaction_lag_ms, config.log.max_compaction_lag_ms
        ));
    }
    None
}
