//! A group of real members and a real coordinator, while members die, are slow and come back,
//! connections break, the broker restarts and topics get more partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_client::consumer::TopicPartition;
use ottla_client::consumer::{Subscription, TopicPattern};
use ottla_client::machine::metadata::snapshot::{Node, Partition, Snapshot, Topic};
use ottla_client::machine::network::io::Address;
use ottla_client::machine::time::Moment;
use ottla_core::time::Clock;
use ottla_log::disk::memory::Random;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_wire::primitives::Uuid;

use crate::group_links::{Answered, BROKER, Era, LinkTroubles};
use crate::group_member::{Character, Member};
use crate::group_oracle::GroupOracle;
use crate::world::{Outcome, World};

const CREATE_TOPICS_VERSION: i16 = 7;
const CREATE_PARTITIONS_VERSION: i16 = 3;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub members: u64,
    /// Each member takes one of these, in turn.
    pub assignors: Vec<&'static str>,
    pub has_static_members: bool,
    pub has_patterns: bool,
    pub has_old_members: bool,
    pub auto_commits: bool,
    pub troubles: LinkTroubles,
    /// Whether members are killed, closed, started and fenced.
    pub has_churn: bool,
    pub has_restarts: bool,
    pub has_growth: bool,
    pub is_slow: bool,
    pub chaos_ms: u64,
}

/// The counts of a run, so that a test can check that faults were injected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub generations: u64,
    pub commits_accepted: u64,
    pub commits_refused: u64,
    pub records_processed: u64,
    pub records_repeated: u64,
    pub broken_connections: u64,
    pub killed: u64,
    pub closed: u64,
    pub fenced: u64,
    pub broker_starts: u64,
    pub settled_after_ms: u64,
}

pub struct GroupRun {
    seed: u64,
    scenario: Scenario,
    world: World,
    random: Random,
    oracle: GroupOracle,
    members: Vec<Member>,
    /// Members created so far.
    births: u64,
    /// Partitions of each topic.
    topics: BTreeMap<String, i32>,
    metadata_version: u64,
    report: Report,
}

/// Within this time after the last fault all members must be settled: sessions of dead members must
/// expire, rebalances wait for them, and a member that polls slowly must first be removed.
const SETTLE_MS_MAX: u64 = 60_000;
/// The group counts as settled after this time without a change.
const QUIET_MS: u64 = 2_000;

impl GroupRun {
    pub fn new(seed: u64, scenario: Scenario) -> GroupRun {
        let properties = [
            ("group.min.session.timeout.ms", "100"),
            ("group.initial.rebalance.delay.ms", "50"),
            ("offsets.topic.num.partitions", "1"),
            ("offsets.topic.replication.factor", "1"),
        ];
        GroupRun {
            seed,
            world: World::new(seed, &properties),
            random: Random::new(seed ^ 0x6a0f),
            oracle: GroupOracle::new(seed),
            members: Vec::new(),
            births: 0,
            topics: BTreeMap::from([
                ("orders".into(), 4),
                ("payments".into(), 4),
                ("returns".into(), 1),
            ]),
            metadata_version: 0,
            report: Report::default(),
            scenario,
        }
    }

    pub fn run(mut self) -> Report {
        self.start_broker();
        for _ in 0..self.scenario.members {
            self.add_member(None);
        }
        let chaos_until = self.now().after_ms(self.scenario.chaos_ms);
        while self.now() < chaos_until {
            self.hurt();
            self.step();
        }
        self.calm_down();
        self.settle();
        self.finish()
    }

    fn now(&self) -> Moment {
        self.world.clock.moment()
    }

    fn start_broker(&mut self) {
        while !self.world.is_running() || !self.create_topics() {
            if !self.world.is_running() {
                self.world.start();
            }
            self.world.step();
        }
        self.metadata_version += 1;
    }

    /// Creates topics, and adds partitions to existing ones up to the wanted number.
    fn create_topics(&mut self) -> bool {
        for (name, count) in self.topics.clone() {
            let topic = CreatableTopic {
                name: &name,
                num_partitions: count,
                replication_factor: 1,
                ..CreatableTopic::default()
            };
            let create = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: 10_000,
                ..Default::default()
            };
            let mut body = Vec::new();
            create.encode(&mut body, CREATE_TOPICS_VERSION);
            let created = self
                .world
                .complete(ApiKey::CreateTopics, CREATE_TOPICS_VERSION, &body);
            let topic = CreatePartitionsTopic {
                name: &name,
                count,
                assignments: None,
            };
            let grow = CreatePartitionsRequest {
                topics: vec![topic],
                timeout_ms: 10_000,
                ..Default::default()
            };
            let mut body = Vec::new();
            grow.encode(&mut body, CREATE_PARTITIONS_VERSION);
            let grown = self
                .world
                .complete(ApiKey::CreatePartitions, CREATE_PARTITIONS_VERSION, &body);
            if !matches!((created, grown), (Outcome::Answer(_), Outcome::Answer(_))) {
                return false;
            }
        }
        true
    }

    /// - `before`: the member that it replaces. The coordinator does not compare the subscription
    ///   of a
    ///   returning static member (neither does Kafka's), so it subscribes to the same topics.
    fn add_member(&mut self, before: Option<Character>) {
        let number = self.births;
        self.births += 1;
        let subscription = self.subscription();
        let scenario = &self.scenario;
        let is_static = scenario.has_static_members && number.is_multiple_of(2);
        let era = match self.random.below(4) {
            _ if !scenario.has_old_members => Era::New,
            // Static membership needs newer API versions.
            _ if is_static => Era::New,
            0 | 1 => Era::Old,
            2 => Era::Middle,
            _ => Era::New,
        };
        let new = Character {
            name: String::new(),
            instance_id: is_static.then(|| format!("instance-{number}")),
            assignors: scenario.assignors[number as usize % scenario.assignors.len()],
            auto_commits: scenario.auto_commits,
            era,
            subscription,
        };
        let character = Character {
            name: format!("member {number}"),
            ..before.unwrap_or(new)
        };
        let mut member = Member::new(character, self.seed.wrapping_mul(1_000) + number);
        member.may_be_slow = self.scenario.is_slow;
        self.members.push(member);
    }

    fn subscription(&mut self) -> Subscription {
        if self.scenario.has_patterns && self.random.one_in(2) {
            let pattern = TopicPattern::parse("(orders|pay.*|new-.*)").expect("a pattern");
            return Subscription::Pattern(pattern);
        }
        match self.random.below(3) {
            0 => Subscription::topics(["orders"]),
            1 => Subscription::topics(["orders", "payments"]),
            _ => Subscription::topics(["orders", "payments", "returns"]),
        }
    }

    /// Injects one fault.
    fn hurt(&mut self) {
        if !self.world.is_running() {
            if self.random.one_in(100) {
                self.start_broker();
            }
            return;
        }
        let count = self.members.len() as u64;
        let index = self.random.below(count) as usize;
        let now = self.now();
        match self.random.below(20_000) {
            0..20 if self.scenario.has_churn && count > 1 => {
                let dead = self.members.remove(index);
                self.report.killed += 1;
                // A static member comes back with the same group.instance.id.
                if dead.character.instance_id.is_some() && self.random.one_in(2) {
                    self.add_member(Some(dead.character));
                }
            }
            20..35 if self.scenario.has_churn && count > 1 => {
                self.members[index].close(now);
                self.report.closed += 1;
            }
            35..65 if self.scenario.has_churn && count < 8 => self.add_member(None),
            65..70 if self.scenario.has_churn && self.scenario.has_static_members => {
                let character = self.members[index].character.clone();
                if character.instance_id.is_some() {
                    self.add_member(Some(character));
                }
            }
            70..80 if self.scenario.has_churn => {
                let subscription = self.subscription();
                self.members[index].subscribe(now, subscription);
            }
            80..85 if self.scenario.has_churn => self.members[index].request_rejoin(),
            85..90 if self.scenario.has_restarts => self.world.kill(),
            90..95 if self.scenario.has_restarts => self.world.power_cut(),
            95..98 if self.scenario.has_restarts => self.world.stop(),
            98..104 if self.scenario.has_growth => {
                *self.topics.entry("orders".into()).or_default() += 1;
                self.start_broker();
            }
            104..107 if self.scenario.has_growth => {
                self.topics.insert(format!("new-{}", self.topics.len()), 2);
                self.start_broker();
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        self.world.step();
        self.world.clock.advance(self.random.below(8_000));
        let now = self.now();
        let mut answered: Vec<Answered> = Vec::new();
        for index in 0..self.members.len() {
            self.refresh_metadata(index);
            let member = &mut self.members[index];
            member.step(
                now,
                &mut self.world,
                &self.scenario.troubles,
                &mut self.oracle,
                &mut answered,
            );
            for answer in answered.drain(..) {
                self.oracle.answered(&answer);
            }
        }
        let report = &mut self.report;
        self.members.retain(|member| {
            report.fenced += u64::from(member.is_fenced);
            let stays = !member.is_closed() && !member.is_fenced;
            report.broken_connections += if stays { 0 } else { member.links.broken };
            stays
        });
        if self.members.is_empty() {
            self.add_member(None);
        }
    }

    /// Updates a member's metadata now and then, sooner if it asked for it.
    fn refresh_metadata(&mut self, index: usize) {
        let member = &mut self.members[index];
        let wanted = member.machine().metadata_topics();
        let known = &member.links.snapshot;
        let exists = |name: &Arc<str>| self.topics.contains_key(&**name);
        let is_missing = wanted.as_ref().is_some_and(|wanted| {
            wanted
                .iter()
                .any(|name| exists(name) && !known.topics.contains_key(name))
        });
        let is_due = match is_missing || known.version == 0 {
            true => self.random.one_in(20),
            false => self.random.one_in(300),
        };
        if !is_due || !self.world.is_running() {
            return;
        }
        let version = known.version + 1;
        let topics = self
            .topics
            .iter()
            .filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted.contains(&***name)));
        member.links.snapshot = Arc::new(snapshot(version, topics));
    }

    fn calm_down(&mut self) {
        self.scenario.troubles = LinkTroubles {
            delay_ms_max: 5,
            ..LinkTroubles::default()
        };
        if !self.world.is_running() {
            self.start_broker();
        }
        for member in &mut self.members {
            member.may_be_slow = false;
        }
    }

    fn settle(&mut self) {
        let calm_since = self.now();
        let mut quiet_since = calm_since;
        while self.now().ms_since(quiet_since) < QUIET_MS {
            self.step();
            let generations: BTreeSet<i32> = self
                .members
                .iter()
                .map(|member| member.machine().group_metadata().generation_id)
                .collect();
            let is_settled = generations.len() == 1
                && self.is_covered()
                && self
                    .members
                    .iter()
                    .all(|member| member.is_stable() && member.has_positions());
            if !is_settled {
                quiet_since = self.now();
            }
            let waited_ms = self.now().ms_since(calm_since);
            assert!(
                waited_ms < SETTLE_MS_MAX,
                "seed {}: not settled {waited_ms} ms after the last fault: {:#?}",
                self.seed,
                self.members
                    .iter()
                    .map(|m| (&m.character, m.failures.len(), m.machine()))
                    .collect::<Vec<_>>()
            );
        }
        self.report.settled_after_ms = quiet_since.ms_since(calm_since);
    }

    /// Whether every subscribed partition has exactly one owner.
    fn is_covered(&self) -> bool {
        let everything = snapshot(1, self.topics.iter());
        let mut owners: BTreeMap<TopicPartition, usize> = BTreeMap::new();
        let mut expected: BTreeMap<TopicPartition, usize> = BTreeMap::new();
        for member in &self.members {
            for partition in member.machine().assignment() {
                *owners.entry(partition.clone()).or_default() += 1;
            }
            for topic in member.character.subscription.resolve(&everything, true) {
                let count = self.topics.get(&*topic).copied().unwrap_or_default();
                expected.extend((0..count).map(|index| (TopicPartition::new(topic.clone(), index), 1)));
            }
        }
        owners == expected
    }

    fn finish(mut self) -> Report {
        let report = &mut self.report;
        report.broken_connections += self.members.iter().map(|member| member.links.broken).sum::<u64>();
        report.generations = self.oracle.generations as u64;
        report.commits_accepted = self.oracle.commits_accepted;
        report.commits_refused = self.oracle.commits_refused;
        report.records_processed = self.oracle.records_processed;
        report.records_repeated = self.oracle.records_repeated;
        report.broker_starts = self.world.starts;
        self.report
    }
}

fn snapshot<'a>(version: u64, topics: impl Iterator<Item = (&'a String, &'a i32)>) -> Snapshot {
    let node = Node {
        id: BROKER,
        address: Address {
            host: "simulated".into(),
            port: 9092,
        },
        rack: None,
    };
    let partition = Partition {
        leader: Some(BROKER),
        leader_epoch: 0,
        replicas: vec![BROKER],
        in_sync: vec![BROKER],
    };
    let topics = topics.map(|(name, count)| {
        let name: Arc<str> = name.as_str().into();
        let topic = Topic {
            name: name.clone(),
            id: Uuid::default(),
            partitions: vec![partition.clone(); *count as usize],
            is_internal: false,
            usage: Default::default(),
        };
        (name, Arc::new(topic))
    });
    Snapshot {
        version,
        nodes: BTreeMap::from([(BROKER, node)]),
        topics: topics.collect(),
        ..Snapshot::default()
    }
}
