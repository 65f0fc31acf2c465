//! The lag of a group: records, the age of the oldest one that is still to be read, and how much of
//! that is known.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use ottla_lab::numbers::{count, duration, number};
use serde_json::{Map, Value, json};

use super::View;
use crate::draw::table::Cell;
use crate::draw::text::counted;
use crate::source::{Group, GroupOffset, TimeUnknown, Told, Untold};
use crate::trend::{Direction, Trend};

/// Less lag than this is the time that records are on their way.
pub const BEHIND_SECONDS: f64 = 10.0;

/// Records behind, and the age of the oldest record that is still to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Lag {
    pub records: i64,
    /// Of the partitions whose age is known; `None`: of none that is behind.
    pub seconds: Option<f64>,
    pub partitions: usize,
    /// Partitions that are behind, and it is not known since when.
    pub unknown: usize,
    pub why_unknown: BTreeSet<TimeUnknown>,
    /// Committed partitions were left out: there are these records and more.
    pub is_at_least: bool,
}

impl Lag {
    pub fn of(group: &Group, now_ms: i64) -> Lag {
        let offsets = group.offsets.iter();
        let mut lag = offsets.fold(Lag::none(), |lag, offset| lag.and(offset, now_ms));
        lag.is_at_least = group.cut_partitions > 0;
        lag
    }

    pub fn of_partition(offset: &GroupOffset, now_ms: i64) -> Lag {
        Lag::none().and(offset, now_ms)
    }

    fn none() -> Lag {
        Lag {
            records: 0,
            seconds: None,
            partitions: 0,
            unknown: 0,
            why_unknown: BTreeSet::new(),
            is_at_least: false,
        }
    }

    fn and(mut self, offset: &GroupOffset, now_ms: i64) -> Lag {
        self.records += offset.lag();
        self.partitions += 1;
        match offset.lag_seconds(now_ms) {
            Some(seconds) => self.seconds = Some(self.seconds.map_or(seconds, |most| most.max(seconds))),
            None => {
                self.unknown += 1;
                self.why_unknown.extend(offset.time_unknown);
            }
        }
        self
    }

    /// There is something to read, and it is not known of every partition since when.
    pub fn is_age_unknown(&self) -> bool {
        self.unknown > 0
    }

    /// The age where it is known of every partition.
    pub fn complete_seconds(&self) -> Option<f64> {
        self.seconds.filter(|_| !self.is_age_unknown())
    }

    pub fn is_bad(&self) -> bool {
        self.seconds.is_some_and(|seconds| seconds >= BEHIND_SECONDS)
    }

    /// `418,461`, or `≥ 418,461`.
    pub fn records(&self) -> String {
        let sign = if self.is_at_least { "≥ " } else { "" };
        format!("{sign}{}", count(self.records.max(0) as u64))
    }

    /// `90.1 s`, `≥ 90.1 s` where it is not known of every partition, `–` where nothing is.
    pub fn seconds(&self) -> String {
        match (self.seconds, self.unknown) {
            (Some(seconds), 0) => short(seconds),
            (Some(seconds), _) if seconds > 0.0 => format!("≥ {}", short(seconds)),
            _ => String::from("–"),
        }
    }

    /// `90.1 s`, `at least 90.1 s`; `None`: nothing is known.
    pub fn seconds_in_words(&self) -> Option<String> {
        match (self.seconds?, self.unknown) {
            (seconds, 0) => Some(short(seconds)),
            (seconds, _) => (seconds > 0.0).then(|| format!("at least {}", short(seconds))),
        }
    }

    /// `1 of 6 partitions not known: the next record is not in memory`; `None`: all are known.
    pub fn what_is_unknown(&self) -> Option<String> {
        let why: Vec<String> = self.why_unknown.iter().map(ToString::to_string).collect();
        let because = match why.is_empty() {
            true => String::new(),
            false => format!(": {}", why.join("; ")),
        };
        let of = counted(self.partitions, "partition");
        let unknown = count(self.unknown as u64);
        (self.unknown > 0).then(|| format!("{unknown} of {of} not known{because}"))
    }
}

/// - Errors: why it is not known, as a part of a sentence.
pub fn trend_of(view: &View<'_>, group: &Group) -> Told<Trend> {
    match group.offsets.is_empty() {
        true => Err(Untold(String::from("there is none: nothing is committed"))),
        false => (view.series.groups).trend(&group.group_id, view.source.now_ms()),
    }
}

pub fn trend_cell(trend: &Told<Trend>) -> Cell {
    let trend = match trend {
        Ok(trend) => trend,
        // The reason is on the group's page.
        Err(untold) => return Cell::from(untold.0.split(':').next().unwrap_or_default()),
    };
    let class = match trend.direction {
        Direction::Grows => "bad",
        Direction::Shrinks => "good",
        Direction::AsBefore => "q",
    };
    Cell::Mark {
        class,
        mark: trend.arrow(),
        word: trend.course(),
    }
}

/// What is known of a group's lag.
pub fn json_of(group: &Group, lag: &Lag, trend: &Told<Trend>) -> Map<String, Value> {
    let fields = json!({
        "group": group,
        "lag_records": lag.records,
        "lag_seconds": lag.complete_seconds(),
        "lag_seconds_known_max": lag.seconds,
        "partitions_without_lag_seconds": lag.unknown,
        "lag_trend": trend.as_ref().ok(),
        "lag_trend_untold": trend.as_ref().err(),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Worst first: by age where all ages are known, by records where one is not: the two have no order
/// with each other.
pub fn worst_first<T>(rows: &mut [(T, Lag)], name: impl Fn(&T, &T) -> Ordering) {
    let is_by_age = !rows.iter().any(|(_, lag)| lag.is_age_unknown());
    let age = |lag: &Lag| lag.seconds.filter(|_| is_by_age).unwrap_or(0.0);
    rows.sort_by(|(one, one_lag), (other, other_lag)| {
        let order = age(other_lag).total_cmp(&age(one_lag));
        order
            .then(other_lag.records.cmp(&one_lag.records))
            .then_with(|| name(one, other))
    });
}

/// Seconds with one decimal; longer times in words.
pub fn short(seconds: f64) -> String {
    match seconds {
        short if short < 120.0 => format!("{} s", number((short * 10.0).round() / 10.0)),
        long => duration(long),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(committed: i64, log_start: i64, log_end: i64, next_at_ms: Option<i64>) -> GroupOffset {
        GroupOffset {
            topic: "t".into(),
            partition: 0,
            committed,
            log_start,
            log_end,
            next_at_ms,
            time_unknown: None,
        }
    }

    #[test]
    fn what_retention_deleted_is_no_lag_and_a_commit_beyond_the_end_is_none() {
        assert_eq!(offset(10, 80, 100, None).lag(), 20);
        assert_eq!(offset(120, 0, 100, None).lag(), 0);
        assert_eq!(offset(100, 0, 100, None).lag_seconds(5_000), Some(0.0));
        assert_eq!(offset(90, 0, 100, Some(3_000)).lag_seconds(5_000), Some(2.0));
        assert_eq!(
            offset(90, 0, 100, Some(9_000)).lag_seconds(5_000),
            Some(0.0),
            "a clock that jumped"
        );
    }

    fn group(offsets: Vec<GroupOffset>) -> Group {
        Group {
            offsets,
            ..Group::default()
        }
    }

    #[test]
    fn a_group_is_as_late_as_its_latest_partition() {
        let lag = Lag::of(
            &group(vec![
                offset(90, 0, 100, Some(3_000)),
                offset(99, 0, 100, Some(4_500)),
            ]),
            5_000,
        );
        assert_eq!((lag.records, lag.complete_seconds()), (11, Some(2.0)));
        assert_eq!((lag.seconds(), lag.what_is_unknown()), ("2 s".into(), None));
    }

    /// One partition of unknown age took the age of the whole group.
    #[test]
    fn where_one_age_is_not_known_those_of_the_others_are_told() {
        let mut cold = offset(0, 0, 5, None);
        cold.time_unknown = Some(TimeUnknown::NotInMemory);
        let mut offsets = vec![cold.clone(), offset(90, 0, 100, Some(3_000))];
        let lag = Lag::of(&group(offsets.clone()), 5_000);
        assert_eq!((lag.seconds, lag.complete_seconds()), (Some(2.0), None));
        assert_eq!(lag.seconds(), "≥ 2 s");
        assert_eq!(lag.seconds_in_words().as_deref(), Some("at least 2 s"));
        assert_eq!(
            lag.what_is_unknown().as_deref(),
            Some("1 of 2 partitions not known: the next record is not in memory")
        );
        // What has been read says nothing of the other.
        offsets[1] = offset(100, 0, 100, None);
        let lag = Lag::of(&group(offsets), 5_000);
        assert_eq!((lag.seconds(), lag.seconds_in_words()), ("–".into(), None));
    }
}
