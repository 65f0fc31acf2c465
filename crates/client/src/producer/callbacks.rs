//! Callbacks run on a thread of their own: one that blocks delays the callbacks behind it and
//! nothing else.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};

use super::completion::Placed;
use super::record::{Callback, DeliveryHandler};
use crate::error::Error;
use crate::metrics::ProducerMetrics;
use crate::time::{Clock, Moment};

/// A record's callback, in its batch.
#[derive(Debug)]
pub struct RecordCallback {
    /// Index of the record in the batch's `completion`; ascending.
    pub index: u32,
    pub timestamp: i64,
    pub callback: Callback,
}

/// The callbacks of a completed batch.
#[derive(Debug)]
pub struct Finished {
    pub partition: i32,
    /// The record that `result`'s base offset belongs to.
    pub first: u32,
    pub callbacks: Vec<RecordCallback>,
    pub result: Result<Placed, Error>,
}

/// Batches whose callbacks have not run, in the order in which the broker answered, hence in order
/// per partition.
///
/// The sender only ever appends. The backlog is bounded where records enter: see `is_over_limit`.
pub struct CallbackQueue {
    state: Mutex<CallbackState>,
    arrived: Condvar,
    /// Callbacks queued and not yet run.
    backlog: AtomicUsize,
    panicked: AtomicUsize,
    /// Called for tagged records. Locked by the thread that runs callbacks, once per batch.
    delivery: Option<Mutex<DeliveryHandler>>,
    metrics: Arc<ProducerMetrics>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct CallbackState {
    finished: VecDeque<Finished>,
    pushed_batches: u64,
    done_batches: u64,
    is_closed: bool,
    /// Waiters, each until this many batches are done.
    waiting: Vec<(u64, Waker)>,
    thread: Option<ThreadId>,
}

/// Back pressure: at most this many callbacks wait to run before `send_with` and `send_tagged` wait
/// too; at about 64 bytes each (tagged: 32), 8 MiB. They are not counted in `buffer.memory`, which
/// counts records: theirs are already acknowledged.
pub const BACKLOG_MAX: usize = 1 << 17;

/// Sampling: a reading of the clock costs more than a short handler.
const TAGS_PER_READING: u64 = 16;

/// Measures the callbacks of a batch.
struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    read_at: Moment,
    /// Calls since `read_at`.
    unread: u64,
    count: u64,
    nanos: u64,
    /// The longest call, or the mean of calls that were measured together.
    nanos_max: u64,
}

impl<'a> Stopwatch<'a> {
    fn start(clock: &'a dyn Clock) -> Stopwatch<'a> {
        Stopwatch {
            clock,
            read_at: clock.moment(),
            unread: 0,
            count: 0,
            nanos: 0,
            nanos_max: 0,
        }
    }

    /// Counts a call; reads the clock after this many.
    fn called(&mut self, calls_per_reading: u64) {
        self.unread += 1;
        if self.unread >= calls_per_reading {
            self.read();
        }
    }

    fn read(&mut self) {
        if self.unread == 0 {
            return;
        }
        let now = self.clock.moment();
        let nanos = now.nanos_since(self.read_at);
        self.count += self.unread;
        self.nanos += nanos;
        self.nanos_max = self.nanos_max.max(nanos / self.unread);
        (self.read_at, self.unread) = (now, 0);
    }
}

impl fmt::Debug for CallbackQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackQueue")
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

impl CallbackQueue {
    pub fn new(metrics: Arc<ProducerMetrics>, clock: Arc<dyn Clock>) -> CallbackQueue {
        CallbackQueue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            backlog: AtomicUsize::new(0),
            panicked: AtomicUsize::new(0),
            delivery: None,
            metrics,
            clock,
        }
    }

    /// Like `new`, with a handler for tagged records.
    pub fn with_delivery(self, handler: DeliveryHandler) -> CallbackQueue {
        CallbackQueue {
            delivery: Some(Mutex::new(handler)),
            ..self
        }
    }

    pub(super) fn has_delivery(&self) -> bool {
        self.delivery.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, CallbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues callbacks; never waits for one to run.
    pub fn push(&self, finished: Finished) {
        self.backlog
            .fetch_add(finished.callbacks.len(), Ordering::Relaxed);
        let mut state = self.lock();
        state.finished.push_back(finished);
        state.pushed_batches += 1;
        let is_first = state.finished.len() == 1;
        drop(state);
        if is_first {
            self.arrived.notify_one();
        }
    }

    /// Runs the queued callbacks on this thread; false when there were none. For users without a
    /// callback thread.
    pub fn run_arrived(&self) -> bool {
        let Some(finished) = self.lock().finished.pop_front() else {
            return false;
        };
        self.run(finished);
        true
    }

    fn run(&self, finished: Finished) {
        let count = finished.callbacks.len();
        self.run_each(finished);
        self.backlog.fetch_sub(count, Ordering::Relaxed);
        let mut woken = Vec::new();
        let mut state = self.lock();
        state.done_batches += 1;
        let done_batches = state.done_batches;
        state.waiting.retain(|(until, waker)| {
            let is_waiting = *until > done_batches;
            if !is_waiting {
                woken.push(waker.clone());
            }
            is_waiting
        });
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    fn run_each(&self, finished: Finished) {
        let mut delivery = self
            .delivery
            .as_ref()
            .map(|handler| handler.lock().unwrap_or_else(PoisonError::into_inner));
        let mut stopwatch = Stopwatch::start(&*self.clock);
        for entry in finished.callbacks {
            let outcome = match &finished.result {
                Ok(placed) => {
                    let place = entry.index - finished.first;
                    Ok(placed.record(finished.partition, place, entry.timestamp))
                }
                Err(error) => Err(error.clone()),
            };
            let is_tagged = matches!(entry.callback, Callback::Tag(_));
            if !is_tagged {
                stopwatch.read();
            }
            let called = catch_unwind(AssertUnwindSafe(|| match (entry.callback, &mut delivery) {
                (Callback::Once(callback), _) => callback(outcome),
                (Callback::Tag(tag), Some(handler)) => handler(tag, outcome),
                (Callback::Tag(_), None) => unreachable!("`send_tagged` refuses without a handler"),
            }));
            self.panicked
                .fetch_add(usize::from(called.is_err()), Ordering::Relaxed);
            stopwatch.called(if is_tagged { TAGS_PER_READING } else { 1 });
        }
        stopwatch.read();
        self.metrics
            .callbacks_ran(stopwatch.count, stopwatch.nanos, stopwatch.nanos_max);
    }

    /// Whether more callbacks wait than the bound allows.
    pub fn is_over_limit(&self) -> bool {
        self.backlog.load(Ordering::Relaxed) > BACKLOG_MAX
    }

    /// Number of callbacks queued and not yet run.
    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// Number of callbacks that panicked. The panic is caught and goes no further.
    pub fn panicked(&self) -> usize {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Whether the calling thread is the callback thread, on which nothing may wait for callbacks.
    pub(super) fn is_own_thread(&self) -> bool {
        self.lock().thread == Some(thread::current().id())
    }

    /// Completes when the callbacks of all batches that are decided now have run.
    pub(super) fn all_run(self: &Arc<CallbackQueue>) -> impl Future<Output = ()> + Send + use<> {
        let until = self.lock().pushed_batches;
        self.run_until(until)
    }

    /// Completes when the callbacks of one more batch have run; at once when there are none.
    pub(super) fn one_run(self: &Arc<CallbackQueue>) -> impl Future<Output = ()> + Send + use<> {
        let state = self.lock();
        let until = state.pushed_batches.min(state.done_batches + 1);
        drop(state);
        self.run_until(until)
    }

    fn run_until(self: &Arc<CallbackQueue>, until: u64) -> impl Future<Output = ()> + Send + use<> {
        let queue = Arc::clone(self);
        std::future::poll_fn(move |context| {
            let mut state = queue.lock();
            if state.done_batches >= until {
                return Poll::Ready(());
            }
            let waker = context.waker();
            let is_known =
                |(known_until, known): &(u64, Waker)| *known_until == until && known.will_wake(waker);
            if !state.waiting.iter().any(is_known) {
                state.waiting.push((until, waker.clone()));
            }
            Poll::Pending
        })
    }

    /// Starts the callback thread; it ends after `close`, when every queued callback has run.
    pub(super) fn start(self: &Arc<CallbackQueue>, name: &str) -> std::io::Result<thread::JoinHandle<()>> {
        let queue = Arc::clone(self);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            queue.lock().thread = Some(thread::current().id());
            while let Some(finished) = queue.next() {
                queue.run(finished);
            }
        })
    }

    fn next(&self) -> Option<Finished> {
        let mut state = self.lock();
        loop {
            if let Some(finished) = state.finished.pop_front() {
                return Some(finished);
            }
            if state.is_closed {
                return None;
            }
            state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Ends the queue: nothing more will be pushed.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_all();
    }
}
