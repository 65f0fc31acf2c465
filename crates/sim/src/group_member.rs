//! A group member with its application: the real machine, and a simulated user that polls,
//! processes (sometimes slowly) and commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_client::config::{Config, ConsumerConfig};
use ottla_client::consumer::Subscription;
use ottla_client::consumer::{OffsetAndMetadata, TopicPartition};
use ottla_client::machine::consumer::PollActivity;
use ottla_client::machine::consumer::{
    CommitKind, GroupEvent, GroupMembership, GroupMetadata, GroupTicket, Offsets, RebalanceCall,
    RebalanceStep,
};
use ottla_client::machine::metrics::ConsumerMetrics;
use ottla_client::machine::network::cluster::Reply;
use ottla_client::machine::time::Moment;
use ottla_log::disk::memory::Random;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::join_group::JoinGroupResponse;
use ottla_wire::primitives::Reader;

use crate::group_links::{Answered, Era, LinkTroubles, Links};
use crate::group_oracle::GroupOracle;
use crate::world::World;

/// Short, so that sessions expire often in a short run.
pub const MAX_POLL_INTERVAL_MS: u64 = 4_000;
const SESSION_TIMEOUT_MS: u64 = 2_000;

/// A member's settings.
#[derive(Clone, Debug)]
pub struct Character {
    pub name: String,
    pub instance_id: Option<String>,
    pub assignors: &'static str,
    pub auto_commits: bool,
    pub era: Era,
    pub subscription: Subscription,
}

/// The application's state of a partition.
#[derive(Debug, Default)]
struct Lane {
    position: Option<i64>,
    /// Newly assigned; the listener has not been called yet.
    is_held: bool,
    is_paused: bool,
    is_asked: bool,
}

/// A rebalance call in progress on the user's thread.
#[derive(Debug)]
struct Callback {
    call: RebalanceCall,
    until: Moment,
    /// A commit made inside the callback.
    commit: Option<u64>,
    is_committed: bool,
}

pub struct Member {
    pub character: Character,
    pub links: Links,
    machine: GroupMembership,
    activity: Arc<PollActivity>,
    random: Random,
    lanes: BTreeMap<TopicPartition, Lane>,
    /// Waits until the user polls.
    call: Option<RebalanceCall>,
    callback: Option<Callback>,
    is_inside: bool,
    until: Moment,
    /// The generation, and the broker's start in which it was joined: a generation that was not
    /// recorded before a crash is used again.
    joined: (i32, u64),
    tickets: u64,
    asked: BTreeMap<u64, BTreeSet<TopicPartition>>,
    pub is_closing: bool,
    pub is_fenced: bool,
    /// Whether it sometimes processes so slowly that max.poll.interval.ms expires.
    pub may_be_slow: bool,
    pub failures: Vec<String>,
}

impl Member {
    pub fn new(character: Character, seed: u64) -> Member {
        let mut config = Config::new()
            .set("bootstrap.servers", "simulated:9092")
            .set("group.id", "group")
            .set("session.timeout.ms", SESSION_TIMEOUT_MS)
            .set("heartbeat.interval.ms", 300)
            .set("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
            .set("request.timeout.ms", 1_500)
            .set("default.api.timeout.ms", 3_000)
            .set("auto.commit.interval.ms", 500)
            .set("enable.auto.commit", character.auto_commits)
            .set("partition.assignment.strategy", character.assignors);
        if let Some(instance_id) = &character.instance_id {
            config = config.set("group.instance.id", instance_id);
        }
        let config = Arc::new(ConsumerConfig::from_config(&config).expect("the settings are valid"));
        let activity: Arc<PollActivity> = Arc::default();
        let metrics = Arc::new(ConsumerMetrics::default());
        let mut machine = GroupMembership::new(config, activity.clone(), metrics, seed);
        machine.subscribe(Moment::from_nanos(0), character.subscription.clone());
        Member {
            links: Links::new(seed ^ 0x11, character.era),
            character,
            machine,
            activity,
            random: Random::new(seed ^ 0x22),
            lanes: BTreeMap::new(),
            call: None,
            callback: None,
            is_inside: false,
            until: Moment::from_nanos(0),
            joined: (-1, 0),
            tickets: 0,
            asked: BTreeMap::new(),
            is_closing: false,
            is_fenced: false,
            may_be_slow: true,
            failures: Vec::new(),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.machine.is_closed()
    }

    pub fn is_stable(&self) -> bool {
        self.machine.is_stable() && self.call.is_none() && self.callback.is_none()
    }

    pub fn machine(&self) -> &GroupMembership {
        &self.machine
    }

    /// Whether it has positions of all partitions that it may fetch.
    pub fn has_positions(&self) -> bool {
        self.lanes.values().all(|lane| lane.position.is_some())
    }

    pub fn close(&mut self, now: Moment) {
        self.is_closing = true;
        self.machine.close(now, now.after_ms(2_000));
    }

    pub fn subscribe(&mut self, now: Moment, subscription: Subscription) {
        self.character.subscription = subscription.clone();
        self.machine.subscribe(now, subscription);
    }

    pub fn request_rejoin(&mut self) {
        self.machine.request_rejoin("the application wants it");
    }

    pub fn step(
        &mut self,
        now: Moment,
        world: &mut World,
        troubles: &LinkTroubles,
        oracle: &mut GroupOracle,
        answered: &mut Vec<Answered>,
    ) {
        self.links.step(world, troubles, answered);
        for reply in self.links.take_replies() {
            let joined = joined_generation(&reply);
            self.machine.take_reply(now, reply);
            // The same number may come again, from the next start of the broker.
            let generation = self.machine.group_metadata().generation_id;
            if joined == Some(generation) {
                self.joined = (generation, world.starts);
            }
        }
        self.use_consumer(now, oracle);
        self.ask_for_offsets(now);
        let mut events = Vec::new();
        self.machine.turn(now, &mut self.links, &mut events);
        let generation = self.machine.group_metadata().generation_id;
        if self.joined.0 != generation {
            self.joined = (generation, world.starts);
        }
        for event in events {
            self.take_event(event, oracle);
        }
        if let Some(deadline) = self.machine.next_deadline() {
            assert!(deadline > now, "{}: the machine would spin", self.character.name);
        }
    }

    fn take_event(&mut self, event: GroupEvent, oracle: &mut GroupOracle) {
        match event {
            GroupEvent::Call(call) => {
                self.call = Some(call);
                self.callback = None;
            }
            GroupEvent::AssignmentChanged(partitions) => {
                let metadata = self.machine.group_metadata();
                oracle.owns(&identity(&metadata), self.joined, &partitions);
                self.lanes.retain(|partition, _| partitions.contains(partition));
                // Answers to requests of an earlier ownership are not valid for a later one.
                for asked in self.asked.values_mut() {
                    asked.retain(|partition| self.lanes.contains_key(partition));
                }
                for partition in partitions {
                    let new = || Lane {
                        is_held: true,
                        ..Lane::default()
                    };
                    self.lanes.entry(partition).or_insert_with(new);
                }
            }
            GroupEvent::Committed { ticket, .. } => {
                if let Some(callback) = &mut self.callback
                    && callback.commit == Some(ticket)
                {
                    callback.is_committed = true;
                }
            }
            GroupEvent::OffsetsFetched { ticket, result } => {
                for partition in self.asked.remove(&ticket).unwrap_or_default() {
                    let Some(lane) = self.lanes.get_mut(&partition).filter(|lane| lane.is_asked) else {
                        continue;
                    };
                    lane.is_asked = false;
                    if let (Ok(offsets), None) = (&result, lane.position) {
                        lane.position = Some(offsets.get(&partition).map_or(0, |offset| offset.offset));
                    }
                }
            }
            GroupEvent::Failed(error) => {
                self.is_fenced |= error.is_fatal();
                self.failures.push(error.to_string());
            }
            GroupEvent::Left => {}
        }
    }

    fn consumed(&self) -> Offsets {
        let offset = |(partition, lane): (&TopicPartition, &Lane)| {
            let offset = OffsetAndMetadata {
                leader_epoch: Some(0),
                ..OffsetAndMetadata::new(lane.position?)
            };
            Some((partition.clone(), offset))
        };
        self.lanes.iter().filter_map(offset).collect()
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn ask_for_offsets(&mut self, now: Moment) {
        let is_due = |lane: &&mut Lane| lane.position.is_none() && !lane.is_held && !lane.is_asked;
        let mut partitions = BTreeSet::new();
        for (partition, lane) in &mut self.lanes {
            if is_due(&&mut *lane) {
                lane.is_asked = true;
                partitions.insert(partition.clone());
            }
        }
        if !partitions.is_empty() {
            let ticket = self.ticket();
            self.asked.insert(ticket, partitions.clone());
            self.machine
                .fetch_offsets(now, ticket, partitions, now.after_ms(3_000));
        }
    }

    /// One step of the user's thread.
    fn use_consumer(&mut self, now: Moment, oracle: &mut GroupOracle) {
        if self.is_closing {
            // Inside `close`, rebalance calls are handled as in `poll`.
            self.work_on_call(now);
            return;
        }
        if !self.is_inside {
            if self.until <= now {
                let _ = self.activity.enter(now);
                self.is_inside = true;
                self.until = now.after_ms(self.random.below(200));
            }
            return;
        }
        if self.call.is_some() || self.callback.is_some() {
            self.work_on_call(now);
            return;
        }
        if self.activity.auto_commit_due() <= now {
            let consumed = self.consumed();
            self.machine.auto_commit(now, consumed);
        }
        if self.until <= now {
            self.hand_out(oracle);
            self.leave_poll(now);
        }
    }

    fn work_on_call(&mut self, now: Moment) {
        if let Some(call) = self.call.take() {
            if let RebalanceStep::Prepare { pause } = &call.step {
                for partition in pause {
                    self.lanes
                        .entry(partition.clone())
                        .and_modify(|lane| lane.is_paused = true);
                }
            }
            let takes_ms = if self.may_be_slow && self.random.one_in(30) {
                2_500
            } else {
                60
            };
            let until = now.after_ms(self.random.below(takes_ms));
            let must_commit = matches!(call.step, RebalanceStep::Revoked(_)) && !self.character.auto_commits;
            let commit = must_commit.then(|| self.ticket());
            if let Some(ticket) = commit {
                let kind = CommitKind::Sync {
                    deadline: now.after_ms(1_000),
                };
                let consumed = self.consumed();
                self.machine.commit(now, ticket, consumed, kind);
            }
            self.callback = Some(Callback {
                call,
                until,
                commit,
                is_committed: false,
            });
        }
        let Some(callback) = &self.callback else {
            return;
        };
        if callback.until > now || (callback.commit.is_some() && !callback.is_committed) {
            return;
        }
        let Some(callback) = self.callback.take() else {
            return;
        };
        let consumed = match callback.call.step {
            RebalanceStep::Prepare { .. } => self.consumed(),
            RebalanceStep::Assigned(_) => {
                self.lanes.values_mut().for_each(|lane| lane.is_held = false);
                Offsets::new()
            }
            _ => Offsets::new(),
        };
        self.machine.acknowledge(now, callback.call.id, consumed);
    }

    /// `poll` returns records of some partitions.
    fn hand_out(&mut self, oracle: &mut GroupOracle) {
        let metadata = self.machine.group_metadata();
        let usable = |lane: &Lane| !lane.is_held && !lane.is_paused;
        let mut processed = Vec::new();
        for (partition, lane) in &mut self.lanes {
            let (true, Some(position)) = (usable(lane), lane.position) else {
                continue;
            };
            processed.push(partition.clone());
            if self.random.one_in(2) {
                let next = position + self.random.below(20) as i64;
                oracle.processed(&metadata.member_id, partition, position, next);
                lane.position = Some(next);
            }
        }
        oracle.owns(&identity(&metadata), self.joined, &processed);
    }

    fn leave_poll(&mut self, now: Moment) {
        let slow = self.may_be_slow && self.random.one_in(40);
        let takes_ms = if slow {
            self.random.below(2 * MAX_POLL_INTERVAL_MS)
        } else {
            self.random.below(100)
        };
        if !self.character.auto_commits && self.random.one_in(4) {
            let kind = match self.random.one_in(2) {
                true => CommitKind::Async,
                false => CommitKind::Sync {
                    deadline: now.after_ms(1_000),
                },
            };
            let ticket = self.ticket();
            let consumed = self.consumed();
            self.machine.commit(now, ticket, consumed, kind);
        }
        self.activity.leave(now);
        self.is_inside = false;
        self.until = now.after_ms(takes_ms);
    }
}

/// The generation of a JoinGroup that was accepted.
fn joined_generation(reply: &Reply<GroupTicket>) -> Option<i32> {
    let body = reply.result.as_ref().ok()?;
    if reply.api_key != ApiKey::JoinGroup {
        return None;
    }
    let response = JoinGroupResponse::decode(&mut Reader::new(body), reply.api_version).ok()?;
    (response.error_code == 0).then_some(response.generation_id)
}

/// Returns the owner's identity: a returning static member replaces its predecessor in the same
/// generation (KIP-345).
fn identity(metadata: &GroupMetadata) -> String {
    metadata
        .group_instance_id
        .as_ref()
        .unwrap_or(&metadata.member_id)
        .to_string()
}
