//! `roundrobin`: all partitions of all topics, assigned to the members in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::subscription::MemberSubscription;
use super::topics::TopicReplicas;
use super::{GroupAssignment, empty_assignment};
use crate::consumer::topic_partition::TopicPartition;

pub fn assign(topics: &BTreeMap<Arc<str>, TopicReplicas>, members: &[MemberSubscription]) -> GroupAssignment {
    let mut assignment = empty_assignment(members);
    let mut dealt_to: Vec<&MemberSubscription> = members.iter().collect();
    dealt_to.sort_by(|left, right| left.compare(right));
    let subscribed: BTreeSet<&Arc<str>> = members.iter().flat_map(|member| &member.topics).collect();
    let mut next = 0;
    for topic in subscribed {
        let Some(replicas) = topics.get(topic) else {
            continue;
        };
        for partition in 0..replicas.partition_count() {
            while !dealt_to[next].topics.contains(topic) {
                next = (next + 1) % dealt_to.len();
            }
            if let Some(partitions) = assignment.get_mut(&dealt_to[next].member_id) {
                partitions.insert(TopicPartition::new(topic.clone(), partition as i32));
            }
            next = (next + 1) % dealt_to.len();
        }
    }
    assignment
}
