//! Recommendations where threads are the limit: the I/O thread's callbacks, sending threads,
//! threads that wait for each answer.

use crate::doctor::diagnosis::{Finding, FindingId, Recommendation};
use crate::formulas::{ceiling, latency};

use super::contention;
use super::levers::{LINGER, THREADS};
use super::promise::{self, Kind};
use super::reading::{Reading, positive};
use crate::numbers::{number, percent, plain};

pub(crate) fn free_thread(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let kinds = [Kind::Offered, Kind::Worker, Kind::Link, Kind::Pipe];
    let mut ceilings = promise::ceilings(reading, 1.0, &kinds);
    if let Some(work) = positive(reading.io) {
        let records = now / work.max(0.01);
        ceilings.push(promise::Ceiling {
            records_per_second: records,
            text: format!("the I/O thread's own work: {} records/s", number(records)),
        });
    }
    let high = promise::lowest(&ceilings).map_or(now, |ceiling| ceiling.records_per_second.max(now));
    let (micros, share) = match reading.callback_micros.filter(|_| reading.has_slow_callbacks()) {
        Some(micros) => (micros, reading.callback_use().unwrap_or(1.0)),
        None => {
            let share = reading.io_other.unwrap_or(0.0);
            (latency::callback_micros_max(share, now), share)
        }
    };
    // Slow callbacks hold back confirmations, not sending.
    let now = if reading.has_slow_callbacks() {
        now.min(1e6 / micros)
    } else {
        now
    };
    Some(Recommendation {
        set: "hand the callback's work over to another thread".to_owned(),
        why: format!(
            "callbacks run one after another on one thread and take {} µs each (F7): {} of its time",
            number(micros),
            percent(share.min(1.0))
        ),
        promise: promise::records(now, now.max(0.8 * high), high),
        next_ceiling: promise::next(&ceilings),
        cost: "the handed-over work needs a bounded queue of its own".to_owned(),
    })
}

pub(crate) fn worker(reading: &Reading<'_>, finding: Option<&Finding>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let threads = reading.threads?;
    let kinds = [Kind::Offered, Kind::Link, Kind::Pipe, Kind::Thread];
    let ceilings = promise::ceilings(reading, 1.0, &kinds);
    let cut = |raw: f64| {
        promise::lowest(&ceilings).map_or(raw, |ceiling| raw.min(ceiling.records_per_second.max(now)))
    };
    if finding.is_some_and(|finding| finding.id == FindingId::W2) {
        return contended(reading, now, &cut, promise::next(&ceilings));
    }
    let raw = now * (threads + 1.0) / threads;
    let high = cut(raw);
    Some(Recommendation {
        set: format!(
            "{THREADS}={}, each with partitions of its own",
            plain(threads + 1.0)
        ),
        why: "threads have no time left in send() (W1)".to_owned(),
        promise: promise::records(now, (0.9 * raw).min(0.9 * high).max(now.min(high)), high),
        next_ceiling: format!("until kappa rises; {}", promise::next(&ceilings)),
        cost: "order holds only within a thread".to_owned(),
    })
}

fn contended(
    reading: &Reading<'_>,
    now: f64,
    cut: &dyn Fn(f64) -> f64,
    next_ceiling: String,
) -> Option<Recommendation> {
    let found = contention::of(reading)?;
    let (best, threads) = found.best;
    if contention::has_own_partitions(reading) {
        return Some(Recommendation {
            set: format!(
                "{THREADS}={}, or several producers in the process",
                plain(threads)
            ),
            why: "threads wait for a lock of the producer itself (W2): more of them take longer in turn"
                .to_owned(),
            promise: promise::records(now, 0.95 * best, best.max(now)),
            next_ceiling,
            cost: "order holds only within one producer".to_owned(),
        });
    }
    let apart = reading.threads? * 1e6 / reading.send_micros? * found.kappa;
    Some(Recommendation {
        set: "partitions of its own for every thread (explicit partition in each record)".to_owned(),
        why: format!(
            "threads wait for each other's batches (W2); {} threads sent {} records/s",
            number(threads),
            number(best)
        ),
        promise: promise::records(now, best.min(cut(apart)), cut(apart).max(best)),
        next_ceiling,
        cost: "records with the same key must stay with one thread".to_owned(),
    })
}

pub(crate) fn asynchronous(reading: &Reading<'_>) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let request_ms = reading.request_ms?.max(1e-3);
    let wait_ms = reading.queue_ms.unwrap_or(reading.settings.linger_ms.value);
    let threads = reading.threads.unwrap_or(1.0);
    let linger_ms = reading.settings.linger_ms.value;
    let at_once = ceiling::synchronous_records_per_second(threads, 0.0, request_ms);
    let without = now * (wait_ms + request_ms) / request_ms;
    let next_ceiling = format!(
        "1000 / L for each thread: {} records/s; asynchronous sending with callbacks lifts that too",
        number(at_once)
    );
    if linger_ms > 0.0 && wait_ms >= 0.1 * request_ms && without > 1.05 * now {
        return Some(Recommendation {
            set: format!("{LINGER}=0"),
            why: "nothing else fills the batch that a waiting thread has opened; better: use the callback instead of waiting for each answer (O1)".to_owned(),
            promise: promise::records(now, 0.9 * without, without),
            next_ceiling,
            cost: String::new(),
        });
    }
    let pipe = reading.used().map_or(10.0 * now, |used| now / used.max(0.1));
    let ceilings = promise::ceilings(reading, 1.0, &[Kind::Offered, Kind::Link, Kind::Worker]);
    let high = promise::lowest(&ceilings)
        .map_or(pipe, |ceiling| pipe.min(ceiling.records_per_second))
        .max(now);
    Some(Recommendation {
        set: "use the callback of send() instead of waiting for each answer".to_owned(),
        why: "one record is under way at a time, and the round trip is most of its time".to_owned(),
        promise: promise::records(now, now.max(0.8 * high), high),
        next_ceiling: "the request rate with one record in each request; batches then form by themselves"
            .to_owned(),
        cost: "errors arrive later, in the callback".to_owned(),
    })
}
