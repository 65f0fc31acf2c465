//! One clock for everything that is measured; processes of this machine share it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::Course;

/// The time of CLOCK_MONOTONIC, which all processes of a machine share.
pub fn now_nanos() -> u64 {
    nanos(ClockId::Monotonic)
}

/// Processor time that the calling thread has used.
pub fn thread_cpu_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

pub fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One instant by both clocks: the standard library does not expose an `Instant`'s number. Read
/// once, so that a course begins at the same nanosecond for all participants; the closest of
/// several readings, because a thread may be preempted between the two.
static ANCHOR: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let readings = (0..16).map(|_| {
        let (before, instant, after) = (now_nanos(), Instant::now(), now_nanos());
        (after - before, (instant, before + (after - before) / 2))
    });
    let closest = readings.min_by_key(|(apart, _)| *apart);
    closest.expect("sixteen readings have a closest").1
});

/// A course in nanoseconds of this clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub begin_nanos: u64,
    /// The start of the measured part.
    pub measured_nanos: u64,
    pub end_nanos: u64,
}

impl Span {
    pub fn of(course: &Course) -> Span {
        let (instant, now) = *ANCHOR;
        let begin_nanos = now
            .saturating_add(as_nanos(course.begin.saturating_duration_since(instant)))
            .saturating_sub(as_nanos(instant.saturating_duration_since(course.begin)));
        let measured_nanos = begin_nanos.saturating_add(as_nanos(course.warmup));
        Span {
            begin_nanos,
            measured_nanos,
            end_nanos: measured_nanos.saturating_add(as_nanos(course.duration)),
        }
    }

    pub fn is_measured(&self, nanos: u64) -> bool {
        (self.measured_nanos..self.end_nanos).contains(&nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_begins_at_the_same_nanosecond_for_all_participants() {
        let course = Course {
            begin: Instant::now() + Duration::from_millis(5),
            warmup: Duration::ZERO,
            duration: Duration::from_secs(1),
            stop: Arc::default(),
        };
        let first = Span::of(&course);
        assert!((0..1_000).all(|_| Span::of(&course) == first));
    }
    use std::sync::Arc;

    #[test]
    fn a_course_has_its_times_on_the_clock() {
        let begin = Instant::now();
        let before = now_nanos();
        let course = Course {
            begin: begin + Duration::from_secs(100),
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(3),
            stop: Arc::default(),
        };
        let span = Span::of(&course);
        assert!(span.begin_nanos >= before + 99_000_000_000);
        assert_eq!(span.measured_nanos - span.begin_nanos, 2_000_000_000);
        assert_eq!(span.end_nanos - span.measured_nanos, 3_000_000_000);
        assert!(!span.is_measured(span.begin_nanos));
        assert!(span.is_measured(span.measured_nanos));
        assert!(!span.is_measured(span.end_nanos));
    }

    #[test]
    fn a_thread_that_works_uses_processor_time() {
        let before = thread_cpu_nanos();
        let until = now_nanos() + 2_000_000;
        while now_nanos() < until {}
        assert!(thread_cpu_nanos() > before);
    }
}
