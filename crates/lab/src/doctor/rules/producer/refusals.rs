//! What would not help, each shown by arithmetic on the snapshot.
//!
//! | setting | refused when |
//! |---|---|
//! | linger.ms | batches are full, or already wait longer than linger; the limit is not the sender |
//! | batch.size | batches are not full: linger, or the records of a partition, close them (F18, F19); a request is already as large as max.request.size allows |
//! | send.buffer.bytes | the bytes on the way fit the window (F12, F13) |
//! | max.in.flight | 1 + RTT / D or more are allowed already (F14); the allowed requests fill the window or the link; the pipe is not full |
//! | buffer.memory, max.block.ms, delivery.timeout.ms | there is a backlog: they delay the failure and do not change the drain (F16, F17) |
//! | acks, min.insync.replicas | never as the first lever: acks saves the remote part at most and is a decision about durability; min.insync.replicas changes availability and not latency |
//! | threads | the sender or the network is the limit, or threads already wait for each other (F22) |
//! | partitions | the records of a linger do not fill the batches of the existing partitions; threads' locks are not per partition |
//! | compression.type | the data does not compress (c near 1) |

use crate::doctor::diagnosis::{Refusal, Verdict};
use crate::doctor::snapshot::{Codec, Partitioner};
use crate::formulas::{batching, buffer, ceiling};

use super::backlog::{self, Backlog};
use super::cause;
use super::contention;
use super::failing::Failing;
use super::levers::{
    BATCH, COMPRESSION, IN_FLIGHT, LINGER, PARTITIONS, SEND_BUFFER, THREADS, filling_rate, has_full_batches,
    useful_in_flight,
};
use super::reading::{Pipe, Reading, clean, positive, reaches};
use crate::numbers::{bytes, number, percent};

/// From this share on, a setting is near the largest useful value.
const NEARLY: f64 = 0.7;

pub(crate) fn of(
    reading: &Reading<'_>,
    verdict: Verdict,
    backlog: Backlog,
    failing: &Failing,
) -> Vec<Refusal> {
    let pipe = reading.hottest();
    let found = [
        linger(reading, verdict, backlog),
        batch(reading, verdict),
        pipe.and_then(|pipe| send_buffer(reading, pipe, verdict)),
        in_flight(reading, pipe, verdict),
        buffer_memory(reading, backlog, failing),
        max_block(reading, failing),
        delivery_timeout(failing),
        acks(reading, pipe, verdict),
        min_insync(reading, pipe),
        threads(reading, verdict),
        partitions(reading, verdict),
        compression(reading, verdict),
        downgrade(reading, verdict),
    ];
    found.into_iter().flatten().collect()
}

fn refuse(set: &str, why: String) -> Option<Refusal> {
    Some(Refusal {
        set: set.to_owned(),
        why,
    })
}

/// Whether a verdict is one of a full pipe.
pub(crate) fn is_of_pipe(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::SenderRate
            | Verdict::NetworkRtt
            | Verdict::NetworkWindow
            | Verdict::NetworkBandwidth
            | Verdict::Broker
            | Verdict::SenderThread
    )
}

fn linger(reading: &Reading<'_>, verdict: Verdict, backlog: Backlog) -> Option<Refusal> {
    let waits = reading
        .queue_ms
        .map_or_else(String::new, |queue| format!(", they wait {} ms", number(queue)));
    if has_full_batches(reading) && (is_of_pipe(verdict) || backlog > Backlog::None) {
        let fill = percent(reading.fill().unwrap_or(1.0));
        return refuse(
            LINGER,
            format!("batches are {fill} full{waits}: nothing is left to collect"),
        );
    }
    let queue_ms = reading.queue_ms?;
    if backlog > Backlog::None && is_of_pipe(verdict) && queue_ms > backlog::queue_threshold_ms(reading) {
        return refuse(
            LINGER,
            format!(
                "batches wait {} ms, more than the linger of {} ms: a longer one changes nothing",
                number(queue_ms),
                number(reading.settings.linger_ms.value)
            ),
        );
    }
    None
}

/// F19: the bytes that a partition collects within linger.
fn expected_batch(reading: &Reading<'_>) -> Option<f64> {
    let linger_ms = reading.settings.linger_ms.value;
    let records = batching::records_per_linger(filling_rate(reading)?, linger_ms);
    clean(Some(batching::expected_batch_bytes(
        f64::MAX,
        records,
        reading.record_bytes()?,
        1.0,
    )))
}

fn batch(reading: &Reading<'_>, verdict: Verdict) -> Option<Refusal> {
    let batch = reading.settings.batch_bytes.value;
    if let Some(fill) = reading.fill() {
        if fill < 0.5 {
            return refuse(
                BATCH,
                format!(
                    "batches hold {} of {}: they are {} full, so a larger size changes nothing",
                    bytes(reading.batch_bytes.unwrap_or(0.0)),
                    bytes(batch),
                    percent(fill)
                ),
            );
        }
        let is_linger = reading
            .queue_ms
            .is_some_and(|queue| queue <= backlog::queue_threshold_ms(reading));
        if !reaches(fill, 0.85) && is_linger && !is_of_pipe(verdict) {
            return refuse(
                BATCH,
                format!(
                    "linger closes batches at {} of {}",
                    bytes(reading.batch_bytes.unwrap_or(0.0)),
                    bytes(batch)
                ),
            );
        }
    } else if let Some(expected) = expected_batch(reading).filter(|expected| *expected < 0.85 * batch) {
        return refuse(
            BATCH,
            format!(
                "a linger of {} ms collects {} for a batch of {} (F19)",
                number(reading.settings.linger_ms.value),
                bytes(expected),
                bytes(batch)
            ),
        );
    }
    let fullest = 2.0 * reading.partitions_per_broker * batch.max(reading.batch_bytes?);
    if is_of_pipe(verdict)
        && fullest > 1.05 * reading.settings.max_request_bytes.value
        && has_full_batches(reading)
    {
        return refuse(
            BATCH,
            format!(
                "requests would pass max.request.size = {}",
                bytes(reading.settings.max_request_bytes.value)
            ),
        );
    }
    match verdict {
        Verdict::NetworkBandwidth => refuse(
            BATCH,
            "the link carries no more bytes, however they are cut".to_owned(),
        ),
        Verdict::Worker => refuse(
            BATCH,
            "no batch waits: the threads that fill them are the limit".to_owned(),
        ),
        _ => None,
    }
}

fn send_buffer(reading: &Reading<'_>, pipe: &Pipe, verdict: Verdict) -> Option<Refusal> {
    if verdict == Verdict::NetworkWindow {
        return None;
    }
    if verdict == Verdict::Broker {
        let broker_ms = reading.broker_ms(pipe)?;
        return refuse(
            SEND_BUFFER,
            format!(
                "the broker's D = {} ms is the time, not the way",
                number(broker_ms)
            ),
        );
    }
    let trip = reading.round_trip(pipe)?;
    let on_the_way = cause::on_the_way(reading, pipe, trip.ms)?;
    let window = cause::window_candidates(reading).into_iter().fold(0.0, f64::max);
    let request = pipe.request_bytes.unwrap_or(0.0);
    let is_alone = reading.settings.in_flight.value <= 1.0 && request <= window;
    if window <= 0.0 || !(is_alone || on_the_way < 0.8 * window) {
        return None;
    }
    refuse(
        SEND_BUFFER,
        format!(
            "{} are on the way across {} ms, and {} fit already (F12, F13)",
            bytes(on_the_way),
            number(trip.ms),
            bytes(window)
        ),
    )
}

fn in_flight(reading: &Reading<'_>, pipe: Option<&Pipe>, verdict: Verdict) -> Option<Refusal> {
    let allowed = reading.settings.in_flight.value;
    if verdict == Verdict::NetworkBandwidth {
        return refuse(
            IN_FLIGHT,
            "the link is full: more in flight only lengthens L".to_owned(),
        );
    }
    if !is_of_pipe(verdict) {
        let used = reading.used().filter(|used| *used < 0.5)?;
        return refuse(
            IN_FLIGHT,
            format!("{} of what is allowed is under way", percent(used)),
        );
    }
    let pipe = pipe?;
    if verdict == Verdict::Broker && allowed > 1.0 && super::pipe::is_served_without_pause(pipe) {
        let served = super::pipe::served_share(pipe).unwrap_or(1.0).min(1.0);
        return refuse(
            IN_FLIGHT,
            format!(
                "the broker serves this connection {} of the time, one request after another (F14)",
                percent(served)
            ),
        );
    }
    // A D that was rounded away is an upper bound and refutes nothing.
    let has_time = pipe.broker.as_ref().is_some_and(|broker| broker.ms.is_some());
    if let Some(useful) =
        useful_in_flight(reading, pipe).filter(|useful| has_time && allowed >= NEARLY * useful)
    {
        return refuse(
            IN_FLIGHT,
            format!(
                "above 1 + RTT / D = {} in flight hide no more of the round trip, and {} are allowed (F14)",
                number(useful),
                number(allowed)
            ),
        );
    }
    let request = pipe.request_bytes?;
    let window = positive(reading.snapshot.network.window_bytes)
        .or_else(|| cause::window_candidates(reading).into_iter().reduce(f64::min))
        .filter(|_| reading.round_trip(pipe).is_some())?;
    (allowed > 1.0 && allowed * request >= 0.9 * window && verdict == Verdict::NetworkWindow).then(|| {
        Refusal {
            set: IN_FLIGHT.to_owned(),
            why: format!(
                "{} × {} already fill the window of {}",
                number(allowed),
                bytes(request),
                bytes(window)
            ),
        }
    })
}

fn buffer_memory(reading: &Reading<'_>, backlog: Backlog, failing: &Failing) -> Option<Refusal> {
    if !failing.is_exhausted && !failing.is_expiring && backlog != Backlog::Hard {
        return None;
    }
    let size = reading.settings.buffer_bytes.value;
    let drained = positive(reading.bytes_per_second)?;
    let queue_ms = buffer::queue_ms_max(size, drained);
    let full = reading
        .offered
        .zip(reading.record_bytes())
        .map(|(offered, record)| buffer::seconds_until_full(2.0 * size, offered * record, drained));
    let until = full
        .filter(|seconds| seconds.is_finite())
        .map_or_else(String::new, |seconds| {
            format!("; twice the memory is full after {} s", number(seconds))
        });
    refuse(
        "buffer.memory",
        format!(
            "{} at {}/s are a queue of {} ms, a larger one a longer queue{until} (F16, F17); the drain is the limit",
            bytes(size),
            bytes(drained),
            number(queue_ms)
        ),
    )
}

fn max_block(reading: &Reading<'_>, failing: &Failing) -> Option<Refusal> {
    if !failing.is_exhausted {
        return None;
    }
    let wait = super::promise::buffer_wait_ms(reading).map_or_else(String::new, |wait| {
        format!(
            ": memory for one batch takes {} ms to come free, so it must be above that (F17)",
            number(wait)
        )
    });
    refuse("max.block.ms", format!("it only moves the wall{wait}"))
}

fn delivery_timeout(failing: &Failing) -> Option<Refusal> {
    failing.is_expiring.then(|| Refusal {
        set: "delivery.timeout.ms".to_owned(),
        why: "it hides the errors: records arrive later and the queue is the same".to_owned(),
    })
}

/// The part of L that acks=all waits for.
fn remote_ms(pipe: Option<&Pipe>) -> Option<f64> {
    clean(pipe?.broker.as_ref()?.side.remote_micros).map(|micros| micros / 1_000.0)
}

fn acks(reading: &Reading<'_>, pipe: Option<&Pipe>, verdict: Verdict) -> Option<Refusal> {
    if reading.settings.acks.value == 0 || !is_of_pipe(verdict) {
        return None;
    }
    let request_ms = pipe.and_then(|pipe| pipe.request_ms);
    let saved = remote_ms(pipe).map_or_else(
        || "it saves the wait for replicas at most".to_owned(),
        |remote| match request_ms {
            Some(request) if remote <= 0.05 * request => {
                "it has no effect: replicas take none of L".to_owned()
            }
            Some(request) => format!(
                "it saves {} of L = {} ms at most",
                number(remote),
                number(request)
            ),
            None => format!("it saves {} ms at most", number(remote)),
        },
    );
    refuse(
        "acks",
        format!("{saved}; acks is a decision about durability, not the first lever"),
    )
}

fn min_insync(reading: &Reading<'_>, pipe: Option<&Pipe>) -> Option<Refusal> {
    let remote = remote_ms(pipe)?;
    let broker_ms = reading.broker_ms(pipe?)?;
    (reading.settings.acks.value == -1 && remote >= 0.3 * broker_ms).then(|| Refusal {
        set: "min.insync.replicas".to_owned(),
        why: "it changes when a write is refused, not how long one takes: acks=all waits for every replica in sync".to_owned(),
    })
}

fn threads(reading: &Reading<'_>, verdict: Verdict) -> Option<Refusal> {
    if is_of_pipe(verdict) {
        let used = super::limit::worker_use(reading).filter(|used| reaches(*used, 0.8))?;
        return refuse(
            THREADS,
            format!(
                "threads are {} busy with waiting for the sender: more of them fill the same queue",
                percent(used)
            ),
        );
    }
    let found = contention::of(reading).filter(|found| found.is_contended)?;
    refuse(
        THREADS,
        format!(
            "send() takes {} times as long as with {} threads: more threads wait for each other (F22)",
            number(found.kappa),
            number(found.threads_before)
        ),
    )
}

fn partitions(reading: &Reading<'_>, verdict: Verdict) -> Option<Refusal> {
    if verdict == Verdict::Worker && contention::is_not_of_partitions(reading) {
        return refuse(
            PARTITIONS,
            "W stayed as it was when partitions were added: the lock is not per partition (F22)".to_owned(),
        );
    }
    let is_keyed = reading
        .snapshot
        .settings
        .partitioner
        .is_none_or(|partitioner| partitioner.value != Partitioner::Sticky);
    let collected =
        batching::records_per_linger(filling_rate(reading)?, reading.settings.linger_ms.value.max(1.0));
    (is_keyed && collected < 1.0 && !is_of_pipe(verdict)).then(|| Refusal {
        set: PARTITIONS.to_owned(),
        why: format!("a partition collects {} records in a linger: more partitions make batches smaller and requests more (F19)", number(collected)),
    })
}

fn compression(reading: &Reading<'_>, verdict: Verdict) -> Option<Refusal> {
    let codec = reading
        .snapshot
        .settings
        .compression
        .map(|setting| setting.value)?;
    (verdict == Verdict::NetworkBandwidth && codec != Codec::None && reading.compression_rate >= 0.97).then(
        || Refusal {
            set: COMPRESSION.to_owned(),
            why: format!(
                "c = {}: these records do not compress",
                number(reading.compression_rate)
            ),
        },
    )
}

/// The sticky partitioner came with 2.4: with many threads and even leaders it costs throughput,
/// and it saves requests.
fn downgrade(reading: &Reading<'_>, verdict: Verdict) -> Option<Refusal> {
    let partitioner = reading.snapshot.settings.partitioner.map(|setting| setting.value);
    let is_about_partitioners = matches!(partitioner, Some(Partitioner::Sticky | Partitioner::RoundRobin));
    (verdict == Verdict::Worker && is_about_partitioners && reading.threads.is_some_and(|threads| threads > 1.0)).then(|| Refusal {
        set: "an older client".to_owned(),
        why: "the sticky partitioner costs many threads with even leaders a few percent, and saves requests everywhere else: give threads partitions of their own instead (F21)".to_owned(),
    })
}

/// `R_max` without the current limit on requests in flight, for texts.
pub(crate) fn request_ceiling(reading: &Reading<'_>, pipe: &Pipe) -> Option<f64> {
    let count = reading.nodes.len().max(1) as f64;
    clean(Some(ceiling::requests_per_second_max(
        positive(pipe.request_ms)?,
        pipe.in_flight,
        count,
    )))
}
