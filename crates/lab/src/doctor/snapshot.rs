//! What is known about one client over one window: the only input of the rules.
//!
//! Every number may be missing. A gauge that Java sends as NaN, and the zero of a client that sends
//! zero for "no sample", are `None`: missing evidence is never a zero. Units are in the names; a
//! share lies between 0 and 1; MB are 10^6 bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One client instance over one window, as its own metrics, its broker and its owner describe it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub client: Client,
    /// The length of the window.
    pub seconds: f64,
    pub telemetry: Telemetry,
    pub settings: Settings,
    pub application: Application,
    pub network: Network,
    /// The client's machine; known where it is the broker's or the collector's own.
    pub host: Option<Host>,
    /// The client's own producer metrics. `None`: it is not a producer.
    pub producer: Option<Producer>,
    /// The client's own consumer metrics. `None`: it is not a consumer.
    pub consumer: Option<Consumer>,
    /// What the brokers saw of this client; one entry for each broker that reported.
    pub brokers: Vec<BrokerSide>,
    /// What the cluster itself tells, whose brokers count nothing by client (Admin protocol).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterSide>,
    /// Earlier windows of the same client with another number of threads, for contention (F22).
    pub earlier: Vec<Earlier>,
    /// Other clients that took time of the same brokers, heaviest first (tenant rules); at most a
    /// handful.
    pub neighbours: Vec<Neighbour>,
}

/// The client's identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// `client.id`.
    pub client_id: String,
    /// KIP-714's id of this instance, in Kafka's notation.
    pub instance_id: Option<String>,
    pub role: Role,
    pub library: Library,
    pub software_name: Option<String>,
    pub software_version: Option<String>,
    pub principal: Option<String>,
    /// Version and cipher suite of a connection with TLS.
    pub tls: Option<String>,
    pub address: Option<String>,
    pub group_id: Option<String>,
    pub member_id: Option<String>,
}

impl Client {
    /// The address without its port.
    pub fn host(&self) -> Option<&str> {
        self.address.as_deref().map(host_of)
    }
}

/// Ports differ by connection, and Java prints a slash.
pub fn host_of(address: &str) -> &str {
    let address = address.trim_start_matches('/');
    let has_port = address.matches(':').count() == 1 || address.starts_with('[');
    let host = match address.rsplit_once(':') {
        Some((host, _)) if has_port => host,
        _ => address,
    };
    host.trim_matches(['[', ']'])
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Producer,
    Consumer,
}

/// The library that the metrics are from: the same names mean different things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    Java,
    Librdkafka,
    FranzGo,
    Ottla,
    #[default]
    Unknown,
}

/// How much evidence the client itself has provided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Telemetry {
    /// Pushes in the window. `None`: the numbers were not pushed (printed by the client, read from
    /// a file), so they are one complete reading and pushes are not counted.
    pub pushes: Option<u32>,
    /// Pushes whose payload held no metric (franz-go with the subscription `*`).
    pub empty_pushes: u32,
    /// The client fetched a subscription, or could have: it knows the API.
    pub has_subscription: bool,
    pub push_interval_ms: Option<f64>,
    pub seconds_until_next_push: Option<f64>,
    /// The instance restarted within the window: deltas are meaningless.
    pub restarted: bool,
    /// It could push and did not; its numbers, if there are any, have another source (reading rule
    /// 7).
    pub is_silent: bool,
    /// The broker asks this client, or every client, for no metrics: its silence says nothing of
    /// it.
    pub is_off_at_broker: bool,
    /// When the last push arrived, milliseconds since 1970.
    pub heard_ms: Option<i64>,
    /// When the client says that it started, by its own clock.
    pub started_ms: Option<i64>,
}

/// A setting, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

/// In the order of their strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Stated by its owner, a fixture or a scenario.
    Stated,
    /// Pushed by the client itself: Ottla's own.
    Told,
    /// Read by the broker in requests or batches (acks, codec).
    Seen,
    /// Derived from metrics, as `rules/inference.rs` explains.
    Inferred,
    /// Unknown: the default of this library and version.
    Default,
}

impl Origin {
    /// The origins of a setting that is known, and not only likely.
    pub const KNOWN: [Origin; 3] = [Origin::Stated, Origin::Told, Origin::Seen];

    pub fn is_known(self) -> bool {
        Origin::KNOWN.contains(&self)
    }
}

/// Settings; of the clients only Ottla's pushes its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub batch_bytes: Option<Setting<f64>>,
    pub linger_ms: Option<Setting<f64>>,
    pub acks: Option<Setting<i16>>,
    pub in_flight: Option<Setting<f64>>,
    pub send_buffer_bytes: Option<Setting<f64>>,
    pub max_request_bytes: Option<Setting<f64>>,
    pub buffer_bytes: Option<Setting<f64>>,
    pub max_block_ms: Option<Setting<f64>>,
    pub delivery_timeout_ms: Option<Setting<f64>>,
    pub compression: Option<Setting<Codec>>,
    pub partitioner: Option<Setting<Partitioner>>,
    /// The topic's own `compression.type`, where it is not `producer`.
    pub topic_compression: Option<Setting<Codec>>,
    pub replication_factor: Option<Setting<f64>>,
    pub fetch_max_wait_ms: Option<Setting<f64>>,
    pub fetch_min_bytes: Option<Setting<f64>>,
    pub fetch_max_bytes: Option<Setting<f64>>,
    pub max_partition_fetch_bytes: Option<Setting<f64>>,
    pub max_poll_interval_ms: Option<Setting<f64>>,
    pub max_poll_records: Option<Setting<f64>>,
    pub session_timeout_ms: Option<Setting<f64>>,
    pub receive_buffer_bytes: Option<Setting<f64>>,
    pub retention_ms: Option<Setting<f64>>,
}

impl Settings {
    /// Takes over what `other` knows of stronger origin, or is unknown here.
    pub fn merge(&mut self, other: &Settings) {
        fn take<T: Copy>(own: &mut Option<Setting<T>>, other: Option<Setting<T>>) {
            let is_stronger = |other: &Setting<T>| own.is_none_or(|own| other.origin < own.origin);
            if let Some(other) = other.filter(is_stronger) {
                *own = Some(other);
            }
        }
        macro_rules! take {
            ($($setting:ident)*) => {
                let Settings { $($setting),* } = other;
                $(take(&mut self.$setting, *$setting);)*
            };
        }
        take!(
            batch_bytes linger_ms acks in_flight send_buffer_bytes max_request_bytes buffer_bytes
            max_block_ms delivery_timeout_ms compression partitioner topic_compression
            replication_factor fetch_max_wait_ms fetch_min_bytes fetch_max_bytes
            max_partition_fetch_bytes max_poll_interval_ms max_poll_records session_timeout_ms
            receive_buffer_bytes retention_ms
        );
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Partitioner {
    Sticky,
    RoundRobin,
    Keyed,
    /// Every thread writes its own partitions.
    PerThread,
}

/// Numbers that only the application has; no client sends them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Application {
    /// T: threads that call `send()`.
    pub threads: Option<f64>,
    /// W: mean time inside one `send()`.
    pub send_micros: Option<f64>,
    /// C: mean time inside one callback.
    pub callback_micros: Option<f64>,
    /// Records per second that the application wants to send.
    pub offered_records_per_second: Option<f64>,
    /// Mean time from `send()` to the callback, by the application's own clock.
    pub acknowledged_ms: Option<f64>,
    /// The standard deviation of the same time.
    pub acknowledged_deviation_ms: Option<f64>,
    /// Errors of `send()` because no buffer memory came free within max.block.ms.
    pub buffer_errors: Option<f64>,
    /// Records that expired in the accumulator (delivery.timeout.ms).
    pub expired_records: Option<f64>,
}

/// The network between client and brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// A measured round trip (TCP_INFO, ping or F10), not an upper bound.
    pub round_trip_ms: Option<f64>,
    pub bandwidth_bytes_per_second: Option<f64>,
    /// The bytes that may be on the way unacknowledged, where known to differ from `2 *
    /// send.buffer.bytes`.
    pub window_bytes: Option<f64>,
}

/// A machine over the window, by the counts of its kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    pub processors: Option<f64>,
    /// Share of the processors' time that was used, by anyone.
    pub used: Option<f64>,
    /// Share of the time in which something that could run waited for a processor (PSI `some`).
    pub waiting: Option<f64>,
    /// Share of the processors' time that a hypervisor gave to others.
    pub stolen: Option<f64>,
}

/// A producer's own metrics over the window; rates are deltas of totals over the window if the
/// client sends totals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Producer {
    /// X_r.
    pub records_per_second: Option<f64>,
    /// X_b, on the wire.
    pub bytes_per_second: Option<f64>,
    /// R, of all kinds of requests.
    pub requests_per_second: Option<f64>,
    /// Requests in the window.
    pub requests: Option<f64>,
    /// S.
    pub request_bytes: Option<f64>,
    pub request_bytes_max: Option<f64>,
    /// b.
    pub batch_bytes: Option<f64>,
    pub batch_bytes_max: Option<f64>,
    /// n_req.
    pub records_per_request: Option<f64>,
    /// c, compressed over uncompressed.
    pub compression_rate: Option<f64>,
    /// s_rec, an upper estimate.
    pub record_bytes: Option<f64>,
    /// q and its maximum.
    pub queue_ms: Option<f64>,
    pub queue_ms_max: Option<f64>,
    /// librdkafka's `record.queue.time`: how long a request waits until the socket has taken it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_queue_ms: Option<f64>,
    /// q_max of the last pushes, oldest first.
    pub queue_ms_max_course: Vec<f64>,
    /// L and its maximum.
    pub request_ms: Option<f64>,
    pub request_ms_max: Option<f64>,
    /// F, and its maximum.
    pub in_flight: Option<f64>,
    pub in_flight_max: Option<f64>,
    /// w_buf, thread-seconds per second.
    pub buffer_wait: Option<f64>,
    /// B and B_free.
    pub buffer_bytes: Option<f64>,
    pub buffer_available_bytes: Option<f64>,
    /// T_wait now, and the number of the window's pushes in which it was above zero.
    pub waiting_threads: Option<f64>,
    pub pushes_with_waiting_threads: u32,
    /// i_wait, i_io; i_oth is what remains.
    pub io_wait: Option<f64>,
    pub io: Option<f64>,
    /// th.
    pub throttle_ms: Option<f64>,
    pub throttle_ms_max: Option<f64>,
    /// e, rt, bx: in the window.
    pub failed_records: Option<f64>,
    pub retried_records: Option<f64>,
    pub exhausted: Option<f64>,
    /// md, seconds per second.
    pub metadata_wait: Option<f64>,
    pub metadata_age_s: Option<f64>,
    /// Time in `flush()`, and in ending transactions, in thread-seconds per second.
    pub flush_wait: Option<f64>,
    pub transaction_wait: Option<f64>,
    pub connections_created: Option<f64>,
    /// Connections made per second, in that push of the window that tells of the fewest.
    pub connections_per_second: Option<f64>,
    pub nodes: Vec<Node>,
    pub topics: BTreeMap<String, Topic>,
    /// Metrics that were present without a sample (NaN), by name.
    pub without_sample: Vec<String>,
}

/// One broker as the producer sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    pub node_id: i32,
    pub requests_per_second: Option<f64>,
    pub request_ms: Option<f64>,
    pub request_ms_max: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// P_n: partitions that it leads and this producer writes to.
    pub partitions: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topic {
    pub records_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub compression_rate: Option<f64>,
    pub partitions: Option<f64>,
}

/// A consumer's own metrics over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Consumer {
    pub records_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub fetches_per_second: Option<f64>,
    pub fetch_bytes: Option<f64>,
    pub fetch_ms: Option<f64>,
    pub fetch_ms_max: Option<f64>,
    pub throttle_ms: Option<f64>,
    pub throttle_ms_max: Option<f64>,
    /// Already corrected to 0..1 (Java halves an idle consumer's value).
    pub poll_idle_share: Option<f64>,
    pub ms_between_polls: Option<f64>,
    pub ms_between_polls_max: Option<f64>,
    /// Largest lag over the partitions, records.
    pub lag_max: Option<f64>,
    pub assigned_partitions: Option<f64>,
    /// Rebalances in the window, and the duration of the last ones.
    pub rebalances: Option<f64>,
    pub rebalance_ms: Option<f64>,
    pub rebalance_ms_max: Option<f64>,
    pub failed_rebalances: Option<f64>,
    pub heartbeat_gap_s: Option<f64>,
    pub commit_ms: Option<f64>,
    pub commits_per_second: Option<f64>,
    pub partitions: Vec<ConsumedPartition>,
    /// The group, as the broker knows it.
    pub group_members: Option<f64>,
    pub group_partitions: Option<f64>,
    /// Members that left because they did not poll within max.poll.interval.ms, by name.
    pub expelled: Vec<String>,
    /// How often it left its group and joined again within the last minute, where the cluster does
    /// not say why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejoined: Option<f64>,
    pub without_sample: Vec<String>,
    /// The partitions whose lag the client pushed last; `partitions` may have fewer of them.
    pub partitions_pushed: Option<f64>,
    /// Share of time that the application waited in `commitSync`.
    pub commit_wait: Option<f64>,
    /// As a producer's.
    pub connections_per_second: Option<f64>,
}

/// One partition of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConsumedPartition {
    pub topic: String,
    pub partition: i32,
    /// Records behind the end.
    pub lag: Option<f64>,
    /// Growth of the lag in records per second; negative: it shrinks.
    pub lag_slope: Option<f64>,
    pub consumed_per_second: Option<f64>,
    pub produced_per_second: Option<f64>,
    /// Age of the next record to be read.
    pub lag_ms: Option<f64>,
    /// The lag is the client's own gauge, no broker's. Java writes it only when a poll returns
    /// records of the partition, and counts up to the end that the last fetch saw.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_own_gauge: bool,
}

/// One broker's own view of this client: parts of D in microseconds, mean over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokerSide {
    pub node_id: Option<i32>,
    /// Produce requests for a producer, fetches for a consumer.
    pub requests_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    pub records_per_second: Option<f64>,
    pub batches_per_second: Option<f64>,
    pub request_bytes: Option<f64>,
    pub records_per_request: Option<f64>,
    pub batch_bytes: Option<f64>,
    pub queue_micros: Option<f64>,
    pub local_micros: Option<f64>,
    pub remote_micros: Option<f64>,
    /// The part of `remote_micros` until the log is on this broker's own disk, as opposed to
    /// waiting for followers. A broker that does not report it waits for followers only.
    pub flush_micros: Option<f64>,
    pub response_queue_micros: Option<f64>,
    pub send_micros: Option<f64>,
    /// The part of `local_micros` spent on re-compressing or converting batches.
    pub conversion_micros: Option<f64>,
    /// D, where its parts are not known separately.
    pub total_micros: Option<f64>,
    pub throttle_ms: Option<f64>,
    /// The parts come from histograms of whole milliseconds (Apache Kafka): below 2 ms they are
    /// meaningless.
    pub is_rounded_to_ms: bool,
    /// The parts are those of all clients of the broker, not of this one (Apache Kafka without
    /// client quotas).
    pub is_of_all_clients: bool,
    /// Round trip of the connection, from TCP_INFO.
    pub round_trip_ms: Option<f64>,
    /// Time from writing a response to reading the connection's next request: mean, and the share
    /// of requests that came within 1.3 round trips and 1 ms.
    pub gap_ms: Option<f64>,
    pub back_to_back_share: Option<f64>,
    /// Two requests of one connection were seen waiting at the same time.
    pub has_overlap: Option<bool>,
    pub connections: Option<f64>,
    pub handler_idle: Option<f64>,
    pub network_idle: Option<f64>,
    pub cpu_use: Option<f64>,
    /// Fetches per second that had to read the disk, and how long those reads took.
    pub cold_reads_per_second: Option<f64>,
    pub cold_read_ms: Option<f64>,
    pub cold_bytes_per_second: Option<f64>,
    /// A consumer's commits of offsets, and how long the broker took for one.
    pub commits_per_second: Option<f64>,
    pub commit_ms: Option<f64>,
    pub network_threads: Option<f64>,
    /// Errors returned to this client, by Kafka's name of the code.
    pub errors: BTreeMap<String, f64>,
    pub quota_bytes_per_second: Option<f64>,
    pub quota_request_share: Option<f64>,
    pub slowest_follower: Option<String>,
    /// The broker's machine.
    pub host: Option<Host>,
    /// Largest request and largest batch that were read on the wire.
    pub request_bytes_max: Option<f64>,
    pub batch_bytes_max: Option<f64>,
    /// The partitions that this client wrote most to, the heaviest first; at most a handful.
    pub partitions: Vec<WrittenPartition>,
    /// Partitions that it wrote to.
    pub partitions_written: Option<f64>,
    /// The most requests of one connection that were under way at the same time, with those whose
    /// answers cannot have reached the client when it sent the next: at least as many are allowed.
    pub in_flight_max: Option<f64>,
    /// Round trip of the connection while the broker was sending most of the time, or a producer's
    /// requests arrived all the time: with what queues on the way.
    pub loaded_round_trip_ms: Option<f64>,
    /// Share of the time in which a producer's request was arriving: its first byte was read and
    /// its last was not.
    pub arriving_share: Option<f64>,
    /// The time between two reads of one request, each weighted by its length. Bytes that come as
    /// fast as a link carries them have short ones; those that wait for a window come once in a
    /// round trip.
    pub arrival_pause_ms: Option<f64>,
    /// Partitions in which a consumer stands still before an open transaction.
    pub held: Vec<HeldPartition>,
    /// The operations that the broker denied this client in the window.
    pub denied: Vec<Denied>,
    /// Topics that this client asked for in the window, and that do not exist.
    pub unknown_topics: Vec<UnknownTopic>,
    /// Connections that this client ended before the first answer can have reached it.
    pub unheard_per_second: Option<f64>,
    /// How often it ended a transaction in the window by EndTxn before version 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nameless_ends: Option<f64>,
    /// The finalized transaction.version, where that matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_version: Option<i16>,
}

/// What a cluster tells of the topics that a producer writes to, and of its quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSide {
    /// By records, the heaviest first; at most a handful. Bytes are not known.
    pub partitions: Vec<WrittenPartition>,
    /// Partitions of these topics that grew, and the records of all of them.
    pub partitions_written: Option<f64>,
    pub records_per_second: Option<f64>,
    /// As much as the client sends: no other writes there.
    pub is_alone: bool,
    /// `producer_byte_rate` of its client id.
    pub quota_bytes_per_second: Option<f64>,
    /// `request_percentage` of its client id, as a share of one processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_request_share: Option<f64>,
    #[serde(skip_serializing_if = "BrokerSockets::is_unknown")]
    pub sockets: BrokerSockets,
    /// Bytes for each offset that a consumer reads, by the size of its topics' logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<f64>,
    /// The entry stands for producers that push nothing.
    pub silent: Option<SilentWriters>,
}

/// The buffers that brokers set for their sockets, the smallest of the first fifty brokers; `None`:
/// not known, or a kernel chooses the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrokerSockets {
    /// All brokers of the cluster.
    pub brokers: f64,
    /// socket.receive.buffer.bytes.
    pub receive_buffer_bytes: Option<f64>,
    /// socket.send.buffer.bytes.
    pub send_buffer_bytes: Option<f64>,
}

impl BrokerSockets {
    pub fn is_unknown(&self) -> bool {
        self.receive_buffer_bytes.is_none() && self.send_buffer_bytes.is_none()
    }
}

/// Producers of a topic that push nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SilentWriters {
    pub topic: String,
    pub count: f64,
    /// All producers that write to it; which of them push is not known.
    pub writers: f64,
    /// Ids of writers, at most a handful.
    pub producer_ids: Vec<i64>,
}

/// A partition of a consumer that stands still where a transaction begins that is not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldPartition {
    pub topic: String,
    pub partition: i32,
    /// The transaction's first offset, and how many records are behind it.
    pub offset: i64,
    pub lag: f64,
    /// How long the consumer has stood there, within the window.
    pub seconds: f64,
    /// `None`: the broker's coordinators do not know it.
    pub transactional_id: Option<String>,
    pub producer_id: i64,
    /// How long ago its producer last wrote to the partition.
    pub idle_seconds: f64,
}

/// An operation that a broker denied a client by its ACLs, in the words of Kafka's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Denied {
    pub operation: String,
    pub resource_type: String,
    pub resource: String,
    /// An ACL denies it; otherwise none allows it.
    pub is_by_acl: bool,
    pub count: f64,
}

/// A topic that a client asked a broker for, and that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownTopic {
    pub topic: String,
    pub count: f64,
}

/// One partition of a producer, as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrittenPartition {
    pub topic: String,
    pub partition: i32,
    pub bytes_per_second: Option<f64>,
    pub records_per_second: Option<f64>,
    pub batches_per_second: Option<f64>,
    pub batch_bytes: Option<f64>,
}

/// An earlier reading of the same client, with other settings of the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Earlier {
    pub threads: Option<f64>,
    pub partitions: Option<f64>,
    pub records_per_second: Option<f64>,
    pub send_micros: Option<f64>,
}

/// Another client of the same brokers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbour {
    pub client_id: String,
    pub principal: Option<String>,
    /// Share of the brokers' time in this window, and before.
    pub time_share: f64,
    pub time_share_before: Option<f64>,
    pub requests_per_second: Option<f64>,
    pub records_per_request: Option<f64>,
    pub cold_bytes_per_second: Option<f64>,
    pub group_id: Option<String>,
    /// This client's D over its own median of the last hour.
    pub victim_growth: Option<f64>,
}
