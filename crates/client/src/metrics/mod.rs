//! What the client says about itself, under Kafka's names.
//!
//! The stages call the methods of `NetworkMetrics`, `ProducerMetrics` and `ConsumerMetrics`; nobody outside this folder
//! knows a metric's name. `ClientMetrics` holds those of one client and takes snapshots: as values, as Prometheus text,
//! and as what a broker subscribed to (KIP-714).

pub mod window;
pub mod sensor;
mod tally;
pub mod network;
pub mod producer;
pub mod consumer;
pub mod registry;
pub mod prometheus;

pub use self::consumer::{ConsumerMetrics, RebalanceCallback};
pub use self::network::NetworkMetrics;
pub use self::producer::{BufferState, ProducerMetrics};
pub use self::registry::ClientMetrics;
pub use self::sensor::{ClientKind, Metric, MetricKind, Value};

use std::sync::Arc;

use self::sensor::Tags;

/// `client` and then `more`.
fn with_tags(client: &Tags, more: &[(&'static str, Arc<str>)]) -> Tags {
    client.iter().chain(more).cloned().collect()
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
