//! Calls of the application's threads for the transaction, and what they wait for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::consumer::{GroupMetadata, OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::pending::Promise;
use crate::time::Moment;

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::producer) enum Outcome {
    Done,
    /// The transaction can only be aborted.
    Abortable(Error),
    /// The limit of the wait has passed; the work goes on.
    Unfinished(Error),
    /// Another producer has the transactional id, or the coordinator has forgotten this one: there
    /// is no transaction any more, and `init` is the way back.
    Lost(Error),
    /// The producer is of no use any more.
    Fatal(Error),
    /// The call was refused and has changed nothing.
    Refused(Error),
}

impl Outcome {
    pub fn into_result(self) -> Result<(), Error> {
        match self {
            Outcome::Done => Ok(()),
            Outcome::Abortable(error)
            | Outcome::Unfinished(error)
            | Outcome::Lost(error)
            | Outcome::Fatal(error)
            | Outcome::Refused(error) => Err(error),
        }
    }
}

#[derive(Debug)]
pub(in crate::producer) struct Waiter {
    pub deadline: Moment,
    pub promise: Promise<Outcome>,
}

impl Waiter {
    pub fn tell(self, outcome: Outcome) {
        self.promise.fulfil(Ok(outcome));
    }
}

/// Offsets that become the group's if the transaction is committed.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::producer) struct OffsetsToCommit {
    pub group: GroupMetadata,
    pub offsets: BTreeMap<TopicPartition, OffsetAndMetadata>,
}

#[derive(Debug)]
pub(in crate::producer) enum Call {
    Init(Waiter),
    Begin(Waiter),
    Offsets(Arc<OffsetsToCommit>, Waiter),
    Commit(Waiter),
    /// Without a waiter: the guard of the transaction was dropped.
    Abort(Option<Waiter>),
}

/// Shared by the front and the sender; a thread that adds a call wakes the driver afterwards.
#[derive(Debug, Default)]
pub(in crate::producer) struct TransactionCalls {
    state: Mutex<CallsState>,
    /// Whether `CallsState::trouble` is set: `send` reads this alone.
    has_trouble: AtomicBool,
}

#[derive(Debug, Default)]
struct CallsState {
    calls: Vec<Call>,
    /// The sender has ended: a call would never be answered.
    is_ended: bool,
    trouble: Option<Error>,
}

impl TransactionCalls {
    fn lock(&self) -> MutexGuard<'_, CallsState> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call. After the end of the sender it is dropped, which answers `Closed`.
    pub fn push(&self, call: Call) {
        let mut state = self.lock();
        if !state.is_ended {
            state.calls.push(call);
        }
    }

    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// Drops the calls that are left, and every later one.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_ended = true;
        let left = std::mem::take(&mut state.calls);
        drop(state);
        drop(left);
    }

    /// Why the open transaction can only be aborted.
    #[inline]
    pub fn trouble(&self) -> Option<Error> {
        if !self.has_trouble.load(Ordering::Acquire) {
            return None;
        }
        self.lock().trouble.clone()
    }

    /// Keeps the first reason: it explains the later ones.
    pub fn set_trouble(&self, error: &Error) {
        let mut state = self.lock();
        if state.trouble.is_none() {
            state.trouble = Some(error.clone());
            self.has_trouble.store(true, Ordering::Release);
        }
    }

    pub fn clear_trouble(&self) {
        let mut state = self.lock();
        state.trouble = None;
        self.has_trouble.store(false, Ordering::Release);
    }
}
