//! What a transaction machine takes from its partition of `__transaction_state`.

use ottla_wire::records::batch::BatchHeader;
use ottla_wire::records::record::Record;

use super::lost_markers::LostMarkers;
use super::machine::Machine;
use super::record::TransactionRecord;
use crate::coordinator::replay::{ContentError, Replay, Taken, Unreadable};

/// A machine that is being rebuilt.
pub(crate) struct Loading {
    pub(super) machine: Machine,
    pub(super) lost_markers: LostMarkers,
}

impl Replay for Loading {
    /// Without its newest record an id would go back to an earlier state: a transaction that was
    /// decided, and told to its client, would be decided again. The record is intact, so a version
    /// that understands it can go on.
    const UNREADABLE: Unreadable = Unreadable::Refuse;

    fn take(&mut self, header: &BatchHeader, record: &Record<'_>) -> Result<Taken, ContentError> {
        if header.is_control() {
            return Ok(Taken::Control);
        }
        let Some(key) = record.key else {
            return Ok(Taken::Skipped);
        };
        let decoded =
            TransactionRecord::decode(key, record.value).map_err(|problem| ContentError::Content {
                offset: record.offset,
                problem: problem.to_string(),
            })?;
        match decoded {
            None => Ok(Taken::Skipped),
            Some(record) => {
                self.lost_markers.note(&record);
                self.machine.apply(record);
                Ok(Taken::Applied)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

    use super::*;
    use crate::coordinator::replay::{Place, Replayed, replay_batches};
    use crate::time::Timestamp;
    use crate::transaction::state::TransactionState;

    /// To go on without the record could decide a transaction twice.
    #[test]
    fn an_intact_record_that_cannot_be_decoded_refuses_its_partition_with_file_and_position() {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let state = TransactionState::new(4_000, 60_000, Timestamp(17));
        let record = TransactionRecord {
            id: "payments".into(),
            state: Some(state),
        };
        record.encode(0, &mut key, &mut value).expect("a state");
        let batch_of = |value: &[u8]| {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(17, Some(&key), Some(value), &[]);
            builder.finish()
        };
        let place = Place {
            path: "__transaction_state-0/00.log".into(),
            position: 700,
        };
        let replay = |bytes: &[u8]| {
            let mut loading = Loading {
                machine: Machine::new(Arc::default()),
                lost_markers: LostMarkers::default(),
            };
            let mut replayed = Replayed::default();
            let stopped = replay_batches(bytes, &place, 0, &mut loading, &mut replayed);
            stopped.map(|_| replayed.records)
        };
        let whole = batch_of(&value);
        assert_eq!(replay(&whole).expect("understood"), 1);
        // The version of a value that does not exist.
        value[0] = 0x7F;
        let bytes = [whole.clone(), batch_of(&value)].concat();
        let error = replay(&bytes).expect_err("not understood").to_string();
        let expected = format!(
            "__transaction_state-0/00.log is corrupt at position {}: unreadable record at offset 0: ",
            700 + whole.len()
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}
