//! Confidence, and the consistency checks that the numbers of one reading must pass.
//!
//! **High**: client and broker agree (X_b = R × S within 5 %, F1; R_n of both within 5 %) and the
//! verdict depends on no inferred setting. **Medium**: one side only, an inferred or assumed
//! setting, or a broker blamed by times averaged over all its clients. **Low**: fewer than 100
//! requests; a number that the verdict needs is missing its sample; two regimes in one window (a
//! backlog whose longest wait is more than ten times its mean: without a backlog a single pause
//! does that); or impossible numbers. Those are a queue longer than buffer.memory can hold (F16: 14
//! s where 32 MiB allow 1.6 s, so the settings are not the stated ones) and more requests in flight
//! than allowed (F8).

use crate::doctor::diagnosis::{Confidence, Verdict};
use crate::doctor::snapshot::Library;
use crate::formulas::buffer;

use super::super::inference::is_guess;
use super::backlog::Backlog;
use super::reading::{Reading, positive, ratio};
use crate::numbers::{bytes, number, percent};

const AGREES: f64 = 0.05;
/// The tolerance on F16 (queue length) and on F8 (requests in flight): their means are from
/// different windows.
const LONGER: f64 = 1.25;

#[derive(Clone, Debug, Default)]
pub(crate) struct Checks {
    pub notes: Vec<String>,
    is_consistent: bool,
    is_agreed: bool,
    is_contradicted: bool,
}

pub(crate) fn run(reading: &Reading<'_>) -> Checks {
    let mut checks = Checks {
        is_consistent: true,
        ..Checks::default()
    };
    queue_fits(reading, &mut checks);
    in_flight_fits(reading, &mut checks);
    bytes_agree(reading, &mut checks);
    brokers_agree(reading, &mut checks);
    checks
}

fn queue_fits(reading: &Reading<'_>, checks: &mut Checks) {
    let Some((queue_ms, rate)) = reading.queue_ms.zip(positive(reading.bytes_per_second)) else {
        return;
    };
    let size = reading.settings.buffer_bytes.value;
    let most_ms = buffer::queue_ms_max(size, rate);
    if queue_ms > LONGER * most_ms {
        checks.is_consistent = false;
        checks.notes.push(format!(
            "the numbers do not fit each other (F16): a queue of {} ms is impossible with buffer.memory = {}, which holds {} ms at {}/s; \
             about {} must have been set",
            number(queue_ms),
            bytes(size),
            number(most_ms),
            bytes(rate),
            bytes(queue_ms / 1_000.0 * rate)
        ));
    }
}

fn in_flight_fits(reading: &Reading<'_>, checks: &mut Checks) {
    let Some(used) = reading.used().filter(|used| *used > LONGER) else {
        return;
    };
    checks.is_consistent = false;
    checks.notes.push(format!(
        "the numbers do not fit each other (F8): {} of the requests that may be in flight are; rate and latency are of different \
         windows, or more than {} may be",
        percent(used),
        number(reading.settings.in_flight.value)
    ));
}

fn bytes_agree(reading: &Reading<'_>, checks: &mut Checks) {
    let product = reading
        .requests_per_second
        .zip(reading.request_bytes)
        .map(|(rate, size)| rate * size);
    let Some(share) = ratio(product, reading.bytes_per_second) else {
        return;
    };
    if (share - 1.0).abs() > 3.0 * AGREES {
        checks.notes.push(format!(
            "R × S is {} of the bytes sent (F1): rate and size are of different windows",
            percent(share)
        ));
    }
    checks.is_agreed = (share - 1.0).abs() <= AGREES;
}

fn brokers_agree(reading: &Reading<'_>, checks: &mut Checks) {
    let mut has_both = false;
    for pipe in &reading.nodes {
        let seen = pipe
            .broker
            .as_ref()
            .and_then(|broker| positive(broker.side.requests_per_second));
        let Some(share) = ratio(seen, Some(pipe.requests_per_second)) else {
            continue;
        };
        has_both = reading.has_own_numbers();
        checks.is_contradicted |= (share - 1.0).abs() > AGREES;
    }
    checks.is_agreed &= has_both && !checks.is_contradicted;
}

/// How certain the verdict is.
pub(crate) fn confidence(
    reading: &Reading<'_>,
    checks: &Checks,
    verdict: Verdict,
    backlog: Backlog,
    has_doubt: bool,
) -> Confidence {
    let is_short = reading.requests.is_some_and(|requests| requests < 100.0);
    let is_mixed = backlog > Backlog::None
        && reading
            .queue_ms_max
            .zip(reading.queue_ms)
            .is_some_and(|(most, mean)| most > 10.0 * mean);
    if is_short || is_mixed || has_doubt || !checks.is_consistent || lacks_sample(reading) {
        return Confidence::Low;
    }
    let settings = &reading.settings;
    let decides_by_setting = match verdict {
        Verdict::Quota | Verdict::Broker | Verdict::SenderThread | Verdict::NetworkBandwidth => false,
        Verdict::KeepsUp | Verdict::Application | Verdict::Worker => false,
        Verdict::SmallRequests | Verdict::Synchronous => is_guess(settings.linger_ms.origin),
        _ => is_guess(settings.in_flight.origin) || is_guess(settings.batch_bytes.origin),
    };
    let blames_a_mean =
        verdict == Verdict::Broker && reading.snapshot.brokers.iter().any(|side| side.is_of_all_clients);
    if checks.is_agreed && !decides_by_setting && !blames_a_mean {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

/// Whether a Java client sent requests but no latency for them.
fn lacks_sample(reading: &Reading<'_>) -> bool {
    let Some(own) = reading.snapshot.producer.as_ref() else {
        return false;
    };
    let sends_all = matches!(reading.library(), Library::Java | Library::Ottla);
    let lacks = |value: Option<f64>, name: &str| {
        value.is_none() && own.without_sample.iter().any(|metric| metric.contains(name))
    };
    sends_all
        && (lacks(own.request_ms, "request.latency")
            || lacks(own.queue_ms, "record.queue.time")
            || lacks(own.batch_bytes, "batch.size"))
}
