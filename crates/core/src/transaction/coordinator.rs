//! The coordinator of the transactions in one partition of `__transaction_state`. It is loaded at
//! the start; markers are begun when the decision is durable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ottla_log::AppendError;
use ottla_wire::records::compression::Codec;

use super::finish::Finishing;
use super::loading::Loading;
use super::lost_markers::LostMarkers;
use super::machine::{Machine, World};
use super::orders::{self, Orders, Taken};
use super::record::TransactionRecord;
use super::request::{Effect, Producer, Reply, Request, Step};
use super::state::TransactionState;
use super::transactions::TRANSACTIONS_TOPIC;
use crate::config::TransactionConfig;
use crate::coordinator::batch::{self, Encode};
use crate::coordinator::call;
use crate::coordinator::replay::Replayed;
use crate::coordinator::runtime::{self, Kind, Ready, Submitted, Ticket};
use crate::image::features::TRANSACTION_VERSION;
use crate::services::{Services, Syncable as _};
use crate::storage::Storage;
use crate::time::{Moment, Now};

pub(super) type Coordinator = runtime::Coordinator<OfTransactions>;

/// A request to a transaction coordinator.
pub(crate) type Call = call::Call<OfTransactions>;
/// A coordinator's answer, or the reason why there is none.
pub(crate) type Answer = call::Answer<Reply>;

/// Where unused producer ids come from.
pub(super) type Fresh<'f> = &'f mut dyn FnMut() -> Option<i64>;

/// What a coordinator of transactions needs besides its log.
pub(crate) struct OfTransactions {
    config: Arc<TransactionConfig>,
    batch_bytes_max: usize,
    /// Decided transactions whose markers are being written.
    finishing: Mutex<Orders<Finishing>>,
    /// A time-out waits for producer ids.
    lacks_ids: AtomicBool,
}

impl OfTransactions {
    pub fn new(config: Arc<TransactionConfig>, batch_bytes_max: usize) -> OfTransactions {
        OfTransactions {
            config,
            batch_bytes_max,
            finishing: Mutex::default(),
            lacks_ids: AtomicBool::new(false),
        }
    }
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

impl Kind for OfTransactions {
    const TOPIC: &'static str = TRANSACTIONS_TOPIC;
    const AFTER_DAMAGE: &'static str = "its transactions may go back to earlier states";

    type Machine = Machine;
    type Loading = Loading;
    type Step = Step;
    type Reply = Reply;
    /// The finalized `transaction.version`.
    type Context = i16;
    type Key = ();

    fn context(storage: &Storage) -> i16 {
        storage.image().features.level(TRANSACTION_VERSION)
    }

    fn machine(&self) -> Machine {
        Machine::new(self.config.clone())
    }

    /// While this loads, no transaction is begun or ended.
    fn loading(&self, storage: &Storage) -> Loading {
        Loading {
            machine: self.machine(),
            lost_markers: LostMarkers::of(storage),
        }
    }

    fn loaded(loading: Loading, replayed: &Replayed) -> Machine {
        let Loading {
            mut machine,
            lost_markers,
        } = loading;
        // What is damaged may have been about any of them.
        if replayed.is_whole() {
            lost_markers.restore(&mut machine);
        }
        machine
    }

    fn arm(machine: &mut Machine, now: Now, level: i16) -> Step {
        machine.arm(&mut World {
            now,
            level,
            fresh: &mut || None,
        })
    }

    fn abandon(machine: &mut Machine, _: Now, (): &(), ticket: Ticket) {
        machine.abandon(ticket);
    }

    fn next_deadline(machine: &Machine) -> Option<Moment> {
        machine.next_deadline()
    }

    fn carry_out(
        &self,
        services: &Services,
        level: i16,
        ready: &mut Ready<Machine>,
        step: Step,
    ) -> Result<Vec<(Ticket, Reply)>, AppendError> {
        let is_awaited = !step.replies.is_empty() || !step.effects.is_empty();
        if !step.records.is_empty() {
            let versioned = |record| Versioned {
                record,
                value_version: level.min(1),
            };
            let records: Vec<Versioned> = step.records.into_iter().map(versioned).collect();
            let timestamp = services.clock.timestamp();
            let batches = batch::build(&records, timestamp, Codec::None, self.batch_bytes_max);
            let appended = ready.partition.append_unhurried(services, &batches)?;
            ready.end_offset = appended.last_offset + 1;
        }
        // The end of a transaction rides on the beginning of the next one: nothing waits for it
        // alone. What waits now waits for all of the log before it.
        if is_awaited && ready.partition.high_watermark() < ready.end_offset {
            ready.partition.clone().request_sync(services);
        }
        for effect in step.effects {
            match effect {
                Effect::AllocateProducerIds => self.lacks_ids.store(true, Ordering::Relaxed),
                Effect::Finish(finish) => {
                    let now = services.clock.moment();
                    let finishing = Finishing::new(finish, ready.partition.clone(), ready.end_offset, now);
                    orders::lock(&self.finishing).push(finishing);
                }
            }
        }
        Ok(step.replies)
    }

    /// At once while markers are to be written.
    fn outer_deadline(&self) -> Option<Moment> {
        let finishing = orders::lock(&self.finishing);
        finishing.iter().filter_map(Finishing::due).min()
    }

    fn on_dropped(&self) {
        orders::lock(&self.finishing).drop_all();
    }
}

impl Coordinator {
    /// Hands a request to the machine.
    pub(super) fn ask(
        self: &Arc<Self>,
        storage: &Storage,
        fresh: Fresh<'_>,
        request: Request,
    ) -> Submitted<Reply> {
        let level = OfTransactions::context(storage);
        self.submit(storage, |machine, now, ticket| {
            machine.handle(&mut World { now, level, fresh }, ticket, request)
        })
    }

    /// Lets the machine act at its deadline; true if a time-out waits for producer ids.
    pub(super) fn on_deadline(&self, storage: &Storage, fresh: Fresh<'_>) -> bool {
        let level = OfTransactions::context(storage);
        self.act(&storage.services, level, |machine, now| {
            machine.on_deadline(&mut World { now, level, fresh })
        });
        self.kind.lacks_ids.swap(false, Ordering::Relaxed)
    }

    /// All markers of a transaction are durable.
    ///
    /// - `generation`: of the order. A machine that was loaded since has an order of its own for
    ///   the transaction, and completes it with that.
    pub(super) fn finished(
        &self,
        storage: &Storage,
        fresh: Fresh<'_>,
        generation: u64,
        id: &Arc<str>,
        producer: Producer,
    ) {
        let level = OfTransactions::context(storage);
        self.act(&storage.services, level, |machine, now| {
            // The state is locked, so that the machine cannot be dropped in between.
            match self.finishing().generation() == generation {
                true => machine.finished(&mut World { now, level, fresh }, id, producer),
                false => Step::default(),
            }
        });
    }

    /// Returns the transactions that are open.
    pub(super) fn open(&self) -> Vec<(Arc<str>, TransactionState)> {
        self.read(|machine| {
            let open = machine.open();
            open.map(|(id, state)| (id.clone(), state.clone())).collect()
        })
    }

    /// Returns how many decided transactions are not complete.
    pub(super) fn decided(&self) -> usize {
        self.read(|machine| {
            let open = machine.open();
            open.filter(|(_, state)| state.status.is_prepared()).count()
        })
    }

    /// The transactions whose markers are being written.
    pub(super) fn finishing(&self) -> MutexGuard<'_, Orders<Finishing>> {
        orders::lock(&self.kind.finishing)
    }

    /// Takes the decided transactions out, to write their markers. Meanwhile they are not due, so
    /// that a panic does not come again at once.
    pub(super) fn take_finishing(&self, services: &Services) -> Taken<'_, Finishing> {
        let taken = Taken::out_of(&self.kind.finishing);
        if !taken.orders.is_empty() {
            self.renew_deadline(services);
        }
        taken
    }
}
