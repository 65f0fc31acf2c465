//! When a group's requests are due: at once, evenly, or all requests of an interval at its start.

use std::time::Duration;

use crate::load::clock::as_nanos;
use crate::load::schedule::Schedule;

/// Only a position: a group that falls behind by any number of requests stores nothing for them.
#[derive(Debug)]
pub(super) struct Pace {
    begin_nanos: u64,
    schedule: Option<Schedule>,
    burst_nanos: u64,
    /// The index of the next request.
    index: u64,
}

impl Pace {
    pub fn new(begin_nanos: u64, rate: Option<f64>, burst_every: Duration) -> Pace {
        Pace {
            begin_nanos,
            schedule: rate.map(|rate| Schedule::new(begin_nanos, rate, 0, 1)),
            burst_nanos: as_nanos(burst_every),
            index: 0,
        }
    }

    /// The due time of the next request; `None`: as soon as a connection can send it.
    pub fn due_nanos(&self) -> Option<u64> {
        let even = self.schedule?.due_nanos(self.index);
        let Some(bursts) = (even - self.begin_nanos).checked_div(self.burst_nanos) else {
            return Some(even);
        };
        Some(self.begin_nanos + bursts * self.burst_nanos)
    }

    pub fn advance(&mut self) {
        self.index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(rate: Option<f64>, burst_ms: u64, count: usize) -> Vec<Option<u64>> {
        let mut pace = Pace::new(1_000, rate, Duration::from_millis(burst_ms));
        let next = || {
            let due = pace.due_nanos();
            pace.advance();
            due
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn requests_are_due_evenly_or_in_bursts_of_the_same_rate() {
        let at = |millis: u64| Some(1_000 + millis * 1_000_000);
        assert_eq!(first(Some(4.0), 0, 3), [at(0), at(250), at(500)]);
        assert_eq!(
            first(Some(4.0), 1_000, 6),
            [at(0), at(0), at(0), at(0), at(1_000), at(1_000)]
        );
    }

    #[test]
    fn without_a_rate_requests_are_due_at_once() {
        assert_eq!(first(None, 0, 2), [None, None]);
    }
}
