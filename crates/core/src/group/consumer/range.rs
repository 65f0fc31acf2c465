//! The assignor `range`: each topic is divided among its subscribers in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::assignment::Partitions;
use super::assignor::AssignorInput;

pub(super) fn assign(input: &AssignorInput) -> BTreeMap<Arc<str>, Partitions> {
    let mut assigned = vec![Partitions::new(); input.members.len()];
    for (topic_id, subscribers) in input.subscribers() {
        let partition_count = input.partition_counts[&topic_id];
        let member_count = i32::try_from(subscribers.len()).expect("bounded by group.consumer.max.size");
        let (share, extra) = (partition_count / member_count, partition_count % member_count);
        let mut next = 0;
        for (rank, index) in (0..).zip(subscribers) {
            let end = next + share + i32::from(rank < extra);
            assigned[index].extend((next..end).map(|partition| (topic_id, partition)));
            next = end;
        }
    }
    input.with_ids(assigned)
}
