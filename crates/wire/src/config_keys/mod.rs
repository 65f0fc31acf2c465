//! Every configuration key: name, unit, default, range, meaning, cost, and whether Ottla honours
//! it. One table per scope.
//!
//! It is the source of the parser, `docs/reference/configuration.md`, DescribeConfigs and the hint
//! for a misspelt key. Names, types, defaults and ranges are those of Apache Kafka 4.3; keys that
//! start with `ottla.` are Ottla's own.

mod key;
mod value;
mod topic;
mod broker;
mod group;
mod kafka_names;
mod of_listener;
mod nearest;
mod clients;
pub mod duration;
mod document;

#[cfg(test)]
mod tests;

pub use broker::BROKER_KEYS;
pub use clients::{client_key, client_keys, keys_of};
pub use document::{render, render_clients};
pub use group::{CLIENT_METRICS_KEYS, GROUP_KEYS};
pub use kafka_names::{KAFKA_AUTHORIZER_NAMES, KAFKA_BROKER_NAMES};
pub use key::{Allowed, ClientKind, ConfigKey, Scope, Support, Synonym, Unit, Update, ValueType};
pub use nearest::nearest;
pub use of_listener::{LISTENER_PREFIX, ListenerKey};
pub use topic::TOPIC_KEYS;
pub use value::{ConfigError, ConfigValue, parse_value};

/// The keys of one scope, in the order of their names.
pub fn keys(scope: Scope) -> &'static [ConfigKey] {
    match scope {
        Scope::Broker => BROKER_KEYS,
        Scope::Topic => TOPIC_KEYS,
        Scope::Group => GROUP_KEYS,
        Scope::ClientMetrics => CLIENT_METRICS_KEYS,
    }
}

/// Finds the row of a key of a broker, topic or group; [`client_key`] finds a client's.
pub fn find(scope: Scope, name: &str) -> Option<&'static ConfigKey> {
    let keys = keys(scope);
    keys.binary_search_by(|key| key.name.cmp(name))
        .ok()
        .map(|index| &keys[index])
}

pub fn topic_key(name: &str) -> Option<&'static ConfigKey> {
    find(Scope::Topic, name)
}

pub fn broker_key(name: &str) -> Option<&'static ConfigKey> {
    find(Scope::Broker, name)
}

/// Finds the row of a broker key, also of one that is set for a single listener.
pub fn broker_or_listener_key(name: &str) -> Option<&'static ConfigKey> {
    broker_key(name).or_else(|| ListenerKey::parse(name).map(|own| own.key))
}

/// How Ottla treats a key of `server.properties`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BrokerKeyStatus {
    /// In the table; its `support` tells whether it has an effect.
    Listed(&'static ConfigKey),
    /// A key of Apache Kafka without a row here and without effect: security, tiered storage, share
    /// groups and the like.
    KafkaOnly,
    /// An unknown key. The nearest known one is the hint for a typing error.
    Unknown { nearest: Option<&'static str> },
}

/// Distinguishes a key without effect from a misspelt one.
pub fn broker_key_status(name: &str) -> BrokerKeyStatus {
    if let Some(key) = broker_or_listener_key(name) {
        return BrokerKeyStatus::Listed(key);
    }
    if is_kafka_only(name) {
        return BrokerKeyStatus::KafkaOnly;
    }
    BrokerKeyStatus::Unknown {
        nearest: nearest_broker_key(name),
    }
}

/// Returns the broker key most similar to `name`, of Ottla's and of Kafka's.
pub fn nearest_broker_key(name: &str) -> Option<&'static str> {
    let listed = BROKER_KEYS.iter().map(|key| key.name);
    nearest(name, listed.chain(KAFKA_BROKER_NAMES.iter().copied()))
}

/// Returns the key of `scope` most similar to `name`.
pub fn nearest_key(scope: Scope, name: &str) -> Option<&'static str> {
    nearest(name, keys(scope).iter().map(|key| key.name))
}

fn is_kafka_only(name: &str) -> bool {
    let is_name = |name: &str| KAFKA_BROKER_NAMES.binary_search(&name).is_ok();
    // Settings of plug-ins are passed on by prefix; a listener's own settings have its name, and
    // its SASL mechanism, as a prefix.
    is_name(name)
        || ["rsm.config.", "rlmm.config."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || name
            .strip_prefix("listener.name.")
            .is_some_and(|rest| rest.match_indices('.').any(|(dot, _)| is_name(&rest[dot + 1..])))
}
