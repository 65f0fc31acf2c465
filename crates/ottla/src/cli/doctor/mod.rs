//! `ottla doctor`: what limits each client, with the arithmetic, the recommended change and the
//! changes that would not help.

mod calculate;
mod replay;
mod examine;
pub(in crate::cli) mod stated;
mod promises;
mod plugin;
pub(in crate::cli) mod scorekeeper;
pub(in crate::cli) mod collect;
pub(in crate::cli) mod watch;
pub(in crate::cli) mod place;
pub(in crate::cli) mod text;
#[cfg(test)]
mod sample;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use self::place::Place;
use super::output::{Failure, Format, json, print};

/// Show what limits each client, and which setting to change
///
/// Without a subcommand it asks Ottla's admin address, or a collector, about all clients that it
/// knows. Exit status: 0 no client is limited, 1 at least one client is limited or loses records,
/// 2 no answer or wrong usage.
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
    /// Show the complete reasoning about one client: questions, arithmetic, change, refused changes
    Explain(examine::Explain),
    /// Show what the doctor promised its clients, and what was measured after they followed it
    Promises(promises::Promises),
    /// Diagnose clients from files: exported readings, or output of kafka-producer-perf-test.sh
    /// --print-metrics
    Replay(replay::Replay),
    /// Receive client metrics of an Apache Kafka cluster (KIP-714): from its brokers' plug-in, or
    /// by OTLP/HTTP
    Collect(collect::Collect),
    /// Write the plug-in with which Apache Kafka hands on its clients' metrics, and say how to
    /// install it
    Plugin(plugin::Plugin),
    /// Predict what a change of settings would do to one client
    Predict(calculate::Predict),
    /// Calculate one formula from numbers with units; without a name list all formulas
    Formula(calculate::Formula),
}

impl Doctor {
    pub fn run(self) -> ExitCode {
        let (name, outcome) = match self.job {
            None => ("", self.look.run()),
            Some(Job::Explain(job)) => (" explain", job.run()),
            Some(Job::Promises(job)) => (" promises", job.run()),
            Some(Job::Replay(job)) => (" replay", job.run()),
            Some(Job::Collect(job)) => (" collect", job.run()),
            Some(Job::Plugin(job)) => (" plugin", job.run()),
            Some(Job::Predict(job)) => (" predict", job.run()),
            Some(Job::Formula(job)) => (" formula", job.run()),
        };
        match outcome {
            Ok(status) => status,
            Err(failure) => failure.report(&format!("ottla doctor{name}")),
        }
    }
}

/// Returns exit status 1 if some client is limited or loses records, else 0.
fn status(is_bad: bool) -> ExitCode {
    ExitCode::from(u8::from(is_bad))
}

/// Returns the wall clock in milliseconds since 1970.
pub(in crate::cli) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Writes a file atomically: to a temporary file, then renamed.
fn write_file(path: &PathBuf, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut beside = path.clone().into_os_string();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| Failure::of_file(path, error))
}
