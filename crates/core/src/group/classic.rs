//! One classic group: its state in the log, and its members' soft state between two records.
//!
//! Hard state (`stored`, `offsets`, `pending`, `consumer`, `foreign`) changes only when a record is
//! applied. Everything else is soft: after a replay it starts again from the last record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::time::Timestamp;

use super::consumer::group::{self as consumer_group, ConsumerGroup};
use super::foreign::Foreign;
use super::member::Member;
use super::offsets::Offsets;
use super::overview::Departures;
use super::pending::PendingOffsets;
use super::rebalances::{Ended, Rebalances};
use super::record::{GroupRecord, StoredGroup, StoredMember};
use super::reply::JoinReplyMember;
use super::request::JoinRequest;

/// The protocol type whose subscriptions the coordinator can read.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl GroupState {
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
        }
    }
}

/// The delay of a group's first rebalance; each new member extends it a little.
#[derive(Clone, Copy, Debug)]
pub struct InitialDelay {
    pub delay_ms: i32,
    pub remaining_ms: i32,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub group_id: Arc<str>,
    pub stored: Option<Arc<StoredGroup>>,
    pub offsets: Offsets,
    pub pending: PendingOffsets,
    /// `Some`: the group is one of KIP-848, and what follows below is empty.
    pub consumer: Option<Box<ConsumerGroup>>,
    pub foreign: Foreign,

    pub state: GroupState,
    pub generation: i32,
    pub protocol_type: Option<Arc<str>>,
    pub protocol: Option<Arc<str>>,
    pub leader: Option<Arc<str>>,
    pub members: BTreeMap<Arc<str>, Member>,
    /// Instance id to member id (KIP-345).
    pub static_members: BTreeMap<Arc<str>, Arc<str>>,
    /// Ids that were assigned and have not joined yet (KIP-394).
    pub pending_join: BTreeSet<Arc<str>>,
    pub pending_sync: BTreeSet<Arc<str>>,
    /// Set while the first rebalance of an empty group is under way.
    pub initial_delay: Option<InitialDelay>,
    pub new_member_added: bool,
    /// `None`: not a consumer group, or its subscriptions cannot be read.
    pub subscribed_topics: Option<BTreeSet<String>>,
    pub departures: Departures,
    pub rebalances: Rebalances,
}

impl Group {
    pub fn new(group_id: Arc<str>) -> Group {
        Group {
            group_id,
            stored: None,
            offsets: Offsets::default(),
            pending: PendingOffsets::default(),
            consumer: None,
            foreign: Foreign::default(),
            state: GroupState::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            static_members: BTreeMap::new(),
            pending_join: BTreeSet::new(),
            pending_sync: BTreeSet::new(),
            initial_delay: None,
            new_member_added: false,
            subscribed_topics: None,
            departures: Departures::default(),
            rebalances: Rebalances::default(),
        }
    }

    /// Applies a record of this group; `order` grows from record to record.
    pub fn apply(&mut self, order: u64, record: &GroupRecord) {
        match record {
            GroupRecord::Offset {
                topic,
                partition,
                value,
                ..
            } => match value {
                Some(value) => self
                    .offsets
                    .insert(topic.clone(), *partition, order, value.clone()),
                None => {
                    self.offsets.remove(topic, *partition);
                    self.pending.remove(topic, *partition);
                }
            },
            GroupRecord::Group {
                value: Some(value), ..
            } => self.settle(value.clone()),
            GroupRecord::Group { value: None, .. } => self.dissolve(),
            GroupRecord::Consumer { record, .. } => consumer_group::apply(&mut self.consumer, record),
            GroupRecord::Foreign { key, is_present, .. } => self.foreign.apply(key, *is_present),
        }
    }

    /// True when nothing of the group is left, in the log or in memory.
    pub fn is_void(&self) -> bool {
        self.stored.is_none()
            && !self.has_offsets()
            && self.consumer.is_none()
            && self.foreign.is_empty()
            && self.members.is_empty()
            && self.pending_join.is_empty()
    }

    /// Whether the group has offsets, or may have some when open transactions commit.
    pub fn has_offsets(&self) -> bool {
        !self.offsets.is_empty() || !self.pending.is_empty()
    }

    /// Whether this id belongs to a classic group, stored or simple.
    pub fn is_classic(&self) -> bool {
        self.foreign.is_empty() && self.consumer.is_none() && !self.is_void()
    }

    /// Sets the members to those of the record; unknown ones are created from it.
    fn settle(&mut self, stored: Arc<StoredGroup>) {
        let mut members = BTreeMap::new();
        let mut static_members = BTreeMap::new();
        for entry in &stored.members {
            let known = self.members.remove(&entry.member_id);
            let member = match known.filter(|member| !member.is_restored) {
                Some(mut live) => {
                    live.assignment = entry.assignment.clone();
                    live
                }
                None => Member::from_stored(entry, stored.protocol.as_ref()),
            };
            if let Some(instance_id) = &entry.group_instance_id {
                static_members.insert(instance_id.clone(), entry.member_id.clone());
            }
            members.insert(entry.member_id.clone(), member);
        }
        self.state = if members.is_empty() {
            GroupState::Empty
        } else {
            GroupState::Stable
        };
        self.members = members;
        self.static_members = static_members;
        self.generation = stored.generation;
        self.protocol_type = stored.protocol_type.clone();
        self.protocol = stored.protocol.clone();
        self.leader = stored.leader.clone();
        self.subscribed_topics = self.read_subscribed_topics();
        if let Some(at) = stored.state_timestamp {
            self.rebalances.end(Ended {
                at,
                generation: stored.generation,
                member_count: stored.members.len(),
            });
        }
        self.stored = Some(stored);
    }

    /// What has happened in the group stays: it may go on as one of the consumer protocol.
    fn dissolve(&mut self) {
        let departures = std::mem::take(&mut self.departures);
        let rebalances = std::mem::take(&mut self.rebalances);
        let offsets = std::mem::take(&mut self.offsets);
        let pending = std::mem::take(&mut self.pending);
        let consumer = self.consumer.take();
        let foreign = std::mem::take(&mut self.foreign);
        *self = Group {
            offsets,
            pending,
            consumer,
            foreign,
            departures,
            rebalances,
            ..Group::new(self.group_id.clone())
        };
    }

    /// Returns the record of the group as it is now, with the members' current assignments.
    pub fn to_stored(&self, state_timestamp: Timestamp) -> StoredGroup {
        StoredGroup {
            protocol_type: self.protocol_type.clone(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_timestamp: Some(state_timestamp),
            members: self
                .members
                .values()
                .map(|member| StoredMember {
                    member_id: member.member_id.clone(),
                    group_instance_id: member.group_instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    subscription: member.metadata(self.protocol.as_deref()),
                    assignment: member.assignment.clone(),
                })
                .collect(),
        }
    }

    pub fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    pub fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    pub fn insert_member(&mut self, member: Member) {
        if self.leader.is_none() {
            self.leader = Some(member.member_id.clone());
        }
        if let Some(instance_id) = &member.group_instance_id {
            self.static_members
                .insert(instance_id.clone(), member.member_id.clone());
        }
        self.pending_join.remove(&member.member_id);
        self.members.insert(member.member_id.clone(), member);
    }

    /// Removes a member or a pending id. If the leader goes, the next member in order leads.
    pub fn remove_member(&mut self, member_id: &str) -> Option<Member> {
        self.pending_join.remove(member_id);
        self.pending_sync.remove(member_id);
        let member = self.members.remove(member_id)?;
        if let Some(instance_id) = &member.group_instance_id {
            self.static_members.remove(instance_id);
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    pub fn awaiting_join_count(&self) -> usize {
        self.members
            .values()
            .filter(|member| member.awaiting_join.is_some())
            .count()
    }

    pub fn have_all_joined(&self) -> bool {
        self.pending_join.is_empty() && self.members.values().all(|member| member.awaiting_join.is_some())
    }

    /// Returns the largest rebalance timeout of all members.
    pub fn rebalance_timeout_ms(&self) -> i32 {
        self.members
            .values()
            .map(|member| member.rebalance_timeout_ms)
            .max()
            .unwrap_or(0)
    }

    /// Whether the member could take part: same protocol type, and one protocol that all members
    /// support.
    pub fn supports_protocols_of(&self, request: &JoinRequest<'_>) -> bool {
        if self.members.is_empty() {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(request.protocol_type)
            && request
                .protocols
                .iter()
                .any(|(name, _)| self.members.values().all(|member| member.supports(name)))
    }

    /// Elects the protocol: each member votes for its favourite among those that all support; the
    /// most votes win.
    pub fn elect_protocol(&self) -> Option<Arc<str>> {
        let first = self.members.values().next()?;
        let candidates: BTreeSet<&Arc<str>> = first
            .protocols
            .iter()
            .map(|protocol| &protocol.name)
            .filter(|name| self.members.values().all(|member| member.supports(name)))
            .collect();
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let favourite = member
                .protocols
                .iter()
                .find(|protocol| candidates.contains(&protocol.name));
            if let Some(favourite) = favourite {
                *votes.entry(&favourite.name).or_default() += 1;
            }
        }
        let most = votes.values().max().copied()?;
        votes
            .into_iter()
            .find(|(_, count)| *count == most)
            .map(|(name, _)| name.clone())
    }

    /// Returns what the leader needs for the assignment.
    pub fn members_for_leader(&self) -> Vec<JoinReplyMember> {
        self.members
            .values()
            .map(|member| JoinReplyMember {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                metadata: member.metadata(self.protocol.as_deref()),
            })
            .collect()
    }

    /// Whether a member subscribes to the topic: such offsets are neither expired nor deleted.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        if let Some(consumer) = &self.consumer {
            return consumer.is_subscribed_to(topic);
        }
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    pub fn read_subscribed_topics(&self) -> Option<BTreeSet<String>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscription_topics(
                &member.metadata(Some(self.protocol.as_deref()?)),
            )?);
        }
        Some(topics)
    }
}

/// Reads the topics of a `ConsumerProtocolSubscription`: version i16, then an array of strings; the
/// rest is ignored.
fn subscription_topics(subscription: &[u8]) -> Option<Vec<String>> {
    let mut rest = subscription.get(2..)?;
    let count = i32::from_be_bytes(take::<4>(&mut rest)?);
    let mut topics = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(i16::from_be_bytes(take::<2>(&mut rest)?)).ok()?;
        let (name, behind) = rest.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?.to_owned());
        rest = behind;
    }
    Some(topics)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(member_id: &str, protocols: &[&str]) -> Member {
        let request = JoinRequest {
            protocol_type: "consumer",
            protocols: protocols.iter().map(|name| (*name, &b""[..])).collect(),
            ..JoinRequest::default()
        };
        Member::new(member_id.into(), &request)
    }

    fn group(members: &[(&str, &[&str])]) -> Group {
        let mut group = Group::new("g".into());
        group.protocol_type = Some("consumer".into());
        for (member_id, protocols) in members {
            group.insert_member(member(member_id, protocols));
        }
        group
    }

    #[test]
    fn the_protocol_with_most_votes_among_those_all_support_wins() {
        let group = group(&[
            ("a", &["range", "sticky", "only-a"]),
            ("b", &["sticky", "range"]),
            ("c", &["sticky", "range"]),
        ]);
        assert_eq!(group.elect_protocol().as_deref(), Some("sticky"));
    }

    #[test]
    fn a_favourite_that_not_all_support_gets_no_vote() {
        let group = group(&[("a", &["only-a", "range"]), ("b", &["range"])]);
        assert_eq!(group.elect_protocol().as_deref(), Some("range"));
    }

    #[test]
    fn the_next_member_leads_when_the_leader_goes() {
        let mut group = group(&[("a", &["range"]), ("b", &["range"])]);
        assert!(group.is_leader("a"));
        group.remove_member("a");
        assert!(group.is_leader("b"));
        group.remove_member("b");
        assert_eq!(group.leader, None);
    }

    /// A bug: a replay kept the protocols of a member's first record and refused new members for
    /// ever, because the member seemed to support only the old protocol.
    #[test]
    fn a_replay_uses_the_last_record_of_a_member() {
        let record = |protocol: &str| GroupRecord::Group {
            group: "g".into(),
            value: Some(Arc::new(StoredGroup {
                protocol_type: Some("consumer".into()),
                generation: 1,
                protocol: Some(protocol.into()),
                leader: Some("a".into()),
                state_timestamp: None,
                members: vec![StoredMember {
                    member_id: "a".into(),
                    group_instance_id: None,
                    client_id: "c".into(),
                    client_host: "h".into(),
                    rebalance_timeout_ms: 1,
                    session_timeout_ms: 1,
                    subscription: protocol.as_bytes().into(),
                    assignment: Arc::from([]),
                }],
            })),
        };
        let mut group = Group::new("g".into());
        group.apply(1, &record("sticky"));
        group.apply(2, &record("range"));
        let member = &group.members["a"];
        assert!(member.supports("range") && !member.supports("sticky"));
        assert_eq!(&*member.metadata(Some("range")), b"range");
    }

    #[test]
    fn the_topics_of_a_subscription_are_read_and_the_rest_ignored() {
        let subscription = b"\0\x03\0\0\0\x02\0\x01a\0\x02bc\xff\xff\xff\xff";
        assert_eq!(
            subscription_topics(subscription),
            Some(vec!["a".to_owned(), "bc".to_owned()])
        );
    }

    #[test]
    fn a_subscription_that_claims_more_topics_than_it_has_is_not_read() {
        assert_eq!(subscription_topics(b"\0\0\x7f\xff\xff\xff\0\x01a"), None);
        assert_eq!(subscription_topics(b""), None);
    }
}
