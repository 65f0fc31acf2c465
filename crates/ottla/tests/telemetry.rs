//! `ottla serve` serves snapshots on its admin address from what clients push and from its own
//! counts.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_client::admin::{Admin, ClientMetricsSubscription, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record};
use serde_json::Value;

const NOTHING_HANGS_LONGER: Duration = Duration::from_secs(60);

/// A running `ottla serve`; dropping it kills the process and removes its directory.
struct Served {
    child: Child,
    data: PathBuf,
    bootstrap: String,
    admin: String,
}

impl Served {
    fn start(name: &str) -> Served {
        Served::start_with(name, &[])
    }

    /// - `more`: further settings of the broker, `key=value`.
    fn start_with(name: &str, more: &[&str]) -> Served {
        let data = std::env::temp_dir().join(format!("ottla-doctor-{name}-{}", std::process::id()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_ottla"));
        command.arg("serve");
        let own = [
            "listeners=PLAINTEXT://127.0.0.1:0",
            "ottla.admin.listener=127.0.0.1:0",
        ];
        for pair in own.iter().chain(more) {
            command.args(["--override", pair]);
        }
        command.args(["--override", &format!("log.dirs={}", data.display())]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let word = |begin: &str| {
            let mut words = line.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(begin))
                .unwrap()
                .to_owned()
        };
        Served {
            bootstrap: word("listeners=PLAINTEXT://"),
            admin: word("admin=http://"),
            child,
            data,
        }
    }

    fn config(&self) -> Config {
        Config::new().set("bootstrap.servers", &self.bootstrap)
    }

    fn create_topic(&self) -> Admin {
        let admin = Admin::new(&self.config()).unwrap();
        let created = admin
            .create_topics(vec![NewTopic::new("t").partitions(1)])
            .wait()
            .unwrap();
        assert!(created["t"].is_ok());
        admin
    }

    fn get(&self, path: &str) -> Value {
        get(&self.admin, path)
    }

    /// Repeats `step` until the snapshot of `client_id` is as expected.
    fn until(
        &self,
        client_id: &str,
        mut step: impl FnMut(),
        is_as_it_should_be: impl Fn(&Value) -> bool,
    ) -> Value {
        let started = Instant::now();
        loop {
            step();
            let snapshots = self.get("/doctor/snapshots");
            let found = snapshots
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["client"]["client_id"] == client_id);
            if let Some(found) = found.filter(|found| is_as_it_should_be(found)) {
                return found.clone();
            }
            assert!(started.elapsed() < NOTHING_HANGS_LONGER, "{snapshots:#}");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn get(address: &str, path: &str) -> Value {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(NOTHING_HANGS_LONGER)).unwrap();
    write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{head}");
    serde_json::from_str(body).unwrap()
}

fn send(producer: &Producer) {
    let record = Record {
        topic: "t",
        value: Some(&[7; 100]),
        ..Record::default()
    };
    for _ in 0..50 {
        producer
            .send_with(&record, |result| assert!(result.is_ok(), "{result:?}"))
            .unwrap();
    }
    producer.flush().unwrap();
}

#[test]
fn the_snapshot_of_a_pushing_client_has_its_own_metrics_and_the_brokers_counts() {
    let served = Served::start("pushing");
    let admin = served.create_topic();
    let subscription = ClientMetricsSubscription::new(["*"])
        .interval_ms(100)
        .matching("client_id=billing-.*");
    let set = admin
        .set_client_metrics_subscription("all", &subscription)
        .wait()
        .unwrap();
    assert!(set.values().all(Result::is_ok));
    let config = served
        .config()
        .set("client.id", "billing-7")
        .set("compression.type", "lz4");
    let producer = Producer::new(&config).unwrap();
    let snapshot = served.until(
        "billing-7",
        || send(&producer),
        |found| {
            let pushes = found["telemetry"]["pushes"].as_u64().unwrap_or(0);
            pushes >= 3 && !found["brokers"].as_array().unwrap().is_empty()
        },
    );
    let client = &snapshot["client"];
    assert_eq!(
        (client["role"].as_str(), client["principal"].as_str()),
        (Some("producer"), Some("User:ANONYMOUS"))
    );
    assert!(
        client["instance_id"].is_string() && client["software_name"].is_string(),
        "{client}"
    );
    assert!(snapshot["producer"]["records_per_second"].as_f64().unwrap() > 0.0);
    let seen = &snapshot["brokers"][0];
    let host = &snapshot["host"];
    assert!(
        host["processors"].as_f64().unwrap() >= 1.0,
        "it is on the broker's machine: {snapshot:#}"
    );
    assert_eq!(seen["host"], *host);
    let partition = &seen["partitions"][0];
    assert_eq!(
        (&partition["topic"], &partition["partition"]),
        (&"t".into(), &0.into())
    );
    assert_eq!(seen["partitions_written"], 1.0);
    for figure in [
        "request_bytes_max",
        "batch_bytes_max",
        "in_flight_max",
        "requests_per_second",
        "records_per_second",
        "total_micros",
        "round_trip_ms",
    ] {
        assert!(seen[figure].as_f64().unwrap() > 0.0, "{figure} in {seen}");
    }
    assert_eq!(snapshot["settings"]["acks"]["value"], -1);
    assert_eq!(snapshot["settings"]["compression"]["value"], "lz4");
    let examination = served.get("/doctor");
    assert_eq!(examination["version"], 1);
    assert!(
        examination["clients"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["client_id"] == "billing-7")
    );
}

#[test]
fn the_snapshot_of_a_client_without_telemetry_has_the_brokers_counts() {
    let served = Served::start("silent");
    served.create_topic();
    let config = served
        .config()
        .set("client.id", "silent")
        .set("enable.metrics.push", "false");
    let producer = Producer::new(&config).unwrap();
    let snapshot = served.until("silent", || send(&producer), |_| true);
    assert_eq!(snapshot["telemetry"]["pushes"], 0);
    assert_eq!(snapshot["telemetry"]["has_subscription"], false);
    let seen = &snapshot["brokers"][0];
    assert!(seen["records_per_request"].as_f64().unwrap() >= 1.0, "{seen}");
    assert!(
        seen["gap_ms"].as_f64().is_some() && seen["back_to_back_share"].as_f64().is_some(),
        "{seen}"
    );
}

#[test]
fn a_client_of_a_broker_that_asks_for_nothing_says_so() {
    let served = Served::start_with("off", &["ottla.telemetry.default.interval.ms=0"]);
    served.create_topic();
    let producer = Producer::new(&served.config().set("client.id", "unasked")).unwrap();
    let is_off = |found: &Value| found["telemetry"]["is_off_at_broker"].as_bool().unwrap();
    let snapshot = served.until("unasked", || send(&producer), is_off);
    assert_eq!(snapshot["telemetry"]["is_silent"], false);
    let seen = served.get("/doctor")["seen"].clone();
    assert_eq!((&seen["clients"], &seen["pushing"]), (&1.into(), &0.into()));
    assert_eq!(seen["connections"], 1);
}

#[test]
fn a_consumer_without_telemetry_has_the_lag_of_its_fetches() {
    let served = Served::start("silent-reader");
    served.create_topic();
    let producer = Producer::new(&served.config()).unwrap();
    send(&producer);
    let config = served
        .config()
        .set("client.id", "silent-reader")
        .set("group.id", "g")
        .set("auto.offset.reset", "earliest")
        .set("enable.metrics.push", "false");
    let mut consumer = Consumer::new(&config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let mut read = 0;
    let step = || read += consumer.poll(Duration::from_millis(100)).unwrap().len();
    let snapshot = served.until("silent-reader", step, |found| {
        let partitions = &found["consumer"]["partitions"];
        partitions[0]["lag"] == 0.0 && partitions[0]["lag_slope"].is_number()
    });
    assert_eq!(read, 50);
    // As the client's defaults are, read in its requests.
    for (setting, value) in [
        ("fetch_min_bytes", 1.0),
        ("fetch_max_wait_ms", 500.0),
        ("max_partition_fetch_bytes", 1_048_576.0),
        ("max_poll_interval_ms", 300_000.0),
        ("session_timeout_ms", 45_000.0),
    ] {
        let found = &snapshot["settings"][setting];
        assert_eq!(
            (&found["value"], &found["origin"]),
            (&value.into(), &"seen".into()),
            "{setting}"
        );
    }
    assert_eq!(snapshot["client"]["role"], "consumer");
    let partition = &snapshot["consumer"]["partitions"][0];
    assert_eq!(
        (partition["topic"].as_str(), partition["partition"].as_i64()),
        (Some("t"), Some(0))
    );
    assert_eq!(partition["produced_per_second"], 0.0);
}

/// A running `ottla doctor collect`; dropping it kills the process.
struct Collecting {
    child: Child,
    address: String,
}

impl Collecting {
    fn start(bootstrap: &str) -> Collecting {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
            .args(["doctor", "collect", "--listen", "127.0.0.1:0"])
            .args(["--bootstrap-server", bootstrap])
            .args(["--set", "idle-*.max.poll.records=7"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        Collecting { child, address }
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_collector_lists_group_members_that_push_nothing_with_their_lag() {
    let served = Served::start("beside");
    served.create_topic();
    let producer = Producer::new(&served.config()).unwrap();
    send(&producer);
    let config = served
        .config()
        .set("client.id", "idle-reader")
        .set("group.id", "g")
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .set("enable.metrics.push", "false");
    let mut consumer = Consumer::new(&config).unwrap();
    consumer.subscribe(["t"]).unwrap();
    let mut read = 0;
    while read < 50 {
        read += consumer.poll(Duration::from_millis(100)).unwrap().len();
    }
    consumer.commit_sync().unwrap();
    // It reads no more.
    send(&producer);
    let collecting = Collecting::start(&served.bootstrap);
    let snapshot = loop {
        let snapshots = get(&collecting.address, "/doctor/snapshots");
        let found = snapshots.as_array().unwrap().first();
        // Its lag is known from the second look on.
        if let Some(found) = found.filter(|found| found["consumer"]["partitions"][0]["lag"].is_number()) {
            break found.clone();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(snapshot["client"]["client_id"], "idle-reader");
    assert_eq!(snapshot["client"]["group_id"], "g");
    assert_eq!(snapshot["consumer"]["partitions"][0]["lag"], 50.0);
    assert_eq!(snapshot["telemetry"]["pushes"], 0);
    assert_eq!(snapshot["telemetry"]["is_off_at_broker"], true, "no subscription");
    let stated = &snapshot["settings"]["max_poll_records"];
    assert_eq!(
        (&stated["value"], &stated["origin"]),
        (&7.0.into(), &"stated".into())
    );
    let seen = get(&collecting.address, "/doctor")["seen"].clone();
    assert_eq!((&seen["clients"], &seen["pushing"]), (&1.into(), &0.into()));
    assert!(seen["connections"].is_null(), "no broker counts them here");
}
