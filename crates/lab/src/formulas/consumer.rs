//! What a consumer can do (F29).

/// F29: `fetch.size.avg * fetch.rate`, bytes per second (p99 article).
pub fn fetch_bytes_per_second(fetch_bytes: f64, fetches_per_second: f64) -> f64 {
    fetch_bytes * fetches_per_second
}

/// F29: `1 - idle`, the share of time spent on records (p99 article).
pub fn processing_share(poll_idle_share: f64) -> f64 {
    1.0 - poll_idle_share
}

/// Java's poll.idle.ratio.avg counts the poll itself twice: an idle consumer shows 0.5. The true
/// share is `r / (1 - r)` (measured).
pub fn poll_idle_share(java_ratio: f64) -> f64 {
    java_ratio / (1.0 - java_ratio)
}

/// F29: `lag / (consumed - produced)`, seconds; infinite where the consumer is not faster (p99
/// article).
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

/// At most this many records are on their way between two fetches of a consumer that reads a few.
pub const LAG_SMALL_RECORDS: f64 = 5.0;

/// Clients commit every five seconds unless they are told otherwise (`auto.commit.interval.ms`).
pub const COMMIT_SECONDS: f64 = 5.0;

/// Whether a lag changes: by more than rates vary from second to second, and within the window by
/// more than a few records are on their way, and than it varies by itself.
///
/// - `slope`: records per second; negative: it shrinks.
/// - `flow`: records per second that are read, or that come where that is more.
/// - `seconds`: the window.
/// - `noise_records`: by which it rises and falls by itself, as between two commits.
pub fn is_lag_changing(slope: f64, flow: f64, seconds: f64, noise_records: f64) -> bool {
    let change = slope.abs();
    change > 0.02 * flow && change * seconds > noise_records.max(LAG_SMALL_RECORDS)
}

/// F29: `1000 * (1 - idle) / X`, the time that the application spends on a record, ms (measured).
pub fn work_ms(poll_idle_share: f64, consumed_records_per_second: f64) -> f64 {
    1_000.0 * processing_share(poll_idle_share) / consumed_records_per_second
}

/// F29: `ceil(produced * work)`, the number of consumers that keep up; at least one (p99 article).
pub fn consumers_needed(produced_records_per_second: f64, work_ms: f64) -> f64 {
    // Up to a thousandth above a whole number is rounding, not another consumer.
    (produced_records_per_second * work_ms / 1_000.0 - 1e-3)
        .ceil()
        .max(1.0)
}

/// `1 - consumed / produced`: growth of the next record's age in seconds per second; negative when
/// it shrinks.
pub fn age_growth(consumed_records_per_second: f64, produced_records_per_second: f64) -> f64 {
    1.0 - consumed_records_per_second / produced_records_per_second
}

/// `(retention - age) / growth`, the seconds until unread records are deleted; infinite where the
/// age does not grow.
pub fn seconds_until_loss(age_ms: f64, retention_ms: f64, age_growth: f64) -> f64 {
    if age_growth <= 0.0 {
        f64::INFINITY
    } else {
        (retention_ms - age_ms).max(0.0) / 1_000.0 / age_growth
    }
}

/// `1000 * consumers / auto.commit.interval.ms`: commits per second at a group's coordinator (p99
/// article).
pub fn commits_per_second(consumers: f64, interval_ms: f64) -> f64 {
    1_000.0 * consumers / interval_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::tables::within;

    #[test]
    fn catching_up() {
        assert_eq!(catch_up_seconds(1_000.0, 150.0, 100.0), 20.0);
        assert_eq!(catch_up_seconds(1_000.0, 10.0, 100.0), f64::INFINITY);
    }

    #[test]
    fn a_lag_that_varies_as_rates_and_commits_do_is_not_changing() {
        assert!(is_lag_changing(-30.0, 1_000.0, 60.0, 0.0));
        assert!(!is_lag_changing(19.0, 1_000.0, 60.0, 0.0), "rates vary by 2 %");
        assert!(
            !is_lag_changing(30.0, 1_000.0, 60.0, 5_000.0),
            "five seconds of records"
        );
        assert!(is_lag_changing(90.0, 1_000.0, 60.0, 5_000.0));
        assert!(!is_lag_changing(0.08, 0.0, 60.0, 0.0), "five records");
        assert!(is_lag_changing(0.09, 0.0, 60.0, 0.0));
    }

    #[test]
    fn an_idle_consumer_is_idle() {
        assert_eq!(poll_idle_share(0.5), 1.0);
        assert_eq!(processing_share(poll_idle_share(0.5)), 0.0);
        assert_eq!(fetch_bytes_per_second(1e6, 25.0), 25e6);
    }

    #[test]
    fn work_decides_how_many_consumers_keep_up() {
        // 0.5 ms of work on each record: 1,863 records/s were measured, with an idle share of 0.027
        // / (1 - 0.027).
        within(work_ms(poll_idle_share(0.026_7), 1_863.0), 0.5, 5.0);
        assert_eq!(consumers_needed(10_000.0, 0.5), 5.0);
        assert_eq!(consumers_needed(10_001.0, 0.5), 5.0);
        assert_eq!(consumers_needed(10_500.0, 0.5), 6.0);
        assert_eq!(consumers_needed(0.0, 0.5), 1.0);
        // The p99 article: 10 MB/s read of 100 MB/s written.
        assert_eq!(catch_up_seconds(1e9, 10e6, 100e6), f64::INFINITY);
    }

    #[test]
    fn records_get_lost_when_their_age_reaches_the_retention() {
        within(age_growth(50.0, 100.0), 0.5, 0.01);
        // Six of seven days old, growing by half a second per second: two days are left.
        let day = 86_400.0;
        within(seconds_until_loss(6e3 * day, 7e3 * day, 0.5), 2.0 * day, 0.01);
        assert_eq!(seconds_until_loss(0.0, 7e3 * day, -0.1), f64::INFINITY);
        assert_eq!(seconds_until_loss(8e3 * day, 7e3 * day, 0.1), 0.0);
    }

    #[test]
    fn commits_grow_with_the_group() {
        assert_eq!(commits_per_second(500.0, 5_000.0), 100.0);
        assert_eq!(commits_per_second(500.0, 30_000.0), 500.0 / 30.0);
    }
}
