//! `/debug/batches`: when batches were received, appended, visible and fetched, on the clock that all processes share.
//!
//! `POST ?seconds=N` begins (and forgets what was before), `GET` answers with what was written down, `DELETE` ends.

use std::time::Duration;

use ottla_core::node::Node;
use ottla_core::time::{Clock, Moment};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// The form of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// Somebody who forgot to end it does not slow the broker for ever.
const SECONDS_MAX: u64 = 3_600;

/// Begins to write down; the answer's text.
///
/// - Errors: a sentence for whoever asked.
pub fn begin(node: &Node, query: Option<&str>) -> Result<String, String> {
    let seconds = query
        .and_then(|query| query.strip_prefix("seconds="))
        .and_then(|seconds| seconds.parse().ok())
        .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
        .ok_or_else(|| format!("say for how long: ?seconds=N with N from 1 to {SECONDS_MAX}\n"))?;
    let until = node.clock.moment().after(Duration::from_secs(seconds));
    node.batch_times.record_until(until);
    Ok(format!("{}\n", json!({"version": VERSION, "seconds": seconds})))
}

/// What was written down so far.
pub fn render(node: &Node) -> String {
    let (partitions, one_of) = node.batch_times.take();
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
    format!("{document}\n")
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
