//! connections: do its connections last?
//!
//! **Asks** before any question of speed: a client that loses its connections does its requests
//! again. A client keeps a connection to each broker for hours. It ends one when a request is not
//! answered within `request.timeout.ms`; a broker or a device between them may end it too.
//!
//! The usual reason of a consumer is a `request.timeout.ms` below `fetch.max.wait.ms`: where there
//! are no new records, a fetch is answered after the longer of the two, on a connection that the
//! client has ended at the shorter.
//!
//! Where the timeout is shorter than the round trip, not even the first answer arrives: the client
//! knows no topic, sends nothing and pushes nothing. An Ottla broker sees it: the connection is
//! gone sooner after its first answer than the client can have read it.
//!
//! - Numbers: connections made per second, in that push of the window that tells of the fewest. A
//!   client that has just started made all of its connections before one push. Of a client that
//!   pushes nothing: connections that ended within 0.9 round trips after the first answer left.
//! - Thresholds: one in five seconds.
//! - Says: "Its connections end and are made again, 2.8 of them in a second: requests are not
//!   answered within request.timeout.ms." Or: "It ends its connections before the first answer can
//!   reach it, 7.4 of them in a second: an answer takes 40 ms, which is longer than
//!   request.timeout.ms."
//! - The change: the default; where the round trip is known ten of it, and a second at least,
//!   because Java's delivery.timeout.ms must not be shorter and is not known.
//! - Source: Kafka's documentation of request.timeout.ms. Neither sentence was met here on a live
//!   client: a Java consumer all of whose connections ended within 400 ms could not push either,
//!   and the broker's count of clients that hear no answer has seen none yet.

use super::super::diagnosis::{Confidence, FindingId, Recommendation, Verdict};
use super::super::snapshot::{Library, Role, Snapshot};
use super::found::{Found, known, promise};
use crate::numbers::{number, plain};

pub(crate) const ID: &str = "connections";
pub(crate) const QUESTION: &str = "Do its connections last?";

const PER_SECOND_MIN: f64 = 0.2;
/// A timeout of ten round trips is enough for an answer, and of a second at least.
const ROUND_TRIPS: f64 = 10.0;
const ENOUGH_MS_MIN: f64 = 1_000.0;

/// The verdict of either role.
pub(crate) fn ask(snapshot: &Snapshot) -> Found {
    let made = made_per_second(snapshot);
    let unheard = unheard(snapshot);
    let numbers = known(
        "cn",
        made.or(unheard.as_ref().map(|unheard| unheard.per_second)),
        "connections/s",
    );
    if let Some(made) = made.filter(|made| *made >= PER_SECOND_MIN) {
        return made_again(snapshot, numbers, made);
    }
    match unheard.filter(|unheard| unheard.per_second >= PER_SECOND_MIN) {
        Some(unheard) => never_heard(snapshot, numbers, &unheard),
        None => Found::nothing(numbers, "yes, as far as is known"),
    }
}

fn made_again(snapshot: &Snapshot, numbers: String, made: f64) -> Found {
    let role = snapshot.client.role;
    let (setting, usual) = timeout(snapshot.client.library);
    let text = format!(
        "Its connections end and are made again, {} of them in a second: requests are not answered within {setting}.",
        number(made)
    );
    let why = match role {
        Role::Producer => "the default; it must be longer than the slowest answer",
        Role::Consumer => {
            "the default; it must be longer than fetch.max.wait.ms, which a fetch without new records waits"
        }
    };
    let found = verdict(numbers, text, patience(format!("{setting}={usual}"), why, made))
        .missing("who ends the connections: the client's log names requests that timed out; without them it is the broker, or a device between");
    match role {
        Role::Producer => found.refuse("retries", "what is sent again is not answered sooner"),
        Role::Consumer => found.refuse("more consumers", "each of them would end its connections"),
    }
}

/// Connections that ended before the first answer can have reached the client.
struct Unheard {
    per_second: f64,
    round_trip_ms: f64,
}

fn unheard(snapshot: &Snapshot) -> Option<Unheard> {
    let sides = snapshot.brokers.iter();
    let unheard = sides.filter_map(|side| {
        Some(Unheard {
            per_second: side.unheard_per_second.filter(|rate| rate.is_finite())?,
            round_trip_ms: side.round_trip_ms.filter(|ms| ms.is_finite())?,
        })
    });
    unheard.max_by(|one, other| one.per_second.total_cmp(&other.per_second))
}

fn never_heard(snapshot: &Snapshot, numbers: String, unheard: &Unheard) -> Found {
    let (setting, _) = timeout(snapshot.client.library);
    let text = format!(
        "It ends its connections before the first answer can reach it, {} of them in a second: an answer takes {} ms, which is longer than {setting}.",
        number(unheard.per_second),
        number(unheard.round_trip_ms)
    );
    // Hundreds, so that it is a number that a person would write.
    let enough = (ROUND_TRIPS * unheard.round_trip_ms / 100.0).ceil() * 100.0;
    let value = match snapshot.client.library {
        Library::FranzGo => format!("{setting}=10s"),
        _ => format!("{setting}={}", plain(enough.max(ENOUGH_MS_MIN))),
    };
    let why = "ten round trips, and a second at least";
    verdict(numbers, text, patience(value, why, unheard.per_second))
        .missing("whether it produces or consumes: it never came to say so")
        .refuse("retries", "none of them is heard sooner")
}

fn verdict(numbers: String, text: String, change: Recommendation) -> Found {
    Found::verdict(numbers, Verdict::Failing, Confidence::Medium, text.clone())
        .finding(FindingId::E5, text)
        .recommend(Some(change))
}

/// How long a client waits for an answer: the setting, and its default.
fn timeout(library: Library) -> (&'static str, &'static str) {
    match library {
        Library::Librdkafka => ("socket.timeout.ms", "60000"),
        // Added to what a request itself may wait.
        Library::FranzGo => ("RequestTimeoutOverhead", "10s"),
        _ => ("request.timeout.ms", "30000"),
    }
}

fn made_per_second(snapshot: &Snapshot) -> Option<f64> {
    let made = match (&snapshot.producer, &snapshot.consumer) {
        (Some(own), _) => own.connections_per_second,
        (_, Some(own)) => own.connections_per_second,
        _ => None,
    };
    made.filter(|made| made.is_finite())
}

fn patience(set: String, why: &str, made: f64) -> Recommendation {
    Recommendation {
        set,
        why: why.to_owned(),
        promise: promise(
            "connections_per_second",
            Some(made),
            (0.0, 0.0),
            "connections/s",
            "the client ends them",
        ),
        next_ceiling: "not known before requests are answered".to_owned(),
        cost: "a broker that is gone is noticed later; Java's delivery.timeout.ms must not be shorter than it and linger.ms together".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::{BrokerSide, Client, Consumer, Producer, Telemetry};
    use super::super::examine;
    use super::*;

    fn snapshot(role: Role, made: Option<f64>) -> Snapshot {
        let mut snapshot = Snapshot {
            client: Client {
                role,
                ..Client::default()
            },
            seconds: 15.0,
            telemetry: Telemetry {
                pushes: Some(3),
                ..Telemetry::default()
            },
            ..Snapshot::default()
        };
        match role {
            Role::Producer => {
                snapshot.producer = Some(Producer {
                    connections_per_second: made,
                    ..Producer::default()
                });
            }
            Role::Consumer => {
                snapshot.consumer = Some(Consumer {
                    connections_per_second: made,
                    ..Consumer::default()
                });
            }
        }
        snapshot
    }

    /// A client none of whose requests is answered has no other number to be judged by.
    #[test]
    fn connections_that_do_not_last_are_a_verdict_before_anything_was_answered() {
        for role in [Role::Producer, Role::Consumer] {
            let diagnosis = examine(&snapshot(role, Some(2.8)));
            assert_eq!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
            assert!(
                diagnosis.summary.contains("2.8 of them in a second"),
                "{}",
                diagnosis.summary
            );
            let change = diagnosis.recommendation.unwrap();
            assert!(change.set.starts_with("request.timeout.ms="));
            assert_eq!(
                change.promise.unknown, None,
                "a measurement can break the promise"
            );
            for made in [Some(0.1), Some(f64::NAN), None] {
                assert_ne!(
                    examine(&snapshot(role, made)).verdict,
                    Verdict::Failing,
                    "{made:?}"
                );
            }
        }
    }

    /// A Java client with a request timeout of 30 ms across 40 ms: no push, no request of records.
    #[test]
    fn a_client_that_never_hears_an_answer_is_seen_by_its_broker() {
        let mut deaf = snapshot(Role::Producer, None);
        deaf.producer = None;
        deaf.telemetry.pushes = Some(0);
        deaf.client.library = Library::Java;
        deaf.brokers = vec![BrokerSide {
            node_id: Some(1),
            unheard_per_second: Some(7.4),
            round_trip_ms: Some(40.0),
            ..BrokerSide::default()
        }];
        let diagnosis = examine(&deaf);
        assert_eq!(diagnosis.verdict, Verdict::Failing, "{diagnosis:#?}");
        assert!(
            diagnosis.summary.contains("an answer takes 40 ms"),
            "{}",
            diagnosis.summary
        );
        let change = diagnosis.recommendation.unwrap();
        assert_eq!(change.set, "request.timeout.ms=1000");
        assert_eq!(change.promise.unknown, None);
        deaf.brokers[0].round_trip_ms = Some(230.0);
        assert_eq!(
            examine(&deaf).recommendation.unwrap().set,
            "request.timeout.ms=2300"
        );
        deaf.brokers[0].unheard_per_second = Some(0.1);
        assert_eq!(examine(&deaf).verdict, Verdict::NotEnoughData);
    }
}
