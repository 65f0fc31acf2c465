//! How a connection reads: never more than there is memory for.

use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::super::event_loop::LoopContext;
use super::super::frame::LENGTH_BYTES;
use super::super::holding::Need;
use super::super::input::{SHARED_READ_BYTES, buffer_bytes};
use super::super::refusal::Refusal;
use super::{Connection, Reply, own_waker};

impl Connection {
    pub(super) fn read(
        &mut self,
        context: &mut LoopContext,
        shared: &mut [u8],
        arrived: Moment,
    ) -> Result<(), Refusal> {
        let has_room = context.pocket.has_room(SHARED_READ_BYTES);
        if self.input.is_empty() && !has_room && !self.holding.is_entitled() {
            return self.read_sparingly(context, shared, arrived);
        }
        // How many of the following bytes belong to the request is known only with its length.
        let may_follow = has_room && !self.is_full(context) && self.input.bytes().len() >= LENGTH_BYTES;
        let (read, own_bytes, wanted) = self.read_socket(context, shared, may_follow);
        let Some(read) = self.bytes_read(read)? else {
            return Ok(());
        };
        // A short read emptied the socket; the next byte triggers a new event. The end of the
        // stream was announced before.
        self.is_readable = read == wanted || self.has_peer_closed;
        self.note_read(context, arrived);
        let own_read = read.min(own_bytes);
        self.input.filled(own_read);
        self.serve_input(context)?;
        let mut rest = &shared[..read - own_read];
        if self.input.is_empty() {
            rest = &rest[self.serve(context, rest)?..];
        }
        if !rest.is_empty() {
            self.keep(context, rest);
        }
        if !self.input.is_empty() && self.request_began.is_none() {
            self.request_began = Some(self.received);
        }
        Ok(())
    }

    /// Returns how much was read; `None` when nothing can be read now.
    fn bytes_read(&mut self, read: rustix::io::Result<usize>) -> Result<Option<usize>, Refusal> {
        match read {
            Ok(0) => Err(Refusal::Gone),
            Ok(read) => Ok(Some(read)),
            Err(Errno::INTR) => Ok(None),
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                Ok(None)
            }
            Err(_) => Err(Refusal::Gone),
        }
    }

    fn note_read(&mut self, context: &mut LoopContext, arrived: Moment) {
        self.arrived = arrived;
        self.received = context.tick();
        context.turn.allow_one();
        self.progress = self.received;
    }

    /// Reads the missing bytes of the started request into the connection's own buffer, and, if
    /// more `may_follow`, further bytes into the shared one: only if there is room for what is left
    /// over of them.
    ///
    /// Returns the bytes read, the room in the own buffer and the total room.
    fn read_socket(
        &mut self,
        context: &mut LoopContext,
        shared: &mut [u8],
        may_follow: bool,
    ) -> (rustix::io::Result<usize>, usize, usize) {
        if self.input.is_empty() {
            // Memory was granted for a request that is still in the socket: for this one and
            // nothing behind it.
            let wanted = match self.holding.is_entitled() {
                true => self.missing.min(shared.len()),
                false => shared.len(),
            };
            return (rustix::io::read(&self.socket, &mut shared[..wanted]), 0, wanted);
        }
        let own = self.input.room(self.missing, &mut context.pool);
        let own_bytes = own.len();
        if own_bytes < self.missing || !may_follow {
            return (rustix::io::read(&self.socket, own), own_bytes, own_bytes);
        }
        let wanted = own_bytes + shared.len();
        let mut slices = [std::io::IoSliceMut::new(own), std::io::IoSliceMut::new(shared)];
        (rustix::io::readv(&self.socket, &mut slices), own_bytes, wanted)
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
    ) -> Result<(), Refusal> {
        let seen = rustix::net::recv(&self.socket, &mut *shared, RecvFlags::PEEK).map(|(seen, _)| seen);
        let Some(seen) = self.bytes_read(seen)? else {
            return Ok(());
        };
        let is_all = seen < shared.len();
        self.note_read(context, arrived);
        let served = self.serve(context, &shared[..seen])?;
        self.take_from_socket(&mut shared[..served])?;
        let rest = seen - served;
        self.is_readable = !is_all || self.has_peer_closed;
        if rest == 0 {
            return Ok(());
        }
        if self.missing == 0 || self.holding.is_waiting() {
            // Whole, but the turn is over, there are too many replies, or another thread would keep
            // it.
            self.is_readable = true;
            return Ok(());
        }
        if is_all && self.has_peer_closed {
            return Err(Refusal::Gone);
        }
        if rest < LENGTH_BYTES {
            return Ok(());
        }
        let request_bytes = rest + self.missing;
        let need = Need {
            buffer_bytes: 0,
            request_bytes: buffer_bytes(request_bytes),
        };
        self.keep_memory(context, need);
        if self.holding.is_waiting() {
            self.missing = request_bytes;
            self.is_readable = true;
            return Ok(());
        }
        self.take_from_socket(&mut shared[..rest])?;
        self.input
            .extend(&shared[..rest], self.missing, &mut context.pool);
        self.request_began = Some(self.received);
        Ok(())
    }

    /// Takes bytes out of the socket that were peeked at, so that they are certainly there.
    fn take_from_socket(&self, bytes: &mut [u8]) -> Result<(), Refusal> {
        let mut taken = 0;
        while taken < bytes.len() {
            match rustix::io::read(&self.socket, &mut bytes[taken..]) {
                Ok(0) => return Err(Refusal::Gone),
                Ok(read) => taken += read,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Refusal::Gone),
            }
        }
        Ok(())
    }

    /// Moves leftovers from the shared buffer into one of the connection's own, which usually does
    /// not exist yet.
    fn keep(&mut self, context: &mut LoopContext, rest: &[u8]) {
        if !self.input.is_empty() {
            // What the own buffer holds is a whole request, which had to wait for memory.
            self.input.extend(rest, 0, &mut context.pool);
            return;
        }
        let need = self.need(buffer_bytes(rest.len()), rest.len());
        self.keep_memory(context, need);
        // The room for its missing bytes is allocated once the memory is granted.
        let awaited = if self.holding.is_waiting() {
            0
        } else {
            self.missing
        };
        self.input.extend(rest, awaited, &mut context.pool);
    }

    fn need(&self, own_buffer_bytes: usize, arrived_bytes: usize) -> Need {
        let request_bytes = match self.missing {
            0 => 0,
            missing => buffer_bytes(arrived_bytes + missing),
        };
        Need {
            buffer_bytes: own_buffer_bytes,
            request_bytes,
        }
    }

    /// Adjusts the memory that the connection holds to what is left over. What a request held
    /// passes to its answer before another connection can get it.
    pub(super) fn settle_memory(&mut self, context: &mut LoopContext) {
        self.settle_answers(context);
        if self.input.is_empty() {
            self.holding.keep_nothing(&context.pocket);
            return;
        }
        let need = self.need(self.input.buffer_bytes(), self.input.bytes().len());
        self.keep_memory(context, need);
    }

    fn keep_memory(&mut self, context: &mut LoopContext, need: Need) {
        let waker = &mut self.waker;
        let (mailbox, token) = (&context.mailbox, self.token);
        self.holding.keep(
            need,
            (&context.memory, &context.pocket),
            (self.context.tenant, context.now()),
            || own_waker(waker, mailbox, token).clone(),
        );
    }

    /// Adjusts the memory that the connection holds to the answers its client has not taken.
    pub(super) fn settle_answers(&mut self, context: &mut LoopContext) {
        if self.stuck.is_some() {
            self.output.shrink();
        }
        let memory = (&context.memory, &*context.pocket);
        self.holding
            .keep_answers(self.answer_bytes(), memory, self.context.tenant);
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
        let bytes = size_of::<Reply>() + frame.len() + answer_bytes;
        if !self.holding.must_ask_before_serving(&context.pocket, bytes) {
            return true;
        }
        self.settle_answers(context);
        let waker = &mut self.waker;
        let (mailbox, token) = (&context.mailbox, self.token);
        let who = (self.context.tenant, context.now());
        self.holding.ask(bytes, &context.memory, who, || {
            own_waker(waker, mailbox, token).clone()
        });
        let is_waiting = self.holding.is_waiting();
        if is_waiting {
            self.missing = LENGTH_BYTES + frame.len();
        }
        !is_waiting
    }

    /// Checks whether the awaited memory has been granted; if not, whether the request can still
    /// become whole.
    pub(super) fn look_for_memory(&mut self, context: &mut LoopContext) -> Result<(), Refusal> {
        if !self.holding.is_waiting() {
            return Ok(());
        }
        let now = context.now();
        let is_whole = self.has_whole_request(context);
        if self.holding.look(&context.pocket, now, !is_whole) {
            // The wait was the broker's, so it does not count against the client.
            self.progress = now;
            self.request_began = self.request_began.map(|_| now);
        } else if self.has_peer_closed && !is_whole {
            let there = rustix::io::ioctl_fionread(&self.socket).unwrap_or(0);
            if there < self.missing as u64 {
                return Err(Refusal::Gone);
            }
        }
        Ok(())
    }
}
