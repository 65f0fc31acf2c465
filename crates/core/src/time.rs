//! Two kinds of time that must not be mixed: a deadline must not jump with the wall clock.

use std::time::Duration;

/// A point of the monotonic clock, in microseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    pub fn after(self, duration: Duration) -> Moment {
        Moment(
            self.0
                .saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    pub fn after_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms.saturating_mul(1_000)))
    }

    /// Microseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn micros_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A point of the wall clock, in milliseconds since the Unix epoch, as in record timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Both clocks, provided by the shell or a simulation.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn moment(&self) -> Moment;
    fn timestamp(&self) -> Timestamp;
}
