//! Finds transactions that are complete, and still open in a partition.
//!
//! Markers are durable before a transaction is complete, so their loss is damage, or a power cut
//! with `ottla.durability=page-cache`: the newest batch of a partition was cut off as an unfinished
//! append. Left open, its records would be decided by the producer's next marker, which is that of
//! another transaction. The coordinator's log still tells the outcome.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_log::{ActiveProducer, FoundMarker, LogError};
use tracing::warn;

use super::machine::Machine;
use super::record::TransactionRecord;
use super::state::{EPOCH_PER_TRANSACTION, Place, Status, TransactionState};
use crate::partition::Partition;
use crate::storage::Storage;
use crate::time::Timestamp;

/// The transactions that are open in partitions, and what the coordinator's log tells of their
/// producers there.
#[derive(Default)]
pub(super) struct LostMarkers {
    by_producer: BTreeMap<i64, Vec<Open>>,
}

struct Open {
    partition: Arc<Partition>,
    producer: ActiveProducer,
    decisions: Vec<Decision>,
}

/// Decisions of a producer about transactions with a partition: one, or several in a row with the
/// same outcome.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    pub id: Arc<str>,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub client_version: i16,
    pub is_commit: bool,
    /// When the first one was made, and the last one.
    first: Timestamp,
    last: Timestamp,
}

impl LostMarkers {
    /// Takes the transactions that are open now.
    pub fn of(storage: &Storage) -> LostMarkers {
        let mut by_producer: BTreeMap<i64, Vec<Open>> = BTreeMap::new();
        for partition in storage.partitions.all() {
            for producer in partition.with_log(|log| log.open_transactions()) {
                by_producer.entry(producer.producer_id).or_default().push(Open {
                    partition: partition.clone(),
                    producer,
                    decisions: Vec::new(),
                });
            }
        }
        LostMarkers { by_producer }
    }

    /// Notes a record of the coordinator's log, in the order of the log.
    pub fn note(&mut self, record: &TransactionRecord) {
        let Some(state) = record.state.as_ref().filter(|state| state.status.is_prepared()) else {
            return;
        };
        for open in self.by_producer.get_mut(&state.producer_id).into_iter().flatten() {
            if state.partitions.contains(&open.place()) {
                open.note(Decision::of(&record.id, state));
            }
        }
    }

    /// Has the machine write the markers that are missing. Call when the whole log has been
    /// replayed without damage.
    pub fn restore(self, machine: &mut Machine) {
        for open in self.by_producer.into_values().flatten() {
            let place = open.place();
            let (topic, partition, producer_id) = (&*place.0, place.1, open.producer.producer_id);
            let newest = open.decisions.last();
            // The transaction is open, or its marker was not written before the stop.
            if !newest.is_some_and(|newest| machine.wants_no_marker(&newest.id, &place)) {
                continue;
            }
            let decision = match open.decision() {
                Ok(Some(decision)) => decision,
                Ok(None) => continue,
                Err(error) => {
                    warn!(topic, partition, producer_id, %error, "cannot tell whether the marker of a transaction is missing");
                    continue;
                }
            };
            if machine.decide_again(decision, place.clone()) {
                let (id, is_commit) = (&*decision.id, decision.is_commit);
                warn!(
                    topic,
                    partition,
                    producer_id,
                    id,
                    is_commit,
                    "the marker of a complete transaction is missing: it is written again"
                );
            }
        }
    }
}

impl Decision {
    fn of(id: &Arc<str>, state: &TransactionState) -> Decision {
        Decision {
            id: id.clone(),
            producer_id: state.producer_id,
            producer_epoch: state.producer_epoch,
            client_version: state.client_version,
            is_commit: state.status == Status::PrepareCommit,
            first: state.updated,
            last: state.updated,
        }
    }

    fn has_own_epoch(&self) -> bool {
        self.client_version >= EPOCH_PER_TRANSACTION
    }

    fn is_like(&self, other: &Decision) -> bool {
        (&self.id, self.producer_epoch, self.client_version, self.is_commit)
            == (
                &other.id,
                other.producer_epoch,
                other.client_version,
                other.is_commit,
            )
    }

    /// Whether the epochs allow that this ends a transaction at `epoch`. Markers raise it
    /// (KIP-890); before that, only an abort by others than the producer did.
    fn may_end(&self, epoch: i16) -> bool {
        let is_next = epoch.checked_add(1) == Some(self.producer_epoch);
        is_next || !self.has_own_epoch() && self.producer_epoch == epoch
    }
}

impl Open {
    fn place(&self) -> Place {
        (self.partition.topic.clone(), self.partition.index)
    }

    fn note(&mut self, decision: Decision) {
        if !decision.may_end(self.producer.producer_epoch) {
            return;
        }
        push(&mut self.decisions, decision);
    }

    /// Returns the decision about this transaction, if one was made. Waits for the disk.
    ///
    /// - Errors: damage may hide the marker of an earlier transaction.
    fn decision(&self) -> Result<Option<&Decision>, LogError> {
        let Some(newest) = self.decisions.last() else {
            return Ok(None);
        };
        if newest.has_own_epoch() {
            return Ok(Some(newest));
        }
        let producer = &self.producer;
        let (reader, start) = self.partition.with_log(|log| (log.reader(), log.start_offset()));
        let marker = reader.last_marker(producer.producer_id, producer.transaction_first_offset)?;
        match marker {
            Some(marker) => Ok(behind(&self.decisions, marker)),
            // It may be gone with the records that were deleted.
            None if start > 0 => Ok(None),
            None => Ok(self.decisions.first()),
        }
    }
}

fn push(decisions: &mut Vec<Decision>, decision: Decision) {
    match decisions.last_mut() {
        Some(last) if last.is_like(&decision) => last.last = decision.last,
        _ => decisions.push(decision),
    }
}

/// Returns the decision behind the one that a marker is of. Without epochs of their own, an open
/// transaction may also be one that was begun after the last decision. A marker is not older than
/// its decision, and not younger than the next one.
fn behind(decisions: &[Decision], marker: FoundMarker) -> Option<&Decision> {
    let is_its =
        |decision: &Decision| decision.is_commit == marker.is_commit && decision.first.0 <= marker.timestamp;
    let found = match decisions.iter().rposition(is_its) {
        Some(index) if decisions[index].last.0 > marker.timestamp => decisions.get(index),
        Some(index) => decisions.get(index + 1),
        None => decisions.first(),
    };
    found.filter(|decision| decision.last.0 >= marker.timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decisions(made: &[(bool, i64)]) -> Vec<Decision> {
        let decision = |(is_commit, time): &(bool, i64)| Decision {
            id: "billing".into(),
            producer_id: 7,
            producer_epoch: 0,
            client_version: 0,
            is_commit: *is_commit,
            first: Timestamp(*time),
            last: Timestamp(*time),
        };
        let mut all: Vec<Decision> = Vec::new();
        for made in made {
            push(&mut all, decision(made));
        }
        all
    }

    fn outcome(made: &[(bool, i64)], is_commit: bool, timestamp: i64) -> Option<bool> {
        let marker = FoundMarker { timestamp, is_commit };
        let decisions = decisions(made);
        behind(&decisions, marker).map(|decision| decision.is_commit)
    }

    #[test]
    fn the_outcome_is_that_of_the_decision_behind_the_last_marker() {
        const COMMIT: bool = true;
        const ABORT: bool = false;
        let made = [(COMMIT, 10), (COMMIT, 20), (ABORT, 30), (COMMIT, 40)];
        assert_eq!(outcome(&made, COMMIT, 10), Some(COMMIT));
        assert_eq!(outcome(&made, COMMIT, 15), Some(COMMIT));
        assert_eq!(outcome(&made, COMMIT, 21), Some(ABORT));
        assert_eq!(outcome(&made, COMMIT, 30), Some(ABORT), "in one millisecond");
        assert_eq!(outcome(&made, ABORT, 30), Some(COMMIT));
        assert_eq!(outcome(&made, ABORT, 40), Some(COMMIT), "in one millisecond");
        // All decisions have their markers: what is open was begun later.
        assert_eq!(outcome(&made, COMMIT, 40), None);
        assert_eq!(outcome(&made, COMMIT, 50), None);
        // An administrator's.
        assert_eq!(outcome(&made, ABORT, 50), None);
        assert_eq!(outcome(&made, ABORT, 5), Some(COMMIT));
        // Which of the two is the marker's is not known.
        assert_eq!(outcome(&[(COMMIT, 10), (COMMIT, 10)], COMMIT, 10), None);
        assert_eq!(outcome(&[], COMMIT, 10), None);
    }
}
