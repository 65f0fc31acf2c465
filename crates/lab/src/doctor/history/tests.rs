//! Windows over pushes, restarts, expiry, bounds, and what brokers add.

use super::super::sample_push::{Sample, cumulative, delta, gauge, payload};
use proptest::prelude::*;

use super::super::adapters::Measure;
use super::super::snapshot::{Library, Origin, Setting};
use super::instance::BYTES_MAX;
use super::*;
use crate::doctor::diagnosis::{Diagnosis, Seen, Verdict};

/// The start of the first push, in milliseconds since 1970.
const BEGIN_MS: i64 = 1_800_000_000_000;

fn java(instance_id: &str) -> PushedFrom<'_> {
    PushedFrom {
        client_id: "p",
        instance_id,
        software_name: Some("apache-kafka-java"),
        software_version: Some("4.3.0"),
        push_interval_ms: Some(10_000.0),
        ..PushedFrom::default()
    }
}

/// Pushes of one client: its clock and the receiver's agree.
struct Pushes<'a> {
    collector: &'a Collector,
    from: PushedFrom<'a>,
    now_ms: i64,
}

impl<'a> Pushes<'a> {
    fn new(collector: &'a Collector, from: PushedFrom<'a>) -> Pushes<'a> {
        Pushes {
            collector,
            from,
            now_ms: BEGIN_MS,
        }
    }

    fn push(&mut self, interval_ms: i64, samples: &[Sample]) {
        let start_ms = self.now_ms as f64;
        self.now_ms += interval_ms;
        let payload = payload(start_ms, self.now_ms as f64, &[], samples);
        self.collector.push(self.from, &payload, self.now_ms).unwrap();
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshots = self.collector.snapshots(self.now_ms);
        assert_eq!(snapshots.len(), 1);
        snapshots.remove(0)
    }

    fn producer(&self) -> super::super::snapshot::Producer {
        self.snapshot().producer.unwrap()
    }
}

/// A steady producer's numbers over an interval.
fn steady(interval_ms: i64) -> Vec<Sample> {
    let seconds = interval_ms as f64 / 1000.0;
    vec![
        delta("producer.request.total", 365.0 * seconds),
        delta("producer.record.send.total", 62_000.0 * seconds),
        delta("producer.outgoing.byte.total", 16_600_000.0 * seconds),
        delta("producer.bufferpool.wait.time.ns.total", 3.4e9 * seconds),
        gauge("producer.batch.size.avg", 15_000.0),
        gauge("producer.request.latency.avg", 13.5),
    ]
}

#[test]
fn sums_of_jittered_pushes_add_up_to_the_true_rate() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for interval_ms in [14_300, 10_004, 9_996, 10_020, 9_980, 10_000, 5_200, 4_800, 10_013] {
        pushes.push(interval_ms, &steady(interval_ms));
    }
    let snapshot = pushes.snapshot();
    assert!((54.0..=66.0).contains(&snapshot.seconds), "{}", snapshot.seconds);
    let producer = snapshot.producer.unwrap();
    assert!((producer.requests_per_second.unwrap() - 365.0).abs() < 0.1);
    assert!((producer.records_per_second.unwrap() - 62_000.0).abs() < 10.0);
    assert!((producer.requests.unwrap() / snapshot.seconds - 365.0).abs() < 0.1);
    // Rule 11: thread-seconds per second, not a ratio.
    assert!((producer.buffer_wait.unwrap() - 3.4).abs() < 0.001);
    assert_eq!(producer.request_ms, Some(13.5));
}

#[test]
fn the_window_is_a_minute_or_three_pushes() {
    let window = |interval_ms: i64, count: usize| {
        let collector = Collector::default();
        let from = PushedFrom {
            push_interval_ms: Some(interval_ms as f64),
            ..java("i")
        };
        let mut pushes = Pushes::new(&collector, from);
        for _ in 0..count {
            pushes.push(interval_ms, &steady(interval_ms));
        }
        let snapshot = pushes.snapshot();
        (snapshot.seconds, snapshot.telemetry.pushes.unwrap())
    };
    assert_eq!(window(10_000, 20), (60.0, 6));
    assert_eq!(window(300_000, 20), (900.0, 3));
    assert_eq!(window(30_000, 20), (90.0, 3));
    assert_eq!(window(10_000, 2), (20.0, 2));
    let (seconds, pushes) = window(100, 2_000);
    assert!(
        (50.0..=66.0).contains(&seconds) && pushes >= 500,
        "{seconds} {pushes}"
    );
}

#[test]
fn averages_are_of_the_same_minute_as_the_counts() {
    // Rule 10: a Java average of 45 s ago is about the minute before.
    let latencies = |library: &'static str, latencies: &[(f64, f64)]| {
        let collector = Collector::default();
        let from = PushedFrom {
            software_name: Some(library),
            software_version: Some("2.16.0"),
            ..java("i")
        };
        let mut pushes = Pushes::new(&collector, from);
        for (latency_ms, requests) in latencies {
            pushes.push(
                10_000,
                &[
                    delta("producer.request.total", *requests),
                    gauge("producer.request.latency.avg", *latency_ms),
                ],
            );
        }
        pushes.producer().request_ms.unwrap()
    };
    let course = [
        (90.0, 100.0),
        (90.0, 100.0),
        (90.0, 100.0),
        (10.0, 100.0),
        (10.0, 100.0),
        (40.0, 100.0),
    ];
    assert_eq!(latencies("apache-kafka-java", &course), 20.0);
    // Averages since the last push all belong to the window.
    assert_eq!(latencies("librdkafka", &course), 55.0);
    // Weighted by the requests that they are means of.
    assert_eq!(latencies("librdkafka", &[(10.0, 300.0), (50.0, 100.0)]), 20.0);
}

#[test]
fn setting_the_client_s_clock_does_not_change_the_rate() {
    let collector = Collector::default();
    let mut at_ms = BEGIN_MS;
    let mut clock_ms = BEGIN_MS as f64;
    for jump_ms in [0.0, 0.0, 3_600_000.0, 0.0, -3_600_000.0, 0.0, 0.0] {
        let start_ms = clock_ms;
        clock_ms += 10_000.0 + jump_ms;
        at_ms += 10_000;
        let bytes = payload(start_ms, clock_ms, &[], &steady(10_000));
        collector.push(java("i"), &bytes, at_ms).unwrap();
        let snapshot = &collector.snapshots(at_ms)[0];
        let rate = snapshot.producer.as_ref().unwrap().requests_per_second.unwrap();
        assert!((rate - 365.0).abs() < 0.1, "{rate} after {jump_ms}");
        assert!(snapshot.seconds < 70.0);
    }
}

#[test]
fn a_lost_push_leaves_a_gap_and_no_wrong_rate() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &steady(10_000));
    pushes.now_ms += 20_000;
    pushes.push(10_000, &steady(10_000));
    assert!((pushes.producer().requests_per_second.unwrap() - 365.0).abs() < 0.1);
}

#[test]
fn counts_of_hours_before_the_first_push_are_not_of_the_window() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(
        7_200_000,
        &[
            delta("producer.request.total", 1.0),
            gauge("producer.requests.in.flight", 3.0),
        ],
    );
    let first = pushes.producer();
    assert_eq!((first.requests_per_second, first.in_flight), (None, Some(3.0)));
    pushes.push(10_000, &steady(10_000));
    assert!((pushes.producer().requests_per_second.unwrap() - 365.0).abs() < 0.1);
    assert_eq!(pushes.snapshot().seconds, 10.0);
}

#[test]
fn a_sum_since_the_beginning_is_read_by_its_growth() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for total in [5_000.0, 5_100.0, 5_300.0] {
        pushes.push(
            10_000,
            &[
                cumulative("producer.request.total", total),
                gauge("producer.requests.in.flight", 1.0),
            ],
        );
    }
    let producer = pushes.producer();
    assert_eq!(
        (producer.requests, producer.requests_per_second),
        (Some(300.0), Some(15.0))
    );
    pushes.push(10_000, &[cumulative("producer.request.total", 7.0)]);
    assert_eq!(
        pushes.producer().requests,
        Some(300.0),
        "it restarted: nothing is known about this interval"
    );
}

#[test]
fn gauges_are_the_last_and_peaks_the_highest() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for (in_flight, waiting, queue_max) in [
        (1.0, 0.0, 10.0),
        (5.0, 2.0, 20.0),
        (2.0, 1.0, 30.0),
        (3.0, 0.0, 40.0),
    ] {
        pushes.push(
            10_000,
            &[
                delta("producer.request.total", 1.0),
                gauge("producer.requests.in.flight", in_flight),
                gauge("producer.waiting.threads", waiting),
                gauge("producer.record.queue.time.max", queue_max),
            ],
        );
    }
    let producer = pushes.producer();
    assert_eq!(
        (producer.in_flight, producer.in_flight_max),
        (Some(3.0), Some(5.0))
    );
    assert_eq!(
        (producer.waiting_threads, producer.pushes_with_waiting_threads),
        (Some(0.0), 2)
    );
    assert_eq!(producer.queue_ms_max_course, [10.0, 20.0, 30.0, 40.0]);
}

#[test]
fn nodes_and_topics_have_their_own_numbers() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for _ in 0..2 {
        let node = |name: &str, id: &str, value: f64| match name.ends_with("total") {
            true => delta(name, value).with("node_id", id),
            false => gauge(name, value).with("node_id", id),
        };
        pushes.push(
            10_000,
            &[
                node("producer.node.request.total", "node-1", 100.0),
                node("producer.node.request.total", "node-2", 300.0),
                node("producer.node.request.total", "node-3", 0.0),
                node("producer.node.request.total", "node--1", 4.0),
                node("producer.node.request.latency.avg", "node-1", 2.0),
                node("producer.node.request.latency.avg", "node-2", 8.0),
                node("producer.node.request.latency.avg", "node-3", f64::NAN),
                node("producer.node.outgoing.byte.total", "node-2", 5_000.0),
                delta("producer.topic.record.send.total", 70.0).with("topic", "t"),
                delta("producer.topic.byte.total", 900.0).with("topic", "t"),
                gauge("producer.topic.compression.rate", 0.6).with("topic", "t"),
            ],
        );
    }
    let producer = pushes.producer();
    let nodes: Vec<_> = producer
        .nodes
        .iter()
        .map(|node| (node.node_id, node.requests_per_second, node.request_ms))
        .collect();
    assert_eq!(nodes, [(1, Some(10.0), Some(2.0)), (2, Some(30.0), Some(8.0))]);
    assert_eq!(producer.nodes[1].bytes_per_second, Some(500.0));
    let topic = &producer.topics["t"];
    assert_eq!(
        (topic.records_per_second, topic.bytes_per_second),
        (Some(7.0), Some(90.0))
    );
    assert!((topic.compression_rate.unwrap() - 0.6).abs() < 1e-9);
    // Without an average over all nodes, the nodes' averages are used.
    assert_eq!(producer.request_ms, Some(5.0));
}

#[test]
fn waiting_for_the_first_metadata_is_not_waiting_now() {
    let wait = |metadata_age: f64| {
        let collector = Collector::default();
        let mut pushes = Pushes::new(&collector, java("i"));
        pushes.push(
            10_000,
            &[
                delta("producer.metadata.wait.time.ns.total", 4e8),
                gauge("producer.metadata.age", metadata_age),
            ],
        );
        pushes.producer().metadata_wait.unwrap()
    };
    assert_eq!(wait(9.6), 0.0);
    assert!((wait(0.3) - 0.04).abs() < 1e-6);
}

#[test]
fn a_client_that_restarts_is_counted_from_zero() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    let push = |pushes: &mut Pushes<'_>, started_ms: f64, requests: f64| {
        pushes.push(
            10_000,
            &[
                gauge("app.info.start.time.ms", started_ms),
                delta("producer.request.total", requests),
            ],
        );
    };
    for _ in 0..3 {
        push(&mut pushes, BEGIN_MS as f64, 100.0);
    }
    assert!(!pushes.snapshot().telemetry.restarted);
    push(&mut pushes, BEGIN_MS as f64 + 30_000.0, 7.0);
    let snapshot = pushes.snapshot();
    assert!(snapshot.telemetry.restarted);
    assert_eq!(
        (snapshot.telemetry.pushes, snapshot.producer.unwrap().requests),
        (Some(1), Some(7.0))
    );
    push(&mut pushes, BEGIN_MS as f64 + 30_000.0, 7.0);
    assert!(!pushes.snapshot().telemetry.restarted);
}

#[test]
fn the_terminating_push_counts_and_no_further_push_is_awaited() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &steady(10_000));
    let waiting = collector.snapshots(pushes.now_ms + 4_000);
    assert_eq!(waiting[0].telemetry.seconds_until_next_push, Some(6.0));
    pushes.from.is_terminating = true;
    pushes.push(1_300, &steady(1_300));
    let snapshot = pushes.snapshot();
    assert_eq!(
        (
            snapshot.telemetry.pushes,
            snapshot.telemetry.seconds_until_next_push
        ),
        (Some(2), None)
    );
    assert!((snapshot.producer.unwrap().requests_per_second.unwrap() - 365.0).abs() < 0.1);
}

#[test]
fn silent_clients_expire_after_a_minute_or_three_intervals() {
    let collector = Collector::default();
    for (instance_id, interval_ms) in [("short", 10_000.0), ("long", 30_000.0)] {
        let from = PushedFrom {
            push_interval_ms: Some(interval_ms),
            ..java(instance_id)
        };
        collector
            .push(from, &payload(0.0, 10.0, &[], &steady(10)), BEGIN_MS)
            .unwrap();
    }
    let count = |after_ms: i64| collector.snapshots(BEGIN_MS + after_ms).len();
    assert_eq!(
        [count(59_999), count(60_000), count(89_999), count(90_000)],
        [2, 1, 1, 0]
    );
    assert_eq!(collector.instance_count(), 0);
}

#[test]
fn an_empty_push_is_one_without_metrics() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.from.software_name = Some("kgo");
    pushes.push(10_000, &[]);
    pushes.push(10_000, &[]);
    let snapshot = pushes.snapshot();
    let telemetry = snapshot.telemetry;
    assert_eq!((telemetry.pushes, telemetry.empty_pushes), (Some(2), 2));
    assert_eq!(
        (snapshot.producer, snapshot.client.library),
        (None, Library::FranzGo)
    );
}

#[test]
fn ottlas_own_client_reports_what_no_other_does() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.from.software_name = Some("ottla-client");
    pushes.push(
        10_000,
        &[
            delta("producer.request.total", 1.0),
            gauge("ottla.producer.send.time.avg", 0.0116),
            gauge("ottla.producer.sending.threads", 3.0),
            gauge("ottla.producer.callback.time.avg", 0.002),
        ],
    );
    let application = pushes.snapshot().application;
    assert!((application.send_micros.unwrap() - 11.6).abs() < 1e-9);
    assert_eq!(
        (application.threads, application.callback_micros),
        (Some(3.0), Some(2.0))
    );
}

#[test]
fn ottlas_own_client_tells_its_settings() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.from.software_name = Some("ottla-client");
    pushes.push(
        10_000,
        &[
            delta("producer.request.total", 1.0),
            gauge("ottla.producer.setting.max.in.flight", 1.0),
            gauge("ottla.producer.setting.linger.ms", 0.0),
            gauge("ottla.producer.setting.acks", 1.0),
            gauge("ottla.producer.setting.send.buffer.bytes", -1.0),
        ],
    );
    let settings = pushes.snapshot().settings;
    let told = |value| {
        Some(Setting {
            value,
            origin: Origin::Told,
        })
    };
    assert_eq!((settings.in_flight, settings.linger_ms), (told(1.0), told(0.0)));
    assert_eq!(settings.acks.map(|acks| acks.value), Some(1));
    assert_eq!(
        settings.send_buffer_bytes, None,
        "the system's default is not known"
    );
    assert_eq!(settings.batch_bytes, None);
}

fn consumer(lag: f64, lead: f64, rebalances: f64) -> Vec<Sample> {
    let of_partition = |name: &str, value: f64| gauge(name, value).with("topic", "t").with("partition", "0");
    vec![
        gauge("app.info.start.time.ms", BEGIN_MS as f64),
        delta("consumer.fetch.manager.records.consumed.total", 1_000.0),
        delta("consumer.coordinator.rebalance.total", rebalances),
        gauge("consumer.coordinator.rebalance.latency.max", 3_000.0),
        of_partition("consumer.fetch.manager.records.lag", lag),
        of_partition("consumer.fetch.manager.records.lead", lead),
    ]
}

#[test]
fn lag_has_a_slope_over_the_window() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for second in 0..5 {
        let time = f64::from(second) * 12.0;
        pushes.push(12_000, &consumer(5_000.0 + 30.0 * time, 100.0 + 70.0 * time, 0.0));
    }
    let consumer = pushes.snapshot().consumer.unwrap();
    let partition = &consumer.partitions[0];
    assert_eq!(partition.lag, Some(5_000.0 + 30.0 * 48.0));
    assert!((partition.lag_slope.unwrap() - 30.0).abs() < 1e-6);
    assert!((partition.consumed_per_second.unwrap() - 70.0).abs() < 1e-6);
    assert!((partition.produced_per_second.unwrap() - 100.0).abs() < 1e-6);
    assert_eq!(consumer.lag_max, partition.lag);
}

/// A client makes all of its connections at its start, which one push tells of.
#[test]
fn connections_are_counted_where_every_push_tells_of_some() {
    let per_second = |made: &[f64]| {
        let collector = Collector::default();
        let mut pushes = Pushes::new(&collector, java("i"));
        for made in made {
            pushes.push(12_000, &[delta("consumer.connection.creation.total", *made)]);
        }
        pushes.snapshot().consumer.unwrap().connections_per_second
    };
    assert_eq!(per_second(&[30.0]), None);
    assert_eq!(per_second(&[30.0, 0.0]), Some(0.0));
    assert_eq!(per_second(&[30.0, 24.0, 36.0]), Some(2.0));
}

#[test]
fn the_first_join_is_not_a_rebalance() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(12_000, &consumer(0.0, 0.0, 1.0));
    let first = pushes.snapshot().consumer.unwrap();
    assert_eq!((first.rebalances, first.rebalance_ms_max), (Some(0.0), None));
    pushes.push(12_000, &consumer(0.0, 0.0, 1.0));
    let second = pushes.snapshot().consumer.unwrap();
    assert_eq!(
        (second.rebalances, second.rebalance_ms_max),
        (Some(1.0), Some(3_000.0))
    );
}

/// Measured on a busy machine: it pushed for the first time before it had joined.
#[test]
fn a_first_join_after_the_first_push_is_no_rebalance_either() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    let mut rebalances_after = |rebalances: f64| {
        pushes.push(12_000, &consumer(0.0, 0.0, rebalances));
        pushes.snapshot().consumer.unwrap().rebalances
    };
    assert_eq!(rebalances_after(0.0), Some(0.0));
    assert_eq!(rebalances_after(1.0), Some(0.0));
    assert_eq!(rebalances_after(1.0), Some(1.0));
}

#[test]
fn a_partition_that_was_given_away_is_not_shown() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(12_000, &consumer(7.0, 1.0, 0.0));
    pushes.push(
        12_000,
        &[delta("consumer.fetch.manager.records.consumed.total", 1.0)],
    );
    assert_eq!(pushes.snapshot().consumer.unwrap().partitions, []);
}

#[test]
fn no_client_takes_more_than_its_bytes() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for round in 0..12 {
        let mut samples = steady(10_000);
        for number in 0..600 {
            let topic = format!("{}{round}-{number}", "t".repeat(200));
            samples.push(delta("producer.topic.byte.total", f64::from(number)).with("topic", &topic));
            samples.push(delta("producer.topic.record.send.total", 1.0).with("topic", &topic));
            samples
                .push(delta("producer.node.request.total", 1.0).with("node_id", &format!("node-{number}")));
        }
        pushes.push(10_000, &samples);
        assert!(
            collector.bytes() < BYTES_MAX + 2_000,
            "{} bytes",
            collector.bytes()
        );
    }
    let producer = pushes.producer();
    // The newest ones, those with the most bytes, are kept.
    assert!(
        producer
            .topics
            .contains_key(&format!("{}11-599", "t".repeat(200)))
    );
    assert!(!producer.topics.contains_key(&format!("{}11-0", "t".repeat(200))));
    assert!((producer.requests_per_second.unwrap() - 365.0).abs() < 0.1);
}

#[test]
fn a_wide_consumer_keeps_its_worst_partitions() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for _ in 0..12 {
        let samples: Vec<Sample> = (0..1_000)
            .flat_map(|partition| {
                let label = partition.to_string();
                let named =
                    |name: &str, value: f64| gauge(name, value).with("topic", "t").with("partition", &label);
                [
                    named("consumer.fetch.manager.records.lag", f64::from(partition)),
                    named("consumer.fetch.manager.records.lead", 5.0),
                ]
            })
            .collect();
        pushes.push(10_000, &samples);
        assert!(
            collector.bytes() < BYTES_MAX + 2_000,
            "{} bytes",
            collector.bytes()
        );
    }
    let snapshot = pushes.snapshot();
    let consumer = snapshot.consumer.clone().unwrap();
    let followed = consumer.partitions.len();
    let expected = format!("{followed} of the 1,000 partitions that it pushes are followed");
    let notes = crate::doctor::rules::examine(&snapshot).notes;
    assert!(notes.iter().any(|note| note.starts_with(&expected)), "{notes:?}");
    assert_eq!(consumer.lag_max, Some(999.0));
    assert!(consumer.partitions.len() >= 100 && consumer.partitions[0].lag_slope == Some(0.0));
}

#[test]
fn the_instance_that_is_silent_longest_makes_room() {
    let collector = Collector::new(160);
    let ids: Vec<String> = (0..5_000).map(|number| format!("changing-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let at_ms = BEGIN_MS + number as i64;
        collector
            .push(java(id), &payload(0.0, 1.0, &[], &steady(1)), at_ms)
            .unwrap();
        assert!(collector.instance_count() <= 160);
    }
    let newest = collector.snapshots(BEGIN_MS + 5_000);
    let is_there = |id: &str| {
        newest
            .iter()
            .any(|snapshot| snapshot.client.instance_id.as_deref() == Some(id))
    };
    assert!(is_there("changing-4999") && !is_there("changing-0"));
    assert!(newest.len() > 100);
}

#[test]
fn malformed_payloads_leave_no_trace() {
    let collector = Collector::default();
    assert_eq!(
        collector.push(java("i"), b"\xff\xff", BEGIN_MS),
        Err(Malformed::CutOff)
    );
    assert_eq!(collector.instance_count(), 0);
}

#[test]
fn a_payload_of_an_exporter_is_split_by_client() {
    let collector = Collector::default();
    let from = PushedFrom {
        address: Some("10.0.0.7:4318"),
        push_interval_ms: Some(10_000.0),
        ..PushedFrom::default()
    };
    let one = |client: &'static str, requests: f64| {
        payload(
            1.0,
            10_001.0,
            &[("client_id", client)],
            &[delta("producer.request.total", requests)],
        )
    };
    // Protobuf messages are merged by concatenating their bytes.
    let both = [one("a", 10.0), one("b", 20.0)].concat();
    collector.push(from, &both, BEGIN_MS).unwrap();
    let requests: Vec<_> = collector
        .snapshots(BEGIN_MS)
        .into_iter()
        .map(|snapshot| (snapshot.client.client_id, snapshot.producer.unwrap().requests))
        .collect();
    assert_eq!(
        requests,
        [("a".to_owned(), Some(10.0)), ("b".to_owned(), Some(20.0))]
    );
}

fn observed(client_id: &str, instance_id: Option<&str>, node_id: i32, requests: f64) -> Observed {
    Observed {
        client: Client {
            client_id: client_id.to_owned(),
            instance_id: instance_id.map(str::to_owned),
            software_name: Some("apache-kafka-java".to_owned()),
            ..Client::default()
        },
        seconds: 60.0,
        broker: BrokerSide {
            node_id: Some(node_id),
            requests_per_second: Some(requests),
            round_trip_ms: Some(f64::from(node_id)),
            ..BrokerSide::default()
        },
        settings: Settings {
            acks: Some(Setting {
                value: -1,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        },
        has_subscription: true,
        ..Observed::default()
    }
}

#[test]
fn a_client_missing_from_a_broker_s_last_report_is_gone() {
    let collector = Collector::default();
    let names = |at_ms| -> Vec<String> {
        let snapshots = collector.snapshots(at_ms).into_iter();
        snapshots.map(|snapshot| snapshot.client.client_id).collect()
    };
    collector.observe(observed("p", None, 1, 5.0), BEGIN_MS);
    collector.observe(observed("q", None, 2, 5.0), BEGIN_MS);
    // The same connections after they have named their instance; another broker has not reported
    // since.
    collector.observe(observed("r", Some("i"), 1, 5.0), BEGIN_MS + 5_000);
    assert_eq!(names(BEGIN_MS + 5_001), ["q", "r"]);
    collector.observe(observed("p", None, 1, 5.0), BEGIN_MS + 5_100);
    assert_eq!(names(BEGIN_MS + 5_101), ["p", "q", "r"]);
}

#[test]
fn what_brokers_saw_is_added_to_the_client_it_is_about() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &steady(10_000));
    for (node_id, requests) in [(1, 5.0), (2, 7.0), (1, 6.0)] {
        collector.observe(observed("p", None, node_id, requests), pushes.now_ms);
    }
    let snapshot = pushes.snapshot();
    let rates: Vec<_> = snapshot
        .brokers
        .iter()
        .map(|side| (side.node_id, side.requests_per_second))
        .collect();
    assert_eq!(rates, [(Some(1), Some(6.0)), (Some(2), Some(7.0))]);
    assert_eq!(snapshot.settings.acks.unwrap().value, -1);
    assert_eq!(snapshot.network.round_trip_ms, Some(2.0));
    assert!(snapshot.producer.is_some());
}

/// What a cluster tells of a topic is about the client that says that it writes to it. Without that
/// client it is not about anyone.
#[test]
fn a_complement_is_no_client_of_its_own() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &steady(10_000));
    let complement = |instance_id: &str| Observed {
        client: Client {
            client_id: "p".to_owned(),
            instance_id: Some(instance_id.to_owned()),
            ..Client::default()
        },
        cluster: Some(ClusterSide {
            records_per_second: Some(7.0),
            ..ClusterSide::default()
        }),
        is_complement: true,
        ..Observed::default()
    };
    collector.observe(complement("i"), pushes.now_ms);
    collector.observe(complement("gone"), pushes.now_ms);
    let snapshots = collector.snapshots(pushes.now_ms);
    let [one] = &snapshots[..] else {
        panic!("one client: {snapshots:?}")
    };
    assert_eq!(
        one.cluster.as_ref().and_then(|side| side.records_per_second),
        Some(7.0)
    );
    assert!(one.brokers.is_empty(), "no broker measured it");
    let pushing = collector.pushing(pushes.now_ms);
    assert_eq!(pushing.len(), 1);
    assert_eq!(pushing[0].client.instance_id.as_deref(), Some("i"));
}

#[test]
fn two_instances_of_one_client_id_do_not_share_a_brokers_view() {
    let collector = Collector::default();
    for instance_id in ["i", "j"] {
        Pushes::new(&collector, java(instance_id)).push(10_000, &steady(10_000));
    }
    let now_ms = BEGIN_MS + 10_000;
    collector.observe(observed("p", None, 1, 5.0), now_ms);
    collector.observe(observed("p", Some("j"), 1, 3.0), now_ms);
    let sides: Vec<_> = collector
        .snapshots(now_ms)
        .into_iter()
        .map(|snapshot| {
            let rate = snapshot.brokers.first().and_then(|side| side.requests_per_second);
            (snapshot.client.instance_id, rate)
        })
        .collect();
    let named = |id: &str| Some(id.to_owned());
    assert_eq!(
        sides,
        [(None, Some(5.0)), (named("i"), None), (named("j"), Some(3.0))]
    );
}

#[test]
fn a_client_that_the_broker_asks_for_nothing_is_not_silent() {
    let collector = Collector::default();
    let off = Observed {
        is_off_at_broker: true,
        ..observed("off", None, 1, 45.0)
    };
    collector.observe(off, BEGIN_MS);
    let telemetry = collector.snapshots(BEGIN_MS)[0].telemetry;
    assert!(
        telemetry.is_off_at_broker && !telemetry.is_silent,
        "{telemetry:?}"
    );
}

#[test]
fn a_verdict_is_kept_until_its_client_says_or_a_broker_sees_something_else() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for _ in 0..6 {
        pushes.push(10_000, &steady(10_000));
    }
    let now_ms = pushes.now_ms;
    let silent = |requests: f64| {
        let mut silent = observed("silent", None, 1, requests);
        silent.broker.back_to_back_share = Some(1.0);
        silent
    };
    let examine = |at_ms| {
        let mut clients = collector.examine(at_ms).clients;
        clients.sort_by_key(|client| client.client_id.clone());
        clients
    };
    let is_same = |one: &[Arc<Diagnosis>], other: &[Arc<Diagnosis>]| -> Vec<bool> {
        let pairs = one.iter().zip(other);
        pairs.map(|(one, other)| Arc::ptr_eq(one, other)).collect()
    };
    collector.observe(silent(45.0), now_ms);
    let first = examine(now_ms + 1);
    assert!(
        first
            .iter()
            .all(|client| client.verdict != Verdict::NotEnoughData)
    );
    assert_eq!(is_same(&first, &examine(now_ms + 2)), [true, true]);
    collector.observe(silent(45.0), now_ms + 3);
    assert_eq!(
        is_same(&first, &examine(now_ms + 4)),
        [true, true],
        "seen the same"
    );
    collector.observe(silent(50.0), now_ms + 5);
    let second = examine(now_ms + 6);
    assert_eq!(is_same(&first, &second), [true, false]);
    collector.observe(observed("p", Some("i"), 1, 5.0), now_ms + 7);
    let third = examine(now_ms + 8);
    assert_eq!(is_same(&second, &third), [false, true]);
    pushes.push(10_000, &steady(10_000));
    assert_eq!(
        is_same(&third, &examine(now_ms + 9)),
        [true, true],
        "pushed the same"
    );
    let heard_ms = collector.judge(1, now_ms + 9, |judged| judged.sighting.heard_ms);
    assert!(heard_ms.contains(&Some(now_ms + 10_000)), "{heard_ms:?}");
    let slower = [
        &steady(10_000)[..],
        &[gauge("producer.request.latency.max", 90.0)],
    ]
    .concat();
    pushes.push(10_000, &slower);
    assert_eq!(is_same(&third, &examine(now_ms + 10)), [false, true]);
    // What is kept does not keep a client alive.
    assert!(examine(now_ms + 200_000).is_empty());
}

#[test]
fn a_change_of_anything_that_rules_read_renews_a_verdict() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    for _ in 0..7 {
        pushes.push(10_000, &steady(10_000));
    }
    let now_ms = pushes.now_ms;
    let seen = |change: fn(&mut Observed)| {
        let mut seen = observed("p", Some("i"), 1, 365.0);
        change(&mut seen);
        collector.observe(seen, now_ms);
        collector.examine(now_ms).clients.remove(0)
    };
    type Change = fn(&mut Observed);
    let changes: [(&str, Change); 7] = [
        ("the broker's window", |seen| {
            seen.broker.local_micros = Some(900.0)
        }),
        ("a setting", |seen| {
            let origin = Origin::Seen;
            seen.settings.batch_bytes = Some(Setting {
                value: 4_096.0,
                origin,
            });
        }),
        ("another client", |seen| {
            seen.neighbours.push(Neighbour {
                client_id: "other".to_owned(),
                time_share: 0.4,
                ..Neighbour::default()
            });
        }),
        ("other writers of the topic", |seen| {
            seen.cluster = Some(ClusterSide {
                is_alone: true,
                ..ClusterSide::default()
            });
        }),
        ("a quota", |seen| seen.broker.quota_bytes_per_second = Some(1e6)),
        ("the machine", |seen| {
            seen.host = Some(Host {
                used: Some(0.5),
                ..Host::default()
            });
        }),
        ("the broker's telemetry", |seen| seen.is_off_at_broker = true),
    ];
    for (what, change) in changes {
        let before = seen(|_| {});
        assert!(Arc::ptr_eq(&before, &seen(|_| {})), "{what}: nothing changed");
        let after = seen(change);
        assert!(!Arc::ptr_eq(&before, &after), "{what}");
        assert!(
            Arc::ptr_eq(&after, &seen(change)),
            "{what}: nothing changed since"
        );
    }
    let verdict_at = |at_ms| collector.examine(at_ms).clients.remove(0);
    let before = verdict_at(now_ms + 1);
    assert!(
        !Arc::ptr_eq(&before, &verdict_at(now_ms + 25_000)),
        "no push came"
    );
    let before = verdict_at(now_ms + 1);
    pushes.from.is_terminating = true;
    pushes.push(10_000, &steady(10_000));
    assert!(!Arc::ptr_eq(&before, &verdict_at(now_ms + 1)), "the last push");
}

#[test]
fn a_verdict_that_counts_seconds_is_not_kept() {
    let collector = Collector::default();
    Pushes::new(&collector, java("i")).push(10_000, &steady(10_000));
    let words = |at_ms| collector.examine(BEGIN_MS + at_ms).clients[0].summary.clone();
    assert_ne!(words(12_000), words(15_000));
}

#[test]
fn an_examination_says_how_many_clients_push() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &steady(10_000));
    let seen = |collector: &Collector| collector.examine(BEGIN_MS + 10_000).seen.unwrap();
    let all = Seen {
        clients: 1,
        pushing: 1,
        connections: None,
    };
    assert_eq!(seen(&collector), all);
    for (client_id, connections) in [("p", 2.0), ("silent", 3.0)] {
        let mut side = observed(client_id, None, 1, 45.0);
        side.broker.connections = Some(connections);
        collector.observe(side, BEGIN_MS + 10_000);
    }
    let some = Seen {
        clients: 2,
        pushing: 1,
        connections: Some(5),
    };
    assert_eq!(seen(&collector), some);
}

#[test]
fn a_client_that_pushes_nothing_is_still_seen() {
    let collector = Collector::default();
    collector.observe(observed("silent", None, 1, 45.0), BEGIN_MS);
    let snapshots = collector.snapshots(BEGIN_MS + 1_000);
    let [snapshot] = &snapshots[..] else {
        panic!("one client is expected: {snapshots:?}")
    };
    assert_eq!(snapshot.client.library, Library::Java);
    let telemetry = snapshot.telemetry;
    assert_eq!(
        (telemetry.pushes, telemetry.is_silent, telemetry.has_subscription),
        (Some(0), true, true)
    );
    assert_eq!((snapshot.seconds, &snapshot.producer), (60.0, &None));
    assert_eq!(collector.snapshots(BEGIN_MS + 60_000), []);
}

#[test]
fn hosts_are_compared_without_port_and_slash() {
    assert!(is_same_host(Some("/10.0.0.7"), Some("10.0.0.7:51234")));
    assert!(is_same_host(Some("[::1]:51234"), Some("/::1")));
    assert!(is_same_host(None, Some("10.0.0.7")));
    assert!(!is_same_host(Some("10.0.0.7"), Some("10.0.0.8:51234")));
}

#[test]
fn a_producers_requests_are_not_its_consumer_namesakes() {
    let collector = Collector::default();
    let mut pushes = Pushes::new(&collector, java("i"));
    pushes.push(10_000, &consumer(1.0, 1.0, 0.0));
    collector.observe(observed("p", None, 1, 5.0), pushes.now_ms);
    let snapshots = collector.snapshots(pushes.now_ms);
    let sides: Vec<_> = snapshots
        .iter()
        .map(|snapshot| (snapshot.client.role, snapshot.brokers.len()))
        .collect();
    assert_eq!(sides, [(Role::Producer, 1), (Role::Consumer, 0)]);
}

fn any_sample() -> impl Strategy<Value = Sample> {
    let names: Vec<&str> = Measure::ALL.iter().map(|measure| measure.name()).collect();
    let value = prop_oneof![any::<f64>(), 0.0..1e6, Just(0.0), Just(1e308), Just(-1.0)];
    let label = prop_oneof![Just(("", "")), Just(("node_id", "node-1")), Just(("topic", "t"))];
    let seconds = prop_oneof![Just(None), (0.0..1e9).prop_map(Some), Just(Some(1e-9))];
    (prop::sample::select(names), value, label, 0..3, seconds).prop_map(
        |(name, value, (label, text), kind, seconds)| {
            let mut sample = match kind {
                0 => gauge(name, value),
                1 => delta(name, value),
                _ => cumulative(name, value),
            };
            if let Some(seconds) = seconds {
                sample = sample.over(seconds);
            }
            if !label.is_empty() {
                sample = sample.with(label, text);
            }
            sample
        },
    )
}

proptest! {
    #[test]
    fn any_numbers_are_judged_without_harm(
        pushes in prop::collection::vec((prop::collection::vec(any_sample(), 0..40), 0..100_000i64), 1..6),
    ) {
        let collector = Collector::default();
        let mut at_ms = BEGIN_MS;
        for (samples, interval_ms) in &pushes {
            let start_ms = at_ms as f64;
            at_ms += interval_ms;
            let bytes = payload(start_ms, at_ms as f64, &[], samples);
            collector.push(java("i"), &bytes, at_ms).unwrap();
            prop_assert!(collector.bytes() < BYTES_MAX + 2_000);
        }
        let examination = collector.examine(at_ms);
        prop_assert_eq!(examination.clients.len(), 1);
        for snapshot in collector.snapshots(at_ms) {
            // JSON cannot represent non-finite numbers and writes null, which only an option reads
            // back.
            let text = serde_json::to_string(&snapshot).unwrap();
            let back: Snapshot = serde_json::from_str(&text).unwrap();
            let numbers = |snapshot: &Snapshot| format!("{snapshot:?}").matches("Some(").count();
            prop_assert_eq!(numbers(&back), numbers(&snapshot), "{}", text);
        }
    }
}

#[test]
fn many_clients_are_all_diagnosed_and_found_by_name() {
    let collector = Collector::default();
    let names: Vec<String> = (0..1_200).map(|number| format!("client-{number:04}")).collect();
    for name in names.iter().rev() {
        let from = PushedFrom {
            client_id: name,
            ..java(name)
        };
        let bytes = payload(0.0, 10_000.0, &[], &steady(10_000));
        collector.push(from, &bytes, BEGIN_MS).unwrap();
        collector.observe(observed(name, Some(name), 1, 5.0), BEGIN_MS);
    }
    collector.observe(observed("a-silent-one", None, 1, 5.0), BEGIN_MS);
    let snapshots = collector.snapshots(BEGIN_MS);
    let found: Vec<&str> = snapshots
        .iter()
        .map(|snapshot| snapshot.client.client_id.as_str())
        .collect();
    let expected: Vec<&str> = std::iter::once("a-silent-one")
        .chain(names.iter().map(String::as_str))
        .collect();
    assert_eq!(found, expected);
    assert!(snapshots.iter().all(|snapshot| snapshot.brokers.len() == 1));
    let examination = collector.examine(BEGIN_MS);
    let mut judged: Vec<&str> = examination
        .clients
        .iter()
        .map(|client| client.client_id.as_str())
        .collect();
    judged.sort_unstable();
    assert_eq!(judged, expected);
}

#[test]
fn a_client_that_pushed_once_and_falls_silent_is_judged_by_what_brokers_see() {
    let collector = Collector::default();
    let from = || PushedFrom {
        push_interval_ms: Some(10_000.0),
        ..java("once")
    };
    let push = |at_ms: i64| {
        let pushed = payload(at_ms as f64 - 10_000.0, at_ms as f64, &[], &steady(10_000));
        collector.push(from(), &pushed, at_ms).unwrap();
    };
    let told = |after_ms: i64| {
        collector.observe(observed("p", Some("once"), 1, 45.0), BEGIN_MS + after_ms);
        let snapshot = collector.snapshots(BEGIN_MS + after_ms).remove(0);
        let has_own = snapshot.producer.is_some();
        (snapshot.telemetry.is_silent, has_own, snapshot.seconds)
    };
    push(BEGIN_MS);
    assert_eq!(told(24_999), (false, true, 10.0));
    assert_eq!(told(25_000), (true, false, 60.0));
    push(BEGIN_MS + 26_000);
    assert_eq!(told(30_000), (false, true, 20.0));
    // Two pushes are evidence, even if no third comes.
    assert_eq!(told(55_000), (true, true, 20.0));
}
