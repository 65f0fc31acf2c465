//! The settings of one client, with every key checked and defaults filled in; the typed structs are
//! built from it.

use std::collections::BTreeMap;
use std::fmt;

use ottla_wire::config_keys::nearest;

use super::Config;
use super::key::{ClientKind, Default, Support};
use super::keys;
use super::value::{Value, config_error, drop_repeated, invalid, parse};
use crate::error::{Error, Feature};

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
    values: BTreeMap<&'static str, Value>,
    written: BTreeMap<&'static str, String>,
    warnings: Vec<Warning>,
}

impl Settings {
    /// - Errors: the first key of the table whose value is invalid, missing, or refused.
    pub fn new(client: ClientKind, config: &Config) -> Result<Settings, Error> {
        let mut settings = Settings {
            values: BTreeMap::new(),
            written: BTreeMap::new(),
            warnings: unknown(client, config),
        };
        for key in keys::of(client) {
            let text = config.get(key.name);
            let mut value = match (text, key.default) {
                (Some(text), _) => parse(key, text)?,
                (None, Default::Text(text)) => parse(key, text)?,
                (None, Default::Required) if key.support == Support::Honoured => {
                    let name = key.name;
                    let message =
                        format!("Missing required configuration \"{name}\" which has no default value.");
                    return Err(config_error(name, message));
                }
                (None, Default::Required | Default::Unset) => Value::Unset,
            };
            if let Value::List(words) = &mut value
                && drop_repeated(words)
            {
                settings.warn(
                    key.name,
                    format!("{} names something twice, which counts once", key.name),
                );
            }
            if let Some(text) = text {
                let is_default = matches!(key.default, Default::Text(default) if parse(key, default)? == value)
                    || matches!((key.default, &value), (Default::Text(default), Value::Text(text)) if text.eq_ignore_ascii_case(default));
                match key.support {
                    Support::Refused(reason) if !is_default => {
                        let shown = if key.is_secret() { "[hidden]" } else { text.trim() };
                        return Err(invalid(key.name, shown, reason));
                    }
                    Support::NoEffect(reason) if !is_default => {
                        settings.warn(key.name, format!("{} has no effect: {reason}", key.name));
                    }
                    _ => {}
                }
                settings.written.insert(key.name, text.to_owned());
            }
            settings.values.insert(key.name, value);
        }
        Ok(settings)
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

    fn value(&self, key: &str) -> &Value {
        self.values
            .get(key)
            .unwrap_or_else(|| panic!("{key} is a key of this client"))
    }

    pub fn boolean(&self, key: &str) -> bool {
        match self.value(key) {
            Value::Boolean(value) => *value,
            other => panic!("{key} is a boolean, not {other:?}"),
        }
    }

    pub fn number(&self, key: &str) -> i64 {
        match self.value(key) {
            Value::Number(value) => *value,
            other => panic!("{key} is a number, not {other:?}"),
        }
    }

    /// For keys that the table keeps from being negative.
    pub fn natural(&self, key: &str) -> u64 {
        u64::try_from(self.number(key)).expect("the table says at least 0")
    }

    pub fn size(&self, key: &str) -> usize {
        usize::try_from(self.natural(key)).unwrap_or(usize::MAX)
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Value::Text(value) => Some(value),
            Value::Unset => None,
            other => panic!("{key} is a text, not {other:?}"),
        }
    }

    /// Returns `None` also where the text is empty.
    pub fn filled(&self, key: &str) -> Option<&str> {
        self.text(key).filter(|text| !text.is_empty())
    }

    pub fn list(&self, key: &str) -> &[String] {
        match self.value(key) {
            Value::List(words) => words,
            other => panic!("{key} is a list, not {other:?}"),
        }
    }
}

/// A warning for every key that this client does not have, with the most similar known key.
fn unknown(client: ClientKind, config: &Config) -> Vec<Warning> {
    config
        .keys()
        .filter(|name| keys::find(client, name).is_none())
        .map(|name| {
            let others: Vec<&str> = ClientKind::ALL
                .into_iter()
                .filter(|other| keys::find(*other, name).is_some())
                .map(ClientKind::name)
                .collect();
            let message = if !others.is_empty() {
                format!(
                    "{name} has no effect: it is a setting of {}",
                    others.join(" and ")
                )
            } else {
                match nearest(name, keys::of(client).map(|key| key.name)) {
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
