//! What is reported when evidence is missing, and that nothing is guessed then.

use super::rows::{ROW, Row};
use crate::doctor::diagnosis::{Confidence, Diagnosis, FindingId, Verdict};
use crate::doctor::rules::examine;
use crate::doctor::snapshot::{
    BrokerSide, Client, ClusterSide, Host, Library, Node, Producer, SilentWriters, Snapshot, Telemetry,
};

const LIVE: Row = Row {
    name: "live",
    records: 2_000.0,
    requests: 180.0,
    request_bytes: 3_100.0,
    batch: 3_029.0,
    records_per_request: 11.0,
    queue: Some(5.2),
    latency: 1.0,
    buffer_wait: Some(0.0),
    thread: Some((0.9, 0.03)),
    ..ROW
};

fn pushed(pushes: u32, seconds: f64) -> Snapshot {
    let mut snapshot = LIVE.snapshot();
    snapshot.seconds = seconds;
    snapshot.telemetry = Telemetry {
        pushes: Some(pushes),
        has_subscription: true,
        seconds_until_next_push: Some(4.0),
        ..Telemetry::default()
    };
    snapshot
}

#[test]
fn at_least_two_pushes_are_needed() {
    let one = examine(&pushed(1, 10.0));
    assert_eq!(one.verdict, Verdict::NotEnoughData);
    assert!(
        one.summary.contains("1 pushes") && one.summary.contains("next push in 4 s"),
        "{}",
        one.summary
    );
    assert!(one.refused.is_empty() && one.recommendation.is_none());
    assert_eq!(examine(&pushed(2, 10.0)).verdict, Verdict::KeepsUp);
    let mut restarted = pushed(6, 60.0);
    restarted.telemetry.restarted = true;
    assert_eq!(examine(&restarted).verdict, Verdict::NotEnoughData);
}

#[test]
fn producers_of_a_topic_that_push_nothing_are_counted() {
    let mut snapshot = Snapshot::default();
    snapshot.telemetry.pushes = Some(0);
    let of = |count, writers| {
        Some(ClusterSide {
            silent: Some(SilentWriters {
                topic: "orders".to_owned(),
                count,
                writers,
                producer_ids: vec![4_001, 4_002],
            }),
            ..ClusterSide::default()
        })
    };
    snapshot.cluster = of(1.0, 3.0);
    let some = examine(&snapshot);
    assert_eq!(some.verdict, Verdict::NotEnoughData);
    let expected = "3 producers write to topic orders (producer ids 4001, 4002, …), and no more than 2 of them push metrics.";
    assert_eq!(some.summary, expected);
    assert!(
        some.missing
            .iter()
            .any(|words| words.starts_with("Their metrics")),
        "{:?}",
        some.missing
    );
    snapshot.cluster = of(2.0, 2.0);
    let all = examine(&snapshot).summary;
    assert!(
        all.starts_with("2 producers write to topic orders (producer ids 4001, 4002) without"),
        "{all}"
    );
}

#[test]
fn producers_that_push_nothing_on_a_full_machine_may_have_no_time_for_it() {
    let mut snapshot = Snapshot::default();
    snapshot.telemetry.pushes = Some(0);
    snapshot.cluster = Some(ClusterSide {
        silent: Some(SilentWriters {
            topic: "orders".to_owned(),
            count: 1.0,
            writers: 1.0,
            producer_ids: vec![4_001],
        }),
        ..ClusterSide::default()
    });
    let machine = |used| {
        vec![BrokerSide {
            host: Some(Host {
                used: Some(used),
                waiting: Some(0.7),
                ..Host::default()
            }),
            ..BrokerSide::default()
        }]
    };
    snapshot.brokers = machine(0.7);
    assert_eq!(examine(&snapshot).verdict, Verdict::NotEnoughData);
    snapshot.brokers = machine(0.99);
    let full = examine(&snapshot);
    assert_eq!((full.verdict, full.confidence), (Verdict::Host, Confidence::Low));
    assert!(full.refused.is_empty(), "{:?}", full.refused);
    assert!(
        full.notes.iter().any(|note| note.contains("topic orders")),
        "{:?}",
        full.notes
    );
    // The cluster asks for no metrics.
    snapshot.telemetry.is_off_at_broker = true;
    assert_eq!(examine(&snapshot).verdict, Verdict::NotEnoughData);
}

#[test]
fn a_slow_client_needs_half_a_minute() {
    let mut slow = pushed(3, 20.0);
    let own = slow.producer.as_mut().unwrap();
    own.requests_per_second = Some(2.0);
    own.nodes[0].requests_per_second = Some(2.0);
    own.records_per_second = Some(2.0);
    assert_eq!(examine(&slow).verdict, Verdict::NotEnoughData);
    slow.seconds = 30.0;
    let diagnosis = examine(&slow);
    assert_eq!(
        (diagnosis.verdict, diagnosis.confidence),
        (Verdict::KeepsUp, Confidence::Low)
    );
}

fn client(library: Library, version: &str) -> Client {
    Client {
        library,
        software_name: Some("client".to_owned()),
        software_version: Some(version.to_owned()),
        ..Client::default()
    }
}

#[test]
fn librdkafka_s_metrics_alone_are_not_enough() {
    let snapshot = Snapshot {
        client: client(Library::Librdkafka, "2.16.0"),
        seconds: 60.0,
        telemetry: Telemetry {
            pushes: Some(6),
            ..Telemetry::default()
        },
        producer: Some(Producer {
            queue_ms: Some(0.22),
            request_ms: Some(0.75),
            nodes: vec![Node {
                node_id: 1,
                request_ms: Some(0.75),
                ..Node::default()
            }],
            ..Producer::default()
        }),
        ..Snapshot::default()
    };
    let alone = examine(&snapshot);
    assert_eq!(alone.verdict, Verdict::NotEnoughData);
    assert!(
        alone.missing[0].contains("batching and buffer cannot be seen"),
        "{:?}",
        alone.missing
    );
    let tells = |diagnosis: &Diagnosis| {
        let mut missing = diagnosis.missing.iter();
        missing.any(|words| words.contains("statistics.interval.ms"))
    };
    assert!(tells(&alone), "{:?}", alone.missing);
    let with_broker = Snapshot {
        brokers: vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(180.0),
            records_per_second: Some(2_000.0),
            bytes_per_second: Some(558_000.0),
            request_bytes: Some(3_100.0),
            records_per_request: Some(11.0),
            total_micros: Some(200.0),
            ..BrokerSide::default()
        }],
        ..snapshot
    };
    let counted = examine(&with_broker);
    assert_eq!(counted.verdict, Verdict::KeepsUp);
    assert!(!tells(&counted), "{:?}", counted.missing);
}

#[test]
fn franz_go_with_a_star_sends_nothing() {
    let snapshot = Snapshot {
        client: client(Library::FranzGo, "v1.21.5"),
        seconds: 20.0,
        telemetry: Telemetry {
            pushes: Some(4),
            empty_pushes: 4,
            ..Telemetry::default()
        },
        ..Snapshot::default()
    };
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::NotEnoughData);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("subscribe to the prefix `org.apache.kafka.`")),
        "{:?}",
        diagnosis.missing
    );
    assert!(
        !diagnosis
            .missing
            .iter()
            .any(|words| words.contains("does not push")),
        "{:?}",
        diagnosis.missing
    );
}

#[test]
fn franz_go_s_old_latencies_are_ignored() {
    let mut snapshot = pushed(6, 60.0);
    snapshot.client = client(Library::FranzGo, "1.21.3");
    let diagnosis = examine(&snapshot);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("are not latencies"))
    );
    assert!(
        diagnosis.evidence.iter().all(|line| line.formula != "F8"),
        "{:?}",
        diagnosis.evidence
    );
    snapshot.client = client(Library::FranzGo, "1.21.4");
    assert!(
        examine(&snapshot)
            .evidence
            .iter()
            .any(|line| line.formula == "F8")
    );
}

#[test]
fn no_sample_is_not_zero() {
    let mut snapshot = pushed(6, 60.0);
    let own = snapshot.producer.as_mut().unwrap();
    own.request_ms = None;
    own.nodes[0].request_ms = None;
    own.without_sample = vec!["request.latency.avg".to_owned()];
    let diagnosis = examine(&snapshot);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("no request in the window")),
        "{:?}",
        diagnosis.missing
    );
    assert_eq!(diagnosis.confidence, Confidence::Low);
}

/// A client that pushes nothing while its requests follow each other without a pause.
fn silent(rate: f64, request: f64, records: f64, broker_micros: f64, round_trip: f64) -> Snapshot {
    Snapshot {
        client: client(Library::Java, "4.3.0"),
        seconds: 60.0,
        telemetry: Telemetry {
            pushes: Some(0),
            has_subscription: true,
            ..Telemetry::default()
        },
        brokers: vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(rate),
            bytes_per_second: Some(rate * request),
            records_per_second: Some(rate * records),
            request_bytes: Some(request),
            records_per_request: Some(records),
            batch_bytes: Some(request),
            total_micros: Some(broker_micros),
            round_trip_ms: Some(round_trip),
            gap_ms: Some(round_trip),
            back_to_back_share: Some(0.97),
            has_overlap: Some(false),
            ..BrokerSide::default()
        }],
        ..Snapshot::default()
    }
}

#[test]
fn silence_with_a_full_pipe_is_evidence() {
    let diagnosis = examine(&silent(45.4, 16_260.0, 61.0, 300.0, 20.0));
    assert_eq!(diagnosis.verdict, Verdict::NetworkRtt, "{diagnosis:#?}");
    assert!(
        diagnosis.findings[0]
            .text
            .contains("R_max = M * 1000 / (RTT + D)"),
        "{:?}",
        diagnosis.findings
    );
    assert!(
        diagnosis.missing[0].contains("does not push"),
        "{:?}",
        diagnosis.missing
    );
    assert_eq!(diagnosis.findings[0].id, FindingId::N4);
    let change = diagnosis.recommendation.unwrap().set;
    assert_eq!(change, "max.in.flight.requests.per.connection=5");
    let synchronous = examine(&silent(80.0, 380.0, 1.0, 200.0, 12.0));
    assert_eq!(synchronous.verdict, Verdict::Synchronous, "{synchronous:#?}");
    let slow_broker = examine(&silent(8.0, 300_000.0, 1_600.0, 118_000.0, 0.3));
    assert_eq!(slow_broker.verdict, Verdict::Broker, "{slow_broker:#?}");
    let mut idle = silent(8.0, 16_260.0, 61.0, 300.0, 20.0);
    idle.brokers[0].back_to_back_share = Some(0.1);
    assert_eq!(examine(&idle).verdict, Verdict::NotEnoughData);
}

/// 300 records/s across 40 ms, one request in flight.
#[test]
fn one_at_a_time_that_takes_what_has_come_keeps_up() {
    let of = |batch: f64, largest: f64| {
        let mut snapshot = silent(24.5, batch + 80.0, 12.2, 300.0, 40.0);
        let side = &mut snapshot.brokers[0];
        (side.batch_bytes, side.batch_bytes_max) = (Some(batch), Some(largest));
        examine(&snapshot)
    };
    let healthy = of(7_423.0, 9_100.0);
    assert_eq!(healthy.verdict, Verdict::KeepsUp, "{healthy:#?}");
    assert_eq!(healthy.recommendation, None);
    // Batches of 6,300 bytes that are all alike, and full ones of the default.
    assert_eq!(of(6_200.0, 6_250.0).verdict, Verdict::NetworkRtt);
    assert_eq!(of(15_900.0, 16_384.0).verdict, Verdict::NetworkRtt);
}

#[test]
fn five_at_a_time_of_a_silent_client_are_a_full_pipe_of_small_batches() {
    let mut five = silent(122.0, 4_050.0, 4.0, 400.0, 40.0);
    five.brokers[0].batch_bytes_max = Some(4_060.0);
    for (share, has_overlap) in [(0.97, false), (0.5, true)] {
        five.brokers[0].back_to_back_share = Some(share);
        five.brokers[0].has_overlap = Some(has_overlap);
        let diagnosis = examine(&five);
        assert_eq!(diagnosis.verdict, Verdict::NetworkRtt, "{diagnosis:#?}");
        assert!(diagnosis.summary.contains("5 at a time"), "{}", diagnosis.summary);
        let change = diagnosis.recommendation.unwrap().set;
        assert_eq!(change, "batch.size=16384");
    }
}

/// A pace of its own of about five requests in each round trip.
#[test]
fn as_many_under_way_as_may_be_on_average_are_no_full_pipe() {
    let mut even = silent(120.0, 620.0, 1.0, 400.0, 40.0);
    even.brokers[0].batch_bytes_max = Some(622.0);
    for rate in [60.0, 120.0] {
        even.brokers[0].requests_per_second = Some(rate);
        assert_eq!(examine(&even).verdict, Verdict::KeepsUp, "{:#?}", examine(&even));
    }
    let mut some = silent(120.0, 2_600.0, 4.0, 400.0, 40.0);
    some.brokers[0].batch_bytes_max = Some(3_400.0);
    assert_eq!(examine(&some).verdict, Verdict::KeepsUp, "{:#?}", examine(&some));
    // The same client that pushes its latency, and no queue.
    let mut pushes = even.clone();
    pushes.client = client(Library::Librdkafka, "2.16.0");
    pushes.telemetry.pushes = Some(6);
    pushes.producer = Some(Producer {
        request_ms: Some(41.0),
        ..Producer::default()
    });
    let diagnosis = examine(&pushes);
    assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{diagnosis:#?}");
    assert_eq!(diagnosis.recommendation, None);
}

/// Callbacks of 2 ms: answers of a near broker are read late, and no request is ever free.
#[test]
fn a_java_client_that_cannot_push_uses_every_request_that_it_may_have() {
    let mut callbacks = silent(25.0, 20_300.0, 19.0, 600.0, 0.05);
    callbacks.seconds = 35.0;
    callbacks.telemetry.is_silent = true;
    callbacks.telemetry.push_interval_ms = Some(10_000.0);
    callbacks.brokers[0].back_to_back_share = Some(0.02);
    callbacks.brokers[0].gap_ms = Some(39.0);
    let diagnosis = examine(&callbacks);
    assert_eq!(diagnosis.verdict, Verdict::SenderThread, "{diagnosis:#?}");
    let change = diagnosis.recommendation.unwrap();
    assert!(change.set.contains("callback"), "{}", change.set);
    assert!(change.promise.unknown.is_some());
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.contains("cannot push")),
        "{:?}",
        diagnosis.missing
    );
    // Three in flight across 40 ms: neither one nor five, and still all that it may have.
    let mut three = callbacks.clone();
    (three.brokers[0].round_trip_ms, three.brokers[0].gap_ms) = (Some(40.0), Some(40.0));
    (three.brokers[0].requests_per_second, three.brokers[0].has_overlap) = (Some(74.0), Some(true));
    let diagnosis = examine(&three);
    assert_eq!(diagnosis.verdict, Verdict::NetworkRtt, "{diagnosis:#?}");
    assert!(diagnosis.summary.contains("3 at a time"), "{}", diagnosis.summary);
    // Without one of the conditions silence says nothing.
    let changes: [fn(&mut Snapshot); 4] = [
        |snapshot| snapshot.seconds = 20.0,
        |snapshot| snapshot.telemetry.is_silent = false,
        |snapshot| snapshot.brokers.push(BrokerSide::default()),
        |snapshot| snapshot.client.library = Library::Librdkafka,
    ];
    for change in changes {
        let mut other = callbacks.clone();
        change(&mut other);
        assert_eq!(examine(&other).verdict, Verdict::NotEnoughData);
    }
}

/// As it was built: processes that take all processors, and a client that never got to ask for a
/// subscription. Five requests are at the broker all the time.
#[test]
fn five_at_the_broker_all_the_time_wait_for_a_processor_where_the_machine_has_none() {
    let mut busy = silent(2_300.0, 16_200.0, 30.0, 2_100.0, 0.06);
    busy.telemetry.has_subscription = false;
    busy.brokers[0].back_to_back_share = Some(0.4);
    busy.brokers[0].has_overlap = Some(true);
    assert_eq!(examine(&busy).verdict, Verdict::Broker, "{:#?}", examine(&busy));
    busy.brokers[0].host = Some(Host {
        used: Some(0.99),
        waiting: Some(0.8),
        ..Host::default()
    });
    assert_eq!(examine(&busy).verdict, Verdict::Host, "{:#?}", examine(&busy));
    busy.brokers[0].round_trip_ms = Some(40.0);
    busy.brokers[0].requests_per_second = Some(118.0);
    assert_eq!(
        examine(&busy).verdict,
        Verdict::NetworkRtt,
        "{:#?}",
        examine(&busy)
    );
}

/// A full machine makes each request take some milliseconds longer; most of it is the way.
#[test]
fn a_full_machine_is_not_the_cause_where_half_of_a_request_is_the_round_trip() {
    let row = Row {
        records: 1_280.0,
        requests: 80.0,
        request_bytes: 16_300.0,
        batch: 16_200.0,
        batch_size: 16_384.0,
        records_per_request: 16.0,
        queue: Some(2_000.0),
        latency: 62.0,
        round_trip: 40.0,
        buffer_wait: Some(0.3),
        in_flight: 5.0,
        broker: Some((4.0, 3.0, 0.0)),
        ..LIVE
    };
    let on_full_machine = |row: Row| {
        let mut snapshot = row.snapshot();
        snapshot.host = Some(Host {
            used: Some(1.0),
            waiting: Some(0.7),
            ..Host::default()
        });
        examine(&snapshot)
    };
    let far = on_full_machine(row);
    assert_eq!(far.verdict, Verdict::SenderRate, "{far:#?}");
    let near = on_full_machine(Row {
        round_trip: 4.0,
        ..row
    });
    assert_eq!(near.verdict, Verdict::Host, "{near:#?}");
}

#[test]
fn a_broker_that_takes_no_metrics_is_the_reason_that_is_named() {
    let mut snapshot = silent(67.0, 16_260.0, 61.0, 300.0, 20.0);
    snapshot.brokers[0].back_to_back_share = Some(0.1);
    snapshot.telemetry.is_off_at_broker = true;
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::NotEnoughData, "{diagnosis:#?}");
    assert!(
        diagnosis.summary.contains("does not take metrics") && diagnosis.summary.contains("67 requests/s"),
        "{}",
        diagnosis.summary
    );
    assert!(
        diagnosis.missing[0].contains("switched off"),
        "{:?}",
        diagnosis.missing
    );
    // Requests without a pause are evidence all the same.
    snapshot.brokers[0].back_to_back_share = Some(0.97);
    snapshot.brokers[0].requests_per_second = Some(45.4);
    assert_eq!(examine(&snapshot).verdict, Verdict::NetworkRtt);
}

#[test]
fn metadata_comes_before_tuning() {
    let mut snapshot = pushed(6, 60.0);
    snapshot.producer.as_mut().unwrap().metadata_wait = Some(0.9);
    let diagnosis = examine(&snapshot);
    assert!(diagnosis.findings.iter().any(|found| found.id == FindingId::E3));
    assert!(
        diagnosis
            .recommendation
            .unwrap()
            .set
            .starts_with("create the topic")
    );
    // The first fetch of a client that has just started is no finding: 0.44 s in 25 s.
    let mut started = LIVE.snapshot();
    started.seconds = 25.0;
    started.producer.as_mut().unwrap().metadata_wait = Some(0.0178);
    assert!(
        examine(&started)
            .findings
            .iter()
            .all(|found| found.id != FindingId::E3)
    );
}

#[test]
fn callbacks_whose_time_is_known_need_no_backlog() {
    // A client with callbacks on a thread beside its I/O thread sends at 2,000 records/s and
    // confirms 930 of them.
    let mut snapshot = pushed(6, 60.0);
    snapshot.application.offered_records_per_second = Some(2_000.0);
    snapshot.application.callback_micros = Some(1_075.0);
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::SenderThread, "{diagnosis:#?}");
    let promise = diagnosis.recommendation.unwrap().promise;
    assert_eq!(
        (promise.now.map(f64::round), promise.high),
        (Some(930.0), 2_000.0)
    );
    snapshot.application.callback_micros = Some(100.0);
    assert_eq!(examine(&snapshot).verdict, Verdict::KeepsUp);
}

#[test]
fn a_full_pipe_of_small_requests_is_no_overload() {
    // F9: U = 1 and Z = 0.35 were measured on a producer that kept up.
    let row = Row {
        records: 100_000.0,
        requests: 410.0,
        request_bytes: 69_000.0,
        batch: 40_700.0,
        batch_size: 65_536.0,
        partitions: 3.0,
        latency: 12.2,
        queue: Some(18.0),
        linger: Some(5.0),
        in_flight: 5.0,
        ..LIVE
    };
    let diagnosis = examine(&row.snapshot());
    assert_eq!(diagnosis.verdict, Verdict::Application, "{diagnosis:#?}");
    let full = Row {
        batch: 63_000.0,
        request_bytes: 180_000.0,
        ..row
    };
    let diagnosis = examine(&full.snapshot());
    assert_eq!(diagnosis.verdict, Verdict::SenderRate, "{diagnosis:#?}");
    assert!(
        diagnosis.summary.contains("near its ceiling"),
        "{}",
        diagnosis.summary
    );
}

#[test]
fn one_full_broker_is_a_skew() {
    let mut row = LIVE;
    row.brokers = 3.0;
    row.requests = 1_500.0;
    row.batch = 16_000.0;
    row.queue = Some(3_000.0);
    row.buffer_wait = Some(0.5);
    row.latency = 9.8;
    let mut snapshot = row.snapshot();
    for (node, rate) in snapshot
        .producer
        .as_mut()
        .unwrap()
        .nodes
        .iter_mut()
        .zip([500.0, 120.0, 110.0])
    {
        node.requests_per_second = Some(rate);
    }
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::Skew, "{diagnosis:#?}");
    assert_eq!(diagnosis.findings[0].id, FindingId::B2);
    // A broker that only answers metadata is not a second leader.
    let nodes = &mut snapshot.producer.as_mut().unwrap().nodes;
    nodes[1].requests_per_second = Some(0.2);
    nodes[2].requests_per_second = Some(0.1);
    assert_ne!(examine(&snapshot).verdict, Verdict::Skew);
}

#[test]
fn retries_are_named_by_code() {
    let mut snapshot = pushed(6, 60.0);
    snapshot.producer.as_mut().unwrap().retried_records = Some(2_000.0);
    snapshot.brokers = vec![BrokerSide {
        node_id: Some(1),
        errors: [("NOT_ENOUGH_REPLICAS".to_owned(), 40.0)].into(),
        ..BrokerSide::default()
    }];
    let diagnosis = examine(&snapshot);
    let retries = diagnosis
        .findings
        .iter()
        .find(|found| found.id == FindingId::E4)
        .unwrap();
    assert!(
        retries.text.contains("NOT_ENOUGH_REPLICAS 40 times"),
        "{}",
        retries.text
    );
}
