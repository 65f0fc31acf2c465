//! The trend of a group's lag: a minute of readings of how far it has got, and what follows from
//! the first and the last of them.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use ottla_lab::formulas::consumer::{COMMIT_SECONDS, catch_up_seconds, is_lag_changing};
use ottla_lab::numbers::{count, duration, number};
use serde::Serialize;

use crate::draw::text::rate;
use crate::series::{INTERVAL_MS, MINUTE_SAMPLES};
use crate::source::{Told, Untold};

/// Groups with a history, those with the most lag: 1.7 MB.
pub const GROUPS_MAX: usize = 2_000;

/// What the history of one group takes: 13 readings of 48 bytes, in room for 16, and twice its
/// place in the table.
#[cfg(test)]
pub const GROUP_BYTES: usize = 16 * size_of::<(i64, GroupProgress)>() + 2 * size_of::<(u64, Readings)>();

/// A minute, and the reading before it.
const WINDOW_MS: i64 = 60_000 + INTERVAL_MS as i64;

/// Less than this is no trend: a group that commits every five seconds moves by leaps.
const TREND_MS_MIN: i64 = 20_000;

/// How far a group has read, over all its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// A hash of its name, which may be 32 KiB long: two names of one hash have no trend.
    group: u64,
    /// A hash of the partitions: sums over others cannot be compared.
    partitions: u64,
    committed: i64,
    lag: i64,
    end: i64,
}

/// A committed offset, and where the log begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub committed: i64,
    pub log_start: i64,
    pub log_end: i64,
}

impl Position {
    /// Records to be read. What retention has deleted can no longer be read, so it is not counted.
    pub fn lag(self) -> i64 {
        (self.log_end - self.committed.max(self.log_start)).max(0)
    }
}

impl GroupProgress {
    /// Of a group without partitions.
    pub fn new(group_id: &str) -> GroupProgress {
        GroupProgress {
            group: hash(group_id),
            partitions: 0,
            committed: 0,
            lag: 0,
            end: 0,
        }
    }

    pub fn add(&mut self, topic: &str, partition: i32, position: Position) {
        self.partitions = self.partitions.wrapping_add(hash((topic, partition)));
        self.committed += position.committed;
        self.lag += position.lag();
        self.end += position.log_end;
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// All groups at one moment.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    pub groups: Vec<GroupProgress>,
}

type Readings = VecDeque<(i64, GroupProgress)>;

/// The last minute of each group, by the hash of its name.
#[derive(Clone, Debug, Default)]
pub struct Histories(HashMap<u64, Readings>);

impl Histories {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next reading; groups that are not in it are forgotten.
    pub fn add(&mut self, mut progress: Progress) {
        if progress.groups.len() > GROUPS_MAX {
            (progress.groups).sort_unstable_by_key(|group| (std::cmp::Reverse(group.lag), group.group));
            progress.groups.truncate(GROUPS_MAX);
        }
        let mut earlier = std::mem::take(&mut self.0);
        for group in progress.groups {
            let mut readings = earlier.remove(&group.group).unwrap_or_default();
            push(&mut readings, (progress.at_ms, group));
            self.0.insert(group.group, readings);
        }
    }

    /// - Errors: why there is none, as a part of a sentence.
    pub fn trend(&self, group_id: &str, now_ms: i64) -> Told<Trend> {
        let Some(readings) = self.0.get(&hash(group_id)) else {
            return Err(Untold(match self.0.len() < GROUPS_MAX {
                true => String::from("not known yet: the group has just been seen"),
                false => format!(
                    "not known: only the {} groups with the most lag have a trend",
                    count(GROUPS_MAX as u64)
                ),
            }));
        };
        let (Some((first_ms, first)), Some((last_ms, last))) = (readings.front(), readings.back()) else {
            return Err(Untold(String::from("not known yet")));
        };
        if now_ms - last_ms > WINDOW_MS {
            let age = duration(((now_ms - last_ms) / 1_000) as f64);
            return Err(Untold(format!("not known: the last reading is {age} old")));
        }
        let span_ms = last_ms - first_ms;
        if span_ms < TREND_MS_MIN {
            let (wanted, there) = (TREND_MS_MIN / 1_000, span_ms / 1_000);
            return Err(Untold(format!(
                "not known yet: it takes {wanted} s of readings, and there are {there} s"
            )));
        }
        Ok(Trend::between(first, last, span_ms as f64 / 1e3))
    }
}

/// Adds a reading. One that cannot be compared with those before it begins a new history: of other
/// partitions, of offsets that went back, or of a clock that did.
fn push(readings: &mut Readings, (at_ms, group): (i64, GroupProgress)) {
    if let Some((last_ms, last)) = readings.back() {
        if *last_ms == at_ms {
            // An answer of the cluster that was kept.
            return;
        }
        let goes_on = *last_ms < at_ms
            && last.partitions == group.partitions
            && last.committed <= group.committed
            && last.end <= group.end;
        if !goes_on {
            readings.clear();
        }
    }
    readings.push_back((at_ms, group));
    readings.retain(|(earlier_ms, _)| at_ms - earlier_ms <= WINDOW_MS);
    while readings.len() > MINUTE_SAMPLES {
        readings.pop_front();
    }
}

/// Where a lag goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Grows,
    Shrinks,
    /// It changes by no more than rates and commits vary.
    AsBefore,
}

/// How the lag of a group changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    pub direction: Direction,
    /// Negative: the lag shrinks.
    pub records_per_second: f64,
    pub consumed_per_second: f64,
    pub produced_per_second: f64,
    /// The time between the readings that were compared.
    pub seconds: f64,
    /// `None`: it does not catch up at these rates.
    pub catches_up_in_seconds: Option<f64>,
}

impl Trend {
    fn between(first: &GroupProgress, last: &GroupProgress, seconds: f64) -> Trend {
        let rate = |of: fn(&GroupProgress) -> i64| (of(last) - of(first)) as f64 / seconds;
        let slope = rate(|progress| progress.lag);
        let consumed = rate(|progress| progress.committed);
        let produced = rate(|progress| progress.end);
        let flow = consumed.max(produced);
        let direction = match is_lag_changing(slope, flow, seconds, COMMIT_SECONDS * flow) {
            false => Direction::AsBefore,
            true if slope > 0.0 => Direction::Grows,
            true => Direction::Shrinks,
        };
        let catches_up = catch_up_seconds(last.lag as f64, consumed, produced);
        let is_known = direction == Direction::Shrinks && catches_up.is_finite();
        Trend {
            direction,
            records_per_second: slope,
            consumed_per_second: consumed,
            produced_per_second: produced,
            seconds,
            catches_up_in_seconds: is_known.then_some(catches_up),
        }
    }

    /// An arrow; the words beside it say the same.
    pub fn arrow(&self) -> &'static str {
        match self.direction {
            Direction::Grows => "↗",
            Direction::Shrinks => "↘",
            Direction::AsBefore => "→",
        }
    }

    /// `grows by 120 records/s`.
    pub fn course(&self) -> String {
        let by = format!("{} records/s", rate(self.records_per_second.abs()));
        match self.direction {
            Direction::AsBefore => String::from("as before"),
            Direction::Grows => format!("grows by {by}"),
            Direction::Shrinks => format!("shrinks by {by}"),
        }
    }

    /// `in about 40 s`; what there is to say where it does not catch up, or has.
    pub fn catches_up(&self) -> String {
        match (self.direction, self.catches_up_in_seconds) {
            (Direction::AsBefore, _) => String::from("as before"),
            (Direction::Grows, _) => String::from("not at these rates"),
            (Direction::Shrinks, Some(seconds)) if seconds < 1.0 => String::from("has caught up"),
            (Direction::Shrinks, Some(seconds)) => format!("in about {}", duration(seconds.round())),
            // The log begins later, and the group has not read what was before.
            (Direction::Shrinks, None) => String::from("retention deletes what is not read"),
        }
    }

    /// `catches up in about 40 s`, `falls behind by 120 records/s`.
    pub fn words(&self) -> String {
        match (self.direction, self.catches_up_in_seconds) {
            (Direction::Grows, _) => {
                format!("falls behind by {} records/s", rate(self.records_per_second))
            }
            (Direction::Shrinks, Some(seconds)) if seconds >= 1.0 => {
                format!("catches up {}", self.catches_up())
            }
            (Direction::Shrinks, None) => format!("{}: {}", self.course(), self.catches_up()),
            _ => self.catches_up(),
        }
    }

    /// `500 records/s came, 380 were read, over 60 s`.
    pub fn sum(&self) -> String {
        format!(
            "{} records/s came, {} were read, over {} s",
            rate(self.produced_per_second),
            rate(self.consumed_per_second),
            number(self.seconds.round())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(committed: i64, log_start: i64, log_end: i64) -> Position {
        Position {
            committed,
            log_start,
            log_end,
        }
    }

    /// A group with one partition.
    fn at(name: &str, committed: i64, log_start: i64, log_end: i64) -> GroupProgress {
        let mut group = GroupProgress::new(name);
        group.add("orders", 0, position(committed, log_start, log_end));
        group
    }

    /// Readings every five seconds, of `of(second)`.
    fn histories(seconds: i64, of: impl Fn(i64) -> GroupProgress) -> Histories {
        let mut all = Histories::default();
        for second in (0..=seconds).step_by(5) {
            all.add(Progress {
                at_ms: second * 1_000,
                groups: vec![of(second)],
            });
        }
        all
    }

    fn trend(seconds: i64, of: impl Fn(i64) -> GroupProgress) -> Trend {
        histories(seconds, of).trend("g", seconds * 1_000).unwrap()
    }

    #[test]
    fn a_group_that_reads_more_than_comes_catches_up() {
        let trend = trend(60, |second| at("g", second * 400, 0, 18_000 + second * 100));
        assert_eq!(trend.direction, Direction::Shrinks);
        assert_eq!(
            (
                trend.records_per_second,
                trend.consumed_per_second,
                trend.produced_per_second
            ),
            (-300.0, 400.0, 100.0)
        );
        // 18,000 + 6,000 - 24,000 are left; a minute earlier there were 18,000.
        assert_eq!(trend.words(), "has caught up");
        let later = super::tests::trend(60, |second| at("g", second * 400, 0, 30_000 + second * 100));
        assert_eq!(
            (later.catches_up_in_seconds, later.words()),
            (Some(40.0), String::from("catches up in about 40 s"))
        );
    }

    #[test]
    fn a_group_that_reads_less_falls_behind_and_one_that_reads_as_much_is_as_before() {
        let behind = trend(60, |second| at("g", second * 380, 0, second * 500));
        assert_eq!(
            [
                behind.arrow(),
                &behind.course(),
                &behind.words(),
                &behind.catches_up()
            ],
            [
                "↗",
                "grows by 120 records/s",
                "falls behind by 120 records/s",
                "not at these rates"
            ]
        );
        assert_eq!(behind.sum(), "500 records/s came, 380 were read, over 60 s");
        assert_eq!(behind.catches_up_in_seconds, None);
        // It commits every seven seconds what it has read until then: 2,000 records are to come.
        let commits = trend(60, |second| at("g", second / 7 * 7 * 500, 0, second * 500));
        assert!(commits.records_per_second > 30.0);
        assert_eq!((commits.words().as_str(), commits.arrow()), ("as before", "→"));
        let idle = trend(60, |_| at("g", 7, 0, 9));
        assert_eq!(idle.words(), "as before");
    }

    #[test]
    fn records_that_retention_deletes_are_not_caught_up_with() {
        let trend = trend(60, |second| at("g", 0, second * 50, 10_000));
        assert_eq!(
            (trend.direction, trend.catches_up_in_seconds),
            (Direction::Shrinks, None)
        );
        assert_eq!(
            trend.words(),
            "shrinks by 50 records/s: retention deletes what is not read"
        );
    }

    #[test]
    fn a_short_history_and_an_old_one_say_so() {
        let untold = |all: &Histories, now_ms| all.trend("g", now_ms).unwrap_err().0;
        let all = histories(15, |second| at("g", second, 0, 100));
        assert_eq!(
            untold(&all, 15_000),
            "not known yet: it takes 20 s of readings, and there are 15 s"
        );
        assert_eq!(
            untold(&histories(60, |_| at("g", 0, 0, 1)), 300_000),
            "not known: the last reading is 4 min old"
        );
        assert_eq!(
            untold(&Histories::default(), 0),
            "not known yet: the group has just been seen"
        );
    }

    #[test]
    fn only_the_last_minute_counts() {
        // It stood still for ten minutes, and reads now.
        let trend = trend(600, |second| at("g", (second - 500).max(0) * 10, 0, 2_000));
        assert_eq!((trend.seconds, trend.consumed_per_second), (60.0, 10.0));
    }

    #[test]
    fn what_cannot_be_compared_begins_a_new_history() {
        let two_partitions = |second: i64| {
            let mut group = at("g", second, 0, 5_000);
            if second >= 50 {
                group.add("orders", 1, position(0, 0, 1_000_000));
            }
            group
        };
        for (what, all) in [
            ("a partition more", histories(60, two_partitions)),
            (
                "offsets that were reset",
                histories(60, |second| at("g", if second < 50 { 900 } else { 0 }, 0, 1_000)),
            ),
            (
                "a topic that was created again",
                histories(60, |second| at("g", 0, 0, if second < 50 { 900 } else { 10 })),
            ),
        ] {
            let untold = all.trend("g", 60_000).unwrap_err().0;
            assert!(untold.ends_with("and there are 10 s"), "{what}: {untold}");
        }
        let mut all = histories(60, |second| at("g", second, 0, 1_000));
        all.add(Progress {
            at_ms: 30_000,
            groups: vec![at("g", 100, 0, 1_000)],
        });
        assert!(all.trend("g", 30_000).is_err(), "a clock that went back");
    }

    #[test]
    fn the_same_answer_of_a_cluster_counts_once() {
        let mut all = histories(60, |second| at("g", second, 0, 1_000));
        let before = all.trend("g", 60_000).unwrap();
        all.add(Progress {
            at_ms: 60_000,
            groups: vec![at("g", 999, 0, 1_000)],
        });
        assert_eq!(all.trend("g", 60_000), Ok(before));
    }

    #[test]
    fn groups_are_bounded_by_their_lag_and_readings_by_their_number() {
        let mut all = Histories::default();
        for second in 0..100 {
            let group = |number: i64| at(&number.to_string(), 0, 0, number);
            all.add(Progress {
                at_ms: second * 1_000,
                groups: (0..GROUPS_MAX as i64 + 3).map(group).collect(),
            });
        }
        assert_eq!(all.0.len(), GROUPS_MAX);
        assert!(all.0.values().all(|readings| readings.len() == MINUTE_SAMPLES));
        assert_eq!(
            all.trend("2", 99_000).unwrap_err().0,
            "not known: only the 2,000 groups with the most lag have a trend"
        );
        assert!(!all.trend("3", 99_000).unwrap_err().0.contains("only"));
        all.add(Progress {
            at_ms: 100_000,
            groups: Vec::new(),
        });
        assert!(all.0.is_empty(), "groups that are gone are forgotten");
    }
}
