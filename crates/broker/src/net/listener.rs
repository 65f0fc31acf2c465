//! Accepting connections: one thread per listener accepts in batches and hands the sockets to the
//! event loops round robin.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_core::time::Moment;
use ottla_log::disk::os::ConnectionDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use tracing::warn;

use super::connection_counts::{ConnectionCounts, Refused};
use super::handshake::{Arrival, Entrance};
use super::mailbox::{Mailbox, NewConnection};
use super::transport::Transport;
use super::unsent::limit_unsent;
use crate::rate_limit::RateLimit;
use crate::tls::listener::TlsListener;

/// How long accepting pauses when the process is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// One bound address with its accepting thread. Dropping it stops accepting.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    socket: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    counts: Arc<ConnectionCounts>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What clients of a listener must pass before they are served.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// `None`: the listener has no TLS.
    pub tls: Option<TlsDoor>,
    pub has_sasl: bool,
}

/// Where the connections of a listener with TLS go first.
#[derive(Clone, Debug)]
pub struct TlsDoor {
    pub listener: Arc<TlsListener>,
    pub entrance: Arc<Entrance>,
}

impl Listener {
    /// Starts accepting on a listening socket, which is made non-blocking.
    pub fn start(
        name: Arc<str>,
        socket: TcpListener,
        counts: Arc<ConnectionCounts>,
        mailboxes: Vec<Arc<Mailbox>>,
        door: Door,
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
            door,
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
        self.counts.wake_accepting();
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
    door: Door,
    pace: Pace,
    /// Over their address's rate, with the moment at which to close each: a client that is closed
    /// at once would reconnect at once.
    throttled: VecDeque<(Moment, TcpStream, ConnectionDescriptor)>,
    refusals: RateLimit,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            self.counts.wait_for_room(&self.name, &self.stopped);
            self.wait_for_connections();
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let result = self.accept_batch();
            self.deliver_batch();
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
            if !self.counts.has_room(&self.name) {
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
                    self.counts.descriptors().connections_max(),
                    self.counts.descriptors().now().limit,
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
        let must_authenticate = self.door.has_sasl || self.door.tls.is_some();
        let permit = self
            .counts
            .permit(&self.name, peer.ip(), descriptor, must_authenticate);
        let permit = match permit {
            Ok(permit) => permit,
            Err(refused) => return self.tell(peer, refused),
        };
        let connection_id = self.counts.next_id();
        let mailbox = (connection_id % self.mailboxes.len() as u64) as usize;
        self.batch[mailbox].push(NewConnection {
            socket,
            peer,
            connection_id,
            listener_name: self.name.clone(),
            permit,
            transport: Transport::default(),
            handshake_time: Duration::ZERO,
        });
    }

    fn tell(&mut self, peer: SocketAddr, refused: Refused) {
        let Some(suppressed) = self.refusals.pass() else {
            return;
        };
        match refused {
            Refused::PerAddress => {
                warn!(%peer, suppressed, "connection refused: max.connections.per.ip reached");
            }
            Refused::Unauthenticated => {
                let listener = &self.name;
                warn!(%peer, %listener, suppressed, "connection refused: too many clients are not authenticated yet");
            }
        }
    }

    fn deliver_batch(&mut self) {
        let mut arrivals = Vec::new();
        for (mailbox, connections) in self.mailboxes.iter().zip(&mut self.batch) {
            match &self.door.tls {
                None if connections.is_empty() => {}
                None => mailbox.connect(connections),
                Some(tls) => arrivals.extend(connections.drain(..).map(|connection| Arrival {
                    connection,
                    listener: tls.listener.clone(),
                    mailbox: mailbox.clone(),
                })),
            }
        }
        if let Some(tls) = self.door.tls.as_ref().filter(|_| !arrivals.is_empty()) {
            tls.entrance.enter(&mut arrivals);
        }
    }

    fn pause_after(&mut self, error: Errno) {
        // Other descriptors of this process or system exceed the estimate: close an idle log file
        // to make room.
        if matches!(error, Errno::MFILE | Errno::NFILE) && self.counts.descriptors().close_idle_file() {
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
}
