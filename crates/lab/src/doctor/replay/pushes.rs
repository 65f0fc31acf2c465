//! The pushes of a fixture: a receiver's record of each payload.

use serde_json::{Map, Value};

use super::super::adapters::Reading;
use super::super::history::{Instance, PushedFrom, summary};
use super::super::otlp::{DataPoint, Kind, Labels, NodeLabel, Source};
use super::super::snapshot::{Client, Snapshot};
use super::ReplayError;
use super::field::{number, text};

const NANOS_PER_SECOND: f64 = 1e9;
const NANOS_PER_MS: f64 = 1e6;

/// Returns one snapshot for each client instance among the pushes, as a collector would have seen
/// it after the last of them.
///
/// - `software`: name and version where the pushes do not give them.
pub fn snapshots(
    pushes: &[Value],
    software: (Option<&str>, Option<&str>),
) -> Result<Vec<Snapshot>, ReplayError> {
    let mut instances: Vec<Instance> = Vec::new();
    for (index, push) in pushes.iter().enumerate() {
        let path = format!("pushes[{index}]");
        let given = text(push, "instance");
        let place = instances
            .iter()
            .position(|known| known.client.instance_id.as_deref() == given);
        let place = place.unwrap_or_else(|| {
            instances.push(Instance::new(client(push)));
            instances.len() - 1
        });
        let from = PushedFrom {
            client_id: text(push, "client_id").unwrap_or_default(),
            instance_id: given.unwrap_or_default(),
            principal: text(push, "principal"),
            address: text(push, "addr"),
            software_name: text(push, "software_name")
                .or(text(push, "softwareName"))
                .or(software.0),
            software_version: text(push, "software_version")
                .or(text(push, "softwareVersion"))
                .or(software.1),
            push_interval_ms: field_number(push, &path, "pushIntervalMs")?,
            is_terminating: push.get("terminating").and_then(Value::as_bool).unwrap_or(false),
            ..PushedFrom::default()
        };
        let points = points(push, &path)?;
        let reading = Reading::of_points(points, (from.software_name, from.software_version));
        let at_ms = field_number(push, &path, "ts")?.unwrap_or(0.0) as i64;
        instances[place].push(&from, &reading, at_ms);
    }
    Ok(instances
        .iter()
        .map(|instance| summary::snapshot(&instance.window()))
        .collect())
}

/// The client that pushed.
pub fn client(push: &Value) -> Client {
    let owned = |name: &str| text(push, name).map(str::to_owned);
    Client {
        client_id: owned("client_id").unwrap_or_default(),
        instance_id: owned("instance"),
        principal: owned("principal"),
        address: owned("addr"),
        ..Client::default()
    }
}

/// The group and the member id that a push's resources name.
pub fn group(push: &Value) -> (Option<String>, Option<String>) {
    let metrics = push
        .get("metrics")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let of = |name: &str| {
        let found = metrics.iter().find_map(|metric| text(metric.get("res")?, name));
        found.map(str::to_owned)
    };
    (of("group_id"), of("group_member_id").or_else(|| of("member_id")))
}

fn points<'a>(push: &'a Value, path: &str) -> Result<Vec<(Source<'a>, DataPoint<'a>)>, ReplayError> {
    let metrics = match push.get("metrics") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(metrics)) => metrics,
        Some(_) => {
            return Err(ReplayError::at(
                format!("{path}.metrics"),
                "a list of metrics is expected",
            ));
        }
    };
    let end_ms = field_number(push, path, "ts")?;
    let seconds = field_number(push, path, "interval_s")?;
    let mut points = Vec::with_capacity(metrics.len());
    for (index, metric) in metrics.iter().enumerate() {
        let path = format!("{path}.metrics[{index}]");
        let Some(name) = text(metric, "name") else {
            continue;
        };
        let kind = kind(text(metric, "type").unwrap_or_default());
        let end_nanos = field_number(metric, &path, "t")?.or(end_ms.map(|ms| ms * NANOS_PER_MS));
        let start_nanos = match field_number(metric, &path, "start")? {
            Some(start) => Some(start),
            None if kind == Kind::Gauge => None,
            None => end_nanos
                .zip(seconds)
                .map(|(end, seconds)| end - seconds * NANOS_PER_SECOND),
        };
        let scope = text(metric, "scope").and_then(|scope| scope.rsplit_once('/'));
        let resource = |name: &str| {
            metric
                .get("res")
                .and_then(|res| text(res, name))
                .unwrap_or_default()
        };
        let source = Source {
            group_id: resource("group_id"),
            member_id: match resource("group_member_id") {
                "" => resource("member_id"),
                member => member,
            },
            scope_name: scope.map_or("", |(name, _)| name),
            scope_version: scope.map_or("", |(_, version)| version),
            ..Source::default()
        };
        let value = field_number(metric, &path, "v")?;
        points.push((
            source,
            DataPoint {
                name,
                labels: metric
                    .get("attrs")
                    .and_then(Value::as_object)
                    .map(labels)
                    .unwrap_or_default(),
                kind,
                start_nanos: start_nanos.unwrap_or(0.0) as u64,
                end_nanos: end_nanos.unwrap_or(0.0) as u64,
                value: value.unwrap_or(f64::NAN),
            },
        ));
    }
    Ok(points)
}

fn field_number(parent: &Value, path: &str, name: &str) -> Result<Option<f64>, ReplayError> {
    match parent.get(name) {
        Some(value) => number(value, &format!("{path}.{name}")),
        None => Ok(None),
    }
}

/// Reads `gauge`, `sum/AGGREGATION_TEMPORALITY_DELTA/mono`.
fn kind(written: &str) -> Kind {
    match written {
        sum if sum.starts_with("sum") && sum.contains("CUMULATIVE") => Kind::Cumulative,
        sum if sum.starts_with("sum") => Kind::Delta,
        _ => Kind::Gauge,
    }
}

fn labels(attributes: &Map<String, Value>) -> Labels<'_> {
    let mut labels = Labels::default();
    for (key, value) in attributes {
        // Values other than strings were recorded with their type.
        let number = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text
                .strip_prefix("int_value:")
                .and_then(|text| text.trim().parse().ok()),
            _ => None,
        };
        let text = value.as_str();
        match (key.as_str(), number, text) {
            ("node.id", Some(id), _) => labels.node = Some(NodeLabel::Dotted(id)),
            ("node_id", Some(id), _) => labels.node = Some(NodeLabel::Number(id)),
            ("node_id", None, Some(text)) => labels.node = Some(NodeLabel::Text(text)),
            ("topic", _, Some(text)) => labels.topic = Some(text),
            ("partition", Some(number), _) => labels.partition = i32::try_from(number).ok(),
            ("partition", None, Some(text)) => labels.partition = text.parse().ok(),
            _ => {}
        }
    }
    labels
}
