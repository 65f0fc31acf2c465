//! The consumer's state machine: the application's commands, group membership, positions, fetches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::exchange::{Command, Exchange, ExchangeState};
use super::fetcher::Fetcher;
use super::group::{GroupEvent, GroupMembership, GroupTicket, Offsets};
use super::group_network::ClusterLink;
use super::offsets_by_time::{OffsetsByTime, OffsetsTicket};
use super::poll_activity::PollActivity;
use super::position_calls::PositionCalls;
use super::topic_listing::TopicListing;
use super::topic_partition::TopicPartition;
use super::truncation::{EpochTicket, TruncationCheck};
use crate::config::ConsumerConfig;
use crate::error::Error;
use crate::metadata::snapshot::Snapshot;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientMetrics, ConsumerMetrics, Telemetry};
use crate::network::cluster::{Cluster, Readiness, Reply};
use crate::network::io::{Action, Event, Machine};
use crate::pending::Promise;
use crate::time::{Moment, Timestamp};

/// What is kept with a request of a consumer until its reply.
#[derive(Debug)]
pub enum ConsumerTicket {
    Fetch,
    /// The end of a fetch session; its answer changes nothing.
    SessionEnd,
    Offsets(OffsetsTicket),
    Epochs(EpochTicket),
    Topics,
    Group(GroupTicket),
    Telemetry,
}

impl From<GroupTicket> for ConsumerTicket {
    fn from(ticket: GroupTicket) -> ConsumerTicket {
        ConsumerTicket::Group(ticket)
    }
}

/// Why the group's offsets were requested.
#[derive(Debug)]
enum OffsetsWanted {
    /// As positions, by the partition's version at that time.
    Positions(BTreeMap<TopicPartition, u64>),
    Application(Promise<Offsets>),
}

/// The progress of `close`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// The member leaves the group, telemetry sends its last push.
    Leaving {
        deadline: Moment,
    },
    Done,
}

/// The state machine of one consumer.
pub struct ConsumerMachine {
    config: Arc<ConsumerConfig>,
    exchange: Arc<Exchange>,
    metadata: Arc<MetadataCell>,
    metrics: Arc<ConsumerMetrics>,
    activity: Arc<PollActivity>,
    cluster: Cluster<ConsumerTicket>,
    fetcher: Fetcher,
    offsets_by_time: OffsetsByTime,
    truncation: TruncationCheck,
    topic_listing: TopicListing,
    position_calls: PositionCalls,
    group: Option<GroupMembership>,
    telemetry: Telemetry,
    replies: Vec<Reply<ConsumerTicket>>,
    group_events: Vec<GroupEvent>,
    next_ticket: u64,
    commits: BTreeMap<u64, Vec<Promise<Offsets>>>,
    offsets_wanted: BTreeMap<u64, OffsetsWanted>,
    wanted_topics: BTreeSet<Arc<str>>,
    /// The snapshot whose refused topics were reported.
    reported_version: u64,
    closing: Closing,
    next_deadline: Option<Moment>,
}

impl fmt::Debug for ConsumerMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerMachine")
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

impl ConsumerMachine {
    /// - `seed`: of the jitter in backoffs.
    pub fn new(
        config: Arc<ConsumerConfig>,
        exchange: Arc<Exchange>,
        metadata: Arc<MetadataCell>,
        activity: Arc<PollActivity>,
        client_metrics: &Arc<ClientMetrics>,
        seed: u64,
    ) -> ConsumerMachine {
        client_metrics.tell_consumer(&config);
        let metrics = Arc::clone(client_metrics.consumer());
        let cluster = Cluster::new(
            Arc::clone(&config.client),
            Arc::clone(&metadata),
            Arc::clone(client_metrics.network()),
            seed,
        );
        let group = config.group_id.is_some().then(|| {
            GroupMembership::new(
                Arc::clone(&config),
                Arc::clone(&activity),
                Arc::clone(&metrics),
                seed.wrapping_add(1),
            )
        });
        ConsumerMachine {
            cluster,
            fetcher: Fetcher::new(Arc::clone(&config), Arc::clone(&metrics)),
            offsets_by_time: OffsetsByTime::new(Arc::clone(&config)),
            truncation: TruncationCheck::new(Arc::clone(&config)),
            topic_listing: TopicListing::new(Arc::clone(&config)),
            position_calls: PositionCalls::default(),
            group,
            telemetry: Telemetry::new(&config.client, Arc::clone(client_metrics), seed.wrapping_add(2)),
            config,
            exchange,
            metadata,
            metrics,
            activity,
            replies: Vec::new(),
            group_events: Vec::new(),
            next_ticket: 0,
            commits: BTreeMap::new(),
            offsets_wanted: BTreeMap::new(),
            wanted_topics: BTreeSet::new(),
            reported_version: 0,
            closing: Closing::No,
            next_deadline: None,
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    fn take_command(&mut self, now: Moment, command: Command, state: &mut ExchangeState) {
        match command {
            Command::Look => {}
            Command::ListOffsets {
                targets,
                deadline,
                promise,
            } => self.offsets_by_time.ask(targets, deadline, promise),
            Command::Position {
                partition,
                deadline,
                promise,
            } => self.position_calls.ask(partition, deadline, promise),
            Command::ListTopics { deadline, promise } => self.topic_listing.ask(deadline, promise),
            Command::Close { deadline } => {
                self.telemetry.close(now);
                if let Some(group) = &mut self.group {
                    group.close(now, deadline);
                }
                self.closing = Closing::Leaving { deadline };
            }
            command => self.take_group_command(now, command, state),
        }
    }

    fn take_group_command(&mut self, now: Moment, command: Command, state: &mut ExchangeState) {
        let ticket = self.ticket();
        let Some(group) = &mut self.group else {
            // The front refuses these calls without `group.id`; dropping their promises gives
            // `Closed`.
            return;
        };
        match command {
            Command::Subscribe(subscription) => {
                state.has_left = false;
                group.subscribe(now, subscription);
            }
            Command::Acknowledge { call_id, consumed } => group.acknowledge(now, call_id, consumed),
            Command::Commit {
                offsets,
                kind,
                promises,
            } => {
                group.commit(now, ticket, offsets, kind);
                self.commits.insert(ticket, promises);
            }
            Command::AutoCommit { consumed } => group.auto_commit(now, consumed),
            Command::Committed {
                partitions,
                deadline,
                promise,
            } => {
                group.fetch_offsets(now, ticket, partitions, deadline);
                self.offsets_wanted
                    .insert(ticket, OffsetsWanted::Application(promise));
            }
            Command::Rejoin { reason } => group.request_rejoin(&reason),
            _ => {}
        }
    }

    fn take_reply(
        &mut self,
        now: Moment,
        reply: Reply<ConsumerTicket>,
        state: &mut ExchangeState,
        actions: &mut Vec<Action>,
    ) {
        let mut needs_metadata = false;
        match &reply.ticket {
            ConsumerTicket::Fetch => {
                let consequences = self.fetcher.take_reply(now, &reply, state);
                needs_metadata = consequences.needs_metadata;
                if consequences.throttle_ms > 0 {
                    self.cluster
                        .throttle(now, reply.node, consequences.throttle_ms.into());
                }
                if consequences.must_disconnect {
                    self.cluster
                        .disconnect(now, reply.node, &mut self.replies, actions);
                }
            }
            ConsumerTicket::Offsets(ticket) => {
                needs_metadata = self.offsets_by_time.take_reply(now, &reply, ticket, state);
            }
            ConsumerTicket::Epochs(ticket) => {
                needs_metadata = self.truncation.take_reply(now, &reply, ticket, state);
            }
            ConsumerTicket::Topics => self.topic_listing.take_reply(now, &reply),
            ConsumerTicket::SessionEnd => {}
            ConsumerTicket::Telemetry => self.telemetry.take_reply(now, reply.node, reply.result),
            ConsumerTicket::Group(_) => self.pass_to_group(now, reply),
        }
        if needs_metadata {
            self.cluster.request_metadata();
        }
    }

    fn pass_to_group(&mut self, now: Moment, reply: Reply<ConsumerTicket>) {
        let (Some(group), ConsumerTicket::Group(ticket)) = (&mut self.group, reply.ticket) else {
            return;
        };
        let reply = Reply {
            node: reply.node,
            ticket,
            api_key: reply.api_key,
            api_version: reply.api_version,
            result: reply.result,
            latency_nanos: reply.latency_nanos,
        };
        group.take_reply(now, reply);
    }

    fn turn_group(&mut self, now: Moment, state: &mut ExchangeState, actions: &mut Vec<Action>) {
        let uncommitted = state.assignment.take_uncommitted(now);
        let ticket = self.ticket();
        let Some(group) = &mut self.group else {
            return;
        };
        if !uncommitted.is_empty() {
            let partitions = uncommitted.keys().cloned().collect();
            let deadline = now.after_ms(self.config.default_api_timeout_ms);
            group.fetch_offsets(now, ticket, partitions, deadline);
            self.offsets_wanted
                .insert(ticket, OffsetsWanted::Positions(uncommitted));
        }
        let mut link = ClusterLink {
            cluster: &mut self.cluster,
            replies: &mut self.replies,
            actions,
        };
        group.turn(now, &mut link, &mut self.group_events);
        let group_metadata = group.group_metadata();
        if state.group_metadata.as_ref() != Some(&group_metadata) {
            state.group_metadata = Some(group_metadata);
        }
        for event in std::mem::take(&mut self.group_events) {
            self.take_group_event(now, event, state);
        }
    }

    fn take_group_event(&mut self, now: Moment, event: GroupEvent, state: &mut ExchangeState) {
        match event {
            GroupEvent::Call(call) if state.is_abandoned => {
                state.commands.push_back(Command::Acknowledge {
                    call_id: call.id,
                    consumed: Offsets::new(),
                });
            }
            GroupEvent::Call(call) => {
                // It replaces a call that the application has not yet taken.
                state.calls.clear();
                state.calls.push_back(call);
            }
            GroupEvent::AssignmentChanged(partitions) => {
                state.assignment.replace(partitions, true);
                self.metrics
                    .assignment_changed(state.assignment.names().map(|name| (&name.topic, name.partition)));
            }
            GroupEvent::Committed {
                ticket,
                offsets,
                result,
            } => {
                let result = result.map(|()| offsets);
                for promise in self.commits.remove(&ticket).unwrap_or_default() {
                    promise.fulfil(result.clone());
                }
            }
            GroupEvent::OffsetsFetched { ticket, result } => match self.offsets_wanted.remove(&ticket) {
                Some(OffsetsWanted::Application(promise)) => promise.fulfil(result),
                Some(OffsetsWanted::Positions(asked)) => self.take_positions(now, &asked, result, state),
                None => {}
            },
            GroupEvent::Failed(error) => {
                if error.is_fatal() {
                    state.fatal_error = Some(error);
                } else {
                    state.report(error);
                }
            }
            GroupEvent::Left => state.has_left = true,
        }
    }

    fn take_positions(
        &mut self,
        now: Moment,
        asked: &BTreeMap<TopicPartition, u64>,
        result: Result<Offsets, Error>,
        state: &mut ExchangeState,
    ) {
        let not_before = now.after_ms(self.config.client.retry_backoff_ms);
        for (name, &version) in asked {
            let Some(partition) = state.assignment.current(name, version) else {
                continue;
            };
            partition.is_asked = false;
            let outcome = match &result {
                Ok(offsets) => state.assignment.set_committed(name, offsets.get(name)),
                Err(error) => {
                    partition.not_before = not_before;
                    Err(error.clone())
                }
            };
            // No broker has answered for long enough that the connection error is worth reporting.
            if let Err(error) = outcome {
                state.report(error);
            }
        }
    }

    /// Limits the metadata to the topics that this consumer needs.
    fn want_topics(&mut self, state: &ExchangeState) {
        let group_topics = match self.group.as_ref().map(GroupMembership::metadata_topics) {
            Some(Some(topics)) => topics,
            Some(None) => {
                self.metadata.set_interest(Interest::All);
                self.wanted_topics.clear();
                return;
            }
            None => BTreeSet::new(),
        };
        let mut topics = state.assignment.topics();
        topics.extend(self.offsets_by_time.topics());
        topics.extend(state.asked_topics.iter().cloned());
        topics.extend(group_topics);
        self.metadata.set_interest(Interest::Named);
        if topics != self.wanted_topics {
            if self.metadata.want_only(topics.iter().map(|topic| &**topic)) {
                self.cluster.request_metadata();
            }
            self.wanted_topics = topics;
        }
    }

    /// All brokers refuse this client (a wrong password, an expired certificate): a poll fails with
    /// that error after every attempt, as Java's does.
    fn report_failure(&mut self, state: &mut ExchangeState) {
        if let Some(error) = self.metadata.take_failure() {
            self.offsets_by_time.fail_all(&error);
            self.topic_listing.fail(&error);
            state.report(error);
        }
    }

    /// Reports topics that the application named and may not read, or whose name is invalid; as in
    /// Kafka, on every new response.
    fn report_refused(&mut self, snapshot: &Snapshot, state: &mut ExchangeState) {
        if snapshot.version == self.reported_version {
            return;
        }
        self.reported_version = snapshot.version;
        for topic in state.assignment.topics() {
            if let Some(error) = snapshot.refused.get(&topic) {
                state.report(error.clone());
            }
        }
    }

    fn send_requests(
        &mut self,
        now: Moment,
        wall: Timestamp,
        state: &mut ExchangeState,
        actions: &mut Vec<Action>,
    ) {
        let snapshot = self.cluster.snapshot();
        self.report_refused(&snapshot, state);
        self.report_failure(state);
        let cluster = &mut self.cluster;
        let mut needs_metadata = self.offsets_by_time.send(
            now,
            wall,
            state,
            &snapshot,
            cluster,
            ConsumerTicket::Offsets,
            actions,
        );
        needs_metadata |=
            self.truncation
                .send(now, state, &snapshot, cluster, ConsumerTicket::Epochs, actions);
        needs_metadata |=
            self.fetcher
                .send(now, state, &snapshot, cluster, || ConsumerTicket::Fetch, actions);
        self.topic_listing
            .send(now, cluster, || ConsumerTicket::Topics, actions);
        self.telemetry
            .turn(now, wall, cluster, || ConsumerTicket::Telemetry, actions);
        if needs_metadata {
            self.cluster.request_metadata();
        }
    }

    fn turn_closing(&mut self, now: Moment, state: &mut ExchangeState, actions: &mut Vec<Action>) {
        let Closing::Leaving { deadline } = self.closing else {
            return;
        };
        let has_left = self.group.as_ref().is_none_or(GroupMembership::is_closed);
        let is_over = now >= deadline;
        let is_done = has_left && self.telemetry.is_closed(now);
        if !is_over && !is_done {
            return;
        }
        for (node, request) in self.fetcher.closing_requests(&self.cluster) {
            if self.cluster.readiness(now, node) == Readiness::Ready {
                self.cluster
                    .send(now, node, request, ConsumerTicket::SessionEnd, actions);
            }
        }
        state.has_left = true;
        self.closing = Closing::Done;
    }

    fn earliest_deadline(&self, now: Moment, state: &ExchangeState) -> Option<Moment> {
        if !self.replies.is_empty() || !state.commands.is_empty() {
            return Some(now);
        }
        let closing = match self.closing {
            Closing::Leaving { deadline } => Some(deadline),
            _ => None,
        };
        let uncommitted = state.assignment.iter().filter_map(|(_, partition)| {
            let waits = partition.phase == super::position::Phase::Committed && !partition.is_asked;
            (waits && now < partition.not_before).then_some(partition.not_before)
        });
        // An async waiter's task is woken when an automatic commit is due.
        let auto_commit = state.has_wakers().then(|| self.activity.auto_commit_due());
        [
            auto_commit,
            self.cluster.next_deadline(),
            self.fetcher.next_deadline(),
            self.offsets_by_time.next_deadline(),
            self.truncation.next_deadline(),
            self.topic_listing.next_deadline(now),
            self.position_calls.next_deadline(),
            self.group.as_ref().and_then(GroupMembership::next_deadline),
            self.telemetry.next_deadline(),
            closing,
        ]
        .into_iter()
        .flatten()
        .chain(uncommitted)
        .min()
    }
}

impl Machine for ConsumerMachine {
    fn handle(&mut self, now: Moment, event: Event) {
        self.cluster.handle(now, event, &mut self.replies);
    }

    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) {
        if self.closing == Closing::Done {
            return;
        }
        self.cluster.turn(now, wall, &mut self.replies, actions);
        let auto_commit_due = self.activity.auto_commit_due() <= now;
        let exchange = Arc::clone(&self.exchange);
        let mut state = exchange.lock();
        let before = state.news();
        while let Some(command) = state.commands.pop_front() {
            self.take_command(now, command, &mut state);
        }
        for reply in std::mem::take(&mut self.replies) {
            self.take_reply(now, reply, &mut state, actions);
        }
        self.turn_group(now, &mut state, actions);
        if self.closing == Closing::No {
            self.want_topics(&state);
            self.send_requests(now, wall, &mut state, actions);
        } else {
            self.telemetry.turn(
                now,
                wall,
                &mut self.cluster,
                || ConsumerTicket::Telemetry,
                actions,
            );
        }
        let limit_ms = self.config.default_api_timeout_ms;
        self.position_calls.turn(now, limit_ms, &mut state);
        self.turn_closing(now, &mut state, actions);
        self.next_deadline = self.earliest_deadline(now, &state);
        if state.news() != before || auto_commit_due && state.has_wakers() {
            exchange.announce(state);
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.next_deadline
    }

    fn is_finished(&self) -> bool {
        self.closing == Closing::Done
    }
}
