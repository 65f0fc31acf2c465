//! A verdict is kept until something that it was made from changes: the client says something new
//! or falls silent, or a broker sees something else of it.

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

/// What a snapshot is made from.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// The number of the client's pushes that said something new; 0 for a client that pushes
    /// nothing.
    pub news: u64,
    /// No push has come for several intervals, and the client counts as silent: time alone makes it
    /// true.
    pub is_overdue: bool,
    /// Brokers' observations; holding them keeps their addresses from being used again.
    pub sides: Vec<Arc<Observed>>,
}

impl Inputs {
    fn are(&self, other: &Inputs) -> bool {
        let is_same = |(one, other): (&Arc<Observed>, &Arc<Observed>)| Arc::ptr_eq(one, other);
        self.news == other.news
            && self.is_overdue == other.is_overdue
            && self.sides.len() == other.sides.len()
            && self.sides.iter().zip(&other.sides).all(is_same)
    }
}

/// What a verdict was made from, and the verdict.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    inputs: Inputs,
    judged: Judged,
}

impl Kept {
    /// `None`: the words count the seconds to the next push, and change with time.
    pub fn new(inputs: Inputs, judged: Judged) -> Option<Kept> {
        let is_timeless = judged.diagnosis.verdict != Verdict::NotEnoughData;
        is_timeless.then_some(Kept { inputs, judged })
    }

    /// The verdict, if it would be made from the same things.
    pub fn judged(&self, inputs: &Inputs) -> Option<&Judged> {
        self.inputs.are(inputs).then_some(&self.judged)
    }

    /// Notes when the last push came: the ledger of promises waits for pushes, new or not.
    pub fn heard(&mut self, at_ms: Option<i64>) {
        if self.judged.sighting.heard_ms != at_ms {
            Arc::make_mut(&mut self.judged.sighting).heard_ms = at_ms;
        }
    }
}
