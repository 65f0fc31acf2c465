//! One member of a consumer group, as the log knows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::group::member::Member;
use crate::group::request::JoinRequest;

use super::assignment::{Assigned, Partitions, TopicPartition};
use super::request::{ConsumerHeartbeat, STATIC_LEAVE_EPOCH};

/// What a member has said about itself: record type 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadata {
    pub instance_id: Option<Arc<str>>,
    pub rack_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub topic_names: BTreeSet<Arc<str>>,
    pub regex: Option<Arc<str>>,
    /// −1: never named.
    pub rebalance_timeout_ms: i32,
    pub assignor: Option<Arc<str>>,
    /// Of a member that speaks the classic protocol.
    pub classic: Option<ClassicMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicMember {
    pub session_timeout_ms: i32,
    /// Name and metadata.
    pub protocols: Vec<(Arc<str>, Arc<[u8]>)>,
}

impl ClassicMember {
    pub fn of(member: &Member) -> ClassicMember {
        let protocols = member.protocols.iter();
        ClassicMember {
            session_timeout_ms: member.session_timeout_ms,
            protocols: protocols
                .map(|protocol| (protocol.name.clone(), protocol.metadata.clone()))
                .collect(),
        }
    }

    pub fn joining(request: &JoinRequest<'_>) -> ClassicMember {
        let protocols = request.protocols.iter();
        ClassicMember {
            session_timeout_ms: request.session_timeout_ms,
            protocols: protocols
                .map(|(name, metadata)| (Arc::from(*name), Arc::from(*metadata)))
                .collect(),
        }
    }

    pub fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| **name == *protocol)
    }

    /// Returns the member's subscription, as it named it first.
    pub fn subscription(&self) -> &[u8] {
        self.protocols.first().map_or(&[], |(_, metadata)| metadata)
    }
}

impl Default for MemberMetadata {
    fn default() -> Self {
        MemberMetadata {
            instance_id: None,
            rack_id: None,
            client_id: "".into(),
            client_host: "".into(),
            topic_names: BTreeSet::new(),
            regex: None,
            rebalance_timeout_ms: -1,
            assignor: None,
            classic: None,
        }
    }
}

impl MemberMetadata {
    /// Returns the metadata with the fields that a heartbeat names.
    pub fn updated(&self, request: &ConsumerHeartbeat<'_>) -> MemberMetadata {
        let named = |new: Option<&str>, old: &Option<Arc<str>>| new.map(Arc::from).or_else(|| old.clone());
        MemberMetadata {
            instance_id: named(request.instance_id, &self.instance_id),
            rack_id: named(request.rack_id, &self.rack_id),
            client_id: request.client_id.into(),
            client_host: request.client_host.into(),
            topic_names: match &request.topic_names {
                Some(names) => names.iter().map(|name| Arc::from(*name)).collect(),
                None => self.topic_names.clone(),
            },
            // The empty expression ends the subscription by expression.
            regex: named(request.regex, &self.regex).filter(|regex| !regex.is_empty()),
            rebalance_timeout_ms: request.rebalance_timeout_ms.unwrap_or(self.rebalance_timeout_ms),
            assignor: named(request.assignor, &self.assignor),
            classic: None,
        }
    }

    pub fn subscribes_as(&self, other: &MemberMetadata) -> bool {
        self.topic_names == other.topic_names && self.regex == other.regex
    }
}

/// How far a member is with the change to its target assignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    #[default]
    Stable,
    /// It has been told to give up partitions and still owns some of them.
    Unrevoked,
    /// It waits for partitions that other members have not given up.
    Unreleased,
    /// A state of a later version of Apache Kafka.
    Unknown,
}

impl MemberState {
    pub fn of(code: i8) -> MemberState {
        match code {
            0 => MemberState::Stable,
            1 => MemberState::Unrevoked,
            2 => MemberState::Unreleased,
            _ => MemberState::Unknown,
        }
    }

    pub fn code(self) -> i8 {
        match self {
            MemberState::Stable => 0,
            MemberState::Unrevoked => 1,
            MemberState::Unreleased => 2,
            MemberState::Unknown => 127,
        }
    }
}

/// What a member has been told to own: record type 8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentAssignment {
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: MemberState,
    pub assigned: Assigned,
    /// To be given up. The member holds them until it says that it does not own them.
    pub revoking: Assigned,
}

impl CurrentAssignment {
    pub fn held(&self) -> impl Iterator<Item = (&TopicPartition, &i32)> {
        self.assigned.iter().chain(&self.revoking)
    }

    pub fn is_at(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }

    /// Whether the static member has left for a while.
    pub fn is_away(&self) -> bool {
        self.epoch == STATIC_LEAVE_EPOCH
    }

    /// Whether all of `owned` is assigned.
    pub fn covers(&self, owned: &Partitions) -> bool {
        owned
            .iter()
            .all(|partition| self.assigned.contains_key(partition))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerMember {
    pub metadata: Arc<MemberMetadata>,
    pub current: Arc<CurrentAssignment>,
}
