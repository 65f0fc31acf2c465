//! Opening a directory: finds the last valid batch, reports damage, completes what a crash
//! interrupted.
//!
//! After a clean stop only the ends of segments are examined. After a crash everything from the
//! recovery point on is read and verified; everything below, indexes included, was durable when the
//! recovery point was written.
//!
//! Nothing is changed before it is certain that the log opens. Data that was durable and is missing
//! is damage: if other records can be read without it, it stays in place and is reported; otherwise
//! the log is refused. An end that was not known to be durable is unfinished, and is truncated.
//!
//! Reading order: the modules below, top to bottom.

mod aborts;
mod files;
mod segments;
mod repair;
mod replay;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::{read_file, write_file};
use crate::config::LogConfig;
use crate::disk::{Disk, OpenMode};
use crate::error::LogError;
use crate::index_file::IndexEntry;
use crate::leader_epoch::LeaderEpochs;
use crate::offset_index::OffsetEntry;
use crate::partition_log::{ActiveSegment, OpenedLog, PartitionLog, create_segment};
use crate::producer_state::ProducerState;
use crate::read_mode::ReadMode;
use crate::reader::{Bound, LogReader, ReaderState, SegmentPosition, segment_index};
use crate::segment::{FileKind, IndexProgress, Segment, SegmentIndexes, file_path};
use crate::time_index::TimeEntry;
use crate::transaction_index::AbortedTransaction;

use files::DirectoryFiles;
pub(crate) use files::{is_snapshot, segment_base_offset};
use repair::{Keep, Repair};
use segments::Tail;

/// What the checkpoint files of the log directory say about a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The broker that wrote the directory stopped cleanly (`.kafka_cleanshutdown` existed).
    pub clean_shutdown: bool,
    /// From `recovery-point-offset-checkpoint`; 0 when it is not listed there.
    pub recovery_point: i64,
    /// From `log-start-offset-checkpoint`; 0 when it is not listed there. A log without segments
    /// begins here.
    pub log_start_offset: i64,
    /// The log must reach at least to this offset, or it is damaged. The recovery point is implied.
    pub proven_end: i64,
    /// The first segment must begin at or below `log_start_offset`, or the log is damaged.
    pub is_start_proven: bool,
    /// Compaction may have left gaps below this offset, whatever the topic's current settings.
    pub gaps_below: i64,
    /// Open the log without the missing records. The lost offsets are not assigned again.
    pub accept_loss: bool,
    /// Wall clock, milliseconds.
    pub now_ms: i64,
}

/// What opening a log found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    pub segment_count: usize,
    /// Bytes whose checksums were verified.
    pub checked_bytes: u64,
    /// Bytes cut off after the last valid batch.
    pub cut_bytes: u64,
    /// Segments after a cut that are no longer part of the log.
    pub segments_set_aside: usize,
    /// Segments whose indexes were rebuilt, not counting those above the recovery point.
    pub rebuilt_indexes: usize,
    /// Batches whose headers were read to rebuild the producers' state.
    pub replayed_batches: u64,
    /// Lost records were given up: some are missing below this offset.
    pub gap_end: Option<i64>,
    pub findings: Vec<Finding>,
}

/// A problem that did not keep the log from opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    pub path: PathBuf,
    /// In bytes of the file.
    pub position: u64,
    /// What is wrong, and which offsets it concerns.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Bytes after the last complete batch were cut off: an append that a crash interrupted.
    CutEnd,
    /// Like `CutEnd`, but complete batches followed the first bad one. None of them is known to
    /// have been durable. Or all of them, because the log's start is behind its end.
    CutBatches,
    /// A file that holds what was cut off.
    Kept,
    /// What was cut off was not kept.
    NotKept,
    /// Durable batches that can no longer be read.
    Damaged,
    /// Durable records that are missing, and that the operator has given up.
    Lost,
    /// Two files contradict each other; the log uses the one that keeps more records.
    Contradiction,
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    config: LogConfig,
    options: OpenOptions,
) -> Result<(PartitionLog, RecoveryReport), LogError> {
    if !disk.exists(directory) {
        disk.create_directories(directory)
            .map_err(|source| LogError::io("create", directory, source))?;
        if let Some(parent) = directory.parent() {
            disk.sync_directory(parent)
                .map_err(|source| LogError::io("sync", parent, source))?;
        }
    }
    let mut opening = Opening::begin(disk, directory, config, options)?;
    let log = opening.run()?;
    Ok((log, opening.report))
}

/// Returns what opening an existing directory would find, without changing anything.
pub(crate) fn check(
    disk: Arc<dyn Disk>,
    directory: &Path,
    config: LogConfig,
    options: OpenOptions,
) -> Result<RecoveryReport, LogError> {
    let mut opening = Opening::begin(disk, directory, config, options)?;
    opening.look()?;
    Ok(opening.report)
}

struct Opening {
    disk: Arc<dyn Disk>,
    directory: Arc<Path>,
    config: LogConfig,
    options: OpenOptions,
    files: DirectoryFiles,
    report: RecoveryReport,
    leader_epochs: Option<LeaderEpochs>,
    /// The leader epochs as stored in their file.
    stored_epochs: LeaderEpochs,
    /// Closed segments above the recovery point whose index files lack entries.
    resealed: Vec<Arc<Segment>>,
    /// Entries of the transaction indexes about aborts from this offset on are damaged.
    aborts_lost_from: i64,
    /// To be applied once it is certain that the log opens.
    repairs: Vec<Repair>,
}

/// Where appends continue after the examination.
enum Continuation {
    Within(Tail),
    /// In a new segment after the existing ones.
    Behind {
        segment_base_offset: i64,
        before: Option<Tail>,
    },
    /// In a new segment. The existing ones hold only deleted records if the log's start is right;
    /// one number must not destroy what they hold, so they are kept.
    Instead {
        segment_base_offset: i64,
    },
}

impl Opening {
    fn begin(
        disk: Arc<dyn Disk>,
        directory: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<Opening, LogError> {
        let (mut files, repairs) = DirectoryFiles::survey(&*disk, directory, options.accept_loss)?;
        let report = RecoveryReport {
            findings: std::mem::take(&mut files.findings),
            ..RecoveryReport::default()
        };
        Ok(Opening {
            files,
            disk,
            directory: directory.into(),
            config,
            options,
            report,
            leader_epochs: None,
            stored_epochs: LeaderEpochs::default(),
            resealed: Vec::new(),
            aborts_lost_from: i64::MAX,
            repairs,
        })
    }

    fn recovery_point(&self) -> i64 {
        if self.options.clean_shutdown {
            i64::MAX
        } else {
            self.options.recovery_point
        }
    }

    /// Reads and judges; notes the changes to make in `repairs`.
    fn look(&mut self) -> Result<(Vec<Arc<Segment>>, Continuation), LogError> {
        self.leader_epochs = self.load_leader_epochs()?;
        self.stored_epochs = self.leader_epochs.clone().unwrap_or_default();
        let mut segments = self.load_segments()?;
        let recovery_point = self.recovery_point();
        self.doubt_log_start(&segments);
        self.check_first_segment(&segments)?;
        if let Some(epochs) = &mut self.leader_epochs {
            // The file may mention batches that have since been truncated; later ones are read
            // again anyway.
            epochs.truncate_from_end(recovery_point);
        }
        let tail = self.examine(&mut segments, recovery_point)?;
        let continuation = self.judge(&segments, tail)?;
        Ok((segments, continuation))
    }

    fn run(&mut self) -> Result<PartitionLog, LogError> {
        let (mut segments, continuation) = self.look()?;
        let recovery_point = self.recovery_point();
        let log_is_new = self.report.segment_count == 0;
        self.repair()?;
        let tail = self.go_on(&mut segments, continuation)?;
        let start_offset = self.options.log_start_offset.max(segments[0].base_offset);
        self.doubt_aborts(&segments)?;
        let (producers, leader_epochs, last_snapshot) =
            self.replay(&segments, start_offset, tail.end_offset, recovery_point)?;
        self.write_lost_aborts(&segments)?;
        let mut log = self.assemble(segments, tail, start_offset, producers, leader_epochs)?;
        log.recovery_point = recovery_point.min(log.end_offset).max(0);
        log.checkpoints.last_snapshot = last_snapshot;
        // What had to be verified now would have to be verified again after another crash.
        log.recovery_point_bytes = -i64::try_from(self.report.checked_bytes).expect("a disk has fewer bytes");
        if log_is_new {
            log.recovery_point = log.end_offset;
        }
        Ok(log)
    }

    /// Returns the offset below which records were durable. Where the log's start has moved up to
    /// the recovery point, they have since been deleted, and an interrupted recovery may have
    /// removed the files that held them.
    fn proven_end(&self) -> i64 {
        let recovery_point = self.options.recovery_point;
        if recovery_point > self.options.log_start_offset {
            self.options.proven_end.max(recovery_point)
        } else {
            self.options.proven_end
        }
    }

    fn gaps_below(&self) -> i64 {
        if self.config.compact {
            i64::MAX
        } else {
            self.options.gaps_below
        }
    }

    /// After a clean stop the first leader epoch begins where the log does. When the checkpoint
    /// names a later start, one of the two files is damaged; the earlier start hides no record. If
    /// no segment goes back that far, it is the epochs that are wrong.
    fn doubt_log_start(&mut self, segments: &[Arc<Segment>]) {
        let epochs = self.leader_epochs.as_ref();
        let Some(first) = epochs.and_then(|epochs| epochs.entries().first()) else {
            return;
        };
        let named = self.options.log_start_offset;
        if self.options.clean_shutdown && named > first.start_offset {
            let detail = format!(
                "its first leader epoch begins at offset {}, {} says that the log starts at {named}",
                first.start_offset,
                crate::checkpoint::LOG_START_FILE,
            );
            self.report
                .findings
                .push(contradicted_epochs(&self.directory, detail));
            let is_held = |segment: &Arc<Segment>| segment.base_offset <= first.start_offset;
            if segments.first().is_none_or(is_held) {
                self.options.log_start_offset = first.start_offset;
            }
        }
    }

    fn check_first_segment(&mut self, segments: &[Arc<Segment>]) -> Result<(), LogError> {
        let Some(first) = segments.first() else {
            return Ok(());
        };
        let epochs = self.leader_epochs.as_ref();
        let first_epoch = epochs.and_then(|epochs| epochs.entries().first());
        // Moving the start of a log also removes the epochs before it.
        let known = self.options.log_start_offset.max(first.base_offset);
        if let Some(epoch) =
            first_epoch.filter(|epoch| self.options.clean_shutdown && epoch.start_offset > known)
        {
            let detail = format!(
                "its first leader epoch begins at offset {}, {} has the log start at {known}: deleted records may be back",
                epoch.start_offset,
                crate::checkpoint::LOG_START_FILE,
            );
            self.report
                .findings
                .push(contradicted_epochs(&self.directory, detail));
        }
        let known_start = match first_epoch {
            _ if self.options.is_start_proven => Some(self.options.log_start_offset),
            // The segments hold what the checkpoint names; `doubt_log_start` reports the epochs.
            _ if self.options.log_start_offset >= first.base_offset => None,
            Some(epoch) if self.options.clean_shutdown => Some(epoch.start_offset),
            _ => None,
        };
        match known_start.filter(|start| *start < first.base_offset) {
            Some(start) => self.lose(
                &file_path(&self.directory, start, FileKind::Log),
                0,
                format!(
                    "no segment holds offsets {start} to {}: the first one begins after the log's start",
                    first.base_offset - 1
                ),
            ),
            None => Ok(()),
        }
    }

    /// Refuses the log because records are missing, unless they were given up.
    fn lose(&mut self, path: &Path, position: u64, detail: String) -> Result<(), LogError> {
        if !self.options.accept_loss {
            return Err(LogError::corrupt(path, position, detail));
        }
        self.report.findings.push(Finding {
            kind: FindingKind::Lost,
            path: path.to_path_buf(),
            position,
            detail,
        });
        Ok(())
    }

    /// Compares the end with what is known to have existed.
    fn judge(&mut self, segments: &[Arc<Segment>], tail: Option<Tail>) -> Result<Continuation, LogError> {
        let proven_end = self.proven_end();
        let log_start = self.options.log_start_offset.max(0);
        // A log without segments begins at its start offset.
        let end = tail.as_ref().map_or(log_start, |tail| tail.end_offset);
        if end < proven_end {
            let (path, position, why) = match (&tail, segments.last()) {
                (Some(tail), Some(last)) => (last.path(FileKind::Log), tail.position, tail.why_it_ends()),
                _ => (
                    file_path(&self.directory, log_start, FileKind::Log),
                    0,
                    "there is no segment",
                ),
            };
            let detail =
                format!("{why}; the log ends at offset {end}, but everything below {proven_end} was durable");
            self.lose(&path, position, detail)?;
            if let (Some(tail), Some(last)) = (&tail, segments.last())
                && tail.position < last.bytes()
            {
                self.repairs.push(Repair::Cut {
                    segment: Arc::clone(last),
                    position: tail.position,
                    file_bytes: last.bytes(),
                    keep: true,
                });
                last.shorten(tail.position);
            }
            return Ok(Continuation::Behind {
                segment_base_offset: proven_end.max(log_start),
                before: tail,
            });
        }
        if let (Some(tail), Some(last)) = (&tail, segments.last()) {
            self.doubt_end(tail, last);
        }
        match tail {
            None => Ok(Continuation::Behind {
                segment_base_offset: log_start,
                before: None,
            }),
            // The remaining records were deleted for clients, and those after them are lost:
            // continue at the log's start. Or the start is wrong.
            Some(tail) if tail.end_offset < log_start => {
                self.note_start_behind(&tail, segments, log_start);
                Ok(Continuation::Instead {
                    segment_base_offset: log_start,
                })
            }
            Some(tail) => Ok(Continuation::Within(tail)),
        }
    }

    /// A clean stop makes the recovery point equal to the end. An end beyond it means that one of
    /// the two files is damaged: the base offset of a batch is outside its checksum, and where
    /// compaction may have left gaps a later one looks like another gap.
    fn doubt_end(&mut self, tail: &Tail, last: &Segment) {
        let recovery_point = self.options.recovery_point;
        if self.options.clean_shutdown && recovery_point > 0 && tail.end_offset > recovery_point {
            self.report.findings.push(Finding {
                kind: FindingKind::Contradiction,
                path: last.path(FileKind::Log),
                position: tail.position,
                detail: format!(
                    "it ends at offset {}, {} says {recovery_point} after a clean stop: records may be behind their offsets",
                    tail.end_offset,
                    crate::checkpoint::RECOVERY_POINT_FILE,
                ),
            });
        }
    }

    /// Readers lose what the segments hold.
    fn note_start_behind(&mut self, tail: &Tail, segments: &[Arc<Segment>], log_start: i64) {
        let first = &segments[0];
        if tail.end_offset == first.base_offset {
            return;
        }
        self.report.findings.push(Finding {
            kind: FindingKind::CutBatches,
            path: first.path(FileKind::Log),
            position: 0,
            detail: format!(
                "the log ends at offset {}, {} says that it starts at {log_start}: it goes on there, all segments are kept",
                tail.end_offset,
                crate::checkpoint::LOG_START_FILE,
            ),
        });
    }

    fn go_on(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        continuation: Continuation,
    ) -> Result<Tail, LogError> {
        let base_offset = match continuation {
            Continuation::Within(tail) => return Ok(tail),
            Continuation::Behind {
                segment_base_offset,
                before,
            } => {
                if segments.iter().all(|segment| segment.bytes() == 0) {
                    self.set_all_aside(segments, Keep::Nothing)?;
                } else if let (Some(tail), Some(last)) = (before, segments.last()) {
                    self.seal(last, tail.progress);
                    self.report.gap_end = Some(segment_base_offset);
                }
                segment_base_offset
            }
            Continuation::Instead { segment_base_offset } => {
                self.set_all_aside(segments, Keep::Everything)?;
                segment_base_offset
            }
        };
        segments.push(create_segment(&self.disk, &self.directory, base_offset)?);
        self.sync_directory()?;
        Ok(Tail::empty(base_offset))
    }

    fn set_all_aside(&mut self, segments: &mut Vec<Arc<Segment>>, keep: Keep) -> Result<(), LogError> {
        for segment in segments.drain(..).rev() {
            self.repairs.push(Repair::SetAside { segment, keep });
        }
        self.repairs.push(Repair::SyncDirectory);
        self.resealed.clear();
        self.repair()
    }

    fn seal(&mut self, segment: &Arc<Segment>, mut progress: IndexProgress) {
        progress.finish(segment);
        segment.set_largest_timestamp(progress.largest_timestamp);
        self.resealed.push(Arc::clone(segment));
    }

    /// The replay finds aborts again from the first index on that the log contradicts.
    fn doubt_aborts(&mut self, segments: &[Arc<Segment>]) -> Result<(), LogError> {
        let contradicted = aborts::first_contradicted(segments)
            .map_err(|source| LogError::io("read", &self.directory, source))?;
        if let Some(base_offset) = contradicted {
            self.report.rebuilt_indexes += 1;
            self.aborts_lost_from = self.aborts_lost_from.min(base_offset);
        }
        Ok(())
    }

    /// Rewrites damaged transaction indexes from the replay.
    fn write_lost_aborts(&self, segments: &[Arc<Segment>]) -> Result<(), LogError> {
        for segment in segments {
            if segment.base_offset < self.aborts_lost_from {
                continue;
            }
            let mut indexes = segment.indexes();
            let path = segment.path(FileKind::TransactionIndex);
            if indexes.aborted.is_empty() {
                repair::remove(&*self.disk, &path)?;
                continue;
            }
            let mut bytes = Vec::new();
            indexes
                .aborted
                .iter()
                .for_each(|aborted| aborted.encode(&mut bytes));
            write_file(&*self.disk, &path, &bytes)?;
            indexes.aborted_in_file = indexes.aborted.len();
        }
        Ok(())
    }

    pub fn failed(
        &self,
        doing: &'static str,
        kind: FileKind,
        base_offset: i64,
        source: io::Error,
    ) -> LogError {
        LogError::io(doing, &file_path(&self.directory, base_offset, kind), source)
    }

    fn sync_directory(&self) -> Result<(), LogError> {
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))
    }

    fn load_leader_epochs(&self) -> Result<Option<LeaderEpochs>, LogError> {
        let bytes = read_file(&*self.disk, &self.directory.join(crate::LEADER_EPOCH_FILE))?;
        // A damaged file is treated as missing: the epochs are also in every batch.
        Ok(bytes.and_then(|bytes| LeaderEpochs::decode(&bytes).ok()))
    }

    fn load_segments(&mut self) -> Result<Vec<Arc<Segment>>, LogError> {
        let bases = self.files.base_offsets();
        let mut segments = Vec::with_capacity(bases.len());
        for (index, base_offset) in bases.iter().enumerate() {
            let next_base = bases.get(index + 1).copied().unwrap_or(i64::MAX);
            segments.push(Arc::new(self.load_segment(*base_offset, next_base)?));
        }
        self.report.segment_count = segments.len();
        Ok(segments)
    }

    fn load_segment(&mut self, base_offset: i64, next_base: i64) -> Result<Segment, LogError> {
        let bytes = self.files.bytes(base_offset, FileKind::Log).expect("listed");
        let path = self.files.path(base_offset, FileKind::Log).expect("listed");
        let file = self
            .disk
            .open_log(path, OpenMode::Write)
            .map_err(|source| LogError::io("open", path, source))?;
        let entries = |kind, entry_bytes: usize| {
            self.files
                .bytes(base_offset, kind)
                .map(|bytes| (bytes / entry_bytes as u64) as u32)
        };
        let mut indexes = SegmentIndexes::new(
            entries(FileKind::OffsetIndex, OffsetEntry::BYTES).unwrap_or(0),
            entries(FileKind::TimeIndex, TimeEntry::BYTES).unwrap_or(0),
        );
        if let Some(path) = self.files.path(base_offset, FileKind::TransactionIndex) {
            let bytes = read_file(&*self.disk, path)?.unwrap_or_default();
            match AbortedTransaction::decode_all(&bytes, base_offset..next_base) {
                // The file is made for the first abort: without an entry it has lost them.
                Some(aborted) if !aborted.is_empty() => {
                    indexes.aborted_in_file = aborted.len();
                    indexes.aborted = aborted;
                }
                _ => {
                    // The replay finds the aborts again.
                    self.report.rebuilt_indexes += 1;
                    self.aborts_lost_from = self.aborts_lost_from.min(base_offset);
                }
            }
        }
        let segment = Segment::new(
            Arc::clone(&self.disk),
            Arc::clone(&self.directory),
            base_offset,
            file,
            bytes,
            indexes,
        );
        segment.distrust();
        segment.allow_gaps_below(self.gaps_below());
        Ok(segment)
    }

    fn assemble(
        &mut self,
        segments: Vec<Arc<Segment>>,
        tail: Tail,
        start_offset: i64,
        producers: ProducerState,
        leader_epochs: LeaderEpochs,
    ) -> Result<PartitionLog, LogError> {
        let last = Arc::clone(segments.last().expect("there is always one"));
        // After a kill the bytes may be only in the page cache. Everything above the recovery point
        // becomes durable now, because readers will see it; and so does the file's end, which a
        // killed recovery may have truncated.
        if !self.options.clean_shutdown {
            let first_unsure = self.options.recovery_point.saturating_sub(1);
            let unsure = &segments[segment_index(&segments, first_unsure)..];
            for segment in unsure {
                segment
                    .file
                    .settle()
                    .map_err(|source| self.failed("sync", FileKind::Log, segment.base_offset, source))?;
            }
            // A checkpoint that reached into a segment has made its name durable; the name of
            // segment 0 is durable from the start.
            let newest = unsure[unsure.len() - 1].base_offset;
            if newest >= self.options.recovery_point && newest != 0 {
                self.sync_directory()?;
            }
        }
        let end = Bound {
            offset: tail.end_offset,
            position: Some(SegmentPosition {
                segment_base_offset: last.base_offset,
                position: tail.position,
            }),
        };
        let first_timestamp = first_timestamp(&last)
            .map_err(|source| self.failed("read", FileKind::Log, last.base_offset, source))?;
        let reader = LogReader::new(ReaderState {
            segments: Arc::new(segments),
            recent: Default::default(),
            start_offset,
            end_offset: tail.end_offset,
            end_position: tail.position,
            gaps_below: self.gaps_below().max(self.report.gap_end.unwrap_or(0)),
        });
        let active = ActiveSegment {
            position: tail.position,
            reserved: 0,
            is_trimmed: self.options.clean_shutdown,
            progress: tail.progress,
            first_timestamp,
            created_ms: self.options.now_ms,
            written_back: tail.position,
            segment: last,
        };
        Ok(PartitionLog::assemble(OpenedLog {
            disk: Arc::clone(&self.disk),
            directory: Arc::clone(&self.directory),
            config: self.config.clone(),
            reader,
            active,
            start_offset,
            end,
            producers,
            leader_epochs,
            stored_epochs: std::mem::take(&mut self.stored_epochs),
            resealed: std::mem::take(&mut self.resealed),
        }))
    }
}

/// `None` also where the first batch is damaged.
fn first_timestamp(segment: &Segment) -> io::Result<Option<i64>> {
    match segment.find_batch(i64::MIN, 0, segment.bytes(), ReadMode::Blocking) {
        Ok(place) => Ok(place.map(|place| place.max_timestamp)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}

/// The leader epochs contradict another file.
fn contradicted_epochs(directory: &Path, detail: String) -> Finding {
    Finding {
        kind: FindingKind::Contradiction,
        path: directory.join(crate::LEADER_EPOCH_FILE),
        position: 0,
        detail,
    }
}
