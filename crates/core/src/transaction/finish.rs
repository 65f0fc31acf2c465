//! Writes the markers of a decided transaction.
//!
//! The decision is durable before the first marker is appended, and every marker is durable before
//! the transaction counts as complete: otherwise a power cut could leave a torn transaction, or one
//! whose marker is never written again. To write a marker twice is harmless, so that all of this
//! may be interrupted anywhere and begun again after a restart.

use std::sync::Arc;
use std::task::Waker;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::control::{TransactionMarker, TransactionResult};
use tracing::error;

use super::request::{Finish, Producer};
use super::state::Place;
use crate::group::{Groups, OFFSETS_TOPIC};
use crate::partition::{Appended, Failure, Partition, WaitToken};
use crate::storage::Storage;
use crate::time::Moment;

/// A partition that takes no marker now is tried again after this, then after twice as long each
/// time, up to the maximum.
const RETRY_MS: u64 = 50;
const RETRY_MS_MAX: u64 = 30_000;

/// The decided transactions of one coordinator.
///
/// - While their markers are written they are taken out. If the machine was dropped meanwhile, its
///   successor orders their markers again, and they must not come back: an order that is carried
///   out twice, the second time late, would end the *next* transaction of a producer whose epoch
///   stays.
pub(super) struct Orders<T> {
    /// Raised whenever the machine is dropped.
    generation: u64,
    open: Vec<T>,
}

impl<T> Default for Orders<T> {
    fn default() -> Orders<T> {
        Orders {
            generation: 0,
            open: Vec::new(),
        }
    }
}

impl<T> Orders<T> {
    pub fn push(&mut self, order: T) {
        self.open.push(order);
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.open.iter()
    }

    /// Forgets all orders, also those that are taken out.
    pub fn drop_all(&mut self) {
        self.generation += 1;
        self.open.clear();
    }

    /// Takes all orders out, with the generation they belong to.
    pub fn take(&mut self) -> (u64, Vec<T>) {
        (self.generation, std::mem::take(&mut self.open))
    }

    /// Puts orders back; false: they have been forgotten meanwhile.
    pub fn put_back(&mut self, generation: u64, orders: Vec<T>) -> bool {
        let is_current = generation == self.generation;
        if is_current {
            self.open.extend(orders);
        }
        is_current
    }
}

/// A decided transaction.
pub(super) struct Finishing {
    pub finish: Finish,
    /// The coordinator's own partition, and where the decision ends in it.
    partition: Arc<Partition>,
    durable_at: i64,
    decision: Option<WaitToken>,
    markers: Vec<Marker>,
    /// When to look again; `None`: a wake-up tells.
    due: Option<Moment>,
    failures: u32,
}

struct Decision<'f> {
    finish: &'f Finish,
    coordinator_epoch: i32,
}

struct Marker {
    place: Place,
    stage: MarkerStage,
}

enum MarkerStage {
    Unwritten,
    /// Appended, but not durable yet.
    Waiting {
        partition: Arc<Partition>,
        required: i64,
        _token: WaitToken,
    },
    Done,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// All markers are durable.
    Done,
    /// The coordinator's log has failed: its next machine begins again.
    Lost,
}

impl Finishing {
    pub fn new(finish: Finish, partition: Arc<Partition>, durable_at: i64) -> Finishing {
        let places = finish.partitions.iter().cloned();
        let markers = places.map(|place| Marker {
            place,
            stage: MarkerStage::Unwritten,
        });
        Finishing {
            markers: markers.collect(),
            finish,
            partition,
            durable_at,
            decision: None,
            due: Some(Moment::from_nanos(0)),
            failures: 0,
        }
    }

    pub fn due(&self) -> Option<Moment> {
        self.due
    }

    pub fn producer(&self) -> Producer {
        (self.finish.producer_id, self.finish.producer_epoch)
    }

    /// The partitions whose markers are not durable yet.
    pub fn unfinished(&self) -> impl Iterator<Item = &Place> {
        let open = self
            .markers
            .iter()
            .filter(|marker| !matches!(marker.stage, MarkerStage::Done));
        open.map(|marker| &marker.place)
    }

    /// Goes on as far as possible. Appends, but never waits for the disk.
    ///
    /// - `waker`: woken when a wait ends.
    pub fn advance(&mut self, storage: &Storage, groups: &Groups, waker: &Waker) -> Progress {
        self.due = None;
        if !self.is_decision_durable(waker) {
            return match self.partition.failure() {
                None => Progress::Waiting,
                Some(_) => Progress::Lost,
            };
        }
        let decision = Decision {
            finish: &self.finish,
            // Raised at every start: it fences a coordinator that has been replaced.
            coordinator_epoch: self.partition.leader_epoch(),
        };
        let mut is_refused = false;
        for marker in &mut self.markers {
            is_refused |= !marker.advance(&decision, storage, groups, waker);
        }
        if is_refused {
            let delay_ms = RETRY_MS << self.failures.min(16);
            self.failures += 1;
            self.due = Some(
                storage
                    .services
                    .clock
                    .moment()
                    .after_ms(delay_ms.min(RETRY_MS_MAX)),
            );
        }
        match self.unfinished().next() {
            None => Progress::Done,
            Some(_) => Progress::Waiting,
        }
    }

    fn is_decision_durable(&mut self, waker: &Waker) -> bool {
        if self.partition.high_watermark() < self.durable_at && self.decision.is_none() {
            let token = self.partition.wait_for_high_watermark(self.durable_at, waker);
            self.decision = Some(token);
        }
        self.partition.high_watermark() >= self.durable_at
    }
}

impl Marker {
    /// False: the partition took no marker; try again.
    fn advance(
        &mut self,
        decision: &Decision<'_>,
        storage: &Storage,
        groups: &Groups,
        waker: &Waker,
    ) -> bool {
        if let MarkerStage::Unwritten = self.stage {
            match append(decision, &self.place, storage, groups) {
                Ok((partition, appended)) => {
                    let required = appended.last_offset + 1;
                    let token = partition.wait_for_high_watermark(required, waker);
                    self.stage = MarkerStage::Waiting {
                        partition,
                        required,
                        _token: token,
                    };
                }
                // The topic was deleted, and the records with it.
                Err(ErrorCode::UnknownTopicOrPartition) => self.stage = MarkerStage::Done,
                Err(code) => return self.is_needless(decision.finish, storage, code),
            }
        }
        if let MarkerStage::Waiting {
            partition, required, ..
        } = &self.stage
        {
            if partition.high_watermark() >= *required {
                self.stage = MarkerStage::Done;
            } else {
                match partition.failure() {
                    None => {}
                    Some(Failure::Deleted) => self.stage = MarkerStage::Done,
                    Some(Failure::Storage(_)) => {
                        self.stage = MarkerStage::Unwritten;
                        return false;
                    }
                }
            }
        }
        true
    }

    /// A marker that is refused because of its epoch contradicts the partition's own log. It is
    /// given up only if it would end nothing.
    fn is_needless(&mut self, finish: &Finish, storage: &Storage, code: ErrorCode) -> bool {
        let is_contradiction = matches!(
            code,
            ErrorCode::InvalidProducerEpoch | ErrorCode::TransactionCoordinatorFenced
        );
        if !is_contradiction {
            return false;
        }
        let (topic, partition) = (&*self.place.0, self.place.1);
        let found = storage.partition_by_name(topic, partition);
        let is_open = found.is_ok_and(|partition| {
            partition.with_log(|log| {
                let mut open = log.open_transactions().into_iter();
                open.any(|producer| producer.producer_id == finish.producer_id)
            })
        });
        let (id, producer_id, epoch) = (&*finish.id, finish.producer_id, finish.producer_epoch);
        error!(
            topic,
            partition,
            id,
            producer_id,
            epoch,
            ?code,
            is_open,
            "a partition refuses the marker of a decided transaction"
        );
        if !is_open {
            self.stage = MarkerStage::Done;
        }
        !is_open
    }
}

fn append(
    decision: &Decision<'_>,
    place: &Place,
    storage: &Storage,
    groups: &Groups,
) -> Result<(Arc<Partition>, Appended), ErrorCode> {
    let finish = decision.finish;
    let (topic, index) = (&*place.0, place.1);
    let partition = storage.partition_by_name(topic, index)?;
    let marker = TransactionMarker {
        producer_id: finish.producer_id,
        producer_epoch: finish.producer_epoch,
        result: match finish.is_commit {
            true => TransactionResult::Commit,
            false => TransactionResult::Abort,
        },
        coordinator_epoch: decision.coordinator_epoch,
    };
    if topic == OFFSETS_TOPIC {
        return groups.complete_transaction(storage, index, marker, finish.transaction_version);
    }
    let appended = partition.append_marker(&storage.services, marker, finish.transaction_version)?;
    Ok((partition, appended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_a_machine_that_was_dropped_do_not_come_back() {
        let mut orders = Orders::default();
        orders.push(1);
        let (generation, taken) = orders.take();
        assert!(orders.put_back(generation, taken));
        let (generation, taken) = orders.take();
        orders.drop_all();
        orders.push(2);
        assert!(!orders.put_back(generation, taken));
        assert_eq!(orders.take().1, [2]);
    }
}
