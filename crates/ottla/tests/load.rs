//! The load generator against a broker in this process: counts add up, and a missed schedule is
//! reported.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_lab::load::outcome::{ConsumeOutcome, ProduceOutcome};
use ottla_lab::load::{
    ConsumeLoad, Contents, Course, Keys, Live, Partitioning, ProduceLoad, TopicLoad, consume, produce,
};

mod support;

use support::Writer;

const PARTITIONS: u32 = 3;

fn settings(broker: &Broker, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let address = broker.address().to_string();
    let pairs = [("bootstrap.servers", address.as_str())];
    pairs
        .iter()
        .chain(more)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn topics() -> Vec<TopicLoad> {
    vec![TopicLoad {
        name: String::from("load"),
        partitions: PARTITIONS,
    }]
}

fn producers(broker: &Broker) -> ProduceLoad {
    ProduceLoad {
        name: String::from("writers"),
        settings: settings(broker, &[]),
        topics: topics(),
        clients: 2,
        threads: 2,
        rate: Some(2_000.0),
        records: 0,
        record_bytes: 100,
        contents: Contents::Random,
        keys: Keys::None,
        partitioning: Partitioning::Client,
        is_synchronous: false,
        callback: Duration::ZERO,
        callback_threads: 0,
    }
}

fn consumers(broker: &Broker) -> ConsumeLoad {
    ConsumeLoad {
        name: String::from("readers"),
        settings: settings(broker, &[]),
        topics: topics(),
        clients: 2,
        rate: None,
        from_beginning: true,
        gives_way: false,
    }
}

fn course(warmup_ms: u64, duration_ms: u64) -> Course {
    Course {
        begin: Instant::now() + Duration::from_millis(300),
        warmup: Duration::from_millis(warmup_ms),
        duration: Duration::from_millis(duration_ms),
        stop: Arc::default(),
    }
}

fn run(write: &ProduceLoad, read: &ConsumeLoad, course: &Course) -> (ProduceOutcome, ConsumeOutcome, Live) {
    let live = Live::default();
    let outcomes = thread::scope(|scope| {
        let reading = scope.spawn(|| consume::run(read, course, &live));
        let written = produce::run(write, course, &live);
        live.is_produced.store(true, Ordering::Release);
        (written.unwrap(), reading.join().unwrap().unwrap())
    });
    (outcomes.0, outcomes.1, live)
}

fn broker() -> Broker {
    let broker = Broker::start_temporary(&[]).unwrap();
    Writer::connect(broker.address()).create_topic("load", PARTITIONS as i32);
    broker
}

fn check_whole(written: &ProduceOutcome, read: &ConsumeOutcome) {
    assert_eq!((written.failed, &written.errors), (0, &BTreeMap::new()));
    assert_eq!((read.duplicated, read.disordered, read.foreign), (0, 0, 0));
    assert_eq!(read.records_in_all, written.acknowledged_in_all);
    assert_eq!(read.errors, BTreeMap::new());
}

#[test]
fn counts_add_up_from_the_schedule_to_the_readers() {
    let broker = broker();
    let (written, read, live) = run(&producers(&broker), &consumers(&broker), &course(500, 1_500));
    check_whole(&written, &read);
    // 2,000 records/s: 0.5 s of warm-up and 1.5 s of measurement.
    assert_eq!(written.acknowledged_in_all, 4_000);
    assert_eq!(
        (written.sent, written.acknowledged, written.bytes),
        (3_000, 3_000, 300_000)
    );
    assert_eq!(written.latency.count(), 3_000);
    assert_eq!(written.schedule_error.count(), 3_000);
    assert_eq!(read.end_to_end.count(), 3_000);
    assert!((written.seconds - 1.5).abs() < 0.5, "{}", written.seconds);
    assert!(written.send_nanos_mean > 0.0);
    assert!(written.metrics["request-total"] > 0.0);
    assert!(written.metrics["record-queue-time-avg"].is_finite());
    assert_eq!(live.sent.load(Ordering::Relaxed), 4_000);
    assert_eq!(live.received.load(Ordering::Relaxed), 4_000);
    let in_seconds: u64 = read.timeline.iter().map(|second| second.done).sum();
    assert_eq!(in_seconds, read.records);
}

#[test]
fn both_sides_sample_the_same_records() {
    let broker = broker();
    let (written, read, _) = run(&producers(&broker), &consumers(&broker), &course(0, 1_000));
    assert_eq!((written.samples.len(), read.samples.len()), (2_000, 2_000));
    let received: BTreeMap<_, _> = read
        .samples
        .iter()
        .map(|sample| (&sample.place, sample))
        .collect();
    for sent in &written.samples {
        let received = received[&sent.place];
        assert_eq!(
            (sent.due_nanos, sent.sent_nanos),
            (received.due_nanos, received.sent_nanos)
        );
        assert!(sent.sent_nanos >= sent.due_nanos);
        assert!(sent.acknowledged_nanos >= sent.sent_nanos && received.received_nanos >= sent.sent_nanos);
    }
}

#[test]
fn a_group_without_a_rate_sends_its_record_count_and_has_no_latency() {
    let broker = broker();
    let write = ProduceLoad {
        rate: None,
        records: 5_001,
        partitioning: Partitioning::RoundRobin,
        keys: Keys::Sequential(10),
        ..producers(&broker)
    };
    let read = ConsumeLoad {
        settings: settings(&broker, &[("group.id", "readers")]),
        ..consumers(&broker)
    };
    let (written, read, _) = run(&write, &read, &course(0, 60_000));
    check_whole(&written, &read);
    assert_eq!(written.acknowledged, 5_001);
    assert_eq!((written.latency.count(), written.service.count()), (0, 5_001));
    // The key has 8 digits.
    assert_eq!(written.bytes, 5_001 * 108);
}

#[test]
fn threads_that_wait_for_each_answer_report_that_they_are_late() {
    let broker = broker();
    let write = ProduceLoad {
        // One record in flight, each with 10 ms of linger: at most 100 records/s of the wanted
        // 1,000.
        settings: settings(&broker, &[("linger.ms", "10")]),
        clients: 1,
        threads: 1,
        rate: Some(1_000.0),
        is_synchronous: true,
        ..producers(&broker)
    };
    let outcome = produce::run(&write, &course(0, 1_000), &Live::default()).unwrap();
    assert!(outcome.sent < 200, "{}", outcome.sent);
    assert!(
        outcome.schedule_error.at(50.0) > 100_000,
        "{}",
        outcome.schedule_error.at(50.0)
    );
    // Waiting before the send is part of the latency, not of the service time.
    assert!(outcome.latency.at(50.0) > 100_000);
    assert!(outcome.service.at(50.0) < outcome.latency.at(50.0) / 2);
}

#[test]
fn readers_without_writers_end_with_the_course() {
    let broker = broker();
    let write = ProduceLoad {
        rate: None,
        records: 1_000,
        ..producers(&broker)
    };
    produce::run(&write, &course(0, 60_000), &Live::default()).unwrap();
    let outcome = consume::run(&consumers(&broker), &course(0, 1_000), &Live::default()).unwrap();
    assert_eq!((outcome.records_in_all, outcome.duplicated), (1_000, 0));
    // These records were due before this run began.
    assert_eq!(outcome.end_to_end.count(), 0);
}

#[test]
fn records_of_other_producers_are_told_apart() {
    let broker = broker();
    let producer = ottla_client::producer::Producer::new(
        &ottla_client::config::Config::new().set("bootstrap.servers", broker.address()),
    )
    .unwrap();
    let record = ottla_client::producer::Record::new("load").value(b"no stamp");
    producer.send(&record).unwrap().wait().unwrap();
    let outcome = consume::run(&consumers(&broker), &course(0, 1_000), &Live::default()).unwrap();
    assert_eq!((outcome.foreign, outcome.records_in_all), (1, 0));
}

#[test]
fn a_stop_ends_a_long_run() {
    let broker = broker();
    let course = course(0, 3_600_000);
    let stop = Arc::clone(&course.stop);
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(800));
        stop.store(true, Ordering::Relaxed);
    });
    let (written, read, _) = run(&producers(&broker), &consumers(&broker), &course);
    stopper.join().unwrap();
    assert!(written.acknowledged > 0);
    check_whole(&written, &read);
}

#[test]
fn a_topic_that_is_not_as_expected_is_an_error_before_the_run() {
    let broker = broker();
    let write = ProduceLoad {
        topics: vec![TopicLoad {
            name: String::from("load"),
            partitions: PARTITIONS + 1,
        }],
        ..producers(&broker)
    };
    let error = produce::run(&write, &course(0, 60_000), &Live::default()).unwrap_err();
    assert!(
        error.to_string().contains("3 partitions, 4 were expected"),
        "{error}"
    );
}
