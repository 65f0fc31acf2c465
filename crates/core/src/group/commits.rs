//! OffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::time::Timestamp;

use super::classic::{Group, GroupState};
use super::offsets::CommittedOffset;
use super::record::GroupRecord;
use super::reply::{CommittedTopic, FetchedPartition, FetchedTopic, OffsetDeleteReply};
use super::request::{
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetDeleteRequest, OffsetFetchRequest,
};
use super::turn::Turn;

/// Bytes of an offset record beyond its strings: batch framing, key and value fields.
const OFFSET_RECORD_BYTES: usize = 96;

impl Group {
    pub(super) fn commit(
        &mut self,
        turn: &mut Turn<'_>,
        request: &OffsetCommitRequest<'_>,
    ) -> Vec<CommittedTopic> {
        let checked = match &self.consumer {
            Some(consumer) => consumer.check_commit(request),
            None => self.check_commit(turn, request),
        };
        if let Err(error) = checked {
            return refuse(request, error);
        }
        if record_bytes(request) > turn.config.batch_bytes_max {
            return refuse(request, ErrorCode::InvalidCommitOffsetSize);
        }
        request
            .topics
            .iter()
            .map(|topic| self.commit_topic(turn, request, topic))
            .collect()
    }

    fn check_commit(
        &mut self,
        turn: &mut Turn<'_>,
        request: &OffsetCommitRequest<'_>,
    ) -> Result<(), ErrorCode> {
        let member = &request.member;
        if self.is_void() && member.generation_id >= 0 {
            return Err(unknown_group(request));
        }
        if member.generation_id < 0 && self.state == GroupState::Empty {
            // A commit by an administration tool, or by a consumer that manages its partitions
            // itself.
            return Ok(());
        }
        if member.generation_id < 0 && member.member_id.is_empty() && member.group_instance_id.is_none() {
            // KIP-447: a transactional producer may name the group alone.
            return match request.is_transactional {
                true => Ok(()),
                false => Err(ErrorCode::UnknownMemberId),
            };
        }
        self.check_member(member.member_id, member.group_instance_id)?;
        if member.generation_id != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        if self.state == GroupState::CompletingRebalance && !request.is_transactional {
            // The member knows the new generation but not its assignment yet.
            return Err(ErrorCode::RebalanceInProgress);
        }
        self.renew_session(turn, &member.member_id.into());
        Ok(())
    }

    fn commit_topic(
        &mut self,
        turn: &mut Turn<'_>,
        request: &OffsetCommitRequest<'_>,
        topic: &OffsetCommitTopic<'_>,
    ) -> CommittedTopic {
        let name = self
            .offsets
            .topic_name(topic.name)
            .unwrap_or_else(|| topic.name.into());
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let error = match (check_partition(turn, partition), &self.consumer) {
                (ErrorCode::None, Some(consumer)) => {
                    consumer.check_commit_of(request, topic.topic_id, partition.partition)
                }
                (error, _) => error,
            };
            if error == ErrorCode::None {
                let value = CommittedOffset {
                    offset: partition.offset,
                    leader_epoch: partition.leader_epoch,
                    metadata: partition.metadata.into(),
                    commit_timestamp: turn.now.timestamp,
                    expire_timestamp: request
                        .retention_ms
                        .map(|retention_ms| Timestamp(turn.now.timestamp.0.saturating_add(retention_ms))),
                    topic_id: topic.topic_id,
                };
                let record = GroupRecord::Offset {
                    group: self.group_id.clone(),
                    topic: name.clone(),
                    partition: partition.partition,
                    value: Some(value),
                };
                match request.is_transactional {
                    true => turn.step.transactional.push(record),
                    false => turn.record(self, record),
                }
            }
            partitions.push((partition.partition, error));
        }
        CommittedTopic {
            name: topic.name.to_owned(),
            topic_id: topic.topic_id,
            partitions,
        }
    }

    /// Answers OffsetFetch.
    pub(super) fn fetch_offsets(&self, request: &OffsetFetchRequest<'_>) -> Vec<FetchedTopic> {
        let answer = |topic: &str, topic_id: Uuid, partition: i32, committed: Option<&CommittedOffset>| {
            if request.require_stable && self.pending.contains(topic, partition) {
                return FetchedPartition::error(partition, ErrorCode::UnstableOffsetCommit);
            }
            match committed {
                Some(committed) if is_same_topic(committed.topic_id, topic_id) => FetchedPartition {
                    partition,
                    offset: committed.offset,
                    leader_epoch: committed.leader_epoch,
                    metadata: committed.metadata.clone(),
                    error: ErrorCode::None,
                },
                _ => FetchedPartition::error(partition, ErrorCode::None),
            }
        };
        let Some(topics) = &request.topics else {
            return self
                .offsets
                .topics()
                .map(|(name, partitions)| FetchedTopic {
                    name: name.to_string(),
                    topic_id: Uuid::ZERO,
                    partitions: partitions
                        .map(|(partition, committed)| answer(name, Uuid::ZERO, partition, Some(committed)))
                        .collect(),
                })
                .collect();
        };
        topics
            .iter()
            .map(|topic| FetchedTopic {
                name: topic.name.to_owned(),
                topic_id: topic.topic_id,
                partitions: topic
                    .partitions
                    .iter()
                    .map(|partition| match topic.error {
                        ErrorCode::None => {
                            let committed = self.offsets.get(topic.name, *partition);
                            answer(topic.name, topic.topic_id, *partition, committed)
                        }
                        error => FetchedPartition::error(*partition, error),
                    })
                    .collect(),
            })
            .collect()
    }

    /// Answers OffsetDelete.
    ///
    /// - `is_claimed`: the group has members of another protocol, whose subscriptions are not known
    ///   here.
    pub(super) fn delete_offsets(
        &mut self,
        turn: &mut Turn<'_>,
        request: &OffsetDeleteRequest<'_>,
        is_claimed: bool,
    ) -> OffsetDeleteReply {
        if self.state != GroupState::Empty && !self.uses_consumer_protocol() {
            return OffsetDeleteReply {
                error: ErrorCode::NonEmptyGroup,
                topics: Vec::new(),
            };
        }
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let is_subscribed = is_claimed || self.is_subscribed_to(topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for (partition, error) in &topic.partitions {
                let error = match error {
                    ErrorCode::None if is_subscribed => ErrorCode::GroupSubscribedToTopic,
                    error => *error,
                };
                let is_known = self.offsets.get(topic.name, *partition).is_some()
                    || self.pending.contains(topic.name, *partition);
                if error == ErrorCode::None && is_known {
                    self.record_offset_tombstone(turn, topic.name.into(), *partition);
                }
                partitions.push((*partition, error));
            }
            topics.push((topic.name.to_owned(), partitions));
        }
        OffsetDeleteReply {
            error: ErrorCode::None,
            topics,
        }
    }

    pub(super) fn record_offset_tombstone(&mut self, turn: &mut Turn<'_>, topic: Arc<str>, partition: i32) {
        let record = GroupRecord::Offset {
            group: self.group_id.clone(),
            topic,
            partition,
            value: None,
        };
        turn.record(self, record);
    }

    /// Ends what a transaction holds for a partition. Of two commits the later one in the log wins,
    /// whatever the order of the markers.
    pub(super) fn end_pending(
        &mut self,
        topic: &Arc<str>,
        partition: i32,
        producer_id: i64,
        is_commit: bool,
    ) {
        let Some((order, value)) = self.pending.take(topic, partition, producer_id) else {
            return;
        };
        let existing = self.offsets.order(topic, partition);
        if is_commit && existing.is_none_or(|existing| existing < order) {
            self.offsets.insert(topic.clone(), partition, order, value);
        }
    }

    /// Writes tombstones for the selected offsets. An offset that an open transaction holds gets
    /// one, too: without it the commit marker would bring the offset back, and its group.
    pub(super) fn remove_offsets(
        &mut self,
        turn: &mut Turn<'_>,
        is_doomed: impl Fn(&str, &CommittedOffset) -> bool,
    ) {
        let all = self.offsets.iter().chain(self.pending.iter());
        let doomed: BTreeSet<(Arc<str>, i32)> = all
            .filter(|(topic, _, committed)| is_doomed(topic, committed))
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect();
        self.record_offset_tombstones(turn, doomed);
    }

    fn record_offset_tombstones(
        &mut self,
        turn: &mut Turn<'_>,
        doomed: impl IntoIterator<Item = (Arc<str>, i32)>,
    ) {
        for (topic, partition) in doomed {
            self.record_offset_tombstone(turn, topic, partition);
        }
    }

    /// Expires offsets. KIP-211: the retention runs from the moment the group became empty; for a
    /// consumer without a group, from its last commit; for a group with members, from the last
    /// commit of a topic that no member subscribes to any more.
    pub(super) fn expire_offsets(&mut self, turn: &mut Turn<'_>) {
        if !self.foreign.is_empty() || self.state != GroupState::Empty && !self.can_expire_in_use() {
            return;
        }
        let now = turn.now.timestamp;
        let retention_ms = turn.config.offsets_retention_ms;
        let empty_since = match (&self.protocol_type, self.state) {
            (Some(_), GroupState::Empty) => self.stored.as_ref().and_then(|stored| stored.state_timestamp),
            _ => None,
        };
        let subscribed: BTreeSet<String> = match &self.consumer {
            Some(consumer) => (consumer.subscribed_topics().into_iter())
                .map(str::to_owned)
                .collect(),
            None => self.subscribed_topics.clone().unwrap_or_default(),
        };
        let is_expired = |committed: &CommittedOffset| match committed.expire_timestamp {
            Some(expire_timestamp) => now >= expire_timestamp,
            None => {
                let start = empty_since.unwrap_or(committed.commit_timestamp);
                now.0.saturating_sub(start.0) >= retention_ms
            }
        };
        let expired: Vec<(Arc<str>, i32)> = self
            .offsets
            .iter()
            .filter(|(topic, partition, committed)| {
                is_expired(committed)
                    && !subscribed.contains(&***topic)
                    && !self.pending.contains(topic, *partition)
            })
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect();
        self.record_offset_tombstones(turn, expired);
        let has_offsets = self.has_offsets();
        let is_idle = self.state == GroupState::Empty && self.pending_join.is_empty();
        if !has_offsets && !self.has_consumer_members() {
            self.remove_consumer(turn);
        }
        if !has_offsets && is_idle && self.stored.is_some() {
            turn.record(
                self,
                GroupRecord::Group {
                    group: self.group_id.clone(),
                    value: None,
                },
            );
        }
    }

    fn can_expire_in_use(&self) -> bool {
        self.state == GroupState::Stable && self.uses_consumer_protocol() && self.subscribed_topics.is_some()
    }
}

/// Returns the code for an unknown group: since KIP-848, from version 9, old and new clients get
/// the same.
pub(super) fn unknown_group(request: &OffsetCommitRequest<'_>) -> ErrorCode {
    if request.knows_group_id_not_found {
        ErrorCode::GroupIdNotFound
    } else {
        ErrorCode::IllegalGeneration
    }
}

/// Answers all partitions that were not refused before with the same error.
pub fn refuse(request: &OffsetCommitRequest<'_>, error: ErrorCode) -> Vec<CommittedTopic> {
    request
        .topics
        .iter()
        .map(|topic| CommittedTopic {
            name: topic.name.to_owned(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|partition| match partition.error {
                    ErrorCode::None => (partition.partition, error),
                    earlier => (partition.partition, earlier),
                })
                .collect(),
        })
        .collect()
}

fn check_partition(turn: &Turn<'_>, partition: &OffsetCommitPartition<'_>) -> ErrorCode {
    let length_max = turn.config.offset_metadata_length_max;
    let is_too_large =
        partition.metadata.len() > length_max && partition.metadata.encode_utf16().count() > length_max;
    match partition.error {
        ErrorCode::None if is_too_large => ErrorCode::OffsetMetadataTooLarge,
        error => error,
    }
}

fn record_bytes(request: &OffsetCommitRequest<'_>) -> usize {
    let names = |topic: &OffsetCommitTopic<'_>| request.member.group_id.len() + topic.name.len();
    request
        .topics
        .iter()
        .flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(move |partition| (names(topic), partition))
        })
        .map(|(names, partition)| OFFSET_RECORD_BYTES + names + partition.metadata.len())
        .sum()
}

/// Whether the ids can mean the same topic: one that was deleted and created again has another id;
/// an unknown id matches every id.
fn is_same_topic(committed: Uuid, asked: Uuid) -> bool {
    committed == Uuid::ZERO || asked == Uuid::ZERO || committed == asked
}
