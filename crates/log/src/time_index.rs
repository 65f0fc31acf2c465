//! `.timeindex`: from timestamps to offsets.

use crate::index_file::IndexEntry;

/// `timestamp` is the largest timestamp up to and including the batch that ends with this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeEntry {
    pub timestamp: i64,
    pub relative_offset: i32,
}

impl IndexEntry for TimeEntry {
    /// Timestamp 8, relative offset 4.
    const BYTES: usize = 8 + 4;

    fn decode(bytes: &[u8]) -> TimeEntry {
        TimeEntry {
            timestamp: i64::from_be_bytes(*bytes.first_chunk().expect("12 bytes")),
            relative_offset: i32::from_be_bytes(*bytes.last_chunk().expect("12 bytes")),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }
}
