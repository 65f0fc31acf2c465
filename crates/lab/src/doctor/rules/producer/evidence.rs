//! S0: is there evidence?
//!
//! **Asks** whether the window holds enough to judge by. **Numbers**: pushes, requests, seconds,
//! the instance's start time. **Thresholds**: at least 2 pushes, at least 100 requests or 30
//! seconds, and no restart within the window. Numbers that were read in one go (printed by the
//! client, a file, an exported case) are one complete reading: pushes are not counted and 20
//! requests suffice, with low confidence below 100. A client that sends 600 kB records one at a
//! time across 72 ms sends only 49 in 20 s, and its problem shows in every one of them.
//!
//! **Why**: a Java gauge is a mean over 30 to 60 s, and the rate of a client that has just started
//! is too low by a factor of three (2,000 records/s showed as 572 after 12 s).
//!
//! A client that pushes nothing although its requests follow each other without a pause still gives
//! evidence: a Java client with one request in flight needs that slot for its push. Such a client
//! is judged by the broker's view alone (`silent.rs`).

use crate::doctor::diagnosis::Step;

use super::super::words::{known, step};
use super::reading::{Reading, clean};
use crate::numbers::number;

const PUSHES: u32 = 2;
const REQUESTS: f64 = 100.0;
const REQUESTS_OF_A_READING: f64 = 20.0;
const SECONDS: f64 = 30.0;
/// The share of requests that follow the previous response within 1.3 round trips and 1 ms.
const BACK_TO_BACK: f64 = 0.85;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Evidence {
    Enough,
    /// Only brokers report, and they see requests back to back.
    Silent,
    /// Describes what there is.
    TooLittle(String),
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Evidence, Step) {
    let telemetry = &reading.snapshot.telemetry;
    let pushes = match telemetry.pushes {
        Some(pushes) => format!("pushes = {pushes}"),
        None => "one complete reading".to_owned(),
    };
    let numbers = [
        pushes,
        known("requests", reading.requests, ""),
        known("window", Some(reading.seconds), "s"),
    ];
    let evidence = weigh(reading);
    let answer = match &evidence {
        Evidence::Enough => "yes".to_owned(),
        Evidence::Silent => {
            "no telemetry, but the broker sees requests back to back: its numbers alone".to_owned()
        }
        Evidence::TooLittle(words) => words.clone(),
    };
    (evidence, step("S0", "Is there evidence?", &numbers, answer))
}

fn weigh(reading: &Reading<'_>) -> Evidence {
    let telemetry = &reading.snapshot.telemetry;
    if telemetry.restarted {
        return Evidence::TooLittle(
            "not enough data yet: the client started again within the window".to_owned(),
        );
    }
    let is_reading = reading.is_complete_reading();
    let has_pushed = telemetry.pushes.is_some_and(|pushes| pushes >= PUSHES) && reading.has_own_numbers();
    let requests = reading.requests.unwrap_or(0.0);
    let needed = if is_reading {
        REQUESTS_OF_A_READING
    } else {
        REQUESTS
    };
    let is_long = requests >= needed || reading.seconds >= SECONDS;
    let has_rate = reading.records_per_second.is_some() || reading.requests_per_second.is_some();
    if (is_reading || has_pushed) && is_long && has_rate {
        return Evidence::Enough;
    }
    if !is_reading && !has_pushed && is_long && is_back_to_back(reading) {
        return Evidence::Silent;
    }
    Evidence::TooLittle(too_little(reading, has_rate))
}

/// Whether most requests follow the previous response at once, and no two of them wait together.
pub(crate) fn is_back_to_back(reading: &Reading<'_>) -> bool {
    reading.snapshot.brokers.iter().any(|side| {
        clean(side.back_to_back_share).is_some_and(|share| share > BACK_TO_BACK)
            && side.has_overlap != Some(true)
    })
}

fn too_little(reading: &Reading<'_>, has_rate: bool) -> String {
    let telemetry = &reading.snapshot.telemetry;
    let mut words = format!(
        "not enough data yet: {} pushes, {} requests",
        telemetry.pushes.unwrap_or(0),
        reading
            .requests
            .map_or_else(|| "an unknown number of".to_owned(), number)
    );
    if let Some(seconds) = telemetry
        .seconds_until_next_push
        .filter(|seconds| seconds.is_finite())
    {
        words.push_str(&format!("; next push in {} s", number(seconds.max(0.0))));
    }
    if !has_rate && reading.request_ms.is_some() {
        words.push_str("; latencies without a rate: nothing says how many requests there were");
    }
    words
}
