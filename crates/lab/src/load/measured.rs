//! Clients' own metrics over the measured part: the growth of totals, and averages over just that
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::config::Config;
use ottla_client::metrics::ClientMetrics;
use ottla_client::metrics::{Metric, MetricKind};

const WINDOWS_MAX: u64 = 60;

/// Returns the settings, with metric windows that together span the measured part, unless the
/// settings override them.
pub fn config(settings: &BTreeMap<String, String>, duration: Duration) -> Config {
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1_000);
    let window_ms = (duration_ms / WINDOWS_MAX).max(500);
    let mut config = Config::new()
        .set("metrics.sample.window.ms", window_ms)
        .set("metrics.num.samples", duration_ms.div_ceil(window_ms).max(2));
    for (key, value) in settings {
        config = config.set(key, value);
    }
    config
}

/// The metrics of one client at one time, by Kafka's names; only those tagged with nothing but the
/// client.
pub type Snapshot = BTreeMap<&'static str, (MetricKind, f64)>;

pub fn snapshot(metrics: &ClientMetrics) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for metric in metrics.snapshot() {
        if metric.tags.len() == 1
            && let Some(number) = Metric::number(&metric)
        {
            // Where two groups share a name, the client's own group comes first.
            snapshot.entry(metric.name).or_insert((metric.kind, number));
        }
    }
    snapshot
}

/// Combines all clients: the sum of totals' growth, the largest maximum, the mean of everything
/// else.
///
/// - Shape: `before` and `after` are of the same clients in the same order; `before` may be
///   missing.
pub fn combine(before: &[Snapshot], after: &[Snapshot]) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<&'static str, (MetricKind, Vec<f64>)> = BTreeMap::new();
    for (index, snapshot) in after.iter().enumerate() {
        for (name, (kind, value)) in snapshot {
            let earlier = before.get(index).and_then(|before| before.get(name));
            let value = match (kind, earlier) {
                (MetricKind::Sum, Some((_, earlier))) => value - earlier,
                _ => *value,
            };
            let (_, known) = values.entry(name).or_insert((*kind, Vec::new()));
            if value.is_finite() {
                known.push(value);
            }
        }
    }
    let known = values.into_iter().filter(|(_, (_, values))| !values.is_empty());
    known
        .map(|(name, (kind, values))| (name.to_owned(), over_clients(name, kind, &values)))
        .collect()
}

fn over_clients(name: &str, kind: MetricKind, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    match kind {
        MetricKind::Sum => sum,
        MetricKind::Gauge if name.ends_with("-max") => values.iter().copied().fold(f64::MIN, f64::max),
        MetricKind::Gauge => sum / values.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_grow_averages_do_not_add_up() {
        let client = |total: f64, average: f64, longest: f64| {
            Snapshot::from([
                ("request-total", (MetricKind::Sum, total)),
                ("request-latency-avg", (MetricKind::Gauge, average)),
                ("request-latency-max", (MetricKind::Gauge, longest)),
            ])
        };
        let before = [client(100.0, 1.0, 50.0), client(0.0, 1.0, 2.0)];
        let after = [client(150.0, 4.0, 5.0), client(20.0, f64::NAN, 9.0)];
        let combined = combine(&before, &after);
        assert_eq!(combined["request-total"], 70.0);
        assert_eq!(combined["request-latency-avg"], 4.0);
        assert_eq!(combined["request-latency-max"], 9.0);
        assert_eq!(combine(&[], &after)["request-total"], 170.0);
    }

    #[test]
    fn user_settings_are_not_overridden() {
        let settings = BTreeMap::from([(String::from("metrics.num.samples"), String::from("3"))]);
        let config = config(&settings, Duration::from_secs(60));
        assert_eq!(config.get("metrics.num.samples"), Some("3"));
        assert_eq!(config.get("metrics.sample.window.ms"), Some("1000"));
    }
}
