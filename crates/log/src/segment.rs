//! Life of a produce, 6 of 6. Before: partition_log.rs.
//!
//! One segment: a file of batches and its indexes.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES};

use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::checked_ranges::CheckedRanges;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::LogError;
use crate::index_file::{Floor, SparseIndex, last_where};
use crate::offset_index::OffsetEntry;
use crate::read_mode::{ReadMode, read_up_to};
use crate::reader::SegmentPosition;
use crate::time_index::TimeEntry;
use crate::transaction_index::AbortedTransaction;

/// The kinds of files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    Snapshot,
}

impl FileKind {
    pub const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TransactionIndex,
        FileKind::Snapshot,
    ];

    pub fn suffix(self) -> &'static str {
        match self {
            FileKind::Log => ".log",
            FileKind::OffsetIndex => ".index",
            FileKind::TimeIndex => ".timeindex",
            FileKind::TransactionIndex => ".txnindex",
            FileKind::Snapshot => ".snapshot",
        }
    }
}

/// Returns a name like `00000000000000000042.log`.
pub(crate) fn file_name(base_offset: i64, kind: FileKind) -> String {
    format!("{base_offset:020}{}", kind.suffix())
}

pub(crate) fn file_path(directory: &Path, base_offset: i64, kind: FileKind) -> PathBuf {
    directory.join(file_name(base_offset, kind))
}

/// A batch and its position in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchPlace {
    pub base_offset: i64,
    pub last_offset: i64,
    pub segment_base_offset: i64,
    pub position: u64,
    pub bytes: u64,
    pub max_timestamp: i64,
}

impl BatchPlace {
    pub fn new(header: &BatchHeader, segment_base_offset: i64, position: u64) -> BatchPlace {
        BatchPlace {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            segment_base_offset,
            position,
            bytes: header.total_bytes() as u64,
            // A batch emptied by compaction keeps its header, but no record carries that time any
            // more.
            max_timestamp: if header.record_count == 0 {
                -1
            } else {
                header.max_timestamp
            },
        }
    }

    pub fn start(&self) -> SegmentPosition {
        SegmentPosition {
            segment_base_offset: self.segment_base_offset,
            position: self.position,
        }
    }

    pub fn end(&self) -> u64 {
        self.position + self.bytes
    }
}

#[derive(Debug)]
pub(crate) struct SegmentIndexes {
    pub offsets: SparseIndex<OffsetEntry>,
    pub times: SparseIndex<TimeEntry>,
    pub aborted: Vec<AbortedTransaction>,
    /// How many of `aborted` are in the `.txnindex` file.
    pub aborted_in_file: usize,
}

impl SegmentIndexes {
    pub fn new(offsets_in_file: u32, times_in_file: u32) -> SegmentIndexes {
        SegmentIndexes {
            offsets: SparseIndex::new(offsets_in_file),
            times: SparseIndex::new(times_in_file),
            aborted: Vec::new(),
            aborted_in_file: 0,
        }
    }

    /// Whether the files hold every entry.
    pub fn are_written(&self) -> bool {
        self.offsets.is_written() && self.times.is_written() && self.aborted_in_file == self.aborted.len()
    }
}

/// The state of the indexes of a growing segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexProgress {
    pub bytes_since_entry: u64,
    pub largest_timestamp: i64,
    pub offset_of_largest_timestamp: i64,
    /// Timestamp of the last time index entry.
    pub last_time_entry: i64,
}

impl Default for IndexProgress {
    fn default() -> IndexProgress {
        IndexProgress {
            bytes_since_entry: 0,
            // As in Kafka: -1 is no timestamp, and only larger ones get an entry.
            largest_timestamp: -1,
            offset_of_largest_timestamp: -1,
            last_time_entry: -1,
        }
    }
}

impl IndexProgress {
    /// Notes one more batch of `segment`; adds index entries when enough bytes have followed the
    /// last ones.
    pub fn note(&mut self, segment: &Segment, place: &BatchPlace, interval_bytes: u32) {
        if place.max_timestamp > self.largest_timestamp {
            self.largest_timestamp = place.max_timestamp;
            self.offset_of_largest_timestamp = place.last_offset;
        }
        if self.bytes_since_entry > u64::from(interval_bytes) {
            let position = u32::try_from(place.position).expect("a segment is smaller than 4 GiB");
            let mut indexes = segment.indexes();
            indexes.offsets.push(OffsetEntry {
                relative_offset: segment.relative(place.last_offset),
                position,
            });
            self.push_time_entry(segment, &mut indexes);
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += place.bytes;
    }

    /// Adds a last time index entry with the largest timestamp when a segment is closed: retention
    /// by time reads it there.
    pub fn finish(&mut self, segment: &Segment) {
        self.push_time_entry(segment, &mut segment.indexes());
    }

    fn push_time_entry(&mut self, segment: &Segment, indexes: &mut SegmentIndexes) {
        if self.largest_timestamp > self.last_time_entry {
            self.last_time_entry = self.largest_timestamp;
            indexes.times.push(TimeEntry {
                timestamp: self.largest_timestamp,
                relative_offset: segment.relative(self.offset_of_largest_timestamp),
            });
        }
    }
}

/// No timestamp is known (yet). Not -1: that is a timestamp that a Kafka record may carry.
pub(crate) const UNKNOWN_TIMESTAMP: i64 = i64::MIN;

/// Shared between the log, which is the only writer, and readers.
pub(crate) struct Segment {
    pub base_offset: i64,
    pub file: Arc<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    directory: Arc<Path>,
    /// Readable bytes. Readers of the active segment take the end from `ReaderState` instead, where
    /// it is consistent with the offset.
    bytes: AtomicU64,
    largest_timestamp: AtomicI64,
    /// Timestamp of the first batch.
    first_timestamp: AtomicI64,
    /// Compaction may have left gaps below this offset.
    gaps_below: AtomicI64,
    indexes: Mutex<SegmentIndexes>,
    /// Bytes below this position were in the file when the log was opened, and may be damaged; 0
    /// once all have been checked.
    unchecked_below: AtomicU64,
    checked: Mutex<CheckedRanges>,
    /// Set when the segment is removed, or replaced by compaction: index files of this name no
    /// longer belong to it.
    retired: AtomicBool,
    offset_index_file: OnceLock<Arc<dyn DiskFile>>,
    time_index_file: OnceLock<Arc<dyn DiskFile>>,
    /// Batches where readers have begun or will go on, the last of them: base offset and position.
    visited: Mutex<VecDeque<(i64, u64)>>,
}

/// Of each segment: some for each of the readers that follow it.
const VISITED_MAX: usize = 64;

/// How far a walk may lead from a batch that was visited.
const VISITED_WALK_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The result of a walk along batches.
#[derive(Default)]
struct Walk {
    found: Option<BatchPlace>,
    /// The first damage on the way.
    damage: Option<io::Error>,
    damage_position: Option<u64>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({} + {} bytes)", self.base_offset, self.bytes())
    }
}

impl Segment {
    pub fn new(
        disk: Arc<dyn Disk>,
        directory: Arc<Path>,
        base_offset: i64,
        file: Arc<dyn DiskFile>,
        bytes: u64,
        indexes: SegmentIndexes,
    ) -> Segment {
        Segment {
            base_offset,
            file,
            disk,
            directory,
            bytes: AtomicU64::new(bytes),
            largest_timestamp: AtomicI64::new(UNKNOWN_TIMESTAMP),
            first_timestamp: AtomicI64::new(UNKNOWN_TIMESTAMP),
            gaps_below: AtomicI64::new(base_offset),
            indexes: Mutex::new(indexes),
            unchecked_below: AtomicU64::new(0),
            checked: Mutex::default(),
            retired: AtomicBool::new(false),
            offset_index_file: OnceLock::new(),
            time_index_file: OnceLock::new(),
            visited: Mutex::default(),
        }
    }

    pub fn path(&self, kind: FileKind) -> PathBuf {
        file_path(&self.directory, self.base_offset, kind)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Returns `UNKNOWN_TIMESTAMP` until it has been computed.
    pub fn largest_timestamp(&self) -> i64 {
        self.largest_timestamp.load(Ordering::Relaxed)
    }

    pub fn set_largest_timestamp(&self, timestamp: i64) {
        self.largest_timestamp.store(timestamp, Ordering::Relaxed);
    }

    /// Returns `UNKNOWN_TIMESTAMP` until it has been read.
    pub fn first_timestamp(&self) -> i64 {
        self.first_timestamp.load(Ordering::Relaxed)
    }

    pub fn set_first_timestamp(&self, timestamp: i64) {
        self.first_timestamp.store(timestamp, Ordering::Relaxed);
    }

    /// Notes that recovery truncated the file to `bytes`; everything appended from here on is this
    /// process's.
    pub fn shorten(&self, bytes: u64) {
        self.set_bytes(bytes);
        self.unchecked_below.fetch_min(bytes, Ordering::AcqRel);
    }

    pub fn allow_gaps_below(&self, offset: i64) {
        self.gaps_below.fetch_max(offset, Ordering::Relaxed);
    }

    /// What a batch must begin with where `offset` is due.
    pub fn expected_at(&self, offset: i64) -> Expected {
        Expected {
            offset,
            gaps_below: self.gaps_below.load(Ordering::Relaxed),
        }
    }

    /// Marks the present bytes as unchecked: another process wrote them.
    pub fn distrust(&self) {
        self.unchecked_below.store(self.bytes(), Ordering::Release);
    }

    /// Whether the bytes are known to be intact: written by this process, or compared with their
    /// checksums.
    pub fn is_checked(&self, start: u64, end: u64) -> bool {
        let below = self.unchecked_below.load(Ordering::Acquire);
        start >= below || self.checked().contains(start, end.min(below))
    }

    pub fn note_checked(&self, start: u64, end: u64) {
        let below = self.unchecked_below.load(Ordering::Acquire);
        let mut checked = self.checked();
        checked.insert(start, end);
        if checked.contains(0, below) {
            self.unchecked_below.store(0, Ordering::Release);
            *checked = CheckedRanges::default();
        }
    }

    fn checked(&self) -> MutexGuard<'_, CheckedRanges> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub fn indexes(&self) -> MutexGuard<'_, SegmentIndexes> {
        // The critical sections below do not panic half-way, so a poisoned lock still guards
        // consistent values.
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn relative(&self, offset: i64) -> i32 {
        i32::try_from(offset - self.base_offset).expect("a segment rolls before its offsets exceed 31 bits")
    }

    /// Returns where a search for `offset` may begin: the position of a batch at or before it.
    pub fn position_floor(&self, offset: i64, mode: ReadMode) -> io::Result<u64> {
        self.position_where(mode, |entry| {
            self.base_offset + i64::from(entry.relative_offset) <= offset
        })
    }

    /// Returns the end of the last batch that ends at or before `position`, or where damage begins;
    /// and the base offset of the batch that follows, if it is known.
    ///
    /// - `first`: the position of some batch before `position`.
    /// - `end`: the end of what may be read.
    pub fn batch_end_floor(
        &self,
        first: u64,
        position: u64,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<(u64, Option<i64>)> {
        let is_before = |entry: &OffsetEntry| u64::from(entry.position) <= position;
        let from = match self.position_where(mode, is_before) {
            Ok(from) => from.max(first),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let visited = self.visited_floor(|_, visited| visited <= position);
                let from = visited.unwrap_or(0).max(first);
                if position - from > VISITED_WALK_BYTES_MAX {
                    return Err(error);
                }
                from
            }
            Err(error) => return Err(error),
        };
        let walk = self.walk(from, end, mode, |place| place.end() > position)?;
        Ok(match (walk.damage_position, walk.found) {
            (Some(damage), _) => (damage, None),
            (None, Some(crossing)) => (crossing.position, Some(crossing.base_offset)),
            (None, None) => (end, None),
        })
    }

    /// Returns the position in the last offset index entry for which `precedes` holds.
    pub fn position_where(&self, mode: ReadMode, precedes: impl Fn(&OffsetEntry) -> bool) -> io::Result<u64> {
        let floor = self.indexes().offsets.floor(&precedes);
        match floor {
            Floor::Nothing => Ok(0),
            Floor::Memory(entry) => Ok(u64::from(entry.position)),
            Floor::InFile(_) if self.is_retired() => Ok(0),
            Floor::InFile(count) => self.genuine_position(count, mode, precedes),
        }
    }

    /// Like `position_where`, among the first `count` entries of the file. Each entry is verified:
    /// a wrong one would make a reader skip batches.
    fn genuine_position(
        &self,
        mut count: u32,
        mode: ReadMode,
        precedes: impl Fn(&OffsetEntry) -> bool,
    ) -> io::Result<u64> {
        let file = self.index_file(FileKind::OffsetIndex, mode)?;
        while let Some((index, entry)) = last_where(&*file, count, mode, &precedes)? {
            if self.batch_of_entry(entry, self.bytes(), mode)?.is_some() {
                return Ok(u64::from(entry.position));
            }
            count = index / 2;
        }
        Ok(0)
    }

    /// Returns the last time index entry with a timestamp below `timestamp`.
    pub fn time_floor(&self, timestamp: i64, mode: ReadMode) -> io::Result<Option<TimeEntry>> {
        self.time_entry_where(mode, |entry| entry.timestamp < timestamp)
    }

    fn time_entry_where(
        &self,
        mode: ReadMode,
        precedes: impl Fn(&TimeEntry) -> bool,
    ) -> io::Result<Option<TimeEntry>> {
        let floor = self.indexes().times.floor(&precedes);
        match floor {
            Floor::Nothing => Ok(None),
            Floor::Memory(entry) => Ok(Some(entry)),
            Floor::InFile(_) if self.is_retired() => Ok(None),
            Floor::InFile(count) => self.genuine_time(count, mode, precedes),
        }
    }

    /// Like `time_entry_where`, among the first `count` entries of the file, each verified against
    /// the batch it names.
    fn genuine_time(
        &self,
        mut count: u32,
        mode: ReadMode,
        precedes: impl Fn(&TimeEntry) -> bool,
    ) -> io::Result<Option<TimeEntry>> {
        let file = self.index_file(FileKind::TimeIndex, mode)?;
        while let Some((index, entry)) = last_where(&*file, count, mode, &precedes)? {
            if self.is_genuine_time(entry, mode)? {
                return Ok(Some(entry));
            }
            count = index / 2;
        }
        Ok(None)
    }

    /// Whether the batch that ends with the entry's offset has the entry's timestamp.
    pub fn is_genuine_time(&self, entry: TimeEntry, mode: ReadMode) -> io::Result<bool> {
        let offset = self.base_offset + i64::from(entry.relative_offset);
        match self.search(offset, self.bytes(), mode) {
            Ok(place) => Ok(place
                .is_some_and(|place| place.last_offset == offset && place.max_timestamp == entry.timestamp)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the last time index entry with an offset below `offset`.
    pub fn time_floor_by_offset(&self, offset: i64, mode: ReadMode) -> io::Result<Option<TimeEntry>> {
        self.time_entry_where(mode, |entry| {
            self.base_offset + i64::from(entry.relative_offset) < offset
        })
    }

    /// Returns the last entry of a closed segment's time index.
    pub fn last_time_entry(&self, mode: ReadMode) -> io::Result<Option<TimeEntry>> {
        self.time_floor(i64::MAX, mode)
    }

    /// Returns an index file, opened on first use. Opening may wait for the device.
    pub fn index_file(&self, kind: FileKind, mode: ReadMode) -> io::Result<Arc<dyn DiskFile>> {
        let slot = match kind {
            FileKind::OffsetIndex => &self.offset_index_file,
            _ => &self.time_index_file,
        };
        if let Some(file) = slot.get() {
            return Ok(Arc::clone(file));
        }
        if mode == ReadMode::Resident {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let file = self.disk.open(&self.path(kind), OpenMode::Create)?;
        Ok(Arc::clone(slot.get_or_init(|| file)))
    }

    /// Returns the first batch below `end` whose last offset is at least `offset`.
    ///
    /// - Errors: `InvalidData` where damage may have held the offset.
    pub fn search(&self, offset: i64, end: u64, mode: ReadMode) -> io::Result<Option<BatchPlace>> {
        match self.position_floor(offset, mode) {
            Ok(from) => self.find_batch(offset, from, end, mode),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let visited = self.visited_floor(|base_offset, _| base_offset <= offset);
                let from = visited.ok_or(error)?;
                let found = self.find_batch(offset, from, end.min(from + VISITED_WALK_BYTES_MAX), mode)?;
                found.map(Some).ok_or(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Notes where a batch begins that a reader was given, or will ask for next: the index file
    /// need not be in memory, and a reader that never waits would not get on without it. Nothing is
    /// noted where the index is in memory, so that readers at the end leave room for others.
    pub fn note_visited(&self, base_offset: i64, position: u64) {
        let is_before =
            |entry: &OffsetEntry| self.base_offset + i64::from(entry.relative_offset) <= base_offset;
        if !matches!(self.indexes().offsets.floor(is_before), Floor::InFile(_)) {
            return;
        }
        let mut visited = self.visited();
        if visited.contains(&(base_offset, position)) {
            return;
        }
        if visited.len() == VISITED_MAX {
            visited.pop_front();
        }
        visited.push_back((base_offset, position));
    }

    /// Returns the position of the last visited batch for whose offset and position this holds.
    fn visited_floor(&self, is_before: impl Fn(i64, u64) -> bool) -> Option<u64> {
        let visited = self.visited();
        let before = visited
            .iter()
            .filter(|(offset, position)| is_before(*offset, *position));
        before.map(|(_, position)| *position).max()
    }

    fn visited(&self) -> MutexGuard<'_, VecDeque<(i64, u64)>> {
        self.visited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like `search`, starting from a batch at `from`.
    pub fn find_batch(
        &self,
        offset: i64,
        from: u64,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<BatchPlace>> {
        let walk = self.walk(from, end, mode, |place| place.last_offset >= offset)?;
        let holds_offset = |place: &BatchPlace| place.base_offset <= offset;
        match walk.damage {
            Some(damage) if !walk.found.as_ref().is_some_and(holds_offset) => Err(damage),
            _ => Ok(walk.found),
        }
    }

    /// Returns the first batch at or after `from` and below `end` that is `wanted`; skips damage.
    pub fn find_batch_where(
        &self,
        from: u64,
        end: u64,
        mode: ReadMode,
        wanted: impl Fn(&BatchPlace) -> bool,
    ) -> io::Result<Option<BatchPlace>> {
        Ok(self.walk(from, end, mode, wanted)?.found)
    }

    /// Walks from header to header; reads nothing else except after damage.
    fn walk(
        &self,
        from: u64,
        end: u64,
        mode: ReadMode,
        wanted: impl Fn(&BatchPlace) -> bool,
    ) -> io::Result<Walk> {
        let mut buffer = [0; 4096];
        let mut position = from;
        let mut due = (from == 0).then_some(self.base_offset);
        let mut walk = Walk::default();
        // The batch before `position`.
        let mut last: Option<BatchPlace> = None;
        while position < end {
            let wanted_bytes = usize::try_from(end - position)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = read_up_to(&*self.file, &mut buffer[..wanted_bytes], position, mode)?;
            let chunk_start = position;
            let mut invalid = (read < HEADER_BYTES).then(|| "too few bytes for a batch header".to_string());
            while let Some(bytes) = buffer[..read].get((position - chunk_start) as usize..)
                && bytes.len() >= HEADER_BYTES
            {
                let place = self.place_at(bytes, position, end, due);
                let is_wanted = place.as_ref().is_ok_and(&wanted);
                let doubt = match &place {
                    Ok(place) if is_wanted => self.doubt(place, due, end, mode)?,
                    _ => None,
                };
                match (place, doubt) {
                    (Err(reason), _) | (Ok(_), Some(reason)) => {
                        invalid = Some(reason);
                        break;
                    }
                    (Ok(place), None) if is_wanted => {
                        walk.found = Some(place);
                        return Ok(walk);
                    }
                    (Ok(place), None) => {
                        (position, due, last) = (place.end(), Some(place.last_offset + 1), Some(place));
                    }
                }
            }
            if let Some(reason) = invalid {
                // The length of the batch before may be what is wrong.
                if let Some(before) = last.take()
                    && self.doubt(&before, None, end, mode)?.is_some()
                {
                    (position, due) = (before.position, Some(before.base_offset));
                }
                let error = || self.corrupt(position, &reason);
                walk.damage.get_or_insert_with(error);
                walk.damage_position.get_or_insert(position);
                match self.batch_behind(position, due, end, mode)? {
                    Some(behind) => (position, due) = (behind, None),
                    None => return Ok(walk),
                }
            }
        }
        Ok(walk)
    }

    /// Returns what is wrong with a batch that a walk has found: a damaged header may claim offsets
    /// that are not its own. With `ReadMode::Resident` nothing is checked here, but where the batch
    /// is read.
    fn doubt(
        &self,
        place: &BatchPlace,
        due: Option<i64>,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<String>> {
        if mode == ReadMode::Resident || self.is_checked(place.position, place.end()) {
            return Ok(None);
        }
        if let Some(next) = self.contradicting(place, due, end, mode)? {
            let offset = place.base_offset;
            return Ok(Some(format!(
                "offset {offset} in front of a batch with offset {next}"
            )));
        }
        let mut scanner = BatchScanner::new(&*self.file, place.position, place.end(), Trust::Checksums);
        match scanner.next()? {
            Scanned::Invalid { reason } => Ok(Some(reason)),
            Scanned::Batch { .. } | Scanned::End => {
                // A right checksum alone does not tell that the base offset is right.
                if due == Some(place.base_offset) {
                    self.note_checked(place.position, place.end());
                }
                Ok(None)
            }
        }
    }

    /// Returns the base offset of the batch behind `place` if the two contradict each other and
    /// `place` is the one that is wrong: no checksum covers a base offset.
    fn contradicting(
        &self,
        place: &BatchPlace,
        due: Option<i64>,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<i64>> {
        let next = self.header_at(place.end(), end, mode)?;
        let contradicts = |next: &BatchHeader| {
            next.base_offset <= place.last_offset && due.is_none_or(|due| next.base_offset >= due)
        };
        let Some(next) = next.filter(contradicts) else {
            return Ok(None);
        };
        let behind = self.header_at(place.end() + next.total_bytes() as u64, end, mode)?;
        let behind = behind.map(|behind| behind.base_offset);
        let is_next_where_it_says = behind == Some(next.next_offset());
        // With the offset that follows `place`, the next batch would fill the gap up to the one
        // behind it.
        let offsets = next.next_offset() - next.base_offset;
        let would_follow = behind == Some(place.last_offset + 1 + offsets);
        let is_next_wrong = would_follow || due == Some(place.base_offset) && !is_next_where_it_says;
        Ok((!is_next_wrong).then_some(next.base_offset))
    }

    /// Returns the header of the batch that begins at `position`; `None` if it is not a valid one.
    pub fn header_at(&self, position: u64, end: u64, mode: ReadMode) -> io::Result<Option<BatchHeader>> {
        let mut bytes = [0; HEADER_BYTES];
        if position + HEADER_BYTES as u64 > end
            || read_up_to(&*self.file, &mut bytes, position, mode)? < HEADER_BYTES
        {
            return Ok(None);
        }
        let header = BatchHeader::parse(&bytes).ok();
        Ok(header.filter(|header| position + header.total_bytes() as u64 <= end))
    }

    fn place_at(
        &self,
        bytes: &[u8],
        position: u64,
        end: u64,
        due: Option<i64>,
    ) -> Result<BatchPlace, String> {
        let header = BatchHeader::parse(bytes).map_err(|error| error.to_string())?;
        let place = BatchPlace::new(&header, self.base_offset, position);
        if place.end() > end {
            return Err("batch reaches beyond the segment's end".to_string());
        }
        match due.map(|offset| self.expected_at(offset)) {
            Some(expected) if !expected.is_met_by(place.base_offset) => Err(format!(
                "offset {}, expected {}",
                place.base_offset, expected.offset
            )),
            _ => Ok(place),
        }
    }

    /// Returns where valid batches continue after damage.
    fn batch_behind(
        &self,
        damage: u64,
        due: Option<i64>,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<u64>> {
        if mode == ReadMode::Resident {
            // A search through the bytes takes too long for an event loop, even if all of them are
            // resident.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let expected = Expected {
            offset: due.unwrap_or(self.base_offset),
            gaps_below: i64::MAX,
        };
        let mut scanner = BatchScanner::new(&*self.file, damage, end, Trust::Headers).expecting(expected);
        Ok(scanner.next_behind_damage()?.map(|(_, position)| position))
    }

    fn corrupt(&self, position: u64, reason: &str) -> io::Error {
        LogError::corrupt(&self.path(FileKind::Log), position, reason).into_invalid_data()
    }

    /// Returns the header of the batch that an index entry points to; `None` if the entry is wrong.
    pub fn batch_of_entry(
        &self,
        entry: OffsetEntry,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<BatchHeader>> {
        let position = u64::from(entry.position);
        if entry.relative_offset < 0 {
            return Ok(None);
        }
        let offset = self.base_offset + i64::from(entry.relative_offset);
        let header = self.header_at(position, end, mode)?;
        Ok(header.filter(|header| header.base_offset <= offset && offset <= header.last_offset()))
    }
}
