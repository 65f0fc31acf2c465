//! What a change gains, and the next ceiling: no promise goes beyond a known ceiling.
//!
//! **low and high**: high is the formula at unchanged latency, low is a tenth or a fifth less; both
//! are cut at the lowest known ceiling: the offered rate, the threads' own work (F6 without the
//! wait for memory), the link (F15), a known window (F12, F13), the broker's serial service of a
//! connection (F14). The article's 102,400 → 1,024,000 bytes of send buffer gained 4.8 times the
//! rate where the ratio of the buffers is ten. The ceiling that cuts is named; where none is known,
//! the text says so.

use crate::doctor::diagnosis::Promise;
use crate::formulas::{buffer, latency, wire};

use super::super::broker::parts::flushed_locally_micros;
use super::super::engine::PROMISE_WIDTH;
use super::backlog::{SERVED_AT_ONCE, queue_threshold_ms, served_share};
use super::reading::{Pipe, Reading, clean, positive};
use crate::model::ceilings::{self, Ceiling, by_link, by_threads, cut, lowest, next};
use crate::model::constants::WINDOW_LOW;
use crate::model::growth::grown;
use crate::model::pipe::{self, RECEIVE_WINDOW_SHARE};
use crate::numbers::{bytes, number};

/// A pipe that is full was never used less than this.
const USED_LOW: f64 = 0.7;
/// Records that compress, and how much more a codec may save in larger batches of them. Measured:
/// text in batches 9.5 times as large was sent at 10.2 times the rate.
const COMPRESSED: f64 = 0.9;
const COMPRESSES_BETTER: f64 = 1.2;
/// The time of a request, to that of round trip and broker: what is above is the client's own and
/// passes with its start, or with the number of its requests; at most this much of it counts. Rates
/// of clients in their first half minute were 9 to 23 % above what the time of their requests had
/// let expect.
pub(crate) const OWN_PART_MAX: f64 = 1.5;
/// From here on something else takes the time.
const NOT_ITS_OWN: f64 = 2.0;
/// No client says how much its application wants to send.
pub(crate) const IF_OFFERED: &str =
    "at an unchanged latency of requests, and if the application has that much to send";
const MAY_FALL: &str = "at a latency of requests from today's down to that of round trip and broker, and if the application has that much to send";
pub(crate) const UNCHANGED: &str = "at an unchanged latency of requests";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Offered,
    Worker,
    Link,
    Window,
    /// The brokers' receive buffer.
    Receiver,
    Broker,
    /// What the pipe carries at its current L: X / U.
    Pipe,
    /// What the I/O thread carries: X / (1 - i_wait).
    Thread,
}

/// F17: how long a thread waits for one batch's memory; none where the drain is unknown.
pub(crate) fn buffer_wait_ms(reading: &Reading<'_>) -> Option<f64> {
    let own = reading.snapshot.producer.as_ref();
    let waiting = own.and_then(|own| clean(own.waiting_threads)).unwrap_or(0.0);
    let waiting = waiting.max(reading.threads.map_or(0.0, |threads| threads - 1.0));
    let drained = positive(reading.bytes_per_second)?;
    clean(Some(buffer::wait_ms(
        waiting,
        reading.settings.batch_bytes.value,
        drained,
    )))
}

/// `W_own`, the microseconds of `send()` excluding the wait for memory; none where a hard wait
/// cannot be told from work.
pub(crate) fn own_send_micros(reading: &Reading<'_>) -> Option<f64> {
    let rate = positive(reading.records_per_second)?;
    let all = reading.send_micros?;
    let own = match reading.buffer_wait {
        Some(wait) => latency::send_micros_own(all, wait, rate),
        None if reading.queue_ms.is_some_and(|queue| queue > 1_000.0) => return None,
        None => all,
    };
    // The difference of two large numbers has no significant digits left.
    positive(Some(own)).filter(|own| *own >= 0.02 * all)
}

/// The ceilings above the current one whose numbers are known, when requests grow by a factor of
/// `growth`.
pub(crate) fn ceilings(reading: &Reading<'_>, growth: f64, kinds: &[Kind]) -> Vec<Ceiling> {
    let mut found = Vec::new();
    let mut add = |kind: Kind, records: Option<f64>, text: &dyn Fn(f64) -> String| {
        if let Some(records) = positive(records).filter(|_| kinds.contains(&kind)) {
            let text = text(records);
            found.push(Ceiling {
                records_per_second: records,
                text,
            });
        }
    };
    let rate = positive(reading.records_per_second);
    let record = reading.record_bytes();
    add(Kind::Offered, reading.offered, &|records| {
        format!("the application offers {} records/s", number(records))
    });
    let worker = reading
        .threads
        .zip(own_send_micros(reading))
        .map(|(threads, micros)| by_threads(threads, micros));
    add(Kind::Worker, worker, &|records| {
        format!(
            "the sending threads: T / W = {} records/s at today's cost of a record (F6)",
            number(records)
        )
    });
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let by_link = link.zip(record).map(|(link, record)| by_link(link, record));
    add(Kind::Link, by_link, &|records| {
        format!(
            "the link: 0.92 × {}/s are {} records/s (F15)",
            bytes(link.unwrap_or(0.0)),
            number(records)
        )
    });
    add(Kind::Window, by_window(reading), &|records| {
        format!("the window: {} records/s (F12)", number(records))
    });
    let buffer = received_bytes(reading);
    let by_receiver = buffer.and_then(|buffer| by_window_of(reading, RECEIVE_WINDOW_SHARE.1 * buffer));
    add(Kind::Receiver, by_receiver, &|records| {
        format!(
            "socket.receive.buffer.bytes of the brokers, {}: {} records/s (F12)",
            bytes(buffer.unwrap_or(0.0)),
            number(records)
        )
    });
    add(
        Kind::Broker,
        by_broker(reading).map(|records| records * growth),
        &|records| {
            format!(
                "the broker serves one request of a connection at a time: 1000 / D are {} records/s (F14)",
                number(records)
            )
        },
    );
    let used = positive(reading.used());
    add(
        Kind::Pipe,
        rate.zip(used).map(|(rate, used)| rate / used),
        &|records| format!("the request rate: X / U = {} records/s (F8)", number(records)),
    );
    let busy = positive(reading.io_wait.map(|wait| 1.0 - wait));
    add(
        Kind::Thread,
        rate.zip(busy).map(|(rate, busy)| rate / busy),
        &|records| format!("the I/O thread: X / (1 - i_wait) = {} records/s", number(records)),
    );
    found
}

fn by_window(reading: &Reading<'_>) -> Option<f64> {
    let window = positive(reading.snapshot.network.window_bytes).or_else(|| {
        let buffer = reading.settings.send_buffer_bytes?;
        buffer.origin.is_known().then_some(2.0 * buffer.value)
    })?;
    by_window_of(reading, window)
}

/// The receive buffer of the brokers, where it has been set.
pub(crate) fn received_bytes(reading: &Reading<'_>) -> Option<f64> {
    positive(reading.snapshot.cluster.as_ref()?.sockets.receive_buffer_bytes)
}

/// The least that a promise names where that buffer bounds it: not every kernel lends more than the
/// buffer has.
fn low_by_receiver(reading: &Reading<'_>, low: f64) -> f64 {
    let least = received_bytes(reading).and_then(|buffer| by_window_of(reading, buffer));
    least.map_or(low, |least| low.min(least))
}

fn by_window_of(reading: &Reading<'_>, window: f64) -> Option<f64> {
    let pipe = reading.hottest()?;
    let trip = reading.round_trip(pipe)?;
    let count = reading.nodes.len().max(1) as f64;
    clean(Some(ceilings::by_window(
        window,
        trip.ms,
        count,
        reading.record_bytes()?,
    )))
}

fn by_broker(reading: &Reading<'_>) -> Option<f64> {
    let pipe = reading.hottest()?;
    let mut broker_ms = positive(reading.broker_ms(pipe))?;
    // Ottla, which tells its flush apart, takes a connection's next request while one waits for it.
    let side = pipe.broker.as_ref().map(|broker| &broker.side);
    if let Some(side) = side.filter(|side| clean(side.flush_micros).is_some()) {
        let waits = clean(side.remote_micros).unwrap_or(0.0) + flushed_locally_micros(side);
        broker_ms = positive(Some(broker_ms - waits / 1_000.0))?;
    }
    if served_share(pipe).is_some_and(|share| share > SERVED_AT_ONCE) {
        return None;
    }
    let count = reading.nodes.len().max(1) as f64;
    clean(Some(ceilings::by_broker(
        broker_ms,
        count,
        reading.records_per_request?,
    )))
}

pub(crate) fn of(figure: &str, unit: &str, now: Option<f64>, low: f64, high: f64) -> Promise {
    let high = clean(Some(high)).unwrap_or(0.0);
    let low = clean(Some(low)).unwrap_or(0.0).min(high);
    Promise {
        figure: figure.to_owned(),
        now: clean(now),
        low,
        high,
        unit: unit.to_owned(),
        assumption: UNCHANGED.to_owned(),
        unknown: None,
    }
}

pub(crate) fn records(now: f64, low: f64, high: f64) -> Promise {
    of("records_per_second", "records/s", Some(now), low, high)
}

/// A lower bound on what the threads could send where only their wait for memory is known: all the
/// rest of their time counts as work (F6).
fn worker_at_least(reading: &Reading<'_>) -> Option<f64> {
    let (threads, wait) = reading.threads.zip(reading.buffer_wait)?;
    let work = (threads - wait).max(0.05 * threads);
    (reading.send_micros.is_none() && wait >= 0.5 * threads)
        .then(|| reading.records_per_second.unwrap_or(0.0) * threads / work)
}

/// F30: requests `growth` times as large.
///
/// Where a ceiling leaves no room for more records, the gain is latency: the queue disappears.
pub(crate) fn growth(reading: &Reading<'_>, growth: f64) -> Option<(Promise, String)> {
    let now = positive(reading.records_per_second)?;
    let kinds = [
        Kind::Offered,
        Kind::Worker,
        Kind::Link,
        Kind::Window,
        Kind::Receiver,
        Kind::Broker,
    ];
    let ceilings = ceilings(reading, growth, &kinds);
    let (low, raw) = grown(now, growth, reading.used().unwrap_or(1.0));
    let raw = match reading.compression_rate < COMPRESSED {
        true => COMPRESSES_BETTER * raw,
        false => raw,
    };
    let may_fall = may_fall(reading);
    let high = cut(&ceilings, (raw * may_fall).min(PROMISE_WIDTH * low).max(raw));
    if sends_what_it_wants(reading) {
        let next = "the application: send() never waits, so it sends what it wants already".to_owned();
        return latency_falls(reading).map(|promise| (promise, next));
    }
    if high < 1.05 * now {
        return latency_falls(reading).map(|promise| (promise, next(&ceilings)));
    }
    let low = worker_at_least(reading).map_or(low, |least| low.min(least));
    let mut promise = records(now, low_by_receiver(reading, low), high);
    if reading.offered.is_none() {
        promise.assumption = if may_fall > 1.0 { MAY_FALL } else { IF_OFFERED }.to_owned();
    }
    if super::sender_thread::is_short_of_cpu(reading) {
        promise.unknown = Some("whether the client's machine has processor time for more".to_owned());
    }
    if is_beyond_receiver(reading) {
        promise.unknown = Some(
            "the round trip: more is under way than socket.receive.buffer.bytes of the brokers lets through in one, so that larger requests may carry no more".to_owned(),
        );
    }
    Some((within_a_guessed_window(reading, promise), next(&ceilings)))
}

/// Whether requests hold more bytes for as long as they take than the brokers' receive buffer lets
/// be on the way: the round trip, which is not known, cannot be all of their time.
fn is_beyond_receiver(reading: &Reading<'_>) -> bool {
    let share = || {
        let pipe = reading
            .hottest()
            .filter(|pipe| reading.round_trip(pipe).is_none())?;
        let outside_s = reading.round_trip_at_most(pipe)? / 1_000.0;
        let rate = pipe.bytes_per_second?;
        Some(rate * outside_s / received_bytes(reading)?)
    };
    share().is_some_and(|share| share > RECEIVE_WINDOW_SHARE.1)
}

/// How many times as long as round trip and broker a request takes today.
fn may_fall(reading: &Reading<'_>) -> f64 {
    let known = || {
        let pipe = reading.hottest()?;
        let least_ms = reading.round_trip(pipe)?.ms + reading.broker_ms(pipe).unwrap_or(0.0);
        // Where the client does not tell, by Little's law of a full pipe.
        let per_request_ms = 1_000.0 / positive(Some(pipe.requests_per_second))?;
        let request_ms =
            positive(pipe.request_ms).unwrap_or(reading.settings.in_flight.value.max(1.0) * per_request_ms);
        let share = request_ms / least_ms;
        (1.0..NOT_ITS_OWN)
            .contains(&share)
            .then_some(share.min(OWN_PART_MAX))
    };
    known().unwrap_or(1.0)
}

/// Names the window as unknown where the promise needs more than the default of send.buffer.bytes.
fn within_a_guessed_window(reading: &Reading<'_>, mut promise: Promise) -> Promise {
    if fills_a_guessed_window(reading, promise.high) {
        promise.unknown = Some(
            "how much the connection's window lets through: send.buffer.bytes is not known, and its default is less".to_owned(),
        );
    }
    promise
}

/// Whether this many records per second are more than the default of send.buffer.bytes has room for
/// in a round trip, and nothing says what it is.
fn fills_a_guessed_window(reading: &Reading<'_>, records_per_second: f64) -> bool {
    let known = positive(reading.snapshot.network.window_bytes);
    let guessed = reading.settings.send_buffer_bytes;
    let (None, Some(buffer)) = (known, guessed.filter(|buffer| !buffer.origin.is_known())) else {
        return false;
    };
    let on_the_way = || {
        let trip_ms = reading.round_trip(reading.hottest()?)?.ms;
        let bytes = records_per_second * reading.record_bytes()? * trip_ms / 1_000.0;
        Some(bytes / reading.nodes.len().max(1) as f64)
    };
    on_the_way().is_some_and(|bytes| bytes > buffer.value)
}

/// Whether no thread waits for memory and the queue is short: then nothing holds the application
/// back, whatever the sender could carry.
fn sends_what_it_wants(reading: &Reading<'_>) -> bool {
    let never_waits = reading.buffer_wait.is_some_and(|wait| wait < 0.01);
    let is_short = reading.queue_ms.is_some_and(|queue| queue <= 1_000.0);
    never_waits && is_short && reading.offered.is_none()
}

/// Sender latency without the queue: L and half a linger at best, L and three lingers where
/// there is still no backlog.
fn latency_falls(reading: &Reading<'_>) -> Option<Promise> {
    let (queue_ms, request_ms) = (reading.queue_ms?, reading.request_ms?);
    let linger_ms = reading.settings.linger_ms.value;
    let now = latency::sender_ms_high(queue_ms, request_ms);
    let high = (request_ms + queue_threshold_ms(reading)).min(now);
    let mut promise = of(
        "sender_latency_ms",
        "ms",
        Some(now),
        request_ms + linger_ms / 2.0,
        high,
    );
    promise.assumption =
        "at an unchanged latency of requests; the queue goes, the rate stays at the next ceiling".to_owned();
    Some(promise)
}

/// N4: `in_flight` requests at a time instead of M, up to a window, the link or the broker's serial
/// service.
pub(crate) fn more_in_flight(reading: &Reading<'_>, in_flight: f64) -> Option<(Promise, String)> {
    let now = positive(reading.records_per_second)?;
    let kinds = [
        Kind::Offered,
        Kind::Worker,
        Kind::Link,
        Kind::Window,
        Kind::Receiver,
        Kind::Broker,
    ];
    let ceilings = ceilings(reading, 1.0, &kinds);
    let raw = now * in_flight / reading.settings.in_flight.value.max(1.0);
    // A pipe of one was not full where the rate is of a longer time than L, or the client took its
    // turn between two requests: more of them leave no such gaps.
    let used = reading.used().map_or(1.0, |used| used.clamp(USED_LOW, 1.0));
    let may_fall = may_fall(reading);
    let high = cut(&ceilings, raw * may_fall / used);
    let low = (WINDOW_LOW * raw).min(WINDOW_LOW * high);
    let mut promise = records(now, low_by_receiver(reading, low), high);
    if may_fall > 1.0 {
        promise.assumption = MAY_FALL.to_owned();
    }
    Some((within_a_guessed_window(reading, promise), next(&ceilings)))
}

/// N5: a buffer of `buffer_bytes` at one end, by F12 and F13; counted once, not doubled, because
/// the kernel's cap on doubling is unknown.
///
/// - `other_end`: `Receiver` for a send buffer, `Window` for a receive buffer.
pub(crate) fn larger_window(
    reading: &Reading<'_>,
    hottest: &Pipe<'_>,
    buffer_bytes: f64,
    round_trip_ms: f64,
    other_end: Kind,
) -> Option<(Promise, String)> {
    let now = positive(reading.records_per_second)?;
    let request = hottest.request_bytes?;
    let count = reading.nodes.len().max(1) as f64;
    let connection = pipe::connection(
        (round_trip_ms, reading.broker_ms(hottest)),
        buffer_bytes.max(1.0),
        positive(reading.snapshot.network.bandwidth_bytes_per_second),
        reading.settings.in_flight.value,
    );
    let by_window = wire::bytes_per_second_refined(&connection, request);
    let record = reading.record_bytes()?;
    let raw = clean(Some(by_window / record * count))?;
    let kinds = [Kind::Offered, Kind::Worker, Kind::Link, other_end, Kind::Broker];
    let mut ceilings = ceilings(reading, 1.0, &kinds);
    ceilings.push(Ceiling {
        records_per_second: raw,
        text: format!(
            "a window of {} across {} ms: {} records/s (F12, F13); the kernel's own cap (net.core.wmem_max, net.core.rmem_max) and the other end's window can be lower",
            bytes(buffer_bytes),
            number(round_trip_ms),
            number(raw)
        ),
    });
    let high = lowest(&ceilings).map_or(raw, |ceiling| ceiling.records_per_second);
    let low = match other_end {
        Kind::Receiver => low_by_receiver(reading, WINDOW_LOW * high),
        _ => WINDOW_LOW * high,
    };
    let mut promise = records(now, low, high);
    if reading.offered.is_none() {
        promise.assumption = IF_OFFERED.to_owned();
    }
    Some((promise, next(&ceilings)))
}

/// A promise under another assumption.
pub(crate) fn with(promise: Promise, assumption: &str) -> Promise {
    Promise {
        assumption: assumption.to_owned(),
        ..promise
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, BrokerSockets, ClusterSide};

    /// A flush of one broker is in its local time, and its connections are served meanwhile.
    #[test]
    fn a_broker_s_flush_is_no_ceiling_of_a_connection() {
        let row = Row {
            records: 294.0,
            requests: 19.6,
            records_per_request: 15.0,
            latency: 51.0,
            ..ROW
        };
        let side = |flush, local, remote| {
            let mut snapshot = row.snapshot();
            snapshot.brokers = vec![BrokerSide {
                node_id: Some(1),
                total_micros: Some(10_900.0),
                local_micros: Some(local),
                remote_micros: Some(remote),
                flush_micros: flush,
                ..BrokerSide::default()
            }];
            by_broker(&Reading::of(&snapshot)).unwrap().round()
        };
        // 15 records / 0.9 ms, and 15 records / 10.9 ms.
        assert_eq!(side(Some(10_000.0), 10_500.0, 0.0), 16_667.0);
        assert_eq!(side(Some(10_000.0), 500.0, 10_000.0), 16_667.0);
        assert_eq!(side(None, 10_500.0, 0.0), 1_376.0);
    }

    /// Measured on Apache Kafka across 40 ms before the round trip was known: batches twice as
    /// large carried no more.
    #[test]
    fn nothing_is_promised_beyond_a_receive_buffer_that_may_be_full() {
        let row = Row {
            records: 3_283.0,
            requests: 46.2,
            request_bytes: 65_000.0,
            records_per_request: 71.0,
            latency: 108.0,
            ..ROW
        };
        let promised = |request_ms, bytes| {
            let mut snapshot = Row {
                latency: request_ms,
                ..row
            }
            .snapshot();
            snapshot.cluster = Some(ClusterSide {
                sockets: BrokerSockets {
                    receive_buffer_bytes: Some(bytes),
                    ..BrokerSockets::default()
                },
                ..ClusterSide::default()
            });
            growth(&Reading::of(&snapshot), 2.0).unwrap().0.unknown
        };
        assert!(promised(108.0, 102_400.0).is_some_and(|words| words.contains("receive.buffer")));
        assert_eq!(promised(108.0, 1_048_576.0), None);
        assert_eq!(promised(40.0, 102_400.0), None);
    }

    /// Requests 5.1 times as large carried 5.4 times as much: the client had just begun, and its
    /// own part of their time passed.
    #[test]
    fn a_request_may_take_no_longer_than_its_way_and_the_broker() {
        let row = Row {
            records: 300.0,
            requests: 100.0,
            records_per_request: 3.0,
            latency: 50.0,
            ..ROW
        };
        let promised = |round_trip_ms| {
            let mut snapshot = row.snapshot();
            snapshot.network.round_trip_ms = round_trip_ms;
            growth(&Reading::of(&snapshot), 5.0).unwrap().0
        };
        let unknown = promised(None);
        let near = promised(Some(40.0));
        assert_eq!(near.low, unknown.low);
        assert!(
            (near.high / unknown.high - 1.25).abs() < 0.01,
            "{near:?} {unknown:?}"
        );
        assert_eq!((&*near.assumption, &*unknown.assumption), (MAY_FALL, IF_OFFERED));
        assert!((promised(Some(30.0)).high / unknown.high - 1.5).abs() < 0.02);
        // Something else takes the time.
        assert_eq!(promised(Some(20.0)).high, unknown.high);
    }

    /// One request in flight carried 821 records/s of 2,000 bytes across 40 ms to Apache Kafka,
    /// five carried 1,392: its receive buffer had room for no more. Ottla left the size to the
    /// kernel: 2,757.
    #[test]
    fn more_requests_in_flight_carry_no_more_than_the_brokers_receive_buffer_holds() {
        let row = Row {
            records: 821.0,
            requests: 23.5,
            request_bytes: 71_600.0,
            records_per_request: 35.0,
            in_flight: 1.0,
            latency: 42.5,
            ..ROW
        };
        let promised = |receive_buffer_bytes| {
            let mut snapshot = row.snapshot();
            snapshot.network.round_trip_ms = Some(40.4);
            snapshot.cluster = Some(ClusterSide {
                sockets: BrokerSockets {
                    receive_buffer_bytes,
                    ..BrokerSockets::default()
                },
                ..ClusterSide::default()
            });
            more_in_flight(&Reading::of(&snapshot), 5.0).unwrap()
        };
        let (kafka, next) = promised(Some(102_400.0));
        assert!((kafka.low..=kafka.high).contains(&1_392.0), "{kafka:?}");
        assert!(next.contains("socket.receive.buffer.bytes"), "{next}");
        assert!(promised(None).0.low > kafka.high);
    }
}
