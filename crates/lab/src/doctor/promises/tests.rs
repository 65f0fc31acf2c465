//! Promises through the collector: pushes of simulated clients, examined as a broker examines them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::diagnosis::{Confidence, Diagnosis, Promise, Recommendation, Verdict};
use super::super::history::{Collector, Observed, PushedFrom};
use super::super::sample_push::{delta, gauge, payload};
use super::super::snapshot::{self, BrokerSide, Codec, Host, Origin, Role, Setting, Settings, Snapshot};
use super::ledger::{DECIDED_MAX, FOLLOWED_MAX};
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
        self.ledger.look(self.now_ms, sightings.collect());
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
        figure: "records_per_second".into(),
        now: Some(rate_of(snapshot)),
        low,
        high,
        unit: "records/s".into(),
        assumption: "at unchanged latency".into(),
        ..promise()
    }
}

fn promise() -> Promise {
    Promise {
        figure: String::new(),
        now: None,
        low: 0.0,
        high: 0.0,
        unit: String::new(),
        assumption: String::new(),
        unknown: None,
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

#[test]
fn a_client_that_comes_back_with_the_setting_decides_its_promise() {
    let mut world = World::new(larger_batches as Doctor);
    world.run(45, &[SLOW]);
    let open = world.row();
    assert_eq!((open.score, open.set.as_str()), (Score::Open, "batch.size=16384"));
    assert_eq!((open.before, open.high), (Some(1_600.0), 4_000.0));
    world.close(&SLOW).run(75, &[FAST]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
    assert_eq!(
        row.applied,
        "a new instance; the largest batch grew from 4,050 to 16,200 bytes"
    );
    assert_eq!(
        row.sentence(),
        "Promised 4,000 records/s by batch.size=16384; measured 3,980: kept."
    );
    assert_eq!(row.instance_before.as_deref(), Some("first"));
    assert_eq!(row.instance_after.as_deref(), Some("second"));
    assert_eq!(
        (row.verdict_before, row.verdict_after),
        (Verdict::SenderRate, Some(Verdict::KeepsUp))
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 kept.");
    let lately = |instance: &str, since_ms| {
        let all = world.promises();
        all.decided_lately("orders", Some(instance), Role::Producer, since_ms)
            .is_some()
    };
    assert!(lately("second", BEGIN_MS) && !lately("first", BEGIN_MS));
    assert!(!lately("second", world.now_ms + 1));
}

#[test]
fn more_than_promised_is_kept_and_said() {
    let mut world = World::new(larger_batches as Doctor);
    let faster = Client {
        rate: 5_000.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(75, &[faster]);
    assert_eq!(world.row().score, Score::Exceeded);
    assert!(
        world
            .row()
            .sentence()
            .ends_with("measured 5,000: kept, and more.")
    );
}

#[test]
fn a_promise_that_fails_says_what_limits_the_client_now() {
    let mut world = World::new(larger_batches as Doctor);
    let limited = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[limited]);
    let row = world.row();
    assert_eq!(
        row.sentence(),
        "Promised 4,000 records/s by batch.size=16384; measured 2,100: not kept, because \
         NETWORK_WINDOW: 64 KiB fill the window."
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 not kept.");
}

#[test]
fn a_latency_that_the_promise_assumed_unchanged_is_a_reason() {
    let mut world = World::new(larger_batches as Doctor);
    let slower = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        request_ms: 82.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[slower]);
    let because = world.row().because;
    assert!(
        because.starts_with(
            "a request takes 82 ms, 41 when it was promised, and the promise assumed that unchanged; NETWORK_WINDOW"
        ),
        "{because}"
    );
}

#[test]
fn a_machine_without_a_processor_left_is_a_reason() {
    let mut world = World::new(larger_batches as Doctor);
    let limited = Client {
        rate: 2_100.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW);
    world.observed = Some(seen(BrokerSide {
        host: Some(Host {
            used: Some(0.99),
            waiting: Some(0.6),
            ..Host::default()
        }),
        ..BrokerSide::default()
    }));
    world.run(150, &[limited]);
    let row = world.row();
    assert_eq!(row.score, Score::NotKept);
    assert!(
        row.because
            .starts_with("the machine has no processor left (99 % used, 60 % of the time"),
        "{}",
        row.because
    );
}

/// What a broker saw of the client "orders".
fn seen(broker: BrokerSide) -> Observed {
    Observed {
        client: snapshot::Client {
            client_id: "orders".into(),
            principal: Some("User:alice".into()),
            address: Some("10.0.0.1:5000".into()),
            ..snapshot::Client::default()
        },
        seconds: 60.0,
        broker,
        ..Observed::default()
    }
}

#[test]
fn a_client_that_offers_less_tests_nothing() {
    let mut world = World::new(larger_batches as Doctor);
    let idle = Client {
        rate: 1_200.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[idle]);
    let row = world.row();
    assert_eq!(row.score, Score::NotTested);
    assert_eq!(
        row.because,
        "the client offers less than promised, and nothing limits it: KEEPS_UP: it sends all that it is given"
    );
    assert_eq!(world.promises().summary(), "1 promise: 1 not tested.");
}

#[test]
fn another_value_of_the_setting_tests_nothing() {
    let mut world = World::new(larger_batches as Doctor);
    let larger = Client {
        batch_max: 65_000.0,
        batch_mean: 60_000.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[larger]);
    let row = world.row();
    assert_eq!(row.score, Score::NotTested);
    assert!(
        row.because.starts_with("another value was set"),
        "{}",
        row.because
    );
}

#[test]
fn a_restart_without_the_setting_keeps_the_promise_open() {
    let mut world = World::new(larger_batches as Doctor);
    let again = Client {
        instance_id: "unchanged",
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[again.clone()]);
    let row = world.row();
    assert_eq!(
        (row.score, row.instance_before.as_deref()),
        (Score::Open, Some("unchanged"))
    );
    world.close(&again).run(75, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn a_slow_start_does_not_break_a_promise() {
    let mut world = World::new(larger_batches as Doctor);
    let starting = Client {
        rate: 500.0,
        queue_ms: 900.0,
        ..FAST
    };
    world.run(45, &[SLOW]).close(&SLOW).run(30, &[starting]);
    assert_eq!(world.row().score, Score::Measuring);
    world.run(90, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn a_good_first_push_is_not_yet_a_kept_promise() {
    let mut world = World::new(larger_batches as Doctor);
    world.run(45, &[SLOW]).close(&SLOW).run(30, &[FAST]);
    assert_eq!(world.row().score, Score::Measuring);
}

#[test]
fn a_restart_of_the_same_instance_is_a_return() {
    let mut world = World::new(larger_batches as Doctor);
    let begin = |client: Client, started_ms| Client {
        instance_id: "always",
        started_ms: Some(started_ms),
        ..client
    };
    world
        .run(45, &[begin(SLOW, 1_000.0)])
        .run(90, &[begin(FAST, 2_000.0)]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
    assert!(row.applied.starts_with("a new instance; "), "{}", row.applied);
}

#[test]
fn larger_batches_of_the_same_instance_are_another_load() {
    let mut world = World::new(larger_batches as Doctor);
    let busier = Client {
        instance_id: SLOW.instance_id,
        ..FAST
    };
    world.run(45, &[SLOW]).run(150, &[busier]);
    assert_eq!(world.row().score, Score::Open);
}

/// Recommends a codec that its broker can see.
fn another_codec(snapshot: &Snapshot) -> Diagnosis {
    match snapshot.settings.compression.map(|codec| codec.value) {
        Some(Codec::Zstd) => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
        _ => Diagnosis {
            recommendation: advice("compression.type=zstd", records(snapshot, 3_900.0, 4_500.0)),
            ..diagnosis(snapshot, Verdict::NetworkBandwidth, "the link is full")
        },
    }
}

#[test]
fn a_setting_that_the_broker_reads_needs_no_other_proof() {
    let mut world = World::new(another_codec as Doctor);
    let codec = |value| Observed {
        settings: Settings {
            compression: Some(Setting {
                value,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        ..seen(BrokerSide::default())
    };
    world.observed = Some(codec(Codec::None));
    world.run(45, &[SLOW]).close(&SLOW);
    world.observed = Some(codec(Codec::Zstd));
    let same_sizes = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(90, &[same_sizes]);
    let row = world.row();
    assert_eq!(
        (row.score, row.applied.as_str()),
        (Score::Kept, "the broker saw compression.type=zstd")
    );
}

#[test]
fn a_setting_that_the_broker_reads_as_before_was_not_applied() {
    let mut world = World::new(another_codec as Doctor);
    world.observed = Some(Observed {
        settings: Settings {
            compression: Some(Setting {
                value: Codec::None,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        ..seen(BrokerSide::default())
    });
    let faster = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[faster]);
    assert_eq!(world.row().score, Score::Open);
}

/// Recommends linger.ms by the rate, so that the recommendation goes when the rate is reached.
fn longer_linger(snapshot: &Snapshot) -> Diagnosis {
    match rate_of(snapshot) < 3_000.0 {
        true => Diagnosis {
            recommendation: advice("linger.ms=10", records(snapshot, 3_900.0, 4_500.0)),
            ..diagnosis(snapshot, Verdict::SenderRate, "batches are small")
        },
        false => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
    }
}

#[test]
fn a_setting_that_nothing_shows_is_not_counted() {
    let mut world = World::new(longer_linger as Doctor);
    let faster = Client {
        instance_id: "second",
        rate: 4_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(150, &[faster]);
    let row = world.row();
    assert_eq!((row.score, row.applied.as_str()), (Score::Unknown, ""));
    let all = world.promises();
    assert_eq!(
        (all.kept, all.not_kept, all.not_tested, all.unknown),
        (0, 0, 0, 1)
    );
    assert_eq!(
        all.summary(),
        "No promise has been decided; 1 not counted: nothing shows whether the setting was applied."
    );
}

#[test]
fn a_new_instance_shows_a_setting_by_another_figure_than_the_promised_one() {
    let mut world = World::new(longer_linger as Doctor);
    let fuller = Client {
        instance_id: "second",
        rate: 4_000.0,
        batch_mean: 9_000.0,
        ..SLOW
    };
    world.run(45, &[SLOW]).close(&SLOW).run(90, &[fuller]);
    let row = world.row();
    assert_eq!(
        row.applied,
        "a new instance; a batch (bytes) went from 4,000 to 9,000"
    );
    assert_eq!(row.score, Score::Kept);
}

/// Promises a latency by the queue.
fn shorter_queue(snapshot: &Snapshot) -> Diagnosis {
    let own = snapshot.producer.as_ref().unwrap();
    let now = own.queue_ms.unwrap() + own.request_ms.unwrap();
    let latency = Promise {
        figure: "sender_latency_ms".into(),
        now: Some(now),
        low: 43.0,
        high: 56.0,
        unit: "ms".into(),
        assumption: "at an unchanged latency of requests".into(),
        ..promise()
    };
    match own.batch_bytes_max.unwrap() < 4_100.0 {
        true => Diagnosis {
            recommendation: advice("batch.size=16384", latency),
            ..diagnosis(snapshot, Verdict::SenderRate, "batches are full")
        },
        false => diagnosis(snapshot, Verdict::KeepsUp, "it keeps up"),
    }
}

#[test]
fn a_latency_is_kept_from_above_and_only_under_the_same_load() {
    let outcome = |after: Client| {
        let mut world = World::new(shorter_queue as Doctor);
        world.run(45, &[SLOW]).close(&SLOW).run(150, &[after]);
        let row = world.row();
        (row.score, row.because)
    };
    let with = |rate, queue_ms| Client {
        rate,
        queue_ms,
        ..FAST
    };
    assert_eq!(outcome(with(1_600.0, 5.0)).0, Score::Kept);
    assert_eq!(outcome(with(1_600.0, 0.0)).0, Score::Kept);
    assert_eq!(outcome(with(1_600.0, 100.0)).0, Score::NotKept);
    let (score, because) = outcome(with(800.0, 5.0));
    assert_eq!(score, Score::NotTested);
    assert_eq!(
        because,
        "the client carries 800 records/s, 1,600 when it was promised"
    );
    let (score, because) = outcome(with(4_000.0, 100.0));
    assert_eq!(score, Score::NotTested);
    assert!(because.contains("carries 4,000 records/s"), "{because}");
    // More records at the promised latency are no excuse and need none.
    assert_eq!(outcome(with(4_000.0, 5.0)).0, Score::Kept);
}

/// Another recommendation at every examination.
fn undecided(snapshot: &Snapshot) -> Diagnosis {
    let heard_ms = snapshot.telemetry.heard_ms.unwrap() - BEGIN_MS;
    let is_even = ((heard_ms + 5_000) / LOOK_MS) % 2 == 0;
    let set = if is_even {
        "batch.size=16384"
    } else {
        "linger.ms=10"
    };
    Diagnosis {
        recommendation: advice(set, records(snapshot, 3_900.0, 4_500.0)),
        ..diagnosis(snapshot, Verdict::SenderRate, "it depends")
    }
}

#[test]
fn a_recommendation_that_changes_promises_nothing() {
    let mut world = World::new(undecided as Doctor);
    world.run(90, &[SLOW]);
    assert!(world.promises().promises.is_empty());
    let mut once = World::new(larger_batches as Doctor);
    once.run(15, &[SLOW]);
    assert!(once.promises().promises.is_empty());
    // Without another push a second examination says what the first said.
    once.look();
    assert!(once.promises().promises.is_empty());
    once.run(15, &[SLOW]);
    assert_eq!(once.promises().promises.len(), 1);
}

#[test]
fn a_range_that_cannot_fail_is_no_promise() {
    let of = |now, low, high| Promise {
        figure: "records_per_second".into(),
        now,
        low,
        high,
        unit: "records/s".into(),
        ..promise()
    };
    let now = Some(100.0);
    for promise in [
        of(now, f64::NAN, 200.0),
        of(now, 150.0, f64::INFINITY),
        of(now, 100.0, 100.0),
        of(now, 90.0, 200.0),
        of(now, 200.0, 150.0),
        of(Some(f64::NAN), 150.0, 200.0),
        of(None, 0.0, 0.0),
    ] {
        assert!(!score::can_fail(&promise), "{promise:?}");
    }
    assert!(score::can_fail(&of(now, 150.0, 200.0)));
    assert!(score::can_fail(&of(now, 0.0, 50.0)));
}

#[test]
fn clients_that_share_an_id_are_told_apart_by_their_address() {
    let mut world = World::new(larger_batches as Doctor);
    let slow = |instance_id, host| Client {
        instance_id,
        host,
        ..SLOW
    };
    let fast = |instance_id, host| Client {
        instance_id,
        host,
        ..FAST
    };
    let (one, other) = (slow("a1", "10.0.0.1"), slow("b1", "10.0.0.2"));
    world.run(45, &[one.clone(), other.clone()]);
    assert_eq!(world.promises().promises.len(), 2);
    world.close(&one).run(75, &[fast("a2", "10.0.0.1"), other]);
    let scores: BTreeMap<_, _> = world
        .promises()
        .promises
        .into_iter()
        .map(|row| (row.host.unwrap(), row.score))
        .collect();
    assert_eq!(
        scores,
        [("10.0.0.1".into(), Score::Kept), ("10.0.0.2".into(), Score::Open)].into()
    );
    // On one address nothing tells them apart.
    let mut world = World::new(larger_batches as Doctor);
    world.run(90, &[slow("a", "10.0.0.1"), slow("b", "10.0.0.1")]);
    assert!(world.promises().promises.is_empty());
}

#[test]
fn an_instance_that_died_is_still_there_until_it_expires() {
    let mut world = World::new(larger_batches as Doctor);
    // No terminating push: for a minute both are listed, on one address.
    world.run(45, &[SLOW]).run(45, &[FAST]);
    assert_eq!(world.row().score, Score::Open);
    world.run(90, &[FAST]);
    assert_eq!(world.row().score, Score::Kept);
}

#[test]
fn the_collector_keeps_the_score_of_what_its_own_rules_promise() {
    let mut world = World::new(None);
    // Full batches of 16 KiB, five requests in flight over 41 ms all the time.
    let full = Client {
        rate: 19_500.0,
        batch_max: 16_380.0,
        batch_mean: 16_300.0,
        ..SLOW
    };
    world.run(60, std::slice::from_ref(&full));
    let open = world.row();
    let change = change::Change::parse(&open.set).unwrap();
    assert_eq!((change.key.as_str(), open.score), ("batch.size", Score::Open));
    let after = Client {
        rate: open.high,
        batch_max: 0.99 * change.number().unwrap(),
        batch_mean: 0.7 * change.number().unwrap(),
        ..FAST
    };
    world.close(&full).run(90, &[after]);
    let row = world.row();
    assert_eq!(row.score, Score::Kept, "{row:#?}");
}

/// A snapshot of one of many clients, as the collector makes them.
fn one_of_many(index: usize, instance: usize, batch_max: f64) -> Snapshot {
    Snapshot {
        client: snapshot::Client {
            client_id: format!("client-{index}-{}", "x".repeat(300)),
            instance_id: Some(format!("{index}-{instance}")),
            principal: Some("y".repeat(300)),
            address: Some(format!("10.0.0.1:{index}")),
            ..snapshot::Client::default()
        },
        seconds: 60.0,
        producer: Some(snapshot::Producer {
            records_per_second: Some(1_600.0),
            batch_bytes: Some(batch_max),
            batch_bytes_max: Some(batch_max),
            queue_ms: Some(2_000.0),
            ..snapshot::Producer::default()
        }),
        ..Snapshot::default()
    }
}

#[test]
fn ten_thousand_clients_stay_within_the_ledger_s_bounds() {
    let mut ledger = Ledger::default();
    let mut look = |at_s: i64, range: std::ops::Range<usize>, instance, batch_max| {
        let sightings = range.map(|index| {
            let snapshot = one_of_many(index, instance, batch_max);
            Sighting::of(&snapshot, &larger_batches(&snapshot))
        });
        let at_ms = BEGIN_MS + at_s * 1_000;
        ledger.look(at_ms, sightings.collect());
        assert!(ledger.followed_count() <= FOLLOWED_MAX);
        ledger.document(at_ms)
    };
    for at_s in [0, 15, 30] {
        let document = look(at_s, 0..10_000, 1, 4_000.0);
        assert_eq!(document.left_out, 10_000 - FOLLOWED_MAX as u64);
    }
    let open = look(45, 0..10_000, 1, 4_000.0);
    assert_eq!(open.promises.len(), FOLLOWED_MAX);
    assert!(open.promises.iter().all(|row| row.client_id.len() <= 255));
    // Those that are gone make room for others, and only they do.
    let present: Vec<&str> = open.promises.iter().map(|row| row.client_id.as_str()).collect();
    look(200, 10_000..10_010, 1, 4_000.0);
    let mixed = look(215, 10_000..10_010, 1, 4_000.0);
    let is_present = |row: &&Row| present.contains(&row.client_id.as_str());
    assert_eq!(
        mixed.promises.iter().filter(is_present).count(),
        FOLLOWED_MAX - 10
    );
    // All of them come back: the latest decided promises stay.
    let mut last = Promises::default();
    for at_s in [300, 315, 330, 345, 375, 390] {
        last = look(at_s, 0..10_010, 2, 16_000.0);
    }
    let decided = last.promises.iter().filter(|row| row.score.is_decided()).count();
    assert_eq!((decided, last.promises.len()), (DECIDED_MAX, DECIDED_MAX));
    assert_eq!(last.kept + last.not_kept + last.not_tested, FOLLOWED_MAX as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever clients do, a promise is decided once, and every decision is counted once.
    #[test]
    fn no_promise_is_decided_twice(
        phases in prop::collection::vec((0..4_usize, 0..3_usize, any::<bool>(), 1..12_i64), 1..14)
    ) {
        const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];
        let mut world = World::new(larger_batches as Doctor);
        let mut decided: BTreeMap<(i64, String), Row> = BTreeMap::new();
        for (instance, kind, closes, looks) in phases {
            let kinds = [SLOW, FAST, Client { rate: 1_200.0, queue_ms: 900.0, ..FAST }];
            let client = Client { instance_id: INSTANCES[instance], ..kinds[kind].clone() };
            for _ in 0..looks {
                world.run(15, std::slice::from_ref(&client));
                let all = world.promises();
                for row in all.promises.iter().filter(|row| row.score.is_decided()) {
                    let key = (row.promised_ms, row.client_id.clone());
                    let known = decided.entry(key).or_insert_with(|| row.clone());
                    prop_assert_eq!(&*known, row);
                }
                let counted = all.kept + all.not_kept + all.not_tested + all.unknown;
                prop_assert_eq!(counted, decided.len() as u64);
                let open = all.promises.iter().filter(|row| !row.score.is_decided());
                for row in open {
                    prop_assert!(!decided.contains_key(&(row.promised_ms, row.client_id.clone())));
                }
            }
            if closes {
                world.close(&client);
            }
        }
    }
}

#[test]
fn examinations_that_nobody_asked_for_take_a_hundredth_of_a_processor() {
    use std::time::Duration;
    assert_eq!(pause_after(Duration::from_millis(20)), LOOK_EVERY);
    assert_eq!(pause_after(Duration::from_secs(1)), Duration::from_secs(100));
}
