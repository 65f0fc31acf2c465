//! Transaction markers: the control batches that end a producer's transaction (KIP-98).

use ottla_wire::records::batch::BatchHeader;
use ottla_wire::records::record::Records;

use crate::producer_state::{Marker, ProducerState};
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
