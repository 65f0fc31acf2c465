//! Settings that no client sends: stated by the owner, seen by the broker, inferred, or a default.
//!
//! | setting | how it is inferred |
//! |---|---|
//! | batch.size | batches of one size although records wait are full, however small they are: the largest batch seen, or the power of two just above it; otherwise no less than the largest batch, and the default |
//! | linger.ms | the lower end of the queue time, where batches are not full and nothing is saturated, or where the pipe is idle while they wait |
//! | max.in.flight | 1, where there is a backlog, the I/O thread is idle and exactly one request is under way all the time, or where a client that does not send its queue is never seen with two; 5, where such a client always has five under way (idempotence) with more than one record in each |
//! | max.request.size | the size at which requests end although batches of more partitions wait |
//! | acks | 1 at most, where a replicated topic costs no remote time; the acks that the broker reads in requests take precedence |
//!
//! The number of threads is never inferred: no metric depends on it alone. Everything inferred or
//! assumed is listed in `missing`.

use crate::doctor::snapshot::{BrokerSide, Library, Origin, Producer, Role, Setting, Snapshot};

use super::words;
use crate::model::constants::{FULL, ORDERED_IN_FLIGHT};
use crate::model::pipe::SEND_BUFFER_BYTES;

/// Kafka's default batch.size.
pub(crate) const BATCH_BYTES: f64 = 16_384.0;
/// Kafka's default max.request.size.
pub(crate) const MAX_REQUEST_BYTES: f64 = 1_048_576.0;
/// A batch of each partition is more than the largest request by this much: one batch more.
const MORE: f64 = 1.3;
/// Partitions have the same load if the heaviest has no more than this many times the mean.
const EVEN: f64 = 1.5;
/// Records queued for longer than this and this many lingers are a hard backlog (S1).
const LONG_QUEUE_MS: f64 = 1_000.0;
pub(crate) const LINGERS: f64 = 3.0;
/// With fewer requests under way than this the pipe is idle most of the time.
const IDLE_PIPE: f64 = 0.5;
/// The time that a thread with nothing to do waits.
const IDLE_THREAD: f64 = 0.5;
/// Batches that wait for linger wait about as long as each other.
const ALIKE_WAITS: f64 = 3.0;
const BUFFER_WAIT: f64 = 0.05;
/// Batches that wait for longer than any usual linger.
const LONG_LINGER_MS: f64 = 100.0;
/// Batches of a backlog have one size if their mean reaches this share of the largest: the last of
/// a burst is not full.
const ALIKE: f64 = 0.85;
/// The same where a backlog is likely but not proven.
const ONE_SIZE: f64 = 0.97;
/// A request that comes earlier after an answer than this share of the round trip did not wait for
/// it; the rest is the time of the kernels on both ways.
const ON_THE_WAY: f64 = 0.9;
/// Requests of up to this many records on average hold one.
pub(crate) const ONE_RECORD: f64 = 1.1;
/// The share of requests that follow the previous response within 1.3 round trips and 1 ms.
pub(crate) const BACK_TO_BACK: f64 = 0.85;

/// Every setting that rules need, with its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InferredSettings {
    pub batch_bytes: Setting<f64>,
    /// Batches of one size although records wait: they are full, whatever batch.size is.
    pub has_full_batches: bool,
    /// The same, whether or not batch.size is stated, which may be larger than they are.
    pub has_batches_of_one_size: bool,
    pub linger_ms: Setting<f64>,
    pub in_flight: Setting<f64>,
    pub acks: Setting<i16>,
    /// `None`: the library leaves it to the kernel.
    pub send_buffer_bytes: Option<Setting<f64>>,
    pub max_request_bytes: Setting<f64>,
    pub buffer_bytes: Setting<f64>,
    pub max_block_ms: Setting<f64>,
    pub delivery_timeout_ms: Setting<f64>,
}

/// A library's defaults.
struct Defaults {
    batch_bytes: f64,
    linger_ms: f64,
    in_flight: f64,
    send_buffer_bytes: Option<f64>,
    max_request_bytes: f64,
    buffer_bytes: f64,
    delivery_timeout_ms: f64,
}

/// Resolves every setting of the snapshot.
pub(crate) fn settings(snapshot: &Snapshot) -> InferredSettings {
    let stated = &snapshot.settings;
    let defaults = defaults(snapshot);
    let none = Producer::default();
    let producer = snapshot.producer.as_ref().unwrap_or(&none);
    let or = |setting: Option<Setting<f64>>, value: f64| usable(setting).unwrap_or(assumed(value));
    let in_flight = usable(stated.in_flight)
        .or_else(|| one_in_flight(snapshot, producer))
        .or_else(|| one_seen_by_brokers(snapshot))
        .or_else(|| five_in_flight(snapshot, producer))
        .unwrap_or(assumed(defaults.in_flight));
    let full = full_batch(snapshot, producer);
    let batch_bytes = usable(stated.batch_bytes)
        .or(full)
        .or_else(|| batch_at_least(snapshot, defaults.batch_bytes))
        .unwrap_or(assumed(defaults.batch_bytes));
    let linger_ms = stated
        .linger_ms
        .filter(|setting| setting.value.is_finite() && setting.value >= 0.0)
        .or_else(|| linger_ms(snapshot, producer, batch_bytes.value, defaults.linger_ms))
        .unwrap_or(assumed(defaults.linger_ms));
    InferredSettings {
        batch_bytes,
        has_full_batches: full.is_some() && usable(stated.batch_bytes).is_none(),
        has_batches_of_one_size: full.is_some(),
        linger_ms,
        in_flight,
        acks: stated.acks.or_else(|| acks(snapshot)).unwrap_or(Setting {
            value: -1,
            origin: Origin::Default,
        }),
        send_buffer_bytes: usable(stated.send_buffer_bytes).or(defaults.send_buffer_bytes.map(assumed)),
        max_request_bytes: usable(stated.max_request_bytes)
            .or_else(|| request_limit(snapshot, producer, batch_bytes.value))
            .unwrap_or(assumed(defaults.max_request_bytes)),
        buffer_bytes: producer
            .buffer_bytes
            .filter(|bytes| bytes.is_finite() && *bytes > 0.0)
            .map(|value| Setting {
                value,
                origin: Origin::Seen,
            })
            .unwrap_or_else(|| or(stated.buffer_bytes, defaults.buffer_bytes)),
        max_block_ms: or(stated.max_block_ms, 60_000.0),
        delivery_timeout_ms: or(stated.delivery_timeout_ms, defaults.delivery_timeout_ms),
    }
}

impl InferredSettings {
    /// The settings that were not stated, formatted for people: `batch.size=16384 (default)`.
    pub(crate) fn guesses(&self) -> Vec<String> {
        [
            ("batch.size", self.batch_bytes),
            ("linger.ms", self.linger_ms),
            ("max.in.flight.requests.per.connection", self.in_flight),
        ]
        .into_iter()
        .filter(|(_, setting)| is_guess(setting.origin))
        .map(|(name, setting)| {
            format!(
                "{name}={} ({})",
                crate::numbers::plain(setting.value),
                words::origin(setting.origin)
            )
        })
        .collect()
    }
}

/// The most requests in flight that were observed.
pub(crate) fn in_flight_seen(producer: &Producer) -> Option<f64> {
    let seen = [producer.in_flight_max, producer.in_flight];
    seen.into_iter()
        .flatten()
        .filter(|most| most.is_finite())
        .reduce(f64::max)
}

/// The present value of a setting, as far as it is known or assumed, by its name.
pub(crate) fn present(snapshot: &Snapshot, name: &str) -> Option<f64> {
    let stated = &snapshot.settings;
    let or = |setting: Option<Setting<f64>>, default: f64| Some(setting.map_or(default, |known| known.value));
    if snapshot.client.role == Role::Producer {
        let known = settings(snapshot);
        return match name {
            // A default is contradicted by batches that are full below it.
            "batch.size" if known.batch_bytes.origin == Origin::Default => None,
            "batch.size" => Some(known.batch_bytes.value),
            "linger.ms" => Some(known.linger_ms.value),
            "max.in.flight.requests.per.connection" => Some(known.in_flight.value),
            "send.buffer.bytes" => known.send_buffer_bytes.map(|setting| setting.value),
            "max.request.size" => Some(known.max_request_bytes.value),
            "buffer.memory" => Some(known.buffer_bytes.value),
            "threads" => snapshot.application.threads,
            _ => None,
        };
    }
    match name {
        "fetch.min.bytes" => or(stated.fetch_min_bytes, 1.0),
        "fetch.max.wait.ms" => or(stated.fetch_max_wait_ms, 500.0),
        "fetch.max.bytes" => or(stated.fetch_max_bytes, 52_428_800.0),
        "max.partition.fetch.bytes" => or(stated.max_partition_fetch_bytes, 1_048_576.0),
        // A default is contradicted by a member that leaves between two polls.
        "max.poll.interval.ms" => stated.max_poll_interval_ms.map(|known| known.value),
        "max.poll.records" => or(stated.max_poll_records, 500.0),
        "session.timeout.ms" => or(stated.session_timeout_ms, 45_000.0),
        "receive.buffer.bytes" => or(stated.receive_buffer_bytes, 65_536.0),
        _ => None,
    }
}

pub(crate) fn is_guess(origin: Origin) -> bool {
    !origin.is_known()
}

fn usable(setting: Option<Setting<f64>>) -> Option<Setting<f64>> {
    setting.filter(|setting| setting.value.is_finite() && setting.value > 0.0)
}

fn assumed(value: f64) -> Setting<f64> {
    Setting {
        value,
        origin: Origin::Default,
    }
}

fn inferred(value: f64) -> Setting<f64> {
    Setting {
        value,
        origin: Origin::Inferred,
    }
}

fn defaults(snapshot: &Snapshot) -> Defaults {
    let java = Defaults {
        batch_bytes: BATCH_BYTES,
        linger_ms: 5.0,
        in_flight: 5.0,
        send_buffer_bytes: Some(SEND_BUFFER_BYTES),
        max_request_bytes: MAX_REQUEST_BYTES,
        buffer_bytes: 33_554_432.0,
        delivery_timeout_ms: 120_000.0,
    };
    match snapshot.client.library {
        // KIP-1030: 5 ms since 4.0.
        Library::Java if version(snapshot).is_some_and(|version| version < (4, 0, 0)) => Defaults {
            linger_ms: 0.0,
            ..java
        },
        Library::Java | Library::Ottla | Library::Unknown => java,
        Library::Librdkafka => Defaults {
            batch_bytes: 1_000_000.0,
            in_flight: 1_000_000.0,
            send_buffer_bytes: None,
            max_request_bytes: 1_000_000.0,
            buffer_bytes: 1_073_741_824.0,
            delivery_timeout_ms: 300_000.0,
            ..java
        },
        Library::FranzGo => Defaults {
            batch_bytes: 1_000_012.0,
            linger_ms: 10.0,
            send_buffer_bytes: None,
            max_request_bytes: 1_000_012.0,
            ..java
        },
    }
}

/// Major, minor and patch of the client's software version; a leading `v` and anything after the
/// third number are ignored.
pub(crate) fn version(snapshot: &Snapshot) -> Option<(u32, u32, u32)> {
    let text = snapshot.client.software_version.as_deref()?;
    let mut parts = text
        .trim_start_matches('v')
        .split(|separator: char| !separator.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    let major = parts.next()??;
    let minor = parts.next().flatten().unwrap_or(0);
    let patch = parts.next().flatten().unwrap_or(0);
    Some((major, minor, patch))
}

fn is_backlogged(snapshot: &Snapshot, producer: &Producer) -> bool {
    let linger = snapshot.settings.linger_ms.map_or(0.0, |linger| linger.value);
    let is_long = |queue_ms: f64| is_long_queue(queue_ms, linger) && !is_lingering(snapshot, producer);
    producer.buffer_wait.is_some_and(|wait| wait >= BUFFER_WAIT) || producer.queue_ms.is_some_and(is_long)
}

/// Whether batches wait longer than a client lets them wait for more records.
pub(crate) fn is_long_queue(queue_ms: f64, linger_ms: f64) -> bool {
    queue_ms > LONG_QUEUE_MS.max(LINGERS * linger_ms)
}

/// Whether batches wait although a request could leave and nothing keeps the client's thread from
/// sending it: then for linger, however long that is. A client whose records wait for requests has
/// one under way nearly all of the time.
fn is_lingering(snapshot: &Snapshot, producer: &Producer) -> bool {
    let is_small = |value: Option<f64>, most: f64| value.is_none_or(|value| value < most);
    let under_way = requests_under_way(snapshot, producer);
    let queue_ms = producer.queue_ms.unwrap_or(0.0);
    let free = producer.buffer_available_bytes.zip(producer.buffer_bytes);
    let sends_queue = !matches!(snapshot.client.library, Library::Librdkafka | Library::FranzGo);
    sends_queue
        && under_way.is_some_and(|count| count < IDLE_PIPE)
        && producer.io_wait.is_none_or(|wait| wait >= IDLE_THREAD)
        && producer
            .queue_ms_max
            .is_none_or(|most| most <= ALIKE_WAITS * queue_ms)
        && free.is_none_or(|(free, all)| free >= 0.1 * all)
        && is_small(producer.buffer_wait, BUFFER_WAIT)
        && is_small(producer.throttle_ms, 1.0)
        && is_small(producer.metadata_wait, BUFFER_WAIT)
        && is_small(producer.retried_records, 1.0)
        && is_small(producer.failed_records, 1.0)
        && !is_refused_memory(snapshot)
}

/// Requests under way at each broker, by the client's own numbers.
fn requests_under_way(snapshot: &Snapshot, producer: &Producer) -> Option<f64> {
    let latencies = producer.nodes.iter().filter_map(|node| node.request_ms);
    let request_ms = producer.request_ms.or_else(|| latencies.reduce(f64::max))?;
    let count = producer.requests_per_second? * request_ms / 1_000.0;
    Some(count / snapshot.brokers.len().max(1) as f64).filter(|count| count.is_finite())
}

/// The largest batch seen by the client, or read by a broker.
pub(crate) fn largest_batch(snapshot: &Snapshot) -> Option<f64> {
    let own = snapshot
        .producer
        .iter()
        .filter_map(|producer| producer.batch_bytes_max);
    let read = snapshot.brokers.iter().filter_map(|side| side.batch_bytes_max);
    own.chain(read)
        .filter(|bytes| bytes.is_finite() && *bytes > 0.0)
        .reduce(f64::max)
}

/// Batches of one size although records wait are full, however small they are: that size is the
/// setting (15,066 of 16,384; 4,050 of 4,096; 4,000).
fn full_batch(snapshot: &Snapshot, producer: &Producer) -> Option<Setting<f64>> {
    let largest = largest_batch(snapshot)?;
    let read = snapshot.brokers.iter().find_map(|side| side.batch_bytes);
    // The mean over all partitions hides that those of a hot one are full.
    let hot = snapshot
        .brokers
        .iter()
        .flat_map(|side| &side.partitions)
        .filter_map(|partition| partition.batch_bytes);
    let mean = producer
        .batch_bytes
        .or(read)
        .into_iter()
        .chain(hot)
        .filter(|mean| mean.is_finite())
        .reduce(f64::max)?;
    let waits = is_backlogged(snapshot, producer) || is_refused_memory(snapshot);
    let is_lingering = is_lingering(snapshot, producer);
    let lingers_on = !is_lingering && producer.queue_ms.is_some_and(|queue| queue > LONG_LINGER_MS);
    let is_pinned = five_in_flight(snapshot, producer).is_some() || one_seen_by_brokers(snapshot).is_some();
    let is_full =
        (waits && mean >= ALIKE * largest) || ((lingers_on || is_pinned) && mean >= ONE_SIZE * largest);
    let size = power_above(largest);
    // A batch of whole records ends a little below its limit.
    is_full.then(|| inferred(if largest >= FULL * size { size } else { largest }))
}

/// No batch is larger than batch.size, unless it holds one record.
fn batch_at_least(snapshot: &Snapshot, default: f64) -> Option<Setting<f64>> {
    let largest = largest_batch(snapshot)?;
    (largest > default).then(|| inferred(power_above(largest)))
}

/// The power of two that is not below a value.
pub(crate) fn power_above(value: f64) -> f64 {
    let mut power = 1.0;
    while power < value && power < 1e12 {
        power *= 2.0;
    }
    power
}

fn is_refused_memory(snapshot: &Snapshot) -> bool {
    let exhausted = snapshot.producer.as_ref().and_then(|own| own.exhausted);
    [exhausted, snapshot.application.buffer_errors]
        .into_iter()
        .flatten()
        .any(|count| count > 0.0)
}

fn linger_ms(
    snapshot: &Snapshot,
    producer: &Producer,
    batch_bytes: f64,
    default: f64,
) -> Option<Setting<f64>> {
    let queue_ms = producer.queue_ms.filter(|queue| queue.is_finite())?;
    if queue_ms > LONG_LINGER_MS && is_lingering(snapshot, producer) {
        return Some(inferred(queue_ms.floor()));
    }
    let is_filling = producer.batch_bytes.is_some_and(|mean| mean < 0.85 * batch_bytes);
    let in_flight = producer.requests_per_second? * producer.request_ms? / 1_000.0;
    let has_room = producer
        .buffer_available_bytes
        .zip(producer.buffer_bytes)
        .is_none_or(|(free, all)| free >= 0.1 * all);
    let is_steady = producer.queue_ms_max.is_none_or(|most| most <= 10.0 * queue_ms);
    let is_calm = !is_backlogged(snapshot, producer) && has_room && is_steady && in_flight < 2.5;
    (is_filling && is_calm && queue_ms > default + 1.0).then(|| inferred(queue_ms.floor()))
}

/// Whether a client is limited to one in flight: it may have five, always has one, records wait and
/// its thread is idle.
fn one_in_flight(snapshot: &Snapshot, producer: &Producer) -> Option<Setting<f64>> {
    let under_way = producer.requests_per_second? * producer.request_ms? / 1_000.0;
    let brokers = producer
        .nodes
        .iter()
        .filter(|node| node.node_id >= 0)
        .count()
        .max(1);
    // A turn of the client passes between an answer and the next request.
    let is_one = (0.8..=1.05).contains(&(under_way / brokers as f64));
    let most = in_flight_seen(producer);
    let is_never_more = most.is_some_and(|most| most <= brokers as f64);
    let is_idle = producer.io_wait.is_some_and(|wait| wait >= 0.3);
    (is_backlogged(snapshot, producer) && is_one && is_never_more && is_idle).then(|| inferred(1.0))
}

/// A client whose queue is not known sends one at a time if its requests follow each other without
/// a pause, two never wait together, and no more are under way across the round trip.
fn one_seen_by_brokers(snapshot: &Snapshot) -> Option<Setting<f64>> {
    let has_queue = snapshot
        .producer
        .as_ref()
        .is_some_and(|own| own.queue_ms.is_some());
    let is_silent = !has_queue || snapshot.telemetry.pushes == Some(0);
    let is_more = several_under_way(snapshot).is_some()
        || arrives_without_waiting(snapshot)
        || has_two_under_way(snapshot);
    (is_silent && is_back_to_back(snapshot) && !is_more && !is_one_record(snapshot)).then(|| inferred(1.0))
}

/// Whether a broker saw that the client does not wait for each answer.
pub(crate) fn has_two_under_way(snapshot: &Snapshot) -> bool {
    snapshot.brokers.iter().any(|side| {
        let is_early = side
            .gap_ms
            .zip(side.round_trip_ms)
            .is_some_and(|(gap_ms, trip_ms)| gap_ms < ON_THE_WAY * trip_ms);
        is_early || side.has_overlap == Some(true) || side.in_flight_max.is_some_and(|most| most >= 2.0)
    })
}

/// Whether requests arrive for more of the time than one at a time leaves: between its last byte
/// and the first of the next one passes a round trip at least.
fn arrives_without_waiting(snapshot: &Snapshot) -> bool {
    let arrives = |side: &BrokerSide| {
        let trips = side.requests_per_second? * side.round_trip_ms? / 1_000.0;
        let waits = trips / side.connections.unwrap_or(1.0).max(1.0);
        Some(side.arriving_share? > 1.0 - 0.5 * waits.min(1.0))
    };
    is_long(snapshot) && busiest(snapshot).and_then(arrives) == Some(true)
}

/// Whether requests hold one record each, and room for more: behind a backlog they would hold more.
pub(crate) fn is_one_record(snapshot: &Snapshot) -> bool {
    let own = snapshot.producer.as_ref();
    let side = busiest(snapshot);
    let records = own
        .and_then(|own| own.records_per_request)
        .or_else(|| side?.records_per_request);
    let bytes = own
        .and_then(|own| own.request_bytes)
        .or_else(|| side?.request_bytes);
    records.is_some_and(|records| records <= ONE_RECORD)
        && bytes.is_some_and(|bytes| bytes < BATCH_BYTES / 2.0)
}

/// Requests between the client's socket and the broker's answer on each connection, by the broker
/// alone: rate × (round trip + the broker's time).
pub(crate) fn under_way(snapshot: &Snapshot) -> Option<f64> {
    let side = busiest(snapshot)?;
    let count = side.requests_per_second? * (side.round_trip_ms? + broker_ms(side)) / 1_000.0;
    Some(count / side.connections.unwrap_or(1.0).max(1.0)).filter(|count| count.is_finite())
}

/// The same where it is more than one, which a client that waits for each answer never has.
pub(crate) fn several_under_way(snapshot: &Snapshot) -> Option<f64> {
    under_way(snapshot).filter(|count| is_long(snapshot) && *count >= 1.5)
}

fn busiest(snapshot: &Snapshot) -> Option<&BrokerSide> {
    let rate = |side: &BrokerSide| side.requests_per_second.unwrap_or(0.0);
    snapshot.brokers.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// Below a millisecond the broker's view of a request is less than what a client takes to send the
/// next one.
fn is_long(snapshot: &Snapshot) -> bool {
    let request_ms = busiest(snapshot).and_then(|side| Some(side.round_trip_ms? + broker_ms(side)));
    request_ms.is_some_and(|ms| ms >= 1.0)
}

/// The time that a broker takes for a request.
fn broker_ms(side: &BrokerSide) -> f64 {
    let parts = [
        side.queue_micros,
        side.local_micros,
        side.remote_micros,
        side.response_queue_micros,
        side.send_micros,
    ];
    side.total_micros.unwrap_or(parts.into_iter().flatten().sum()) / 1_000.0
}

/// Push intervals without a push after which a client that was asked to push cannot.
pub(crate) const INTERVALS_SILENT: f64 = 2.5;

/// A Java client pushes whenever one of the requests that it may have under way to some broker is
/// free. One that was asked to, has one broker, and does not push for several intervals uses all of
/// them all the time.
pub(crate) fn is_always_full(snapshot: &Snapshot) -> bool {
    snapshot.client.library == Library::Java && is_overdue(snapshot) && snapshot.brokers.len() == 1
}

/// Whether a client that was asked to push, and pushed once at most, has not for several intervals.
pub(crate) fn is_overdue(snapshot: &Snapshot) -> bool {
    let telemetry = &snapshot.telemetry;
    let has_waited = telemetry
        .push_interval_ms
        .is_some_and(|ms| snapshot.seconds * 1_000.0 >= INTERVALS_SILENT * ms);
    telemetry.is_silent && telemetry.pushes.is_some_and(|pushes| pushes <= 1) && has_waited
}

/// Whether most requests follow the previous response at once, and no two of them wait together.
pub(crate) fn is_back_to_back(snapshot: &Snapshot) -> bool {
    snapshot.brokers.iter().any(|side| {
        side.back_to_back_share
            .is_some_and(|share| share > BACK_TO_BACK && share <= 1.0)
            && side.has_overlap != Some(true)
    })
}

/// librdkafka may have a million requests under way, and five with idempotence, as franz-go may:
/// exactly five all the time are that limit. Neither sends how long records wait, nor does a client
/// that pushes nothing. One record in each is what a client that sends as many of its own accord
/// has too.
fn five_in_flight(snapshot: &Snapshot, producer: &Producer) -> Option<Setting<f64>> {
    let rate = producer
        .requests_per_second
        .or_else(|| snapshot.brokers.iter().map(|side| side.requests_per_second).sum());
    let latencies = producer.nodes.iter().filter_map(|node| node.request_ms);
    let request_ms = producer.request_ms.or_else(|| latencies.reduce(f64::max));
    let brokers = snapshot.brokers.len().max(1) as f64;
    let under_way = match snapshot.client.library {
        _ if snapshot.producer.is_none() && is_long(snapshot) => under_way(snapshot)?,
        Library::Librdkafka | Library::FranzGo => rate? * request_ms? / 1_000.0 / brokers,
        _ => return None,
    };
    (0.9 * ORDERED_IN_FLIGHT..=1.1 * ORDERED_IN_FLIGHT)
        .contains(&under_way)
        .then(|| inferred(ORDERED_IN_FLIGHT))
        .filter(|_| !is_one_record(snapshot))
}

/// Requests that could hold more: one takes a full batch of each partition whose records wait.
/// Where all partitions have as much, and every request is as large as the largest but holds fewer
/// batches than there are partitions, that size is the limit.
fn request_limit(snapshot: &Snapshot, producer: &Producer, batch_size: f64) -> Option<Setting<f64>> {
    let side = busiest(snapshot)?;
    let largest = producer.request_bytes_max.or(side.request_bytes_max)?;
    let mean = producer.request_bytes.or(side.request_bytes)?;
    let batch = producer.batch_bytes.or(side.batch_bytes)?;
    let partitions = side.partitions_written?;
    let heaviest = side.partitions.first()?.bytes_per_second?;
    let is_even = heaviest * partitions <= EVEN * side.bytes_per_second?;
    let is_more = partitions * batch >= MORE * largest && largest < MAX_REQUEST_BYTES;
    let is_pinned = mean >= ALIKE * largest && batch >= FULL * batch_size;
    (is_even && is_more && is_pinned && largest > 0.0).then(|| inferred(largest))
}

fn acks(snapshot: &Snapshot) -> Option<Setting<i16>> {
    let is_replicated = snapshot
        .settings
        .replication_factor
        .is_some_and(|replicas| replicas.value > 1.0);
    let has_no_remote = !snapshot.brokers.is_empty()
        && snapshot
            .brokers
            .iter()
            .all(|broker| broker.remote_micros == Some(0.0) && !broker.is_rounded_to_ms);
    (is_replicated && has_no_remote).then_some(Setting {
        value: 1,
        origin: Origin::Inferred,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(producer: Producer) -> InferredSettings {
        settings(&Snapshot {
            producer: Some(producer),
            ..Snapshot::default()
        })
    }

    #[test]
    fn batch_size_is_the_next_power_of_two_of_the_largest() {
        for (largest, expected) in [
            (15_446.0, 16_384.0),
            (31_134.0, 32_768.0),
            (62_466.0, 65_536.0),
            (326.0, 16_384.0),
        ] {
            let known = with(Producer {
                batch_bytes: Some(largest * 0.9),
                batch_bytes_max: Some(largest),
                ..Producer::default()
            });
            assert_eq!(known.batch_bytes.value, expected, "{largest}");
        }
        let tiny = with(Producer {
            batch_bytes: Some(170.0),
            batch_bytes_max: Some(170.0),
            queue_ms: Some(7_331.0),
            ..Producer::default()
        });
        assert_eq!(
            (tiny.batch_bytes.value, tiny.batch_bytes.origin),
            (170.0, Origin::Inferred)
        );
    }

    #[test]
    fn linger_is_the_lower_edge_of_the_queue_time() {
        let lingering = Producer {
            queue_ms: Some(100.9),
            queue_ms_max: Some(120.0),
            batch_bytes: Some(13_000.0),
            batch_bytes_max: Some(16_226.0),
            requests_per_second: Some(10.0),
            request_ms: Some(3.0),
            ..Producer::default()
        };
        assert_eq!(with(lingering.clone()).linger_ms.value, 100.0);
        let saturated = Producer {
            buffer_wait: Some(0.9),
            ..lingering
        };
        assert_eq!(with(saturated).linger_ms.value, 5.0);
    }

    #[test]
    fn one_in_flight_shows_in_a_full_pipe_with_an_idle_thread() {
        let one = Producer {
            queue_ms: Some(9_865.0),
            requests_per_second: Some(45.4),
            request_ms: Some(22.03),
            in_flight: Some(1.0),
            io_wait: Some(0.95),
            ..Producer::default()
        };
        assert_eq!(with(one.clone()).in_flight.value, 1.0);
        // Callbacks that keep the thread busy look the same, except for the idle thread.
        let busy = Producer {
            io_wait: Some(0.003),
            ..one
        };
        assert_eq!(with(busy).in_flight.value, 5.0);
    }

    #[test]
    fn versions_are_read_loosely() {
        let of = |text: &str| {
            version(&Snapshot {
                client: crate::doctor::snapshot::Client {
                    software_version: Some(text.to_owned()),
                    ..Default::default()
                },
                ..Snapshot::default()
            })
        };
        assert_eq!(of("v1.21.5"), Some((1, 21, 5)));
        assert_eq!(of("4.3.0-SNAPSHOT"), Some((4, 3, 0)));
        assert_eq!(of("4"), Some((4, 0, 0)));
        assert_eq!(of("unknown"), None);
    }
}
