//! Accepting connections: one thread per listener accepts in batches and hands the sockets to the
//! event loops round robin.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_core::quota::Quotas;
use ottla_core::time::{Clock, Moment};
use ottla_log::disk::os::{ConnectionDescriptor, Descriptors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use tracing::warn;

use super::mailbox::{Mailbox, NewConnection};
use super::unsent::limit_unsent;
use crate::rate_limit::RateLimit;

/// How long accepting pauses when the process is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepted connections that wait to be opened in their tenant's turn. Further ones wait in the
/// kernel's backlog, which is bounded too but is one FIFO queue; here an address that opens
/// hundreds of connections at once delays only itself.
const UNOPENED_MAX: usize = 1_024;

/// Connections accepted in one batch.
const BATCH_MAX: usize = 32;

/// During a storm the thread accepts once per interval instead of once per connection: 5,000
/// connections a second would wake it, and an event loop, 5,000 times. With [`BATCH_MAX`] this also
/// bounds what accepting takes from the loops: 32,000 connections a second of 5 µs each.
const STORM_INTERVAL: Duration = Duration::from_millis(1);

/// Batches that are accepted without delay before the intervals apply.
const EAGER_BATCHES: u32 = 16;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_COUNT: u32 = 4;

/// Connections from addresses over their rate that wait to be closed; beyond this number they are
/// closed at once.
const THROTTLED_MAX: usize = 1_000;

/// How many connections may be open in total and per address (`max.connections`,
/// `max.connections.per.ip`).
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
    descriptors: Arc<Descriptors>,
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
    /// Accepted, but not yet opened by an event loop.
    unopened: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Counts {
    /// Counts one less waiting to be opened; returns whether that frees the place that accepting
    /// waits for.
    fn leave_queue(&mut self) -> bool {
        self.unopened -= 1;
        self.unopened == UNOPENED_MAX - 1
    }
}

/// The permission for one open connection; dropped with the connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    counts: Arc<ConnectionCounts>,
    address: IpAddr,
    is_opened: bool,
    _descriptor: ConnectionDescriptor,
}

impl ConnectionPermit {
    /// Notes that the connection has been opened; false when it already was.
    pub fn opened(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_opened, true);
        if is_first {
            let is_room_new = self.counts.lock().leave_queue();
            if is_room_new {
                self.counts.freed.notify_all();
            }
        }
        is_first
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        let was_full = counts.open >= self.counts.limits.connections_max;
        counts.open -= 1;
        let is_room_new = !self.is_opened && counts.leave_queue();
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
        if was_full || is_room_new {
            self.counts.freed.notify_all();
        }
    }
}

impl ConnectionCounts {
    pub fn new(limits: ConnectionLimits, descriptors: Arc<Descriptors>) -> ConnectionCounts {
        ConnectionCounts {
            limits,
            descriptors,
            quotas: None,
            counts: Mutex::default(),
            freed: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    /// Adds the quotas on connection creation per address.
    pub fn with_quotas(self, quotas: Arc<Quotas>, clock: Arc<dyn Clock>) -> ConnectionCounts {
        ConnectionCounts {
            quotas: Some((quotas, clock)),
            ..self
        }
    }

    /// Until when `address` has to wait before it may open one more connection; `None`: not at all.
    fn throttled_until(&self, address: IpAddr) -> Option<Moment> {
        let (quotas, clock) = self.quotas.as_ref()?;
        let now = clock.moment();
        let wait = quotas.connections.admit(address, now).err()?;
        Some(now.after(wait))
    }

    fn now(&self) -> Moment {
        self.quotas
            .as_ref()
            .map_or(Moment::from_micros(0), |(_, clock)| clock.moment())
    }

    pub fn open(&self) -> usize {
        self.lock().open
    }

    /// The number of accepted connections that wait to be opened.
    pub fn unopened(&self) -> usize {
        self.lock().unopened
    }

    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Reserves a descriptor for one more connection; `None` when all descriptors for connections
    /// are in use.
    fn descriptor(&self) -> Option<ConnectionDescriptor> {
        let admitted = self.descriptors.admit();
        if admitted.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// Returns a permit; `None` when the address has reached its limit.
    fn permit(
        self: &Arc<Self>,
        address: IpAddr,
        descriptor: ConnectionDescriptor,
    ) -> Option<ConnectionPermit> {
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
            _descriptor: descriptor,
        })
    }

    /// Waits until one more connection may be opened, or accepting has ended. Like Apache Kafka,
    /// Ottla does not accept in order to close.
    fn wait_for_room(&self, stopped: &AtomicBool) {
        let mut counts = self.lock();
        while !self.has_room(&counts) && !stopped.load(Ordering::SeqCst) {
            counts = self.freed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn has_room(&self, counts: &Counts) -> bool {
        counts.open < self.limits.connections_max && counts.unopened < UNOPENED_MAX
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
    /// Starts accepting on a listening socket, which is made non-blocking.
    pub fn start(
        name: Arc<str>,
        socket: TcpListener,
        counts: Arc<ConnectionCounts>,
        mailboxes: Vec<Arc<Mailbox>>,
    ) -> io::Result<Listener> {
        let address = socket.local_addr()?;
        prepare(&socket)?;
        let socket = Arc::new(socket);
        let stopped = Arc::new(AtomicBool::new(false));
        let acceptor = Acceptor {
            name,
            socket: socket.clone(),
            stopped: stopped.clone(),
            counts: counts.clone(),
            batch: mailboxes.iter().map(|_| Vec::new()).collect(),
            mailboxes,
            pace: Pace::new(Instant::now()),
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
        // Wakes `poll`; the next accept then fails.
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

/// Sets options that accepted sockets inherit, once instead of for each of them.
fn prepare(socket: &TcpListener) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    sockopt::set_tcp_nodelay(socket, true)?;
    // A peer that vanished during a long poll is detected after two minutes, not after the kernel's
    // two hours.
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?;
    limit_unsent(socket.as_fd())
}

/// How often to accept: at once while few connections come, once per [`STORM_INTERVAL`] while many
/// do.
#[derive(Debug)]
struct Pace {
    /// Time saved up, in which batches need no rest.
    credit: Duration,
    looked: Instant,
}

impl Pace {
    fn new(now: Instant) -> Pace {
        Pace {
            credit: STORM_INTERVAL * EAGER_BATCHES,
            looked: now,
        }
    }

    /// A batch was accepted at `now`: returns how long to rest before the next.
    fn rest(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.looked);
        let credit = (self.credit + passed).min(STORM_INTERVAL * EAGER_BATCHES);
        self.looked = now;
        self.credit = credit.saturating_sub(STORM_INTERVAL);
        let rest = STORM_INTERVAL.saturating_sub(credit);
        // The rest pays for the next batch, and must not be counted again as time that passed.
        self.looked += rest;
        rest
    }
}

struct Acceptor {
    name: Arc<str>,
    socket: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    counts: Arc<ConnectionCounts>,
    mailboxes: Vec<Arc<Mailbox>>,
    /// Accepted in this batch, by mailbox.
    batch: Vec<Vec<NewConnection>>,
    pace: Pace,
    /// Over their address's rate, with the moment at which to close each: a client that is closed
    /// at once would reconnect at once.
    throttled: VecDeque<(Moment, TcpStream, ConnectionDescriptor)>,
    refusals: RateLimit,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            self.counts.wait_for_room(&self.stopped);
            self.wait_for_connections();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let result = self.accept_batch();
            for (mailbox, connections) in self.mailboxes.iter().zip(&mut self.batch) {
                if !connections.is_empty() {
                    mailbox.connect(connections);
                }
            }
            match result {
                Ok(0) => {}
                Ok(_) => std::thread::sleep(self.pace.rest(Instant::now())),
                Err(errno) => self.pause_after(errno),
            }
        }
    }

    /// Returns when there is something to accept, or a throttled connection is due to be closed.
    fn wait_for_connections(&mut self) {
        let now = self.counts.now();
        while self.throttled.front().is_some_and(|(until, ..)| *until <= now) {
            self.throttled.pop_front();
        }
        let timeout = self.throttled.front().map(|(until, ..)| {
            let wait_micros = until.micros_since(now);
            Timespec {
                tv_sec: (wait_micros / 1_000_000) as i64,
                tv_nsec: (wait_micros % 1_000_000 * 1_000) as i64,
            }
        });
        let mut listening = [PollFd::new(&*self.socket, PollFlags::IN)];
        // Errors are reported by accept.
        let _ = poll(&mut listening, timeout.as_ref());
    }

    /// Returns how many connections were accepted; zero when there were none after all.
    fn accept_batch(&mut self) -> Result<usize, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for count in 0..BATCH_MAX {
            if !self.counts.has_room(&self.counts.lock()) {
                return Ok(count);
            }
            match acceptfrom_with(&*self.socket, flags) {
                Ok((socket, peer)) => {
                    // A TCP socket always has a peer with an address.
                    if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                        self.hand_out(socket.into(), peer);
                    }
                }
                Err(Errno::AGAIN) => return Ok(count),
                // A peer that gave up while in the backlog is no reason to pause.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(BATCH_MAX)
    }

    fn hand_out(&mut self, socket: TcpStream, peer: SocketAddr) {
        // A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let Some(descriptor) = self.counts.descriptor() else {
            if let Some(suppressed) = self.refusals.pass() {
                let (connections, descriptors) = (
                    self.counts.descriptors.connections_max(),
                    self.counts.descriptors.now().limit,
                );
                warn!(%peer, connections, descriptors, suppressed, "connection refused: descriptors for connections are used up");
            }
            return;
        };
        if let Some(until) = self.counts.throttled_until(peer.ip()) {
            if self.throttled.len() < THROTTLED_MAX {
                // Addresses have different rates, so a later connection may be due earlier.
                let at = self.throttled.partition_point(|(other, ..)| *other <= until);
                self.throttled.insert(at, (until, socket, descriptor));
            }
            return;
        }
        let Some(permit) = self.counts.permit(peer.ip(), descriptor) else {
            if let Some(suppressed) = self.refusals.pass() {
                warn!(%peer, suppressed, "connection refused: max.connections.per.ip reached");
            }
            return;
        };
        let connection_id = self.counts.next_id.fetch_add(1, Ordering::Relaxed);
        let mailbox = (connection_id % self.mailboxes.len() as u64) as usize;
        self.batch[mailbox].push(NewConnection {
            socket,
            peer,
            connection_id,
            listener_name: self.name.clone(),
            permit,
        });
    }

    fn pause_after(&mut self, error: Errno) {
        // Other descriptors of this process or system exceed the estimate: close an idle log file
        // to make room.
        if matches!(error, Errno::MFILE | Errno::NFILE) && self.counts.descriptors.close_idle_file() {
            return;
        }
        if let Some(suppressed) = self.refusals.pass() {
            warn!(%error, suppressed, "connections cannot be accepted");
        }
        std::thread::sleep(ACCEPT_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn few_connections_are_accepted_at_once_and_many_once_per_interval() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut now = start;
        // One every two milliseconds, indefinitely.
        for _ in 0..1_000 {
            now += STORM_INTERVAL * 2;
            assert_eq!(pace.rest(now), Duration::ZERO);
        }
        // One every tenth of a millisecond.
        let began = now;
        let mut looks = 0;
        while now < began + Duration::from_secs(1) {
            now += STORM_INTERVAL / 10;
            now += pace.rest(now);
            looks += 1;
        }
        assert!((1_000..=1_000 + 2 * EAGER_BATCHES).contains(&looks), "{looks}");
        // After a pause, some are accepted at once again.
        now += Duration::from_secs(1);
        for _ in 0..EAGER_BATCHES {
            assert_eq!(pace.rest(now), Duration::ZERO);
        }
        assert_eq!(pace.rest(now), STORM_INTERVAL);
    }

    #[test]
    fn accepted_sockets_inherit_the_options_of_the_listening_one() {
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        prepare(&listening).unwrap();
        let _client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
        let mut ready = [PollFd::new(&listening, PollFlags::IN)];
        poll(&mut ready, None).unwrap();
        let (socket, _) = acceptfrom_with(&listening, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&socket).unwrap(), KEEPALIVE_COUNT);
        assert_eq!(rustix::io::read(&socket, &mut [0; 1]).unwrap_err(), Errno::AGAIN);
    }

    #[test]
    fn accepting_is_woken_when_the_place_it_waits_for_is_freed() {
        let limits = ConnectionLimits {
            connections_max: usize::MAX,
            connections_max_per_ip: usize::MAX,
            overrides: HashMap::new(),
        };
        let counts = Arc::new(ConnectionCounts::new(limits, Descriptors::with_limit(10_000)));
        let permit = || {
            let descriptor = counts.descriptor().unwrap();
            counts.permit(Ipv4Addr::LOCALHOST.into(), descriptor).unwrap()
        };
        let mut waiting: Vec<ConnectionPermit> = (0..UNOPENED_MAX).map(|_| permit()).collect();
        assert!(!counts.has_room(&counts.lock()));
        assert!(waiting[0].opened() && !waiting[0].opened());
        assert_eq!(counts.unopened(), UNOPENED_MAX - 1);
        assert!(counts.has_room(&counts.lock()));
        waiting.push(permit());
        assert!(!counts.has_room(&counts.lock()));
        let opener = counts.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || opener.wait_for_room(&AtomicBool::new(false)));
            // The connection is closed before it was opened.
            waiting.pop();
        });
        drop(waiting);
        assert_eq!((counts.open(), counts.unopened()), (0, 0));
    }
}
