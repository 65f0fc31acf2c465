//! consumer 6: do fetches wait for fetch.min.bytes?
//!
//! A broker holds a fetch back until fetch.min.bytes are there or fetch.max.wait.ms is over. Where
//! records arrive meanwhile, they are late by up to that time, even if the lag in records is small:
//! it is what one wait collects. With fetch.min.bytes of one the first record ends the wait, so a
//! consumer with that setting never waits here. Fetches that take longer than the default of
//! fetch.max.wait.ms and bring records show that both settings were raised. What the broker read in
//! the requests or the owner stated decides; a default that is only assumed does not, unless the
//! broker measured that it held fetches back while there was a lag.
//!
//! - Numbers: fetch latency, the part that the broker held it back (remote), fetch.min.bytes,
//!   fetch.max.wait.ms, records per second; whether polls wait; lag.
//! - Thresholds: fetch.min.bytes above 1; the wait is half of the fetch and at least 100 ms; two
//!   records arrive during one fetch; or a lag, and a latency of at least 0.9 of fetch.max.wait.ms.
//! - Says: "Records arrive up to 1.5 s late: each fetch waits at the broker for 1 MiB."
//! - Source: measured here (504 ms of an idle consumer with the default of 500; 1.5 s with 1 MB).

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::cold_read::cold;
use super::found::{Found, known, promise};
use super::reading::{IDLE_HIGH, Reading, is_known, sane};
use crate::numbers::{bytes, duration, number, percent};

/// A shorter wait is a setting that was chosen, and delays no record noticeably.
const LATE_MS_MIN: f64 = 100.0;

/// Means of fetches that end by a wait are a little longer than the wait.
const LONGER_THAN_ASSUMED: f64 = 1.2;

/// The share of a fetch that is the wait.
const WAIT_SHARE_MIN: f64 = 0.5;

/// Whether fetches wait for fetch.min.bytes while records arrive: there is a lag between two
/// answers, though none right after one.
pub fn is_held_back(reading: &Reading<'_>) -> bool {
    let Some(fetch_ms) = reading.fetch_ms else {
        return false;
    };
    let least = reading.min_bytes;
    if is_known(least) && least.0 <= 1.0 || !is_known(least) && !is_longer_than_assumed(reading, fetch_ms) {
        return false;
    }
    if reading.are_records_there() {
        return false;
    }
    let waits = match reading.idle {
        Some(idle) => idle > IDLE_HIGH,
        None => {
            let asks_at_once = reading.asks_at_once() == Some(true);
            asks_at_once || reading.may_wait || reading.is_less_than_a_fetch_wants()
        }
    };
    let held = held_ms(reading, fetch_ms);
    let arrived = reading.flow() * fetch_ms / 1_000.0;
    waits && held >= LATE_MS_MIN && held >= WAIT_SHARE_MIN * fetch_ms && arrived >= 2.0
}

/// Whether fetches take longer than the default wait allows and yet bring records: no default
/// explains that, so the wait was raised, and with it, nearly always, fetch.min.bytes.
fn is_longer_than_assumed(reading: &Reading<'_>, fetch_ms: f64) -> bool {
    let others = reading.round_trip_ms.unwrap_or(0.0) + reading.broker_ms().unwrap_or(0.0);
    !is_known(reading.wait_ms)
        && fetch_ms - others >= LONGER_THAN_ASSUMED * reading.wait_ms.0
        && sane(reading.consumer.throttle_ms).unwrap_or(0.0) < 0.1 * fetch_ms
}

/// How long a fetch is held back: by the broker's count, or else what is neither way nor work.
fn held_ms(reading: &Reading<'_>, fetch_ms: f64) -> f64 {
    reading.asked_wait_ms().unwrap_or_else(|| {
        let others = reading.round_trip_ms.unwrap_or(0.0) + reading.broker_ms().unwrap_or(0.0);
        // Longer than the longest wait has another cause.
        let is_wait = fetch_ms - others <= 1.5 * reading.wait_ms.0 + 5.0 || !is_known(reading.wait_ms);
        if is_wait { fetch_ms - others } else { 0.0 }
    })
}

pub fn fetch_wait(reading: &Reading<'_>) -> Found {
    let of_setting = |name: &str, known: (f64, &str)| format!("{name} {} ({})", number(known.0), known.1);
    let numbers = [
        known("idle", reading.idle, ""),
        known("lag", reading.lag, "records"),
        known("fetch", reading.fetch_ms, "ms"),
        known("held back", reading.asked_wait_ms(), "ms"),
        of_setting("fetch.max.wait.ms", reading.wait_ms),
        of_setting("fetch.min.bytes", reading.min_bytes),
    ]
    .join(", ");
    let Some(fetch_ms) = reading.fetch_ms else {
        return Found::nothing(numbers, "the latency of fetches is not known");
    };
    let is_held_back = is_held_back(reading);
    if !is_held_back && reading.is_fetch_waiting() != Some(true) {
        return Found::nothing(numbers, "no");
    }
    if !is_held_back && !reading.is_behind() {
        return Found::nothing(numbers, "they wait, but there is nothing to fetch");
    }
    if cold(reading).is_some_and(|cold| cold.is_measured) {
        return Found::nothing(numbers, "no: they wait for the disk");
    }
    // A client may give up fetches that are held longer than it waits for an answer: the others are
    // too few to show that it waits.
    let is_held_there = is_held_back && reading.is_less_than_a_fetch_wants();
    let waits = reading
        .waits_for_fetches()
        .or(is_held_there.then_some(Confidence::Medium));
    let Some(waits) = waits else {
        return Found::nothing(numbers, "no: polls do not wait for them");
    };
    let confidence = match (is_known(reading.min_bytes), reading.asked_wait_ms()) {
        (true, _) if is_held_back => waits,
        (_, Some(_)) => waits.min(Confidence::Medium),
        _ => Confidence::Low,
    };
    matched(reading, numbers, confidence, fetch_ms)
}

fn matched(reading: &Reading<'_>, numbers: String, confidence: Confidence, fetch_ms: f64) -> Found {
    let is_min_known = is_known(reading.min_bytes);
    let least = if is_min_known {
        bytes(reading.min_bytes.0)
    } else {
        String::from("more records than there are")
    };
    let summary = format!(
        "Records arrive up to {} late: each fetch waits at the broker for {least} (fetch.min.bytes).",
        duration(fetch_ms / 1_000.0)
    );
    let mut found = Found::verdict(numbers, Verdict::FetchWait, confidence, summary.clone())
        .finding(FindingId::C2, summary)
        .evidence([line(reading, fetch_ms)]);
    if is_min_known {
        found = found.recommend(Some(wait_less(reading, fetch_ms)));
    } else {
        found = found.missing(
            "fetch.min.bytes and fetch.max.wait.ms of this client: fetches take as long as the default wait although records are \
             there, which a value above 1 explains",
        );
    }
    let returned = "fetches return because their wait is over, not because they are full";
    if is_min_known {
        found = found
            .refuse("fetch.max.bytes", returned)
            .refuse("max.partition.fetch.bytes", returned)
            .refuse("more consumers", "each of them would wait in the same way");
    }
    match reading.idle.filter(|idle| *idle > IDLE_HIGH) {
        Some(idle) => found.refuse(
            "a faster handler",
            format!("it waits {} of the time already", percent(idle)),
        ),
        None => found,
    }
}

fn line(reading: &Reading<'_>, fetch_ms: f64) -> Evidence {
    let held = held_ms(reading, fetch_ms).max(0.0);
    Evidence::new(
        "fetch wait",
        "waiting",
        "held / fetch",
        held / fetch_ms,
        "of each fetch",
    )
    .measured("held", held, "ms")
    .measured("fetch", fetch_ms, "ms")
    .with("fetch.min.bytes", reading.min_bytes.0, "B", reading.min_bytes.1)
    .with("fetch.max.wait.ms", reading.wait_ms.0, "ms", reading.wait_ms.1)
}

fn wait_less(reading: &Reading<'_>, fetch_ms: f64) -> Recommendation {
    // With fetch.min.bytes=1 the first record that arrives ends the wait, so a fetch takes its way
    // and the time until then. Records of one producer's request arrive together.
    let way = reading.round_trip_ms.unwrap_or(0.0) + reading.broker_ms().unwrap_or(0.0);
    let rate = reading.consumed.filter(|rate| *rate > 0.0);
    let promise = match rate.map(|rate| way + 1_000.0 / rate) {
        Some(soonest) if 2.0 * soonest <= fetch_ms => promise(
            "fetch_ms",
            Some(fetch_ms),
            (0.75 * soonest, 1.5 * soonest),
            "ms",
            "records come one by one, as evenly as now; no record is older when a fetch brings it",
        ),
        _ => promise(
            "fetch_ms",
            Some(fetch_ms),
            (fetch_ms, fetch_ms),
            "ms",
            "how the records' arrival is spread: a fetch then takes its way and the time until the next record",
        ),
    };
    Recommendation {
        set: String::from("fetch.min.bytes=1"),
        why: String::from(
            "then the first record that comes ends the wait; a lower fetch.max.wait.ms bounds it instead",
        ),
        promise,
        next_ceiling: String::from("the round trip, and how often the producers send"),
        cost: String::from("more, smaller fetches: the broker and this client spend time on each"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions, stated};
    use super::*;
    use crate::doctor::snapshot::{BrokerSide, Consumer, Origin, Setting, Snapshot};

    /// Measured with fetch.min.bytes of 1 MB and fetch.max.wait.ms of 1.5 s: 200 records/s.
    fn late() -> Snapshot {
        let mut snapshot = of(Consumer {
            records_per_second: Some(200.0),
            bytes_per_second: Some(50_000.0),
            fetches_per_second: Some(0.65),
            fetch_bytes: Some(77_000.0),
            fetch_ms: Some(1_540.0),
            poll_idle_share: Some(0.99),
            assigned_partitions: Some(6.0),
            partitions: partitions(&[(10.0, 0.0, 33.0); 6]),
            ..Consumer::default()
        });
        snapshot.network.round_trip_ms = Some(40.0);
        snapshot.settings.fetch_min_bytes = Some(Setting {
            value: 1_000_000.0,
            origin: Origin::Seen,
        });
        snapshot.settings.fetch_max_wait_ms = stated(1_500.0);
        snapshot
    }

    #[test]
    fn records_that_wait_for_bytes_are_late_however_small_the_lag_is() {
        let mut snapshot = late();
        let diagnosis = check(&snapshot, Verdict::FetchWait);
        assert_eq!(
            diagnosis.summary,
            "Records arrive up to 1.54 s late: each fetch waits at the broker for 977 KiB (fetch.min.bytes)."
        );
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "fetch.min.bytes=1");
        assert!(change.promise.high < 200.0, "{change:?}");
        // Nor does it need an idle share: the next fetch follows each answer.
        snapshot.consumer.as_mut().unwrap().poll_idle_share = None;
        check(&snapshot, Verdict::FetchWait);
        // With nothing to read, waiting costs nothing.
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.records_per_second = Some(0.0);
        consumer.poll_idle_share = Some(1.0);
        consumer.partitions = partitions(&[(0.0, 0.0, 0.0); 6]);
        check(&snapshot, Verdict::KeepsUp);
    }

    /// Measured: request.timeout.ms of 400 and fetch.min.bytes of 20,000, which its records fill in
    /// four seconds. It cannot push either, and was said to be busy.
    #[test]
    fn a_client_that_gives_up_its_fetches_is_not_busy() {
        let mut snapshot = of(Consumer {
            partitions: partitions(&[(118.0, 3.9, 46.1)]),
            ..Consumer::default()
        });
        snapshot.telemetry.pushes = Some(0);
        snapshot.settings.fetch_max_wait_ms = stated(500.0);
        snapshot.settings.fetch_min_bytes = stated(20_000.0);
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(0.425),
            bytes_per_second: Some(7_871.0),
            records_per_second: Some(46.1),
            request_bytes: Some(18_523.0),
            queue_micros: Some(0.0),
            local_micros: Some(466.0),
            remote_micros: Some(360_000.0),
            total_micros: Some(360_466.0),
            round_trip_ms: Some(0.03),
            ..BrokerSide::default()
        }];
        check(&snapshot, Verdict::FetchWait);
    }

    #[test]
    fn a_value_of_one_is_never_advised_where_it_is_one() {
        let mut snapshot = late();
        snapshot.settings.fetch_min_bytes = stated(1.0);
        // A lag, and fetches as long as the longest wait: a disk, perhaps.
        snapshot.consumer.as_mut().unwrap().partitions = partitions(&[(90_000.0, 50.0, 33.0); 6]);
        let diagnosis = super::super::diagnose(&snapshot);
        assert_ne!(diagnosis.verdict, Verdict::FetchWait, "{diagnosis:#?}");
        // Not known: it is asked for, and nothing is advised.
        snapshot.settings.fetch_min_bytes = None;
        let diagnosis = super::super::diagnose(&snapshot);
        assert!(
            diagnosis
                .recommendation
                .is_none_or(|change| change.set != "fetch.min.bytes=1")
        );
    }

    /// Measured beside Apache Kafka, where no setting is seen: 50 records/s.
    #[test]
    fn fetches_longer_than_the_default_wait_show_that_it_was_raised() {
        let mut snapshot = late();
        snapshot.settings.fetch_min_bytes = None;
        snapshot.settings.fetch_max_wait_ms = None;
        let found = check(&snapshot, Verdict::FetchWait);
        assert_eq!(found.confidence, Confidence::Low);
        assert!(
            found
                .missing
                .iter()
                .any(|missing| missing.contains("fetch.min.bytes"))
        );
        assert!(found.recommendation.is_none());
        if let Some(consumer) = &mut snapshot.consumer {
            consumer.fetch_ms = Some(560.0);
            consumer.fetches_per_second = Some(1.8);
        }
        check(&snapshot, Verdict::KeepsUp);
    }
}
