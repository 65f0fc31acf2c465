//! What every subcommand says: its output format, its failures, its standard output.

use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::ValueEnum;
use ottla_broker::text::{printable, printable_json};
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// Why a subcommand ended early, and its exit status.
#[derive(Debug)]
pub struct Failure {
    pub text: String,
    pub status: u8,
}

impl Failure {
    /// Wrong usage: status 2.
    pub fn usage(text: impl Display) -> Failure {
        Failure::with_status(text, 2)
    }

    /// There is no answer: status 2, because 1 is an answer ("a client is limited").
    pub fn unanswered(text: impl Display) -> Failure {
        Failure::with_status(text, 2)
    }

    /// [`Failure::unanswered`], naming a file.
    pub fn of_file(path: &Path, problem: impl Display) -> Failure {
        Failure::unanswered(format_args!("{}: {problem}", path.display()))
    }

    /// The work itself failed: status 1.
    pub fn failed(text: impl Display) -> Failure {
        Failure::with_status(text, 1)
    }

    fn with_status(text: impl Display, status: u8) -> Failure {
        Failure {
            text: text.to_string(),
            status,
        }
    }

    /// Reports on standard error and returns the exit status.
    pub fn report(&self, command: &str) -> ExitCode {
        // It may quote what a client or a file names.
        let lines: Vec<_> = self.text.lines().map(printable).collect();
        eprintln!("{command}: {}", lines.join("\n"));
        ExitCode::from(self.status)
    }
}

impl From<ottla_client::Error> for Failure {
    fn from(error: ottla_client::Error) -> Failure {
        use ottla_client::Error;
        match error {
            Error::Config { .. } | Error::InvalidArgument { .. } => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

/// A JSON document for standard output or a file, without control characters, also where it quotes
/// what clients name.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::unanswered)?;
    text.push('\n');
    Ok(printable_json(&text).into_owned())
}

/// Prints to standard output. A broken pipe is not an error: the reader has closed it.
///
/// - Errors: standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::unanswered(error)),
        _ => Ok(()),
    }
}
