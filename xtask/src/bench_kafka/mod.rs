//! `cargo xtask bench-kafka`: measures Ottla and Apache Kafka 4.3 side by side on this machine;
//! writes docs/measurements/benchmarks.md.
//!
//! The two run in turn, A B then B A, with the same generator, the same durability and the same
//! configuration files. A number is the ratio of two medians of one run, with the spread of the
//! pairs.

pub mod machine;
pub mod metrics;
pub mod report;
mod session;
mod tails;

use crate::interop::clients::{Client, Clients};
use crate::interop::server::{Programs, Target};
use crate::interop::toolchain;
use anyhow::{Context, Result, bail, ensure};
use metrics::Samples;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The durations; `--quick` only checks that the harness works and is not evidence.
pub struct Plan {
    pub pairs: u32,
    pub records: u64,
    pub consume_passes: u32,
    pub paced_seconds: u32,
    pub warmup_seconds: u32,
    pub idle_seconds: u32,
    pub tail_seconds: u32,
    pub sustained_seconds: u32,
    /// A run ends earlier when it has written this much.
    pub sustained_gigabytes: u32,
    pub only_sustained: bool,
    pub skip_pairs: bool,
    pub output: PathBuf,
    pub command: String,
}

fn parse(arguments: &[String]) -> Result<Plan> {
    let mut plan = Plan {
        pairs: 5,
        records: 4_000_000,
        consume_passes: 3,
        paced_seconds: 20,
        warmup_seconds: 8,
        idle_seconds: 30,
        tail_seconds: 600,
        sustained_seconds: 60,
        sustained_gigabytes: 20,
        only_sustained: false,
        skip_pairs: false,
        output: toolchain::root().join("docs/measurements/benchmarks.md"),
        command: format!("cargo xtask bench-kafka {}", arguments.join(" ")),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u32> {
            let value = arguments
                .next()
                .with_context(|| format!("{argument} wants a number"))?;
            value.parse().with_context(|| format!("{argument} {value}"))
        };
        match argument.as_str() {
            "--quick" => {
                plan = Plan {
                    pairs: 1,
                    records: 1_000_000,
                    paced_seconds: 5,
                    warmup_seconds: 3,
                    idle_seconds: 5,
                    tail_seconds: 20,
                    sustained_seconds: 10,
                    output: toolchain::target_directory().join("benchmarks-quick.md"),
                    ..plan
                }
            }
            "--pairs" => plan.pairs = number()?,
            "--publish" => plan.output = toolchain::root().join("docs/measurements/benchmarks.md"),
            "--tail-seconds" => plan.tail_seconds = number()?,
            "--idle-seconds" => plan.idle_seconds = number()?,
            "--paced-seconds" => plan.paced_seconds = number()?,
            "--sustained-seconds" => plan.sustained_seconds = number()?,
            "--only-sustained" => {
                plan.only_sustained = true;
                plan.tail_seconds = 0;
                plan.output = toolchain::target_directory().join("benchmarks-sustained.md");
            }
            "--only-tails" => plan.skip_pairs = true,
            _ => bail!("unknown argument {argument}"),
        }
    }
    ensure!(plan.pairs > 0, "--pairs must be at least 1");
    Ok(plan)
}

/// The generator: franz-go, as compiled for the interop suite.
pub struct Lab {
    pub programs: Programs,
    clients: Clients,
}

impl Lab {
    pub fn generator(&self) -> std::process::Command {
        self.clients.command(&self.programs.kafka, Client::FranzGo)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Durability {
    PageCache,
    Disk,
}

impl Durability {
    pub fn ottla(self) -> &'static str {
        match self {
            Durability::PageCache => "ottla.durability=page-cache",
            Durability::Disk => "ottla.durability=disk",
        }
    }

    /// Settings of Apache Kafka. It has no group commit: the nearest is a flush after every append.
    pub fn kafka(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Durability::PageCache => &[],
            Durability::Disk => &[("log.flush.interval.messages", "1")],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Durability::PageCache => "page cache",
            Durability::Disk => "disk",
        }
    }
}

pub fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let machine = machine::describe()?;
    let lab = Lab {
        programs: Programs::prepare(true)?,
        clients: Clients::prepare()?,
    };
    let mut samples = Samples::default();
    if !plan.skip_pairs {
        if !plan.only_sustained {
            session::calibrate(&lab, &plan, &mut samples)?;
        }
        for pair in 0..plan.pairs {
            let order = if pair % 2 == 0 {
                [Target::Kafka, Target::Ottla]
            } else {
                [Target::Ottla, Target::Kafka]
            };
            for target in order {
                println!("pair {} of {}: {}", pair + 1, plan.pairs, target.name());
                samples.busy.push(machine::busy_share(Duration::from_secs(3))?);
                if !plan.only_sustained {
                    session::page_cache(&lab, &plan, target, &mut samples)?;
                    session::disk(&lab, &plan, target, &mut samples)?;
                }
                for durability in [Durability::PageCache, Durability::Disk] {
                    session::sustained(&lab, &plan, target, durability, &mut samples)?;
                }
            }
        }
    }
    let mut curves = Vec::new();
    if plan.tail_seconds > 0 {
        for durability in [Durability::PageCache, Durability::Disk] {
            for target in [Target::Kafka, Target::Ottla] {
                println!(
                    "tails, {}, {} s: {}",
                    durability.name(),
                    plan.tail_seconds,
                    target.name()
                );
                samples.busy.push(machine::busy_share(Duration::from_secs(3))?);
                curves.push(tails::run(&lab, &plan, target, durability)?);
            }
        }
    }
    let text = report::render(&plan, &machine, &samples, &curves);
    fs::write(&plan.output, &text).with_context(|| format!("writing {}", plan.output.display()))?;
    let raw = toolchain::target_directory().join("benchmarks-raw.json");
    fs::write(&raw, samples.raw_json(&curves)?)?;
    println!(
        "\n{text}\nwritten to {} (raw results with histograms: {})",
        plan.output.display(),
        raw.display()
    );
    Ok(())
}
