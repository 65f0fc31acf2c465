//! The time of compaction: not too early, and without waiting for the recovery point's own
//! interval. And what is under way when a topic is deleted.

use std::path::Path;

use ottla_core::time::Clock;
use ottla_log::disk::Disk;
use ottla_sim::client::{TOPIC, create_topic, read_to_end};
use ottla_sim::inhabited::delete_topic;
use ottla_sim::world::{LOG_DIRECTORY, Outcome, World};
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const SECOND_MICROS: u64 = 1_000_000;
/// The interval at which recovery points advance if nothing else advances them.
const CHECKPOINT_MICROS: u64 = 60 * SECOND_MICROS;
const VERSION: i16 = 11;

fn compacted(settings: &[(&str, &str)]) -> World {
    let mut all = vec![("log.cleanup.policy", "compact")];
    all.extend(settings);
    let mut world = World::new(3, &all);
    assert!(world.start());
    assert!(create_topic(&mut world, 1));
    world
}

/// Produces one record, with the same key as all others, until it is acknowledged.
fn produce(world: &mut World) {
    let body = produce_request(world, 1_000);
    let Outcome::Answer(answer) = world.complete(ApiKey::Produce, VERSION, &body) else {
        panic!("there is power")
    };
    let response = ProduceResponse::decode(&mut Reader::new(&answer), VERSION).expect("decodes");
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

fn produce_request(world: &World, value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = "x".repeat(value_bytes);
    builder.append(
        world.clock.timestamp().0,
        Some(b"key"),
        Some(value.as_bytes()),
        &[],
    );
    let records = builder.finish();
    let partition = PartitionProduceData {
        index: 0,
        records: Some(&records),
    };
    let request = ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: TOPIC,
            partition_data: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, VERSION);
    body
}

fn records(world: &mut World) -> usize {
    read_to_end(world, 0, 0).expect("there is power").len()
}

#[test]
fn compaction_does_not_wait_for_the_next_recovery_point_and_runs_once_per_backoff() {
    let mut world = compacted(&[
        ("log.cleaner.min.cleanable.ratio", "0.01"),
        ("log.cleaner.backoff.ms", "15000"),
    ]);
    (0..20).for_each(|_| produce(&mut world));
    world.clock.advance(15 * SECOND_MICROS);
    world.maintain();
    let first = records(&mut world);
    assert!(first < 8, "{first} records are left of 20");

    // As in Kafka, the cleaner continues until it finds nothing; then the backoff begins.
    world.maintain();
    (0..20).for_each(|_| produce(&mut world));
    let before = records(&mut world);
    world.clock.advance(13 * SECOND_MICROS);
    world.maintain();
    assert_eq!(records(&mut world), before, "it came before its time");
    world.clock.advance(2 * SECOND_MICROS);
    world.maintain();
    let second = records(&mut world);
    assert!(second < 8, "{second} records are left");
    assert!(
        world.clock.moment().micros() < CHECKPOINT_MICROS,
        "the recovery point may have moved by itself"
    );
}

#[test]
fn after_max_compaction_lag_a_segment_is_closed_and_compacted_whatever_its_size() {
    let mut world = compacted(&[
        ("log.cleaner.min.cleanable.ratio", "1"),
        ("log.cleaner.max.compaction.lag.ms", "20000"),
        ("log.cleaner.backoff.ms", "1000"),
    ]);
    (0..3).for_each(|_| produce(&mut world));
    world.clock.advance(18 * SECOND_MICROS);
    world.maintain();
    assert_eq!(records(&mut world), 3, "nothing is due");
    world.clock.advance(3 * SECOND_MICROS);
    world.maintain();
    assert_eq!(records(&mut world), 1);
    assert!(world.clock.moment().micros() < CHECKPOINT_MICROS);
}

/// The checkpoints kept the old topic's high watermark for up to a minute. A start after a kill
/// took it for that of the new one, and refused the partition because records were missing.
#[test]
fn checkpoints_of_a_deleted_topic_prove_nothing_about_the_next_one_of_that_name() {
    let mut world = World::new(3, &[]);
    assert!(world.start());
    assert!(create_topic(&mut world, 1));
    (0..5).for_each(|_| produce(&mut world));
    world.clock.advance(2 * CHECKPOINT_MICROS);
    world.maintain();
    while world.step() {}
    delete_topic(&mut world, TOPIC);
    assert!(create_topic(&mut world, 1));
    world.kill();
    assert!(world.start());
    assert_eq!(records(&mut world), 0);
    produce(&mut world);
    assert_eq!(records(&mut world), 1);
}

/// A segment's file is created by the sync after the one that closed its predecessor. That sync
/// wrote it into the directory of a new topic of the same name, where the next start found a
/// segment of another log.
#[test]
fn a_sync_that_is_late_writes_nothing_into_the_directory_of_the_next_topic_of_that_name() {
    for seed in 0..60 {
        let mut world = World::new(seed, &[("log.segment.bytes", "1048576")]);
        assert!(world.start());
        assert!(create_topic(&mut world, 1));
        let body = produce_request(&world, 600_000);
        let calls = [(); 2].map(|()| world.call(ApiKey::Produce, VERSION, &body));
        delete_topic(&mut world, TOPIC);
        assert!(create_topic(&mut world, 1));
        drop(calls);
        while world.step() {}
        let directory = Path::new(LOG_DIRECTORY).join(format!("{TOPIC}-0"));
        let entries = world.disk.list(&directory).expect("the new topic's");
        let is_foreign = |path: &Path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            name.ends_with(".log") && name != "00000000000000000000.log"
        };
        let foreign = entries.iter().find(|entry| is_foreign(&entry.path));
        assert_eq!(foreign, None, "seed {seed}");
        assert_eq!(records(&mut world), 0, "seed {seed}");
        world.kill();
        assert!(world.start());
        produce(&mut world);
    }
}
