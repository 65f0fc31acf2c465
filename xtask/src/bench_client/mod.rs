//! `cargo xtask bench-client`: our client beside Java's, librdkafka, franz-go, krafka and
//! confluent-kafka, against one broker; writes docs/measurements/client-benchmarks.md.
//!
//! Every contender is a process of its own. All run one after the other under the same case, in one
//! order and then in the opposite one, once per pair; medians and the ratios within a round are
//! published.

mod case;
mod contender;
mod latency;
mod measure;
mod payload;
mod process;
mod report;

use crate::bench_kafka::machine;
use crate::interop::server::{self, Server, Site, Target};
use crate::interop::toolchain;
use anyhow::{Context, Result, bail, ensure};
use case::{Case, Kind, Scale};
use contender::{Contender, Programs};
use measure::Run;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The options of the command line.
pub struct Plan {
    target: Target,
    pairs: u32,
    clients: Vec<Contender>,
    only: Vec<String>,
    is_full: bool,
    is_quick: bool,
    is_built: bool,
    data: PathBuf,
    output: PathBuf,
    command: String,
}

fn parse(arguments: &[String]) -> Result<Plan> {
    let memory = Path::new("/dev/shm");
    let mut plan = Plan {
        target: Target::Ottla,
        pairs: 5,
        clients: Contender::ALL.to_vec(),
        only: Vec::new(),
        is_full: false,
        is_quick: false,
        is_built: false,
        data: if memory.is_dir() {
            memory.join("ottla-bench-client")
        } else {
            toolchain::cargo_target().join("bench-client/data")
        },
        output: toolchain::cargo_target().join("bench-client/client-benchmarks.md"),
        command: format!("cargo xtask bench-client {}", arguments.join(" ")),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--target" => plan.target = Target::parse(value()?)?,
            "--pairs" => plan.pairs = value()?.parse().context("--pairs wants a number")?,
            "--clients" => plan.clients = value()?.split(',').map(Contender::parse).collect::<Result<_>>()?,
            "--only" => plan.only = value()?.split(',').map(String::from).collect(),
            "--data" => plan.data = PathBuf::from(value()?),
            "--publish" => plan.output = toolchain::root().join("docs/measurements/client-benchmarks.md"),
            "--as-built" => plan.is_built = true,
            "--full" => plan.is_full = true,
            "--quick" => (plan.is_quick, plan.pairs) = (true, 1),
            _ => bail!("unknown argument {argument}"),
        }
    }
    ensure!(plan.pairs > 0, "--pairs must be at least 1");
    Ok(plan)
}

impl Plan {
    fn cases(&self) -> Result<Vec<Case>> {
        let scale = if self.is_quick {
            Scale {
                permille: 250,
                paced_seconds: 3,
                paced_warmup_seconds: 2,
            }
        } else {
            Scale {
                permille: 1000,
                paced_seconds: 8,
                paced_warmup_seconds: 4,
            }
        };
        let all = case::all(scale);
        for wanted in &self.only {
            let keys: Vec<&str> = all.iter().map(|case| case.key.as_str()).collect();
            ensure!(
                all.iter().any(|case| matches(&case.key, wanted)),
                "--only knows {}, not {wanted}",
                keys.join(", ")
            );
        }
        let is_wanted = |case: &Case| {
            if self.only.is_empty() {
                self.is_full || case.is_core
            } else {
                self.only.iter().any(|wanted| matches(&case.key, wanted))
            }
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }
}

/// Matches a key; `256-lz4*` matches every key with this prefix.
fn matches(key: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => key == wanted,
    }
}

/// The one broker of the whole run.
pub struct Broker {
    pub server: Server,
    site: Site,
}

impl Broker {
    fn start(plan: &Plan) -> Result<Broker> {
        let programs = server::Programs::prepare(plan.target == Target::Ottla)?;
        // Deleted topics must not accumulate, above all in memory: every run writes hundreds of
        // megabytes.
        let site = Site::create_below(&plan.data, "broker", &[("log.segment.delete.delay.ms", "500")])?;
        let server = site.start_with(&programs, plan.target, &["ottla.durability=page-cache"])?;
        Ok(Broker { server, site })
    }
}

/// The runs of one contender under one case, by round. Runs within a round are comparable, runs of
/// different rounds less so.
pub struct Sample {
    pub case: usize,
    pub contender: Contender,
    pub runs: Vec<Run>,
}

pub fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let cases = plan.cases()?;
    machine::check_publishing(&plan.output)?;
    let machine = machine::describe()?;
    let programs = Programs::prepare(&plan.clients, plan.is_built)?;
    let broker = Broker::start(&plan)?;
    println!(
        "{} on {}, data in {}",
        plan.target.name(),
        broker.server.bootstrap(),
        plan.data.display()
    );
    let started = Instant::now();
    let mut busy = Vec::new();
    let mut samples = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        println!(
            "\n{} ({} of {}, {} s so far)",
            case.title,
            index + 1,
            cases.len(),
            started.elapsed().as_secs()
        );
        busy.push(machine::busy_share(Duration::from_secs(1))?);
        samples.extend(run_case(&plan, &programs, &broker, index, case)?);
        // After every case, so that an interrupted run of an hour leaves its results.
        write_results(&plan, &machine, &cases, &samples, &programs, &busy)?;
    }
    let Broker { server, site } = broker;
    server.stop()?;
    site.remove();

    println!(
        "\n{}\nwritten to {} (every run: {})",
        fs::read_to_string(&plan.output)?,
        plan.output.display(),
        raw_path().display()
    );
    Ok(())
}

fn raw_path() -> PathBuf {
    toolchain::cargo_target().join("bench-client/results.json")
}

fn write_results(
    plan: &Plan,
    machine: &[(String, String)],
    cases: &[Case],
    samples: &[Sample],
    programs: &Programs,
    busy: &[f64],
) -> Result<()> {
    let text = report::render(plan, machine, cases, samples, &programs.failures, busy);
    if let Some(folder) = plan.output.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&plan.output, &text).with_context(|| format!("writing {}", plan.output.display()))?;
    let raw = serde_json::to_string_pretty(&raw_results(machine, cases, samples, busy))?;
    fs::write(raw_path(), raw).context("writing the raw results")
}

fn run_case(
    plan: &Plan,
    programs: &Programs,
    broker: &Broker,
    index: usize,
    case: &Case,
) -> Result<Vec<Sample>> {
    let mut samples: Vec<Sample> = plan
        .clients
        .iter()
        .filter(|contender| case.contenders.contains(contender) && !programs.failures.contains_key(contender))
        .map(|&contender| Sample {
            case: index,
            contender,
            runs: Vec::new(),
        })
        .collect();
    if let Kind::Consume(consume) = &case.kind {
        measure::fill(programs, broker, consume, &case.key)?;
    }
    for round in 0..plan.pairs {
        let mut order: Vec<&mut Sample> = samples.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for sample in order {
            ensure_memory()?;
            let run = measure::run(programs, broker, case, sample.contender)?;
            println!("  {}", report::line(sample.contender, &run));
            sample.runs.push(run);
        }
    }
    if matches!(case.kind, Kind::Consume(_)) {
        programs.errand("delete", &broker.server.bootstrap(), &case.key, 0)?;
    }
    Ok(samples)
}

/// Checks the free memory: broker data in a memory file system could exhaust the machine.
fn ensure_memory() -> Result<()> {
    const NEEDED_KIB: u64 = 6 * 1024 * 1024;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let field = line.and_then(|line| line.split_whitespace().next());
        let available: u64 = field.context("MemAvailable in /proc/meminfo")?.parse()?;
        if available >= NEEDED_KIB {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "only {available} KiB of memory are available; --data DIR names a place on disk"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn raw_results(machine: &[(String, String)], cases: &[Case], samples: &[Sample], busy: &[f64]) -> Value {
    let samples: Vec<Value> = samples
        .iter()
        .map(|sample| {
            let runs: Vec<Value> = sample
                .runs
                .iter()
                .map(|run| {
                    json!({"rate": run.rate, "client_cpu_s_per_million": run.client_cpu,
                        "broker_cpu_s_per_million": run.broker_cpu, "peak_mib": run.peak_mib, "invalid": run.invalid,
                        "latencies_ms": run.latencies.map(|latencies| latencies.json()), "raw": run.raw})
                })
                .collect();
            json!({"case": cases[sample.case].key, "contender": sample.contender.name(), "runs": runs})
        })
        .collect();
    json!({"machine": machine, "busy_before_each_case": busy, "samples": samples})
}
