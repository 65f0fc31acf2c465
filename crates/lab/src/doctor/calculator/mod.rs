//! The doctor's arithmetic for "what if" questions: formulas with units, and the effect of a change
//! of settings.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod formula;
pub mod predict;
pub mod quantity;

use std::fmt;

/// Version of the JSON of [`formula::Calculation`] and [`predict::Prediction`]; it changes when a
/// field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// What is wrong with a question, reported before any calculation: names the item and, for a
/// misspelled name, the nearest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// Returns `; batch.size may be meant`, or an empty string.
fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match ottla_wire::config_keys::nearest(name, known) {
        Some(near) => format!("; {near} may be meant"),
        None => String::new(),
    }
}

/// Splits `name=value`.
fn assignment(text: &str) -> Result<(&str, &str), Invalid> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim(), value.trim()))
        }
        _ => Err(Invalid(format!("{text:?} is not of the form name=value"))),
    }
}
