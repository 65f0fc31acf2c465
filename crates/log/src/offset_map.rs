//! The offset of the last record of each key in a log's dirty part: keys as 16-byte digests, memory
//! bounded.

use std::hash::{DefaultHasher, Hasher};

/// Digest 16, offset 8.
const SLOT_BYTES: usize = 16 + 8;
const EMPTY: i64 = -1;

/// Open addressing with linear probing, at most three quarters full.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    digests: Vec<u128>,
    offsets: Vec<i64>,
    count: usize,
    slots_max: usize,
    /// Offset of the last record put.
    pub latest_offset: i64,
}

impl OffsetMap {
    pub fn new(bytes_max: usize) -> OffsetMap {
        let slots_max = (bytes_max / SLOT_BYTES).max(8);
        // Rounded down to a power of two.
        let slots_max = 1 << slots_max.ilog2();
        OffsetMap {
            digests: vec![0; 8],
            offsets: vec![EMPTY; 8],
            count: 0,
            slots_max,
            latest_offset: -1,
        }
    }

    /// Returns false when there is no room for another key: the records put before form a
    /// consistent prefix.
    pub fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let digest = digest(key);
        let mut slot = self.slot(digest);
        if self.offsets[slot] == EMPTY {
            if (self.count + 1) * 4 > self.offsets.len() * 3 {
                if self.offsets.len() >= self.slots_max {
                    return false;
                }
                self.grow();
                slot = self.slot(digest);
            }
            self.count += 1;
            self.digests[slot] = digest;
        }
        self.offsets[slot] = offset;
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<i64> {
        let slot = self.slot(digest(key));
        (self.offsets[slot] != EMPTY).then(|| self.offsets[slot])
    }

    /// Returns the slot where `digest` is, or would be put.
    fn slot(&self, digest: u128) -> usize {
        let mask = self.offsets.len() - 1;
        let mut slot = digest as usize & mask;
        while self.offsets[slot] != EMPTY && self.digests[slot] != digest {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let slots = self.offsets.len() * 2;
        let digests = std::mem::replace(&mut self.digests, vec![0; slots]);
        let offsets = std::mem::replace(&mut self.offsets, vec![EMPTY; slots]);
        for (digest, offset) in digests.into_iter().zip(offsets) {
            if offset != EMPTY {
                let slot = self.slot(digest);
                self.digests[slot] = digest;
                self.offsets[slot] = offset;
            }
        }
    }
}

/// Two independent 64-bit SipHashes: with 2^40 keys the chance that any two collide is about 2^-49.
fn digest(key: &[u8]) -> u128 {
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        hasher.write(key);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_offset_of_each_key_is_kept() {
        let mut map = OffsetMap::new(1 << 20);
        for offset in 0..10_000i64 {
            assert!(map.put(format!("key {}", offset % 3_000).as_bytes(), offset));
        }
        for key in 0..3_000i64 {
            let expected = if key < 1_000 { 9_000 + key } else { 6_000 + key };
            assert_eq!(map.get(format!("key {key}").as_bytes()), Some(expected));
        }
        assert_eq!(map.get(b"other"), None);
    }

    #[test]
    fn a_full_map_accepts_only_known_keys() {
        let mut map = OffsetMap::new(64 * SLOT_BYTES);
        let taken = (0..100i64)
            .take_while(|key| map.put(&key.to_be_bytes(), *key))
            .count();
        assert_eq!(taken, 48);
        assert!(map.put(&3i64.to_be_bytes(), 77));
        assert_eq!(map.get(&3i64.to_be_bytes()), Some(77));
        assert!(map.offsets.len() <= 64);
    }
}
