//! All transaction coordinators of a broker: finds the coordinator of a transactional id, calls
//! coordinators at their deadlines, and has the markers of decided transactions written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Wake, Waker};

use ottla_wire::error_code::ErrorCode;

use super::admission::{Admission, Question, TransactionalWrite, WriteGate};
use super::coordinator::{Call, Coordinator, OfTransactions};
use super::finish::{Finishing, Progress};
use super::hanging::HangingReport;
use super::request::{AddRequest, Reply, Request};
use super::stage_times::{Stage, StageTimes};
use super::state::{EPOCH_PER_TRANSACTION, TransactionState};
use crate::access::granted::GrantedTransactionalId;
use crate::config::TransactionConfig;
use crate::controller::producer_ids::ProducerIds;
use crate::coordinator::registry::{CoordinatorTopic, Preparation, Registry};
use crate::group::Groups;
use crate::refusal::Refusal;
use crate::services::{Executor, Services};
use crate::storage::Storage;
use crate::time::Moment;

pub const TRANSACTIONS_TOPIC: &str = "__transaction_state";

const VERIFICATION_KEY: &str = "transaction.partition.verification.enable";

/// A request waits at most this long for an earlier transaction to end.
pub(crate) const PATIENCE_MS: u64 = 5_000;

/// Timeout for an answer's records to become durable.
const TIMEOUT_MS: u64 = 5_000;

pub struct Transactions {
    config: Arc<TransactionConfig>,
    ids: Arc<ProducerIds>,
    registry: Registry<OfTransactions>,
    bell: Arc<Bell>,
    /// A time-out needs producer ids, and none are at hand.
    lacks_ids: AtomicBool,
    /// `on_deadline` has begun and not ended: if it was a panic, some coordinators missed the bell.
    is_interrupted: AtomicBool,
    times: StageTimes,
    hanging: Mutex<HangingReport>,
}

/// Rung when a wait for a marker, or for a decision, has ended. Partitions ring it under their
/// locks, so the work itself is done by the thread for deadlines.
#[derive(Default)]
struct Bell {
    is_rung: AtomicBool,
    executor: OnceLock<Arc<dyn Executor>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.is_rung.store(true, Ordering::Release);
        if let Some(executor) = self.executor.get() {
            executor.deadline_changed();
        }
    }
}

/// An open transaction, for metrics and pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    pub id: Arc<str>,
    pub state: TransactionState,
}

impl OpenTransaction {
    /// Whether it is what this producer has open in the partition. The producer id alone does not
    /// say so: a transaction may hang in one partition while its producer has begun another
    /// (KIP-664, KAFKA-9144).
    pub fn holds(&self, producer_id: i64, topic: &Arc<str>, index: i32) -> bool {
        let place = (topic.clone(), index);
        self.state.producer_id == producer_id && self.state.partitions.contains(&place)
    }
}

impl Transactions {
    pub fn new(config: TransactionConfig, ids: Arc<ProducerIds>) -> Transactions {
        let config = Arc::new(config);
        let of_all = config.clone();
        let make = move |topic: &CoordinatorTopic| OfTransactions::new(of_all.clone(), topic.batch_bytes_max);
        Transactions {
            config,
            ids,
            registry: Registry::new(make),
            bell: Arc::default(),
            lacks_ids: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            times: StageTimes::default(),
            hanging: Mutex::default(),
        }
    }

    pub fn config(&self) -> &TransactionConfig {
        &self.config
    }

    /// Starts to load every coordinator: a transaction that was decided before a crash blocks
    /// readers until it is finished, and an open one must time out.
    pub fn start(&self, storage: &Storage) {
        // Set once; a second start would set the same.
        let _ = self.bell.executor.set(storage.services.shared_executor());
        self.registry.load_all(storage);
    }

    /// Sends a request to the coordinator of a transactional id.
    pub(crate) fn call(
        &self,
        storage: &Storage,
        granted: GrantedTransactionalId<'_>,
        request: Request,
    ) -> Call {
        match self.registry.of(storage, granted.name()) {
            Some(coordinator) => self.call_coordinator(storage, &coordinator, request),
            None => Call::answered(Err(ErrorCode::CoordinatorNotAvailable)),
        }
    }

    /// Sends a request to every coordinator.
    pub(crate) fn call_all(&self, storage: &Storage, request: &Request) -> Vec<Call> {
        let all = self.registry.all(storage);
        let call = |coordinator| self.call_coordinator(storage, coordinator, request.clone());
        all.iter().map(call).collect()
    }

    fn call_coordinator(&self, storage: &Storage, coordinator: &Arc<Coordinator>, request: Request) -> Call {
        let submitted = coordinator.ask(storage, &mut || self.ids.take(), request);
        Call::new(&storage.services, coordinator, || (), submitted, TIMEOUT_MS)
    }

    /// Whether the coordinator of `id` can take requests; if not, loads it and wakes `waker` then.
    pub(crate) fn prepare(&self, storage: &Storage, id: &str, waker: &Waker) -> Preparation {
        self.registry.prepare(storage, id, waker)
    }

    /// Returns the open transactions that coordinators know.
    pub fn open(&self) -> Vec<OpenTransaction> {
        let open = self
            .registry
            .known()
            .into_iter()
            .flat_map(|coordinator| coordinator.open());
        open.map(|(id, state)| OpenTransaction { id, state }).collect()
    }

    /// How long ended transactions took to end.
    pub fn times(&self) -> &StageTimes {
        &self.times
    }

    /// Returns how many decided transactions are not complete.
    pub fn decided(&self) -> usize {
        let coordinators = self.known();
        coordinators.iter().map(|coordinator| coordinator.decided()).sum()
    }

    /// Returns the partitions that markers wait for.
    pub fn unfinished(&self) -> Vec<(Arc<str>, i32)> {
        let mut places = Vec::new();
        for coordinator in self.known() {
            for finishing in coordinator.finishing().iter() {
                places.extend(finishing.unfinished().cloned());
            }
        }
        places
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        if self.bell.is_rung.load(Ordering::Acquire) {
            return Some(Moment::from_nanos(0));
        }
        self.registry.next_deadline()
    }

    pub fn on_deadline(&self, storage: &Storage, groups: &Groups, now: Moment) {
        self.is_interrupted.store(true, Ordering::Relaxed);
        let is_rung = self.bell.is_rung.swap(false, Ordering::AcqRel);
        for coordinator in self.known() {
            let is_due = coordinator.deadline().is_some_and(|deadline| deadline <= now);
            if is_due && coordinator.on_deadline(storage, &mut || self.ids.take()) {
                self.lacks_ids.store(true, Ordering::Relaxed);
            }
            if is_due || is_rung {
                self.write_markers(&coordinator, storage, groups);
            }
        }
        self.is_interrupted.store(false, Ordering::Relaxed);
    }

    /// Has every decided transaction looked at.
    pub(super) fn ring(&self) {
        self.bell.clone().wake();
    }

    fn write_markers(&self, coordinator: &Coordinator, storage: &Storage, groups: &Groups) {
        let mut taken = coordinator.take_finishing(&storage.services);
        if taken.orders.is_empty() {
            return;
        }
        let waker = Waker::from(self.bell.clone());
        let mut progress = Vec::with_capacity(taken.orders.len());
        for finishing in &mut taken.orders {
            progress.push(finishing.advance(storage, groups, &waker));
        }
        let mut progress = progress.into_iter();
        let mut ended: Vec<Finishing> = Vec::new();
        let mut waiting = Vec::new();
        for finishing in std::mem::take(&mut taken.orders) {
            match progress.next().expect("one for each") {
                Progress::Waiting => waiting.push(finishing),
                Progress::Done => ended.push(finishing),
                Progress::Lost => {}
            }
        }
        taken.orders = waiting;
        let generation = taken.generation();
        drop(taken);
        let durable = storage.services.clock.moment();
        for finishing in ended {
            let (id, producer) = (&finishing.finish.id, finishing.producer());
            coordinator.finished(storage, &mut || self.ids.take(), generation, id, producer);
            self.note_times(&finishing, durable, storage.services.clock.moment());
        }
        coordinator.renew_deadline(&storage.services);
    }

    /// - `durable`: when the last marker was found to be.
    fn note_times(&self, finishing: &Finishing, durable: Moment, complete: Moment) {
        let (began, decided) = finishing.moments();
        for (stage, from, to) in [
            (Stage::Decision, began, decided),
            (Stage::Markers, decided, durable),
            (Stage::Complete, durable, complete),
        ] {
            self.times.record(stage, to.micros_since(from));
        }
    }

    /// Whether producer ids are to be allocated; asked once for each lack.
    pub(crate) fn take_lack_of_ids(&self) -> bool {
        self.lacks_ids.swap(false, Ordering::Relaxed)
    }

    /// Handles clients whose connections were closed, and reloads failed coordinators. Call about
    /// once a second.
    pub fn maintain(&self, storage: &Storage) {
        if self.is_interrupted.swap(false, Ordering::Relaxed) {
            self.ring();
        }
        self.registry.maintain(storage);
        let mut hanging = self.hanging.lock().unwrap_or_else(PoisonError::into_inner);
        hanging.maintain(storage, self);
    }

    pub(super) fn known(&self) -> Vec<Arc<Coordinator>> {
        self.registry.known()
    }
}

impl WriteGate for Transactions {
    fn verifies(&self, storage: &Storage) -> bool {
        let image = storage.image();
        let changed = image.dynamic_broker_value(image.static_config.node_id, VERIFICATION_KEY);
        changed.map_or(self.config.verifies, |value| value.eq_ignore_ascii_case("true"))
    }

    fn admit(&self, storage: &Storage, write: TransactionalWrite) -> Box<dyn Admission> {
        let latest = storage.services.clock.moment().after_ms(PATIENCE_MS);
        let add = AddRequest {
            id: write.transactional_id.name().clone(),
            producer_id: write.producer_id,
            producer_epoch: write.producer_epoch,
            partitions: write.partitions,
            client_version: EPOCH_PER_TRANSACTION,
            until: write.deadline.min(latest),
        };
        let count = add.partitions.len();
        let request = match write.question {
            Question::Add => Request::Add(add),
            Question::Verify => Request::Verify(add),
        };
        Box::new(Asked {
            call: self.call(storage, write.transactional_id.borrow(), request),
            count,
        })
    }
}

/// A question of the produce path that the coordinator has not answered yet.
struct Asked {
    call: Call,
    /// Partitions that are asked about.
    count: usize,
}

impl Admission for Asked {
    fn poll(&mut self, services: &Services, waker: &Waker) -> Poll<Vec<Result<(), Refusal>>> {
        if !self.call.poll(services, waker) {
            return Poll::Pending;
        }
        let for_all = |decision: Result<(), ErrorCode>| vec![decision.map_err(Refusal::plain); self.count];
        Poll::Ready(match self.call.take() {
            Ok(Reply::Add(decision)) => for_all(decision),
            Ok(Reply::Verify(Ok(belong))) => belong.into_iter().map(of_membership).collect(),
            Ok(Reply::Verify(Err(error))) | Err(error) => for_all(Err(error)),
            Ok(other) => unreachable!("{other:?} answers no question about partitions"),
        })
    }

    fn deadline(&self) -> Option<Moment> {
        self.call.deadline()
    }
}

fn of_membership(belongs: bool) -> Result<(), Refusal> {
    match belongs {
        true => Ok(()),
        false => Err(Refusal::plain(ErrorCode::TransactionAbortable)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    /// The console hid a hanging transaction whose producer had another one open, and the doctor
    /// advised to abort that one.
    #[test]
    fn a_transaction_holds_its_partitions_and_not_all_of_its_producer() {
        let topic: Arc<str> = "t".into();
        let mut state = TransactionState::new(7, 60_000, Timestamp(0));
        state.partitions.insert((topic.clone(), 1));
        let open = OpenTransaction {
            id: "billing".into(),
            state,
        };
        assert!(open.holds(7, &topic, 1));
        assert!(!open.holds(7, &topic, 0), "another partition hangs");
        assert!(!open.holds(8, &topic, 1), "of another producer");
    }
}
