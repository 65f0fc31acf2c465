//! producer 11: does every record wait for the answer to the one before?
//!
//! **Threshold**: records outstanding, X_r × (q + L), equal T within 15 %, and requests hold no
//! more records than there are threads (T unknown: one) (F28, O1). It is asked before small
//! requests: a sender that waits for each answer has one record in a request too.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::used::UsedNumbers;
use crate::formulas::ceiling;

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Reading, positive};
use super::{LINGER, Rule, refusals, rule};
use crate::model::ceilings::cut;
use crate::numbers::number;

pub(crate) const RULE: Rule = rule(
    "producer 11",
    "Does every record wait for the answer to the one before?",
    ask,
);

const NEAR: f64 = 0.15;

fn ask(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("X_r", reading.records_per_second, "records/s"),
        known("n_req", reading.records_per_request, ""),
        known("T", reading.threads, ""),
    ];
    match one_at_a_time(reading) {
        Some(expected) if reading.bound == Bound::Source => found(reading, numbers, expected),
        _ => Found::nothing(numbers, "no"),
    }
}

/// What threads send that wait for each answer, where that is the rate (F28).
fn one_at_a_time(reading: &Reading<'_>) -> Option<f64> {
    let rate = reading.records_per_second.filter(|rate| *rate > 0.0)?;
    let request_ms = reading.request_ms?;
    let records = reading.records_per_request?;
    let threads = reading.threads.unwrap_or(1.0);
    // librdkafka does not send the time in the batch: use the answer's time alone, or add the
    // linger.
    let queues = match reading.queue_ms {
        Some(queue_ms) => vec![queue_ms],
        None => vec![0.0, reading.settings.linger_ms.value],
    };
    let expected =
        |queue_ms: f64| ceiling::synchronous_records_per_second(threads, queue_ms, request_ms.max(1e-3));
    let expected = queues
        .into_iter()
        .map(expected)
        .find(|expected| (rate / expected - 1.0).abs() <= NEAR)?;
    (records <= threads.max(1.0) * 1.05).then_some(expected)
}

/// The verdict, also for a client whose broker alone speaks.
pub(crate) fn found(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>, expected: f64) -> Found {
    let text = format!(
        "Every record waits for the answer to the one before: {} records/s is what that allows.",
        number(expected)
    );
    Found::verdict(
        numbers,
        Verdict::Synchronous,
        confidence(reading, Verdict::Synchronous, false),
        text.clone(),
    )
    .finding(FindingId::O1, text)
    .recommend(recommend(reading))
    .refuse(
        super::BATCH,
        "a batch of one record at a time does not fill, whatever its size",
    )
    .refusals(refusals::unused_in_flight(reading))
}

fn recommend(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let linger_ms = reading.settings.linger_ms.value;
    let request_ms = reading.request_ms.unwrap_or(1_000.0 / now).max(1e-3);
    let wait_ms = reading.queue_ms.unwrap_or(linger_ms);
    let threads = reading.threads.unwrap_or(1.0);
    let at_once = ceiling::synchronous_records_per_second(threads, 0.0, request_ms);
    let without = now * (wait_ms + request_ms) / request_ms;
    let has_linger = linger_ms > 0.0
        && reading
            .queue_ms
            .is_some_and(|queue| queue >= 0.8 * linger_ms.min(1.0));
    if has_linger && wait_ms >= 0.1 * request_ms && without > 1.05 * now {
        return Some(Recommendation {
            set: format!("{LINGER}=0"),
            why: "nothing else fills the batch that a waiting thread has opened; better: use the callback instead of waiting for each answer (O1)".to_owned(),
            promise: promise::records(now, 0.9 * without, without),
            next_ceiling: format!(
                "1000 / L for each thread: {} records/s; asynchronous sending with callbacks lifts that too",
                number(at_once)
            ),
            cost: String::new(),
        });
    }
    let pipe = reading.used().map_or(10.0 * now, |used| now / used.max(0.1));
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link, Kind::Worker]);
    let high = cut(&ceilings, pipe).max(now);
    let mut promise = promise::records(now, 0.8 * high, high);
    if reading.offered.is_none() {
        promise.unknown = Some("how much the application sends when it no longer waits".to_owned());
    }
    Some(Recommendation {
        set: "use the callback of send() instead of waiting for each answer".to_owned(),
        why: "one record is under way at a time, and the round trip is most of its time".to_owned(),
        promise,
        next_ceiling: "the request rate with one record in each request; batches then form by themselves"
            .to_owned(),
        cost: "errors arrive later, in the callback".to_owned(),
    })
}
