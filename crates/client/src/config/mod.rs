//! Kafka's client settings: one table of keys, and the typed structs built from it once.
//!
//! Names, types, defaults, ranges and error texts are those of Apache Kafka 4.3's Java client.

mod settings;
mod bootstrap;
mod jaas;
mod security;
mod oauth;
mod client;
mod producer;
mod consumer;
mod admin;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;

use ottla_wire::config_keys::client_keys;
use ottla_wire::properties;

use crate::error::Error;

pub use self::admin::AdminConfig;
pub use self::client::ClientConfig;
pub use self::consumer::{AssignorKind, ConsumerConfig, GroupProtocol, OffsetReset};
pub use self::oauth::{OauthSettings, TokenRefresh, TokenServer, TokenSource};
pub use self::producer::{Acks, PartitionerKind, ProducerConfig};
pub use self::security::{
    Password, SaslMechanism, SaslSettings, Security, StoreSource, TlsIdentity, TlsSettings, TlsVersions,
};
pub use self::settings::Warning;
pub use crate::network::io::Address;
pub use ottla_wire::config_keys::ClientKind;
pub use ottla_wire::records::compression::{Codec, Compression};

/// Settings as the user wrote them: Kafka's keys, with values as text.
///
/// ```
/// let config = ottla_client::config::Config::new()
///     .set("bootstrap.servers", "localhost:9092")
///     .set("linger.ms", "10");
/// ```
#[derive(Clone, Default)]
pub struct Config {
    entries: Vec<(String, String)>,
    is_strict: bool,
}

impl Config {
    /// No settings: every key has its default.
    pub fn new() -> Config {
        Config::default()
    }

    /// Reads a `.properties` file as Java does.
    ///
    /// - Errors: `Config` when the file cannot be read or a line cannot be parsed (the error names
    ///   the line).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Config, Error> {
        let path = path.as_ref();
        let broken = |reason: String| Error::Config {
            key: "".into(),
            message: format!("{}: {reason}", path.display()).into(),
        };
        let text = std::fs::read_to_string(path).map_err(|error| broken(error.to_string()))?;
        let entries = properties::parse(&text).map_err(|error| broken(error.to_string()))?;
        Ok(Config {
            entries: entries.into_iter().collect(),
            is_strict: false,
        })
    }

    /// Makes a key that the client does not have an error that names it and the most similar known
    /// key. Without this it is a warning, as in Kafka.
    #[must_use]
    pub fn strict(mut self) -> Config {
        self.is_strict = true;
        self
    }

    /// Sets a key; the last value of a key wins.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl ToString) -> Config {
        let (key, value) = (key.into(), value.to_string());
        self.entries.retain(|(known, _)| *known != key);
        self.entries.push((key, value));
        self
    }

    /// Returns the text as written; `None` where a key has its default.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the keys that were set, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// Returns hints for the author of these settings: misspelled keys, keys without effect,
    /// adjusted defaults.
    ///
    /// - Errors: as `from_config` of the client.
    pub fn warnings(&self, client: ClientKind) -> Result<Vec<Warning>, Error> {
        let mut config = self.clone();
        if self.get("client.id").is_none() {
            // Without a name the check would use up one of the numbers of unnamed clients.
            config = config.set("client.id", "unnamed");
        }
        let client = match client {
            ClientKind::Producer => ProducerConfig::from_config(&config)?.client,
            ClientKind::Consumer => ConsumerConfig::from_config(&config)?.client,
            ClientKind::Admin => AdminConfig::from_config(&config)?.client,
        };
        Ok(client.warnings.clone())
    }
}

impl fmt::Debug for Config {
    /// Omits the values of secrets and of unknown keys: one may be a misspelled secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in &self.entries {
            let is_harmless = client_keys().any(|key| key.name == name)
                && !client_keys().any(|key| key.name == name && key.is_sensitive());
            map.entry(name, &if is_harmless { value.as_str() } else { "[hidden]" });
        }
        map.finish()
    }
}
