//! A made-up report, for testing readers of reports: every chart has data, every text is hostile.

use std::collections::BTreeMap;

use crate::report::histogram::Latencies;
use crate::report::{
    Answer, Calibration, Drift, Expectation, GroupResult, Integrity, Machine, Manifest, Measurement,
    OnTarget, Percentiles, Point, Prediction, ProcessResult, Range, Report, SCHEMA, ScenarioHead, Second,
    StageMeans, Stages, Target, Verdict,
};

/// Would become visible in a page that does not escape it.
pub const HOSTILE: &str =
    "\"><script>document.title='owned'</script><img src=http://203.0.113.1/x onerror=alert(1)>";

/// Two targets, three points of rising load, three rounds each; the last point is INVALID.
pub fn report() -> Report {
    let names = ["1000/s", "5000/s", HOSTILE];
    let rates = [1_000.0, 5_000.0, 20_000.0];
    let points = names.into_iter().zip(rates).map(|(name, rate)| point(name, rate));
    Report {
        schema: SCHEMA.to_owned(),
        answer: Some(Answer {
            is_answered: false,
            sentence: format!("Not answered: the run is INVALID: {HOSTILE}."),
        }),
        scenario: ScenarioHead {
            name: format!("sample {HOSTILE}"),
            question: String::from("Is every chart there?"),
            source: Some(String::from("made up")),
        },
        verdict: Verdict {
            reasons: vec![format!("{HOSTILE}: the schedule was not held")],
            caveats: vec![String::from("loopback: no network was part of it")],
        },
        manifest: manifest(),
        calibration: vec![Calibration {
            record_bytes: 100,
            records_per_second: 1_234_567.0,
            cpu_seconds_per_million: 0.8,
            schedule_error_p99_micros: 320.0,
            scheduled_rate: 200_000.0,
        }],
        points: points.collect(),
        was_interrupted: true,
    }
}

fn manifest() -> Manifest {
    let target = |name: &str, is_embedded| Target {
        name: name.to_owned(),
        bootstrap: String::from("127.0.0.1:19092"),
        brokers: 1,
        is_loopback: true,
        is_embedded,
        durability: String::from("acks=all, 1 replica, on the disk before the answer"),
    };
    let probe = Percentiles {
        p50: 850.0,
        p95: 990.0,
        p99: 1_400.0,
        p99_9: 2_000.0,
        max: 2_000.0,
        mean: 900.0,
        count: 100,
    };
    Manifest {
        command: format!("ottla bench run sample --set 'x={HOSTILE}'"),
        started_at: 1_772_368_259,
        ottla_version: String::from("0.1.0"),
        commit: Some(String::from("0123456-dirty")),
        machine: Machine {
            kernel: String::from("Linux 6.1"),
            processor: String::from("made up"),
            processors: 2,
            memory_bytes: 8 << 30,
            sync_micros: probe,
            network_round_trip_micros: probe,
            filesystem: String::from("ext4 on /dev/vda at /, rw"),
            ..Machine::default()
        },
        targets: vec![
            target("Ottla 0.1.0, embedded", true),
            target("Apache Kafka 4.3", false),
        ],
        scenario_text: format!("name: sample\nquestion: {HOSTILE}\n"),
    }
}

fn point(name: &str, rate: f64) -> Point {
    let on = |slower: f64| {
        let rounds = [1.0, 1.1, 0.9].map(|round| measurement(rate, slower * round));
        OnTarget {
            prediction: Some(Prediction {
                figures: BTreeMap::from([
                    (String::from("records_per_second"), Range::exactly(rate)),
                    (String::from("latency_p99_ms"), Range { low: 2.0, high: 4.0 }),
                ]),
                arithmetic: vec![format!("{rate} records/s are due, so {rate} are expected")],
                limit: Some(String::from("KEEPS_UP")),
            }),
            measurements: rounds.to_vec(),
            verdict: Verdict {
                reasons: if rate > 10_000.0 {
                    vec![HOSTILE.to_owned()]
                } else {
                    Vec::new()
                },
                caveats: Vec::new(),
            },
            expectations: vec![Expectation {
                text: String::from("lost == 0"),
                measured: 0.0,
                holds: true,
            }],
        }
    };
    Point {
        name: name.to_owned(),
        settings: BTreeMap::from([(String::from("producers.load.rate"), rate.to_string())]),
        source: BTreeMap::from([(String::from("records_per_second"), 2.0 * rate)]),
        diagnosis: Some(HOSTILE.to_owned()),
        on: vec![on(1.0), on(1.7)],
    }
}

/// Seconds in the timeline.
const SECONDS: u32 = 20;

fn measurement(rate: f64, slower: f64) -> Measurement {
    let mut latency = Latencies::default();
    let mut service = Latencies::default();
    let mut late = Latencies::default();
    // A long tail without randomness: record n of 10,000 is as slow as its rank requires.
    for rank in 0..10_000_u32 {
        let quantile = f64::from(rank) / 10_000.0;
        let millis = slower * (0.4 + rate / 50_000.0 + 0.5 / (1.0 - quantile).sqrt());
        latency.record((1_000.0 * millis) as u64);
        service.record((800.0 * millis) as u64);
        late.record(u64::from(rank % 90));
    }
    let percentiles = latency.percentiles(1_000.0);
    let figures = [
        ("records_per_second", rate / slower.max(1.0)),
        ("mib_per_second", rate * 256.0 / 1_048_576.0),
        ("latency_p50_ms", percentiles.p50),
        ("latency_p99_ms", percentiles.p99),
        ("latency_p99_9_ms", percentiles.p99_9),
        ("latency_max_ms", percentiles.max),
        ("end_to_end_p99_ms", percentiles.p99 * 1.2),
        ("cpu_seconds_per_million", 1.1),
        ("broker_cpu_seconds_per_million", 2.2 * slower),
        ("errors", 0.0),
    ];
    let records = (rate * f64::from(SECONDS)) as u64;
    Measurement {
        seconds: f64::from(SECONDS),
        warmup_seconds: 3.0,
        figures: figures
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        producers: vec![group("load", records, rate, &latency, &service)],
        consumers: vec![group(
            "readers",
            records,
            rate,
            &Latencies::default(),
            &Latencies::default(),
        )],
        requests: vec![group("flood", records, rate, &latency, &service)],
        end_to_end: latency.result(),
        stages: Some(stages(slower)),
        processes: ["broker", "generator"].map(process).to_vec(),
        integrity: Integrity {
            sent: records,
            acknowledged: records,
            received: Some(records),
            ..Integrity::default()
        },
        generator: crate::report::GeneratorCheck {
            schedule_error: late.result(),
            busiest_thread: 0.31,
            share_of_calibration: 0.1,
            ..crate::report::GeneratorCheck::default()
        },
        drift: Drift {
            slope_percent: 0.3,
            last_to_first: 1.002,
        },
        timeline: (0..SECONDS)
            .map(|second| timeline(second, rate, percentiles))
            .collect(),
        verdict: Verdict::default(),
    }
}

fn group(name: &str, records: u64, rate: f64, latency: &Latencies, service: &Latencies) -> GroupResult {
    GroupResult {
        name: name.to_owned(),
        clients: 1,
        threads: 2,
        records,
        bytes: 256 * records,
        records_per_second: rate,
        latency: latency.result(),
        service: service.result(),
        ..GroupResult::default()
    }
}

fn process(name: &str) -> ProcessResult {
    ProcessResult {
        name: name.to_owned(),
        cpu_seconds: 2.5,
        cpu_seconds_per_million: 1.25,
        peak_memory_bytes: (name == "broker").then_some(64 << 20),
        read_bytes: Some(0),
        written_bytes: Some(1 << 30),
        network_bytes: None,
    }
}

fn stages(slower: f64) -> Stages {
    let means = |percentile: f64, factor: f64| {
        let means: Vec<f64> = [0.6, 0.2, 0.7, 0.1, 0.4]
            .iter()
            .map(|mean| mean * factor * slower)
            .collect();
        StageMeans {
            percentile,
            end_to_end_ms: means.iter().sum(),
            means_ms: means,
        }
    };
    Stages {
        names: ["produce", "publish", "commit", "catch-up", "fetch"]
            .map(String::from)
            .to_vec(),
        slowest: vec![
            means(50.0, 1.0),
            means(95.0, 2.0),
            means(99.0, 5.0),
            means(100.0, 12.0),
        ],
        notes: vec![String::from("Nothing was merged.")],
    }
}

fn timeline(second: u32, rate: f64, percentiles: Percentiles) -> Second {
    let wave = 1.0 + 0.2 * f64::from(second % 7) / 7.0;
    let both = |value: f64| {
        BTreeMap::from([
            (String::from("broker"), value),
            (String::from("generator"), value / 2.0),
        ])
    };
    Second {
        at: f64::from(second),
        sent: (rate * wave) as u64,
        acknowledged: rate as u64,
        received: (rate * 0.98) as u64,
        latency_p50_ms: percentiles.p50 * wave,
        latency_p99_ms: percentiles.p99 * wave,
        latency_max_ms: percentiles.max * wave,
        cpu: both(0.2 * wave),
        memory_bytes: BTreeMap::from([(String::from("broker"), (50 << 20) + u64::from(second) * 100_000)]),
        disk_written_bytes: (rate * 256.0 * wave) as u64,
        network_bytes: (rate * 600.0) as u64,
    }
}
