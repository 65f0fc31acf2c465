//! Writes an image as the records that create it.

use std::sync::Arc;

use ottla_wire::metadata_records::{self as records, MetadataRecord};
use ottla_wire::primitives::Uuid;

use super::MetadataImage;
use super::cluster::{BrokerImage, ControllerImage};
use super::features::{KRAFT_VERSION, METADATA_VERSION};
use super::record::RecordList;
use super::topics::{PartitionImage, TopicImage};

/// The version of partition records: 2 has the fields of KIP-966, and every supported metadata
/// version allows it.
pub const PARTITION_RECORD_VERSION: i16 = 2;
pub const PARTITION_CHANGE_RECORD_VERSION: i16 = 2;

/// Returns the records that turn an empty image into `image`, in the order of Apache Kafka's
/// snapshots.
pub fn records_of(image: &MetadataImage) -> RecordList {
    let mut list = RecordList::default();
    write_features(image, &mut list);
    write_cluster(image, &mut list);
    write_topics(image, &mut list);
    write_configs(image, &mut list);
    write_access(image, &mut list);
    list
}

fn write_features(image: &MetadataImage, list: &mut RecordList) {
    // The metadata version comes first: it determines the format of the rest.
    let levels = &image.features.levels;
    // The level of the log itself is a control record.
    let data = || levels.iter().filter(|(name, _)| &***name != KRAFT_VERSION);
    let first = data().filter(|(name, _)| &***name == METADATA_VERSION);
    let rest = data().filter(|(name, _)| &***name != METADATA_VERSION);
    for (name, &feature_level) in first.chain(rest) {
        list.push(
            MetadataRecord::FeatureLevel(records::feature_level::FeatureLevelRecord { name, feature_level }),
            0,
        );
    }
}

fn write_cluster(image: &MetadataImage, list: &mut RecordList) {
    let version = image.features.register_broker_record_version();
    for broker in image.brokers.values() {
        let mut record = register_broker_record(broker);
        // Cordoned directories were added in version 4.
        record.cordoned_log_dirs = record.cordoned_log_dirs.filter(|_| version >= 4);
        list.push(MetadataRecord::RegisterBroker(record), version);
    }
    for controller in image.controllers.values() {
        list.push(
            MetadataRecord::RegisterController(register_controller_record(controller)),
            0,
        );
    }
}

pub fn register_broker_record(broker: &BrokerImage) -> records::register_broker::RegisterBrokerRecord<'_> {
    records::register_broker::RegisterBrokerRecord {
        broker_id: broker.broker_id,
        is_migrating_zk_broker: false,
        incarnation_id: broker.incarnation_id,
        broker_epoch: broker.broker_epoch,
        end_points: broker
            .endpoints
            .iter()
            .map(|endpoint| records::register_broker::BrokerEndpoint {
                name: &endpoint.listener_name,
                host: &endpoint.host,
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        features: broker
            .features
            .iter()
            .map(|(name, &(min_supported_version, max_supported_version))| {
                records::register_broker::BrokerFeature {
                    name,
                    min_supported_version,
                    max_supported_version,
                }
            })
            .collect(),
        rack: broker.rack.as_deref(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: broker.log_directories.clone(),
        cordoned_log_dirs: broker.cordoned_log_directories.clone(),
    }
}

pub fn register_controller_record(
    controller: &ControllerImage,
) -> records::register_controller::RegisterControllerRecord<'_> {
    records::register_controller::RegisterControllerRecord {
        controller_id: controller.controller_id,
        incarnation_id: controller.incarnation_id,
        zk_migration_ready: controller.zk_migration_ready,
        end_points: controller
            .endpoints
            .iter()
            .map(|endpoint| records::register_controller::ControllerEndpoint {
                name: &endpoint.listener_name,
                host: &endpoint.host,
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        features: controller
            .features
            .iter()
            .map(|(name, &(min_supported_version, max_supported_version))| {
                records::register_controller::ControllerFeature {
                    name,
                    min_supported_version,
                    max_supported_version,
                }
            })
            .collect(),
    }
}

fn write_topics(image: &MetadataImage, list: &mut RecordList) {
    let elr = image.features.eligible_leader_replicas();
    for topic in image.topics.iter() {
        list.push(topic_record(topic), 0);
        for (index, partition) in topic.partitions.iter().enumerate() {
            let record = partition_record(topic.id, index as i32, partition, elr);
            list.push(MetadataRecord::Partition(record), PARTITION_RECORD_VERSION);
        }
    }
}

fn topic_record(topic: &Arc<TopicImage>) -> MetadataRecord<'_> {
    MetadataRecord::Topic(records::topic::TopicRecord {
        name: &topic.name,
        topic_id: topic.id,
    })
}

/// Returns the record of a partition.
///
/// - `elr`: whether KIP-966 is on; without it the record has none of its fields.
pub fn partition_record(
    topic_id: Uuid,
    partition_id: i32,
    partition: &PartitionImage,
    elr: bool,
) -> records::partition::PartitionRecord {
    let elr_field = |replicas: &[i32]| (elr && !replicas.is_empty()).then(|| replicas.to_vec());
    records::partition::PartitionRecord {
        partition_id,
        topic_id,
        replicas: partition.replicas.to_vec(),
        isr: partition.isr.to_vec(),
        removing_replicas: partition.removing_replicas.to_vec(),
        adding_replicas: partition.adding_replicas.to_vec(),
        leader: partition.leader,
        leader_recovery_state: partition.leader_recovery_state,
        leader_epoch: partition.leader_epoch,
        partition_epoch: partition.partition_epoch,
        directories: partition.directories.to_vec(),
        eligible_leader_replicas: elr_field(&partition.eligible_leader_replicas),
        last_known_elr: elr_field(&partition.last_known_elr),
    }
}

fn write_configs(image: &MetadataImage, list: &mut RecordList) {
    for (resource, values) in &*image.configs {
        for (name, value) in &**values {
            let record = records::config::ConfigRecord {
                resource_type: resource.resource_type.code(),
                resource_name: &resource.name,
                name,
                value: Some(value),
            };
            list.push(MetadataRecord::Config(record), 0);
        }
    }
}

fn write_access(image: &MetadataImage, list: &mut RecordList) {
    for (entity, values) in &*image.client_quotas {
        for (key, &value) in values {
            let entity = entity
                .iter()
                .map(|(entity_type, entity_name)| records::client_quota::EntityData {
                    entity_type,
                    entity_name: entity_name.as_deref(),
                })
                .collect();
            list.push(
                MetadataRecord::ClientQuota(records::client_quota::ClientQuotaRecord {
                    entity,
                    key,
                    value,
                    remove: false,
                }),
                0,
            );
        }
    }
    if image.next_producer_id >= 0 {
        let record = records::producer_ids::ProducerIdsRecord {
            // The owner of an allocated block is of no interest.
            broker_id: -1,
            broker_epoch: -1,
            next_producer_id: image.next_producer_id,
        };
        list.push(MetadataRecord::ProducerIds(record), 0);
    }
    for acl in image.acls.values() {
        let record = records::access_control_entry::AccessControlEntryRecord {
            id: acl.id,
            resource_type: acl.resource_type,
            resource_name: &acl.resource_name,
            pattern_type: acl.pattern_type,
            principal: &acl.principal,
            host: &acl.host,
            operation: acl.operation,
            permission_type: acl.permission_type,
        };
        list.push(MetadataRecord::AccessControlEntry(record), 0);
    }
    for (key, credential) in &*image.scram_credentials {
        let record = records::user_scram_credential::UserScramCredentialRecord {
            name: &key.user,
            mechanism: key.mechanism,
            salt: &credential.salt,
            stored_key: &credential.stored_key,
            server_key: &credential.server_key,
            iterations: credential.iterations,
        };
        list.push(MetadataRecord::UserScramCredential(record), 0);
    }
    for token in image.delegation_tokens.values() {
        let record = records::delegation_token::DelegationTokenRecord {
            owner: &token.owner,
            requester: &token.requester,
            renewers: token.renewers.iter().map(|renewer| &**renewer).collect(),
            issue_timestamp: token.issue_timestamp_ms,
            max_timestamp: token.max_timestamp_ms,
            expiration_timestamp: token.expiration_timestamp_ms,
            token_id: &token.token_id,
        };
        list.push(MetadataRecord::DelegationToken(record), 0);
    }
}
