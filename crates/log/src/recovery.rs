//! Opening a directory: finishing what a crash interrupted, and finding the last batch that counts.
//!
//! After a clean stop only the end of the last segment is looked at. After a crash everything from the recovery point on
//! is read and checked; what lies below was durable, indexes included, when the recovery point was written.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::checkpoint::read_file;
use crate::config::LogConfig;
use crate::disk::{Disk, OpenMode};
use crate::error::LogError;
use crate::index_file::{IndexEntry, last_where};
use crate::leader_epoch::LeaderEpochs;
use crate::offset_index::OffsetEntry;
use crate::partition_log::{ActiveSegment, OpenedLog, PartitionLog, create_segment};
use crate::producer_state::ProducerState;
use crate::read_mode::ReadMode;
use crate::reader::{Bound, LogReader, ReaderState, SegmentPosition, segment_index};
use crate::segment::{BatchPlace, FileKind, IndexProgress, Segment, SegmentIndexes, file_path};
use crate::segment_files::{DELETED_SUFFIX, DirectoryFiles};
use crate::time_index::TimeEntry;
use crate::transaction_index::AbortedTransaction;

/// What the checkpoint files of the log directory say about a partition.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The broker that wrote the directory stopped cleanly (`.kafka_cleanshutdown` was there).
    pub clean_shutdown: bool,
    /// From `recovery-point-offset-checkpoint`; 0 when it is not listed there.
    pub recovery_point: i64,
    /// From `log-start-offset-checkpoint`; 0 when it is not listed there. A log without segments begins here.
    pub log_start_offset: i64,
    /// Wall clock, milliseconds.
    pub now_ms: i64,
}

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    pub segment_count: usize,
    /// Bytes whose checksums were verified.
    pub checked_bytes: u64,
    /// Bytes cut off behind the last valid batch.
    pub cut_bytes: u64,
    /// Why they were cut.
    pub cut_reason: Option<String>,
    /// Segments behind the cut that were set aside as `.deleted`.
    pub deleted_segments: usize,
    /// Segments whose indexes were rebuilt, other than those above the recovery point.
    pub rebuilt_indexes: usize,
    /// Batches whose headers were read to rebuild the producers' state.
    pub replayed_batches: u64,
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
    let mut opening = Opening {
        files: DirectoryFiles::load(&disk, directory)?,
        disk,
        directory: directory.into(),
        config,
        options,
        report: RecoveryReport::default(),
        leader_epochs: None,
        resealed: Vec::new(),
    };
    let log = opening.run()?;
    Ok((log, opening.report))
}

pub(crate) struct Opening {
    pub disk: Arc<dyn Disk>,
    pub directory: Arc<Path>,
    config: LogConfig,
    options: OpenOptions,
    pub files: DirectoryFiles,
    pub report: RecoveryReport,
    pub leader_epochs: Option<LeaderEpochs>,
    /// Closed segments above the recovery point, whose index files lack entries.
    resealed: Vec<Arc<Segment>>,
}

/// The end of the log as recovery found it.
struct Tail {
    end_offset: i64,
    progress: IndexProgress,
    position: u64,
}

impl Opening {
    fn run(&mut self) -> Result<PartitionLog, LogError> {
        self.remove_orphans()?;
        self.leader_epochs = self.load_leader_epochs()?;
        let mut segments = self.load_segments()?;
        let log_is_new = segments.is_empty();
        if log_is_new {
            segments.push(create_segment(
                &self.disk,
                &self.directory,
                self.options.log_start_offset.max(0),
            )?);
            self.sync_directory()?;
        }
        let recovery_point = if self.options.clean_shutdown {
            i64::MAX
        } else {
            self.options.recovery_point
        };
        if let Some(epochs) = &mut self.leader_epochs {
            // The file may speak of batches that were truncated since; those from here on are read again anyway.
            epochs.truncate_from_end(recovery_point);
        }
        let mut tail = self.recover_segments(&mut segments, recovery_point)?;
        if tail.end_offset < self.options.log_start_offset {
            // What lies there was deleted for clients, and what came after it is lost: go on where the log begins.
            self.delete_segments_from(&mut segments, 0)?;
            let base_offset = self.options.log_start_offset;
            segments.push(create_segment(&self.disk, &self.directory, base_offset)?);
            self.sync_directory()?;
            self.resealed.clear();
            tail = Tail {
                end_offset: base_offset,
                progress: IndexProgress::default(),
                position: 0,
            };
        }
        let start_offset = self.options.log_start_offset.max(segments[0].base_offset);
        let (producers, leader_epochs, last_snapshot) =
            self.replay(&segments, start_offset, tail.end_offset, recovery_point)?;
        let mut log = self.assemble(segments, tail, start_offset, producers, leader_epochs)?;
        log.recovery_point = recovery_point.min(log.end_offset).max(0);
        log.checkpoints.last_snapshot = last_snapshot;
        // The killed process may have created the newest segment without anything in it that called for a sync above.
        let newest = log.active.segment.base_offset;
        log.unsynced.directory = !self.options.clean_shutdown && newest >= log.recovery_point && newest != 0;
        // What had to be checked now would have to be checked again.
        log.appended_bytes = self.report.checked_bytes;
        if log_is_new {
            log.recovery_point = log.end_offset;
        }
        Ok(log)
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

    /// Indexes without a segment are leftovers of an interrupted deletion.
    fn remove_orphans(&mut self) -> Result<(), LogError> {
        let bases: BTreeSet<i64> = self.files.base_offsets().into_iter().collect();
        let orphans: Vec<(i64, FileKind)> = self
            .files
            .files
            .keys()
            .filter(|(base, kind)| *kind != FileKind::Snapshot && !bases.contains(base))
            .copied()
            .collect();
        for (base, kind) in orphans {
            self.files.files.remove(&(base, kind));
            let path = file_path(&self.directory, base, kind);
            self.disk
                .remove_file(&path)
                .map_err(|source| LogError::io("remove", &path, source))?;
        }
        Ok(())
    }

    fn load_leader_epochs(&self) -> Result<Option<LeaderEpochs>, LogError> {
        let bytes = read_file(&*self.disk, &self.directory.join(crate::LEADER_EPOCH_FILE))?;
        // A damaged file is as good as none: the epochs stand in every batch.
        Ok(bytes.and_then(|bytes| LeaderEpochs::decode(&bytes).ok()))
    }

    fn load_segments(&mut self) -> Result<Vec<Arc<Segment>>, LogError> {
        let mut segments = Vec::new();
        for base_offset in self.files.base_offsets() {
            let bytes = self.files.bytes(base_offset, FileKind::Log).expect("listed");
            let path = file_path(&self.directory, base_offset, FileKind::Log);
            let file = self
                .disk
                .open(&path, OpenMode::Write)
                .map_err(|source| LogError::io("open", &path, source))?;
            let entries = |kind, entry_bytes: usize| {
                self.files
                    .bytes(base_offset, kind)
                    .map(|bytes| (bytes / entry_bytes as u64) as u32)
            };
            let mut indexes = SegmentIndexes::new(
                entries(FileKind::OffsetIndex, OffsetEntry::BYTES).unwrap_or(0),
                entries(FileKind::TimeIndex, TimeEntry::BYTES).unwrap_or(0),
            );
            if self
                .files
                .bytes(base_offset, FileKind::TransactionIndex)
                .is_some()
            {
                let path = file_path(&self.directory, base_offset, FileKind::TransactionIndex);
                let bytes = read_file(&*self.disk, &path)?.unwrap_or_default();
                indexes.aborted = AbortedTransaction::decode_all(&bytes);
                indexes.aborted_in_file = indexes.aborted.len();
            }
            let disk = Arc::clone(&self.disk);
            let directory = Arc::clone(&self.directory);
            segments.push(Arc::new(Segment::new(
                disk,
                directory,
                base_offset,
                file,
                bytes,
                indexes,
            )));
        }
        self.report.segment_count = segments.len();
        Ok(segments)
    }

    /// Checks what lies above the recovery point, cuts at the first bad batch, and gives every segment usable indexes.
    fn recover_segments(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        recovery_point: i64,
    ) -> Result<Tail, LogError> {
        // The segment in front of the recovery point, not the one behind it: bytes that were written there later and taken
        // back (the disk was full, a recovery cut them) may have come back with a power cut.
        let first_unsure = segment_index(segments, recovery_point.saturating_sub(1));
        for segment in &segments[..first_unsure] {
            self.check_sealed_indexes(segment)?;
        }
        let mut index = first_unsure;
        loop {
            let expected_offset = segments[index].base_offset;
            let tail = self.recover_segment(&segments[index], expected_offset, recovery_point)?;
            let was_cut = tail.position < segments[index].bytes();
            if was_cut {
                self.cut(segments, index, tail.position)?;
            }
            if index + 1 == segments.len() {
                return Ok(tail);
            }
            // A segment that a crash left shorter than its successor's base tells of lost records in between: what follows
            // cannot be had without them. After a clean stop and in compacted logs such gaps are normal.
            let next_base = segments[index + 1].base_offset;
            let overlaps = tail.end_offset > next_base;
            let lost = !self.options.clean_shutdown && !self.config.compact && tail.end_offset < next_base;
            if overlaps || lost {
                self.report.cut_reason.get_or_insert_with(|| {
                    format!("segment {next_base} does not follow offset {}", tail.end_offset)
                });
                self.delete_segments_from(segments, index + 1)?;
                return Ok(tail);
            }
            let mut progress = tail.progress;
            progress.finish(&segments[index]);
            segments[index].set_largest_timestamp(progress.largest_timestamp);
            self.resealed.push(Arc::clone(&segments[index]));
            index += 1;
        }
    }

    /// Indexes of a segment below the recovery point: their length must make sense, or they are made anew.
    fn check_sealed_indexes(&mut self, segment: &Arc<Segment>) -> Result<(), LogError> {
        let bytes = |kind| self.files.bytes(segment.base_offset, kind);
        let whole = |length: Option<u64>, entry_bytes: usize| {
            length.is_some_and(|length| length % entry_bytes as u64 == 0)
        };
        let long_without_entries = segment.bytes() > 4 * u64::from(self.config.index_interval_bytes)
            && bytes(FileKind::OffsetIndex) == Some(0)
            && bytes(FileKind::TimeIndex) == Some(0);
        if whole(bytes(FileKind::OffsetIndex), OffsetEntry::BYTES)
            && whole(bytes(FileKind::TimeIndex), TimeEntry::BYTES)
            && !long_without_entries
        {
            return Ok(());
        }
        self.report.rebuilt_indexes += 1;
        let mut progress = self.rebuild_indexes(segment, segment.bytes())?;
        progress.finish(segment);
        segment.set_largest_timestamp(progress.largest_timestamp);
        self.write_indexes(segment)
    }

    /// Makes the indexes anew from the headers below `end`.
    fn rebuild_indexes(&self, segment: &Arc<Segment>, end: u64) -> Result<IndexProgress, LogError> {
        self.reset_indexes(segment, 0, 0)?;
        let mut progress = IndexProgress::default();
        let failed = |source| self.failed("read", FileKind::Log, segment.base_offset, source);
        let mut scanner = BatchScanner::new(&*segment.file, 0, end, Trust::Headers);
        loop {
            match scanner.next().map_err(failed)? {
                Scanned::Batch { header, position } => {
                    let place = BatchPlace::new(&header, segment.base_offset, position);
                    progress.note(segment, &place, self.config.index_interval_bytes);
                }
                Scanned::End => return Ok(progress),
                Scanned::Invalid { reason } => {
                    let path = segment.path(FileKind::Log);
                    return Err(LogError::corrupt(&path, scanner.position(), reason));
                }
            }
        }
    }

    /// Keeps the first entries of the index files and forgets the rest.
    fn reset_indexes(&self, segment: &Segment, offsets: u32, times: u32) -> Result<(), LogError> {
        let kept = [
            (
                FileKind::OffsetIndex,
                u64::from(offsets) * OffsetEntry::BYTES as u64,
            ),
            (FileKind::TimeIndex, u64::from(times) * TimeEntry::BYTES as u64),
        ];
        for (kind, bytes) in kept {
            let cut = || {
                let file = segment.index_file(kind, ReadMode::Blocking)?;
                if file.bytes()? != bytes {
                    file.set_bytes(bytes)
                } else {
                    Ok(())
                }
            };
            cut().map_err(|source| self.failed("cut", kind, segment.base_offset, source))?;
        }
        let mut indexes = segment.indexes();
        let (aborted, aborted_in_file) = (std::mem::take(&mut indexes.aborted), indexes.aborted_in_file);
        *indexes = SegmentIndexes::new(offsets, times);
        (indexes.aborted, indexes.aborted_in_file) = (aborted, aborted_in_file);
        Ok(())
    }

    fn write_indexes(&self, segment: &Arc<Segment>) -> Result<(), LogError> {
        let write = crate::sync::IndexWrite::of(segment, false);
        write.run(&*self.disk)?;
        write.finish();
        Ok(())
    }

    /// Finds the end of a segment's valid batches and brings its indexes in line.
    fn recover_segment(
        &mut self,
        segment: &Arc<Segment>,
        expected_offset: i64,
        recovery_point: i64,
    ) -> Result<Tail, LogError> {
        let trusted_until = if recovery_point <= segment.base_offset {
            0
        } else {
            recovery_point
        };
        let resume = self.resume_point(segment, trusted_until)?;
        let (mut progress, start) = match resume {
            Some(resume) => {
                self.reset_indexes(segment, resume.offsets, resume.times)?;
                (resume.progress, resume.position)
            }
            None => {
                self.reset_indexes(segment, 0, 0)?;
                (IndexProgress::default(), 0)
            }
        };
        let log_path = segment.path(FileKind::Log);
        let failed = |source| LogError::io("read", &log_path, source);
        let trust = if self.options.clean_shutdown {
            Trust::Headers
        } else {
            Trust::Checksums
        };
        let mut scanner = BatchScanner::new(&*segment.file, start, segment.bytes(), trust);
        let mut end_offset = expected_offset;
        let mut cut_reason = None;
        let position = loop {
            let before = scanner.position();
            match scanner.next().map_err(failed)? {
                Scanned::Batch { header, position } => {
                    if header.base_offset < end_offset
                        || header.last_offset() - segment.base_offset > i64::from(i32::MAX)
                    {
                        cut_reason = Some(format!(
                            "offset {} where {end_offset} was due",
                            header.base_offset
                        ));
                        break before;
                    }
                    let place = BatchPlace::new(&header, segment.base_offset, position);
                    progress.note(segment, &place, self.config.index_interval_bytes);
                    if let Some(epochs) = &mut self.leader_epochs {
                        epochs.assign(header.leader_epoch, header.base_offset);
                    }
                    end_offset = header.next_offset();
                }
                Scanned::End => break before,
                Scanned::Invalid { reason } => {
                    cut_reason = Some(reason);
                    break before;
                }
            }
        };
        if trust == Trust::Checksums {
            self.report.checked_bytes += position - start;
        }
        if let Some(reason) = cut_reason {
            let name = crate::segment::file_name(segment.base_offset, FileKind::Log);
            self.report
                .cut_reason
                .get_or_insert(format!("{name}, position {position}: {reason}"));
        }
        Ok(Tail {
            end_offset,
            progress,
            position,
        })
    }

    /// The newest index entry below the recovery point that proves genuine, and the indexes up to it.
    fn resume_point(&self, segment: &Arc<Segment>, trusted_until: i64) -> Result<Option<Resume>, LogError> {
        let failed = |source| self.failed("read", FileKind::OffsetIndex, segment.base_offset, source);
        let mut count = segment.indexes().offsets.count();
        while count > 0 {
            let file = segment
                .index_file(FileKind::OffsetIndex, ReadMode::Blocking)
                .map_err(failed)?;
            // Zeros behind the last entry (Kafka preallocates) must not count as small offsets.
            let precedes = |entry: &OffsetEntry| {
                entry.position > 0 && segment.base_offset + i64::from(entry.relative_offset) < trusted_until
            };
            let found = last_where(&*file, count, ReadMode::Blocking, precedes).map_err(failed)?;
            let Some((index, entry)) = found else {
                return Ok(None);
            };
            if segment.entry_is_genuine(entry, segment.bytes()).map_err(failed)? {
                return self.resume_at(segment, index, entry);
            }
            count = index / 2;
        }
        Ok(None)
    }

    fn resume_at(
        &self,
        segment: &Arc<Segment>,
        index: u32,
        entry: OffsetEntry,
    ) -> Result<Option<Resume>, LogError> {
        let failed = |source| self.failed("read", FileKind::TimeIndex, segment.base_offset, source);
        let count = segment.indexes().times.count();
        if count == 0 {
            return Ok(None);
        }
        let file = segment
            .index_file(FileKind::TimeIndex, ReadMode::Blocking)
            .map_err(failed)?;
        let precedes =
            |time: &TimeEntry| time.timestamp != 0 && time.relative_offset <= entry.relative_offset;
        let found = last_where(&*file, count, ReadMode::Blocking, precedes).map_err(failed)?;
        let Some((time_index, time)) = found else {
            return Ok(None);
        };
        let offset = segment.base_offset + i64::from(time.relative_offset);
        let place = segment.search(offset, segment.bytes(), ReadMode::Blocking);
        let genuine = place.is_ok_and(|place| {
            place.is_some_and(|place| place.last_offset == offset && place.max_timestamp == time.timestamp)
        });
        Ok(genuine.then_some(Resume {
            offsets: index + 1,
            times: time_index + 1,
            position: u64::from(entry.position),
            progress: IndexProgress {
                bytes_since_entry: 0,
                largest_timestamp: time.timestamp,
                offset_of_largest_timestamp: offset,
                last_time_entry: time.timestamp,
            },
        }))
    }

    fn cut(&mut self, segments: &mut Vec<Arc<Segment>>, index: usize, position: u64) -> Result<(), LogError> {
        let segment = Arc::clone(&segments[index]);
        self.report.cut_bytes += segment.bytes() - position;
        segment
            .file
            .set_bytes(position)
            .map_err(|source| self.failed("cut", FileKind::Log, segment.base_offset, source))?;
        segment
            .file
            .sync()
            .map_err(|source| self.failed("sync", FileKind::Log, segment.base_offset, source))?;
        segment.set_bytes(position);
        self.delete_segments_from(segments, index + 1)
    }

    /// Sets segments aside, newest first, so that an interruption leaves no gap.
    fn delete_segments_from(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        first: usize,
    ) -> Result<(), LogError> {
        for segment in segments.drain(first..).rev() {
            self.report.deleted_segments += 1;
            self.report.cut_bytes += segment.bytes();
            for kind in FileKind::ALL {
                let path = segment.path(kind);
                if !self.disk.exists(&path) {
                    continue;
                }
                self.files.files.remove(&(segment.base_offset, kind));
                let mut deleted = path.as_os_str().to_os_string();
                deleted.push(DELETED_SUFFIX);
                self.disk
                    .rename(&path, Path::new(&deleted))
                    .map_err(|source| LogError::io("rename", &path, source))?;
            }
        }
        self.sync_directory()
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
        // After a kill the bytes may be in the page cache only. What is above the recovery point becomes durable now,
        // because readers will see it.
        if !self.options.clean_shutdown && tail.end_offset > self.options.recovery_point {
            let unsure = &segments[segment_index(&segments, self.options.recovery_point)..];
            for segment in unsure {
                segment
                    .file
                    .sync()
                    .map_err(|source| self.failed("sync", FileKind::Log, segment.base_offset, source))?;
            }
            // A checkpoint that reached into a segment had made its name durable, and that of segment 0 is so from the start.
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
        });
        let active = ActiveSegment {
            position: tail.position,
            reserved: 0,
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
            resealed: std::mem::take(&mut self.resealed),
        }))
    }
}

struct Resume {
    offsets: u32,
    times: u32,
    position: u64,
    progress: IndexProgress,
}

fn first_timestamp(segment: &Segment) -> io::Result<Option<i64>> {
    let place = segment.find_batch(i64::MIN, 0, segment.bytes(), ReadMode::Blocking)?;
    Ok(place.map(|place| place.max_timestamp))
}
