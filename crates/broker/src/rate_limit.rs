//! Log lines that an ill-behaved peer can cause are written a few times a second, with the number left out.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct RateLimit {
    per_second: u32,
    window_began: Option<Instant>,
    passed: u32,
    suppressed: u64,
}

impl RateLimit {
    pub fn per_second(per_second: u32) -> RateLimit {
        RateLimit {
            per_second,
            window_began: None,
            passed: 0,
            suppressed: 0,
        }
    }

    /// `Some(n)`: go ahead; `n` calls were refused since the last one that passed.
    pub fn pass(&mut self) -> Option<u64> {
        self.pass_at(Instant::now())
    }

    fn pass_at(&mut self, now: Instant) -> Option<u64> {
        if self
            .window_began
            .is_none_or(|began| now.duration_since(began) >= Duration::from_secs(1))
        {
            self.window_began = Some(now);
            self.passed = 0;
        }
        if self.passed == self.per_second {
            self.suppressed += 1;
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_suppressed_lines_comes_with_the_next_one() {
        let start = Instant::now();
        let mut limit = RateLimit::per_second(2);
        assert_eq!(limit.pass_at(start), Some(0));
        assert_eq!(limit.pass_at(start), Some(0));
        assert_eq!(limit.pass_at(start), None);
        assert_eq!(limit.pass_at(start), None);
        assert_eq!(limit.pass_at(start + Duration::from_secs(1)), Some(2));
    }
}
