//! What a group machine takes from its partition of `__consumer_offsets`.

use ottla_wire::records::batch::BatchHeader;
use ottla_wire::records::control::{ControlRecord, TransactionResult};
use ottla_wire::records::record::Record;

use super::machine::Machine;
use super::record::GroupRecord;
use crate::coordinator::replay::{ContentError, Replay, Taken, Unreadable};

impl Replay for Machine {
    /// A lost record concerns one group; without a coordinator none could go on.
    const UNREADABLE: Unreadable = Unreadable::Skip;

    fn take(&mut self, header: &BatchHeader, record: &Record<'_>) -> Result<Taken, ContentError> {
        let offset = header.base_offset;
        if header.is_control() {
            let control =
                ControlRecord::decode(record).map_err(|error| ContentError::Control { offset, error })?;
            if let ControlRecord::EndTransaction { result, .. } = control {
                self.apply_marker(header.producer_id, result == TransactionResult::Commit);
            }
            return Ok(Taken::Control);
        }
        let Some(key) = record.key else {
            return Ok(Taken::Skipped);
        };
        let decoded = GroupRecord::decode(key, record.value).map_err(|error| ContentError::Content {
            offset: record.offset,
            problem: error.to_string(),
        })?;
        match decoded {
            None => return Ok(Taken::Skipped),
            Some(record) if header.is_transactional() => {
                self.apply_transactional(header.producer_id, record);
            }
            Some(record) => self.apply(&record),
        }
        Ok(Taken::Applied)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_wire::error_code::ErrorCode;

    use crate::group::config::GroupConfig;
    use crate::group::reply::GroupReply;
    use crate::group::request::{GroupRequest, ListRequest, MemberRequest, OffsetFetchRequest, Ticket};
    use crate::time::Now;
    use crate::time::{Moment, Timestamp};

    use ottla_wire::records::batch::{Batch, CRC_START, batches};
    use ottla_wire::records::crc32c;

    use super::*;
    use crate::coordinator::replay::{LoadError, Place, Replayed, Stopped, replay_batches};

    /// For its origin see `golden/README.md`.
    const KAFKA_SEGMENT: &[u8] = include_bytes!("golden/kafka-4.3.0-consumer-offsets.log");
    const NOW: Now = Now {
        moment: Moment::from_micros(1),
        timestamp: Timestamp(1_795_000_000_000),
    };

    fn load(bytes: &[u8]) -> Result<(Machine, Replayed), LoadError> {
        let mut machine = Machine::new(Arc::new(GroupConfig::default()), 0);
        let mut replayed = Replayed::default();
        replay(bytes, &mut machine, &mut replayed)?;
        machine.arm(NOW);
        Ok((machine, replayed))
    }

    /// Replays a file's bytes from position 700 on.
    fn replay(bytes: &[u8], machine: &mut Machine, replayed: &mut Replayed) -> Result<Stopped, LoadError> {
        let place = Place {
            path: "__consumer_offsets-0/00.log".into(),
            position: 700,
        };
        replay_batches(bytes, &place, 0, machine, replayed)
    }

    fn ask(machine: &mut Machine, request: GroupRequest<'_>) -> GroupReply {
        machine.handle(NOW, Ticket(0), request).replies.remove(0).1
    }

    fn check_offsets(group_id: &str, expected: &[(&str, i32, i64, i32, &str)]) {
        let (mut machine, _) = load(KAFKA_SEGMENT).unwrap();
        let fetch = OffsetFetchRequest {
            group_id,
            member: None,
            topics: None,
            require_stable: true,
        };
        let GroupReply::OffsetFetch(topics) = ask(&mut machine, GroupRequest::OffsetFetch(fetch)) else {
            panic!()
        };
        let found: Vec<_> = topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(move |found| (topic, found)))
            .map(|(topic, found)| {
                assert_eq!(found.error, ErrorCode::None);
                (
                    &*topic.name,
                    found.partition,
                    found.offset,
                    found.leader_epoch,
                    &*found.metadata,
                )
            })
            .collect();
        assert_eq!(found, expected, "{group_id}");
    }

    #[test]
    fn offsets_written_by_apache_kafka_are_read_as_apache_kafka_reads_them() {
        check_offsets(
            "classic-left",
            &[("orders", 0, 3, 0, "note"), ("orders", 1, 4, -1, "")],
        );
        check_offsets("classic-static", &[("orders", 0, 5, -1, "")]);
        check_offsets("simple", &[("orders", 1, 2, -1, "")]);
        check_offsets("kip848-left", &[("orders", 0, 1, -1, "")]);
        check_offsets("kip848-member", &[("orders", 0, 2, -1, "")]);
        check_offsets("transactional", &[("orders", 0, 4, -1, "")]);
        check_offsets("deleted", &[]);
    }

    #[test]
    fn groups_written_by_apache_kafka_are_found_in_their_state() {
        let (mut machine, replayed) = load(KAFKA_SEGMENT).unwrap();
        assert_eq!(replayed.skipped, 0);
        let GroupReply::List(groups) = ask(&mut machine, GroupRequest::List(ListRequest::default())) else {
            panic!()
        };
        let found: Vec<_> = groups
            .iter()
            .map(|group| format!("{} {} {}", group.group_id, group.state, group.group_type))
            .collect();
        let expected = [
            "classic-left Empty classic",
            "classic-static Stable classic",
            "kip848-left Empty consumer",
            "kip848-member Stable consumer",
            "simple Empty classic",
            "transactional Empty classic",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_static_member_of_apache_kafka_continues_to_send_heartbeats() {
        let (mut machine, _) = load(KAFKA_SEGMENT).unwrap();
        let GroupReply::Describe(groups) = ask(&mut machine, GroupRequest::Describe(vec!["classic-static"]))
        else {
            panic!()
        };
        let member = &groups[0].members[0];
        assert_eq!(member.group_instance_id.as_deref(), Some("instance-1"));
        assert_eq!(
            (&*groups[0].protocol, &*member.client_host),
            ("range", "/127.0.0.1")
        );
        let heartbeat = MemberRequest {
            group_id: "classic-static",
            generation_id: 1,
            member_id: &member.member_id,
            group_instance_id: Some("instance-1"),
        };
        assert_eq!(
            ask(&mut machine, GroupRequest::Heartbeat(heartbeat)),
            GroupReply::Heartbeat(ErrorCode::None)
        );
    }

    #[test]
    fn records_are_written_byte_for_byte_as_apache_kafka_writes_them() {
        let mut compared = 0;
        for batch in batches(KAFKA_SEGMENT).map(Result::unwrap) {
            for record in batch
                .records()
                .map(Result::unwrap)
                .filter(|_| !batch.header.is_control())
            {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                match GroupRecord::decode(record.key.unwrap(), record.value)
                    .unwrap()
                    .unwrap()
                {
                    GroupRecord::Foreign { .. } => continue,
                    classic => assert_eq!(classic.encode(&mut key, &mut value), record.value, "{classic:?}"),
                }
                assert_eq!(Some(&key[..]), record.key);
                compared += 1;
            }
        }
        assert!(compared >= 27, "{compared}");
    }

    #[test]
    fn a_damaged_batch_ends_the_replay_of_its_region_and_is_reported() {
        let mut damaged = KAFKA_SEGMENT.to_vec();
        let second = Batch::parse(KAFKA_SEGMENT).unwrap().bytes.len();
        damaged[second + 100] ^= 1;
        let (_, replayed) = load(&damaged).unwrap();
        assert_eq!(replayed.records, 1);
        let mut machine = Machine::new(Arc::new(GroupConfig::default()), 0);
        let stopped = replay(&damaged, &mut machine, &mut Replayed::default()).unwrap();
        assert_eq!(stopped.offset, 1);
        let damage = stopped.damage.unwrap().to_string();
        let (position, reason) = (700 + second, "batch at offset 1: batch says its checksum is");
        let expected = format!("__consumer_offsets-0/00.log is corrupt at position {position}: {reason}");
        assert!(damage.starts_with(&expected), "{damage}");
    }

    /// One such record took the coordinator from all groups of its partition.
    #[test]
    fn an_intact_record_that_cannot_be_decoded_is_lost_alone_and_reported() {
        let (_, whole) = load(KAFKA_SEGMENT).unwrap();
        let mut bytes = KAFKA_SEGMENT.to_vec();
        let first = Batch::parse(KAFKA_SEGMENT).unwrap();
        let (header, batch_bytes) = (first.header, first.bytes.len());
        let value = first.records().next().unwrap().unwrap().value.unwrap();
        let at = batch_bytes - (first.bytes.as_ptr_range().end as usize - value.as_ptr() as usize);
        // The version of a value that does not exist.
        bytes[at] = 0x7F;
        let checksum = crc32c::checksum(&bytes[CRC_START..batch_bytes]);
        bytes[CRC_START - 4..CRC_START].copy_from_slice(&checksum.to_be_bytes());
        let (_, replayed) = load(&bytes).unwrap();
        assert_eq!(replayed.records, whole.records - 1);
        let [damage] = &replayed.damages[..] else {
            panic!("{:?}", replayed.damages)
        };
        let offset = header.base_offset;
        let expected = format!(
            "__consumer_offsets-0/00.log is corrupt at position 700: unreadable record at offset {offset}: "
        );
        assert!(damage.to_string().starts_with(&expected), "{damage}");
    }
}
