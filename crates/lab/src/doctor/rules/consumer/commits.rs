//! Commits that the application waits for.
//!
//! `commitSync` returns when the coordinator has answered: a round trip and, with acks=all, a sync
//! of `__consumer_offsets`. After every record, or every poll of a few, that is most of the
//! consumer's time, and looks like work. Java sends the time that its thread spends in it; of other
//! clients Ottla counts the commits, and a commit takes a round trip and the broker's time.

use super::super::super::diagnosis::{Confidence, Evidence, Promise, Recommendation};
use super::super::engine::PROMISE_WIDTH;
use super::fetches::RATE_VARIES;
use super::found::promise;
use super::reading::{Reading, sane};
use crate::numbers::{number, percent};

/// The share of time from which commits, not work, are what leaves no time.
const SHARE: f64 = 0.5;
/// What is left of the time when commits are made once a second.
const PER_SECOND: f64 = 1.0;
/// Less time than this for everything but commits would rest on the errors of the shares.
const REST_MIN: f64 = 0.05;

const ASSUMPTION: &str = "what is written, and more while it catches up";
/// The same of commits that only the broker counts. Less may be work on each record with an
/// asynchronous commit after it, which takes the client no time; with more, commits are under way
/// at the same time, and nothing waits for them.
const COUNTED_SHARE: f64 = 0.8;
const COUNTED_SHARE_MAX: f64 = 1.1;

/// Time in synchronous commits.
#[derive(Clone, Copy)]
pub struct Commits {
    /// Of the application's time.
    share: f64,
    per_second: f64,
    /// Unknown where no poll of the window has brought any: those of the last take long.
    records_per_second: Option<f64>,
    /// Only the broker counted them.
    is_counted: bool,
}

/// Returns the commits that take most of the consumer's time.
pub fn waited_for(reading: &Reading<'_>) -> Option<Commits> {
    told(reading).or_else(|| counted(reading).filter(|commits| commits.share >= COUNTED_SHARE))
}

/// Returns a note on commits that would take much of the time if the application waits for each,
/// which their count does not tell.
pub fn may_be_waited_for(reading: &Reading<'_>) -> Option<String> {
    let commits = counted(reading).filter(|commits| (SHARE..COUNTED_SHARE).contains(&commits.share))?;
    Some(format!(
        "its commits, {}, take {} of the time if it waits for each: then commit once a second, or asynchronously",
        commits.each(),
        percent(commits.share)
    ))
}

/// As the client tells of its own thread.
fn told(reading: &Reading<'_>) -> Option<Commits> {
    let consumer = reading.consumer;
    let share = sane(consumer.commit_wait)?.min(1.0);
    Some(Commits {
        share,
        per_second: sane(consumer.commits_per_second).filter(|rate| *rate > 0.0)?,
        records_per_second: reading.consumed.filter(|rate| *rate > 0.0),
        is_counted: false,
    })
    .filter(|_| share >= SHARE)
}

/// As the coordinator counts them: one after the other they take this time.
fn counted(reading: &Reading<'_>) -> Option<Commits> {
    if reading.consumer.commit_wait.is_some() {
        return None;
    }
    let of_sides = reading.sides().filter_map(|side| {
        let per_second = sane(side.commits_per_second).filter(|rate| *rate > 0.0)?;
        Some((per_second, sane(side.commit_ms)?))
    });
    let (per_second, broker_ms) = of_sides.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let share = per_second * (reading.round_trip_ms? + broker_ms) / 1_000.0;
    (share <= COUNTED_SHARE_MAX).then_some(Commits {
        share: share.min(1.0),
        per_second,
        records_per_second: reading.consumed.filter(|rate| *rate > 0.0),
        is_counted: true,
    })
}

impl Commits {
    fn ms(&self) -> f64 {
        1_000.0 * self.share / self.per_second
    }

    /// That the application waits for what the broker counts is likely, not seen.
    pub fn confidence(&self) -> Confidence {
        match self.is_counted {
            true => Confidence::Medium,
            false => Confidence::High,
        }
    }

    fn records(&self) -> Option<f64> {
        Some(self.records_per_second? / self.per_second)
    }

    fn each(&self) -> String {
        match self.records() {
            None => format!("{} a second", number(self.per_second)),
            Some(records) if records < 1.5 => "one for each record".to_owned(),
            Some(records) => format!("one for every {} records", number(records)),
        }
    }

    pub fn summary(&self) -> String {
        let (share, each) = (percent(self.share), self.each());
        match self.is_counted {
            true => format!("It falls behind because its commits take {share} of the time, {each}."),
            false => format!("It falls behind because it waits {share} of the time for its commits, {each}."),
        }
    }

    pub fn line(&self) -> Option<Evidence> {
        let records_per_second = self.records_per_second?;
        let line = Evidence::new(
            "F29",
            "commits",
            "X / commits/s",
            records_per_second / self.per_second,
            "records for each commit",
        );
        Some(
            line.measured("X", records_per_second, "records/s")
                .measured("commits/s", self.per_second, ""),
        )
    }

    pub fn fewer(&self, reading: &Reading<'_>) -> Recommendation {
        let promise = match self.records_per_second {
            Some(now) => self.promise(reading, now),
            None => Promise {
                unknown: Some("how many records it reads: no poll of this window has brought any".to_owned()),
                ..promise("records_per_second", None, (0.0, 0.0), "records/s", ASSUMPTION)
            },
        };
        Recommendation {
            set: match self.is_counted {
                true => "commit once a second, or asynchronously, instead of every time".to_owned(),
                false => {
                    "commit once a second, or commitAsync(), instead of commitSync() every time".to_owned()
                }
            },
            why: format!(
                "a commit takes {} ms whether it is for one record or for a thousand",
                number(self.ms())
            ),
            promise,
            next_ceiling: "the work on the records, which was not measured without the commits".to_owned(),
            cost: "after a failure the records since the last commit are read again".to_owned(),
        }
    }

    fn promise(&self, reading: &Reading<'_>, now: f64) -> Promise {
        let rest = (1.0 - self.share).max(REST_MIN);
        let most = now * (1.0 - PER_SECOND * self.ms() / 1_000.0).max(rest) / rest;
        let written = reading
            .produced
            .filter(|rate| *rate > now)
            .unwrap_or(f64::INFINITY);
        let least = (0.7 * most).min(RATE_VARIES * written);
        let mut promise = promise(
            "records_per_second",
            Some(now),
            (least, most.min(PROMISE_WIDTH * least)),
            "records/s",
            ASSUMPTION,
        );
        if written.is_infinite() && 1.0 - self.share < REST_MIN {
            promise.unknown = Some("how little the work on a record takes without commits".to_owned());
        }
        promise
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, of, partitions};
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::snapshot::{BrokerSide, Consumer};

    /// One commit for each record, across 40 ms.
    fn each() -> Consumer {
        Consumer {
            records_per_second: Some(24.0),
            bytes_per_second: Some(12_000.0),
            fetch_bytes: Some(100_000.0),
            fetch_ms: Some(60.0),
            fetches_per_second: Some(0.1),
            poll_idle_share: Some(0.01),
            commits_per_second: Some(24.0),
            commit_ms: Some(40.6),
            commit_wait: Some(0.975),
            assigned_partitions: Some(6.0),
            partitions: partitions(&[(900.0, 62.0, 4.0); 6]),
            ..Consumer::default()
        }
    }

    #[test]
    fn a_commit_for_each_record_is_what_takes_the_time() {
        let mut snapshot = of(each());
        snapshot.settings.max_poll_interval_ms = super::super::samples::stated(300_000.0);
        let diagnosis = check(&snapshot, Verdict::Processing);
        assert!(
            diagnosis.summary.contains("for its commits, one for each record"),
            "{}",
            diagnosis.summary
        );
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("commit once a second"), "{}", change.set);
        assert!(
            change.promise.low > 300.0,
            "what is written, 396/s: {:?}",
            change.promise
        );
        let refuses_polls = |refusal: &crate::doctor::diagnosis::Refusal| refusal.set == "max.poll.records";
        assert!(
            !diagnosis.refused.iter().any(refuses_polls),
            "a commit for each poll"
        );
    }

    // As it was measured: polls are 20 s apart, so that there is no sample of their idle share, and
    // a fetch waits at the broker all the time.
    #[test]
    fn commits_are_seen_without_a_sample_of_polls() {
        let mut snapshot = of(Consumer {
            poll_idle_share: None,
            ms_between_polls: Some(20_000.0),
            fetches_per_second: Some(2.0),
            fetch_ms: Some(500.0),
            ..each()
        });
        snapshot.brokers = vec![BrokerSide {
            bytes_per_second: Some(12_000.0),
            cold_reads_per_second: Some(1.0),
            cold_read_ms: Some(2.0),
            cold_bytes_per_second: Some(10_000.0),
            ..BrokerSide::default()
        }];
        let diagnosis = check(&snapshot, Verdict::Processing);
        assert!(
            diagnosis.summary.contains("for its commits"),
            "{}",
            diagnosis.summary
        );
    }

    /// librdkafka and franz-go tell nothing of their commits; Ottla counts them.
    #[test]
    fn commits_that_the_broker_counts_are_what_takes_the_time_of_a_client_that_tells_nothing() {
        let counted = |per_second: f64| {
            let mut snapshot = of(Consumer {
                commits_per_second: None,
                commit_ms: None,
                commit_wait: None,
                ..each()
            });
            snapshot.network.round_trip_ms = Some(40.0);
            snapshot.brokers = vec![BrokerSide {
                commits_per_second: Some(per_second),
                commit_ms: Some(1.0),
                ..BrokerSide::default()
            }];
            let diagnosis = check(&snapshot, Verdict::Processing);
            let is_blamed = diagnosis.summary.contains("its commits take");
            let is_guessed = diagnosis.notes.iter().any(|note| note.contains("commit"));
            (is_blamed, is_guessed)
        };
        assert_eq!(counted(24.0), (true, false));
        assert_eq!(counted(2.0), (false, false), "a few");
        assert_eq!(counted(16.0), (false, true), "perhaps asynchronous ones");
        assert_eq!(counted(60.0), (false, false), "more than can be waited for");
    }

    /// As it was measured: a poll of 500 records is followed by 20 s of commits, and a shorter
    /// window has no poll. The doctor advised a faster handler.
    #[test]
    fn commits_are_seen_where_no_poll_of_the_window_brought_records() {
        let mut snapshot = of(Consumer {
            records_per_second: Some(0.0),
            bytes_per_second: Some(0.0),
            partitions: partitions(&[(3_068.0, 203.0, 0.0)]),
            ..each()
        });
        snapshot.settings.max_poll_interval_ms = super::super::samples::stated(300_000.0);
        let diagnosis = check(&snapshot, Verdict::Processing);
        assert!(
            diagnosis
                .summary
                .contains("97.5 % of the time for its commits, 24 a second"),
            "{}",
            diagnosis.summary
        );
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("commit once a second"), "{}", change.set);
        assert!(change.promise.unknown.is_some(), "{:?}", change.promise);
    }

    #[test]
    fn commits_that_take_little_time_are_not_blamed() {
        let snapshot = of(Consumer {
            commit_wait: Some(0.1),
            ..each()
        });
        let diagnosis = check(&snapshot, Verdict::Processing);
        assert!(!diagnosis.summary.contains("commits"), "{}", diagnosis.summary);
    }
}
