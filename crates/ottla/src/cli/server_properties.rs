//! Kafka's configuration file and `--override`: arguments of commands that need a broker's
//! settings.

use std::path::{Path, PathBuf};

use clap::Args;
use ottla_broker::properties::{Properties, parse, parse_override};

#[derive(Args)]
pub struct ServerProperties {
    /// Kafka's configuration file; without it every key has its default
    #[arg(value_name = "server.properties")]
    file: Option<PathBuf>,

    /// Set one key, overriding the file; may be repeated (as in kafka-server-start.sh)
    #[arg(long = "override", value_name = "key=value", value_parser = parse_pair)]
    overrides: Vec<(String, String)>,
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    parse_override(text).ok_or_else(|| "must be key=value".to_owned())
}

impl ServerProperties {
    pub fn read(&self) -> Result<Properties, String> {
        let mut properties = match &self.file {
            Some(path) => read(path)?,
            None => Properties::new(),
        };
        properties.extend(self.overrides.iter().cloned());
        Ok(properties)
    }
}

fn read(path: &Path) -> Result<Properties, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}
