//! producer 8: is the connection's window too small?
//!
//! **Asks** whether a request takes several round trips because the connection lets fewer bytes be
//! on the way than a request has, or than all allowed requests have together.
//!
//! | test | what it takes |
//! |---|---|
//! | bytes on the way within 0.8 to 1.2 of a known window | the window is stated, or follows from send.buffer.bytes |
//! | 0.95 to 1.42 of the brokers' receive buffer on the way, and 1.2 times as much in the allowed requests | the brokers tell socket.receive.buffer.bytes; Apache Kafka sets it to 100 KiB |
//! | batches wait, at least 0.8 of a request and at most 0.6 of the allowed ones are under way, the thread is idle and requests are of 16 KiB or more | the round trip is not known: the socket takes each request late (F8b), and always has one |
//! | a request is on its way in all of the time, in pieces with a good part of a round trip between them (`arrival.rs`) | the broker's TCP measured the round trip; librdkafka counts a request's time from when the kernel has taken it |
//! | librdkafka's requests wait in its transmit queue for a third of a round trip, while fewer are under way than it may have | it sends the next one before the answer, so it waits for the socket: 64 KiB through 16 KiB across 40 ms |
//! | a request takes at least 1.8 round trips of the broker's own TCP measurement, the broker takes little of it, the client's thread has time, and more wants to be on the way than there is | nothing is known of the window: its size is X_b × RTT |
//!
//! **Which windows**: the stated one; otherwise twice send.buffer.bytes (the kernel doubles it)
//! and, where the owner states send.buffer.bytes, also once (the article's rows lie between 0.9 and
//! 1.9 times the setting). A window limits only if more than it holds wants to be on the way: with
//! one request in flight, a request larger than the window, which then takes several round trips
//! (600 kB through 200 kB: three); otherwise M × S of at least nine tenths of it. 200 kB requests
//! lost nothing with a 100 kB buffer. A receive buffer of 100 KiB carried 3,000 records/s of 1,000
//! bytes across 40 ms and no more, whatever the client set.
//!
//! **Why several round trips are the sign**: 64 KiB requests through send.buffer.bytes of 16 KiB
//! over 40 ms took 125 ms each, while the kernel of the broker measured 40.07 ms; 512 KiB carried
//! all 3,000 records/s. A proxy looks alike, but its round trip is of microseconds: the window that
//! would follow is smaller than any kernel's ([`WINDOW_MIN`]). On a full link the kernel's round
//! trip grows with the queue.
//!
//! **The promise**: `min(M × S, new window) / RTT` up to the next ceiling (F12, F13).

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::used::UsedNumbers;

use super::super::found::Found;
use super::super::inference::{self, is_guess, power_above};
use super::super::words::known;
use super::backlog::ALWAYS_ONE;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Pipe, Reading, positive, reaches};
use super::{IN_FLIGHT, Rule, SEND_BUFFER, arrival, buffer, refusals, rule};
use crate::model::constants::FULL;
use crate::model::pipe::RECEIVE_WINDOW_SHARE;
use crate::numbers::{bytes, number, plain};

pub(crate) const RULE: Rule = rule("producer 8", "Is the connection's window too small?", ask);

/// Requests whose time is the round trip and the broker's to this share wait for nothing else.
const ONE_TRIP: f64 = 0.97;
/// From this many round trips on, a request takes more than one.
pub(crate) const SEVERAL_TRIPS: f64 = 1.8;
/// No send buffer in use lets fewer bytes be on the way (8 KiB, which Linux doubles).
const WINDOW_MIN: f64 = 6_144.0;
/// Requests that fit the first flight of a connection wait for no window: ten packets.
pub(crate) const REQUEST_MIN: f64 = 8_192.0;
/// Smaller requests fit any send buffer.
const UNWRITTEN_MIN: f64 = 16_384.0;
/// The allowed requests hold at least this much more than is on the way.
const WANTS: f64 = 1.2;
/// A connection with at most this share of the allowed requests under way has room for another.
const HAS_ROOM: f64 = 0.6;
/// A socket with room takes a request at once; one without, when an acknowledgement has come.
const TAKEN_LATE: f64 = 0.3;
/// What is on the way to a full receive buffer, in shares of it; the mean of a window is a little
/// less.
const RECEIVED: (f64, f64) = (0.95, 1.05 * RECEIVE_WINDOW_SHARE.1);
/// The client's thread has time to send.
pub(crate) const THREAD_HAS_TIME: f64 = 0.1;

/// A window that is as full as it can get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub bytes: f64,
    pub on_the_way: f64,
    pub round_trip_ms: f64,
    /// Its size follows from the bytes on the way, because no statement gives it.
    pub is_derived: bool,
    /// It is the brokers' receive buffer.
    pub is_receivers: bool,
}

impl Window {
    fn name(&self) -> &'static str {
        match self.is_receivers {
            true => "socket.receive.buffer.bytes of the brokers",
            false => "the connection",
        }
    }
}

fn ask(reading: &Reading<'_>) -> Found {
    let pipe = reading.hottest();
    let found = pipe.and_then(|pipe| of(reading, pipe).or_else(|| several_trips(reading, pipe)));
    let numbers = [
        known("on the way", found.map(|window| window.on_the_way), "bytes"),
        known("S", pipe.and_then(|pipe| pipe.request_bytes), "bytes"),
        known("RTT", found.map(|window| window.round_trip_ms), "ms"),
    ];
    if let Some(pipe) = pipe.filter(|pipe| is_written_slowly(reading, pipe)) {
        return unwritten(reading, pipe, numbers);
    }
    let (Some(pipe), Some(window), Bound::Pipe) = (pipe, found, &reading.bound) else {
        return Found::nothing(numbers, "no");
    };
    let request = pipe.request_bytes.unwrap_or(window.bytes);
    let text = if request > window.bytes {
        format!(
            "Each request takes several round trips: {} lets {} be on the way at once, and a request has {}.",
            window.name(),
            bytes(window.on_the_way),
            bytes(request)
        )
    } else if window.is_receivers {
        format!(
            "{} is full: {} are on the way at once, and it has {}.",
            window.name(),
            bytes(window.on_the_way),
            bytes(window.bytes)
        )
    } else {
        format!(
            "The connection's window is full: {} are on the way at once, and it holds {}.",
            bytes(window.on_the_way),
            bytes(window.bytes)
        )
    };
    let in_flight = reading.settings.in_flight;
    let allowed = in_flight.value;
    let mut found = Found::verdict(
        numbers,
        Verdict::NetworkWindow,
        confidence(reading, Verdict::NetworkWindow, false),
        text.clone(),
    )
    .finding(FindingId::N5, text)
    .recommend(recommend(reading, pipe, window))
    .refusals(refusals::of_pipe(reading));
    if allowed > 1.0 && !is_guess(in_flight.origin) && allowed * request >= 0.9 * window.bytes {
        let why = format!(
            "{} requests of {} already fill the window of {}",
            number(allowed),
            bytes(request),
            bytes(window.bytes)
        );
        found = found.refuse(IN_FLIGHT, why);
    }
    if window.is_receivers {
        let why = "the brokers' receive buffer is full, whatever the client's own has room for";
        found = found.refuse(SEND_BUFFER, why);
    }
    if window.is_derived && !arrival::is_held(reading, pipe) {
        found = found.missing(
            "the link's bandwidth: a full link looks alike where the broker does not tell how requests arrive",
        );
    }
    found
}

/// Bytes under way on a connection, from throughput; with one request in flight, from that
/// request's size, which is not blurred by averaging a rate over a window.
pub(crate) fn on_the_way(reading: &Reading<'_>, pipe: &Pipe<'_>, round_trip_ms: f64) -> Option<f64> {
    let by_rate = pipe
        .bytes_per_second
        .or_else(|| Some(pipe.request_bytes? * pipe.requests_per_second))?
        * round_trip_ms
        / 1_000.0;
    let is_alone = reading.settings.in_flight.value <= 1.0 && reading.settings.acks.value != 0;
    let by_request = pipe
        .request_bytes
        .zip(pipe.request_ms)
        .filter(|_| is_alone)
        .map_or(0.0, |(request, request_ms)| {
            request * (round_trip_ms / request_ms.max(1e-3)).min(1.0)
        });
    Some(by_rate.max(by_request))
}

/// The sizes that the window may have, given what is known.
pub(crate) fn candidates(reading: &Reading<'_>) -> Vec<f64> {
    if let Some(window) = positive(reading.snapshot.network.window_bytes) {
        return vec![window];
    }
    match reading.settings.send_buffer_bytes {
        Some(buffer) if buffer.origin.is_known() => vec![2.0 * buffer.value, buffer.value],
        Some(buffer) => vec![2.0 * buffer.value],
        None => Vec::new(),
    }
}

/// Whether more than a window wants to be on the way at once, and the observed bytes agree with
/// that.
fn wants_more_than(reading: &Reading<'_>, pipe: &Pipe<'_>, window: f64, round_trip_ms: f64) -> bool {
    if reading.settings.acks.value == 0 {
        return true;
    }
    let Some(request) = pipe.request_bytes else {
        return false;
    };
    let allowed = reading.settings.in_flight.value;
    if allowed > 1.0 {
        return allowed * request >= 0.9 * window;
    }
    let trips = (request / window).ceil();
    request > window
        && pipe
            .request_ms
            .is_some_and(|request_ms| request_ms >= 0.9 * trips * round_trip_ms)
}

/// Whether each request takes one round trip and nothing more: then none waits for a window.
pub(crate) fn is_one_trip(reading: &Reading<'_>, pipe: &Pipe<'_>, round_trip_ms: f64) -> bool {
    let broker_ms = reading.broker_ms(pipe).unwrap_or(0.0);
    let Some(request_ms) = pipe.request_ms else {
        return false;
    };
    // One at a time, a second round trip would show; several wait for each other's bytes as well,
    // and those that may be under way and are not wait before their time counts.
    match reading.settings.in_flight.value <= 1.0 {
        true => request_ms - broker_ms < 1.5 * round_trip_ms,
        false => {
            let under_way = pipe.requests_per_second * request_ms / 1_000.0;
            let are_all_under_way = reaches(under_way / reading.settings.in_flight.value, FULL);
            are_all_under_way && round_trip_ms + broker_ms >= ONE_TRIP * request_ms
        }
    }
}

/// A window whose size is known, and that is full.
pub(crate) fn of(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Window> {
    let trip = reading.round_trip(pipe).map(|trip| trip.ms);
    let by_client = trip.and_then(|trip_ms| of_client(reading, pipe, trip_ms));
    // A request that shares the buffer with others takes several round trips, and TCP's seems to
    // be of another path. That as many bytes are on the way in it as the buffer has says that it is
    // not.
    by_client.or_else(|| of_receiver(reading, pipe, trip.or(reading.tcp_ms(pipe))?))
}

/// The client's, if it is full.
fn of_client(reading: &Reading<'_>, pipe: &Pipe<'_>, trip_ms: f64) -> Option<Window> {
    if is_one_trip(reading, pipe, trip_ms) || arrival::is_steady(reading, pipe) {
        return None;
    }
    let on_the_way = on_the_way(reading, pipe, trip_ms)?;
    candidates(reading).into_iter().find_map(|bytes| {
        let use_of = on_the_way / bytes;
        let is_full = reaches(use_of, 0.8) && use_of <= 1.205;
        (is_full && wants_more_than(reading, pipe, bytes, trip_ms)).then_some(Window {
            bytes,
            on_the_way,
            round_trip_ms: trip_ms,
            is_derived: false,
            is_receivers: false,
        })
    })
}

/// The brokers' receive buffer, if it is full and requests would bring more.
fn of_receiver(reading: &Reading<'_>, pipe: &Pipe<'_>, trip_ms: f64) -> Option<Window> {
    let is_link = arrival::is_steady(reading, pipe) || arrival::queue(reading).is_some();
    if is_link || is_one_trip(reading, pipe, trip_ms) {
        return None;
    }
    let on_the_way = on_the_way(reading, pipe, trip_ms)?;
    let buffer = promise::received_bytes(reading)?;
    let is_full = (RECEIVED.0..=RECEIVED.1).contains(&(on_the_way / buffer));
    let want = reading.settings.in_flight.value.max(1.0) * pipe.request_bytes?;
    (is_full && want >= WANTS * on_the_way).then_some(Window {
        bytes: buffer,
        on_the_way,
        round_trip_ms: trip_ms,
        is_derived: false,
        is_receivers: true,
    })
}

/// A window of unknown size, by the sign of several round trips for each request.
pub(crate) fn several_trips(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Window> {
    let trip_ms = positive(reading.tcp_ms(pipe))?;
    let request_ms = match pipe.request_ms {
        Some(ms) => ms,
        // A client that pushes nothing: one request at a time, so a cycle is its latency.
        None if reading.is_back_to_back() => 1_000.0 / pipe.requests_per_second.max(1e-6),
        None => return None,
    };
    let broker_ms = pipe.broker.as_ref()?.ms_at_most;
    let request = pipe.request_bytes?;
    let rate = pipe
        .bytes_per_second
        .unwrap_or(request * pipe.requests_per_second);
    let on_the_way = rate * trip_ms / 1_000.0;
    let has_time = reading.io_wait.is_none_or(|wait| wait >= THREAD_HAS_TIME);
    let is_longer = request_ms - broker_ms >= SEVERAL_TRIPS * trip_ms && broker_ms < 0.5 * request_ms;
    let is_taken_late = is_taken_late(reading, pipe);
    let is_several = is_longer || arrival::is_held(reading, pipe) || is_taken_late;
    let wants = reading.settings.in_flight.value.max(1.0) * request >= WANTS * on_the_way;
    let is_link = (arrival::is_steady(reading, pipe) && !is_taken_late) || arrival::queue(reading).is_some();
    let is_narrow = request >= REQUEST_MIN && on_the_way >= WINDOW_MIN && !is_link;
    (is_several && has_time && wants && is_narrow).then_some(Window {
        bytes: on_the_way,
        on_the_way,
        round_trip_ms: trip_ms,
        is_derived: true,
        is_receivers: false,
    })
}

/// Requests of librdkafka wait until the socket has taken them, although more may be under way.
pub(crate) fn is_taken_late(reading: &Reading<'_>, pipe: &Pipe<'_>) -> bool {
    let trip_ms = positive(reading.tcp_ms(pipe));
    let waits = reading
        .transmit_queue_ms
        .zip(trip_ms)
        .is_some_and(|(queue_ms, trip_ms)| queue_ms >= TAKEN_LATE * trip_ms);
    let under_way = inference::under_way(reading.snapshot);
    let is_large = pipe.request_bytes.is_some_and(|bytes| bytes >= UNWRITTEN_MIN);
    waits
        && is_large
        && inference::has_two_under_way(reading.snapshot)
        && under_way.is_some_and(|count| count <= HAS_ROOM * reading.settings.in_flight.value)
        && arrival::full_link(reading).is_none()
}

/// Batches wait, more requests may be under way, and the thread is idle: a Java client starts the
/// next request only when the socket has taken the one before.
fn is_written_slowly(reading: &Reading<'_>, pipe: &Pipe<'_>) -> bool {
    let is_blocked = matches!(reading.bound, Bound::Blocked(_)) && !reading.failing.has_retries;
    let under_way = pipe.request_ms.map(|ms| pipe.requests_per_second * ms / 1_000.0);
    // A socket that is slow always has one; records in bursts leave it empty between them.
    let is_some = |count: f64| count >= ALWAYS_ONE && count <= HAS_ROOM * reading.settings.in_flight.value;
    let is_large = pipe.request_bytes.is_some_and(|bytes| bytes >= UNWRITTEN_MIN);
    let is_fresh = reading
        .queue_ms_max
        .zip(reading.queue_ms)
        .is_some_and(|(most, mean)| most > 10.0 * mean);
    is_blocked
        && arrival::queue(reading).is_none()
        && buffer::of_requests(reading).is_none()
        && is_large
        && !is_fresh
        && reading.settings.in_flight.value > 1.0
        && reading.io_wait.is_some_and(|wait| wait >= 0.5)
        && under_way.is_some_and(is_some)
        && reading.round_trip(pipe).is_none()
}

fn unwritten(reading: &Reading<'_>, pipe: &Pipe<'_>, numbers: impl Into<UsedNumbers>) -> Found {
    let request = pipe.request_bytes.unwrap_or(UNWRITTEN_MIN);
    let next = power_above(reading.settings.in_flight.value.min(8.0) * request);
    let text = format!(
        "Requests of {} wait to be written although more may be under way: the connection takes them slower than they come.",
        bytes(request)
    );
    let mut promise = promise::records(reading.records_per_second.unwrap_or(0.0), 0.0, 0.0);
    promise.unknown = Some("the round trip, and whether the link or its window is full".to_owned());
    Found::verdict(
        numbers,
        Verdict::NetworkWindow,
        confidence(reading, Verdict::NetworkWindow, true),
        text.clone(),
    )
    .finding(FindingId::N5, text)
    .missing("the round trip of the connection: with it a window can be told from a full link")
    .recommend(Some(Recommendation {
        set: format!("{SEND_BUFFER}={}", plain(next)),
        why: "the client starts a request when the socket has taken the one before".to_owned(),
        promise,
        next_ceiling: "the link, and the receiver's window".to_owned(),
        cost: format!(
            "{} of kernel memory for each connection; net.core.wmem_max must allow it",
            bytes(next)
        ),
    }))
    .refusals(refusals::of_memory(reading))
}

/// As much as wants to be on the way, up to bandwidth × RTT and eight times the current value.
fn recommend(reading: &Reading<'_>, pipe: &Pipe<'_>, window: Window) -> Option<Recommendation> {
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let wanted = reading.settings.in_flight.value.min(1_000.0) * pipe.request_bytes.unwrap_or(window.bytes);
    let by_link = link.map_or(f64::INFINITY, |link| link * window.round_trip_ms / 1_000.0);
    let wanted = wanted
        .max(window.bytes)
        .min(by_link.max(window.bytes))
        .min(8.0 * window.bytes);
    let next = power_above(wanted.max(1.5 * window.bytes));
    let (other_end, set, limit) = match window.is_receivers {
        true => (
            Kind::Window,
            format!("socket.receive.buffer.bytes={} on the brokers", plain(next)),
            "net.core.rmem_max must allow it; brokers read it when they start, and -1 leaves it to the kernel",
        ),
        false => (
            Kind::Receiver,
            format!("{SEND_BUFFER}={}", plain(next)),
            "net.core.wmem_max must allow it",
        ),
    };
    let (promise, next_ceiling) =
        promise::larger_window(reading, pipe, next, window.round_trip_ms, other_end)?;
    let origin = if window.is_derived {
        ", by the rate and the round trip"
    } else {
        ""
    };
    Some(Recommendation {
        set,
        why: format!(
            "the window holds {}{origin}, and {} requests of {} want to be on the way",
            bytes(window.bytes),
            number(reading.settings.in_flight.value.min(1_000.0)),
            bytes(pipe.request_bytes.unwrap_or(window.bytes))
        ),
        promise,
        next_ceiling,
        cost: format!("{} of kernel memory for each connection; {limit}", bytes(next)),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, BrokerSockets, ClusterSide, Library};

    /// 64 KiB requests through send.buffer.bytes of 16 KiB over 40 ms, as pushed: no setting is
    /// known, and the broker's kernel measured the round trip.
    fn narrow() -> crate::doctor::Snapshot {
        let row = Row {
            records: 1_331.0,
            requests: 21.0,
            request_bytes: 64_000.0,
            batch: 63_500.0,
            records_per_request: 63.0,
            latency: 225.0,
            queue: Some(4_000.0),
            queue_max: 5_000.0,
            buffer_wait: Some(0.4),
            partitions: 1.0,
            thread: Some((0.95, 0.02)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(21.0),
            total_micros: Some(900.0),
            round_trip_ms: Some(40.07),
            ..BrokerSide::default()
        }];
        snapshot
    }

    #[test]
    fn several_round_trips_for_each_request_are_a_window() {
        let diagnosis = examine(&narrow());
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("send.buffer.bytes="), "{change:?}");
        let is_link = |what: &String| what.starts_with("the link's bandwidth");
        assert!(diagnosis.missing.iter().any(is_link), "{:?}", diagnosis.missing);
        assert!(
            diagnosis
                .refused
                .iter()
                .all(|refusal| refusal.set != "send.buffer.bytes")
        );
    }

    /// librdkafka sends no queue: that its requests queue behind each other is the sign.
    #[test]
    fn a_client_without_a_queue_time_waits_for_its_window_too() {
        let mut snapshot = narrow();
        snapshot.client.library = Library::Librdkafka;
        let own = snapshot.producer.as_mut().unwrap();
        (own.queue_ms, own.queue_ms_max, own.buffer_wait) = (None, None, None);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        // One at a time that takes several round trips is what a healthy connection does.
        let own = snapshot.producer.as_mut().unwrap();
        own.nodes[0].requests_per_second = Some(4.0);
        own.requests_per_second = Some(4.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::NetworkWindow);
    }

    /// On a broker that measures no round trip: requests are not written although five may be.
    #[test]
    fn requests_that_are_written_slowly_are_a_window_without_a_round_trip_too() {
        let mut snapshot = narrow();
        snapshot.brokers[0].round_trip_ms = None;
        let own = snapshot.producer.as_mut().unwrap();
        own.request_ms = Some(90.0);
        own.nodes[0].request_ms = Some(90.0);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        assert!(diagnosis.recommendation.unwrap().promise.unknown.is_some());
        // A round trip that is known tells itself whether a window is full.
        snapshot.network.round_trip_ms = Some(60.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::NetworkWindow);
    }

    #[test]
    fn a_proxy_s_round_trip_is_no_window() {
        let mut snapshot = narrow();
        snapshot.brokers[0].round_trip_ms = Some(0.05);
        assert_ne!(examine(&snapshot).verdict, Verdict::NetworkWindow);
    }

    /// librdkafka over send.buffer.bytes of 16 KiB and 40 ms: its latency begins when the kernel
    /// has taken a request, so that it is of one round trip and a third.
    #[test]
    fn requests_that_are_always_on_their_way_in_pieces_wait_for_a_window() {
        let mut snapshot = narrow();
        snapshot.client.library = Library::Librdkafka;
        let own = snapshot.producer.as_mut().unwrap();
        (own.queue_ms, own.queue_ms_max, own.buffer_wait) = (None, None, None);
        (own.io_wait, own.io) = (None, None);
        (own.requests_per_second, own.nodes[0].requests_per_second) = (Some(18.3), Some(18.3));
        (own.bytes_per_second, own.nodes[0].bytes_per_second) = (Some(1.19e6), Some(1.19e6));
        (own.request_ms, own.nodes[0].request_ms) = (Some(54.6), Some(54.6));
        snapshot.brokers[0] = BrokerSide {
            requests_per_second: Some(18.3),
            back_to_back_share: Some(0.95),
            has_overlap: Some(false),
            arriving_share: Some(0.96),
            arrival_pause_ms: Some(18.0),
            ..snapshot.brokers[0].clone()
        };
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("socket.send.buffer.bytes="), "{change:?}");
    }

    /// The same, measured in another run: the next request comes before the answer to the one
    /// before can have arrived, and waits in the transmit queue until the socket has room.
    #[test]
    fn a_request_that_the_socket_takes_late_waits_for_a_window() {
        let mut snapshot = narrow();
        snapshot.client.library = Library::Librdkafka;
        let own = snapshot.producer.as_mut().unwrap();
        (own.queue_ms, own.queue_ms_max, own.buffer_wait) = (None, None, None);
        (own.io_wait, own.io, own.transmit_queue_ms) = (None, None, Some(30.0));
        (own.requests_per_second, own.nodes[0].requests_per_second) = (Some(18.8), Some(18.8));
        (own.bytes_per_second, own.nodes[0].bytes_per_second) = (Some(1.217e6), Some(1.217e6));
        (own.request_ms, own.nodes[0].request_ms) = (Some(59.4), Some(59.4));
        own.batch_bytes = Some(64_637.0);
        snapshot.brokers[0] = BrokerSide {
            requests_per_second: Some(18.8),
            total_micros: Some(1_734.0),
            round_trip_ms: Some(40.131),
            gap_ms: Some(34.1),
            back_to_back_share: Some(0.99),
            has_overlap: Some(false),
            in_flight_max: Some(2.0),
            arriving_share: Some(0.331),
            arrival_pause_ms: Some(2.45),
            request_bytes_max: Some(65_500.0),
            batch_bytes_max: Some(65_536.0),
            ..BrokerSide::default()
        };
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("socket.send.buffer.bytes="), "{change:?}");
        let mut alone = snapshot.clone();
        (alone.brokers[0].gap_ms, alone.brokers[0].in_flight_max) = (Some(40.2), Some(1.0));
        assert_eq!(
            examine(&alone).verdict,
            Verdict::NetworkRtt,
            "it waits for each answer"
        );
        snapshot.producer.as_mut().unwrap().transmit_queue_ms = Some(0.2);
        assert_ne!(
            examine(&snapshot).verdict,
            Verdict::NetworkWindow,
            "the socket has room"
        );
    }

    /// Measured on Apache Kafka across 40 ms with max.request.size=40000: larger requests carried
    /// no more.
    #[test]
    fn a_full_receive_buffer_of_the_brokers_is_a_window_that_they_alone_can_widen() {
        let row = Row {
            records: 2_922.0,
            requests: 74.9,
            request_bytes: 40_200.0,
            batch: 39_900.0,
            records_per_request: 39.0,
            latency: 66.0,
            queue: Some(4_000.0),
            queue_max: 5_000.0,
            buffer_wait: Some(0.4),
            partitions: 1.0,
            thread: Some((0.95, 0.02)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(74.9),
            total_micros: Some(900.0),
            round_trip_ms: Some(40.3),
            ..BrokerSide::default()
        }];
        let cluster = |bytes| ClusterSide {
            sockets: BrokerSockets {
                receive_buffer_bytes: Some(bytes),
                ..BrokerSockets::default()
            },
            ..ClusterSide::default()
        };
        let mut with = |bytes| {
            snapshot.cluster = Some(cluster(bytes));
            examine(&snapshot)
        };
        let diagnosis = with(102_400.0);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(
            change.set.starts_with("socket.receive.buffer.bytes=") && change.set.ends_with("on the brokers"),
            "{change:?}"
        );
        let is_refused = |key: &str| diagnosis.refused.iter().any(|refusal| refusal.set == key);
        assert!(is_refused("send.buffer.bytes"), "{:?}", diagnosis.refused);
        // 64 KiB requests through it: each takes 111 ms, and the broker does not tell of them.
        let row = Row {
            records: 3_212.0,
            requests: 45.6,
            request_bytes: 65_531.0,
            batch: 65_400.0,
            records_per_request: 70.4,
            latency: 111.0,
            ..row
        };
        let mut larger = row.snapshot();
        larger.network.round_trip_ms = None;
        larger.brokers = vec![BrokerSide {
            round_trip_ms: Some(40.2),
            ..BrokerSide::default()
        }];
        larger.cluster = Some(cluster(102_400.0));
        let diagnosis = examine(&larger);
        assert_eq!(diagnosis.verdict, Verdict::NetworkWindow, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.ends_with("on the brokers"), "{change:?}");
        // What is on the way is another buffer's, or all that wants to be there.
        for bytes in [51_200.0, 524_288.0] {
            let set = with(bytes)
                .recommendation
                .map_or(String::new(), |change| change.set);
            assert!(!set.starts_with("socket.receive.buffer.bytes="), "{bytes}: {set}");
        }
    }
}
