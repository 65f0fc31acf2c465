//! Consumers: eleven tests in order; the first that matches names the bottleneck, later ones
//! contribute.

mod lag;
mod work;
pub(crate) mod fetches;
mod group;
pub(crate) mod reading;

use super::super::diagnosis::{Confidence, Diagnosis, Finding, Step, Verdict};
use super::super::snapshot::{Consumer, Role, Snapshot};
use super::engine::{self, Rule, Subject};
use super::found::{self, Found};
use super::{broker, tenant};
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

const TESTS: [Test; 11] = [
    test("consumer 1", "Is the group rebalancing?", group::rebalancing),
    test(
        "consumer 2",
        "Does the broker throttle its fetches?",
        group::quota,
    ),
    test("consumer 3", "Does it keep up?", lag::keeps_up),
    test("consumer 4", "Is it one partition?", lag::skew),
    test("consumer 5", "Does the application have time?", work::processing),
    test(
        "consumer 6",
        "Do fetches wait for fetch.min.bytes?",
        fetches::fetch_wait,
    ),
    test("consumer 7", "Are fetches too small?", fetches::fetch_size),
    test(
        "consumer 8",
        "Does the broker read the disk for it?",
        fetches::cold_read,
    ),
    test(
        "consumer 9",
        "Are there more consumers than partitions?",
        group::idle_members,
    ),
    test("consumer 10", "Will unread records be deleted?", lag::retention),
    test("consumer 11", "Is it catching up?", lag::catching_up),
];

/// For a client that has not pushed enough yet, only the tests that the broker's numbers alone can
/// answer: quota and disk.
const TESTS_BY_BROKER: [usize; 2] = [1, 7];

/// Diagnoses one consumer.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let mut diagnosis = Diagnosis {
        client_id: snapshot.client.client_id.clone(),
        instance_id: snapshot.client.instance_id.clone(),
        role: Role::Consumer,
        missing: group::unseen(snapshot),
        ..Diagnosis::default()
    };
    let nothing = Consumer::default();
    let consumer = snapshot.consumer.as_ref().unwrap_or(&nothing);
    let reading = Reading::of(snapshot, consumer);
    let not_yet = group::evidence(snapshot);
    diagnosis.reasoning.push(Step {
        rule: String::from("consumer 0"),
        question: String::from("Is there evidence?"),
        numbers: evidence_in_words(snapshot),
        answer: not_yet.clone().unwrap_or_else(|| String::from("yes")),
    });
    match not_yet {
        Some(why) => {
            engine::run(
                &mut diagnosis,
                &reading,
                TESTS_BY_BROKER.iter().map(|index| &TESTS[*index]),
            );
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
            "it falls behind, and neither its work nor its fetches fill its time: paused partitions, or a partition without leader?",
        )
    } else {
        format!("not enough data: {} not known", unknown.join(", "))
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
        diagnosis.refused.extend(judgement.refused);
        diagnosis.recommendation.get_or_insert(judgement.recommendation);
    }
    diagnosis.notes.extend(broker::pause(snapshot));
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
mod tests;
