//! The records of `__consumer_offsets`: written by a machine, and read when it is replayed.

use std::sync::Arc;

use ottla_wire::coordinator_records::group_metadata::{GroupMetadataKey, GroupMetadataValue, MemberMetadata};
use ottla_wire::coordinator_records::legacy_offset_commit::LegacyOffsetCommitValue;
use ottla_wire::coordinator_records::offset_commit::{OffsetCommitKey, OffsetCommitValue};
use ottla_wire::primitives::{DecodeError, Reader, Uuid};

use crate::coordinator::batch::Encode;
use crate::time::Timestamp;

use super::consumer::record::ConsumerRecord;
use super::foreign::{CONSUMER_TYPES, ForeignKind};
use super::offsets::CommittedOffset;

/// Apache Kafka 4.3 writes version 3 although 4 exists: `GROUP_METADATA_VALUE_VERSION`.
const GROUP_VALUE_VERSION: i16 = 3;
const OFFSET_VALUE_VERSION: i16 = 4;
/// The only version with a separate expiry.
const OFFSET_VALUE_VERSION_WITH_EXPIRY: i16 = 1;

const LEGACY_OFFSET_TYPE: i16 = 0;
const OFFSET_TYPE: i16 = 1;
const GROUP_TYPE: i16 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord {
    /// A committed offset, or its tombstone.
    Offset {
        group: Arc<str>,
        topic: Arc<str>,
        partition: i32,
        value: Option<CommittedOffset>,
    },
    /// A classic group, or its tombstone.
    Group {
        group: Arc<str>,
        value: Option<Arc<StoredGroup>>,
    },
    /// A record of a consumer group (KIP-848), or its tombstone.
    Consumer { group: Arc<str>, record: ConsumerRecord },
    /// A record of a group of another protocol: present, or removed.
    Foreign {
        group: Arc<str>,
        key: Vec<u8>,
        is_present: bool,
    },
}

/// The state of a classic group that survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    pub protocol_type: Option<Arc<str>>,
    pub generation: i32,
    pub protocol: Option<Arc<str>>,
    pub leader: Option<Arc<str>>,
    pub state_timestamp: Option<Timestamp>,
    pub members: Vec<StoredMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMember {
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// The metadata of the elected protocol.
    pub subscription: Arc<[u8]>,
    pub assignment: Arc<[u8]>,
}

impl StoredGroup {
    /// Returns a group without members.
    pub fn empty(state_timestamp: Timestamp) -> StoredGroup {
        StoredGroup {
            protocol_type: None,
            generation: 0,
            protocol: None,
            leader: None,
            state_timestamp: Some(state_timestamp),
            members: Vec::new(),
        }
    }

    /// Returns an upper bound of the record's size: strings and bytes, and 64 for the lengths and
    /// numbers around them.
    pub fn size_bytes(&self) -> usize {
        let string = |value: &Option<Arc<str>>| value.as_ref().map_or(0, |value| value.len());
        let members: usize = self
            .members
            .iter()
            .map(|member| {
                64 + member.member_id.len()
                    + string(&member.group_instance_id)
                    + member.client_id.len()
                    + member.client_host.len()
                    + member.subscription.len()
                    + member.assignment.len()
            })
            .sum();
        64 + string(&self.protocol_type) + string(&self.protocol) + string(&self.leader) + members
    }
}

impl GroupRecord {
    pub fn group(&self) -> &Arc<str> {
        match self {
            GroupRecord::Offset { group, .. }
            | GroupRecord::Group { group, .. }
            | GroupRecord::Consumer { group, .. }
            | GroupRecord::Foreign { group, .. } => group,
        }
    }

    /// Encodes key and value as Apache Kafka 4.3 does; no value is a tombstone. Both buffers are
    /// replaced.
    pub fn encode<'b>(&self, key: &mut Vec<u8>, value: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        key.clear();
        value.clear();
        match self {
            GroupRecord::Offset {
                group,
                topic,
                partition,
                value: committed,
            } => {
                OffsetCommitKey {
                    group,
                    topic,
                    partition: *partition,
                }
                .encode_key(key);
                encode_offset(committed.as_ref()?, value);
            }
            GroupRecord::Group { group, value: stored } => {
                GroupMetadataKey { group }.encode_key(key);
                encode_group(stored.as_ref()?, value);
            }
            GroupRecord::Consumer { group, record } => return record.encode(group, key, value),
            GroupRecord::Foreign {
                key: foreign_key,
                is_present,
                ..
            } => {
                assert!(!is_present, "foreign records are only ever removed");
                key.extend_from_slice(foreign_key);
                return None;
            }
        }
        Some(value)
    }

    /// Decodes a record; `None`: an unknown record type, to be skipped.
    ///
    /// - Errors: bytes or a value version that cannot be read. The partition then has no
    ///   coordinator: going on would lose the record's contents.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Option<GroupRecord>, DecodeError> {
        let mut reader = Reader::new(key);
        let record_type = reader.i16()?;
        let record = match record_type {
            LEGACY_OFFSET_TYPE | OFFSET_TYPE => {
                let OffsetCommitKey {
                    group,
                    topic,
                    partition,
                } = OffsetCommitKey::decode(&mut reader, 0)?;
                let value = match value {
                    None => None,
                    Some(value) if record_type == OFFSET_TYPE => Some(decode_offset(value)?),
                    Some(value) => Some(decode_legacy_offset(value)?),
                };
                GroupRecord::Offset {
                    group: group.into(),
                    topic: topic.into(),
                    partition,
                    value,
                }
            }
            GROUP_TYPE => {
                let group = GroupMetadataKey::decode(&mut reader, 0)?.group.into();
                let value = value.map(decode_group).transpose()?.map(Arc::new);
                GroupRecord::Group { group, value }
            }
            _ if CONSUMER_TYPES.contains(&record_type) => match ConsumerRecord::decode(key, value)? {
                Some((group, record)) => GroupRecord::Consumer { group, record },
                None => return Ok(None),
            },
            _ if ForeignKind::of_record_type(record_type).is_some() => {
                // All their keys begin with the group id.
                let group = reader.string(false)?.into();
                GroupRecord::Foreign {
                    group,
                    key: key.to_vec(),
                    is_present: value.is_some(),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }
}

impl Encode for GroupRecord {
    fn encode<'b>(&self, key: &mut Vec<u8>, value: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        GroupRecord::encode(self, key, value)
    }
}

fn encode_offset(committed: &CommittedOffset, buffer: &mut Vec<u8>) {
    let value = OffsetCommitValue {
        offset: committed.offset,
        leader_epoch: committed.leader_epoch,
        metadata: &committed.metadata,
        commit_timestamp: committed.commit_timestamp.0,
        expire_timestamp: committed.expire_timestamp.map_or(-1, |timestamp| timestamp.0),
        topic_id: committed.topic_id,
    };
    let version = match committed.expire_timestamp {
        Some(_) => OFFSET_VALUE_VERSION_WITH_EXPIRY,
        None => OFFSET_VALUE_VERSION,
    };
    value.encode_value(buffer, version);
}

fn decode_offset(bytes: &[u8]) -> Result<CommittedOffset, DecodeError> {
    let value = OffsetCommitValue::decode_value(bytes)?;
    Ok(CommittedOffset {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.into(),
        commit_timestamp: Timestamp(value.commit_timestamp),
        expire_timestamp: (value.expire_timestamp >= 0).then_some(Timestamp(value.expire_timestamp)),
        topic_id: value.topic_id,
    })
}

fn decode_legacy_offset(bytes: &[u8]) -> Result<CommittedOffset, DecodeError> {
    let value = LegacyOffsetCommitValue::decode_value(bytes)?;
    Ok(CommittedOffset {
        offset: value.offset,
        leader_epoch: -1,
        metadata: value.metadata.into(),
        commit_timestamp: Timestamp(value.commit_timestamp),
        expire_timestamp: None,
        topic_id: Uuid::ZERO,
    })
}

fn encode_group(stored: &StoredGroup, buffer: &mut Vec<u8>) {
    let value = GroupMetadataValue {
        protocol_type: stored.protocol_type.as_deref().unwrap_or(""),
        generation: stored.generation,
        protocol: stored.protocol.as_deref(),
        leader: stored.leader.as_deref(),
        current_state_timestamp: stored.state_timestamp.map_or(-1, |timestamp| timestamp.0),
        members: stored
            .members
            .iter()
            .map(|member| MemberMetadata {
                member_id: &member.member_id,
                group_instance_id: member.group_instance_id.as_deref(),
                client_id: &member.client_id,
                client_host: &member.client_host,
                rebalance_timeout: member.rebalance_timeout_ms,
                session_timeout: member.session_timeout_ms,
                subscription: &member.subscription,
                assignment: &member.assignment,
            })
            .collect(),
    };
    value.encode_value(buffer, GROUP_VALUE_VERSION);
}

fn decode_group(bytes: &[u8]) -> Result<StoredGroup, DecodeError> {
    let value = GroupMetadataValue::decode_value(bytes)?;
    let members = value.members.iter().map(|member| StoredMember {
        member_id: member.member_id.into(),
        group_instance_id: member.group_instance_id.map(Arc::from),
        client_id: member.client_id.into(),
        client_host: member.client_host.into(),
        // Version 0 had one timeout for both.
        rebalance_timeout_ms: match member.rebalance_timeout {
            -1 => member.session_timeout,
            rebalance_timeout_ms => rebalance_timeout_ms,
        },
        session_timeout_ms: member.session_timeout,
        subscription: member.subscription.into(),
        assignment: member.assignment.into(),
    });
    Ok(StoredGroup {
        protocol_type: Some(value.protocol_type)
            .filter(|name| !name.is_empty())
            .map(Arc::from),
        generation: value.generation,
        protocol: value.protocol.map(Arc::from),
        leader: value.leader.map(Arc::from),
        state_timestamp: (value.current_state_timestamp >= 0)
            .then_some(Timestamp(value.current_state_timestamp)),
        members: members.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_round_trip(record: GroupRecord) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let value = record.encode(&mut key, &mut value).map(<[u8]>::to_vec);
        assert_eq!(GroupRecord::decode(&key, value.as_deref()), Ok(Some(record)));
        (key, value)
    }

    fn committed() -> CommittedOffset {
        CommittedOffset {
            offset: 42,
            leader_epoch: 7,
            metadata: "m".into(),
            commit_timestamp: Timestamp(1_700_000_000_000),
            expire_timestamp: None,
            topic_id: Uuid([9; 16]),
        }
    }

    fn offset(value: Option<CommittedOffset>) -> GroupRecord {
        GroupRecord::Offset {
            group: "g".into(),
            topic: "t".into(),
            partition: 3,
            value,
        }
    }

    #[test]
    fn an_offset_is_written_as_version_4() {
        let (key, value) = check_round_trip(offset(Some(committed())));
        assert_eq!(key, b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
        assert_eq!(value.unwrap()[..2], [0, 4]);
    }

    #[test]
    fn an_offset_with_its_own_expiry_is_written_as_version_1() {
        let value = CommittedOffset {
            expire_timestamp: Some(Timestamp(5)),
            leader_epoch: -1,
            topic_id: Uuid::ZERO,
            ..committed()
        };
        assert_eq!(check_round_trip(offset(Some(value))).1.unwrap()[..2], [0, 1]);
    }

    #[test]
    fn a_tombstone_has_no_value() {
        assert_eq!(check_round_trip(offset(None)).1, None);
        assert_eq!(
            check_round_trip(GroupRecord::Group {
                group: "g".into(),
                value: None
            })
            .1,
            None
        );
    }

    #[test]
    fn a_group_is_written_as_version_3() {
        let member = StoredMember {
            member_id: "m".into(),
            group_instance_id: Some("i".into()),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
            subscription: b"s"[..].into(),
            assignment: b"a"[..].into(),
        };
        let stored = StoredGroup {
            protocol_type: Some("consumer".into()),
            generation: 3,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            state_timestamp: Some(Timestamp(1)),
            members: vec![member],
        };
        let (_, value) = check_round_trip(GroupRecord::Group {
            group: "g".into(),
            value: Some(Arc::new(stored.clone())),
        });
        let value = value.unwrap();
        assert_eq!(value[..2], [0, 3]);
        assert!(value.len() <= stored.size_bytes());
    }

    /// It decides whether a rebalance fits into a batch.
    #[test]
    fn the_size_of_a_group_counts_everything_that_clients_chose() {
        let text = |bytes: usize| -> Arc<str> { "x".repeat(bytes).into() };
        let member = |bytes| StoredMember {
            member_id: text(bytes),
            group_instance_id: Some(text(2 * bytes)),
            client_id: text(4 * bytes),
            client_host: text(8 * bytes),
            rebalance_timeout_ms: 0,
            session_timeout_ms: 0,
            subscription: vec![0; 16 * bytes].into(),
            assignment: vec![0; 32 * bytes].into(),
        };
        let stored = StoredGroup {
            protocol_type: Some(text(100)),
            protocol: Some(text(200)),
            leader: Some(text(400)),
            members: vec![member(1), member(1_000)],
            ..StoredGroup::empty(Timestamp(0))
        };
        assert_eq!(stored.size_bytes(), 64 + 700 + 2 * 64 + 63 * 1_001);
    }

    #[test]
    fn a_timestamp_of_0_is_one() {
        let value = CommittedOffset {
            expire_timestamp: Some(Timestamp(0)),
            leader_epoch: -1,
            topic_id: Uuid::ZERO,
            ..committed()
        };
        check_round_trip(offset(Some(value)));
        check_round_trip(GroupRecord::Group {
            group: "g".into(),
            value: Some(Arc::new(StoredGroup::empty(Timestamp(0)))),
        });
    }

    #[test]
    fn an_unknown_record_type_is_skipped_and_an_unknown_value_version_is_not() {
        assert_eq!(GroupRecord::decode(b"\x01\0whatever", Some(b"x")), Ok(None));
        let unknown = Err(DecodeError::UnsupportedVersion { version: 9 });
        assert_eq!(GroupRecord::decode(b"\0\x02\0\x01g", Some(b"\0\x09")), unknown);
        assert_eq!(
            GroupRecord::decode(b"\0\x01\0\x01g\0\x01t\0\0\0\x03", Some(b"\0\x09")),
            unknown
        );
    }

    #[test]
    fn records_of_other_protocols_are_kept_by_their_key() {
        let record = GroupRecord::decode(b"\0\x0b\0\x01g", Some(b"x"))
            .unwrap()
            .unwrap();
        assert_eq!(
            record,
            GroupRecord::Foreign {
                group: "g".into(),
                key: b"\0\x0b\0\x01g".to_vec(),
                is_present: true
            }
        );
    }
}
