//! What stands in a group at one moment, and who went lately: for whoever explains a consumer.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::time::Timestamp;

use super::classic::Group;

/// Departures that a group remembers.
const DEPARTED_MAX: usize = 8;

/// Of a reason that a client gives.
const REASON_CHARS_MAX: usize = 120;

/// A group of consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOverview {
    pub group_id: Arc<str>,
    pub members: Vec<MemberOverview>,
    /// Of all that its members are subscribed to.
    pub partition_count: usize,
    /// The last ones that went, oldest first; since this broker leads the group.
    pub departed: Vec<Departed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberOverview {
    pub member_id: Arc<str>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
}

/// A member that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    pub member: MemberOverview,
    pub at: Timestamp,
    pub why: Departure,
}

/// Why a member is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It said so, with a reason from KIP-800 on.
    Left { reason: Option<Arc<str>> },
    /// No heartbeat for `session.timeout.ms`.
    SessionExpired,
    /// Everybody else had joined again; it did not within its rebalance timeout, which a consumer sets to `max.poll.interval.ms`.
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

    /// The member's application did not poll in time. Java's consumer says so when it leaves.
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

/// The last departures of one group. Not part of what a replay restores.
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

/// `None`: nobody is in it and nobody went, or it is no group of consumers.
///
/// - `partitions_of`: how many partitions a topic has.
pub(super) fn overview(group: &Group, partitions_of: impl Fn(&str) -> usize) -> Option<GroupOverview> {
    let is_empty = group.members.is_empty() && group.departures.iter().next().is_none();
    if is_empty || !(group.uses_consumer_protocol() || group.members.is_empty()) {
        return None;
    }
    Some(GroupOverview {
        group_id: group.group_id.clone(),
        members: group
            .members
            .values()
            .map(super::member::Member::overview)
            .collect(),
        partition_count: (group.subscribed_topics.iter().flatten())
            .map(|topic| partitions_of(topic))
            .sum(),
        departed: group.departures.iter().cloned().collect(),
    })
}
