//! Topics and their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use crate::config::TopicConfig;

/// A partition without a leader.
pub const NO_LEADER: i32 = -1;

/// All topics, by name and by id.
#[derive(Clone, Debug, Default)]
pub struct TopicsImage {
    pub(super) by_name: BTreeMap<Arc<str>, Arc<TopicImage>>,
    pub(super) by_id: BTreeMap<Uuid, Arc<TopicImage>>,
    pub(super) partition_count: usize,
}

impl TopicsImage {
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_name.get(name)
    }

    pub fn by_id(&self, id: Uuid) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// All topics in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values()
    }

    /// Topics whose name is greater than `after`, or all of them from `first` on when `inclusive`.
    pub fn iter_from<'a>(&'a self, first: &str, inclusive: bool) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        use std::ops::Bound;
        let bound = if inclusive { Bound::Included(first) } else { Bound::Excluded(first) };
        self.by_name.range::<str, _>((bound, Bound::Unbounded)).map(|(_, topic)| topic)
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Partitions of all topics together.
    pub fn partition_count(&self) -> usize {
        self.partition_count
    }
}

#[derive(Clone, Debug)]
pub struct TopicImage {
    pub name: Arc<str>,
    pub id: Uuid,
    /// Indexed by partition number.
    pub partitions: Vec<PartitionImage>,
    /// What holds for this topic: its own settings over the broker's over the cluster's over the file's.
    pub config: Arc<TopicConfig>,
}

impl TopicImage {
    pub fn partition(&self, index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// True for the topics that the broker itself keeps state in.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.name)
    }
}

/// True for names of topics that the broker itself keeps state in.
pub fn is_internal(topic: &str) -> bool {
    matches!(topic, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    pub replicas: Box<[i32]>,
    /// Parallel to `replicas`.
    pub directories: Box<[Uuid]>,
    pub isr: Box<[i32]>,
    pub removing_replicas: Box<[i32]>,
    pub adding_replicas: Box<[i32]>,
    /// KIP-966.
    pub eligible_leader_replicas: Box<[i32]>,
    pub last_known_elr: Box<[i32]>,
    /// -1 when there is none.
    pub leader: i32,
    /// 1 while the leader was elected without being in the ISR and has not caught up with that.
    pub leader_recovery_state: i8,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
}

impl PartitionImage {
    pub fn is_replica(&self, node_id: i32) -> bool {
        self.replicas.contains(&node_id)
    }
}
