//! What a member of a group was told, and what it asks for.

use std::collections::BTreeMap;

use anyhow::Result;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_heartbeat::ConsumerGroupHeartbeatResponse;
use ottla_wire::messages::consumer_protocol_assignment::{self, ConsumerProtocolAssignment};
use ottla_wire::messages::consumer_protocol_subscription::{self, ConsumerProtocolSubscription};
use ottla_wire::messages::join_group::JoinGroupResponse;
use ottla_wire::primitives::{Uuid, put_i16};

use super::{Scene, TOPICS};

/// A member epoch or generation in a request, in terms of the last one that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    Current,
    Older,
    Newer,
    Is(i32),
}

/// Owned partitions in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Not told: as before.
    Unchanged,
    /// What the broker has assigned.
    Assigned,
    Nothing,
    /// What the broker has assigned, without one partition.
    AllButOne,
    /// A partition that may be another member's.
    Foreign,
}

/// A client, which is a member by one of the protocols, or by both one after the other.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// Its id by the consumer protocol, which it chooses itself from version 1 on.
    pub consumer_id: String,
    pub member_epoch: i32,
    pub assigned: Vec<(Uuid, i32)>,
    /// Its id by the classic protocol; empty before the broker has told it.
    pub classic_id: String,
    pub generation: i32,
    pub protocol: String,
    /// Ids of all members, if it is the leader.
    pub led: Vec<String>,
}

impl Member {
    pub fn new(name: &str, number: usize) -> Member {
        Member {
            // Behind every id that a broker draws.
            consumer_id: format!("~{name}-{number}"),
            generation: -1,
            ..Member::default()
        }
    }

    pub fn epoch(&self, epoch: Epoch, is_classic: bool) -> i32 {
        let current = if is_classic {
            self.generation
        } else {
            self.member_epoch
        };
        match epoch {
            Epoch::Current => current,
            Epoch::Older => current - 1,
            Epoch::Newer => current + 1,
            Epoch::Is(epoch) => epoch,
        }
    }

    pub fn owned(&self, owned: Owned, scene: &Scene) -> Option<Vec<(Uuid, i32)>> {
        match owned {
            Owned::Unchanged => None,
            Owned::Assigned => Some(self.assigned.clone()),
            Owned::Nothing => Some(Vec::new()),
            Owned::AllButOne => Some(self.assigned.iter().skip(1).copied().collect()),
            Owned::Foreign => Some(vec![(scene.topic_ids[0], 0)]),
        }
    }

    pub fn learn_heartbeat(&mut self, response: &ConsumerGroupHeartbeatResponse<'_>, asked: i32) {
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) if asked < 0 => {
                self.member_epoch = 0;
                self.assigned.clear();
            }
            Some(ErrorCode::None) => {
                self.member_epoch = response.member_epoch;
                if let Some(id) = response.member_id {
                    self.consumer_id = id.to_owned();
                }
                if let Some(assignment) = &response.assignment {
                    let topics = assignment.topic_partitions.iter();
                    self.assigned = topics
                        .flat_map(|topic| topic.partitions.iter().map(|number| (topic.topic_id, *number)))
                        .collect();
                    self.assigned.sort_unstable();
                }
            }
            Some(ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch) => {
                self.member_epoch = 0;
                self.assigned.clear();
            }
            _ => {}
        }
    }

    pub fn learn_join(&mut self, response: &JoinGroupResponse<'_>) {
        match ErrorCode::from_i16(response.error_code) {
            Some(ErrorCode::None) => {
                self.classic_id = response.member_id.to_owned();
                self.generation = response.generation_id;
                self.protocol = response.protocol_name.unwrap_or_default().to_owned();
                self.led = response
                    .members
                    .iter()
                    .map(|member| member.member_id.to_owned())
                    .collect();
            }
            Some(ErrorCode::MemberIdRequired) => self.classic_id = response.member_id.to_owned(),
            code => self.learn_code(code),
        }
    }

    /// A client forgets an id that its coordinator does not know.
    pub fn learn_code(&mut self, code: Option<ErrorCode>) {
        if matches!(
            code,
            Some(ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId)
        ) {
            self.forget_classic();
        }
    }

    pub fn forget_classic(&mut self) {
        self.classic_id.clear();
        self.generation = -1;
        self.led.clear();
    }
}

/// The names of the topics whose bits are set.
pub fn topics(bits: u8) -> Vec<&'static str> {
    let named = TOPICS.iter().enumerate();
    named
        .filter(|(at, _)| bits & (1 << at) != 0)
        .map(|(_, (name, _))| *name)
        .collect()
}

/// What a classic member subscribes to.
pub fn subscription(bits: u8, owned: &[(Uuid, i32)], scene: &Scene, generation: i32) -> Vec<u8> {
    let by_topic = by_topic(owned);
    let message = ConsumerProtocolSubscription {
        topics: topics(bits),
        owned_partitions: by_topic
            .into_iter()
            .filter_map(|(id, partitions)| {
                let at = scene.topic_ids.iter().position(|known| *known == id)?;
                Some(consumer_protocol_subscription::TopicPartition {
                    topic: TOPICS[at].0,
                    partitions,
                })
            })
            .collect(),
        generation_id: generation,
        ..ConsumerProtocolSubscription::default()
    };
    let mut bytes = Vec::new();
    put_i16(&mut bytes, 3);
    message.encode(&mut bytes, 3);
    bytes
}

/// What a leader assigns to the member at `position`: one partition of the first topic.
pub fn assignment(position: usize) -> Vec<u8> {
    let message = ConsumerProtocolAssignment {
        assigned_partitions: vec![consumer_protocol_assignment::TopicPartition {
            topic: TOPICS[0].0,
            partitions: vec![position as i32],
        }],
        user_data: None,
    };
    let mut bytes = Vec::new();
    put_i16(&mut bytes, 3);
    message.encode(&mut bytes, 3);
    bytes
}

/// The partitions of an assignment by the classic protocol.
pub fn assigned(bytes: &[u8], scene: &Scene) -> Result<Vec<(Uuid, i32)>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = ottla_wire::primitives::Reader::new(bytes);
    let version = reader.i16()?;
    let message = ConsumerProtocolAssignment::decode(&mut reader, version)?;
    let mut found = Vec::new();
    for topic in &message.assigned_partitions {
        let at = TOPICS.iter().position(|(name, _)| *name == topic.topic);
        let id = at.map_or(Uuid([0; 16]), |at| scene.topic_ids[at]);
        found.extend(topic.partitions.iter().map(|number| (id, *number)));
    }
    found.sort_unstable();
    Ok(found)
}

pub fn by_topic(partitions: &[(Uuid, i32)]) -> BTreeMap<Uuid, Vec<i32>> {
    let mut by_topic: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (id, number) in partitions {
        by_topic.entry(*id).or_default().push(*number);
    }
    by_topic
}
