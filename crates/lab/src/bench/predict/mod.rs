//! Predicts a point by the formulas before it is run: with ranges where the sources have them, and
//! the arithmetic.
//!
//! A producer is limited by its lowest ceiling: requests in flight over their latency, a window, a
//! link, threads that wait for answers, or the requested rate. Each is computed, and the lowest one
//! named.

use std::collections::BTreeMap;

use ottla_client::config::{Acks, Config, ProducerConfig};

use crate::formulas::{batching, buffer, ceiling, latency, queueing, wire};
use crate::model::ceilings::{by_broker, by_window};
use crate::model::constants::{FULL, LINK_SHARE};
use crate::model::pipe::{SEND_BUFFER_BYTES, in_flight};
use crate::numbers::number;
use crate::report::{Prediction, Range};
use crate::scenario::model::{LinkSpec, ProducerSpec, Scenario};
use crate::scenario::sweep::ConcretePoint;

/// What was determined about a target before a point is run on it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Brokers that lead partitions.
    pub brokers: u32,
    /// The sum of the link's and the network's own.
    pub round_trip_ms: f64,
    /// Time of a small request, without the round trip; `None`: unknown.
    pub broker_ms_per_request: Option<f64>,
    /// Additional time per 10^6 bytes of a request.
    pub broker_ms_per_mb: f64,
    /// Apache Kafka: the requests of a connection are served one after another.
    pub is_connection_serial: bool,
    /// Records per second of a single sending thread.
    pub calibrated_rate: Option<f64>,
    /// Points of the same scenario that were measured on this target before.
    pub earlier: Vec<Earlier>,
}

/// A measured point.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    pub scenario: Scenario,
    pub figures: BTreeMap<String, f64>,
}

/// With several partitions a request was filled to half of its capacity (formula article, 16
/// partitions).
const FILLED_AT_LEAST: f64 = 1.0 / 2.1;
/// Threads that wait lose a little to wake-ups: 57.3 of 58.1, 79.3 of 82.6 (measured).
const SYNCHRONOUS_AT_LEAST: f64 = 0.9;
/// Linger-bound latencies follow the estimate within 6 % (measured), and a timer is late by up to a
/// millisecond.
const LATENCY_SPREAD: f64 = 0.06;
const TIMER_MS: f64 = 1.0;
/// Attributes, deltas and lengths of a record, and its share of the batch header.
const RECORD_OVERHEAD_BYTES: f64 = 10.0;
const BATCH_OVERHEAD_BYTES: f64 = 61.0;
const MIB: f64 = 1_048_576.0;
/// Above this the latency is determined by the round trip, not by the broker under load.
const FAR_MS: f64 = 5.0;

/// Returns `None` where no formula applies: nothing is produced, or nothing is known about the time
/// of a request.
pub fn predict(point: &ConcretePoint, observed: &Observed) -> Option<Prediction> {
    let scenario = &point.scenario;
    let mut prediction = match scenario.producers.as_slice() {
        [] => return None,
        [group] => Producer::new(scenario, group, observed)?.prediction()?,
        groups => several(groups)?,
    };
    add_queueing(scenario, observed, &mut prediction);
    Some(prediction)
}

/// Several groups share capacity in an unpredictable way: only their rates can be predicted.
fn several(groups: &[ProducerSpec]) -> Option<Prediction> {
    let rates: Vec<f64> = groups.iter().map(|group| group.rate).collect::<Option<_>>()?;
    let mut prediction = Prediction::default();
    let sum: f64 = rates.iter().sum();
    prediction
        .figures
        .insert(String::from("records_per_second"), Range::exactly(sum));
    let terms: Vec<String> = rates.iter().map(|rate| number(*rate)).collect();
    prediction.arithmetic.push(format!(
        "wanted: {} = {} records/s",
        terms.join(" + "),
        number(sum)
    ));
    prediction.limit = Some(String::from("KEEPS_UP"));
    Some(prediction)
}

/// One limit: its range, its name, and how it was computed.
struct Ceiling {
    name: &'static str,
    range: Range,
    arithmetic: String,
}

/// A group of producers with everything that the formulas need.
struct Producer<'a> {
    group: &'a ProducerSpec,
    scenario: &'a Scenario,
    observed: &'a Observed,
    config: ProducerConfig,
    /// The number of connections of all instances to all brokers.
    connections: f64,
    threads: f64,
    in_flight: f64,
    records_per_batch: f64,
    /// Compressed, at the lowest and the highest fill.
    request_bytes: Range,
    records_per_request: Range,
    window_bytes: Range,
    bandwidth: f64,
}

impl<'a> Producer<'a> {
    fn new(scenario: &'a Scenario, group: &'a ProducerSpec, observed: &'a Observed) -> Option<Producer<'a>> {
        let config = group
            .settings
            .iter()
            .fold(
                Config::new().set("bootstrap.servers", "localhost:9092"),
                |config, (key, value)| config.set(key, value),
            )
            .set("client.id", "predicted");
        let config = ProducerConfig::from_config(&config).ok()?;
        let brokers = f64::from(observed.brokers.max(1));
        let is_written = |name: &String| group.topics.is_empty() || group.topics.contains(name);
        let partitions: u32 = (scenario.topics.iter())
            .filter(|topic| is_written(&topic.name))
            .map(|topic| topic.partitions)
            .sum();
        let leading = brokers.min(f64::from(partitions.max(1)));
        let partitions_per_broker = (f64::from(partitions) / leading).max(1.0);
        let rate = compression_rate(group, observed);
        let record_bytes = (f64::from(group.record_bytes) + RECORD_OVERHEAD_BYTES) * rate;
        let records_per_batch = ((config.batch_bytes as f64 - BATCH_OVERHEAD_BYTES) / record_bytes)
            .floor()
            .max(1.0);
        let packet = records_per_batch * record_bytes;
        let limit = config.max_request_bytes as f64;
        let full = wire::request_bytes(packet, partitions_per_broker.floor(), limit);
        let full = (full / packet).floor().max(1.0) * packet;
        let least = (full * FILLED_AT_LEAST).max(packet).min(full);
        let in_request = |bytes: f64| (bytes / record_bytes).floor().max(1.0);
        Some(Producer {
            connections: leading * f64::from(group.clients),
            threads: f64::from(group.clients * group.threads),
            in_flight: config.max_in_flight_requests_per_connection as f64,
            records_per_batch,
            request_bytes: Range {
                low: least,
                high: full,
            },
            records_per_request: Range {
                low: in_request(least),
                high: in_request(full),
            },
            window_bytes: window(scenario.link.as_ref(), &config),
            bandwidth: scenario
                .link
                .as_ref()
                .map(|link| link.bytes_per_second as f64)
                .filter(|bytes| *bytes > 0.0)
                .unwrap_or(f64::INFINITY),
            group,
            scenario,
            observed,
            config,
        })
    }

    fn prediction(&self) -> Option<Prediction> {
        let mut prediction = Prediction::default();
        let by_requests = if self.group.synchronous {
            self.synchronous()
        } else {
            self.by_requests()
        };
        let mut ceilings = self.other_ceilings();
        // Where no answers are awaited, the window plays the part of the round trip.
        let has_window = ceilings.iter().any(|ceiling| ceiling.name == "NETWORK_WINDOW");
        let is_known = by_requests.is_some() || (has_window && !self.waits_for_answers());
        if !is_known && self.group.rate.is_none() {
            // The other ceilings are upper bounds: without a lower one they would promise what is
            // not known.
            return None;
        }
        ceilings.extend(by_requests);
        let lowest = ceilings
            .iter()
            .min_by(|a, b| a.range.high.total_cmp(&b.range.high));
        for ceiling in &ceilings {
            prediction.arithmetic.push(ceiling.arithmetic.clone());
        }
        let records = match (self.group.rate, lowest) {
            (Some(rate), Some(lowest)) if rate > lowest.range.low => Range {
                low: lowest.range.low,
                high: rate.min(lowest.range.high),
            },
            (Some(rate), _) => Range::exactly(rate),
            (None, Some(lowest)) => lowest.range,
            (None, None) => return None,
        };
        let offered = self.group.rate.unwrap_or(f64::INFINITY);
        let limit = lowest.filter(|lowest| offered > lowest.range.low);
        prediction.limit = Some(limit.map_or("KEEPS_UP", |lowest| lowest.name).to_owned());
        if limit.is_none() {
            prediction.arithmetic.push(format!(
                "wanted: {} records/s, below every ceiling",
                number(offered)
            ));
        }
        let mib = f64::from(self.group.record_bytes) / MIB;
        insert(&mut prediction, "records_per_second", records);
        insert(&mut prediction, "mib_per_second", times(records, mib));
        match limit {
            None => self.add_latency(offered, &mut prediction),
            Some(lowest) if lowest.name != "SYNCHRONOUS" => self.add_queue(records, &mut prediction),
            Some(_) => {}
        }
        Some(prediction)
    }

    fn other_ceilings(&self) -> Vec<Ceiling> {
        [
            self.by_serial_broker(),
            self.by_window(),
            self.by_bandwidth(),
            self.by_worker(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The time of a request of this many bytes, excluding the round trip.
    fn broker_ms(&self, request_bytes: f64) -> Option<f64> {
        let observed = self.observed;
        let idle = |bytes: f64| {
            observed
                .broker_ms_per_request
                .map(|fixed| fixed + observed.broker_ms_per_mb * bytes / 1e6)
                .filter(|ms| *ms > 0.0)
        };
        let of_size = idle(request_bytes);
        // "At unchanged latency": under load the earlier point is a better source than a probe of
        // an idle broker.
        let earlier = observed.earlier.last().filter(|_| self.waits_for_answers());
        let under_load = earlier.and_then(|earlier| {
            let latency = earlier.figures.get("request_latency_ms")?;
            let under_load = (latency - observed.round_trip_ms).max(0.0);
            // For requests of another size: scaled by the idle broker's times for both sizes.
            let earlier_size = earlier
                .figures
                .get("request_bytes")
                .and_then(|bytes| idle(*bytes));
            let growth = of_size.zip(earlier_size).map_or(1.0, |(now, then)| now / then);
            Some(under_load * growth)
        });
        if observed.round_trip_ms < FAR_MS {
            under_load.or(of_size)
        } else {
            of_size.or(under_load)
        }
    }

    /// On a far link the broker's unknown time is small compared with the round trip; nearby it is
    /// everything.
    fn request_ms(&self, request_bytes: f64, window_bytes: f64) -> Option<f64> {
        let broker_ms = match self.broker_ms(request_bytes) {
            Some(broker_ms) => broker_ms,
            None if self.observed.round_trip_ms >= FAR_MS => 0.0,
            None => return None,
        };
        let connection = wire::Connection {
            round_trip_ms: self.observed.round_trip_ms,
            window_bytes,
            bandwidth_bytes_per_second: self.bandwidth,
            broker_ms,
            in_flight: self.in_flight,
        };
        Some(wire::request_ms(&connection, request_bytes))
    }

    /// F8, F13: requests in flight over their latency.
    fn by_requests(&self) -> Option<Ceiling> {
        if !self.waits_for_answers() {
            return None;
        }
        let rate = |request_bytes, records, window_bytes, in_flight| {
            let request_ms = self.request_ms(request_bytes, window_bytes)?;
            let requests = ceiling::requests_per_second_max(request_ms, in_flight, self.connections);
            Some((requests * records, request_ms, requests))
        };
        let (bytes, records, window) = (self.request_bytes, self.records_per_request, self.window_bytes);
        let buffer_bytes = self.config.client.send_buffer_bytes;
        let buffer_bytes = buffer_bytes.map_or(SEND_BUFFER_BYTES, |bytes| bytes as f64);
        let effective = in_flight(self.in_flight, buffer_bytes, bytes.low, 0.0);
        let (low, _, _) = rate(bytes.low, records.low, window.low, effective)?;
        let (high, request_ms, requests) = rate(bytes.high, records.high, window.high, self.in_flight)?;
        let round_trip_ms = self.observed.round_trip_ms;
        // A request that does not fit into the window takes the window's number of round trips.
        let round_trips = (bytes.high / window.high).ceil().max(1.0);
        let name = if round_trips > 1.0 && round_trip_ms * round_trips >= 0.5 * request_ms {
            "NETWORK_WINDOW"
        } else if round_trip_ms >= 0.5 * request_ms {
            "NETWORK_RTT"
        } else {
            "SENDER_RATE"
        };
        Some(Ceiling {
            name,
            range: Range {
                low: (FULL * low).min(high),
                high,
            },
            arithmetic: format!(
                "requests in flight (F8, F13): 1000 / {} ms * {} * {} connections = {} requests/s, * {} records = {} records/s",
                number(request_ms),
                number(self.in_flight),
                number(self.connections),
                number(requests),
                number(records.high),
                number(high)
            ),
        })
    }

    /// With acks=0 nothing is ever in flight: requests go as fast as the socket accepts them.
    fn waits_for_answers(&self) -> bool {
        self.config.acks != Acks::None
    }

    /// F14: one request after another. Any broker serves requests that way if no answers are
    /// awaited: there is nothing to overlap.
    fn by_serial_broker(&self) -> Option<Ceiling> {
        let bytes = self.request_bytes.high;
        let is_serial = self.observed.is_connection_serial || !self.waits_for_answers();
        let is_pipelined = is_serial && !self.group.synchronous;
        let broker_ms = self.broker_ms(bytes).filter(|ms| is_pipelined && *ms > 0.0)?;
        let rate = |records| by_broker(broker_ms, self.connections, records);
        let high = rate(self.records_per_request.high);
        Some(Ceiling {
            name: "BROKER",
            range: Range {
                low: FULL * rate(self.records_per_request.low),
                high,
            },
            arithmetic: format!(
                "a connection is served one request at a time (F14): 1000 / {} ms * {} connections * {} records = {} records/s",
                number(broker_ms),
                number(self.connections),
                number(self.records_per_request.high),
                number(high)
            ),
        })
    }

    /// F12, F13: bytes under way.
    fn by_window(&self) -> Option<Ceiling> {
        let window = self.window_bytes;
        if !window.high.is_finite() || self.observed.round_trip_ms <= 0.0 || self.group.synchronous {
            return None;
        }
        let round_trip_ms = self.observed.round_trip_ms;
        let rate = |bytes| by_window(bytes, round_trip_ms, self.connections, self.wire_bytes());
        Some(Ceiling {
            name: "NETWORK_WINDOW",
            range: Range {
                low: FULL * rate(window.low),
                high: rate(window.high),
            },
            arithmetic: format!(
                "window (F12, F13): {} connections * {} to {} bytes / {} ms / {} bytes = {} to {} records/s",
                number(self.connections),
                number(window.low),
                number(window.high),
                number(self.observed.round_trip_ms),
                number(self.wire_bytes()),
                number(rate(window.low)),
                number(rate(window.high))
            ),
        })
    }

    /// F15, for an emulated link, whose bytes per second are already net.
    fn by_bandwidth(&self) -> Option<Ceiling> {
        if !self.bandwidth.is_finite() {
            return None;
        }
        let high = self.bandwidth / self.wire_bytes();
        Some(Ceiling {
            name: "NETWORK_BANDWIDTH",
            range: Range {
                low: LINK_SHARE * high,
                high,
            },
            arithmetic: format!(
                "bandwidth (F15): {} bytes/s / {} bytes = {} records/s",
                number(self.bandwidth),
                number(self.wire_bytes()),
                number(high)
            ),
        })
    }

    /// F6 with the generator's own speed: at least one thread's, at most that of all of them (F22).
    fn by_worker(&self) -> Option<Ceiling> {
        let alone = self.observed.calibrated_rate?;
        let high = alone * self.threads;
        Some(Ceiling {
            name: "WORKER",
            range: Range {
                low: FULL * alone,
                high,
            },
            arithmetic: format!(
                "sending threads (F6, F22): {} records/s of one alone, * {} threads without contention = {} records/s",
                number(alone),
                number(self.threads),
                number(high)
            ),
        })
    }

    /// F28: every thread waits for its answer.
    fn synchronous(&self) -> Option<Ceiling> {
        let request_ms = self.request_ms(self.wire_bytes(), self.window_bytes.high)?;
        let linger_ms = self.config.linger_ms as f64;
        let high = ceiling::synchronous_records_per_second(self.threads, linger_ms, request_ms);
        Some(Ceiling {
            name: "SYNCHRONOUS",
            range: Range {
                low: SYNCHRONOUS_AT_LEAST * high,
                high,
            },
            arithmetic: format!(
                "synchronous (F28): {} threads * 1000 / ({} ms linger + {} ms) = {} records/s",
                number(self.threads),
                number(linger_ms),
                number(request_ms),
                number(high)
            ),
        })
    }

    /// The size of a record on the wire.
    fn wire_bytes(&self) -> f64 {
        self.request_bytes.high / self.records_per_request.high
    }

    /// F5 where nothing queues: a batch waits for its linger, or until it is full.
    fn add_latency(&self, offered: f64, prediction: &mut Prediction) {
        // A sticky partitioner fills one batch of the client at a time; any other fills a batch of
        // every partition.
        let is_sticky = self.group.keys == "none" && self.group.partitioning == "client";
        let partitions: u32 = self.scenario.topics.iter().map(|topic| topic.partitions).sum();
        let shares = f64::from(self.group.clients) * if is_sticky { 1.0 } else { f64::from(partitions) };
        let rate = offered / shares;
        let linger_ms = self.config.linger_ms as f64;
        let fill_ms = 1_000.0 * self.records_per_batch / rate;
        let queue_ms = linger_ms.min(fill_ms);
        let collected = batching::records_per_linger(rate, queue_ms).max(1.0);
        let Some(request_ms) = self.request_ms(collected * self.wire_bytes(), self.window_bytes.high) else {
            return;
        };
        // The record that opens a batch waits the whole time; later records fill it.
        let sender_ms = latency::sender_ms(queue_ms, request_ms, collected - 1.0, rate);
        insert(prediction, "request_latency_ms", around(request_ms));
        insert(prediction, "sender_latency_ms", around(sender_ms));
        prediction.arithmetic.push(format!(
            "sender latency (F5): {} ms in a batch of {} records, + {} ms request = {} ms",
            number(sender_ms - request_ms),
            number(collected),
            number(request_ms),
            number(sender_ms)
        ));
    }

    /// F16, F5: the queue when more is offered than drains.
    fn add_queue(&self, records: Range, prediction: &mut Prediction) {
        let buffer_bytes = self.config.buffer_memory_bytes as f64;
        let queue = |rate: f64| {
            let longest = buffer::queue_ms_max(buffer_bytes, rate * self.wire_bytes());
            let offered = self.group.rate.unwrap_or(f64::INFINITY);
            // A record that leaves at t arrived at t * drained / offered.
            let middle_ms = 1_000.0 * (self.scenario.warmup_seconds + self.scenario.duration_seconds / 2.0);
            longest.min(middle_ms * (1.0 - rate / offered).max(0.0))
        };
        let (low, high) = (queue(records.high), queue(records.low));
        insert(prediction, "queue_ms", Range { low, high });
        prediction.arithmetic.push(format!(
            "queue (F16): at most {} bytes of buffer.memory / {} bytes/s; {} to {} ms in the middle of the run",
            number(buffer_bytes),
            number(records.low * self.wire_bytes()),
            number(low),
            number(high)
        ));
        if let Some(request_ms) = self.request_ms(self.request_bytes.high, self.window_bytes.high) {
            let sender = Range {
                low: latency::sender_ms_low(low, request_ms),
                high: latency::sender_ms_high(high, request_ms),
            };
            insert(prediction, "sender_latency_ms", sender);
        }
    }
}

/// On an emulated link its window counts; on a real one the send buffer, which Linux doubles where
/// allowed.
fn window(link: Option<&LinkSpec>, config: &ProducerConfig) -> Range {
    if let Some(link) = link {
        let bytes = link.window_bytes as f64;
        return Range::exactly(if bytes > 0.0 { bytes } else { f64::INFINITY });
    }
    match config.client.send_buffer_bytes {
        Some(bytes) => Range {
            low: bytes as f64,
            high: 2.0 * bytes as f64,
        },
        None => Range::exactly(f64::INFINITY),
    }
}

/// Returns 1 for data that no codec compresses, and where nothing is known.
fn compression_rate(group: &ProducerSpec, observed: &Observed) -> f64 {
    if group.contents == "random" {
        return 1.0;
    }
    let same = observed.earlier.iter().rev().find(|earlier| {
        let codec = |group: &ProducerSpec| group.settings.get("compression.type").cloned();
        earlier
            .scenario
            .producers
            .first()
            .is_some_and(|other| codec(other) == codec(group))
    });
    let known = same.and_then(|earlier| earlier.figures.get("compression_rate").copied());
    known.filter(|rate| *rate > 0.0).unwrap_or(1.0)
}

/// F24: how much longer than at an earlier point of lower rate, given the broker's maximum.
fn add_queueing(scenario: &Scenario, observed: &Observed, prediction: &mut Prediction) {
    let offered =
        |scenario: &Scenario| -> Option<f64> { scenario.producers.iter().map(|group| group.rate).sum() };
    let figure = |earlier: &Earlier, name: &str| earlier.figures.get(name).copied();
    let capacity = (observed.earlier.iter())
        .filter(|earlier| offered(&earlier.scenario).is_none())
        .filter_map(|earlier| figure(earlier, "records_per_second"))
        .fold(0.0, f64::max);
    let quiet = observed
        .earlier
        .iter()
        .find_map(|earlier| Some((offered(&earlier.scenario)?, earlier)));
    let (Some(rate), Some((quiet_rate, quiet))) = (offered(scenario), quiet) else {
        return;
    };
    if rate >= capacity || quiet_rate >= rate {
        return;
    }
    let growth = queueing::time_factor(rate / capacity) / queueing::time_factor(quiet_rate / capacity);
    prediction.arithmetic.push(format!(
        "queueing (F24): {} of {} records/s are {} of what it carries; 1 / (1 - {}) is {} times that at {} records/s",
        number(rate),
        number(capacity),
        number(rate / capacity),
        number(rate / capacity),
        number(growth),
        number(quiet_rate)
    ));
    for name in ["latency_p50_ms", "latency_p99_ms", "end_to_end_p99_ms"] {
        if let Some(low) = figure(quiet, name) {
            // A single server is the worst case: a broker with several processors queues less.
            let high = low * growth;
            insert(prediction, name, Range { low, high });
        }
    }
}

fn insert(prediction: &mut Prediction, name: &str, range: Range) {
    prediction.figures.insert(name.to_owned(), range);
}

fn times(range: Range, factor: f64) -> Range {
    Range {
        low: range.low * factor,
        high: range.high * factor,
    }
}

fn around(ms: f64) -> Range {
    Range {
        low: (1.0 - LATENCY_SPREAD) * ms,
        high: (1.0 + LATENCY_SPREAD) * ms + TIMER_MS,
    }
}

#[cfg(test)]
mod tests;
