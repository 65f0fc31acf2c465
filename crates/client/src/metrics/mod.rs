//! The client's metrics, under Kafka's names.
//!
//! The stages call the methods of `NetworkMetrics`, `ProducerMetrics` and `ConsumerMetrics`; code
//! outside this folder knows no metric's name. `ClientMetrics` holds those of one client and takes
//! snapshots: as values, as Prometheus text, and as the payload that a broker subscribed to
//! (KIP-714).

pub mod window;
pub mod sensor;
mod tally;
pub mod network;
pub mod producer;
pub mod consumer;
pub mod registry;
mod pushed_name;
pub mod prometheus;
#[cfg(feature = "telemetry")]
pub mod otlp;
#[cfg(feature = "telemetry")]
pub mod payload;
pub mod instance_id;
#[cfg(feature = "telemetry")]
pub mod telemetry;
#[cfg(not(feature = "telemetry"))]
#[path = "without_telemetry.rs"]
pub mod telemetry;
pub mod reference;

pub use self::consumer::{ConsumerMetrics, RebalanceCallback};
pub use self::instance_id::InstanceId;
pub use self::network::NetworkMetrics;
pub use self::producer::{BufferState, ProducerMetrics};
pub use self::pushed_name::pushed_name;
pub use self::registry::ClientMetrics;
pub use self::sensor::{ClientKind, Metric, MetricKind, Value};
pub use self::telemetry::Telemetry;

use std::sync::Arc;

use self::sensor::Tags;

/// `client` and then `more`.
fn with_tags(client: &Tags, more: &[(&'static str, Arc<str>)]) -> Tags {
    client.iter().chain(more).cloned().collect()
}
