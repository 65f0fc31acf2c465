//! The numbers that a step used: kept as numbers, because most are never shown, and written where
//! they are.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::diagnosis::Words;
use crate::numbers::number;

/// One number, known or not; or words.
#[derive(Clone, Debug)]
pub enum Used {
    Number {
        name: &'static str,
        value: Option<f64>,
        unit: &'static str,
    },
    Words(Words),
}

/// `U = 0.905; L = 12.6 ms; T unknown`.
#[derive(Clone, Debug, Default)]
pub struct UsedNumbers(Vec<Used>);

impl From<Vec<Used>> for UsedNumbers {
    fn from(numbers: Vec<Used>) -> UsedNumbers {
        UsedNumbers(numbers)
    }
}

impl<const COUNT: usize> From<[Used; COUNT]> for UsedNumbers {
    fn from(numbers: [Used; COUNT]) -> UsedNumbers {
        UsedNumbers(numbers.into())
    }
}

impl From<String> for UsedNumbers {
    fn from(text: String) -> UsedNumbers {
        UsedNumbers(vec![Used::Words(text.into())])
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Used::Words(words) => f.write_str(words),
            Used::Number {
                name, value: None, ..
            } => write!(f, "{name} unknown"),
            Used::Number {
                name,
                value: Some(value),
                unit,
            } => {
                let space = if unit.is_empty() { "" } else { " " };
                write!(f, "{name} = {}{space}{unit}", number(*value))
            }
        }
    }
}

impl fmt::Display for UsedNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.0.iter().enumerate() {
            let between = if index > 0 { "; " } else { "" };
            write!(f, "{between}{one}")?;
        }
        Ok(())
    }
}

/// A document holds only the text.
impl PartialEq for UsedNumbers {
    fn eq(&self, other: &UsedNumbers) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Serialize for UsedNumbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UsedNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UsedNumbers, D::Error> {
        String::deserialize(deserializer).map(UsedNumbers::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_keeps_the_words_of_every_number() {
        let numbers = UsedNumbers::from([
            Used::Words("one complete reading".into()),
            Used::Number {
                name: "L",
                value: Some(12.6),
                unit: "ms",
            },
            Used::Number {
                name: "U",
                value: Some(0.905),
                unit: "",
            },
            Used::Number {
                name: "T",
                value: None,
                unit: "ms",
            },
        ]);
        let json = serde_json::to_string(&numbers).unwrap();
        assert_eq!(
            json,
            r#""one complete reading; L = 12.6 ms; U = 0.905; T unknown""#
        );
        assert_eq!(serde_json::from_str::<UsedNumbers>(&json).unwrap(), numbers);
        assert_ne!(numbers, UsedNumbers::default());
    }
}
