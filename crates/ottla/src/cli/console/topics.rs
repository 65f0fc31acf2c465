//! Topics and their partitions.

use std::collections::BTreeMap;

use ottla_client::Error;
use ottla_client::admin::{Admin, OffsetSpec, TopicDescription, TopicPartition};
use ottla_console::source::{Partition, Told, Topic, TopicDetail};

use super::cluster::untold;
use super::settings;

pub fn list(admin: &Admin) -> Told<Vec<Topic>> {
    let names = admin.list_topics().wait().map_err(|error| untold(&error))?;
    let described = admin.describe_topics(names.into_keys().collect()).wait();
    let described = described.map_err(|error| untold(&error))?;
    let sizes = sizes(admin);
    let topics = described.into_iter().filter_map(|(name, description)| {
        // Deleted meanwhile, or not to be described: then there is nothing to show.
        let description = description.ok()?;
        Some(topic(name, &description, sizes.as_ref()))
    });
    Ok(topics.collect())
}

fn topic(name: String, description: &TopicDescription, sizes: Option<&Sizes>) -> Topic {
    let of_partition = |(partition, _): (&TopicPartition, &u64)| *partition.topic == *name;
    let bytes = sizes.map(|sizes| {
        let own = sizes.iter().filter(|size| of_partition(*size));
        own.map(|(_, bytes)| bytes).sum()
    });
    Topic {
        bytes,
        partitions: description.partitions.len(),
        is_internal: description.is_internal,
        retention: None,
        failed_partitions: description
            .partitions
            .values()
            .filter(|partition| partition.leader.is_none())
            .count(),
        name,
    }
}

/// The largest replica of each partition, in bytes.
type Sizes = BTreeMap<TopicPartition, u64>;

/// `None`: some broker does not tell (DescribeLogDirs needs a right of its own).
fn sizes(admin: &Admin) -> Option<Sizes> {
    let mut sizes = Sizes::new();
    for directories in admin.describe_log_dirs(Vec::new()).wait().ok()?.into_values() {
        for directory in directories.ok()?.into_values().flatten() {
            for (partition, replica) in directory.replicas {
                let size = sizes.entry(partition).or_default();
                *size = (*size).max(u64::try_from(replica.size_bytes).unwrap_or(0));
            }
        }
    }
    Some(sizes)
}

/// - `listed`: a recent answer of [`list`].
pub fn one(admin: &Admin, name: &str, listed: &[Topic]) -> Told<Option<TopicDetail>> {
    let described = admin.describe_topics(vec![name.to_owned()]).wait();
    let described = described.map_err(|error| untold(&error))?;
    let Some(Ok(description)) = described.into_values().next() else {
        return Ok(None);
    };
    let partitions = description.partitions.keys();
    let names: Vec<TopicPartition> = partitions
        .map(|index| TopicPartition::new(name, *index))
        .collect();
    let starts = offsets(admin, &names, OffsetSpec::Earliest).map_err(|error| untold(&error))?;
    let ends = offsets(admin, &names, OffsetSpec::Latest).map_err(|error| untold(&error))?;
    let sizes = sizes(admin);
    let rows = names.iter().map(|partition| {
        let end = ends.get(partition).copied();
        let has_leader = description.partitions[&partition.partition].leader.is_some();
        Partition {
            index: partition.partition,
            log_start: starts.get(partition).copied().unwrap_or(0),
            high_watermark: end.unwrap_or(0),
            log_end: end.unwrap_or(0),
            bytes: sizes.as_ref().and_then(|sizes| sizes.get(partition).copied()),
            failure: match (has_leader, end) {
                (false, _) => Some(String::from("has no leader")),
                (true, None) => Some(String::from("its leader does not tell its offsets")),
                (true, Some(_)) => None,
            },
            ..Partition::default()
        }
    });
    let summary = listed.iter().find(|topic| topic.name == name).cloned();
    Ok(Some(TopicDetail {
        partitions: rows.collect(),
        topic: summary.unwrap_or_else(|| topic(name.to_owned(), &description, sizes.as_ref())),
        settings: settings::of_topic(admin, name)?,
    }))
}

/// Offsets of partitions; one that cannot be asked about is left out.
pub fn offsets(
    admin: &Admin,
    partitions: &[TopicPartition],
    which: OffsetSpec,
) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let asked = partitions.iter().map(|partition| (partition.clone(), which));
    let answers = admin.list_offsets(asked.collect()).wait()?;
    let known = answers
        .into_iter()
        .filter_map(|(partition, answer)| Some((partition, answer.ok()?.offset)));
    Ok(known.collect())
}
