//! Batches for the tests of this folder, made by the accumulator itself.

use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use super::accumulator::{Accumulator, PartitionQueue};
use super::batch::SealedBatch;
use super::record::Record;
use crate::config::{Config, ProducerConfig};
use crate::metadata::snapshot::{Partition, Topic};
use crate::time::Moment;

pub(super) fn accumulator(settings: &[(&str, &str)]) -> Accumulator {
    let base = Config::new().set("bootstrap.servers", "localhost:9092");
    let config = settings
        .iter()
        .fold(base, |config, (key, value)| config.set(*key, *value));
    let config = ProducerConfig::from_config(&config).unwrap();
    Accumulator::new(Arc::new(config), Arc::default())
}

pub(super) fn topic(name: &str) -> Arc<Topic> {
    let partition = Partition {
        leader: None,
        leader_epoch: 0,
        replicas: Vec::new(),
        in_sync: Vec::new(),
    };
    Arc::new(Topic {
        name: Arc::from(name),
        id: Uuid([name.len() as u8; 16]),
        partitions: vec![partition; 4],
        is_internal: false,
        usage: Default::default(),
    })
}

/// The queue of partition 0 with one batch of this many records per element of `counts`; all but
/// the last are closed.
pub(super) fn queue(accumulator: &Accumulator, now: Moment, counts: &[u32]) -> Arc<PartitionQueue> {
    fill(accumulator, now, counts);
    let mut queues = Vec::new();
    accumulator.take_activated(&mut queues);
    queues.remove(0)
}

/// Like `queue`, into the queue that is already active.
pub(super) fn fill(accumulator: &Accumulator, now: Moment, counts: &[u32]) {
    for (nth, count) in counts.iter().enumerate() {
        if nth > 0 {
            accumulator.seal_all(now);
        }
        for _ in 0..*count {
            append(accumulator, now, &topic("t"), 0);
        }
    }
}

fn append(accumulator: &Accumulator, now: Moment, topic: &Arc<Topic>, partition: i32) {
    let record = Record {
        topic: &topic.name,
        value: Some(b"value"),
        ..Record::default()
    };
    accumulator
        .append(now, topic, partition, &record, 5_000, None)
        .unwrap();
}

/// A closed batch of `count` records.
pub(super) fn sealed(accumulator: &Accumulator, name: &str, partition: i32, count: u32) -> SealedBatch {
    for _ in 0..count {
        append(accumulator, Moment::from_nanos(0), &topic(name), partition);
    }
    let mut queues = Vec::new();
    accumulator.take_activated(&mut queues);
    queues[0].take(Moment::from_nanos(0), true).unwrap()
}
