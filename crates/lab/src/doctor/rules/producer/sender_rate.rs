//! producer 10: do requests leave as fast as answers come back?
//!
//! **Asks** what is left where records wait for requests and nothing before explains how long
//! requests take: the rate of requests itself, so larger requests are the lever, in this order:
//! (1) buffer.memory where what is under way takes most of it; (2) max.request.size where requests
//! end at one size although batches of more partitions wait; (3) batch.size where batches are full
//! (phi ≥ 0.85), linger where they are known not to be (phi < 0.5) and it collects at least one
//! record more; (4) more in flight, up to 1 + RTT / D; (5) another producer. More partitions would
//! enlarge requests too, but are permanent, so they are only mentioned.
//!
//! It is also the verdict where a hard backlog exists, the pipe has room and no thread is busy:
//! then what holds the batches is named as far as it is known.
//!
//! **The promise** (F30): requests `g` times as large at an unchanged L carry `X × g / U`, up to
//! the lowest ceiling. Where the application already sends what it wants, the queue shrinks
//! instead.

use crate::doctor::diagnosis::{FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::Partitioner;
use crate::formulas::{batching, wire};

use super::super::found::Found;
use super::super::inference::{self, BATCH_BYTES, power_above};
use super::super::words::{capitalised, known};
use super::backlog::Backlog;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Reading, positive};
use super::round_trip::{first, later};
use super::{BATCH, LINGER, Rule, broker, buffer, capped, refusals, rule, sender_thread};
use crate::model::ceilings::{cut, next};
use crate::model::constants::ROOM;
use crate::numbers::{bytes, number, percent, plain};

pub(crate) const RULE: Rule = rule(
    "producer 10",
    "Do requests leave as fast as answers come back?",
    ask,
);

const HALF_EMPTY: f64 = 0.5;
/// Batches that hold as many whole records as fit are at least this full.
const FILLED: f64 = 0.7;

fn ask(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("R", reading.requests_per_second, "requests/s"),
        known("U", reading.used(), ""),
        known("phi", reading.fill(), ""),
    ];
    let (text, is_doubtful) = match &reading.bound {
        Bound::Pipe => (sentence(reading), sender_thread::is_short_of_cpu(reading)),
        Bound::Blocked(words) => {
            if let Some(found) = broker::retried(reading, numbers.clone(), words) {
                return found;
            }
            let is_known = buffer::of_requests(reading).is_some();
            (
                format!("Batches wait although requests could leave: {words}."),
                !is_known,
            )
        }
        _ => return Found::nothing(numbers, "no"),
    };
    let mut found = Found::verdict(
        numbers,
        Verdict::SenderRate,
        confidence(reading, Verdict::SenderRate, is_doubtful),
        text.clone(),
    );
    if reading.has_full_batches() {
        found = found
            .finding(FindingId::N2, text)
            .note("more partitions for each broker would enlarge requests too, but are permanent");
    } else if reading.knows_fill() && reading.fill().is_some_and(|fill| fill < HALF_EMPTY) {
        found = found.finding(FindingId::N3, text);
    }
    if sender_thread::is_short_of_cpu(reading) {
        found = found.note("the client's machine may be short of processor time: its I/O thread neither waits nor does socket work");
    }
    let is_one = reading.settings.in_flight.value <= 1.0;
    found
        .recommend(
            first(reading)
                .filter(|_| is_one)
                .or_else(|| larger_requests(reading)),
        )
        .refusals(refusals::of_pipe(reading))
}

fn sentence(reading: &Reading<'_>) -> String {
    let near = match reading.backlog {
        Backlog::Soft => "Latency already rises near its ceiling: ",
        _ => "",
    };
    let batch = reading.batch_bytes.map(bytes);
    let text = match (batch, reading.has_full_batches()) {
        (Some(batch), true) => format!(
            "every batch is full at {batch}, and as many requests leave as answers come back: only larger requests carry more."
        ),
        (Some(batch), false) => format!(
            "as many requests leave as answers come back, with batches of {batch}: only larger requests carry more."
        ),
        (None, _) => "requests leave as fast as answers come back, and records wait for them.".to_owned(),
    };
    match near.is_empty() {
        true => capitalised(&text),
        false => format!("{near}{text}"),
    }
}

/// The levers that make requests larger, or their number.
pub(crate) fn larger_requests(reading: &Reading<'_>) -> Option<Recommendation> {
    buffer::larger(reading)
        .or_else(|| buffer::for_bursts(reading))
        .or_else(|| capped::larger(reading))
        .or_else(|| larger_batches(reading))
        .or_else(|| longer_linger(reading))
        .or_else(|| later(reading))
        .or_else(|| larger_than_full(reading))
        .or_else(|| second_producer(reading))
}

/// Under a hard backlog batches are full or of partitions that nothing waits for: where the mean is
/// near the largest, most bytes are in full ones.
fn larger_than_full(reading: &Reading<'_>) -> Option<Recommendation> {
    let largest = inference::largest_batch(reading.snapshot)?;
    let is_near = reading.batch_bytes? >= HALF_EMPTY * largest;
    (reading.backlog == Backlog::Hard && is_near)
        .then(|| larger_than_largest(reading))
        .flatten()
}

/// The next batch.size: at least twice the current one and Kafka's default, up to eight times where
/// the offered rate needs it, and within max.request.size.
fn next_batch_bytes(reading: &Reading<'_>) -> Option<f64> {
    let batch = reading.settings.batch_bytes.value;
    let used = reading.used().unwrap_or(1.0);
    let wanted = reading
        .offered
        .zip(positive(reading.records_per_second))
        .map_or(1.0, |(offered, rate)| (offered / rate).max(1.0));
    let mut growth = 2.0;
    while growth < 8.0 && used.min(1.0) * wanted / growth > ROOM {
        growth *= 2.0;
    }
    let is_larger_than_batch = reading
        .batch_bytes
        .is_some_and(|mean| mean > 1.2 * batch && mean > BATCH_BYTES);
    let mut next = if is_larger_than_batch {
        power_above(growth * reading.batch_bytes.unwrap_or(batch))
    } else if reading.settings.has_full_batches {
        power_above(growth * batch)
    } else {
        growth * batch
    };
    next = next.max(BATCH_BYTES.min(reading.settings.max_request_bytes.value));
    let room = reading.settings.max_request_bytes.value / reading.partitions_per_broker;
    while next > room && next > 2.0 * batch {
        next /= 2.0;
    }
    let is_enough = next >= 1.5 * batch.max(reading.batch_bytes.unwrap_or(0.0));
    (next <= room && is_enough).then_some(next.floor())
}

pub(crate) fn larger_batches(reading: &Reading<'_>) -> Option<Recommendation> {
    if !reading.has_full_batches() && !reading.has_no_room() {
        return None;
    }
    let next = next_batch_bytes(reading)?;
    let batch = reading.settings.batch_bytes.value;
    // A batch holds whole records: 3 of 1,010 bytes in 4,096, and 16 in four times that (F11).
    let held = match (reading.record_bytes(), reading.batch_bytes) {
        (Some(record), Some(held)) if reading.fill_at_most() >= FILLED || reading.has_no_room() => {
            wire::packet_bytes(record, next) / held
        }
        _ => next / batch.max(reading.batch_bytes.unwrap_or(0.0)),
    };
    let growth = held.min(1.5 * next / batch);
    let (promise, next_ceiling) = promise::growth(reading, growth.max(1.0))?;
    Some(Recommendation {
        set: format!("{BATCH}={}", plain(next)),
        why: format!(
            "batches are full, and the number of requests is what ends: requests {} times as large carry more (F30)",
            number(growth)
        ),
        promise,
        next_ceiling,
        cost: format!(
            "{} of buffer.memory for one open batch of each partition",
            bytes(next * reading.partitions())
        ),
    })
}

/// Batches of at least twice the size of the largest, which a backlog has filled.
pub(crate) fn larger_than_largest(reading: &Reading<'_>) -> Option<Recommendation> {
    let full = inference::largest_batch(reading.snapshot)?;
    let next = power_above(2.0 * full).max(BATCH_BYTES);
    let (promise, next_ceiling) = promise::growth(reading, next / full)?;
    (next <= reading.settings.max_request_bytes.value).then(|| Recommendation {
        set: format!("{BATCH}={}", plain(next)),
        why: format!(
            "the largest batches are full at {}: requests carry more of that partition in larger ones (F30)",
            bytes(full)
        ),
        promise,
        next_ceiling,
        cost: format!(
            "{} of buffer.memory for one open batch of each partition",
            bytes(next * reading.partitions())
        ),
    })
}

/// The records per second that fill one batch: the topic's with a sticky partitioner, a partition's
/// with keys (F19).
pub(crate) fn filling_rate(reading: &Reading<'_>) -> Option<f64> {
    let rate = positive(reading.records_per_second)?;
    let partitioner = reading.snapshot.settings.partitioner;
    match partitioner.map(|partitioner| partitioner.value) {
        Some(Partitioner::Sticky) => Some(rate),
        _ => Some(rate / reading.partitions()),
    }
}

/// A longer linger carries more records in each request; it never makes one arrive earlier.
fn longer_linger(reading: &Reading<'_>) -> Option<Recommendation> {
    let linger_ms = reading.settings.linger_ms.value;
    let next_ms = if linger_ms < 5.0 { 5.0 } else { 2.0 * linger_ms };
    let fill = reading.fill_at_most();
    let gained = batching::records_per_linger(filling_rate(reading)?, next_ms - linger_ms);
    // Batches that already wait longer than that do not wait for linger.
    let waits_anyway = reading.queue_ms.is_some_and(|queue| queue > next_ms);
    if fill >= HALF_EMPTY || gained < 1.0 || waits_anyway || next_ms > 100.0 {
        return None;
    }
    let growth = (1.0 + gained * reading.record_bytes()? / reading.batch_bytes?)
        .min(reading.settings.batch_bytes.value / reading.batch_bytes?);
    let (promise, next_ceiling) = promise::growth(reading, growth.max(1.0))?;
    if promise.figure != "records_per_second" {
        return None;
    }
    let longer = number(next_ms - linger_ms);
    Some(Recommendation {
        set: format!("{LINGER}={}", plain(next_ms)),
        why: format!(
            "batches are {} full at most, and {longer} ms more collect {} records more for each (F19)",
            percent(fill),
            number(gained)
        ),
        promise: promise::with(
            promise,
            &format!("at an unchanged latency of requests; each record waits up to {longer} ms longer"),
        ),
        next_ceiling,
        cost: format!("up to {longer} ms of latency"),
    })
}

pub(crate) fn second_producer(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link]);
    let high = cut(&ceilings, 2.0 * now);
    Some(Recommendation {
        set: "a second producer instance in the process, each with half of the records".to_owned(),
        why: "it has connections, a request limit and an I/O thread of its own".to_owned(),
        promise: promise::records(now, (1.5 * now).min(high), high),
        next_ceiling: next(&ceilings),
        cost: "another buffer.memory; order holds only within one instance".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::doctor::Snapshot;
    use crate::doctor::diagnosis::{Diagnosis, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Library, Origin, Setting};

    /// Full batches of one size over 40 ms, as a client pushes them: no setting is known.
    fn full(batch: f64) -> Snapshot {
        let row = Row {
            records: 1_597.0,
            requests: 122.0,
            request_bytes: 3.3 * batch,
            batch,
            latency: 41.0,
            queue: Some(5_000.0),
            buffer_wait: Some(0.6),
            partitions: 3.0,
            thread: Some((0.9, 0.05)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.producer.as_mut().unwrap().batch_bytes_max = Some(1.01 * batch);
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(122.0),
            total_micros: Some(400.0),
            round_trip_ms: Some(40.1),
            ..BrokerSide::default()
        }];
        snapshot
    }

    fn set(diagnosis: &Diagnosis) -> &str {
        let change = diagnosis.recommendation.as_ref();
        change.map_or("", |change| &change.set)
    }

    #[test]
    fn batches_of_one_size_under_a_backlog_are_full_whatever_that_size_is() {
        for batch in [170.0, 1_000.0, 4_000.0, 4_050.0, 8_100.0, 12_000.0] {
            let diagnosis = examine(&full(batch));
            assert!(
                set(&diagnosis).starts_with("batch.size="),
                "{batch}: {diagnosis:#?}"
            );
            assert!(
                diagnosis
                    .refused
                    .iter()
                    .all(|refusal| refusal.set != "batch.size")
            );
        }
    }

    /// Measured: our client tells its batch.size of 4,096, which holds three of these records.
    #[test]
    fn a_batch_without_room_for_another_record_is_full() {
        let mut snapshot = full(3_150.0);
        snapshot.settings.batch_bytes = Some(Setting {
            value: 4_096.0,
            origin: Origin::Told,
        });
        let own = snapshot.producer.as_mut().unwrap();
        own.records_per_second = own.bytes_per_second.map(|bytes| bytes / 1_050.0);
        let diagnosis = examine(&snapshot);
        assert_eq!(set(&diagnosis), "batch.size=16384", "{diagnosis:#?}");
    }

    /// A Kafka client that hides its queue: five requests always under way, batches of one size.
    #[test]
    fn a_client_without_a_queue_time_is_full_when_its_requests_are_always_all_under_way() {
        for library in [Library::Librdkafka, Library::FranzGo] {
            let mut snapshot = full(4_000.0);
            snapshot.client.library = library;
            snapshot.client.software_version = Some("2.16.0".to_owned());
            let own = snapshot.producer.as_mut().unwrap();
            (own.queue_ms, own.queue_ms_max, own.buffer_wait) = (None, None, None);
            let diagnosis = examine(&snapshot);
            assert!(
                matches!(diagnosis.verdict, Verdict::NetworkRtt | Verdict::SenderRate),
                "{diagnosis:#?}"
            );
            assert_eq!(set(&diagnosis), "batch.size=16384", "{diagnosis:#?}");
            // To know batch.size changes nothing where they fill it, or hold as many whole records.
            for (size, record, is_full) in [
                (4_096.0, 250.0, true),
                (5_000.0, 1_333.0, true),
                (16_384.0, 250.0, false),
            ] {
                let mut told = snapshot.clone();
                told.settings.batch_bytes = Some(Setting {
                    value: size,
                    origin: Origin::Stated,
                });
                let own = told.producer.as_mut().unwrap();
                own.records_per_second = own.bytes_per_second.map(|bytes| bytes / record);
                let diagnosis = examine(&told);
                let change = set(&diagnosis).starts_with("batch.size=");
                assert_eq!(change, is_full, "{size}: {diagnosis:#?}");
                let is_pipe = matches!(diagnosis.verdict, Verdict::NetworkRtt | Verdict::SenderRate);
                assert_eq!(is_pipe, is_full, "{size}: {diagnosis:#?}");
            }
            // Half as many under way, and nothing says that a record waits.
            let own = snapshot.producer.as_mut().unwrap();
            own.requests_per_second = Some(61.0);
            own.nodes[0].requests_per_second = Some(61.0);
            let diagnosis = examine(&snapshot);
            assert!(
                matches!(diagnosis.verdict, Verdict::KeepsUp | Verdict::Application),
                "{diagnosis:#?}"
            );
            assert_ne!(diagnosis.confidence, crate::doctor::diagnosis::Confidence::High);
            assert!(diagnosis.refused.is_empty(), "{:?}", diagnosis.refused);
        }
    }
}
