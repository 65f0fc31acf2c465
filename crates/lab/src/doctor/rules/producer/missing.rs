//! Lists what is missing for certainty; missing numbers are never guessed.
//!
//! | missing | what is reported |
//! |---|---|
//! | any push | that the client does not push, and the reasons in order: too old, switched off, no subscription, pipe full with one in flight, not supported |
//! | librdkafka's other metrics | batching and buffer cannot be observed; its queue time excludes batching |
//! | franz-go's latencies before 1.21.4 | they are not latencies and are ignored |
//! | franz-go's metrics with the subscription `*` | subscribe to the prefix |
//! | W, C, T | upper bounds by F6 and F7 |
//! | a sample | no request in the window |
//! | settings | what was inferred or assumed |
//! | RTT | L - D is its upper bound |

use crate::doctor::diagnosis::Verdict;
use crate::doctor::snapshot::Library;
use crate::formulas::latency;

use super::reading::{Reading, has_false_latency, positive};
use crate::numbers::number;

pub(crate) fn words(reading: &Reading<'_>, verdict: Verdict) -> Vec<String> {
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
    round_trip(reading, verdict, &mut missing);
    missing
}

fn library(reading: &Reading<'_>, missing: &mut Vec<String>) {
    let telemetry = &reading.snapshot.telemetry;
    match reading.library() {
        Library::Librdkafka => missing.push(
            "This client sends 10 metrics; batching and buffer cannot be seen. Batch size, records per batch and request rate are taken \
             from the broker. `record.queue.time` of this client excludes batching time."
                .to_owned(),
        ),
        Library::FranzGo if has_false_latency(reading.snapshot) => {
            missing.push("Latency averages of this version are not latencies; ignored.".to_owned());
        }
        _ => {}
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
    let seen = if reading.snapshot.brokers.is_empty() {
        "nothing is known from a broker either"
    } else {
        "what follows is seen from the broker"
    };
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
        missing.push(format!(
            "inferred: {}; correct me with the client's own settings",
            guesses.join(", ")
        ));
    }
}

fn round_trip(reading: &Reading<'_>, verdict: Verdict, missing: &mut Vec<String>) {
    let Some(pipe) = reading.hottest() else { return };
    if reading.round_trip(pipe).is_some() || !super::refusals::is_of_pipe(verdict) {
        return;
    }
    let bound = reading
        .round_trip_at_most(pipe)
        .map_or_else(String::new, |ms| format!(" of {} ms", number(ms)));
    missing.push(format!(
        "round trip not measured; latency outside the broker (L - D){bound} is used as its upper bound"
    ));
}
