//! `cargo xtask source-experiments`: repeats published experiments on Apache Kafka 4.3 and on
//! Ottla, in turn, and writes the page that shows source, prediction and measurement side by side.

pub mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ottla_lab::report::Report;

use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;

/// The scenarios in the order of the page, with changes that a single machine needs.
const SCENARIOS: &[Scenario] = &[
    Scenario::new("kontur", &[]),
    // With 72 ms a second has fourteen round trips; four seconds are as good as six.
    Scenario::new("rtt_by_acks", &["duration_seconds=4"]),
    Scenario::new("same_datacentre", &["duration_seconds=4"]),
    Scenario::new("send_buffer", &["duration_seconds=4"]),
    Scenario::new("in_flight_and_partitions", &["duration_seconds=4"]),
    Scenario::new("record_size", &["duration_seconds=4"]),
    Scenario::new("brokers", &["duration_seconds=4"]),
    Scenario::new("top_speed", &["duration_seconds=4"]),
    Scenario::new("acks", &[]),
    Scenario::new("linger", &[]),
    Scenario::new("batch_size", &[]),
    Scenario::new("many_producers", &[]),
    Scenario::new("partitions", &[]),
    Scenario::new("load_up_to_the_knee", &[]),
    Scenario::new("asynchronous", &[]),
    Scenario::new("synchronous", &[]),
    Scenario::new("consume_by_one_and_three", &[]),
    Scenario::new("nothing_lost", &[]),
    Scenario::new("canonical", &[]),
];

struct Scenario {
    name: &'static str,
    set: &'static [&'static str],
}

impl Scenario {
    const fn new(name: &'static str, set: &'static [&'static str]) -> Scenario {
        Scenario { name, set }
    }
}

struct Plan {
    only: Vec<String>,
    rounds: u32,
    /// Existing reports to use instead of measuring.
    from: Option<PathBuf>,
    output: PathBuf,
}

fn parse(arguments: &[String]) -> Result<Plan> {
    let mut plan = Plan {
        only: Vec::new(),
        rounds: 1,
        from: None,
        output: toolchain::root().join("docs/measurements/source-experiments.md"),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--only" => plan.only = value()?.split(',').map(str::to_owned).collect(),
            "--rounds" => plan.rounds = value()?.parse().context("--rounds")?,
            "--from" => plan.from = Some(PathBuf::from(value()?)),
            "--output" => plan.output = PathBuf::from(value()?),
            _ => bail!("unknown argument {argument}"),
        }
    }
    if let Some(unknown) = (plan.only.iter()).find(|name| SCENARIOS.iter().all(|known| known.name != **name))
    {
        bail!("--only {unknown}: no such scenario");
    }
    Ok(plan)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let directory = match &plan.from {
        Some(directory) => directory.clone(),
        None => measure(&plan)?,
    };
    let mut reports = Vec::new();
    for scenario in chosen(&plan) {
        reports.extend(newest(&directory, scenario.name)?);
    }
    ensure!(!reports.is_empty(), "{} holds no report", directory.display());
    fs::write(&plan.output, page::write(&reports))
        .with_context(|| format!("writing {}", plan.output.display()))?;
    println!(
        "{} of {} scenarios: {}",
        reports.len(),
        SCENARIOS.len(),
        plan.output.display()
    );
    Ok(())
}

fn chosen(plan: &Plan) -> impl Iterator<Item = &'static Scenario> {
    (SCENARIOS.iter())
        .filter(|scenario| plan.only.is_empty() || plan.only.iter().any(|name| name == scenario.name))
}

/// Runs the scenarios on one Apache Kafka, one Ottla with Kafka's durability, and an embedded Ottla
/// with its own.
fn measure(plan: &Plan) -> Result<PathBuf> {
    let programs = Programs::prepare(true)?;
    let binary = programs.ottla.clone().context("no binary of Ottla")?;
    let directory = toolchain::cargo_target().join("source-experiments");
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    for scenario in chosen(plan) {
        println!("{}", scenario.name);
        // New brokers for each scenario: Apache Kafka takes minutes to delete the thousands of
        // partitions
        // of an earlier one.
        let kafka_site = Site::create("source-experiments-kafka", &[])?;
        let kafka = kafka_site.start(&programs, Target::Kafka)?;
        let ottla_site = Site::create("source-experiments-ottla", &[])?;
        let ottla = ottla_site.start_with(&programs, Target::Ottla, &["ottla.durability=page-cache"])?;
        one(&binary, plan.rounds, scenario, [&kafka, &ottla], &directory)?;
        kafka.stop()?;
        ottla.stop()?;
    }
    Ok(directory)
}

fn one(
    binary: &Path,
    rounds: u32,
    scenario: &Scenario,
    servers: [&Server; 2],
    directory: &Path,
) -> Result<()> {
    let mut command = Command::new(binary);
    command
        .args(["bench", "run", scenario.name, "--embedded", "--rounds"])
        .arg(rounds.to_string())
        .arg("--output")
        .arg(directory);
    for server in servers {
        command.arg("--bootstrap-server").arg(server.bootstrap());
        command.arg("--broker-pid").arg(server.pid().to_string());
    }
    for set in scenario.set {
        command.args(["--set", set]);
    }
    let status = command
        .stdout(Stdio::null())
        .status()
        .context("starting the bench")?;
    // 1: an expectation does not hold, which the page shows.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!("ottla bench run {} ended with {status}", scenario.name),
    }
}

/// The last report of a scenario: names end with the time of the run.
pub fn newest(directory: &Path, name: &str) -> Result<Option<Report>> {
    let prefix = format!("{name}-");
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| format!("reading {}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let time = stem.and_then(|stem| stem.strip_prefix(&prefix));
            path.extension().is_some_and(|extension| extension == "json")
                && time.is_some_and(|time| time.bytes().all(|byte| byte.is_ascii_digit()))
                && fs::metadata(path).is_ok_and(|data| data.len() > 0)
        })
        .collect();
    files.sort();
    let Some(path) = files.pop() else { return Ok(None) };
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let report = serde_json::from_str(&text).with_context(|| format!("{} is no report", path.display()))?;
    Ok(Some(report))
}
