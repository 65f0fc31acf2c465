//! The doctor's arithmetic for whoever wants to ask "what if": formulas with units, and what a change of settings brings.
//!
//! Reading order: the modules below, top to bottom.

pub mod quantity;
pub mod formula;
pub mod predict;

use std::fmt;

/// Version of the JSON of [`formula::Calculation`] and [`predict::Prediction`]; it changes when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// What is wrong with a question, told before anything is worked out: names the thing and, for a misspelt name, the nearest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// `; batch.size may be meant`, or nothing.
fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match ottla_wire::config_keys::nearest(name, known) {
        Some(near) => format!("; {near} may be meant"),
        None => String::new(),
    }
}

/// Cuts `name=value`.
fn assignment(text: &str) -> Result<(&str, &str), Invalid> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim(), value.trim()))
        }
        _ => Err(Invalid(format!("{text:?} is not of the form name=value"))),
    }
}
