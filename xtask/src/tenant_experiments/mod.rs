//! `cargo xtask tenant-experiments`: measures a victim alone and beside each of four noisy
//! neighbours, on Apache Kafka 4.3 and on Ottla in one run, and writes the page with their effects.

mod page;
pub mod processors;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use self::processors::Processors;
use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;
use crate::source_experiments::newest;

const SCENARIOS: [&str; 2] = ["cold_reader", "noisy_neighbour"];

/// The measured brokers by their names in `--targets`; the first two have the same durability.
const TARGETS: [(&str, Target, &[&str]); 3] = [
    ("kafka", Target::Kafka, &[]),
    ("ottla", Target::Ottla, &["ottla.durability=page-cache"]),
    ("ottla-synced", Target::Ottla, &[]),
];

struct Plan {
    only: Vec<String>,
    targets: Vec<String>,
    rounds: u32,
    is_pinned: bool,
    /// `PATH=VALUE` for all scenarios, `SCENARIO:PATH=VALUE` for one.
    set: Vec<String>,
    /// Existing reports to use instead of measuring.
    from: Option<PathBuf>,
    output: PathBuf,
}

fn parse(arguments: &[String]) -> Result<Plan> {
    let mut plan = Plan {
        only: SCENARIOS.map(str::to_owned).to_vec(),
        targets: TARGETS.map(|(name, ..)| name.to_owned()).to_vec(),
        rounds: 5,
        is_pinned: false,
        set: Vec::new(),
        from: None,
        output: toolchain::root().join("docs/measurements/tenant-experiments.md"),
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
            "--targets" => plan.targets = value()?.split(',').map(str::to_owned).collect(),
            "--rounds" => plan.rounds = value()?.parse().context("--rounds")?,
            "--pin" => plan.is_pinned = true,
            "--set" => plan.set.push(value()?.clone()),
            "--from" => plan.from = Some(PathBuf::from(value()?)),
            "--output" => plan.output = PathBuf::from(value()?),
            _ => bail!("unknown argument {argument}"),
        }
    }
    for name in &plan.only {
        ensure!(
            SCENARIOS.contains(&name.as_str()),
            "--only {name}: there is {}",
            SCENARIOS.join(", ")
        );
    }
    for name in &plan.targets {
        let known: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
        ensure!(
            known.contains(&name.as_str()),
            "--targets {name}: there is {}",
            known.join(", ")
        );
    }
    Ok(plan)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let directory = match &plan.from {
        Some(directory) => directory.clone(),
        None => measure(&plan)?,
    };
    let processors = Processors::read(&directory)?;
    let mut reports = Vec::new();
    for scenario in &plan.only {
        reports.extend(newest(&directory, scenario)?);
    }
    ensure!(!reports.is_empty(), "{} holds no report", directory.display());
    fs::write(&plan.output, page::write(&reports, &processors))
        .with_context(|| format!("writing {}", plan.output.display()))?;
    println!("{} scenarios: {}", reports.len(), plan.output.display());
    Ok(())
}

/// Runs the scenarios on brokers started for them, each with a directory of its own.
fn measure(plan: &Plan) -> Result<PathBuf> {
    let programs = Programs::prepare(true)?;
    let binary = programs.ottla.clone().context("no binary of Ottla")?;
    let directory = toolchain::cargo_target().join("tenant-experiments");
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let processors = Processors::plan(plan.is_pinned)?;
    processors.write(&directory)?;
    let mut servers = Vec::new();
    processors.for_brokers()?;
    for (name, target, overrides) in TARGETS {
        if plan.targets.iter().any(|wanted| wanted == name) {
            let site = Site::create(&format!("tenant-experiments-{name}"), &[])?;
            servers.push(site.start_with(&programs, target, overrides)?);
        }
    }
    processors.for_clients()?;
    println!("warming up");
    warm_up(&binary, &servers, &directory.join("warm-up"))?;
    for scenario in &plan.only {
        println!("{scenario}");
        one(&binary, plan, scenario, &servers, &directory)?;
    }
    for server in servers {
        server.stop()?;
    }
    Ok(directory)
}

fn one(binary: &Path, plan: &Plan, scenario: &str, servers: &[Server], directory: &Path) -> Result<()> {
    let mut command = bench(binary, scenario, servers, directory);
    command.arg("--rounds").arg(plan.rounds.to_string());
    for set in &plan.set {
        match set.split_once(':') {
            Some((of, set)) if of == scenario => command.args(["--set", set]),
            Some((of, _)) if SCENARIOS.contains(&of) => continue,
            _ => command.args(["--set", set]),
        };
    }
    carry_out(command)
}

/// Warms up the JVM: its first minute under load is slower because of JIT compilation.
fn warm_up(binary: &Path, servers: &[Server], directory: &Path) -> Result<()> {
    carry_out(bench(binary, "canonical", servers, directory))
}

fn bench(binary: &Path, scenario: &str, servers: &[Server], directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["bench", "run", scenario, "--output"])
        .arg(directory);
    for server in servers {
        command.arg("--bootstrap-server").arg(server.bootstrap());
        command.arg("--broker-pid").arg(server.pid().to_string());
    }
    command
}

fn carry_out(mut command: Command) -> Result<()> {
    let status = command
        .stdout(Stdio::null())
        .status()
        .context("starting the bench")?;
    // 1: an expectation does not hold, which the page shows.
    match status.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!("{command:?} ended with {status}"),
    }
}
