//! Examines segments: where their batches end, whether they are contiguous, and whether their
//! indexes match.

use std::io;
use std::sync::Arc;

use ottla_wire::records::batch::{BatchHeader, NO_TIMESTAMP};

use super::repair::{Keep, Repair};
use super::{Finding, FindingKind, Opening, first_timestamp};
use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::disk::owned::padding_bytes_max;
use crate::error::LogError;
use crate::index_file::{IndexEntry, last_where};
use crate::offset_index::OffsetEntry;
use crate::read_mode::{ReadMode, read_up_to};
use crate::reader::segment_index;
use crate::segment::{BatchPlace, FileKind, IndexProgress, Segment, SegmentIndexes};
use crate::time_index::TimeEntry;

/// The end of a segment's batches as found by recovery.
pub(super) struct Tail {
    pub end_offset: i64,
    pub progress: IndexProgress,
    pub position: u64,
    /// There is no valid batch at `position`, and none follows.
    pub invalid: Option<String>,
}

impl Tail {
    pub fn empty(base_offset: i64) -> Tail {
        Tail {
            end_offset: base_offset,
            progress: IndexProgress::default(),
            position: 0,
            invalid: None,
        }
    }

    pub fn why_it_ends(&self) -> &str {
        self.invalid.as_deref().unwrap_or("the file ends")
    }
}

/// Where a walk over a segment's batches begins, and how many index entries precede it.
struct Resume {
    offsets: u32,
    times: u32,
    position: u64,
    base_offset: i64,
    progress: IndexProgress,
}

/// What other files say of a segment's end.
#[derive(Clone, Copy)]
struct Proven {
    /// The records before it were durable.
    end: i64,
    /// The segment has no offsets from it on.
    ends_by: i64,
}

impl Proven {
    /// Of a segment below the recovery point.
    fn sealed(next_base: i64) -> Proven {
        Proven {
            end: next_base,
            ends_by: next_base,
        }
    }

    /// Of one that may reach beyond the recovery point: the last one's end is known only where a
    /// checkpoint names it.
    fn unsure(segment: &Segment, next_base: Option<i64>, proven_end: i64) -> Proven {
        let named = (proven_end > segment.base_offset).then_some(proven_end);
        Proven {
            end: proven_end,
            ends_by: next_base.or(named).unwrap_or(i64::MAX),
        }
    }
}

impl Opening {
    /// Examines all segments; `None` if there are none. Above the recovery point everything is
    /// verified, and given up after the first bad batch. Below it everything stays.
    pub(super) fn examine(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        recovery_point: i64,
    ) -> Result<Option<Tail>, LogError> {
        if segments.is_empty() {
            return Ok(None);
        }
        // Begin with the segment before the recovery point, not the one after it: bytes that were
        // later written there and taken back (the disk was full, a recovery truncated them) may
        // have reappeared in a power cut.
        let first_unsure = segment_index(segments, recovery_point.saturating_sub(1));
        for index in 0..first_unsure {
            let next_base = segments[index + 1].base_offset;
            self.examine_sealed(&segments[index], next_base)?;
        }
        self.examine_unsure(segments, first_unsure, recovery_point)
            .map(Some)
    }

    fn examine_unsure(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        first_unsure: usize,
        recovery_point: i64,
    ) -> Result<Tail, LogError> {
        let proven_end = self.proven_end();
        let mut index = first_unsure;
        loop {
            let segment = Arc::clone(&segments[index]);
            let next_base = segments.get(index + 1).map(|next| next.base_offset);
            let proven = Proven::unsure(&segment, next_base, proven_end);
            let tail = self.recover_segment(&segment, recovery_point, proven)?;
            let is_whole = tail.position == segment.bytes();
            // Never cut where a later segment proves that records existed.
            if !is_whole && tail.end_offset >= proven_end {
                self.give_up_behind(segments, index, &tail)?;
                return Ok(tail);
            }
            let Some(next_base) = next_base else {
                return Ok(tail);
            };
            if !self.follows(tail.end_offset, next_base) {
                if tail.end_offset.min(next_base) >= proven_end {
                    // A segment that a crash left shorter than its successor's base offset means
                    // lost records in between: what follows is useless without them.
                    self.give_up_from(segments, index + 1, &tail)?;
                    return Ok(tail);
                }
                self.miss_between(&segment, &tail, next_base)?;
            }
            self.seal(&segment, tail.progress);
            index += 1;
        }
    }

    fn follows(&self, end_offset: i64, next_base: i64) -> bool {
        end_offset == next_base || end_offset < next_base && next_base <= self.gaps_below()
    }

    /// Durable records between a segment's last batch and the next segment are lost; what follows
    /// is still served.
    fn miss_between(&mut self, segment: &Segment, tail: &Tail, next_base: i64) -> Result<(), LogError> {
        if tail.end_offset > next_base {
            let detail = format!(
                "its batches end at offset {}, but the next segment begins at {next_base}",
                tail.end_offset
            );
            return self.lose(&segment.path(FileKind::Log), tail.position, detail);
        }
        self.note_damage(
            segment,
            tail.position,
            tail.end_offset,
            next_base,
            tail.why_it_ends(),
        );
        Ok(())
    }

    /// - Shape: the offsets are `from..to`. Damage already reported is not reported again.
    pub(super) fn note_damage(&mut self, segment: &Segment, position: u64, from: i64, to: i64, why: &str) {
        let path = segment.path(FileKind::Log);
        let mut known = self.report.findings.iter();
        if known.any(|known| known.path == path && known.position == position) {
            return;
        }
        self.report.findings.push(Finding {
            kind: FindingKind::Damaged,
            path,
            position,
            detail: format!("{why}: offsets {from} to {} cannot be read", to - 1),
        });
    }

    /// Examines a segment below the recovery point: its end must lead to the next segment, and its
    /// indexes must match or are rebuilt. What lies between is checked when it is read.
    fn examine_sealed(&mut self, segment: &Arc<Segment>, next_base: i64) -> Result<(), LogError> {
        let proven = Proven::sealed(next_base);
        let resume = self.resume_point(segment, i64::MAX)?;
        let genuine = resume.as_ref().map_or(0, |resume| resume.offsets);
        let tail = if genuine == segment.indexes().offsets.count() && self.has_whole_indexes(segment) {
            self.walk(segment, resume, Trust::Headers, proven, Indexing::Done)?
        } else {
            self.report.rebuilt_indexes += 1;
            self.forget_indexes(segment, 0, 0);
            let mut tail = self.walk(segment, None, Trust::Headers, proven, Indexing::Wanted)?;
            tail.progress.finish(segment);
            segment.set_largest_timestamp(tail.progress.largest_timestamp);
            self.repairs.push(Repair::WriteIndexes(Arc::clone(segment)));
            tail
        };
        if self.follows(tail.end_offset, next_base) {
            return Ok(());
        }
        self.miss_between(segment, &tail, next_base)
    }

    /// Whether both index files exist with plausible lengths.
    fn has_whole_indexes(&self, segment: &Segment) -> bool {
        let bytes = |kind| self.files.bytes(segment.base_offset, kind);
        let whole = |length: Option<u64>, entry_bytes: usize| {
            length.is_some_and(|length| length % entry_bytes as u64 == 0)
        };
        let long_without_entries = segment.bytes() > 4 * u64::from(self.config.index_interval_bytes)
            && bytes(FileKind::OffsetIndex) == Some(0)
            && bytes(FileKind::TimeIndex) == Some(0);
        whole(bytes(FileKind::OffsetIndex), OffsetEntry::BYTES)
            && whole(bytes(FileKind::TimeIndex), TimeEntry::BYTES)
            && !long_without_entries
    }

    /// Truncates both indexes in memory; the files follow once the log is certain to open.
    fn forget_indexes(&mut self, segment: &Arc<Segment>, offsets: u32, times: u32) {
        let kept = [
            (
                FileKind::OffsetIndex,
                u64::from(offsets) * OffsetEntry::BYTES as u64,
            ),
            (FileKind::TimeIndex, u64::from(times) * TimeEntry::BYTES as u64),
        ];
        for (kind, bytes) in kept {
            if self.files.bytes(segment.base_offset, kind) != Some(bytes) {
                let segment = Arc::clone(segment);
                self.repairs.push(Repair::TrimIndex { segment, kind, bytes });
            }
        }
        let mut indexes = segment.indexes();
        let (aborted, aborted_in_file) = (std::mem::take(&mut indexes.aborted), indexes.aborted_in_file);
        *indexes = SegmentIndexes::new(offsets, times);
        (indexes.aborted, indexes.aborted_in_file) = (aborted, aborted_in_file);
    }

    /// Finds the end of a segment's valid batches and brings its indexes up to date.
    fn recover_segment(
        &mut self,
        segment: &Arc<Segment>,
        recovery_point: i64,
        proven: Proven,
    ) -> Result<Tail, LogError> {
        let resume = if recovery_point <= segment.base_offset {
            None
        } else {
            self.resume_point(segment, recovery_point)?
        };
        let (offsets, times) = resume
            .as_ref()
            .map_or((0, 0), |resume| (resume.offsets, resume.times));
        self.forget_indexes(segment, offsets, times);
        // After a clean stop all of it was durable; verifying checksums without indexes would mean
        // the whole segment.
        let trust = if self.options.clean_shutdown && resume.is_none() {
            Trust::Headers
        } else {
            Trust::Checksums
        };
        let start = resume.as_ref().map_or(0, |resume| resume.position);
        let tail = self.walk(segment, resume, trust, proven, Indexing::Wanted)?;
        if trust == Trust::Checksums {
            self.report.checked_bytes += tail.position - start;
            self.note_checked(segment, start, tail.position);
        }
        Ok(tail)
    }

    /// Notes the range that was walked with checksums, up to the first damage.
    fn note_checked(&self, segment: &Segment, start: u64, end: u64) {
        let path = segment.path(FileKind::Log);
        let damages = self.report.findings.iter().filter(|known| known.path == path);
        let first_damage = damages
            .map(|damage| damage.position)
            .filter(|at| *at >= start)
            .min();
        segment.note_checked(start, first_damage.unwrap_or(end).min(end));
    }

    /// Walks the batches to the end, skipping damage as long as the records are proven to have been
    /// durable.
    fn walk(
        &mut self,
        segment: &Arc<Segment>,
        resume: Option<Resume>,
        trust: Trust,
        proven: Proven,
        indexing: Indexing,
    ) -> Result<Tail, LogError> {
        let mut tail = Tail::empty(segment.base_offset);
        if let Some(resume) = resume {
            (tail.end_offset, tail.position, tail.progress) =
                (resume.base_offset, resume.position, resume.progress);
        }
        let failed = |source| LogError::io("read", &segment.path(FileKind::Log), source);
        let expected = Expected {
            offset: tail.end_offset,
            gaps_below: self.gaps_below(),
        };
        let mut scanner = BatchScanner::new(&*segment.file, tail.position, segment.bytes(), trust);
        scanner = scanner.expecting(expected).ending_by(proven.ends_by);
        loop {
            let (header, position) = match scanner.next().map_err(failed)? {
                Scanned::Batch { header, position } => (header, position),
                Scanned::End => break,
                // A clean stop leaves no unfinished append: batches behind damage were durable.
                Scanned::Invalid { reason }
                    if tail.end_offset >= proven.end && !self.options.clean_shutdown =>
                {
                    tail.invalid = Some(reason);
                    break;
                }
                Scanned::Invalid { reason } => {
                    self.check_belongs(segment, &mut scanner)?;
                    let Some((header, position)) = scanner.next_behind_damage().map_err(failed)? else {
                        self.check_last(segment, &mut scanner, &reason)?;
                        tail.invalid = Some(reason);
                        break;
                    };
                    let (damaged_at, to) = (tail.position, header.base_offset);
                    self.note_damage(segment, damaged_at, tail.end_offset.min(to - 1), to, &reason);
                    (header, position)
                }
            };
            let place = BatchPlace::new(&header, segment.base_offset, position);
            if place.last_offset - segment.base_offset > i64::from(i32::MAX) {
                tail.invalid = Some(format!(
                    "offset {} is too far from the segment's first",
                    place.last_offset
                ));
                break;
            }
            if indexing == Indexing::Wanted {
                tail.progress
                    .note(segment, &place, self.config.index_interval_bytes);
            }
            self.note_leader_epoch(&header);
            (tail.end_offset, tail.position) = (header.next_offset(), place.end());
        }
        Ok(tail)
    }

    /// Below the recovery point a batch tells nothing new of the leader epochs: where it does,
    /// their file is wrong, and they are read from the headers of all batches instead.
    fn note_leader_epoch(&mut self, header: &BatchHeader) {
        let is_new = header.base_offset >= self.recovery_point();
        let Some(epochs) = &mut self.leader_epochs else {
            return;
        };
        if is_new {
            epochs.assign(header.leader_epoch, header.base_offset);
        }
        let named = epochs.epoch_at(header.base_offset);
        if header.leader_epoch >= 0 && named.is_some_and(|epoch| epoch != header.leader_epoch) {
            self.leader_epochs = None;
        }
    }

    /// A file that begins with an intact batch at other offsets than its name says does not belong
    /// to this log, nor does the rest of it.
    fn check_belongs(&mut self, segment: &Segment, scanner: &mut BatchScanner<'_>) -> Result<(), LogError> {
        if scanner.position() != 0 {
            return Ok(());
        }
        let path = segment.path(FileKind::Log);
        let first = scanner
            .whole_batch_here()
            .map_err(|source| LogError::io("read", &path, source))?;
        match first {
            Some(header) => self.lose(
                &path,
                0,
                format!(
                    "it begins with offset {}: the file is not this log's",
                    header.base_offset
                ),
            ),
            None => Ok(()),
        }
    }

    /// After a clean stop an intact batch at the end was durable, whatever its base offset says.
    fn check_last(
        &mut self,
        segment: &Segment,
        scanner: &mut BatchScanner<'_>,
        reason: &str,
    ) -> Result<(), LogError> {
        if !self.options.clean_shutdown {
            return Ok(());
        }
        let path = segment.path(FileKind::Log);
        let whole = scanner
            .whole_batch_here()
            .map_err(|source| LogError::io("read", &path, source))?;
        match whole {
            Some(_) => self.lose(
                &path,
                scanner.position(),
                format!("{reason}: its last batch is intact, its base offset is not"),
            ),
            None => Ok(()),
        }
    }

    /// Returns the newest index entry below the recovery point that is verified, and the indexes up
    /// to it.
    fn resume_point(&self, segment: &Arc<Segment>, trusted_until: i64) -> Result<Option<Resume>, LogError> {
        let failed = |source| self.failed("read", FileKind::OffsetIndex, segment.base_offset, source);
        let mut count = segment.indexes().offsets.count();
        while count > 0 {
            let file = segment
                .index_file(FileKind::OffsetIndex, ReadMode::Blocking)
                .map_err(failed)?;
            // Zeros after the last entry (Kafka preallocates) must not count as small offsets.
            let precedes = |entry: &OffsetEntry| {
                entry.position > 0 && segment.base_offset + i64::from(entry.relative_offset) < trusted_until
            };
            let found = last_where(&*file, count, ReadMode::Blocking, precedes).map_err(failed)?;
            let Some((index, entry)) = found else {
                return Ok(None);
            };
            let genuine = segment.batch_of_entry(entry, segment.bytes(), ReadMode::Blocking);
            if let Some(header) = genuine.map_err(failed)? {
                return self.resume_at(segment, index, entry, &header);
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
        header: &BatchHeader,
    ) -> Result<Option<Resume>, LogError> {
        let failed = |source| self.failed("read", FileKind::TimeIndex, segment.base_offset, source);
        let resume = |times, progress| Resume {
            offsets: index + 1,
            times,
            position: u64::from(entry.position),
            base_offset: header.base_offset,
            progress,
        };
        let count = segment.indexes().times.count();
        if count == 0 {
            // Records without timestamps have no entries.
            let is_untimed = header.max_timestamp == NO_TIMESTAMP
                && first_timestamp(segment).map_err(failed)? == Some(NO_TIMESTAMP);
            return Ok(is_untimed.then(|| resume(0, IndexProgress::default())));
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
        let genuine = segment
            .is_genuine_time(time, ReadMode::Blocking)
            .map_err(failed)?;
        let progress = IndexProgress {
            bytes_since_entry: 0,
            largest_timestamp: time.timestamp,
            offset_of_largest_timestamp: offset,
            last_time_entry: time.timestamp,
        };
        Ok(genuine.then(|| resume(time_index + 1, progress)))
    }

    /// Gives up everything after the valid batches.
    fn give_up_behind(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        index: usize,
        tail: &Tail,
    ) -> Result<(), LogError> {
        let segment = Arc::clone(&segments[index]);
        let file_bytes = segment.bytes();
        let failed = |source| LogError::io("read", &segment.path(FileKind::Log), source);
        let mut scanner = BatchScanner::new(&*segment.file, tail.position, file_bytes, Trust::Checksums);
        let expected = Expected {
            offset: tail.end_offset,
            gaps_below: i64::MAX,
        };
        // A complete batch with a wrong offset counts like one after damage.
        scanner = scanner.expecting(expected);
        let whole_behind = match scanner.next().map_err(failed)? {
            Scanned::Batch { .. } => true,
            _ => scanner.next_behind_damage().map_err(failed)?.is_some(),
        };
        let keep = whole_behind || segments[index + 1..].iter().any(|later| later.bytes() > 0);
        let kind = if keep {
            FindingKind::CutBatches
        } else {
            FindingKind::CutEnd
        };
        // Later segments first: an interruption must not leave a gap.
        self.set_aside_from(segments, index + 1, keep);
        let position = tail.position;
        let may_be_padding = !keep && !self.options.clean_shutdown;
        if may_be_padding && is_padding(&segment, position).map_err(failed)? {
            let segment = Arc::clone(&segment);
            self.repairs.push(Repair::EndBeforePadding { segment, position });
        } else {
            self.note_cut(kind, &segment, tail, file_bytes - position);
            self.repairs.push(Repair::Cut {
                segment: Arc::clone(&segment),
                position,
                file_bytes,
                keep: whole_behind,
            });
        }
        segment.shorten(tail.position);
        Ok(())
    }

    /// Gives up segments that do not follow.
    fn give_up_from(
        &mut self,
        segments: &mut Vec<Arc<Segment>>,
        first: usize,
        tail: &Tail,
    ) -> Result<(), LogError> {
        let segment = Arc::clone(&segments[first]);
        let has_batches = segments[first..].iter().any(|segment| segment.bytes() > 0);
        let before = Tail {
            position: 0,
            end_offset: tail.end_offset,
            progress: IndexProgress::default(),
            invalid: Some(format!("the segment does not follow offset {}", tail.end_offset)),
        };
        let kind = if has_batches {
            FindingKind::CutBatches
        } else {
            FindingKind::CutEnd
        };
        self.note_cut(kind, &segment, &before, 0);
        self.set_aside_from(segments, first, has_batches);
        Ok(())
    }

    fn note_cut(&mut self, kind: FindingKind, segment: &Segment, tail: &Tail, bytes: u64) {
        self.report.cut_bytes += bytes;
        let detail = format!(
            "{}; {bytes} bytes from offset {} on are not part of the log",
            tail.why_it_ends(),
            tail.end_offset
        );
        self.report.findings.push(Finding {
            kind,
            path: segment.path(FileKind::Log),
            position: tail.position,
            detail,
        });
    }

    /// Newest first: an interruption must not leave a gap.
    fn set_aside_from(&mut self, segments: &mut Vec<Arc<Segment>>, first: usize, keep: bool) {
        if first == segments.len() {
            return;
        }
        for segment in segments.drain(first..).rev() {
            self.report.segments_set_aside += 1;
            self.report.cut_bytes += segment.bytes();
            let keep = match keep && segment.bytes() > 0 {
                true => Keep::UpToLimit,
                false => Keep::Nothing,
            };
            self.repairs.push(Repair::SetAside { segment, keep });
        }
        self.repairs.push(Repair::SyncDirectory);
    }
}

/// Whether a segment's bytes from `position` on are zeros that direct writes may have left there: a
/// log that ends at `position` has no more. Fewer may also be batches that were lost with their
/// first block, which cannot be told from these.
fn is_padding(segment: &Segment, position: u64) -> io::Result<bool> {
    let bytes = segment.bytes() - position;
    if bytes > padding_bytes_max(position) {
        return Ok(false);
    }
    let mut padding = vec![0; bytes as usize];
    let read = read_up_to(&*segment.file, &mut padding, position, ReadMode::Blocking)?;
    Ok(padding[..read].iter().all(|byte| *byte == 0))
}

/// Whether a walk adds index entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexing {
    Done,
    Wanted,
}
