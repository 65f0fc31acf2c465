//! Parses text to a checked value, with Kafka's own error texts.

use std::collections::BTreeSet;

use ottla_wire::config_keys::ValueType;

use super::consumer::offset_reset;
use super::key::{ClientKey, Rule};
use crate::error::Error;

/// A value that its key allows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Unset,
    Boolean(bool),
    Number(i64),
    Double(f64),
    /// Strings, passwords and class names.
    Text(String),
    List(Vec<String>),
}

pub(super) fn config_error(key: &str, message: impl Into<String>) -> Error {
    Error::Config {
        key: key.into(),
        message: message.into().into(),
    }
}

/// `Invalid value V for configuration K: why`, the text of Kafka's ConfigException; secrets are not
/// shown.
pub(super) fn invalid(key: &str, shown: &str, why: &str) -> Error {
    config_error(
        key,
        format!("Invalid value {shown} for configuration {key}: {why}"),
    )
}

/// Parses `text` as a value of `key`.
///
/// - Shape: as in Kafka: surrounding blanks are ignored, `true` and `false` in any case, an empty
///   text is an empty list.
pub(super) fn parse(key: &ClientKey, text: &str) -> Result<Value, Error> {
    let trimmed = text.trim();
    match key.value_type {
        ValueType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            _ => Err(invalid(
                key.name,
                text,
                "Expected value to be either true or false",
            )),
        },
        ValueType::Int | ValueType::Short | ValueType::Long => parse_number(key, text),
        ValueType::Double => {
            let number: f64 = trimmed.parse().map_err(|_| not_a_number(key, text))?;
            if let Rule::Within(minimum, maximum) = key.rule {
                check_bounds(key, number, minimum, maximum, &format!("{number:?}"))?;
            }
            Ok(Value::Double(number))
        }
        ValueType::String | ValueType::Class | ValueType::Password => {
            check_word(key, trimmed)?;
            Ok(Value::Text(trimmed.to_owned()))
        }
        ValueType::List => parse_list(key, trimmed),
    }
}

fn not_a_number(key: &ClientKey, text: &str) -> Error {
    let expected = key.value_type.name().to_ascii_uppercase();
    invalid(key.name, text, &format!("Not a number of type {expected}"))
}

fn parse_number(key: &ClientKey, text: &str) -> Result<Value, Error> {
    let number: i64 = text.trim().parse().map_err(|_| not_a_number(key, text))?;
    let fits = match key.value_type {
        ValueType::Short => i16::try_from(number).is_ok(),
        ValueType::Int => i32::try_from(number).is_ok(),
        _ => true,
    };
    if !fits {
        return Err(not_a_number(key, text));
    }
    match key.rule {
        Rule::AtLeast(minimum) => check_bounds(key, number, minimum, i64::MAX, &number.to_string())?,
        Rule::Between(minimum, maximum) => check_bounds(key, number, minimum, maximum, &number.to_string())?,
        Rule::BetweenOrMinusOne(minimum, maximum)
            if number != -1 && !(minimum..=maximum).contains(&number) =>
        {
            let why = format!("Value must be between {minimum} and {maximum} or equal to -1");
            return Err(invalid(key.name, &number.to_string(), &why));
        }
        _ => {}
    }
    Ok(Value::Number(number))
}

fn check_bounds<N>(key: &ClientKey, number: N, minimum: N, maximum: N, shown: &str) -> Result<(), Error>
where
    N: PartialOrd + std::fmt::Debug,
{
    if number < minimum {
        return Err(invalid(
            key.name,
            shown,
            &format!("Value must be at least {minimum:?}"),
        ));
    }
    if number > maximum {
        return Err(invalid(
            key.name,
            shown,
            &format!("Value must be no more than {maximum:?}"),
        ));
    }
    Ok(())
}

fn check_word(key: &ClientKey, word: &str) -> Result<(), Error> {
    match key.rule {
        Rule::OneOf(words) if !words.contains(&word) => {
            let why = format!("String must be one of: {}", words.join(", "));
            Err(invalid(key.name, word, &why))
        }
        Rule::OneOfIgnoringCase(words) if !words.iter().any(|known| known.eq_ignore_ascii_case(word)) => {
            let why = format!("String must be one of (case insensitive): {}", words.join(", "));
            Err(invalid(key.name, word, &why))
        }
        Rule::Either(one, other) if ![one, other].iter().any(|known| known.eq_ignore_ascii_case(word)) => {
            let name = key.name;
            let why = format!(
                "Invalid value `{word}` for configuration {name}. The value must either be '{one}' or '{other}'."
            );
            Err(invalid(name, word, &why))
        }
        Rule::OffsetReset if offset_reset(word).is_none() => {
            let name = key.name;
            let why = format!(
                "Invalid value `{word}` for configuration {name}. The value must be either 'earliest', 'latest', 'none' or of \
                 the format 'by_duration:<PnDTnHnMn.nS.>'."
            );
            Err(invalid(name, word, &why))
        }
        Rule::NotEmpty if word.is_empty() => Err(invalid(key.name, word, "String must be non-empty")),
        _ => Ok(()),
    }
}

fn parse_list(key: &ClientKey, trimmed: &str) -> Result<Value, Error> {
    let name = key.name;
    let words: Vec<String> = if trimmed.is_empty() {
        Vec::new()
    } else {
        trimmed.split(',').map(|word| word.trim().to_owned()).collect()
    };
    if words.is_empty() && key.rule == Rule::NotEmptyList {
        let message =
            format!("Configuration '{name}' must not be empty. Valid values include: any non-empty value");
        return Err(config_error(name, message));
    }
    if words.iter().any(String::is_empty) {
        return Err(config_error(
            name,
            format!("Configuration '{name}' values must not be empty."),
        ));
    }
    Ok(Value::List(words))
}

/// Drops repeated words, as Kafka does with a list; true when there were any.
pub(super) fn drop_repeated(words: &mut Vec<String>) -> bool {
    let before = words.len();
    let mut seen = BTreeSet::new();
    words.retain(|word| seen.insert(word.clone()));
    words.len() < before
}
