//! Topics and their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::metadata_records::partition::PartitionRecord;
use ottla_wire::metadata_records::partition_change::PartitionChangeRecord;
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

    /// Returns topics whose name is greater than `after`, including `after` itself when
    /// `inclusive`.
    pub fn iter_from<'a>(
        &'a self,
        first: &str,
        inclusive: bool,
    ) -> impl Iterator<Item = &'a Arc<TopicImage>> {
        use std::ops::Bound;
        let bound = if inclusive {
            Bound::Included(first)
        } else {
            Bound::Excluded(first)
        };
        self.by_name
            .range::<str, _>((bound, Bound::Unbounded))
            .map(|(_, topic)| topic)
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the number of partitions of all topics.
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
    /// The effective settings of this topic: its own over the broker's over the cluster's over the
    /// file's.
    pub config: Arc<TopicConfig>,
}

impl TopicImage {
    pub fn partition(&self, index: i32) -> Option<&PartitionImage> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// True for topics in which the broker keeps its own state.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.name)
    }
}

/// True for names of topics in which the broker keeps its own state.
pub fn is_internal(topic: &str) -> bool {
    matches!(
        topic,
        "__consumer_offsets" | "__transaction_state" | "__share_group_state"
    )
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
    /// −1 when there is none.
    pub leader: i32,
    /// 1 while the leader, which was elected from outside the ISR, has not finished recovery.
    pub leader_recovery_state: i8,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
}

/// The value of PartitionChangeRecord for an unchanged leader.
const LEADER_UNCHANGED: i32 = -2;
const RECOVERY_STATE_UNCHANGED: i8 = -1;

impl PartitionImage {
    pub(super) fn from_record(record: &PartitionRecord) -> PartitionImage {
        PartitionImage {
            replicas: record.replicas.clone().into(),
            // A partition from before directories had ids is in the reserved directory 0…0,
            // MIGRATING.
            directories: if record.directories.is_empty() {
                vec![Uuid::ZERO; record.replicas.len()].into()
            } else {
                record.directories.clone().into()
            },
            isr: record.isr.clone().into(),
            removing_replicas: record.removing_replicas.clone().into(),
            adding_replicas: record.adding_replicas.clone().into(),
            eligible_leader_replicas: record.eligible_leader_replicas.clone().unwrap_or_default().into(),
            last_known_elr: record.last_known_elr.clone().unwrap_or_default().into(),
            leader: record.leader,
            leader_recovery_state: record.leader_recovery_state,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
        }
    }

    // Every change raises the partition epoch; naming a leader, even the same or none, raises the
    // leader epoch.
    pub(super) fn change(&mut self, record: &PartitionChangeRecord) {
        fn replace<T: Clone>(field: &mut Box<[T]>, value: &Option<Vec<T>>) {
            if let Some(value) = value {
                *field = value.clone().into();
            }
        }
        replace(&mut self.isr, &record.isr);
        replace(&mut self.replicas, &record.replicas);
        replace(&mut self.directories, &record.directories);
        replace(&mut self.removing_replicas, &record.removing_replicas);
        replace(&mut self.adding_replicas, &record.adding_replicas);
        replace(
            &mut self.eligible_leader_replicas,
            &record.eligible_leader_replicas,
        );
        replace(&mut self.last_known_elr, &record.last_known_elr);
        if record.leader != LEADER_UNCHANGED {
            self.leader = record.leader;
            self.leader_epoch = self.leader_epoch.saturating_add(1);
        }
        if record.leader_recovery_state != RECOVERY_STATE_UNCHANGED {
            self.leader_recovery_state = record.leader_recovery_state;
        }
        self.partition_epoch = self.partition_epoch.saturating_add(1);
    }

    /// Whether the partition has fields of KIP-966.
    pub fn has_elr(&self) -> bool {
        !self.eligible_leader_replicas.is_empty() || !self.last_known_elr.is_empty()
    }

    pub fn is_replica(&self, node_id: i32) -> bool {
        self.replicas.contains(&node_id)
    }
}

#[cfg(test)]
impl TopicsImage {
    /// Returns topics of these names, ids and partition counts.
    pub fn of(topics: &[(&str, Uuid, usize)]) -> TopicsImage {
        let mut image = TopicsImage::default();
        for (name, id, partition_count) in topics {
            let partition = PartitionImage::from_record(&PartitionRecord::default());
            let topic = Arc::new(TopicImage {
                name: (*name).into(),
                id: *id,
                partitions: vec![partition; *partition_count],
                config: Arc::default(),
            });
            image.by_name.insert(topic.name.clone(), topic.clone());
            image.by_id.insert(*id, topic);
            image.partition_count += partition_count;
        }
        image
    }
}
