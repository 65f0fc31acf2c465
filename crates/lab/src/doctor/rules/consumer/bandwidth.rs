//! consumer 7: is the link full?
//!
//! Where the link to the broker carries all that it can, no size of fetches and no number of
//! consumers behind it brings more; only fewer bytes for the same records do. The bandwidth must be
//! known: it is stated, for nothing measures it in passing.
//!
//! - Numbers: bytes per second, the link's bandwidth; lag.
//! - Thresholds: 0.85 of the bandwidth (F15), a lag that is not gone within 10 min.
//! - Says: "The link is full: it carries 14 MB/s, 93 % of its bandwidth."
//! - Source: F15; source experiments with links of 100 Mbit/s.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::fetches;
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use crate::numbers::{bytes, percent};

pub fn bandwidth(reading: &Reading<'_>) -> Found {
    let link = sane(reading.snapshot.network.bandwidth_bytes_per_second);
    let carried = reading.bytes_per_second();
    let numbers = [
        known("bytes", carried, "B/s"),
        known("bandwidth", link, "B/s"),
        known("lag", reading.lag, "records"),
    ]
    .join(", ");
    let (Some(link), Some(carried)) = (link, carried) else {
        return Found::nothing(numbers, "the link's bandwidth is not known");
    };
    if !fetches::is_link_full(reading) {
        return Found::nothing(numbers, "no");
    }
    if !reading.is_behind() || fetches::catches_up_soon(reading) {
        return Found::nothing(numbers, "it is, but the consumer keeps up or soon will");
    }
    let summary = format!(
        "The link is full: it carries {}/s, {} of its bandwidth.",
        bytes(carried),
        percent(carried / link)
    );
    let why = "the link is full; a larger fetch takes longer in proportion";
    let line = Evidence::new("F15", "use", "bytes / bandwidth", carried / link, "of the link")
        .measured("bytes", carried, "B/s")
        .with("bandwidth", link, "B/s", "stated");
    Found::verdict(
        numbers,
        Verdict::NetworkBandwidth,
        Confidence::High,
        summary.clone(),
    )
    .finding(FindingId::N6, summary)
    .evidence([line])
    .recommend(Some(fewer_bytes(reading)))
    .refuse("max.partition.fetch.bytes", why)
    .refuse("fetch.max.bytes", why)
    .refuse("more consumers", "on the same link they share what one has now")
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
