//! Life of a fetch, 5 of 6. Before: core/src/partition/mod.rs. After: broker/src/net/output.rs.
//!
//! Reads without the partition's lock: a reader takes the list of segments and the end under a lock
//! held for nanoseconds, then reads files on its own.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::records::batch::HEADER_BYTES;

use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::disk::FileRegion;
use crate::error::{LogError, ReadError};
use crate::read_mode::ReadMode;
use crate::segment::{BatchPlace, FileKind, Segment};
use crate::transaction_index::AbortedTransaction;

/// Positions of the newest batches kept in memory: readers at the tail find their batch without
/// reading the disk.
const RECENT_BATCHES: usize = 128;

/// A position in one of a log's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPosition {
    pub segment_base_offset: i64,
    pub position: u64,
}

/// How far a reader may see: the high watermark, the last stable offset or the log end.
///
/// - Shape: `offset` is the first offset that must not be seen, and is the start of a batch;
///   knowing its position saves a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub offset: i64,
    pub position: Option<SegmentPosition>,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub enum Read {
    Region(ReadRegion),
    /// Nothing below the bound, or the first batch does not fit and is not required.
    Empty,
    /// Only in `ReadMode::Resident`: the data is on the device. Read again in `ReadMode::Blocking`,
    /// on another thread.
    WouldBlock,
}

/// Batches to be sent: complete ones, because clients discard incomplete ones. Where the end cannot
/// be determined cheaply the last one is truncated, which Kafka's clients expect.
#[derive(Clone, Debug)]
pub struct ReadRegion {
    pub region: FileRegion,
    /// The bytes available up to the limit; the excess over `region` is the beginning of one more
    /// batch.
    pub reached_bytes: u64,
    /// Base offset of the first batch; at or below the requested offset.
    pub base_offset: i64,
    /// All records of the region are below this offset.
    pub end_offset: i64,
    pub first_batch_bytes: u64,
    /// Only in `ReadMode::Resident`: more data follows, but on the device.
    pub is_cut: bool,
    /// `max_bytes` ended the region, and as many bytes behind it are not all in memory, or may soon
    /// be gone: a reader that goes on would have to wait.
    pub is_cold_behind: bool,
    /// Where the region begins, to account for the lag in bytes.
    pub at: SegmentPosition,
    /// Only in `ReadMode::Blocking`: the bytes were written before this process started and must be
    /// compared with their checksums once they are in memory.
    pub unchecked: Option<UncheckedRegion>,
}

/// What a region's bytes are checked against.
#[derive(Clone, Debug)]
pub struct UncheckedRegion {
    segment: Arc<Segment>,
    expected: Expected,
    position: u64,
}

impl UncheckedRegion {
    /// Returns how many of the region's first `bytes` bytes are complete, undamaged batches. Reads
    /// all of them.
    ///
    /// - Errors: `Corrupt` when not even the first batch is intact.
    pub fn check(&self, bytes: u64) -> Result<u64, LogError> {
        let path = self.segment.path(FileKind::Log);
        let (start, end) = (self.position, self.position + bytes);
        let mut scanner = BatchScanner::new(&*self.segment.file, start, end, Trust::Checksums);
        scanner = scanner.expecting(self.expected);
        loop {
            match scanner
                .next()
                .map_err(|source| LogError::io("read", &path, source))?
            {
                Scanned::Batch { .. } => {}
                Scanned::Invalid { reason } if scanner.position() == start => {
                    return Err(LogError::corrupt(&path, start, reason));
                }
                // Damage, or a batch truncated at the end; the next read begins with it.
                Scanned::Invalid { .. } | Scanned::End => break,
            }
        }
        self.segment.note_checked(start, scanner.position());
        Ok(scanner.position() - start)
    }
}

#[derive(Debug)]
pub(crate) struct ReaderState {
    pub segments: Arc<Vec<Arc<Segment>>>,
    pub recent: VecDeque<BatchPlace>,
    pub start_offset: i64,
    pub end_offset: i64,
    /// End of the last segment, consistent with `end_offset`.
    pub end_position: u64,
    /// Compaction may have left gaps below this offset.
    pub gaps_below: i64,
}

impl ReaderState {
    pub fn note(&mut self, place: BatchPlace) {
        if self.recent.len() == RECENT_BATCHES {
            self.recent.pop_front();
        }
        self.recent.push_back(place);
        self.end_offset = place.last_offset + 1;
        self.end_position = place.end();
    }

    /// Returns the recent batch that holds `offset` or, in a gap, the next one.
    fn recent_batch(&self, offset: i64) -> Option<BatchPlace> {
        // Before the oldest remembered batch there may be others.
        if offset < self.recent.front()?.base_offset {
            return None;
        }
        let index = self.recent.partition_point(|place| place.last_offset < offset);
        self.recent.get(index).copied()
    }
}

/// A handle for reading one log from any thread; always sees the newest segments.
#[derive(Clone, Debug)]
pub struct LogReader {
    state: Arc<Mutex<ReaderState>>,
}

/// A consistent copy of the state that a read needs.
pub(crate) struct View {
    pub segments: Arc<Vec<Arc<Segment>>>,
    pub start_offset: i64,
    end_offset: i64,
    end_position: u64,
    gaps_below: i64,
    first: Option<BatchPlace>,
    bound: Option<SegmentPosition>,
}

impl LogReader {
    pub(crate) fn new(state: ReaderState) -> LogReader {
        LogReader {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ReaderState> {
        // No critical section panics half-way, so a poisoned lock still guards a consistent value.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn start_offset(&self) -> i64 {
        self.state().start_offset
    }

    pub fn end_offset(&self) -> i64 {
        self.state().end_offset
    }

    /// Returns the path of a segment's file, for messages; only its name if the segment is gone.
    pub fn log_path(&self, segment_base_offset: i64) -> PathBuf {
        let segments = Arc::clone(&self.state().segments);
        let index = segment_index(&segments, segment_base_offset);
        let segment = segments.get(index);
        segment
            .filter(|segment| segment.base_offset == segment_base_offset)
            .map_or_else(
                || PathBuf::from(crate::segment_file_name(segment_base_offset)),
                |segment| segment.path(FileKind::Log),
            )
    }

    /// Finds the batches from the one that holds `offset` up to `bound`.
    ///
    /// - Units: at most `max_bytes`, unless the first batch is larger and `min_one_batch`.
    /// - Shape: complete batches; only where the index is damaged or on the device may `max_bytes`
    ///   truncate the last one. In `ReadMode::Blocking` only what was needed to find the region has
    ///   been read: its bytes may still be on the device.
    /// - Errors: `OffsetOutOfRange` below the log's start or beyond its end.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: u32,
        min_one_batch: bool,
        bound: Bound,
        mode: ReadMode,
    ) -> Result<Read, ReadError> {
        let view = self.view(offset, bound);
        if offset < view.start_offset || offset > view.end_offset {
            return Err(ReadError::OffsetOutOfRange {
                offset,
                start_offset: view.start_offset,
                end_offset: view.end_offset,
            });
        }
        if offset >= bound.offset.min(view.end_offset) {
            return Ok(Read::Empty);
        }
        match view.read(offset, max_bytes, min_one_batch, bound.offset, mode) {
            Ok(read) => Ok(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && mode == ReadMode::Resident => {
                Ok(Read::WouldBlock)
            }
            Err(error) => Err(ReadError::Log(view.describe(offset, error))),
        }
    }

    /// Returns where readers continue that cannot read the batch at `offset`: the base offset of
    /// the next one. Waits for the device.
    pub fn next_batch_behind(&self, offset: i64) -> Result<Option<i64>, LogError> {
        let everything = Bound {
            offset: i64::MAX,
            position: None,
        };
        let view = self.view(offset, everything);
        for index in segment_index(&view.segments, offset)..view.segments.len() {
            let segment = &view.segments[index];
            let from = segment.position_floor(offset, ReadMode::Blocking);
            let is_behind = |place: &BatchPlace| place.base_offset > offset;
            let found = from.and_then(|from| {
                segment.find_batch_where(from, view.segment_end(index), ReadMode::Blocking, is_behind)
            });
            if let Some(place) = found.map_err(|error| view.describe(offset, error))? {
                return Ok(Some(place.base_offset));
            }
        }
        Ok(None)
    }

    pub(crate) fn view(&self, offset: i64, bound: Bound) -> View {
        let state = self.state();
        let bound_position = bound.position.or_else(|| {
            let place = state.recent_batch(bound.offset)?;
            (place.base_offset == bound.offset).then_some(place.start())
        });
        View {
            segments: Arc::clone(&state.segments),
            start_offset: state.start_offset,
            end_offset: state.end_offset,
            end_position: state.end_position,
            gaps_below: state.gaps_below,
            first: state.recent_batch(offset),
            bound: bound_position,
        }
    }

    /// Returns the aborted transactions that a reader of committed records in
    /// `offset..upper_offset` must know.
    ///
    /// - Source: KIP-98. A transaction concerns the reader if it overlaps the range.
    pub fn aborted_transactions(&self, offset: i64, upper_offset: i64) -> Vec<AbortedTransaction> {
        let segments = Arc::clone(&self.state().segments);
        let first = segment_index(&segments, offset);
        let mut found = Vec::new();
        for segment in &segments[first..] {
            let indexes = segment.indexes();
            let all = &indexes.aborted;
            let ended_before = all.partition_point(|aborted| aborted.last_offset < offset);
            for aborted in &all[ended_before..] {
                if aborted.first_offset < upper_offset {
                    found.push(*aborted);
                }
                // Transactions that end after this one begin at or after its last stable offset.
                if aborted.last_stable_offset >= upper_offset {
                    return found;
                }
            }
        }
        found
    }
}

/// Returns the index of the segment that would hold `offset`.
pub(crate) fn segment_index(segments: &[Arc<Segment>], offset: i64) -> usize {
    segments
        .partition_point(|segment| segment.base_offset <= offset)
        .saturating_sub(1)
}

impl View {
    /// The end of a segment's readable bytes. The last segment's own count may be ahead of
    /// `end_offset`.
    pub fn segment_end(&self, index: usize) -> u64 {
        if index + 1 == self.segments.len() {
            self.end_position
        } else {
            self.segments[index].bytes()
        }
    }

    /// The first offset behind a segment.
    fn next_base(&self, index: usize) -> i64 {
        let next = self.segments.get(index + 1);
        next.map_or(self.end_offset, |next| next.base_offset)
    }

    fn read(
        &self,
        offset: i64,
        max_bytes: u32,
        min_one_batch: bool,
        bound_offset: i64,
        mode: ReadMode,
    ) -> io::Result<Read> {
        let Some((index, first)) = self.locate(offset, self.first, mode)? else {
            return Ok(Read::Empty);
        };
        // Check the batch before trusting its header.
        if mode == ReadMode::Resident && !self.segments[index].is_checked(first.position, first.end()) {
            return Ok(Read::WouldBlock);
        }
        if first.base_offset >= bound_offset {
            // A gap left by compaction may reach from below the bound to beyond it.
            return Ok(Read::Empty);
        }
        if first.base_offset > offset && first.base_offset > self.gaps_below {
            return Err(self.hole(index, offset, &first));
        }
        let end = self.bound_position(index, bound_offset, mode)?;
        let segment = &self.segments[index];
        let limit = u64::from(max_bytes);
        let is_limited = limit < end.saturating_sub(first.position);
        let mut bytes = limit.min(end.saturating_sub(first.position));
        if bytes < first.bytes {
            if !min_one_batch {
                return Ok(Read::Empty);
            }
            bytes = first.bytes;
        }
        let mut region = FileRegion {
            file: Arc::clone(&segment.file),
            position: first.position,
            bytes,
        };
        if mode == ReadMode::Resident {
            region.bytes = region.resident_bytes(bytes);
            if region.bytes < first.bytes.min(bytes) {
                return Ok(Read::WouldBlock);
            }
        }
        let (reached_bytes, is_cut) = (region.bytes, region.bytes < bytes);
        let mut end_offset = bound_offset.min(self.next_base(index));
        let mut next_batch = None;
        let cut_at = region.position + region.bytes;
        let next_end = (cut_at + limit).min(end);
        // All of it: what was appended lately is in memory, and may be where the range ends.
        let is_cold_behind = is_limited
            && !segment
                .file
                .stays_resident(cut_at, next_end.saturating_sub(cut_at));
        if cut_at < end && region.bytes <= first.bytes {
            end_offset = first.last_offset + 1;
            next_batch = Some((end_offset, first.end()));
        } else if cut_at < end
            && let Ok((whole, next)) = segment.batch_end_floor(first.end(), cut_at, end, mode)
        {
            region.bytes = whole - region.position;
            end_offset = next.unwrap_or(end_offset);
            next_batch = next.map(|next| (next, whole));
        }
        let is_checked = segment.is_checked(region.position, region.position + region.bytes);
        if mode == ReadMode::Resident && !is_checked {
            // Comparing checksums takes as long as reading from the device.
            return Ok(Read::WouldBlock);
        }
        // A header that is damaged must not lead readers past other batches.
        if is_checked {
            segment.note_visited(first.base_offset, first.position);
        }
        if let Some((base_offset, position)) = next_batch
            && segment.is_checked(position, position + HEADER_BYTES as u64)
        {
            segment.note_visited(base_offset, position);
        }
        Ok(Read::Region(ReadRegion {
            region,
            reached_bytes,
            is_cut,
            is_cold_behind,
            base_offset: first.base_offset,
            end_offset,
            first_batch_bytes: first.bytes,
            at: first.start(),
            unchecked: (!is_checked).then(|| UncheckedRegion {
                segment: Arc::clone(segment),
                expected: Expected {
                    offset: first.base_offset,
                    gaps_below: self.gaps_below,
                },
                position: first.position,
            }),
        }))
    }

    /// The error for records missing before `first`.
    fn hole(&self, index: usize, offset: i64, first: &BatchPlace) -> io::Error {
        let reason = format!("offset {}, expected {offset}", first.base_offset);
        LogError::corrupt(&self.segments[index].path(FileKind::Log), first.position, reason)
            .into_invalid_data()
    }

    /// Returns the batch that holds `offset` or, in a gap, the next one.
    fn locate(
        &self,
        offset: i64,
        recent: Option<BatchPlace>,
        mode: ReadMode,
    ) -> io::Result<Option<(usize, BatchPlace)>> {
        if let Some(place) = recent {
            let index = segment_index(&self.segments, place.base_offset);
            if self.segments[index].base_offset == place.segment_base_offset {
                return Ok(Some((index, place)));
            }
        }
        for index in segment_index(&self.segments, offset)..self.segments.len() {
            let segment = &self.segments[index];
            let end = self.segment_end(index);
            if let Some(place) = segment.search(offset, end, mode)? {
                return Ok(Some((index, place)));
            }
        }
        Ok(None)
    }

    /// Returns the position of the bound in segment `index`.
    pub fn bound_position(&self, index: usize, bound_offset: i64, mode: ReadMode) -> io::Result<u64> {
        let segment = &self.segments[index];
        let end = self.segment_end(index);
        if bound_offset >= self.next_base(index) {
            return Ok(end);
        }
        if let Some(bound) = self.bound
            && bound.segment_base_offset == segment.base_offset
        {
            return Ok(bound.position.min(end));
        }
        Ok(segment
            .search(bound_offset, end, mode)?
            .map_or(end, |place| place.position))
    }

    pub fn describe(&self, offset: i64, error: io::Error) -> LogError {
        let segment = &self.segments[segment_index(&self.segments, offset)];
        LogError::io("read", &segment.path(FileKind::Log), error)
    }
}
