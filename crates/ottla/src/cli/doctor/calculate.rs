//! `ottla doctor formula` and `ottla doctor predict`: calculations with units.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::calculator::{formula, predict};
use ottla_lab::doctor::severity;

use super::stated::{self, Stated};
use super::text::{Paper, calculation};
use super::{Failure, Format, Place, json, print, replay};

#[derive(Args)]
pub struct Formula {
    /// Name of the formula; without it all formulas are listed with their inputs
    name: Option<String>,

    /// Inputs with units, e.g. rtt=72ms batch.size=16KiB
    #[arg(value_name = "NAME=VALUE")]
    numbers: Vec<String>,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,
}

impl Formula {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let paper = Paper::of_stdout();
        let Some(name) = &self.name else {
            print(&calculation::list(formula::calculators(), paper))?;
            return Ok(ExitCode::SUCCESS);
        };
        let calculated = formula::calculate(name, &self.numbers).map_err(Failure::unanswered)?;
        match self.format {
            Format::Text => print(&calculation::render(&calculated, paper))?,
            Format::Json => print(&json(&calculated)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub struct Predict {
    /// A file as for `ottla doctor replay`, or the client.id or client instance id of a client of a
    /// running doctor
    #[arg(value_name = "FILE|CLIENT")]
    of: String,

    /// A changed setting; may be repeated. It states nothing about the present: --client-config
    /// does
    #[arg(long, value_name = "KEY=VALUE", required = true)]
    set: Vec<String>,

    /// State the client's present settings by its properties file, as for `ottla doctor`; may be
    /// repeated
    #[arg(long, value_name = "[CLIENT=]FILE")]
    client_config: Vec<String>,

    #[command(flatten)]
    place: Place,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,
}

impl Predict {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let snapshot = self.snapshot()?;
        let prediction = predict::predict(&snapshot, &self.set).map_err(Failure::unanswered)?;
        match self.format {
            Format::Text => print(&calculation::prediction(&prediction, Paper::of_stdout()))?,
            Format::Json => print(&json(&prediction)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads the client's readings.
    ///
    /// - Errors: the file or the doctor cannot be read; several clients match.
    fn snapshot(&self) -> Result<Snapshot, Failure> {
        let stated = Stated::by_files(&self.client_config);
        let is_file = self.of == "-" || Path::new(&self.of).is_file() || self.of.contains('/');
        if is_file {
            let path = PathBuf::from(&self.of);
            let statements = stated.read()?;
            let snapshots = stated::apply(&statements, replay::read(&path)?);
            return only(snapshots).map_err(|problem| Failure::of_file(&path, problem));
        }
        let source = self.place.source(&stated)?;
        let all = source.snapshots()?;
        let door = &source.door;
        let is_it = |snapshot: &&Snapshot| {
            snapshot.client.client_id == self.of || snapshot.client.instance_id.as_deref() == Some(&self.of)
        };
        let found: Vec<Snapshot> = all.iter().filter(is_it).cloned().collect();
        if found.is_empty() {
            let names = all.iter().map(|snapshot| snapshot.client.client_id.as_str());
            let problem = severity::unknown(&self.of, names);
            return Err(Failure::unanswered(format!(
                "{door}: {problem}, and no file of this name"
            )));
        }
        only(found).map_err(|problem| Failure::unanswered(format!("{door}: {problem}")))
    }
}

/// Returns the only element.
///
/// - Errors: there are several; the text lists the instances, of which one must be named.
fn only(mut snapshots: Vec<Snapshot>) -> Result<Snapshot, String> {
    if snapshots.len() == 1 {
        return Ok(snapshots.remove(0));
    }
    let name = |snapshot: &Snapshot| match &snapshot.client.instance_id {
        Some(id) => format!("{} {id}", snapshot.client.client_id),
        None => snapshot.client.client_id.clone(),
    };
    let names: Vec<String> = snapshots.iter().take(10).map(name).collect();
    Err(format!(
        "{} clients; name one: {}",
        snapshots.len(),
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_matching_clients_are_listed_in_the_error() {
        let snapshot = |instance: &str| {
            let mut snapshot = Snapshot::default();
            snapshot.client.client_id = "orders".into();
            snapshot.client.instance_id = Some(instance.into());
            snapshot
        };
        assert_eq!(only(vec![snapshot("a")]).unwrap(), snapshot("a"));
        let error = only(vec![snapshot("a"), snapshot("b")]).unwrap_err();
        assert_eq!(error, "2 clients; name one: orders a, orders b");
    }
}
