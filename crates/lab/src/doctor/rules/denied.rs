//! access: is it allowed what it asks for?
//!
//! **Asks** first of all: a client whose requests are refused by ACLs moves no records, or only
//! some, whatever its settings. It is certain after one denial, so it needs no telemetry and no
//! minimum of requests.
//!
//! - Numbers: the operations that the broker denied this client's connections in the window, with
//!   principal and resource. Apache Kafka tells only the error code of partitions, which is finding
//!   E3 or E4.
//! - Thresholds: one denial. Where several operations were denied, the one denied most often is
//!   named; the others contribute.
//! - Says: "The broker denies what this client asks for: User:app may not Write to Topic orders,
//!   312 times in the last minute."
//!
//! The change is the command that adds the missing ACL. Where an ACL denies it explicitly, another
//! that allows it would not help: `ottla access explain` names the one that denies.

use ottla_wire::acl::command::AclWords;
use ottla_wire::acl::{Operation, PatternType, Permission, ResourceType, WILDCARD};

use super::super::diagnosis::{Confidence, FindingId, Promise, Recommendation, Verdict};
use super::super::snapshot::{Denied, Snapshot};
use super::found::Found;
use crate::numbers::number;

pub(crate) const ID: &str = "access";
pub(crate) const QUESTION: &str = "Is it allowed what it asks for?";

/// A placeholder: the doctor does not know by which address its reader reaches the cluster.
const SERVERS: &str = "HOST:PORT";

/// The verdict of either role.
pub(crate) fn ask(snapshot: &Snapshot) -> Found {
    let mut denied: Vec<&Denied> = snapshot
        .brokers
        .iter()
        .flat_map(|side| &side.denied)
        .filter(|denied| denied.count > 0.0 && denied.count.is_finite())
        .collect();
    denied.sort_by(|one, other| other.count.total_cmp(&one.count));
    let total: f64 = denied.iter().map(|denied| denied.count).sum();
    let numbers = format!("denials {}", number(total));
    let Some(worst) = denied.first() else {
        return Found::nothing(numbers, "yes, as far as brokers tell");
    };
    let principal = snapshot
        .client
        .principal
        .as_deref()
        .unwrap_or("an unknown principal");
    let text = format!(
        "The broker denies what this client asks for: {}, {} in the last minute.",
        words(principal, worst),
        times(worst.count)
    );
    let mut found = Found::verdict(numbers, Verdict::Denied, Confidence::High, text.clone())
        .finding(FindingId::A1, text)
        .recommend(Some(recommend(principal, worst)))
        .refuse("retries", "the same request is denied again");
    for other in denied.iter().skip(1) {
        found = found.note(format!(
            "also denied, {}: {}",
            times(other.count),
            words(principal, other)
        ));
    }
    found
}

fn words(principal: &str, denied: &Denied) -> String {
    format!(
        "{principal} may not {} on {} {}",
        denied.operation, denied.resource_type, denied.resource
    )
}

fn times(count: f64) -> String {
    match count {
        1.0 => "once".to_owned(),
        count => format!("{} times", number(count)),
    }
}

fn recommend(principal: &str, denied: &Denied) -> Recommendation {
    let set = match (denied.is_by_acl, allowing(principal, denied)) {
        (false, Some(acl)) => acl.adding(SERVERS),
        _ => format!(
            "remove the ACL that denies it; ottla access explain --bootstrap-server {SERVERS} names it"
        ),
    };
    let why = if denied.is_by_acl {
        "an ACL denies it, and a denial outweighs every permission"
    } else {
        "no ACL allows it; a change takes effect at once, on connections that exist, too"
    };
    Recommendation {
        set,
        why: why.to_owned(),
        promise: Promise {
            figure: "records_per_second".to_owned(),
            unit: "records/s".to_owned(),
            unknown: Some("what the client does once it is allowed to".to_owned()),
            ..Promise::default()
        },
        next_ceiling: "not known before records flow".to_owned(),
        cost: format!("{principal} may then do that from every host"),
    }
}

/// - Returns: `None` for names that this program does not know.
fn allowing<'a>(principal: &'a str, denied: &'a Denied) -> Option<AclWords<'a>> {
    Some(AclWords {
        resource_type: ResourceType::named(&denied.resource_type)?,
        resource: &denied.resource,
        pattern_type: PatternType::Literal,
        principal,
        host: WILDCARD,
        operation: Operation::named(&denied.operation)?,
        permission: Permission::Allow,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::{BrokerSide, Client, Role};
    use super::super::examine;
    use super::*;

    fn denied(operation: &str, resource: &str, count: f64) -> Denied {
        Denied {
            operation: operation.to_owned(),
            resource_type: "Topic".to_owned(),
            resource: resource.to_owned(),
            is_by_acl: false,
            count,
        }
    }

    fn snapshot(role: Role, denied: Vec<Denied>) -> Snapshot {
        Snapshot {
            client: Client {
                client_id: "app".to_owned(),
                principal: Some("User:app".to_owned()),
                role,
                ..Client::default()
            },
            seconds: 5.0,
            brokers: vec![BrokerSide {
                denied,
                ..BrokerSide::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn one_denial_is_enough_for_a_verdict_with_the_command_that_allows_it() {
        for role in [Role::Producer, Role::Consumer] {
            let diagnosis = examine(&snapshot(role, vec![denied("Write", "orders", 1.0)]));
            assert_eq!(diagnosis.verdict, Verdict::Denied, "{role:?}");
            assert_eq!(
                diagnosis.summary,
                "The broker denies what this client asks for: User:app may not Write on Topic orders, once in the last minute."
            );
            assert_eq!(
                diagnosis.recommendation.unwrap().set,
                "kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:app --operation Write --topic orders"
            );
            let allowed = examine(&snapshot(role, Vec::new()));
            assert_ne!(allowed.verdict, Verdict::Denied);
        }
    }

    #[test]
    fn the_most_frequent_denial_is_named_and_the_others_are_notes() {
        let several = vec![
            denied("Describe", "orders", 2.0),
            denied("Write", "payments", 300.0),
            denied("Read", "nothing", 0.0),
        ];
        let diagnosis = examine(&snapshot(Role::Producer, several));
        assert!(diagnosis.summary.contains("Write on Topic payments, 300 times"));
        assert!(
            diagnosis
                .notes
                .contains(&"also denied, 2 times: User:app may not Describe on Topic orders".to_owned())
        );
        assert!(!diagnosis.notes.iter().any(|note| note.contains("nothing")));
    }

    #[test]
    fn a_permission_is_not_advised_where_an_acl_denies() {
        let explicit = Denied {
            is_by_acl: true,
            ..denied("Write", "orders", 3.0)
        };
        let change = examine(&snapshot(Role::Producer, vec![explicit]))
            .recommendation
            .unwrap();
        assert!(
            change.set.starts_with("remove the ACL that denies it"),
            "{}",
            change.set
        );
        assert!(!change.set.contains("--add"));
    }

    #[test]
    fn names_from_the_network_cannot_leave_their_word_of_the_command() {
        let hostile = denied("Write", "x; rm -rf ~ '", 1.0);
        let change = examine(&snapshot(Role::Producer, vec![hostile]))
            .recommendation
            .unwrap();
        assert!(
            change.set.ends_with(r"--topic 'x; rm -rf ~ '\'''"),
            "{}",
            change.set
        );
    }
}
