//! The settings of a producer.

use std::sync::Arc;

use ottla_wire::records::compression::{Codec, Compression};

use super::client::ClientConfig;
use super::settings::{Settings, config_error, invalid};
use super::{ClientKind, Config};
use crate::error::{Error, Feature};

/// `acks`: what the leader waits for before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acks {
    /// `0`: there is no answer.
    None,
    /// `1`: the leader's own append.
    Leader,
    /// `all`: every in-sync replica.
    All,
}

impl Acks {
    /// The number in a Produce request.
    pub fn code(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// A producer's settings, checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProducerConfig {
    /// What every client has.
    pub client: Arc<ClientConfig>,
    /// `acks`.
    pub acks: Acks,
    /// `enable.idempotence`; false also where other settings rule out the default (KIP-679).
    pub enable_idempotence: bool,
    /// `batch.size`, at least 1.
    pub batch_bytes: usize,
    /// `buffer.memory`.
    pub buffer_memory_bytes: usize,
    /// `compression.type` and its level.
    pub compression: Compression,
    /// `linger.ms`.
    pub linger_ms: u64,
    /// `max.block.ms`.
    pub max_block_ms: u64,
    /// `max.request.size`.
    pub max_request_bytes: usize,
    /// `max.in.flight.requests.per.connection`.
    pub max_in_flight_requests_per_connection: usize,
    /// `delivery.timeout.ms`; the default is raised to `linger.ms` + `request.timeout.ms`.
    pub delivery_timeout_ms: u64,
    /// `retries`.
    pub retries: u32,
    /// `partitioner.class`.
    pub partitioner: PartitionerKind,
    /// `partitioner.ignore.keys`.
    pub partitioner_ignore_keys: bool,
    /// `partitioner.adaptive.partitioning.enable` (KIP-794).
    pub partitioner_adaptive: bool,
    /// 0: off.
    pub partitioner_availability_timeout_ms: u64,
    /// `transactional.id`; for `TransactionalProducer` alone.
    pub transactional_id: Option<Arc<str>>,
    /// `transaction.timeout.ms`; the broker limits it.
    pub transaction_timeout_ms: i64,
}

/// `partitioner.class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionerKind {
    /// KIP-794: records with a key by murmur2, others sticky by bytes.
    Default,
    /// Kafka's RoundRobinPartitioner: one partition after the other, keys ignored.
    RoundRobin,
}

/// With more requests in flight, records could be reordered beyond what a broker remembers of a
/// producer.
const IDEMPOTENT_IN_FLIGHT_MAX: usize = 5;

impl ProducerConfig {
    /// - Errors: `Config` with Kafka's text, for the first wrong key.
    pub fn from_config(config: &Config) -> Result<ProducerConfig, Error> {
        let mut settings = Settings::new(ClientKind::Producer, config)?;
        let acks = match settings.text("acks") {
            Some("0") => Acks::None,
            Some("1") => Acks::Leader,
            _ => Acks::All,
        };
        let retries = u32::try_from(settings.number("retries")).expect("an int of at least 0");
        let in_flight = settings.size("max.in.flight.requests.per.connection");
        let enable_idempotence = idempotence(&mut settings, acks, retries, in_flight)?;
        let delivery_timeout_ms = delivery_timeout(&mut settings)?;
        let transactional_id = transactional_id(&mut settings, enable_idempotence)?;
        Ok(ProducerConfig {
            acks,
            enable_idempotence,
            // In Kafka 0 means "no batching", batches of one record; one byte has the same effect.
            batch_bytes: settings.size("batch.size").max(1),
            buffer_memory_bytes: settings.size("buffer.memory"),
            compression: compression(&settings)?,
            linger_ms: settings.natural("linger.ms"),
            max_block_ms: settings.natural("max.block.ms"),
            max_request_bytes: settings.size("max.request.size"),
            max_in_flight_requests_per_connection: in_flight,
            delivery_timeout_ms,
            retries,
            partitioner: partitioner(settings.filled("partitioner.class"))?,
            partitioner_ignore_keys: settings.boolean("partitioner.ignore.keys"),
            partitioner_adaptive: settings.boolean("partitioner.adaptive.partitioning.enable"),
            partitioner_availability_timeout_ms: settings.natural("partitioner.availability.timeout.ms"),
            transactional_id,
            transaction_timeout_ms: settings.number("transaction.timeout.ms"),
            client: Arc::new(ClientConfig::new(ClientKind::Producer, settings)?),
        })
    }
}

/// Idempotence is dropped silently where it is only the default, and enforced where it is set
/// (KIP-679).
fn idempotence(settings: &mut Settings, acks: Acks, retries: u32, in_flight: usize) -> Result<bool, Error> {
    const KEY: &str = "enable.idempotence";
    if !settings.boolean(KEY) {
        return Ok(false);
    }
    let is_written = settings.is_written(KEY);
    let mut enabled = true;
    if retries == 0 {
        if is_written {
            let message = "Must set retries to non-zero when using the idempotent producer.";
            return Err(config_error(KEY, message));
        }
        settings.warn(
            KEY,
            "Idempotence will be disabled because retries is set to 0.".to_owned(),
        );
        enabled = false;
    }
    if acks != Acks::All {
        if is_written {
            let message = "Must set acks to all in order to use the idempotent producer. \
                           Otherwise we cannot guarantee idempotence.";
            return Err(config_error(KEY, message));
        }
        let acks = acks.code();
        let message =
            format!("Idempotence will be disabled because acks is set to {acks}, not set to 'all'.");
        settings.warn(KEY, message);
        enabled = false;
    }
    // Since Kafka 4.0 this applies to the default as well.
    if in_flight > IDEMPOTENT_IN_FLIGHT_MAX {
        let message = format!(
            "To use the idempotent producer, max.in.flight.requests.per.connection must be set to at most 5. \
             Current value is {in_flight}."
        );
        return Err(config_error("max.in.flight.requests.per.connection", message));
    }
    Ok(enabled)
}

/// - Errors: `Config` for a transactional id without idempotence, whatever has ruled it out.
fn transactional_id(settings: &mut Settings, is_idempotent: bool) -> Result<Option<Arc<str>>, Error> {
    const KEY: &str = "transactional.id";
    const TIMEOUT: &str = "transaction.timeout.ms";
    const TIMEOUT_DEFAULT_MS: i64 = 60_000;
    let id: Option<Arc<str>> = settings.filled(KEY).map(Arc::from);
    if id.is_some() && !is_idempotent {
        let message = "Cannot set a transactional.id without also enabling idempotence.";
        return Err(config_error(KEY, message));
    }
    if id.is_none() && settings.number(TIMEOUT) != TIMEOUT_DEFAULT_MS {
        settings.warn(
            TIMEOUT,
            format!("{TIMEOUT} has no effect: without {KEY}, here as in Kafka"),
        );
    }
    Ok(id)
}

fn delivery_timeout(settings: &mut Settings) -> Result<u64, Error> {
    const KEY: &str = "delivery.timeout.ms";
    let delivery_ms = settings.natural(KEY);
    let int_max = i32::MAX as u64;
    let linger_ms = settings.natural("linger.ms").min(int_max);
    let least_ms = (linger_ms + settings.natural("request.timeout.ms")).min(int_max);
    if delivery_ms >= least_ms {
        return Ok(delivery_ms);
    }
    let message = format!("{KEY} should be equal to or larger than linger.ms + request.timeout.ms");
    if settings.is_written(KEY) {
        return Err(config_error(KEY, message));
    }
    settings.warn(KEY, format!("{message}. Setting it to {least_ms}."));
    Ok(least_ms)
}

fn compression(settings: &Settings) -> Result<Compression, Error> {
    const KEY: &str = "compression.type";
    let name = settings.text(KEY).unwrap_or_default();
    let codec = Codec::from_name(name).expect("the table names the codecs");
    if codec == Codec::Zstd {
        settings.needs(Feature::Zstd, KEY, name)?;
    }
    let level = |key| i32::try_from(settings.number(key)).ok();
    Ok(Compression {
        codec,
        level: match codec {
            Codec::Gzip => level("compression.gzip.level").filter(|level| *level != -1),
            Codec::Zstd => level("compression.zstd.level"),
            Codec::None | Codec::Snappy | Codec::Lz4 => None,
        },
    })
}

fn partitioner(class: Option<&str>) -> Result<PartitionerKind, Error> {
    match class {
        None => Ok(PartitionerKind::Default),
        Some("org.apache.kafka.clients.producer.RoundRobinPartitioner") => Ok(PartitionerKind::RoundRobin),
        Some(other) => Err(invalid(
            "partitioner.class",
            other,
            &format!("Class {other} could not be found."),
        )),
    }
}
