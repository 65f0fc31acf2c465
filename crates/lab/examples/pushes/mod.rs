//! The push of a Java producer from a fixture, as bytes.

use ottla_client::machine::metrics::otlp::{
    Any, AnyValue, Data, Gauge, KeyValue, MetricsData, Number, NumberDataPoint, OtlpMetric, ResourceMetrics,
    ScopeMetrics, Sum,
};
use prost::Message as _;
use serde_json::Value;

pub const INTERVAL_MS: i64 = 10_000;

const FIXTURE: &str = include_str!("../../fixtures/doctor/B1_kontur_I_16k.json");

/// A push for the interval that ends at `end_ms`, in milliseconds since 1970: 108 metrics, one
/// resource for each, 9.7 kB.
pub fn payload(end_ms: i64) -> Vec<u8> {
    payload_of(end_ms, 1.0)
}

/// The same of a producer whose numbers are all `factor` times as large.
pub fn payload_of(end_ms: i64, factor: f64) -> Vec<u8> {
    let fixture: Value = serde_json::from_str(FIXTURE).expect("the fixture is JSON");
    let metrics = fixture["last_push"]["metrics"]
        .as_array()
        .expect("the fixture has a push");
    let end_nanos = end_ms as u64 * 1_000_000;
    let resource_metrics = metrics.iter().map(|metric| {
        let is_sum = metric["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("sum"));
        let name = metric["name"].as_str().expect("a metric has a name");
        let value = metric["v"].as_f64().unwrap_or(f64::NAN);
        let is_own = name.starts_with("org.apache.kafka.producer.");
        let attributes = metric["attrs"].as_object().expect("a metric has attributes");
        let point = NumberDataPoint {
            start_time_unix_nano: if is_sum {
                end_nanos - INTERVAL_MS as u64 * 1_000_000
            } else {
                0
            },
            time_unix_nano: end_nanos,
            value: Some(Number::Double(if is_own { factor * value } else { value })),
            attributes: attributes
                .iter()
                .map(|(key, value)| attribute(key, value))
                .collect(),
        };
        let data = match is_sum {
            true => Data::Sum(Sum {
                data_points: vec![point],
                aggregation_temporality: 1,
                is_monotonic: true,
            }),
            false => Data::Gauge(Gauge {
                data_points: vec![point],
            }),
        };
        ResourceMetrics {
            resource: Some(Default::default()),
            scope_metrics: vec![ScopeMetrics {
                metrics: vec![OtlpMetric {
                    name: name.to_owned(),
                    data: Some(data),
                }],
            }],
        }
    });
    let data = MetricsData {
        resource_metrics: resource_metrics.collect(),
    };
    data.encode_to_vec()
}

fn attribute(key: &str, value: &Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Any::Text(value.as_str().unwrap_or_default().to_owned())),
        }),
    }
}
