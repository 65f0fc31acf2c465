//! Transactions of Java clients of 2.5 and 2.8, which begin and end them as before KIP-890, at each
//! level of `transaction.version`.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::client_metrics::get;
use super::committed::Committed;
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain::{self, output_of, run_quietly};
use super::tools::{FEATURES, PRODUCER_PERF, TOPICS, Tools};

const RECORDS: &str = "1000";
const COUNT: usize = 1_000;

/// `transaction.version`, from the newest on: it is only lowered. The version of the clients.
const RUNS: [(&str, &str); 4] = [("2", "2.5.1"), ("2", "2.8.2"), ("1", "2.8.2"), ("0", "2.5.1")];

pub fn run(table: &mut Table, programs: &Programs, target: Target) -> Result<()> {
    let site = Site::create("old-clients", &[])?;
    let admin_port = toolchain::free_port()?;
    let listener = format!("ottla.admin.listener=127.0.0.1:{admin_port}");
    let mut server = site.start_with(programs, target, &[&listener])?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    for (level, version) in RUNS {
        let name = format!("a Java client of {version} at transaction.version {level}");
        let outcome = write_and_copy(&tools, level, version).map_err(|error| format!("{error:#}"));
        println!("transactions: {name}: {outcome:?}");
        table.add_other(format!("transactions: {name}"), outcome);
        if target == Target::Ottla {
            let told = told(admin_port, level, version).map_err(|error| format!("{error:#}"));
            table.add_other(format!("transactions: the doctor names {name}"), told);
        }
    }
    server.check_alive()?;
    server.stop()
}

/// Waits until the doctor says that the client ends transactions as before KIP-890, and what to
/// change.
fn told(admin_port: u16, level: &str, version: &str) -> Result<()> {
    let software = format!("(apache-kafka-java {version})");
    let is_told = |finding: &Value| {
        let text = finding["text"].as_str().unwrap_or_default();
        let raises = text.contains("--feature transaction.version=2");
        finding["id"] == "X1" && text.contains(&software) && raises == (level != "2")
    };
    for _ in 0..60 {
        let examination: Value = serde_json::from_str(&get(admin_port, "/doctor")?)?;
        let clients = examination["clients"].as_array().context("no clients")?;
        let mut findings = clients
            .iter()
            .filter_map(|client| client["findings"].as_array())
            .flatten();
        if findings.any(is_told) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(500));
    }
    bail!("no word about {software}")
}

/// Records are written in transactions, and copied with their offsets in transactions.
fn write_and_copy(tools: &Tools<'_>, level: &str, version: &str) -> Result<()> {
    let home = prepare(version)?;
    let feature = format!("transaction.version={level}");
    if level != "2" {
        tools.run(FEATURES, &["downgrade", "--feature", &feature], "")?;
    }
    let (from, to) = (format!("from-{version}-{level}"), format!("to-{version}-{level}"));
    for topic in [&from, &to] {
        tools.run(TOPICS, &["--create", "--topic", topic, "--partitions", "1"], "")?;
    }
    let servers = format!("bootstrap.servers={}", tools.bootstrap);
    let java = |class: &str, arguments: &[&str]| -> Result<String> {
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
        command.arg(format!("{}/jars/*", home.display())).arg(class);
        output_of(command.args(arguments)).with_context(|| format!("{class} of {version}"))
    };
    let write = [
        "--topic",
        &from,
        "--num-records",
        RECORDS,
        "--throughput",
        "1000",
        "--record-size",
        "10",
        "--transactional-id",
        &from,
        "--transaction-duration-ms",
        "100",
        "--producer-props",
        &servers,
    ];
    java(PRODUCER_PERF, &write)?;
    let copy = [
        "--broker-list",
        &tools.bootstrap,
        "--input-topic",
        &from,
        "--input-partition",
        "0",
        "--output-topic",
        &to,
        "--max-messages",
        RECORDS,
        "--consumer-group",
        &to,
        "--transaction-size",
        "100",
        "--transactional-id",
        &to,
    ];
    java("org.apache.kafka.tools.TransactionalMessageCopier", &copy)?;
    for topic in [&from, &to] {
        let mut committed = Committed::open(&tools.bootstrap, topic, 1)?;
        committed.wait_for(COUNT, || Ok(()))?;
        ensure!(committed.count == COUNT, "{} records in {topic}", committed.count);
    }
    Ok(())
}

fn prepare(version: &str) -> Result<PathBuf> {
    let source = toolchain::root().join("tests/interop/old-clients");
    let home = toolchain::target_directory().join(format!("old-clients-{version}"));
    let stamp = home.join("prepared");
    toolchain::build_once(
        &format!("maven: Kafka's clients {version}"),
        &stamp,
        &source,
        || {
            let mut command = Command::new("mvn");
            command.args(["-q", "-B", "package"]);
            command.arg(format!("-Doutput.directory={}", home.display()));
            command.arg(format!("-Dkafka.version={version}"));
            run_quietly(command.current_dir(&source))
                .with_context(|| format!("maven could not fetch kafka-tools {version}"))?;
            ensure!(
                home.join(format!("jars/kafka-clients-{version}.jar")).exists(),
                "maven did not bring Kafka's clients {version}"
            );
            Ok(())
        },
    )?;
    Ok(home)
}
