//! Handshakes of TLS, on a thread of their own: one costs as much as hundreds of requests, and an
//! event loop would let all its connections wait for it.
//!
//! A listener hands accepted sockets to this thread, which hands them with their sessions to the
//! event loops. Addresses take turns (deficit round robin by the time they took), so a flood from
//! one address delays that address; those of one /64 network of IPv6 are one address here. What a
//! client may take here is bounded: time, bytes, and the number of handshakes under way.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_core::tenant::network;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use slab::Slab;
use tracing::{debug, error, warn};

use super::mailbox::{Mailbox, NewConnection};
use super::tls_session::TlsPages;
use crate::executor::fair_queue::FairQueue;
use crate::rate_limit::RateLimit;
use crate::tls::listener::TlsListener;

mod counts;
mod one;

pub use counts::{HandshakeCounts, Outcome};
use one::{Ending, Handshake, Progress};

/// Handshakes under way in a broker: with their buffers, at most some hundred megabytes.
pub const HANDSHAKES_MAX: usize = 2_048;

/// How long an address may work before the next one has its turn: a few signatures of RSA.
const QUANTUM_MICROS: u64 = 2_000;

/// What a step is expected to take: an exchange of keys and a signature on an elliptic curve.
const STEP_MICROS: u64 = 300;

/// How long the thread works before it looks for new events.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

const ARRIVAL_EVENT: u64 = u64::MAX;
const EVENTS_PER_WAIT: usize = 256;

/// A connection that a listener with TLS has accepted.
#[derive(Debug)]
pub struct Arrival {
    pub connection: NewConnection,
    pub listener: Arc<TlsListener>,
    /// Of the event loop that is to serve it.
    pub mailbox: Arc<Mailbox>,
}

/// The way in for listeners.
#[derive(Debug)]
pub struct Entrance {
    arrivals: Mutex<Vec<Arrival>>,
    is_stopping: AtomicBool,
    eventfd: OwnedFd,
    counts: Arc<HandshakeCounts>,
}

impl Entrance {
    /// Delivers all of them, and leaves `arrivals` empty.
    pub fn enter(&self, arrivals: &mut Vec<Arrival>) {
        self.arrivals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(arrivals);
        self.wake();
    }

    pub fn counts(&self) -> &Arc<HandshakeCounts> {
        &self.counts
    }

    fn wake(&self) {
        // Fails only when 2^64 - 2 wake-ups are unread; the thread is then awake anyway.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }
}

/// The thread. Dropping it closes the connections that are not handed on.
#[derive(Debug)]
pub struct Handshakes {
    entrance: Arc<Entrance>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Handshakes {
    /// - `timeout`: how long a handshake may take, from its acceptance on.
    /// - `handshakes_max`: beyond this number under way, the oldest of the address that has most is
    ///   dropped.
    pub fn start(timeout: Duration, handshakes_max: usize) -> io::Result<Handshakes> {
        let entrance = Arc::new(Entrance {
            arrivals: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counts: Arc::default(),
        });
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &epoll,
            &entrance.eventfd,
            epoll::EventData::new_u64(ARRIVAL_EVENT),
            flags,
        )?;
        let shaker = Shaker {
            entrance: entrance.clone(),
            epoll,
            timeout,
            handshakes_max,
            handshakes: Slab::new(),
            next_generation: 0,
            ready: FairQueue::new(QUANTUM_MICROS, 1),
            by_network: BTreeMap::new(),
            deadlines: VecDeque::new(),
            lingering: VecDeque::new(),
            pages: TlsPages::default(),
            refusals: RateLimit::per_second(10),
        };
        let thread = std::thread::Builder::new()
            .name("ottla-tls".to_owned())
            .spawn(move || shaker.run())?;
        Ok(Handshakes {
            entrance,
            thread: Some(thread),
        })
    }

    pub fn entrance(&self) -> &Arc<Entrance> {
        &self.entrance
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.entrance.is_stopping.store(true, Ordering::SeqCst);
        self.entrance.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the thread for TLS handshakes panicked");
        }
    }
}

/// A handshake of the thread. Tokens are not reused while the thread lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn from_u64(value: u64) -> Token {
        Token {
            index: value as u32,
            generation: (value >> 32) as u32,
        }
    }
}

struct Entry {
    generation: u32,
    handshake: Handshake,
    is_queued: bool,
}

struct Shaker {
    entrance: Arc<Entrance>,
    epoll: OwnedFd,
    timeout: Duration,
    handshakes_max: usize,
    handshakes: Slab<Entry>,
    next_generation: u32,
    /// Handshakes that have work.
    ready: FairQueue<IpAddr, Token>,
    /// All of an address, or of a network of IPv6, the oldest first.
    by_network: BTreeMap<IpAddr, VecDeque<Token>>,
    /// In the order of their acceptance, which is that of their deadlines.
    deadlines: VecDeque<(Instant, Token)>,
    /// Refused, and waiting for their clients to read why.
    lingering: VecDeque<(Instant, Token)>,
    pages: TlsPages,
    refusals: RateLimit,
}

impl Shaker {
    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        loop {
            if self.entrance.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            self.take_in_all();
            self.serve_ready();
            self.end_overdue();
            events.clear();
            let timeout = self.wait_time();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("epoll_wait on an open descriptor failed: {error}"),
            }
            for event in &events {
                self.on_event(event);
            }
        }
    }

    fn take_in_all(&mut self) {
        let arrivals = {
            let mut arrivals = self
                .entrance
                .arrivals
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *arrivals)
        };
        for arrival in arrivals {
            self.take_in(arrival);
        }
    }

    fn take_in(&mut self, mut arrival: Arrival) {
        // It no longer waits for an event loop's turn, which is what that queue is bounded for.
        arrival.connection.permit.opened();
        if self.handshakes.len() >= self.handshakes_max {
            self.drop_one();
        }
        let address = arrival.connection.peer.ip();
        let handshake = match Handshake::new(arrival) {
            Ok(handshake) => handshake,
            Err(error) => {
                error!(%error, "a TLS handshake cannot begin");
                return;
            }
        };
        let vacant = self.handshakes.vacant_entry();
        let token = Token {
            index: vacant.key() as u32,
            generation: self.next_generation,
        };
        // Never the arrivals' token: `u32::MAX` is not used as a generation.
        self.next_generation = (self.next_generation + 1) % u32::MAX;
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(token.to_u64());
        if let Err(error) = epoll::add(&self.epoll, handshake.socket(), data, flags) {
            warn!(peer = %address, %error, "connection cannot be watched");
            return;
        }
        vacant.insert(Entry {
            generation: token.generation,
            handshake,
            is_queued: false,
        });
        let tokens = self.by_network.entry(network(address)).or_default();
        tokens.push_back(token);
        self.deadlines.push_back((Instant::now() + self.timeout, token));
        self.queue(token);
    }

    /// Drops the oldest handshake of the address, or network of IPv6, that has most of them.
    fn drop_one(&mut self) {
        let most = self.by_network.values().max_by_key(|tokens| tokens.len());
        let Some(token) = most.and_then(|tokens| tokens.front().copied()) else {
            return;
        };
        self.entrance.counts.add(Outcome::Dropped);
        self.tell(token, "too many TLS handshakes are under way");
        drop(self.remove(token));
    }

    fn entry(&mut self, token: Token) -> Option<&mut Entry> {
        self.handshakes
            .get_mut(token.index as usize)
            .filter(|entry| entry.generation == token.generation)
    }

    fn queue(&mut self, token: Token) {
        if let Some(entry) = self.entry(token)
            && !std::mem::replace(&mut entry.is_queued, true)
        {
            let payer = network(entry.handshake.peer().ip());
            self.ready.push(payer, STEP_MICROS, token);
        }
    }

    fn on_event(&mut self, event: &epoll::Event) {
        let data = event.data.u64();
        if data == ARRIVAL_EVENT {
            return;
        }
        self.queue(Token::from_u64(data));
    }

    /// Serves handshakes until none is ready, or it is time to look for new events.
    fn serve_ready(&mut self) {
        let began = Instant::now();
        while let Some((charge, token)) = self.ready.pop() {
            let before = Instant::now();
            self.step(token);
            let micros = u64::try_from(before.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.ready.finish(charge, micros.max(1));
            if began.elapsed() >= POLL_INTERVAL {
                return;
            }
        }
    }

    fn step(&mut self, token: Token) {
        let Some(entry) = self
            .handshakes
            .get_mut(token.index as usize)
            .filter(|entry| entry.generation == token.generation)
        else {
            return;
        };
        entry.is_queued = false;
        match entry.handshake.step(&mut self.pages) {
            Progress::Waits => {}
            Progress::GoesOn => self.queue(token),
            Progress::Ends(ending) => self.end(token, &ending),
        }
    }

    fn end(&mut self, token: Token, ending: &Ending) {
        if let Some(outcome) = self.outcome(token, ending) {
            let counts = &self.entrance.counts;
            counts.add(outcome);
            let handshake = &self.handshakes[token.index as usize].handshake;
            match ending {
                Ending::Refused(refusal) => counts.refused(&refusal.cause),
                Ending::Done => handshake
                    .spoken()
                    .into_iter()
                    .for_each(|spoken| counts.speaks(spoken)),
                _ => {}
            }
            if outcome.is_failure() {
                handshake.failed();
            }
        }
        match ending {
            Ending::Done => return self.hand_on(token),
            Ending::Gone => {}
            Ending::Plaintext => {
                self.tell(token, "speaks plaintext, but the listener expects TLS");
                // For an end of the stream: a reset would look like a broken network.
                return self.linger(token);
            }
            Ending::TooLarge => self.tell(token, "TLS handshake of too many bytes"),
            Ending::Refused(refusal) => {
                self.tell(token, &format!("TLS handshake failed: {}", refusal.text));
                return self.linger(token);
            }
            Ending::HasLingered => {}
        }
        drop(self.remove(token));
    }

    fn outcome(&self, token: Token, ending: &Ending) -> Option<Outcome> {
        Some(match ending {
            Ending::Done if self.handshakes[token.index as usize].handshake.is_resumed() => Outcome::Resumed,
            Ending::Done => Outcome::Full,
            Ending::Gone => Outcome::Gone,
            Ending::Plaintext => Outcome::Plaintext,
            Ending::TooLarge => Outcome::TooLarge,
            Ending::Refused(_) => Outcome::Refused,
            Ending::HasLingered => return None,
        })
    }

    /// Lets a refused client read why.
    fn linger(&mut self, token: Token) {
        if let Some(entry) = self.entry(token) {
            let until = entry.handshake.linger();
            self.lingering.push_back((until, token));
            // What the client has sent meanwhile is read, or its end would be a reset.
            self.queue(token);
        }
    }

    fn tell(&self, token: Token, reason: &str) {
        let Some(entry) = self.handshakes.get(token.index as usize) else {
            return;
        };
        if let Some(suppressed) = self.refusals.pass() {
            let (peer, listener) = (entry.handshake.peer(), entry.handshake.listener());
            warn!(%peer, %listener, suppressed, reason, "connection closed");
        }
    }

    fn hand_on(&mut self, token: Token) {
        let Some(entry) = self.remove(token) else { return };
        let (connection, mailbox) = entry.handshake.into_parts();
        if epoll::delete(&self.epoll, &connection.socket).is_err() {
            return;
        }
        debug!(peer = %connection.peer, "TLS handshake done");
        mailbox.connect(&mut vec![connection]);
    }

    fn remove(&mut self, token: Token) -> Option<Entry> {
        self.entry(token)?;
        let entry = self.handshakes.remove(token.index as usize);
        let network = network(entry.handshake.peer().ip());
        if let Some(tokens) = self.by_network.get_mut(&network) {
            // Near the front: most end in the order in which they began.
            if let Some(at) = tokens.iter().position(|other| *other == token) {
                tokens.remove(at);
            }
            if tokens.is_empty() {
                self.by_network.remove(&network);
            }
        }
        Some(entry)
    }

    /// Closes what has taken too long. Kafka's clients try again after a bare close; an alert would
    /// be the end for them.
    fn end_overdue(&mut self) {
        let now = Instant::now();
        while let Some((deadline, token)) = self.deadlines.front().copied()
            && deadline <= now
        {
            self.deadlines.pop_front();
            // A refused one ends when it has lingered.
            if self
                .entry(token)
                .is_some_and(|entry| !entry.handshake.is_lingering())
            {
                self.entrance.counts.add(Outcome::Overdue);
                self.tell(token, "TLS handshake takes too long");
                drop(self.remove(token));
            }
        }
        while let Some((until, token)) = self.lingering.front().copied()
            && until <= now
        {
            self.lingering.pop_front();
            drop(self.remove(token));
        }
    }

    fn wait_time(&mut self) -> Option<Timespec> {
        // The deadlines of handshakes that have ended are not worth waking up for.
        while let Some((_, token)) = self.deadlines.front().copied()
            && self.entry(token).is_none()
        {
            self.deadlines.pop_front();
        }
        if !self.ready.is_empty() {
            return Some(Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            });
        }
        let deadlines = [self.deadlines.front(), self.lingering.front()];
        let next = deadlines.into_iter().flatten().map(|(at, _)| *at).min()?;
        // epoll counts milliseconds: round up, or the thread would spin through the last one.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Some(Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        })
    }
}
