//! Records of `__transaction_state`, as Apache Kafka writes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::coordinator_records::transaction_log::{
    PartitionsSchema, TransactionLogKey, TransactionLogValue,
};
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::records::batch::NO_PRODUCER_EPOCH;

use super::state::{Status, TransactionState};
use crate::time::Timestamp;

/// The new state of a transactional id; `None`: it has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    pub id: Arc<str>,
    pub state: Option<TransactionState>,
}

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordProblem {
    Malformed(DecodeError),
    /// Kafka never writes it.
    UnknownStatus(i8),
}

impl std::fmt::Display for RecordProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordProblem::Malformed(error) => write!(f, "{error}"),
            RecordProblem::UnknownStatus(code) => write!(f, "transaction status {code} is not known"),
        }
    }
}

impl From<DecodeError> for RecordProblem {
    fn from(error: DecodeError) -> RecordProblem {
        RecordProblem::Malformed(error)
    }
}

impl TransactionRecord {
    /// Encodes key and value; returns the value, `None` for a tombstone.
    ///
    /// - `value_version`: 1 where the finalized transaction version is at least 1 (KIP-890).
    pub fn encode<'b>(
        &self,
        value_version: i16,
        key: &mut Vec<u8>,
        value: &'b mut Vec<u8>,
    ) -> Option<&'b [u8]> {
        key.clear();
        value.clear();
        let named = TransactionLogKey {
            transactional_id: &self.id,
        };
        named.encode_key(key);
        let state = self.state.as_ref()?;
        let is_tagged = value_version >= 1;
        let tag = |of: i64| if is_tagged { of } else { -1 };
        let log_value = TransactionLogValue {
            producer_id: state.producer_id,
            previous_producer_id: tag(state.previous_producer_id),
            next_producer_id: tag(state.next_producer_id),
            producer_epoch: state.producer_epoch,
            next_producer_epoch: NO_PRODUCER_EPOCH,
            transaction_timeout_ms: state.timeout_ms,
            transaction_status: state.status as i8,
            transaction_partitions: (state.status != Status::Empty).then(|| partitions(state)),
            transaction_last_update_timestamp_ms: state.updated.0,
            transaction_start_timestamp_ms: state.started.0,
            client_transaction_version: if is_tagged { state.client_version } else { 0 },
        };
        log_value.encode_value(value, value_version);
        Some(value)
    }

    /// Decodes a record; `None`: its key is of an unknown kind.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<TransactionRecord>, RecordProblem> {
        let mut reader = Reader::new(key);
        let version = reader.i16()?;
        if version != TransactionLogKey::RECORD_TYPE {
            return Ok(None);
        }
        let id = TransactionLogKey::decode(&mut reader, version)?
            .transactional_id
            .into();
        let state = value.map(state).transpose()?;
        Ok(Some(TransactionRecord { id, state }))
    }
}

/// Partitions by topic, as they are written.
fn partitions(state: &TransactionState) -> Vec<PartitionsSchema<'_>> {
    let mut topics: Vec<PartitionsSchema<'_>> = Vec::new();
    for (topic, partition) in &state.partitions {
        match topics.last_mut() {
            Some(last) if last.topic == &**topic => last.partition_ids.push(*partition),
            _ => topics.push(PartitionsSchema {
                topic,
                partition_ids: vec![*partition],
            }),
        }
    }
    topics
}

fn state(value: &[u8]) -> Result<TransactionState, RecordProblem> {
    let value = TransactionLogValue::decode_value(value)?;
    let status = Status::from_code(value.transaction_status);
    let mut partitions = BTreeSet::new();
    for topic in value.transaction_partitions.iter().flatten() {
        let name: Arc<str> = topic.topic.into();
        partitions.extend(topic.partition_ids.iter().map(|index| (name.clone(), *index)));
    }
    Ok(TransactionState {
        producer_id: value.producer_id,
        previous_producer_id: value.previous_producer_id,
        next_producer_id: value.next_producer_id,
        producer_epoch: value.producer_epoch,
        last_producer_epoch: NO_PRODUCER_EPOCH,
        timeout_ms: value.transaction_timeout_ms,
        status: status.ok_or(RecordProblem::UnknownStatus(value.transaction_status))?,
        partitions,
        started: Timestamp(value.transaction_start_timestamp_ms),
        updated: Timestamp(value.transaction_last_update_timestamp_ms),
        client_version: value.client_transaction_version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ongoing() -> TransactionState {
        let mut state = TransactionState::new(4_000, 60_000, Timestamp(17));
        state.status = Status::Ongoing;
        state.partitions = [("b".into(), 1), ("a".into(), 3), ("a".into(), 1)].into();
        state.started = Timestamp(18);
        state.client_version = 2;
        state.previous_producer_id = 3_999;
        state
    }

    fn round_trip(state: Option<TransactionState>, version: i16) -> TransactionRecord {
        let record = TransactionRecord {
            id: "billing".into(),
            state,
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let value = record.encode(version, &mut key, &mut value).map(<[u8]>::to_vec);
        TransactionRecord::decode(&key, value.as_deref())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_state_comes_back_as_it_was_written() {
        assert_eq!(round_trip(Some(ongoing()), 1).state, Some(ongoing()));
        assert_eq!(round_trip(None, 1).state, None);
        let old = round_trip(Some(ongoing()), 0).state.unwrap();
        assert_eq!((old.client_version, old.previous_producer_id), (0, -1));
        assert_eq!(old.partitions, ongoing().partitions);
    }

    #[test]
    fn an_empty_state_has_no_list_of_partitions() {
        // Apache Kafka 4.3.0: null if and only if Empty.
        let record = TransactionRecord {
            id: "x".into(),
            state: Some(TransactionState::new(1, 2, Timestamp(3))),
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let value = record.encode(1, &mut key, &mut value).unwrap();
        assert_eq!(key, [0, 0, 0, 1, b'x']);
        let decoded = TransactionLogValue::decode_value(value).unwrap();
        assert_eq!(decoded.transaction_partitions, None);
    }

    #[test]
    fn a_status_that_is_never_written_and_a_cut_value_are_problems() {
        let record = TransactionRecord {
            id: "x".into(),
            state: Some(ongoing()),
        };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        record.encode(1, &mut key, &mut value);
        for length in 0..value.len() {
            assert!(
                TransactionRecord::decode(&key, Some(&value[..length])).is_err(),
                "{length}"
            );
        }
        // Version, producer id, epoch and timeout come before it.
        value[2 + 8 + 2 + 4] = 6;
        let problem = TransactionRecord::decode(&key, Some(&value));
        assert_eq!(problem, Err(RecordProblem::UnknownStatus(6)));
        assert_eq!(TransactionRecord::decode(&[0, 9], None), Ok(None));
    }
}
