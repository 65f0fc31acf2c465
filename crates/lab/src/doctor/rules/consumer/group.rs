//! Tests 0 to 2 and 9 of consumers: evidence, the group's rebalances, quotas, idle members.

use super::super::super::diagnosis::{Confidence, Evidence, FindingId, Recommendation, Verdict};
use super::super::super::snapshot::{Consumer, Library, Snapshot};
use super::found::{Found, known, promise};
use super::reading::{Reading, sane};
use crate::numbers::{bytes, duration, number, percent, plain};

/// Five missed heartbeats at one per 3 s; a third of the 45 s session timeout.
const HEARTBEAT_GAP_MAX_S: f64 = 15.0;

/// A rebalance that takes longer than this stops the group noticeably.
const REBALANCE_MS_MAX: f64 = 1_000.0;

/// consumer 0 Is there evidence?
///
/// At least two pushes, or a complete reading that was not pushed, and no restart in the window. A
/// client that never pushes is judged by the group's lag and its fetches as the brokers see them.
/// Unlike for a producer, no minimum number of requests is required: a consumer that waits for
/// records or processes them fetches at most twice a second, and that is the evidence.
///
/// - Numbers: pushes, the window's length, whether the instance restarted.
/// - Thresholds: 2 pushes.
/// - Says: "not enough data yet: 1 push; next push in 4 s"; for clients that send little, what is
///   missing.
/// - Source: decision tree, S0; measured here (0.17 fetches/s of a consumer that processes, 2 of
///   one that waits).
pub fn evidence(snapshot: &Snapshot) -> Option<String> {
    let telemetry = &snapshot.telemetry;
    if telemetry.restarted {
        return Some(String::from(
            "not enough data yet: the instance started again within the window",
        ));
    }
    let has_lag = |consumer: &Consumer| consumer.lag_max.is_some() || !consumer.partitions.is_empty();
    let is_seen = telemetry.pushes == Some(0) && snapshot.consumer.as_ref().is_some_and(has_lag);
    match telemetry.pushes {
        Some(pushes) if pushes < 2 && !is_seen => {
            let plural = if pushes == 1 { "push" } else { "pushes" };
            let next = match telemetry.seconds_until_next_push.filter(|seconds| *seconds > 0.0) {
                Some(seconds) => format!("; next push in {}", duration(seconds)),
                None => String::new(),
            };
            Some(format!("not enough data yet: {pushes} {plural}{next}"))
        }
        _ => None,
    }
}

/// Describes what cannot be observed of this client.
pub fn unseen(snapshot: &Snapshot) -> Vec<String> {
    let client = &snapshot.client;
    let called = match (&client.software_name, &client.software_version) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        (Some(name), None) => name.clone(),
        _ => String::from("name and version unknown"),
    };
    let mut words = Vec::new();
    if snapshot.consumer.is_none() || snapshot.telemetry.pushes == Some(0) {
        words.push(format!(
            "The client ({called}) does not push metrics: too old, enable.metrics.push=false, no matching subscription, or not \
             supported by the library. What is said comes from the broker."
        ));
    }
    match client.library {
        Library::Librdkafka => words.push(String::from(
            "This client sends at most 13 metrics: lag, records and fetch sizes cannot be seen, only how long it waits in polls and \
             fetches. The group's lag and the bytes are taken from the broker.",
        )),
        Library::FranzGo => words.push(String::from(
            "This client sends connections, request and commit latencies only: polls, lag and fetches cannot be seen.",
        )),
        Library::Java | Library::Ottla | Library::Unknown => {}
    }
    words
}

/// consumer 1 Is the group rebalancing?
///
/// While a group rebalances its members do not read, and the window's rates mix two assignments.
/// The first join of an instance does not count as a rebalance. A member that does not poll within
/// max.poll.interval.ms leaves the group; its partitions move to other members, which then become
/// slower in turn: a rebalance storm.
///
/// - Numbers: rebalances in the window and how long they took, seconds since the last heartbeat,
///   time between polls against max.poll.interval.ms, members that were expelled.
/// - Thresholds: any rebalance, or one longer than 1 s; no heartbeat for 15 s.
/// - Says: "REBALANCING: 3 rebalances in 60 s; worker-2 left because it did not poll within 300 s".
/// - Source: user reports of rebalance storms; KIP-62.
pub fn rebalancing(reading: &Reading<'_>) -> Found {
    let signs = Signs::of(reading);
    let numbers = signs.in_words();
    let reasons = signs.reasons(reading);
    if reasons.is_empty() {
        return Found::nothing(numbers, "no");
    }
    let is_sure = signs.has_polled_late || signs.count > 1.0;
    let confidence = if is_sure {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let summary = format!("the group rebalances: {}", reasons.join("; "));
    let took_ms = signs.took_ms.unwrap_or(0.0);
    let count = signs.count.max(1.0);
    let share = (count * took_ms / 1_000.0 / reading.snapshot.seconds).clamp(0.0, 1.0);
    let mut found = Found::verdict(numbers, Verdict::Rebalancing, confidence, summary)
        .recommend(Some(calm(reading, &signs, share)))
        .refuse(
            "more consumers",
            "each that joins makes the group rebalance once more",
        )
        .refuse(
            "fetch sizes",
            "while the group rebalances nothing is fetched at all",
        );
    if share > 0.0 {
        let expression = "count * took / 1000 / window";
        let line = Evidence::new("rebalances", "lost", expression, share, "of the time")
            .measured("count", count, "")
            .measured("took", took_ms, "ms")
            .measured("window", reading.snapshot.seconds, "s");
        found = found.evidence([line]);
    }
    if !signs.has_polled_late {
        found = found.missing("who joined or left, and why: the coordinator's log says it");
    }
    found
}

/// The signs of a rebalancing group.
struct Signs {
    count: f64,
    took_ms: Option<f64>,
    heartbeat_gap_s: Option<f64>,
    poll_ms: Option<f64>,
    /// The value of max.poll.interval.ms.
    limit_ms: f64,
    /// A member left, or is about to leave, because it did not poll.
    has_polled_late: bool,
}

impl Signs {
    fn of(reading: &Reading<'_>) -> Signs {
        let consumer = reading.consumer;
        let limit = reading
            .snapshot
            .settings
            .max_poll_interval_ms
            .map(|setting| setting.value);
        let limit_ms = sane(limit).filter(|limit| *limit > 0.0).unwrap_or(300_000.0);
        let poll_ms = sane(consumer.ms_between_polls_max);
        Signs {
            count: sane(consumer.rebalances).unwrap_or(0.0),
            took_ms: [consumer.rebalance_ms_max, consumer.rebalance_ms]
                .into_iter()
                .find_map(sane),
            heartbeat_gap_s: sane(consumer.heartbeat_gap_s),
            poll_ms,
            limit_ms,
            has_polled_late: !consumer.expelled.is_empty() || poll_ms.is_some_and(|ms| ms >= limit_ms),
        }
    }

    fn in_words(&self) -> String {
        [
            known("rebalances", Some(self.count), ""),
            known("longest", self.took_ms, "ms"),
            known("last heartbeat", self.heartbeat_gap_s, "s ago"),
            known("longest time between polls", self.poll_ms, "ms"),
        ]
        .join(", ")
    }

    fn reasons(&self, reading: &Reading<'_>) -> Vec<String> {
        let mut reasons = Vec::new();
        let limit = duration(self.limit_ms / 1_000.0);
        if !reading.consumer.expelled.is_empty() {
            let who = reading.consumer.expelled.join(", ");
            reasons.push(format!("{who} left because of no poll within {limit}"));
        }
        if let Some(ms) = self.poll_ms.filter(|ms| *ms >= self.limit_ms) {
            let (name, late) = (reading.name(), duration(ms / 1_000.0));
            reasons.push(format!(
                "{name} did not poll for {late}, max.poll.interval.ms allows {limit}"
            ));
        }
        if self.count > 0.0 {
            let window = duration(reading.snapshot.seconds.max(0.0));
            reasons.push(format!("{} rebalances in {window}", number(self.count)));
        }
        if let Some(ms) = self.took_ms.filter(|ms| *ms > REBALANCE_MS_MAX) {
            reasons.push(format!("a rebalance took {}", duration(ms / 1_000.0)));
        }
        let is_member = reading.snapshot.client.group_id.is_some() || reading.partitions.is_some();
        if let Some(gap) = self
            .heartbeat_gap_s
            .filter(|gap| *gap > HEARTBEAT_GAP_MAX_S && is_member)
        {
            reasons.push(format!("no heartbeat for {}", duration(gap)));
        }
        reasons
    }
}

fn calm(reading: &Reading<'_>, signs: &Signs, share: f64) -> Recommendation {
    let per_poll = reading
        .consumer
        .ms_between_polls
        .and_then(|ms| sane(Some(ms)))
        .zip(reading.consumed)
        .map(|(ms, rate)| rate * ms / 1_000.0);
    let (set, why) = if signs.has_polled_late {
        let advice = match per_poll.filter(|records| *records >= 2.0) {
            Some(records) => format!(
                "max.poll.records={} (half of the {} that a poll hands over now), or work outside the polling thread",
                plain((records / 2.0).floor().max(1.0)),
                number(records)
            ),
            None => String::from("max.poll.records lower, or work outside the polling thread"),
        };
        let limit = duration(signs.limit_ms / 1_000.0);
        (
            advice,
            format!("a poll's records must be worked on within max.poll.interval.ms ({limit})"),
        )
    } else {
        (
            String::from(
                "group.instance.id for members that restart; the cooperative assignor or group.protocol=consumer",
            ),
            String::from(
                "members come and go; static members keep their partitions, cooperative ones go on reading",
            ),
        )
    };
    Recommendation {
        set,
        why,
        promise: promise(
            "time_lost_to_rebalances",
            Some(share),
            (0.0, share),
            "of the time",
            "rebalances end; how many records that brings only the next window shows",
        ),
        next_ceiling: String::from("the tests after this one, on a window without rebalances"),
        cost: if signs.has_polled_late {
            String::from("more polls for the same records")
        } else {
            String::from("a static member that is gone keeps its partitions until the session ends")
        },
    }
}

/// consumer 2 Does the broker throttle its fetches?
///
/// - Numbers: fetch throttle time reported by the client and, for this client alone, by the broker;
///   its quota where it is known.
/// - Thresholds: above 0.
/// - Says: "QUOTA: fetches are delayed by 210 ms each to keep 1 MB/s".
/// - Source: KIP-13, KIP-124.
pub fn quota(reading: &Reading<'_>) -> Found {
    let throttle = reading.throttle_ms();
    let bytes_per_second = sane(reading.consumer.bytes_per_second).or_else(|| {
        reading
            .snapshot
            .brokers
            .iter()
            .filter_map(|side| sane(side.bytes_per_second))
            .reduce(|one, other| one + other)
    });
    let limit = reading
        .snapshot
        .brokers
        .iter()
        .find_map(|side| sane(side.quota_bytes_per_second));
    let numbers = [
        known("throttle", throttle, "ms"),
        known("quota", limit, "B/s"),
        known("bytes", bytes_per_second, "B/s"),
    ]
    .join(", ");
    let Some(throttle) = throttle.filter(|ms| *ms > 0.0) else {
        return Found::nothing(numbers, "no");
    };
    let kept = match limit {
        Some(limit) => format!(" to keep {}/s", bytes(limit)),
        None => String::new(),
    };
    let summary = format!("the broker delays fetches by {} ms each{kept}", number(throttle));
    let recommendation = bytes_per_second.map(|now| {
        // Without the delay a fetch takes only its own time.
        let high = match reading.fetch_ms {
            Some(fetch_ms) => now * (fetch_ms + throttle) / fetch_ms,
            None => now,
        };
        Recommendation {
            set: String::from("consumer_byte_rate of this user or client: higher"),
            why: String::from("the quota, not the consumer, sets the rate"),
            promise: promise(
                "bytes_per_second",
                Some(now),
                (now, high),
                "B/s",
                "at unchanged fetch latency",
            ),
            next_ceiling: String::from("the quota that is set, then the tests after this one"),
            cost: String::from("the other clients' share of the broker"),
        }
    });
    let mut found = Found::verdict(numbers, Verdict::Quota, Confidence::High, summary.clone())
        .finding(FindingId::Q1, summary)
        .recommend(recommendation)
        .refuse(
            "fetch sizes",
            "larger fetches are delayed for longer: the quota counts bytes",
        )
        .refuse(
            "more consumers",
            "the quota is of the user or client id, all its consumers share it",
        );
    if limit.is_none() {
        found = found.missing("the quota: consumer_byte_rate or request_percentage");
    }
    found
}

/// consumer 9 Are there more consumers than partitions?
///
/// Each partition is read by one member of a group: members beyond the number of partitions have
/// nothing to read.
///
/// - Numbers: members of the group, partitions of its topics, partitions of this member.
/// - Thresholds: members above partitions; a member without partitions.
/// - Says: "2 of 14 members are idle: the group reads 12 partitions".
/// - Source: how groups assign partitions; p99 article on large groups.
pub fn idle_members(reading: &Reading<'_>) -> Found {
    let (members, partitions) = (
        sane(reading.consumer.group_members),
        sane(reading.consumer.group_partitions),
    );
    let own = sane(reading.consumer.assigned_partitions);
    let numbers = [
        known("members", members, ""),
        known("partitions", partitions, ""),
        known("of this member", own, ""),
    ]
    .join(", ");
    let surplus = members
        .zip(partitions)
        .map(|(members, partitions)| members - partitions)
        .filter(|surplus| *surplus >= 1.0);
    let text = match (surplus, members, partitions) {
        (Some(surplus), Some(members), Some(partitions)) => Some(format!(
            "{} of {} members are idle: the group reads {} partitions",
            number(surplus),
            number(members),
            number(partitions)
        )),
        _ => None,
    };
    let refusal = "a partition is read by one member of a group; those beyond have nothing to read";
    if own == Some(0.0) {
        let why = text
            .clone()
            .unwrap_or_else(|| String::from("the group gave it no partition"));
        return Found::verdict(
            numbers,
            Verdict::KeepsUp,
            if text.is_some() {
                Confidence::High
            } else {
                Confidence::Medium
            },
            format!("an idle member: {why}"),
        )
        .refuse("more consumers", refusal);
    }
    match text {
        Some(text) => Found::nothing(numbers, text.clone())
            .note(text)
            .refuse("more consumers", refusal),
        None => Found::nothing(numbers, "no"),
    }
}

/// Formats a share of time.
pub fn of_time(share: f64) -> String {
    format!("{} of the time", percent(share))
}
