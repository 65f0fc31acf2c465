//! A disk that is full or fails: writes are refused with a reason, reads continue, nothing
//! acknowledged is lost.

use ottla_sim::client::{create_topic, produce_once, read_to_end};
use ottla_sim::world::World;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};

fn world_with_a_record() -> World {
    let mut world = World::new(7, &[]);
    assert!(world.start());
    assert!(create_topic(&mut world, 1));
    assert_eq!(produce_once(&mut world, 0, "first"), Ok(0));
    world
}

fn values(world: &mut World) -> Vec<String> {
    let records = read_to_end(world, 0, 0).expect("there is power");
    records.into_iter().map(|(_, value)| value).collect()
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_accepts_writes_again_without_a_restart() {
    let mut world = world_with_a_record();
    world.disk.set_capacity(Some(world.disk.used_bytes()));
    // Space allocated earlier can still be used; then the disk is full.
    let large = "x".repeat(50_000);
    let refused = (0..100).find_map(|_| produce_once(&mut world, 0, &large).err());
    // It was taken, and found no room: it is written when there is some.
    assert_eq!(refused, Some(ErrorCode::RequestTimedOut));
    let before = values(&mut world);
    assert_eq!(before[0], "first");
    assert_eq!(
        produce_once(&mut world, 0, &large),
        Err(ErrorCode::KafkaStorageError)
    );

    world.disk.set_capacity(None);
    let last = (0..100).find_map(|_| produce_once(&mut world, 0, "last").ok());
    assert_eq!(
        last,
        Some(before.len() as i64 + 1),
        "behind the one that timed out"
    );
    let after = values(&mut world);
    assert_eq!(after[..before.len()], before);
    assert_eq!(
        (&after[before.len()], &after[before.len() + 1]),
        (&large, &"last".to_owned())
    );
}

#[test]
fn a_failed_sync_closes_the_partition_for_writes_until_it_is_opened_again() {
    let mut world = world_with_a_record();
    world.disk.fail_next_sync();
    assert_eq!(
        produce_once(&mut world, 0, "lost"),
        Err(ErrorCode::KafkaStorageError)
    );
    // The disk works again, but the data of the failed sync is not on it: a sync is never retried.
    assert_eq!(
        produce_once(&mut world, 0, "refused"),
        Err(ErrorCode::KafkaStorageError)
    );
    assert_eq!(values(&mut world), ["first"]);

    world.power_cut();
    assert!(world.start());
    assert!(produce_once(&mut world, 0, "again").is_ok());
    assert_eq!(values(&mut world).first().map(String::as_str), Some("first"));
}

#[test]
fn a_failed_write_closes_the_partition_for_writes_and_leaves_no_half_batch() {
    let mut world = world_with_a_record();
    world.disk.fail_next_write();
    assert_eq!(
        produce_once(&mut world, 0, "torn"),
        Err(ErrorCode::KafkaStorageError)
    );
    assert_eq!(values(&mut world), ["first"]);
    world.kill();
    assert!(world.start());
    assert!(produce_once(&mut world, 0, "second").is_ok());
    // The refused batch may be there completely or not at all.
    let found = values(&mut world);
    assert!(
        [vec!["first", "second"], vec!["first", "torn", "second"]]
            .iter()
            .any(|good| *good == found),
        "{found:?}"
    );
}

#[test]
fn below_the_reserve_writes_are_refused_although_the_disk_is_not_full() {
    let mut world = world_with_a_record();
    world
        .disk
        .set_capacity(Some(world.disk.used_bytes() + 1024 * 1024));
    world.node().expect("it runs").maintain();
    assert_eq!(
        produce_once(&mut world, 0, "refused"),
        Err(ErrorCode::KafkaStorageError)
    );
    assert_eq!(values(&mut world), ["first"]);

    world.disk.set_capacity(None);
    assert_eq!(produce_once(&mut world, 0, "second"), Ok(1));
}

#[test]
#[should_panic(expected = "produce with acks=0 was refused: UNKNOWN_TOPIC_OR_PARTITION")]
fn a_refused_produce_without_an_answer_closes_the_connection() {
    let mut world = world_with_a_record();
    let partition = PartitionProduceData {
        index: 0,
        records: Some(&[]),
    };
    let topic = TopicProduceData {
        name: "nowhere",
        partition_data: vec![partition],
        ..Default::default()
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks: 0,
        timeout_ms: 1_000,
        topic_data: vec![topic],
    };
    let mut body = Vec::new();
    request.encode(&mut body, 11);
    // The world panics with the reason when the broker closes a connection.
    let _ = world.complete(ApiKey::Produce, 11, &body);
}
