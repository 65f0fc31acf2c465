//! Topics and their partitions.

use std::sync::Arc;

use ottla_broker::admin::partition::Partition as KnownPartition;
use ottla_broker::effective_config;
use ottla_broker::{AdminView, TopicImage};
use ottla_console::source::{Partition, Topic, TopicDetail};
use ottla_lab::numbers::{bytes, duration};

use super::settings;

pub fn list(view: &AdminView) -> Vec<Topic> {
    let image = view.node.image().clone();
    image.topics.iter().map(|topic| summary(view, topic)).collect()
}

fn summary(view: &AdminView, topic: &TopicImage) -> Topic {
    let partitions = view.node.storage.partitions.of_topic(topic.id);
    let size = partitions
        .iter()
        .map(|partition| partition.with_log(|log| log.bytes()));
    let log = &topic.config.log;
    Topic {
        name: topic.name.to_string(),
        partitions: topic.partitions.len(),
        is_internal: topic.is_internal(),
        bytes: Some(size.sum()),
        retention: Some(retention(
            log.delete,
            log.compact,
            log.retention_ms,
            log.retention_bytes,
        )),
        failed_partitions: partitions
            .iter()
            .filter(|partition| partition.failure().is_some())
            .count(),
        skew: Topic::skew_of(partitions.iter().map(|partition| partition.traffic().records_in)),
    }
}

/// `7 days, 1 GiB a partition`, `latest of each key`.
fn retention(delete: bool, compact: bool, ms: i64, bytes_max: i64) -> String {
    let mut parts = Vec::new();
    if compact {
        parts.push(String::from("latest of each key"));
    }
    if delete && ms >= 0 {
        parts.push(duration(ms as f64 / 1e3));
    }
    if delete && bytes_max >= 0 {
        parts.push(format!("{} a partition", bytes(bytes_max as f64)));
    }
    match parts.is_empty() {
        true => String::from("for ever"),
        false => parts.join(", "),
    }
}

pub fn one(view: &AdminView, name: &str) -> Option<TopicDetail> {
    let image = view.node.image().clone();
    let topic = image.topic(name)?;
    let mut partitions = view.node.storage.partitions.of_topic(topic.id);
    partitions.sort_by_key(|partition| partition.index);
    let rows = partitions.iter().map(|partition| row(partition));
    let own = image.config(&ottla_broker::ConfigResource::topic(name)).cloned();
    let own = own.unwrap_or_else(|| Arc::new(Default::default()));
    Some(TopicDetail {
        topic: summary(view, topic),
        partitions: rows.collect(),
        settings: settings::of(effective_config::describe_topic(&image, &own), 1),
    })
}

pub fn row(partition: &KnownPartition) -> Partition {
    let (offsets, traffic) = (partition.offsets(), partition.traffic());
    Partition {
        index: partition.index,
        log_start: offsets.start,
        high_watermark: offsets.high_watermark,
        log_end: offsets.end,
        bytes: Some(partition.with_log(|log| log.bytes())),
        records_in: Some(traffic.records_in),
        bytes_in: Some(traffic.bytes_in),
        failure: partition
            .failure()
            .map(|_| String::from("refuses writes after a failed write or sync")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_is_said_in_words() {
        assert_eq!(retention(true, false, 604_800_000, -1), "7 days");
        assert_eq!(
            retention(true, true, -1, 1 << 30),
            "latest of each key, 1 GiB a partition"
        );
        assert_eq!(retention(true, false, -1, -1), "for ever");
        assert_eq!(retention(false, true, 5, 5), "latest of each key");
    }
}
