//! producer 11: does every record wait for the answer to the one before?
//!
//! **Threshold**: records outstanding, X_r × (q + L), equal T, and requests hold no more records
//! than there are threads (T unknown: one) (F28, O1). Equal is up to 15 % more, and as much less
//! where q is not sent; where it is, no more than 5 % or 0.3 ms of each record's time may pass in
//! neither: a thread that waits for an answer sends the next record at once, and an application
//! that sends one each 6.7 ms of its own accord has 5.8 ms of them under way with a linger of 5. It
//! is asked before small requests: a sender that waits for each answer has one record in a request
//! too. Where the client sends no latency, RTT + D stands for L. One thread never has two requests
//! under way: where a broker saw two of one connection, or the next one came before the answer can
//! have reached the client, an application that sends at that pace of its own accord is left.
//!
//! Threads that wait for one answer together, because their records went in one request, send the
//! next ones together. Where T is not known, requests that all have the same number of records
//! stand for that many threads if the rate fits within 5 %.
//!
//! An application may wait for several answers at once: with `flush()`, or at the end of a
//! transaction. Java counts the time in both; at 0.7 of a thread's time and without a backlog
//! it is what sets the pace, however many records are in a request. Java adds the time of all
//! threads: where it is more than all of the time of one, and T is not known, nothing follows.
//!
//! Clients that push no queue time and send requests of one small record without a pause wait for
//! each answer: behind a backlog a request would hold more of them.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::BrokerSide;
use crate::doctor::used::UsedNumbers;
use crate::formulas::ceiling;

use super::super::engine::PROMISE_WIDTH;
use super::super::found::Found;
use super::super::inference;
use super::super::words::known;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Reading, clean, positive};
use super::{LINGER, Rule, refusals, rule};
use crate::model::ceilings::cut;
use crate::numbers::{number, percent};

pub(crate) const RULE: Rule = rule(
    "producer 11",
    "Does every record wait for the answer to the one before?",
    ask,
);

const NEAR: f64 = 0.15;
/// What passes between an answer and the next record of a thread that waited for it: this share of
/// its time, or this long.
const BETWEEN: f64 = 0.05;
const BETWEEN_MS: f64 = 0.3;
/// The mean is this near to a whole number where each request has as many records.
const ALIKE: f64 = 0.1;
/// An application that waits for this share of the time does little else.
const MOST: f64 = 0.7;

fn ask(reading: &Reading<'_>) -> Found {
    let sides = &reading.snapshot.brokers;
    let largest = |of: fn(&BrokerSide) -> Option<f64>| sides.iter().filter_map(of).reduce(f64::max);
    let numbers = [
        known("X_r", reading.records_per_second, "records/s"),
        known("n_req", reading.records_per_request, ""),
        known("T", reading.threads, ""),
        known("gap", largest(|side| side.gap_ms), "ms"),
        known(
            "under way at once",
            largest(|side| side.in_flight_max),
            "requests",
        ),
    ];
    if reading.bound != Bound::Source || reading.is_offer_met() == Some(true) {
        return Found::nothing(numbers, "no");
    }
    match (one_at_a_time(reading), Waiting::of(reading)) {
        (Some(waiters), _) => found(reading, numbers, waiters.threads, waiters.records_per_second),
        (None, Some(waiting)) if waiting.is_of_unknown => Found::nothing(numbers, "no").missing(format!(
            "how many threads call flush(): together they wait {} s each second",
            number(waiting.share)
        )),
        (None, Some(waiting)) => several(reading, numbers, waiting),
        _ => Found::nothing(numbers, "no"),
    }
}

/// Threads that wait for their answers, and what they send.
#[derive(Clone, Copy)]
struct Waiters {
    threads: f64,
    records_per_second: f64,
}

/// What threads send that wait for each answer, where that is the rate (F28).
fn one_at_a_time(reading: &Reading<'_>) -> Option<Waiters> {
    let rate = reading.records_per_second.filter(|rate| *rate > 0.0)?;
    let request_ms = reading.request_ms.or_else(|| seen_by_broker(reading))?;
    let records = reading.records_per_request?;
    let together = reading
        .threads
        .is_none()
        .then(|| together(reading, records))
        .flatten();
    let threads = reading.threads.or(together).unwrap_or(1.0);
    if threads <= 1.0 && inference::has_two_under_way(reading.snapshot) {
        return None;
    }
    let most = if together.is_some() { BETWEEN } else { NEAR };
    // librdkafka does not send the time in the batch: use the answer's time alone, or add the
    // linger.
    let queues = match reading.queue_ms {
        Some(queue_ms) => vec![queue_ms],
        None => vec![0.0, reading.settings.linger_ms.value],
    };
    let expected =
        |queue_ms: f64| ceiling::synchronous_records_per_second(threads, queue_ms, request_ms.max(1e-3));
    let least = match reading.queue_ms {
        Some(queue_ms) => 1.0 - BETWEEN.max(BETWEEN_MS / (queue_ms + request_ms)).min(NEAR),
        None => 1.0 - NEAR,
    };
    let expected = queues
        .into_iter()
        .map(expected)
        .find(|expected| (least..=1.0 + most).contains(&(rate / expected)))?;
    (records <= threads.max(1.0) * 1.05).then_some(Waiters {
        threads,
        records_per_second: expected,
    })
}

/// The threads of a client that does not tell their number, if they all wait for the same answer:
/// then each request has a record of each, and never another number.
fn together(reading: &Reading<'_>, records: f64) -> Option<f64> {
    let threads = records.round();
    let are_alike = threads >= 2.0 && (records - threads).abs() <= ALIKE;
    (are_alike && reading.queue_ms.is_some()).then_some(threads)
}

/// RTT + D.
fn seen_by_broker(reading: &Reading<'_>) -> Option<f64> {
    let pipe = reading.hottest()?;
    Some(reading.tcp_ms(pipe)? + pipe.broker.as_ref()?.ms_at_most)
}

/// The time that the application waits for all that it sent.
#[derive(Clone, Copy)]
struct Waiting {
    share: f64,
    is_of_transactions: bool,
    /// More than one thread waits, and how many there are is not known.
    is_of_unknown: bool,
}

impl Waiting {
    fn of(reading: &Reading<'_>) -> Option<Waiting> {
        let own = reading.snapshot.producer.as_ref()?;
        let threads = reading.threads.unwrap_or(1.0).max(1.0);
        let kinds = [(own.transaction_wait, true), (own.flush_wait, false)];
        let known = kinds.into_iter().filter_map(|(share, is_of_transactions)| {
            let share = clean(share)? / threads;
            Some(Waiting {
                share,
                is_of_transactions,
                is_of_unknown: reading.threads.is_none() && share > 1.0 + BETWEEN,
            })
        });
        known
            .max_by(|a, b| a.share.total_cmp(&b.share))
            .filter(|waiting| waiting.share >= MOST)
    }
}

/// The verdict where several records wait together.
fn several(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>, waiting: Waiting) -> Found {
    let (on, set) = match waiting.is_of_transactions {
        true => (
            "the end of its transactions",
            "commit less often: more records in each transaction",
        ),
        false => (
            "flush()",
            "call flush() less often, or use the callback of send() in its place",
        ),
    };
    let text = format!(
        "The application waits for {on} {} of the time, and sends nothing meanwhile.",
        percent(waiting.share.min(1.0))
    );
    Found::verdict(
        numbers,
        Verdict::Synchronous,
        confidence(reading, Verdict::Synchronous, false),
        text.clone(),
    )
    .finding(FindingId::O1, text)
    .recommend(send_on(reading, waiting, set))
    .refuse(
        super::BATCH,
        "what is sent between two waits does not fill larger batches",
    )
    .refusals(refusals::unused_in_flight(reading))
}

/// Without the wait the application sends as fast as it makes records.
fn send_on(reading: &Reading<'_>, waiting: Waiting, set: &str) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link, Kind::Worker]);
    let high = cut(&ceilings, now / (1.0 - waiting.share).max(0.1)).max(now);
    let mut promise = promise::records(now, 0.8 * high, high);
    promise.unknown = Some("how often the application can do without the wait".to_owned());
    Some(Recommendation {
        set: set.to_owned(),
        why: format!(
            "each wait takes a round trip at least, and nothing is sent in {} of the time (O1)",
            percent(waiting.share.min(1.0))
        ),
        promise,
        next_ceiling: "the application's own time between two waits".to_owned(),
        cost: match waiting.is_of_transactions {
            true => "readers of committed records get them later, and an abort repeats more".to_owned(),
            false => "errors arrive later, in the callback".to_owned(),
        },
    })
}

/// The verdict, also for a client whose broker alone speaks.
pub(crate) fn found(
    reading: &Reading<'_>,
    numbers: impl Into<UsedNumbers>,
    threads: f64,
    expected: f64,
) -> Found {
    let is_guess = threads > 1.0 && reading.threads.is_none();
    let text = match is_guess {
        true => format!(
            "{} records at a time wait for one answer, and the next ones for theirs: {} threads that wait for each of their records would send {} records/s.",
            number(threads),
            number(threads),
            number(expected)
        ),
        false => format!(
            "Every record waits for the answer to the one before: {} records/s is what that allows.",
            number(expected)
        ),
    };
    Found::verdict(
        numbers,
        Verdict::Synchronous,
        confidence(reading, Verdict::Synchronous, is_guess),
        text.clone(),
    )
    .finding(FindingId::O1, text)
    .recommend(recommend(reading, threads))
    .refuse(
        super::BATCH,
        "a batch of one record at a time does not fill, whatever its size",
    )
    .refusals(refusals::unused_in_flight(reading))
}

fn recommend(reading: &Reading<'_>, threads: f64) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let linger_ms = reading.settings.linger_ms.value;
    let request_ms = reading.request_ms.unwrap_or(1_000.0 / now).max(1e-3);
    let wait_ms = reading.queue_ms.unwrap_or(linger_ms);
    let threads = reading.threads.unwrap_or(threads);
    let at_once = ceiling::synchronous_records_per_second(threads, 0.0, request_ms);
    let without = now * (wait_ms + request_ms) / request_ms;
    let has_linger = linger_ms > 0.0
        && reading
            .queue_ms
            .is_some_and(|queue| queue >= 0.8 * linger_ms.min(1.0));
    if has_linger && wait_ms >= 0.1 * request_ms && without > 1.05 * now {
        let low = 0.9 * without;
        let high = shortest_ms(reading).map_or(without, |ms| {
            let at_best = ceiling::synchronous_records_per_second(threads, 0.0, ms);
            at_best.clamp(without, PROMISE_WIDTH * low)
        });
        return Some(Recommendation {
            set: format!("{LINGER}=0"),
            why: "nothing else fills the batch that a waiting thread has opened; better: use the callback instead of waiting for each answer (O1)".to_owned(),
            promise: promise::records(now, low, high),
            next_ceiling: format!(
                "1000 / L for each thread: {} records/s; asynchronous sending with callbacks lifts that too",
                number(at_once)
            ),
            cost: String::new(),
        });
    }
    let pipe = reading.used().map_or(10.0 * now, |used| now / used.max(0.1));
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link, Kind::Worker]);
    let high = cut(&ceilings, pipe).max(now);
    let mut promise = promise::records(now, 0.8 * high, high);
    if reading.offered.is_none() {
        promise.unknown = Some("how much the application sends when it no longer waits".to_owned());
    }
    Some(Recommendation {
        set: "use the callback of send() instead of waiting for each answer".to_owned(),
        why: "one record is under way at a time, and the round trip is most of its time".to_owned(),
        promise,
        next_ceiling: "the request rate with one record in each request; batches then form by themselves"
            .to_owned(),
        cost: "errors arrive later, in the callback".to_owned(),
    })
}

/// What an answer takes at least. L is a mean of the client's last minute, which its start may be a
/// part of: 400 records/s came after a linger on loopback where L had let 320 expect.
fn shortest_ms(reading: &Reading<'_>) -> Option<f64> {
    let by_trip = || {
        let pipe = reading.hottest()?;
        let trip = reading.round_trip(pipe)?;
        positive(Some(trip.ms + reading.broker_ms(pipe).unwrap_or(0.0)))
    };
    by_trip().or_else(|| Some(positive(reading.request_ms)? / promise::OWN_PART_MAX))
}

#[cfg(test)]
mod tests {
    use crate::doctor::Snapshot;
    use crate::doctor::diagnosis::{Diagnosis, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Library};

    fn set(diagnosis: &Diagnosis) -> &str {
        let change = diagnosis.recommendation.as_ref();
        change.map_or("", |change| &change.set)
    }

    /// Three threads over 4 ms with a linger of 5, as Java pushes it, which does not tell of three.
    #[test]
    fn threads_that_wait_for_one_answer_together_are_synchronous() {
        let row = Row {
            records: 237.0,
            requests: 82.8,
            request_bytes: 1_654.0,
            batch: 1_578.0,
            records_per_request: 2.98,
            latency: 6.8,
            queue: Some(5.7),
            queue_max: 160.0,
            buffer_wait: Some(0.0),
            partitions: 1.0,
            thread: Some((0.84, 0.03)),
            ..ROW
        };
        let diagnosis = examine(&row.snapshot());
        assert_eq!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        assert!(diagnosis.summary.contains("3 threads"), "{}", diagnosis.summary);
        assert_eq!(set(&diagnosis), "linger.ms=0");
        // As many records at another pace, or requests with different numbers of them.
        for (records, in_each) in [(280.0, 2.98), (200.0, 2.98), (237.0, 2.6)] {
            let other = Row {
                records,
                records_per_request: in_each,
                ..row
            };
            let diagnosis = examine(&other.snapshot());
            assert_ne!(diagnosis.verdict, Verdict::Synchronous, "{records} {in_each}");
        }
    }

    /// Measured over 4 ms: L was of a minute that began with the client's start; without a linger
    /// it sent 159.7.
    #[test]
    fn what_an_answer_takes_at_best_bounds_the_promise() {
        let row = Row {
            records: 75.3,
            requests: 75.3,
            request_bytes: 620.0,
            batch: 570.0,
            records_per_request: 1.0,
            latency: 7.84,
            queue: Some(5.41),
            buffer_wait: Some(0.0),
            partitions: 1.0,
            thread: Some((0.82, 0.03)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(75.3),
            total_micros: Some(1_800.0),
            round_trip_ms: Some(4.17),
            ..BrokerSide::default()
        }];
        let change = examine(&snapshot).recommendation.unwrap();
        assert_eq!(change.set, "linger.ms=0");
        let promise = change.promise;
        assert!((promise.low..=promise.high).contains(&159.7), "{promise:?}");
    }

    /// Measured on loopback, linger.ms=20, with a round trip that explains nothing of L: without
    /// the linger all 400 records/s came that were offered.
    #[test]
    fn what_an_answer_takes_beyond_a_short_way_may_pass() {
        let row = Row {
            records: 44.4,
            requests: 44.4,
            request_bytes: 620.0,
            batch: 570.0,
            records_per_request: 1.0,
            latency: 3.1,
            queue: Some(19.4),
            buffer_wait: Some(0.0),
            partitions: 1.0,
            thread: Some((0.9, 0.03)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(44.4),
            total_micros: Some(1_000.0),
            round_trip_ms: Some(0.03),
            ..BrokerSide::default()
        }];
        let change = examine(&snapshot).recommendation.unwrap();
        assert_eq!(change.set, "linger.ms=0");
        let promise = change.promise;
        assert!((promise.low..=promise.high).contains(&400.0), "{promise:?}");
        assert!(promise.high < 2.0 * promise.low, "{promise:?}");
    }

    /// 200 records, then `flush()`, over 40 ms.
    fn flushing() -> Snapshot {
        let row = Row {
            records: 4_400.0,
            requests: 44.0,
            request_bytes: 51_000.0,
            batch: 12_800.0,
            records_per_request: 100.0,
            latency: 41.5,
            queue: Some(1.4),
            buffer_wait: Some(0.0),
            partitions: 4.0,
            thread: Some((0.97, 0.01)),
            ..ROW
        };
        row.snapshot()
    }

    #[test]
    fn an_application_that_waits_in_flush_most_of_the_time_is_synchronous() {
        let mut snapshot = flushing();
        snapshot.producer.as_mut().unwrap().flush_wait = Some(0.94);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        assert!(diagnosis.summary.contains("flush()"), "{}", diagnosis.summary);
        assert!(set(&diagnosis).starts_with("call flush() less often"));
        // Eight threads that flush now and then together wait as long as one that always does.
        let mut several = snapshot.clone();
        several.application.threads = Some(8.0);
        assert_ne!(examine(&several).verdict, Verdict::Synchronous);
        // Sixteen of which nothing is known wait as long as two that always do.
        let mut unknown = snapshot.clone();
        unknown.producer.as_mut().unwrap().flush_wait = Some(1.6);
        let diagnosis = examine(&unknown);
        assert_ne!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        let asks = |words: &String| words.contains("call flush()");
        assert!(diagnosis.missing.iter().any(asks), "{:?}", diagnosis.missing);
        unknown.application.threads = Some(2.0);
        assert_eq!(examine(&unknown).verdict, Verdict::Synchronous);
        // Once a second is no wait to speak of.
        snapshot.producer.as_mut().unwrap().flush_wait = Some(0.045);
        let verdict = examine(&snapshot).verdict;
        assert!(
            matches!(verdict, Verdict::KeepsUp | Verdict::Application),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_transaction_each_few_records_is_synchronous_however_many_are_in_a_request() {
        let mut snapshot = flushing();
        snapshot.producer.as_mut().unwrap().transaction_wait = Some(0.88);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        assert!(set(&diagnosis).starts_with("commit less often"));
        // What it is offered it sends: nothing is wrong.
        snapshot.application.offered_records_per_second = Some(4_400.0);
        assert_eq!(examine(&snapshot).verdict, Verdict::KeepsUp);
    }

    /// Measured three seconds after the start: 150 records/s of its own accord, a linger of 5 ms
    /// and answers within 0.78 ms, one record in each request.
    #[test]
    fn an_application_that_sends_now_and_then_does_not_wait_for_answers() {
        let row = |rate: f64| Row {
            records: rate,
            requests: rate,
            request_bytes: 330.0,
            batch: 280.0,
            records_per_request: 1.0,
            threads: 1.0,
            latency: 0.78,
            queue: Some(5.0),
            buffer_wait: Some(0.0),
            partitions: 3.0,
            thread: Some((0.95, 0.02)),
            ..ROW
        };
        let verdict = examine(&row(150.0).snapshot()).verdict;
        assert!(
            matches!(verdict, Verdict::KeepsUp | Verdict::Application),
            "{verdict:?}"
        );
        // The next record follows the answer at once.
        let waiting = examine(&row(168.0).snapshot());
        assert_eq!(waiting.verdict, Verdict::Synchronous, "{waiting:#?}");
    }

    /// One record after the other over 4 ms, as the load programs of both libraries sent them.
    fn one_after_the_other(library: Library, rate: f64, latency: f64) -> Snapshot {
        let row = Row {
            records: rate,
            requests: rate,
            request_bytes: 620.0,
            batch: 570.0,
            records_per_request: 1.0,
            latency,
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.client.library = library;
        snapshot.client.software_version = Some("2.16.0".to_owned());
        snapshot.telemetry.pushes = Some(6);
        snapshot.producer.as_mut().unwrap().batch_bytes_max = Some(572.0);
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(rate),
            records_per_request: Some(1.0),
            total_micros: Some(250.0),
            round_trip_ms: Some(4.05),
            gap_ms: Some(1_000.0 / rate - 0.25),
            has_overlap: Some(false),
            connections: Some(1.0),
            ..BrokerSide::default()
        }];
        snapshot
    }

    #[test]
    fn one_record_at_a_time_is_synchronous_for_a_client_without_a_queue_time() {
        let mut franz = one_after_the_other(Library::FranzGo, 222.0, 4.4);
        franz.brokers[0].back_to_back_share = Some(0.99);
        let diagnosis = examine(&franz);
        assert_eq!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        // Requests of many records that follow each other have a backlog behind them.
        let own = franz.producer.as_mut().unwrap();
        own.records_per_request = Some(30.0);
        own.records_per_second = Some(6_660.0);
        (own.request_bytes, own.batch_bytes, own.batch_bytes_max) =
            (Some(16_000.0), Some(15_900.0), Some(16_000.0));
        (own.bytes_per_second, own.nodes[0].bytes_per_second) = (Some(3.5e6), Some(3.5e6));
        franz.brokers[0].records_per_request = Some(30.0);
        assert_eq!(examine(&franz).verdict, Verdict::NetworkRtt);
    }

    #[test]
    fn a_librdkafka_client_that_sends_no_latency_is_judged_by_the_broker_s() {
        let mut snapshot = one_after_the_other(Library::Librdkafka, 97.7, 0.0);
        snapshot.producer.as_mut().unwrap().queue_ms = Some(0.1);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Synchronous, "{diagnosis:#?}");
        // 150 records/s with default settings and a linger of 5 ms.
        let own = snapshot.producer.as_mut().unwrap();
        (own.records_per_second, own.records_per_request) = (Some(150.0), Some(1.7));
        let verdict = examine(&snapshot).verdict;
        assert!(
            matches!(verdict, Verdict::KeepsUp | Verdict::Application),
            "{verdict:?}"
        );
    }
    /// librdkafka across 4 ms, one record each 10 ms: as many as a thread that waits would send.
    #[test]
    fn two_requests_under_way_are_not_of_a_thread_that_waits() {
        let sends = |change: fn(&mut BrokerSide)| {
            let mut snapshot = one_after_the_other(Library::Librdkafka, 100.0, 4.6);
            change(&mut snapshot.brokers[0]);
            examine(&snapshot).verdict
        };
        assert_eq!(sends(|_| ()), Verdict::Synchronous);
        let changes: [fn(&mut BrokerSide); 3] = [
            |side| side.has_overlap = Some(true),
            |side| side.in_flight_max = Some(2.0),
            |side| side.gap_ms = Some(3.0),
        ];
        for change in changes {
            let verdict = sends(change);
            assert!(
                matches!(verdict, Verdict::KeepsUp | Verdict::Application),
                "{verdict:?}"
            );
        }
        assert_eq!(sends(|side| side.in_flight_max = Some(1.0)), Verdict::Synchronous);
    }
}
