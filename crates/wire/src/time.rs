//! Two kinds of time that must not be mixed: a deadline must not jump with the wall clock.

use std::fmt;
use std::time::Duration;

/// A point of the monotonic clock, to the nanosecond, since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    nanos: u64,
}

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment::from_nanos(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment { nanos }
    }

    pub const fn from_micros(micros: u64) -> Moment {
        Moment::from_nanos(micros.saturating_mul(1_000))
    }

    /// Nanoseconds since the start.
    pub const fn nanos(self) -> u64 {
        self.nanos
    }

    /// Whole microseconds since the start.
    pub const fn micros(self) -> u64 {
        self.nanos / 1_000
    }

    pub fn after(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(self.nanos.saturating_add(nanos))
    }

    pub fn after_ms(self, ms: u64) -> Moment {
        Moment::from_nanos(self.nanos.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn nanos_since(self, earlier: Moment) -> u64 {
        self.nanos.saturating_sub(earlier.nanos)
    }

    /// Whole microseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn micros_since(self, earlier: Moment) -> u64 {
        self.nanos_since(earlier) / 1_000
    }

    /// Whole milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.nanos_since(earlier) / 1_000_000
    }
}

/// A point of the wall clock, in milliseconds since the Unix epoch, as in record timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Both clocks, as the operating system or a simulation provides them.
pub trait Clock: Send + Sync + fmt::Debug {
    fn moment(&self) -> Moment;
    fn timestamp(&self) -> Timestamp;
}
