//! A verdict is a pure function of a snapshot: it is kept until something in the snapshot changes.

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
    /// The verdict on a snapshot, made anew unless the last one was made from the same numbers.
    pub fn of(snapshot: &mut Snapshot, last: Option<&Kept>) -> Judged {
        if let Some(judged) = last.and_then(|kept| kept.again(snapshot)) {
            return judged;
        }
        let diagnosis = rules::examine(snapshot);
        Judged {
            seen: Seen::of(snapshot),
            sighting: Arc::new(Sighting::of(snapshot, &diagnosis)),
            diagnosis: Arc::new(diagnosis),
        }
    }
}

/// What a snapshot is made from: while these are the same, no snapshot needs to be made.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    /// The number of the client's pushes; 0 for a client that pushes nothing.
    pub pushes: u64,
    /// A push is due for so long that the client counts as silent: time alone makes it true.
    pub is_overdue: bool,
    /// Brokers' observations; holding them keeps their addresses from being used again.
    pub sides: Vec<Arc<Observed>>,
}

impl Inputs {
    fn are_those_of(&self, other: &Inputs) -> bool {
        let is_same = |(one, other): (&Arc<Observed>, &Arc<Observed>)| Arc::ptr_eq(one, other);
        self.pushes == other.pushes
            && self.is_overdue == other.is_overdue
            && self.sides.len() == other.sides.len()
            && self.sides.iter().zip(&other.sides).all(is_same)
    }
}

/// What a verdict was made from, and the verdict.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    inputs: Inputs,
    snapshot: Snapshot,
    judged: Judged,
}

impl Kept {
    /// `None`: the words count the seconds to the next push, and change with time.
    pub fn new(inputs: Inputs, snapshot: Snapshot, judged: Judged) -> Option<Kept> {
        let is_timeless = judged.diagnosis.verdict != Verdict::NotEnoughData;
        is_timeless.then_some(Kept {
            inputs,
            snapshot,
            judged,
        })
    }

    /// The verdict, if it would be made from the same things.
    pub fn judged(&self, inputs: &Inputs) -> Option<&Judged> {
        self.inputs.are_those_of(inputs).then_some(&self.judged)
    }

    /// The verdict, if a newer push left all numbers as they were: when it came is all that
    /// differs, and no rule reads that.
    fn again(&self, snapshot: &mut Snapshot) -> Option<Judged> {
        let (before, now) = (self.snapshot.telemetry, snapshot.telemetry);
        if before.seconds_until_next_push.is_some() != now.seconds_until_next_push.is_some() {
            return None;
        }
        snapshot.telemetry.heard_ms = before.heard_ms;
        snapshot.telemetry.seconds_until_next_push = before.seconds_until_next_push;
        let is_same = *snapshot == self.snapshot;
        snapshot.telemetry = now;
        is_same.then(|| {
            let mut judged = self.judged.clone();
            Arc::make_mut(&mut judged.sighting).heard_ms = now.heard_ms;
            judged
        })
    }
}
