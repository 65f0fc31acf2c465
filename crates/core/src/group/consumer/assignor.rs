//! Server-side assignors: from subscriptions and the last target to a new one.
//!
//! `range` assigns as Apache Kafka's. What Apache Kafka's `uniform` assigns depends on the order of
//! a hash table; ours is as even and moves as little (`cargo xtask interop --only oracle`). The
//! target is stored, so that two brokers need not compute the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use super::assignment::Partitions;
use super::{range, uniform};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignor {
    /// Counts differ by at most 1, and members keep what they have.
    Uniform,
    /// Contiguous shares of each topic: topics of equal partition counts are co-partitioned.
    Range,
}

impl Assignor {
    pub const ALL: [Assignor; 2] = [Assignor::Uniform, Assignor::Range];

    pub fn name(self) -> &'static str {
        match self {
            Assignor::Uniform => "uniform",
            Assignor::Range => "range",
        }
    }

    pub fn of(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|assignor| assignor.name() == name)
    }

    pub fn assign(self, input: &AssignorInput) -> BTreeMap<Arc<str>, Partitions> {
        match self {
            Assignor::Uniform => uniform::assign(input),
            Assignor::Range => range::assign(input),
        }
    }
}

/// What an assignor knows. Only topics that exist occur in it.
#[derive(Clone, Debug, Default)]
pub struct AssignorInput {
    /// In the order in which members are served.
    pub members: Vec<AssignorMember>,
    pub partition_counts: BTreeMap<Uuid, i32>,
}

#[derive(Clone, Debug, Default)]
pub struct AssignorMember {
    pub member_id: Arc<str>,
    pub instance_id: Option<Arc<str>>,
    pub topics: BTreeSet<Uuid>,
    /// Its last target.
    pub target: Arc<Partitions>,
}

impl AssignorInput {
    /// Static members are served first, by instance id: their places survive a restart of any other
    /// member. Then the others, by member id.
    pub fn new(mut members: Vec<AssignorMember>, partition_counts: BTreeMap<Uuid, i32>) -> AssignorInput {
        let place = |member: &AssignorMember| {
            let instance_id = member.instance_id.clone();
            (instance_id.is_none(), instance_id, member.member_id.clone())
        };
        members.sort_by_cached_key(place);
        AssignorInput {
            members,
            partition_counts,
        }
    }

    /// Returns the indexes of the members that subscribe to a topic, for every topic.
    pub fn subscribers(&self) -> BTreeMap<Uuid, Vec<usize>> {
        let mut subscribers: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (index, member) in self.members.iter().enumerate() {
            for topic_id in &member.topics {
                subscribers.entry(*topic_id).or_default().push(index);
            }
        }
        subscribers
    }

    pub fn with_ids(&self, assigned: Vec<Partitions>) -> BTreeMap<Arc<str>, Partitions> {
        let ids = self.members.iter().map(|member| member.member_id.clone());
        ids.zip(assigned).collect()
    }
}
