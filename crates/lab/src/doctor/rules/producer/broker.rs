//! producer 6: does the broker take most of a request's time?
//!
//! **Threshold**: D ≥ 0.5 × L, or R_n × D_n ≥ 0.8 s/s (F14). A mean below 2 ms from histograms of
//! whole milliseconds does not count. The largest part of D says which of the broker's rules speaks
//! (B3 to B6); B7 is this file's own: the broker compresses again what the client has compressed.
//!
//! **The promise** is D without the part that is removed, or for re-compression the rate up to the
//! next ceiling: local time falls to the cost of an append. acks is never the first lever: it
//! changes durability, not the amount of work.

use crate::doctor::diagnosis::{Confidence, Finding, FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::{Codec, Role};
use crate::doctor::used::UsedNumbers;

use super::super::broker::parts::Part;
use super::super::broker::{Judgement, blame, judge};
use super::super::found::Found;
use super::super::inference::is_guess;
use super::super::tenant;
use super::super::words::{capitalised, known};
use super::backlog::{is_served_without_pause, served_share};
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Pipe, Reading, clean, positive, ratio, reaches};
use super::sender_rate::larger_requests;
use super::{IN_FLIGHT, Rule, SEND_BUFFER, refusals, round_trip, rule};
use crate::model::ceilings::{cut, next};
use crate::numbers::{number, percent, plain};

pub(crate) const RULE: Rule = rule(
    "producer 6",
    "Does the broker take most of a request's time?",
    ask,
);

/// The cost of an append on a broker, in milliseconds per byte: 48 MB/s, the article's fit of its
/// slowest broker.
const APPEND_MS_PER_BYTE: f64 = 1.0 / 48_000.0;
/// Local time per byte beyond this multiple of the cost of an append is not appending.
const MORE_THAN_APPENDING: f64 = 5.0;

fn ask(reading: &Reading<'_>) -> Found {
    let pipe = reading.hottest();
    let broker_ms = pipe.and_then(|pipe| reading.broker_ms(pipe));
    let numbers = [
        known("D", broker_ms, "ms"),
        known("L", pipe.and_then(|pipe| pipe.request_ms), "ms"),
        known("R × D", pipe.and_then(served_share), "s/s"),
    ];
    let (Some(pipe), Some(broker_ms), Bound::Pipe) = (pipe, broker_ms, &reading.bound) else {
        return Found::nothing(numbers, "no");
    };
    let share = ratio(Some(broker_ms), pipe.request_ms);
    // A broker that serves several requests of a connection at once is not what they wait for
    // where the round trip takes more of their time.
    let is_far = reading
        .round_trip(pipe)
        .is_some_and(|trip| trip.ms > broker_ms && round_trip::is_most(reading, pipe, trip));
    let is_serial = is_served_without_pause(pipe) && !is_far;
    if !(share.is_some_and(|share| reaches(share, 0.5)) || is_serial) {
        return Found::nothing(numbers, "no");
    }
    let text = match share {
        Some(share) => format!(
            "The broker takes {} ms for each request, {} of the time until its answer.",
            number(broker_ms),
            percent(share.min(1.0))
        ),
        None => format!(
            "The broker takes {} ms for each request and serves this connection without a pause.",
            number(broker_ms)
        ),
    };
    let found = Found::verdict(
        numbers,
        Verdict::Broker,
        confidence(reading, Verdict::Broker, false),
        text,
    );
    with_cause(reading, pipe, found)
}

/// Adds what the parts of D say: finding, change, refusals.
pub(crate) fn with_cause(reading: &Reading<'_>, pipe: &Pipe<'_>, mut found: Found) -> Found {
    let finding = recompresses(reading, pipe).or_else(|| blame(pipe.broker.as_ref()?.side));
    if let Some(finding) = &finding {
        found.summary = format!("{} {}.", found.summary, capitalised(&finding.text));
        found = found.finding(finding.id, finding.text.clone());
    }
    let is_own = finding
        .as_ref()
        .is_some_and(|finding| finding.id != FindingId::B7);
    let part = if is_own { part(pipe) } else { None };
    let tenant = tenant::judge(reading.snapshot).map(|tenant| tenant.recommendation);
    // A tenant that takes the broker's time explains it.
    let change = tenant.or_else(|| recommend(reading, pipe, finding.as_ref()));
    if let Some(part) = part {
        found = found.evidence(part.evidence).refusals(part.refused);
        found.missing.extend(part.missing);
    }
    let allowed = reading.settings.in_flight;
    if allowed.value > 1.0 && !is_guess(allowed.origin) && is_served_without_pause(pipe) {
        let served = percent(served_share(pipe).unwrap_or(1.0).min(1.0));
        let why = format!(
            "the broker serves this connection {served} of the time, one request after another (F14)"
        );
        found = found.refuse(IN_FLIGHT, why);
    }
    // With a smaller buffer than the default the same time would be that of a window.
    let buffer = reading.settings.send_buffer_bytes;
    if buffer.is_some_and(|buffer| !is_guess(buffer.origin)) {
        found = found.refuse(SEND_BUFFER, "the time passes in the broker, not on the way");
    }
    found.recommend(change).refusals(refusals::of_pipe(reading))
}

/// Broker errors that are retried, where batches wait although requests could leave.
pub(crate) fn retried(reading: &Reading<'_>, numbers: impl Into<UsedNumbers>, words: &str) -> Option<Found> {
    let failing = &reading.failing;
    let code = failing.errors.keys().next().filter(|_| failing.has_retries)?;
    let text = format!(
        "The broker refuses requests with {code}, and their partitions wait until they are sent again: {words}."
    );
    let found = Found::verdict(numbers, Verdict::Broker, Confidence::Low, text);
    Some(match reading.hottest() {
        Some(pipe) => with_cause(reading, pipe, found),
        None => found,
    })
}

/// B7: the broker re-compresses what the client has compressed.
fn recompresses(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Finding> {
    let settings = &reading.snapshot.settings;
    let topic = settings.topic_compression.map(|setting| setting.value);
    let own = settings.compression.map(|setting| setting.value);
    let broker = pipe.broker.as_ref()?;
    let local_ms = clean(broker.side.local_micros)? / 1_000.0;
    let request = pipe.request_bytes?;
    let is_other_codec = topic.zip(own).is_some_and(|(topic, own)| topic != own);
    let is_most = broker.ms.is_some_and(|all| local_ms >= 0.5 * all);
    let is_slow =
        is_most && local_ms >= MORE_THAN_APPENDING * APPEND_MS_PER_BYTE * request && local_ms >= 2.0;
    let converted_ms = clean(broker.side.conversion_micros).unwrap_or(0.0) / 1_000.0;
    let is_compressed = own.is_some_and(|codec| codec != Codec::None) || reading.compression_rate < 0.97;
    let per_byte = number(1e6 * local_ms / request);
    let text = if converted_ms >= 0.5 * local_ms && converted_ms >= 1.0 {
        format!(
            "the broker converts or compresses batches again: {} of {} ms of local time (topic compression.type, or an old message format)",
            number(converted_ms),
            number(local_ms)
        )
    } else if is_other_codec && is_slow {
        format!(
            "the topic's compression.type is not the batches' codec: the broker compresses again, {per_byte} ns a byte"
        )
    } else if is_slow && is_compressed && topic != own {
        format!(
            "the broker's local time is {per_byte} ns a byte, more than five times an append: re-compression is suspected (topic compression.type)"
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

fn recommend(reading: &Reading<'_>, pipe: &Pipe<'_>, finding: Option<&Finding>) -> Option<Recommendation> {
    match finding.map(|finding| finding.id) {
        Some(FindingId::B7) => no_recompression(reading, pipe),
        Some(FindingId::B3 | FindingId::B4 | FindingId::B5 | FindingId::B6) => {
            let judgement = part(pipe)?;
            // Requests that wait together share a flush: a larger request waits no longer, so the
            // client has the cheaper lever.
            let is_flush = judgement.finding.id == FindingId::B4 && judgement.part == Part::Remote;
            let client = is_flush.then(|| larger_requests(reading)).flatten();
            Some(client.unwrap_or(judgement.recommendation))
        }
        _ => whole(reading, pipe),
    }
}

fn no_recompression(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Recommendation> {
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
        Kind::Receiver,
        Kind::Thread,
    ];
    let ceilings = promise::ceilings(reading, 1.0, &kinds);
    let high = cut(&ceilings, now * broker_ms / rest_ms).max(now);
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
        next_ceiling: next(&ceilings),
        cost: "the log holds the client's codec instead of the topic's".to_owned(),
    })
}

/// What the broker's rules say about the dominant part of D.
fn part(pipe: &Pipe<'_>) -> Option<Judgement> {
    judge(pipe.broker.as_ref()?.side, Role::Producer)
}

/// The recommendation where D is known, but its parts are not or none of them dominates.
fn whole(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker, Kind::Link]);
    if reading.settings.in_flight.value <= 1.0 {
        let mut promise = promise::records(now, now, cut(&ceilings, 5.0 * now).max(now));
        promise.unknown = Some("how much of the broker's time is work: Apache Kafka serves a connection's requests one after another (F14)".to_owned());
        return Some(Recommendation {
            set: format!("{IN_FLIGHT}={}", plain(5.0)),
            why: "with one in flight the broker's time is all there is; acks=1 or 0 would be a decision about durability, not a lever".to_owned(),
            promise,
            next_ceiling: next(&ceilings),
            cost: "order holds with enable.idempotence=true".to_owned(),
        });
    }
    let broker_ms = reading.broker_ms(pipe)?;
    let high = cut(&ceilings, 2.0 * now).max(now);
    Some(Recommendation {
        set: "more brokers that lead this topic's partitions".to_owned(),
        why: format!(
            "{} ms are the broker's own time, whatever the client sets",
            number(broker_ms)
        ),
        promise: promise::with(
            promise::records(now, 0.8 * high, high),
            "with twice as many brokers, and load that is even among them",
        ),
        next_ceiling: next(&ceilings),
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
