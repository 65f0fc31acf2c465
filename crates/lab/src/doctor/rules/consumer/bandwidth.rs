//! consumer 7: is the link full?
//!
//! Where the link to the broker carries all that it can, no size of fetches and no number of
//! consumers behind it brings more; only fewer bytes for the same records do. The bandwidth is
//! stated, or shown by a queue: the round trip that the broker's TCP measures while it sends is
//! longer than the shortest one. (Where the link has been full for five minutes without a pause the
//! kernel has forgotten the shortest one.)
//!
//! - Numbers: bytes per second, the link's bandwidth, the round trip at rest and under load; lag.
//! - Thresholds: 0.85 of the bandwidth (F15); or answers that take at least 3 round trips while the
//!   round trip is 1.3 times the shortest and 1 ms; a lag that is not gone within 10 min.
//! - Says: "The link is full: it carries 14 MB/s, 93 % of its bandwidth."
//! - Source: F15; source experiments with links of 100 Mbit/s.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::fetches;
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use super::receive_window::{Queue, queue};
use crate::numbers::{bytes, number, percent};

pub fn bandwidth(reading: &Reading<'_>) -> Found {
    let link = sane(reading.snapshot.network.bandwidth_bytes_per_second);
    let carried = reading.bytes_per_second();
    let queue = queue(reading).filter(|_| reading.waits_for_fetches().is_some());
    let numbers = [
        known("bytes", carried, "B/s"),
        known("bandwidth", link, "B/s"),
        known("round trip under load", queue.map(|queue| queue.loaded_ms), "ms"),
        known("lag", reading.lag, "records"),
    ]
    .join(", ");
    let Some(carried) = carried else {
        return Found::nothing(numbers, "what the link carries is not known");
    };
    let full = match (link, queue) {
        (Some(link), _) if fetches::is_link_full(reading) => stated(carried, link),
        (Some(_), _) => return Found::nothing(numbers, "no"),
        (None, Some(queue)) => queued(carried, queue),
        (None, None) => {
            return Found::nothing(
                numbers,
                "the link's bandwidth is not known, and nothing queues on it",
            );
        }
    };
    if !reading.is_behind() || fetches::catches_up_soon(reading) {
        return Found::nothing(numbers, "it is, but the consumer keeps up or soon will");
    }
    let why = "the link is full; a larger fetch takes longer in proportion";
    Found::verdict(
        numbers,
        Verdict::NetworkBandwidth,
        full.confidence,
        full.summary.clone(),
    )
    .finding(FindingId::N6, full.summary)
    .evidence([full.line])
    .recommend(Some(fewer_bytes(reading)))
    .refuse("max.partition.fetch.bytes", why)
    .refuse("fetch.max.bytes", why)
    .refuse(
        "receive.buffer.bytes",
        "a larger window only makes the queue before the link longer",
    )
    .refuse("more consumers", "on the same link they share what one has now")
}

/// How it is known that the link is full.
struct Full {
    confidence: Confidence,
    summary: String,
    line: Evidence,
}

fn stated(carried: f64, link: f64) -> Full {
    Full {
        confidence: Confidence::High,
        summary: format!(
            "The link is full: it carries {}/s, {} of its bandwidth.",
            bytes(carried),
            percent(carried / link)
        ),
        line: Evidence::new("F15", "use", "bytes / bandwidth", carried / link, "of the link")
            .measured("bytes", carried, "B/s")
            .with("bandwidth", link, "B/s", "stated"),
    }
}

fn queued(carried: f64, queue: Queue) -> Full {
    let waits_ms = queue.loaded_ms - queue.round_trip_ms;
    Full {
        confidence: Confidence::Medium,
        summary: format!(
            "The link is full: it carries {}/s, and what the broker sends queues before it for {} ms.",
            bytes(carried),
            number(waits_ms)
        ),
        line: Evidence::new("F13", "queue on the way", "RTT_loaded - RTT", waits_ms, "ms")
            .measured("RTT_loaded", queue.loaded_ms, "ms")
            .measured("RTT", queue.round_trip_ms, "ms"),
    }
}

fn fewer_bytes(reading: &Reading<'_>) -> Recommendation {
    let now = reading.consumed.unwrap_or(0.0);
    Recommendation {
        set: String::from("a better compression.type at the producers, or a faster link"),
        why: String::from("fewer bytes for the same records are all that a full link has room for"),
        promise: promise(
            "records_per_second",
            Some(now),
            (now, now),
            "records/s",
            "how well the records compress: try it on one producer",
        ),
        next_ceiling: fetches::ceiling_after(reading),
        cost: String::from("processor time at the producers and at the consumers"),
    }
}
