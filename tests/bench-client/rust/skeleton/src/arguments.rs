//! `produce|consume key=value...`, the same for contenders in all languages.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The arguments of the command line.
#[derive(Debug)]
pub struct Arguments {
    pub mode: String,
    values: BTreeMap<String, String>,
}

impl Arguments {
    /// Panics on a word that is not `key=value`: only the task runner calls this.
    pub fn of_process() -> Arguments {
        let mut words = std::env::args().skip(1);
        let mode = words.next().expect("usage: produce|consume key=value...");
        let values = words
            .map(|word| {
                let (key, value) = word
                    .split_once('=')
                    .unwrap_or_else(|| panic!("{word} is not key=value"));
                (key.to_string(), value.to_string())
            })
            .collect();
        Arguments { mode, values }
    }

    pub fn text(&self, key: &str) -> &str {
        self.values
            .get(key)
            .unwrap_or_else(|| panic!("{key}= is missing"))
    }

    pub fn optional(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    pub fn number<T: FromStr>(&self, key: &str) -> T {
        let text = self.text(key);
        text.parse()
            .unwrap_or_else(|_| panic!("{key}={text} is not a number"))
    }

    pub fn number_or<T: FromStr>(&self, key: &str, default: T) -> T {
        if self.values.contains_key(key) {
            self.number(key)
        } else {
            default
        }
    }
}
