//! The console of `ottla serve`, as a browser and as a program ask it.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_client::admin::{Admin, QuotaAlteration, TopicPartition};
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, OffsetAndMetadata};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use serde_json::{Value, json};
use support::{Writer, asked, page};

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

/// A running `ottla serve` in a directory of its own.
struct Served {
    child: Child,
    kafka: SocketAddr,
    admin: SocketAddr,
    directory: std::path::PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn serve(name: &str) -> Served {
    let directory = std::env::temp_dir().join(format!("ottla-console-{}-{name}", std::process::id()));
    let logs = format!("log.dirs={}", directory.display());
    let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args([
            "serve",
            "--override",
            &logs,
            "--override",
            "listeners=PLAINTEXT://127.0.0.1:0",
        ])
        .args(["--override", "ottla.admin.listener=127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let after = |mark: &str| {
        let (_, rest) = ready.split_once(mark).unwrap();
        rest.split([' ', ',', '\n']).next().unwrap().parse().unwrap()
    };
    Served {
        child,
        kafka: after("PLAINTEXT://"),
        admin: after("admin=http://"),
        directory,
    }
}

const BROWSER: &str = "Accept: text/html,application/xhtml+xml\r\n";

#[test]
fn a_record_written_by_a_client_is_on_its_pages() {
    let served = serve("record");
    let mut writer = Writer::connect(served.kafka);
    writer.create_topic("orders", 2);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(
        1_793_385_598_000,
        Some(b"key-7"),
        Some(b"{\"hello\": \"<b>world</b>\"}"),
        &[],
    );
    writer.append("orders", 0, &builder.finish());
    let (head, html) = page(served.admin, "/messages/orders", BROWSER);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    assert!(
        html.contains("key-7") && html.contains("&lt;b&gt;world&lt;/b&gt;"),
        "{html}"
    );
    assert!(html.contains("2026-10-30 18:39:58.000"), "{html}");
    let topics: Value = serde_json::from_str(&page(served.admin, "/topics.json", "").1).unwrap();
    assert_eq!(topics["topics"][0]["topic"]["name"], "orders");
    let one: Value = serde_json::from_str(&page(served.admin, "/topics/orders.json", "").1).unwrap();
    assert_eq!(one["topic"]["partitions"][0]["high_watermark"], 1);
    assert_eq!(one["topic"]["partitions"][1]["high_watermark"], 0);
}

/// Writes a record of a long value, and three short ones of JSON.
fn write_looked_at(served: &Served) -> String {
    let mut writer = Writer::connect(served.kafka);
    writer.create_topic("looked", 1);
    let long = "x".repeat(300_000);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_793_385_598_000, Some(b"long"), Some(long.as_bytes()), &[]);
    for number in 0..3 {
        let value = format!("{{\"order\": {{\"number\": {number}}}}}");
        builder.append(1_793_385_598_000, Some(b"short"), Some(value.as_bytes()), &[]);
    }
    writer.append("looked", 0, &builder.finish());
    long
}

/// By the broker's own console and by one that asks over the wire.
#[test]
fn a_long_value_is_a_file_and_json_is_found_by_what_is_in_it() {
    let served = serve("looked");
    let long = write_looked_at(&served);
    let (_console, other) = console_of(&served);
    for admin in [served.admin, other] {
        let (head, body) = page(admin, "/messages/looked/value?partition=0&offset=0", BROWSER);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: application/octet-stream"), "{head}");
        assert!(
            head.contains("content-disposition: attachment; filename=\"looked-0-0.value\""),
            "{head}"
        );
        assert!(
            head.contains("sandbox") && head.contains("x-content-type-options: nosniff"),
            "{head}"
        );
        assert!(body == long, "{} bytes", body.len());
        let (head, _) = page(admin, "/messages/looked/value?partition=0&offset=4", "");
        assert!(head.starts_with("HTTP/1.1 404"), "{head}");
        let found = document(
            admin,
            "/messages/looked.json?offset=0&pointer=/order/number&is=2&key=short",
        );
        assert_eq!(found["records"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(
            (&found["records"][0]["offset"], &found["looked_at"]),
            (&3.into(), &4.into())
        );
        let followed = document(admin, "/messages/looked.json?follow=1");
        assert_eq!(followed["entries"].as_array().unwrap().len(), 4, "{followed}");
        assert_eq!(followed["entries"][0]["value"].as_str().unwrap().len(), 80);
    }
}

#[test]
fn a_partition_that_is_followed_shows_the_last_of_what_came_and_counts_the_rest() {
    let served = serve("followed");
    let mut writer = Writer::connect(served.kafka);
    writer.create_topic("followed", 1);
    let followed = || document(served.admin, "/messages/followed.json?follow=1");
    assert_eq!(followed()["entries"], json!([]));
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..100 {
        builder.append(1_793_385_598_000, None, Some(b"x"), &[]);
    }
    writer.append("followed", 0, &builder.finish());
    let begun = Instant::now();
    let found = loop {
        let found = followed();
        if found["entries"] != json!([]) {
            break found;
        }
        assert!(begun.elapsed() < HANG, "the records never came");
        std::thread::sleep(Duration::from_millis(50));
    };
    let first = &found["entries"][0];
    assert_eq!(
        (&first["skipped"], &first["skipped_from"]),
        (&80.into(), &0.into())
    );
    assert_eq!(found["entries"].as_array().unwrap().len(), 21);
    assert_eq!(found["entries"][1]["offset"], 80);
}

#[test]
fn browsers_get_pages_and_programs_the_documents_that_they_always_got() {
    let served = serve("forms");
    for (path, headers, kind) in [
        ("/", BROWSER, "text/html"),
        ("/", "Accept: application/json\r\n", "application/json"),
        ("/tenants", BROWSER, "text/html"),
        ("/tenants", "", "application/json"),
        ("/doctor", BROWSER, "application/json"),
        ("/metrics", BROWSER, "text/plain"),
    ] {
        let (head, _) = page(served.admin, path, headers);
        assert!(
            head.contains(&format!("content-type: {kind}")),
            "{path} {headers}: {head}"
        );
    }
    let (head, _) = page(served.admin, "/nothing", BROWSER);
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let (head, _) = page(
        served.admin,
        "/",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

/// A started `ottla console`.
struct Console(Child);

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn console(kafka: SocketAddr, reports: &std::path::Path) -> (Console, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(["console", "--bootstrap-server", &kafka.to_string()])
        .args([
            "--listen",
            "127.0.0.1:0",
            "--telemetry",
            "127.0.0.1:0",
            "--reports",
        ])
        .arg(reports)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let stdout = child.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut ready).unwrap();
    (Console(child), ready)
}

#[test]
fn reports_are_served_in_a_sandbox_and_their_pages_are_not() {
    let served = serve("reports");
    let reports = served.directory.join("reports");
    let (mut refused, ready) = console(served.kafka, &reports);
    let mut problem = String::new();
    refused
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut problem)
        .unwrap();
    assert_eq!(
        (&*ready, refused.0.wait().unwrap().code()),
        ("", Some(2)),
        "{problem}"
    );
    assert!(problem.contains("--reports: The directory"), "{problem}");

    std::fs::create_dir_all(&reports).unwrap();
    let report = serde_json::to_vec(&ottla_lab::bench::sample::report()).unwrap();
    std::fs::write(reports.join("first.json"), report).unwrap();
    let (_console, ready) = console(served.kafka, &reports);
    let (_, rest) = ready.split_once("http://").unwrap();
    let address: SocketAddr = rest.split(' ').next().unwrap().parse().unwrap();
    let (head, html) = page(address, "/bench", BROWSER);
    assert!(head.contains("cross-origin-opener-policy: same-origin"), "{head}");
    assert!(html.contains("href=\"/bench/first\""), "{html}");
    let (head, html) = page(address, "/reports/first", BROWSER);
    assert!(
        head.contains("frame-ancestors 'self'; sandbox") && !head.contains("opener-policy"),
        "{head}"
    );
    assert!(html.contains("id=\"report\"") && !html.contains("<img"), "{html}");
}

/// Starts a console of the broker in a process of its own; returns it with its address.
fn console_of(served: &Served) -> (Console, SocketAddr) {
    let reports = served.directory.join("reports");
    std::fs::create_dir_all(&reports).unwrap();
    let (console, ready) = console(served.kafka, &reports);
    let (_, rest) = ready.split_once("http://").unwrap();
    (console, rest.split(' ').next().unwrap().parse().unwrap())
}

fn document(address: SocketAddr, path: &str) -> Value {
    let text = page(address, path, "").1;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// Five records, of which a group without members has committed two.
fn write_and_commit(served: &Served) {
    let mut writer = Writer::connect(served.kafka);
    writer.create_topic("orders", 1);
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..5 {
        builder.append(1_793_385_598_000, None, Some(b"x"), &[]);
    }
    writer.append("orders", 0, &builder.finish());
    let config = Config::new().set("bootstrap.servers", served.kafka.to_string());
    let offsets = [(TopicPartition::new("orders", 0), OffsetAndMetadata::new(2))];
    let committed = Admin::new(&config)
        .unwrap()
        .alter_group_offsets("billing", offsets.into())
        .wait()
        .unwrap();
    assert!(committed.values().all(Result::is_ok), "{committed:?}");
}

#[test]
fn both_consoles_follow_how_far_groups_have_read() {
    let served = serve("followed");
    write_and_commit(&served);
    let (_console, over_the_wire) = console_of(&served);
    let deadline = Instant::now() + HANG;
    for address in [served.admin, over_the_wire] {
        let is_followed = || {
            let group = document(address, "/groups/billing.json");
            let untold = group["lag_trend_untold"].as_str().unwrap_or_default();
            // The sampler has the cluster's answer with its next look.
            untold.contains("it takes 20 s of readings") || group["lag_trend"].is_object()
        };
        while !is_followed() {
            assert!(Instant::now() < deadline, "{address}: nothing is sampled");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// 50 MB/s for each client id.
fn set_quota(served: &Served) {
    let config = Config::new().set("bootstrap.servers", served.kafka.to_string());
    let entity = [(String::from("client-id"), None)].into();
    let alteration = QuotaAlteration::new(entity).set("producer_byte_rate", 5e7);
    let altered = Admin::new(&config)
        .unwrap()
        .alter_client_quotas(vec![alteration])
        .wait();
    assert!(altered.unwrap().values().all(Result::is_ok));
}

#[test]
fn over_the_wire_what_is_not_told_of_a_group_and_a_partition_has_its_reason() {
    let served = serve("wire");
    write_and_commit(&served);
    set_quota(&served);
    let (_console, address) = console_of(&served);
    let group = document(address, "/groups/billing.json");
    assert_eq!(
        (&group["lag_records"], &group["partitions_without_lag_seconds"]),
        (&json!(3), &json!(1)),
        "{group}"
    );
    assert_eq!(
        group["group"]["offsets"][0]["time_unknown"], "not_told",
        "{group}"
    );
    let one = document(address, "/topics/orders/0.json");
    let partition = &one["partition"];
    for field in ["high_watermark", "last_stable", "log_end"] {
        assert_eq!(partition[field], 5, "{field} of {one}");
    }
    assert_eq!(partition["newest_at_ms"], 1_793_385_598_000_i64, "{one}");
    assert!(partition["leader_epoch"].is_number(), "{one}");
    assert_eq!(partition["producers"], json!([]), "{one}");
    let untold = partition["segments"]["untold"].as_str().unwrap();
    assert!(untold.contains("the segments of a partition"), "{one}");
    assert_eq!(one["groups"][0]["group_id"], "billing", "{one}");
    let tenants = document(address, "/tenants.json");
    assert_eq!(
        tenants["quotas_set"],
        json!([{"entity": "client-id default", "quota": "producer_byte_rate", "limit": 5e7}]),
        "{tenants}"
    );
    let html = page(served.admin, "/tenants", BROWSER).1;
    for part in ["client-id default", "producer_byte_rate", "50 MB/s"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    for path in ["/topics/orders/1", "/topics/none/0"] {
        let (head, _) = page(address, path, BROWSER);
        assert!(head.starts_with("HTTP/1.1 404"), "{path}: {head}");
    }
}

/// A group whose consumers had died was not on the page at all.
#[test]
fn a_group_without_members_has_its_lag_on_the_pages() {
    let served = serve("members");
    write_and_commit(&served);
    let groups: Value = serde_json::from_str(&page(served.admin, "/groups.json", "").1).unwrap();
    let group = &groups["groups"][0];
    assert_eq!(group["group"]["group_id"], "billing", "{groups}");
    assert_eq!(
        (&group["lag_records"], &group["group"]["members"]),
        (&json!(3), &json!([]))
    );
    assert!(group["lag_seconds"].is_number(), "{groups}");
    let (_, html) = page(served.admin, "/groups/billing", BROWSER);
    assert!(
        html.contains("It has no member: nothing is being read."),
        "{html}"
    );
}

/// The only member of a group that is named as its protocol.
fn joined(served: &Served, protocol: &str) -> Consumer {
    let config = Config::new()
        .set("bootstrap.servers", served.kafka.to_string())
        .set("client.id", "reader")
        .set("group.id", protocol)
        .set("group.protocol", protocol);
    let mut consumer = Consumer::new(&config).unwrap();
    consumer.subscribe(["orders"]).unwrap();
    let deadline = Instant::now() + HANG;
    while consumer.assignment().is_empty() {
        assert!(Instant::now() < deadline, "{protocol}: nothing was assigned");
        consumer.poll(Duration::from_millis(50)).unwrap();
    }
    consumer
}

/// A cluster tells what members hold, and of groups of KIP-848 what they are meant to hold.
#[test]
fn over_the_wire_members_are_shown_with_what_they_hold() {
    let served = serve("holds");
    Writer::connect(served.kafka).create_topic("orders", 1);
    let _consumers = ["classic", "consumer"].map(|protocol| joined(&served, protocol));
    let (_console, address) = console_of(&served);
    let deadline = Instant::now() + HANG;
    for (group, state) in [("classic", Value::Null), ("consumer", json!("stable"))] {
        let expected = (json!({"orders": [0]}), state);
        let member = || {
            let group = document(address, &format!("/groups/{group}.json"));
            let member = &group["group"]["members"][0];
            (member["holds"].clone(), member["state"].clone())
        };
        while member() != expected {
            assert!(
                Instant::now() < deadline,
                "{group}: {:?}, not {expected:?}",
                member()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn a_rebalance_is_on_the_groups_page_with_what_began_it() {
    let served = serve("rebalances");
    Writer::connect(served.kafka).create_topic("orders", 1);
    for protocol in ["classic", "consumer"] {
        let mut consumer = joined(&served, protocol);
        let rebalances = || {
            let page = page(served.admin, &format!("/groups/{protocol}.json"), "").1;
            let page: Value = serde_json::from_str(&page).unwrap();
            page["group"]["rebalances"].clone()
        };
        let joined = rebalances();
        assert_eq!(joined[0]["why"], "reader joined", "{joined}");
        assert_eq!(joined[0]["members"], 1, "{joined}");
        check_member(&served, protocol);
        let took = |rebalance: &Value| {
            let at = |field: &str| rebalance[field].as_i64().unwrap();
            at("ended_at_ms") - at("began_at_ms")
        };
        assert!(took(&joined[0]) >= 0, "{joined}");
        consumer.close(HANG).unwrap();
        let left = rebalances();
        assert_eq!(left[0]["why"], "reader left or was removed", "{left}");
        assert_eq!((&left[0]["members"], &left[1]), (&json!(0), &joined[0]));
    }
}

/// What the only member of a group holds, on its page and by the names of kminion.
#[track_caller]
fn check_member(served: &Served, group: &str) {
    let document = page(served.admin, &format!("/groups/{group}.json"), "").1;
    let document: Value = serde_json::from_str(&document).unwrap();
    let (group_state, member) = (&document["group"]["state"], &document["group"]["members"][0]);
    assert_eq!(group_state, "Stable", "{document}");
    assert_eq!(member["holds"], json!({"orders": [0]}), "{document}");
    let told = (group == "consumer").then_some("stable");
    assert_eq!(member["state"], json!(told), "{document}");
    let metrics = page(served.admin, "/metrics?names=kminion", "").1;
    for (name, topic, value) in [
        ("topic_members", ",topic_name=\"orders\"", 1),
        ("topic_assigned_partitions", ",topic_name=\"orders\"", 1),
        ("empty_members", "", 0),
    ] {
        let line = format!("kminion_kafka_consumer_group_{name}{{group_id=\"{group}\"{topic}}} {value}");
        assert!(
            metrics.lines().any(|found| found == line),
            "{line} is not in {metrics}"
        );
    }
}

#[test]
fn a_partition_is_shown_with_its_files_and_its_producers() {
    let served = serve("partition");
    let mut writer = Writer::connect(served.kafka);
    writer.create_topic("orders", 2);
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: 4_000,
        producer_epoch: 3,
        base_sequence: 0,
        ..BatchOptions::default()
    });
    for _ in 0..5 {
        builder.append(1_793_385_598_000, None, Some(b"x"), &[]);
    }
    let batch = builder.finish();
    writer.append("orders", 1, &batch);
    let document = page(served.admin, "/topics/orders/1.json", "").1;
    let document: Value = serde_json::from_str(&document).unwrap();
    let partition = &document["partition"];
    for field in ["high_watermark", "last_stable", "log_end"] {
        assert_eq!(partition[field], 5, "{field} of {document}");
    }
    assert_eq!(partition["newest_at_ms"], 1_793_385_598_000_i64, "{document}");
    let segment = json!({"base_offset": 0, "bytes": batch.len(), "newest_at_ms": 1_793_385_598_000_i64});
    assert_eq!(partition["segments"], json!([segment]), "{document}");
    let producer = &partition["producers"][0];
    assert_eq!(
        [
            &producer["producer_id"],
            &producer["producer_epoch"],
            &producer["last_sequence"]
        ],
        [&json!(4_000), &json!(3), &json!(4)]
    );
    let (head, html) = page(served.admin, "/topics/orders/2", BROWSER);
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(
        html.contains("There is no partition 2 of orders: it has 2 partitions"),
        "{html}"
    );
}

#[test]
fn a_live_page_is_sent_whole_and_then_what_changes() {
    let served = serve("live");
    let (head, mut stream) = asked(served.admin, "/events?page=%2Ftopics", "");
    assert!(head.contains("text/event-stream"), "{head}");
    let mut until = |needle: &str| {
        let mut line = String::new();
        while !line.contains(needle) {
            line.clear();
            assert!(
                stream.read_line(&mut line).unwrap() > 0,
                "the stream ended before {needle}"
            );
        }
        line
    };
    let all = until("data: {\"html\"");
    assert!(all.contains("There is no topic"), "{all}");
    Writer::connect(served.kafka).create_topic("fresh-topic", 1);
    until("fresh-topic");
}

#[test]
fn the_seventeenth_viewer_is_told_to_come_back_later() {
    let served = serve("viewers");
    let viewers: Vec<_> = (0..16)
        .map(|_| asked(served.admin, "/events?page=%2F", ""))
        .collect();
    assert!(viewers.iter().all(|(head, _)| head.starts_with("HTTP/1.1 200")));
    let (head, _) = asked(served.admin, "/events?page=%2F", "");
    assert!(
        head.starts_with("HTTP/1.1 503") && head.contains("retry-after: 10"),
        "{head}"
    );
    // Pages are served all the same.
    assert!(page(served.admin, "/", BROWSER).0.starts_with("HTTP/1.1 200"));
    drop(viewers);
    // A place is free as soon as the broker notices that its viewer is gone.
    while !asked(served.admin, "/events?page=%2F", "")
        .0
        .starts_with("HTTP/1.1 200")
    {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The answer to HEAD ends at once, whatever its content type says: its connection counts as idle,
/// and gives its place to the one that comes next.
#[test]
fn a_question_for_the_head_of_a_live_page_keeps_no_place() {
    let served = serve("heads");
    let heads: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(served.admin).unwrap();
            write!(
                stream,
                "HEAD /events?page=%2F HTTP/1.1\r\nhost: localhost\r\n\r\n"
            )
            .unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            assert!(line.starts_with("HTTP/1.1 200"), "{line}");
            stream
        })
        .collect();
    assert!(page(served.admin, "/", BROWSER).0.starts_with("HTTP/1.1 200"));
    drop(heads);
}

/// `ottla demo` kept its broker's console only while it ran: its address was of no use at the end.
#[test]
fn the_console_of_a_demo_that_stays_is_open_until_it_is_ended() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(["demo", "--act", "callback", "--seconds", "5", "--stay"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let said = lines
        .map(Result::unwrap)
        .find(|line| line.starts_with("The console of this broker: http://"));
    let said = said.expect("the demo says where its console is");
    let (_, address) = said.split_once("http://").unwrap();
    let address: SocketAddr = address.split('/').next().unwrap().parse().unwrap();
    let clients = document(address, "/clients.json");
    assert!(!clients["examination"]["clients"].as_array().unwrap().is_empty());
    let ended = Command::new("kill")
        .args(["-INT", &demo.id().to_string()])
        .status()
        .unwrap();
    assert!(ended.success());
    let status = demo.wait().unwrap();
    assert!(
        status.code().is_some(),
        "it ends by itself, whatever the promises were: {status}"
    );
}
