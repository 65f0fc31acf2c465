//! Where a client's time is spent: the bar of the live screen.
//!
//! A producer's record is handed over (`worker`), waits in its batch (`queue`), travels (`request`)
//! and is served (`broker`). A consumer runs in a loop: it waits for records (`fetch`, and the
//! broker's part of that, `broker`) and processes them (`processing`).

use serde::{Deserialize, Serialize};

use super::snapshot::{BrokerSide, Consumer, Producer, Snapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimePart {
    /// Inside `send()`.
    Worker,
    /// In the batch, until it is sent.
    Queue,
    /// Between client and broker, there and back.
    Request,
    /// Inside the broker.
    Broker,
    /// The application's processing of the records that it has read.
    Processing,
    /// Waiting for records, outside the broker.
    Fetch,
}

impl TimePart {
    /// The name used in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            TimePart::Worker => "worker",
            TimePart::Queue => "queue",
            TimePart::Request => "request",
            TimePart::Broker => "broker",
            TimePart::Processing => "processing",
            TimePart::Fetch => "fetch",
        }
    }
}

/// One part, in milliseconds: of one record's path, or of one iteration of a consumer's loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeShare {
    pub part: TimePart,
    pub ms: f64,
}

/// An iteration of which only shares are known counts as one second.
const TURN_MS: f64 = 1_000.0;

/// Times of brokers that count whole milliseconds are meaningless below this.
const ROUNDED_MS_MIN: f64 = 2.0;

/// The known parts, in the order of a record's path; empty when none is known.
pub fn split(snapshot: &Snapshot) -> Vec<TimeShare> {
    let broker_ms = broker_ms(&snapshot.brokers);
    let parts = match (&snapshot.producer, &snapshot.consumer) {
        (Some(producer), _) => of_producer(snapshot, producer, broker_ms),
        (None, Some(consumer)) => of_consumer(consumer, broker_ms),
        (None, None) => vec![
            (TimePart::Request, snapshot.network.round_trip_ms),
            (TimePart::Broker, broker_ms),
        ],
    };
    parts
        .into_iter()
        .filter_map(|(part, ms)| {
            let ms = ms.filter(|ms| ms.is_finite() && *ms > 0.0)?;
            Some(TimeShare { part, ms })
        })
        .collect()
}

type Parts = Vec<(TimePart, Option<f64>)>;

fn of_producer(snapshot: &Snapshot, producer: &Producer, broker_ms: Option<f64>) -> Parts {
    // Without the client's own latency (it pushes nothing), the path is what the broker measured of
    // it.
    let within = |broker_ms: f64| {
        producer
            .request_ms
            .map_or(broker_ms, |request_ms| broker_ms.min(request_ms))
    };
    let broker_ms = broker_ms.map(within);
    let travel_ms = match producer.request_ms {
        Some(request_ms) => Some(request_ms - broker_ms.unwrap_or(0.0)),
        None => snapshot.network.round_trip_ms,
    };
    vec![
        (
            TimePart::Worker,
            snapshot.application.send_micros.map(|micros| micros / 1e3),
        ),
        (TimePart::Queue, producer.queue_ms),
        (TimePart::Request, travel_ms),
        (TimePart::Broker, broker_ms),
    ]
}

fn of_consumer(consumer: &Consumer, broker_ms: Option<f64>) -> Parts {
    let Some(idle) = consumer.poll_idle_share else {
        let broker_ms = broker_ms
            .zip(consumer.fetch_ms)
            .map(|(broker, fetch)| broker.min(fetch));
        let fetch_ms = consumer.fetch_ms.map(|fetch| fetch - broker_ms.unwrap_or(0.0));
        return vec![(TimePart::Fetch, fetch_ms), (TimePart::Broker, broker_ms)];
    };
    let turn_ms = consumer.ms_between_polls.unwrap_or(TURN_MS);
    let idle_ms = idle.clamp(0.0, 1.0) * turn_ms;
    // The broker's part of the waiting time is its part of a fetch.
    let share = broker_ms
        .zip(consumer.fetch_ms)
        .filter(|(_, fetch_ms)| *fetch_ms > 0.0)
        .map_or(0.0, |(broker_ms, fetch_ms)| (broker_ms / fetch_ms).min(1.0));
    vec![
        (TimePart::Fetch, Some(idle_ms * (1.0 - share))),
        (TimePart::Broker, Some(idle_ms * share)),
        (TimePart::Processing, Some(turn_ms - idle_ms)),
    ]
}

/// D over all brokers, weighted by their requests. `None` where the parts are not this client's or
/// not measured precisely enough.
fn broker_ms(brokers: &[BrokerSide]) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for broker in brokers {
        let Some(ms) = one_broker_ms(broker) else { continue };
        let weight = broker
            .requests_per_second
            .filter(|rate| *rate > 0.0)
            .unwrap_or(1.0);
        sum += ms * weight;
        weights += weight;
    }
    (weights > 0.0).then(|| sum / weights)
}

fn one_broker_ms(broker: &BrokerSide) -> Option<f64> {
    let parts = [
        broker.queue_micros,
        broker.local_micros,
        broker.remote_micros,
        broker.response_queue_micros,
        broker.send_micros,
    ];
    let known: Vec<f64> = parts.into_iter().flatten().collect();
    let micros = match known.is_empty() {
        true => broker.total_micros?,
        false => known.iter().sum(),
    };
    let ms = micros / 1e3;
    (!broker.is_rounded_to_ms || ms >= ROUNDED_MS_MIN).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(snapshot: &Snapshot, expected: &[(TimePart, f64)]) {
        let found: Vec<(TimePart, f64)> = split(snapshot)
            .iter()
            .map(|share| (share.part, share.ms))
            .collect();
        assert_eq!(found, expected);
    }

    fn producer(queue_ms: f64, request_ms: f64) -> Snapshot {
        Snapshot {
            producer: Some(Producer {
                queue_ms: Some(queue_ms),
                request_ms: Some(request_ms),
                ..Producer::default()
            }),
            ..Snapshot::default()
        }
    }

    fn served(micros: f64, requests_per_second: f64) -> BrokerSide {
        BrokerSide {
            requests_per_second: Some(requests_per_second),
            local_micros: Some(micros),
            ..BrokerSide::default()
        }
    }

    #[test]
    fn a_request_is_the_brokers_part_and_the_path() {
        let mut snapshot = producer(100.0, 10.0);
        check(&snapshot, &[(TimePart::Queue, 100.0), (TimePart::Request, 10.0)]);
        snapshot.brokers = vec![served(1_000.0, 30.0), served(5_000.0, 10.0)];
        snapshot.application.send_micros = Some(500.0);
        check(
            &snapshot,
            &[
                (TimePart::Worker, 0.5),
                (TimePart::Queue, 100.0),
                (TimePart::Request, 8.0),
                (TimePart::Broker, 2.0),
            ],
        );
    }

    #[test]
    fn a_broker_takes_no_more_than_the_client_waits() {
        let mut snapshot = producer(0.0, 3.0);
        snapshot.brokers = vec![served(9_000.0, 1.0)];
        check(&snapshot, &[(TimePart::Broker, 3.0)]);
    }

    #[test]
    fn few_whole_milliseconds_are_not_trusted() {
        let mut snapshot = producer(1.0, 3.0);
        snapshot.brokers = vec![BrokerSide {
            is_rounded_to_ms: true,
            ..served(400.0, 1.0)
        }];
        check(&snapshot, &[(TimePart::Queue, 1.0), (TimePart::Request, 3.0)]);
    }

    #[test]
    fn a_consumer_waits_or_works() {
        let consumer = Consumer {
            poll_idle_share: Some(0.25),
            ms_between_polls: Some(40.0),
            fetch_ms: Some(8.0),
            ..Consumer::default()
        };
        let mut snapshot = Snapshot {
            consumer: Some(consumer),
            ..Snapshot::default()
        };
        check(
            &snapshot,
            &[(TimePart::Fetch, 10.0), (TimePart::Processing, 30.0)],
        );
        snapshot.brokers = vec![served(4_000.0, 1.0)];
        check(
            &snapshot,
            &[
                (TimePart::Fetch, 5.0),
                (TimePart::Broker, 5.0),
                (TimePart::Processing, 30.0),
            ],
        );
    }

    #[test]
    fn without_numbers_there_is_no_bar() {
        check(&Snapshot::default(), &[]);
        check(&producer(f64::NAN, f64::INFINITY), &[]);
    }
}
