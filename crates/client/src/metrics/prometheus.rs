//! A snapshot in Prometheus' text format, under the names that Kafka's JMX exporter gives.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::sensor::{ClientKind, Metric, MetricKind};

/// The `Content-Type` of an HTTP response with the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics without a sample are left out: Prometheus stores NaN as a value, and every rule would
/// have to filter it.
///
/// Names are `kafka_producer_producer_metrics_record_queue_time_avg`, as dashboards for the Java
/// client expect them: the JMX domain, the group, the name. Ottla's own begin with `ottla_`.
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

/// Escapes the three special characters of a label's value.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::registry::tests::{KINDS, busy_client, client};

    #[test]
    fn names_and_labels_are_those_of_the_jmx_exporter() {
        let text = busy_client(ClientKind::Producer).0.prometheus();
        for line in [
            "# TYPE kafka_producer_producer_metrics_batch_size_avg gauge",
            "kafka_producer_producer_metrics_batch_size_avg{client_id=\"c\"} 500",
            "# TYPE kafka_producer_producer_topic_metrics_byte_total counter",
            "kafka_producer_producer_topic_metrics_byte_total{client_id=\"c\",topic=\"t\"} 500",
            "kafka_producer_producer_node_metrics_request_total{client_id=\"c\",node_id=\"node-1\"} 1",
            "ottla_producer_metrics_batch_fill_time_avg{client_id=\"c\"} 1",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn metrics_without_a_sample_are_left_out() {
        let text = client(ClientKind::Producer).0.prometheus();
        assert!(!text.contains("NaN"));
        assert!(!text.contains("request_latency_avg"));
        assert!(!text.contains("app_info_version"), "a text is no sample");
    }

    #[test]
    fn every_line_is_a_type_or_a_sample_of_the_type_before_it() {
        for (_, kind) in KINDS {
            let mut name = String::new();
            for line in busy_client(kind).0.prometheus().lines() {
                match line.strip_prefix("# TYPE ") {
                    Some(rest) => {
                        let (named, kind) = rest.split_once(' ').expect("a name and a kind");
                        assert!(matches!(kind, "gauge" | "counter"));
                        assert!(*named > *name, "{named} after {name}: names come once, in order");
                        name = named.to_owned();
                    }
                    None => {
                        let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
                        assert_eq!(sample.split('{').next(), Some(name.as_str()));
                        assert!(value.parse::<f64>().is_ok(), "{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_label_cannot_break_its_line() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
