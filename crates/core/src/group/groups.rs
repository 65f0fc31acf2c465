//! All groups of a broker: finds the coordinator of a group, and calls coordinators at their
//! deadlines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use ottla_log::Ticket;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::control::TransactionMarker;

use crate::access::granted::GrantedGroup;
use crate::config::NodeConfig;
use crate::coordinator::registry::{Preparation, Registry, partition_for};
use crate::coordinator::runtime::Submitted;
use crate::partition::{Appended, Partition};
use crate::random::Random;
use crate::services::Services;
use crate::storage::Storage;
use crate::time::Moment;

use super::config::GroupConfig;
use super::coordinator::{Call, Coordinator, OfGroups};
use super::held::Spread;
use super::overview::{CommittedOverview, GroupOverview, GroupReading};
use super::progress::{OffsetRoom, Progress};
use super::reply::GroupReply;
use super::request::{GroupRequest, OffsetCommitRequest};

pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Committed offsets of one reading of all groups: 4 MiB.
const READ_OFFSETS_MAX: usize = 65_536;

pub struct Groups {
    config: Arc<GroupConfig>,
    registry: Registry<OfGroups>,
}

impl Groups {
    pub fn new(config: &NodeConfig) -> Groups {
        let codec = i16::try_from(config.offsets_topic.compression_codec)
            .ok()
            .and_then(Codec::from_id);
        // Other users of the seed must not draw the same numbers.
        let seed = config.seed.map(|part| part.rotate_left(17) ^ 0x67726f757073);
        let random = Arc::new(Random::new(seed));
        let config = Arc::new(GroupConfig::of(&config.group));
        let of_all = config.clone();
        let registry = Registry::new(move |topic| OfGroups {
            config: Arc::new(GroupConfig {
                batch_bytes_max: topic.batch_bytes_max,
                ..(*of_all).clone()
            }),
            codec: codec.unwrap_or(Codec::None),
            random: random.clone(),
        });
        Groups { config, registry }
    }

    pub(crate) fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// Starts to load every coordinator, so that sessions of known members run and offsets of idle
    /// groups expire.
    pub fn start(&self, storage: &Storage) {
        self.registry.load_all(storage);
    }

    /// Sends a request to the coordinator of a group.
    pub(crate) fn call(
        &self,
        storage: &Storage,
        granted: GrantedGroup<'_>,
        request: GroupRequest<'_>,
    ) -> Call {
        let group_id = granted.name();
        match self.registry.of(storage, group_id) {
            Some(coordinator) => self.call_coordinator(storage, &coordinator, group_id, request),
            None => Call::answered(Err(ErrorCode::CoordinatorNotAvailable)),
        }
    }

    /// Sends a request to every coordinator.
    pub(crate) fn call_all(&self, storage: &Storage, request: &GroupRequest<'_>) -> Vec<Call> {
        let call =
            |coordinator: &Arc<Coordinator>| self.call_coordinator(storage, coordinator, "", request.clone());
        self.registry.all(storage).iter().map(call).collect()
    }

    fn call_coordinator(
        &self,
        storage: &Storage,
        coordinator: &Arc<Coordinator>,
        group_id: &str,
        request: GroupRequest<'_>,
    ) -> Call {
        let submitted = coordinator.ask(storage, request);
        self.call_of(&storage.services, coordinator, group_id, submitted)
    }

    /// Whether the coordinator of `group_id` can take requests; if not, loads it and wakes `waker`
    /// then.
    pub(crate) fn prepare(&self, storage: &Storage, group_id: &str, waker: &Waker) -> Preparation {
        self.registry.prepare(storage, group_id, waker)
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
        let Some(coordinator) = self.registry.of(storage, group_id) else {
            return Call::answered(Err(ErrorCode::CoordinatorNotAvailable));
        };
        let submitted = coordinator.commit_in_transaction(storage, commit, producer, ticket);
        self.call_of(&storage.services, &coordinator, group_id, submitted)
    }

    fn call_of(
        &self,
        services: &Services,
        coordinator: &Arc<Coordinator>,
        group_id: &str,
        submitted: Submitted<GroupReply>,
    ) -> Call {
        let timeout_ms = self.config.offset_commit_timeout_ms;
        Call::new(
            services,
            coordinator,
            || group_id.to_owned(),
            submitted,
            timeout_ms,
        )
    }

    /// Returns the partition of the offsets topic that holds a group; `None`: there is no such
    /// topic.
    pub(crate) fn partition_of(&self, storage: &Storage, granted: GrantedGroup<'_>) -> Option<i32> {
        let topic = Registry::<OfGroups>::topic(storage)?;
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
        let topic = Registry::<OfGroups>::topic(storage).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !(0..topic.partition_count).contains(&partition_index) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        self.registry
            .get(&topic, partition_index)
            .complete_transaction(storage, marker, transaction_version)
    }

    /// Removes the offsets of deleted topics.
    pub fn on_topics_deleted(&self, services: &Services, topics: &[(&str, Uuid)]) {
        for coordinator in self.registry.known() {
            coordinator.act(services, (), |machine, now| {
                machine.on_topics_deleted(now, topics)
            });
        }
    }

    /// Returns overviews of all consumer groups that have members, or recently had.
    pub fn overview(&self, storage: &Storage) -> Vec<GroupOverview> {
        let image = storage.image();
        let partitions_of = |topic: &str| image.topic(topic).map_or(0, |topic| topic.partitions.len());
        let mut overviews: Vec<GroupOverview> = self
            .registry
            .known()
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
        for coordinator in self.registry.known() {
            coordinator.add_progress(&mut progress, &mut room);
        }
        progress
    }

    /// Returns how the partitions of each group with members are spread over them.
    pub fn spreads(&self, storage: &Storage) -> BTreeMap<Arc<str>, Spread> {
        let image = storage.image();
        let mut spreads = BTreeMap::new();
        for coordinator in self.registry.known() {
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
            .registry
            .known()
            .iter()
            .flat_map(|coordinator| coordinator.readings(&image.topics, &mut rest))
            .collect();
        for reading in &mut readings {
            look_up_ends(storage, &mut reading.overview.committed);
        }
        readings
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.registry.next_deadline()
    }

    pub fn on_deadline(&self, services: &Services, now: Moment) {
        for coordinator in self.registry.known() {
            if coordinator.deadline().is_some_and(|deadline| deadline <= now) {
                coordinator.act(services, (), |machine, now| machine.on_deadline(now));
            }
        }
    }

    /// Handles members whose connections were closed, and reloads failed coordinators. Call about
    /// once a second.
    pub fn maintain(&self, storage: &Storage) {
        self.registry.maintain(storage);
    }

    /// Has every machine dropped, by a panic under its lock, as by a bug.
    #[cfg(test)]
    pub(crate) fn crash(&self, services: &Services) {
        for coordinator in self.registry.known() {
            let crash = || coordinator.act(services, (), |_, _| panic!("a bug in a machine"));
            let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(crash));
            assert!(crashed.is_err(), "it was not loaded");
        }
    }
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
