//! producer 0: what do the requests of a client say that pushes nothing?
//!
//! **Asks** what a silent client's requests say. A Java client pushes its metrics on the connection
//! that it produces on, and a push needs a free in-flight request: with one in flight and a full
//! pipe no push came in 27 s, nor in 71 s; with five, four to five came in 25 s; with five and
//! callbacks of 2 ms none in 75 s. So one that was asked to push, has one broker to push to, and
//! does not for 2.5 intervals, has all of its requests under way all the time.
//!
//! **Numbers**: only the broker's: gaps between a response and the next request, D, RTT of TCP,
//! request sizes, records per request.
//!
//! **Threshold** (S0): more than 85 % of requests follow the response within 1.3 round trips and 1
//! ms, and two never wait together. `R_max = 1000 / (RTT + D)`. What the one request waits for is
//! answered with the broker's numbers. A synchronous sender looks the same: requests
//! of one small record point to it. One record larger than a batch says nothing.
//!
//! **Where the requests are**: R × (RTT + D) of them are between the client's socket and the
//! broker's answer. If that is less than half a request although all are under way, their answers
//! lie in the client and wait for its sending thread.
//!
//! **No backlog**: one request at a time that takes what has come since the one before has batches
//! that are neither all alike nor full. Then nothing gathers, and the client keeps up. So does one
//! with five under way on average, unless it is known that it cannot have more, or with several
//! that hold one small record each.
//!
//! **The lever** of one request at a time across a round trip is max.in.flight of five; the verdict
//! says itself that it is one.

use crate::doctor::diagnosis::{FindingId, Verdict};
use crate::doctor::used::UsedNumbers;

use super::super::found::Found;
use super::super::inference::{self, BATCH_BYTES, ONE_RECORD};
use super::super::words::known;
use super::evidence::confidence;
use super::reading::{Pipe, Reading, RoundTrip, positive, reaches};
use super::{
    Rule, arrival, bandwidth, broker, promise, refusals, round_trip as trips, rule, sender_thread,
    synchronous, window,
};
use super::{SEND_BUFFER, sender_rate::larger_requests};
use crate::formulas::wire;
use crate::numbers::{bytes, number, plain};

/// Batches of which the mean is this share of the largest are all alike.
const ALIKE: f64 = 0.97;

pub(crate) const RULE: Rule = rule(
    "producer 0",
    "What do its requests say? Only the broker speaks",
    ask,
);

fn ask(reading: &Reading<'_>) -> Found {
    let pipe = reading
        .nodes
        .iter()
        .max_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
    let trip = pipe.and_then(|pipe| round_trip(reading, pipe));
    let numbers = UsedNumbers::from([
        known("R", pipe.map(|pipe| pipe.requests_per_second), "requests/s"),
        known("RTT", trip.map(|trip| trip.ms), "ms"),
        known("D", pipe.and_then(|pipe| reading.broker_ms(pipe)), "ms"),
        known("n_req", reading.records_per_request, ""),
        known("S", reading.request_bytes, "bytes"),
    ]);
    let found = match pipe {
        Some(pipe) => weigh(reading, pipe, trip, numbers.clone()),
        None => None,
    };
    let found = found.unwrap_or_else(|| {
        let text = "Requests follow each other without a pause, and neither the round trip nor the broker explains how long each takes.";
        Found::verdict(numbers, Verdict::SenderRate, confidence(reading, Verdict::SenderRate, true), text.to_owned())
            .recommend(larger_requests(reading))
    });
    if reading.is_always_full() && !reading.is_pinned() {
        return found;
    }
    let suspected = number(reading.settings.in_flight.value);
    found.note(format!(
        "max.in.flight.requests.per.connection = {suspected} is suspected, not known"
    ))
}

/// From the broker's TCP, the owner, or the gap itself: the time from a response to the next
/// request is at least a round trip.
pub(crate) fn round_trip(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<RoundTrip> {
    let side = &pipe.broker.as_ref().map(|broker| &broker.side);
    positive(reading.snapshot.network.round_trip_ms)
        .map(|ms| RoundTrip {
            ms,
            origin: "measured",
            is_end_to_end: true,
        })
        .or_else(|| {
            side.and_then(|side| positive(side.round_trip_ms))
                .map(|ms| RoundTrip {
                    ms,
                    origin: "TCP_INFO of the broker",
                    is_end_to_end: true,
                })
        })
        .or_else(|| {
            reading
                .snapshot
                .brokers
                .iter()
                .find_map(|side| positive(side.gap_ms))
                .map(|ms| RoundTrip {
                    ms,
                    origin: "gap between response and next request",
                    is_end_to_end: true,
                })
        })
}

fn weigh(
    reading: &Reading<'_>,
    pipe: &Pipe<'_>,
    trip: Option<RoundTrip>,
    numbers: UsedNumbers,
) -> Option<Found> {
    let allowed = reading.settings.in_flight.value.max(1.0);
    let under_way = inference::under_way(reading.snapshot);
    let in_flight = match under_way {
        _ if reading.is_pinned() => allowed,
        Some(under_way) if reading.is_always_full() => under_way.round().clamp(1.0, allowed),
        _ => 1.0,
    };
    // The time of each request, by Little's law.
    let cycle_ms = in_flight * 1_000.0 / pipe.requests_per_second.max(1e-6);
    let request = pipe.request_bytes.or(reading.request_bytes);
    let is_one = reading
        .records_per_request
        .is_some_and(|records| records <= ONE_RECORD);
    let says = |verdict, text: String| {
        Found::verdict(numbers.clone(), verdict, confidence(reading, verdict, true), text)
    };
    let several = inference::several_under_way(reading.snapshot).filter(|_| !reading.is_always_full());
    if let Some(count) = several.filter(|_| inference::is_one_record(reading.snapshot)) {
        let text = format!(
            "Requests hold one record each, and {} are under way on average: none waits for the answer to another.",
            number(count)
        );
        return Some(says(Verdict::KeepsUp, text));
    }
    if is_one && in_flight <= 1.0 && request.is_some_and(|bytes| bytes < BATCH_BYTES / 2.0) {
        return Some(synchronous::found(
            reading,
            numbers.clone(),
            1.0,
            pipe.requests_per_second,
        ));
    }
    let broker_ms = pipe.broker.as_ref().and_then(|broker| broker.ms);
    if let Some(broker_ms) = broker_ms.filter(|ms| reaches(ms / cycle_ms, 0.5)) {
        let text = format!(
            "The broker takes {} of the {} ms from one request to the next.",
            number(broker_ms),
            number(cycle_ms)
        );
        return Some(broker::with_cause(reading, pipe, says(Verdict::Broker, text)));
    }
    if let Some(under_way) = under_way.filter(|count| reading.is_always_full() && *count < 0.5) {
        return Some(sender_thread::seen_by_broker(reading, numbers, under_way));
    }
    if let Some(stream) = arrival::full_link(reading) {
        return Some(bandwidth::seen_by_broker(reading, numbers, stream));
    }
    let trip = trip?;
    if let Some(held) = narrow(reading, pipe, request, cycle_ms, trip) {
        let text = format!(
            "Each request takes several round trips: its {} do not fit the connection's window of {}.",
            bytes(request.unwrap_or(0.0)),
            bytes(held)
        );
        let next = inference::power_above(1.5 * request.unwrap_or(held).max(held));
        let change = promise::larger_window(reading, pipe, next, trip.ms, promise::Kind::Receiver);
        let change = change.map(
            |(promise, next_ceiling)| crate::doctor::diagnosis::Recommendation {
                set: format!("{SEND_BUFFER}={}", plain(next)),
                why: "a whole request then crosses in one round trip (F13)".to_owned(),
                promise,
                next_ceiling,
                cost: "kernel memory for each connection; net.core.wmem_max must allow it".to_owned(),
            },
        );
        return Some(
            says(Verdict::NetworkWindow, text.clone())
                .finding(FindingId::N5, text)
                .recommend(change),
        );
    }
    if !reaches(trip.ms / cycle_ms, 0.5) {
        return None;
    }
    let may_have_more = in_flight <= 1.0 || !reading.is_always_full();
    if may_have_more && fills_batches(reading, pipe) == Some(false) {
        let text = match in_flight <= 1.0 {
            true => format!(
                "One request is under way at a time, and each takes the records that have come since the one before: none waits for longer than the {} ms of one.",
                number(cycle_ms)
            ),
            false => format!(
                "{} requests are under way at a time, and their batches are neither full nor alike: no records gather.",
                number(in_flight)
            ),
        };
        return Some(says(Verdict::KeepsUp, text));
    }
    let text = match in_flight <= 1.0 {
        true => format!(
            "Every request waits for the answer to the one before, and {} ms of that is the network's round trip.",
            number(trip.ms)
        ),
        false => format!(
            "Requests wait for the network's round trip of {} ms: {} at a time, as many as may be, are always under way.",
            number(trip.ms),
            number(in_flight)
        ),
    };
    let ceiling = in_flight * 1_000.0 / (trip.ms + broker_ms.unwrap_or(0.0)).max(1e-6);
    let finding = format!(
        "{text} ({}): R_max = M * 1000 / (RTT + D) = {} requests/s, and {} are sent",
        trip.origin,
        number(ceiling),
        number(pipe.requests_per_second)
    );
    Some(
        says(Verdict::NetworkRtt, text)
            .finding(FindingId::N4, finding)
            .recommend(trips::first(reading).or_else(|| larger_requests(reading)))
            .refusals(refusals::of_pipe(reading)),
    )
}

/// Whether batches are as large as they may be, which records that wait for requests make them: all
/// alike, or with no room for another record in a power of two, as batch.size is in practice.
fn fills_batches(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<bool> {
    let side = &pipe.broker.as_ref()?.side;
    let (mean, largest) = (positive(side.batch_bytes)?, positive(side.batch_bytes_max)?);
    let has_no_room = mean + reading.record_bytes()? >= inference::power_above(mean);
    Some(mean >= ALIKE * largest || has_no_room)
}

/// A window that explains the cycle by whole round trips (F13), or by the bytes on the way.
fn narrow(
    reading: &Reading<'_>,
    pipe: &Pipe<'_>,
    request: Option<f64>,
    cycle_ms: f64,
    trip: RoundTrip,
) -> Option<f64> {
    let request = request?;
    let known = window::candidates(reading).into_iter().find(|window| {
        let connection = wire::Connection {
            round_trip_ms: trip.ms,
            window_bytes: window.max(1.0),
            bandwidth_bytes_per_second: f64::INFINITY,
            broker_ms: 0.0,
            in_flight: 1.0,
        };
        let expected_ms = wire::request_ms(&connection, request);
        request > *window && (0.8..=1.25).contains(&(cycle_ms / expected_ms))
    });
    known.or_else(|| Some(window::several_trips(reading, pipe)?.bytes))
}
