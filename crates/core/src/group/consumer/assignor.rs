//! Server-side assignors: from subscriptions and the last target to a new one.
//!
//! Results are deterministic and need not equal Apache Kafka's, because the target is stored; their
//! bounds do.

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
    /// In the order in which members are served: by instance id, then by member id.
    pub members: Vec<AssignorMember>,
    pub partition_counts: BTreeMap<Uuid, i32>,
}

#[derive(Clone, Debug, Default)]
pub struct AssignorMember {
    pub member_id: Arc<str>,
    pub topics: BTreeSet<Uuid>,
    /// Its last target.
    pub target: Arc<Partitions>,
}

impl AssignorInput {
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
