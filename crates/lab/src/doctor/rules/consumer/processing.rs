//! consumer 5: does the application have time?
//!
//! If polls hardly ever wait, the application is busy with records all the time. Without an idle
//! share other signs say the same: fetches are rarely under way although records are available (the
//! consumer does not request them), polls follow each other within a millisecond and the consumer
//! still falls behind, or a topic with another number of partitions was read at the same rate. In
//! that case more partitions gain nothing unless more consumers read them. Records per second are
//! those of the partitions' positions where the client's own count differs: Java counts a fetch
//! when its last record has been handed over, which takes a slow consumer many seconds. One that
//! works all the time because it was away, and will have caught up within minutes, is only catching
//! up (test 13).
//!
//! - Numbers: idle share of polls (Java's corrected: r / (1 - r)), records per second, work per
//!   record = (1 - idle) / records per second, needed consumers = produced * work, at most the
//!   partitions (F29).
//! - Thresholds: idle below 0.2; below 0.5 where the lag grows; fetches under way below 0.2 of the
//!   time; rates within 5 %; a lag that is not gone in 5 min.
//! - Commits that the application waits for look like work; where they take half of the time they
//!   are named, and fewer of them are the change.
//! - Says: "It falls behind because its own work takes 521 µs on each record, which makes 1,863
//!   records/s."
//! - Source: measured here (0.5 ms of work per record: ratio 0.027, 1,863 records/s); 2.3.0 test
//!   report (25 MB/s with one and three partitions).

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::commits;
use super::fetches::{self, CATCH_UP_SECONDS, RATE_VARIES};
use super::found::{Found, known, promise};
use super::reading::{IDLE_LOW, Reading, sane};
use crate::formulas::consumer::{catch_up_seconds, consumers_needed, work_ms};
use crate::numbers::{duration, number, percent};

/// Polls that follow each other within this time find records every time.
const POLLS_AT_ONCE_MS: f64 = 2.0;

/// With a fetch under way for less than this share of time, the consumer does not request records.
const FETCH_USE_LOW: f64 = 0.2;

/// A consumer that will have caught up within this time needs no change.
const BACKLOG_SECONDS: f64 = 300.0;

/// A poll that hands over fewer records than this, half of the default of `max.poll.records`.
const POLL_RECORDS_FEW: f64 = 250.0;

/// Work on a record that takes a round trip, give or take this, may be a call across the network.
const ROUND_TRIPS: (f64, f64) = (0.9, 1.3);
/// A shorter round trip takes as long as ordinary work.
const ROUND_TRIP_MS_MIN: f64 = 2.0;

/// Rates that differ by less than this count as equal.
const SAME_RATE: f64 = 0.05;

/// The share of the ideal gain that more consumers achieve: they share machines, brokers and the
/// coordinator.
const SHARED_GAIN: f64 = 0.9;

pub fn processing(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("idle", reading.idle, ""),
        known("consumed", reading.consumed, "records/s"),
        known("produced", reading.produced, "records/s"),
        known("lag", reading.lag, "records"),
        known("fetches under way", reading.fetch_use, ""),
    ]
    .join(", ");
    let is_small = reading.is_lag_small();
    let is_growing = reading.is_growing() == Some(true);
    if is_small == Some(true) && !is_growing {
        let busy = reading.idle.filter(|idle| *idle < IDLE_LOW);
        let found = Found::nothing(numbers, "there is no lag that it could have caused");
        return match busy {
            Some(idle) => {
                let text = format!(
                    "it keeps up, but without reserve unless it rests between polls: they wait {}",
                    of_time(idle)
                );
                let mut found = found.finding(FindingId::C1, text);
                found.evidence.extend(work_line(reading));
                found
            }
            None => found,
        };
    }
    if let Some(seconds) = fetches::seconds_left(reading).filter(|seconds| *seconds <= BACKLOG_SECONDS) {
        let answer = format!("it will have caught up in {}", duration(seconds));
        return Found::nothing(numbers, answer);
    }
    let Some((why, confidence)) = sign(reading, is_small, is_growing) else {
        let answer = match reading.idle {
            Some(idle) => format!("yes: polls wait {}", of_time(idle)),
            None => String::from("that it has none is not known"),
        };
        return Found::nothing(numbers, answer);
    };
    matched(reading, numbers, &why, confidence)
}

/// The signs that the application is the limit, most certain first.
fn sign(reading: &Reading<'_>, is_small: Option<bool>, is_growing: bool) -> Option<(String, Confidence)> {
    if let Some(commits) = commits::waited_for(reading) {
        return Some((commits.summary(), commits.confidence()));
    }
    if let Some(idle) = reading.idle {
        let confidence = if is_small.is_none() {
            Confidence::Medium
        } else {
            Confidence::High
        };
        if idle < IDLE_LOW {
            return Some((format!("polls wait {} only", of_time(idle)), confidence));
        }
        return (idle < 0.5 && is_growing).then(|| {
            let why = format!(
                "it falls behind, and polls wait {}: it works longer than it waits",
                of_time(idle)
            );
            (why, Confidence::Low)
        });
    }
    if is_small != Some(false) {
        return None;
    }
    if let Some(partitions) = same_rate_with_other_partitions(reading) {
        let why = format!(
            "with {} partitions it read at the same rate, so the consumer is the limit",
            number(partitions)
        );
        return Some((why, Confidence::Medium));
    }
    if let Some(share) = reading.fetch_use.filter(|share| *share < FETCH_USE_LOW) {
        let why = format!("there are records, but it asks for them {} only", of_time(share));
        return Some((why, Confidence::Low));
    }
    // A poll that waits has no sample either where it takes long; then there is time between polls,
    // or a fetch is always under way.
    let waits = reading.asks_at_once() == Some(true)
        || sane(reading.consumer.ms_between_polls).is_some_and(|ms| ms > POLLS_AT_ONCE_MS);
    let polls_at_once = !waits
        && reading
            .consumer
            .without_sample
            .iter()
            .any(|name| name.ends_with("poll.idle.ratio.avg"));
    let flows = reading.consumed.is_some_and(|rate| rate > 0.0);
    (polls_at_once && flows && is_growing && reading.is_fetch_waiting() != Some(true)).then(|| {
        let why = String::from(
            "it falls behind, and its polls follow each other within a millisecond: it never waits",
        );
        (why, Confidence::Low)
    })
}

fn same_rate_with_other_partitions(reading: &Reading<'_>) -> Option<f64> {
    let (now, rate) = (reading.partitions?, reading.consumed.filter(|rate| *rate > 0.0)?);
    let earlier = reading.snapshot.earlier.iter().find(|earlier| {
        let is_other = sane(earlier.partitions).is_some_and(|partitions| (partitions - now).abs() >= 1.0);
        let is_same =
            sane(earlier.records_per_second).is_some_and(|before| (before - rate).abs() <= SAME_RATE * rate);
        is_other && is_same
    });
    earlier?.partitions
}

fn matched(reading: &Reading<'_>, numbers: String, why: &str, confidence: Confidence) -> Found {
    let work = work_of(reading);
    let commits = commits::waited_for(reading);
    let summary = commits.map_or_else(|| summary(reading, work, why), |commits| commits.summary());
    let change = match commits {
        Some(commits) => commits.fewer(reading),
        None => recommendation(reading, work),
    };
    let mut found = Found::verdict(numbers, Verdict::Processing, confidence, summary)
        .finding(FindingId::C1, why)
        .evidence(commits.and_then(|commits| commits.line()))
        .evidence(work_line(reading))
        .evidence(needed_line(reading, work))
        .evidence(catch_up_line(reading))
        .recommend(Some(change));
    // Nothing shows whether the time goes into each record, or into each poll.
    let few = records_of_a_poll(reading).filter(|records| *records < POLL_RECORDS_FEW && commits.is_none());
    if let Some(records) = few {
        found = found.note(format!(
            "a poll hands over {} records: where the application waits once for each poll, as for a transaction of a database, \
             try a higher max.poll.records",
            number(records)
        ));
    }
    if let Some(round_trip_ms) = may_be_calls(reading, work).filter(|_| commits.is_none()) {
        found = found.note(format!(
            "its work on a record takes as long as a round trip to the broker, {} ms: a synchronous commit after each record \
             would take as much",
            number(round_trip_ms)
        ));
    }
    if let Some(note) = commits::may_be_waited_for(reading) {
        found = found.note(note);
    }
    // Without these signs a fetch may still be part of it.
    let is_busy = reading.idle.is_some_and(|idle| idle < IDLE_LOW);
    if is_busy || reading.fetch_use.is_some_and(|share| share < FETCH_USE_LOW) {
        found = found
            .refuse("max.partition.fetch.bytes", fetches_wait(reading))
            .refuse("fetch.max.bytes", "it has more records at hand than it works on");
    }
    // What is unread may be what a fetch still waits for.
    if is_busy || reading.is_surely_not_held() {
        found = found.refuse("fetch.min.bytes", "it does not wait for fetches");
    }
    if reading.partitions != Some(1.0) {
        found = found.refuse(
            "more partitions",
            "the consumer, not their number, is the limit: they bring more only to more consumers",
        );
    }
    if let Some(partitions) = sane(reading.consumer.group_partitions) {
        found = found.refuse(
            format!("more than {} consumers", number(partitions)),
            "a partition is read by one member of a group; those beyond have nothing to read",
        );
    }
    if reading.produced.is_none() {
        found = found.missing("how much is produced: without it the number of consumers needed is not known");
    }
    if reading.lag.is_none() {
        found = found.missing("the lag: whether it falls behind is not known, only that it has no time left");
    } else if reading.is_lag_stale {
        found = found.missing(
            "the lag of its partitions by the broker: the client's own gauges are old where its turn for a partition has not come",
        );
    }
    poll_interval(reading, found)
}

fn summary(reading: &Reading<'_>, work: Option<f64>, why: &str) -> String {
    match (work, reading.consumed, reading.idle) {
        (Some(work), Some(consumed), Some(_)) => format!(
            "It falls behind because its own work takes {} on each record, which makes {} records/s.",
            duration(work / 1_000.0),
            number(consumed)
        ),
        (Some(_), Some(consumed), None) => format!(
            "It falls behind at {} records/s, and the time goes into its own work on the records.",
            number(consumed)
        ),
        _ => format!("Its own work on the records leaves it no time: {why}."),
    }
}

fn fetches_wait(reading: &Reading<'_>) -> String {
    match reading.fetch_use {
        Some(share) => format!(
            "a fetch is under way {} only; what it brought waits for the application",
            of_time(share.min(1.0))
        ),
        None => String::from("what fetches brought waits for the application"),
    }
}

/// Compares the time for a poll's records with max.poll.interval.ms, where that is known.
fn poll_interval(reading: &Reading<'_>, found: Found) -> Found {
    let Some(limit) = reading.poll_interval_ms() else {
        return found;
    };
    match sane(reading.consumer.ms_between_polls_max).filter(|ms| *ms > 0.5 * limit) {
        Some(ms) => found.note(format!(
            "{} pass between polls, {} of max.poll.interval.ms: beyond it the member is expelled",
            duration(ms / 1_000.0),
            percent(ms / limit)
        )),
        None => found,
    }
}

/// The round trip, where each record takes about one and nothing tells of its commits: of clients
/// only Java does, of brokers only Ottla.
fn may_be_calls(reading: &Reading<'_>, work_ms: Option<f64>) -> Option<f64> {
    let round_trip_ms = reading.round_trip_ms.filter(|ms| *ms >= ROUND_TRIP_MS_MIN)?;
    let of_work = work_ms? / round_trip_ms;
    let is_alike = (ROUND_TRIPS.0..=ROUND_TRIPS.1).contains(&of_work);
    let is_untold = reading.consumer.commit_wait.is_none()
        && reading.sides().all(|side| side.commits_per_second.is_none());
    (is_alike && is_untold).then_some(round_trip_ms)
}

/// Records that a poll hands over, mean.
fn records_of_a_poll(reading: &Reading<'_>) -> Option<f64> {
    let between_ms = sane(reading.consumer.ms_between_polls).filter(|ms| *ms > 0.0)?;
    let records = reading.consumed? * between_ms / 1_000.0;
    Some(records).filter(|records| *records > 0.0)
}

fn work_of(reading: &Reading<'_>) -> Option<f64> {
    let consumed = reading.consumed.filter(|rate| *rate > 0.0)?;
    // Without an idle share, the total time is an upper bound on the work.
    let work = work_ms(reading.idle.unwrap_or(0.0), consumed);
    Some(work).filter(|work| work.is_finite() && *work > 0.0)
}

fn work_line(reading: &Reading<'_>) -> Option<Evidence> {
    let (work, consumed) = (work_of(reading)?, reading.consumed?);
    let line = match reading.idle {
        Some(idle) => {
            Evidence::new("F29", "work", "1000 * (1 - idle) / X", work, "ms").measured("idle", idle, "")
        }
        None => Evidence::new("F29", "work", "1000 / X", work, "ms at most"),
    };
    Some(line.measured("X", consumed, "records/s"))
}

fn needed_line(reading: &Reading<'_>, work: Option<f64>) -> Option<Evidence> {
    let (work, produced) = (work?, reading.produced.filter(|rate| *rate > 0.0)?);
    Some(
        Evidence::new(
            "F29",
            "needed",
            "ceil(produced * work / 1000)",
            consumers_needed(produced, work),
            "consumers for these partitions",
        )
        .measured("produced", produced, "records/s")
        .with("work", work, "ms", "worked out"),
    )
}

fn catch_up_line(reading: &Reading<'_>) -> Option<Evidence> {
    let (lag, consumed, produced) = (reading.lag?, reading.consumed?, reading.produced?);
    let seconds = catch_up_seconds(lag, consumed, produced);
    seconds.is_finite().then(|| {
        Evidence::new("F29", "catch_up", "lag / (consumed - produced)", seconds, "s")
            .measured("lag", lag, "records")
            .measured("consumed", consumed, "records/s")
            .measured("produced", produced, "records/s")
    })
}

/// More consumers where there are partitions for them; with only one, a faster handler.
fn recommendation(reading: &Reading<'_>, work: Option<f64>) -> Recommendation {
    let wanted = consumers_wanted(reading, work);
    let shared = reading
        .partitions
        .map_or(wanted, |partitions| wanted.min(partitions));
    if shared < 2.0 {
        faster_handler(reading)
    } else {
        more_consumers(reading, wanted, shared)
    }
}

/// How many consumers keep up with production and catch up within `CATCH_UP_SECONDS`; one that only
/// just keeps up never catches up.
fn consumers_wanted(reading: &Reading<'_>, work: Option<f64>) -> f64 {
    let lag = reading
        .lag
        .filter(|_| reading.is_lag_small() == Some(false))
        .unwrap_or(0.0);
    let flow = reading.produced.unwrap_or(0.0) + lag / CATCH_UP_SECONDS;
    let needed = work.map_or(1.0, |work| consumers_needed(flow, work));
    if lag > 0.0 || reading.lag.is_none() {
        needed.max(2.0)
    } else {
        needed
    }
}

/// The rate that the consumers' work allows, bounded by what fetches can deliver to that number of
/// consumers.
fn bounded(reading: &Reading<'_>, rate: f64, consumers: f64) -> f64 {
    let now = reading.consumed.unwrap_or(0.0);
    fetches::records_per_second_max(reading).map_or(rate, |given| rate.min(given.max(now) * consumers))
}

fn next_ceiling(reading: &Reading<'_>, consumers: f64) -> String {
    match fetches::records_per_second_max(reading) {
        Some(rate) => format!(
            "fetches bring at most {} records/s to each consumer (F29)",
            number(rate)
        ),
        None => {
            let partitions = reading.partitions.unwrap_or(consumers);
            format!("the number of partitions: {}", number(partitions))
        }
    }
}

fn faster_handler(reading: &Reading<'_>) -> Recommendation {
    let now = reading.consumed.unwrap_or(0.0);
    Recommendation {
        set: String::from(
            "a faster handler: batches instead of single records, several threads by key, no waiting for others",
        ),
        why: String::from("it has one partition, which one consumer reads; only less work per record helps"),
        promise: promise(
            "records_per_second",
            Some(now),
            (now, now),
            "records/s",
            "how much less the work on a record becomes: half of it doubles the rate",
        ),
        next_ceiling: next_ceiling(reading, 1.0),
        cost: String::from("threads of its own lose the order of records, and commits need care"),
    }
}

fn more_consumers(reading: &Reading<'_>, wanted: f64, shared: f64) -> Recommendation {
    let now = reading.consumed.unwrap_or(0.0);
    let full = now * shared;
    let written = reading
        .produced
        .filter(|rate| *rate > now)
        .unwrap_or(f64::INFINITY);
    let least = (SHARED_GAIN * full).min(RATE_VARIES * written);
    let mut why = String::from("each takes a share of the partitions; the work on a record stays as it is");
    if let (Some(lag), Some(produced)) = (reading.lag, reading.produced) {
        let seconds = catch_up_seconds(lag, full, produced);
        if seconds.is_finite() && lag > 0.0 {
            why.push_str(&format!("; the lag is then gone in {}", duration(seconds)));
        }
    }
    if shared < wanted {
        let missing = number(wanted);
        why.push_str(&format!(
            "; {missing} would be needed, there are no more partitions"
        ));
    }
    Recommendation {
        set: format!("{} consumers for the partitions of this one", number(shared)),
        why,
        promise: promise(
            "records_per_second",
            Some(now),
            (least.max(now), bounded(reading, full, shared)),
            "records/s",
            "at unchanged work per record, on processors of their own; what is written, once they have caught up",
        ),
        next_ceiling: next_ceiling(reading, shared),
        cost: String::from("the group rebalances once"),
    }
}

/// Formats a share of time.
fn of_time(share: f64) -> String {
    format!("{} of the time", percent(share))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions, slow_work, stated};
    use super::*;
    use crate::doctor::snapshot::Consumer;

    /// 200 records/s are written, and it reads 5,000/s of what came while it was away.
    fn restarted(lag: f64) -> Consumer {
        Consumer {
            records_per_second: Some(5_000.0),
            poll_idle_share: Some(0.05),
            ms_between_polls: Some(100.0),
            assigned_partitions: Some(1.0),
            partitions: partitions(&[(lag, -4_800.0, 5_000.0)]),
            ..slow_work()
        }
    }

    #[test]
    fn a_consumer_that_was_away_and_will_soon_have_caught_up_is_catching_up() {
        let diagnosis = check(&of(restarted(120_000.0)), Verdict::CatchingUp);
        assert!(diagnosis.recommendation.is_none());
        check(&of(restarted(4_800.0 * 290.0)), Verdict::CatchingUp);
        check(&of(restarted(4_800.0 * 310.0)), Verdict::Processing);
        // It waits for its commits meanwhile.
        let consumer = Consumer {
            commit_wait: Some(0.9),
            commits_per_second: Some(50.0),
            ..restarted(120_000.0)
        };
        check(&of(consumer), Verdict::CatchingUp);
    }

    /// 1,000 records/s; every 5 s it reads all that are there, and is not in a poll otherwise.
    fn every_five_seconds(lag: f64, slope: f64) -> Consumer {
        Consumer {
            records_per_second: Some(1_000.0),
            bytes_per_second: Some(100_000.0),
            poll_idle_share: Some(0.0),
            ms_between_polls: Some(5_000.0),
            assigned_partitions: Some(1.0),
            partitions: partitions(&[(lag, slope, 1_000.0)]),
            ..slow_work()
        }
    }

    #[test]
    fn a_client_that_polls_every_few_seconds_is_behind_by_what_comes_between_two_polls() {
        check(&of(every_five_seconds(4_800.0, 0.0)), Verdict::KeepsUp);
        // The window begins after a poll and ends before one.
        check(&of(every_five_seconds(4_800.0, 80.0)), Verdict::KeepsUp);
        check(&of(every_five_seconds(6_000.0, 0.0)), Verdict::Processing);
        check(&of(every_five_seconds(4_800.0, 100.0)), Verdict::Processing);
        // A window of one poll shows no course of the lag.
        let mut short = of(every_five_seconds(4_800.0, 80.0));
        short.seconds = 20.0;
        check(&short, Verdict::Processing);
    }

    /// Two records/s, and polls that do not wait: `poll(0)`.
    #[test]
    fn a_few_records_are_no_lag_however_they_come_and_go() {
        let polling = |lag: f64, slope: f64| Consumer {
            records_per_second: Some(2.0),
            bytes_per_second: Some(200.0),
            fetches_per_second: Some(2.0),
            fetch_ms: Some(500.0),
            fetch_bytes: Some(100.0),
            poll_idle_share: Some(0.0),
            ms_between_polls: Some(1.0),
            assigned_partitions: Some(1.0),
            partitions: partitions(&[(lag, slope, 2.0)]),
            ..slow_work()
        };
        check(&of(polling(5.0, 0.05)), Verdict::KeepsUp);
        check(&of(polling(30.0, 0.5)), Verdict::Processing);
    }

    /// `commitSync` of librdkafka after each record, across 40 ms: it tells nothing of commits.
    #[test]
    fn work_that_takes_a_round_trip_may_be_commits() {
        let with = |round_trip_ms, commit_wait| {
            let mut snapshot = of(Consumer {
                records_per_second: Some(24.0),
                poll_idle_share: Some(0.01),
                commit_wait,
                partitions: partitions(&[(900.0, 62.0, 24.0)]),
                ..slow_work()
            });
            snapshot.network.round_trip_ms = Some(round_trip_ms);
            let notes = check(&snapshot, Verdict::Processing).notes;
            notes
                .iter()
                .any(|note| note.contains("a synchronous commit after each record"))
        };
        assert!(with(40.2, None));
        assert!(
            !with(40.2, Some(0.1)),
            "Java tells that it does not wait for commits"
        );
        assert!(!with(10.0, None));
        assert!(!with(0.2, None));
    }

    /// One transaction of 100 ms for each poll of 50 records.
    #[test]
    fn more_records_for_each_poll_are_to_be_tried_and_not_refused() {
        let consumer = Consumer {
            records_per_second: Some(500.0),
            poll_idle_share: Some(0.02),
            ms_between_polls: Some(100.0),
            assigned_partitions: Some(1.0),
            partitions: partitions(&[(90_000.0, 1_500.0, 500.0)]),
            ..slow_work()
        };
        let mut snapshot = of(consumer);
        snapshot.settings.max_poll_interval_ms = stated(300_000.0);
        let diagnosis = check(&snapshot, Verdict::Processing);
        assert!(diagnosis.refused.iter().all(|one| one.set != "max.poll.records"));
        let to_try = |note: &String| note.starts_with("a poll hands over 50 records");
        assert!(diagnosis.notes.iter().any(to_try), "{:?}", diagnosis.notes);
        // Of 471 records each.
        let notes = check(&of(slow_work()), Verdict::Processing).notes;
        assert!(
            !notes.iter().any(|note| note.contains("max.poll.records")),
            "{notes:?}"
        );
    }
}
