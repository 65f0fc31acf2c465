//! Consumers whose bottleneck is known by how they are built, judged by a running Ottla: a Java
//! consumer that reads what only the disk has, from a disk that is slow, and one whose producer
//! writes most records to one partition.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_lab::disk::cold::drop_from_cache;
use ottla_lab::disk::read_limit::ReadLimit;
use serde_json::Value;

use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::toolchain::{self, run_quietly};
use crate::doctor_truth::feed::{Feed, Feeder};
use crate::doctor_truth::load::Load;

const CLIENT: &str = "judged";
const INTERVAL: &str = "ottla.telemetry.default.interval.ms";
const PERFORMANCE: &str = "org.apache.kafka.tools.ProducerPerformance";
const HANG: Duration = Duration::from_secs(120);

/// Half a minute of reading.
const COLD_RECORDS: &str = "60000";
const COLD_RECORD_BYTES: &str = "2000";
const COLD_BYTES_MIN: u64 = 60_000 * 2_000;
const DISK_BYTES_PER_SECOND: u64 = 4_000_000;
/// Nothing of what was written is then in memory of the broker's own.
const LOG_MEMORY: &str = "ottla.durability=page-cache";

/// The consumer manages 250 records/s; more than 540 come to the hot partition, 20 to each of the
/// others.
const WORK_MICROS: &str = "4000";
const OFFERED: Feed = Feed {
    records_per_second: 600,
    record_bytes: 100,
    is_skewed: true,
    stored: 0,
    is_held: false,
};
const PARTITIONS: i32 = 4;

pub fn run(table: &mut Table, programs: &Programs) {
    println!("doctor: Java consumers on Ottla");
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "doctor: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("doctor: {name}"), outcome);
    };
    add(
        "a consumer that reads a slow disk is COLD_READ",
        cold_read(programs),
    );
    add("a consumer of a hot partition is SKEW", skew(programs));
}

fn cold_read(programs: &Programs) -> Result<()> {
    let stage = Stage::open(programs, "doctor-cold", 1, &[LOG_MEMORY])?;
    let mut write = programs.kafka.java(256, PERFORMANCE);
    write.args(["--bootstrap-server", &stage.server.bootstrap()]);
    write.args(["--topic", "cold", "--num-records", COLD_RECORDS]);
    write.args(["--record-size", COLD_RECORD_BYTES, "--throughput", "-1"]);
    run_quietly(&mut write).context("writing what is to be read")?;
    let partition = stage.site.directory.join("cold-0");
    let _limit = ReadLimit::begin(stage.server.pid(), &partition, DISK_BYTES_PER_SECOND)
        .map_err(|why| anyhow::anyhow!("this machine cannot limit what a process reads: {why}"))?;
    let dropped = drop_from_cache(&partition)?;
    ensure!(dropped >= COLD_BYTES_MIN, "only {dropped} bytes were written");
    let reader = stage.reader(programs, "cold", "0")?;
    stage.verdict("COLD_READ")?;
    drop(reader);
    stage.close()
}

fn skew(programs: &Programs) -> Result<()> {
    let stage = Stage::open(programs, "doctor-skew", PARTITIONS, &[])?;
    let writer = Feeder::start(&stage.server.bootstrap(), "skew", PARTITIONS, OFFERED)?;
    let reader = stage.reader(programs, "skew", WORK_MICROS)?;
    let client = stage.verdict("SKEW")?;
    let summary = client["summary"].as_str().unwrap_or_default();
    ensure!(summary.contains("skew-0"), "another partition: {summary}");
    drop((writer, reader));
    stage.close()
}

/// A running Ottla with an admin address.
struct Stage {
    ottla: std::path::PathBuf,
    site: Site,
    server: Server,
    admin: String,
}

impl Stage {
    fn open(programs: &Programs, name: &str, partitions: i32, overrides: &[&str]) -> Result<Stage> {
        let ottla = programs
            .ottla
            .as_deref()
            .context("the ottla binary was not built")?;
        let site = Site::create(
            name,
            &[(INTERVAL, "1000"), ("num.partitions", &partitions.to_string())],
        )?;
        let admin = format!("127.0.0.1:{}", toolchain::free_port()?);
        let listener = format!("ottla.admin.listener={admin}");
        let server = site.start_with(
            programs,
            Target::Ottla,
            &[&[listener.as_str()], overrides].concat(),
        )?;
        Ok(Stage {
            ottla: ottla.to_owned(),
            site,
            server,
            admin,
        })
    }

    fn close(self) -> Result<()> {
        self.server.stop()?;
        self.site.remove();
        Ok(())
    }

    /// Starts the consumer that is judged, from the topic's beginning.
    fn reader(&self, programs: &Programs, topic: &str, micros: &str) -> Result<Load> {
        let pairs = [
            ("load.role", "consumer"),
            ("load.topic", topic),
            ("load.processing.micros", micros),
            ("group.id", "judged"),
            ("auto.offset.reset", "earliest"),
            ("client.id", CLIENT),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let file = self.site.home().join("reader.properties");
        let program = programs.kafka.tool("interop.Main");
        Load::start(program, &self.server.bootstrap(), &file, &pairs)
    }

    /// Waits for a verdict on the consumer. A broker whose reads are limited may also answer late:
    /// pages of its program come from the same device.
    fn verdict(&self, wanted: &str) -> Result<Value> {
        let started = Instant::now();
        let mut last = Value::Null;
        while started.elapsed() < HANG {
            std::thread::sleep(Duration::from_secs(1));
            let client = match judged(&self.ottla, &self.admin) {
                Ok(Some(client)) => client,
                Ok(None) => continue,
                Err(error) => {
                    last = Value::String(format!("{error:#}"));
                    continue;
                }
            };
            if client["verdict"] == wanted {
                println!("doctor: {CLIENT}: {wanted} ({})", client["summary"]);
                return Ok(client);
            }
            last = client;
        }
        bail!("no {wanted} within {HANG:?}; the last word: {last}")
    }
}

/// The diagnosis of the consumer, as soon as there is one.
fn judged(ottla: &Path, admin: &str) -> Result<Option<Value>> {
    let mut command = Command::new(ottla);
    command.args(["doctor", "--admin", admin, "--format", "json"]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start ottla doctor")?;
    let says = String::from_utf8_lossy(&output.stderr);
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {says}",
        output.status
    );
    let examination: Value = serde_json::from_slice(&output.stdout)?;
    let clients = examination["clients"].as_array().context("clients")?;
    let is_judged = |client: &&Value| client["client_id"] == CLIENT && client["role"] == "consumer";
    Ok(clients.iter().find(is_judged).cloned())
}
