//! The recommendation: which lever a verdict pulls first, and how far.
//!
//! Whatever fills the pipe, the cheapest levers are the same, in this order: (1) larger requests:
//! batch.size where batches are full (phi ≥ 0.85), linger where they are not (phi < 0.5) and it
//! collects at least one record more; (2) compression, where bytes are the limit; (3) more
//! partitions per broker, which is permanent; (4) more in flight, only where RTT ≥ D and below 1 +
//! RTT / D; (5) acks, only as a decision about durability; (6) another producer. One request in
//! flight across a round trip comes before all of them: five keep the order with idempotence and
//! cost nothing (measured: 4.7 to 5.0 times the rate).

use crate::doctor::diagnosis::{Finding, Recommendation, Verdict};
use crate::doctor::snapshot::Partitioner;
use crate::formulas::{batching, ceiling};

use super::super::inference::BATCH_BYTES;
use super::failing::Failing;
use super::promise::{self, Kind};
use super::reading::{Pipe, Reading, positive, reaches};
use super::throttled::Throttle;
use super::{broker_levers, network_levers, thread_levers};
use crate::numbers::{bytes, number, percent, plain};

pub(crate) const BATCH: &str = "batch.size";
pub(crate) const LINGER: &str = "linger.ms";
pub(crate) const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";
pub(crate) const SEND_BUFFER: &str = "send.buffer.bytes";
pub(crate) const PARTITIONS: &str = "partitions";
pub(crate) const COMPRESSION: &str = "compression.type";
pub(crate) const THREADS: &str = "threads";

const FULL: f64 = 0.85;
const HALF_EMPTY: f64 = 0.5;
/// The most requests in flight for which idempotence preserves order.
const ORDERED: f64 = 5.0;
/// The load after a change that still leaves headroom (F9).
const ROOM: f64 = 0.7;

/// What the levers know in addition to the reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub verdict: Verdict,
    pub failing: &'a Failing,
    pub throttle: Option<&'a Throttle>,
    /// The verdict's own finding.
    pub finding: Option<&'a Finding>,
}

/// The one change for a verdict; none where nothing is wrong or nothing is known.
pub(crate) fn recommend(reading: &Reading<'_>, case: Case<'_>) -> Option<Recommendation> {
    if case.failing.is_unreachable {
        return Some(reachable_topic(reading));
    }
    let pipe = reading.hottest();
    match case.verdict {
        Verdict::Quota => case.throttle.map(quota),
        Verdict::Skew => pipe.map(|pipe| even_leaders(reading, pipe)),
        Verdict::SenderThread => thread_levers::free_thread(reading),
        Verdict::SenderRate => larger_requests(reading),
        Verdict::NetworkRtt => in_flight_first(reading).or_else(|| larger_requests(reading)),
        Verdict::NetworkWindow => pipe.and_then(|pipe| network_levers::send_buffer(reading, pipe)),
        Verdict::NetworkBandwidth => network_levers::fewer_bytes(reading),
        Verdict::Broker => broker_levers::recommend(reading, case.finding),
        Verdict::Worker => thread_levers::worker(reading, case.finding),
        Verdict::Synchronous => thread_levers::asynchronous(reading),
        Verdict::SmallRequests => fewer_requests(reading),
        _ => None,
    }
}

fn reachable_topic(reading: &Reading<'_>) -> Recommendation {
    Recommendation {
        set: "create the topic, allow it, or correct bootstrap.servers and the advertised listeners"
            .to_owned(),
        why: "send() waits for metadata; nothing is worth tuning before that".to_owned(),
        promise: promise::of(
            "metadata_wait",
            "s/s",
            reading
                .snapshot
                .producer
                .as_ref()
                .and_then(|own| own.metadata_wait),
            0.0,
            0.01,
        ),
        next_ceiling: "not known before records flow".to_owned(),
        cost: String::new(),
    }
}

fn quota(throttle: &Throttle) -> Recommendation {
    let (set, why) = if throttle.is_of_request_time {
        (
            "fewer, larger requests: linger.ms and batch.size; then a larger request quota",
            "a request quota counts the broker's time, and that goes with the number of requests",
        )
    } else {
        (
            "a larger byte quota (producer_byte_rate) for this user or client id",
            "the quota is of bytes: batching does not lower them, compression does",
        )
    };
    let next = throttle.bytes_per_second.map_or_else(
        || "the quota itself; it is not known here".to_owned(),
        |quota| format!("the quota itself: {}/s", bytes(quota)),
    );
    Recommendation {
        set: set.to_owned(),
        why: why.to_owned(),
        promise: promise::of("throttle_ms", "ms", Some(throttle.ms), 0.0, throttle.ms),
        next_ceiling: next,
        cost: "the brokers carry what the quota holds back now".to_owned(),
    }
}

fn even_leaders(reading: &Reading<'_>, pipe: &Pipe) -> Recommendation {
    let used: Vec<f64> = reading.nodes.iter().filter_map(|pipe| pipe.used).collect();
    let mean = used.iter().sum::<f64>() / used.len().max(1) as f64;
    let most = pipe.used.unwrap_or(mean);
    let now = reading.records_per_second.unwrap_or(0.0);
    let mut next = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Worker, Kind::Link]);
    let high = now * most / mean.max(1e-3);
    next.push(promise::Ceiling {
        records_per_second: high,
        text: format!(
            "the request rate of all brokers together: {} records/s",
            number(high)
        ),
    });
    let high = promise::lowest(&next).map_or(high, |ceiling| ceiling.records_per_second);
    Recommendation {
        set: "move leaders of the topic off the full broker, or choose keys that spread; adaptive partitioning for records without key"
            .to_owned(),
        why: format!("U would be {} everywhere instead of {} on one broker", number(mean), number(most)),
        promise: promise::records(now, now.min(high), high),
        next_ceiling: promise::next(&next),
        cost: "a reassignment copies no data if only leadership moves; new keys change the order of records".to_owned(),
    }
}

/// Levers 1, 3 and 6: larger requests.
pub(crate) fn larger_requests(reading: &Reading<'_>) -> Option<Recommendation> {
    larger_batches(reading)
        .or_else(|| longer_linger(reading))
        .or_else(|| more_partitions(reading))
        .or_else(|| later_in_flight(reading))
        .or_else(|| another_producer(reading))
}

/// Whether batches are limited by batch.size (F18).
pub(crate) fn has_full_batches(reading: &Reading<'_>) -> bool {
    reading.fill().is_some_and(|fill| reaches(fill, FULL))
}

/// The next batch.size: at least twice the current one and Kafka's default, up to eight times where
/// the offered rate needs it, and within max.request.size.
pub(crate) fn next_batch_bytes(reading: &Reading<'_>) -> Option<f64> {
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
        next_power(growth * reading.batch_bytes.unwrap_or(batch))
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

pub(crate) fn next_power(value: f64) -> f64 {
    let mut power = 1.0;
    while power < value && power < 1e12 {
        power *= 2.0;
    }
    power
}

fn larger_batches(reading: &Reading<'_>) -> Option<Recommendation> {
    if !has_full_batches(reading) {
        return None;
    }
    let next = next_batch_bytes(reading)?;
    let batch = reading.settings.batch_bytes.value;
    let growth = next / batch.max(reading.batch_bytes.unwrap_or(0.0));
    let (promise, next_ceiling) = promise::growth(reading, growth.max(1.0))?;
    let memory = next * reading.partitions_per_broker * reading.nodes.len().max(1) as f64;
    Some(Recommendation {
        set: format!("{BATCH}={}", plain(next)),
        why: format!(
            "batches are {} full and the number of requests is what ends: requests {} times as large carry more (F30)",
            percent(reading.fill().unwrap_or(1.0)),
            number(growth)
        ),
        promise,
        next_ceiling,
        cost: format!(
            "{} of buffer.memory for one open batch of each partition",
            bytes(memory)
        ),
    })
}

/// The records per second that fill one batch: the topic's with a sticky partitioner, a partition's
/// with keys (F19).
pub(crate) fn filling_rate(reading: &Reading<'_>) -> Option<f64> {
    let rate = positive(reading.records_per_second)?;
    let partitions = reading.partitions_per_broker * reading.nodes.len().max(1) as f64;
    match reading
        .snapshot
        .settings
        .partitioner
        .map(|partitioner| partitioner.value)
    {
        Some(Partitioner::Sticky) => Some(rate),
        _ => Some(rate / partitions.max(1.0)),
    }
}

fn longer_linger(reading: &Reading<'_>) -> Option<Recommendation> {
    let linger_ms = reading.settings.linger_ms.value;
    let next_ms = if linger_ms < 5.0 { 5.0 } else { 2.0 * linger_ms };
    let fill = reading.fill()?;
    let gained = batching::records_per_linger(filling_rate(reading)?, next_ms - linger_ms);
    // Batches that already wait longer than that do not wait for linger.
    let waits_anyway = reading.queue_ms.is_some_and(|queue| queue > next_ms);
    if fill >= HALF_EMPTY || gained < 1.0 || waits_anyway || next_ms > 100.0 {
        return None;
    }
    let record = reading.record_bytes()?;
    let growth = (1.0 + gained * record / reading.batch_bytes?)
        .min(reading.settings.batch_bytes.value / reading.batch_bytes?);
    let (mut promise, next_ceiling) = promise::growth(reading, growth.max(1.0))?;
    promise.assumption = format!(
        "at an unchanged latency of requests; each record waits up to {} ms longer",
        number(next_ms - linger_ms)
    );
    Some(Recommendation {
        set: format!("{LINGER}={}", plain(next_ms)),
        why: format!(
            "batches are {} full, and {} ms more collect {} records more for each (F19)",
            percent(fill),
            number(next_ms - linger_ms),
            number(gained)
        ),
        promise,
        next_ceiling,
        cost: format!("up to {} ms of latency", number(next_ms - linger_ms)),
    })
}

fn more_partitions(reading: &Reading<'_>) -> Option<Recommendation> {
    let partitions = reading.partitions_per_broker * reading.nodes.len().max(1) as f64;
    let request = 2.0 * reading.partitions_per_broker * reading.batch_bytes?;
    if request > reading.settings.max_request_bytes.value
        || reading.library() == crate::doctor::snapshot::Library::Librdkafka
    {
        return None;
    }
    let (promise, next_ceiling) = promise::growth(reading, 2.0)?;
    Some(Recommendation {
        set: format!("{PARTITIONS}={}", plain(2.0 * partitions)),
        why: "a request holds one batch of every partition that its broker leads".to_owned(),
        promise,
        next_ceiling,
        cost: "permanent: partitions cannot be taken away, keys move to other partitions, every replica has more to fetch".to_owned(),
    })
}

fn another_producer(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link]);
    let high =
        promise::lowest(&ceilings).map_or(2.0 * now, |ceiling| (2.0 * now).min(ceiling.records_per_second));
    Some(Recommendation {
        set: "a second producer instance in the process, each with half of the records".to_owned(),
        why: "it has connections, a request limit and an I/O thread of its own".to_owned(),
        promise: promise::records(now, (1.5 * now).min(high), high),
        next_ceiling: promise::next(&ceilings),
        cost: "another buffer.memory; order holds only within one instance".to_owned(),
    })
}

/// How many requests in flight are useful, `1 + RTT / D` (F14); none without a round trip.
pub(crate) fn useful_in_flight(reading: &Reading<'_>, pipe: &Pipe) -> Option<f64> {
    let trip = reading.round_trip(pipe)?;
    let broker_ms = pipe
        .broker
        .as_ref()
        .map(|broker| broker.ms.unwrap_or(broker.ms_at_most));
    Some(match broker_ms {
        Some(broker_ms) if broker_ms > 0.0 => ceiling::in_flight_useful(trip.ms, broker_ms),
        _ => f64::INFINITY,
    })
}

/// One to four in flight across a round trip: raise to five first.
fn in_flight_first(reading: &Reading<'_>) -> Option<Recommendation> {
    (reading.settings.in_flight.value < ORDERED)
        .then(|| in_flight(reading, ORDERED))
        .flatten()
}

/// Lever 4, beyond the number that idempotence keeps in order.
fn later_in_flight(reading: &Reading<'_>) -> Option<Recommendation> {
    let allowed = reading.settings.in_flight.value;
    (ORDERED..=1_000.0)
        .contains(&allowed)
        .then(|| in_flight(reading, 2.0 * allowed))
        .flatten()
}

fn in_flight(reading: &Reading<'_>, wanted: f64) -> Option<Recommendation> {
    let pipe = reading.hottest()?;
    let allowed = reading.settings.in_flight.value;
    let useful = useful_in_flight(reading, pipe)?;
    // RTT ≥ D, and room below 1 + RTT / D. Without a known D, five is the most that can be
    // recommended.
    let is_known = useful.is_finite() || wanted <= ORDERED;
    if useful < 2.0 || allowed >= ROOM * useful || !is_known {
        return None;
    }
    let next = wanted.min(useful.floor()).max(allowed + 1.0);
    let (promise, next_ceiling) = promise::more_in_flight(reading, next)?;
    if promise.high < 1.05 * promise.now.unwrap_or(0.0) {
        return None;
    }
    let cost = if next <= ORDERED {
        "order holds with enable.idempotence=true"
    } else {
        "more than five in flight needs enable.idempotence=false: records can be reordered and duplicated by retries"
    };
    Some(Recommendation {
        set: format!("{IN_FLIGHT}={}", plain(next)),
        why: format!(
            "{} in flight wait for the round trip; up to {} are of use (1 + RTT / D, F14)",
            number(allowed),
            number(useful)
        ),
        promise,
        next_ceiling,
        cost: cost.to_owned(),
    })
}

fn fewer_requests(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.requests_per_second)?;
    let linger_ms = reading.settings.linger_ms.value;
    if linger_ms >= 10.0 || (linger_ms >= 5.0 && filling_rate(reading)? * linger_ms / 1_000.0 < 1.0) {
        return Some(Recommendation {
            set: "fewer producers with the same records, or fewer partitions for each".to_owned(),
            why: "linger collects less than a record for each partition: k = rate of the partition × linger (F19)".to_owned(),
            promise: promise::of("requests_per_second", "requests/s", Some(now), now / 2.0, now),
            next_ceiling: "half the producers send half the requests; brokers then have that time for others".to_owned(),
            cost: "a gateway or larger instances".to_owned(),
        });
    }
    let next_ms = if linger_ms < 5.0 { 5.0 } else { 10.0 };
    let (mut low, mut high) = (0.0, 0.0);
    for pipe in &reading.nodes {
        low += batching::requests_per_second_sticky(pipe.requests_per_second, next_ms);
        let partitions = pipe.partitions.unwrap_or(reading.partitions_per_broker);
        high += batching::requests_per_second_keyed(pipe.requests_per_second, partitions, next_ms);
    }
    let mut promise = promise::of("requests_per_second", "requests/s", Some(now), low, high.min(now));
    promise.assumption = format!(
        "low: sticky partitioner, high: keys; each record waits up to {} ms longer",
        number(next_ms - linger_ms)
    );
    Some(Recommendation {
        set: format!("{LINGER}={}", plain(next_ms)),
        why: "requests are nearly empty; brokers pay for each of them (B1, F20)".to_owned(),
        promise,
        next_ceiling: format!(
            "1000 / linger = {} requests/s for each broker",
            number(1_000.0 / next_ms)
        ),
        cost: format!("up to {} ms of latency", number(next_ms - linger_ms)),
    })
}
