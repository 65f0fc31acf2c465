//! Plans fetches: which node is asked for which partitions and when, and how the responses are
//! handled.
//!
//! Back pressure: a node has at most one fetch in flight. It is asked again while the application
//! reads its last response, so that network and decoding overlap, but not before the response
//! before that has been read to the end. So at most two responses of a node are in memory, 2 ×
//! `fetch.max.bytes` × nodes, plus what the `ConsumerRecords` kept by the application hold. A batch
//! larger than the limits comes alone and counts as a response. A paused partition keeps a copy of
//! its fetched data, at most two chunks of `max.partition.fetch.bytes`.
//!
//! Every fetch names all fetchable partitions of the node, so that the session (KIP-227) rarely
//! changes and no partition waits for the `fetch.max.wait.ms` of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic, PartitionData,
};
use ottla_wire::primitives::{Reader, Uuid};

use super::assignment::UNREAD_CHUNKS_MAX;
use super::chunk::{Chunk, ChunkReading, FetchAnswer, extent};
use super::exchange::ExchangeState;
use super::position::{LeaderHint, Phase};
use super::session::{Ask, FINAL_EPOCH, FetchSession, SessionRequest};
use super::topic_partition::TopicPartition;
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::metrics::ConsumerMetrics;
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::Action;
use crate::time::Moment;

/// Responses of one node that may be in memory: the one being read, and the next.
const UNREAD_ANSWERS_MAX: usize = 2;
/// Topic ids instead of names (KIP-516).
const TOPIC_ID_VERSION: i16 = 13;
/// From this version on the client, not the broker, waits out the throttle time (KIP-219).
const THROTTLING_VERSION: i16 = 8;
/// The oldest version with the current batch format; it has no sessions yet.
const OLDEST_VERSION: i16 = 4;

/// Plans fetches and handles their responses.
#[derive(Debug)]
pub struct Fetcher {
    config: Arc<ConsumerConfig>,
    metrics: Arc<ConsumerMetrics>,
    /// A leader has named a follower to fetch from; until then no partition can have one.
    has_seen_replicas: bool,
    nodes: BTreeMap<NodeId, NodeFetch>,
    next_deadline: Option<Moment>,
}

#[derive(Debug, Default)]
struct NodeFetch {
    session: FetchSession,
    is_in_flight: bool,
    unread: Vec<Weak<FetchAnswer>>,
    not_before: Moment,
}

impl NodeFetch {
    fn may_send(&mut self, now: Moment) -> bool {
        if self.is_in_flight || now < self.not_before {
            return false;
        }
        self.unread.retain(|answer| answer.strong_count() > 0);
        self.unread.len() < UNREAD_ANSWERS_MAX
    }
}

/// What a reply requires of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Consequences {
    pub needs_metadata: bool,
    /// The response violates the protocol: close the connection.
    pub must_disconnect: bool,
    /// KIP-219: the broker has answered at once and wants no request for this many milliseconds.
    pub throttle_ms: u32,
}

impl Fetcher {
    pub fn new(config: Arc<ConsumerConfig>, metrics: Arc<ConsumerMetrics>) -> Fetcher {
        Fetcher {
            config,
            metrics,
            has_seen_replicas: false,
            nodes: BTreeMap::new(),
            next_deadline: None,
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline
    }

    /// Sends the fetches that are due. True when the leader of a partition is not known.
    pub fn send<T>(
        &mut self,
        now: Moment,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
        cluster: &mut Cluster<T>,
        ticket: impl Fn() -> T,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.next_deadline = None;
        let (wanted, mut needs_metadata) = self.wanted(now, state, snapshot);
        for (node, asks) in wanted {
            match cluster.readiness(now, node) {
                Readiness::Ready => {
                    let request = match self.request(node, asks, cluster) {
                        Ok(request) => request,
                        Err(error) => {
                            state.report(error);
                            self.delay(node, now);
                            continue;
                        }
                    };
                    cluster.send(now, node, request, ticket(), actions);
                }
                Readiness::Connecting => {}
                Readiness::BackingOff(_) => {
                    needs_metadata = true;
                    forget_replica(state, asks.keys(), node);
                }
                Readiness::Impossible(error) => {
                    // An unknown node is one that the metadata no longer contains.
                    needs_metadata = true;
                    forget_replica(state, asks.keys(), node);
                    if matches!(error, Error::Authentication { .. } | Error::Tls { .. }) {
                        state.report(error);
                    }
                    self.delay(node, now);
                }
            }
        }
        needs_metadata
    }

    fn delay(&mut self, node: NodeId, now: Moment) {
        let until = now.after_ms(self.config.client.retry_backoff_ms);
        self.nodes.entry(node).or_default().not_before = until;
        self.wake_at(until);
    }

    fn wake_at(&mut self, moment: Moment) {
        self.next_deadline = Some(self.next_deadline.map_or(moment, |known| known.min(moment)));
    }

    /// By node, everything that can be fetched; and whether a leader is missing.
    fn wanted(
        &mut self,
        now: Moment,
        state: &mut ExchangeState,
        snapshot: &Snapshot,
    ) -> (BTreeMap<NodeId, BTreeMap<TopicPartition, Ask>>, bool) {
        let mut wanted: BTreeMap<NodeId, BTreeMap<TopicPartition, Ask>> = BTreeMap::new();
        let mut may_send: BTreeMap<NodeId, bool> = BTreeMap::new();
        let mut needs_metadata = false;
        let bytes_max = i32::try_from(self.config.partition_fetch_bytes_max).unwrap_or(i32::MAX);
        for (name, partition) in state.assignment.iter_mut() {
            partition.look_up(snapshot, name);
            let Some(from) = partition.fetch_position else {
                continue;
            };
            if partition.phase != Phase::Fetching
                || partition.is_paused
                || partition.is_held
                || partition.is_broken
                || partition.unread_chunks >= UNREAD_CHUNKS_MAX
            {
                continue;
            }
            if now < partition.not_before {
                self.wake_at(partition.not_before);
                continue;
            }
            let (Some(node), Some((_, leader_epoch))) = (partition.fetch_node(now), partition.leader())
            else {
                needs_metadata = true;
                continue;
            };
            let may_send = *may_send
                .entry(node)
                .or_insert_with(|| self.nodes.entry(node).or_default().may_send(now));
            if may_send {
                let ask = Ask {
                    topic_id: partition.topic_id,
                    fetch_offset: from.offset,
                    leader_epoch,
                    bytes_max,
                    version: partition.version,
                };
                wanted.entry(node).or_default().insert(name.clone(), ask);
            } else if let Some(until) = self.nodes.get(&node).map(|node| node.not_before)
                && now < until
            {
                self.wake_at(until);
            }
        }
        (wanted, needs_metadata)
    }

    fn request<T>(
        &mut self,
        node: NodeId,
        asks: BTreeMap<TopicPartition, Ask>,
        cluster: &Cluster<T>,
    ) -> Result<Request, Error> {
        let newest = cluster.version(node, ApiKey::Fetch, OLDEST_VERSION)?;
        let uses_topic_ids =
            newest >= TOPIC_ID_VERSION && asks.values().all(|ask| ask.topic_id != Uuid::ZERO);
        let api_version = if uses_topic_ids {
            newest
        } else {
            newest.min(TOPIC_ID_VERSION - 1)
        };
        let fetch = self.nodes.entry(node).or_default();
        let session = fetch.session.next_request(asks, uses_topic_ids);
        fetch.is_in_flight = true;
        Ok(Request {
            api_key: ApiKey::Fetch,
            api_version,
            body: vec![encode(&self.config, api_version, &session)],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        })
    }

    /// Requests that close the open sessions, so that the brokers need not remember them.
    pub fn closing_requests<T>(&mut self, cluster: &Cluster<T>) -> Vec<(NodeId, Request)> {
        let mut requests = Vec::new();
        for (node, fetch) in std::mem::take(&mut self.nodes) {
            let version = cluster.version(node, ApiKey::Fetch, OLDEST_VERSION);
            if let (Some(session_id), Ok(api_version)) = (fetch.session.open_id(), version) {
                let session = SessionRequest {
                    session_id,
                    session_epoch: FINAL_EPOCH,
                    named: Vec::new(),
                    forgotten: Vec::new(),
                };
                let request = Request {
                    api_key: ApiKey::Fetch,
                    api_version,
                    body: vec![encode(&self.config, api_version, &session)],
                    timeout_ms: self.config.client.request_timeout_ms,
                    expects_answer: true,
                };
                requests.push((node, request));
            }
        }
        requests
    }

    pub fn take_reply<T>(
        &mut self,
        now: Moment,
        reply: &Reply<T>,
        state: &mut ExchangeState,
    ) -> Consequences {
        let Some(fetch) = self.nodes.get_mut(&reply.node) else {
            return Consequences::default();
        };
        fetch.is_in_flight = false;
        let frame = match &reply.result {
            Ok(frame) => frame,
            Err(_) => {
                // The request's effect is unknown, and so is the session's state.
                fetch.session.fail();
                forget_replica(
                    state,
                    fetch.session.partitions().map(|(name, _)| name),
                    reply.node,
                );
                self.delay(reply.node, now);
                return Consequences {
                    needs_metadata: true,
                    ..Consequences::default()
                };
            }
        };
        let mut reader = Reader::new(frame);
        let response = FetchResponse::decode(&mut reader, reply.api_version)
            .and_then(|response| reader.finish().map(|()| response));
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                fetch.session.fail();
                state.report(Error::Malformed {
                    address: format!("node {}", reply.node.0).into(),
                    reason: format!("fetch response: {error}").into(),
                });
                self.delay(reply.node, now);
                return Consequences {
                    must_disconnect: true,
                    ..Consequences::default()
                };
            }
        };
        let throttle_ms = u32::try_from(response.throttle_time_ms).unwrap_or(0);
        self.metrics
            .fetch_answered(reply.node.0, reply.latency_nanos, throttle_ms);
        // Brokers of older versions have already delayed the response.
        let must_wait = reply.api_version >= THROTTLING_VERSION;
        if must_wait && let Some(fetch) = self.nodes.get_mut(&reply.node) {
            fetch.not_before = now.after_ms(throttle_ms.into());
        }
        Consequences {
            throttle_ms: if must_wait { throttle_ms } else { 0 },
            ..self.take_response(now, reply, frame, response, state)
        }
    }

    fn take_response<T>(
        &mut self,
        now: Moment,
        reply: &Reply<T>,
        frame: &Bytes,
        response: FetchResponse<'_>,
        state: &mut ExchangeState,
    ) -> Consequences {
        let node = reply.node;
        let fetch = self.nodes.entry(node).or_default();
        if let Some(error) = Error::from_code(response.error_code, || "fetch".into()) {
            match &error {
                Error::Broker {
                    code: ErrorCode::FetchSessionIdNotFound,
                    ..
                } => fetch.session.forget(),
                _ => fetch.session.fail(),
            }
            if !is_session_error(&error) {
                if !error.is_retriable() {
                    state.report(error);
                }
                self.delay(node, now);
            }
            return Consequences::default();
        }
        let mut named = Vec::new();
        for topic in &response.responses {
            let name = if reply.api_version >= TOPIC_ID_VERSION {
                fetch.session.topic(&topic.topic_id).cloned()
            } else {
                Some(Arc::from(topic.topic))
            };
            // An unknown id gets a name that no request contains, so that it is ignored.
            let name = name.unwrap_or_else(|| Arc::from(""));
            for data in &topic.partitions {
                named.push((TopicPartition::new(Arc::clone(&name), data.partition_index), data));
            }
        }
        let answered = named.iter().map(|(name, _)| name);
        if fetch.session.accept(response.session_id, answered).is_err() {
            self.delay(node, now);
            return Consequences::default();
        }
        let answer = FetchAnswer::new();
        let mut consequences = Consequences::default();
        let mut taking = Taking {
            config: &self.config,
            now,
            answer: &answer,
            frame,
        };
        for (name, data) in named {
            if let Some(ask) = fetch.session.asked(&name) {
                consequences.needs_metadata |= taking.take(name.clone(), ask, data, state);
                self.has_seen_replicas |= data.preferred_read_replica >= 0;
                if self.has_seen_replicas {
                    let partition = state.assignment.current(&name, ask.version);
                    let replica = partition.and_then(|partition| partition.preferred_replica);
                    let node = replica.map(|(node, _)| node.0);
                    self.metrics
                        .preferred_read_replica(&name.topic, name.partition, node);
                }
            }
        }
        if Arc::strong_count(&answer) > 1 {
            fetch.unread.push(Arc::downgrade(&answer));
        }
        consequences
    }
}

/// What all partitions of one response share.
struct Taking<'a> {
    config: &'a ConsumerConfig,
    now: Moment,
    answer: &'a Arc<FetchAnswer>,
    frame: &'a Bytes,
}

impl Taking<'_> {
    /// Returns true when the metadata is outdated.
    fn take(
        &mut self,
        name: TopicPartition,
        ask: &Ask,
        data: &PartitionData<'_>,
        state: &mut ExchangeState,
    ) -> bool {
        let Some(partition) = state.assignment.current(&name, ask.version) else {
            return false;
        };
        let is_current = partition.phase == Phase::Fetching
            && partition
                .fetch_position
                .is_some_and(|position| position.offset == ask.fetch_offset);
        if !is_current {
            return false;
        }
        if data.error_code != 0 {
            return self.take_error(name, data, state);
        }
        partition.log_start_offset = data.log_start_offset;
        partition.readable_end_offset = if self.config.read_committed {
            data.last_stable_offset
        } else {
            data.high_watermark
        };
        if data.preferred_read_replica >= 0 {
            let until = self.now.after_ms(self.config.client.metadata_age_ms_max);
            partition.preferred_replica = Some((NodeId(data.preferred_read_replica), until));
        }
        match data.records {
            Some(records) if !records.is_empty() => self.take_records(name, ask, data, records, state),
            _ => {}
        }
        false
    }

    fn take_records(
        &mut self,
        name: TopicPartition,
        ask: &Ask,
        data: &PartitionData<'_>,
        records: &[u8],
        state: &mut ExchangeState,
    ) {
        let Some(partition) = state.assignment.current(&name, ask.version) else {
            return;
        };
        let Some(from) = partition.fetch_position else {
            return;
        };
        let extent = extent(records);
        partition.is_broken = extent.is_broken;
        match extent.end {
            Some(end) if end.offset > from.offset => partition.fetch_position = Some(end),
            // Only batches before the position: fetching again at once would loop.
            _ if !extent.is_broken => {
                partition.not_before = self.now.after_ms(self.config.client.retry_backoff_ms);
                return;
            }
            _ => {}
        }
        let reading = ChunkReading {
            checks_crcs: self.config.check_crcs,
            read_committed: self.config.read_committed,
        };
        let aborted = data.aborted_transactions.clone().unwrap_or_default();
        state.assignment.add_chunk(Chunk::new(
            name,
            ask.version,
            Arc::clone(self.answer),
            reading,
            from,
            self.frame.slice_ref(records),
            aborted,
        ));
    }

    /// Handles a partition's error, after Kafka's table. Returns true when the metadata is
    /// outdated.
    fn take_error(&self, name: TopicPartition, data: &PartitionData<'_>, state: &mut ExchangeState) -> bool {
        let Some(partition) = state.assignment.get_mut(&name) else {
            return false;
        };
        partition.not_before = self.now.after_ms(self.config.client.retry_backoff_ms);
        let had_replica = partition.preferred_replica.take().is_some();
        let code = ErrorCode::from_i16(data.error_code);
        match code {
            Some(ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch) => {
                let asked_epoch = partition.leader().map_or(-1, |(_, leader_epoch)| leader_epoch);
                match Taking::hint(data) {
                    Some(hint) if hint.leader_epoch > asked_epoch => {
                        partition.leader_hint = Some(hint);
                        partition.not_before = self.now;
                    }
                    _ => partition.forget_leader(),
                }
                true
            }
            // These can only be resolved by newer metadata.
            Some(
                ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
                | ErrorCode::InconsistentTopicId,
            ) => {
                partition.forget_leader();
                true
            }
            Some(ErrorCode::UnknownLeaderEpoch) => {
                partition.leader_hint = None;
                true
            }
            Some(
                ErrorCode::ReplicaNotAvailable
                | ErrorCode::KafkaStorageError
                | ErrorCode::OffsetNotAvailable
                | ErrorCode::LeaderNotAvailable,
            ) => true,
            Some(ErrorCode::OffsetOutOfRange) => {
                self.take_out_of_range(&name, had_replica, state);
                false
            }
            _ => {
                if let Some(error) = Error::from_code(data.error_code, || name.to_string().into())
                    && !error.is_retriable()
                    && code != Some(ErrorCode::UnknownServerError)
                {
                    state.report(error);
                }
                false
            }
        }
    }

    fn take_out_of_range(&self, name: &TopicPartition, had_replica: bool, state: &mut ExchangeState) {
        let Some(partition) = state.assignment.get(name) else {
            return;
        };
        let position = partition.position;
        // A follower may lag: ask the leader first. And buffered records must be read before an
        // error about what follows them is reported.
        if had_replica || position != partition.fetch_position {
            return;
        }
        let offset = position.map_or(-1, |position| position.offset);
        events::out_of_range(&self.config.client.client_id, name, offset);
        if state.assignment.reset_policy().is_some() {
            // With a policy it cannot fail.
            let _ = state.assignment.reset_by_policy(name);
        } else {
            let what = format!("{name} at offset {offset}, auto.offset.reset is none");
            state.report(Error::broker(ErrorCode::OffsetOutOfRange, what));
        }
    }

    /// KIP-951: the error response names the new leader.
    fn hint(data: &PartitionData<'_>) -> Option<LeaderHint> {
        let current = &data.current_leader;
        if current.leader_id < 0 || current.leader_epoch < 0 {
            return None;
        }
        Some(LeaderHint {
            node: NodeId(current.leader_id),
            leader_epoch: current.leader_epoch,
        })
    }
}

fn is_session_error(error: &Error) -> bool {
    matches!(
        error,
        Error::Broker {
            code: ErrorCode::FetchSessionIdNotFound
                | ErrorCode::InvalidFetchSessionEpoch
                | ErrorCode::FetchSessionTopicIdError,
            ..
        }
    )
}

/// The node cannot be reached: partitions that use it as preferred replica go back to the leader.
fn forget_replica<'a>(
    state: &mut ExchangeState,
    names: impl Iterator<Item = &'a TopicPartition>,
    node: NodeId,
) {
    for name in names {
        if let Some(partition) = state.assignment.get_mut(name)
            && partition
                .preferred_replica
                .is_some_and(|(replica, _)| replica == node)
        {
            partition.preferred_replica = None;
        }
    }
}

fn encode(config: &ConsumerConfig, api_version: i16, session: &SessionRequest) -> Bytes {
    let to_i32 = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let mut topics: Vec<FetchTopic<'_>> = Vec::new();
    for (name, ask) in &session.named {
        let partition = FetchPartition {
            partition: name.partition,
            current_leader_epoch: ask.leader_epoch,
            fetch_offset: ask.fetch_offset,
            partition_max_bytes: ask.bytes_max,
            ..FetchPartition::default()
        };
        match topics.last_mut() {
            Some(topic) if topic.topic == &*name.topic => topic.partitions.push(partition),
            _ => topics.push(FetchTopic {
                topic: &name.topic,
                topic_id: ask.topic_id,
                partitions: vec![partition],
            }),
        }
    }
    let mut forgotten: Vec<ForgottenTopic<'_>> = Vec::new();
    for (name, topic_id) in &session.forgotten {
        match forgotten.last_mut() {
            Some(topic) if topic.topic == &*name.topic && topic.topic_id == *topic_id => {
                topic.partitions.push(name.partition);
            }
            _ => forgotten.push(ForgottenTopic {
                topic: &name.topic,
                topic_id: *topic_id,
                partitions: vec![name.partition],
            }),
        }
    }
    let request = FetchRequest {
        max_wait_ms: to_i32(config.fetch_wait_ms_max),
        min_bytes: to_i32(config.fetch_bytes_min),
        max_bytes: to_i32(config.fetch_bytes_max),
        isolation_level: i8::from(config.read_committed),
        session_id: session.session_id,
        session_epoch: session.session_epoch,
        topics,
        forgotten_topics_data: forgotten,
        rack_id: if api_version >= 11 {
            &config.client.client_rack
        } else {
            ""
        },
        ..FetchRequest::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, api_version);
    body.into()
}
