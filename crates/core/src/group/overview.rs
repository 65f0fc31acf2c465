//! A snapshot of a group and of recent departures: the evidence for diagnosing a slow consumer.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::image::topics::TopicsImage;
use crate::time::Timestamp;

use super::classic::Group;
use super::held::{Held, held};
use super::rebalances::Rebalance;

/// At most this many departures of a group are kept.
const DEPARTED_MAX: usize = 8;

/// Longer reasons given by clients are cut.
const REASON_CHARS_MAX: usize = 120;

/// At most this many committed offsets of a group are looked at for a diagnosis.
const COMMITTED_MAX: usize = 1_024;

/// A snapshot of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOverview {
    pub group_id: Arc<str>,
    pub members: Vec<MemberOverview>,
    /// Partitions of all topics that its members subscribe to.
    pub partition_count: usize,
    /// The last departures, oldest first; since this broker coordinates the group.
    pub departed: Vec<Departed>,
    /// The last rebalances, oldest first; since this broker coordinates the group.
    pub rebalances: Vec<Rebalance>,
    /// How far it has committed, where it has members.
    pub committed: Vec<CommittedOverview>,
}

/// A group as a console shows it, with members or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReading {
    /// Also of a group without members: how far it has committed.
    pub overview: GroupOverview,
    /// Kafka's name of the state.
    pub state: &'static str,
    /// Of the overview's members, in their order.
    pub held: Vec<Held>,
    /// Committed partitions that are not in the overview.
    pub cut: usize,
}

/// A committed offset, and the end of the partition at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOverview {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
    pub end: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberOverview {
    pub member_id: Arc<str>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    /// As its last JoinGroup named them; a consumer's rebalance timeout is its
    /// `max.poll.interval.ms`.
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
}

/// A member that left or was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    pub member: MemberOverview,
    pub at: Timestamp,
    pub why: Departure,
}

/// Why a member is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It left by LeaveGroup, from KIP-800 on with a reason.
    Left { reason: Option<Arc<str>> },
    /// No heartbeat for `session.timeout.ms`.
    SessionExpired,
    /// All others had joined again; it did not within its rebalance timeout, which a consumer sets
    /// to `max.poll.interval.ms`.
    DidNotRejoin,
    /// It joined and did not fetch its assignment in time.
    DidNotSync,
}

impl Departure {
    pub fn left(reason: Option<&str>) -> Departure {
        Departure::Left {
            reason: reason.map(|reason| reason.chars().take(REASON_CHARS_MAX).collect::<String>().into()),
        }
    }

    /// Whether the member's application did not poll in time. Java's consumer says so when it
    /// leaves.
    pub fn is_late_poll(&self) -> bool {
        match self {
            Departure::Left { reason } => reason
                .as_ref()
                .is_some_and(|reason| reason.contains("poll timeout")),
            Departure::DidNotRejoin => true,
            Departure::SessionExpired | Departure::DidNotSync => false,
        }
    }
}

/// The last departures of one group. A replay does not restore them.
#[derive(Clone, Debug, Default)]
pub struct Departures(VecDeque<Departed>);

impl Departures {
    pub fn add(&mut self, departed: Departed) {
        if self.0.len() == DEPARTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(departed);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Departed> {
        self.0.iter()
    }
}

/// Returns the overview; `None` for a group without members and departures, or one that is not of
/// consumers.
///
/// - `partitions_of`: the number of partitions of a topic.
/// - `session_timeout_ms`: of members of consumer groups.
pub(super) fn overview(
    group: &Group,
    session_timeout_ms: i32,
    partitions_of: impl Fn(&str) -> usize,
) -> Option<GroupOverview> {
    if !has_members(group) && group.departures.iter().next().is_none() {
        return None;
    }
    // A group that nothing reads for has no slow consumer.
    let committed_max = if has_members(group) { COMMITTED_MAX } else { 0 };
    of_any(group, session_timeout_ms, partitions_of, committed_max)
}

/// Returns what a console shows; `None` for a group that has neither members, departures nor
/// committed offsets, or one that is not of consumers.
///
/// - `rest`: how many committed offsets may still be read, of this group and of those after it.
pub(super) fn reading(
    group: &Group,
    session_timeout_ms: i32,
    topics: &TopicsImage,
    rest: &mut usize,
) -> Option<GroupReading> {
    let count = group.offsets.iter().count();
    if count == 0 && !has_members(group) && group.departures.iter().next().is_none() {
        return None;
    }
    let partitions_of = |topic: &str| topics.by_name(topic).map_or(0, |topic| topic.partitions.len());
    let overview = of_any(group, session_timeout_ms, partitions_of, *rest)?;
    let cut = count - overview.committed.len();
    *rest -= overview.committed.len();
    Some(GroupReading {
        overview,
        state: group.state_name(),
        held: held(group, topics),
        cut,
    })
}

pub(super) fn has_members(group: &Group) -> bool {
    !group.members.is_empty() || group.has_consumer_members()
}

/// `None`: it is not a group of consumers.
fn of_any(
    group: &Group,
    session_timeout_ms: i32,
    partitions_of: impl Fn(&str) -> usize,
    committed_max: usize,
) -> Option<GroupOverview> {
    if !(group.uses_consumer_protocol() || group.members.is_empty()) {
        return None;
    }
    let (members, partition_count) = match &group.consumer {
        None => (
            group
                .members
                .values()
                .map(super::member::Member::overview)
                .collect(),
            (group.subscribed_topics.iter().flatten())
                .map(|topic| partitions_of(topic))
                .sum(),
        ),
        Some(consumer) => (
            consumer.overview(session_timeout_ms),
            consumer.subscribed_topics().into_iter().map(partitions_of).sum(),
        ),
    };
    Some(GroupOverview {
        group_id: group.group_id.clone(),
        members,
        partition_count,
        departed: group.departures.iter().cloned().collect(),
        rebalances: group.rebalances.iter().cloned().collect(),
        committed: committed(group, committed_max),
    })
}

/// The ends are looked up by who knows the partitions, without the coordinator's lock.
fn committed(group: &Group, committed_max: usize) -> Vec<CommittedOverview> {
    let offsets = group.offsets.iter().take(committed_max);
    offsets
        .map(|(topic, partition, committed)| CommittedOverview {
            topic: topic.clone(),
            partition,
            offset: committed.offset,
            end: committed.offset,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_poll_is_told_from_other_departures() {
        let late = "consumer poll timeout has expired.";
        for (why, expected) in [
            (Departure::left(Some(late)), true),
            (Departure::left(Some("the consumer is being closed")), false),
            (Departure::left(None), false),
            (Departure::DidNotRejoin, true),
            (Departure::SessionExpired, false),
        ] {
            assert_eq!(why.is_late_poll(), expected, "{why:?}");
        }
    }
}
