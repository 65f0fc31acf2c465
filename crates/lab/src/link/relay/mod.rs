//! The relay: clients connect to it instead of to the brokers, and every broker appears as far away
//! as the link specifies.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};

use super::addresses::RELAY_HOST;
use super::conversation::{Broken, Part};
use super::doors::Doors;
use super::exchange::{End, Exchange, Turn};
use super::line::{Line, PIECE_BYTES_MAX, Way};
use super::overhead::{self, RelayOverhead};
use super::timer::Timer;
use crate::numbers::bytes;
use crate::report::Percentiles;
use crate::report::histogram::Latencies;
use crate::scenario::model::LinkSpec;

/// The name of the relay's thread, for accounting of processor time.
pub const THREAD_NAME: &str = "ottla-link";

const TIMER_TOKEN: u64 = u64::MAX;
const STOP_TOKEN: u64 = u64::MAX - 1;
/// Tokens of listeners begin here, those of connections at 0; each connection has two.
const FIRST_DOOR_TOKEN: u64 = 1 << 62;

const EVENTS_PER_WAIT: usize = 256;

/// A longer round trip is a mistake of units: sound travels around the world in fewer hours.
const ROUND_TRIP_MS_MAX: f64 = 60_000.0;

/// The most different lines in [`Relay::problems`].
const PROBLEMS_MAX: usize = 16;

/// A running relay. Dropping it closes its connections and joins its thread.
#[derive(Debug)]
pub struct Relay {
    bootstrap: String,
    spec: LinkSpec,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the relay's thread reports.
#[derive(Debug)]
struct Shared {
    stop: OwnedFd,
    is_stopping: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    lateness: Latencies,
    problems: Vec<String>,
}

impl Relay {
    /// Listens on loopback in place of every broker of `bootstrap`, and of the brokers that those
    /// name.
    ///
    /// - Shape: `bootstrap` as in `bootstrap.servers`.
    /// - Errors: `InvalidInput` for an address or a link that contradicts itself; otherwise no
    ///   socket is available. Whether the brokers answer is not checked.
    pub fn start(bootstrap: &str, spec: &LinkSpec) -> io::Result<Relay> {
        check(spec).map_err(|problem| io::Error::new(ErrorKind::InvalidInput, problem))?;
        let brokers = brokers(bootstrap)?;
        let shared = Arc::new(Shared {
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_stopping: AtomicBool::new(false),
            told: Mutex::default(),
        });
        let mut exchanges = Exchanges::new(spec, shared.clone())?;
        let ports = brokers
            .iter()
            .map(|(host, port)| {
                exchanges
                    .doors
                    .port_of(host, *port, &exchanges.epoll, FIRST_DOOR_TOKEN)
            })
            .collect::<io::Result<Vec<u16>>>()?;
        let bootstrap: Vec<String> = ports.iter().map(|port| format!("{RELAY_HOST}:{port}")).collect();
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.into())
            .spawn(move || exchanges.run())?;
        Ok(Relay {
            bootstrap: bootstrap.join(","),
            spec: spec.clone(),
            shared,
            thread: Some(thread),
        })
    }

    /// The address that clients use as `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// What the relay itself costs on this machine, and how late this one was so far.
    ///
    /// - The first call of a process measures for some tenths of a second: do not call it under
    ///   load.
    pub fn overhead(&self) -> io::Result<RelayOverhead> {
        let mut overhead = overhead::measured()?;
        overhead.late_micros = self.late_micros();
        Ok(overhead)
    }

    /// How much later than the link specifies bytes were handed over so far.
    pub fn late_micros(&self) -> Percentiles {
        self.told().lateness.percentiles(1.0)
    }

    /// What a reader of figures must know: that the link is a relay, what it costs, and what went
    /// wrong with it.
    ///
    /// - As for `overhead`: do not call it under load.
    pub fn caveats(&self) -> Vec<String> {
        let overhead = match self.overhead() {
            Ok(overhead) => overhead.to_string(),
            Err(error) => format!("what the relay costs could not be measured: {error}"),
        };
        let link = format!("the link is imitated by a relay on this machine: {self}; {overhead}");
        std::iter::once(link).chain(self.problems()).collect()
    }

    /// What bypassed the link or was cut off by the relay, one sentence each; empty if all is well.
    pub fn problems(&self) -> Vec<String> {
        self.told().problems.clone()
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        // Fails only if 2^64 - 1 wake-ups are pending.
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The link in one sentence.
impl fmt::Display for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        write!(f, "round trip {} ms", spec.round_trip_ms)?;
        if spec.bytes_per_second > 0 {
            write!(f, ", {}/s each way", bytes(spec.bytes_per_second as f64))?;
        }
        if spec.window_bytes > 0 {
            write!(f, ", window {} a connection", bytes(spec.window_bytes as f64))?;
        }
        if spec.stall_ms > 0 {
            write!(f, ", {} ms stall every {} ms", spec.stall_ms, spec.stall_every_ms)?;
        }
        Ok(())
    }
}

/// Why a link is impossible.
pub fn check(spec: &LinkSpec) -> Result<(), String> {
    let round_trip_ms = spec.round_trip_ms;
    if !(0.0..=ROUND_TRIP_MS_MAX).contains(&round_trip_ms) {
        return Err(format!(
            "link.round_trip_ms must be between 0 and {ROUND_TRIP_MS_MAX}, not {round_trip_ms}"
        ));
    }
    let (every, stall) = (spec.stall_every_ms, spec.stall_ms);
    if (every == 0) != (stall == 0) {
        return Err(format!(
            "link.stall_ms and link.stall_every_ms belong together, not {stall} without the other or {every}"
        ));
    }
    if stall > 0 && stall >= every {
        return Err(format!(
            "link.stall_ms must be below link.stall_every_ms, or nothing ever passes: not {stall} of {every}"
        ));
    }
    Ok(())
}

fn brokers(bootstrap: &str) -> io::Result<Vec<(String, u16)>> {
    let broker = |text: &str| {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok()?;
        (!host.is_empty() && port > 0).then(|| (host.to_owned(), port))
    };
    let parse = |text: &str| {
        broker(text.trim()).ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidInput,
                format!("no broker address: {text:?} (host:port is one)"),
            )
        })
    };
    bootstrap.split(',').map(parse).collect()
}

/// All connections of a relay, on its thread.
struct Exchanges {
    epoll: OwnedFd,
    timer: Timer,
    line: Line,
    window_bytes: u64,
    doors: Doors,
    exchanges: HashMap<u64, Exchange>,
    next_id: u64,
    /// Earliest first; an entry that its connection no longer uses is skipped.
    deadlines: BinaryHeap<Reverse<(u64, u64)>>,
    /// Connections that have more to do.
    again: Vec<u64>,
    /// By way: connections that wait until the line is open.
    queues: [VecDeque<u64>; 2],
    buffer: Vec<u8>,
    parts: Vec<Part>,
    shared: Arc<Shared>,
}

impl Exchanges {
    fn new(spec: &LinkSpec, shared: Arc<Shared>) -> io::Result<Exchanges> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = Timer::new()?;
        let level = epoll::EventFlags::IN;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER_TOKEN), level)?;
        epoll::add(&epoll, &shared.stop, epoll::EventData::new_u64(STOP_TOKEN), level)?;
        Ok(Exchanges {
            epoll,
            timer,
            line: Line::new(spec),
            window_bytes: spec.window_bytes,
            doors: Doors::default(),
            exchanges: HashMap::new(),
            next_id: 0,
            deadlines: BinaryHeap::new(),
            again: Vec::new(),
            queues: [VecDeque::new(), VecDeque::new()],
            buffer: vec![0; PIECE_BYTES_MAX],
            parts: Vec::new(),
            shared,
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_PER_WAIT);
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = self.wait(&mut events) {
                return self.tell(&format!("the relay stopped: {error}"));
            }
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                match token {
                    TIMER_TOKEN => self.timer.rang(),
                    STOP_TOKEN => {}
                    FIRST_DOOR_TOKEN.. => self.accept((token - FIRST_DOOR_TOKEN) as usize),
                    _ => self.on_socket(token, flags),
                }
            }
            for id in std::mem::take(&mut self.again) {
                self.turn(id);
            }
            self.on_deadlines();
            self.on_line();
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let line = [Way::ToBroker, Way::ToClient]
            .into_iter()
            .filter(|way| !self.queues[*way as usize].is_empty())
            .map(|way| self.line.opens_at(way));
        let deadline = self.deadlines.peek().map(|Reverse((moment, _))| *moment);
        let next = line.chain(deadline).min();
        // A moment of 0 would disarm the timer.
        self.timer.arm(next.map(|moment| moment.max(1)))?;
        let at_once = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let timeout = (!self.again.is_empty()).then_some(&at_once);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&mut self, door: usize) {
        let Some(door) = self.doors.get(door) else { return };
        let broker = door.broker;
        let client = match door.listener.accept() {
            Ok((client, _)) => client,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {
                return;
            }
            // Out of descriptors: the listener stays readable, so this must not become a busy loop.
            Err(error) => {
                self.tell(&format!("the relay cannot take a connection: {error}"));
                return std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        let Some(broker) = broker else {
            return self.tell("a broker's name cannot be resolved: its connections are closed");
        };
        let id = self.next_id;
        self.next_id += 1;
        match self.open(id, client, broker) {
            Ok(exchange) => {
                self.exchanges.insert(id, exchange);
                self.turn(id);
            }
            Err(error) => self.tell(&format!("the relay cannot connect to {broker}: {error}")),
        }
    }

    fn open(&mut self, id: u64, client: TcpStream, broker: SocketAddr) -> io::Result<Exchange> {
        let broker = begin_to_connect(broker)?;
        client.set_nonblocking(true)?;
        client.set_nodelay(true)?;
        broker.set_nodelay(true)?;
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for (socket, token) in [(&client, 2 * id), (&broker, 2 * id + 1)] {
            epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), flags)?;
        }
        let now = self.timer.now();
        Ok(Exchange::new(
            client,
            broker,
            self.window_bytes,
            self.line.delay_nanos(),
            now,
        ))
    }

    fn on_socket(&mut self, token: u64, flags: epoll::EventFlags) {
        let id = token / 2;
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        // The end of a stream is detected by reading it.
        let closed = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        let is_readable = flags.intersects(epoll::EventFlags::IN | closed);
        exchange.on_socket(
            token.is_multiple_of(2),
            is_readable,
            flags.contains(epoll::EventFlags::OUT),
        );
        self.turn(id);
    }

    fn on_deadlines(&mut self) {
        let now = self.timer.now();
        while let Some(Reverse((moment, id))) = self.deadlines.peek().copied()
            && moment <= now
        {
            self.deadlines.pop();
            if let Some(exchange) = self.exchanges.get_mut(&id)
                && exchange.armed == Some(moment)
            {
                exchange.armed = None;
                self.turn(id);
            }
        }
    }

    /// Lets connections onto the line, in the order in which they came.
    fn on_line(&mut self) {
        for way in [Way::ToBroker, Way::ToClient] {
            while self.line.opens_at(way) <= self.timer.now()
                && let Some(id) = self.queues[way as usize].pop_front()
            {
                if let Some(exchange) = self.exchanges.get_mut(&id) {
                    exchange.is_queued[way as usize] = false;
                    self.turn(id);
                }
            }
        }
    }

    fn turn(&mut self, id: u64) {
        let Some(exchange) = self.exchanges.get_mut(&id) else {
            return;
        };
        let was_opaque = exchange.is_opaque();
        let (doors, epoll) = (&mut self.doors, &self.epoll);
        let mut port_of = |host: &str, port: u16| {
            doors
                .port_of(host, port, epoll, FIRST_DOOR_TOKEN)
                .map_err(|error| format!("cannot listen for {host}:{port}: {error}"))
        };
        let mut told = self.shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turn = Turn {
            now: self.timer.now(),
            line: &mut self.line,
            buffer: &mut self.buffer,
            parts: &mut self.parts,
            port_of: &mut port_of,
            lateness: &mut told.lateness,
        };
        let outcome = exchange.turn(&mut turn);
        drop(told);
        let left = match outcome {
            Ok(left) => left,
            Err(end) => return self.close(id, &end),
        };
        if left.again {
            self.again.push(id);
        }
        for way in [Way::ToBroker, Way::ToClient] {
            if left.wants_line[way as usize]
                && !std::mem::replace(&mut exchange.is_queued[way as usize], true)
            {
                self.queues[way as usize].push_back(id);
            }
        }
        if let Some(moment) = exchange.next_moment()
            && exchange.armed.is_none_or(|armed| moment < armed)
        {
            exchange.armed = Some(moment);
            self.deadlines.push(Reverse((moment, id)));
        }
        if exchange.is_opaque() && !was_opaque {
            self.tell(
                "TLS passed through the relay unread: clients were told the brokers' own addresses, \
                 and only their first connection took the link",
            );
        }
    }

    fn close(&mut self, id: u64, end: &End) {
        // Reported before the client can notice.
        match end {
            End::Gone => {}
            End::Broken(Broken::Length(length)) => {
                self.tell(&format!(
                    "the relay closed a connection: {length} is no frame's length"
                ));
            }
            End::Broken(Broken::Answer(problem)) => {
                self.tell(&format!("the relay closed a connection: {problem}"));
            }
        }
        self.exchanges.remove(&id);
    }

    fn tell(&self, problem: &str) {
        let problems = &mut self
            .shared
            .told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .problems;
        if problems.len() < PROBLEMS_MAX && !problems.iter().any(|known| known == problem) {
            problems.push(problem.to_owned());
        }
    }
}

fn begin_to_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
