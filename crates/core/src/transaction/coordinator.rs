//! The machine of one partition of `__transaction_state` in a running broker: loaded at the start,
//! dropped when its log fails, used under one lock.
//!
//! A reply leaves, and markers are begun, when the high watermark has passed every record that the
//! machine had applied before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::Codec;
use tracing::{error, warn};

use super::finish::Finishing;
use super::loading::Loading;
use super::lost_markers::LostMarkers;
use super::machine::{Machine, World};
use super::orders::{self, Orders, Taken};
use super::record::TransactionRecord;
use super::request::{Effect, Producer, Reply, Request, Step, Ticket};
use super::state::TransactionState;
use crate::config::TransactionConfig;
use crate::coordinator::batch::{self, Encode};
use crate::coordinator::delivery;
use crate::coordinator::replay;
use crate::image::features::TRANSACTION_VERSION;
use crate::partition::Partition;
use crate::services::{ColdRead, Payer, Services, Syncable as _};
use crate::slot::Slot;
use crate::storage::Storage;
use crate::time::{Moment, Now};

/// The log is reloaded at most this often, however often it fails.
const RELOAD_INTERVAL_MS: u64 = 1_000;

pub(super) type Delivery = delivery::Delivery<Reply>;
pub(super) type DeliverySlot = Slot<Result<Delivery, ErrorCode>>;

/// The immediate outcome of a request.
pub(super) enum Submitted {
    Delivered(Delivery),
    /// An earlier transaction has to end first.
    Parked(Ticket, Arc<DeliverySlot>),
    Refused(ErrorCode),
}

/// Whether a coordinator can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Loading,
    Failed,
}

/// Where unused producer ids come from.
pub(super) type Fresh<'f> = &'f mut dyn FnMut() -> Option<i64>;

pub(super) struct Coordinator {
    pub topic_id: Uuid,
    pub partition_index: i32,
    config: Arc<TransactionConfig>,
    batch_bytes_max: usize,
    /// Copy of the next deadline in nanoseconds, for readers without the lock; `u64::MAX`: none.
    deadline: AtomicU64,
    /// Tickets of answers whose clients are gone.
    abandoned: Mutex<Vec<Ticket>>,
    /// Decided transactions whose markers are being written.
    finishing: Mutex<Orders<Finishing>>,
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    next_ticket: u64,
    parked: BTreeMap<Ticket, Arc<DeliverySlot>>,
    /// Woken when loading has ended.
    load_wakers: Vec<Waker>,
    /// When the last load began.
    loaded: Option<Moment>,
    /// A time-out waits for producer ids.
    lacks_ids: bool,
}

enum Stage {
    Unloaded,
    Loading,
    Ready(Box<Ready>),
    /// The log could not be read or written.
    Failed {
        retry: Moment,
    },
}

struct Ready {
    machine: Machine,
    partition: Arc<Partition>,
    /// The offset after the last record that the machine has applied.
    end_offset: i64,
}

/// A record with the version of its value.
struct Versioned {
    record: TransactionRecord,
    value_version: i16,
}

impl Encode for Versioned {
    fn encode<'b>(&self, key: &mut Vec<u8>, value: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        self.record.encode(self.value_version, key, value)
    }
}

impl Coordinator {
    pub fn new(
        topic_id: Uuid,
        partition_index: i32,
        config: Arc<TransactionConfig>,
        batch_bytes_max: usize,
    ) -> Coordinator {
        Coordinator {
            topic_id,
            partition_index,
            config,
            batch_bytes_max,
            deadline: AtomicU64::new(u64::MAX),
            abandoned: Mutex::default(),
            finishing: Mutex::default(),
            state: Mutex::new(State {
                stage: Stage::Unloaded,
                next_ticket: 0,
                parked: BTreeMap::new(),
                load_wakers: Vec::new(),
                loaded: None,
                lacks_ids: false,
            }),
        }
    }

    /// Starts loading unless it was started; registers `waker` for its end.
    pub fn load(self: &Arc<Self>, storage: &Storage, waker: Option<&Waker>) -> Readiness {
        let mut state = self.lock();
        match &state.stage {
            Stage::Ready(_) => return Readiness::Ready,
            Stage::Failed { retry } if *retry > storage.services.clock.moment() => {
                return Readiness::Failed;
            }
            Stage::Loading => {
                state.load_wakers.extend(waker.cloned());
                return Readiness::Loading;
            }
            Stage::Unloaded | Stage::Failed { .. } => {}
        }
        let Ok(partition) = storage.partition(self.topic_id, self.partition_index) else {
            return Readiness::Failed;
        };
        state.loaded = Some(storage.services.clock.moment());
        let view = partition.view();
        if view.offsets.start == view.offsets.end {
            // An empty partition needs no thread that may wait for the disk.
            let machine = Machine::new(self.config.clone());
            self.become_ready(
                &storage.services,
                level(storage),
                &mut state,
                machine,
                partition,
                view.offsets.end,
            );
            return Readiness::Ready;
        }
        state.stage = Stage::Loading;
        state.load_wakers.extend(waker.cloned());
        drop(state);
        let coordinator = self.clone();
        let bytes = partition.with_log(|log| log.bytes());
        let level = level(storage);
        // While this loads, no transaction is begun or ended.
        let lost_markers = LostMarkers::of(storage);
        storage.services.executor().cold_read(ColdRead {
            payer: Payer::Broker,
            bytes,
            job: Box::new(move |services| {
                coordinator.run_load(services, level, partition, lost_markers);
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
        level: i16,
        partition: Arc<Partition>,
        lost_markers: LostMarkers,
    ) {
        let view = partition.view();
        let mut loading = Loading {
            machine: Machine::new(self.config.clone()),
            lost_markers,
        };
        let end = ottla_log::Bound {
            offset: view.offsets.end,
            position: None,
        };
        let result = replay::replay(&view.reader, end, &mut loading);
        let Loading {
            mut machine,
            lost_markers,
        } = loading;
        // What is damaged may have been about any of them.
        if result.as_ref().is_ok_and(|replayed| replayed.is_whole()) {
            lost_markers.restore(&mut machine);
        }
        let mut state = self.lock();
        match result {
            Ok(replayed) => {
                for damage in &replayed.damages {
                    error!(
                        partition = partition.index,
                        %damage,
                        "a batch of __transaction_state is damaged: its transactions may go back to earlier states"
                    );
                }
                if replayed.more_damages > 0 {
                    let (partition, more) = (partition.index, replayed.more_damages);
                    error!(partition, more, "more of __transaction_state is damaged");
                }
                if replayed.skipped > 0 {
                    let (partition, skipped) = (partition.index, replayed.skipped);
                    warn!(
                        partition,
                        skipped, "records of unknown types in __transaction_state are kept but not read"
                    );
                }
                self.become_ready(services, level, &mut state, machine, partition, view.offsets.end);
            }
            Err(error) => {
                // The load is tried again with each request.
                if let Some(suppressed) = services.complaints.failures.pass(services.clock.moment()) {
                    let partition = partition.index;
                    error!(partition, %error, suppressed, "no coordinator: __transaction_state cannot be read");
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
        level: i16,
        state: &mut State,
        mut machine: Machine,
        partition: Arc<Partition>,
        end_offset: i64,
    ) {
        let mut world = World {
            now: Now::of(&*services.clock),
            level,
            fresh: &mut || None,
        };
        let step = machine.arm(&mut world);
        state.stage = Stage::Ready(Box::new(Ready {
            machine,
            partition,
            end_offset,
        }));
        // If this fails, so does the next request, which reports the error.
        let _ = self.carry_out(services, level, state, step, None);
    }

    pub fn submit(self: &Arc<Self>, storage: &Storage, fresh: Fresh<'_>, request: Request) -> Submitted {
        match self.load(storage, None) {
            Readiness::Ready => {}
            Readiness::Loading => return Submitted::Refused(ErrorCode::CoordinatorLoadInProgress),
            Readiness::Failed => return Submitted::Refused(ErrorCode::CoordinatorNotAvailable),
        }
        let level = level(storage);
        let mut state = self.lock();
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        let Stage::Ready(ready) = &mut state.stage else {
            return Submitted::Refused(ErrorCode::CoordinatorNotAvailable);
        };
        if ready.partition.is_deleted() {
            return Submitted::Refused(ErrorCode::NotCoordinator);
        }
        let mut world = World {
            now: Now::of(&*storage.services.clock),
            level,
            fresh,
        };
        let step = ready.machine.handle(&mut world, ticket, request);
        match self.carry_out(&storage.services, level, &mut state, step, Some(ticket)) {
            Ok(Some(delivery)) => Submitted::Delivered(delivery),
            Ok(None) => {
                let slot = Arc::new(DeliverySlot::default());
                state.parked.insert(ticket, slot.clone());
                Submitted::Parked(ticket, slot)
            }
            Err(error) => Submitted::Refused(error),
        }
    }

    /// Lets the machine act without a request; true if a time-out waits for producer ids.
    pub fn act(
        &self,
        storage: &Storage,
        fresh: Fresh<'_>,
        act: impl FnOnce(&mut Machine, &mut World<'_>) -> Step,
    ) -> bool {
        let level = level(storage);
        let mut state = self.lock();
        if let Stage::Ready(ready) = &mut state.stage {
            let mut world = World {
                now: Now::of(&*storage.services.clock),
                level,
                fresh,
            };
            let step = act(&mut ready.machine, &mut world);
            // If this failed, the waiting clients have been answered with the error.
            let _ = self.carry_out(&storage.services, level, &mut state, step, None);
        }
        std::mem::take(&mut state.lacks_ids)
    }

    /// All markers of a transaction are durable.
    ///
    /// - `generation`: of the order. A machine that was loaded since has an order of its own for
    ///   the transaction, and completes it with that.
    pub fn finished(
        &self,
        storage: &Storage,
        fresh: Fresh<'_>,
        generation: u64,
        id: &Arc<str>,
        producer: Producer,
    ) {
        self.act(storage, fresh, |machine, world| {
            // The state is locked, so that the machine cannot be dropped in between.
            match self.finishing().generation() == generation {
                true => machine.finished(world, id, producer),
                false => Step::default(),
            }
        });
    }

    /// Returns the transactions that are open.
    pub fn open(&self) -> Vec<(Arc<str>, TransactionState)> {
        match &self.lock().stage {
            Stage::Ready(ready) => {
                let open = ready.machine.open();
                open.map(|(id, state)| (id.clone(), state.clone())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns how many decided transactions are not complete.
    pub fn decided(&self) -> usize {
        match &self.lock().stage {
            Stage::Ready(ready) => {
                let open = ready.machine.open();
                open.filter(|(_, state)| state.status.is_prepared()).count()
            }
            _ => 0,
        }
    }

    /// Notes that the connection behind a ticket is closed; `settle_abandoned` acts on it soon.
    pub fn abandon(&self, ticket: Ticket) {
        let mut abandoned = self.abandoned.lock().unwrap_or_else(PoisonError::into_inner);
        abandoned.push(ticket);
    }

    /// Tells the machine of closed connections.
    pub fn settle_abandoned(&self) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner));
        if abandoned.is_empty() {
            return;
        }
        let mut state = self.lock();
        for ticket in abandoned {
            if state.parked.remove(&ticket).is_some()
                && let Stage::Ready(ready) = &mut state.stage
            {
                ready.machine.abandon(ticket);
            }
        }
    }

    pub fn deadline(&self) -> Option<Moment> {
        Some(self.deadline.load(Ordering::Relaxed))
            .filter(|deadline| *deadline != u64::MAX)
            .map(Moment::from_nanos)
    }

    /// The transactions whose markers are being written.
    pub fn finishing(&self) -> MutexGuard<'_, Orders<Finishing>> {
        orders::lock(&self.finishing)
    }

    /// Takes the decided transactions out, to write their markers. Meanwhile they are not due, so
    /// that a panic does not come again at once.
    pub fn take_finishing(&self, services: &Services) -> Taken<'_, Finishing> {
        let taken = Taken::out_of(&self.finishing);
        if !taken.orders.is_empty() {
            self.renew_deadline(services);
        }
        taken
    }

    /// Appends a step's records to the log, hands out its replies, `own` to the caller, the rest to
    /// their slots, and begins its effects.
    ///
    /// - Errors: the log did not take the records. The machine, which has applied them, was
    ///   dropped; waiting clients were answered with the error.
    fn carry_out(
        &self,
        services: &Services,
        level: i16,
        state: &mut State,
        step: Step,
        own: Option<Ticket>,
    ) -> Result<Option<Delivery>, ErrorCode> {
        let Stage::Ready(ready) = &mut state.stage else {
            return Ok(None);
        };
        let is_awaited = !step.replies.is_empty() || !step.effects.is_empty();
        if !step.records.is_empty() {
            let versioned = |record| Versioned {
                record,
                value_version: level.min(1),
            };
            let records: Vec<Versioned> = step.records.into_iter().map(versioned).collect();
            let timestamp = services.clock.timestamp();
            let batches = batch::build(&records, timestamp, Codec::None, self.batch_bytes_max);
            match ready.partition.append_unhurried(services, &batches) {
                Ok(appended) => ready.end_offset = appended.last_offset + 1,
                Err(error) => {
                    error!(partition = ready.partition.index, %error, "the transaction coordinator starts over: a write failed");
                    self.fail(services, state);
                    return Err(ErrorCode::CoordinatorNotAvailable);
                }
            }
        }
        // The end of a transaction rides on the beginning of the next one: nothing waits for it
        // alone. What waits now waits for all of the log before it.
        if is_awaited && ready.partition.high_watermark() < ready.end_offset {
            ready.partition.clone().request_sync(services);
        }
        for effect in step.effects {
            match effect {
                Effect::AllocateProducerIds => state.lacks_ids = true,
                Effect::Finish(finish) => {
                    let now = services.clock.moment();
                    let finishing = Finishing::new(finish, ready.partition.clone(), ready.end_offset, now);
                    self.finishing().push(finishing);
                }
            }
        }
        let mut own_delivery = None;
        for (ticket, reply) in step.replies {
            let delivery = Delivery {
                reply,
                partition: ready.partition.clone(),
                durable_at: ready.end_offset,
            };
            if Some(ticket) == own {
                own_delivery = Some(delivery);
            } else if let Some(slot) = state.parked.remove(&ticket) {
                slot.fill(Ok(delivery));
            }
        }
        self.note_deadline(services, ready.machine.next_deadline());
        Ok(own_delivery)
    }

    /// Drops the machine, because the log may differ from it. The next one is rebuilt from the log,
    /// and finishes what was decided.
    fn fail(&self, services: &Services, state: &mut State) {
        let loaded = state.loaded.unwrap_or(services.clock.moment());
        state.stage = Stage::Failed {
            retry: loaded.after_ms(RELOAD_INTERVAL_MS),
        };
        self.finishing().drop_all();
        for slot in std::mem::take(&mut state.parked).into_values() {
            slot.fill(Err(ErrorCode::CoordinatorNotAvailable));
        }
        self.note_deadline(services, None);
    }

    /// Publishes the next deadline: at once while markers are to be written.
    fn note_deadline(&self, services: &Services, machine: Option<Moment>) {
        let finishing = self.finishing().iter().filter_map(Finishing::due).min();
        let deadline = machine.into_iter().chain(finishing).min();
        let deadline = deadline.map_or(u64::MAX, Moment::nanos);
        if deadline < self.deadline.swap(deadline, Ordering::Relaxed) {
            services.executor().deadline_changed();
        }
    }

    /// As `note_deadline`, after markers have been written or wait for something else.
    pub fn renew_deadline(&self, services: &Services) {
        let state = self.lock();
        let machine = match &state.stage {
            Stage::Ready(ready) => ready.machine.next_deadline(),
            _ => None,
        };
        self.note_deadline(services, machine);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a bug in a machine; its state is unknown, so it must not be
        // used again.
        let mut guard = match self.state.lock() {
            Ok(guard) => return guard,
            Err(poisoned) => PoisonError::into_inner(poisoned),
        };
        guard.stage = Stage::Unloaded;
        // Nothing is due until the machine is loaded again.
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        self.finishing().drop_all();
        for slot in std::mem::take(&mut guard.parked).into_values() {
            slot.fill(Err(ErrorCode::CoordinatorNotAvailable));
        }
        self.state.clear_poison();
        guard
    }
}

/// The finalized `transaction.version`.
pub(super) fn level(storage: &Storage) -> i16 {
    storage.image().features.level(TRANSACTION_VERSION)
}
