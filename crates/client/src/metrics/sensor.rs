//! A sensor takes values and yields several metrics; a family is the sensors that share a group and
//! tags.

use std::sync::Arc;

pub use ottla_wire::config_keys::ClientKind;

use super::window::{Several, WindowSettings, Windows};

/// A family's place in Kafka's naming. `Own…` are groups that Kafka does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    Client,
    Node,
    ProducerTopic,
    Fetch,
    FetchTopic,
    FetchPartition,
    Coordinator,
    Own,
    OwnNode,
    AppInfo,
    Count,
}

impl Group {
    pub fn name(self, kind: ClientKind) -> &'static str {
        match (self, kind) {
            (Group::Client, ClientKind::Producer) => "producer-metrics",
            (Group::Client, ClientKind::Consumer) => "consumer-metrics",
            (Group::Client, ClientKind::Admin) => "admin-client-metrics",
            (Group::Node, ClientKind::Producer) => "producer-node-metrics",
            (Group::Node, ClientKind::Consumer) => "consumer-node-metrics",
            (Group::Node, ClientKind::Admin) => "admin-client-node-metrics",
            (Group::ProducerTopic, _) => "producer-topic-metrics",
            (Group::Fetch | Group::FetchTopic | Group::FetchPartition, _) => "consumer-fetch-manager-metrics",
            (Group::Coordinator, _) => "consumer-coordinator-metrics",
            (Group::Own, ClientKind::Producer) => "ottla-producer-metrics",
            (Group::Own, ClientKind::Consumer) => "ottla-consumer-metrics",
            (Group::Own, ClientKind::Admin) => "ottla-admin-client-metrics",
            (Group::OwnNode, ClientKind::Producer) => "ottla-producer-node-metrics",
            (Group::OwnNode, ClientKind::Consumer) => "ottla-consumer-node-metrics",
            (Group::OwnNode, ClientKind::Admin) => "ottla-admin-client-node-metrics",
            (Group::AppInfo, _) => "app-info",
            (Group::Count, _) => "kafka-metrics-count",
        }
    }

    /// The tags besides `client-id`.
    pub fn tags(self) -> &'static [&'static str] {
        match self {
            Group::Node | Group::OwnNode => &["node-id"],
            Group::ProducerTopic | Group::FetchTopic => &["topic"],
            Group::FetchPartition => &["partition", "topic"],
            _ => &[],
        }
    }
}

/// How a metric is computed from its sensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Over the windows.
    Avg,
    Max,
    Min,
    /// The values' sum per second.
    Rate,
    /// Values per second.
    CountRate,
    CountRatePerHour,
    /// For values in nanoseconds: their sum per nanosecond.
    Ratio,
    /// The values' sum since the start.
    Total,
    CountTotal,
    /// The last value, or the value read when the snapshot was taken.
    Now,
}

impl Stat {
    pub fn kind(self) -> MetricKind {
        match self {
            Stat::Total | Stat::CountTotal => MetricKind::Sum,
            _ => MetricKind::Gauge,
        }
    }

    fn is_windowed(self) -> bool {
        !matches!(self, Stat::Total | Stat::CountTotal | Stat::Now)
    }
}

/// A sum only grows while the client lives; a gauge may move either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A current value, an average or a rate.
    Gauge,
    /// A total that only grows.
    Sum,
}

#[derive(Debug)]
pub struct MetricDefinition {
    pub name: &'static str,
    pub stat: Stat,
    pub what: &'static str,
}

#[derive(Debug)]
pub struct SensorDefinition {
    pub metrics: &'static [MetricDefinition],
}

#[derive(Debug)]
pub struct FamilyDefinition {
    pub group: Group,
    pub sensors: &'static [SensorDefinition],
}

/// Declares an enum of sensors and, in the same order, the metrics of each.
macro_rules! sensors {
    ($(#[$attribute:meta])* $family:ident: $group:expr, enum $sensor:ident {
        $($variant:ident { $($name:literal $stat:ident $what:literal,)+ })+
    }) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum $sensor { $($variant),+ }

        impl From<$sensor> for usize {
            fn from(sensor: $sensor) -> usize {
                sensor as usize
            }
        }

        $(#[$attribute])*
        pub(super) static $family: $crate::metrics::sensor::FamilyDefinition =
            $crate::metrics::sensor::FamilyDefinition {
                group: $group,
                sensors: &[$($crate::metrics::sensor::SensorDefinition {
                    metrics: &[$($crate::metrics::sensor::MetricDefinition {
                        name: $name,
                        stat: $crate::metrics::sensor::Stat::$stat,
                        what: $what,
                    }),+],
                }),+],
            };
    };
}
pub(crate) use sensors;

/// A metric's tags, `client-id` first, the others in Kafka's order.
pub type Tags = Arc<[(&'static str, Arc<str>)]>;

/// A metric's current value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NaN: there is no sample to say anything by.
    Number(f64),
    /// `version` and `commit-id` of `app-info`.
    Text(Arc<str>),
}

/// One metric of a snapshot, under Kafka's names.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Kafka's group, for example `producer-topic-metrics`.
    pub group: &'static str,
    /// Kafka's name; the unit is part of it.
    pub name: &'static str,
    /// Names and values, `client-id` first.
    pub tags: Tags,
    /// Whether a reader may subtract two values.
    pub kind: MetricKind,
    /// A number is NaN where there was no sample.
    pub value: Value,
}

impl Metric {
    /// The value if it is a number.
    pub fn number(&self) -> Option<f64> {
        match self.value {
            Value::Number(value) => Some(value),
            Value::Text(_) => None,
        }
    }

    /// The value of a tag.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.as_ref())
    }
}

#[derive(Clone, Debug, Default)]
struct Sensor {
    windows: Windows,
    count: u64,
    sum: f64,
    now: f64,
}

/// The live sensors of a definition.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    definition: &'static FamilyDefinition,
    sensors: Box<[Sensor]>,
}

impl Family {
    pub fn new(definition: &'static FamilyDefinition) -> Family {
        Family {
            definition,
            sensors: vec![Sensor::default(); definition.sensors.len()].into(),
        }
    }

    pub fn record(&mut self, settings: WindowSettings, now_ms: u64, sensor: impl Into<usize>, value: f64) {
        let index = sensor.into();
        let sensor = &mut self.sensors[index];
        sensor.count += 1;
        sensor.sum += value;
        sensor.now = value;
        if self.definition.sensors[index]
            .metrics
            .iter()
            .any(|metric| metric.stat.is_windowed())
        {
            sensor.windows.record(settings, now_ms, value);
        }
    }

    pub fn record_several(
        &mut self,
        settings: WindowSettings,
        now_ms: u64,
        sensor: impl Into<usize>,
        values: Several,
    ) {
        let sensor = &mut self.sensors[sensor.into()];
        sensor.count += values.count;
        sensor.sum += values.sum;
        sensor.windows.record_several(settings, now_ms, values);
    }

    /// Sets the value for `Stat::Now`.
    pub fn set(&mut self, sensor: impl Into<usize>, value: f64) {
        self.sensors[sensor.into()].now = value;
    }

    pub fn collect(
        &mut self,
        settings: WindowSettings,
        now_ms: u64,
        kind: ClientKind,
        tags: &Tags,
        into: &mut Vec<Metric>,
    ) {
        let group = self.definition.group.name(kind);
        for (definition, sensor) in self.definition.sensors.iter().zip(&mut self.sensors) {
            for metric in definition.metrics {
                into.push(Metric {
                    group,
                    name: metric.name,
                    tags: tags.clone(),
                    kind: metric.stat.kind(),
                    value: Value::Number(sensor.value(metric.stat, settings, now_ms)),
                });
            }
        }
    }
}

impl Sensor {
    fn value(&mut self, stat: Stat, settings: WindowSettings, now_ms: u64) -> f64 {
        const SECOND_MS: f64 = 1e3;
        const HOUR_MS: f64 = 3.6e6;
        const MS_NANOS: f64 = 1e6;
        match stat {
            Stat::Avg => self.windows.average(settings, now_ms),
            Stat::Max => self.windows.max(settings, now_ms),
            Stat::Min => self.windows.min(settings, now_ms),
            Stat::Rate => self.windows.sum_per_ms(settings, now_ms) * SECOND_MS,
            Stat::CountRate => self.windows.count_per_ms(settings, now_ms) * SECOND_MS,
            Stat::CountRatePerHour => self.windows.count_per_ms(settings, now_ms) * HOUR_MS,
            Stat::Ratio => self.windows.sum_per_ms(settings, now_ms) / MS_NANOS,
            Stat::Total => self.sum,
            Stat::CountTotal => self.count as f64,
            Stat::Now => self.now,
        }
    }
}
