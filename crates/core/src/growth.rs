//! `ottla grow`: exports the metadata of a stopped node as the first snapshot of separate
//! controllers.
//!
//! Apache Kafka's controller opens a directory that has only an owner, a quorum state and one
//! snapshot, elects itself in the next epoch and continues after the snapshot's end. Everything is
//! read and checked first; the node's own directories are never written to.
//!
//! The registration of the controller in this process is left out: no record can remove one, and
//! every registered controller must agree before a feature level is raised, for ever.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::directory::{META_PROPERTIES_FILE, MetaProperties};
use ottla_log::disk::{DirectoryLock, Disk};
use ottla_log::{Finding, LogError};
use ottla_wire::primitives::Uuid;

use crate::config::{Listener, NodeConfig};
use crate::controller::ControllerError;
use crate::controller::directories::{Directories, io_error};
use crate::controller::metadata_log::METADATA_DIRECTORY;
use crate::controller::quorum_state::QuorumState;
use crate::controller::snapshot_file::{self, OwnVoter, SnapshotId};
use crate::controller::survey::Survey;
use crate::image::MetadataImage;
use crate::image::cluster::BrokerImage;
use crate::image::replay::{QuorumImage, Replay};
use crate::image::snapshot::records_of;
use crate::log_directory::LogDirectory;
use crate::log_directory::known_directories;
use crate::partition::Identity;
use crate::random::Random;
use crate::start::{StartError, lock_directories};
use crate::time::Timestamp;

/// The controller that is to lead the metadata from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewController {
    pub node_id: i32,
    pub listener: Listener,
}

/// A stopped node that passed the checks for separate controllers. Its directories are locked
/// during the value's lifetime.
#[derive(Debug)]
pub struct Growth {
    disk: Arc<dyn Disk>,
    controller: NewController,
    /// The image without registrations of controllers.
    image: MetadataImage,
    leader_epoch: i32,
    broker_id: i32,
    inter_broker_listener_name: Arc<str>,
    directories: Directories,
    damaged_records: Vec<(Identity, Finding)>,
    _locks: Vec<Box<dyn DirectoryLock>>,
}

impl Growth {
    /// Locks the node's directories, and reads and checks everything. Waits for the disk.
    ///
    /// - Errors: why the node cannot grow as it is. Nothing was changed.
    pub fn read(
        disk: Arc<dyn Disk>,
        config: &NodeConfig,
        controller: NewController,
        random: &Random,
        now: Timestamp,
    ) -> Result<Growth, StartError> {
        check_controller(&controller, config)?;
        // Taking a lock would create missing directories.
        for path in config.log_directories.iter().chain([&config.metadata_directory]) {
            if MetaProperties::read(&*disk, path)?.is_none() {
                return refuse(
                    path,
                    format!("is no broker's log directory: it has no {META_PROPERTIES_FILE}"),
                );
            }
        }
        let locks = lock_directories(&*disk, config)?;
        let (directories, _claims) = Directories::read(&*disk, config, random)?;
        let log_path = &directories.log_directories[0].path;
        let mut log_directory = LogDirectory::read(disk.clone(), log_path, config.recovery.clone())?;
        let survey = Survey::read(&*disk, &directories.metadata.path, &log_directory, config)?;
        survey.check_single_node(&directories, config.node_id)?;
        check_stopped(&survey, &mut log_directory, config.node_id)?;
        check_metadata(&survey, &directories.metadata.path)?;
        let damaged_records = check_logs(&log_directory, survey.image(), now)?;
        let mut image = MetadataImage::clone(survey.image());
        image.controllers = Arc::default();
        Ok(Growth {
            disk,
            controller,
            image,
            leader_epoch: survey.leader_epoch,
            broker_id: config.node_id,
            inter_broker_listener_name: config.inter_broker_listener_name.clone(),
            directories,
            damaged_records,
            _locks: locks,
        })
    }

    pub fn controller(&self) -> &NewController {
        &self.controller
    }

    pub fn cluster_id(&self) -> &str {
        &self.directories.cluster_id
    }

    /// Returns the broker's last registration.
    pub fn broker(&self) -> &BrokerImage {
        &self.image.brokers[&self.broker_id]
    }

    pub fn log_directories(&self) -> impl Iterator<Item = &Path> {
        self.directories
            .log_directories
            .iter()
            .map(|directory| &*directory.path)
    }

    /// Returns the directory with the metadata log.
    pub fn metadata_directory(&self) -> &Path {
        &self.directories.metadata.path
    }

    /// Returns the metadata log of the controller in the node's own process.
    pub fn old_metadata_log(&self) -> PathBuf {
        self.metadata_directory().join(METADATA_DIRECTORY)
    }

    pub fn inter_broker_listener_name(&self) -> &str {
        &self.inter_broker_listener_name
    }

    /// Returns the finalized levels by feature.
    pub fn levels(&self) -> &BTreeMap<Arc<str>, i16> {
        &self.image.features.levels
    }

    /// Returns the offset after the last record of the metadata log.
    pub fn end_offset(&self) -> i64 {
        self.snapshot().end_offset
    }

    /// Returns the epoch in which the last record was written.
    pub fn last_epoch(&self) -> i32 {
        self.snapshot().epoch
    }

    /// Returns the number of partitions of each topic.
    pub fn partition_counts(&self) -> impl Iterator<Item = (&str, usize)> {
        let topics = self.image.topics.iter();
        topics.map(|topic| (&*topic.name, topic.partitions.len()))
    }

    /// Returns damage in logs that can be served in spite of it.
    pub fn damaged_records(&self) -> &[(Identity, Finding)] {
        &self.damaged_records
    }

    /// Checks the output path.
    ///
    /// - Errors: `out` exists and is not an empty directory.
    pub fn check_out(&self, out: &Path) -> Result<(), StartError> {
        match self.disk.list(out) {
            Ok(entries) => match entries.first() {
                None => Ok(()),
                Some(entry) => {
                    let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
                    refuse(out, format!("is not empty, there is {name} in it"))
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                refuse(out, "is not a directory".to_owned())
            }
            Err(source) => Err(io_error("list", out, source).into()),
        }
    }

    /// Writes the new controller's directory and reads it back; it is durable on return.
    ///
    /// - Errors: `out` may hold part of it, but no `meta.properties`, without which Apache Kafka
    ///   does not start.
    pub fn write(&self, out: &Path, random: &Random) -> Result<(), StartError> {
        self.check_out(out)?;
        let disk = &*self.disk;
        let metadata_log = out.join(METADATA_DIRECTORY);
        disk.create_directories(&metadata_log)
            .map_err(|source| io_error("create", &metadata_log, source))?;
        let directory_id = random.uuid();
        let voter = OwnVoter {
            node_id: self.controller.node_id,
            directory_id,
            listener: &self.controller.listener,
        };
        let timestamp_ms = self.image.provenance.last_timestamp_ms;
        let records = records_of(&self.image);
        snapshot_file::write(
            disk,
            &metadata_log,
            self.snapshot(),
            Some(voter),
            &records,
            timestamp_ms,
        )?;
        let state = QuorumState {
            leader_id: NO_LEADER,
            leader_epoch: self.leader_epoch,
            data_version: 1,
        };
        state.write(disk, &metadata_log)?;
        self.read_back(&metadata_log, directory_id)?;
        // The owner is written last.
        let meta = MetaProperties {
            cluster_id: self.directories.cluster_id.clone(),
            node_id: self.controller.node_id,
            directory_id: Some(directory_id),
        };
        meta.write(disk, out)?;
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        disk.sync_directory(parent)
            .map_err(|source| io_error("sync", parent, source))?;
        Ok(())
    }

    fn snapshot(&self) -> SnapshotId {
        let provenance = self.image.provenance;
        SnapshotId {
            end_offset: provenance.last_offset + 1,
            epoch: provenance.last_epoch,
        }
    }

    fn read_back(&self, metadata_log: &Path, directory_id: Uuid) -> Result<(), StartError> {
        let mut found = Replay::new(Arc::new(MetadataImage::empty(self.image.static_config.clone())));
        snapshot_file::replay(&*self.disk, metadata_log, self.snapshot(), &mut found)?;
        let quorum = QuorumImage {
            kraft_version: 1,
            voters: vec![(self.controller.node_id, directory_id)],
        };
        let is_same = *found.quorum() == quorum
            && found.image().provenance == self.image.provenance
            && records_of(found.image()).values == records_of(&self.image).values;
        if !is_same {
            let path = self.snapshot().path(metadata_log);
            return refuse(&path, "does not say what was written to it".to_owned());
        }
        Ok(())
    }
}

/// The value in `quorum-state`.
const NO_LEADER: i32 = -1;

fn refuse<T>(path: &Path, problem: String) -> Result<T, StartError> {
    Err(StartError::Controller(ControllerError::Directory {
        path: path.to_path_buf(),
        problem,
    }))
}

// A Raft leader that receives fetches under its own id stops, and the broker's id cannot change,
// because replicas name it.
fn check_controller(controller: &NewController, config: &NodeConfig) -> Result<(), StartError> {
    let node_id = config.node_id;
    if controller.node_id != node_id {
        return Ok(());
    }
    refuse(
        &config.metadata_directory,
        format!("is that of broker {node_id}: a controller that runs apart from it needs another id"),
    )
}

fn check_stopped(survey: &Survey, log_directory: &mut LogDirectory, node_id: i32) -> Result<(), StartError> {
    let path = log_directory.path().to_path_buf();
    let Some(broker) = survey.image().brokers.get(&node_id) else {
        return refuse(
            &path,
            "was never served: there is nothing to take along; format controllers with kafka-storage"
                .to_owned(),
        );
    };
    if log_directory.was_stopped_cleanly(broker.broker_epoch) {
        return Ok(());
    }
    refuse(
        &path,
        "was not left by a clean stop: start ottla serve on it, read what it says about damaged logs, and stop it with \
         SIGTERM"
            .to_owned(),
    )
}

fn check_metadata(survey: &Survey, metadata_directory: &Path) -> Result<(), StartError> {
    let log = metadata_directory.join(METADATA_DIRECTORY);
    if survey.replay.in_transaction() {
        return refuse(
            &log,
            "ends within a change of the metadata: start ottla serve on the directory and stop it with SIGTERM, which takes \
             the change back"
                .to_owned(),
        );
    }
    if survey.replay.quorum().kraft_version == 0 {
        return refuse(
            &log,
            "is of kraft.version 0, which cannot name a new controller: start ottla serve on the directory, raise the level \
             with `kafka-features --bootstrap-server HOST:PORT upgrade --feature kraft.version=1`, and stop it with SIGTERM"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks the partitions' directories against the image, as a start does; returns damage that does
/// not prevent serving.
fn check_logs(
    log_directory: &LogDirectory,
    image: &MetadataImage,
    now: Timestamp,
) -> Result<Vec<(Identity, Finding)>, StartError> {
    let known = known_directories(image);
    if let Some(unknown) = log_directory.unknown_directories(&known)?.first() {
        let name = crate::log_directory::directory_name(&unknown.topic, unknown.partition);
        let topic_id = unknown.topic_id.map_or("none".to_owned(), |id| id.to_string());
        return refuse(
            &log_directory.path().join(name),
            format!(
                "belongs to no topic of the metadata log (topic id {topic_id}), and apache kafka would set it aside: move it to \
                 another place"
            ),
        );
    }
    let mut damaged = Vec::new();
    for topic in image.topics.iter() {
        for index in 0..topic.partitions.len() {
            let identity = Identity {
                topic_id: topic.id,
                topic: topic.name.clone(),
                index: index as i32,
            };
            let findings = log_directory
                .check_log(&identity, topic.config.log.clone(), now)
                .map_err(|error| refused_log(log_directory, &identity, error))?;
            damaged.extend(findings.into_iter().map(|finding| (identity.clone(), finding)));
        }
    }
    Ok(damaged)
}

/// Refuses a log that `ottla serve` would not serve: Apache Kafka would open it, and might truncate
/// it.
fn refused_log(log_directory: &LogDirectory, identity: &Identity, error: LogError) -> StartError {
    if !matches!(error, LogError::Corrupt { .. }) {
        return error.into();
    }
    let name = crate::log_directory::directory_name(&identity.topic, identity.index);
    StartError::Controller(ControllerError::Directory {
        path: log_directory.path().join(&name),
        problem: format!(
            "is damaged: {error}; restore the file, or start ottla serve with --accept-loss {name} and stop it with SIGTERM"
        ),
    })
}
