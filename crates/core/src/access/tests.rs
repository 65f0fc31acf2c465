//! The decision, against the rules of Apache Kafka's StandardAuthorizer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ottla_wire::primitives::Uuid;

use super::acl::{Operation, PatternType, Permission, ResourceType};
use super::decide::{Asker, Decision};
use super::index::AclIndex;
use crate::image::access::AclImage;
use Operation::{All, Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
use PatternType::{Literal, Prefixed};
use Permission::{Allow, Deny};

/// `ALLOW User:alice READ topic literal orders from 10.0.0.1`, without the topic.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name: &'static str,
    pattern_type: PatternType,
    principal: &'static str,
    host: &'static str,
    operation: Operation,
    permission: Permission,
}

fn entry(
    permission: Permission,
    operation: Operation,
    pattern_type: PatternType,
    name: &'static str,
) -> Entry {
    Entry {
        name,
        pattern_type,
        principal: "User:alice",
        host: "*",
        operation,
        permission,
    }
}

fn image(entry: &Entry) -> AclImage {
    AclImage {
        id: Uuid::ZERO,
        resource_type: ResourceType::Topic.code(),
        resource_name: entry.name.into(),
        pattern_type: entry.pattern_type.code(),
        principal: entry.principal.into(),
        host: entry.host.into(),
        operation: entry.operation.code(),
        permission_type: entry.permission.code(),
    }
}

fn index(entries: &[Entry]) -> AclIndex {
    let numbered = entries.iter().zip(1u128..);
    let acls: BTreeMap<Uuid, AclImage> = numbered
        .map(|(entry, number)| {
            let id = Uuid(number.to_be_bytes());
            (id, AclImage { id, ..image(entry) })
        })
        .collect();
    AclIndex::new(&acls)
}

fn asker(address: &str) -> Asker<'static> {
    Asker {
        principal: "User:alice",
        address: address.parse::<IpAddr>().unwrap().to_canonical(),
    }
}

fn allows(entries: &[Entry], operation: Operation, name: &str) -> bool {
    index(entries).allows(asker("10.0.0.1"), operation, ResourceType::Topic, name, false)
}

#[test]
fn without_any_acl_the_setting_decides() {
    let index = index(&[]);
    let ask = |without_acl| {
        index.allows(
            asker("10.0.0.1"),
            Read,
            ResourceType::Topic,
            "orders",
            without_acl,
        )
    };
    assert!(!ask(false));
    assert!(ask(true));
}

#[test]
fn an_acl_of_somebody_else_closes_the_resource() {
    let others = Entry {
        principal: "User:bob",
        ..entry(Allow, Read, Literal, "orders")
    };
    let index = index(&[others]);
    let ask = |name| index.allows(asker("10.0.0.1"), Read, ResourceType::Topic, name, true);
    assert!(!ask("orders"));
    assert!(ask("payments"));
    let type_without = index.allows(asker("10.0.0.1"), Read, ResourceType::Group, "orders", true);
    assert!(type_without);
}

#[test]
fn any_denial_wins() {
    for (pattern_type, name) in [
        (Literal, "orders"),
        (Literal, "*"),
        (Prefixed, "ord"),
        (Prefixed, "o"),
    ] {
        let denial = entry(Deny, Read, pattern_type, name);
        let permissions = [
            entry(Allow, All, Literal, "orders"),
            entry(Allow, Read, Prefixed, "or"),
        ];
        let mut entries = vec![denial];
        entries.extend(permissions);
        assert!(!allows(&entries, Read, "orders"), "{denial:?}");
        entries.reverse();
        assert!(!allows(&entries, Read, "orders"), "{denial:?}");
        assert!(allows(&permissions, Read, "orders"));
    }
}

#[test]
fn a_denial_of_any_operation_beats_every_permission_that_would_do() {
    for denied in Operation::ALL {
        for allowed in Operation::ALL {
            for asked in Operation::ALL {
                let permission = entry(Allow, *allowed, Literal, "orders");
                let denial = entry(Deny, *denied, Literal, "*");
                let is_permitted = allows(&[permission], *asked, "orders");
                // A denial is of one operation or of all; unlike a permission it implies no other.
                let is_denied = denied == asked || *denied == All;
                assert_eq!(
                    allows(&[permission, denial], *asked, "orders"),
                    is_permitted && !is_denied,
                    "{denied:?} denied, {allowed:?} allowed, {asked:?} asked"
                );
            }
        }
    }
}

#[test]
fn patterns_match_whole_names_prefixes_and_the_wildcard() {
    let cases = [
        (Literal, "orders", "orders", true),
        (Literal, "orders", "orders2", false),
        (Literal, "orders2", "orders", false),
        (Literal, "*", "orders", true),
        (Literal, "ord*", "orders", false),
        (Prefixed, "orders", "orders", true),
        (Prefixed, "ord", "orders", true),
        (Prefixed, "orders2", "orders", false),
        (Prefixed, "rders", "orders", false),
        (Prefixed, "*", "*x", true),
        // A resource that is called `*` is none of the others.
        (Literal, "orders", "*", false),
        (Prefixed, "ord", "*", false),
        (Literal, "*", "*", true),
        // Text is compared as it is, without normalization.
        (Literal, "sch\u{f6}n", "sch\u{f6}n", true),
        (Literal, "scho\u{308}n", "sch\u{f6}n", false),
        (Prefixed, "sch\u{f6}", "sch\u{f6}n", true),
        (Prefixed, "sch\u{f6}", "scho\u{308}n", false),
    ];
    for (pattern_type, pattern, name, expected) in cases {
        let is_allowed = allows(&[entry(Allow, Read, pattern_type, pattern)], Read, name);
        assert_eq!(is_allowed, expected, "{pattern_type:?} {pattern} for {name}");
    }
}

#[test]
fn every_prefix_is_found_among_many() {
    // Names that lie between the prefixes of a name in the order of bytes, and cut a character.
    let decoys = [
        "a",
        "aa",
        "ab",
        "abc\u{e9}",
        "abd",
        "ac",
        "b",
        "abc\u{e8}x",
        "ab\u{1f600}",
    ];
    let name = "abc\u{e9}def";
    for prefix in ["a", "ab", "abc", "abc\u{e9}", "abc\u{e9}d", name] {
        let mut entries: Vec<Entry> = decoys
            .iter()
            .map(|decoy| Entry {
                principal: "User:bob",
                ..entry(Deny, All, Prefixed, decoy)
            })
            .collect();
        entries.push(entry(Allow, Read, Prefixed, prefix));
        assert!(allows(&entries, Read, name), "{prefix}");
        assert_eq!(
            allows(&entries, Read, "abd"),
            "abd".starts_with(prefix),
            "{prefix}"
        );
    }
}

#[test]
fn permissions_imply_descriptions_and_denials_do_not() {
    let granted = |own: Operation, wanted: Operation| allows(&[entry(Allow, own, Literal, "t")], wanted, "t");
    for own in Operation::ALL {
        for wanted in Operation::ALL.iter().filter(|wanted| **wanted != All) {
            let implied = match wanted {
                Describe => matches!(own, All | Describe | Read | Write | Delete | Alter),
                DescribeConfigs => matches!(own, All | DescribeConfigs | AlterConfigs),
                _ => *own == All || own == wanted,
            };
            assert_eq!(granted(*own, *wanted), implied, "{own:?} for {wanted:?}");
            let denied = [entry(Allow, All, Literal, "t"), entry(Deny, *own, Literal, "t")];
            let is_hit = *own == All || own == wanted;
            assert_eq!(
                allows(&denied, *wanted, "t"),
                !is_hit,
                "denied {own:?} for {wanted:?}"
            );
        }
    }
}

#[test]
fn principals_are_compared_whole_and_the_wildcard_is_everyone() {
    let of = |principal| {
        let entry = Entry {
            principal,
            ..entry(Allow, Read, Literal, "t")
        };
        allows(&[entry], Read, "t")
    };
    assert!(of("User:alice"));
    assert!(of("User:*"));
    for other in [
        "User:alic",
        "User:alice2",
        "user:alice",
        "Group:alice",
        "alice",
        "*",
        "Group:*",
    ] {
        assert!(!of(other), "{other}");
    }
}

#[test]
fn hosts_are_addresses_in_any_spelling() {
    let from = |host, address| {
        let entry = Entry {
            host,
            ..entry(Allow, Read, Literal, "t")
        };
        index(&[entry]).allows(asker(address), Read, ResourceType::Topic, "t", false)
    };
    assert!(from("*", "10.0.0.1"));
    assert!(from("10.0.0.1", "10.0.0.1"));
    assert!(from("10.0.0.1", "::ffff:10.0.0.1"));
    assert!(!from("10.0.0.2", "10.0.0.1"));
    assert!(!from("10.0.0.0/8", "10.0.0.1"));
    assert!(!from("localhost", "127.0.0.1"));
    assert!(from("0:0:0:0:0:0:0:1", "::1"));
    assert!(from("::1", "::1"));
    assert!(!from("::1", "127.0.0.1"));
}

#[test]
fn acls_with_unknown_codes_close_their_resource_and_permit_nothing() {
    let mut acl = image(&entry(Allow, Read, Literal, "t"));
    acl.operation = 99;
    let index = AclIndex::new(&BTreeMap::from([(Uuid::ZERO, acl)]));
    let ask = |name| index.allows(asker("10.0.0.1"), Read, ResourceType::Topic, name, true);
    assert!(!ask("t"));
    assert!(ask("u"));
}

#[test]
fn writing_somewhere_needs_a_permission_that_no_denial_covers() {
    let somewhere = |entries: &[Entry]| {
        index(entries).allows_somewhere(asker("10.0.0.1"), Write, ResourceType::Topic, false)
    };
    assert!(!somewhere(&[]));
    assert!(!somewhere(&[entry(Allow, Read, Literal, "t")]));
    for allowed in [
        entry(Allow, Write, Literal, "t"),
        entry(Allow, All, Prefixed, "t"),
        entry(Allow, Write, Literal, "*"),
    ] {
        assert!(somewhere(&[allowed]), "{allowed:?}");
        assert!(
            !somewhere(&[allowed, entry(Deny, Write, Literal, "*")]),
            "{allowed:?}"
        );
        assert!(
            !somewhere(&[Entry {
                principal: "User:bob",
                ..allowed
            }]),
            "{allowed:?}"
        );
        assert!(
            !somewhere(&[Entry {
                host: "10.0.0.2",
                ..allowed
            }]),
            "{allowed:?}"
        );
    }
    let literal = entry(Allow, Write, Literal, "table");
    assert!(!somewhere(&[literal, entry(Deny, Write, Literal, "table")]));
    assert!(!somewhere(&[literal, entry(Deny, All, Prefixed, "ta")]));
    assert!(somewhere(&[literal, entry(Deny, Write, Literal, "tab")]));
    assert!(somewhere(&[literal, entry(Deny, Write, Prefixed, "tables")]));
    let prefixed = entry(Allow, Write, Prefixed, "ta");
    assert!(!somewhere(&[prefixed, entry(Deny, Write, Prefixed, "ta")]));
    assert!(!somewhere(&[prefixed, entry(Deny, Write, Prefixed, "t")]));
    assert!(somewhere(&[prefixed, entry(Deny, Write, Prefixed, "tab")]));
    assert!(somewhere(&[prefixed, entry(Deny, Write, Literal, "ta")]));
    // A wildcard permission outweighs every denial but the wildcard's.
    assert!(somewhere(&[
        entry(Allow, Write, Literal, "*"),
        entry(Deny, Write, Prefixed, "h")
    ]));
    assert!(index(&[]).allows_somewhere(asker("10.0.0.1"), Write, ResourceType::Topic, true));
}

#[test]
fn a_decision_names_the_acl_that_made_it() {
    let entries = [
        entry(Allow, Read, Literal, "orders"),
        entry(Deny, Write, Prefixed, "ord"),
        entry(Allow, All, Literal, "orders"),
    ];
    let index = index(&entries);
    let id = |number: u128| Uuid(number.to_be_bytes());
    let decide = |operation, name| index.decide(asker("10.0.0.1"), operation, ResourceType::Topic, name);
    assert_eq!(decide(Write, "orders"), Decision::Denied(id(2)));
    assert!(matches!(decide(Read, "orders"), Decision::Allowed(by) if by != id(2)));
    assert_eq!(decide(Alter, "orders"), Decision::Allowed(id(3)));
    assert_eq!(decide(Read, "ordinary"), Decision::NoneApplies);
    assert_eq!(decide(Read, "payments"), Decision::NoAcl);
    assert_eq!(
        index.decide(asker("10.0.0.1"), Read, ResourceType::Group, "orders"),
        Decision::NoAcl
    );
}
