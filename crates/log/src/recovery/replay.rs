//! Rebuilds the producers' state and the leader epochs as they were when the log was closed or
//! killed.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use ottla_wire::records::batch::BatchHeader;

use super::Opening;
use super::repair::remove;
use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::checkpoint::read_file;
use crate::error::LogError;
use crate::leader_epoch::LeaderEpochs;
use crate::marker::{marker_at, note_marker};
use crate::offset_index::OffsetEntry;
use crate::producer_state::{Beginning, ProducerState};
use crate::read_mode::ReadMode;
use crate::reader::segment_index;
use crate::segment::{BatchPlace, FileKind, Segment, file_path};

/// About 64 index entries: 256 KiB of small batches or 64 large ones.
const LOOK_BACK_BYTES: u64 = 256 * 1024;
/// What is read of every log to believe its snapshot: about two index entries.
const PROOF_BYTES: u64 = 8 * 1024;

impl Opening {
    /// Rebuilds the producers' state from the newest intact snapshot and the headers after it.
    pub fn replay(
        &mut self,
        segments: &[Arc<Segment>],
        start_offset: i64,
        end_offset: i64,
        recovery_point: i64,
    ) -> Result<(ProducerState, LeaderEpochs, Option<i64>), LogError> {
        let newest_allowed = recovery_point.min(end_offset).min(self.aborts_lost_from);
        let (mut producers, snapshot) = self.load_snapshot(segments, start_offset, newest_allowed)?;
        let from = snapshot.unwrap_or(start_offset);
        let mut epochs = match self.leader_epochs.take() {
            Some(epochs) => epochs,
            None => self.epochs_from_headers(segments)?,
        };
        epochs.truncate_from_end(end_offset);
        epochs.truncate_from_start(start_offset);
        for segment in &segments[segment_index(segments, from)..] {
            self.replay_segment(segment, from, &mut producers)?;
        }
        self.recall_older_batches(segments, from, &mut producers)?;
        producers.forget_ended_below(end_offset);
        Ok((producers, epochs, snapshot))
    }

    fn load_snapshot(
        &mut self,
        segments: &[Arc<Segment>],
        start_offset: i64,
        newest_allowed: i64,
    ) -> Result<(ProducerState, Option<i64>), LogError> {
        let mut loaded = (ProducerState::default(), None);
        let offsets: Vec<i64> = self.files.snapshots().rev().collect();
        for offset in offsets {
            let path = file_path(&self.directory, offset, FileKind::Snapshot);
            // A snapshot above the recovery point may describe batches that no longer exist.
            let mut usable = offset <= newest_allowed;
            if usable && loaded.1.is_none() && offset >= start_offset {
                let bytes = read_file(&*self.disk, &path)?.unwrap_or_default();
                match ProducerState::decode_snapshot(&bytes) {
                    Ok(state) if self.contradicts(&state, segments, offset)? => usable = false,
                    Ok(mut state) => {
                        // As Apache Kafka: otherwise the two would disagree about which batches are
                        // duplicates.
                        state.expire(self.options.now_ms, self.config.producer_id_expiration_ms);
                        loaded = (state, Some(offset));
                    }
                    Err(_) => usable = false,
                }
            }
            if !usable {
                remove(&*self.disk, &path)?;
            }
        }
        Ok(loaded)
    }

    fn replay_segment(
        &mut self,
        segment: &Arc<Segment>,
        from: i64,
        producers: &mut ProducerState,
    ) -> Result<(), LogError> {
        let log_path = segment.path(FileKind::Log);
        let failed = |source| LogError::io("read", &log_path, source);
        // Aborts from here on are found again below.
        {
            let mut indexes = segment.indexes();
            let kept = indexes
                .aborted
                .partition_point(|aborted| aborted.last_offset < from);
            indexes.aborted.truncate(kept);
            indexes.aborted_in_file = indexes.aborted_in_file.min(kept);
        }
        let start = segment.position_floor(from, ReadMode::Blocking).map_err(failed)?;
        self.for_each_batch(segment, start, |opening, header, position| {
            if header.last_offset() < from || !header.has_producer_id() {
                return Ok(());
            }
            opening.report.replayed_batches += 1;
            replay_batch(segment, header, position, producers)
        })
    }

    /// Walks the headers from `start` on, skipping damage.
    fn for_each_batch(
        &mut self,
        segment: &Arc<Segment>,
        start: u64,
        mut each: impl FnMut(&mut Opening, &BatchHeader, u64) -> io::Result<()>,
    ) -> Result<(), LogError> {
        let failed = |source| LogError::io("read", &segment.path(FileKind::Log), source);
        let mut scanner = BatchScanner::new(&*segment.file, start, segment.bytes(), Trust::Headers);
        let mut next_offset = segment.base_offset;
        loop {
            let (header, position) = match scanner.next().map_err(failed)? {
                Scanned::Batch { header, position } => (header, position),
                Scanned::End => return Ok(()),
                Scanned::Invalid { reason } => {
                    let damaged_at = scanner.position();
                    let Some((header, position)) = scanner.next_behind_damage().map_err(failed)? else {
                        return Ok(());
                    };
                    self.note_damage(segment, damaged_at, next_offset, header.base_offset, &reason);
                    (header, position)
                }
            };
            each(self, &header, position).map_err(failed)?;
            next_offset = header.next_offset();
        }
    }

    /// Whether the newest headers below `offset` tell otherwise: no file says which offset a
    /// snapshot belongs to, except by its name.
    fn contradicts(
        &self,
        state: &ProducerState,
        segments: &[Arc<Segment>],
        offset: i64,
    ) -> Result<bool, LogError> {
        // Compaction removes markers, and batches that are not the last of their producer.
        let has_gaps = offset <= self.gaps_below();
        let now_ms = self.options.now_ms;
        let is_expired = |header: &BatchHeader| {
            now_ms.saturating_sub(header.max_timestamp) >= self.config.producer_id_expiration_ms
        };
        let mut judged = BTreeSet::new();
        let headers = self.headers_below(segments, offset, PROOF_BYTES)?;
        let newest = headers
            .iter()
            .rev()
            .filter(|header| judged.insert(header.producer_id));
        Ok(state.reaches(offset)
            || newest
                .filter(|header| !is_expired(header))
                .any(|header| !state.knows(header, has_gaps)))
    }

    /// A snapshot keeps one batch per producer, but a client may retry five: the headers just below
    /// the snapshot restore the others.
    fn recall_older_batches(
        &mut self,
        segments: &[Arc<Segment>],
        from: i64,
        producers: &mut ProducerState,
    ) -> Result<(), LogError> {
        if !producers.is_empty() {
            let headers = self.headers_below(segments, from, LOOK_BACK_BYTES)?;
            for header in headers.iter().rev().filter(|header| !header.is_control()) {
                producers.recall_older_batch(header);
            }
        }
        Ok(())
    }

    /// Reads the headers of producers' batches of about the last `bytes_max` bytes below `offset`,
    /// in the order of the log.
    fn headers_below(
        &self,
        segments: &[Arc<Segment>],
        offset: i64,
        bytes_max: u64,
    ) -> Result<Vec<BatchHeader>, LogError> {
        if offset <= segments[0].base_offset {
            return Ok(Vec::new());
        }
        let (newest, older) = segments[..=segment_index(segments, offset - 1)]
            .split_last()
            .expect("the range is not empty");
        let place = match newest.search(offset, newest.bytes(), ReadMode::Blocking) {
            Ok(place) => place,
            // What is damaged is reported elsewhere, and tells nothing about producers.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(Vec::new()),
            Err(source) => return Err(self.failed("read", FileKind::Log, newest.base_offset, source)),
        };
        let end = place.map_or(newest.bytes(), |place| place.position);
        let (mut headers, covered) = self.headers_of(newest, end, bytes_max)?;
        let mut left = bytes_max.saturating_sub(covered);
        // The snapshot may have been taken soon after a segment was begun.
        for segment in older.iter().rev() {
            if left == 0 {
                break;
            }
            let (mut before, covered) = self.headers_of(segment, segment.bytes(), left)?;
            before.append(&mut headers);
            headers = before;
            left = left.saturating_sub(covered);
        }
        Ok(headers)
    }

    /// Reads the headers of about the last `bytes_max` bytes below `end`; also returns how many
    /// bytes it covered.
    fn headers_of(
        &self,
        segment: &Segment,
        end: u64,
        bytes_max: u64,
    ) -> Result<(Vec<BatchHeader>, u64), LogError> {
        let failed = |source| self.failed("read", FileKind::Log, segment.base_offset, source);
        let mut start = 0;
        if end > bytes_max {
            let precedes = |entry: &OffsetEntry| u64::from(entry.position) <= end - bytes_max;
            start = segment
                .position_where(ReadMode::Blocking, precedes)
                .map_err(failed)?;
        }
        let mut headers = Vec::new();
        let mut scanner = BatchScanner::new(&*segment.file, start, end, Trust::Headers);
        while let Scanned::Batch { header, .. } = scanner.next().map_err(failed)? {
            if header.has_producer_id() {
                headers.push(header);
            }
        }
        Ok((headers, end - start))
    }

    fn epochs_from_headers(&mut self, segments: &[Arc<Segment>]) -> Result<LeaderEpochs, LogError> {
        let mut epochs = LeaderEpochs::default();
        for segment in segments {
            self.for_each_batch(segment, 0, |_, header, _| {
                epochs.assign(header.leader_epoch, header.base_offset);
                Ok(())
            })?;
        }
        Ok(epochs)
    }
}

fn replay_batch(
    segment: &Segment,
    header: &BatchHeader,
    position: u64,
    producers: &mut ProducerState,
) -> io::Result<()> {
    if !header.is_control() {
        let place = BatchPlace::new(header, segment.base_offset, position);
        let beginning = Beginning {
            position: Some(place.start()),
            appended_bytes: 0,
        };
        producers.note_batch(header, beginning);
        return Ok(());
    }
    if let Some(marker) = marker_at(&*segment.file, header, position)?
        && let Some(aborted) = note_marker(producers, header, marker)
    {
        segment.indexes().aborted.push(aborted);
    }
    Ok(())
}
