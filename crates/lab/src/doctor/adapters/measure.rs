//! The metrics that are read: one table of names, levels and how values of several pushes are
//! combined.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The label that a value must carry: the same name exists at several levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Client,
    Node,
    Topic,
    Partition,
}

/// How values of several pushes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Counts are summed, and so are the seconds over which they were counted.
    Sum,
    Mean(Weight),
    /// The maximum of values that are themselves maxima over the client's sample windows.
    Max,
    /// The maximum of values that the client reads when it pushes.
    Peak,
    Last,
}

/// The weight of a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// That measure, of the same push and subject.
    Of(Measure),
    /// The number of batches: bytes sent over bytes per batch.
    Batches,
    Time,
}

macro_rules! measures {
    ($($(#[$attribute:meta])* $measure:ident: $level:ident $name:literal $fold:expr;)+) => {
        /// A metric that the doctor reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Measure {
            $($(#[$attribute])* $measure,)+
        }

        impl Measure {
            pub const ALL: &[Measure] = &[$(Measure::$measure),+];

            pub fn level(self) -> Level {
                match self {
                    $(Measure::$measure => Level::$level,)+
                }
            }

            /// The pushed name without `org.apache.kafka.`; empty for derived measures.
            pub fn name(self) -> &'static str {
                match self {
                    $(Measure::$measure => $name,)+
                }
            }

            pub fn fold(self) -> Fold {
                match self {
                    $(Measure::$measure => $fold,)+
                }
            }
        }
    };
}

const OF_REQUESTS: Fold = Fold::Mean(Weight::Of(Measure::Requests));
const OF_BATCHES: Fold = Fold::Mean(Weight::Batches);
const OF_FETCHES: Fold = Fold::Mean(Weight::Of(Measure::Fetches));
const OF_TIME: Fold = Fold::Mean(Weight::Time);

measures! {
    RecordsSent: Client "producer.record.send.total" Fold::Sum;
    BytesOut: Client "producer.outgoing.byte.total" Fold::Sum;
    Requests: Client "producer.request.total" Fold::Sum;
    RequestBytes: Client "producer.request.size.avg" OF_REQUESTS;
    RequestBytesMax: Client "producer.request.size.max" Fold::Max;
    BatchBytes: Client "producer.batch.size.avg" OF_BATCHES;
    BatchBytesMax: Client "producer.batch.size.max" Fold::Max;
    RecordsPerRequest: Client "producer.records.per.request.avg" OF_REQUESTS;
    Compression: Client "producer.compression.rate.avg" OF_BATCHES;
    RecordBytes: Client "producer.record.size.avg" OF_BATCHES;
    QueueTime: Client "producer.record.queue.time.avg" OF_BATCHES;
    QueueTimeMax: Client "producer.record.queue.time.max" Fold::Max;
    /// What librdkafka pushes by the name of `QueueTime`.
    TransmitQueue: Client "" OF_REQUESTS;
    RequestLatency: Client "producer.request.latency.avg" OF_REQUESTS;
    RequestLatencyMax: Client "producer.request.latency.max" Fold::Max;
    InFlight: Client "producer.requests.in.flight" Fold::Last;
    /// The maximum of `InFlight`.
    InFlightPeak: Client "" Fold::Peak;
    BufferWaitNanos: Client "producer.bufferpool.wait.time.ns.total" Fold::Sum;
    BufferBytes: Client "producer.buffer.total.bytes" Fold::Last;
    BufferAvailable: Client "producer.buffer.available.bytes" Fold::Last;
    WaitingThreads: Client "producer.waiting.threads" Fold::Last;
    IoWaitNanos: Client "producer.io.wait.time.ns.total" Fold::Sum;
    IoNanos: Client "producer.io.time.ns.total" Fold::Sum;
    Throttle: Client "producer.produce.throttle.time.avg" OF_REQUESTS;
    ThrottleMax: Client "producer.produce.throttle.time.max" Fold::Max;
    RecordsFailed: Client "producer.record.error.total" Fold::Sum;
    RecordsRetried: Client "producer.record.retry.total" Fold::Sum;
    BufferExhausted: Client "producer.buffer.exhausted.total" Fold::Sum;
    MetadataWaitNanos: Client "producer.metadata.wait.time.ns.total" Fold::Sum;
    MetadataAge: Client "producer.metadata.age" Fold::Last;
    FlushNanos: Client "producer.flush.time.ns.total" Fold::Sum;
    TransactionCommitNanos: Client "producer.txn.commit.time.ns.total" Fold::Sum;
    TransactionAbortNanos: Client "producer.txn.abort.time.ns.total" Fold::Sum;
    TransactionOffsetsNanos: Client "producer.txn.send.offsets.time.ns.total" Fold::Sum;
    ConnectionsCreated: Client "producer.connection.creation.total" Fold::Sum;
    NodeRequests: Node "producer.node.request.total" Fold::Sum;
    NodeLatency: Node "producer.node.request.latency.avg" Fold::Mean(Weight::Of(Measure::NodeRequests));
    NodeLatencyMax: Node "producer.node.request.latency.max" Fold::Max;
    NodeBytesOut: Node "producer.node.outgoing.byte.total" Fold::Sum;
    TopicRecords: Topic "producer.topic.record.send.total" Fold::Sum;
    TopicBytes: Topic "producer.topic.byte.total" Fold::Sum;
    TopicCompression: Topic "producer.topic.compression.rate" Fold::Mean(Weight::Of(Measure::TopicBytes));
    // Sent only by Ottla's own client.
    SendTime: Client "ottla.producer.send.time.avg" Fold::Mean(Weight::Of(Measure::Sends));
    Sends: Client "ottla.producer.send.total" Fold::Sum;
    SendingThreads: Client "ottla.producer.sending.threads" Fold::Last;
    CallbackTime: Client "ottla.producer.callback.time.avg" Fold::Mean(Weight::Of(Measure::RecordsSent));
    SettingAcks: Client "ottla.producer.setting.acks" Fold::Last;
    SettingBatch: Client "ottla.producer.setting.batch.size" Fold::Last;
    SettingLinger: Client "ottla.producer.setting.linger.ms" Fold::Last;
    SettingInFlight: Client "ottla.producer.setting.max.in.flight" Fold::Last;
    SettingRequest: Client "ottla.producer.setting.max.request.size" Fold::Last;
    SettingSendBuffer: Client "ottla.producer.setting.send.buffer.bytes" Fold::Last;
    SettingMaxBlock: Client "ottla.producer.setting.max.block.ms" Fold::Last;
    SettingDeliveryTimeout: Client "ottla.producer.setting.delivery.timeout.ms" Fold::Last;

    ConsumedRecords: Client "consumer.fetch.manager.records.consumed.total" Fold::Sum;
    ConsumedBytes: Client "consumer.fetch.manager.bytes.consumed.total" Fold::Sum;
    Fetches: Client "consumer.fetch.manager.fetch.total" Fold::Sum;
    FetchBytes: Client "consumer.fetch.manager.fetch.size.avg" OF_FETCHES;
    FetchLatency: Client "consumer.fetch.manager.fetch.latency.avg" OF_FETCHES;
    FetchLatencyMax: Client "consumer.fetch.manager.fetch.latency.max" Fold::Max;
    FetchThrottle: Client "consumer.fetch.manager.fetch.throttle.time.avg" OF_FETCHES;
    FetchThrottleMax: Client "consumer.fetch.manager.fetch.throttle.time.max" Fold::Max;
    PollIdle: Client "consumer.poll.idle.ratio.avg" OF_TIME;
    BetweenPolls: Client "consumer.time.between.poll.avg" OF_TIME;
    BetweenPollsMax: Client "consumer.time.between.poll.max" Fold::Max;
    LagMax: Client "consumer.fetch.manager.records.lag.max" Fold::Last;
    AssignedPartitions: Client "consumer.coordinator.assigned.partitions" Fold::Last;
    Rebalances: Client "consumer.coordinator.rebalance.total" Fold::Sum;
    FailedRebalances: Client "consumer.coordinator.failed.rebalance.total" Fold::Sum;
    RebalanceTime: Client "consumer.coordinator.rebalance.latency.avg" OF_TIME;
    RebalanceTimeMax: Client "consumer.coordinator.rebalance.latency.max" Fold::Max;
    /// Milliseconds; librdkafka sends it instead of the number of rebalances.
    RebalanceTimeTotal: Client "consumer.coordinator.rebalance.latency.total" Fold::Sum;
    LastRebalance: Client "consumer.coordinator.last.rebalance.seconds.ago" Fold::Last;
    LastHeartbeat: Client "consumer.coordinator.last.heartbeat.seconds.ago" Fold::Last;
    CommitTime: Client "consumer.coordinator.commit.latency.avg" Fold::Mean(Weight::Of(Measure::Commits));
    Commits: Client "consumer.coordinator.commit.total" Fold::Sum;
    CommitSyncNanos: Client "consumer.commit.sync.time.ns.total" Fold::Sum;
    ConsumerConnections: Client "consumer.connection.creation.total" Fold::Sum;
    // Sent only by Ottla's own client.
    SettingFetchMin: Client "ottla.consumer.setting.fetch.min.bytes" Fold::Last;
    SettingFetchMax: Client "ottla.consumer.setting.fetch.max.bytes" Fold::Last;
    SettingFetchWait: Client "ottla.consumer.setting.fetch.max.wait.ms" Fold::Last;
    SettingPartitionFetch: Client "ottla.consumer.setting.max.partition.fetch.bytes" Fold::Last;
    SettingPollRecords: Client "ottla.consumer.setting.max.poll.records" Fold::Last;
    SettingPollInterval: Client "ottla.consumer.setting.max.poll.interval.ms" Fold::Last;
    SettingSessionTimeout: Client "ottla.consumer.setting.session.timeout.ms" Fold::Last;
    SettingReceiveBuffer: Client "ottla.consumer.setting.receive.buffer.bytes" Fold::Last;
    Lag: Partition "consumer.fetch.manager.records.lag" Fold::Last;
    Lead: Partition "consumer.fetch.manager.records.lead" Fold::Last;
    LagMean: Partition "consumer.fetch.manager.records.lag.avg" Fold::Last;
    LeadMean: Partition "consumer.fetch.manager.records.lead.avg" Fold::Last;
}

impl Measure {
    /// Finds a measure by its name without `org.apache.kafka.`.
    pub fn named(name: &str) -> Option<Measure> {
        static NAMES: LazyLock<HashMap<&'static str, Measure>> = LazyLock::new(|| {
            let all = Measure::ALL.iter().copied();
            all.filter(|measure| !measure.name().is_empty())
                .map(|measure| (measure.name(), measure))
                .collect()
        });
        NAMES.get(name).copied()
    }

    /// Whether it is a mean or a maximum, which has no value when nothing happened.
    pub fn needs_samples(self) -> bool {
        matches!(self.fold(), Fold::Mean(_) | Fold::Max)
    }

    /// Whether it is used only in a single reading: pushes give the same number by their
    /// differences.
    pub fn is_of_one_reading(self) -> bool {
        matches!(
            self,
            Measure::LagMean | Measure::LeadMean | Measure::LastRebalance
        )
    }
}

/// A set of measures, small enough to be kept for every client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsampled(u128);

impl Unsampled {
    pub fn insert(&mut self, measure: Measure) {
        self.0 |= 1 << measure as u8;
    }

    /// Differs where the sets do.
    pub fn hashed(self) -> u64 {
        self.0 as u64 ^ (self.0 >> 64) as u64
    }

    pub fn iter(self) -> impl Iterator<Item = Measure> {
        let all = Measure::ALL.iter().copied();
        all.filter(move |measure| self.0 >> *measure as u8 & 1 == 1)
    }
}
