//! The coordinators of one topic: which one is responsible for an id.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Waker;

use ottla_wire::primitives::Uuid;

use super::runtime::{Coordinator, Kind, Readiness};
use crate::storage::Storage;
use crate::time::Moment;

/// The facts about its topic that a coordinator needs.
pub struct CoordinatorTopic {
    pub topic_id: Uuid,
    /// At least 1.
    pub partition_count: i32,
    /// Upper bound of a batch, in bytes.
    pub batch_bytes_max: usize,
}

/// What a client has to wait for before its coordinator can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    Ready,
    Loading,
    NoTopic,
    Failed,
}

pub struct Registry<K: Kind> {
    make: Box<dyn Fn(&CoordinatorTopic) -> K + Send + Sync>,
    /// By partition of the topic.
    coordinators: RwLock<BTreeMap<i32, Arc<Coordinator<K>>>>,
}

impl<K: Kind> Registry<K> {
    /// - `make`: makes what a coordinator of the topic needs besides its log.
    pub fn new(make: impl Fn(&CoordinatorTopic) -> K + Send + Sync + 'static) -> Registry<K> {
        Registry {
            make: Box::new(make),
            coordinators: RwLock::default(),
        }
    }

    /// Returns the topic; `None`: it does not exist yet.
    pub fn topic(storage: &Storage) -> Option<CoordinatorTopic> {
        let image = storage.image();
        let topic = image.topic(K::TOPIC)?;
        Some(CoordinatorTopic {
            topic_id: topic.id,
            partition_count: i32::try_from(topic.partitions.len())
                .ok()
                .filter(|count| *count > 0)?,
            batch_bytes_max: usize::try_from(topic.config.max_message_bytes).unwrap_or(0),
        })
    }

    /// Returns the coordinator of a group or transactional id; `None`: the topic does not exist.
    pub fn of(&self, storage: &Storage, id: &str) -> Option<Arc<Coordinator<K>>> {
        let topic = Self::topic(storage)?;
        Some(self.get(&topic, partition_for(id, topic.partition_count)))
    }

    /// Returns the coordinators of all partitions.
    pub fn all(&self, storage: &Storage) -> Vec<Arc<Coordinator<K>>> {
        let Some(topic) = Self::topic(storage) else {
            return Vec::new();
        };
        (0..topic.partition_count)
            .map(|index| self.get(&topic, index))
            .collect()
    }

    /// Returns those that were asked for before.
    pub fn known(&self) -> Vec<Arc<Coordinator<K>>> {
        let coordinators = self.coordinators.read().unwrap_or_else(PoisonError::into_inner);
        coordinators.values().cloned().collect()
    }

    /// Returns the coordinator of a partition. A topic that was deleted and created again has new
    /// coordinators.
    pub fn get(&self, topic: &CoordinatorTopic, partition_index: i32) -> Arc<Coordinator<K>> {
        let is_current = |known: &&Arc<Coordinator<K>>| known.topic_id == topic.topic_id;
        {
            let coordinators = self.coordinators.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = coordinators.get(&partition_index).filter(is_current) {
                return known.clone();
            }
        }
        let mut coordinators = self.coordinators.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = coordinators.get(&partition_index).filter(is_current) {
            return known.clone();
        }
        let coordinator = Coordinator::new(topic.topic_id, partition_index, (self.make)(topic));
        let coordinator = Arc::new(coordinator);
        coordinators.insert(partition_index, coordinator.clone());
        coordinator
    }

    /// Whether the coordinator of `id` can take requests; if not, loads it and wakes `waker` then.
    pub fn prepare(&self, storage: &Storage, id: &str, waker: &Waker) -> Preparation {
        match self.of(storage, id) {
            None => Preparation::NoTopic,
            Some(coordinator) => match coordinator.load(storage, Some(waker)) {
                Readiness::Ready => Preparation::Ready,
                Readiness::Loading => Preparation::Loading,
                Readiness::Failed => Preparation::Failed,
            },
        }
    }

    /// Starts to load every coordinator that is not loaded, so that what it knows goes on without
    /// requests.
    pub fn load_all(&self, storage: &Storage) {
        for coordinator in self.all(storage) {
            coordinator.load(storage, None);
        }
    }

    /// Tells machines of closed connections, and reloads those that failed.
    pub fn maintain(&self, storage: &Storage) {
        for coordinator in self.all(storage) {
            coordinator.load(storage, None);
            coordinator.settle_abandoned(&storage.services);
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let coordinators = self.coordinators.read().unwrap_or_else(PoisonError::into_inner);
        coordinators
            .values()
            .filter_map(|coordinator| coordinator.deadline())
            .min()
    }
}

/// Java's `String.hashCode`, made non-negative as by Apache Kafka's `Utils.abs`, modulo the number
/// of partitions.
pub fn partition_for(group_id: &str, partition_count: i32) -> i32 {
    let hash = group_id.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partition_count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(group_id: &str, hash: i32) {
        let positive = i64::from(hash).abs();
        assert_eq!(
            i64::from(partition_for(group_id, 50)),
            positive % 50,
            "{group_id}"
        );
    }

    #[test]
    fn a_group_maps_to_the_same_partition_as_in_java() {
        // Values of String.hashCode from a JVM.
        check("", 0);
        check("g", 103);
        check("console-consumer-12345", 158_455_506);
        check("grüße-😀", 347_391_577);
    }

    #[test]
    fn the_hash_without_a_positive_counterpart_counts_as_zero() {
        // "polygenelubricants" hashes to i32::MIN.
        assert_eq!(partition_for("polygenelubricants", 50), 0);
    }
}
