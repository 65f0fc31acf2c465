//! Averages, extremes and rates over the last `metrics.sample.window.ms` × `metrics.num.samples`,
//! computed as in Kafka.

/// How long a sample is filled and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSettings {
    /// `metrics.sample.window.ms`.
    pub window_ms: u64,
    /// `metrics.num.samples`.
    pub sample_count: u32,
}

impl Default for WindowSettings {
    fn default() -> WindowSettings {
        WindowSettings {
            window_ms: 30_000,
            sample_count: 2,
        }
    }
}

impl WindowSettings {
    /// The age at which a sample without new values is dropped.
    pub fn span_ms(self) -> u64 {
        self.window_ms.saturating_mul(u64::from(self.sample_count))
    }
}

/// Many values that were measured one by one and are recorded at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Several {
    pub count: u64,
    pub sum: f64,
    pub max: f64,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    start_ms: u64,
    last_ms: u64,
    count: u64,
    sum: f64,
    max: f64,
    min: f64,
}

impl Sample {
    fn new(now_ms: u64) -> Sample {
        Sample {
            start_ms: now_ms,
            last_ms: now_ms,
            count: 0,
            sum: 0.0,
            max: f64::NEG_INFINITY,
            min: f64::INFINITY,
        }
    }
}

/// The samples of one sensor. One more than `sample_count` is kept, for the one that overlaps the
/// window's edge.
///
/// Kafka keeps such a list for each of avg, max and rate; they are fed together and so are always
/// equal.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    samples: Vec<Sample>,
    current: usize,
}

impl Windows {
    pub fn record(&mut self, settings: WindowSettings, now_ms: u64, value: f64) {
        let sample = self.open(settings, now_ms);
        sample.count += 1;
        sample.sum += value;
        sample.max = sample.max.max(value);
        sample.min = sample.min.min(value);
    }

    pub fn record_several(&mut self, settings: WindowSettings, now_ms: u64, values: Several) {
        if values.count == 0 {
            return;
        }
        let sample = self.open(settings, now_ms);
        sample.count += values.count;
        sample.sum += values.sum;
        sample.max = sample.max.max(values.max);
    }

    /// The sample that takes values now.
    fn open(&mut self, settings: WindowSettings, now_ms: u64) -> &mut Sample {
        if self.samples.is_empty() {
            self.samples.push(Sample::new(now_ms));
        } else if now_ms.saturating_sub(self.samples[self.current].start_ms) >= settings.window_ms {
            self.current = (self.current + 1) % (settings.sample_count as usize + 1);
            if self.current >= self.samples.len() {
                self.current = self.samples.len();
                self.samples.push(Sample::new(now_ms));
            } else {
                self.samples[self.current] = Sample::new(now_ms);
            }
        }
        let sample = &mut self.samples[self.current];
        sample.last_ms = now_ms;
        sample
    }

    fn forget_old(&mut self, settings: WindowSettings, now_ms: u64) {
        for sample in &mut self.samples {
            if now_ms.saturating_sub(sample.last_ms) >= settings.span_ms() {
                *sample = Sample::new(now_ms);
            }
        }
    }

    fn count_and_sum(&mut self, settings: WindowSettings, now_ms: u64) -> (u64, f64) {
        self.forget_old(settings, now_ms);
        self.samples.iter().fold((0, 0.0), |(count, sum), sample| {
            (count + sample.count, sum + sample.sum)
        })
    }

    /// NaN when nothing was recorded: no sample is not zero.
    pub fn average(&mut self, settings: WindowSettings, now_ms: u64) -> f64 {
        let (count, sum) = self.count_and_sum(settings, now_ms);
        if count == 0 { f64::NAN } else { sum / count as f64 }
    }

    /// NaN when nothing was recorded.
    pub fn max(&mut self, settings: WindowSettings, now_ms: u64) -> f64 {
        let (count, _) = self.count_and_sum(settings, now_ms);
        let max = self
            .samples
            .iter()
            .fold(f64::NEG_INFINITY, |max, sample| max.max(sample.max));
        if count == 0 { f64::NAN } else { max }
    }

    /// NaN when nothing was recorded.
    pub fn min(&mut self, settings: WindowSettings, now_ms: u64) -> f64 {
        let (count, _) = self.count_and_sum(settings, now_ms);
        let min = self
            .samples
            .iter()
            .fold(f64::INFINITY, |min, sample| min.min(sample.min));
        if count == 0 { f64::NAN } else { min }
    }

    /// The recorded sum per millisecond; 0 when nothing was recorded.
    pub fn sum_per_ms(&mut self, settings: WindowSettings, now_ms: u64) -> f64 {
        let (_, sum) = self.count_and_sum(settings, now_ms);
        sum / self.elapsed_ms(settings, now_ms) as f64
    }

    /// The number of recorded values per millisecond; 0 when nothing was recorded.
    pub fn count_per_ms(&mut self, settings: WindowSettings, now_ms: u64) -> f64 {
        let (count, _) = self.count_and_sum(settings, now_ms);
        count as f64 / self.elapsed_ms(settings, now_ms) as f64
    }

    /// The divisor of a rate: the time since the oldest sample began, but at least as if every
    /// window except the current one had passed, so that one burst right after the start is not a
    /// huge rate.
    fn elapsed_ms(&self, settings: WindowSettings, now_ms: u64) -> u64 {
        let oldest_ms = self
            .samples
            .iter()
            .map(|sample| sample.start_ms)
            .min()
            .unwrap_or(now_ms);
        let elapsed_ms = now_ms.saturating_sub(oldest_ms);
        let full_windows = elapsed_ms / settings.window_ms.max(1);
        let missing = u64::from(settings.sample_count.saturating_sub(1)).saturating_sub(full_windows);
        elapsed_ms
            .saturating_add(missing.saturating_mul(settings.window_ms))
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: WindowSettings = WindowSettings {
        window_ms: 30_000,
        sample_count: 2,
    };

    #[test]
    fn no_sample_is_not_zero() {
        let mut windows = Windows::default();
        assert!(windows.average(SETTINGS, 5).is_nan());
        assert!(windows.max(SETTINGS, 5).is_nan());
        assert!(windows.min(SETTINGS, 5).is_nan());
        assert_eq!(windows.sum_per_ms(SETTINGS, 5), 0.0);
        assert_eq!(windows.count_per_ms(SETTINGS, 5), 0.0);
    }

    /// 24,000 records in 12 s are 572 records/s: measured with the Java client.
    #[test]
    fn a_rate_divides_by_at_least_one_full_window() {
        let mut windows = Windows::default();
        for second in 0..12 {
            windows.record(SETTINGS, second * 1000, 2000.0);
        }
        let rate = windows.sum_per_ms(SETTINGS, 12_000) * 1000.0;
        assert!((rate - 24_000.0 / 42.0).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn a_sample_counts_until_its_last_value_is_as_old_as_all_windows() {
        let mut windows = Windows::default();
        windows.record(SETTINGS, 0, 10.0);
        windows.record(SETTINGS, 29_999, 30.0);
        windows.record(SETTINGS, 30_000, 50.0);
        assert_eq!(windows.average(SETTINGS, 60_000), 30.0);
        assert_eq!(
            windows.average(SETTINGS, 89_998),
            30.0,
            "the first sample's last value is 59,999 ms old"
        );
        assert_eq!(windows.average(SETTINGS, 89_999), 50.0);
        assert_eq!(windows.min(SETTINGS, 89_999), 50.0);
        assert!(windows.average(SETTINGS, 90_000).is_nan());
    }

    #[test]
    fn one_sample_more_than_asked_for_is_kept() {
        let mut windows = Windows::default();
        for window in 0..10 {
            windows.record(SETTINGS, window * 30_000, window as f64);
        }
        assert_eq!(windows.samples.len(), 3);
        assert_eq!(windows.max(SETTINGS, 9 * 30_000 + 1), 9.0);
        assert_eq!(windows.min(SETTINGS, 9 * 30_000 + 1), 8.0);
    }

    #[test]
    fn several_values_weigh_as_many() {
        let mut windows = Windows::default();
        let several = Several {
            count: 3,
            sum: 6.0,
            max: 4.0,
        };
        windows.record_several(SETTINGS, 0, several);
        windows.record(SETTINGS, 0, 2.0);
        assert_eq!(windows.average(SETTINGS, 1), 2.0);
        assert_eq!(windows.max(SETTINGS, 1), 4.0);
    }
}
