//! Whether a transaction index tells of transactions that the log knows.
//!
//! `.txnindex` has no checksum, and a changed line hides committed records or shows aborted ones.
//! The log holds the same facts: the marker, and the batch that begins the transaction.

use std::io;
use std::sync::Arc;

use ottla_wire::records::batch::BatchHeader;

use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::marker::marker_at;
use crate::read_mode::ReadMode;
use crate::reader::segment_index;
use crate::segment::Segment;
use crate::transaction_index::AbortedTransaction;

/// Of each segment the newest lines are compared: a start reads two batches for each.
const COMPARED_MAX: usize = 1024;

/// How far a transaction is followed to its marker.
const WALKED_BYTES_MAX: u64 = 64 * 1024;

/// Returns the base offset of the oldest segment whose index the log contradicts.
pub(super) fn first_contradicted(segments: &[Arc<Segment>]) -> io::Result<Option<i64>> {
    let mut oldest = None;
    // The smallest first offset of the aborts behind.
    let mut begun_before = i64::MAX;
    for segment in segments.iter().rev() {
        let aborted = segment.indexes().aborted.clone();
        for (age, entry) in aborted.iter().rev().enumerate() {
            let hides_one_behind =
                begun_before <= entry.last_offset && entry.last_stable_offset > begun_before;
            begun_before = begun_before.min(entry.first_offset);
            if hides_one_behind || age < COMPARED_MAX && is_contradicted(segments, entry)? {
                oldest = Some(segment.base_offset);
                break;
            }
        }
    }
    Ok(oldest)
}

/// What compaction took or damage hides contradicts nothing.
fn is_contradicted(segments: &[Arc<Segment>], entry: &AbortedTransaction) -> io::Result<bool> {
    if let Some(found) = batch_with(segments, entry.last_offset)? {
        let is_of_producer = found.header.is_control() && found.header.producer_id == entry.producer_id;
        let marker = marker_at(&*found.segment.file, &found.header, found.position)?;
        if !is_of_producer || marker.is_some_and(|marker| marker.committed) {
            return Ok(true);
        }
    }
    let Some(first) = batch_with(segments, entry.first_offset)? else {
        return Ok(false);
    };
    // That it is no marker is seen by `ends_before`.
    let begins = first.header.is_transactional()
        && first.header.producer_id == entry.producer_id
        && first.header.base_offset == entry.first_offset;
    Ok(!begins || has_begun_before(&first, entry)? || ends_before(segments, &first, entry)?)
}

/// Returns whether the producer's transaction has a batch before `first`, as far as the headers in
/// front of it tell.
fn has_begun_before(first: &Found<'_>, entry: &AbortedTransaction) -> io::Result<bool> {
    let segment = first.segment;
    let from = first.position.saturating_sub(WALKED_BYTES_MAX);
    let start = segment.position_where(ReadMode::Blocking, |index| u64::from(index.position) <= from)?;
    let mut scanner = BatchScanner::new(&*segment.file, start, first.position, Trust::Headers);
    let mut is_open = false;
    while let Scanned::Batch { header, .. } = scanner.next()? {
        // Compaction leaves an empty batch of a transaction whose marker is gone.
        if header.producer_id == entry.producer_id && header.record_count > 0 {
            is_open = header.is_transactional() && !header.is_control();
        }
    }
    Ok(is_open)
}

/// Returns whether the producer's transaction that begins with `first` ends before the marker that
/// the entry names, as far as the headers that are read tell.
fn ends_before(segments: &[Arc<Segment>], first: &Found<'_>, entry: &AbortedTransaction) -> io::Result<bool> {
    let mut left = WALKED_BYTES_MAX;
    let mut position = first.position;
    for segment in &segments[segment_index(segments, entry.first_offset)..] {
        let end = segment.bytes().min(position + left);
        left -= end - position;
        let mut scanner = BatchScanner::new(&*segment.file, position, end, Trust::Headers);
        while let Scanned::Batch { header, .. } = scanner.next()? {
            if header.base_offset >= entry.last_offset {
                return Ok(false);
            }
            if header.is_control() && header.producer_id == entry.producer_id {
                return Ok(true);
            }
        }
        if left == 0 {
            break;
        }
        position = 0;
    }
    Ok(false)
}

/// A batch and where it is.
struct Found<'a> {
    segment: &'a Segment,
    header: BatchHeader,
    position: u64,
}

/// Returns the batch that holds an offset.
fn batch_with(segments: &[Arc<Segment>], offset: i64) -> io::Result<Option<Found<'_>>> {
    let segment = &segments[segment_index(segments, offset)];
    let end = segment.bytes();
    let place = match segment.search(offset, end, ReadMode::Blocking) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        place => place?,
    };
    let Some(place) = place.filter(|place| place.base_offset <= offset) else {
        return Ok(None);
    };
    let header = segment.header_at(place.position, end, ReadMode::Blocking)?;
    let position = place.position;
    Ok(header.map(|header| Found {
        segment,
        header,
        position,
    }))
}
