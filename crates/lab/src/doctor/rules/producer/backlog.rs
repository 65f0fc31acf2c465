//! S1: does a backlog exist, and is the pipe full?
//!
//! **Asks** whether records wait in the client for something other than linger, and whether they
//! wait for requests. **Numbers**: thread-seconds that `send()` waits for memory (`w_buf`), threads
//! that wait (`T_wait`), free buffer, queue time q and its maxima over pushes; U_n = R_n × L_n /
//! (1000 × M_eff) per broker (F8, F8b), the broker's own time (F14), the I/O thread's wait.
//!
//! | sign | threshold | kind |
//! |---|---|---|
//! | `w_buf` | 0.05 thread-seconds per second | hard |
//! | records found no buffer memory, or expired | any | hard |
//! | `T_wait` | above zero in two pushes | hard |
//! | q | above 1 s, and above 3 × linger | hard |
//! | q above its threshold, and q_max higher in each of three consecutive pushes than in the one before, by 5 % | | hard |
//! | free buffer | below a tenth | hard |
//! | q | above 3 × max(linger, 2 ms) | soft |
//! | no q (librdkafka, franz-go): bytes of requests arrive at the broker all of the time, without a pause (`arrival.rs`) | | soft |
//! | no q (librdkafka): requests wait in the transmit queue although more may be under way (`window.rs`) | | soft |
//! | no q (librdkafka, franz-go): always as many requests under way as may be, batches of one size that are full where batch.size is known | | soft |
//!
//! **Why two kinds**: a soft backlog is latency near a ceiling, a hard one is a ceiling. Measured
//! with 100,000 records/s offered: 32 KiB batches had q = 36 ms at linger 5 (soft, and the producer
//! kept up); 16 KiB batches had q = 1,708 ms (hard, and it did not). A client that sends no
//! queue time is judged by whether its requests follow each other without a pause. A maximum that
//! grows alone is no backlog: Java's maximum is that of the last 30 to 60 s and grows for as long
//! from one pause of a healthy client.
//!
//! | then | records wait for |
//! |---|---|
//! | X_r × C ≥ 0.8, C measured | the thread that runs callbacks |
//! | U_n ≥ 0.85, or R_n × D_n ≥ 0.8 s/s | requests: the pipe is full |
//! | all below, I/O thread waits < 10 % | that thread |
//! | all below, hard backlog, a known window or the link is full | requests: full in bytes, M_eff is an estimate |
//! | all below, hard backlog, one request may be in flight, U ≥ 0.7 | requests: between an answer and the next request the client takes its turn |
//! | all below, soft backlog, U ≥ 0.7 | requests: near the ceiling |
//! | all below, soft backlog | nothing: the application sets the pace |
//! | any U_n, soft backlog, Z < 0.7 and phi < 0.85 | nothing: requests can still grow (F9) |
//! | all below, hard backlog, batches under way take half of buffer.memory | memory: a batch keeps its own until its answer |
//! | all below, hard backlog, less than 0.8 of a request under way, `send()` waits and the thread works less than half of the time | memory: records come in bursts, and nothing waits between them |
//! | all below, hard backlog | something blocks: retries, ordering, an unknown leader, two regimes in one window |
//!
//! U is the mean number of requests under way over the allowed number (Little's law), so at 1 the
//! pipe is never empty; alone it is no load, because a healthy producer keeps five small requests
//! under way.
//!
//! **Why R × D**: with requests of 311 kB M_eff is an estimate (2.5, while 3 were observed), and
//! gave U = 0.77 to 0.92; the broker served the connection without a pause, R × D = 0.95, which
//! needs no estimate. An R × D above 1.2 says the opposite: requests of the connection are served
//! in parallel, and F14 is no ceiling.
//!
//! **Why 0.7 is near**: 515,600 records/s with U = 0.8 and q = 109 ms do not wait for the
//! application. Where no answer is awaited (acks=0), or the allowed number is a million
//! (librdkafka), U says nothing.

use crate::doctor::diagnosis::Step;
use crate::doctor::used::Used;
use crate::model::constants::{FULL, NEAR, ROOM};
use crate::numbers::number;

use super::super::inference::{self, LINGERS};
use super::super::words::{known, step};
use super::reading::{Bound, Pipe, Reading, clean, reaches};
use super::{arrival, bandwidth, buffer, window, worker};

const BUFFER_WAIT: f64 = 0.05;
const FREE: f64 = 0.1;
const LINGER_MS_MIN: f64 = 2.0;
const RISE: f64 = 1.05;
const SERVED_WITHOUT_PAUSE: f64 = 0.8;
/// Above this many seconds of service per second the broker serves requests of a connection in
/// parallel.
pub(crate) const SERVED_AT_ONCE: f64 = 1.2;
const BUSY: f64 = 0.1;
/// Where something always waits, this many requests are under way on average at least.
pub(crate) const ALWAYS_ONE: f64 = 0.8;
const HALF: f64 = 0.5;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Backlog {
    #[default]
    None,
    Soft,
    Hard,
}

/// The queue time above which records wait for more than linger.
pub(crate) fn queue_threshold_ms(reading: &Reading<'_>) -> f64 {
    LINGERS * reading.settings.linger_ms.value.max(LINGER_MS_MIN)
}

type Sign = (Backlog, bool, &'static str);

fn signs(reading: &Reading<'_>) -> [Sign; 11] {
    let none = Default::default();
    let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
    let threshold_ms = queue_threshold_ms(reading);
    let linger_ms = reading.settings.linger_ms.value;
    let queue_ms = reading.queue_ms;
    let is_above = queue_ms.is_some_and(|queue| queue > threshold_ms);
    [
        (
            Backlog::Hard,
            reading.buffer_wait.is_some_and(|wait| wait >= BUFFER_WAIT),
            "send() waits for buffer memory",
        ),
        (
            Backlog::Hard,
            reading.failing.is_exhausted || reading.failing.is_expiring,
            "records find no buffer memory, or expire",
        ),
        (
            Backlog::Hard,
            own.pushes_with_waiting_threads >= 2,
            "threads wait for buffer memory in two pushes",
        ),
        (
            Backlog::Hard,
            queue_ms.is_some_and(|queue| inference::is_long_queue(queue, linger_ms)),
            "batches wait for more than a second",
        ),
        (
            Backlog::Hard,
            is_above && is_rising(&own.queue_ms_max_course, threshold_ms),
            "the longest wait grows from push to push",
        ),
        (
            Backlog::Hard,
            reading.buffer_free_share.is_some_and(|free| free < FREE),
            "the buffer is nearly full",
        ),
        (
            Backlog::Soft,
            is_above,
            "batches wait for more than three lingers",
        ),
        (
            Backlog::Soft,
            queue_ms.is_none() && reading.is_back_to_back() && !inference::is_one_record(reading.snapshot),
            "requests follow each other without a pause",
        ),
        (
            Backlog::Soft,
            queue_ms.is_none() && waits_for_window(reading),
            "requests wait for the window: each takes several round trips, or the socket takes it late",
        ),
        (
            Backlog::Soft,
            queue_ms.is_none() && arrival::full_link(reading).is_some(),
            "bytes of requests arrive all of the time, without a pause",
        ),
        (
            Backlog::Soft,
            queue_ms.is_none()
                && reading.settings.has_batches_of_one_size
                && (reading.has_full_batches() || reading.has_no_room()),
            "always the same number of requests is under way, with batches of one size",
        ),
    ]
}

pub(crate) fn of(reading: &Reading<'_>) -> Backlog {
    let signs = signs(reading);
    let there = signs.iter().filter(|(_, is_there, _)| *is_there);
    there.map(|(kind, ..)| *kind).max().unwrap_or_default()
}

/// What is printed of both questions.
pub(crate) fn step_of(reading: &Reading<'_>) -> Step {
    let named: Vec<&str> = (signs(reading).iter())
        .filter(|(_, is_there, _)| *is_there)
        .map(|(.., words)| *words)
        .collect();
    let backlog = match reading.backlog {
        Backlog::None => "no backlog".to_owned(),
        Backlog::Soft => format!("near the ceiling: {}", named.join(", ")),
        Backlog::Hard => format!("a backlog: {}", named.join(", ")),
    };
    let bound = match &reading.bound {
        Bound::Source => "the application sets the pace".to_owned(),
        Bound::Pipe => "records wait for requests".to_owned(),
        Bound::Thread => "records wait for the client's own thread".to_owned(),
        Bound::Blocked(words) => format!("requests could leave: {words}"),
    };
    let mut numbers = vec![
        known("w_buf", reading.buffer_wait, ""),
        known("free buffer", reading.buffer_free_share, ""),
        known("q", reading.queue_ms, "ms"),
        known("q_max", reading.queue_ms_max, "ms"),
        known("threshold", Some(queue_threshold_ms(reading)), "ms"),
    ];
    numbers.extend(reading.nodes.iter().map(|pipe| {
        let node = pipe.node_id.map_or_else(String::new, |id| format!("_{id}"));
        let used = pipe
            .used
            .map_or_else(|| "unknown".to_owned(), |used| format!("= {}", number(used)));
        let in_flight = number(pipe.in_flight);
        Used::Words(format!("U{node} {used} of {in_flight} in flight").into())
    }));
    numbers.push(known("i_wait", reading.io_wait, ""));
    let question = "Does a backlog exist, and is the pipe full?";
    step("S1", question, numbers, format!("{backlog}; {bound}"))
}

/// Whether the maxima of the last four pushes rise from each to the next.
fn is_rising(course: &[f64], threshold_ms: f64) -> bool {
    let Some(last) = course.len().checked_sub(4).map(|start| &course[start..]) else {
        return false;
    };
    last.iter().all(|value| clean(Some(*value)).is_some())
        && last.windows(2).all(|pair| pair[1] > RISE * pair[0])
        && last[3] > threshold_ms
}

/// Returns R_n × D_n, seconds of broker time per second (F14).
pub(crate) fn served_share(pipe: &Pipe<'_>) -> Option<f64> {
    clean(Some(
        pipe.requests_per_second * pipe.broker.as_ref()?.ms? / 1_000.0,
    ))
}

pub(crate) fn is_served_without_pause(pipe: &Pipe<'_>) -> bool {
    served_share(pipe).is_some_and(|share| reaches(share, SERVED_WITHOUT_PAUSE) && share <= SERVED_AT_ONCE)
}

pub(crate) fn bound(reading: &Reading<'_>) -> Bound {
    let is_met = reading.backlog == Backlog::Soft && reading.is_offer_met() == Some(true);
    if reading.backlog == Backlog::None || is_met {
        return Bound::Source;
    }
    if reading.has_slow_callbacks() {
        return Bound::Thread;
    }
    let is_held = || waits_for_window(reading) || arrival::full_link(reading).is_some();
    if reading.queue_ms.is_none() && is_held() {
        return Bound::Pipe;
    }
    let is_thread_busy = reading.io_wait.is_some_and(|wait| wait < BUSY);
    let is_served = reading.nodes.iter().any(is_served_without_pause);
    let is_hard = reading.backlog == Backlog::Hard;
    let Some(used) = reading.used() else {
        return match is_thread_busy {
            true => Bound::Thread,
            false if is_hard || is_served => Bound::Pipe,
            false => Bound::Source,
        };
    };
    let has_room = !is_hard && can_grow(reading);
    if (reaches(used, FULL) && !has_room) || is_served {
        return Bound::Pipe;
    }
    if is_thread_busy {
        return Bound::Thread;
    }
    let has_busy_workers = worker::used(reading).is_some_and(|used| reaches(used, 0.8));
    let is_one = reading.settings.in_flight.value <= 1.0 && reaches(used, NEAR);
    match reading.backlog {
        Backlog::Hard if is_full_in_bytes(reading) || is_one => Bound::Pipe,
        Backlog::Hard => Bound::Blocked(blocked_by(reading)),
        _ if reaches(used, NEAR) && !has_room && !has_busy_workers => Bound::Pipe,
        _ => Bound::Source,
    }
}

/// Whether requests can still grow: then a full pipe is no overload (F9); a healthy producer keeps
/// five small ones under way.
fn can_grow(reading: &Reading<'_>) -> bool {
    let is_light = reading.load().is_some_and(|load| !reaches(load, ROOM));
    is_light && !reading.has_full_batches() && reading.fill().is_some()
}

/// Whether requests queue behind each other for a window (`window.rs`): one alone would take
/// several round trips on a healthy connection too.
fn waits_for_window(reading: &Reading<'_>) -> bool {
    reading.hottest().is_some_and(|pipe| {
        let under_way = pipe.request_ms.map(|ms| pipe.requests_per_second * ms / 1_000.0);
        let are_several = under_way.is_some_and(|count| count >= 2.0);
        let waits = are_several || arrival::is_held(reading, pipe) || window::is_taken_late(reading, pipe);
        waits && window::several_trips(reading, pipe).is_some()
    })
}

/// Whether a known window or the link is full, regardless of U, because M_eff is an estimate.
fn is_full_in_bytes(reading: &Reading<'_>) -> bool {
    let has_window =
        |pipe| window::of(reading, pipe).is_some() || window::several_trips(reading, pipe).is_some();
    let is_full = bandwidth::is_full(reading)
        || arrival::full_link(reading).is_some()
        || arrival::queue(reading).is_some();
    reading.hottest().is_some_and(has_window) || is_full
}

/// Whether records wait for memory now and then, while the client has nothing to do most of the
/// time and nothing holds its requests back: they come in bursts, and a larger memory takes them.
pub(crate) fn comes_in_bursts(reading: &Reading<'_>) -> bool {
    let under_way = reading
        .hottest()
        .and_then(|pipe| Some(pipe.requests_per_second * pipe.request_ms? / 1_000.0));
    let is_below = |value: Option<f64>, most: f64| value.is_some_and(|value| value < most);
    let failing = &reading.failing;
    reading.backlog == Backlog::Hard
        && is_below(under_way, ALWAYS_ONE)
        && is_below(reading.used(), HALF)
        && is_below(reading.io_wait.map(|wait| 1.0 - wait), HALF)
        && reading.buffer_wait.is_some_and(|wait| wait < HALF && wait > 0.0)
        && reading.throttle_ms.is_none_or(|ms| ms < 1.0)
        && !failing.has_retries
        && !failing.is_expiring
}

fn blocked_by(reading: &Reading<'_>) -> String {
    if let Some(under_way) = buffer::of_requests(reading) {
        return buffer::sentence(reading, under_way);
    }
    if comes_in_bursts(reading) {
        return "records come in bursts that fill buffer.memory, and nothing waits between them".to_owned();
    }
    let none = Default::default();
    let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
    let is_mixed = reading
        .queue_ms_max
        .zip(reading.queue_ms)
        .is_some_and(|(most, mean)| most > 10.0 * mean);
    let reasons = [
        (
            reading.failing.has_retries,
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
        "what holds the batches back is not measured".to_owned()
    } else {
        found.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A healthy client over 4 ms whose longest wait came to be 40 ms once.
    #[test]
    fn a_maximum_that_grows_alone_is_no_backlog() {
        use crate::doctor::diagnosis::Verdict;
        use crate::doctor::rules::examine;
        use crate::doctor::rules::producer::tests::rows::{ROW, Row};
        let row = Row {
            records: 3_000.0,
            requests: 190.0,
            request_bytes: 16_000.0,
            batch: 15_900.0,
            latency: 4.6,
            queue: Some(6.19),
            linger: Some(5.0),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.producer.as_mut().unwrap().queue_ms_max_course = vec![16.0, 20.0, 28.0, 40.0];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{diagnosis:#?}");
        assert_eq!(diagnosis.recommendation, None);
        snapshot.producer.as_mut().unwrap().queue_ms = Some(25.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::KeepsUp);
    }

    #[test]
    fn only_steady_growth_is_a_rise() {
        assert!(is_rising(&[10.0, 40.0, 90.0, 200.0, 900.0], 15.0));
        assert!(!is_rising(&[40.0, 90.0, 200.0], 15.0));
        assert!(!is_rising(&[10.0, 40.0, 40.0, 200.0], 15.0));
        assert!(!is_rising(&[1.0, 2.0, 4.0, 8.0], 15.0));
        assert!(!is_rising(&[10.0, f64::NAN, 90.0, 200.0], 15.0));
    }

    /// A client that collects records for long: even load, so batches are as large as each other.
    fn lingering(linger_ms: f64) -> crate::doctor::Snapshot {
        use crate::doctor::rules::producer::tests::rows::{ROW, Row};
        let requests = 3_000.0 / linger_ms;
        let row = Row {
            records: 10.0 * requests,
            requests,
            request_bytes: 3_150.0,
            batch: 3_100.0,
            latency: 4.0,
            queue: Some(linger_ms + 0.6),
            queue_max: linger_ms + 20.0,
            buffer_wait: Some(0.0),
            partitions: 3.0,
            thread: Some((0.99, 0.003)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.producer.as_mut().unwrap().batch_bytes_max = Some(3_150.0);
        snapshot
    }

    #[test]
    fn records_that_wait_for_a_long_linger_are_no_backlog() {
        use crate::doctor::diagnosis::Verdict;
        use crate::doctor::rules::examine;
        use crate::doctor::rules::producer::tests::rows::stated;
        for linger_ms in [150.0, 500.0, 1_000.0, 3_000.0, 20_000.0] {
            for is_stated in [false, true] {
                let mut snapshot = lingering(linger_ms);
                snapshot.settings.linger_ms = stated(linger_ms).filter(|_| is_stated);
                let diagnosis = examine(&snapshot);
                assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{linger_ms}: {diagnosis:#?}");
                assert_eq!(diagnosis.recommendation, None);
                let linger = format!("latency is linger: {} ms", number(linger_ms));
                assert!(
                    diagnosis.notes.iter().any(|note| note.starts_with(&linger)),
                    "{linger_ms}: {:?}",
                    diagnosis.notes
                );
            }
        }
    }

    /// The same queue where nothing could leave: one request at a time, always under way.
    #[test]
    fn a_queue_behind_a_full_pipe_is_no_linger() {
        let mut snapshot = lingering(3_000.0);
        let own = snapshot.producer.as_mut().unwrap();
        (own.request_ms, own.nodes[0].request_ms) = (Some(980.0), Some(980.0));
        let reading = Reading::of(&snapshot);
        assert_eq!(reading.backlog, Backlog::Hard);
        assert_eq!(reading.settings.linger_ms.value, 5.0);
    }

    #[test]
    fn a_stated_linger_moves_the_thresholds() {
        use crate::doctor::rules::producer::tests::rows::stated;
        let mut snapshot = lingering(1_000.0);
        snapshot.settings.linger_ms = stated(1_000.0);
        let own = snapshot.producer.as_mut().unwrap();
        // The pipe is full, so that only the linger can explain the queue.
        (own.request_ms, own.nodes[0].request_ms) = (Some(330.0), Some(330.0));
        own.queue_ms = Some(1_400.0);
        assert_eq!(Reading::of(&snapshot).backlog, Backlog::None);
        snapshot.producer.as_mut().unwrap().queue_ms = Some(3_400.0);
        assert_eq!(Reading::of(&snapshot).backlog, Backlog::Hard);
    }
}
