//! producer 13: have the threads that call send() time left?
//!
//! **Threshold**: X_r × W / T ≥ 0.80 without a backlog, W and T known; from 0.70 on where the
//! standard deviation of the acknowledgement time exceeds its mean: a thread that sends without a
//! limit also creates its records; three threads at 0.73 with an unsteady latency (189 ± 221 ms)
//! had reached their limit. Where a soft backlog exists too, the threads contribute.
//!
//! **More threads?** Where threads are the limit, the question is whether more of them help.
//! **Numbers**: W and X_r with other numbers of threads or partitions (`earlier`). kappa = W(T) /
//! W(T'), G = X_r / the best X_r with fewer threads.
//!
//! **Threshold**: kappa ≥ 0.8 × T / T' and G < 1.05: send() slows down as fast as threads are added
//! (W2). A kappa that rises while G still rises is the onset of contention.
//!
//! **Whose lock**: if W does not fall when partitions are added, the lock is not a partition's (a
//! sticky partitioner sends all threads to one batch); if every thread already writes to its own
//! partitions, the lock is the producer's own.
//!
//! **The cases**: 1 → 2 → 3 threads gave 343,500 → 414,600 → 377,300 records/s; 6 → 9 → 18
//! partitions changed nothing; a separate partition for every thread gave 500,000 (the cap), then
//! 610,700; 6 and 9 threads gave less.

use crate::doctor::diagnosis::{Finding, FindingId, Recommendation, Refusal, Verdict};
use crate::doctor::snapshot::{Codec, Earlier, Partitioner};
use crate::formulas::{change, latency};

use super::super::found::Found;
use super::super::words::known;
use super::backlog::Backlog;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Reading, clean, positive, reaches};
use super::{BATCH, PARTITIONS, Rule, THREADS, refusals, rule};
use crate::model::ceilings::{cut, next};
use crate::numbers::{number, percent, plain};

pub(crate) const RULE: Rule = rule("producer 13", "Have the threads that call send() time left?", ask);

const BUSY: f64 = 0.8;
const BUSY_WITH_SPREAD: f64 = 0.7;
const GROWS: f64 = 0.8;
const GAIN: f64 = 1.05;
/// W counts as unchanged below this change when partitions are added.
const UNCHANGED: f64 = 0.15;

#[derive(Clone, Copy, Debug)]
struct Contention {
    pub kappa: f64,
    pub gain: f64,
    /// T', the smallest number of threads that was tried.
    pub threads_before: f64,
    /// The best rate with fewer threads, and with how many threads it was reached.
    pub best: (f64, f64),
    pub is_contended: bool,
}

fn of(reading: &Reading<'_>) -> Option<Contention> {
    let (threads, micros) = (reading.threads?, reading.send_micros?);
    let rate = reading.records_per_second?;
    let fewer: Vec<(f64, f64, f64)> = reading
        .snapshot
        .earlier
        .iter()
        .filter_map(|earlier| {
            let before = positive(earlier.threads).filter(|before| *before < threads)?;
            Some((
                before,
                positive(earlier.send_micros)?,
                positive(earlier.records_per_second)?,
            ))
        })
        .collect();
    let base = fewer.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let best = fewer.iter().max_by(|a, b| a.2.total_cmp(&b.2))?;
    let kappa = change::contention(micros, base.1);
    let gain = change::gain(rate, best.2);
    Some(Contention {
        kappa,
        gain,
        threads_before: base.0,
        best: (best.2, best.0),
        is_contended: kappa >= GROWS * threads / base.0 && gain < GAIN,
    })
}

/// Whether partitions were added at the same number of threads and W stayed the same.
fn is_not_of_partitions(reading: &Reading<'_>) -> bool {
    let (Some(threads), Some(micros)) = (reading.threads, reading.send_micros) else {
        return false;
    };
    let own: f64 = reading
        .snapshot
        .producer
        .iter()
        .flat_map(|own| own.topics.values())
        .filter_map(|topic| positive(topic.partitions))
        .sum();
    reading.snapshot.earlier.iter().any(|earlier: &Earlier| {
        positive(earlier.threads) == Some(threads)
            && positive(earlier.partitions).is_some_and(|before| before < own)
            && positive(earlier.send_micros).is_some_and(|before| (micros / before - 1.0).abs() <= UNCHANGED)
    })
}

fn has_own_partitions(reading: &Reading<'_>) -> bool {
    reading
        .snapshot
        .settings
        .partitioner
        .is_some_and(|partitioner| partitioner.value == Partitioner::PerThread)
}

fn ask(reading: &Reading<'_>) -> Found {
    let share = used(reading);
    let numbers = [
        known("X_r × W / T", share, ""),
        known("T", reading.threads, ""),
        known("W", reading.send_micros, "µs"),
    ];
    let Some(share) = share.filter(|share| is_busy(reading, *share)) else {
        return Found::nothing(numbers, "yes, as far as is known");
    };
    let limit = format!(
        "the sending threads spend {} of their time in send()",
        percent(share)
    );
    match (&reading.bound, reading.backlog) {
        (Bound::Source, _) if reading.is_offer_met() != Some(true) => {}
        (Bound::Pipe, Backlog::Soft) => {
            return Found::nothing(numbers, limit.clone()).contributing(Some(finding(reading, &limit)));
        }
        _ => return Found::nothing(numbers, "their time in send() includes waiting for memory"),
    }
    let finding = finding(reading, &limit);
    let text = format!(
        "The threads that call send() are {} busy: they, and nothing behind them, set the pace.",
        percent(share)
    );
    let mut found = Found::verdict(
        numbers,
        Verdict::Worker,
        confidence(reading, Verdict::Worker, false),
        text,
    )
    .recommend(recommend(reading, finding.id))
    .refuse(BATCH, "no batch waits: the threads that fill them are the limit")
    .refusals(refusals::unused_in_flight(reading))
    .refusals(refused(reading))
    .contributing(slow_codec(reading));
    found.summary = match finding.id {
        FindingId::W2 => format!("{} {}.", found.summary, finding.text),
        _ => found.summary,
    };
    found.finding(finding.id, finding.text)
}

/// `X_r * W / T` (F6).
pub(crate) fn used(reading: &Reading<'_>) -> Option<f64> {
    clean(Some(latency::worker_use(
        reading.records_per_second?,
        reading.send_micros?,
        reading.threads?,
    )))
}

fn is_busy(reading: &Reading<'_>, used: f64) -> bool {
    let application = &reading.snapshot.application;
    let comes_and_goes = application
        .acknowledged_deviation_ms
        .zip(application.acknowledged_ms)
        .is_some_and(|(deviation, mean)| deviation > mean);
    reaches(used, BUSY) || (comes_and_goes && reaches(used, BUSY_WITH_SPREAD))
}

/// W1 or W2 in words, where threads are the limit.
fn finding(reading: &Reading<'_>, limit: &str) -> Finding {
    let contention = of(reading);
    let (id, text) = match contention {
        Some(found) if found.is_contended => (FindingId::W2, contended(reading, found)),
        Some(found) if found.kappa >= 1.0 + GROWS / 2.0 => (
            FindingId::W1,
            format!(
                "{limit}; contention begins: send() takes {} times as long as with {} threads, for {} times the rate",
                number(found.kappa),
                number(found.threads_before),
                number(found.gain)
            ),
        ),
        _ => (FindingId::W1, limit.to_owned()),
    };
    Finding {
        id,
        text,
        is_contributing: false,
    }
}

/// W3, suspected: gzip makes `send()` several times as expensive as other codecs do; W with another
/// codec was not measured.
fn slow_codec(reading: &Reading<'_>) -> Option<Finding> {
    let codec = reading.snapshot.settings.compression?.value;
    (codec == Codec::Gzip).then(|| Finding {
        id: FindingId::W3,
        text: "gzip compresses within send(): lz4 is suspected to lower W by more than 30 %; W with another codec is not known"
            .to_owned(),
        is_contributing: true,
    })
}

fn contended(reading: &Reading<'_>, found: Contention) -> String {
    let whose = if has_own_partitions(reading) {
        "; every thread has partitions of its own, so the lock is the producer's itself"
    } else if is_not_of_partitions(reading) {
        "; more partitions did not change it: all threads write to the sticky partition's one batch, or wait for a lock of the producer itself"
    } else {
        "; partitions are the unit of locking"
    };
    format!(
        "send() takes {} times as long with {} threads as with {} (kappa), and the rate is {} of the best with fewer{whose}",
        number(found.kappa),
        number(reading.threads.unwrap_or(1.0)),
        number(found.threads_before),
        number(found.gain)
    )
}

fn refused(reading: &Reading<'_>) -> Vec<Refusal> {
    let contended = of(reading).filter(|found| found.is_contended);
    let threads = contended.and_then(|found| {
        let why = format!(
            "send() takes {} times as long as with {} threads: more threads wait for each other (F22)",
            number(found.kappa),
            number(found.threads_before)
        );
        refusals::refuse(THREADS, why)
    });
    let partitions = is_not_of_partitions(reading)
        .then(|| {
            refusals::refuse(
                PARTITIONS,
                "send() took as long before partitions were added: the lock is not per partition (F22)",
            )
        })
        .flatten();
    // The sticky partitioner came with 2.4.
    let partitioner = reading.snapshot.settings.partitioner.map(|setting| setting.value);
    let is_about_partitioners = matches!(partitioner, Some(Partitioner::Sticky | Partitioner::RoundRobin));
    let older = (is_about_partitioners && reading.threads.is_some_and(|threads| threads > 1.0))
        .then(|| refusals::refuse("an older client", "the sticky partitioner costs many threads with even leaders a few percent, and saves requests everywhere else: give threads partitions of their own instead (F21)"))
        .flatten();
    [threads, partitions, older].into_iter().flatten().collect()
}

fn recommend(reading: &Reading<'_>, id: FindingId) -> Option<Recommendation> {
    let now = positive(reading.records_per_second)?;
    let threads = reading.threads?;
    let kinds = [Kind::Offered, Kind::Link, Kind::Pipe, Kind::Thread];
    let ceilings = promise::ceilings(reading, 1.0, &kinds);
    let limited = |raw: f64| cut(&ceilings, raw).max(now.min(raw));
    let next_ceiling = next(&ceilings);
    if id == FindingId::W2 {
        return fewer_threads(reading, now, &limited, next_ceiling);
    }
    let raw = now * (threads + 1.0) / threads;
    let high = limited(raw);
    Some(Recommendation {
        set: format!(
            "{THREADS}={}, each with partitions of its own",
            plain(threads + 1.0)
        ),
        why: "threads have no time left in send() (W1)".to_owned(),
        promise: promise::records(now, (0.9 * high).max(now + 0.5 * (high - now)), high),
        next_ceiling: format!("until kappa rises; {next_ceiling}"),
        cost: "order holds only within a thread".to_owned(),
    })
}

fn fewer_threads(
    reading: &Reading<'_>,
    now: f64,
    limited: &dyn Fn(f64) -> f64,
    next_ceiling: String,
) -> Option<Recommendation> {
    let found = of(reading)?;
    let (best, threads) = found.best;
    if has_own_partitions(reading) {
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
        promise: promise::records(now, best.min(limited(apart)), limited(apart).max(best)),
        next_ceiling,
        cost: "records with the same key must stay with one thread".to_owned(),
    })
}
