//! The output of performance tools: Kafka's `kafka-producer-perf-test --print-metrics` and `ottla
//! perf produce --print-metrics`, and of their consumer counterparts. The summary line gives the
//! length of the run, which turns totals into rates.

use super::super::snapshot::{Application, Client, Snapshot};
use super::ReplayError;
use super::look::Look;
use super::metric_key::MetricKey;

/// A run's summary line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub seconds: Option<f64>,
    /// Mean time from send to answer.
    pub latency_ms: Option<f64>,
    is_producer: bool,
}

impl Summary {
    /// Reads `1500000 records sent, 22912.656952 records/sec (2.19 MB/sec), 7331.50 ms avg latency,
    /// …`, or the consumer's line of ten columns.
    pub fn parse(line: &str) -> Option<Summary> {
        Summary::of_producer(line).or_else(|| Summary::of_consumer(line))
    }

    fn of_producer(line: &str) -> Option<Summary> {
        let (records, rest) = line.trim().split_once(" records sent, ")?;
        // After a warm-up: `100 steady state records sent`.
        let records: f64 = records.split(' ').next()?.parse().ok()?;
        let rate: f64 = rest.split_once(" records/sec")?.0.trim().parse().ok()?;
        let latency = rest.split_once(" ms avg latency").map(|(before, _)| before);
        let latency = latency.and_then(|before| before.rsplit(' ').next()?.parse().ok());
        let seconds = records / rate;
        Some(Summary {
            seconds: Some(seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0),
            latency_ms: latency.filter(|ms: &f64| ms.is_finite()),
            is_producer: true,
        })
    }

    /// start.time, end.time, MB, MB.sec, nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms,
    /// fetch.MB.sec, fetch.nMsg.sec
    fn of_consumer(line: &str) -> Option<Summary> {
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        if columns.len() != 10 {
            return None;
        }
        let number = |index: usize| columns[index].parse::<f64>().ok();
        let seconds = number(4)? / number(5)?;
        Some(Summary {
            seconds: Some(seconds).filter(|seconds| seconds.is_finite() && *seconds > 0.0),
            ..Summary::default()
        })
    }
}

/// Reads the clients whose metrics are printed in the text.
///
/// - Errors: no line of the text is a metric.
pub fn read(text: &str) -> Result<Vec<Snapshot>, ReplayError> {
    let mut looks: Vec<Look> = Vec::new();
    let mut summary = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(found) = Summary::parse(line) {
            // Interval lines come before the total; the steady-state line comes after it and covers
            // less than the client's life.
            if !line.contains("steady state") {
                summary = Some(found);
            }
            continue;
        }
        let Some((key, value)) = metric_line(line) else {
            continue;
        };
        let client_id = key.client_id.clone().unwrap_or_default();
        let place = looks.iter().position(|look| look.client.client_id == client_id);
        let place = place.unwrap_or_else(|| {
            looks.push(Look {
                client: Client {
                    client_id,
                    ..Client::default()
                },
                ..Look::default()
            });
            looks.len() - 1
        });
        let look = &mut looks[place];
        if key.name == "org.apache.kafka.app.info.version" {
            look.client.software_version = Some(value.to_owned());
            continue;
        }
        if key.name == "org.apache.kafka.app.info.commit.id" {
            continue;
        }
        let number = value.parse().map_err(|_| ReplayError {
            line: Some(index + 1),
            field: Some(key.name.clone()),
            message: format!("a number is expected, not {value:?}"),
        })?;
        look.metrics.push((key, number));
    }
    // The count of all metrics does not belong to a client.
    looks.retain(|look| look.metrics.iter().any(|(key, _)| is_of_client(&key.name)));
    if looks.is_empty() {
        return Err(ReplayError::new(
            "no case: not JSON, and no line of it is a metric such as \"producer-metrics:request-total:{client-id=p} : 12.000\"; \
             print them with --print-metrics",
        ));
    }
    let summary = summary.unwrap_or_default();
    Ok(looks
        .into_iter()
        .map(|mut look| {
            look.age_seconds = summary.seconds;
            let mut snapshot = look.snapshot();
            snapshot.application = Application {
                // Both tools send from one thread.
                threads: snapshot
                    .application
                    .threads
                    .or(summary.is_producer.then_some(1.0)),
                acknowledged_ms: summary.latency_ms,
                ..snapshot.application
            };
            snapshot
        })
        .collect())
}

fn is_of_client(name: &str) -> bool {
    ["org.apache.kafka.producer.", "org.apache.kafka.consumer."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Splits `group:name:{tags} : value`; the columns are as wide as the longest name.
fn metric_line(line: &str) -> Option<(MetricKey, &str)> {
    let (key, value) = line.rsplit_once(" : ")?;
    Some((MetricKey::parse(key)?, value.trim()))
}
