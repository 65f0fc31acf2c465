//! Who writes to a cluster's topics, and how evenly: from the ends of partitions and from the
//! producer ids that their leaders remember. A client that pushes is known by the topics that it
//! names; producers beyond those push nothing.
//!
//! Silence is preferred to a false entry: a client that pushes without naming topics may be the
//! writer of any, and producers without idempotence have no id.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_client::Error;
use ottla_client::admin::{ActiveProducer, Admin, OffsetSpec, TopicPartition};

use super::cluster::{ClusterReading, Shortcoming};
use super::host::host_between;
use crate::doctor::history::Observed;
use crate::doctor::snapshot::{BrokerSide, Client, ClusterSide, Host, Role, SilentWriters, WrittenPartition};

/// At most this many topics and partitions are asked for their ends, those of clients that push
/// first; at most this many partitions for their producers, those that grew.
const TOPICS_MAX: usize = 500;
const PARTITIONS_MAX: usize = 2_000;
const DESCRIBED_MAX: usize = 200;
/// At most this many topics with silent producers are listed, and ids named for each.
const LISTED_MAX: usize = 50;
const IDS_MAX: usize = 5;
/// Partitions reported for a client.
const HEAVIEST: usize = 8;
/// A client's own count is of another window than the partitions' ends.
const ALONE: f64 = 0.85;
/// Two readings at least; and a client that is asked for metrics pushes for the first time within
/// one and a half intervals.
const SETTLED_MS: i64 = 20_000;
const FIRST_PUSH: f64 = 1.5;
/// Where a subscription names no interval.
pub(super) const INTERVAL_MS: i64 = 300_000;

/// What producers left in partitions, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Writing {
    pub ends: BTreeMap<TopicPartition, i64>,
    /// Of partitions that grew: the last sequence and timestamp of each producer id.
    pub producers: BTreeMap<TopicPartition, BTreeMap<i64, (i32, i64)>>,
}

/// A client that pushes.
#[derive(Clone, Debug, Default)]
pub struct Pushing {
    pub client: Client,
    /// Of a producer: records per second by topic. Empty: it names none.
    pub topics: BTreeMap<String, f64>,
}

impl Pushing {
    pub(super) fn is_producer(&self) -> bool {
        self.client.role == Role::Producer
    }

    /// The name of its principal, which quotas are for.
    pub(super) fn user(&self) -> Option<&str> {
        let principal = self.client.principal.as_deref()?;
        principal.split_once(':').map(|(_, name)| name)
    }
}

/// Asks for the ends of topics and the producers of those that grew.
///
/// - `pushing`: their topics come first.
/// - `before`: the ends of the reading before.
pub(super) fn ask(
    admin: &Admin,
    pushing: &[Pushing],
    before: &BTreeMap<TopicPartition, i64>,
    shortcomings: &mut Vec<Shortcoming>,
) -> Result<Writing, Error> {
    let listed = admin.list_topics().wait()?;
    let all = listed.into_iter().filter(|(_, topic)| !topic.is_internal);
    let names = chosen(all.map(|(name, _)| name).collect(), pushing, shortcomings);
    let described = admin.describe_topics(names).wait()?.into_iter();
    let known = described.filter_map(|(name, topic)| Some((Arc::<str>::from(name), topic.ok()?)));
    let partitions = known.flat_map(|(name, topic)| {
        let indexes = topic.partitions.into_keys();
        indexes.map(move |index| (TopicPartition::new(name.clone(), index), OffsetSpec::Latest))
    });
    let asked: BTreeMap<_, _> = partitions.take(PARTITIONS_MAX).collect();
    let answers = admin.list_offsets(asked).wait()?.into_iter();
    let ends: BTreeMap<_, _> = answers
        .filter_map(|(partition, end)| Some((partition, end.ok()?.offset)))
        .collect();
    let has_grown = |(partition, end): &(&TopicPartition, &i64)| {
        before.get(*partition).is_some_and(|before| before < *end)
    };
    let grown = ends
        .iter()
        .filter(has_grown)
        .map(|(partition, _)| partition.clone());
    let described = admin
        .describe_producers(grown.take(DESCRIBED_MAX).collect())
        .wait()?;
    let producers = described
        .into_iter()
        .filter_map(|(partition, producers)| Some((partition, marks(producers.ok()?))));
    Ok(Writing {
        producers: producers.collect(),
        ends,
    })
}

fn marks(producers: Vec<ActiveProducer>) -> BTreeMap<i64, (i32, i64)> {
    let mark = |producer: ActiveProducer| {
        let mark = (producer.last_sequence, producer.last_timestamp);
        (producer.producer_id, mark)
    };
    producers.into_iter().map(mark).collect()
}

/// The topics that are followed: those of clients that push, then the first by name.
fn chosen(all: Vec<String>, pushing: &[Pushing], shortcomings: &mut Vec<Shortcoming>) -> Vec<String> {
    let of = all.len();
    let is_named = |name: &String| pushing.iter().any(|one| one.topics.contains_key(name));
    let (mut names, others): (Vec<String>, Vec<String>) = all.into_iter().partition(is_named);
    names.extend(others);
    if of > TOPICS_MAX {
        let followed = TOPICS_MAX;
        shortcomings.push(Shortcoming::Topics { followed, of });
        names.truncate(TOPICS_MAX);
    }
    names
}

/// The growth of partitions over a window, and since when producer ids write.
#[derive(Debug, Default)]
pub(super) struct Writers {
    since: BTreeMap<(Arc<str>, i64), i64>,
}

impl Writers {
    /// Returns what the cluster says of each producer that pushes, and of topics with others.
    pub(super) fn take(
        &mut self,
        reading: &ClusterReading,
        earlier: &VecDeque<ClusterReading>,
        pushing: &[Pushing],
    ) -> Vec<Observed> {
        self.note(reading, earlier);
        let growth = growth(reading, earlier);
        let mut observed: Vec<Observed> = producers(pushing)
            .filter_map(|one| complement(reading, &growth, one))
            .collect();
        let mut silent: Vec<SilentWriters> = self.silent(reading, pushing).collect();
        silent.sort_by(|one, other| other.count.total_cmp(&one.count));
        silent.truncate(LISTED_MAX);
        let host = host(reading, earlier);
        observed.extend(silent.into_iter().map(|writers| listed(reading, host, writers)));
        observed
    }

    /// Keeps the ids that have written since the reading before.
    fn note(&mut self, reading: &ClusterReading, earlier: &VecDeque<ClusterReading>) {
        let mut active = BTreeSet::new();
        for (partition, producers) in &reading.writing.producers {
            let described = |before: &&ClusterReading| before.writing.producers.contains_key(partition);
            let Some(before) = earlier.iter().rev().find(described) else {
                continue;
            };
            let before = &before.writing.producers[partition];
            let moved = producers.iter().filter(|(id, mark)| before.get(id) != Some(mark));
            active.extend(moved.map(|(id, _)| (partition.topic.clone(), *id)));
        }
        self.since.retain(|key, _| active.contains(key));
        for key in active {
            self.since.entry(key).or_insert(reading.at_ms);
        }
    }

    /// Topics with more producers than push.
    fn silent(
        &self,
        reading: &ClusterReading,
        pushing: &[Pushing],
    ) -> impl Iterator<Item = SilentWriters> + use<> {
        let wait_ms = SETTLED_MS.max((FIRST_PUSH * reading.push_interval_ms as f64) as i64);
        let mut by_topic: BTreeMap<Arc<str>, Vec<i64>> = BTreeMap::new();
        for ((topic, id), since_ms) in &self.since {
            if reading.at_ms - since_ms >= wait_ms || !reading.asks_for_metrics {
                by_topic.entry(topic.clone()).or_default().push(*id);
            }
        }
        let may_write = |topic: &str| {
            let writes = |one: &&Pushing| one.topics.is_empty() || one.topics.contains_key(topic);
            producers(pushing).filter(writes).count()
        };
        let silent: Vec<SilentWriters> = by_topic
            .into_iter()
            .filter_map(|(topic, ids)| {
                let of = ids.len();
                let count = of.checked_sub(may_write(&topic)).filter(|count| *count > 0)?;
                Some(SilentWriters {
                    topic: topic.to_string(),
                    count: count as f64,
                    writers: of as f64,
                    producer_ids: ids.into_iter().take(IDS_MAX).collect(),
                })
            })
            .collect();
        silent.into_iter()
    }
}

/// Records per second of each partition.
fn growth(reading: &ClusterReading, earlier: &VecDeque<ClusterReading>) -> BTreeMap<TopicPartition, f64> {
    let partitions = reading.writing.ends.keys();
    partitions
        .filter_map(|partition| Some((partition.clone(), growth_of(partition, reading, earlier)?)))
        .collect()
}

/// Records per second of a partition, since the first reading that has it.
pub(super) fn growth_of(
    partition: &TopicPartition,
    reading: &ClusterReading,
    earlier: &VecDeque<ClusterReading>,
) -> Option<f64> {
    let end = reading.writing.ends.get(partition)?;
    let (before, seconds) = earlier.iter().find_map(|before| {
        let seconds = (reading.at_ms - before.at_ms) as f64 / 1e3;
        Some((before.writing.ends.get(partition)?, seconds)).filter(|_| seconds >= 1.0)
    })?;
    Some((end - before).max(0) as f64 / seconds)
}

fn producers(pushing: &[Pushing]) -> impl Iterator<Item = &Pushing> {
    pushing.iter().filter(|one| one.is_producer())
}

/// What the cluster says of a producer that pushes: its topics and its quota.
fn complement(
    reading: &ClusterReading,
    growth: &BTreeMap<TopicPartition, f64>,
    pushing: &Pushing,
) -> Option<Observed> {
    pushing.client.instance_id.as_ref()?;
    let quota_of = |kind| reading.quotas.of(kind, pushing.user(), &pushing.client.client_id);
    let quota = quota_of("producer_byte_rate");
    let request_quota = quota_of("request_percentage");
    let of_topics = growth
        .iter()
        .filter(|(partition, rate)| **rate > 0.0 && pushing.topics.contains_key(&*partition.topic));
    let mut partitions: Vec<WrittenPartition> = of_topics
        .map(|(partition, rate)| WrittenPartition {
            topic: partition.topic.to_string(),
            partition: partition.partition,
            records_per_second: Some(*rate),
            ..WrittenPartition::default()
        })
        .collect();
    partitions.sort_by(|one, other| {
        let rate = |partition: &WrittenPartition| partition.records_per_second.unwrap_or(0.0);
        rate(other).total_cmp(&rate(one))
    });
    let all: f64 = partitions
        .iter()
        .filter_map(|partition| partition.records_per_second)
        .sum();
    let own: f64 = pushing.topics.values().sum();
    let count = partitions.len();
    partitions.truncate(HEAVIEST);
    let sockets = reading.seldom.sockets;
    let is_any = quota.is_some() || request_quota.is_some() || !sockets.is_unknown();
    (count > 0 || is_any).then(|| Observed {
        client: Client {
            client_id: pushing.client.client_id.clone(),
            instance_id: pushing.client.instance_id.clone(),
            role: Role::Producer,
            ..Client::default()
        },
        is_complement: true,
        cluster: Some(ClusterSide {
            partitions,
            partitions_written: (count > 0).then_some(count as f64),
            records_per_second: (count > 0).then_some(all),
            is_alone: own >= ALONE * all,
            quota_bytes_per_second: quota,
            quota_request_share: request_quota.map(|percent| percent / 100.0),
            sockets,
            record_bytes: None,
            silent: None,
        }),
        ..Observed::default()
    })
}

/// The name under which the producers of a topic are listed that push nothing: their own are not
/// told.
pub fn silent_name(topic: &str) -> String {
    format!("producers of {topic} that push nothing")
}

/// The brokers' machine over the window.
fn host(reading: &ClusterReading, earlier: &VecDeque<ClusterReading>) -> Option<Host> {
    let mut known = earlier
        .iter()
        .filter_map(|before| Some((before.at_ms, before.host.as_ref()?)));
    host_between(known.next()?, (reading.at_ms, reading.host.as_ref()?))
}

fn listed(reading: &ClusterReading, host: Option<Host>, writers: SilentWriters) -> Observed {
    Observed {
        broker: BrokerSide {
            host,
            ..BrokerSide::default()
        },
        client: Client {
            client_id: silent_name(&writers.topic),
            role: Role::Producer,
            ..Client::default()
        },
        is_off_at_broker: !reading.asks_for_metrics,
        cluster: Some(ClusterSide {
            silent: Some(writers),
            ..ClusterSide::default()
        }),
        ..Observed::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::quotas::Quotas;
    use super::*;

    const TOPIC: &str = "orders";

    /// A partition, its end, and the last sequence of each producer id.
    type Partition<'a> = (i32, i64, &'a [(i64, i32)]);

    fn reading(at_ms: i64, partitions: &[Partition<'_>]) -> ClusterReading {
        let mut writing = Writing::default();
        for (index, end, ids) in partitions {
            let partition = TopicPartition::new(TOPIC, *index);
            writing.ends.insert(partition.clone(), *end);
            let marks = ids.iter().map(|(id, sequence)| (*id, (*sequence, 0)));
            writing.producers.insert(partition, marks.collect());
        }
        ClusterReading {
            at_ms,
            asks_for_metrics: true,
            push_interval_ms: 1_000,
            writing,
            ..ClusterReading::default()
        }
    }

    fn pushing(rate: Option<f64>) -> Pushing {
        Pushing {
            client: Client {
                client_id: "p".to_owned(),
                instance_id: Some("i".to_owned()),
                principal: Some("User:alice".to_owned()),
                ..Client::default()
            },
            topics: rate.map(|rate| (TOPIC.to_owned(), rate)).into_iter().collect(),
        }
    }

    /// Two producers write without a pause.
    fn two_writers(pushing: &[Pushing], seconds: i64) -> Option<SilentWriters> {
        let (mut writers, mut earlier) = (Writers::default(), VecDeque::new());
        let mut last = Vec::new();
        for second in (0..=seconds).step_by(10) {
            let sequence = second as i32;
            // One whose record is a day old.
            let ids = [(7, sequence), (8, sequence), (9, 5)];
            let now = reading(1_000 * second, &[(0, 100 * second, &ids)]);
            last = writers.take(&now, &earlier, pushing);
            earlier.push_back(now);
        }
        let mut silent = last.into_iter().filter_map(|observed| observed.cluster?.silent);
        silent.next_back()
    }

    #[test]
    fn producers_beyond_those_that_push_are_listed_by_topic() {
        let silent = two_writers(&[], 60).expect("they push nothing");
        assert_eq!((silent.count, silent.writers), (2.0, 2.0));
        assert_eq!((&*silent.topic, &silent.producer_ids[..]), (TOPIC, &[7, 8][..]));
        let one = two_writers(&[pushing(Some(50.0))], 60).expect("one pushes");
        assert_eq!((one.count, one.writers), (1.0, 2.0));
        // One that names no topic may be the other.
        assert_eq!(two_writers(&[pushing(Some(50.0)), pushing(None)], 60), None);
        // Their first push may be under way.
        assert_eq!(two_writers(&[], 20), None);
    }

    #[test]
    fn producers_that_push_nothing_have_the_use_of_their_brokers_machine() {
        use crate::machine::host::HostCounts;
        let (mut writers, mut earlier) = (Writers::default(), VecDeque::new());
        let mut last = Vec::new();
        for second in (0..=40).step_by(10) {
            let mut now = reading(1_000 * second, &[(0, 100 * second, &[(7, second as i32)])]);
            now.host = Some(HostCounts {
                processors: 2,
                busy: 196 * second as u64,
                idle: 4 * second as u64,
                stolen: 0,
                waiting_micros: Some(600_000 * second as u64),
            });
            last = writers.take(&now, &earlier, &[]);
            earlier.push_back(now);
        }
        let host = last[0].broker.host.expect("the machine is known");
        assert_eq!((host.used, host.waiting), (Some(0.98), Some(0.6)));
    }

    #[test]
    fn a_producer_that_pushes_is_told_its_partitions_and_its_quota() {
        let earlier = VecDeque::from([reading(0, &[(0, 0, &[]), (1, 0, &[]), (2, 50, &[])])]);
        let mut now = reading(10_000, &[(0, 900, &[]), (1, 100, &[]), (2, 50, &[])]);
        let entity = |kind: &str, name| BTreeMap::from([(kind.to_owned(), name)]);
        let limits = |kind: &str, limit| BTreeMap::from([(kind.to_owned(), limit)]);
        now.quotas = Quotas::new(BTreeMap::from([
            (entity("client-id", None), limits("producer_byte_rate", 5e5)),
            (
                entity("user", Some("alice".to_owned())),
                limits("request_percentage", 1.0),
            ),
        ]));
        let told = |pushing: Pushing| {
            let observed = Writers::default().take(&now, &earlier, &[pushing]);
            let one = observed.into_iter().next().expect("one");
            assert!(one.is_complement);
            one.cluster.expect("the cluster's numbers")
        };
        let alone = told(pushing(Some(98.0)));
        let heaviest = &alone.partitions[0];
        assert_eq!(
            (
                heaviest.partition,
                heaviest.records_per_second,
                heaviest.bytes_per_second
            ),
            (0, Some(90.0), None)
        );
        assert_eq!(
            (alone.partitions_written, alone.records_per_second),
            (Some(2.0), Some(100.0))
        );
        assert_eq!((alone.is_alone, alone.quota_bytes_per_second), (true, Some(5e5)));
        assert_eq!(alone.quota_request_share, Some(0.01));
        assert!(!told(pushing(Some(40.0))).is_alone);
        assert_eq!(told(pushing(None)).partitions, []);
    }

    #[test]
    fn topics_of_clients_that_push_come_first() {
        let all: Vec<String> = (0..600).map(|number| format!("t{number:03}")).collect();
        let mut one = pushing(None);
        one.topics = [("t599".to_owned(), 1.0)].into();
        let mut shortcomings = Vec::new();
        let names = chosen(all, &[one], &mut shortcomings);
        assert_eq!((names.len(), &*names[0], &*names[1]), (500, "t599", "t000"));
        assert!(
            shortcomings[0].to_string().starts_with("500 of 600 topics "),
            "{}",
            shortcomings[0]
        );
    }
}
