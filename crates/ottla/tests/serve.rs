//! `ottla serve` as a process: output lines, signals and exit statuses.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use rustix::process::{Pid, Signal, kill_process};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ottla-serve-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn serve(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ottla"));
    command.arg("serve").args(arguments);
    command
        .arg("--override")
        .arg(format!("log.dirs={}", data.display()));
    for pair in [
        "listeners=PLAINTEXT://127.0.0.1:0",
        "ottla.admin.listener=127.0.0.1:0",
    ] {
        command.args(["--override", pair]);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ready_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    line
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn refused(mut command: Command, status: i32) -> String {
    let Output {
        status: found,
        stdout,
        stderr,
    } = command.output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(found.code(), Some(status), "{stderr}");
    assert_eq!(stdout, b"");
    stderr
}

#[test]
fn the_ready_line_names_what_was_bound_and_signals_stop_cleanly() {
    let directory = Directory::new("ready");
    // Two at once are one stop: a supervisor may signal a process and its group.
    let stops = [
        vec![Signal::TERM],
        vec![Signal::INT],
        vec![Signal::TERM, Signal::HUP],
    ];
    for stop in stops {
        let mut child = serve(&directory.0, &[]).spawn().unwrap();
        let line = ready_line(&mut child);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["ottla", "ready"], "{line}");
        let port = words[2].strip_prefix("listeners=PLAINTEXT://127.0.0.1:").unwrap();
        assert!(TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).is_ok());
        assert!(
            words[3].strip_prefix("cluster.id=").unwrap().len() == 22,
            "{line}"
        );
        assert_eq!(words[4], format!("log.dirs={}", directory.0.display()));
        assert!(words[5].starts_with("admin=http://127.0.0.1:"), "{line}");
        stop.iter().for_each(|each| signal(&child, *each));
        let status = child.wait().unwrap();
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(directory.0.join(".kafka_cleanshutdown").exists(), "{log}");
    }
}

/// A service manager reloads by SIGHUP, although at a terminal the same signal means that it is
/// gone; SIGQUIT, after which a JVM goes on, is sent to Kafka for its threads.
#[test]
fn signals_that_do_not_mean_a_stop_are_told_and_the_broker_goes_on() {
    let directory = Directory::new("reload");
    let mut command = serve(&directory.0, &[]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let line = ready_line(&mut child);
    let port = line.split("PLAINTEXT://127.0.0.1:").nth(1).unwrap();
    let port: u16 = port.split_whitespace().next().unwrap().parse().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    for (other, told) in [
        (Signal::HUP, "reading the files of TLS again"),
        (Signal::QUIT, "this signal means nothing to a broker"),
        (Signal::USR1, "this signal means nothing to a broker"),
    ] {
        signal(&child, other);
        assert!(log.by_ref().map(Result::unwrap).any(|line| line.contains(told)));
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    }
    signal(&child, Signal::TERM);
    let rest: Vec<String> = log.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:?}");
}

/// A supervisor that is impatient signals again and again while the broker stops.
#[test]
fn a_stop_that_is_asked_for_again_and_again_loses_nothing_and_ends() {
    let directory = Directory::new("again");
    for expected in 0..2 {
        let mut child = serve(&directory.0, &[]).spawn().unwrap();
        let line = ready_line(&mut child);
        let address = line.split("PLAINTEXT://").nth(1).expect("it starts");
        let config = Config::new().set("bootstrap.servers", address.split_whitespace().next().unwrap());
        let producer = Producer::new(&config).unwrap();
        let sent = producer
            .send(&Record::new("kept").partition(0).value("x"))
            .unwrap();
        producer.flush().unwrap();
        assert_eq!(sent.wait().unwrap().offset, expected);
        signal(&child, Signal::TERM);
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("stopping") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "it says that it stops");
        }
        let status = loop {
            signal(&child, Signal::TERM);
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        assert_eq!(status.code(), Some(0), "{rest}");
        assert!(directory.0.join(".kafka_cleanshutdown").exists(), "{rest}");
    }
}

/// A test that is killed cannot signal its broker, but the kernel closes its pipe.
#[test]
fn a_broker_that_stops_with_its_standard_input_does_so_and_cleanly() {
    let directory = Directory::new("stdin");
    let mut command = serve(&directory.0, &["--stop-with-stdin"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    ready_line(&mut child);
    // Text is no end.
    child.stdin.as_mut().unwrap().write_all(b"text").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(directory.0.join(".kafka_cleanshutdown").exists());
}

#[test]
fn a_service_manager_is_told_of_the_start_and_of_the_stop() {
    let directory = Directory::new("notify");
    let path = directory.0.join("socket");
    let name = format!("ottla-serve-{}", std::process::id());
    let in_file = UnixDatagram::bind(&path).unwrap();
    let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
    let variables = [path.display().to_string(), format!("@{name}")];
    for (socket, variable) in [in_file, by_name].into_iter().zip(variables) {
        // Without a limit a datagram that is never sent would be waited for forever.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut command = serve(&directory.0.join("data"), &[]);
        let mut child = command.env("NOTIFY_SOCKET", variable).spawn().unwrap();
        ready_line(&mut child);
        let mut received = [0; 64];
        let length = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..length], b"READY=1");
        signal(&child, Signal::TERM);
        let length = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..length], b"STOPPING=1");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

/// The same program under a limit of its shell, `-n` or `-f`.
fn limited(limit: &str, serve: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("ulimit {limit} && exec \"$@\""), "sh"])
        .arg(serve.get_program())
        .args(serve.get_args());
    limited.stdout(Stdio::piped()).stderr(Stdio::null());
    limited
}

/// Three files for each of a hundred partitions, with a third as many descriptors.
#[test]
fn a_process_with_few_descriptors_serves_more_files_than_it_may_open_and_starts_again() {
    const PARTITIONS: i32 = 100;
    let directory = Directory::new("few");
    for stop in [Signal::KILL, Signal::TERM] {
        let mut child = limited("-n 100", &serve(&directory.0, &[])).spawn().unwrap();
        let line = ready_line(&mut child);
        let address = line.split("PLAINTEXT://").nth(1).expect("it starts");
        let config = Config::new().set("bootstrap.servers", address.split_whitespace().next().unwrap());
        if stop == Signal::KILL {
            let many = NewTopic::new("many").partitions(PARTITIONS).replicas(1);
            let admin = Admin::new(&config).unwrap();
            let created = admin.create_topics(vec![many]).wait().unwrap();
            created["many"].as_ref().unwrap();
        }
        let producer = Producer::new(&config).unwrap();
        let send = |partition| {
            let record = Record::new("many").partition(partition).value("x");
            producer.send(&record).unwrap()
        };
        let sent: Vec<_> = (0..PARTITIONS).map(send).collect();
        producer.flush().unwrap();
        // Acknowledged records survive the kill.
        let expected = i64::from(stop == Signal::TERM);
        for (partition, sent) in (0..).zip(sent) {
            assert_eq!(sent.wait().unwrap().offset, expected, "partition {partition}");
        }
        signal(&child, stop);
        assert_eq!(child.wait().unwrap().code(), (stop == Signal::TERM).then_some(0));
    }
}

/// As under a service manager with LimitFSIZE: the kernel would end the process.
#[test]
fn a_file_larger_than_the_process_may_write_fails_the_write_and_not_the_broker() {
    let directory = Directory::new("limited");
    let serve = serve(&directory.0, &["--override", "log.index.size.max.bytes=4096"]);
    // In blocks of 512 bytes.
    let mut child = limited("-f 2048", &serve).spawn().unwrap();
    let line = ready_line(&mut child);
    let address = line.split("PLAINTEXT://").nth(1).expect("it starts");
    let config = Config::new()
        .set("bootstrap.servers", address.split_whitespace().next().unwrap())
        .set("delivery.timeout.ms", "2000")
        .set("request.timeout.ms", "1000")
        .set("compression.type", "none");
    let producer = Producer::new(&config).unwrap();
    let value = vec![7_u8; 100_000];
    let send = |_| {
        producer
            .send(&Record::new("large").partition(0).value(&value))
            .unwrap()
    };
    let sent: Vec<_> = (0..30).map(send).collect();
    producer.flush().unwrap();
    let failed = sent.into_iter().map(|sent| sent.wait());
    let failed = failed.filter(Result::is_err).count();
    assert!(
        (1..30).contains(&failed),
        "{failed} of 3 MB failed below a limit of 1 MiB"
    );
    assert!(child.try_wait().unwrap().is_none(), "it serves on");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_broker_on_the_directory_is_refused_in_one_line() {
    let directory = Directory::new("locked");
    let mut first = serve(&directory.0, &[]).spawn().unwrap();
    ready_line(&mut first);
    let line = refused(serve(&directory.0, &[]), 1);
    assert!(line.contains(directory.0.to_str().unwrap()), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    signal(&first, Signal::TERM);
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn usage_errors_have_status_2() {
    let directory = Directory::new("usage");
    refused(serve(&directory.0, &["--override", "nonsense"]), 2);
    refused(serve(&directory.0, &["--override", "num.partitions=many"]), 2);
    refused(serve(&directory.0, &["/nowhere/server.properties"]), 2);
    let file = directory.0.join("server.properties");
    std::fs::write(&file, "# fine\na=\\uZZZZ\n").unwrap();
    let line = refused(serve(&directory.0, &[file.to_str().unwrap()]), 2);
    assert!(line.contains("line 2"), "{line}");
}

#[test]
fn overrides_replace_values_of_the_file() {
    let directory = Directory::new("file");
    let file = directory.0.join("server.properties");
    std::fs::write(
        &file,
        "listeners=PLAINTEXT://192.0.2.1:1\nlog.retention.huors=1\n",
    )
    .unwrap();
    let mut child = serve(&directory.0, &[file.to_str().unwrap()]).spawn().unwrap();
    assert!(ready_line(&mut child).starts_with("ottla ready listeners=PLAINTEXT://127.0.0.1:"));
    signal(&child, Signal::TERM);
    child.wait().unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("did you mean log.retention.hours?"), "{log}");
}

/// Returns the log of a broker after `clients`, given its address, have talked to it.
fn log_after(name: &str, arguments: &[&str], clients: impl FnOnce(&str)) -> String {
    let directory = Directory::new(name);
    let mut child = serve(&directory.0, arguments).spawn().unwrap();
    let line = ready_line(&mut child);
    clients(
        line.split("PLAINTEXT://")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap(),
    );
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    log
}

#[test]
fn a_peer_that_is_not_a_kafka_client_gets_one_log_line_that_names_it() {
    let mut peers = Vec::new();
    let log = log_after("lookalikes", &[], |address| {
        let starts: [&[u8]; 3] = [
            b"GET / HTTP/1.1\r\n\r\n",
            &[0x16, 3, 1, 2, 0, 1, 0],
            &[0x7f, 0xff, 0xff, 0xff],
        ];
        for start in starts {
            let mut socket = TcpStream::connect(address).unwrap();
            peers.push(socket.local_addr().unwrap());
            socket.write_all(start).unwrap();
            // The broker closes the connection, with or without unread bytes.
            let _ = socket.read(&mut [0]);
        }
    });
    let reasons = [
        "looks like an HTTP request",
        "looks like a TLS handshake",
        "announces 2147483647 bytes",
    ];
    for (peer, reason) in peers.iter().zip(reasons) {
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&peer.to_string()))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(reason),
            "{peer} {reason}: {log}"
        );
    }
}

#[test]
fn a_slow_request_gets_a_line_with_its_stages() {
    let log = log_after("slow", &["--override", "ottla.slow.request.ms=0"], |address| {
        check_api_versions(&mut TcpStream::connect(address).unwrap());
    });
    let line = log
        .lines()
        .find(|line| line.contains("slow request"))
        .unwrap_or_else(|| panic!("no line: {log}"));
    for field in [
        "ApiVersions",
        "total_us=",
        "queued_us=",
        "handled_us=",
        "synced_us=",
        "written_us=",
        "dominated_by=",
    ] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
}

#[test]
fn connections_beyond_the_descriptors_for_them_are_refused_and_the_others_are_served() {
    let directory = Directory::new("descriptors");
    let wanted = serve(&directory.0, &[]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 100 && exec \"$@\"", "sh"])
        .arg(wanted.get_program())
        .args(wanted.get_args());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = ready_line(&mut child);
    let address = line
        .split("PLAINTEXT://")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    // More than the broker's descriptors; the kernel completes the connects from its backlog.
    let mut sockets: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut refused = sockets.pop().unwrap();
    for _ in 0..20 {
        check_api_versions(&mut sockets[0]);
    }
    let end = refused.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "it is closed at once");
    drop(sockets);
    // Their descriptors are freed as soon as the broker has seen each connection's end.
    while !is_served(&mut TcpStream::connect(address).unwrap()) {}
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let complaints = log
        .lines()
        .filter(|line| line.contains("descriptors for connections are used up"))
        .count();
    assert!(complaints > 0, "the limit was not reached: {log}");
}

/// Whether the broker keeps the connection and answers on it.
fn is_served(socket: &mut TcpStream) -> bool {
    let asked = socket.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff]);
    asked.is_ok() && socket.read_exact(&mut [0; 4]).is_ok()
}

/// Asks for version 0 of ApiVersions and waits for the answer.
fn check_api_versions(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
        .write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff])
        .unwrap();
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut reply = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..6], [0, 0, 0, 7, 0, 0]);
}

/// Returns a transactional batch of one record, producer 7, epoch 3. Clients cannot append it: no
/// transaction is served.
fn transactional_batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: 7,
        producer_epoch: 3,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(1_790_000_000_000, None, Some(b"value"), &[]);
    builder.finish()
}

#[test]
fn a_transaction_that_is_open_in_the_directory_is_named_at_start() {
    let directory = Directory::new("transaction");
    let pairs = [
        ("log.dirs", directory.0.to_str().unwrap()),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
    ];
    let properties = pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let broker = Broker::start(&properties).unwrap();
    let admin = Admin::new(&Config::new().set("bootstrap.servers", broker.address())).unwrap();
    let created = admin
        .create_topics(vec![NewTopic::new("t").partitions(2).replicas(1)])
        .wait()
        .unwrap();
    created["t"].as_ref().unwrap();
    let node = broker.node();
    let topic_id = node.image().topic("t").unwrap().id;
    let partition = node.storage.partition(topic_id, 1).unwrap();
    partition
        .append_internal(node.services(), &transactional_batch())
        .unwrap();
    drop((partition, broker));

    let mut child = serve(&directory.0, &[]).spawn().unwrap();
    ready_line(&mut child);
    signal(&child, Signal::TERM);
    let stderr = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let named: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("a transaction is open"))
        .collect();
    assert_eq!(named.len(), 1, "{stderr}");
    for field in [
        "WARN",
        "topic=t ",
        "partition=1",
        "producer_id=7",
        "first_offset=0",
        "since_unix_ms=1790000000000",
    ] {
        assert!(named[0].contains(field), "{field}: {}", named[0]);
    }
}

#[test]
fn the_version_names_the_commit() {
    let output = Command::new(env!("CARGO_BIN_EXE_ottla"))
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    // Sources without a repository have no commit.
    let expected = match option_env!("OTTLA_COMMIT") {
        Some(commit) => format!("ottla {version} ({commit})\n"),
        None => format!("ottla {version}\n"),
    };
    assert_eq!(text, expected);
}
