//! One thread that serves many connections: waits for sockets, wake-ups and deadlines, and gives
//! each connection a turn when its tenant is scheduled (`scheduler/mod.rs`).

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;
use rustix::event::{Timespec, epoll};
use slab::Slab;
use tracing::{debug, error, warn};

use super::connection::{Connection, Turn};
use super::input::SHARED_READ_BYTES;
use super::loop_context::{LoopContext, LoopParts, NetSettings};
use super::mailbox::{Mail, Mailbox, NewConnection, Token};
use super::refusal::CloseReason;
use super::scheduler::{CHARGE_MICROS_MAX, QUANTUM_MICROS, Ready, Scheduler};
use crate::metrics::accounts::Sum;
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
            context: LoopContext::new(index, parts, mailbox.clone()),
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

/// A connection, and what the loop remembers of it.
struct Entry {
    token: Token,
    connection: Connection,
    /// Since when it has been queued for its turn.
    queued: Option<Moment>,
    /// The deadline that is armed for it.
    armed: Option<Moment>,
}

struct Looper {
    epoll: OwnedFd,
    connections: Slab<Entry>,
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
                self.say_goodbye();
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
        if let Some(entry) = entry_of(&mut self.connections, token)
            && entry.queued.is_none()
        {
            entry.queued = Some(now);
            self.scheduler.push(entry.connection.tenant(), token);
        }
    }

    fn read_mail(&mut self, mail: &mut Mail, now: Moment) {
        self.arrivals.extend(mail.connections.drain(..));
        for token in mail.woken.drain(..) {
            if let Some(entry) = entry_of(&mut self.connections, token) {
                entry.connection.on_wake();
                self.queue(token, now);
            }
        }
        if std::mem::take(&mut mail.stop) && self.stop_at.is_none() {
            self.stop_at = Some(now.after(STOP_GRACE));
            self.connections
                .iter_mut()
                .for_each(|(_, entry)| entry.connection.stop_reading());
        }
    }

    fn is_stopped(&self, now: Moment) -> bool {
        self.stop_at.is_some_and(|stop_at| {
            now >= stop_at
                || self
                    .connections
                    .iter()
                    .all(|(_, entry)| entry.connection.is_settled())
        })
    }

    fn say_goodbye(&mut self) {
        self.connections
            .iter_mut()
            .for_each(|(_, entry)| entry.connection.say_goodbye());
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
        let vacant = self.connections.vacant_entry();
        let token = Token {
            index: vacant.key() as u32,
            generation: self.next_generation,
        };
        // Never the mailbox's token: `u32::MAX` is not used as a generation.
        self.next_generation = (self.next_generation + 1) % u32::MAX;
        let principal = new.transport.principal().unwrap_or(&self.principal).clone();
        let connection = Connection::new(new, token, principal, &mut self.context);
        let tenant = connection.tenant();
        vacant.insert(Entry {
            token,
            connection,
            queued: None,
            armed: None,
        });
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
        let Some(entry) = entry_of(&mut self.connections, token) else {
            return;
        };
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        entry.connection.on_socket(
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
            let Some(entry) = entry_of(&mut self.connections, token) else {
                continue;
            };
            entry.armed = None;
            let tenant = entry.connection.tenant();
            match entry.connection.check_limits(&self.context, now) {
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
        let (outcome, tenant) = match entry_of(&mut self.connections, token) {
            Some(entry) => {
                let queued = entry.queued.take().unwrap_or(began);
                let outcome = open(&self.epoll, entry, &self.context.settings)
                    .and_then(|()| entry.connection.turn(&mut self.context, shared, queued));
                (outcome, entry.connection.tenant())
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
        let Some(entry) = entry_of(&mut self.connections, token) else {
            return;
        };
        let deadline = entry.connection.next_deadline(&self.context);
        // An armed deadline that is too early costs one check; only an earlier one must be armed.
        if let Some(deadline) = deadline
            && entry.armed.is_none_or(|armed| deadline < armed)
        {
            if let Some(armed) = entry.armed.replace(deadline) {
                self.deadlines.remove(&(armed, token));
            }
            self.deadlines.insert((deadline, token));
        }
    }

    fn close(&mut self, token: Token, refusal: &CloseReason) {
        let mut entry = self.connections.remove(token.index as usize);
        entry.connection.leave(&self.context);
        if let Some(armed) = entry.armed {
            self.deadlines.remove(&(armed, token));
        }
        self.context.records().closed(refusal.name());
        let peer = entry.connection.peer();
        if matches!(refusal, CloseReason::Panicked { .. }) {
            error!(%peer, reason = %refusal, "connection closed");
        } else if !refusal.is_worth_a_line() {
            debug!(%peer, reason = %refusal, "connection closed");
        } else if let Some(suppressed) = self.refusals.pass() {
            warn!(%peer, suppressed, reason = %refusal, "connection closed");
        }
    }
}

fn entry_of(connections: &mut Slab<Entry>, token: Token) -> Option<&mut Entry> {
    connections
        .get_mut(token.index as usize)
        .filter(|entry| entry.token == token)
}

/// Finishes opening a connection in its first turn; does nothing in later turns.
fn open(epoll: &OwnedFd, entry: &mut Entry, settings: &NetSettings) -> Result<(), CloseReason> {
    if !entry.connection.opened() {
        return Ok(());
    }
    if let Err(error) = watch(epoll, entry, settings) {
        warn!(peer = %entry.connection.peer(), %error, "connection cannot be watched");
        return Err(CloseReason::Gone);
    }
    Ok(())
}

fn watch(epoll: &OwnedFd, entry: &Entry, settings: &NetSettings) -> rustix::io::Result<()> {
    let socket = entry.connection.socket();
    if let Some(bytes) = settings.send_buffer_bytes {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    if let Some(bytes) = settings.receive_buffer_bytes {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    let flags =
        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    let data = epoll::EventData::new_u64(entry.token.to_u64());
    epoll::add(epoll, socket, data, flags)
}
