//! One log directory: the files that concern all of its partitions, and the partition directories.

mod evidence;
mod findings;
mod placement;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ottla_log::checkpoint;
use ottla_log::directory::{
    CLEAN_SHUTDOWN_FILE, PartitionDirectory, PartitionDirectoryKind, deleted_directory_name,
    last_leader_epoch, partition_directory, partition_directory_name, read_partition_metadata,
    remove_partition_directory, stray_directory_name,
};
use ottla_log::disk::{DirectoryEntry, Disk, EntryKind};
use ottla_log::{Finding, LogConfig, LogError, OpenOptions, PartitionLog};
use ottla_wire::primitives::Uuid;
use tracing::{error, info, warn};

use crate::config::{Durability, RecoveryConfig};
use crate::image::topics::TopicImage;
use crate::image::{METADATA_TOPIC, MetadataImage};
use crate::partition::Identity;
use crate::time::Timestamp;

pub use evidence::{CheckpointFile, CheckpointOffsets};
pub use placement::Placement;

use evidence::Evidence;

/// One log directory.
///
/// - Shape: the evidence of the last owner is read once, by `read`; nothing is changed before
///   `take_over`.
#[derive(Debug)]
pub struct LogDirectory {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    evidence: Evidence,
    /// Held while checkpoints are collected and written: two writers would mix their files, or undo
    /// each other's changes.
    checkpoints: Mutex<()>,
}

impl LogDirectory {
    /// Reads the files that concern all partitions.
    pub fn read(
        disk: Arc<dyn Disk>,
        path: &Path,
        recovery: RecoveryConfig,
    ) -> Result<LogDirectory, LogError> {
        Ok(LogDirectory {
            evidence: Evidence::read(&*disk, path, recovery)?,
            path: path.to_path_buf(),
            disk,
            checkpoints: Mutex::default(),
        })
    }

    /// Puts the clean-shutdown mark aside, before anything else is changed.
    ///
    /// - `last_broker_epoch`: of the last registration in the metadata log, which the marks must
    ///   match.
    pub fn take_over(&mut self, last_broker_epoch: i64) -> Result<(), LogError> {
        self.evidence.hold_against(last_broker_epoch);
        if !self.evidence.was_stopped_cleanly() {
            self.disk.settle(&self.path);
        }
        if !self.has_clean_stop_mark() {
            return Ok(());
        }
        let mark = self.path.join(CLEAN_SHUTDOWN_FILE);
        self.rename_mark(&mark, &checkpoint::temporary_path(&mark))
    }

    /// Undoes `take_over`, for a start that failed before it changed a log. Needs no space on the
    /// disk.
    pub fn put_back_mark(&self) {
        if !self.has_clean_stop_mark() {
            return;
        }
        let mark = self.path.join(CLEAN_SHUTDOWN_FILE);
        if let Err(error) = self.rename_mark(&checkpoint::temporary_path(&mark), &mark) {
            warn!(%error, "cannot put back the mark of a clean stop: the next start checks all logs");
        }
    }

    /// Removes what `take_over` put aside. The file has no meaning under that name.
    pub fn remove_mark(&self) {
        let aside = checkpoint::temporary_path(&self.path.join(CLEAN_SHUTDOWN_FILE));
        let _ = self.disk.remove_file(&aside);
    }

    fn rename_mark(&self, from: &Path, to: &Path) -> Result<(), LogError> {
        let rename = || {
            self.disk.rename(from, to)?;
            self.disk.sync_directory(&self.path)
        };
        rename().map_err(|source| LogError::io("rename", from, source))
    }

    /// Whether the broker that registered last stopped cleanly.
    pub fn was_stopped_cleanly(&mut self, last_broker_epoch: i64) -> bool {
        self.evidence.hold_against(last_broker_epoch);
        self.evidence.was_stopped_cleanly()
    }

    /// Whether there is a clean-shutdown mark; whether it is valid, `take_over` decides.
    pub fn has_clean_stop_mark(&self) -> bool {
        self.evidence.has_clean_stop_mark()
    }

    /// Returns the offset below which a partition's log was durable at the last checkpoint; `None`:
    /// it is not listed.
    pub fn recovery_point(&self, topic: &str, index: i32) -> Option<i64> {
        let key = (topic.to_owned(), index);
        self.evidence.offsets.recovery_points.get(&key).copied()
    }

    /// Returns the name of something that only a broker that ran in the directory can have left
    /// there. Empty checkpoints prove nothing: Apache Kafka creates them before its first record.
    pub fn any_trace(&self) -> Result<Option<String>, LogError> {
        let listed = self.disk.list(&self.path);
        let entries = listed.map_err(|source| LogError::io("list", &self.path, source))?;
        let trace = |entry: &DirectoryEntry| {
            let name = entry.path.file_name()?.to_str()?;
            let is_partition = PartitionDirectory::parse(name).is_some_and(|found| {
                found.topic != METADATA_TOPIC || found.kind != PartitionDirectoryKind::Live
            });
            let is_evidence = evidence::file_names().any(|file| file == name);
            // Old versions of Apache Kafka write an empty mark of a clean stop.
            let says_something = entry.bytes > 0 || name == CLEAN_SHUTDOWN_FILE;
            (is_partition || is_evidence && says_something).then(|| name.to_owned())
        };
        Ok(entries.iter().find_map(trace))
    }

    /// Returns the directory name of a partition in the checkpoints, if any is listed: such a
    /// directory must have existed.
    pub fn any_listed(&self) -> Option<String> {
        let mut listed = self.evidence.offsets.recovery_points.keys();
        listed
            .next()
            .map(|(topic, index)| partition_directory_name(topic, *index))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a partition's log, and logs its damage.
    ///
    /// - `placement`: checkpoint entries do not apply to a directory that was just created.
    /// - Errors: `Corrupt`: the log was left unchanged.
    pub fn open_log(
        &self,
        identity: &Identity,
        config: LogConfig,
        placement: &Placement,
        now: Timestamp,
    ) -> Result<OpenedLog, LogError> {
        let directory = partition_directory(&self.path, &identity.topic, identity.index);
        let is_found = matches!(placement, Placement::Found);
        let options = if is_found || self.evidence.accepts_loss(identity) {
            self.evidence.options(identity, now)
        } else {
            OpenOptions {
                clean_shutdown: true,
                now_ms: now.0,
                ..OpenOptions::default()
            }
        };
        let (log, report) = PartitionLog::open(self.disk.clone(), &directory, config, options)?;
        let findings = &report.findings;
        findings
            .iter()
            .for_each(|finding| findings::report(identity, finding));
        let (visible, end) = (self.evidence.high_watermark(identity), log.end_offset());
        if is_found && visible > end {
            let (topic, partition) = (&*identity.topic, identity.index);
            error!(
                topic,
                partition, visible, end, "records that were visible are gone: they had not been made durable"
            );
        }
        let gaps_below = options.gaps_below.max(report.gap_end.unwrap_or(0));
        Ok(OpenedLog {
            gaps_below: gaps_below.min(log.end_offset()),
            log,
        })
    }

    /// Returns what opening a partition's log would find, or why it would be refused. Nothing is
    /// changed.
    pub fn check_log(
        &self,
        identity: &Identity,
        config: LogConfig,
        now: Timestamp,
    ) -> Result<Vec<Finding>, LogError> {
        if !self.look(identity, true, &RemovedTopics::default())? {
            return Ok(Vec::new());
        }
        let directory = partition_directory(&self.path, &identity.topic, identity.index);
        let options = self.evidence.options(identity, now);
        let report = PartitionLog::check(self.disk.clone(), &directory, config, options)?;
        Ok(report.findings)
    }

    /// Logs why a partition is not served.
    pub fn report_refusal(&self, identity: &Identity, refusal: &LogError) {
        findings::report_refusal(identity, refusal);
    }

    /// Renames a partition's directory so that its name is free, and returns the new path. It is
    /// removed after `file.delete.delay.ms`, or by `remove_deleted` after a restart.
    pub fn mark_deleted(&self, topic: &str, index: i32, unique: Uuid) -> Result<PathBuf, LogError> {
        let name = self.free_name(unique, |unique| deleted_directory_name(topic, index, unique));
        self.rename(topic, index, &name)?;
        Ok(self.path.join(name))
    }

    /// Renames a log that belongs to no known topic, and keeps it for the operator to inspect.
    fn set_aside(&self, topic: &str, index: i32, topic_id: Option<Uuid>) -> Result<(), LogError> {
        let unique = topic_id.unwrap_or(Uuid::ZERO);
        let name = self.free_name(unique, |unique| stray_directory_name(topic, index, unique));
        let topic_id = topic_id.map(|id| id.to_string()).unwrap_or_default();
        let way_back = format!(
            "stop, rename {name} to {}, start with --recover-metadata",
            partition_directory_name(topic, index)
        );
        self.rename(topic, index, &name)?;
        warn!(
            topic,
            partition = index,
            topic_id,
            way_back,
            "set aside a log that belongs to no known topic"
        );
        Ok(())
    }

    /// Returns the first name from `unique` on that nothing has: an operator may have copied a
    /// directory back, and a rename replaces only empty ones.
    fn free_name(&self, unique: Uuid, name: impl Fn(Uuid) -> String) -> String {
        let mut number = u128::from_be_bytes(unique.0);
        loop {
            let name = name(Uuid(number.to_be_bytes()));
            if !self.disk.exists(&self.path.join(&name)) {
                return name;
            }
            number = number.wrapping_add(1);
        }
    }

    fn rename(&self, topic: &str, index: i32, name: &str) -> Result<(), LogError> {
        let from = partition_directory(&self.path, topic, index);
        let rename = || {
            self.disk.rename(&from, &self.path.join(name))?;
            self.disk.sync_directory(&self.path)
        };
        rename().map_err(|source| LogError::io("rename", &from, source))
    }

    /// Settles every partition directory that is not in `known` (directory names like `orders-0`):
    /// for a topic in `removed` the deletion is finished, others are set aside. One that cannot be
    /// settled stays where it is, and is reported: the start has changed things already.
    pub fn settle_unknown(&self, known: &BTreeSet<String>, removed: &RemovedTopics) -> Result<(), LogError> {
        for (name, parsed) in self.unknown_names(known)? {
            let settled = self
                .examine(&name, parsed)
                .and_then(|unknown| self.settle(&unknown, removed));
            if let Err(error) = settled {
                let directory = self.path.join(name);
                let directory = directory.display();
                error!(%directory, %error, "cannot move a log that belongs to no known topic");
            }
        }
        Ok(())
    }

    fn settle(&self, unknown: &UnknownDirectory, removed: &RemovedTopics) -> Result<(), LogError> {
        let (topic, index) = (&*unknown.topic, unknown.partition);
        match unknown.topic_id {
            Some(id) if removed.contains(id, topic) => {
                let path = self.mark_deleted(topic, index, id)?;
                info!(topic, partition = index, "finished the deletion of a topic");
                self.remove_files(&path);
                Ok(())
            }
            topic_id => self.set_aside(topic, index, topic_id),
        }
    }

    /// Returns the partition directories that are not in `known`.
    pub fn unknown_directories(&self, known: &BTreeSet<String>) -> Result<Vec<UnknownDirectory>, LogError> {
        let names = self.unknown_names(known)?.into_iter();
        names.map(|(name, parsed)| self.examine(&name, parsed)).collect()
    }

    fn unknown_names(&self, known: &BTreeSet<String>) -> Result<Vec<(String, PartitionDirectory)>, LogError> {
        let mut names = self.partition_directories()?;
        names.retain(|(name, parsed)| parsed.kind == PartitionDirectoryKind::Live && !known.contains(name));
        Ok(names)
    }

    /// Reads which topic a directory belongs to. A damaged file proves no more than a missing one.
    fn examine(&self, name: &str, parsed: PartitionDirectory) -> Result<UnknownDirectory, LogError> {
        let path = self.path.join(name);
        Ok(UnknownDirectory {
            topic_id: unless_damaged(read_partition_metadata(&*self.disk, &path))?,
            leader_epoch: unless_damaged(last_leader_epoch(&*self.disk, &path))?,
            topic: parsed.topic,
            partition: parsed.partition,
        })
    }

    /// Removes directories that were deleted before the last stop. May take long for large logs. A
    /// directory that cannot be removed does no harm.
    pub fn remove_deleted(&self) -> Result<(), LogError> {
        for (name, parsed) in self.partition_directories()? {
            if parsed.kind == PartitionDirectoryKind::Deleted {
                self.remove_files(&self.path.join(name));
            }
        }
        Ok(())
    }

    fn remove_files(&self, deleted: &Path) {
        if let Err(error) = remove_partition_directory(&*self.disk, deleted) {
            warn!(%error, "cannot remove the files of a deleted topic");
        }
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

    /// Writes checkpoints with the result of `collect`, and keeps the old entries of refused
    /// partitions.
    ///
    /// - `refused`: topic and partition.
    pub fn write_checkpoints(
        &self,
        files: &[CheckpointFile],
        refused: &[(String, i32)],
        collect: impl FnOnce() -> CheckpointOffsets,
    ) -> Result<(), LogError> {
        let _turn = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offsets = collect();
        offsets.keep(refused, &self.evidence.offsets);
        files.iter().try_for_each(|file| {
            let path = self.path.join(file.name());
            checkpoint::write_offsets(&*self.disk, &path, offsets.of(*file))
        })
    }

    /// Marks the checkpoints, which were written in this run, as this broker's.
    pub fn sign(&self, broker_epoch: i64, durability: Durability) -> Result<(), LogError> {
        evidence::write_owner(&*self.disk, &self.path, broker_epoch, durability)
    }

    /// Removes the mark: the checkpoints then prove no more than Apache Kafka's.
    pub fn unsign(&self) -> Result<(), LogError> {
        evidence::remove_owner(&*self.disk, &self.path)
    }
}

/// An open log, with information that only the checkpoints have.
#[derive(Debug)]
pub struct OpenedLog {
    pub log: PartitionLog,
    /// Offsets below may be missing, because of compaction or an accepted loss. Compaction
    /// continues here; records before it may have been cleaned already.
    pub gaps_below: i64,
}

/// Refuses a directory or the like in the place where the new contents of `path` are written: the
/// start would fail after it had changed other files.
pub(crate) fn check_temporary(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    match checkpoint::read_file(disk, &checkpoint::temporary_path(path)) {
        Err(error) if checkpoint::is_irregular(&error) => Err(error),
        _ => Ok(()),
    }
}

fn unless_damaged<T>(read: Result<Option<T>, LogError>) -> Result<Option<T>, LogError> {
    match read {
        Err(LogError::Corrupt { .. }) => Ok(None),
        read => read,
    }
}

/// Topics that were deleted according to the metadata log.
#[derive(Debug, Default)]
pub struct RemovedTopics(pub BTreeMap<Uuid, Arc<str>>);

impl RemovedTopics {
    /// Whether a directory with this name and topic id belonged to a deleted topic. Both must
    /// match, because the id may be damaged.
    pub fn contains(&self, id: Uuid, topic: &str) -> bool {
        self.0.get(&id).is_some_and(|name| **name == *topic)
    }
}

/// A partition directory that is not in the metadata log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDirectory {
    pub topic: String,
    pub partition: i32,
    /// `None`: `partition.metadata` is missing or damaged.
    pub topic_id: Option<Uuid>,
    /// The largest leader epoch in its log.
    pub leader_epoch: Option<i32>,
}

/// Returns the directory name of a partition, as used by `settle_unknown`.
pub fn directory_name(topic: &str, index: i32) -> String {
    partition_directory_name(topic, index)
}

/// Returns the names of all partition directories, including the controller's own log, which no
/// image lists.
pub(crate) fn known_directories(image: &MetadataImage) -> BTreeSet<String> {
    let of_topic = |topic: &Arc<TopicImage>| {
        let name = topic.name.clone();
        (0..topic.partitions.len()).map(move |index| directory_name(&name, index as i32))
    };
    let mut known: BTreeSet<String> = image.topics.iter().flat_map(of_topic).collect();
    known.insert(directory_name(METADATA_TOPIC, 0));
    known
}
