//! Offsets by time: ListOffsets for partitions without a position, and for the application's
//! lookups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic,
};
use ottla_wire::primitives::Reader;

use super::exchange::ExchangeState;
use super::position::{Phase, Position, ResetTo};
use super::topic_partition::{OffsetAndTimestamp, TopicPartition};
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::Action;
use crate::pending::Promise;
use crate::time::{Moment, Timestamp};

/// Encodes the end of the log, or the last stable offset with `read_committed`.
pub const LATEST: i64 = -1;
/// Encodes the start of the log.
pub const EARLIEST: i64 = -2;

/// The result of a lookup. Partitions without a record at or after their time are left out.
pub type FoundOffsets = BTreeMap<TopicPartition, OffsetAndTimestamp>;

/// Kept with a ListOffsets request until its reply.
#[derive(Clone, Debug)]
pub struct OffsetsTicket {
    purpose: Purpose,
    asked: BTreeMap<TopicPartition, AskedTimes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// For positions; valid where the partition's version is unchanged.
    Reset,
    /// For the lookup with this number.
    Question(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskedTimes {
    timestamp: i64,
    leader_epoch: i32,
    version: u64,
}

/// A lookup of the application.
#[derive(Debug)]
struct Question {
    remaining: BTreeMap<TopicPartition, i64>,
    asked: BTreeSet<TopicPartition>,
    found: FoundOffsets,
    not_before: Moment,
    deadline: Moment,
    promise: Promise<FoundOffsets>,
}

/// The partitions to ask each node for, for one purpose.
type Asks = BTreeMap<NodeId, BTreeMap<TopicPartition, AskedTimes>>;

/// The lookups in progress.
#[derive(Debug)]
pub struct OffsetsByTime {
    config: Arc<ConsumerConfig>,
    questions: BTreeMap<u64, Question>,
    next_question: u64,
    next_deadline: Option<Moment>,
}

impl OffsetsByTime {
    pub fn new(config: Arc<ConsumerConfig>) -> OffsetsByTime {
        OffsetsByTime {
            config,
            questions: BTreeMap::new(),
            next_question: 0,
            next_deadline: None,
        }
    }

    /// Starts a lookup for the application. A timestamp may be `LATEST` or `EARLIEST`.
    pub fn ask(
        &mut self,
        targets: BTreeMap<TopicPartition, i64>,
        deadline: Moment,
        promise: Promise<FoundOffsets>,
    ) {
        let question = Question {
            remaining: targets,
            asked: BTreeSet::new(),
            found: BTreeMap::new(),
            not_before: Moment::from_nanos(0),
            deadline,
            promise,
        };
        self.questions.insert(self.next_question, question);
        self.next_question += 1;
    }

    /// All brokers refuse this client: no lookup would be answered.
    pub fn fail_all(&mut self, error: &Error) {
        for (_, question) in std::mem::take(&mut self.questions) {
            question.promise.fulfil(Err(error.clone()));
        }
    }

    /// Topics whose leaders must be known.
    pub fn topics(&self) -> BTreeSet<Arc<str>> {
        let questions = self.questions.values();
        questions
            .flat_map(|question| question.remaining.keys())
            .map(|name| Arc::clone(&name.topic))
            .collect()
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline
    }

    /// Sends what is due and ends lookups whose time is over. True when a leader is missing.
    #[expect(
        clippy::too_many_arguments,
        reason = "the cluster, its output and both clocks"
    )]
    pub fn send<T>(
        &mut self,
        now: Moment,
        wall: Timestamp,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
        cluster: &mut Cluster<T>,
        ticket: impl Fn(OffsetsTicket) -> T,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.next_deadline = None;
        let mut needs_metadata = false;
        let mut batches = vec![(
            Purpose::Reset,
            self.resets(now, wall, state, snapshot, &mut needs_metadata),
        )];
        for (number, asks) in self.due_questions(now, snapshot, &mut needs_metadata) {
            batches.push((Purpose::Question(number), asks));
        }
        for (purpose, asks) in batches {
            for (node, asked) in asks {
                needs_metadata |= !self.send_to(now, node, purpose, asked, state, cluster, &ticket, actions);
            }
        }
        needs_metadata
    }

    fn wake_at(&mut self, moment: Moment) {
        self.next_deadline = Some(self.next_deadline.map_or(moment, |known| known.min(moment)));
    }

    fn resets(
        &mut self,
        now: Moment,
        wall: Timestamp,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
        needs_metadata: &mut bool,
    ) -> Asks {
        let mut asks = Asks::new();
        for (name, partition) in state.assignment.iter_mut() {
            let Phase::Reset(to) = partition.phase else {
                continue;
            };
            if !partition.may_ask(now) {
                if !partition.is_asked && !partition.is_held {
                    self.wake_at(partition.not_before);
                }
                continue;
            }
            partition.look_up(snapshot, name);
            let Some((node, leader_epoch)) = partition.leader() else {
                *needs_metadata = true;
                continue;
            };
            let timestamp = match to {
                ResetTo::Earliest => EARLIEST,
                ResetTo::Latest => LATEST,
                ResetTo::Timestamp(timestamp) => timestamp,
                ResetTo::Duration { ms } => {
                    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
                    wall.0.saturating_sub(ms).max(0)
                }
            };
            let asked = AskedTimes {
                timestamp,
                leader_epoch,
                version: partition.version,
            };
            asks.entry(node).or_default().insert(name.clone(), asked);
        }
        asks
    }

    fn due_questions(
        &mut self,
        now: Moment,
        snapshot: &Snapshot,
        needs_metadata: &mut bool,
    ) -> Vec<(u64, Asks)> {
        let mut due = Vec::new();
        let mut ended = Vec::new();
        let mut wake_at = Vec::new();
        for (&number, question) in &self.questions {
            if now >= question.deadline {
                ended.push((number, Err(self.timed_out())));
                continue;
            }
            wake_at.push(question.deadline);
            let refused = question.remaining.keys();
            let refused = refused
                .filter_map(|name| snapshot.refused.get(&name.topic))
                .next();
            if let Some(error) = refused {
                ended.push((number, Err(error.clone())));
                continue;
            }
            if question.remaining.is_empty() {
                ended.push((number, Ok(())));
                continue;
            }
            if now < question.not_before {
                wake_at.push(question.not_before);
                continue;
            }
            let mut asks = Asks::new();
            for (name, &timestamp) in &question.remaining {
                if question.asked.contains(name) {
                    continue;
                }
                let index = usize::try_from(name.partition).unwrap_or(usize::MAX);
                let known = snapshot
                    .topic(&name.topic)
                    .and_then(|topic| topic.partitions.get(index));
                let Some((node, known)) = known.and_then(|known| Some((known.leader?, known))) else {
                    *needs_metadata = true;
                    continue;
                };
                let asked = AskedTimes {
                    timestamp,
                    leader_epoch: known.leader_epoch,
                    version: 0,
                };
                asks.entry(node).or_default().insert(name.clone(), asked);
            }
            due.push((number, asks));
        }
        for moment in wake_at {
            self.wake_at(moment);
        }
        for (number, result) in ended {
            if let Some(question) = self.questions.remove(&number) {
                question.promise.fulfil(result.map(|()| question.found));
            }
        }
        due
    }

    fn timed_out(&self) -> Error {
        Error::Timeout {
            what: "looking up offsets".into(),
            limit_ms: self.config.default_api_timeout_ms,
            setting: "default.api.timeout.ms",
        }
    }

    /// False when the node cannot be reached.
    #[expect(
        clippy::too_many_arguments,
        reason = "one request, its purpose and where it goes"
    )]
    fn send_to<T>(
        &mut self,
        now: Moment,
        node: NodeId,
        purpose: Purpose,
        asked: BTreeMap<TopicPartition, AskedTimes>,
        state: &mut ExchangeState,
        cluster: &mut Cluster<T>,
        ticket: &impl Fn(OffsetsTicket) -> T,
        actions: &mut Vec<Action>,
    ) -> bool {
        match cluster.readiness(now, node) {
            Readiness::Ready => {}
            Readiness::Connecting => return true,
            Readiness::BackingOff(_) => return false,
            Readiness::Impossible(error) => {
                self.fail(now, purpose, &asked, state, error);
                return false;
            }
        }
        let needed_min = if self.config.read_committed { 2 } else { 1 };
        let api_version = match cluster.version(node, ApiKey::ListOffsets, needed_min) {
            Ok(version) => version,
            Err(error) => {
                self.fail(now, purpose, &asked, state, error);
                return true;
            }
        };
        match purpose {
            Purpose::Reset => {
                for name in asked.keys() {
                    if let Some(partition) = state.assignment.get_mut(name) {
                        partition.is_asked = true;
                    }
                }
            }
            Purpose::Question(number) => {
                if let Some(question) = self.questions.get_mut(&number) {
                    question.asked.extend(asked.keys().cloned());
                }
            }
        }
        let request = Request {
            api_key: ApiKey::ListOffsets,
            api_version,
            body: vec![self.encode(api_version, &asked)],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        let ticket = ticket(OffsetsTicket { purpose, asked });
        cluster.send(now, node, request, ticket, actions);
        true
    }

    fn encode(&self, api_version: i16, asked: &BTreeMap<TopicPartition, AskedTimes>) -> Bytes {
        let mut topics: Vec<ListOffsetsTopic<'_>> = Vec::new();
        for (name, ask) in asked {
            let partition = ListOffsetsPartition {
                partition_index: name.partition,
                current_leader_epoch: ask.leader_epoch,
                timestamp: ask.timestamp,
            };
            match topics.last_mut() {
                Some(topic) if topic.name == &*name.topic => topic.partitions.push(partition),
                _ => topics.push(ListOffsetsTopic {
                    name: &name.topic,
                    partitions: vec![partition],
                }),
            }
        }
        let request = ListOffsetsRequest {
            replica_id: -1,
            isolation_level: i8::from(self.config.read_committed),
            topics,
            timeout_ms: i32::try_from(self.config.client.request_timeout_ms).unwrap_or(i32::MAX),
        };
        let mut body = Vec::new();
        request.encode(&mut body, api_version);
        body.into()
    }

    /// Fails everything asked in one request: retriable errors are retried after the backoff.
    fn fail(
        &mut self,
        now: Moment,
        purpose: Purpose,
        asked: &BTreeMap<TopicPartition, AskedTimes>,
        state: &mut ExchangeState,
        error: Error,
    ) {
        for (name, ask) in asked {
            self.fail_one(now, purpose, name, ask, state, error.clone());
        }
    }

    fn fail_one(
        &mut self,
        now: Moment,
        purpose: Purpose,
        name: &TopicPartition,
        ask: &AskedTimes,
        state: &mut ExchangeState,
        error: Error,
    ) {
        let not_before = now.after_ms(self.config.client.retry_backoff_ms);
        // A node that the metadata no longer contains is replaced by the next metadata response.
        let is_lasting = !error.is_retriable() && !matches!(error, Error::IllegalState { .. });
        match purpose {
            Purpose::Reset => {
                if let Some(partition) = state.assignment.current(name, ask.version) {
                    partition.is_asked = false;
                    partition.not_before = not_before;
                    if is_lasting {
                        state.report(error);
                    }
                }
            }
            Purpose::Question(number) => {
                let Some(question) = self.questions.get_mut(&number) else {
                    return;
                };
                question.asked.remove(name);
                question.not_before = not_before;
                if is_lasting && let Some(question) = self.questions.remove(&number) {
                    question.promise.fulfil(Err(error));
                }
            }
        }
    }

    /// Returns true when the metadata is outdated.
    pub fn take_reply<T>(
        &mut self,
        now: Moment,
        reply: &Reply<T>,
        ticket: &OffsetsTicket,
        state: &mut ExchangeState,
    ) -> bool {
        let OffsetsTicket { purpose, asked } = ticket;
        let frame = match &reply.result {
            Ok(frame) => frame,
            Err(error) => {
                self.fail(now, *purpose, asked, state, error.clone());
                return true;
            }
        };
        let mut reader = Reader::new(frame);
        let response = match ListOffsetsResponse::decode(&mut reader, reply.api_version) {
            Ok(response) => response,
            Err(error) => {
                let error = Error::Malformed {
                    address: format!("node {}", reply.node.0).into(),
                    reason: format!("list offsets response: {error}").into(),
                };
                self.fail(now, *purpose, asked, state, error);
                return false;
            }
        };
        let mut needs_metadata = false;
        let mut unanswered = asked.clone();
        for topic in &response.topics {
            let topic_name: Arc<str> = topic.name.into();
            for answer in &topic.partitions {
                let name = TopicPartition::new(Arc::clone(&topic_name), answer.partition_index);
                // Partitions that this request did not contain are ignored.
                if let Some(ask) = unanswered.remove(&name) {
                    needs_metadata |= self.take_answer(now, *purpose, &name, &ask, answer, state);
                }
            }
        }
        if !unanswered.is_empty() {
            let error = Error::broker(ErrorCode::UnknownServerError, "partitions left out of the answer");
            for (name, ask) in &unanswered {
                let retriable = Error::Disconnected {
                    address: format!("node {}", reply.node.0).into(),
                    reason: error.to_string().into(),
                };
                self.fail_one(now, *purpose, name, ask, state, retriable);
            }
        }
        needs_metadata
    }

    fn take_answer(
        &mut self,
        now: Moment,
        purpose: Purpose,
        name: &TopicPartition,
        ask: &AskedTimes,
        answer: &ListOffsetsPartitionResponse,
        state: &mut ExchangeState,
    ) -> bool {
        // Records of an older format have no timestamps to search: treated as no match.
        const NO_TIMES: i16 = ErrorCode::UnsupportedForMessageFormat as i16;
        if answer.error_code != 0 && answer.error_code != NO_TIMES {
            let error = Error::from_code(answer.error_code, || name.to_string().into());
            let error = error.expect("a code that is not 0 is an error");
            let is_retriable = error.is_retriable();
            self.fail_one(now, purpose, name, ask, state, error);
            return is_retriable;
        }
        let found = (answer.error_code == 0 && answer.offset >= 0).then_some(OffsetAndTimestamp {
            offset: answer.offset,
            timestamp: answer.timestamp,
            leader_epoch: (answer.leader_epoch >= 0).then_some(answer.leader_epoch),
        });
        match purpose {
            Purpose::Reset => self.take_reset(name, ask, found, state),
            Purpose::Question(number) => {
                if let Some(question) = self.questions.get_mut(&number) {
                    question.asked.remove(name);
                    question.remaining.remove(name);
                    if let Some(found) = found {
                        question.found.insert(name.clone(), found);
                    }
                }
            }
        }
        false
    }

    fn take_reset(
        &self,
        name: &TopicPartition,
        ask: &AskedTimes,
        found: Option<OffsetAndTimestamp>,
        state: &mut ExchangeState,
    ) {
        let Some(partition) = state.assignment.current(name, ask.version) else {
            return;
        };
        partition.is_asked = false;
        let Some(found) = found else {
            // No record is that recent: start at the end.
            partition.phase = Phase::Reset(ResetTo::Latest);
            return;
        };
        let position = Position {
            offset: found.offset,
            leader_epoch: found.leader_epoch,
        };
        events::offset_reset(&self.config.client.client_id, name, found.offset);
        partition.phase = Phase::Fetching;
        partition.position = Some(position);
        partition.fetch_position = Some(position);
        // The offset comes from the leader itself.
        partition.validated_leader_epoch = ask.leader_epoch;
        state.assignment.note_position();
    }
}
