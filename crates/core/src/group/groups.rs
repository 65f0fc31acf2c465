//! All groups of a broker: finds the coordinator of a group, and calls coordinators at their
//! deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Waker;

use ottla_log::Ticket;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::control::TransactionMarker;

use crate::access::granted::GrantedGroup;
use crate::config::NodeConfig;
use crate::partition::{Appended, Partition};
use crate::random::Random;
use crate::services::Services;
use crate::storage::Storage;
use crate::time::Moment;

use super::calls::Call;
use super::config::GroupConfig;
use super::coordinator::{Coordinator, Readiness};
use super::held::Spread;
use super::overview::{CommittedOverview, GroupOverview, GroupReading};
use super::progress::{OffsetRoom, Progress};
use super::request::{GroupRequest, OffsetCommitRequest};

pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Committed offsets of one reading of all groups: 4 MiB.
const READ_OFFSETS_MAX: usize = 65_536;

pub struct Groups {
    config: Arc<GroupConfig>,
    codec: Codec,
    /// Source of member ids.
    random: Arc<Random>,
    /// Indexed by partition of the offsets topic.
    coordinators: RwLock<BTreeMap<i32, Arc<Coordinator>>>,
}

impl Groups {
    pub fn new(config: &NodeConfig) -> Groups {
        let codec = i16::try_from(config.offsets_topic.compression_codec)
            .ok()
            .and_then(Codec::from_id);
        Groups {
            config: Arc::new(GroupConfig::of(&config.group)),
            codec: codec.unwrap_or(Codec::None),
            // Other users of the seed must not draw the same numbers.
            random: Arc::new(Random::new(
                config.seed.map(|part| part.rotate_left(17) ^ 0x67726f757073),
            )),
            coordinators: RwLock::default(),
        }
    }

    pub(crate) fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// Starts to load every coordinator, so that sessions of known members run and offsets of idle
    /// groups expire.
    pub fn start(&self, storage: &Storage) {
        for coordinator in self.all(storage) {
            coordinator.load(storage, None);
        }
    }

    /// Sends a request to the coordinator of a group.
    pub(crate) fn call(
        &self,
        storage: &Storage,
        granted: GrantedGroup<'_>,
        request: GroupRequest<'_>,
    ) -> Call {
        let group_id = granted.name();
        match self.coordinator_of(storage, group_id) {
            Some(coordinator) => self.call_coordinator(storage, &coordinator, group_id, request),
            None => Call::answered(Err(ErrorCode::CoordinatorNotAvailable)),
        }
    }

    /// Sends a request to every coordinator.
    pub(crate) fn call_all(&self, storage: &Storage, request: &GroupRequest<'_>) -> Vec<Call> {
        let call =
            |coordinator: &Arc<Coordinator>| self.call_coordinator(storage, coordinator, "", request.clone());
        self.all(storage).iter().map(call).collect()
    }

    fn call_coordinator(
        &self,
        storage: &Storage,
        coordinator: &Arc<Coordinator>,
        group_id: &str,
        request: GroupRequest<'_>,
    ) -> Call {
        let submitted = coordinator.submit(storage, request);
        Call::new(
            &storage.services,
            coordinator,
            group_id,
            submitted,
            self.config.offset_commit_timeout_ms,
        )
    }

    /// Whether the coordinator of `group_id` can take requests; if not, loads it and wakes `waker`
    /// then.
    pub(crate) fn prepare(&self, storage: &Storage, group_id: &str, waker: &Waker) -> Preparation {
        match self.coordinator_of(storage, group_id) {
            None => Preparation::NoTopic,
            Some(coordinator) => match coordinator.load(storage, Some(waker)) {
                Readiness::Ready => Preparation::Ready,
                Readiness::Loading => Preparation::Loading,
                Readiness::Failed => Preparation::Failed,
            },
        }
    }

    /// Commits offsets in a producer's transaction: see `Coordinator::commit_in_transaction`.
    pub(crate) fn commit_in_transaction(
        &self,
        storage: &Storage,
        granted: GrantedGroup<'_>,
        commit: OffsetCommitRequest<'_>,
        producer: (i64, i16),
        ticket: Ticket,
    ) -> Call {
        let group_id = granted.name();
        let Some(coordinator) = self.coordinator_of(storage, group_id) else {
            return Call::answered(Err(ErrorCode::CoordinatorNotAvailable));
        };
        let submitted = coordinator.commit_in_transaction(storage, commit, producer, ticket);
        let timeout_ms = self.config.offset_commit_timeout_ms;
        Call::new(&storage.services, &coordinator, group_id, submitted, timeout_ms)
    }

    /// Returns the partition of the offsets topic that holds a group; `None`: there is no such
    /// topic.
    pub(crate) fn partition_of(&self, storage: &Storage, granted: GrantedGroup<'_>) -> Option<i32> {
        let topic = offsets_topic(storage)?;
        Some(partition_for(granted.name(), topic.partition_count))
    }

    /// Ends a producer's transaction in a partition of the offsets topic: see
    /// `Coordinator::complete_transaction`.
    pub(crate) fn complete_transaction(
        &self,
        storage: &Storage,
        partition_index: i32,
        marker: TransactionMarker,
        transaction_version: i8,
    ) -> Result<(Arc<Partition>, Appended), ErrorCode> {
        let topic = offsets_topic(storage).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !(0..topic.partition_count).contains(&partition_index) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        self.coordinator(&topic, partition_index)
            .complete_transaction(storage, marker, transaction_version)
    }

    /// Removes the offsets of deleted topics.
    pub fn on_topics_deleted(&self, services: &Services, topics: &[(&str, Uuid)]) {
        for coordinator in self.loaded() {
            coordinator.act(services, |machine, now| machine.on_topics_deleted(now, topics));
        }
    }

    /// Returns overviews of all consumer groups that have members, or recently had.
    pub fn overview(&self, storage: &Storage) -> Vec<GroupOverview> {
        let image = storage.image();
        let partitions_of = |topic: &str| image.topic(topic).map_or(0, |topic| topic.partitions.len());
        let mut overviews: Vec<GroupOverview> = self
            .loaded()
            .iter()
            .flat_map(|coordinator| coordinator.overview(&partitions_of))
            .collect();
        for overview in &mut overviews {
            look_up_ends(storage, &mut overview.committed);
        }
        overviews
    }

    /// Returns how far all groups have committed.
    ///
    /// - `offsets_max`: of all groups; others are only counted.
    pub fn progress(&self, offsets_max: usize) -> Progress {
        let mut progress = Progress::default();
        let mut room = OffsetRoom(offsets_max);
        for coordinator in self.loaded() {
            coordinator.add_progress(&mut progress, &mut room);
        }
        progress
    }

    /// Returns how the partitions of each group with members are spread over them.
    pub fn spreads(&self, storage: &Storage) -> BTreeMap<Arc<str>, Spread> {
        let image = storage.image();
        let mut spreads = BTreeMap::new();
        for coordinator in self.loaded() {
            coordinator.add_spreads(&image.topics, &mut spreads);
        }
        spreads
    }

    /// Returns readings of all consumer groups, also of those without members: what they have
    /// committed stays until it expires, and their lag grows.
    pub fn readings(&self, storage: &Storage) -> Vec<GroupReading> {
        let image = storage.image();
        let mut rest = READ_OFFSETS_MAX;
        let mut readings: Vec<GroupReading> = self
            .loaded()
            .iter()
            .flat_map(|coordinator| coordinator.readings(&image.topics, &mut rest))
            .collect();
        for reading in &mut readings {
            look_up_ends(storage, &mut reading.overview.committed);
        }
        readings
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        let coordinators = self.coordinators.read().unwrap_or_else(PoisonError::into_inner);
        coordinators
            .values()
            .filter_map(|coordinator| coordinator.deadline())
            .min()
    }

    pub fn on_deadline(&self, services: &Services, now: Moment) {
        for coordinator in self.loaded() {
            if coordinator.deadline().is_some_and(|deadline| deadline <= now) {
                coordinator.on_deadline(services);
            }
        }
    }

    /// Handles members whose connections were closed, and reloads failed coordinators. Call about
    /// once a second.
    pub fn maintain(&self, storage: &Storage) {
        for coordinator in self.all(storage) {
            coordinator.load(storage, None);
            coordinator.settle_abandoned(&storage.services);
        }
    }

    /// Has every machine dropped, by a panic under its lock, as by a bug.
    #[cfg(test)]
    pub(crate) fn crash(&self, services: &Services) {
        for coordinator in self.loaded() {
            let crash = || coordinator.act(services, |_, _| panic!("a bug in a machine"));
            let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(crash));
            assert!(crashed.is_err(), "it was not loaded");
        }
    }

    fn coordinator_of(&self, storage: &Storage, group_id: &str) -> Option<Arc<Coordinator>> {
        let topic = offsets_topic(storage)?;
        Some(self.coordinator(&topic, partition_for(group_id, topic.partition_count)))
    }

    fn all(&self, storage: &Storage) -> Vec<Arc<Coordinator>> {
        let Some(topic) = offsets_topic(storage) else {
            return Vec::new();
        };
        (0..topic.partition_count)
            .map(|index| self.coordinator(&topic, index))
            .collect()
    }

    fn loaded(&self) -> Vec<Arc<Coordinator>> {
        self.coordinators
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// Returns the coordinator of a partition. A topic that was deleted and created again has new
    /// coordinators.
    fn coordinator(&self, topic: &OffsetsTopic, partition_index: i32) -> Arc<Coordinator> {
        let is_current = |known: &&Arc<Coordinator>| known.topic_id == topic.topic_id;
        {
            let coordinators = self.coordinators.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = coordinators.get(&partition_index).filter(is_current) {
                return known.clone();
            }
        }
        let mut coordinators = self.coordinators.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = coordinators.get(&partition_index).filter(is_current) {
            return known.clone();
        }
        let config = GroupConfig {
            batch_bytes_max: topic.batch_bytes_max,
            ..(*self.config).clone()
        };
        let coordinator = Coordinator::new(
            topic.topic_id,
            partition_index,
            Arc::new(config),
            self.codec,
            self.random.clone(),
        );
        let coordinator = Arc::new(coordinator);
        coordinators.insert(partition_index, coordinator.clone());
        coordinator
    }
}

/// What a client has to wait for before its coordinator can take requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    Ready,
    Loading,
    NoTopic,
    Failed,
}

/// The facts about its topic that a coordinator needs.
struct OffsetsTopic {
    topic_id: Uuid,
    /// At least 1.
    partition_count: i32,
    batch_bytes_max: usize,
}

/// Sets the ends of partitions, and removes those that are deleted.
fn look_up_ends(storage: &Storage, committed: &mut Vec<CommittedOverview>) {
    committed.retain_mut(|committed| {
        let partition = storage.partition_by_name(&committed.topic, committed.partition);
        partition.is_ok_and(|partition| {
            committed.end = partition.high_watermark();
            true
        })
    });
}

fn offsets_topic(storage: &Storage) -> Option<OffsetsTopic> {
    let image = storage.image();
    let topic = image.topic(OFFSETS_TOPIC)?;
    Some(OffsetsTopic {
        topic_id: topic.id,
        partition_count: i32::try_from(topic.partitions.len())
            .ok()
            .filter(|count| *count > 0)?,
        batch_bytes_max: usize::try_from(topic.config.max_message_bytes).unwrap_or(0),
    })
}

/// Java's `String.hashCode`, made non-negative as by Apache Kafka's `Utils.abs`, modulo the number
/// of partitions.
pub fn partition_for(group_id: &str, partition_count: i32) -> i32 {
    let hash = group_id.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    let positive = if hash == i32::MIN { 0 } else { hash.abs() };
    positive % partition_count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(group_id: &str, hash: i32) {
        let positive = i64::from(hash).abs();
        assert_eq!(
            i64::from(partition_for(group_id, 50)),
            positive % 50,
            "{group_id}"
        );
    }

    #[test]
    fn a_group_maps_to_the_same_partition_as_in_java() {
        // Values of String.hashCode from a JVM.
        check("", 0);
        check("g", 103);
        check("console-consumer-12345", 158_455_506);
        check("grüße-😀", 347_391_577);
    }

    #[test]
    fn the_hash_without_a_positive_counterpart_counts_as_zero() {
        // "polygenelubricants" hashes to i32::MIN.
        assert_eq!(partition_for("polygenelubricants", 50), 0);
    }
}
