//! The coordinator of one partition of `__consumer_offsets`, as a state machine.
//!
//! `handle` decides and `apply` changes state by records; the caller makes the records durable and
//! then sends the replies. If it cannot, it drops the machine and rebuilds it from the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::image::topics::TopicsImage;
use crate::time::{Moment, Now};

use super::classic::{Group, GroupState};
use super::commits;
use super::config::GroupConfig;
use super::consumer::request::ConsumerHeartbeat;
use super::foreign::ForeignKind;
use super::held::Spread;
use super::join;
use super::overview::{self, GroupOverview, GroupReading};
use super::progress::{OffsetRoom, Progress};
use super::record::GroupRecord;
use super::reply::{
    DescribedGroup, DescribedMember, GroupReply, JoinReply, LeftMember, ListedGroup, OffsetDeleteReply, Step,
    SyncReply,
};
use super::request::{GroupRequest, JoinRequest, ListRequest, SyncRequest, Ticket};
use super::timer::{Timer, Timers};
use super::turn::{MemberIds, Turn};

pub struct Machine {
    config: Arc<GroupConfig>,
    groups: BTreeMap<Arc<str>, Group>,
    timers: Timers,
    ids: MemberIds,
    /// Number of applied records.
    order: u64,
    /// Where transactions without a marker hold offsets, by producer id.
    open_transactions: BTreeMap<i64, BTreeSet<Held>>,
}

/// Group, topic and partition.
type Held = (Arc<str>, Arc<str>, i32);

impl Machine {
    /// Creates an empty machine; `seed` determines the member ids.
    pub fn new(config: Arc<GroupConfig>, seed: u64) -> Machine {
        Machine {
            config,
            groups: BTreeMap::new(),
            timers: Timers::default(),
            ids: MemberIds::new(seed),
            order: 0,
            open_transactions: BTreeMap::new(),
        }
    }

    /// Replays a record outside of transactions.
    pub fn apply(&mut self, record: &GroupRecord) {
        self.order += 1;
        self.apply_at(self.order, record);
    }

    /// Replays a record of a transaction. An offset takes effect only if the transaction commits;
    /// nothing else is written that way.
    pub fn apply_transactional(&mut self, producer_id: i64, record: GroupRecord) {
        let GroupRecord::Offset {
            group: group_id,
            topic,
            partition,
            value: Some(value),
        } = record
        else {
            return self.apply(&record);
        };
        self.order += 1;
        let group = self
            .groups
            .entry(group_id.clone())
            .or_insert_with(|| Group::new(group_id.clone()));
        group
            .pending
            .insert(topic.clone(), partition, producer_id, self.order, value);
        let held = self.open_transactions.entry(producer_id).or_default();
        held.insert((group_id, topic, partition));
    }

    /// Replays the end of a transaction.
    pub fn apply_marker(&mut self, producer_id: i64, is_commit: bool) {
        for (group_id, topic, partition) in self.open_transactions.remove(&producer_id).unwrap_or_default() {
            if let Some(group) = self.groups.get_mut(&group_id) {
                group.end_pending(&topic, partition, producer_id, is_commit);
                self.drop_void(&group_id);
            }
        }
    }

    fn apply_at(&mut self, order: u64, record: &GroupRecord) {
        let group_id = record.group();
        let group = self
            .groups
            .entry(group_id.clone())
            .or_insert_with(|| Group::new(group_id.clone()));
        group.apply(order, record);
        self.drop_void(group_id);
    }

    fn drop_void(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(Group::is_void) {
            self.groups.remove(group_id);
        }
    }

    /// Starts the session timers of all members in the log. Call once, when the replay is complete.
    pub fn arm(&mut self, now: Now) -> Step {
        let interval_ms = self.config.offsets_retention_check_interval_ms;
        self.timers
            .schedule(Timer::Retention, now.moment.after_ms(interval_ms));
        let size_max = self.config.group_size_max;
        self.turn(now, |groups, turn| {
            for group in groups.values_mut() {
                group.arm_consumer(turn);
                let member_ids: Vec<Arc<str>> = group.members.keys().cloned().collect();
                for member_id in &member_ids {
                    group.renew_session(turn, member_id);
                }
                if group.members.len() > size_max {
                    // `group.max.size` was lowered: the first members to rejoin stay.
                    group.prepare_rebalance(turn);
                }
            }
        })
    }

    pub fn handle(&mut self, now: Now, ticket: Ticket, request: GroupRequest<'_>) -> Step {
        match request {
            GroupRequest::Join(request) => self.join(now, ticket, &request),
            GroupRequest::Sync(request) => self.sync(now, ticket, &request),
            GroupRequest::Heartbeat(request) => {
                self.reply_from(now, ticket, request.group_id, |group, turn| {
                    GroupReply::Heartbeat(match group {
                        Some(group) => group.heartbeat(turn, &request),
                        None => ErrorCode::UnknownMemberId,
                    })
                })
            }
            GroupRequest::Leave(request) => self.reply_from(now, ticket, request.group_id, |group, turn| {
                GroupReply::Leave(match group {
                    Some(group) => group.leave(turn, &request),
                    None => nobody_left(&request.members),
                })
            }),
            GroupRequest::OffsetCommit(request) => self.commit(now, ticket, &request),
            GroupRequest::OffsetDelete(request) => {
                let claim = self.foreign_claim(request.group_id);
                self.reply_from(now, ticket, request.group_id, |group, turn| {
                    GroupReply::OffsetDelete(match (group, claim) {
                        (None, _) | (_, Some(ForeignKind::Share)) => OffsetDeleteReply {
                            error: ErrorCode::GroupIdNotFound,
                            topics: Vec::new(),
                        },
                        (Some(group), claim) => group.delete_offsets(turn, &request, claim.is_some()),
                    })
                })
            }
            GroupRequest::OffsetFetch(request) => {
                let nothing = Group::new(request.group_id.into());
                let group = self.groups.get(request.group_id).unwrap_or(&nothing);
                if let Err(error) = group.check_fetch(&request) {
                    return read(ticket, GroupReply::Refused(error));
                }
                let topics = group.fetch_offsets(&request);
                read(ticket, GroupReply::OffsetFetch(topics))
            }
            GroupRequest::List(request) => read(ticket, GroupReply::List(self.list(&request))),
            GroupRequest::Describe(group_ids) => {
                let groups = group_ids.iter().map(|group_id| self.describe(group_id)).collect();
                read(ticket, GroupReply::Describe(groups))
            }
            GroupRequest::Delete(group_ids) => self.delete(now, ticket, &group_ids),
            GroupRequest::ConsumerHeartbeat(request) => self.consumer_heartbeat(now, ticket, &request),
            GroupRequest::ConsumerDescribe(group_id) => {
                let group = self.groups.get(group_id);
                let assignors = &self.config.consumer.assignors;
                let described = group.and_then(|group| group.describe_consumer(assignors));
                read(ticket, GroupReply::ConsumerDescribe(described))
            }
        }
    }

    /// Handles the closing of the connection behind a parked answer.
    pub fn abandon(&mut self, now: Now, group_id: &str, ticket: Ticket) {
        self.turn(now, |groups, turn| {
            if let Some(group) = groups.get_mut(group_id) {
                group.abandon(turn, ticket);
            }
        });
    }

    /// Removes the offsets of deleted topics, given by name and id.
    pub fn on_topics_deleted(&mut self, now: Now, topics: &[(&str, Uuid)]) -> Step {
        let group_ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        let step = self.turn(now, |groups, turn| {
            for group in groups.values_mut() {
                group.remove_offsets(turn, |topic, committed| {
                    topics.iter().any(|(name, topic_id)| {
                        *name == topic
                            && (committed.topic_id == Uuid::ZERO || committed.topic_id == *topic_id)
                    })
                });
            }
        });
        self.after(step, &group_ids)
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.next()
    }

    pub fn on_deadline(&mut self, now: Now) -> Step {
        let mut step = Step::default();
        while let Some(timer) = self.timers.pop(now.moment) {
            let next = match timer {
                Timer::Retention => self.expire_offsets(now),
                Timer::Join(group_id) => {
                    self.on_group(now, &group_id, |group, turn| group.on_join_deadline(turn))
                }
                Timer::Sync(group_id) => {
                    self.on_group(now, &group_id, |group, turn| group.on_sync_deadline(turn))
                }
                Timer::Revocation(group_id, member_id) => self.on_group(now, &group_id, |group, turn| {
                    group.on_revocation_deadline(turn, &member_id)
                }),
                Timer::Rejoin(group_id, member_id) => self.on_group(now, &group_id, |group, turn| {
                    group.on_rejoin_deadline(turn, &member_id)
                }),
                Timer::Session(group_id, member_id) => self.on_group(now, &group_id, |group, turn| {
                    group.on_session_deadline(turn, &member_id)
                }),
            };
            step.records.extend(next.records);
            step.replies.extend(next.replies);
        }
        step
    }

    fn join(&mut self, now: Now, ticket: Ticket, request: &JoinRequest<'_>) -> Step {
        let has_group = self.groups.contains_key(request.group_id);
        let is_claimed = self.foreign_claim(request.group_id).is_some();
        let group_id: Arc<str> = request.group_id.into();
        let step = self.turn(now, |groups, turn| {
            let refuse = |turn: &mut Turn<'_>, error| {
                let reply = JoinReply::error(error, request.member_id.into());
                turn.reply(ticket, GroupReply::Join(reply));
            };
            if let Err(error) = join::check_request(request, turn) {
                return refuse(turn, error);
            }
            if is_claimed {
                return refuse(turn, ErrorCode::InconsistentGroupProtocol);
            }
            if !has_group && !request.member_id.is_empty() {
                return refuse(turn, ErrorCode::UnknownMemberId);
            }
            let group = groups
                .entry(group_id.clone())
                .or_insert_with(|| Group::new(group_id.clone()));
            if group.has_only_classic_members(turn.config) {
                group.downgrade(turn, &request.topics);
            }
            if group.has_consumer_members() {
                return group.join_consumer(turn, ticket, request);
            }
            // An empty consumer or streams group is converted to a classic one, as in Apache Kafka.
            group.remove_consumer(turn);
            for key in group.foreign.removal_keys() {
                let record = GroupRecord::Foreign {
                    group: group_id.clone(),
                    key,
                    is_present: false,
                };
                turn.record(group, record);
            }
            group.join(turn, ticket, request);
        });
        self.after(step, &[group_id])
    }

    fn sync(&mut self, now: Now, ticket: Ticket, request: &SyncRequest<'_>) -> Step {
        let group_id: Arc<str> = request.member.group_id.into();
        self.turn(now, |groups, turn| match groups.get_mut(&group_id) {
            Some(group) => group.sync(turn, ticket, request),
            None => turn.reply(
                ticket,
                GroupReply::Sync(SyncReply::error(ErrorCode::UnknownMemberId)),
            ),
        })
    }

    fn consumer_heartbeat(&mut self, now: Now, ticket: Ticket, request: &ConsumerHeartbeat<'_>) -> Step {
        let group_id: Arc<str> = request.group_id.into();
        let step = self.turn(now, |groups, turn| {
            let group = groups
                .entry(group_id.clone())
                .or_insert_with(|| Group::new(group_id.clone()));
            let result = group.consumer_heartbeat(turn, request);
            turn.reply(ticket, GroupReply::ConsumerHeartbeat(result));
        });
        self.after(step, &[group_id])
    }

    fn commit(
        &mut self,
        now: Now,
        ticket: Ticket,
        request: &super::request::OffsetCommitRequest<'_>,
    ) -> Step {
        let refusal = match self.foreign_claim(request.member.group_id) {
            // A share group has no committed offsets.
            Some(ForeignKind::Share) => Some(ErrorCode::GroupIdNotFound),
            Some(_) if request.member.generation_id < 0 => Some(ErrorCode::UnknownMemberId),
            _ => None,
        };
        if let Some(error) = refusal {
            return read(ticket, GroupReply::OffsetCommit(commits::refuse(request, error)));
        }
        let group_id: Arc<str> = match self.groups.get_key_value(request.member.group_id) {
            Some((group_id, _)) => group_id.clone(),
            None if request.member.generation_id >= 0 => {
                let topics = commits::refuse(request, commits::unknown_group(request));
                return read(ticket, GroupReply::OffsetCommit(topics));
            }
            None => request.member.group_id.into(),
        };
        let step = self.turn(now, |groups, turn| {
            let group = groups
                .entry(group_id.clone())
                .or_insert_with(|| Group::new(group_id.clone()));
            let topics = group.commit(turn, request);
            turn.reply(ticket, GroupReply::OffsetCommit(topics));
        });
        self.after(step, &[group_id])
    }

    fn delete(&mut self, now: Now, ticket: Ticket, group_ids: &[&str]) -> Step {
        let group_ids: Vec<Arc<str>> = group_ids.iter().map(|group_id| Arc::from(*group_id)).collect();
        let claims: Vec<Option<ForeignKind>> = group_ids
            .iter()
            .map(|group_id| self.foreign_claim(group_id))
            .collect();
        let step = self.turn(now, |groups, turn| {
            let mut results = Vec::with_capacity(group_ids.len());
            for (group_id, claim) in group_ids.iter().zip(&claims) {
                let error = match groups.get_mut(group_id) {
                    None => ErrorCode::GroupIdNotFound,
                    Some(group) if group.is_void() => ErrorCode::GroupIdNotFound,
                    // The group has no members, but its acknowledgements would stay behind.
                    Some(group) if *claim == Some(ForeignKind::Share) && !group.foreign.has_members() => {
                        ErrorCode::UnsupportedVersion
                    }
                    Some(group)
                        if group.state != GroupState::Empty
                            || group.has_consumer_members()
                            || claim.is_some() =>
                    {
                        ErrorCode::NonEmptyGroup
                    }
                    Some(group) => {
                        delete_group(turn, group);
                        ErrorCode::None
                    }
                };
                results.push((group_id.clone(), error));
            }
            turn.reply(ticket, GroupReply::Delete(results));
        });
        self.after(step, &group_ids)
    }

    fn expire_offsets(&mut self, now: Now) -> Step {
        let interval_ms = self.config.offsets_retention_check_interval_ms;
        self.timers
            .schedule(Timer::Retention, now.moment.after_ms(interval_ms));
        let group_ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        let step = self.turn(now, |groups, turn| {
            for group in groups.values_mut() {
                group.expire_offsets(turn);
            }
        });
        self.after(step, &group_ids)
    }

    fn list(&self, request: &ListRequest) -> Vec<ListedGroup> {
        let is_wanted = |wanted: &[String], value: &str| {
            wanted.is_empty() || wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
        };
        self.groups
            .values()
            .filter(|group| !group.is_void())
            .map(listed)
            .filter(|group| {
                is_wanted(&request.states, group.state) && is_wanted(&request.types, group.group_type)
            })
            .collect()
    }

    fn describe(&self, group_id: &str) -> DescribedGroup {
        match self.groups.get(group_id) {
            Some(group) if group.is_classic() => described(group),
            _ => DescribedGroup {
                error: ErrorCode::GroupIdNotFound,
                group_id: group_id.into(),
                state: "Dead",
                protocol_type: "".into(),
                protocol: "".into(),
                members: Vec::new(),
                kept_as: self.groups.get(group_id).and_then(|group| group.foreign.kind()),
            },
        }
    }

    /// Returns the kind of a group that another protocol still claims: its offsets must not be
    /// changed by hand, nor the group deleted.
    fn foreign_claim(&self, group_id: &str) -> Option<ForeignKind> {
        let foreign = &self.groups.get(group_id)?.foreign;
        foreign.kind().filter(|kind| match kind {
            // Its members cannot rejoin here with another protocol, so silence does not mean that
            // they are gone.
            ForeignKind::Streams => foreign.has_members(),
            // Its acknowledgements are in a topic that this broker never writes.
            ForeignKind::Share => true,
        })
    }

    fn turn(&mut self, now: Now, act: impl FnOnce(&mut BTreeMap<Arc<str>, Group>, &mut Turn<'_>)) -> Step {
        let mut turn = Turn {
            now,
            config: &self.config,
            timers: &mut self.timers,
            order: &mut self.order,
            ids: &mut self.ids,
            step: Step::default(),
        };
        act(&mut self.groups, &mut turn);
        turn.step
    }

    fn on_group(
        &mut self,
        now: Now,
        group_id: &Arc<str>,
        act: impl FnOnce(&mut Group, &mut Turn<'_>),
    ) -> Step {
        let step = self.turn(now, |groups, turn| {
            if let Some(group) = groups.get_mut(group_id) {
                act(group, turn);
            }
        });
        self.after(step, std::slice::from_ref(group_id))
    }

    /// Answers requests that one group answers at once.
    fn reply_from(
        &mut self,
        now: Now,
        ticket: Ticket,
        group_id: &str,
        act: impl FnOnce(Option<&mut Group>, &mut Turn<'_>) -> GroupReply,
    ) -> Step {
        let group_id: Arc<str> = group_id.into();
        let step = self.turn(now, |groups, turn| {
            let reply = act(groups.get_mut(&group_id), turn);
            turn.reply(ticket, reply);
        });
        self.after(step, &[group_id])
    }

    /// Returns the overviews of all groups.
    ///
    /// - `partitions_of`: the number of partitions of a topic.
    pub fn overview(&self, partitions_of: &impl Fn(&str) -> usize) -> Vec<GroupOverview> {
        let groups = self.groups.values();
        groups
            .filter_map(|group| {
                overview::overview(group, self.config.consumer.session_timeout_ms, partitions_of)
            })
            .collect()
    }

    /// Adds the progress of all groups.
    pub(super) fn add_progress(&self, progress: &mut Progress, room: &mut OffsetRoom) {
        for group in self.groups.values() {
            progress.add(group, group.state_name(), room);
        }
    }

    /// Adds how the partitions of groups with members are spread over them.
    pub(super) fn add_spreads(&self, topics: &TopicsImage, spreads: &mut BTreeMap<Arc<str>, Spread>) {
        let with_members = self.groups.values().filter(|group| overview::has_members(group));
        spreads.extend(with_members.map(|group| (group.group_id.clone(), Spread::of(group, topics))));
    }

    /// Returns the readings of all groups, also of those without members.
    ///
    /// - `rest`: how many committed offsets may still be read.
    pub fn readings(&self, topics: &TopicsImage, rest: &mut usize) -> Vec<GroupReading> {
        let session_timeout_ms = self.config.consumer.session_timeout_ms;
        let groups = self.groups.values();
        groups
            .filter_map(|group| overview::reading(group, session_timeout_ms, topics, rest))
            .collect()
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    #[cfg(test)]
    pub(super) fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)
    }

    /// Returns the state that a replay must reproduce.
    #[cfg(test)]
    pub(super) fn hard_state(&self) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
        let pending = |group: &Group| -> Vec<_> {
            let pending = group.pending.iter();
            pending
                .map(|(t, p, value)| (t.clone(), p, value.clone()))
                .collect()
        };
        let hard = |group: &Group| {
            let offsets: Vec<_> = group
                .offsets
                .iter()
                .map(|(t, p, value)| (t.clone(), p, value.clone()))
                .collect();
            (
                group.group_id.clone(),
                group.stored.clone(),
                offsets,
                group.consumer.as_ref().map(|consumer| consumer.hard_state()),
                group.foreign.clone(),
                pending(group),
            )
        };
        let is_stored = |group: &&Group| {
            group.stored.is_some()
                || group.has_offsets()
                || group.consumer.is_some()
                || !group.foreign.is_empty()
        };
        self.groups.values().filter(is_stored).map(hard).collect()
    }

    /// Drops groups that a step has emptied.
    fn after(&mut self, step: Step, group_ids: &[Arc<str>]) -> Step {
        for group_id in group_ids {
            self.drop_void(group_id);
        }
        step
    }
}

fn read(ticket: Ticket, reply: GroupReply) -> Step {
    Step {
        replies: vec![(ticket, reply)],
        ..Step::default()
    }
}

fn nobody_left(members: &[(&str, Option<&str>)]) -> Vec<LeftMember> {
    members
        .iter()
        .map(|(member_id, instance_id)| LeftMember {
            member_id: (*member_id).to_owned(),
            group_instance_id: instance_id.map(str::to_owned),
            error: ErrorCode::UnknownMemberId,
        })
        .collect()
}

fn delete_group(turn: &mut Turn<'_>, group: &mut Group) {
    group.remove_offsets(turn, |_, _| true);
    group.remove_consumer(turn);
    for key in group.foreign.removal_keys() {
        turn.record(
            group,
            GroupRecord::Foreign {
                group: group.group_id.clone(),
                key,
                is_present: false,
            },
        );
    }
    for member_id in std::mem::take(&mut group.pending_join) {
        turn.timers
            .cancel(Timer::Session(group.group_id.clone(), member_id));
    }
    turn.record(
        group,
        GroupRecord::Group {
            group: group.group_id.clone(),
            value: None,
        },
    );
}

impl Group {
    /// Kafka's name of the state.
    pub(super) fn state_name(&self) -> &'static str {
        match (self.foreign.kind(), &self.consumer) {
            (None, Some(consumer)) => consumer.state_name(),
            (None, None) => self.state.name(),
            (Some(_), _) if self.foreign.has_members() => "Unknown",
            (Some(_), _) => "Empty",
        }
    }
}

fn listed(group: &Group) -> ListedGroup {
    let (protocol_type, group_type) = match (group.foreign.kind(), &group.consumer) {
        (None, Some(_)) => (Arc::from("consumer"), "consumer"),
        (None, None) => (
            group.protocol_type.clone().unwrap_or_else(|| "".into()),
            "classic",
        ),
        (Some(kind), _) => (Arc::from(kind.name()), kind.name()),
    };
    ListedGroup {
        group_id: group.group_id.clone(),
        protocol_type,
        state: group.state_name(),
        group_type,
    }
}

fn described(group: &Group) -> DescribedGroup {
    let protocol = match group.state {
        GroupState::Stable => group.protocol.clone(),
        _ => None,
    };
    DescribedGroup {
        error: ErrorCode::None,
        group_id: group.group_id.clone(),
        state: group.state.name(),
        protocol_type: group.protocol_type.clone().unwrap_or_else(|| "".into()),
        members: group
            .members
            .values()
            .map(|member| DescribedMember {
                member_id: member.member_id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                metadata: member.metadata(protocol.as_deref()),
                assignment: member.assignment.clone(),
            })
            .collect(),
        protocol: protocol.unwrap_or_else(|| "".into()),
        kept_as: None,
    }
}
