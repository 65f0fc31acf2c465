//! The combined effect of a producer's changes: rate, requests under way, latency, the next
//! ceiling.

use super::pipe::Pipe;
use super::producer::Work;
use crate::doctor::diagnosis::{Evidence, Promise, Verdict};
use crate::formulas::ceiling::synchronous_records_per_second;
use crate::formulas::change::{in_flight_use_after, records_per_second_after};
use crate::formulas::latency::{sender_ms_high, sender_ms_low};
use crate::model::ceilings::Ceiling;
use crate::model::constants::FULL;
use crate::model::growth::share_left;
use crate::numbers::{number, percent};

/// A latency that changes by less than this is the same.
const SAME: f64 = 0.01;

/// How the changes combine.
struct Together {
    /// U before the change.
    used: f64,
    /// The factor on the pipe's throughput: requests grow, more are under way, they are answered
    /// sooner.
    factor: f64,
    /// The factor on records in the same bytes, or from more threads.
    denser: f64,
    /// The pipe is full, and records wait for it.
    is_full: bool,
    offered: f64,
}

impl Work<'_> {
    /// F30 with all changes combined, below the next ceiling.
    pub fn conclude(&mut self) {
        self.lines_before();
        if self.verdict == Verdict::Synchronous {
            self.conclude_synchronous();
            return;
        }
        let together = self.together();
        let before = self.before;
        let ceilings = self.ceilings_after(together.denser);
        let ceiling = ceilings
            .first()
            .map_or(f64::INFINITY, |ceiling| ceiling.records_per_second);
        let high = together.rate(&before).min(ceiling.max(before.records_per_second));
        let low = self.low(high, together.factor).min(high);
        let assumption = self.assumption(&together);
        self.promise_rate(low, high, assumption);
        let used = in_flight_use_after(together.used, together.factor);
        let rate = high / together.denser;
        self.prediction.lines.push(
            Evidence::new(
                "F30",
                "U'",
                "U / g * X' / X",
                used * rate / before.records_per_second,
                "",
            )
            .measured("U", together.used, "")
            .with("g", together.factor, "", "worked out")
            .with("X'", rate, "records/s", "worked out")
            .measured("X", before.records_per_second, "records/s"),
        );
        self.prediction.next_ceiling = match ceilings.first() {
            Some(ceiling) => {
                let rate = ceiling.records_per_second.max(before.records_per_second);
                format!("{} records/s: {}", number(rate), ceiling.text)
            }
            None => String::from("not known"),
        };
        self.latency(high >= together.offered || !together.is_full);
    }

    fn lines_before(&mut self) {
        let before = self.before;
        let used = before.in_flight_use();
        self.prediction.lines.push(
            Evidence::new("F8", "U", "R / (1000 / L * M * N)", used, "")
                .measured("R", before.requests_per_second, "requests/s")
                .measured("L", before.request_ms, "ms")
                .with("M", before.in_flight_effective(), "", before.in_flight.origin)
                .measured("N", before.brokers, ""),
        );
        self.prediction.lines.push(
            Evidence::new("F9", "Z", "min(U, 1) * S / S_max", before.load(), "")
                .measured("U", used, "")
                .measured("S", before.request_bytes, "B")
                .with(
                    "S_max",
                    before.request_bytes_max(),
                    "B",
                    before.batch_bytes.origin,
                ),
        );
    }

    fn together(&mut self) -> Together {
        let before = self.before;
        self.after.request_bytes = (before.request_bytes * self.growth).min(self.after.request_bytes_max());
        let more_under_way = self.after.in_flight_effective() / before.in_flight_effective();
        let faster = before.request_ms / self.after.request_ms;
        let used = before.in_flight_use();
        Together {
            used,
            factor: self.growth * more_under_way * faster,
            denser: self.after.records_per_second / before.records_per_second,
            is_full: before.has_backlog() && used >= FULL,
            offered: before
                .offered
                .unwrap_or(f64::INFINITY)
                .max(before.records_per_second),
        }
    }

    fn promise_rate(&mut self, low: f64, high: f64, assumption: String) {
        let promise = Promise {
            figure: String::from("records_per_second"),
            now: Some(self.before.records_per_second),
            low,
            high,
            unit: String::from("records/s"),
            assumption,
            unknown: None,
        };
        self.prediction.changed.insert(0, promise);
    }

    fn assumption(&self, together: &Together) -> String {
        if together.is_full {
            let latency = match self.other_latency() {
                None => "at an unchanged latency of requests".to_owned(),
                Some(words) => format!("with {words}"),
            };
            return format!(
                "{latency}; the lower bound where all of it but the round trip grows with the request"
            );
        }
        if self.before.has_backlog() {
            return format!(
                "records wait, but only {} of the requests that may be under way are: these settings are not what they wait for",
                percent(together.used)
            );
        }
        if together.denser > 1.0 {
            return String::from("nothing else limits it; nine tenths of what is added comes through");
        }
        String::from("there is no backlog: the application sends no more than now")
    }

    /// F28: threads that wait for each answer do not fill a pipe; latency alone sets their rate.
    fn conclude_synchronous(&mut self) {
        let (before, after) = (self.before, self.after);
        let outstanding = before.records_per_second * (before.linger_ms.value + before.request_ms) / 1_000.0;
        let threads = before.threads.unwrap_or(outstanding);
        let more = match (before.threads, after.threads) {
            (Some(now), Some(then)) => then / now,
            _ => 1.0,
        };
        let rate =
            |pipe: &Pipe| synchronous_records_per_second(threads, pipe.linger_ms.value, pipe.request_ms);
        // Measurements may differ a little from the formula; the promise uses the formula's ratio.
        let then = before.records_per_second * rate(&after) / rate(&before) * more;
        let line = |name: &'static str, pipe: &Pipe, threads: f64| {
            let rate = synchronous_records_per_second(threads, pipe.linger_ms.value, pipe.request_ms);
            Evidence::new("F28", name, "T * 1000 / (linger + L)", rate, "records/s")
                .with(
                    "T",
                    threads,
                    "",
                    if before.threads.is_some() {
                        "stated"
                    } else {
                        "inferred"
                    },
                )
                .with("linger", pipe.linger_ms.value, "ms", pipe.linger_ms.origin)
                .measured("L", pipe.request_ms, "ms")
        };
        self.prediction.lines.push(line("X_r", &before, threads));
        self.prediction.lines.push(line("X_r'", &after, threads * more));
        self.promise_rate(
            then,
            then,
            String::from("every thread waits for each answer, as now; request latency stays"),
        );
        self.prediction.next_ceiling = String::from("waiting itself: with callbacks requests fill the pipe");
        if then <= before.records_per_second && self.prediction.unchanged.is_empty() {
            self.prediction.notes.push(String::from(
                "threads that wait for each answer send one record at a time: sizes and numbers of requests are not what they wait for",
            ));
        }
    }

    fn ceilings_after(&self, denser: f64) -> Vec<Ceiling> {
        // A record's size on the wire stays as measured, except for compression.
        let mut after = self.after;
        after.records_per_second = self.before.records_per_second * denser;
        after.requests_per_second = self.before.requests_per_second;
        after.request_bytes = self.before.request_bytes;
        // A ceiling that the current rate already exceeds, by more than readings vary, is none: an
        // assumed setting was wrong.
        let now = 0.9 * self.before.records_per_second;
        let before = self.before.ceilings();
        let exceeded: Vec<String> = before
            .into_iter()
            .filter(|ceiling| ceiling.records_per_second < now)
            .map(|ceiling| ceiling.text)
            .collect();
        let mut ceilings = after.ceilings();
        ceilings.retain(|ceiling| !exceeded.contains(&ceiling.text));
        ceilings
    }

    /// The gain that remains when everything except the round trip grows with the request.
    fn low(&self, high: f64, factor: f64) -> f64 {
        let before = &self.before;
        if factor <= 1.0 {
            return high;
        }
        let fixed_ms = before.round_trip_ms.unwrap_or(0.0);
        let share = share_left(self.growth, before.request_ms, fixed_ms);
        (high * share).max(before.records_per_second.min(high))
    }

    /// How long requests take after the change, where that is not as long as before.
    fn other_latency(&self) -> Option<String> {
        let (before_ms, after_ms) = (self.before.request_ms, self.after.request_ms);
        let is_other = (after_ms / before_ms - 1.0).abs() >= SAME;
        is_other.then(|| {
            format!(
                "requests of {} ms in place of {} ms",
                number(after_ms),
                number(before_ms)
            )
        })
    }

    /// q' is the linger where nothing queues any more (F30).
    fn latency(&mut self, is_relieved: bool) {
        let Some(queue) = self.before.queue_ms else {
            return;
        };
        let (before, after) = (self.before, self.after);
        let (low, high) = (
            sender_ms_low(after.linger_ms.value, after.request_ms),
            sender_ms_high(after.linger_ms.value, after.request_ms),
        );
        if !before.has_backlog() {
            if before.linger_ms.value != after.linger_ms.value {
                self.promise_latency(sender_ms_low(queue, before.request_ms), low, high);
            }
        } else if is_relieved {
            let now = sender_ms_high(queue, before.request_ms);
            self.promise_latency(now, low, high.min(now));
        } else {
            self.prediction.notes.push(String::from(
                "the queue stays: records wait as long as buffer.memory lets them, while more is offered than goes out",
            ));
        }
    }

    fn promise_latency(&mut self, now: f64, low: f64, high: f64) {
        self.prediction.changed.push(Promise {
            figure: String::from("sender_latency_ms"),
            now: Some(now),
            low: low.min(high),
            high: high.max(low),
            unit: String::from("ms"),
            assumption: match self.other_latency() {
                None => String::from("batches wait for linger.ms at most (F5), request latency stays"),
                Some(words) => format!("batches wait for linger.ms at most (F5), {words}"),
            },
            unknown: None,
        });
    }
}

impl Together {
    fn rate(&self, before: &Pipe) -> f64 {
        let now = before.records_per_second * self.denser;
        if self.is_full && self.factor > 1.0 {
            records_per_second_after(self.offered, now, self.factor, self.used)
        } else if self.is_full {
            self.offered.min(now * self.factor)
        } else {
            self.offered.min(now)
        }
    }
}
