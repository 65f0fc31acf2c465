//! Values of configuration keys, from the text in which they are given.

use std::fmt;

/// Why a value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    UnknownKey,
    NotANumber,
    NotABoolean,
    OutOfRange { min: i64, max: i64 },
    NotOneOf { allowed: String },
    Other(String),
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueError::UnknownKey => f.write_str("no such key"),
            ValueError::NotANumber => f.write_str("not a number of this type"),
            ValueError::NotABoolean => f.write_str("must be true or false"),
            ValueError::OutOfRange { min, max: i64::MAX } => write!(f, "must be at least {min}"),
            ValueError::OutOfRange { min, max } => write!(f, "must be {min} to {max}"),
            ValueError::NotOneOf { allowed } => write!(f, "must be one of {allowed}"),
            ValueError::Other(problem) => f.write_str(problem),
        }
    }
}

/// An integer within `min..=max`.
pub fn integer(value: &str, min: i64, max: i64) -> Result<i64, ValueError> {
    let number: i64 = value.trim().parse().map_err(|_| ValueError::NotANumber)?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(ValueError::OutOfRange { min, max }) }
}

pub fn boolean(value: &str) -> Result<bool, ValueError> {
    match value.trim() {
        text if text.eq_ignore_ascii_case("true") => Ok(true),
        text if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(ValueError::NotABoolean),
    }
}

/// A number from 0 to 1.
pub fn ratio(value: &str) -> Result<f64, ValueError> {
    let number: f64 = value.trim().parse().map_err(|_| ValueError::NotANumber)?;
    if (0.0..=1.0).contains(&number) { Ok(number) } else { Err(ValueError::OutOfRange { min: 0, max: 1 }) }
}

pub fn choice<'a>(value: &'a str, allowed: &[&str]) -> Result<&'a str, ValueError> {
    let value = value.trim();
    if allowed.contains(&value) { Ok(value) } else { Err(ValueError::NotOneOf { allowed: allowed.join(", ") }) }
}

/// Comma-separated words, each one of `allowed`.
pub fn list<'a>(value: &'a str, allowed: &[&str]) -> Result<Vec<&'a str>, ValueError> {
    words(value).map(|word| choice(word, allowed)).collect()
}

/// Comma-separated words without the blanks around them.
pub fn words(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|word| !word.is_empty())
}
