//! The user data that the sticky assignors add to a subscription.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::primitives::{DecodeError, Reader, put_count, put_i32, put_string};

use super::subscription::MemberSubscription;
use crate::config::AssignorKind;
use crate::consumer::topic_partition::TopicPartition;

/// What a member owned, and since which generation, as far as the assignor knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberData {
    pub partitions: Vec<TopicPartition>,
    pub generation: Option<i32>,
}

/// The generation of a member that does not know one.
pub const NO_GENERATION: i32 = -1;

/// A member's last assignment, which it repeats when it rejoins.
#[derive(Clone, Debug, Default)]
pub struct LastAssignment {
    /// `None` before the first.
    assigned: Option<(BTreeSet<TopicPartition>, i32)>,
}

impl LastAssignment {
    pub fn remember(&mut self, partitions: &BTreeSet<TopicPartition>, generation: i32) {
        self.assigned = Some((partitions.clone(), generation));
    }

    /// The user data of the member's next subscription.
    pub fn user_data(&self, assignor: AssignorKind) -> Option<Vec<u8>> {
        let generation = self
            .assigned
            .as_ref()
            .map_or(NO_GENERATION, |(_, generation)| *generation);
        match (assignor, &self.assigned) {
            (AssignorKind::Sticky, Some((partitions, _))) => Some(encode_assignment(partitions, generation)),
            (AssignorKind::CooperativeSticky, _) => Some(generation.to_be_bytes().to_vec()),
            _ => None,
        }
    }
}

/// `previous_assignment` and `generation` of the sticky assignor, version 1.
fn encode_assignment(partitions: &BTreeSet<TopicPartition>, generation: i32) -> Vec<u8> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics
            .entry(&partition.topic)
            .or_default()
            .push(partition.partition);
    }
    let mut bytes = Vec::new();
    put_count(&mut bytes, topics.len(), false);
    for (topic, indexes) in topics {
        put_string(&mut bytes, topic, false);
        put_count(&mut bytes, indexes.len(), false);
        for index in indexes {
            put_i32(&mut bytes, index);
        }
    }
    put_i32(&mut bytes, generation);
    bytes
}

/// The data that `sticky` reads: all of it is in the user data. Unreadable data counts as none.
pub fn sticky(member: &MemberSubscription) -> MemberData {
    let Some(bytes) = member.user_data.as_deref().filter(|bytes| !bytes.is_empty()) else {
        return MemberData::default();
    };
    let mut reader = Reader::new(bytes);
    match decode_assignment(&mut reader) {
        // Version 0 ends here.
        Ok(partitions) => MemberData {
            partitions,
            generation: reader.i32().ok(),
        },
        Err(_) => MemberData {
            partitions: Vec::new(),
            generation: Some(NO_GENERATION),
        },
    }
}

/// One topic of a previous assignment.
struct OwnedTopic<'a> {
    name: &'a str,
    partitions: Vec<i32>,
}

impl<'a> OwnedTopic<'a> {
    fn decode(reader: &mut Reader<'a>, _version: i16) -> Result<OwnedTopic<'a>, DecodeError> {
        Ok(OwnedTopic {
            name: reader.string(false)?,
            partitions: reader.values(false, Reader::i32)?,
        })
    }
}

fn decode_assignment(reader: &mut Reader<'_>) -> Result<Vec<TopicPartition>, DecodeError> {
    let topics = reader.array(0, false, 6, OwnedTopic::decode)?;
    let mut partitions = Vec::new();
    for topic in topics {
        let name: Arc<str> = topic.name.into();
        partitions.extend(
            topic
                .partitions
                .iter()
                .map(|index| TopicPartition::new(name.clone(), *index)),
        );
    }
    Ok(partitions)
}

/// The data that `cooperative-sticky` reads: the subscription's own fields, or the user data of
/// members whose subscription has no generation yet (version 0 and 1).
pub fn cooperative_sticky(member: &MemberSubscription) -> MemberData {
    let generation = member.generation.or_else(|| {
        let bytes = member.user_data.as_deref()?;
        Some(Reader::new(bytes).i32().unwrap_or(NO_GENERATION))
    });
    MemberData {
        partitions: member.owned.clone(),
        generation,
    }
}
