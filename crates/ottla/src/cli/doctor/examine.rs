//! `ottla doctor` and `ottla doctor explain`: the diagnoses of a running doctor.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ottla_lab::ask::Door;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::promises::Promises;

use super::promises::fetch;
use super::stated::Stated;
use super::text::{Paper, explain, promises, table, wrap};
use super::{Failure, Format, Place, json, print, status, watch, write_file};

#[derive(Args)]
pub struct Look {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    stated: Stated,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,

    /// Show a live screen until q is pressed
    #[arg(long, conflicts_with_all = ["format", "export"])]
    watch: bool,

    /// Refresh interval of --watch in seconds, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, requires = "watch", value_parser = interval)]
    interval: f64,

    /// Also write the readings of all clients to this file, for `ottla doctor replay`
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err(String::from("must be seconds between 0.1 and 3600")),
    }
}

impl Look {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let source = self.place.source(&self.stated)?;
        if self.watch {
            return watch::run(&source, self.interval);
        }
        if let Some(path) = &self.export {
            let snapshots = source.snapshots()?;
            write_file(path, json(&snapshots)?)?;
            eprintln!("ottla doctor: {} clients in {}", snapshots.len(), path.display());
        }
        let examination = source.examination()?;
        match self.format {
            Format::Text => {
                let page = table::render(&examination, &promises_of(&source.door), Paper::of_stdout());
                print(&page)?;
            }
            Format::Json => print(&json(&examination)?)?,
        }
        Ok(status(examination.has_bad()))
    }
}

#[derive(Args)]
pub struct Explain {
    /// The client's client.id, or its client instance id
    client: String,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    stated: Stated,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,
}

impl Explain {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let source = self.place.source(&self.stated)?;
        let all = source.examination()?;
        let found = all
            .find(&self.client)
            .map_err(|problem| Failure::unanswered(format!("{}: {problem}", source.door)))?;
        let clients: Vec<_> = found.into_iter().cloned().collect();
        let examination = Examination::of(all.at_ms, clients);
        tell(&examination, self.format)?;
        if self.format == Format::Text {
            for (_, sentence) in promises::lately(&promises_of(&source.door), &examination) {
                let lines = wrap(&sentence, Paper::of_stdout().width);
                print(&format!("\n{}\n", lines.join("\n")))?;
            }
        }
        Ok(status(examination.has_bad()))
    }
}

/// The diagnoses are shown without them where a doctor of an earlier version has no such page.
pub(super) fn promises_of(door: &Door) -> Promises {
    fetch(door).unwrap_or_default()
}

/// Prints every client with its complete reasoning, as text or JSON.
pub fn tell(examination: &Examination, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return print(&json(examination)?);
    }
    let paper = Paper::of_stdout();
    let pages: Vec<String> = examination
        .clients
        .iter()
        .map(|client| explain::render(client, paper))
        .collect();
    let rule = format!("\n{}\n\n", "─".repeat(paper.width));
    print(&pages.join(&rule))
}
