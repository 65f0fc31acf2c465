//! consumer 1: is the group rebalancing?
//!
//! While a group rebalances, members do not read the partitions that move, which with an eager
//! assignor are all, and the window's rates mix two assignments. Which assignor it has is not
//! known, so that many rebalances alone, as when members are replaced one after the other, are no
//! certain reason: the confidence is high where its members fall behind.
//! The first join of an instance does not count as a rebalance, and one that costs next to nothing,
//! as when a member is added, is only noted. A member that does not poll within
//! max.poll.interval.ms leaves the group; its partitions move to other members, which then become
//! slower in turn: a rebalance storm. The interval is compared where the broker saw it in the join
//! or the owner stated it; a default that is only assumed says nothing. Apache Kafka tells neither
//! the interval nor why a member left. There a client that runs on, leaves its group and joins
//! again while its polls are seconds apart has polled later than the interval allows.
//!
//! - Numbers: rebalances in the window and how long they took, seconds since the last heartbeat,
//!   time between polls against max.poll.interval.ms, members that were expelled, how often it left
//!   and came back.
//! - Thresholds: a member that polled late; one that left, came back, rebalanced its group by that
//!   and lets a second pass between two polls; three rebalances in a window, or 0.05 of its time;
//!   no heartbeat for two thirds of session.timeout.ms (45 s where it is not known).
//! - Says: "The group rebalances again and again because worker-2 polls later than
//!   max.poll.interval.ms allows (6 s)."
//! - Source: user reports of rebalance storms; KIP-62.

use super::super::super::diagnosis::{Confidence, Evidence, Promise, Recommendation, Verdict};
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use crate::numbers::{duration, number, plain};

/// The default of `session.timeout.ms`.
const SESSION_MS: f64 = 45_000.0;

/// A rebalance that takes longer than this stops the group noticeably.
const REBALANCE_MS_MAX: f64 = 1_000.0;

/// From this number in a window on, it is no single change of the group.
const STORM_MIN: f64 = 3.0;

/// The share of the window from which the time lost to rebalances counts.
const LOST_MIN: f64 = 0.05;

/// Polls of an application with time follow each other faster.
const LATE_POLL_MS: f64 = 1_000.0;

/// Kafka's default of `max.poll.interval.ms`.
const POLL_INTERVAL_MS: f64 = 300_000.0;

pub fn rebalancing(reading: &Reading<'_>) -> Found {
    let signs = Signs::of(reading);
    let numbers = signs.in_words();
    let Some((summary, confidence)) = signs.verdict(reading) else {
        return match signs.remark(reading) {
            Some(remark) => Found::nothing(numbers, remark.clone()).note(remark),
            None => Found::nothing(numbers, "no"),
        };
    };
    let mut found = Found::verdict(numbers, Verdict::Rebalancing, confidence, summary)
        .recommend(signs.calm(reading))
        .refuse(
            "fetch sizes",
            "partitions that move are not fetched at all meanwhile",
        );
    if signs.has_polled_late {
        found = found.refuse(
            "more consumers",
            "each that joins makes the group rebalance once more, and polls as late with as many records at a time",
        );
    }
    if signs.lost > 0.0 {
        let expression = "count * took / 1000 / window";
        let line = Evidence::new("rebalances", "lost", expression, signs.lost, "of the time")
            .measured("count", signs.count.max(1.0), "")
            .measured("took", signs.took_ms.unwrap_or(0.0), "ms")
            .measured("window", reading.snapshot.seconds, "s");
        found = found.evidence([line]);
    }
    if !signs.has_polled_late {
        found = found.missing("who joined or left, and why: the coordinator's log says it");
    } else if signs.limit_ms.is_none() {
        found = found.missing("max.poll.interval.ms of the members that left");
    }
    found
}

/// The signs of a rebalancing group.
struct Signs {
    count: f64,
    took_ms: Option<f64>,
    /// The share of the window in which the group rebalanced.
    lost: f64,
    heartbeat_gap_s: Option<f64>,
    /// From this gap on the member is about to be expelled.
    gap_max_s: f64,
    poll_ms: Option<f64>,
    /// The value of max.poll.interval.ms, where it is known.
    limit_ms: Option<f64>,
    /// How often it left and came back, for a reason that no broker tells.
    rejoined: f64,
    /// A member left, or is about to leave, because it did not poll.
    has_polled_late: bool,
}

impl Signs {
    fn of(reading: &Reading<'_>) -> Signs {
        let consumer = reading.consumer;
        let limit_ms = reading.poll_interval_ms();
        let poll_ms = sane(consumer.ms_between_polls_max);
        let count = sane(consumer.rebalances).unwrap_or(0.0);
        let took_ms = [consumer.rebalance_ms_max, consumer.rebalance_ms]
            .into_iter()
            .find_map(sane);
        let lost = count.max(1.0) * took_ms.unwrap_or(0.0) / 1_000.0 / reading.snapshot.seconds;
        let session = reading.snapshot.settings.session_timeout_ms;
        let session_ms = session
            .filter(|setting| setting.origin.is_known())
            .and_then(|setting| sane(Some(setting.value)))
            .filter(|ms| *ms > 0.0)
            .unwrap_or(SESSION_MS);
        let is_late = poll_ms
            .zip(limit_ms)
            .is_some_and(|(between, limit)| between >= limit);
        let rejoined = sane(consumer.rejoined).unwrap_or(0.0);
        Signs {
            count,
            took_ms,
            lost: if lost.is_finite() {
                lost.clamp(0.0, 1.0)
            } else {
                0.0
            },
            heartbeat_gap_s: sane(consumer.heartbeat_gap_s),
            gap_max_s: 2.0 / 3.0 * session_ms / 1_000.0,
            poll_ms,
            limit_ms,
            rejoined,
            has_polled_late: !consumer.expelled.is_empty()
                || is_late
                || has_left_between_polls(reading, rejoined, count),
        }
    }

    fn in_words(&self) -> String {
        [
            known("rebalances", Some(self.count), ""),
            known("longest", self.took_ms, "ms"),
            known("left and came back", Some(self.rejoined), "times"),
            known("last heartbeat", self.heartbeat_gap_s, "s ago"),
            known("longest time between polls", self.poll_ms, "ms"),
            known("max.poll.interval.ms", self.limit_ms, "ms"),
        ]
        .join(", ")
    }

    fn verdict(&self, reading: &Reading<'_>) -> Option<(String, Confidence)> {
        if self.has_polled_late {
            let who = match reading.consumer.expelled.first() {
                Some(member) => member.as_str(),
                None => reading.name(),
            };
            let limit = match self.limit_ms {
                Some(limit) => format!(" ({})", duration(limit / 1_000.0)),
                None => String::new(),
            };
            let summary = format!(
                "The group rebalances again and again because {who} polls later than max.poll.interval.ms allows{limit}."
            );
            let is_told = !reading.consumer.expelled.is_empty() || self.limit_ms.is_some();
            let confidence = if is_told {
                Confidence::High
            } else {
                Confidence::Medium
            };
            return Some((summary, confidence));
        }
        let window = duration(reading.snapshot.seconds.max(0.0));
        let is_storm = self.count >= STORM_MIN;
        if is_storm || (self.count > 0.0 && self.lost >= LOST_MIN) {
            let summary = format!(
                "The group rebalanced {} in {window}, and while it does nobody reads the partitions that move.",
                times(self.count)
            );
            let confidence = if is_storm && reading.is_behind() {
                Confidence::High
            } else {
                Confidence::Medium
            };
            return Some((summary, confidence));
        }
        let is_member = reading.snapshot.client.group_id.is_some() || reading.partitions.is_some();
        let gap = self
            .heartbeat_gap_s
            .filter(|gap| *gap > self.gap_max_s && is_member)?;
        let summary = format!(
            "It has sent no heartbeat for {}: the group is about to remove it.",
            duration(gap)
        );
        Some((summary, Confidence::Medium))
    }

    /// A rebalance that is over and cost little.
    fn remark(&self, reading: &Reading<'_>) -> Option<String> {
        let is_slow = self.took_ms.is_some_and(|ms| ms > REBALANCE_MS_MAX);
        (self.count > 0.0 || is_slow).then(|| {
            let took = match self.took_ms.filter(|ms| *ms > 0.0) {
                Some(ms) => format!(", for {} at the longest", duration(ms / 1_000.0)),
                None => String::new(),
            };
            format!(
                "the group rebalanced {} in {}{took}: the rates of this window mix two assignments",
                times(self.count.max(1.0)),
                duration(reading.snapshot.seconds.max(0.0))
            )
        })
    }

    fn calm(&self, reading: &Reading<'_>) -> Option<Recommendation> {
        if !self.has_polled_late {
            return Some(Recommendation {
                set: String::from(
                    "group.instance.id for members that restart; the cooperative assignor or group.protocol=consumer",
                ),
                why: String::from(
                    "members come and go; static members keep their partitions, cooperative ones go on reading",
                ),
                promise: self.promise("who joined or left, and why"),
                next_ceiling: String::from("the tests after this one, on a window without rebalances"),
                cost: String::from(
                    "a static member that is gone keeps its partitions until the session ends",
                ),
            });
        }
        let (set, why, cost) = self.poll_sooner(reading)?;
        Some(Recommendation {
            set,
            why,
            promise: promise(
                "members_that_poll_late",
                Some((reading.consumer.expelled.len() as f64).max(1.0)),
                (0.0, 0.0),
                "members",
                "the work on a record takes as long as now",
            ),
            next_ceiling: String::from("the tests after this one, on a window without rebalances"),
            cost,
        })
    }

    fn promise(&self, unknown: &str) -> Promise {
        promise(
            "time_lost_to_rebalances",
            Some(self.lost),
            (self.lost, self.lost),
            "of the time",
            unknown,
        )
    }

    /// Either the interval is unusually short, or a poll hands over too much work.
    fn poll_sooner(&self, reading: &Reading<'_>) -> Option<(String, String, String)> {
        let between = self.poll_ms.unwrap_or(0.0);
        // It left before this time had passed, so the interval is shorter.
        let less_than = self.poll_ms.filter(|_| self.rejoined > 0.0);
        if let Some(limit) = self.limit_ms.or(less_than)
            && limit < POLL_INTERVAL_MS
            && between < 0.5 * POLL_INTERVAL_MS
        {
            let is = if self.limit_ms.is_some() {
                "is"
            } else {
                "is less than"
            };
            return Some((
                format!("max.poll.interval.ms={}", plain(POLL_INTERVAL_MS)),
                format!(
                    "Kafka's default; it {is} {} here, less than the work on one poll's records takes",
                    duration(limit / 1_000.0)
                ),
                String::from("a member that hangs is noticed later"),
            ));
        }
        let cost = String::from("more polls for the same records");
        let why = String::from("a poll's records must be worked on within max.poll.interval.ms");
        let mean_ms = sane(reading.consumer.ms_between_polls).filter(|ms| *ms > 0.0);
        let per_poll = mean_ms
            .zip(reading.consumed)
            .map(|(ms, rate)| rate * ms / 1_000.0)
            .filter(|records| *records >= 2.0);
        let set = match per_poll {
            Some(records) => {
                // Half of the interval for the slowest poll, where both are known.
                let share = self
                    .limit_ms
                    .filter(|_| between > 0.0)
                    .map_or(0.5, |limit| (0.5 * limit / between).min(0.5));
                format!(
                    "max.poll.records={} (a poll hands over {} now), or work outside the polling thread",
                    plain((share * records).floor().max(1.0)),
                    number(records)
                )
            }
            None => String::from("max.poll.records lower, or work outside the polling thread"),
        };
        Some((set, why, cost))
    }
}

/// Whether a client that runs on left its group between two polls. It counts the rebalances that it
/// has seen itself, so a restart is none.
fn has_left_between_polls(reading: &Reading<'_>, rejoined: f64, rebalances: f64) -> bool {
    let telemetry = &reading.snapshot.telemetry;
    let has_ended = telemetry.pushes.is_some() && telemetry.seconds_until_next_push.is_none();
    let runs_on = !telemetry.restarted && !telemetry.is_silent && !has_ended;
    let between = sane(reading.consumer.ms_between_polls_max);
    runs_on && rejoined >= 1.0 && rebalances >= 1.0 && between.is_some_and(|between| between >= LATE_POLL_MS)
}

/// `once`, `3 times`.
fn times(count: f64) -> String {
    if count <= 1.0 {
        String::from("once")
    } else {
        format!("{} times", number(count))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{check, idle, of, slow_work, stated};
    use super::*;
    use crate::doctor::snapshot::Consumer;

    #[test]
    fn a_short_interval_is_named_with_its_value_and_an_unknown_one_is_not() {
        let late = Consumer {
            expelled: vec![String::from("worker-2")],
            ms_between_polls_max: Some(9_000.0),
            ..slow_work()
        };
        let mut snapshot = of(late);
        let diagnosis = check(&snapshot, Verdict::Rebalancing);
        assert!(!diagnosis.summary.contains("min"), "{}", diagnosis.summary);
        assert!(
            diagnosis
                .missing
                .iter()
                .any(|words| words.contains("max.poll.interval.ms"))
        );
        snapshot.settings.max_poll_interval_ms = stated(6_000.0);
        let diagnosis = check(&snapshot, Verdict::Rebalancing);
        assert_eq!(
            diagnosis.summary,
            "The group rebalances again and again because worker-2 polls later than max.poll.interval.ms allows (6 s)."
        );
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "max.poll.interval.ms=300000");
    }

    /// Measured beside Apache Kafka with max.poll.interval.ms=6000 and 10 s of work on each poll's
    /// records, which tells neither.
    #[test]
    fn a_client_that_leaves_and_comes_back_between_polls_polls_too_late() {
        use crate::doctor::snapshot::Telemetry;
        let mut snapshot = of(Consumer {
            records_per_second: Some(17.0),
            rebalances: Some(1.0),
            rebalance_ms: Some(12.0),
            ms_between_polls: Some(320.0),
            ms_between_polls_max: Some(10_020.0),
            rejoined: Some(1.0),
            // Forty polls before the first record, and one every ten seconds since.
            poll_idle_share: Some(0.97),
            ..slow_work()
        });
        snapshot.seconds = 18.0;
        snapshot.telemetry = Telemetry {
            pushes: Some(18),
            seconds_until_next_push: Some(0.4),
            ..Telemetry::default()
        };
        let diagnosis = check(&snapshot, Verdict::Rebalancing);
        assert_eq!(diagnosis.confidence, Confidence::Medium);
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "max.poll.interval.ms=300000");
        assert!(change.why.contains("less than 10 s"), "{}", change.why);
        let changes: [fn(&mut crate::doctor::Snapshot); 4] = [
            // Its own group did not rebalance: it is another client's name.
            |other| other.consumer.as_mut().unwrap().rebalances = Some(0.0),
            |other| other.consumer.as_mut().unwrap().rejoined = None,
            |other| other.consumer.as_mut().unwrap().ms_between_polls_max = Some(120.0),
            // It said good-bye.
            |other| other.telemetry.seconds_until_next_push = None,
        ];
        for change in changes {
            let mut other = snapshot.clone();
            change(&mut other);
            let verdict = super::super::diagnose(&other).verdict;
            assert_ne!(verdict, Verdict::Rebalancing, "{other:#?}");
        }
        // Nor do its fetches keep it back, whatever the mean of its polls says.
        snapshot.consumer.as_mut().unwrap().rejoined = None;
        let verdict = super::super::diagnose(&snapshot).verdict;
        assert!(
            !matches!(verdict, Verdict::FetchSize | Verdict::FetchWait),
            "{verdict:?}"
        );
    }

    #[test]
    fn members_that_are_replaced_one_after_the_other_may_read_on() {
        let rolling = |consumer: Consumer| {
            let snapshot = of(Consumer {
                rebalances: Some(4.0),
                ..consumer
            });
            check(&snapshot, Verdict::Rebalancing);
            let found = rebalancing(&Reading::of(&snapshot, snapshot.consumer.as_ref().unwrap()));
            found.verdict.map(|(_, confidence)| (confidence, found.summary))
        };
        let (confidence, summary) = rolling(idle()).unwrap();
        assert_eq!(confidence, Confidence::Medium);
        assert!(
            summary.ends_with("nobody reads the partitions that move."),
            "{summary}"
        );
        // Its group falls behind meanwhile.
        let behind = rolling(slow_work()).map(|(confidence, _)| confidence);
        assert_eq!(behind, Some(Confidence::High));
    }

    #[test]
    fn long_polls_are_late_only_against_an_interval_that_is_known() {
        let mut snapshot = of(Consumer {
            ms_between_polls_max: Some(310_000.0),
            ..idle()
        });
        check(&snapshot, Verdict::KeepsUp);
        snapshot.settings.max_poll_interval_ms = stated(300_000.0);
        check(&snapshot, Verdict::Rebalancing);
        snapshot.settings.max_poll_interval_ms = stated(900_000.0);
        check(&snapshot, Verdict::KeepsUp);
    }
}
