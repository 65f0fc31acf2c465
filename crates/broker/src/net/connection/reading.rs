//! How a connection reads: never more than there is memory for.

use std::io::IoSliceMut;
use std::net::TcpStream;

use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::super::frame::{Cut, LENGTH_BYTES, cut};
use super::super::input::{BufferPool, Input, SHARED_READ_BYTES, buffer_bytes};
use super::super::loop_context::LoopContext;
use super::super::refusal::CloseReason;
use super::super::tls_session::{RECORD_CONTENT_BYTES_MAX, Read};
use super::super::transport::Transport;
use super::Connection;
use super::memory::{Asker, InputBytes};
use super::replies::REPLY_BYTES;
use crate::metrics::stage::{Stage, StageTimes};

/// Longer pauses within a request count as this: their squares are added up.
const PAUSE_MICROS_MAX: u64 = 1_000_000;

/// What was read and is not served, and when it came.
pub(super) struct Reading {
    is_readable: bool,
    has_peer_closed: bool,
    input: Input,
    /// Missing bytes of the request that has begun. Valid only while `input` holds such a request,
    /// or while the connection waits for memory for one that is still in the socket.
    missing: usize,
    request_began: Option<Moment>,
    /// The squares of the times between the reads of that request.
    pause_squares: u64,
    /// When the loop learned of the bytes read last, and when they had been read.
    arrived: Moment,
    received: Moment,
}

impl Reading {
    pub fn new(now: Moment) -> Reading {
        Reading {
            is_readable: true,
            has_peer_closed: false,
            input: Input::default(),
            missing: 0,
            request_began: None,
            pause_squares: 0,
            arrived: now,
            received: now,
        }
    }

    pub fn on_socket(&mut self, is_readable: bool, has_peer_closed: bool) {
        self.is_readable |= is_readable | has_peer_closed;
        self.has_peer_closed |= has_peer_closed;
    }

    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    pub fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    pub fn has_whole_request(&self, request_bytes_max: i32) -> bool {
        !self.input.is_empty() && !matches!(cut(self.input.bytes(), request_bytes_max), Ok(Cut::Missing(_)))
    }

    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Moves the unserved bytes out, so that they can be served while the connection is changed.
    pub fn take_input(&mut self) -> Input {
        self.input.take()
    }

    /// Takes the bytes back, of which the first `served` have been served.
    pub fn put_back(&mut self, mut input: Input, served: usize, pool: &mut BufferPool) {
        input.consume(served);
        input.release(pool);
        self.input = input;
    }

    /// Notes how many bytes the first unserved request lacks.
    pub fn expect_more(&mut self, missing: usize) {
        self.missing = missing;
    }

    /// When the last bytes had been read.
    pub fn received(&self) -> Moment {
        self.received
    }

    /// When the first request that is not whole began to arrive.
    pub fn request_began(&self) -> Option<Moment> {
        self.request_began
    }

    /// When the first byte of the next request came.
    pub fn began(&self) -> Moment {
        self.request_began.unwrap_or(self.arrived)
    }

    /// Notes that more bytes were read at `now`.
    fn note_pause(&mut self, now: Moment) {
        if self.request_began.is_some() {
            let pause = now.micros_since(self.received).min(PAUSE_MICROS_MAX);
            self.pause_squares = self.pause_squares.saturating_add(pause * pause);
        }
    }

    /// The squares of the times between the reads of the request about to be served.
    pub fn take_pause_squares(&mut self) -> u64 {
        std::mem::take(&mut self.pause_squares)
    }

    /// Books how long the request served from `start` on took to arrive, and how long it waited
    /// then.
    pub fn book(&mut self, times: &mut StageTimes, start: Moment) {
        match self.request_began.take() {
            Some(began) => {
                times.add(Stage::Read, self.received.micros_since(began));
                times.add(Stage::Queued, start.micros_since(self.received));
            }
            None => times.add(Stage::Queued, start.micros_since(self.arrived)),
        }
    }

    /// Lets all that is waiting count as having come `now`.
    pub fn restart(&mut self, now: Moment) {
        self.arrived = now;
        self.received = now;
        self.restart_request(now);
    }

    fn restart_request(&mut self, now: Moment) {
        self.request_began = self.request_began.map(|_| now);
        self.pause_squares = 0;
    }

    /// The size of the request that has begun.
    pub fn request_bytes(&self) -> usize {
        self.input.bytes().len() + self.missing
    }

    /// Interprets the outcome of a read; `None` when nothing can be read now.
    ///
    /// - `room`: how many bytes it could have returned. None where the connection holds a whole
    ///   request that it could not serve a moment ago: other connections have since given back
    ///   memory, and it is served before more is read.
    fn bytes_read(
        &mut self,
        read: rustix::io::Result<usize>,
        room: usize,
    ) -> Result<Option<usize>, CloseReason> {
        match read {
            Ok(0) if room == 0 => Ok(None),
            Ok(0) => Err(CloseReason::Gone),
            Ok(read) => Ok(Some(read)),
            Err(Errno::INTR) => Ok(None),
            Err(Errno::AGAIN) => {
                // Over TLS, part of a record may have been read; the stream may end behind it.
                self.is_readable = self.has_peer_closed;
                Ok(None)
            }
            Err(_) => Err(CloseReason::Gone),
        }
    }

    /// Reads the missing bytes of the started request into the connection's own buffer, and, if
    /// more `may_follow`, further bytes into the shared one: only if there is room for what is left
    /// over of them.
    ///
    /// Returns what was read, the room in the own buffer and the total room.
    fn read_socket(
        &mut self,
        (socket, transport): (&TcpStream, &mut Transport),
        context: &mut LoopContext,
        shared: &mut [u8],
        may_follow: bool,
    ) -> Result<(Read, usize, usize), CloseReason> {
        let (is_new, missing) = (self.input.is_empty(), self.missing);
        let own = match is_new {
            true => &mut [][..],
            false => self.input.room(missing, &mut context.pool),
        };
        let own_bytes = own.len();
        let may_follow = is_new || (own_bytes >= missing && may_follow);
        let wanted = own_bytes + if may_follow { shared.len() } else { 0 };
        let mut slices = [IoSliceMut::new(own), IoSliceMut::new(shared)];
        let slices = match (is_new, may_follow) {
            (true, _) => &mut slices[1..],
            (false, true) => &mut slices[..],
            (false, false) => &mut slices[..1],
        };
        let read = match transport {
            Transport::Plain => {
                let bytes = match slices {
                    [only] => rustix::io::read(socket, &mut **only),
                    both => rustix::io::readv(socket, both),
                };
                Read {
                    is_drained: bytes.is_ok_and(|read| read < wanted),
                    bytes,
                }
            }
            Transport::Tls(session) => session.read(socket, &mut context.tls_pages, slices)?,
        };
        Ok((read, own_bytes, wanted))
    }

    /// The memory for `arrived_bytes` in a buffer of `buffer` bytes, and for what they lack.
    fn input_bytes(&self, buffer: usize, arrived_bytes: usize) -> InputBytes {
        let request = match self.missing {
            0 => 0,
            missing => buffer_bytes(arrived_bytes + missing),
        };
        InputBytes { buffer, request }
    }
}

impl Connection {
    pub(super) fn read(
        &mut self,
        context: &mut LoopContext,
        shared: &mut [u8],
        arrived: Moment,
    ) -> Result<(), CloseReason> {
        let has_room = context.loop_memory.has_room(SHARED_READ_BYTES);
        let mut shared_bytes = shared.len();
        if self.reading.input.is_empty() && !has_room && !self.memory.has_permit() {
            let Transport::Tls(session) = &self.transport else {
                return self.read_sparingly(context, shared, arrived);
            };
            // Records cannot be put back: take one at a time, and none in parts.
            if !session.has_whole_record(&self.socket) && !self.reading.has_peer_closed {
                self.reading.is_readable = false;
                return Ok(());
            }
            shared_bytes = RECORD_CONTENT_BYTES_MAX;
        }
        // How many of the following bytes belong to the request is known only with its length.
        let may_follow =
            has_room && !self.is_full(context) && self.reading.input.bytes().len() >= LENGTH_BYTES;
        // Memory was granted for a request that is still in the socket: for this one and nothing
        // behind it.
        let is_granted = self.reading.input.is_empty() && self.memory.has_permit();
        if is_granted {
            shared_bytes = self.reading.missing.min(shared_bytes);
        }
        let shared = &mut shared[..shared_bytes];
        let transport = (&self.socket, &mut self.transport);
        let (read, own_bytes, wanted) = self.reading.read_socket(transport, context, shared, may_follow)?;
        let is_drained = read.is_drained;
        let Some(read) = self.reading.bytes_read(read.bytes, wanted)? else {
            return Ok(());
        };
        // A short read emptied the socket; the next byte triggers a new event. The end of the
        // stream was announced before.
        self.reading.is_readable = !is_drained || self.reading.has_peer_closed;
        self.note_read(context, arrived);
        let own_read = read.min(own_bytes);
        self.reading.input.filled(own_read);
        self.serve_input(context)?;
        let mut rest = &shared[..read - own_read];
        if self.reading.input.is_empty() {
            rest = &rest[self.serve(context, rest)?..];
        }
        if !rest.is_empty() {
            self.keep(context, rest);
        }
        if !self.reading.input.is_empty() && self.reading.request_began.is_none() {
            self.reading.request_began = Some(self.reading.received);
        }
        Ok(())
    }

    fn note_read(&mut self, context: &mut LoopContext, arrived: Moment) {
        let now = context.tick();
        self.reading.note_pause(now);
        self.reading.arrived = arrived;
        self.reading.received = now;
        context.turn.allow_one();
        self.progress = self.reading.received;
    }

    /// Reads although there is no room for leftovers: requests are served from a peek, and only
    /// then taken out of the socket. An incomplete request is taken out once there is memory for
    /// all of it.
    #[cold]
    fn read_sparingly(
        &mut self,
        context: &mut LoopContext,
        shared: &mut [u8],
        arrived: Moment,
    ) -> Result<(), CloseReason> {
        let seen = rustix::net::recv(&self.socket, &mut *shared, RecvFlags::PEEK).map(|(seen, _)| seen);
        let Some(seen) = self.reading.bytes_read(seen, shared.len())? else {
            return Ok(());
        };
        let is_all = seen < shared.len();
        self.note_read(context, arrived);
        let served = self.serve(context, &shared[..seen])?;
        self.take_from_socket(&mut shared[..served])?;
        let rest = seen - served;
        self.reading.is_readable = !is_all || self.reading.has_peer_closed;
        if rest == 0 {
            return Ok(());
        }
        if self.reading.missing == 0 || self.memory.is_waiting() {
            // Whole, but the turn is over, there are too many replies, or another thread would keep
            // it.
            self.reading.is_readable = true;
            return Ok(());
        }
        if is_all && self.reading.has_peer_closed {
            return Err(CloseReason::Gone);
        }
        if rest < LENGTH_BYTES {
            return Ok(());
        }
        let request_bytes = rest + self.reading.missing;
        let input = InputBytes {
            buffer: 0,
            request: buffer_bytes(request_bytes),
        };
        self.count_input(context, input);
        if self.memory.is_waiting() {
            self.reading.missing = request_bytes;
            self.reading.is_readable = true;
            return Ok(());
        }
        self.take_from_socket(&mut shared[..rest])?;
        self.reading
            .input
            .extend(&shared[..rest], self.reading.missing, &mut context.pool);
        self.reading.request_began = Some(self.reading.received);
        Ok(())
    }

    /// Takes bytes out of the socket that were peeked at, so that they are certainly there.
    fn take_from_socket(&self, bytes: &mut [u8]) -> Result<(), CloseReason> {
        let mut taken = 0;
        while taken < bytes.len() {
            match rustix::io::read(&self.socket, &mut bytes[taken..]) {
                Ok(0) => return Err(CloseReason::Gone),
                Ok(read) => taken += read,
                Err(Errno::INTR) => {}
                Err(_) => return Err(CloseReason::Gone),
            }
        }
        Ok(())
    }

    /// Moves leftovers from the shared buffer into one of the connection's own, which usually does
    /// not exist yet.
    fn keep(&mut self, context: &mut LoopContext, rest: &[u8]) {
        if !self.reading.input.is_empty() {
            // What the own buffer holds is a whole request, which had to wait for memory.
            self.reading.input.extend(rest, 0, &mut context.pool);
            return;
        }
        let input = self.reading.input_bytes(buffer_bytes(rest.len()), rest.len());
        self.count_input(context, input);
        // The room for its missing bytes is allocated once the memory is granted.
        let awaited = if self.memory.is_waiting() {
            0
        } else {
            self.reading.missing
        };
        self.reading.input.extend(rest, awaited, &mut context.pool);
    }

    /// Counts the memory of what is left over. What a request had passes to its answer before
    /// another connection can get it.
    pub(super) fn settle_memory(&mut self, context: &mut LoopContext) {
        self.memory.count_transport(self.transport.input_bytes());
        self.settle_answers();
        if self.reading.input.is_empty() {
            self.memory.count_no_input();
            return;
        }
        let input = &self.reading.input;
        let input = self
            .reading
            .input_bytes(input.buffer_bytes(), input.bytes().len());
        self.count_input(context, input);
    }

    fn count_input(&mut self, context: &LoopContext, input: InputBytes) {
        let asker = Asker {
            tenant: self.client.tenant(),
            now: context.now(),
            waker: &mut self.waker,
        };
        self.memory.count_input(input, asker);
    }

    /// Counts the memory of the answers that the client has not taken.
    pub(super) fn settle_answers(&mut self) {
        self.sending.shrink_if_stuck();
        self.memory
            .count_answers(self.answer_bytes(), self.client.tenant());
    }

    /// Whether there is memory for what serving a whole request may leave behind: the request
    /// itself if another thread takes it (most are not handed over, but that is known only
    /// afterwards), and an answer of the size that this API has had lately. Without it the request
    /// waits, like an incomplete one.
    pub(super) fn may_be_kept(&mut self, context: &mut LoopContext, frame: &[u8]) -> bool {
        let api_key = frame
            .first_chunk()
            .and_then(|code| ApiKey::from_i16(i16::from_be_bytes(*code)));
        let answer_bytes = api_key.map_or(0, |api_key| context.expected.to_request(api_key, frame.len()));
        let bytes = REPLY_BYTES + frame.len() + answer_bytes;
        if !self.memory.must_ask_before_serving(bytes) {
            return true;
        }
        self.settle_answers();
        let asker = Asker {
            tenant: self.client.tenant(),
            now: context.now(),
            waker: &mut self.waker,
        };
        self.memory.ask(bytes, asker);
        let is_waiting = self.memory.is_waiting();
        if is_waiting {
            self.reading.missing = LENGTH_BYTES + frame.len();
        }
        !is_waiting
    }

    /// Checks whether the awaited memory has been granted; if not, whether the request can still
    /// become whole.
    pub(super) fn look_for_memory(&mut self, context: &mut LoopContext) -> Result<(), CloseReason> {
        if !self.memory.is_waiting() {
            return Ok(());
        }
        let now = context.now();
        let is_whole = self.reading.has_whole_request(self.request_bytes_max(context));
        if self.memory.look(now, !is_whole) {
            // The wait was the broker's, so it does not count against the client.
            self.progress = now;
            self.reading.restart_request(now);
        } else if self.reading.has_peer_closed && !is_whole {
            let there = rustix::io::ioctl_fionread(&self.socket).unwrap_or(0);
            let here = self.transport.readable_bytes();
            if there + (here as u64) < self.reading.missing as u64 {
                return Err(CloseReason::Gone);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_that_had_room_sees_the_end_of_the_stream() {
        let mut reading = Reading::new(Moment::from_micros(0));
        assert!(matches!(reading.bytes_read(Ok(0), 9), Err(CloseReason::Gone)));
        assert!(matches!(reading.bytes_read(Ok(0), 0), Ok(None)));
        assert!(reading.is_readable, "what is in the socket is still to be read");
        assert!(matches!(reading.bytes_read(Err(Errno::AGAIN), 9), Ok(None)));
        assert!(!reading.is_readable);
    }

    #[test]
    fn only_the_reads_of_one_request_have_pauses_between_them() {
        let at = Moment::from_micros;
        let mut reading = Reading::new(at(0));
        reading.note_pause(at(500));
        reading.received = at(500);
        assert_eq!(reading.take_pause_squares(), 0, "no request has begun");
        reading.request_began = Some(at(500));
        for read in [600, 900, 4_000_900] {
            reading.note_pause(at(read));
            reading.received = at(read);
        }
        let squares = 100 * 100 + 300 * 300 + PAUSE_MICROS_MAX * PAUSE_MICROS_MAX;
        assert_eq!(reading.take_pause_squares(), squares);
        assert_eq!(reading.take_pause_squares(), 0);
    }
}
