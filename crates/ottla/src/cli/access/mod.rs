//! `ottla access`: a cluster's ACLs, and which of them decides.

pub(in crate::cli) mod cluster;
mod question;
pub(in crate::cli) mod explanation;
pub(in crate::cli) mod list;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use ottla_broker::access::AclImage;

use super::output::{Failure, Format, json, print};
use super::servers::Servers;
use question::Question;

/// Show the ACLs of a cluster, and explain which of them allows or denies an operation
///
/// Works with Ottla and with Apache Kafka's StandardAuthorizer; it needs DESCRIBE on the cluster.
#[derive(Args)]
pub struct Access {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    List(List),
    Explain(Explain),
}

/// Show all ACLs
///
/// Exit status: 0 shown, 2 no answer or wrong usage.
#[derive(Args)]
struct List {
    #[command(flatten)]
    servers: Servers,

    /// Show only the ACLs of this principal, e.g. User:app
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
}

/// Explain whether an operation is allowed, by which ACL, and what would allow it
///
/// Exit status: 0 allowed, 1 denied, 2 no answer or wrong usage.
#[derive(Args)]
struct Explain {
    #[command(flatten)]
    servers: Servers,

    #[command(flatten)]
    question: Question,
}

impl Access {
    pub fn run(self) -> ExitCode {
        let (name, result) = match self.job {
            Job::List(job) => ("list", job.run()),
            Job::Explain(job) => ("explain", job.run()),
        };
        result.unwrap_or_else(|failure| failure.report(&format!("ottla access {name}")))
    }
}

impl List {
    fn run(self) -> Result<ExitCode, Failure> {
        let mut acls = cluster::acls(&self.servers)?.unwrap_or_else(|| {
            eprintln!("ottla access list: the cluster has no authorizer: everyone may do everything");
            Vec::new()
        });
        acls.retain(|acl| {
            self.principal
                .as_ref()
                .is_none_or(|principal| *acl.principal == **principal)
        });
        acls.sort_by(|one, other| order(one).cmp(&order(other)));
        print(&match self.servers.format {
            Format::Text => list::text(&acls),
            Format::Json => list::json(&acls)?,
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn order(acl: &AclImage) -> ([i8; 4], [&str; 3]) {
    let codes = [
        acl.resource_type,
        acl.pattern_type,
        acl.operation,
        acl.permission_type,
    ];
    (codes, [&acl.resource_name, &acl.principal, &acl.host])
}

impl Explain {
    fn run(self) -> Result<ExitCode, Failure> {
        let asked = self.question.read();
        let authorizer = cluster::authorizer(&self.servers)?;
        let mut explanation = explanation::explain(&asked, &authorizer, &self.servers.bootstrap_server);
        if let Some(file) = self.servers.command_config() {
            explanation.reach_with(file);
        }
        print(&match self.servers.format {
            Format::Text => explanation.text(),
            Format::Json => json(&explanation)?,
        })?;
        Ok(ExitCode::from(u8::from(!explanation.allowed)))
    }
}
