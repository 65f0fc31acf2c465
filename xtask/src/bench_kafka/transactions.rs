//! Transactions and groups, each broker as it is delivered: a commit of Ottla is on disk, one of
//! Apache Kafka in the page cache.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::machine::cpu_seconds;
use super::metrics::Samples;
use super::session::{self, figure, generate};
use super::{Lab, Plan};
use crate::interop::server::{Server, Site, Target};

/// A load, and the metrics that it fills.
struct Case {
    name: &'static str,
    topic: &'static str,
    producers: &'static str,
    records: &'static str,
    commit_ms: &'static str,
    p99: &'static str,
    cpu: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        name: "transactions of one record",
        topic: "one",
        producers: "1",
        records: "1",
        commit_ms: "transaction_one_ms",
        p99: "transaction_one_p99",
        cpu: "transaction_one_cpu",
    },
    Case {
        name: "transactions of 100 records",
        topic: "hundred",
        producers: "100",
        records: "100",
        commit_ms: "transaction_hundred_ms",
        p99: "transaction_hundred_p99",
        cpu: "transaction_hundred_cpu",
    },
];

/// Lines of five words; each word is a record of its own in the topics behind.
pub const LINES_PER_SECOND: u32 = 1_000;
pub const MEMBERS: u32 = 500;
pub const GROUP_PARTITIONS: u32 = 1_000;
/// A group has settled when nothing changes for more than two heartbeats of Apache Kafka's default.
pub const QUIET_SECONDS: u32 = 12;

pub fn run(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let durability = session::default_of(target);
    let site = session::site(target, durability, &[])?;
    let mut server = session::start(lab, &site, target, durability)?;
    for case in &CASES {
        one(lab, plan, target, &server, case, samples)?;
    }
    streams(lab, plan, target, &site, &server, samples)?;
    rebalance(lab, target, &server, samples)?;
    server.check_alive()?;
    server.stop()?;
    session::clear(&site);
    Ok(())
}

fn one(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    server: &Server,
    case: &Case,
    samples: &mut Samples,
) -> Result<()> {
    generate(lab, "bench-create", server, case.topic, &[])?;
    let (seconds, warmup) = (
        plan.transaction_seconds.to_string(),
        plan.warmup_seconds.to_string(),
    );
    let load = [
        "-producers",
        case.producers,
        "-records",
        case.records,
        "-seconds",
        &seconds,
        "-warmup",
        &warmup,
    ];
    let result = generate(lab, "bench-transactions", server, case.topic, &load)?;
    samples.keep(target, case.name, &result);
    let commits = figure(&result, "/acknowledged");
    samples.add(target, case.commit_ms, 1_000.0 / figure(&result, "/rate_per_s"));
    samples.add(target, case.p99, figure(&result, "/service/p99"));
    let cpu = figure(&result, "/broker_cpu_s") / (commits / 1_000.0);
    samples.add(target, case.cpu, cpu);
    Ok(())
}

/// A word count of Kafka Streams; the application, its writer and its reader are one process.
fn streams(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    site: &Site,
    server: &Server,
    samples: &mut Samples,
) -> Result<()> {
    let state = site.home().join("streams");
    let mut command = lab.programs.kafka.java(1_024, "interop.Main");
    command.args(["word-count-times", &server.bootstrap(), "lines", "counts"]);
    command.arg(&state);
    command.args(
        [LINES_PER_SECOND, plan.warmup_seconds, plan.transaction_seconds].map(|number| number.to_string()),
    );
    let before = cpu_seconds(server.pid())?;
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start Kafka Streams")?;
    ensure!(
        output.status.success(),
        "the word count ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let used = cpu_seconds(server.pid())? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let result: Value = serde_json::from_str(text.trim()).with_context(|| format!("reading {text}"))?;
    samples.keep(target, "word count", &result);
    samples.add(target, "streams_p50", figure(&result, "/p50"));
    samples.add(target, "streams_p99", figure(&result, "/p99"));
    samples.add(target, "streams_cpu", used);
    Ok(())
}

/// A group of the consumer protocol: all its members start, one more joins, one leaves.
fn rebalance(lab: &Lab, target: Target, server: &Server, samples: &mut Samples) -> Result<()> {
    let partitions = GROUP_PARTITIONS.to_string();
    let of_topic = ["-partitions", &partitions];
    generate(lab, "bench-create", server, "group", &of_topic)?;
    let (members, quiet) = (MEMBERS.to_string(), QUIET_SECONDS.to_string());
    let load = [
        "-partitions",
        &partitions,
        "-members",
        &members,
        "-seconds",
        &quiet,
    ];
    let result = generate(lab, "bench-rebalance", server, "group", &load)?;
    samples.keep(target, "a group of 500 members", &result);
    for (key, path) in [
        ("group_start", "/settled_s/start"),
        ("group_join", "/settled_s/join"),
        ("group_leave", "/settled_s/leave"),
        ("group_cpu", "/broker_cpu_s"),
    ] {
        samples.add(target, key, figure(&result, path));
    }
    Ok(())
}
