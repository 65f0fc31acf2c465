//! A group's results second by second, combined from threads that each keep only their current
//! second.

use std::sync::Mutex;

use super::clock::Span;
use super::lock;
use super::outcome::LoadSecond;
use crate::report::histogram::Latencies;

/// Later seconds have no entry: at 14 KB each an hour takes 50 MB.
const SECONDS_MAX: u64 = 3_600;

/// The measured part of a group.
#[derive(Debug)]
pub struct Timeline {
    span: Span,
    seconds: Mutex<Vec<LoadSecond>>,
}

impl Timeline {
    pub fn new(span: Span) -> Timeline {
        Timeline {
            span,
            seconds: Mutex::default(),
        }
    }

    /// The index of the second within the measured part; `None` before and after it.
    fn second_of(&self, nanos: u64) -> Option<u64> {
        let second = nanos.checked_sub(self.span.measured_nanos)? / 1_000_000_000;
        (nanos < self.span.end_nanos && second < SECONDS_MAX).then_some(second)
    }

    fn add(&self, second: u64, part: &LoadSecond) {
        let mut seconds = lock(&self.seconds);
        let index = second as usize;
        while seconds.len() <= index {
            seconds.push(empty());
        }
        let whole = &mut seconds[index];
        whole.sent += part.sent;
        whole.done += part.done;
        whole.latency.add(&part.latency);
    }

    pub fn take(&self) -> Vec<LoadSecond> {
        std::mem::take(&mut *lock(&self.seconds))
    }
}

fn empty() -> LoadSecond {
    LoadSecond {
        latency: Latencies::coarse(),
        ..LoadSecond::default()
    }
}

/// What one thread has counted in its current second.
#[derive(Debug)]
pub struct Current {
    second: Option<u64>,
    part: LoadSecond,
}

impl Default for Current {
    fn default() -> Current {
        Current {
            second: None,
            part: empty(),
        }
    }
}

impl Current {
    #[inline]
    pub fn sent(&mut self, timeline: &Timeline, nanos: u64) {
        if self.enter(timeline, nanos) {
            self.part.sent += 1;
        }
    }

    /// - `latency_micros`: `None` if there was no due time.
    #[inline]
    pub fn done(&mut self, timeline: &Timeline, nanos: u64, latency_micros: Option<u64>) {
        if self.enter(timeline, nanos) {
            self.part.done += 1;
            if let Some(micros) = latency_micros {
                self.part.latency.record(micros);
            }
        }
    }

    #[inline]
    fn enter(&mut self, timeline: &Timeline, nanos: u64) -> bool {
        let second = timeline.second_of(nanos);
        if second != self.second {
            self.leave(timeline);
            self.second = second;
        }
        second.is_some()
    }

    /// Hands over what was counted; at the end, and when a second is over.
    pub fn leave(&mut self, timeline: &Timeline) {
        if let Some(second) = self.second.take() {
            timeline.add(second, &self.part);
            self.part = empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn threads_add_up_and_the_warm_up_stays_out() {
        let timeline = Timeline::new(Span {
            begin_nanos: 0,
            measured_nanos: 10 * SECOND,
            end_nanos: 13 * SECOND,
        });
        let (mut one, mut other) = (Current::default(), Current::default());
        one.sent(&timeline, 9 * SECOND);
        one.sent(&timeline, 10 * SECOND);
        one.done(&timeline, 12 * SECOND, Some(500));
        other.done(&timeline, 12 * SECOND + 1, Some(700));
        other.done(&timeline, 13 * SECOND, Some(900));
        one.leave(&timeline);
        other.leave(&timeline);
        let seconds = timeline.take();
        let counts: Vec<(u64, u64)> = seconds.iter().map(|second| (second.sent, second.done)).collect();
        assert_eq!(counts, [(1, 0), (0, 0), (0, 2)]);
        assert_eq!(seconds[2].latency.count(), 2);
    }
}
