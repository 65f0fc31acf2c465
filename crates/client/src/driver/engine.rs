//! The driver's event loop: pass events to the machine, run a turn, apply its actions to the
//! sockets, sleep.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mio::{Events, Interest, Poll, Token};

use crate::config::ClientConfig;
use crate::error::Error;
use crate::metrics::NetworkMetrics;
use crate::network::io::{Action, Address, ConnectionId, Event, Machine};
use crate::time::{Clock, Moment};

use super::link::{Drained, Link, LinkStage, ReadEnd, Transport};
use super::login::Login;
use super::resolver::{Resolved, Resolver};
use super::socket;
use super::timers::Timers;
use super::tls::{self, TlsConnector};
use super::waker::DriverWaker;

/// Read buffer that small frames are copied from; the start of a large frame is copied out of it
/// once.
const SCRATCH_BYTES: usize = 16 * 1024;
const EVENTS_PER_POLL: usize = 256;
/// How often a used connection's round trip time is read.
const ROUND_TRIP_EVERY_MS: u64 = 1000;
/// How long the driver of a finished client waits for the kernel to accept the last bytes.
const LAST_WRITES_MS_MAX: u64 = 1000;
/// The waker's token; connections count up from 0 and never reach it.
pub const WAKER_TOKEN: Token = Token(usize::MAX);

/// The state of the driver's thread.
#[derive(Debug)]
pub struct Engine {
    config: Arc<ClientConfig>,
    metrics: Arc<NetworkMetrics>,
    clock: Arc<dyn Clock>,
    poll: Poll,
    waker: Arc<DriverWaker>,
    timers: Arc<Timers>,
    resolver: Resolver,
    /// `None`: plaintext.
    tls: Option<TlsConnector>,
    /// Fetches tokens as long as the client lives; `None`: no server gives any.
    _login: Option<Login>,
    links: BTreeMap<ConnectionId, Link>,
    /// Events for the machine, in order.
    news: VecDeque<Event>,
    /// Connections with new frames that no write has been attempted for.
    unwritten: Vec<ConnectionId>,
    /// Connections that used up their read turn before the kernel's buffer was empty.
    undrained: BTreeSet<ConnectionId>,
    /// The address that failed last, so that the next attempt starts after it.
    failed: BTreeMap<Address, SocketAddr>,
    scratch: Vec<u8>,
    frames: Vec<Bytes>,
}

impl Engine {
    pub fn new(
        config: Arc<ClientConfig>,
        metrics: Arc<NetworkMetrics>,
        clock: Arc<dyn Clock>,
        poll: Poll,
        waker: Arc<DriverWaker>,
    ) -> Result<Engine, Error> {
        let tls = config.security.tls.as_ref().map(TlsConnector::new).transpose()?;
        let login = Login::start(&config)?;
        Ok(Engine {
            config,
            metrics,
            timers: Arc::new(Timers::new(Arc::clone(&clock), Arc::clone(&waker) as _)),
            clock,
            poll,
            resolver: Resolver::new(Arc::clone(&waker) as _),
            waker,
            links: BTreeMap::new(),
            news: VecDeque::new(),
            unwritten: Vec::new(),
            undrained: BTreeSet::new(),
            failed: BTreeMap::new(),
            scratch: vec![0; SCRATCH_BYTES],
            frames: Vec::new(),
            tls,
            _login: login,
        })
    }

    pub fn waker(&self) -> &Arc<DriverWaker> {
        &self.waker
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn timers(&self) -> &Arc<Timers> {
        &self.timers
    }

    /// Runs until the machine is finished.
    ///
    /// - Errors: the operating system's poll fails; this thread can do nothing more.
    pub fn run(&mut self, machine: &mut dyn Machine) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        let mut actions = Vec::new();
        let mut waited_nanos = 0;
        let mut read_nanos = 0;
        loop {
            let now = self.clock.moment();
            machine.turn(now, self.clock.timestamp(), &mut actions);
            let turned = self.clock.moment();
            self.perform(&mut actions);
            let is_finished = machine.is_finished();
            let now = self.clock.moment();
            let io_nanos = now.nanos_since(turned) + read_nanos;
            self.metrics.driver_turned(waited_nanos, io_nanos);
            (waited_nanos, read_nanos) = (0, 0);
            if is_finished {
                return self.write_the_rest(&mut events);
            }
            if self.tell(machine, now) {
                continue;
            }
            let deadlines = [machine.next_deadline(), self.timers.next_deadline()];
            self.sleep(now, deadlines.into_iter().flatten().min(), &mut events)?;
            let woken = self.clock.moment();
            self.timers.fire(woken);
            waited_nanos = woken.nanos_since(now);
            self.look(woken, &events);
            let read = self.clock.moment();
            read_nanos = read.nanos_since(woken);
            self.tell(machine, read);
        }
    }

    /// The last requests may expect no answer (acks=0): gives the kernel time to accept them.
    fn write_the_rest(&mut self, events: &mut Events) -> io::Result<()> {
        let until = self.clock.moment().after_ms(LAST_WRITES_MS_MAX);
        loop {
            let now = self.clock.moment();
            if now >= until || !self.links.values().any(Link::has_unsent) {
                return Ok(());
            }
            self.sleep(now, Some(until), events)?;
            for event in &*events {
                self.write(ConnectionId(event.token().0 as u64));
            }
        }
    }

    /// Passes the events to the machine; true when there were any.
    fn tell(&mut self, machine: &mut dyn Machine, now: Moment) -> bool {
        let has_news = !self.news.is_empty();
        for event in self.news.drain(..) {
            machine.handle(now, event);
        }
        has_news
    }

    fn sleep(&mut self, now: Moment, deadline: Option<Moment>, events: &mut Events) -> io::Result<()> {
        let limit = match deadline {
            _ if !self.undrained.is_empty() => Some(Duration::ZERO),
            Some(deadline) => Some(Duration::from_nanos(deadline.nanos_since(now))),
            None => None,
        };
        let limit = match limit {
            Some(Duration::ZERO) => limit,
            _ if self.waker.fall_asleep() => limit,
            _ => Some(Duration::ZERO),
        };
        let polled = self.poll.poll(events, limit);
        self.waker.wake_up();
        match polled {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => polled,
        }
    }

    /// Handles socket events: reads, finishes connects, continues writes.
    fn look(&mut self, now: Moment, events: &Events) {
        for id in std::mem::take(&mut self.undrained) {
            self.read(now, id, true);
        }
        for event in events {
            if event.token() == WAKER_TOKEN {
                continue;
            }
            let id = ConnectionId(event.token().0 as u64);
            match self.links.get(&id).map(|link| &link.stage) {
                Some(LinkStage::Connecting { .. }) => {
                    self.finish_connect(id);
                    if event.is_readable() || event.is_read_closed() {
                        // Edge-triggered: the readable event is not repeated, and the machine must
                        // see `Connected` first.
                        self.undrained.insert(id);
                    }
                }
                Some(LinkStage::Shaking(_)) => self.shake_hands(id),
                Some(LinkStage::Open(_)) => {
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        self.read(now, id, event.is_read_closed() || event.is_error());
                    }
                    if event.is_writable() {
                        self.write(id);
                    }
                }
                _ => {}
            }
        }
        for resolved in self.resolver.take() {
            self.resolved(resolved);
        }
    }

    fn perform(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Connect { connection, address } => {
                    self.resolver.ask(connection, &address);
                    self.links.insert(connection, Link::new(address));
                }
                Action::Send { connection, frame } => {
                    // It may be closed already; the machine is about to receive that event.
                    if let Some(link) = self.links.get_mut(&connection) {
                        link.queue(frame);
                        if self.unwritten.last() != Some(&connection) {
                            self.unwritten.push(connection);
                        }
                    }
                }
                Action::Close { connection } => {
                    if let Some(link) = self.links.remove(&connection)
                        && let LinkStage::Connecting { address, .. } = link.stage
                    {
                        // The machine gave up waiting: the next attempt starts with the next
                        // address.
                        self.failed.insert(link.address, address);
                    }
                }
            }
        }
        let mut unwritten = std::mem::take(&mut self.unwritten);
        for id in unwritten.drain(..) {
            // A connection that occurs twice has nothing left to write.
            self.write(id);
        }
        self.unwritten = unwritten;
    }

    fn read(&mut self, now: Moment, id: ConnectionId, is_closing: bool) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let ended = link.read(&mut self.scratch, is_closing, &mut self.frames);
        let has_frames = !self.frames.is_empty();
        for frame in self.frames.drain(..) {
            self.news.push_back(Event::Received {
                connection: id,
                frame,
            });
        }
        match ended {
            Ok(Drained::Yes) => {}
            Ok(Drained::No) => {
                self.undrained.insert(id);
            }
            Err(end) => return self.end(id, end),
        }
        if has_frames
            && link
                .round_trip_at
                .is_none_or(|at| now.ms_since(at) >= ROUND_TRIP_EVERY_MS)
            && let LinkStage::Open(transport) = &mut link.stage
        {
            link.round_trip_at = Some(now);
            if let Some(nanos) = socket::round_trip_nanos(transport.stream()) {
                self.news.push_back(Event::RoundTrip {
                    connection: id,
                    nanos,
                });
            }
        }
    }

    fn write(&mut self, id: ConnectionId) {
        if let Some(link) = self.links.get_mut(&id)
            && let Err(error) = link.write()
        {
            self.end(id, ReadEnd::Broken(error));
        }
    }

    fn end(&mut self, id: ConnectionId, end: ReadEnd) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let address = link.address.to_string().into();
        let error = match end {
            ReadEnd::Closed => Error::Disconnected {
                address,
                reason: "closed by the broker".into(),
            },
            ReadEnd::Broken(error) if tls::is_tls_fault(&error) => Error::Tls {
                address,
                reason: error.to_string().into(),
            },
            ReadEnd::Broken(error) => Error::Disconnected {
                address,
                reason: error.to_string().into(),
            },
            ReadEnd::Malformed(reason) => Error::Malformed {
                address,
                reason: reason.into(),
            },
        };
        self.close(id, error);
    }

    fn close(&mut self, id: ConnectionId, reason: Error) {
        if self.links.remove(&id).is_some() {
            self.news.push_back(Event::Closed {
                connection: id,
                reason,
            });
        }
    }

    fn resolved(&mut self, (id, found): Resolved) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let mut addresses: VecDeque<SocketAddr> = match found {
            Ok(addresses) if !addresses.is_empty() => addresses.into(),
            other => {
                let reason = other
                    .err()
                    .map_or("it has no address".into(), |error| error.to_string());
                let reason = Error::Resolve {
                    host: link.address.host.clone(),
                    reason: reason.into(),
                };
                return self.close(id, reason);
            }
        };
        if let Some(failed) = self.failed.remove(&link.address)
            && let Some(at) = addresses.iter().position(|address| *address == failed)
        {
            addresses.rotate_left((at + 1) % addresses.len());
        }
        self.connect(id, addresses);
    }

    /// Tries one address after the other until a connection attempt is in progress.
    fn connect(&mut self, id: ConnectionId, mut others: VecDeque<SocketAddr>) {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        while let Some(address) = others.pop_front() {
            let opened = socket::connect(address, &self.config).and_then(|mut stream| {
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll
                    .registry()
                    .register(&mut stream, Token(id.0 as usize), interest)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => {
                    link.stage = LinkStage::Connecting {
                        stream,
                        address,
                        others,
                    };
                    return;
                }
                Err(error) => last = error,
            }
        }
        self.end(id, ReadEnd::Broken(last));
    }

    fn finish_connect(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let LinkStage::Connecting { stream, .. } = &link.stage else {
            return;
        };
        let Some(result) = socket::connected(stream) else {
            return;
        };
        let LinkStage::Connecting { stream, others, .. } =
            std::mem::replace(&mut link.stage, LinkStage::Resolving)
        else {
            return;
        };
        match result {
            Err(error) if others.is_empty() => self.end(id, ReadEnd::Broken(error)),
            Err(_) => self.connect(id, others),
            Ok(()) => match &self.tls {
                None => self.open(id, Transport::Plain(stream)),
                Some(tls) => match tls.open(&link.address.host, stream) {
                    Ok(stream) => {
                        link.stage = LinkStage::Shaking(Box::new(stream));
                        self.shake_hands(id);
                    }
                    Err(error) => self.close(id, error),
                },
            },
        }
    }

    fn shake_hands(&mut self, id: ConnectionId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let LinkStage::Shaking(stream) = &mut link.stage else {
            return;
        };
        match stream.shake_hands() {
            Ok(false) => {}
            Ok(true) => {
                if let LinkStage::Shaking(stream) = std::mem::replace(&mut link.stage, LinkStage::Resolving) {
                    self.open(id, Transport::Tls(stream));
                    // Data right behind the handshake came with the same readable event.
                    self.undrained.insert(id);
                }
            }
            Err(error) => self.end(id, ReadEnd::Broken(error)),
        }
    }

    fn open(&mut self, id: ConnectionId, transport: Transport) {
        if let Some(link) = self.links.get_mut(&id) {
            link.stage = LinkStage::Open(transport);
            self.news.push_back(Event::Connected { connection: id });
        }
    }
}
