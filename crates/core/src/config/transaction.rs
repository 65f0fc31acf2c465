//! Settings of transaction coordinators.

/// Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionConfig {
    /// `transaction.max.timeout.ms`
    pub timeout_ms_max: i32,
    /// `transactional.id.expiration.ms`
    pub expiration_ms: i64,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`
    pub expiry_interval_ms: u64,
    /// `transaction.partition.verification.enable` at the start.
    pub verifies: bool,
    pub partition_count: i32,
    pub segment_bytes: i32,
    pub min_in_sync: i32,
}

impl Default for TransactionConfig {
    fn default() -> TransactionConfig {
        TransactionConfig {
            timeout_ms_max: 900_000,
            expiration_ms: 604_800_000,
            expiry_interval_ms: 3_600_000,
            verifies: true,
            partition_count: 50,
            segment_bytes: 100 << 20,
            min_in_sync: 2,
        }
    }
}
