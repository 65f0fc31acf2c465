//! Producers, consumers and a broker whose machine loses power at any disk operation.
//!
//! `OTTLA_SIM_SEED=n` runs one seed, `OTTLA_SIM_SEEDS=n` the first n. A failure names its seed.

use ottla_sim::client::{Producer, create_topic, read_to_end};
use ottla_sim::oracle::Oracle;
use ottla_sim::world::World;

const PARTITION_COUNT: i32 = 3;
const PRODUCER_COUNT: u64 = 3;
const SEEDS_BY_DEFAULT: u64 = 300;

fn for_each_seed(run: impl Fn(u64)) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    match number("OTTLA_SIM_SEED") {
        Some(seed) => run(seed),
        None => (0..number("OTTLA_SIM_SEEDS").unwrap_or(SEEDS_BY_DEFAULT)).for_each(run),
    }
}

fn start(world: &mut World) {
    while !world.is_running() || !create_topic(world, PARTITION_COUNT) {
        if !world.is_running() {
            world.start();
        }
        world.step();
    }
}

/// Reads everything; restarts and reads again if the power goes off in between.
fn read_all(world: &mut World, oracle: &mut Oracle) {
    for index in 0..PARTITION_COUNT {
        loop {
            start(world);
            if let Some(records) = read_to_end(world, index, 0) {
                oracle.read(index, &records);
                break;
            }
        }
    }
}

fn run(seed: u64, properties: &[(&str, &str)], hurt: impl Fn(&mut World)) {
    let mut world = World::new(seed, properties);
    let mut oracle = Oracle::new(seed);
    let mut producers: Vec<Producer> = (0..PRODUCER_COUNT)
        .map(|number| Producer::new(number, PARTITION_COUNT))
        .collect();
    for step in 0..400 {
        start(&mut world);
        for producer in &mut producers {
            if step < 300 && world.random.one_in(3) {
                producer.produce(&mut world.random);
            }
            producer.turn(&mut world, &mut oracle);
        }
        for _ in 0..world.random.below(4) {
            world.step();
        }
        if step < 300 && world.random.one_in(40) {
            hurt(&mut world);
        }
        if world.random.one_in(60) {
            read_all(&mut world, &mut oracle);
        }
    }
    let mut turns = 0;
    while !producers.iter().all(Producer::is_idle) {
        start(&mut world);
        producers
            .iter_mut()
            .for_each(|producer| producer.turn(&mut world, &mut oracle));
        world.step();
        turns += 1;
        assert!(
            turns < 100_000,
            "seed {seed}: the producers never get their answers"
        );
    }
    read_all(&mut world, &mut oracle);
    world.stop();
    read_all(&mut world, &mut oracle);
    assert!(
        oracle.acknowledged_count() > 100,
        "seed {seed}: the simulation did next to nothing"
    );
}

#[test]
fn nothing_acknowledged_or_seen_is_lost_by_a_power_cut() {
    for_each_seed(|seed| {
        run(seed, &[], |world| {
            let operation = world.disk.operations() + world.random.below(40);
            world.disk.cut_power_at(operation);
        });
    });
}

#[test]
fn a_killed_process_loses_nothing_even_without_syncs() {
    let properties = [("ottla.durability", "page-cache")];
    for_each_seed(|seed| run(seed, &properties, World::kill));
}
