//! Seeded simulation of the machine: producers that repeat, lose answers and replace each other,
//! time-outs, kills and power cuts, over partitions that keep what Kafka's partitions keep.
//!
//! Invariants: a transaction has one outcome, the same in every partition; a commit that was
//! answered is visible for ever, an abort never; nothing of an older epoch is written once a newer
//! one was given out; producer ids are given once; a producer is not refused unless something else
//! has ended its transaction or taken its id; the machine is what its log says; in the end nothing
//! is open and no request waits.
//!
//! Ids begin with their epochs nearly used up, so that every run changes producer ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::random::Random;

use super::machine::{Machine, World};
use super::record::TransactionRecord;
use super::request::{
    AddRequest, Effect, EndRequest, Finish, InitRequest, Producer, Reply, Request, Step, Ticket,
};
use super::state::{LAST_EPOCH, Status, TransactionState};
use crate::config::TransactionConfig;
use crate::time::{Moment, Now, Timestamp};

const SEEDS: u64 = 300;
const STEPS: usize = 300;
const IDS: [&str; 2] = ["a", "b"];
const PARTITIONS: i32 = 3;
const TIMEOUT_MS: i32 = 10_000;

/// An entry of a partition's log.
#[derive(Clone, Debug)]
enum Entry {
    /// A record of the transaction with this number.
    Data {
        producer: Producer,
        transaction: u64,
    },
    Marker {
        producer: Producer,
        is_commit: bool,
    },
}

/// The end of a transaction as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Committed,
    Aborted,
    /// No answer has come.
    Unknown,
}

/// One producer. Two with the same id are zombies of each other.
#[derive(Clone, Debug)]
struct Client {
    id: &'static str,
    is_v2: bool,
    producer: Option<Producer>,
    /// The transaction that it believes to be open.
    transaction: Option<u64>,
    added: BTreeSet<i32>,
}

struct Sim {
    random: Random,
    machine: Machine,
    log: Vec<TransactionRecord>,
    /// Records of the log that a power cut leaves.
    durable: usize,
    now_ms: u64,
    next_producer_id: i64,
    next_ticket: u64,
    next_transaction: u64,
    clients: Vec<Client>,
    partitions: BTreeMap<i32, Vec<Entry>>,
    /// Orders, each with the length of the log that must be durable before it is carried out.
    effects: Vec<(usize, Finish)>,
    /// Answers that wait to be durable, with who asked and for what.
    replies: Vec<(usize, Ticket, Reply)>,
    asked: BTreeMap<Ticket, Asked>,
    known: BTreeMap<u64, Known>,
    /// Per id: the highest producer given out, by order of being given.
    given: BTreeMap<&'static str, Vec<Producer>>,
    /// The finalized `transaction.version`.
    level: i16,
    /// Producers that nothing has happened to since they were given out.
    served: BTreeMap<&'static str, Producer>,
}

#[derive(Clone, Debug)]
enum Asked {
    Init {
        client: usize,
        producer: Option<Producer>,
    },
    Add {
        client: usize,
        producer: Producer,
        transaction: u64,
        partition: i32,
    },
    End {
        client: usize,
        producer: Producer,
        transaction: u64,
        is_commit: bool,
    },
}

impl Asked {
    /// The client that sent the request, and the producer that it named.
    fn by(&self) -> (usize, Option<Producer>) {
        match self {
            Asked::Init { client, producer } => (*client, *producer),
            Asked::Add { client, producer, .. } | Asked::End { client, producer, .. } => {
                (*client, Some(*producer))
            }
        }
    }
}

impl Sim {
    fn new(level: i16, seed: u64) -> Sim {
        let client = |number: usize| Client {
            id: IDS[number % IDS.len()],
            is_v2: level == 2 && !number.is_multiple_of(3),
            producer: None,
            transaction: None,
            added: BTreeSet::new(),
        };
        let mut random = Random::new(seed);
        let log: Vec<TransactionRecord> = IDS.iter().map(|id| worn(id, &mut random)).collect();
        let mut machine = Machine::new(Arc::new(TransactionConfig::default()));
        log.iter().for_each(|record| machine.apply(record.clone()));
        Sim {
            random,
            machine,
            durable: log.len(),
            log,
            now_ms: 1_000_000,
            next_producer_id: 100,
            next_ticket: 0,
            next_transaction: 0,
            clients: (0..4).map(client).collect(),
            partitions: (0..PARTITIONS).map(|index| (index, Vec::new())).collect(),
            effects: Vec::new(),
            replies: Vec::new(),
            asked: BTreeMap::new(),
            known: BTreeMap::new(),
            given: BTreeMap::new(),
            level,
            served: BTreeMap::new(),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn act(&mut self, act: impl FnOnce(&mut Machine, &mut World<'_>) -> Step) {
        let next = &mut self.next_producer_id;
        let mut fresh = || {
            *next += 1;
            Some(*next - 1)
        };
        let mut world = World {
            now: Now {
                moment: Moment::from_micros(self.now_ms * 1_000),
                timestamp: Timestamp(self.now_ms as i64),
            },
            level: self.level,
            fresh: &mut fresh,
        };
        let step = act(&mut self.machine, &mut world);
        self.check_refusals(&step);
        self.log.extend(step.records);
        let end = self.log.len();
        for effect in step.effects {
            if let Effect::Finish(finish) = effect {
                self.effects.push((end, finish));
            }
        }
        let replies = step.replies.into_iter();
        self.replies
            .extend(replies.map(|(ticket, reply)| (end, ticket, reply)));
        self.check_machine();
    }

    /// A producer is refused only if its transaction was decided, or its id taken, by another
    /// request or by a time-out.
    fn check_refusals(&mut self, step: &Step) {
        for effect in &step.effects {
            if let Effect::Finish(finish) = effect
                && !step
                    .records
                    .iter()
                    .any(|record| record.id == finish.id && self.is_known(record))
            {
                self.served.remove(&*finish.id);
            }
        }
        for (ticket, reply) in &step.replies {
            let asked = &self.asked[ticket];
            let (client, producer) = asked.by();
            let id = self.clients[client].id;
            match reply {
                Reply::Init(Err(error)) | Reply::Add(Err(error)) | Reply::End(Err(error)) => {
                    let is_fatal = matches!(
                        error,
                        ErrorCode::InvalidProducerIdMapping | ErrorCode::ProducerFenced
                    );
                    let served = self.served.get(id).copied();
                    assert!(
                        !is_fatal || producer.is_none() || producer != served,
                        "{asked:?} is refused with {error:?}"
                    );
                }
                // The client has a new producer as soon as the answer arrives.
                Reply::Init(Ok(_)) | Reply::End(Ok(_)) => {
                    self.served.remove(id);
                }
                _ => {}
            }
        }
    }

    /// A client has learnt of its producer, unless something has happened to that meanwhile.
    fn serve(&mut self, id: &'static str, producer: Producer) {
        let last = self.log.iter().rev().find(|known| *known.id == *id);
        let state = last.and_then(|known| known.state.as_ref());
        if state.is_some_and(|state| state.producer_when_complete() == producer) {
            self.served.insert(id, producer);
        }
    }

    /// Whether a replay writes again what the log has.
    fn is_known(&self, record: &TransactionRecord) -> bool {
        let last = self.log.iter().rev().find(|known| known.id == record.id);
        last.is_some_and(|known| known.state == record.state)
    }

    /// The machine's stored part is what a replay of its log gives.
    fn check_machine(&self) {
        let mut replayed: BTreeMap<Arc<str>, TransactionState> = BTreeMap::new();
        for record in self.log.clone() {
            match record.state {
                Some(state) => replayed.insert(record.id, state),
                None => replayed.remove(&record.id),
            };
        }
        let open = |state: &&TransactionState| !state.status.is_idle();
        let from_log: Vec<&TransactionState> = replayed.values().filter(open).collect();
        let own: Vec<&TransactionState> = self.machine.open().map(|(_, state)| state).collect();
        assert_eq!(own, from_log);
    }

    fn ask(&mut self, request: Request, asked: Asked) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.asked.insert(ticket, asked);
        self.act(|machine, world| machine.handle(world, ticket, request));
    }

    fn until(&self) -> Moment {
        Moment::from_micros((self.now_ms + 5_000) * 1_000)
    }

    fn client_acts(&mut self) {
        let number = self.below(self.clients.len() as u64) as usize;
        let client = self.clients[number].clone();
        match (client.producer, self.below(30)) {
            (None, _) | (_, 0) => {
                let expected = client.producer.filter(|_| client.transaction.is_none());
                let init = InitRequest {
                    id: client.id.into(),
                    timeout_ms: TIMEOUT_MS,
                    expected,
                    until: self.until(),
                };
                self.clients[number].transaction = None;
                self.clients[number].producer = None;
                let asked = Asked::Init {
                    client: number,
                    producer: expected,
                };
                self.ask(Request::Init(init), asked);
            }
            (Some(producer), 1..=20) => self.write(number, producer),
            (Some(producer), _) => {
                let is_commit = self.below(2) == 0;
                self.end(number, producer, is_commit);
            }
        }
    }

    fn write(&mut self, number: usize, producer: Producer) {
        let partition = self.below(PARTITIONS as u64) as i32;
        let transaction = match self.clients[number].transaction {
            Some(transaction) => transaction,
            None => {
                self.next_transaction += 1;
                self.known.insert(self.next_transaction, Known::Unknown);
                self.clients[number].transaction = Some(self.next_transaction);
                self.clients[number].added.clear();
                self.next_transaction
            }
        };
        let client = &self.clients[number];
        if client.added.contains(&partition) {
            self.append(producer, transaction, partition);
            return;
        }
        let add = AddRequest {
            id: client.id.into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            partitions: vec![("t".into(), partition)],
            client_version: if client.is_v2 { 2 } else { 0 },
            until: self.until(),
        };
        let asked = Asked::Add {
            client: number,
            producer,
            transaction,
            partition,
        };
        self.ask(Request::Add(add), asked);
    }

    /// A partition takes a record if it belongs to an open transaction of the coordinator's at its
    /// epoch: the rule of the log with its ticket.
    fn append(&mut self, producer: Producer, transaction: u64, partition: i32) {
        let is_open = self.machine.open().any(|(_, state)| {
            state.status == Status::Ongoing
                && (state.producer_id, state.producer_epoch) == producer
                && state.partitions.contains(&("t".into(), partition))
        });
        let log = self.partitions.get_mut(&partition).unwrap();
        if is_open {
            log.push(Entry::Data {
                producer,
                transaction,
            });
        }
    }

    fn end(&mut self, number: usize, producer: Producer, is_commit: bool) {
        let client = &self.clients[number];
        let Some(transaction) = client.transaction else {
            return;
        };
        let end = EndRequest {
            id: client.id.into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            is_commit,
            client_version: if client.is_v2 { 2 } else { 0 },
            until: self.until(),
        };
        let asked = Asked::End {
            client: number,
            producer,
            transaction,
            is_commit,
        };
        // A client sends nothing else until this is answered; it may send it again.
        self.ask(Request::End(end.clone()), asked.clone());
        if client_repeats(&mut self.random) {
            self.ask(Request::End(end), asked);
        }
        self.settle_replies();
    }

    /// Delivers answers whose records are durable.
    fn settle_replies(&mut self) {
        self.durable = self.log.len();
        for (_, ticket, reply) in std::mem::take(&mut self.replies) {
            let asked = self.asked.remove(&ticket).expect("asked once");
            self.deliver(asked, reply);
        }
    }

    fn deliver(&mut self, asked: Asked, reply: Reply) {
        match (asked, reply) {
            (Asked::Init { client, .. }, Reply::Init(Ok(producer))) => {
                let id = self.clients[client].id;
                let given = self.given.entry(id).or_default();
                assert!(!given.contains(&producer), "{producer:?} was given before");
                if let Some(last) = given.last() {
                    assert!(
                        producer.0 != last.0 || producer.1 > last.1,
                        "{last:?}, {producer:?}"
                    );
                }
                given.push(producer);
                self.clients[client].producer = Some(producer);
                self.serve(id, producer);
            }
            (
                Asked::Add {
                    client,
                    transaction,
                    partition,
                    ..
                },
                Reply::Add(Ok(())),
            ) => {
                let known = &mut self.clients[client];
                if known.transaction == Some(transaction)
                    && let Some(producer) = known.producer
                {
                    known.added.insert(partition);
                    self.append(producer, transaction, partition);
                }
            }
            (
                Asked::End {
                    client,
                    transaction,
                    is_commit,
                    ..
                },
                Reply::End(Ok(producer)),
            ) => {
                let outcome = if is_commit {
                    Known::Committed
                } else {
                    Known::Aborted
                };
                let known = self.known.insert(transaction, outcome);
                assert!(
                    known == Some(Known::Unknown) || known == Some(outcome),
                    "{known:?}"
                );
                let client = &mut self.clients[client];
                if client.transaction == Some(transaction) {
                    client.transaction = None;
                    client.producer = Some(producer);
                    let id = client.id;
                    self.given.entry(id).or_default().push(producer);
                    self.serve(id, producer);
                }
            }
            // Refused, or sent away: the client starts over.
            (asked, reply) => {
                let (client, _) = asked.by();
                if let Reply::Init(Err(error)) | Reply::Add(Err(error)) = reply
                    && error == ErrorCode::ConcurrentTransactions
                {
                    return;
                }
                self.clients[client].producer = None;
                self.clients[client].transaction = None;
            }
        }
    }

    /// Carries out one order: markers go to some of its partitions, or to all.
    fn carry_out(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        let place = self.below(self.effects.len() as u64) as usize;
        let (needed, finish) = self.effects[place].clone();
        if needed > self.durable {
            return;
        }
        let producer = (finish.producer_id, finish.producer_epoch);
        let is_interrupted = self.below(4) == 0;
        for (_, partition) in &finish.partitions {
            let log = self.partitions.get_mut(partition).unwrap();
            log.push(Entry::Marker {
                producer,
                is_commit: finish.is_commit,
            });
            if is_interrupted {
                // The rest comes when the order is carried out again.
                return;
            }
        }
        self.effects.remove(place);
        self.act(|machine, world| machine.finished(world, &finish.id, producer));
    }

    /// The process ends; with a power cut also what is not durable.
    fn restart(&mut self, is_power_cut: bool) {
        if is_power_cut {
            self.log.truncate(self.durable);
        }
        self.durable = self.log.len();
        self.effects.clear();
        self.replies.clear();
        for asked in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Init { client, .. } = asked {
                self.clients[client].producer = None;
            }
        }
        self.machine = Machine::new(Arc::new(TransactionConfig::default()));
        for record in self.log.clone() {
            self.machine.apply(record);
        }
        self.act(Machine::arm);
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.act(|machine, world| machine.on_deadline(world));
    }

    fn step(&mut self) {
        match self.below(60) {
            0 => self.restart(false),
            1 => self.restart(true),
            2 => {
                let ms = self.below(TIMEOUT_MS as u64);
                self.advance(ms);
            }
            3..=16 => self.carry_out(),
            17..=26 => self.settle_replies(),
            _ => self.client_acts(),
        }
        self.advance(1);
    }

    /// Faults have ended: everything comes to its end.
    fn quiesce(&mut self) {
        for _ in 0..200 {
            self.settle_replies();
            self.carry_out();
        }
        self.clients.iter_mut().for_each(|client| client.producer = None);
        for _ in 0..4 {
            self.advance(TIMEOUT_MS as u64);
            for _ in 0..200 {
                self.settle_replies();
                self.carry_out();
            }
        }
        assert_eq!(self.machine.open().count(), 0, "something is open for ever");
        assert!(
            self.asked.is_empty(),
            "a request waits for ever: {:?}",
            self.asked
        );
    }

    /// What each transaction's records came to, in every partition.
    fn outcomes(&self) -> BTreeMap<u64, BTreeSet<Option<bool>>> {
        let mut outcomes: BTreeMap<u64, BTreeSet<Option<bool>>> = BTreeMap::new();
        for log in self.partitions.values() {
            for (place, entry) in log.iter().enumerate() {
                let Entry::Data {
                    producer,
                    transaction,
                } = entry
                else {
                    continue;
                };
                // The next marker of its producer decides.
                let decided = log[place..].iter().find_map(|later| match later {
                    Entry::Marker {
                        producer: other,
                        is_commit,
                    } if other.0 == producer.0 => Some(*is_commit),
                    _ => None,
                });
                outcomes.entry(*transaction).or_default().insert(decided);
            }
        }
        outcomes
    }

    /// How often a producer id was replaced.
    fn rotations(&self) -> usize {
        let ids_of = |id: &str| {
            let states = self.log.iter().filter(|record| *record.id == *id);
            let states = states.flat_map(|record| &record.state);
            states
                .map(|state| state.producer_id)
                .collect::<BTreeSet<i64>>()
                .len()
        };
        IDS.iter().map(|id| ids_of(id) - 1).sum()
    }

    fn check_outcomes(&self) {
        for (transaction, outcomes) in self.outcomes() {
            assert_eq!(
                outcomes.len(),
                1,
                "transaction {transaction} is torn: {outcomes:?}"
            );
            let outcome = outcomes.into_iter().next().unwrap();
            match self.known[&transaction] {
                Known::Committed => assert_eq!(outcome, Some(true), "{transaction} was committed"),
                Known::Aborted => assert_eq!(outcome, Some(false), "{transaction} was aborted"),
                Known::Unknown => assert!(outcome.is_some(), "{transaction} has no outcome"),
            }
        }
    }
}

/// An id whose producer has a few epochs left.
fn worn(id: &str, random: &mut Random) -> TransactionRecord {
    let epochs_left = (random.next_u64() % 6) as i16;
    let producer_id = IDS.iter().position(|known| *known == id).expect("one of them") as i64;
    let mut state = TransactionState::new(producer_id, TIMEOUT_MS, Timestamp(0));
    state.producer_epoch = LAST_EPOCH - epochs_left;
    TransactionRecord {
        id: id.into(),
        state: Some(state),
    }
}

fn client_repeats(random: &mut Random) -> bool {
    random.next_u64().is_multiple_of(3)
}

#[test]
fn transactions_keep_their_promises() {
    for level in 0..=2 {
        keeps_promises_at(level);
    }
}

fn keeps_promises_at(level: i16) {
    let named = std::env::var("OTTLA_TRANSACTION_SEEDS").ok();
    let seeds = named.map_or(SEEDS, |count| count.parse().expect("a number of seeds"));
    let mut committed = 0;
    let mut aborted = 0;
    let mut rotated = 0;
    for seed in 0..seeds {
        let mut sim = Sim::new(level, seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                sim.step();
            }
            sim.quiesce();
            sim.check_outcomes();
        }));
        if let Err(panic) = outcome {
            eprintln!("level {level}, seed {seed}");
            std::panic::resume_unwind(panic);
        }
        for outcome in sim.outcomes().into_values().flatten().flatten() {
            match outcome {
                true => committed += 1,
                false => aborted += 1,
            }
        }
        rotated += sim.rotations();
    }
    // The world must be one in which something happens.
    assert!(
        committed as u64 > seeds && aborted as u64 > seeds,
        "level {level}: {committed}, {aborted}"
    );
    assert!(rotated as u64 > seeds, "level {level}: {rotated}");
}
