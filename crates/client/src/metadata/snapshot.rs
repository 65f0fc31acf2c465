//! An immutable snapshot of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ottla_wire::primitives::Uuid;

use crate::error::Error;
use crate::network::io::Address;

/// A broker's id; the hosts of `bootstrap.servers` count down from −1 before brokers are known, as
/// in Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

/// A broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// `node.id`, or `broker.id`.
    pub id: NodeId,
    /// Of the listener through which the client reached the cluster.
    pub address: Address,
    /// `broker.rack`.
    pub rack: Option<Arc<str>>,
}

/// A topic as the brokers described it last.
#[derive(Clone, Debug, Default)]
pub struct Topic {
    /// Unique in the cluster.
    pub name: Arc<str>,
    /// Zero where the broker is older than topic ids (KIP-516).
    pub id: Uuid,
    /// By index; a partition that the broker did not name has no leader and epoch −1.
    pub partitions: Vec<Partition>,
    /// Kafka's own, like `__consumer_offsets`.
    pub is_internal: bool,
    /// When a thread of this client used it last.
    pub usage: Usage,
}

impl Topic {
    /// Whether both describe the same state.
    pub fn is_same(&self, other: &Topic) -> bool {
        self.name == other.name
            && self.id == other.id
            && self.partitions == other.partitions
            && self.is_internal == other.is_internal
    }
}

/// Whether a topic was used since the last check: unused ones are forgotten
/// (`metadata.max.idle.ms`). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    was_used: Arc<AtomicBool>,
}

impl Usage {
    /// Marks it as used. Costs only a load where it is already marked, so that threads do not
    /// contend for the cache line.
    pub fn note(&self) {
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call.
    pub fn take(&self) -> bool {
        self.was_used.swap(false, Ordering::Relaxed)
    }
}

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// `None`: there is none now, or its address is not known.
    pub leader: Option<NodeId>,
    /// −1 where the broker does not send it (older than 2.4, whose epochs are unreliable).
    pub leader_epoch: i32,
    /// The brokers that have a replica; the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Those of them that are in sync.
    pub in_sync: Vec<NodeId>,
}

impl Default for Partition {
    fn default() -> Partition {
        Partition {
            leader: None,
            leader_epoch: -1,
            replicas: Vec::new(),
            in_sync: Vec::new(),
        }
    }
}

/// The cluster as described by the last answer.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with every new snapshot; 0 before the first answer.
    pub version: u64,
    /// `None`: not known yet.
    pub cluster_id: Option<Arc<str>>,
    /// `None`: not known now.
    pub controller: Option<NodeId>,
    /// The brokers that are up.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The topics that this client asked for and that exist.
    pub topics: BTreeMap<Arc<str>, Arc<Topic>>,
    /// Topics answered with an error that waiting does not fix.
    pub refused: BTreeMap<Arc<str>, Error>,
}

impl Snapshot {
    /// The topic with this name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// The leader of a partition; `None` where the topic, the partition or the leader is not known.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<NodeId> {
        let index = usize::try_from(partition).ok()?;
        self.topics.get(topic)?.partitions.get(index)?.leader
    }
}
