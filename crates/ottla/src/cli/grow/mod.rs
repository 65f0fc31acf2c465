//! `ottla grow`: writes a stopped node's metadata for separate Apache Kafka controllers.

mod address;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_broker::StartError;
use ottla_broker::growth;

use self::address::ControllerAddress;
use super::output::Failure;
use super::serve::start_log;
use super::server_properties::ServerProperties;

/// Write a stopped broker's metadata for a separate Apache Kafka controller, and print the next
/// steps
///
/// Writes the metadata into a new directory on which a controller of Apache Kafka 4.x is then
/// started. The broker's own directory is only read: ottla serve can continue with it until Apache
/// Kafka has been started on it. Exit status: 0 prepared, or all checks passed; 1 the directory
/// cannot be used; 2 wrong usage.
#[derive(Args)]
pub struct Grow {
    #[command(flatten)]
    properties: ServerProperties,

    /// The stopped broker's log directory; overrides log.dirs of the file
    #[arg(long, value_name = "DIR")]
    log_dirs: Option<PathBuf>,

    /// The new controller: a node id that is not in use, and the address at which brokers and other
    /// controllers reach it, e.g. 3001@10.0.0.9:9093 (as in controller.quorum.voters)
    #[arg(long, value_name = "ID@HOST:PORT")]
    controller: ControllerAddress,

    /// The new controller's log directory; created if missing, else it must be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Run all checks and print what would be written, without writing anything
    #[arg(long)]
    check: bool,
}

impl Grow {
    /// Exit status: 0 prepared, or all checks passed; 1 refused; 2 wrong usage.
    pub fn run(self) -> ExitCode {
        start_log();
        match self.grow() {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(failure) => failure.report("ottla grow"),
        }
    }

    fn grow(self) -> Result<String, Failure> {
        let mut properties = self.properties.read().map_err(Failure::usage)?;
        if let Some(path) = &self.log_dirs {
            properties.remove("log.dir");
            properties.insert("log.dirs".to_owned(), path.display().to_string());
        }
        let controller = &self.controller;
        let (growth, random) =
            growth::read(&properties, controller.id, &controller.host, controller.port).map_err(failure)?;
        check_apart(&self.out, growth.log_directories())?;
        growth.check_out(&self.out).map_err(refused)?;
        if self.check {
            return Ok(text::of_check(&growth, &self.out));
        }
        growth.write(&self.out, &random).map_err(refused)?;
        Ok(text::of_growth(&growth, &self.out))
    }
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Config(_) => Failure::usage(error),
        StartError::Node(growth::NodeError::Lock { .. }) => {
            Failure::failed(format_args!("{error}; stop the broker with SIGTERM first"))
        }
        _ => Failure::failed(error),
    }
}

fn refused(error: growth::NodeError) -> Failure {
    Failure::failed(error)
}

/// Refuses an `out` inside a log directory, which may contain nothing but logs.
fn check_apart<'a>(out: &Path, log_directories: impl Iterator<Item = &'a Path>) -> Result<(), Failure> {
    let out_place = place(out);
    for directory in log_directories {
        if out_place.starts_with(place(directory)) {
            let (out, directory) = (out.display(), directory.display());
            return Err(Failure::failed(format_args!(
                "--out {out} is inside the broker's log directory {directory}: name one beside it"
            )));
        }
    }
    Ok(())
}

/// Returns the absolute path, with symbolic links resolved in the part of it that exists.
fn place(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let known = absolute
        .ancestors()
        .find_map(|part| Some((part, part.canonicalize().ok()?)));
    match known {
        Some((part, real)) => real.join(absolute.strip_prefix(part).unwrap_or(Path::new(""))),
        None => absolute,
    }
}
