//! consumer 2: does the broker throttle its fetches?
//!
//! A quota delays answers so that a user or client stays below a rate. It is the limit where the
//! consumer falls behind meanwhile; one that keeps up under its quota is left alone.
//!
//! - Numbers: fetch throttle time reported by the client and, for this client alone, by the broker;
//!   its quota where it is known.
//! - Thresholds: a mean delay of 2 % of a fetch's latency, 1 ms where that is not known, and not
//!   known to keep up; with 20 % the confidence is high. Where nothing tells of delays: it falls
//!   behind and reads 0.8 to 1.3 of its byte quota, or 0.4 where fetches take 300 ms although more
//!   is unread than they bring; the confidence is medium at most.
//! - Says: "Its quota of 1 MB/s holds it back: the broker delays each fetch by 210 ms."
//! - Source: KIP-13, KIP-124.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::found::{Found, known, promise};
use super::reading::{FETCH_SLOW_MS, Reading, sane};
use crate::numbers::{bytes, number, percent, plain};

/// Fetches that a delay makes longer by less are not held back by it: some of them exceeded a quota
/// for a moment.
const DELAY_MIN: f64 = 0.02;
/// Fetches that a delay makes longer by so much are held back by nothing else as surely.
const DELAY_HIGH: f64 = 0.2;
/// The shortest delay that a broker names, where the latency of fetches is not known.
const DELAY_MS_MIN: f64 = 1.0;

/// A client reads as much as its quota allows, give or take this; and this part of it in a window
/// that its start is a part of.
const ALL: (f64, f64) = (0.8, 1.3);
const PART: f64 = 0.4;

/// A quota is set this much above what is needed: rates vary.
const RESERVE: f64 = 1.2;

pub fn quota(reading: &Reading<'_>) -> Found {
    let throttle = reading.throttle_ms();
    let bytes_per_second = reading.bytes_per_second();
    let limit = reading.sides().find_map(|side| sane(side.quota_bytes_per_second));
    let request_share = reading.sides().find_map(|side| sane(side.quota_request_share));
    let numbers = [
        known("throttle", throttle, "ms"),
        known("quota", limit, "B/s"),
        known("bytes", bytes_per_second, "B/s"),
    ]
    .join(", ");
    if let Some((limit, used)) = unseen(reading, throttle, limit) {
        return of_unseen_delays(reading, numbers, limit, used);
    }
    let Some(throttle) = throttle.filter(|ms| *ms > 0.0) else {
        return Found::nothing(numbers, "no");
    };
    let share = delay_share(reading, throttle);
    if !delays(reading) {
        let text = format!("it delays them by {} ms, too little to matter", number(throttle));
        return Found::nothing(numbers, text);
    }
    if reading.is_lag_small() == Some(true) && reading.is_growing() != Some(true) {
        let text = format!(
            "the broker delays its fetches by {} ms to keep a quota, but it keeps up",
            number(throttle)
        );
        return Found::nothing(numbers, text.clone()).finding(FindingId::Q1, text);
    }
    let whose = match (limit, request_share) {
        (Some(limit), _) => format!("Its quota of {}/s", bytes(limit)),
        (None, Some(share)) => format!("Its quota of {} of the request time", percent(share)),
        (None, None) => String::from("A quota"),
    };
    let summary = format!(
        "{whose} holds it back: the broker delays each fetch by {} ms.",
        number(throttle)
    );
    let confidence = if share < DELAY_HIGH {
        Confidence::Medium
    } else {
        Confidence::High
    };
    let mut found = Found::verdict(numbers, Verdict::Quota, confidence, summary.clone())
        .finding(FindingId::Q1, summary)
        .recommend(Some(higher(reading, (limit, request_share), bytes_per_second)))
        .evidence(line(limit, bytes_per_second))
        .refuse(
            "more consumers",
            "the quota is of the user or client id, all its consumers share it",
        );
    if limit.is_some() {
        found = found.refuse(
            "fetch sizes",
            "larger fetches are delayed for longer: the quota counts bytes",
        );
    } else if request_share.is_none() {
        found = found.missing("the quota: consumer_byte_rate or request_percentage");
    }
    found
}

/// The quota that a client seems to use up whose delays neither it nor a broker tells, and the
/// share of it that it reads: as much as the quota allows, or a good part of it in a window with
/// its start, while fetches take long although more is unread than they bring.
fn unseen(reading: &Reading<'_>, throttle: Option<f64>, limit: Option<f64>) -> Option<(f64, f64)> {
    let limit = limit.filter(|limit| *limit > 0.0 && throttle.is_none() && reading.is_behind())?;
    let used = reading.bytes_per_second()? / limit;
    let is_slow = reading.fetch_ms.is_some_and(|ms| ms >= FETCH_SLOW_MS);
    let is_partly = used >= PART && is_slow && reading.has_more_than_fetches_bring();
    (used <= ALL.1 && (used >= ALL.0 || is_partly)).then_some((limit, used))
}

fn of_unseen_delays(reading: &Reading<'_>, numbers: String, limit: f64, used: f64) -> Found {
    let now = reading.bytes_per_second();
    let summary = format!(
        "Its quota of {}/s seems to hold it back: it falls behind while it reads {} of it.",
        bytes(limit),
        percent(used)
    );
    let confidence = match reading.waits_for_fetches() {
        Some(_) if used >= ALL.0 => Confidence::Medium,
        _ => Confidence::Low,
    };
    Found::verdict(numbers, Verdict::Quota, confidence, summary.clone())
        .finding(FindingId::Q1, summary)
        .recommend(Some(higher(reading, (Some(limit), None), now)))
        .evidence(line(Some(limit), now))
        .missing("how long the broker delays its fetches: this client does not push it, and its broker does not tell it by client, as Ottla does")
        .refuse(
            "more consumers",
            "the quota is of the user or client id, all its consumers share it",
        )
}

/// Whether a quota delays fetches noticeably.
pub fn delays(reading: &Reading<'_>) -> bool {
    let throttle_ms = reading.throttle_ms();
    throttle_ms.is_some_and(|ms| delay_share(reading, ms) >= DELAY_MIN)
}

/// How much longer the delay makes a fetch.
fn delay_share(reading: &Reading<'_>, throttle_ms: f64) -> f64 {
    match reading.fetch_ms {
        Some(fetch_ms) => throttle_ms / fetch_ms,
        None if throttle_ms >= DELAY_MS_MIN => DELAY_HIGH,
        None => 0.0,
    }
}

fn line(limit: Option<f64>, now: Option<f64>) -> Option<Evidence> {
    let (limit, now) = (limit.filter(|limit| *limit > 0.0)?, now?);
    Some(
        Evidence::new("quota", "used", "bytes / quota", now / limit, "of the quota")
            .measured("bytes", now, "B/s")
            .with("quota", limit, "B/s", "stated"),
    )
}

fn higher(
    reading: &Reading<'_>,
    (limit, share): (Option<f64>, Option<f64>),
    now: Option<f64>,
) -> Recommendation {
    // What is written is what it will read in the end.
    let written = reading
        .produced
        .zip(reading.record_bytes())
        .map(|(rate, size)| rate * size)
        .filter(|written| now.is_some_and(|now| *written > 1.05 * now));
    let set = match (limit, share, written) {
        (Some(_), _, Some(written)) => {
            format!("consumer_byte_rate={}", plain(RESERVE * written))
        }
        (None, Some(_), _) => String::from("request_percentage of this user or client: higher"),
        (None, None, _) => String::from("its quota, consumer_byte_rate or request_percentage: higher"),
        _ => String::from("consumer_byte_rate of this user or client: higher"),
    };
    let same = now.unwrap_or(0.0);
    let promise = match (limit, written) {
        (Some(_), Some(written)) => promise(
            "bytes_per_second",
            now,
            (0.9 * written, RESERVE * written),
            "B/s",
            "what is written; the quota above it bounds how fast it catches up",
        ),
        (Some(_), None) => promise(
            "bytes_per_second",
            now,
            (same, same),
            "B/s",
            "how much is written: without the quota it would read that, until its own work limits it",
        ),
        _ => promise("bytes_per_second", now, (same, same), "B/s", "the quota itself"),
    };
    Recommendation {
        set,
        why: String::from("the quota, not the consumer, sets the rate"),
        promise,
        next_ceiling: String::from("the quota that is set, then the tests after this one"),
        cost: String::from("the other clients' share of the broker"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, idle, of, partitions, starved, stated};
    use super::*;
    use crate::doctor::rules::examine;
    use crate::doctor::snapshot::{BrokerSide, ClusterSide, Consumer, Library};

    /// librdkafka beside Apache Kafka: consumer_byte_rate of 500 kB/s, 2 MB/s written.
    #[test]
    fn a_quota_whose_delays_nothing_tells_is_named_where_it_is_used_up() {
        let with = |rate: f64, fetch_ms: Option<f64>, record_bytes: f64| {
            let mut snapshot = of(Consumer {
                fetch_ms,
                poll_idle_share: Some(0.849),
                assigned_partitions: Some(2.0),
                partitions: partitions(&[(16_900.0, 897.0, rate / 2.0); 2]),
                ..Consumer::default()
            });
            snapshot.client.library = Library::Librdkafka;
            snapshot.brokers = vec![BrokerSide {
                quota_bytes_per_second: Some(500_000.0),
                ..BrokerSide::default()
            }];
            snapshot.cluster = Some(ClusterSide {
                record_bytes: Some(record_bytes),
                ..ClusterSide::default()
            });
            snapshot
        };
        let all = check(&with(480.0, Some(1_975.0), 1_070.0), Verdict::Quota);
        assert_eq!(all.confidence, Confidence::Medium);
        let change = all.recommendation.expect("a change");
        assert!(change.set.starts_with("consumer_byte_rate="), "{}", change.set);
        // Its window has its start.
        let part = check(&with(204.0, Some(1_975.0), 1_070.0), Verdict::Quota);
        assert_eq!(part.confidence, Confidence::Low);
        for other in [
            with(204.0, Some(41.0), 1_070.0),
            with(204.0, Some(1_975.0), 100.0),
        ] {
            assert_ne!(examine(&other).verdict, Verdict::Quota);
        }
    }

    #[test]
    fn a_quota_is_promised_against_what_is_written_or_not_at_all() {
        let mut snapshot = of(Consumer {
            throttle_ms: Some(210.0),
            ..starved()
        });
        snapshot.brokers = vec![BrokerSide {
            quota_bytes_per_second: Some(14_000_000.0),
            ..BrokerSide::default()
        }];
        let change = check(&snapshot, Verdict::Quota).recommendation.unwrap();
        // 16,000 records/s of 1,000 bytes are written.
        assert_eq!(change.set, "consumer_byte_rate=19200000");
        assert!(change.promise.low > 14_000_000.0 && change.promise.high < 2.0 * change.promise.low);
        snapshot.brokers.clear();
        let change = check(&snapshot, Verdict::Quota).recommendation.unwrap();
        assert_eq!(
            Some(change.promise.low),
            change.promise.now,
            "nothing is promised"
        );
    }

    #[test]
    fn a_delay_of_a_few_fetches_holds_nobody_back() {
        let with = |throttle_ms, fetch_ms| {
            let consumer = Consumer {
                throttle_ms: Some(throttle_ms),
                fetch_ms,
                ..starved()
            };
            super::super::diagnose(&of(consumer))
        };
        // 0.015 ms in the mean of fetches that take 72.
        assert_ne!(with(0.015, Some(72.0)).verdict, Verdict::Quota);
        assert_ne!(with(1.0, Some(72.0)).verdict, Verdict::Quota);
        assert_eq!(with(2.0, Some(72.0)).verdict, Verdict::Quota);
        assert_ne!(with(0.9, None).verdict, Verdict::Quota);
        assert_eq!(with(1.1, None).verdict, Verdict::Quota);
        let confidence = |throttle_ms| {
            let consumer = Consumer {
                throttle_ms: Some(throttle_ms),
                ..starved()
            };
            let reading = of(consumer);
            let found = quota(&Reading::of(&reading, reading.consumer.as_ref().unwrap()));
            found.verdict.map(|(_, confidence)| confidence)
        };
        assert_eq!(confidence(5.0), Some(Confidence::Medium));
        assert_eq!(confidence(50.0), Some(Confidence::High));
    }

    #[test]
    fn a_throttled_consumer_that_keeps_up_is_left_alone() {
        let mut snapshot = of(Consumer {
            throttle_ms: Some(5.0),
            ..idle()
        });
        snapshot.settings.fetch_min_bytes = stated(1.0);
        let diagnosis = check(&snapshot, Verdict::KeepsUp);
        assert!(diagnosis.recommendation.is_none());
    }
}
