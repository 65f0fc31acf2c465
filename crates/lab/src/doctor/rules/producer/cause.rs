//! S5: what is the pipe full of?
//!
//! **Asks**, of the broker whose pipe is fullest, where the latency L of a request is spent. The
//! first test that holds names the verdict.
//!
//! | test, in this order | verdict |
//! |---|---|
//! | i_oth ≥ 0.5 and i_wait < 0.10 | SENDER_THREAD: callbacks delay the reading of answers, so L is inflated |
//! | D ≥ 0.5 × L, or R_n × D_n ≥ 0.8 s/s (F14) | BROKER, by the largest part of D |
//! | X_b ≥ 0.85 of what a link carries (F15: 0.92 of its bytes), or bytes wait on the way | NETWORK_BANDWIDTH |
//! | bytes on the way within 0.8 to 1.2 of a window | NETWORK_WINDOW |
//! | RTT ≥ 0.5 × L | NETWORK_RTT |
//! | i_oth 0.3 to 0.8 with i_wait 0.3 to 0.6 | SENDER_RATE, and the client's host may be short of CPU |
//! | else | SENDER_RATE, cause of L unknown |
//!
//! **Which D counts**: a mean below 2 ms from histograms of whole milliseconds does not.
//!
//! **Bytes that wait on the way**: on a full link L grows with S. One window shows it too: a
//! measured RTT and D leave most of L unexplained, by at least 5 ms, and the client's thread is
//! idle. Measured: a 5 MB/s link of 2 ms, L = 48.9 ms, D = 0.3.
//!
//! **Which windows**: the stated one; otherwise twice send.buffer.bytes (the kernel doubles it)
//! and, where the owner states send.buffer.bytes, also once (the article's rows lie between 0.9 and
//! 1.9 times the setting). A window limits only if more than it holds wants to be on the way: with
//! one request in flight, a request larger than the window, which then takes several round trips
//! (600 kB through 200 kB: three); otherwise M × S of at least nine tenths of it. 200 kB requests
//! lost nothing with a 100 kB buffer.
//!
//! **When RTT is the verdict**: only a measured RTT counts (`L - D` is an upper bound: it can
//! refute RTT but proves nothing, except with one small request in flight, where it is a
//! measurement, F10). Half of L is enough where too little is in flight. Where batches are full and
//! several requests are in flight, the same number of larger requests carries more, so the limit is
//! the request rate: RTT is named only if it and D explain four fifths of L. The case that showed
//! it: 16 KiB batches, five in flight, RTT 10 of L = 13.5 ms; doubling batch.size raised 64,800 to
//! the wanted 100,000 records/s over the same round trip.

use crate::doctor::diagnosis::{FindingId, Step, Verdict};

use super::super::words::{known, step};
use super::pipe::{is_served_without_pause, served_share};
use super::reading::{Pipe, Reading, ratio, reaches};
use crate::numbers::{bytes, number, percent};

const HALF: f64 = 0.5;
/// The share of a link's bandwidth that requests can use (F15).
pub(crate) const LINK_SHARE: f64 = 0.92;
const LINK_FULL: f64 = 0.85;
const WAIT_MS_MIN: f64 = 5.0;
const THREAD_IDLE: f64 = 0.7;
const FULL_BATCHES: f64 = 0.85;
const EXPLAINED: f64 = 0.8;

/// What fills the pipe.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub verdict: Verdict,
    /// `None`: determined by the parts of D, or by how full batches are.
    pub finding: Option<FindingId>,
    /// A sentence with the deciding numbers.
    pub text: String,
    /// A remark about how certain this is.
    pub doubt: Option<String>,
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Cause, Step) {
    let pipe = reading.hottest();
    let cause = pipe
        .and_then(|pipe| weigh(reading, pipe))
        .unwrap_or_else(|| unknown(reading));
    let round_trip = pipe.and_then(|pipe| reading.round_trip(pipe));
    let numbers = [
        known("L", pipe.and_then(|pipe| pipe.request_ms), "ms"),
        known("D", pipe.and_then(|pipe| reading.broker_ms(pipe)), "ms"),
        known("R × D", pipe.and_then(served_share), "s/s"),
        known("RTT", round_trip.map(|trip| trip.ms), "ms"),
        known("X_b", reading.bytes_per_second, "bytes/s"),
        known("i_wait", reading.io_wait, ""),
        known("i_oth", reading.io_other, ""),
    ];
    let answer = cause.text.clone();
    (cause, step("S5", "What is the pipe full of?", &numbers, answer))
}

fn weigh(reading: &Reading<'_>, pipe: &Pipe) -> Option<Cause> {
    callbacks(reading)
        .or_else(|| broker(reading, pipe))
        .or_else(|| bandwidth(reading))
        .or_else(|| bytes_wait(reading, pipe))
        .or_else(|| window_limits(reading, pipe))
        .or_else(|| round_trip(reading, pipe))
        .or_else(|| short_of_cpu(reading))
}

fn cause(verdict: Verdict, finding: impl Into<Option<FindingId>>, text: String) -> Cause {
    Cause {
        verdict,
        finding: finding.into(),
        text,
        doubt: None,
    }
}

fn callbacks(reading: &Reading<'_>) -> Option<Cause> {
    let (other, wait) = (reading.io_other?, reading.io_wait?);
    (reaches(other, HALF) && wait < 0.1).then(|| {
        let text = format!(
            "the I/O thread waits {} of the time and works outside its selector {}: answers are read late",
            percent(wait),
            percent(other)
        );
        cause(Verdict::SenderThread, FindingId::N1, text)
    })
}

fn broker(reading: &Reading<'_>, pipe: &Pipe) -> Option<Cause> {
    let broker_ms = reading.broker_ms(pipe)?;
    let is_most = pipe
        .request_ms
        .is_some_and(|request| reaches(broker_ms / request, HALF));
    (is_most || is_served_without_pause(pipe)).then(|| {
        let share = ratio(Some(broker_ms), pipe.request_ms).map_or_else(String::new, |share| {
            format!(
                ", {} of L = {} ms",
                percent(share.min(1.0)),
                number(pipe.request_ms.unwrap_or(0.0))
            )
        });
        let served = served_share(pipe).map_or_else(String::new, |share| {
            format!(
                "; it serves the connection {} of the time",
                percent(share.min(1.0))
            )
        });
        cause(
            Verdict::Broker,
            None,
            format!(
                "the broker takes D = {} ms for a request{share}{served}",
                number(broker_ms)
            ),
        )
    })
}

fn bandwidth(reading: &Reading<'_>) -> Option<Cause> {
    let link = reading
        .snapshot
        .network
        .bandwidth_bytes_per_second
        .filter(|link| link.is_finite() && *link > 0.0)?;
    let sent = reading.bytes_per_second?;
    reaches(sent / (LINK_SHARE * link), LINK_FULL).then(|| {
        let text = format!(
            "{}/s of a link of {}/s: {}",
            bytes(sent),
            bytes(link),
            percent(sent / link)
        );
        cause(Verdict::NetworkBandwidth, FindingId::N6, text)
    })
}

/// Most of L is neither the broker nor the round trip, and the client's thread is idle: the
/// request's own bytes wait on the way.
fn bytes_wait(reading: &Reading<'_>, pipe: &Pipe) -> Option<Cause> {
    if reading.snapshot.network.bandwidth_bytes_per_second.is_some()
        || reading.snapshot.network.window_bytes.is_some()
    {
        return None;
    }
    let request_ms = pipe.request_ms?;
    let trip = reading.round_trip(pipe).filter(|trip| trip.is_end_to_end)?;
    let broker_ms = pipe.broker.as_ref()?.ms_at_most;
    let left_ms = request_ms - trip.ms - broker_ms;
    let is_idle = reading.io_wait? >= THREAD_IDLE;
    if left_ms < WAIT_MS_MIN
        || !reaches(left_ms / request_ms, HALF)
        || !is_idle
        || window(reading, pipe).is_some()
    {
        return None;
    }
    let sent = reading.bytes_per_second?;
    Some(Cause {
        doubt: Some(format!(
            "the link's bandwidth is not known; about {}/s would explain it",
            bytes(sent)
        )),
        ..cause(
            Verdict::NetworkBandwidth,
            FindingId::N6,
            format!(
                "of L = {} ms the round trip takes {} and the broker {}: for {} ms the request's bytes wait on the way",
                number(request_ms),
                number(trip.ms),
                number(broker_ms),
                number(left_ms)
            ),
        )
    })
}

/// A window that is as full as it can get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub bytes: f64,
    pub on_the_way: f64,
    pub round_trip_ms: f64,
}

/// Bytes under way on a connection, from throughput; with one request in flight, from that
/// request's size, which is not blurred by averaging a rate over a window.
pub(crate) fn on_the_way(reading: &Reading<'_>, pipe: &Pipe, round_trip_ms: f64) -> Option<f64> {
    let by_rate = pipe
        .bytes_per_second
        .or_else(|| Some(pipe.request_bytes? * pipe.requests_per_second))?
        * round_trip_ms
        / 1_000.0;
    let is_alone = reading.settings.in_flight.value <= 1.0 && reading.settings.acks.value != 0;
    let by_request = pipe
        .request_bytes
        .zip(pipe.request_ms)
        .filter(|_| is_alone)
        .map_or(0.0, |(request, request_ms)| {
            request * (round_trip_ms / request_ms.max(1e-3)).min(1.0)
        });
    Some(by_rate.max(by_request))
}

/// The sizes that the window may have, given what is known.
pub(crate) fn window_candidates(reading: &Reading<'_>) -> Vec<f64> {
    use crate::doctor::snapshot::Origin;
    if let Some(window) = super::reading::positive(reading.snapshot.network.window_bytes) {
        return vec![window];
    }
    match reading.settings.send_buffer_bytes {
        Some(buffer) if buffer.origin == Origin::Stated => vec![2.0 * buffer.value, buffer.value],
        Some(buffer) => vec![2.0 * buffer.value],
        None => Vec::new(),
    }
}

/// Whether more than a window wants to be on the way at once, and the observed bytes agree with
/// that.
pub(crate) fn wants_more_than(reading: &Reading<'_>, pipe: &Pipe, window: f64, round_trip_ms: f64) -> bool {
    if reading.settings.acks.value == 0 {
        return true;
    }
    let Some(request) = pipe.request_bytes else {
        return false;
    };
    let allowed = reading.settings.in_flight.value;
    if allowed > 1.0 {
        return allowed * request >= 0.9 * window;
    }
    let trips = (request / window).ceil();
    request > window
        && pipe
            .request_ms
            .is_some_and(|request_ms| request_ms >= 0.9 * trips * round_trip_ms)
}

pub(crate) fn window(reading: &Reading<'_>, pipe: &Pipe) -> Option<Window> {
    let trip = reading.round_trip(pipe)?;
    let on_the_way = on_the_way(reading, pipe, trip.ms)?;
    window_candidates(reading).into_iter().find_map(|bytes| {
        let use_of = on_the_way / bytes;
        let is_full = reaches(use_of, 0.8) && use_of <= 1.205;
        (is_full && wants_more_than(reading, pipe, bytes, trip.ms)).then_some(Window {
            bytes,
            on_the_way,
            round_trip_ms: trip.ms,
        })
    })
}

/// Whether a known window or the link is full, regardless of U, because M_eff is an estimate.
pub(crate) fn is_full_in_bytes(reading: &Reading<'_>) -> bool {
    let is_window = reading
        .hottest()
        .is_some_and(|pipe| window(reading, pipe).is_some());
    is_window || bandwidth(reading).is_some()
}

fn window_limits(reading: &Reading<'_>, pipe: &Pipe) -> Option<Cause> {
    let window = window(reading, pipe)?;
    let text = format!(
        "{} are on the way across RTT = {} ms, and the window holds {}",
        bytes(window.on_the_way),
        number(window.round_trip_ms),
        bytes(window.bytes)
    );
    Some(cause(Verdict::NetworkWindow, FindingId::N5, text))
}

fn round_trip(reading: &Reading<'_>, pipe: &Pipe) -> Option<Cause> {
    let trip = reading.round_trip(pipe)?;
    let request_ms = pipe.request_ms?;
    let is_half = reaches(trip.ms / request_ms, HALF);
    let has_full_batches = reading.fill().is_some_and(|fill| reaches(fill, FULL_BATCHES));
    let is_several = reading.settings.in_flight.value > 1.0;
    let broker_ms = pipe
        .broker
        .as_ref()
        .map_or(0.0, |broker| broker.ms.unwrap_or(0.0));
    let is_explained = reaches((trip.ms + broker_ms) / request_ms, EXPLAINED);
    if !is_half || (is_several && has_full_batches && !is_explained) {
        return None;
    }
    let allowed = reading.settings.in_flight.value;
    let text = format!(
        "the round trip of {} ms ({}) is {} of L = {} ms, with {} of {} in flight",
        number(trip.ms),
        trip.origin,
        percent((trip.ms / request_ms).min(1.0)),
        number(request_ms),
        if allowed <= 1.0 {
            "one request".to_owned()
        } else {
            format!("{} requests", number(allowed))
        },
        pipe.request_bytes
            .map_or_else(|| "unknown size".to_owned(), bytes)
    );
    Some(cause(Verdict::NetworkRtt, FindingId::N4, text))
}

/// The I/O thread neither waits nor works on sockets, and callbacks are cheap: it may be starved of
/// CPU.
pub(crate) fn is_short_of_cpu(reading: &Reading<'_>) -> bool {
    let (Some(other), Some(wait)) = (reading.io_other, reading.io_wait) else {
        return false;
    };
    let is_between = (0.3..=0.8).contains(&other) && (0.3..=0.6).contains(&wait);
    is_between && reading.callback_use().is_none_or(|used| used < 0.3)
}

fn short_of_cpu(reading: &Reading<'_>) -> Option<Cause> {
    is_short_of_cpu(reading).then(|| Cause {
        doubt: Some(
            "the client's host may be short of CPU: its I/O thread neither waits nor does socket work"
                .to_owned(),
        ),
        ..unknown(reading)
    })
}

fn unknown(reading: &Reading<'_>) -> Cause {
    let text = match (reading.requests_per_second, reading.used()) {
        (Some(rate), Some(used)) => format!(
            "the sender is at its request rate: {} of {} requests/s (U = {})",
            number(rate),
            number(rate / used.max(1e-9)),
            number(used)
        ),
        (Some(rate), None) => format!(
            "requests wait at {} requests/s, and what L is made of is not known",
            number(rate)
        ),
        _ => "batches wait, and neither the rate nor the latency of requests is known".to_owned(),
    };
    cause(Verdict::SenderRate, None, text)
}
