//! How far groups have committed: for metrics, which are read every few seconds and must be cheap.

use std::sync::Arc;

use super::classic::Group;

/// A group of consumers, with or without members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    pub group_id: Arc<str>,
    /// Kafka's name of the state.
    pub state: &'static str,
    pub member_count: usize,
    /// Offsets committed since this broker coordinates the group, and those that it found.
    pub offset_commits: u64,
    pub committed: Vec<CommittedAt>,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedAt {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

/// The progress of all groups.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub groups: Vec<GroupProgress>,
    /// Committed offsets beyond the limit of the reading.
    pub offsets_left_out: usize,
}

impl Progress {
    /// Adds a group, with as many of its offsets as there is room for.
    pub(super) fn add(&mut self, group: &Group, state: &'static str, room: &mut OffsetRoom) {
        if group.is_void() {
            return;
        }
        let all = group.offsets.iter();
        let mut committed = Vec::new();
        for (topic, partition, value) in all {
            if !room.take() {
                self.offsets_left_out += 1;
                continue;
            }
            committed.push(CommittedAt {
                topic: topic.clone(),
                partition,
                offset: value.offset,
            });
        }
        self.groups.push(GroupProgress {
            group_id: group.group_id.clone(),
            state,
            member_count: group.member_count(),
            offset_commits: group.offsets.commits(),
            committed,
        });
    }
}

/// How many more offsets may be read: the coordinator's lock is held meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct OffsetRoom(pub usize);

impl OffsetRoom {
    fn take(&mut self) -> bool {
        let has_room = self.0 > 0;
        self.0 -= usize::from(has_room);
        has_room
    }
}

impl Group {
    fn member_count(&self) -> usize {
        let of_consumer = self.consumer.as_ref().map(|consumer| consumer.members.len());
        of_consumer.unwrap_or(self.members.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::offsets::CommittedOffset;
    use super::*;
    use crate::time::Timestamp;
    use ottla_wire::primitives::Uuid;

    fn group(group_id: &str, partitions: i32) -> Group {
        let mut group = Group::new(group_id.into());
        for partition in 0..partitions {
            let committed = CommittedOffset {
                offset: i64::from(partition) * 10,
                leader_epoch: -1,
                metadata: "".into(),
                commit_timestamp: Timestamp(0),
                expire_timestamp: None,
                topic_id: Uuid::ZERO,
            };
            group.offsets.insert("t".into(), partition, 0, committed);
        }
        group
    }

    #[test]
    fn a_group_without_members_is_read_and_offsets_beyond_the_limit_are_counted() {
        let mut progress = Progress::default();
        let mut room = OffsetRoom(5);
        for (name, partitions) in [("a", 3), ("b", 3), ("void", 0)] {
            progress.add(&group(name, partitions), "Empty", &mut room);
        }
        assert_eq!(progress.groups[0].offset_commits, 3);
        let read: Vec<(&str, usize, Vec<i64>)> = (progress.groups.iter())
            .map(|group| {
                let offsets = group.committed.iter().map(|committed| committed.offset);
                (&*group.group_id, group.member_count, offsets.collect())
            })
            .collect();
        assert_eq!(read, [("a", 0, vec![0, 10, 20]), ("b", 0, vec![0, 10])]);
        assert_eq!(progress.offsets_left_out, 1);
    }
}
