//! How full batches and requests are (F18 to F20).

/// F18: `b / batch.size`: from 0.85 on batches are full and a longer linger is useless; below 0.5 a
/// larger batch.size is (Kontur talk).
pub fn fill_share(mean_batch_bytes: f64, batch_bytes: f64) -> f64 {
    mean_batch_bytes / batch_bytes
}

/// F19: `rate * linger`, the records that one partition collects while a batch lingers (measured).
///
/// - `records_per_second`: of the partition for records with keys, of the topic for a sticky
///   partitioner.
pub fn records_per_linger(records_per_second: f64, linger_ms: f64) -> f64 {
    records_per_second * linger_ms / 1_000.0
}

/// F19: `min(batch.size, k * record * c)`, at least the record that opens the batch (measured).
pub fn expected_batch_bytes(
    batch_bytes: f64,
    records_per_linger: f64,
    record_bytes: f64,
    compression_rate: f64,
) -> f64 {
    batch_bytes.min(records_per_linger.max(1.0) * record_bytes * compression_rate)
}

/// F20: `min(R, 1000 / linger)`, the requests per second that remain of a sticky partitioner's with
/// a linger, per broker (measured).
pub fn requests_per_second_sticky(requests_per_second: f64, linger_ms: f64) -> f64 {
    requests_per_second.min(1_000.0 / linger_ms)
}

/// F20: up to `P * 1000 / linger` with keys, because batches of different partitions expire at
/// different times (p99 article).
pub fn requests_per_second_keyed(
    requests_per_second: f64,
    partitions_per_broker: f64,
    linger_ms: f64,
) -> f64 {
    requests_per_second.min(partitions_per_broker * 1_000.0 / linger_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::within;

    #[test]
    fn full_and_empty_batches() {
        within(fill_share(15_066.0, 16_384.0), 0.92, 0.1);
        // 90 MB/s of 90 producers over 108 partitions with 128 KiB: the batches of a linger never
        // fill.
        let rate = 1e6 / 516.0 / 108.0;
        let batch = expected_batch_bytes(131_072.0, records_per_linger(rate, 5.0), 516.0, 1.0);
        assert!(fill_share(batch, 131_072.0) < 0.1, "{batch}");
    }

    #[test]
    fn a_linger_that_collects_less_than_a_record() {
        // 1 MB/s over 108 partitions: 18 records/s each.
        let rate = 1e6 / 516.0 / 108.0;
        within(rate, 18.0, 1.0);
        assert!(records_per_linger(rate, 5.0) < 1.0);
    }

    #[test]
    fn linger_saves_requests() {
        // 180/s were measured with 5 ms, 9.9/s with 100 ms.
        within(requests_per_second_sticky(5_000.0, 5.0), 180.0, 12.0);
        within(requests_per_second_sticky(5_000.0, 100.0), 9.9, 2.0);
        // The article's 2,800 became 1,100; twelve partitions per broker do not explain fewer than
        // 2,400.
        assert_eq!(requests_per_second_keyed(2_800.0, 12.0, 5.0), 2_400.0);
        assert_eq!(requests_per_second_keyed(2_800.0, 108.0, 5.0), 2_800.0);
    }
}
