//! One immutable picture of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use crate::error::Error;
use crate::network::io::Address;

/// A broker's id; the hosts of `bootstrap.servers`, before anything is known, count down from −1 as in Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub address: Address,
    pub rack: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Topic {
    pub name: Arc<str>,
    /// Zero where the broker is older than topic ids (KIP-516).
    pub id: Uuid,
    /// By index; a partition that the broker did not name has no leader and epoch −1.
    pub partitions: Vec<Partition>,
    pub is_internal: bool,
}

#[derive(Clone, Debug)]
pub struct Partition {
    pub leader: Option<NodeId>,
    pub leader_epoch: i32,
    pub replicas: Vec<NodeId>,
    pub in_sync: Vec<NodeId>,
}

/// The cluster as the last answer described it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with every new picture.
    pub version: u64,
    pub cluster_id: Option<Arc<str>>,
    pub controller: Option<NodeId>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub topics: BTreeMap<Arc<str>, Arc<Topic>>,
    /// Topics that were asked for and answered with an error that waiting does not mend.
    pub refused: BTreeMap<Arc<str>, Error>,
}

impl Snapshot {
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    pub fn leader(&self, topic: &str, partition: i32) -> Option<NodeId> {
        let index = usize::try_from(partition).ok()?;
        self.topics.get(topic)?.partitions.get(index)?.leader
    }
}
