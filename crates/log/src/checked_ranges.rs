//! Which bytes of a segment have been compared with their checksums since the log was opened.

/// Scattered reads leave separate ranges; further ones are not remembered, so their bytes are
/// checked again.
const RANGES_MAX: usize = 256;

/// Ascending ranges that neither overlap nor touch.
#[derive(Debug, Default)]
pub(crate) struct CheckedRanges {
    ranges: Vec<(u64, u64)>,
}

impl CheckedRanges {
    pub fn contains(&self, start: u64, end: u64) -> bool {
        let behind = self.ranges.partition_point(|range| range.0 <= start);
        behind
            .checked_sub(1)
            .is_some_and(|index| end <= self.ranges[index].1)
    }

    pub fn insert(&mut self, start: u64, end: u64) {
        let first = self.ranges.partition_point(|range| range.1 < start);
        let behind = self.ranges.partition_point(|range| range.0 <= end);
        if first < behind {
            let merged = (
                self.ranges[first].0.min(start),
                self.ranges[behind - 1].1.max(end),
            );
            self.ranges.splice(first..behind, [merged]);
        } else if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(first, (start, end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut checked = CheckedRanges::default();
        for (start, end) in [(10, 20), (40, 50), (20, 30), (0, 5)] {
            checked.insert(start, end);
        }
        assert_eq!(checked.ranges, [(0, 5), (10, 30), (40, 50)]);
        checked.insert(35, 40);
        assert_eq!(checked.ranges, [(0, 5), (10, 30), (35, 50)]);
        checked.insert(4, 45);
        assert_eq!(checked.ranges, [(0, 50)]);
    }

    #[test]
    fn a_range_counts_only_where_all_of_it_was_checked() {
        let mut checked = CheckedRanges::default();
        checked.insert(10, 20);
        checked.insert(30, 40);
        for (start, end, expected) in [(10, 20, true), (12, 15, true), (9, 12, false), (15, 35, false)] {
            assert_eq!(checked.contains(start, end), expected, "{start}..{end}");
        }
    }

    #[test]
    fn the_number_of_ranges_has_a_bound() {
        let mut checked = CheckedRanges::default();
        (0..10_000).for_each(|number| checked.insert(number * 10, number * 10 + 1));
        assert_eq!(checked.ranges.len(), RANGES_MAX);
        checked.insert(0, 100_000);
        assert_eq!(checked.ranges, [(0, 100_000)]);
    }
}
