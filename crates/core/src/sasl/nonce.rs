//! Nonces: numbers that never repeat and cannot be guessed.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::random::SecretSeed;

/// 144 bits, as 24 printable characters without a comma.
const NONCE_BYTES: usize = 18;

/// A keyed hash of a counter. The key is the shell's randomness, so a simulation repeats its
/// nonces.
#[derive(Debug)]
pub struct Nonces {
    key: hmac::Key,
    counter: AtomicU64,
}

impl Nonces {
    /// - `purpose`: two of one seed with different ones share no number.
    pub fn new(SecretSeed(seed): SecretSeed, purpose: &str) -> Nonces {
        let seed = seed.iter().flat_map(|word| word.to_be_bytes());
        let bytes: Vec<u8> = seed.chain(purpose.bytes()).collect();
        Nonces {
            key: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            counter: AtomicU64::new(0),
        }
    }

    /// Returns 32 bytes that no earlier or later call returns.
    pub fn bytes(&self) -> [u8; 32] {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let tag = hmac::sign(&self.key, &number.to_be_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    pub fn text(&self) -> String {
        BASE64.encode(&self.bytes()[..NONCE_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_never_repeats_and_only_its_seed_repeats_it() {
        let [one, same] = [(); 2].map(|()| Nonces::new(SecretSeed([1, 2, 3, 4]), "test"));
        let other = Nonces::new(SecretSeed([1, 2, 3, 5]), "test");
        let elsewhere = Nonces::new(SecretSeed([1, 2, 3, 4]), "other");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            let text = one.text();
            assert_eq!(text, same.text());
            assert!(
                text.len() == 24
                    && text
                        .bytes()
                        .all(|byte| (0x21..0x7f).contains(&byte) && byte != b',')
            );
            assert!(seen.insert(text) && seen.insert(other.text()) && seen.insert(elsewhere.text()));
        }
    }
}
