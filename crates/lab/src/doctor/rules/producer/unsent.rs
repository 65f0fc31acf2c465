//! A producer that sends nothing because its records fail before they come to be in a batch: a
//! topic that does not exist, above all.

use crate::doctor::diagnosis::{Confidence, FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::{Library, Producer};
use crate::doctor::used::UsedNumbers;

use super::super::found::Found;
use super::promise;
use super::reading::{Reading, clean};
use crate::numbers::{duration, number};

/// A client asks for a topic this often in a window because it cannot do without.
const ASKED_AGAIN: f64 = 5.0;
/// Metadata is good for five minutes (`metadata.max.age.ms`); a client whose metadata is never
/// older than this asks again and again.
const METADATA_AGE_SECONDS: f64 = 10.0;
/// Requests per second, beside pushes, of a client that asks again and again, in more than those of
/// its start.
const ASKS_PER_SECOND: f64 = 0.5;
const FIRST_REQUESTS: f64 = 10.0;
const SECONDS_MIN: f64 = 10.0;

/// What is known of records that do not leave.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Unsent {
    /// The topic that was that does not exist and was asked for most often, and how often.
    pub topic: Option<(String, f64)>,
    /// Some records flow, to other topics.
    pub is_flowing: bool,
    /// Records that failed and were never in a batch.
    pub failed: f64,
    /// Nothing leaves, and metadata is asked for again and again.
    pub is_asking: bool,
    asked_again: f64,
}

impl Unsent {
    /// - `failed`: records that failed in the window.
    pub(crate) fn of(reading: &Reading<'_>, failed: f64) -> Unsent {
        let named = reading
            .snapshot
            .brokers
            .iter()
            .flat_map(|side| &side.unknown_topics);
        let named = named.filter(|unknown| clean(Some(unknown.count)).is_some());
        let most = named.max_by(|one, other| one.count.total_cmp(&other.count));
        let topic = most
            .filter(|most| most.count >= ASKED_AGAIN)
            .map(|most| (most.topic.clone(), most.count));
        let own = reading.snapshot.producer.as_ref().filter(|_| sends_all(reading));
        let is_empty = own.is_some_and(has_no_batch);
        let asked_again = own.and_then(|own| asked_again(reading, own));
        Unsent {
            topic,
            is_flowing: reading.records_per_second.is_some_and(|rate| rate > 0.0),
            failed: if is_empty { failed } else { 0.0 },
            is_asking: is_empty && asked_again.is_some(),
            asked_again: asked_again.unwrap_or(0.0),
        }
    }

    /// Whether records that do not leave are all that there is to say.
    fn is_certain(&self) -> bool {
        match self.topic {
            Some(_) => !self.is_flowing,
            None => self.failed > 0.0 || self.is_asking,
        }
    }

    pub(crate) fn found(&self, numbers: impl Into<UsedNumbers>) -> Option<Found> {
        if !self.is_certain() {
            return None;
        }
        let confidence = match (&self.topic, self.failed > 0.0) {
            (Some(_), true) => Confidence::High,
            (Some(_), false) => Confidence::Medium,
            (None, true) if self.is_asking => Confidence::Medium,
            (None, _) => Confidence::Low,
        };
        let text = self.sentence();
        let found = Found::verdict(numbers, Verdict::Failing, confidence, text.clone())
            .finding(FindingId::E3, text)
            .recommend(Some(self.change()))
            .refuse("max.block.ms", "a longer wait ends the same way, later");
        Some(match self.topic {
            Some(_) => found,
            None => found.missing(
                "which topic it is, and why: the exception of send() names it, and a broker that notes which missing topics are asked for, as Ottla does",
            ),
        })
    }

    pub(crate) fn sentence(&self) -> String {
        let failed = match self.failed > 0.0 {
            true => format!(" {} records failed meanwhile.", number(self.failed)),
            false => String::new(),
        };
        if let Some((topic, count)) = &self.topic {
            return format!(
                "It wants to write to topic {topic}, which does not exist: it asked for it {} times in the last minute.{failed}",
                number(*count)
            );
        }
        let nothing = "No record leaves";
        match (self.failed > 0.0, self.is_asking) {
            (true, false) => format!(
                "{nothing}: {} failed before they were in a batch, because they are too large, cannot be serialized, or their topic is not known.",
                number(self.failed)
            ),
            _ => format!(
                "{nothing}, and it asks for metadata again and again, every {}: its topic does not exist or has no leader.{failed}",
                duration(1.0 / self.asked_again.max(1e-3))
            ),
        }
    }

    fn change(&self) -> Recommendation {
        let set = match &self.topic {
            Some((topic, _)) => format!("create the topic {topic}, or correct its name in the application"),
            None => "create the topic, allow it, or correct its name in the application".to_owned(),
        };
        let mut promise = promise::records(0.0, 0.0, 0.0);
        promise.unknown = Some("what the application sends once its records can leave".to_owned());
        Recommendation {
            set,
            why: "send() waits max.block.ms for its metadata and fails; nothing is worth tuning before that"
                .to_owned(),
            promise,
            next_ceiling: "not known before records flow".to_owned(),
            cost: String::new(),
        }
    }
}

/// Whether a client says how many records it sends and what its batches are like.
fn sends_all(reading: &Reading<'_>) -> bool {
    matches!(reading.library(), Library::Java | Library::Ottla) && !reading.snapshot.telemetry.restarted
}

fn has_no_batch(own: &Producer) -> bool {
    own.records_per_second == Some(0.0)
        && own.batch_bytes.is_none()
        && own.queue_ms.is_none()
        && own.request_ms.is_none()
}

/// Requests per second beside pushes, where they are for metadata: it is never old.
fn asked_again(reading: &Reading<'_>, own: &Producer) -> Option<f64> {
    let is_young = clean(own.metadata_age_s).is_some_and(|age| age < METADATA_AGE_SECONDS);
    let pushes = f64::from(reading.snapshot.telemetry.pushes.unwrap_or(0));
    let asked = clean(own.requests)? - pushes;
    let rate = asked / reading.seconds.max(1.0);
    let is_often = rate >= ASKS_PER_SECOND && asked >= FIRST_REQUESTS && reading.seconds >= SECONDS_MIN;
    (is_young && is_often).then_some(rate)
}

#[cfg(test)]
mod tests {
    use crate::doctor::diagnosis::{Confidence, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::snapshot::{BrokerSide, Client, Library, Producer, Snapshot, Telemetry, UnknownTopic};

    /// What a Java client pushed that wrote to a topic that did not exist, with max.block.ms=2000.
    fn pushed(failed: f64) -> Snapshot {
        let own = Producer {
            records_per_second: Some(0.0),
            bytes_per_second: Some(1_870.0),
            requests_per_second: Some(79.0 / 37.1),
            requests: Some(79.0),
            request_bytes: Some(74.7),
            buffer_wait: Some(0.0),
            buffer_bytes: Some(33_554_432.0),
            buffer_available_bytes: Some(33_554_432.0),
            io_wait: Some(0.972),
            io: Some(0.002),
            failed_records: Some(failed),
            metadata_wait: Some(0.0),
            metadata_age_s: Some(0.6),
            without_sample: vec!["producer.record.queue.time.avg".to_owned()],
            ..Producer::default()
        };
        Snapshot {
            client: Client {
                library: Library::Java,
                software_version: Some("4.3.0".to_owned()),
                ..Client::default()
            },
            seconds: 37.1,
            telemetry: Telemetry {
                pushes: Some(36),
                has_subscription: true,
                ..Telemetry::default()
            },
            producer: Some(own),
            ..Snapshot::default()
        }
    }

    fn asked(count: f64) -> BrokerSide {
        BrokerSide {
            requests_per_second: Some(0.0),
            unknown_topics: vec![UnknownTopic {
                topic: "orders".to_owned(),
                count,
            }],
            ..BrokerSide::default()
        }
    }

    #[test]
    fn records_that_fail_before_they_are_in_a_batch_are_of_a_topic_that_is_not_there() {
        let diagnosis = examine(&pushed(18.0));
        assert_eq!(
            (diagnosis.verdict, diagnosis.confidence),
            (Verdict::Failing, Confidence::Medium),
            "{diagnosis:#?}"
        );
        assert!(
            diagnosis
                .recommendation
                .is_some_and(|change| change.set.starts_with("create the topic"))
        );
        assert!(
            diagnosis
                .missing
                .iter()
                .any(|words| words.contains("which topic"))
        );
        // With max.block.ms of a minute none has failed yet.
        let waiting = examine(&pushed(0.0));
        assert_eq!(
            (waiting.verdict, waiting.confidence),
            (Verdict::Failing, Confidence::Low)
        );
        // At the start, before there is enough for anything else.
        let mut early = pushed(3.0);
        early.seconds = 8.0;
        let own = early.producer.as_mut().unwrap();
        own.requests = Some(18.0);
        early.telemetry.pushes = Some(8);
        assert_eq!(examine(&early).verdict, Verdict::Failing);
    }

    #[test]
    fn a_producer_that_has_nothing_to_send_does_not_fail() {
        let mut idle = pushed(0.0);
        let own = idle.producer.as_mut().unwrap();
        // It pushed, and asked for metadata once a while ago.
        own.requests = Some(39.0);
        own.metadata_age_s = Some(140.0);
        assert_ne!(examine(&idle).verdict, Verdict::Failing);
        // It has just begun: its first requests are of other kinds.
        let mut starting = pushed(0.0);
        starting.seconds = 3.0;
        starting.telemetry.pushes = Some(3);
        starting.producer.as_mut().unwrap().requests = Some(9.0);
        assert_ne!(examine(&starting).verdict, Verdict::Failing);
        assert_ne!(examine(&starting).verdict, Verdict::SenderRate);
    }

    #[test]
    fn a_broker_names_the_missing_topic_that_is_asked_for() {
        let mut snapshot = pushed(18.0);
        snapshot.brokers = vec![asked(42.0)];
        let diagnosis = examine(&snapshot);
        assert_eq!(
            (diagnosis.verdict, diagnosis.confidence),
            (Verdict::Failing, Confidence::High)
        );
        assert!(
            diagnosis.summary.contains("topic orders"),
            "{}",
            diagnosis.summary
        );
        assert!(diagnosis.recommendation.unwrap().set.contains("topic orders"));
        // Only the broker speaks.
        snapshot.producer = None;
        snapshot.telemetry.pushes = Some(0);
        assert_eq!(examine(&snapshot).verdict, Verdict::Failing);
        // A tool looked whether it was there.
        snapshot.brokers = vec![asked(2.0)];
        assert_ne!(examine(&snapshot).verdict, Verdict::Failing);
    }

    /// A topic that was deleted is asked for until the client forgets it, though nothing is sent to
    /// it any more.
    #[test]
    fn a_topic_that_is_missing_beside_others_contributes() {
        let mut snapshot = pushed(0.0);
        snapshot.brokers = vec![BrokerSide {
            records_per_second: Some(100.0),
            requests_per_second: Some(50.0),
            ..asked(42.0)
        }];
        let own = snapshot.producer.as_mut().unwrap();
        own.records_per_second = Some(100.0);
        (own.batch_bytes, own.queue_ms, own.request_ms) = (Some(900.0), Some(5.0), Some(2.0));
        let diagnosis = examine(&snapshot);
        assert_ne!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
        let told = diagnosis
            .findings
            .iter()
            .find(|finding| finding.text.contains("topic orders"));
        assert!(told.is_some_and(|finding| finding.is_contributing));
    }
}
