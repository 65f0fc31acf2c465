//! A partition's settings, typed. Names and defaults are those of Kafka's topic configuration.

/// - Units: as in the names; -1 means "no limit" where Kafka says so.
#[derive(Clone, Debug, PartialEq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is closed before it would grow beyond this.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is closed when its first record is older than this.
    pub segment_ms: i64,
    /// `segment.jitter.ms`: up to this much is subtracted from `segment_ms`, so that partitions do
    /// not roll together.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`
    pub index_interval_bytes: u32,
    /// `retention.ms`; -1: no limit.
    pub retention_ms: i64,
    /// `retention.bytes`; -1: no limit.
    pub retention_bytes: i64,
    /// `cleanup.policy` contains `delete`.
    pub delete: bool,
    /// `cleanup.policy` contains `compact`.
    pub compact: bool,
    /// `min.cleanable.dirty.ratio`
    pub min_cleanable_dirty_ratio: f64,
    /// `min.compaction.lag.ms`
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`
    pub max_compaction_lag_ms: i64,
    /// `delete.retention.ms`: how long tombstones and transaction markers outlive the compaction
    /// that could drop them.
    pub delete_retention_ms: i64,
    /// `file.delete.delay.ms`
    pub file_delete_delay_ms: i64,
    /// `producer.id.expiration.ms` (a broker setting)
    pub producer_id_expiration_ms: i64,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * DAY_MS,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            retention_ms: 7 * DAY_MS,
            retention_bytes: -1,
            delete: true,
            compact: false,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            delete_retention_ms: DAY_MS,
            file_delete_delay_ms: 60_000,
            producer_id_expiration_ms: DAY_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_kafka() {
        let config = LogConfig::default();
        assert_eq!(config.segment_bytes, 1_073_741_824);
        assert_eq!(config.segment_index_bytes, 10_485_760);
        assert_eq!(
            (config.segment_ms, config.retention_ms),
            (604_800_000, 604_800_000)
        );
        assert_eq!(config.delete_retention_ms, 86_400_000);
    }
}
