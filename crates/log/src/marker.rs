//! Transaction markers: the control batches that end a producer's transaction (KIP-98).

use std::io;

use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES};
use ottla_wire::records::record::Records;

use crate::disk::DiskFile;
use crate::producer_state::{Marker, ProducerState};
use crate::read_mode::{ReadMode, read_up_to};
use crate::transaction_index::AbortedTransaction;

/// Notes a marker; returns the entry for the transaction index if it aborted an open transaction.
pub(crate) fn note_marker(
    producers: &mut ProducerState,
    header: &BatchHeader,
    marker: Marker,
) -> Option<AbortedTransaction> {
    let completed = producers.note_marker(header, marker)?;
    completed.aborted.then(|| AbortedTransaction {
        producer_id: completed.producer_id,
        first_offset: completed.first_offset,
        last_offset: completed.last_offset,
        last_stable_offset: producers.stable_after(&completed),
    })
}

/// Returns the transaction marker in a control batch of a producer.
pub(crate) fn marker_in(header: &BatchHeader, records: &[u8]) -> Option<Marker> {
    let record = Records::new(header, records).next()?.ok()?;
    // Key: version 2, type 2 (0 abort, 1 commit). Value: version 2, coordinator epoch 4.
    let committed = match record.key?.get(2..4)? {
        [0, 0] => false,
        [0, 1] => true,
        _ => return None,
    };
    let coordinator_epoch = i32::from_be_bytes(*record.value?.get(2..)?.first_chunk()?);
    Some(Marker {
        committed,
        coordinator_epoch,
    })
}

/// Reads the marker that the control batch at `position` holds. One that may be damaged is none: as
/// a commit it would show aborted records.
pub(crate) fn marker_at(
    file: &dyn DiskFile,
    header: &BatchHeader,
    position: u64,
) -> io::Result<Option<Marker>> {
    // A marker takes some 20 bytes; a larger batch is none.
    let mut bytes = vec![0; header.total_bytes().min(4096)];
    read_up_to(file, &mut bytes, position, ReadMode::Blocking)?;
    let is_intact = Batch::parse(&bytes).is_ok_and(|batch| batch.verify_checksum().is_ok());
    let records = bytes.get(HEADER_BYTES..).filter(|_| is_intact);
    Ok(records.and_then(|records| marker_in(header, records)))
}
