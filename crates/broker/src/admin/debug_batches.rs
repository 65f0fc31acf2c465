//! `/debug/batches`: when batches were received, appended, visible and fetched, on the clock that all processes share.
//!
//! `POST ?seconds=N` begins and answers with a reader's number, `GET ?reader=R` answers with what was written down since, as often as it
//! is asked, `DELETE ?reader=R` ends it. Readers do not disturb each other.

use std::time::Duration;

use axum::http::StatusCode;
use ottla_core::batch_times::ReaderId;
use ottla_core::node::Node;
use ottla_core::time::{Clock, Moment};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The form of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// Somebody who forgot to end it does not slow the broker for ever.
const SECONDS_MAX: u64 = 3_600;

/// The status of an answer, and a sentence for whoever asked.
pub type Refusal = (StatusCode, String);

/// Begins to write down for a reader, whose number is in the answer.
pub fn begin(node: &Node, query: Option<&str>) -> Result<String, Refusal> {
    let seconds = (number(query, "seconds="))
        .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
        .ok_or_else(|| {
            bad(format!(
                "say for how long: ?seconds=N with N from 1 to {SECONDS_MAX}\n"
            ))
        })?;
    let now = node.clock.moment();
    let until = now.after(Duration::from_secs(seconds));
    let ReaderId(reader) = node.batch_times.begin(now, until).ok_or_else(|| {
        let reason = "too many have batches written down; their time ends by itself\n";
        (StatusCode::TOO_MANY_REQUESTS, reason.to_owned())
    })?;
    let document = json!({"version": VERSION, "seconds": seconds, "reader": reader});
    Ok(format!("{document}\n"))
}

/// A reader needs no more.
pub fn end(node: &Node, query: Option<&str>) -> Result<String, Refusal> {
    let reader = number(query, "reader=").ok_or_else(|| bad("say who: ?reader=N\n".to_owned()))?;
    match node.batch_times.end(ReaderId(reader)) {
        true => Ok(format!("{}\n", json!({"version": VERSION, "reader": reader}))),
        false => Err(unknown(reader)),
    }
}

fn number(query: Option<&str>, name: &str) -> Option<u64> {
    query?.strip_prefix(name)?.parse().ok()
}

fn bad(reason: String) -> Refusal {
    (StatusCode::BAD_REQUEST, reason)
}

fn unknown(reader: u64) -> Refusal {
    (
        StatusCode::NOT_FOUND,
        format!("nothing is known of reader {reader}\n"),
    )
}

/// What was written down since a reader began, or without one all there is.
pub fn render(node: &Node, query: Option<&str>) -> Result<String, Refusal> {
    let reader = match query {
        None | Some("") => None,
        Some(_) => Some(number(query, "reader=").ok_or_else(|| bad("say who: ?reader=N\n".to_owned()))?),
    };
    let read = node.batch_times.read(reader.map(ReaderId));
    let (partitions, one_of) = read.ok_or_else(|| unknown(reader.unwrap_or_default()))?;
    let clock = SharedClock::now(&*node.clock);
    let partitions: Vec<Value> = partitions
        .iter()
        .map(|partition| {
            let batches: Vec<Value> = (partition.batches.iter())
                .map(|batch| {
                    json!([
                        batch.base_offset,
                        batch.last_offset,
                        clock.nanos(batch.received),
                        clock.nanos(batch.appended),
                        batch.visible.map(|moment| clock.nanos(moment)),
                        batch.fetched.map(|moment| clock.nanos(moment)),
                    ])
                })
                .collect();
            json!({"topic": &*partition.topic, "partition": partition.index, "batches": batches})
        })
        .collect();
    let document = json!({
        "version": VERSION,
        "unit": "nanoseconds of CLOCK_MONOTONIC",
        "fields": ["base_offset", "last_offset", "received", "appended", "visible", "fetched"],
        "is_recording": node.batch_times.is_on(),
        "one_of": one_of,
        "partitions": partitions,
    });
    Ok(format!("{document}\n"))
}

/// One moment on two clocks.
struct SharedClock {
    moment: Moment,
    nanos: u64,
}

impl SharedClock {
    fn now(clock: &dyn Clock) -> SharedClock {
        let now = clock_gettime(ClockId::Monotonic);
        SharedClock {
            moment: clock.moment(),
            nanos: now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned(),
        }
    }

    /// - Shape: `moment` has passed. To the microsecond, which is what a moment counts.
    fn nanos(&self, moment: Moment) -> u64 {
        self.nanos
            .saturating_sub(self.moment.micros_since(moment) * 1_000)
    }
}
