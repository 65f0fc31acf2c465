//! `cargo xtask bench-kafka`: measures Ottla and Apache Kafka 4.3 side by side on this machine;
//! writes docs/measurements/benchmarks.md, transactions.md, security.md and tails.md.
//!
//! The two run in turn, A B then B A, with the same generator, the same durability and the same
//! configuration files. A number is the ratio of two medians of one run, with the spread of the
//! pairs.

mod beside_security;
mod delivered;
pub mod machine;
pub mod metrics;
pub mod report;
mod security;
mod session;
mod tails;
mod transactions;

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
    pub transaction_seconds: u32,
    pub security_seconds: u32,
    pub sustained_seconds: u32,
    /// A run ends earlier when it has written this much.
    pub sustained_gigabytes: u32,
    /// The log that a consumer reads from its beginning.
    pub behind_gigabytes: u32,
    /// Of the pairs only this; the whole otherwise.
    pub only: Option<Part>,
    /// Tails, transactions and security are pages of their own: tails take as long as all pairs.
    pub skip_pairs: bool,
    /// Where the pages are written.
    pub directory: PathBuf,
    pub command: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// What page caches show, and single syncs.
    Pages,
    Delivered,
    Sustained,
}

impl Plan {
    fn select(&mut self, part: Part) {
        self.only = Some(part);
        self.tail_seconds = 0;
        (self.transaction_seconds, self.security_seconds) = (0, 0);
        self.directory = toolchain::target_directory();
    }

    /// Leaves out the pairs and these pages.
    fn skip(&mut self, pages: impl FnOnce(&mut Plan) -> [&mut u32; 2]) {
        for seconds in pages(self) {
            *seconds = 0;
        }
        self.skip_pairs = true;
    }

    fn has(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
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
        transaction_seconds: 20,
        security_seconds: 10,
        sustained_seconds: 60,
        sustained_gigabytes: 20,
        behind_gigabytes: 20,
        only: None,
        skip_pairs: false,
        directory: published(),
        command: format!("cargo xtask bench-kafka {}", arguments.join(" ")),
    };
    // Whatever else is said holds, before it or after it.
    if arguments.iter().any(|argument| argument == "--quick") {
        plan = Plan {
            pairs: 1,
            records: 1_000_000,
            paced_seconds: 5,
            warmup_seconds: 3,
            idle_seconds: 5,
            tail_seconds: 20,
            transaction_seconds: 5,
            security_seconds: 3,
            sustained_seconds: 10,
            behind_gigabytes: 1,
            directory: toolchain::target_directory(),
            ..plan
        };
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u32> {
            let value = arguments
                .next()
                .with_context(|| format!("{argument} wants a number"))?;
            value.parse().with_context(|| format!("{argument} {value}"))
        };
        match argument.as_str() {
            "--quick" => {}
            "--pairs" => plan.pairs = number()?,
            "--publish" => plan.directory = published(),
            "--tail-seconds" => plan.tail_seconds = number()?,
            "--idle-seconds" => plan.idle_seconds = number()?,
            "--paced-seconds" => plan.paced_seconds = number()?,
            "--sustained-seconds" => plan.sustained_seconds = number()?,
            "--behind-gigabytes" => plan.behind_gigabytes = number()?,
            "--only-sustained" => plan.select(Part::Sustained),
            "--only-delivered" => plan.select(Part::Delivered),
            "--only-pages" => plan.select(Part::Pages),
            "--only-tails" => plan.skip(|plan| [&mut plan.transaction_seconds, &mut plan.security_seconds]),
            "--only-transactions" => plan.skip(|plan| [&mut plan.tail_seconds, &mut plan.security_seconds]),
            "--only-security" => plan.skip(|plan| [&mut plan.tail_seconds, &mut plan.transaction_seconds]),
            _ => bail!("unknown argument {argument}"),
        }
    }
    ensure!(plan.pairs > 0, "--pairs must be at least 1");
    Ok(plan)
}

fn published() -> PathBuf {
    toolchain::root().join("docs/measurements")
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
    machine::check_publishing(&plan.directory)?;
    let machine = machine::describe()?;
    let lab = Lab {
        programs: Programs::prepare(true)?,
        clients: Clients::prepare()?,
    };
    if !plan.skip_pairs {
        if plan.has(Part::Delivered) {
            delivered::find_kcat()?;
        }
        let mut samples = Samples::default();
        if plan.has(Part::Pages) {
            session::calibrate(&lab, &plan, &mut samples)?;
        }
        pairs(&lab, &plan, &mut samples, one_turn)?;
        let text = report::pairs(&plan, &machine, &samples);
        write(&plan, "benchmarks", &text, &samples.raw_json()?)?;
    }
    if plan.transaction_seconds > 0 {
        let mut samples = Samples::default();
        pairs(&lab, &plan, &mut samples, transactions::run)?;
        let text = report::transactions(&plan, &machine, &samples);
        write(&plan, "transactions", &text, &samples.raw_json()?)?;
    }
    if plan.security_seconds > 0 {
        let mut samples = Samples::default();
        pairs(&lab, &plan, &mut samples, security::run)?;
        let text = report::security(&plan, &machine, &samples);
        write(&plan, "security", &text, &samples.raw_json()?)?;
    }
    if plan.tail_seconds > 0 {
        let (curves, busy) = tails(&lab, &plan)?;
        let text = report::tails(&plan, &machine, &curves, &busy);
        write(&plan, "tails", &text, &tails::raw_json(&curves)?)?;
    }
    Ok(())
}

/// One broker's part of a pair.
type Turn = fn(&Lab, &Plan, Target, &mut Samples) -> Result<()>;

fn pairs(lab: &Lab, plan: &Plan, samples: &mut Samples, turn: Turn) -> Result<()> {
    for pair in 0..plan.pairs {
        let order = if pair % 2 == 0 {
            [Target::Kafka, Target::Ottla]
        } else {
            [Target::Ottla, Target::Kafka]
        };
        for target in order {
            println!("pair {} of {}: {}", pair + 1, plan.pairs, target.name());
            samples.busy.push(machine::busy_share(Duration::from_secs(3))?);
            turn(lab, plan, target, samples)?;
        }
    }
    Ok(())
}

/// Returns the curves, and how busy other programs kept the machine before each.
fn tails(lab: &Lab, plan: &Plan) -> Result<(Vec<tails::Curve>, Vec<f64>)> {
    let (mut curves, mut busy) = (Vec::new(), Vec::new());
    for load in tails::LOADS {
        for target in [Target::Kafka, Target::Ottla] {
            println!("tails, {load}, {} s: {}", plan.tail_seconds, target.name());
            busy.push(machine::busy_share(Duration::from_secs(3))?);
            curves.push(tails::run(lab, plan, target, load)?);
        }
    }
    Ok((curves, busy))
}

fn write(plan: &Plan, name: &str, text: &str, raw: &str) -> Result<()> {
    let page = plan.directory.join(format!("{name}.md"));
    fs::write(&page, text).with_context(|| format!("writing {}", page.display()))?;
    let raw_path = toolchain::target_directory().join(format!("{name}-raw.json"));
    fs::write(&raw_path, raw)?;
    println!(
        "\n{text}\nwritten to {} (raw results with histograms: {})",
        page.display(),
        raw_path.display()
    );
    Ok(())
}

fn one_turn(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    if plan.has(Part::Pages) {
        session::page_cache(lab, plan, target, samples)?;
        session::disk(lab, plan, target, samples)?;
    }
    if plan.has(Part::Delivered) {
        delivered::run(lab, plan, target, samples)?;
    }
    if plan.has(Part::Sustained) {
        for durability in [Durability::PageCache, Durability::Disk] {
            session::sustained(lab, plan, target, durability, samples)?;
        }
    }
    Ok(())
}
