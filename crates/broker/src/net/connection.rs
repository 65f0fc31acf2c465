//! Life of a produce, 1 of 6. After: core/src/dispatch.rs.
//!
//! One client's connection: requests are served as they arrive and answered in order.
//!
//! A connection is served in turns: serve what was read, read more, let the first waiting reply go
//! on, send. A turn ends when none of these is possible, or when its time is up and others wait.
//! Back pressure: the connection is not read while too many replies wait, while the client does not
//! take them, or while there is no memory for its request (`memory_budget.rs`).

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ottla_core::pending::{Handled, PendingReply};
use ottla_core::reply::{Ending, ReplyBuffer, WaitKind};
use ottla_core::request::{ConnectionContext, Request};
use ottla_core::seen::{FetchedPartition, Position, Seen};
use ottla_core::services::Payer;
use ottla_core::tenant::{TenantClaim, TenantId};
use ottla_core::time::Moment;
use ottla_log::disk::FileRegion;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{RequestHeader, encode_response_header};
use ottla_wire::primitives::{DecodeError, Reader};
use ottla_wire::throttle_time;

use super::cold_region::{COLD_READ_BYTES, ColdPath, ColdRegion};
use super::event_loop::LoopContext;
use super::frame::{Cut, LENGTH_BYTES, cut};
use super::holding::{Holding, next_look};
use super::input::Input;
use super::listener::ConnectionPermit;
use super::mailbox::{ConnectionWaker, Mailbox, NewConnection, Token};
use super::output::{COPIED_BYTES_MAX, Flushed, Output, OutputError};
use super::refusal::Refusal;
use super::round_trip::round_trip_micros;
use super::tenancy::Tenancy;
use crate::metrics::accounts::Sum;
use crate::metrics::activity::{ActivityIndex, Exchange, Gap, Who};
use crate::metrics::recorder::{ClientIndex, Finished, bounded_name};
use crate::metrics::stage::{Stage, StageTimes};

mod reading;

/// Unanswered requests of one connection above which it is no longer read.
const UNANSWERED_MAX: usize = 1024;

/// Memory of replies above which a connection is no longer read. Where memory is tight, replies are
/// sent one by one.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
const REPLY_BYTES_MAX_TIGHT: usize = 16 * 1024;

/// What a handler keeps of a small waiting request, per byte of it: names and numbers as values of
/// their own.
const KEPT_PER_REQUEST_BYTE: usize = 4;

/// Requests of this size and more are decoded by other threads, from their bytes.
const UNREAD_BODY_BYTES_MIN: usize = 16 * 1024;

/// How often a connection may read in one turn.
const READS_PER_TURN: usize = 4;

/// How often the kernel is asked for a connection's round-trip time at most: one system call per
/// second.
const ROUND_TRIP_INTERVAL: Duration = Duration::from_secs(1);

/// How often the positions of a connection's fetches in their partitions are noted.
const POSITIONS_INTERVAL: Duration = Duration::from_secs(2);

/// How often a muted connection checks whether its quota has changed.
const MUTED_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// No work until the socket, a waker or a deadline reports some.
    Wait,
    /// There is more to do right away, after the others.
    Again,
}

/// A request without its body: what is needed to answer it and to account for its time.
#[derive(Debug)]
struct Asked {
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    client: ClientIndex,
    request_bytes: u32,
    times: StageTimes,
    /// The moment up to which its time is accounted for.
    booked: Moment,
    seen: Seen,
    gap: Gap,
    /// The throttle time that the answer tells the client.
    throttle_ms: u32,
    /// Whether another thread makes the answer.
    is_of_thread: bool,
}

impl Asked {
    fn moves_records(&self) -> bool {
        matches!(self.api_key, ApiKey::Produce | ApiKey::Fetch)
    }
}

/// A reply that waits for earlier replies, or for something else.
struct Reply {
    asked: Asked,
    answer: Answer,
    /// An estimate of its memory.
    kept_bytes: usize,
}

enum Answer {
    Ready(ReplyBuffer),
    Pending(Box<dyn PendingReply>),
}

/// A client's socket and everything that belongs to it.
pub struct Connection {
    pub token: Token,
    socket: TcpStream,
    peer: SocketAddr,
    context: ConnectionContext,
    tenancy: Tenancy,
    /// Since when it has been queued for its turn.
    queued: Option<Moment>,
    waker: Option<(Arc<ConnectionWaker>, Waker)>,
    permit: ConnectionPermit,

    is_readable: bool,
    has_peer_closed: bool,
    input: Input,
    /// Missing bytes of the request that has begun. Valid only while `input` holds such a request,
    /// or while the connection waits for memory for one that is still in the socket.
    missing: usize,
    holding: Holding,
    request_began: Option<Moment>,
    /// When the loop learned of the bytes read last, and when they had been read.
    arrived: Moment,
    received: Moment,

    replies: VecDeque<Reply>,
    /// The sum over `replies`.
    reply_bytes: usize,
    /// Another thread has yet to begin the last of them; later requests must not be served before
    /// it.
    is_held: bool,
    /// The first reply need not be polled before its waker or deadline fires.
    is_first_polled: bool,
    reply_deadline: Option<Moment>,

    output: Output,
    is_writable: bool,
    /// The socket did not take everything: since when, and at which stream position. Nothing more
    /// is read until it has.
    stuck: Option<(Moment, u64)>,
    /// Sending was interrupted because the turn was over.
    is_output_cut: bool,
    /// Requests whose reply is in `output`, and the stream position where it ends.
    unsent: VecDeque<(u64, u64, Asked)>,
    progress: Moment,
    is_stopping: bool,
    /// Until when nothing is read: the client is over a quota and has been told (KIP-219).
    muted_until: Option<Moment>,

    client: Option<(Option<Box<str>>, ClientIndex)>,
    /// Set by the first request that moved records.
    activity: Option<ActivityIndex>,
    /// When the socket took the last byte of the last answer.
    last_answered: Option<Moment>,
    next_round_trip: Moment,
    next_positions: Moment,
    positions: Option<Vec<FetchedPartition>>,
    /// The position of its last fetch.
    position: Option<Position>,
    /// Ranges fetched from the device while answers were sent, and their bytes, since the last
    /// answer was completed.
    cold_regions: (u32, u64),
    /// The deadline that the event loop has armed for this connection.
    pub armed: Option<Moment>,
}

impl Connection {
    pub fn new(
        new: NewConnection,
        token: Token,
        principal: Arc<str>,
        context: &mut LoopContext,
    ) -> Connection {
        let now = context.now();
        let claim = TenantClaim {
            principal: &principal,
            client_id: None,
            address: new.peer.ip(),
        };
        let tenancy = Tenancy::new(&context.tenants, &claim, now);
        context.accounts.open(tenancy.lease());
        Connection {
            token,
            context: ConnectionContext {
                connection_id: new.connection_id,
                peer_address: new.peer.ip(),
                peer_port: new.peer.port(),
                listener_name: new.listener_name,
                principal,
                identity: Arc::default(),
                tenant: tenancy.id(),
                quota: None,
            },
            tenancy,
            queued: None,
            socket: new.socket,
            peer: new.peer,
            waker: None,
            permit: new.permit,
            is_readable: true,
            has_peer_closed: false,
            input: Input::default(),
            missing: 0,
            holding: Holding::default(),
            request_began: None,
            arrived: now,
            received: now,
            replies: VecDeque::new(),
            reply_bytes: 0,
            is_held: false,
            is_first_polled: false,
            reply_deadline: None,
            output: Output::default(),
            is_writable: true,
            stuck: None,
            is_output_cut: false,
            unsent: VecDeque::new(),
            progress: now,
            is_stopping: false,
            muted_until: None,
            client: None,
            activity: None,
            last_answered: None,
            next_round_trip: now,
            next_positions: now,
            positions: None,
            position: None,
            cold_regions: (0, 0),
            armed: None,
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Notes that its first turn begins; false in later turns.
    pub fn opened(&mut self) -> bool {
        self.permit.opened()
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn tenant(&self) -> TenantId {
        self.context.tenant
    }

    /// Notes that it has had work since `now`; false if that was known.
    pub fn queue(&mut self, now: Moment) -> bool {
        let is_new = self.queued.is_none();
        self.queued.get_or_insert(now);
        is_new
    }

    pub fn on_socket(&mut self, is_readable: bool, is_writable: bool, has_peer_closed: bool) {
        self.is_readable |= is_readable | has_peer_closed;
        self.is_writable |= is_writable;
        self.has_peer_closed |= has_peer_closed;
    }

    /// Called when a waiting reply can go on.
    pub fn on_wake(&mut self) {
        if let Some((waker, _)) = &self.waker {
            waker.arm();
        }
        self.is_first_polled = false;
    }

    /// Stops serving further requests; accepted ones are still answered.
    pub fn stop_reading(&mut self) {
        self.is_stopping = true;
    }

    /// Whether it may be closed without losing an answer that is due soon.
    pub fn is_settled(&self) -> bool {
        let is_due = |answer: &Answer| match answer {
            Answer::Ready(_) => true,
            Answer::Pending(pending) => matches!(
                Stage::from(pending.waits_for()),
                Stage::Synced | Stage::Controller
            ),
        };
        self.output.is_empty() && !self.replies.iter().any(|reply| is_due(&reply.answer))
    }

    /// Does what can be done within the turn's time. An error closes the connection.
    pub fn turn(&mut self, context: &mut LoopContext, shared: &mut [u8]) -> Result<Turn, Refusal> {
        let arrived = self.queued.take().unwrap_or(context.now());
        self.unmute_if_due(context);
        self.look_for_memory(context)?;
        // Send what the client has not taken yet before serving its next request.
        self.flush(context)?;
        for _ in 0..READS_PER_TURN {
            let served = self.serve_input(context).and_then(|()| {
                // The first request in the input may be one that has not asked for memory yet.
                self.settle_memory(context);
                if self.is_readable && self.may_serve_next(context) && !context.turn.is_over() {
                    self.read(context, shared, arrived)
                } else {
                    Ok(())
                }
            });
            self.settle_memory(context);
            // Requests before a broken one are still answered.
            self.advance(context)?;
            self.flush(context)?;
            self.settle_answers(context);
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
        let can_read = self.is_readable && self.may_serve_next(context);
        let can_serve = self.may_serve_next(context) && self.has_whole_request(context);
        can_read || can_serve || self.is_output_cut || self.can_advance()
    }

    fn can_advance(&self) -> bool {
        match self.replies.front() {
            Some(Reply {
                answer: Answer::Ready(_),
                ..
            }) => true,
            Some(_) => !self.is_first_polled,
            None => false,
        }
    }

    fn is_full(&self, context: &LoopContext) -> bool {
        let reply_bytes_max = match context.memory.is_tight() {
            true => REPLY_BYTES_MAX_TIGHT,
            false => REPLY_BYTES_MAX,
        };
        self.is_stopping
            || self.is_held
            || self.stuck.is_some()
            || self.muted_until.is_some()
            || self.replies.len() + self.unsent.len() >= UNANSWERED_MAX
            || self.answer_bytes() >= reply_bytes_max
    }

    /// An estimate of the memory of its replies, from unanswered requests to unsent bytes.
    fn answer_bytes(&self) -> usize {
        let waiting =
            self.replies.len() * size_of::<Reply>() + self.unsent.len() * size_of::<(u64, u64, Asked)>();
        waiting + self.reply_bytes + self.output.memory_bytes()
    }

    /// Whether the next request may be served. A connection that holds memory others may wait for
    /// finishes its request even when it is full: its client might take its replies only after
    /// those of a waiter.
    fn may_serve_next(&self, context: &LoopContext) -> bool {
        let must_not = self.is_stopping || self.is_held;
        if self.holding.is_waiting() {
            return false;
        }
        !self.is_full(context) || (self.holding.is_entitled() && !must_not)
    }

    fn has_whole_request(&self, context: &LoopContext) -> bool {
        !self.input.is_empty()
            && !matches!(
                cut(self.input.bytes(), context.settings.request_bytes_max),
                Ok(Cut::Missing(_))
            )
    }

    /// Serves what was left over while the connection was full.
    fn serve_input(&mut self, context: &mut LoopContext) -> Result<(), Refusal> {
        if self.input.is_empty() || !self.may_serve_next(context) {
            return Ok(());
        }
        let mut input = self.input.take();
        let served = self.serve(context, input.bytes());
        input.consume(*served.as_ref().unwrap_or(&0));
        input.release(&mut context.pool);
        self.input = input;
        served.map(|_| ())
    }

    /// Serves whole requests at the front of `bytes` while the turn lasts; returns how many bytes
    /// they were.
    fn serve(&mut self, context: &mut LoopContext, bytes: &[u8]) -> Result<usize, Refusal> {
        let mut served = 0;
        self.missing = 0;
        while self.may_serve_next(context) && context.turn.may_serve() {
            match cut(&bytes[served..], context.settings.request_bytes_max)? {
                Cut::Missing(missing) => {
                    self.missing = missing;
                    break;
                }
                Cut::Whole(length) => {
                    let start = served + LENGTH_BYTES;
                    if !self.may_be_kept(context, &bytes[start..start + length]) {
                        break;
                    }
                    self.serve_request(context, &bytes[start..start + length])?;
                    context.turn.has_served();
                    self.holding.request_served();
                    served = start + length;
                }
            }
        }
        Ok(served)
    }

    fn serve_request(&mut self, context: &mut LoopContext, frame: &[u8]) -> Result<(), Refusal> {
        let start = context.now();
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|error| match error {
            DecodeError::UnknownKey { key } => Refusal::UnsupportedApi { api_key: key as i16 },
            error => Refusal::Header(error.to_string()),
        })?;
        let client = self.client_index(context, header.client_id);
        self.context.refresh_quota(&context.quotas, header.client_id);
        let request = Request {
            connection: &self.context,
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client_id: header.client_id,
            body: &frame[frame.len() - reader.remaining()..],
            received: self.received,
            is_elsewhere: false,
        };
        let wants_positions = header.api_key == ApiKey::Fetch && start >= self.next_positions;
        context.reply.begin(wants_positions);
        let gap = self.gap();
        let handled = catch_unwind(AssertUnwindSafe(|| {
            context.service.handle(&request, &mut context.reply)
        }));
        let Ok(handled) = handled else {
            return Err(Refusal::Panicked {
                api_key: request.api_key,
                api_version: request.api_version,
            });
        };
        let now = context.tick();
        let mut asked = Asked {
            api_key: header.api_key,
            api_version: header.api_version,
            correlation_id: header.correlation_id,
            client,
            request_bytes: frame.len() as u32,
            times: StageTimes::default(),
            booked: now,
            seen: context.reply.seen,
            gap,
            throttle_ms: 0,
            is_of_thread: false,
        };
        self.note_positions(context, now);
        self.book_service(&mut asked.times, start, now, context.reply.stages.append_micros);
        let request_bytes = (LENGTH_BYTES + frame.len()) as u64;
        let quota = self.context.quota.as_ref();
        let throttle_ms = quota.map_or(0, |quota| {
            quota.handled(header.api_key, request_bytes, now.micros_since(start), now)
        });
        self.hold_back(&mut asked, throttle_ms, now);
        match handled {
            Handled::Close(reason) => return Err(Refusal::Handler(reason)),
            Handled::NoReply => self.finish(context, asked, 0, now),
            Handled::Replied if self.replies.is_empty() => self.enqueue(context, asked)?,
            Handled::Replied => {
                let mut reply = std::mem::take(&mut context.reply);
                // The buffer may have held a larger answer before.
                reply.bytes.shrink_to_fit();
                let kept_bytes = reply.bytes.len() + size_of_val(&*reply.regions);
                self.push_reply(asked, Answer::Ready(reply), kept_bytes);
            }
            Handled::Pending(pending) => {
                if self.replies.is_empty() {
                    self.is_first_polled = false;
                }
                self.is_held = pending.is_alone();
                let kept_bytes = kept_until_ready(context, &mut asked, &*pending);
                self.push_reply(asked, Answer::Pending(pending), kept_bytes);
            }
        }
        Ok(())
    }

    fn push_reply(&mut self, asked: Asked, answer: Answer, kept_bytes: usize) {
        self.reply_bytes += kept_bytes;
        self.replies.push_back(Reply {
            asked,
            answer,
            kept_bytes,
        });
    }

    /// Mutes the connection from `now` on; the answer will tell the throttle time.
    fn hold_back(&mut self, asked: &mut Asked, throttle_ms: u32, now: Moment) {
        if throttle_ms <= asked.throttle_ms {
            return;
        }
        let more_ms = u64::from(throttle_ms - asked.throttle_ms);
        asked.times.add(Stage::Throttled, more_ms * 1_000);
        asked.throttle_ms = throttle_ms;
        self.muted_until = self.muted_until.max(Some(now.after_ms(throttle_ms.into())));
    }

    /// Resumes reading when the mute time is over, when the quotas have changed, or when the client
    /// has closed, so that its end of stream is read.
    fn unmute_if_due(&mut self, context: &LoopContext) {
        let Some(muted_until) = self.muted_until else {
            return;
        };
        let now = context.now();
        let quota = self.context.quota.as_ref();
        let is_newest = quota.is_some_and(|quota| context.quotas.is_newest(quota));
        if now < muted_until && is_newest && !self.has_peer_closed {
            return;
        }
        self.muted_until = None;
        // While muted, neither the client's idleness nor the request's waiting counts.
        self.progress = now;
        self.arrived = now;
        self.received = now;
        self.request_began = self.request_began.map(|_| now);
    }

    /// Keeps a fetch's partition positions until the request is accounted for.
    fn note_positions(&mut self, context: &mut LoopContext, now: Moment) {
        if let Some(positions) = context.reply.fetched.take() {
            self.next_positions = now.after(POSITIONS_INTERVAL);
            self.positions = Some(positions);
        }
    }

    /// The gap between the last answer and the first byte of the request about to be served.
    fn gap(&self) -> Gap {
        let mut unanswered = self.replies.iter().map(|reply| &reply.asked);
        let mut unsent = self.unsent.iter().map(|(_, _, asked)| asked);
        if unanswered.any(Asked::moves_records) || unsent.any(Asked::moves_records) {
            return Gap::Overlap;
        }
        if !self.replies.is_empty() || !self.unsent.is_empty() {
            return Gap::Unknown;
        }
        let began = self.request_began.unwrap_or(self.arrived);
        self.last_answered
            .map_or(Gap::Unknown, |answered| Gap::Micros(began.micros_since(answered)))
    }

    fn book_service(&mut self, times: &mut StageTimes, start: Moment, end: Moment, append_micros: u64) {
        match self.request_began.take() {
            Some(began) => {
                times.add(Stage::Read, self.received.micros_since(began));
                times.add(Stage::Queued, start.micros_since(self.received));
            }
            None => times.add(Stage::Queued, start.micros_since(self.arrived)),
        }
        let served = end.micros_since(start);
        times.add(Stage::Appended, append_micros.min(served));
        times.add(Stage::Handled, served.saturating_sub(append_micros));
    }

    /// Returns the index under which the client is counted; a new client id may also mean another
    /// tenant.
    fn client_index(&mut self, context: &mut LoopContext, client_id: Option<&str>) -> ClientIndex {
        let claim = TenantClaim {
            principal: &self.context.principal,
            client_id,
            address: self.context.peer_address,
        };
        match &self.client {
            Some((known, index)) if known.as_deref() == client_id => {
                let index = *index;
                if self.tenancy.should_try_again(context.now()) {
                    self.tenancy.try_again(&context.tenants, &claim, context.now());
                    self.belong(context);
                }
                index
            }
            _ => {
                self.tenancy.claim(&context.tenants, &claim, context.now());
                self.belong(context);
                let index = context.records().client(client_id.unwrap_or(""));
                self.client = Some((client_id.map(Box::from), index));
                index
            }
        }
    }

    fn belong(&mut self, context: &mut LoopContext) {
        self.context.tenant = self.tenancy.id();
        context.accounts.open(self.tenancy.lease());
    }

    /// Moves ready replies at the front to the output.
    fn advance(&mut self, context: &mut LoopContext) -> Result<(), Refusal> {
        context.turn.allow_one();
        while let Some(first) = self.replies.front_mut() {
            if !context.turn.may_serve() {
                return Ok(());
            }
            let asked = &mut first.asked;
            match &mut first.answer {
                Answer::Ready(reply) => {
                    let now = context.tick();
                    asked.times.add(Stage::Behind, now.micros_since(asked.booked));
                    asked.booked = now;
                    context.reply = std::mem::take(reply);
                }
                Answer::Pending(pending) => {
                    let now = context.tick();
                    let is_due = self.reply_deadline.is_some_and(|deadline| deadline <= now);
                    if self.is_first_polled && !is_due {
                        return Ok(());
                    }
                    let waker = own_waker(&mut self.waker, &context.mailbox, self.token);
                    let stage = Stage::from(pending.waits_for());
                    let wants_positions = asked.api_key == ApiKey::Fetch && now >= self.next_positions;
                    context.reply.begin(wants_positions);
                    let polled = catch_unwind(AssertUnwindSafe(|| {
                        context.service.poll(pending.as_mut(), waker, &mut context.reply)
                    }));
                    let (api_key, api_version) = (asked.api_key, asked.api_version);
                    match polled {
                        Err(_) => return Err(Refusal::Panicked { api_key, api_version }),
                        Ok(Poll::Pending) => {
                            self.is_first_polled = true;
                            self.reply_deadline = pending.deadline();
                            let kept_bytes = kept_until_ready(context, asked, &**pending);
                            self.reply_bytes = self.reply_bytes + kept_bytes - first.kept_bytes;
                            first.kept_bytes = kept_bytes;
                            let is_alone = pending.is_alone();
                            // Nothing is served behind a reply that holds others back.
                            self.is_held &= is_alone || self.replies.len() > 1;
                            return Ok(());
                        }
                        Ok(Poll::Ready(())) => {}
                    }
                    asked.seen.add(&context.reply.seen);
                    let polled_at = now;
                    let now = context.tick();
                    if let Some(quota) = &self.context.quota {
                        quota.worked(now.micros_since(polled_at), now);
                    }
                    asked.times.add(stage, now.micros_since(asked.booked));
                    asked.booked = now;
                    self.note_positions(context, now);
                }
            }
            self.is_first_polled = false;
            self.reply_deadline = None;
            let first = self.replies.pop_front();
            let first = first.expect("the loop looks at the first reply");
            self.reply_bytes -= first.kept_bytes;
            let asked = first.asked;
            self.is_held &= !self.replies.is_empty();
            match std::mem::take(&mut context.reply.ending) {
                Ending::Reply => self.enqueue(context, asked)?,
                Ending::NoReply => self.finish(context, asked, 0, context.now()),
                Ending::Close(reason) => return Err(Refusal::Handler(reason)),
            }
            context.turn.has_served();
        }
        Ok(())
    }

    /// Appends the reply in `context.reply` to the output.
    fn enqueue(&mut self, context: &mut LoopContext, mut asked: Asked) -> Result<(), Refusal> {
        self.throttle_answer(context, &mut asked);
        context.header.clear();
        // KIP-511: the answer to an unknown version of ApiVersions is version 0; its header is the
        // same in all versions.
        encode_response_header(
            &mut context.header,
            asked.api_key,
            asked.api_version,
            asked.correlation_id,
        );
        let before = self.output.enqueued();
        if self.output.is_empty() {
            self.progress = asked.booked;
        }
        let is_tight = context.memory.is_tight();
        let copied_bytes_max = match is_tight {
            true => REPLY_BYTES_MAX_TIGHT,
            false => COPIED_BYTES_MAX,
        };
        let (header, spare) = (&context.header, &mut context.spare);
        let pushed = self
            .output
            .push(header, &mut context.reply, copied_bytes_max, spare);
        let kept_bytes = pushed.map_err(|error| refusal_of(&error))?;
        context
            .expected
            .answered(asked.api_key, asked.is_of_thread, kept_bytes, is_tight);
        let end = self.output.enqueued();
        self.unsent.push_back((end, end - before, asked));
        Ok(())
    }

    /// Charges the answer in `context.reply` to its quotas, and writes the throttle time into it.
    fn throttle_answer(&mut self, context: &mut LoopContext, asked: &mut Asked) {
        let reply = &context.reply;
        let of_regions: u64 = reply.regions.iter().map(|inserted| inserted.region.bytes).sum();
        let (bytes, now) = (of_regions + reply.bytes.len() as u64, asked.booked);
        let quota = self.context.quota.as_ref();
        let of_bytes = quota.map_or(0, |quota| quota.answered(asked.api_key, bytes, now));
        self.hold_back(asked, of_bytes.max(reply.throttle_ms), now);
        if asked.throttle_ms > 0 {
            let body = &mut context.reply.bytes;
            throttle_time::raise(asked.api_key, asked.api_version, body, asked.throttle_ms);
        }
    }

    fn flush(&mut self, context: &mut LoopContext) -> Result<(), Refusal> {
        if !self.is_writable || self.output.is_empty() {
            return Ok(());
        }
        let before = self.output.sent();
        let began = context.now();
        let waker = &mut self.waker;
        let (mailbox, cold_reads, token) = (&context.mailbox, &context.cold_reads, self.token);
        let cold_regions = &mut self.cold_regions;
        let (clock, turn_ends) = (&context.clock, context.turn.ends());
        let is_over = || clock.moment() >= turn_ends;
        let payer = Payer::Tenant(self.context.tenant);
        let fetch_cold = |region: FileRegion, path: ColdPath| {
            let waker = own_waker(waker, mailbox, token);
            cold_regions.0 += 1;
            cold_regions.1 += region.bytes.min(COLD_READ_BYTES);
            ColdRegion::fetch(region, path, waker.clone(), cold_reads, payer)
        };
        let flushed = self
            .output
            .flush(self.socket.as_fd(), &mut context.spare, is_over, fetch_cold);
        let flushed = flushed.map_err(|error| refusal_of(&error))?;
        self.is_writable = flushed != Flushed::SocketFull;
        self.is_output_cut = flushed == Flushed::Cut;
        let now = context.tick();
        self.stuck = match flushed {
            Flushed::All => None,
            Flushed::SocketFull => self.stuck.or(Some((now, self.output.sent()))),
            Flushed::Cold | Flushed::Cut => self.stuck,
        };
        context.turn.sending_micros += now.micros_since(began);
        if self.output.sent() != before {
            if let Some(quota) = &self.context.quota {
                quota.worked(now.micros_since(began), now);
            }
            self.progress = now;
            while let Some((end, _, _)) = self.unsent.front()
                && *end <= self.output.sent()
            {
                let (_, reply_bytes, asked) = self.unsent.pop_front().expect("the front was just seen");
                self.finish(context, asked, reply_bytes, now);
            }
            if self.unsent.capacity() > 64 && self.unsent.is_empty() {
                self.unsent.shrink_to(4);
            }
        }
        Ok(())
    }

    fn finish(&mut self, context: &mut LoopContext, mut asked: Asked, reply_bytes: u64, now: Moment) {
        asked.times.add(Stage::Written, now.micros_since(asked.booked));
        self.last_answered = Some(now);
        let (cold_regions, cold_bytes) = std::mem::take(&mut self.cold_regions);
        self.book(context, &asked, reply_bytes, cold_bytes);
        let activity = self.activity_index(context, &asked, now).map(|index| {
            let exchange = Exchange {
                api_key: asked.api_key,
                request_bytes: asked.request_bytes,
                reply_bytes,
                times: &asked.times,
                seen: &asked.seen,
                gap: asked.gap,
                cold_regions,
                cold_bytes,
            };
            (index, exchange)
        });
        let finished = Finished {
            api_key: asked.api_key,
            api_version: asked.api_version,
            correlation_id: asked.correlation_id,
            client: asked.client,
            connection_id: self.context.connection_id,
            request_bytes: asked.request_bytes,
            reply_bytes,
            times: asked.times,
            finished: now,
        };
        context.finish(finished, activity);
    }

    /// Charges an answered request to its tenant.
    fn book(&mut self, context: &mut LoopContext, asked: &Asked, reply_bytes: u64, region_bytes: u64) {
        let seen = &asked.seen;
        let mut records = seen.records;
        if let Some(position) = seen.position {
            let earlier = self.position.replace(position);
            records += earlier
                .and_then(|earlier| position.progress_since(&earlier))
                .unwrap_or(0);
        }
        let read_cold = asked.times.get(Stage::ColdRead) > 0;
        let cold_bytes = region_bytes + if read_cold { seen.fetched_bytes } else { 0 };
        let amounts = [
            (Sum::Requests, 1),
            (Sum::Records, records),
            (Sum::BytesIn, u64::from(asked.request_bytes)),
            (Sum::BytesOut, reply_bytes),
            (Sum::ColdBytes, cold_bytes),
            (Sum::DiskMicros, seen.disk_micros),
            (Sum::ThrottledMs, asked.throttle_ms.into()),
        ];
        context.accounts.add(self.context.tenant, amounts);
    }

    /// Returns where this connection's activity is counted; opened by the first request that moves
    /// records.
    fn activity_index(&mut self, context: &LoopContext, asked: &Asked, now: Moment) -> Option<ActivityIndex> {
        let is_data = asked.moves_records();
        if self.activity.is_none() && is_data {
            let named = self.client.as_ref().and_then(|(name, _)| name.as_deref());
            let who = Who {
                connection_id: self.context.connection_id,
                client_id: bounded_name(named.unwrap_or_default()).into(),
                principal: self.context.principal.clone(),
                listener_name: self.context.listener_name.clone(),
                address: self.context.peer_address,
                port: self.context.peer_port,
                identity: self.context.identity.clone(),
            };
            self.activity = Some(context.records().activities.open(who));
        }
        let index = self.activity?;
        if is_data && now >= self.next_round_trip {
            self.next_round_trip = now.after(ROUND_TRIP_INTERVAL);
            let round_trip = round_trip_micros(&self.socket);
            context.records().activities.set_round_trip(index, round_trip);
        }
        if let Some(positions) = self.positions.take() {
            context.records().activities.set_fetched(index, now, positions);
        }
        Some(index)
    }

    /// Called when the connection is closed: lets the service and the tenant's accounts forget it.
    pub fn leave(&self, context: &LoopContext) {
        context.service.disconnected(&self.context);
        self.holding.leave(&context.pocket);
        if let Some(index) = self.activity {
            context.records().activities.close(index, context.now());
        }
    }

    /// Returns when to give it a turn even if no event arrives.
    pub fn next_deadline(&self, context: &LoopContext) -> Option<Moment> {
        let limit = match (self.limits_since(), context.settings.idle_max) {
            (Some(since), Some(idle_max)) => Some(since.after(idle_max)),
            _ => None,
        };
        let look = self.muted_until.map(|until| {
            let next = context.now().after(MUTED_LOOK_INTERVAL);
            until.min(next)
        });
        let of_request = self.holding.stalls_at(self.input.bytes().len());
        let stalls_at = of_request.into_iter().chain(self.reader_stalls_at()).min();
        let memory_look = stalls_at.map(|stalls_at| next_look(stalls_at, context.now()));
        [self.reply_deadline, limit, look, memory_look]
            .into_iter()
            .flatten()
            .min()
    }

    /// By when the client must have taken more of its answers if others wait for their memory.
    fn reader_stalls_at(&self) -> Option<Moment> {
        let (stuck, sent) = self.stuck?;
        self.holding.reader_stalls_at(stuck, self.output.sent() - sent)
    }

    /// Since when something is expected of the client: bytes of its request, taking its replies, or
    /// any sign of life.
    fn limits_since(&self) -> Option<Moment> {
        if !self.output.is_empty() {
            return Some(self.progress);
        }
        if !self.replies.is_empty() || self.muted_until.is_some() || self.holding.is_waiting() {
            return None;
        }
        Some(self.request_began.unwrap_or(self.progress))
    }

    /// Closes connections whose clients have exceeded a time limit (`connections.max.idle.ms`).
    pub fn check_limits(&self, context: &LoopContext, now: Moment) -> Result<(), Refusal> {
        if context.memory.waiting() > 0 {
            let is_over = |stalls_at: Option<Moment>| stalls_at.is_some_and(|stalls_at| stalls_at <= now);
            let arrived_bytes = self.input.bytes().len();
            if is_over(self.holding.stalls_at(arrived_bytes)) {
                return Err(Refusal::RequestInTheWay(arrived_bytes + self.missing));
            }
            if is_over(self.reader_stalls_at()) {
                return Err(Refusal::ReaderInTheWay(self.answer_bytes()));
            }
        }
        let (Some(since), Some(limit)) = (self.limits_since(), context.settings.idle_max) else {
            return Ok(());
        };
        if now < since.after(limit) {
            return Ok(());
        }
        Err(self.overdue(limit))
    }

    fn overdue(&self, limit: Duration) -> Refusal {
        if !self.output.is_empty() {
            Refusal::ReaderTooSlow(limit)
        } else if self.request_began.is_some() {
            Refusal::RequestTooSlow(limit)
        } else {
            Refusal::Idle(limit)
        }
    }
}

/// Returns the connection's waker, made on first use.
fn own_waker<'a>(
    waker: &'a mut Option<(Arc<ConnectionWaker>, Waker)>,
    mailbox: &Arc<Mailbox>,
    token: Token,
) -> &'a Waker {
    let (_, waker) = waker.get_or_insert_with(|| {
        let own = Arc::new(ConnectionWaker::new(mailbox.clone(), token));
        (own.clone(), Waker::from(own))
    });
    waker
}

/// An estimate of the memory of a reply until it is ready, including the answer if another thread
/// makes it.
fn kept_until_ready(context: &LoopContext, asked: &mut Asked, pending: &dyn PendingReply) -> usize {
    asked.is_of_thread |= pending.waits_for() == WaitKind::Reading;
    let of_answer = match asked.is_of_thread {
        true => context.expected.of_threads(asked.api_key),
        false => 0,
    };
    let of_request = match asked.request_bytes as usize {
        // Larger requests report what they keep; the records of a produce are in the log.
        UNREAD_BODY_BYTES_MIN.. => 0,
        _ if asked.api_key == ApiKey::Produce => 0,
        request_bytes => KEPT_PER_REQUEST_BYTE * request_bytes,
    };
    of_answer + of_request + pending.kept_bytes()
}

fn refusal_of(error: &OutputError) -> Refusal {
    match error {
        OutputError::Socket(_) => Refusal::Gone,
        OutputError::File(error) => Refusal::ReplyUnreadable(error.to_string()),
    }
}
