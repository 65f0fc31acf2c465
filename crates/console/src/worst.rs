//! The slowest requests of each minute of the last hour.

use std::collections::BTreeMap;

use crate::source::SlowRequest;
use crate::stage::own_micros;

/// Minutes that are kept.
const MINUTES_MAX: i64 = 60;

/// Requests of one minute, the slowest.
pub const PER_MINUTE_MAX: usize = 10;

const MINUTE_MS: i64 = 60_000;

/// Two readings of one request: each has its time from the clock of its own moment.
const SAME_MS_MAX: u64 = 5;

/// Requests by the minute in which they were over, slowest first.
#[derive(Clone, Debug, Default)]
pub struct Worst(BTreeMap<i64, Vec<SlowRequest>>);

/// What an hour takes: names are those that the broker holds.
#[cfg(test)]
pub const BYTES: usize = MINUTES_MAX as usize * PER_MINUTE_MAX * size_of::<SlowRequest>();

impl Worst {
    /// Adds what a source tells of the last minute; what was told before is not counted again.
    pub fn add(&mut self, requests: Vec<SlowRequest>, now_ms: i64) {
        for request in requests {
            let minute = request.finished_at_ms.div_euclid(MINUTE_MS);
            let known = [minute - 1, minute, minute + 1];
            let known = known.iter().filter_map(|minute| self.0.get(minute)).flatten();
            if known.into_iter().any(|known| is_same(known, &request)) {
                continue;
            }
            let kept = self.0.entry(minute).or_default();
            let own = |request: &SlowRequest| own_micros(&request.stage_micros);
            let at = kept.partition_point(|known| own(known) >= own(&request));
            if at < PER_MINUTE_MAX {
                kept.insert(at, request);
                kept.truncate(PER_MINUTE_MAX);
            }
        }
        // A clock that jumped leaves minutes of a future that may be far away.
        let now = now_ms.div_euclid(MINUTE_MS);
        let is_recent = |minute: &i64| now.abs_diff(*minute) < MINUTES_MAX.unsigned_abs();
        self.0.retain(|minute, _| is_recent(minute));
        while self.0.len() > MINUTES_MAX as usize {
            self.0.pop_first();
        }
    }

    /// All of them, slowest first.
    pub fn requests(&self) -> Vec<SlowRequest> {
        let mut all: Vec<SlowRequest> = self.0.values().flatten().cloned().collect();
        all.sort_by_key(|request| std::cmp::Reverse(own_micros(&request.stage_micros)));
        all
    }
}

fn is_same(one: &SlowRequest, other: &SlowRequest) -> bool {
    one.finished_at_ms.abs_diff(other.finished_at_ms) <= SAME_MS_MAX
        && one.api == other.api
        && one.stage_micros == other.stage_micros
        && one.request_bytes == other.request_bytes
        && one.client_id == other.client_id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{STAGE_COUNT, Stage};

    fn request(finished_at_ms: i64, micros: u64) -> SlowRequest {
        let mut stage_micros = [0; STAGE_COUNT];
        stage_micros[Stage::Synced as usize] = micros;
        SlowRequest {
            api: "Produce",
            finished_at_ms,
            stage_micros,
            ..SlowRequest::default()
        }
    }

    fn micros(worst: &Worst) -> Vec<u64> {
        let of = |request: &SlowRequest| own_micros(&request.stage_micros);
        worst.requests().iter().map(of).collect()
    }

    #[test]
    fn a_request_that_is_told_twelve_times_is_kept_once() {
        let mut worst = Worst::default();
        for tick in 0..12 {
            worst.add(vec![request(60_000 - tick % 3, 7), request(60_020, 7)], 60_000);
        }
        assert_eq!(micros(&worst), [7, 7]);
    }

    #[test]
    fn ten_of_each_minute_of_an_hour_are_kept() {
        let mut worst = Worst::default();
        for minute in 0..200_i64 {
            let all = (0..30).map(|number| request(minute * MINUTE_MS + number * 100, number as u64 + 1));
            worst.add(all.collect(), minute * MINUTE_MS + 59_999);
        }
        assert_eq!(worst.0.len(), 60);
        assert!(worst.0.values().all(|kept| kept.len() == PER_MINUTE_MAX));
        assert_eq!(micros(&worst)[..61], [[30; 60].as_slice(), &[29]].concat());
        assert_eq!(micros(&worst).last(), Some(&21));
    }

    #[test]
    fn a_clock_that_jumps_loses_the_past_and_goes_on() {
        let mut worst = Worst::default();
        let day = 1_440 * MINUTE_MS;
        worst.add(vec![request(10 * day, 1)], 10 * day);
        worst.add(vec![request(9 * day, 2)], 9 * day);
        assert_eq!(micros(&worst), [2]);
        worst.add(vec![request(11 * day, 3)], 11 * day);
        assert_eq!(micros(&worst), [3]);
    }
}
