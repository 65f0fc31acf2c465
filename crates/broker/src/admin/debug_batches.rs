//! `/debug/batches`: when batches were received, appended, visible and fetched, on the clock that
//! all processes share.
//!
//! `POST ?seconds=N` begins to record and answers with a reader's number, `GET ?reader=R` answers
//! with what has been recorded since, as often as it is asked, `DELETE ?reader=R` ends it. Readers
//! are independent of each other.

use std::time::Duration;

use axum::http::StatusCode;
use ottla_core::batch_times::ReaderId;
use ottla_core::node::Node;
use ottla_core::time::{Clock, Moment};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The version of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// The longest recording, so that a forgotten one does not slow the broker for ever.
const SECONDS_MAX: u64 = 3_600;

/// The status of an answer, and a sentence for the caller.
pub type BatchesRefusal = (StatusCode, String);

/// Begins to record for a new reader, whose number is in the answer.
pub fn begin(node: &Node, query: Option<&str>) -> Result<String, BatchesRefusal> {
    let seconds = (number(query, "seconds="))
        .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
        .ok_or_else(|| {
            bad(format!(
                "missing duration: ?seconds=N with N from 1 to {SECONDS_MAX}\n"
            ))
        })?;
    let now = node.clock().moment();
    let until = now.after(Duration::from_secs(seconds));
    let ReaderId(reader) = node.services().batch_times.begin(now, until).ok_or_else(|| {
        let reason = "too many readers are recording; each ends when its time is over\n";
        (StatusCode::TOO_MANY_REQUESTS, reason.to_owned())
    })?;
    let document = json!({"version": VERSION, "seconds": seconds, "reader": reader});
    Ok(format!("{document}\n"))
}

/// Ends a reader's recording.
pub fn end(node: &Node, query: Option<&str>) -> Result<String, BatchesRefusal> {
    let reader = number(query, "reader=").ok_or_else(|| bad("missing ?reader=N\n".to_owned()))?;
    match node.services().batch_times.end(ReaderId(reader)) {
        true => Ok(format!("{}\n", json!({"version": VERSION, "reader": reader}))),
        false => Err(unknown(reader)),
    }
}

fn number(query: Option<&str>, name: &str) -> Option<u64> {
    query?.strip_prefix(name)?.parse().ok()
}

fn bad(reason: String) -> BatchesRefusal {
    (StatusCode::BAD_REQUEST, reason)
}

fn unknown(reader: u64) -> BatchesRefusal {
    (
        StatusCode::NOT_FOUND,
        format!("reader {reader} is unknown or has ended\n"),
    )
}

/// Renders what was recorded since a reader began; without a reader, everything there is.
pub fn render(node: &Node, query: Option<&str>) -> Result<String, BatchesRefusal> {
    let reader = match query {
        None | Some("") => None,
        Some(_) => Some(number(query, "reader=").ok_or_else(|| bad("missing ?reader=N\n".to_owned()))?),
    };
    let read = node.services().batch_times.read(reader.map(ReaderId));
    let (partitions, one_of) = read.ok_or_else(|| unknown(reader.unwrap_or_default()))?;
    let clock = SharedClock::now(node.clock());
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
        "is_recording": node.services().batch_times.is_on(),
        "one_of": one_of,
        "partitions": partitions,
    });
    Ok(format!("{document}\n"))
}

/// The same moment on two clocks.
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

    /// - Shape: `moment` is in the past. Accurate to the microsecond, the resolution of a moment.
    fn nanos(&self, moment: Moment) -> u64 {
        self.nanos
            .saturating_sub(self.moment.micros_since(moment) * 1_000)
    }
}
