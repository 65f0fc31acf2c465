//! Accepting connections: one thread per listener, which waits in `accept` and hands sockets to the loops in turn.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ottla_core::quota::Quotas;
use ottla_core::time::{Clock, Moment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tracing::warn;

use super::mailbox::{Mailbox, NewConnection};
use crate::rate_limit::RateLimit;

/// How long accepting pauses when the process is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait for an event loop to look at them. Further ones wait in the kernel, whose own queue is bounded too.
const UNOPENED_MAX: usize = 256;

/// Connections of addresses over their rate that wait to be closed; beyond them they are closed at once.
const THROTTLED_MAX: usize = 1_000;

/// How many connections may be open, in all and from one address (`max.connections`, `max.connections.per.ip`).
#[derive(Debug)]
pub struct ConnectionLimits {
    pub connections_max: usize,
    pub connections_max_per_ip: usize,
    /// `max.connections.per.ip.overrides`.
    pub overrides: HashMap<IpAddr, usize>,
}

/// Counts open connections; shared by all listeners.
#[derive(Debug)]
pub struct ConnectionCounts {
    limits: ConnectionLimits,
    /// `connection_creation_rate`
    quotas: Option<(Arc<Quotas>, Arc<dyn Clock>)>,
    counts: Mutex<Counts>,
    freed: Condvar,
    accepted: AtomicU64,
    refused: AtomicU64,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    /// Accepted, but no event loop has looked at them yet.
    unopened: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The right to be open; dropped with the connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    counts: Arc<ConnectionCounts>,
    address: IpAddr,
    is_opened: bool,
}

impl ConnectionPermit {
    /// An event loop has the connection now.
    pub fn opened(&mut self) {
        if !std::mem::replace(&mut self.is_opened, true) {
            let mut counts = self.counts.lock();
            counts.unopened -= 1;
            if counts.unopened < UNOPENED_MAX {
                self.counts.freed.notify_all();
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        let was_full = counts.open >= self.counts.limits.connections_max;
        counts.open -= 1;
        let was_queued = !self.is_opened;
        if was_queued {
            counts.unopened -= 1;
        }
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
        if was_full || was_queued {
            self.counts.freed.notify_all();
        }
    }
}

impl ConnectionCounts {
    pub fn new(limits: ConnectionLimits) -> ConnectionCounts {
        ConnectionCounts {
            limits,
            quotas: None,
            counts: Mutex::default(),
            freed: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    /// The same, and addresses may open no more connections per second than these allow.
    pub fn with_quotas(self, quotas: Arc<Quotas>, clock: Arc<dyn Clock>) -> ConnectionCounts {
        ConnectionCounts {
            quotas: Some((quotas, clock)),
            ..self
        }
    }

    /// For how long `address` has to wait for one more connection, as a moment; `None`: it has not.
    fn throttled_until(&self, address: IpAddr) -> Option<Moment> {
        let (quotas, clock) = self.quotas.as_ref()?;
        let now = clock.moment();
        let wait = quotas.connections.admit(address, now).err()?;
        Some(now.after(wait))
    }

    fn now(&self) -> Moment {
        self.quotas
            .as_ref()
            .map_or(Moment(0), |(_, clock)| clock.moment())
    }

    pub fn open(&self) -> usize {
        self.lock().open
    }

    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// `None` when the address has as many connections as it may.
    fn permit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        let mut counts = self.lock();
        let limit = self
            .limits
            .overrides
            .get(&address)
            .unwrap_or(&self.limits.connections_max_per_ip);
        let count = counts.by_address.entry(address).or_default();
        if *count >= *limit {
            if *count == 0 {
                counts.by_address.remove(&address);
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        counts.open += 1;
        counts.unopened += 1;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit {
            counts: self.clone(),
            address,
            is_opened: false,
        })
    }

    /// Returns when one more connection may be opened, or accepting has ended. As Apache Kafka, we do not accept and close.
    fn wait_for_room(&self, stopped: &AtomicBool) {
        let mut counts = self.lock();
        while (counts.open >= self.limits.connections_max || counts.unopened >= UNOPENED_MAX)
            && !stopped.load(Ordering::SeqCst)
        {
            counts = self.freed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One bound address with its accepting thread. Dropping it stops accepting.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    socket: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    counts: Arc<ConnectionCounts>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Listener {
    /// Starts accepting on a bound socket.
    pub fn start(
        name: Arc<str>,
        socket: TcpListener,
        counts: Arc<ConnectionCounts>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        let socket = Arc::new(socket);
        let stopped = Arc::new(AtomicBool::new(false));
        let acceptor = Acceptor {
            name,
            socket: socket.clone(),
            stopped: stopped.clone(),
            counts: counts.clone(),
            mailboxes,
            throttled: VecDeque::new(),
            refusals: RateLimit::per_second(1),
        };
        let thread = std::thread::Builder::new()
            .name("ottla-accept".into())
            .spawn(move || acceptor.run())?;
        Ok(Listener {
            address,
            socket,
            stopped,
            counts,
            thread: Some(thread),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes `accept`, which then fails.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        {
            let _counts = self.counts.lock();
            self.counts.freed.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Acceptor {
    name: Arc<str>,
    socket: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    counts: Arc<ConnectionCounts>,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Over their address's rate, with the moment at which each is closed: a client that is refused at once comes back at once.
    throttled: VecDeque<(Moment, TcpStream)>,
    refusals: RateLimit,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            self.counts.wait_for_room(&self.stopped);
            if !self.throttled.is_empty() && !self.wait_with_throttled() {
                continue;
            }
            let accepted = self.socket.accept();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            match accepted {
                Ok((socket, peer)) => self.hand_out(socket, peer),
                Err(error) => self.pause_after(&error),
            }
        }
    }

    /// Waits until a connection can be accepted, but no longer than until the next throttled one is to be closed; whether
    /// there is one to accept.
    fn wait_with_throttled(&mut self) -> bool {
        let now = self.counts.now();
        while self.throttled.front().is_some_and(|(until, _)| *until <= now) {
            self.throttled.pop_front();
        }
        let Some((until, _)) = self.throttled.front() else {
            return true;
        };
        let wait_micros = until.micros_since(now);
        let timeout = Timespec {
            tv_sec: (wait_micros / 1_000_000) as i64,
            tv_nsec: (wait_micros % 1_000_000 * 1_000) as i64,
        };
        let mut listening = [PollFd::new(&*self.socket, PollFlags::IN)];
        // An error is accept's to tell.
        poll(&mut listening, Some(&timeout)).unwrap_or(1) > 0
    }

    fn hand_out(&mut self, socket: TcpStream, peer: SocketAddr) {
        // A socket for both families shows IPv4 peers as ::ffff:a.b.c.d.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if let Some(until) = self.counts.throttled_until(peer.ip()) {
            if self.throttled.len() < THROTTLED_MAX {
                // Addresses have rates of their own, so what comes later may be due earlier.
                let at = self.throttled.partition_point(|(other, _)| *other <= until);
                self.throttled.insert(at, (until, socket));
            }
            return;
        }
        let Some(permit) = self.counts.permit(peer.ip()) else {
            if let Some(suppressed) = self.refusals.pass() {
                warn!(%peer, suppressed, "connection refused: max.connections.per.ip reached");
            }
            return;
        };
        let connection_id = self.counts.next_id.fetch_add(1, Ordering::Relaxed);
        let mailbox = &self.mailboxes[(connection_id % self.mailboxes.len() as u64) as usize];
        mailbox.connect(NewConnection {
            socket,
            peer,
            connection_id,
            listener_name: self.name.clone(),
            permit,
        });
    }

    fn pause_after(&mut self, error: &io::Error) {
        let errno = Errno::from_io_error(error);
        // A peer that gave up while waiting in the backlog is no reason to pause.
        if matches!(errno, Some(Errno::CONNABORTED | Errno::INTR)) {
            return;
        }
        if let Some(suppressed) = self.refusals.pass() {
            warn!(%error, suppressed, "connections cannot be accepted");
        }
        std::thread::sleep(ACCEPT_PAUSE);
    }
}
