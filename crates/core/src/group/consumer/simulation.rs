//! Random members of both protocols against a machine that is dropped and replayed at any point. A
//! failure prints its seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_protocol_subscription::{ConsumerProtocolSubscription, TopicPartition};
use ottla_wire::primitives::{Uuid, put_i16};
use ottla_wire::random::Random;

use crate::group::config::{ConsumerConfig, GroupConfig};
use crate::group::machine::Machine;
use crate::group::record::GroupRecord;
use crate::group::reply::{GroupReply, JoinReply, JoinReplyMember, Step, SyncReply};
use crate::group::request::{GroupRequest, JoinRequest, LeaveRequest, MemberRequest, SyncRequest, Ticket};
use crate::image::topics::TopicsImage;
use crate::time::Now;
use crate::time::{Moment, Timestamp};

use super::assignment::Partitions;
use super::group::ConsumerGroup;
use super::protocol::{decode_assignment, decode_subscription, encode_assignment};
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
    waiting: Option<Ticket>,
    /// An answer was lost: the next heartbeat names everything, as Java's does.
    has_lost_answer: bool,
    /// `Some`: it speaks the classic protocol, and `epoch` is its generation.
    classic: Option<Phase>,
}

/// What a classic client does next.
#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Join,
    /// The leader has assignments by member id.
    Sync(Vec<(String, Arc<[u8]>)>),
    Heartbeat,
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
        if let Some(phase) = &mut client.classic {
            *phase = Phase::Join;
        }
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

    /// A client may come back with another protocol.
    fn restart_client(&mut self, index: usize) {
        let is_classic = self.one_in(2);
        let client = &mut self.clients[index];
        client.classic = is_classic.then(Phase::default);
        client.member_id.clear();
        client.reset();
    }

    fn beat(&mut self, index: usize) {
        if self.clients[index].waiting.is_none()
            && let Some(phase) = self.clients[index].classic.clone()
        {
            return self.beat_classic(index, &phase);
        }
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

    fn beat_classic(&mut self, index: usize, phase: &Phase) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        let metadata = self.subscription(&client);
        let member = MemberRequest {
            group_id: GROUP,
            generation_id: client.epoch,
            member_id: &client.member_id,
            group_instance_id: client.instance_id.as_deref(),
        };
        let request = match phase {
            Phase::Join => GroupRequest::Join(JoinRequest {
                group_id: GROUP,
                member_id: &client.member_id,
                group_instance_id: client.instance_id.as_deref(),
                session_timeout_ms: SESSION_MS,
                rebalance_timeout_ms: REBALANCE_MS,
                protocol_type: "consumer",
                protocols: vec![("cooperative", &metadata)],
                requires_known_member_id: true,
                topics: self.topics.clone(),
                ..JoinRequest::default()
            }),
            Phase::Sync(assignments) => GroupRequest::Sync(SyncRequest {
                member,
                assignments: assignments.iter().map(|(id, bytes)| (&**id, &**bytes)).collect(),
                topics: self.topics.clone(),
                ..SyncRequest::default()
            }),
            Phase::Heartbeat => GroupRequest::Heartbeat(member),
        };
        self.clients[index].waiting = Some(ticket);
        let step = self.machine.handle(self.now, ticket, request);
        self.unsynced.push_back(step);
    }

    fn subscription(&self, client: &Client) -> Vec<u8> {
        let owned = self.ids.iter().map(|(name, (id, _))| TopicPartition {
            topic: name,
            partitions: (client.owned.iter())
                .filter(|(topic_id, _)| topic_id == id)
                .map(|(_, partition)| *partition)
                .collect(),
        });
        let message = ConsumerProtocolSubscription {
            topics: client.topics.iter().copied().collect(),
            owned_partitions: owned.collect(),
            ..ConsumerProtocolSubscription::default()
        };
        let mut bytes = Vec::new();
        put_i16(&mut bytes, 1);
        message.encode(&mut bytes, 1);
        bytes
    }

    /// What a leader assigns: every partition to the next subscriber in turn, but not yet what
    /// another member owns.
    fn assign(&self, members: &[JoinReplyMember]) -> Vec<(String, Arc<[u8]>)> {
        let read = |index: usize| decode_subscription(&members[index].metadata, &self.topics).unwrap();
        let mut assigned = vec![Partitions::new(); members.len()];
        let mut next = 0;
        for (name, (id, count)) in &self.ids {
            for partition in 0..*count as i32 {
                let subscribes = |index: &usize| read(*index).topics.contains(name);
                let turn = (next..next + members.len()).map(|index| index % members.len());
                let Some(index) = turn.into_iter().find(subscribes) else {
                    continue;
                };
                next = index + 1;
                let is_of_other = (0..members.len())
                    .any(|other| other != index && read(other).owned.contains(&(*id, partition)));
                if !is_of_other {
                    assigned[index].insert((*id, partition));
                }
            }
        }
        let assigned = members.iter().zip(&assigned);
        assigned
            .map(|(member, partitions)| {
                let bytes = encode_assignment(partitions, &self.topics, &member.metadata);
                (member.member_id.to_string(), bytes)
            })
            .collect()
    }

    fn leave(&mut self, index: usize) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        if client.epoch <= 0 {
            return;
        }
        if client.classic.is_some() {
            let request = LeaveRequest {
                group_id: GROUP,
                members: vec![(&client.member_id, client.instance_id.as_deref())],
                reason: None,
            };
            self.restart_client(index);
            let step = self
                .machine
                .handle(self.now, ticket, GroupRequest::Leave(request));
            return self.unsynced.push_back(step);
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
        // A classic group has none.
        let epoch = group_of(&self.shadow).map_or(0, |group| group.epoch);
        assert!(
            epoch >= self.epoch || group_of(&self.shadow).is_none(),
            "seed {}: epoch {epoch} after {}",
            self.seed,
            self.epoch
        );
        self.epoch = epoch;
    }

    fn deliver(&mut self, ticket: Ticket, reply: GroupReply) {
        let seed = self.seed;
        let found = self
            .clients
            .iter()
            .position(|client| client.waiting == Some(ticket));
        let Some(index) = found else { return };
        self.clients[index].waiting = None;
        let result = match reply {
            GroupReply::ConsumerHeartbeat(result) => result,
            GroupReply::Join(reply) => return self.on_joined(index, &reply),
            GroupReply::Sync(reply) => return self.on_synced(index, &reply),
            GroupReply::Heartbeat(error) => return self.clients[index].on_answered(seed, error),
            other => panic!("seed {seed}: {other:?}"),
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

    fn on_joined(&mut self, index: usize, reply: &JoinReply) {
        let assignments = self.assign(&reply.members);
        let client = &mut self.clients[index];
        if matches!(reply.error, ErrorCode::None | ErrorCode::MemberIdRequired) {
            client.member_id = reply.member_id.to_string();
        }
        if reply.error == ErrorCode::None {
            client.epoch = reply.generation_id;
            client.classic = Some(Phase::Sync(assignments));
        } else if reply.error != ErrorCode::MemberIdRequired {
            client.on_answered(self.seed, reply.error);
        }
    }

    /// A client that has given something up joins again.
    fn on_synced(&mut self, index: usize, reply: &SyncReply) {
        let client = &mut self.clients[index];
        if reply.error != ErrorCode::None {
            return client.on_answered(self.seed, reply.error);
        }
        let assigned = decode_assignment(&reply.assignment, &self.topics).unwrap();
        let has_revoked = !client.owned.is_subset(&assigned);
        client.owned = assigned;
        client.classic = Some(match has_revoked {
            true => Phase::Join,
            false => Phase::Heartbeat,
        });
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
            return self.check_classic();
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
            let Some(member) = group.members.get(&*client.member_id) else {
                continue;
            };
            // A classic member with an older generation may not know what a leader has given away.
            let is_current = client.classic.is_none() || client.epoch == member.current.epoch;
            if client.epoch > 0 && is_current {
                for partition in &client.owned {
                    assert!(
                        processed.insert(*partition),
                        "seed {seed}: {partition:?} has two owners, one is {client:?}"
                    );
                }
            }
        }
    }

    fn check_classic(&self) {
        let Some(group) = self.machine.group(GROUP) else {
            return;
        };
        let is_member = |client: &&Client| {
            client.epoch == group.generation && group.members.contains_key(&*client.member_id)
        };
        let mut processed = Partitions::new();
        for client in self.clients.iter().filter(is_member) {
            for partition in &client.owned {
                assert!(
                    processed.insert(*partition),
                    "seed {}: {partition:?} has two owners, one is {client:?}",
                    self.seed
                );
            }
        }
    }

    /// Lets all clients behave well: everything must be assigned in the end, to one member each.
    fn calm_down(&mut self) {
        if self.clients.iter().all(|client| client.classic.is_some()) {
            self.clients[0].classic = None;
            self.clients[0].member_id.clear();
            self.clients[0].reset();
        }
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

    fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }
}

impl Client {
    fn lose_answer(&mut self) {
        if self.waiting.take().is_some() {
            self.has_lost_answer = true;
            self.classic = self.classic.take().map(|_| Phase::Join);
        }
    }

    fn reset(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.told = None;
        self.waiting = None;
        self.is_subscription_new = true;
        self.classic = self.classic.take().map(|_| Phase::Join);
    }

    /// A classic client's answer without anything but an error.
    fn on_answered(&mut self, seed: u64, error: ErrorCode) {
        match error {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress => self.classic = Some(Phase::Join),
            ErrorCode::IllegalGeneration => self.reset(),
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                self.member_id.clear();
                self.reset();
            }
            _ => panic!("seed {seed}: {error:?} for {self:?}"),
        }
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
