//! A temporary shortage of file descriptors at every point of a run, a start and a stop: work that
//! it prevents is done when it is over.

use ottla_core::config::RecoveryConfig;
use ottla_sim::client::{create_topic, produce_once, read_to_end, try_to_create_topic};
use ottla_sim::world::World;
use ottla_wire::error_code::ErrorCode;

const PARTITIONS: i32 = 3;
/// This many consecutive operations find no descriptor.
const REFUSALS: u64 = 4;

fn values(world: &mut World, partition: i32) -> Vec<String> {
    let records = read_to_end(world, partition, 0).expect("there is power");
    records.into_iter().map(|(_, value)| value).collect()
}

/// Runs housekeeping, which retries postponed work, and the threads that it asks to work.
fn let_it_recover(world: &mut World) {
    for _ in 0..4 {
        world.maintain();
        while world.step() {}
    }
}

/// Checks that every partition accepts a record and returns it together with all acknowledged ones.
fn check_alive(world: &mut World, acknowledged: &[Vec<String>], at: u64) {
    for (partition, before) in (0..PARTITIONS).zip(acknowledged) {
        let produced = produce_once(world, partition, "alive");
        assert!(
            produced.is_ok(),
            "shortage at {at}: partition {partition}: {produced:?}"
        );
        let found = values(world, partition);
        assert_eq!(
            found.last().map(String::as_str),
            Some("alive"),
            "shortage at {at}"
        );
        let mut rest = found.iter();
        let is_there = before.iter().all(|value| rest.any(|other| other == value));
        assert!(is_there, "shortage at {at}: {before:?} is not all in {found:?}");
    }
}

fn world_with_records() -> (World, Vec<Vec<String>>) {
    let mut world = World::new(11, &[]);
    assert!(world.start());
    assert!(create_topic(&mut world, PARTITIONS));
    let mut acknowledged = Vec::new();
    for partition in 0..PARTITIONS {
        let values: Vec<String> = (0..12)
            .map(|number| format!("{partition}:{number:>800}"))
            .collect();
        for value in &values {
            assert!(produce_once(&mut world, partition, value).is_ok());
        }
        acknowledged.push(values);
    }
    (world, acknowledged)
}

/// Runs `play` with a shortage that begins after 0, 1, 2, … operations, until none is refused.
/// `play` returns the number of refusals that were left at its end.
fn at_every_operation(mut play: impl FnMut(u64) -> u64) -> u64 {
    let mut operations = 0;
    while play(operations) < REFUSALS {
        operations += 1;
    }
    operations
}

#[test]
fn a_shortage_while_records_are_written_leaves_every_partition_usable() {
    let tries = at_every_operation(|at| {
        let mut world = World::new(13, &[]);
        assert!(world.start());
        world.disk.begin_shortage(at, REFUSALS);
        // A refused request can be repeated; a topic that was created is opened automatically.
        let is_there = |answer| matches!(answer, Some(ErrorCode::None | ErrorCode::TopicAlreadyExists));
        while !is_there(try_to_create_topic(&mut world, PARTITIONS)) {}
        let mut acknowledged = vec![Vec::new(); PARTITIONS as usize];
        for number in 0..12 {
            for partition in 0..PARTITIONS {
                let value = format!("{partition}:{number:>800}");
                if produce_once(&mut world, partition, &value).is_ok() {
                    acknowledged[partition as usize].push(value);
                }
            }
            world.maintain();
        }
        let left = world.disk.end_shortage();
        let_it_recover(&mut world);
        check_alive(&mut world, &acknowledged, at);
        world.power_cut();
        assert!(world.start());
        check_alive(&mut world, &acknowledged, at);
        left
    });
    assert!(tries > 100, "only {tries} operations were refused");
}

#[test]
fn a_shortage_at_a_start_loses_nothing_and_unopened_partitions_are_opened_later() {
    let (mut origin, acknowledged) = world_with_records();
    origin.kill();
    let (mut refused, mut late) = (0, 0);
    let tries = at_every_operation(|at| {
        let mut world = origin.fork(at);
        world.disk.begin_shortage(at, REFUSALS);
        let started = world.try_start(RecoveryConfig::default());
        let left = world.disk.end_shortage();
        if let Err(error) = started {
            assert!(error.to_string().contains("descriptors"), "{error}");
            refused += 1;
            world.kill();
            assert!(world.start());
        }
        let is_served = |index| {
            world
                .node()
                .is_some_and(|node| node.storage.partition_by_name("simulated", index).is_ok())
        };
        late += u64::from(!(0..PARTITIONS).all(is_served));
        // Even after a kill before any retry, the next start knows all partitions.
        let mut killed = world.fork(at);
        assert!(killed.start());
        check_alive(&mut killed, &acknowledged, at);
        let_it_recover(&mut world);
        check_alive(&mut world, &acknowledged, at);
        left
    });
    assert!(tries > 50, "only {tries} operations were refused");
    assert!(late > 0, "no partition was opened late");
    println!("{tries} shortages, {refused} starts refused, {late} with partitions opened later");
}

#[test]
fn a_stop_is_a_clean_one_although_descriptors_are_short() {
    let (mut origin, acknowledged) = world_with_records();
    origin.kill();
    let tries = at_every_operation(|at| {
        let mut world = origin.fork(at);
        assert!(world.start());
        for partition in 0..PARTITIONS {
            assert!(produce_once(&mut world, partition, "new").is_ok());
        }
        world.disk.begin_shortage(at, REFUSALS);
        world.stop();
        let left = world.disk.end_shortage();
        let mark = std::path::Path::new("/data/.kafka_cleanshutdown");
        assert!(world.disk.read_file(mark).is_some(), "shortage at {at}");
        assert!(world.start());
        check_alive(&mut world, &acknowledged, at);
        left
    });
    assert!(tries > 10, "only {tries} operations were refused");
}
