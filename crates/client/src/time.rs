//! Monotonic and wall-clock time, two types that must not be mixed: a deadline must not jump with
//! the wall clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use ottla_wire::time::{Clock, Moment, Timestamp};

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
        Moment::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn timestamp(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_millis() as i64)
    }
}
