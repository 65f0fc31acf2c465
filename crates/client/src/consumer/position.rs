//! Where a consumer stands in one partition, and how it comes to know.

use ottla_wire::primitives::Uuid;

use super::topic_partition::TopicPartition;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::time::Moment;

/// An offset, and the leader epoch by which KIP-320 can tell whether the log before it is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Of the next record.
    pub offset: i64,
    /// The leader epoch of the record before it; `None` after a seek without one.
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

/// Where a partition without a position gets one from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    Earliest,
    Latest,
    /// The first record at or after this time, in milliseconds since 1970; the end of the log if there is none (KIP-1106).
    Timestamp(i64),
    /// Back from the moment in which the offset is asked for (KIP-1106).
    Duration {
        ms: u64,
    },
}

/// What a partition is waiting for. Kafka's `FetchState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The group's committed offset.
    Committed,
    /// ListOffsets.
    Reset(ResetTo),
    /// OffsetForLeaderEpoch: the leader changed, and the log may have been cut before the position.
    Validation,
    /// Nothing.
    Fetching,
    /// The application: there is no committed offset and `auto.offset.reset` is `none`.
    Seek,
}

/// A leader that a broker named when it refused a request, before any metadata did (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    pub node: NodeId,
    pub leader_epoch: i32,
}

/// One assigned partition.
#[derive(Clone, Debug)]
pub struct PartitionState {
    pub phase: Phase,
    /// Behind the last record that the application has got.
    pub position: Option<Position>,
    /// Behind the last record that was fetched: at or after `position`.
    pub fetch_position: Option<Position>,
    /// Unique in the life of a consumer and changed by every seek: what was asked or fetched under another one is void.
    pub version: u64,
    pub is_paused: bool,
    /// Not fetched, nor its offsets asked for, until a rebalance listener was told of it, or since one was told to stop.
    pub is_held: bool,
    /// What was fetched last ends in bytes that are no batch: the same would come again.
    pub is_broken: bool,
    /// A ListOffsets, OffsetForLeaderEpoch or OffsetFetch for it is on its way.
    pub is_asked: bool,
    /// Nothing is asked about it before, because the last answer was an error.
    pub not_before: Moment,
    /// The leader epoch under which `position` was seen to be in the log.
    pub validated_leader_epoch: i32,
    /// Answers with data of it that the application has not got to the end of.
    pub unread_chunks: u32,
    /// −1 until known.
    pub log_start_offset: i64,
    /// The end as far as this consumer may read: the last stable offset with `read_committed`. −1 until known.
    pub readable_end_offset: i64,
    /// KIP-392: fetch from this follower until then.
    pub preferred_replica: Option<(NodeId, Moment)>,
    pub leader_hint: Option<LeaderHint>,
    /// Of the snapshot from which the next two are.
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
            not_before: Moment(0),
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

    /// Takes over what a new snapshot says of the partition.
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
            // Another topic of that name counts its leaders anew.
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

    /// The leader says that it is none: there is none until the next metadata.
    pub fn forget_leader(&mut self) {
        self.leader_hint = None;
        self.known_leader = None;
    }

    /// The partition's leader and its epoch, by a hint that is newer than the metadata or by these.
    pub fn leader(&self) -> Option<(NodeId, i32)> {
        match &self.leader_hint {
            Some(hint) => Some((hint.node, hint.leader_epoch)),
            None => self.known_leader,
        }
    }

    /// The node that the next fetch goes to, a follower where the leader said so (KIP-392).
    pub fn fetch_node(&self, now: Moment) -> Option<NodeId> {
        match self.preferred_replica {
            Some((replica, until)) if now < until => Some(replica),
            _ => self.leader().map(|(leader, _)| leader),
        }
    }

    /// Whether offsets may be asked for now.
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
