//! Look-up of a producer's last transaction marker, for the coordinator when it is loaded.

use std::io;

use ottla_wire::records::batch::BatchHeader;

use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::error::LogError;
use crate::marker::marker_at;
use crate::producer_state::Marker;
use crate::reader::{Bound, LogReader, View, segment_index};
use crate::segment::FileKind;

/// A transaction marker in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundMarker {
    pub timestamp: i64,
    pub is_commit: bool,
}

impl FoundMarker {
    fn of(header: &BatchHeader, marker: Marker) -> FoundMarker {
        FoundMarker {
            timestamp: header.max_timestamp,
            is_commit: marker.committed,
        }
    }
}

impl LogReader {
    /// Returns a producer's last marker below `bound_offset`. Reads all batches from there back to
    /// it; waits for the device.
    ///
    /// - Errors: `Corrupt` where damage may hide a marker.
    pub fn last_marker(&self, producer_id: i64, bound_offset: i64) -> Result<Option<FoundMarker>, LogError> {
        let everything = Bound {
            offset: i64::MAX,
            position: None,
        };
        let view = self.view(bound_offset, everything);
        let last = segment_index(&view.segments, bound_offset);
        for index in (0..=last).rev() {
            let found = last_in_segment(&view, index, producer_id, bound_offset);
            let path = view.segments[index].path(FileKind::Log);
            if let Some(marker) = found.map_err(|error| LogError::io("read", &path, error))? {
                return Ok(Some(marker));
            }
        }
        Ok(None)
    }
}

fn last_in_segment(
    view: &View,
    index: usize,
    producer_id: i64,
    bound_offset: i64,
) -> io::Result<Option<FoundMarker>> {
    let segment = &view.segments[index];
    let mut scanner = BatchScanner::new(&*segment.file, 0, view.segment_end(index), Trust::Checksums);
    let mut found = None;
    loop {
        match scanner.next()? {
            Scanned::Batch { header, position } if header.base_offset < bound_offset => {
                if header.is_control() && header.producer_id == producer_id {
                    let marker = marker_at(&*segment.file, &header, position)?;
                    found = marker.map(|marker| FoundMarker::of(&header, marker)).or(found);
                }
            }
            Scanned::Batch { .. } | Scanned::End => return Ok(found),
            Scanned::Invalid { reason } => {
                let path = segment.path(FileKind::Log);
                return Err(LogError::corrupt(&path, scanner.position(), reason).into_invalid_data());
            }
        }
    }
}
