//! A group changes its protocol while it has members (KIP-848).
//!
//! Up when a member of the consumer protocol joins a classic group, down when a classic member
//! joins a consumer group that has only such members left.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::DecodeError;

use crate::group::classic::{CONSUMER_PROTOCOL_TYPE, Group};
use crate::group::config::GroupConfig;
use crate::group::member::Member;
use crate::group::reply::{JoinReply, SyncReply};
use crate::group::timer::Timer;
use crate::group::turn::Turn;
use crate::image::topics::TopicsImage;
use crate::time::Timestamp;

use super::assignment::{Assigned, Partitions};
use super::member::{ClassicMember, CurrentAssignment, MemberMetadata, MemberState};
use super::protocol::{decode_assignment, decode_subscription, encode_assignment};
use super::record::{ConsumerRecord, GroupEpoch, TargetEpoch};
use super::request::HeartbeatRefusal;

/// A classic member as a consumer group knows it.
struct Converted {
    member_id: Arc<str>,
    session_timeout_ms: i32,
    metadata: MemberMetadata,
    assigned: Partitions,
    /// As its last JoinGroup says.
    owned: Partitions,
}

/// Counts as assigned also what a member owns and no other is assigned: while a rebalance is under
/// way, assignments are older than that, or empty.
fn keep_owned(members: &mut [Converted]) {
    let mut held = Partitions::new();
    for member in &mut *members {
        member.assigned.retain(|partition| held.insert(*partition));
    }
    for member in members {
        let owned = member.owned.iter().copied();
        member
            .assigned
            .extend(owned.filter(|partition| held.insert(*partition)));
    }
}

impl Group {
    /// Turns a classic group with members into a consumer group. Its members keep what they are
    /// assigned, and those that wait for a rebalance are told to join again.
    pub(super) fn upgrade(
        &mut self,
        turn: &mut Turn<'_>,
        topics: &Arc<TopicsImage>,
    ) -> Result<(), HeartbeatRefusal> {
        let members = self.check_upgrade(turn.config, topics)?;
        let error = ErrorCode::RebalanceInProgress;
        for member in &members {
            let reply = JoinReply::error(error, member.member_id.clone());
            self.answer_join(turn, &member.member_id, reply);
            self.answer_sync(turn, &member.member_id, SyncReply::error(error));
        }
        let epoch = self.generation;
        self.become_consumer(turn);
        for member in &members {
            let session = Timer::Session(self.group_id.clone(), member.member_id.clone());
            turn.schedule(session, member.session_timeout_ms);
            let metadata = Some(Arc::new(member.metadata.clone()));
            self.record_consumer(turn, ConsumerRecord::Member(member.member_id.clone(), metadata));
        }
        let consumer = self.consumer.as_mut().expect("it has become one");
        let metadata_hash = consumer.hash_of(topics);
        consumer.seen = Arc::downgrade(topics);
        let epoch_record = GroupEpoch { epoch, metadata_hash };
        self.record_consumer(turn, ConsumerRecord::Epoch(Some(epoch_record)));
        for member in &members {
            let target = Some(Arc::new(member.assigned.clone()));
            self.record_consumer(turn, ConsumerRecord::Target(member.member_id.clone(), target));
        }
        let target_epoch = TargetEpoch {
            epoch,
            // The next assignment is not to wait.
            timestamp: Timestamp(0),
        };
        self.record_consumer(turn, ConsumerRecord::TargetEpoch(Some(target_epoch)));
        for member in members {
            let current = CurrentAssignment {
                epoch,
                previous_epoch: epoch,
                state: MemberState::Stable,
                assigned: member
                    .assigned
                    .into_iter()
                    .map(|partition| (partition, epoch))
                    .collect(),
                revoking: Assigned::new(),
            };
            self.record_consumer(
                turn,
                ConsumerRecord::Current(member.member_id, Some(Arc::new(current))),
            );
        }
        Ok(())
    }

    fn check_upgrade(
        &self,
        config: &GroupConfig,
        topics: &TopicsImage,
    ) -> Result<Vec<Converted>, HeartbeatRefusal> {
        let group_id = &self.group_id;
        let refuse = |why: String| {
            let message = format!("group {group_id} is not a consumer group: {why}");
            Err(HeartbeatRefusal::new(ErrorCode::GroupIdNotFound, message))
        };
        let (count, size_max) = (self.members.len(), config.consumer.size_max);
        if !config.consumer.migration.allows_upgrade() {
            return refuse("group.consumer.migration.policy does not let it become one".to_owned());
        }
        if !self.uses_consumer_protocol() {
            return refuse("its members are no consumers".to_owned());
        }
        if count > size_max {
            return refuse(format!(
                "it has {count} members, and group.consumer.max.size allows {size_max}"
            ));
        }
        let members = self.members.values();
        let converted: Result<Vec<Converted>, DecodeError> =
            members.map(|member| self.converted(member, topics)).collect();
        match converted {
            Ok(mut members) => {
                keep_owned(&mut members);
                Ok(members)
            }
            Err(error) => refuse(format!("a subscription cannot be read: {error}")),
        }
    }

    fn converted(&self, member: &Member, topics: &TopicsImage) -> Result<Converted, DecodeError> {
        let elected = member
            .protocols
            .iter()
            .find(|protocol| Some(&protocol.name) == self.protocol.as_ref());
        let protocol = elected.or(member.protocols.first());
        let metadata = protocol.map_or(&[][..], |protocol| &protocol.metadata);
        let subscription = decode_subscription(metadata, topics)?;
        Ok(Converted {
            member_id: member.member_id.clone(),
            session_timeout_ms: member.session_timeout_ms,
            metadata: MemberMetadata {
                instance_id: member.group_instance_id.clone(),
                rack_id: subscription.rack_id.map(Arc::from),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                topic_names: subscription.topics.into_iter().map(Arc::from).collect(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                classic: Some(ClassicMember::of(member)),
                ..MemberMetadata::default()
            },
            assigned: decode_assignment(&member.assignment, topics)?,
            owned: subscription.owned,
        })
    }

    /// Whether only classic members are left, which makes the group one of theirs when one of them
    /// joins.
    pub(in crate::group) fn has_only_classic_members(&self, config: &GroupConfig) -> bool {
        let Some(consumer) = &self.consumer else {
            return false;
        };
        let mut members = consumer.members.values();
        (1..=config.group_size_max).contains(&consumer.members.len())
            && config.consumer.migration.allows_downgrade()
            && members.all(|member| member.metadata.classic.is_some())
    }

    /// Turns a consumer group that has only classic members into a classic group. Its members keep
    /// what they are assigned. A group that does not fit into one record stays what it is.
    pub(in crate::group) fn downgrade(&mut self, turn: &mut Turn<'_>, topics: &TopicsImage) {
        let classic = self.as_classic(topics);
        let stored = classic.to_stored(turn.now.timestamp);
        if stored.size_bytes() > turn.config.batch_bytes_max {
            return;
        }
        for member in classic.members.values() {
            self.cancel_timers(turn, &member.member_id);
            self.record_removal(turn, &member.member_id);
        }
        self.remove_consumer(turn);
        turn.record_group(self, stored);
        // The record has only the elected protocol of each member.
        self.members = classic.members;
        for member_id in self.members.keys().cloned().collect::<Vec<_>>() {
            self.renew_session(turn, &member_id);
        }
    }

    /// Returns the classic group that the members of a consumer group make up.
    fn as_classic(&self, topics: &TopicsImage) -> Group {
        let mut group = Group::new(self.group_id.clone());
        group.protocol_type = Some(CONSUMER_PROTOCOL_TYPE.into());
        for (member_id, member) in self.consumer.iter().flat_map(|consumer| &consumer.members) {
            let Some(classic) = &member.metadata.classic else {
                continue;
            };
            let mut converted = Member::from_consumer(member_id, &member.metadata, classic);
            let assigned = member.current.assigned.keys().copied().collect();
            converted.assignment = encode_assignment(&assigned, topics, classic.subscription());
            // Not the group's epoch: none of them may have seen that one yet.
            group.generation = group.generation.max(member.current.epoch);
            group.insert_member(converted);
        }
        group.protocol = group.elect_protocol();
        group
    }
}
