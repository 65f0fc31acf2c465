//! The state machine of one partition of `__transaction_state` (KIP-98, KIP-890), without a disk, a
//! clock or a socket.
//!
//! It applies what it decides at once; the caller makes the records durable before it lets replies
//! and effects out. So the state after the last record is the state, and nothing is ever pending in
//! between. A request that must wait for the previous transaction to end waits in here; Apache
//! Kafka sends it away with CONCURRENT_TRANSACTIONS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::batch::NO_PRODUCER_EPOCH;

use super::lost_markers::Decision;
use super::record::TransactionRecord;
use super::request::{
    AddRequest, Effect, EndRequest, Finish, InitRequest, Producer, Reply, Request, Step, Ticket,
};
use super::state::{EPOCH_PER_TRANSACTION, LAST_EPOCH, Place, Status, TransactionState};
use crate::config::TransactionConfig;
use crate::time::{Moment, Now, Timestamp};

/// A time-out that finds no producer id is tried again after this.
const RETRY_MS: u64 = 100;

/// How long a transaction that is complete counts as the one that a commit runs into.
const JUST_MS: i64 = 1_000;

pub struct Machine {
    config: Arc<TransactionConfig>,
    transactions: BTreeMap<Arc<str>, TransactionState>,
    /// Requests that wait for the end of a transaction, in their order.
    parked: BTreeMap<Arc<str>, Vec<Parked>>,
    /// When open transactions are to be aborted, both ways.
    timeouts: BTreeSet<(Moment, Arc<str>)>,
    armed: BTreeMap<Arc<str>, Moment>,
    /// When to look for ids that have expired.
    expiry: Option<Moment>,
}

#[derive(Debug)]
struct Parked {
    ticket: Ticket,
    request: Request,
    until: Moment,
}

/// What the world is like when the machine acts.
pub struct World<'w> {
    pub now: Now,
    /// The finalized `transaction.version`.
    pub level: i16,
    /// Takes an unused producer id, if one is at hand.
    pub fresh: &'w mut dyn FnMut() -> Option<i64>,
}

/// What becomes of a request.
enum Outcome {
    Reply(Reply),
    /// It waits for the end of the transaction.
    Park(Request),
}

impl Machine {
    pub fn new(config: Arc<TransactionConfig>) -> Machine {
        Machine {
            config,
            transactions: BTreeMap::new(),
            parked: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            armed: BTreeMap::new(),
            expiry: None,
        }
    }

    /// Replays a record.
    pub fn apply(&mut self, record: TransactionRecord) {
        match record.state {
            Some(state) => self.transactions.insert(record.id, state),
            None => self.transactions.remove(&record.id),
        };
    }

    /// Whether no transaction of the id is open, and no marker for `place` is ordered.
    pub(super) fn wants_no_marker(&self, id: &str, place: &Place) -> bool {
        let state = self.transactions.get(id);
        state.is_some_and(|state| {
            state.status.is_idle() || state.status.is_prepared() && !state.partitions.contains(place)
        })
    }

    /// Goes back to a decision whose marker for `place` is missing, so that it is written before
    /// anything else happens under its id. Call between the replay and `arm`.
    ///
    /// - False: another transaction of the id is not complete.
    pub(super) fn decide_again(&mut self, decision: &Decision, place: Place) -> bool {
        let Some(state) = self.transactions.get_mut(&decision.id) else {
            return false;
        };
        if state.producer_id != decision.producer_id || state.producer_epoch < decision.producer_epoch {
            return false;
        }
        let status = Status::prepared(decision.is_commit);
        if state.status.is_idle() {
            state.status = status;
            state.client_version = decision.client_version;
            state.partitions.clear();
        }
        state.status == status && state.partitions.insert(place)
    }

    /// Starts timers and finishes what was decided. Call once, when the replay is complete.
    ///
    /// - What is found in the log may so far be in memory only: a process was killed before it was
    ///   synced. A decision is written again, and markers follow when that is durable; an open
    ///   transaction is written again before more data relies on it.
    pub fn arm(&mut self, world: &mut World<'_>) -> Step {
        let mut step = Step::default();
        let ids: Vec<Arc<str>> = self.transactions.keys().cloned().collect();
        for id in ids {
            let state = &self.transactions[&id];
            match state.status {
                Status::PrepareCommit | Status::PrepareAbort => self.finish(&id, &mut step),
                Status::Ongoing => step.records.push(TransactionRecord {
                    id: id.clone(),
                    state: Some(state.clone()),
                }),
                _ => {}
            }
            self.arm_timeout(&id, world.now);
        }
        self.expiry = Some(world.now.moment.after_ms(self.config.expiry_interval_ms));
        step
    }

    pub fn handle(&mut self, world: &mut World<'_>, ticket: Ticket, request: Request) -> Step {
        let mut step = Step::default();
        self.take(world, ticket, request, &mut step);
        step
    }

    fn take(&mut self, world: &mut World<'_>, ticket: Ticket, request: Request, step: &mut Step) {
        let outcome = match request {
            Request::Init(init) => self.init(world, init, step),
            Request::Add(add) => self.add(world, add, step),
            Request::Verify(add) => self.verify(add),
            Request::End(end) => self.end(world, end, step),
            Request::Describe(id) => Outcome::Reply(Reply::Describe(self.transactions.get(&id).cloned())),
            Request::List => Outcome::Reply(Reply::List(self.all())),
        };
        match outcome {
            Outcome::Reply(reply) => step.replies.push((ticket, reply)),
            Outcome::Park(request) => self.park(ticket, request),
        }
    }

    fn all(&self) -> Vec<(Arc<str>, TransactionState)> {
        let all = self.transactions.iter();
        all.map(|(id, state)| (id.clone(), state.clone())).collect()
    }

    /// Returns the ids with an open transaction, for metrics.
    pub fn open(&self) -> impl Iterator<Item = (&Arc<str>, &TransactionState)> {
        self.transactions
            .iter()
            .filter(|(_, state)| !state.status.is_idle())
    }

    fn park(&mut self, ticket: Ticket, request: Request) {
        let (id, until) = match &request {
            Request::Init(init) => (&init.id, init.until),
            Request::Add(add) | Request::Verify(add) => (&add.id, add.until),
            Request::End(end) => (&end.id, end.until),
            _ => unreachable!("only these wait"),
        };
        let parked = self.parked.entry(id.clone()).or_default();
        parked.push(Parked {
            ticket,
            request,
            until,
        });
    }

    /// Forgets a request whose client is gone.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.parked.retain(|_, parked| {
            parked.retain(|one| one.ticket != ticket);
            !parked.is_empty()
        });
    }

    fn init(&mut self, world: &mut World<'_>, mut init: InitRequest, step: &mut Step) -> Outcome {
        let refuse = |error| Outcome::Reply(Reply::Init(Err(error)));
        let Some(state) = self.transactions.get(&init.id) else {
            let Some(producer_id) = (world.fresh)() else {
                return Outcome::Reply(Reply::NeedsProducerId);
            };
            let state = TransactionState::new(producer_id, init.timeout_ms, world.now.timestamp);
            self.transactions.insert(init.id.clone(), state);
            self.record(&init.id, world.now, step);
            return Outcome::Reply(Reply::Init(Ok((producer_id, 0))));
        };
        if !is_expected(state, init.expected) {
            return refuse(ErrorCode::ProducerFenced);
        }
        if state.status.is_prepared() {
            return Outcome::Park(Request::Init(init));
        }
        if state.status == Status::Ongoing {
            // A zombie that names its old epoch must not end its successor's transaction.
            if init
                .expected
                .is_some_and(|(_, epoch)| epoch != state.producer_epoch)
            {
                return refuse(ErrorCode::ProducerFenced);
            }
            // Its producer is fenced by the abort; the new one gets the epoch behind that.
            if !self.abort_and_fence(&init.id, world, step) {
                return Outcome::Reply(Reply::NeedsProducerId);
            }
            init.expected = None;
            return Outcome::Park(Request::Init(init));
        }
        match self.renew(world, &init, step) {
            Some(reply) => Outcome::Reply(reply),
            None => Outcome::Reply(Reply::NeedsProducerId),
        }
    }

    /// Gives an idle id its next epoch, or a new producer id when the epochs are used up; `None`:
    /// none is at hand.
    fn renew(&mut self, world: &mut World<'_>, init: &InitRequest, step: &mut Step) -> Option<Reply> {
        let state = self
            .transactions
            .get_mut(&init.id)
            .expect("looked up by the caller");
        let epoch = init.expected.map(|(_, epoch)| epoch);
        if state.is_exhausted() && epoch.is_none_or(|epoch| epoch == state.producer_epoch) {
            let next = (world.fresh)()?;
            state.previous_producer_id = state.producer_id;
            state.last_producer_epoch = epoch.map_or(NO_PRODUCER_EPOCH, |_| state.producer_epoch);
            (state.producer_id, state.producer_epoch) = (next, 0);
        } else {
            match epoch {
                None => {
                    state.last_producer_epoch = NO_PRODUCER_EPOCH;
                    state.producer_epoch += 1;
                }
                Some(epoch) if epoch == state.producer_epoch => {
                    state.last_producer_epoch = state.producer_epoch;
                    state.producer_epoch += 1;
                }
                // The answer to this request was lost, or to an EndTxn that raised the epoch.
                Some(epoch) if epoch == state.last_producer_epoch => {}
                Some(_) => return Some(Reply::Init(Err(ErrorCode::ProducerFenced))),
            }
        }
        state.status = Status::Empty;
        state.partitions.clear();
        state.started.0 = -1;
        state.timeout_ms = init.timeout_ms;
        let producer = (state.producer_id, state.producer_epoch);
        self.record(&init.id, world.now, step);
        Some(Reply::Init(Ok(producer)))
    }

    /// Finds the state that a producer may act on.
    fn owned(&self, add: &AddRequest) -> Result<&TransactionState, ErrorCode> {
        let state = self.transactions.get(&add.id);
        let state = state.ok_or(ErrorCode::InvalidProducerIdMapping)?;
        if state.owner() == (add.producer_id, add.producer_epoch) {
            return Ok(state);
        }
        match state.producer_id == add.producer_id {
            true => Err(ErrorCode::ProducerFenced),
            false => Err(ErrorCode::InvalidProducerIdMapping),
        }
    }

    fn add(&mut self, world: &mut World<'_>, add: AddRequest, step: &mut Step) -> Outcome {
        let state = match self.owned(&add) {
            Err(error) => return Outcome::Reply(Reply::Add(Err(error))),
            Ok(state) => state,
        };
        if state.status.is_prepared() {
            return Outcome::Park(Request::Add(add));
        }
        let is_ongoing = state.status == Status::Ongoing;
        if is_ongoing
            && add
                .partitions
                .iter()
                .all(|place| state.partitions.contains(place))
        {
            return Outcome::Reply(Reply::Add(Ok(())));
        }
        let state = self.transactions.get_mut(&add.id).expect("just looked up");
        if !is_ongoing {
            state.status = Status::Ongoing;
            state.started = world.now.timestamp;
            state.partitions.clear();
        }
        state.partitions.extend(add.partitions);
        state.client_version = add.client_version;
        self.record(&add.id, world.now, step);
        self.arm_timeout(&add.id, world.now);
        Outcome::Reply(Reply::Add(Ok(())))
    }

    fn verify(&self, add: AddRequest) -> Outcome {
        let state = match self.owned(&add) {
            Err(error) => return Outcome::Reply(Reply::Verify(Err(error))),
            Ok(state) => state,
        };
        if state.status.is_prepared() {
            return Outcome::Park(Request::Verify(add));
        }
        let belongs = |place| state.status == Status::Ongoing && state.partitions.contains(place);
        Outcome::Reply(Reply::Verify(Ok(add.partitions.iter().map(belongs).collect())))
    }

    fn end(&mut self, world: &mut World<'_>, end: EndRequest, step: &mut Step) -> Outcome {
        let Some(state) = self.transactions.get(&end.id) else {
            return Outcome::Reply(Reply::End(Err(ErrorCode::InvalidProducerIdMapping)));
        };
        let reply = match judge(state, &end, world.now.timestamp) {
            Err(error) => Err(error),
            Ok(Judgement::Wait) => return Outcome::Park(Request::End(end)),
            Ok(Judgement::Decided) => Ok(state.producer_when_complete()),
            Ok(Judgement::Decide) => {
                let is_bumped = end.client_version >= EPOCH_PER_TRANSACTION;
                if !self.decide(&end.id, end.is_commit, is_bumped, world, step) {
                    return Outcome::Reply(Reply::NeedsProducerId);
                }
                Ok(self.transactions[&end.id].producer_when_complete())
            }
        };
        Outcome::Reply(Reply::End(reply))
    }

    /// Aborts an open transaction on behalf of others than its producer, which is fenced; false: a
    /// producer id is needed, and none is at hand.
    fn abort_and_fence(&mut self, id: &Arc<str>, world: &mut World<'_>, step: &mut Step) -> bool {
        let is_bumped_by_rule = world.level >= EPOCH_PER_TRANSACTION;
        if is_bumped_by_rule {
            return self.decide(id, false, true, world, step);
        }
        let state = self.transactions.get_mut(id).expect("called for a known id");
        state.last_producer_epoch = NO_PRODUCER_EPOCH;
        state.producer_epoch = state.producer_epoch.saturating_add(1);
        self.decide(id, false, false, world, step)
    }

    /// Decides a transaction: its outcome is in the log from here on. False: a producer id is
    /// needed, and none is at hand.
    ///
    /// - `is_bumped`: the transaction's markers, and the producer afterwards, have the next epoch
    ///   (KIP-890).
    fn decide(
        &mut self,
        id: &Arc<str>,
        is_commit: bool,
        is_bumped: bool,
        world: &mut World<'_>,
        step: &mut Step,
    ) -> bool {
        let state = self.transactions.get_mut(id).expect("called for a known id");
        // 32767 is for fencing alone; it can be left by an abort only, and is not bumped again.
        if is_bumped && state.producer_epoch == LAST_EPOCH {
            let Some(next) = (world.fresh)() else {
                return false;
            };
            state.next_producer_id = next;
        }
        if is_bumped {
            state.last_producer_epoch = state.producer_epoch;
            state.producer_epoch = state.producer_epoch.saturating_add(1);
        }
        if state.status != Status::Ongoing {
            state.partitions.clear();
            state.started = world.now.timestamp;
        }
        state.status = Status::prepared(is_commit);
        state.client_version = if is_bumped { EPOCH_PER_TRANSACTION } else { 0 };
        state.updated = world.now.timestamp;
        self.finish(id, step);
        self.arm_timeout(id, world.now);
        true
    }

    /// Writes a decision, and orders its markers.
    fn finish(&mut self, id: &Arc<str>, step: &mut Step) {
        let state = &self.transactions[id];
        step.records.push(TransactionRecord {
            id: id.clone(),
            state: Some(state.clone()),
        });
        step.effects.push(Effect::Finish(Finish {
            id: id.clone(),
            producer_id: state.producer_id,
            producer_epoch: state.producer_epoch,
            is_commit: state.status == Status::PrepareCommit,
            partitions: state.partitions.iter().cloned().collect(),
            transaction_version: if state.client_version >= EPOCH_PER_TRANSACTION {
                2
            } else {
                0
            },
        }));
    }

    /// All markers of a transaction are durable. May be told twice, or of a transaction that is
    /// over.
    pub fn finished(&mut self, world: &mut World<'_>, id: &Arc<str>, producer: Producer) -> Step {
        let mut step = Step::default();
        let Some(state) = self.transactions.get_mut(id) else {
            return step;
        };
        if !state.status.is_prepared() || (state.producer_id, state.producer_epoch) != producer {
            return step;
        }
        state.complete(world.now.timestamp);
        self.record(id, world.now, &mut step);
        for parked in self.parked.remove(id).unwrap_or_default() {
            self.take(world, parked.ticket, parked.request, &mut step);
        }
        step
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let parked = self.parked.values().flatten().map(|parked| parked.until);
        let timeout = self.timeouts.first().map(|(at, _)| *at);
        parked.chain(timeout).chain(self.expiry).min()
    }

    pub fn on_deadline(&mut self, world: &mut World<'_>) -> Step {
        let mut step = Step::default();
        self.send_away(world.now, &mut step);
        while let Some((at, id)) = self.timeouts.first().cloned()
            && at <= world.now.moment
        {
            self.disarm(&id);
            if !self.abort_and_fence(&id, world, &mut step) {
                step.effects.push(Effect::AllocateProducerIds);
                self.arm_at(&id, world.now.moment.after_ms(RETRY_MS));
            }
        }
        if self.expiry.is_some_and(|expiry| expiry <= world.now.moment) {
            self.expire(world.now, &mut step);
            self.expiry = Some(world.now.moment.after_ms(self.config.expiry_interval_ms));
        }
        step
    }

    /// Answers requests that have waited for too long, as Apache Kafka answers at once.
    fn send_away(&mut self, now: Now, step: &mut Step) {
        let late = ErrorCode::ConcurrentTransactions;
        for parked in self.parked.values_mut() {
            for one in parked.extract_if(.., |one| one.until <= now.moment) {
                let reply = match one.request {
                    Request::Init(_) => Reply::Init(Err(late)),
                    Request::Verify(_) => Reply::Verify(Err(late)),
                    Request::End(_) => Reply::End(Err(late)),
                    _ => Reply::Add(Err(late)),
                };
                step.replies.push((one.ticket, reply));
            }
        }
        self.parked.retain(|_, parked| !parked.is_empty());
    }

    fn expire(&mut self, now: Now, step: &mut Step) {
        let oldest = now.timestamp.0.saturating_sub(self.config.expiration_ms);
        let expired: Vec<Arc<str>> = self
            .transactions
            .extract_if(.., |_, state| state.status.is_idle() && state.updated.0 <= oldest)
            .map(|(id, _)| id)
            .collect();
        step.records.extend(
            expired
                .into_iter()
                .map(|id| TransactionRecord { id, state: None }),
        );
    }

    /// Records the state of an id as of now.
    fn record(&mut self, id: &Arc<str>, now: Now, step: &mut Step) {
        let state = self.transactions.get_mut(id).expect("called for a known id");
        state.updated = now.timestamp;
        let state = state.clone();
        step.records.push(TransactionRecord {
            id: id.clone(),
            state: Some(state),
        });
    }

    fn arm_timeout(&mut self, id: &Arc<str>, now: Now) {
        self.disarm(id);
        if let Some(at) = self.transactions.get(id).and_then(TransactionState::times_out_at) {
            let rest_ms = u64::try_from(at.0.saturating_sub(now.timestamp.0)).unwrap_or(0);
            self.arm_at(id, now.moment.after_ms(rest_ms));
        }
    }

    fn arm_at(&mut self, id: &Arc<str>, at: Moment) {
        self.armed.insert(id.clone(), at);
        self.timeouts.insert((at, id.clone()));
    }

    fn disarm(&mut self, id: &Arc<str>) {
        if let Some(at) = self.armed.remove(id) {
            self.timeouts.remove(&(at, id.clone()));
        }
    }
}

/// KIP-360: a producer that has an id and epoch keeps its place only if nothing has taken it.
fn is_expected(state: &TransactionState, expected: Option<Producer>) -> bool {
    let Some((producer_id, epoch)) = expected else {
        return true;
    };
    // Its answer may have been lost when the ids were changed.
    let is_rotated = producer_id == state.previous_producer_id && epoch >= LAST_EPOCH;
    let is_next = state.is_of_next_id(producer_id, epoch);
    state.producer_epoch == NO_PRODUCER_EPOCH || producer_id == state.producer_id || is_rotated || is_next
}

/// What EndTxn means in a state.
enum Judgement {
    /// The transaction ends now.
    Decide,
    /// It has ended that way already: the answer to this request was lost.
    Decided,
    /// It is about the next transaction, and the previous one has not ended.
    Wait,
}

fn judge(state: &TransactionState, end: &EndRequest, now: Timestamp) -> Result<Judgement, ErrorCode> {
    let is_v2 = end.client_version >= EPOCH_PER_TRANSACTION;
    if state.is_of_next_id(end.producer_id, end.producer_epoch) {
        return Ok(Judgement::Wait);
    }
    let is_bumped_since = end.producer_id == state.producer_id
        && end.producer_epoch.checked_add(1) == Some(state.producer_epoch);
    let is_rotated_since = end.producer_id == state.previous_producer_id
        && end.producer_epoch == LAST_EPOCH
        && state.producer_epoch == 0;
    // An end by an older client leaves the epoch as it is: then a request with the epoch before is
    // that of a fenced producer.
    let is_end_bumped = state.client_version >= EPOCH_PER_TRANSACTION;
    let is_repeated = is_v2 && is_end_bumped && (is_bumped_since || is_rotated_since);
    if end.producer_id != state.producer_id && !is_repeated {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if end.producer_epoch != state.producer_epoch && !is_repeated {
        return Err(ErrorCode::ProducerFenced);
    }
    let verdict = match is_v2 {
        true => judge_v2(state.status, end.is_commit, is_repeated),
        false => return judge_v1(state.status, end.is_commit),
    };
    match verdict {
        Err(ErrorCode::InvalidTxnState) if !is_repeated && is_just_complete(state, now) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        verdict => verdict,
    }
}

/// Java's producer (4.3) may send the commit of its next transaction just before that one's first
/// batch, when both are asked for at once. It sends the batch and repeats the commit after
/// CONCURRENT_TRANSACTIONS, which Apache Kafka answers because it still writes the markers of the
/// last transaction; it fails for good after INVALID_TXN_STATE.
fn is_just_complete(state: &TransactionState, now: Timestamp) -> bool {
    let is_complete = matches!(state.status, Status::CompleteCommit | Status::CompleteAbort);
    is_complete && now.0.saturating_sub(state.updated.0) < JUST_MS
}

/// Up to EndTxn version 4: the epoch stays, so that a repeated request looks like the first one.
fn judge_v1(status: Status, is_commit: bool) -> Result<Judgement, ErrorCode> {
    match status {
        Status::Ongoing => Ok(Judgement::Decide),
        status if is_same_end(status, is_commit) => Ok(Judgement::Decided),
        _ => Err(ErrorCode::InvalidTxnState),
    }
}

/// EndTxn version 5: a request with the epoch before the present one is a repeated one.
fn judge_v2(status: Status, is_commit: bool, is_repeated: bool) -> Result<Judgement, ErrorCode> {
    match (status, is_repeated) {
        (Status::Empty | Status::Ongoing, true) => Err(ErrorCode::ProducerFenced),
        (status, true) if is_same_end(status, is_commit) => Ok(Judgement::Decided),
        (_, true) => Err(ErrorCode::InvalidTxnState),
        (Status::Ongoing, false) => Ok(Judgement::Decide),
        // franz-go aborts the next transaction before the markers of the last one are written.
        (Status::PrepareCommit | Status::PrepareAbort, false) => Ok(Judgement::Wait),
        // A producer may abort although it has written nothing: its next epoch fences what is
        // still on the way.
        (_, false) if !is_commit => Ok(Judgement::Decide),
        (_, false) => Err(ErrorCode::InvalidTxnState),
    }
}

fn is_same_end(status: Status, is_commit: bool) -> bool {
    match is_commit {
        true => matches!(status, Status::PrepareCommit | Status::CompleteCommit),
        false => matches!(status, Status::PrepareAbort | Status::CompleteAbort),
    }
}
