//! Poll activity, shared by the application's thread and the group's machine without a lock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::time::Moment;

/// When the application polled, and whether the machine waits for it. One per consumer, shared.
///
/// - `max.poll.interval.ms` counts from the end of a poll: an application that waits inside one is
///   alive.
#[derive(Debug)]
pub struct PollActivity {
    is_inside: AtomicBool,
    last_moment: AtomicU64,
    polls: AtomicU64,
    is_awaited: AtomicBool,
    auto_commit_due: AtomicU64,
}

impl Default for PollActivity {
    fn default() -> PollActivity {
        PollActivity {
            is_inside: AtomicBool::new(false),
            last_moment: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            auto_commit_due: AtomicU64::new(Moment::NEVER.nanos()),
        }
    }
}

impl PollActivity {
    /// The application's thread enters `poll`. True when the machine waits for that: wake it.
    #[must_use]
    pub fn enter(&self, now: Moment) -> bool {
        self.last_moment.store(now.nanos(), Ordering::SeqCst);
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.is_inside.store(true, Ordering::SeqCst);
        self.is_awaited.load(Ordering::SeqCst) && self.is_awaited.swap(false, Ordering::SeqCst)
    }

    /// The application's thread leaves `poll`.
    pub fn leave(&self, now: Moment) {
        self.last_moment.store(now.nanos(), Ordering::SeqCst);
        self.is_inside.store(false, Ordering::SeqCst);
    }

    /// From this moment on the application's thread, inside `poll` and before it hands out records,
    /// must call for an automatic commit (`GroupMembership::auto_commit`); `Moment::NEVER` when
    /// there is none.
    pub fn auto_commit_due(&self) -> Moment {
        Moment::from_nanos(self.auto_commit_due.load(Ordering::Relaxed))
    }

    pub(super) fn set_auto_commit_due(&self, due: Moment) {
        self.auto_commit_due.store(due.nanos(), Ordering::Relaxed);
    }

    /// Since when the application is outside `poll`; `None` while inside.
    pub(super) fn outside_since(&self) -> Option<Moment> {
        let is_inside = self.is_inside.load(Ordering::SeqCst);
        (!is_inside).then(|| Moment::from_nanos(self.last_moment.load(Ordering::SeqCst)))
    }

    /// How often `poll` was called.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::SeqCst)
    }

    /// Requests a wake-up at the next `enter`. State that `enter` changes must be checked again
    /// afterwards.
    pub(super) fn await_poll(&self) {
        self.is_awaited.store(true, Ordering::SeqCst);
    }
}
