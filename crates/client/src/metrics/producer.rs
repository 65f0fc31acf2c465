//! Metrics of the producer's stages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::network::NetworkMetrics;
use super::sensor::{ClientKind, Family, Group, Metric, Tags, sensors};
use super::tally::{Tally, ThreadTallies};
use super::window::WindowSettings;
use crate::time::{Clock, SystemClock};

/// At most this many topics have metrics of their own; further ones count only into the client's.
const TOPICS_MAX: usize = 1000;

/// How often the threads' lock-free counters are folded into the windows.
const FOLD_INTERVAL_MS: u64 = 1000;

const MS_PER_NANO: f64 = 1e-6;

sensors! {
    PRODUCER: Group::Client, enum ProducerSensor {
        BatchSize {
            "batch-size-avg" Avg "Mean size of a batch on the wire in bytes.",
            "batch-size-max" Max "Size of the largest batch on the wire in bytes.",
        }
        CompressionRate {
            "compression-rate-avg" Avg "Mean of compressed over uncompressed size of a batch; 1: not compressed.",
        }
        QueueTime {
            "record-queue-time-avg" Avg "Mean time a batch waited from its creation to its request, in milliseconds.",
            "record-queue-time-max" Max "Longest time a batch waited, in milliseconds.",
        }
        RequestLatency {
            "request-latency-avg" Avg "Mean time from a produce request to its answer in milliseconds.",
            "request-latency-max" Max "Longest time from a produce request to its answer in milliseconds.",
        }
        RecordsPerRequest {
            "records-per-request-avg" Avg "Mean number of records in a produce request.",
            "record-send-rate" Rate "Records per second that were put into requests.",
            "record-send-total" Total "Records that were put into requests; a retried one counts again.",
        }
        RecordRetry {
            "record-retry-rate" Rate "Records per second that had to be sent again.",
            "record-retry-total" Total "Records that had to be sent again.",
        }
        RecordError {
            "record-error-rate" Rate "Records per second that failed for good.",
            "record-error-total" Total "Records that failed for good.",
        }
        RecordSize {
            "record-size-max" Max "Size of the largest record in bytes, before compression.",
            "record-size-avg" Avg "Mean over batches of the largest record's size in bytes, before compression.",
        }
        BatchSplit {
            "batch-split-rate" Rate "Batches per second that the broker found too large and that were split.",
            "batch-split-total" Total "Batches that the broker found too large and that were split.",
        }
        Throttle {
            "produce-throttle-time-avg" Avg "Mean time by which a broker's quota delayed a produce request, in milliseconds.",
            "produce-throttle-time-max" Max "Longest time by which a broker's quota delayed a produce request, in milliseconds.",
        }
        BufferWait {
            "bufferpool-wait-time-ns-total" Total "Time that threads waited for buffer.memory, in nanoseconds.",
            "bufferpool-wait-ratio" Ratio "Time that threads waited for buffer.memory per time; with several threads it may exceed 1.",
        }
        BufferExhausted {
            "buffer-exhausted-rate" Rate "Records per second that were refused because buffer.memory had no room within max.block.ms.",
            "buffer-exhausted-total" Total "Records that were refused because buffer.memory had no room within max.block.ms.",
        }
        BufferTotal {
            "buffer-total-bytes" Now "buffer.memory.",
        }
        BufferAvailable {
            "buffer-available-bytes" Now "The part of buffer.memory that is free.",
        }
        WaitingThreads {
            "waiting-threads" Now "Threads that wait for buffer.memory now.",
        }
        RequestsInFlight {
            "requests-in-flight" Now "Requests that are not answered yet.",
        }
        MetadataAge {
            "metadata-age" Now "Seconds since the cluster's metadata was last fetched.",
        }
        MetadataWait {
            "metadata-wait-time-ns-total" Total "Time that send waited for metadata, in nanoseconds.",
        }
        Flush {
            "flush-time-ns-total" Total "Time spent in flush, in nanoseconds.",
        }
        TransactionInit {
            "txn-init-time-ns-total" Total "Time spent in init of a transactional producer, in nanoseconds.",
        }
        TransactionBegin {
            "txn-begin-time-ns-total" Total "Time spent in begin, which waits for the end of the transaction before, in nanoseconds.",
        }
        TransactionOffsets {
            "txn-send-offsets-time-ns-total" Total "Time spent in send_offsets of a transaction, in nanoseconds.",
        }
        TransactionCommit {
            "txn-commit-time-ns-total" Total "Time spent in commit of a transaction, in nanoseconds.",
        }
        TransactionAbort {
            "txn-abort-time-ns-total" Total "Time spent in abort of a transaction, in nanoseconds.",
        }
    }
}

sensors! {
    TOPIC: Group::ProducerTopic, enum TopicSensor {
        Records {
            "record-send-rate" Rate "Records of this topic per second that were put into requests.",
            "record-send-total" Total "Records of this topic that were put into requests.",
        }
        Bytes {
            "byte-rate" Rate "Bytes of this topic's batches on the wire per second.",
            "byte-total" Total "Bytes of this topic's batches on the wire.",
        }
        CompressionRate {
            "compression-rate" Avg "Mean of compressed over uncompressed size of this topic's batches.",
        }
        Retry {
            "record-retry-rate" Rate "Records of this topic per second that had to be sent again.",
            "record-retry-total" Total "Records of this topic that had to be sent again.",
        }
        Error {
            "record-error-rate" Rate "Records of this topic per second that failed for good.",
            "record-error-total" Total "Records of this topic that failed for good.",
        }
    }
}

sensors! {
    OWN: Group::Own, enum OwnSensor {
        Send {
            "send-time-avg" Avg "Mean time of one call of send in milliseconds, waiting for metadata and memory included; sampled.",
            "send-time-max" Max "Longest sampled call of send in milliseconds.",
            "send-rate" CountRate "Calls of send per second.",
            "send-total" CountTotal "Calls of send; sampled, so a thread's last few may be missing.",
        }
        SendingThreads {
            "sending-threads" Now "Threads that called send within the sample windows.",
        }
        Callback {
            "callback-time-avg" Avg "Mean time of one callback in milliseconds.",
            "callback-time-max" Max "Longest callback in milliseconds.",
            "callback-time-total" Total "Time spent in callbacks, in milliseconds.",
        }
        FillTime {
            "batch-fill-time-avg" Avg "Mean time from a batch's first to its last record in milliseconds.",
            "batch-fill-time-max" Max "Longest time from a batch's first to its last record in milliseconds.",
        }
        MetadataWait {
            "metadata-wait-time-avg" Avg "Mean time of a send's wait for metadata in milliseconds, of those that waited.",
            "metadata-wait-time-max" Max "Longest wait of a send for metadata in milliseconds.",
        }
        BufferWait {
            "buffer-wait-time-avg" Avg "Mean time of a wait for buffer.memory in milliseconds.",
            "buffer-wait-time-max" Max "Longest wait for buffer.memory in milliseconds.",
        }
        TransactionConflict {
            "transaction-conflict-time-avg" Avg "Mean time that a request of a transaction was refused because the transaction before was not finished, in milliseconds.",
            "transaction-conflict-time-max" Max "Longest such time in milliseconds.",
            "transaction-conflict-time-total" Total "Such time in milliseconds.",
        }
    }
}

/// A call of a transactional producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionCall {
    Init,
    Begin,
    SendOffsets,
    Commit,
    Abort,
}

/// The state of `buffer.memory` when a snapshot is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferState {
    pub total_bytes: usize,
    pub available_bytes: usize,
    pub waiting_threads: usize,
}

/// Reads the buffer's state; `None` once the buffer is gone.
type ReadBuffer = Box<dyn Fn() -> Option<BufferState> + Send + Sync>;

/// Metrics of the producer's stages.
///
/// Events per record (`send_called`, `callbacks_ran`) are counted without a lock; events per batch
/// or request take one lock, which only the sender's thread and snapshots use.
pub struct ProducerMetrics {
    settings: WindowSettings,
    clock: Arc<dyn Clock>,
    network: OnceLock<Arc<NetworkMetrics>>,
    read_buffer: OnceLock<ReadBuffer>,
    sends: ThreadTallies,
    callbacks: Tally,
    in_flight: AtomicU64,
    state: Mutex<ProducerSensors>,
}

struct ProducerSensors {
    producer: Family,
    own: Family,
    topics: HashMap<Arc<str>, Family>,
    folded_at_ms: u64,
}

impl std::fmt::Debug for ProducerMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProducerMetrics").finish_non_exhaustive()
    }
}

impl Default for ProducerMetrics {
    fn default() -> ProducerMetrics {
        ProducerMetrics::new(WindowSettings::default(), Arc::new(SystemClock::default()))
    }
}

impl ProducerMetrics {
    pub fn new(settings: WindowSettings, clock: Arc<dyn Clock>) -> ProducerMetrics {
        ProducerMetrics {
            settings,
            clock,
            network: OnceLock::new(),
            read_buffer: OnceLock::new(),
            sends: ThreadTallies::default(),
            callbacks: Tally::default(),
            in_flight: AtomicU64::new(0),
            state: Mutex::new(ProducerSensors {
                producer: Family::new(&PRODUCER),
                own: Family::new(&OWN),
                topics: HashMap::new(),
                folded_at_ms: 0,
            }),
        }
    }

    /// Sets where the latency per node and the metadata's age are kept.
    pub(super) fn join_network(&self, network: Arc<NetworkMetrics>) {
        let _ = self.network.set(network);
    }

    /// Sets, once, how the snapshot reads `buffer.memory`. Pass it a `Weak`: the accumulator holds
    /// these metrics.
    pub fn watch_buffer(&self, read: impl Fn() -> Option<BufferState> + Send + Sync + 'static) {
        let _ = self.read_buffer.set(Box::new(read));
    }

    fn lock(&self) -> (u64, MutexGuard<'_, ProducerSensors>) {
        let now_ms = self.clock.moment().nanos() / 1_000_000;
        (now_ms, self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record(&self, sensor: ProducerSensor, value: f64) {
        let (now_ms, mut state) = self.lock();
        state.producer.record(self.settings, now_ms, sensor, value);
    }

    /// W of the doctor's rules: the time inside `send`, sampled (see the caller); it represents
    /// `weight` sends.
    pub fn send_called(&self, nanos: u64, weight: u32) {
        let weight = u64::from(weight);
        self.sends.add(weight, nanos.saturating_mul(weight), nanos);
    }

    pub fn metadata_waited(&self, nanos: u64) {
        let (now_ms, mut state) = self.lock();
        state
            .producer
            .record(self.settings, now_ms, ProducerSensor::MetadataWait, nanos as f64);
        state.own.record(
            self.settings,
            now_ms,
            OwnSensor::MetadataWait,
            nanos as f64 * MS_PER_NANO,
        );
    }

    pub fn buffer_waited(&self, nanos: u64) {
        let (now_ms, mut state) = self.lock();
        state
            .producer
            .record(self.settings, now_ms, ProducerSensor::BufferWait, nanos as f64);
        state.own.record(
            self.settings,
            now_ms,
            OwnSensor::BufferWait,
            nanos as f64 * MS_PER_NANO,
        );
    }

    pub fn buffer_exhausted(&self) {
        self.record(ProducerSensor::BufferExhausted, 1.0);
    }

    /// A batch goes into a request; again when it is retried, as Kafka counts. `queue_nanos` from
    /// its creation, `fill_nanos` from its first to its last record.
    #[expect(
        clippy::too_many_arguments,
        reason = "one batch's facts, all measured at one place"
    )]
    pub fn batch_drained(
        &self,
        topic: &str,
        records: u32,
        wire_bytes: usize,
        uncompressed_bytes: usize,
        record_bytes_max: usize,
        queue_nanos: u64,
        fill_nanos: u64,
    ) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        let ratio = wire_bytes as f64 / uncompressed_bytes.max(1) as f64;
        let producer = &mut state.producer;
        producer.record(settings, now_ms, ProducerSensor::BatchSize, wire_bytes as f64);
        producer.record(settings, now_ms, ProducerSensor::CompressionRate, ratio);
        producer.record(
            settings,
            now_ms,
            ProducerSensor::RecordSize,
            record_bytes_max as f64,
        );
        producer.record(
            settings,
            now_ms,
            ProducerSensor::QueueTime,
            queue_nanos as f64 * MS_PER_NANO,
        );
        state.own.record(
            settings,
            now_ms,
            OwnSensor::FillTime,
            fill_nanos as f64 * MS_PER_NANO,
        );
        if let Some(topic) = state.topic(topic) {
            topic.record(settings, now_ms, TopicSensor::Records, f64::from(records));
            topic.record(settings, now_ms, TopicSensor::Bytes, wire_bytes as f64);
            topic.record(settings, now_ms, TopicSensor::CompressionRate, ratio);
        }
    }

    pub fn batch_split(&self) {
        self.record(ProducerSensor::BatchSplit, 1.0);
    }

    /// One produce request with this many records is handed to the driver.
    pub fn produce_sent(&self, records: u32) {
        let (now_ms, mut state) = self.lock();
        state.producer.record(
            self.settings,
            now_ms,
            ProducerSensor::RecordsPerRequest,
            f64::from(records),
        );
        if now_ms.saturating_sub(state.folded_at_ms) >= FOLD_INTERVAL_MS {
            self.fold(&mut state, now_ms);
        }
    }

    /// `latency_nanos` from the request to its answer.
    pub fn produce_answered(&self, node: i32, latency_nanos: u64, throttle_ms: u32) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        let latency_ms = latency_nanos as f64 * MS_PER_NANO;
        state
            .producer
            .record(settings, now_ms, ProducerSensor::RequestLatency, latency_ms);
        state
            .producer
            .record(settings, now_ms, ProducerSensor::Throttle, f64::from(throttle_ms));
        drop(state);
        if let Some(network) = self.network.get() {
            network.request_answered(node, latency_nanos);
        }
    }

    pub fn records_retried(&self, topic: &str, records: u32) {
        self.record_both(topic, ProducerSensor::RecordRetry, TopicSensor::Retry, records);
    }

    pub fn records_failed(&self, topic: &str, records: u32) {
        self.record_both(topic, ProducerSensor::RecordError, TopicSensor::Error, records);
    }

    fn record_both(&self, topic: &str, sensor: ProducerSensor, topic_sensor: TopicSensor, records: u32) {
        let (now_ms, mut state) = self.lock();
        let settings = self.settings;
        state
            .producer
            .record(settings, now_ms, sensor, f64::from(records));
        if let Some(topic) = state.topic(topic) {
            topic.record(settings, now_ms, topic_sensor, f64::from(records));
        }
    }

    pub fn requests_in_flight(&self, requests: usize) {
        self.in_flight.store(requests as u64, Ordering::Relaxed);
    }

    pub fn flushed(&self, nanos: u64) {
        self.record(ProducerSensor::Flush, nanos as f64);
    }

    /// The time of one call, failed or not.
    pub fn transaction_called(&self, call: TransactionCall, nanos: u64) {
        let sensor = match call {
            TransactionCall::Init => ProducerSensor::TransactionInit,
            TransactionCall::Begin => ProducerSensor::TransactionBegin,
            TransactionCall::SendOffsets => ProducerSensor::TransactionOffsets,
            TransactionCall::Commit => ProducerSensor::TransactionCommit,
            TransactionCall::Abort => ProducerSensor::TransactionAbort,
        };
        self.record(sensor, nanos as f64);
    }

    /// From the first CONCURRENT_TRANSACTIONS to the answer that followed.
    pub fn transaction_conflict(&self, nanos: u64) {
        let (now_ms, mut state) = self.lock();
        let value = nanos as f64 * MS_PER_NANO;
        state
            .own
            .record(self.settings, now_ms, OwnSensor::TransactionConflict, value);
    }

    /// C of the doctor's rules: one callback's time.
    pub fn callbacks_ran(&self, count: u64, nanos: u64, nanos_max: u64) {
        self.callbacks.add(count, nanos, nanos_max);
    }

    fn fold(&self, state: &mut ProducerSensors, now_ms: u64) {
        state.folded_at_ms = now_ms;
        let settings = self.settings;
        let sends = self.sends.take(MS_PER_NANO, now_ms, settings.span_ms());
        state.own.record_several(settings, now_ms, OwnSensor::Send, sends);
        let callbacks = self.callbacks.take(MS_PER_NANO);
        state
            .own
            .record_several(settings, now_ms, OwnSensor::Callback, callbacks);
    }

    pub(super) fn collect(&self, client_tags: &Tags, into: &mut Vec<Metric>) {
        // Read before the lock is taken: no thread may wait for the buffer's own lock while it
        // holds this one.
        let buffer = self.read_buffer.get().and_then(|read| read()).unwrap_or_default();
        let metadata_age = self
            .network
            .get()
            .map_or(0.0, |network| network.metadata_age_seconds());
        let (now_ms, mut state) = self.lock();
        self.fold(&mut state, now_ms);
        let state = &mut *state;
        let threads = self.sends.active_threads(now_ms, self.settings.span_ms());
        state.own.set(OwnSensor::SendingThreads, threads as f64);
        let producer = &mut state.producer;
        producer.set(ProducerSensor::BufferTotal, buffer.total_bytes as f64);
        producer.set(ProducerSensor::BufferAvailable, buffer.available_bytes as f64);
        producer.set(ProducerSensor::WaitingThreads, buffer.waiting_threads as f64);
        producer.set(
            ProducerSensor::RequestsInFlight,
            self.in_flight.load(Ordering::Relaxed) as f64,
        );
        producer.set(ProducerSensor::MetadataAge, metadata_age);
        let kind = ClientKind::Producer;
        producer.collect(self.settings, now_ms, kind, client_tags, into);
        state.own.collect(self.settings, now_ms, kind, client_tags, into);
        let mut topics: Vec<_> = state.topics.iter_mut().collect();
        topics.sort_unstable_by(|left, right| left.0.cmp(right.0));
        for (name, topic) in topics {
            let tags = super::with_tags(client_tags, &[("topic", name.clone())]);
            topic.collect(self.settings, now_ms, kind, &tags, into);
        }
    }
}

impl ProducerSensors {
    fn topic(&mut self, name: &str) -> Option<&mut Family> {
        if !self.topics.contains_key(name) {
            if self.topics.len() >= TOPICS_MAX {
                return None;
            }
            self.topics.insert(name.into(), Family::new(&TOPIC));
        }
        self.topics.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::registry::tests::{client, value};

    #[test]
    fn a_sampled_send_stands_for_as_many_as_its_weight() {
        let (metrics, clock) = client(ClientKind::Producer);
        let producer = metrics.producer();
        producer.send_called(10_000, 1);
        producer.send_called(40_000, 9);
        clock.advance_ms(1);
        let own = |name| value(&metrics, "ottla-producer-metrics", name);
        assert_eq!(own("send-total"), 10.0);
        assert!(
            (own("send-time-avg") - 0.037).abs() < 1e-9,
            "{}",
            own("send-time-avg")
        );
        assert!((own("send-time-max") - 0.04).abs() < 1e-9);
        assert_eq!(own("sending-threads"), 1.0);
        clock.advance_ms(60_001);
        assert_eq!(own("sending-threads"), 0.0);
        assert!(own("send-time-avg").is_nan());
        assert_eq!(own("send-total"), 10.0);
    }

    #[test]
    fn the_buffer_is_read_when_a_snapshot_is_taken() {
        let (metrics, _) = client(ClientKind::Producer);
        let state = Arc::new(BufferState {
            total_bytes: 100,
            available_bytes: 40,
            waiting_threads: 2,
        });
        let weak = Arc::downgrade(&state);
        metrics
            .producer()
            .watch_buffer(move || weak.upgrade().map(|state| *state));
        let read = |name| value(&metrics, "producer-metrics", name);
        let values = (
            read("buffer-total-bytes"),
            read("buffer-available-bytes"),
            read("waiting-threads"),
        );
        assert_eq!(values, (100.0, 40.0, 2.0));
        drop(state);
        assert_eq!(read("buffer-total-bytes"), 0.0);
    }

    #[test]
    fn topics_beyond_the_limit_count_into_the_client_only() {
        let (metrics, _) = client(ClientKind::Producer);
        for index in 0..TOPICS_MAX + 10 {
            metrics.producer().records_failed(&format!("t{index}"), 1);
        }
        let snapshot = metrics.snapshot();
        let topics = snapshot
            .iter()
            .filter(|metric| metric.group == "producer-topic-metrics" && metric.name == "record-error-total");
        assert_eq!(topics.count(), TOPICS_MAX);
        assert_eq!(
            value(&metrics, "producer-metrics", "record-error-total"),
            TOPICS_MAX as f64 + 10.0
        );
    }

    #[test]
    fn a_produce_requests_latency_is_the_nodes_too() {
        let (metrics, _) = client(ClientKind::Producer);
        metrics.network().response_received(1, 10, 99_000_000);
        metrics.producer().produce_answered(1, 2_000_000, 0);
        let snapshot = metrics.snapshot();
        let latency = snapshot
            .iter()
            .find(|metric| metric.group == "producer-node-metrics" && metric.name == "request-latency-avg");
        assert_eq!(
            latency.and_then(Metric::number),
            Some(2.0),
            "a heartbeat's or metadata's does not count"
        );
        assert_eq!(value(&metrics, "producer-metrics", "request-latency-max"), 2.0);
    }
}
