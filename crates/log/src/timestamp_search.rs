//! Look-up of offsets by timestamp, for ListOffsets.

use std::io;
use std::sync::Arc;

use crate::error::{LogError, ReadError};
use crate::read_mode::ReadMode;
use crate::reader::{Bound, LogReader, View, segment_index};
use crate::segment::{BatchPlace, FileKind, Segment, UNKNOWN_TIMESTAMP};
use crate::stored_batch::StoredBatch;

/// The timestamp and offset of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    pub timestamp: i64,
    pub offset: i64,
    pub leader_epoch: i32,
}

/// The outcome of a look-up that may need the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    Found(TimestampOffset),
    Nothing,
    /// Only in `ReadMode::Resident`: look up again in `ReadMode::Blocking`, on another thread.
    WouldBlock,
}

impl LogReader {
    /// Finds the first record below `bound` whose timestamp is at least `timestamp`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        bound: Bound,
        mode: ReadMode,
    ) -> Result<Lookup, ReadError> {
        let view = self.view(i64::MAX, bound);
        finish(&view, view.first_at_or_after(timestamp, bound.offset, mode))
    }

    /// Finds the first record below `bound` that has the largest timestamp of all (KIP-734).
    pub fn offset_for_max_timestamp(&self, bound: Bound, mode: ReadMode) -> Result<Lookup, ReadError> {
        let view = self.view(i64::MAX, bound);
        finish(&view, view.max_timestamp(bound.offset, mode))
    }

    /// Finds the first record at or behind `offset` and below `bound`, for its timestamp.
    pub fn first_record_from(&self, offset: i64, bound: Bound, mode: ReadMode) -> Result<Lookup, ReadError> {
        let view = self.view(offset, bound);
        finish(&view, view.first_from(offset, bound.offset, mode))
    }

    /// Reads those of the segments' largest timestamps that are not known yet. Waits for the
    /// device; retention by time needs it.
    pub fn load_timestamps(&self) -> Result<(), ReadError> {
        let segments = Arc::clone(&self.state().segments);
        let sealed = segments.len() - 1;
        for segment in &segments[..sealed] {
            largest_timestamp(segment, ReadMode::Blocking)
                .map_err(|error| LogError::io("read", &segment.path(FileKind::TimeIndex), error))?;
        }
        Ok(())
    }

    /// Like `load_timestamps`, and reads the first timestamps of the closed segments from
    /// `first_dirty_offset` on.
    pub fn load_compaction_times(&self, first_dirty_offset: i64) -> Result<(), ReadError> {
        self.load_timestamps()?;
        let segments = Arc::clone(&self.state().segments);
        let sealed = segments.len() - 1;
        for segment in &segments[segment_index(&segments, first_dirty_offset).min(sealed)..sealed] {
            load_first_timestamp(segment)
                .map_err(|error| LogError::io("read", &segment.path(FileKind::Log), error))?;
        }
        Ok(())
    }
}

fn load_first_timestamp(segment: &Segment) -> io::Result<()> {
    if segment.first_timestamp() == UNKNOWN_TIMESTAMP {
        let first = segment.find_batch(i64::MIN, 0, segment.bytes(), ReadMode::Blocking)?;
        segment.set_first_timestamp(first.map_or(-1, |place| place.max_timestamp));
    }
    Ok(())
}

fn finish(view: &View, found: io::Result<Option<TimestampOffset>>) -> Result<Lookup, ReadError> {
    match found {
        Ok(Some(found)) => Ok(Lookup::Found(found)),
        Ok(None) => Ok(Lookup::Nothing),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Lookup::WouldBlock),
        Err(error) => Err(ReadError::Log(view.describe(view.start_offset, error))),
    }
}

/// Returns a closed segment's largest timestamp, from memory or from the last entry of its time
/// index.
fn largest_timestamp(segment: &Segment, mode: ReadMode) -> io::Result<i64> {
    let known = segment.largest_timestamp();
    if known != UNKNOWN_TIMESTAMP {
        return Ok(known);
    }
    // Without an entry no record has a timestamp (Kafka writes none for timestamp -1).
    let (mut largest, mut at) = match segment.last_time_entry(mode)? {
        Some(entry) => {
            let offset = segment.base_offset + i64::from(entry.relative_offset);
            (entry.timestamp, segment.position_floor(offset, mode)?)
        }
        None => (-1, 0),
    };
    // The last entry holds the largest timestamp unless the file was truncated: retention would
    // then remove the segment too early.
    let is_larger = |place: &BatchPlace, than: i64| place.max_timestamp > than;
    while let Some(place) =
        segment.find_batch_where(at, segment.bytes(), mode, |place| is_larger(place, largest))?
    {
        (largest, at) = (place.max_timestamp, place.end());
    }
    segment.set_largest_timestamp(largest);
    Ok(largest)
}

impl View {
    fn first_at_or_after(
        &self,
        timestamp: i64,
        bound_offset: i64,
        mode: ReadMode,
    ) -> io::Result<Option<TimestampOffset>> {
        let first = self.first_segment();
        for index in first..self.segments.len() {
            let segment = &self.segments[index];
            let is_last = index + 1 == self.segments.len();
            if segment.base_offset >= bound_offset {
                return Ok(None);
            }
            if !is_last && largest_timestamp(segment, mode)? < timestamp {
                continue;
            }
            let end = self.bound_position(index, bound_offset, mode)?;
            let from = self.position_before(segment, timestamp, mode)?;
            let wanted = |place: &BatchPlace| {
                place.max_timestamp >= timestamp && place.last_offset >= self.start_offset
            };
            let mut batch = StoredBatch::default();
            let mut at = from;
            while let Some(place) = segment.find_batch_where(at, end, mode, wanted)? {
                batch.load(segment, &place, mode)?;
                let record = batch
                    .records()
                    .map_while(Result::ok)
                    .find(|record| record.timestamp >= timestamp && record.offset >= self.start_offset);
                if let Some(record) = record {
                    return Ok(Some(TimestampOffset {
                        timestamp: record.timestamp,
                        offset: record.offset,
                        leader_epoch: batch.header().leader_epoch,
                    }));
                }
                at = place.end();
            }
        }
        Ok(None)
    }

    fn first_from(
        &self,
        offset: i64,
        bound_offset: i64,
        mode: ReadMode,
    ) -> io::Result<Option<TimestampOffset>> {
        let offset = offset.max(self.start_offset);
        for index in segment_index(&self.segments, offset)..self.segments.len() {
            let segment = &self.segments[index];
            if segment.base_offset >= bound_offset {
                return Ok(None);
            }
            let end = self.bound_position(index, bound_offset, mode)?;
            let mut at = segment.position_floor(offset, mode)?;
            let wanted = |place: &BatchPlace| place.last_offset >= offset;
            let mut batch = StoredBatch::default();
            while let Some(place) = segment.find_batch_where(at, end, mode, wanted)? {
                batch.load(segment, &place, mode)?;
                let mut records = batch.records().map_while(Result::ok);
                if let Some(record) = records.find(|record| record.offset >= offset) {
                    return Ok(Some(TimestampOffset {
                        timestamp: record.timestamp,
                        offset: record.offset,
                        leader_epoch: batch.header().leader_epoch,
                    }));
                }
                at = place.end();
            }
        }
        Ok(None)
    }

    /// Returns a position below which every batch is older than `timestamp`, or lies before the
    /// log's start.
    fn position_before(&self, segment: &Segment, timestamp: i64, mode: ReadMode) -> io::Result<u64> {
        let by_time = match segment.time_floor(timestamp, mode)? {
            Some(entry) => {
                segment.position_floor(segment.base_offset + i64::from(entry.relative_offset), mode)?
            }
            None => 0,
        };
        let by_start = if self.start_offset > segment.base_offset {
            segment.position_floor(self.start_offset, mode)?
        } else {
            0
        };
        Ok(by_time.max(by_start))
    }

    fn first_segment(&self) -> usize {
        crate::reader::segment_index(&self.segments, self.start_offset)
    }

    fn max_timestamp(&self, bound_offset: i64, mode: ReadMode) -> io::Result<Option<TimestampOffset>> {
        let first = self.first_segment();
        let of_first = self.largest_of(first, bound_offset, mode)?;
        let mut of_later = UNKNOWN_TIMESTAMP;
        for index in first + 1..self.segments.len() {
            of_later = of_later.max(self.largest_of(index, bound_offset, mode)?);
        }
        let found = self.first_with(of_first.max(of_later), bound_offset, mode)?;
        if found.is_some() || self.segments[first].base_offset >= self.start_offset {
            return Ok(found);
        }
        // It is the timestamp of a deleted record, below the log's start.
        let largest = self.largest_from_start(of_later, bound_offset, mode)?;
        self.first_with(largest, bound_offset, mode)
    }

    /// Finds the first record with the log's largest timestamp.
    fn first_with(
        &self,
        largest: i64,
        bound_offset: i64,
        mode: ReadMode,
    ) -> io::Result<Option<TimestampOffset>> {
        if largest < 0 {
            return Ok(None);
        }
        self.first_at_or_after(largest, bound_offset, mode)
    }

    /// Returns the largest timestamp of a segment below the bound, deleted records included.
    fn largest_of(&self, index: usize, bound_offset: i64, mode: ReadMode) -> io::Result<i64> {
        let next = self.segments.get(index + 1);
        if next.is_some_and(|next| next.base_offset <= bound_offset) {
            largest_timestamp(&self.segments[index], mode)
        } else {
            self.largest_below(index, bound_offset, mode)
        }
    }

    /// Returns the largest timestamp of the first segment's records from the log's start on, or
    /// `of_later` if that is larger.
    fn largest_from_start(&self, of_later: i64, bound_offset: i64, mode: ReadMode) -> io::Result<i64> {
        let index = self.first_segment();
        let segment = &self.segments[index];
        let end = self.bound_position(index, bound_offset, mode)?;
        let mut at = segment.position_floor(self.start_offset, mode)?;
        let mut largest = of_later;
        let mut batch = StoredBatch::default();
        let is_larger = |place: &BatchPlace, than: i64| {
            place.last_offset >= self.start_offset && place.max_timestamp > than
        };
        while let Some(place) = segment.find_batch_where(at, end, mode, |place| is_larger(place, largest))? {
            batch.load(segment, &place, mode)?;
            let records = batch.records().map_while(Result::ok);
            let kept = records.filter(|record| record.offset >= self.start_offset);
            largest = kept.map(|record| record.timestamp).fold(largest, i64::max);
            at = place.end();
        }
        Ok(largest)
    }

    /// Returns the largest timestamp of a segment's batches below the bound.
    fn largest_below(&self, index: usize, bound_offset: i64, mode: ReadMode) -> io::Result<i64> {
        let segment = &self.segments[index];
        let end = self.bound_position(index, bound_offset, mode)?;
        // The last time entry below the bound gives the maximum up to its batch; the rest is
        // scanned.
        let entry = segment.time_floor_by_offset(bound_offset, mode)?;
        let (mut largest, from) = match entry {
            Some(entry) => {
                let offset = segment.base_offset + i64::from(entry.relative_offset);
                (entry.timestamp, segment.position_floor(offset, mode)?)
            }
            None => (UNKNOWN_TIMESTAMP, 0),
        };
        let mut at = from;
        while let Some(place) = segment.find_batch_where(at, end, mode, |_| true)? {
            largest = largest.max(place.max_timestamp);
            at = place.end();
        }
        Ok(largest)
    }
}
