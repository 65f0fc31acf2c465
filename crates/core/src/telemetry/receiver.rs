//! The receiver of client metrics.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

use crate::time::Timestamp;

/// Sender and time of a push. Clients leave their own id out of the payload: only the broker knows
/// it.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Empty when the request had none.
    pub client_id: Arc<str>,
    pub instance_id: Uuid,
    pub principal: Arc<str>,
    pub address: IpAddr,
    pub port: u16,
    pub listener_name: Arc<str>,
    /// From ApiVersions 3 and later (KIP-511).
    pub software_name: Option<Arc<str>>,
    pub software_version: Option<Arc<str>>,
    /// This broker.
    pub node_id: i32,
    /// The interval that the client was told.
    pub push_interval_ms: u32,
    /// This is the client's last push.
    pub is_terminating: bool,
    pub at: Timestamp,
}

/// The payload cannot be read. The client is told, and pushes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed metrics: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Receiver of the metrics that clients push (KIP-714).
///
/// - Shape: called on one thread at a time, never on an event loop; no request but the client's
///   push waits for it.
pub trait ClientTelemetryReceiver: Send + Sync {
    /// Receives one push.
    ///
    /// - Shape: `payload` is an OTLP v1 `MetricsData`, decompressed; empty when the client has none
    ///   of the requested metrics.
    fn receive(&self, from: &Pushed, payload: &[u8]) -> Result<(), Malformed>;
}
