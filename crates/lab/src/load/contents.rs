//! The content of keys and values. Compression and checksums depend on it, so a run states which
//! one it used.

use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::stamp;
use super::{Contents, Keys};

/// The size of JSON values prepared before the run. Codecs look back less far, so they do not find
/// a value again.
const PREPARED_BYTES: usize = 8 << 20;
const PREPARED_COUNT_MAX: usize = 1 << 16;

/// Fast, and random enough that no codec finds a pattern: wyrand's step.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    /// Seeded differently in every run and thread.
    pub fn fresh() -> Noise {
        Noise(RandomState::new().hash_one(0))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xA076_1D64_78BD_642F);
        let wide = u128::from(self.0) * u128::from(self.0 ^ 0xE703_7ED1_A0B4_28DB);
        (wide >> 64) as u64 ^ wide as u64
    }

    /// Returns a number below `end`, which is above 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.draw().to_ne_bytes()[..chunk.len()]);
        }
    }

    pub fn fill_letters(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let noise = self.draw().to_ne_bytes();
            for (byte, noise) in chunk.iter_mut().zip(noise) {
                *byte = b'A' + ((u16::from(noise) * 26) >> 8) as u8;
            }
        }
    }
}

/// The source of values for all threads of a group.
#[derive(Clone, Debug)]
pub struct Source {
    contents: Contents,
    /// The values without their stamps; empty where values are generated one by one.
    prepared: Arc<[Vec<u8>]>,
    value_bytes: usize,
}

impl Source {
    /// - Shape: values have `record_bytes`; given contents have their own size and that of the
    ///   stamp.
    pub fn new(contents: &Contents, record_bytes: u32) -> Source {
        let value_bytes = (record_bytes as usize).max(stamp::BYTES);
        let prepared = match contents {
            Contents::Random | Contents::Letters => Arc::from([]),
            Contents::Json => {
                let body_bytes = value_bytes - stamp::BYTES;
                let count = (PREPARED_BYTES / body_bytes.max(1)).clamp(1, PREPARED_COUNT_MAX);
                let mut noise = Noise::fresh();
                (0..count).map(|_| json(&mut noise, body_bytes)).collect()
            }
            Contents::Given(values) => Arc::clone(values),
        };
        Source {
            contents: contents.clone(),
            prepared,
            value_bytes,
        }
    }

    /// A generator of values for one thread.
    pub fn values(&self) -> Values {
        Values {
            source: self.clone(),
            noise: Noise::fresh(),
            next: 0,
            value: vec![0; self.value_bytes],
        }
    }
}

/// Generates one value after the other, in one buffer.
#[derive(Debug)]
pub struct Values {
    source: Source,
    noise: Noise,
    next: usize,
    value: Vec<u8>,
}

impl Values {
    /// The next value; its first `stamp::BYTES` are reserved for the stamp.
    pub fn next_value(&mut self) -> &mut [u8] {
        let prepared = &self.source.prepared;
        match self.source.contents {
            Contents::Random => self.noise.fill(&mut self.value[stamp::BYTES..]),
            Contents::Letters => self.noise.fill_letters(&mut self.value[stamp::BYTES..]),
            Contents::Json => {
                let chosen = self.noise.below(prepared.len() as u64) as usize;
                self.value[stamp::BYTES..].copy_from_slice(&prepared[chosen]);
            }
            Contents::Given(_) => {
                self.value.truncate(stamp::BYTES);
                if let Some(body) = prepared.get(self.next) {
                    self.value.extend_from_slice(body);
                }
                self.next = (self.next + 1) % prepared.len().max(1);
            }
        }
        &mut self.value
    }
}

/// The keys of one thread.
#[derive(Debug)]
pub struct KeySource {
    keys: Keys,
    noise: Noise,
    next: u64,
    step: u64,
    text: String,
}

impl KeySource {
    /// - Shape: thread `thread` of `threads`, which go through sequential keys together.
    pub fn new(keys: Keys, thread: u64, threads: u64) -> KeySource {
        KeySource {
            keys,
            noise: Noise::fresh(),
            next: thread,
            step: threads,
            text: String::new(),
        }
    }

    /// Returns a key of at least eight digits.
    pub fn next_key(&mut self) -> Option<&[u8]> {
        let key = match self.keys {
            Keys::None => return None,
            Keys::Sequential(count) => {
                let key = self.next % count.max(1);
                self.next = self.next.wrapping_add(self.step);
                key
            }
            Keys::Random(count) => self.noise.below(count.max(1)),
        };
        self.text.clear();
        write!(self.text, "{key:08}").expect("writing to a string does not fail");
        Some(self.text.as_bytes())
    }
}

/// An order as of a shop, cut or extended to `bytes`.
fn json(noise: &mut Noise, bytes: usize) -> Vec<u8> {
    const CITIES: [&str; 8] = [
        "Berlin", "Hamburg", "Madrid", "Lisboa", "Warszawa", "Tallinn", "Oslo", "Praha",
    ];
    const STATES: [&str; 5] = ["NEW", "PAID", "PACKED", "SHIPPED", "RETURNED"];
    let mut text = String::with_capacity(bytes + 256);
    while text.len() < bytes {
        let state = STATES[noise.below(STATES.len() as u64) as usize];
        let city = CITIES[noise.below(CITIES.len() as u64) as usize];
        write!(
            text,
            r#"{{"orderId":"{:016x}","customerId":{},"state":"{state}","city":"{city}","items":{},"total":{}.{:02},"updatedAt":17{:011}}},"#,
            noise.draw(),
            noise.below(10_000_000),
            1 + noise.below(12),
            noise.below(2_000),
            noise.below(100),
            noise.below(100_000_000_000),
        )
        .expect("writing to a string does not fail");
    }
    text.truncate(bytes);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(contents: Contents) -> Values {
        Source::new(&contents, 100).values()
    }

    #[test]
    fn values_have_the_requested_size() {
        for contents in [Contents::Random, Contents::Json, Contents::Letters] {
            assert_eq!(values(contents).next_value().len(), 100);
        }
        assert_eq!(
            Source::new(&Contents::Json, 3).values().next_value().len(),
            stamp::BYTES
        );
    }

    #[test]
    fn values_differ() {
        for contents in [Contents::Random, Contents::Json, Contents::Letters] {
            let mut values = values(contents);
            let first = values.next_value().to_vec();
            assert_ne!(first, values.next_value().to_vec());
        }
    }

    #[test]
    fn letters_are_a_to_z_and_all_of_them() {
        let mut values = values(Contents::Letters);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            seen.extend(values.next_value()[stamp::BYTES..].iter().copied());
        }
        assert_eq!(seen, (b'A'..=b'Z').collect());
    }

    #[test]
    fn given_values_come_in_turn() {
        let given: Arc<[Vec<u8>]> = Arc::from([b"one".to_vec(), b"three".to_vec()]);
        let mut values = values(Contents::Given(given));
        assert_eq!(&values.next_value()[stamp::BYTES..], b"one");
        assert_eq!(&values.next_value()[stamp::BYTES..], b"three");
        assert_eq!(&values.next_value()[stamp::BYTES..], b"one");
    }

    #[test]
    fn threads_go_through_sequential_keys_together() {
        let mut second = KeySource::new(Keys::Sequential(5), 1, 2);
        let keys: Vec<Vec<u8>> = (0..3).map(|_| second.next_key().unwrap().to_vec()).collect();
        assert_eq!(keys, [b"00000001", b"00000003", b"00000000"]);
        assert_eq!(KeySource::new(Keys::None, 0, 1).next_key(), None);
    }

    #[test]
    fn noise_below_a_limit_stays_below_it() {
        let mut noise = Noise::new(1);
        assert!((0..1_000).all(|_| noise.below(7) < 7));
    }
}
