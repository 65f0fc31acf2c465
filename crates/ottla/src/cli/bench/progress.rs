//! The progress bar of a run: point, rate, time left. It is shown only on a terminal.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ottla_lab::bench::run::Progress;
use ottla_lab::load::{Course, Live};
use ottla_lab::numbers::{count, number};

use crate::cli::doctor::text::clean;

/// Drawn on standard error, so that standard output is the report alone.
pub struct Bar {
    bar: ProgressBar,
    state: Mutex<State>,
}

/// The values of the next line.
#[derive(Debug, Default)]
struct State {
    point: String,
    target: String,
    /// From 1.
    number: usize,
    of: usize,
    first_begin: Option<Instant>,
    /// The last sample of the running measurement: its time and number of records.
    last: Option<(Instant, u64)>,
    records_per_second: f64,
}

/// Length of the bar: thousandths of the whole run.
const LENGTH: u64 = 1_000;

impl Bar {
    pub fn new() -> Bar {
        // Hidden where standard error is no terminal.
        let bar = ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %\n{msg}");
        bar.set_style(style.expect("the template is a constant"));
        Bar {
            bar,
            state: Mutex::default(),
        }
    }

    pub fn show(&self, progress: &Progress<'_>) {
        if self.bar.is_hidden() {
            return;
        }
        let mut state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        match progress {
            Progress::Calibrating => self.bar.set_message("calibrating: the generator's own capacity"),
            Progress::Begins {
                point,
                target,
                number,
                of,
            } => state.begin(point, target, (*number, *of), now),
            Progress::Ticks { course, live } => {
                self.bar
                    .set_position((state.share(course, now) * LENGTH as f64) as u64);
                let text = state.tick(course, live, now);
                self.bar.set_message(text);
            }
            Progress::Ended { verdict } if !verdict.is_valid() => {
                let reason = verdict.reasons.first().map_or("", String::as_str);
                self.bar
                    .println(format!("{}: INVALID: {}", state.point, clean(reason)));
            }
            Progress::Ended { .. } => {}
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl State {
    /// Begins the next measurement.
    ///
    /// - `place`: its number and the total.
    fn begin(&mut self, point: &str, target: &str, place: (usize, usize), now: Instant) {
        self.point = clean(point);
        self.target = clean(target);
        (self.number, self.of) = place;
        self.first_begin.get_or_insert(now);
        self.last = None;
        self.records_per_second = 0.0;
    }

    fn tick(&mut self, course: &Course, live: &Live, now: Instant) -> String {
        let done = live
            .acknowledged
            .load(Ordering::Relaxed)
            .max(live.received.load(Ordering::Relaxed));
        match self.last {
            Some((at, before)) => {
                let seconds = now.saturating_duration_since(at).as_secs_f64();
                // The number changes once a second: faster changes cannot be read.
                if seconds >= 1.0 {
                    self.records_per_second = done.saturating_sub(before) as f64 / seconds;
                    self.last = Some((now, done));
                }
            }
            None => self.last = Some((now, done)),
        }
        let mut text = format!("{} of {}  {}, {}", self.number, self.of, self.point, self.target);
        if now < course.begin + course.warmup {
            text.push_str(", warm-up");
        }
        if self.records_per_second > 0.0 {
            let _ = write!(text, ", {} records/s", number(self.records_per_second));
        }
        let failed = live.failed.load(Ordering::Relaxed);
        if failed > 0 {
            let _ = write!(text, ", {} failed", count(failed));
        }
        let _ = write!(text, ", {} left", clock(self.left(course, now)));
        text
    }

    /// Progress of the running measurement, 0 to 1.
    fn share_of_one(course: &Course, now: Instant) -> f64 {
        let length = (course.warmup + course.duration)
            .as_secs_f64()
            .max(f64::MIN_POSITIVE);
        (now.saturating_duration_since(course.begin).as_secs_f64() / length).min(1.0)
    }

    /// Progress of the whole run, 0 to 1.
    fn share(&self, course: &Course, now: Instant) -> f64 {
        let before = self.number.saturating_sub(1) as f64;
        (before + State::share_of_one(course, now)) / self.of.max(1) as f64
    }

    /// Estimates the time left from the mean of past measurements, including set-up and tear-down;
    /// during the first one from its planned duration.
    fn left(&self, course: &Course, now: Instant) -> Duration {
        let course_seconds = (course.warmup + course.duration).as_secs_f64();
        let passed = self
            .first_begin
            .map_or(0.0, |first| now.saturating_duration_since(first).as_secs_f64());
        let share = State::share_of_one(course, now);
        let before = self.number.saturating_sub(1) as f64;
        let each = match before > 0.0 {
            true => (passed / (before + share)).max(course_seconds),
            false => course_seconds,
        };
        let left = (self.of as f64 - before - share).max(0.0) * each;
        Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)
    }
}

/// `0:07`, `12:30`, `1:02:03`
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn course(begin: Instant) -> Course {
        Course {
            begin,
            warmup: Duration::from_secs(10),
            duration: Duration::from_secs(50),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    #[test]
    fn the_time_left_is_that_of_all_measurements() {
        let begin = Instant::now();
        let mut state = State::default();
        state.begin("p", "t", (1, 3), begin);
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(clock(state.left(&course(begin), at(30))), "2:30");
        assert_eq!(state.share(&course(begin), at(30)), 0.5 / 3.0);
        // The first took 90 seconds including set-up; the same is expected of the others.
        state.begin("p", "t", (2, 3), at(90));
        assert_eq!(clock(state.left(&course(at(90)), at(90))), "3:00");
        state.begin("p", "t", (3, 3), at(180));
        assert_eq!(clock(state.left(&course(at(180)), at(240))), "0:00");
    }

    #[test]
    fn a_line_shows_position_and_rate() {
        let begin = Instant::now();
        let mut state = State::default();
        state.begin("linger.ms=5\x1b[2J", "Kafka", (2, 6), begin);
        let live = Live::default();
        let line = state.tick(&course(begin), &live, begin);
        assert!(
            line.starts_with("2 of 6  linger.ms=5\\u{1b}[2J, Kafka, warm-up"),
            "{line}"
        );
        live.acknowledged.store(4_000, Ordering::Relaxed);
        live.failed.store(3, Ordering::Relaxed);
        let line = state.tick(&course(begin), &live, begin + Duration::from_secs(20));
        assert!(
            line.contains("200 records/s, 3 failed") && !line.contains("warm-up"),
            "{line}"
        );
    }

    #[test]
    fn a_measurement_without_duration_has_a_line_too() {
        let now = Instant::now();
        let empty = Course {
            warmup: Duration::ZERO,
            duration: Duration::ZERO,
            ..course(now)
        };
        let mut state = State::default();
        assert!(state.tick(&empty, &Live::default(), now).contains("0:00 left"));
    }
}
