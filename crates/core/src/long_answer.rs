//! Requests that are too much for an event loop (`placement.rs` decides): they are served on
//! threads of their own, one at a time per connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

use crate::node::{self, Node, NodeExecutor};
use crate::pending::{Handled, PendingReply};
use crate::quota::ClientQuota;
use crate::reply::{Ending, ReplyBuffer, WaitKind};
use crate::request::{OwnedRequest, Request};
use crate::seen::{Fetched, Seen, Written};
use crate::services::Payer;
use crate::slot::Slot;
use crate::time::Moment;

/// By the same measure: 1,000 entries take 200 µs.
const ENTRIES_PER_MICRO: u64 = 5;

/// The smallest thing that a request can name: a partition number.
const ENTRY_BYTES_MIN: u64 = 4;

/// Decodes and serves the request on a long-answer thread. Later requests of the connection wait
/// until it has been handled, to keep their order of effect.
///
/// - `entries`: how many things it names, if that is known.
pub(crate) fn handle_elsewhere(request: &Request<'_>, entries: u64) -> Handled {
    let serve =
        |node: &Node, request: &Request<'_>, reply: &mut ReplyBuffer| node.handle_whole(request, reply);
    let entries = entries.max(request.body.len() as u64 / ENTRY_BYTES_MIN);
    copied(request, entries, Box::new(serve))
}

/// As `handle_elsewhere`, with `serve` in place of the dispatcher, for a handler that has begun: it
/// gets the request again.
pub(crate) fn continue_elsewhere(
    request: &Request<'_>,
    serve: impl FnOnce(&Node, &Request<'_>, &mut ReplyBuffer) -> Handled + Send + 'static,
) -> Handled {
    let entries = request.body.len() as u64 / ENTRY_BYTES_MIN;
    copied(request, entries, Box::new(serve))
}

fn copied(request: &Request<'_>, entries: u64, serve: Box<Serve>) -> Handled {
    let unread = UnreadRequest {
        request: Some(OwnedRequest::of(request)),
        serve: Some(serve),
        handled: None,
    };
    Handled::Pending(Box::new(LongAnswer {
        payer: Payer::Tenant(request.connection.tenant),
        entries,
        quota: request.connection.quota.clone(),
        seen: Seen::default(),
        written: Written::default(),
        executor: None,
        stage: LongAnswerStage::Resting(Box::new(unread), None),
    }))
}

/// Drops what takes long to drop on a long-answer thread.
pub(crate) fn drop_elsewhere(
    executor: &dyn NodeExecutor,
    payer: Payer,
    entries: u64,
    dropped: impl Send + 'static,
) {
    executor.long_answer(node::LongAnswer {
        payer,
        entries,
        job: Box::new(move |_| {
            drop(dropped);
            entries
        }),
    });
}

/// A reply whose steps all run on another thread.
///
/// Dropping it cancels a step that has not begun; what the work holds is dropped on that thread,
/// too.
struct LongAnswer {
    payer: Payer,
    /// Estimate of how many things it names.
    entries: u64,
    quota: Option<Arc<ClientQuota>>,
    /// What earlier steps observed and appended.
    seen: Seen,
    written: Written,
    /// Set at the first step.
    executor: Option<Arc<dyn NodeExecutor>>,
    stage: LongAnswerStage,
}

enum LongAnswerStage {
    /// Waiting for its first step, or for the wake-up for the next.
    Resting(Box<dyn PendingReply>, Option<Arc<Woken>>),
    /// A step runs or is queued; the fields describe the work as it was before.
    Working {
        result: Arc<Slot<Worked>>,
        is_alone: bool,
        kept_bytes: usize,
    },
    Over,
}

/// The result of a step.
enum Worked {
    Written(ReplyBuffer),
    /// The work waits for something.
    Rested(Box<dyn PendingReply>, Arc<Woken>, Seen, Written),
}

impl LongAnswer {
    /// Hands the work over, unless it was neither woken nor is due.
    fn start(&mut self, node: &Node, waker: &Waker, fetched: &mut Fetched) {
        let LongAnswerStage::Resting(work, woken) = &self.stage else {
            return;
        };
        let is_woken = woken
            .as_ref()
            .is_none_or(|woken| woken.is_set.load(Ordering::Acquire));
        let is_due = || {
            work.deadline()
                .is_some_and(|deadline| deadline <= node.clock().moment())
        };
        if !is_woken && !is_due() {
            return;
        }
        let LongAnswerStage::Resting(work, woken) = std::mem::replace(&mut self.stage, LongAnswerStage::Over)
        else {
            unreachable!("looked at above")
        };
        let result = Arc::new(Slot::default());
        self.stage = LongAnswerStage::Working {
            result: result.clone(),
            is_alone: work.is_alone(),
            kept_bytes: work.kept_bytes(),
        };
        let step = Step {
            work,
            woken: woken.unwrap_or_else(|| Arc::new(Woken::of(waker))),
            fetched: std::mem::take(fetched),
            quota: self.quota.clone(),
            promise: Promise {
                result,
                is_kept: false,
            },
        };
        let executor = self.executor.get_or_insert_with(|| node.executor().clone());
        executor.long_answer(node::LongAnswer {
            payer: self.payer,
            entries: self.entries,
            job: Box::new(|node| step.run(node)),
        });
    }
}

impl PendingReply for LongAnswer {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        loop {
            self.start(node, waker, &mut reply.fetched);
            let LongAnswerStage::Working { result, .. } = &self.stage else {
                return Poll::Pending;
            };
            match result.take_or_register(waker) {
                None => return Poll::Pending,
                Some(Worked::Written(written)) => {
                    self.stage = LongAnswerStage::Over;
                    *reply = written;
                    reply.seen.add(&self.seen);
                    reply.written.take(&mut self.written);
                    return Poll::Ready(());
                }
                Some(Worked::Rested(work, woken, seen, mut written)) => {
                    self.seen.add(&seen);
                    self.written.take(&mut written);
                    self.stage = LongAnswerStage::Resting(work, Some(woken));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Moment> {
        match &self.stage {
            LongAnswerStage::Resting(work, _) => work.deadline(),
            LongAnswerStage::Working { .. } | LongAnswerStage::Over => None,
        }
    }

    fn waits_for(&self) -> WaitKind {
        match &self.stage {
            LongAnswerStage::Resting(work, Some(_)) => work.waits_for(),
            _ => WaitKind::Reading,
        }
    }

    fn is_alone(&self) -> bool {
        match &self.stage {
            LongAnswerStage::Resting(work, _) => work.is_alone(),
            LongAnswerStage::Working { is_alone, .. } => *is_alone,
            LongAnswerStage::Over => false,
        }
    }

    fn kept_bytes(&self) -> usize {
        match &self.stage {
            LongAnswerStage::Resting(work, _) => work.kept_bytes(),
            LongAnswerStage::Working { kept_bytes, .. } => *kept_bytes,
            LongAnswerStage::Over => 0,
        }
    }
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        // A reply that waits for a hundred thousand partitions takes a while to drop its
        // registrations.
        if let Some(executor) = &self.executor
            && let LongAnswerStage::Resting(work, _) =
                std::mem::replace(&mut self.stage, LongAnswerStage::Over)
        {
            drop_elsewhere(&**executor, self.payer, self.entries, work);
        }
    }
}

/// One poll of the work on a long-answer thread.
struct Step {
    work: Box<dyn PendingReply>,
    /// Shared by all steps: a registration of an earlier step still wakes the work.
    woken: Arc<Woken>,
    fetched: Fetched,
    quota: Option<Arc<ClientQuota>>,
    promise: Promise,
}

impl Step {
    /// Polls the work and returns the cost, in entries.
    fn run(mut self, node: &Node) -> u64 {
        if self.promise.is_unwanted() {
            return 0;
        }
        let woken = self.woken;
        // Cleared before the poll: a wake-up from here on is for the next step. A swap, so that the
        // poll sees everything that was written before the flag was set.
        woken.is_set.swap(false, Ordering::AcqRel);
        let mut reply = ReplyBuffer {
            fetched: self.fetched,
            ..ReplyBuffer::default()
        };
        let began = node.clock().moment();
        let polled = self.work.poll(node, &Waker::from(woken.clone()), &mut reply);
        let now = node.clock().moment();
        let micros = now.micros_since(began);
        if let Some(quota) = &self.quota {
            quota.worked(micros, now);
        }
        match polled {
            Poll::Ready(()) => {
                drop(self.work);
                self.promise.keep(Worked::Written(reply));
            }
            Poll::Pending => {
                let rested = Worked::Rested(self.work, woken, reply.seen, reply.written);
                self.promise.keep(rested);
            }
        }
        micros.saturating_mul(ENTRIES_PER_MICRO).max(1)
    }
}

/// Guarantees a result, even if the work panics or its thread is stopped.
struct Promise {
    result: Arc<Slot<Worked>>,
    is_kept: bool,
}

impl Promise {
    /// The connection is gone: nothing else holds the slot.
    fn is_unwanted(&self) -> bool {
        Arc::strong_count(&self.result) == 1
    }

    fn keep(&mut self, worked: Worked) {
        self.is_kept = true;
        self.result.fill(worked);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.is_kept {
            let problem = "the answer was not written: a bug was hit, or the broker stops".to_owned();
            self.result.fill(Worked::Written(ReplyBuffer {
                ending: Ending::Close(problem),
                ..ReplyBuffer::default()
            }));
        }
    }
}

/// Wakes the connection for the next step; the end of a step is announced by its slot.
struct Woken {
    is_set: AtomicBool,
    connection: Waker,
}

impl Woken {
    fn of(connection: &Waker) -> Woken {
        Woken {
            is_set: AtomicBool::new(false),
            connection: connection.clone(),
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_set.swap(true, Ordering::AcqRel) {
            self.connection.wake_by_ref();
        }
    }
}

/// A request that is yet to be served.
struct UnreadRequest {
    /// `None` once it has been served.
    request: Option<OwnedRequest>,
    serve: Option<Box<Serve>>,
    /// The reply of the handler, once the request was decoded and the handler has begun.
    handled: Option<Box<dyn PendingReply>>,
}

type Serve = dyn FnOnce(&Node, &Request<'_>, &mut ReplyBuffer) -> Handled + Send;

impl UnreadRequest {
    fn handle(&mut self, node: &Node, reply: &mut ReplyBuffer) -> Handled {
        let (request, serve) = (self.request.take(), self.serve.take());
        let (request, serve) = request.zip(serve).expect("a request is served once");
        serve(node, &request.borrow(), reply)
    }
}

impl PendingReply for UnreadRequest {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        if let Some(pending) = &mut self.handled {
            return pending.poll(node, waker, reply);
        }
        let Some(mut pending) = self.handle(node, reply).settle(reply) else {
            return Poll::Ready(());
        };
        let polled = pending.poll(node, waker, reply);
        self.handled = Some(pending);
        polled
    }

    fn deadline(&self) -> Option<Moment> {
        self.handled.as_ref().and_then(|pending| pending.deadline())
    }

    fn waits_for(&self) -> WaitKind {
        match &self.handled {
            Some(pending) => pending.waits_for(),
            None => WaitKind::Reading,
        }
    }

    fn is_alone(&self) -> bool {
        self.handled.is_none()
    }

    fn kept_bytes(&self) -> usize {
        let of_handler = self.handled.as_ref().map_or(0, |pending| pending.kept_bytes());
        self.request.as_ref().map_or(0, OwnedRequest::body_bytes) + of_handler
    }
}
