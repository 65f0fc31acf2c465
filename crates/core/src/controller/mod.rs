//! The standalone controller: decides, writes the decision to the metadata log, replays it.
//!
//! It is the only writer of the metadata log, and sits behind a boundary inside the process:
//! handlers submit a job ([`service::submit`]) and wait for its result; they see the effect only in
//! the next published image. A controller in another process would sit behind the same boundary.
//!
//! A change goes: decide (a pure function of the image) -> records -> replay into the next image,
//! still unpublished -> append and sync -> publish. Records that cannot be replayed are never
//! written; what is not durable is never published.
//!
//! Reading order: the modules below, top to bottom.

pub mod topics;
pub mod configs;
pub mod acls;
pub mod client_quotas;
pub mod scram;
pub mod producer_ids;
pub mod directories;
pub mod features;
pub mod reassignments;
mod activation;
mod bootstrap_file;
pub(crate) mod metadata_log;
pub mod survey;
mod salvage;
mod producer_id_floor;
pub(crate) mod quorum_state;
pub(crate) mod snapshot_file;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod level_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::LogError;
use ottla_log::disk::Disk;
use ottla_wire::metadata_records::{
    MetadataRecord, begin_transaction::BeginTransactionRecord, end_transaction::EndTransactionRecord,
    producer_ids::ProducerIdsRecord,
};
use ottla_wire::primitives::Uuid;
use tracing::{info, warn};

use crate::access::filter::AclFilter;
use crate::config::{ConfigError, NodeConfig};
use crate::image::error::ImageError;
use crate::image::record::RecordList;
use crate::image::replay::Replay;
use crate::image::{MetadataImage, Provenance};
use crate::key_stores::KeyStores;
use crate::quota::mutation::MutationQuota;
use crate::random::Random;
use crate::refusal::Refusal;
use crate::shortage::outlast_shortage;
use crate::time::Timestamp;
use acls::{DeletedAcls, NewAcl};
use bootstrap_file::Bootstrap;
use client_quotas::QuotaAlteration;
use configs::{ConfigChange, ConfigReplacement};
use directories::Directories;
use features::FeatureUpdate;
use metadata_log::MetadataLog;
use reassignments::Reassignment;
use scram::{ScramAlteration, ScramResults};
use snapshot_file::OwnVoter;
use survey::Survey;
use topics::{CreatedTopic, DeletedTopic, NewPartitions, NewTopic, TopicToDelete};

/// Why the controller cannot start or continue.
#[derive(Clone, Debug)]
pub enum ControllerError {
    Log(LogError),
    /// The metadata log contains something that must not be skipped.
    Image(ImageError),
    /// The metadata log cannot be read.
    Read(String),
    /// Records of the metadata log are missing or damaged. Nothing was changed.
    Damaged(LogError),
    /// An intact record that this broker does not understand.
    NotUnderstood {
        path: PathBuf,
        /// Of its batch, in bytes of the file.
        position: u64,
        offset: i64,
        error: ImageError,
    },
    /// A setting that matters only at the first start.
    Config(ConfigError),
    /// What was set at run time and the file do not make a listener that can be served.
    Security(ConfigError),
    /// A log directory that this node must not use.
    Directory {
        path: PathBuf,
        problem: String,
    },
}

impl ControllerError {
    fn is_shortage(&self) -> bool {
        matches!(self, ControllerError::Log(error) if error.is_shortage())
    }
}

impl From<LogError> for ControllerError {
    fn from(error: LogError) -> ControllerError {
        ControllerError::Log(error)
    }
}

impl From<ImageError> for ControllerError {
    fn from(error: ImageError) -> ControllerError {
        ControllerError::Image(error)
    }
}

impl fmt::Display for ControllerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControllerError::Log(error) => write!(f, "metadata log: {error}"),
            ControllerError::Image(error) => write!(f, "{error}"),
            ControllerError::Read(problem) => write!(f, "metadata log: {problem}"),
            ControllerError::Damaged(error) => write!(
                f,
                "{error}; nothing was changed: restore the file from a copy, or start once with --recover-metadata to \
                 go on with what is intact"
            ),
            ControllerError::NotUnderstood {
                path,
                position,
                offset,
                error,
            } => {
                let path = path.display();
                write!(
                    f,
                    "{path} is not understood at position {position}, offset {offset}: {error}"
                )
            }
            ControllerError::Config(error) => write!(f, "{error}"),
            ControllerError::Security(error) => write!(
                f,
                "{error}; the metadata log has settings of the brokers (kafka-configs --entity-type brokers) that come before \
                 the file: the broker that took this one can remove it"
            ),
            ControllerError::Directory { path, problem } => write!(f, "{} {problem}", path.display()),
        }
    }
}

impl std::error::Error for ControllerError {}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Decider<'a> {
    pub image: &'a MetadataImage,
    pub config: &'a NodeConfig,
    /// The log directory for new partitions.
    pub directory_id: Uuid,
    pub key_stores: Option<&'a dyn KeyStores>,
}

/// Producer ids are allocated in blocks of this size; the rest of a block at a stop is never used.
pub const PRODUCER_ID_BLOCK: i64 = 1_000;

/// Whether a change that spans batches is wrapped into a metadata transaction, so that a crash
/// leaves all of it or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atomicity {
    AllOrNothing,
    /// Every batch is valid without the next one.
    EachBatch,
}

/// The writer of the metadata log. Its methods wait for the disk.
#[derive(Debug)]
pub struct Controller {
    disk: Arc<dyn Disk>,
    config: Arc<NodeConfig>,
    random: Arc<Random>,
    directories: Directories,
    log: MetadataLog,
    replay: Replay,
    /// The first records of an empty log.
    bootstrap: Option<Bootstrap>,
    broker_epoch: i64,
    /// Of a shell with TLS.
    key_stores: Option<Arc<dyn KeyStores>>,
}

impl Controller {
    /// Opens the metadata log at the end that `survey` found.
    ///
    /// - Errors: nothing was changed unless the disk failed.
    pub fn open(
        disk: Arc<dyn Disk>,
        config: Arc<NodeConfig>,
        directories: Directories,
        random: Arc<Random>,
        mut survey: Survey,
        now: Timestamp,
    ) -> Result<Controller, ControllerError> {
        let voter = own_voter(&config, &directories);
        let path = directories.metadata.path.clone();
        let mut log = MetadataLog::open(disk.clone(), &path, voter, &config, &mut survey, now)?;
        if survey.damaged_snapshot.is_some() {
            log.replace_snapshots(&survey.replay, voter, now)?;
        }
        Ok(Controller {
            disk,
            config,
            random,
            directories,
            log,
            replay: survey.replay,
            bootstrap: survey.bootstrap,
            broker_epoch: -1,
            key_stores: None,
        })
    }

    /// Takes leadership in a new epoch and registers this broker.
    ///
    /// - Call it after `.kafka_cleanshutdown` was put aside.
    pub fn activate(&mut self, now: Timestamp) -> Result<(), ControllerError> {
        let kraft_version = self.replay.quorum().kraft_version;
        self.log.begin_epoch(self.config.node_id, kraft_version, now)?;
        self.broker_epoch = self.log.end_offset();
        let in_transaction = self.replay.in_transaction();
        let incarnation_id = self.random.uuid();
        let bootstrap = self.bootstrap.take();
        let records = self.decider().activate(
            self.broker_epoch,
            incarnation_id,
            &self.directories,
            in_transaction,
            bootstrap,
        );
        self.write(&records, Atomicity::EachBatch, now)?;
        self.replay.take_changes();
        for (feature, level) in self.image().features.kept_unserved() {
            info!(feature, level, "kept in the directory, not served");
        }
        Ok(())
    }

    /// Makes the metadata log durable; false if it may end in an unfinished record.
    pub fn has_whole_log(&mut self) -> bool {
        self.log.sync().is_ok() && self.log.is_sound()
    }

    pub fn image(&self) -> &Arc<MetadataImage> {
        self.replay.image()
    }

    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// From now on settings of stores are checked by reading the stores.
    pub fn set_key_stores(&mut self, key_stores: Arc<dyn KeyStores>) {
        self.key_stores = Some(key_stores);
    }

    /// Returns the epoch of this broker's registration, which `.kafka_cleanshutdown` records.
    pub fn broker_epoch(&self) -> i64 {
        self.broker_epoch
    }

    fn decider(&self) -> Decider<'_> {
        let image = self.replay.image();
        let directory_id = activation::emptiest_directory(image, &self.directories);
        Decider {
            image,
            config: &self.config,
            directory_id,
            key_stores: self.key_stores.as_deref(),
        }
    }

    /// Makes `records` durable and updates the image.
    fn write(
        &mut self,
        records: &RecordList,
        atomicity: Atomicity,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut batches = self.log.batches(records, now);
        if batches.len() > 1 && atomicity == Atomicity::AllOrNothing {
            batches = self.log.batches(&in_transaction(records), now);
        }
        self.write_batches(&batches, now)
    }

    fn write_batches(&mut self, batches: &[Vec<u8>], now: Timestamp) -> Result<(), ControllerError> {
        // A trial replay: records that cannot be replayed must not be written.
        let mut next = self.replay.clone();
        for batch in batches {
            next.apply_batches(batch)?;
        }
        check_levels(&next, self.log.directory())?;
        self.log.append(batches, now)?;
        self.log.sync()?;
        self.replay = next;
        self.take_snapshot_if_due(now);
        Ok(())
    }

    /// Takes a snapshot when one is due. The change is durable without it: a failure only costs
    /// space, and the next change tries again.
    ///
    /// - Shape: not with the removal of topics, which a snapshot forgets: a start finishes the
    ///   removal of their directories only as long as it finds it in the log.
    fn take_snapshot_if_due(&mut self, now: Timestamp) {
        if !self.replay.changes().topics_removed.is_empty() {
            return;
        }
        let limit = u64::try_from(self.config.storage.metadata_bytes_between_snapshots).unwrap_or(u64::MAX);
        if self.log.bytes_since_snapshot() < limit {
            return;
        }
        let voter = own_voter(&self.config, &self.directories);
        if let Err(error) = self.log.take_snapshot(&self.replay, voter, now) {
            warn!(%error, "cannot take a snapshot of the metadata log");
        }
    }

    fn commit(&mut self, records: &RecordList, now: Timestamp) -> Result<(), ControllerError> {
        let before = self.image().clone();
        self.write(records, Atomicity::AllOrNothing, now)?;
        let changes = self.replay.take_changes();
        for topic in &changes.topics_removed {
            info!(topic = &*topic.name, id = %topic.id, "deleted topic");
        }
        for topic in changes
            .topics_changed
            .iter()
            .filter_map(|id| self.image().topic_by_id(*id))
        {
            let partitions = topic.partitions.len();
            match before.topic_by_id(topic.id) {
                None => info!(topic = &*topic.name, id = %topic.id, partitions, "created topic"),
                Some(known) if known.partitions.len() != partitions => {
                    info!(topic = &*topic.name, partitions, "added partitions");
                }
                Some(_) => {}
            }
        }
        if before.client_quotas != self.image().client_quotas {
            info!(
                entities = self.image().client_quotas.len(),
                "changed client quotas"
            );
        }
        if !Arc::ptr_eq(&before.acls, &self.image().acls) {
            info!(acls = self.image().acls.len(), "changed ACLs");
        }
        if before.scram_credentials != self.image().scram_credentials {
            let credentials = self.image().scram_credentials.len();
            info!(credentials, "changed SCRAM credentials");
        }
        for resource in &changes.configs_changed {
            let kind = resource.resource_type;
            info!(?kind, name = &*resource.name, "changed settings");
        }
        Ok(())
    }

    /// Creates topics, or only validates the request. Topics beyond `quota` are refused; validation
    /// books nothing.
    ///
    /// - Shape: results are parallel to `topics`.
    pub fn create_topics(
        &mut self,
        quota: &mut MutationQuota,
        topics: &[NewTopic],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<CreatedTopic, Refusal>>, ControllerError> {
        let mut unlimited = MutationQuota::unlimited();
        let quota = if validate_only { &mut unlimited } else { quota };
        let (records, results) = self.decider().create_topics(topics, &self.random, quota);
        if !validate_only {
            self.commit(&records, now)?;
        }
        Ok(results)
    }

    pub fn create_partitions(
        &mut self,
        quota: &mut MutationQuota,
        requests: &[NewPartitions],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refusal>>, ControllerError> {
        let mut unlimited = MutationQuota::unlimited();
        let quota = if validate_only { &mut unlimited } else { quota };
        let (records, results) = self.decider().create_partitions(requests, quota);
        if !validate_only {
            self.commit(&records, now)?;
        }
        Ok(results)
    }

    /// Deletes topics; those beyond `quota` are refused.
    pub fn delete_topics(
        &mut self,
        quota: &mut MutationQuota,
        topics: &[TopicToDelete],
        now: Timestamp,
    ) -> Result<Vec<DeletedTopic>, ControllerError> {
        let (records, results) = self.decider().delete_topics(topics, quota);
        self.commit(&records, now)?;
        Ok(results)
    }

    pub fn alter_configs_incrementally(
        &mut self,
        changes: &[ConfigChange],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refusal>>, ControllerError> {
        let (records, results) = self.decider().alter_configs_incrementally(changes);
        if !validate_only {
            self.commit(&records, now)?;
        }
        Ok(results)
    }

    pub fn replace_configs(
        &mut self,
        replacements: &[ConfigReplacement],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refusal>>, ControllerError> {
        let (records, results) = self.decider().replace_configs(replacements);
        if !validate_only {
            self.commit(&records, now)?;
        }
        Ok(results)
    }

    pub fn alter_client_quotas(
        &mut self,
        alterations: &[QuotaAlteration],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refusal>>, ControllerError> {
        let (records, results) = self.decider().alter_client_quotas(alterations);
        if !validate_only {
            self.commit(&records, now)?;
        }
        Ok(results)
    }

    /// Creates ACLs.
    ///
    /// - Shape: results are parallel to `acls`.
    pub fn create_acls(
        &mut self,
        acls: &[NewAcl],
        now: Timestamp,
    ) -> Result<Vec<Result<(), Refusal>>, ControllerError> {
        let (records, results) = self.decider().create_acls(acls, &self.random);
        self.commit(&records, now)?;
        Ok(results)
    }

    /// Deletes the ACLs that the filters match.
    ///
    /// - Shape: results are parallel to `filters`.
    pub fn delete_acls(
        &mut self,
        filters: &[Result<AclFilter, Refusal>],
        now: Timestamp,
    ) -> Result<DeletedAcls, ControllerError> {
        let (records, results) = self.decider().delete_acls(filters);
        self.commit(&records, now)?;
        Ok(results)
    }

    /// Sets and removes SCRAM credentials.
    ///
    /// - Shape: one result per user, in the order of the request.
    pub fn alter_scram_credentials(
        &mut self,
        alterations: &[ScramAlteration],
        now: Timestamp,
    ) -> Result<ScramResults, ControllerError> {
        let (records, results) = self.decider().alter_scram_credentials(alterations);
        self.commit(&records, now)?;
        Ok(results)
    }

    /// Raises and lowers feature levels, all of them or none, or only validates the request.
    pub fn update_features(
        &mut self,
        updates: &[FeatureUpdate],
        validate_only: bool,
        now: Timestamp,
    ) -> Result<Result<(), Refusal>, ControllerError> {
        let decision = match self.decider().update_features(updates) {
            Ok(decision) => decision,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if validate_only {
            return Ok(Ok(()));
        }
        if decision.raises_kraft_version {
            let voter = own_voter(&self.config, &self.directories);
            let batch = self.log.voters_batch(voter, now);
            self.write_batches(&[batch], now)?;
        }
        self.commit(&decision.records, now)?;
        for update in updates {
            let (feature, level) = (&*update.name, update.level);
            info!(feature, level, "changed a feature level");
        }
        Ok(Ok(()))
    }

    pub fn reassign_partitions(&self, reassignments: &[Reassignment]) -> Vec<Result<(), Refusal>> {
        self.decider().reassign_partitions(reassignments)
    }

    pub fn elect_leaders(&self, partitions: &[(String, i32)]) -> Vec<Result<(), Refusal>> {
        self.decider().elect_leaders(partitions)
    }

    /// Allocates a block of [`PRODUCER_ID_BLOCK`] ids and returns the first.
    pub fn allocate_producer_ids(&mut self, now: Timestamp) -> Result<i64, ControllerError> {
        let first = self.image().next_producer_id.max(0);
        let mut records = RecordList::default();
        let record = ProducerIdsRecord {
            broker_id: self.config.node_id,
            broker_epoch: self.broker_epoch,
            next_producer_id: first + PRODUCER_ID_BLOCK,
        };
        records.push(MetadataRecord::ProducerIds(record), 0);
        self.commit(&records, now)?;
        Ok(first)
    }

    /// Resigns leadership and registration, and leaves a log that opens without recovery. Nothing
    /// can be written afterwards.
    pub fn close(&mut self, now: Timestamp) -> Result<(), ControllerError> {
        let records = self.decider().deactivate(self.broker_epoch);
        let disk = Arc::clone(&self.disk);
        outlast_shortage(&*disk, ControllerError::is_shortage, || {
            self.write(&records, Atomicity::EachBatch, now)
        })?;
        outlast_shortage(&*disk, ControllerError::is_shortage, || self.log.close())
    }

    /// Returns the disk that holds the directories.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the position in the log that the image reflects.
    pub fn provenance(&self) -> Provenance {
        self.replay.image().provenance
    }

    /// Returns the leader epoch of the metadata log; the leader is this node.
    pub fn leader_epoch(&self) -> i32 {
        self.log.leader_epoch()
    }
}

/// Refuses finalized levels that are not supported, and says how to proceed.
fn check_levels(replay: &Replay, metadata_log: &Path) -> Result<(), ControllerError> {
    let Some(unkept) = replay.image().features.unkept() else {
        return Ok(());
    };
    Err(ControllerError::Directory {
        path: metadata_log.to_path_buf(),
        problem: format!("is not served: {unkept}; {}", unkept.way_out()),
    })
}

fn own_voter<'a>(config: &'a NodeConfig, directories: &Directories) -> OwnVoter<'a> {
    OwnVoter {
        node_id: config.node_id,
        directory_id: directories.metadata.id,
        listener: &config.controller_listener,
    }
}

/// Wraps the records into a metadata transaction (KIP-866).
fn in_transaction(records: &RecordList) -> RecordList {
    let mut wrapped = RecordList::default();
    let begin = BeginTransactionRecord {
        name: Some("change of more than one batch"),
    };
    wrapped.push(MetadataRecord::BeginTransaction(begin), 0);
    wrapped.append(records.clone());
    wrapped.push(MetadataRecord::EndTransaction(EndTransactionRecord {}), 0);
    wrapped
}
