//! Detects log truncation (KIP-320): after a change of leader, checks that the log before the
//! position is the one that was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic,
};
use ottla_wire::primitives::Reader;

use super::exchange::ExchangeState;
use super::position::{Phase, Position};
use super::topic_partition::TopicPartition;
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::Action;
use crate::time::Moment;

/// Before this version, consumers needed rights on the cluster for this request.
const OLDEST_VERSION: i16 = 3;

/// Kept with an OffsetForLeaderEpoch request until its reply.
#[derive(Clone, Debug)]
pub struct EpochTicket {
    asked: BTreeMap<TopicPartition, AskedEpochs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskedEpochs {
    position: Position,
    leader_epoch: i32,
    version: u64,
}

/// Asks the leaders where the leader epochs of positions end.
#[derive(Debug)]
pub struct TruncationCheck {
    config: Arc<ConsumerConfig>,
    next_deadline: Option<Moment>,
}

impl TruncationCheck {
    pub fn new(config: Arc<ConsumerConfig>) -> TruncationCheck {
        TruncationCheck {
            config,
            next_deadline: None,
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline
    }

    /// Marks positions that must be checked, and sends the requests. True when a leader is missing.
    pub fn send<T>(
        &mut self,
        now: Moment,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
        cluster: &mut Cluster<T>,
        ticket: impl Fn(EpochTicket) -> T,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.next_deadline = None;
        doubt_after_leader_changes(state, snapshot);
        let mut needs_metadata = false;
        for (node, asked) in self.due(now, state, snapshot, &mut needs_metadata) {
            match cluster.readiness(now, node) {
                Readiness::Ready => self.send_to(now, node, asked, state, cluster, &ticket, actions),
                Readiness::Connecting => {}
                Readiness::BackingOff(_) | Readiness::Impossible(_) => needs_metadata = true,
            }
        }
        needs_metadata
    }

    fn due(
        &mut self,
        now: Moment,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
        needs_metadata: &mut bool,
    ) -> BTreeMap<NodeId, BTreeMap<TopicPartition, AskedEpochs>> {
        let mut due: BTreeMap<NodeId, BTreeMap<TopicPartition, AskedEpochs>> = BTreeMap::new();
        for (name, partition) in state.assignment.iter_mut() {
            let (Phase::Validation, Some(position)) = (partition.phase, partition.position) else {
                continue;
            };
            if !partition.may_ask(now) {
                if !partition.is_asked && !partition.is_held {
                    let known = self.next_deadline.unwrap_or(Moment::NEVER);
                    self.next_deadline = Some(known.min(partition.not_before));
                }
                continue;
            }
            partition.look_up(snapshot, name);
            let Some((node, leader_epoch)) = partition.leader() else {
                *needs_metadata = true;
                continue;
            };
            let asked = AskedEpochs {
                position,
                leader_epoch,
                version: partition.version,
            };
            due.entry(node).or_default().insert(name.clone(), asked);
        }
        due
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one request, what it is for and where it goes"
    )]
    fn send_to<T>(
        &self,
        now: Moment,
        node: NodeId,
        asked: BTreeMap<TopicPartition, AskedEpochs>,
        state: &mut ExchangeState,
        cluster: &mut Cluster<T>,
        ticket: &impl Fn(EpochTicket) -> T,
        actions: &mut Vec<Action>,
    ) {
        let Ok(api_version) = cluster.version(node, ApiKey::OffsetForLeaderEpoch, OLDEST_VERSION) else {
            // The broker does not support the request: continue as before KIP-320.
            for (name, ask) in &asked {
                complete(name, ask, state);
            }
            return;
        };
        for name in asked.keys() {
            if let Some(partition) = state.assignment.get_mut(name) {
                partition.is_asked = true;
            }
        }
        let request = Request {
            api_key: ApiKey::OffsetForLeaderEpoch,
            api_version,
            body: vec![encode(api_version, &asked)],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        cluster.send(now, node, request, ticket(EpochTicket { asked }), actions);
    }

    /// Returns true when the metadata is outdated.
    pub fn take_reply<T>(
        &mut self,
        now: Moment,
        reply: &Reply<T>,
        ticket: &EpochTicket,
        state: &mut ExchangeState,
    ) -> bool {
        let not_before = now.after_ms(self.config.client.retry_backoff_ms);
        for (name, ask) in &ticket.asked {
            if let Some(partition) = state.assignment.current(name, ask.version) {
                partition.is_asked = false;
                partition.not_before = not_before;
            }
        }
        let Ok(frame) = &reply.result else {
            return true;
        };
        let mut reader = Reader::new(frame);
        let response = match OffsetForLeaderEpochResponse::decode(&mut reader, reply.api_version) {
            Ok(response) => response,
            Err(error) => {
                state.report(Error::Malformed {
                    address: format!("node {}", reply.node.0).into(),
                    reason: format!("offset for leader epoch response: {error}").into(),
                });
                return false;
            }
        };
        let mut needs_metadata = false;
        for topic in &response.topics {
            let topic_name: Arc<str> = topic.topic.into();
            for answer in &topic.partitions {
                let name = TopicPartition::new(Arc::clone(&topic_name), answer.partition);
                if let Some(ask) = ticket.asked.get(&name) {
                    needs_metadata |= take_answer(&name, ask, answer, state);
                }
            }
        }
        needs_metadata
    }
}

/// A position with a leader epoch is checked once under every new leader epoch.
fn doubt_after_leader_changes(state: &mut ExchangeState, snapshot: &Snapshot) {
    let mut doubtful = Vec::new();
    for (name, partition) in state.assignment.iter_mut() {
        let (Phase::Fetching, Some(position)) = (partition.phase, partition.position) else {
            continue;
        };
        partition.look_up(snapshot, name);
        let Some((_, leader_epoch)) = partition.leader() else {
            continue;
        };
        if leader_epoch <= partition.validated_leader_epoch {
            continue;
        }
        match position.leader_epoch {
            // A leader never truncates what it wrote in its own epoch.
            Some(epoch) if epoch < leader_epoch => doubtful.push(name.clone()),
            _ => partition.validated_leader_epoch = leader_epoch,
        }
    }
    for name in doubtful {
        state.assignment.doubt(&name);
    }
}

fn complete(name: &TopicPartition, ask: &AskedEpochs, state: &mut ExchangeState) {
    if let Some(partition) = state.assignment.current(name, ask.version) {
        partition.phase = Phase::Fetching;
        partition.validated_leader_epoch = ask.leader_epoch;
        partition.not_before = Moment::from_nanos(0);
        state.assignment.note_position();
    }
}

/// Returns true when the metadata is outdated.
fn take_answer(
    name: &TopicPartition,
    ask: &AskedEpochs,
    answer: &EpochEndOffset,
    state: &mut ExchangeState,
) -> bool {
    let is_current = state
        .assignment
        .current(name, ask.version)
        .is_some_and(|partition| partition.phase == Phase::Validation);
    if !is_current {
        return false;
    }
    if let Some(error) = Error::from_code(answer.error_code, || name.to_string().into()) {
        let is_retriable = error.is_retriable();
        if !is_retriable {
            state.report(error);
        }
        return is_retriable;
    }
    let is_known = answer.leader_epoch >= 0 && answer.end_offset >= 0;
    if is_known && answer.end_offset >= ask.position.offset {
        complete(name, ask, state);
        return false;
    }
    let divergent = is_known.then_some(Position {
        offset: answer.end_offset,
        leader_epoch: Some(answer.leader_epoch),
    });
    take_truncation(name, ask, divergent, state);
    false
}

/// The log was truncated before the position. With a reset policy the consumer continues where the
/// logs diverge, or, if that is not known, where the policy says; without one the application must
/// decide.
fn take_truncation(
    name: &TopicPartition,
    ask: &AskedEpochs,
    divergent: Option<Position>,
    state: &mut ExchangeState,
) {
    if state.assignment.reset_policy().is_none() {
        // Every attempt reports it again, until the application seeks.
        state.report(Error::LogTruncated {
            topic: Arc::clone(&name.topic),
            partition: name.partition,
            offset: ask.position.offset,
            divergent_offset: divergent.map(|position| position.offset),
        });
        return;
    }
    match divergent {
        Some(position) => {
            let is_assigned = state.assignment.seek(name, position).is_ok();
            if is_assigned && let Some(partition) = state.assignment.get_mut(name) {
                partition.validated_leader_epoch = ask.leader_epoch;
            }
        }
        // With a policy it cannot fail.
        None => {
            let _ = state.assignment.reset_by_policy(name);
        }
    }
}

fn encode(api_version: i16, asked: &BTreeMap<TopicPartition, AskedEpochs>) -> Bytes {
    let mut topics: Vec<OffsetForLeaderTopic<'_>> = Vec::new();
    for (name, ask) in asked {
        let partition = OffsetForLeaderPartition {
            partition: name.partition,
            current_leader_epoch: ask.leader_epoch,
            leader_epoch: ask.position.leader_epoch.unwrap_or(-1),
        };
        match topics.last_mut() {
            Some(topic) if topic.topic == &*name.topic => topic.partitions.push(partition),
            _ => topics.push(OffsetForLeaderTopic {
                topic: &name.topic,
                partitions: vec![partition],
            }),
        }
    }
    let request = OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics,
    };
    let mut body = Vec::new();
    request.encode(&mut body, api_version);
    body.into()
}
