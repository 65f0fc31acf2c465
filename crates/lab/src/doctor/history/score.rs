//! The score of the doctor's promises, kept beside the clients' history.

use std::sync::Arc;

use super::super::promises::Promises;
use super::{Collector, lock};

impl Collector {
    /// Examines every client for the ledger of promises. Called regularly, so that a promise is
    /// made and decided whether or not anyone asks for the diagnoses. Runs on this thread alone.
    pub fn keep_score(&self, at_ms: i64) {
        let sightings = self.judge(1, at_ms, |judged| Arc::clone(&judged.sighting));
        lock(&self.ledger).look(at_ms, &sightings);
    }

    /// Returns the promises that are open, and those that were decided.
    pub fn promises(&self, at_ms: i64) -> Promises {
        lock(&self.ledger).document(at_ms)
    }
}
