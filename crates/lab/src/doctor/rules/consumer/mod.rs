//! Consumers: seventeen tests in order; the first that matches names the bottleneck, later ones
//! contribute. One file holds one test: its page of the manual, its evidence, the change with its
//! promise, what would not help, what is missing, and its sentence.
//!
//! Reading order: the modules below, in the order of the tests, then what they share.

mod evidence;
mod rebalancing;
mod quota;
mod keeps_up;
mod skew;
mod processing;
mod fetch_wait;
mod bandwidth;
mod receive_window;
mod fetch_size;
mod cold_read;
mod idle_members;
mod transaction;
mod retention;
mod catching_up;
mod commits;
pub(crate) mod fetches;
pub(crate) mod reading;

use super::super::diagnosis::{Confidence, Diagnosis, Finding, Step, Verdict, Words};
use super::super::snapshot::{Consumer, Role, Snapshot};
use super::engine::{self, Rule, Subject};
use super::found::{self, Found};
use super::{broker, connections, denied, host, tenant};
use crate::numbers::number;
use reading::{Reading, sane};

/// Consumers, as a subject of rules.
pub(crate) struct Consumers;

impl Subject for Consumers {
    type Reading<'a> = Reading<'a>;
}

type Test = Rule<Consumers>;

const fn test(id: &'static str, question: &'static str, ask: fn(&Reading<'_>) -> Found) -> Test {
    Rule { id, question, ask }
}

const TESTS: [Test; 17] = [
    DENIED,
    CONNECTIONS,
    test(
        "consumer 1",
        "Is the group rebalancing?",
        rebalancing::rebalancing,
    ),
    QUOTA,
    test("consumer 3", "Does it keep up?", keeps_up::keeps_up),
    TRANSACTION,
    test("consumer 4", "Is it one partition?", skew::skew),
    test("host", "Has the machine processor time left?", host_full),
    test(
        "consumer 5",
        "Does the application have time?",
        processing::processing,
    ),
    test(
        "consumer 6",
        "Do fetches wait for fetch.min.bytes?",
        fetch_wait::fetch_wait,
    ),
    test("consumer 7", "Is the link full?", bandwidth::bandwidth),
    test(
        "consumer 8",
        "Is the receive window too small for the round trip?",
        receive_window::receive_window,
    ),
    test("consumer 9", "Are fetches too small?", fetch_size::fetch_size),
    COLD_READ,
    test(
        "consumer 11",
        "Are there more consumers than partitions?",
        idle_members::idle_members,
    ),
    test(
        "consumer 12",
        "Will unread records be deleted?",
        retention::retention,
    ),
    test("consumer 13", "Is it catching up?", catching_up::catching_up),
];

const DENIED: Test = test(denied::ID, denied::QUESTION, is_denied);
const CONNECTIONS: Test = test(connections::ID, connections::QUESTION, do_connections_last);

const QUOTA: Test = test(
    "consumer 2",
    "Does the broker throttle its fetches?",
    quota::quota,
);
const TRANSACTION: Test = test(
    "consumer 14",
    "Does it stand still before an open transaction?",
    transaction::transaction,
);
const COLD_READ: Test = test(
    "consumer 10",
    "Does the broker read the disk for it?",
    cold_read::cold_read,
);

fn is_denied(reading: &Reading<'_>) -> Found {
    denied::ask(reading.snapshot)
}

fn do_connections_last(reading: &Reading<'_>) -> Found {
    connections::ask(reading.snapshot)
}

/// Where it is behind, and its own work or the broker takes the time: neither waits for a network.
fn host_full(reading: &Reading<'_>) -> Found {
    let is_behind = reading.is_lag_small() == Some(false);
    let is_working = reading.idle.is_some_and(|idle| idle < 0.5);
    host::ask(
        reading.snapshot,
        is_behind && (is_working || is_broker_slow(reading)),
    )
}

/// For a client that has not pushed enough yet, only the tests that the broker's numbers can answer
/// (denials, quota, disk and open transactions), and connections that end, which leave no others.
const TESTS_AT_ONCE: [Test; 5] = [DENIED, CONNECTIONS, QUOTA, COLD_READ, TRANSACTION];

/// Diagnoses one consumer.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        client_id: snapshot.client.client_id.clone(),
        instance_id: snapshot.client.instance_id.clone(),
        role: Role::Consumer,
        missing: evidence::unseen(snapshot),
        reasoning: Vec::with_capacity(TESTS.len() + 1),
        ..Diagnosis::default()
    };
    let nothing = Consumer::default();
    let consumer = snapshot.consumer.as_ref().unwrap_or(&nothing);
    let reading = Reading::of(snapshot, consumer);
    let not_yet = evidence::evidence(snapshot);
    diagnosis.reasoning.push(Step {
        rule: "consumer 0".into(),
        question: "Is there evidence?".into(),
        numbers: evidence_in_words(snapshot).into(),
        answer: not_yet.clone().map_or("yes".into(), Words::from),
    });
    match not_yet {
        Some(why) => {
            engine::run(&mut diagnosis, &reading, TESTS_AT_ONCE.iter());
            if diagnosis.verdict == Verdict::NotEnoughData {
                diagnosis.summary = why;
            } else {
                diagnosis.notes.push(why);
            }
        }
        None => {
            engine::run(&mut diagnosis, &reading, TESTS.iter());
            if diagnosis.verdict == Verdict::NotEnoughData && diagnosis.summary.is_empty() {
                diagnosis.summary = undecided(&reading);
            }
        }
    }
    surroundings(&mut diagnosis, snapshot, &reading);
    if diagnosis.verdict == Verdict::NotEnoughData {
        diagnosis.recommendation = None;
        diagnosis.refused.clear();
    }
    diagnosis.confidence = diagnosis
        .confidence
        .min(agreement(snapshot, &reading, diagnosis.verdict));
    engine::finish(&mut diagnosis, snapshot);
    diagnosis
}

fn evidence_in_words(snapshot: &Snapshot) -> String {
    let window = format!("{} s", number(snapshot.seconds));
    match snapshot.telemetry.pushes {
        Some(pushes) => format!("{pushes} pushes in {window}"),
        None => format!("a reading of {window}, not pushed"),
    }
}

/// No test matched: names the numbers that would decide.
fn undecided(reading: &Reading<'_>) -> String {
    let unknown = [
        ("the lag", reading.lag.is_none()),
        ("the idle share of polls", reading.idle.is_none()),
        ("fetch latency", reading.fetch_ms.is_none()),
        (
            "the course of the lag",
            reading.lag.is_some() && reading.lag_slope.is_none(),
        ),
    ];
    let unknown: Vec<&str> = unknown
        .iter()
        .filter(|entry| entry.1)
        .map(|entry| entry.0)
        .collect();
    if unknown.is_empty() {
        String::from(
            "It is behind, and neither its work nor its fetches fill its time: paused partitions, or a partition without leader?",
        )
    } else {
        format!("Not enough data: {} not known.", unknown.join(", "))
    }
}

/// Adds findings about brokers and tenants: what slows its fetches without being the verdict.
fn surroundings(diagnosis: &mut Diagnosis, snapshot: &Snapshot, reading: &Reading<'_>) {
    let is_behind = reading.is_lag_small() != Some(true);
    if let Some(judgement) = reading
        .judgement()
        .filter(|_| is_behind && is_broker_slow(reading))
    {
        diagnosis.findings.push(Finding {
            is_contributing: true,
            ..judgement.finding
        });
        diagnosis.evidence.extend(judgement.evidence);
    }
    if let Some(judgement) = tenant::judge(snapshot) {
        diagnosis.findings.push(judgement.finding);
        diagnosis.evidence.extend(judgement.evidence);
        // A consumer that keeps up bears no cost, and without data nothing is advised.
        if !matches!(diagnosis.verdict, Verdict::NotEnoughData | Verdict::KeepsUp) {
            diagnosis.refused.extend(judgement.refused);
            diagnosis.recommendation.get_or_insert(judgement.recommendation);
        }
    }
    diagnosis.notes.extend(broker::pause(snapshot));
    diagnosis.notes.extend(left_out(snapshot));
}

/// The history of a client is bounded: of many partitions it keeps those with the largest lag.
fn left_out(snapshot: &Snapshot) -> Option<String> {
    let consumer = snapshot.consumer.as_ref()?;
    let followed = consumer.partitions.len();
    let pushed = consumer
        .partitions_pushed
        .filter(|pushed| *pushed > followed as f64)?;
    Some(format!(
        "{} of the {} partitions that it pushes are followed, those with the largest lag",
        number(followed as f64),
        number(pushed)
    ))
}

fn is_broker_slow(reading: &Reading<'_>) -> bool {
    match (reading.broker_ms(), reading.fetch_ms) {
        (Some(broker), Some(fetch)) => broker >= 0.5 * fetch,
        (Some(broker), None) => broker >= 10.0,
        _ => false,
    }
}

/// The upper bound of any verdict's confidence: high only where the broker's numbers of this client
/// agree with its own.
fn agreement(snapshot: &Snapshot, reading: &Reading<'_>, verdict: Verdict) -> Confidence {
    if verdict == Verdict::NotEnoughData {
        return Confidence::Low;
    }
    if snapshot.consumer.is_none() || snapshot.telemetry.pushes == Some(0) {
        return Confidence::Medium;
    }
    let own: Vec<_> = snapshot
        .brokers
        .iter()
        .filter(|side| !side.is_of_all_clients)
        .collect();
    let of_brokers = |of: fn(&super::super::snapshot::BrokerSide) -> Option<f64>| {
        own.iter()
            .filter_map(|side| sane(of(side)))
            .reduce(|one, other| one + other)
    };
    let pairs = [
        (
            sane(reading.consumer.bytes_per_second),
            of_brokers(|side| side.bytes_per_second),
        ),
        (
            sane(reading.consumer.fetches_per_second),
            of_brokers(|side| side.requests_per_second),
        ),
    ];
    if reading.is_lag_stale || reading.do_rates_disagree() {
        return Confidence::Medium;
    }
    // An idle consumer has no rate to compare: if both report nothing, they agree.
    let agrees = pairs.iter().any(|pair| match pair {
        (Some(client), Some(broker)) => (client - broker).abs() <= 0.05 * client.max(*broker),
        _ => false,
    });
    if agrees {
        Confidence::High
    } else {
        Confidence::Medium
    }
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod properties;
