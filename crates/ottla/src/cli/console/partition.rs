//! One partition.

use std::collections::BTreeMap;

use ottla_client::Error;
use ottla_client::admin::{ActiveProducer, Admin, ListedOffset, OffsetSpec, TopicPartition};
use ottla_console::source::{Partition, PartitionDetail, PartitionProducer, Told, Untold};

use super::cluster::untold;
use super::topics::{Sizes, row};

/// Producers that are listed; others are counted.
const PRODUCERS_MAX: usize = 1_000;

type Answers<T> = BTreeMap<TopicPartition, Result<T, Error>>;

/// - `sizes`: `None`: not known.
pub fn one(admin: &Admin, topic: &str, index: i32, sizes: Option<&Sizes>) -> Told<Option<PartitionDetail>> {
    let described = admin.describe_topics(vec![topic.to_owned()]).wait();
    let described = described.map_err(|error| untold(&error))?;
    let Some(Ok(description)) = described.into_values().next() else {
        return Ok(None);
    };
    let Some(known) = description.partitions.get(&index) else {
        return Ok(None);
    };
    let partition = TopicPartition::new(topic, index);
    let asked = |spec| BTreeMap::from([(partition.clone(), spec)]);
    let offset = |spec| only(admin.list_offsets(asked(spec)).wait());
    let (start, end) = (offset(OffsetSpec::Earliest), offset(OffsetSpec::Latest));
    let stable = only(admin.list_committed_offsets(asked(OffsetSpec::Latest)).wait());
    let newest = offset(OffsetSpec::MaxTimestamp);
    let producers = only(admin.describe_producers(vec![partition.clone()]).wait());
    let end_of = |listed: &Told<ListedOffset>| listed.as_ref().ok().map(|listed| listed.offset);
    let (producers, producers_cut) = first(producers);
    Ok(Some(PartitionDetail {
        partition: Partition {
            log_start: end_of(&start).unwrap_or(0),
            ..row(&partition, known.leader.is_some(), end_of(&end), sizes)
        },
        last_stable: stable.map(|listed| listed.offset),
        leader_epoch: Ok(known.leader_epoch),
        newest_at_ms: newest.map(|listed| Some(listed.timestamp).filter(|ms| *ms >= 0)),
        segments: Err(Untold::by_kafka("the segments of a partition")),
        segments_cut: 0,
        producers,
        producers_cut,
    }))
}

/// The answer about the one partition that was asked about.
fn only<T>(answers: Result<Answers<T>, Error>) -> Told<T> {
    let answers = answers.map_err(|error| untold(&error))?;
    let answer = answers.into_values().next();
    let answer = answer.ok_or_else(|| Untold(String::from("The cluster did not answer.")))?;
    answer.map_err(|error| untold(&error))
}

fn first(producers: Told<Vec<ActiveProducer>>) -> (Told<Vec<PartitionProducer>>, usize) {
    let mut producers = match producers {
        Ok(producers) => producers,
        Err(untold) => return (Err(untold), 0),
    };
    producers.sort_by_key(|producer| {
        let last = std::cmp::Reverse(producer.last_timestamp);
        (producer.transaction_start_offset.is_none(), last)
    });
    let cut = producers.len().saturating_sub(PRODUCERS_MAX);
    let shown = producers.iter().take(PRODUCERS_MAX);
    (Ok(shown.map(producer).collect()), cut)
}

fn producer(producer: &ActiveProducer) -> PartitionProducer {
    PartitionProducer {
        producer_id: producer.producer_id,
        producer_epoch: producer.producer_epoch,
        last_sequence: producer.last_sequence,
        last_at_ms: Some(producer.last_timestamp).filter(|ms| *ms >= 0),
        transaction_from: producer.transaction_start_offset,
    }
}
