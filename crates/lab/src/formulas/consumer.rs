//! What a consumer can do (F29).

/// F29: `fetch.size.avg * fetch.rate`, bytes per second (p99 article).
pub fn fetch_bytes_per_second(fetch_bytes: f64, fetches_per_second: f64) -> f64 {
    fetch_bytes * fetches_per_second
}

/// F29: `1 - idle`, the share of time spent on records (p99 article).
pub fn processing_share(poll_idle_share: f64) -> f64 {
    1.0 - poll_idle_share
}

/// Java's poll.idle.ratio.avg counts the poll itself twice: an idle consumer shows 0.5. `r / (1 - r)` is the share (measured).
pub fn poll_idle_share(java_ratio: f64) -> f64 {
    java_ratio / (1.0 - java_ratio)
}

/// F29: `lag / (consumed - produced)`, seconds; infinite where the consumer is not faster (p99 article).
pub fn catch_up_seconds(
    lag_records: f64,
    consumed_records_per_second: f64,
    produced_records_per_second: f64,
) -> f64 {
    let gain = consumed_records_per_second - produced_records_per_second;
    if gain <= 0.0 {
        f64::INFINITY
    } else {
        lag_records / gain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catching_up() {
        assert_eq!(catch_up_seconds(1_000.0, 150.0, 100.0), 20.0);
        assert_eq!(catch_up_seconds(1_000.0, 10.0, 100.0), f64::INFINITY);
    }

    #[test]
    fn an_idle_consumer_is_idle() {
        assert_eq!(poll_idle_share(0.5), 1.0);
        assert_eq!(processing_share(poll_idle_share(0.5)), 0.0);
        assert_eq!(fetch_bytes_per_second(1e6, 25.0), 25e6);
    }
}
