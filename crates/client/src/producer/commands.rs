//! What the application's threads tell the sender besides records: that the producer closes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::time::Moment;

/// Shared by the front and the sender; whoever changes it wakes the driver afterwards.
#[derive(Debug)]
pub struct Commands {
    /// Nanoseconds of a `Moment`; `OPEN` while nobody has called `close`.
    close_by: AtomicU64,
    fatal: OnceLock<Error>,
}

const OPEN: u64 = u64::MAX;
/// `close` without a limit: still a command, never due.
const NO_LIMIT: u64 = u64::MAX - 1;

impl Default for Commands {
    fn default() -> Commands {
        Commands {
            close_by: AtomicU64::new(OPEN),
            fatal: OnceLock::new(),
        }
    }
}

impl Commands {
    /// The producer closes: what is there is sent without lingering; what is not done at `deadline` fails with `Closed`.
    /// The earliest deadline counts when it is called again. The accumulator must take no more records by then.
    pub fn close(&self, deadline: Moment) {
        self.close_by
            .fetch_min(deadline.0.min(NO_LIMIT), Ordering::AcqRel);
    }

    /// `Some` when `close` was called.
    pub fn close_deadline(&self) -> Option<Moment> {
        match self.close_by.load(Ordering::Acquire) {
            OPEN => None,
            NO_LIMIT => Some(Moment::NEVER),
            nanos => Some(Moment(nanos)),
        }
    }

    /// Why this producer can send nothing any more; `send` answers with it.
    pub fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }

    pub(super) fn set_fatal(&self, error: Error) {
        // The first reason explains the later ones.
        let _ = self.fatal.set(error);
    }
}
