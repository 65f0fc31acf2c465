//! Lenient JSON reading: anything may be missing, but what is present must have the right type.

use serde_json::{Map, Value};

use super::ReplayError;

/// The object under that name; `None` when it is missing or null.
pub fn object<'a>(parent: &'a Value, name: &str) -> Result<Option<&'a Map<String, Value>>, ReplayError> {
    match parent.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(other) => Err(ReplayError::at(
            name,
            format!("an object is expected, not {}", kind(other)),
        )),
    }
}

/// Reads a number, as JSON or as text; `None` for null and for the text `NaN`.
pub fn number(value: &Value, field: &str) -> Result<Option<f64>, ReplayError> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64()),
        Value::Bool(flag) => Ok(Some(f64::from(u8::from(*flag)))),
        Value::String(text) => match text.trim() {
            "" | "null" | "none" | "-" => Ok(None),
            "true" => Ok(Some(1.0)),
            "false" => Ok(Some(0.0)),
            // Rust also parses NaN and infinity; they count as absent here.
            text => match text.parse::<f64>() {
                Ok(number) => Ok(Some(number).filter(|number| number.is_finite())),
                Err(_) => Err(ReplayError::at(
                    field,
                    format!("a number is expected, not {text:?}"),
                )),
            },
        },
        other => Err(ReplayError::at(
            field,
            format!("a number is expected, not {}", kind(other)),
        )),
    }
}

/// The number under that name in an object whose own path is `path`.
pub fn number_in(object: &Map<String, Value>, path: &str, name: &str) -> Result<Option<f64>, ReplayError> {
    match object.get(name) {
        Some(value) => number(value, &format!("{path}.{name}")),
        None => Ok(None),
    }
}

/// The text under that name; `None` for other types.
pub fn text<'a>(parent: &'a Value, name: &str) -> Option<&'a str> {
    parent.get(name)?.as_str().filter(|text| !text.is_empty())
}

pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
