//! Why a scenario could not be run at all.

use std::fmt;

/// Reported before anything was measured; a later failure makes a report INVALID instead.
#[derive(Debug)]
pub enum BenchError {
    /// The scenario contradicts itself or asks for the impossible.
    Scenario(String),
    /// The broker cannot be reached, or refuses what the scenario needs.
    Broker(String),
    /// A file or the machine failed.
    Io { what: String, source: std::io::Error },
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Scenario(text) | BenchError::Broker(text) => f.write_str(text),
            BenchError::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<ottla_client::Error> for BenchError {
    fn from(error: ottla_client::Error) -> BenchError {
        BenchError::Broker(error.to_string())
    }
}

impl From<crate::scenario::error::ScenarioError> for BenchError {
    fn from(error: crate::scenario::error::ScenarioError) -> BenchError {
        BenchError::Scenario(error.to_string())
    }
}
