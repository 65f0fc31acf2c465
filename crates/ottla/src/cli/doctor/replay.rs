//! `ottla doctor replay`: the rules on what was kept in files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_lab::doctor::diagnosis::{Examination, VERSION};
use ottla_lab::doctor::{Snapshot, replay, rules};

use super::{Failure, Format, examine, now_ms, status};

/// A case of ten thousand clients.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[derive(Args)]
pub struct Replay {
    /// Exported cases, outputs of --print-metrics or fixtures; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[arg(long, default_value = "text")]
    format: Format,

    /// End with status 1 when some client is limited or loses records.
    #[arg(long)]
    exit_code: bool,
}

impl Replay {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let mut clients = Vec::new();
        // The order of several files is kept: it is how they are told apart.
        for path in &self.files {
            clients.extend(examined(&read(path)?, 0).clients);
        }
        let examination = Examination {
            version: VERSION,
            at_ms: now_ms(),
            clients,
        };
        examine::tell(&examination, self.format)?;
        Ok(status(self.exit_code && examination.has_bad()))
    }
}

/// What the rules say, the worst first.
pub fn examined(snapshots: &[Snapshot], at_ms: i64) -> Examination {
    let mut examination = Examination {
        version: VERSION,
        at_ms,
        clients: snapshots.iter().map(rules::examine).collect(),
    };
    examination.sort();
    examination
}

/// The clients that a file tells of.
///
/// - Errors: with the file's name; it cannot be read, or is of none of the forms.
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
