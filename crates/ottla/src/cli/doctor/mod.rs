//! `ottla doctor`: what limits each client, with the arithmetic, the one change and what would not help.

pub(in crate::cli) mod place;
pub(in crate::cli) mod text;
mod examine;
mod replay;
mod calculate;
mod collect;
pub(in crate::cli) mod watch;
#[cfg(test)]
mod sample;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use ottla_broker::text::printable_json;

use self::place::Place;

/// Find what limits each client, and the one change that helps
///
/// Without a subcommand: asks Ottla's admin address, or a collector, about every client that it has seen.
/// Exit status: 0 no client is limited, 1 some client is limited or loses records, 2 no answer (usage, nobody there).
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Doctor {
    #[command(flatten)]
    look: examine::Look,

    #[command(subcommand)]
    job: Option<Job>,
}

#[derive(Subcommand)]
enum Job {
    /// Tell the whole chain of reasoning about one client
    Explain(examine::Explain),
    /// Examine files: exported cases, output of kafka-producer-perf-test --print-metrics, fixtures
    Replay(replay::Replay),
    /// Receive metrics of Apache Kafka's clients: from the plug-in in its brokers, or by OTLP/HTTP
    Collect(collect::Collect),
    /// Work out what a change of settings would bring
    Predict(calculate::Predict),
    /// Work out one formula, with units
    Formula(calculate::Formula),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    #[default]
    Text,
    Json,
}

/// Why there is no answer; the exit status is 2.
#[derive(Debug)]
pub(in crate::cli) struct Failure(pub(in crate::cli) String);

impl Failure {
    pub(in crate::cli) fn new(text: impl std::fmt::Display) -> Failure {
        Failure(text.to_string())
    }

    /// About a file.
    fn of_file(path: &std::path::Path, problem: impl std::fmt::Display) -> Failure {
        Failure(format!("{}: {problem}", path.display()))
    }
}

impl Doctor {
    pub fn run(self) -> ExitCode {
        let (name, outcome) = match self.job {
            None => ("", self.look.run()),
            Some(Job::Explain(job)) => (" explain", job.run()),
            Some(Job::Replay(job)) => (" replay", job.run()),
            Some(Job::Collect(job)) => (" collect", job.run()),
            Some(Job::Predict(job)) => (" predict", job.run()),
            Some(Job::Formula(job)) => (" formula", job.run()),
        };
        match outcome {
            Ok(status) => status,
            Err(Failure(text)) => {
                eprintln!("ottla doctor{name}: {text}");
                ExitCode::from(2)
            }
        }
    }
}

/// 1 when somebody should act.
fn status(is_bad: bool) -> ExitCode {
    ExitCode::from(u8::from(is_bad))
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// - Errors: standard output is gone; nobody reads any more, which is no failure of ours to tell.
pub(in crate::cli) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(error)),
        _ => Ok(()),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    text.push('\n');
    Ok(printable_json(&text).into_owned())
}

/// Writes what an operator wants to keep, whole or not at all.
fn write_file(path: &PathBuf, text: &str) -> Result<(), Failure> {
    let mut beside = path.clone().into_os_string();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| Failure::of_file(path, error))
}
