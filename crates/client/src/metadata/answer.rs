//! Merges a metadata response into the next snapshot; newer knowledge is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::metadata::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};

use crate::error::Error;
use crate::network::io::Address;

use super::snapshot::{Node, NodeId, Partition, Snapshot, Topic};

/// Leader epochs of older versions are unreliable: brokers before 2.4 did not propagate them
/// (KAFKA-9212, as in Kafka's client).
const RELIABLE_EPOCH_VERSION: i16 = 9;
/// Partition indices that a response may skip below its highest, all topics together. Kafka skips
/// none; without a bound an index of 2^31 would take gigabytes.
const GAPS_MAX: usize = 10_000;

/// What a metadata request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedTopics {
    All,
    /// Every wanted topic.
    Wanted(Vec<Arc<str>>),
    /// Only those not known yet; the others stay as they are (KIP-526).
    New(Vec<Arc<str>>),
    Nodes,
}

/// The next snapshot, and whether something is still missing.
#[derive(Debug)]
pub struct Merged {
    pub snapshot: Snapshot,
    /// A topic does not exist yet, or a partition has no leader: worth asking again.
    pub is_incomplete: bool,
    /// Topics that the broker does not know.
    pub unknown: Vec<Arc<str>>,
}

/// What is wrong with a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A broker that has just started answers like this; Kafka's client ignores it, too.
    NoBrokers,
    Malformed(String),
}

pub fn merge(
    previous: &Snapshot,
    response: &MetadataResponse<'_>,
    version: i16,
    asked: &AskedTopics,
) -> Result<Merged, Flaw> {
    let nodes = nodes(&response.brokers).map_err(Flaw::Malformed)?;
    if nodes.is_empty() {
        return Err(Flaw::NoBrokers);
    }
    let mut snapshot = Snapshot {
        version: previous.version + 1,
        cluster_id: response.cluster_id.map(Arc::from),
        controller: Some(NodeId(response.controller_id)).filter(|id| nodes.contains_key(id)),
        nodes,
        ..Snapshot::default()
    };
    if let AskedTopics::New(topics) = asked {
        let asked: BTreeSet<&Arc<str>> = topics.iter().collect();
        let others = |name: &Arc<str>| !asked.contains(name);
        snapshot.topics = kept(&previous.topics, others);
        snapshot.refused = kept(&previous.refused, others);
    }
    let mut merged = Merged {
        snapshot,
        unknown: Vec::new(),
        is_incomplete: false,
    };
    let mut gaps_left = GAPS_MAX;
    for topic in &response.topics {
        merged
            .take(previous, topic, version, &mut gaps_left)
            .map_err(Flaw::Malformed)?;
    }
    Ok(merged)
}

fn kept<V: Clone>(map: &BTreeMap<Arc<str>, V>, keep: impl Fn(&Arc<str>) -> bool) -> BTreeMap<Arc<str>, V> {
    map.iter()
        .filter(|(name, _)| keep(name))
        .map(|(name, value)| (Arc::clone(name), value.clone()))
        .collect()
}

fn nodes(brokers: &[MetadataResponseBroker<'_>]) -> Result<BTreeMap<NodeId, Node>, String> {
    brokers
        .iter()
        .map(|broker| {
            let port = u16::try_from(broker.port)
                .map_err(|_| format!("broker {} has port {}", broker.node_id, broker.port))?;
            let id = NodeId(broker.node_id);
            let node = Node {
                id,
                address: Address {
                    host: broker.host.into(),
                    port,
                },
                rack: broker.rack.map(Arc::from),
            };
            Ok((id, node))
        })
        .collect()
}

impl Merged {
    fn take(
        &mut self,
        previous: &Snapshot,
        topic: &MetadataResponseTopic<'_>,
        version: i16,
        gaps_left: &mut usize,
    ) -> Result<(), String> {
        // Only requests by topic id can be answered without a name, and this client asks by name.
        let Some(name) = topic.name else {
            return Ok(());
        };
        match ErrorCode::from_i16(topic.error_code) {
            Some(ErrorCode::None) => {}
            Some(code) if code.is_retriable() => {
                self.is_incomplete = true;
                if code == ErrorCode::UnknownTopicOrPartition {
                    self.unknown.push(name.into());
                }
                return Ok(());
            }
            _ => {
                let name: Arc<str> = name.into();
                let error = Error::from_code(topic.error_code, || Arc::clone(&name));
                self.snapshot.refused.extend(error.map(|error| (name, error)));
                return Ok(());
            }
        }
        let before = previous.topics.get(name);
        let partitions = self.partitions(before, topic, version, gaps_left)?;
        let topic = Topic {
            name: before.map_or_else(|| name.into(), |before| Arc::clone(&before.name)),
            id: topic.topic_id,
            partitions,
            is_internal: topic.is_internal,
            usage: before.map(|before| before.usage.clone()).unwrap_or_default(),
        };
        let topic = match before {
            Some(before) if before.is_same(&topic) => Arc::clone(before),
            _ => Arc::new(topic),
        };
        self.snapshot.topics.insert(Arc::clone(&topic.name), topic);
        Ok(())
    }

    fn partitions(
        &mut self,
        before: Option<&Arc<Topic>>,
        topic: &MetadataResponseTopic<'_>,
        version: i16,
        gaps_left: &mut usize,
    ) -> Result<Vec<Partition>, String> {
        // A topic that was deleted and recreated starts its epochs again.
        let before = before.filter(|before| before.id == topic.topic_id);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for found in &topic.partitions {
            let index = usize::try_from(found.partition_index).map_err(|_| {
                format!(
                    "partition {} of topic {}",
                    found.partition_index,
                    topic.name.unwrap_or_default()
                )
            })?;
            if index >= partitions.len() {
                let gap = index - partitions.len();
                *gaps_left = gaps_left
                    .checked_sub(gap)
                    .ok_or_else(|| format!("partition {index}, with {gap} missing before it"))?;
                partitions.resize_with(index + 1, Partition::default);
            }
            let known = before.and_then(|before| before.partitions.get(index));
            partitions[index] = self.partition(known, found, version);
        }
        Ok(partitions)
    }

    fn partition(
        &mut self,
        known: Option<&Partition>,
        found: &MetadataResponsePartition,
        version: i16,
    ) -> Partition {
        let leader_epoch = if version >= RELIABLE_EPOCH_VERSION {
            found.leader_epoch
        } else {
            -1
        };
        // KIP-320: the answer of a lagging broker must not bring back a former leader.
        if let Some(known) = known
            && leader_epoch >= 0
            && leader_epoch < known.leader_epoch
        {
            return known.clone();
        }
        let leader = Some(NodeId(found.leader_id)).filter(|id| self.snapshot.nodes.contains_key(id));
        self.is_incomplete |= leader.is_none();
        Partition {
            leader,
            leader_epoch,
            replicas: found.replica_nodes.iter().map(|id| NodeId(*id)).collect(),
            in_sync: found.isr_nodes.iter().map(|id| NodeId(*id)).collect(),
        }
    }
}
