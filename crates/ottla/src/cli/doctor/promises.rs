//! `ottla doctor promises`: what the doctor promised its clients, and what came of it.

use std::process::ExitCode;

use clap::Args;
use ottla_lab::ask::Door;
use ottla_lab::doctor::promises::{Promises as Document, document};

use super::text::{Paper, promises};
use super::{Failure, Format, Place, json, print};

/// The limit of an answer: five thousand promises are about 5 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Args)]
pub struct Promises {
    #[command(flatten)]
    place: Place,

    /// Output: text for people, or JSON
    #[arg(long, default_value = "text")]
    format: Format,
}

impl Promises {
    pub fn run(self) -> Result<ExitCode, Failure> {
        let promises = fetch(&self.place.door()?)?;
        match self.format {
            Format::Text => print(&promises::render(&promises, Paper::of_stdout()))?,
            Format::Json => print(&json(&promises)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the doctor for its promises.
///
/// - Errors: no answer, or one of another version.
pub fn fetch(door: &Door) -> Result<Document, Failure> {
    let text = door
        .ask("GET", "/doctor/promises", ANSWER_BYTES_MAX)
        .map_err(|error| super::place::unreachable(door, &error))?;
    let of_page = |problem: String| Failure::unanswered(format!("{door}: /doctor/promises {problem}"));
    let promises: Document =
        serde_json::from_str(&text).map_err(|error| of_page(format!("is not understood: {error}")))?;
    match promises.version {
        document::VERSION => Ok(promises),
        version => Err(of_page(format!(
            "has version {version}; this program reads version {}",
            document::VERSION
        ))),
    }
}
