//! What an assignor knows of the cluster: how many partitions each topic has, and in which racks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::metadata::snapshot::Snapshot;

/// The racks of each partition's replicas, by partition index (KIP-881).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicReplicas {
    pub racks: Vec<BTreeSet<Arc<str>>>,
}

impl TopicReplicas {
    pub fn without_racks(partition_count: usize) -> TopicReplicas {
        TopicReplicas {
            racks: vec![BTreeSet::new(); partition_count],
        }
    }

    pub fn partition_count(&self) -> usize {
        self.racks.len()
    }
}

/// The topics of `names` that exist and have partitions.
pub fn replicas(snapshot: &Snapshot, names: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, TopicReplicas> {
    let mut found = BTreeMap::new();
    for name in names {
        let Some(topic) = snapshot.topic(name).filter(|topic| !topic.partitions.is_empty()) else {
            continue;
        };
        let racks = topic
            .partitions
            .iter()
            .map(|partition| {
                let nodes = partition.replicas.iter().filter_map(|id| snapshot.nodes.get(id));
                nodes.filter_map(|node| node.rack.clone()).collect()
            })
            .collect();
        found.insert(topic.name.clone(), TopicReplicas { racks });
    }
    found
}
