//! producer 7: is the link full?
//!
//! | test | what it takes |
//! |---|---|
//! | X_b ≥ 0.85 of what a link carries (F15: 0.92 of its bytes) | the bandwidth is known |
//! | bytes of requests arrive at the broker all of the time, without the pauses of a window (`arrival.rs`) | the bandwidth is not known |
//! | the round trip of its connection is 1.3 times the shortest and 1 ms while bytes flow, requests take at least as long, and the thread is idle | the bandwidth is not known, and the broker does not tell how requests arrive |
//! | a measured RTT and D leave most of L unexplained, by at least 5 ms, the client's thread is idle, and the bytes on the way are fewer than any window (`window.rs`) | the bandwidth is not known: the request's own bytes wait on the way |
//!
//! **Why pauses**: 10 MB/s over 4 ms and 1 MB/s over 40 ms let 40,000 bytes be on the way, as a
//! send buffer of that size would, with the same rate and the same L. Through the buffer a request
//! of 64 KiB comes in pieces with most of a round trip between them; through the link it comes in
//! one stream, and the next one right behind it.
//!
//! On a full link L grows with S, and one window shows it too. Measured: a 5 MB/s link of 2 ms,
//! L = 48.9 ms, D = 0.3.
//!
//! **The promise**: compression, where bytes are the limit; how far depends on how well the records
//! compress, which nothing measured so far says.

use crate::doctor::diagnosis::{Confidence, FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::Codec;
use crate::doctor::used::UsedNumbers;

use super::super::found::Found;
use super::super::words::known;
use super::arrival::{self, Arrival, Queue};
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Pipe, Reading, positive, reaches};
use super::{COMPRESSION, IN_FLIGHT, Rule, refusals, rule, window};
use crate::model::ceilings::{cut, next};
use crate::model::constants::{FULL, LINK_SHARE};
use crate::numbers::{bytes, number, percent};

pub(crate) const RULE: Rule = rule("producer 7", "Is the link full?", ask);

const WAIT_MS_MIN: f64 = 5.0;
const THREAD_IDLE: f64 = 0.7;
/// Records of which compression takes less than this share do not compress.
const COMPRESSES: f64 = 0.97;

fn ask(reading: &Reading<'_>) -> Found {
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let arrival = reading.hottest().and_then(|pipe| Arrival::of(reading, pipe));
    let queue = arrival::queue(reading);
    let numbers = [
        known("X_b", reading.bytes_per_second, "bytes/s"),
        known("link", link, "bytes/s"),
        known("arriving", arrival.map(|arrival| arrival.share), ""),
        known("pause", arrival.map(|arrival| arrival.pause_ms), "ms"),
        known("round trip under load", queue.map(|queue| queue.loaded_ms), "ms"),
    ];
    if reading.bound != Bound::Pipe {
        return Found::nothing(numbers, "no");
    }
    let sent = reading.bytes_per_second.unwrap_or(0.0);
    let waits = reading.hottest().and_then(|pipe| bytes_wait_ms(reading, pipe));
    let stream = arrival::full_link(reading);
    let text = match (link.filter(|_| is_full(reading)), stream, queue, waits) {
        (Some(link), ..) => format!(
            "The link is full: it carries {}/s of its {}/s.",
            bytes(sent),
            bytes(link)
        ),
        (None, Some(stream), ..) => streams(stream, sent),
        (None, None, Some(queue), _) => queues(queue, sent),
        (None, None, _, Some(ms)) => format!(
            "Each request's bytes wait {} ms on the way, longer than for the round trip and the broker together: the link seems full at {}/s.",
            number(ms),
            bytes(sent)
        ),
        _ => return Found::nothing(numbers, "no"),
    };
    let is_doubtful = !is_full(reading) && stream.is_none() && queue.is_none();
    let mut found = found(reading, numbers, text, is_doubtful);
    if let Some((_, confidence)) = found.verdict.as_mut().filter(|_| !is_full(reading)) {
        *confidence = (*confidence).min(Confidence::Medium);
    }
    found
}

fn streams(stream: Arrival, sent: f64) -> String {
    format!(
        "The link is full: bytes of requests arrive {} of the time, without a pause, and that is {}/s.",
        percent(stream.share),
        bytes(sent)
    )
}

fn queues(queue: Queue, sent: f64) -> String {
    format!(
        "The link is full: what is sent queues on the way for {} ms, and that is {}/s.",
        number(queue.loaded_ms - queue.round_trip_ms),
        bytes(sent)
    )
}

/// Of a client that pushes nothing.
pub(crate) fn seen_by_broker(reading: &Reading<'_>, numbers: UsedNumbers, stream: Arrival) -> Found {
    let sent = reading.bytes_per_second.unwrap_or(0.0);
    found(reading, numbers, streams(stream, sent), true)
}

fn found(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>, text: String, is_doubtful: bool) -> Found {
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
fn bytes_wait_ms(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<f64> {
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
    // What is not compressed has exactly the rate 1; what does not compress has headers besides.
    codec.map_or((reading.compression_rate - 1.0).abs() > 1e-6, |codec| {
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
    use super::*;
    use crate::doctor::Snapshot;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Library};

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

    /// Five requests on a link that a window would be as wide as: nothing says how wide it is.
    fn streaming(rate: f64, round_trip_ms: f64, request: f64) -> Snapshot {
        let requests = rate / request;
        let row = Row {
            records: rate / 1_000.0,
            requests,
            request_bytes: request,
            batch: request - 80.0,
            latency: 5_000.0 / requests,
            queue: Some(4_000.0),
            buffer_wait: Some(0.6),
            thread: Some((0.97, 0.01)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(requests),
            total_micros: Some(400.0),
            round_trip_ms: Some(round_trip_ms),
            arriving_share: Some(0.97),
            arrival_pause_ms: Some(0.05 * round_trip_ms),
            network_idle: Some(0.8),
            ..BrokerSide::default()
        }];
        snapshot
    }

    const LINKS: [(f64, f64, f64); 3] = [
        (10e6, 4.05, 65_000.0),
        (1e6, 40.1, 65_000.0),
        (10e6, 4.05, 16_300.0),
    ];

    #[test]
    fn a_link_whose_bytes_never_pause_is_full_however_much_is_on_the_way() {
        for (rate, round_trip_ms, request) in LINKS {
            let snapshot = streaming(rate, round_trip_ms, request);
            let diagnosis = examine(&snapshot);
            assert_eq!(diagnosis.verdict, Verdict::NetworkBandwidth, "{diagnosis:#?}");
            assert_eq!(diagnosis.confidence, Confidence::Medium);
            let change = diagnosis.recommendation.unwrap();
            assert_eq!(change.set, "compression.type=zstd");
        }
    }

    #[test]
    fn a_full_link_is_found_for_clients_that_send_neither_queue_nor_thread() {
        for (rate, round_trip_ms, request) in LINKS {
            for library in [Library::Librdkafka, Library::FranzGo] {
                let mut snapshot = streaming(rate, round_trip_ms, request);
                snapshot.client.library = library;
                snapshot.client.software_version = Some("2.16.0".to_owned());
                let own = snapshot.producer.as_mut().unwrap();
                (own.queue_ms, own.buffer_wait, own.io_wait, own.io) = (None, None, None, None);
                let diagnosis = examine(&snapshot);
                assert_eq!(diagnosis.verdict, Verdict::NetworkBandwidth, "{diagnosis:#?}");
            }
        }
    }

    #[test]
    fn the_same_rate_with_a_pause_in_each_round_trip_is_a_window() {
        for (rate, round_trip_ms, request) in [LINKS[0], LINKS[1]] {
            let mut snapshot = streaming(rate, round_trip_ms, request);
            snapshot.brokers[0].arrival_pause_ms = Some(0.7 * round_trip_ms);
            let diagnosis = examine(&snapshot);
            assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        }
    }

    /// The same beside Apache Kafka, which tells nothing of its requests: only the kernel of its
    /// machine speaks.
    fn queueing(rate: f64, [round_trip_ms, loaded_ms]: [f64; 2], request: f64) -> Snapshot {
        let mut snapshot = streaming(rate, round_trip_ms, request);
        snapshot.network.round_trip_ms = Some(round_trip_ms);
        snapshot.brokers = vec![BrokerSide {
            round_trip_ms: Some(round_trip_ms),
            loaded_round_trip_ms: Some(loaded_ms),
            ..BrokerSide::default()
        }];
        snapshot
    }

    #[test]
    fn compression_is_no_advice_where_what_is_compressed_stays_as_large() {
        let mut snapshot = queueing(1e6, [4.05, 15.0], 65_000.0);
        let change = |snapshot: &Snapshot| examine(snapshot).recommendation.unwrap().set;
        snapshot.producer.as_mut().unwrap().compression_rate = Some(1.0);
        assert_eq!(change(&snapshot), "compression.type=zstd");
        // A codec's own headers.
        snapshot.producer.as_mut().unwrap().compression_rate = Some(1.0003);
        assert!(change(&snapshot).starts_with("a faster link"));
        let refused = examine(&snapshot).refused;
        assert!(refused.iter().any(|refusal| refusal.set == "compression.type"));
    }

    #[test]
    fn a_queue_on_the_way_to_a_broker_that_tells_nothing_is_a_full_link() {
        for (rate, trips, request) in [
            (1e6, [4.05, 15.0], 65_000.0),
            (10e6, [4.05, 8.1], 262_000.0),
            (1e6, [40.1, 75.0], 131_000.0),
        ] {
            let snapshot = queueing(rate, trips, request);
            let diagnosis = examine(&snapshot);
            assert_eq!(diagnosis.verdict, Verdict::NetworkBandwidth, "{diagnosis:#?}");
            assert_eq!(diagnosis.recommendation.unwrap().set, "compression.type=zstd");
            // Java starts no request before the one before is written: few are under way.
            let mut unwritten = snapshot.clone();
            let own = unwritten.producer.as_mut().unwrap();
            (own.request_ms, own.nodes[0].request_ms) = (Some(2.0 * trips[1]), Some(2.0 * trips[1]));
            assert_eq!(
                examine(&unwritten).verdict,
                Verdict::NetworkBandwidth,
                "{unwritten:#?}"
            );
        }
    }

    /// As it was measured: a shaper lets a link's bytes through in bursts, with pauses that look
    /// like those of a window, and the doctor promised twelve times the rate of the link.
    #[test]
    fn a_full_link_that_passes_bytes_in_bursts_is_known_by_its_queue() {
        let bursts = |loaded_ms: Option<f64>, share: f64| {
            let mut snapshot = streaming(8.9e6, 4.39, 261_000.0);
            let own = snapshot.producer.as_mut().unwrap();
            (own.request_ms, own.nodes[0].request_ms) = (Some(56.4), Some(56.4));
            let side = &mut snapshot.brokers[0];
            (side.arrival_pause_ms, side.loaded_round_trip_ms) = (Some(2.22), loaded_ms);
            side.arriving_share = Some(share);
            examine(&snapshot).verdict
        };
        assert_eq!(bursts(Some(11.0), 0.986), Verdict::NetworkBandwidth);
        assert_eq!(bursts(Some(5.0), 0.986), Verdict::NetworkWindow, "no queue");
        assert_eq!(
            bursts(None, 0.986),
            Verdict::NetworkWindow,
            "nothing tells of one"
        );
        assert_ne!(bursts(Some(11.0), 0.5), Verdict::NetworkBandwidth);
    }

    #[test]
    fn a_round_trip_that_does_not_grow_or_that_no_request_feels_is_no_full_link() {
        let full = queueing(1e6, [40.1, 75.0], 131_000.0);
        let changes: [fn(&mut Snapshot); 4] = [
            // A window leaves the link idle.
            |other| other.brokers[0].loaded_round_trip_ms = Some(42.0),
            // A proxy, or the same machine.
            |other| {
                other.brokers[0].round_trip_ms = Some(0.05);
                other.network.round_trip_ms = Some(0.05);
            },
            // Answers that are acknowledged late: requests are faster than the queue would be.
            |other| {
                let own = other.producer.as_mut().unwrap();
                (own.request_ms, own.nodes[0].request_ms) = (Some(60.0), Some(60.0));
            },
            // The client has no time to send.
            |other| other.producer.as_mut().unwrap().io_wait = Some(0.05),
        ];
        for change in changes {
            let mut other = full.clone();
            change(&mut other);
            let diagnosis = examine(&other);
            assert_ne!(diagnosis.verdict, Verdict::NetworkBandwidth, "{diagnosis:#?}");
        }
    }

    #[test]
    fn a_link_that_is_used_half_of_the_time_is_not_full() {
        for library in [Library::Java, Library::Librdkafka, Library::FranzGo] {
            let mut snapshot = streaming(5e6, 4.05, 65_000.0);
            snapshot.client.library = library;
            snapshot.client.software_version = Some("4.3.0".to_owned());
            snapshot.brokers[0].arriving_share = Some(0.5);
            let own = snapshot.producer.as_mut().unwrap();
            (own.queue_ms, own.buffer_wait) = (Some(5.2), Some(0.0));
            own.request_ms = Some(11.0);
            own.nodes[0].request_ms = Some(11.0);
            let verdict = examine(&snapshot).verdict;
            assert!(
                matches!(verdict, Verdict::KeepsUp | Verdict::Application),
                "{library:?}: {verdict:?}"
            );
        }
    }

    /// A broker without time reads late, so that nothing is known of the link.
    #[test]
    fn what_a_busy_broker_saw_says_nothing_of_the_link() {
        let (rate, round_trip_ms, request) = LINKS[0];
        let mut snapshot = streaming(rate, round_trip_ms, request);
        snapshot.brokers[0].network_idle = Some(0.02);
        assert_ne!(examine(&snapshot).verdict, Verdict::NetworkBandwidth);
    }

    #[test]
    fn a_client_that_pushes_nothing_fills_its_link_too() {
        let (rate, round_trip_ms, request) = LINKS[0];
        let mut snapshot = streaming(rate, round_trip_ms, request);
        snapshot.producer = None;
        snapshot.telemetry.pushes = Some(0);
        let side = &mut snapshot.brokers[0];
        (side.request_bytes, side.bytes_per_second) = (Some(request), Some(rate));
        side.records_per_second = Some(10_000.0);
        assert_eq!(examine(&snapshot).verdict, Verdict::NetworkBandwidth);
    }
}
