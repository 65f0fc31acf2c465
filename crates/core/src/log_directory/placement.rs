//! Placement of partitions: which directories exist, which must be created, and which must not be
//! touched.

use std::io;
use std::path::Path;

use ottla_log::LogError;
use ottla_log::checkpoint::RECOVERY_POINT_FILE;
use ottla_log::directory::{
    NewPartitionDirectory, PARTITION_METADATA_FILE, create_partition_directories, partition_directory,
    read_partition_metadata,
};
use ottla_log::disk::{Disk, EntryKind};

use super::{LogDirectory, RemovedTopics};
use crate::partition::Identity;

/// The state of a partition's directory.
#[derive(Debug)]
pub enum Placement {
    /// It exists.
    Found,
    /// It was just created.
    Created,
    /// It is damaged or belongs to another topic. It was left untouched.
    Refused(LogError),
}

impl LogDirectory {
    /// Finds each partition's directory, and creates those that never existed.
    ///
    /// - `is_start`: the partitions may have existed before. Otherwise they are new, and a
    ///   directory of that name belongs to a deleted topic.
    /// - `removed`: topics that were deleted according to the metadata log.
    /// - Errors: a directory could not be read or created, and does not exist.
    pub fn place(
        &self,
        identities: &[Identity],
        is_start: bool,
        removed: &RemovedTopics,
    ) -> Result<Vec<Placement>, LogError> {
        let mut missing = Vec::new();
        let mut placements = Vec::with_capacity(identities.len());
        for identity in identities {
            let placement = match self.look(identity, is_start, removed) {
                Err(error @ LogError::Corrupt { .. }) => Placement::Refused(error),
                Err(error) => return Err(error),
                Ok(true) if is_start => Placement::Found,
                // An earlier attempt created it but could not open it.
                Ok(true) => Placement::Created,
                Ok(false) => {
                    missing.push(NewPartitionDirectory {
                        path: partition_directory(&self.path, &identity.topic, identity.index),
                        topic_id: identity.topic_id,
                    });
                    Placement::Created
                }
            };
            placements.push(placement);
        }
        if !missing.is_empty() {
            create_partition_directories(&*self.disk, &self.path, &missing)?;
        }
        Ok(placements)
    }

    /// Whether the partition's directory exists.
    ///
    /// - Errors: `Corrupt` when it is missing but should exist, or belongs to another topic.
    pub(super) fn look(
        &self,
        identity: &Identity,
        is_start: bool,
        removed: &RemovedTopics,
    ) -> Result<bool, LogError> {
        let path = partition_directory(&self.path, &identity.topic, identity.index);
        if !self.disk.exists(&path) {
            return if is_start {
                self.check_never_there(identity, &path).map(|()| false)
            } else {
                Ok(false)
            };
        }
        let holds_records = holds_records(&*self.disk, &path)?;
        match read_partition_metadata(&*self.disk, &path)? {
            Some(topic_id) if topic_id == identity.topic_id => Ok(true),
            // A crash or a full disk interrupted its creation.
            None if !holds_records => {
                if is_start {
                    self.check_never_there(identity, &path.join(PARTITION_METADATA_FILE))?;
                }
                Ok(false)
            }
            None => Err(LogError::corrupt(
                &path.join(PARTITION_METADATA_FILE),
                0,
                format!(
                    "missing, although there are records beside it; if they are this topic's, write the lines \
                     `version: 0` and `topic_id: {}`",
                    identity.topic_id
                ),
            )),
            // A crash interrupted a deletion, and a new topic has the same name.
            Some(other) if !is_start || removed.contains(other, &identity.topic) => {
                self.mark_deleted(&identity.topic, identity.index, other)?;
                Ok(false)
            }
            Some(other) => Err(LogError::corrupt(
                &path.join(PARTITION_METADATA_FILE),
                0,
                format!(
                    "the directory belongs to topic id {other}, the metadata log says {}",
                    identity.topic_id
                ),
            )),
        }
    }

    /// Refuses a partition that is listed, for which `path` is missing.
    fn check_never_there(&self, identity: &Identity, path: &Path) -> Result<(), LogError> {
        let key = (identity.topic.to_string(), identity.index);
        let evidence = &self.evidence;
        let listed = evidence.offsets.recovery_points.get(&key).copied();
        match listed {
            Some(offset) if !evidence.accepts_loss(identity) => Err(LogError::corrupt(
                path,
                0,
                format!("missing, although {RECOVERY_POINT_FILE} lists it with offset {offset}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Whether the directory holds a log file with records.
///
/// - Errors: `Corrupt` if it is not a directory.
fn holds_records(disk: &dyn Disk, directory: &Path) -> Result<bool, LogError> {
    let entries = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(LogError::corrupt(directory, 0, "not a directory"));
        }
        listed => listed.map_err(|source| LogError::io("list", directory, source))?,
    };
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let mut logs = entries.iter().filter(|entry| is_log(&entry.path));
    Ok(logs.any(|entry| entry.bytes > 0 || entry.kind != EntryKind::File))
}
