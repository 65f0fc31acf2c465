//! One reading of a Java client's metrics: totals since its start, and averages over its sample
//! windows.

use std::collections::HashMap;

use super::super::adapters::{Fold, Measure, Reading, Subject, Value};
use super::super::history::{Instance, summary};
use super::super::otlp::{DataPoint, Kind, NAME_BYTES_MAX, NodeLabel, Source};
use super::super::snapshot::{Client, Snapshot, Telemetry};
use super::metric_key::MetricKey;

/// `metrics.sample.window.ms` × `metrics.num.samples` of a client with default settings.
pub const SAMPLES_SECONDS: f64 = 60.0;

/// The oldest sample is kept until all of it is outside the time: averages reach back between once
/// and one and a half times as far. This is the mean of both.
const SAMPLES_REACH: f64 = 1.25;

/// A client's metrics at one moment.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub client: Client,
    /// NaN where there was no sample.
    pub metrics: Vec<(MetricKey, f64)>,
    /// The client's age, as far as it is known.
    pub age_seconds: Option<f64>,
    /// How far its averages reach back; `None`: the default.
    pub samples_seconds: Option<f64>,
}

impl Look {
    /// Makes the snapshot. Rates must be about the same time as the averages (reading rule 10). A
    /// client that is younger than its sample windows averages over its whole life, so its rates
    /// are totals over its age, and the `.rate` gauges are far too low (rule 1). An older client
    /// averages over the windows, and so do its `.rate` gauges, which are then right.
    pub fn snapshot(&self) -> Snapshot {
        let age_seconds = self.age_seconds.unwrap_or_else(|| self.guessed_age());
        let samples_seconds = self.samples_seconds.unwrap_or(SAMPLES_SECONDS);
        let has_rates = age_seconds >= samples_seconds;
        let rates = if has_rates { self.rates() } else { HashMap::new() };
        let points = self
            .metrics
            .iter()
            .filter(|(key, _)| key.name.len() <= NAME_BYTES_MAX);
        let points = points.map(|(key, value)| (Source::default(), data_point(key, *value)));
        let mut reading = Reading::of_points(points, (None, None));
        for value in &mut reading.values {
            value.weight = match value.measure.fold() {
                Fold::Sum => {
                    let key = (value.measure, about(value.subject));
                    let rate = rates.get(&key).copied().unwrap_or(f64::NAN);
                    seconds_of(value, rate, age_seconds)
                }
                _ if value.measure.is_of_one_reading() => age_seconds.min(samples_seconds * SAMPLES_REACH),
                _ => value.weight,
            };
        }
        forget_what_was_before(&mut reading, age_seconds);
        let mut instance = Instance::new(self.client.clone());
        instance.keep_only(&reading, age_seconds);
        let mut snapshot = summary::snapshot(&instance.window());
        snapshot.telemetry = Telemetry::default();
        snapshot
    }

    /// Growth per second, from the client's own `.rate` and `.ratio` gauges.
    fn rates(&self) -> HashMap<(Measure, String), f64> {
        let gauges: HashMap<&MetricKey, f64> =
            self.metrics.iter().map(|(key, value)| (key, *value)).collect();
        let rates = self.metrics.iter().filter_map(|(key, _)| {
            let measure = Measure::named(key.name.strip_prefix("org.apache.kafka.")?)?;
            let (gauge, factor) = rate_gauge(&key.name)?;
            let rate = gauges.get(&key.renamed(gauge))?;
            let labels = key.labels();
            let about = match (labels.node, labels.topic) {
                (Some(NodeLabel::Text(node)), _) => node,
                (_, topic) => topic.unwrap_or_default(),
            };
            Some(((measure, about.to_owned()), rate * factor))
        });
        rates.collect()
    }

    /// The metadata are as old as the client until they are first fetched again, after five
    /// minutes.
    fn guessed_age(&self) -> f64 {
        let find = |name: &str| {
            let found = self.metrics.iter().find(|(key, _)| key.name == name);
            found
                .map(|(_, value)| *value)
                .filter(|value| value.is_finite() && *value > 0.0)
        };
        let of = |client: &str| {
            let total = find(&format!("org.apache.kafka.{client}.request.total"))?;
            Some(total / find(&format!("org.apache.kafka.{client}.request.rate"))?)
        };
        find("org.apache.kafka.producer.metadata.age")
            .or_else(|| of("producer"))
            .or_else(|| of("consumer"))
            .unwrap_or(SAMPLES_SECONDS)
    }
}

fn about(subject: Subject<'_>) -> String {
    match subject {
        Subject::Client => String::new(),
        Subject::Node(id) => format!("node-{id}"),
        Subject::Topic(topic) | Subject::Partition(topic, _) => topic.to_owned(),
    }
}

/// The gauge with a total's rate, and the factor from the gauge's unit to the total's.
fn rate_gauge(total: &str) -> Option<(String, f64)> {
    const NANOS_PER_SECOND: f64 = 1e9;
    if let Some(time) = total.strip_suffix(".time.ns.total") {
        return Some((format!("{time}.ratio"), NANOS_PER_SECOND));
    }
    Some((format!("{}.rate", total.strip_suffix(".total")?), 1.0))
}

/// The seconds over which the total gives that rate.
fn seconds_of(total: &Value<'_>, rate: f64, age_seconds: f64) -> f64 {
    if rate > 0.0 && rate.is_finite() && total.value > 0.0 {
        total.value / rate
    } else if rate == 0.0 {
        // It was counted before the sample windows.
        f64::INFINITY
    } else {
        age_seconds
    }
}

/// Drops the group's joining at the client's start, which is no rebalance within the time of the
/// averages.
fn forget_what_was_before(reading: &mut Reading<'_>, age_seconds: f64) {
    let last_seconds = reading.get(Measure::LastRebalance, Subject::Client);
    let was_before = last_seconds.is_some_and(|seconds| seconds > age_seconds / 2.0);
    for value in &mut reading.values {
        value.value = match value.measure {
            Measure::Rebalances | Measure::FailedRebalances if was_before => 0.0,
            Measure::RebalanceTimeTotal => 0.0,
            Measure::Rebalances => (value.value - 1.0).max(0.0),
            _ => value.value,
        };
    }
}

fn data_point(key: &MetricKey, value: f64) -> DataPoint<'_> {
    DataPoint {
        name: &key.name,
        labels: key.labels(),
        kind: if key.name.ends_with(".total") {
            Kind::Delta
        } else {
            Kind::Gauge
        },
        start_nanos: 0,
        end_nanos: 0,
        value,
    }
}
