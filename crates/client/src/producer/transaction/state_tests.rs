//! The state machine against a coordinator that is written down: each test says what is asked in
//! which order, and how it is answered.

use super::*;
use crate::consumer::{GroupMetadata, OffsetAndMetadata, TopicPartition};
use crate::pending::{Pending, pending};

const FIRST: ProducerId = ProducerId { id: 7, epoch: 0 };
const BUMPED: ProducerId = ProducerId { id: 7, epoch: 1 };
const LIMIT_MS: u64 = 60_000;

/// A machine, its time, and the protocol that the cluster has.
struct World {
    state: TransactionState,
    now: Moment,
    protocol: Protocol,
    work: Work,
}

fn code(code: ErrorCode) -> Error {
    Error::broker(code, "test")
}

fn lost_connection() -> Error {
    Error::Disconnected {
        address: "coordinator".into(),
        reason: "reset".into(),
    }
}

fn group() -> GroupMetadata {
    GroupMetadata {
        group_id: "readers".into(),
        generation_id: 3,
        member_id: "member".into(),
        group_instance_id: None,
    }
}

fn offsets() -> Arc<OffsetsToCommit> {
    let offset = (TopicPartition::new("in", 0), OffsetAndMetadata::new(5));
    Arc::new(OffsetsToCommit {
        group: group(),
        offsets: BTreeMap::from([offset]),
    })
}

impl World {
    fn new(protocol: Protocol) -> World {
        World {
            state: TransactionState::new(LIMIT_MS, Backoff::new(100, 1_000), Random::new(1)),
            now: Moment::from_nanos(1_000_000_000),
            protocol,
            work: Work::None,
        }
    }

    /// A machine with an open transaction.
    fn open(protocol: Protocol) -> World {
        let mut world = World::new(protocol);
        world.initialize();
        world.begin();
        world
    }

    fn initialize(&mut self) {
        let outcome = self.call(Call::Init);
        self.expect(Ask::Init { expected: None });
        self.answer(Ok(Answer::Initialized(FIRST)));
        assert_eq!(outcome_of(outcome), Outcome::Done);
    }

    fn begin(&mut self) {
        let outcome = self.call(Call::Begin);
        assert_eq!(outcome_of(outcome), Outcome::Done);
    }

    fn call(&mut self, call: impl FnOnce(Waiter) -> Call) -> Pending<Outcome> {
        let (promise, pending) = pending();
        let deadline = self.now.after_ms(LIMIT_MS);
        self.state.call(call(Waiter { deadline, promise }));
        self.settle();
        pending
    }

    fn drop_guard(&mut self) {
        self.state.call(Call::Abort(None));
        self.settle();
    }

    fn settle(&mut self) {
        self.state.settle(self.now, self.protocol, self.work);
    }

    /// The next request, which is then in flight; after the pause of the last refusal.
    fn asked(&mut self) -> Ask {
        self.settle();
        if let Some(due) = self.state.due()
            && self.state.wanted(self.now, self.work).is_none()
        {
            self.now = self.now.max(due);
            self.settle();
        }
        let ask = self
            .state
            .wanted(self.now, self.work)
            .expect("a request is wanted");
        self.state.sent(ask.clone());
        ask
    }

    fn expect(&mut self, ask: Ask) {
        assert_eq!(self.asked(), ask);
    }

    fn answer(&mut self, result: Result<Answer, Error>) -> Reaction {
        let reaction = self.state.answered(self.now, result);
        self.settle();
        reaction
    }

    fn is_at_rest(&mut self) -> bool {
        self.settle();
        self.now = self.now.after_ms(5_000);
        self.state.wanted(self.now, self.work).is_none()
    }

    /// A batch of the partition was sent; with the older protocol after it was added.
    fn send(&mut self, topic: &str) {
        let topic: Arc<str> = topic.into();
        if !self.state.admits(&topic, 0) {
            self.expect(Ask::AddPartitions(vec![(Arc::clone(&topic), 0)]));
            self.answer(Ok(Answer::PartitionsAdded(vec![((Arc::clone(&topic), 0), None)])));
        }
        assert!(self.state.admits(&topic, 0));
        self.state.note_sent();
    }
}

fn outcome_of(mut pending: Pending<Outcome>) -> Outcome {
    pending.try_take().expect("the call is decided").unwrap()
}

fn is_undecided(pending: &mut Pending<Outcome>) -> bool {
    pending.try_take().is_none()
}

const COMMIT: Ask = Ask::End { is_commit: true };
const ABORT: Ask = Ask::End { is_commit: false };

#[test]
fn the_older_protocol_adds_new_partitions_in_one_request_before_their_batches() {
    let mut world = World::open(Protocol::Explicit);
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    assert!(!world.state.admits(&a, 0) && !world.state.admits(&b, 1) && !world.state.admits(&a, 0));
    let both = vec![(Arc::clone(&a), 0), (Arc::clone(&b), 1)];
    world.expect(Ask::AddPartitions(both.clone()));
    assert!(!world.state.admits(&a, 0), "not before the answer");
    world.answer(Ok(Answer::PartitionsAdded(
        both.into_iter().map(|name| (name, None)).collect(),
    )));
    assert!(world.state.admits(&a, 0) && world.state.admits(&b, 1));
    assert!(world.is_at_rest());
}

#[test]
fn the_newer_protocol_asks_nothing_before_the_end_and_takes_the_next_epoch_from_it() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    world.work = Work::Left;
    let mut commit = world.call(Call::Commit);
    assert!(world.is_at_rest(), "records are on their way");
    world.work = Work::None;
    world.expect(COMMIT);
    assert!(is_undecided(&mut commit));
    world.answer(Ok(Answer::Ended(Some(BUMPED))));
    assert_eq!(outcome_of(commit), Outcome::Done);
    assert_eq!(world.state.producer(), Some(BUMPED));
    world.begin();
}

#[test]
fn a_transaction_that_no_broker_knows_ends_without_a_request() {
    for protocol in [Protocol::Explicit, Protocol::Implicit] {
        let mut world = World::open(protocol);
        let commit = world.call(Call::Commit);
        assert_eq!(outcome_of(commit), Outcome::Done);
        world.begin();
        let abort = world.call(|waiter| Call::Abort(Some(waiter)));
        assert_eq!(outcome_of(abort), Outcome::Done);
        assert!(world.is_at_rest());
    }
}

#[test]
fn every_refusal_that_passes_is_asked_again_in_the_same_words() {
    let passing = [
        (ErrorCode::ConcurrentTransactions, false),
        (ErrorCode::CoordinatorLoadInProgress, false),
        (ErrorCode::NotCoordinator, true),
        (ErrorCode::CoordinatorNotAvailable, true),
        (ErrorCode::RequestTimedOut, true),
    ];
    for protocol in [Protocol::Explicit, Protocol::Implicit] {
        for (refusal, is_elsewhere) in passing {
            let mut world = World::open(protocol);
            world.send("a");
            let commit = world.call(Call::Commit);
            for _ in 0..3 {
                world.expect(COMMIT);
                let before = world.now;
                let reaction = world.answer(Err(code(refusal)));
                assert_eq!(reaction.must_find_coordinator, is_elsewhere, "{refusal}");
                let is_early = world.state.wanted(before, Work::None).is_some();
                assert!(!is_early, "{refusal}: asked again without a pause");
            }
            world.expect(COMMIT);
            world.answer(Ok(Answer::Ended(None)));
            assert_eq!(outcome_of(commit), Outcome::Done, "{refusal}");
        }
    }
}

#[test]
fn the_wait_for_the_transaction_before_is_measured() {
    let mut world = World::open(Protocol::Explicit);
    let topic: Arc<str> = "a".into();
    world.state.admits(&topic, 0);
    let name = (Arc::clone(&topic), 0);
    let refused = vec![(name.clone(), Some(code(ErrorCode::ConcurrentTransactions)))];
    world.asked();
    let since = world.now;
    world.answer(Ok(Answer::PartitionsAdded(refused)));
    world.asked();
    assert!(world.now.nanos_since(since) <= CONFLICT_PAUSE_NANOS);
    let reaction = world.answer(Ok(Answer::PartitionsAdded(vec![(name, None)])));
    assert_eq!(reaction.conflict_nanos, Some(world.now.nanos_since(since)));
}

#[test]
fn a_fenced_producer_loses_its_transaction_at_every_step() {
    for refusal in [
        ErrorCode::ProducerFenced,
        ErrorCode::InvalidProducerEpoch,
        ErrorCode::InvalidProducerIdMapping,
        ErrorCode::InvalidTxnState,
    ] {
        for step in 0..5 {
            let mut world = World::open(Protocol::Explicit);
            let topic: Arc<str> = "a".into();
            let outcome = match step {
                0 => {
                    world.state.admits(&topic, 0);
                    world.asked();
                    world.answer(Ok(Answer::PartitionsAdded(vec![(
                        (topic, 0),
                        Some(code(refusal)),
                    )])));
                    world.call(Call::Commit)
                }
                1 | 2 => {
                    let call = world.call(|waiter| Call::Offsets(offsets(), waiter));
                    assert!(matches!(world.asked(), Ask::AddOffsets(_)));
                    if step == 2 {
                        world.answer(Ok(Answer::OffsetsAdded));
                        assert!(matches!(world.asked(), Ask::CommitOffsets(_)));
                    }
                    world.answer(Err(code(refusal)));
                    call
                }
                3 => {
                    world.send("a");
                    let call = world.call(Call::Commit);
                    world.expect(COMMIT);
                    world.answer(Err(code(refusal)));
                    call
                }
                _ => {
                    world.send("a");
                    world.state.lose(code(refusal));
                    world.call(Call::Commit)
                }
            };
            assert_eq!(outcome_of(outcome), Outcome::Lost(code(refusal)), "step {step}");
            assert!(code(refusal).needs_new_producer());
            assert!(world.is_at_rest(), "step {step}");
            let begin = world.call(Call::Begin);
            assert_eq!(outcome_of(begin), Outcome::Lost(code(refusal)));
            // The way back takes over without naming the old id.
            world.initialize();
            world.begin();
        }
    }
}

#[test]
fn a_refused_transactional_id_ends_the_producer_and_a_refused_init_does_not() {
    let refusal = ErrorCode::TransactionalIdAuthorizationFailed;
    let mut world = World::new(Protocol::Implicit);
    let init = world.call(Call::Init);
    world.asked();
    world.answer(Err(code(refusal)));
    assert_eq!(outcome_of(init), Outcome::Refused(code(refusal)));
    world.initialize();
    world.begin();
    world.send("a");
    let commit = world.call(Call::Commit);
    world.asked();
    world.answer(Err(code(refusal)));
    assert_eq!(outcome_of(commit), Outcome::Fatal(code(refusal)));
    let init = world.call(Call::Init);
    assert_eq!(outcome_of(init), Outcome::Fatal(code(refusal)));
    assert!(world.is_at_rest());
}

#[test]
fn after_a_failed_record_only_abort_is_possible_and_then_the_epoch_is_raised() {
    let mut world = World::open(Protocol::Explicit);
    world.send("a");
    world.state.note_failed(&code(ErrorCode::MessageTooLarge), true);
    assert!(!world.state.admits(&"a".into(), 0), "nothing more is sent");
    let commit = world.call(Call::Commit);
    assert_eq!(
        outcome_of(commit),
        Outcome::Abortable(code(ErrorCode::MessageTooLarge))
    );
    let call = world.call(|waiter| Call::Offsets(offsets(), waiter));
    assert!(matches!(outcome_of(call), Outcome::Abortable(_)));
    let abort = world.call(|waiter| Call::Abort(Some(waiter)));
    world.expect(ABORT);
    world.answer(Ok(Answer::Ended(None)));
    assert_eq!(outcome_of(abort), Outcome::Done);
    // KIP-360: the partition's sequences are not known.
    let mut begin = world.call(Call::Begin);
    world.expect(Ask::Init {
        expected: Some(FIRST),
    });
    assert!(is_undecided(&mut begin));
    world.answer(Ok(Answer::Initialized(BUMPED)));
    assert_eq!(outcome_of(begin), Outcome::Done);
    assert_eq!(world.state.trouble(), None);
}

#[test]
fn a_failure_while_the_commit_waits_for_records_is_the_commits() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    world.work = Work::Left;
    let commit = world.call(Call::Commit);
    world.state.note_failed(&code(ErrorCode::PolicyViolation), true);
    assert_eq!(
        outcome_of(commit),
        Outcome::Abortable(code(ErrorCode::PolicyViolation))
    );
    world.work = Work::None;
    assert!(world.is_at_rest(), "no commit after that");
    let abort = world.call(|waiter| Call::Abort(Some(waiter)));
    world.expect(ABORT);
    world.answer(Ok(Answer::Ended(Some(BUMPED))));
    assert_eq!(outcome_of(abort), Outcome::Done);
    // The end has raised the epoch: nothing is left to repair.
    world.begin();
}

#[test]
fn an_abortable_answer_to_a_commit_gives_the_transaction_back_and_one_to_an_abort_is_fatal() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    let commit = world.call(Call::Commit);
    world.expect(COMMIT);
    world.answer(Err(code(ErrorCode::TransactionAbortable)));
    assert_eq!(
        outcome_of(commit),
        Outcome::Abortable(code(ErrorCode::TransactionAbortable))
    );
    let abort = world.call(|waiter| Call::Abort(Some(waiter)));
    world.expect(ABORT);
    world.answer(Err(code(ErrorCode::TransactionAbortable)));
    assert!(matches!(outcome_of(abort), Outcome::Fatal(_)));
}

#[test]
fn a_commit_whose_limit_has_passed_goes_on_and_never_becomes_an_abort() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    let commit = world.call(Call::Commit);
    world.expect(COMMIT);
    world.now = world.now.after_ms(LIMIT_MS);
    world.settle();
    assert!(matches!(
        outcome_of(commit),
        Outcome::Unfinished(Error::Timeout {
            setting: "max.block.ms",
            ..
        })
    ));
    let abort = world.call(|waiter| Call::Abort(Some(waiter)));
    assert!(matches!(
        outcome_of(abort),
        Outcome::Refused(Error::IllegalState { .. })
    ));
    world.drop_guard();
    world.answer(Err(lost_connection()));
    world.expect(COMMIT);
    let again = world.call(Call::Commit);
    world.answer(Ok(Answer::Ended(Some(BUMPED))));
    assert_eq!(outcome_of(again), Outcome::Done);
    let late = world.call(Call::Commit);
    assert_eq!(outcome_of(late), Outcome::Done);
}

#[test]
fn a_commit_that_fails_after_its_guard_was_dropped_is_aborted_in_the_background() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    world.work = Work::Left;
    let _commit = world.call(Call::Commit);
    world.drop_guard();
    world.state.note_failed(&code(ErrorCode::PolicyViolation), true);
    world.work = Work::None;
    let mut begin = world.call(Call::Begin);
    world.expect(ABORT);
    assert!(is_undecided(&mut begin));
    world.answer(Ok(Answer::Ended(Some(BUMPED))));
    assert_eq!(outcome_of(begin), Outcome::Done);
}

#[test]
fn a_dropped_transaction_is_aborted_and_the_next_one_waits_for_that() {
    let mut world = World::open(Protocol::Explicit);
    world.send("a");
    world.drop_guard();
    let mut begin = world.call(Call::Begin);
    world.expect(ABORT);
    assert!(is_undecided(&mut begin));
    world.answer(Ok(Answer::Ended(None)));
    assert_eq!(outcome_of(begin), Outcome::Done);
    assert!(
        !world.state.admits(&"a".into(), 0),
        "the partition is not part of the next one"
    );
}

#[test]
fn a_begin_that_is_given_up_opens_nothing() {
    let mut world = World::open(Protocol::Implicit);
    world.send("a");
    world.drop_guard();
    let begin = world.call(Call::Begin);
    world.drop_guard();
    assert!(matches!(outcome_of(begin), Outcome::Refused(_)));
    world.expect(ABORT);
    world.answer(Ok(Answer::Ended(Some(BUMPED))));
    assert!(world.is_at_rest());
    world.begin();
}

#[test]
fn a_lost_answer_to_the_end_raises_the_epoch_with_the_older_protocol_alone() {
    // KAFKA-17754: the lost request may arrive in the next transaction.
    for (protocol, must_renew) in [(Protocol::Explicit, true), (Protocol::Implicit, false)] {
        let mut world = World::open(protocol);
        world.send("a");
        let commit = world.call(Call::Commit);
        world.expect(COMMIT);
        let reaction = world.answer(Err(lost_connection()));
        assert!(reaction.must_find_coordinator);
        world.expect(COMMIT);
        let next = (protocol == Protocol::Implicit).then_some(BUMPED);
        world.answer(Ok(Answer::Ended(next)));
        assert_eq!(outcome_of(commit), Outcome::Done);
        let mut begin = world.call(Call::Begin);
        assert_eq!(is_undecided(&mut begin), must_renew);
        if must_renew {
            world.expect(Ask::Init {
                expected: Some(FIRST),
            });
            world.answer(Ok(Answer::Initialized(BUMPED)));
            assert_eq!(outcome_of(begin), Outcome::Done);
        }
    }
}

#[test]
fn a_partition_whose_answer_was_lost_is_aborted_although_it_may_never_have_been_added() {
    for is_added in [true, false] {
        let mut world = World::open(Protocol::Explicit);
        world.state.admits(&"a".into(), 0);
        world.asked();
        world.answer(Err(lost_connection()));
        world.drop_guard();
        let mut begin = world.call(Call::Begin);
        world.expect(ABORT);
        let answer = match is_added {
            true => Ok(Answer::Ended(None)),
            false => Err(code(ErrorCode::InvalidTxnState)),
        };
        world.answer(answer);
        assert!(is_undecided(&mut begin));
        world.expect(Ask::Init {
            expected: Some(FIRST),
        });
        world.answer(Ok(Answer::Initialized(BUMPED)));
        assert_eq!(outcome_of(begin), Outcome::Done);
    }
}

#[test]
fn an_epoch_that_cannot_be_raised_is_not_used_again() {
    let mut world = World::open(Protocol::Explicit);
    world.send("a");
    world.state.note_failed(&code(ErrorCode::MessageTooLarge), true);
    world.drop_guard();
    world.expect(ABORT);
    world.answer(Ok(Answer::Ended(None)));
    let begin = world.call(Call::Begin);
    world.asked();
    world.answer(Err(code(ErrorCode::ProducerFenced)));
    assert_eq!(outcome_of(begin), Outcome::Lost(code(ErrorCode::ProducerFenced)));
    assert_eq!(world.state.producer(), None);
}

#[test]
fn a_cluster_that_changes_its_protocol_is_followed_between_two_transactions() {
    let mut world = World::open(Protocol::Explicit);
    world.protocol = Protocol::Implicit;
    world.send("a");
    let commit = world.call(Call::Commit);
    world.expect(COMMIT);
    assert_eq!(world.state.protocol(), Protocol::Explicit, "not within one");
    world.answer(Ok(Answer::Ended(None)));
    assert_eq!(outcome_of(commit), Outcome::Done);
    let begin = world.call(Call::Begin);
    world.expect(Ask::Init {
        expected: Some(FIRST),
    });
    world.answer(Ok(Answer::Initialized(BUMPED)));
    assert_eq!(outcome_of(begin), Outcome::Done);
    assert_eq!(world.state.protocol(), Protocol::Implicit);
}

#[test]
fn offsets_need_the_group_added_once_with_the_older_protocol() {
    for protocol in [Protocol::Explicit, Protocol::Implicit] {
        let mut world = World::open(protocol);
        for round in 0..2 {
            let call = world.call(|waiter| Call::Offsets(offsets(), waiter));
            if protocol == Protocol::Explicit && round == 0 {
                assert!(matches!(world.asked(), Ask::AddOffsets(_)));
                world.answer(Ok(Answer::OffsetsAdded));
            }
            assert!(matches!(world.asked(), Ask::CommitOffsets(_)));
            world.answer(Ok(Answer::OffsetsCommitted));
            assert_eq!(outcome_of(call), Outcome::Done);
        }
        // Offsets alone make a transaction.
        let _commit = world.call(Call::Commit);
        world.expect(COMMIT);
    }
}

#[test]
fn offsets_of_a_stale_member_fail_the_transaction_and_those_that_pass_are_asked_again() {
    for refusal in [
        ErrorCode::IllegalGeneration,
        ErrorCode::UnknownMemberId,
        ErrorCode::FencedInstanceId,
        ErrorCode::GroupAuthorizationFailed,
        ErrorCode::StaleMemberEpoch,
    ] {
        let mut world = World::open(Protocol::Implicit);
        let call = world.call(|waiter| Call::Offsets(offsets(), waiter));
        world.asked();
        world.answer(Err(code(ErrorCode::CoordinatorLoadInProgress)));
        world.asked();
        world.answer(Err(code(refusal)));
        assert_eq!(outcome_of(call), Outcome::Abortable(code(refusal)));
        assert!(code(refusal).needs_abort());
        let commit = world.call(Call::Commit);
        assert!(matches!(outcome_of(commit), Outcome::Abortable(_)));
    }
}

#[test]
fn offsets_whose_limit_has_passed_fail_the_transaction() {
    let mut world = World::open(Protocol::Implicit);
    let call = world.call(|waiter| Call::Offsets(offsets(), waiter));
    world.asked();
    world.now = world.now.after_ms(LIMIT_MS);
    world.settle();
    assert!(matches!(
        outcome_of(call),
        Outcome::Abortable(Error::Timeout { .. })
    ));
    world.answer(Ok(Answer::OffsetsCommitted));
    let commit = world.call(Call::Commit);
    assert!(matches!(outcome_of(commit), Outcome::Abortable(_)));
}

#[test]
fn an_unauthorized_topic_fails_the_transaction_with_its_name_and_not_with_the_consequence() {
    let mut world = World::open(Protocol::Explicit);
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    world.state.admits(&a, 0);
    world.state.admits(&b, 0);
    world.asked();
    let results = vec![
        ((a, 0), Some(code(ErrorCode::OperationNotAttempted))),
        ((b, 0), Some(code(ErrorCode::TopicAuthorizationFailed))),
    ];
    world.answer(Ok(Answer::PartitionsAdded(results)));
    let commit = world.call(Call::Commit);
    assert_eq!(
        outcome_of(commit),
        Outcome::Abortable(code(ErrorCode::TopicAuthorizationFailed))
    );
}

#[test]
fn an_answer_without_the_partitions_is_asked_again_after_a_pause() {
    let mut world = World::open(Protocol::Explicit);
    world.state.admits(&"a".into(), 0);
    world.asked();
    world.answer(Ok(Answer::PartitionsAdded(Vec::new())));
    assert_eq!(world.state.wanted(world.now, Work::None), None);
    assert!(matches!(world.asked(), Ask::AddPartitions(_)));
}

#[test]
fn init_tells_why_it_was_not_done_in_time_and_goes_on() {
    let mut world = World::new(Protocol::Implicit);
    let init = world.call(Call::Init);
    world.asked();
    world.answer(Err(code(ErrorCode::CoordinatorLoadInProgress)));
    world.now = world.now.after_ms(LIMIT_MS);
    world.settle();
    let Outcome::Unfinished(error) = outcome_of(init) else {
        panic!("no time-out");
    };
    assert!(
        error.to_string().contains("COORDINATOR_LOAD_IN_PROGRESS"),
        "{error}"
    );
    let again = world.call(Call::Init);
    world.asked();
    world.answer(Ok(Answer::Initialized(FIRST)));
    assert_eq!(outcome_of(again), Outcome::Done);
}

#[test]
fn calls_outside_of_a_transaction_are_refused_and_change_nothing() {
    let mut world = World::new(Protocol::Implicit);
    for call in [Call::Begin, Call::Commit] {
        let outcome = world.call(call);
        assert!(matches!(
            outcome_of(outcome),
            Outcome::Refused(Error::IllegalState { .. })
        ));
    }
    world.initialize();
    let abort = world.call(|waiter| Call::Abort(Some(waiter)));
    assert!(matches!(outcome_of(abort), Outcome::Refused(_)));
    world.begin();
    let init = world.call(Call::Init);
    assert!(matches!(outcome_of(init), Outcome::Refused(_)));
    world.send("a");
}
