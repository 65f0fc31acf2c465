//! `ottla doctor` as a process: collector, table, explanation, files, exit statuses.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/fixtures/doctor");

fn doctor(arguments: &[&str]) -> Output {
    doctor_reading(arguments, "")
}

fn doctor_reading(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("doctor")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns standard output, and checks the exit status.
fn said(output: &Output, status: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the error text of a command that gives no answer.
fn refused(output: &Output) -> String {
    assert_eq!(said(output, 2), "");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn fixture(name: &str) -> String {
    format!("{FIXTURES}/{name}.json")
}

fn verdicts(text: &str) -> Vec<(String, String)> {
    let examination: Value = serde_json::from_str(text).unwrap();
    assert_eq!(examination["version"], 1, "{text}");
    let text_of = |value: &Value| value.as_str().unwrap().to_owned();
    let clients = examination["clients"].as_array().unwrap();
    clients
        .iter()
        .map(|client| (text_of(&client["client_id"]), text_of(&client["verdict"])))
        .collect()
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ottla-doctor-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_examined_in_their_order() {
    let (healthy, limited) = (fixture("B5_healthy"), fixture("B1_kontur_I_16k"));
    let text = said(&doctor(&["replay", &healthy, &limited, "--format", "json"]), 0);
    let found: Vec<String> = verdicts(&text).into_iter().map(|(_, verdict)| verdict).collect();
    assert_eq!(found.len(), 2, "{text}");
    assert_eq!(found[1], "SENDER_RATE");
    assert!(
        ["KEEPS_UP", "APPLICATION"].contains(&found[0].as_str()),
        "{found:?}"
    );
    // Standard input is read like a file.
    let input = std::fs::read_to_string(&limited).unwrap();
    let piped = said(&doctor_reading(&["replay", "-", "--format", "json"], &input), 0);
    assert_eq!(verdicts(&piped)[0].1, "SENDER_RATE");
}

#[test]
fn exit_code_reports_limited_clients() {
    let (healthy, limited) = (fixture("B5_healthy"), fixture("B1_kontur_I_16k"));
    said(&doctor(&["replay", "--exit-code", &healthy]), 0);
    let text = said(&doctor(&["replay", "--exit-code", &limited]), 1);
    for part in [
        "SENDER_RATE",
        "How this was found",
        "The one change",
        "batch.size",
        "What would not help",
        "linger",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn an_unreadable_file_is_named_with_the_reason() {
    let directory = Directory::new("files");
    let missing = directory.0.join("missing.json").display().to_string();
    let error = refused(&doctor(&["replay", &missing]));
    assert!(
        error.starts_with(&format!("ottla doctor replay: {missing}: ")),
        "{error}"
    );
    for (name, text) in [
        ("empty.txt", ""),
        ("poem.txt", "no numbers\nat all\n"),
        ("cut.json", "{\"metrics\": {"),
    ] {
        let path = directory.file(name, text);
        let error = refused(&doctor(&["replay", &path]));
        assert!(
            error.starts_with(&format!("ottla doctor replay: {path}: ")),
            "{error}"
        );
        assert_eq!(error.trim().lines().count(), 1, "{error}");
    }
    let verdicts = said(
        &doctor(&["replay", &fixture("B5_healthy"), "--format", "json"]),
        0,
    );
    let path = directory.file("verdicts.json", &verdicts);
    assert!(refused(&doctor(&["replay", &path])).contains("these are verdicts"));
}

/// A running collector; killed when dropped.
struct Collector {
    child: Child,
    address: String,
}

impl Collector {
    fn start() -> Collector {
        Collector::start_at("127.0.0.1:0")
    }

    fn start_at(listen: &str) -> Collector {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
            .args(["doctor", "collect", "--listen", listen])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line
            .trim()
            .strip_prefix("ottla doctor collect ready http://")
            .unwrap()
            .to_owned();
        Collector { child, address }
    }

    /// Returns status and body of the answer.
    fn post(&self, path: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        // The server may have answered without reading the whole body.
        let _ = socket.write_all(body);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn doctor(&self, arguments: &[&str]) -> Output {
        let mut all = arguments.to_vec();
        all.extend(["--collector", &self.address]);
        doctor(&all)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const WHO: &str = "Kafka-Client-Id: orders\r\nKafka-Client-Instance-Id: 5tqAxl0GTx2WJmZ2cqxIVw\r\n\
    Kafka-Software-Name: apache-kafka-java\r\nKafka-Software-Version: 4.3.0\r\nKafka-Push-Interval-Ms: 10000\r\n";

#[test]
fn what_is_pushed_becomes_a_verdict() {
    let directory = Directory::new("pushed");
    let collector = Collector::start();
    assert!(said(&collector.doctor(&[]), 0).starts_with("no client has been seen yet\n"));
    for payload in otlp::pushes() {
        assert_eq!(collector.post("/v1/kafka/push", WHO, &payload).0, 204);
    }
    let text = said(&collector.doctor(&["--format", "json"]), 1);
    assert_eq!(verdicts(&text), [("orders".to_owned(), "SENDER_RATE".to_owned())]);
    let table = said(&collector.doctor(&[]), 1);
    assert!(
        table.contains("1 of 1 client limited. Why: ottla doctor explain orders"),
        "{table}"
    );

    let told = said(&collector.doctor(&["explain", "orders"]), 1);
    assert!(
        told.contains("orders  producer, instance 5tqAxl0GTx2WJmZ2cqxIVw"),
        "{told}"
    );
    let error = refused(&collector.doctor(&["explain", "ordres"]));
    assert!(
        error.contains("no client \"ordres\" among 1; orders may be meant"),
        "{error}"
    );

    let case = directory.0.join("case.json").display().to_string();
    said(&collector.doctor(&["--export", &case]), 1);
    let replayed = said(&doctor(&["replay", &case, "--format", "json"]), 0);
    assert_eq!(verdicts(&replayed), verdicts(&text));
}

#[test]
fn a_collector_serves_the_score_of_its_promises() {
    let collector = Collector::start();
    let text = said(&collector.doctor(&["promises"]), 0);
    assert_eq!(text, "No promise has been decided.\n");
    let text = said(&collector.doctor(&["promises", "--format", "json"]), 0);
    let promises: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(promises["version"], 1, "{text}");
    assert_eq!(promises["promises"], Value::Array(vec![]), "{text}");
}

#[test]
fn exporters_are_identified_by_their_payload() {
    for name in ["client_id", "service.name"] {
        let collector = Collector::start();
        for payload in otlp::pushes_with(name, "from-resource") {
            let kind = "Content-Type: application/x-protobuf\r\n";
            assert_eq!(
                collector.post("/v1/metrics", kind, &payload),
                (200, String::new())
            );
        }
        let text = said(&collector.doctor(&["--format", "json"]), 1);
        let expected = ("from-resource".to_owned(), "SENDER_RATE".to_owned());
        assert_eq!(verdicts(&text), [expected], "{name}");
    }
}

#[test]
fn a_refused_push_gets_the_reason() {
    let collector = Collector::start();
    let check = |(status, body): (u16, String), expected: u16, part: &str| {
        assert!(status == expected && body.contains(part), "{status} {body}");
    };
    check(
        collector.post("/v1/kafka/push", "", b""),
        400,
        "Kafka-Client-Id is missing",
    );
    check(collector.post("/v1/kafka/push", WHO, b"\xff\xff"), 400, "no OTLP");
    let json = "Content-Type: application/json\r\n";
    check(
        collector.post("/v1/metrics", json, b"{}"),
        415,
        "only application/x-protobuf",
    );
    check(
        collector.post("/v1/kafka/push", WHO, &vec![0; (8 << 20) + 1]),
        413,
        "",
    );
    check(collector.post("/v1/traces", "", b""), 404, "");
    assert!(said(&collector.doctor(&[]), 0).starts_with("no client has been seen yet\n"));
}

#[test]
fn a_collector_stops_on_a_signal_and_then_there_is_no_answer() {
    let mut collector = Collector::start();
    kill_process(Pid::from_child(&collector.child), Signal::TERM).unwrap();
    assert_eq!(collector.child.wait().unwrap().code(), Some(0));
    let error = refused(&collector.doctor(&[]));
    assert!(
        error.starts_with(&format!("ottla doctor: {}: ", collector.address)),
        "{error}"
    );
    assert!(
        error.contains("--admin, --collector or --bootstrap-server select another address"),
        "{error}"
    );
    let error = refused(&doctor(&["--watch", "--admin", &collector.address]));
    assert!(error.contains("--watch needs a terminal"), "{error}");
}

#[test]
fn an_address_that_is_taken_is_named() {
    let collector = Collector::start();
    let error = refused(&doctor(&["collect", "--listen", &collector.address]));
    assert!(
        error.starts_with(&format!("ottla doctor collect: {}: ", collector.address)),
        "{error}"
    );
}

#[test]
fn every_case_fits_the_page() {
    let mut cases = 0;
    for entry in std::fs::read_dir(FIXTURES).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        let examined = said(&doctor(&["replay", &path, "--format", "json"]), 0);
        let [(client, verdict)] = &verdicts(&examined)[..] else {
            panic!("{path}: {examined}")
        };
        let told = said(&doctor(&["replay", &path]), 0);
        assert!(
            told.starts_with(client.as_str()) && told.contains(verdict.as_str()),
            "{told}"
        );
        for line in told.lines() {
            assert!(line.chars().count() <= 100, "{path}: {line}");
            assert!(
                !line.contains("NaN") && !line.chars().any(char::is_control),
                "{path}: {line}"
            );
        }
        cases += 1;
    }
    assert!(cases > 10, "{cases} cases");
}

#[test]
fn a_broker_says_where_its_doctor_is() {
    let directory = Directory::new("bootstrap");
    let (mut broker, address, port) = (0..10)
        .find_map(|_| broker_with_a_known_admin_port(&directory.0))
        .unwrap();
    let address = address.as_str();
    let output = doctor(&["--bootstrap-server", address]);
    let unknown = doctor(&["explain", "nobody", "--bootstrap-server", address]);
    kill_process(Pid::from_child(&broker), Signal::TERM).unwrap();
    broker.wait().unwrap();
    assert!(said(&output, 0).starts_with("no client has been seen yet\n"));
    let error = refused(&unknown);
    assert!(
        error.contains(&format!("127.0.0.1:{port}: no client \"nobody\"")),
        "{error}"
    );
}

/// `None`: the port was free when it was chosen, but in use when the broker bound it.
fn broker_with_a_known_admin_port(directory: &Path) -> Option<(std::process::Child, String, u16)> {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = probe.local_addr().unwrap().port();
    drop(probe);
    let mut broker = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("serve")
        .args(["--override", &format!("log.dirs={}", directory.display())])
        .args(["--override", "listeners=PLAINTEXT://127.0.0.1:0"])
        .args(["--override", &format!("ottla.admin.listener=127.0.0.1:{port}")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.split("listeners=PLAINTEXT://").nth(1);
    match address.and_then(|rest| rest.split(' ').next()) {
        Some(address) => Some((broker, address.to_owned(), port)),
        None => {
            broker.wait().unwrap();
            None
        }
    }
}

#[test]
fn a_change_is_predicted_from_a_file() {
    let path = fixture("B1_kontur_I_16k");
    assert!(Path::new(&path).is_file());
    let text = said(&doctor(&["predict", &path, "--set", "batch.size=32768"]), 0);
    assert!(text.contains("records/s"), "{text}");
    let settings = std::env::temp_dir().join(format!("ottla-predict-{}.properties", std::process::id()));
    std::fs::write(&settings, "batch.size=8192\n").unwrap();
    let config = settings.to_str().unwrap();
    let changed = [
        "predict",
        &path,
        "--set",
        "batch.size=32768",
        "--client-config",
        config,
    ];
    let stated = said(&doctor(&changed), 0);
    std::fs::remove_file(&settings).unwrap();
    assert!(
        stated.contains("8192 (stated)") && !text.contains("8192"),
        "{stated}"
    );
    let error = refused(&doctor(&["predict", &path, "--set", "batch.sise=32768"]));
    assert!(error.contains("batch.size may be meant"), "{error}");
}

#[test]
fn formulas_are_listed_and_worked_out() {
    let list = said(&doctor(&["formula"]), 0);
    for name in [
        "throughput",
        "request-ceiling",
        "window",
        "buffer-time",
        "replication-load",
    ] {
        assert!(
            list.lines().any(|line| line.starts_with(name)),
            "no {name} in:\n{list}"
        );
    }
    let error = refused(&doctor(&["formula", "windw"]));
    assert!(error.contains("window may be meant"), "{error}");
}

const ROWS: u16 = 24;
const COLUMNS: u16 = 110;

/// `ottla doctor --watch` on a terminal of its own.
struct Terminal {
    child: Child,
    stdin: std::process::ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn open(collector: &str, directory: &Path) -> Terminal {
        let ottla = env!("CARGO_BIN_EXE_ottla");
        let watch = format!(
            "stty rows {ROWS} cols {COLUMNS}; exec {ottla} doctor --watch --interval 0.1 --collector {collector}"
        );
        let mut child = Command::new("script")
            .args(["-qfec", &watch, "/dev/null"])
            .current_dir(directory)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, which comes with Debian's bsdutils");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let (mut stdout, drawn) = (child.stdout.take().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut bytes) {
                drawn.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal {
            stdin: child.stdin.take().unwrap(),
            child,
            screen,
        }
    }

    /// Waits until the text is on the screen; panics after the time of a hang.
    fn shows(&self, text: &str) {
        for _ in 0..6_000 {
            if self.text().contains(text) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no {text:?} in\n{}", self.text());
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.stdin.write_all(keys.as_bytes()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_live_screen_outlives_its_doctor_and_ends_with_q() {
    let directory = Directory::new("watch");
    let collector = Collector::start();
    for payload in otlp::pushes() {
        collector.post("/v1/kafka/push", WHO, &payload);
    }
    let mut terminal = Terminal::open(&collector.address, &directory.0);
    terminal.shows("1 client, 1 limited");
    terminal.shows("SENDER_RATE");
    terminal.press("e");
    terminal.shows("is in doctor-orders-");
    let cases: Vec<PathBuf> = std::fs::read_dir(&directory.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(cases.len(), 1, "{cases:?}");
    let text = said(
        &doctor(&["replay", &cases[0].display().to_string(), "--format", "json"]),
        0,
    );
    assert_eq!(verdicts(&text), [("orders".to_owned(), "SENDER_RATE".to_owned())]);
    terminal.press("\r");
    terminal.shows("found");
    terminal.press("q");
    terminal.shows("verdict");
    let address = collector.address.clone();
    drop(collector);
    terminal.shows("NO ANSWER");
    let _collector = Collector::start_at(&address);
    terminal.shows("no client has been seen yet");
    terminal.press("q");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_live_screen_ends_with_its_terminal() {
    let directory = Directory::new("watch-gone");
    let collector = Collector::start();
    let mut terminal = Terminal::open(&collector.address, &directory.0);
    terminal.shows("no client has been seen yet");
    assert!(is_watched(&collector.address));
    // The process that held the terminal is killed; no signal reaches the screen's process.
    terminal.child.kill().unwrap();
    for _ in 0..6_000 {
        if !is_watched(&collector.address) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the screen goes on without a terminal");
}

/// Whether a live screen of this collector is running.
fn is_watched(address: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|command| String::from_utf8_lossy(&command).replace('\0', " "))
        .any(|command| {
            command.contains("--watch") && command.contains(address) && !command.starts_with("script")
        })
}

/// Three pushes of a Java producer in the situation of experiment I, ten seconds each.
mod otlp {
    use super::*;

    const SECONDS: f64 = 10.0;

    pub fn pushes() -> Vec<Vec<u8>> {
        pushes_with("client_rack", "a")
    }

    /// Adds a resource attribute.
    pub fn pushes_with(name: &str, value: &str) -> Vec<Vec<u8>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let begin = now - 30_000_000_000;
        (0..3)
            .map(|number| push(begin + number * 10_000_000_000, &attribute(name, value)))
            .collect()
    }

    fn push(start_nanos: u64, attribute: &[u8]) -> Vec<u8> {
        let end_nanos = start_nanos + 10_000_000_000;
        let total = |name: &str, per_second: f64, node: &str| {
            metric(
                name,
                7,
                [
                    point(start_nanos, end_nanos, per_second * SECONDS, node),
                    varint(2, 1),
                    varint(3, 1),
                ]
                .concat(),
            )
        };
        let gauge =
            |name: &str, value: f64, node: &str| metric(name, 5, point(start_nanos, end_nanos, value, node));
        let mut metrics = vec![
            total("record.send.total", 64_800.0, ""),
            total("outgoing.byte.total", 17_200_000.0, ""),
            total("request.total", 363.0, ""),
            total("record.error.total", 0.0, ""),
            total("record.retry.total", 0.0, ""),
            total("bufferpool.wait.time.ns.total", 0.0, ""),
            total("io.wait.time.ns.total", 600e6, ""),
            total("io.time.ns.total", 300e6, ""),
            total("metadata.wait.time.ns.total", 0.0, ""),
            gauge("request.latency.avg", 13.5, ""),
            gauge("request.latency.max", 30.0, ""),
            gauge("request.size.avg", 47_300.0, ""),
            gauge("batch.size.avg", 15_100.0, ""),
            gauge("batch.size.max", 16_384.0, ""),
            gauge("records.per.request.avg", 178.5, ""),
            gauge("compression.rate.avg", 1.0, ""),
            gauge("record.size.avg", 342.0, ""),
            gauge("record.queue.time.avg", 1_708.0, ""),
            gauge("record.queue.time.max", 1_800.0, ""),
            gauge("requests.in.flight", 5.0, ""),
            gauge("produce.throttle.time.avg", 0.0, ""),
            gauge("buffer.total.bytes", 134_217_728.0, ""),
            gauge("buffer.available.bytes", 90_000_000.0, ""),
        ];
        metrics.push(metric(
            "node.request.total",
            7,
            [
                point(start_nanos, end_nanos, 3_630.0, "node-1"),
                varint(2, 1),
                varint(3, 1),
            ]
            .concat(),
        ));
        metrics.push(gauge("node.request.latency.avg", 13.5, "node-1"));
        let scope = message(
            1,
            &[text(1, "org.apache.kafka.producer"), text(2, "4.3.0")].concat(),
        );
        let scope_metrics = message(2, &[scope, metrics.concat()].concat());
        let resource = message(1, &message(1, attribute));
        message(1, &[resource, scope_metrics].concat())
    }

    fn metric(name: &str, kind: u64, data: Vec<u8>) -> Vec<u8> {
        let name = text(1, &format!("org.apache.kafka.producer.{name}"));
        message(2, &[name, message(kind, &data)].concat())
    }

    fn point(start_nanos: u64, end_nanos: u64, value: f64, node: &str) -> Vec<u8> {
        let mut point = [
            fixed(2, start_nanos),
            fixed(3, end_nanos),
            fixed(4, value.to_bits()),
        ]
        .concat();
        if !node.is_empty() {
            point.extend(message(7, &attribute("node_id", node)));
        }
        message(1, &point)
    }

    fn attribute(key: &str, value: &str) -> Vec<u8> {
        [text(1, key), message(2, &text(1, value))].concat()
    }

    fn text(field: u64, text: &str) -> Vec<u8> {
        message(field, text.as_bytes())
    }

    fn message(field: u64, bytes: &[u8]) -> Vec<u8> {
        [number(field << 3 | 2), number(bytes.len() as u64), bytes.to_vec()].concat()
    }

    fn fixed(field: u64, bits: u64) -> Vec<u8> {
        [number(field << 3 | 1), bits.to_le_bytes().to_vec()].concat()
    }

    fn varint(field: u64, value: u64) -> Vec<u8> {
        [number(field << 3), number(value)].concat()
    }

    fn number(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }
}

#[test]
fn what_is_stated_of_a_client_replaces_what_is_inferred() {
    let limited = fixture("B1_kontur_I_16k");
    let json = said(&doctor(&["replay", &limited, "--format", "json"]), 0);
    let client_id = verdicts(&json)[0].0.clone();
    let directory = Directory::new("stated");
    let file = directory.file(
        "client.properties",
        "bootstrap.servers=h:9092\nbatch.size=1048576\n",
    );
    let of_file = format!("{}*={file}", &client_id[..2]);
    let stated = said(
        &doctor(&[
            "replay",
            &limited,
            "--format",
            "json",
            "--client-config",
            &of_file,
        ]),
        0,
    );
    let clients = |text: &str| serde_json::from_str::<Value>(text).unwrap()["clients"].clone();
    assert_ne!(clients(&json), clients(&stated), "batch.size is another");
    // --set wins over the file.
    let setting = format!("{client_id}.batch.size=16384");
    let both = said(
        &doctor(&[
            "replay",
            &limited,
            "--format",
            "json",
            "--client-config",
            &of_file,
            "--set",
            &setting,
        ]),
        0,
    );
    assert_eq!(clients(&both), clients(&json));
    let other = format!("not-{client_id}.batch.size=1048576");
    let unchanged = said(
        &doctor(&["replay", &limited, "--format", "json", "--set", &other]),
        0,
    );
    assert_eq!(clients(&unchanged), clients(&json));
}

#[test]
fn a_statement_that_cannot_be_is_refused_before_anything_is_asked() {
    // No doctor runs at this address: the refusal comes first.
    for (arguments, parts) in [
        (
            ["--set", "c.batch.siez=1"],
            ["batch.siez", "batch.size may be meant"],
        ),
        (["--set", "c.batch.size=-2"], ["batch.size", "at least 0"]),
        (
            ["--client-config", "c=/no/such/file"],
            ["/no/such/file", "No such file"],
        ),
    ] {
        for command in [&["--admin", "127.0.0.1:1"][..], &["collect"], &["explain", "c"]] {
            let error = refused(&doctor(&[command, &arguments].concat()));
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
