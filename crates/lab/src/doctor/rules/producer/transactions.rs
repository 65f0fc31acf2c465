//! X1: may a delayed end of a transaction end the next one?
//!
//! Before version 5 of EndTxn a request does not say which of its producer's transactions it ends:
//! producer id and epoch are those of all of them. One that is delayed on its way, and that the
//! client has repeated meanwhile, ends the transaction that the producer has begun since
//! (KAFKA-17754): half of its records are committed, or what the application wants to abort is, or
//! acknowledged records are aborted. It takes a delay of a request across its own repetition, and
//! no setting of client or broker prevents it; Apache Kafka has the same flaw. From version 5 on
//! (KIP-890) every transaction has an epoch of its own.
//!
//! - Numbers: EndTxn requests of this client before version 5 in the window, by an Ottla's count;
//!   the finalized transaction.version.
//! - Thresholds: one.
//! - Says: "It ends its transactions with EndTxn before version 5 (apache-kafka-java 3.9.1), 12
//!   times in the last minute: a request that is delayed on its way may end this producer's next
//!   transaction, and commit or abort the wrong records (KAFKA-17754). Upgrade its library to one
//!   that sends version 5, such as Java's from 4.0 on."
//! - Source: Jepsen on Bufstream 0.1.0; KIP-890; reproduced here with a request that arrives twice.

use super::super::super::diagnosis::{Finding, FindingId};
use super::super::super::snapshot::{Client, Snapshot};
use crate::numbers::number;

/// From this transaction.version on clients that can send EndTxn version 5.
const VERSION_WITH_NAMES: i16 = 2;

/// The finding, beside any verdict.
pub(super) fn flaw(snapshot: &Snapshot) -> Option<Finding> {
    let sides = &snapshot.brokers;
    let ends: f64 = sides
        .iter()
        .filter_map(|side| side.nameless_ends)
        .filter(|ends| ends.is_finite() && *ends > 0.0)
        .sum();
    if ends <= 0.0 {
        return None;
    }
    let is_old_cluster = sides
        .iter()
        .filter_map(|side| side.transaction_version)
        .any(|version| version < VERSION_WITH_NAMES);
    let remedy = match is_old_cluster {
        true => {
            "Raise the cluster's level (kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature transaction.version=2), \
             and use a client that sends version 5, such as Java's from 4.0 on."
        }
        false => "Upgrade its library to one that sends version 5, such as Java's from 4.0 on.",
    };
    let times = match ends {
        1.0 => "once".to_owned(),
        ends => format!("{} times", number(ends)),
    };
    let text = format!(
        "It ends its transactions with EndTxn before version 5{}, {times} in the last minute: a request that is delayed on its \
         way may end this producer's next transaction, and commit or abort the wrong records (KAFKA-17754). {remedy}",
        software(&snapshot.client)
    );
    Some(Finding {
        id: FindingId::X1,
        text,
        is_contributing: true,
    })
}

/// ` (apache-kafka-java 3.9.1)`, as far as the client tells.
fn software(client: &Client) -> String {
    let words = [&client.software_name, &client.software_version];
    let told: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    match told[..] {
        [] => String::new(),
        _ => format!(" ({})", told.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::examine;
    use super::*;
    use crate::doctor::snapshot::{BrokerSide, Role};

    fn producer(nameless_ends: Option<f64>, transaction_version: i16) -> Snapshot {
        Snapshot {
            client: Client {
                client_id: "billing".to_owned(),
                role: Role::Producer,
                software_name: Some("apache-kafka-java".to_owned()),
                software_version: Some("3.9.1".to_owned()),
                ..Client::default()
            },
            brokers: vec![BrokerSide {
                nameless_ends,
                transaction_version: Some(transaction_version),
                ..BrokerSide::default()
            }],
            ..Snapshot::default()
        }
    }

    fn told(snapshot: &Snapshot) -> Option<String> {
        let findings = examine(snapshot).findings;
        let found = findings.into_iter().find(|finding| finding.id == FindingId::X1)?;
        assert!(found.is_contributing);
        Some(found.text)
    }

    #[test]
    fn a_client_whose_ends_have_no_name_is_told_with_its_software_and_what_to_change() {
        let text = told(&producer(Some(12.0), 2)).unwrap();
        let who = "before version 5 (apache-kafka-java 3.9.1), 12 times in the last minute: ";
        assert!(text.contains(who), "{text}");
        assert!(
            text.contains("Upgrade its library") && !text.contains("kafka-features"),
            "{text}"
        );
        let text = told(&producer(Some(1.0), 1)).unwrap();
        assert!(text.contains("once in the last minute"), "{text}");
        assert!(text.contains("--feature transaction.version=2"), "{text}");
    }

    #[test]
    fn others_are_told_nothing() {
        assert_eq!(told(&producer(None, 2)), None);
        assert_eq!(told(&producer(Some(0.0), 0)), None);
        let mut consumer = producer(Some(1.0), 2);
        consumer.client.role = Role::Consumer;
        assert_eq!(told(&consumer), None);
    }
}
