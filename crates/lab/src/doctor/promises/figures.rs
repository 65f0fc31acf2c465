//! The numbers of a window that promises are about, and those that show a change of settings.

use super::super::snapshot::{BrokerSide, Host, Snapshot};

/// The client's own numbers; the brokers' where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// The length of the window.
    pub seconds: f64,
    pub records_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub requests_per_second: Option<f64>,
    /// Of a consumer: of its fetches.
    pub request_ms: Option<f64>,
    pub queue_ms: Option<f64>,
    pub throttle_ms: Option<f64>,
    pub metadata_wait: Option<f64>,
    pub failed_records: Option<f64>,
    pub connections_per_second: Option<f64>,
    pub broker_ms: Option<f64>,
    /// Of a consumer: of what a fetch brings.
    pub batch_bytes: Option<f64>,
    pub batch_bytes_max: Option<f64>,
    pub in_flight_max: Option<f64>,
    pub buffer_bytes: Option<f64>,
    pub compression_rate: Option<f64>,
    pub partitions: Option<f64>,
    pub offered_records_per_second: Option<f64>,
}

fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

impl Figures {
    pub fn of(snapshot: &Snapshot) -> Figures {
        let sides = &snapshot.brokers;
        let seen = |of: fn(&BrokerSide) -> Option<f64>| sides.iter().filter_map(move |side| sane(of(side)));
        let sum = |of| seen(of).reduce(|one, other| one + other);
        let most = |of| seen(of).reduce(f64::max);
        let mut figures = Figures {
            seconds: snapshot.seconds,
            records_per_second: sum(|side| side.records_per_second),
            bytes_per_second: sum(|side| side.bytes_per_second),
            requests_per_second: sum(|side| side.requests_per_second),
            throttle_ms: most(|side| side.throttle_ms),
            broker_ms: sides.iter().filter_map(broker_ms).reduce(f64::max),
            batch_bytes: most(|side| side.batch_bytes),
            batch_bytes_max: most(|side| side.batch_bytes_max),
            partitions: sum(|side| side.partitions_written),
            offered_records_per_second: sane(snapshot.application.offered_records_per_second),
            ..Figures::default()
        };
        figures.take_own(snapshot);
        figures
    }

    fn take_own(&mut self, snapshot: &Snapshot) {
        let replace = |kept: &mut Option<f64>, own: Option<f64>| *kept = sane(own).or(*kept);
        if let Some(own) = &snapshot.producer {
            replace(&mut self.records_per_second, own.records_per_second);
            replace(&mut self.bytes_per_second, own.bytes_per_second);
            replace(&mut self.requests_per_second, own.requests_per_second);
            replace(&mut self.request_ms, own.request_ms);
            replace(&mut self.queue_ms, own.queue_ms);
            replace(&mut self.throttle_ms, own.throttle_ms);
            replace(&mut self.metadata_wait, own.metadata_wait);
            replace(&mut self.failed_records, own.failed_records);
            replace(&mut self.connections_per_second, own.connections_per_second);
            replace(&mut self.batch_bytes, own.batch_bytes);
            replace(&mut self.batch_bytes_max, own.batch_bytes_max);
            let in_flight = sane(own.in_flight_max).into_iter().chain(sane(own.in_flight));
            self.in_flight_max = in_flight.reduce(f64::max);
            replace(&mut self.buffer_bytes, own.buffer_bytes);
            replace(&mut self.compression_rate, own.compression_rate);
        }
        if let Some(own) = &snapshot.consumer {
            replace(&mut self.records_per_second, own.records_per_second);
            replace(&mut self.bytes_per_second, own.bytes_per_second);
            replace(&mut self.requests_per_second, own.fetches_per_second);
            replace(&mut self.request_ms, own.fetch_ms);
            replace(&mut self.throttle_ms, own.throttle_ms);
            replace(&mut self.batch_bytes, own.fetch_bytes);
            replace(&mut self.partitions, own.group_partitions);
            replace(&mut self.connections_per_second, own.connections_per_second);
        }
    }

    /// The figure of a promise; `None`: not measured, or a figure that is not known here.
    pub fn named(&self, figure: &str) -> Option<f64> {
        match figure {
            "records_per_second" => self.records_per_second,
            "bytes_per_second" => self.bytes_per_second,
            "requests_per_second" | "fetches_per_second" => self.requests_per_second,
            "sender_latency_ms" => Some(self.queue_ms? + self.request_ms?),
            // The oldest record that a fetch brings has waited as long as the fetch.
            "request_ms" | "fetch_ms" | "record_age_ms" => self.request_ms,
            "queue_ms" => self.queue_ms,
            "throttle_ms" => self.throttle_ms,
            "metadata_wait" => self.metadata_wait,
            "failed_records" => self.failed_records,
            "connections_per_second" => self.connections_per_second,
            "broker_ms" => self.broker_ms,
            _ => None,
        }
    }

    /// Bytes that are on the way at a time, by Little's law.
    pub fn bytes_on_the_way(&self) -> Option<f64> {
        Some(self.bytes_per_second? * self.request_ms? / 1_000.0)
    }
}

/// D: the sum of its parts, or what the broker says as a whole.
fn broker_ms(side: &BrokerSide) -> Option<f64> {
    let parts = [
        side.queue_micros,
        side.local_micros,
        side.remote_micros,
        side.response_queue_micros,
        side.send_micros,
    ];
    let sum = parts
        .into_iter()
        .filter_map(sane)
        .reduce(|one, other| one + other);
    Some(sane(side.total_micros).or(sum)? / 1_000.0)
}

/// The machine that has least processor time left, of the client's and its brokers'.
pub fn busiest_host(snapshot: &Snapshot) -> Option<Host> {
    let sides = snapshot.brokers.iter().filter_map(|side| side.host);
    let hosts = snapshot.host.into_iter().chain(sides);
    hosts
        .filter(is_exhausted)
        .max_by(|one, other| use_of(one).total_cmp(&use_of(other)))
}

/// From here on a machine has no processor left to speak of.
const WAITING: f64 = 0.25;
const USED: f64 = 0.95;
const STOLEN: f64 = 0.10;

fn is_exhausted(host: &Host) -> bool {
    let is_above = |value: Option<f64>, limit: f64| value.is_some_and(|value| value >= limit);
    is_above(host.waiting, WAITING) || is_above(host.used, USED) || is_above(host.stolen, STOLEN)
}

/// What is stolen counts as used.
fn use_of(host: &Host) -> f64 {
    sane(host.used).or(sane(host.stolen)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::Producer;
    use super::*;

    #[test]
    fn the_client_s_own_numbers_come_before_the_brokers() {
        let side = |rate| BrokerSide {
            records_per_second: Some(rate),
            batch_bytes_max: Some(rate),
            ..BrokerSide::default()
        };
        let mut snapshot = Snapshot {
            brokers: vec![side(100.0), side(50.0)],
            ..Snapshot::default()
        };
        let figures = Figures::of(&snapshot);
        assert_eq!(figures.named("records_per_second"), Some(150.0));
        assert_eq!(figures.batch_bytes_max, Some(100.0));
        snapshot.producer = Some(Producer {
            records_per_second: Some(140.0),
            queue_ms: Some(3.0),
            request_ms: Some(f64::NAN),
            ..Producer::default()
        });
        let figures = Figures::of(&snapshot);
        assert_eq!(figures.named("records_per_second"), Some(140.0));
        assert_eq!(figures.named("sender_latency_ms"), None);
        assert_eq!(figures.named("happiness"), None);
    }
}
