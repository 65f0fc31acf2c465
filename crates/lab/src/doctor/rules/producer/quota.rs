//! producer 1: does the broker slow it down on purpose?
//!
//! **Asks** for a quota before any queue is explained, because a throttled client queues like a
//! slow one. **Numbers**: the throttle time that the client was given (`th`), and the broker's own
//! figure for this client; a figure for all of a broker's clients does not count.
//!
//! **Threshold**: a mean throttle of 1 ms in the window by the client, or any by the broker, that
//! holds a connection back for at least a twentieth of the time (R × th); a shorter one is a note,
//! as nothing waits for long. A broker that throttles a client delays its pushes too, so that one
//! on Apache Kafka may have pushed before it was throttled, and not since: then 0.8 of the byte
//! quota that the cluster has for its client id, by the ends of its partitions, while it does not
//! come to push or records wait; or 1.05 of it for as long as brokers look back; or, with low
//! confidence, a request quota of less than one thread's time that the cluster has for it, while it
//! writes on and does not come to push, on a machine that is not known to be full. A broker handles
//! the requests of a connection one after another, so that no larger request quota is used up.
//! **Which quota**: bytes, where bytes per second are at the byte quota or no request quota is
//! known; otherwise the share of request time, which fewer and larger requests lower first.
//!
//! **The promise**: the rate grows with the byte quota; how far depends on what the application
//! offers, which no client says.
//!
//! **The case**: 1 MB/s allowed, 5 MB/s wanted: 21 ms of throttle on average, and a queue of 8 s
//! that no setting would shorten.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::BrokerSide;

use super::super::found::Found;
use super::super::host;
use super::super::words::known;
use super::backlog::Backlog;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Reading, clean, positive, reaches};
use super::{IN_FLIGHT, LINGER, Rule, refusals, rule};
use crate::model::ceilings::{cut, next};
use crate::numbers::{bytes, number, percent};

pub(crate) const RULE: Rule = rule("producer 1", "Does the broker slow it down on purpose?", ask);

const TOLD_MS: f64 = 1.0;
/// The share of its time that a connection is held back from which on the quota limits it.
const HELD: f64 = 0.05;
/// The time of one thread, of which a connection uses no more.
const ONE_THREAD: f64 = 1.0;
/// The share of a byte quota from which on it limits.
const REACHED: f64 = 0.8;
/// A client that sends more for as long as brokers look back (quota.window.num and
/// quota.window.size.seconds of Kafka) is held back, whatever else is known of it.
const OVER: f64 = 1.05;
const QUOTA_WINDOW_S: f64 = 11.0;

struct Throttle {
    ms: f64,
    bytes_per_second: Option<f64>,
    share: Option<f64>,
    is_of_request_time: bool,
}

fn ask(reading: &Reading<'_>) -> Found {
    let sides = reading.snapshot.brokers.iter();
    let own: Vec<_> = sides.filter(|side| !side.is_of_all_clients).collect();
    let by_broker = own
        .iter()
        .filter_map(|side| positive(side.throttle_ms))
        .fold(0.0, f64::max);
    let told = reading.throttle_ms;
    let held = held(reading, &own);
    let numbers = [
        known("th", told, "ms"),
        known("throttle of the broker", Some(by_broker), "ms"),
        known("R × th", held, "s/s"),
    ];
    let is_throttled = told.is_some_and(|told| told >= TOLD_MS) || by_broker > 0.0;
    let is_told = is_throttled && held.is_none_or(|share| reaches(share, HELD));
    let is_known = is_told || is_at_the_clusters(reading);
    let cut_off_by = share_that_cuts_off(reading).filter(|_| !is_known);
    if !(is_known || cut_off_by.is_some()) || reading.snapshot.telemetry.restarted {
        let note = held.filter(|_| is_throttled && !is_told).map(|share| {
            format!(
                "a quota of the broker holds it back {} of the time, too little to limit it",
                percent(share)
            )
        });
        let found = Found::nothing(numbers, "no");
        return note.into_iter().fold(found, Found::note);
    }
    let bytes_per_second = own
        .iter()
        .find_map(|side| positive(side.quota_bytes_per_second))
        .or_else(|| positive(reading.snapshot.cluster.as_ref()?.quota_bytes_per_second));
    let share = own.iter().find_map(|side| positive(side.quota_request_share));
    let share = share.or_else(|| positive(reading.snapshot.cluster.as_ref()?.quota_request_share));
    let is_at_byte_quota =
        bytes_per_second.is_none_or(|quota| reading.bytes_per_second.unwrap_or(0.0) >= REACHED * quota);
    let throttle = Throttle {
        ms: told.unwrap_or(0.0).max(by_broker),
        bytes_per_second,
        share,
        is_of_request_time: share.is_some() && !(bytes_per_second.is_some() && is_at_byte_quota),
    };
    let limit = match (
        throttle.is_of_request_time,
        throttle.bytes_per_second,
        throttle.share,
    ) {
        (true, _, Some(share)) => format!("it has used up its quota of {} of request time", percent(share)),
        (_, Some(quota), _) => format!("it has used up its byte quota of {}/s", bytes(quota)),
        _ => "it has used up its byte quota, as far as the client can see".to_owned(),
    };
    let by = match is_told {
        true => format!(", by {} ms a request", number(throttle.ms)),
        false => String::new(),
    };
    let text = match cut_off_by {
        Some(share) => format!(
            "The broker seems to hold this client back on purpose: it may use {} of request time, and it writes on but does not come to push.",
            percent(share)
        ),
        None => format!("The broker holds this client back on purpose{by}: {limit}."),
    };
    let found = Found::verdict(
        numbers,
        Verdict::Quota,
        confidence(reading, Verdict::Quota, !is_told),
        text.clone(),
    )
    .finding(FindingId::Q1, text)
    .recommend(Some(recommend(reading, &throttle)))
    .refusals(refusals::of_memory(reading))
    .refuse(LINGER, "it waits for the quota, not for records")
    .refuse(IN_FLIGHT, "more requests at once reach the same quota");
    match cut_off_by {
        Some(_) => found.missing(
            "how much of the brokers' time it uses: their metrics request-time and throttle-time of this client id",
        ),
        None => found,
    }
}

/// The request quota of a client that writes and does not come to push, as one does whose
/// connection is muted most of the time.
fn share_that_cuts_off(reading: &Reading<'_>) -> Option<f64> {
    let snapshot = reading.snapshot;
    let cluster = snapshot.cluster.as_ref()?;
    let writes = cluster.is_alone && positive(cluster.records_per_second).is_some();
    let is_cut_off = snapshot.telemetry.is_silent && writes && !host::is_exhausted(snapshot);
    positive(cluster.quota_request_share).filter(|share| is_cut_off && *share < ONE_THREAD)
}

/// The share of its time that a connection is held back, by the rate of requests and the throttle
/// of each.
fn held(reading: &Reading<'_>, sides: &[&BrokerSide]) -> Option<f64> {
    let rates = reading.nodes.iter().map(|pipe| pipe.requests_per_second);
    let by_client = rates.reduce(f64::max).zip(reading.throttle_ms);
    let by_broker = sides.iter().filter_map(|side| {
        let connections = side.connections.unwrap_or(1.0).max(1.0);
        Some((side.requests_per_second? / connections, side.throttle_ms?))
    });
    by_broker
        .chain(by_client)
        .filter_map(|(rate, ms)| clean(Some(rate * ms / 1_000.0)))
        .reduce(f64::max)
}

/// Whether it has reached the byte quota that the cluster has for it, and something holds it back.
fn is_at_the_clusters(reading: &Reading<'_>) -> bool {
    let is_silent = reading.snapshot.telemetry.is_silent;
    let used = || {
        let cluster = reading.snapshot.cluster.as_ref()?;
        let quota = positive(cluster.quota_bytes_per_second)?;
        // What it pushed last is from before.
        let bytes = match is_silent {
            true => {
                positive(cluster.records_per_second).filter(|_| cluster.is_alone)? * reading.record_bytes()?
            }
            false => positive(reading.bytes_per_second)?,
        };
        Some(bytes / quota)
    };
    let is_held = is_silent || reading.backlog != Backlog::None;
    let is_over = |used: f64| used >= OVER && reading.snapshot.seconds >= QUOTA_WINDOW_S;
    used().is_some_and(|used| is_over(used) || is_held && used >= REACHED)
}

fn recommend(reading: &Reading<'_>, throttle: &Throttle) -> Recommendation {
    let (set, why) = if throttle.is_of_request_time {
        (
            "fewer, larger requests: linger.ms and batch.size; then a larger request quota",
            "a request quota counts the broker's time, and that goes with the number of requests",
        )
    } else {
        (
            "twice the byte quota (producer_byte_rate) for this user or client id",
            "the quota is of bytes: batching does not lower them, compression does",
        )
    };
    let now = reading.records_per_second.unwrap_or(0.0);
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker, Kind::Link]);
    let high = cut(&ceilings, 2.0 * now);
    let mut promise = promise::records(now, 0.9 * high, high);
    if reading.snapshot.telemetry.is_silent {
        promise.unknown = Some("what it sends now: its last push is from before".to_owned());
    } else if now <= 0.0 {
        promise.unknown = Some("what it sends now: it pushes no rate".to_owned());
    } else if throttle.is_of_request_time {
        promise.unknown = Some("how much of the broker's time a larger request saves".to_owned());
    } else if throttle.bytes_per_second.is_none() {
        promise.unknown = Some("the quota, and how much the application offers".to_owned());
    } else if reading.offered.is_none() {
        promise.assumption = promise::IF_OFFERED.to_owned();
    }
    Recommendation {
        set: set.to_owned(),
        why: why.to_owned(),
        promise,
        next_ceiling: throttle.bytes_per_second.map_or_else(
            || next(&ceilings),
            |quota| format!("the quota itself, then {}/s", bytes(2.0 * quota)),
        ),
        cost: "the broker then carries what the quota holds back now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::{Confidence, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, ClusterSide, Host, Telemetry};

    /// 2 MB/s offered of 500 kB/s on Apache Kafka: it pushed once, before it was throttled.
    #[test]
    fn a_client_at_the_clusters_quota_that_does_not_come_to_push_is_throttled() {
        let row = Row {
            records: 1_900.0,
            requests: 270.0,
            request_bytes: 7_100.0,
            batch: 7_000.0,
            latency: 3.0,
            queue: Some(5.0),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.seconds = 1.2;
        snapshot.telemetry = Telemetry {
            pushes: Some(1),
            has_subscription: true,
            push_interval_ms: Some(1_000.0),
            is_silent: true,
            ..Telemetry::default()
        };
        assert_eq!(examine(&snapshot).verdict, Verdict::NotEnoughData);
        snapshot.cluster = Some(ClusterSide {
            records_per_second: Some(520.0),
            is_alone: true,
            quota_bytes_per_second: Some(500_000.0),
            ..ClusterSide::default()
        });
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Quota, "{diagnosis:#?}");
        assert!(
            diagnosis.summary.contains("byte quota of 488 KiB/s"),
            "{}",
            diagnosis.summary
        );
        assert!(diagnosis.recommendation.unwrap().promise.unknown.is_some());
        let changes: [fn(&mut crate::doctor::Snapshot); 4] = [
            // Far below it.
            |other| other.cluster.as_mut().unwrap().records_per_second = Some(100.0),
            |other| other.cluster.as_mut().unwrap().is_alone = false,
            |other| other.cluster.as_mut().unwrap().quota_bytes_per_second = None,
            // It pushes when it is due.
            |other| other.telemetry.is_silent = false,
        ];
        for change in changes {
            let mut other = snapshot.clone();
            change(&mut other);
            assert_ne!(examine(&other).verdict, Verdict::Quota, "{other:#?}");
        }
        // It has sent more than its quota for longer than the broker lets it.
        snapshot.telemetry.is_silent = false;
        snapshot.seconds = 12.0;
        assert_eq!(examine(&snapshot).verdict, Verdict::Quota);
    }

    /// 1 % of request time on Apache Kafka: it pushed once, before it was muted.
    #[test]
    fn a_client_with_a_request_quota_that_writes_and_does_not_push_seems_throttled() {
        let row = Row {
            records: 41_000.0,
            requests: 4_100.0,
            request_bytes: 1_100.0,
            batch: 1_000.0,
            latency: 1.0,
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.seconds = 1.2;
        snapshot.telemetry = Telemetry {
            pushes: Some(1),
            has_subscription: true,
            push_interval_ms: Some(1_000.0),
            is_silent: true,
            ..Telemetry::default()
        };
        snapshot.cluster = Some(ClusterSide {
            records_per_second: Some(2_400.0),
            is_alone: true,
            quota_request_share: Some(0.01),
            ..ClusterSide::default()
        });
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Quota, "{diagnosis:#?}");
        assert_eq!(diagnosis.confidence, Confidence::Low);
        assert!(
            diagnosis.summary.contains("1 % of request time"),
            "{}",
            diagnosis.summary
        );
        assert!(
            diagnosis
                .missing
                .iter()
                .any(|words| words.contains("throttle-time"))
        );
        let changes: [fn(&mut crate::doctor::Snapshot); 5] = [
            |other| other.telemetry.is_silent = false,
            |other| other.cluster.as_mut().unwrap().quota_request_share = None,
            // More than its connection can use.
            |other| other.cluster.as_mut().unwrap().quota_request_share = Some(2.0),
            // It writes no more.
            |other| other.cluster.as_mut().unwrap().records_per_second = Some(0.0),
            |other| {
                other.host = Some(Host {
                    used: Some(1.0),
                    waiting: Some(0.9),
                    ..Host::default()
                });
            },
        ];
        for change in changes {
            let mut other = snapshot.clone();
            change(&mut other);
            assert_ne!(examine(&other).verdict, Verdict::Quota, "{other:#?}");
        }
    }

    #[test]
    fn a_quota_s_promise_is_a_rate_and_can_fail() {
        let row = Row {
            records: 1_000.0,
            requests: 60.0,
            request_bytes: 16_300.0,
            batch: 16_300.0,
            latency: 5.0,
            queue: Some(8_000.0),
            throttle: 21.0,
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            quota_bytes_per_second: Some(1e6),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Quota);
        let promise = diagnosis.recommendation.unwrap().promise;
        assert_eq!((promise.unknown, promise.high), (None, 2_000.0));
        snapshot.brokers.clear();
        let promise = examine(&snapshot).recommendation.unwrap().promise;
        assert!(promise.unknown.is_some(), "{promise:?}");
    }
    /// Requests that a broker holds back, each for a while.
    fn throttled(ms: f64) -> crate::doctor::Snapshot {
        let row = Row {
            records: 5_000.0,
            requests: 83.0,
            request_bytes: 12_000.0,
            batch: 12_000.0,
            latency: 3.0,
            queue: Some(5.2),
            thread: Some((0.95, 0.02)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(83.0),
            throttle_ms: Some(ms),
            ..BrokerSide::default()
        }];
        snapshot
    }

    /// Two of 5,000 requests were held back for 20 ms.
    #[test]
    fn a_throttle_of_no_length_is_a_note() {
        let seldom = examine(&throttled(0.008));
        assert_ne!(seldom.verdict, Verdict::Quota, "{seldom:#?}");
        let is_told = |note: &String| note.starts_with("a quota of the broker holds it back");
        assert!(seldom.notes.iter().any(is_told), "{:?}", seldom.notes);
        assert_eq!(examine(&throttled(2.0)).verdict, Verdict::Quota);
        // As much on each of ten connections is little of the time of each.
        let mut shared = throttled(2.0);
        shared.brokers[0].connections = Some(10.0);
        assert_ne!(examine(&shared).verdict, Verdict::Quota);
        // The same by the client's own account.
        let mut own = throttled(0.0);
        own.producer.as_mut().unwrap().throttle_ms = Some(1.2);
        assert_eq!(examine(&own).verdict, Verdict::Quota);
        let own_rate = own.producer.as_mut().unwrap();
        (
            own_rate.requests_per_second,
            own_rate.nodes[0].requests_per_second,
        ) = (Some(4.0), Some(4.0));
        assert_ne!(examine(&own).verdict, Verdict::Quota);
    }

    #[test]
    fn what_a_request_quota_asks_for_is_not_refused() {
        let mut snapshot = throttled(20.0);
        let refuses = |snapshot: &crate::doctor::Snapshot, set: &str| {
            let refused = examine(snapshot).refused;
            refused.iter().any(|refusal| refusal.set == set)
        };
        assert!(refuses(&snapshot, "linger.ms"));
        snapshot.brokers[0].quota_request_share = Some(0.01);
        let change = examine(&snapshot).recommendation.unwrap();
        assert!(change.set.starts_with("fewer, larger requests"), "{change:?}");
        assert!(!refuses(&snapshot, "linger.ms") && !refuses(&snapshot, "batch.size"));
        assert!(refuses(&snapshot, "max.in.flight.requests.per.connection"));
    }
}
