//! What fetches can bring: the size that bounds them, the rate that follows, the link.

use super::super::super::diagnosis::{Evidence, Promise};
use super::super::engine::PROMISE_WIDTH;
use super::found::promise;
use super::reading::{Reading, SIZE_AT_LIMIT, is_known, sane};
use crate::formulas::consumer::{catch_up_seconds, fetch_bytes_per_second};
use crate::model::ceilings::by_window;
use crate::model::pipe::SEND_WINDOW_SHARE;
use crate::numbers::{bytes, number};

/// F15: a link that carries this share of its bandwidth is full.
const LINK_USE_HIGH: f64 = 0.85;

/// A group that catches up within this time is left alone; a lag that lasts longer is an incident
/// of its own.
pub const CATCH_UP_SECONDS: f64 = 600.0;

/// A change that gains less than this is none.
pub const GAIN_MIN: f64 = 1.2;

/// What is written varies by as much from window to window.
pub const RATE_VARIES: f64 = 0.95;

/// The setting that bounds the size of a fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeLimit {
    pub name: &'static str,
    /// The setting's value, and its origin.
    pub value: (f64, &'static str),
    /// Kafka's default of it.
    pub default: f64,
    /// What a fetch may bring with it.
    pub fetch_bytes: f64,
}

impl SizeLimit {
    /// The setting that fetches are seen to reach. Without a known value it is derived: a broker
    /// that has far more unread than it answers with was not allowed to send more.
    pub fn of(reading: &Reading<'_>) -> Option<SizeLimit> {
        let size = reading.fetch_bytes.filter(|size| *size > 0.0)?;
        let unread = reading.unread_bytes();
        let has_more = reading.has_more_than_fetches_bring();
        let parts = lagging(reading);
        let (all, each) = (reading.max_bytes, reading.partition_bytes);
        if size >= SIZE_AT_LIMIT * all.0 {
            return Some(SizeLimit::of_all(all, all.0));
        }
        if is_known(all) && all.0 <= each.0 * parts {
            let is_reached = has_more && size >= 0.5 * all.0;
            return is_reached.then(|| SizeLimit::of_all(all, all.0));
        }
        // A fetch asks for up to all partitions with records, at least for one of them.
        let is_between = size >= SIZE_AT_LIMIT * each.0 && size <= 1.3 * each.0 * parts;
        if is_between && (has_more || unread.is_none()) {
            let known = if is_known(each) { each.1 } else { "inferred" };
            return Some(SizeLimit::of_each((each.0, known), size));
        }
        if is_known(each) {
            // Batches larger than half of the limit leave the rest of it empty.
            let is_reached = has_more && size >= 0.5 * each.0 && size <= 1.3 * each.0 * parts;
            return is_reached.then(|| SizeLimit::of_each(each, size));
        }
        let waits = reading.waits_for_fetches().is_some();
        (has_more && waits).then(|| SizeLimit::of_each((size / parts, "inferred"), size))
    }

    fn of_all(value: (f64, &'static str), fetch_bytes: f64) -> SizeLimit {
        SizeLimit {
            name: "fetch.max.bytes",
            value,
            default: 52_428_800.0,
            fetch_bytes,
        }
    }

    fn of_each(value: (f64, &'static str), fetch_bytes: f64) -> SizeLimit {
        SizeLimit {
            name: "max.partition.fetch.bytes",
            value,
            default: 1_048_576.0,
            fetch_bytes,
        }
    }

    pub fn is_below_default(&self) -> bool {
        self.value.0 < 0.8 * self.default
    }
}

/// Partitions that one broker has records of, at least one.
fn lagging(reading: &Reading<'_>) -> f64 {
    let partitions = &reading.consumer.partitions;
    let behind = partitions
        .iter()
        .filter(|partition| sane(partition.lag).is_some_and(|lag| lag > 0.0))
        .count() as f64;
    let all = if behind > 0.0 {
        behind
    } else {
        reading.partitions.unwrap_or(1.0)
    };
    (all / reading.sides().count().max(1) as f64).max(1.0)
}

/// Whether the link carries all that it can; `None`: its bandwidth is not known.
pub fn link_use(reading: &Reading<'_>) -> Option<f64> {
    let link = sane(reading.snapshot.network.bandwidth_bytes_per_second).filter(|link| *link > 0.0)?;
    Some(reading.bytes_per_second()? / link)
}

pub fn is_link_full(reading: &Reading<'_>) -> bool {
    link_use(reading).is_some_and(|share| share >= LINK_USE_HIGH)
}

/// Whether the consumer will have caught up soon without any change.
pub fn catches_up_soon(reading: &Reading<'_>) -> bool {
    seconds_left(reading).is_some_and(|seconds| seconds <= CATCH_UP_SECONDS)
}

/// How long the lag lasts at the present rates, where it shrinks.
pub fn seconds_left(reading: &Reading<'_>) -> Option<f64> {
    let (lag, consumed, produced) = (reading.lag?, reading.consumed?, reading.produced?);
    let seconds = catch_up_seconds(lag, consumed, produced);
    (reading.is_shrinking() == Some(true) && seconds.is_finite()).then_some(seconds)
}

/// Records per second that neither the application nor the link lets it exceed.
fn others_allow(reading: &Reading<'_>) -> Option<f64> {
    let link = sane(reading.snapshot.network.bandwidth_bytes_per_second)
        .zip(reading.record_bytes())
        .map(|(link, size)| link / size);
    [reading.work_limit(), link]
        .into_iter()
        .flatten()
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .reduce(f64::min)
}

/// What the brokers' send buffers let through.
pub struct BrokersWindow {
    pub buffer_bytes: f64,
    /// In records per second: what they let through at least, and at most.
    pub rates: (f64, f64),
}

/// As many send buffers as brokers send to it, where brokers set them.
pub fn brokers_window(reading: &Reading<'_>) -> Option<BrokersWindow> {
    let sockets = reading.snapshot.cluster.as_ref()?.sockets;
    let buffer_bytes = sane(sockets.send_buffer_bytes)?;
    let senders = sockets.brokers.min(reading.partitions.unwrap_or(f64::INFINITY));
    let rate = by_window(
        buffer_bytes,
        reading.round_trip_ms?,
        senders.max(1.0),
        reading.record_bytes()?,
    );
    (rate.is_finite() && rate > 0.0).then_some(BrokersWindow {
        buffer_bytes,
        rates: (SEND_WINDOW_SHARE.0 * rate, SEND_WINDOW_SHARE.1 * rate),
    })
}

/// The rate after a change with which fetches bring between `low` and `high` records per second:
/// what is written once the consumer has caught up, more until then, never more than the
/// application, the link and the brokers' send buffers allow.
pub fn promised_rate(reading: &Reading<'_>, (low, high): (f64, f64), unknown: Option<&str>) -> Promise {
    let now = reading.consumed.unwrap_or(0.0);
    let bounds = match brokers_window(reading) {
        Some(window) => (
            low.min(window.rates.0.max(now)),
            high.min(window.rates.1.max(now)),
        ),
        None => (low, high),
    };
    promised_with_other_brokers(reading, bounds, unknown)
}

/// The same where the brokers' send buffers change.
pub fn promised_with_other_brokers(
    reading: &Reading<'_>,
    (low, high): (f64, f64),
    unknown: Option<&str>,
) -> Promise {
    let now = reading.consumed.unwrap_or(0.0);
    let figure = "records_per_second";
    let most = others_allow(reading).unwrap_or(f64::INFINITY);
    let (low, high) = (low.min(most), high.min(most));
    let written = reading.produced.filter(|rate| *rate > now);
    let least = written.map_or(low, |written| low.min(RATE_VARIES * written));
    if let Some(unknown) = unknown.filter(|_| least < GAIN_MIN * now) {
        return promise(figure, Some(now), (now, now), "records/s", unknown);
    }
    let bounds = (least, high.min(PROMISE_WIDTH * least).max(least));
    let assumption = if written.is_some_and(|written| written <= low) {
        "what is written, and more while it catches up"
    } else {
        "while it catches up"
    };
    promise(figure, Some(now), bounds, "records/s", assumption)
}

/// What limits the consumer after its fetches.
pub fn ceiling_after(reading: &Reading<'_>) -> String {
    let work = reading.work_limit();
    let window = brokers_window(reading);
    let is_lower = |window: &BrokersWindow| work.is_none_or(|work| window.rates.1 < work);
    if let Some(window) = window.filter(is_lower) {
        return format!(
            "socket.send.buffer.bytes of the brokers, {}: {} to {} records/s (F12)",
            bytes(window.buffer_bytes),
            number(window.rates.0),
            number(window.rates.1)
        );
    }
    match work {
        Some(limit) => format!("the application's own work: {} records/s (F29)", number(limit)),
        None => String::from("the link's bandwidth, then the application's work: neither is known"),
    }
}

/// F29: the ceiling of sequential fetches, because a connection has one fetch under way at a time.
pub fn ceiling(reading: &Reading<'_>) -> Option<Evidence> {
    let (size, fetch_ms) = (reading.fetch_bytes.filter(|size| *size > 0.0)?, reading.fetch_ms?);
    let result = fetch_bytes_per_second(size, 1_000.0 / fetch_ms);
    result.is_finite().then(|| {
        Evidence::new(
            "F29",
            "fetch_max",
            "1000 * size / latency",
            result,
            "B/s per broker",
        )
        .with("size", size, "B", reading.origin_of_fetch_size())
        .measured("latency", fetch_ms, "ms")
    })
}

/// The same ceiling in records.
pub fn records_per_second_max(reading: &Reading<'_>) -> Option<f64> {
    let rate = ceiling(reading)?.result / reading.record_bytes()?;
    Some(rate).filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// The next power of two from this value on, within a range.
pub fn power_of_two(least: f64, range: (f64, f64)) -> f64 {
    let mut value = range.0;
    while value < least && value < range.1 {
        value *= 2.0;
    }
    value
}
