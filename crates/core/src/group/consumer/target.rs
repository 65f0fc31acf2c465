//! The target assignment: computed when the group epoch has passed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::group::classic::Group;
use crate::group::turn::Turn;
use crate::image::topics::TopicsImage;
use crate::time::Now;

use super::assignor::{Assignor, AssignorInput, AssignorMember};
use super::group::ConsumerGroup;
use super::record::{ConsumerRecord, TargetEpoch};

impl Group {
    /// Computes the target assignment if it is out of date, and not younger than the group's
    /// assignment interval. Until then members go on with the old one.
    pub(super) fn update_target(&mut self, turn: &mut Turn<'_>, topics: &TopicsImage, interval_ms: i32) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        let epoch = consumer.epoch;
        if epoch <= consumer.target_epoch.epoch || !has_passed(consumer.target_epoch, turn.now, interval_ms) {
            return;
        }
        let assignor = consumer.assignor(&turn.config.consumer.assignors);
        let assigned = assignor.assign(&input_of(consumer, topics));
        let changed: Vec<_> = assigned
            .into_iter()
            .filter(|(member_id, partitions)| *partitions != *consumer.target_of(member_id))
            .collect();
        for (member_id, partitions) in changed {
            let record = ConsumerRecord::Target(member_id, Some(Arc::new(partitions)));
            self.record_consumer(turn, record);
        }
        let timestamp = turn.now.timestamp;
        self.record_consumer(
            turn,
            ConsumerRecord::TargetEpoch(Some(TargetEpoch { epoch, timestamp })),
        );
    }
}

/// Whether a target assignment is at least this old. A clock that went back does not stop
/// assignments.
pub(super) fn has_passed(last: TargetEpoch, now: Now, interval_ms: i32) -> bool {
    let passed_ms = now.timestamp.0 - last.timestamp.0;
    last.timestamp.0 <= 0 || passed_ms < 0 || passed_ms >= i64::from(interval_ms)
}

fn input_of(consumer: &ConsumerGroup, topics: &TopicsImage) -> AssignorInput {
    let mut partition_counts = BTreeMap::new();
    let mut members = Vec::with_capacity(consumer.members.len());
    for (member_id, member) in &consumer.members {
        let names = consumer.topics_of(&member.metadata);
        let mut ids = BTreeSet::new();
        for topic in names.into_iter().filter_map(|name| topics.by_name(name)) {
            ids.insert(topic.id);
            let partition_count = i32::try_from(topic.partitions.len()).expect("bounded by the metadata log");
            partition_counts.insert(topic.id, partition_count);
        }
        members.push(AssignorMember {
            member_id: member_id.clone(),
            instance_id: member.metadata.instance_id.clone(),
            topics: ids,
            target: consumer.target_of(member_id),
        });
    }
    AssignorInput::new(members, partition_counts)
}

impl ConsumerGroup {
    /// Returns the assignor that most members ask for, else the first of the configured ones.
    pub fn assignor(&self, configured: &[Assignor]) -> Assignor {
        let first = configured.first().copied().unwrap_or(Assignor::Uniform);
        let votes = |assignor: &Assignor| {
            let named = self
                .members
                .values()
                .filter_map(|member| member.metadata.assignor.as_deref());
            named.filter(|name| *name == assignor.name()).count()
        };
        let mut best = (0, first);
        for assignor in configured {
            let count = votes(assignor);
            if count > best.0 {
                best = (count, *assignor);
            }
        }
        best.1
    }
}
