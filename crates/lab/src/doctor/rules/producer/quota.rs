//! producer 1: does the broker slow it down on purpose?
//!
//! **Asks** for a quota before any queue is explained, because a throttled client queues like a
//! slow one. **Numbers**: the throttle time that the client was given (`th`), and the broker's own
//! figure for this client; a figure for all of a broker's clients does not count.
//!
//! **Threshold**: a mean throttle of 1 ms in the window, or any that the broker reports. **Which
//! quota**: bytes, where bytes per second are at the byte quota or no request quota is known;
//! otherwise the share of request time, which fewer and larger requests lower first.
//!
//! **The promise**: the rate grows with the byte quota; how far depends on what the application
//! offers, which no client says.
//!
//! **The case**: 1 MB/s allowed, 5 MB/s wanted: 21 ms of throttle on average, and a queue of 8 s
//! that no setting would shorten.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Reading, positive};
use super::{Rule, refusals, rule};
use crate::model::ceilings::{cut, next};
use crate::numbers::{bytes, number, percent};

pub(crate) const RULE: Rule = rule("producer 1", "Does the broker slow it down on purpose?", ask);

const TOLD_MS: f64 = 1.0;

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
    let numbers = [
        known("th", told, "ms"),
        known("throttle of the broker", Some(by_broker), "ms"),
    ];
    let is_throttled = told.is_some_and(|told| told >= TOLD_MS) || by_broker > 0.0;
    if !is_throttled || reading.snapshot.telemetry.restarted {
        return Found::nothing(numbers, "no");
    }
    let bytes_per_second = own.iter().find_map(|side| positive(side.quota_bytes_per_second));
    let share = own.iter().find_map(|side| positive(side.quota_request_share));
    let is_at_byte_quota =
        bytes_per_second.is_none_or(|quota| reading.bytes_per_second.unwrap_or(0.0) >= 0.8 * quota);
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
    let text = format!(
        "The broker holds this client back on purpose, by {} ms a request: {limit}.",
        number(throttle.ms)
    );
    Found::verdict(
        numbers,
        Verdict::Quota,
        confidence(reading, Verdict::Quota, false),
        text.clone(),
    )
    .finding(FindingId::Q1, text)
    .recommend(Some(recommend(reading, &throttle)))
    .refusals(refusals::of_memory(reading))
    .refuse("linger.ms", "it waits for the quota, not for records")
    .refuse(
        "max.in.flight.requests.per.connection",
        "more requests at once reach the same quota",
    )
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
    if throttle.is_of_request_time {
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
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::BrokerSide;

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
}
