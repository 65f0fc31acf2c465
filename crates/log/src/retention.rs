//! Removal of a log's oldest records: by time, by size, by DeleteRecords.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Disk;
use crate::error::LogError;
use crate::partition_log::PartitionLog;
use crate::segment::{FileKind, Segment, file_path};

/// Files of segments removed from the log. They are renamed first, so that a restart does not see
/// them, and deleted only `file.delete.delay.ms` later, when no reader is likely to need their
/// names.
#[derive(Debug)]
pub struct SegmentRemoval {
    disk: Arc<dyn Disk>,
    directory: Arc<Path>,
    base_offsets: Vec<i64>,
    renamed: Vec<PathBuf>,
    is_renamed: bool,
    /// When `purge` is due, in wall-clock time.
    pub purge_at_ms: i64,
}

impl SegmentRemoval {
    pub fn segment_count(&self) -> usize {
        self.base_offsets.len()
    }

    /// Renames the files to `.deleted`, oldest segment first, so that an interruption leaves no
    /// gap. May be called again after an error.
    pub fn rename(&mut self) -> Result<(), LogError> {
        for base_offset in &self.base_offsets {
            for kind in FileKind::ALL {
                let path = file_path(&self.directory, *base_offset, kind);
                let mut deleted = path.as_os_str().to_os_string();
                deleted.push(".deleted");
                let deleted = PathBuf::from(deleted);
                match self.disk.rename(&path, &deleted) {
                    Ok(()) => self.renamed.push(deleted),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(LogError::io("rename", &path, source)),
                }
            }
        }
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))?;
        self.is_renamed = true;
        Ok(())
    }

    /// Whether `rename` has succeeded.
    pub fn is_renamed(&self) -> bool {
        self.is_renamed
    }

    /// Deletes the files; ones that no longer exist (the topic was deleted) are no error. Freeing a
    /// large file may take a while.
    pub fn purge(&self) -> Result<(), LogError> {
        for path in &self.renamed {
            match self.disk.remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl PartitionLog {
    /// Removes segments that time, size or the log's start have made superfluous from the log: only
    /// whole segments below `high_watermark` whose largest timestamp is known
    /// (`LogReader::load_timestamps`).
    ///
    /// - Errors: only from closing the active segment when all of it has expired; the log is then
    ///   unchanged.
    pub fn retain(&mut self, now_ms: i64, high_watermark: i64) -> Result<Option<SegmentRemoval>, LogError> {
        if self.is_compacting() {
            return Ok(None);
        }
        self.roll_if_expired(now_ms, high_watermark)?;
        let segments = Arc::clone(&self.reader.state().segments);
        let mut bytes: u64 = segments.iter().map(|segment| segment.bytes()).sum();
        let mut removed = 0;
        // The active segment is never removed.
        for pair in segments.windows(2) {
            let [segment, next] = pair else {
                unreachable!("windows of two")
            };
            let below_start = next.base_offset <= self.start_offset;
            let may_go = next.base_offset <= high_watermark;
            let expired = self.is_expired(segment.largest_timestamp(), now_ms);
            if !may_go || !(below_start || expired || self.is_excess(segment, bytes)) {
                break;
            }
            bytes -= segment.bytes();
            removed += 1;
        }
        if removed == 0 {
            return Ok(None);
        }
        self.forget_segments(&segments, removed);
        Ok(Some(SegmentRemoval {
            disk: Arc::clone(&self.disk),
            directory: Arc::clone(&self.directory),
            base_offsets: segments[..removed]
                .iter()
                .map(|segment| segment.base_offset)
                .collect(),
            renamed: Vec::new(),
            is_renamed: false,
            purge_at_ms: now_ms.saturating_add(self.config.file_delete_delay_ms),
        }))
    }

    /// Whether a segment with this largest timestamp has expired. Records without a timestamp never
    /// expire by time.
    fn is_expired(&self, largest_timestamp: i64, now_ms: i64) -> bool {
        self.config.delete
            && self.config.retention_ms >= 0
            && largest_timestamp >= 0
            && now_ms.saturating_sub(largest_timestamp) > self.config.retention_ms
    }

    /// Kafka keeps at least `retention.bytes`: a segment is removed when the others still hold that
    /// much.
    fn is_excess(&self, segment: &Segment, bytes: u64) -> bool {
        u64::try_from(self.config.retention_bytes)
            .is_ok_and(|limit| self.config.delete && bytes - segment.bytes() >= limit)
    }

    /// Closes an expired active segment: only closed segments can be removed.
    fn roll_if_expired(&mut self, now_ms: i64, high_watermark: i64) -> Result<(), LogError> {
        let expired = self.is_expired(self.active.progress.largest_timestamp, now_ms);
        let emptied = self.start_offset == self.end_offset;
        let whole = self.active.position > 0 && self.end_offset <= high_watermark && self.poison.is_none();
        if whole && (expired || emptied) {
            self.roll(now_ms)
        } else {
            Ok(())
        }
    }

    fn forget_segments(&mut self, segments: &Arc<Vec<Arc<Segment>>>, count: usize) {
        let remaining = segments[count..].to_vec();
        let first = remaining[0].base_offset;
        let forgotten = |segment: &Arc<Segment>| segment.base_offset < first;
        // A checkpoint captured before must not recreate their index files.
        segments[..count].iter().for_each(|segment| segment.retire());
        self.checkpoints.sealed.retain(|segment| !forgotten(segment));
        self.checkpoints.snapshots.retain(|(offset, _)| *offset >= first);
        self.reader.state().segments = Arc::new(remaining);
        self.raise_start(first);
    }

    /// Moves the log's start up to `offset` (DeleteRecords); at most the high watermark, which the
    /// caller checks. Returns the start, which the caller writes to `log-start-offset-checkpoint`.
    /// Segments are removed at the next `retain`.
    pub fn delete_records_before(&mut self, offset: i64) -> i64 {
        self.raise_start(offset.min(self.end_offset));
        self.start_offset
    }

    fn raise_start(&mut self, offset: i64) {
        if offset <= self.start_offset {
            return;
        }
        self.start_offset = offset;
        self.reader.state().start_offset = offset;
        self.leader_epochs.truncate_from_start(offset);
    }
}
