//! Effective values of settings, and their sources: the answer to DescribeConfigs (KIP-133,
//! KIP-226).

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::config_keys::{self, ConfigKey, GROUP_KEYS, TOPIC_KEYS};

use crate::config::{self, ConfigResource, ConfigValues, NodeConfig};
use crate::image::MetadataImage;

/// The source of a value; the numbers are those of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Topic = 1,
    DynamicBroker = 2,
    DynamicDefaultBroker = 3,
    StaticBroker = 4,
    Default = 5,
    ClientMetrics = 7,
    Group = 8,
}

impl ConfigSource {
    pub fn code(self) -> i8 {
        self as i8
    }
}

/// One value from one source; [`EffectiveValue::synonyms`] begins with the one that takes
/// precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenValue {
    pub name: Arc<str>,
    pub value: Option<Arc<str>>,
    pub source: ConfigSource,
}

/// A setting with its effective value.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveValue {
    pub name: Arc<str>,
    /// `None`: not set and without default, or a secret.
    pub value: Option<Arc<str>>,
    /// The table row of the key; `None` for an unknown key of the configuration file.
    pub key: Option<&'static ConfigKey>,
    pub synonyms: Vec<GivenValue>,
}

impl EffectiveValue {
    pub fn source(&self) -> ConfigSource {
        self.synonyms
            .first()
            .map_or(ConfigSource::Default, |nearest| nearest.source)
    }

    pub fn is_sensitive(&self) -> bool {
        // An unknown key might be a secret, so its value is not shown.
        self.key.is_none_or(ConfigKey::is_sensitive)
    }
}

/// All given settings of a broker; some are secrets.
pub(crate) type Settings = BTreeMap<String, String>;

/// Returns the settings of this broker that are given: in the file, or at run time.
pub(crate) fn broker_settings(image: &MetadataImage, config: &NodeConfig) -> Settings {
    let resources = broker_resources(config);
    let layers = resources.iter().filter_map(|resource| image.config(resource));
    config::effective_settings(&config.static_config, layers.map(|values| &**values))
}

/// Whether a setting of this broker was written. Also where the values are the same: KIP-226,
/// setting the location of a store once more has it read again.
pub(crate) fn is_broker_written(old: &MetadataImage, new: &MetadataImage, config: &NodeConfig) -> bool {
    let is_written = |resource: &ConfigResource| match (old.config(resource), new.config(resource)) {
        (Some(old), Some(new)) => !Arc::ptr_eq(old, new),
        (old, new) => old.is_some() != new.is_some(),
    };
    broker_resources(config).iter().any(is_written)
}

/// Where a broker's settings can be set at run time; later ones take precedence.
fn broker_resources(config: &NodeConfig) -> [ConfigResource; 2] {
    [
        ConfigResource::cluster_default(),
        ConfigResource::broker(config.node_id),
    ]
}

/// Returns all settings of a topic that has these values of its own.
pub fn describe_topic(image: &MetadataImage, values: &ConfigValues) -> Vec<EffectiveValue> {
    let is_shown = |key: &&ConfigKey| !key.name.starts_with("internal.") || values.contains_key(key.name);
    TOPIC_KEYS
        .iter()
        .filter(is_shown)
        .map(|key| describe_inherited(image, key, values, ConfigSource::Topic))
        .collect()
}

/// Returns all settings of a group that has these values of its own.
pub fn describe_group(image: &MetadataImage, values: &ConfigValues) -> Vec<EffectiveValue> {
    GROUP_KEYS
        .iter()
        .map(|key| describe_inherited(image, key, values, ConfigSource::Group))
        .collect()
}

/// Returns all settings of a client metrics subscription with these values.
pub fn describe_client_metrics(values: &ConfigValues) -> Vec<EffectiveValue> {
    let keys = config_keys::CLIENT_METRICS_KEYS;
    keys.iter()
        .map(|key| {
            let own = own_value(key, values, ConfigSource::ClientMetrics);
            let value = own
                .as_ref()
                .and_then(|own| own.value.clone())
                .or_else(|| key.default.map(Arc::from));
            EffectiveValue {
                name: key.name.into(),
                value,
                key: Some(key),
                synonyms: own.into_iter().collect(),
            }
        })
        .collect()
}

/// Returns all settings of this broker, including unknown keys of the configuration file.
pub fn describe_broker(image: &MetadataImage) -> Vec<EffectiveValue> {
    let known = config_keys::BROKER_KEYS.iter().map(|key| {
        let synonyms = given_values(image, key.name);
        let value = synonyms
            .iter()
            .find(|given| &*given.name == key.name)
            .and_then(|given| given.value.clone());
        let value = if key.is_sensitive() {
            None
        } else {
            value.or_else(|| key.default.map(Arc::from))
        };
        EffectiveValue {
            name: key.name.into(),
            value,
            key: Some(key),
            synonyms,
        }
    });
    known.chain(described_without_row(image)).collect()
}

/// Returns the settings that have no row of their own: those of one listener, and unknown ones.
fn described_without_row(image: &MetadataImage) -> Vec<EffectiveValue> {
    let file = &image.static_config;
    let dynamic = image.config(&ConfigResource::broker(file.node_id));
    let layers = [
        (dynamic.map(|values| &**values), ConfigSource::DynamicBroker),
        (Some(&file.values), ConfigSource::StaticBroker),
    ];
    let mut given = BTreeMap::<Arc<str>, Vec<GivenValue>>::new();
    for (values, source) in layers {
        for (name, value) in values.into_iter().flatten() {
            if config_keys::broker_key(name).is_none() {
                let value = shown(config_keys::broker_or_listener_key(name), value);
                given.entry(name.clone()).or_default().push(GivenValue {
                    name: name.clone(),
                    value,
                    source,
                });
            }
        }
    }
    given
        .into_iter()
        .map(|(name, synonyms)| EffectiveValue {
            value: synonyms[0].value.clone(),
            key: config_keys::broker_or_listener_key(&name),
            name,
            synonyms,
        })
        .collect()
}

/// Returns only the settings made for all brokers at run time.
pub fn describe_cluster_default(image: &MetadataImage) -> Vec<EffectiveValue> {
    let values = image.config(&ConfigResource::cluster_default());
    let values = values.iter().flat_map(|values| values.iter());
    values
        .map(|(name, value)| {
            let key = config_keys::broker_key(name);
            let value = shown(key, value);
            let source = ConfigSource::DynamicDefaultBroker;
            let synonyms = vec![GivenValue {
                name: name.clone(),
                value: value.clone(),
                source,
            }];
            EffectiveValue {
                name: name.clone(),
                value,
                key,
                synonyms,
            }
        })
        .collect()
}

fn shown(key: Option<&ConfigKey>, value: &Arc<str>) -> Option<Arc<str>> {
    key.is_some_and(|key| !key.is_sensitive()).then(|| value.clone())
}

fn own_value(key: &'static ConfigKey, values: &ConfigValues, source: ConfigSource) -> Option<GivenValue> {
    let value = values.get(key.name)?;
    Some(GivenValue {
        name: key.name.into(),
        value: shown(Some(key), value),
        source,
    })
}

/// Returns a setting of the resource, or else of the broker settings that it inherits from.
fn describe_inherited(
    image: &MetadataImage,
    key: &'static ConfigKey,
    values: &ConfigValues,
    source: ConfigSource,
) -> EffectiveValue {
    let own = own_value(key, values, source);
    let value = match &own {
        Some(own) => own.value.clone(),
        None => inherited_value(image, key),
    };
    let behind = match key.synonyms.first() {
        Some(first) => given_values(image, first.name),
        // For a group's setting Kafka lists its default; for a topic's only the default of the
        // broker setting.
        None if source == ConfigSource::Group => {
            let default = key.default.map(Arc::from);
            vec![GivenValue {
                name: key.name.into(),
                value: default,
                source: ConfigSource::Default,
            }]
        }
        None => Vec::new(),
    };
    EffectiveValue {
        name: key.name.into(),
        value,
        key: Some(key),
        synonyms: own.into_iter().chain(behind).collect(),
    }
}

/// Returns the broker's value in the unit of `key`.
fn inherited_value(image: &MetadataImage, key: &ConfigKey) -> Option<Arc<str>> {
    let node_id = image.static_config.node_id;
    let dynamic = key
        .synonyms
        .iter()
        .find_map(|synonym| Some((synonym.factor, image.dynamic_broker_value(node_id, synonym.name)?)));
    let found = dynamic.or_else(|| {
        let values = &image.static_config.values;
        key.synonyms
            .iter()
            .find_map(|synonym| Some((synonym.factor, values.get(synonym.name)?)))
    });
    let Some((factor, value)) = found else {
        return key.default.map(Arc::from);
    };
    match value.parse::<i64>() {
        Ok(number) if factor != 1 && number >= 0 => Some(number.saturating_mul(factor).to_string().into()),
        _ => Some(value.clone()),
    }
}

/// Returns every value of a broker setting and its synonyms, without those that precede the first
/// under the setting's own name, as in Apache Kafka.
fn given_values(image: &MetadataImage, name: &'static str) -> Vec<GivenValue> {
    let node_id = image.static_config.node_id;
    let key = config_keys::broker_key(name);
    let stand_ins = key
        .map_or(&[][..], |key| key.synonyms)
        .iter()
        .map(|synonym| synonym.name);
    let names: Vec<&'static str> = std::iter::once(name).chain(stand_ins).collect();
    let mut given = Vec::new();
    let mut add = |name: &'static str, value: Option<Arc<str>>, source| {
        if let Some(value) = value {
            let value = shown(config_keys::broker_key(name), &value);
            given.push(GivenValue {
                name: name.into(),
                value,
                source,
            });
        }
    };
    let dynamic = [
        (ConfigResource::broker(node_id), ConfigSource::DynamicBroker),
        (
            ConfigResource::cluster_default(),
            ConfigSource::DynamicDefaultBroker,
        ),
    ];
    for (resource, source) in dynamic {
        let values = image.config(&resource);
        for name in &names {
            add(name, values.and_then(|values| values.get(*name)).cloned(), source);
        }
    }
    for name in &names {
        add(
            name,
            image.static_config.values.get(*name).cloned(),
            ConfigSource::StaticBroker,
        );
    }
    for name in &names {
        let default = config_keys::broker_key(name).and_then(|key| key.default);
        add(name, default.map(Arc::from), ConfigSource::Default);
    }
    given
        .into_iter()
        .skip_while(|value| &*value.name != name)
        .collect()
}
