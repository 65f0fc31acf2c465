//! Builds one telemetry push: the metrics that the broker wants, their changes since the last push,
//! within its size limit.

use std::collections::HashMap;
use std::sync::Arc;

use ottla_wire::records::compression::{Codec, Compression, compress};
use prost::Message as _;

use super::otlp::{
    Data, Gauge, KeyValue, MetricsData, Number, NumberDataPoint, OtlpMetric, Resource, ResourceMetrics,
    ScopeMetrics, Sum, Temporality,
};
use super::pushed_name::pushed_name;
use super::sensor::{Metric, MetricKind, Tags};
use crate::time::Timestamp;

/// The contents of a GetTelemetrySubscriptions response.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    pub id: i32,
    pub codec: Codec,
    pub interval_ms: u64,
    /// Limit of the payload as sent, compressed.
    pub bytes_max: usize,
    pub is_delta: bool,
    pub selector: Selector,
}

/// Which metrics are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    None,
    All,
    /// Prefixes of pushed names; an empty one matches all.
    Prefixes(Vec<String>),
}

impl Selector {
    /// A single `*` means all to Java and librdkafka, a single empty prefix to every client.
    pub fn new(requested: &[&str]) -> Selector {
        match requested {
            [] => Selector::None,
            ["*"] => Selector::All,
            prefixes => Selector::Prefixes(prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()),
        }
    }

    pub fn wants(&self, name: &str) -> bool {
        match self {
            Selector::None => false,
            Selector::All => true,
            Selector::Prefixes(prefixes) => prefixes.iter().any(|prefix| name.starts_with(prefix)),
        }
    }
}

/// The pushed value of every sum, and its time: the next delta starts there.
#[derive(Debug, Default)]
pub struct Pushed {
    sums: HashMap<SumKey, (f64, Timestamp)>,
}

type SumKey = (&'static str, &'static str, Tags);

/// A payload, and what must be remembered once it has arrived.
#[derive(Debug)]
pub struct Payload {
    pub bytes: Vec<u8>,
    pub metric_count: usize,
    /// Metrics that were wanted and did not fit.
    pub left_out: usize,
    sums: Vec<(SumKey, f64)>,
    taken_at: Timestamp,
}

impl Pushed {
    /// The payload has arrived: the next deltas count from it.
    pub fn remember(&mut self, payload: Payload) {
        for (key, value) in payload.sums {
            self.sums.insert(key, (value, payload.taken_at));
        }
    }

    /// All wanted metrics; if they exceed `bytes_max`, the finest grained are left out first:
    /// partitions, topics, nodes. Nothing is lost: the delta of a metric that is left out continues
    /// to grow.
    pub fn payload(
        &self,
        metrics: &[Metric],
        labels: &[(&'static str, Arc<str>)],
        subscription: &Subscription,
        now: Timestamp,
        started_at: Timestamp,
    ) -> Payload {
        let mut wanted: Vec<(&Metric, String, f64)> = metrics
            .iter()
            .filter_map(|metric| {
                // NaN means that there was no sample; a missing metric means the same.
                let value = metric.number().filter(|value| value.is_finite())?;
                let name = pushed_name(metric.group, metric.name);
                subscription
                    .selector
                    .wants(&name)
                    .then_some((metric, name, value))
            })
            .collect();
        wanted.sort_by_key(|(metric, _, _)| metric.tags.len());
        let encode = |count: usize| {
            let data = self.data(&wanted[..count], labels, subscription, now, started_at);
            let mut bytes = Vec::new();
            compress(
                Compression::from(subscription.codec),
                &data.encode_to_vec(),
                &mut bytes,
            );
            bytes
        };
        let (count, bytes) = longest_fitting(wanted.len(), subscription.bytes_max, encode);
        let sums = wanted[..count]
            .iter()
            .filter(|(metric, _, _)| metric.kind == MetricKind::Sum)
            .map(|(metric, _, value)| (key(metric), *value))
            .collect();
        Payload {
            bytes,
            metric_count: count,
            left_out: wanted.len() - count,
            sums,
            taken_at: now,
        }
    }

    fn data(
        &self,
        metrics: &[(&Metric, String, f64)],
        labels: &[(&'static str, Arc<str>)],
        subscription: &Subscription,
        now: Timestamp,
        started_at: Timestamp,
    ) -> MetricsData {
        let metrics = metrics.iter().map(|(metric, name, value)| {
            let data = match metric.kind {
                MetricKind::Gauge => Data::Gauge(Gauge {
                    data_points: vec![point(metric, *value, None, now)],
                }),
                MetricKind::Sum => {
                    let before = self.sums.get(&key(metric)).filter(|_| subscription.is_delta);
                    let (before, start) = before.copied().unwrap_or((0.0, started_at));
                    Data::Sum(Sum {
                        data_points: vec![point(metric, value - before, Some(start), now)],
                        aggregation_temporality: match subscription.is_delta {
                            true => Temporality::Delta.into(),
                            false => Temporality::Cumulative.into(),
                        },
                        is_monotonic: true,
                    })
                }
            };
            OtlpMetric {
                name: name.clone(),
                data: Some(data),
            }
        });
        let attributes = labels.iter().map(|(key, value)| KeyValue::new(*key, value));
        MetricsData {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource {
                    attributes: attributes.collect(),
                }),
                scope_metrics: vec![ScopeMetrics {
                    metrics: metrics.collect(),
                }],
            }],
        }
    }
}

fn key(metric: &Metric) -> SumKey {
    (metric.group, metric.name, metric.tags.clone())
}

fn point(metric: &Metric, value: f64, start: Option<Timestamp>, now: Timestamp) -> NumberDataPoint {
    // The broker knows the client id from the request's header.
    let tags = metric.tags.iter().filter(|(key, _)| *key != "client-id");
    NumberDataPoint {
        start_time_unix_nano: start.map_or(0, unix_nanos),
        time_unix_nano: unix_nanos(now),
        value: Some(Number::Double(value)),
        attributes: tags
            .map(|(key, value)| KeyValue::new(key.replace('-', "_"), value))
            .collect(),
    }
}

fn unix_nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

/// Approximately the most of `count_max` metrics whose encoding has at most `bytes_max` bytes.
///
/// Every attempt encodes and compresses, on the driver's thread: there are at most `ATTEMPTS` of
/// them, each slightly below the limit estimated from the sizes so far.
fn longest_fitting(
    count_max: usize,
    bytes_max: usize,
    encode: impl Fn(usize) -> Vec<u8>,
) -> (usize, Vec<u8>) {
    const ATTEMPTS: usize = 6;
    const CAUTION: f64 = 0.95;
    let all = encode(count_max);
    if all.len() <= bytes_max {
        return (count_max, all);
    }
    let (mut fits, mut best) = (0, Vec::new());
    let (mut too_many, mut too_long) = (count_max, all.len());
    for _ in 0..ATTEMPTS {
        if too_many - fits <= 1 {
            break;
        }
        let room = bytes_max.saturating_sub(best.len()) as f64 / (too_long - best.len()) as f64;
        let step = ((too_many - fits) as f64 * room * CAUTION) as usize;
        let count = (fits + step).clamp(fits + 1, too_many - 1);
        let bytes = encode(count);
        if bytes.len() <= bytes_max {
            (fits, best) = (count, bytes);
        } else {
            (too_many, too_long) = (count, bytes.len());
        }
    }
    (fits, best)
}

#[cfg(test)]
mod tests {
    use ottla_wire::records::compression::decompress;

    use super::*;
    use crate::metrics::registry::tests::busy_client;
    use crate::metrics::sensor::ClientKind;

    fn subscription(codec: Codec, bytes_max: usize, requested: &[&str]) -> Subscription {
        Subscription {
            id: 1,
            codec,
            interval_ms: 1000,
            bytes_max,
            is_delta: true,
            selector: Selector::new(requested),
        }
    }

    fn decode(payload: &Payload, codec: Codec) -> Vec<OtlpMetric> {
        let mut bytes = Vec::new();
        decompress(codec, &payload.bytes, 1 << 20, &mut bytes).unwrap();
        let data = MetricsData::decode(bytes.as_slice()).unwrap();
        data.resource_metrics
            .into_iter()
            .flat_map(|resource| resource.scope_metrics)
            .flat_map(|scope| scope.metrics)
            .collect()
    }

    fn sum_of(metrics: &[OtlpMetric], name: &str) -> Sum {
        let data = metrics
            .iter()
            .find(|metric| metric.name == name)
            .unwrap()
            .data
            .clone();
        match data.unwrap() {
            Data::Sum(sum) => sum,
            Data::Gauge(_) => panic!("{name} is a gauge"),
        }
    }

    const START: Timestamp = Timestamp(1000);
    const SENT: &str = "org.apache.kafka.producer.record.send.total";

    #[test]
    fn every_accepted_codec_carries_the_same_metrics() {
        let (client, _) = busy_client(ClientKind::Producer);
        let metrics = client.snapshot();
        let mut names = Vec::new();
        for codec in Codec::ALL {
            let subscription = subscription(codec, usize::MAX, &["*"]);
            let payload = Pushed::default().payload(&metrics, &[], &subscription, Timestamp(2000), START);
            let decoded = decode(&payload, codec);
            assert_eq!(decoded.len(), payload.metric_count);
            names.push(decoded.into_iter().map(|metric| metric.name).collect::<Vec<_>>());
        }
        assert!(names.iter().all(|list| *list == names[0] && list.len() > 60));
    }

    #[test]
    fn a_delta_counts_from_the_last_push_that_arrived() {
        let (client, _) = busy_client(ClientKind::Producer);
        let subscription = subscription(Codec::None, usize::MAX, &[SENT]);
        let mut pushed = Pushed::default();
        let mut push = |at: i64, records: u32, arrives: bool| {
            client.producer().produce_sent(records);
            let payload = pushed.payload(&client.snapshot(), &[], &subscription, Timestamp(at), START);
            let sum = sum_of(&decode(&payload, Codec::None), SENT);
            if arrives {
                pushed.remember(payload);
            }
            let point = sum.data_points[0].clone();
            assert_eq!(
                (sum.aggregation_temporality, sum.is_monotonic),
                (Temporality::Delta as i32, true)
            );
            (
                point.value.unwrap(),
                point.start_time_unix_nano / 1_000_000,
                point.time_unix_nano / 1_000_000,
            )
        };
        assert_eq!(push(2000, 10, true), (Number::Double(10.0), 1000, 2000));
        assert_eq!(push(3000, 5, false), (Number::Double(5.0), 2000, 3000));
        assert_eq!(push(4000, 1, true), (Number::Double(6.0), 2000, 4000));
        assert_eq!(push(5000, 0, true), (Number::Double(0.0), 4000, 5000));
    }

    #[test]
    fn metrics_that_do_not_fit_are_left_out_finest_first_and_counted() {
        let (client, _) = busy_client(ClientKind::Producer);
        let metrics = client.snapshot();
        let all = Pushed::default().payload(
            &metrics,
            &[],
            &subscription(Codec::Zstd, usize::MAX, &[""]),
            START,
            START,
        );
        let everything = decode(&all, Codec::Zstd);
        for bytes_max in [0, 1, 30, 100, 700, all.bytes.len() - 1, all.bytes.len()] {
            let subscription = subscription(Codec::Zstd, bytes_max, &[""]);
            let payload = Pushed::default().payload(&metrics, &[], &subscription, START, START);
            assert!(
                payload.bytes.len() <= bytes_max,
                "{} of {bytes_max}",
                payload.bytes.len()
            );
            assert_eq!(payload.metric_count + payload.left_out, all.metric_count);
            assert_eq!(payload.left_out == 0, bytes_max == all.bytes.len());
            if !payload.bytes.is_empty() {
                let decoded = decode(&payload, Codec::Zstd);
                assert_eq!(decoded, everything[..payload.metric_count]);
            }
        }
        let last = &everything[everything.len() - 1].name;
        assert!(last.contains("producer.topic."), "{last}");
        assert!(
            everything[0]
                .name
                .starts_with("org.apache.kafka.producer.connection")
        );
    }

    #[test]
    fn few_attempts_come_close_to_the_limit() {
        let attempts = std::cell::Cell::new(0);
        // A head of 500 bytes and 20 bytes for each metric.
        let encode = |count: usize| {
            attempts.set(attempts.get() + 1);
            vec![0; 500 + 20 * count]
        };
        for bytes_max in [600, 5_000, 100_000, 1_000_000, 1_400_499] {
            attempts.set(0);
            let (count, bytes) = longest_fitting(70_000, bytes_max, encode);
            assert_eq!(bytes.len(), 500 + 20 * count);
            assert!(
                bytes.len() <= bytes_max && bytes.len() * 10 >= bytes_max * 8,
                "{count} in {bytes_max}"
            );
            assert!(attempts.get() <= 7, "{} attempts", attempts.get());
        }
        assert_eq!(longest_fitting(70_000, 400, encode), (0, Vec::new()));
    }

    #[test]
    fn prefixes_choose() {
        assert!(!Selector::new(&[]).wants("a"));
        assert!(Selector::new(&["*"]).wants("a"));
        assert!(Selector::new(&[""]).wants("a"));
        assert!(
            !Selector::new(&["*", "b"]).wants("a"),
            "a star among others is a literal prefix"
        );
        let both = Selector::new(&["org.apache.kafka.producer.", "ottla."]);
        assert!(both.wants("ottla.producer.send.time.avg"));
        assert!(!both.wants("org.apache.kafka.consumer.fetch"));
    }

    #[test]
    fn a_missing_sample_is_not_pushed_as_a_number() {
        let (client, _) = busy_client(ClientKind::Producer);
        let name = "org.apache.kafka.producer.request.latency.avg";
        let subscription = subscription(Codec::None, usize::MAX, &[name]);
        let payload = Pushed::default().payload(&client.snapshot(), &[], &subscription, START, START);
        assert_eq!(payload.metric_count, 0);
        client.producer().produce_answered(1, 2_000_000, 0);
        let payload = Pushed::default().payload(&client.snapshot(), &[], &subscription, START, START);
        assert_eq!(payload.metric_count, 1);
    }
}
