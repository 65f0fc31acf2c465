//! Settings that may change while the broker runs, and warnings about the others.

use std::collections::BTreeMap;

use ottla_wire::config_keys::{
    self, BrokerKeyStatus, ConfigKey, ListenerKey, Scope, Support, Update, broker_key_status, parse_value,
};

use super::resource::{ConfigResourceType, ConfigValues};
use super::{Durability, NodeConfig, StaticConfig, connections};

pub fn scope_of(resource_type: ConfigResourceType) -> Scope {
    match resource_type {
        ConfigResourceType::Topic => Scope::Topic,
        ConfigResourceType::Broker => Scope::Broker,
        ConfigResourceType::ClientMetrics => Scope::ClientMetrics,
        ConfigResourceType::Group => Scope::Group,
    }
}

/// Returns the table row of a key for this type of resource.
pub fn key_of(resource_type: ConfigResourceType, name: &str) -> Option<&'static ConfigKey> {
    match resource_type {
        ConfigResourceType::Broker => config_keys::broker_or_listener_key(name),
        _ => config_keys::find(scope_of(resource_type), name),
    }
}

/// Returns why `name` cannot be set on a running broker, or as the default of all brokers; `None`
/// when it can.
pub fn broker_update_problem(name: &str, cluster_default: bool) -> Option<String> {
    let key = config_keys::broker_or_listener_key(name);
    if name.starts_with("ssl.") && is_of_tls(ConfigResourceType::Broker, name) {
        return Some(format!(
            "These security configs can be dynamically updated only per-listener using the listener prefix: \
             Set({name})"
        ));
    }
    match key.map(|key| key.update) {
        Some(Update::ClusterWide | Update::Dynamic) => None,
        Some(Update::PerBroker) if !cluster_default => None,
        Some(Update::PerBroker) => Some(format!(
            "Cannot update these configs at default cluster level: Set({name})"
        )),
        Some(Update::ReadOnly) | None => {
            Some(format!("Cannot update these configs dynamically: Set({name})"))
        }
    }
}

/// Returns a broker's settings: those of the file, and over them what was set at run time.
///
/// - `layers`: the values set at run time; later ones take precedence.
pub fn effective_settings<'a>(
    file: &StaticConfig,
    layers: impl IntoIterator<Item = &'a ConfigValues>,
) -> BTreeMap<String, String> {
    let layers = layers.into_iter().flat_map(|values| values.iter());
    (file.values.iter().chain(layers))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// Whether a broker's key, or a listener's own, limits connections.
pub fn is_of_connections(name: &str) -> bool {
    let key = config_keys::broker_or_listener_key(name);
    key.is_some_and(|key| connections::limits_connections(key.name))
}

/// Whether a broker's key is one of a listener's TLS that can be changed while the broker runs.
pub fn is_of_tls(resource_type: ConfigResourceType, name: &str) -> bool {
    let key = config_keys::broker_or_listener_key(name);
    resource_type == ConfigResourceType::Broker
        && key.is_some_and(|key| key.name.starts_with("ssl.") && key.update == Update::PerBroker)
}

/// Returns why these values are invalid for a broker, a group or a client metrics subscription;
/// `None` when they are valid.
pub fn values_error(resource_type: ConfigResourceType, values: &ConfigValues) -> Option<String> {
    values
        .iter()
        .find_map(|(name, value)| match key_of(resource_type, name) {
            None => Some(format!("Unknown configuration name: {name}")),
            Some(key) => parse_value(key, value).err().map(|error| error.to_string()),
        })
}

/// Kafka's keys about its own controller; they are in almost every server.properties and cause no
/// warning.
const TAKEN_FOR_GRANTED: &[&str] = &[
    "process.roles",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "controller.listener.names",
];

pub(super) fn warnings(properties: &BTreeMap<String, String>, config: &NodeConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.durability == Durability::PageCache {
        warnings
            .push("ottla.durability=page-cache: acknowledged records do not survive a power cut".to_owned());
    }
    for name in properties
        .keys()
        .filter(|name| !TAKEN_FOR_GRANTED.contains(&name.as_str()))
    {
        if let Some(own) = ListenerKey::parse(name)
            && !is_listener(config, own.listener)
        {
            warnings.push(format!(
                "{name} has no effect: no listener is named {} in lower case",
                own.listener
            ));
            continue;
        }
        match broker_key_status(name) {
            BrokerKeyStatus::Listed(ConfigKey {
                support: Support::Honoured,
                ..
            }) => {}
            BrokerKeyStatus::Listed(ConfigKey {
                support: Support::NoEffect(reason) | Support::Refused(reason),
                ..
            }) => {
                warnings.push(format!("{name} has no effect: {reason}"));
            }
            BrokerKeyStatus::KafkaOnly => warnings.push(format!("{name} has no effect: not supported")),
            BrokerKeyStatus::Unknown {
                nearest: Some(nearest),
            } => {
                warnings.push(format!("{name} is not a known key, did you mean {nearest}?"));
            }
            BrokerKeyStatus::Unknown { nearest: None } => warnings.push(format!("{name} is not a known key")),
        }
    }
    warnings
}

/// Whether `name` is how keys name a listener, the controller's included: in lower case.
fn is_listener(config: &NodeConfig, name: &str) -> bool {
    let mut listeners = config.listeners.iter().chain([&config.controller_listener]);
    listeners.any(|listener| listener.name.to_lowercase() == name)
}
