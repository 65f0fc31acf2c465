//! One client's connection through the relay: two sockets, and one path in each direction.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::addresses::PortOf;
use super::conversation::{Broken, Conversation, Part};
use super::line::{Line, Way};
use super::path::Path;
use crate::report::histogram::Latencies;

/// How many pieces a connection moves before others have their turn.
const PIECES_PER_TURN: usize = 16;

/// What the relay lends to the connection whose turn it is.
pub struct Turn<'a> {
    pub now: u64,
    pub line: &'a mut Line,
    /// At least one piece long.
    pub buffer: &'a mut [u8],
    pub parts: &'a mut Vec<Part>,
    pub port_of: &'a mut PortOf<'a>,
    /// How late bytes were handed over.
    pub lateness: &'a mut Latencies,
}

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    /// Both sides have closed, or one has broken off.
    Gone,
    Broken(Broken),
}

impl From<Broken> for End {
    fn from(broken: Broken) -> End {
        End::Broken(broken)
    }
}

/// What remains to be done after a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// There is more to do at once, after the other connections.
    pub again: bool,
    /// By way: wants to enter the line, which is not open.
    pub wants_line: [bool; 2],
}

#[derive(Debug)]
struct Direction {
    path: Path,
    /// The near socket has bytes to read; the far socket accepts some.
    is_readable: bool,
    is_writable: bool,
    /// The far socket was full, so bytes since then are late for that reason.
    was_full: bool,
    /// The near socket has reached its end; the far one was shut down.
    has_ended: bool,
    is_shut: bool,
}

impl Direction {
    fn new(window_bytes: u64, delay_nanos: u64) -> Direction {
        Direction {
            path: Path::new(window_bytes, delay_nanos),
            is_readable: true,
            is_writable: true,
            was_full: false,
            has_ended: false,
            is_shut: false,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Exchange {
    pub client: TcpStream,
    pub broker: TcpStream,
    directions: [Direction; 2],
    conversation: Conversation,
    /// Nothing reaches the broker before this: connecting takes a round trip, and the first bytes
    /// half of one.
    first_arrival: u64,
    /// When the relay's timer will give it a turn.
    pub armed: Option<u64>,
    /// By way: is in the queue for the line.
    pub is_queued: [bool; 2],
}

impl Exchange {
    pub fn new(
        client: TcpStream,
        broker: TcpStream,
        window_bytes: u64,
        delay_nanos: u64,
        now: u64,
    ) -> Exchange {
        Exchange {
            client,
            broker,
            directions: [
                Direction::new(window_bytes, delay_nanos),
                Direction::new(window_bytes, delay_nanos),
            ],
            conversation: Conversation::default(),
            first_arrival: now + 3 * delay_nanos,
            armed: None,
            is_queued: [false; 2],
        }
    }

    pub fn is_opaque(&self) -> bool {
        self.conversation.is_opaque()
    }

    /// Notes that the socket of the client (or of the broker) is readable or writable.
    pub fn on_socket(&mut self, is_client: bool, is_readable: bool, is_writable: bool) {
        let (reads, writes) = match is_client {
            true => (Way::ToBroker, Way::ToClient),
            false => (Way::ToClient, Way::ToBroker),
        };
        self.directions[reads as usize].is_readable |= is_readable;
        self.directions[writes as usize].is_writable |= is_writable;
    }

    /// Moves everything that can be moved.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Result<Left, End> {
        let mut left = Left::default();
        for way in [Way::ToBroker, Way::ToClient] {
            self.hand_over(way, turn)?;
            self.take_in(way, turn, &mut left)?;
            self.hand_over(way, turn)?;
            let direction = &mut self.directions[way as usize];
            if direction.has_ended && direction.path.is_empty() && !direction.is_shut {
                direction.is_shut = true;
                // Already closed at the other end: there is no peer to notify.
                let _ = self.far(way).shutdown(Shutdown::Write);
            }
        }
        match self.directions.iter().all(|direction| direction.is_shut) {
            true => Err(End::Gone),
            false => Ok(left),
        }
    }

    /// When the next turn is due if no socket changes.
    pub fn next_moment(&self) -> Option<u64> {
        let moments = self.directions.iter().filter_map(|direction| {
            let wants_room =
                direction.path.near_bytes() > 0 || (direction.is_readable && !direction.has_ended);
            direction.path.next_moment(direction.is_writable, wants_room)
        });
        moments.min()
    }

    fn near(&self, way: Way) -> &TcpStream {
        match way {
            Way::ToBroker => &self.client,
            Way::ToClient => &self.broker,
        }
    }

    fn far(&self, way: Way) -> &TcpStream {
        match way {
            Way::ToBroker => &self.broker,
            Way::ToClient => &self.client,
        }
    }

    /// Gives the far socket what has arrived.
    fn hand_over(&mut self, way: Way, turn: &mut Turn<'_>) -> Result<(), End> {
        while self.directions[way as usize].is_writable {
            let Some((bytes, due)) = self.directions[way as usize].path.arrived(turn.now) else {
                self.directions[way as usize].was_full = false;
                break;
            };
            let written = self
                .far(way)
                .write_vectored(&self.directions[way as usize].path.front(bytes));
            let direction = &mut self.directions[way as usize];
            match done(written)? {
                Some(written) => {
                    if !direction.was_full {
                        turn.lateness.record((turn.now - due) / 1_000);
                    }
                    direction.path.taken(written, turn.now);
                }
                None => (direction.is_writable, direction.was_full) = (false, true),
            }
        }
        Ok(())
    }

    /// Takes from the near socket what the window and the line allow.
    fn take_in(&mut self, way: Way, turn: &mut Turn<'_>, left: &mut Left) -> Result<(), End> {
        for _ in 0..PIECES_PER_TURN {
            let direction = &mut self.directions[way as usize];
            let has_near = direction.path.near_bytes() > 0;
            let may_read = direction.is_readable && !direction.has_ended;
            let room = direction.path.room(turn.now);
            if room == 0 || !(has_near || may_read) {
                return Ok(());
            }
            if turn.line.opens_at(way) > turn.now {
                left.wants_line[way as usize] = true;
                return Ok(());
            }
            let piece = room.min(turn.line.piece_bytes());
            if has_near {
                let bytes = piece.min(direction.path.near_bytes());
                let arrival = turn.line.enter(way, turn.now, bytes);
                direction.path.enter_from_near(bytes, arrival);
                continue;
            }
            let read = self.near(way).read(&mut turn.buffer[..piece]);
            let direction = &mut self.directions[way as usize];
            match done(read)? {
                None => direction.is_readable = false,
                Some(0) => direction.has_ended = true,
                Some(bytes) => self.forward(way, bytes, turn)?,
            }
        }
        left.again = true;
        Ok(())
    }

    /// Forwards what was read into the buffer.
    fn forward(&mut self, way: Way, bytes: usize, turn: &mut Turn<'_>) -> Result<(), End> {
        if way == Way::ToBroker {
            self.conversation.hear_requests(&turn.buffer[..bytes])?;
            return self.send(way, 0..bytes, turn);
        }
        let mut parts = std::mem::take(turn.parts);
        parts.clear();
        let heard = self
            .conversation
            .hear_answers(&turn.buffer[..bytes], &mut parts, turn.port_of);
        for part in &parts {
            let path = &mut self.directions[way as usize].path;
            match part {
                Part::Through(range) if path.near_bytes() == 0 => self.send(way, range.clone(), turn)?,
                Part::Through(range) => path.wait_near(&turn.buffer[range.clone()]),
                Part::Instead(bytes) => path.wait_near(bytes),
            }
        }
        *turn.parts = parts;
        heard.map_err(End::from)
    }

    fn send(&mut self, way: Way, range: std::ops::Range<usize>, turn: &mut Turn<'_>) -> Result<(), End> {
        let arrival = turn.line.enter(way, turn.now, range.len()).max(match way {
            Way::ToBroker => self.first_arrival,
            Way::ToClient => 0,
        });
        let mut chunk = &turn.buffer[range];
        let direction = &self.directions[way as usize];
        // Bytes that arrive at once need not be copied into the path first.
        if arrival <= turn.now && direction.is_writable && direction.path.lets_through() {
            match done(self.far(way).write(chunk))? {
                Some(written) => chunk = &chunk[written..],
                None => self.directions[way as usize].is_writable = false,
            }
        }
        self.directions[way as usize].path.enter(chunk, arrival);
        Ok(())
    }
}

/// Returns `None` if the socket has nothing, or accepts nothing, at the moment.
fn done(result: io::Result<usize>) -> Result<Option<usize>, End> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(End::Gone),
    }
}
