//! Whose the directories of partitions are: found, to be made, or not to be touched.

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

/// What is to be done about a partition's directory.
#[derive(Debug)]
pub enum Placement {
    /// It is there.
    Found,
    /// It was made just now.
    Created,
    /// Something is wrong with it. It was left alone.
    Refused(LogError),
}

impl LogDirectory {
    /// Says for each partition whether its directory is there, and makes those that never were.
    ///
    /// - `is_start`: the partitions may have been there before. Otherwise they are new, whatever bears their names.
    /// - `removed`: topics that the metadata log says were deleted.
    /// - Errors: a directory could not be looked at or made, and is not there.
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
                // An earlier attempt made it and could not open it.
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

    /// Whether the partition's directory is there.
    ///
    /// - Errors: `Corrupt` when it should be and is not, or is somebody else's.
    pub(super) fn look(
        &self,
        identity: &Identity,
        is_start: bool,
        removed: &RemovedTopics,
    ) -> Result<bool, LogError> {
        let path = partition_directory(&self.path, &identity.topic, identity.index);
        if !self.disk.exists(&path) {
            return match is_start {
                true => self.check_never_there(identity, &path).map(|()| false),
                false => Ok(false),
            };
        }
        let holds_records = holds_records(&*self.disk, &path)?;
        match read_partition_metadata(&*self.disk, &path)? {
            Some(topic_id) if topic_id == identity.topic_id => Ok(true),
            // A creation that a crash or a full disk cut short.
            None if !holds_records => {
                if is_start {
                    self.check_never_there(identity, &path)?;
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
            // A deletion that a crash cut short, and a new topic of the same name.
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

/// - Errors: `Corrupt` for what is no directory.
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
