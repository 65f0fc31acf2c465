//! producer 2: is anything failing?
//!
//! **Asks** for errors before anything is tuned. **Numbers**: records dropped because the buffer
//! was full (`bx`), failed records (`e`) by the broker's error code, time in `send()` spent waiting
//! for metadata (`md`), retried records (`rt`).
//!
//! | finding | threshold | why |
//! |---|---|---|
//! | E1 buffer exhausted | any | the consequence of a ceiling that a later rule names; a larger buffer only delays the same failure |
//! | E2 records expire | failed records without a broker's error, or a queue near delivery.timeout.ms | the queue time gauge excludes expired batches, so it may look short |
//! | E3 topic or leader unknown | `md` > 0.01, excluding the first fetch of a client that has just started (half a second here), or a topic that was asked for five times and is not there | nothing else is meaningful before |
//! | E4 retries or errors | more than 1 record in 1,000, or any error code of a broker | by code |
//!
//! **A topic that does not exist.** A Java client asks for its metadata again and again, at most
//! once in a second, and each `send()` fails after max.block.ms with a `TimeoutException`. Such a
//! wait is not in `md`, which counts waits that end with metadata; the record counts as failed and
//! was never in a batch. A broker that notes which missing topics are asked for names the topic.
//! Without it the client's own numbers are the sign: records fail, or none is sent, none was ever
//! in a batch, and metadata is asked for now although it would be good for minutes. An idle
//! producer asks for none.
//!
//! **FAILING** is the verdict where nothing leaves and one of these is seen, where `send()` waits
//! for metadata a tenth of the time or more, and at least five seconds, or where a broker has
//! answered that the topic is unknown or not allowed: a client that starts waits for metadata of
//! topics that exist. It is the verdict too where at least half of what is sent fails although
//! requests are answered, nothing is sent again, and no record waits for delivery.timeout.ms.
//!
//! The case that showed the order: 256 KiB of buffer and one request in flight across 20 ms lost
//! 3,190 records to "Failed to allocate memory". The cause was the round trip, and 25 of the errors
//! were metadata that took longer than max.block.ms = 20.

use std::collections::BTreeMap;

use crate::doctor::diagnosis::{Finding, FindingId, Recommendation, Verdict};

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise;
use super::reading::{Reading, clean};
use super::unsent::Unsent;
use super::{Rule, rule};
use crate::numbers::{number, percent};

pub(crate) const RULE: Rule = rule("producer 2", "Is anything failing?", ask);

const METADATA_WAIT: f64 = 0.01;
/// From this share of its time on, and for this long, a sender that waits for metadata does not
/// merely start.
const METADATA_WAIT_LONG: f64 = 0.1;
const LONG_WAIT_SECONDS: f64 = 5.0;
/// A starting client waits this long for its first metadata; that is no finding.
const FIRST_METADATA_SECONDS: f64 = 1.0;
const RETRIED: f64 = 0.001;
/// A producer of whose records brokers refuse this share has nothing else to be judged by.
const REFUSED: f64 = 0.5;
/// Failed records that neither the buffer nor metadata explains, as a share of all failed records.
const UNEXPLAINED: f64 = 0.05;
/// What brokers answer about a topic that cannot be written to.
const UNREACHABLE: [&str; 5] = [
    "UNKNOWN_TOPIC_OR_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID",
    "INVALID_TOPIC_EXCEPTION",
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Failing {
    pub is_exhausted: bool,
    pub is_expiring: bool,
    pub is_unreachable: bool,
    pub has_retries: bool,
    pub unsent: Unsent,
    /// Errors in brokers' responses, by code.
    pub errors: BTreeMap<String, f64>,
    is_certain_to_expire: bool,
    exhausted: f64,
    failed: f64,
    expired: f64,
    retried: f64,
    metadata_wait: f64,
}

impl Failing {
    pub(crate) fn of(reading: &Reading<'_>) -> Failing {
        let none = Default::default();
        let own = reading.snapshot.producer.as_ref().unwrap_or(&none);
        let application = &reading.snapshot.application;
        let count = |value: Option<f64>| clean(value).unwrap_or(0.0);
        let exhausted = count(own.exhausted).max(count(application.buffer_errors));
        let (failed, expired) = (count(own.failed_records), count(application.expired_records));
        let retried = count(own.retried_records);
        let sent = reading.records_per_second.unwrap_or(0.0) * reading.seconds;
        let errors = errors(reading);
        let answered: f64 = errors.values().sum();
        let left = (failed - exhausted - answered).max(0.0);
        let is_late = reading
            .queue_ms_max
            .is_some_and(|most| most >= 0.9 * reading.settings.delivery_timeout_ms.value);
        let is_unreachable = is_unreachable(reading, &errors);
        let unsent = Unsent::of(reading, failed);
        let left = (left - unsent.failed).max(0.0);
        let is_certain = expired > 0.0 || (failed > 0.0 && is_late);
        Failing {
            is_exhausted: exhausted > 0.0,
            is_expiring: is_certain || (left > UNEXPLAINED * failed && !is_unreachable),
            is_unreachable,
            unsent,
            has_retries: retried > 0.0 && retried > RETRIED * sent.max(1.0),
            errors,
            is_certain_to_expire: is_certain,
            exhausted,
            failed,
            expired: if is_certain { expired } else { left },
            retried,
            metadata_wait: count(own.metadata_wait),
        }
    }

    /// That brokers refuse at least half of the records, and no queue or full buffer fails them.
    fn refused(&self, reading: &Reading<'_>) -> Option<String> {
        let sent = reading.records_per_second? * reading.seconds;
        let refused = self.failed - self.exhausted;
        let is_late = self.is_exhausted || self.has_retries || self.is_certain_to_expire;
        if is_late || refused <= 0.0 || refused < REFUSED * sent {
            return None;
        }
        let codes = codes(&self.errors);
        let answer = match codes.is_empty() {
            true => String::new(),
            false => format!(": brokers answered {codes}"),
        };
        Some(format!(
            "{} of {} records failed, although requests are answered in {} ms{answer}.",
            number(refused),
            number(sent.max(refused)),
            number(reading.request_ms?)
        ))
    }

    /// Whether the topic is known to be out of reach.
    fn is_proven(&self, reading: &Reading<'_>) -> bool {
        let is_long = self.metadata_wait >= METADATA_WAIT_LONG
            && self.metadata_wait * reading.seconds >= LONG_WAIT_SECONDS;
        self.is_unreachable && (is_long || is_told(&self.errors))
    }
}

fn ask(reading: &Reading<'_>) -> Found {
    let failing = &reading.failing;
    let findings = findings(reading, failing);
    let numbers = [
        known("bx", Some(failing.exhausted), "records"),
        known("e", Some(failing.failed), "records"),
        known("md", Some(failing.metadata_wait), "s/s"),
        known("rt", Some(failing.retried), "records"),
    ];
    if failing.is_proven(reading) {
        let text = format!(
            "send() waits for metadata {} of the time: the topic does not exist, may not be written to, or its leader cannot be reached",
            percent(failing.metadata_wait.min(1.0))
        );
        return Found::verdict(
            numbers,
            Verdict::Failing,
            confidence(reading, Verdict::Failing, false),
            text,
        )
        .contributing(findings)
        .recommend(Some(reachable_topic(failing)));
    }
    if let Some(found) = failing.unsent.found(numbers.clone()) {
        return found.contributing(findings);
    }
    if let Some(text) = failing.refused(reading) {
        let is_doubtful = failing.errors.is_empty();
        let found = Found::verdict(
            numbers,
            Verdict::Failing,
            confidence(reading, Verdict::Failing, is_doubtful),
            text,
        )
        .contributing(findings)
        .recommend(Some(acceptable_records(failing)));
        return match is_doubtful {
            true => found.missing("why they fail: the exception in the callback of send() says it"),
            false => found,
        };
    }
    let names: Vec<String> = findings.iter().map(|found| format!("{:?}", found.id)).collect();
    let answer = if names.is_empty() {
        "no".to_owned()
    } else {
        names.join(", ")
    };
    Found::nothing(numbers, answer).contributing(findings)
}

/// What ends the refusal of records, by the error that brokers answer most often.
fn acceptable_records(failing: &Failing) -> Recommendation {
    let most = failing
        .errors
        .iter()
        .max_by(|one, other| one.1.total_cmp(other.1));
    let code = most.map_or("", |(code, _)| code.as_str());
    let set = match code {
        "MESSAGE_TOO_LARGE" => "smaller records, or a larger max.message.bytes of the topic",
        "NOT_ENOUGH_REPLICAS" | "NOT_ENOUGH_REPLICAS_AFTER_APPEND" => {
            "more replicas in sync, or a smaller min.insync.replicas of the topic"
        }
        "INVALID_TIMESTAMP" => {
            "timestamps within message.timestamp.before.max.ms and message.timestamp.after.max.ms"
        }
        "INVALID_RECORD" => "records that the topic takes: a compacted one wants a key",
        "UNSUPPORTED_COMPRESSION_TYPE" => "a compression.type that the broker takes",
        "INVALID_PRODUCER_EPOCH" | "PRODUCER_FENCED" => "one producer for each transactional.id",
        _ => "what the exception in the callback of send() names",
    };
    Recommendation {
        set: set.to_owned(),
        why: "no record that fails is worth sending faster".to_owned(),
        promise: promise::of("failed_records", "records", Some(failing.failed), 0.0, 0.0),
        next_ceiling: "not known before records are taken".to_owned(),
        cost: String::new(),
    }
}

fn reachable_topic(failing: &Failing) -> Recommendation {
    Recommendation {
        set: "create the topic, allow it, or correct bootstrap.servers and the advertised listeners"
            .to_owned(),
        why: "send() waits for metadata; nothing is worth tuning before that".to_owned(),
        promise: promise::of("metadata_wait", "s/s", Some(failing.metadata_wait), 0.005, 0.01),
        next_ceiling: "not known before records flow".to_owned(),
        cost: String::new(),
    }
}

fn errors(reading: &Reading<'_>) -> BTreeMap<String, f64> {
    let mut errors = BTreeMap::new();
    for (code, count) in reading.snapshot.brokers.iter().flat_map(|side| &side.errors) {
        if let Some(count) = clean(Some(*count)).filter(|count| *count > 0.0) {
            *errors.entry(code.clone()).or_insert(0.0) += count;
        }
    }
    errors
}

fn is_told(errors: &BTreeMap<String, f64>) -> bool {
    errors.keys().any(|code| UNREACHABLE.contains(&code.as_str()))
}

fn is_unreachable(reading: &Reading<'_>, errors: &BTreeMap<String, f64>) -> bool {
    let own = reading.snapshot.producer.as_ref();
    let Some(wait) = own.and_then(|own| clean(own.metadata_wait)) else {
        return false;
    };
    let has_started_now = reading.snapshot.telemetry.pushes.is_none()
        || own.is_some_and(|own| own.connections_created.is_some_and(|count| count > 0.0));
    let allowed = if has_started_now && !is_told(errors) {
        FIRST_METADATA_SECONDS
    } else {
        0.0
    };
    wait > METADATA_WAIT && wait * reading.seconds > allowed
}

fn findings(reading: &Reading<'_>, failing: &Failing) -> Vec<Finding> {
    [
        (
            failing.is_exhausted,
            FindingId::E1,
            buffer_exhausted as fn(&Reading<'_>, &Failing) -> String,
        ),
        (failing.is_expiring, FindingId::E2, records_expire),
        (
            failing.is_unreachable || failing.unsent.topic.is_some() || failing.unsent.is_asking,
            FindingId::E3,
            unreachable_topic,
        ),
        (
            failing.has_retries || !failing.errors.is_empty(),
            FindingId::E4,
            retries,
        ),
    ]
    .into_iter()
    .filter(|(is_there, ..)| *is_there)
    .map(|(_, id, words)| Finding {
        id,
        text: words(reading, failing),
        is_contributing: true,
    })
    .collect()
}

fn buffer_exhausted(reading: &Reading<'_>, failing: &Failing) -> String {
    let wait = promise::buffer_wait_ms(reading).map_or_else(String::new, |wait| {
        format!(": F17 gives a wait of {} ms for one batch's memory", number(wait))
    });
    format!(
        "{} records found no buffer memory within max.block.ms = {} ms{wait}",
        number(failing.exhausted),
        number(reading.settings.max_block_ms.value)
    )
}

fn records_expire(reading: &Reading<'_>, failing: &Failing) -> String {
    let timeout = number(reading.settings.delivery_timeout_ms.value);
    let mut text = format!("records expire in the client (delivery.timeout.ms = {timeout} ms)");
    if failing.expired > 0.0 {
        text = format!("{} {text}", number(failing.expired));
    }
    if let Some(offered) = reading.offered {
        text.push_str(&format!(
            "; the drain would have to reach the offered {} records/s",
            number(offered)
        ));
    }
    text
}

fn unreachable_topic(_: &Reading<'_>, failing: &Failing) -> String {
    if !failing.is_unreachable {
        return failing.unsent.sentence();
    }
    format!(
        "send() waits {} s per second for metadata: the topic is missing, not authorised, or its leader cannot be reached",
        number(failing.metadata_wait)
    )
}

fn retries(_: &Reading<'_>, failing: &Failing) -> String {
    let codes = codes(&failing.errors);
    let mut text = format!("{} records were sent again", number(failing.retried));
    if !codes.is_empty() {
        text.push_str(&format!("; brokers answered {codes}"));
    }
    text
}

fn codes(errors: &BTreeMap<String, f64>) -> String {
    let codes: Vec<String> = errors
        .iter()
        .map(|(code, count)| format!("{code} {} times", number(*count)))
        .collect();
    codes.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::{FindingId, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Telemetry};

    /// 20 records of 1.2 MB in a second to a topic that takes 1 MB, as pushed.
    #[test]
    fn records_that_brokers_refuse_are_no_question_of_speed() {
        let row = Row {
            records: 19.8,
            requests: 21.4,
            request_bytes: 1_140_879.0,
            batch: 1_200_077.0,
            records_per_request: 1.0,
            latency: 5.6,
            queue: Some(11.3),
            queue_max: 102.0,
            failed: 386.0,
            thread: Some((0.88, 0.03)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.seconds = 19.5;
        snapshot.producer.as_mut().unwrap().failed_records = Some(386.0);
        snapshot.brokers = vec![BrokerSide {
            errors: [("MESSAGE_TOO_LARGE".to_owned(), 386.0)].into(),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
        assert!(
            diagnosis.summary.contains("MESSAGE_TOO_LARGE 386 times"),
            "{}",
            diagnosis.summary
        );
        assert!(
            diagnosis
                .recommendation
                .unwrap()
                .set
                .contains("max.message.bytes")
        );
        // A broker that tells no errors leaves the reason open.
        snapshot.brokers.clear();
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
        assert!(
            diagnosis
                .missing
                .iter()
                .any(|what| what.starts_with("why they fail"))
        );
        // A few that fail are contributing.
        snapshot.producer.as_mut().unwrap().failed_records = Some(20.0);
        assert_ne!(examine(&snapshot).verdict, Verdict::Failing);
    }

    #[test]
    fn a_client_that_starts_is_not_told_to_create_its_topic() {
        let row = Row {
            records: 100.0,
            requests: 5.0,
            latency: 3.0,
            queue: Some(5.0),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.seconds = 10.0;
        snapshot.telemetry = Telemetry {
            pushes: Some(1),
            ..Telemetry::default()
        };
        let own = snapshot.producer.as_mut().unwrap();
        own.metadata_wait = Some(0.2);
        own.connections_created = Some(2.0);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::NotEnoughData, "{diagnosis:#?}");
        assert_eq!(diagnosis.recommendation, None);
        // What a broker answers is proof.
        snapshot.brokers = vec![BrokerSide {
            errors: [("UNKNOWN_TOPIC_OR_PARTITION".to_owned(), 20.0)].into(),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
        assert!(
            diagnosis
                .recommendation
                .unwrap()
                .set
                .starts_with("create the topic")
        );
        assert!(diagnosis.findings.iter().any(|found| found.id == FindingId::E3));
    }
}
