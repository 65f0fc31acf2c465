//! From data points to readings: the same names mean different things in different libraries.
//!
//! This file holds what all libraries share: which names are read (`measure.rs`), how a library is
//! recognised (`software.rs`), how a push becomes a [`Reading`]. What a library's numbers really
//! mean is in that library's file.

mod measure;
mod software;
pub mod ottla;
pub mod java;
pub mod librdkafka;
pub mod franz_go;

pub use measure::{Fold, Level, Measure, Unsampled, Weight};
pub use software::{Hints, Software, Version};

use super::otlp::{self, DataPoint, Kind, Labels, Malformed, NodeLabel, Source};
use super::snapshot::{Library, Role};

/// The prefix of Kafka's metric names.
const DOMAIN: &str = "org.apache.kafka.";

/// No count, size or time of a client is larger (nanoseconds of thirty years), and none is
/// negative: "never" is -1, and a sum that shrank was restarted.
const VALUE_MAX: f64 = 1e18;

/// From this id on, a connection is a Java consumer's own one to its coordinator: `i32::MAX` minus
/// the broker's id. Brokers have small ids.
const COORDINATOR_IDS_FROM: i32 = i32::MAX - 100_000_000;

/// The subject of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject<'a> {
    Client,
    Node(i32),
    Topic(&'a str),
    Partition(&'a str, i32),
}

/// One number, corrected for its library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value<'a> {
    pub measure: Measure,
    pub subject: Subject<'a>,
    pub value: f64,
    /// For a sum, the seconds over which it was counted; 0 if unknown. For a mean, its weight.
    /// Otherwise 1.
    pub weight: f64,
    pub kind: Kind,
}

/// One push, or one reading of a client's metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading<'a> {
    pub role: Option<Role>,
    pub software: Software,
    pub group_id: Option<&'a str>,
    pub member_id: Option<&'a str>,
    /// When the client started, by its own clock, in milliseconds since 1970.
    pub client_started_ms: Option<i64>,
    /// The interval over which the sums were counted, by the client's clock: start and end in
    /// nanoseconds since 1970.
    pub span_nanos: Option<(u64, u64)>,
    /// The number of data points of any kind and name.
    pub points: usize,
    /// Sorted by measure and subject, without duplicates.
    pub values: Vec<Value<'a>>,
    /// Measures that were present without a sample.
    pub without_sample: Unsampled,
}

/// An adapter's interpretation of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taken {
    Value(f64),
    /// "No sample", in whatever way the library writes it.
    NoSample,
    /// The name is Kafka's, but the meaning is that of another measure.
    As(Measure, f64),
    /// The name is Kafka's, but the meaning is not.
    Ignored,
}

impl<'a> Reading<'a> {
    /// Reads a push.
    ///
    /// - `software`: the name and version that the client gave to its broker (ApiVersions), where
    ///   known.
    /// - `is_meant`: selects the payload's sources that count; exporters other than brokers join
    ///   several clients in one payload.
    pub fn of_push(
        payload: &'a [u8],
        software: (Option<&str>, Option<&str>),
        is_meant: impl Fn(&Source<'a>) -> bool,
    ) -> Result<Reading<'a>, Malformed> {
        let mut gathered = Gathered::default();
        otlp::visit(payload, |source, point| {
            if is_meant(source) {
                gathered.add(source, point);
            }
        })?;
        Ok(gathered.finish(software))
    }

    /// Reads points from elsewhere than a payload.
    pub fn of_points(
        points: impl IntoIterator<Item = (Source<'a>, DataPoint<'a>)>,
        software: (Option<&str>, Option<&str>),
    ) -> Reading<'a> {
        let mut gathered = Gathered::default();
        for (source, point) in points {
            gathered.add(&source, &point);
        }
        gathered.finish(software)
    }

    pub fn get(&self, measure: Measure, subject: Subject<'_>) -> Option<f64> {
        let place = self
            .values
            .binary_search_by(|value| (value.measure, value.subject).cmp(&(measure, subject)));
        place.ok().map(|place| self.values[place].value)
    }

    pub fn span_seconds(&self) -> Option<f64> {
        self.span_nanos.map(|(start, end)| seconds_between(start, end))
    }
}

/// Points of one push, not yet corrected: the library may be recognised only at the last of them.
#[derive(Debug, Default)]
struct Gathered<'a> {
    reading: Reading<'a>,
    hints: Hints<'a>,
}

impl<'a> Gathered<'a> {
    fn add(&mut self, source: &Source<'a>, point: &DataPoint<'a>) {
        let reading = &mut self.reading;
        reading.points += 1;
        self.hints.look_at(source, point);
        let given = |text: &'a str| (!text.is_empty()).then_some(text);
        reading.group_id = given(source.group_id).or(reading.group_id);
        reading.member_id = given(source.member_id).or(reading.member_id);
        let name = match point.name.strip_prefix(DOMAIN) {
            Some(name) => name,
            None if point.name.starts_with(ottla::PREFIX) => point.name,
            None => return,
        };
        if name == "app.info.start.time.ms" && point.value.is_finite() {
            reading.client_started_ms = Some(point.value as i64);
            return;
        }
        let role = match name.trim_start_matches(ottla::PREFIX).split('.').next() {
            Some("producer") => Some(Role::Producer),
            Some("consumer") => Some(Role::Consumer),
            _ => None,
        };
        reading.role = role.or(reading.role);
        let Some(measure) = Measure::named(name) else {
            return;
        };
        let Some(subject) = subject(measure.level(), &point.labels) else {
            return;
        };
        let seconds = seconds_between(point.start_nanos, point.end_nanos);
        if seconds > 0.0 && (reading.span_nanos.is_none() || measure == Measure::Requests) {
            reading.span_nanos = Some((point.start_nanos, point.end_nanos));
        }
        reading.values.push(Value {
            measure,
            subject,
            value: point.value,
            weight: seconds,
            kind: point.kind,
        });
    }

    fn finish(mut self, (name, version): (Option<&str>, Option<&str>)) -> Reading<'a> {
        let software = Software::recognise(name, version, &self.hints);
        let without_sample = &mut self.reading.without_sample;
        self.reading.values.retain_mut(|value| {
            let taken = match software.library {
                Library::Librdkafka => librdkafka::take(value),
                Library::FranzGo => franz_go::take(value, software.version),
                Library::Ottla => ottla::take(value),
                // A client that is not recognised sends Kafka's names with Kafka's meanings.
                Library::Java | Library::Unknown => java::take(value),
            };
            let taken = match taken {
                Taken::Value(number) | Taken::As(_, number) if !(0.0..=VALUE_MAX).contains(&number) => {
                    Taken::NoSample
                }
                taken => taken,
            };
            match taken {
                Taken::Value(corrected) => value.value = corrected,
                Taken::As(measure, corrected) => (value.measure, value.value) = (measure, corrected),
                Taken::NoSample => without_sample.insert(value.measure),
                Taken::Ignored => {}
            }
            matches!(taken, Taken::Value(_) | Taken::As(..))
        });
        self.reading.software = software;
        self.reading.settle();
        self.reading
    }
}

impl Reading<'_> {
    /// Sorts, removes duplicates, adds derived values, and sets the weights of means.
    fn settle(&mut self) {
        if let Some(in_flight) = self
            .values
            .iter()
            .find(|value| value.measure == Measure::InFlight)
        {
            let peak = Value {
                measure: Measure::InFlightPeak,
                ..*in_flight
            };
            self.values.push(peak);
        }
        self.values.sort_by_key(|value| (value.measure, value.subject));
        self.values.dedup_by_key(|value| (value.measure, value.subject));
        let span_seconds = self.span_seconds().unwrap_or(0.0);
        for index in 0..self.values.len() {
            let value = self.values[index];
            let weight = match value.measure.fold() {
                Fold::Sum => continue,
                Fold::Mean(Weight::Of(other)) => self.get(other, value.subject),
                Fold::Mean(Weight::Batches) => self
                    .get(Measure::BytesOut, Subject::Client)
                    .zip(self.get(Measure::BatchBytes, Subject::Client))
                    .map(|(bytes, batch)| bytes / batch),
                Fold::Mean(Weight::Time) => None,
                Fold::Max | Fold::Peak | Fold::Last => Some(1.0),
            };
            let weight = weight.filter(|weight| weight.is_finite() && *weight > 0.0);
            self.values[index].weight = weight.unwrap_or(span_seconds.max(f64::MIN_POSITIVE));
        }
    }
}

/// Returns `None` if the labels are those of another level, or of a connection that is not to a
/// broker.
fn subject<'a>(level: Level, labels: &Labels<'a>) -> Option<Subject<'a>> {
    match (level, labels.node, labels.topic, labels.partition) {
        (Level::Client, None, None, None) => Some(Subject::Client),
        (Level::Node, Some(node), None, None) => node_id(node).map(Subject::Node),
        (Level::Topic, None, Some(topic), None) => Some(Subject::Topic(topic)),
        (Level::Partition, None, Some(topic), Some(partition)) => Some(Subject::Partition(topic, partition)),
        _ => None,
    }
}

/// Returns `None` for connections that are not to a broker by its id: `node--1` and the like lead
/// to bootstrap addresses.
fn node_id(label: NodeLabel<'_>) -> Option<i32> {
    let id = match label {
        NodeLabel::Text(text) => text.strip_prefix("node-").unwrap_or(text).parse().ok()?,
        NodeLabel::Number(id) | NodeLabel::Dotted(id) => i32::try_from(id).ok()?,
    };
    (0..COORDINATOR_IDS_FROM).contains(&id).then_some(id)
}

fn seconds_between(start_nanos: u64, end_nanos: u64) -> f64 {
    match start_nanos {
        0 => 0.0,
        _ => end_nanos.saturating_sub(start_nanos) as f64 / 1e9,
    }
}

#[cfg(test)]
mod tests;
