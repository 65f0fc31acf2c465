//! A coordinator's records as batches.

use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;

use crate::time::Timestamp;

/// Upper bound of a record's bytes in a batch beyond key and value: five varints and the
/// attributes.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// A record of a coordinator's log.
pub trait Encode {
    /// Replaces the content of both buffers; returns the value, `None` for a tombstone.
    fn encode<'b>(&self, key: &mut Vec<u8>, value: &'b mut Vec<u8>) -> Option<&'b [u8]>;
}

/// Encodes the records in as few batches as the size limit allows. The changes of one request fit
/// into one; a clean-up may take several.
pub fn build<R: Encode>(
    records: &[R],
    timestamp: Timestamp,
    codec: Codec,
    batch_bytes_max: usize,
) -> Vec<u8> {
    let options = BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    };
    build_with(records, timestamp, options, batch_bytes_max)
}

/// As [`build`], with a producer's id and epoch.
pub fn build_with<R: Encode>(
    records: &[R],
    timestamp: Timestamp,
    options: BatchOptions,
    batch_bytes_max: usize,
) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for record in records {
        let value = record.encode(&mut key, &mut value);
        let record_bytes = RECORD_OVERHEAD_BYTES + key.len() + value.map_or(0, <[u8]>::len);
        if builder.record_count() > 0 && builder.uncompressed_bytes() + record_bytes > batch_bytes_max {
            builder = BatchBuilder::append_to(builder.finish(), options);
        }
        builder.append(timestamp.0, Some(&key), value, &[]);
    }
    builder.finish()
}
