//! `ottla console` and `ottla transactions` on Apache Kafka: what its own tools made is what they
//! show.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::client_metrics::get;
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;
use super::tools::{CONSOLE_CONSUMER, PRODUCER_PERF, TOPICS, Tools};

const CONSOLE_PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const PATIENCE: Duration = Duration::from_secs(60);

/// Twenty records of a producer that sends twenty a second.
const FENCED_FOR: Duration = Duration::from_secs(1);

/// Ten records, of which the group reads seven.
const RECORDS: &str = "k1:v1\nk2:v2\nk3:v3\nk4:v4\nk5:v5\nk6:v6\nk7:v7\nk8:v8\nk9:v9\nk10:<img src=x>\n";
const READ: &str = "7";

/// Runs the cases.
pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let target = Target::Kafka;
    println!("console: {}", target.name());
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let said = outcome.as_ref().err().map_or("ok", String::as_str);
        println!("console: {name}: {said}");
        table.add_other(format!("console: {name}"), outcome);
    };
    let site = Site::create("console", &[])?;
    let server = site.start(programs, target)?;
    let ottla = programs.ottla.clone().context("the ottla binary was not built")?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    fill(&tools)?;
    let pages = Pages::start(&ottla, &server.bootstrap())?;
    add("topics with their sizes", topics(&pages));
    add("offsets of a topic's partitions", partitions(&pages));
    add("one partition, and what is not told of it", partition(&pages));
    add("groups with their lag", groups(&pages));
    add("where the lag of a group goes", trend(&pages));
    add("records, with what is no markup", records(&pages));
    add("settings with their origins", settings(&pages));
    add("what Apache Kafka does not tell is said", untold(&pages));
    let transactions = Transactions {
        ottla,
        bootstrap: server.bootstrap(),
    };
    let producer = Open::start(&tools)?;
    add(
        "an open transaction is listed and shown",
        listed(&transactions, &pages),
    );
    add(
        "it is aborted, and its producer fenced",
        aborted(&transactions, producer),
    );
    drop(pages);
    server.stop()?;
    site.remove();
    Ok(())
}

fn fill(tools: &Tools<'_>) -> Result<()> {
    tools.run(
        TOPICS,
        &["--create", "--topic", "orders", "--partitions", "1"],
        "",
    )?;
    let settings = [
        "--create",
        "--topic",
        "ledger",
        "--partitions",
        "3",
        "--config",
        "retention.ms=60000",
    ];
    tools.run(TOPICS, &settings, "")?;
    let keyed = [
        "--topic",
        "orders",
        "--property",
        "parse.key=true",
        "--property",
        "key.separator=:",
    ];
    tools.run(CONSOLE_PRODUCER, &keyed, RECORDS)?;
    let read = [
        "--topic",
        "orders",
        "--group",
        "billing",
        "--from-beginning",
        "--max-messages",
        READ,
    ];
    tools.run(CONSOLE_CONSUMER, &read, "")?;
    Ok(())
}

/// A running `ottla console`; killed when dropped.
struct Pages {
    port: u16,
    child: Child,
}

impl Pages {
    fn start(ottla: &Path, bootstrap: &str) -> Result<Pages> {
        let port = toolchain::free_port()?;
        let telemetry = toolchain::free_port()?;
        let mut child = Command::new(ottla)
            .args(["console", "--bootstrap-server", bootstrap])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(["--telemetry", &format!("127.0.0.1:{telemetry}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start ottla console")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("its standard output")?;
        let read = BufReader::new(stdout).read_line(&mut line);
        let pages = Pages { port, child };
        read?;
        ensure!(
            line.contains(&format!("127.0.0.1:{port}")),
            "ottla console says {line:?}"
        );
        Ok(pages)
    }

    fn json(&self, path: &str) -> Result<Value> {
        let text = get(self.port, path)?;
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is(value: &Value, wanted: impl Into<Value>, document: &Value) -> Result<()> {
    let wanted = wanted.into();
    ensure!(*value == wanted, "{value}, not {wanted}, in {document:#}");
    Ok(())
}

/// Returns the one entry of a list with this value.
fn entry<'a>(list: &'a Value, pointer: &str, wanted: &str) -> Result<&'a Value> {
    let all = list.as_array().with_context(|| format!("{list} is no list"))?;
    let found = all
        .iter()
        .find(|entry| entry.pointer(pointer) == Some(&Value::from(wanted)));
    found.with_context(|| format!("no {wanted} in {list:#}"))
}

fn topics(pages: &Pages) -> Result<()> {
    let document = pages.json("/topics.json")?;
    let orders = &entry(&document["topics"], "/topic/name", "orders")?["topic"];
    is(&orders["partitions"], 1, &document)?;
    ensure!(
        orders["bytes"].as_u64().is_some_and(|bytes| bytes > 100),
        "{orders:#}"
    );
    let ledger = &entry(&document["topics"], "/topic/name", "ledger")?["topic"];
    is(&ledger["bytes"], 0, &document)?;
    let offsets = &entry(&document["topics"], "/topic/name", "__consumer_offsets")?["topic"];
    is(&offsets["is_internal"], true, &document)
}

fn partitions(pages: &Pages) -> Result<()> {
    let document = pages.json("/topics/orders.json")?;
    let partition = &document["topic"]["partitions"][0];
    is(&partition["log_start"], 0, &document)?;
    is(&partition["high_watermark"], 10, &document)?;
    let document = pages.json("/topics/ledger.json")?;
    let own = entry(&document["topic"]["settings"], "/name", "retention.ms")?;
    is(&own["value"], "60000", own)?;
    is(&own["is_set"], true, own)
}

fn partition(pages: &Pages) -> Result<()> {
    let document = pages.json("/topics/orders/0.json")?;
    let partition = &document["partition"];
    for field in ["high_watermark", "last_stable", "log_end"] {
        is(&partition[field], 10, &document)?;
    }
    ensure!(partition["newest_at_ms"].as_i64() > Some(0), "{document:#}");
    is(&partition["leader_epoch"], 0, &document)?;
    // Kafka's console producer is idempotent.
    is(&partition["producers"][0]["last_sequence"], 9, &document)?;
    is(
        &partition["producers"][0]["transaction_from"],
        Value::Null,
        &document,
    )?;
    let untold = partition["segments"]["untold"].as_str().unwrap_or_default();
    ensure!(untold.contains("the segments of a partition"), "{document:#}");
    let group = &document["groups"][0];
    is(&group["group_id"], "billing", &document)?;
    is(&group["lag_records"], 3, &document)
}

/// Known twenty seconds after the first look: nothing comes, and nothing is read.
fn trend(pages: &Pages) -> Result<()> {
    let started = Instant::now();
    loop {
        let document = pages.json("/groups/billing.json")?;
        let trend = &document["lag_trend"];
        if trend.is_object() {
            is(&trend["direction"], "as_before", &document)?;
            return is(&trend["records_per_second"], 0.0, &document);
        }
        ensure!(started.elapsed() < PATIENCE, "no trend: {document:#}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn groups(pages: &Pages) -> Result<()> {
    let document = pages.json("/groups/billing.json")?;
    is(&document["lag_records"], 3, &document)?;
    is(&document["partitions_without_lag_seconds"], 1, &document)?;
    is(
        &document["group"]["offsets"][0]["time_unknown"],
        "not_told",
        &document,
    )?;
    let text = document.to_string();
    ensure!(text.contains("\"committed\":7"), "{document:#}");
    ensure!(text.contains("\"log_end\":10"), "{document:#}");
    ensure!(text.contains("Empty"), "{document:#}");
    Ok(())
}

fn records(pages: &Pages) -> Result<()> {
    let document = pages.json("/messages/orders.json?partition=0&offset=8")?;
    let records = &document["records"];
    is(&records[0]["offset"], 8, &document)?;
    is(&records[0]["key"], "k9", &document)?;
    is(&records[1]["value"], "<img src=x>", &document)?;
    is(&records[2], Value::Null, &document)?;
    let page = get(pages.port, "/messages/orders?partition=0")?;
    ensure!(!page.contains("<img"), "a record became markup: {page}");
    Ok(())
}

fn settings(pages: &Pages) -> Result<()> {
    let document = pages.json("/config.json")?;
    let directories = entry(&document["settings"], "/name", "log.dirs")?;
    is(&directories["origin"], "the file", directories)?;
    is(&directories["is_set"], true, directories)
}

fn untold(pages: &Pages) -> Result<()> {
    for path in ["/index.json", "/requests.json", "/tenants.json"] {
        let document = pages.json(path)?;
        let said = document["untold"].as_str().unwrap_or_default();
        ensure!(
            said.contains("Apache Kafka does not tell"),
            "{path}: {document:#}"
        );
    }
    Ok(())
}

/// `ottla transactions`.
struct Transactions {
    ottla: PathBuf,
    bootstrap: String,
}

impl Transactions {
    /// Returns what it prints.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.ottla);
        command.arg("transactions").args(arguments);
        command
            .args(["--bootstrap-server", &self.bootstrap])
            .stdin(Stdio::null());
        let output = command.output().context("cannot start ottla transactions")?;
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.success(),
            "{arguments:?}: {}: {says}",
            output.status
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(&[arguments, &["--format", "json"]].concat())?;
        let document: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(document["transactions"].clone())
    }
}

/// A Java producer that keeps one transaction open.
struct Open(Child);

impl Open {
    fn start(tools: &Tools<'_>) -> Result<Open> {
        let mut command = tools.kafka.tool(PRODUCER_PERF);
        command.args(["--bootstrap-server", &tools.bootstrap, "--topic", "ledger"]);
        command.args([
            "--num-records",
            "100000",
            "--throughput",
            "20",
            "--record-size",
            "10",
        ]);
        command.args([
            "--transactional-id",
            "ledger-writer",
            "--transaction-duration-ms",
            "600000",
        ]);
        command.args(["--command-property", "transaction.timeout.ms=600000"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start ProducerPerformance")?;
        Ok(Open(child))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listed(transactions: &Transactions, pages: &Pages) -> Result<()> {
    let started = Instant::now();
    let open = loop {
        let open = transactions.json(&["list", "--hanging"])?;
        if !open[0]["partitions"][0].is_null() {
            break open;
        }
        ensure!(started.elapsed() < PATIENCE, "no transaction is open: {open}");
        std::thread::sleep(Duration::from_millis(200));
    };
    is(&open[0]["transactional_id"], "ledger-writer", &open)?;
    is(&open[0]["state"], "Ongoing", &open)?;
    is(&open[0]["timeout_ms"], 600_000, &open)?;
    is(&open[1], Value::Null, &open)?;
    let shown = transactions.run(&["show", "ledger-writer"])?;
    ensure!(shown.contains("read no further than offset 0"), "{shown}");
    let document = pages.json("/transactions.json")?;
    let page = &document["transactions"][0];
    is(&page["transactional_id"], "ledger-writer", &document)
}

fn aborted(transactions: &Transactions, producer: Open) -> Result<()> {
    let said = transactions.run(&["abort", "ledger-writer"])?;
    ensure!(said.contains("aborted the transaction"), "{said}");
    // The tool reports each failed record and goes on; none of them may open a transaction again.
    std::thread::sleep(FENCED_FOR);
    let all = transactions.json(&["list", "--all", "--hanging"])?;
    drop(producer);
    is(&all[1], Value::Null, &all)?;
    let state = all[0]["state"].as_str().unwrap_or_default();
    ensure!(["CompleteAbort", "Empty"].contains(&state), "{all}");
    Ok(())
}
