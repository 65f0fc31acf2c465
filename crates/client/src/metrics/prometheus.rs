//! A snapshot in Prometheus' text format, under the names that Kafka's JMX exporter gives.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::sensor::{ClientKind, Metric, MetricKind};

/// What an HTTP answer with the text must say in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics without a sample are left out: Prometheus stores NaN as a value, and every rule would have to filter it.
///
/// Names are `kafka_producer_producer_metrics_record_queue_time_avg`, as dashboards for the Java client expect them: the
/// JMX domain, the group, the name. Ottla's own begin with `ottla_`.
pub fn render(kind: ClientKind, metrics: &[Metric]) -> String {
    let mut families: BTreeMap<String, (MetricKind, Vec<(String, f64)>)> = BTreeMap::new();
    for metric in metrics {
        if let Some(value) = metric.number().filter(|value| !value.is_nan()) {
            families
                .entry(name(kind, metric))
                .or_insert_with(|| (metric.kind, Vec::new()))
                .1
                .push((labels(metric), value));
        }
    }
    let mut text = String::new();
    for (name, (kind, points)) in families {
        let kind = match kind {
            MetricKind::Gauge => "gauge",
            MetricKind::Sum => "counter",
        };
        write_line(&mut text, format_args!("# TYPE {name} {kind}"));
        for (labels, value) in points {
            write_line(&mut text, format_args!("{name}{{{labels}}} {value}"));
        }
    }
    text
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes every write");
}

fn name(kind: ClientKind, metric: &Metric) -> String {
    let domain = match kind {
        _ if metric.group.starts_with("ottla-") => "",
        ClientKind::Producer => "kafka_producer_",
        ClientKind::Consumer => "kafka_consumer_",
        ClientKind::Admin => "kafka_admin_client_",
    };
    format!("{domain}{}_{}", metric.group, metric.name).replace('-', "_")
}

fn labels(metric: &Metric) -> String {
    let labels: Vec<String> = metric
        .tags
        .iter()
        .map(|(key, value)| format!("{}=\"{}\"", key.replace('-', "_"), escape(value)))
        .collect();
    labels.join(",")
}

/// The three characters that the format escapes in a label's value.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
