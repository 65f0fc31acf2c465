//! Invariants that hold for every seed.

use std::collections::{BTreeMap, BTreeSet};

/// Everything that was acknowledged to clients or read by them, by partition.
#[derive(Debug)]
pub struct Oracle {
    seed: u64,
    partitions: BTreeMap<i32, Promises>,
}

#[derive(Debug, Default)]
struct Promises {
    acknowledged: BTreeMap<i64, String>,
    seen: BTreeMap<i64, String>,
}

impl Oracle {
    pub fn new(seed: u64) -> Oracle {
        Oracle {
            seed,
            partitions: BTreeMap::new(),
        }
    }

    pub fn acknowledged_count(&self) -> usize {
        self.partitions
            .values()
            .map(|promises| promises.acknowledged.len())
            .sum()
    }

    /// Notes that a batch was acknowledged with `acks=all` at `base_offset`.
    pub fn acknowledged(&mut self, partition: i32, base_offset: i64, values: &[String]) {
        let seed = self.seed;
        let promises = self.partitions.entry(partition).or_default();
        for (offset, value) in (base_offset..).zip(values) {
            let before = promises.acknowledged.insert(offset, value.clone());
            assert!(
                before.is_none(),
                "seed {seed}: offset {offset} of partition {partition} was promised to {before:?} and {value}"
            );
        }
    }

    /// Checks a read of a partition from its beginning to the high watermark.
    pub fn read(&mut self, partition: i32, records: &[(i64, String)]) {
        let seed = self.seed;
        let promises = self.partitions.entry(partition).or_default();
        let found: BTreeMap<i64, String> = records.iter().cloned().collect();
        for (offset, value) in &promises.acknowledged {
            assert_eq!(
                found.get(offset),
                Some(value),
                "seed {seed}: an acknowledged record is lost, partition {partition} offset {offset}"
            );
        }
        for (offset, value) in &promises.seen {
            assert_eq!(
                found.get(offset),
                Some(value),
                "seed {seed}: a record that a consumer has read is gone, partition {partition} offset {offset}"
            );
        }
        let values: BTreeSet<&String> = found.values().collect();
        assert_eq!(
            values.len(),
            found.len(),
            "seed {seed}: partition {partition} holds a record twice"
        );
        self.check_order(partition, &found);
        self.partitions.entry(partition).or_default().seen = found;
    }

    /// Checks that records of one producer are in the order in which it sent them.
    fn check_order(&self, partition: i32, found: &BTreeMap<i64, String>) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for value in found.values() {
            let (producer, number) = value.split_once(':').expect("values are producer:number");
            let number: u64 = number.parse().expect("values are producer:number");
            if let Some(before) = last.insert(producer, number) {
                assert!(
                    before < number,
                    "seed {}: {producer}:{number} lies behind {before} in {partition}",
                    self.seed
                );
            }
        }
    }
}
