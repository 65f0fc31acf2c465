//! `ottla tenants`: the broker's cost per tenant.

mod watch;
mod table;
mod figures;

use std::process::ExitCode;

use clap::Args;
use ottla_lab::ask::Door;
use ottla_lab::tenants::document::Document;

use crate::cli::admin_address::AdminAddress;
use crate::cli::doctor::text::Paper;
use crate::cli::live;
use crate::cli::output::{Failure, Format, print};

/// The limit of an answer: ten thousand tenants are about 15 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Show what each tenant costs the broker: event loop time, requests, bytes, and waiting time
/// inflicted on others
///
/// A tenant is the authenticated user, else the client id, else the address (ottla.tenant.key).
/// Rates are averages over the last minute. Exit status: 0 shown, 2 no answer or wrong usage.
#[derive(Args)]
#[command(name = "tenants")]
pub struct TenantsJob {
    #[command(flatten)]
    broker: AdminAddress,

    /// Output: a table, or the JSON of the admin address
    #[arg(long, default_value = "text")]
    format: Format,

    /// Number of tenants to show, the heaviest first; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,

    /// Show a live screen until q is pressed
    #[arg(long, conflicts_with = "format")]
    watch: bool,

    /// Refresh interval of --watch in seconds, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, requires = "watch", value_parser = live::interval)]
    interval: f64,
}

impl TenantsJob {
    /// Exit status: 0 shown, 2 no answer.
    pub fn run(self) -> ExitCode {
        match self.show() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report("ottla tenants"),
        }
    }

    fn show(self) -> Result<(), Failure> {
        let door = self.broker.door()?;
        if self.watch {
            return watch::run(&door, self.interval);
        }
        let text = text_of(&door)?;
        let document =
            Document::read(&text).map_err(|problem| Failure::unanswered(format!("{door}: {problem}")))?;
        match self.format {
            Format::Json => print(&text),
            Format::Text => print(&table::render(&document, self.top, Paper::of_stdout())),
        }
    }
}

fn text_of(door: &Door) -> Result<String, Failure> {
    door.ask("GET", "/tenants", ANSWER_BYTES_MAX).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "; is ottla serve running there? --admin or --bootstrap-server select another broker"
            }
            _ => "",
        };
        Failure::unanswered(format!("{door}: {error}{hint}"))
    })
}

fn document_of(door: &Door) -> Result<Document, String> {
    let text = text_of(door).map_err(|failure| failure.text)?;
    Document::read(&text)
}

/// Two tenants over a minute of two event loops: one with many small requests, one with few.
#[cfg(test)]
pub fn sample() -> Document {
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/fixtures/tenants.json");
    Document::read(&std::fs::read_to_string(PATH).unwrap()).unwrap()
}
