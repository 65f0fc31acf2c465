//! Measurements on Apache Kafka 4.3 through a relay: one broker, two cores, with and without
//! numbers of the network.

use super::rows::{NOTHING, ROW, Row};
use crate::doctor::diagnosis::{Confidence, FindingId, Verdict};
use crate::doctor::snapshot::Codec;

const BENCH: Row = Row {
    linger: Some(5.0),
    in_flight: 5.0,
    batch_size: 16_384.0,
    threads: 1.0,
    is_rounded: true,
    compression_rate: 1.0,
    ..ROW
};

const P1: Row = Row {
    name: "P1",
    records: 22_900.0,
    requests: 7_650.0,
    request_bytes: 592.0,
    batch: 170.0,
    records_per_request: 3.0,
    batch_size: 128.0,
    linger: Some(0.0),
    partitions: 3.0,
    queue: Some(7_331.0),
    queue_max: 17_729.0,
    latency: 0.624,
    buffer_wait: Some(0.8),
    thread: Some((0.49, 0.1)),
    broker: Some((0.026, 0.003, 0.0)),
    verdict: &[Verdict::SenderRate],
    findings: &[FindingId::N2],
    set: "batch.size=16384",
    // P2.
    promise: Some(515_600.0),
    refused: &["linger.ms", "buffer.memory"],
    ..BENCH
};

const P4: Row = Row {
    name: "P4",
    records: 2_688.0,
    offered: 10_000.0,
    requests: 45.0,
    request_bytes: 16_265.0,
    batch: 16_220.0,
    records_per_request: 61.0,
    linger: Some(0.0),
    in_flight: 1.0,
    in_flight_seen: 1.0,
    partitions: 1.0,
    queue: Some(9_865.0),
    queue_max: 19_028.0,
    latency: 22.03,
    buffer_wait: Some(0.0),
    thread: Some((0.95, 0.01)),
    round_trip: 20.0,
    broker: Some((0.21, 0.001, 0.0)),
    verdict: &[Verdict::NetworkRtt],
    findings: &[FindingId::N4],
    set: "max.in.flight.requests.per.connection=5",
    // P5; the wanted rate of 10,000 caps it.
    promise: Some(10_000.0),
    refused: &["linger.ms", "send.buffer.bytes", "acks", "buffer.memory"],
    ..BENCH
};

const P7: Row = Row {
    name: "P7",
    records: 9_555.0,
    requests: 97.7,
    request_bytes: 48_900.0,
    batch: 16_339.0,
    records_per_request: 95.7,
    partitions: 3.0,
    queue: Some(5_465.0),
    queue_max: 6_767.0,
    latency: 48.86,
    buffer_wait: Some(0.6),
    thread: Some((0.87, 0.02)),
    round_trip: 2.0,
    link: 5e6,
    codec: Some(Codec::None),
    broker: Some((0.27, 0.015, 0.0)),
    verdict: &[Verdict::NetworkBandwidth],
    findings: &[FindingId::N6],
    set: "compression.type=",
    // P8: zstd, c = 0.61.
    promise: Some(15_680.0),
    refused: &["batch.size", "max.in.flight.requests.per.connection"],
    ..BENCH
};

const B1: Row = Row {
    name: "B1",
    records: 64_800.0,
    offered: 100_000.0,
    send_micros: 15.3,
    requests: 367.0,
    request_bytes: 45_500.0,
    batch: 15_145.0,
    records_per_request: 170.7,
    in_flight_seen: 5.0,
    partitions: 3.0,
    queue: Some(1_708.0),
    queue_max: 1_978.0,
    latency: 13.45,
    buffer_wait: Some(0.85),
    thread: Some((0.85, 0.05)),
    codec: Some(Codec::Lz4),
    round_trip: 10.0,
    broker: Some((0.41, 0.046, 0.0)),
    verdict: &[Verdict::SenderRate],
    findings: &[FindingId::N2],
    // A factor of two would leave Z at 0.75 (B2, whose latency already rises); a factor of four is
    // B3.
    set: "batch.size=65536",
    // B2 and B3.
    promise: Some(100_000.0),
    refused: &["linger.ms", "threads", "buffer.memory"],
    ..BENCH
};

const ROWS: &[Row] = &[
    P1,
    Row {
        name: "P2",
        records: 515_600.0,
        requests: 1_610.0,
        request_bytes: 35_312.0,
        batch: 14_889.0,
        records_per_request: 320.4,
        partitions: 3.0,
        queue: Some(109.4),
        queue_max: 844.0,
        latency: 2.5,
        buffer_wait: Some(0.0),
        thread: Some((0.44, 0.12)),
        verdict: &[Verdict::SenderRate],
        set: "batch.size=32768",
        // The sending thread never waits: the queue's 109 ms shrink, and P3 sent half as much again
        // with a linger of 20.
        promise: Some(14.0),
        ..BENCH
    },
    Row {
        name: "P3",
        records: 777_700.0,
        requests: 500.0,
        request_bytes: 280_000.0,
        batch: 196_000.0,
        records_per_request: 1_555.0,
        batch_size: 262_144.0,
        linger: Some(20.0),
        partitions: 3.0,
        queue: Some(17.0),
        queue_max: 100.0,
        latency: 4.0,
        buffer_wait: Some(0.0),
        thread: Some((0.6, 0.2)),
        verdict: &[Verdict::Application],
        set: NOTHING,
        ..BENCH
    },
    P4,
    Row {
        name: "P4 without the network",
        round_trip: 0.0,
        ..P4
    },
    Row {
        name: "P5",
        records: 13_000.0,
        requests: 213.0,
        in_flight: 5.0,
        in_flight_seen: 5.0,
        latency: 23.4,
        offered: 0.0,
        set: "batch.size=32768",
        promise: None,
        // A send.buffer.bytes of half the default would be full of these requests.
        refused: &["linger.ms", "acks", "buffer.memory"],
        ..P4
    },
    Row {
        name: "P6",
        queue: Some(325.8),
        queue_max: 413.0,
        latency: 21.6,
        records: 2_777.0,
        buffer: 262_144.0,
        buffer_wait: Some(0.96),
        failed: 3_215.0,
        exhausted: 3_190.0,
        findings: &[FindingId::N4, FindingId::E1],
        refused: &["linger.ms", "buffer.memory", "max.block.ms"],
        ..P4
    },
    P7,
    Row {
        name: "P7 without the link's bandwidth",
        link: 0.0,
        ..P7
    },
    Row {
        name: "P8",
        records: 15_680.0,
        request_bytes: 44_000.0,
        requests: 109.0,
        batch: 14_700.0,
        records_per_request: 144.0,
        latency: 45.0,
        compression_rate: 0.61,
        codec: Some(Codec::Zstd),
        set: "a faster link",
        promise: None,
        ..P7
    },
    B1,
    Row {
        name: "B1 without the network",
        round_trip: 0.0,
        ..B1
    },
    Row {
        name: "B2",
        records: 99_998.0,
        send_micros: 2.1,
        requests: 366.0,
        request_bytes: 72_700.0,
        batch: 28_622.0,
        batch_size: 32_768.0,
        records_per_request: 273.5,
        queue: Some(36.3),
        queue_max: 412.0,
        buffer_wait: Some(0.0),
        verdict: &[Verdict::KeepsUp],
        findings: &[FindingId::O2],
        set: NOTHING,
        promise: None,
        refused: &[],
        ..B1
    },
    Row {
        name: "B3",
        records: 99_998.0,
        send_micros: 1.4,
        requests: 385.0,
        request_bytes: 69_000.0,
        batch: 40_682.0,
        batch_size: 65_536.0,
        records_per_request: 260.0,
        queue: Some(2.2),
        queue_max: 93.0,
        latency: 12.2,
        buffer_wait: Some(0.0),
        verdict: &[Verdict::KeepsUp],
        findings: &[FindingId::O2],
        set: NOTHING,
        promise: None,
        refused: &["batch.size"],
        ..B1
    },
    Row {
        name: "B4",
        records: 238_800.0,
        offered: 0.0,
        send_micros: 4.2,
        requests: 345.0,
        request_bytes: 181_000.0,
        batch: 61_000.0,
        batch_size: 65_536.0,
        records_per_request: 692.0,
        queue: Some(480.0),
        queue_max: 700.0,
        latency: 15.2,
        buffer_wait: Some(0.58),
        set: "batch.size=131072",
        promise: None,
        refused: &["linger.ms"],
        ..B1
    },
    Row {
        name: "B5",
        records: 2_000.0,
        offered: 2_000.0,
        send_micros: 7.6,
        requests: 178.0,
        request_bytes: 3_098.0,
        batch: 3_029.0,
        records_per_request: 11.2,
        partitions: 3.0,
        queue: Some(5.26),
        queue_max: 103.0,
        latency: 1.01,
        buffer_wait: Some(0.0),
        thread: Some((0.9, 0.03)),
        verdict: &[Verdict::KeepsUp],
        findings: &[FindingId::O2],
        set: NOTHING,
        refused: &["batch.size", "max.in.flight.requests.per.connection"],
        ..BENCH
    },
    Row {
        name: "B5 as telemetry sees it",
        records: 2_000.0,
        threads: 0.0,
        requests: 178.0,
        request_bytes: 3_098.0,
        batch: 3_029.0,
        records_per_request: 11.2,
        linger: None,
        batch_size: 0.0,
        in_flight: 0.0,
        queue: Some(5.26),
        queue_max: 103.0,
        latency: 1.01,
        buffer_wait: Some(0.0),
        thread: Some((0.9, 0.03)),
        verdict: &[Verdict::KeepsUp],
        ..BENCH
    },
    Row {
        name: "B6",
        records: 8_000.0,
        offered: 20_000.0,
        requests: 43.7,
        request_bytes: 48_700.0,
        batch: 16_226.0,
        records_per_request: 182.9,
        in_flight_seen: 1.0,
        partitions: 3.0,
        queue: Some(8_788.0),
        queue_max: 13_797.0,
        latency: 24.2,
        buffer_wait: Some(0.73),
        thread: Some((0.003, 0.02)),
        broker: Some((0.39, 0.022, 0.0)),
        verdict: &[Verdict::SenderThread],
        findings: &[FindingId::N1],
        set: "hand the callback's work over",
        promise: Some(20_000.0),
        ..BENCH
    },
    Row {
        name: "B7",
        records: 925.0,
        offered: 2_000.0,
        requests: 5.6,
        request_bytes: 44_000.0,
        batch: 16_220.0,
        records_per_request: 165.0,
        partitions: 3.0,
        queue: Some(4_000.0),
        queue_max: 8_000.0,
        latency: 197.0,
        buffer_wait: Some(0.0),
        thread: Some((0.005, 0.005)),
        verdict: &[Verdict::SenderThread],
        findings: &[FindingId::N1],
        set: "hand the callback's work over",
        promise: Some(2_000.0),
        ..BENCH
    },
    Row {
        name: "B8",
        records: 57.3,
        requests: 57.3,
        request_bytes: 380.0,
        batch: 326.0,
        records_per_request: 1.0,
        partitions: 3.0,
        queue: Some(5.2),
        queue_max: 32.0,
        latency: 12.2,
        buffer_wait: Some(0.0),
        thread: Some((0.95, 0.02)),
        round_trip: 10.0,
        verdict: &[Verdict::Synchronous],
        findings: &[FindingId::O1],
        set: "linger.ms=0",
        promise: Some(79.3),
        refused: &["batch.size"],
        ..BENCH
    },
    Row {
        name: "B8b",
        records: 79.3,
        requests: 79.3,
        request_bytes: 380.0,
        batch: 326.0,
        records_per_request: 1.0,
        linger: Some(0.0),
        threads: 0.0,
        partitions: 3.0,
        queue: Some(0.1),
        queue_max: 20.0,
        latency: 12.1,
        buffer_wait: Some(0.0),
        thread: Some((0.95, 0.02)),
        verdict: &[Verdict::Synchronous],
        findings: &[FindingId::O1],
        set: "use the callback",
        ..BENCH
    },
    Row {
        name: "B9",
        records: 339_000.0,
        send_micros: 11.6,
        threads: 4.0,
        requests: 1_180.0,
        request_bytes: 65_495.0,
        batch: 65_431.0,
        batch_size: 65_536.0,
        records_per_request: 246.0,
        in_flight_seen: 4.0,
        partitions: 1.0,
        queue: Some(412.0),
        queue_max: 1_010.0,
        latency: 3.94,
        buffer_wait: Some(3.2),
        thread: Some((0.46, 0.1)),
        broker: Some((0.51, 0.036, 0.0)),
        verdict: &[Verdict::SenderRate],
        findings: &[FindingId::N2],
        refused: &["linger.ms"],
        ..BENCH
    },
    Row {
        name: "B10",
        records: 441_000.0,
        send_micros: 8.8,
        threads: 4.0,
        requests: 158.0,
        request_bytes: 729_000.0,
        batch: 63_500.0,
        batch_size: 65_536.0,
        records_per_request: 2_790.0,
        partitions: 12.0,
        queue: Some(250.0),
        queue_max: 700.0,
        latency: 12.9,
        buffer_wait: Some(2.0),
        thread: Some((0.5, 0.1)),
        verdict: &[Verdict::SenderRate],
        refused: &["linger.ms"],
        ..BENCH
    },
    Row {
        name: "B11",
        records: 4_980.0,
        offered: 20_000.0,
        requests: 42.0,
        request_bytes: 31_160.0,
        batch: 13_937.0,
        records_per_request: 117.8,
        partitions: 3.0,
        queue: Some(7_915.0),
        queue_max: 19_001.0,
        latency: 70.4,
        buffer_wait: Some(0.85),
        thread: Some((0.91, 0.015)),
        throttle: 21.1,
        verdict: &[Verdict::Quota],
        findings: &[FindingId::Q1],
        ..BENCH
    },
    Row {
        name: "B12",
        records: 1_050.0,
        offered: 5_000.0,
        requests: 5.9,
        request_bytes: 48_000.0,
        batch: 16_226.0,
        records_per_request: 183.0,
        partitions: 3.0,
        queue: Some(4_824.0),
        queue_max: 5_990.0,
        latency: 785.0,
        buffer_wait: Some(0.3),
        link: 300_000.0,
        failed: 86_400.0,
        expired: 86_400.0,
        verdict: &[Verdict::NetworkBandwidth],
        findings: &[FindingId::N6, FindingId::E2],
        refused: &["delivery.timeout.ms", "buffer.memory"],
        ..BENCH
    },
    Row {
        name: "B13",
        records: 2.3,
        requests: 2.3,
        request_bytes: 600_100.0,
        batch: 600_072.0,
        records_per_request: 1.0,
        linger: Some(0.0),
        in_flight: 1.0,
        partitions: 1.0,
        queue: Some(10_058.0),
        queue_max: 20_043.0,
        latency: 445.0,
        buffer_wait: Some(0.9),
        thread: Some((0.98, 0.004)),
        round_trip: 72.0,
        window: 102_400.0,
        broker: Some((1.07, 0.95, 0.0)),
        verdict: &[Verdict::NetworkWindow],
        findings: &[FindingId::N5],
        set: "send.buffer.bytes=",
        // B14.
        promise: Some(12.9),
        ..BENCH
    },
    Row {
        name: "B14",
        records: 12.9,
        requests: 12.9,
        request_bytes: 600_100.0,
        batch: 600_072.0,
        records_per_request: 1.0,
        linger: Some(0.0),
        in_flight: 1.0,
        partitions: 1.0,
        queue: Some(2_500.0),
        queue_max: 3_000.0,
        latency: 77.3,
        buffer_wait: Some(0.9),
        thread: Some((0.95, 0.01)),
        round_trip: 72.0,
        window: 1_024_000.0,
        broker: Some((1.5, 1.2, 0.0)),
        verdict: &[Verdict::NetworkRtt],
        findings: &[FindingId::N4],
        ..BENCH
    },
    Row {
        name: "B15",
        records: 126.9,
        requests: 126.9,
        request_bytes: 100_150.0,
        batch: 100_072.0,
        records_per_request: 1.0,
        linger: Some(0.0),
        in_flight: 10.0,
        in_flight_seen: 10.0,
        partitions: 1.0,
        queue: Some(2_500.0),
        queue_max: 3_000.0,
        latency: 78.8,
        buffer_wait: Some(0.9),
        thread: Some((0.95, 0.01)),
        round_trip: 72.0,
        window: 1_024_000.0,
        verdict: &[Verdict::NetworkWindow],
        findings: &[FindingId::N5],
        refused: &["max.in.flight.requests.per.connection"],
        ..BENCH
    },
    Row {
        name: "B16",
        records: 15_500.0,
        requests: 8.4,
        request_bytes: 324_000.0,
        batch: 111_262.0,
        batch_size: 131_072.0,
        records_per_request: 1_652.0,
        in_flight_seen: 3.0,
        partitions: 3.0,
        queue: Some(7_129.0),
        queue_max: 10_988.0,
        latency: 298.0,
        buffer_wait: Some(1.02),
        thread: Some((0.93, 0.013)),
        compression_rate: 0.74,
        codec: Some(Codec::Lz4),
        topic_codec: Some(Codec::Gzip),
        broker: Some((118.3, 116.4, 0.0)),
        verdict: &[Verdict::Broker],
        findings: &[FindingId::B7],
        set: "compression.type=producer",
        refused: &["max.in.flight.requests.per.connection"],
        ..BENCH
    },
    Row {
        name: "B17",
        records: 500.0,
        offered: 500.0,
        requests: 9.9,
        request_bytes: 13_400.0,
        batch: 13_300.0,
        records_per_request: 50.0,
        linger: Some(100.0),
        partitions: 3.0,
        queue: Some(100.5),
        queue_max: 130.0,
        latency: 2.9,
        buffer_wait: Some(0.0),
        thread: Some((0.98, 0.005)),
        verdict: &[Verdict::KeepsUp],
        set: NOTHING,
        ..BENCH
    },
    Row {
        name: "B18",
        records: 19_995.0,
        offered: 20_000.0,
        send_micros: 4.4,
        threads: 2.0,
        requests: 5_800.0,
        request_bytes: 512.0,
        batch: 436.0,
        records_per_request: 3.44,
        linger: Some(0.0),
        partitions: 12.0,
        queue: Some(0.1),
        queue_max: 163.0,
        latency: 0.68,
        buffer_wait: Some(0.0),
        thread: Some((0.55, 0.15)),
        verdict: &[Verdict::SmallRequests],
        findings: &[FindingId::B1],
        set: "linger.ms=5",
        refused: &["batch.size"],
        ..BENCH
    },
];

#[test]
fn measured_regimes() {
    for row in ROWS {
        row.check();
    }
}

#[test]
fn one_in_flight_says_to_expect_silence() {
    let notes = P4.check().notes;
    assert!(
        notes.iter().any(|note| note.contains("expect silence")),
        "{notes:?}"
    );
}

#[test]
fn a_verdict_that_depends_on_no_inferred_setting_is_certain() {
    assert_eq!(B1.check().confidence, Confidence::High);
    let guessed = Row {
        batch_size: 0.0,
        in_flight: 0.0,
        ..B1
    };
    let diagnosis = guessed.check();
    assert_eq!(diagnosis.confidence, Confidence::Medium);
    assert!(
        diagnosis
            .missing
            .iter()
            .any(|words| words.starts_with("assumed: batch.size=16384")),
        "{:?}",
        diagnosis.missing
    );
}

#[test]
fn the_sender_s_latency_as_the_application_measured_it() {
    // Steady saturated cases within 1 %, linger-bound ones within 6 %, B1 within 13 %.
    for (name, measured, percent) in [
        ("P4", 9_880.0, 1.0),
        ("P6", 347.5, 1.0),
        ("B17", 55.9, 7.0),
        ("B1", 1_799.0, 13.0),
        ("B4", 494.0, 1.0),
    ] {
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let diagnosis = row.check();
        let line = diagnosis
            .evidence
            .iter()
            .find(|line| line.name == "sender latency")
            .unwrap();
        crate::formulas::tables::within(line.result, measured, percent);
    }
}

/// Rows far from every threshold: excludes the two that are named for being near one, and a queue
/// just above three lingers.
pub fn stable() -> Vec<Row> {
    let near = ["P2", "B2", "B3"];
    ROWS.iter()
        .filter(|row| !near.contains(&row.name))
        .copied()
        .collect()
}
