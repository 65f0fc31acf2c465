//! The numbers that the consumer tests read from a snapshot, derived once.

use super::super::super::arithmetic::setting;
use super::super::super::snapshot::{
    BrokerSide, ConsumedPartition, Consumer, Library, Role, Setting, Snapshot,
};
use super::super::broker::{self, parts::Parts};

/// A lag of less than this many seconds of records is small: a group's clocks are no finer.
const LAG_SMALL_S: f64 = 1.0;

/// Two waits of a fetch: what arrives while one fetch waits is fetched only by the next.
const LAG_SMALL_WAITS: f64 = 2.0;

/// The mean size of fetches that are cut at a limit lies below it, because a fetch holds whole
/// batches.
pub const SIZE_AT_LIMIT: f64 = 0.85;

/// Measured numbers and those derived from them. Values that are not finite are absent.
pub struct Reading<'a> {
    pub snapshot: &'a Snapshot,
    pub consumer: &'a Consumer,
    /// Share of time that polls waited for records.
    pub idle: Option<f64>,
    /// Records consumed per second.
    pub consumed: Option<f64>,
    pub produced: Option<f64>,
    /// Records behind the end, over all partitions of this member.
    pub lag: Option<f64>,
    /// Growth of the lag, in records per second.
    pub lag_slope: Option<f64>,
    pub fetch_ms: Option<f64>,
    pub fetch_bytes: Option<f64>,
    /// Share of time that a fetch is under way; above 1 with several brokers.
    pub fetch_use: Option<f64>,
    /// Number of partitions of this member.
    pub partitions: Option<f64>,
    pub wait_ms: (f64, &'static str),
    pub min_bytes: (f64, &'static str),
    pub max_bytes: (f64, &'static str),
    pub partition_bytes: (f64, &'static str),
}

impl<'a> Reading<'a> {
    pub fn of(snapshot: &'a Snapshot, consumer: &'a Consumer) -> Reading<'a> {
        let partitions = &consumer.partitions;
        let consumed = sane(consumer.records_per_second)
            .or_else(|| sum(partitions, |partition| sane(partition.consumed_per_second)))
            .or_else(|| of_brokers(snapshot, |side| sane(side.records_per_second)));
        let lag = sum(partitions, |partition| sane(partition.lag)).or(sane(consumer.lag_max));
        let lag_slope = slope(partitions);
        let produced = sum(partitions, |partition| sane(partition.produced_per_second)).or_else(|| {
            let grown = consumed? + lag_slope?;
            Some(grown.max(0.0))
        });
        let fetch_ms = sane(consumer.fetch_ms).filter(|ms| *ms > 0.0);
        let fetches = sane(consumer.fetches_per_second);
        let default_wait_ms = match snapshot.client.library {
            Library::FranzGo => 5_000.0,
            _ => 500.0,
        };
        let settings = &snapshot.settings;
        Reading {
            snapshot,
            consumer,
            idle: sane(consumer.poll_idle_share).map(|share| share.min(1.0)),
            consumed,
            // The difference of two large rates is not a meaningful rate.
            produced: produced.map(|rate| {
                if rate < 0.001 * consumed.unwrap_or(0.0) {
                    0.0
                } else {
                    rate
                }
            }),
            lag,
            lag_slope,
            fetch_ms,
            fetch_bytes: sane(consumer.fetch_bytes),
            fetch_use: fetches
                .zip(fetch_ms)
                .map(|(rate, ms)| rate * ms / 1_000.0)
                .or_else(|| fetch_use_at_brokers(snapshot)),
            partitions: sane(consumer.assigned_partitions)
                .or_else(|| (!partitions.is_empty()).then_some(partitions.len() as f64)),
            wait_ms: setting(usable(settings.fetch_max_wait_ms), default_wait_ms),
            min_bytes: setting(usable(settings.fetch_min_bytes), 1.0),
            max_bytes: setting(usable(settings.fetch_max_bytes), 52_428_800.0),
            partition_bytes: setting(usable(settings.max_partition_fetch_bytes), 1_048_576.0),
        }
    }

    /// Whether the lag is too small to count as one. `None`: it is not known.
    pub fn is_lag_small(&self) -> Option<bool> {
        let lag = self.lag?;
        Some(self.is_small(
            lag,
            self.consumed.unwrap_or(0.0).max(self.produced.unwrap_or(0.0)),
        ))
    }

    /// Whether this number of records is a small lag at this rate.
    pub fn is_small(&self, lag: f64, records_per_second: f64) -> bool {
        lag <= 0.0 || lag <= records_per_second * self.lag_small_seconds()
    }

    pub fn lag_small_seconds(&self) -> f64 {
        LAG_SMALL_S.max(LAG_SMALL_WAITS * self.wait_ms.0 / 1_000.0)
    }

    /// Whether the lag grows by more than rates vary from second to second.
    pub fn is_growing(&self) -> Option<bool> {
        let flow = self.consumed.unwrap_or(0.0).max(self.produced.unwrap_or(0.0));
        self.lag_slope.map(|slope| slope > 0.02 * flow && slope > 0.0)
    }

    pub fn is_shrinking(&self) -> Option<bool> {
        self.lag_slope.map(|slope| slope < 0.0)
    }

    /// Whether fetches take as long as they may wait for records.
    pub fn is_fetch_waiting(&self) -> Option<bool> {
        let fetch_ms = self.fetch_ms?;
        let wait = self.wait_ms.0;
        // A fetch that returns as much as it may does not wait for more, however long it takes.
        let limit = self.partition_bytes.0.min(self.max_bytes.0);
        if self
            .fetch_bytes
            .is_some_and(|size| size >= SIZE_AT_LIMIT * limit && size >= self.min_bytes.0)
        {
            return Some(false);
        }
        let round_trip = self.snapshot.network.round_trip_ms.unwrap_or(0.0);
        // Anything longer than the wait and the round trip has another cause than waiting for
        // records.
        Some(fetch_ms >= 0.9 * wait && fetch_ms <= 1.5 * wait + 2.0 * round_trip + 5.0)
    }

    /// The broker's time of a fetch without the wait for records, in ms, at the slowest broker.
    pub fn broker_ms(&self) -> Option<f64> {
        let parts = self.snapshot.brokers.iter().filter_map(Parts::of);
        parts
            .map(|parts| parts.without_remote().total_ms())
            .reduce(f64::max)
    }

    pub fn judgement(&self) -> Option<broker::Judgement> {
        broker::judge_all(&self.snapshot.brokers, Role::Consumer)
    }

    pub fn throttle_ms(&self) -> Option<f64> {
        let own = self
            .snapshot
            .brokers
            .iter()
            .filter(|side| !side.is_of_all_clients);
        let of_brokers = own.filter_map(|side| sane(side.throttle_ms));
        of_brokers.chain(sane(self.consumer.throttle_ms)).reduce(f64::max)
    }

    /// The mean size of a record on the wire, in bytes.
    pub fn record_bytes(&self) -> Option<f64> {
        let bytes = sane(self.consumer.bytes_per_second)?;
        let records = self.consumed.filter(|records| *records > 0.0)?;
        Some(bytes / records).filter(|size| *size > 0.0)
    }

    /// The age of the oldest record to be read next, in ms.
    pub fn age_ms(&self) -> Option<f64> {
        let ages = self
            .consumer
            .partitions
            .iter()
            .filter_map(|partition| sane(partition.lag_ms));
        ages.reduce(f64::max)
    }

    /// The name of this member.
    pub fn name(&self) -> &str {
        match &self.snapshot.client.member_id {
            Some(member) => member,
            None => &self.snapshot.client.client_id,
        }
    }
}

/// Keeps only plausible measurements: finite and not negative.
pub fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

fn usable(setting: Option<Setting<f64>>) -> Option<Setting<f64>> {
    setting.filter(|setting| setting.value.is_finite() && setting.value >= 0.0)
}

/// The sum over the partitions; `None` unless all of them have the number, because a partial sum is
/// misleading.
fn sum(partitions: &[ConsumedPartition], of: impl Fn(&ConsumedPartition) -> Option<f64>) -> Option<f64> {
    if partitions.is_empty() {
        return None;
    }
    partitions
        .iter()
        .map(of)
        .sum::<Option<f64>>()
        .filter(|sum| sum.is_finite())
}

fn slope(partitions: &[ConsumedPartition]) -> Option<f64> {
    let of = |partition: &ConsumedPartition| {
        partition
            .lag_slope
            .or_else(|| Some(partition.produced_per_second? - partition.consumed_per_second?))
            .filter(|slope| slope.is_finite())
    };
    sum(partitions, of)
}

fn of_brokers(snapshot: &Snapshot, of: impl Fn(&BrokerSide) -> Option<f64>) -> Option<f64> {
    let own = snapshot.brokers.iter().filter(|side| !side.is_of_all_clients);
    own.filter_map(of).reduce(|one, other| one + other)
}

/// The same from the brokers' numbers: fetches per second times the time of each.
fn fetch_use_at_brokers(snapshot: &Snapshot) -> Option<f64> {
    of_brokers(snapshot, |side| {
        let rate = sane(side.requests_per_second)?;
        let total_ms = match Parts::of(side) {
            Some(parts) => parts.total_ms(),
            None => sane(side.total_micros)? / 1_000.0,
        };
        Some(rate * (total_ms + sane(side.round_trip_ms).unwrap_or(0.0)) / 1_000.0)
    })
}
