//! The machine of one partition of `__consumer_offsets` in a running broker: loaded when first
//! needed, dropped when its log fails, used under one lock.
//!
//! A reply leaves when the high watermark has passed every record that the machine had applied
//! before it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::builder::BatchOptions;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::control::{TransactionMarker, TransactionResult};
use tracing::{error, warn};

use crate::coordinator::batch;
use crate::coordinator::delivery::Delivery as Delivered;
use crate::coordinator::replay;
use crate::image::topics::TopicsImage;
use crate::partition::{Appended, Partition};
use crate::random::Random;
use crate::services::Services;
use crate::services::{ColdRead, Payer};
use crate::slot::Slot;
use crate::storage::Storage;
use crate::time::{Moment, Now};

use super::config::GroupConfig;
use super::held::Spread;
use super::machine::Machine;
use super::overview::{GroupOverview, GroupReading};
use super::progress::{OffsetRoom, Progress};
use super::reply::{GroupReply, Step};
use super::request::{GroupRequest, GroupTicket, OffsetCommitRequest};

/// The log is reloaded at most this often, however often it fails: on a full disk every commit
/// does.
const RELOAD_INTERVAL_MS: u64 = 1_000;

pub(super) type Delivery = Delivered<GroupReply>;
pub(super) type DeliverySlot = Slot<Result<Delivery, ErrorCode>>;

/// The immediate outcome of a request.
pub(super) enum Submitted {
    Delivered(Delivery),
    /// Other members have to act first.
    Parked(GroupTicket, Arc<DeliverySlot>),
    Refused(ErrorCode),
}

pub(super) struct Coordinator {
    pub topic_id: Uuid,
    pub partition_index: i32,
    config: Arc<GroupConfig>,
    codec: Codec,
    /// Makes member ids.
    random: Arc<Random>,
    /// Copy of the machine's next deadline in nanoseconds, for readers without the lock;
    /// `u64::MAX`: none.
    deadline: AtomicU64,
    /// Group and ticket of answers whose clients are gone.
    abandoned: Mutex<Vec<(String, GroupTicket)>>,
    state: Mutex<CoordinatorState>,
}

struct CoordinatorState {
    stage: CoordinatorStage,
    next_ticket: u64,
    parked: BTreeMap<GroupTicket, Arc<DeliverySlot>>,
    /// Woken when loading has ended.
    load_wakers: Vec<Waker>,
    /// When the last load began.
    loaded: Option<Moment>,
}

enum CoordinatorStage {
    /// No request has needed it yet.
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

/// Whether a coordinator can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Loading,
    Failed,
}

impl Coordinator {
    pub fn new(
        topic_id: Uuid,
        partition_index: i32,
        config: Arc<GroupConfig>,
        codec: Codec,
        random: Arc<Random>,
    ) -> Coordinator {
        Coordinator {
            topic_id,
            partition_index,
            config,
            codec,
            random,
            deadline: AtomicU64::new(u64::MAX),
            abandoned: Mutex::new(Vec::new()),
            state: Mutex::new(CoordinatorState {
                stage: CoordinatorStage::Unloaded,
                next_ticket: 0,
                parked: BTreeMap::new(),
                load_wakers: Vec::new(),
                loaded: None,
            }),
        }
    }

    /// Starts loading unless it was started; registers `waker` for its end.
    pub fn load(self: &Arc<Self>, storage: &Storage, waker: Option<&Waker>) -> Readiness {
        let mut state = self.lock();
        match &state.stage {
            CoordinatorStage::Ready(_) => return Readiness::Ready,
            CoordinatorStage::Failed { retry } if *retry > storage.services.clock.moment() => {
                return Readiness::Failed;
            }
            CoordinatorStage::Loading => {
                state.load_wakers.extend(waker.cloned());
                return Readiness::Loading;
            }
            CoordinatorStage::Unloaded | CoordinatorStage::Failed { .. } => {}
        }
        let Ok(partition) = storage.partition(self.topic_id, self.partition_index) else {
            return Readiness::Failed;
        };
        state.loaded = Some(storage.services.clock.moment());
        let view = partition.view();
        if view.offsets.start == view.offsets.end {
            // An empty partition needs no thread that may wait for the disk.
            let machine = self.new_machine();
            self.become_ready(
                &storage.services,
                &mut state,
                machine,
                partition,
                view.offsets.end,
            );
            return Readiness::Ready;
        }
        state.stage = CoordinatorStage::Loading;
        state.load_wakers.extend(waker.cloned());
        drop(state);
        let coordinator = self.clone();
        let bytes = partition.with_log(|log| log.bytes());
        storage.services.executor().cold_read(ColdRead {
            payer: Payer::Broker,
            bytes,
            job: Box::new(move |services| {
                coordinator.run_load(services, partition);
                bytes
            }),
        });
        Readiness::Loading
    }

    /// Replays the log from start to end. Only the coordinator appends to it, so the end does not
    /// move meanwhile.
    fn run_load(&self, services: &Services, partition: Arc<Partition>) {
        let view = partition.view();
        let mut machine = self.new_machine();
        let end = ottla_log::Bound {
            offset: view.offsets.end,
            position: None,
        };
        let result = replay::replay(&view.reader, end, &mut machine);
        let mut state = self.lock();
        match result {
            Ok(replayed) => {
                for damage in &replayed.damages {
                    error!(
                        partition = partition.index,
                        %damage,
                        "a batch of the offsets topic is damaged, its groups may go back to earlier offsets"
                    );
                }
                if replayed.more_damages > 0 {
                    let (partition, more) = (partition.index, replayed.more_damages);
                    error!(partition, more, "more of the offsets topic is damaged");
                }
                if replayed.skipped > 0 {
                    let (partition, skipped) = (partition.index, replayed.skipped);
                    warn!(
                        partition,
                        skipped, "records of unknown types in the offsets topic are kept but not read"
                    );
                }
                self.become_ready(services, &mut state, machine, partition, view.offsets.end);
            }
            Err(error) => {
                // The load is tried again with each request.
                if let Some(suppressed) = services.complaints.failures.pass(services.clock.moment()) {
                    let partition = partition.index;
                    error!(partition, %error, suppressed, "no coordinator: the offsets topic cannot be read");
                }
                self.fail(services, &mut state);
            }
        }
        let wakers = std::mem::take(&mut state.load_wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        services.executor().deadline_changed();
    }

    fn new_machine(&self) -> Machine {
        Machine::new(self.config.clone(), self.random.next())
    }

    fn become_ready(
        &self,
        services: &Services,
        state: &mut CoordinatorState,
        mut machine: Machine,
        partition: Arc<Partition>,
        end_offset: i64,
    ) {
        let step = machine.arm(Now::of(&*services.clock));
        state.stage = CoordinatorStage::Ready(Box::new(Ready {
            machine,
            partition,
            end_offset,
        }));
        // If this fails, so does the next request, which reports the error.
        let _ = self.carry_out(services, state, step, None);
    }

    pub fn submit(self: &Arc<Self>, storage: &Storage, request: GroupRequest<'_>) -> Submitted {
        match self.load(storage, None) {
            Readiness::Ready => {}
            Readiness::Loading => return Submitted::Refused(ErrorCode::CoordinatorLoadInProgress),
            Readiness::Failed => return Submitted::Refused(ErrorCode::CoordinatorNotAvailable),
        }
        let mut state = self.lock();
        let ticket = GroupTicket(state.next_ticket);
        state.next_ticket += 1;
        let CoordinatorStage::Ready(ready) = &mut state.stage else {
            return Submitted::Refused(ErrorCode::CoordinatorNotAvailable);
        };
        if ready.partition.is_deleted() {
            return Submitted::Refused(ErrorCode::NotCoordinator);
        }
        let step = ready
            .machine
            .handle(Now::of(&*storage.services.clock), ticket, request);
        match self.carry_out(&storage.services, &mut state, step, Some(ticket)) {
            Ok(Some(delivery)) => Submitted::Delivered(delivery),
            Ok(None) => {
                let slot = Arc::new(DeliverySlot::default());
                state.parked.insert(ticket, slot.clone());
                Submitted::Parked(ticket, slot)
            }
            Err(error) => Submitted::Refused(error),
        }
    }

    /// Lets the machine act without a request.
    pub fn act(&self, services: &Services, act: impl FnOnce(&mut Machine, Now) -> Step) {
        let mut state = self.lock();
        if let CoordinatorStage::Ready(ready) = &mut state.stage {
            let step = act(&mut ready.machine, Now::of(&*services.clock));
            // If this failed, the waiting clients have been answered with the error.
            let _ = self.carry_out(services, &mut state, step, None);
        }
    }

    /// Appends the marker that ends a producer's transaction in this partition, and settles the
    /// offsets in it. Both under one lock: a load between them would find the marker and settle,
    /// too.
    ///
    /// - Errors: NOT_LEADER_OR_FOLLOWER while the log is not loaded, which coordinators retry.
    pub fn complete_transaction(
        self: &Arc<Self>,
        storage: &Storage,
        marker: TransactionMarker,
        transaction_version: i8,
    ) -> Result<(Arc<Partition>, Appended), ErrorCode> {
        self.load(storage, None);
        let services = &storage.services;
        let mut state = self.lock();
        let CoordinatorStage::Ready(ready) = &mut state.stage else {
            return Err(ErrorCode::NotLeaderOrFollower);
        };
        let appended = ready
            .partition
            .append_marker(services, marker, transaction_version);
        let appended = match appended {
            Err(ErrorCode::KafkaStorageError) => {
                self.fail(services, &mut state);
                return Err(ErrorCode::KafkaStorageError);
            }
            appended => appended?,
        };
        ready.end_offset = appended.last_offset + 1;
        let is_commit = marker.result == TransactionResult::Commit;
        ready.machine.apply_marker(marker.producer_id, is_commit);
        let partition = ready.partition.clone();
        if self.note_deadline(ready.machine.next_deadline()) {
            services.executor().deadline_changed();
        }
        Ok((partition, appended))
    }

    /// Appends offsets to a producer's transaction: they take effect with its marker.
    ///
    /// - `ticket`: taken before the transaction coordinator was asked.
    pub fn commit_in_transaction(
        self: &Arc<Self>,
        storage: &Storage,
        commit: OffsetCommitRequest<'_>,
        producer: (i64, i16),
        log_ticket: ottla_log::Ticket,
    ) -> Submitted {
        match self.load(storage, None) {
            Readiness::Ready => {}
            Readiness::Loading => return Submitted::Refused(ErrorCode::CoordinatorLoadInProgress),
            Readiness::Failed => return Submitted::Refused(ErrorCode::CoordinatorNotAvailable),
        }
        let services = &storage.services;
        let mut state = self.lock();
        let CoordinatorStage::Ready(ready) = &mut state.stage else {
            return Submitted::Refused(ErrorCode::CoordinatorNotAvailable);
        };
        let now = Now::of(&*services.clock);
        let mut step = ready
            .machine
            .handle(now, GroupTicket(u64::MAX), GroupRequest::OffsetCommit(commit));
        let (_, reply) = step.replies.pop().expect("a commit is answered at once");
        let offsets = std::mem::take(&mut step.transactional);
        if !offsets.is_empty() {
            let options = BatchOptions {
                compression: self.codec.into(),
                producer_id: producer.0,
                producer_epoch: producer.1,
                is_transactional: true,
                ..BatchOptions::default()
            };
            let batches = batch::build_with(&offsets, now.timestamp, options, self.config.batch_bytes_max);
            match ready.partition.append_offsets(services, log_ticket, &batches) {
                Ok(appended) => ready.end_offset = appended.last_offset + 1,
                Err(error) => {
                    let code = ready.partition.refusal_code(&error);
                    if code == ErrorCode::KafkaStorageError {
                        self.fail(services, &mut state);
                    }
                    return Submitted::Refused(code);
                }
            }
            for offset in offsets {
                ready.machine.apply_transactional(producer.0, offset);
            }
        }
        let delivery = Delivery {
            reply,
            partition: ready.partition.clone(),
            durable_at: ready.end_offset,
        };
        // Sessions that the commit renewed.
        let _ = self.carry_out(services, &mut state, step, None);
        Submitted::Delivered(delivery)
    }

    /// Returns overviews of the known groups; none while they are being loaded.
    pub fn overview(&self, partitions_of: &impl Fn(&str) -> usize) -> Vec<GroupOverview> {
        match &self.lock().stage {
            CoordinatorStage::Ready(ready) => ready.machine.overview(partitions_of),
            _ => Vec::new(),
        }
    }

    /// Adds the progress of the known groups; nothing while they are being loaded.
    pub(super) fn add_progress(&self, progress: &mut Progress, room: &mut OffsetRoom) {
        if let CoordinatorStage::Ready(ready) = &self.lock().stage {
            ready.machine.add_progress(progress, room);
        }
    }

    /// As [`Coordinator::overview`], with groups that have no members.
    ///
    /// - `rest`: how many committed offsets may still be read.
    pub fn readings(&self, topics: &TopicsImage, rest: &mut usize) -> Vec<GroupReading> {
        match &self.lock().stage {
            CoordinatorStage::Ready(ready) => ready.machine.readings(topics, rest),
            _ => Vec::new(),
        }
    }

    /// Adds how the known groups' partitions are spread; nothing while they are being loaded.
    pub(super) fn add_spreads(&self, topics: &TopicsImage, spreads: &mut BTreeMap<Arc<str>, Spread>) {
        if let CoordinatorStage::Ready(ready) = &self.lock().stage {
            ready.machine.add_spreads(topics, spreads);
        }
    }

    /// Notes that the connection behind a ticket is closed. It takes no machine lock;
    /// `settle_abandoned` acts on it soon.
    pub fn abandon(&self, group_id: String, ticket: GroupTicket) {
        self.abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((group_id, ticket));
    }

    /// Tells the machine of closed connections.
    pub fn settle_abandoned(&self, services: &Services) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock().unwrap_or_else(PoisonError::into_inner));
        if abandoned.is_empty() {
            return;
        }
        let mut state = self.lock();
        for (group_id, ticket) in abandoned {
            if state.parked.remove(&ticket).is_some()
                && let CoordinatorStage::Ready(ready) = &mut state.stage
            {
                ready
                    .machine
                    .abandon(Now::of(&*services.clock), &group_id, ticket);
            }
        }
        let _ = self.carry_out(services, &mut state, Step::default(), None);
    }

    pub fn deadline(&self) -> Option<Moment> {
        Some(self.deadline.load(Ordering::Relaxed))
            .filter(|deadline| *deadline != u64::MAX)
            .map(Moment::from_nanos)
    }

    pub fn on_deadline(&self, services: &Services) {
        self.act(services, |machine, now| machine.on_deadline(now));
    }

    /// Appends a step's records to the log and hands out its replies: `own` to the caller, the rest
    /// to their slots.
    ///
    /// - Errors: the log did not take the records. The machine, which has applied them, was
    ///   dropped; waiting clients were answered with the error.
    fn carry_out(
        &self,
        services: &Services,
        state: &mut CoordinatorState,
        step: Step,
        own: Option<GroupTicket>,
    ) -> Result<Option<Delivery>, ErrorCode> {
        let CoordinatorStage::Ready(ready) = &mut state.stage else {
            return Ok(None);
        };
        if !step.records.is_empty() {
            let timestamp = services.clock.timestamp();
            let batches = batch::build(&step.records, timestamp, self.codec, self.config.batch_bytes_max);
            match ready.partition.append_internal(services, &batches) {
                Ok(appended) => ready.end_offset = appended.last_offset + 1,
                Err(error) => {
                    error!(partition = ready.partition.index, %error, "the coordinator starts over: a write failed");
                    self.fail(services, state);
                    return Err(ErrorCode::CoordinatorNotAvailable);
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
        let earlier = self.note_deadline(ready.machine.next_deadline());
        if earlier {
            services.executor().deadline_changed();
        }
        Ok(own_delivery)
    }

    /// Drops the machine, because the log may differ from it. The next one is rebuilt from the log.
    fn fail(&self, services: &Services, state: &mut CoordinatorState) {
        let loaded = state.loaded.unwrap_or(services.clock.moment());
        state.stage = CoordinatorStage::Failed {
            retry: loaded.after_ms(RELOAD_INTERVAL_MS),
        };
        for slot in std::mem::take(&mut state.parked).into_values() {
            slot.fill(Err(ErrorCode::CoordinatorNotAvailable));
        }
        self.note_deadline(None);
    }

    /// Publishes the machine's deadline; true if it came closer.
    fn note_deadline(&self, deadline: Option<Moment>) -> bool {
        let deadline = deadline.map_or(u64::MAX, Moment::nanos);
        deadline < self.deadline.swap(deadline, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, CoordinatorState> {
        // A panic under the lock is a bug in a machine; its state is unknown, so it must not be
        // used again.
        let mut guard = match self.state.lock() {
            Ok(guard) => return guard,
            Err(poisoned) => PoisonError::into_inner(poisoned),
        };
        guard.stage = CoordinatorStage::Unloaded;
        // Nothing is due until the machine is loaded again.
        self.deadline.store(u64::MAX, Ordering::Relaxed);
        for slot in std::mem::take(&mut guard.parked).into_values() {
            slot.fill(Err(ErrorCode::CoordinatorNotAvailable));
        }
        self.state.clear_poison();
        guard
    }
}
