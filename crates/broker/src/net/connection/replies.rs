//! The replies of a connection before they are sent: in request order, the first of them polled
//! until it is ready.
//!
//! **Invariant.** Only the first reply is ever polled, and it is polled again only after its waker
//! or its deadline. Behind a reply whose request another thread has yet to handle, none is queued.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use ottla_core::pending::PendingReply;
use ottla_core::reply::{ReplyBuffer, WaitKind};
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;

use super::super::expected_answers::ExpectedAnswers;
use super::super::loop_context::LoopContext;
use super::super::mailbox::OwnWaker;
use super::super::refusal::CloseReason;
use super::accounting::IN_FLIGHT_MAX;
use super::served_request::ServedRequest;
use crate::metrics::stage::Stage;

/// What a handler keeps of a small waiting request, per byte of it: names and numbers as values of
/// their own.
const KEPT_PER_REQUEST_BYTE: usize = 4;

/// Requests of this size and more are decoded by other threads, from their bytes.
const UNREAD_BODY_BYTES_MIN: usize = 16 * 1024;

/// A reply that waits for earlier replies, or for something else.
struct Reply {
    request: ServedRequest,
    answer: ReplyAnswer,
    /// An estimate of its memory.
    kept_bytes: usize,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a reply that only waits for its turn needs no allocation"
)]
enum ReplyAnswer {
    Ready(ReplyBuffer),
    Pending(Box<dyn PendingReply>),
}

/// The memory of a queued reply, without what it refers to.
pub(super) const REPLY_BYTES: usize = size_of::<Reply>();

/// A reply that has become ready; its content is in the event loop's reply buffer.
pub(super) struct Completed {
    pub request: ServedRequest,
    /// How long the poll took that completed it; `None` for a reply that only waited its turn.
    pub polled_micros: Option<u64>,
}

/// Replies in request order.
#[derive(Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    /// The sum over `queue`.
    kept_bytes: usize,
    /// Another thread has yet to begin the last of them; later requests must not be served before
    /// it.
    is_held: bool,
    /// The first reply need not be polled before its waker or deadline fires.
    is_first_polled: bool,
    deadline: Option<Moment>,
}

impl Replies {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no further request may be served before the last one has been handled.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// An estimate of their memory.
    pub fn memory_bytes(&self) -> usize {
        self.queue.len() * REPLY_BYTES + self.kept_bytes
    }

    /// When to poll the first one even without a wake-up.
    pub fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    /// How many of them are of requests that move records; more than `IN_FLIGHT_MAX` are not
    /// counted.
    pub fn moving_records(&self) -> usize {
        let moving = self.queue.iter().filter(|reply| reply.request.moves_records());
        moving.take(IN_FLIGHT_MAX).count()
    }

    /// Whether one of them is ready, or will be soon, without anything that its client waits for.
    pub fn has_one_due_soon(&self) -> bool {
        self.queue.iter().any(|reply| match &reply.answer {
            ReplyAnswer::Ready(_) => true,
            ReplyAnswer::Pending(pending) => matches!(
                Stage::from(pending.waits_for()),
                Stage::Synced | Stage::Controller
            ),
        })
    }

    /// Called when a waiting reply can go on.
    pub fn on_wake(&mut self) {
        self.is_first_polled = false;
    }

    /// Whether the first one can go on right away.
    pub fn can_advance(&self) -> bool {
        match self.queue.front().map(|first| &first.answer) {
            Some(ReplyAnswer::Ready(_)) => true,
            Some(ReplyAnswer::Pending(_)) => !self.is_first_polled,
            None => false,
        }
    }

    /// Queues a reply that is complete, behind earlier ones.
    pub fn push_ready(&mut self, request: ServedRequest, mut reply: ReplyBuffer) {
        // The buffer may have held a larger answer before.
        reply.bytes.shrink_to_fit();
        let kept_bytes = reply.bytes.len() + size_of_val(&*reply.regions);
        self.push(request, ReplyAnswer::Ready(reply), kept_bytes);
    }

    pub fn push_pending(
        &mut self,
        mut request: ServedRequest,
        pending: Box<dyn PendingReply>,
        expected: &ExpectedAnswers,
    ) {
        if self.queue.is_empty() {
            self.is_first_polled = false;
        }
        self.is_held = pending.is_alone();
        let kept_bytes = kept_until_ready(expected, &mut request, &*pending);
        self.push(request, ReplyAnswer::Pending(pending), kept_bytes);
    }

    fn push(&mut self, request: ServedRequest, answer: ReplyAnswer, kept_bytes: usize) {
        self.kept_bytes += kept_bytes;
        self.queue.push_back(Reply {
            request,
            answer,
            kept_bytes,
        });
    }

    /// Takes the first reply out if it is ready; its content is then in `context.reply`.
    ///
    /// - `positions_due`: from then on a fetch notes the positions of its partitions.
    pub fn take_first(
        &mut self,
        context: &mut LoopContext,
        waker: &mut OwnWaker,
        positions_due: Moment,
    ) -> Result<Option<Completed>, CloseReason> {
        let Some(Reply { request, answer, .. }) = self.queue.front_mut() else {
            return Ok(None);
        };
        let polled_micros = match answer {
            ReplyAnswer::Ready(reply) => {
                request.book(Stage::Behind, context.tick());
                context.reply = std::mem::take(reply);
                None
            }
            ReplyAnswer::Pending(_) => match self.poll_first(context, waker, positions_due)? {
                Poll::Ready(micros) => Some(micros),
                Poll::Pending => return Ok(None),
            },
        };
        self.is_first_polled = false;
        self.deadline = None;
        let first = self.queue.pop_front().expect("the first reply was just seen");
        self.kept_bytes -= first.kept_bytes;
        self.is_held &= !self.queue.is_empty();
        Ok(Some(Completed {
            request: first.request,
            polled_micros,
        }))
    }

    /// Polls the first reply, which is pending, if it was woken or is due; returns how long that
    /// took.
    fn poll_first(
        &mut self,
        context: &mut LoopContext,
        waker: &mut OwnWaker,
        positions_due: Moment,
    ) -> Result<Poll<u64>, CloseReason> {
        let began = context.tick();
        let is_due = self.deadline.is_some_and(|deadline| deadline <= began);
        let has_others = self.queue.len() > 1;
        let Some(Reply {
            request,
            answer: ReplyAnswer::Pending(pending),
            kept_bytes,
        }) = self.queue.front_mut()
        else {
            return Ok(Poll::Pending);
        };
        if self.is_first_polled && !is_due {
            return Ok(Poll::Pending);
        }
        let stage = Stage::from(pending.waits_for());
        let wants_positions = request.api_key == ApiKey::Fetch && began >= positions_due;
        context.reply.begin(wants_positions);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            context
                .service
                .poll(pending.as_mut(), waker.get(), &mut context.reply)
        }));
        let polled = polled.map_err(|_| CloseReason::Panicked {
            api_key: request.api_key,
            api_version: request.api_version,
        })?;
        if polled.is_pending() {
            self.is_first_polled = true;
            self.deadline = pending.deadline();
            let kept_before = *kept_bytes;
            *kept_bytes = kept_until_ready(&context.expected, request, &**pending);
            self.kept_bytes = self.kept_bytes + *kept_bytes - kept_before;
            // Nothing is served behind a reply that holds others back.
            self.is_held &= pending.is_alone() || has_others;
            return Ok(Poll::Pending);
        }
        request.seen.add(&context.reply.seen);
        let now = context.tick();
        request.book(stage, now);
        Ok(Poll::Ready(now.micros_since(began)))
    }
}

/// An estimate of the memory of a reply until it is ready, including the answer if another thread
/// makes it.
fn kept_until_ready(
    expected: &ExpectedAnswers,
    request: &mut ServedRequest,
    pending: &dyn PendingReply,
) -> usize {
    request.is_of_thread |= pending.waits_for() == WaitKind::Reading;
    let of_answer = if request.is_of_thread {
        expected.of_threads(request.api_key)
    } else {
        0
    };
    let of_request = match request.request_bytes as usize {
        // Larger requests report what they keep; the records of a produce are in the log.
        UNREAD_BODY_BYTES_MIN.. => 0,
        _ if request.api_key == ApiKey::Produce => 0,
        request_bytes => KEPT_PER_REQUEST_BYTE * request_bytes,
    };
    of_answer + of_request + pending.kept_bytes()
}
