//! A clock that the simulation advances.

use std::sync::atomic::{AtomicU64, Ordering};

use ottla_core::time::{Clock, Moment, Timestamp};

/// A day in 2026, so that timestamps are plausible.
const EPOCH_MS: i64 = 1_790_000_000_000;

#[derive(Debug, Default)]
pub struct SimClock {
    micros: AtomicU64,
}

impl SimClock {
    pub fn advance(&self, micros: u64) {
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn moment(&self) -> Moment {
        Moment::from_micros(self.micros.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(EPOCH_MS + (self.micros.load(Ordering::Relaxed) / 1_000) as i64)
    }
}
