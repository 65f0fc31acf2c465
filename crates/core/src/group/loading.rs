//! Replays a partition of `__consumer_offsets` into a machine.

use std::fmt;
use std::io;

use ottla_log::disk::DiskFile;
use ottla_log::{Bound, LogError, LogReader, Read, ReadError, ReadMode};
use ottla_wire::primitives::DecodeError;
use ottla_wire::records::batch::{Batch, BatchError, batches};
use ottla_wire::records::compression::{self, Codec, CompressionError};
use ottla_wire::records::control::{ControlError, ControlRecord, TransactionResult};
use ottla_wire::records::record::{RecordError, Records};

use super::machine::Machine;
use super::record::GroupRecord;

/// Bytes per read, like `offsets.load.buffer.size`; a larger batch is read whole.
const READ_BYTES: u32 = 5 * 1024 * 1024;
/// Bound of a decompressed batch: `message.max.bytes` bounds a coordinator's batch before
/// compression; this allows for any setting of it.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub records: u64,
    /// Records of unknown types. They stay in the log.
    pub skipped: u64,
    /// Damaged batches. Their contents are lost.
    pub damages: Vec<String>,
}

/// Replays the log below `bound`, skipping damaged batches. Waits for the disk.
pub fn replay(reader: &LogReader, bound: Bound, machine: &mut Machine) -> Result<Replayed, LoadError> {
    let mut replayed = Replayed::default();
    let mut offset = reader.start_offset();
    loop {
        let stopped = match reader.read(offset, READ_BYTES, true, bound, ReadMode::Blocking) {
            Ok(Read::Region(read)) => {
                let file = &*read.region.file;
                let buffer =
                    read_region(file, read.region.position, read.region.bytes).map_err(LoadError::Io)?;
                replay_batches(&buffer, offset, machine, &mut replayed)?
            }
            Ok(_) => return Ok(replayed),
            Err(ReadError::Log(damage @ LogError::Corrupt { .. })) => Stopped {
                offset,
                damage: Some(damage.to_string()),
            },
            Err(error) => return Err(LoadError::Read(error)),
        };
        offset = match stopped.damage {
            Some(damage) => {
                replayed.damages.push(damage);
                let behind = reader.next_batch_behind(stopped.offset);
                match behind.map_err(|error| LoadError::Read(ReadError::Log(error)))? {
                    Some(behind) => behind,
                    None => return Ok(replayed),
                }
            }
            // A region begins with a whole batch, so the replay always advances.
            None if stopped.offset > offset => stopped.offset,
            None => return Err(LoadError::Incomplete { offset }),
        };
    }
}

/// Where the replay of a region ended: after its last whole batch, or at a damaged one.
struct Stopped {
    offset: i64,
    damage: Option<String>,
}

fn read_region(file: &dyn DiskFile, position: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(buffer)
}

/// Replays whole batches; a truncated last one is left for the next read.
fn replay_batches(
    bytes: &[u8],
    from: i64,
    machine: &mut Machine,
    replayed: &mut Replayed,
) -> Result<Stopped, LoadError> {
    let mut stopped = Stopped {
        offset: from,
        damage: None,
    };
    for batch in batches(bytes) {
        let intact = match batch {
            Err(BatchError::Truncated { .. }) => break,
            Ok(batch) => batch.verify_checksum().map(|()| batch),
            Err(error) => Err(error),
        };
        match intact {
            Ok(batch) => {
                replay_batch(&batch, machine, replayed)?;
                stopped.offset = batch.header.next_offset();
            }
            Err(error) => {
                stopped.damage = Some(format!("batch at offset {}: {error}", stopped.offset));
                break;
            }
        }
    }
    Ok(stopped)
}

fn replay_batch(batch: &Batch<'_>, machine: &mut Machine, replayed: &mut Replayed) -> Result<(), LoadError> {
    let header = &batch.header;
    let offset = header.base_offset;
    let mut plain = Vec::new();
    let records = match header.compression() {
        Some(Codec::None) => batch.records(),
        codec => {
            let codec = codec.ok_or(LoadError::UnknownCodec { offset })?;
            compression::decompress(codec, batch.record_bytes(), DECOMPRESSED_BYTES_MAX, &mut plain)
                .map_err(|error| LoadError::Compression { offset, error })?;
            Records::new(header, &plain)
        }
    };
    for record in records {
        let record = record.map_err(|error| LoadError::Record { offset, error })?;
        if header.is_control() {
            let control =
                ControlRecord::decode(&record).map_err(|error| LoadError::Control { offset, error })?;
            if let ControlRecord::EndTransaction { result, .. } = control {
                machine.apply_marker(header.producer_id, result == TransactionResult::Commit);
            }
            continue;
        }
        let Some(key) = record.key else {
            replayed.skipped += 1;
            continue;
        };
        match GroupRecord::decode(key, record.value) {
            Ok(Some(record)) if header.is_transactional() => {
                machine.apply_transactional(header.producer_id, record);
            }
            Ok(Some(record)) => machine.apply(&record),
            Ok(None) => replayed.skipped += 1,
            Err(error) => {
                return Err(LoadError::Content {
                    offset: record.offset,
                    error,
                });
            }
        }
        replayed.records += 1;
    }
    Ok(())
}

/// Why a partition has no coordinator.
#[derive(Debug)]
pub enum LoadError {
    Read(ReadError),
    Io(io::Error),
    UnknownCodec {
        offset: i64,
    },
    Compression {
        offset: i64,
        error: CompressionError,
    },
    Record {
        offset: i64,
        error: RecordError,
    },
    Control {
        offset: i64,
        error: ControlError,
    },
    /// A record that cannot be decoded: skipping it would lose its contents.
    Content {
        offset: i64,
        error: DecodeError,
    },
    /// The log has no whole batch where one should begin.
    Incomplete {
        offset: i64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(error) => write!(f, "{error}"),
            LoadError::Io(error) => write!(f, "cannot read the log: {error}"),
            LoadError::UnknownCodec { offset } => {
                write!(f, "unknown compression of the batch at offset {offset}")
            }
            LoadError::Compression { offset, error } => write!(f, "batch at offset {offset}: {error}"),
            LoadError::Record { offset, error } => {
                write!(f, "record in the batch at offset {offset}: {error}")
            }
            LoadError::Control { offset, error } => write!(f, "control batch at offset {offset}: {error}"),
            LoadError::Content { offset, error } => {
                write!(f, "unreadable record at offset {offset}: {error}")
            }
            LoadError::Incomplete { offset } => write!(f, "no whole batch at offset {offset}"),
        }
    }
}

impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_wire::error_code::ErrorCode;

    use crate::group::config::GroupConfig;
    use crate::group::reply::GroupReply;
    use crate::group::request::{GroupRequest, GroupTicket, ListRequest, MemberRequest, OffsetFetchRequest};
    use crate::time::Now;
    use crate::time::{Moment, Timestamp};

    use super::*;

    /// For its origin see `golden/README.md`.
    const KAFKA_SEGMENT: &[u8] = include_bytes!("golden/kafka-4.3.0-consumer-offsets.log");
    const NOW: Now = Now {
        moment: Moment::from_micros(1),
        timestamp: Timestamp(1_795_000_000_000),
    };

    fn load(bytes: &[u8]) -> Result<(Machine, Replayed), LoadError> {
        let mut machine = Machine::new(Arc::new(GroupConfig::default()), 0);
        let mut replayed = Replayed::default();
        replay_batches(bytes, 0, &mut machine, &mut replayed)?;
        machine.arm(NOW);
        Ok((machine, replayed))
    }

    fn ask(machine: &mut Machine, request: GroupRequest<'_>) -> GroupReply {
        machine.handle(NOW, GroupTicket(0), request).replies.remove(0).1
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
        let stopped = replay_batches(&damaged, 0, &mut machine, &mut Replayed::default()).unwrap();
        assert_eq!(stopped.offset, 1);
        let damage = stopped.damage.unwrap();
        assert!(
            damage.starts_with("batch at offset 1: batch says its checksum is"),
            "{damage}"
        );
    }
}
