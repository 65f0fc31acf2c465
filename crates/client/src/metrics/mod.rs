//! What the client says about itself, under Kafka's names.
//!
//! The stages call the methods below; nobody outside this folder knows a metric's name.

/// Connections, requests and the driver's thread. Nanoseconds and bytes throughout. One per client.
#[derive(Debug, Default)]
pub struct NetworkMetrics {}

impl NetworkMetrics {
    pub fn connection_created(&self) {}
    pub fn connection_closed(&self) {}
    pub fn authenticated(&self, _is_success: bool) {}
    /// `node`: negative for bootstrap connections.
    pub fn request_sent(&self, _node: i32, _bytes: usize) {}
    pub fn response_received(&self, _node: i32, _bytes: usize, _latency_nanos: u64) {}
    pub fn round_trip(&self, _node: i32, _nanos: u64) {}
    /// One sleep of the driver, and the work with sockets after it.
    pub fn driver_turned(&self, _waited_nanos: u64, _io_nanos: u64) {}
    pub fn metadata_updated(&self) {}
}

/// The producer's stages.
#[derive(Debug, Default)]
pub struct ProducerMetrics {}

impl ProducerMetrics {
    /// W of the doctor's rules: the time inside `send`, sampled (see the caller); `weight` sends are represented by it.
    pub fn send_called(&self, _nanos: u64, _weight: u32) {}
    pub fn metadata_waited(&self, _nanos: u64) {}
    pub fn buffer_waited(&self, _nanos: u64) {}
    pub fn buffer_exhausted(&self) {}
    /// A batch goes into a request for the first time. `queue_nanos` from its creation, `fill_nanos` from its first to its last record.
    #[expect(
        clippy::too_many_arguments,
        reason = "one batch's facts, all measured at one place"
    )]
    pub fn batch_drained(
        &self,
        _topic: &str,
        _records: u32,
        _wire_bytes: usize,
        _uncompressed_bytes: usize,
        _record_bytes_max: usize,
        _queue_nanos: u64,
        _fill_nanos: u64,
    ) {
    }
    pub fn batch_split(&self) {}
    pub fn produce_sent(&self, _records: u32) {}
    pub fn produce_answered(&self, _throttle_ms: u32) {}
    pub fn records_retried(&self, _topic: &str, _records: u32) {}
    pub fn records_failed(&self, _topic: &str, _records: u32) {}
    pub fn requests_in_flight(&self, _requests: usize) {}
    pub fn flushed(&self, _nanos: u64) {}
    /// C of the doctor's rules: one callback's time.
    pub fn callback_ran(&self, _nanos: u64) {}
}

/// The consumer's stages.
#[derive(Debug, Default)]
pub struct ConsumerMetrics {}

/// Kafka's `consumer-coordinator-metrics`.
impl ConsumerMetrics {
    pub fn group_joined(&self, _nanos: u64) {}
    pub fn group_synced(&self, _nanos: u64) {}
    pub fn heartbeat_sent(&self, _at: crate::time::Moment) {}
    pub fn heartbeat_answered(&self, _nanos: u64) {}
    /// From the first JoinGroup of the rebalance to its assignment.
    pub fn rebalanced(&self, _at: crate::time::Moment, _nanos: u64) {}
    pub fn rebalance_failed(&self) {}
    pub fn assigned_partitions(&self, _partitions: usize) {}
    pub fn committed(&self, _nanos: u64) {}
}
