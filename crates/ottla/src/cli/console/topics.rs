//! Topics and their partitions.

use std::collections::BTreeMap;

use ottla_client::Error;
use ottla_client::admin::{Admin, OffsetSpec, TopicDescription, TopicPartition};
use ottla_console::source::{Partition, Told, Topic, TopicDetail};

use super::cluster::untold;
use super::settings;

/// - `sizes`: `None`: not known.
pub fn list(admin: &Admin, sizes: Option<&Sizes>) -> Told<Vec<Topic>> {
    let names = admin.list_topics().wait().map_err(|error| untold(&error))?;
    let described = admin.describe_topics(names.into_keys().collect()).wait();
    let described = described.map_err(|error| untold(&error))?;
    let bytes = sizes.map(by_topic);
    let topics = described.into_iter().filter_map(|(name, description)| {
        // Deleted meanwhile, or not to be described: then there is nothing to show.
        let description = description.ok()?;
        let bytes = bytes
            .as_ref()
            .map(|bytes| bytes.get(&*name).copied().unwrap_or(0));
        Some(topic(name, &description, bytes))
    });
    Ok(topics.collect())
}

fn topic(name: String, description: &TopicDescription, bytes: Option<u64>) -> Topic {
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
        skew: None,
        name,
    }
}

/// Bytes of every topic in one pass: a topic that looked for its own took topics times partitions.
fn by_topic(sizes: &Sizes) -> BTreeMap<&str, u64> {
    let mut topics = BTreeMap::new();
    for (partition, bytes) in sizes {
        *topics.entry(&*partition.topic).or_default() += bytes;
    }
    topics
}

/// The largest replica of each partition, in bytes.
pub type Sizes = BTreeMap<TopicPartition, u64>;

/// - Errors: some broker does not tell (DescribeLogDirs needs a right of its own).
pub fn sizes(admin: &Admin) -> Told<Sizes> {
    let mut sizes = Sizes::new();
    let brokers = admin.describe_log_dirs(Vec::new()).wait();
    for directories in brokers.map_err(|error| untold(&error))?.into_values() {
        let directories = directories.map_err(|error| untold(&error))?;
        for directory in directories.into_values().flatten() {
            for (partition, replica) in directory.replicas {
                let size = sizes.entry(partition).or_default();
                *size = (*size).max(u64::try_from(replica.size_bytes).unwrap_or(0));
            }
        }
    }
    Ok(sizes)
}

/// - `sizes`: `None`: not known.
pub fn one(admin: &Admin, name: &str, sizes: Option<&Sizes>) -> Told<Option<TopicDetail>> {
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
    let rows = names.iter().map(|partition| {
        let has_leader = description.partitions[&partition.partition].leader.is_some();
        Partition {
            log_start: starts.get(partition).copied().unwrap_or(0),
            ..row(partition, has_leader, ends.get(partition).copied(), sizes)
        }
    });
    let of_all = |sizes: &Sizes| names.iter().filter_map(|partition| sizes.get(partition)).sum();
    Ok(Some(TopicDetail {
        partitions: rows.collect(),
        topic: topic(name.to_owned(), &description, sizes.map(of_all)),
        settings: settings::of_topic(admin, name)?,
    }))
}

/// - `end`: `None`: its leader does not tell.
pub fn row(
    partition: &TopicPartition,
    has_leader: bool,
    end: Option<i64>,
    sizes: Option<&Sizes>,
) -> Partition {
    Partition {
        index: partition.partition,
        high_watermark: end.unwrap_or(0),
        log_end: end.unwrap_or(0),
        bytes: sizes.and_then(|sizes| sizes.get(partition).copied()),
        failure: match (has_leader, end) {
            (false, _) => Some(String::from("has no leader")),
            (true, None) => Some(String::from("its leader does not tell its offsets")),
            (true, Some(_)) => None,
        },
        ..Partition::default()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_topic_is_the_sum_of_its_partitions() {
        let sizes: Sizes = [("a", 0, 1), ("a", 1, 2), ("b", 0, 4)]
            .map(|(topic, partition, bytes)| (TopicPartition::new(topic, partition), bytes))
            .into();
        assert_eq!(by_topic(&sizes), BTreeMap::from([("a", 3), ("b", 4)]));
    }
}
