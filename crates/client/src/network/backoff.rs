//! Exponential backoff with jitter: waits grow up to a bound and are not in step with those of
//! other clients.

pub use ottla_wire::random::Random;

/// The base of the growth, as in Kafka's `ExponentialBackoff` (KIP-144, KIP-580).
const GROWTH: u64 = 2;
/// A wait differs from the computed one by up to this many per cent, in both directions.
const JITTER_PERCENT: u64 = 20;

/// A wait that doubles from `first_ms` to `max_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first_ms: u64,
    pub max_ms: u64,
}

impl Backoff {
    pub fn new(first_ms: u64, max_ms: u64) -> Backoff {
        Backoff {
            first_ms,
            max_ms: max_ms.max(first_ms),
        }
    }

    /// The wait in nanoseconds after `failures` earlier failed attempts (0: the first failure).
    pub fn nanos(&self, failures: u32, random: &mut Random) -> u64 {
        let wait_ms = GROWTH
            .checked_pow(failures)
            .and_then(|factor| self.first_ms.checked_mul(factor))
            .unwrap_or(self.max_ms)
            .min(self.max_ms);
        let wait_nanos = wait_ms.saturating_mul(1_000_000);
        let spread = wait_nanos / 100 * JITTER_PERCENT;
        wait_nanos - spread + random.below(2 * spread + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_bound_within_the_jitter() {
        let backoff = Backoff::new(50, 1000);
        let mut random = Random::new(1);
        for (failures, expected_ms) in [
            (0, 50),
            (1, 100),
            (2, 200),
            (4, 800),
            (5, 1000),
            (63, 1000),
            (64, 1000),
        ] {
            for _ in 0..100 {
                let nanos = backoff.nanos(failures, &mut random);
                let (low, high) = (expected_ms * 800_000, expected_ms * 1_200_000);
                assert!((low..=high).contains(&nanos), "{failures} failures: {nanos} ns");
            }
        }
    }

    #[test]
    fn two_seeds_wait_differently_and_one_seed_repeats_itself() {
        let backoff = Backoff::new(50, 1000);
        let waits = |seed| {
            let mut random = Random::new(seed);
            (0..8)
                .map(|failures| backoff.nanos(failures, &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(7), waits(7));
        assert_ne!(waits(7), waits(8));
    }

    #[test]
    fn no_wait_is_no_wait() {
        assert_eq!(Backoff::new(0, 0).nanos(3, &mut Random::new(1)), 0);
    }
}
