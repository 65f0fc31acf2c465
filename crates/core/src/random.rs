//! Random numbers that a seed can reproduce.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ottla_wire::primitives::Uuid;

/// The 256 bits that determine every random choice. The broker takes them from the operating
/// system, a simulation from its own seed.
pub type Seed = [u64; 4];

/// A seed of what must not be guessed; `Debug` hides it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretSeed(pub Seed);

impl fmt::Debug for SecretSeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hidden]")
    }
}

/// xoshiro256++ by Blackman and Vigna: not for secrets, only for ids that must not collide with
/// those of any other cluster. The 64 bits of [`ottla_wire::random::Random`] would be too few.
#[derive(Debug)]
pub struct Random {
    state: Mutex<Seed>,
}

impl Random {
    pub fn new(seed: Seed) -> Random {
        // The all-zero state would stay zero for ever.
        let state = if seed == [0; 4] { [1, 2, 3, 4] } else { seed };
        Random {
            state: Mutex::new(state),
        }
    }

    pub fn next(&self) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let [a, b, c, d] = &mut *state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a version 4 UUID that Kafka accepts as a topic, directory or cluster id: none of the
    /// reserved ones, and its text does not begin with a dash, which command-line tools would take
    /// for an option.
    pub fn uuid(&self) -> Uuid {
        loop {
            let bits = u128::from(self.next()) << 64 | u128::from(self.next());
            let mut bytes = bits.to_be_bytes();
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            let uuid = Uuid(bytes);
            if !uuid.to_string().starts_with('-') {
                return uuid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (one, other) = (Random::new([7, 8, 9, 10]), Random::new([7, 8, 9, 10]));
        let names: Vec<Uuid> = (0..100).map(|_| one.uuid()).collect();
        assert_eq!(names, (0..100).map(|_| other.uuid()).collect::<Vec<_>>());
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn names_are_version_4_and_do_not_look_like_options() {
        let random = Random::new([0; 4]);
        for _ in 0..1_000 {
            let uuid = random.uuid();
            assert_eq!(uuid.0[6] >> 4, 4);
            assert_eq!(uuid.0[8] >> 6, 2);
            assert!(!uuid.to_string().starts_with('-'));
        }
    }
}
