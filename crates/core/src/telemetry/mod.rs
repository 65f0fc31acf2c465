//! Receives client metrics (KIP-714): decides which clients may push what and when, and hands
//! pushes to a receiver.
//!
//! Nothing here parses OTLP. A payload is decompressed and given to the receiver that the embedding
//! program has set; without one the two APIs are not announced, and clients push nothing.
//!
//! Reading order: the modules below, top to bottom.

pub mod receiver;
pub mod subscription;
pub mod instances;
pub mod queue;
pub mod counts;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::{Codec, CompressionError, decompress};

use crate::config::TelemetryConfig;
use crate::image::MetadataImage;
use crate::request::Request;
use crate::time::Moment;

use counts::Counts;
use instances::{Granted, Instances, Push};
use queue::Queue;
use receiver::{ClientTelemetryReceiver, Pushed};
use subscription::{MatchedClient, Subscriptions};

/// Limit of a decompressed payload, as a multiple of `telemetry.max.bytes`. Clients' payloads, with
/// their many similar names, compress to a fifth or less; Apache Kafka 4.3 has no such limit.
const UNFOLDED_FACTOR: usize = 8;

/// The ids in the client's order of preference: zstd, lz4, gzip, snappy.
pub const ACCEPTED_COMPRESSION_TYPES: [i8; 4] = [4, 3, 1, 2];

/// The state of client metrics that outlives a request.
pub struct Telemetry {
    receiver: OnceLock<Arc<dyn ClientTelemetryReceiver>>,
    config: TelemetryConfig,
    /// Locked by telemetry requests and by the end of connections only; no produce waits for it.
    state: Mutex<TelemetryState>,
    pub(crate) queue: Arc<Queue>,
    pub counts: Counts,
}

#[derive(Debug)]
struct TelemetryState {
    subscriptions: Subscriptions,
    instances: Instances,
}

impl Telemetry {
    pub fn new(config: TelemetryConfig) -> Telemetry {
        Telemetry {
            receiver: OnceLock::new(),
            state: Mutex::new(TelemetryState {
                subscriptions: Subscriptions::new(config.default_interval_ms),
                instances: Instances::default(),
            }),
            config,
            queue: Arc::default(),
            counts: Counts::default(),
        }
    }

    /// Sets the receiver, which enables pushes. Called once, before the first request.
    pub fn set_receiver(&self, receiver: Arc<dyn ClientTelemetryReceiver>) {
        assert!(self.receiver.set(receiver).is_ok(), "the receiver is set once");
    }

    pub fn has_receiver(&self) -> bool {
        self.receiver.get().is_some()
    }

    /// Whether any client may be asked for metrics: there is a default interval, or a subscription.
    pub fn may_ask(&self, image: &MetadataImage) -> bool {
        let state = &mut *self.state();
        state.subscriptions.follow(&image.configs);
        self.has_receiver() && state.subscriptions.may_ask()
    }

    /// Returns the number of known client instances.
    pub fn instance_count(&self) -> usize {
        self.state().instances.len()
    }

    /// Returns the number of queued pushes.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes_max(&self) -> i32 {
        self.config.bytes_max
    }

    /// Handles GetTelemetrySubscriptions of an instance; `id` is not zero.
    pub(crate) fn ask(
        &self,
        image: &MetadataImage,
        request: &Request<'_>,
        id: Uuid,
        now: Moment,
    ) -> Result<Granted, ErrorCode> {
        let state = &mut *self.state();
        state.subscriptions.follow(&image.configs);
        let subscriptions = &state.subscriptions;
        let granted = state.instances.ask(
            now,
            id,
            request.connection.connection_id,
            subscriptions.generation(),
            || subscriptions.wanted(&MatchedClient::new(id, request)),
        );
        self.counts.asked(granted.is_ok());
        granted
    }

    /// Decides whether a push may be read; returns its interval in milliseconds.
    pub(crate) fn admit(
        &self,
        image: &MetadataImage,
        request: &Request<'_>,
        push: &Push,
        now: Moment,
    ) -> Result<u32, ErrorCode> {
        let state = &mut *self.state();
        state.subscriptions.follow(&image.configs);
        let subscriptions = &state.subscriptions;
        state.instances.push(
            now,
            push,
            usize::try_from(self.config.bytes_max).unwrap_or(0),
            request.connection.connection_id,
            subscriptions.generation(),
            || subscriptions.wanted(&MatchedClient::new(push.id, request)),
        )
    }

    /// Decompresses an admitted push and hands it to the receiver. May take long: not for an event
    /// loop.
    pub(crate) fn receive(&self, pushed: &Pushed, codec: Codec, payload: &[u8]) -> Result<(), ErrorCode> {
        let Some(receiver) = self.receiver.get() else {
            return Err(ErrorCode::InvalidRequest);
        };
        let limit_bytes = usize::try_from(self.config.bytes_max)
            .unwrap_or(0)
            .saturating_mul(UNFOLDED_FACTOR);
        let mut unfolded = Vec::new();
        if !payload.is_empty() {
            decompress(codec, payload, limit_bytes, &mut unfolded).map_err(|error| match error {
                // The client may retry with less, which INVALID_RECORD would forbid.
                CompressionError::LimitExceeded { .. } => ErrorCode::TelemetryTooLarge,
                CompressionError::Invalid { .. } => ErrorCode::InvalidRecord,
            })?;
        }
        receiver
            .receive(pushed, &unfolded)
            .map_err(|_| ErrorCode::InvalidRecord)?;
        self.counts.taken(payload.len(), unfolded.len());
        Ok(())
    }

    /// Drops the state of a connection's instances.
    pub fn on_disconnect(&self, connection_id: u64) {
        self.state().instances.disconnected(connection_id);
    }

    /// Drops instances that were silent for too long.
    pub(crate) fn expire(&self, now: Moment) {
        self.state().instances.expire(now);
    }

    fn state(&self) -> MutexGuard<'_, TelemetryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
