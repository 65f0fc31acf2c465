//! Bare requests against a sink that counts them.

use std::net::TcpListener;
use std::time::Instant;

use super::*;
use crate::load::null_sink::NullSink;

fn load(address: SocketAddr) -> RequestLoad {
    RequestLoad {
        name: String::from("flood"),
        address,
        source: None,
        topics: vec![TopicLoad {
            name: String::from("t"),
            partitions: 1,
        }],
        api: Api::Produce,
        record_bytes: 32,
        connections: 3,
        in_flight: 4,
        client_ids: 1,
        rate: None,
        burst_every: Duration::ZERO,
        reconnects: false,
    }
}

fn run_for(load: &RequestLoad, millis: u64) -> RequestOutcome {
    let course = Course {
        begin: Instant::now(),
        warmup: Duration::ZERO,
        duration: Duration::from_millis(millis),
        stop: Default::default(),
    };
    run(load, &course).unwrap()
}

#[test]
fn every_kind_of_request_is_answered() {
    for api in [Api::Produce, Api::Metadata, Api::ApiVersions] {
        let sink = NullSink::start().unwrap();
        let outcome = run_for(
            &RequestLoad {
                api,
                ..load(sink.address())
            },
            300,
        );
        assert_eq!(outcome.errors, Default::default(), "{api:?}");
        assert!(outcome.answered > 0, "{api:?}");
        assert_eq!(outcome.service.count(), outcome.answered);
        assert_eq!(outcome.latency.count(), 0, "no request had a due time");
        assert_eq!(outcome.opened, 3);
        if api == Api::Produce {
            assert!(sink.record_count() >= outcome.answered);
        }
    }
}

#[test]
fn a_storm_opens_a_connection_for_each_request() {
    let sink = NullSink::start().unwrap();
    let storm = RequestLoad {
        api: Api::ApiVersions,
        in_flight: 1,
        reconnects: true,
        source: Some([127, 0, 0, 2].into()),
        ..load(sink.address())
    };
    let outcome = run_for(&storm, 300);
    assert_eq!(outcome.errors, Default::default());
    assert!(outcome.answered > 3);
    // Up to three are under way when it ends.
    let under_way = outcome.opened - outcome.answered;
    assert!(under_way <= 3, "{} of {}", outcome.answered, outcome.opened);
}

#[test]
fn a_burst_is_due_at_once_and_goes_out_as_answers_come() {
    let sink = NullSink::start().unwrap();
    let burst = RequestLoad {
        rate: Some(100.0),
        burst_every: Duration::from_secs(10),
        ..load(sink.address())
    };
    let course = Course {
        begin: Instant::now(),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(5),
        stop: Default::default(),
    };
    // All thousand of the first ten seconds are due when it begins; when they are answered, nothing
    // is left to wait for.
    let stop = course.stop.clone();
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&burst, &course).unwrap());
        while sink.record_count() < 1_000 && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        running.join().unwrap()
    });
    assert_eq!(sink.record_count(), 1_000);
    assert_eq!(outcome.answered + outcome.unanswered, 1_000);
    assert_eq!(outcome.latency.count(), outcome.answered);
}

#[test]
fn a_missing_broker_is_counted_as_errors_and_does_not_end_the_run() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let outcome = run_for(&load(address), 100);
    assert_eq!(outcome.answered, 0);
    assert!(outcome.failed > 0);
    assert!(
        outcome.errors.keys().any(|text| text.contains("refused")),
        "{:?}",
        outcome.errors
    );
}

#[test]
fn the_broker_s_refusals_are_reported_by_their_kafka_names() {
    let of = load("127.0.0.1:1".parse().unwrap());
    let requests = payload::Requests::new(&of);
    // Correlation id 7, one topic "t", partition 0, NOT_LEADER_OR_FOLLOWER (6), then offsets and
    // times.
    let mut answer = vec![0, 0, 0, 7, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0, 0, 6];
    answer.extend([0xff; 8 + 8 + 8]);
    answer.extend([0; 4]);
    let why = requests.judge(&answer, 7).unwrap_err();
    assert!(why.contains("NOT_LEADER_OR_FOLLOWER"), "{why}");
    let why = requests.judge(&answer, 8).unwrap_err();
    assert_eq!(why, "the answer to request 7 came for 8");
    answer[20] = 0;
    assert_eq!(requests.judge(&answer, 7), Ok(()));
    assert!(
        requests
            .judge(&answer[..12], 7)
            .unwrap_err()
            .contains("cannot be read")
    );
}

#[test]
fn impossible_loads_are_refused() {
    let good = load("127.0.0.1:1".parse().unwrap());
    let bad = [
        RequestLoad {
            connections: 0,
            ..good.clone()
        },
        RequestLoad {
            topics: Vec::new(),
            ..good.clone()
        },
        RequestLoad {
            rate: Some(f64::NAN),
            ..good.clone()
        },
    ];
    assert!(check(&good).is_ok());
    assert!(bad.iter().all(|load| check(load).is_err()));
}
