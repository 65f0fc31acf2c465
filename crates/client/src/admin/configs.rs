//! Settings of topics, brokers, groups and client-metrics subscriptions.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::messages::list_config_resources::{ListConfigResourcesRequest, ListConfigResourcesResponse};

use super::context::{Context, Destination, Versions, decode_with, join_all};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// The kind of resource that settings belong to; the numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfigResourceKind {
    /// By its name.
    Topic = 2,
    /// Named by id; an empty name means the defaults of all brokers.
    Broker = 4,
    /// The log levels of a broker, by its id.
    BrokerLogger = 8,
    /// A subscription of KIP-714.
    ClientMetrics = 16,
    /// A consumer group, by its id.
    Group = 32,
}

impl ConfigResourceKind {
    /// Every kind that this client knows.
    pub const ALL: [ConfigResourceKind; 5] = [
        ConfigResourceKind::Topic,
        ConfigResourceKind::Broker,
        ConfigResourceKind::BrokerLogger,
        ConfigResourceKind::ClientMetrics,
        ConfigResourceKind::Group,
    ];

    fn from_code(code: i8) -> Option<ConfigResourceKind> {
        ConfigResourceKind::ALL
            .into_iter()
            .find(|kind| *kind as i8 == code)
    }
}

/// Something that has settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ConfigResource {
    /// What it is.
    pub kind: ConfigResourceKind,
    /// Its name or id, as text.
    pub name: String,
}

impl ConfigResource {
    /// A resource, which need not exist.
    pub fn new(kind: ConfigResourceKind, name: impl Into<String>) -> ConfigResource {
        ConfigResource {
            kind,
            name: name.into(),
        }
    }

    /// A topic.
    pub fn topic(name: impl Into<String>) -> ConfigResource {
        ConfigResource::new(ConfigResourceKind::Topic, name)
    }

    /// A broker's own settings must be asked of that broker.
    fn destination(&self) -> Destination {
        let is_broker = matches!(
            self.kind,
            ConfigResourceKind::Broker | ConfigResourceKind::BrokerLogger
        );
        match self.name.parse() {
            Ok(id) if is_broker => Destination::Node(NodeId(id)),
            _ => Destination::Any,
        }
    }

    fn what(&self) -> String {
        format!("{:?} {:?}", self.kind, self.name)
    }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    /// Set for this topic.
    Topic,
    /// Set for this broker while it ran.
    DynamicBroker,
    /// Set for all brokers while they ran.
    DynamicDefaultBroker,
    /// From the broker's `server.properties`.
    StaticBroker,
    /// Kafka's default.
    Default,
    /// A log level that was set while the broker ran.
    DynamicBrokerLogger,
    /// Set for this subscription of client metrics.
    ClientMetrics,
    /// Set for this group.
    Group,
    /// A source that this client does not know (a newer protocol).
    Unknown(i8),
}

impl ConfigSource {
    fn from_code(code: i8) -> ConfigSource {
        match code {
            1 => ConfigSource::Topic,
            2 => ConfigSource::DynamicBroker,
            3 => ConfigSource::DynamicDefaultBroker,
            4 => ConfigSource::StaticBroker,
            5 => ConfigSource::Default,
            6 => ConfigSource::DynamicBrokerLogger,
            7 => ConfigSource::ClientMetrics,
            8 => ConfigSource::Group,
            other => ConfigSource::Unknown(other),
        }
    }
}

/// One setting of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigEntry {
    /// `None` when it is sensitive or not set.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether only a restart can change it.
    pub is_read_only: bool,
    /// A secret: `value` is `None`.
    pub is_sensitive: bool,
}

/// What to do with a setting (KIP-339).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigOperation {
    /// Replaces the value.
    Set = 0,
    /// Resets to the default.
    Delete = 1,
    /// Adds to a list.
    Append = 2,
    /// Removes from a list.
    Subtract = 3,
}

/// A change of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlterConfig {
    /// The setting's name.
    pub key: String,
    /// What to do with it.
    pub operation: ConfigOperation,
    /// `None` with `Delete`.
    pub value: Option<String>,
}

impl AlterConfig {
    /// Sets the value.
    pub fn set(key: impl Into<String>, value: impl ToString) -> AlterConfig {
        AlterConfig {
            key: key.into(),
            operation: ConfigOperation::Set,
            value: Some(value.to_string()),
        }
    }

    /// Removes the value, so that the next source or the default applies.
    pub fn delete(key: impl Into<String>) -> AlterConfig {
        AlterConfig {
            key: key.into(),
            operation: ConfigOperation::Delete,
            value: None,
        }
    }

    /// Adds a word to a list.
    pub fn append(key: impl Into<String>, word: impl Into<String>) -> AlterConfig {
        AlterConfig {
            key: key.into(),
            operation: ConfigOperation::Append,
            value: Some(word.into()),
        }
    }

    /// Removes a word from a list.
    pub fn subtract(key: impl Into<String>, word: impl Into<String>) -> AlterConfig {
        AlterConfig {
            key: key.into(),
            operation: ConfigOperation::Subtract,
            value: Some(word.into()),
        }
    }
}

/// The settings of a resource by key.
pub type ConfigEntries = BTreeMap<String, ConfigEntry>;

impl Admin {
    /// Describes every setting of these resources, defaults included.
    pub fn describe_configs(
        &self,
        resources: Vec<ConfigResource>,
    ) -> Pending<Results<ConfigResource, ConfigEntries>> {
        self.call("describe configs", |context| async move {
            let asked = by_destination(resources.into_iter().map(|resource| (resource, ())))
                .into_iter()
                .map(|(destination, resources)| {
                    let resources = resources.into_iter().map(|(resource, ())| resource).collect();
                    describe(context.clone(), destination, resources)
                });
            Ok(join_all(asked).await.into_iter().flatten().collect())
        })
    }

    /// Changes only the named keys (KIP-339, Kafka 2.3).
    pub fn incremental_alter_configs(
        &self,
        changes: BTreeMap<ConfigResource, Vec<AlterConfig>>,
    ) -> Pending<Results<ConfigResource, ()>> {
        self.call("alter configs", |context| async move {
            let asked = by_destination(changes)
                .into_iter()
                .map(|(destination, changes)| alter(context.clone(), destination, changes));
            Ok(join_all(asked).await.into_iter().flatten().collect())
        })
    }

    /// Returns the resources that have settings; an empty list of kinds means all. Before Kafka 4.1
    /// only `ClientMetrics` can be listed.
    pub fn list_config_resources(&self, kinds: Vec<ConfigResourceKind>) -> Pending<Vec<ConfigResource>> {
        self.call("list config resources", |context| list(context, kinds))
    }
}

fn by_destination<V>(
    resources: impl IntoIterator<Item = (ConfigResource, V)>,
) -> Vec<(Destination, Vec<(ConfigResource, V)>)> {
    let mut groups: Vec<(Destination, Vec<(ConfigResource, V)>)> = Vec::new();
    for (resource, value) in resources {
        let destination = resource.destination();
        match groups.iter_mut().find(|(known, _)| *known == destination) {
            Some((_, group)) => group.push((resource, value)),
            None => groups.push((destination, vec![(resource, value)])),
        }
    }
    groups
}

async fn describe(
    context: Context,
    destination: Destination,
    resources: Vec<ConfigResource>,
) -> Results<ConfigResource, ConfigEntries> {
    let asked = resources.clone();
    let encode = move |version| {
        let resources = asked.iter().map(|resource| DescribeConfigsResource {
            resource_type: resource.kind as i8,
            resource_name: &resource.name,
            configuration_keys: None,
        });
        let request = DescribeConfigsRequest {
            resources: resources.collect(),
            include_synonyms: false,
            include_documentation: false,
        };
        body(|out| request.encode(out, version))
    };
    let described = context
        .ask(
            destination,
            ApiKey::DescribeConfigs,
            Versions::from(1),
            encode,
            |answer| {
                let response = decode_with(answer, DescribeConfigsResponse::decode)?;
                let results = response.results.iter().filter_map(|result| {
                    let kind = ConfigResourceKind::from_code(result.resource_type)?;
                    let resource = ConfigResource::new(kind, result.resource_name);
                    let entries = result.configs.iter().map(entry).collect();
                    let what = || resource.what();
                    let described = resource_result(entries, result.error_code, result.error_message, what);
                    Some((resource, described))
                });
                Ok(results.collect())
            },
        )
        .await;
    described.unwrap_or_else(|error| {
        resources
            .into_iter()
            .map(|resource| (resource, Err(error.clone())))
            .collect()
    })
}

fn entry(config: &DescribeConfigsResourceResult<'_>) -> (String, ConfigEntry) {
    let entry = ConfigEntry {
        value: config.value.map(str::to_owned),
        source: ConfigSource::from_code(config.config_source),
        is_read_only: config.read_only,
        is_sensitive: config.is_sensitive,
    };
    (config.name.to_owned(), entry)
}

async fn alter(
    context: Context,
    destination: Destination,
    changes: Vec<(ConfigResource, Vec<AlterConfig>)>,
) -> Results<ConfigResource, ()> {
    let asked = changes.clone();
    let encode = move |version| {
        let resources = asked.iter().map(|(resource, changes)| AlterConfigsResource {
            resource_type: resource.kind as i8,
            resource_name: &resource.name,
            configs: changes
                .iter()
                .map(|change| AlterableConfig {
                    name: &change.key,
                    config_operation: change.operation as i8,
                    value: change.value.as_deref(),
                })
                .collect(),
        });
        let request = IncrementalAlterConfigsRequest {
            resources: resources.collect(),
            validate_only: false,
        };
        body(|out| request.encode(out, version))
    };
    let altered = context
        .ask(
            destination,
            ApiKey::IncrementalAlterConfigs,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, IncrementalAlterConfigsResponse::decode)?;
                let results = response.responses.iter().filter_map(|result| {
                    let kind = ConfigResourceKind::from_code(result.resource_type)?;
                    let resource = ConfigResource::new(kind, result.resource_name);
                    let what = || resource.what();
                    let altered = resource_result((), result.error_code, result.error_message, what);
                    Some((resource, altered))
                });
                Ok(results.collect())
            },
        )
        .await;
    altered.unwrap_or_else(|error| {
        changes
            .into_iter()
            .map(|(resource, _)| (resource, Err(error.clone())))
            .collect()
    })
}

async fn list(context: Context, kinds: Vec<ConfigResourceKind>) -> Result<Vec<ConfigResource>, Error> {
    let is_old_question = kinds == [ConfigResourceKind::ClientMetrics];
    let encode = move |version| {
        let resource_types = match version {
            0 => Vec::new(),
            _ => kinds.iter().map(|kind| *kind as i8).collect(),
        };
        body(|out| ListConfigResourcesRequest { resource_types }.encode(out, version))
    };
    let versions = Versions::from(if is_old_question { 0 } else { 1 });
    context
        .ask(
            Destination::Any,
            ApiKey::ListConfigResources,
            versions,
            encode,
            |answer| {
                let response = decode_with(answer, ListConfigResourcesResponse::decode)?;
                if let Some(error) = resource_error(response.error_code, None, || "config resources".into()) {
                    return Err(error);
                }
                let resources = response.config_resources.iter().filter_map(|resource| {
                    // Version 0 has no kinds: all resources are client-metrics subscriptions.
                    let code = match answer.version {
                        0 => ConfigResourceKind::ClientMetrics as i8,
                        _ => resource.resource_type,
                    };
                    Some(ConfigResource::new(
                        ConfigResourceKind::from_code(code)?,
                        resource.resource_name,
                    ))
                });
                Ok(resources.collect())
            },
        )
        .await
}
