//! A rate limiter without a timer: one number, the moment up to which all use is paid for.
//!
//! Taking tokens advances that moment by their cost at the rate. A moment in the future is a debt,
//! and the client waits until it has come; a moment in the past is credit, capped at one burst. So
//! over any time longer than the burst the rate holds to the token, however large a single request,
//! and no background work is needed. This is the generic cell rate algorithm, the mirror image of
//! the token bucket.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::time::Moment;

/// A debt stops growing at the longest throttle time that can be sent (milliseconds in an i32, 24
/// days).
const DEBT_NANOS_MAX: i64 = i32::MAX as i64 * 1_000_000;

/// Tokens at a rate, shared by all threads without a lock.
#[derive(Debug)]
pub struct TokenBucket {
    paid_until_nanos: AtomicI64,
    /// Whole nanoseconds are booked: at a million requests a second the error of the rate is at
    /// most a thousandth.
    nanos_per_token: f64,
    burst_nanos: i64,
}

impl TokenBucket {
    /// Creates a full bucket.
    ///
    /// - `tokens_per_second`: above 0.
    /// - `burst`: unused tokens are kept for this long.
    pub fn new(tokens_per_second: f64, burst: Duration, now: Moment) -> TokenBucket {
        assert!(tokens_per_second > 0.0, "a quota is above 0");
        let burst_nanos = i64::try_from(burst.as_nanos())
            .unwrap_or(DEBT_NANOS_MAX)
            .min(DEBT_NANOS_MAX);
        TokenBucket {
            paid_until_nanos: AtomicI64::new(nanos(now).saturating_sub(burst_nanos)),
            nanos_per_token: 1e9 / tokens_per_second,
            burst_nanos,
        }
    }

    /// Takes `tokens`, even if not available; returns the resulting debt in microseconds.
    pub fn take(&self, tokens: f64, now: Moment) -> u64 {
        self.update(now, |paid_until| paid_until.saturating_add(self.cost(tokens)))
    }

    /// Takes the available part of `tokens`, as if the rest had been refused; returns the debt that
    /// all of them would have made.
    pub fn take_available(&self, tokens: f64, now: Moment) -> u64 {
        let now_nanos = nanos(now);
        let mut debt = 0;
        self.update(now, |paid_until| {
            let wanted = paid_until.saturating_add(self.cost(tokens));
            debt = wanted.saturating_sub(now_nanos).clamp(0, DEBT_NANOS_MAX);
            wanted.min(now_nanos.max(paid_until))
        });
        micros(debt)
    }

    /// Takes `tokens` if available; otherwise takes nothing, and the error is the microseconds
    /// until they are.
    pub fn try_take(&self, tokens: f64, now: Moment) -> Result<(), u64> {
        let now_nanos = nanos(now);
        let mut lacking = 0;
        self.update(now, |paid_until| {
            let wanted = paid_until.saturating_add(self.cost(tokens));
            lacking = wanted.saturating_sub(now_nanos).clamp(0, DEBT_NANOS_MAX);
            if lacking > 0 { paid_until } else { wanted }
        });
        match micros(lacking) {
            0 => Ok(()),
            lacking_micros => Err(lacking_micros),
        }
    }

    /// Returns the microseconds until everything taken is paid for; 0 without debt.
    pub fn debt_micros(&self, now: Moment) -> u64 {
        micros(
            self.paid_until_nanos
                .load(Ordering::Relaxed)
                .saturating_sub(nanos(now)),
        )
    }

    /// Whether it is full, so that dropping it changes nothing.
    pub fn is_full(&self, now: Moment) -> bool {
        self.paid_until_nanos.load(Ordering::Relaxed) <= nanos(now).saturating_sub(self.burst_nanos)
    }

    fn cost(&self, tokens: f64) -> i64 {
        (tokens * self.nanos_per_token) as i64
    }

    fn update(&self, now: Moment, mut next: impl FnMut(i64) -> i64) -> u64 {
        let now = nanos(now);
        let oldest = now.saturating_sub(self.burst_nanos);
        let mut paid_until = self.paid_until_nanos.load(Ordering::Relaxed);
        loop {
            let new = next(paid_until.max(oldest)).min(now.saturating_add(DEBT_NANOS_MAX).max(paid_until));
            let exchanged = self.paid_until_nanos.compare_exchange_weak(
                paid_until,
                new,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return micros(new.saturating_sub(now)),
                Err(other) => paid_until = other,
            }
        }
    }
}

fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.nanos()).unwrap_or(i64::MAX)
}

/// Rounds up to microseconds.
fn micros(nanos: i64) -> u64 {
    u64::try_from(nanos).unwrap_or(0).div_ceil(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn bucket(tokens_per_second: f64) -> TokenBucket {
        TokenBucket::new(tokens_per_second, Duration::from_secs(1), Moment::from_micros(0))
    }

    #[test]
    fn a_burst_of_one_second_is_free_and_the_rest_is_paid_at_the_rate() {
        let bucket = bucket(1_000.0);
        assert_eq!(bucket.take(1_000.0, Moment::from_micros(0)), 0);
        assert_eq!(bucket.take(500.0, Moment::from_micros(0)), SECOND / 2);
        assert_eq!(bucket.take(500.0, Moment::from_micros(0)), SECOND);
        assert_eq!(
            bucket.debt_micros(Moment::from_micros(SECOND / 4)),
            3 * SECOND / 4
        );
        assert_eq!(bucket.debt_micros(Moment::from_micros(SECOND)), 0);
    }

    #[test]
    fn waiting_out_each_debt_gives_the_rate_to_the_token() {
        for (rate, request) in [
            (1_000.0, 1.0),
            (1e6, 16_384.0),
            (1e9, 100.0),
            (3.0, 1_000.0),
            (0.01, 1.0),
        ] {
            let bucket = bucket(rate);
            let (mut now, mut taken) = (Moment::from_micros(0), 0.0);
            bucket.take(rate, now);
            for _ in 0..100_000 {
                taken += request;
                // As a connection, which cannot be told less than a millisecond.
                let debt_micros = bucket.take(request, now);
                now = Moment::from_micros(now.micros() + if debt_micros < 1_000 { 0 } else { debt_micros });
            }
            let seconds = (now.micros() + bucket.debt_micros(now)) as f64 / 1e6;
            assert!(
                (taken / seconds / rate - 1.0).abs() < 0.001,
                "{rate}: {}",
                taken / seconds
            );
        }
    }

    #[test]
    fn credit_does_not_grow_beyond_the_burst() {
        let bucket = bucket(10.0);
        assert!(bucket.is_full(Moment::from_micros(0)));
        bucket.take(10.0, Moment::from_micros(0));
        assert!(
            !bucket.is_full(Moment::from_micros(SECOND / 2)) && bucket.is_full(Moment::from_micros(SECOND))
        );
        assert_eq!(bucket.take(20.0, Moment::from_micros(3_600 * SECOND)), SECOND);
    }

    #[test]
    fn a_clock_that_goes_back_changes_no_balance() {
        let bucket = bucket(10.0);
        bucket.take(10.0, Moment::from_micros(100 * SECOND));
        assert_eq!(bucket.take(0.0, Moment::from_micros(40 * SECOND)), 60 * SECOND);
        assert_eq!(bucket.take(10.0, Moment::from_micros(100 * SECOND)), SECOND);
    }

    #[test]
    fn absurd_rates_and_amounts_neither_wrap_nor_end() {
        for rate in [f64::MIN_POSITIVE, 1e-300, 1.0, 1e300, f64::MAX] {
            let bucket = bucket(rate);
            for tokens in [0.0, 1.0, 1e18, f64::MAX] {
                let debt = bucket.take(tokens, Moment::from_micros(5 * SECOND));
                assert!(debt <= DEBT_NANOS_MAX as u64 / 1_000, "{rate} {tokens} {debt}");
            }
        }
    }

    #[test]
    fn refused_tokens_are_not_booked() {
        let bucket = bucket(2.0);
        assert_eq!(bucket.try_take(1.0, Moment::from_micros(0)), Ok(()));
        assert_eq!(bucket.try_take(1.0, Moment::from_micros(0)), Ok(()));
        assert_eq!(bucket.try_take(1.0, Moment::from_micros(0)), Err(SECOND / 2));
        assert_eq!(
            bucket.try_take(1.0, Moment::from_micros(SECOND / 4)),
            Err(SECOND / 4)
        );
        assert_eq!(bucket.try_take(1.0, Moment::from_micros(SECOND / 2)), Ok(()));
    }

    #[test]
    fn a_dry_run_reports_the_debt_and_books_none() {
        let bucket = bucket(1_000.0);
        assert_eq!(bucket.take_available(3_000.0, Moment::from_micros(0)), 2 * SECOND);
        assert_eq!(bucket.debt_micros(Moment::from_micros(0)), 0);
        assert_eq!(bucket.take_available(100.0, Moment::from_micros(SECOND / 10)), 0);
        assert_eq!(
            bucket.take_available(100.0, Moment::from_micros(SECOND / 10)),
            SECOND / 10
        );
    }
}
