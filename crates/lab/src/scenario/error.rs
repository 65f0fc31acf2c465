//! What is wrong with a scenario, and where.

use std::fmt;

/// Reported before anything is run: `linger.yaml:12: producers.load.rat: unknown key; rate may be
/// meant`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file, or the name of a scenario that comes with Ottla.
    pub origin: String,
    /// Counts from 1.
    pub line: Option<u64>,
    /// The path in the document: `producers.load.rate`.
    pub key: Option<String>,
    pub message: String,
}

impl ScenarioError {
    /// Creates an error about the document as a whole.
    pub fn new(origin: &str, message: impl Into<String>) -> ScenarioError {
        ScenarioError {
            origin: origin.to_owned(),
            line: None,
            key: None,
            message: message.into(),
        }
    }

    pub fn at(mut self, key: impl Into<String>) -> ScenarioError {
        self.key = Some(key.into());
        self
    }

    pub fn on_line(mut self, line: Option<u64>) -> ScenarioError {
        self.line = line;
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ScenarioError {}

/// Returns `; rate may be meant`, or an empty string.
pub(crate) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match ottla_wire::config_keys::nearest(name, known) {
        Some(near) => format!("; {near} may be meant"),
        None => String::new(),
    }
}
