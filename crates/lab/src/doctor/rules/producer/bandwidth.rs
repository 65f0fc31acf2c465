//! producer 7: is the link full?
//!
//! | test | what it takes |
//! |---|---|
//! | X_b ≥ 0.85 of what a link carries (F15: 0.92 of its bytes) | the bandwidth is known |
//! | a measured RTT and D leave most of L unexplained, by at least 5 ms, the client's thread is idle, and the bytes on the way are fewer than any window (`window.rs`) | the bandwidth is not known: the request's own bytes wait on the way |
//!
//! On a full link L grows with S, and one window shows it too. Measured: a 5 MB/s link of 2 ms,
//! L = 48.9 ms, D = 0.3.
//!
//! **The promise**: compression, where bytes are the limit; how far depends on how well the records
//! compress, which nothing measured so far says.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::Codec;

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Pipe, Reading, positive, reaches};
use super::{COMPRESSION, IN_FLIGHT, Rule, refusals, rule, window};
use crate::model::ceilings::{cut, next};
use crate::model::constants::{FULL, LINK_SHARE};
use crate::numbers::{bytes, number};

pub(crate) const RULE: Rule = rule("producer 7", "Is the link full?", ask);

const WAIT_MS_MIN: f64 = 5.0;
const THREAD_IDLE: f64 = 0.7;
/// Records of which compression takes less than this share do not compress.
const COMPRESSES: f64 = 0.97;

fn ask(reading: &Reading<'_>) -> Found {
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let numbers = [
        known("X_b", reading.bytes_per_second, "bytes/s"),
        known("link", link, "bytes/s"),
    ];
    if reading.bound != Bound::Pipe {
        return Found::nothing(numbers, "no");
    }
    let sent = reading.bytes_per_second.unwrap_or(0.0);
    let waits = reading.hottest().and_then(|pipe| bytes_wait_ms(reading, pipe));
    let text = match (link.filter(|_| is_full(reading)), waits) {
        (Some(link), _) => format!(
            "The link is full: it carries {}/s of its {}/s.",
            bytes(sent),
            bytes(link)
        ),
        (None, Some(ms)) => format!(
            "Each request's bytes wait {} ms on the way, longer than for the round trip and the broker together: the link seems full at {}/s.",
            number(ms),
            bytes(sent)
        ),
        _ => return Found::nothing(numbers, "no"),
    };
    let is_doubtful = !is_full(reading);
    let mut found = Found::verdict(
        numbers,
        Verdict::NetworkBandwidth,
        confidence(reading, Verdict::NetworkBandwidth, is_doubtful),
        text.clone(),
    )
    .finding(FindingId::N6, text)
    .recommend(recommend(reading))
    .refuse(
        IN_FLIGHT,
        "the link is full: more requests at once only wait longer",
    )
    .refuse(
        super::BATCH,
        "the link carries no more bytes, however they are cut",
    )
    .refusals(refusals::of_pipe(reading));
    if is_compressed(reading) && reading.compression_rate >= COMPRESSES {
        found = found.refuse(COMPRESSION, "these records do not compress");
    }
    if is_doubtful {
        found = found.missing("the link's bandwidth; the bytes sent now would explain a link of that size");
    }
    found
}

/// Whether a link of known bandwidth is full (F15).
pub(crate) fn is_full(reading: &Reading<'_>) -> bool {
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    link.zip(reading.bytes_per_second)
        .is_some_and(|(link, sent)| reaches(sent / (LINK_SHARE * link), FULL))
}

/// How long a request's own bytes wait, where that is most of L and nothing else explains it.
fn bytes_wait_ms(reading: &Reading<'_>, pipe: &Pipe) -> Option<f64> {
    let network = &reading.snapshot.network;
    if network.bandwidth_bytes_per_second.is_some() || network.window_bytes.is_some() {
        return None;
    }
    let request_ms = pipe.request_ms?;
    // TCP's round trip may end at a proxy: one near the broker takes no millisecond.
    let by_tcp = || {
        let is_large = pipe.request_bytes? >= window::REQUEST_MIN;
        reading.tcp_ms(pipe).filter(|ms| is_large && *ms >= 1.0)
    };
    let whole = reading.round_trip(pipe).filter(|trip| trip.is_end_to_end);
    let trip_ms = whole.map(|trip| trip.ms).or_else(by_tcp)?;
    let left_ms = request_ms - trip_ms - pipe.broker.as_ref()?.ms_at_most;
    let is_idle = reading.io_wait? >= THREAD_IDLE;
    let is_window = window::of(reading, pipe).is_some() || window::several_trips(reading, pipe).is_some();
    (left_ms >= WAIT_MS_MIN && reaches(left_ms / request_ms, 0.5) && is_idle && !is_window).then_some(left_ms)
}

fn is_compressed(reading: &Reading<'_>) -> bool {
    let codec = reading.snapshot.settings.compression.map(|setting| setting.value);
    codec.map_or(reading.compression_rate < COMPRESSES, |codec| {
        codec != Codec::None
    })
}

fn recommend(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker]);
    if is_compressed(reading) {
        let high = cut(&ceilings, 2.0 * now);
        return Some(Recommendation {
            set: "a faster link, or fewer bytes in each record".to_owned(),
            why: format!(
                "the link is full of bytes that are compressed already (c = {})",
                number(reading.compression_rate)
            ),
            promise: promise::with(
                promise::records(now, 0.9 * high, high),
                "with twice the link's bandwidth",
            ),
            next_ceiling: next(&ceilings),
            cost: "hardware".to_owned(),
        });
    }
    let mut promise = promise::records(now, now, cut(&ceilings, 2.0 * now));
    promise.unknown = Some("how well these records compress; the rate grows by 1 / c".to_owned());
    Some(Recommendation {
        set: format!("{COMPRESSION}=zstd"),
        why: "bytes are the limit, and they are not compressed: X_p = link × 0.92 / c (N6)".to_owned(),
        promise,
        next_ceiling: next(&ceilings),
        cost: "processor time in send(), and at the broker for validation".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::{Confidence, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::BrokerSide;

    /// A link of 1 MB/s and 4 ms, as pushed: nothing says how wide the link is.
    #[test]
    fn bytes_that_wait_longer_than_any_window_explains_are_a_full_link() {
        let row = Row {
            records: 950.0,
            requests: 14.7,
            request_bytes: 65_000.0,
            batch: 64_900.0,
            latency: 330.0,
            queue: Some(4_000.0),
            buffer_wait: Some(0.6),
            thread: Some((0.97, 0.01)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(14.7),
            total_micros: Some(900.0),
            round_trip_ms: Some(4.1),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkBandwidth, "{diagnosis:#?}");
        assert_eq!(diagnosis.confidence, Confidence::Low);
        assert_eq!(diagnosis.recommendation.unwrap().set, "compression.type=zstd");
    }
}
