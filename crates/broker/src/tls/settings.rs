//! The `ssl.*` settings of one listener, as written: its own value (`listener.name.<name>.ssl.…`)
//! before the general one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_core::config::ConfigError;

use crate::properties::Properties;

/// A password or a private key; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Password {
    pub fn new(text: &str) -> Password {
        Password(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// The value of one key.
#[derive(Clone, PartialEq, Eq)]
struct Setting {
    /// The key as written in the file.
    key: String,
    value: String,
    /// Set for this listener alone.
    is_own: bool,
}

/// The settings of one listener, by their names without the listener's prefix.
#[derive(Clone, PartialEq, Eq)]
pub struct SslSettings {
    listener: Arc<str>,
    values: BTreeMap<String, Setting>,
}

impl fmt::Debug for SslSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be passwords and keys.
        f.debug_tuple("SslSettings").field(&self.values.keys()).finish()
    }
}

impl SslSettings {
    pub fn of_listener(properties: &Properties, listener: &Arc<str>) -> SslSettings {
        // KIP-103: the prefix is in lower case, whatever the listener's name is in.
        let prefix = format!("listener.name.{}.", listener.to_lowercase());
        let mut values = BTreeMap::new();
        for is_own in [false, true] {
            for (key, value) in properties {
                let name = match is_own {
                    true => key.strip_prefix(&prefix),
                    false => Some(key.as_str()),
                };
                let Some(name) = name.filter(|name| name.starts_with("ssl.")) else {
                    continue;
                };
                let setting = Setting {
                    key: key.clone(),
                    value: value.trim().to_owned(),
                    is_own,
                };
                values.insert(name.to_owned(), setting);
            }
        }
        SslSettings {
            listener: listener.clone(),
            values,
        }
    }

    pub fn listener(&self) -> &Arc<str> {
        &self.listener
    }

    /// The value of a key; `None` when it is not set, or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(|setting| setting.value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// The value of a key even if it is empty.
    pub fn written(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.value.as_str())
    }

    pub fn password(&self, name: &str) -> Option<Password> {
        self.values.get(name).map(|setting| Password::new(&setting.value))
    }

    /// The value that was set for this listener alone.
    pub fn own_text(&self, name: &str) -> Option<&str> {
        let setting = self.values.get(name).filter(|setting| setting.is_own)?;
        Some(&setting.value)
    }

    /// The words of a list; `default` when it is not set.
    pub fn list<'a>(&'a self, name: &str, default: &'a str) -> impl Iterator<Item = &'a str> {
        let text = self.text(name).unwrap_or(default);
        text.split(',').map(str::trim).filter(|word| !word.is_empty())
    }

    pub fn is_true(&self, name: &str) -> Result<bool, ConfigError> {
        match self.text(name).unwrap_or("false").to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.fault(name, "must be true or false")),
        }
    }

    /// An error that names the key as it was written, and its value.
    pub fn fault(&self, name: &str, problem: impl fmt::Display) -> ConfigError {
        let value = self.text(name).unwrap_or_default().to_owned();
        self.error(name, value, problem)
    }

    /// An error about a value that must not be shown, or that is not there.
    pub fn secret_fault(&self, name: &str, problem: impl fmt::Display) -> ConfigError {
        let value = match self.values.contains_key(name) {
            true => "[hidden]",
            false => "",
        };
        self.error(name, value.to_owned(), problem)
    }

    fn error(&self, name: &str, value: String, problem: impl fmt::Display) -> ConfigError {
        let written = self.values.get(name).map(|setting| setting.key.as_str());
        ConfigError {
            key: written.unwrap_or(name).to_owned(),
            value,
            problem: format!("listener {}: {problem}", self.listener),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lines: &[(&str, &str)]) -> SslSettings {
        let properties = lines
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        SslSettings::of_listener(&properties, &"Outside".into())
    }

    #[test]
    fn the_value_of_a_listener_comes_before_the_general_one() {
        let settings = settings(&[
            ("ssl.keystore.location", "general"),
            ("listener.name.outside.ssl.keystore.location", "own"),
            ("listener.name.other.ssl.keystore.location", "other's"),
            ("ssl.protocol", "TLSv1.3"),
            ("num.partitions", "3"),
        ]);
        assert_eq!(settings.text("ssl.keystore.location"), Some("own"));
        assert_eq!(settings.own_text("ssl.keystore.location"), Some("own"));
        assert_eq!(settings.text("ssl.protocol"), Some("TLSv1.3"));
        assert_eq!(settings.own_text("ssl.protocol"), None);
        assert_eq!(settings.values.len(), 2);
        let fault = settings.fault("ssl.keystore.location", "cannot be read");
        assert_eq!(
            fault.to_string(),
            "listener.name.outside.ssl.keystore.location=own: listener Outside: cannot be read"
        );
    }

    #[test]
    fn passwords_are_shown_neither_in_errors_nor_by_debug() {
        let settings = settings(&[("ssl.keystore.password", "wonderland")]);
        let fault = settings.secret_fault("ssl.keystore.password", "is wrong");
        assert_eq!(
            fault.to_string(),
            "ssl.keystore.password=[hidden]: listener Outside: is wrong"
        );
        let password = settings.password("ssl.keystore.password").unwrap();
        assert_eq!(password.reveal(), "wonderland");
        assert!(!format!("{settings:?} {password:?}").contains("wonderland"));
    }
}
