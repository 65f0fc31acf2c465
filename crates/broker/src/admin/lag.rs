//! Lag of consumer groups, in records and in seconds: exact, because the broker has both the
//! committed offsets and the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_core::group::progress::{CommittedAt, GroupProgress};
use ottla_core::node::Node;
use ottla_core::partition::{Offsets, Partition};
use ottla_log::{Lookup, ReadMode};

use super::exposition::Page;

/// Committed offsets that are looked at. Locks of coordinators are held for a part of the reading.
const OFFSETS_READ_MAX: usize = 20_000;

/// Committed offsets with series of their own, and sums of a group and a topic.
const SERIES_MAX: usize = 4_000;

/// Records whose time is looked up; each may have to be read from the device.
const LOOKUPS_MAX: usize = 500;

/// All groups at approximately one moment.
#[derive(Debug, Default)]
pub struct LagReading {
    /// By name; at most [`SERIES_MAX`].
    pub groups: Vec<GroupLag>,
    pub group_count: usize,
    /// Groups by state.
    pub states: BTreeMap<&'static str, u64>,
    /// Committed offsets without series of their own.
    pub offsets_left_out: usize,
}

#[derive(Debug)]
pub struct GroupLag {
    pub group_id: Arc<str>,
    pub state: &'static str,
    pub member_count: usize,
    pub offset_commits: u64,
    pub partitions: Vec<PartitionLag>,
    /// By topic.
    pub sums: BTreeMap<Arc<str>, TopicLag>,
    pub lag_max: i64,
    /// `None`: not known of any partition.
    pub seconds_max: Option<f64>,
    /// Partitions that are behind, and it is not known since when.
    pub seconds_unknown: usize,
}

#[derive(Debug)]
pub struct PartitionLag {
    pub topic: Arc<str>,
    pub partition: String,
    pub offset: i64,
    pub lag: i64,
    /// Age of the first record that is not consumed; `None`: it was not looked up.
    pub seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicLag {
    pub offset: i64,
    pub lag: i64,
}

impl LagReading {
    pub fn of(node: &Node) -> LagReading {
        let mut progress = node.groups.progress(OFFSETS_READ_MAX);
        progress
            .groups
            .sort_by(|one, other| one.group_id.cmp(&other.group_id));
        let mut reading = LagReading {
            group_count: progress.groups.len(),
            offsets_left_out: progress.offsets_left_out,
            ..LagReading::default()
        };
        for group in &progress.groups {
            *reading.states.entry(group.state).or_default() += 1;
        }
        let mut room = Room {
            series: SERIES_MAX,
            sums: SERIES_MAX,
            lookups: LOOKUPS_MAX,
            left_out: 0,
        };
        for group in progress.groups.iter().take(SERIES_MAX) {
            reading.groups.push(GroupLag::of(node, group, &mut room));
        }
        let beyond = progress.groups.iter().skip(SERIES_MAX);
        reading.offsets_left_out += room.left_out + beyond.map(|group| group.committed.len()).sum::<usize>();
        reading
    }
}

/// What is left of the limits of one reading.
struct Room {
    series: usize,
    sums: usize,
    lookups: usize,
    left_out: usize,
}

impl GroupLag {
    fn of(node: &Node, group: &GroupProgress, room: &mut Room) -> GroupLag {
        let mut lag = GroupLag {
            group_id: group.group_id.clone(),
            state: group.state,
            member_count: group.member_count,
            offset_commits: group.offset_commits,
            partitions: Vec::new(),
            sums: BTreeMap::new(),
            lag_max: 0,
            seconds_max: None,
            seconds_unknown: 0,
        };
        for committed in &group.committed {
            // Offsets of a deleted topic are no lag.
            if let Ok(partition) = node
                .storage
                .partition_by_name(&committed.topic, committed.partition)
            {
                let age = |offset| age_of(node, &partition, offset);
                lag.add(committed, partition.offsets(), age, room);
            }
        }
        lag
    }

    /// - `age`: of the first record from an offset on.
    fn add(
        &mut self,
        committed: &CommittedAt,
        offsets: Offsets,
        age: impl FnOnce(i64) -> Option<f64>,
        room: &mut Room,
    ) {
        // Records that retention has removed are lost to the group, and not ahead of it.
        let next = committed.offset.max(offsets.start);
        let lag = (offsets.high_watermark - next).max(0);
        let seconds = match lag {
            0 => Some(0.0),
            _ => room.lookup().and_then(|()| age(next)),
        };
        self.lag_max = self.lag_max.max(lag);
        self.seconds_unknown += usize::from(seconds.is_none());
        self.seconds_max = match (self.seconds_max, seconds) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        let is_new_sum = !self.sums.contains_key(&committed.topic);
        if !is_new_sum || room.sums > 0 {
            room.sums -= usize::from(is_new_sum);
            let sum = self.sums.entry(committed.topic.clone()).or_default();
            sum.offset += committed.offset;
            sum.lag += lag;
        }
        if room.series == 0 {
            room.left_out += 1;
            return;
        }
        room.series -= 1;
        self.partitions.push(PartitionLag {
            topic: committed.topic.clone(),
            partition: committed.partition.to_string(),
            offset: committed.offset,
            lag,
            seconds,
        });
    }
}

impl Room {
    fn lookup(&mut self) -> Option<()> {
        self.lookups = self.lookups.checked_sub(1)?;
        Some(())
    }
}

/// Returns the age of the first record from `offset` on. May wait for the device.
fn age_of(node: &Node, partition: &Partition, offset: i64) -> Option<f64> {
    let view = partition.view();
    let found = view
        .reader
        .first_record_from(offset, view.bound, ReadMode::Blocking);
    match found {
        Ok(Lookup::Found(record)) if record.timestamp >= 0 => {
            let age_ms = node.clock().timestamp().0 - record.timestamp;
            Some(age_ms.max(0) as f64 / 1e3)
        }
        _ => None,
    }
}

/// Writes lag by kafka_exporter's names.
pub fn write_metrics(page: &mut Page, reading: &LagReading) {
    page.single(
        "ottla_consumergroup_offsets_without_metrics",
        "gauge",
        "Committed offsets without series of their own.",
        reading.offsets_left_out,
    );
    const MEMBERS: &str = "kafka_consumergroup_members";
    page.metric(MEMBERS, "gauge", "Members of the group.");
    for group in &reading.groups {
        page.sample(MEMBERS, &[("consumergroup", &group.group_id)], group.member_count);
    }
    let offset: fn(&PartitionLag) -> i64 = |partition| partition.offset;
    let lag: fn(&PartitionLag) -> i64 = |partition| partition.lag;
    for (name, help, of) in [
        ("kafka_consumergroup_current_offset", "Committed offset.", offset),
        (
            "kafka_consumergroup_lag",
            "Records from the committed offset on.",
            lag,
        ),
    ] {
        page.metric(name, "gauge", help);
        for (group, partition) in partitions(reading) {
            let labels = [
                ("consumergroup", &*group.group_id),
                ("topic", &*partition.topic),
                ("partition", &*partition.partition),
            ];
            page.sample(name, &labels, of(partition));
        }
    }
    let offset: fn(&TopicLag) -> i64 = |sum| sum.offset;
    let lag: fn(&TopicLag) -> i64 = |sum| sum.lag;
    for (name, help, of) in [
        (
            "kafka_consumergroup_current_offset_sum",
            "Committed offsets, summed over the partitions of a topic.",
            offset,
        ),
        (
            "kafka_consumergroup_lag_sum",
            "Lag, summed over the partitions of a topic.",
            lag,
        ),
    ] {
        page.metric(name, "gauge", help);
        for group in &reading.groups {
            for (topic, sum) in &group.sums {
                let labels = [("consumergroup", &*group.group_id), ("topic", &**topic)];
                page.sample(name, &labels, of(sum));
            }
        }
    }
}

pub fn partitions(reading: &LagReading) -> impl Iterator<Item = (&GroupLag, &PartitionLag)> {
    let groups = reading.groups.iter();
    groups.flat_map(|group| group.partitions.iter().map(move |partition| (group, partition)))
}

/// Writes lag by the names of kafka-lag-exporter.
pub fn write_in_time(page: &mut Page, reading: &LagReading, cluster_id: &str) {
    let offset: fn(&PartitionLag) -> Option<f64> = |partition| Some(partition.offset as f64);
    let lag: fn(&PartitionLag) -> Option<f64> = |partition| Some(partition.lag as f64);
    let seconds: fn(&PartitionLag) -> Option<f64> = |partition| partition.seconds;
    for (name, help, of) in [
        ("kafka_consumergroup_group_offset", "Committed offset.", offset),
        (
            "kafka_consumergroup_group_lag",
            "Records from the committed offset on.",
            lag,
        ),
        (
            "kafka_consumergroup_group_lag_seconds",
            "Age of the first record that is not consumed; 0: there is none.",
            seconds,
        ),
    ] {
        page.metric(name, "gauge", help);
        for (group, partition) in partitions(reading) {
            let labels = [
                ("cluster_name", cluster_id),
                ("group", &*group.group_id),
                ("topic", &*partition.topic),
                ("partition", &*partition.partition),
            ];
            if let Some(value) = of(partition) {
                page.sample(name, &labels, value);
            }
        }
    }
    let lag: fn(&GroupLag) -> Option<f64> = |group| Some(group.lag_max as f64);
    let seconds: fn(&GroupLag) -> Option<f64> = |group| group.seconds_max;
    let unknown: fn(&GroupLag) -> Option<f64> = |group| Some(group.seconds_unknown as f64);
    for (name, help, of) in [
        (
            "kafka_consumergroup_group_max_lag",
            "The largest lag of a partition.",
            lag,
        ),
        (
            "kafka_consumergroup_group_max_lag_seconds",
            "The largest lag of a partition in seconds, of those where it is known.",
            seconds,
        ),
        (
            "ottla_consumergroup_partitions_without_lag_seconds",
            "Partitions with a lag whose time is not known: the group may be further behind.",
            unknown,
        ),
    ] {
        page.metric(name, "gauge", help);
        let with_offsets = reading.groups.iter().filter(|group| !group.sums.is_empty());
        for group in with_offsets {
            if let Some(value) = of(group) {
                let labels = [("cluster_name", cluster_id), ("group", &*group.group_id)];
                page.sample(name, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_group() -> GroupLag {
        GroupLag {
            group_id: "g".into(),
            state: "Empty",
            member_count: 0,
            offset_commits: 0,
            partitions: Vec::new(),
            sums: BTreeMap::new(),
            lag_max: 0,
            seconds_max: None,
            seconds_unknown: 0,
        }
    }

    fn add(group: &mut GroupLag, partition: i32, offset: i64, room: &mut Room) {
        let committed = CommittedAt {
            topic: "t".into(),
            partition,
            offset,
        };
        let offsets = Offsets {
            start: 10,
            last_stable: 100,
            high_watermark: 100,
            end: 110,
        };
        group.add(&committed, offsets, |offset| Some(offset as f64), room);
    }

    #[test]
    fn records_that_retention_removed_and_those_that_are_not_readable_yet_are_no_lag() {
        let mut room = Room {
            series: 10,
            sums: 10,
            lookups: 10,
            left_out: 0,
        };
        let mut group = empty_group();
        for (partition, offset) in [(0, 4), (1, 100), (2, 105), (3, 90)] {
            add(&mut group, partition, offset, &mut room);
        }
        let rows: Vec<(i64, Option<f64>)> = (group.partitions.iter())
            .map(|partition| (partition.lag, partition.seconds))
            .collect();
        let none = (0, Some(0.0));
        assert_eq!(rows, [(90, Some(10.0)), none, none, (10, Some(90.0))]);
        assert_eq!((group.lag_max, group.seconds_max), (90, Some(90.0)));
        assert_eq!(room.lookups, 8);
    }

    #[test]
    fn what_exceeds_the_limits_is_summed_and_counted() {
        let mut room = Room {
            series: 2,
            sums: 1,
            lookups: 1,
            left_out: 0,
        };
        let mut group = empty_group();
        for partition in 0..5 {
            add(&mut group, partition, 90, &mut room);
        }
        let sum = TopicLag { offset: 450, lag: 50 };
        assert_eq!(group.sums["t"], sum);
        let seconds: Vec<Option<f64>> = group.partitions.iter().map(|row| row.seconds).collect();
        assert_eq!(seconds, [Some(90.0), None]);
        assert_eq!(room.left_out, 3);
        let reading = LagReading {
            groups: vec![group],
            offsets_left_out: room.left_out,
            ..LagReading::default()
        };
        let mut page = Page::default();
        write_metrics(&mut page, &reading);
        write_in_time(&mut page, &reading, "c");
        let page = page.finish();
        let count = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("kafka_consumergroup_lag{"), 2);
        assert_eq!(count("kafka_consumergroup_group_lag_seconds{"), 1);
        let labels = "{cluster_name=\"c\",group=\"g\"}";
        for line in [
            format!("kafka_consumergroup_group_max_lag_seconds{labels} 90\n"),
            format!("ottla_consumergroup_partitions_without_lag_seconds{labels} 4\n"),
        ] {
            assert!(page.contains(&line), "{line} is not in {page}");
        }
        assert!(page.contains("kafka_consumergroup_lag_sum{consumergroup=\"g\",topic=\"t\"} 50\n"));
        assert!(page.contains("\nottla_consumergroup_offsets_without_metrics 3\n"));
    }
}
