//! What a cluster is asked once a minute, because it hardly changes or costs more to tell: the
//! buffers of the brokers' sockets, and how many bytes a record of each topic has on disk, which is
//! what a fetch of it brings.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::Error;
use ottla_client::admin::{
    Admin, ConfigEntries, ConfigResource, ConfigResourceKind, ConfigSource, LogDirectory, NodeId, OffsetSpec,
    TopicPartition,
};

use super::cluster::{Position, Shortcoming};
use crate::doctor::snapshot::{BrokerSockets, ConsumedPartition};

const EVERY_MS: i64 = 60_000;

/// At most this many brokers are asked, the first by id.
const BROKERS_MAX: usize = 50;

/// By group and partition.
type Positions = BTreeMap<(String, TopicPartition), Position>;

/// The last answers.
#[derive(Clone, Debug, Default)]
pub struct Seldom {
    /// Milliseconds since 1970.
    pub asked_ms: i64,
    pub sockets: BrokerSockets,
    /// Bytes for each offset, by topic: of those that groups read when it was asked.
    pub record_bytes: BTreeMap<String, Option<f64>>,
    pub shortcomings: Vec<Shortcoming>,
}

impl Seldom {
    /// Asks, or returns the last answers where they are not a minute old and know all topics.
    pub(super) fn ask(
        admin: &Admin,
        at_ms: i64,
        brokers: Vec<NodeId>,
        positions: &Positions,
        last: Option<&Seldom>,
    ) -> Seldom {
        let topics: BTreeSet<&str> = positions.keys().map(|(_, partition)| &*partition.topic).collect();
        let knows = |last: &&Seldom| {
            let is_fresh = at_ms - last.asked_ms < EVERY_MS;
            is_fresh && topics.iter().all(|topic| last.record_bytes.contains_key(*topic))
        };
        if let Some(last) = last.filter(knows) {
            return last.clone();
        }
        let mut shortcomings = Vec::new();
        let sockets = sockets(admin, &brokers, &mut shortcomings);
        let asked = brokers.into_iter().take(BROKERS_MAX).collect();
        let sizes = match topics.is_empty() {
            true => Ok(BTreeMap::new()),
            false => record_bytes(admin, asked, positions),
        };
        let sizes = sizes.unwrap_or_else(|error| {
            shortcomings.push(Shortcoming::RecordSizes(error.to_string()));
            BTreeMap::new()
        });
        let of = |topic: &str| (topic.to_owned(), sizes.get(topic).copied());
        Seldom {
            asked_ms: at_ms,
            sockets,
            record_bytes: topics.into_iter().map(of).collect(),
            shortcomings,
        }
    }

    /// Bytes of a record that a consumer of these partitions reads, by how many it reads of each.
    pub(super) fn record_bytes_of(&self, partitions: &[ConsumedPartition]) -> Option<f64> {
        let (mut records, mut bytes) = (0.0, 0.0);
        for partition in partitions {
            // One that it does not read now counts little.
            let rate = partition.consumed_per_second.unwrap_or(0.0).max(1.0);
            records += rate;
            bytes += rate * (*self.record_bytes.get(&partition.topic)?)?;
        }
        (records > 0.0).then(|| bytes / records)
    }
}

fn sockets(admin: &Admin, brokers: &[NodeId], shortcomings: &mut Vec<Shortcoming>) -> BrokerSockets {
    let asked = brokers.iter().take(BROKERS_MAX);
    let asked = asked.map(|id| ConfigResource::new(ConfigResourceKind::Broker, id.0.to_string()));
    let described = admin.describe_configs(asked.collect()).wait();
    let settings = described.and_then(|all| all.into_values().collect::<Result<Vec<ConfigEntries>, Error>>());
    let settings = settings.unwrap_or_else(|error| {
        shortcomings.push(Shortcoming::Sockets(error.to_string()));
        Vec::new()
    });
    BrokerSockets {
        brokers: brokers.len() as f64,
        receive_buffer_bytes: least_buffer(&settings, "socket.receive.buffer.bytes"),
        send_buffer_bytes: least_buffer(&settings, "socket.send.buffer.bytes"),
    }
}

fn least_buffer(brokers: &[ConfigEntries], key: &str) -> Option<f64> {
    let set = brokers.iter().filter_map(|entries| {
        let entry = entries.get(key)?;
        let is_ottla = entries.contains_key("ottla.durability");
        buffer_set(entry.value.as_deref()?, entry.source, is_ottla)
    });
    set.reduce(f64::min)
}

/// The size that a broker sets: Apache Kafka also the 100 KiB of its default; Ottla leaves it to
/// the kernel where its owner has set none.
fn buffer_set(value: &str, source: ConfigSource, is_ottla: bool) -> Option<f64> {
    let is_left_alone = is_ottla && source == ConfigSource::Default;
    let bytes: f64 = value.parse().ok()?;
    (bytes > 0.0 && !is_left_alone).then_some(bytes)
}

/// Bytes for each offset of topics that have records.
///
/// - Errors: no broker tells (DescribeLogDirs wants `Describe` of the cluster).
fn record_bytes(
    admin: &Admin,
    brokers: Vec<NodeId>,
    positions: &Positions,
) -> Result<BTreeMap<String, f64>, Error> {
    let ends = positions
        .iter()
        .map(|((_, partition), position)| (partition.clone(), position.end));
    let ends: BTreeMap<TopicPartition, i64> = ends.collect();
    let of = |partition: &TopicPartition| (partition.clone(), OffsetSpec::Earliest);
    let first = admin.list_offsets(ends.keys().map(of).collect()).wait()?;
    let sizes = replica_bytes(admin, brokers)?;
    let counted = ends.iter().filter_map(|(partition, end)| {
        let begin = first.get(partition)?.as_ref().ok()?.offset;
        Some((&*partition.topic, (*sizes.get(partition)?, end - begin)))
    });
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (topic, (bytes, offsets)) in counted.filter(|(_, (bytes, offsets))| *bytes > 0 && *offsets > 0) {
        let sum = sums.entry(topic).or_default();
        *sum = (sum.0 + bytes, sum.1 + offsets);
    }
    let of =
        |(topic, (bytes, offsets)): (&str, (i64, i64))| (topic.to_owned(), bytes as f64 / offsets as f64);
    Ok(sums.into_iter().map(of).collect())
}

/// The size of each partition's log: of its largest replica, which lacks nothing.
fn replica_bytes(admin: &Admin, brokers: Vec<NodeId>) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let mut sizes = BTreeMap::new();
    let mut refusal = None;
    let mut add = |directory: LogDirectory| {
        for (partition, replica) in directory.replicas {
            let size: &mut i64 = sizes.entry(partition).or_default();
            *size = replica.size_bytes.max(*size);
        }
    };
    for described in admin.describe_log_dirs(brokers).wait()?.into_values() {
        match described {
            Ok(directories) => directories.into_values().flatten().for_each(&mut add),
            Err(error) => refusal = Some(error),
        }
    }
    match refusal {
        Some(error) if sizes.is_empty() => Err(error),
        _ => Ok(sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_s_buffer_counts_where_the_broker_sets_it() {
        let (default, set) = (ConfigSource::Default, ConfigSource::StaticBroker);
        assert_eq!(buffer_set("102400", default, false), Some(102_400.0));
        assert_eq!(buffer_set("102400", default, true), None);
        assert_eq!(buffer_set("1048576", set, true), Some(1_048_576.0));
        assert_eq!(buffer_set("-1", set, false), None);
    }

    #[test]
    fn records_of_several_topics_have_the_mean_of_what_is_read() {
        let read = |topic: &str, rate: f64| ConsumedPartition {
            topic: topic.to_owned(),
            consumed_per_second: Some(rate),
            ..ConsumedPartition::default()
        };
        let sizes = [("large", Some(1_000.0)), ("small", Some(100.0)), ("empty", None)];
        let seldom = Seldom {
            record_bytes: sizes.map(|(topic, bytes)| (topic.to_owned(), bytes)).into(),
            ..Seldom::default()
        };
        let of = |partitions: &[ConsumedPartition]| seldom.record_bytes_of(partitions);
        assert_eq!(of(&[read("large", 100.0), read("small", 300.0)]), Some(325.0));
        assert_eq!(of(&[read("large", 100.0), read("empty", 1.0)]), None);
        assert_eq!(of(&[]), None);
    }
}
