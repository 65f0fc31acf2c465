//! The core's rate limit for log lines that an ill-behaved peer can cause, by the system's clock.

use ottla_core::rate_limit;
use ottla_core::time::Clock;

use crate::clock::SystemClock;

#[derive(Debug)]
pub struct RateLimit {
    limit: rate_limit::RateLimit,
    clock: SystemClock,
}

impl RateLimit {
    pub fn per_second(per_second: u32) -> RateLimit {
        RateLimit {
            limit: rate_limit::RateLimit::per_second(per_second),
            clock: SystemClock::default(),
        }
    }

    /// `Some(n)`: go ahead; `n` calls were refused since the last one that passed.
    pub fn pass(&self) -> Option<u64> {
        self.limit.pass(self.clock.moment())
    }
}
