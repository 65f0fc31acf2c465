//! `ottla transactions`: which transactions are open and whose, and how to end one.

pub(in crate::cli) mod survey;
mod table;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use ottla_client::admin::TopicPartition;

use self::survey::Row;
use super::doctor::now_ms;
use super::output::{Failure, Format, print};
use super::servers::Servers;

/// Show open transactions, what they hold up, and end one
///
/// Consumers with isolation.level=read_committed read no further than the first record of the
/// oldest open transaction of a partition. Works with Ottla and with Apache Kafka, which has had
/// the requests since 3.0 (KIP-664).
#[derive(Args)]
pub struct Transactions {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    List(List),
    Show(Show),
    Abort(Abort),
}

/// Show open transactions, the oldest first
///
/// Exit status: 0 shown, 2 no answer or wrong usage.
#[derive(Args)]
struct List {
    #[command(flatten)]
    servers: Servers,

    /// Show every transactional id, also those without an open transaction
    #[arg(long)]
    all: bool,

    /// Also ask every partition for open transactions that no coordinator knows (hanging ones):
    /// they never time out
    #[arg(long)]
    hanging: bool,
}

/// Show one transactional id: its state, and where its open transaction begins
///
/// Exit status: 0 shown, 1 there is no such id, 2 no answer or wrong usage.
#[derive(Args)]
struct Show {
    #[command(flatten)]
    servers: Servers,

    /// The producer's transactional.id
    #[arg(value_name = "ID")]
    id: String,
}

/// Abort an open transaction: its records will never be read as committed
///
/// By ID, the producer is fenced: its next call fails, as if a new producer with the same id had
/// started. By --topic, --partition and --start-offset a hanging transaction is ended in one
/// partition. Exit status: 0 aborted, 1 there is no such transaction, 2 no answer or wrong usage.
#[derive(Args)]
struct Abort {
    #[command(flatten)]
    servers: Servers,

    /// The producer's transactional.id
    #[arg(
        value_name = "ID",
        required_unless_present = "topic",
        conflicts_with = "topic"
    )]
    id: Option<String>,

    /// Topic of a hanging transaction
    #[arg(long, value_name = "TOPIC", requires_all = ["partition", "start_offset"])]
    topic: Option<String>,

    /// Partition of a hanging transaction
    #[arg(long, value_name = "PARTITION", requires = "topic")]
    partition: Option<i32>,

    /// First offset of a hanging transaction, as `list --hanging` shows it
    #[arg(long, value_name = "OFFSET", requires = "topic")]
    start_offset: Option<i64>,
}

impl Transactions {
    pub fn run(self) -> ExitCode {
        let (name, result) = match self.job {
            Job::List(job) => ("list", job.run()),
            Job::Show(job) => ("show", job.run()),
            Job::Abort(job) => ("abort", job.run()),
        };
        result.unwrap_or_else(|failure| failure.report(&format!("ottla transactions {name}")))
    }
}

impl List {
    fn run(self) -> Result<ExitCode, Failure> {
        let admin = self.servers.admin()?;
        let of_servers = |error| self.servers.failure(&error);
        let mut rows = survey::known(&admin).map_err(of_servers)?;
        if self.hanging {
            let hanging = survey::hanging(&admin, &rows).map_err(of_servers)?;
            rows.extend(hanging);
        }
        if !self.all {
            rows.retain(Row::is_open);
        }
        rows.sort_by_key(|row| (!row.is_open(), row.started_ms, row.transactional_id.clone()));
        print(&match self.servers.format {
            Format::Text => table::text(&rows, now_ms()),
            Format::Json => table::json(&rows)?,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Show {
    fn run(self) -> Result<ExitCode, Failure> {
        let admin = self.servers.admin()?;
        let of_servers = |error| self.servers.failure(&error);
        let Some(mut row) = survey::one(&admin, &self.id).map_err(of_servers)? else {
            return Err(Failure::failed(format!(
                "there is no transactional id {:?}",
                self.id
            )));
        };
        survey::locate(&admin, &mut row).map_err(of_servers)?;
        print(&match self.servers.format {
            Format::Text => table::details(&row, now_ms()),
            Format::Json => table::json(&[row])?,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Abort {
    fn run(self) -> Result<ExitCode, Failure> {
        let admin = self.servers.admin()?;
        let of_servers = |error| self.servers.failure(&error);
        let done = match (&self.id, self.topic, self.partition, self.start_offset) {
            (Some(id), ..) => {
                let found = survey::one(&admin, id).map_err(of_servers)?;
                let open = found.filter(Row::is_open);
                if open.is_none() {
                    return Err(Failure::failed(format!("{id:?} has no open transaction")));
                }
                admin.fence_producer(id).wait().map_err(of_servers)?;
                format!("aborted the transaction of {id:?} and fenced its producer\n")
            }
            (None, Some(topic), Some(partition), Some(start_offset)) => {
                let partition = TopicPartition::new(topic.as_str(), partition);
                let producer = survey::producer_at(&admin, &partition, start_offset).map_err(of_servers)?;
                let producer = producer.ok_or_else(|| {
                    Failure::failed(format!(
                        "no transaction of {partition} begins at offset {start_offset}"
                    ))
                })?;
                let (id, epoch) = (producer.producer_id, producer.producer_epoch);
                let aborted = admin.abort_transaction(partition.clone(), &producer).wait();
                aborted.map_err(of_servers)?;
                format!("aborted the transaction of producer {id}, epoch {epoch}, in {partition}\n")
            }
            _ => unreachable!("the command line demands an id or a place"),
        };
        print(&done)?;
        Ok(ExitCode::SUCCESS)
    }
}
