//! The broker's side of a fixture: request times from Apache Kafka's own metrics over a stated
//! window.
//!
//! They cover all clients and are rounded to whole milliseconds (reading rule 8); only a client's
//! throttling and bytes are its own.

use serde_json::{Map, Value};

use super::super::snapshot::{BrokerSide, Role};
use super::ReplayError;
use super::field;

const MICROS_PER_MS: f64 = 1000.0;

/// Returns one side for each broker: under `broker`, or any key with that prefix (`brokers`,
/// `broker_2`), is one broker's object, a list of them, or an object of them by broker.
///
/// - `listener`: the listener that the client is connected to, if known: that listener's network
///   threads are counted.
pub fn sides(case: &Value, role: Role, listener: Option<&str>) -> Result<Vec<BrokerSide>, ReplayError> {
    let mut sides = Vec::new();
    let fields = case.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| name.starts_with("broker")) {
        let side = |broker: &Value, key: &str| one(broker, name, id_in(key), role, listener);
        match value {
            Value::Array(brokers) => {
                for broker in brokers {
                    sides.extend(side(broker, "")?);
                }
            }
            Value::Object(brokers) if is_by_broker(brokers) => {
                for (key, broker) in brokers {
                    sides.extend(side(broker, key)?);
                }
            }
            Value::Object(_) => sides.extend(side(value, name)?),
            Value::Null => {}
            other if name == "broker" => {
                let found = field::kind(other);
                return Err(ReplayError::at(
                    name,
                    format!("an object is expected, not {found}"),
                ));
            }
            // Other keys, such as the number of brokers or their version.
            _ => {}
        }
    }
    Ok(sides)
}

/// Returns 2 for `broker-2`.
fn id_in(key: &str) -> Option<i32> {
    key.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}

fn is_by_broker(brokers: &Map<String, Value>) -> bool {
    let is_broker = |value: &Value| {
        value
            .as_object()
            .is_some_and(|broker| broker.contains_key("window_s"))
    };
    !brokers.is_empty() && brokers.values().all(is_broker)
}

fn one(
    broker: &Value,
    path: &str,
    node_id: Option<i32>,
    role: Role,
    listener: Option<&str>,
) -> Result<Option<BrokerSide>, ReplayError> {
    let Value::Object(metrics) = broker else {
        let found = field::kind(broker);
        return Err(ReplayError::at(
            path,
            format!("an object is expected, not {found}"),
        ));
    };
    let (requests, quota): (&[&str], &str) = match role {
        Role::Producer => (&["Produce"], "Produce"),
        Role::Consumer => (&["FetchConsumer", "Fetch"], "Fetch"),
    };
    let kept = requests
        .iter()
        .find(|request| metrics.contains_key(&format!("TotalTimeMs:request.{request}")));
    let Some(request) = kept else { return Ok(None) };
    let histogram = |name: &str, part: &str| -> Result<Option<f64>, ReplayError> {
        let name = format!("{name}:request.{request}");
        let Some(Value::Object(histogram)) = metrics.get(&name) else {
            return Ok(None);
        };
        field::number_in(histogram, &format!("{path}.{name}"), part)
    };
    let micros = |name: &str| Ok::<_, ReplayError>(histogram(name, "avg")?.map(|ms| ms * MICROS_PER_MS));
    let window_seconds = field::number_in(metrics, path, "window_s")?.filter(|seconds| *seconds > 0.0);
    let of_client = |name: &str| {
        let prefix = format!("kafka {quota}:{name}:{{client-id=");
        let own = metrics.iter().find(|(key, _)| key.starts_with(&prefix));
        own.map_or(Ok(None), |(key, value)| {
            field::number(value, &format!("{path}.{key}"))
        })
    };
    let throttle_ms = match of_client("throttle-time")? {
        Some(throttle_ms) => Some(throttle_ms),
        None => histogram("ThrottleTimeMs", "avg")?,
    };
    Ok(Some(BrokerSide {
        node_id: field::number_in(metrics, path, "node_id")?
            .map(|id| id as i32)
            .or(node_id),
        requests_per_second: histogram("TotalTimeMs", "n")?
            .zip(window_seconds)
            .map(|(n, seconds)| n / seconds),
        bytes_per_second: of_client("byte-rate")?,
        request_bytes: histogram("RequestBytes", "avg")?,
        queue_micros: micros("RequestQueueTimeMs")?,
        local_micros: micros("LocalTimeMs")?,
        remote_micros: micros("RemoteTimeMs")?,
        response_queue_micros: micros("ResponseQueueTimeMs")?,
        send_micros: micros("ResponseSendTimeMs")?,
        total_micros: micros("TotalTimeMs")?,
        conversion_micros: micros("MessageConversionsTimeMs")?,
        throttle_ms,
        is_rounded_to_ms: true,
        is_of_all_clients: true,
        handler_idle: share(
            metrics,
            path,
            "kafka.server:KafkaRequestHandlerPool:RequestHandlerAvgIdlePercent",
        )?,
        network_idle: share(
            metrics,
            path,
            "kafka.network:SocketServer:NetworkProcessorAvgIdlePercent",
        )?,
        network_threads: listener.and_then(|listener| network_threads(metrics, listener)),
        ..BrokerSide::default()
    }))
}

/// A gauge, or a meter's rate over the last minute.
fn share(metrics: &Map<String, Value>, path: &str, name: &str) -> Result<Option<f64>, ReplayError> {
    let share = match metrics.get(name) {
        None => None,
        Some(Value::Object(meter)) => field::number_in(meter, &format!("{path}.{name}"), "m1")?,
        Some(value) => field::number(value, &format!("{path}.{name}"))?,
    };
    Ok(share.map(|share| share.clamp(0.0, 1.0)))
}

fn network_threads(metrics: &Map<String, Value>, listener: &str) -> Option<f64> {
    let prefix = format!("kafka socket-server-metrics:io-ratio:{{listener={listener},");
    let count = metrics.keys().filter(|key| key.starts_with(&prefix)).count();
    (count > 0).then_some(count as f64)
}
