//! The cluster that a command asks, and how it prints what it learns.

use std::path::Path;

use clap::Args;
use ottla_client::admin::Admin;

use super::command_config::CommandConfig;
use super::output::{Failure, Format};

#[derive(Args)]
pub struct Servers {
    /// A Kafka address of the cluster, `host:port`
    #[arg(long, value_name = "SERVERS")]
    pub bootstrap_server: String,

    #[command(flatten)]
    client: CommandConfig,

    /// Output: text for people, or JSON
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

impl Servers {
    pub fn admin(&self) -> Result<Admin, Failure> {
        let config = self.client.read()?;
        Admin::new(&config.set("bootstrap.servers", &self.bootstrap_server)).map_err(Failure::unanswered)
    }

    /// The file of `--command-config`.
    pub fn command_config(&self) -> Option<&Path> {
        self.client.command_config.as_deref()
    }

    /// An error of the cluster, with its address.
    pub fn failure(&self, error: &ottla_client::Error) -> Failure {
        Failure::unanswered(format!("{}: {error}", self.bootstrap_server))
    }
}
