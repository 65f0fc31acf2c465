//! Transactions on a machine that loses power at any disk operation: the order of what the
//! coordinator makes durable (decision 19), with the real coordinator and the real logs.
//!
//! Every run of a seed is the same up to the cut, which comes at another operation each time.

use std::ops::Range;

use ottla_sim::client::{TOPIC, create_topic};
use ottla_sim::inhabited::{Isolation, is_held_up, read_as};
use ottla_sim::transacting::{Kind, TIMEOUT_MS, TransactionalProducer};
use ottla_sim::world::World;

const PARTITIONS: [i32; 2] = [0, 1];
const SEEDS_BY_DEFAULT: u64 = 3;

const SETTINGS: [(&str, &str); 2] = [
    ("transaction.state.log.num.partitions", "1"),
    ("offsets.topic.num.partitions", "1"),
];

/// A transaction as its producer knows it.
#[derive(Debug)]
struct Told {
    value: String,
    partitions: &'static [i32],
    /// Whether it was to be committed; `None`: its end was not asked for.
    asked: Option<bool>,
    answered: bool,
}

/// `OTTLA_SIM_SEEDS=n` runs the first n.
fn seeds() -> Range<u64> {
    let count = std::env::var("OTTLA_SIM_SEEDS").ok();
    0..count.map_or(SEEDS_BY_DEFAULT, |text| text.parse().expect("a number"))
}

/// A stopped broker with a topic and a coordinator that has seen the producer.
fn prepared(seed: u64, kind: Kind) -> World {
    let mut world = World::new(seed, &SETTINGS);
    world.start();
    assert!(create_topic(&mut world, 2));
    TransactionalProducer::init(&mut world, kind).expect("there is power");
    world.stop();
    world
}

/// Some transactions one after the other, the last of which stays open; `None`: the power went off.
fn transact(world: &mut World, kind: Kind, told: &mut Vec<Told>) -> Option<()> {
    let mut producer = TransactionalProducer::init(world, kind)?;
    // What follows a transaction in one partition must not make up for its loss in the other.
    let plan: [(Option<bool>, &[i32]); 4] = [
        (Some(true), &PARTITIONS),
        (Some(false), &PARTITIONS[..1]),
        (Some(true), &PARTITIONS),
        (None, &PARTITIONS[1..]),
    ];
    for (number, (end, partitions)) in plan.into_iter().enumerate() {
        let value = format!("transaction {number}");
        told.push(Told {
            value: value.clone(),
            partitions,
            asked: None,
            answered: false,
        });
        producer.send(world, partitions, &value)?;
        let last = told.last_mut().expect("just pushed");
        if let Some(is_commit) = end {
            last.asked = end;
            producer.end(world, is_commit)?;
            last.answered = true;
        }
    }
    Some(())
}

/// Lets the broker do all that it has to do.
fn settle(world: &mut World) {
    let mut idle = 0;
    while idle < 20 {
        idle = if world.step() { 0 } else { idle + 1 };
    }
}

/// What readers of committed records see, by partition.
fn committed(world: &mut World) -> [Vec<String>; 2] {
    PARTITIONS.map(|index| {
        let found = read_as(world, (TOPIC, index), Isolation::Committed).expect("a sound answer");
        assert_eq!((found.refusal, found.unreadable.len()), (None, 0));
        found.records.into_values().collect()
    })
}

/// After a restart: each transaction has one outcome in all of its partitions, the one that its
/// producer was told; and none holds up readers for longer than it may take.
fn check(world: &mut World, told: &[Told], at: &str) {
    settle(world);
    let seen = committed(world);
    for transaction in told {
        let line = format!("={}", transaction.value);
        let is_visible = |index: &&i32| seen[**index as usize].contains(&line);
        let visible = transaction.partitions.iter().filter(is_visible).count();
        let all = transaction.partitions.len();
        let is_right = match (transaction.asked, transaction.answered) {
            (Some(true), true) => visible == all,
            (Some(true), false) => visible == all || visible == 0,
            _ => visible == 0,
        };
        assert!(is_right, "{at}: {transaction:?} is visible in {visible} of {all}");
    }
    world.clock.advance(TIMEOUT_MS as u64 * 1_000 + 1);
    settle(world);
    for index in PARTITIONS {
        let is_open = is_held_up(world, (TOPIC, index));
        assert!(
            !is_open,
            "{at}: partition {index} has a transaction that nothing ends"
        );
    }
}

/// Runs `act` on copies of a stopped world, with the power cut at each of its disk operations, and
/// checks what comes after.
fn cut_everywhere(world: &World, seed: u64, act: impl Fn(&mut World) -> Vec<Told>) {
    let mut operation = 0;
    loop {
        let at = format!("seed {seed}, operation {operation}");
        let mut copy = world.fork(seed);
        assert!(copy.start());
        copy.disk.cut_power_at(copy.disk.operations() + operation);
        let told = act(&mut copy);
        let is_cut = !copy.is_running();
        copy.power_cut();
        assert!(copy.start());
        check(&mut copy, &told, &at);
        if !is_cut {
            assert!(operation > 5, "{at}: next to nothing was done");
            return;
        }
        operation += 1;
    }
}

#[test]
fn a_transaction_has_one_outcome_wherever_the_power_is_cut() {
    for seed in seeds() {
        for kind in [Kind::New, Kind::Old] {
            cut_everywhere(&prepared(seed, kind), seed, |world| {
                let mut told = Vec::new();
                if transact(world, kind, &mut told).is_some() {
                    settle(world);
                }
                told
            });
        }
    }
}

/// What a killed broker had left in the page cache is synced by the recovery of its log, before the
/// coordinator acts on it.
#[test]
fn a_decision_from_the_page_cache_is_made_durable_before_its_markers() {
    for seed in seeds() {
        for kind in [Kind::New, Kind::Old] {
            let mut world = prepared(seed, kind);
            world.start();
            let mut producer = TransactionalProducer::init(&mut world, kind).expect("there is power");
            producer
                .send(&mut world, &PARTITIONS, "a value")
                .expect("there is power");
            world.stop();
            world.set("ottla.durability", "page-cache");
            world.start();
            settle(&mut world);
            producer.ask_for_end(&mut world, true);
            world.kill();
            world.set("ottla.durability", "disk");
            cut_everywhere(&world, seed, |world| {
                settle(world);
                vec![Told {
                    value: "a value".to_owned(),
                    partitions: &PARTITIONS,
                    asked: Some(true),
                    answered: false,
                }]
            });
        }
    }
}
