//! The score of the doctor's promises, kept by whoever holds the clients' history.

use super::super::promises::{Promises, Sighting};
use super::kept::Judged;
use super::{Collector, lock};

impl Collector {
    /// Examines every client for the ledger of promises. Called regularly, so that a promise is
    /// made and decided whether or not anyone asks for the diagnoses.
    pub fn keep_score(&self, at_ms: i64) {
        // A client of which nothing has changed says nothing new about a promise.
        let sightings = self.each(
            at_ms,
            |_| Some(None),
            |snapshot| {
                let judged = Judged::of(&snapshot);
                (Some(Sighting::of(&snapshot, &judged.diagnosis)), Some(judged))
            },
        );
        lock(&self.ledger).look(at_ms, sightings.into_iter().flatten().collect());
    }

    /// Returns the promises that are open, and those that were decided.
    pub fn promises(&self, at_ms: i64) -> Promises {
        lock(&self.ledger).document(at_ms)
    }
}
