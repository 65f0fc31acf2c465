//! When records are due: an open loop, independent of answers and stalls.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::Timespec;

use super::clock::now_nanos;

/// The shortest sleep. At 200,000 records/s a dozen records become due within it: a thread that
/// spun instead would use a whole processor, one that slept for each record would be late with most
/// of them.
const NAP_NANOS: u64 = 60_000;

/// The interval at which a sleeping thread checks whether it should stop.
const LOOK_NANOS: u64 = 50_000_000;

/// The due times of one of several threads that share a rate: record `index` of the thread is
/// record `first + index * step` of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    begin_nanos: u64,
    /// The interval between records of all threads together.
    interval_nanos: f64,
    first: u64,
    step: u64,
}

impl Schedule {
    /// - Shape: `thread < threads`; `rate` in records per second of all threads together, above 0.
    pub fn new(begin_nanos: u64, rate: f64, thread: u64, threads: u64) -> Schedule {
        assert!(rate > 0.0 && thread < threads, "a share of a rate");
        Schedule {
            begin_nanos,
            interval_nanos: 1e9 / rate,
            first: thread,
            step: threads,
        }
    }

    /// Counted from the beginning, not from the previous record: no error accumulates over a long
    /// run.
    pub fn due_nanos(&self, index: u64) -> u64 {
        let place = self.first + index * self.step;
        self.begin_nanos
            .saturating_add((place as f64 * self.interval_nanos) as u64)
    }
}

/// Makes timers of this thread expire when they are due, not up to 50 µs later, where the system
/// allows it.
pub fn be_punctual() {
    // Where it is refused, the schedule error shows the effect.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
}

/// Sleeps until `due_nanos`, at least for the shortest sleep, and returns the time; returns at once
/// if that time has passed. Ends early when `stop` is set.
pub fn wait_until(due_nanos: u64, mut now: u64, stop: &AtomicBool) -> u64 {
    if due_nanos <= now {
        return now;
    }
    let wake_at = due_nanos.max(now.saturating_add(NAP_NANOS));
    while now < wake_at && !stop.load(Ordering::Relaxed) {
        sleep_until(wake_at.min(now.saturating_add(LOOK_NANOS)));
        now = now_nanos();
    }
    now
}

fn sleep_until(nanos: u64) {
    let request = Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    };
    // Interrupted by a signal it returns early, and the caller checks the clock.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &request);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_rate_evenly() {
        let all: Vec<u64> = {
            let mut due: Vec<u64> = (0..4)
                .flat_map(|thread| {
                    let schedule = Schedule::new(1_000, 1_000_000.0, thread, 4);
                    (0..100).map(move |index| schedule.due_nanos(index))
                })
                .collect();
            due.sort_unstable();
            due
        };
        let expected: Vec<u64> = (0..400).map(|place| 1_000 + place * 1_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_long_run_does_not_drift() {
        // A third of a second is not a whole number of nanoseconds.
        let schedule = Schedule::new(0, 3.0, 0, 1);
        assert_eq!(schedule.due_nanos(3 * 1_000_000), 1_000_000 * 1_000_000_000);
    }

    #[test]
    fn waiting_ends_not_before_the_time() {
        let stop = AtomicBool::new(false);
        for ahead in [0, 1_000, 300_000, 3_000_000] {
            let now = now_nanos();
            assert!(wait_until(now + ahead, now, &stop) >= now + ahead);
        }
    }

    #[test]
    fn overdue_records_are_not_waited_for() {
        assert_eq!(wait_until(5, 9, &AtomicBool::new(false)), 9);
    }

    #[test]
    fn a_stop_ends_the_waiting() {
        let now = now_nanos();
        let due = now + 3_600_000_000_000;
        assert!(wait_until(due, now, &AtomicBool::new(true)) < due);
    }
}
