//! Tests 6 to 8 of consumers: do fetches wait for records, are they too small, do they read the
//! disk?

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::super::super::snapshot::BrokerSide;
use super::super::broker::{self, Judgement, parts::Part};
use super::found::{Found, known, promise};
use super::group::of_time;
use super::lag::IDLE_HIGH;
use super::reading::{Reading, SIZE_AT_LIMIT, sane};
use crate::formulas::consumer::fetch_bytes_per_second;
use crate::numbers::{bytes, duration, number, percent, plain};

/// Records younger than this are in every broker's page cache.
const AGE_COLD_MS_MIN: f64 = 60_000.0;

/// The share of fetch time or fetched bytes from which cold reads count.
const COLD_SHARE_MIN: f64 = 0.3;

/// F15: a link that carries this share of its bandwidth is full.
const LINK_USE_HIGH: f64 = 0.85;

/// Whether fetches wait for fetch.min.bytes while records arrive: there is a lag between two
/// answers, though none right after one.
pub fn is_held_back(reading: &Reading<'_>) -> bool {
    reading.min_bytes.0 > 1.0
        && reading.is_fetch_waiting() == Some(true)
        && reading.idle.is_some_and(|idle| idle > IDLE_HIGH)
        && reading.consumed.is_some_and(|rate| rate > 0.0)
}

/// Whether polls wait for fetches: nearly always, or at least half of the time while the consumer
/// falls behind.
pub fn waits_for_fetches(reading: &Reading<'_>) -> Option<Confidence> {
    let idle = reading.idle?;
    if idle > IDLE_HIGH {
        Some(Confidence::High)
    } else {
        (idle >= 0.5 && reading.is_growing() == Some(true)).then_some(Confidence::Low)
    }
}

/// consumer 6 Do fetches wait for fetch.min.bytes?
///
/// A broker holds a fetch back until fetch.min.bytes are there or fetch.max.wait.ms is over. Where
/// records arrive, polls wait and fetches take as long as they are allowed to, that setting is why
/// records arrive late. There is a lag between two such answers, though a client that measures it
/// just after an answer sees none.
///
/// - Numbers: idle share of polls, lag, fetch latency, fetch.max.wait.ms, fetch.min.bytes, the
///   broker's wait (remote part).
/// - Thresholds: idle above 0.8, lag above 0, latency at least 0.9 of fetch.max.wait.ms.
/// - Says: "FETCH_WAIT: fetches take 502 of at most 500 ms: they wait for 1 MiB".
/// - Source: measured here (504 ms of an idle consumer with the default of 500).
pub fn fetch_wait(reading: &Reading<'_>) -> Found {
    let of_setting = |name: &str, known: (f64, &str)| format!("{name} {} ({})", number(known.0), known.1);
    let numbers = [
        known("idle", reading.idle, ""),
        known("lag", reading.lag, "records"),
        known("fetch", reading.fetch_ms, "ms"),
        of_setting("fetch.max.wait.ms", reading.wait_ms),
        of_setting("fetch.min.bytes", reading.min_bytes),
    ]
    .join(", ");
    let waits = waits_for_fetches(reading);
    let (Some(fetch_ms), Some(true), Some(confidence)) =
        (reading.fetch_ms, reading.is_fetch_waiting(), waits)
    else {
        return Found::nothing(numbers, "no");
    };
    let is_behind = reading.is_lag_small() == Some(false);
    if !is_behind && !is_held_back(reading) {
        return Found::nothing(numbers, "they wait, but there is nothing to fetch");
    }
    let (wait, origin) = reading.wait_ms;
    let least = match reading.min_bytes.0 {
        least if least > 1.0 => bytes(least),
        _ => String::from("fetch.min.bytes"),
    };
    let summary = format!(
        "fetches take {} ms, as long as fetch.max.wait.ms = {} lets them: they wait for {least}",
        number(fetch_ms),
        number(wait)
    );
    let is_assumed = origin == "default";
    let confidence = if is_assumed || !is_behind {
        confidence.min(Confidence::Medium)
    } else {
        confidence
    };
    let line = Evidence::new(
        "fetch wait",
        "share",
        "fetch / wait",
        fetch_ms / wait,
        "of the wait",
    )
    .measured("fetch", fetch_ms, "ms")
    .with("wait", wait, "ms", origin);
    let waited = of_time(reading.idle.unwrap_or(0.0));
    let full = "fetches return for want of records, not because they are full";
    let found = Found::verdict(numbers, Verdict::FetchWait, confidence, summary.clone())
        .finding(FindingId::C2, summary)
        .evidence([line])
        .recommend(Some(wait_less(reading, fetch_ms)))
        .refuse("fetch.max.bytes", full)
        .refuse("max.partition.fetch.bytes", full)
        .refuse("more consumers", "each of them would wait in the same way")
        .refuse("a faster handler", format!("it waits {waited} already"));
    if is_assumed {
        found.missing("fetch.max.wait.ms and fetch.min.bytes: the defaults are assumed")
    } else {
        found
    }
}

fn wait_less(reading: &Reading<'_>, fetch_ms: f64) -> Recommendation {
    // With fetch.min.bytes=1 the first record that arrives ends the wait.
    let floor = sane(reading.snapshot.network.round_trip_ms).unwrap_or(0.0);
    let rate = reading.consumed.filter(|rate| *rate > 0.0);
    let between = rate.map_or(fetch_ms, |rate| 1_000.0 / rate + floor);
    Recommendation {
        set: String::from("fetch.min.bytes=1"),
        why: String::from(
            "then the first record that comes ends the wait; a lower fetch.max.wait.ms bounds it instead",
        ),
        promise: promise(
            "fetch_ms",
            Some(fetch_ms),
            (floor.min(fetch_ms), between.min(fetch_ms)),
            "ms",
            "records come as evenly as now",
        ),
        next_ceiling: String::from("more, smaller fetches: the broker's time for them"),
        cost: String::from("more fetches per second at the broker"),
    }
}

/// consumer 7 Are fetches too small?
///
/// Where polls wait, records are available and fetches return before their maximum wait, the size
/// of a fetch limits the rate: size / latency. The limits are max.partition.fetch.bytes for each
/// partition and fetch.max.bytes for all. Raising them is useless where the link is full, or where
/// most of a fetch's time is the broker's own (test 8): such a fetch takes longer in proportion to
/// its size.
///
/// - Numbers: idle share, lag, bytes per fetch against both limits, fetch latency, the link's
///   bandwidth.
/// - Thresholds: idle above 0.8; a mean of 0.85 of a limit, because fetches hold whole batches.
/// - Says: "FETCH_SIZE: fetches bring 1.02 MB of at most 1.05 MB in 72 ms: 14.2 MB/s".
/// - Source: p99 article (F29); findings, C2.
pub fn fetch_size(reading: &Reading<'_>) -> Found {
    let (limit, name) = size_limit(reading);
    let numbers = [
        known("idle", reading.idle, ""),
        known("fetch", reading.fetch_ms, "ms"),
        known("bytes per fetch", reading.fetch_bytes, "B"),
        known(name, Some(limit), "B"),
    ]
    .join(", ");
    let Some(confidence) = waits_for_fetches(reading) else {
        let answer = match reading.idle {
            Some(idle) => format!("no: polls wait {} only", of_time(idle)),
            None => String::from("no: polls are not known to wait for fetches"),
        };
        return Found::nothing(numbers, answer);
    };
    if reading.is_lag_small() != Some(false) {
        return Found::nothing(numbers, "there is no lag that they could have caused");
    }
    if reading.is_fetch_waiting() == Some(true) {
        return Found::nothing(numbers, "no: they wait for records");
    }
    if let Some(share) = link_use(reading).filter(|share| *share >= LINK_USE_HIGH) {
        return link_full(numbers, share);
    }
    if let Some(cold) = cold(reading) {
        return Found::nothing(
            numbers,
            format!("a larger fetch would take longer in proportion: {}", cold.why),
        );
    }
    let is_full = reading.fetch_bytes.map(|size| size >= SIZE_AT_LIMIT * limit);
    // Not full on average: brokers with nothing left also answer, with small fetches, so this
    // proves nothing.
    let confidence = match is_full {
        Some(true) if reading.fetch_ms.is_some() => confidence,
        _ if reading.is_growing() == Some(true) && reading.fetch_ms.is_some() => Confidence::Low,
        _ => return Found::nothing(numbers, "no: fetches are not seen to reach a limit"),
    };
    sized(reading, numbers, confidence, (limit, name))
}

/// The limit that a fetch reaches first, and its name.
fn size_limit(reading: &Reading<'_>) -> (f64, &'static str) {
    let (all, each) = (reading.max_bytes.0, reading.partition_bytes.0);
    let is_at_all = reading
        .fetch_bytes
        .is_some_and(|size| size >= SIZE_AT_LIMIT * all);
    if all < each || is_at_all {
        (all, "fetch.max.bytes")
    } else {
        (each, "max.partition.fetch.bytes")
    }
}

fn link_use(reading: &Reading<'_>) -> Option<f64> {
    let link = sane(reading.snapshot.network.bandwidth_bytes_per_second).filter(|link| *link > 0.0)?;
    Some(sane(reading.consumer.bytes_per_second)? / link)
}

/// No consumer verdict names the network; the lag's trend shows whether its bandwidth suffices
/// (test 11).
fn link_full(numbers: String, share: f64) -> Found {
    let text = format!(
        "the link carries {} of its bandwidth: it is the limit, not the size of fetches",
        percent(share)
    );
    Found::nothing(numbers, text.clone())
        .note(text)
        .refuse(
            "max.partition.fetch.bytes",
            "the link is full; a larger fetch takes longer in proportion",
        )
        .refuse(
            "fetch.max.bytes",
            "the link is full; a larger fetch takes longer in proportion",
        )
        .refuse("more consumers", "on the same link they share what one has now")
}

fn sized(
    reading: &Reading<'_>,
    numbers: String,
    confidence: Confidence,
    limit: (f64, &'static str),
) -> Found {
    let (limit, name) = limit;
    let (size, fetch_ms) = (
        reading.fetch_bytes.unwrap_or(limit),
        reading.fetch_ms.unwrap_or(f64::NAN),
    );
    let summary = format!(
        "polls wait {} for fetches of {} ({name} allows {}) that take {} ms: {}/s each",
        of_time(reading.idle.unwrap_or(0.0)),
        bytes(size),
        bytes(limit),
        number(fetch_ms),
        bytes(1_000.0 * size / fetch_ms)
    );
    let now = reading.consumed.unwrap_or(0.0);
    // The part of the latency that does not depend on size stays; the rest may double with the
    // size.
    let fixed =
        sane(reading.snapshot.network.round_trip_ms).map_or(0.0, |round_trip| round_trip.min(fetch_ms));
    let low = now * 2.0 * fetch_ms / (2.0 * fetch_ms - fixed);
    let work_limit = reading
        .idle
        .filter(|idle| *idle < 1.0)
        .map(|idle| now / (1.0 - idle));
    let high = work_limit.map_or(2.0 * now, |limit| limit.min(2.0 * now));
    let next_ceiling = match work_limit {
        Some(limit) => format!("the application's own work: {} records/s (F29)", number(limit)),
        None => String::from("the link's bandwidth, then the application's work"),
    };
    let set_to = plain(2.0 * limit);
    let partitions = reading.partitions.unwrap_or(1.0).max(1.0);
    let recommendation = Recommendation {
        set: format!("{name}={set_to}"),
        why: String::from("a fetch brings no more than that; the rate is size / latency"),
        promise: promise(
            "records_per_second",
            Some(now),
            (low.min(high), high),
            "records/s",
            "at unchanged latency of a fetch; the lower bound where it grows with the size",
        ),
        next_ceiling,
        cost: format!("up to {} more memory at the consumer", bytes(limit * partitions)),
    };
    let is_full = size >= SIZE_AT_LIMIT * limit;
    let mut found = Found::verdict(numbers, Verdict::FetchSize, confidence, summary.clone())
        .finding(FindingId::C2, summary)
        .evidence(ceiling(reading))
        .recommend(Some(recommendation))
        .refuse(
            "fetch.min.bytes",
            "fetches do not wait for records, there are enough",
        )
        .refuse("fetch.max.wait.ms", "no fetch waits so long")
        .refuse("a faster handler", "it waits for records, not they for it");
    if !is_full {
        found = found.missing(
            "why fetches bring less than they may: paused partitions, a partition without leader, or answers of brokers that have \
             nothing left",
        );
    }
    if reading.partition_bytes.1 == "default" {
        found = found.missing("max.partition.fetch.bytes and fetch.max.bytes: the defaults are assumed");
    }
    found
}

/// A sign of reads from the disk.
struct Cold {
    why: String,
    is_measured: bool,
    judgement: Option<Judgement>,
}

/// Whether most of a fetch is the broker's own time in the log or in sending, and whether reads
/// from the disk were measured.
fn cold(reading: &Reading<'_>) -> Option<Cold> {
    if reading.age_ms().is_some_and(|age| age < AGE_COLD_MS_MIN) {
        return None;
    }
    let measured = reading
        .snapshot
        .brokers
        .iter()
        .filter(|side| !side.is_of_all_clients && are_cold_reads_many(reading, side))
        .find_map(broker::cold_sentence);
    let judgement = reading
        .judgement()
        .filter(|judgement| matches!(judgement.part, Part::Local | Part::Response));
    let is_slow = match (reading.broker_ms(), reading.fetch_ms) {
        (Some(broker), Some(fetch)) => broker >= 0.5 * fetch,
        (Some(_), None) => true,
        _ => false,
    };
    match (measured, judgement) {
        (Some(reads), judgement) => Some(Cold {
            why: reads,
            is_measured: true,
            judgement,
        }),
        (None, Some(judgement)) if is_slow => Some(Cold {
            why: judgement.finding.text.clone(),
            is_measured: false,
            judgement: Some(judgement),
        }),
        _ => None,
    }
}

/// Whether cold reads take a substantial share of the fetches' time or bytes; an occasional one
/// delays nothing noticeably.
fn are_cold_reads_many(reading: &Reading<'_>, side: &BrokerSide) -> bool {
    let time = sane(side.cold_reads_per_second)
        .zip(sane(side.cold_read_ms))
        .map(|(reads, ms)| reads * ms / 1_000.0);
    let of_time = time.zip(reading.fetch_use.filter(|share| *share > 0.0));
    let of_bytes =
        sane(side.cold_bytes_per_second).zip(sane(side.bytes_per_second).filter(|rate| *rate > 0.0));
    [of_time, of_bytes]
        .into_iter()
        .flatten()
        .any(|(cold, all)| cold >= COLD_SHARE_MIN * all)
}

/// consumer 8 Does the broker read the disk for it?
///
/// Records that were written long ago are no longer in the page cache. Reading them takes the
/// handler's time (local) or, where the file is sent directly, the network thread's (response), and
/// other requests wait with it. "Cold" is claimed where the broker measured reads from the disk,
/// otherwise it is suspected: a slow network to the reader looks the same.
///
/// - Numbers: idle share, lag and its age, fetch latency, the broker's local and sending time, cold
///   reads per second and their time (F26).
/// - Thresholds: idle above 0.8; the broker's own time at least 0.5 of the fetch, of which local
///   0.5 or response 0.3; records at least a minute old where their age is known.
/// - Says: "COLD_READ (suspected): 97 % of the broker's 118 ms are spent in the response queue and
///   on sending".
/// - Source: LINE talk; 2.3.0 test report (a broker whose page cache was taken by other programs).
pub fn cold_read(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("idle", reading.idle, ""),
        known("fetch", reading.fetch_ms, "ms"),
        known("the broker's own part", reading.broker_ms(), "ms"),
        known("age", reading.age_ms(), "ms"),
    ]
    .join(", ");
    let cold = cold(reading);
    let Some(cold) = cold.filter(|_| reading.is_lag_small() != Some(true)) else {
        return Found::nothing(numbers, "no sign of it");
    };
    let waits = waits_for_fetches(reading);
    // Where the client's polls cannot be observed, the verdict needs measured reads.
    let confidence = match (waits, cold.is_measured) {
        (Some(confidence), true) => confidence,
        (Some(Confidence::Low), false) => Confidence::Low,
        (Some(_), false) if reading.age_ms().is_some() => Confidence::Medium,
        (Some(_), false) => Confidence::Low,
        (None, true) if reading.idle.is_none() => Confidence::Low,
        (None, _) => return Found::nothing(numbers, "its polls do not wait for fetches"),
    };
    if link_use(reading).is_some_and(|share| share >= LINK_USE_HIGH) && !cold.is_measured {
        return Found::nothing(numbers, "the link is full: sending takes long for that reason");
    }
    let word = if cold.is_measured { "" } else { " (suspected)" };
    let summary = format!("the broker reads the disk for it{word}: {}", cold.why);
    let mut found = Found::verdict(numbers, Verdict::ColdRead, confidence, summary.clone())
        .finding(FindingId::C3, summary)
        .evidence(reading.snapshot.brokers.iter().filter_map(broker::cold_line))
        .evidence(
            cold.judgement
                .iter()
                .flat_map(|judgement| judgement.evidence.clone()),
        )
        .recommend(Some(warm(reading, &cold)))
        .refuse(
            "max.partition.fetch.bytes",
            "a larger fetch reads more of the disk and takes longer in proportion",
        )
        .refuse(
            "more consumers",
            "they would read the same disk at more places at once",
        )
        .refuse("a faster handler", "it waits for records, not they for it");
    if !cold.is_measured {
        found = found.missing(
            "reads from the disk and their time at the broker; a slow network to this client looks the same",
        );
    }
    if reading.age_ms().is_none() {
        found = found.missing("the age of the records that it reads");
    }
    found
}

fn warm(reading: &Reading<'_>, cold: &Cold) -> Recommendation {
    let now = reading.fetch_ms.or(reading.broker_ms());
    let slow = cold
        .judgement
        .as_ref()
        .zip(reading.broker_ms())
        .map_or(0.0, |(judgement, broker)| judgement.share * broker);
    let best = now.map_or(0.0, |now| (now - slow).max(0.0));
    Recommendation {
        set: String::from(
            "memory for the page cache, nothing else on the broker's machine; read on before records leave the cache",
        ),
        why: match reading.age_ms() {
            Some(age) => format!("it reads records that are {} old", duration(age / 1_000.0)),
            None => String::from("it reads records that are no longer in memory"),
        },
        promise: promise(
            "fetch_ms",
            now,
            (best, now.unwrap_or(best)),
            "ms",
            "the disk's part goes, all of it at best",
        ),
        next_ceiling: String::from("size of fetches over their latency (F29)"),
        cost: String::from("while it catches up, throttle it: other clients wait behind its reads"),
    }
}

/// F29: the ceiling of sequential fetches, because a connection has one fetch under way at a time.
pub fn ceiling(reading: &Reading<'_>) -> Option<Evidence> {
    let (size, fetch_ms) = (reading.fetch_bytes.filter(|size| *size > 0.0)?, reading.fetch_ms?);
    let result = fetch_bytes_per_second(size, 1_000.0 / fetch_ms);
    result.is_finite().then(|| {
        Evidence::new(
            "F29",
            "fetch_max",
            "1000 * size / latency",
            result,
            "B/s per broker",
        )
        .measured("size", size, "B")
        .measured("latency", fetch_ms, "ms")
    })
}

/// The same ceiling in records.
pub fn records_per_second_max(reading: &Reading<'_>) -> Option<f64> {
    let rate = ceiling(reading)?.result / reading.record_bytes()?;
    Some(rate).filter(|rate| rate.is_finite() && *rate > 0.0)
}
