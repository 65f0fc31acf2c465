//! Life of a produce, 1 of 6. After: core/src/dispatch.rs.
//!
//! One client's connection: requests are served as they arrive and answered in order.
//!
//! A connection is served in turns: serve what was read, read more, let the first waiting reply go
//! on, send. A turn ends when none of these is possible, or when its time is up and others wait.
//! Back pressure: the connection is not read while too many replies wait, while the client does not
//! take them, or while there is no memory for its request (`memory_budget.rs`).
//!
//! The serving path is this file, top to bottom; each part below keeps one concern of it.

use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ottla_core::pending::Handled;
use ottla_core::reply::Ending;
use ottla_core::request::Request;
use ottla_core::services::Payer;
use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::RequestHeader;
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::throttle_time;

use super::connection_counts::ConnectionPermit;
use super::frame::{Cut, LENGTH_BYTES, cut};
use super::loop_context::LoopContext;
use super::mailbox::{NewConnection, OwnWaker, Token};
use super::refusal::CloseReason;
use super::transport::Transport;
use crate::metrics::activity::Gap;
use crate::metrics::stage::{Stage, StageTimes};

mod authentication;
mod reading;
mod memory;
mod client;
mod served_request;
mod replies;
mod sending;
mod muting;
mod accounting;
mod limits;

use accounting::{Accounting, IN_FLIGHT_MAX};
use authentication::Authentication;
use client::Client;
use memory::ConnectionMemory;
use muting::Muting;
use reading::Reading;
use replies::{Completed, Replies};
use sending::{Answered, Sending};
use served_request::ServedRequest;

/// Unanswered requests of one connection above which it is no longer read.
const UNANSWERED_MAX: usize = 1024;

/// Memory of replies above which a connection is no longer read. Where memory is tight, replies are
/// sent one by one.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
const REPLY_BYTES_MAX_TIGHT: usize = 16 * 1024;

/// How often a connection may read in one turn.
const READS_PER_TURN: usize = 4;

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// No work until the socket, a waker or a deadline reports some.
    Wait,
    /// There is more to do right away, after the others.
    Again,
}

/// A client's socket and everything that belongs to it.
pub struct Connection {
    socket: TcpStream,
    transport: Transport,
    peer: SocketAddr,
    permit: ConnectionPermit,
    waker: OwnWaker,
    client: Client,
    /// `None`: the listener has no SASL.
    authentication: Option<Box<Authentication>>,
    reading: Reading,
    memory: ConnectionMemory,
    replies: Replies,
    sending: Sending,
    muting: Muting,
    accounting: Accounting,
    /// When the client last sent or took bytes, or ceased to wait for the broker.
    progress: Moment,
    is_opened: bool,
    is_stopping: bool,
}

impl Connection {
    pub fn new(
        new: NewConnection,
        token: Token,
        principal: Arc<str>,
        context: &mut LoopContext,
    ) -> Connection {
        let now = context.now();
        Connection {
            client: Client::new(&new, principal, context),
            authentication: Authentication::of(&new, context),
            socket: new.socket,
            transport: new.transport,
            peer: new.peer,
            permit: new.permit,
            waker: OwnWaker::new(context.mailbox.clone(), token),
            reading: Reading::new(now),
            memory: ConnectionMemory::new(context.memory.clone(), context.loop_memory.clone()),
            replies: Replies::default(),
            sending: Sending::default(),
            muting: Muting::default(),
            accounting: Accounting::new(now),
            progress: now,
            is_opened: false,
            is_stopping: false,
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Notes that its first turn begins; false in later turns.
    pub fn opened(&mut self) -> bool {
        self.permit.opened();
        !std::mem::replace(&mut self.is_opened, true)
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn tenant(&self) -> TenantId {
        self.client.tenant()
    }

    pub fn on_socket(&mut self, is_readable: bool, is_writable: bool, has_peer_closed: bool) {
        self.reading.on_socket(is_readable, has_peer_closed);
        if is_writable {
            self.sending.on_writable();
        }
    }

    /// Called when a waiting reply can go on.
    pub fn on_wake(&mut self) {
        self.waker.arm();
        self.replies.on_wake();
    }

    /// Stops serving further requests; accepted ones are still answered.
    pub fn stop_reading(&mut self) {
        self.is_stopping = true;
    }

    /// Whether it may be closed without losing an answer that is due soon.
    pub fn is_settled(&self) -> bool {
        self.sending.is_empty() && !self.replies.has_one_due_soon()
    }

    /// Does what can be done within the turn's time. An error closes the connection.
    ///
    /// - `queued`: since when it has had work.
    pub fn turn(
        &mut self,
        context: &mut LoopContext,
        shared: &mut [u8],
        queued: Moment,
    ) -> Result<Turn, CloseReason> {
        self.unmute_if_due(context);
        self.tell_refusal_if_due(context)?;
        self.look_for_memory(context)?;
        // Send what the client has not taken yet before serving its next request.
        self.flush(context)?;
        self.close_if_told()?;
        for _ in 0..READS_PER_TURN {
            let served = self.serve_input(context).and_then(|()| {
                // The first request in the input may be one that has not asked for memory yet.
                self.settle_memory(context);
                if self.can_read(context) && !context.turn.is_over() {
                    self.read(context, shared, queued)
                } else {
                    Ok(())
                }
            });
            self.settle_memory(context);
            // Requests before a broken one are still answered.
            self.advance(context)?;
            self.flush(context)?;
            self.settle_answers();
            served?;
            if !self.can_go_on(context) {
                return Ok(Turn::Wait);
            }
            if context.turn.is_over() {
                break;
            }
        }
        Ok(Turn::Again)
    }

    /// Whether it can go on right away, without waiting for an event.
    fn can_go_on(&self, context: &LoopContext) -> bool {
        let has_request = || self.reading.has_whole_request(self.request_bytes_max(context));
        let can_serve = self.may_serve_next(context) && has_request();
        self.can_read(context) || can_serve || self.sending.is_cut() || self.replies.can_advance()
    }

    fn can_read(&self, context: &LoopContext) -> bool {
        self.reading.is_readable() && self.may_serve_next(context)
    }

    /// Whether the next request may be served. A connection that holds memory others may wait for
    /// finishes its request even when it is full: its client might take its replies only after
    /// those of a waiter.
    fn may_serve_next(&self, context: &LoopContext) -> bool {
        let must_not = self.is_stopping || self.replies.is_held() || self.is_refused();
        if self.memory.is_waiting() {
            return false;
        }
        !self.is_full(context) || (self.memory.has_permit() && !must_not)
    }

    fn is_full(&self, context: &LoopContext) -> bool {
        let reply_bytes_max = if context.memory.is_tight() {
            REPLY_BYTES_MAX_TIGHT
        } else {
            REPLY_BYTES_MAX
        };
        self.is_stopping
            || self.replies.is_held()
            || self.is_refused()
            || self.sending.is_stuck()
            || self.muting.is_muted()
            || self.replies.len() + self.sending.unsent() >= UNANSWERED_MAX
            || self.answer_bytes() >= reply_bytes_max
    }

    /// An estimate of the memory of its replies, from unanswered requests to unsent bytes.
    fn answer_bytes(&self) -> usize {
        self.replies.memory_bytes() + self.sending.memory_bytes() + self.transport.output_bytes()
    }

    /// Serves what was left over while the connection was full.
    fn serve_input(&mut self, context: &mut LoopContext) -> Result<(), CloseReason> {
        if self.reading.input().is_empty() || !self.may_serve_next(context) {
            return Ok(());
        }
        let input = self.reading.take_input();
        let served = self.serve(context, input.bytes());
        let served_bytes = *served.as_ref().unwrap_or(&0);
        self.reading.put_back(input, served_bytes, &mut context.pool);
        served.map(|_| ())
    }

    /// Serves whole requests at the front of `bytes` while the turn lasts; returns how many bytes
    /// they were.
    fn serve(&mut self, context: &mut LoopContext, bytes: &[u8]) -> Result<usize, CloseReason> {
        let mut served = 0;
        self.reading.expect_more(0);
        while self.may_serve_next(context) && context.turn.may_serve() {
            match cut(&bytes[served..], self.request_bytes_max(context))? {
                Cut::Missing(missing) => {
                    self.reading.expect_more(missing);
                    break;
                }
                Cut::Whole(length) => {
                    let start = served + LENGTH_BYTES;
                    let frame = &bytes[start..start + length];
                    if !self.may_be_kept(context, frame) {
                        break;
                    }
                    self.serve_request(context, frame)?;
                    context.turn.has_served();
                    self.memory.request_served();
                    served = start + length;
                }
            }
        }
        Ok(served)
    }

    fn serve_request(&mut self, context: &mut LoopContext, frame: &[u8]) -> Result<(), CloseReason> {
        if self.expects_token() {
            return self.take_token(context, frame);
        }
        let start = context.now();
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|error| match error {
            DecodeError::UnknownKey { key } => CloseReason::UnsupportedApi { api_key: key as i16 },
            error => CloseReason::Header(error.to_string()),
        })?;
        if self.must_authenticate(header.api_key) {
            return self.authenticate(context, &header, frame, reader.remaining());
        }
        let client = self.client.identify(context, header.client_id);
        let request = Request {
            connection: self.client.context(),
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            body: &frame[frame.len() - reader.remaining()..],
            received: self.reading.received(),
        };
        let positions_due = self.accounting.positions_due();
        context
            .reply
            .begin(header.api_key == ApiKey::Fetch && start >= positions_due);
        let (gap, in_flight) = (self.gap(), self.in_flight());
        let handled = catch_unwind(AssertUnwindSafe(|| {
            context.service.handle(&request, &mut context.reply)
        }));
        let handled = handled.map_err(|_| CloseReason::Panicked {
            api_key: header.api_key,
            api_version: header.api_version,
        })?;
        let now = context.tick();
        let served = ServedRequest {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            has_header: true,
            client,
            request_bytes: frame.len() as u32,
            times: self.service_times(context, start, now),
            booked: now,
            seen: context.reply.seen,
            gap,
            in_flight,
            pause_squares: self.reading.take_pause_squares(),
            throttle_ms: 0,
            is_of_thread: false,
        };
        self.accounting.note(context, now);
        self.reply(context, served, handled, now.micros_since(start))
    }

    /// The gap between the last answer and the first byte of the request about to be served.
    fn gap(&self) -> Gap {
        if self.replies.moving_records() + self.sending.moving_records() > 0 {
            return Gap::Overlap;
        }
        if !self.replies.is_empty() || self.sending.unsent() > 0 {
            return Gap::Unknown;
        }
        self.accounting.gap_until(self.reading.began())
    }

    /// How many requests that move records are under way, with the one about to be served.
    fn in_flight(&self) -> u16 {
        let unanswered = self.replies.moving_records() + self.sending.moving_records();
        let answered = self.accounting.answers_under_way(self.reading.began());
        (1 + unanswered + answered).min(IN_FLIGHT_MAX) as u16
    }

    /// The stages of a request that has just been handled.
    fn service_times(&mut self, context: &LoopContext, start: Moment, end: Moment) -> StageTimes {
        let mut times = StageTimes::default();
        self.reading.book(&mut times, start);
        let served = end.micros_since(start);
        let append_micros = context.reply.stages.append_micros;
        times.add(Stage::Appended, append_micros.min(served));
        times.add(Stage::Handled, served.saturating_sub(append_micros));
        times
    }

    /// Takes what the handler returned: a reply to send or to queue.
    fn reply(
        &mut self,
        context: &mut LoopContext,
        mut served: ServedRequest,
        handled: Handled,
        micros: u64,
    ) -> Result<(), CloseReason> {
        let now = served.booked;
        let request_bytes = LENGTH_BYTES as u64 + u64::from(served.request_bytes);
        let quota = self.client.quota();
        let throttle_ms = quota.map_or(0, |quota| {
            quota.handled(served.api_key, request_bytes, micros, now)
        });
        self.muting.mute(&mut served, throttle_ms, now);
        match handled {
            Handled::Close(reason) => return Err(CloseReason::Handler(reason)),
            Handled::NoReply => {
                let answered = self.sending.answered_silently(served);
                self.finish(context, answered, now);
            }
            Handled::Replied if self.replies.is_empty() => self.enqueue(context, served)?,
            Handled::Replied => self
                .replies
                .push_ready(served, std::mem::take(&mut context.reply)),
            Handled::Pending(pending) => self.replies.push_pending(served, pending, &context.expected),
        }
        Ok(())
    }

    /// Moves ready replies at the front to the output.
    fn advance(&mut self, context: &mut LoopContext) -> Result<(), CloseReason> {
        context.turn.allow_one();
        while !self.replies.is_empty() && context.turn.may_serve() {
            let positions_due = self.accounting.positions_due();
            let first = self.replies.take_first(context, &mut self.waker, positions_due)?;
            let Some(Completed {
                request,
                polled_micros,
            }) = first
            else {
                return Ok(());
            };
            let now = context.now();
            if let (Some(micros), Some(quota)) = (polled_micros, self.client.quota()) {
                quota.worked(micros, now);
            }
            self.accounting.note(context, now);
            match std::mem::take(&mut context.reply.ending) {
                Ending::Reply => self.enqueue(context, request)?,
                Ending::NoReply => {
                    let answered = self.sending.answered_silently(request);
                    self.finish(context, answered, now);
                }
                Ending::Close(reason) => return Err(CloseReason::Handler(reason)),
            }
            context.turn.has_served();
        }
        Ok(())
    }

    /// Appends the reply in `context.reply` to the output.
    fn enqueue(&mut self, context: &mut LoopContext, mut request: ServedRequest) -> Result<(), CloseReason> {
        self.throttle_answer(context, &mut request);
        if self.sending.is_empty() {
            self.progress = request.booked;
        }
        self.sending.push(context, request)
    }

    /// Charges the answer in `context.reply` to its quotas, and writes the throttle time into it.
    fn throttle_answer(&mut self, context: &mut LoopContext, request: &mut ServedRequest) {
        let reply = &context.reply;
        let of_regions: u64 = reply.regions.iter().map(|inserted| inserted.region.bytes).sum();
        let (bytes, now) = (of_regions + reply.bytes.len() as u64, request.booked);
        let quota = self.client.quota();
        let of_bytes = quota.map_or(0, |quota| quota.answered(request.api_key, bytes, now));
        self.muting.mute(request, of_bytes.max(reply.throttle_ms), now);
        if request.throttle_ms > 0 {
            let body = &mut context.reply.bytes;
            throttle_time::raise(request.api_key, request.api_version, body, request.throttle_ms);
        }
    }

    fn flush(&mut self, context: &mut LoopContext) -> Result<(), CloseReason> {
        let began = context.now();
        let payer = Payer::Tenant(self.tenant());
        let has_sent = self.sending.flush(
            context,
            (&self.socket, &mut self.transport),
            &mut self.waker,
            payer,
        )?;
        if !has_sent {
            return Ok(());
        }
        let now = context.now();
        if let Some(quota) = self.client.quota() {
            quota.worked(now.micros_since(began), now);
        }
        self.progress = now;
        while let Some(answered) = self.sending.take_answered() {
            self.finish(context, answered, now);
        }
        Ok(())
    }

    fn finish(&mut self, context: &mut LoopContext, answered: Answered, now: Moment) {
        self.accounting
            .finish(context, answered, &self.client, &self.socket, now);
    }

    /// Resumes reading a muted connection when it is due.
    fn unmute_if_due(&mut self, context: &LoopContext) {
        let (now, quota) = (context.now(), self.client.quota());
        let has_peer_closed = self.reading.has_peer_closed();
        if self
            .muting
            .end_if_due(&context.quotas, quota.map(|quota| &**quota), has_peer_closed, now)
        {
            // While muted, neither the client's idleness nor the request's waiting counts.
            self.progress = now;
            self.reading.restart(now);
        }
    }

    /// Tells the client that the connection ends.
    pub fn say_goodbye(&mut self) {
        self.transport.close(&self.socket);
    }

    /// Called when the connection is closed: lets the service and the tenant's accounts forget it.
    pub fn leave(&mut self, context: &LoopContext) {
        self.say_goodbye();
        context.service.disconnected(self.client.context());
        self.accounting.leave(context, &self.client, &self.socket);
    }
}
