//! consumer 10: does the broker read the disk for it?
//!
//! Records that were written long ago are no longer in the page cache. Reading them takes the
//! handler's time (local) or, where the file is sent directly, the network thread's (response), and
//! other requests wait with it. "Cold" is claimed where the broker measured reads from the disk,
//! otherwise it is suspected: a slow network to the reader looks the same.
//!
//! - Numbers: idle share, lag and its age, fetch latency, the broker's local and sending time, cold
//!   reads per second and their time (F26).
//! - Thresholds: polls wait 0.8 of the time; cold reads take 0.3 of the fetches' time, or bytes;
//!   where they are not measured, the broker's own time is at least 0.5 of the fetch, of which
//!   local 0.5 or response 0.3; records at least a minute old where their age is known.
//! - Says: "It reads records that are no longer in memory: the broker's disk takes 82 % of each
//!   fetch."
//! - Source: LINE talk; 2.3.0 test report (a broker whose page cache was taken by other programs).

use super::super::super::diagnosis::{Confidence, FindingId, Promise, Recommendation, Verdict};
use super::super::super::snapshot::BrokerSide;
use super::super::broker::{self, Judgement, parts::Part};
use super::fetches;
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use crate::numbers::{duration, percent};

/// Records younger than this are in every broker's page cache.
const AGE_COLD_MS_MIN: f64 = 60_000.0;

/// The share of fetch time, or of fetched bytes where the time is not known, from which cold reads
/// count.
const COLD_SHARE_MIN: f64 = 0.3;

/// Polls that wait for this share of the time wait for what was measured of their fetches.
const WAITS: f64 = 0.5;

/// What is left of a fetch without its cold reads is a sum of small times; a promise of less than
/// this share of now would rest on their errors.
const REST_SHARE_MIN: f64 = 0.1;

/// A sign of reads from the disk.
pub struct Cold {
    pub why: String,
    pub is_measured: bool,
    /// The share of a fetch's time, where it is known.
    share: Option<f64>,
    judgement: Option<Judgement>,
}

/// Whether most of a fetch is the broker's own time in the log or in sending, and whether reads
/// from the disk were measured.
pub fn cold(reading: &Reading<'_>) -> Option<Cold> {
    if reading.age_ms().is_some_and(|age| age < AGE_COLD_MS_MIN) {
        return None;
    }
    let many = || reading.sides().filter(|side| are_cold_reads_many(reading, side));
    let judgement = reading
        .judgement()
        .filter(|judgement| matches!(judgement.part, Part::Local | Part::Response));
    if let Some(reads) = many().find_map(broker::cold_sentence) {
        return Some(Cold {
            why: reads,
            is_measured: true,
            share: many()
                .filter_map(|side| share_of_fetch(reading, side))
                .reduce(f64::max),
            judgement,
        });
    }
    let judgement = judgement?;
    let is_slow = match (reading.broker_ms(), reading.fetch_ms) {
        (Some(broker), Some(fetch)) => broker >= 0.5 * fetch,
        (Some(_), None) => true,
        _ => false,
    };
    // A broker that counts its cold reads, and had few, has answered the question.
    let has_counted = reading
        .sides()
        .any(|side| sane(side.cold_reads_per_second).is_some());
    (is_slow && !has_counted).then(|| Cold {
        why: judgement.finding.text.clone(),
        is_measured: false,
        share: None,
        judgement: Some(judgement),
    })
}

/// Whether cold reads take a substantial share of the fetches' time or bytes; an occasional one
/// delays nothing noticeably.
pub fn are_cold_reads_many(reading: &Reading<'_>, side: &BrokerSide) -> bool {
    let time = sane(side.cold_reads_per_second)
        .zip(sane(side.cold_read_ms))
        .map(|(reads, ms)| reads * ms / 1_000.0);
    let of_time = time.zip(reading.fetch_use.filter(|share| *share > 0.0));
    let of_bytes =
        sane(side.cold_bytes_per_second).zip(sane(side.bytes_per_second).filter(|rate| *rate > 0.0));
    // Bytes that come from a fast disk cost no time.
    of_time
        .or(of_bytes)
        .is_some_and(|(cold, all)| cold > 0.0 && cold >= COLD_SHARE_MIN * all)
}

/// The cold reads of a second over the time of that second's fetches.
fn share_of_fetch(reading: &Reading<'_>, side: &BrokerSide) -> Option<f64> {
    let reads = sane(side.cold_reads_per_second)?;
    let busy = reading.fetch_use.filter(|share| *share > 0.0)?;
    let share = reads * sane(side.cold_read_ms)? / 1_000.0 / busy;
    (share.is_finite() && share > 0.0).then_some(share.min(1.0))
}

pub fn cold_read(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("idle", reading.idle, ""),
        known("fetch", reading.fetch_ms, "ms"),
        known("the broker's own part", reading.broker_ms(), "ms"),
        known("age", reading.age_ms(), "ms"),
    ]
    .join(", ");
    let Some(cold) = cold(reading).filter(|_| reading.is_lag_small() != Some(true)) else {
        return Found::nothing(numbers, "no sign of it");
    };
    // Where the client's polls cannot be observed, the verdict needs measured reads; so it does
    // where they wait for half of a window that the client's start is a part of.
    let confidence = match (reading.waits_for_fetches(), cold.is_measured) {
        (Some(confidence), true) => confidence,
        (Some(Confidence::Low), false) => Confidence::Low,
        (Some(_), false) if reading.age_ms().is_some() => Confidence::Medium,
        (Some(_), false) => Confidence::Low,
        (None, true) if reading.idle.is_none_or(|idle| idle >= WAITS) => Confidence::Low,
        (None, _) => return Found::nothing(numbers, "its polls do not wait for fetches"),
    };
    if fetches::is_link_full(reading) && !cold.is_measured {
        return Found::nothing(numbers, "the link is full: sending takes long for that reason");
    }
    let mut found = Found::verdict(numbers, Verdict::ColdRead, confidence, summary(&cold))
        .finding(FindingId::C3, cold.why.clone())
        .evidence(reading.snapshot.brokers.iter().filter_map(broker::cold_line))
        .evidence(
            cold.judgement
                .iter()
                .flat_map(|judgement| judgement.evidence.clone()),
        );
    if cold.is_measured {
        found = found
            .recommend(Some(warm(reading, &cold)))
            .refuse(
                "max.partition.fetch.bytes",
                "a larger fetch reads more of the disk and takes longer in proportion",
            )
            .refuse(
                "more consumers",
                "they would read the same disk at more places at once",
            )
            .refuse("fetch.min.bytes", "fetches wait for the disk, not for records");
    } else {
        found = found.recommend(Some(warm(reading, &cold))).missing(
            "reads from the disk and their time at the broker; a slow network to this client looks the same",
        );
    }
    if reading.age_ms().is_none() {
        found = found.missing("the age of the records that it reads");
    }
    found
}

fn summary(cold: &Cold) -> String {
    match (cold.is_measured, cold.share) {
        (true, Some(share)) => format!(
            "It reads records that are no longer in memory: the broker's disk takes {} of each fetch.",
            percent(share)
        ),
        (true, None) => format!(
            "It reads records that are no longer in memory: the broker answers with {}.",
            cold.why
        ),
        (false, _) => String::from(
            "It waits for a broker that is slow to read or to send: reads from the disk are suspected, not measured.",
        ),
    }
}

fn warm(reading: &Reading<'_>, cold: &Cold) -> Recommendation {
    Recommendation {
        set: String::from(
            "memory for the page cache, nothing else on the broker's machine; read on before records leave the cache",
        ),
        why: match reading.age_ms() {
            Some(age) => format!("it reads records that are {} old", duration(age / 1_000.0)),
            None => String::from("it reads records that are no longer in memory"),
        },
        promise: without_disk(reading, cold),
        next_ceiling: String::from("size of fetches over their latency (F29)"),
        cost: String::from("while it catches up, throttle it: other clients wait behind its reads"),
    }
}

/// The disk's part of a fetch goes, where that part was measured and leaves more than the errors of
/// the other parts.
fn without_disk(reading: &Reading<'_>, cold: &Cold) -> Promise {
    let now = reading.fetch_ms.or(reading.broker_ms());
    let rest = now
        .zip(cold.share.filter(|_| cold.is_measured))
        .map(|(now, share)| now * (1.0 - share))
        .filter(|rest| *rest >= REST_SHARE_MIN * now.unwrap_or(0.0));
    match rest {
        Some(rest) => promise(
            "fetch_ms",
            now,
            (0.8 * rest, 1.2 * rest),
            "ms",
            "all that it reads is in memory",
        ),
        None => {
            let same = now.unwrap_or(0.0);
            let unknown = "how long a fetch takes from memory: nearly all of it is the disk now, or the disk's part was not measured";
            promise("fetch_ms", now, (same, same), "ms", unknown)
        }
    }
}
