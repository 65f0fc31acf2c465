//! `ottla bench`, `ottla bench run | list | compare`: runs scenarios on clusters and writes
//! reports.

mod canonical;
mod access;
mod arguments;
mod files;
mod listeners;
mod progress;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use ottla_broker::machine_memory::MachineMemory;
use ottla_lab::bench::run::{self, Order};
use ottla_lab::bench::{compare, html};
use ottla_lab::report::Report;
use ottla_lab::scenario::foreign::{self, Source};
use ottla_lab::scenario::model::{Scalar, Scenario};
use ottla_lab::scenario::{catalog, parse, path, sweep};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::access::Clusters;
use self::arguments::Run;
use self::progress::Bar;
use super::output::{Failure, Format};

/// Measure throughput and p99 latency on this machine, or run any scenario on any cluster
///
/// Without a subcommand it measures the canonical workload on an embedded broker in less than a
/// minute. Exit status: 0 valid, 1 the report is INVALID or an expectation does not hold, 2 wrong
/// usage.
#[derive(Args)]
pub struct Bench {
    #[command(subcommand)]
    job: Option<Job>,
}

#[derive(Subcommand)]
enum Job {
    /// Run a scenario, given by name or as a file, and write a report
    Run(Run),
    /// List the built-in scenarios, each with the question that it answers
    List {
        /// Output: text for people, or JSON
        #[arg(long, default_value = "text")]
        format: Format,
    },
    /// Compare the figures of two reports
    Compare {
        /// JSON file of the first report
        a: PathBuf,
        /// JSON file of the second report
        b: PathBuf,
        /// Output: text for people, or JSON
        #[arg(long, default_value = "text")]
        format: Format,
    },
}

impl Bench {
    pub fn run(self) -> ExitCode {
        let outcome = match self.job {
            None => canonical::run(),
            Some(Job::Run(arguments)) => run_scenario(&arguments),
            Some(Job::List { format }) => list(format),
            Some(Job::Compare { a, b, format }) => compare_files(&a, &b, format),
        };
        match outcome {
            Ok(status) => status,
            Err(failure) => failure.report("ottla bench"),
        }
    }
}

/// Returns a flag that the first Ctrl-C sets; the second one ends the process.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::failed(format!("cannot handle signals: {error}")))?;
    }
    Ok(stop)
}

fn run_scenario(arguments: &Run) -> Result<ExitCode, Failure> {
    let scenario = load(arguments)?;
    // Fails before the run, not after it, if the report cannot be written.
    let files = files::Files::prepare(&arguments.output, &scenario.name)?;
    let stop = stop_flag()?;
    let clusters = Clusters::reach(arguments, &scenario)?;
    let order = Order {
        scenario: &scenario,
        accesses: clusters.accesses(),
        command: arguments::command_line(),
        ottla_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: crate::cli::COMMIT.map(str::to_owned),
        data: clusters.data(),
        memory_bytes: MachineMemory::look().bytes,
        stop: &stop,
        calibration: None,
    };
    let bar = Bar::new();
    let report = run::run(&order, &|progress| bar.show(progress)).map_err(Failure::failed)?;
    bar.finish();
    drop(clusters);
    let written = files.write(&report, &html::render(&report));
    tell(&report, arguments.format)?;
    let (json, page) = written?;
    if arguments.format == Format::Text {
        println!("\n{}\n{}", json.display(), page.display());
    }
    Ok(status(&report))
}

/// Returns 0, or 1 if a record was lost, the report is INVALID or an expectation does not hold.
fn status(report: &Report) -> ExitCode {
    let holds = report
        .points
        .iter()
        .flat_map(|point| &point.on)
        .flat_map(|on| &on.expectations)
        .all(|expectation| expectation.holds);
    ExitCode::from(u8::from(!(report.verdict.is_valid() && holds)))
}

fn tell(report: &Report, format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => print!("{}", summary::text(report)),
        Format::Json => println!(
            "{}",
            serde_json::to_string_pretty(report).map_err(Failure::failed)?
        ),
    }
    Ok(())
}

fn load(arguments: &Run) -> Result<Scenario, Failure> {
    let is_file = Path::new(&arguments.scenario).exists() || arguments.scenario.contains(['/', '.']);
    let mut scenario = if is_file {
        from_files(arguments)?
    } else {
        catalog::find(&arguments.scenario).map_err(Failure::usage)?
    };
    scenario = sweep::scaled(&scenario, arguments.scale);
    for (place, value) in &arguments.set {
        scenario = path::with(&scenario, place, &Scalar::from_text(value)).map_err(Failure::usage)?;
    }
    if let Some(rounds) = arguments.rounds {
        scenario.rounds = rounds;
    }
    if !arguments.bootstrap_servers.is_empty() && sweep::without_security(&mut scenario) {
        eprintln!(
            "ottla bench: the scenario's security is not applied to {}: --command-config says how it is reached",
            arguments.bootstrap_servers.join(" and ")
        );
    }
    // The text is parsed once more, so that values from --set are checked like the rest.
    parse::parse(&parse::render(&scenario), &arguments.scenario).map_err(Failure::usage)
}

/// Reads a scenario of Ottla or of another tool; fields without effect here are printed.
fn from_files(arguments: &Run) -> Result<Scenario, Failure> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
    };
    let mut texts = vec![(arguments.scenario.clone(), read(Path::new(&arguments.scenario))?)];
    if let Some(driver) = &arguments.driver {
        texts.push((driver.display().to_string(), read(driver)?));
    }
    let sources: Vec<Source<'_>> = texts
        .iter()
        .map(|(origin, text)| Source { text, origin })
        .collect();
    let converted = foreign::read(&sources).map_err(Failure::usage)?;
    for field in &converted.without_effect {
        eprintln!("ottla bench: {}: {field}", arguments.scenario);
    }
    Ok(converted.scenario)
}

fn list(format: Format) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for (name, text) in catalog::all() {
        rows.push((name, catalog::question(text).unwrap_or_default()));
    }
    match format {
        Format::Text => {
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, question) in &rows {
                println!("{name:width$}  {question}");
            }
        }
        Format::Json => {
            let rows: Vec<_> = rows
                .iter()
                .map(|(name, question)| serde_json::json!({"name": name, "question": question}))
                .collect();
            println!(
                "{}",
                serde_json::json!({"schema": "ottla.bench.list/1", "scenarios": rows})
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compare_files(a: &Path, b: &Path, format: Format) -> Result<ExitCode, Failure> {
    let a = Report::read(a).map_err(Failure::usage)?;
    let b = Report::read(b).map_err(Failure::usage)?;
    let comparison = compare::compare(&a, &b);
    match format {
        Format::Text => print!("{comparison}"),
        Format::Json => println!(
            "{}",
            serde_json::to_string_pretty(&comparison).map_err(Failure::failed)?
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the user asked to stop.
pub(super) fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}
