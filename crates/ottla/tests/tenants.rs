//! `ottla tenants` as a process, on a broker with one client.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::process::{Command, Output};

use ottla_broker::Broker;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use serde_json::Value;
use support::Writer;

fn tenants(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("tenants")
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns the standard output of a command that succeeds.
fn said(arguments: &[&str]) -> String {
    let output = tenants(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error text of a command that gives no answer.
fn refused(arguments: &[&str]) -> String {
    let output = tenants(arguments);
    assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_client_has_its_line_and_its_sums() {
    let broker = Broker::start_temporary(&[("ottla.admin.listener", "127.0.0.1:0")]).unwrap();
    let admin = broker.admin_address().unwrap().to_string();
    assert_eq!(said(&["--admin", &admin]), "no client has connected yet\n");
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("orders", 1);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in [b"a", b"b", b"c"] {
        builder.append(1, None, Some(value), &[]);
    }
    let batch = builder.finish();
    for _ in 0..5 {
        writer.append("orders", 0, &batch);
    }
    // The last answer may be counted only after the client has read it; earlier ones are counted.
    let table = said(&["--admin", &format!("http://{admin}/")]);
    let line = table.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["writer", "client-id", "1"], "{table}");
    let document: Value = serde_json::from_str(&said(&["--admin", &admin, "--format", "json"])).unwrap();
    let writer_row = &document["tenants"][0];
    assert_eq!(writer_row["name"], "writer");
    let records = writer_row["total"]["records"].as_u64().unwrap();
    assert!(records == 15 || records == 12, "{document}");
}

#[test]
fn an_unreachable_broker_is_reported_with_advice() {
    // Nothing listens on port 1.
    let text = refused(&["--admin", "127.0.0.1:1"]);
    assert!(text.starts_with("ottla tenants: 127.0.0.1:1: "), "{text}");
    assert!(text.contains("is ottla serve running there?"), "{text}");
    let broker = Broker::start_temporary(&[]).unwrap();
    let text = refused(&["--bootstrap-server", &broker.address().to_string()]);
    assert!(text.contains("its admin address is switched off"), "{text}");
    let text = refused(&["--watch", "--admin", "127.0.0.1:1"]);
    assert!(text.contains("--watch needs a terminal"), "{text}");
    let text = refused(&["--interval", "0", "--watch"]);
    assert!(text.contains("between 0.1 and 3600"), "{text}");
}
