//! Compares Kafka's performance tools and `ottla perf`, in turn, on one Apache Kafka: the same
//! flags, the same output lines.

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain::output_of;
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::process::Command;

/// Far below the limits of tools and broker, so that no tool is late.
const RATE: &str = "10000";
const RECORDS: &str = "50000";
const TOPIC: &str = "perf";

const NUMBER: &str = r"(\d+\.\d+)";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Kafkas,
    Ottlas,
}

/// Each pair in both orders, so that after-effects of the first run favour neither.
const ORDER: [Tool; 4] = [Tool::Kafkas, Tool::Ottlas, Tool::Ottlas, Tool::Kafkas];

struct Case {
    name: &'static str,
    class: &'static str,
    subcommand: &'static str,
    /// Arguments beyond those of the subcommand.
    more: &'static [&'static str],
    /// Every line of the output is one of these.
    lines: Vec<Regex>,
    /// The pattern of the result line, and the names of its first groups.
    result: Regex,
    figures: &'static [&'static str],
}

/// Runs every tool of both sides and compares the lines.
pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let site = Site::create("perf", &[])?;
    let server = site.start(programs, Target::Kafka)?;
    let bootstrap = server.bootstrap();
    let in_transactions = Case {
        name: "kafka-producer-perf-test --transactional-id",
        more: &["--transactional-id", TOPIC, "--transaction-duration-ms", "500"],
        ..produce()
    };
    for case in [produce(), in_transactions, consume(), end_to_end()] {
        let outcome =
            compare(programs, &case, &bootstrap).map_err(|error| format!("{error:#}").replace('\n', " "));
        table.add_other(
            format!("{} and ottla perf {}", case.name, case.subcommand),
            outcome,
        );
    }
    server.stop()?;
    site.remove();
    Ok(())
}

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("^(?:{text})$")).expect("a pattern of this file")
}

fn produce() -> Case {
    let total = format!(
        r"50000 records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th\."
    );
    let interval = format!(
        r"\d+ records sent, {NUMBER} records/sec \({NUMBER} MB/sec\), {NUMBER} ms avg latency, {NUMBER} ms max latency\."
    );
    Case {
        name: "kafka-producer-perf-test",
        class: "org.apache.kafka.tools.ProducerPerformance",
        subcommand: "produce",
        more: &[],
        lines: vec![pattern(&interval), pattern(&total)],
        result: pattern(&total),
        figures: &[
            "records/s",
            "MB/s",
            "mean ms",
            "max ms",
            "p50 ms",
            "p95 ms",
            "p99 ms",
            "p99.9 ms",
        ],
    }
}

fn consume() -> Case {
    let date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}";
    let total = format!(
        r"{date}, {date}, {NUMBER}, {NUMBER}, (\d+), {NUMBER}, (\d+), (-?\d+), (-?\d+\.\d+), (-?\d+\.\d+)"
    );
    let header = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";
    Case {
        name: "kafka-consumer-perf-test",
        class: "org.apache.kafka.tools.ConsumerPerformance",
        subcommand: "consume",
        more: &[],
        lines: vec![pattern(&regex::escape(header)), pattern(&total)],
        result: pattern(&total),
        figures: &[
            "MB",
            "MB/s",
            "records",
            "records/s",
            "rebalance ms",
            "fetch ms",
            "fetch MB/s",
            "fetch records/s",
        ],
    }
}

fn end_to_end() -> Case {
    let percentiles = r"Percentiles: 50th = (\d+), 99th = (\d+), 99.9th = (\d+)";
    Case {
        name: "kafka-e2e-latency",
        class: "org.apache.kafka.tools.EndToEndLatency",
        subcommand: "e2e",
        more: &[],
        lines: vec![
            pattern(
                r#"Topic ".*" does not exist\. Will create topic with 1 partition\(s\) and replication factor = 1"#,
            ),
            pattern(r"\d+\t\d+\.\d+"),
            pattern(&format!("Avg latency: {NUMBER} ms")),
            pattern(percentiles),
        ],
        result: pattern(&format!("Avg latency: {NUMBER} ms")),
        figures: &["mean ms"],
    }
}

impl Case {
    fn arguments(&self, bootstrap: &str, run: usize) -> Vec<String> {
        let mut arguments = vec!["--bootstrap-server", bootstrap];
        // The third tool must create its topic, and no other client may write to it.
        let own_topic = format!("perf-e2e-{run}");
        match self.subcommand {
            "produce" => arguments.extend([
                "--topic",
                TOPIC,
                "--num-records",
                RECORDS,
                "--throughput",
                RATE,
                "--record-size",
                "100",
                "--reporting-interval",
                "1000",
                "--command-property",
                "acks=all",
            ]),
            "consume" => arguments.extend(["--topic", TOPIC, "--num-records", RECORDS]),
            _ => arguments.extend([
                "--topic",
                &own_topic,
                "--num-records",
                "500",
                "--producer-acks",
                "all",
                "--record-size",
                "100",
            ]),
        }
        arguments.extend(self.more);
        arguments.into_iter().map(String::from).collect()
    }
}

fn compare(programs: &Programs, case: &Case, bootstrap: &str) -> Result<()> {
    for (run, tool) in ORDER.into_iter().enumerate() {
        let mut command = match tool {
            Tool::Kafkas => programs.kafka.java(256, case.class),
            Tool::Ottlas => {
                let mut command = Command::new(
                    programs
                        .ottla
                        .as_ref()
                        .context("the ottla binary was not built")?,
                );
                command.args(["perf", case.subcommand]);
                command
            }
        };
        let output = output_of(command.args(case.arguments(bootstrap, run)))?;
        let lines: Vec<&str> = output.lines().filter(|line| !line.is_empty()).collect();
        let stranger = lines
            .iter()
            .find(|line| !case.lines.iter().any(|known| known.is_match(line)));
        ensure!(stranger.is_none(), "{tool:?} says {:?}", stranger.unwrap_or(&""));
        let result = lines.iter().find_map(|line| case.result.captures(line));
        let result = result.with_context(|| format!("{tool:?} has no result in: {output}"))?;
        let figures: Vec<String> = case
            .figures
            .iter()
            .zip(result.iter().skip(1).flatten())
            .map(|(name, value)| format!("{} {name}", value.as_str()))
            .collect();
        println!("{} ({tool:?}): {}", case.name, figures.join(", "));
    }
    Ok(())
}
