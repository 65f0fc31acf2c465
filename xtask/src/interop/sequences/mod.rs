//! `--only sequences`: seeded random sequences of requests to group and transaction coordinators,
//! the same to Apache Kafka and to Ottla. Each answer of one must be that of the other, except for
//! generated ids, messages for people and times.
//!
//! A sequence names what a client would send next in terms of what it was told before (its member
//! epoch, its producer id), so each broker gets its own ids back. No timer is due while a sequence
//! runs. Apache Kafka writes markers and resolves regular expressions behind its answers; a
//! sequence goes on when that is done.

mod differences;
mod groups;
mod lane;
mod membership;
mod play;
mod text;
mod transactions;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::find_coordinator::FindCoordinatorRequest;
use ottla_wire::messages::init_producer_id::InitProducerIdRequest;
use ottla_wire::primitives::{Reader, Uuid};
use ottla_wire::random::Random;

use super::refusals::{Ask, answer, is_led, wait_for};
use super::server::{Programs, Server, Site, Target, copy_directory};
use super::table::Table;
use groups::GroupWorld;
use play::{Player, World};
use transactions::TransactionWorld;

/// One sequence of each kind for every seed.
pub const SEEDS: Range<u64> = 0..100;
/// Differences that are shortened and printed; more are counted.
const SHOWN_MAX: usize = 4;

/// Topics of all sequences, and their partitions.
pub const TOPICS: [(&str, i32); 3] = [("alpha", 6), ("beta", 3), ("gamma", 2)];

const SETTINGS: [(&str, &str); 6] = [
    // Which member gets what is the same on both; `uniform` follows the order of a hash table.
    ("group.consumer.assignors", "range"),
    ("group.consumer.assignment.interval.ms", "0"),
    ("group.consumer.assignor.offload.enable", "false"),
    ("group.consumer.migration.policy", "bidirectional"),
    ("transaction.state.log.num.partitions", "5"),
    ("auto.create.topics.enable", "false"),
];

/// What both brokers have in common.
#[derive(Clone, Debug)]
pub struct Scene {
    pub topic_ids: Vec<Uuid>,
}

struct Stage {
    ottla: Server,
    kafka: Server,
    ports: [u16; 2],
    scene: Scene,
}

pub fn run(table: &mut Table, programs: &Programs, seeds: Range<u64>) -> Result<()> {
    let stage = Stage::set(programs)?;
    let player = Player::new(stage.ports, stage.scene.clone());
    play_all::<GroupWorld>(table, &player, &seeds)?;
    play_all::<TransactionWorld>(table, &player, &seeds)?;
    stage.ottla.stop()?;
    stage.kafka.stop()
}

/// Plays the sequences of one kind; a difference is shortened and reported.
fn play_all<W: World>(table: &mut Table, player: &Player, seeds: &Range<u64>) -> Result<()> {
    let (mut different, mut answers, mut unsure) = (Vec::new(), 0, 0_u64);
    let mut known: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in seeds.clone() {
        let steps = W::sequence(&mut Random::new(seed));
        let played = player.play_until_sure::<W>(&steps)?;
        answers += played.answers;
        unsure += u64::from(played.is_unsure);
        if let Some(why) = played.known {
            *known.entry(why).or_default() += 1;
        }
        let Some(difference) = played.difference else {
            continue;
        };
        let mut told = format!("seed {seed}: {difference}");
        if different.len() < SHOWN_MAX {
            told = format!("seed {seed}: {}", player.shortened::<W>(steps)?);
        }
        println!("sequences: {}: {told}", W::NAME);
        different.push(told);
    }
    println!(
        "sequences: {}: {answers} answers compared; {unsure} sequences not to their end, for the order of drawn ids",
        W::NAME
    );
    for (why, times) in &known {
        println!("sequences: {}: {times} times: {why}", W::NAME);
    }
    let outcome = match different.len() {
        0 => Ok(()),
        count => Err(format!("{count} differ, first {}", different[0])),
    };
    table.add_other(
        format!("sequences: seeds {seeds:?}: {} are answered alike", W::NAME),
        outcome,
    );
    Ok(())
}

impl Stage {
    /// Has Ottla create the topics; then Apache Kafka opens a copy of its directory.
    fn set(programs: &Programs) -> Result<Stage> {
        let sites = [
            Site::create("sequences-ottla", &SETTINGS)?,
            Site::create("sequences-kafka", &SETTINGS)?,
        ];
        let ottla = sites[0].start(programs, Target::Ottla)?;
        let scene = Scene {
            topic_ids: create_topics(sites[0].port, &TOPICS)?,
        };
        ottla.stop()?;
        copy_directory(&sites[0].directory, &sites[1].directory)?;
        let ottla = sites[0].start(programs, Target::Ottla)?;
        let kafka = sites[1].start(programs, Target::Kafka)?;
        let ports = [sites[0].port, sites[1].port];
        for port in ports {
            wait_until_served(port)?;
        }
        Ok(Stage {
            ottla,
            kafka,
            ports,
            scene,
        })
    }
}

/// Waits for the leaders of the topics, for both kinds of coordinators, and for producer ids.
fn wait_until_served(port: u16) -> Result<()> {
    for (topic, partitions) in TOPICS {
        wait_until_led(port, topic, partitions)?;
    }
    for (key_type, key) in [(0, "some"), (1, "some")] {
        let mut body = Vec::new();
        let request = FindCoordinatorRequest {
            key,
            key_type,
            ..Default::default()
        };
        request.encode(&mut body, 2);
        wait_for(port, &Ask::new(ApiKey::FindCoordinator, 2, body))?;
    }
    let mut body = Vec::new();
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    request.encode(&mut body, 1);
    wait_for(port, &Ask::new(ApiKey::InitProducerId, 1, body))
}

pub fn wait_until_led(port: u16, topic: &str, partitions: i32) -> Result<()> {
    let began = Instant::now();
    while !is_led(port, topic, partitions)? {
        ensure!(
            began.elapsed() < play::PATIENCE,
            "{topic} has partitions without a leader"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the topics' ids.
pub fn create_topics(port: u16, topics: &[(&str, i32)]) -> Result<Vec<Uuid>> {
    let request = CreateTopicsRequest {
        topics: topics
            .iter()
            .map(|(name, num_partitions)| CreatableTopic {
                name,
                num_partitions: *num_partitions,
                replication_factor: 1,
                ..CreatableTopic::default()
            })
            .collect(),
        timeout_ms: 30_000,
        validate_only: false,
    };
    let mut body = Vec::new();
    request.encode(&mut body, 7);
    let frame = answer(port, &Ask::new(ApiKey::CreateTopics, 7, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::CreateTopics, 7)?;
    let response = CreateTopicsResponse::decode(&mut reader, 7)?;
    for made in &response.topics {
        ensure!(made.error_code == 0, "{}: {:?}", made.name, made.error_message);
    }
    let id_of = |name: &str| {
        let mut made = response.topics.iter();
        made.find(|made| made.name == name).map(|made| made.topic_id)
    };
    let ids = topics.iter().map(|(name, _)| id_of(name));
    ids.collect::<Option<_>>().context("no answer for a topic")
}
