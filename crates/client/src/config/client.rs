//! Settings that every client needs: bootstrap servers, names, timeouts, sockets, security.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::security::Security;
use super::settings::{Settings, Warning};
use super::{ClientKind, bootstrap};
use crate::error::{Error, Feature};
use crate::network::io::Address;

/// Settings that every client needs: `bootstrap.servers`, `client.id`, timeouts, sockets, security.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// `bootstrap.servers`; at least one.
    pub bootstrap_servers: Vec<Address>,
    /// `client.id`, or a numbered name as Kafka gives it.
    pub client_id: Arc<str>,
    /// `client.rack`; empty where it is not set, and for producers and admin clients.
    pub client_rack: Arc<str>,
    /// `request.timeout.ms`.
    pub request_timeout_ms: u64,
    /// `retry.backoff.ms`.
    pub retry_backoff_ms: u64,
    /// `retry.backoff.max.ms`.
    pub retry_backoff_ms_max: u64,
    /// `reconnect.backoff.ms`.
    pub reconnect_backoff_ms: u64,
    /// `reconnect.backoff.max.ms`.
    pub reconnect_backoff_ms_max: u64,
    /// `socket.connection.setup.timeout.ms`.
    pub connection_setup_timeout_ms: u64,
    /// `socket.connection.setup.timeout.max.ms`.
    pub connection_setup_timeout_ms_max: u64,
    /// `u64::MAX`: idle connections are never closed.
    pub connections_idle_ms_max: u64,
    /// `metadata.max.age.ms`.
    pub metadata_age_ms_max: u64,
    /// `metadata.max.idle.ms`, a producer's setting; `u64::MAX` for the others.
    pub metadata_idle_ms_max: u64,
    /// Rebootstrap from the bootstrap servers when no known node has answered for this long
    /// (KIP-899); `None`: never.
    pub rebootstrap_after_ms: Option<u64>,
    /// A consumer's `allow.auto.create.topics`; producers always allow it.
    pub allow_auto_create_topics: bool,
    /// `None` is Kafka's −1: the operating system's default.
    pub send_buffer_bytes: Option<usize>,
    /// As `send_buffer_bytes`, for `receive.buffer.bytes`.
    pub receive_buffer_bytes: Option<usize>,
    /// From `security.protocol`, `sasl.*` and `ssl.*`.
    pub security: Security,
    /// `enable.metrics.push` (KIP-714); false in a build without the cargo feature `telemetry`.
    pub metrics_push_enabled: bool,
    /// `metrics.sample.window.ms`.
    pub metrics_sample_window_ms: u64,
    /// `metrics.num.samples`.
    pub metrics_sample_count: u32,
    /// Hints for the author of the settings; none is an error.
    pub warnings: Vec<Warning>,
}

impl ClientConfig {
    pub(super) fn new(client: ClientKind, mut settings: Settings) -> Result<ClientConfig, Error> {
        let security = Security::new(&settings)?;
        let (retry_backoff_ms, retry_backoff_ms_max) = capped(
            &mut settings,
            "retry.backoff.ms",
            "retry.backoff.max.ms",
            "backoff",
        );
        let (connection_setup_timeout_ms, connection_setup_timeout_ms_max) = capped(
            &mut settings,
            "socket.connection.setup.timeout.ms",
            "socket.connection.setup.timeout.max.ms",
            "connection setup timeout",
        );
        let (reconnect_backoff_ms, reconnect_backoff_ms_max) = reconnect_backoff(&mut settings);
        let metrics_push_enabled = metrics_push(&settings)?;
        let buffer = |key| usize::try_from(settings.number(key)).ok();
        let rebootstraps = settings
            .text("metadata.recovery.strategy")
            .is_some_and(|word| word.eq_ignore_ascii_case("rebootstrap"));
        Ok(ClientConfig {
            bootstrap_servers: bootstrap::parse(settings.list("bootstrap.servers"))?,
            client_id: client_id(client, &settings),
            client_rack: match client {
                ClientKind::Consumer => settings.text("client.rack").unwrap_or_default().into(),
                _ => "".into(),
            },
            request_timeout_ms: settings.natural("request.timeout.ms"),
            retry_backoff_ms,
            retry_backoff_ms_max,
            reconnect_backoff_ms,
            reconnect_backoff_ms_max,
            connection_setup_timeout_ms,
            connection_setup_timeout_ms_max,
            connections_idle_ms_max: u64::try_from(settings.number("connections.max.idle.ms"))
                .unwrap_or(u64::MAX),
            metadata_age_ms_max: settings.natural("metadata.max.age.ms"),
            metadata_idle_ms_max: match client {
                ClientKind::Producer => settings.natural("metadata.max.idle.ms"),
                _ => u64::MAX,
            },
            rebootstrap_after_ms: rebootstraps
                .then(|| settings.natural("metadata.recovery.rebootstrap.trigger.ms")),
            allow_auto_create_topics: match client {
                ClientKind::Producer => true,
                ClientKind::Consumer => settings.boolean("allow.auto.create.topics"),
                ClientKind::Admin => false,
            },
            send_buffer_bytes: buffer("send.buffer.bytes"),
            receive_buffer_bytes: buffer("receive.buffer.bytes"),
            security,
            metrics_push_enabled,
            metrics_sample_window_ms: settings.natural("metrics.sample.window.ms"),
            metrics_sample_count: u32::try_from(settings.number("metrics.num.samples"))
                .expect("an int of at least 1"),
            warnings: settings.into_warnings(),
        })
    }
}

/// The default is on; a build without telemetry pushes nothing, and refuses only the written wish.
fn metrics_push(settings: &Settings) -> Result<bool, Error> {
    const KEY: &str = "enable.metrics.push";
    if settings.boolean(KEY) && settings.is_written(KEY) {
        settings.needs(Feature::Telemetry, KEY, "true")?;
    }
    Ok(settings.boolean(KEY) && Feature::Telemetry.is_built())
}

/// A first wait and its maximum; a first wait above the maximum is reduced to it, as in Kafka.
fn capped(settings: &mut Settings, first: &str, cap: &str, what: &str) -> (u64, u64) {
    let ms = |key| u64::try_from(settings.number(key)).unwrap_or(0);
    let (first_ms, cap_ms) = (ms(first), ms(cap));
    if first_ms > cap_ms {
        let message = format!(
            "{first} is {first_ms}, more than {cap}, which is {cap_ms}: the {what} is always {cap_ms} ms"
        );
        settings.warn(first, message);
    }
    (first_ms.min(cap_ms), cap_ms)
}

/// `reconnect.backoff.ms` set alone means a constant wait, as in Kafka since KIP-144.
fn reconnect_backoff(settings: &mut Settings) -> (u64, u64) {
    let (first, cap) = ("reconnect.backoff.ms", "reconnect.backoff.max.ms");
    if settings.is_written(first) && !settings.is_written(cap) {
        let first_ms = settings.natural(first);
        settings.warn(
            first,
            format!("{first} is set and {cap} is not: the wait is always {first_ms} ms"),
        );
        return (first_ms, first_ms);
    }
    let cap_ms = settings.natural(cap);
    (settings.natural(first).min(cap_ms), cap_ms)
}

/// Numbers clients within a process as Kafka does. A simulation that must be replayable sets
/// `client.id`.
fn client_id(client: ClientKind, settings: &Settings) -> Arc<str> {
    static PRODUCERS: AtomicU32 = AtomicU32::new(1);
    static CONSUMERS: AtomicU32 = AtomicU32::new(1);
    static ADMINS: AtomicU32 = AtomicU32::new(1);
    let next = |counter: &AtomicU32| counter.fetch_add(1, Ordering::Relaxed);
    let written = settings.text("client.id").unwrap_or_default();
    // Kafka's producer accepts an empty name if it is set explicitly.
    if !written.is_empty() || client == ClientKind::Producer && settings.is_written("client.id") {
        return written.into();
    }
    match client {
        ClientKind::Producer => format!("producer-{}", next(&PRODUCERS)).into(),
        ClientKind::Consumer => {
            let group = settings.text("group.id").unwrap_or("null");
            match settings.text("group.instance.id") {
                Some(instance) => format!("consumer-{group}-{instance}").into(),
                None => format!("consumer-{group}-{}", next(&CONSUMERS)).into(),
            }
        }
        ClientKind::Admin => format!("adminclient-{}", next(&ADMINS)).into(),
    }
}
