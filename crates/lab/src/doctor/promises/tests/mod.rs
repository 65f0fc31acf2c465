//! Promises through the collector: pushes of simulated clients, examined as a broker examines them.

mod outcomes;
mod bounds;

use super::super::diagnosis::{Confidence, Diagnosis, Promise, Recommendation, Verdict};
use super::super::history::{Collector, Observed, PushedFrom};
use super::super::sample_push::{delta, gauge, payload};
use super::super::snapshot::{self, Snapshot};
use super::*;

const BEGIN_MS: i64 = 1_800_000_000_000;
const PUSH_MS: i64 = 10_000;
const LOOK_MS: i64 = 15_000;

/// A producer as it is for some time.
#[derive(Clone, Debug)]
struct Client {
    client_id: &'static str,
    instance_id: &'static str,
    host: &'static str,
    started_ms: Option<f64>,
    rate: f64,
    batch_max: f64,
    batch_mean: f64,
    request_ms: f64,
    queue_ms: f64,
}

/// Batches that end at 4 KiB, over 40 ms.
const SLOW: Client = Client {
    client_id: "orders",
    instance_id: "first",
    host: "10.0.0.1",
    started_ms: None,
    rate: 1_600.0,
    batch_max: 4_050.0,
    batch_mean: 4_000.0,
    request_ms: 41.0,
    queue_ms: 2_000.0,
};

/// The same client after the recommended change.
const FAST: Client = Client {
    instance_id: "second",
    rate: 3_980.0,
    batch_max: 16_200.0,
    batch_mean: 9_000.0,
    queue_ms: 5.0,
    ..SLOW
};

/// What the doctor of a test says of a snapshot.
type Doctor = fn(&Snapshot) -> Diagnosis;

struct World {
    collector: Collector,
    ledger: Ledger,
    now_ms: i64,
    /// `None`: the collector's own, which keeps its own ledger.
    doctor: Option<Doctor>,
    observed: Option<Observed>,
}

impl World {
    fn new(doctor: impl Into<Option<Doctor>>) -> World {
        World {
            collector: Collector::default(),
            ledger: Ledger::default(),
            now_ms: BEGIN_MS,
            doctor: doctor.into(),
            observed: None,
        }
    }

    /// Lets the clients run: they push every ten seconds, and are examined every fifteen.
    fn run(&mut self, seconds: i64, clients: &[Client]) -> &mut World {
        let end_ms = self.now_ms + seconds * 1_000;
        while self.now_ms < end_ms {
            self.now_ms += 5_000;
            if (self.now_ms - BEGIN_MS) % PUSH_MS == 0 {
                for client in clients {
                    self.push(client, false);
                }
            }
            if (self.now_ms - BEGIN_MS) % LOOK_MS == 0 {
                self.look();
            }
        }
        self
    }

    /// The client closes: its last push says so.
    fn close(&mut self, client: &Client) -> &mut World {
        self.push(client, true);
        self
    }

    fn push(&mut self, client: &Client, is_terminating: bool) {
        let seconds = PUSH_MS as f64 / 1_000.0;
        let requests = client.rate * 100.0 / client.batch_mean;
        let mut samples = vec![
            delta("producer.record.send.total", client.rate * seconds),
            delta("producer.request.total", requests * seconds),
            delta("producer.outgoing.byte.total", client.rate * 100.0 * seconds),
            gauge("producer.batch.size.avg", client.batch_mean),
            gauge("producer.batch.size.max", client.batch_max),
            gauge("producer.request.latency.avg", client.request_ms),
            gauge("producer.record.queue.time.avg", client.queue_ms),
        ];
        samples.extend(client.started_ms.map(|ms| gauge("app.info.start.time.ms", ms)));
        let from = PushedFrom {
            client_id: client.client_id,
            instance_id: client.instance_id,
            principal: Some("User:alice"),
            address: Some(client.host),
            software_name: Some("apache-kafka-java"),
            software_version: Some("4.3.0"),
            push_interval_ms: Some(PUSH_MS as f64),
            is_terminating,
            ..PushedFrom::default()
        };
        let end_ms = self.now_ms as f64;
        let payload = payload(end_ms - PUSH_MS as f64, end_ms, &[], &samples);
        self.collector.push(from, &payload, self.now_ms).unwrap();
    }

    fn look(&mut self) {
        if let Some(observed) = &self.observed {
            self.collector.observe(observed.clone(), self.now_ms);
        }
        let Some(doctor) = self.doctor else {
            return self.collector.keep_score(self.now_ms);
        };
        let snapshots = self.collector.snapshots(self.now_ms);
        let sightings = snapshots
            .iter()
            .map(|snapshot| Sighting::of(snapshot, &doctor(snapshot)));
        self.ledger.look(self.now_ms, &sightings.collect::<Vec<_>>());
    }

    fn promises(&self) -> Promises {
        match self.doctor {
            Some(_) => self.ledger.document(self.now_ms),
            None => self.collector.promises(self.now_ms),
        }
    }

    /// The only promise.
    fn row(&self) -> Row {
        let all = self.promises();
        assert_eq!(all.promises.len(), 1, "{all:#?}");
        all.promises[0].clone()
    }
}

fn advice(set: &str, promise: Promise) -> Option<Recommendation> {
    Some(Recommendation {
        set: set.to_owned(),
        why: String::new(),
        promise,
        next_ceiling: String::new(),
        cost: String::new(),
    })
}

fn rate_of(snapshot: &Snapshot) -> f64 {
    snapshot
        .producer
        .as_ref()
        .map_or(0.0, |own| own.records_per_second.unwrap())
}

fn records(snapshot: &Snapshot, low: f64, high: f64) -> Promise {
    Promise {
        assumption: "at unchanged latency".into(),
        ..promise(
            "records_per_second",
            "records/s",
            Some(rate_of(snapshot)),
            low,
            high,
        )
    }
}

fn promise(figure: &str, unit: &str, now: Option<f64>, low: f64, high: f64) -> Promise {
    let text = format!(r#"{{"figure":"{figure}","unit":"{unit}","low":0,"high":0,"assumption":""}}"#);
    let promise = serde_json::from_str(&text).unwrap();
    Promise {
        now,
        low,
        high,
        ..promise
    }
}

fn diagnosis(snapshot: &Snapshot, verdict: Verdict, summary: &str) -> Diagnosis {
    Diagnosis {
        client_id: snapshot.client.client_id.clone(),
        role: snapshot.client.role,
        verdict,
        confidence: Confidence::High,
        summary: summary.into(),
        ..Diagnosis::default()
    }
}

/// Promises 4,000 records/s by larger batches to a client with small ones.
fn larger_batches(snapshot: &Snapshot) -> Diagnosis {
    // What brokers saw of an instance that cannot be told from another is a client of its own.
    let Some(own) = &snapshot.producer else {
        return diagnosis(snapshot, Verdict::KeepsUp, "a broker's view");
    };
    if own.batch_bytes_max.unwrap() < 4_100.0 {
        return Diagnosis {
            recommendation: advice("batch.size=16384", records(snapshot, 4_000.0, 4_000.0)),
            ..diagnosis(
                snapshot,
                Verdict::SenderRate,
                "requests leave as fast as answers come",
            )
        };
    }
    match own.queue_ms.unwrap() < 100.0 {
        true => diagnosis(snapshot, Verdict::KeepsUp, "it sends all that it is given."),
        false => diagnosis(snapshot, Verdict::NetworkWindow, "64 KiB fill the window."),
    }
}
