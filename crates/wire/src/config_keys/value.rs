//! Parses a key's text to a typed value; errors name the allowed range.

use std::fmt;

use super::key::{Allowed, ConfigKey, ValueType};

/// A valid value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    Boolean(bool),
    /// `Int` and `Short` keys.
    Int(i32),
    Long(i64),
    Double(f64),
    /// `String`, `Class` and `Password` keys.
    String(String),
    List(Vec<String>),
}

impl ConfigValue {
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            ConfigValue::Boolean(value) => Some(*value),
            _ => None,
        }
    }

    /// Any whole number.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            ConfigValue::Int(value) => Some((*value).into()),
            ConfigValue::Long(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            ConfigValue::Double(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            ConfigValue::String(value) => Some(value),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[String]> {
        match self {
            ConfigValue::List(words) => Some(words),
            _ => None,
        }
    }
}

/// Why a value is refused. `value` is the text as given; empty for a secret.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    WrongType {
        key: &'static str,
        value: String,
        expected: ValueType,
    },
    OutOfRange {
        key: &'static str,
        value: String,
        allowed: Allowed,
    },
    NotAllowed {
        key: &'static str,
        value: String,
        words: &'static [&'static str],
    },
    Duplicate {
        key: &'static str,
        word: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::WrongType { key, value, expected } => {
                write!(f, "{key}: '{value}' is not of type {}", expected.name())
            }
            ConfigError::OutOfRange { key, value, allowed } => {
                write!(f, "{key}: '{value}' is out of range, allowed is {allowed}")
            }
            ConfigError::NotAllowed { key, value, words } => {
                write!(f, "{key}: '{value}' is not one of {}", words.join(", "))
            }
            ConfigError::Duplicate { key, word } => write!(f, "{key}: '{word}' occurs twice"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Any => f.write_str("any value"),
            Allowed::AtLeast(minimum) => write!(f, "at least {minimum}"),
            Allowed::Between(minimum, maximum) => write!(f, "{minimum} to {maximum}"),
            Allowed::BetweenOrMinusOne(minimum, maximum) => write!(f, "{minimum} to {maximum}, or -1"),
            Allowed::Ratio => f.write_str("0 to 1"),
            Allowed::OneOf(words) => f.write_str(&words.join(", ")),
        }
    }
}

/// Parses `text` as a value of `key`.
///
/// - Shape: as Kafka does: surrounding blanks are ignored, `true` and `false` in any case, words of
///   a
///   list separated by commas.
/// - Errors: name what is allowed.
pub fn parse_value(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let text = text.trim();
    let shown = || {
        if key.is_sensitive() {
            String::new()
        } else {
            text.to_owned()
        }
    };
    let wrong_type = || ConfigError::WrongType {
        key: key.name,
        value: shown(),
        expected: key.value_type,
    };
    match key.value_type {
        ValueType::Boolean => {
            let is = |word: &str| text.eq_ignore_ascii_case(word);
            if is("true") || is("false") {
                Ok(ConfigValue::Boolean(is("true")))
            } else {
                Err(wrong_type())
            }
        }
        ValueType::Int | ValueType::Short | ValueType::Long => {
            let number: i64 = text.parse().map_err(|_| wrong_type())?;
            if !fits(number, key.value_type) {
                return Err(wrong_type());
            }
            if !is_in_range(number, &key.allowed) {
                return Err(ConfigError::OutOfRange {
                    key: key.name,
                    value: shown(),
                    allowed: key.allowed,
                });
            }
            Ok(match key.value_type {
                ValueType::Long => ConfigValue::Long(number),
                _ => ConfigValue::Int(i32::try_from(number).expect("checked to fit")),
            })
        }
        ValueType::Double => {
            let number: f64 = text.parse().map_err(|_| wrong_type())?;
            if !number.is_finite() {
                return Err(wrong_type());
            }
            if key.allowed == Allowed::Ratio && !(0.0..=1.0).contains(&number) {
                return Err(ConfigError::OutOfRange {
                    key: key.name,
                    value: shown(),
                    allowed: key.allowed,
                });
            }
            Ok(ConfigValue::Double(number))
        }
        ValueType::String | ValueType::Class | ValueType::Password => {
            check_word(key, text)?;
            Ok(ConfigValue::String(text.to_owned()))
        }
        ValueType::List => parse_list(key, text),
    }
}

fn parse_list(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        check_word(key, word)?;
        if matches!(key.allowed, Allowed::OneOf(_)) && words.iter().any(|known| known == word) {
            return Err(ConfigError::Duplicate {
                key: key.name,
                word: word.to_owned(),
            });
        }
        words.push(word.to_owned());
    }
    Ok(ConfigValue::List(words))
}

fn check_word(key: &ConfigKey, word: &str) -> Result<(), ConfigError> {
    match key.allowed {
        Allowed::OneOf(words) if !words.contains(&word) => Err(ConfigError::NotAllowed {
            key: key.name,
            value: word.to_owned(),
            words,
        }),
        _ => Ok(()),
    }
}

fn fits(number: i64, value_type: ValueType) -> bool {
    match value_type {
        ValueType::Short => i16::try_from(number).is_ok(),
        ValueType::Int => i32::try_from(number).is_ok(),
        _ => true,
    }
}

fn is_in_range(number: i64, allowed: &Allowed) -> bool {
    match *allowed {
        Allowed::AtLeast(minimum) => number >= minimum,
        Allowed::Between(minimum, maximum) => (minimum..=maximum).contains(&number),
        Allowed::BetweenOrMinusOne(minimum, maximum) => number == -1 || (minimum..=maximum).contains(&number),
        Allowed::Any | Allowed::Ratio | Allowed::OneOf(_) => true,
    }
}
