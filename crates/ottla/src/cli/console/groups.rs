//! Groups: members, committed offsets and lag in records.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::{Admin, GroupDescription, GroupMember, OffsetSpec, TopicPartition};
use ottla_console::source::{Group, GroupOffset, Groups, Member, TimeUnknown, Told};

use super::cluster::untold;
use super::topics::offsets;
use crate::cli::doctor::now_ms;

/// Each group is asked of its own coordinator; how many more there are is told.
const GROUPS_MAX: usize = 500;

pub fn list(admin: &Admin) -> Told<Groups> {
    let listed = admin.list_groups().wait().map_err(|error| untold(&error))?;
    let cut = listed.len().saturating_sub(GROUPS_MAX);
    let ids: Vec<String> = listed.into_keys().take(GROUPS_MAX).collect();
    let described = admin
        .describe_groups(ids)
        .wait()
        .map_err(|error| untold(&error))?;
    let mut groups: Vec<Group> = described
        .into_iter()
        .filter_map(|(id, described)| Some(group(admin, id, described.ok()?)))
        .collect();
    let partitions: BTreeSet<TopicPartition> = groups
        .iter()
        .flat_map(|group| &group.offsets)
        .map(partition_of)
        .collect();
    let partitions: Vec<TopicPartition> = partitions.into_iter().collect();
    // The ends decide: what is committed is as old as they are, or a little older.
    let at_ms = now_ms();
    let starts = offsets(admin, &partitions, OffsetSpec::Earliest).map_err(|error| untold(&error))?;
    let ends = offsets(admin, &partitions, OffsetSpec::Latest).map_err(|error| untold(&error))?;
    for group in &mut groups {
        group.offsets.retain_mut(|offset| {
            let partition = partition_of(offset);
            let (Some(start), Some(end)) = (starts.get(&partition), ends.get(&partition)) else {
                // The topic is gone: nothing of it can be read.
                return false;
            };
            (offset.log_start, offset.log_end) = (*start, *end);
            offset.time_unknown = (offset.lag() > 0).then_some(TimeUnknown::NotTold);
            true
        });
    }
    Ok(Groups { at_ms, groups, cut })
}

fn partition_of(offset: &GroupOffset) -> TopicPartition {
    TopicPartition::new(offset.topic.as_str(), offset.partition)
}

fn group(admin: &Admin, group_id: String, described: GroupDescription) -> Group {
    // A group that has committed nothing, or whose offsets are not to be read, has no lag to show.
    let committed = admin.list_group_offsets(&group_id).wait().unwrap_or_default();
    Group {
        state: Some(described.state),
        members: described.members.into_iter().map(member).collect(),
        offsets: committed
            .into_iter()
            .map(|(partition, offset)| GroupOffset {
                topic: partition.topic.to_string(),
                partition: partition.partition,
                committed: offset.offset,
                ..GroupOffset::default()
            })
            .collect(),
        cut_partitions: 0,
        departures: None,
        rebalances: None,
        group_id,
    }
}

fn member(member: GroupMember) -> Member {
    let mut holds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in &member.assignment {
        let partitions = holds.entry(partition.topic.to_string()).or_default();
        partitions.push(partition.partition);
    }
    let is_stable = member.target_assignment.map(|target| target == member.assignment);
    Member {
        member_id: member.id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
        holds,
        holds_more: 0,
        state: is_stable.map(|is_stable| String::from(if is_stable { "stable" } else { "reconciling" })),
    }
}
