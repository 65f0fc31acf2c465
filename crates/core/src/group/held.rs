//! What the members of a group hold, and where each is on its way to its assignment.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::image::topics::TopicsImage;

use super::classic::Group;
use super::consumer::assignment::Partitions;
use super::consumer::member::{CurrentAssignment, MemberState};
use super::consumer::protocol::decode_assignment;

/// Partitions of one member that are listed; others are counted.
const HELD_MAX: usize = 4_096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub partitions: BTreeMap<Arc<str>, Vec<i32>>,
    /// Partitions beyond these.
    pub cut: usize,
    /// `None`: the classic protocol does not tell.
    pub standing: Option<Standing>,
}

/// Where a member of a consumer group (KIP-848) is on its way to its assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has what it is meant to have.
    Stable,
    /// Its next heartbeat tells it what is new.
    Behind,
    /// It has been told to give up partitions and still owns some of them.
    Revoking,
    /// It waits for partitions that other members have not given up.
    Waiting,
    /// A static member that has left for a while.
    Away,
}

impl Standing {
    fn of(current: &CurrentAssignment, target_epoch: i32) -> Standing {
        match current.state {
            _ if current.is_away() => Standing::Away,
            MemberState::Unrevoked => Standing::Revoking,
            MemberState::Unreleased => Standing::Waiting,
            MemberState::Stable if current.epoch == target_epoch => Standing::Stable,
            MemberState::Stable | MemberState::Unknown => Standing::Behind,
        }
    }
}

/// Of all members, in the order of the group's overview.
pub(super) fn held(group: &Group, topics: &TopicsImage) -> Vec<Held> {
    match &group.consumer {
        None => {
            let members = group.members.values();
            let of_member = |bytes: &[u8]| decode_assignment(bytes, topics).unwrap_or_default();
            members
                .map(|member| Held::of(of_member(&member.assignment), None, topics))
                .collect()
        }
        Some(consumer) => {
            let target_epoch = consumer.target_epoch.epoch;
            let members = consumer.members.values();
            members
                .map(|member| {
                    let held = member.current.held().map(|(partition, _)| *partition);
                    let standing = Standing::of(&member.current, target_epoch);
                    Held::of(held.collect(), Some(standing), topics)
                })
                .collect()
        }
    }
}

/// How the partitions of a group are spread over its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Members that hold nothing.
    pub empty_members: usize,
    pub topics: BTreeMap<Arc<str>, TopicSpread>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicSpread {
    pub members: usize,
    pub partitions: usize,
}

impl Spread {
    pub(super) fn of(group: &Group, topics: &TopicsImage) -> Spread {
        let mut spread = Spread::default();
        for held in held(group, topics) {
            spread.empty_members += usize::from(held.partitions.is_empty());
            for (topic, partitions) in held.partitions {
                let of_topic = spread.topics.entry(topic).or_default();
                of_topic.members += 1;
                of_topic.partitions += partitions.len();
            }
        }
        spread
    }
}

impl Held {
    fn of(partitions: Partitions, standing: Option<Standing>, topics: &TopicsImage) -> Held {
        let mut held = Held {
            cut: partitions.len().saturating_sub(HELD_MAX),
            standing,
            ..Held::default()
        };
        for (topic_id, partition) in partitions.into_iter().take(HELD_MAX) {
            // A deleted topic has no name, and no partitions.
            if let Some(topic) = topics.by_id(topic_id) {
                let partitions = held.partitions.entry(topic.name.clone()).or_default();
                partitions.push(partition);
            }
        }
        held
    }
}
