//! A promise of the doctor inside Ottla to a real client: a Java producer with a setting that
//! limits it, the same producer with the recommended one, and the score.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_lab::link::relay::Relay;
use ottla_lab::scenario::model::LinkSpec;
use serde_json::Value;

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;
use crate::kafka::Kafka;

const TOPIC: &str = "promises";
const CLIENT: &str = "promises-java";
const PERFORMANCE: &str = "org.apache.kafka.tools.ProducerPerformance";
const HANG: Duration = Duration::from_secs(240);

/// Five requests of 16 KiB per 40 ms are 2 MB/s; this much more is offered.
const ROUND_TRIP_MS: f64 = 40.0;
const RECORD_BYTES: &str = "1000";
const OFFERED: &str = "3000";

/// What the limited producer sends in about 50 s, two examinations and a half; then it closes, so
/// that its successor is not one of two clients with one name.
const RECORDS_BEFORE: u64 = 95_000;

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    println!("promises: the doctor's own score");
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "promises: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("promises: {name}"), outcome);
    };
    let site = Site::create("promises", &[])?;
    let admin = format!("127.0.0.1:{}", toolchain::free_port()?);
    let server = site.start_with(
        programs,
        Target::Ottla,
        &[
            &format!("ottla.admin.listener={admin}"),
            "ottla.telemetry.default.interval.ms=1000",
            "ottla.durability=page-cache",
        ],
    )?;
    let far = LinkSpec {
        round_trip_ms: ROUND_TRIP_MS,
        ..LinkSpec::default()
    };
    let relay = Relay::start(&server.bootstrap(), &far).context("the relay")?;
    let ottla = programs.ottla.clone().context("the ottla binary was not built")?;
    let doctor = Doctor { ottla, admin };
    let bootstrap = relay.bootstrap().to_owned();
    let kafka = &programs.kafka;
    let promised = promised(&doctor, kafka, &bootstrap);
    add(
        "a Java producer's limit becomes a promise",
        promised
            .as_ref()
            .map(drop)
            .map_err(|error| anyhow::anyhow!("{error:#}")),
    );
    if let Ok(set) = promised {
        add(
            "the promise is decided when it comes back with the setting",
            decided(&doctor, kafka, &bootstrap, &set),
        );
        add("the doctor's pages tell of it", told(&doctor));
    }
    drop(relay);
    server.stop()?;
    site.remove();
    Ok(())
}

/// Asks the broker's admin address.
struct Doctor {
    ottla: PathBuf,
    admin: String,
}

impl Doctor {
    fn says(&self, arguments: &[&str]) -> Result<String> {
        says(&self.ottla, arguments, &self.admin)
    }

    /// The client's latest promise.
    fn promise(&self) -> Result<Option<Value>> {
        let text = self.says(&["promises", "--format", "json"])?;
        let document: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(document["version"] == 1, "{text}");
        let rows = document["promises"].as_array().context("promises")?;
        Ok(rows.iter().find(|row| row["client_id"] == CLIENT).cloned())
    }
}

fn says(ottla: &Path, arguments: &[&str], admin: &str) -> Result<String> {
    let mut command = Command::new(ottla);
    command.arg("doctor").args(arguments).args(["--admin", admin]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start ottla doctor")?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {complaint}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Kafka's own performance tool; killed when dropped.
struct Producer(Child);

impl Producer {
    fn start(kafka: &Kafka, bootstrap: &str, records: u64, set: &str) -> Result<Producer> {
        let mut command = kafka.java(256, PERFORMANCE);
        command.args(["--bootstrap-server", bootstrap, "--topic", TOPIC]);
        command.args(["--num-records", &records.to_string()]);
        command.args(["--throughput", OFFERED, "--record-size", RECORD_BYTES]);
        let client_id = format!("client.id={CLIENT}");
        command.args(["--command-property", &client_id, "buffer.memory=4194304", set]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start ProducerPerformance")?;
        Ok(Producer(child))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the recommended setting, after the producer has ended.
fn promised(doctor: &Doctor, kafka: &Kafka, bootstrap: &str) -> Result<String> {
    let mut producer = Producer::start(kafka, bootstrap, RECORDS_BEFORE, "batch.size=16384")?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = producer.0.try_wait()? {
            break status;
        }
        ensure!(
            started.elapsed() < HANG,
            "the producer did not end within {HANG:?}"
        );
        std::thread::sleep(Duration::from_millis(500));
    };
    ensure!(status.success(), "the producer: {status}");
    let Some(row) = doctor.promise()? else {
        bail!(
            "no promise; the doctor says:\n{}",
            doctor.says(&[]).unwrap_or_default()
        );
    };
    println!("promises: {row}");
    ensure!(row["score"] == "open", "{row}");
    let set = row["set"].as_str().context("set")?;
    ensure!(set.starts_with("batch.size="), "{row}");
    Ok(set.to_owned())
}

fn decided(doctor: &Doctor, kafka: &Kafka, bootstrap: &str, set: &str) -> Result<()> {
    let _producer = Producer::start(kafka, bootstrap, 3_600 * 3_000, set)?;
    let started = Instant::now();
    loop {
        let row = doctor.promise()?.context("the promise is gone")?;
        if !row["decided_ms"].is_null() {
            println!("promises: {row}");
            ensure!(
                row["applied"]
                    .as_str()
                    .is_some_and(|how| how.contains("batch grew")),
                "{row}"
            );
            let figure = |name: &str| row[name].as_f64().with_context(|| format!("{name} of {row}"));
            ensure!(figure("after")? > 1.2 * figure("before")?, "{row}");
            ensure!(
                row["score"] == "kept" || row["score"] == "exceeded",
                "the offered load needed the change: {row}"
            );
            ensure!(row["instance_before"] != row["instance_after"], "{row}");
            return Ok(());
        }
        ensure!(started.elapsed() < HANG, "not decided within {HANG:?}: {row}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn told(doctor: &Doctor) -> Result<()> {
    let list = doctor.says(&["promises"])?;
    ensure!(
        list.contains(CLIENT) && list.contains("1 promise: 1 kept"),
        "{list}"
    );
    // The producer was killed; its last numbers are still there.
    let clients = doctor.says(&[])?;
    ensure!(
        clients.contains("Promised ") && clients.contains(": kept"),
        "{clients}"
    );
    Ok(())
}
