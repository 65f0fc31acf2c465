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

use super::backoff::{Backoff, Refusal};
use super::request::{Finish, Producer};
use super::state::Place;
use crate::group::{Groups, OFFSETS_TOPIC};
use crate::partition::{Appended, Failure, Partition, WaitToken};
use crate::storage::Storage;
use crate::time::Moment;

/// A decided transaction.
pub(super) struct Finishing {
    pub finish: Finish,
    /// The coordinator's own partition, and where the decision ends in it.
    partition: Arc<Partition>,
    durable_at: i64,
    decision: Option<WaitToken>,
    markers: Vec<Marker>,
    backoff: Backoff,
    began: Moment,
    /// When the decision was found to be durable.
    decided: Option<Moment>,
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
    pub fn new(finish: Finish, partition: Arc<Partition>, durable_at: i64, now: Moment) -> Finishing {
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
            backoff: Backoff::due_now(),
            began: now,
            decided: None,
        }
    }

    /// When to look again; `None`: a wake-up tells.
    pub fn due(&self) -> Option<Moment> {
        self.backoff.due()
    }

    /// When the transaction was decided, and when that was durable.
    pub fn moments(&self) -> (Moment, Moment) {
        (self.began, self.decided.unwrap_or(self.began))
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
        let now = storage.services.clock.moment();
        let is_due = self.backoff.take(now);
        if !self.is_decision_durable(waker) {
            return match self.partition.failure() {
                None => Progress::Waiting,
                Some(_) => Progress::Lost,
            };
        }
        self.decided.get_or_insert(now);
        let decision = Decision {
            finish: &self.finish,
            // Raised at every start: it fences a coordinator that has been replaced.
            coordinator_epoch: self.partition.leader_epoch(),
        };
        let mut refusal = None;
        for marker in &mut self.markers {
            // A wake-up is about some other marker, or some other transaction.
            if is_due || !marker.is_unwritten() {
                let advanced = marker.advance(&decision, storage, groups, waker);
                refusal = refusal.max(advanced.err());
            }
        }
        if let Some(refusal) = refusal {
            self.backoff.refused(now, refusal);
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
    fn is_unwritten(&self) -> bool {
        matches!(self.stage, MarkerStage::Unwritten)
    }

    /// - Errors: the partition took no marker; try again.
    fn advance(
        &mut self,
        decision: &Decision<'_>,
        storage: &Storage,
        groups: &Groups,
        waker: &Waker,
    ) -> Result<(), Refusal> {
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
                Err(ErrorCode::NotLeaderOrFollower) => return Err(Refusal::Loading),
                Err(code) if self.is_needless(decision.finish, storage, code) => {
                    self.stage = MarkerStage::Done;
                }
                Err(_) => return Err(Refusal::Refused),
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
                        return Err(Refusal::Refused);
                    }
                }
            }
        }
        Ok(())
    }

    /// A marker that is refused because of its epoch contradicts the partition's own log. It is
    /// given up only if it would end nothing.
    fn is_needless(&self, finish: &Finish, storage: &Storage, code: ErrorCode) -> bool {
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
