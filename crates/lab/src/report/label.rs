//! How a figure is displayed: its words, unit, digits, and which direction is better.

/// The properties of a name in `Measurement::figures` that a table's reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Such as `latency p99`.
    pub text: &'static str,
    /// Such as `ms`; empty for counts and shares.
    pub unit: &'static str,
    pub better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    /// A property of the load, neither better nor worse.
    Neither,
}

use Better::{Higher, Lower, Neither};

/// In the order of the tables.
const LABELS: [(&str, &str, &str, Better); 38] = [
    ("records_per_second", "throughput", "records/s", Higher),
    ("mib_per_second", "throughput", "MiB/s", Higher),
    ("requests_per_second", "requests", "1/s", Neither),
    ("latency_p50_ms", "latency p50", "ms", Lower),
    ("latency_p95_ms", "latency p95", "ms", Lower),
    ("latency_p99_ms", "latency p99", "ms", Lower),
    ("latency_p99_9_ms", "latency p99.9", "ms", Lower),
    ("latency_max_ms", "latency max", "ms", Lower),
    ("service_p50_ms", "service time p50", "ms", Lower),
    ("service_p95_ms", "service time p95", "ms", Lower),
    ("service_p99_ms", "service time p99", "ms", Lower),
    ("service_p99_9_ms", "service time p99.9", "ms", Lower),
    ("service_max_ms", "service time max", "ms", Lower),
    ("end_to_end_p50_ms", "end to end p50", "ms", Lower),
    ("end_to_end_p95_ms", "end to end p95", "ms", Lower),
    ("end_to_end_p99_ms", "end to end p99", "ms", Lower),
    ("end_to_end_p99_9_ms", "end to end p99.9", "ms", Lower),
    ("end_to_end_max_ms", "end to end max", "ms", Lower),
    ("sender_latency_ms", "append to answer, mean", "ms", Lower),
    ("send_micros", "time in send(), mean", "µs", Lower),
    ("queue_ms", "record queue time, mean", "ms", Neither),
    ("request_latency_ms", "request latency, mean", "ms", Lower),
    ("batch_bytes", "batch size, mean", "bytes", Neither),
    ("request_bytes", "request size, mean", "bytes", Neither),
    ("records_per_request", "records per request", "", Neither),
    ("compression_rate", "compression rate", "", Neither),
    ("in_flight_use", "in-flight use", "", Neither),
    ("received_per_second", "received", "records/s", Higher),
    ("answered_per_second", "bare requests answered", "1/s", Higher),
    ("answer_p99_ms", "answer to a bare request p99", "ms", Lower),
    (
        "broker_read_mib_per_second",
        "broker's reads from the disk",
        "MiB/s",
        Neither,
    ),
    (
        "cpu_seconds_per_million",
        "generator CPU per million records",
        "s",
        Lower,
    ),
    (
        "broker_cpu_seconds_per_million",
        "broker CPU per million records",
        "s",
        Lower,
    ),
    ("failed", "not acknowledged", "records", Lower),
    ("lost", "lost", "records", Lower),
    ("duplicated", "duplicated", "records", Lower),
    ("disordered", "out of order", "records", Lower),
    ("errors", "errors", "", Lower),
];

/// Returns `None` for an unknown name, which is then shown unchanged.
pub fn of(figure: &str) -> Option<Label> {
    let (_, text, unit, better) = LABELS.iter().find(|(name, ..)| *name == figure)?;
    Some(Label {
        text,
        unit,
        better: *better,
    })
}

/// The position of a figure in tables; unknown ones come last.
pub fn order(figure: &str) -> usize {
    LABELS
        .iter()
        .position(|(name, ..)| *name == figure)
        .unwrap_or(LABELS.len())
}

/// Returns `latency p99, ms`.
pub fn title(figure: &str) -> String {
    match of(figure) {
        Some(label) if label.unit.is_empty() => label.text.to_owned(),
        Some(label) => format!("{}, {}", label.text, label.unit),
        None => figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_titles_and_unknown_ones_stay_unchanged() {
        assert_eq!(title("latency_p99_ms"), "latency p99, ms");
        assert_eq!(title("lost"), "lost, records");
        assert_eq!(title("in_flight_use"), "in-flight use");
        assert_eq!(title("odd"), "odd");
        assert!(order("records_per_second") < order("errors") && order("errors") < order("odd"));
    }
}
