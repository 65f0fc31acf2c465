//! The results of groups of clients in the measured part of a course. Bounded, however long it was.

use std::collections::BTreeMap;

use crate::report::histogram::Latencies;

/// The result of a group of producers.
#[derive(Clone, Debug, Default)]
pub struct ProduceOutcome {
    pub name: String,
    /// Handed to `send` in the measured part.
    pub sent: u64,
    /// Of those, acknowledged without error.
    pub acknowledged: u64,
    pub failed: u64,
    /// The size of acknowledged keys and values.
    pub bytes: u64,
    pub errors: BTreeMap<String, u64>,
    /// Over the whole course, including the warm-up: what a consumer must have received.
    pub acknowledged_in_all: u64,
    /// From a record's due time to its answer. Empty without a rate.
    pub latency: Latencies,
    /// From the call of `send` to its answer.
    pub service: Latencies,
    /// The duration of `send`, in nanoseconds.
    pub send_nanos_mean: f64,
    /// How late `send` was called. Empty without a rate.
    pub schedule_error: Latencies,
    /// The busiest sending thread's share of a processor.
    pub busiest_thread: f64,
    /// From the first to the last answer of the measured part.
    pub seconds: f64,
    pub timeline: Vec<LoadSecond>,
    /// By Kafka's metric names; sums for totals, means over the clients for the rest. Of the
    /// measured part only, where totals allow it.
    pub metrics: BTreeMap<String, f64>,
    pub samples: Vec<SentRecord>,
}

/// The result of a group of consumers.
#[derive(Clone, Debug, Default)]
pub struct ConsumeOutcome {
    pub name: String,
    /// In the measured part.
    pub records: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Over the whole course.
    pub records_in_all: u64,
    /// Acknowledged to the course's producers in the topics that this group reads.
    pub acknowledged_in_its_topics: u64,
    pub duplicated: u64,
    pub disordered: u64,
    /// Records without a stamp, or with a damaged one.
    pub foreign: u64,
    pub errors: BTreeMap<String, u64>,
    /// From a record's due time to its arrival in the application.
    pub end_to_end: Latencies,
    pub timeline: Vec<LoadSecond>,
    pub metrics: BTreeMap<String, f64>,
    pub samples: Vec<ReceivedRecord>,
}

/// The result of a group of bare requests.
#[derive(Clone, Debug, Default)]
pub struct RequestOutcome {
    pub name: String,
    /// In the measured part, like the other counts.
    pub answered: u64,
    /// The size of answers.
    pub bytes: u64,
    /// Connections opened.
    pub opened: u64,
    /// Due or sent before the end, and not answered by then.
    pub unanswered: u64,
    /// Requests that were refused, and those that were lost with their connection.
    pub failed: u64,
    pub errors: BTreeMap<String, u64>,
    /// From a request's due time to its answer. Empty without a rate.
    pub latency: Latencies,
    /// From its sending; if each request has its own connection, from the start of connecting.
    pub service: Latencies,
    pub seconds: f64,
}

/// One second of a group.
#[derive(Clone, Debug, Default)]
pub struct LoadSecond {
    pub sent: u64,
    /// Acknowledged or received.
    pub done: u64,
    pub latency: Latencies,
}

/// The partition and offset of a sampled record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordPlace {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

/// Times in nanoseconds of the clock that stamps use.
#[derive(Clone, Debug)]
pub struct SentRecord {
    pub place: RecordPlace,
    pub due_nanos: u64,
    pub sent_nanos: u64,
    pub acknowledged_nanos: u64,
}

#[derive(Clone, Debug)]
pub struct ReceivedRecord {
    pub place: RecordPlace,
    pub due_nanos: u64,
    pub sent_nanos: u64,
    pub received_nanos: u64,
    /// When the broker appended it, by its wall clock; only with
    /// `message.timestamp.type=LogAppendTime`.
    pub log_append_ms: Option<i64>,
}
