//! W1, W2 and F22: sending threads, and lock contention between them.
//!
//! **Asks**, where threads are the limit, whether more of them would help. **Numbers**: W and X_r
//! with other numbers of threads or partitions (`earlier`). kappa = W(T) / W(T'), G = X_r / the
//! best X_r with fewer threads.
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

use crate::doctor::diagnosis::{Finding, FindingId};
use crate::doctor::snapshot::{Codec, Earlier, Partitioner};
use crate::formulas::change;

use super::reading::{Reading, positive};
use crate::numbers::number;

const GROWS: f64 = 0.8;
const GAIN: f64 = 1.05;
/// W counts as unchanged below this change when partitions are added.
const UNCHANGED: f64 = 0.15;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    pub kappa: f64,
    pub gain: f64,
    /// T', the smallest number of threads that was tried.
    pub threads_before: f64,
    /// The best rate with fewer threads, and with how many threads it was reached.
    pub best: (f64, f64),
    pub is_contended: bool,
}

pub(crate) fn of(reading: &Reading<'_>) -> Option<Contention> {
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
pub(crate) fn is_not_of_partitions(reading: &Reading<'_>) -> bool {
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

pub(crate) fn has_own_partitions(reading: &Reading<'_>) -> bool {
    reading
        .snapshot
        .settings
        .partitioner
        .is_some_and(|partitioner| partitioner.value == Partitioner::PerThread)
}

/// W1 or W2 in words, where threads are the limit.
pub(crate) fn finding(reading: &Reading<'_>, limit: &str) -> Finding {
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
pub(crate) fn slow_codec(reading: &Reading<'_>) -> Option<Finding> {
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
