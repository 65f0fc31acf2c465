//! Applies records to an image to make the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::metadata_records::{self as records, MetadataRecord};
use ottla_wire::primitives::Uuid;

use super::access::{AclImage, ClientQuotaEntity, DelegationTokenImage, ScramCredential, ScramKey};
use super::cluster::{BrokerImage, ControllerImage, EndpointImage};
use super::error::ImageError;
use super::features;
use super::topics::{PartitionImage, TopicImage};
use super::{MetadataImage, Provenance};
use crate::config::{ConfigResource, ConfigResourceType};

/// What a delta changed, for code that keeps state derived from the image.
#[derive(Clone, Debug, Default)]
pub struct ImageChanges {
    /// Topics that are new, have new partitions, or whose partitions or settings changed.
    pub topics_changed: BTreeSet<Uuid>,
    /// Removed topics, in their last state.
    pub topics_removed: Vec<Arc<TopicImage>>,
    pub configs_changed: BTreeSet<ConfigResource>,
}

/// An image under construction. Parts are copied on their first change.
#[derive(Clone, Debug)]
pub struct ImageDelta {
    image: MetadataImage,
    changes: ImageChanges,
    /// Partitions that arrived before a lower-numbered one of their topic.
    early_partitions: BTreeMap<(Uuid, i32), PartitionImage>,
    /// Names of topics whose effective configuration must be recomputed.
    stale_topic_configs: BTreeSet<Arc<str>>,
    broker_configs_changed: bool,
}

// BrokerRegistrationChangeRecord uses 1 and -1 for "set" and "clear", 0 for "unchanged".
fn change_of(record: &'static str, field: &'static str, value: i8) -> Result<Option<bool>, ImageError> {
    match value {
        0 => Ok(None),
        1 => Ok(Some(true)),
        -1 => Ok(Some(false)),
        other => Err(ImageError::Invalid {
            record,
            field,
            value: i64::from(other),
        }),
    }
}

impl ImageDelta {
    pub fn new(image: &MetadataImage) -> ImageDelta {
        ImageDelta {
            image: image.clone(),
            changes: ImageChanges::default(),
            early_partitions: BTreeMap::new(),
            stale_topic_configs: BTreeSet::new(),
            broker_configs_changed: false,
        }
    }

    /// Applies one record. After an error the delta must be discarded.
    pub fn apply(&mut self, record: &MetadataRecord<'_>) -> Result<(), ImageError> {
        match record {
            MetadataRecord::RegisterBroker(record) => self.register_broker(record),
            MetadataRecord::UnregisterBroker(record) => self.unregister_broker(record)?,
            MetadataRecord::Topic(record) => self.topic(record)?,
            MetadataRecord::Partition(record) => self.partition(record)?,
            MetadataRecord::Config(record) => self.config(record)?,
            MetadataRecord::PartitionChange(record) => self.partition_change(record)?,
            MetadataRecord::FenceBroker(record) => self.broker(record.id, record.epoch)?.fenced = true,
            MetadataRecord::UnfenceBroker(record) => self.broker(record.id, record.epoch)?.fenced = false,
            MetadataRecord::RemoveTopic(record) => self.remove_topic(record.topic_id)?,
            MetadataRecord::DelegationToken(record) => self.delegation_token(record),
            MetadataRecord::UserScramCredential(record) => self.scram_credential(record),
            MetadataRecord::FeatureLevel(record) => self.feature_level(record),
            MetadataRecord::ClientQuota(record) => self.client_quota(record),
            MetadataRecord::ProducerIds(record) => self.image.next_producer_id = record.next_producer_id,
            MetadataRecord::BrokerRegistrationChange(record) => self.registration_change(record)?,
            MetadataRecord::AccessControlEntry(record) => self.acl(record),
            MetadataRecord::RemoveAccessControlEntry(record) => {
                Arc::make_mut(&mut self.image.acls).remove(&record.id);
            }
            // A migration from ZooKeeper ended long before any level that is supported here.
            MetadataRecord::NoOp(_) | MetadataRecord::ZkMigrationState(_) => {}
            MetadataRecord::RemoveUserScramCredential(record) => {
                let key = ScramKey {
                    mechanism: record.mechanism,
                    user: record.name.into(),
                };
                Arc::make_mut(&mut self.image.scram_credentials).remove(&key);
            }
            MetadataRecord::RemoveDelegationToken(record) => {
                Arc::make_mut(&mut self.image.delegation_tokens).remove(record.token_id);
            }
            MetadataRecord::RegisterController(record) => self.register_controller(record),
            MetadataRecord::ClearElr(record) => self.clear_elr(record.topic_name)?,
            MetadataRecord::BeginTransaction(_)
            | MetadataRecord::EndTransaction(_)
            | MetadataRecord::AbortTransaction(_) => {
                return Err(ImageError::Transaction {
                    reason: "transaction records must be handled by the replay",
                });
            }
        }
        Ok(())
    }

    /// Returns the next image and its changes.
    pub fn finish(mut self, provenance: Provenance) -> Result<(MetadataImage, ImageChanges), ImageError> {
        if let Some((&(id, partition), _)) = self.early_partitions.first_key_value() {
            let partition_count = self
                .image
                .topics
                .by_id
                .get(&id)
                .map_or(0, |topic| topic.partitions.len());
            return Err(ImageError::PartitionGap {
                id,
                partition,
                partition_count,
            });
        }
        self.refresh_topic_configs();
        self.image.provenance = provenance;
        Ok((self.image, self.changes))
    }

    /// Returns the image under construction; its topic configurations are still those of the last
    /// image.
    pub fn image(&self) -> &MetadataImage {
        &self.image
    }

    fn refresh_topic_configs(&mut self) {
        if self.broker_configs_changed {
            self.image.topic_defaults = Arc::new(self.image.effective_topic_defaults());
            self.stale_topic_configs = self.image.topics.by_name.keys().cloned().collect();
        }
        for name in std::mem::take(&mut self.stale_topic_configs) {
            let Some(topic) = self.image.topics.by_name.get(&name) else {
                continue;
            };
            let config = self.image.effective_topic_config(&name);
            if topic.config == config {
                continue;
            }
            let id = topic.id;
            self.edit_topic(id, |topic| topic.config = config);
        }
    }

    /// Changes an existing topic in both maps.
    fn edit_topic(&mut self, id: Uuid, edit: impl FnOnce(&mut TopicImage)) {
        let topics = Arc::make_mut(&mut self.image.topics);
        // Taken out of both maps, so that a topic that this delta has copied already is changed in
        // place.
        let mut topic = topics.by_id.remove(&id).expect("caller looked the topic up");
        topics.by_name.remove(&topic.name);
        let partitions_before = topic.partitions.len();
        edit(Arc::make_mut(&mut topic));
        topics.partition_count = topics.partition_count - partitions_before + topic.partitions.len();
        topics.by_name.insert(topic.name.clone(), topic.clone());
        topics.by_id.insert(id, topic);
        self.changes.topics_changed.insert(id);
    }

    fn topic(&mut self, record: &records::topic::TopicRecord<'_>) -> Result<(), ImageError> {
        if let Some(existing) = self.image.topics.by_name.get(record.name) {
            return Err(ImageError::TopicExists {
                name: record.name.to_owned(),
                id: existing.id,
            });
        }
        if let Some(existing) = self.image.topics.by_id.get(&record.topic_id) {
            return Err(ImageError::TopicExists {
                name: existing.name.to_string(),
                id: existing.id,
            });
        }
        let name: Arc<str> = record.name.into();
        let config = self.image.effective_topic_config(&name);
        let topic = Arc::new(TopicImage {
            name: name.clone(),
            id: record.topic_id,
            partitions: Vec::new(),
            config,
        });
        let topics = Arc::make_mut(&mut self.image.topics);
        topics.by_name.insert(name, topic.clone());
        topics.by_id.insert(record.topic_id, topic);
        self.changes.topics_changed.insert(record.topic_id);
        Ok(())
    }

    fn remove_topic(&mut self, id: Uuid) -> Result<(), ImageError> {
        let topics = Arc::make_mut(&mut self.image.topics);
        let topic = topics.by_id.remove(&id).ok_or(ImageError::UnknownTopic { id })?;
        topics.by_name.remove(&topic.name);
        topics.partition_count -= topic.partitions.len();
        self.early_partitions.retain(|(topic_id, _), _| *topic_id != id);
        let resource = ConfigResource {
            resource_type: ConfigResourceType::Topic,
            name: topic.name.clone(),
        };
        if self.image.configs.contains_key(&resource) {
            Arc::make_mut(&mut self.image.configs).remove(&resource);
            self.changes.configs_changed.insert(resource);
        }
        self.changes.topics_changed.remove(&id);
        self.changes.topics_removed.push(topic);
        Ok(())
    }

    fn partition(&mut self, record: &records::partition::PartitionRecord) -> Result<(), ImageError> {
        let id = record.topic_id;
        let topic = self
            .image
            .topics
            .by_id
            .get(&id)
            .ok_or(ImageError::UnknownTopic { id })?;
        let partition_count = topic.partitions.len();
        let Ok(index) = usize::try_from(record.partition_id) else {
            return Err(ImageError::PartitionGap {
                id,
                partition: record.partition_id,
                partition_count,
            });
        };
        let partition = PartitionImage::from_record(record);
        if index > partition_count {
            self.early_partitions.insert((id, record.partition_id), partition);
            return Ok(());
        }
        let mut next = Vec::new();
        if index == partition_count {
            let mut follower = record.partition_id.saturating_add(1);
            while let Some(early) = self.early_partitions.remove(&(id, follower)) {
                next.push(early);
                follower = follower.saturating_add(1);
            }
        }
        self.edit_topic(id, |topic| {
            match topic.partitions.get_mut(index) {
                Some(existing) => *existing = partition,
                None => topic.partitions.push(partition),
            }
            topic.partitions.append(&mut next);
        });
        Ok(())
    }

    fn partition_change(
        &mut self,
        record: &records::partition_change::PartitionChangeRecord,
    ) -> Result<(), ImageError> {
        let id = record.topic_id;
        if let Some(early) = self.early_partitions.get_mut(&(id, record.partition_id)) {
            early.change(record);
            return Ok(());
        }
        let topic = self
            .image
            .topics
            .by_id
            .get(&id)
            .ok_or(ImageError::UnknownTopic { id })?;
        if topic.partition(record.partition_id).is_none() {
            return Err(ImageError::UnknownPartition {
                id,
                partition: record.partition_id,
            });
        }
        let index = record.partition_id as usize;
        self.edit_topic(id, |topic| topic.partitions[index].change(record));
        Ok(())
    }

    fn clear_elr(&mut self, topic_name: &str) -> Result<(), ImageError> {
        let any_has_elr = |topic: &&Arc<TopicImage>| topic.partitions.iter().any(PartitionImage::has_elr);
        let ids: Vec<Uuid> = if topic_name.is_empty() {
            self.image
                .topics
                .iter()
                .filter(any_has_elr)
                .map(|topic| topic.id)
                .collect()
        } else {
            let topic = self.image.topics.by_name.get(topic_name);
            // The record names the topic only, so the error has no id to show.
            let topic = topic.ok_or(ImageError::UnknownTopic { id: Uuid::ZERO })?;
            vec![topic.id]
        };
        for id in ids {
            self.edit_topic(id, |topic| {
                for partition in topic
                    .partitions
                    .iter_mut()
                    .filter(|partition| partition.has_elr())
                {
                    partition.eligible_leader_replicas = Box::default();
                    partition.last_known_elr = Box::default();
                    partition.partition_epoch = partition.partition_epoch.saturating_add(1);
                }
            });
        }
        Ok(())
    }

    fn config(&mut self, record: &records::config::ConfigRecord<'_>) -> Result<(), ImageError> {
        let resource_type =
            ConfigResourceType::from_code(record.resource_type).ok_or(ImageError::UnknownResourceType {
                code: record.resource_type,
            })?;
        let resource = ConfigResource {
            resource_type,
            name: record.resource_name.into(),
        };
        let configs = Arc::make_mut(&mut self.image.configs);
        let values = Arc::make_mut(configs.entry(resource.clone()).or_default());
        match record.value {
            Some(value) => {
                values.insert(record.name.into(), value.into());
            }
            None => {
                values.remove(record.name);
            }
        }
        if values.is_empty() {
            configs.remove(&resource);
        }
        match resource_type {
            ConfigResourceType::Topic => {
                self.stale_topic_configs.insert(resource.name.clone());
            }
            ConfigResourceType::Broker => self.broker_configs_changed = true,
            ConfigResourceType::ClientMetrics | ConfigResourceType::Group => {}
        }
        self.changes.configs_changed.insert(resource);
        Ok(())
    }

    fn feature_level(&mut self, record: &records::feature_level::FeatureLevelRecord<'_>) {
        // KAFKA-18979: the level of kraft.version is a control record of the log; a data record of
        // it is obsolete.
        if record.name == features::KRAFT_VERSION {
            return;
        }
        let levels = &mut Arc::make_mut(&mut self.image.features).levels;
        match record.feature_level {
            0 => levels.remove(record.name),
            level => levels.insert(record.name.into(), level),
        };
    }

    fn register_broker(&mut self, record: &records::register_broker::RegisterBrokerRecord<'_>) {
        let endpoints = record
            .end_points
            .iter()
            .map(|of| EndpointImage::new(of.name, of.host, of.port, of.security_protocol));
        let features = record.features.iter().map(|of| {
            (
                of.name.into(),
                (of.min_supported_version, of.max_supported_version),
            )
        });
        let broker = BrokerImage {
            broker_id: record.broker_id,
            broker_epoch: record.broker_epoch,
            incarnation_id: record.incarnation_id,
            endpoints: endpoints.collect(),
            features: features.collect(),
            rack: record.rack.map(Arc::from),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            log_directories: record.log_dirs.clone(),
            cordoned_log_directories: record.cordoned_log_dirs.clone(),
        };
        Arc::make_mut(&mut self.image.brokers).insert(record.broker_id, broker);
    }

    fn unregister_broker(
        &mut self,
        record: &records::unregister_broker::UnregisterBrokerRecord,
    ) -> Result<(), ImageError> {
        self.broker(record.broker_id, record.broker_epoch)?;
        Arc::make_mut(&mut self.image.brokers).remove(&record.broker_id);
        Ok(())
    }

    fn broker(&mut self, broker_id: i32, broker_epoch: i64) -> Result<&mut BrokerImage, ImageError> {
        Arc::make_mut(&mut self.image.brokers)
            .get_mut(&broker_id)
            .filter(|broker| broker.broker_epoch == broker_epoch)
            .ok_or(ImageError::UnknownBroker {
                broker_id,
                broker_epoch,
            })
    }

    fn registration_change(
        &mut self,
        record: &records::broker_registration_change::BrokerRegistrationChangeRecord,
    ) -> Result<(), ImageError> {
        const NAME: &str = "BrokerRegistrationChangeRecord";
        let fenced = change_of(NAME, "fenced", record.fenced)?;
        let in_controlled_shutdown = match record.in_controlled_shutdown {
            // Only a new registration can undo it.
            0 => None,
            1 => Some(true),
            value => {
                return Err(ImageError::Invalid {
                    record: NAME,
                    field: "inControlledShutdown",
                    value: value.into(),
                });
            }
        };
        let broker = self.broker(record.broker_id, record.broker_epoch)?;
        if let Some(fenced) = fenced {
            broker.fenced = fenced;
        }
        if let Some(in_controlled_shutdown) = in_controlled_shutdown {
            broker.in_controlled_shutdown = in_controlled_shutdown;
        }
        if !record.log_dirs.is_empty() {
            broker.log_directories = record.log_dirs.clone();
        }
        if let Some(cordoned) = &record.cordoned_log_dirs {
            broker.cordoned_log_directories = Some(cordoned.clone());
        }
        Ok(())
    }

    fn register_controller(&mut self, record: &records::register_controller::RegisterControllerRecord<'_>) {
        let endpoints = record
            .end_points
            .iter()
            .map(|of| EndpointImage::new(of.name, of.host, of.port, of.security_protocol));
        let features = record.features.iter().map(|of| {
            (
                of.name.into(),
                (of.min_supported_version, of.max_supported_version),
            )
        });
        let controller = ControllerImage {
            controller_id: record.controller_id,
            incarnation_id: record.incarnation_id,
            zk_migration_ready: record.zk_migration_ready,
            endpoints: endpoints.collect(),
            features: features.collect(),
        };
        Arc::make_mut(&mut self.image.controllers).insert(record.controller_id, controller);
    }

    fn client_quota(&mut self, record: &records::client_quota::ClientQuotaRecord<'_>) {
        let mut entity: ClientQuotaEntity = record
            .entity
            .iter()
            .map(|part| (part.entity_type.into(), part.entity_name.map(Arc::from)))
            .collect();
        entity.sort();
        let quotas = Arc::make_mut(&mut self.image.client_quotas);
        let values = quotas.entry(entity.clone()).or_default();
        if record.remove {
            values.remove(record.key);
        } else {
            values.insert(record.key.into(), record.value);
        }
        if values.is_empty() {
            quotas.remove(&entity);
        }
    }

    fn scram_credential(&mut self, record: &records::user_scram_credential::UserScramCredentialRecord<'_>) {
        let credential = ScramCredential {
            salt: record.salt.into(),
            stored_key: record.stored_key.into(),
            server_key: record.server_key.into(),
            iterations: record.iterations,
        };
        let key = ScramKey {
            mechanism: record.mechanism,
            user: record.name.into(),
        };
        Arc::make_mut(&mut self.image.scram_credentials).insert(key, credential);
    }

    fn acl(&mut self, record: &records::access_control_entry::AccessControlEntryRecord<'_>) {
        let acl = AclImage {
            id: record.id,
            resource_type: record.resource_type,
            resource_name: record.resource_name.into(),
            pattern_type: record.pattern_type,
            principal: record.principal.into(),
            host: record.host.into(),
            operation: record.operation,
            permission_type: record.permission_type,
        };
        Arc::make_mut(&mut self.image.acls).insert(record.id, acl);
    }

    fn delegation_token(&mut self, record: &records::delegation_token::DelegationTokenRecord<'_>) {
        let token = DelegationTokenImage {
            owner: record.owner.into(),
            requester: record.requester.into(),
            renewers: record
                .renewers
                .iter()
                .map(|renewer| Arc::from(*renewer))
                .collect(),
            issue_timestamp_ms: record.issue_timestamp,
            max_timestamp_ms: record.max_timestamp,
            expiration_timestamp_ms: record.expiration_timestamp,
            token_id: record.token_id.into(),
        };
        Arc::make_mut(&mut self.image.delegation_tokens).insert(token.token_id.clone(), token);
    }
}
