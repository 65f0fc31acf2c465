//! The consumer's position in one partition, and how it is found.

use ottla_wire::primitives::Uuid;

use super::topic_partition::TopicPartition;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::time::Moment;

/// An offset, and the leader epoch by which KIP-320 detects whether the log before it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Offset of the next record.
    pub offset: i64,
    /// The leader epoch of the preceding record; `None` after a seek without one.
    pub leader_epoch: Option<i32>,
}

impl Position {
    pub fn at(offset: i64) -> Position {
        Position {
            offset,
            leader_epoch: None,
        }
    }
}

/// Where a partition without a position starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    Earliest,
    Latest,
    /// The first record at or after this time, in milliseconds since the Unix epoch; the end of the
    /// log if there is none (KIP-1106).
    Timestamp(i64),
    /// This long before the moment at which the offset is requested (KIP-1106).
    Duration {
        ms: u64,
    },
}

/// What a partition waits for. Kafka's `FetchState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The group's committed offset.
    Committed,
    /// ListOffsets.
    Reset(ResetTo),
    /// OffsetForLeaderEpoch: the leader changed, and the log may have been truncated before the
    /// position.
    Validation,
    /// Nothing: it can be fetched.
    Fetching,
    /// A seek by the application: there is no committed offset and `auto.offset.reset` is `none`.
    Seek,
}

/// A leader that a broker named when it refused a request, ahead of the metadata (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    pub node: NodeId,
    pub leader_epoch: i32,
}

/// One assigned partition.
#[derive(Clone, Debug)]
pub struct PartitionState {
    pub phase: Phase,
    /// After the last record that the application has received.
    pub position: Option<Position>,
    /// After the last record that was fetched: at or after `position`.
    pub fetch_position: Option<Position>,
    /// Unique in the life of a consumer and changed by every seek; requests and data of another
    /// version are void.
    pub version: u64,
    pub is_paused: bool,
    /// Not fetched, nor its offset looked up, until a rebalance listener knows of it, or once a
    /// listener was told that it is revoked.
    pub is_held: bool,
    /// The last fetched data ends in bytes that are not a batch; fetching again would give the
    /// same.
    pub is_broken: bool,
    /// A ListOffsets, OffsetForLeaderEpoch or OffsetFetch for it is in flight.
    pub is_asked: bool,
    /// Backoff: no request for it before this moment, because the last one failed.
    pub not_before: Moment,
    /// The leader epoch under which `position` was found to be in the log.
    pub validated_leader_epoch: i32,
    /// Responses with data of it that the application has not read to the end.
    pub unread_chunks: u32,
    /// −1 until known.
    pub log_start_offset: i64,
    /// The end of what this consumer may read: the last stable offset with `read_committed`. −1
    /// until known.
    pub readable_end_offset: i64,
    /// KIP-392: fetch from this follower until then.
    pub preferred_replica: Option<(NodeId, Moment)>,
    pub leader_hint: Option<LeaderHint>,
    /// Version of the snapshot that `known_leader` and `topic_id` are from.
    snapshot_version: u64,
    known_leader: Option<(NodeId, i32)>,
    /// Zero where it is not known.
    pub topic_id: Uuid,
}

impl PartitionState {
    pub fn new(phase: Phase, version: u64) -> PartitionState {
        PartitionState {
            phase,
            position: None,
            fetch_position: None,
            version,
            is_paused: false,
            is_held: false,
            is_broken: false,
            is_asked: false,
            not_before: Moment::from_nanos(0),
            validated_leader_epoch: -1,
            unread_chunks: 0,
            log_start_offset: -1,
            readable_end_offset: -1,
            preferred_replica: None,
            leader_hint: None,
            snapshot_version: 0,
            known_leader: None,
            topic_id: Uuid::ZERO,
        }
    }

    /// Takes leader and topic id from a new snapshot.
    pub fn look_up(&mut self, snapshot: &Snapshot, name: &TopicPartition) {
        if self.snapshot_version == snapshot.version {
            return;
        }
        self.snapshot_version = snapshot.version;
        let topic = snapshot.topic(&name.topic);
        let index = usize::try_from(name.partition).ok();
        let known = topic.and_then(|topic| topic.partitions.get(index?));
        let topic_id = topic.map_or(Uuid::ZERO, |topic| topic.id);
        if topic_id != self.topic_id {
            // A new topic of the same name counts its leader epochs from the start.
            self.leader_hint = None;
            self.validated_leader_epoch = -1;
        }
        self.topic_id = topic_id;
        self.known_leader = known.and_then(|known| Some((known.leader?, known.leader_epoch)));
        if let Some(known) = known
            && self
                .leader_hint
                .as_ref()
                .is_some_and(|hint| hint.leader_epoch <= known.leader_epoch)
        {
            self.leader_hint = None;
        }
    }

    /// The leader says that it no longer leads: none is known until the next metadata.
    pub fn forget_leader(&mut self) {
        self.leader_hint = None;
        self.known_leader = None;
    }

    /// The partition's leader and its epoch, from the metadata or from a hint that is newer.
    pub fn leader(&self) -> Option<(NodeId, i32)> {
        match &self.leader_hint {
            Some(hint) => Some((hint.node, hint.leader_epoch)),
            None => self.known_leader,
        }
    }

    /// The node for the next fetch; a follower if the leader named one (KIP-392).
    pub fn fetch_node(&self, now: Moment) -> Option<NodeId> {
        match self.preferred_replica {
            Some((replica, until)) if now < until => Some(replica),
            _ => self.leader().map(|(leader, _)| leader),
        }
    }

    /// Whether offsets may be requested now.
    pub fn may_ask(&self, now: Moment) -> bool {
        !self.is_asked && !self.is_held && now >= self.not_before
    }

    /// The position if it may be committed and fetched from.
    pub fn valid_position(&self) -> Option<Position> {
        match self.phase {
            Phase::Fetching => self.position,
            _ => None,
        }
    }

    /// Records between the position and the readable end; `None` until both are known.
    pub fn lag(&self) -> Option<u64> {
        let position = self.valid_position()?;
        if self.readable_end_offset < 0 {
            return None;
        }
        Some(u64::try_from(self.readable_end_offset - position.offset).unwrap_or(0))
    }
}
