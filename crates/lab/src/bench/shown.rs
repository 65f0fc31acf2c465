//! Selects what tables and charts show of a report that has more than fits.

use std::collections::BTreeSet;

use crate::report::label;
use crate::report::{OnTarget, Point};

/// Shown for every point; other figures only where a source or a prediction has them.
const ALWAYS: [&str; 11] = [
    "records_per_second",
    "mib_per_second",
    "latency_p50_ms",
    "latency_p99_ms",
    "latency_p99_9_ms",
    "latency_max_ms",
    "end_to_end_p99_ms",
    "received_per_second",
    "answered_per_second",
    "cpu_seconds_per_million",
    "broker_cpu_seconds_per_million",
];

impl Point {
    /// The figures that tables show for it, in their order.
    pub fn shown_figures(&self) -> Vec<String> {
        let predicted = self.on.iter().filter_map(|on| on.prediction.as_ref());
        let mut names: BTreeSet<String> = self.source.keys().cloned().collect();
        names.extend(predicted.flat_map(|prediction| prediction.figures.keys().cloned()));
        let is_measured = |name: &&&str| self.on.iter().any(|on| on.figure(name).is_some());
        names.extend(ALWAYS.iter().filter(is_measured).map(|name| (*name).to_owned()));
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_by_key(|name| label::order(name));
        names
    }
}

impl OnTarget {
    /// The lowest and the highest round, where there are several.
    pub fn spread(&self, figure: &str) -> Option<(f64, f64)> {
        let values: Vec<f64> = self
            .measurements
            .iter()
            .filter_map(|measurement| measurement.figures.get(figure).copied())
            .collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (values.len() > 1).then_some((low, high))
    }

    /// Without a schedule, latencies are those of a full queue.
    pub fn is_saturated(&self) -> bool {
        let mut groups = self
            .measurements
            .iter()
            .flat_map(|measurement| &measurement.producers);
        groups.any(|group| group.is_saturated)
    }

    /// The round that represents the others in charts: the middle one by p99, or by rate where
    /// there was no schedule.
    pub fn middle_round(&self) -> Option<usize> {
        let ranked = |name: &str| -> Option<Vec<(f64, usize)>> {
            let rounds = self.measurements.iter().enumerate();
            let rounds = rounds.map(|(round, measurement)| Some((*measurement.figures.get(name)?, round)));
            let mut rounds = rounds.collect::<Option<Vec<_>>>()?;
            rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
            Some(rounds)
        };
        let rounds = ranked("latency_p99_ms").or_else(|| ranked("records_per_second"));
        match rounds {
            Some(rounds) => Some(rounds.get(rounds.len().checked_sub(1)? / 2)?.1),
            None => (!self.measurements.is_empty()).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Measurement;

    fn rounds(p99: &[f64]) -> OnTarget {
        let measurement = |value: &f64| {
            let mut measurement = Measurement::default();
            measurement.figures.insert(String::from("latency_p99_ms"), *value);
            measurement
        };
        OnTarget {
            measurements: p99.iter().map(measurement).collect(),
            ..OnTarget::default()
        }
    }

    #[test]
    fn the_middle_round_is_neither_the_best_nor_the_worst() {
        assert_eq!(rounds(&[3.0, 1.0, 2.0]).middle_round(), Some(2));
        assert_eq!(rounds(&[7.0]).middle_round(), Some(0));
        assert_eq!(rounds(&[]).middle_round(), None);
    }

    #[test]
    fn one_round_has_no_spread() {
        assert_eq!(
            rounds(&[3.0, 1.0, 2.0]).spread("latency_p99_ms"),
            Some((1.0, 3.0))
        );
        assert_eq!(rounds(&[7.0]).spread("latency_p99_ms"), None);
    }

    #[test]
    fn sources_and_predictions_add_their_figures() {
        let point = Point {
            source: [(String::from("queue_ms"), 1.0)].into(),
            on: vec![rounds(&[1.0])],
            ..Point::default()
        };
        assert_eq!(point.shown_figures(), ["latency_p99_ms", "queue_ms"]);
    }
}
