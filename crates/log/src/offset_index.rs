//! `.index`: from offsets to positions, about one entry per 4 KiB of log.

use crate::index_file::IndexEntry;

/// The batch at `position` ends with offset `base_offset + relative_offset` of the segment.
///
/// Kafka writes the batch's *last* offset, and its dump tool checks that, so Ottla does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetEntry {
    pub relative_offset: i32,
    pub position: u32,
}

impl IndexEntry for OffsetEntry {
    /// Relative offset 4, position 4.
    const BYTES: usize = 4 + 4;

    fn decode(bytes: &[u8]) -> OffsetEntry {
        OffsetEntry {
            relative_offset: i32::from_be_bytes(*bytes.first_chunk().expect("8 bytes")),
            position: u32::from_be_bytes(*bytes.last_chunk().expect("8 bytes")),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }
}
