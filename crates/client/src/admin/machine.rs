//! Runs the admin client's calls: sends their requests, wakes answered calls, ends calls whose time
//! is over.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use super::context::{AdminAnswer, Ask, Context, Destination, Mailbox};
use crate::config::AdminConfig;
use crate::error::Error;
use crate::metadata::MetadataCell;
use crate::metadata::snapshot::NodeId;
use crate::metrics::{ClientMetrics, Telemetry};
use crate::network::backoff::{Backoff, Random};
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::{Action, Event, Machine};
use crate::time::{Moment, Timestamp};

/// How often a node is looked for while none can be connected to.
const CONNECT_POLL_MS: u64 = 50;

/// A call that has not started: the closure that makes its future.
pub type Start = Box<dyn FnOnce(Context) -> TaskFuture + Send>;

/// Completes its promise itself; dropped, the promise gives `Closed`.
pub type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The calls that application threads hand over.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    commands: Vec<Command>,
    is_closed: bool,
}

pub struct Command {
    pub what: &'static str,
    pub start: Start,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns false when the client is closed; the command's promise then gives `Closed`.
    pub fn push(&self, command: Command) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        state.commands.push(command);
        true
    }

    /// Ends every call with `Closed`.
    pub fn close(&self) {
        let commands = {
            let mut state = self.lock();
            state.is_closed = true;
            std::mem::take(&mut state.commands)
        };
        drop(commands);
    }
}

/// Which request an answer belongs to.
#[derive(Clone, Copy, Debug)]
pub enum AdminTicket {
    Call { task: u64, ask: u64 },
    Telemetry,
}

/// One call in progress.
struct Task {
    future: TaskFuture,
    mailbox: Arc<Mutex<Mailbox>>,
    /// Asks that no node can take now.
    unsent: Vec<Ask>,
    /// When to look at them again without a connection event.
    unsent_retry_at: Option<Moment>,
    /// Asks that are answered once their reply arrives.
    sent: Vec<u64>,
}

/// The admin client without its thread.
pub struct AdminMachine {
    config: Arc<AdminConfig>,
    inbox: Arc<Inbox>,
    cluster: Cluster<AdminTicket>,
    telemetry: Telemetry,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    random: Random,
    replies: Vec<Reply<AdminTicket>>,
    is_finished: bool,
}

impl AdminMachine {
    /// - `metadata`: with `Interest::Nodes`; calls that need leaders ask for them.
    pub fn new(
        config: Arc<AdminConfig>,
        inbox: Arc<Inbox>,
        metadata: Arc<MetadataCell>,
        metrics: &Arc<ClientMetrics>,
        seed: u64,
    ) -> AdminMachine {
        let mut random = Random::new(seed);
        let network = metrics.network().clone();
        let cluster = Cluster::new(config.client.clone(), metadata, network, random.next_u64());
        AdminMachine {
            telemetry: Telemetry::new(&config.client, metrics.clone(), random.next_u64()),
            cluster,
            config,
            inbox,
            tasks: BTreeMap::new(),
            next_task: 0,
            random,
            replies: Vec::new(),
            is_finished: false,
        }
    }

    fn begin_calls(&mut self, now: Moment) {
        let commands = std::mem::take(&mut self.inbox.lock().commands);
        if !commands.is_empty() {
            self.cluster.metadata().take_failure();
        }
        for command in commands {
            let limit_ms = self.config.default_api_timeout_ms;
            let mailbox = Arc::new(Mutex::new(Mailbox {
                now,
                deadline: now.after_ms(limit_ms),
                limit_ms,
                is_expired: false,
                what: command.what,
                snapshot: self.cluster.snapshot(),
                wants_metadata: false,
                asks: Vec::new(),
                answers: BTreeMap::new(),
                sleeps: BTreeMap::new(),
                backoff: Backoff::new(
                    self.config.client.retry_backoff_ms,
                    self.config.client.retry_backoff_ms_max,
                ),
                random: Random::new(self.random.next_u64()),
                attempts_max: self.config.retries,
                last_error: None,
                next_id: 0,
            }));
            let future = (command.start)(Context {
                mailbox: mailbox.clone(),
            });
            let task = Task {
                future,
                mailbox,
                unsent: Vec::new(),
                unsent_retry_at: None,
                sent: Vec::new(),
            };
            self.tasks.insert(self.next_task, task);
            self.next_task += 1;
        }
    }

    fn take_replies(&mut self, now: Moment) {
        for reply in std::mem::take(&mut self.replies) {
            match reply.ticket {
                AdminTicket::Telemetry => self.telemetry.take_reply(now, reply.node, reply.result),
                AdminTicket::Call { task, ask } => {
                    // The call may have ended before its last answer.
                    if let Some(task) = self.tasks.get_mut(&task) {
                        let version = reply.api_version;
                        let answer = reply.result.map(|body| AdminAnswer { version, body });
                        task.answered(ask, answer);
                    }
                }
            }
        }
    }

    /// Polls every call and sends its requests, until no call makes progress.
    fn run_calls(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let snapshot = self.cluster.snapshot();
        let trouble = self.cluster.metadata().trouble();
        let mut wants_metadata = false;
        let (cluster, config) = (&mut self.cluster, &self.config);
        self.tasks.retain(|id, task| {
            loop {
                let is_done = task.poll(now, &snapshot, trouble.as_ref());
                wants_metadata |= std::mem::take(&mut task.lock().wants_metadata);
                if is_done {
                    return false;
                }
                let was_answered = task.send(*id, now, cluster, config.client.request_timeout_ms, actions);
                if !was_answered {
                    return true;
                }
            }
        });
        if wants_metadata {
            self.cluster.request_metadata();
        }
    }
}

impl Task {
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(&mut self, ask: u64, answer: Result<AdminAnswer, Error>) {
        if let Some(place) = self.sent.iter().position(|sent| *sent == ask) {
            self.sent.swap_remove(place);
            self.lock().answers.insert(ask, answer);
        }
    }

    /// Returns true when the call is done.
    fn poll(
        &mut self,
        now: Moment,
        snapshot: &Arc<crate::metadata::snapshot::Snapshot>,
        trouble: Option<&Error>,
    ) -> bool {
        let mut mailbox = self.lock();
        mailbox.now = now;
        mailbox.snapshot = snapshot.clone();
        let expires = !mailbox.is_expired && mailbox.deadline <= now;
        drop(mailbox);
        if expires {
            self.expire(trouble);
        }
        // A no-op waker: the machine polls whenever something has arrived, and a call has no other
        // source of wake-ups.
        let polled = self
            .future
            .as_mut()
            .poll(&mut TaskContext::from_waker(Waker::noop()));
        if matches!(polled, Poll::Ready(())) {
            return true;
        }
        let asks = std::mem::take(&mut self.lock().asks);
        self.unsent.extend(asks);
        false
    }

    /// Fails everything the call waits for. `trouble`: why no broker can be reached, if none can.
    fn expire(&mut self, trouble: Option<&Error>) {
        let unsent = std::mem::take(&mut self.unsent);
        let sent = std::mem::take(&mut self.sent);
        let mut mailbox = self.lock();
        mailbox.is_expired = true;
        if mailbox.last_error.is_none() {
            mailbox.last_error = trouble.cloned();
        }
        for ask in unsent.into_iter().map(|ask| ask.id).chain(sent) {
            let error = mailbox.timeout();
            mailbox.answers.insert(ask, Err(error));
        }
    }

    /// Sends what can be sent; true when an ask failed at once, so that the call can continue.
    fn send(
        &mut self,
        id: u64,
        now: Moment,
        cluster: &mut Cluster<AdminTicket>,
        timeout_ms: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let mut was_answered = false;
        self.unsent_retry_at = None;
        for ask in std::mem::take(&mut self.unsent) {
            match choose(now, cluster, &ask) {
                Choice::Later { retry_at } => {
                    self.unsent_retry_at = self.unsent_retry_at.into_iter().chain(retry_at).min();
                    self.unsent.push(ask);
                }
                Choice::Failed(error) => {
                    self.lock().answers.insert(ask.id, Err(error));
                    was_answered = true;
                }
                Choice::Send(node, version) => {
                    let request = Request {
                        api_key: ask.api_key,
                        api_version: version,
                        body: vec![(ask.encode)(version).into()],
                        timeout_ms,
                        expects_answer: true,
                    };
                    let ticket = AdminTicket::Call {
                        task: id,
                        ask: ask.id,
                    };
                    self.sent.push(ask.id);
                    cluster.send(now, node, request, ticket, actions);
                }
            }
        }
        was_answered
    }
}

enum Choice {
    Send(NodeId, i16),
    Later { retry_at: Option<Moment> },
    Failed(Error),
}

/// Chooses the node that must answer, if one is available now.
fn choose(now: Moment, cluster: &mut Cluster<AdminTicket>, ask: &Ask) -> Choice {
    let node = match ask.destination {
        Destination::Node(node) => Some(node),
        // A KRaft cluster names any broker as controller; it forwards.
        Destination::Controller => cluster.snapshot().controller.or_else(|| {
            cluster.request_metadata();
            None
        }),
        Destination::Any | Destination::Coordinator(_) | Destination::TransactionCoordinator(_) => {
            cluster.least_loaded(now)
        }
    };
    let Some(node) = node else {
        // Wrong certificates and passwords do not fix themselves.
        if let Some(error) = cluster.metadata().failure() {
            return Choice::Failed(error);
        }
        // Every node is between two connection attempts; no event says when the first backoff ends.
        let retry_at = Some(now.after_ms(CONNECT_POLL_MS));
        return Choice::Later { retry_at };
    };
    if !matches!(ask.destination, Destination::Any) && !is_known(cluster, node) {
        cluster.request_metadata();
        return Choice::Later { retry_at: None };
    }
    match cluster.readiness(now, node) {
        Readiness::Ready => match cluster.version_within(node, ask.api_key, ask.version_min, ask.version_max)
        {
            Ok(version) => Choice::Send(node, version),
            Err(error) => Choice::Failed(error),
        },
        Readiness::Connecting => Choice::Later { retry_at: None },
        Readiness::BackingOff(until) => Choice::Later {
            retry_at: Some(until),
        },
        Readiness::Impossible(error) => Choice::Failed(error),
    }
}

fn is_known(cluster: &Cluster<AdminTicket>, node: NodeId) -> bool {
    cluster.snapshot().nodes.contains_key(&node)
}

impl Machine for AdminMachine {
    fn handle(&mut self, now: Moment, event: Event) {
        self.cluster.handle(now, event, &mut self.replies);
    }

    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) {
        self.cluster.turn(now, wall, &mut self.replies, actions);
        self.take_replies(now);
        if self.inbox.lock().is_closed {
            self.tasks.clear();
            self.telemetry.close(now);
        } else {
            self.begin_calls(now);
            self.run_calls(now, actions);
        }
        self.telemetry
            .turn(now, wall, &mut self.cluster, || AdminTicket::Telemetry, actions);
        self.is_finished = self.telemetry.is_closed(now);
    }

    fn next_deadline(&self) -> Option<Moment> {
        let calls = self.tasks.values().flat_map(|task| {
            let mailbox = task.lock();
            let sleeps = mailbox.sleeps.values().copied().min();
            [Some(mailbox.deadline), sleeps, task.unsent_retry_at]
                .into_iter()
                .flatten()
        });
        let others = [self.cluster.next_deadline(), self.telemetry.next_deadline()];
        calls.chain(others.into_iter().flatten()).min()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}
