//! One log directory: the files in it that concern all of its partitions, and the partitions' own directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::checkpoint::{
    self, CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE,
};
use ottla_log::directory::{
    NewPartitionDirectory, PartitionDirectory, PartitionDirectoryKind, create_partition_directories,
    deleted_directory_name, partition_directory, partition_directory_name, read_clean_shutdown,
    read_partition_metadata, remove_clean_shutdown, remove_partition_directory, stray_directory_name,
};
use ottla_log::disk::{Disk, EntryKind};
use ottla_log::{Finding, FindingKind, LogConfig, LogError, OpenOptions, PartitionLog};
use ottla_wire::primitives::Uuid;
use tracing::{error, info, warn};

use crate::partition::Identity;
use crate::time::Timestamp;

/// What the last owner of the directory left behind, read once at start.
#[derive(Debug)]
pub struct LogDirectory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    was_stopped_cleanly: bool,
    recovery_points: OffsetCheckpoint,
    log_starts: OffsetCheckpoint,
    cleaned: OffsetCheckpoint,
}

impl LogDirectory {
    /// Reads what concerns all partitions and takes the clean-stop mark away, before anything is written.
    pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<LogDirectory, LogError> {
        let was_stopped_cleanly = read_clean_shutdown(&*disk, path)?.is_some();
        remove_clean_shutdown(&*disk, path)?;
        let directory = LogDirectory {
            was_stopped_cleanly,
            // A checkpoint that cannot be read costs a longer recovery, not records.
            recovery_points: read_or_empty(&*disk, &path.join(RECOVERY_POINT_FILE)),
            log_starts: read_or_empty(&*disk, &path.join(LOG_START_FILE)),
            cleaned: read_or_empty(&*disk, &path.join(CLEANER_FILE)),
            path: path.to_path_buf(),
            disk,
        };
        directory.remove_deleted()?;
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where compaction of a log goes on; what was cleaned already may be cleaned again.
    pub fn cleaned_offset(&self, topic: &str, index: i32) -> i64 {
        self.cleaned
            .get(&(topic.to_string(), index))
            .copied()
            .unwrap_or(0)
    }

    /// Creates the directories that are missing of these partitions, and sets aside what lies in their places; returns
    /// the numbers of those it created.
    pub fn create_missing(&self, identities: &[Identity]) -> Result<BTreeSet<i32>, LogError> {
        let mut missing = Vec::new();
        let mut created = BTreeSet::new();
        for identity in identities {
            let path = partition_directory(&self.path, &identity.topic, identity.index);
            if self.disk.exists(&path) {
                match read_partition_metadata(&*self.disk, &path)? {
                    Some(topic_id) if topic_id == identity.topic_id => continue,
                    // A creation that a crash or a full disk cut short.
                    None if self.holds_no_records(&path)? => {}
                    _ => self.set_aside(&identity.topic, identity.index)?,
                }
            }
            missing.push(NewPartitionDirectory {
                path,
                topic_id: identity.topic_id,
            });
            created.insert(identity.index);
        }
        if !missing.is_empty() {
            create_partition_directories(&*self.disk, &self.path, &missing)?;
        }
        Ok(created)
    }

    fn holds_no_records(&self, directory: &Path) -> Result<bool, LogError> {
        let listed = self.disk.list(directory);
        let entries = listed.map_err(|source| LogError::io("list", directory, source))?;
        let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
        Ok(!entries.iter().any(|entry| is_log(&entry.path) && entry.bytes > 0))
    }

    /// Opens a partition's log.
    ///
    /// - `is_new`: its directory was just created, and what the checkpoints say concerns an earlier topic of this name.
    pub fn open_log(
        &self,
        identity: &Identity,
        config: LogConfig,
        is_new: bool,
        now: Timestamp,
    ) -> Result<PartitionLog, LogError> {
        let directory = partition_directory(&self.path, &identity.topic, identity.index);
        let mut options = OpenOptions {
            clean_shutdown: self.was_stopped_cleanly,
            recovery_point: 0,
            log_start_offset: 0,
            now_ms: now.0,
            ..OpenOptions::default()
        };
        if !is_new {
            let key = (identity.topic.to_string(), identity.index);
            options.recovery_point = self.recovery_points.get(&key).copied().unwrap_or(0);
            options.log_start_offset = self.log_starts.get(&key).copied().unwrap_or(0);
        }
        let (log, report) = PartitionLog::open(self.disk.clone(), &directory, config, options)?;
        report
            .findings
            .iter()
            .for_each(|finding| report_finding(identity, finding));
        Ok(log)
    }

    /// Renames a partition's directory so that its name is free, and returns where its files are now: to be removed
    /// after `file.delete.delay.ms`, or by `open` after a restart.
    pub fn mark_deleted(&self, topic: &str, index: i32, unique: Uuid) -> Result<PathBuf, LogError> {
        let name = deleted_directory_name(topic, index, unique);
        self.rename(topic, index, &name)?;
        Ok(self.path.join(name))
    }

    /// Keeps a log that belongs to no known topic, under another name, for people to look at.
    fn set_aside(&self, topic: &str, index: i32) -> Result<(), LogError> {
        let directory = partition_directory(&self.path, topic, index);
        let unique = read_partition_metadata(&*self.disk, &directory)?.unwrap_or(Uuid::ZERO);
        info!(
            topic,
            partition = index,
            "set aside a log that belongs to no known topic"
        );
        self.rename(topic, index, &stray_directory_name(topic, index, unique))
    }

    fn rename(&self, topic: &str, index: i32, name: &str) -> Result<(), LogError> {
        let from = partition_directory(&self.path, topic, index);
        let rename = || {
            self.disk.rename(&from, &self.path.join(name))?;
            self.disk.sync_directory(&self.path)
        };
        rename().map_err(|source| LogError::io("rename", &from, source))
    }

    /// Sets aside every partition directory that is not in `known`: directory names like `orders-0`.
    pub fn set_strays_aside(&self, known: &BTreeSet<String>) -> Result<(), LogError> {
        for (name, parsed) in self.partition_directories()? {
            if parsed.kind == PartitionDirectoryKind::Live && !known.contains(&name) {
                self.set_aside(&parsed.topic, parsed.partition)?;
            }
        }
        Ok(())
    }

    /// Removes what was deleted before the last stop. May take long for large logs.
    fn remove_deleted(&self) -> Result<(), LogError> {
        for (name, parsed) in self.partition_directories()? {
            if parsed.kind == PartitionDirectoryKind::Deleted {
                remove_partition_directory(&*self.disk, &self.path.join(name))?;
            }
        }
        Ok(())
    }

    fn partition_directories(&self) -> Result<Vec<(String, PartitionDirectory)>, LogError> {
        let entries = self
            .disk
            .list(&self.path)
            .map_err(|source| LogError::io("list", &self.path, source))?;
        let parse = |path: &Path| {
            let name = path.file_name()?.to_str()?.to_string();
            let parsed = PartitionDirectory::parse(&name)?;
            Some((name, parsed))
        };
        Ok(entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Directory)
            .filter_map(|entry| parse(&entry.path))
            .collect())
    }

    pub fn write_checkpoints(&self, offsets: &CheckpointOffsets) -> Result<(), LogError> {
        let write = |file, offsets| checkpoint::write_offsets(&*self.disk, &self.path.join(file), offsets);
        write(RECOVERY_POINT_FILE, &offsets.recovery_points)?;
        write(HIGH_WATERMARK_FILE, &offsets.high_watermarks)?;
        write(LOG_START_FILE, &offsets.log_starts)?;
        write(CLEANER_FILE, &offsets.cleaned)
    }

    pub fn write_log_starts(&self, log_starts: &OffsetCheckpoint) -> Result<(), LogError> {
        checkpoint::write_offsets(&*self.disk, &self.path.join(LOG_START_FILE), log_starts)
    }
}

/// The contents of the four `*-offset-checkpoint` files.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOffsets {
    pub recovery_points: OffsetCheckpoint,
    pub high_watermarks: OffsetCheckpoint,
    pub log_starts: OffsetCheckpoint,
    pub cleaned: OffsetCheckpoint,
}

/// The directory name of a partition, as `set_strays_aside` wants it.
pub fn directory_name(topic: &str, index: i32) -> String {
    partition_directory_name(topic, index)
}

/// One line for the operator: what was found in which file, where, and what it means for the log.
fn report_finding(identity: &Identity, finding: &Finding) {
    let (topic, partition, position) = (&*identity.topic, identity.index, finding.position);
    let (file, detail) = (finding.path.display(), &*finding.detail);
    match finding.kind {
        FindingKind::CutEnd => {
            warn!(topic, partition, %file, position, detail, "cut an unfinished end off a log");
        }
        FindingKind::CutBatches => {
            error!(topic, partition, %file, position, detail, "cut a log in front of whole batches");
        }
        FindingKind::Kept => {
            warn!(topic, partition, %file, detail, "kept what was cut off a log");
        }
        FindingKind::NotKept => {
            error!(topic, partition, %file, detail, "did not keep what was cut off a log");
        }
        FindingKind::Damaged => {
            error!(topic, partition, %file, position, detail, "records are damaged, the others are served");
        }
        FindingKind::Lost => {
            error!(topic, partition, %file, position, detail, "records are lost, as accepted");
        }
        FindingKind::Contradiction => {
            warn!(topic, partition, %file, detail, "two files contradict each other");
        }
    }
}

fn read_or_empty(disk: &dyn Disk, path: &Path) -> OffsetCheckpoint {
    checkpoint::read_offsets(disk, path).unwrap_or_else(|error| {
        warn!(%error, "checkpoint is unreadable, recovery will read more");
        OffsetCheckpoint::default()
    })
}
