//! How large the answers of an API have been lately: what its next one may take, which is known only once it is there.

use ottla_core::long_answer::is_long;
use ottla_wire::api_key::ApiKey;

/// Codes of APIs are below this; those that are not share a place.
const PLACES: usize = 128;

/// An answer that is not met again counts half after some forty smaller ones.
const FADING: u32 = 64;

/// Of one event loop.
#[derive(Debug)]
pub struct ExpectedAnswers {
    of_loop: [u32; PLACES],
    of_threads: [u32; PLACES],
}

impl Default for ExpectedAnswers {
    fn default() -> ExpectedAnswers {
        ExpectedAnswers {
            of_loop: [0; PLACES],
            of_threads: [0; PLACES],
        }
    }
}

impl ExpectedAnswers {
    /// What another thread's answer may take.
    pub fn of_threads(&self, api_key: ApiKey) -> usize {
        self.of_threads[place(api_key)] as usize
    }

    /// What the answer to a request may take. Nothing is asked for a fetch: its records are left in their files where memory is tight, and
    /// what is said about a thousand partitions is less than the kernel's part (`unsent.rs`).
    pub fn to_request(&self, api_key: ApiKey, request_bytes: usize) -> usize {
        if is_long(api_key, request_bytes) {
            return self.of_threads(api_key);
        }
        match api_key {
            ApiKey::Fetch => 0,
            _ => self.of_loop[place(api_key)] as usize,
        }
    }

    /// An answer takes so much memory. Where memory `is_tight` nothing fades: many small requests would make room for a large answer
    /// that is not there.
    pub fn answered(&mut self, api_key: ApiKey, is_of_thread: bool, bytes: usize, is_tight: bool) {
        let places = match is_of_thread {
            true => &mut self.of_threads,
            false => &mut self.of_loop,
        };
        let expected = &mut places[place(api_key)];
        if !is_tight {
            *expected -= expected.div_ceil(FADING);
        }
        *expected = (*expected).max(u32::try_from(bytes).unwrap_or(u32::MAX));
    }
}

fn place(api_key: ApiKey) -> usize {
    usize::try_from(api_key.code()).unwrap_or(PLACES).min(PLACES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_answer_is_expected_until_it_is_long_ago() {
        let mut expected = ExpectedAnswers::default();
        assert_eq!(expected.of_threads(ApiKey::Metadata), 0);
        expected.answered(ApiKey::Metadata, true, 1_000_000, false);
        expected.answered(ApiKey::Metadata, true, 100, false);
        assert!((900_000..1_000_000).contains(&expected.of_threads(ApiKey::Metadata)));
        assert_eq!(expected.of_threads(ApiKey::Heartbeat), 0, "each API has its own");
        for is_tight in [true, false] {
            let before = expected.of_threads(ApiKey::Metadata);
            for _ in 0..1_000 {
                expected.answered(ApiKey::Metadata, true, 100, is_tight);
            }
            let after = expected.of_threads(ApiKey::Metadata);
            assert_eq!(after, if is_tight { before } else { 100 });
        }
        expected.answered(ApiKey::Metadata, true, usize::MAX, false);
        expected.answered(ApiKey::Metadata, true, 0, false);
        assert!(expected.of_threads(ApiKey::Metadata) > 1 << 31);
    }

    #[test]
    fn what_a_loop_makes_and_what_threads_make_is_told_apart() {
        let mut expected = ExpectedAnswers::default();
        expected.answered(ApiKey::Metadata, false, 40_000, false);
        expected.answered(ApiKey::Metadata, true, 4_000_000, false);
        expected.answered(ApiKey::Fetch, false, 4_000_000, false);
        assert_eq!(expected.to_request(ApiKey::Metadata, 100), 40_000);
        assert_eq!(expected.to_request(ApiKey::Metadata, 20_000), 4_000_000);
        assert_eq!(expected.to_request(ApiKey::Fetch, 100), 0);
    }
}
