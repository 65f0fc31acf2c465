//! S0: is there evidence?
//!
//! **Asks** whether the window holds enough to judge by. **Numbers**: pushes, requests, seconds,
//! the instance's start time. **Thresholds**: at least 2 pushes, at least 100 requests or 30
//! seconds, and no restart within the window. Numbers that were read in one go (printed by the
//! client, a file, an exported case) are one complete reading: pushes are not counted and 20
//! requests suffice, with low confidence below 100. A client that sends 600 kB records one at a
//! time across 72 ms sends only 49 in 20 s, and its problem shows in every one of them.
//!
//! **Why**: a Java gauge is a mean over 30 to 60 s, and the rate of a client that has just started
//! is too low by a factor of three (2,000 records/s showed as 572 after 12 s).
//!
//! A client that pushes nothing although its requests follow each other without a pause still gives
//! evidence: a Java client with one request in flight needs that slot for its push. Such a client
//! is judged by the broker's view alone (`silent.rs`). So is one that pushed once and has not for
//! 2.5 of its intervals: its one push says nothing about the time since.
//!
//! On Apache Kafka a client that pushes nothing is not known by name. Leaders of partitions
//! remember the ids of idempotent producers: a topic with more of them than clients that push is
//! listed with how many those are, once they have written for 20 s and for one and a half push
//! intervals.
//!
//! **How certain a verdict is.** High: client and broker agree (X_b = R × S within 5 %, F1; R_n of
//! both within 5 %), the verdict depends on no inferred setting, and the client's queue is known.
//! Medium: one side only, an inferred or assumed setting, or a broker blamed by times averaged over
//! all its clients. Low: fewer than 100 requests; a number that the verdict needs is missing its
//! sample; two regimes in one window (a backlog whose longest wait is more than ten times its
//! mean); or impossible numbers: a queue longer than buffer.memory can hold (F16: 14 s where 32 MiB
//! allow 1.6 s, so the settings are not the stated ones) or more requests in flight than allowed
//! (F8).
//!
//! **What is missing** is named and never guessed: why a client does not push, what its library
//! does not send, and settings that nothing states, each with the way to tell it.

use crate::doctor::diagnosis::{Confidence, Step, Verdict, Words};
use crate::doctor::snapshot::{Library, SilentWriters};
use crate::doctor::used::Used;
use crate::formulas::{buffer, latency};

use super::super::inference::is_guess;
use super::super::words::{known, step};
use super::arrival;
use super::backlog::Backlog;
use super::lines::is_of_pipe;
use super::reading::{Bound, Reading, has_false_latency, positive, ratio};
use crate::numbers::{bytes, number, percent};

const PUSHES: u32 = 2;
pub(crate) const REQUESTS: f64 = 100.0;
const REQUESTS_OF_A_READING: f64 = 20.0;
const SECONDS: f64 = 30.0;
const AGREES: f64 = 0.05;
/// The tolerance on F16 (queue length) and on F8 (requests in flight): their means are from
/// different windows.
const LONGER: f64 = 1.25;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Evidence {
    Enough,
    /// Only brokers report, and they see requests back to back.
    Silent,
    /// Describes what there is.
    TooLittle(String),
}

pub(crate) fn judge(reading: &Reading<'_>) -> (Evidence, Step) {
    let telemetry = &reading.snapshot.telemetry;
    let pushes = match telemetry.pushes {
        Some(pushes) => format!("pushes = {pushes}").into(),
        None => "one complete reading".into(),
    };
    let numbers = [
        Used::Words(pushes),
        known("requests", reading.requests, ""),
        known("window", Some(reading.seconds), "s"),
    ];
    let evidence = weigh(reading);
    let answer = match &evidence {
        Evidence::Enough => "yes".into(),
        Evidence::Silent => {
            "no telemetry, but all requests that may be under way are: the broker's numbers alone".into()
        }
        Evidence::TooLittle(words) => Words::from(words.clone()),
    };
    (evidence, step("S0", "Is there evidence?", numbers, answer))
}

fn weigh(reading: &Reading<'_>) -> Evidence {
    let telemetry = &reading.snapshot.telemetry;
    if telemetry.restarted {
        return Evidence::TooLittle(
            "not enough data yet: the client started again within the window".to_owned(),
        );
    }
    let is_reading = reading.is_complete_reading();
    let has_pushed = telemetry.pushes.is_some_and(|pushes| pushes >= PUSHES) && reading.has_own_numbers();
    let requests = reading.requests.unwrap_or(0.0);
    let needed = if is_reading {
        REQUESTS_OF_A_READING
    } else {
        REQUESTS
    };
    let is_long = requests >= needed || reading.seconds >= SECONDS;
    if (is_reading || has_pushed) && is_long && has_rate(reading) {
        return Evidence::Enough;
    }
    let is_full = reading.is_back_to_back()
        || reading.is_pinned()
        || reading.is_always_full()
        || arrival::full_link(reading).is_some();
    if !is_reading && !has_pushed && is_long && is_full {
        return Evidence::Silent;
    }
    Evidence::TooLittle(too_little(reading))
}

pub(crate) fn of_silent_writers(writers: &SilentWriters) -> String {
    let ids: Vec<String> = writers.producer_ids.iter().map(i64::to_string).collect();
    let more = if (ids.len() as f64) < writers.writers {
        ", …"
    } else {
        ""
    };
    let noun = if writers.writers == 1.0 {
        "producer id"
    } else {
        "producer ids"
    };
    let named = format!("{noun} {}{more}", ids.join(", "));
    if writers.count < writers.writers {
        return format!(
            "{} producers write to topic {} ({named}), and no more than {} of them push metrics.",
            number(writers.writers),
            writers.topic,
            number(writers.writers - writers.count)
        );
    }
    let verb = if writers.count == 1.0 {
        " writes"
    } else {
        "s write"
    };
    format!(
        "{} producer{verb} to topic {} ({named}) without pushing metrics, and this cluster tells nothing else of them.",
        number(writers.count),
        writers.topic
    )
}

fn has_rate(reading: &Reading<'_>) -> bool {
    reading.records_per_second.is_some() || reading.requests_per_second.is_some()
}

/// The producers of a topic that push nothing, where the entry stands for them.
pub(crate) fn silent_writers<'a>(reading: &Reading<'a>) -> Option<&'a SilentWriters> {
    reading.snapshot.cluster.as_ref()?.silent.as_ref()
}

fn too_little(reading: &Reading<'_>) -> String {
    let telemetry = &reading.snapshot.telemetry;
    if let Some(writers) = silent_writers(reading) {
        return of_silent_writers(writers);
    }
    let mut words = format!(
        "not enough data yet: {} pushes, {} requests",
        telemetry.pushes.unwrap_or(0),
        reading
            .requests
            .map_or_else(|| "an unknown number of".to_owned(), number)
    );
    if telemetry.is_off_at_broker {
        let words = "The broker does not take metrics from clients, so only what it saw itself is known";
        return match reading.requests_per_second {
            Some(rate) => format!("{words}: {} requests/s, with pauses between them.", number(rate)),
            None => format!("{words}."),
        };
    }
    if let Some(seconds) = telemetry
        .seconds_until_next_push
        .filter(|seconds| seconds.is_finite())
    {
        words.push_str(&format!("; next push in {} s", number(seconds.max(0.0))));
    }
    if !has_rate(reading) && reading.request_ms.is_some() {
        words.push_str("; latencies without a rate: nothing says how many requests there were");
    }
    words
}

/// What does not fit together, in words; none where the numbers are consistent.
fn contradictions(reading: &Reading<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((queue_ms, rate)) = reading.queue_ms.zip(positive(reading.bytes_per_second)) {
        let size = reading.settings.buffer_bytes.value;
        let most_ms = buffer::queue_ms_max(size, rate);
        if queue_ms > LONGER * most_ms {
            notes.push(format!(
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
    if let Some(used) = reading.used().filter(|used| *used > LONGER) {
        notes.push(format!(
            "the numbers do not fit each other (F8): {} of the requests that may be in flight are; rate and latency are of different \
             windows, or more than {} may be",
            percent(used),
            number(reading.settings.in_flight.value)
        ));
    }
    notes
}

/// R × S over the bytes sent (F1).
fn bytes_share(reading: &Reading<'_>) -> Option<f64> {
    let product = reading
        .requests_per_second
        .zip(reading.request_bytes)
        .map(|(rate, size)| rate * size);
    ratio(product, reading.bytes_per_second)
}

/// Doubts about the numbers themselves.
pub(crate) fn doubts(reading: &Reading<'_>) -> Vec<String> {
    let mut notes = contradictions(reading);
    let share = bytes_share(reading).filter(|share| (share - 1.0).abs() > 3.0 * AGREES);
    notes.extend(share.map(|share| {
        format!(
            "R × S is {} of the bytes sent (F1): rate and size are of different windows",
            percent(share)
        )
    }));
    notes
}

/// Whether client and brokers count the same.
fn is_agreed(reading: &Reading<'_>) -> bool {
    let shares: Vec<f64> = reading
        .nodes
        .iter()
        .filter_map(|pipe| {
            let seen = positive(pipe.broker.as_ref()?.side.requests_per_second);
            ratio(seen, Some(pipe.requests_per_second))
        })
        .collect();
    let is_near = |share: &f64| (share - 1.0).abs() <= AGREES;
    bytes_share(reading).is_some_and(|share| is_near(&share))
        && reading.has_own_numbers()
        && !shares.is_empty()
        && shares.iter().all(is_near)
}

/// How certain a verdict is.
pub(crate) fn confidence(reading: &Reading<'_>, verdict: Verdict, has_doubt: bool) -> Confidence {
    let is_short = reading.requests.is_some_and(|requests| requests < REQUESTS);
    let is_mixed = reading.backlog > Backlog::None
        && reading
            .queue_ms_max
            .zip(reading.queue_ms)
            .is_some_and(|(most, mean)| most > 10.0 * mean);
    let is_inconsistent = !contradictions(reading).is_empty();
    if is_short || is_mixed || has_doubt || is_inconsistent || lacks_sample(reading) {
        return Confidence::Low;
    }
    let settings = &reading.settings;
    let has_queue = reading.queue_ms.is_some();
    let decides_by_guess = match verdict {
        Verdict::Quota | Verdict::Broker | Verdict::SenderThread | Verdict::NetworkBandwidth => false,
        Verdict::Failing => false,
        // Without the client's queue it is not known that nothing waits.
        Verdict::KeepsUp | Verdict::Application => !has_queue,
        Verdict::Worker => false,
        Verdict::SmallRequests | Verdict::Synchronous => is_guess(settings.linger_ms.origin),
        _ => is_guess(settings.in_flight.origin) || is_guess(settings.batch_bytes.origin),
    };
    let blames_a_mean =
        verdict == Verdict::Broker && reading.snapshot.brokers.iter().any(|side| side.is_of_all_clients);
    if is_agreed(reading) && !decides_by_guess && !blames_a_mean {
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

pub(crate) fn missing(reading: &Reading<'_>, verdict: Verdict) -> Vec<String> {
    let mut missing = Vec::new();
    library(reading, &mut missing);
    if !reading.has_own_numbers() && reading.snapshot.telemetry.empty_pushes == 0 {
        missing.push(no_pushes(reading));
    }
    no_sample(reading, &mut missing);
    if verdict == Verdict::NotEnoughData {
        return missing;
    }
    bounds(reading, verdict, &mut missing);
    settings(reading, &mut missing);
    full_batches(reading, &mut missing);
    round_trip(reading, verdict, &mut missing);
    missing
}

fn library(reading: &Reading<'_>, missing: &mut Vec<String>) {
    let telemetry = &reading.snapshot.telemetry;
    match reading.library() {
        Library::Librdkafka => {
            let from_broker = match has_rate(reading) {
                true => " Batch size, records per batch and request rate are taken from the broker.",
                false => "",
            };
            missing.push(format!(
                "This client sends 10 metrics; batching and buffer cannot be seen.{from_broker} `record.queue.time` of this client excludes \
                 batching time."
            ));
        }
        Library::FranzGo if has_false_latency(reading.snapshot) => {
            missing.push("Latency averages of this version are not latencies; ignored.".to_owned());
        }
        _ => {}
    }
    if reading.has_own_numbers() && !has_rate(reading) {
        let own = match reading.library() {
            Library::Librdkafka => "librdkafka prints it with statistics.interval.ms",
            Library::FranzGo => "franz-go gives it to its hooks",
            _ => "the client's own metrics have it",
        };
        missing.push(format!(
            "The rate of its requests: this client does not push it, and its broker does not count requests by client, as Ottla does; {own}."
        ));
    }
    let may_be_franz_go = matches!(reading.library(), Library::FranzGo | Library::Unknown);
    if may_be_franz_go && telemetry.empty_pushes > 0 && !reading.has_own_numbers() {
        missing.push(
            "This client treats `*` as a literal prefix and sends an empty payload; subscribe to the prefix `org.apache.kafka.`."
                .to_owned(),
        );
    }
}

fn no_pushes(reading: &Reading<'_>) -> String {
    let client = &reading.snapshot.client;
    let name = client.software_name.as_deref().unwrap_or("name unknown");
    let version = client.software_version.as_deref().unwrap_or("version unknown");
    if silent_writers(reading).is_some() && !reading.snapshot.telemetry.is_off_at_broker {
        return "Their metrics, and their client ids: a subscription that matches them, a library that pushes (Java 3.7, librdkafka 2.5 and later) \
                without enable.metrics.push=false, and a request in flight that is free for the push; or brokers that count requests by client, as \
                Ottla's do."
            .to_owned();
    }
    let seen = if reading.snapshot.brokers.is_empty() {
        "nothing is known from a broker either"
    } else {
        "what follows is seen from the broker"
    };
    if reading.snapshot.telemetry.is_off_at_broker {
        return format!(
            "The broker does not take metrics from clients (its telemetry is switched off); {seen}."
        );
    }
    if reading.is_always_full() {
        return format!(
            "The client ({name}, {version}) was asked for metrics and cannot push them: on a cluster of one broker that takes a free in-flight \
             request, and it has none; {seen}."
        );
    }
    format!(
        "The client ({name}, {version}) does not push metrics; {seen}. Reasons, most likely first: it is too old, \
         enable.metrics.push=false, no subscription matches it, its pipe is full with one request in flight, its library does not support it."
    )
}

fn no_sample(reading: &Reading<'_>, missing: &mut Vec<String>) {
    let Some(own) = reading.snapshot.producer.as_ref() else {
        return;
    };
    let has_none = |name: &str| own.without_sample.iter().any(|metric| metric.contains(name));
    if own.request_ms.is_none() && has_none("request.latency") {
        missing.push("request.latency: no request in the window".to_owned());
    }
    if own.queue_ms.is_none() && has_none("record.queue.time") {
        missing.push("record.queue.time: no request in the window".to_owned());
    }
}

fn bounds(reading: &Reading<'_>, verdict: Verdict, missing: &mut Vec<String>) {
    let has_all = reading.send_micros.is_some() && reading.threads.is_some();
    if has_all || verdict == Verdict::Synchronous {
        return;
    }
    let Some(rate) = positive(reading.records_per_second) else {
        return;
    };
    let threads = match reading.threads {
        Some(threads) => format!("{} µs", number(latency::send_micros_max(threads, rate))),
        None => format!(
            "T × {} µs, T threads",
            number(latency::send_micros_max(1.0, rate))
        ),
    };
    let callback = reading.io_other.map_or_else(String::new, |other| {
        format!(
            ", a callback takes {} µs at most (F7)",
            number(latency::callback_micros_max(other, rate))
        )
    });
    missing.push(format!(
        "The time of send() and of the callback is not sent by any client; upper bounds: send() takes {threads} (F6){callback}."
    ));
}

fn settings(reading: &Reading<'_>, missing: &mut Vec<String>) {
    let guesses = reading.settings.guesses();
    if !guesses.is_empty() {
        let client = &reading.snapshot.client.client_id;
        missing.push(format!(
            "assumed: {}; tell the client's own with --set {client}.batch.size=BYTES and the like",
            guesses.join(", ")
        ));
    }
}

fn round_trip(reading: &Reading<'_>, verdict: Verdict, missing: &mut Vec<String>) {
    let Some(pipe) = reading.hottest() else { return };
    if reading.round_trip(pipe).is_some() || !is_of_pipe(verdict) {
        return;
    }
    let bound = reading
        .round_trip_at_most(pipe)
        .map_or_else(String::new, |ms| format!(" of {} ms", number(ms)));
    missing.push(format!(
        "round trip not measured; latency outside the broker (L - D){bound} is used as its upper bound"
    ));
}

/// Where records wait for requests, batch.size decides the lever.
fn full_batches(reading: &Reading<'_>, missing: &mut Vec<String>) {
    let is_open = reading.bound == Bound::Pipe && !reading.knows_fill() && reading.fill_at_most() >= 0.5;
    if let Some(batch) = reading.batch_bytes.filter(|_| is_open) {
        missing.push(format!(
            "batch.size is not known, and batches of {} may be full: if they are, a larger one is the lever; tell it with --set {}.batch.size=BYTES",
            bytes(batch),
            reading.snapshot.client.client_id
        ));
    }
}
