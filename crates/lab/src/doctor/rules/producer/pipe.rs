//! S4: is the pipe full?
//!
//! **Asks** whether the allowed number of requests is always under way. **Numbers**: U_n = R_n ×
//! L_n / (1000 × M_eff) per broker (F8, F8b), the broker's own time (F14), the I/O thread's wait. U
//! is the mean number of requests under way over the allowed number (Little's law), so at 1 the
//! pipe is never empty.
//!
//! | what | answer |
//! |---|---|
//! | U_n ≥ 0.85 on a broker while another is at half of it or less | skewed: one broker's pipe holds up the others (B2), then S5 |
//! | U_n ≥ 0.85, or R_n × D_n ≥ 0.8 s/s | full: S5 asks what fills it |
//! | all below, I/O thread waits < 10 % | the thread is busy: F7 bounds the part that callbacks can take (N1) |
//! | X_r × C ≥ 0.8, C measured by the client or its owner | the thread that runs callbacks is busy, whatever else waits (N1) |
//! | all below, hard backlog, a known window or the link is full | full, in bytes: M_eff is an estimate |
//! | all below, soft backlog, U ≥ 0.7 | near the ceiling |
//! | all below, soft backlog | the pipe is not the limit: S6 |
//! | any U_n, soft backlog, Z < 0.7 and phi < 0.85 | requests can still grow, so the pipe is not the limit (F9): S6 |
//! | all below, hard backlog | something blocks: retries, ordering, an unknown leader, one partition per request, two regimes in one window |
//!
//! **Why R × D**: with requests of 311 kB M_eff is an estimate (2.5, while 3 were observed), and
//! gave U = 0.77 to 0.92; the broker served the connection without a pause, R × D = 0.95, which
//! needs no estimate. An R × D above 1.2 says the opposite: requests of the connection are served
//! in parallel, and F14 is no ceiling.
//!
//! **Why 0.7 is near**: means over a minute blur a queue that comes and goes; 515,600 records/s
//! with U = 0.8 and q = 109 ms do not wait for the application. Where no answer is awaited
//! (acks=0), or the allowed number is a million (librdkafka), U says nothing: a backlog is then
//! judged by S5.

use crate::doctor::diagnosis::{Finding, FindingId, Step};

use super::super::words::{known, step};
use super::backlog::Backlog;
use super::cause;
use super::failing::Failing;
use super::reading::{Pipe, Reading, clean, reaches};
use crate::numbers::number;

const FULL: f64 = 0.85;
const NEAR: f64 = 0.7;
const SERVED_WITHOUT_PAUSE: f64 = 0.8;
/// Above this many seconds of service per second the broker serves requests of a connection in
/// parallel.
pub(crate) const SERVED_AT_ONCE: f64 = 1.2;
/// The load Z from which there is overload (F9).
const OVERLOAD: f64 = 0.7;
const BUSY: f64 = 0.1;
const HALF: f64 = 0.5;

#[derive(Clone, Debug)]
pub(crate) enum Fullness {
    Full,
    Skewed(Finding),
    ThreadBusy,
    Near,
    NotThePipe,
    /// Batches wait, the pipe is not full, the thread is idle: names what may block.
    Blocked(String),
}

pub(crate) fn judge(reading: &Reading<'_>, backlog: Backlog, failing: &Failing) -> (Fullness, Step) {
    let fullness = weigh(reading, backlog, failing);
    let mut numbers: Vec<String> = reading
        .nodes
        .iter()
        .map(|pipe| {
            let node = pipe.node_id.map_or_else(String::new, |id| format!("_{id}"));
            format!(
                "{} of {} in flight",
                known(&format!("U{node}"), pipe.used, ""),
                number(pipe.in_flight)
            )
        })
        .collect();
    numbers.push(known("i_wait", reading.io_wait, ""));
    let answer = match &fullness {
        Fullness::Full => "yes".to_owned(),
        Fullness::Skewed(_) => "that to one broker only: SKEW".to_owned(),
        Fullness::ThreadBusy => "no: the I/O thread has no time left".to_owned(),
        Fullness::Near => "nearly".to_owned(),
        Fullness::NotThePipe => "no".to_owned(),
        Fullness::Blocked(words) => format!("no: {words}"),
    };
    (fullness, step("S4", "Is the pipe full?", &numbers, answer))
}

/// Returns R_n × D_n, seconds of broker time per second (F14).
pub(crate) fn served_share(pipe: &Pipe) -> Option<f64> {
    clean(Some(
        pipe.requests_per_second * pipe.broker.as_ref()?.ms? / 1_000.0,
    ))
}

pub(crate) fn is_served_without_pause(pipe: &Pipe) -> bool {
    served_share(pipe).is_some_and(|share| reaches(share, SERVED_WITHOUT_PAUSE) && share <= SERVED_AT_ONCE)
}

fn weigh(reading: &Reading<'_>, backlog: Backlog, failing: &Failing) -> Fullness {
    if reading.has_slow_callbacks() {
        return Fullness::ThreadBusy;
    }
    let Some(used) = reading.used() else {
        return match reading.io_wait {
            Some(wait) if wait < BUSY => Fullness::ThreadBusy,
            // librdkafka's transmit queue is in front of its socket: what waits there waits for the
            // pipe.
            _ if reading.transmit_queue_ms.is_some() => Fullness::Full,
            _ if backlog == Backlog::Hard => Fullness::Full,
            _ if reading.nodes.iter().any(is_served_without_pause) => Fullness::Full,
            _ => Fullness::NotThePipe,
        };
    };
    let has_room = backlog == Backlog::Soft && can_grow(reading);
    if reaches(used, FULL) && !has_room {
        return skew(reading, used).map_or(Fullness::Full, Fullness::Skewed);
    }
    if reading.nodes.iter().any(is_served_without_pause) {
        return Fullness::Full;
    }
    if reading.io_wait.is_some_and(|wait| wait < BUSY) {
        return Fullness::ThreadBusy;
    }
    match backlog {
        Backlog::Hard if cause::is_full_in_bytes(reading) => Fullness::Full,
        Backlog::Hard => Fullness::Blocked(blocked_by(reading, failing)),
        _ if reaches(used, NEAR) && !has_room => Fullness::Near,
        _ => Fullness::NotThePipe,
    }
}

/// Whether requests can still grow: then a full pipe is no overload (F9); a healthy producer keeps
/// five small ones under way.
fn can_grow(reading: &Reading<'_>) -> bool {
    let is_light = reading.load().is_some_and(|load| !reaches(load, OVERLOAD));
    is_light && reading.fill().is_some_and(|fill| !reaches(fill, FULL))
}

/// Finds one broker's pipe full while another's is at most half as full (B2).
fn skew(reading: &Reading<'_>, used: f64) -> Option<Finding> {
    let coolest = reading
        .nodes
        .iter()
        .filter(|pipe| pipe.used.is_some())
        .min_by(|a, b| a.used.unwrap_or(0.0).total_cmp(&b.used.unwrap_or(0.0)))?;
    if coolest.used? > HALF * used {
        return None;
    }
    let hottest = reading.hottest()?;
    let name = |pipe: &Pipe| {
        pipe.node_id
            .map_or_else(|| "one broker".to_owned(), |id| format!("broker {id}"))
    };
    let text = format!(
        "the pipe to {} is full (U = {}) while that to {} is at {}: its batches stand, and the buffer they hold stops all others",
        name(hottest),
        number(used),
        name(coolest),
        number(coolest.used?)
    );
    Some(Finding {
        id: FindingId::B2,
        text,
        is_contributing: false,
    })
}

fn blocked_by(reading: &Reading<'_>, failing: &Failing) -> String {
    let none = Default::default();
    let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
    let is_mixed = reading
        .queue_ms_max
        .zip(reading.queue_ms)
        .is_some_and(|(most, mean)| most > 10.0 * mean);
    let reasons = [
        (
            failing.has_retries,
            "records are sent again, and their partition waits for them",
        ),
        (
            reading.settings.in_flight.value <= 1.0,
            "one request in flight keeps order, and the next waits for its answer",
        ),
        (
            clean(own.metadata_wait).is_some_and(|wait| wait > 0.0)
                && clean(own.connections_created).is_some_and(|count| count > 2.0),
            "connections are made again: a leader may be unknown",
        ),
        (
            is_mixed,
            "the window mixes two regimes: the longest wait is more than ten times the mean",
        ),
        (
            reading.partitions_per_broker <= 1.0,
            "every batch is for one partition, and a request holds one batch of each",
        ),
    ];
    let found: Vec<&str> = reasons
        .iter()
        .filter(|(is_there, _)| *is_there)
        .map(|(_, words)| *words)
        .collect();
    if found.is_empty() {
        "unexplained: batches wait, the pipe has room and the thread is idle".to_owned()
    } else {
        found.join("; ")
    }
}
