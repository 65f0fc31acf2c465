//! The reading rules, each with the number that showed the need for it.

use super::super::otlp::NodeLabel;
use super::super::sample_push::{Sample, delta, gauge, payload};
use super::*;

const JAVA: (Option<&str>, Option<&str>) = (Some("apache-kafka-java"), Some("4.3.0"));
const LIBRDKAFKA: (Option<&str>, Option<&str>) = (Some("librdkafka"), Some("2.16.0"));

/// Reads the client-level values of a push of five seconds.
fn read(software: (Option<&str>, Option<&str>), samples: &[Sample]) -> Reading<'static> {
    let payload = payload(1_000_000.0, 1_005_000.0, &[], samples).leak();
    Reading::of_push(payload, software, |_| true).unwrap()
}

fn of_client(reading: &Reading<'_>, measure: Measure) -> Option<f64> {
    reading.get(measure, Subject::Client)
}

#[test]
fn rates_of_the_client_are_never_read() {
    // Rule 1: 24,000 records in 12 s showed as 572/s.
    let reading = read(
        JAVA,
        &[
            gauge("producer.record.send.rate", 572.0),
            gauge("producer.bufferpool.wait.ratio", 3.4),
            delta("producer.record.send.total", 10_000.0),
        ],
    );
    let names: Vec<Measure> = reading.values.iter().map(|value| value.measure).collect();
    assert_eq!(names, [Measure::RecordsSent]);
    assert_eq!(reading.points, 3);
}

#[test]
fn a_sum_counts_over_its_own_interval() {
    // Rule 2.
    let reading = read(
        JAVA,
        &[
            delta("producer.request.total", 50.0),
            delta("producer.node.request.total", 30.0)
                .with("node_id", "node-1")
                .over(3.0),
        ],
    );
    let weights: Vec<f64> = reading.values.iter().map(|value| value.weight).collect();
    assert_eq!(weights, [5.0, 3.0]);
    assert_eq!(reading.span_seconds(), Some(5.0));
}

#[test]
fn not_a_number_from_java_is_no_evidence() {
    // Rule 3.
    let reading = read(
        JAVA,
        &[
            gauge("producer.request.latency.avg", f64::NAN),
            gauge("producer.produce.throttle.time.avg", 0.0),
        ],
    );
    assert_eq!(of_client(&reading, Measure::RequestLatency), None);
    assert_eq!(of_client(&reading, Measure::Throttle), Some(0.0));
    let without: Vec<Measure> = reading.without_sample.iter().collect();
    assert_eq!(without, [Measure::RequestLatency]);
}

#[test]
fn zero_from_librdkafka_is_no_evidence_either() {
    // Rule 3.
    let reading = read(
        LIBRDKAFKA,
        &[
            gauge("producer.request.latency.avg", 0.0),
            gauge("producer.request.latency.max", 0.0),
            delta("producer.connection.creation.total", 0.0),
        ],
    );
    assert_eq!(of_client(&reading, Measure::RequestLatency), None);
    assert_eq!(of_client(&reading, Measure::RequestLatencyMax), None);
    assert_eq!(of_client(&reading, Measure::ConnectionsCreated), Some(0.0));
    let idle = read(
        LIBRDKAFKA,
        &[gauge("consumer.coordinator.assigned.partitions", 0.0)],
    );
    assert_eq!(of_client(&idle, Measure::AssignedPartitions), Some(0.0));
}

#[test]
fn connections_that_are_no_brokers_are_left_out() {
    // Rule 4, and a consumer's own connection to its coordinator.
    let node = |id: &str| delta("producer.node.request.total", 1.0).with("node_id", id);
    let reading = read(
        JAVA,
        &[
            node("node--1"),
            node("node--3"),
            node("node-2147483646"),
            node("node-0"),
            node("node-17"),
        ],
    );
    let nodes: Vec<Subject<'_>> = reading.values.iter().map(|value| value.subject).collect();
    assert_eq!(nodes, [Subject::Node(0), Subject::Node(17)]);
    assert_eq!(node_id(NodeLabel::Number(-1)), None);
    assert_eq!(node_id(NodeLabel::Dotted(3)), Some(3));
    assert_eq!(node_id(NodeLabel::Text("node-x")), None);
}

#[test]
fn librdkafkas_queue_time_is_not_kafkas() {
    let samples = [
        gauge("producer.record.queue.time.avg", 0.22),
        gauge("producer.record.queue.time.max", 5.0),
        gauge("producer.request.latency.avg", 0.73),
    ];
    let reading = read(LIBRDKAFKA, &samples);
    assert_eq!(of_client(&reading, Measure::QueueTime), None);
    assert_eq!(of_client(&reading, Measure::QueueTimeMax), None);
    assert_eq!(of_client(&reading, Measure::TransmitQueue), Some(0.22));
    assert_eq!(of_client(&reading, Measure::RequestLatency), Some(0.73));
    assert_eq!(reading.without_sample, Unsampled::default());
    assert_eq!(of_client(&read(JAVA, &samples), Measure::QueueTime), Some(0.22));
}

#[test]
fn averages_of_an_old_franz_go_are_ignored() {
    let samples = [
        gauge("producer.node.request.latency.avg", 0.4).with("node_id", "1"),
        gauge("producer.node.request.latency.max", 9.0).with("node_id", "1"),
    ];
    let latency = |version| {
        let reading = read((Some("kgo"), version), &samples);
        (
            reading.get(Measure::NodeLatency, Subject::Node(1)),
            reading.get(Measure::NodeLatencyMax, Subject::Node(1)),
        )
    };
    assert_eq!(latency(Some("v1.21.3")), (None, Some(9.0)));
    assert_eq!(latency(None), (None, Some(9.0)));
    assert_eq!(latency(Some("v1.21.4")), (Some(0.4), Some(9.0)));
}

#[test]
fn an_idle_java_consumer_is_idle_all_the_time() {
    // Rule 12; 0.0267 was reported by a consumer that was busy nearly all the time.
    let idle = |software, ratio| {
        of_client(
            &read(software, &[gauge("consumer.poll.idle.ratio.avg", ratio)]),
            Measure::PollIdle,
        )
    };
    assert_eq!(idle(JAVA, 0.5), Some(1.0));
    assert_eq!(idle(JAVA, 0.502), Some(1.0));
    assert_eq!(idle(JAVA, 0.25), Some(1.0 / 3.0));
    assert_eq!(idle(JAVA, 0.0), Some(0.0));
    assert_eq!(idle(JAVA, f64::NAN), None);
    assert_eq!(idle((Some("ottla-client"), Some("0.1.0")), 0.5), Some(1.0));
    assert_eq!(idle(LIBRDKAFKA, 0.5), Some(0.5));
}

#[test]
fn never_is_no_time_ago() {
    let reading = read(
        JAVA,
        &[gauge("consumer.coordinator.last.heartbeat.seconds.ago", -1.0)],
    );
    assert_eq!(of_client(&reading, Measure::LastHeartbeat), None);
}

#[test]
fn names_count_at_their_own_level_only() {
    let reading = read(
        JAVA,
        &[
            delta("consumer.fetch.manager.bytes.consumed.total", 7.0).with("topic", "t"),
            delta("consumer.fetch.manager.bytes.consumed.total", 9.0),
            gauge("consumer.fetch.manager.records.lag", 3.0)
                .with("topic", "t")
                .with("partition", "2"),
            gauge("consumer.fetch.manager.records.lag.max", 4.0)
                .with("topic", "t")
                .with("partition", "2"),
        ],
    );
    assert_eq!(of_client(&reading, Measure::ConsumedBytes), Some(9.0));
    assert_eq!(of_client(&reading, Measure::LagMax), None);
    assert_eq!(reading.get(Measure::Lag, Subject::Partition("t", 2)), Some(3.0));
    assert_eq!(reading.role, Some(Role::Consumer));
}

#[test]
fn means_are_weighted_by_what_they_are_means_of() {
    let reading = read(
        JAVA,
        &[
            delta("producer.request.total", 20.0),
            delta("producer.outgoing.byte.total", 30_000.0),
            gauge("producer.batch.size.avg", 1000.0),
            gauge("producer.record.queue.time.avg", 8.0),
            gauge("producer.request.latency.avg", 4.0),
        ],
    );
    let weight = |measure| {
        let value = reading.values.iter().find(|value| value.measure == measure);
        value.unwrap().weight
    };
    assert_eq!(weight(Measure::RequestLatency), 20.0);
    assert_eq!(weight(Measure::QueueTime), 30.0);
}

#[test]
fn every_measure_fits_into_a_set_and_has_a_name_of_its_own() {
    assert!(Measure::ALL.len() <= 128);
    for measure in Measure::ALL
        .iter()
        .copied()
        .filter(|measure| !measure.name().is_empty())
    {
        assert_eq!(Measure::named(measure.name()), Some(measure));
    }
    let mut set = Unsampled::default();
    set.insert(*Measure::ALL.last().unwrap());
    assert_eq!(set.iter().collect::<Vec<_>>(), [*Measure::ALL.last().unwrap()]);
}
