//! Life of a produce, 5 of 6. Before: core/src/partition/mod.rs. After: segment.rs.
//!
//! Open, append, read, sync, truncate: the only entry point to a partition's files.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES, MAGIC};

use crate::config::LogConfig;
use crate::directory::write_partition_metadata;
use crate::disk::{Disk, DiskFile, FileRegion, OpenMode, is_shortage};
use crate::error::{AppendError, LogError, is_full};
use crate::group_commit::PAGE_BYTES;
use crate::leader_epoch::LeaderEpochs;
use crate::marker::{marker_in, note_marker};
use crate::origin::Origin;
use crate::producer_state::{ActiveProducer, Beginning, Marker, ProducerState, Verdict};
use crate::reader::{Bound, LogReader, SegmentPosition};
use crate::recovery::{OpenOptions, RecoveryReport};
use crate::segment::{
    BatchPlace, FileKind, IndexProgress, Segment, SegmentIndexes, UNKNOWN_TIMESTAMP, file_path,
};
use crate::sync::CheckpointJob;

/// Space is reserved this far beyond the end: a full disk is detected before a byte is written, and
/// a sync need not allocate. The chunk doubles from the first to the second number as a segment
/// grows, so that a small log stays small.
const RESERVE_BYTES_MIN: u64 = 64 * 1024;
const RESERVE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One batch before offsets are assigned: header decoded and validated, records as received.
#[derive(Clone, Copy, Debug)]
pub struct BatchToAppend<'a> {
    pub header: BatchHeader,
    /// The bytes after the 61-byte header.
    pub records: &'a [u8],
}

impl<'a> From<Batch<'a>> for BatchToAppend<'a> {
    fn from(batch: Batch<'a>) -> BatchToAppend<'a> {
        BatchToAppend {
            header: batch.header,
            records: batch.record_bytes(),
        }
    }
}

/// The offsets of one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: i64,
    pub last_offset: i64,
    /// The batch was already in the log; nothing was written. The offsets are those of the first
    /// append.
    pub duplicate: bool,
}

/// How far some readers may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visible {
    pub bound: Bound,
    /// Of the bytes appended since the log was opened, those below the bound.
    pub bytes: u64,
}

/// The segment that is being appended to, with state that only the appender needs.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub segment: Arc<Segment>,
    pub position: u64,
    /// Space is reserved up to this position; meaningless when below `position`.
    pub reserved: u64,
    /// No space is reserved beyond the end of the file, not by an earlier process either.
    pub is_trimmed: bool,
    pub progress: IndexProgress,
    /// Largest timestamp of the segment's first batch: `segment.ms` counts from it.
    pub first_timestamp: Option<i64>,
    pub created_ms: i64,
    /// Write-back has been started or done up to this position.
    pub written_back: u64,
}

/// A segment as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSummary {
    pub base_offset: i64,
    pub bytes: u64,
    /// `None`: no record has one, or it has not been read since the start.
    pub largest_timestamp: Option<i64>,
}

/// One partition. Methods that take `&mut self` are called under the partition's lock and never
/// wait for the device, except those that say so: `open`, `create`, `close`.
#[derive(Debug)]
pub struct PartitionLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: Arc<Path>,
    pub(crate) config: LogConfig,
    pub(crate) reader: LogReader,
    pub(crate) active: ActiveSegment,
    pub(crate) start_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) durable: Bound,
    pub(crate) recovery_point: i64,
    /// Bytes appended since the log was opened.
    pub(crate) appended_bytes: u64,
    /// The same count at the recovery point; negative while bytes that were found at the opening
    /// are behind it.
    pub(crate) recovery_point_bytes: i64,
    pub(crate) producers: ProducerState,
    pub(crate) leader_epochs: LeaderEpochs,
    /// The leader epochs as stored in their file.
    pub(crate) stored_epochs: LeaderEpochs,
    pub(crate) poison: Option<Arc<str>>,
    pub(crate) unsynced: Unsynced,
    pub(crate) checkpoints: Checkpoints,
    /// Whether a compaction job is under way; shared with the job.
    pub(crate) compacting: Arc<AtomicBool>,
    /// Headers of an append of several batches; kept for its capacity.
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    pub sealed: Vec<Arc<Segment>>,
    pub directory: bool,
    pub in_flight: bool,
}

/// The contents of the next checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub wanted: bool,
    pub in_flight: bool,
    /// Captured at a sync that has since succeeded.
    pub ready: Option<Box<CheckpointJob>>,
    /// Segments that were closed since the last checkpoint.
    pub sealed: Vec<Arc<Segment>>,
    /// Producer snapshots taken when a segment was closed.
    pub snapshots: Vec<(i64, Vec<u8>)>,
    /// Snapshots of earlier checkpoints that lie within the active segment.
    pub stale_snapshots: Vec<i64>,
    pub last_snapshot: Option<i64>,
}

/// The result of opening a directory.
pub(crate) struct OpenedLog {
    pub disk: Arc<dyn Disk>,
    pub directory: Arc<Path>,
    pub config: LogConfig,
    pub reader: LogReader,
    pub active: ActiveSegment,
    pub start_offset: i64,
    pub end: Bound,
    pub producers: ProducerState,
    pub leader_epochs: LeaderEpochs,
    pub stored_epochs: LeaderEpochs,
    /// Closed segments whose index files lack entries.
    pub resealed: Vec<Arc<Segment>>,
}

/// What an append is, by the state of its producer.
enum Judged {
    Data,
    Marker(Marker),
    /// It is in the log already.
    Duplicate(Appended),
}

/// Offsets, roll decision and sizes of an append, computed before the first byte is written.
struct Plan {
    bytes: u64,
    last_offset: i64,
    max_timestamp: i64,
}

impl PartitionLog {
    /// Opens the log in `directory`, creating what is missing and repairing what a crash left
    /// behind. Waits for the device.
    ///
    /// - Errors: `Corrupt` if durable records are missing; in that case nothing has been changed.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<(PartitionLog, RecoveryReport), LogError> {
        crate::recovery::open(disk, directory, config, options)
    }

    /// Returns what `open` would find in an existing directory, and its errors. Changes nothing.
    /// Waits for the device.
    pub fn check(
        disk: Arc<dyn Disk>,
        directory: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<RecoveryReport, LogError> {
        crate::recovery::check(disk, directory, config, options)
    }

    /// Creates the directory of a new partition: first `partition.metadata` with the topic id, then
    /// an empty log that begins at `start_offset`. Waits for the device.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        topic_id: Uuid,
        config: LogConfig,
        start_offset: i64,
        now_ms: i64,
    ) -> Result<PartitionLog, LogError> {
        disk.create_directories(directory)
            .map_err(|source| LogError::io("create", directory, source))?;
        write_partition_metadata(&*disk, directory, topic_id)?;
        if let Some(parent) = directory.parent() {
            disk.sync_directory(parent)
                .map_err(|source| LogError::io("sync", parent, source))?;
        }
        let options = OpenOptions {
            clean_shutdown: true,
            log_start_offset: start_offset,
            now_ms,
            ..OpenOptions::default()
        };
        PartitionLog::open(disk, directory, config, options).map(|(log, _)| log)
    }

    pub(crate) fn assemble(opened: OpenedLog) -> PartitionLog {
        PartitionLog {
            disk: opened.disk,
            directory: opened.directory,
            config: opened.config,
            reader: opened.reader,
            active: opened.active,
            start_offset: opened.start_offset,
            end_offset: opened.end.offset,
            durable: opened.end,
            recovery_point: 0,
            appended_bytes: 0,
            recovery_point_bytes: 0,
            producers: opened.producers,
            leader_epochs: opened.leader_epochs,
            stored_epochs: opened.stored_epochs,
            poison: None,
            unsynced: Unsynced::default(),
            checkpoints: Checkpoints {
                sealed: opened.resealed,
                ..Checkpoints::default()
            },
            compacting: Arc::default(),
            scratch: Vec::new(),
        }
    }

    /// Returns a handle for reading without the partition's lock.
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The first offset that may be read.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The offset that the next record gets.
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub fn end(&self) -> Bound {
        Bound {
            offset: self.end_offset,
            position: Some(SegmentPosition {
                segment_base_offset: self.active.segment.base_offset,
                position: self.active.position,
            }),
        }
    }

    /// Everything below this offset survives a power cut.
    pub fn durable_offset(&self) -> i64 {
        self.durable.offset
    }

    pub fn durable(&self) -> Bound {
        self.durable
    }

    /// The offset for `recovery-point-offset-checkpoint`: recovery after a crash reads from there
    /// on.
    pub fn recovery_point(&self) -> i64 {
        self.recovery_point
    }

    /// Returns the offset below which no transaction is open, at most `bound` (the high watermark).
    pub fn last_stable_offset(&self, bound: i64) -> i64 {
        // Records of an open transaction may be gone (DeleteRecords, retention): readers never wait
        // below the log's start.
        let stable = self.producers.last_stable_offset(bound);
        stable.max(self.start_offset().min(bound))
    }

    /// Notes that the high watermark has moved to `visible`; returns what readers of committed
    /// records may see now. It changes only here: a transaction begins and ends above the high
    /// watermark.
    pub fn high_watermark_moved(&mut self, visible: Visible) -> Visible {
        let bound = visible.bound;
        self.producers.forget_ended_below(bound.offset);
        match self.producers.first_unstable(bound.offset) {
            Some((offset, beginning)) if offset < bound.offset => Visible {
                bound: Bound {
                    offset,
                    position: beginning.position,
                },
                bytes: beginning.appended_bytes.min(visible.bytes),
            },
            _ => visible,
        }
    }

    pub fn leader_epochs(&self) -> &LeaderEpochs {
        &self.leader_epochs
    }

    pub fn active_producers(&self) -> impl Iterator<Item = ActiveProducer> {
        self.producers.producers()
    }

    /// Returns the producers with an open transaction. Cheap without one.
    pub fn open_transactions(&self) -> Vec<ActiveProducer> {
        if !self.producers.has_open_transactions() {
            return Vec::new();
        }
        let open = |producer: &ActiveProducer| producer.transaction_first_offset >= 0;
        self.active_producers().filter(open).collect()
    }

    /// Why writes are refused, if they are.
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    pub(crate) fn poison_with(&mut self, reason: String) -> LogError {
        let reason: Arc<str> = reason.into();
        self.poison.get_or_insert_with(|| Arc::clone(&reason));
        LogError::Poisoned { reason }
    }

    /// The page in which the next append begins, if it already holds data.
    pub fn unfilled_page(&self) -> Option<FileRegion> {
        let end = self.active.position;
        let start = end / PAGE_BYTES * PAGE_BYTES;
        (end > start).then(|| FileRegion {
            file: Arc::clone(&self.active.segment.file),
            position: start,
            bytes: end - start,
        })
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        let state = self.reader.state();
        state.segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// The segments, oldest first; the last one is written to. Does not wait for the device.
    pub fn segments(&self) -> Vec<SegmentSummary> {
        let segments = self.reader.state().segments.clone();
        let newest = self.active.progress.largest_timestamp;
        let summary = |segment: &Arc<Segment>| {
            let is_active = segment.base_offset == self.active.segment.base_offset;
            let timestamp = if is_active {
                newest
            } else {
                segment.largest_timestamp()
            };
            SegmentSummary {
                base_offset: segment.base_offset,
                bytes: segment.bytes(),
                largest_timestamp: Some(timestamp).filter(|timestamp| *timestamp >= 0),
            }
        };
        segments.iter().map(summary).collect()
    }

    /// Appends batches of the broker's own, or ones that were verified before.
    ///
    /// - Errors: as `append_from`.
    pub fn append(
        &mut self,
        batches: &[BatchToAppend<'_>],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.append_from(Origin::Broker, batches, leader_epoch, now_ms)
    }

    /// Appends batches at the end of the log as its leader: assigns offsets and stamps
    /// `leader_epoch`.
    ///
    /// - Shape: validated v2 batches. Batches of producers come one per call, except those of a
    ///   group coordinator.
    /// - Errors: `AppendError::Log` poisons the log, except for errors with `is_lack`. Those, and
    ///   all other errors, leave the log as it was.
    /// - Source: KIP-98 for sequences, epochs and duplicates, KIP-890 for transactions.
    pub fn append_from(
        &mut self,
        origin: Origin,
        batches: &[BatchToAppend<'_>],
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        if let Some(reason) = &self.poison {
            return Err(LogError::Poisoned {
                reason: Arc::clone(reason),
            }
            .into());
        }
        let marker = match self.judge(origin, batches)? {
            Judged::Duplicate(appended) => return Ok(appended),
            Judged::Marker(marker) => Some(marker),
            Judged::Data => None,
        };
        let plan = self.plan(batches)?;
        if self.must_roll(&plan, now_ms) {
            self.roll(now_ms)?;
        }
        self.reserve(plan.bytes)?;
        let base_offset = self.end_offset;
        self.write(batches, leader_epoch)?;
        self.note_appended(batches, leader_epoch, marker);
        if marker.is_some() && !origin.has_own_epoch() {
            let producer_id = batches[0].header.producer_id;
            self.producers.withdraw_tickets(producer_id, base_offset);
        }
        debug_assert_eq!(self.end_offset, plan.last_offset + 1);
        Ok(Appended {
            base_offset,
            last_offset: plan.last_offset,
            duplicate: false,
        })
    }

    /// Checks batches against the state of their producer. Changes nothing.
    fn judge(&self, origin: Origin, batches: &[BatchToAppend<'_>]) -> Result<Judged, AppendError> {
        let Some(batch) = batches.iter().find(|batch| batch.header.has_producer_id()) else {
            return Ok(Judged::Data);
        };
        if matches!(origin, Origin::GroupCoordinator(_)) {
            for batch in batches {
                self.producers.check(&batch.header, origin)?;
            }
            return Ok(Judged::Data);
        }
        if batches.len() > 1 {
            return Err(AppendError::InvalidBatch {
                reason: "several batches with a producer id",
            });
        }
        if batch.header.is_control() {
            let marker = parse_marker(batch)?;
            self.producers.check_marker(&batch.header, marker, origin)?;
            return Ok(Judged::Marker(marker));
        }
        Ok(match self.producers.check(&batch.header, origin)? {
            Verdict::Append => Judged::Data,
            Verdict::Duplicate {
                base_offset,
                last_offset,
                ..
            } => Judged::Duplicate(Appended {
                base_offset,
                last_offset,
                duplicate: true,
            }),
        })
    }

    fn plan(&self, batches: &[BatchToAppend<'_>]) -> Result<Plan, AppendError> {
        let mut plan = Plan {
            bytes: 0,
            last_offset: self.end_offset - 1,
            max_timestamp: UNKNOWN_TIMESTAMP,
        };
        for BatchToAppend { header, records } in batches {
            if header.magic != MAGIC || header.total_bytes() != HEADER_BYTES + records.len() {
                return Err(AppendError::InvalidBatch {
                    reason: "header does not describe the records",
                });
            }
            if header.last_offset_delta < 0 {
                return Err(AppendError::InvalidBatch {
                    reason: "negative last offset delta",
                });
            }
            plan.bytes += header.total_bytes() as u64;
            plan.last_offset = plan
                .last_offset
                .checked_add(1 + i64::from(header.last_offset_delta))
                .filter(|last| *last < i64::MAX)
                .ok_or(AppendError::InvalidBatch {
                    reason: "offsets are exhausted",
                })?;
            plan.max_timestamp = plan.max_timestamp.max(header.max_timestamp);
        }
        if batches.is_empty() {
            return Err(AppendError::InvalidBatch {
                reason: "nothing to append",
            });
        }
        if plan.bytes > u64::from(u32::MAX >> 1) {
            return Err(AppendError::InvalidBatch {
                reason: "more than 2 GiB at once",
            });
        }
        Ok(plan)
    }

    fn must_roll(&self, plan: &Plan, now_ms: i64) -> bool {
        let active = &self.active;
        if active.position == 0 {
            return false;
        }
        let age_ms = match active.first_timestamp {
            // As in Kafka, record time rather than the clock closes segments, so that replicas
            // agree.
            Some(first) if first >= 0 && plan.max_timestamp >= 0 => plan.max_timestamp.saturating_sub(first),
            _ => now_ms.saturating_sub(active.created_ms),
        };
        let index_full = || {
            let indexes = active.segment.indexes();
            indexes.offsets.count() >= self.config.segment_index_bytes / 8
                || indexes.times.count() + 1 >= self.config.segment_index_bytes / 12
        };
        active.position + plan.bytes > u64::from(self.config.segment_bytes)
            || age_ms > self.segment_ms().saturating_sub(self.jitter_ms())
            || plan.last_offset - active.segment.base_offset > i64::from(i32::MAX)
            || index_full()
    }

    /// KIP-354: a segment that must be compacted soon must be closed soon.
    fn segment_ms(&self) -> i64 {
        if self.config.compact {
            self.config.segment_ms.min(self.config.max_compaction_lag_ms)
        } else {
            self.config.segment_ms
        }
    }

    /// Deterministic: the same for a log at every start, different between logs.
    fn jitter_ms(&self) -> i64 {
        if self.config.segment_jitter_ms <= 0 {
            return 0;
        }
        let name = self.directory.file_name().unwrap_or_default();
        let hash = ottla_wire::records::crc32c::checksum(name.as_encoded_bytes());
        i64::from(hash) % self.config.segment_jitter_ms.min(self.segment_ms().max(1))
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), LogError> {
        let end = self.active.position + bytes;
        if end <= self.active.reserved {
            return Ok(());
        }
        let ahead = self.active.position.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
        let segment_bytes = u64::from(self.config.segment_bytes).max(end);
        let wanted = (end + ahead).min(segment_bytes);
        let file = &self.active.segment.file;
        // A nearly full disk may still have room for what is needed now.
        let reserved = match file.reserve(wanted) {
            Err(error) if is_full(&error) && wanted > end => file.reserve(end).map(|()| end),
            result => result.map(|()| wanted),
        };
        match reserved {
            Ok(reserved) => {
                self.active.reserved = reserved;
                self.active.is_trimmed = false;
                Ok(())
            }
            Err(error) if is_full(&error) => Err(LogError::NoSpace {
                path: self.active.segment.path(FileKind::Log),
                needed_bytes: bytes,
            }),
            Err(error) if is_shortage(&error) => Err(LogError::io(
                "extend",
                &self.active.segment.path(FileKind::Log),
                error,
            )),
            // Nothing was written, but a file that cannot be extended is not safe to append to.
            Err(error) => Err(self.poison_with(format!(
                "reserving space in {} failed: {error}",
                self.active.segment.path(FileKind::Log).display()
            ))),
        }
    }

    fn write(&mut self, batches: &[BatchToAppend<'_>], leader_epoch: i32) -> Result<(), LogError> {
        let position = self.active.position;
        let written = match batches {
            [batch] => {
                let header = assign(&batch.header, self.end_offset, leader_epoch).encode();
                let parts = [IoSlice::new(&header), IoSlice::new(batch.records)];
                self.active.segment.file.write_at(&parts, position)
            }
            _ => {
                self.scratch.clear();
                let mut base_offset = self.end_offset;
                for batch in batches {
                    let header = assign(&batch.header, base_offset, leader_epoch);
                    self.scratch.extend_from_slice(&header.encode());
                    base_offset = header.next_offset();
                }
                let parts: Vec<IoSlice<'_>> = self
                    .scratch
                    .chunks_exact(HEADER_BYTES)
                    .zip(batches)
                    .flat_map(|(header, batch)| [IoSlice::new(header), IoSlice::new(batch.records)])
                    .collect();
                self.active.segment.file.write_at(&parts, position)
            }
        };
        written.map_err(|error| self.write_failed(position, error))
    }

    /// Poisons the log, except for a lack of descriptors or space that left no trace.
    fn write_failed(&mut self, position: u64, error: io::Error) -> LogError {
        let path = self.active.segment.path(FileKind::Log);
        if is_shortage(&error) {
            return LogError::io("write", &path, error);
        }
        if is_full(&error) && self.active.segment.file.set_bytes(position).is_ok() {
            self.active.reserved = position;
            return LogError::NoSpace {
                path,
                needed_bytes: 0,
            };
        }
        self.poison_with(format!("writing to {} failed: {error}", path.display()))
    }

    fn note_appended(&mut self, batches: &[BatchToAppend<'_>], leader_epoch: i32, marker: Option<Marker>) {
        self.leader_epochs.assign(leader_epoch, self.end_offset);
        let interval_bytes = self.config.index_interval_bytes;
        let reader = self.reader.clone();
        for batch in batches {
            let header = assign(&batch.header, self.end_offset, leader_epoch);
            let active = &mut self.active;
            let place = BatchPlace::new(&header, active.segment.base_offset, active.position);
            let beginning = Beginning {
                position: Some(place.start()),
                appended_bytes: self.appended_bytes,
            };
            active.progress.note(&active.segment, &place, interval_bytes);
            active.first_timestamp.get_or_insert(header.max_timestamp);
            active.position = place.end();
            self.appended_bytes += place.bytes;
            active.segment.set_bytes(place.end());
            self.end_offset = header.next_offset();
            if header.has_producer_id() {
                self.note_producer(&header, beginning, marker);
            }
            reader.state().note(place);
        }
    }

    fn note_producer(&mut self, header: &BatchHeader, beginning: Beginning, marker: Option<Marker>) {
        match marker {
            None if header.is_control() => {}
            None => self.producers.note_batch(header, beginning),
            Some(marker) => {
                if let Some(aborted) = note_marker(&mut self.producers, header, marker) {
                    self.active.segment.indexes().aborted.push(aborted);
                }
            }
        }
    }

    /// Closes the active segment and begins the next one. Does not sync: the next sync job covers
    /// the closed file too.
    pub(crate) fn roll(&mut self, now_ms: i64) -> Result<(), LogError> {
        let base_offset = self.end_offset;
        let path = file_path(&self.directory, base_offset, FileKind::Log);
        let file = self.disk.create_log(&path);
        let segment = new_segment(&self.disk, &self.directory, base_offset, file)?;
        self.seal_active();
        self.active = ActiveSegment::empty(Arc::clone(&segment), now_ms);
        let mut state = self.reader.state();
        let mut segments = Vec::clone(&state.segments);
        segments.push(segment);
        state.segments = Arc::new(segments);
        state.end_position = 0;
        Ok(())
    }

    fn seal_active(&mut self) {
        let sealed = Arc::clone(&self.active.segment);
        self.active.progress.finish(&sealed);
        sealed.set_largest_timestamp(self.active.progress.largest_timestamp);
        sealed.set_first_timestamp(self.active.first_timestamp.unwrap_or(UNKNOWN_TIMESTAMP));
        self.unsynced.sealed.push(Arc::clone(&sealed));
        self.unsynced.directory = true;
        self.checkpoints
            .snapshots
            .push((self.end_offset, self.producers.encode_snapshot()));
        self.checkpoints.sealed.push(sealed);
        self.checkpoints.wanted = true;
    }

    /// Notes that this broker leads in `leader_epoch` from the log's end on.
    pub fn assign_leader_epoch(&mut self, leader_epoch: i32) {
        self.leader_epochs.assign(leader_epoch, self.end_offset);
    }

    /// Removes producers that have been silent for `producer.id.expiration.ms`; returns how many.
    pub fn expire_producers(&mut self, now_ms: i64) -> usize {
        self.producers
            .expire(now_ms, self.config.producer_id_expiration_ms)
    }
}

impl ActiveSegment {
    pub fn empty(segment: Arc<Segment>, now_ms: i64) -> ActiveSegment {
        ActiveSegment {
            segment,
            position: 0,
            reserved: 0,
            is_trimmed: true,
            progress: IndexProgress::default(),
            first_timestamp: None,
            created_ms: now_ms,
            written_back: 0,
        }
    }
}

/// Creates an empty segment; there is no file of that name. Waits for the device.
pub(crate) fn create_segment(
    disk: &Arc<dyn Disk>,
    directory: &Arc<Path>,
    base_offset: i64,
) -> Result<Arc<Segment>, LogError> {
    let path = file_path(directory, base_offset, FileKind::Log);
    let file = disk.open_log(&path, OpenMode::Create);
    new_segment(disk, directory, base_offset, file)
}

fn new_segment(
    disk: &Arc<dyn Disk>,
    directory: &Arc<Path>,
    base_offset: i64,
    file: io::Result<Arc<dyn DiskFile>>,
) -> Result<Arc<Segment>, LogError> {
    let path = file_path(directory, base_offset, FileKind::Log);
    let file = file.map_err(|source| match is_full(&source) {
        true => LogError::NoSpace {
            path,
            needed_bytes: 0,
        },
        false => LogError::io("create", &path, source),
    })?;
    Ok(Arc::new(Segment::new(
        Arc::clone(disk),
        Arc::clone(directory),
        base_offset,
        file,
        0,
        SegmentIndexes::new(0, 0),
    )))
}

fn assign(header: &BatchHeader, base_offset: i64, leader_epoch: i32) -> BatchHeader {
    BatchHeader {
        base_offset,
        leader_epoch,
        ..*header
    }
}

fn parse_marker(batch: &BatchToAppend<'_>) -> Result<Marker, AppendError> {
    marker_in(&batch.header, batch.records).ok_or(AppendError::InvalidTransactionState {
        producer_id: batch.header.producer_id,
    })
}
