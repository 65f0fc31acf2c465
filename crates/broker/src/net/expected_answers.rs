//! Predicts the memory of an API's next answer, known only once it is made, from its recent
//! answers.

use ottla_core::placement::is_long;
use ottla_wire::api_key::ApiKey;

/// API keys are below this; those that are not share an entry.
const PLACES: usize = 128;

/// Decay: the weight of a large answer halves after some forty smaller ones.
const FADING: u32 = 64;

/// The expected answers of one event loop.
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
    /// The expected size of an answer made by another thread.
    pub fn of_threads(&self, api_key: ApiKey) -> usize {
        self.of_threads[place(api_key)] as usize
    }

    /// The expected size of the answer to a request. Zero for a fetch: its records stay in their
    /// files where memory is tight, and the rest, about a thousand partitions, is less than the
    /// kernel's share (`unsent.rs`).
    pub fn to_request(&self, api_key: ApiKey, request_bytes: usize) -> usize {
        if is_long(api_key, request_bytes) {
            return self.of_threads(api_key);
        }
        match api_key {
            ApiKey::Fetch => 0,
            _ => self.of_loop[place(api_key)] as usize,
        }
    }

    /// Notes the size of an answer. Where memory `is_tight` nothing decays: many small requests
    /// would otherwise make room for a large answer by predicting that there is none.
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
    fn the_largest_answer_is_expected_until_it_has_decayed() {
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
    fn answers_of_a_loop_and_of_threads_are_expected_separately() {
        let mut expected = ExpectedAnswers::default();
        expected.answered(ApiKey::Metadata, false, 40_000, false);
        expected.answered(ApiKey::Metadata, true, 4_000_000, false);
        expected.answered(ApiKey::Fetch, false, 4_000_000, false);
        assert_eq!(expected.to_request(ApiKey::Metadata, 100), 40_000);
        assert_eq!(expected.to_request(ApiKey::Metadata, 20_000), 4_000_000);
        assert_eq!(expected.to_request(ApiKey::Fetch, 100), 0);
    }
}
