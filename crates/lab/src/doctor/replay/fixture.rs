//! Fixtures: one case each, with settings, what the application measured, all client metrics,
//! broker times and pushes.
//!
//! Keys: `name`, `kind` (`perf`: Kafka's producer tool, `bench`: a load generator, `cons`: a
//! consumer), `settings`, `network` (`rtt_ms`, `window`, `bw`), `note`, `app`, `summary`, `errors`,
//! `metrics` (`group:name:{tags}`), `broker`, `pushes_received`, `last_push`, `pushes`. All may be
//! missing. The fixture's expected verdict is not read here.

use serde_json::{Map, Value};

use super::super::snapshot::{Application, Client, Codec, Network, Origin, Role, Setting, Snapshot};
use super::ReplayError;
use super::field::{number_in, object, text};
use super::look::Look;
use super::metric_key::MetricKey;
use super::{broker, print_metrics, pushes, settings};

/// The clients of a fixture.
///
/// - Errors: the text is not a JSON object, holds neither metrics nor pushes nor a broker's view,
///   or has a value of the wrong type.
pub fn read(text: &str) -> Result<Vec<Snapshot>, ReplayError> {
    of_value(&super::parse(text)?)
}

pub(super) fn of_value(case: &Value) -> Result<Vec<Snapshot>, ReplayError> {
    if !case.is_object() {
        let found = super::field::kind(case);
        return Err(ReplayError::new(format!("a case is an object, not {found}")));
    }
    let empty = Map::new();
    let stated = object(case, "settings")?.unwrap_or(&empty);
    let mut snapshots = clients(case, stated)?;
    for snapshot in &mut snapshots {
        if snapshot.client.client_id.is_empty() {
            snapshot.client.client_id = text(case, "name").unwrap_or("client").to_owned();
        }
        snapshot.settings = settings::settings(stated)?;
        if snapshot.settings.topic_compression.is_none() {
            snapshot.settings.topic_compression = noted_topic_codec(text(case, "note").unwrap_or_default());
        }
        snapshot.network = network(case)?;
        let own = snapshot.application;
        snapshot.application = merge(application(case, stated)?, own);
        let listener = case.get("last_push").and_then(|push| text(push, "listener"));
        snapshot.brokers = broker::sides(case, snapshot.client.role, listener)?;
        let nodes = snapshot.producer.iter().flat_map(|producer| &producer.nodes);
        let mut nodes = nodes.map(|node| node.node_id);
        if let ([side], Some(node_id), None) = (&mut snapshot.brokers[..], nodes.next(), nodes.next()) {
            side.node_id = side.node_id.or(Some(node_id));
        }
        let received = case.get("pushes_received").and_then(Value::as_f64);
        snapshot.telemetry.has_subscription |= received.is_some();
        snapshot.telemetry.is_silent = received == Some(0.0);
    }
    Ok(snapshots)
}

fn clients(case: &Value, stated: &Map<String, Value>) -> Result<Vec<Snapshot>, ReplayError> {
    if let Some(metrics) = object(case, "metrics")? {
        return looks(case, stated, metrics);
    }
    let described = [text(case, "note"), text(case, "name")].map(Option::unwrap_or_default);
    let software = described.iter().find_map(|text| named_software(text));
    let software = software.as_ref().map(|(name, version)| (*name, version.as_str()));
    let software = (
        software.map(|(name, _)| name),
        software.map(|(_, version)| version),
    );
    match (case.get("pushes"), case.get("last_push")) {
        (Some(Value::Array(all)), _) if !all.is_empty() => pushes::snapshots(all, software),
        (_, Some(push @ Value::Object(_))) => pushes::snapshots(std::slice::from_ref(push), software),
        _ if !broker::sides(case, Role::Producer, None)?.is_empty()
            || !broker::sides(case, Role::Consumer, None)?.is_empty() =>
        {
            Ok(vec![unseen(case)?])
        }
        _ => Err(ReplayError::new(
            "no case: it has neither \"metrics\" nor \"pushes\" nor \"broker\"; a fixture, the output of --print-metrics or an exported case is expected",
        )),
    }
}

/// A client known only from brokers.
fn unseen(case: &Value) -> Result<Snapshot, ReplayError> {
    let mut snapshot = Snapshot::default();
    let is_producer = !broker::sides(case, Role::Producer, None)?.is_empty();
    if text(case, "kind") == Some("cons") || !is_producer {
        snapshot.client.role = Role::Consumer;
    }
    snapshot.telemetry.pushes = Some(0);
    let window = case
        .get("broker")
        .and_then(|broker| broker.get("window_s")?.as_f64());
    snapshot.seconds = window.unwrap_or(0.0);
    Ok(snapshot)
}

fn looks(
    case: &Value,
    stated: &Map<String, Value>,
    metrics: &Map<String, Value>,
) -> Result<Vec<Snapshot>, ReplayError> {
    let mut by_client: Vec<(Option<String>, Look)> = Vec::new();
    let last_push = case.get("last_push").filter(|push| push.is_object());
    for (name, value) in metrics {
        let Some(key) = MetricKey::parse(name) else {
            continue;
        };
        let place = by_client
            .iter()
            .position(|(client_id, _)| *client_id == key.client_id);
        let place = place.unwrap_or_else(|| {
            by_client.push((key.client_id.clone(), Look::default()));
            by_client.len() - 1
        });
        if key.name == "org.apache.kafka.app.info.version" || key.name.ends_with(".commit.id") {
            by_client[place].1.client.software_version = value.as_str().map(str::to_owned);
            continue;
        }
        let value = super::field::number(value, &format!("metrics.{name}"))?.unwrap_or(f64::NAN);
        by_client[place].1.metrics.push((key, value));
    }
    let age_seconds = age_seconds(case, stated)?;
    let samples_seconds = settings::samples_seconds(stated)?;
    let mut snapshots = Vec::new();
    for (client_id, mut look) in by_client {
        let software_version = look.client.software_version.take();
        look.client = last_push.map(pushes::client).unwrap_or_default();
        look.client.software_version = software_version;
        if let Some(client_id) = client_id {
            look.client.client_id = client_id;
        }
        look.age_seconds = age_seconds;
        look.samples_seconds = samples_seconds;
        let mut snapshot = look.snapshot();
        add_group(&mut snapshot.client, stated, last_push);
        snapshots.push(snapshot);
    }
    Ok(snapshots)
}

fn add_group(client: &mut Client, stated: &Map<String, Value>, last_push: Option<&Value>) {
    let (group_id, member_id) = last_push.map(pushes::group).unwrap_or_default();
    let stated = stated.get("group.id").and_then(Value::as_str).map(str::to_owned);
    client.group_id = group_id.or(stated).or(client.group_id.take());
    client.member_id = member_id.or(client.member_id.take());
}

/// The client's age: stated by its tool, or derived from its metadata (fetched at the start, again
/// after five minutes), or from the load.
fn age_seconds(case: &Value, stated: &Map<String, Value>) -> Result<Option<f64>, ReplayError> {
    let summary = summary(case);
    let own = summary
        .and_then(|summary| summary.seconds)
        .or(case.get("seconds").and_then(Value::as_f64));
    if own.is_some() {
        return Ok(own);
    }
    let metadata_age = case
        .get("metrics")
        .and_then(|metrics| metrics.get("producer-metrics:metadata-age")?.as_f64());
    let empty = Map::new();
    let app = object(case, "app")?.unwrap_or(&empty);
    let ages = [
        metadata_age,
        number_in(app, "app", "measured_s")?,
        number_in(stated, "settings", "bench.secs")?,
    ];
    Ok(ages.into_iter().flatten().reduce(f64::max))
}

fn summary(case: &Value) -> Option<print_metrics::Summary> {
    let lines = case.get("summary")?;
    let lines: Vec<&str> = match lines {
        Value::String(line) => vec![line],
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    lines
        .iter()
        .filter_map(|line| print_metrics::Summary::parse(line))
        .next_back()
}

fn application(case: &Value, stated: &Map<String, Value>) -> Result<Application, ReplayError> {
    let mut facts = settings::load(stated)?;
    if text(case, "kind") == Some("perf") {
        // Kafka's producer tool has one thread.
        facts.threads = facts.threads.or(Some(1.0));
    }
    if let Some(rate) = case.get("throughput").and_then(Value::as_f64) {
        facts.offered_records_per_second = Some(rate).filter(|rate| *rate > 0.0);
    }
    let empty = Map::new();
    let app = object(case, "app")?.unwrap_or(&empty);
    let positive =
        |name: &str| Ok::<_, ReplayError>(number_in(app, "app", name)?.filter(|value| *value > 0.0));
    facts.threads = positive("threads")?.or(facts.threads);
    facts.send_micros = positive("send_call_avg_us")?;
    // Nothing was acknowledged: the zeros beside it are not measured times.
    let has_answers = number_in(app, "app", "acked")?.is_none_or(|acked| acked > 0.0);
    facts.callback_micros = positive("callback_avg_us")?.filter(|_| has_answers);
    facts.acknowledged_ms = positive("ack_latency_avg_ms")?.filter(|_| has_answers);
    facts.acknowledged_deviation_ms = positive("ack_latency_stddev_ms")?;
    facts.acknowledged_ms = facts
        .acknowledged_ms
        .or(summary(case).and_then(|summary| summary.latency_ms));
    if let Some(errors) = object(case, "errors")? {
        let count = |words: &[&str]| -> Result<Option<f64>, ReplayError> {
            let mut sum = None;
            for (message, _) in errors
                .iter()
                .filter(|(message, _)| words.iter().any(|word| message.contains(word)))
            {
                sum = Some(sum.unwrap_or(0.0) + number_in(errors, "errors", message)?.unwrap_or(0.0));
            }
            Ok(sum)
        };
        facts.buffer_errors = count(&["BufferExhausted", "Failed to allocate"])?;
        facts.expired_records = count(&["Expiring ", "Expired", "since batch creation"])?;
    }
    Ok(facts)
}

/// Stated values, completed by the client's metrics.
fn merge(stated: Application, own: Application) -> Application {
    Application {
        threads: stated.threads.or(own.threads),
        send_micros: stated.send_micros.or(own.send_micros),
        callback_micros: stated.callback_micros.or(own.callback_micros),
        ..stated
    }
}

/// The case ran through a relay in front of the broker: the relay's settings are those of the
/// network.
fn network(case: &Value) -> Result<Network, ReplayError> {
    let Some(network) = object(case, "network")? else {
        return Ok(Network::default());
    };
    let positive =
        |name: &str| Ok::<_, ReplayError>(number_in(network, "network", name)?.filter(|value| *value > 0.0));
    Ok(Network {
        round_trip_ms: positive("rtt_ms")?,
        bandwidth_bytes_per_second: positive("bw")?,
        window_bytes: positive("window")?,
    })
}

/// Finds `topic compression.type=gzip` in the note: the producer's settings have no field for it.
fn noted_topic_codec(note: &str) -> Option<Setting<Codec>> {
    let after = note.split("topic compression.type=").nth(1)?;
    let word = after.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let value = settings::codec_named(word)?;
    Some(Setting {
        value,
        origin: Origin::Stated,
    })
}

/// The library that a case's name or note mentions, where pushes do not name one: `librdkafka
/// 2.16.0`, `franz_go_1_21_5`.
fn named_software(text: &str) -> Option<(&'static str, String)> {
    let text = text.to_ascii_lowercase().replace(['_', '-'], " ");
    for (words, name) in [("librdkafka", "librdkafka"), ("franz go", "kgo"), ("kgo", "kgo")] {
        let Some((_, after)) = text.split_once(words) else {
            continue;
        };
        let numbers: Vec<&str> = after
            .split([' ', '.', ',', ';', '/'])
            .skip_while(|word| word.is_empty())
            .take_while(|word| word.parse::<u32>().is_ok())
            .collect();
        return Some((name, numbers.join(".")));
    }
    None
}
