//! consumer 8: is the receive window too small for the round trip?
//!
//! TCP lets a sender have no more under way than the receiver's window, so a connection carries at
//! most one window per round trip, however large the fetches are. One answer then takes many round
//! trips, nearly all of its time passes on sending, and the broker's own work is short. Java asks
//! for receive.buffer.bytes of 64 KiB by default: 1.6 MB/s over 40 ms. More partitions or larger
//! fetches change nothing. A full link looks alike in the client's numbers; it is told apart by the
//! bytes per round trip, which with a window are the window.
//!
//! - Numbers: bytes of a fetch, its latency without the broker's waits and work, the round trip by
//!   TCP_INFO, at rest and while answers are sent (a queue on the way is a full link, consumer 7),
//!   receive.buffer.bytes.
//! - Thresholds: an answer takes at least 3 round trips; where the buffer is not known, less than 1
//!   MiB passes in each; else the bytes per round trip are 0.5 to 1.35
//!   of receive.buffer.bytes (the kernel keeps part of the buffer for its own), or 1 to 2 of
//!   socket.send.buffer.bytes where brokers set that (the kernel doubles it; Apache Kafka's default
//!   is 100 KiB); no cold reads, no throttle, the link not known to be full; polls wait for fetches
//!   and there is a lag.
//! - Says: "The connection carries 52 KiB per round trip of 40 ms: its receive window is too small
//!   for this distance."
//! - Source: bandwidth-delay product (F12, F13); measured over 40 ms with buffers of 64 KiB and 2
//!   MiB.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::super::super::snapshot::Library;
use super::super::super::snapshot::{Origin, Setting};
use super::super::broker::parts::{Part, Parts};
use super::super::words;
use super::cold_read::are_cold_reads_many;
use super::fetch_wait::is_held_back;
use super::fetches;
use super::found::{Found, known};
use super::quota;
use super::reading::{Reading, is_known, sane};
use crate::model::pipe::{RECEIVE_WINDOW_SHARE, SEND_WINDOW_SHARE};
use crate::numbers::{bytes, duration, number, plain};

/// An answer that takes fewer round trips than this is not held up by a window.
const ROUND_TRIPS_MIN: f64 = 3.0;

/// Java's default.
const JAVA_BUFFER_BYTES: f64 = 65_536.0;

/// Where the buffer is not set the kernel lets the window grow to several MB; connections that
/// carry less than this per round trip are not limited by such a window.
const GROWN_WINDOW_BYTES: f64 = 1_048_576.0;

/// Answers as large as this that take as long as this are slow on the way, at less than 4 MB/s.
const LARGE_ANSWER_BYTES: f64 = 262_144.0;
const SLOW_ANSWER_MS: f64 = 300.0;
const FAST_BYTES_PER_MS: f64 = 4_000.0;

/// A round trip under load that is longer than this has met a queue.
const QUEUE_RATIO: f64 = 1.3;
const QUEUE_MS: f64 = 1.0;

const BUFFER_RANGE: (f64, f64) = (1_048_576.0, 16_777_216.0);

pub fn receive_window(reading: &Reading<'_>) -> Found {
    let flow = Flow::of(reading);
    let buffer = buffer(reading);
    let numbers = [
        known("round trip", reading.round_trip_ms, "ms"),
        known("one answer's way", flow.map(|flow| flow.transfer_ms), "ms"),
        known("per round trip", flow.map(|flow| flow.per_round_trip), "B"),
        known("receive.buffer.bytes", buffer.map(|buffer| buffer.0), "B"),
    ]
    .join(", ");
    let Some(waits) = reading.waits_for_fetches().filter(|_| reading.is_behind()) else {
        return Found::nothing(numbers, "no: there is no lag that it could have caused");
    };
    if let Some(found) = on_an_unknown_way(reading, &numbers) {
        return found;
    }
    let Some(flow) = flow.filter(|_| is_free_of_others(reading)) else {
        return Found::nothing(numbers, "no sign of it");
    };
    if queue(reading).is_some() {
        return Found::nothing(numbers, "no: what is sent queues on the way, so the link is full");
    }
    let is_its_own = buffer.is_some_and(|buffer| flow.is_pinned_at(buffer.0));
    if let Some(sent) = full_at_brokers(reading, flow).filter(|_| !is_its_own) {
        return matched_at_brokers(reading, numbers, flow, sent);
    }
    let is_small = flow.per_round_trip < GROWN_WINDOW_BYTES;
    match buffer {
        Some(buffer) if flow.is_pinned_at(buffer.0) => {
            let confidence = if !reading.is_surely_not_held() {
                Confidence::Low
            } else if is_known(buffer) {
                waits
            } else {
                waits.min(Confidence::Medium)
            };
            matched(reading, numbers, confidence, flow, buffer)
        }
        Some(buffer) if is_known(buffer) => {
            Found::nothing(numbers, "no: what a round trip carries is not the window")
        }
        None if reading.snapshot.settings.receive_buffer_bytes.is_some() => {
            Found::nothing(numbers, "no: the kernel chooses the window")
        }
        // A full link with a queue makes the round trip longer, until it carries a window that has
        // grown; so few bytes in each are a window that cannot.
        _ if is_small && reading.is_surely_not_held() => {
            let inferred = (flow.per_round_trip, "inferred");
            matched(reading, numbers, Confidence::Low, flow, inferred)
        }
        _ => Found::nothing(numbers, "no: the window has grown"),
    }
}

/// Where no round trip is known: large answers that take long are slow on the way, and whether a
/// window or the link holds them up cannot be told.
fn on_an_unknown_way(reading: &Reading<'_>, numbers: &str) -> Option<Found> {
    let (fetch_ms, size) = (reading.fetch_ms?, reading.fetch_bytes?);
    let way_ms = fetch_ms - at_broker_ms(reading);
    let is_slow = size >= LARGE_ANSWER_BYTES && way_ms >= SLOW_ANSWER_MS && size / way_ms < FAST_BYTES_PER_MS;
    if reading.round_trip_ms.is_some() || !is_slow || !is_free_of_others(reading) || is_held_back(reading) {
        return None;
    }
    let text = format!(
        "Its fetches bring {} but spend {} on the way: its receive window, or the link, carries no more.",
        bytes(size),
        duration(way_ms / 1_000.0)
    );
    let found = Found::verdict(
        numbers.to_owned(),
        Verdict::NetworkWindow,
        Confidence::Low,
        text.clone(),
    )
    .finding(FindingId::N5, text)
    .missing("the round trip to the broker and receive.buffer.bytes: the window carries at most that many bytes in each round trip")
    .missing("the link's bandwidth");
    Some(found)
}

/// Whether the time of an answer is many round trips, so that a larger answer takes more of them.
pub fn is_suspected(reading: &Reading<'_>) -> bool {
    let is_small = |flow: Flow| flow.per_round_trip < GROWN_WINDOW_BYTES;
    Flow::of(reading).is_some_and(is_small) && is_free_of_others(reading)
}

/// What the window lets through.
pub struct Ceiling {
    /// In records per second: of a kernel that lends nothing, and of one that lends what it can.
    pub rates: (f64, f64),
    /// The client may have set another size than its library does.
    pub is_guessed: bool,
    pub words: String,
}

/// The rate that the receive buffer allows, where the client has set one or its library does.
pub fn ceiling(reading: &Reading<'_>) -> Option<Ceiling> {
    let buffer = buffer(reading)?;
    let round_trip_ms = reading.round_trip_ms?;
    let rate = 1_000.0 * buffer.0 / round_trip_ms / reading.record_bytes()?;
    let words = format!(
        "the receive window: {} records/s with receive.buffer.bytes of {}{}",
        number(rate),
        bytes(buffer.0),
        if is_known(buffer) { "" } else { ", Java's default" }
    );
    let rates = (rate, RECEIVE_WINDOW_SHARE.1 * rate);
    // Who reads more than the default allows has set another size.
    let is_likely = is_known(buffer) || reading.consumed.is_none_or(|now| now <= rates.1);
    (is_likely && rate.is_finite() && rate > 0.0).then_some(Ceiling {
        rates,
        is_guessed: !is_known(buffer),
        words,
    })
}

/// A queue on the way to the client.
#[derive(Clone, Copy)]
pub struct Queue {
    pub round_trip_ms: f64,
    pub loaded_ms: f64,
}

/// The queue that large answers meet on the way, by the broker's TCP: a window that is too small
/// leaves the link idle, so it makes none.
pub fn queue(reading: &Reading<'_>) -> Option<Queue> {
    Flow::of(reading).filter(|_| is_free_of_others(reading))?;
    let queues = reading.sides().filter_map(|side| {
        let queue = Queue {
            round_trip_ms: sane(side.round_trip_ms)?,
            loaded_ms: sane(side.loaded_round_trip_ms)?,
        };
        (queue.loaded_ms >= QUEUE_RATIO * queue.round_trip_ms + QUEUE_MS).then_some(queue)
    });
    queues.max_by(|a, b| a.loaded_ms.total_cmp(&b.loaded_ms))
}

/// The way of one answer.
#[derive(Clone, Copy)]
struct Flow {
    round_trip_ms: f64,
    /// The time of a fetch without the broker's waits and work.
    transfer_ms: f64,
    per_round_trip: f64,
}

impl Flow {
    /// Returns `None` where an answer takes few round trips.
    fn of(reading: &Reading<'_>) -> Option<Flow> {
        let round_trip_ms = reading.round_trip_ms?;
        let (fetch_ms, size) = (reading.fetch_ms?, reading.fetch_bytes.filter(|size| *size > 0.0)?);
        let transfer_ms = fetch_ms - at_broker_ms(reading);
        let per_round_trip = size * round_trip_ms / transfer_ms;
        let is_long = transfer_ms >= ROUND_TRIPS_MIN * round_trip_ms && transfer_ms >= 0.5 * fetch_ms;
        (is_long && per_round_trip.is_finite() && per_round_trip > 0.0).then_some(Flow {
            round_trip_ms,
            transfer_ms,
            per_round_trip,
        })
    }

    fn line(&self, reading: &Reading<'_>) -> Evidence {
        Evidence::new(
            "F13",
            "window",
            "size * RTT / way",
            self.per_round_trip,
            "B per round trip",
        )
        .with(
            "size",
            reading.fetch_bytes.unwrap_or(0.0),
            "B",
            reading.origin_of_fetch_size(),
        )
        .measured("RTT", self.round_trip_ms, "ms")
        .measured("way", self.transfer_ms, "ms")
    }

    fn is_pinned_at(&self, buffer_bytes: f64) -> bool {
        let share = self.per_round_trip / buffer_bytes;
        share >= RECEIVE_WINDOW_SHARE.0 && share <= RECEIVE_WINDOW_SHARE.1
    }
}

/// The brokers' send buffer, where a round trip carries as much as that lets through.
fn full_at_brokers(reading: &Reading<'_>, flow: Flow) -> Option<f64> {
    let buffer = fetches::brokers_window(reading)?.buffer_bytes;
    let share = flow.per_round_trip / buffer;
    (share >= SEND_WINDOW_SHARE.0 && share <= SEND_WINDOW_SHARE.1).then_some(buffer)
}

/// The part of a fetch before its answer is sent.
fn at_broker_ms(reading: &Reading<'_>) -> f64 {
    let parts = reading.sides().filter_map(Parts::of);
    parts
        .map(|parts| parts.ms(Part::Queue) + parts.ms(Part::Local) + parts.ms(Part::Remote))
        .reduce(f64::max)
        .unwrap_or(0.0)
}

/// No throttle, no cold reads, no link that is known to be full.
fn is_free_of_others(reading: &Reading<'_>) -> bool {
    let is_cold = reading.sides().any(|side| are_cold_reads_many(reading, side));
    !is_cold && !quota::delays(reading) && !fetches::is_link_full(reading)
}

/// The receive buffer that the client asks for; `None` where the kernel chooses it.
fn buffer(reading: &Reading<'_>) -> Option<(f64, &'static str)> {
    let stated: Option<Setting<f64>> = reading.snapshot.settings.receive_buffer_bytes;
    match stated {
        Some(setting) => {
            let value = sane(Some(setting.value)).filter(|value| *value > 0.0)?;
            Some((value, words::origin(setting.origin)))
        }
        None if reading.snapshot.client.library == Library::Java => Some((JAVA_BUFFER_BYTES, "default")),
        None => None,
    }
}

fn matched(
    reading: &Reading<'_>,
    numbers: String,
    confidence: Confidence,
    flow: Flow,
    buffer: (f64, &'static str),
) -> Found {
    let summary = format!(
        "The connection carries {} per round trip of {} ms: its receive window is too small for this distance.",
        bytes(flow.per_round_trip),
        number(flow.round_trip_ms)
    );
    let line = flow
        .line(reading)
        .with("receive.buffer.bytes", buffer.0, "B", buffer.1);
    let found = Found::verdict(numbers, Verdict::NetworkWindow, confidence, summary.clone())
        .finding(FindingId::N5, summary)
        .evidence([line])
        .recommend(Some(wider(reading, flow, buffer)));
    let found = with_what_would_not_help(reading, found);
    match buffer.1 {
        "inferred" => found.missing(
            "receive.buffer.bytes of this client, and the link's bandwidth: a full link that drops what it cannot queue looks alike",
        ),
        "default" => found.missing(
            "receive.buffer.bytes of this client: Java's default of 64 KiB fits what a round trip carries",
        ),
        _ => found,
    }
}

/// The same window at the brokers' end.
fn matched_at_brokers(reading: &Reading<'_>, numbers: String, flow: Flow, buffer: f64) -> Found {
    let summary = format!(
        "The connection carries {} per round trip of {} ms: the brokers' send buffer of {} lets no more be on the way.",
        bytes(flow.per_round_trip),
        number(flow.round_trip_ms),
        bytes(buffer)
    );
    let confidence = match reading.is_surely_not_held() {
        true => Confidence::Medium,
        false => Confidence::Low,
    };
    let told = words::origin(Origin::Stated);
    let line = flow
        .line(reading)
        .with("socket.send.buffer.bytes", buffer, "B", told);
    let (wanted, most) = widened(reading, flow, buffer);
    let change = Recommendation {
        set: format!("socket.send.buffer.bytes={} on the brokers", plain(wanted)),
        why: String::from(
            "a connection carries one window per round trip, and the sender's buffer bounds it, too",
        ),
        promise: fetches::promised_with_other_brokers(reading, (0.7 * most, most), None),
        next_ceiling: String::from("the client's receive.buffer.bytes, then the link"),
        cost: String::from(
            "memory of the kernel for each connection; net.core.wmem_max must allow it; brokers read it when they start, and -1 \
             leaves it to the kernel",
        ),
    };
    let found = Found::verdict(numbers, Verdict::NetworkWindow, confidence, summary.clone())
        .finding(FindingId::N5, summary)
        .evidence([line])
        .recommend(Some(change))
        .refuse(
            "receive.buffer.bytes",
            "the brokers' send buffer is full before it",
        );
    with_what_would_not_help(reading, found)
}

fn with_what_would_not_help(reading: &Reading<'_>, found: Found) -> Found {
    let takes = "an answer takes several round trips already; a larger one takes more in proportion";
    let found = found
        .evidence(fetches::ceiling(reading))
        .refuse("max.partition.fetch.bytes", takes)
        .refuse("fetch.max.bytes", takes);
    if !reading.is_surely_not_held() {
        return found;
    }
    found.refuse(
        "fetch.min.bytes",
        "fetches do not wait for records: more is unread than they bring",
    )
}

/// A buffer in place of one of `buffer_bytes`, and the rate with it.
fn widened(reading: &Reading<'_>, flow: Flow, buffer_bytes: f64) -> (f64, f64) {
    let now = reading.consumed.unwrap_or(0.0);
    let needed = reading
        .produced
        .filter(|_| now > 0.0)
        .map_or(4.0, |produced| (4.0 * produced / now).max(4.0));
    let wanted = fetches::power_of_two(needed * flow.per_round_trip, BUFFER_RANGE);
    let wanted = wanted.max(2.0 * buffer_bytes);
    let share = flow.per_round_trip / buffer_bytes;
    let size = reading.fetch_bytes.unwrap_or(0.0);
    // At least one round trip for the request and the first byte, then a window in each.
    let way_ms = flow.round_trip_ms * (1.0 + size / (wanted * share));
    let fetch_ms = reading.fetch_ms.unwrap_or(flow.transfer_ms);
    let at_broker = (fetch_ms - flow.transfer_ms).max(0.0);
    (wanted, now * fetch_ms / (way_ms + at_broker))
}

fn wider(reading: &Reading<'_>, flow: Flow, buffer: (f64, &'static str)) -> Recommendation {
    let (wanted, most) = widened(reading, flow, buffer.0);
    Recommendation {
        set: format!("receive.buffer.bytes={}", plain(wanted)),
        why: String::from("a connection carries one window per round trip, and the buffer bounds the window"),
        promise: fetches::promised_rate(reading, (0.7 * most, most), None),
        next_ceiling: fetches::ceiling_after(reading),
        cost: String::from(
            "memory of the kernel for each connection; the client's machine must allow it (net.core.rmem_max), or take -1 and the \
             kernel's own sizes",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions, refuses, stated};
    use super::*;
    use crate::doctor::diagnosis::Diagnosis;
    use crate::doctor::rules::examine;
    use crate::doctor::snapshot::{BrokerSide, BrokerSockets, ClusterSide, Consumer, Snapshot};

    /// Measured over 40 ms with receive.buffer.bytes of 64 KiB: 4,000 records/s of 1,000 bytes are
    /// written.
    fn small_window() -> Snapshot {
        let mut snapshot = of(Consumer {
            records_per_second: Some(1_640.0),
            bytes_per_second: Some(1_690_000.0),
            fetches_per_second: Some(0.85),
            fetch_bytes: Some(1_990_000.0),
            fetch_ms: Some(1_160.0),
            poll_idle_share: Some(0.95),
            assigned_partitions: Some(6.0),
            partitions: partitions(&[(9_000.0, 390.0, 273.0); 6]),
            ..Consumer::default()
        });
        snapshot.network.round_trip_ms = Some(40.0);
        snapshot.settings.fetch_min_bytes = stated(1.0);
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(0.85),
            bytes_per_second: Some(1_690_000.0),
            queue_micros: Some(30.0),
            local_micros: Some(2_000.0),
            remote_micros: Some(0.0),
            send_micros: Some(900_000.0),
            cold_reads_per_second: Some(0.0),
            round_trip_ms: Some(40.0),
            ..BrokerSide::default()
        }];
        snapshot
    }

    fn is_not_window(snapshot: &Snapshot) -> Diagnosis {
        let diagnosis = super::super::diagnose(snapshot);
        assert_ne!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        diagnosis
    }

    #[test]
    fn a_connection_that_carries_its_window_per_round_trip_needs_a_larger_one() {
        let mut snapshot = small_window();
        let diagnosis = check(&snapshot, Verdict::NetworkWindow);
        assert_eq!(
            diagnosis.summary,
            "The connection carries 67.1 KiB per round trip of 40 ms: its receive window is too small for this distance."
        );
        refuses(&diagnosis, "max.partition.fetch.bytes");
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "receive.buffer.bytes=1048576");
        assert!(
            change.promise.low > 3_700.0 && change.promise.high >= change.promise.low,
            "what is written: {change:?}"
        );
        // Stated: nothing is assumed any more.
        snapshot.settings.receive_buffer_bytes = stated(65_536.0);
        let sure = check(&snapshot, Verdict::NetworkWindow);
        assert!(sure.confidence > diagnosis.confidence);
        assert!(sure.missing.iter().all(|words| !words.contains("receive.buffer")));
    }

    // As it was measured: Java has no sample of the idle share, and polls come every 120 ms.
    #[test]
    fn a_fetch_that_is_always_under_way_says_that_polls_wait() {
        let mut snapshot = small_window();
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.poll_idle_share = None;
        consumer.ms_between_polls = Some(120.0);
        consumer.without_sample = vec![String::from("org.apache.kafka.consumer.poll.idle.ratio.avg")];
        check(&snapshot, Verdict::NetworkWindow);
    }

    #[test]
    fn cold_reads_quotas_full_links_and_other_buffers_are_no_window() {
        let mut cold = small_window();
        cold.brokers[0].cold_reads_per_second = Some(20.0);
        cold.brokers[0].cold_read_ms = Some(40.0);
        check(&cold, Verdict::ColdRead);
        let mut throttled = small_window();
        throttled.brokers[0].throttle_ms = Some(300.0);
        check(&throttled, Verdict::Quota);
        let mut full = small_window();
        full.network.bandwidth_bytes_per_second = Some(1_800_000.0);
        check(&full, Verdict::NetworkBandwidth);
        // The buffer is known, and a round trip carries a tenth of it: something else.
        let mut wide = small_window();
        wide.settings.receive_buffer_bytes = stated(655_360.0);
        is_not_window(&wide);
        // Its kernel lets the window grow to megabytes, which a full link queues for.
        let mut grown = small_window();
        grown.settings.receive_buffer_bytes = stated(-1.0);
        is_not_window(&grown);
        let mut queued = small_window();
        queued.network.round_trip_ms = Some(700.0);
        is_not_window(&queued);
    }

    // As it was built: a link of 1 MB/s, 4 ms away, and Java's default buffer.
    #[test]
    fn a_queue_on_the_way_is_a_full_link() {
        let mut narrow = small_window();
        narrow.network.round_trip_ms = Some(4.0);
        narrow.brokers[0].round_trip_ms = Some(4.0);
        narrow.brokers[0].loaded_round_trip_ms = Some(65.0);
        let diagnosis = check(&narrow, Verdict::NetworkBandwidth);
        assert!(diagnosis.summary.contains("for 61 ms"), "{}", diagnosis.summary);
        refuses(&diagnosis, "receive.buffer.bytes");
        narrow.brokers[0].loaded_round_trip_ms = Some(4.5);
        check(&narrow, Verdict::NetworkWindow);
    }

    // Java's setting was changed, or another library's: the bytes per round trip are the window.
    #[test]
    fn a_window_that_is_not_known_is_told_by_what_a_round_trip_carries() {
        let mut snapshot = small_window();
        snapshot.client.library = Library::Librdkafka;
        let diagnosis = check(&snapshot, Verdict::NetworkWindow);
        assert_eq!(diagnosis.confidence, Confidence::Low);
        let is_asked = |words: &String| words.contains("bandwidth");
        assert!(diagnosis.missing.iter().any(is_asked), "{:?}", diagnosis.missing);
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "socket.receive.buffer.bytes=1048576");
    }

    /// Measured on Apache Kafka over 40 ms: with receive.buffer.bytes of 1 MiB 3,491 of 6,000
    /// records/s were read.
    #[test]
    fn a_full_send_buffer_of_the_brokers_is_theirs_to_widen() {
        let mut snapshot = small_window();
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.records_per_second = Some(3_491.0);
        consumer.bytes_per_second = Some(3_560_000.0);
        consumer.fetches_per_second = Some(1.78);
        consumer.fetch_ms = Some(560.0);
        snapshot.settings.receive_buffer_bytes = stated(1_048_576.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::NetworkWindow);
        snapshot.cluster = Some(ClusterSide {
            sockets: BrokerSockets {
                brokers: 1.0,
                receive_buffer_bytes: Some(102_400.0),
                send_buffer_bytes: Some(102_400.0),
            },
            ..ClusterSide::default()
        });
        let diagnosis = check(&snapshot, Verdict::NetworkWindow);
        let change = diagnosis.recommendation.clone().unwrap();
        assert!(
            change.set.starts_with("socket.send.buffer.bytes=") && change.set.ends_with("on the brokers"),
            "{change:?}"
        );
        assert!(change.promise.high > 4_000.0, "{change:?}");
        refuses(&diagnosis, "receive.buffer.bytes");
    }

    /// The same with receive.buffer.bytes of 32 KiB: the next ceiling is the brokers'.
    #[test]
    fn a_wider_window_is_promised_up_to_the_brokers_send_buffer() {
        let mut snapshot = small_window();
        snapshot.cluster = Some(ClusterSide {
            sockets: BrokerSockets {
                brokers: 1.0,
                receive_buffer_bytes: None,
                send_buffer_bytes: Some(102_400.0),
            },
            ..ClusterSide::default()
        });
        let change = check(&snapshot, Verdict::NetworkWindow).recommendation.unwrap();
        assert!(change.set.starts_with("receive.buffer.bytes="), "{change:?}");
        let promise = change.promise;
        assert!((promise.low..=promise.high).contains(&3_491.0), "{promise:?}");
        assert!(
            change.next_ceiling.contains("socket.send.buffer.bytes"),
            "{}",
            change.next_ceiling
        );
    }

    /// Measured beside Apache Kafka, which knows no round trip: receive.buffer.bytes of 16 KiB over
    /// 40 ms.
    #[test]
    fn large_answers_that_take_long_on_an_unknown_way_advise_nothing() {
        let mut snapshot = small_window();
        snapshot.network.round_trip_ms = None;
        snapshot.brokers.clear();
        let consumer = snapshot.consumer.as_mut().unwrap();
        consumer.fetch_bytes = Some(1_034_000.0);
        consumer.fetch_ms = Some(2_497.0);
        consumer.fetches_per_second = Some(0.4);
        let diagnosis = check(&snapshot, Verdict::NetworkWindow);
        assert_eq!(diagnosis.confidence, Confidence::Low);
        assert!(diagnosis.recommendation.is_none());
        assert!(diagnosis.missing.iter().any(|words| words.contains("round trip")));
    }
}
