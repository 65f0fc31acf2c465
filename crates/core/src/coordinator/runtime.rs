//! One partition of a coordinator's topic in a running broker: its machine is loaded when first
//! needed, dropped when its log fails, and used under one lock.
//!
//! A reply leaves when the high watermark has passed every record that the machine had applied
//! before it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_log::AppendError;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use tracing::{error, warn};

use super::delivery::Delivery;
use super::replay::{self, Replay, Replayed};
use crate::partition::Partition;
use crate::services::{ColdRead, Payer, Services};
use crate::slot::Slot;
use crate::storage::Storage;
use crate::time::{Moment, Now};

/// The log is reloaded at most this often, however often it fails: on a full disk every write does.
const RELOAD_INTERVAL_MS: u64 = 1_000;

/// Identifies a waiting answer within one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a waiting answer is put, or the reason why there is none.
pub type DeliverySlot<R> = Slot<Result<Delivery<R>, ErrorCode>>;

/// One kind of coordinator: its machine, and how the machine's steps are carried out.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The topic of the logs.
    const TOPIC: &'static str;
    /// What follows from a damaged batch, for the log.
    const AFTER_DAMAGE: &'static str;

    type Machine: Send;
    /// A machine while its log is read.
    type Loading: Replay + Send;
    /// What a machine asks for: records, replies, and whatever else it orders.
    type Step;
    type Reply: Send;
    /// What a step depends on besides the machine.
    type Context: Copy + Send;
    /// What a machine finds a waiting answer by, besides its ticket.
    type Key: Default + Send;

    fn context(storage: &Storage) -> Self::Context;

    /// Returns the machine of an empty log.
    fn machine(&self) -> Self::Machine;

    fn loading(&self, storage: &Storage) -> Self::Loading;

    fn loaded(loading: Self::Loading, replayed: &Replayed) -> Self::Machine;

    /// Begins what goes on without requests. Called once, after the load.
    fn arm(machine: &mut Self::Machine, now: Now, context: Self::Context) -> Self::Step;

    /// Forgets an answer whose client is gone.
    fn abandon(machine: &mut Self::Machine, now: Now, key: &Self::Key, ticket: Ticket);

    fn next_deadline(machine: &Self::Machine) -> Option<Moment>;

    /// Appends a step's records, begins its effects, and returns its replies. Moves
    /// [`Ready::end_offset`].
    ///
    /// - Errors: the log did not take the records, which the machine has applied.
    fn carry_out(
        &self,
        services: &Services,
        context: Self::Context,
        ready: &mut Ready<Self::Machine>,
        step: Self::Step,
    ) -> Result<Vec<(Ticket, Self::Reply)>, AppendError>;

    /// When work outside the machine is due.
    fn outer_deadline(&self) -> Option<Moment> {
        None
    }

    /// Forgets what the machine ordered: its successor orders it again.
    fn on_dropped(&self) {}
}

/// The immediate outcome of a request.
pub enum Submitted<R> {
    Delivered(Delivery<R>),
    /// Something else has to happen first.
    Parked(Ticket, Arc<DeliverySlot<R>>),
    Refused(ErrorCode),
}

/// Whether a coordinator can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    Loading,
    Failed,
}

impl Readiness {
    /// Returns why a request is refused.
    ///
    /// - Errors: COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE, which clients retry.
    fn check(self) -> Result<(), ErrorCode> {
        match self {
            Readiness::Ready => Ok(()),
            Readiness::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            Readiness::Failed => Err(ErrorCode::CoordinatorNotAvailable),
        }
    }
}

pub struct Coordinator<K: Kind> {
    pub topic_id: Uuid,
    partition_index: i32,
    pub kind: K,
    /// Copy of the next deadline in nanoseconds, for readers without the lock; `u64::MAX`: none.
    deadline: AtomicU64,
    /// Answers whose clients are gone.
    abandoned: Mutex<Vec<(K::Key, Ticket)>>,
    state: Mutex<State<K>>,
}

pub struct State<K: Kind> {
    stage: Stage<K::Machine>,
    next_ticket: u64,
    parked: BTreeMap<Ticket, Arc<DeliverySlot<K::Reply>>>,
    /// Woken when loading has ended.
    load_wakers: Vec<Waker>,
    /// When the last load began.
    loaded: Option<Moment>,
}

enum Stage<M> {
    /// No request has needed it yet.
    Unloaded,
    Loading,
    Ready(Box<Ready<M>>),
    /// The log could not be read or written.
    Failed {
        retry: Moment,
    },
}

/// A machine that takes requests.
pub struct Ready<M> {
    pub machine: M,
    pub partition: Arc<Partition>,
    /// The offset after the last record that the machine has applied.
    pub end_offset: i64,
}

impl<M> Ready<M> {
    /// Returns a reply that waits for all that the machine has applied.
    pub fn deliver<R>(&self, reply: R) -> Delivery<R> {
        Delivery {
            reply,
            partition: self.partition.clone(),
            durable_at: self.end_offset,
        }
    }
}

impl<K: Kind> State<K> {
    /// Returns the machine.
    ///
    /// - Errors: COORDINATOR_NOT_AVAILABLE.
    pub fn ready(&mut self) -> Result<&mut Ready<K::Machine>, ErrorCode> {
        match &mut self.stage {
            Stage::Ready(ready) => Ok(ready),
            _ => Err(ErrorCode::CoordinatorNotAvailable),
        }
    }

    fn refuse_parked(&mut self) {
        for slot in std::mem::take(&mut self.parked).into_values() {
            slot.fill(Err(ErrorCode::CoordinatorNotAvailable));
        }
    }
}

impl<K: Kind> Coordinator<K> {
    pub fn new(topic_id: Uuid, partition_index: i32, kind: K) -> Coordinator<K> {
        Coordinator {
            topic_id,
            partition_index,
            kind,
            deadline: AtomicU64::new(u64::MAX),
            abandoned: Mutex::default(),
            state: Mutex::new(State {
                stage: Stage::Unloaded,
                next_ticket: 0,
                parked: BTreeMap::new(),
                load_wakers: Vec::new(),
                loaded: None,
            }),
        }
    }

    /// Starts loading unless it was started; registers `waker` for its end.
    pub fn load(self: &Arc<Self>, storage: &Storage, waker: Option<&Waker>) -> Readiness {
        let services = &storage.services;
        let mut state = self.lock();
        match &state.stage {
            Stage::Ready(_) => return Readiness::Ready,
            Stage::Failed { retry } if *retry > services.clock.moment() => return Readiness::Failed,
            Stage::Loading => {
                state.load_wakers.extend(waker.cloned());
                return Readiness::Loading;
            }
            Stage::Unloaded | Stage::Failed { .. } => {}
        }
        let Ok(partition) = storage.partition(self.topic_id, self.partition_index) else {
            return Readiness::Failed;
        };
        state.loaded = Some(services.clock.moment());
        let context = K::context(storage);
        let offsets = partition.view().offsets;
        if offsets.start == offsets.end {
            // An empty partition needs no thread that may wait for the disk.
            let machine = self.kind.machine();
            self.become_ready(services, context, &mut state, machine, partition, offsets.end);
            return Readiness::Ready;
        }
        state.stage = Stage::Loading;
        state.load_wakers.extend(waker.cloned());
        drop(state);
        let coordinator = self.clone();
        let bytes = partition.with_log(|log| log.bytes());
        let loading = self.kind.loading(storage);
        services.executor().cold_read(ColdRead {
            payer: Payer::Broker,
            bytes,
            job: Box::new(move |services| {
                coordinator.run_load(services, context, partition, loading);
                bytes
            }),
        });
        Readiness::Loading
    }

    /// Replays the log from start to end. Only the coordinator appends to it, so the end does not
    /// move meanwhile.
    fn run_load(
        &self,
        services: &Services,
        context: K::Context,
        partition: Arc<Partition>,
        mut loading: K::Loading,
    ) {
        let view = partition.view();
        let end = ottla_log::Bound {
            offset: view.offsets.end,
            position: None,
        };
        let replayed = replay::replay(&view.reader, end, &mut loading);
        let machine = replayed.map(|replayed| {
            report::<K>(&partition, &replayed);
            K::loaded(loading, &replayed)
        });
        let mut state = self.lock();
        match machine {
            Ok(machine) => {
                self.become_ready(services, context, &mut state, machine, partition, end.offset);
            }
            Err(error) => {
                // The load is tried again with each request.
                if let Some(suppressed) = services.complaints.failures.pass(services.clock.moment()) {
                    let (topic, partition) = (K::TOPIC, partition.index);
                    error!(topic, partition, %error, suppressed, "no coordinator: its log cannot be read");
                }
                self.fail(services, &mut state);
            }
        }
        let wakers = std::mem::take(&mut state.load_wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        services.executor().deadline_changed();
    }

    fn become_ready(
        &self,
        services: &Services,
        context: K::Context,
        state: &mut State<K>,
        mut machine: K::Machine,
        partition: Arc<Partition>,
        end_offset: i64,
    ) {
        let step = K::arm(&mut machine, Now::of(&*services.clock), context);
        state.stage = Stage::Ready(Box::new(Ready {
            machine,
            partition,
            end_offset,
        }));
        // If this fails, so does the next request, which reports the error.
        let _ = self.carry_out(services, context, state, step, None);
    }

    /// Hands a request to the machine.
    pub fn submit(
        self: &Arc<Self>,
        storage: &Storage,
        handle: impl FnOnce(&mut K::Machine, Now, Ticket) -> K::Step,
    ) -> Submitted<K::Reply> {
        match self.try_submit(storage, handle) {
            Ok(submitted) => submitted,
            Err(error) => Submitted::Refused(error),
        }
    }

    fn try_submit(
        self: &Arc<Self>,
        storage: &Storage,
        handle: impl FnOnce(&mut K::Machine, Now, Ticket) -> K::Step,
    ) -> Result<Submitted<K::Reply>, ErrorCode> {
        self.load(storage, None).check()?;
        let services = &storage.services;
        let context = K::context(storage);
        let mut state = self.lock();
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        let ready = state.ready()?;
        if ready.partition.is_deleted() {
            return Err(ErrorCode::NotCoordinator);
        }
        let step = handle(&mut ready.machine, Now::of(&*services.clock), ticket);
        if let Some(delivery) = self.carry_out(services, context, &mut state, step, Some(ticket))? {
            return Ok(Submitted::Delivered(delivery));
        }
        let slot = Arc::new(DeliverySlot::default());
        state.parked.insert(ticket, slot.clone());
        Ok(Submitted::Parked(ticket, slot))
    }

    /// Lets the machine act without a request.
    pub fn act(
        &self,
        services: &Services,
        context: K::Context,
        act: impl FnOnce(&mut K::Machine, Now) -> K::Step,
    ) {
        let mut state = self.lock();
        if let Ok(ready) = state.ready() {
            let step = act(&mut ready.machine, Now::of(&*services.clock));
            // If this failed, the waiting clients have been answered with the error.
            let _ = self.carry_out(services, context, &mut state, step, None);
        }
    }

    /// Lets `write` append what no [`Kind::Step`] says, under the machine's lock.
    ///
    /// - Errors: as [`Readiness::check`]; those of `write`, after which the machine is dropped if
    ///   the log has failed.
    pub fn write<T>(
        self: &Arc<Self>,
        storage: &Storage,
        write: impl FnOnce(&mut Ready<K::Machine>) -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        self.load(storage, None).check()?;
        let mut state = self.lock();
        let ready = state.ready()?;
        let written = write(ready);
        let deadline = K::next_deadline(&ready.machine);
        if matches!(written, Err(ErrorCode::KafkaStorageError)) {
            self.fail(&storage.services, &mut state);
        } else {
            self.note_deadline(&storage.services, deadline);
        }
        written
    }

    /// Reads the machine; the default while it is not loaded.
    pub fn read<T: Default>(&self, read: impl FnOnce(&K::Machine) -> T) -> T {
        match &self.lock().stage {
            Stage::Ready(ready) => read(&ready.machine),
            _ => T::default(),
        }
    }

    /// Notes that the connection behind a ticket is closed. It takes no machine lock;
    /// `settle_abandoned` acts on it soon.
    pub fn abandon(&self, key: K::Key, ticket: Ticket) {
        self.abandoned().push((key, ticket));
    }

    fn abandoned(&self) -> MutexGuard<'_, Vec<(K::Key, Ticket)>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the machine of closed connections.
    pub fn settle_abandoned(&self, services: &Services) {
        let abandoned = std::mem::take(&mut *self.abandoned());
        if abandoned.is_empty() {
            return;
        }
        let now = Now::of(&*services.clock);
        let mut state = self.lock();
        for (key, ticket) in abandoned {
            if state.parked.remove(&ticket).is_some()
                && let Ok(ready) = state.ready()
            {
                K::abandon(&mut ready.machine, now, &key, ticket);
            }
        }
        self.renew_deadline_of(services, &mut state);
    }

    pub fn deadline(&self) -> Option<Moment> {
        Some(self.deadline.load(Ordering::Relaxed))
            .filter(|deadline| *deadline != u64::MAX)
            .map(Moment::from_nanos)
    }

    /// Looks at the deadlines again, after work outside the machine.
    pub fn renew_deadline(&self, services: &Services) {
        self.renew_deadline_of(services, &mut self.lock());
    }

    fn renew_deadline_of(&self, services: &Services, state: &mut State<K>) {
        let machine = state.ready().ok();
        self.note_deadline(
            services,
            machine.and_then(|ready| K::next_deadline(&ready.machine)),
        );
    }

    /// Carries a step out, and hands out its replies: `own` to the caller, the rest to their slots.
    ///
    /// - Errors: the log did not take the records. The machine, which has applied them, was
    ///   dropped; waiting clients were answered with the error.
    fn carry_out(
        &self,
        services: &Services,
        context: K::Context,
        state: &mut State<K>,
        step: K::Step,
        own: Option<Ticket>,
    ) -> Result<Option<Delivery<K::Reply>>, ErrorCode> {
        let Stage::Ready(ready) = &mut state.stage else {
            return Ok(None);
        };
        let replies = match self.kind.carry_out(services, context, ready, step) {
            Ok(replies) => replies,
            Err(error) => {
                let (topic, partition) = (K::TOPIC, ready.partition.index);
                error!(topic, partition, %error, "a coordinator starts over: a write failed");
                self.fail(services, state);
                return Err(ErrorCode::CoordinatorNotAvailable);
            }
        };
        let mut own_delivery = None;
        for (ticket, reply) in replies {
            let delivery = ready.deliver(reply);
            if Some(ticket) == own {
                own_delivery = Some(delivery);
            } else if let Some(slot) = state.parked.remove(&ticket) {
                slot.fill(Ok(delivery));
            }
        }
        self.note_deadline(services, K::next_deadline(&ready.machine));
        Ok(own_delivery)
    }

    /// Drops the machine, because the log may differ from it. The next one is rebuilt from the log.
    fn fail(&self, services: &Services, state: &mut State<K>) {
        let loaded = state.loaded.unwrap_or(services.clock.moment());
        state.stage = Stage::Failed {
            retry: loaded.after_ms(RELOAD_INTERVAL_MS),
        };
        self.kind.on_dropped();
        state.refuse_parked();
        self.note_deadline(services, None);
    }

    /// Publishes the next deadline.
    fn note_deadline(&self, services: &Services, machine: Option<Moment>) {
        let deadline = machine.into_iter().chain(self.kind.outer_deadline()).min();
        let deadline = deadline.map_or(u64::MAX, Moment::nanos);
        if deadline < self.deadline.swap(deadline, Ordering::Relaxed) {
            services.executor().deadline_changed();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // A panic under the lock is a bug in a machine; its state is unknown, so it must not be
        // used again.
        let mut guard = match self.state.lock() {
            Ok(guard) => return guard,
            Err(poisoned) => PoisonError::into_inner(poisoned),
        };
        guard.stage = Stage::Unloaded;
        // Nothing is due until the machine is loaded again.
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        self.kind.on_dropped();
        guard.refuse_parked();
        self.state.clear_poison();
        guard
    }
}

/// Tells what a load has lost.
fn report<K: Kind>(partition: &Partition, replayed: &Replayed) {
    let (topic, partition) = (K::TOPIC, partition.index);
    for damage in &replayed.damages {
        error!(topic, partition, %damage, "a batch of a coordinator's log is damaged: {}", K::AFTER_DAMAGE);
    }
    if replayed.more_damages > 0 {
        let more = replayed.more_damages;
        error!(topic, partition, more, "more of a coordinator's log is damaged");
    }
    if replayed.skipped > 0 {
        let skipped = replayed.skipped;
        warn!(
            topic,
            partition, skipped, "records of unknown types are kept but not read"
        );
    }
}
