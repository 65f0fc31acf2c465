//! Truncation of a log's end. A lone broker does this only when it takes over from a cluster, so
//! nothing here is fast.

use std::sync::Arc;

use crate::error::LogError;
use crate::partition_log::PartitionLog;
use crate::read_mode::ReadMode;
use crate::reader::segment_index;
use crate::recovery::OpenOptions;
use crate::segment::{FileKind, Segment};

impl PartitionLog {
    /// Removes every batch that holds an offset at or above `offset`. Waits for the device.
    ///
    /// - Shape: the end offset becomes `offset`, or the base offset of the batch that spans it.
    /// - Errors: a poisoned log is not truncated; any failure poisons it.
    ///
    /// The caller must lower `recovery-point-offset-checkpoint` to `recovery_point()` before it
    /// appends again.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        if offset >= self.end_offset {
            return Ok(());
        }
        // Everything is flushed first, so that the rest can be opened like a cleanly closed log.
        self.close()?;
        let truncated = self.truncate_files(offset.max(self.start_offset), now_ms);
        truncated.map_err(|error| self.poison_with(format!("truncation failed: {error}")))
    }

    fn truncate_files(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        let segments = Arc::clone(&self.reader.state().segments);
        let first = segment_index(&segments, offset);
        for segment in segments[first + 1..].iter().rev() {
            self.set_aside(segment)?;
        }
        let segment = &segments[first];
        let path = segment.path(FileKind::Log);
        let place = segment
            .search(offset, segment.bytes(), ReadMode::Blocking)
            .map_err(|source| LogError::io("read", &path, source))?;
        if let Some(place) = place {
            let cut = || {
                segment.file.set_bytes(place.position)?;
                segment.file.sync()
            };
            cut().map_err(|source| LogError::io("cut", &path, source))?;
        }
        self.disk
            .sync_directory(&self.directory)
            .map_err(|source| LogError::io("sync", &self.directory, source))?;
        self.reopen(now_ms)
    }

    fn set_aside(&self, segment: &Segment) -> Result<(), LogError> {
        for kind in FileKind::ALL {
            let path = segment.path(kind);
            if self.disk.exists(&path) {
                let mut deleted = path.as_os_str().to_os_string();
                deleted.push(".deleted");
                self.disk
                    .rename(&path, std::path::Path::new(&deleted))
                    .map_err(|source| LogError::io("rename", &path, source))?;
            }
        }
        Ok(())
    }

    fn reopen(&mut self, now_ms: i64) -> Result<(), LogError> {
        let options = OpenOptions {
            clean_shutdown: true,
            log_start_offset: self.start_offset,
            // Data that was readable a moment ago needs no proof.
            gaps_below: i64::MAX,
            now_ms,
            ..OpenOptions::default()
        };
        let (opened, _) = PartitionLog::open(
            Arc::clone(&self.disk),
            &self.directory,
            self.config.clone(),
            options,
        )?;
        // Readers hold on to the old handle, so the new state is moved into it.
        let reader = self.reader.clone();
        {
            let mut state = reader.state();
            let mut new_state = opened.reader.state();
            std::mem::swap(&mut *state, &mut *new_state);
        }
        let truncations = self.truncations + 1;
        *self = opened;
        self.reader = reader;
        self.truncations = truncations;
        Ok(())
    }
}
