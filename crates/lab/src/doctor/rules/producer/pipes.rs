//! The pipes to brokers: which lead partitions, how many requests are allowed in flight on each,
//! how full each is, what each broker reports.

use crate::doctor::snapshot::{BrokerSide, Node, Producer};
use crate::formulas::ceiling;
use crate::model;

use super::super::inference;
use super::reading::{Reading, clean, latency, positive, ratio};

/// Means below this from histograms of whole milliseconds are meaningless (reading rule 8).
pub(crate) const ROUNDED_MS: f64 = 2.0;

/// The pipe to one broker.
#[derive(Clone, Debug)]
pub(crate) struct Pipe<'a> {
    /// `None`: the client does not tell brokers apart.
    pub node_id: Option<i32>,
    /// R_n.
    pub requests_per_second: f64,
    /// L_n.
    pub request_ms: Option<f64>,
    /// S_n.
    pub request_bytes: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub partitions: Option<f64>,
    /// M_eff (F8b).
    pub in_flight: f64,
    /// U_n (F8).
    pub used: Option<f64>,
    /// D_n: the time that the broker reports.
    pub broker: Option<BrokerTime<'a>>,
}

/// D, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct BrokerTime<'a> {
    pub side: &'a BrokerSide,
    /// Reliable enough to blame the broker with.
    pub ms: Option<f64>,
    /// An upper bound, as far as it was measured.
    pub ms_at_most: f64,
}

/// RTT, and how it was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub ms: f64,
    pub origin: &'static str,
    /// Whether it covers the whole path from client to broker; TCP's may end at a proxy.
    pub is_end_to_end: bool,
}

/// Brokers that receive records: not the bootstrap connection (reading rule 4), nor a broker that
/// only answers metadata.
pub(crate) fn leaders(own: &Producer) -> Vec<&Node> {
    let real = || own.nodes.iter().filter(|node| node.node_id >= 0);
    let most = real()
        .filter_map(|node| clean(node.requests_per_second))
        .fold(0.0, f64::max);
    real()
        .filter(|node| match clean(node.requests_per_second) {
            Some(rate) => {
                node.partitions.is_some_and(|count| count > 0.0)
                    || rate >= (0.02 * most).max(0.5_f64.min(most))
            }
            // librdkafka and franz-go send latencies but no rates.
            None => node.request_ms.is_some(),
        })
        .collect()
}

pub(crate) fn pipes<'a>(reading: &Reading<'_>, own: &Producer, brokers: &'a [BrokerSide]) -> Vec<Pipe<'a>> {
    let side_of = |node_id: i32| brokers.iter().find(|side| side.node_id == Some(node_id));
    let own_nodes = leaders(own);
    let mut pipes: Vec<Pipe<'a>> = own_nodes
        .iter()
        .filter_map(|node| {
            let side = side_of(node.node_id).or(if brokers.len() == 1 && own_nodes.len() == 1 {
                brokers.first()
            } else {
                None
            });
            let rate = clean(node.requests_per_second)
                .or_else(|| side.and_then(|side| clean(side.requests_per_second)))
                .or(if own_nodes.len() == 1 {
                    reading.requests_per_second
                } else {
                    None
                })?;
            let bytes = clean(node.bytes_per_second)
                .or_else(|| side.and_then(|side| clean(side.bytes_per_second)))
                .or(if own_nodes.len() == 1 {
                    reading.bytes_per_second
                } else {
                    None
                });
            Some(Pipe {
                node_id: Some(node.node_id),
                requests_per_second: rate,
                request_ms: latency(reading.snapshot, node.request_ms).or(reading.request_ms),
                request_bytes: ratio(bytes, Some(rate))
                    .filter(|bytes| *bytes > 0.0)
                    .or(reading.request_bytes),
                bytes_per_second: bytes,
                partitions: positive(node.partitions),
                in_flight: 1.0,
                used: None,
                broker: side.and_then(broker_time),
            })
        })
        .collect();
    if pipes.is_empty() {
        pipes = unseparated(reading, brokers);
    }
    let count = pipes.len().max(1) as f64;
    let seen = positive(inference::in_flight_seen(own)).map_or(1.0, |most| (most / count).ceil());
    for pipe in &mut pipes {
        pipe.in_flight = in_flight(reading, pipe, seen);
        pipe.used = used(reading, pipe);
    }
    pipes
}

/// Pipes where the client does not tell brokers apart: those that the brokers report, or one for
/// all.
fn unseparated<'a>(reading: &Reading<'_>, brokers: &'a [BrokerSide]) -> Vec<Pipe<'a>> {
    let is_separate = brokers.len() > 1 || reading.requests_per_second.is_none();
    if is_separate {
        return brokers
            .iter()
            .filter_map(|side| {
                let rate = positive(side.requests_per_second)?;
                Some(Pipe {
                    node_id: side.node_id,
                    requests_per_second: rate,
                    request_ms: reading.request_ms,
                    request_bytes: positive(side.request_bytes)
                        .or_else(|| ratio(side.bytes_per_second, Some(rate)))
                        .or(reading.request_bytes),
                    bytes_per_second: clean(side.bytes_per_second),
                    partitions: None,
                    in_flight: 1.0,
                    used: None,
                    broker: broker_time(side),
                })
            })
            .collect();
    }
    let Some(rate) = reading.requests_per_second else {
        return Vec::new();
    };
    vec![Pipe {
        node_id: brokers.first().and_then(|side| side.node_id),
        requests_per_second: rate,
        request_ms: reading.request_ms,
        request_bytes: reading.request_bytes,
        bytes_per_second: reading.bytes_per_second,
        partitions: None,
        in_flight: 1.0,
        used: None,
        broker: brokers.first().and_then(broker_time),
    }]
}

/// M_eff (F8b); a client that leaves its send buffer to the kernel is not held to its size.
fn in_flight(reading: &Reading<'_>, pipe: &Pipe<'_>, seen: f64) -> f64 {
    let allowed = reading.settings.in_flight.value.max(1.0);
    match reading.settings.send_buffer_bytes.zip(pipe.request_bytes) {
        Some((send, request)) => model::pipe::in_flight(allowed, send.value, request, seen),
        None => allowed,
    }
}

/// U_n (F8); none for a client that may have a million requests under way, or where no answer is
/// awaited.
fn used(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<f64> {
    if pipe.in_flight > 10_000.0 || reading.settings.acks.value == 0 {
        return None;
    }
    let most = ceiling::requests_per_second_max(positive(pipe.request_ms)?, pipe.in_flight, 1.0);
    clean(Some(ceiling::in_flight_use(pipe.requests_per_second, most)))
}

fn broker_time(side: &BrokerSide) -> Option<BrokerTime<'_>> {
    let parts = [
        side.queue_micros,
        side.local_micros,
        side.remote_micros,
        side.response_queue_micros,
        side.send_micros,
    ];
    let parts: Vec<f64> = parts.into_iter().filter_map(clean).collect();
    let parts_ms = (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / 1_000.0);
    let total_ms = clean(side.total_micros).map(|micros| micros / 1_000.0);
    let ms = total_ms.or(parts_ms)?;
    let is_blurred = side.is_rounded_to_ms && ms < ROUNDED_MS;
    Some(BrokerTime {
        side,
        ms: (!is_blurred).then_some(ms),
        ms_at_most: if is_blurred { ROUNDED_MS } else { ms },
    })
}

/// P_n: as reported per broker, or derived from topics, or from the number of batches in the
/// largest request.
pub(crate) fn partitions_per_broker(own: &Producer, nodes: &[Pipe<'_>], brokers: f64) -> f64 {
    let said: Vec<f64> = nodes.iter().filter_map(|pipe| pipe.partitions).collect();
    if !said.is_empty() {
        return (said.iter().sum::<f64>() / said.len() as f64).max(1.0);
    }
    let topics: f64 = own
        .topics
        .values()
        .filter_map(|topic| clean(topic.partitions))
        .sum();
    if topics > 0.0 {
        return (topics / brokers).ceil().max(1.0);
    }
    // A request of up to 4 KB may be the telemetry push and not the largest Produce.
    let most = match (positive(own.request_bytes_max), positive(own.batch_bytes_max)) {
        (Some(request), Some(batch)) if request > 4_096.0 => Some((request / batch - 0.1).ceil()),
        _ => None,
    };
    let mean = ratio(own.request_bytes, own.batch_bytes).map(f64::round);
    most.or(mean).unwrap_or(1.0).clamp(1.0, 1e6)
}
