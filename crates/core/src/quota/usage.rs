//! What one user and client id have used and how often they were throttled, with or without quotas.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::kind::{KIND_COUNT, QuotaKind};
use crate::time::Moment;

/// The interval of rate computation; rates are means over two intervals, ten seconds, as in Kafka's
/// metrics.
const INTERVAL_MICROS: u64 = 5_000_000;
const INTERVAL_COUNT: usize = 2;

/// Sums since the entity was first seen, by kind: bytes, bytes, microseconds, partitions.
#[derive(Debug, Default)]
pub struct Usage {
    used: [AtomicU64; KIND_COUNT],
    throttles: [AtomicU64; KIND_COUNT],
    throttle_micros: [AtomicU64; KIND_COUNT],
    history: Mutex<History>,
}

/// The same sums at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub used: [u64; KIND_COUNT],
    /// Answers with a throttle time; in a dry run, those that would have one.
    pub throttles: [u64; KIND_COUNT],
    pub throttle_micros: [u64; KIND_COUNT],
}

/// Rates of use, in the unit of the quota per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Over the last ten seconds.
    pub now: [f64; KIND_COUNT],
    /// Mean throttle time in these ten seconds, in milliseconds, of the answers that had one.
    pub throttle_ms: [f64; KIND_COUNT],
    /// Highest rates so far: over ten seconds; `peak_second`: over one second.
    pub peak: [f64; KIND_COUNT],
    pub peak_second: [f64; KIND_COUNT],
}

#[derive(Debug, Default)]
struct History {
    last: Option<(Moment, Sums)>,
    /// Newest first.
    intervals: [Option<(Moment, Sums)>; INTERVAL_COUNT + 1],
    rates: Rates,
    changed: Moment,
}

impl Usage {
    pub fn add(&self, kind: QuotaKind, amount: u64) {
        self.used[kind as usize].fetch_add(amount, Ordering::Relaxed);
    }

    pub fn count_throttle(&self, kind: QuotaKind, micros: u64) {
        self.throttles[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.throttle_micros[kind as usize].fetch_add(micros, Ordering::Relaxed);
    }

    pub fn sums(&self) -> Sums {
        let read = |counters: &[AtomicU64; KIND_COUNT]| {
            [0, 1, 2, 3].map(|index: usize| counters[index].load(Ordering::Relaxed))
        };
        Sums {
            used: read(&self.used),
            throttles: read(&self.throttles),
            throttle_micros: read(&self.throttle_micros),
        }
    }

    pub fn rates(&self) -> Rates {
        self.history().rates
    }

    /// Returns the moment of the last use.
    pub fn idle_since(&self) -> Moment {
        self.history().changed
    }

    /// Takes a sample; call about once a second.
    pub fn sample(&self, now: Moment) {
        let sums = self.sums();
        self.history().sample(now, sums);
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History {
    fn sample(&mut self, now: Moment, sums: Sums) {
        let Some((before, last)) = self.last.replace((now, sums)) else {
            self.changed = now;
            self.intervals[0] = Some((now, sums));
            return;
        };
        if last.used != sums.used {
            self.changed = now;
        }
        // An early sample would turn little use into a peak.
        let span_micros = now.micros_since(before);
        if span_micros >= 500_000 {
            let rates = rates(&last, &sums, span_micros);
            raise(&mut self.rates.peak_second, &rates);
        } else {
            self.last = Some((before, last));
        }
        let newest = self.intervals[0].map_or(Moment::from_micros(0), |(at, _)| at);
        if now.micros_since(newest) < INTERVAL_MICROS {
            return;
        }
        self.intervals.rotate_right(1);
        self.intervals[0] = Some((now, sums));
        let Some((since, first)) = self.intervals[INTERVAL_COUNT] else {
            // In the first ten seconds, use counts as if spread over ten: a start is not a peak.
            let (since, first) = self.intervals[1].unwrap_or_default();
            let full_micros = INTERVAL_MICROS * INTERVAL_COUNT as u64;
            self.rates.now = rates(&first, &sums, now.micros_since(since).max(full_micros));
            let current = self.rates.now;
            raise(&mut self.rates.peak, &current);
            return;
        };
        self.rates.now = rates(&first, &sums, now.micros_since(since));
        let current = self.rates.now;
        raise(&mut self.rates.peak, &current);
        for index in 0..KIND_COUNT {
            let throttles = sums.throttles[index] - first.throttles[index];
            let micros = sums.throttle_micros[index] - first.throttle_micros[index];
            self.rates.throttle_ms[index] = micros as f64 / 1e3 / throttles.max(1) as f64;
        }
    }
}

fn rates(first: &Sums, last: &Sums, span_micros: u64) -> [f64; KIND_COUNT] {
    QuotaKind::ALL.map(|kind| {
        let used = last.used[kind as usize] - first.used[kind as usize];
        used as f64 * kind.scale() * 1e6 / span_micros.max(1) as f64
    })
}

fn raise(peaks: &mut [f64; KIND_COUNT], rates: &[f64; KIND_COUNT]) {
    for (peak, rate) in peaks.iter_mut().zip(rates) {
        *peak = peak.max(*rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn rates_are_means_over_ten_seconds_and_peaks_are_kept() {
        let usage = Usage::default();
        usage.sample(Moment::from_micros(0));
        for second in 1..=30u64 {
            // One second of a megabyte, then nothing.
            if second == 6 {
                usage.add(QuotaKind::Produce, 1_000_000);
            }
            usage.add(QuotaKind::Request, 250_000);
            usage.sample(Moment::from_micros(second * SECOND));
            if second == 5 {
                assert!((usage.rates().now[2] - 12.5).abs() < 1e-9, "half of ten seconds");
            }
            if second == 10 {
                assert_eq!(usage.rates().now[0], 100_000.0);
            }
        }
        let rates = usage.rates();
        assert_eq!(
            (rates.now[0], rates.peak[0], rates.peak_second[0]),
            (0.0, 100_000.0, 1e6)
        );
        // A quarter of each second.
        assert!((rates.now[2] - 25.0).abs() < 1e-9, "{}", rates.now[2]);
        assert_eq!(usage.idle_since(), Moment::from_micros(30 * SECOND));
    }

    #[test]
    fn the_throttle_time_is_the_mean_of_the_recent_ones() {
        let usage = Usage::default();
        for second in 0..=10u64 {
            usage.count_throttle(QuotaKind::Fetch, if second < 5 { 100_000 } else { 300_000 });
            usage.sample(Moment::from_micros(second * SECOND));
        }
        let throttle_ms = usage.rates().throttle_ms[QuotaKind::Fetch as usize];
        assert!((throttle_ms - 220.0).abs() < 1e-9, "{throttle_ms}");
    }

    #[test]
    fn the_peak_of_a_second_is_taken_from_spans_of_half_a_second_or_more() {
        let usage = Usage::default();
        usage.sample(Moment::from_micros(0));
        usage.add(QuotaKind::Fetch, 1_000);
        let peak_at = |micros| {
            usage.sample(Moment::from_micros(micros));
            usage.rates().peak_second[QuotaKind::Fetch as usize]
        };
        assert_eq!(
            [499_999, 500_000, 1_000_000].map(peak_at),
            [0.0, 2_000.0, 2_000.0]
        );
    }
}
