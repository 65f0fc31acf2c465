//! consumer 9: are fetches too small?
//!
//! A connection has one fetch under way, so over a long round trip the size of a fetch sets the
//! rate: size / latency. A broker that has far more unread than it answers with was not allowed to
//! send more, whether the setting is known or not: max.partition.fetch.bytes for each partition,
//! fetch.max.bytes for all. Larger fetches help only in so far as the round trip is part of a
//! fetch's time; the rest grows with the size. They are useless where the link is full or the
//! broker reads its disk.
//!
//! - Numbers: bytes of a fetch, the unread bytes, both limits, fetch latency and round trip;
//!   whether polls wait (idle share; where Java has no sample, whether each fetch follows its
//!   answer at once).
//! - Thresholds: polls wait 0.8 of the time; 0.85 of a limit is reached, or four times the fetch is
//!   unread; the change gains at least 1.2. A client with sizes of Kafka's default or more that
//!   catches up within 10 min is left alone.
//! - Says: "It falls behind because each fetch brings 96 KiB at most and takes 41 ms"
//! - Source: p99 article (F29); measured over 40 ms with max.partition.fetch.bytes of 16 KiB;
//!   findings, C2.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::cold_read::cold;
use super::fetches::{self, GAIN_MIN, SizeLimit};
use super::found::{Found, known};
use super::reading::{Reading, is_known};
use super::receive_window;
use crate::model::growth::share_left;
use crate::numbers::{bytes, number, percent, plain};

/// The largest factor by which a limit is raised at once.
const GROWTH_MAX: f64 = 64.0;

pub fn fetch_size(reading: &Reading<'_>) -> Found {
    let limit = SizeLimit::of(reading);
    let numbers = [
        known("idle", reading.idle, ""),
        known("fetch", reading.fetch_ms, "ms"),
        known("round trip", reading.round_trip_ms, "ms"),
        known("bytes per fetch", reading.fetch_bytes, "B"),
        known("may bring", limit.map(|limit| limit.fetch_bytes), "B"),
    ]
    .join(", ");
    let Some(waits) = reading.waits_for_fetches() else {
        let answer = match reading.idle {
            Some(idle) => format!("no: polls wait {} of the time only", percent(idle)),
            None => String::from("no: polls are not known to wait for fetches"),
        };
        return Found::nothing(numbers, answer);
    };
    if !reading.is_behind() {
        return Found::nothing(numbers, "there is no lag that they could have caused");
    }
    if reading.is_fetch_waiting() == Some(true) {
        return Found::nothing(numbers, "no: they wait for records");
    }
    if fetches::is_link_full(reading) {
        return Found::nothing(numbers, "no: the link is full (test 7)");
    }
    if let Some(cold) = cold(reading) {
        return Found::nothing(
            numbers,
            format!("a larger fetch would take longer in proportion: {}", cold.why),
        );
    }
    if receive_window::is_suspected(reading) {
        return Found::nothing(
            numbers,
            "one answer takes several round trips: a larger one takes more",
        );
    }
    let (Some(limit), Some(fetch_ms)) = (limit, reading.fetch_ms) else {
        return Found::nothing(numbers, "no: fetches are not seen to reach a limit");
    };
    if !limit.is_below_default() && fetches::catches_up_soon(reading) {
        return Found::nothing(numbers, "they are full, but it will soon have caught up");
    }
    let wanted = wanted(reading, &limit);
    let gain = reading
        .round_trip_ms
        .map(|fixed| gain(wanted / limit.value.0, fetch_ms, fixed));
    if gain.is_some_and(|gain| gain < GAIN_MIN) {
        return Found::nothing(
            numbers,
            "they are full, but the round trip is a small part of their time: larger ones take longer in proportion",
        );
    }
    let confidence = match gain {
        Some(_) if reading.is_surely_not_held() => {
            if is_known(limit.value) {
                waits
            } else {
                waits.min(Confidence::Medium)
            }
        }
        _ => Confidence::Low,
    };
    matched(reading, numbers, confidence, &limit, fetch_ms, wanted)
}

/// F30 for fetches: the round trip stays, the rest grows with the size.
fn gain(growth: f64, fetch_ms: f64, round_trip_ms: f64) -> f64 {
    growth * share_left(growth, fetch_ms, round_trip_ms)
}

/// The value to set: what is written and half as much again, at least twice the present one, and
/// Kafka's default where the client is below it.
fn wanted(reading: &Reading<'_>, limit: &SizeLimit) -> f64 {
    let now = reading.consumed.filter(|rate| *rate > 0.0);
    let needed = reading
        .produced
        .zip(now)
        .map_or(2.0, |(produced, now)| 1.5 * produced / now);
    let least = limit.value.0 * needed.clamp(2.0, GROWTH_MAX);
    if is_known(limit.value) && limit.value.0 > 0.0 {
        let from = if limit.is_below_default() {
            limit.default
        } else {
            2.0 * limit.value.0
        };
        fetches::power_of_two(least, (from, GROWTH_MAX * from))
    } else {
        // The present value is only derived: one that is surely above it, and no default.
        fetches::power_of_two(least, (2.0 * limit.default, 2.0 * GROWTH_MAX * limit.default)).max(least)
    }
}

fn matched(
    reading: &Reading<'_>,
    numbers: String,
    confidence: Confidence,
    limit: &SizeLimit,
    fetch_ms: f64,
    wanted: f64,
) -> Found {
    let size = reading.fetch_bytes.unwrap_or(limit.fetch_bytes);
    let seems = if is_known(limit.value) {
        "allows"
    } else {
        "seems to allow"
    };
    let summary = format!(
        "It falls behind because each fetch brings only {} and takes {} ms: {} {seems} no more.",
        bytes(size),
        number(fetch_ms),
        limit.name
    );
    let mut found = Found::verdict(numbers, Verdict::FetchSize, confidence, summary.clone())
        .finding(FindingId::C2, summary)
        .evidence(fetches::ceiling(reading))
        .evidence(limit_line(reading, limit))
        .recommend(Some(larger(reading, limit, fetch_ms, wanted)));
    if reading.is_surely_not_held() {
        found = found
            .refuse(
                "fetch.min.bytes",
                "fetches do not wait for records: more is unread than they bring",
            )
            .refuse("fetch.max.wait.ms", "no fetch waits that long");
    } else {
        found =
            found.missing("fetch.min.bytes of this client, or how long the broker holds its fetches back");
    }
    if reading.idle.is_some() {
        found = found.refuse("a faster handler", "the handler waits for records already");
    }
    if !is_known(limit.value) {
        found = found.missing(format!(
            "{} of this client: that a fetch brings far less than is unread says that it is about {}",
            limit.name,
            bytes(limit.value.0)
        ));
    }
    if reading.round_trip_ms.is_none() {
        found = found.missing("the round trip to the broker: it decides how much larger fetches gain");
    }
    found
}

fn limit_line(reading: &Reading<'_>, limit: &SizeLimit) -> Option<Evidence> {
    let unread = reading.lag? * reading.record_bytes()?;
    Some(
        Evidence::new(
            "fetch size",
            "unread",
            "lag * record",
            unread,
            "B that a fetch could bring",
        )
        .measured("lag", reading.lag?, "records")
        .measured("record", reading.record_bytes()?, "B")
        .with(limit.name, limit.value.0, "B", limit.value.1),
    )
}

fn larger(reading: &Reading<'_>, limit: &SizeLimit, fetch_ms: f64, wanted: f64) -> Recommendation {
    let now = reading.consumed.unwrap_or(0.0);
    let growth = wanted / limit.value.0;
    let fixed = reading.round_trip_ms.unwrap_or(0.0);
    let rates = (now * gain(growth, fetch_ms, fixed), now * growth);
    let unknown = "how much of a fetch's time is the round trip: only that part does not grow with the size";
    let window = receive_window::ceiling(reading).filter(|window| window.rates.1 < rates.1);
    let is_guessed = window.as_ref().is_some_and(|window| window.is_guessed);
    let (low, high) = window.as_ref().map_or(rates, |window| {
        let (low, high) = window.rates;
        (rates.0.min(low.max(now)), high.max(now))
    });
    let unknown = reading.round_trip_ms.is_none().then_some(unknown);
    let partitions = reading.partitions.unwrap_or(1.0).max(1.0);
    let most = if limit.name == "fetch.max.bytes" {
        wanted
    } else {
        (wanted * partitions).min(reading.max_bytes.0.max(wanted))
    };
    let mut promise = fetches::promised_rate(reading, (low, high), unknown);
    if is_guessed {
        let unknown = "how much the receive window lets through: receive.buffer.bytes is not known, and Java's default is less";
        promise.unknown = Some(unknown.to_owned());
    }
    Recommendation {
        set: format!("{}={}", limit.name, plain(wanted)),
        why: String::from("one fetch is under way at a time: what it may bring sets the rate"),
        promise,
        next_ceiling: window.map_or_else(|| fetches::ceiling_after(reading), |window| window.words),
        cost: format!("up to {} of memory at the consumer", bytes(most)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions, refuses, stated};
    use super::*;
    use crate::doctor::snapshot::{BrokerSide, Consumer, Library, Origin, Setting, Snapshot};

    /// Measured over 40 ms with max.partition.fetch.bytes=16384: six partitions, 4,000 records/s of
    /// 1,000 bytes are written.
    fn small_fetches() -> Snapshot {
        let mut snapshot = of(Consumer {
            records_per_second: Some(1_600.0),
            bytes_per_second: Some(1_650_000.0),
            fetches_per_second: Some(16.8),
            fetch_bytes: Some(98_000.0),
            fetch_ms: Some(58.0),
            poll_idle_share: None,
            assigned_partitions: Some(6.0),
            partitions: partitions(&[(9_000.0, 400.0, 267.0); 6]),
            ..Consumer::default()
        });
        snapshot.settings.receive_buffer_bytes = stated(2_097_152.0);
        snapshot.network.round_trip_ms = Some(40.0);
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(16.8),
            bytes_per_second: Some(1_650_000.0),
            queue_micros: Some(30.0),
            local_micros: Some(400.0),
            remote_micros: Some(0.0),
            send_micros: Some(300.0),
            round_trip_ms: Some(40.0),
            ..BrokerSide::default()
        }];
        snapshot
    }

    #[test]
    fn small_fetches_are_found_without_the_idle_share_and_without_the_setting() {
        let mut snapshot = small_fetches();
        let diagnosis = check(&snapshot, Verdict::FetchSize);
        let change = diagnosis.recommendation.clone().unwrap();
        assert_eq!(change.set, "max.partition.fetch.bytes=2097152");
        assert_eq!(change.promise.now, Some(1_600.0));
        // It keeps up then: 4,000 records/s are written.
        assert!(
            change.promise.low > 3_500.0 && change.promise.low <= 4_002.0,
            "{change:?}"
        );
        refuses(&diagnosis, "fetch.min.bytes");
        let is_asked = |words: &String| words.contains("max.partition.fetch.bytes");
        assert!(diagnosis.missing.iter().any(is_asked), "{:?}", diagnosis.missing);
        // The broker has seen it in the fetches.
        snapshot.settings.max_partition_fetch_bytes = Some(Setting {
            value: 16_384.0,
            origin: Origin::Seen,
        });
        snapshot.consumer.as_mut().unwrap().poll_idle_share = Some(0.966);
        let diagnosis = check(&snapshot, Verdict::FetchSize);
        let change = diagnosis.recommendation.clone().unwrap();
        assert_eq!(change.set, "max.partition.fetch.bytes=1048576");
        assert!(!diagnosis.missing.iter().any(is_asked), "{:?}", diagnosis.missing);
    }

    /// Measured over 40 ms with max.partition.fetch.bytes=40000 and two partitions of 3,000
    /// records/s: with the default it read 1,850 and 2,061, because Java's receive buffer has 64
    /// KiB.
    #[test]
    fn larger_fetches_carry_no_more_than_the_receive_buffer_lets_through() {
        let mut snapshot = small_fetches();
        snapshot.settings.receive_buffer_bytes = None;
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.records_per_second = Some(1_000.0);
        consumer.bytes_per_second = Some(1_020_000.0);
        consumer.fetches_per_second = Some(13.5);
        consumer.fetch_bytes = Some(75_000.0);
        consumer.fetch_ms = Some(72.0);
        consumer.assigned_partitions = Some(2.0);
        consumer.partitions = partitions(&[(9_000.0, 2_500.0, 500.0); 2]);
        let promised = |snapshot: &Snapshot| {
            let change = check(snapshot, Verdict::FetchSize).recommendation.unwrap();
            (change.promise, change.next_ceiling)
        };
        let (guessed, next) = promised(&snapshot);
        assert!(guessed.unknown.is_some(), "{guessed:?}");
        assert!(next.contains("Java's default"), "{next}");
        snapshot.settings.receive_buffer_bytes = stated(65_536.0);
        let (stated_so, _) = promised(&snapshot);
        for measured in [1_850.0, 2_061.0] {
            assert!(
                (stated_so.low..=stated_so.high).contains(&measured),
                "{stated_so:?}"
            );
        }
        snapshot.settings.receive_buffer_bytes = stated(1_048_576.0);
        assert!(promised(&snapshot).0.high > stated_so.high);
    }

    // Without a lag that they could have caused, and where the round trip is next to nothing.
    #[test]
    fn small_fetches_that_slow_nobody_are_left_alone() {
        let mut snapshot = small_fetches();
        snapshot.network.round_trip_ms = Some(0.1);
        assert!(fetch_size_of(&snapshot).verdict.is_none());
        let mut snapshot = small_fetches();
        for partition in &mut snapshot.consumer.as_mut().unwrap().partitions {
            partition.lag = Some(5.0);
            partition.lag_slope = Some(0.0);
        }
        check(&snapshot, Verdict::KeepsUp);
    }

    #[test]
    fn sizes_of_kafkas_default_are_left_alone_while_the_consumer_catches_up() {
        let mut snapshot = small_fetches();
        snapshot.client.library = Library::Librdkafka;
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.records_per_second = Some(25_000.0);
        consumer.bytes_per_second = Some(25_000_000.0);
        consumer.fetch_bytes = Some(1_000_000.0);
        consumer.fetch_ms = Some(42.0);
        consumer.fetches_per_second = Some(23.0);
        consumer.assigned_partitions = Some(1.0);
        consumer.partitions = partitions(&[(900_000.0, -21_000.0, 25_000.0)]);
        check(&snapshot, Verdict::CatchingUp);
        snapshot.settings.max_partition_fetch_bytes = stated(65_536.0);
        snapshot.consumer.as_mut().unwrap().fetch_bytes = Some(65_000.0);
        check(&snapshot, Verdict::FetchSize);
    }

    fn fetch_size_of(snapshot: &Snapshot) -> Found {
        fetch_size(&Reading::of(snapshot, snapshot.consumer.as_ref().unwrap()))
    }
}
