//! A distributed worker of Kafka Connect with `exactly.once.source.support=enabled`, which copies a
//! file that grows into a topic; the worker and the broker are killed in between.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::application::Application;
use super::committed::Committed;
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;
use super::tools::Tools;

const WORKER: &str = "org.apache.kafka.connect.cli.ConnectDistributed";
const TOPIC: &str = "connect-copied";

/// Lines that must be committed between two of the kills.
const LINES_MIN: usize = 500;

/// The most lines of one transaction.
const BATCH_LINES: usize = 1_000;

pub fn run(table: &mut Table, programs: &Programs, target: Target) -> Result<()> {
    let name = "connect: an exactly-once source while the worker and the broker are killed";
    let outcome = copy_file(programs, target).map_err(|error| format!("{error:#}"));
    println!("{name}: {}", outcome.as_ref().err().map_or("ok", String::as_str));
    table.add_other(name, outcome);
    Ok(())
}

/// A file that grows by a numbered line every few milliseconds, until it is finished.
struct Growing {
    state: Arc<State>,
    writer: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct State {
    is_finished: AtomicBool,
    lines: AtomicUsize,
}

impl Growing {
    fn start(file: PathBuf) -> Growing {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let writer = std::thread::spawn(move || {
            let mut file = File::create(file)?;
            while !shared.is_finished.load(Ordering::Relaxed) {
                let number = shared.lines.load(Ordering::Relaxed);
                file.write_all(format!("line-{number}\n").as_bytes())?;
                shared.lines.store(number + 1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(4));
            }
            Ok(())
        });
        Growing { state, writer }
    }

    fn lines(&self) -> usize {
        self.state.lines.load(Ordering::Relaxed)
    }

    /// Returns how many lines there are.
    fn finish(self) -> Result<usize> {
        self.state.is_finished.store(true, Ordering::Relaxed);
        self.writer.join().expect("the writer of lines ends")?;
        Ok(self.state.lines.load(Ordering::Relaxed))
    }
}

/// The worker's configuration. A killed member is gone soon, and its tasks are given away at once.
fn worker_properties(bootstrap: &str, rest_port: u16) -> String {
    format!(
        "bootstrap.servers={bootstrap}
group.id=connect
exactly.once.source.support=enabled
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
config.storage.replication.factor=1
offset.storage.topic=connect-offsets
offset.storage.replication.factor=1
offset.storage.partitions=3
status.storage.topic=connect-status
status.storage.replication.factor=1
status.storage.partitions=3
listeners=http://127.0.0.1:{rest_port}
plugin.discovery=service_load
scheduled.rebalance.max.delay.ms=0
session.timeout.ms=3000
heartbeat.interval.ms=500
"
    )
}

/// The connector: one transaction for each batch of lines, in which its position is stored, too.
fn connector(file: &Path) -> serde_json::Value {
    serde_json::json!({
        "name": "copy",
        "config": {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": "1",
            "file": file,
            "topic": TOPIC,
            "batch.size": BATCH_LINES.to_string(),
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        }
    })
}

struct Bench<'a> {
    programs: &'a Programs,
    site: Site,
    rest_port: u16,
}

impl Bench<'_> {
    fn worker(&self, life: u32) -> Result<Application> {
        let properties = self.site.home().join("worker.properties");
        fs::write(
            &properties,
            worker_properties(&self.site.bootstrap(), self.rest_port),
        )?;
        let mut command = self.programs.kafka.java(256, WORKER);
        Application::start(&format!("connect-{life}"), command.arg(properties))
    }

    /// Creates the connector as soon as the worker takes it.
    fn create_connector(&self, worker: &mut Application, file: &Path) -> Result<()> {
        let body = connector(file).to_string();
        let started = Instant::now();
        loop {
            worker.check_alive()?;
            let answer = post(self.rest_port, "/connectors", &body);
            let is_late = started.elapsed() > Duration::from_secs(120);
            match answer {
                Ok(text) if text.starts_with("HTTP/1.1 201") => return Ok(()),
                Ok(text) if text.starts_with("HTTP/1.1 400") || is_late => {
                    bail!("the connector is refused: {text}")
                }
                Err(error) if is_late => return Err(error.context("the worker does not answer")),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

/// Returns the whole answer.
fn post(port: u16, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn copy_file(programs: &Programs, target: Target) -> Result<()> {
    let bench = Bench {
        programs,
        site: Site::create("connect", &[("group.min.session.timeout.ms", "1000")])?,
        rest_port: toolchain::free_port()?,
    };
    let started = Instant::now();
    let mut server = bench.site.start(programs, target)?;
    let file = bench.site.home().join("lines");
    let growing = Growing::start(file.clone());
    let mut worker = bench.worker(1)?;
    bench.create_connector(&mut worker, &file)?;
    let mut copied = Committed::open(&bench.site.bootstrap(), TOPIC, 1)?;
    copied.wait_for(LINES_MIN, || worker.check_alive())?;
    worker.kill()?;

    let mut worker = bench.worker(2)?;
    copied.wait_for(LINES_MIN, || worker.check_alive())?;
    server.kill()?;
    server = bench.site.start(programs, target)?;
    copied.wait_for(LINES_MIN, || worker.check_alive())?;
    worker.kill()?;

    let mut worker = bench.worker(3)?;
    copied.wait_for(LINES_MIN, || worker.check_alive())?;
    // After a full batch the connector keeps up to 1,024 bytes that it has read until the file
    // grows again. Close behind the end no batch is full.
    while copied.count + BATCH_LINES / 2 < growing.lines() {
        copied.wait_for(1, || worker.check_alive())?;
    }
    let written = growing.finish()?;
    copied.wait_for(written.saturating_sub(copied.count), || worker.check_alive())?;
    verify(&bench, written)?;
    println!(
        "connect: {written} lines, two kills of the worker and one of the broker, {} s",
        started.elapsed().as_secs()
    );
    worker.kill()?;
    server.stop()
}

/// Kafka's own reader of committed records finds every line once and in order.
fn verify(bench: &Bench<'_>, written: usize) -> Result<()> {
    let tools = Tools {
        kafka: &bench.programs.kafka,
        bootstrap: bench.site.bootstrap(),
    };
    let lines = tools.read_committed(TOPIC, written)?;
    for (nth, line) in lines.iter().enumerate() {
        let expected = format!("line-{nth}");
        ensure!(*line == expected, "{line} instead of {expected}");
    }
    ensure!(lines.len() == written, "{} of {written} lines", lines.len());
    Ok(())
}
