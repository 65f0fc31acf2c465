//! Log compaction: a closed segment is rewritten without the records that later ones with the same
//! key replace.
//!
//! Offsets never change. Besides the last record per key these are kept: tombstones and transaction
//! markers until their delete horizon (KIP-534), and the last batch of every producer, empty if
//! necessary, because sequence numbers are checked against it.
//!
//! Damage ends a job: every batch is compared with its checksum and with the offsets that are due,
//! and where one does not fit nothing is replaced. Otherwise an older record could be kept in the
//! place of the newest one.
//!
//! A job is planned under the partition's lock, run without it, installed under it, and finished
//! without it: `plan_compaction`, `CompactionJob::run`, `install_compaction`,
//! `CompactionJob::replace_files`, `finish_compaction`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_wire::records::batch::BatchHeader;
use ottla_wire::records::builder::BatchBuilder;
use ottla_wire::records::record::Record;

use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::disk::{Disk, DiskFile, OpenMode, outlast_shortage};
use crate::error::LogError;
use crate::marker::marker_in;
use crate::offset_map::OffsetMap;
use crate::partition_log::PartitionLog;
use crate::read_mode::ReadMode;
use crate::reader::segment_index;
use crate::segment::{
    BatchPlace, FileKind, IndexProgress, Segment, SegmentIndexes, UNKNOWN_TIMESTAMP, file_path,
};
use crate::stored_batch::StoredBatch;
use crate::sync::IndexWrite;
use crate::transaction_index::AbortedTransaction;

/// Output is written in pieces of about this size.
const WRITE_BYTES: usize = 1024 * 1024;

/// A rewritten segment is synced after this many bytes: until then they may take memory of the log.
const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// The state of a producer when the job was planned.
#[derive(Clone, Copy, Debug)]
struct LastOfProducer {
    producer_epoch: i16,
    /// Last offset of its last data batch.
    last_data_offset: Option<i64>,
}

/// One compaction of one log, from plan to finish.
#[derive(Debug)]
pub struct CompactionJob {
    disk: Arc<dyn Disk>,
    directory: Arc<Path>,
    segment_bytes: u64,
    index_interval_bytes: u32,
    delete_retention_ms: i64,
    now_ms: i64,
    /// Closed segments below the uncleanable part, oldest first.
    segments: Vec<Arc<Segment>>,
    first_dirty_offset: i64,
    uncleanable_offset: i64,
    /// Below this offset a segment may begin behind the end of the one before it.
    gaps_below: i64,
    producers: BTreeMap<i64, LastOfProducer>,
    aborted: Vec<AbortedTransaction>,
    /// Filled by `run`.
    replacements: Vec<Replacement>,
    next_dirty_offset: i64,
    /// Old and new files currently exist side by side.
    files_are_mixed: bool,
    /// Shared with the log.
    is_under_way: Arc<AtomicBool>,
    pub statistics: CompactionStatistics,
}

/// A job that is lost in a panic must not keep the log from being compacted and retained.
impl Drop for CompactionJob {
    fn drop(&mut self) {
        if !self.files_are_mixed {
            self.is_under_way.store(false, Ordering::Release);
        }
    }
}

/// What a compaction read and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStatistics {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub records_read: u64,
    pub records_kept: u64,
}

/// Adjacent segments and the segment that replaces them.
#[derive(Debug)]
struct Replacement {
    old: Vec<Arc<Segment>>,
    new: Arc<Segment>,
}

/// What a compaction would read now.
struct Dirty {
    /// Closed segments below the uncleanable part, oldest first.
    segments: Vec<Arc<Segment>>,
    first_dirty_offset: i64,
    uncleanable_offset: i64,
}

impl PartitionLog {
    /// Decides whether compaction is due, and of which segments. While a job is under way `retain`
    /// removes nothing.
    ///
    /// - Units: `first_dirty_offset` is what `finish_compaction` last returned
    ///   (`cleaner-offset-checkpoint`), 0 at first. `high_watermark`: records from there on are not
    ///   touched.
    /// - Shape: call `LogReader::load_compaction_times` first, because the compaction lags compare
    ///   segments' timestamps.
    pub fn plan_compaction(
        &mut self,
        now_ms: i64,
        first_dirty_offset: i64,
        high_watermark: i64,
    ) -> Option<CompactionJob> {
        // Only below the recovery point: above it, recovery would take a gap between segments for a
        // loss.
        let bound = self.last_stable_offset(high_watermark).min(self.recovery_point);
        let dirty = self.dirty(now_ms, first_dirty_offset, bound)?;
        self.compacting.store(true, Ordering::Release);
        let gaps_below = self.reader.state().gaps_below;
        Some(CompactionJob {
            disk: Arc::clone(&self.disk),
            directory: Arc::clone(&self.directory),
            segment_bytes: u64::from(self.config.segment_bytes),
            index_interval_bytes: self.config.index_interval_bytes,
            delete_retention_ms: self.config.delete_retention_ms,
            now_ms,
            segments: dirty.segments,
            first_dirty_offset: dirty.first_dirty_offset,
            uncleanable_offset: dirty.uncleanable_offset,
            gaps_below,
            producers: self.last_of_producers(),
            // All of them: the marker of a transaction may come after the segments that hold its
            // data.
            aborted: self.reader.aborted_transactions(0, dirty.uncleanable_offset),
            replacements: Vec::new(),
            next_dirty_offset: dirty.first_dirty_offset,
            files_are_mixed: false,
            is_under_way: Arc::clone(&self.compacting),
            statistics: CompactionStatistics::default(),
        })
    }

    /// Whether more could be compacted now after a checkpoint. Arguments as for `plan_compaction`.
    pub fn must_move_recovery_point(
        &self,
        now_ms: i64,
        first_dirty_offset: i64,
        high_watermark: i64,
    ) -> bool {
        let bound = self.last_stable_offset(high_watermark);
        self.dirty(now_ms, first_dirty_offset, bound)
            .is_some_and(|dirty| dirty.uncleanable_offset > self.recovery_point)
    }

    /// Closes the active segment when its first record has waited for `max.compaction.lag.ms`: only
    /// closed segments are compacted. An empty segment has no first record.
    ///
    /// - Errors: the log is unchanged.
    pub fn roll_if_overdue(&mut self, now_ms: i64) -> Result<(), LogError> {
        let first = self.active.first_timestamp.unwrap_or(UNKNOWN_TIMESTAMP);
        let may_roll = self.config.compact && self.poison.is_none();
        if may_roll && first >= 0 && now_ms.saturating_sub(first) > self.config.max_compaction_lag_ms {
            return self.roll(now_ms);
        }
        Ok(())
    }

    fn dirty(&self, now_ms: i64, first_dirty_offset: i64, bound: i64) -> Option<Dirty> {
        if !self.config.compact || self.is_compacting() || self.poison.is_some() {
            return None;
        }
        let all = Arc::clone(&self.reader.state().segments);
        let old_enough = |segment: &Segment| {
            let largest = segment.largest_timestamp();
            self.config.min_compaction_lag_ms <= 0
                || largest != UNKNOWN_TIMESTAMP
                    && now_ms.saturating_sub(largest) > self.config.min_compaction_lag_ms
        };
        let cleanable = all
            .windows(2)
            .take_while(|pair| pair[1].base_offset <= bound && old_enough(&pair[0]))
            .count();
        let uncleanable_offset = all[cleanable].base_offset;
        let valid_start = self.start_offset..=uncleanable_offset;
        let first_dirty_offset = if valid_start.contains(&first_dirty_offset) {
            first_dirty_offset
        } else {
            self.start_offset
        };
        let segments = &all[..cleanable];
        // A job that ran out of memory stopped in the middle of a segment, which therefore is
        // dirty.
        let first_dirty = segment_index(&all, first_dirty_offset).min(cleanable);
        let bytes_of =
            |segments: &[Arc<Segment>]| -> u64 { segments.iter().map(|segment| segment.bytes()).sum() };
        let dirty = &segments[first_dirty..];
        let ratio = bytes_of(dirty) as f64 / bytes_of(segments).max(1) as f64;
        // Without dirty segments neither is true.
        let is_due = ratio > self.config.min_cleanable_dirty_ratio
            || dirty.iter().any(|segment| self.is_overdue(segment, now_ms));
        is_due.then(|| Dirty {
            segments: segments.to_vec(),
            first_dirty_offset,
            uncleanable_offset,
        })
    }

    /// KIP-354: a record must not stay uncompacted longer than `max.compaction.lag.ms`. The first
    /// batch of a segment represents all of it.
    fn is_overdue(&self, segment: &Segment, now_ms: i64) -> bool {
        let first = match segment.first_timestamp() {
            UNKNOWN_TIMESTAMP => segment.largest_timestamp(),
            first => first,
        };
        first >= 0 && now_ms.saturating_sub(first) > self.config.max_compaction_lag_ms
    }

    fn last_of_producers(&self) -> BTreeMap<i64, LastOfProducer> {
        self.producers
            .producers()
            .map(|producer| {
                let last = LastOfProducer {
                    producer_epoch: producer.producer_epoch,
                    last_data_offset: self.producers.last_data_offset(producer.producer_id),
                };
                (producer.producer_id, last)
            })
            .collect()
    }

    /// Whether a job is under way.
    pub(crate) fn is_compacting(&self) -> bool {
        self.compacting.load(Ordering::Acquire)
    }

    /// Makes readers see the rewritten segments.
    pub fn install_compaction(&mut self, job: &CompactionJob) {
        let mut state = self.reader.state();
        let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(state.segments.len());
        let replaced: BTreeSet<i64> = job
            .replacements
            .iter()
            .flat_map(|each| &each.old)
            .map(|segment| segment.base_offset)
            .collect();
        segments.extend(job.replacements.iter().map(|each| Arc::clone(&each.new)));
        segments.extend(
            state
                .segments
                .iter()
                .filter(|segment| !replaced.contains(&segment.base_offset))
                .map(Arc::clone),
        );
        segments.sort_by_key(|segment| segment.base_offset);
        let first_kept = job.uncleanable_offset;
        state.recent.retain(|place| place.base_offset >= first_kept);
        state.segments = Arc::new(segments);
        state.gaps_below = state.gaps_below.max(first_kept);
        job.replacements
            .iter()
            .flat_map(|each| &each.old)
            .for_each(|segment| segment.retire());
    }

    /// Ends a job, completed or not; returns the new first dirty offset for
    /// `cleaner-offset-checkpoint`.
    pub fn finish_compaction(&mut self, job: CompactionJob) -> i64 {
        self.compacting.store(false, Ordering::Release);
        if job.files_are_mixed {
            self.poison_with(format!(
                "replacing compacted segments in {} failed",
                self.directory.display()
            ));
        }
        job.next_dirty_offset
    }
}

impl CompactionJob {
    /// Reads the dirty part, then rewrites every segment. Waits for the device; may take long.
    ///
    /// - Units: `map_bytes_max` bounds the memory for keys (24 bytes each, at most three quarters
    ///   used). When it does not suffice, the rest stays dirty for the next job.
    ///
    /// - Errors: the output is removed; the log is as it was. `Corrupt` names the damage.
    pub fn run(&mut self, map_bytes_max: usize) -> Result<(), LogError> {
        let outcome = self.rewrite_all(map_bytes_max);
        if outcome.is_err() {
            // The next start removes what cannot be removed now; report the first error.
            let _ = self.discard();
        }
        outcome
    }

    fn rewrite_all(&mut self, map_bytes_max: usize) -> Result<(), LogError> {
        // An earlier job may have left its output, and the next start would take that for a sign
        // that this job was interrupted.
        self.remove_output()?;
        let map = self.build_map(map_bytes_max)?;
        let mut transactions = Transactions::new(self.aborted.clone());
        let covered = self
            .segments
            .partition_point(|segment| segment.base_offset <= map.latest_offset);
        let groups = self.groups(covered);
        for group in groups {
            let replacement = self.rewrite(&group, &map, &mut transactions)?;
            self.replacements.push(replacement);
        }
        for replacement in &self.replacements {
            let base_offset = replacement.new.base_offset;
            let (cleaned, swap) = (
                self.temporary(base_offset, ".cleaned"),
                self.temporary(base_offset, ".swap"),
            );
            self.disk
                .rename(&cleaned, &swap)
                .map_err(|source| LogError::io("rename", &cleaned, source))?;
        }
        self.sync_directory()?;
        self.next_dirty_offset = self.next_dirty_offset.max(map.latest_offset + 1);
        Ok(())
    }

    fn temporary(&self, base_offset: i64, suffix: &str) -> PathBuf {
        let mut path = file_path(&self.directory, base_offset, FileKind::Log).into_os_string();
        path.push(suffix);
        PathBuf::from(path)
    }

    fn sync_directory(&self) -> Result<(), LogError> {
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))
    }

    fn build_map(&mut self, map_bytes_max: usize) -> Result<OffsetMap, LogError> {
        let mut map = OffsetMap::new(map_bytes_max);
        let mut transactions = Transactions::new(self.aborted.clone());
        let mut batch = StoredBatch::default();
        for segment in &self.segments[segment_index(&self.segments, self.first_dirty_offset)..] {
            let mut walk = self.walk(segment);
            while let Some(place) = walk.next(&mut batch)? {
                let header = batch.header();
                let is_aborted = transactions.note(&batch).discardable && !header.is_control();
                if !header.is_control() && !is_aborted {
                    for record in batch.records() {
                        let record = record.map_err(|error| walk.failed(&place, invalid(error)))?;
                        if let Some(key) = record.key
                            && record.offset >= self.first_dirty_offset
                            && !map.put(key, record.offset)
                        {
                            return Ok(map);
                        }
                        map.latest_offset = record.offset;
                    }
                }
                map.latest_offset = header.last_offset();
            }
        }
        map.latest_offset = self.uncleanable_offset - 1;
        Ok(map)
    }

    /// The first offset behind a segment of the job.
    fn next_base(&self, segment: &Segment) -> i64 {
        let next = self
            .segments
            .get(segment_index(&self.segments, segment.base_offset) + 1);
        next.map_or(self.uncleanable_offset, |next| next.base_offset)
    }

    fn walk<'a>(&self, segment: &'a Arc<Segment>) -> Walk<'a> {
        Walk::new(segment, self.next_base(segment), self.gaps_below)
    }

    /// Groups adjacent segments that fit into one segment together.
    fn groups(&self, covered: usize) -> Vec<Vec<Arc<Segment>>> {
        let mut groups: Vec<Vec<Arc<Segment>>> = Vec::new();
        let mut group_bytes = 0;
        for segment in &self.segments[..covered] {
            let next_base = self.next_base(segment);
            let fits = groups.last().is_some_and(|group| {
                group_bytes + segment.bytes() <= self.segment_bytes
                    && next_base - group[0].base_offset <= i64::from(i32::MAX)
            });
            match groups.last_mut() {
                Some(group) if fits => {
                    group.push(Arc::clone(segment));
                    group_bytes += segment.bytes();
                }
                _ => {
                    groups.push(vec![Arc::clone(segment)]);
                    group_bytes = segment.bytes();
                }
            }
        }
        groups
    }

    fn rewrite(
        &mut self,
        group: &[Arc<Segment>],
        map: &OffsetMap,
        transactions: &mut Transactions,
    ) -> Result<Replacement, LogError> {
        let base_offset = group[0].base_offset;
        let path = self.temporary(base_offset, ".cleaned");
        let failed = |source| LogError::io("write", &path, source);
        let file = self.disk.open_log(&path, OpenMode::Create).map_err(failed)?;
        file.set_bytes(0).map_err(failed)?;
        let new = Arc::new(Segment::new(
            Arc::clone(&self.disk),
            Arc::clone(&self.directory),
            base_offset,
            Arc::clone(&file),
            0,
            SegmentIndexes::new(0, 0),
        ));
        new.allow_gaps_below(i64::MAX);
        let mut output = Output::new(Arc::clone(&new), file, self.index_interval_bytes);
        for (index, segment) in group.iter().enumerate() {
            let is_last = index + 1 == group.len();
            self.filter_segment(segment, is_last, map, transactions, &mut output)?;
        }
        output.finish().map_err(failed)?;
        self.statistics.bytes_written += new.bytes();
        new.indexes().aborted = std::mem::take(&mut transactions.kept_aborts);
        Ok(Replacement {
            old: group.to_vec(),
            new,
        })
    }

    fn filter_segment(
        &mut self,
        segment: &Arc<Segment>,
        is_last: bool,
        map: &OffsetMap,
        transactions: &mut Transactions,
        output: &mut Output,
    ) -> Result<(), LogError> {
        let mut batch = StoredBatch::default();
        let mut walk = self.walk(segment);
        while let Some(place) = walk.next(&mut batch)? {
            let mut fate = transactions.note(&batch);
            fate.ends_group = is_last && place.end() == segment.bytes();
            self.filter_batch(&batch, fate, map, output)
                .map_err(|error| walk.failed(&place, error))?;
        }
        self.statistics.bytes_read += segment.bytes();
        Ok(())
    }

    fn filter_batch(
        &mut self,
        batch: &StoredBatch,
        fate: Fate,
        map: &OffsetMap,
        output: &mut Output,
    ) -> io::Result<()> {
        let header = batch.header();
        let horizon_passed = header
            .delete_horizon_ms()
            .is_some_and(|horizon| horizon <= self.now_ms);
        let discard_all = fate.discardable && (!header.is_control() || horizon_passed);
        let mut kept: Vec<Record<'_>> = Vec::new();
        let mut needs_horizon = header.is_control() && fate.discardable;
        let mut record_count = 0;
        for record in batch.records() {
            let record = record.map_err(invalid)?;
            record_count += 1;
            let keep = !discard_all && (header.is_control() || keep_record(&record, map, horizon_passed));
            if keep {
                needs_horizon |= !header.is_control() && record.value.is_none();
                kept.push(record);
            }
        }
        self.statistics.records_read += record_count;
        self.statistics.records_kept += kept.len() as u64;
        let new_horizon = (needs_horizon && !header.has_delete_horizon() && !kept.is_empty())
            .then(|| self.now_ms.saturating_add(self.delete_retention_ms));
        if kept.len() as u64 == record_count && new_horizon.is_none() && record_count > 0 {
            return output.write(header, batch.bytes());
        }
        if kept.is_empty() && !fate.ends_group && !self.is_last_of_producer(header) {
            return Ok(());
        }
        let horizon = if kept.is_empty() {
            None
        } else {
            new_horizon.or(header.delete_horizon_ms())
        };
        let mut builder = BatchBuilder::replacing(header, Vec::new(), horizon);
        for record in &kept {
            builder.append_record(record).map_err(invalid)?;
        }
        let bytes = builder.finish();
        let rebuilt = BatchHeader::parse(&bytes).map_err(invalid)?;
        output.write(&rebuilt, &bytes)
    }

    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        header.has_producer_id()
            && self
                .producers
                .get(&header.producer_id)
                .is_some_and(|last| match last.last_data_offset {
                    Some(offset) => header.last_offset() == offset,
                    None => header.is_control() && header.producer_epoch == last.producer_epoch,
                })
    }

    /// Gives the files their final names and removes the old ones. Call after `install_compaction`.
    /// Waits for the device.
    ///
    /// - Errors: the rest is done when the log is opened next. Until then `finish_compaction`
    ///   poisons the log, because new files would mix with old ones; reads continue. A shortage is
    ///   waited out.
    pub fn replace_files(&mut self) -> Result<(), LogError> {
        self.files_are_mixed = true;
        for replacement in &self.replacements {
            self.replace(replacement)?;
        }
        outlast_shortage(&*self.disk, || self.disk.sync_directory(&self.directory))
            .map_err(|source| LogError::io("sync", &self.directory, source))?;
        self.files_are_mixed = false;
        for replacement in &self.replacements {
            // Without these files readers use the entries in memory, and the next start rebuilds
            // them.
            let write = IndexWrite::of(&replacement.new, true);
            write.run(&*self.disk)?;
            write.finish();
        }
        Ok(())
    }

    fn replace(&self, replacement: &Replacement) -> Result<(), LogError> {
        let base_offset = replacement.new.base_offset;
        let remove = |path: &Path| match outlast_shortage(&*self.disk, || self.disk.remove_file(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", path, error)),
            _ => Ok(()),
        };
        for old in &replacement.old {
            for kind in FileKind::ALL {
                let is_base = old.base_offset == base_offset;
                // The rename below replaces the log file; the snapshot before the first record
                // stays valid.
                if !(is_base && matches!(kind, FileKind::Log | FileKind::Snapshot)) {
                    remove(&old.path(kind))?;
                }
            }
        }
        let swap = self.temporary(base_offset, ".swap");
        let path = replacement.new.path(FileKind::Log);
        outlast_shortage(&*self.disk, || self.disk.rename(&swap, &path))
            .map_err(|source| LogError::io("rename", &swap, source))
    }

    /// Removes the output of `run` when the job is not installed.
    fn discard(&self) -> Result<(), LogError> {
        self.remove_output()?;
        self.sync_directory()
    }

    fn remove_output(&self) -> Result<(), LogError> {
        for segment in &self.segments {
            for suffix in [".cleaned", ".swap"] {
                let path = self.temporary(segment.base_offset, suffix);
                match self.disk.remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(LogError::io("remove", &path, error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The batches of one segment, in order.
struct Walk<'a> {
    segment: &'a Segment,
    scanner: BatchScanner<'a>,
    /// The offset that is due.
    end_offset: i64,
    next_base: i64,
    gaps_below: i64,
}

impl<'a> Walk<'a> {
    fn new(segment: &'a Segment, next_base: i64, gaps_below: i64) -> Walk<'a> {
        let scanner = BatchScanner::new(&*segment.file, 0, segment.bytes(), Trust::Checksums);
        Walk {
            segment,
            scanner: scanner.expecting(segment.expected_at(segment.base_offset)),
            end_offset: segment.base_offset,
            next_base,
            gaps_below,
        }
    }

    /// Loads the next batch; `None` at the end.
    ///
    /// - Errors: `Corrupt` where the bytes are no intact batch, or where its offsets do not fit.
    fn next(&mut self, batch: &mut StoredBatch) -> Result<Option<BatchPlace>, LogError> {
        let path = self.segment.path(FileKind::Log);
        let read = |source| LogError::io("read", &path, source);
        let (header, position) = match self.scanner.next().map_err(read)? {
            Scanned::Batch { header, position } => (header, position),
            Scanned::Invalid { reason } => {
                return Err(LogError::corrupt(&path, self.scanner.position(), reason));
            }
            Scanned::End => return self.end().map(|()| None),
        };
        if header.next_offset() > self.next_base {
            let (offset, next_base) = (header.base_offset, self.next_base);
            let reason = format!("offset {offset} in front of a segment that begins at {next_base}");
            return Err(LogError::corrupt(&path, position, reason));
        }
        self.end_offset = header.next_offset();
        let place = BatchPlace::new(&header, self.segment.base_offset, position);
        let loaded = batch.load(self.segment, &place, ReadMode::Blocking);
        loaded.map_err(|error| self.failed(&place, error))?;
        Ok(Some(place))
    }

    fn end(&self) -> Result<(), LogError> {
        let (end_offset, next_base) = (self.end_offset, self.next_base);
        if end_offset == next_base || next_base <= self.gaps_below {
            return Ok(());
        }
        let reason =
            format!("its batches end at offset {end_offset}, but the next segment begins at {next_base}");
        let path = self.segment.path(FileKind::Log);
        Err(LogError::corrupt(&path, self.scanner.position(), reason))
    }

    /// What a batch holds is damage as well if it cannot be decoded.
    fn failed(&self, place: &BatchPlace, error: io::Error) -> LogError {
        let path = self.segment.path(FileKind::Log);
        if error.kind() == io::ErrorKind::InvalidData {
            return LogError::corrupt(&path, place.position, error.to_string());
        }
        LogError::io("compact", &path, error)
    }
}

fn invalid(error: impl std::error::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

fn keep_record(record: &Record<'_>, map: &OffsetMap, horizon_passed: bool) -> bool {
    if record.offset > map.latest_offset {
        return true;
    }
    // A record without a key cannot be compacted; Kafka drops those written before the policy
    // changed.
    let Some(key) = record.key else { return false };
    let is_last = map.get(key).is_none_or(|last| record.offset >= last);
    let is_live = record.value.is_some() || !horizon_passed;
    is_last && is_live
}

/// The consequence of transactions for a batch.
#[derive(Clone, Copy, Debug)]
struct Fate {
    /// Data of an aborted transaction, or a marker whose transaction has no data left.
    discardable: bool,
    /// The last batch of the segments that are merged. It is kept, empty if necessary, so that even
    /// after a crash the new segment tells which old ones it replaces.
    ends_group: bool,
}

/// Tracks the transactions of the segments in order.
#[derive(Debug)]
struct Transactions {
    /// Aborted transactions that begin further on, by first offset.
    upcoming: VecDeque<AbortedTransaction>,
    /// By producer id: its open aborted transaction, and whether one of its batches was seen.
    aborted: BTreeMap<i64, (AbortedTransaction, bool)>,
    /// Producers with an open transaction that will commit, and with data left.
    committed: BTreeSet<i64>,
    /// Aborted transactions whose markers are kept.
    kept_aborts: Vec<AbortedTransaction>,
}

impl Transactions {
    fn new(mut aborted: Vec<AbortedTransaction>) -> Transactions {
        aborted.sort_by_key(|aborted| aborted.first_offset);
        Transactions {
            upcoming: aborted.into(),
            aborted: BTreeMap::new(),
            committed: BTreeSet::new(),
            kept_aborts: Vec::new(),
        }
    }

    fn note(&mut self, batch: &StoredBatch) -> Fate {
        let header = batch.header();
        while let Some(next) = self.upcoming.front()
            && next.first_offset <= header.last_offset()
        {
            self.aborted.insert(next.producer_id, (*next, false));
            self.upcoming.pop_front();
        }
        let discardable = if header.is_control() {
            self.note_control(batch)
        } else if !header.is_transactional() {
            false
        } else if let Some((_, seen)) = self.aborted.get_mut(&header.producer_id) {
            *seen = true;
            true
        } else {
            self.committed.insert(header.producer_id);
            false
        };
        Fate {
            discardable,
            ends_group: false,
        }
    }

    fn note_control(&mut self, batch: &StoredBatch) -> bool {
        let header = batch.header();
        let Some(marker) = header
            .has_producer_id()
            .then(|| marker_in(header, &batch.bytes()[ottla_wire::records::batch::HEADER_BYTES..]))
            .flatten()
        else {
            // Other control records belong to the metadata log; an emptied marker has no record.
            return false;
        };
        if marker.committed {
            return !self.committed.remove(&header.producer_id);
        }
        match self.aborted.remove(&header.producer_id) {
            Some((aborted, true)) => {
                self.kept_aborts.push(aborted);
                false
            }
            _ => true,
        }
    }
}

/// The file of one rewritten segment.
struct Output {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    position: u64,
    synced: u64,
    progress: IndexProgress,
    index_interval_bytes: u32,
}

impl Output {
    fn new(segment: Arc<Segment>, file: Arc<dyn DiskFile>, index_interval_bytes: u32) -> Output {
        Output {
            segment,
            file,
            buffer: Vec::new(),
            position: 0,
            synced: 0,
            progress: IndexProgress::default(),
            index_interval_bytes,
        }
    }

    fn write(&mut self, header: &BatchHeader, bytes: &[u8]) -> io::Result<()> {
        let position = self.position + self.buffer.len() as u64;
        let place = BatchPlace::new(header, self.segment.base_offset, position);
        self.progress
            .note(&self.segment, &place, self.index_interval_bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_at(&[IoSlice::new(&self.buffer)], self.position)?;
            self.position += self.buffer.len() as u64;
            self.buffer.clear();
            // What is not synced takes memory.
            if self.position >= self.synced + SYNC_BYTES {
                self.file.sync()?;
                self.synced = self.position;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.set_bytes(self.position)?;
        self.file.sync()?;
        self.progress.finish(&self.segment);
        self.segment
            .set_largest_timestamp(self.progress.largest_timestamp);
        self.segment.set_bytes(self.position);
        Ok(())
    }
}
