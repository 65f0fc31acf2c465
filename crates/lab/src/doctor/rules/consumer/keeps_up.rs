//! consumer 3: does it keep up?
//!
//! Lag is the distance between the end of a partition and the position of its reader. It is small
//! where it is less than one second of records; with fetch.min.bytes above 1, two waits of a fetch;
//! while it does not grow, what comes between two polls, of which the window must have five.
//! The broker's view counts: a busy Java client's own gauges are old for every partition whose
//! records it has at hand but has not handed over, so a small lag of such a client is not known to
//! be small. A consumer that has little time left and falls behind does not keep up, however small
//! the lag still is; nor does one whose records wait for fetch.min.bytes longer than the round trip
//! explains.
//!
//! - Numbers: lag of all partitions, its slope, records per second consumed and produced, idle
//!   share of polls; where no lag is known, fetches that return empty after their full wait.
//! - Thresholds: lag of at most 1 s of records, 2 * fetch.max.wait.ms, or the time between two
//!   polls; it grows by more than 2 % of the records, five records, and those between two polls.
//! - Says: "It keeps up: nothing is unread, and it waits for records 97 % of the time."
//! - Source: measured here (an idle consumer's fetches take 504 ms: fetch.max.wait.ms and the round
//!   trip).

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Verdict};
use super::fetch_wait::is_held_back;
use super::found::{Found, known};
use super::reading::{IDLE_HIGH, IDLE_LOW, Reading, is_known};
use crate::numbers::{number, percent};

pub fn keeps_up(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("lag", reading.lag, "records"),
        known("slope", reading.lag_slope, "records/s"),
        known("consumed", reading.consumed, "records/s"),
        known("produced", reading.produced, "records/s"),
        known("idle", reading.idle, ""),
    ]
    .join(", ");
    match reading.is_lag_small() {
        Some(false) => Found::nothing(numbers, "no: it is behind"),
        Some(true) if is_falling_behind(reading) => Found::nothing(
            numbers,
            "hardly: the lag is small, but it grows and there is no time left",
        ),
        Some(true) if is_held_back(reading) => Found::nothing(
            numbers,
            "in number; but records wait for fetch.min.bytes (test 6)",
        ),
        Some(true) => keeping_up(reading, numbers, Confidence::High),
        None if reading.is_lag_stale => Found::nothing(
            numbers,
            "its own gauges are old: it hands over one partition's records after another's",
        )
        .missing(
            "the lag of its partitions by the broker, or the group's committed offsets and the log's end",
        ),
        None => keeps_up_unseen(reading, numbers),
    }
}

fn is_falling_behind(reading: &Reading<'_>) -> bool {
    reading.is_growing() == Some(true) && reading.idle.is_some_and(|idle| idle < IDLE_LOW)
}

/// Judges without a known lag: only fetches that return empty after their full wait show that there
/// is none.
fn keeps_up_unseen(reading: &Reading<'_>, numbers: String) -> Found {
    let waits_for_nothing = reading.is_fetch_waiting() == Some(true)
        && reading.idle.is_some_and(|idle| idle > IDLE_HIGH)
        && reading.min_bytes.0 <= 1.0;
    if waits_for_nothing {
        keeping_up(reading, numbers, Confidence::Medium)
            .missing("the group's lag: fetches that return after their full wait are taken for none")
    } else {
        Found::nothing(numbers, "the lag is not known").missing("the lag of its partitions")
    }
}

fn keeping_up(reading: &Reading<'_>, numbers: String, confidence: Confidence) -> Found {
    let lag = match reading.lag {
        Some(lag) if lag > 0.0 => format!("only {} records are unread", number(lag)),
        Some(_) => String::from("nothing is unread"),
        None => String::from("its fetches find nothing new"),
    };
    let time = match reading.idle {
        Some(idle) => format!(", and it waits for records {} of the time", percent(idle)),
        None => String::new(),
    };
    let mut found = Found::verdict(
        numbers,
        Verdict::KeepsUp,
        confidence,
        format!("It keeps up: {lag}{time}."),
    );
    if let (Some(idle), Some(consumed)) = (reading.idle, reading.consumed)
        && idle < 1.0
        && consumed > 0.0
    {
        let headroom = 1.0 / (1.0 - idle);
        let text = format!(
            "its application could work on {} times as many records",
            number(headroom)
        );
        found = found.finding(FindingId::O2, text).evidence([Evidence::new(
            "F29",
            "headroom",
            "1 / (1 - idle)",
            headroom,
            "times",
        )
        .measured("idle", idle, "")]);
    } else {
        found = found.finding(FindingId::O2, "nothing is wrong");
    }
    let is_empty = reading.consumed.unwrap_or(0.0) <= 0.0;
    if reading.is_fetch_waiting() == Some(true) && is_empty {
        found = found
            .note(format!(
                "fetches take {} ms because there is nothing to fetch: fetch.max.wait.ms is {} ({})",
                number(reading.fetch_ms.unwrap_or(0.0)),
                number(reading.wait_ms.0),
                reading.wait_ms.1
            ))
            .refuse(
                "fetch.max.wait.ms",
                "a wait for records that are not there costs nobody anything",
            );
    } else if reading.is_fetch_waiting() == Some(true) && !is_known(reading.min_bytes) {
        found = found.missing(
            "fetch.min.bytes of this client: above 1 it would explain why fetches take as long as they may, and make records late",
        );
    }
    if reading.fetch_ms.is_none() {
        found = found.missing(
            "how long its fetches take: with fetch.min.bytes above 1 records would be late although none stays unread",
        );
    }
    found.refuse("more consumers", "there is nothing that they would read")
}
