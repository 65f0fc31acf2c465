//! One thread that serves many connections: waits for sockets, wake-ups and deadlines, and gives
//! each connection a turn when its tenant is scheduled (`scheduler/mod.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_core::quota::Quotas;
use ottla_core::reply::ReplyBuffer;
use ottla_core::tenant::{TenantId, Tenants};
use ottla_core::time::{Clock, Moment};
use rustix::event::{Timespec, epoll};
use slab::Slab;
use tracing::{debug, error, warn};

use super::connection::{Connection, Turn};
use super::expected_answers::ExpectedAnswers;
use super::input::{BufferPool, SHARED_READ_BYTES};
use super::mailbox::{Mail, Mailbox, NewConnection, Token};
use super::memory_budget::{MemoryBudget, Pocket};
use super::output::SparePages;
use super::refusal::Refusal;
use super::scheduler::{CHARGE_MICROS_MAX, QUANTUM_MICROS, Ready, Scheduler};
use super::service::Service;
use crate::executor::cold_reads::ColdReads;
use crate::metrics::accounts::{AccountBook, Accounts, Sum};
use crate::metrics::activity::{ActivityIndex, Exchange};
use crate::metrics::recorder::{Finished, LoopRecords};
use crate::metrics::stage::Stage;
use crate::rate_limit::RateLimit;

const MAILBOX_EVENT: u64 = u64::MAX;
const EVENTS_PER_WAIT: usize = 256;

/// How long ready connections are served before the kernel is asked for new events: half a quantum,
/// so that a newcomer is seen before the next turn ends, at the price of one system call per
/// interval.
const POLL_INTERVAL_MICROS: u64 = QUANTUM_MICROS as u64 / 2;

/// The same bound in turns, for a clock that stands still or was set back. A turn seldom takes less
/// than 2 µs.
const TURNS_PER_POLL_MAX: usize = 64;

/// How often free buffers are trimmed while there are any.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);

/// How long a stopping loop waits for replies that are due.
const STOP_GRACE: Duration = Duration::from_millis(1_000);

/// Accepted connections that are registered per round: a microsecond or two each, less than the
/// round's turns.
const TAKEN_IN_PER_ROUND: usize = 32;

/// Settings that all connections of a listener share.
#[derive(Clone, Debug)]
pub struct NetSettings {
    /// `socket.request.max.bytes`.
    pub request_bytes_max: i32,
    /// `connections.max.idle.ms`; also how long a request may take to arrive, and how long a client
    /// may take to accept the next byte of its replies. `None`: no limit.
    pub idle_max: Option<Duration>,
    /// `socket.send.buffer.bytes` and `socket.receive.buffer.bytes`; `None` leaves them to the
    /// kernel.
    pub send_buffer_bytes: Option<usize>,
    pub receive_buffer_bytes: Option<usize>,
    /// `ottla.slow.request.ms`; `None`: slow requests are not logged.
    pub slow_request: Option<Duration>,
}

/// The clock of the current turn.
#[derive(Debug, Default)]
pub struct TurnClock {
    /// The time of the last reading of the clock.
    now: Moment,
    ends: Moment,
    is_one_free: bool,
    /// Time this turn has spent sending.
    pub sending_micros: u64,
}

impl TurnClock {
    fn begin(&mut self, budget_micros: u64) {
        self.ends = self.now.after(Duration::from_micros(budget_micros));
        self.is_one_free = true;
        self.sending_micros = 0;
    }

    pub fn ends(&self) -> Moment {
        self.ends
    }

    /// Whether the turn's budget is used up, so that others should be served.
    pub fn is_over(&self) -> bool {
        self.now >= self.ends
    }

    /// Grants one step regardless of the budget: for work that a read has begun or that is due.
    pub fn allow_one(&mut self) {
        self.is_one_free = true;
    }

    /// Whether one more request may be served, or one more reply finished.
    pub fn may_serve(&self) -> bool {
        self.is_one_free || !self.is_over()
    }

    pub fn has_served(&mut self) {
        self.is_one_free = false;
    }
}

/// What an event loop lends to the connection being served.
pub struct LoopContext {
    pub service: Arc<dyn Service>,
    pub clock: Arc<dyn Clock>,
    pub settings: Arc<NetSettings>,
    pub mailbox: Arc<Mailbox>,
    pub cold_reads: Arc<ColdReads>,
    pub quotas: Arc<Quotas>,
    pub memory: Arc<MemoryBudget>,
    /// The pocket of this loop.
    pub pocket: Arc<Pocket>,
    pub pool: BufferPool,
    pub spare: SparePages,
    pub reply: ReplyBuffer,
    pub expected: ExpectedAnswers,
    pub header: Vec<u8>,
    pub tenants: Arc<Tenants>,
    pub accounts: AccountBook,
    pub turn: TurnClock,
    records: Arc<Mutex<LoopRecords>>,
    slow_lines: RateLimit,
}

impl LoopContext {
    pub fn records(&self) -> MutexGuard<'_, LoopRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last reading of the clock: accurate enough for what happened since.
    pub fn now(&self) -> Moment {
        self.turn.now
    }

    /// Reads the clock.
    pub fn tick(&mut self) -> Moment {
        self.turn.now = self.clock.moment();
        self.turn.now
    }

    /// Counts a request; `activity` is the connection it counts for besides its client id.
    pub fn finish(&mut self, request: Finished, activity: Option<(ActivityIndex, Exchange<'_>)>) {
        {
            let mut records = self.records();
            records.record(&request);
            if let Some((index, exchange)) = activity {
                records.activities.add(index, &exchange);
            }
        }
        let own_micros = request.times.own_time();
        if self
            .settings
            .slow_request
            .is_some_and(|slow| u128::from(own_micros) >= slow.as_micros())
        {
            self.write_slow_line(&request);
        }
    }

    #[cold]
    fn write_slow_line(&mut self, request: &Finished) {
        let Some(suppressed) = self.slow_lines.pass() else {
            return;
        };
        let times = &request.times;
        let client_id = self.records().client_name(request.client).clone();
        warn!(
            api = request.api_key.name(),
            version = request.api_version,
            %client_id,
            connection = request.connection_id,
            correlation_id = request.correlation_id,
            total_us = times.total(),
            read_us = times.get(Stage::Read),
            queued_us = times.get(Stage::Queued),
            handled_us = times.get(Stage::Handled),
            appended_us = times.get(Stage::Appended),
            synced_us = times.get(Stage::Synced),
            waited_for_data_us = times.get(Stage::WaitedForData),
            cold_read_us = times.get(Stage::ColdRead),
            waited_for_group_us = times.get(Stage::WaitedForGroup),
            controller_us = times.get(Stage::Controller),
            throttled_us = times.get(Stage::Throttled),
            behind_us = times.get(Stage::Behind),
            written_us = times.get(Stage::Written),
            dominated_by = times.dominant().name(),
            suppressed,
            "slow request"
        );
    }
}

/// What an event loop is built from.
pub struct LoopParts {
    pub service: Arc<dyn Service>,
    pub clock: Arc<dyn Clock>,
    pub settings: Arc<NetSettings>,
    pub cold_reads: Arc<ColdReads>,
    pub quotas: Arc<Quotas>,
    /// Shared by all loops.
    pub memory: Arc<MemoryBudget>,
    pub records: Arc<Mutex<LoopRecords>>,
    pub tenants: Arc<Tenants>,
    /// Written by this loop only.
    pub accounts: Arc<Accounts>,
}

/// A running event loop. Dropping it answers what is due, closes its connections and joins its
/// thread.
pub struct EventLoop {
    mailbox: Arc<Mailbox>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EventLoop {
    pub fn start(index: usize, parts: LoopParts) -> io::Result<EventLoop> {
        let mailbox = Arc::new(Mailbox::new()?);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &epoll,
            mailbox.eventfd(),
            epoll::EventData::new_u64(MAILBOX_EVENT),
            flags,
        )?;
        let looper = Looper {
            epoll,
            connections: Slab::new(),
            next_generation: 0,
            deadlines: BTreeSet::new(),
            scheduler: Scheduler::default(),
            arrivals: VecDeque::new(),
            next_trim: Moment::from_micros(0),
            stop_at: None,
            principal: Arc::from("User:ANONYMOUS"),
            refusals: RateLimit::per_second(10),
            context: LoopContext {
                service: parts.service,
                clock: parts.clock,
                settings: parts.settings,
                mailbox: mailbox.clone(),
                cold_reads: parts.cold_reads,
                quotas: parts.quotas,
                pool: BufferPool::new(parts.memory.pocket(index).limit_bytes()),
                pocket: parts.memory.pocket(index),
                memory: parts.memory,
                spare: SparePages::default(),
                reply: ReplyBuffer::default(),
                expected: ExpectedAnswers::default(),
                header: Vec::new(),
                tenants: parts.tenants,
                accounts: AccountBook::new(parts.accounts),
                turn: TurnClock::default(),
                records: parts.records,
                slow_lines: RateLimit::per_second(5),
            },
        };
        let thread = std::thread::Builder::new()
            .name(format!("ottla-loop-{index}"))
            .spawn(move || looper.run())?;
        Ok(EventLoop {
            mailbox,
            thread: Some(thread),
        })
    }

    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Begins to stop; dropping waits for the end.
    pub fn stop(&self) {
        self.mailbox.stop();
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("an event loop panicked");
        }
    }
}

struct Looper {
    epoll: OwnedFd,
    connections: Slab<Connection>,
    next_generation: u32,
    deadlines: BTreeSet<(Moment, Token)>,
    /// Connections that have work.
    scheduler: Scheduler<Token>,
    /// Accepted connections that are not registered yet.
    arrivals: VecDeque<NewConnection>,
    next_trim: Moment,
    stop_at: Option<Moment>,
    principal: Arc<str>,
    refusals: RateLimit,
    context: LoopContext,
}

impl Looper {
    fn run(mut self) {
        let mut shared = vec![0; SHARED_READ_BYTES];
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        let mut mail = Mail::default();
        let mut awake_since = self.context.tick();
        loop {
            self.context.mailbox.collect(&mut mail);
            if !mail.is_empty() {
                let now = self.context.tick();
                self.read_mail(&mut mail, now);
            }
            self.take_in_some();
            self.serve_ready(&mut shared);
            let now = self.context.tick();
            if self.is_stopped(now) {
                return;
            }
            self.context.records().busy_micros += now.micros_since(awake_since);
            events.clear();
            let timeout = self.timeout(now);
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("epoll_wait on an open descriptor failed: {error}"),
            }
            self.context.mailbox.wake_up();
            let now = self.context.tick();
            awake_since = now;
            for event in &events {
                self.on_event(event, now);
            }
            self.on_deadlines(now);
        }
    }

    /// Serves turns until no connection is ready, or it is time to poll for new events.
    fn serve_ready(&mut self, shared: &mut [u8]) {
        let began = self.context.tick();
        for _ in 0..TURNS_PER_POLL_MAX {
            let Some(ready) = self.scheduler.next_ready() else {
                return;
            };
            self.turn(&ready, shared);
            if self.context.now().micros_since(began) >= POLL_INTERVAL_MICROS {
                return;
            }
        }
    }

    /// Queues a connection that has work.
    fn queue(&mut self, token: Token, now: Moment) {
        if let Some(connection) = connection(&mut self.connections, token)
            && connection.queue(now)
        {
            self.scheduler.push(connection.tenant(), token);
        }
    }

    fn read_mail(&mut self, mail: &mut Mail, now: Moment) {
        self.arrivals.extend(mail.connections.drain(..));
        for token in mail.woken.drain(..) {
            if let Some(connection) = connection(&mut self.connections, token) {
                connection.on_wake();
                self.queue(token, now);
            }
        }
        if std::mem::take(&mut mail.stop) && self.stop_at.is_none() {
            self.stop_at = Some(now.after(STOP_GRACE));
            self.connections
                .iter_mut()
                .for_each(|(_, connection)| connection.stop_reading());
        }
    }

    fn is_stopped(&self, now: Moment) -> bool {
        self.stop_at.is_some_and(|stop_at| {
            now >= stop_at
                || self
                    .connections
                    .iter()
                    .all(|(_, connection)| connection.is_settled())
        })
    }

    fn timeout(&mut self, now: Moment) -> Option<Timespec> {
        if self.scheduler.has_ready() || !self.arrivals.is_empty() || !self.context.mailbox.fall_asleep() {
            return Some(Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let next = self.deadlines.first().map(|(deadline, _)| *deadline);
        let trim = (!self.context.pool.is_empty()).then_some(self.next_trim);
        let next = [next, trim, self.stop_at].into_iter().flatten().min()?;
        // epoll counts milliseconds: round up, or the loop would spin through the last one.
        let millis = next.micros_since(now).div_ceil(1_000);
        Some(Timespec {
            tv_sec: (millis / 1_000) as i64,
            tv_nsec: (millis % 1_000 * 1_000_000) as i64,
        })
    }

    /// Registers a few accepted connections; the rest follow after this round's turns. A connection
    /// is opened in its first turn, so the cost of a thousand connections at once falls on their
    /// own tenant.
    fn take_in_some(&mut self) {
        if self.stop_at.is_some() {
            self.arrivals.clear();
        }
        if self.arrivals.is_empty() {
            return;
        }
        let mut began = self.context.tick();
        for _ in 0..TAKEN_IN_PER_ROUND {
            let Some(new) = self.arrivals.pop_front() else {
                return;
            };
            let tenant = self.take_in(new, began);
            let now = self.context.tick();
            self.book(tenant, now.micros_since(began));
            began = now;
        }
    }

    fn take_in(&mut self, new: NewConnection, now: Moment) -> TenantId {
        let entry = self.connections.vacant_entry();
        let token = Token {
            index: entry.key() as u32,
            generation: self.next_generation,
        };
        // Never the mailbox's token: `u32::MAX` is not used as a generation.
        self.next_generation = (self.next_generation + 1) % u32::MAX;
        let connection = Connection::new(new, token, self.principal.clone(), &mut self.context);
        let tenant = connection.tenant();
        entry.insert(connection);
        self.queue(token, now);
        tenant
    }

    /// Charges a tenant for work done outside its turns.
    fn book(&mut self, tenant: TenantId, micros: u64) {
        self.scheduler.owe(tenant, micros);
        self.context.accounts.add(tenant, [(Sum::HandlingMicros, micros)]);
    }

    fn on_event(&mut self, event: &epoll::Event, now: Moment) {
        let (data, flags) = (event.data.u64(), event.flags);
        if data == MAILBOX_EVENT {
            return;
        }
        let token = Token::from_u64(data);
        let Some(connection) = connection(&mut self.connections, token) else {
            return;
        };
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        connection.on_socket(
            flags.contains(epoll::EventFlags::IN),
            flags.contains(epoll::EventFlags::OUT),
            flags.intersects(closed),
        );
        self.queue(token, now);
    }

    /// Checks expired deadlines. Closing takes time, and a thousand connections that came together
    /// become idle together: beyond one quantum the rest is left to the next round, which is then
    /// due at once.
    fn on_deadlines(&mut self, now: Moment) {
        let mut began = now;
        while let Some((deadline, token)) = self.deadlines.first().copied()
            && deadline <= now
            && began.micros_since(now) < QUANTUM_MICROS as u64
        {
            self.deadlines.pop_first();
            let Some(connection) = connection(&mut self.connections, token) else {
                continue;
            };
            connection.armed = None;
            let tenant = connection.tenant();
            match connection.check_limits(&self.context, now) {
                Ok(()) => self.queue(token, now),
                Err(refusal) => {
                    self.close(token, &refusal);
                    let closed = self.context.tick();
                    self.book(tenant, closed.micros_since(began));
                    began = closed;
                }
            }
        }
        if now >= self.next_trim && !self.context.pool.is_empty() {
            self.context.pool.trim();
            self.next_trim = now.after(TRIM_INTERVAL);
        }
    }

    fn turn(&mut self, ready: &Ready<Token>, shared: &mut [u8]) {
        let token = ready.connection;
        let began = self.context.now();
        self.context.turn.begin(ready.budget_micros);
        let (outcome, tenant) = match connection(&mut self.connections, token) {
            Some(connection) => {
                let outcome = open(&self.epoll, connection, &self.context.settings)
                    .and_then(|()| connection.turn(&mut self.context, shared));
                (outcome, connection.tenant())
            }
            // The connection was closed while it waited in the queue.
            None => (Ok(Turn::Wait), ready.tenant),
        };
        if let Err(refusal) = &outcome {
            self.close(token, refusal);
        }
        let now = self.context.tick();
        let micros = now.micros_since(began).min(CHARGE_MICROS_MAX as u64);
        let sending_micros = self.context.turn.sending_micros.min(micros);
        let waiting = self.scheduler.charge(micros);
        let amounts = [
            (Sum::HandlingMicros, micros - sending_micros),
            (Sum::SendingMicros, sending_micros),
            (Sum::InflictedMicros, waiting.inflicted_micros),
            (Sum::SufferedMicros, waiting.suffered_micros),
        ];
        self.context.accounts.add(tenant, amounts);
        if outcome.is_ok_and(|turn| turn == Turn::Again) {
            self.queue(token, now);
        }
        self.note_deadline(token);
    }

    fn note_deadline(&mut self, token: Token) {
        let Some(connection) = connection(&mut self.connections, token) else {
            return;
        };
        let deadline = connection.next_deadline(&self.context);
        // An armed deadline that is too early costs one check; only an earlier one must be armed.
        if let Some(deadline) = deadline
            && connection.armed.is_none_or(|armed| deadline < armed)
        {
            if let Some(armed) = connection.armed.replace(deadline) {
                self.deadlines.remove(&(armed, token));
            }
            self.deadlines.insert((deadline, token));
        }
    }

    fn close(&mut self, token: Token, refusal: &Refusal) {
        let connection = self.connections.remove(token.index as usize);
        connection.leave(&self.context);
        if let Some(armed) = connection.armed {
            self.deadlines.remove(&(armed, token));
        }
        self.context.records().closed(refusal.name());
        let peer = connection.peer();
        if matches!(refusal, Refusal::Panicked { .. }) {
            error!(%peer, reason = %refusal, "connection closed");
        } else if !refusal.is_worth_a_line() {
            debug!(%peer, reason = %refusal, "connection closed");
        } else if let Some(suppressed) = self.refusals.pass() {
            warn!(%peer, suppressed, reason = %refusal, "connection closed");
        }
    }
}

fn connection(connections: &mut Slab<Connection>, token: Token) -> Option<&mut Connection> {
    connections
        .get_mut(token.index as usize)
        .filter(|connection| connection.token == token)
}

/// Finishes opening a connection in its first turn; does nothing in later turns.
fn open(epoll: &OwnedFd, connection: &mut Connection, settings: &NetSettings) -> Result<(), Refusal> {
    if !connection.opened() {
        return Ok(());
    }
    if let Err(error) = watch(epoll, connection, settings) {
        warn!(peer = %connection.peer(), %error, "connection cannot be watched");
        return Err(Refusal::Gone);
    }
    Ok(())
}

fn watch(epoll: &OwnedFd, connection: &Connection, settings: &NetSettings) -> rustix::io::Result<()> {
    let socket = connection.socket();
    if let Some(bytes) = settings.send_buffer_bytes {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    if let Some(bytes) = settings.receive_buffer_bytes {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    let flags =
        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    let data = epoll::EventData::new_u64(connection.token.to_u64());
    epoll::add(epoll, socket, data, flags)
}
