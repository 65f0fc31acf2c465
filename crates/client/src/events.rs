//! What this crate tells a `tracing` subscriber: one function for each event.
//!
//! The target is `ottla_client`, and every event has `client_id`. Nothing is emitted per record.
//! Reconnecting and retrying are told once per series above DEBUG, so that a broker that is away
//! for an hour fills no log. Without a subscriber an event costs one relaxed load.

use tracing::{debug, error, info, warn};

use crate::config::Warning;
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::network::io::Address;

const TARGET: &str = "ottla_client";

/// A key that is unknown or without effect, an adjusted default: once for each client.
pub fn configuration(client_id: &str, warning: &Warning) {
    warn!(target: TARGET, client_id, key = warning.key, reason = warning.message, "configuration");
}

/// Connected, negotiated and authenticated.
pub fn connection_up(client_id: &str, node: NodeId, address: &Address) {
    debug!(target: TARGET, client_id, node = node.0, %address, "connection up");
}

/// A token of OAUTHBEARER was fetched before the one before it ended.
#[cfg(feature = "oauth")]
pub fn token_replaced(client_id: &str, url: &str) {
    debug!(target: TARGET, client_id, url, "token replaced");
}

/// Connections show the token before it, as long as brokers take that.
#[cfg(feature = "oauth")]
pub fn token_not_replaced(client_id: &str, url: &str, reason: &str) {
    warn!(target: TARGET, client_id, url, reason, "no new token");
}

/// How a connection, or an attempt at one, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It was up.
    Down,
    /// The first attempt of a series.
    FirstFailure,
    Failure,
}

/// Not for a connection that this client closes by itself.
pub fn connection_ended(client_id: &str, node: NodeId, address: &Address, end: ConnectionEnd, error: &Error) {
    let node = node.0;
    match end {
        ConnectionEnd::Down => info!(target: TARGET, client_id, node, %address, %error, "connection down"),
        ConnectionEnd::FirstFailure => {
            warn!(target: TARGET, client_id, node, %address, %error, "connection fails");
        }
        ConnectionEnd::Failure => {
            debug!(target: TARGET, client_id, node, %address, %error, "connection fails");
        }
    }
}

/// The answer of a broker that does not know its cluster yet; asked again after the backoff.
pub fn metadata_unusable(client_id: &str, error: &Error) {
    debug!(target: TARGET, client_id, %error, "metadata answer not usable");
}

/// No broker knows the topic, and none has created it since the first answer. Once, until the topic
/// exists or is wanted no longer.
pub fn topic_unknown(client_id: &str, topic: &str) {
    warn!(target: TARGET, client_id, topic, "topic does not exist");
}

/// The name is invalid, or this client has no rights to the topic.
pub fn topic_refused(client_id: &str, topic: &str, error: &Error) {
    warn!(target: TARGET, client_id, topic, %error, "topic refused");
}

/// The batch is sent again.
pub fn batch_retried(
    client_id: &str,
    topic: &str,
    partition: i32,
    records: u32,
    attempts: u32,
    error: &Error,
) {
    debug!(target: TARGET, client_id, topic, partition, records, attempts, %error, "batch retried");
}

/// The records' futures and callbacks get this error: refused, or at the delivery timeout.
pub fn batch_failed(client_id: &str, topic: &str, partition: i32, records: u32, error: &Error) {
    warn!(target: TARGET, client_id, topic, partition, records, %error, "batch failed");
}

/// The producer must be replaced.
pub fn producer_failed(client_id: &str, error: &Error) {
    error!(target: TARGET, client_id, %error, "producer failed for good");
}

/// The member joins the group, again or for the first time.
pub fn rebalance_started(client_id: &str, group: &str, reason: &str) {
    info!(target: TARGET, client_id, group, reason, "rebalance started");
}

/// - `partitions`: how many this member has now.
pub fn rebalanced(client_id: &str, group: &str, generation: i32, member_id: &str, partitions: usize) {
    info!(target: TARGET, client_id, group, generation, member_id, partitions, "rebalance completed");
}

pub fn member_leaves(client_id: &str, group: &str, reason: &str) {
    info!(target: TARGET, client_id, group, reason, "member leaves the group");
}

/// The transactional id is another producer's, or the coordinator does not know this one any more,
/// or it refuses it.
pub fn transaction_lost(client_id: &str, transactional_id: &str, error: &Error) {
    warn!(target: TARGET, client_id, transactional_id, %error, "transaction lost");
}

/// The next poll returns this error.
pub fn group_failed(client_id: &str, group: &str, error: &Error) {
    warn!(target: TARGET, client_id, group, %error, "group request failed");
}

/// The log does not have the position any more, or not yet: `auto.offset.reset` applies.
pub fn out_of_range(client_id: &str, partition: &TopicPartition, offset: i64) {
    warn!(target: TARGET, client_id, %partition, offset, "offset out of range");
}

/// The position comes from ListOffsets: there was no committed one, it was out of range, or the
/// application asked for the beginning, the end or a time.
pub fn offset_reset(client_id: &str, partition: &TopicPartition, offset: i64) {
    info!(target: TARGET, client_id, %partition, offset, "offset reset");
}

/// A broker wants metrics, or other ones than before (KIP-714).
#[cfg(feature = "telemetry")]
pub fn metrics_subscribed(client_id: &str, subscription_id: i32, interval_ms: u64) {
    info!(target: TARGET, client_id, subscription_id, interval_ms, "metrics subscribed");
}

/// No more metrics are pushed by this client.
#[cfg(feature = "telemetry")]
pub fn metrics_refused(client_id: &str, error_code: i16) {
    warn!(target: TARGET, client_id, error_code, "metrics refused");
}

/// Runs `act` and returns its events as lines: level, target, message, fields.
#[cfg(test)]
pub fn told(act: impl FnOnce()) -> Vec<String> {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let lines = Lines::default();
    let into = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .without_time()
        .with_ansi(false)
        .with_writer(move || into.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}
