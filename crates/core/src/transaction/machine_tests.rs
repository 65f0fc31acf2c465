//! The machine's answers, state by state.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::machine::{Machine, World};
use super::record::TransactionRecord;
use super::request::{
    AddRequest, Effect, EndRequest, Finish, InitRequest, Producer, Reply, Request, Step, Ticket,
};
use super::state::{LAST_EPOCH, Status, TransactionState};
use crate::config::TransactionConfig;
use crate::time::{Moment, Now, Timestamp};

const ID: &str = "billing";
const TIMEOUT_MS: i32 = 60_000;
/// The producer id of a state that a test begins with.
const OLD: i64 = 10;
const FIRST_FRESH: i64 = 1_000;

struct Stage {
    machine: Machine,
    now_ms: u64,
    level: i16,
    next_id: i64,
    /// Producer ids at hand.
    ids: usize,
    tickets: u64,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            machine: Machine::new(Arc::new(TransactionConfig::default())),
            now_ms: 1_000_000,
            level: 2,
            next_id: FIRST_FRESH,
            ids: usize::MAX,
            tickets: 0,
        }
    }

    /// A machine that knows `ID` in this state.
    fn with(state: TransactionState) -> Stage {
        let mut stage = Stage::new();
        stage.machine.apply(TransactionRecord {
            id: ID.into(),
            state: Some(state),
        });
        stage
    }

    fn act(&mut self, act: impl FnOnce(&mut Machine, &mut World<'_>) -> Step) -> Step {
        let (ids, next_id) = (&mut self.ids, &mut self.next_id);
        let mut fresh = || {
            *ids = ids.checked_sub(1)?;
            *next_id += 1;
            Some(*next_id - 1)
        };
        let mut world = World {
            now: Now {
                moment: Moment::from_micros(self.now_ms * 1_000),
                timestamp: Timestamp(self.now_ms as i64),
            },
            level: self.level,
            fresh: &mut fresh,
        };
        act(&mut self.machine, &mut world)
    }

    fn ask(&mut self, request: Request) -> Step {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.act(|machine, world| machine.handle(world, ticket, request))
    }

    fn until(&self) -> Moment {
        Moment::from_micros((self.now_ms + 5_000) * 1_000)
    }

    fn init(&mut self, expected: Option<Producer>) -> Step {
        let until = self.until();
        self.ask(Request::Init(InitRequest {
            id: ID.into(),
            timeout_ms: TIMEOUT_MS,
            expected,
            until,
        }))
    }

    fn add_request(&self, producer: Producer, partition: i32) -> AddRequest {
        AddRequest {
            id: ID.into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            partitions: vec![("orders".into(), partition)],
            client_version: 2,
            until: self.until(),
        }
    }

    fn add(&mut self, producer: Producer, partition: i32) -> Step {
        let add = self.add_request(producer, partition);
        self.ask(Request::Add(add))
    }

    fn end(&mut self, producer: Producer, is_commit: bool, client_version: i16) -> Step {
        let until = self.until();
        self.ask(Request::End(EndRequest {
            id: ID.into(),
            producer_id: producer.0,
            producer_epoch: producer.1,
            is_commit,
            client_version,
            until,
        }))
    }

    fn finished(&mut self, finish: &Finish) -> Step {
        let producer = (finish.producer_id, finish.producer_epoch);
        self.act(|machine, world| machine.finished(world, &finish.id, producer))
    }

    fn state(&mut self) -> TransactionState {
        match only(self.ask(Request::Describe(ID.into()))) {
            Reply::Describe(Some(state)) => state,
            other => panic!("{other:?}"),
        }
    }
}

fn state(status: Status, epoch: i16) -> TransactionState {
    let mut state = TransactionState::new(OLD, TIMEOUT_MS, Timestamp(999_000));
    state.status = status;
    state.producer_epoch = epoch;
    if matches!(
        status,
        Status::Ongoing | Status::PrepareCommit | Status::PrepareAbort
    ) {
        state.partitions = [("orders".into(), 0)].into();
        state.started = Timestamp(999_000);
    }
    state
}

/// The one reply of a step.
fn only(step: Step) -> Reply {
    let [(_, reply)] = <[_; 1]>::try_from(step.replies).expect("one reply");
    reply
}

fn finish(step: &Step) -> Finish {
    match &step.effects[..] {
        [Effect::Finish(finish)] => finish.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_id_gets_a_producer_id_at_epoch_zero() {
    let mut stage = Stage::new();
    let step = stage.init(None);
    assert_eq!(step.records.len(), 1);
    assert_eq!(only(step), Reply::Init(Ok((FIRST_FRESH, 0))));
    assert_eq!(only(stage.init(None)), Reply::Init(Ok((FIRST_FRESH, 1))));
}

#[test]
fn without_a_producer_id_at_hand_nothing_changes() {
    let mut stage = Stage::new();
    stage.ids = 0;
    let step = stage.init(None);
    assert!(step.records.is_empty());
    assert_eq!(only(step), Reply::NeedsProducerId);
    let mut stage = Stage::with(state(Status::Ongoing, LAST_EPOCH));
    stage.ids = 0;
    let step = stage.end((OLD, LAST_EPOCH), true, 2);
    assert!(step.records.is_empty() && step.effects.is_empty());
    assert_eq!(only(step), Reply::NeedsProducerId);
    assert_eq!(stage.state().status, Status::Ongoing);
}

/// KIP-360.
#[test]
fn a_producer_that_names_its_epoch_keeps_its_place() {
    let renewed = |expected, epoch| {
        let mut stage = Stage::with(state(Status::CompleteCommit, epoch));
        only(stage.init(expected))
    };
    assert_eq!(renewed(Some((OLD, 4)), 4), Reply::Init(Ok((OLD, 5))));
    assert_eq!(
        renewed(Some((OLD, 3)), 4),
        Reply::Init(Err(ErrorCode::ProducerFenced))
    );
    assert_eq!(
        renewed(Some((OLD + 1, 4)), 4),
        Reply::Init(Err(ErrorCode::ProducerFenced))
    );
    // The epochs are used up: a new id; what is lost of the answer is asked for again.
    assert_eq!(renewed(None, LAST_EPOCH), Reply::Init(Ok((FIRST_FRESH, 0))));
    let mut stage = Stage::with(state(Status::CompleteAbort, LAST_EPOCH));
    let expected = Some((OLD, LAST_EPOCH));
    assert_eq!(only(stage.init(expected)), Reply::Init(Ok((FIRST_FRESH, 0))));
    assert_eq!(only(stage.init(expected)), Reply::Init(Ok((FIRST_FRESH, 0))));
    // And so is the answer to an ordinary one.
    let mut stage = Stage::with(state(Status::Empty, 7));
    assert_eq!(only(stage.init(Some((OLD, 7)))), Reply::Init(Ok((OLD, 8))));
    assert_eq!(only(stage.init(Some((OLD, 7)))), Reply::Init(Ok((OLD, 8))));
    // And to an EndTxn that raised the epoch: the transaction before is over, so that an old
    // client has nothing to end.
    let mut ended = state(Status::CompleteAbort, 8);
    ended.last_producer_epoch = 7;
    let mut stage = Stage::with(ended);
    let again = stage.init(Some((OLD, 7)));
    let stored = again.records[0].state.as_ref();
    assert_eq!(stored.map(|state| state.status), Some(Status::Empty));
    assert_eq!(only(again), Reply::Init(Ok((OLD, 8))));
}

#[test]
fn a_new_producer_aborts_what_its_predecessor_left_open_and_waits_for_that() {
    for level in [0, 2] {
        let mut stage = Stage::with(state(Status::Ongoing, 4));
        stage.level = level;
        let step = stage.init(Some((OLD, 4)));
        assert!(step.replies.is_empty(), "it waits");
        let aborted = finish(&step);
        assert_eq!((aborted.is_commit, aborted.producer_epoch), (false, 5));
        assert_eq!(i16::from(aborted.transaction_version), level);
        // The predecessor is fenced at once.
        assert_eq!(
            only(stage.add((OLD, 4), 1)),
            Reply::Add(Err(ErrorCode::ProducerFenced))
        );
        let step = stage.finished(&aborted);
        // The epoch that fenced is never given out.
        assert_eq!(only(step), Reply::Init(Ok((OLD, 6))));
    }
}

#[test]
fn a_zombie_does_not_end_its_successors_transaction() {
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    let step = stage.init(Some((OLD, 3)));
    assert!(step.effects.is_empty());
    assert_eq!(only(step), Reply::Init(Err(ErrorCode::ProducerFenced)));
    assert_eq!(stage.state().status, Status::Ongoing);
}

#[test]
fn partitions_are_added_once_and_verified() {
    let mut stage = Stage::with(state(Status::Empty, 4));
    let step = stage.add((OLD, 4), 0);
    assert_eq!((step.records.len(), only(step)), (1, Reply::Add(Ok(()))));
    let again = stage.add((OLD, 4), 0);
    assert_eq!((again.records.len(), only(again)), (0, Reply::Add(Ok(()))));
    let mut verify = stage.add_request((OLD, 4), 0);
    verify.partitions.push(("orders".into(), 9));
    let verified = only(stage.ask(Request::Verify(verify)));
    assert_eq!(verified, Reply::Verify(Ok(vec![true, false])));
    for (producer, error) in [
        ((OLD, 3), ErrorCode::ProducerFenced),
        ((OLD, 5), ErrorCode::ProducerFenced),
        ((OLD + 1, 4), ErrorCode::InvalidProducerIdMapping),
    ] {
        assert_eq!(only(stage.add(producer, 1)), Reply::Add(Err(error)));
        let verify = stage.add_request(producer, 0);
        assert_eq!(
            only(stage.ask(Request::Verify(verify))),
            Reply::Verify(Err(error))
        );
    }
}

#[test]
fn nothing_belongs_to_a_transaction_that_is_over() {
    let mut over = state(Status::CompleteCommit, 4);
    over.partitions = [("orders".into(), 0)].into();
    let mut stage = Stage::with(over);
    let verify = stage.add_request((OLD, 4), 0);
    assert_eq!(
        only(stage.ask(Request::Verify(verify))),
        Reply::Verify(Ok(vec![false]))
    );
    // Nor is it part of the next one.
    assert_eq!(only(stage.add((OLD, 4), 1)), Reply::Add(Ok(())));
    assert_eq!(stage.state().partitions, [("orders".into(), 1)].into());
}

#[test]
fn the_next_transaction_waits_until_the_previous_one_has_ended() {
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    let ended = stage.end((OLD, 4), true, 2);
    let committed = finish(&ended);
    assert_eq!(only(ended), Reply::End(Ok((OLD, 5))));
    assert!(stage.add((OLD, 5), 1).replies.is_empty(), "it waits");
    let step = stage.finished(&committed);
    let written: Vec<Status> = step
        .records
        .iter()
        .map(|record| record.state.as_ref().unwrap().status)
        .collect();
    assert_eq!(written, [Status::CompleteCommit, Status::Ongoing]);
    assert_eq!(only(step), Reply::Add(Ok(())));
    // Reported again, it changes nothing.
    assert!(stage.finished(&committed).records.is_empty());
    assert_eq!(stage.state().status, Status::Ongoing);
}

#[test]
fn a_request_that_waits_too_long_is_sent_away() {
    let mut stage = Stage::with(state(Status::PrepareCommit, 4));
    assert!(stage.add((OLD, 4), 1).replies.is_empty());
    assert_eq!(stage.machine.next_deadline(), Some(stage.until()));
    stage.now_ms += 5_000;
    let step = stage.act(|machine, world| machine.on_deadline(world));
    assert_eq!(only(step), Reply::Add(Err(ErrorCode::ConcurrentTransactions)));
    let finish = Finish {
        id: ID.into(),
        producer_id: OLD,
        producer_epoch: 4,
        is_commit: true,
        partitions: Vec::new(),
        transaction_version: 0,
    };
    assert!(stage.finished(&finish).replies.is_empty(), "it is answered once");
}

#[test]
fn a_request_of_a_client_that_is_gone_has_no_effect() {
    let mut stage = Stage::with(state(Status::PrepareCommit, 4));
    stage.add((OLD, 4), 1);
    let ticket = Ticket(stage.tickets);
    stage.machine.abandon(ticket);
    let finish = Finish {
        id: ID.into(),
        producer_id: OLD,
        producer_epoch: 4,
        is_commit: true,
        partitions: Vec::new(),
        transaction_version: 0,
    };
    let step = stage.finished(&finish);
    assert_eq!((step.records.len(), step.replies.len()), (1, 0));
}

/// What an end is answered, and the status behind it.
type End = (Result<Producer, ErrorCode>, Status);

fn end_of(status: Status, epoch: i16, is_commit: bool, version: i16) -> End {
    const NOW: i16 = 7;
    let mut before = state(status, NOW);
    before.client_version = version;
    let mut stage = Stage::with(before);
    let step = stage.end((OLD, epoch), is_commit, version);
    if step.replies.is_empty() {
        // It waits for the end of the previous transaction.
        return (Err(ErrorCode::ConcurrentTransactions), stage.state().status);
    }
    let reply = only(step);
    let Reply::End(reply) = reply else {
        panic!("{reply:?}")
    };
    (reply, stage.state().status)
}

/// `TransactionCoordinator.endTransaction` of Apache Kafka 4.3, for EndTxn version 5. A repeated
/// request during the writing of markers is answered by Kafka with CONCURRENT_TRANSACTIONS; here
/// with the decision, which is in the log.
#[test]
fn every_cell_of_the_table_for_epochs_per_transaction() {
    use ErrorCode::{ConcurrentTransactions as Waits, InvalidTxnState as State, ProducerFenced as Fenced};
    use Status::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
    const CURRENT: i16 = 7;
    const REPEATED: i16 = 6;
    let bumped = Ok((OLD, 8));
    let same = Ok((OLD, 7));
    #[rustfmt::skip]
    let table = [
        (Empty,          false, CURRENT,  bumped,       PrepareAbort),
        (Empty,          false, REPEATED, Err(Fenced),  Empty),
        (Empty,          true,  CURRENT,  Err(State),   Empty),
        (Empty,          true,  REPEATED, Err(Fenced),  Empty),
        (Ongoing,        false, CURRENT,  bumped,       PrepareAbort),
        (Ongoing,        false, REPEATED, Err(Fenced),  Ongoing),
        (Ongoing,        true,  CURRENT,  bumped,       PrepareCommit),
        (Ongoing,        true,  REPEATED, Err(Fenced),  Ongoing),
        (PrepareAbort,   false, CURRENT,  Err(Waits),   PrepareAbort),
        (PrepareAbort,   false, REPEATED, same,         PrepareAbort),
        (PrepareAbort,   true,  CURRENT,  Err(Waits),   PrepareAbort),
        (PrepareAbort,   true,  REPEATED, Err(State),   PrepareAbort),
        (PrepareCommit,  false, CURRENT,  Err(Waits),   PrepareCommit),
        (PrepareCommit,  false, REPEATED, Err(State),   PrepareCommit),
        (PrepareCommit,  true,  CURRENT,  Err(Waits),   PrepareCommit),
        (PrepareCommit,  true,  REPEATED, same,         PrepareCommit),
        (CompleteAbort,  false, CURRENT,  bumped,       PrepareAbort),
        (CompleteAbort,  false, REPEATED, same,         CompleteAbort),
        (CompleteAbort,  true,  CURRENT,  Err(State),   CompleteAbort),
        (CompleteAbort,  true,  REPEATED, Err(State),   CompleteAbort),
        (CompleteCommit, false, CURRENT,  bumped,       PrepareAbort),
        (CompleteCommit, false, REPEATED, Err(State),   CompleteCommit),
        (CompleteCommit, true,  CURRENT,  Err(State),   CompleteCommit),
        (CompleteCommit, true,  REPEATED, same,         CompleteCommit),
    ];
    for (status, is_commit, epoch, reply, after) in table {
        let found = end_of(status, epoch, is_commit, 2);
        assert_eq!(
            found,
            (reply, after),
            "{status:?}, commit {is_commit}, epoch {epoch}"
        );
    }
}

/// Java's producer sends a commit just before the first batch of its transaction, now and then: it
/// failed for good, because the last transaction is complete sooner than in Apache Kafka.
#[test]
fn a_commit_that_overtakes_its_first_batch_is_repeated_by_its_client() {
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    let decided = stage.end((OLD, 4), true, 2);
    let early = stage.end((OLD, 5), true, 2);
    assert!(early.replies.is_empty(), "it waits for the markers");
    let concurrent = Reply::End(Err(ErrorCode::ConcurrentTransactions));
    assert_eq!(only(stage.finished(&finish(&decided))), concurrent);
    stage.now_ms += 999;
    assert_eq!(only(stage.end((OLD, 5), true, 2)), concurrent);
    stage.now_ms += 1;
    let refused = Reply::End(Err(ErrorCode::InvalidTxnState));
    assert_eq!(only(stage.end((OLD, 5), true, 2)), refused);
    // With the batch first, it commits.
    stage.add((OLD, 5), 0);
    assert_eq!(only(stage.end((OLD, 5), true, 2)), Reply::End(Ok((OLD, 6))));
}

#[test]
fn every_cell_of_the_table_for_older_clients() {
    use ErrorCode::InvalidTxnState as State;
    use Status::{CompleteAbort, CompleteCommit, Empty, Ongoing, PrepareAbort, PrepareCommit};
    let same = Ok((OLD, 7));
    #[rustfmt::skip]
    let table = [
        (Empty,          false, Err(State), Empty),
        (Empty,          true,  Err(State), Empty),
        (Ongoing,        false, same,       PrepareAbort),
        (Ongoing,        true,  same,       PrepareCommit),
        (PrepareAbort,   false, same,       PrepareAbort),
        (PrepareAbort,   true,  Err(State), PrepareAbort),
        (PrepareCommit,  false, Err(State), PrepareCommit),
        (PrepareCommit,  true,  same,       PrepareCommit),
        (CompleteAbort,  false, same,       CompleteAbort),
        (CompleteAbort,  true,  Err(State), CompleteAbort),
        (CompleteCommit, false, Err(State), CompleteCommit),
        (CompleteCommit, true,  same,       CompleteCommit),
    ];
    for (status, is_commit, reply, after) in table {
        let found = end_of(status, 7, is_commit, 0);
        assert_eq!(found, (reply, after), "{status:?}, commit {is_commit}");
        let fenced = end_of(status, 6, is_commit, 0);
        assert_eq!(fenced.0, Err(ErrorCode::ProducerFenced), "{status:?}");
    }
}

/// Found by the simulation: a fenced producer repeated the commit of its successor, and took over
/// its epoch.
#[test]
fn a_fenced_producer_does_not_repeat_the_end_of_an_older_client() {
    for status in [Status::PrepareCommit, Status::CompleteCommit] {
        let mut stage = Stage::with(state(status, 7));
        let reply = only(stage.end((OLD, 6), true, 2));
        assert_eq!(reply, Reply::End(Err(ErrorCode::ProducerFenced)), "{status:?}");
    }
}

/// franz-go does that when nothing of a transaction has been written.
#[test]
fn an_abort_right_behind_a_commit_waits_for_its_end() {
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    let ended = stage.end((OLD, 4), true, 2);
    let committed = finish(&ended);
    assert!(stage.end((OLD, 5), false, 2).replies.is_empty(), "it waits");
    let step = stage.finished(&committed);
    let aborted = finish(&step);
    assert_eq!((aborted.is_commit, aborted.producer_epoch), (false, 6));
    assert_eq!(only(step), Reply::End(Ok((OLD, 6))));
}

#[test]
fn an_end_of_an_unknown_producer_is_refused() {
    let mut stage = Stage::with(state(Status::Ongoing, 7));
    let mapping = Reply::End(Err(ErrorCode::InvalidProducerIdMapping));
    assert_eq!(only(stage.end((OLD + 1, 7), true, 2)), mapping);
    assert_eq!(only(Stage::new().end((OLD, 7), true, 2)), mapping);
}

#[test]
fn with_the_last_epoch_the_producer_id_changes_and_its_end_can_be_repeated() {
    let mut stage = Stage::with(state(Status::Ongoing, LAST_EPOCH));
    let ended = stage.end((OLD, LAST_EPOCH), true, 2);
    let committed = finish(&ended);
    assert_eq!((committed.producer_id, committed.producer_epoch), (OLD, i16::MAX));
    let next = Reply::End(Ok((FIRST_FRESH, 0)));
    assert_eq!(only(ended), next);
    assert_eq!(only(stage.end((OLD, LAST_EPOCH), true, 2)), next);
    stage.finished(&committed);
    assert_eq!(only(stage.end((OLD, LAST_EPOCH), true, 2)), next);
    assert_eq!(only(stage.add((FIRST_FRESH, 0), 3)), Reply::Add(Ok(())));
}

/// The answer to EndTxn names the new id before its transaction is complete: a client that was
/// faster than the markers got INVALID_PRODUCER_ID_MAPPING, which is fatal.
#[test]
fn a_producer_id_that_follows_a_prepared_transaction_waits_for_its_end() {
    let prepared = || {
        let mut stage = Stage::with(state(Status::Ongoing, LAST_EPOCH));
        let committed = finish(&stage.end((OLD, LAST_EPOCH), true, 2));
        (stage, committed)
    };
    let next = (FIRST_FRESH, 0);
    let (mut stage, committed) = prepared();
    assert!(stage.add(next, 3).replies.is_empty(), "it waits");
    assert_eq!(only(stage.finished(&committed)), Reply::Add(Ok(())));

    let (mut stage, committed) = prepared();
    let verify = stage.add_request(next, 3);
    assert!(stage.ask(Request::Verify(verify)).replies.is_empty(), "it waits");
    let verified = only(stage.finished(&committed));
    assert_eq!(verified, Reply::Verify(Ok(vec![false])));

    let (mut stage, committed) = prepared();
    assert!(stage.end(next, false, 2).replies.is_empty(), "it waits");
    let step = stage.finished(&committed);
    let aborted = finish(&step);
    assert_eq!((aborted.producer_id, aborted.producer_epoch), (FIRST_FRESH, 1));
    assert_eq!(only(step), Reply::End(Ok((FIRST_FRESH, 1))));

    let (mut stage, committed) = prepared();
    assert!(stage.init(Some(next)).replies.is_empty(), "it waits");
    assert_eq!(
        only(stage.finished(&committed)),
        Reply::Init(Ok((FIRST_FRESH, 1)))
    );

    // No other producer gets in: neither the fenced one, nor one with a later epoch of the new id.
    let (mut stage, _) = prepared();
    for (producer, error) in [
        ((OLD, LAST_EPOCH), ErrorCode::ProducerFenced),
        ((OLD, i16::MAX), ErrorCode::ProducerFenced),
        ((FIRST_FRESH, 1), ErrorCode::InvalidProducerIdMapping),
    ] {
        assert_eq!(only(stage.add(producer, 3)), Reply::Add(Err(error)));
    }
    let later = only(stage.end((FIRST_FRESH, 1), true, 2));
    assert_eq!(later, Reply::End(Err(ErrorCode::InvalidProducerIdMapping)));
}

/// It was left at -1: an age of 1.8e9 seconds in `ottla_oldest_transaction_seconds`.
#[test]
fn an_abort_of_nothing_begins_when_it_is_decided() {
    for status in [Status::Empty, Status::CompleteCommit] {
        let mut stage = Stage::with(state(status, 4));
        finish(&stage.end((OLD, 4), false, 2));
        assert_eq!(stage.state().started.0, stage.now_ms as i64, "{status:?}");
    }
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    finish(&stage.end((OLD, 4), false, 2));
    assert_eq!(stage.state().started, Timestamp(999_000));
}

#[test]
fn an_open_transaction_times_out_and_its_producer_is_fenced() {
    for (level, epoch) in [(0, 5), (2, 5)] {
        let mut stage = Stage::with(state(Status::Ongoing, 4));
        stage.level = level;
        stage.act(Machine::arm);
        // It began a second before the start.
        stage.now_ms += TIMEOUT_MS as u64 - 1_001;
        assert!(
            stage
                .act(|machine, world| machine.on_deadline(world))
                .effects
                .is_empty()
        );
        stage.now_ms += 1;
        let aborted = finish(&stage.act(|machine, world| machine.on_deadline(world)));
        assert_eq!((aborted.is_commit, aborted.producer_epoch), (false, epoch));
        let late = only(stage.end((OLD, 4), true, level));
        assert_ne!(late, Reply::End(Ok((OLD, 4))));
        assert!(matches!(late, Reply::End(Err(_))), "{late:?}");
    }
}

#[test]
fn a_time_out_that_needs_a_producer_id_asks_for_one_and_comes_again() {
    let mut stage = Stage::with(state(Status::Ongoing, LAST_EPOCH));
    stage.act(Machine::arm);
    stage.now_ms += 2 * TIMEOUT_MS as u64;
    stage.ids = 0;
    let step = stage.act(|machine, world| machine.on_deadline(world));
    assert_eq!(step.effects, [Effect::AllocateProducerIds]);
    stage.ids = 1;
    stage.now_ms += 100;
    let aborted = finish(&stage.act(|machine, world| machine.on_deadline(world)));
    assert_eq!(aborted.producer_epoch, i16::MAX);
    stage.finished(&aborted);
    assert_eq!(
        (stage.state().producer_id, stage.state().producer_epoch),
        (FIRST_FRESH, 0)
    );
}

#[test]
fn what_was_decided_before_a_restart_is_written_again_and_finished() {
    let mut stage = Stage::with(state(Status::PrepareCommit, 4));
    let step = stage.act(Machine::arm);
    assert_eq!(step.records.len(), 1);
    assert!(finish(&step).is_commit);
    // An open transaction as well: data that follows relies on it.
    let mut stage = Stage::with(state(Status::Ongoing, 4));
    let step = stage.act(Machine::arm);
    assert_eq!((step.records.len(), step.effects.len()), (1, 0));
    let mut stage = Stage::with(state(Status::CompleteCommit, 4));
    assert!(stage.act(Machine::arm).records.is_empty());
}

#[test]
fn ids_that_were_not_used_for_long_expire() {
    let mut stage = Stage::with(state(Status::CompleteCommit, 4));
    stage.act(Machine::arm);
    stage.now_ms += 604_800_000;
    let step = stage.act(|machine, world| machine.on_deadline(world));
    assert_eq!(step.records[0].state, None);
    assert_eq!(only(stage.ask(Request::List)), Reply::List(Vec::new()));
}
