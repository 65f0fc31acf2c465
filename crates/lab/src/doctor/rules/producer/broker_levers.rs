//! Recommendations when the broker is the bottleneck, by the largest part of D (B3 to B7).
//!
//! The promise is D without the part that is removed, or for re-compression the rate up to the next
//! ceiling: local time falls to the cost of an append. acks is never the first lever: it changes
//! durability, not the amount of work.

use crate::doctor::diagnosis::{Finding, FindingId, Recommendation};
use crate::doctor::snapshot::{Codec, Role};

use super::super::broker::parts::Part;
use super::super::broker::{Judgement, judge};
use super::levers;
use super::promise::{self, Kind};
use super::reading::{Pipe, Reading, clean, positive};
use crate::numbers::{bytes, number, plain};

/// The cost of an append on a broker, in milliseconds per byte: 48 MB/s, the article's fit of its
/// slowest broker.
const APPEND_MS_PER_BYTE: f64 = 1.0 / 48_000.0;
/// Local time per byte beyond this multiple of the cost of an append is not appending.
const MORE_THAN_APPENDING: f64 = 5.0;

/// B7: the broker re-compresses what the client has compressed.
pub(crate) fn recompresses(reading: &Reading<'_>, pipe: &Pipe) -> Option<Finding> {
    let settings = &reading.snapshot.settings;
    let topic = settings.topic_compression.map(|setting| setting.value);
    let own = settings.compression.map(|setting| setting.value);
    let local_ms = clean(pipe.broker.as_ref()?.side.local_micros)? / 1_000.0;
    let request = pipe.request_bytes?;
    let is_other_codec = topic.zip(own).is_some_and(|(topic, own)| topic != own);
    let is_most = pipe.broker.as_ref()?.ms.is_some_and(|all| local_ms >= 0.5 * all);
    let is_slow =
        is_most && local_ms >= MORE_THAN_APPENDING * APPEND_MS_PER_BYTE * request && local_ms >= 2.0;
    let converted_ms = clean(pipe.broker.as_ref()?.side.conversion_micros).unwrap_or(0.0) / 1_000.0;
    if converted_ms >= 0.5 * local_ms && converted_ms >= 1.0 {
        let text = format!(
            "the broker converts or compresses batches again: {} of {} ms of local time (topic compression.type, or an old message format)",
            number(converted_ms),
            number(local_ms)
        );
        return Some(Finding {
            id: FindingId::B7,
            text,
            is_contributing: false,
        });
    }
    let is_compressed = own.is_some_and(|codec| codec != Codec::None) || reading.compression_rate < 0.97;
    let per_byte = 1e6 * local_ms / request;
    let text = if is_other_codec && is_slow {
        format!(
            "the topic's compression.type is not the batches' codec: the broker compresses again, {} ns a byte",
            number(per_byte)
        )
    } else if is_slow && is_compressed && topic != own {
        format!(
            "the broker's local time is {} ns a byte, more than five times an append: re-compression is suspected (topic compression.type)",
            number(per_byte)
        )
    } else {
        return None;
    };
    Some(Finding {
        id: FindingId::B7,
        text,
        is_contributing: false,
    })
}

pub(crate) fn recommend(reading: &Reading<'_>, finding: Option<&Finding>) -> Option<Recommendation> {
    let pipe = reading.hottest()?;
    let id = finding.map(|finding| finding.id);
    match id {
        Some(FindingId::B7) => no_recompression(reading, pipe),
        Some(FindingId::B3 | FindingId::B4 | FindingId::B5 | FindingId::B6) => {
            let judgement = part(pipe)?;
            // Requests that wait together share a flush: a larger request waits no longer, so the
            // client has the cheaper lever.
            let is_flush = judgement.finding.id == FindingId::B4 && judgement.part == Part::Remote;
            let client = is_flush.then(|| levers::larger_requests(reading)).flatten();
            Some(client.unwrap_or(judgement.recommendation))
        }
        _ => whole(reading, pipe),
    }
}

fn no_recompression(reading: &Reading<'_>, pipe: &Pipe) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let broker_ms = positive(reading.broker_ms(pipe))?;
    let local_ms = clean(pipe.broker.as_ref()?.side.local_micros)? / 1_000.0;
    let request = pipe.request_bytes?;
    let rest_ms = (broker_ms - local_ms + APPEND_MS_PER_BYTE * request).max(0.1);
    let kinds = [
        Kind::Offered,
        Kind::Worker,
        Kind::Link,
        Kind::Window,
        Kind::Thread,
    ];
    let ceilings = promise::ceilings(reading, 1.0, &kinds);
    let raw = now * broker_ms / rest_ms;
    let high = promise::lowest(&ceilings).map_or(raw, |ceiling| raw.min(ceiling.records_per_second.max(now)));
    let low = pipe.request_ms.map_or(now, |request_ms| {
        now * request_ms / (request_ms - local_ms).max(rest_ms)
    });
    Some(Recommendation {
        set: "compression.type=producer on the topic".to_owned(),
        why: format!(
            "the log keeps what the client has compressed: local time falls from {} ms to an append",
            number(local_ms)
        ),
        promise: promise::records(now, low, high),
        next_ceiling: promise::next(&ceilings),
        cost: "the log holds the client's codec instead of the topic's".to_owned(),
    })
}

/// What the broker's rules say about the dominant part of D.
pub(crate) fn part(pipe: &Pipe) -> Option<Judgement> {
    judge(&pipe.broker.as_ref()?.side, Role::Producer)
}

/// The recommendation where D is known, but its parts are not or none of them dominates.
fn whole(reading: &Reading<'_>, pipe: &Pipe) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let link = positive(reading.snapshot.network.bandwidth_bytes_per_second);
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker, Kind::Link]);
    let cut = |raw: f64| {
        promise::lowest(&ceilings).map_or(raw, |ceiling| raw.min(ceiling.records_per_second.max(now)))
    };
    if reading.settings.in_flight.value <= 1.0 {
        let mut promise = promise::records(now, now, cut(5.0 * now));
        promise.assumption = "low: the broker serves a connection one request at a time (Apache Kafka, F14); high: transfer and other work overlap".to_owned();
        return Some(Recommendation {
            set: format!("{}={}", levers::IN_FLIGHT, plain(5.0)),
            why: "with one in flight the broker's time is all there is; acks=1 or 0 would be a decision about durability, not a lever".to_owned(),
            promise,
            next_ceiling: link.map_or_else(|| promise::next(&ceilings), |link| format!("the link of {}/s; {}", bytes(link), promise::next(&ceilings))),
            cost: "order holds with enable.idempotence=true".to_owned(),
        });
    }
    let broker_ms = reading.broker_ms(pipe)?;
    let mut promise = promise::records(now, now, cut(2.0 * now));
    promise.assumption =
        "high: twice as many brokers lead the partitions; proportional where load is even".to_owned();
    Some(Recommendation {
        set: "more brokers that lead this topic's partitions".to_owned(),
        why: format!(
            "D = {} ms is the broker's own time, whatever the client sets",
            number(broker_ms)
        ),
        promise,
        next_ceiling: promise::next(&ceilings),
        cost: "hardware, and a reassignment".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::snapshot::BrokerSide;
    use crate::doctor::{replay, rules};

    #[test]
    fn a_shared_flush_is_no_reason_for_more_fetchers_but_for_larger_requests() {
        // Seen on Ottla: small full batches, a full pipe, and most of each request's time spent
        // waiting for the disk.
        let case = include_str!("../../../../fixtures/doctor/P1_tiny_batches.json");
        let mut snapshot = replay::read(case).unwrap().remove(0);
        snapshot.brokers = vec![BrokerSide {
            local_micros: Some(30.0),
            remote_micros: Some(450.0),
            flush_micros: Some(450.0),
            ..BrokerSide::default()
        }];
        let diagnosis = rules::examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Broker, "{diagnosis:?}");
        assert_eq!(diagnosis.findings[0].id, FindingId::B4);
        let set = diagnosis.recommendation.map(|recommendation| recommendation.set);
        assert!(
            set.as_deref().is_some_and(|set| set.starts_with("batch.size=")),
            "{set:?}"
        );
    }
}
