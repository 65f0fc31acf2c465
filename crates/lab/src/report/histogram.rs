//! Latency histograms that clip nothing and merge without loss.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{
    Deserializer as HdrDeserializer, Serializer as HdrSerializer, V2Serializer,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::report::{LatencyResult, Percentiles};

/// Longer latencies are recorded too; the first of them makes the histogram grow.
const ROOM_MICROS: u64 = 60_000_000;

/// Microseconds with three significant digits; grows with the recorded values.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            histogram: Histogram::new(3).expect("three digits are within the histogram's limits"),
        }
    }
}

impl Latencies {
    /// With two significant digits, in an eighth of the memory: for the many seconds of a run.
    pub fn coarse() -> Latencies {
        Latencies {
            histogram: Histogram::new(2).expect("two digits are within the histogram's limits"),
        }
    }

    /// With preallocated memory for values up to a minute: growing in the first moments of a
    /// measurement would distort it.
    pub fn with_room() -> Latencies {
        let mut latencies = Latencies::default();
        latencies.record(ROOM_MICROS);
        latencies.histogram.reset();
        latencies
    }

    #[inline]
    pub fn record(&mut self, micros: u64) {
        self.histogram
            .record(micros)
            .expect("a histogram that grows takes every value");
    }

    pub fn add(&mut self, other: &Latencies) {
        self.histogram
            .add(&other.histogram)
            .expect("a histogram that grows takes every value");
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// - Shape: `percentile` in 0..=100; microseconds.
    pub fn at(&self, percentile: f64) -> u64 {
        self.histogram.value_at_percentile(percentile)
    }

    pub fn max(&self) -> u64 {
        self.histogram.max()
    }

    pub fn mean(&self) -> f64 {
        self.histogram.mean()
    }

    /// - `unit_micros`: 1 for microseconds, 1000 for milliseconds.
    pub fn percentiles(&self, unit_micros: f64) -> Percentiles {
        let at = |percentile: f64| self.at(percentile) as f64 / unit_micros;
        Percentiles {
            p50: at(50.0),
            p95: at(95.0),
            p99: at(99.0),
            p99_9: at(99.9),
            max: self.max() as f64 / unit_micros,
            mean: self.mean() / unit_micros,
            count: self.count(),
        }
    }

    /// The result in milliseconds; `None` when nothing was recorded.
    pub fn result(&self) -> Option<LatencyResult> {
        (self.count() > 0).then(|| LatencyResult {
            percentiles: self.percentiles(1_000.0),
            histogram: self.clone(),
        })
    }

    /// Recorded buckets in ascending order: the highest value of each in microseconds, and its
    /// count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
    }
}

/// HdrHistogram's V2 format in base64, which its tools in other languages read.
impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&self.histogram, &mut bytes)
            .map_err(ser::Error::custom)?;
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Latencies, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(&text).map_err(de::Error::custom)?;
        let histogram = HdrDeserializer::new()
            .deserialize(&mut &*bytes)
            .map_err(de::Error::custom)?;
        Ok(Latencies { histogram })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_clipped_and_merging_loses_nothing() {
        let (mut left, mut right) = (Latencies::default(), Latencies::default());
        for micros in 1..=1_000 {
            left.record(micros);
        }
        right.record(3_600_000_000);
        left.add(&right);
        assert_eq!(left.count(), 1_001);
        assert_eq!(left.percentiles(1.0).count, 1_001);
        assert!(left.max() >= 3_600_000_000);
        assert_eq!(left.at(50.0), 501);
    }

    #[test]
    fn a_histogram_survives_json() {
        let mut latencies = Latencies::default();
        for micros in [1, 70, 70, 123_456, 99_000_000] {
            latencies.record(micros);
        }
        let text = serde_json::to_string(&latencies).unwrap();
        let back: Latencies = serde_json::from_str(&text).unwrap();
        assert_eq!(
            back.buckets().collect::<Vec<_>>(),
            latencies.buckets().collect::<Vec<_>>()
        );
    }

    #[test]
    fn text_that_is_no_histogram_is_refused() {
        for text in ["\"!\"", "\"AAAA\"", "3"] {
            assert!(serde_json::from_str::<Latencies>(text).is_err(), "{text}");
        }
    }
}
