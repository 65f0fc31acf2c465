//! The sender: decides which batches go to which broker in one request, and when. It runs on the
//! driver's thread.
//!
//! Reading order: `turn` is one round; `plan` finds ready batches; `send_to` fills requests for one
//! broker; answers.rs handles the responses, producer_id.rs gets the producer id.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::Uuid;

use super::accumulator::{Accumulator, PartitionQueue, QueueState};
use super::callbacks::CallbackQueue;
use super::commands::Commands;
use super::lane::{Lane, LanePlace, Readiness, Rules, Sent};
use super::request::{self, Entry};
use super::sequence::Identity;
use super::transaction::sending::Transactions;
use crate::config::{Acks, ProducerConfig};
use crate::error::Error;
use crate::events;
use crate::metadata::MetadataCell;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::metrics::telemetry::Telemetry;
use crate::metrics::{NetworkMetrics, ProducerMetrics};
use crate::network::backoff::{Backoff, Random};
use crate::network::cluster::{self, Cluster, Reply, Request};
use crate::network::io::{Action, Event, Machine};
use crate::time::{Moment, Timestamp};

/// The parts of a sender; all but `seed` are shared with the front.
#[derive(Debug)]
pub struct SenderParts {
    pub config: Arc<ProducerConfig>,
    pub metadata: Arc<MetadataCell>,
    pub accumulator: Arc<Accumulator>,
    pub commands: Arc<Commands>,
    pub callbacks: Arc<CallbackQueue>,
    pub metrics: Arc<ProducerMetrics>,
    pub network_metrics: Arc<NetworkMetrics>,
    pub telemetry: Telemetry,
    /// Seed of the jitter in backoffs.
    pub seed: u64,
}

/// What is kept with a request until its answer.
#[derive(Debug)]
pub(super) enum SenderTicket {
    Produce(Vec<Passenger>),
    InitProducerId,
    /// A request of the transaction to its coordinator.
    Transaction,
    FindCoordinator,
    Telemetry,
}

/// A batch in a produce request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passenger {
    pub lane: usize,
    pub place: LanePlace,
    pub topic_id: Uuid,
}

#[derive(Debug, Default)]
struct NodeState {
    /// Produce requests without an answer.
    in_flight: usize,
    /// Round robin: the lane behind the last one served; the next request begins there, so that
    /// none starves.
    next_lane: usize,
}

/// The producer's state machine.
#[derive(Debug)]
pub struct ProducerMachine {
    pub(super) config: Arc<ProducerConfig>,
    pub(super) accumulator: Arc<Accumulator>,
    pub(super) commands: Arc<Commands>,
    pub(super) callbacks: Arc<CallbackQueue>,
    pub(super) metrics: Arc<ProducerMetrics>,
    pub(super) cluster: Cluster<SenderTicket>,
    metadata: Arc<MetadataCell>,
    pub(super) telemetry: Telemetry,
    pub(super) identity: Identity,
    /// `None` without transactional.id.
    pub(super) transactions: Option<Box<Transactions>>,
    pub(super) backoff: Backoff,
    pub(super) random: Random,
    /// Every partition that ever had a record; indices never change.
    pub(super) lanes: Vec<Lane>,
    lane_by_partition: BTreeMap<Arc<str>, BTreeMap<i32, usize>>,
    /// Lanes with anything to do.
    pub(super) active: Vec<usize>,
    nodes: BTreeMap<NodeId, NodeState>,
    pub(super) replies: Vec<Reply<SenderTicket>>,
    deadline: Moment,
    is_finished: bool,
    activated: Vec<Arc<PartitionQueue>>,
    ready: Vec<(NodeId, usize)>,
    taken: Vec<(usize, Sent, Uuid)>,
    /// Returned ticket lists, reused by the next requests.
    spare_tickets: Vec<Vec<Passenger>>,
}

impl ProducerMachine {
    pub fn new(parts: SenderParts) -> ProducerMachine {
        let mut random = Random::new(parts.seed);
        let client = &parts.config.client;
        let cluster = Cluster::new(
            Arc::clone(client),
            Arc::clone(&parts.metadata),
            parts.network_metrics,
            random.next_u64(),
        );
        ProducerMachine {
            identity: Identity::new(parts.config.enable_idempotence),
            transactions: Transactions::new(&parts.config, &mut random),
            backoff: Backoff::new(client.retry_backoff_ms, client.retry_backoff_ms_max),
            config: parts.config,
            accumulator: parts.accumulator,
            commands: parts.commands,
            callbacks: parts.callbacks,
            metrics: parts.metrics,
            metadata: parts.metadata,
            telemetry: parts.telemetry,
            cluster,
            random,
            lanes: Vec::new(),
            lane_by_partition: BTreeMap::new(),
            active: Vec::new(),
            nodes: BTreeMap::new(),
            replies: Vec::new(),
            deadline: Moment::NEVER,
            is_finished: false,
            activated: Vec::new(),
            ready: Vec::new(),
            taken: Vec::new(),
            spare_tickets: Vec::new(),
        }
    }
}

impl Machine for ProducerMachine {
    fn handle(&mut self, now: Moment, event: Event) {
        self.cluster.handle(now, event, &mut self.replies);
    }

    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) {
        self.deadline = Moment::NEVER;
        self.take_replies(now, wall, actions);
        self.activate();
        self.fail_what_is_over(now);
        self.transact(now, actions);
        self.telemetry
            .turn(now, wall, &mut self.cluster, || SenderTicket::Telemetry, actions);
        if self.commands.fatal().is_none() {
            self.request_producer_id(now, actions);
            self.plan(now, actions);
            // Planning has met partitions that must be added before their batches can go.
            let must_add = |transactions: &mut Box<Transactions>| transactions.take_new_partition();
            if self.transactions.as_mut().is_some_and(must_add) {
                self.transact(now, actions);
            }
        }
        // Connections that were requested, and answers to requests that get none (acks=0), are
        // there only after a turn.
        if self.take_replies(now, wall, actions) {
            self.due_at(now);
        }
        self.check_end(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let own = Some(self.deadline).filter(|deadline| *deadline != Moment::NEVER);
        [own, self.cluster.next_deadline(), self.telemetry.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

impl ProducerMachine {
    /// Returns whether there were any.
    fn take_replies(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) -> bool {
        let mut replies = std::mem::take(&mut self.replies);
        self.cluster.turn(now, wall, &mut replies, actions);
        let has_replies = !replies.is_empty();
        for reply in replies.drain(..) {
            self.answered(now, reply, actions);
        }
        // `answered` may have closed a connection, which adds replies.
        replies.append(&mut self.replies);
        self.replies = replies;
        has_replies
    }

    pub(super) fn due_at(&mut self, moment: Moment) {
        self.deadline = self.deadline.min(moment);
    }

    /// When the next attempt is due, after `attempts` attempts.
    pub(super) fn retry_at(&mut self, now: Moment, attempts: u32) -> Moment {
        let nanos = self.backoff.nanos(attempts.saturating_sub(1), &mut self.random);
        Moment::from_nanos(now.nanos().saturating_add(nanos))
    }

    fn activate(&mut self) {
        let mut activated = std::mem::take(&mut self.activated);
        self.accumulator.take_activated(&mut activated);
        for queue in activated.drain(..) {
            let lane = self.lane_of(queue);
            if !self.lanes[lane].is_active {
                self.lanes[lane].is_active = true;
                self.active.push(lane);
            }
        }
        self.activated = activated;
    }

    fn lane_of(&mut self, queue: Arc<PartitionQueue>) -> usize {
        let known = self
            .lane_by_partition
            .get(&queue.topic)
            .and_then(|lanes| lanes.get(&queue.partition));
        if let Some(lane) = known {
            return *lane;
        }
        let lane = self.lanes.len();
        self.lane_by_partition
            .entry(Arc::clone(&queue.topic))
            .or_default()
            .insert(queue.partition, lane);
        self.lanes.push(Lane::new(queue));
        lane
    }

    /// Fails everything after a fatal error, and when `close` has waited long enough.
    fn fail_what_is_over(&mut self, now: Moment) {
        if let Some(error) = self.commands.fatal().cloned() {
            self.fail_all(&error);
        }
        match self.commands.close_deadline() {
            Some(deadline) if deadline <= now => self.fail_all(&Error::Closed),
            Some(deadline) => self.due_at(deadline),
            None => {}
        }
    }

    /// Ends `close` when no batch is left and the last metrics are pushed, or at its deadline.
    fn check_end(&mut self, now: Moment) {
        let Some(deadline) = self.commands.close_deadline() else {
            return;
        };
        if !self.active.is_empty() || self.accumulator.incomplete_batches() > 0 {
            return;
        }
        // A transaction that is being ended is ended first.
        if deadline > now
            && self
                .transactions
                .as_ref()
                .is_some_and(|transactions| transactions.is_busy())
        {
            return;
        }
        self.telemetry.close(now);
        self.is_finished = self.telemetry.is_closed(now) || deadline <= now;
    }

    pub(super) fn fail_all(&mut self, error: &Error) {
        for lane in std::mem::take(&mut self.active) {
            self.fail_lane(lane, error);
            if !self.lanes[lane].queue.deactivate_if_empty() {
                self.active.push(lane);
                continue;
            }
            self.lanes[lane].is_active = false;
        }
    }

    pub(super) fn fail_lane(&mut self, lane: usize, error: &Error) {
        let all = Moment::NEVER;
        let state = QueueState {
            oldest_created_at: Some(Moment::from_nanos(0)),
            ..QueueState::default()
        };
        for sent in self.lanes[lane].take_expired(all, &state) {
            self.fail(sent, error.clone());
        }
    }

    /// Marks the producer as failed: it can send nothing any more.
    pub(super) fn fail_for_good(&mut self, error: Error) {
        events::producer_failed(&self.config.client.client_id, &error);
        self.commands.set_fatal(error.clone());
        self.fail_all(&error);
    }

    fn rules(&self) -> Rules {
        let is_ending = self
            .transactions
            .as_ref()
            .is_some_and(|transactions| transactions.is_hurried());
        let is_hurried = is_ending
            || self.commands.close_deadline().is_some()
            || self.accumulator.pool().waiting_threads() > 0;
        Rules {
            linger_ms: self.config.linger_ms,
            delivery_timeout_ms: self.config.delivery_timeout_ms,
            in_flight_max: self.config.max_in_flight_requests_per_connection,
            is_hurried,
        }
    }

    fn plan(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let rules = self.rules();
        let snapshot = self.cluster.snapshot();
        let mut ready = std::mem::take(&mut self.ready);
        let mut active = std::mem::take(&mut self.active);
        active.retain(|lane| self.look_at(now, *lane, &rules, &snapshot, &mut ready));
        self.active.append(&mut active);
        ready.sort_unstable();
        for group in ready.chunk_by(|one, other| one.0 == other.0) {
            self.serve(now, group, &rules, &snapshot, actions);
        }
        ready.clear();
        self.ready = ready;
    }

    /// Plans one lane; false when it has nothing left to do.
    fn look_at(
        &mut self,
        now: Moment,
        index: usize,
        rules: &Rules,
        snapshot: &Snapshot,
        ready: &mut Vec<(NodeId, usize)>,
    ) -> bool {
        let timeout = rules.delivery_timeout_ms;
        let mut queue = self.lanes[index].queue.state();
        if let Some(oldest) = self.lanes[index].oldest_created_at(&queue) {
            if oldest.after_ms(timeout) <= now {
                let created_before =
                    Moment::from_nanos(now.nanos().saturating_sub(timeout.saturating_mul(1_000_000)));
                for sent in self.lanes[index].take_expired(created_before, &queue) {
                    self.expire(sent);
                }
                queue = self.lanes[index].queue.state();
            }
            if let Some(oldest) = self.lanes[index].oldest_created_at(&queue) {
                self.due_at(oldest.after_ms(timeout));
            }
        }
        let lane = &mut self.lanes[index];
        let is_admitted = match &mut self.transactions {
            Some(transactions) if lane.has_unsent(&queue) => {
                transactions.admits(&lane.queue.topic, lane.queue.partition)
            }
            Some(_) => true,
            None => {
                lane.resolve(&mut self.identity);
                true
            }
        };
        match lane.readiness(now, rules, &self.identity, &queue) {
            Readiness::Ready if !is_admitted => {}
            Readiness::Ready => match lane.leader(snapshot) {
                Some(node) => ready.push((node, index)),
                None => {
                    // It may have been forgotten: batches can wait longer than
                    // metadata.max.idle.ms.
                    self.metadata.want([&*lane.queue.topic]);
                    self.cluster.request_metadata();
                }
            },
            Readiness::At(moment) => self.due_at(moment),
            Readiness::Blocked => {}
            Readiness::Empty => {
                let is_done = !lane.has_undecided() && lane.queue.deactivate_if_empty();
                lane.is_active = !is_done;
                return !is_done;
            }
        }
        true
    }

    /// Sends to one node the ready batches of its lanes, within its limit of requests in flight.
    fn serve(
        &mut self,
        now: Moment,
        group: &[(NodeId, usize)],
        rules: &Rules,
        snapshot: &Snapshot,
        actions: &mut Vec<Action>,
    ) {
        let node = group[0].0;
        let has_room = |nodes: &BTreeMap<NodeId, NodeState>| {
            nodes
                .get(&node)
                .is_none_or(|state| state.in_flight < rules.in_flight_max)
        };
        let readiness = match has_room(&self.nodes) {
            true => self.cluster.readiness(now, node),
            // An answer will make room.
            false => cluster::Readiness::Connecting,
        };
        let is_taken = readiness == cluster::Readiness::Ready;
        self.accumulator.note_node(node, now, is_taken);
        match readiness {
            cluster::Readiness::Ready => {}
            cluster::Readiness::Connecting => return,
            cluster::Readiness::BackingOff(moment) => return self.due_at(moment),
            cluster::Readiness::Impossible(error) => return self.cannot_reach(group, &error),
        }
        let (lowest, highest) = self
            .transactions
            .as_ref()
            .map_or((request::VERSION_MIN, i16::MAX), |transactions| {
                transactions.produce_versions()
            });
        let lowest = lowest.max(request::VERSION_MIN);
        let version = match self
            .cluster
            .version_within(node, ApiKey::Produce, lowest, highest)
        {
            Ok(version) => version,
            Err(error) => return self.fail_group(group, &error),
        };
        while has_room(&self.nodes) && self.send_to(now, group, version, rules, snapshot, actions) {}
    }

    /// Fails batches that a node refuses permanently; an unknown node may appear in newer metadata.
    fn cannot_reach(&mut self, group: &[(NodeId, usize)], error: &Error) {
        match error {
            Error::Authentication { .. } | Error::Tls { .. } | Error::UnsupportedVersion { .. } => {
                self.fail_group(group, error);
            }
            _ => self.cluster.request_metadata(),
        }
    }

    fn fail_group(&mut self, group: &[(NodeId, usize)], error: &Error) {
        for (_, lane) in group {
            self.fail_lane(*lane, error);
        }
        // The next turn deactivates lanes that are empty now; `close` may wait for that.
        self.due_at(Moment::from_nanos(0));
    }

    /// Fills one request with one batch of every ready lane, up to `max.request.size`, and sends
    /// it; false when none was ready.
    fn send_to(
        &mut self,
        now: Moment,
        group: &[(NodeId, usize)],
        version: i16,
        rules: &Rules,
        snapshot: &Snapshot,
        actions: &mut Vec<Action>,
    ) -> bool {
        let node = group[0].0;
        let first_lane = self.nodes.entry(node).or_default().next_lane;
        let start = group.partition_point(|(_, lane)| *lane < first_lane);
        let mut taken = std::mem::take(&mut self.taken);
        let mut bytes = 0;
        for (_, index) in group[start..].iter().chain(&group[..start]) {
            let lane = &mut self.lanes[*index];
            // Asked again, although this turn has already checked the lane: a request takes only
            // one batch per partition.
            let queue = lane.queue.state();
            if lane.readiness(now, rules, &self.identity, &queue) != Readiness::Ready {
                continue;
            }
            // A batch may be larger than a request should be: then it goes alone.
            let room = match taken.is_empty() {
                true => usize::MAX,
                false => self.config.max_request_bytes.saturating_sub(bytes),
            };
            let Some(sent) = lane.take(now, &self.identity, room) else {
                break;
            };
            if request::needed_version(sent.batch.codec) > version {
                self.refuse_codec(sent, version);
                continue;
            }
            bytes += sent.batch.wire_bytes();
            let topic_id = snapshot
                .topic(&sent.batch.topic)
                .map_or(Uuid::ZERO, |topic| topic.id);
            taken.push((*index, sent, topic_id));
        }
        let has_sent = !taken.is_empty();
        if has_sent {
            self.send_request(now, node, version, &mut taken, actions);
        }
        self.taken = taken;
        has_sent
    }

    fn refuse_codec(&mut self, sent: Sent, version: i16) {
        if let Some(sequence) = sent.batch.sending.sequence {
            let lane = self.lane_of_batch(&sent);
            self.lanes[lane].sequences.mark_unresolved(sequence);
        }
        let needed_min = request::needed_version(sent.batch.codec);
        let error = Error::UnsupportedVersion {
            api: ApiKey::Produce.name(),
            broker_max: version,
            needed_min,
        };
        self.fail(sent, error);
    }

    fn lane_of_batch(&self, sent: &Sent) -> usize {
        self.lane_by_partition[&sent.batch.topic][&sent.batch.partition]
    }

    fn send_request(
        &mut self,
        now: Moment,
        node: NodeId,
        version: i16,
        taken: &mut Vec<(usize, Sent, Uuid)>,
        actions: &mut Vec<Action>,
    ) {
        let last_lane = taken.last().map_or(0, |(lane, ..)| *lane);
        taken.sort_by(|(_, one, _), (_, other, _)| one.batch.topic.cmp(&other.batch.topic));
        let has_ids = taken.iter().all(|(_, _, id)| !id.is_zero());
        let version = if has_ids {
            version
        } else {
            version.min(request::NAMES_VERSION_MAX)
        };
        let entries: Vec<Entry<'_>> = taken
            .iter()
            .map(|(_, sent, topic_id)| Entry {
                topic_id: *topic_id,
                batch: &sent.batch,
            })
            .collect();
        let timeout_ms = self.config.client.request_timeout_ms;
        if let Some(transactions) = &mut self.transactions {
            transactions.note_sent();
        }
        let body = request::encode(
            version,
            self.transactions.as_ref().map(|transactions| transactions.id()),
            self.config.acks.code(),
            i32::try_from(timeout_ms).unwrap_or(i32::MAX),
            &entries,
        );
        let mut passengers = self.spare_tickets.pop().unwrap_or_default();
        let mut records = 0;
        for (lane, mut sent, topic_id) in taken.drain(..) {
            records += sent.batch.record_count;
            self.note_drained(now, &sent);
            sent.batch.sending.attempts += 1;
            sent.batch.sending.retry_not_before = None;
            sent.batch.sending.first_sent_at.get_or_insert(now);
            passengers.push(Passenger {
                lane,
                place: sent.place,
                topic_id,
            });
            self.lanes[lane].note_in_flight(sent);
        }
        let state = self.nodes.entry(node).or_default();
        state.in_flight += 1;
        state.next_lane = last_lane + 1;
        let request = Request {
            api_key: ApiKey::Produce,
            api_version: version,
            body,
            timeout_ms,
            expects_answer: self.config.acks != Acks::None,
        };
        self.cluster
            .send(now, node, request, SenderTicket::Produce(passengers), actions);
        self.metrics.produce_sent(records);
        self.note_in_flight();
    }

    fn note_drained(&self, now: Moment, sent: &Sent) {
        let batch = &sent.batch;
        self.metrics.batch_drained(
            &batch.topic,
            batch.record_count,
            batch.wire_bytes(),
            batch.uncompressed_bytes,
            batch.record_bytes_max,
            now.nanos_since(batch.created_at),
            batch.filled_at.nanos_since(batch.created_at),
        );
    }

    fn note_in_flight(&self) {
        let requests = self.nodes.values().map(|node| node.in_flight).sum();
        self.metrics.requests_in_flight(requests);
    }

    /// Notes that a produce request is done on the node; its ticket is kept for the next one.
    pub(super) fn note_answered(&mut self, node: NodeId, mut passengers: Vec<Passenger>) {
        if let Some(state) = self.nodes.get_mut(&node) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        self.note_in_flight();
        passengers.clear();
        self.spare_tickets.push(passengers);
    }

    /// Closes a connection because of a bad response; the replies this produces are handled in the
    /// next turn.
    pub(super) fn disconnect(&mut self, now: Moment, node: NodeId, actions: &mut Vec<Action>) {
        self.cluster.disconnect(now, node, &mut self.replies, actions);
        self.due_at(now);
    }
}
