//! The state of a transactional producer: which request the coordinator gets next, and what an
//! answer means. No input and output, no clock.
//!
//! Reading order: `call` takes what the application wants, `settle` moves on without a request,
//! `wanted` names the next request, `answered` takes its result.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::super::sequence::ProducerId;
use super::calls::{Call, OffsetsToCommit, Outcome, Waiter};
use crate::error::Error;
use crate::network::backoff::{Backoff, Random};
use crate::time::Moment;

/// The coordinator finishes an ended transaction within milliseconds: the pause before the next
/// attempt is not that of a failed broker. Kafka's client waits as long.
const CONFLICT_PAUSE_NANOS: u64 = 20_000_000;

/// `transaction.version` of the cluster, as far as it matters to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    /// Versions 0 and 1: partitions and groups are added by requests of their own.
    Explicit,
    /// Version 2 (KIP-890): the first batch adds its partition, and every end raises the epoch.
    Implicit,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// With `expected`, a new epoch for a producer that is still the newest (KIP-360).
    Init {
        expected: Option<ProducerId>,
    },
    AddPartitions(Vec<(Arc<str>, i32)>),
    AddOffsets(Arc<OffsetsToCommit>),
    CommitOffsets(Arc<OffsetsToCommit>),
    End {
        is_commit: bool,
    },
}

/// A partition, and why it was not added.
pub(super) type AddedPartition = ((Arc<str>, i32), Option<Error>);

/// A request's answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Initialized(ProducerId),
    /// The result of each partition.
    PartitionsAdded(Vec<AddedPartition>),
    OffsetsAdded,
    OffsetsCommitted,
    /// With the producer of the next transaction, where the coordinator names it.
    Ended(Option<ProducerId>),
}

/// What is left of the transaction's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Some are not decided.
    Left,
    None,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Uninitialized,
    /// With a producer, its epoch is being raised.
    Initializing {
        expected: Option<ProducerId>,
    },
    Ready,
    Open,
    Committing,
    Aborting,
    Lost(Error),
    Fatal(Error),
}

/// How an error of a request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Ask again; `is_elsewhere`: after another lookup of the coordinator.
    Retry {
        is_elsewhere: bool,
    },
    /// No answer came: the request may have been carried out, or may yet be.
    Unanswered,
    /// The transaction before is not finished.
    Conflict,
    Abortable,
    Lost,
    Fatal,
}

/// What the caller of `answered` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reaction {
    /// Look the coordinator up again.
    pub must_find_coordinator: bool,
    /// The transaction before this one was in the way for this long.
    pub conflict_nanos: Option<u64>,
}

#[derive(Debug)]
pub(super) struct TransactionState {
    stage: Stage,
    protocol: Protocol,
    producer: Option<ProducerId>,
    /// No transaction has used this id and epoch.
    is_fresh: bool,
    /// The epoch must be raised before the next transaction: the brokers may hold something of this
    /// one, or may yet receive it.
    must_renew: bool,
    /// Why the transaction can only be aborted.
    trouble: Option<Error>,
    /// The coordinator may know the transaction as open.
    is_started: bool,
    /// Every request that began the transaction has lost its answer.
    is_doubtful: bool,
    /// The guard is gone: abort when the commit fails.
    is_released: bool,
    partitions: BTreeMap<Arc<str>, BTreeMap<i32, bool>>,
    wanted_partitions: usize,
    groups: BTreeSet<Arc<str>>,
    offsets: VecDeque<(Arc<OffsetsToCommit>, Waiter)>,
    init: Vec<Waiter>,
    begin: Option<Waiter>,
    end: Option<Waiter>,
    asked: Option<Ask>,
    attempts: u32,
    not_before: Moment,
    conflict_since: Option<Moment>,
    /// Of the last request that is tried again, for the texts of time-outs.
    last_error: Option<Error>,
    limit_ms: u64,
    backoff: Backoff,
    random: Random,
}

impl TransactionState {
    /// - `limit_ms`: max.block.ms, for the texts of errors.
    pub fn new(limit_ms: u64, backoff: Backoff, random: Random) -> TransactionState {
        TransactionState {
            stage: Stage::Uninitialized,
            protocol: Protocol::Explicit,
            producer: None,
            is_fresh: false,
            must_renew: false,
            trouble: None,
            is_started: false,
            is_doubtful: false,
            is_released: false,
            partitions: BTreeMap::new(),
            wanted_partitions: 0,
            groups: BTreeSet::new(),
            offsets: VecDeque::new(),
            init: Vec::new(),
            begin: None,
            end: None,
            asked: None,
            attempts: 0,
            not_before: Moment::from_nanos(0),
            conflict_since: None,
            last_error: None,
            limit_ms,
            backoff,
            random,
        }
    }

    pub fn producer(&self) -> Option<ProducerId> {
        self.producer
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Why the open transaction can only be aborted.
    pub fn trouble(&self) -> Option<&Error> {
        let is_open = matches!(self.stage, Stage::Open | Stage::Committing);
        self.trouble.as_ref().filter(|_| is_open)
    }

    pub fn is_aborting(&self) -> bool {
        self.stage == Stage::Aborting
    }

    pub fn is_ending(&self) -> bool {
        matches!(self.stage, Stage::Committing | Stage::Aborting)
    }

    /// Why no record of this producer can be sent: it is fenced, forgotten or refused.
    pub fn gone(&self) -> Option<&Error> {
        match &self.stage {
            Stage::Lost(error) | Stage::Fatal(error) => Some(error),
            _ => None,
        }
    }

    /// Something is under way that a close should wait for.
    pub fn is_busy(&self) -> bool {
        self.is_ending()
    }

    /// Whether a beginning transaction waits to learn the cluster's protocol.
    pub fn wants_protocol(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether batches for this partition may be sent; if it must be added first, that is noted.
    pub fn admits(&mut self, topic: &Arc<str>, partition: i32) -> bool {
        let is_open = matches!(self.stage, Stage::Open | Stage::Committing);
        if !is_open || self.trouble.is_some() {
            return false;
        }
        if self.protocol == Protocol::Implicit {
            return true;
        }
        if let Some(is_added) = self.partitions.get(topic).and_then(|found| found.get(&partition)) {
            return *is_added;
        }
        self.partitions
            .entry(Arc::clone(topic))
            .or_default()
            .insert(partition, false);
        self.wanted_partitions += 1;
        false
    }

    /// Whether partitions are to be added and no request is in flight.
    pub fn wants_partitions(&self) -> bool {
        self.wanted_partitions > 0 && self.asked.is_none()
    }

    /// A batch of the transaction is in a request.
    pub fn note_sent(&mut self) {
        self.is_started = true;
        self.is_doubtful = false;
    }

    /// Records of the transaction failed. With `is_numbered` a sequence was used up, which the
    /// brokers may or may not have seen.
    pub fn note_failed(&mut self, error: &Error, is_numbered: bool) {
        if matches!(self.stage, Stage::Open | Stage::Committing | Stage::Aborting) {
            self.must_renew |= is_numbered;
            self.fail(error.clone());
        }
    }

    /// Another producer has taken the transactional id, as the leader of a partition says.
    pub fn lose(&mut self, error: Error) {
        self.tell_all(|| Outcome::Lost(error.clone()));
        self.leave_transaction();
        self.producer = None;
        self.must_renew = false;
        self.stage = Stage::Lost(error);
    }

    pub fn die(&mut self, error: Error) {
        if !matches!(self.stage, Stage::Fatal(_)) {
            self.tell_all(|| Outcome::Fatal(error.clone()));
            self.leave_transaction();
            self.stage = Stage::Fatal(error);
        }
    }

    fn tell_all(&mut self, outcome: impl Fn() -> Outcome) {
        let offsets = self.offsets.drain(..).map(|(_, waiter)| waiter);
        let single = self.begin.take().into_iter().chain(self.end.take());
        for waiter in self.init.drain(..).chain(offsets).chain(single) {
            waiter.tell(outcome());
        }
    }

    fn leave_transaction(&mut self) {
        self.trouble = None;
        self.is_started = false;
        self.is_doubtful = false;
        self.is_released = false;
        self.partitions.clear();
        self.wanted_partitions = 0;
        self.groups.clear();
        self.attempts = 0;
        self.not_before = Moment::from_nanos(0);
        self.conflict_since = None;
        self.last_error = None;
    }

    /// The transaction can only be aborted from now on.
    fn fail(&mut self, error: Error) {
        if !matches!(self.stage, Stage::Open | Stage::Committing) {
            return;
        }
        let error = self.trouble.get_or_insert(error).clone();
        for (_, waiter) in self.offsets.drain(..) {
            waiter.tell(Outcome::Abortable(error.clone()));
        }
        if self.stage == Stage::Committing {
            self.stage = if self.is_released {
                Stage::Aborting
            } else {
                Stage::Open
            };
            if let Some(waiter) = self.end.take() {
                waiter.tell(Outcome::Abortable(error));
            }
        }
    }

    pub fn call(&mut self, call: Call) {
        match call {
            Call::Init(waiter) => self.call_init(waiter),
            Call::Begin(waiter) => self.call_begin(waiter),
            Call::Offsets(offsets, waiter) => self.call_offsets(offsets, waiter),
            Call::Commit(waiter) => self.call_commit(waiter),
            Call::Abort(waiter) => self.call_abort(waiter),
        }
    }

    fn call_init(&mut self, waiter: Waiter) {
        match &self.stage {
            Stage::Uninitialized | Stage::Lost(_) => {
                self.stage = Stage::Initializing { expected: None };
                self.attempts = 0;
                self.init.push(waiter);
            }
            Stage::Initializing { .. } => self.init.push(waiter),
            Stage::Ready => waiter.tell(Outcome::Done),
            Stage::Open | Stage::Committing | Stage::Aborting => {
                waiter.tell(refused("init: a transaction is open"));
            }
            Stage::Fatal(error) => waiter.tell(Outcome::Fatal(error.clone())),
        }
    }

    fn call_begin(&mut self, waiter: Waiter) {
        match &self.stage {
            Stage::Uninitialized | Stage::Initializing { expected: None } => {
                waiter.tell(refused("begin: call init first"));
            }
            Stage::Open => waiter.tell(refused("begin: a transaction is open")),
            Stage::Lost(error) => waiter.tell(Outcome::Lost(error.clone())),
            Stage::Fatal(error) => waiter.tell(Outcome::Fatal(error.clone())),
            Stage::Initializing { .. } | Stage::Ready | Stage::Committing | Stage::Aborting => {
                self.begin = Some(waiter);
            }
        }
    }

    fn call_offsets(&mut self, offsets: Arc<OffsetsToCommit>, waiter: Waiter) {
        match (&self.stage, &self.trouble) {
            (Stage::Open, Some(error)) => waiter.tell(Outcome::Abortable(error.clone())),
            (Stage::Open, None) => self.offsets.push_back((offsets, waiter)),
            _ => waiter.tell(self.not_open("send_offsets")),
        }
    }

    fn call_commit(&mut self, waiter: Waiter) {
        match (&self.stage, &self.trouble) {
            (Stage::Open, Some(error)) => waiter.tell(Outcome::Abortable(error.clone())),
            (Stage::Open, None) => {
                self.stage = Stage::Committing;
                self.end = Some(waiter);
            }
            // After `Unfinished`: the same commit goes on.
            (Stage::Committing, _) => self.end = Some(waiter),
            // It was completed after the caller's limit.
            (Stage::Ready, _) => waiter.tell(Outcome::Done),
            (Stage::Initializing { expected: Some(_) }, _) => waiter.tell(Outcome::Done),
            _ => waiter.tell(self.not_open("commit")),
        }
    }

    fn call_abort(&mut self, waiter: Option<Waiter>) {
        if let Some(begin) = self.begin.take() {
            begin.tell(Outcome::Refused(Error::TransactionAborted));
        }
        match &self.stage {
            Stage::Open => {
                self.stage = Stage::Aborting;
                self.end = waiter;
                for (_, waiter) in self.offsets.drain(..) {
                    waiter.tell(Outcome::Abortable(Error::TransactionAborted));
                }
            }
            // Commit or abort is decided once: a request may be on its way.
            Stage::Committing => match waiter {
                Some(waiter) => waiter.tell(refused("abort: a commit is under way; call commit again")),
                None => self.is_released = true,
            },
            Stage::Aborting => self.end = waiter.or(self.end.take()),
            _ => {
                let outcome = self.not_open("abort");
                if let Some(waiter) = waiter {
                    waiter.tell(outcome);
                }
            }
        }
    }

    fn not_open(&self, call: &str) -> Outcome {
        match &self.stage {
            Stage::Lost(error) => Outcome::Lost(error.clone()),
            Stage::Fatal(error) => Outcome::Fatal(error.clone()),
            _ => refused(&format!("{call}: no transaction is open")),
        }
    }

    /// Ends what needs no request. `protocol` is the cluster's now.
    pub fn settle(&mut self, now: Moment, protocol: Protocol, work: Work) {
        self.expire(now);
        let is_at_rest = self.asked.is_none() && work == Work::None;
        let is_unknown_to_coordinator = !self.is_started && self.offsets.is_empty();
        if is_at_rest && self.is_ending() && is_unknown_to_coordinator && self.wanted_partitions == 0 {
            self.ended(None);
        }
        if is_at_rest && self.is_aborting() && !self.is_started {
            self.ended(None);
        }
        if self.stage == Stage::Ready && self.begin.is_some() {
            self.try_begin(protocol);
        }
    }

    fn try_begin(&mut self, protocol: Protocol) {
        // Within one epoch a delayed request of the older protocol could be taken for one of the
        // next transaction.
        self.must_renew |= protocol != self.protocol && !self.is_fresh;
        if self.must_renew {
            self.stage = Stage::Initializing {
                expected: self.producer,
            };
            self.attempts = 0;
            return;
        }
        self.protocol = protocol;
        self.is_fresh = false;
        self.stage = Stage::Open;
        if let Some(waiter) = self.begin.take() {
            waiter.tell(Outcome::Done);
        }
    }

    /// Answers the calls whose limit has passed; their work goes on.
    fn expire(&mut self, now: Moment) {
        let is_over = |waiter: &Waiter| waiter.deadline <= now;
        let limit_ms = self.limit_ms;
        let last_error = self.last_error.clone();
        let over = |what: &str| Error::Timeout {
            what: match &last_error {
                Some(error) => format!("{what} (the last attempt: {error})").into(),
                None => what.into(),
            },
            limit_ms,
            setting: "max.block.ms",
        };
        for waiter in self.init.extract_if(.., |waiter| is_over(waiter)) {
            waiter.tell(Outcome::Unfinished(over("init of the transactional producer")));
        }
        if let Some(waiter) = self.begin.take_if(|waiter| is_over(waiter)) {
            waiter.tell(Outcome::Unfinished(over(
                "begin: the end of the transaction before",
            )));
        }
        if let Some(waiter) = self.end.take_if(|waiter| is_over(waiter)) {
            let what = if self.is_aborting() { "abort" } else { "commit" };
            waiter.tell(Outcome::Unfinished(over(what)));
        }
        if self.offsets.iter().any(|(_, waiter)| is_over(waiter)) {
            // Whether the group has them is not known, and a commit must not leave that open.
            self.must_renew |= self.protocol == Protocol::Explicit;
            self.fail(over("send_offsets"));
        }
    }

    /// When `settle` or `wanted` has something to do next, if nothing happens before.
    pub fn due(&self) -> Option<Moment> {
        let waiters = self
            .init
            .iter()
            .chain(&self.begin)
            .chain(&self.end)
            .chain(self.offsets.iter().map(|(_, waiter)| waiter));
        let pause = (self.attempts > 0 || self.conflict_since.is_some()).then_some(self.not_before);
        waiters.map(|waiter| waiter.deadline).chain(pause).min()
    }

    /// The next request, if one can be sent now. It stays wanted until `sent`.
    pub fn wanted(&self, now: Moment, work: Work) -> Option<Ask> {
        if self.asked.is_some() || now < self.not_before {
            return None;
        }
        match &self.stage {
            Stage::Initializing { expected } => Some(Ask::Init { expected: *expected }),
            Stage::Open | Stage::Committing if self.trouble.is_none() => {
                self.wanted_open().or_else(|| self.wanted_end(work))
            }
            Stage::Aborting => self.wanted_end(work),
            _ => None,
        }
    }

    fn wanted_open(&self) -> Option<Ask> {
        if self.wanted_partitions > 0 {
            let new = self.partitions.iter().flat_map(|(topic, partitions)| {
                let new = partitions.iter().filter(|(_, is_added)| !**is_added);
                new.map(|(partition, _)| (Arc::clone(topic), *partition))
            });
            return Some(Ask::AddPartitions(new.collect()));
        }
        let (offsets, _) = self.offsets.front()?;
        let is_added = self.protocol == Protocol::Implicit || self.groups.contains(&offsets.group.group_id);
        Some(match is_added {
            true => Ask::CommitOffsets(Arc::clone(offsets)),
            false => Ask::AddOffsets(Arc::clone(offsets)),
        })
    }

    fn wanted_end(&self, work: Work) -> Option<Ask> {
        (self.is_ending() && self.is_started && work == Work::None).then_some(Ask::End {
            is_commit: self.stage == Stage::Committing,
        })
    }

    pub fn sent(&mut self, ask: Ask) {
        if matches!(ask, Ask::CommitOffsets(_)) && self.protocol == Protocol::Implicit {
            self.is_started = true;
        }
        self.asked = Some(ask);
    }

    /// The request in flight.
    pub fn asked(&self) -> Option<&Ask> {
        self.asked.as_ref()
    }

    pub fn answered(&mut self, now: Moment, result: Result<Answer, Error>) -> Reaction {
        let Some(ask) = self.asked.take() else {
            return Reaction::default();
        };
        match result {
            Ok(answer) => {
                let conflict_nanos = self.conflict_since.take().map(|since| now.nanos_since(since));
                self.attempts = 0;
                self.not_before = Moment::from_nanos(0);
                self.last_error = None;
                let mut reaction = self.accept(now, ask, answer);
                reaction.conflict_nanos = conflict_nanos;
                reaction
            }
            Err(error) => self.refused(now, &ask, error),
        }
    }

    fn accept(&mut self, now: Moment, ask: Ask, answer: Answer) -> Reaction {
        match answer {
            Answer::Initialized(producer) => self.initialized(producer),
            Answer::PartitionsAdded(results) => return self.partitions_added(now, results),
            Answer::OffsetsAdded => {
                self.is_started = true;
                self.is_doubtful = false;
                if let Ask::AddOffsets(offsets) = ask {
                    self.groups.insert(Arc::clone(&offsets.group.group_id));
                }
            }
            Answer::OffsetsCommitted => {
                self.is_started = true;
                self.is_doubtful = false;
                // It is not there any more after a limit or an abort.
                let is_it = self.offsets.front().is_some_and(
                    |(offsets, _)| matches!(&ask, Ask::CommitOffsets(asked) if Arc::ptr_eq(asked, offsets)),
                );
                if is_it && let Some((_, waiter)) = self.offsets.pop_front() {
                    waiter.tell(Outcome::Done);
                }
            }
            Answer::Ended(next) => self.ended(next),
        }
        Reaction::default()
    }

    fn initialized(&mut self, producer: ProducerId) {
        if !matches!(self.stage, Stage::Initializing { .. }) {
            return;
        }
        self.producer = Some(producer);
        self.is_fresh = true;
        self.must_renew = false;
        self.stage = Stage::Ready;
        for waiter in self.init.drain(..) {
            waiter.tell(Outcome::Done);
        }
    }

    fn partitions_added(&mut self, now: Moment, results: Vec<AddedPartition>) -> Reaction {
        let mut reaction = Reaction::default();
        let wanted_before = self.wanted_partitions;
        for ((topic, partition), error) in results {
            let known = self
                .partitions
                .get_mut(&topic)
                .and_then(|found| found.get_mut(&partition));
            let Some(is_added) = known.filter(|is_added| !**is_added) else {
                continue;
            };
            let Some(error) = error else {
                *is_added = true;
                self.wanted_partitions -= 1;
                self.is_started = true;
                self.is_doubtful = false;
                continue;
            };
            // The others of the request are named with their own reason.
            let is_consequence = matches!(
                error,
                Error::Broker {
                    code: ErrorCode::OperationNotAttempted,
                    ..
                }
            );
            if !is_consequence {
                let ask = Ask::AddPartitions(Vec::new());
                let next = self.refused(now, &ask, error);
                reaction.must_find_coordinator |= next.must_find_coordinator;
            }
        }
        let is_without_effect = self.wanted_partitions == wanted_before && self.attempts == 0;
        if is_without_effect && self.trouble.is_none() && self.gone().is_none() {
            let error = Error::Malformed {
                address: "transaction coordinator".into(),
                reason: "AddPartitionsToTxn: the answer lacks every partition".into(),
            };
            return self.retry(now, Class::Retry { is_elsewhere: true }, error);
        }
        reaction
    }

    fn ended(&mut self, next: Option<ProducerId>) {
        if !self.is_ending() {
            return;
        }
        if let Some(next) = next {
            self.producer = Some(next);
            self.is_fresh = true;
            self.must_renew = false;
        }
        self.leave_transaction();
        self.stage = Stage::Ready;
        if let Some(waiter) = self.end.take() {
            waiter.tell(Outcome::Done);
        }
    }

    fn refused(&mut self, now: Moment, ask: &Ask, error: Error) -> Reaction {
        let class = classify(&error);
        if class == Class::Unanswered {
            self.unanswered(ask);
        }
        match (class, ask) {
            (Class::Retry { .. } | Class::Unanswered | Class::Conflict, _) => {
                return self.retry(now, class, error);
            }
            // A refused connection says nothing about the transaction.
            (_, Ask::End { .. }) if is_connection_refused(&error) => {
                return self.retry(now, Class::Retry { is_elsewhere: true }, error);
            }
            (_, Ask::Init { expected: None }) => {
                self.stage = Stage::Uninitialized;
                for waiter in self.init.drain(..) {
                    waiter.tell(Outcome::Refused(error.clone()));
                }
            }
            (_, Ask::End { is_commit: false }) if self.is_doubtful && is_invalid_state(&error) => {
                // The request that should have begun the transaction never arrived.
                self.must_renew = true;
                self.ended(None);
            }
            // The producer's epoch could not be raised, and must not be used again.
            (_, Ask::Init { expected: Some(_) }) | (Class::Lost, _) => self.lose(error),
            (Class::Fatal, _) | (_, Ask::End { is_commit: false }) => self.die(error),
            (_, _) => self.fail(error),
        }
        Reaction::default()
    }

    /// KAFKA-17754: a request without an answer may arrive when the next transaction is open. Up to
    /// version 1 of transactions both have the same epoch, so that it would be taken for a request
    /// of the next one: its epoch must be another.
    fn unanswered(&mut self, ask: &Ask) {
        if self.protocol == Protocol::Implicit || matches!(ask, Ask::Init { .. }) {
            return;
        }
        self.must_renew = true;
        if !self.is_started {
            self.is_started = true;
            self.is_doubtful = true;
        }
    }

    fn retry(&mut self, now: Moment, class: Class, error: Error) -> Reaction {
        self.last_error = Some(error);
        self.attempts = self.attempts.saturating_add(1);
        let nanos = match class {
            Class::Conflict => {
                self.conflict_since.get_or_insert(now);
                let pause = self.backoff.nanos(0, &mut self.random);
                pause.min(CONFLICT_PAUSE_NANOS)
            }
            _ => self.backoff.nanos(self.attempts - 1, &mut self.random),
        };
        self.not_before = Moment::from_nanos(now.nanos().saturating_add(nanos));
        Reaction {
            must_find_coordinator: matches!(class, Class::Unanswered | Class::Retry { is_elsewhere: true }),
            conflict_nanos: None,
        }
    }
}

fn refused(message: &str) -> Outcome {
    Outcome::Refused(Error::IllegalState {
        message: message.into(),
    })
}

fn is_connection_refused(error: &Error) -> bool {
    matches!(error, Error::Authentication { .. } | Error::Tls { .. })
}

fn is_invalid_state(error: &Error) -> bool {
    matches!(
        error,
        Error::Broker {
            code: ErrorCode::InvalidTxnState,
            ..
        }
    )
}

/// - Source: KIP-1050.
fn classify(error: &Error) -> Class {
    let code = match error {
        Error::Broker { code, .. } => *code,
        Error::Disconnected { .. } | Error::Malformed { .. } | Error::Timeout { .. } => {
            return Class::Unanswered;
        }
        Error::UnsupportedVersion { .. } | Error::Closed => return Class::Fatal,
        _ => return Class::Abortable,
    };
    match code {
        ErrorCode::ConcurrentTransactions => Class::Conflict,
        ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
            Class::Retry { is_elsewhere: true }
        }
        ErrorCode::RequestTimedOut | ErrorCode::NetworkException => Class::Unanswered,
        ErrorCode::InvalidProducerEpoch
        | ErrorCode::ProducerFenced
        | ErrorCode::InvalidProducerIdMapping
        // With version 2 of transactions the answer after the coordinator has aborted by itself.
        | ErrorCode::InvalidTxnState => Class::Lost,
        ErrorCode::TransactionalIdAuthorizationFailed
        | ErrorCode::ClusterAuthorizationFailed
        | ErrorCode::InvalidTransactionTimeout
        | ErrorCode::UnsupportedVersion => Class::Fatal,
        code if code.is_retriable() => Class::Retry { is_elsewhere: false },
        _ => Class::Abortable,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
