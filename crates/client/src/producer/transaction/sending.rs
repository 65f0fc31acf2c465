//! The transaction's part of the sender: coordinators, requests, and which batches may go.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;

use super::super::accumulator::QueueState;
use super::super::answers::malformed;
use super::super::lane::Sent;
use super::super::sender::{ProducerMachine, SenderTicket};
use super::super::sequence::Identity;
use super::calls::Call;
use super::requests::{self, Sender};
use super::state::{Answer, Ask, Protocol, Reaction, TransactionState, Work};
use crate::config::ProducerConfig;
use crate::consumer::coordinator::{Coordinator, CoordinatorKind, CoordinatorLookup};
use crate::consumer::group::GroupTicket;
use crate::consumer::group_network::ClusterLink;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::backoff::{Backoff, Random};
use crate::network::cluster::{Reply, Request};
use crate::network::io::Action;
use crate::time::Moment;

/// `transaction.version` from which on the implicit protocol is used (KIP-890).
const IMPLICIT_LEVEL: i16 = 2;
/// The last version of Produce with which a partition must be added beforehand.
pub(in crate::producer) const EXPLICIT_PRODUCE_VERSION_MAX: i16 = 11;

/// A transactional producer's state, beside that of the sender.
#[derive(Debug)]
pub(in crate::producer) struct Transactions {
    id: Arc<str>,
    timeout_ms: i32,
    request_timeout_ms: u64,
    backoff: Backoff,
    random: Random,
    state: TransactionState,
    coordinator: Coordinator,
    /// Of the group whose offsets the transaction commits.
    group: Option<(Arc<str>, Coordinator)>,
    /// The lookup in flight.
    looking_for: Option<CoordinatorKind>,
    /// A partition is to be added since the transaction last had its turn.
    has_new_partition: bool,
}

impl Transactions {
    /// `None` without transactional.id.
    pub fn new(config: &ProducerConfig, random: &mut Random) -> Option<Box<Transactions>> {
        let id = config.transactional_id.clone()?;
        let client = &config.client;
        let backoff = Backoff::new(client.retry_backoff_ms, client.retry_backoff_ms_max);
        let mut random = Random::new(random.next_u64());
        let own = Random::new(random.next_u64());
        let coordinator = Coordinator::new(
            CoordinatorKind::Transaction,
            Arc::clone(&id),
            client.request_timeout_ms,
            backoff,
            random.next_u64(),
        );
        Some(Box::new(Transactions {
            id,
            timeout_ms: i32::try_from(config.transaction_timeout_ms).unwrap_or(i32::MAX),
            request_timeout_ms: client.request_timeout_ms,
            backoff,
            random,
            state: TransactionState::new(config.max_block_ms, backoff, own),
            coordinator,
            group: None,
            looking_for: None,
            has_new_partition: false,
        }))
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn admits(&mut self, topic: &Arc<str>, partition: i32) -> bool {
        let is_admitted = self.state.admits(topic, partition);
        self.has_new_partition |= !is_admitted && self.state.wants_partitions();
        is_admitted
    }

    /// Whether a partition is to be added and nothing else would give the transaction its turn.
    pub fn take_new_partition(&mut self) -> bool {
        std::mem::take(&mut self.has_new_partition)
    }

    pub fn note_sent(&mut self) {
        self.state.note_sent();
    }

    pub fn note_failed(&mut self, error: &Error, is_numbered: bool) {
        self.state.note_failed(error, is_numbered);
    }

    pub fn trouble(&self) -> Option<&Error> {
        self.state.trouble()
    }

    /// A leader says that another producer has the transactional id.
    pub fn lose(&mut self, error: Error) {
        self.state.lose(error);
    }

    pub fn is_busy(&self) -> bool {
        self.state.is_busy()
    }

    /// The lowest and highest version of Produce for the open transaction.
    pub fn produce_versions(&self) -> (i16, i16) {
        match self.state.protocol() {
            Protocol::Explicit => (0, EXPLICIT_PRODUCE_VERSION_MAX),
            Protocol::Implicit => (EXPLICIT_PRODUCE_VERSION_MAX + 1, i16::MAX),
        }
    }

    /// Whether the batches are sent without lingering.
    pub fn is_hurried(&self) -> bool {
        self.state.is_ending()
    }

    fn coordinator_of(&mut self, ask: &Ask) -> &mut Coordinator {
        let Ask::CommitOffsets(offsets) = ask else {
            return &mut self.coordinator;
        };
        let wanted = &offsets.group.group_id;
        if self.group.as_ref().is_none_or(|(known, _)| known != wanted) {
            let coordinator = Coordinator::new(
                CoordinatorKind::Group,
                Arc::clone(wanted),
                self.request_timeout_ms,
                self.backoff,
                self.random.next_u64(),
            );
            self.group = Some((Arc::clone(wanted), coordinator));
        }
        let (_, coordinator) = self.group.as_mut().expect("it was just made");
        coordinator
    }

    fn coordinator_of_kind(&mut self, kind: CoordinatorKind) -> Option<&mut Coordinator> {
        match kind {
            CoordinatorKind::Transaction => Some(&mut self.coordinator),
            CoordinatorKind::Group => self.group.as_mut().map(|(_, coordinator)| coordinator),
        }
    }
}

/// The coordinators are asked through the group's network, which has this one ticket here.
impl From<GroupTicket> for SenderTicket {
    fn from(ticket: GroupTicket) -> SenderTicket {
        assert!(
            matches!(ticket, GroupTicket::FindCoordinator),
            "a producer is no member of a group"
        );
        SenderTicket::FindCoordinator
    }
}

impl ProducerMachine {
    /// Does what is due for the transaction; nothing without transactional.id.
    pub(in crate::producer) fn transact(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let Some(mut transactions) = self.transactions.take() else {
            return;
        };
        self.take_calls(&mut transactions);
        if let Some(error) = self.commands.fatal() {
            transactions.state.die(error.clone());
        }
        if transactions.state.is_aborting() {
            self.drop_unsent(&mut transactions.state);
        }
        let work = self.work(&transactions.state);
        let protocol = self.protocol(&transactions.state);
        transactions.state.settle(now, protocol, work);
        if let Some(ask) = transactions.state.wanted(now, work) {
            self.ask(now, &mut transactions, ask, actions);
        }
        self.publish(now, &mut transactions);
        self.transactions = Some(transactions);
    }

    fn take_calls(&mut self, transactions: &mut Transactions) {
        let calls = self.commands.transactions.take();
        if let Some(error) = self.commands.transactions.trouble() {
            transactions.state.note_failed(&error, false);
        }
        for call in calls {
            if matches!(call, Call::Begin(_)) {
                self.commands.transactions.clear_trouble();
            }
            transactions.state.call(call);
        }
    }

    /// Tells the front and the lanes what has changed.
    fn publish(&mut self, now: Moment, transactions: &mut Transactions) {
        if let Some(error) = transactions.state.trouble() {
            self.commands.transactions.set_trouble(error);
        }
        let producer = transactions.state.producer();
        if producer != self.identity.known() {
            self.identity = producer.map_or(Identity::new(true), Identity::Known);
            for lane in &mut self.lanes {
                lane.sequences.start_over();
            }
        }
        if let Some(error) = transactions.state.gone().cloned() {
            self.commands.transactions.set_trouble(&error);
            self.fail_all(&error);
        }
        if let Some(due) = transactions.state.due() {
            self.due_at(due.max(now));
        }
    }

    /// What is left of the transaction's batches; looked up only where it matters.
    fn work(&self, state: &TransactionState) -> Work {
        match state.is_ending() && self.accumulator.incomplete_batches() > 0 {
            true => Work::Left,
            false => Work::None,
        }
    }

    fn protocol(&self, state: &TransactionState) -> Protocol {
        if !state.wants_protocol() {
            return state.protocol();
        }
        match self.cluster.transaction_version() >= IMPLICIT_LEVEL {
            true => Protocol::Implicit,
            false => Protocol::Explicit,
        }
    }

    /// An aborted transaction waits for what is in flight, and for nothing else.
    fn drop_unsent(&mut self, state: &mut TransactionState) {
        let everything = QueueState {
            oldest_created_at: Some(Moment::from_nanos(0)),
            ..QueueState::default()
        };
        for lane in 0..self.active.len() {
            let lane = self.active[lane];
            for sent in self.lanes[lane].take_unsent(&everything) {
                let is_numbered = sent.batch.sending.sequence.is_some();
                state.note_failed(&Error::TransactionAborted, is_numbered);
                self.finish_aborted(sent);
            }
        }
    }

    fn finish_aborted(&mut self, sent: Sent) {
        let error = sent.error(Error::TransactionAborted);
        self.metrics
            .records_failed(&sent.batch.topic, sent.batch.record_count);
        sent.batch.finish(Err(error), &self.callbacks);
    }

    fn ask(&mut self, now: Moment, transactions: &mut Transactions, ask: Ask, actions: &mut Vec<Action>) {
        let node = match self.coordinator_node(now, transactions, &ask, actions) {
            Ok(Some(node)) => node,
            Ok(None) => return,
            Err(error) => {
                transactions.state.sent(ask);
                return self.react(now, transactions, Err(error));
            }
        };
        let api_key = requests::api_key(&ask);
        let (lowest, highest) = requests::versions(&ask, transactions.state.protocol());
        let version = match self.cluster.version_within(node, api_key, lowest, highest) {
            Ok(version) => version,
            Err(error) => {
                transactions.state.sent(ask);
                return self.react(now, transactions, Err(error));
            }
        };
        let sender = Sender {
            transactional_id: &transactions.id,
            timeout_ms: transactions.timeout_ms,
            producer: transactions.state.producer(),
        };
        let mut body = Vec::with_capacity(2);
        body.push(requests::encode(&ask, sender, version).into());
        let request = Request {
            api_key,
            api_version: version,
            body,
            timeout_ms: transactions.request_timeout_ms,
            expects_answer: true,
        };
        transactions.state.sent(ask);
        self.cluster
            .send(now, node, request, SenderTicket::Transaction, actions);
    }

    /// The node that coordinates, if it can take a request now. One lookup is under way at a time.
    fn coordinator_node(
        &mut self,
        now: Moment,
        transactions: &mut Transactions,
        ask: &Ask,
        actions: &mut Vec<Action>,
    ) -> Result<Option<NodeId>, Error> {
        if transactions.looking_for.is_some() {
            return Ok(None);
        }
        let kind = match ask {
            Ask::CommitOffsets(_) => CoordinatorKind::Group,
            _ => CoordinatorKind::Transaction,
        };
        let mut link = ClusterLink {
            cluster: &mut self.cluster,
            replies: &mut self.replies,
            actions,
        };
        let coordinator = transactions.coordinator_of(ask);
        let node = coordinator.ready(now, &mut link)?;
        let (is_asking, due) = (coordinator.is_asking(), coordinator.due());
        transactions.looking_for = is_asking.then_some(kind);
        if let Some(due) = due {
            self.due_at(due);
        }
        Ok(node)
    }

    pub(in crate::producer) fn coordinator_found(
        &mut self,
        now: Moment,
        node: NodeId,
        version: i16,
        result: Result<Bytes, Error>,
    ) {
        let Some(mut transactions) = self.transactions.take() else {
            return;
        };
        let kind = transactions.looking_for.take();
        if let Some(coordinator) = kind.and_then(|kind| transactions.coordinator_of_kind(kind)) {
            let reply = Reply {
                node,
                ticket: GroupTicket::FindCoordinator,
                api_key: ApiKey::FindCoordinator,
                api_version: version,
                result,
                latency_nanos: 0,
            };
            if let CoordinatorLookup::Refused(error) = coordinator.answered(now, &reply)
                && let Some(ask) = transactions.state.wanted(now, Work::None)
            {
                transactions.state.sent(ask);
                self.react(now, &mut transactions, Err(error));
            }
        }
        self.due_at(now);
        self.transactions = Some(transactions);
    }

    pub(in crate::producer) fn transaction_answered(
        &mut self,
        now: Moment,
        node: NodeId,
        version: i16,
        result: Result<Bytes, Error>,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut transactions) = self.transactions.take() else {
            return;
        };
        let result = result.and_then(|body| self.decode_answer(now, &transactions, node, version, &body));
        if matches!(result, Err(Error::Malformed { .. })) {
            self.disconnect(now, node, actions);
        }
        self.react(now, &mut transactions, result);
        self.due_at(now);
        self.transactions = Some(transactions);
    }

    fn decode_answer(
        &mut self,
        now: Moment,
        transactions: &Transactions,
        node: NodeId,
        version: i16,
        body: &Bytes,
    ) -> Result<Answer, Error> {
        let Some(ask) = transactions.state.asked() else {
            return Err(malformed(node, "an answer without a request".to_owned()));
        };
        let decoded = requests::decode(ask, &transactions.id, body, version).map_err(|error| {
            let name = requests::api_key(ask).name();
            malformed(node, format!("{name}: {error}"))
        })?;
        self.throttled(now, node, decoded.throttle_time_ms);
        decoded.result
    }

    fn react(&mut self, now: Moment, transactions: &mut Transactions, result: Result<Answer, Error>) {
        let was_gone = transactions.state.gone().is_some();
        let ask = transactions.state.asked().cloned();
        let Reaction {
            must_find_coordinator,
            conflict_nanos,
        } = transactions.state.answered(now, result);
        if must_find_coordinator && let Some(ask) = &ask {
            transactions.coordinator_of(ask).forget(now, false);
        }
        if let Some(nanos) = conflict_nanos {
            self.metrics.transaction_conflict(nanos);
        }
        if !was_gone && let Some(error) = transactions.state.gone() {
            events::transaction_lost(&self.config.client.client_id, &transactions.id, error);
        }
    }
}
