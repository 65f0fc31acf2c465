//! Evidence that the last owner of a log directory left behind, and its consequences for the logs:
//! read at start, never changed.

use std::io;
use std::path::Path;

use ottla_log::checkpoint::{
    self, CLEANER_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, OffsetCheckpoint, RECOVERY_POINT_FILE,
    read_file, write_file,
};
use ottla_log::directory::{CLEAN_SHUTDOWN_FILE, partition_directory_name, read_clean_shutdown};
use ottla_log::disk::Disk;
use ottla_log::{LogError, OpenOptions};
use tracing::warn;

use super::check_temporary;
use crate::config::{Durability, RecoveryConfig};
use crate::partition::Identity;
use crate::time::Timestamp;

/// Marks the checkpoints as this broker's, which prove more than Apache Kafka's. Kafka ignores the
/// file.
const OWNER_FILE: &str = ".ottla-owner";

/// The contents of the four `*-offset-checkpoint` files.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOffsets {
    /// Also a register: every partition listed here has a directory.
    pub recovery_points: OffsetCheckpoint,
    pub high_watermarks: OffsetCheckpoint,
    pub log_starts: OffsetCheckpoint,
    pub cleaned: OffsetCheckpoint,
}

/// One of the four files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointFile {
    RecoveryPoints,
    HighWatermarks,
    LogStarts,
    Cleaned,
}

impl CheckpointFile {
    pub const ALL: [CheckpointFile; 4] = [
        CheckpointFile::RecoveryPoints,
        CheckpointFile::HighWatermarks,
        CheckpointFile::LogStarts,
        CheckpointFile::Cleaned,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            CheckpointFile::RecoveryPoints => RECOVERY_POINT_FILE,
            CheckpointFile::HighWatermarks => HIGH_WATERMARK_FILE,
            CheckpointFile::LogStarts => LOG_START_FILE,
            CheckpointFile::Cleaned => CLEANER_FILE,
        }
    }

    /// What it means that the file is missing.
    fn without(self) -> &'static str {
        match self {
            CheckpointFile::LogStarts => "records that clients had deleted may be readable again",
            _ => "recovery reads more and can prove less",
        }
    }
}

impl CheckpointOffsets {
    pub(super) fn of(&self, file: CheckpointFile) -> &OffsetCheckpoint {
        match file {
            CheckpointFile::RecoveryPoints => &self.recovery_points,
            CheckpointFile::HighWatermarks => &self.high_watermarks,
            CheckpointFile::LogStarts => &self.log_starts,
            CheckpointFile::Cleaned => &self.cleaned,
        }
    }

    /// Keeps the old entries of partitions that were not opened.
    pub(super) fn keep(&mut self, partitions: &[(String, i32)], from: &CheckpointOffsets) {
        let pairs = [
            (&mut self.recovery_points, &from.recovery_points),
            (&mut self.high_watermarks, &from.high_watermarks),
            (&mut self.log_starts, &from.log_starts),
            (&mut self.cleaned, &from.cleaned),
        ];
        for (offsets, from) in pairs {
            let known = partitions
                .iter()
                .filter_map(|key| Some((key.clone(), *from.get(key)?)));
            offsets.extend(known);
        }
    }
}

/// The promises of this broker about a directory that it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnerMark {
    broker_epoch: i64,
    durability: Durability,
}

/// Returns the names of all files of evidence.
pub(super) fn file_names() -> impl Iterator<Item = &'static str> {
    let checkpoints = CheckpointFile::ALL.into_iter().map(CheckpointFile::name);
    checkpoints.chain([CLEAN_SHUTDOWN_FILE, OWNER_FILE])
}

#[derive(Debug)]
pub(super) struct Evidence {
    pub offsets: CheckpointOffsets,
    /// The files that are missing, empty or damaged.
    absent: Vec<CheckpointFile>,
    /// The broker epoch in the clean-shutdown mark; −1: it names none.
    clean_stop: Option<i64>,
    owner: Option<OwnerMark>,
    /// The epoch of the last broker registration in the metadata log.
    last_broker_epoch: i64,
    recovery: RecoveryConfig,
}

impl Evidence {
    /// Reads the evidence.
    ///
    /// - Errors: a file exists and cannot be read, or could not be written. A damaged file counts
    ///   as missing, and is logged.
    pub fn read(disk: &dyn Disk, directory: &Path, recovery: RecoveryConfig) -> Result<Evidence, LogError> {
        file_names().try_for_each(|name| check_temporary(disk, &directory.join(name)))?;
        let mut absent = Vec::new();
        let mut offsets = |file: CheckpointFile| {
            let read = read_intact(disk, &directory.join(file.name()), file.without())?;
            if read.is_none() {
                absent.push(file);
            }
            Ok::<_, LogError>(read.unwrap_or_default())
        };
        Ok(Evidence {
            offsets: CheckpointOffsets {
                recovery_points: offsets(CheckpointFile::RecoveryPoints)?,
                high_watermarks: offsets(CheckpointFile::HighWatermarks)?,
                log_starts: offsets(CheckpointFile::LogStarts)?,
                cleaned: offsets(CheckpointFile::Cleaned)?,
            },
            absent,
            clean_stop: read_clean_shutdown(disk, directory)?,
            owner: OwnerMark::read(disk, directory)?,
            last_broker_epoch: -1,
            recovery,
        })
    }

    pub fn accepts_loss(&self, identity: &Identity) -> bool {
        let name = partition_directory_name(&identity.topic, identity.index);
        self.recovery.accept_loss.contains(&name)
    }

    /// Invalidates marks of an earlier run: each mark is valid for one run of a broker only.
    pub fn hold_against(&mut self, last_broker_epoch: i64) {
        self.last_broker_epoch = last_broker_epoch;
        if self.clean_stop.is_some() && !self.was_stopped_cleanly() {
            let marked = self.clean_stop;
            warn!(
                ?marked,
                last_broker_epoch, "the mark of a clean stop is of an earlier run: all logs are checked"
            );
        }
        // This broker writes all four before its mark.
        if self.owner().is_some() {
            for file in &self.absent {
                let (file, meaning) = (file.name(), file.without());
                warn!(file, "the checkpoint is missing, empty or damaged: {meaning}");
            }
        }
    }

    pub fn has_clean_stop_mark(&self) -> bool {
        self.clean_stop.is_some()
    }

    pub fn was_stopped_cleanly(&self) -> bool {
        self.clean_stop
            .is_some_and(|epoch| epoch < 0 || epoch == self.last_broker_epoch)
    }

    fn owner(&self) -> Option<OwnerMark> {
        self.owner
            .filter(|owner| owner.broker_epoch == self.last_broker_epoch)
    }

    /// Returns the evidence that a log from before the start is checked against.
    pub fn options(&self, identity: &Identity, now: Timestamp) -> OpenOptions {
        let key = (identity.topic.to_string(), identity.index);
        let offset_in = |offsets: &OffsetCheckpoint| offsets.get(&key).copied();
        let log_start = offset_in(&self.offsets.log_starts);
        let log_start_offset = log_start.unwrap_or(0);
        let clean_shutdown = self.was_stopped_cleanly();
        let owner = self.owner();
        // Without durability a power cut may have lost records that were visible.
        let visible_is_durable =
            clean_shutdown || owner.is_some_and(|owner| owner.durability == Durability::Disk);
        let high_watermark = offset_in(&self.offsets.high_watermarks).unwrap_or(0);
        OpenOptions {
            clean_shutdown,
            recovery_point: offset_in(&self.offsets.recovery_points).unwrap_or(0),
            log_start_offset,
            proven_end: if visible_is_durable {
                high_watermark.max(log_start_offset)
            } else {
                0
            },
            // Kafka lists a log start only where it is inside the first segment, this broker each
            // that is above 0.
            is_start_proven: owner.is_some() && !self.absent.contains(&CheckpointFile::LogStarts)
                || clean_shutdown && log_start.is_some(),
            // Restored topics have lost the setting that they were compacted.
            gaps_below: if self.recovery.recover_metadata {
                i64::MAX
            } else {
                self.cleaned_offset(&identity.topic, identity.index)
            },
            accept_loss: self.accepts_loss(identity),
            now_ms: now.0,
        }
    }

    /// Returns the high watermark of the last checkpoint, whether or not it was durable.
    pub fn high_watermark(&self, identity: &Identity) -> i64 {
        let key = (identity.topic.to_string(), identity.index);
        self.offsets.high_watermarks.get(&key).copied().unwrap_or(0)
    }

    /// Returns where compaction of a log continues; records before it may have been cleaned
    /// already.
    pub fn cleaned_offset(&self, topic: &str, index: i32) -> i64 {
        let key = (topic.to_string(), index);
        self.offsets.cleaned.get(&key).copied().unwrap_or(0)
    }
}

/// Writes the mark durably. The checkpoints must be complete before.
pub(super) fn write_owner(
    disk: &dyn Disk,
    directory: &Path,
    broker_epoch: i64,
    durability: Durability,
) -> Result<(), LogError> {
    let durability = match durability {
        Durability::Disk => "disk",
        Durability::PageCache => "page-cache",
    };
    let text = format!("version=0\nbroker.epoch={broker_epoch}\nottla.durability={durability}\n");
    write_file(disk, &directory.join(OWNER_FILE), text.as_bytes())
}

pub(super) fn remove_owner(disk: &dyn Disk, directory: &Path) -> Result<(), LogError> {
    let path = directory.join(OWNER_FILE);
    match disk.remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", &path, error)),
        _ => disk
            .sync_directory(directory)
            .map_err(|source| LogError::io("sync", directory, source)),
    }
}

impl OwnerMark {
    /// Reads the mark; `None` also for a damaged file: without it the logs are opened as Apache
    /// Kafka's.
    fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<OwnerMark>, LogError> {
        let path = directory.join(OWNER_FILE);
        let Some(bytes) = read_file(disk, &path)? else {
            return Ok(None);
        };
        let mark = OwnerMark::parse(&String::from_utf8_lossy(&bytes));
        if mark.is_none() {
            warn!(file = %path.display(), "the file is damaged: the checkpoints prove less");
        }
        Ok(mark)
    }

    fn parse(text: &str) -> Option<OwnerMark> {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        if value("version") != Some("0") {
            return None;
        }
        Some(OwnerMark {
            broker_epoch: value("broker.epoch")?.parse().ok()?,
            durability: match value("ottla.durability")? {
                "disk" => Durability::Disk,
                "page-cache" => Durability::PageCache,
                _ => return None,
            },
        })
    }
}

/// Returns the offsets in the file; `None`: it is missing, empty or damaged. `meaning` is logged
/// with a damage.
///
/// - Errors: also something that is not a regular file. The broker could not write the checkpoint,
///   and would fail after it had changed others.
fn read_intact(disk: &dyn Disk, path: &Path, meaning: &str) -> Result<Option<OffsetCheckpoint>, LogError> {
    match checkpoint::read_offsets(disk, path) {
        Err(error @ LogError::Corrupt { .. }) if !checkpoint::is_irregular(&error) => {
            warn!(%error, "the checkpoint is damaged: {meaning}");
            Ok(None)
        }
        Ok(offsets) if offsets.is_empty() => {
            let is_there = read_file(disk, path)?.is_some_and(|bytes| !bytes.is_empty());
            Ok(is_there.then_some(offsets))
        }
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use ottla_log::disk::memory::MemoryDisk;
    use ottla_wire::primitives::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp(1);

    fn evidence(clean_stop: Option<i64>, owner: Option<(i64, Durability)>) -> Evidence {
        let key = ("orders".to_owned(), 0);
        let mut evidence = Evidence {
            offsets: CheckpointOffsets {
                recovery_points: [(key.clone(), 100)].into(),
                high_watermarks: [(key, 150)].into(),
                ..CheckpointOffsets::default()
            },
            absent: Vec::new(),
            clean_stop,
            owner: owner.map(|(broker_epoch, durability)| OwnerMark {
                broker_epoch,
                durability,
            }),
            last_broker_epoch: -1,
            recovery: RecoveryConfig::default(),
        };
        evidence.hold_against(7);
        evidence
    }

    fn check(evidence: Evidence, clean_shutdown: bool, proven_end: i64, is_start_proven: bool) {
        let identity = Identity {
            topic_id: Uuid([1; 16]),
            topic: "orders".into(),
            index: 0,
        };
        let options = evidence.options(&identity, NOW);
        let found = (
            options.clean_shutdown,
            options.proven_end,
            options.is_start_proven,
        );
        assert_eq!(
            found,
            (clean_shutdown, proven_end, is_start_proven),
            "{evidence:?}"
        );
        assert_eq!(options.recovery_point, 100);
    }

    #[test]
    fn visible_records_are_proven_only_where_they_were_durable() {
        check(evidence(None, None), false, 0, false);
        check(evidence(Some(7), None), true, 150, false);
        check(evidence(Some(-1), None), true, 150, false);
        check(evidence(None, Some((7, Durability::Disk))), false, 150, true);
        check(evidence(None, Some((7, Durability::PageCache))), false, 0, true);
    }

    #[test]
    fn marks_of_an_earlier_run_prove_nothing() {
        check(evidence(Some(6), Some((6, Durability::Disk))), false, 0, false);
    }

    #[test]
    fn an_owner_mark_is_read_back_and_a_damaged_one_is_none() {
        let disk = MemoryDisk::new(1);
        let directory = Path::new("data");
        disk.create_directories(directory).unwrap();
        for durability in [Durability::Disk, Durability::PageCache] {
            write_owner(&disk, directory, 39, durability).unwrap();
            let expected = OwnerMark {
                broker_epoch: 39,
                durability,
            };
            assert_eq!(OwnerMark::read(&disk, directory).unwrap(), Some(expected));
        }
        for text in [
            "",
            "version=1\nbroker.epoch=1\nottla.durability=disk\n",
            "version=0\nbroker.epoch=x\n",
        ] {
            disk.write_file(&directory.join(OWNER_FILE), text.as_bytes());
            assert_eq!(OwnerMark::read(&disk, directory).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn a_damaged_checkpoint_is_forgiven_and_a_directory_in_its_place_is_not() {
        let disk = MemoryDisk::new(1);
        let path = Path::new("data").join("cleaner-offset-checkpoint");
        disk.create_directories(Path::new("data")).unwrap();
        assert_eq!(read_intact(&disk, &path, "").unwrap(), None);
        for text in ["0\n7\n", ""] {
            disk.write_file(&path, text.as_bytes());
            assert_eq!(read_intact(&disk, &path, "").unwrap(), None);
        }
        disk.remove_file(&path).unwrap();
        disk.create_directories(&path).unwrap();
        let error = read_intact(&disk, &path, "").unwrap_err().to_string();
        assert!(error.contains("cleaner-offset-checkpoint"), "{error}");
    }
}
