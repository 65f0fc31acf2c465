//! Cases from files: earlier measurements, or those from elsewhere, as snapshots.
//!
//! Three forms are recognised: a fixture (JSON, `fixture.rs`), what performance tools print with
//! `--print-metrics` (`print_metrics.rs`), and snapshots that the doctor exported (`exported.rs`).
//! A fixture's expected verdict is not read.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod fixture;
pub(super) mod settings;
mod broker;
mod pushes;
mod field;
pub mod print_metrics;
mod look;
mod metric_key;
pub mod exported;

use std::fmt;

use serde_json::Value;

use super::snapshot::Snapshot;

/// Why a text could not be read as a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayError {
    /// Counts from 1.
    pub line: Option<usize>,
    /// The path in the document: `settings.batch.size`.
    pub field: Option<String>,
    pub message: String,
}

impl ReplayError {
    pub(crate) fn new(message: impl Into<String>) -> ReplayError {
        ReplayError {
            message: message.into(),
            ..ReplayError::default()
        }
    }

    pub(crate) fn at(field: impl Into<String>, message: impl Into<String>) -> ReplayError {
        ReplayError {
            field: Some(field.into()),
            ..ReplayError::new(message)
        }
    }

    fn of_json(error: &serde_json::Error) -> ReplayError {
        let text = error.to_string();
        // serde_json repeats the position at the end.
        let message = text.split(" at line ").next().unwrap_or(&text);
        ReplayError {
            line: Some(error.line()).filter(|line| *line > 0),
            ..ReplayError::new(message)
        }
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReplayError {}

/// Reads the clients of a case of any form.
///
/// - Errors: a text of no known form; JSON that is malformed or has values of the wrong type.
pub fn read(text: &str) -> Result<Vec<Snapshot>, ReplayError> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(ReplayError::new("the file is empty"));
    }
    if !text.starts_with(['{', '[']) {
        return print_metrics::read(text);
    }
    match parse(text)? {
        Value::Array(cases) if cases.iter().all(exported::is_snapshot) => exported::read(text),
        Value::Array(cases) => {
            let clients = cases
                .iter()
                .map(fixture::of_value)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(clients.into_iter().flatten().collect())
        }
        case if exported::is_snapshot(&case) || case.get("snapshots").is_some() => exported::read(text),
        case if case.get("clients").is_some() && case.get("version").is_some() => Err(ReplayError::at(
            "clients",
            "these are verdicts; a case is what they were made from: the answer of /doctor/snapshots, or what --export writes",
        )),
        case => fixture::of_value(&case),
    }
}

/// Reads JSON, including Python's notation for numbers that JSON cannot represent.
fn parse(text: &str) -> Result<Value, ReplayError> {
    serde_json::from_str(text).or_else(|error| match without_bare_nan(text) {
        Some(text) => serde_json::from_str(&text).map_err(|error| ReplayError::of_json(&error)),
        None => Err(ReplayError::of_json(&error)),
    })
}

/// Replaces `NaN` and `Infinity` outside of strings by `null`; returns `None` when there are none.
fn without_bare_nan(text: &str) -> Option<String> {
    const WORDS: [&str; 3] = ["NaN", "-Infinity", "Infinity"];
    if !WORDS.iter().any(|word| text.contains(word)) {
        return None;
    }
    let mut changed = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let word = WORDS.iter().find(|word| !in_string && rest.starts_with(**word));
        if let Some(word) = word {
            changed.push_str("null");
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= next == '"' && !is_escaped;
        is_escaped = in_string && next == '\\' && !is_escaped;
        changed.push(next);
        rest = &rest[next.len_utf8()..];
    }
    Some(changed)
}

#[cfg(test)]
mod tests;
