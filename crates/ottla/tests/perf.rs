//! `ottla perf` as a process: its output and its exit status.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::process::{Command, Output};

use ottla_broker::Broker;

mod support;

use support::Writer;

fn perf(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("perf")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn status(output: &Output) -> Option<i32> {
    output.status.code()
}

fn broker() -> (Broker, String) {
    let broker = Broker::start_temporary(&[]).unwrap();
    Writer::connect(broker.address()).create_topic("perf", 1);
    let address = broker.address().to_string();
    (broker, address)
}

#[test]
fn produced_records_are_consumed() {
    let (_broker, address) = broker();
    let produce = [
        "produce",
        "--bootstrap-server",
        &address,
        "--topic",
        "perf",
        "--num-records",
        "300",
        "--throughput",
        "1000",
        "--record-size",
        "100",
        "--warmup-records",
        "100",
        "--producer-props",
        "acks=all",
        "linger.ms=0",
    ];
    let output = perf(&produce);
    assert_eq!(status(&output), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert!(lines.contains("\n300 records sent, "), "{lines}");
    assert!(lines.contains("\n200 steady state records sent, "), "{lines}");
    assert!(text(&output.stderr).contains("latency counts from when records are due"));

    let consume = [
        "consume",
        "--bootstrap-server",
        &address,
        "--topic",
        "perf",
        "--messages",
        "300",
        "--format",
        "json",
        "--print-metrics",
    ];
    let output = perf(&consume);
    assert_eq!(status(&output), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["records"], &json["bytes"]), (&300.into(), &30_000.into()));
    assert_eq!(json["has_timed_out"], false);
    assert!(json["metrics"].as_object().unwrap().len() > 10);
}

#[test]
fn missing_records_are_reported() {
    let (_broker, address) = broker();
    let output = perf(&[
        "consume",
        "--bootstrap-server",
        &address,
        "--topic",
        "perf",
        "--num-records",
        "1",
        "--timeout",
        "300",
    ]);
    let lines = text(&output.stdout);
    assert!(
        lines.contains("WARNING: Exiting before consuming the expected number of records: timeout (300 ms)"),
        "{lines}"
    );
}

#[test]
fn e2e_creates_the_topic_and_prints_kafkas_lines() {
    let (_broker, address) = broker();
    // The topic is created.
    let output = perf(&[
        "e2e",
        "--bootstrap-server",
        &address,
        "--topic",
        "new",
        "--num-records",
        "20",
        "--producer-acks",
        "all",
        "--record-size",
        "50",
        "--record-key-size",
        "8",
        "--num-headers",
        "2",
        "--record-header-key-size",
        "3",
        "--record-header-size",
        "-1",
    ]);
    assert_eq!(status(&output), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert!(lines.starts_with("Topic \"new\" does not exist."), "{lines}");
    assert!(
        lines.contains("\nAvg latency: ") && lines.contains("\nPercentiles: 50th = "),
        "{lines}"
    );
}

#[test]
fn a_saturated_producer_says_so() {
    let (_broker, address) = broker();
    let output = perf(&[
        "produce",
        "--bootstrap-server",
        &address,
        "--topic",
        "perf",
        "--num-records",
        "1000",
        "--throughput",
        "-1",
        "--payload-monotonic",
        "--format",
        "json",
    ]);
    assert_eq!(status(&output), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["records"], 1_000);
    assert_eq!(json["latency_ms"]["state"], "saturated");
    assert_eq!(json["latency_ms"]["percentiles"]["count"], 1_000);
}

#[test]
fn failed_records_are_a_failure() {
    let (_broker, address) = broker();
    let output = perf(&[
        "produce",
        "--bootstrap-server",
        &address,
        "--topic",
        "perf",
        "--num-records",
        "10",
        "--throughput",
        "1000",
        "--record-size",
        "500",
        "--command-property",
        "max.request.size=100",
    ]);
    assert_eq!(status(&output), Some(1));
    assert!(
        text(&output.stderr).contains("10 records failed"),
        "{}",
        text(&output.stderr)
    );
    assert!(
        text(&output.stdout).contains("0 records sent, "),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn usage_errors_have_status_2() {
    for arguments in [
        &["produce", "--topic", "t"][..],
        &[
            "produce",
            "--topic",
            "t",
            "--num-records",
            "1",
            "--throughput",
            "0",
            "--record-size",
            "1",
            "--bootstrap-server",
            "h:1",
        ],
        &[
            "produce",
            "--topic",
            "t",
            "--num-records",
            "1",
            "--throughput",
            "1",
            "--record-size",
            "1",
        ],
        &[
            "produce",
            "--topic",
            "t",
            "--num-records",
            "1",
            "--throughput",
            "1",
            "--record-size",
            "1",
            "--bootstrap-server",
            "h:1",
            "--command-property",
            "acks=sometimes",
        ],
        &[
            "consume",
            "--bootstrap-server",
            "h:1",
            "--topic",
            "t",
            "--num-records",
            "1",
            "--date-format",
            "ww",
        ],
        &["e2e", "h:1", "t", "1"],
    ] {
        let output = perf(arguments);
        assert_eq!(
            status(&output),
            Some(2),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}
