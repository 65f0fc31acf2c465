//! Records written at a start and at a clean stop: registrations and leadership of partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::metadata_records::{
    MetadataRecord, abort_transaction::AbortTransactionRecord,
    broker_registration_change::BrokerRegistrationChangeRecord, feature_level::FeatureLevelRecord,
    partition_change::PartitionChangeRecord,
};
use ottla_wire::primitives::Uuid;

use super::bootstrap_file::Bootstrap;
use super::directories::{Directories, not_the_owner};
use super::scram::push_first_user;
use super::{ControllerError, Decider};
use crate::config::Listener;
use crate::image::MetadataImage;
use crate::image::cluster::{BrokerImage, ControllerImage, EndpointImage, FeatureRanges};
use crate::image::features::{FORMAT_LEVELS, FeaturesImage, KEPT_FEATURES};
use crate::image::record::RecordList;
use crate::image::replay::Replay;
use crate::image::snapshot::{
    PARTITION_CHANGE_RECORD_VERSION, register_broker_record, register_controller_record,
};
use crate::image::topics::NO_LEADER;

/// Refuses a directory that one node alone cannot serve, before anything is written to it.
pub(super) fn check_single_node(
    replay: &Replay,
    directories: &Directories,
    node_id: i32,
) -> Result<(), ControllerError> {
    let refuse = |problem: String| {
        Err(ControllerError::Directory {
            path: directories.metadata.path.clone(),
            problem,
        })
    };
    let image = replay.image();
    for (voter, directory_id) in &replay.quorum().voters {
        if *voter != node_id {
            return refuse(format!(
                "its metadata log has controller {voter} as a voter; one node has one"
            ));
        }
        if *directory_id != directories.metadata.id {
            return Err(not_the_owner(
                &directories.metadata.path,
                &format!(
                    "it names directory.id {}, but the metadata log beside it is that of directory.id {directory_id}",
                    directories.metadata.id
                ),
            ));
        }
    }
    if let Some(stranger) = image.brokers.keys().find(|id| **id != node_id) {
        return refuse(format!(
            "broker {stranger} is registered in it; unregister it in apache kafka first"
        ));
    }
    for topic in image.topics.iter() {
        if let Some(index) = topic
            .partitions
            .iter()
            .position(|partition| *partition.replicas != [node_id])
        {
            return refuse(format!(
                "partition {index} of topic {} has replicas {:?}, only [{node_id}] can be served",
                topic.name, topic.partitions[index].replicas
            ));
        }
    }
    Ok(())
}

fn kept_features() -> FeatureRanges {
    KEPT_FEATURES
        .iter()
        .map(|feature| (Arc::from(feature.name), (feature.min, feature.max)))
        .collect()
}

/// The first records of a directory that was not formatted by another tool.
fn format_levels() -> Bootstrap {
    let mut records = RecordList::default();
    let mut features = FeaturesImage::default();
    for (name, feature_level) in FORMAT_LEVELS {
        records.push(
            MetadataRecord::FeatureLevel(FeatureLevelRecord { name, feature_level }),
            0,
        );
        features.levels.insert(name.into(), feature_level);
    }
    Bootstrap {
        records,
        features: features.into(),
    }
}

fn endpoint(listener: &Listener) -> EndpointImage {
    EndpointImage {
        listener_name: listener.name.clone(),
        host: if listener.host.is_empty() {
            "localhost".into()
        } else {
            listener.host.clone()
        },
        port: listener.port,
        security_protocol: listener.security_protocol.code(),
    }
}

impl Decider<'_> {
    /// Returns the records of a start: features if there are none, both registrations, and
    /// leadership of every partition.
    ///
    /// - `broker_epoch`: the offset of the first of these records.
    /// - `bootstrap`: the first records of a log without features.
    pub(super) fn activate(
        &self,
        broker_epoch: i64,
        incarnation_id: Uuid,
        directories: &Directories,
        in_transaction: bool,
        bootstrap: Option<Bootstrap>,
    ) -> RecordList {
        let mut records = RecordList::default();
        if in_transaction {
            let reason = Some("the controller that began it is gone");
            records.push(
                MetadataRecord::AbortTransaction(AbortTransactionRecord { reason }),
                0,
            );
        }
        let mut features = self.image.features.clone();
        if features.metadata_version() == 0 {
            let wanted = bootstrap.unwrap_or_else(format_levels);
            features = wanted.features;
            records.append(wanted.records);
            if features.eligible_leader_replicas() {
                self.push_min_in_sync(&mut records);
            }
            let first_users = self.config.first_users.as_deref().unwrap_or_default();
            first_users
                .iter()
                .for_each(|user| push_first_user(&mut records, user));
        }
        self.push_registrations(&mut records, broker_epoch, incarnation_id, directories, &features);
        self.push_leadership(&mut records, directories);
        records
    }

    fn push_registrations(
        &self,
        records: &mut RecordList,
        broker_epoch: i64,
        incarnation_id: Uuid,
        directories: &Directories,
        features: &FeaturesImage,
    ) {
        let controller = ControllerImage {
            controller_id: self.config.node_id,
            incarnation_id,
            zk_migration_ready: false,
            endpoints: vec![endpoint(&self.config.controller_listener)],
            features: kept_features(),
        };
        records.push(
            MetadataRecord::RegisterController(register_controller_record(&controller)),
            0,
        );
        let mut log_directories: Vec<Uuid> = directories
            .log_directories
            .iter()
            .map(|directory| directory.id)
            .collect();
        log_directories.sort();
        let broker = BrokerImage {
            broker_id: self.config.node_id,
            broker_epoch,
            incarnation_id,
            endpoints: self.config.advertised_listeners.iter().map(endpoint).collect(),
            features: kept_features(),
            rack: self.config.rack.clone(),
            fenced: true,
            in_controlled_shutdown: false,
            log_directories,
            cordoned_log_directories: None,
        };
        let version = features.register_broker_record_version();
        records.push(
            MetadataRecord::RegisterBroker(register_broker_record(&broker)),
            version,
        );
        let unfence = BrokerRegistrationChangeRecord {
            broker_id: self.config.node_id,
            broker_epoch,
            fenced: -1,
            ..Default::default()
        };
        records.push(MetadataRecord::BrokerRegistrationChange(unfence), 0);
    }

    // Naming a leader raises the leader epoch, which tells clients that unsynced records may be
    // lost (KIP-320).
    fn push_leadership(&self, records: &mut RecordList, directories: &Directories) {
        let own = [self.config.node_id];
        for topic in self.image.topics.iter() {
            for (index, partition) in topic.partitions.iter().enumerate() {
                let known = partition
                    .directories
                    .iter()
                    .all(|id| directories.path(*id).is_some());
                let change = PartitionChangeRecord {
                    partition_id: index as i32,
                    topic_id: topic.id,
                    leader: self.config.node_id,
                    isr: (*partition.isr != own).then(|| own.to_vec()),
                    directories: (!known || partition.directories.len() != 1)
                        .then(|| vec![self.directory_id]),
                    leader_recovery_state: if partition.leader_recovery_state == 0 {
                        -1
                    } else {
                        0
                    },
                    eligible_leader_replicas: partition.has_elr().then(Vec::new),
                    last_known_elr: partition.has_elr().then(Vec::new),
                    ..Default::default()
                };
                records.push(
                    MetadataRecord::PartitionChange(change),
                    PARTITION_CHANGE_RECORD_VERSION,
                );
            }
        }
    }

    /// Returns the records of a clean stop, as Apache Kafka's controlled shutdown writes them:
    /// whichever broker opens the directory next need not wait for a session to expire.
    pub(super) fn deactivate(&self, broker_epoch: i64) -> RecordList {
        let mut records = RecordList::default();
        let change = |fenced, in_controlled_shutdown| {
            MetadataRecord::BrokerRegistrationChange(BrokerRegistrationChangeRecord {
                broker_id: self.config.node_id,
                broker_epoch,
                fenced,
                in_controlled_shutdown,
                ..Default::default()
            })
        };
        records.push(change(0, 1), 1);
        for topic in self.image.topics.iter() {
            for index in 0..topic.partitions.len() {
                let leaderless = PartitionChangeRecord {
                    partition_id: index as i32,
                    topic_id: topic.id,
                    leader: NO_LEADER,
                    ..Default::default()
                };
                records.push(
                    MetadataRecord::PartitionChange(leaderless),
                    PARTITION_CHANGE_RECORD_VERSION,
                );
            }
        }
        records.push(change(1, 0), 0);
        records
    }
}

/// Returns the directory of this node that holds the fewest partitions.
pub(super) fn emptiest_directory(image: &MetadataImage, directories: &Directories) -> Uuid {
    if let [only] = &*directories.log_directories {
        return only.id;
    }
    let mut counts: BTreeMap<Uuid, usize> = directories
        .log_directories
        .iter()
        .map(|directory| (directory.id, 0))
        .collect();
    for partition in image.topics.iter().flat_map(|topic| &topic.partitions) {
        if let Some(count) = partition.directories.first().and_then(|id| counts.get_mut(id)) {
            *count += 1;
        }
    }
    let emptiest = counts.into_iter().min_by_key(|(_, count)| *count);
    emptiest
        .map(|(id, _)| id)
        .expect("there is at least one log directory")
}
