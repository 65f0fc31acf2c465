//! S1: is anything failing?
//!
//! **Asks** for errors before anything is tuned. **Numbers**: records dropped because the buffer
//! was full (`bx`), failed records (`e`) by the broker's error code, time in `send()` spent waiting
//! for metadata (`md`), retried records (`rt`).
//!
//! | finding | threshold | why |
//! |---|---|---|
//! | E1 buffer exhausted | any | the consequence of a ceiling that S5 names; a larger buffer only delays the same failure |
//! | E2 records expire | failed records without a broker's error, or a queue near delivery.timeout.ms | the queue time gauge excludes expired batches, so it may look short |
//! | E3 topic or leader unknown | `md` > 0.01, excluding the first fetch of a client that has just started (half a second here) | nothing else is meaningful before |
//! | E4 retries or errors | more than 1 record in 1,000, or any error code of a broker | by code |
//!
//! The case that showed the order: 256 KiB of buffer and one request in flight across 20 ms lost 3
//! 190 records to "Failed to allocate memory". The cause was the round trip, and 25 of the errors
//! were metadata that took longer than max.block.ms = 20.

use std::collections::BTreeMap;

use crate::doctor::diagnosis::{Finding, FindingId, Step};

use super::super::words::{known, step};
use super::reading::{Reading, clean};
use crate::numbers::number;

const METADATA_WAIT: f64 = 0.01;
/// A starting client waits this long for its first metadata; that is no finding.
const FIRST_METADATA_SECONDS: f64 = 1.0;
const RETRIED: f64 = 0.001;
/// Failed records that neither the buffer nor metadata explains, as a share of all failed records.
const UNEXPLAINED: f64 = 0.05;

#[derive(Clone, Debug, Default)]
pub(crate) struct Failing {
    pub findings: Vec<Finding>,
    pub is_exhausted: bool,
    pub is_expiring: bool,
    pub is_unreachable: bool,
    pub has_retries: bool,
    /// Errors in brokers' responses, by code.
    pub errors: BTreeMap<String, f64>,
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Failing, Step) {
    let none = Default::default();
    let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
    let application = &reading.snapshot.application;
    let exhausted = clean(own.exhausted)
        .unwrap_or(0.0)
        .max(clean(application.buffer_errors).unwrap_or(0.0));
    let failed = clean(own.failed_records).unwrap_or(0.0);
    let expired = clean(application.expired_records).unwrap_or(0.0);
    let retried = clean(own.retried_records).unwrap_or(0.0);
    let sent = reading.records_per_second.unwrap_or(0.0) * reading.seconds;
    let mut failing = Failing {
        errors: errors(reading),
        is_exhausted: exhausted > 0.0,
        is_unreachable: is_unreachable(reading),
        ..Failing::default()
    };
    let answered: f64 = failing.errors.values().sum();
    let left = (failed - exhausted - answered).max(0.0);
    let is_late = reading
        .queue_ms_max
        .is_some_and(|most| most >= 0.9 * reading.settings.delivery_timeout_ms.value);
    let is_certain = expired > 0.0 || (failed > 0.0 && is_late);
    failing.is_expiring = is_certain || (left > UNEXPLAINED * failed && !failing.is_unreachable);
    failing.has_retries = retried > 0.0 && retried > RETRIED * sent.max(1.0);
    if failing.is_exhausted {
        failing.findings.push(buffer_exhausted(reading, exhausted));
    }
    if failing.is_expiring {
        failing
            .findings
            .push(records_expire(reading, expired.max(left), is_certain));
    }
    if failing.is_unreachable {
        failing.findings.push(unreachable_topic(reading));
    }
    if failing.has_retries || !failing.errors.is_empty() {
        failing.findings.push(retries(&failing, retried));
    }
    let numbers = [
        known("bx", Some(exhausted), "records"),
        known("e", Some(failed), "records"),
        known("md", clean(own.metadata_wait), "s/s"),
        known("rt", Some(retried), "records"),
    ];
    let names: Vec<String> = failing
        .findings
        .iter()
        .map(|found| format!("{:?}", found.id))
        .collect();
    let answer = if names.is_empty() {
        "no".to_owned()
    } else {
        names.join(", ")
    };
    let step = step("S1", "Is anything failing?", &numbers, answer);
    (failing, step)
}

fn errors(reading: &Reading<'_>) -> BTreeMap<String, f64> {
    let mut errors = BTreeMap::new();
    for side in &reading.snapshot.brokers {
        for (code, count) in &side.errors {
            if let Some(count) = clean(Some(*count)).filter(|count| *count > 0.0) {
                *errors.entry(code.clone()).or_insert(0.0) += count;
            }
        }
    }
    errors
}

fn is_unreachable(reading: &Reading<'_>) -> bool {
    let own = reading.snapshot.producer.as_ref();
    let Some(wait) = own.and_then(|own| clean(own.metadata_wait)) else {
        return false;
    };
    let has_started_now = reading.snapshot.telemetry.pushes.is_none()
        || own.is_some_and(|own| own.connections_created.is_some_and(|count| count > 0.0));
    let allowed = if has_started_now {
        FIRST_METADATA_SECONDS
    } else {
        0.0
    };
    wait > METADATA_WAIT && wait * reading.seconds > allowed
}

fn finding(id: FindingId, text: String) -> Finding {
    Finding {
        id,
        text,
        is_contributing: true,
    }
}

fn buffer_exhausted(reading: &Reading<'_>, exhausted: f64) -> Finding {
    let block = number(reading.settings.max_block_ms.value);
    let mut text = format!(
        "{} records found no buffer memory within max.block.ms = {block} ms",
        number(exhausted)
    );
    if let Some(wait) = super::promise::buffer_wait_ms(reading) {
        text.push_str(&format!(
            ": F17 gives a wait of {} ms for one batch's memory",
            number(wait)
        ));
    }
    finding(FindingId::E1, text)
}

fn records_expire(reading: &Reading<'_>, count: f64, is_certain: bool) -> Finding {
    let timeout = number(reading.settings.delivery_timeout_ms.value);
    let mut text = format!("records expire in the client (delivery.timeout.ms = {timeout} ms)");
    if count > 0.0 {
        text = format!("{} {text}", number(count));
    }
    if !is_certain {
        text.push_str(", as far as the client says: they failed, no broker answered an error, and no buffer was missing");
    }
    if let Some(offered) = reading.offered {
        text.push_str(&format!(
            "; the drain would have to reach the offered {} records/s",
            number(offered)
        ));
    }
    finding(FindingId::E2, text)
}

fn unreachable_topic(reading: &Reading<'_>) -> Finding {
    let wait = reading
        .snapshot
        .producer
        .as_ref()
        .and_then(|own| own.metadata_wait)
        .unwrap_or(0.0);
    let text = format!(
        "send() waits {} s per second for metadata: the topic is missing, not authorised, or its leader cannot be reached",
        number(wait)
    );
    finding(FindingId::E3, text)
}

fn retries(failing: &Failing, retried: f64) -> Finding {
    let codes: Vec<String> = failing
        .errors
        .iter()
        .map(|(code, count)| format!("{code} {} times", number(*count)))
        .collect();
    let mut text = format!("{} records were sent again", number(retried));
    if !codes.is_empty() {
        text.push_str(&format!("; brokers answered {}", codes.join(", ")));
    }
    finding(FindingId::E4, text)
}
