//! `cargo xtask interop`: unmodified clients and tools of other projects, and our own client,
//! against a running broker.
//!
//! The default broker is Ottla. With `--target kafka` the same cases run against Apache Kafka
//! 4.3.0, which proves that they expect Kafka's behaviour and not ours.

mod acls;
mod application;
pub mod cases;
mod client_admin;
pub mod client_metrics;
pub mod clients;
mod committed;
mod connect;
mod console;
mod consumer_protocol;
mod directories;
pub mod doctor;
mod doctor_consumers;
mod doctor_secured;
mod event_loops;
mod everyday;
mod franz_go;
mod groups;
mod grow;
mod hanging;
mod jobs;
mod matrix;
mod mirror;
mod old_clients;
mod old_kafka;
mod oracle;
pub mod ours;
mod own_client;
mod parts;
mod perf;
mod promises;
mod quotas;
mod refusals;
mod sasl;
pub mod security;
mod sequences;
pub mod server;
mod settings;
mod streams;
pub mod table;
pub mod takeover;
mod telemetry;
pub mod toolchain;
pub mod tools;
mod transactions;

use anyhow::{Context, Result, bail, ensure};
use parts::PARTS;
use server::Target;
use std::ops::Range;

struct Options {
    target: Target,
    parts: Vec<String>,
    /// Tests directories of every version instead of only the oldest and the newest.
    all_versions: bool,
    /// The seeds of part `sequences`.
    seeds: Range<u64>,
    /// How many parts run at once, each in a process of its own; without, all in this one.
    jobs: Option<usize>,
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.parts.iter().any(|named| named == part)
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        target: Target::Ottla,
        parts: PARTS.iter().map(|part| part.name.to_owned()).collect(),
        all_versions: false,
        seeds: sequences::SEEDS,
        jobs: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--all-versions" {
            options.all_versions = true;
            continue;
        }
        let value = arguments.next();
        match (argument.as_str(), value) {
            ("--target", Some(name)) => options.target = Target::parse(name)?,
            ("--jobs", Some(jobs)) => {
                let jobs = jobs.parse().ok().filter(|jobs| *jobs > 0);
                options.jobs = Some(jobs.context("--jobs takes a number from 1 on")?);
            }
            ("--seeds", Some(seeds)) => {
                let seeds = seeds
                    .split_once("..")
                    .and_then(|(first, end)| Some(first.parse::<u64>().ok()?..end.parse().ok()?));
                options.seeds = seeds.context("--seeds takes the first seed and the end: 0..400")?;
            }
            ("--only", Some(parts)) => {
                options.parts = known(parts)?.into_iter().map(String::from).collect();
            }
            ("--except", Some(parts)) => {
                let except = known(parts)?;
                options.parts.retain(|part| !except.contains(&part.as_str()));
            }
            _ => bail!("unknown or incomplete argument {argument}"),
        }
    }
    Ok(options)
}

fn known(parts: &str) -> Result<Vec<&str>> {
    let known = PARTS.iter().map(|part| part.name);
    let known: Vec<&str> = known.collect();
    let parts: Vec<&str> = parts.split(',').collect();
    for part in &parts {
        ensure!(
            known.contains(part),
            "the parts are {}, not {part}",
            known.join(", ")
        );
    }
    Ok(parts)
}

/// Runs the suite; an error if any case failed.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    match options.jobs {
        Some(jobs) => jobs::run(&options, jobs),
        None => parts::run(&options),
    }
}
