//! The client's metrics, under Kafka's names.
//!
//! The stages call the methods of `NetworkMetrics`, `ProducerMetrics` and `ConsumerMetrics`; code
//! outside this folder knows no metric's name. `ClientMetrics` holds those of one client and takes
//! snapshots: as values, as Prometheus text, and as the payload that a broker subscribed to
//! (KIP-714).

pub(crate) mod window;
pub(crate) mod sensor;
mod tally;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod network;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod producer;
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod consumer;
mod settings;
pub(crate) mod registry;
pub(crate) mod pushed_name;
pub mod prometheus;
#[cfg(feature = "telemetry")]
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod otlp;
#[cfg(feature = "telemetry")]
pub(crate) mod payload;
pub(crate) mod instance_id;
#[cfg(feature = "telemetry")]
pub(crate) mod telemetry;
#[cfg(not(feature = "telemetry"))]
#[path = "without_telemetry.rs"]
#[expect(missing_docs, reason = "reachable through `machine` only")]
pub(crate) mod telemetry;
pub mod reference;

pub use self::consumer::{ConsumerMetrics, RebalanceCallback};
pub use self::instance_id::InstanceId;
pub use self::network::NetworkMetrics;
pub use self::producer::{BufferState, ProducerMetrics, TransactionCall};
pub use self::registry::ClientMetrics;
pub use self::sensor::{ClientKind, Metric, MetricKind, Value};
pub use self::telemetry::Telemetry;

use std::sync::Arc;

use self::sensor::Tags;

/// `client` and then `more`.
fn with_tags(client: &Tags, more: &[(&'static str, Arc<str>)]) -> Tags {
    client.iter().chain(more).cloned().collect()
}
