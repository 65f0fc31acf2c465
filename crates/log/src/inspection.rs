//! Reads the batches of a directory in order without opening it as a log: never changes anything.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_wire::records::batch::Batch;

use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::checkpoint::read_file;
use crate::disk::{Disk, DiskFile, EntryKind, OpenMode};
use crate::error::LogError;
use crate::producer_state::ProducerState;
use crate::read_mode::{ReadMode, read_up_to};
use crate::recovery::{is_snapshot, segment_base_offset};

/// One item of an inspection.
#[derive(Debug)]
pub enum Inspected<'a> {
    /// A batch whose checksum is right and whose offset follows.
    Batch {
        batch: Batch<'a>,
        path: &'a Path,
        /// In bytes of the file.
        position: u64,
    },
    Damage(Damage),
}

/// A position at which a batch should begin, and none does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    /// In bytes of the file.
    pub position: u64,
    pub reason: String,
    /// The expected offset.
    pub offset: i64,
    /// The base offset of the next intact batch; `None`: only unreadable bytes follow.
    pub next_offset: Option<i64>,
}

impl From<Damage> for LogError {
    fn from(damage: Damage) -> LogError {
        LogError::corrupt(&damage.path, damage.position, damage.reason)
    }
}

/// The offset range of the inspected segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first segment's base offset; `None`: there is no segment.
    pub start_offset: Option<i64>,
    /// The offset after the last intact batch, or `from`.
    pub end_offset: i64,
}

/// Walks the batches of a log without gaps, starting with the one that holds `from`.
///
/// - Shape: ends early when `visit` breaks.
pub fn inspect<E: From<LogError>>(
    disk: &dyn Disk,
    directory: &Path,
    from: i64,
    mut visit: impl FnMut(Inspected<'_>) -> Result<ControlFlow<()>, E>,
) -> Result<Extent, E> {
    let segments = list(disk, directory)?;
    let mut extent = Extent {
        start_offset: segments.first().map(|segment| segment.base_offset),
        end_offset: from,
    };
    let holds_from = segments.partition_point(|segment| segment.base_offset <= from);
    let first = holds_from.saturating_sub(1);
    let mut due: Option<i64> = None;
    for (index, segment) in segments.iter().enumerate().skip(first) {
        let file = disk
            .open(&segment.path, OpenMode::Read)
            .map_err(|source| LogError::io("open", &segment.path, source))?;
        let mut walk = Walk {
            segment,
            file,
            due: due.unwrap_or(segment.base_offset),
            // The first later segment that is not empty.
            behind: segments[index + 1..].iter().find(|later| later.bytes > 0),
        };
        let flow = walk.run(&mut visit)?;
        extent.end_offset = extent.end_offset.max(walk.due);
        if flow.is_break() {
            break;
        }
        due = Some(walk.due);
    }
    Ok(extent)
}

/// Returns the largest producer id below `limit` that the intact batches and producer snapshots of
/// a log name.
///
/// - Shape: reads all headers, and whole batches only where their id is larger than those before.
pub fn largest_producer_id(disk: &dyn Disk, directory: &Path, limit: i64) -> Result<Option<i64>, LogError> {
    let mut largest = snapshot_producer_id(disk, directory, limit)?;
    for segment in list(disk, directory)? {
        let found = segment_producer_id(disk, &segment, limit, largest)
            .map_err(|source| LogError::io("read", &segment.path, source))?;
        largest = largest.max(found);
    }
    Ok(largest)
}

/// Retention may have removed the batches of producers that a snapshot names.
fn snapshot_producer_id(disk: &dyn Disk, directory: &Path, limit: i64) -> Result<Option<i64>, LogError> {
    let listed = disk.list(directory);
    let entries = listed.map_err(|source| LogError::io("list", directory, source))?;
    let mut largest = None;
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::File) {
        let name = entry.path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(is_snapshot) {
            continue;
        }
        let bytes = read_file(disk, &entry.path)?.unwrap_or_default();
        // The opening ignores a damaged snapshot, too.
        let producers = ProducerState::decode_snapshot(&bytes).ok();
        largest = largest.max(producers.and_then(|producers| producers.largest_producer_id(limit)));
    }
    Ok(largest)
}

/// As `largest_producer_id`, of one segment; at least `known`.
fn segment_producer_id(
    disk: &dyn Disk,
    segment: &SegmentFile,
    limit: i64,
    known: Option<i64>,
) -> io::Result<Option<i64>> {
    let file = disk.open(&segment.path, OpenMode::Read)?;
    let mut scanner = BatchScanner::new(&*file, 0, segment.bytes, Trust::Headers);
    let mut largest = known;
    loop {
        let (header, position) = match scanner.next()? {
            Scanned::Batch { header, position } => (header, position),
            Scanned::End => return Ok(largest),
            Scanned::Invalid { .. } => match scanner.next_behind_damage()? {
                Some(found) => found,
                None => return Ok(largest),
            },
        };
        let id = header.has_producer_id().then_some(header.producer_id);
        // A damaged header may hold any number.
        if id > largest && header.producer_id < limit && scanner.is_whole_at(position)? {
            largest = id;
        }
    }
}

struct SegmentFile {
    base_offset: i64,
    path: PathBuf,
    bytes: u64,
}

fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<SegmentFile>, LogError> {
    let listed = disk.list(directory);
    let entries = listed.map_err(|source| LogError::io("list", directory, source))?;
    let mut segments = Vec::new();
    for entry in entries {
        let name = entry.path.file_name().and_then(|name| name.to_str());
        let Some(base_offset) = name.and_then(segment_base_offset) else {
            continue;
        };
        if entry.kind != EntryKind::File {
            return Err(LogError::corrupt(&entry.path, 0, "not a regular file"));
        }
        segments.push(SegmentFile {
            base_offset,
            path: entry.path,
            bytes: entry.bytes,
        });
    }
    segments.sort_by_key(|segment| segment.base_offset);
    Ok(segments)
}

struct Walk<'a> {
    segment: &'a SegmentFile,
    file: Arc<dyn DiskFile>,
    due: i64,
    behind: Option<&'a SegmentFile>,
}

impl Walk<'_> {
    fn run<E: From<LogError>>(
        &mut self,
        visit: &mut impl FnMut(Inspected<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<ControlFlow<()>, E> {
        let failed = |source| LogError::io("read", &self.segment.path, source);
        let file = Arc::clone(&self.file);
        let expected = Expected {
            offset: self.due,
            gaps_below: -1,
        };
        let mut scanner = BatchScanner::new(&*file, 0, self.segment.bytes, Trust::Checksums);
        scanner = scanner.expecting(expected);
        loop {
            let scanned = scanner.next().map_err(failed)?;
            let (header, position) = match scanned {
                Scanned::Batch { header, position } => (header, position),
                Scanned::End => return Ok(ControlFlow::Continue(())),
                Scanned::Invalid { reason } => {
                    let position = scanner.position();
                    let found = scanner.next_behind_damage().map_err(failed)?;
                    let next = found.map(|(header, _)| header.base_offset);
                    let damage = Damage {
                        path: self.segment.path.clone(),
                        position,
                        reason,
                        offset: self.due,
                        next_offset: next.or(self.behind.map(|later| later.base_offset)),
                    };
                    if visit(Inspected::Damage(damage))?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    match found {
                        Some(found) => found,
                        None => return Ok(ControlFlow::Continue(())),
                    }
                }
            };
            let bytes = self.bytes(position, header.total_bytes()).map_err(failed)?;
            let batch = Batch::parse(&bytes)
                .map_err(|error| LogError::corrupt(&self.segment.path, position, error.to_string()))?;
            self.due = header.next_offset();
            let path = &*self.segment.path;
            let inspected = Inspected::Batch {
                batch,
                path,
                position,
            };
            if visit(inspected)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn bytes(&self, position: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let read = read_up_to(&*self.file, &mut bytes, position, ReadMode::Blocking)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}
