//! `--command-config FILE`: the settings with which a command reaches a secured cluster.

use std::path::PathBuf;

use clap::Args;
use ottla_client::config::Config;

use super::output::Failure;

#[derive(Args, Clone, Debug, Default)]
pub struct CommandConfig {
    /// File with client settings for --bootstrap-server, e.g. for TLS and SASL (as in Kafka's
    /// tools)
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    pub command_config: Option<PathBuf>,
}

impl CommandConfig {
    /// Returns the settings of the file; none without one.
    ///
    /// - Errors: the file cannot be read.
    pub fn read(&self) -> Result<Config, Failure> {
        match &self.command_config {
            Some(path) => Config::from_file(path).map_err(Failure::usage),
            None => Ok(Config::new()),
        }
    }
}
