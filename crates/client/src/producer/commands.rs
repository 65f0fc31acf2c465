//! Commands from the application's threads to the sender besides records: to close, and about
//! transactions.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::transaction::calls::TransactionCalls;
use crate::error::Error;
use crate::time::Moment;

/// Shared by the front and the sender; a thread that changes it wakes the driver afterwards.
#[derive(Debug)]
pub struct Commands {
    /// Nanoseconds of a `Moment`; `OPEN` until `close` is called.
    close_by: AtomicU64,
    fatal: OnceLock<Error>,
    pub(super) transactions: TransactionCalls,
}

const OPEN: u64 = u64::MAX;
/// `close` without a limit: still a command, but never due.
const NO_LIMIT: u64 = u64::MAX - 1;

impl Default for Commands {
    fn default() -> Commands {
        Commands {
            close_by: AtomicU64::new(OPEN),
            fatal: OnceLock::new(),
            transactions: TransactionCalls::default(),
        }
    }
}

impl Commands {
    /// Closes the producer: buffered records are sent without lingering, and those not done at
    /// `deadline` fail with `Closed`. Of several calls the earliest deadline counts. The
    /// accumulator must already refuse records.
    pub fn close(&self, deadline: Moment) {
        self.close_by
            .fetch_min(deadline.nanos().min(NO_LIMIT), Ordering::AcqRel);
    }

    /// `Some` once `close` was called.
    pub fn close_deadline(&self) -> Option<Moment> {
        match self.close_by.load(Ordering::Acquire) {
            OPEN => None,
            NO_LIMIT => Some(Moment::NEVER),
            nanos => Some(Moment::from_nanos(nanos)),
        }
    }

    /// Why this producer can send nothing any more; `send` returns this error.
    pub fn fatal(&self) -> Option<&Error> {
        self.fatal.get()
    }

    pub(super) fn set_fatal(&self, error: Error) {
        // Keep the first reason: it explains the later ones.
        let _ = self.fatal.set(error);
    }
}
