//! Monotonic and wall-clock time, two types that must not be mixed: a deadline must not jump with
//! the wall clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// A moment that never comes.
    pub const NEVER: Moment = Moment(u64::MAX);

    pub fn after(self, duration: Duration) -> Moment {
        Moment(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    pub fn after_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// Nanoseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn nanos_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds from `earlier` to `self`; 0 when `earlier` is later.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.nanos_since(earlier) / 1_000_000
    }
}

/// A point on the wall clock, in milliseconds since the Unix epoch, as used for record timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// Both clocks, as the operating system (or a simulation) provides them.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn moment(&self) -> Moment;
    fn timestamp(&self) -> Timestamp;
}

/// The operating system's clocks. All instances of a process share one origin, so their moments can
/// be compared.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        static START: OnceLock<Instant> = OnceLock::new();
        SystemClock {
            start: *START.get_or_init(Instant::now),
        }
    }
}

impl Clock for SystemClock {
    fn moment(&self) -> Moment {
        Moment(self.start.elapsed().as_nanos() as u64)
    }

    fn timestamp(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_millis() as i64)
    }
}
