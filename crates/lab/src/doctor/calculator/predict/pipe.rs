//! A producer's way to its brokers in numbers: how full it is, and what limits it.

use super::super::Invalid;
use crate::doctor::snapshot::{Library, Network, Origin, Producer, Setting, Snapshot};
use crate::formulas::ceiling::{
    DEFAULT_BUFFER_BYTES, in_flight_effective, in_flight_use, load, request_bytes_max,
    requests_per_connection_max, requests_per_second_max,
};

/// Kafka's defaults, where nothing is known.
const BATCH_BYTES: f64 = 16_384.0;
const IN_FLIGHT: f64 = 5.0;
const SEND_BUFFER_BYTES: f64 = 131_072.0;
const MAX_REQUEST_BYTES: f64 = 1_048_576.0;
const BUFFER_BYTES: f64 = 33_554_432.0;

/// A value with how it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    pub value: f64,
    pub origin: &'static str,
}

/// What a prediction starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipe {
    pub records_per_second: f64,
    pub requests_per_second: f64,
    pub request_bytes: f64,
    pub request_ms: f64,
    pub brokers: f64,
    pub partitions_per_broker: f64,
    pub batch_bytes_mean: Option<f64>,
    pub compression_rate: f64,
    pub queue_ms: Option<f64>,
    pub buffer_wait: Option<f64>,
    pub batch_bytes: Known,
    pub linger_ms: Known,
    pub in_flight: Known,
    pub in_flight_seen: f64,
    pub send_buffer_bytes: Known,
    pub max_request_bytes: Known,
    pub buffer_bytes: Known,
    pub round_trip_ms: Option<f64>,
    pub broker_ms: Option<f64>,
    pub link_bytes_per_second: Option<f64>,
    pub window_bytes: Option<f64>,
    pub threads: Option<f64>,
    pub send_micros: Option<f64>,
    pub offered: Option<f64>,
}

impl Pipe {
    /// - Errors: the rate, the size or the latency of requests is not known.
    pub fn of(snapshot: &Snapshot) -> Result<Pipe, Invalid> {
        let nothing = Producer::default();
        let producer = snapshot.producer.as_ref().unwrap_or(&nothing);
        let of_brokers = |of: fn(&crate::doctor::snapshot::BrokerSide) -> Option<f64>| {
            let own = snapshot.brokers.iter().filter(|side| !side.is_of_all_clients);
            own.filter_map(|side| positive(of(side)))
                .reduce(|one, other| one + other)
        };
        let requests =
            positive(producer.requests_per_second).or_else(|| of_brokers(|side| side.requests_per_second));
        let records =
            positive(producer.records_per_second).or_else(|| of_brokers(|side| side.records_per_second));
        let bytes = positive(producer.bytes_per_second).or_else(|| of_brokers(|side| side.bytes_per_second));
        let size = positive(producer.request_bytes).or_else(|| Some(bytes? / requests?));
        let (round_trip, broker) = (positive(snapshot.network.round_trip_ms), broker_ms(snapshot));
        let latency = positive(producer.request_ms).or_else(|| Some(round_trip? + broker?));
        let need = |value: Option<f64>, what: &str| {
            value.ok_or_else(|| Invalid(format!("the snapshot has no {what}: nothing can be predicted")))
        };
        let settings = &snapshot.settings;
        let brokers = brokers(snapshot, producer);
        Ok(Pipe {
            records_per_second: need(records, "records per second")?,
            requests_per_second: need(requests, "requests per second")?,
            request_bytes: need(size, "size of requests")?,
            request_ms: need(latency, "request latency")?,
            brokers,
            partitions_per_broker: partitions_per_broker(snapshot, producer, brokers),
            batch_bytes_mean: positive(producer.batch_bytes),
            compression_rate: positive(producer.compression_rate).unwrap_or(1.0),
            queue_ms: positive(producer.queue_ms),
            buffer_wait: positive(producer.buffer_wait),
            batch_bytes: known(settings.batch_bytes, batch_bytes_seen(producer), BATCH_BYTES),
            linger_ms: known(settings.linger_ms, None, linger_ms_default(snapshot)),
            in_flight: known(settings.in_flight, None, IN_FLIGHT),
            in_flight_seen: positive(producer.in_flight_max)
                .or(positive(producer.in_flight))
                .unwrap_or(0.0),
            send_buffer_bytes: known(settings.send_buffer_bytes, None, SEND_BUFFER_BYTES),
            max_request_bytes: known(settings.max_request_bytes, None, MAX_REQUEST_BYTES),
            buffer_bytes: known(
                settings.buffer_bytes,
                positive(producer.buffer_bytes),
                BUFFER_BYTES,
            ),
            round_trip_ms: round_trip,
            broker_ms: broker,
            link_bytes_per_second: positive(snapshot.network.bandwidth_bytes_per_second),
            window_bytes: window_bytes(&snapshot.network),
            threads: positive(snapshot.application.threads),
            send_micros: positive(snapshot.application.send_micros),
            offered: positive(snapshot.application.offered_records_per_second),
        })
    }

    /// F8b: a client starts a request when the one before is written; never below what was seen.
    pub fn in_flight_effective(&self) -> f64 {
        let by_bytes = in_flight_effective(self.in_flight.value, DEFAULT_BUFFER_BYTES, self.request_bytes);
        by_bytes
            .max(self.in_flight_seen.min(self.in_flight.value))
            .max(1.0)
    }

    pub fn requests_per_second_max(&self) -> f64 {
        requests_per_second_max(self.request_ms, self.in_flight_effective(), self.brokers)
    }

    /// U.
    pub fn in_flight_use(&self) -> f64 {
        in_flight_use(self.requests_per_second, self.requests_per_second_max())
    }

    /// S_max of F9.
    pub fn request_bytes_max(&self) -> f64 {
        request_bytes_max(
            self.max_request_bytes.value,
            self.partitions_per_broker,
            self.batch_bytes.value,
        )
        .max(self.request_bytes.min(self.max_request_bytes.value))
    }

    /// Z.
    pub fn load(&self) -> f64 {
        load(self.in_flight_use(), self.request_bytes, self.request_bytes_max())
    }

    /// F18, by batches where they are known and by requests otherwise.
    pub fn fill_share(&self) -> f64 {
        match self.batch_bytes_mean {
            Some(mean) => mean / self.batch_bytes.value,
            None => self.request_bytes / self.partitions_per_broker / self.batch_bytes.value,
        }
    }

    /// Batches wait for longer than linger.ms asks for, or senders for memory (S3).
    pub fn has_backlog(&self) -> bool {
        let waits = self
            .queue_ms
            .is_some_and(|queue| queue > 3.0 * self.linger_ms.value.max(2.0));
        waits || self.buffer_wait.is_some_and(|wait| wait >= 0.05)
    }

    pub fn record_bytes(&self) -> f64 {
        self.request_bytes * self.requests_per_second / self.records_per_second
    }

    pub fn window(&self) -> f64 {
        self.window_bytes.unwrap_or(2.0 * self.send_buffer_bytes.value)
    }

    /// Records per second that the link, the window, the broker's serial service and the sending threads allow, and their names.
    pub fn ceilings(&self) -> Vec<(f64, String)> {
        let record = self.record_bytes();
        let mut ceilings = vec![(
            self.requests_per_second_max() * self.request_bytes_max() / record,
            format!(
                "requests of {} at most, {} in flight at {} ms (F9)",
                crate::doctor::arithmetic::bytes(self.request_bytes_max()),
                crate::doctor::arithmetic::figure(self.in_flight_effective()),
                crate::doctor::arithmetic::figure(self.request_ms)
            ),
        )];
        if let Some(link) = self.link_bytes_per_second {
            ceilings.push((
                0.92 * link * self.brokers / record,
                String::from("the link's bandwidth (F15)"),
            ));
        }
        if let Some(round_trip) = self.round_trip_ms {
            ceilings.push((
                1_000.0 * self.window() / round_trip * self.brokers / record,
                String::from("the window: send.buffer.bytes over the round trip (F13)"),
            ));
        }
        if let Some(broker) = self.broker_ms {
            let requests = requests_per_connection_max(broker) * self.brokers;
            ceilings.push((
                requests * self.request_bytes_max() / record,
                String::from("the broker, which serves a connection's requests one after another (F14)"),
            ));
        }
        if let (Some(threads), Some(micros)) = (self.threads, self.send_micros_own()) {
            ceilings.push((1e6 * threads / micros, String::from("the sending threads (F6)")));
        }
        ceilings.retain(|ceiling| ceiling.0.is_finite() && ceiling.0 > 0.0);
        ceilings.sort_by(|one, other| one.0.total_cmp(&other.0));
        ceilings
    }

    /// W without waiting for memory (F6).
    pub fn send_micros_own(&self) -> Option<f64> {
        let own = self.send_micros? - 1e6 * self.buffer_wait.unwrap_or(0.0) / self.records_per_second;
        Some(own).filter(|micros| *micros > 0.0)
    }
}

pub fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
}

fn known(setting: Option<Setting<f64>>, seen: Option<f64>, default: f64) -> Known {
    match (
        setting.filter(|setting| setting.value.is_finite() && setting.value >= 0.0),
        seen,
    ) {
        (Some(setting), Some(seen)) if setting.origin == Origin::Default => Known {
            value: seen,
            origin: "inferred",
        },
        (Some(setting), _) => Known {
            value: setting.value,
            origin: crate::doctor::rules::words::origin(setting.origin),
        },
        (None, Some(seen)) => Known {
            value: seen,
            origin: "inferred",
        },
        (None, None) => Known {
            value: default,
            origin: "default",
        },
    }
}

/// F18: the largest batch that was seen, rounded up to the next power of two; a batch of one large record says nothing.
fn batch_bytes_seen(producer: &Producer) -> Option<f64> {
    let largest = positive(producer.batch_bytes_max)?;
    (largest < 64.0 * BATCH_BYTES * 16.0).then(|| 2_f64.powf(largest.log2().ceil()))
}

/// 5 ms since Kafka 4.0, none before.
fn linger_ms_default(snapshot: &Snapshot) -> f64 {
    let version = snapshot.client.software_version.as_deref().unwrap_or("4");
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(4);
    match snapshot.client.library {
        Library::Java if major < 4 => 0.0,
        Library::FranzGo => 10.0,
        _ => 5.0,
    }
}

fn brokers(snapshot: &Snapshot, producer: &Producer) -> f64 {
    let nodes = producer
        .nodes
        .iter()
        .filter(|node| node.node_id >= 0 && positive(node.requests_per_second).is_some());
    let sides = snapshot
        .brokers
        .iter()
        .filter(|side| positive(side.requests_per_second).is_some());
    (nodes.count().max(sides.count()).max(1)) as f64
}

fn partitions_per_broker(snapshot: &Snapshot, producer: &Producer, brokers: f64) -> f64 {
    if snapshot.client.library == Library::Librdkafka {
        // One partition in a request.
        return 1.0;
    }
    let of_nodes = producer
        .nodes
        .iter()
        .filter_map(|node| positive(node.partitions))
        .reduce(f64::max);
    let of_topics = producer
        .topics
        .values()
        .map(|topic| positive(topic.partitions))
        .sum::<Option<f64>>();
    of_nodes
        .or(of_topics
            .filter(|count| *count > 0.0)
            .map(|count| count / brokers))
        .or_else(|| Some((producer.request_bytes? / producer.batch_bytes?).round()))
        .filter(|count| count.is_finite())
        .map_or(1.0, |count| count.max(1.0))
}

fn broker_ms(snapshot: &Snapshot) -> Option<f64> {
    let times = snapshot.brokers.iter().filter_map(|side| {
        let parts = crate::doctor::rules::broker::parts::Parts::of(side).map(|parts| parts.total_ms());
        let total = || {
            positive(side.total_micros)
                .map(|micros| micros / 1_000.0)
                .filter(|ms| !side.is_rounded_to_ms || *ms >= 2.0)
        };
        parts.or_else(total)
    });
    times.reduce(f64::max)
}

fn window_bytes(network: &Network) -> Option<f64> {
    positive(network.window_bytes)
}
