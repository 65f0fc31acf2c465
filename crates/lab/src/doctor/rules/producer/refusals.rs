//! Changes that would not help, each shown by arithmetic on the snapshot: what several verdicts
//! refuse for the same reason.
//!
//! | setting | refused when |
//! |---|---|
//! | linger.ms | batches are full, or already wait longer than linger |
//! | batch.size | batches are known not to be full: by the setting where it is known, otherwise by the largest batch that was seen, and while records wait only if those of the heaviest partition are not full either; a request is already as large as max.request.size allows |
//! | send.buffer.bytes | the bytes on the way fit the window (F12, F13) |
//! | max.in.flight | 1 + RTT / D or more are allowed already (F14); the pipe is not full |
//! | buffer.memory, max.block.ms, delivery.timeout.ms | there is a backlog that is more than bursts: they delay the failure and do not change the drain (F16, F17) |
//! | acks, min.insync.replicas | never as the first lever: acks saves the remote part at most and is a decision about durability; min.insync.replicas changes availability and not latency |
//! | threads | the sender or the network is the limit |
//!
//! No refusal rests on a guess: where batch.size is not known and no batch was seen that shows that
//! it is not full, the value is asked for instead (`evidence.rs`).

use crate::doctor::diagnosis::{Refusal, Words};
use crate::doctor::snapshot::Partitioner;
use crate::formulas::{batching, buffer};

use super::super::inference::{self, is_guess};
use super::backlog::{self, Backlog};
use super::promise;
use super::reading::{Bound, Pipe, Reading, clean, positive, reaches};
use super::round_trip::useful_in_flight;
use super::sender_rate::filling_rate;
use super::{ACKS, BATCH, IN_FLIGHT, LINGER, PARTITIONS, SEND_BUFFER, THREADS, window, worker};
use crate::model::constants::FULL;
use crate::numbers::{bytes, number, percent};

/// From this share on, a setting is near the largest useful value.
const NEARLY: f64 = 0.7;
const HALF_EMPTY: f64 = 0.5;
/// Longer than any usual linger.
const LINGER_MS_LONG: f64 = 100.0;

pub(crate) fn refuse(set: &'static str, why: impl Into<Words>) -> Option<Refusal> {
    Some(Refusal {
        set: set.into(),
        why: why.into(),
    })
}

/// What a full pipe refuses, whatever it is full of.
pub(crate) fn of_pipe(reading: &Reading<'_>) -> Vec<Refusal> {
    let pipe = reading.hottest();
    let found = [
        linger(reading),
        batch(reading),
        pipe.and_then(|pipe| send_buffer(reading, pipe)),
        pipe.and_then(|pipe| in_flight(reading, pipe)),
        acks(reading, pipe),
        min_insync(reading, pipe),
        waiting_threads(reading),
    ];
    let of_memory = of_memory(reading);
    found.into_iter().flatten().chain(of_memory).collect()
}

pub(crate) fn of_memory(reading: &Reading<'_>) -> Vec<Refusal> {
    let found = [
        buffer_memory(reading),
        max_block(reading),
        delivery_timeout(reading),
    ];
    found.into_iter().flatten().collect()
}

pub(crate) fn linger(reading: &Reading<'_>) -> Option<Refusal> {
    let queue_ms = reading.queue_ms;
    let waits = queue_ms.map_or_else(String::new, |queue| {
        format!(", and they wait {} ms", number(queue))
    });
    if reading.has_full_batches() && reading.knows_fill() {
        return refuse(
            LINGER,
            format!("batches are full already{waits}: a longer wait adds no record to them"),
        );
    }
    // A queue of more than a second outlasts any linger that is not known.
    let is_beyond = match is_guess(reading.settings.linger_ms.origin) {
        true => queue_ms.is_some_and(|queue| queue > 1_000.0),
        false => queue_ms.is_some_and(|queue| queue > backlog::queue_threshold_ms(reading)),
    };
    is_beyond.then(|| Refusal {
        set: LINGER.into(),
        why: format!(
            "batches wait {} ms, longer than linger makes them: a longer one changes nothing",
            number(queue_ms.unwrap_or(0.0))
        )
        .into(),
    })
}

/// Batches that are known not to be full gain nothing from a larger size; nor does a request that
/// is as large as it may be.
pub(crate) fn batch(reading: &Reading<'_>) -> Option<Refusal> {
    let fill = reading.fill_at_most();
    if let Some(expected) = expected_batch(reading).filter(|_| reading.bound == Bound::Source) {
        let linger = number(reading.settings.linger_ms.value);
        let size = bytes(reading.settings.batch_bytes.value);
        return refuse(
            BATCH,
            format!(
                "a linger of {linger} ms collects {} for a batch of {size} (F19)",
                bytes(expected)
            ),
        );
    }
    if fill < HALF_EMPTY && reading.batch_bytes.is_some() && !may_fill_some(reading) {
        return refuse(
            BATCH,
            format!(
                "batches hold {}, at most {} of what they may hold: a larger size changes nothing",
                bytes(reading.batch_bytes.unwrap_or(0.0)),
                percent(fill)
            ),
        );
    }
    let closes_early = reading
        .queue_ms
        .is_some_and(|queue| queue <= backlog::queue_threshold_ms(reading));
    if reading.bound == Bound::Source && reading.knows_fill() && fill < 0.845 && closes_early {
        return refuse(
            BATCH,
            format!("linger closes batches when they are {} full", percent(fill)),
        );
    }
    let size = reading.settings.batch_bytes.value.max(reading.batch_bytes?);
    let most = reading.settings.max_request_bytes;
    let is_known = reading.knows_fill() && !is_guess(most.origin);
    (is_known && 2.0 * reading.partitions_per_broker * size > 1.05 * most.value && reading.has_full_batches())
        .then(|| Refusal {
            set: BATCH.into(),
            why: format!("requests would pass max.request.size = {}", bytes(most.value)).into(),
        })
}

/// Whether records wait, and the batches of the heaviest partition may be full although the mean is
/// far below.
fn may_fill_some(reading: &Reading<'_>) -> bool {
    let largest = inference::largest_batch(reading.snapshot);
    let fill = largest.map(|largest| largest / reading.settings.batch_bytes.value);
    reading.bound != Bound::Source
        && fill.is_some_and(|fill| match reading.knows_fill() {
            true => reaches(fill, FULL),
            false => reading.backlog == Backlog::Hard,
        })
}

/// F19: the bytes that a partition collects within linger, where no batch was measured, both
/// settings are known, and that does not fill one.
fn expected_batch(reading: &Reading<'_>) -> Option<f64> {
    let settings = &reading.settings;
    let is_known = !is_guess(settings.batch_bytes.origin) && !is_guess(settings.linger_ms.origin);
    let records = batching::records_per_linger(filling_rate(reading)?, settings.linger_ms.value);
    let expected = clean(Some(batching::expected_batch_bytes(
        f64::MAX,
        records,
        reading.record_bytes()?,
        1.0,
    )))?;
    (is_known && reading.batch_bytes.is_none() && expected < 0.845 * settings.batch_bytes.value)
        .then_some(expected)
}

fn send_buffer(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Refusal> {
    let buffer = reading.settings.send_buffer_bytes?;
    let trip = reading.round_trip(pipe)?;
    let on_the_way = window::on_the_way(reading, pipe, trip.ms)?;
    let largest = window::candidates(reading).into_iter().fold(0.0, f64::max);
    let request = pipe.request_bytes.unwrap_or(0.0);
    let fits = !is_guess(buffer.origin)
        && largest > 0.0
        && (on_the_way < 0.8 * largest || (reading.settings.in_flight.value <= 1.0 && request <= largest));
    if !(fits || window::is_one_trip(reading, pipe, trip.ms)) {
        return None;
    }
    refuse(
        SEND_BUFFER,
        format!(
            "{} are on the way across {} ms, and that takes one round trip already (F12, F13)",
            bytes(on_the_way),
            number(trip.ms),
        ),
    )
}

fn in_flight(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Refusal> {
    let allowed = reading.settings.in_flight;
    // A D that was rounded away is an upper bound and refutes nothing.
    let has_time = pipe.broker.as_ref().is_some_and(|broker| broker.ms.is_some());
    let useful = useful_in_flight(reading, pipe)?;
    (has_time && !is_guess(allowed.origin) && allowed.value >= NEARLY * useful).then(|| Refusal {
        set: IN_FLIGHT.into(),
        why: format!(
            "above 1 + RTT / D = {} in flight hide no more of the round trip (F14)",
            number(useful)
        )
        .into(),
    })
}

/// Where the pipe is not full, more of it stays empty.
pub(crate) fn unused_in_flight(reading: &Reading<'_>) -> Option<Refusal> {
    let used = reading.used().filter(|used| *used < 0.5)?;
    let allowed = reading.settings.in_flight;
    // With a guess of five, half of it may be all of one.
    let under_way = used * allowed.value;
    (!is_guess(allowed.origin) || under_way < 0.5).then(|| Refusal {
        set: IN_FLIGHT.into(),
        why: format!(
            "{} requests are under way at a time: no more are wanted",
            number(under_way)
        )
        .into(),
    })
}

/// Partitions that already collect less than a record in a linger (F19).
pub(crate) fn partitions(reading: &Reading<'_>) -> Option<Refusal> {
    let is_sticky = reading
        .snapshot
        .settings
        .partitioner
        .is_some_and(|partitioner| partitioner.value == Partitioner::Sticky);
    let linger = reading.settings.linger_ms;
    // A linger that is not known may be long.
    let longest_ms = match is_guess(linger.origin) {
        true => linger.value.max(LINGER_MS_LONG),
        false => linger.value.max(1.0),
    };
    let collected = batching::records_per_linger(filling_rate(reading)?, longest_ms);
    (collected < 1.0 && !is_sticky).then(|| Refusal {
        set: PARTITIONS.into(),
        why: "a partition already collects less than one record in a linger: more of them make batches smaller (F19)"
            .into(),
    })
}

fn buffer_memory(reading: &Reading<'_>) -> Option<Refusal> {
    let failing = &reading.failing;
    if super::buffer::of_requests(reading).is_some() || backlog::comes_in_bursts(reading) {
        return None;
    }
    if !failing.is_exhausted && !failing.is_expiring && reading.backlog != Backlog::Hard {
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

fn max_block(reading: &Reading<'_>) -> Option<Refusal> {
    if !reading.failing.is_exhausted {
        return None;
    }
    let wait = promise::buffer_wait_ms(reading).map_or_else(String::new, |wait| {
        format!(
            ": memory for one batch takes {} ms to come free, so it must be above that (F17)",
            number(wait)
        )
    });
    refuse("max.block.ms", format!("records fail later, and as many{wait}"))
}

fn delivery_timeout(reading: &Reading<'_>) -> Option<Refusal> {
    reading.failing.is_expiring.then(|| Refusal {
        set: "delivery.timeout.ms".into(),
        why: "it hides the errors: records arrive later and the queue is the same".into(),
    })
}

/// The part of L that acks=all waits for.
fn remote_ms(pipe: Option<&Pipe<'_>>) -> Option<f64> {
    clean(pipe?.broker.as_ref()?.side.remote_micros).map(|micros| micros / 1_000.0)
}

pub(crate) fn acks(reading: &Reading<'_>, pipe: Option<&Pipe<'_>>) -> Option<Refusal> {
    if reading.settings.acks.value == 0 {
        return None;
    }
    let request_ms = pipe.and_then(|pipe| pipe.request_ms);
    let saved = remote_ms(pipe).map_or_else(
        || "it saves the wait for replicas at most".to_owned(),
        |remote| match request_ms {
            Some(request) if remote <= 0.05 * request => {
                "it has no effect: replicas take none of a request's time".to_owned()
            }
            Some(request) => format!("it saves {} of {} ms at most", number(remote), number(request)),
            None => format!("it saves {} ms at most", number(remote)),
        },
    );
    refuse(
        ACKS,
        format!("{saved}; acks is a decision about durability, not the first lever"),
    )
}

fn min_insync(reading: &Reading<'_>, pipe: Option<&Pipe<'_>>) -> Option<Refusal> {
    let remote = remote_ms(pipe)?;
    let broker_ms = reading.broker_ms(pipe?)?;
    (reading.settings.acks.value == -1 && remote >= 0.3 * broker_ms).then(|| Refusal {
        set: "min.insync.replicas".into(),
        why: "it changes when a write is refused, not how long one takes: acks=all waits for every replica in sync".into(),
    })
}

fn waiting_threads(reading: &Reading<'_>) -> Option<Refusal> {
    let used = worker::used(reading).filter(|used| reaches(*used, 0.8))?;
    refuse(
        THREADS,
        format!(
            "threads are {} busy with waiting for the sender: more of them fill the same queue",
            percent(used)
        ),
    )
}

#[cfg(test)]
mod tests {
    use crate::doctor::Snapshot;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{Codec, Library};

    fn refuses_batches(snapshot: &Snapshot) -> bool {
        let refused = examine(snapshot).refused;
        refused.iter().any(|refusal| refusal.set == "batch.size")
    }

    /// librdkafka fills 65,536 bytes and compresses them to a quarter then.
    #[test]
    fn batches_that_were_full_before_they_were_compressed_are_not_called_empty() {
        let row = Row {
            records: 2_000.0,
            requests: 50.0,
            request_bytes: 16_400.0,
            batch: 16_384.0,
            batch_size: 65_536.0,
            latency: 3.0,
            codec: Some(Codec::Lz4),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        assert!(refuses_batches(&snapshot), "Java counts what it has compressed");
        for library in [Library::Librdkafka, Library::FranzGo] {
            snapshot.client.library = library;
            assert!(!refuses_batches(&snapshot), "{library:?}");
            let mut plain = snapshot.clone();
            plain.settings.compression.as_mut().unwrap().value = Codec::None;
            assert!(refuses_batches(&plain), "{library:?}");
        }
    }

    /// The batches of one partition are full, and those of the others hold a record or two.
    #[test]
    fn a_larger_batch_is_not_refused_where_some_are_full() {
        let row = Row {
            records: 2_000.0,
            requests: 120.0,
            request_bytes: 2_000.0,
            batch: 1_500.0,
            latency: 41.0,
            queue: Some(6_000.0),
            buffer_wait: Some(0.5),
            round_trip: 40.0,
            ..ROW
        };
        for (batch_size, is_refused) in [(4_096.0, false), (0.0, false), (65_536.0, true)] {
            let mut snapshot = Row { batch_size, ..row }.snapshot();
            snapshot.producer.as_mut().unwrap().batch_bytes_max = Some(4_080.0);
            let refused = refuses_batches(&snapshot);
            assert_eq!(refused, is_refused, "{batch_size}: {:#?}", examine(&snapshot));
        }
    }
}
