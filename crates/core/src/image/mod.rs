//! The metadata of the cluster: topics, brokers, configurations, as one immutable value.
//!
//! A [`MetadataImage`] is made in one way only: records of the metadata log are applied to an
//! [`delta::ImageDelta`], which becomes the next image. Nothing else creates a topic or changes a
//! configuration, so an image that is replayed from the log, or from a snapshot, equals the image
//! that was published before.
//!
//! Reading order: the modules below, top to bottom.

pub mod access;
pub mod cluster;
pub mod features;
pub mod topics;

pub mod error;
pub mod delta;
pub mod record;
pub mod replay;
pub mod snapshot;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use crate::config::{ConfigResource, ConfigResourceType, ConfigValues, StaticConfig, TopicConfig};
use access::{AclImage, ClientQuotaEntity, DelegationTokenImage, ScramCredential, ScramKey};
use cluster::{BrokerImage, ControllerImage};
use features::FeaturesImage;
use topics::{TopicImage, TopicsImage};

/// The metadata log's topic, which no image lists.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// The position in the metadata log that an image reflects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Offset of the last record applied, −1 before the first.
    pub last_offset: i64,
    pub last_epoch: i32,
    /// Append time of the last batch applied, in milliseconds.
    pub last_timestamp_ms: i64,
}

impl Provenance {
    pub const EMPTY: Provenance = Provenance {
        last_offset: -1,
        last_epoch: 0,
        last_timestamp_ms: 0,
    };
}

/// The state of the cluster as of one offset of the metadata log.
///
/// Cloning copies a dozen pointers; unchanged parts are shared.
#[derive(Clone, Debug)]
pub struct MetadataImage {
    pub provenance: Provenance,
    pub features: Arc<FeaturesImage>,
    pub brokers: Arc<BTreeMap<i32, BrokerImage>>,
    pub controllers: Arc<BTreeMap<i32, ControllerImage>>,
    pub topics: Arc<TopicsImage>,
    pub configs: Arc<BTreeMap<ConfigResource, Arc<ConfigValues>>>,
    pub client_quotas: Arc<BTreeMap<ClientQuotaEntity, BTreeMap<Arc<str>, f64>>>,
    pub scram_credentials: Arc<BTreeMap<ScramKey, ScramCredential>>,
    pub acls: Arc<BTreeMap<Uuid, AclImage>>,
    pub delegation_tokens: Arc<BTreeMap<Arc<str>, DelegationTokenImage>>,
    /// The first producer id that is not in an allocated block, −1 before the first block.
    pub next_producer_id: i64,
    /// The settings of topics without values of their own.
    pub topic_defaults: Arc<TopicConfig>,
    /// The contents of the configuration file, which all dynamic configurations override.
    pub static_config: Arc<StaticConfig>,
}

impl MetadataImage {
    pub fn empty(static_config: Arc<StaticConfig>) -> MetadataImage {
        let mut image = MetadataImage {
            provenance: Provenance::EMPTY,
            features: Arc::default(),
            brokers: Arc::default(),
            controllers: Arc::default(),
            topics: Arc::default(),
            configs: Arc::default(),
            client_quotas: Arc::default(),
            scram_credentials: Arc::default(),
            acls: Arc::default(),
            delegation_tokens: Arc::default(),
            next_producer_id: -1,
            topic_defaults: Arc::default(),
            static_config,
        };
        image.topic_defaults = Arc::new(image.effective_topic_defaults());
        image
    }

    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.by_name(name)
    }

    pub fn topic_by_id(&self, id: Uuid) -> Option<&Arc<TopicImage>> {
        self.topics.by_id(id)
    }

    /// Returns the values set on `resource` itself, without defaults.
    pub fn config(&self, resource: &ConfigResource) -> Option<&Arc<ConfigValues>> {
        self.configs.get(resource)
    }

    /// Returns the values set on one group with `kafka-configs --entity-type groups`.
    pub fn group_config(&self, group_id: &str) -> Option<&Arc<ConfigValues>> {
        // Most clusters configure no group; then nothing is allocated here.
        if self.configs.is_empty() {
            return None;
        }
        self.configs.get(&ConfigResource {
            resource_type: ConfigResourceType::Group,
            name: group_id.into(),
        })
    }

    /// Returns the settings of a topic without values of its own: this broker's over the cluster's
    /// over the file's.
    fn effective_topic_defaults(&self) -> TopicConfig {
        TopicConfig::defaults(&self.static_config, |key| {
            self.dynamic_broker_value(self.static_config.node_id, key)
        })
    }

    /// Returns the effective settings of `topic`.
    fn effective_topic_config(&self, topic: &str) -> Arc<TopicConfig> {
        match self.config(&ConfigResource::topic(topic)) {
            None => self.topic_defaults.clone(),
            Some(values) => Arc::new(self.topic_defaults.with(values)),
        }
    }

    /// Returns the value of a dynamic broker setting that is a number.
    ///
    /// - `of_file`: what the configuration file says, for a setting that nothing changed.
    pub fn live_number(&self, key: &str, of_file: i64) -> i64 {
        let changed = self.dynamic_broker_value(self.static_config.node_id, key);
        changed
            .and_then(|value| value.trim().parse().ok())
            .unwrap_or(of_file)
    }

    /// Returns the value of a dynamic broker setting: this broker's, else the cluster's, else
    /// `None`.
    pub fn dynamic_broker_value(&self, node_id: i32, key: &str) -> Option<&Arc<str>> {
        [ConfigResource::broker(node_id), ConfigResource::cluster_default()]
            .iter()
            .find_map(|resource| self.configs.get(resource)?.get(key))
    }
}
