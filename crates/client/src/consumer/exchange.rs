//! The state that the application's thread and the driver's thread share: one lock, one condition
//! variable, one waker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::assignment::Assignment;
use super::group::{CommitKind, GroupMetadata, Offsets, RebalanceCall};
use super::subscription::Subscription;
use super::topic_partition::{OffsetAndTimestamp, TopicPartition};
use crate::error::Error;
use crate::network::io::Wake;
use crate::pending::Promise;
use crate::time::Moment;

/// Errors that wait for a `poll`; duplicates are dropped.
const ERRORS_MAX: usize = 16;

/// Requests of the application's thread to the machine.
#[derive(Debug)]
pub enum Command {
    /// The assignment or a position changed: check again.
    Look,
    ListOffsets {
        targets: BTreeMap<TopicPartition, i64>,
        deadline: Moment,
        promise: Promise<BTreeMap<TopicPartition, OffsetAndTimestamp>>,
    },
    ListTopics {
        deadline: Moment,
        promise: Promise<Vec<TopicDescription>>,
    },
    Subscribe(Subscription),
    Acknowledge {
        call_id: u64,
        consumed: Offsets,
    },
    Commit {
        offsets: Offsets,
        kind: CommitKind,
        /// Each gets the result: a future, a callback.
        promises: Vec<Promise<Offsets>>,
    },
    AutoCommit {
        consumed: Offsets,
    },
    Committed {
        partitions: BTreeSet<TopicPartition>,
        deadline: Moment,
        promise: Promise<Offsets>,
    },
    Position {
        partition: TopicPartition,
        deadline: Moment,
        promise: Promise<i64>,
    },
    Rejoin {
        reason: Arc<str>,
    },
    Close {
        deadline: Moment,
    },
}

/// A topic as `list_topics` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// The topic's name.
    pub name: Arc<str>,
    /// Kafka's own, like `__consumer_offsets`.
    pub is_internal: bool,
    /// How many partitions it has.
    pub partition_count: usize,
}

/// All state under the lock.
#[derive(Debug)]
pub struct ExchangeState {
    pub assignment: Assignment,
    pub commands: VecDeque<Command>,
    /// Each fails one `poll`.
    errors: VecDeque<Error>,
    /// Fails every `poll`.
    pub fatal_error: Option<Error>,
    pub calls: VecDeque<RebalanceCall>,
    pub group_metadata: Option<GroupMetadata>,
    /// The group has been left, if it was joined.
    pub has_left: bool,
    /// The driver's thread has ended: no command would be executed.
    pub is_ended: bool,
    /// The consumer was dropped: the machine acknowledges its calls itself.
    pub is_abandoned: bool,
    /// Topics that calls of the application wait for.
    pub asked_topics: BTreeSet<Arc<str>>,
    wakers: Vec<Waker>,
}

impl ExchangeState {
    pub fn new(assignment: Assignment) -> ExchangeState {
        ExchangeState {
            assignment,
            commands: VecDeque::new(),
            errors: VecDeque::new(),
            fatal_error: None,
            calls: VecDeque::new(),
            group_metadata: None,
            has_left: false,
            is_ended: false,
            is_abandoned: false,
            asked_topics: BTreeSet::new(),
            wakers: Vec::new(),
        }
    }

    pub fn report(&mut self, error: Error) {
        if self.errors.len() < ERRORS_MAX && !self.errors.contains(&error) {
            self.errors.push_back(error);
        }
    }

    pub fn take_error(&mut self) -> Option<Error> {
        self.errors.pop_front().or_else(|| self.fatal_error.clone())
    }

    pub fn has_error(&self) -> bool {
        !self.errors.is_empty() || self.fatal_error.is_some()
    }

    /// Changes when there is something new for the application's thread.
    pub fn news(&self) -> News {
        News {
            changes: self.assignment.changes(),
            errors: self.errors.len(),
            is_fatal: self.fatal_error.is_some(),
            call: self.calls.front().map(|call| call.id),
            has_left: self.has_left,
        }
    }

    /// Errors of an earlier assignment do not apply to this one.
    pub fn forget_errors(&mut self) {
        self.errors.clear();
    }

    /// Whether an async task waits.
    pub fn has_wakers(&self) -> bool {
        !self.wakers.is_empty()
    }

    pub fn add_waker(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}

/// See [`ExchangeState::news`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    changes: u64,
    errors: usize,
    is_fatal: bool,
    call: Option<u64>,
    has_left: bool,
}

/// Where the two threads meet.
pub struct Exchange {
    state: Mutex<ExchangeState>,
    changed: Condvar,
    driver: Arc<dyn Wake>,
    is_woken_up: AtomicBool,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

impl Exchange {
    pub fn new(assignment: Assignment, driver: Arc<dyn Wake>) -> Arc<Exchange> {
        Arc::new(Exchange {
            state: Mutex::new(ExchangeState::new(assignment)),
            changed: Condvar::new(),
            driver,
            is_woken_up: AtomicBool::new(false),
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        // A panic under the lock ends the driver, which leaves `Closed` behind for every caller.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command to the machine. When the machine has ended, the command's promise gives
    /// `Closed`.
    pub fn command(&self, command: Command) {
        let mut state = self.lock();
        if state.is_ended {
            return;
        }
        state.commands.push_back(command);
        drop(state);
        self.wake_driver();
    }

    pub fn wake_driver(&self) {
        self.driver.wake();
    }

    /// Blocks for at most `limit`, or until something changed for the application.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, ExchangeState>,
        limit: Duration,
    ) -> MutexGuard<'a, ExchangeState> {
        self.changed
            .wait_timeout(state, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Wakes the application: something changed for it.
    pub fn announce(&self, mut state: MutexGuard<'_, ExchangeState>) {
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.changed.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    /// `Consumer.wakeup()`: the waiting poll, or else the next one, returns `Wakeup`.
    pub fn wake_up(&self) {
        let state = self.lock();
        self.is_woken_up.store(true, Ordering::Release);
        self.announce(state);
    }

    pub fn is_woken_up(&self) -> bool {
        self.is_woken_up.load(Ordering::Acquire)
    }

    pub fn take_wake_up(&self) -> bool {
        self.is_woken_up.load(Ordering::Relaxed) && self.is_woken_up.swap(false, Ordering::AcqRel)
    }

    /// Ends the exchange: nothing more will arrive.
    pub fn close(&self, error: Error) {
        let mut state = self.lock();
        state.fatal_error = Some(error);
        state.has_left = true;
        state.is_ended = true;
        // Dropping the promises wakes their waiters.
        state.commands.clear();
        self.announce(state);
    }
}
