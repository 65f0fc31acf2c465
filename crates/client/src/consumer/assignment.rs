//! The assigned partitions, with their fetched but unread data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::chunk::Chunk;
use super::group::Offsets;
use super::position::{PartitionState, Phase, Position, ResetTo};
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::config::OffsetReset;
use crate::error::Error;
use crate::time::Moment;

/// Chunks of one partition that may wait for the application: the one it reads, and the next.
pub const UNREAD_CHUNKS_MAX: u32 = 2;

/// All per-partition state. Kafka's `SubscriptionState`.
#[derive(Debug)]
pub struct Assignment {
    partitions: BTreeMap<TopicPartition, PartitionState>,
    /// In the order of arrival. Those of paused partitions keep their place.
    chunks: VecDeque<Chunk>,
    version: u64,
    changes: u64,
    has_group: bool,
    reset: OffsetReset,
}

impl Assignment {
    /// - `has_group`: positions start at committed offsets where there are any.
    pub fn new(has_group: bool, reset: OffsetReset) -> Assignment {
        Assignment {
            partitions: BTreeMap::new(),
            chunks: VecDeque::new(),
            version: 0,
            changes: 0,
            has_group,
            reset,
        }
    }

    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    pub fn contains(&self, topic_partition: &TopicPartition) -> bool {
        self.partitions.contains_key(topic_partition)
    }

    pub fn names(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.keys()
    }

    pub fn topics(&self) -> BTreeSet<Arc<str>> {
        self.partitions
            .keys()
            .map(|name| Arc::clone(&name.topic))
            .collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TopicPartition, &PartitionState)> {
        self.partitions.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut PartitionState)> {
        self.partitions.iter_mut()
    }

    pub fn get(&self, topic_partition: &TopicPartition) -> Option<&PartitionState> {
        self.partitions.get(topic_partition)
    }

    pub fn get_mut(&mut self, topic_partition: &TopicPartition) -> Option<&mut PartitionState> {
        self.partitions.get_mut(topic_partition)
    }

    /// Returns the state if its version is still this one.
    pub fn current(&mut self, topic_partition: &TopicPartition, version: u64) -> Option<&mut PartitionState> {
        self.partitions
            .get_mut(topic_partition)
            .filter(|state| state.version == version)
    }

    /// Assigns exactly these partitions; those that were assigned before keep position, pause and
    /// chunks.
    pub fn replace(&mut self, wanted: BTreeSet<TopicPartition>, new_ones_are_held: bool) {
        let mut before = std::mem::take(&mut self.partitions);
        for name in wanted {
            let state = before.remove(&name).map(|mut state| {
                state.is_held = false;
                state
            });
            let state = state.unwrap_or_else(|| {
                let mut state = PartitionState::new(self.first_phase(), self.next_version());
                state.is_held = new_ones_are_held;
                state
            });
            self.partitions.insert(name, state);
        }
        self.chunks
            .retain(|chunk| !before.contains_key(&chunk.topic_partition));
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn first_phase(&self) -> Phase {
        if self.has_group {
            Phase::Committed
        } else {
            self.phase_by_policy()
        }
    }

    fn phase_by_policy(&self) -> Phase {
        self.reset_policy().map_or(Phase::Seek, Phase::Reset)
    }

    /// `auto.offset.reset`; `None` for `none`.
    pub fn reset_policy(&self) -> Option<ResetTo> {
        match self.reset {
            OffsetReset::Earliest => Some(ResetTo::Earliest),
            OffsetReset::Latest => Some(ResetTo::Latest),
            OffsetReset::ByDuration { ms } => Some(ResetTo::Duration { ms }),
            OffsetReset::None => None,
        }
    }

    /// Voids everything in flight for a partition and drops its fetched data; the caller sets the
    /// new state.
    fn begin_anew(&mut self, topic_partition: &TopicPartition) -> Option<&mut PartitionState> {
        let version = self.next_version();
        let state = self.partitions.get_mut(topic_partition)?;
        if state.unread_chunks > 0 {
            self.chunks
                .retain(|chunk| chunk.topic_partition != *topic_partition);
        }
        state.version = version;
        state.unread_chunks = 0;
        state.is_broken = false;
        state.is_asked = false;
        state.not_before = Moment::from_nanos(0);
        Some(state)
    }

    /// Moves the position.
    ///
    /// - Errors: `IllegalState` for a partition that is not assigned.
    pub fn seek(&mut self, topic_partition: &TopicPartition, position: Position) -> Result<(), Error> {
        let state = self
            .begin_anew(topic_partition)
            .ok_or_else(|| not_assigned(topic_partition))?;
        state.phase = Phase::Fetching;
        state.position = Some(position);
        state.fetch_position = Some(position);
        // If the position has a leader epoch, it is compared with the leader's before anything is
        // fetched.
        state.validated_leader_epoch = -1;
        state.preferred_replica = None;
        self.changes += 1;
        Ok(())
    }

    /// Looks the position up by ListOffsets.
    ///
    /// - Errors: `IllegalState` for a partition that is not assigned.
    pub fn reset(&mut self, topic_partition: &TopicPartition, to: ResetTo) -> Result<(), Error> {
        let state = self
            .begin_anew(topic_partition)
            .ok_or_else(|| not_assigned(topic_partition))?;
        state.phase = Phase::Reset(to);
        state.position = None;
        state.fetch_position = None;
        state.preferred_replica = None;
        Ok(())
    }

    /// Resets the position according to `auto.offset.reset`.
    ///
    /// - Errors: `NoOffset` when it is `none`: then only a seek helps.
    pub fn reset_by_policy(&mut self, topic_partition: &TopicPartition) -> Result<(), Error> {
        let phase = self.phase_by_policy();
        let Some(state) = self.begin_anew(topic_partition) else {
            return Ok(());
        };
        state.phase = phase;
        state.position = None;
        state.fetch_position = None;
        state.preferred_replica = None;
        if phase == Phase::Seek {
            return Err(Error::NoOffset {
                topic: Arc::clone(&topic_partition.topic),
                partition: topic_partition.partition,
            });
        }
        Ok(())
    }

    /// The log may have been truncated: drops data fetched after the position until the leader has
    /// been asked (KIP-320).
    pub fn doubt(&mut self, topic_partition: &TopicPartition) {
        if let Some(state) = self.begin_anew(topic_partition) {
            state.phase = Phase::Validation;
            state.fetch_position = state.position;
        }
    }

    /// Sets the committed offset of partitions in `Phase::Committed`; `None`: there is none.
    ///
    /// - Errors: as `reset_by_policy`.
    pub fn set_committed(
        &mut self,
        topic_partition: &TopicPartition,
        committed: Option<&OffsetAndMetadata>,
    ) -> Result<(), Error> {
        match committed {
            Some(committed) => self.seek(
                topic_partition,
                Position {
                    offset: committed.offset,
                    leader_epoch: committed.leader_epoch,
                },
            ),
            None => self.reset_by_policy(topic_partition),
        }
    }

    /// Partitions whose committed offset must be requested now; they are marked as requested.
    pub fn take_uncommitted(&mut self, now: Moment) -> BTreeMap<TopicPartition, u64> {
        let mut found = BTreeMap::new();
        for (name, state) in &mut self.partitions {
            if state.phase == Phase::Committed && state.may_ask(now) {
                state.is_asked = true;
                found.insert(name.clone(), state.version);
            }
        }
        found
    }

    /// The positions of all records that the application has received: what `commit_sync()`
    /// commits.
    pub fn consumed(&self) -> Offsets {
        let offsets = self.partitions.iter().filter_map(|(name, state)| {
            let position = state.valid_position()?;
            let offset = OffsetAndMetadata {
                offset: position.offset,
                leader_epoch: position.leader_epoch,
                metadata: Arc::from(""),
            };
            Some((name.clone(), offset))
        });
        offsets.collect()
    }

    /// - Errors: `IllegalState` for a partition that is not assigned; then none is paused.
    pub fn set_paused<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a TopicPartition> + Clone,
        is_paused: bool,
    ) -> Result<(), Error> {
        if let Some(unknown) = names.clone().into_iter().find(|name| !self.contains(name)) {
            return Err(not_assigned(unknown));
        }
        let mut changed = BTreeSet::new();
        for name in names {
            if let Some(state) = self.partitions.get_mut(name) {
                state.is_paused = is_paused;
                changed.insert(name);
            }
        }
        if is_paused {
            for chunk in &mut self.chunks {
                if changed.contains(&chunk.topic_partition) {
                    chunk.detach();
                }
            }
        }
        Ok(())
    }

    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        let paused = self.partitions.iter().filter(|(_, state)| state.is_paused);
        paused.map(|(name, _)| name.clone()).collect()
    }

    /// Stops handing out records of partitions that a rebalance is about to take away.
    pub fn hold(&mut self, names: &BTreeSet<TopicPartition>) {
        for name in names {
            let position = self.partitions.get(name).and_then(|state| state.position);
            if let Some(state) = self.begin_anew(name) {
                state.fetch_position = position;
                state.is_held = true;
            }
        }
    }

    /// The listeners know of every partition: resumes all of them.
    pub fn release(&mut self) {
        for state in self.partitions.values_mut() {
            state.is_held = false;
        }
    }

    pub fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(state) = self.current(&chunk.topic_partition, chunk.version) {
            state.unread_chunks += 1;
            self.changes += 1;
            self.chunks.push_back(chunk);
        }
    }

    /// Grows when a chunk arrives or a position becomes known.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn note_position(&mut self) {
        self.changes += 1;
    }

    /// Whether `take_chunk` would return a chunk.
    pub fn has_readable(&self) -> bool {
        self.readable_index().is_some()
    }

    fn readable_index(&self) -> Option<usize> {
        self.chunks.iter().position(|chunk| {
            self.partitions
                .get(&chunk.topic_partition)
                .is_some_and(|state| !state.is_paused && !state.is_held)
        })
    }

    /// Takes the oldest chunk that the application may read.
    pub(super) fn take_chunk(&mut self) -> Option<Chunk> {
        let index = self.readable_index()?;
        self.chunks.remove(index)
    }

    /// Returns a chunk that has more records, or an error to repeat.
    pub(super) fn give_back(&mut self, mut chunk: Chunk, is_next: bool) {
        let Some(state) = self.current(&chunk.topic_partition, chunk.version) else {
            return;
        };
        if state.is_paused {
            chunk.detach();
        }
        if is_next {
            self.chunks.push_front(chunk);
        } else {
            self.chunks.push_back(chunk);
        }
    }

    /// A chunk ends in an unreadable batch: data behind it is dropped, and nothing more is fetched
    /// before a seek.
    pub(super) fn stop_at(&mut self, chunk: &Chunk) {
        let Some(state) = self.current(&chunk.topic_partition, chunk.version) else {
            return;
        };
        state.is_broken = true;
        state.fetch_position = state.position;
        state.unread_chunks = 1;
        self.chunks
            .retain(|other| other.topic_partition != chunk.topic_partition);
    }

    /// The application has received everything up to here. False when that is void because of a
    /// seek or a rebalance.
    pub(super) fn advance(&mut self, chunk: &Chunk) -> bool {
        let Some(state) = self.current(&chunk.topic_partition, chunk.version) else {
            return false;
        };
        state.position = Some(chunk.position());
        if chunk.is_exhausted() {
            state.unread_chunks = state.unread_chunks.saturating_sub(1);
        }
        true
    }

    /// The number of waiting chunks, and their unread bytes.
    #[cfg(test)]
    pub fn unread(&self) -> (usize, usize) {
        (
            self.chunks.len(),
            self.chunks.iter().map(Chunk::unread_bytes).sum(),
        )
    }
}

fn not_assigned(topic_partition: &TopicPartition) -> Error {
    Error::IllegalState {
        message: format!("no current assignment for partition {topic_partition}").into(),
    }
}
