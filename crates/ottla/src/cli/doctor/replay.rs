//! `ottla doctor replay`: applies the rules to readings in files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::{Snapshot, replay, rules};

use super::stated::{self, Stated};
use super::{Failure, Format, examine, now_ms, status};

/// The limit of a file: about ten thousand clients.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Args)]
pub struct Replay {
    /// Readings from `ottla doctor --export`, or output of kafka-producer-perf-test.sh
    /// --print-metrics; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,

    #[command(flatten)]
    stated: Stated,

    /// Exit with status 1 if some client is limited or loses records
    #[arg(long)]
    exit_code: bool,
}

impl Replay {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let statements = self.stated.read()?;
        let mut clients = Vec::new();
        // Several files keep their order, so that their results can be told apart.
        for path in &self.files {
            let snapshots = stated::apply(&statements, read(path)?);
            clients.extend(examined(&snapshots, 0).clients);
        }
        let examination = Examination::of(now_ms(), clients);
        examine::tell(&examination, self.format)?;
        Ok(status(self.exit_code && examination.has_bad()))
    }
}

/// Diagnoses the clients, the worst first.
pub fn examined(snapshots: &[Snapshot], at_ms: i64) -> Examination {
    let clients: Vec<_> = snapshots.iter().map(rules::examine).collect();
    let mut examination = Examination::of(at_ms, clients);
    examination.sort();
    examination
}

/// Reads the clients of a file.
///
/// - Errors: with the file's name; it cannot be read, or has an unknown format.
pub fn read(path: &Path) -> Result<Vec<Snapshot>, Failure> {
    let text = text_of(path).map_err(|error| Failure::of_file(path, error))?;
    replay::read(&text).map_err(|problem| Failure::of_file(path, problem))
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut take = |reader: &mut dyn Read| reader.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    match path.as_os_str() == "-" {
        true => take(&mut std::io::stdin().lock())?,
        false => take(&mut std::fs::File::open(path)?)?,
    };
    if text.len() as u64 > FILE_BYTES_MAX {
        let problem = format!("is longer than {FILE_BYTES_MAX} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
    }
    Ok(text)
}
