//! Rate limit for log lines: a few per second pass, and the next line that passes carries the
//! number of suppressed ones.

use std::sync::{Mutex, PoisonError};

use crate::time::Moment;

const SECOND_MICROS: u64 = 1_000_000;

#[derive(Debug)]
pub struct RateLimit {
    per_second: u32,
    state: Mutex<LimitState>,
}

#[derive(Debug, Default)]
struct LimitState {
    window_began: Option<Moment>,
    passed: u32,
    suppressed: u64,
}

impl RateLimit {
    pub fn per_second(per_second: u32) -> RateLimit {
        RateLimit {
            per_second,
            state: Mutex::default(),
        }
    }

    /// `Some(n)`: log it; `n` calls were suppressed since the last one that passed.
    pub fn pass(&self, now: Moment) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began: Moment| now.micros_since(began) >= SECOND_MICROS;
        if state.window_began.is_none_or(is_over) {
            state.window_began = Some(now);
            state.passed = 0;
        }
        if state.passed == self.per_second {
            state.suppressed += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_suppressed_lines_comes_with_the_next_one() {
        let start = Moment::from_micros(5);
        let limit = RateLimit::per_second(2);
        assert_eq!(limit.pass(start), Some(0));
        assert_eq!(limit.pass(start), Some(0));
        assert_eq!(limit.pass(start), None);
        assert_eq!(limit.pass(start), None);
        assert_eq!(
            limit.pass(Moment::from_micros(start.micros() + SECOND_MICROS)),
            Some(2)
        );
    }
}
