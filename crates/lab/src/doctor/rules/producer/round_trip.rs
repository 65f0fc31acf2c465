//! producer 9: does it wait for the round trip?
//!
//! **Asks** whether the way there and back takes most of L, with too little under way at a time.
//! **Numbers**: a measured RTT (stated, TCP_INFO of the broker, or one small request at a time,
//! F10), L, M. `L - D` is an upper bound: it can refute the round trip but proves nothing.
//!
//! **Threshold**: RTT ≥ 0.5 × L. Where batches are full and several requests are in flight, the
//! same number of larger requests carries more, so the limit is the request rate: RTT is named only
//! if it and D explain four fifths of L. The case that showed it: 16 KiB batches, five in flight,
//! RTT 10 of L = 13.5 ms; doubling batch.size raised 64,800 to the wanted 100,000 records/s over
//! the same round trip.
//!
//! **The lever**: one request in flight across a round trip comes first: five keep the order with
//! idempotence and cost nothing (measured: 4.7 to 5.0 times the rate). Then larger requests.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::formulas::ceiling;

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::reading::{Bound, Pipe, Reading, RoundTrip, reaches};
use super::sender_rate::larger_requests;
use super::{IN_FLIGHT, Rule, promise, refusals, rule, silent};
use crate::model::constants::{ORDERED_IN_FLIGHT, ROOM};
use crate::numbers::{number, percent, plain};

pub(crate) const RULE: Rule = rule("producer 9", "Does it wait for the round trip?", ask);

const HALF: f64 = 0.5;
const EXPLAINED: f64 = 0.8;

fn ask(reading: &Reading<'_>) -> Found {
    let pipe = reading.hottest();
    let trip = pipe.and_then(|pipe| reading.round_trip(pipe));
    let numbers = [
        known("RTT", trip.map(|trip| trip.ms), "ms"),
        known("L", pipe.and_then(|pipe| pipe.request_ms), "ms"),
        known("M", Some(reading.settings.in_flight.value), ""),
    ];
    let (Some(pipe), Some(trip), Bound::Pipe) = (pipe, trip, &reading.bound) else {
        return Found::nothing(numbers, "no");
    };
    if !is_most(reading, pipe, trip) {
        return Found::nothing(numbers, "no: it is too small a part of L");
    }
    let allowed = reading.settings.in_flight.value;
    let text = if allowed <= 1.0 {
        format!(
            "Every request waits for the answer to the one before, and {} ms of that is the network's round trip.",
            number(trip.ms)
        )
    } else {
        format!(
            "Requests wait for the network's round trip of {} ms, {} of their time; the ones allowed at a time are all under way.",
            number(trip.ms),
            percent((trip.ms / pipe.request_ms.unwrap_or(trip.ms)).min(1.0))
        )
    };
    Found::verdict(
        numbers,
        Verdict::NetworkRtt,
        confidence(reading, Verdict::NetworkRtt, false),
        text.clone(),
    )
    .finding(FindingId::N4, format!("{text} ({})", trip.origin))
    .recommend(first(reading).or_else(|| larger_requests(reading)))
    .refusals(refusals::of_pipe(reading))
}

/// Whether a measured round trip explains what requests wait for.
pub(crate) fn is_most(reading: &Reading<'_>, pipe: &Pipe<'_>, trip: RoundTrip) -> bool {
    let Some(request_ms) = pipe.request_ms else {
        return false;
    };
    let is_several = reading.settings.in_flight.value > 1.0;
    let broker_ms = pipe.broker.as_ref().and_then(|broker| broker.ms).unwrap_or(0.0);
    let is_explained = reaches((trip.ms + broker_ms) / request_ms, EXPLAINED);
    is_half(pipe, trip) && (!is_several || !reading.has_full_batches() || is_explained)
}

/// Whether a measured round trip is at least half of a request's time.
pub(crate) fn is_half(pipe: &Pipe<'_>, trip: RoundTrip) -> bool {
    pipe.request_ms
        .is_some_and(|request_ms| reaches(trip.ms / request_ms, HALF))
}

/// How many requests in flight are useful, `1 + RTT / D` (F14); none without a round trip.
pub(crate) fn useful_in_flight(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<f64> {
    let is_silent = !reading.has_own_numbers();
    let trip = reading
        .round_trip(pipe)
        .or_else(|| is_silent.then(|| silent::round_trip(reading, pipe)).flatten())?;
    let broker_ms = pipe
        .broker
        .as_ref()
        .map(|broker| broker.ms.unwrap_or(broker.ms_at_most));
    Some(match broker_ms {
        Some(broker_ms) if broker_ms > 0.0 => ceiling::in_flight_useful(trip.ms, broker_ms),
        _ => f64::INFINITY,
    })
}

/// One to four in flight across a round trip: raise to five first.
pub(crate) fn first(reading: &Reading<'_>) -> Option<Recommendation> {
    (reading.settings.in_flight.value < ORDERED_IN_FLIGHT)
        .then(|| in_flight(reading, ORDERED_IN_FLIGHT))
        .flatten()
}

/// More than idempotence keeps in order, for a client that does without it: the others refuse to
/// start with more.
pub(crate) fn later(reading: &Reading<'_>) -> Option<Recommendation> {
    let allowed = reading.settings.in_flight.value;
    (allowed > ORDERED_IN_FLIGHT && allowed <= 1_000.0)
        .then(|| in_flight(reading, 2.0 * allowed))
        .flatten()
}

fn in_flight(reading: &Reading<'_>, wanted: f64) -> Option<Recommendation> {
    let pipe = reading.hottest()?;
    let allowed = reading.settings.in_flight.value;
    let useful = useful_in_flight(reading, pipe)?;
    // RTT ≥ D, and room below 1 + RTT / D. Without a known D, five is the most that can be
    // recommended.
    let is_known = useful.is_finite() || wanted <= ORDERED_IN_FLIGHT;
    if useful < 2.0 || allowed >= ROOM * useful || !is_known {
        return None;
    }
    let next = wanted.min(useful.floor()).max(allowed + 1.0).floor();
    let (promise, next_ceiling) = promise::more_in_flight(reading, next)?;
    if promise.high < 1.05 * promise.now.unwrap_or(0.0) {
        return None;
    }
    let cost = if next <= ORDERED_IN_FLIGHT {
        "order holds with enable.idempotence=true"
    } else {
        "without idempotence, which five in flight would allow, retries can reorder and duplicate records"
    };
    Some(Recommendation {
        set: format!("{IN_FLIGHT}={}", plain(next)),
        why: format!(
            "{} in flight wait for the round trip; up to {} are of use (1 + RTT / D, F14)",
            number(allowed),
            if useful.is_finite() {
                number(useful)
            } else {
                "as many as the window holds".to_owned()
            }
        ),
        promise,
        next_ceiling,
        cost: cost.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Library};

    /// One request at a time over 40 ms, as our own client pushes it: with its turn between two of
    /// them the pipe is used to 0.82. With five the same client sent 1,482.
    #[test]
    fn one_request_at_a_time_is_found_with_a_turn_of_the_client_between_them() {
        let row = Row {
            records: 297.0,
            requests: 19.8,
            request_bytes: 15_600.0,
            batch: 15_500.0,
            records_per_request: 15.0,
            latency: 41.4,
            queue: Some(9_000.0),
            queue_max: 14_000.0,
            buffer_wait: Some(0.8),
            in_flight_seen: 1.0,
            partitions: 1.0,
            thread: Some((0.93, 0.02)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.client.library = Library::Ottla;
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(19.8),
            total_micros: Some(900.0),
            round_trip_ms: Some(40.1),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkRtt, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "max.in.flight.requests.per.connection=5");
        let promise = change.promise;
        assert!(promise.low <= 1_482.0 && 1_482.0 <= promise.high, "{promise:?}");
        assert!(promise.high <= 2.0 * promise.low, "{promise:?}");
    }
}
