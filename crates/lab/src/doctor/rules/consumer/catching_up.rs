//! consumer 13: is it catching up?
//!
//! The last test: the consumer is behind, no test names a reason, and the lag shrinks, or records
//! flow as fast as fetches deliver them. One that waits in polls, or works, while its lag has no
//! known course may as well fall behind: nothing is said of it. Java sends NaN as its idle ratio
//! when polls follow each other within a millisecond; that is no evidence of idling. Fetch sizes
//! are called useless only where polls do not wait for fetches, or fetches stay far below limits
//! that are known.
//!
//! - Numbers: lag, its slope, records per second; time until the lag is gone: lag / (consumed -
//!   produced) (F29).
//! - Thresholds: a lag that shrinks; where its trend is not known, records that flow while polls
//!   follow each other without a sample of the idle share.
//! - Says: "It was behind and catches up: 4,100,000 records are left, for about 15 s."
//! - Source: measured here (276,000 records/s, NaN, fetches of 2.9 MB in 28 ms).

use super::super::super::diagnosis::{Confidence, Evidence, Verdict};
use super::fetches::{self, SizeLimit};
use super::found::{Found, known};
use super::reading::{IDLE_LOW, Reading, is_known};
use crate::formulas::consumer::catch_up_seconds;
use crate::numbers::{duration, number, percent};

pub fn catching_up(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("lag", reading.lag, "records"),
        known("slope", reading.lag_slope, "records/s"),
        known("consumed", reading.consumed, "records/s"),
        known("fetches under way", reading.fetch_use, ""),
    ]
    .join(", ");
    let (Some(lag), Some(false)) = (reading.lag, reading.is_lag_small()) else {
        return Found::nothing(numbers, "it is not known to be behind");
    };
    let flows = reading.consumed.is_some_and(|rate| rate > 0.0);
    let confidence = match (reading.is_shrinking(), flows) {
        (Some(true), true) if reading.produced.is_some() => Confidence::High,
        (Some(true), _) => Confidence::Medium,
        // The lag's trend is not known, but the consumer processes records as fast as they arrive.
        (None, true) if reading.idle.is_none() => Confidence::Low,
        (None, true) => return Found::nothing(numbers, "whether the lag shrinks is not known"),
        (Some(false), _) | (None, false) => {
            return Found::nothing(numbers, "no: the lag does not shrink");
        }
    };
    let consumed = reading
        .consumed
        .unwrap_or_else(|| -reading.lag_slope.unwrap_or(0.0));
    let produced = reading
        .produced
        .or_else(|| reading.lag_slope.map(|slope| (consumed + slope).max(0.0)));
    let seconds = catch_up_seconds(lag, consumed, produced.unwrap_or(0.0));
    let summary = match (seconds.is_finite(), reading.is_shrinking()) {
        (true, Some(true)) => format!(
            "It was behind and catches up: {} records are left, for about {}.",
            number(lag),
            duration(seconds)
        ),
        _ => format!(
            "It is {} records behind and reads on; whether it catches up is not known yet.",
            number(lag)
        ),
    };
    let line = Evidence::new("F29", "catch_up", "lag / (consumed - produced)", seconds, "s")
        .measured("lag", lag, "records")
        .measured("consumed", consumed, "records/s")
        .with(
            "produced",
            produced.unwrap_or(0.0),
            "records/s",
            if produced.is_some() { "measured" } else { "assumed" },
        );
    let mut found = Found::verdict(numbers, Verdict::CatchingUp, confidence, summary)
        .evidence([line])
        .evidence(fetches::ceiling(reading));
    if let Some(why) = sizes_do_not_matter(reading) {
        found = found.refuse("fetch sizes", why);
    } else if SizeLimit::of(reading).is_none() && !is_known(reading.partition_bytes) {
        found = found.missing(
            "max.partition.fetch.bytes and fetch.max.bytes of this client: whether fetches reach them",
        );
    }
    if produced.is_none() {
        found = found.missing("how much is produced: without it the time is the least possible");
    }
    if reading.idle.is_none() {
        found = found.missing("the idle share of polls: no sample, as at high poll rates");
    }
    found
}

/// Why larger fetches change nothing, where that is measured and no assumed limit decides it.
fn sizes_do_not_matter(reading: &Reading<'_>) -> Option<String> {
    if let Some(idle) = reading.idle.filter(|idle| *idle < IDLE_LOW) {
        return Some(format!("polls wait for them {} of the time only", percent(idle)));
    }
    let size = reading.fetch_bytes?;
    let are_known = is_known(reading.partition_bytes) && is_known(reading.max_bytes);
    let is_far = size < 0.5 * reading.partition_bytes.0.min(reading.max_bytes.0);
    (are_known && is_far)
        .then(|| String::from("fetches bring less than half of what they may, whatever their limit"))
}
