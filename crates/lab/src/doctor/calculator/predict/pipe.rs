//! A producer's pipe to its brokers in numbers: how full it is, and its limits.

use super::super::Invalid;
use crate::doctor::rules::inference;
use crate::doctor::rules::producer::reading::Reading;
use crate::doctor::rules::words;
use crate::doctor::snapshot::{Library, Setting, Snapshot};
use crate::formulas::ceiling::{in_flight_use, load, request_bytes_max, requests_per_second_max};
use crate::formulas::latency::send_micros_own;
use crate::model::ceilings::{Ceiling, by_broker, by_link, by_threads, by_window};
use crate::model::constants::FULL;
use crate::model::pipe::{SEND_BUFFER_BYTES, in_flight};

/// A value and its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PipeValue {
    pub value: f64,
    pub origin: &'static str,
}

/// The state that a prediction starts from.
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
    pub batch_bytes: PipeValue,
    pub linger_ms: PipeValue,
    pub in_flight: PipeValue,
    /// On one connection.
    pub in_flight_seen: f64,
    pub send_buffer_bytes: PipeValue,
    pub max_request_bytes: PipeValue,
    pub buffer_bytes: PipeValue,
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
        let reading = Reading::of(snapshot);
        let hottest = reading.hottest();
        let round_trip = hottest
            .and_then(|pipe| reading.round_trip(pipe))
            .map(|found| found.ms);
        let broker = hottest.and_then(|pipe| reading.broker_ms(pipe));
        let need = |value: Option<f64>, what: &str| {
            let value = value.filter(|value| *value > 0.0);
            value.ok_or_else(|| Invalid(format!("the snapshot has no {what}: nothing can be predicted")))
        };
        let own = snapshot.producer.as_ref();
        let brokers = reading.nodes.len().max(1) as f64;
        let settings = &reading.settings;
        let partitions = match reading.library() {
            // librdkafka sends one partition per request.
            Library::Librdkafka => 1.0,
            _ => reading.partitions_per_broker,
        };
        Ok(Pipe {
            records_per_second: need(reading.records_per_second, "records per second")?,
            requests_per_second: need(reading.requests_per_second, "requests per second")?,
            request_bytes: need(reading.request_bytes, "size of requests")?,
            request_ms: need(
                reading.request_ms.or_else(|| Some(round_trip? + broker?)),
                "request latency",
            )?,
            brokers,
            partitions_per_broker: partitions.max(1.0),
            batch_bytes_mean: reading.batch_bytes,
            compression_rate: reading.compression_rate,
            queue_ms: reading.queue_ms,
            buffer_wait: reading.buffer_wait,
            batch_bytes: known(settings.batch_bytes),
            linger_ms: known(settings.linger_ms),
            in_flight: known(settings.in_flight),
            in_flight_seen: own
                .and_then(inference::in_flight_seen)
                .map_or(0.0, |seen| (seen / brokers).ceil()),
            send_buffer_bytes: settings.send_buffer_bytes.map_or(
                // Of a library that leaves the size to the kernel.
                PipeValue {
                    value: SEND_BUFFER_BYTES,
                    origin: "assumed",
                },
                known,
            ),
            max_request_bytes: known(settings.max_request_bytes),
            buffer_bytes: known(settings.buffer_bytes),
            round_trip_ms: round_trip,
            broker_ms: broker,
            link_bytes_per_second: positive(snapshot.network.bandwidth_bytes_per_second),
            window_bytes: positive(snapshot.network.window_bytes),
            threads: reading.threads,
            send_micros: reading.send_micros,
            offered: reading.offered,
        })
    }

    /// M_eff (F8b).
    pub fn in_flight_effective(&self) -> f64 {
        in_flight(
            self.in_flight.value,
            self.send_buffer_bytes.value,
            self.request_bytes,
            self.in_flight_seen,
        )
    }

    pub fn requests_per_second_max(&self) -> f64 {
        requests_per_second_max(self.request_ms, self.in_flight_effective(), self.brokers)
    }

    /// U (F8).
    pub fn in_flight_use(&self) -> f64 {
        in_flight_use(self.requests_per_second, self.requests_per_second_max())
    }

    /// S_max (F9).
    pub fn request_bytes_max(&self) -> f64 {
        request_bytes_max(
            self.max_request_bytes.value,
            self.partitions_per_broker,
            self.batch_bytes.value,
        )
        .max(self.request_bytes.min(self.max_request_bytes.value))
    }

    /// Z (F9).
    pub fn load(&self) -> f64 {
        load(self.in_flight_use(), self.request_bytes, self.request_bytes_max())
    }

    /// F18, from batches where they are known and from requests otherwise.
    pub fn fill_share(&self) -> f64 {
        match self.batch_bytes_mean {
            Some(mean) => mean / self.batch_bytes.value,
            None => self.request_bytes / self.partitions_per_broker / self.batch_bytes.value,
        }
    }

    /// Whether batches wait for longer than linger.ms asks for, or senders for memory (S1).
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

    /// The window, where its size is measured and the bytes of a round trip fill it.
    pub fn full_window(&self) -> Option<f64> {
        let window = self.window_bytes?;
        let sent = self.request_bytes * self.requests_per_second;
        let on_the_way = sent * self.round_trip_ms? / 1_000.0;
        (on_the_way >= FULL * window).then_some(window)
    }

    /// The records per second that the link, the window, the broker's serial service and the
    /// sending threads allow, with their names.
    pub fn ceilings(&self) -> Vec<Ceiling> {
        let record = self.record_bytes();
        let mut ceilings = vec![(
            self.requests_per_second_max() * self.request_bytes_max() / record,
            format!(
                "requests of {} at most, {} in flight at {} ms (F9)",
                crate::numbers::bytes(self.request_bytes_max()),
                crate::numbers::number(self.in_flight_effective()),
                crate::numbers::number(self.request_ms)
            ),
        )];
        if let Some(link) = self.link_bytes_per_second {
            ceilings.push((
                by_link(link * self.brokers, record),
                String::from("the link's bandwidth (F15)"),
            ));
        }
        if let Some(round_trip) = self.round_trip_ms {
            ceilings.push((
                by_window(self.window(), round_trip, self.brokers, record),
                String::from("the window: send.buffer.bytes over the round trip (F13)"),
            ));
        }
        if let Some(broker) = self.broker_ms {
            ceilings.push((
                by_broker(broker, self.brokers, self.request_bytes_max() / record),
                String::from("the broker, which serves a connection's requests one after another (F14)"),
            ));
        }
        if let (Some(threads), Some(micros)) = (self.threads, self.send_micros_own()) {
            ceilings.push((
                by_threads(threads, micros),
                String::from("the sending threads (F6)"),
            ));
        }
        let mut ceilings: Vec<Ceiling> = ceilings
            .into_iter()
            .map(|(records_per_second, text)| Ceiling {
                records_per_second,
                text,
            })
            .filter(|ceiling| ceiling.records_per_second.is_finite() && ceiling.records_per_second > 0.0)
            .collect();
        ceilings.sort_by(|one, other| one.records_per_second.total_cmp(&other.records_per_second));
        ceilings
    }

    /// W without the wait for memory (F6).
    pub fn send_micros_own(&self) -> Option<f64> {
        let own = send_micros_own(
            self.send_micros?,
            self.buffer_wait.unwrap_or(0.0),
            self.records_per_second,
        );
        Some(own).filter(|micros| *micros > 0.0)
    }
}

pub fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
}

fn known(setting: Setting<f64>) -> PipeValue {
    PipeValue {
        value: setting.value,
        origin: words::origin(setting.origin),
    }
}
