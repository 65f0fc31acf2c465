//! S4, last row: no telemetry, but the broker sees requests back to back.
//!
//! **Asks** what a silent client's requests say. A Java client pushes its metrics on the connection
//! that it produces on, and a push needs a free in-flight slot: with one in flight and a full pipe
//! no push came in 27 s, nor in 71 s; with five, four to five came in 25 s.
//!
//! **Numbers**: only the broker's: gaps between a response and the next request, D, RTT of TCP,
//! request sizes, records per request.
//!
//! **Threshold** (S0): more than 85 % of requests follow the response within 1.3 round trips and 1
//! ms, and two never wait together. `R_max = 1000 / (RTT + D)`. What the one request waits for is
//! S5's question, answered with the broker's numbers. A synchronous sender looks the same: requests
//! of one small record point to it. One record larger than a batch says nothing.

use crate::doctor::diagnosis::{FindingId, Step, Verdict};
use crate::formulas::wire;

use super::super::inference::BATCH_BYTES;
use super::super::words::{known, step};
use super::cause::Cause;
use super::reading::{Pipe, Reading, RoundTrip, positive, reaches};
use crate::numbers::{bytes, number};

const ONE_RECORD: f64 = 1.1;

pub(crate) fn judge(reading: &Reading<'_>) -> (Cause, Step) {
    let pipe = reading
        .nodes
        .iter()
        .max_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
    let trip = pipe.and_then(|pipe| round_trip(reading, pipe));
    let cause = pipe.map_or_else(unknown, |pipe| weigh(reading, pipe, trip));
    let numbers = [
        known("R", pipe.map(|pipe| pipe.requests_per_second), "requests/s"),
        known("RTT", trip.map(|trip| trip.ms), "ms"),
        known("D", pipe.and_then(|pipe| reading.broker_ms(pipe)), "ms"),
        known("n_req", reading.records_per_request, ""),
        known("S", reading.request_bytes, "bytes"),
    ];
    let answer = format!("one request at a time, without a pause: {}", cause.text);
    (
        cause,
        step("S4", "Is the pipe full? Only the broker speaks", &numbers, answer),
    )
}

/// From the broker's TCP, the owner, or the gap itself: the time from a response to the next
/// request is at least a round trip.
pub(crate) fn round_trip(reading: &Reading<'_>, pipe: &Pipe) -> Option<RoundTrip> {
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

fn weigh(reading: &Reading<'_>, pipe: &Pipe, trip: Option<RoundTrip>) -> Cause {
    let cycle_ms = 1_000.0 / pipe.requests_per_second.max(1e-6);
    let request = pipe.request_bytes.or(reading.request_bytes);
    let is_one = reading
        .records_per_request
        .is_some_and(|records| records <= ONE_RECORD);
    if is_one && request.is_some_and(|bytes| bytes < BATCH_BYTES / 2.0) {
        let text = format!(
            "{} requests/s of one small record each: a synchronous sender, or one in flight",
            number(pipe.requests_per_second)
        );
        return cause(Verdict::Synchronous, FindingId::O1, text);
    }
    let broker_ms = pipe.broker.as_ref().and_then(|broker| broker.ms);
    if let Some(broker_ms) = broker_ms.filter(|ms| reaches(ms / cycle_ms, 0.5)) {
        let text = format!(
            "the broker takes D = {} ms of every {} ms",
            number(broker_ms),
            number(cycle_ms)
        );
        return cause(Verdict::Broker, None, text);
    }
    let Some(trip) = trip else { return unknown() };
    let ceiling = 1_000.0 / (trip.ms + broker_ms.unwrap_or(0.0)).max(1e-6);
    if let Some(window) = window(reading, request, cycle_ms, trip) {
        let text = format!(
            "a request of {} takes {} round trips of {} ms: the window holds {}",
            bytes(request.unwrap_or(0.0)),
            number(cycle_ms / trip.ms),
            number(trip.ms),
            bytes(window)
        );
        return cause(Verdict::NetworkWindow, FindingId::N5, text);
    }
    if reaches(trip.ms / cycle_ms, 0.5) {
        let text = format!(
            "one request in flight across RTT = {} ms ({}): R_max = 1000 / (RTT + D) = {} requests/s, and {} are sent",
            number(trip.ms),
            trip.origin,
            number(ceiling),
            number(pipe.requests_per_second)
        );
        return cause(Verdict::NetworkRtt, FindingId::N4, text);
    }
    unknown()
}

/// Finds a window that explains the cycle by whole round trips (F13).
fn window(reading: &Reading<'_>, request: Option<f64>, cycle_ms: f64, trip: RoundTrip) -> Option<f64> {
    let request = request?;
    super::cause::window_candidates(reading)
        .into_iter()
        .find(|window| {
            let connection = wire::Connection {
                round_trip_ms: trip.ms,
                window_bytes: window.max(1.0),
                bandwidth_bytes_per_second: f64::INFINITY,
                broker_ms: 0.0,
                in_flight: 1.0,
            };
            let expected_ms = wire::request_ms(&connection, request);
            request > *window && (0.8..=1.25).contains(&(cycle_ms / expected_ms))
        })
}

fn cause(verdict: Verdict, finding: impl Into<Option<FindingId>>, text: String) -> Cause {
    Cause {
        verdict,
        finding: finding.into(),
        text,
        doubt: Some("max.in.flight.requests.per.connection = 1 is suspected, not known".to_owned()),
    }
}

fn unknown() -> Cause {
    cause(
        Verdict::SenderRate,
        None,
        "requests follow each other without a pause, and neither the round trip nor the broker explains how long each takes".to_owned(),
    )
}
