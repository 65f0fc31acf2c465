//! Commits that the application waits for.
//!
//! `commitSync` returns when the coordinator has answered: a round trip and, with acks=all, a sync
//! of `__consumer_offsets`. After every record, or every poll of a few, that is most of the
//! consumer's time, and looks like work. Java sends the time that its thread spends in it.

use super::super::super::diagnosis::{Evidence, Recommendation};
use super::fetches::{PROMISE_WIDTH_MAX, RATE_VARIES};
use super::found::promise;
use super::reading::{Reading, sane};
use crate::numbers::{number, percent};

/// The share of time from which commits, not work, are what leaves no time.
const SHARE: f64 = 0.5;
/// What is left of the time when commits are made once a second.
const PER_SECOND: f64 = 1.0;
/// Less time than this for everything but commits would rest on the errors of the shares.
const REST_MIN: f64 = 0.05;

/// Time in synchronous commits.
#[derive(Clone, Copy)]
pub struct Commits {
    /// Of the application's time.
    share: f64,
    per_second: f64,
    records_per_second: f64,
}

/// Returns the commits that take most of the consumer's time.
pub fn waited_for(reading: &Reading<'_>) -> Option<Commits> {
    let consumer = reading.consumer;
    let commits = Commits {
        share: sane(consumer.commit_wait)?.min(1.0),
        per_second: sane(consumer.commits_per_second).filter(|rate| *rate > 0.0)?,
        records_per_second: reading.consumed.filter(|rate| *rate > 0.0)?,
    };
    (commits.share >= SHARE).then_some(commits)
}

impl Commits {
    fn ms(&self) -> f64 {
        1_000.0 * self.share / self.per_second
    }

    fn records(&self) -> f64 {
        self.records_per_second / self.per_second
    }

    pub fn summary(&self) -> String {
        let each = match self.records() {
            records if records < 1.5 => "one for each record".to_owned(),
            records => format!("one for every {} records", number(records)),
        };
        format!(
            "It falls behind because it waits {} of the time for its commits, {each}.",
            percent(self.share)
        )
    }

    pub fn line(&self) -> Evidence {
        Evidence::new(
            "F29",
            "commits",
            "X / commits/s",
            self.records(),
            "records for each commit",
        )
        .measured("X", self.records_per_second, "records/s")
        .measured("commits/s", self.per_second, "")
    }

    pub fn fewer(&self, reading: &Reading<'_>) -> Recommendation {
        let rest = (1.0 - self.share).max(REST_MIN);
        let most = self.records_per_second * (1.0 - PER_SECOND * self.ms() / 1_000.0).max(rest) / rest;
        let now = self.records_per_second;
        let written = reading
            .produced
            .filter(|rate| *rate > now)
            .unwrap_or(f64::INFINITY);
        let least = (0.7 * most).min(RATE_VARIES * written);
        let mut promise = promise(
            "records_per_second",
            Some(now),
            (least, most.min(PROMISE_WIDTH_MAX * least)),
            "records/s",
            "what is written, and more while it catches up",
        );
        if written.is_infinite() && 1.0 - self.share < REST_MIN {
            promise.unknown = Some("how little the work on a record takes without commits".to_owned());
        }
        Recommendation {
            set: "commit once a second, or commitAsync(), instead of commitSync() every time".to_owned(),
            why: format!(
                "a commit takes {} ms whether it is for one record or for a thousand",
                number(self.ms())
            ),
            promise,
            next_ceiling: "the work on the records, which was not measured without the commits".to_owned(),
            cost: "after a failure the records since the last commit are read again".to_owned(),
        }
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
