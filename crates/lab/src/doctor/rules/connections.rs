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
//! - Numbers: connections made per second, in that push of the window that tells of the fewest. A
//!   client that has just started made all of its connections before one push.
//! - Thresholds: one in five seconds.
//! - Says: "Its connections end and are made again, 2.8 of them in a second: requests are not
//!   answered within request.timeout.ms."
//! - Source: Kafka's documentation of request.timeout.ms. Not met here on a live client: a Java
//!   consumer all of whose connections ended within 400 ms could not push either.

use super::super::diagnosis::{Confidence, FindingId, Recommendation, Verdict};
use super::super::snapshot::{Library, Role, Snapshot};
use super::found::{Found, known, promise};
use crate::numbers::number;

pub(crate) const ID: &str = "connections";
pub(crate) const QUESTION: &str = "Do its connections last?";

const PER_SECOND_MIN: f64 = 0.2;

/// The verdict of either role.
pub(crate) fn ask(snapshot: &Snapshot) -> Found {
    let made = made_per_second(snapshot);
    let numbers = known("cn", made, "connections/s");
    let Some(made) = made.filter(|made| *made >= PER_SECOND_MIN) else {
        return Found::nothing(numbers, "yes, as far as the client tells");
    };
    let role = snapshot.client.role;
    let (setting, usual) = timeout(snapshot.client.library);
    let text = format!(
        "Its connections end and are made again, {} of them in a second: requests are not answered within {setting}.",
        number(made)
    );
    let found = Found::verdict(numbers, Verdict::Failing, Confidence::Medium, text.clone())
        .finding(FindingId::E5, text)
        .recommend(Some(patience(role, format!("{setting}={usual}"), made)))
        .missing("who ends the connections: the client's log names requests that timed out; without them it is the broker, or a device between");
    match role {
        Role::Producer => found.refuse("retries", "what is sent again is not answered sooner"),
        Role::Consumer => found.refuse("more consumers", "each of them would end its connections"),
    }
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

fn patience(role: Role, set: String, made: f64) -> Recommendation {
    let why = match role {
        Role::Producer => "the default; it must be longer than the slowest answer",
        Role::Consumer => {
            "the default; it must be longer than fetch.max.wait.ms, which a fetch without new records waits"
        }
    };
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
        cost: "a broker that is gone is noticed later".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::{Client, Consumer, Producer, Telemetry};
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
}
