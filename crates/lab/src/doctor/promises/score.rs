//! Whether a promise was kept, and if not, why: a pure comparison of two windows.

use serde::{Deserialize, Serialize};

use super::super::snapshot::Host;
use super::range::is_better_when_lower;
use super::sighting::{Sighting, Terms};
use crate::numbers::{number, percent};

/// A figure this far from the range is still within it: two windows of one client differ by as
/// much.
pub const TOLERANCE: f64 = 0.1;

/// A load that differs by more than this share is another load.
const OTHER_LOAD: f64 = 0.2;

/// The latency of requests counts as unchanged up to this factor.
const SAME_LATENCY: f64 = 1.2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// The client has not come back with the setting.
    #[default]
    Open,
    /// It has; its new window is not complete.
    Measuring,
    Kept,
    /// Kept, and better than promised.
    Exceeded,
    NotKept,
    /// The load was another one, or another value was set.
    NotTested,
    /// It came back, and nothing shows whether it has the setting.
    Unknown,
}

impl Score {
    pub fn name(self) -> &'static str {
        match self {
            Score::Open => "open",
            Score::Measuring => "measuring",
            Score::Kept => "kept",
            Score::Exceeded => "kept, and more",
            Score::NotKept => "not kept",
            Score::NotTested => "not tested",
            Score::Unknown => "unknown whether applied",
        }
    }

    pub fn is_decided(self) -> bool {
        !matches!(self, Score::Open | Score::Measuring)
    }

    pub fn is_kept(self) -> bool {
        matches!(self, Score::Kept | Score::Exceeded)
    }
}

/// A comparison's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub score: Score,
    pub measured: Option<f64>,
    /// Why it was not kept or not tested; empty if kept.
    pub because: String,
}

/// Compares the promised figure with the one measured after the change.
pub fn judge(terms: &Terms, now: &Sighting) -> Judgement {
    let promise = &terms.offer.promise;
    let Some(measured) = now.figures.named(&promise.figure) else {
        return Judgement {
            score: Score::NotTested,
            measured: None,
            because: format!(
                "nothing measures its {} any more",
                promise.figure.replace('_', " ")
            ),
        };
    };
    let is_lower = is_better_when_lower(promise);
    let is_below = measured < promise.low * (1.0 - TOLERANCE);
    let is_above = measured > promise.high * (1.0 + TOLERANCE);
    let (is_worse, is_more) = match is_lower {
        true => (is_above, is_below),
        false => (is_below, is_above),
    };
    let (score, because) = match (other_load(terms, now, is_lower, is_worse), is_worse) {
        (Some(because), _) => (Score::NotTested, because),
        (None, true) => (Score::NotKept, reasons(terms, now)),
        (None, false) if is_more => (Score::Exceeded, String::new()),
        (None, false) => (Score::Kept, String::new()),
    };
    Judgement {
        score,
        measured: Some(measured),
        because,
    }
}

/// Why the new window says nothing about the promise: it was made about another load.
fn other_load(terms: &Terms, now: &Sighting, is_lower: bool, is_worse: bool) -> Option<String> {
    let promise = &terms.offer.promise;
    let rate = now.figures.records_per_second;
    if is_lower {
        // Less to do makes every latency and every number of requests smaller.
        let (before, after) = terms.before.records_per_second.zip(rate)?;
        let is_other = match is_worse {
            true => after > before * (1.0 + OTHER_LOAD),
            false => after < before * (1.0 - OTHER_LOAD),
        };
        return is_other.then(|| {
            format!(
                "the client carries {} records/s, {} when it was promised",
                number(after),
                number(before)
            )
        });
    }
    if !is_worse {
        return None;
    }
    let is_of_records = promise.figure == "records_per_second";
    let offered = now.figures.offered_records_per_second.filter(|_| is_of_records);
    if let Some(offered) = offered.filter(|offered| *offered < promise.low * (1.0 - TOLERANCE)) {
        return Some(format!(
            "the client offers less than promised: {} records/s",
            number(offered)
        ));
    }
    now.is_well.then(|| {
        format!(
            "the client offers less than promised, and nothing limits it: {}",
            verdict(now)
        )
    })
}

/// Everything that the new diagnosis has against the promise, the verdict last.
fn reasons(terms: &Terms, now: &Sighting) -> String {
    let mut reasons: Vec<String> = now.exhausted.iter().map(exhausted).collect();
    reasons.extend(other_latency(terms, now));
    reasons.push(verdict(now));
    reasons.join("; ")
}

fn verdict(now: &Sighting) -> String {
    match now.sentence.trim_end_matches('.') {
        "" => now.verdict.name().to_owned(),
        sentence => format!("{}: {sentence}", now.verdict.name()),
    }
}

fn other_latency(terms: &Terms, now: &Sighting) -> Option<String> {
    if !terms.offer.promise.assumption.contains("unchanged") {
        return None;
    }
    let (before, after) = terms.before.request_ms.zip(now.figures.request_ms)?;
    (after > SAME_LATENCY * before).then(|| {
        format!(
            "a request takes {} ms, {} when it was promised, and the promise assumed that unchanged",
            number(after),
            number(before)
        )
    })
}

fn exhausted(host: &Host) -> String {
    let shares = [
        (host.used, "used"),
        (host.waiting, "of the time something waits for one"),
        (host.stolen, "taken by the hypervisor"),
    ];
    let shares = shares.into_iter().filter_map(|(share, what)| {
        let share = share.filter(|share| share.is_finite() && *share > 0.0)?;
        Some(format!("{} {what}", percent(share)))
    });
    format!(
        "the machine has no processor left ({})",
        shares.collect::<Vec<String>>().join(", ")
    )
}
