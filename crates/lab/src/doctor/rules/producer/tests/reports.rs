//! The p99 article and the 2.3.0 test report, as far as they are about producers.

use super::rows::{NOTHING, ROW, Row};
use crate::doctor::diagnosis::{FindingId, Verdict};
use crate::doctor::rules::examine;
use crate::doctor::snapshot::{Codec, Partitioner};

/// Nine brokers, a topic of 108 partitions, keyed records of 516 bytes; one of 90 producers of 1
/// MB/s each.
const P99: Row = Row {
    brokers: 9.0,
    partitions: 108.0,
    acks: Some(-1),
    codec: Some(Codec::Lz4),
    linger: Some(5.0),
    batch_size: 16_384.0,
    in_flight: 5.0,
    partitioner: Some(Partitioner::Keyed),
    records: 1_938.0,
    batch: 516.0,
    latency: 4.0,
    queue: Some(5.2),
    queue_max: 20.0,
    thread: Some((0.9, 0.05)),
    ..ROW
};

#[test]
fn the_p99_article() {
    let rows = [
        Row {
            name: "A2",
            // One of 9 producers of 17.9 MB/s: L grew by 21 %, which is the wait for replicas.
            records: 34_700.0,
            requests: 450.0,
            request_bytes: 39_800.0,
            records_per_request: 77.0,
            batch: 15_900.0,
            latency: 97.0,
            queue: Some(400.0),
            buffer_wait: Some(0.5),
            broker: Some((14.0, 2.0, 11.0)),
            verdict: &[Verdict::SenderRate, Verdict::NetworkRtt],
            refused: &["acks"],
            ..P99
        },
        Row {
            name: "A3",
            linger: Some(0.0),
            requests: 280.0,
            request_bytes: 3_600.0,
            records_per_request: 6.9,
            queue: Some(0.3),
            // Alone it costs nothing that is seen.
            verdict: &[Verdict::KeepsUp],
            set: NOTHING,
            refused: &["batch.size"],
            ..P99
        },
        Row {
            name: "A4",
            requests: 110.0,
            request_bytes: 9_100.0,
            records_per_request: 17.6,
            verdict: &[Verdict::KeepsUp],
            set: NOTHING,
            ..P99
        },
        Row {
            name: "A5",
            requests: 110.0,
            request_bytes: 9_100.0,
            records_per_request: 17.6,
            batch_size: 131_072.0,
            verdict: &[Verdict::KeepsUp],
            set: NOTHING,
            refused: &["batch.size"],
            ..P99
        },
        Row {
            name: "A7",
            requests: 110.0,
            request_bytes: 9_100.0,
            records_per_request: 17.6,
            verdict: &[Verdict::KeepsUp],
            // 18 records/s per partition: less than one within a linger.
            refused: &["partitions"],
            ..P99
        },
        Row {
            name: "A10",
            requests: 450.0,
            request_bytes: 39_800.0,
            records_per_request: 77.0,
            records: 34_700.0,
            batch: 15_900.0,
            latency: 97.0,
            queue: Some(400.0),
            buffer_wait: Some(0.5),
            broker: Some((90.0, 5.0, 80.0)),
            verdict: &[Verdict::Broker],
            findings: &[FindingId::B5],
            refused: &["min.insync.replicas", "acks"],
            ..P99
        },
    ];
    for row in &rows {
        row.check();
    }
}

#[test]
fn without_linger_busy_handlers_pay_for_small_requests() {
    let row = Row {
        name: "A3",
        linger: Some(0.0),
        requests: 280.0,
        request_bytes: 3_600.0,
        records_per_request: 6.9,
        queue: Some(0.3),
        ..P99
    };
    let mut snapshot = row.snapshot();
    snapshot.brokers = vec![crate::doctor::snapshot::BrokerSide {
        node_id: Some(1),
        requests_per_second: Some(31.0),
        handler_idle: Some(0.2),
        ..Default::default()
    }];
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::SmallRequests, "{diagnosis:#?}");
    assert_eq!(diagnosis.findings[0].id, FindingId::B1);
    assert_eq!(diagnosis.recommendation.unwrap().set, "linger.ms=5");
}

#[test]
fn ten_times_as_many_producers() {
    let row = Row {
        name: "A6",
        records: 194.0,
        requests: 180.0,
        request_bytes: 556.0,
        records_per_request: 1.08,
        latency: 30.0,
        ..P99
    };
    let mut snapshot = row.snapshot();
    snapshot.brokers = vec![crate::doctor::snapshot::BrokerSide {
        node_id: Some(1),
        requests_per_second: Some(20.0),
        queue_micros: Some(9_000.0),
        local_micros: Some(1_000.0),
        remote_micros: Some(1_000.0),
        handler_idle: Some(0.03),
        ..Default::default()
    }];
    let diagnosis = examine(&snapshot);
    assert_eq!(diagnosis.verdict, Verdict::SmallRequests, "{diagnosis:#?}");
    // Linger already collects less than one record: only fewer producers or partitions help.
    let change = diagnosis.recommendation.unwrap();
    assert!(change.set.starts_with("fewer producers"), "{change:?}");
}

/// acks 1, 128 KiB batches, linger 10, 16 threads, 100-byte records; 12.5 MB/s are 100 Mb/s.
const REPORT: Row = Row {
    acks: Some(1),
    linger: Some(10.0),
    batch_size: 131_072.0,
    in_flight: 5.0,
    threads: 16.0,
    partitions: 3.0,
    ..ROW
};

fn shared(name: &'static str, producers: f64, exhausted: f64) -> Row {
    let bytes = 12.5e6 / producers;
    Row {
        name,
        records: bytes / 100.0,
        offered: 388_000.0,
        requests: bytes / 390_000.0,
        request_bytes: 390_000.0,
        batch: 130_000.0,
        records_per_request: 3_900.0,
        latency: 2.2 * 390.0 / bytes * 1e6,
        queue: Some(5_000.0),
        queue_max: 6_000.0,
        buffer_wait: Some(15.0),
        link: 12.5e6 / producers,
        failed: exhausted,
        exhausted,
        verdict: &[Verdict::NetworkBandwidth],
        findings: &[FindingId::N6],
        refused: &["batch.size", "acks", "buffer.memory"],
        ..REPORT
    }
}

#[test]
fn the_test_report() {
    let rows = [
        Row {
            name: "T1: the threads",
            records: 388_000.0,
            requests: 130.0,
            request_bytes: 300_000.0,
            records_per_request: 2_985.0,
            batch: 100_000.0,
            queue: Some(11.0),
            latency: 6.0,
            verdict: &[Verdict::Application],
            ..REPORT
        },
        Row {
            name: "T1: one connection served serially",
            records: 388_000.0,
            requests: 100.0,
            request_bytes: 388_000.0,
            records_per_request: 3_880.0,
            batch: 130_000.0,
            queue: Some(400.0),
            latency: 40.0,
            buffer_wait: Some(8.0),
            broker: Some((9.5, 8.0, 0.0)),
            verdict: &[Verdict::Broker],
            refused: &["max.in.flight.requests.per.connection"],
            ..REPORT
        },
        Row {
            name: "T2",
            records: 175_000.0,
            requests: 45.0,
            request_bytes: 388_000.0,
            records_per_request: 3_880.0,
            batch: 130_000.0,
            queue: Some(1_500.0),
            latency: 90.0,
            buffer_wait: Some(14.0),
            link: 125e6,
            broker: Some((60.0, 0.0, 0.0)),
            verdict: &[Verdict::Broker],
            set: "more brokers",
            ..REPORT
        },
        shared("T4: one producer", 1.0, 0.0),
        shared("T4: two producers", 2.0, 0.0),
        // max.block.ms 10,000: the same failure, later.
        shared("T6", 3.0, 0.0),
        Row {
            name: "T8: 1,000 bytes",
            records: 1_380.0,
            requests: 87.0,
            request_bytes: 16_000.0,
            records_per_request: 15.9,
            batch: 15_900.0,
            queue: Some(10.0),
            latency: 1.6,
            verdict: &[Verdict::Synchronous],
            findings: &[FindingId::O1],
            set: "linger.ms=0",
            ..REPORT
        },
        Row {
            name: "T7",
            records: 1_389.0,
            requests: 87.0,
            request_bytes: 1_700.0,
            records_per_request: 16.0,
            batch: 1_650.0,
            queue: Some(10.0),
            latency: 1.5,
            verdict: &[Verdict::Synchronous],
            findings: &[FindingId::O1],
            set: "linger.ms=0",
            // Seven times the rate.
            promise: Some(10_000.0),
            ..REPORT
        },
    ];
    for row in &rows {
        row.check();
    }
}

#[test]
fn failed_to_allocate_memory() {
    for (name, acks, errors) in [("T3", 1, 400.0), ("T5", 0, 20.0)] {
        let row = Row {
            acks: Some(acks),
            latency: if acks == 0 {
                0.0
            } else {
                shared(name, 3.0, errors).latency
            },
            findings: &[FindingId::N6, FindingId::E1],
            refused: &["max.block.ms", "buffer.memory"],
            ..shared(name, 3.0, errors)
        };
        let diagnosis = row.check();
        let exhausted = diagnosis
            .findings
            .iter()
            .find(|found| found.id == FindingId::E1)
            .unwrap();
        assert!(exhausted.is_contributing);
        // t_wait = 16 × 128 KiB / 4.2 MB/s.
        assert!(exhausted.text.contains("503 ms"), "{}", exhausted.text);
        // acks=0 and a longer max.block.ms are trade-offs, never the first fix (T13).
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("compression.type"), "{change:?}");
    }
}
