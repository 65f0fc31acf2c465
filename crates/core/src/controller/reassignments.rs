//! Decisions about placement and leadership of partitions: one node has no choice, and the answers
//! say so.

use ottla_wire::error_code::ErrorCode;

use super::Decider;
use crate::image::topics::PartitionImage;
use crate::refusal::Refusal;

/// The requested placement of a partition; `None` cancels a reassignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reassignment {
    pub topic: String,
    pub partition: i32,
    pub replicas: Option<Vec<i32>>,
}

impl Decider<'_> {
    /// Decides about every partition of an AlterPartitionReassignments request, in the request's
    /// order (KIP-455). Only the current placement is accepted, so there are no records.
    pub fn reassign_partitions(&self, reassignments: &[Reassignment]) -> Vec<Result<(), Refusal>> {
        let decide = |wanted: &Reassignment| {
            self.existing_partition(&wanted.topic, wanted.partition)?;
            match &wanted.replicas {
                None => Err(Refusal::plain(ErrorCode::NoReassignmentInProgress)),
                Some(replicas) => self.check_replicas(replicas),
            }
        };
        reassignments.iter().map(decide).collect()
    }

    fn check_replicas(&self, replicas: &[i32]) -> Result<(), Refusal> {
        let node_id = self.config.node_id;
        let refuse = |problem: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, problem));
        if let Some(stranger) = replicas.iter().find(|id| **id != node_id) {
            return refuse(format!(
                "broker {stranger} does not exist: this cluster has one node, {node_id}, and all replicas are on it"
            ));
        }
        match replicas {
            [] => refuse("a partition has at least one replica".to_owned()),
            [_] => Ok(()),
            _ => refuse(format!("broker {node_id} is named more than once")),
        }
    }

    /// Decides about every partition of an ElectLeaders request, in the request's order (KIP-460).
    pub fn elect_leaders(&self, partitions: &[(String, i32)]) -> Vec<Result<(), Refusal>> {
        let decide = |(topic, index): &(String, i32)| {
            let partition = self.existing_partition(topic, *index)?;
            if partition.leader == self.config.node_id {
                Err(Refusal::plain(ErrorCode::ElectionNotNeeded))
            } else {
                // Leadership is taken at the start and resigned at the stop.
                Err(Refusal::plain(ErrorCode::PreferredLeaderNotAvailable))
            }
        };
        partitions.iter().map(decide).collect()
    }

    fn existing_partition(&self, topic: &str, index: i32) -> Result<&PartitionImage, Refusal> {
        let refuse = |problem: String| Refusal::new(ErrorCode::UnknownTopicOrPartition, problem);
        let found = self.image.topic(topic);
        let found = found.ok_or_else(|| refuse(format!("there is no topic {topic}")))?;
        found
            .partition(index)
            .ok_or_else(|| refuse(format!("topic {topic} has no partition {index}")))
    }
}
