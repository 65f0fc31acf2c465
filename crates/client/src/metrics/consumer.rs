//! Metrics of the consumer's polls, fetches, positions and group membership.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::network::NetworkMetrics;
use super::sensor::{ClientKind, Family, Group, Metric, Tags, sensors};
use super::window::WindowSettings;
use crate::time::{Clock, Moment, SystemClock};

/// At most this many topics have metrics of their own; further ones count only into the client's.
const TOPICS_MAX: usize = 1000;

/// At most this many partitions have metrics of their own; further ones count only into the
/// client's.
const PARTITIONS_MAX: usize = 10_000;

const MS_PER_NANO: f64 = 1e-6;

sensors! {
    CLIENT: Group::Client, enum ClientSensor {
        LastPoll {
            "last-poll-seconds-ago" Now "Seconds since poll was last called; -1 before the first call.",
        }
        TimeBetweenPolls {
            "time-between-poll-avg" Avg "Mean time from one call of poll to the next in milliseconds.",
            "time-between-poll-max" Max "Longest time from one call of poll to the next in milliseconds.",
        }
        PollIdle {
            "poll-idle-ratio-avg" Avg "Mean share of time in poll, where the divisor counts that time twice as Kafka does: an idle consumer shows 0.5.",
        }
        CommitSync {
            "commit-sync-time-ns-total" Total "Time spent in synchronous commits, in nanoseconds.",
        }
        Committed {
            "committed-time-ns-total" Total "Time spent in asking for committed offsets, in nanoseconds.",
        }
    }
}

sensors! {
    FETCH: Group::Fetch, enum FetchSensor {
        Latency {
            "fetch-latency-avg" Avg "Mean time from a fetch request to its answer in milliseconds.",
            "fetch-latency-max" Max "Longest time from a fetch request to its answer in milliseconds.",
            "fetch-rate" CountRate "Fetch requests answered per second.",
            "fetch-total" CountTotal "Fetch requests answered.",
        }
        Throttle {
            "fetch-throttle-time-avg" Avg "Mean time by which a broker's quota delayed a fetch, in milliseconds.",
            "fetch-throttle-time-max" Max "Longest time by which a broker's quota delayed a fetch, in milliseconds.",
        }
        Bytes {
            "fetch-size-avg" Avg "Mean bytes of records in a fetch.",
            "fetch-size-max" Max "Most bytes of records in a fetch.",
            "bytes-consumed-rate" Rate "Bytes of records consumed per second.",
            "bytes-consumed-total" Total "Bytes of records consumed.",
        }
        Records {
            "records-per-request-avg" Avg "Mean number of records in a fetch.",
            "records-consumed-rate" Rate "Records consumed per second.",
            "records-consumed-total" Total "Records consumed.",
        }
        Lag {
            "records-lag-max" Max "Largest lag of any partition, in records.",
        }
        Lead {
            "records-lead-min" Min "Smallest lead of any partition, in records: how far the consumer is from what retention deletes.",
        }
    }
}

sensors! {
    TOPIC: Group::FetchTopic, enum TopicSensor {
        Bytes {
            "fetch-size-avg" Avg "Mean bytes of this topic's records in a fetch.",
            "fetch-size-max" Max "Most bytes of this topic's records in a fetch.",
            "bytes-consumed-rate" Rate "Bytes of this topic's records consumed per second.",
            "bytes-consumed-total" Total "Bytes of this topic's records consumed.",
        }
        Records {
            "records-per-request-avg" Avg "Mean number of this topic's records in a fetch.",
            "records-consumed-rate" Rate "Records of this topic consumed per second.",
            "records-consumed-total" Total "Records of this topic consumed.",
        }
    }
}

sensors! {
    PARTITION: Group::FetchPartition, enum PartitionSensor {
        Lag {
            "records-lag" Now "Records between the position and the partition's end.",
            "records-lag-avg" Avg "Mean lag in records.",
            "records-lag-max" Max "Largest lag in records.",
        }
        Lead {
            "records-lead" Now "Records between the partition's start and the position.",
            "records-lead-avg" Avg "Mean lead in records.",
            "records-lead-min" Min "Smallest lead in records.",
        }
        PreferredReadReplica {
            "preferred-read-replica" Now "The broker that the leader sends this consumer to; -1: none.",
        }
    }
}

sensors! {
    COORDINATOR: Group::Coordinator, enum CoordinatorSensor {
        AssignedPartitions {
            "assigned-partitions" Now "Partitions assigned now.",
        }
        Commit {
            "commit-latency-avg" Avg "Mean time of a commit request in milliseconds.",
            "commit-latency-max" Max "Longest time of a commit request in milliseconds.",
            "commit-rate" CountRate "Commit requests per second.",
            "commit-total" CountTotal "Commit requests.",
        }
        HeartbeatSent {
            "heartbeat-rate" CountRate "Heartbeats per second.",
            "heartbeat-total" CountTotal "Heartbeats.",
        }
        HeartbeatAnswered {
            "heartbeat-response-time-max" Max "Longest time from a heartbeat to its answer in milliseconds.",
        }
        LastHeartbeat {
            "last-heartbeat-seconds-ago" Now "Seconds since the last heartbeat was sent; -1 before the first.",
        }
        Join {
            "join-time-avg" Avg "Mean time of a JoinGroup in milliseconds.",
            "join-time-max" Max "Longest time of a JoinGroup in milliseconds.",
            "join-rate" CountRate "JoinGroups per second.",
            "join-total" CountTotal "JoinGroups.",
        }
        Sync {
            "sync-time-avg" Avg "Mean time of a SyncGroup in milliseconds.",
            "sync-time-max" Max "Longest time of a SyncGroup in milliseconds.",
            "sync-rate" CountRate "SyncGroups per second.",
            "sync-total" CountTotal "SyncGroups.",
        }
        Rebalance {
            "rebalance-latency-avg" Avg "Mean time of a rebalance, its failed attempts included, in milliseconds.",
            "rebalance-latency-max" Max "Longest time of a rebalance in milliseconds.",
            "rebalance-latency-total" Total "Time spent in rebalances, in milliseconds.",
            "rebalance-total" CountTotal "Rebalances.",
            "rebalance-rate-per-hour" CountRatePerHour "Rebalances per hour.",
        }
        RebalanceFailed {
            "failed-rebalance-total" CountTotal "Rebalance attempts that failed.",
            "failed-rebalance-rate-per-hour" CountRatePerHour "Rebalance attempts per hour that failed.",
        }
        LastRebalance {
            "last-rebalance-seconds-ago" Now "Seconds since the last rebalance ended; -1 before the first.",
        }
        Assigned {
            "partition-assigned-latency-avg" Avg "Mean time of the callback for assigned partitions in milliseconds.",
            "partition-assigned-latency-max" Max "Longest time of the callback for assigned partitions in milliseconds.",
        }
        Revoked {
            "partition-revoked-latency-avg" Avg "Mean time of the callback for revoked partitions in milliseconds.",
            "partition-revoked-latency-max" Max "Longest time of the callback for revoked partitions in milliseconds.",
        }
        Lost {
            "partition-lost-latency-avg" Avg "Mean time of the callback for lost partitions in milliseconds.",
            "partition-lost-latency-max" Max "Longest time of the callback for lost partitions in milliseconds.",
        }
    }
}

/// Which of the application's callbacks ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceCallback {
    Assigned,
    Revoked,
    Lost,
}

/// Metrics of the consumer's polls, fetches, positions and group membership. Nanoseconds and bytes
/// throughout.
///
/// One lock; nothing here happens more often than once per poll, request, or partition of a fetch.
#[derive(Debug)]
pub struct ConsumerMetrics {
    settings: WindowSettings,
    clock: Arc<dyn Clock>,
    network: OnceLock<Arc<NetworkMetrics>>,
    state: Mutex<ConsumerSensors>,
}

#[derive(Debug)]
struct ConsumerSensors {
    client: Family,
    fetch: Family,
    coordinator: Family,
    topics: BTreeMap<Arc<str>, Family>,
    partitions: BTreeMap<(Arc<str>, i32), Family>,
    poll: Poll,
    last_heartbeat: Option<Moment>,
    last_rebalance: Option<Moment>,
    member_id: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Poll {
    started_at: Option<Moment>,
    nanos_since_previous: u64,
}

impl Default for ConsumerMetrics {
    fn default() -> ConsumerMetrics {
        ConsumerMetrics::new(WindowSettings::default(), Arc::new(SystemClock::default()))
    }
}

impl ConsumerMetrics {
    pub fn new(settings: WindowSettings, clock: Arc<dyn Clock>) -> ConsumerMetrics {
        ConsumerMetrics {
            settings,
            clock,
            network: OnceLock::new(),
            state: Mutex::new(ConsumerSensors {
                client: Family::new(&CLIENT),
                fetch: Family::new(&FETCH),
                coordinator: Family::new(&COORDINATOR),
                topics: BTreeMap::new(),
                partitions: BTreeMap::new(),
                poll: Poll::default(),
                last_heartbeat: None,
                last_rebalance: None,
                member_id: None,
            }),
        }
    }

    pub(super) fn join_network(&self, network: Arc<NetworkMetrics>) {
        let _ = self.network.set(network);
    }

    fn lock(&self) -> (Moment, MutexGuard<'_, ConsumerSensors>) {
        let now = self.clock.moment();
        (now, self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The application called `poll`.
    pub fn poll_started(&self) {
        let (now, mut state) = self.lock();
        // In Kafka the first poll counts as 0 ms after the previous one.
        state.poll.nanos_since_previous = state.poll.started_at.map_or(0, |before| now.nanos_since(before));
        state.poll.started_at = Some(now);
        let between_ms = state.poll.nanos_since_previous as f64 * MS_PER_NANO;
        state
            .client
            .record(self.settings, ms(now), ClientSensor::TimeBetweenPolls, between_ms);
    }

    /// `poll` returns.
    pub fn poll_ended(&self) {
        let (now, mut state) = self.lock();
        let poll_nanos = state
            .poll
            .started_at
            .map_or(0, |started| now.nanos_since(started));
        let both_nanos = poll_nanos.saturating_add(state.poll.nanos_since_previous);
        if both_nanos > 0 {
            let ratio = poll_nanos as f64 / both_nanos as f64;
            state
                .client
                .record(self.settings, ms(now), ClientSensor::PollIdle, ratio);
        }
    }

    pub fn commit_sync_waited(&self, nanos: u64) {
        let (now, mut state) = self.lock();
        state
            .client
            .record(self.settings, ms(now), ClientSensor::CommitSync, nanos as f64);
    }

    /// The application asked for committed offsets and waited this long.
    pub fn committed_waited(&self, nanos: u64) {
        let (now, mut state) = self.lock();
        state
            .client
            .record(self.settings, ms(now), ClientSensor::Committed, nanos as f64);
    }

    /// A fetch request was answered.
    pub fn fetch_answered(&self, node: i32, latency_nanos: u64, throttle_ms: u32) {
        let (now, mut state) = self.lock();
        let latency_ms = latency_nanos as f64 * MS_PER_NANO;
        state
            .fetch
            .record(self.settings, ms(now), FetchSensor::Latency, latency_ms);
        state.fetch.record(
            self.settings,
            ms(now),
            FetchSensor::Throttle,
            f64::from(throttle_ms),
        );
        drop(state);
        if let Some(network) = self.network.get() {
            network.request_answered(node, latency_nanos);
        }
    }

    /// All records of one fetch were handed to the application: once per fetch, over all
    /// partitions.
    pub fn fetch_consumed(&self, records: u64, bytes: u64) {
        let (now, mut state) = self.lock();
        state
            .fetch
            .record(self.settings, ms(now), FetchSensor::Bytes, bytes as f64);
        state
            .fetch
            .record(self.settings, ms(now), FetchSensor::Records, records as f64);
    }

    /// The same for one topic of the fetch.
    pub fn topic_consumed(&self, topic: &Arc<str>, records: u64, bytes: u64) {
        let (now, mut state) = self.lock();
        if let Some(family) = capped(&mut state.topics, topic.clone(), TOPICS_MAX, &TOPIC) {
            family.record(self.settings, ms(now), TopicSensor::Bytes, bytes as f64);
            family.record(self.settings, ms(now), TopicSensor::Records, records as f64);
        }
    }

    /// Records a new position. `lag` to the end (as the isolation level shows it), `lead` from the
    /// log's start.
    pub fn position_moved(&self, topic: &Arc<str>, partition: i32, lag: i64, lead: Option<i64>) {
        let (now, mut state) = self.lock();
        let (settings, now_ms) = (self.settings, ms(now));
        state.fetch.record(settings, now_ms, FetchSensor::Lag, lag as f64);
        if let Some(lead) = lead {
            state
                .fetch
                .record(settings, now_ms, FetchSensor::Lead, lead as f64);
        }
        if let Some(family) = state.partition(topic, partition) {
            family.record(settings, now_ms, PartitionSensor::Lag, lag as f64);
            if let Some(lead) = lead {
                family.record(settings, now_ms, PartitionSensor::Lead, lead as f64);
            }
        }
    }

    /// The leader directs this consumer to a follower (KIP-392); `None`: no longer.
    pub fn preferred_read_replica(&self, topic: &Arc<str>, partition: i32, node: Option<i32>) {
        let (_, mut state) = self.lock();
        if let Some(family) = state.partition(topic, partition) {
            family.set(
                PartitionSensor::PreferredReadReplica,
                f64::from(node.unwrap_or(-1)),
            );
        }
    }

    /// The assignment is now this one: metrics of other partitions are removed, as in Kafka.
    pub fn assignment_changed<'a>(&self, partitions: impl IntoIterator<Item = (&'a Arc<str>, i32)>) {
        let (_, mut state) = self.lock();
        let state = &mut *state;
        let mut old = std::mem::take(&mut state.partitions);
        for (topic, partition) in partitions {
            let key = (topic.clone(), partition);
            if let Some(family) = old.remove(&key) {
                state.partitions.insert(key, family);
            }
        }
    }

    /// The coordinator's id for this member, which receivers of pushed metrics learn.
    pub fn member_named(&self, member_id: &Arc<str>) {
        let (_, mut state) = self.lock();
        state.member_id = Some(Arc::clone(member_id));
    }

    pub(super) fn member_id(&self) -> Option<Arc<str>> {
        self.lock().1.member_id.clone()
    }

    fn coordinator(&self, sensor: CoordinatorSensor, nanos: u64) {
        let (now, mut state) = self.lock();
        state
            .coordinator
            .record(self.settings, ms(now), sensor, nanos as f64 * MS_PER_NANO);
    }

    /// A commit request was answered.
    pub fn committed(&self, latency_nanos: u64) {
        self.coordinator(CoordinatorSensor::Commit, latency_nanos);
    }

    pub fn heartbeat_sent(&self, at: Moment) {
        let (now, mut state) = self.lock();
        state.last_heartbeat = Some(at);
        state
            .coordinator
            .record(self.settings, ms(now), CoordinatorSensor::HeartbeatSent, 1.0);
    }

    pub fn heartbeat_answered(&self, latency_nanos: u64) {
        self.coordinator(CoordinatorSensor::HeartbeatAnswered, latency_nanos);
    }

    pub fn group_joined(&self, latency_nanos: u64) {
        self.coordinator(CoordinatorSensor::Join, latency_nanos);
    }

    pub fn group_synced(&self, latency_nanos: u64) {
        self.coordinator(CoordinatorSensor::Sync, latency_nanos);
    }

    /// From the first JoinGroup of the rebalance to its assignment.
    pub fn rebalanced(&self, at: Moment, nanos: u64) {
        let (now, mut state) = self.lock();
        state.last_rebalance = Some(at);
        let took_ms = nanos as f64 * MS_PER_NANO;
        state
            .coordinator
            .record(self.settings, ms(now), CoordinatorSensor::Rebalance, took_ms);
    }

    /// Of a group member, or of a consumer with a manual assignment.
    pub fn assigned_partitions(&self, partitions: usize) {
        let (_, mut state) = self.lock();
        state
            .coordinator
            .set(CoordinatorSensor::AssignedPartitions, partitions as f64);
    }

    pub fn rebalance_failed(&self) {
        self.coordinator(CoordinatorSensor::RebalanceFailed, 0);
    }

    pub fn rebalance_callback_ran(&self, callback: RebalanceCallback, nanos: u64) {
        let sensor = match callback {
            RebalanceCallback::Assigned => CoordinatorSensor::Assigned,
            RebalanceCallback::Revoked => CoordinatorSensor::Revoked,
            RebalanceCallback::Lost => CoordinatorSensor::Lost,
        };
        self.coordinator(sensor, nanos);
    }

    pub(super) fn collect(&self, client_tags: &Tags, into: &mut Vec<Metric>) {
        let (now, mut state) = self.lock();
        let state = &mut *state;
        let last_poll = seconds_since(now, state.poll.started_at);
        state.client.set(ClientSensor::LastPoll, last_poll);
        let last_heartbeat = seconds_since(now, state.last_heartbeat);
        state
            .coordinator
            .set(CoordinatorSensor::LastHeartbeat, last_heartbeat);
        let last_rebalance = seconds_since(now, state.last_rebalance);
        state
            .coordinator
            .set(CoordinatorSensor::LastRebalance, last_rebalance);
        let (settings, kind, now_ms) = (self.settings, ClientKind::Consumer, ms(now));
        for family in [&mut state.client, &mut state.fetch, &mut state.coordinator] {
            family.collect(settings, now_ms, kind, client_tags, into);
        }
        for (topic, family) in &mut state.topics {
            let tags = super::with_tags(client_tags, &[("topic", topic.clone())]);
            family.collect(settings, now_ms, kind, &tags, into);
        }
        for ((topic, partition), family) in &mut state.partitions {
            let own = [
                ("partition", partition.to_string().into()),
                ("topic", topic.clone()),
            ];
            let tags = super::with_tags(client_tags, &own);
            family.collect(settings, now_ms, kind, &tags, into);
        }
    }
}

impl ConsumerSensors {
    fn partition(&mut self, topic: &Arc<str>, partition: i32) -> Option<&mut Family> {
        let key = (topic.clone(), partition);
        let is_new = !self.partitions.contains_key(&key);
        let family = capped(&mut self.partitions, key, PARTITIONS_MAX, &PARTITION)?;
        if is_new {
            family.set(PartitionSensor::PreferredReadReplica, -1.0);
        }
        Some(family)
    }
}

/// The family under `key`, created when the limit allows one more.
fn capped<'a, K: Ord>(
    families: &'a mut BTreeMap<K, Family>,
    key: K,
    count_max: usize,
    definition: &'static super::sensor::FamilyDefinition,
) -> Option<&'a mut Family> {
    if families.len() >= count_max && !families.contains_key(&key) {
        return None;
    }
    Some(families.entry(key).or_insert_with(|| Family::new(definition)))
}

fn ms(now: Moment) -> u64 {
    now.nanos() / 1_000_000
}

/// Whole seconds, or −1 when it never happened, as in Kafka.
fn seconds_since(now: Moment, then: Option<Moment>) -> f64 {
    then.map_or(-1.0, |then| (now.ms_since(then) / 1000) as f64)
}

#[cfg(test)]
mod tests {
    use crate::metrics::registry::tests::{client, value};
    use crate::metrics::sensor::ClientKind;

    #[test]
    fn an_idle_consumer_shows_the_ratio_that_kafka_shows() {
        let (metrics, clock) = client(ClientKind::Consumer);
        assert_eq!(value(&metrics, "consumer-metrics", "last-poll-seconds-ago"), -1.0);
        clock.advance_ms(5);
        for _ in 0..3 {
            metrics.consumer().poll_started();
            clock.advance_ms(100);
            metrics.consumer().poll_ended();
        }
        // The first poll has no previous one and counts as 1, the others as 100 / (100 + 100).
        let ratio = value(&metrics, "consumer-metrics", "poll-idle-ratio-avg");
        assert!((ratio - 2.0 / 3.0).abs() < 1e-9, "{ratio}");
        assert_eq!(
            value(&metrics, "consumer-metrics", "time-between-poll-max"),
            100.0
        );
        clock.advance_ms(2950);
        assert_eq!(value(&metrics, "consumer-metrics", "last-poll-seconds-ago"), 3.0);
    }

    #[test]
    fn the_metrics_of_partitions_end_with_their_assignment() {
        let (metrics, _) = client(ClientKind::Consumer);
        let topic = "t".into();
        let consumer = metrics.consumer();
        consumer.position_moved(&topic, 0, 7, Some(3));
        consumer.position_moved(&topic, 1, 9, None);
        let lags = || {
            let metrics = metrics.snapshot();
            let lags = metrics.iter().filter(|metric| metric.name == "records-lag");
            lags.map(|metric| (metric.tag("partition").map(str::to_owned), metric.number()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lags(),
            [(Some("0".into()), Some(7.0)), (Some("1".into()), Some(9.0))]
        );
        consumer.assignment_changed([(&topic, 1)]);
        assert_eq!(lags(), [(Some("1".into()), Some(9.0))]);
    }

    #[test]
    fn a_member_is_named_to_receivers_of_pushes() {
        let (metrics, _) = client(ClientKind::Consumer);
        assert!(metrics.labels().is_empty());
        metrics.consumer().member_named(&"m-1".into());
        assert_eq!(metrics.labels(), [("group_member_id", "m-1".into())]);
    }
}
