//! `ottla bench` without a subcommand: this machine's throughput, and its p99 latency at half of
//! that.

use std::process::ExitCode;

use ottla_broker::machine_memory::MachineMemory;
use ottla_lab::bench::run::{self, Order};
use ottla_lab::numbers::number;
use ottla_lab::report::Report;
use ottla_lab::scenario::catalog;
use ottla_lab::scenario::model::Scenario;

use super::progress::Bar;
use super::{Failure, access, arguments, is_stopped, stop_flag};

/// The scenario of the catalog: one producer, one consumer, no rate.
const SCENARIO: &str = "canonical";

pub fn run() -> Result<ExitCode, Failure> {
    let mut scenario = catalog::find(SCENARIO).map_err(Failure::failed)?;
    let stop = stop_flag()?;
    let (broker, cluster) = access::embed(&scenario)?;
    let clusters = [cluster];
    let bar = Bar::new();
    let measure = |scenario: &Scenario, calibration| -> Result<Report, Failure> {
        let order = Order {
            scenario,
            accesses: &clusters,
            command: arguments::command_line(),
            ottla_version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: crate::cli::COMMIT.map(str::to_owned),
            data: &std::env::temp_dir(),
            memory_bytes: MachineMemory::look().bytes,
            stop: &stop,
            calibration,
        };
        run::run(&order, &|progress| bar.show(progress)).map_err(Failure::failed)
    };
    let capacity = measure(&scenario, None)?;
    let throughput = figure(&capacity, "records_per_second").unwrap_or(0.0);
    if is_stopped(&stop) || throughput == 0.0 {
        bar.finish();
        return conclude(&[("throughput", capacity)]);
    }
    let half = (throughput / 2.0).round();
    for group in &mut scenario.producers {
        group.rate = Some(half);
    }
    let calm = measure(&scenario, Some(capacity.calibration.clone()))?;
    bar.finish();
    drop(broker);
    println!(
        "throughput  {:>12} records/s  {} MiB/s, saturated",
        number(throughput),
        number(figure(&capacity, "mib_per_second").unwrap_or(0.0))
    );
    match figure(&calm, "latency_p99_ms") {
        Some(p99) => {
            println!(
                "p99         {:>12} ms         at {} records/s, from when records were due",
                number(p99),
                number(half)
            )
        }
        None => println!("p99          not measured"),
    }
    conclude(&[("throughput", capacity), ("p99 at half of it", calm)])
}

fn figure(report: &Report, name: &str) -> Option<f64> {
    report.points.first()?.on.first()?.figure(name)
}

fn conclude(parts: &[(&str, Report)]) -> Result<ExitCode, Failure> {
    let mut is_valid = true;
    for (what, report) in parts {
        is_valid &= report.verdict.is_valid();
        println!("{:11} {what}", report.verdict.word());
        for reason in &report.verdict.reasons {
            println!("            {reason}");
        }
    }
    let mut told: Vec<&String> = Vec::new();
    for caveat in parts.iter().flat_map(|(_, report)| &report.verdict.caveats) {
        if !told.contains(&caveat) {
            println!("note        {caveat}");
            told.push(caveat);
        }
    }
    if let Some((_, report)) = parts.first()
        && let Some(target) = report.manifest.targets.first()
    {
        println!("durability  {}", target.durability);
    }
    Ok(ExitCode::from(u8::from(!is_valid)))
}
