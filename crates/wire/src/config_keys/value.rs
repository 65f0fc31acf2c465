//! Parses a key's text to a typed value, with the texts of Kafka's errors.

use std::fmt;

use super::duration;
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

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigError {
    pub key: &'static str,
    /// The value as given, `[hidden]` for a secret; `None` where Kafka's text does not repeat it.
    pub shown: Option<String>,
    /// What is wrong, in Kafka's words.
    pub why: String,
}

impl fmt::Display for ConfigError {
    /// The text of Kafka's ConfigException.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { key, shown, why } = self;
        match shown {
            Some(shown) => write!(f, "Invalid value {shown} for configuration {key}: {why}"),
            None => f.write_str(why),
        }
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Any | Allowed::OffsetReset => f.write_str("any value"),
            Allowed::AtLeast(minimum) => write!(f, "at least {minimum}"),
            Allowed::Between(minimum, maximum) => write!(f, "{minimum} to {maximum}"),
            Allowed::BetweenOrMinusOne(minimum, maximum) => write!(f, "{minimum} to {maximum}, or -1"),
            Allowed::Within(minimum, maximum) => write!(f, "{minimum} to {maximum}"),
            Allowed::OneOf(words) => f.write_str(&words.join(", ")),
            Allowed::OneOfIgnoringCase(words) => write!(f, "{}, in any case", words.join(", ")),
            Allowed::Either(one, other) => write!(f, "{one}, {other}"),
            Allowed::NotEmpty | Allowed::NotEmptyList => f.write_str("not empty"),
        }
    }
}

/// Parses `text` as a value of `key`.
///
/// - Shape: as Kafka does: surrounding blanks are ignored, `true` and `false` in any case, words of
///   a list separated by commas. Empty words of a list are dropped: values stored by Kafka before
///   4.3, which refuses them (KIP-1161), must keep their meaning.
/// - Errors: name the key, the value and what is allowed.
pub fn parse_value(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let trimmed = text.trim();
    match key.value_type {
        ValueType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" => Ok(ConfigValue::Boolean(true)),
            "false" => Ok(ConfigValue::Boolean(false)),
            _ => Err(invalid(key, text, "Expected value to be either true or false")),
        },
        ValueType::Int | ValueType::Short | ValueType::Long => parse_number(key, text),
        ValueType::Double => {
            let number = trimmed.parse().ok().filter(|number: &f64| number.is_finite());
            let number = number.ok_or_else(|| not_a_number(key, text))?;
            if let Allowed::Within(minimum, maximum) = key.allowed {
                check_bounds(key, number, minimum, maximum, &format!("{number:?}"))?;
            }
            Ok(ConfigValue::Double(number))
        }
        ValueType::String | ValueType::Class | ValueType::Password => {
            check_word(key, trimmed)?;
            Ok(ConfigValue::String(trimmed.to_owned()))
        }
        ValueType::List => parse_list(key, trimmed),
    }
}

fn invalid(key: &ConfigKey, value: &str, why: &str) -> ConfigError {
    let shown = if key.is_sensitive() { "[hidden]" } else { value };
    ConfigError {
        key: key.name,
        shown: Some(shown.to_owned()),
        why: why.to_owned(),
    }
}

fn not_a_number(key: &ConfigKey, text: &str) -> ConfigError {
    let expected = key.value_type.name().to_ascii_uppercase();
    invalid(key, text, &format!("Not a number of type {expected}"))
}

fn parse_number(key: &ConfigKey, text: &str) -> Result<ConfigValue, ConfigError> {
    let number: i64 = text.trim().parse().map_err(|_| not_a_number(key, text))?;
    let value = match key.value_type {
        ValueType::Short => i16::try_from(number)
            .ok()
            .map(|number| ConfigValue::Int(number.into())),
        ValueType::Int => i32::try_from(number).ok().map(ConfigValue::Int),
        _ => Some(ConfigValue::Long(number)),
    };
    let value = value.ok_or_else(|| not_a_number(key, text))?;
    let shown = number.to_string();
    match key.allowed {
        Allowed::AtLeast(minimum) => check_bounds(key, number, minimum, i64::MAX, &shown)?,
        Allowed::Between(minimum, maximum) => check_bounds(key, number, minimum, maximum, &shown)?,
        Allowed::BetweenOrMinusOne(minimum, maximum)
            if number != -1 && !(minimum..=maximum).contains(&number) =>
        {
            let why = format!("Value must be between {minimum} and {maximum} or equal to -1");
            return Err(invalid(key, &shown, &why));
        }
        _ => {}
    }
    Ok(value)
}

fn check_bounds<N>(key: &ConfigKey, number: N, minimum: N, maximum: N, shown: &str) -> Result<(), ConfigError>
where
    N: PartialOrd + fmt::Debug,
{
    if number < minimum {
        return Err(invalid(
            key,
            shown,
            &format!("Value must be at least {minimum:?}"),
        ));
    }
    if number > maximum {
        let why = format!("Value must be no more than {maximum:?}");
        return Err(invalid(key, shown, &why));
    }
    Ok(())
}

fn check_word(key: &ConfigKey, word: &str) -> Result<(), ConfigError> {
    let name = key.name;
    let is_one_of = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    let why = match key.allowed {
        Allowed::OneOf(words) if !words.contains(&word) => {
            format!("String must be one of: {}", words.join(", "))
        }
        Allowed::OneOfIgnoringCase(words) if !is_one_of(words) => {
            format!("String must be one of (case insensitive): {}", words.join(", "))
        }
        Allowed::Either(one, other) if !is_one_of(&[one, other]) => format!(
            "Invalid value `{word}` for configuration {name}. The value must either be '{one}' or '{other}'."
        ),
        Allowed::OffsetReset if !is_offset_reset(word) => format!(
            "Invalid value `{word}` for configuration {name}. The value must be either 'earliest', 'latest', \
             'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        ),
        Allowed::NotEmpty if word.is_empty() => "String must be non-empty".to_owned(),
        _ => return Ok(()),
    };
    Err(invalid(key, word, &why))
}

fn is_offset_reset(word: &str) -> bool {
    let duration = || duration::parse_ms(word.strip_prefix("by_duration:")?);
    ["earliest", "latest", "none"].contains(&word) || duration().is_some()
}

fn parse_list(key: &ConfigKey, trimmed: &str) -> Result<ConfigValue, ConfigError> {
    let mut words: Vec<String> = Vec::new();
    for word in trimmed.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        check_word(key, word)?;
        if matches!(key.allowed, Allowed::OneOf(_)) && words.iter().any(|known| known == word) {
            return Err(invalid(key, trimmed, &format!("'{word}' occurs twice")));
        }
        words.push(word.to_owned());
    }
    if words.is_empty() && key.allowed == Allowed::NotEmptyList {
        let name = key.name;
        return Err(ConfigError {
            key: name,
            shown: None,
            why: format!(
                "Configuration '{name}' must not be empty. Valid values include: any non-empty value"
            ),
        });
    }
    Ok(ConfigValue::List(words))
}
