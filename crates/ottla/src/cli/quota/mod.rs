//! `ottla quota`: each client's use of its quotas, its throttling, and suggested quotas.

mod show;
mod suggest;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ottla_lab::ask;
use ottla_lab::tenants::quota::QuotaPage;

use super::doctor::place::Place;
use super::output::{Failure, print};

/// The limit of an answer: ten thousand clients are about 15 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Show each client's use of its quotas, and suggest quotas from it
///
/// Quotas are set with Kafka's kafka-configs.sh; `ottla quota suggest` prints its commands.
/// Exit status: 0 shown, 2 no answer or wrong usage.
#[derive(Args)]
pub struct Quota {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Show rates, limits and throttling of each user and client id (in a dry run: throttling that
    /// would have happened)
    Show(show::Show),
    /// Print kafka-configs.sh commands that set each client's quotas to its observed use plus head
    /// room
    Suggest(suggest::Suggest),
}

/// The address of the broker's admin interface.
#[derive(Args)]
struct Broker {
    /// A Kafka address of the broker, `host:port`; the broker is asked for its admin address
    #[arg(long, value_name = "SERVERS", conflicts_with = "admin")]
    bootstrap_server: Option<String>,

    /// File with client settings for --bootstrap-server, e.g. for TLS and SASL (as in Kafka's
    /// tools)
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    command_config: Option<PathBuf>,

    /// Ottla's admin address (ottla.admin.listener), `host:port` [default: 127.0.0.1:9644]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
}

impl Broker {
    fn page(self) -> Result<(String, QuotaPage), Failure> {
        let place = Place {
            bootstrap_server: self.bootstrap_server,
            command_config: self.command_config,
            admin: self.admin,
            collector: None,
        };
        let address = place.address_of_ottla()?;
        let text = ask::ask(&address, "GET", "/quotas", ANSWER_BYTES_MAX).map_err(|error| {
            Failure::unanswered(format!(
                "{address}: {error}; --admin or --bootstrap-server select another broker"
            ))
        })?;
        let page =
            QuotaPage::read(&text).map_err(|problem| Failure::unanswered(format!("{address}: {problem}")))?;
        Ok((text, page))
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
            Err(failure) => failure.report(&format!("ottla quota {name}")),
        }
    }
}
