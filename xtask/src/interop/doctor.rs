//! `ottla doctor collect` behind Apache Kafka with the plug-in of `plugins/kafka-telemetry`: a real
//! Java producer's metrics become a verdict, and a dying collector affects neither broker nor
//! clients.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::toolchain::{self, output_of, run_quietly};
use crate::kafka::Kafka;

pub const TOPIC: &str = "doctor";
pub const CLIENT: &str = "doctor-java";
const PERFORMANCE: &str = "org.apache.kafka.tools.ProducerPerformance";
const INTERVAL_MS: &str = "1000";
const RATE: &str = "2000";
const HANG: Duration = Duration::from_secs(120);

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    println!("doctor: the plug-in for Apache Kafka");
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "doctor: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("doctor: {name}"), outcome);
    };
    let plugin = Plugin::prepare()?;
    add("the plug-in's own test", plugin.test(&programs.kafka));
    let ottla = programs
        .ottla
        .as_deref()
        .context("the ottla binary was not built")?;
    let with_plugin = Programs {
        kafka: programs.kafka.with_jar(&plugin.jar),
        ottla: programs.ottla.clone(),
    };
    let port = toolchain::free_port()?;
    {
        let mut collector = Collector::start(ottla, port, None)?;
        let (site, server) = broker(
            &with_plugin,
            &with_plugin.kafka,
            "doctor",
            "ottla.telemetry.TelemetryExporter",
            port,
        )?;
        let mut producer = Producer::start(&with_plugin.kafka, &server, 3_600 * 2_000)?;
        add(
            "a Java producer behind Apache Kafka gets a verdict",
            verdict(&collector).map(drop),
        );
        add(
            "its name, software, principal and broker come along",
            identity(&collector),
        );
        add("it is explained", explained(&collector));
        add(
            "an exported case is examined like the client",
            exported(&collector, &site.directory),
        );
        add(
            "a collector that dies does not disturb the producer",
            survives(&mut collector, &mut producer),
        );
        add(
            "a cluster that is not Ottla is asked through its collector",
            no_ottla(ottla, &server.bootstrap()),
        );
        drop(producer);
        add("a broker with the plug-in stops cleanly", server.stop());
        site.remove();
    }
    add(
        "output of --print-metrics is examined",
        printed(ottla, &with_plugin),
    );
    add(
        "the entry point of older brokers works",
        older(ottla, &with_plugin, &with_plugin.kafka),
    );
    let oldest = Kafka::prepare_3_7()?.with_jar(&plugin.jar);
    let on_oldest = Programs {
        kafka: oldest,
        ottla: programs.ottla.clone(),
    };
    add(
        "a Java producer behind Apache Kafka 3.7 gets a verdict",
        older(ottla, &on_oldest, &programs.kafka),
    );
    Ok(())
}

/// The jars that Maven builds from `plugins/kafka-telemetry`.
pub struct Plugin {
    directory: PathBuf,
    pub jar: PathBuf,
}

impl Plugin {
    pub fn prepare() -> Result<Plugin> {
        let source = toolchain::root().join("plugins/kafka-telemetry");
        let directory = toolchain::target_directory().join("kafka-telemetry");
        let stamp = directory.join("prepared");
        let plugin = Plugin {
            jar: directory.join("ottla-kafka-telemetry.jar"),
            directory,
        };
        toolchain::build_once("maven: plugins/kafka-telemetry", &stamp, &source, || {
            let mut command = Command::new("mvn");
            command
                .args(["-q", "-B", "package"])
                .arg(format!("-Doutput.directory={}", plugin.directory.display()));
            run_quietly(command.current_dir(&source)).context("maven could not build plugins/kafka-telemetry")
        })?;
        ensure!(plugin.jar.exists(), "maven did not make {}", plugin.jar.display());
        Ok(plugin)
    }

    fn test(&self, kafka: &Kafka) -> Result<()> {
        let kafka = kafka
            .with_jar(&self.directory.join("test-classes"))
            .with_jar(&self.jar);
        let printed = output_of(&mut kafka.tool("ottla.telemetry.SelfTest"))?;
        let passed = printed.lines().filter(|line| line.starts_with("ok ")).count();
        ensure!(passed > 0, "it ran no case: {printed}");
        Ok(())
    }
}

/// Starts Apache Kafka with the plug-in, and a subscription to all metrics that the doctor reads.
fn broker(
    programs: &Programs,
    tools: &Kafka,
    name: &str,
    reporter: &str,
    collector_port: u16,
) -> Result<(Site, Server)> {
    let collector = format!("http://127.0.0.1:{collector_port}");
    let settings = [
        ("metric.reporters", reporter),
        ("ottla.telemetry.collector", &collector),
    ];
    let site = Site::create(name, &settings)?;
    let server = site.start(programs, Target::Kafka)?;
    subscribe(tools, &server.bootstrap())?;
    Ok((site, server))
}

/// Asks clients for all metrics that the doctor reads.
pub fn subscribe(tools: &Kafka, bootstrap: &str) -> Result<()> {
    let mut subscribe = tools.tool("org.apache.kafka.tools.ClientMetricsCommand");
    subscribe.args(["--bootstrap-server", bootstrap, "--alter", "--name", "doctor"]);
    subscribe.args(["--interval", INTERVAL_MS]);
    subscribe.args([
        "--metrics",
        "org.apache.kafka.producer.,org.apache.kafka.consumer.",
    ]);
    run_quietly(&mut subscribe).context("kafka-client-metrics --alter")
}

/// A running `ottla doctor collect`; killed when dropped.
pub struct Collector {
    ottla: PathBuf,
    port: u16,
    child: Child,
}

impl Collector {
    /// - `cluster`: the Kafka address that it asks for what no client pushes.
    pub fn start(ottla: &Path, port: u16, cluster: Option<&str>) -> Result<Collector> {
        let more = cluster.map_or_else(Vec::new, |servers| vec!["--bootstrap-server", servers]);
        Collector::start_with(ottla, port, &more, None)
    }

    /// - `said`: the file that takes its standard error.
    pub fn start_with(ottla: &Path, port: u16, more: &[&str], said: Option<&Path>) -> Result<Collector> {
        let listen = format!("127.0.0.1:{port}");
        let stderr = said.map(File::create).transpose()?;
        let mut child = Command::new(ottla)
            .args(["doctor", "collect", "--listen", &listen])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.map_or_else(Stdio::inherit, Stdio::from))
            .spawn()
            .context("cannot start ottla doctor collect")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("its standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.contains(&listen), "ottla doctor collect says {line:?}");
        Ok(Collector {
            ottla: ottla.to_owned(),
            port,
            child,
        })
    }

    /// Runs `ottla doctor ARGUMENTS --collector`, which may end with status 0 or 1.
    fn doctor(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.ottla);
        command.arg("doctor").args(arguments);
        command.args(["--collector", &format!("127.0.0.1:{}", self.port)]);
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot start ottla doctor")?;
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "{}: {says}",
            output.status
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the reading of a client, which is exported to a file.
    pub fn snapshot(&self, id: &str, file: &Path) -> Result<Value> {
        self.doctor(&["--export", &file.display().to_string(), "--format", "json"])?;
        let snapshots: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        let all = snapshots.as_array().context("an array of snapshots")?;
        let found = all.iter().find(|snapshot| snapshot["client"]["client_id"] == id);
        found.cloned().with_context(|| format!("{id} is missing"))
    }

    /// Returns the diagnosis of a client, if it is known.
    fn client(&self, id: &str) -> Result<Option<Value>> {
        let text = self.doctor(&["--format", "json"])?;
        let examination: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        ensure!(examination["version"] == 1, "{text}");
        let clients = examination["clients"].as_array().context("clients")?;
        Ok(clients.iter().find(|client| client["client_id"] == id).cloned())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kafka's own performance tool, sending in the background; killed when dropped.
pub struct Producer {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Producer {
    fn start(kafka: &Kafka, server: &Server, records: u64) -> Result<Producer> {
        Producer::of(performance(kafka, &server.bootstrap(), records))
    }

    /// A producer for an hour, with the settings of a file.
    pub fn start_with(kafka: &Kafka, bootstrap: &str, config: &Path) -> Result<Producer> {
        let mut command = performance(kafka, bootstrap, 3_600 * 2_000);
        command.arg("--command-config").arg(config);
        Producer::of(command)
    }

    fn of(mut command: Command) -> Result<Producer> {
        command.args(["--reporting-interval", "500"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start ProducerPerformance")?;
        let stdout = child.stdout.take().context("its standard output")?;
        Ok(Producer {
            child,
            lines: BufReader::new(stdout).lines(),
        })
    }

    /// Returns records per second and the largest latency of its next report.
    pub fn next_report(&mut self) -> Result<(f64, f64)> {
        let line = self.lines.next().context("the producer ended")??;
        // 1000 records sent, 2000.0 records/sec (0.19 MB/sec), 1.2 ms avg latency, 14.0 ms max
        // latency.
        let words: Vec<&str> = line.split(' ').collect();
        let before = |what: &str| -> Result<f64> {
            let at = words.iter().position(|word| word.starts_with(what));
            let at = at.with_context(|| format!("no {what} in {line:?}"))?;
            Ok(words[at - 1].parse()?)
        };
        let (Ok(rate), Some(at)) = (
            before("records/sec"),
            words.iter().position(|word| *word == "max"),
        ) else {
            bail!("the producer says {line:?}");
        };
        Ok((rate, words[at - 2].parse()?))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn performance(kafka: &Kafka, bootstrap: &str, records: u64) -> Command {
    let mut command = kafka.java(256, PERFORMANCE);
    command.args(["--bootstrap-server", bootstrap, "--topic", TOPIC]);
    command.args([
        "--num-records",
        &records.to_string(),
        "--throughput",
        RATE,
        "--record-size",
        "100",
    ]);
    command.args(["--command-property", &format!("client.id={CLIENT}")]);
    command
}

/// Waits until the client has a verdict other than NOT_ENOUGH_DATA.
pub fn verdict(collector: &Collector) -> Result<Value> {
    let started = Instant::now();
    let mut last = None;
    while started.elapsed() < HANG {
        last = collector.client(CLIENT)?;
        if let Some(client) = &last
            && client["verdict"] != "NOT_ENOUGH_DATA"
        {
            println!("doctor: {CLIENT}: {} ({})", client["verdict"], client["summary"]);
            return Ok(client.clone());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    bail!("no verdict on {CLIENT} within {HANG:?}; the last word: {last:?}")
}

fn identity(collector: &Collector) -> Result<()> {
    let path = toolchain::target_directory()
        .join("data")
        .join("doctor-identity.json");
    let snapshot = collector.snapshot(CLIENT, &path)?;
    let client = &snapshot["client"];
    ensure!(client["software_name"] == "apache-kafka-java", "{client}");
    ensure!(client["software_version"] == crate::kafka::VERSION, "{client}");
    ensure!(client["principal"] == "User:ANONYMOUS", "{client}");
    ensure!(
        client["address"]
            .as_str()
            .is_some_and(|address| address.contains("127.0.0.1")),
        "{client}"
    );
    ensure!(
        client["library"] == "java" && client["role"] == "producer",
        "{client}"
    );
    ensure!(
        client["instance_id"].as_str().is_some_and(|id| id.len() == 22),
        "{client}"
    );
    Ok(())
}

fn explained(collector: &Collector) -> Result<()> {
    let text = collector.doctor(&["explain", CLIENT])?;
    for part in [CLIENT, "How this was found", "S0"] {
        ensure!(text.contains(part), "no {part:?} in:\n{text}");
    }
    Ok(())
}

fn exported(collector: &Collector, beside: &Path) -> Result<()> {
    let path = beside.with_file_name("case.json");
    collector.doctor(&["--export", &path.display().to_string(), "--format", "json"])?;
    let client = replayed(&collector.ottla, &path)?;
    ensure!(client["client_id"] == CLIENT, "{client}");
    ensure!(client["verdict"] != "NOT_ENOUGH_DATA", "{client}");
    Ok(())
}

/// Diagnoses the only client of a file.
fn replayed(ottla: &Path, path: &Path) -> Result<Value> {
    let mut command = Command::new(ottla);
    command.args(["doctor", "replay", "--format", "json"]).arg(path);
    let text = output_of(&mut command)?;
    let examination: Value = serde_json::from_str(&text)?;
    let clients = examination["clients"].as_array().context("clients")?;
    ensure!(clients.len() == 1, "{} clients in {text}", clients.len());
    Ok(clients[0].clone())
}

/// Kills the collector under load, watches the producer, and starts it again.
fn survives(collector: &mut Collector, producer: &mut Producer) -> Result<()> {
    producer.next_report()?;
    collector.child.kill()?;
    collector.child.wait()?;
    // Several push intervals without a collector. The producer's own waits are in its reports.
    for _ in 0..10 {
        let (records_per_second, latency_max_ms) = producer.next_report()?;
        ensure!(records_per_second > 0.0, "the producer stood still");
        ensure!(latency_max_ms < 30_000.0, "a record took {latency_max_ms} ms");
    }
    ensure!(
        producer.child.try_wait()?.is_none(),
        "the producer ended without its collector"
    );
    let fresh = Collector::start(&collector.ottla, collector.port, None)?;
    *collector = fresh;
    verdict(collector).map(drop)
}

/// There may be no collector at the default address; the message about asking it is printed anyway.
fn no_ottla(ottla: &Path, bootstrap: &str) -> Result<()> {
    let mut command = Command::new(ottla);
    command.args(["doctor", "--bootstrap-server", bootstrap]);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start ottla doctor")?;
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("{bootstrap} is not Ottla: asking the collector at 127.0.0.1:9645");
    ensure!(says.contains(&expected), "{says}");
    Ok(())
}

fn printed(ottla: &Path, programs: &Programs) -> Result<()> {
    let site = Site::create("doctor-print", &[])?;
    let server = site.start(programs, Target::Kafka)?;
    let mut command = performance(&programs.kafka, &server.bootstrap(), 20_000);
    let text = output_of(command.arg("--print-metrics"))?;
    let path = site.directory.with_file_name("print-metrics.txt");
    std::fs::write(&path, text)?;
    let client = replayed(ottla, &path)?;
    println!(
        "doctor: --print-metrics: {} ({})",
        client["verdict"], client["summary"]
    );
    ensure!(client["client_id"] == CLIENT, "{client}");
    ensure!(client["verdict"] != "NOT_ENOUGH_DATA", "{client}");
    server.stop()?;
    site.remove();
    Ok(())
}

/// - `client`: the version whose Java producer is used.
fn older(ottla: &Path, programs: &Programs, client: &Kafka) -> Result<()> {
    let port = toolchain::free_port()?;
    let collector = Collector::start(ottla, port, None)?;
    let (site, server) = broker(
        programs,
        client,
        "doctor-older",
        "ottla.telemetry.TelemetryReceiver",
        port,
    )?;
    let producer = Producer::start(client, &server, 3_600 * 2_000)?;
    verdict(&collector)?;
    drop(producer);
    server.stop()?;
    site.remove();
    Ok(())
}
