//! `ottla quota`: who uses how much of what can be limited, who is held back, and which quotas would fit.

mod page;
mod show;
mod suggest;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::doctor::place::Place;
use super::doctor::{Failure, print};

/// Show what clients use of their quotas, and suggest quotas from it
///
/// Quotas are set by Kafka's own kafka-configs.sh; `ottla quota suggest` prints its commands.
#[derive(Args)]
pub struct Quota {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Tell what each user and client id uses, its limits, and how often it was held back, or would have been in a dry run
    Show(show::Show),
    /// Print the commands that give each client what it was seen to use, with head room
    Suggest(suggest::Suggest),
}

/// Where the broker is asked.
#[derive(Args)]
struct Broker {
    /// A broker, `host:port`, which is asked for its admin address.
    #[arg(long, value_name = "SERVERS", conflicts_with = "admin")]
    bootstrap_server: Option<String>,

    /// A file with Kafka's client settings for --bootstrap-server, for security.
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    command_config: Option<PathBuf>,

    /// Ottla's admin address, `host:port` [default: 127.0.0.1:9644]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
}

impl Broker {
    fn page(self) -> Result<(String, page::Page), Failure> {
        let place = Place {
            bootstrap_server: self.bootstrap_server,
            command_config: self.command_config,
            admin: self.admin,
            collector: None,
        };
        page::ask(&place.address_of_ottla()?)
    }
}

impl Quota {
    pub fn run(self) -> ExitCode {
        let (name, text) = match self.job {
            Job::Show(job) => ("show", job.run()),
            Job::Suggest(job) => ("suggest", job.run()),
        };
        match text.and_then(|text| print(&text)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure(text)) => {
                eprintln!("ottla quota {name}: {text}");
                ExitCode::from(2)
            }
        }
    }
}
