//! The settings of one client, with every key checked and defaults filled in; the typed structs are
//! built from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ottla_wire::config_keys::{
    ClientKind, ConfigKey, ConfigValue, Support, ValueType, client_key, keys_of, nearest, parse_value,
};

use super::Config;
use crate::error::{Error, Feature};

pub(super) fn config_error(key: &str, message: impl Into<String>) -> Error {
    Error::Config {
        key: key.into(),
        message: message.into().into(),
    }
}

/// `Invalid value V for configuration K: why`, the text of Kafka's ConfigException.
pub(super) fn invalid(key: &str, shown: &str, why: &str) -> Error {
    config_error(
        key,
        format!("Invalid value {shown} for configuration {key}: {why}"),
    )
}

/// - Errors: those of the table, with Kafka's texts, and an empty word in a list (KIP-1161).
fn parse(key: &ConfigKey, text: &str) -> Result<ConfigValue, Error> {
    let name = key.name;
    let has_empty_word = || !text.trim().is_empty() && text.split(',').any(|word| word.trim().is_empty());
    if key.value_type == ValueType::List && has_empty_word() {
        return Err(config_error(
            name,
            format!("Configuration '{name}' values must not be empty."),
        ));
    }
    parse_value(key, text).map_err(|error| config_error(name, error.to_string()))
}

/// Drops repeated words, as Kafka does with a list; true when there were any.
fn drop_repeated(words: &mut Vec<String>) -> bool {
    let before = words.len();
    let mut seen = BTreeSet::new();
    words.retain(|word| seen.insert(word.clone()));
    words.len() < before
}

/// A hint for the author of the settings about something that is not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The setting.
    pub key: String,
    /// One sentence without a full stop.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(super) struct Settings {
    /// `None`: not set, and without a default.
    values: BTreeMap<&'static str, Option<ConfigValue>>,
    written: BTreeMap<&'static str, String>,
    warnings: Vec<Warning>,
}

impl Settings {
    /// - Errors: the first key of the table whose value is invalid, missing, or refused; in strict
    ///   settings, before these, the first key that this client does not have.
    pub fn new(client: ClientKind, config: &Config) -> Result<Settings, Error> {
        let mut settings = Settings {
            values: BTreeMap::new(),
            written: BTreeMap::new(),
            warnings: unknown(client, config),
        };
        if let Some(first) = settings.warnings.first()
            && config.is_strict
        {
            return Err(config_error(&first.key, first.message.as_str()));
        }
        for key in keys_of(client) {
            let text = config.get(key.name);
            let mut value = text.or(key.default).map(|text| parse(key, text)).transpose()?;
            if let Some(ConfigValue::List(words)) = &mut value
                && drop_repeated(words)
            {
                let name = key.name;
                settings.warn(name, format!("{name} names something twice, which counts once"));
            }
            if value.is_none() && key.is_required && key.is_honoured() {
                let name = key.name;
                let message =
                    format!("Missing required configuration \"{name}\" which has no default value.");
                return Err(config_error(name, message));
            }
            if let Some(text) = text {
                settings.note_written(key, text, value.as_ref())?;
            }
            settings.values.insert(key.name, value);
        }
        Ok(settings)
    }

    /// Refuses or reports what the user wrote, where this client does not do what it says.
    fn note_written(
        &mut self,
        key: &'static ConfigKey,
        text: &str,
        value: Option<&ConfigValue>,
    ) -> Result<(), Error> {
        let name = key.name;
        let is_default = key.default.is_some_and(|default| {
            text.trim().eq_ignore_ascii_case(default) || parse_value(key, default).ok().as_ref() == value
        });
        match key.support {
            Support::Refused(reason) if !is_default => {
                let shown = if key.is_sensitive() {
                    "[hidden]"
                } else {
                    text.trim()
                };
                return Err(invalid(name, shown, reason));
            }
            Support::NoEffect(reason) if !is_default => {
                self.warn(name, format!("{name} has no effect: {reason}"));
            }
            _ => {}
        }
        self.written.insert(name, text.to_owned());
        Ok(())
    }

    pub fn warn(&mut self, key: &str, message: String) {
        self.warnings.push(Warning {
            key: key.to_owned(),
            message,
        });
    }

    /// - Errors: `Config` for `key`, whose value needs a cargo feature that this build lacks.
    pub fn needs(&self, feature: Feature, key: &str, shown: &str) -> Result<(), Error> {
        match feature.is_built() {
            true => Ok(()),
            false => Err(invalid(key, shown, &feature.missing())),
        }
    }

    pub fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }

    /// Whether the user set the key, even to its default.
    pub fn is_written(&self, key: &str) -> bool {
        self.written.contains_key(key)
    }

    fn value(&self, key: &str) -> Option<&ConfigValue> {
        self.values
            .get(key)
            .unwrap_or_else(|| panic!("{key} is a key of this client"))
            .as_ref()
    }

    pub fn boolean(&self, key: &str) -> bool {
        self.value(key)
            .and_then(ConfigValue::as_bool)
            .expect("the table says that it is a boolean with a default")
    }

    pub fn number(&self, key: &str) -> i64 {
        self.value(key)
            .and_then(ConfigValue::as_i64)
            .expect("the table says that it is a number with a default")
    }

    /// For keys that the table keeps from being negative.
    pub fn natural(&self, key: &str) -> u64 {
        u64::try_from(self.number(key)).expect("the table says at least 0")
    }

    pub fn fraction(&self, key: &str) -> f64 {
        self.value(key)
            .and_then(ConfigValue::as_f64)
            .expect("the table says that it is a double with a default")
    }

    pub fn size(&self, key: &str) -> usize {
        usize::try_from(self.natural(key)).unwrap_or(usize::MAX)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.value(key).and_then(ConfigValue::as_str)
    }

    /// Returns `None` also where the text is empty.
    pub fn filled(&self, key: &str) -> Option<&str> {
        self.text(key).filter(|text| !text.is_empty())
    }

    /// Whether there is a value other than an empty text.
    pub fn is_filled(&self, key: &str) -> bool {
        match self.value(key) {
            Some(ConfigValue::List(words)) => !words.is_empty(),
            Some(value) => value.as_str().is_none_or(|text| !text.is_empty()),
            None => false,
        }
    }

    pub fn list(&self, key: &str) -> &[String] {
        self.value(key)
            .and_then(ConfigValue::as_list)
            .expect("the table says that it is a list with a default")
    }
}

/// A warning for every key that this client does not have, with the most similar known key.
fn unknown(client: ClientKind, config: &Config) -> Vec<Warning> {
    config
        .keys()
        .filter(|name| client_key(client, name).is_none())
        .map(|name| {
            let others: Vec<&str> = ClientKind::ALL
                .into_iter()
                .filter(|other| client_key(*other, name).is_some())
                .map(ClientKind::name)
                .collect();
            let message = if !others.is_empty() {
                format!(
                    "{name} has no effect: it is a setting of {}",
                    others.join(" and ")
                )
            } else {
                match nearest(name, keys_of(client).map(|key| key.name)) {
                    Some(near) => format!("{name} is no setting of Kafka; {near} may be meant"),
                    None => format!("{name} is no setting of Kafka"),
                }
            };
            Warning {
                key: name.to_owned(),
                message,
            }
        })
        .collect()
}
