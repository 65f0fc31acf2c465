//! Life of a produce, 6 of 6. Before: partition_log.rs.
//!
//! One segment: a file of batches and the indexes into it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::index_file::{Floor, SparseIndex, last_where};
use crate::offset_index::OffsetEntry;
use crate::read_mode::{ReadMode, read_up_to};
use crate::time_index::TimeEntry;
use crate::transaction_index::AbortedTransaction;

/// Which file of a segment.
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

/// `00000000000000000042.log`
pub(crate) fn file_name(base_offset: i64, kind: FileKind) -> String {
    format!("{base_offset:020}{}", kind.suffix())
}

pub(crate) fn file_path(directory: &Path, base_offset: i64, kind: FileKind) -> PathBuf {
    directory.join(file_name(base_offset, kind))
}

/// A batch and where it lies.
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
            // A batch that compaction emptied keeps its header, but no record carries that time any more.
            max_timestamp: if header.record_count == 0 {
                -1
            } else {
                header.max_timestamp
            },
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
    /// How many of `aborted` the `.txnindex` file holds.
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
}

/// Where the indexes of a growing segment stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexProgress {
    pub bytes_since_entry: u64,
    pub largest_timestamp: i64,
    pub offset_of_largest_timestamp: i64,
    /// Timestamp of the newest time index entry.
    pub last_time_entry: i64,
}

impl Default for IndexProgress {
    fn default() -> IndexProgress {
        IndexProgress {
            bytes_since_entry: 0,
            // As in Kafka: -1 is no time, and only larger ones are worth an entry.
            largest_timestamp: -1,
            offset_of_largest_timestamp: -1,
            last_time_entry: -1,
        }
    }
}

impl IndexProgress {
    /// Takes note of one more batch of `segment`; adds index entries when enough bytes lie behind the last ones.
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

    /// A closed segment's time index ends with its largest timestamp: retention by time reads it there.
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

/// No timestamp is known (yet); Kafka's -1 is a timestamp that a record may carry.
pub(crate) const UNKNOWN_TIMESTAMP: i64 = i64::MIN;

/// Shared between the log, which alone appends, and readers.
pub(crate) struct Segment {
    pub base_offset: i64,
    pub file: Arc<dyn DiskFile>,
    disk: Arc<dyn Disk>,
    directory: Arc<Path>,
    /// Readable bytes. Readers of the active segment take the end from `ReaderState` instead, together with the offset.
    bytes: AtomicU64,
    largest_timestamp: AtomicI64,
    indexes: Mutex<SegmentIndexes>,
    /// Replaced by compaction: the index files of this name belong to another segment now.
    retired: AtomicBool,
    offset_index_file: OnceLock<Arc<dyn DiskFile>>,
    time_index_file: OnceLock<Arc<dyn DiskFile>>,
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
            indexes: Mutex::new(indexes),
            retired: AtomicBool::new(false),
            offset_index_file: OnceLock::new(),
            time_index_file: OnceLock::new(),
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

    /// `UNKNOWN_TIMESTAMP` until it was computed.
    pub fn largest_timestamp(&self) -> i64 {
        self.largest_timestamp.load(Ordering::Relaxed)
    }

    pub fn set_largest_timestamp(&self, timestamp: i64) {
        self.largest_timestamp.store(timestamp, Ordering::Relaxed);
    }

    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub fn indexes(&self) -> MutexGuard<'_, SegmentIndexes> {
        // The critical sections below do not panic half-way, so a poisoned lock still guards whole values.
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn relative(&self, offset: i64) -> i32 {
        i32::try_from(offset - self.base_offset).expect("a segment rolls before its offsets exceed 31 bits")
    }

    /// Where a search for `offset` may begin: the position of a batch at or before it.
    pub fn position_floor(&self, offset: i64, mode: ReadMode) -> io::Result<u64> {
        self.position_where(mode, |entry| {
            self.base_offset + i64::from(entry.relative_offset) <= offset
        })
    }

    /// The end of the last batch that ends at or before `position`.
    ///
    /// - `first`: where some batch begins, before `position`.
    /// - `end`: of what may be read.
    pub fn batch_end_floor(&self, first: u64, position: u64, end: u64, mode: ReadMode) -> io::Result<u64> {
        let from = self.position_where(mode, |entry| u64::from(entry.position) <= position)?;
        let crosses = |place: &BatchPlace| place.end() > position;
        let crossing = self.find_batch_where(from.max(first), end, mode, crosses)?;
        Ok(crossing.map_or(end, |place| place.position))
    }

    /// The position in the last entry of the offset index for which `precedes` holds.
    fn position_where(&self, mode: ReadMode, precedes: impl Fn(&OffsetEntry) -> bool) -> io::Result<u64> {
        let floor = self.indexes().offsets.floor(&precedes);
        match floor {
            Floor::Nothing => Ok(0),
            Floor::Memory(entry) => Ok(u64::from(entry.position)),
            Floor::InFile(_) if self.retired.load(Ordering::Acquire) => Ok(0),
            Floor::InFile(count) => {
                let file = self.index_file(FileKind::OffsetIndex, mode)?;
                let found = last_where(&*file, count, mode, precedes)?;
                Ok(found.map_or(0, |(_, entry)| u64::from(entry.position)))
            }
        }
    }

    /// The last time index entry with a timestamp below `timestamp`.
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
            Floor::InFile(_) if self.retired.load(Ordering::Acquire) => Ok(None),
            Floor::InFile(count) => {
                let file = self.index_file(FileKind::TimeIndex, mode)?;
                Ok(last_where(&*file, count, mode, precedes)?.map(|(_, entry)| entry))
            }
        }
    }

    /// The last time index entry that speaks of an offset below `offset`.
    pub fn time_floor_by_offset(&self, offset: i64, mode: ReadMode) -> io::Result<Option<TimeEntry>> {
        self.time_entry_where(mode, |entry| {
            self.base_offset + i64::from(entry.relative_offset) < offset
        })
    }

    /// The last entry of the time index as a closed segment's file holds it.
    pub fn last_time_entry(&self, mode: ReadMode) -> io::Result<Option<TimeEntry>> {
        self.time_floor(i64::MAX, mode)
    }

    /// An index file, opened when first needed. Opening may wait for the device.
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

    /// The first batch below `end` whose last offset is at least `offset`.
    pub fn search(&self, offset: i64, end: u64, mode: ReadMode) -> io::Result<Option<BatchPlace>> {
        let from = self.position_floor(offset, mode)?;
        match self.find_batch(offset, from, end, mode) {
            // The index may be damaged while the batches are not.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && from > 0 => {
                self.find_batch(offset, 0, end, mode)
            }
            found => found,
        }
    }

    /// The first batch at or behind `from` whose last offset is at least `offset`; `None` if there is none below `end`.
    pub fn find_batch(
        &self,
        offset: i64,
        from: u64,
        end: u64,
        mode: ReadMode,
    ) -> io::Result<Option<BatchPlace>> {
        self.find_batch_where(from, end, mode, |place| place.last_offset >= offset)
    }

    /// The first batch at or behind `from` and below `end` that is `wanted`; only headers are read.
    pub fn find_batch_where(
        &self,
        from: u64,
        end: u64,
        mode: ReadMode,
        wanted: impl Fn(&BatchPlace) -> bool,
    ) -> io::Result<Option<BatchPlace>> {
        let mut buffer = [0; 4096];
        let mut position = from;
        while position + HEADER_BYTES as u64 <= end {
            let wanted_bytes = usize::try_from(end - position)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let read = read_up_to(&*self.file, &mut buffer[..wanted_bytes], position, mode)?;
            let chunk_start = position;
            while let Some(bytes) = buffer[..read].get((position - chunk_start) as usize..)
                && bytes.len() >= HEADER_BYTES
            {
                let header =
                    BatchHeader::parse(bytes).map_err(|error| self.corrupt(position, &error.to_string()))?;
                let place = BatchPlace::new(&header, self.base_offset, position);
                if place.end() > end {
                    return Err(self.corrupt(position, "batch reaches beyond the segment's end"));
                }
                if wanted(&place) {
                    return Ok(Some(place));
                }
                position = place.end();
            }
            if position == chunk_start {
                return Err(self.corrupt(position, "file is shorter than its batches"));
            }
        }
        Ok(None)
    }

    fn corrupt(&self, position: u64, reason: &str) -> io::Error {
        let path = self.path(FileKind::Log);
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is corrupt at position {position}: {reason}", path.display()),
        )
    }

    /// The first entry of the offset index file that a clean look finds wrong would send readers astray, so the entry
    /// itself is compared with the batch it points to.
    pub fn entry_is_genuine(&self, entry: OffsetEntry, end: u64) -> io::Result<bool> {
        let position = u64::from(entry.position);
        if entry.relative_offset < 0 || position + HEADER_BYTES as u64 > end {
            return Ok(false);
        }
        let mut bytes = [0; HEADER_BYTES];
        if read_up_to(&*self.file, &mut bytes, position, ReadMode::Blocking)? < HEADER_BYTES {
            return Ok(false);
        }
        Ok(BatchHeader::parse(&bytes).is_ok_and(|header| {
            let offset = self.base_offset + i64::from(entry.relative_offset);
            header.base_offset <= offset
                && offset <= header.last_offset()
                && position + header.total_bytes() as u64 <= end
        }))
    }
}
