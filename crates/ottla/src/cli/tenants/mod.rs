//! `ottla tenants`: who costs the broker what.

mod document;
mod figures;
mod table;
mod watch;

use std::process::ExitCode;

use clap::Args;
use ottla_lab::ask;

use self::document::Document;
use crate::cli::doctor::place::Place;
use crate::cli::doctor::text::Paper;
use crate::cli::doctor::{Failure, Format, print};

/// Ten thousand tenants are about 10 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Show who costs the broker what: time, requests, bytes, and how long others waited
///
/// A tenant is the authenticated user, else the client id, else the address (`ottla.tenant.key`). The rates are of the last minute.
#[derive(Args)]
#[command(name = "tenants")]
pub struct TenantsJob {
    /// A broker, `host:port`, that is asked for its admin address.
    #[arg(long, value_name = "SERVERS", conflicts_with = "admin")]
    bootstrap_server: Option<String>,

    /// A file with Kafka's client settings for --bootstrap-server, for security.
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    command_config: Option<std::path::PathBuf>,

    /// The admin address, `host:port` [default: 127.0.0.1:9644]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    #[arg(long, default_value = "text")]
    format: Format,

    /// How many tenants are shown, the heaviest first; 0 shows all.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,

    /// A live screen, until q is pressed.
    #[arg(long, conflicts_with = "format")]
    watch: bool,

    /// Seconds between two looks of --watch.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, requires = "watch", value_parser = interval)]
    interval: f64,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3_600.0).contains(&seconds) => Ok(seconds),
        _ => Err(String::from("must be seconds between 0.1 and 3600")),
    }
}

impl TenantsJob {
    /// Exit status: 0 shown, 2 no answer.
    pub fn run(self) -> ExitCode {
        match self.show() {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure(text)) => {
                eprintln!("ottla tenants: {text}");
                ExitCode::from(2)
            }
        }
    }

    fn show(self) -> Result<(), Failure> {
        let place = Place {
            bootstrap_server: self.bootstrap_server,
            command_config: self.command_config,
            admin: self.admin,
            collector: None,
        };
        let address = place.address_of_ottla()?;
        if self.watch {
            return watch::run(&address, self.interval);
        }
        let text = text_of(&address)?;
        let document = Document::read(&text).map_err(|problem| Failure(format!("{address}: {problem}")))?;
        match self.format {
            Format::Json => print(&text),
            Format::Text => print(&table::render(&document, self.top, Paper::of_stdout())),
        }
    }
}

fn text_of(address: &str) -> Result<String, Failure> {
    ask::ask(address, "GET", "/tenants", ANSWER_BYTES_MAX).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "; is ottla serve running there? --admin or --bootstrap-server name another"
            }
            _ => "",
        };
        Failure(format!("{address}: {error}{hint}"))
    })
}

fn document_of(address: &str) -> Result<Document, String> {
    let text = text_of(address).map_err(|Failure(problem)| problem)?;
    Document::read(&text)
}
