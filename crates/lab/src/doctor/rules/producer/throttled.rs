//! S2: is the broker slowing the client on purpose?
//!
//! **Asks** for a quota before any queue is explained, because a throttled client queues like a
//! slow one. **Numbers**: the throttle time that the client was given (`th`), and the broker's own
//! figure for this client; a figure for all of a broker's clients does not count.
//!
//! **Threshold**: a mean throttle of 1 ms in the window, or any that the broker reports. **Which
//! quota**: bytes, where bytes per second are at the byte quota or no request quota is known;
//! otherwise the share of request time, which fewer and larger requests lower first.
//!
//! **The case**: 1 MB/s allowed, 5 MB/s wanted: 21 ms of throttle on average, and a queue of 8 s
//! that no setting would shorten.

use crate::doctor::diagnosis::{Finding, FindingId, Step};

use super::super::words::{known, step};
use super::reading::{Reading, positive};
use crate::numbers::{bytes, number, percent};

const TOLD_MS: f64 = 1.0;

#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    pub ms: f64,
    /// The byte quota, where it is known.
    pub bytes_per_second: Option<f64>,
    pub is_of_request_time: bool,
    pub finding: Finding,
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Option<Throttle>, Step) {
    let own = || {
        reading
            .snapshot
            .brokers
            .iter()
            .filter(|side| !side.is_of_all_clients)
    };
    let by_broker = own()
        .filter_map(|side| positive(side.throttle_ms))
        .fold(0.0, f64::max);
    let told = reading.throttle_ms;
    let is_throttled = told.is_some_and(|told| told >= TOLD_MS) || by_broker > 0.0;
    let numbers = [
        known("th", told, "ms"),
        known("throttle of the broker", Some(by_broker), "ms"),
    ];
    let throttle = is_throttled.then(|| {
        let byte_quota = own().find_map(|side| positive(side.quota_bytes_per_second));
        let time_quota = own().find_map(|side| positive(side.quota_request_share));
        let is_at_byte_quota =
            byte_quota.is_none_or(|quota| reading.bytes_per_second.unwrap_or(0.0) >= 0.8 * quota);
        let is_of_request_time = time_quota.is_some() && !(byte_quota.is_some() && is_at_byte_quota);
        let ms = told.unwrap_or(0.0).max(by_broker);
        let limit = match (is_of_request_time, byte_quota, time_quota) {
            (true, _, Some(share)) => {
                format!("its share of request time is at the quota of {}", percent(share))
            }
            (_, Some(quota), _) => format!("the byte quota is {}/s", bytes(quota)),
            _ => "the byte quota, as far as the client can see".to_owned(),
        };
        let rate = reading
            .bytes_per_second
            .map_or_else(String::new, |rate| format!(" at {}/s", bytes(rate)));
        Throttle {
            ms,
            bytes_per_second: byte_quota,
            is_of_request_time,
            finding: Finding {
                id: FindingId::Q1,
                text: format!(
                    "brokers hold this client back by {} ms on average{rate}: {limit}",
                    number(ms)
                ),
                is_contributing: false,
            },
        }
    });
    let answer = if throttle.is_some() { "yes: QUOTA" } else { "no" };
    let step = step(
        "S2",
        "Is the broker slowing the client on purpose?",
        &numbers,
        answer,
    );
    (throttle, step)
}
