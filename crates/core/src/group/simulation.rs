//! Random clients against a machine that is dropped and replayed at any point. A failure prints its
//! seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::random::Random;

use crate::time::{Moment, Now, Timestamp};

use super::classic::{Group, GroupState};
use super::config::GroupConfig;
use super::machine::Machine;
use super::record::GroupRecord;
use super::reply::{GroupReply, JoinReply, Step, SyncReply};
use super::request::{
    GroupRequest, JoinRequest, LeaveRequest, MemberRequest, OffsetCommitPartition, OffsetCommitRequest,
    OffsetCommitTopic, OffsetFetchRequest, SyncRequest, Ticket,
};

const SEEDS: u64 = 120;
const STEPS: u32 = 1_500;
const GROUPS: u64 = 3;
const CLIENTS: u64 = 9;
const SESSION_TIMEOUT_MS: i32 = 10_000;
const REBALANCE_TIMEOUT_MS: i32 = 20_000;

#[test]
fn random_groups_keep_their_invariants_across_replays() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.calm_down();
    }
}

/// Decides what happens next.
struct Dice(Random);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.next_u64() % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Out,
    Joining(Ticket),
    /// Joined; holds, for a leader, the members to assign to.
    MustSync(Vec<Arc<str>>),
    Syncing(Ticket),
    In,
}

#[derive(Clone, Debug)]
struct Client {
    group_id: String,
    instance_id: Option<String>,
    member_id: String,
    generation: i32,
    /// Speaks JoinGroup 4 and later.
    is_modern: bool,
    protocols: Vec<&'static str>,
    phase: Phase,
    committing: Option<(Ticket, i32, i64)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Commit {
    acknowledged: i64,
    submitted: i64,
}

struct World {
    seed: u64,
    dice: Dice,
    now: Now,
    config: Arc<GroupConfig>,
    machine: Machine,
    /// The machine as a replay would restore it, kept up to date with the log.
    shadow: Machine,
    log: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Appended, not yet durable; the replies wait.
    unsynced: VecDeque<Step>,
    clients: Vec<Client>,
    next_ticket: u64,
    /// Incarnation of the machine: a generation that was not recorded may be counted again after a
    /// replay.
    life: u32,
    leaders: BTreeMap<(u32, String, i32), String>,
    /// The members that a sync request assigned to, by its ticket.
    assigned: BTreeMap<u64, BTreeSet<String>>,
    /// The sync request whose assignments a generation got. Once a member has seen them they are
    /// durable, so this holds across incarnations.
    chosen: BTreeMap<(String, i32), u64>,
    commits: BTreeMap<(String, i32), Commit>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(Random::new(seed.wrapping_mul(0x51_7c_c1_b7)));
        let config = Arc::new(GroupConfig {
            initial_rebalance_delay_ms: [0, 3_000][dice.roll(2) as usize],
            group_size_max: if dice.one_in(4) { 3 } else { 100 },
            ..GroupConfig::default()
        });
        let clients = (0..CLIENTS)
            .map(|index| Client {
                group_id: format!("g{}", dice.roll(GROUPS)),
                instance_id: dice.one_in(3).then(|| format!("i{index}")),
                member_id: String::new(),
                generation: -1,
                is_modern: !dice.one_in(3),
                // All members prefer the protocol that all share: a replay restores the elected
                // protocol alone, and a client without that one would be refused until the others
                // have joined again, as in Apache Kafka.
                protocols: if dice.one_in(3) {
                    vec!["range", "sticky"]
                } else {
                    vec!["range"]
                },
                phase: Phase::Out,
                committing: None,
            })
            .collect();
        let now = Now {
            moment: Moment::from_micros(1_000_000),
            timestamp: Timestamp(1_700_000_000_000),
        };
        let mut machine = Machine::new(config.clone(), seed);
        machine.arm(now);
        World {
            seed,
            dice,
            now,
            shadow: Machine::new(config.clone(), 0),
            config,
            machine,
            log: Vec::new(),
            unsynced: VecDeque::new(),
            clients,
            next_ticket: 0,
            life: 0,
            leaders: BTreeMap::new(),
            assigned: BTreeMap::new(),
            chosen: BTreeMap::new(),
            commits: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        match self.dice.roll(100) {
            0..60 => {
                let index = self.dice.roll(CLIENTS) as usize;
                self.act(index);
            }
            60..80 => self.sync(),
            80..98 => self.pass_time(3_000),
            98 => self.pass_time(30_000),
            _ => self.crash(),
        }
        self.check_machine();
    }

    /// Lets all clients behave well: every group must settle with exactly its living members.
    fn calm_down(&mut self) {
        for _ in 0..400 {
            for index in 0..self.clients.len() {
                self.behave(index);
                self.sync();
            }
            self.pass_time(1_000);
            self.check_machine();
        }
        for client in self.clients.clone() {
            let group = self.machine.group(&client.group_id).expect("it has a member");
            let has_room = self.config.group_size_max > CLIENTS as usize;
            if has_room {
                assert_eq!(
                    group.state,
                    GroupState::Stable,
                    "seed {}: {}",
                    self.seed,
                    client.group_id
                );
                assert_eq!(client.phase, Phase::In, "seed {}: {client:?}", self.seed);
                assert!(
                    group.members.contains_key(&*client.member_id),
                    "seed {}: {client:?}",
                    self.seed
                );
            }
        }
        self.check_offsets();
    }

    fn act(&mut self, index: usize) {
        let client = self.clients[index].clone();
        match client.phase {
            Phase::Joining(ticket) | Phase::Syncing(ticket) if self.dice.one_in(12) => {
                // The connection breaks; half the time the client forgets its member id.
                self.machine.abandon(self.now, &client.group_id, ticket);
                self.clients[index].phase = Phase::Out;
                if self.dice.one_in(2) {
                    self.clients[index].member_id.clear();
                }
            }
            Phase::In => match self.dice.roll(12) {
                0 => self.leave(index),
                1 => {
                    self.clients[index].phase = Phase::Out;
                    self.clients[index].member_id.clear();
                }
                2 => self.join(index),
                3..6 => self.commit(index),
                _ => self.heartbeat(index),
            },
            _ => self.behave(index),
        }
    }

    fn behave(&mut self, index: usize) {
        match self.clients[index].phase.clone() {
            Phase::Out => self.join(index),
            Phase::MustSync(members) => self.sync_group(index, &members),
            Phase::In => self.heartbeat(index),
            Phase::Joining(_) | Phase::Syncing(_) => {}
        }
    }

    fn join(&mut self, index: usize) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        self.clients[index].phase = Phase::Joining(ticket);
        let request = JoinRequest {
            group_id: &client.group_id,
            member_id: &client.member_id,
            group_instance_id: client.instance_id.as_deref(),
            client_id: "c",
            client_host: "/127.0.0.1",
            session_timeout_ms: SESSION_TIMEOUT_MS,
            rebalance_timeout_ms: REBALANCE_TIMEOUT_MS,
            protocol_type: "consumer",
            protocols: client
                .protocols
                .iter()
                .map(|name| (*name, &b"\0\0\0\0\0\0"[..]))
                .collect(),
            requires_known_member_id: client.is_modern,
            supports_skipping_assignment: client.is_modern,
            ..JoinRequest::default()
        };
        self.submit(ticket, GroupRequest::Join(request));
    }

    fn sync_group(&mut self, index: usize, members: &[Arc<str>]) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        self.clients[index].phase = Phase::Syncing(ticket);
        let text = |member_id: &Arc<str>| format!("{}/{}/{member_id}", ticket.0, client.generation);
        let texts: Vec<(Arc<str>, String)> = members.iter().map(|id| (id.clone(), text(id))).collect();
        self.assigned.insert(
            ticket.0,
            members.iter().map(|member_id| identity(member_id)).collect(),
        );
        let request = SyncRequest {
            member: member_request(&client),
            protocol_type: Some("consumer"),
            protocol_name: None,
            assignments: texts
                .iter()
                .map(|(member_id, text)| (&**member_id, text.as_bytes()))
                .collect(),
            ..SyncRequest::default()
        };
        self.submit(ticket, GroupRequest::Sync(request));
    }

    fn heartbeat(&mut self, index: usize) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        let step = self
            .machine
            .handle(self.now, ticket, GroupRequest::Heartbeat(member_request(&client)));
        let Some((_, GroupReply::Heartbeat(error))) = step.replies.last().cloned() else {
            panic!("a heartbeat is answered at once")
        };
        assert!(step.records.is_empty());
        match error {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => {
                self.clients[index].phase = Phase::Out
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                self.clients[index].phase = Phase::Out;
                self.clients[index].member_id.clear();
            }
            other => panic!("seed {}: heartbeat: {other}", self.seed),
        }
    }

    fn leave(&mut self, index: usize) {
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        let members = vec![(&*client.member_id, client.instance_id.as_deref())];
        self.submit(
            ticket,
            GroupRequest::Leave(LeaveRequest {
                reason: None,
                group_id: &client.group_id,
                members,
            }),
        );
        self.clients[index].phase = Phase::Out;
        self.clients[index].member_id.clear();
    }

    fn commit(&mut self, index: usize) {
        if self.clients[index].committing.is_some() {
            return;
        }
        let ticket = self.ticket();
        let client = self.clients[index].clone();
        let partition = self.dice.roll(4) as i32;
        let commit = self
            .commits
            .entry((client.group_id.clone(), partition))
            .or_default();
        commit.submitted += 1;
        let offset = commit.submitted;
        self.clients[index].committing = Some((ticket, partition, offset));
        let partitions = vec![OffsetCommitPartition {
            partition,
            offset,
            leader_epoch: -1,
            metadata: "",
            error: ErrorCode::None,
        }];
        let request = OffsetCommitRequest {
            member: member_request(&client),
            topics: vec![OffsetCommitTopic {
                name: "t",
                topic_id: Uuid([1; 16]),
                partitions,
            }],
            ..OffsetCommitRequest::default()
        };
        self.submit(ticket, GroupRequest::OffsetCommit(request));
    }

    fn submit(&mut self, ticket: Ticket, request: GroupRequest<'_>) {
        let step = self.machine.handle(self.now, ticket, request);
        self.unsynced.push_back(step);
    }

    fn pass_time(&mut self, limit_ms: u64) {
        let passed_ms = 1 + self.dice.roll(limit_ms);
        self.now.moment = self.now.moment.after_ms(passed_ms);
        self.now.timestamp.0 += passed_ms as i64;
        let step = self.machine.on_deadline(self.now);
        assert!(
            self.machine
                .next_deadline()
                .is_none_or(|deadline| deadline > self.now.moment)
        );
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
    }

    /// Loses the machine. Of what was not durable a prefix survives, and none of its answers.
    fn crash(&mut self) {
        let survivors = self.dice.roll(self.unsynced.len() as u64 + 1) as usize;
        for step in std::mem::take(&mut self.unsynced).into_iter().take(survivors) {
            self.append(&step.records);
        }
        self.life += 1;
        self.machine = Machine::new(self.config.clone(), self.seed ^ (u64::from(self.life) << 32));
        for (key, value) in &self.log {
            self.machine
                .apply(&GroupRecord::decode(key, value.as_deref()).unwrap().unwrap());
        }
        let step = self.machine.arm(self.now);
        self.unsynced.push_back(step);
        for client in &mut self.clients {
            client.committing = None;
            if matches!(client.phase, Phase::Joining(_) | Phase::Syncing(_)) {
                client.phase = Phase::Out;
            }
        }
        self.check_offsets();
    }

    fn deliver(&mut self, ticket: Ticket, reply: GroupReply) {
        let seed = self.seed;
        let found = self.clients.iter().position(|client| {
            [Phase::Joining(ticket), Phase::Syncing(ticket)].contains(&client.phase)
                || client
                    .committing
                    .is_some_and(|(committing, ..)| committing == ticket)
        });
        let Some(index) = found else { return };
        match reply {
            GroupReply::Join(reply) => self.on_joined(index, reply),
            GroupReply::Sync(reply) => self.on_synced(index, reply),
            GroupReply::OffsetCommit(topics) => {
                let (_, partition, offset) = self.clients[index].committing.take().unwrap();
                if topics[0].partitions[0].1 == ErrorCode::None {
                    let key = (self.clients[index].group_id.clone(), partition);
                    let commit = self.commits.get_mut(&key).unwrap();
                    commit.acknowledged = commit.acknowledged.max(offset);
                }
            }
            other => panic!("seed {seed}: unexpected {other:?}"),
        }
    }

    fn on_joined(&mut self, index: usize, reply: JoinReply) {
        let seed = self.seed;
        self.clients[index].phase = Phase::Out;
        match reply.error {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                self.clients[index].member_id = reply.member_id.to_string();
                return;
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId | ErrorCode::GroupMaxSizeReached => {
                self.clients[index].member_id.clear();
                return;
            }
            ErrorCode::RebalanceInProgress | ErrorCode::InconsistentGroupProtocol => return,
            other => panic!("seed {seed}: join: {other}"),
        }
        let client = &mut self.clients[index];
        client.member_id = reply.member_id.to_string();
        client.generation = reply.generation_id;
        let group_id = client.group_id.clone();
        client.phase = if reply.skip_assignment {
            Phase::MustSync(Vec::new())
        } else {
            Phase::MustSync(
                reply
                    .members
                    .iter()
                    .map(|member| member.member_id.clone())
                    .collect(),
            )
        };
        assert!(reply.protocol_name.is_some(), "seed {seed}: {reply:?}");
        let leads = reply.leader == reply.member_id;
        assert_eq!(leads, !reply.members.is_empty(), "seed {seed}: {reply:?}");
        let leader = identity(&reply.leader);
        let key = (self.life, group_id, reply.generation_id);
        let known = self.leaders.entry(key).or_insert_with(|| leader.clone());
        assert_eq!(
            *known, leader,
            "seed {seed}: two leaders in one generation: {reply:?}"
        );
    }

    fn on_synced(&mut self, index: usize, reply: SyncReply) {
        let seed = self.seed;
        let client = self.clients[index].clone();
        match reply.error {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => {
                self.clients[index].phase = Phase::Out;
                return;
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                self.clients[index].phase = Phase::Out;
                self.clients[index].member_id.clear();
                return;
            }
            other => panic!("seed {seed}: sync: {other}"),
        }
        self.clients[index].phase = Phase::In;
        let own = identity(&client.member_id);
        let generation = (client.group_id.clone(), client.generation);
        if reply.assignment.is_empty() {
            let is_left_out = |sync: &u64| !self.assigned[sync].contains(&own);
            assert!(
                self.chosen.get(&generation).is_none_or(is_left_out),
                "seed {seed}: {client:?}"
            );
            return;
        }
        let text = std::str::from_utf8(&reply.assignment).unwrap();
        let mut parts = text.splitn(3, '/');
        let sync: u64 = parts.next().unwrap().parse().unwrap();
        assert_eq!(
            *self.chosen.entry(generation).or_insert(sync),
            sync,
            "seed {seed}: {client:?}"
        );
        assert_eq!(
            parts.next().unwrap(),
            client.generation.to_string(),
            "seed {seed}: {client:?}"
        );
        assert_eq!(identity(parts.next().unwrap()), own, "seed {seed}: {client:?}");
    }

    fn check_machine(&self) {
        if self.unsynced.iter().all(|step| step.records.is_empty()) {
            assert_eq!(
                self.machine.hard_state(),
                self.shadow.hard_state(),
                "seed {}",
                self.seed
            );
        }
        for group in self.machine.groups() {
            self.check_group(group);
        }
    }

    fn check_group(&self, group: &Group) {
        let seed = self.seed;
        let statics: BTreeSet<&Arc<str>> = group.static_members.values().collect();
        assert!(
            statics
                .iter()
                .all(|member_id| group.members.contains_key(*member_id)),
            "seed {seed}"
        );
        assert_eq!(
            group.leader.is_some(),
            !group.members.is_empty(),
            "seed {seed}: {group:?}"
        );
        assert!(
            group
                .leader
                .iter()
                .all(|leader| group.members.contains_key(leader)),
            "seed {seed}"
        );
        assert!(
            group.awaiting_join_count() <= self.config.group_size_max,
            "seed {seed}: {group:?}"
        );
        assert!(
            group.pending_sync.iter().all(|id| group.members.contains_key(id)),
            "seed {seed}: {group:?}"
        );
        assert!(
            group
                .pending_join
                .iter()
                .all(|id| !group.members.contains_key(id)),
            "seed {seed}: {group:?}"
        );
        match group.state {
            GroupState::Empty => assert!(group.members.is_empty(), "seed {seed}"),
            GroupState::Stable => {
                let stored = group.stored.as_ref().expect("a stable group is in the log");
                let ids: Vec<&Arc<str>> = stored.members.iter().map(|member| &member.member_id).collect();
                assert_eq!(ids, group.members.keys().collect::<Vec<_>>(), "seed {seed}");
                assert_eq!(stored.generation, group.generation, "seed {seed}");
                assert_eq!(stored.leader, group.leader, "seed {seed}");
            }
            GroupState::PreparingRebalance | GroupState::CompletingRebalance => {}
        }
    }

    fn check_offsets(&mut self) {
        for ((group_id, partition), commit) in self.commits.clone() {
            let ticket = self.ticket();
            let request = OffsetFetchRequest {
                group_id: &group_id,
                member: None,
                topics: None,
                require_stable: true,
            };
            let step = self
                .machine
                .handle(self.now, ticket, GroupRequest::OffsetFetch(request));
            let Some((_, GroupReply::OffsetFetch(topics))) = step.replies.into_iter().next() else {
                panic!("an offset fetch is answered at once")
            };
            let found = topics
                .iter()
                .flat_map(|topic| &topic.partitions)
                .find(|fetched| fetched.partition == partition)
                .map_or(0, |fetched| fetched.offset);
            assert!(
                (commit.acknowledged..=commit.submitted).contains(&found),
                "seed {}: {group_id}/{partition}: {found}, {commit:?}",
                self.seed
            );
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }
}

fn member_request(client: &Client) -> MemberRequest<'_> {
    MemberRequest {
        group_id: &client.group_id,
        generation_id: client.generation,
        member_id: &client.member_id,
        group_instance_id: client.instance_id.as_deref(),
    }
}

/// Returns the identity of a client: a static member's ids begin with its instance id, which
/// identifies it.
fn identity(member_id: &str) -> String {
    match member_id.split_once('-') {
        Some((prefix, _)) if prefix.starts_with('i') => prefix.to_owned(),
        _ => member_id.to_owned(),
    }
}
