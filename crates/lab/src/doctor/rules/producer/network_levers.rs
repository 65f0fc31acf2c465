//! Recommendations where the network is the limit: a larger window, fewer bytes.

use crate::doctor::diagnosis::Recommendation;
use crate::doctor::snapshot::Codec;

use super::cause;
use super::levers::{COMPRESSION, SEND_BUFFER, next_power};
use super::promise::{self, Kind};
use super::reading::{Pipe, Reading, positive};
use crate::numbers::{bytes, number, plain};

/// The next send.buffer.bytes: as much as wants to be on the way, up to bandwidth × RTT and eight
/// times the current value.
pub(crate) fn next_send_buffer(reading: &Reading<'_>, pipe: &Pipe) -> Option<f64> {
    let window = cause::window(reading, pipe)?;
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let wanted = reading.settings.in_flight.value.min(1_000.0) * pipe.request_bytes.unwrap_or(window.bytes);
    let by_link = link.map_or(f64::INFINITY, |link| link * window.round_trip_ms / 1_000.0);
    let wanted = wanted
        .max(window.bytes)
        .min(by_link.max(window.bytes))
        .min(8.0 * window.bytes);
    Some(next_power(wanted.max(1.5 * window.bytes)))
}

pub(crate) fn send_buffer(reading: &Reading<'_>, pipe: &Pipe) -> Option<Recommendation> {
    let window = cause::window(reading, pipe)?;
    let next = next_send_buffer(reading, pipe)?;
    let (promise, next_ceiling) = promise::larger_window(reading, pipe, next)?;
    Some(Recommendation {
        set: format!("{SEND_BUFFER}={}", plain(next)),
        why: format!(
            "{} on the way fill the window of {}; bandwidth × RTT wants more (F12, F13)",
            bytes(window.on_the_way),
            bytes(window.bytes)
        ),
        promise,
        next_ceiling,
        cost: "kernel memory for each connection; the receiver's socket.receive.buffer.bytes and net.core.wmem_max must allow it".to_owned(),
    })
}

pub(crate) fn fewer_bytes(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let codec = reading.snapshot.settings.compression.map(|setting| setting.value);
    let is_compressed = reading.compression_rate < 0.97 || codec.is_some_and(|codec| codec != Codec::None);
    let kinds = [Kind::Offered, Kind::Worker, Kind::Broker];
    let ceilings = promise::ceilings(reading, 1.0, &kinds);
    let cut = |raw: f64| {
        promise::lowest(&ceilings).map_or(raw, |ceiling| raw.min(ceiling.records_per_second.max(now)))
    };
    if is_compressed {
        let mut promise = promise::records(now, cut(1.5 * now), cut(2.0 * now));
        promise.assumption = "a link of twice the bandwidth, at unchanged latency of the broker".to_owned();
        return Some(Recommendation {
            set: "a faster link, or fewer bytes: shorter records".to_owned(),
            why: format!(
                "the link is full of bytes that are compressed already (c = {})",
                number(reading.compression_rate)
            ),
            promise,
            next_ceiling: promise::next(&ceilings),
            cost: "hardware".to_owned(),
        });
    }
    let mut promise = promise::records(now, now, cut(2.0 * now));
    promise.assumption =
        "the rate grows by 1 / c: low is data that does not compress (c = 1), high is c = 0.5; measure c of these records".to_owned();
    Some(Recommendation {
        set: format!("{COMPRESSION}=zstd"),
        why: "bytes are the limit, and they are not compressed: X_p = link × 0.92 / c (N6)".to_owned(),
        promise,
        next_ceiling: promise::next(&ceilings),
        cost: "processor time in send(), and at the broker for validation".to_owned(),
    })
}
