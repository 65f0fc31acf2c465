//! Wall-clock time for record timestamps at the price of the monotonic clock, which `send` reads
//! anyway.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::time::{Clock, Moment};

/// The difference between the wall clock and the monotonic one, updated from time to time.
#[derive(Debug)]
pub(super) struct WallClock {
    /// Nanoseconds to add to a moment.
    offset_nanos: AtomicI64,
    looked_up_at: AtomicU64,
}

const NANOS_PER_MS: i64 = 1_000_000;
/// A step of the wall clock appears in timestamps after at most this time.
const LOOK_UP_NANOS: u64 = 10_000_000;
/// Timestamps are in milliseconds, so two readings may differ by one without a step.
const STEP_NANOS: i64 = 2 * NANOS_PER_MS;

impl WallClock {
    pub(super) fn new(clock: &dyn Clock) -> WallClock {
        let now = clock.moment();
        WallClock {
            offset_nanos: AtomicI64::new(offset(clock, now)),
            looked_up_at: AtomicU64::new(now.nanos()),
        }
    }

    /// Milliseconds since the Unix epoch at `now`, which has just been read from `clock`.
    #[inline]
    pub(super) fn timestamp(&self, clock: &dyn Clock, now: Moment) -> i64 {
        if now
            .nanos()
            .saturating_sub(self.looked_up_at.load(Ordering::Relaxed))
            > LOOK_UP_NANOS
        {
            self.look_up(clock, now);
        }
        let nanos = self
            .offset_nanos
            .load(Ordering::Relaxed)
            .saturating_add_unsigned(now.nanos());
        nanos.div_euclid(NANOS_PER_MS)
    }

    #[cold]
    fn look_up(&self, clock: &dyn Clock, now: Moment) {
        self.looked_up_at.store(now.nanos(), Ordering::Relaxed);
        let found = offset(clock, now);
        let known = self.offset_nanos.load(Ordering::Relaxed);
        // Truncation to milliseconds makes an offset too small, never too large: the larger one is
        // right, and time does not run backwards.
        if found > known || known - found > STEP_NANOS {
            self.offset_nanos.store(found, Ordering::Relaxed);
        }
    }
}

fn offset(clock: &dyn Clock, now: Moment) -> i64 {
    let wall_nanos = clock.timestamp().0.saturating_mul(NANOS_PER_MS);
    wall_nanos.saturating_sub_unsigned(now.nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    /// A wall clock in nanoseconds beside a monotonic one.
    #[derive(Debug, Default)]
    struct Fake {
        moment: AtomicU64,
        wall_nanos: AtomicI64,
    }

    impl Fake {
        fn advance(&self, nanos: u64) {
            self.moment.fetch_add(nanos, Ordering::Relaxed);
            self.wall_nanos.fetch_add(nanos as i64, Ordering::Relaxed);
        }
    }

    impl Clock for Fake {
        fn moment(&self) -> Moment {
            Moment::from_nanos(self.moment.load(Ordering::Relaxed))
        }

        fn timestamp(&self) -> Timestamp {
            Timestamp(self.wall_nanos.load(Ordering::Relaxed) / NANOS_PER_MS)
        }
    }

    #[test]
    fn follows_the_wall_clock_within_a_millisecond_and_never_backwards() {
        let fake = Fake::default();
        fake.wall_nanos
            .store(1_700_000_000_000_900_000, Ordering::Relaxed);
        let wall = WallClock::new(&fake);
        let mut last = 0;
        for step in 0..10_000u64 {
            fake.advance(step * 7_919 % 300_000);
            let timestamp = wall.timestamp(&fake, fake.moment());
            let behind = fake.timestamp().0 - timestamp;
            assert!((0..=1).contains(&behind), "{behind}");
            assert!(timestamp >= last);
            last = timestamp;
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_appears_soon() {
        for step_nanos in [3_600_000_000_000, -3_600_000_000_000] {
            let fake = Fake::default();
            fake.wall_nanos
                .store(1_700_000_000_000_000_000, Ordering::Relaxed);
            let wall = WallClock::new(&fake);
            fake.wall_nanos.fetch_add(step_nanos, Ordering::Relaxed);
            fake.advance(LOOK_UP_NANOS + 1);
            let timestamp = wall.timestamp(&fake, fake.moment());
            assert_eq!(timestamp, fake.timestamp().0);
        }
    }
}
