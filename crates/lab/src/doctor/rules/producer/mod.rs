//! Producers: a table of questions in order; the first that matches names the bottleneck, later
//! ones contribute.
//!
//! Evaluated for each producer instance over one window: the last complete 60 s, or the last three
//! pushes if they span more. Whether records wait, and for what, is computed once (`backlog.rs`); a
//! verdict is one file: its test, its sentence, its lever with a promise, what would not help.

mod silent;
mod quota;
mod failing;
mod unsent;
mod skew;
mod sender_thread;
mod broker;
mod bandwidth;
mod window;
mod round_trip;
mod sender_rate;
mod synchronous;
mod small_requests;
mod worker;
mod transactions;
mod keeps_up;
mod refusals;
mod lines;
mod promise;
mod evidence;
mod backlog;
mod arrival;
mod buffer;
mod capped;
pub(crate) mod reading;
mod pipes;

#[cfg(test)]
pub(crate) mod tests;

use crate::doctor::diagnosis::{Confidence, Diagnosis, Finding, Verdict};
use crate::doctor::snapshot::{SilentWriters, Snapshot};

use super::engine::{self, Subject};
use super::found::Found;
use super::{connections, denied, host, inference, tenant};
use evidence::Evidence;
use reading::{Bound, Reading};

const BATCH: &str = "batch.size";
const BUFFER: &str = "buffer.memory";
const MAX_REQUEST: &str = "max.request.size";
const LINGER: &str = "linger.ms";
const IN_FLIGHT: &str = "max.in.flight.requests.per.connection";
const SEND_BUFFER: &str = "send.buffer.bytes";
const PARTITIONS: &str = "partitions";
const COMPRESSION: &str = "compression.type";
const THREADS: &str = "threads";
const ACKS: &str = "acks";

/// Producers, as a subject of rules.
pub(crate) struct Producers;

impl Subject for Producers {
    type Reading<'a> = Reading<'a>;
}

type Rule = engine::Rule<Producers>;

const fn rule(id: &'static str, question: &'static str, ask: fn(&Reading<'_>) -> Found) -> Rule {
    Rule { id, question, ask }
}

const CONNECTIONS: Rule = rule(connections::ID, connections::QUESTION, do_connections_last);

const HOST_ID: &str = "host";
const HOST_QUESTION: &str = "Has the machine processor time left?";

const RULES: [Rule; 16] = [
    rule(denied::ID, denied::QUESTION, is_denied),
    CONNECTIONS,
    quota::RULE,
    failing::RULE,
    skew::RULE,
    rule(HOST_ID, HOST_QUESTION, host_full),
    sender_thread::RULE,
    broker::RULE,
    bandwidth::RULE,
    window::RULE,
    round_trip::RULE,
    sender_rate::RULE,
    synchronous::RULE,
    small_requests::RULE,
    worker::RULE,
    keeps_up::RULE,
];

/// For a client that pushes nothing while the broker sees requests without a pause.
const RULES_BY_BROKER: [Rule; 5] = [
    rule(denied::ID, denied::QUESTION, is_denied),
    quota::RULE,
    failing::RULE,
    rule(HOST_ID, HOST_QUESTION, host_of_silent),
    silent::RULE,
];

/// For a client of which too little is known: a denial, a quota, connections that end and a missing
/// topic are certain even so, and a machine without processor time explains why.
const RULES_AT_ONCE: [Rule; 5] = [
    rule(denied::ID, denied::QUESTION, is_denied),
    CONNECTIONS,
    quota::RULE,
    failing::RULE,
    rule(HOST_ID, HOST_QUESTION, host_of_overdue),
];

/// Diagnoses one producer.
///
/// - Shape: any snapshot; numbers that are negative or not finite count as missing.
pub fn diagnose(snapshot: &Snapshot) -> Diagnosis {
    let reading = Reading::of(snapshot);
    let mut diagnosis = Diagnosis {
        client_id: snapshot.client.client_id.clone(),
        instance_id: snapshot.client.instance_id.clone(),
        role: snapshot.client.role,
        reasoning: Vec::with_capacity(RULES.len() + 2),
        ..Diagnosis::default()
    };
    let (evidence, step) = evidence::judge(&reading);
    diagnosis.reasoning.push(step);
    diagnosis.reasoning.push(backlog::step_of(&reading));
    match evidence {
        Evidence::Enough => engine::run(&mut diagnosis, &reading, RULES.iter()),
        Evidence::Silent => engine::run(&mut diagnosis, &reading, RULES_BY_BROKER.iter()),
        Evidence::TooLittle(words) => {
            engine::run(&mut diagnosis, &reading, RULES_AT_ONCE.iter());
            if diagnosis.verdict == Verdict::NotEnoughData {
                diagnosis.summary = words;
                diagnosis.findings.extend(slow_broker(&reading));
            }
        }
    }
    surroundings(&mut diagnosis, &reading);
    let verdict = diagnosis.verdict;
    diagnosis.evidence.extend(lines::evidence(&reading, verdict));
    diagnosis
        .missing
        .splice(0..0, evidence::missing(&reading, verdict));
    diagnosis.notes.splice(0..0, evidence::doubts(&reading));
    if verdict == Verdict::NotEnoughData {
        diagnosis.refused.clear();
    } else {
        diagnosis.notes.extend(lines::notes(&reading, verdict));
    }
    engine::finish(&mut diagnosis, snapshot);
    diagnosis
}

fn is_denied(reading: &Reading<'_>) -> Found {
    denied::ask(reading.snapshot)
}

fn do_connections_last(reading: &Reading<'_>) -> Found {
    connections::ask(reading.snapshot)
}

/// Where records wait for something that a faster machine would serve sooner.
fn host_full(reading: &Reading<'_>) -> Found {
    let is_far = reading.hottest().is_some_and(|pipe| {
        let trip = reading.round_trip(pipe);
        trip.is_some_and(|trip| round_trip::is_half(pipe, trip))
            || window::of(reading, pipe).is_some()
            || window::several_trips(reading, pipe).is_some()
            || arrival::full_link(reading).is_some()
            || arrival::queue(reading).is_some()
    });
    let is_slow = reading.bound != Bound::Source && !is_far && !reading.has_slow_callbacks();
    host::ask(reading.snapshot, is_slow)
}

/// The same where only the broker speaks: a request takes the broker longer than the network.
fn host_of_silent(reading: &Reading<'_>) -> Found {
    let is_near = reading.nodes.iter().any(|pipe| {
        let trip_ms = silent::round_trip(reading, pipe).map_or(0.0, |trip| trip.ms);
        reading
            .broker_ms(pipe)
            .is_some_and(|broker_ms| broker_ms > trip_ms)
    });
    host::ask(reading.snapshot, is_near)
}

/// The same of a client that sends records and does not come to push, or of which the broker always
/// has a request in hand.
fn host_of_overdue(reading: &Reading<'_>) -> Found {
    let sends = reading
        .requests
        .is_some_and(|requests| requests >= evidence::REQUESTS);
    let is_served = reading
        .nodes
        .iter()
        .any(|pipe| backlog::served_share(pipe).is_some_and(|share| reading::reaches(share, 1.0)));
    let is_slow = is_served || inference::is_overdue(reading.snapshot);
    match evidence::silent_writers(reading) {
        Some(writers) if !reading.snapshot.telemetry.is_off_at_broker => host_of_writers(reading, writers),
        _ => host::ask(reading.snapshot, sends && is_slow),
    }
}

/// The same of producers of a topic that were asked to push and do not: without processor time a
/// client does not come to it, but neither does a library that cannot.
fn host_of_writers(reading: &Reading<'_>, writers: &SilentWriters) -> Found {
    let mut found = host::ask(reading.snapshot, true).no_surer_than(Confidence::Low);
    // What they send is not known, so neither is what would not help them.
    found.refused.clear();
    match found.verdict {
        None => found,
        Some(_) => found.note(evidence::of_silent_writers(writers)),
    }
}

/// What a broker's own numbers say of a client of which too little is known.
fn slow_broker(reading: &Reading<'_>) -> Option<Finding> {
    let mut sides = reading
        .nodes
        .iter()
        .filter_map(|pipe| Some(pipe.broker.as_ref()?.side));
    sides.find_map(super::broker::blame)
}

/// Adds what other tenants and the whole broker do.
fn surroundings(diagnosis: &mut Diagnosis, reading: &Reading<'_>) {
    if let Some(tenant) = tenant::judge(reading.snapshot) {
        diagnosis.findings.push(Finding {
            is_contributing: true,
            ..tenant.finding
        });
        diagnosis.evidence.extend(tenant.evidence);
        diagnosis.missing.extend(tenant.missing);
        diagnosis.refused.extend(tenant.refused);
        diagnosis.recommendation.get_or_insert(tenant.recommendation);
    }
    diagnosis.findings.extend(transactions::flaw(reading.snapshot));
    diagnosis.notes.extend(super::broker::pause(reading.snapshot));
}
