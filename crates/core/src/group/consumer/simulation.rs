//! Random members against a machine that is dropped and replayed at any point. A failure prints its
//! seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::random::Random;

use crate::group::config::{ConsumerConfig, GroupConfig};
use crate::group::machine::Machine;
use crate::group::record::GroupRecord;
use crate::group::reply::{GroupReply, Step};
use crate::group::request::{GroupRequest, GroupTicket};
use crate::image::topics::TopicsImage;
use crate::time::Now;
use crate::time::{Moment, Timestamp};

use super::assignment::Partitions;
use super::group::ConsumerGroup;
use super::request::{ConsumerHeartbeat, HeartbeatReply};
use super::tests::{GROUP, heartbeat, partitions};

const SEEDS: u64 = 150;
const STEPS: u32 = 1_200;
const CLIENTS: usize = 6;
const TOPICS: [&str; 3] = ["t0", "t1", "t2"];
const SESSION_MS: i32 = 10_000;
const REBALANCE_MS: i32 = 20_000;

#[test]
fn random_consumer_groups_keep_their_invariants_across_replays() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.calm_down();
    }
}

#[derive(Clone, Debug, Default)]
struct Client {
    instance_id: Option<String>,
    member_id: String,
    /// 0: not joined.
    epoch: i32,
    topics: BTreeSet<&'static str>,
    regex: Option<&'static str>,
    is_subscription_new: bool,
    /// What the client processes.
    owned: Partitions,
    /// What it was told last, once it has given up the rest.
    told: Option<Partitions>,
    waiting: Option<GroupTicket>,
    /// An answer was lost: the next heartbeat names everything, as Java's does.
    has_lost_answer: bool,
}

struct World {
    seed: u64,
    random: Random,
    now: Now,
    config: Arc<GroupConfig>,
    machine: Machine,
    shadow: Machine,
    log: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    unsynced: VecDeque<Step>,
    clients: Vec<Client>,
    topics: Arc<TopicsImage>,
    ids: BTreeMap<&'static str, (Uuid, usize)>,
    next: u64,
    assignment_interval_ms: i32,
    /// Durable group epoch.
    epoch: i32,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) ^ 5);
        let config = Arc::new(GroupConfig {
            consumer: ConsumerConfig {
                session_timeout_ms: SESSION_MS,
                ..ConsumerConfig::default()
            },
            ..GroupConfig::default()
        });
        let now = Now {
            moment: Moment::from_micros(1_000_000),
            timestamp: Timestamp(1_700_000_000_000),
        };
        let mut machine = Machine::new(config.clone(), seed);
        machine.arm(now);
        let mut world = World {
            seed,
            now,
            shadow: Machine::new(config.clone(), 0),
            assignment_interval_ms: [0, 1_000][(random.next_u64() % 2) as usize],
            random,
            config,
            machine,
            log: Vec::new(),
            unsynced: VecDeque::new(),
            clients: Vec::new(),
            topics: Arc::default(),
            ids: TOPICS
                .iter()
                .zip(1..)
                .map(|(name, id)| (*name, (Uuid([id; 16]), 3)))
                .collect(),
            next: 100,
            epoch: 0,
        };
        world.publish();
        for index in 0..CLIENTS {
            let instance_id = world.one_in(3).then(|| format!("i{index}"));
            world.clients.push(Client {
                instance_id,
                ..Client::default()
            });
            world.subscribe(index);
        }
        world
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.random.next_u64() % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn publish(&mut self) {
        let topics: Vec<_> = self
            .ids
            .iter()
            .map(|(name, (id, count))| (*name, *id, *count))
            .collect();
        self.topics = Arc::new(TopicsImage::of(&topics));
    }

    fn subscribe(&mut self, index: usize) {
        let topics = TOPICS
            .into_iter()
            .filter(|_| !self.random.next_u64().is_multiple_of(3))
            .collect();
        let regex = [None, None, Some("t[01]"), Some("t.*")][self.roll(4) as usize];
        let client = &mut self.clients[index];
        client.topics = topics;
        client.regex = regex;
        client.is_subscription_new = true;
    }

    fn step(&mut self) {
        let index = self.roll(CLIENTS as u64) as usize;
        match self.roll(100) {
            0..62 => self.beat(index),
            62..78 => self.sync(),
            78..90 => self.pass_time(2_000),
            90 => self.pass_time(15_000),
            91 => self.restart_client(index),
            92 => self.leave(index),
            93 => self.subscribe(index),
            94 => self.change_topics(),
            95 => self.crash(),
            // The connection breaks: the answer never comes.
            _ => self.clients[index].lose_answer(),
        }
        self.check();
    }

    fn change_topics(&mut self) {
        let name = TOPICS[self.roll(TOPICS.len() as u64) as usize];
        self.next += 1;
        let id = Uuid(u128::from(self.next).to_be_bytes());
        let change = self.roll(3);
        match (self.ids.get_mut(name), change) {
            (Some((_, count)), 0 | 1) if *count < 8 => *count += 1,
            (Some(_), _) => {
                self.ids.remove(name);
            }
            (None, _) => {
                self.ids.insert(name, (id, 2));
            }
        }
        self.publish();
    }

    fn restart_client(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.member_id.clear();
        client.reset();
    }

    fn beat(&mut self, index: usize) {
        let ticket = self.ticket();
        if self.clients[index].waiting.is_some() {
            return;
        }
        let seed = self.seed;
        let client = &mut self.clients[index];
        if client.member_id.is_empty() {
            client.member_id = format!("m{seed}-{index}-{}", ticket.0);
        }
        client.take_assignment();
        let sends_all =
            std::mem::take(&mut client.has_lost_answer) || client.epoch == 0 || ticket.0.is_multiple_of(3);
        let client = client.clone();
        let sends_subscription = sends_all || client.is_subscription_new;
        let mut request = ConsumerHeartbeat {
            instance_id: client.instance_id.as_deref(),
            rebalance_timeout_ms: sends_all.then_some(REBALANCE_MS),
            topic_names: sends_subscription.then(|| client.topics.iter().copied().collect()),
            regex: sends_subscription.then_some(client.regex.unwrap_or("")),
            owned: Some(client.owned.clone()).filter(|_| !ticket.0.is_multiple_of(4) || sends_all),
            ..heartbeat(&self.topics, &client.member_id, client.epoch)
        };
        request.settings.session_timeout_ms = SESSION_MS;
        request.settings.assignment_interval_ms = self.assignment_interval_ms;
        self.clients[index].waiting = Some(ticket);
        self.clients[index].is_subscription_new &= !sends_subscription;
        let step = self.machine.handle(
            self.now,
            ticket,
            GroupRequest::ConsumerHeartbeat(Box::new(request)),
        );
        self.unsynced.push_back(step);
    }

    fn leave(&mut self, index: usize) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        if client.epoch <= 0 {
            return;
        }
        let epoch = if client.instance_id.is_some() && ticket.0.is_multiple_of(2) {
            -2
        } else {
            -1
        };
        let request = ConsumerHeartbeat {
            instance_id: client.instance_id.as_deref(),
            ..heartbeat(&self.topics, &client.member_id, epoch)
        };
        // It gives up everything before it leaves.
        self.restart_client(index);
        let step = self.machine.handle(
            self.now,
            ticket,
            GroupRequest::ConsumerHeartbeat(Box::new(request)),
        );
        self.unsynced.push_back(step);
    }

    fn pass_time(&mut self, limit_ms: u64) {
        let passed_ms = 1 + self.roll(limit_ms);
        self.now.moment = self.now.moment.after_ms(passed_ms);
        self.now.timestamp.0 += passed_ms as i64;
        let step = self.machine.on_deadline(self.now);
        self.unsynced.push_back(step);
    }

    fn sync(&mut self) {
        while let Some(step) = self.unsynced.pop_front() {
            self.append(&step.records);
            for (ticket, reply) in step.replies {
                self.deliver(ticket, reply);
            }
        }
    }

    fn append(&mut self, records: &[GroupRecord]) {
        for record in records {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let value = record.encode(&mut key, &mut value).map(<[u8]>::to_vec);
            let decoded = GroupRecord::decode(&key, value.as_deref()).unwrap().unwrap();
            assert_eq!(decoded, *record);
            self.shadow.apply(&decoded);
            self.log.push((key, value));
        }
        let epoch = group_of(&self.shadow).map_or(0, |group| group.epoch);
        assert!(
            epoch >= self.epoch,
            "seed {}: epoch {epoch} after {}",
            self.seed,
            self.epoch
        );
        self.epoch = epoch;
    }

    fn deliver(&mut self, ticket: GroupTicket, reply: GroupReply) {
        let seed = self.seed;
        let found = self
            .clients
            .iter()
            .position(|client| client.waiting == Some(ticket));
        let Some(index) = found else { return };
        self.clients[index].waiting = None;
        let GroupReply::ConsumerHeartbeat(result) = reply else {
            panic!("seed {seed}: {reply:?}")
        };
        let client = &mut self.clients[index];
        match result {
            Ok(accepted) => client.on_accepted(seed, &accepted),
            Err(refusal) => match refusal.error {
                ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch | ErrorCode::GroupIdNotFound => {
                    client.reset();
                }
                ErrorCode::UnreleasedInstanceId | ErrorCode::FencedInstanceId => client.reset(),
                _ => panic!("seed {seed}: {refusal:?}"),
            },
        }
    }

    /// Loses the machine. Of what was not durable a prefix survives, and none of its answers.
    fn crash(&mut self) {
        let survivors = self.roll(self.unsynced.len() as u64 + 1) as usize;
        for step in std::mem::take(&mut self.unsynced).into_iter().take(survivors) {
            self.append(&step.records);
        }
        self.machine = Machine::new(self.config.clone(), self.next);
        for (key, value) in &self.log {
            let record = GroupRecord::decode(key, value.as_deref()).unwrap().unwrap();
            self.machine.apply(&record);
        }
        let step = self.machine.arm(self.now);
        self.unsynced.push_back(step);
        for client in &mut self.clients {
            client.lose_answer();
        }
    }

    fn check(&self) {
        let seed = self.seed;
        if self.unsynced.iter().all(|step| step.records.is_empty()) {
            assert_eq!(self.machine.hard_state(), self.shadow.hard_state(), "seed {seed}");
        }
        let Some(group) = group_of(&self.machine) else {
            return;
        };
        let mut held = Partitions::new();
        for (member_id, member) in &group.members {
            for (partition, _) in member.current.held() {
                assert!(
                    held.insert(*partition),
                    "seed {seed}: {partition:?} is held twice, by {member_id}"
                );
            }
            assert!(
                group.target_epoch.epoch >= member.current.epoch,
                "seed {seed}: {member:?}"
            );
        }
        assert!(group.epoch >= group.target_epoch.epoch, "seed {seed}");
        let mut processed = Partitions::new();
        for client in &self.clients {
            // A client that the group has removed will learn it; meanwhile it may process what
            // others have got.
            if client.epoch > 0 && group.members.contains_key(&*client.member_id) {
                for partition in &client.owned {
                    assert!(
                        processed.insert(*partition),
                        "seed {seed}: {partition:?} has two owners, one is {client:?}"
                    );
                }
            }
        }
    }

    /// Lets all clients behave well: everything must be assigned in the end, to one member each.
    fn calm_down(&mut self) {
        for _ in 0..60 {
            for index in 0..self.clients.len() {
                self.beat(index);
                self.sync();
                self.check();
            }
            self.pass_time(1_500);
            self.sync();
        }
        let seed = self.seed;
        let group = group_of(&self.machine).expect("it has members");
        assert_eq!(group.state_name(), "Stable", "seed {seed}");
        assert_eq!(group.members.len(), CLIENTS, "seed {seed}");
        let mut expected = Partitions::new();
        for name in group.subscribed_topics() {
            if let Some((id, count)) = self.ids.get(name) {
                expected.extend((0..*count as i32).map(|partition| (*id, partition)));
            }
        }
        let mut owned = Partitions::new();
        for client in &self.clients {
            let member = &group.members[&*client.member_id];
            assert_eq!(client.epoch, group.target_epoch.epoch, "seed {seed}: {client:?}");
            let assigned: Partitions = member.current.assigned.keys().copied().collect();
            assert_eq!(client.owned, assigned, "seed {seed}: {client:?}");
            owned.extend(assigned);
        }
        assert_eq!(owned, expected, "seed {seed}");
    }

    fn ticket(&mut self) -> GroupTicket {
        self.next += 1;
        GroupTicket(self.next)
    }
}

impl Client {
    fn lose_answer(&mut self) {
        self.has_lost_answer |= self.waiting.take().is_some();
    }

    fn reset(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.told = None;
        self.waiting = None;
        self.is_subscription_new = true;
    }

    fn on_accepted(&mut self, seed: u64, accepted: &HeartbeatReply) {
        assert_eq!(*self.member_id, *accepted.member_id, "seed {seed}");
        assert!(
            accepted.member_epoch >= self.epoch,
            "seed {seed}: {self:?} {accepted:?}"
        );
        self.epoch = accepted.member_epoch;
        if let Some(told) = partitions(accepted) {
            self.told = Some(told);
        }
    }

    /// Gives up what it was not told first, and takes the rest with the same step: between the two
    /// it sends no heartbeat.
    fn take_assignment(&mut self) {
        if let Some(told) = self.told.take() {
            self.owned = told;
        }
    }
}

fn group_of(machine: &Machine) -> Option<&ConsumerGroup> {
    machine.group(GROUP)?.consumer.as_deref()
}
