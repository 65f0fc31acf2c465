//! Counts of a run and of the current reporting interval.

use std::time::Duration;

use crate::load::clock::as_nanos;
use crate::report::histogram::Latencies;

/// Sums over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    pub seconds: f64,
    pub latency_sum_micros: u64,
    pub latency_max_micros: u64,
}

const MIB: f64 = 1_048_576.0;

impl Interval {
    fn add(&mut self, bytes: u64, latency_micros: u64) {
        self.records += 1;
        self.bytes += bytes;
        self.latency_sum_micros += latency_micros;
        self.latency_max_micros = self.latency_max_micros.max(latency_micros);
    }

    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }

    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / MIB / self.seconds
    }

    /// NaN when there were no records.
    pub fn latency_mean_ms(&self) -> f64 {
        self.latency_sum_micros as f64 / self.records as f64 / 1_000.0
    }

    pub fn latency_max_ms(&self) -> f64 {
        self.latency_max_micros as f64 / 1_000.0
    }
}

/// Totals, and the interval since the last report.
///
/// - Units: times are nanoseconds of `load::clock`.
#[derive(Debug)]
pub struct Stats {
    begin: u64,
    total: Interval,
    latencies: Latencies,
    window_begin: u64,
    window: Interval,
    reporting_nanos: u64,
}

/// The totals of a run.
#[derive(Clone, Debug, Default)]
pub struct Total {
    pub interval: Interval,
    pub latencies: Latencies,
}

impl Stats {
    pub fn new(begin: u64, reporting_interval: Duration) -> Stats {
        Stats {
            begin,
            total: Interval::default(),
            latencies: Latencies::default(),
            window_begin: begin,
            window: Interval::default(),
            reporting_nanos: as_nanos(reporting_interval),
        }
    }

    /// Counts a record; returns the interval when it is over, and whether it was the first one.
    pub fn record(&mut self, now: u64, bytes: u64, latency_micros: u64) -> Option<(Interval, bool)> {
        self.total.add(bytes, latency_micros);
        self.window.add(bytes, latency_micros);
        self.latencies.record(latency_micros);
        let elapsed = now.saturating_sub(self.window_begin);
        if elapsed < self.reporting_nanos {
            return None;
        }
        let is_first = self.window.records == self.total.records;
        self.window_begin = now;
        let window = Interval {
            seconds: elapsed as f64 / 1e9,
            ..std::mem::take(&mut self.window)
        };
        Some((window, is_first))
    }

    pub fn total(&self, end: u64) -> Total {
        Total {
            interval: Interval {
                seconds: end.saturating_sub(self.begin) as f64 / 1e9,
                ..self.total
            },
            latencies: self.latencies.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up_to_the_total() {
        let mut stats = Stats::new(5_000_000, Duration::from_secs(1));
        let at = |ms: u64| 5_000_000 + ms * 1_000_000;
        let times = [at(100), at(900), at(1_000), at(1_500), at(2_500)];
        let windows: Vec<_> = times
            .into_iter()
            .zip([1_000, 2_000, 6_000, 4_000, 2_000])
            .filter_map(|(now, micros)| stats.record(now, 100, micros))
            .collect();
        assert_eq!(windows.len(), 2);
        let (first, is_first) = windows[0];
        assert!(is_first && !windows[1].1);
        assert_eq!((first.records, first.seconds), (3, 1.0));
        assert_eq!((first.latency_mean_ms(), first.latency_max_ms()), (3.0, 6.0));
        assert_eq!(windows[1].0.records_per_second(), 2.0 / 1.5);
        let total = stats.total(times[4]);
        assert_eq!((total.interval.records, total.interval.bytes), (5, 500));
        assert_eq!(total.latencies.count(), 5);
    }
}
