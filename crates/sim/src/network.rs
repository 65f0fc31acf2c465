//! A simulated network for a client's machine: delays, slow writes, refused connections,
//! connections that break at any byte.
//!
//! It carries out the machine's actions and returns the resulting events; brokers implement
//! [`Server`].

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ottla_client::Error;
use ottla_client::machine::network::io::{Action, Address, ConnectionId, Event, Frame};
use ottla_client::machine::time::Moment;
use ottla_log::disk::memory::Random;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::encode_response_header;

/// The brokers behind the network, each identified by its port.
pub trait Server {
    /// A request in progress, to be answered later.
    type Work;

    /// Whether the broker accepts connections; when it goes down it loses its connections.
    fn is_up(&self, port: u16) -> bool;

    /// Begins a request: `frame` is without its length prefix.
    fn begin(&mut self, now: Moment, port: u16, frame: &[u8]) -> Begun<Self::Work>;

    /// Called when the work is due.
    fn finish(&mut self, now: Moment, port: u16, work: Self::Work) -> Finished<Self::Work>;
}

/// How work ends.
#[derive(Debug)]
pub enum Finished<W> {
    /// The frame, length included.
    Answer(Vec<u8>),
    /// There is no answer; the next request can be taken.
    Silently,
    /// Not done: `finish` is called again after this many microseconds.
    Later { micros: u64, work: W },
}

/// Encodes a response's frame.
pub fn response_frame(api_key: ApiKey, api_version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    encode_response_header(&mut frame, api_key, api_version, correlation_id);
    frame.extend_from_slice(body);
    let length = u32::try_from(frame.len() - 4).expect("answers are small");
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

/// How a request continues.
#[derive(Debug)]
pub enum Begun<W> {
    /// `finish` is called after this many microseconds.
    Works { micros: u64, work: W },
    /// Never answered; the connection stays open.
    Hangs,
    /// The broker closes the connection.
    Closes,
}

/// Rates of network faults: each happens once in this many times; `u64::MAX`: never.
#[derive(Clone, Copy, Debug)]
pub struct Troubles {
    pub refuse: u64,
    /// A connection attempt that is never answered.
    pub black_hole: u64,
    pub break_while_writing: u64,
    pub break_after_request: u64,
    pub break_before_answer: u64,
    /// An idle connection that breaks, once in this many steps.
    pub break_idle: u64,
    pub delay_micros_max: u64,
    /// The maximum duration of a write.
    pub slow_write: u64,
    pub slow_write_micros_max: u64,
}

impl Troubles {
    pub const NONE: Troubles = Troubles {
        refuse: u64::MAX,
        black_hole: u64::MAX,
        break_while_writing: u64::MAX,
        break_after_request: u64::MAX,
        break_before_answer: u64::MAX,
        break_idle: u64::MAX,
        delay_micros_max: 500,
        slow_write: u64::MAX,
        slow_write_micros_max: 0,
    };
}

#[derive(Debug)]
struct Link {
    port: u16,
    /// Whether both sides consider it open.
    is_open: bool,
    /// Frames to write; the first one is being written.
    outbox: VecDeque<Frame>,
    /// Complete requests at the broker, which handles them one after the other.
    inbox: VecDeque<Vec<u8>>,
    is_busy: bool,
    /// Frames arrive in order: not before this time.
    arrives_at: u64,
    answered_at: u64,
}

#[derive(Debug)]
enum Happening<W> {
    Connected(ConnectionId),
    Refused(ConnectionId),
    Written(ConnectionId),
    Arrived(ConnectionId, Vec<u8>),
    Finished(ConnectionId, W),
    Delivered(ConnectionId, Bytes),
    Broken(ConnectionId, &'static str),
}

/// The network between one client and its brokers.
#[derive(Debug)]
pub struct Network<W> {
    pub troubles: Troubles,
    random: Random,
    /// By time in nanoseconds, then in the order in which they were scheduled.
    agenda: BTreeMap<(u64, u64), Happening<W>>,
    next_number: u64,
    links: BTreeMap<ConnectionId, Link>,
    /// Completely written frames, and their bytes.
    pub written_frames: u64,
    pub broken_connections: u64,
    /// Requests that the brokers handled after the client had given up their connection.
    pub late_requests: u64,
}

const NANOS_PER_MICRO: u64 = 1_000;

impl<W> Network<W> {
    pub fn new(seed: u64, troubles: Troubles) -> Network<W> {
        Network {
            troubles,
            random: Random::new(seed),
            agenda: BTreeMap::new(),
            next_number: 0,
            links: BTreeMap::new(),
            written_frames: 0,
            broken_connections: 0,
            late_requests: 0,
        }
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Moment> {
        self.agenda
            .first_key_value()
            .map(|((at, _), _)| Moment::from_nanos(*at))
    }

    /// Carries out an action of the machine.
    pub fn act(&mut self, now: Moment, action: Action) {
        match action {
            Action::Connect { connection, address } => self.connect(now, connection, &address),
            Action::Send { connection, frame } => {
                let Some(link) = self.links.get_mut(&connection) else {
                    return;
                };
                if link.is_open {
                    link.outbox.push_back(frame);
                    if link.outbox.len() == 1 {
                        self.write(now, connection);
                    }
                }
            }
            Action::Close { connection } => self.abandon(connection),
        }
    }

    fn connect(&mut self, now: Moment, connection: ConnectionId, address: &Address) {
        let link = Link {
            port: address.port,
            is_open: true,
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            is_busy: false,
            arrives_at: 0,
            answered_at: 0,
        };
        self.links.insert(connection, link);
        let delay = self.delay();
        if self.random.one_in(self.troubles.refuse) {
            self.later(now, delay, Happening::Refused(connection));
        } else if !self.random.one_in(self.troubles.black_hole) {
            self.later(now, delay, Happening::Connected(connection));
        }
    }

    /// Starts writing the first frame of the outbox.
    fn write(&mut self, now: Moment, connection: ConnectionId) {
        let slow = self.random.one_in(self.troubles.slow_write);
        let micros = if slow {
            self.random.below(self.troubles.slow_write_micros_max)
        } else {
            self.random.below(50)
        };
        if self.random.one_in(self.troubles.break_while_writing) {
            let part = self.random.below(micros + 1);
            self.later(now, part, Happening::Broken(connection, "broken while writing"));
        } else {
            self.later(now, micros, Happening::Written(connection));
        }
    }

    /// Appends all events due at `now` to `events`.
    pub fn step<S: Server<Work = W>>(&mut self, now: Moment, server: &mut S, events: &mut Vec<Event>) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now.nanos() {
                break;
            }
            let happening = entry.remove();
            self.happen(now, happening, server, events);
        }
        if self.random.one_in(self.troubles.break_idle) {
            let open: Vec<ConnectionId> = self.open_links().collect();
            if !open.is_empty() {
                let victim = open[self.random.below(open.len() as u64) as usize];
                self.break_off(victim, "broken while idle", events);
            }
        }
    }

    fn open_links(&self) -> impl Iterator<Item = ConnectionId> {
        self.links
            .iter()
            .filter(|(_, link)| link.is_open)
            .map(|(connection, _)| *connection)
    }

    /// Takes the broker down: its connections break and unanswered requests are lost.
    pub fn cut(&mut self, port: u16, events: &mut Vec<Event>) {
        let victims: Vec<ConnectionId> = self
            .links
            .iter()
            .filter(|(_, link)| link.port == port)
            .map(|(connection, _)| *connection)
            .collect();
        for victim in victims {
            self.break_off(victim, "the broker went down", events);
            self.links.remove(&victim);
        }
    }

    fn happen<S: Server<Work = W>>(
        &mut self,
        now: Moment,
        happening: Happening<W>,
        server: &mut S,
        events: &mut Vec<Event>,
    ) {
        match happening {
            Happening::Connected(connection) => {
                let Some(link) = self.links.get(&connection).filter(|link| link.is_open) else {
                    return;
                };
                if server.is_up(link.port) {
                    events.push(Event::Connected { connection });
                } else {
                    self.break_off(connection, "connection refused", events);
                }
            }
            Happening::Refused(connection) => self.break_off(connection, "connection refused", events),
            Happening::Broken(connection, reason) => self.break_off(connection, reason, events),
            Happening::Written(connection) => self.written(now, connection),
            Happening::Arrived(connection, frame) => {
                if self.links.get(&connection).is_some_and(|link| link.is_open) {
                    self.settle_abandoned(now, server);
                }
                if let Some(link) = self.links.get_mut(&connection) {
                    link.inbox.push_back(frame);
                    self.serve(now, connection, server, events);
                }
            }
            Happening::Finished(connection, work) => {
                let Some(link) = self.links.get(&connection) else {
                    return;
                };
                let port = link.port;
                match server.finish(now, port, work) {
                    Finished::Later { micros, work } => {
                        return self.later(now, micros, Happening::Finished(connection, work));
                    }
                    Finished::Silently => {}
                    Finished::Answer(answer) => self.answer(now, connection, answer),
                }
                if let Some(link) = self.links.get_mut(&connection) {
                    link.is_busy = false;
                }
                self.serve(now, connection, server, events);
            }
            Happening::Delivered(connection, frame) => {
                if self.links.get(&connection).is_some_and(|link| link.is_open) {
                    events.push(Event::Received { connection, frame });
                }
            }
        }
    }

    fn written(&mut self, now: Moment, connection: ConnectionId) {
        let delay = self.delay();
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else {
            return;
        };
        let Some(frame) = link.outbox.pop_front() else {
            return;
        };
        let bytes = frame.parts.concat();
        let length = u32::from_be_bytes(*bytes.first_chunk().expect("a frame begins with its length"));
        assert_eq!(length as usize, bytes.len() - 4, "the length of a frame is right");
        let at = (now.nanos() + delay * NANOS_PER_MICRO).max(link.arrives_at);
        link.arrives_at = at;
        let has_more = !link.outbox.is_empty();
        self.written_frames += 1;
        self.at(at, Happening::Arrived(connection, bytes[4..].to_vec()));
        if self.random.one_in(self.troubles.break_after_request) {
            let delay = self.delay();
            self.later(
                now,
                delay,
                Happening::Broken(connection, "broken after a request"),
            );
        }
        if has_more {
            self.write(now, connection);
        }
    }

    /// Handles or drops requests on connections that the client has given up, before anything it
    /// writes later.
    ///
    /// The new epoch of KIP-360 fences nothing before its first batch arrives, so a request that a
    /// broker handles after everything that followed it would be stored in addition to its retry,
    /// with every Kafka client.
    pub fn settle_abandoned<S: Server<Work = W>>(&mut self, now: Moment, server: &mut S) {
        if self.links.values().all(|link| link.is_open) {
            return;
        }
        let mut late: Vec<(ConnectionId, Vec<u8>)> = Vec::new();
        for (connection, link) in self.links.iter_mut().filter(|(_, link)| !link.is_open) {
            late.extend(link.inbox.drain(..).map(|frame| (*connection, frame)));
        }
        let on_its_way: Vec<(u64, u64)> = self
            .agenda
            .iter()
            .filter(|(_, happening)| match happening {
                Happening::Arrived(connection, _) => {
                    self.links.get(connection).is_some_and(|link| !link.is_open)
                }
                _ => false,
            })
            .map(|(key, _)| *key)
            .collect();
        for key in on_its_way {
            if let Some(Happening::Arrived(connection, frame)) = self.agenda.remove(&key) {
                late.push((connection, frame));
            }
        }
        late.sort_by_key(|(connection, _)| *connection);
        for (connection, frame) in late {
            let port = self.links[&connection].port;
            if self.random.one_in(2) && server.is_up(port) {
                server.begin(now, port, &frame);
                self.late_requests += 1;
            }
        }
        self.links.retain(|_, link| link.is_open);
    }

    /// Takes the next request of a connection after the broker has finished the previous one.
    fn serve<S: Server<Work = W>>(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        server: &mut S,
        events: &mut Vec<Event>,
    ) {
        let Some(link) = self.links.get_mut(&connection).filter(|link| !link.is_busy) else {
            return;
        };
        let Some(frame) = link.inbox.pop_front() else {
            return;
        };
        link.is_busy = true;
        match server.begin(now, link.port, &frame) {
            Begun::Works { micros, work } => self.later(now, micros, Happening::Finished(connection, work)),
            Begun::Hangs => {}
            Begun::Closes => self.break_off(connection, "closed by the broker", events),
        }
    }

    fn answer(&mut self, now: Moment, connection: ConnectionId, answer: Vec<u8>) {
        let delay = self.delay();
        let breaks = self.random.one_in(self.troubles.break_before_answer);
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else {
            return;
        };
        let at = (now.nanos() + delay * NANOS_PER_MICRO).max(link.answered_at);
        link.answered_at = at;
        // A partial answer counts as none: the driver passes on only whole frames.
        let happening = match breaks {
            true => Happening::Broken(connection, "broken in the middle of an answer"),
            false => Happening::Delivered(connection, Bytes::from(answer).slice(4..)),
        };
        self.at(at, happening);
    }

    fn break_off(&mut self, connection: ConnectionId, reason: &'static str, events: &mut Vec<Event>) {
        let is_open = self.links.get(&connection).is_some_and(|link| link.is_open);
        if is_open {
            self.abandon(connection);
            self.broken_connections += 1;
            let reason = Error::Disconnected {
                address: "a simulated broker".into(),
                reason: reason.into(),
            };
            events.push(Event::Closed { connection, reason });
        }
    }

    /// Closes the client's side. Completely written requests may still be in transit or wait at the
    /// broker, which then handles them.
    fn abandon(&mut self, connection: ConnectionId) {
        let forgets = self.random.one_in(3);
        let Some(link) = self.links.get_mut(&connection) else {
            return;
        };
        link.is_open = false;
        link.outbox.clear();
        if forgets {
            self.links.remove(&connection);
        }
    }

    fn delay(&mut self) -> u64 {
        // Mostly short, sometimes up to the maximum.
        let max = match self.random.one_in(8) {
            true => self.troubles.delay_micros_max,
            false => self.troubles.delay_micros_max / 10 + 1,
        };
        self.random.below(max + 1)
    }

    fn later(&mut self, now: Moment, micros: u64, happening: Happening<W>) {
        self.at(now.nanos() + micros * NANOS_PER_MICRO, happening);
    }

    fn at(&mut self, nanos: u64, happening: Happening<W>) {
        self.agenda.insert((nanos, self.next_number), happening);
        self.next_number += 1;
    }
}
