//! Kafka's own command-line tools, as their shell scripts start them.

use super::server::Site;
use super::table::Table;
use super::toolchain::target_directory;
use crate::kafka::Kafka;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

pub(super) const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
pub(super) const CONFIGS: &str = "kafka.admin.ConfigCommand";
pub(super) const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
pub(super) const CONSOLE_PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
pub(super) const CONSOLE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const GET_OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";
const DELETE_RECORDS: &str = "org.apache.kafka.tools.DeleteRecordsCommand";
const LOG_DIRS: &str = "org.apache.kafka.tools.LogDirsCommand";
pub(super) const PRODUCER_PERF: &str = "org.apache.kafka.tools.ProducerPerformance";
pub(super) const CONSUMER_PERF: &str = "org.apache.kafka.tools.ConsumerPerformance";
pub(super) const REASSIGN: &str = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand";
const LEADER_ELECTION: &str = "org.apache.kafka.tools.LeaderElectionCommand";
pub(super) const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
const API_VERSIONS: &str = "org.apache.kafka.tools.BrokerApiVersionsCommand";

pub(super) struct Tools<'a> {
    pub(super) kafka: &'a Kafka,
    pub(super) bootstrap: String,
}

impl Tools<'_> {
    /// Runs one tool that must fail with text that both brokers print; returns its output.
    fn refused(&self, class: &str, arguments: &[&str], wanted: &str) -> Result<()> {
        match self.run(class, arguments, "") {
            Ok(output) => bail!("{} succeeded: {output}", arguments.join(" ")),
            Err(error) => contains(&format!("{error:#}"), wanted),
        }
    }

    /// Runs one tool with `--bootstrap-server`; returns its output, or an error with both streams.
    pub(super) fn run(&self, class: &str, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.output(class, arguments, input)?;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{} {stdout} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(stdout)
    }

    /// As `run`, for a tool whose status may be wrong: returns whether it is 0, and both streams.
    pub(super) fn run_for_all(&self, class: &str, arguments: &[&str], input: &str) -> Result<(bool, String)> {
        let output = self.output(class, arguments, input)?;
        let streams = [output.stdout, output.stderr].concat();
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&streams).into_owned(),
        ))
    }

    /// Returns the lines of a topic's committed records, and those beyond the `expected` ones that
    /// come within five seconds; for fewer it waits a minute, as starting may take long where other
    /// parts run.
    pub(super) fn read_committed(&self, topic: &str, expected: usize) -> Result<Vec<String>> {
        let read = |timeout_ms| -> Result<Vec<String>> {
            let arguments = [
                "--topic",
                topic,
                "--from-beginning",
                "--isolation-level",
                "read_committed",
                "--timeout-ms",
                timeout_ms,
            ];
            let text = self.run(CONSOLE_CONSUMER, &arguments, "")?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let lines = read("5000")?;
        if lines.len() >= expected {
            return Ok(lines);
        }
        read("60000")
    }

    fn output(&self, class: &str, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command: Command = self.kafka.tool(class);
        if class != PRODUCER_PERF {
            command.args(["--bootstrap-server", &self.bootstrap]);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start java")?;
        child
            .stdin
            .take()
            .expect("stdin is piped")
            .write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }
}

pub(super) fn contains(output: &str, wanted: &str) -> Result<()> {
    ensure!(output.contains(wanted), "no `{wanted}` in: {}", output.trim());
    Ok(())
}

type Step = fn(&Tools<'_>) -> Result<()>;

const STEPS: &[(&str, Step)] = &[
    ("kafka-broker-api-versions", api_versions),
    ("kafka-topics --create, --describe, --list, --alter", topics),
    ("kafka-configs --alter, --describe", configs),
    ("kafka-console-producer", console_producer),
    ("kafka-console-consumer --group", console_consumer),
    ("kafka-get-offsets", get_offsets),
    (
        "kafka-consumer-groups --list, --describe, --reset-offsets, --delete",
        groups,
    ),
    ("kafka-delete-records", delete_records),
    ("kafka-log-dirs", log_dirs),
    (
        "kafka-reassign-partitions --generate, --execute, --verify, --list, --cancel",
        reassign_partitions,
    ),
    ("kafka-leader-election", leader_election),
    (
        "kafka-features describe, upgrade, downgrade, disable, --dry-run",
        features,
    ),
    ("kafka-producer-perf-test", producer_perf),
    ("kafka-consumer-perf-test", consumer_perf),
    ("kafka-topics --delete", delete_topics),
];

/// Runs every tool in this order; later ones check the effects of earlier ones.
pub fn run(table: &mut Table, kafka: &Kafka, site: &Site) -> Result<()> {
    let tools = Tools {
        kafka,
        bootstrap: site.bootstrap(),
    };
    for (name, step) in STEPS {
        println!("{name}");
        let outcome = step(&tools).map_err(|error| format!("{error:#}").replace('\n', " "));
        table.add_other(*name, outcome);
    }
    Ok(())
}

fn api_versions(tools: &Tools<'_>) -> Result<()> {
    let output = tools.run(API_VERSIONS, &[], "")?;
    for name in [
        "Produce(0)",
        "Fetch(1)",
        "ListOffsets(2)",
        "Metadata(3)",
        "OffsetCommit(8)",
        "JoinGroup(11)",
    ] {
        contains(&output, name)?;
    }
    contains(&output, "(id: 1 rack: null")
}

fn topics(tools: &Tools<'_>) -> Result<()> {
    let create = [
        "--create",
        "--topic",
        "tool-topic",
        "--partitions",
        "2",
        "--config",
        "retention.ms=1000000",
    ];
    contains(&tools.run(TOPICS, &create, "")?, "Created topic tool-topic")?;
    contains(&tools.run(TOPICS, &["--list"], "")?, "tool-topic\n")?;
    tools.run(
        TOPICS,
        &["--alter", "--topic", "tool-topic", "--partitions", "3"],
        "",
    )?;
    let output = tools.run(TOPICS, &["--describe", "--topic", "tool-topic"], "")?;
    contains(&output, "PartitionCount: 3")?;
    contains(&output, "retention.ms=1000000")?;
    contains(&output, "Partition: 2\tLeader: 1\tReplicas: 1\tIsr: 1")
}

fn configs(tools: &Tools<'_>) -> Result<()> {
    let topic = ["--entity-type", "topics", "--entity-name", "tool-topic"];
    let run = |more: &[&str]| tools.run(CONFIGS, &[more, &topic].concat(), "");
    contains(
        &run(&["--alter", "--add-config", "max.message.bytes=2000000"])?,
        "Completed updating config",
    )?;
    contains(&run(&["--describe"])?, "max.message.bytes=2000000")?;
    run(&["--alter", "--delete-config", "max.message.bytes"])?;
    let output = run(&["--describe"])?;
    ensure!(
        !output.contains("max.message.bytes"),
        "max.message.bytes is still set: {output}"
    );
    let broker = [
        "--describe",
        "--all",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
    ];
    contains(&tools.run(CONFIGS, &broker, "")?, "log.retention.ms=")
}

fn console_producer(tools: &Tools<'_>) -> Result<()> {
    let lines: String = (0..50).map(|i| format!("key-{i}:value-{i}\n")).collect();
    let arguments = [
        "--topic",
        "tool-topic",
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
    ];
    tools.run(CONSOLE_PRODUCER, &arguments, &lines).map(drop)
}

fn console_consumer(tools: &Tools<'_>) -> Result<()> {
    let arguments = [
        "--topic",
        "tool-topic",
        "--from-beginning",
        "--group",
        "tool-group",
        "--max-messages",
        "50",
    ];
    let output = tools.run(
        CONSOLE_CONSUMER,
        &[&arguments[..], &["--timeout-ms", "30000"]].concat(),
        "",
    )?;
    for i in 0..50 {
        ensure!(
            output.lines().any(|line| line == format!("value-{i}")),
            "value-{i} was not read: {output}"
        );
    }
    Ok(())
}

fn get_offsets(tools: &Tools<'_>) -> Result<()> {
    let output = tools.run(GET_OFFSETS, &["--topic", "tool-topic", "--time", "latest"], "")?;
    let mut sum = 0;
    for line in output.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let ["tool-topic", _, offset] = fields[..] else {
            bail!("unexpected line {line}")
        };
        sum += offset.parse::<u64>()?;
    }
    ensure!(sum == 50, "the offsets sum up to {sum}, not 50: {output}");
    let newest = tools.run(
        GET_OFFSETS,
        &["--topic", "tool-topic", "--time", "max-timestamp"],
        "",
    )?;
    contains(&newest, "tool-topic:")
}

fn groups(tools: &Tools<'_>) -> Result<()> {
    contains(&tools.run(GROUPS, &["--list"], "")?, "tool-group")?;
    let output = tools.run(GROUPS, &["--describe", "--group", "tool-group"], "")?;
    let lag: u64 = (output.lines().filter(|line| line.starts_with("tool-group")))
        .map(|line| {
            line.split_whitespace()
                .nth(5)
                .unwrap_or("x")
                .parse::<u64>()
                .unwrap_or(1000)
        })
        .sum();
    ensure!(lag == 0, "the lag is {lag}, not 0: {output}");
    let reset = [
        "--reset-offsets",
        "--group",
        "tool-group",
        "--topic",
        "tool-topic:0",
        "--to-earliest",
        "--execute",
    ];
    contains(&tools.run(GROUPS, &reset, "")?, "tool-group")?;
    contains(
        &tools.run(GROUPS, &["--describe", "--group", "tool-group", "--state"], "")?,
        "Empty",
    )?;
    contains(
        &tools.run(GROUPS, &["--delete", "--group", "tool-group"], "")?,
        "was successful",
    )
}

fn delete_records(tools: &Tools<'_>) -> Result<()> {
    let file = target_directory().join("delete-records.json");
    fs::write(
        &file,
        r#"{"partitions":[{"topic":"tool-topic","partition":0,"offset":-1}],"version":1}"#,
    )?;
    let path = file.to_str().context("the target directory is not UTF-8")?;
    contains(
        &tools.run(DELETE_RECORDS, &["--offset-json-file", path], "")?,
        "low_watermark",
    )?;
    let earliest = tools.run(
        GET_OFFSETS,
        &["--topic-partitions", "tool-topic:0", "--time", "earliest"],
        "",
    )?;
    let latest = tools.run(
        GET_OFFSETS,
        &["--topic-partitions", "tool-topic:0", "--time", "latest"],
        "",
    )?;
    ensure!(earliest == latest, "earliest {earliest}, latest {latest}");
    Ok(())
}

fn log_dirs(tools: &Tools<'_>) -> Result<()> {
    let output = tools.run(LOG_DIRS, &["--describe", "--topic-list", "tool-topic"], "")?;
    contains(&output, "\"partition\":\"tool-topic-2\"")
}

/// Reassignments to the broker itself are no-ops; there are no other brokers.
fn reassign_partitions(tools: &Tools<'_>) -> Result<()> {
    let write = |name: &str, text: &str| -> Result<String> {
        let file = target_directory().join(name);
        fs::write(&file, text)?;
        let path = file.to_str().context("the target directory is not UTF-8")?;
        Ok(path.to_owned())
    };
    let topics = write(
        "topics-to-move.json",
        r#"{"topics":[{"topic":"tool-topic"}],"version":1}"#,
    )?;
    let generate = [
        "--generate",
        "--topics-to-move-json-file",
        &topics,
        "--broker-list",
        "1",
    ];
    let generated = tools.run(REASSIGN, &generate, "")?;
    let current = generated
        .lines()
        .find(|line| line.starts_with('{'))
        .with_context(|| format!("no assignment in {generated}"))?;
    contains(current, r#""replicas":[1],"log_dirs":["/"#)?;
    let stay = write("stay.json", current)?;
    let run = |action: &str, file: &str| tools.run(REASSIGN, &[action, "--reassignment-json-file", file], "");
    let output = run("--execute", &stay)?;
    contains(
        &output,
        "Successfully started partition reassignments for tool-topic-0",
    )?;
    contains(&output, "Successfully started moving log directory to /")?;
    contains(
        &run("--verify", &stay)?,
        "Reassignment of partition tool-topic-0 is completed.",
    )?;
    contains(
        &tools.run(REASSIGN, &["--list"], "")?,
        "No partition reassignments found.",
    )?;
    contains(
        &run("--cancel", &stay)?,
        "None of the specified partition reassignments are active.",
    )?;
    let elsewhere = write(
        "elsewhere.json",
        r#"{"version":1,"partitions":[{"topic":"tool-topic","partition":0,"replicas":[1],"log_dirs":["/elsewhere"]}]}"#,
    )?;
    let execute = ["--execute", "--reassignment-json-file", &elsewhere];
    tools.refused(REASSIGN, &execute, "Failed to alter dir for tool-topic-0-1")?;
    // The tool itself refuses this before it sends a request: there is only one broker.
    let others = write(
        "others.json",
        r#"{"version":1,"partitions":[{"topic":"tool-topic","partition":0,"replicas":[2]}]}"#,
    )?;
    tools.refused(
        REASSIGN,
        &["--execute", "--reassignment-json-file", &others],
        "broker id 2",
    )
}

fn leader_election(tools: &Tools<'_>) -> Result<()> {
    tools.run(
        LEADER_ELECTION,
        &["--election-type", "preferred", "--all-topic-partitions"],
        "",
    )?;
    for election in ["preferred", "unclean"] {
        let one = [
            "--topic",
            "tool-topic",
            "--partition",
            "0",
            "--election-type",
            election,
        ];
        contains(
            &tools.run(LEADER_ELECTION, &one, "")?,
            "Valid replica already elected for partitions tool-topic-0",
        )?;
    }
    let unknown = [
        "--topic",
        "no-such-topic",
        "--partition",
        "0",
        "--election-type",
        "preferred",
    ];
    tools.refused(LEADER_ELECTION, &unknown, "UnknownTopicOrPartitionException")
}

/// Levels can be raised, and lowered if no record format changes. A lowered level is raised again.
fn features(tools: &Tools<'_>) -> Result<()> {
    let run = |arguments: &[&str]| tools.run(FEATURES, arguments, "");
    let level = |feature: &str| -> Result<String> {
        let output = run(&["describe"])?;
        let line = output
            .lines()
            .find(|line| line.contains(feature))
            .with_context(|| format!("no {feature} in: {output}"))?;
        let (_, level) = line.split_once("FinalizedVersionLevel:").context("no level")?;
        Ok(level.split_whitespace().next().unwrap_or_default().to_owned())
    };
    contains(
        &run(&["upgrade", "--release-version", "4.3", "--dry-run"])?,
        "metadata.version can be upgraded to 30",
    )?;
    run(&["upgrade", "--release-version", "4.3"])?;
    for (feature, expected) in [
        ("metadata.version", "4.3-IV0"),
        ("share.version", "1"),
        ("streams.version", "1"),
        ("eligible.leader.replicas.version", "1"),
        ("transaction.version", "2"),
    ] {
        let found = level(feature)?;
        ensure!(found == expected, "{feature} is at {found}, not at {expected}");
    }
    let share = ["--feature", "share.version=0"];
    contains(
        &run(&[&["downgrade", "--dry-run"], &share[..]].concat())?,
        "share.version can be downgraded to 0",
    )?;
    ensure!(level("share.version")? == "1", "a dry run lowered the level");
    run(&[&["downgrade"], &share[..]].concat())?;
    ensure!(level("share.version")? == "0", "the level was not lowered");
    contains(
        &run(&["disable", "--feature", "streams.version"])?,
        "streams.version was disabled",
    )?;
    tools.refused(
        FEATURES,
        &["downgrade", "--release-version", "4.2"],
        "Could not downgrade metadata.version to 29",
    )?;
    tools.refused(
        FEATURES,
        &["upgrade", "--feature", "no.such.feature=1"],
        "Could not upgrade no.such.feature to 1",
    )?;
    run(&[
        "upgrade",
        "--feature",
        "share.version=1",
        "--feature",
        "streams.version=1",
    ])?;
    ensure!(level("streams.version")? == "1", "the level was not raised again");
    Ok(())
}

fn producer_perf(tools: &Tools<'_>) -> Result<()> {
    let servers = format!("bootstrap.servers={}", tools.bootstrap);
    let arguments = [
        "--topic",
        "tool-topic",
        "--num-records",
        "50000",
        "--record-size",
        "200",
        "--throughput",
        "-1",
    ];
    let output = tools.run(
        PRODUCER_PERF,
        &[&arguments[..], &["--producer-props", &servers]].concat(),
        "",
    )?;
    contains(&output, "50000 records sent")
}

fn consumer_perf(tools: &Tools<'_>) -> Result<()> {
    let output = tools.run(
        CONSUMER_PERF,
        &["--topic", "tool-topic", "--num-records", "50000"],
        "",
    )?;
    let last = output.lines().last().unwrap_or_default();
    let records: u64 = last
        .split(", ")
        .nth(4)
        .context("no fifth column")?
        .parse()
        .context(last.to_string())?;
    ensure!(records >= 50_000, "{records} records consumed: {output}");
    Ok(())
}

fn delete_topics(tools: &Tools<'_>) -> Result<()> {
    tools.run(TOPICS, &["--delete", "--topic", "tool-topic"], "")?;
    let output = tools.run(TOPICS, &["--list"], "")?;
    ensure!(
        !output.lines().any(|line| line == "tool-topic"),
        "still listed: {output}"
    );
    Ok(())
}
