//! The operating system's clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ottla_core::time::{Clock, Moment, Timestamp};

#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn moment(&self) -> Moment {
        // Whole microseconds, as requests are measured: their stages then add up.
        Moment::from_micros(self.start.elapsed().as_micros() as u64)
    }

    fn timestamp(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since_epoch.as_millis() as i64)
    }
}
