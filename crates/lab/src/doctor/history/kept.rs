//! A verdict is kept until something that it was made from changes: the client pushes again, or a
//! broker sees something else of it.

use std::sync::Arc;

use super::super::diagnosis::{Diagnosis, Seen, Verdict};
use super::super::promises::Sighting;
use super::super::rules;
use super::super::snapshot::Snapshot;
use super::Observed;

/// A diagnosis, and what its client adds to the sums.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub seen: Seen,
    pub diagnosis: Arc<Diagnosis>,
    /// What the ledger of promises reads of it.
    pub sighting: Arc<Sighting>,
}

impl Judged {
    pub fn of(snapshot: &Snapshot) -> Judged {
        let diagnosis = rules::examine(snapshot);
        Judged {
            seen: Seen::of(snapshot),
            sighting: Arc::new(Sighting::of(snapshot, &diagnosis)),
            diagnosis: Arc::new(diagnosis),
        }
    }
}

/// What a verdict was made from, and the verdict.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The number of the client's pushes; 0 for a client that pushes nothing.
    pushes: u64,
    /// Brokers' observations; holding them keeps their addresses from being used again.
    sides: Vec<Arc<Observed>>,
    judged: Judged,
}

impl Kept {
    /// `None`: the words count the seconds to the next push, and change with time.
    pub fn new(pushes: u64, sides: Vec<Arc<Observed>>, judged: &Judged) -> Option<Kept> {
        let is_timeless = judged.diagnosis.verdict != Verdict::NotEnoughData;
        is_timeless.then(|| Kept {
            pushes,
            sides,
            judged: judged.clone(),
        })
    }

    /// The verdict, if it would be made from the same things.
    pub fn judged(&self, pushes: u64, sides: &[Arc<Observed>]) -> Option<&Judged> {
        let is_same = self.pushes == pushes
            && self.sides.len() == sides.len()
            && self
                .sides
                .iter()
                .zip(sides)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        is_same.then_some(&self.judged)
    }
}
