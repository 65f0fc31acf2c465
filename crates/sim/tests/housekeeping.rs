//! The time of compaction: not too early, and without waiting for the recovery point's own
//! interval.

use ottla_core::time::Clock;
use ottla_sim::client::{TOPIC, create_topic, read_to_end};
use ottla_sim::world::{Outcome, World};
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
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = "x".repeat(1_000);
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
    let Outcome::Answer(answer) = world.complete(ApiKey::Produce, VERSION, &body) else {
        panic!("there is power")
    };
    let response = ProduceResponse::decode(&mut Reader::new(&answer), VERSION).expect("decodes");
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
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
