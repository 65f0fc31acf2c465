//! `ottla quota`: each client's use of its quotas, its throttling, and suggested quotas.

mod show;
mod suggest;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use ottla_lab::tenants::quota::QuotaPage;

use super::admin_address::AdminAddress;
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

fn page(broker: &AdminAddress) -> Result<(String, QuotaPage), Failure> {
    let door = broker.door()?;
    let text = door.ask("GET", "/quotas", ANSWER_BYTES_MAX).map_err(|error| {
        Failure::unanswered(format!(
            "{door}: {error}; --admin or --bootstrap-server select another broker"
        ))
    })?;
    let page = QuotaPage::read(&text).map_err(|problem| Failure::unanswered(format!("{door}: {problem}")))?;
    Ok((text, page))
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
