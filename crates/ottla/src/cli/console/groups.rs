//! Groups: members, committed offsets and lag in records.

use std::collections::BTreeSet;

use ottla_client::admin::{Admin, GroupDescription, OffsetSpec, TopicPartition};
use ottla_console::source::{Group, GroupOffset, Groups, Member, Told};

use super::cluster::untold;
use super::topics::offsets;

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
            true
        });
    }
    Ok(Groups { groups, cut })
}

fn partition_of(offset: &GroupOffset) -> TopicPartition {
    TopicPartition::new(offset.topic.as_str(), offset.partition)
}

fn group(admin: &Admin, group_id: String, described: GroupDescription) -> Group {
    // A group that has committed nothing, or whose offsets are not to be read, has no lag to show.
    let committed = admin.list_group_offsets(&group_id).wait().unwrap_or_default();
    Group {
        state: Some(described.state),
        members: described
            .members
            .into_iter()
            .map(|member| Member {
                member_id: member.id,
                client_id: member.client_id,
                host: member.client_host.trim_start_matches('/').to_owned(),
            })
            .collect(),
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
