//! Payloads for tests, encoded as Ottla's own client encodes them.

use ottla_client::machine::metrics::otlp::{
    Any, AnyValue, Data, Gauge, KeyValue, MetricsData, Number, NumberDataPoint, OtlpMetric, Resource,
    ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;

/// One metric: its name (without `org.apache.kafka.` unless it is Ottla's own), its labels, its
/// value.
#[derive(Clone, Debug)]
pub struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
    temporality: i32,
    seconds: Option<f64>,
}

pub fn gauge(name: &str, value: f64) -> Sample {
    Sample {
        name: name.to_owned(),
        labels: Vec::new(),
        value,
        temporality: 0,
        seconds: None,
    }
}

pub fn delta(name: &str, value: f64) -> Sample {
    Sample {
        temporality: 1,
        ..gauge(name, value)
    }
}

pub fn cumulative(name: &str, value: f64) -> Sample {
    Sample {
        temporality: 2,
        ..gauge(name, value)
    }
}

impl Sample {
    pub fn with(mut self, label: &str, value: &str) -> Sample {
        self.labels.push((label.to_owned(), value.to_owned()));
        self
    }

    /// Sets the time over which it was counted, instead of the push's interval.
    pub fn over(mut self, seconds: f64) -> Sample {
        self.seconds = Some(seconds);
        self
    }

    fn encoded(&self, start_ms: f64, end_ms: f64) -> OtlpMetric {
        let start_ms = self.seconds.map_or(start_ms, |seconds| end_ms - seconds * 1000.0);
        let attribute = |(key, value): &(String, String)| KeyValue {
            key: key.clone(),
            value: Some(AnyValue {
                value: Some(Any::Text(value.clone())),
            }),
        };
        let point = NumberDataPoint {
            start_time_unix_nano: if self.temporality == 0 {
                0
            } else {
                (start_ms * 1e6) as u64
            },
            time_unix_nano: (end_ms * 1e6) as u64,
            value: Some(Number::Double(self.value)),
            attributes: self.labels.iter().map(attribute).collect(),
        };
        let domain = if self.name.starts_with("ottla.") {
            ""
        } else {
            "org.apache.kafka."
        };
        OtlpMetric {
            name: format!("{domain}{}", self.name),
            data: Some(match self.temporality {
                0 => Data::Gauge(Gauge {
                    data_points: vec![point],
                }),
                temporality => Data::Sum(Sum {
                    data_points: vec![point],
                    aggregation_temporality: temporality,
                    is_monotonic: true,
                }),
            }),
        }
    }
}

/// A push for the interval, by the client's clock; one resource for each metric, as Java pushes
/// them.
pub fn payload(start_ms: f64, end_ms: f64, resource: &[(&str, &str)], samples: &[Sample]) -> Vec<u8> {
    let attributes = || {
        resource
            .iter()
            .map(|(key, value)| KeyValue::new(*key, value))
            .collect()
    };
    let resource_metrics = samples.iter().map(|sample| ResourceMetrics {
        resource: Some(Resource {
            attributes: attributes(),
        }),
        scope_metrics: vec![ScopeMetrics {
            metrics: vec![sample.encoded(start_ms, end_ms)],
        }],
    });
    let data = MetricsData {
        resource_metrics: resource_metrics.collect(),
    };
    data.encode_to_vec()
}
