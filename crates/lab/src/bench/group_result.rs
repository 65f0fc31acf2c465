//! Converts groups of a run to their form in the report.

use crate::load::outcome::{ConsumeOutcome, ProduceOutcome, RequestOutcome};
use crate::report::GroupResult;

/// - `is_saturated`: the group had no rate.
pub fn of_producers(outcome: &ProduceOutcome, clients: u32, threads: u32, is_saturated: bool) -> GroupResult {
    GroupResult {
        name: outcome.name.clone(),
        clients,
        threads,
        records: outcome.acknowledged,
        bytes: outcome.bytes,
        records_per_second: per_second(outcome.acknowledged, outcome.seconds),
        errors: outcome.errors.values().sum(),
        error_kinds: outcome.errors.clone(),
        retries: outcome
            .metrics
            .get("record-retry-total")
            .map_or(0, |retries| *retries as u64),
        latency: outcome.latency.result(),
        service: outcome.service.result(),
        is_saturated,
        metrics: outcome.metrics.clone(),
    }
}

pub fn of_consumers(outcome: &ConsumeOutcome, clients: u32) -> GroupResult {
    GroupResult {
        name: outcome.name.clone(),
        clients,
        threads: 1,
        records: outcome.records,
        bytes: outcome.bytes,
        records_per_second: per_second(outcome.records, outcome.seconds),
        errors: outcome.errors.values().sum(),
        error_kinds: outcome.errors.clone(),
        metrics: outcome.metrics.clone(),
        ..GroupResult::default()
    }
}

/// - `is_saturated`: the group had no rate.
pub fn of_requests(outcome: &RequestOutcome, connections: u32, is_saturated: bool) -> GroupResult {
    let counts = [
        ("connections-opened", outcome.opened),
        ("unanswered", outcome.unanswered),
        ("failed", outcome.failed),
    ];
    GroupResult {
        name: outcome.name.clone(),
        clients: connections,
        threads: 1,
        records: outcome.answered,
        bytes: outcome.bytes,
        records_per_second: per_second(outcome.answered, outcome.seconds),
        errors: outcome.errors.values().sum(),
        error_kinds: outcome.errors.clone(),
        latency: outcome.latency.result(),
        service: outcome.service.result(),
        is_saturated,
        metrics: counts.map(|(name, count)| (name.to_owned(), count as f64)).into(),
        ..GroupResult::default()
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}
