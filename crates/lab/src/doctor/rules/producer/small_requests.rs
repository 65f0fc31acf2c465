//! producer 12: do many small requests cost anything?
//!
//! **Asks** whether a client that is not slow sends many requests of few records each, and who
//! bears the cost of that: without a bearer it is no fault.
//!
//! **Threshold**: fewer than 5 records in a request, or batches less than a tenth full, at more
//! than 100 requests/s, of records that could share a batch; and one of these pays: the client's
//! own sending thread (busy for at least 0.3 of its time at more than 1,000 requests/s), a broker
//! whose handlers are idle for less than 0.3 of the time, or a broker's time (R × D without the
//! wait for replicas and disk) of at least a fifth of a thread. Handlers that others keep busy are
//! no bearer: where the client's own part is known, all of its requests take a twentieth of a
//! thread at least.
//!
//! A healthy client of 100 to 170 requests/s costs nothing that can be measured, and is left alone.

use crate::doctor::diagnosis::{Finding, FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::BrokerSide;
use crate::formulas::batching;

use super::super::broker::IDLE_SHARE_LOW;
use super::super::broker::parts::flushed_locally_micros;
use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise;
use super::reading::{Bound, Reading, clean, positive};
use super::sender_rate::filling_rate;
use super::{LINGER, Rule, refusals, rule};
use crate::numbers::{number, percent, plain};

pub(crate) const RULE: Rule = rule("producer 12", "Do many small requests cost anything?", ask);

const FEW_RECORDS: f64 = 5.0;
const MANY_REQUESTS: f64 = 100.0;
const EMPTY_BATCHES: f64 = 0.1;
/// From this share of one thread's time on, a broker's work for one client is worth saving.
const BROKER_SHARE: f64 = 0.2;
/// A client whose requests take less of one thread than this does not keep handlers busy.
const OWN_SHARE: f64 = 0.05;
const THREAD_SHARE: f64 = 0.3;
const THREAD_REQUESTS: f64 = 1_000.0;

fn ask(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("R", reading.requests_per_second, "requests/s"),
        known("n_req", reading.records_per_request, ""),
        known("phi", reading.fill(), ""),
    ];
    let Some(records) = reading.records_per_request.filter(|_| is_small(reading)) else {
        return Found::nothing(numbers, "no");
    };
    let Some(bearer) = bearer(reading) else {
        return Found::nothing(numbers, "they are small, and no thread is seen to pay for it");
    };
    let text = format!(
        "Nothing is slow, but requests carry {} records each, and {bearer}.",
        number(records)
    );
    if reading.bound != Bound::Source {
        return Found::nothing(numbers, text.clone()).contributing(Some(Finding {
            id: FindingId::B1,
            text: format!("requests carry {} records each, and {bearer}", number(records)),
            is_contributing: true,
        }));
    }
    Found::verdict(
        numbers,
        Verdict::SmallRequests,
        confidence(reading, Verdict::SmallRequests, false),
        text.clone(),
    )
    .finding(FindingId::B1, text)
    .recommend(recommend(reading))
    .refusals(refusals::batch(reading))
    .refusals(refusals::unused_in_flight(reading))
    .refusals(refusals::partitions(reading))
}

/// B1: many requests with few records each, which could have shared one request.
fn is_small(reading: &Reading<'_>) -> bool {
    let Some((records, all)) = reading.records_per_request.zip(reading.requests_per_second) else {
        return false;
    };
    let is_empty = reading.knows_fill() && reading.fill().is_some_and(|fill| fill < EMPTY_BATCHES);
    // A record larger than a batch travels alone, whatever the settings are.
    let is_joinable = reading
        .record_bytes()
        .is_none_or(|bytes| bytes < reading.settings.batch_bytes.value / 2.0);
    all > MANY_REQUESTS && (records < FEW_RECORDS || is_empty) && is_joinable
}

/// Who pays for the requests, with the share of time that they take.
fn bearer(reading: &Reading<'_>) -> Option<String> {
    let sides = || reading.snapshot.brokers.iter();
    let own = || sides().filter(|side| !side.is_of_all_clients && !side.is_rounded_to_ms);
    let work = own()
        .filter_map(|side| Some(side.requests_per_second? * work_micros(side) / 1e6))
        .filter_map(|share| clean(Some(share)))
        .fold(0.0, f64::max);
    if work >= BROKER_SHARE {
        return Some(format!(
            "they take {} of one of the broker's threads",
            percent(work.min(1.0))
        ));
    }
    let idle = sides()
        .filter_map(|side| clean(side.handler_idle))
        .reduce(f64::min);
    // Each request takes some time: none is one that was not measured.
    let micros = own().filter_map(|side| positive(Some(work_micros(side))));
    let whole = micros.reduce(f64::max).zip(reading.requests_per_second);
    let is_own = whole.is_none_or(|(micros, rate)| rate * micros / 1e6 >= OWN_SHARE);
    if let Some(idle) = idle.filter(|idle| *idle < IDLE_SHARE_LOW && is_own) {
        return Some(format!(
            "the broker's handlers are busy {} of the time",
            percent(1.0 - idle)
        ));
    }
    let busy = 1.0 - reading.io_wait?;
    let is_many = reading
        .requests_per_second
        .is_some_and(|rate| rate > THREAD_REQUESTS);
    (busy >= THREAD_SHARE && is_many)
        .then(|| format!("keep the client's own sending thread {} busy", percent(busy)))
}

/// How long a broker works for each request of this client: what waits for a disk or for others
/// takes no thread.
fn work_micros(side: &BrokerSide) -> f64 {
    let local = clean(side.local_micros).unwrap_or(0.0) - flushed_locally_micros(side);
    local + clean(side.send_micros).unwrap_or(0.0)
}

fn recommend(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.requests_per_second)?;
    let linger_ms = reading.settings.linger_ms.value;
    let collects_nothing = linger_ms >= 5.0 && filling_rate(reading)? * linger_ms / 1_000.0 < 1.0;
    if linger_ms >= 10.0 || collects_nothing {
        return Some(Recommendation {
            set: "fewer producers with the same records, or fewer partitions for each".to_owned(),
            why: "linger collects less than a record for each partition: k = rate of the partition × linger (F19)".to_owned(),
            promise: promise::with(promise::of("requests_per_second", "requests/s", Some(now), 0.45 * now, 0.55 * now), "with half as many producers"),
            next_ceiling: "half the producers send half the requests; brokers then have that time for others".to_owned(),
            cost: "a gateway or larger instances".to_owned(),
        });
    }
    let next_ms = if linger_ms < 5.0 { 5.0 } else { 10.0 };
    let (mut low, mut high) = (0.0, 0.0);
    for pipe in &reading.nodes {
        low += batching::requests_per_second_sticky(pipe.requests_per_second, next_ms);
        let partitions = pipe.partitions.unwrap_or(reading.partitions_per_broker);
        high += batching::requests_per_second_keyed(pipe.requests_per_second, partitions, next_ms);
    }
    let longer = number(next_ms - linger_ms);
    let mut promise = promise::of("requests_per_second", "requests/s", Some(now), low, high.min(now));
    promise.assumption =
        format!("low: sticky partitioner, high: keys; each record waits up to {longer} ms longer");
    Some(Recommendation {
        set: format!("{LINGER}={}", plain(next_ms)),
        why: "requests are nearly empty, and each costs the same however little it carries (B1, F20)"
            .to_owned(),
        promise,
        next_ceiling: format!(
            "1000 / linger = {} requests/s for each broker",
            number(1_000.0 / next_ms)
        ),
        cost: format!("up to {longer} ms of latency"),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::BrokerSide;

    const SMALL: Row = Row {
        records: 300.0,
        requests: 150.0,
        request_bytes: 700.0,
        batch: 600.0,
        records_per_request: 2.0,
        latency: 1.0,
        queue: Some(5.1),
        thread: Some((0.95, 0.02)),
        ..ROW
    };

    #[test]
    fn small_requests_are_a_fault_only_where_a_thread_pays() {
        let mut snapshot = SMALL.snapshot();
        assert_ne!(examine(&snapshot).verdict, Verdict::SmallRequests);
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(150.0),
            local_micros: Some(1_600.0),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::SmallRequests);
        assert!(diagnosis.summary.contains("24 %"), "{}", diagnosis.summary);
        // Measured: most of it was the wait for the disk.
        snapshot.brokers[0].flush_micros = Some(1_300.0);
        snapshot.brokers[0].remote_micros = Some(0.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::SmallRequests);
    }

    #[test]
    fn handlers_that_others_keep_busy_are_not_laid_on_a_client_of_little_work() {
        let mut snapshot = SMALL.snapshot();
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(150.0),
            local_micros: Some(50.0),
            handler_idle: Some(0.2),
            ..BrokerSide::default()
        }];
        assert_ne!(examine(&snapshot).verdict, Verdict::SmallRequests);
        snapshot.brokers[0].local_micros = Some(500.0);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::SmallRequests, "{diagnosis:#?}");
        // Of whose work nothing is known, it is one of those that keep them busy.
        snapshot.brokers[0].local_micros = None;
        assert_eq!(examine(&snapshot).verdict, Verdict::SmallRequests);
    }
}
