//! The iteration orders of Java's collections: where Kafka's assignors walk a hash map, its order
//! decides the assignment.

use std::cmp::Ordering;

/// `String.hashCode`.
pub fn string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    })
}

/// `TopicPartition.hashCode`.
pub fn partition_hash(topic: &str, partition: i32) -> i32 {
    31i32
        .wrapping_add(partition)
        .wrapping_mul(31)
        .wrapping_add(string_hash(topic))
}

/// `String.compareTo`.
pub fn compare(left: &str, right: &str) -> Ordering {
    left.encode_utf16().cmp(right.encode_utf16())
}

const CAPACITY_MIN: usize = 16;

/// The capacity of a `HashMap` that was empty at first and has grown to `count` entries.
fn grown(mut capacity: usize, count: usize) -> usize {
    while count > capacity / 4 * 3 {
        capacity *= 2;
    }
    capacity
}

fn bucket(hash: i32, capacity: usize) -> usize {
    let hash = hash as u32;
    (hash ^ (hash >> 16)) as usize & (capacity - 1)
}

/// The iteration order of a `HashMap` after insertion of these keys in order, as indexes into them.
///
/// - Shape: within a bucket, entries stay in insertion order. Buckets of eight and more, which Java
///   turns into trees, are not modelled: they do not occur by chance.
pub fn hash_map_order<'a>(keys: impl ExactSizeIterator<Item = &'a str>) -> Vec<usize> {
    let capacity = grown(CAPACITY_MIN, keys.len());
    let buckets: Vec<usize> = keys.map(|key| bucket(string_hash(key), capacity)).collect();
    let mut order: Vec<usize> = (0..buckets.len()).collect();
    order.sort_by_key(|index| buckets[*index]);
    order
}

/// A `HashSet` of numbered elements, as far as its first element is concerned. It never shrinks its
/// table.
#[derive(Clone, Debug)]
pub struct HashSetOrder {
    capacity: usize,
    inserted: u64,
    /// Hash, insertion count, number.
    entries: Vec<(i32, u64, usize)>,
}

impl Default for HashSetOrder {
    fn default() -> HashSetOrder {
        HashSetOrder {
            capacity: CAPACITY_MIN,
            inserted: 0,
            entries: Vec::new(),
        }
    }
}

impl HashSetOrder {
    pub fn insert(&mut self, hash: i32, number: usize) {
        if self.entries.iter().any(|entry| entry.2 == number) {
            return;
        }
        self.entries.push((hash, self.inserted, number));
        self.inserted += 1;
        self.capacity = grown(self.capacity, self.entries.len());
    }

    pub fn remove(&mut self, number: usize) {
        self.entries.retain(|entry| entry.2 != number);
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn first(&self) -> Option<usize> {
        let by_place = |entry: &&(i32, u64, usize)| (bucket(entry.0, self.capacity), entry.1);
        self.entries.iter().min_by_key(by_place).map(|entry| entry.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        // `"orders".hashCode()`, `new TopicPartition("orders", 3).hashCode()` and `"".hashCode()`
        // of OpenJDK 17.
        assert_eq!(string_hash("orders"), -1_008_770_331);
        assert_eq!(partition_hash("orders", 3), -1_008_769_277);
        assert_eq!(string_hash(""), 0);
    }

    #[test]
    fn a_table_grows_at_three_quarters() {
        assert_eq!(grown(16, 12), 16);
        assert_eq!(grown(16, 13), 32);
        assert_eq!(grown(16, 25), 64);
    }
}
