//! Control records, which brokers and controllers write between data records. Consumers skip them.
//!
//! The key has the type, the value is a versioned message. Control records are in batches of their
//! own, with the control bit set.

use std::fmt;

use super::builder::{BatchBuilder, BatchOptions};
use super::record::Record;
use crate::messages::end_txn_marker::EndTxnMarker;
use crate::messages::k_raft_version_record::KRaftVersionRecord;
use crate::messages::leader_change_message::{LeaderChangeMessage, Voter};
use crate::messages::snapshot_footer_record::SnapshotFooterRecord;
use crate::messages::snapshot_header_record::SnapshotHeaderRecord;
use crate::messages::voters_record::VotersRecord;
use crate::primitives::{DecodeError, Reader, Uuid, put_i16};

const KEY_VERSION: i16 = 0;

const ABORT: i16 = 0;
const COMMIT: i16 = 1;
const LEADER_CHANGE: i16 = 2;
const SNAPSHOT_HEADER: i16 = 3;
const SNAPSHOT_FOOTER: i16 = 4;
const KRAFT_VERSION: i16 = 5;
const VOTERS: i16 = 6;

/// The end of a producer's transaction in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    Abort,
    Commit,
}

/// One control record.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord<'a> {
    /// Ends the transaction of the batch's producer id (KIP-98).
    EndTransaction {
        result: TransactionResult,
        coordinator_epoch: i32,
    },
    /// The first record of a new leader of the metadata log (KIP-595).
    LeaderChange(LeaderChangeMessage),
    /// The first record of a snapshot (KIP-630).
    SnapshotHeader { last_contained_log_timestamp: i64 },
    /// The last record of a snapshot (KIP-630).
    SnapshotFooter,
    /// Raises `kraft.version` (KIP-853).
    KRaftVersion { kraft_version: i16 },
    /// The voter set from here on (KIP-853).
    Voters(VotersRecord<'a>),
    /// An unknown, newer type. Kafka ignores such records.
    Unknown { record_type: i16 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// No key, or one shorter than four bytes.
    Key,
    /// No value where the type needs one.
    MissingValue {
        record_type: i16,
    },
    Value {
        record_type: i16,
        error: DecodeError,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Key => f.write_str("control record without a type in its key"),
            ControlError::MissingValue { record_type } => {
                write!(f, "control record of type {record_type} without a value")
            }
            ControlError::Value { record_type, error } => {
                write!(f, "control record of type {record_type}: {error}")
            }
        }
    }
}

impl std::error::Error for ControlError {}

impl<'a> ControlRecord<'a> {
    /// Reads a record of a batch with the control bit.
    ///
    /// - Shape: a newer version of a key or value is read as the newest known one, as Kafka does.
    pub fn decode(record: &Record<'a>) -> Result<ControlRecord<'a>, ControlError> {
        let record_type = decode_type(record.key)?;
        if !(ABORT..=VOTERS).contains(&record_type) {
            return Ok(ControlRecord::Unknown { record_type });
        }
        let value = record.value.ok_or(ControlError::MissingValue { record_type })?;
        Self::decode_value(record_type, value).map_err(|error| ControlError::Value { record_type, error })
    }

    fn decode_value(record_type: i16, value: &'a [u8]) -> Result<ControlRecord<'a>, DecodeError> {
        let version = Reader::new(value).i16()?.max(0);
        let mut reader = Reader::new(value);
        Ok(match record_type {
            ABORT | COMMIT => {
                // Only this value has its version as a prefix; in the others it is the message's
                // own first field.
                reader.i16()?;
                let marker = EndTxnMarker::decode(&mut reader, version.min(EndTxnMarker::MAX_VERSION))?;
                let result = if record_type == COMMIT {
                    TransactionResult::Commit
                } else {
                    TransactionResult::Abort
                };
                ControlRecord::EndTransaction {
                    result,
                    coordinator_epoch: marker.coordinator_epoch,
                }
            }
            LEADER_CHANGE => ControlRecord::LeaderChange(LeaderChangeMessage::decode(
                &mut reader,
                version.min(LeaderChangeMessage::MAX_VERSION),
            )?),
            SNAPSHOT_HEADER => {
                let header = SnapshotHeaderRecord::decode(&mut reader, SnapshotHeaderRecord::MAX_VERSION)?;
                let last_contained_log_timestamp = header.last_contained_log_timestamp;
                ControlRecord::SnapshotHeader {
                    last_contained_log_timestamp,
                }
            }
            SNAPSHOT_FOOTER => {
                SnapshotFooterRecord::decode(&mut reader, SnapshotFooterRecord::MAX_VERSION)?;
                ControlRecord::SnapshotFooter
            }
            KRAFT_VERSION => {
                let record = KRaftVersionRecord::decode(&mut reader, KRaftVersionRecord::MAX_VERSION)?;
                ControlRecord::KRaftVersion {
                    kraft_version: record.k_raft_version,
                }
            }
            _ => ControlRecord::Voters(VotersRecord::decode(&mut reader, VotersRecord::MAX_VERSION)?),
        })
    }

    /// The type number in the record's key.
    pub fn record_type(&self) -> i16 {
        match self {
            ControlRecord::EndTransaction {
                result: TransactionResult::Abort,
                ..
            } => ABORT,
            ControlRecord::EndTransaction {
                result: TransactionResult::Commit,
                ..
            } => COMMIT,
            ControlRecord::LeaderChange(_) => LEADER_CHANGE,
            ControlRecord::SnapshotHeader { .. } => SNAPSHOT_HEADER,
            ControlRecord::SnapshotFooter => SNAPSHOT_FOOTER,
            ControlRecord::KRaftVersion { .. } => KRAFT_VERSION,
            ControlRecord::Voters(_) => VOTERS,
            ControlRecord::Unknown { record_type } => *record_type,
        }
    }

    /// A leader change in version 0, the only one that Kafka 4.3 writes; it refuses to start on
    /// version
    /// 1.
    pub fn leader_change(
        leader_id: i32,
        voter_ids: &[i32],
        granting_voter_ids: &[i32],
    ) -> ControlRecord<'static> {
        let voters = |ids: &[i32]| {
            ids.iter()
                .map(|&voter_id| Voter {
                    voter_id,
                    voter_directory_id: Uuid::ZERO,
                })
                .collect()
        };
        ControlRecord::LeaderChange(LeaderChangeMessage {
            version: 0,
            leader_id,
            voters: voters(voter_ids),
            granting_voters: voters(granting_voter_ids),
        })
    }

    fn encode_value(&self) -> Vec<u8> {
        let mut value = Vec::new();
        match self {
            ControlRecord::EndTransaction {
                coordinator_epoch, ..
            } => {
                put_i16(&mut value, EndTxnMarker::MAX_VERSION);
                let marker = EndTxnMarker {
                    coordinator_epoch: *coordinator_epoch,
                };
                marker.encode(&mut value, EndTxnMarker::MAX_VERSION);
            }
            ControlRecord::LeaderChange(message) => message.encode(&mut value, message.version),
            ControlRecord::SnapshotHeader {
                last_contained_log_timestamp,
            } => {
                let last_contained_log_timestamp = *last_contained_log_timestamp;
                SnapshotHeaderRecord {
                    version: 0,
                    last_contained_log_timestamp,
                }
                .encode(&mut value, 0);
            }
            ControlRecord::SnapshotFooter => SnapshotFooterRecord { version: 0 }.encode(&mut value, 0),
            ControlRecord::KRaftVersion { kraft_version } => {
                KRaftVersionRecord {
                    version: 0,
                    k_raft_version: *kraft_version,
                }
                .encode(&mut value, 0);
            }
            ControlRecord::Voters(record) => record.encode(&mut value, VotersRecord::MAX_VERSION),
            ControlRecord::Unknown { .. } => {}
        }
        value
    }
}

fn decode_type(key: Option<&[u8]>) -> Result<i16, ControlError> {
    let bytes = key
        .and_then(|key| key.first_chunk::<4>())
        .ok_or(ControlError::Key)?;
    Ok(i16::from_be_bytes([bytes[2], bytes[3]]))
}

/// Builds a batch of control records.
///
/// - Shape: `options` has its offset and producer; the control bit is always set.
pub fn control_batch(options: BatchOptions, timestamp: i64, records: &[ControlRecord<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        is_control: true,
        ..options
    });
    for record in records {
        let mut key = Vec::with_capacity(4);
        put_i16(&mut key, KEY_VERSION);
        put_i16(&mut key, record.record_type());
        builder.append(timestamp, Some(&key), Some(&record.encode_value()), &[]);
    }
    builder.finish()
}

/// The batch that ends a transaction in one partition, which a leader appends for WriteTxnMarkers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionMarker {
    pub producer_id: i64,
    /// With transaction version 2 the coordinator has already raised it (KIP-890).
    pub producer_epoch: i16,
    pub result: TransactionResult,
    pub coordinator_epoch: i32,
}

impl TransactionMarker {
    /// - Units: `timestamp` in milliseconds since 1970.
    pub fn to_batch(self, base_offset: i64, leader_epoch: i32, timestamp: i64) -> Vec<u8> {
        let options = BatchOptions {
            base_offset,
            leader_epoch,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            is_transactional: true,
            ..BatchOptions::default()
        };
        let (result, coordinator_epoch) = (self.result, self.coordinator_epoch);
        control_batch(
            options,
            timestamp,
            &[ControlRecord::EndTransaction {
                result,
                coordinator_epoch,
            }],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::voters_record;
    use crate::records::batch::{Batch, NO_SEQUENCE};
    use crate::records::record::Headers;

    fn all() -> Vec<ControlRecord<'static>> {
        let voters = VotersRecord {
            version: 0,
            voters: vec![voters_record::Voter {
                voter_id: 1,
                voter_directory_id: Uuid([7; 16]),
                endpoints: vec![voters_record::Endpoint {
                    name: "CONTROLLER",
                    host: "localhost",
                    port: 65_000,
                }],
                k_raft_version_feature: voters_record::KRaftVersionFeature {
                    min_supported_version: 0,
                    max_supported_version: 1,
                },
            }],
        };
        vec![
            ControlRecord::EndTransaction {
                result: TransactionResult::Abort,
                coordinator_epoch: 3,
            },
            ControlRecord::EndTransaction {
                result: TransactionResult::Commit,
                coordinator_epoch: -1,
            },
            ControlRecord::leader_change(1, &[1, 2], &[2]),
            ControlRecord::SnapshotHeader {
                last_contained_log_timestamp: 99,
            },
            ControlRecord::SnapshotFooter,
            ControlRecord::KRaftVersion { kraft_version: 1 },
            ControlRecord::Voters(voters),
        ]
    }

    #[test]
    fn every_type_survives_a_batch() {
        let bytes = control_batch(BatchOptions::default(), 5, &all());
        let batch = Batch::parse(&bytes).unwrap();
        batch.verify_checksum().unwrap();
        assert!(batch.header.is_control() && !batch.header.is_transactional());
        let records: Vec<_> = batch.records().map(|record| record.unwrap()).collect();
        let decoded: Vec<_> = records
            .iter()
            .map(|record| ControlRecord::decode(record).unwrap())
            .collect();
        assert_eq!(decoded, all());
    }

    #[test]
    fn a_marker_has_kafkas_layout() {
        let marker = TransactionMarker {
            producer_id: 77,
            producer_epoch: 6,
            result: TransactionResult::Commit,
            coordinator_epoch: 0x0102,
        };
        let bytes = marker.to_batch(1_000, 4, 12);
        let batch = Batch::parse(&bytes).unwrap();
        let header = batch.header;
        assert!(header.is_control() && header.is_transactional());
        assert_eq!(
            (header.producer_id, header.producer_epoch, header.base_sequence),
            (77, 6, NO_SEQUENCE)
        );
        let record = batch.records().next().unwrap().unwrap();
        assert_eq!(record.key.unwrap(), [0, 0, 0, 1]);
        assert_eq!(record.value.unwrap(), [0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn a_leader_change_has_no_directory_ids() {
        // Version 0, leader 1, two voters of four bytes and an empty tag section each, one granting
        // voter, tags.
        let expected = [
            0, 0, 0, 0, 0, 1, 3, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2, 0, 0,
        ];
        assert_eq!(
            ControlRecord::leader_change(1, &[1, 2], &[2]).encode_value(),
            expected
        );
    }

    fn decode(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<i16, ControlError> {
        let headers = Headers::default();
        let record = Record {
            offset: 0,
            timestamp: 0,
            attributes: 0,
            key,
            value,
            headers,
        };
        ControlRecord::decode(&record).map(|record| record.record_type())
    }

    #[test]
    fn unknown_types_are_told_apart_from_broken_ones() {
        assert_eq!(decode(Some(&[0, 0, 0, 99]), None), Ok(99));
        assert_eq!(decode(Some(&[0, 9, 0, 4]), Some(&[0, 0, 0])), Ok(SNAPSHOT_FOOTER));
        assert_eq!(decode(None, None), Err(ControlError::Key));
        assert_eq!(decode(Some(&[0, 0, 0]), None), Err(ControlError::Key));
        assert_eq!(
            decode(Some(&[0, 0, 0, 1]), None),
            Err(ControlError::MissingValue { record_type: 1 })
        );
        assert!(matches!(
            decode(Some(&[0, 0, 0, 6]), Some(&[0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x07])),
            Err(ControlError::Value { record_type: 6, .. })
        ));
    }
}
