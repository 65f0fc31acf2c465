//! How long the end of a transaction takes, stage by stage.

use std::sync::atomic::{AtomicU64, Ordering};

/// A part of the time from EndTxn, or an abort by the coordinator, to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The decision is appended, and becomes durable: EndTxn is answered.
    Decision,
    /// The markers are appended, and all become durable: readers go on.
    Markers,
    /// The coordinator notes the end: the producer's next transaction goes on.
    Complete,
}

impl Stage {
    pub const ALL: [Stage; 3] = [Stage::Decision, Stage::Markers, Stage::Complete];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Decision => "decision",
            Stage::Markers => "markers",
            Stage::Complete => "complete",
        }
    }
}

/// Upper bounds of the classes, in microseconds: from an append to the page cache to a disk that
/// is in trouble. There is one class more, without a bound.
pub const BOUNDS_MICROS: [u64; 11] = [
    100, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000,
];

/// Counts by stage and class.
#[derive(Debug, Default)]
pub struct StageTimes {
    stages: [Counts; Stage::ALL.len()],
}

#[derive(Debug, Default)]
struct Counts {
    classes: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

/// The times of one stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// Numbers of times up to each bound, and beyond the last.
    pub classes: [u64; BOUNDS_MICROS.len() + 1],
    pub sum_micros: u64,
}

impl StageTimes {
    pub(super) fn record(&self, stage: Stage, micros: u64) {
        let counts = &self.stages[stage as usize];
        let class = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        counts.classes[class].fetch_add(1, Ordering::Relaxed);
        counts.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub fn of(&self, stage: Stage) -> StageTime {
        let counts = &self.stages[stage as usize];
        StageTime {
            classes: counts
                .classes
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed)),
            sum_micros: counts.sum_micros.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_class_whose_bound_it_does_not_exceed() {
        let times = StageTimes::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            times.record(Stage::Markers, micros);
        }
        let markers = times.of(Stage::Markers);
        assert_eq!(markers.classes, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(markers.sum_micros, 20_000_202);
        assert_eq!(times.of(Stage::Decision).sum_micros, 0);
    }
}
