//! The measurements of Kafka's own performance tools, as values: one producer, one consumer, one
//! record there and back.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod produce;
pub mod consume;
pub mod e2e;
pub mod stats;

use ottla_client::metrics::ClientMetrics;
use ottla_client::metrics::{Metric, Value};

/// One line of `--print-metrics`.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricLine {
    /// Group, name and tags, in the format of Kafka's tools.
    pub name: String,
    pub value: Value,
}

/// All metrics of a client, by name.
pub fn metric_lines(metrics: &ClientMetrics) -> Vec<MetricLine> {
    let mut lines: Vec<MetricLine> = metrics.snapshot().iter().map(line).collect();
    lines.sort_by(|one, other| one.name.cmp(&other.name));
    lines
}

fn line(metric: &Metric) -> MetricLine {
    let tags: Vec<String> = metric
        .tags
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    MetricLine {
        name: format!("{}:{}:{{{}}}", metric.group, metric.name, tags.join(", ")),
        value: metric.value.clone(),
    }
}
