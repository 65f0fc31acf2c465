//! consumer 0: is there evidence?
//!
//! At least two pushes, or a complete reading that was not pushed, and no restart in the window. A
//! client that never pushes is judged by its lag at two moments and its fetches, as brokers see
//! them.
//! Unlike for a producer, no minimum number of requests is required: a consumer that waits for
//! records or processes them fetches at most twice a second, and that is the evidence.
//!
//! - Numbers: pushes, the window's length, whether the instance restarted.
//! - Thresholds: 2 pushes.
//! - Says: "Not enough data yet: 1 push; next push in 4 s"; for clients that send little, what is
//!   missing.
//! - Source: decision tree, S0; measured here (0.17 fetches/s of a consumer that processes, 2 of
//!   one that waits).

use super::super::super::snapshot::{ConsumedPartition, Consumer, Library, Snapshot};
use crate::numbers::duration;

pub fn evidence(snapshot: &Snapshot) -> Option<String> {
    let telemetry = &snapshot.telemetry;
    if telemetry.restarted {
        return Some(String::from(
            "Not enough data yet: the instance started again within the window",
        ));
    }
    let is_known = |partition: &ConsumedPartition| partition.lag_slope.is_some();
    // At one moment a client that reads everything and ends has a lag, too.
    let has_lag = |consumer: &Consumer| match &consumer.partitions[..] {
        [] => consumer.lag_max.is_some(),
        partitions => partitions.iter().any(is_known),
    };
    let is_seen = telemetry.pushes == Some(0) && snapshot.consumer.as_ref().is_some_and(has_lag);
    match telemetry.pushes {
        Some(pushes) if pushes < 2 && !is_seen => {
            let plural = if pushes == 1 { "push" } else { "pushes" };
            let next = match telemetry.seconds_until_next_push.filter(|seconds| *seconds > 0.0) {
                Some(seconds) => format!("; next push in {}", duration(seconds)),
                None => String::new(),
            };
            Some(format!("Not enough data yet: {pushes} {plural}{next}"))
        }
        _ => None,
    }
}

/// Describes what cannot be observed of this client.
pub fn unseen(snapshot: &Snapshot) -> Vec<String> {
    let client = &snapshot.client;
    let called = match (&client.software_name, &client.software_version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        (Some(name), None) => name.clone(),
        _ => String::from("name and version unknown"),
    };
    let mut words = Vec::new();
    let pushes_nothing = snapshot.consumer.is_none() || snapshot.telemetry.pushes == Some(0);
    if pushes_nothing && snapshot.telemetry.is_off_at_broker {
        words.push(format!(
            "The broker takes no metrics from clients, so what {called} would say is not known. What is said comes from the broker."
        ));
    } else if pushes_nothing {
        words.push(format!(
            "The client ({called}) does not push metrics: too old, enable.metrics.push=false, no matching subscription, or not \
             supported by the library. What is said comes from the broker."
        ));
    }
    match client.library {
        Library::Librdkafka => words.push(String::from(
            "This client sends at most 13 metrics: lag, records and fetch sizes cannot be seen, only how long it waits in polls and \
             fetches. The group's lag and the bytes are taken from the broker.",
        )),
        Library::FranzGo => words.push(String::from(
            "This client sends connections, request and commit latencies only: polls, lag and fetches cannot be seen.",
        )),
        Library::Java | Library::Ottla | Library::Unknown => {}
    }
    words
}
