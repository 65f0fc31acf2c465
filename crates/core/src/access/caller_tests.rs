//! What a connection was permitted is remembered, and never for longer or for others than it holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use super::Access;
use super::acl::{Operation, PatternType, Permission, ResourceType};
use crate::config::AuthorizerConfig;
use crate::image::access::AclImage;
use crate::permitted::{Asked, Holder};
use crate::request::{ConnectionContext, Request};
use crate::time::Moment;
use Operation::{Describe, Read, Write};
use Permission::{Allow, Deny};

type Acls = BTreeMap<Uuid, AclImage>;

const DENIED: Result<(), ErrorCode> = Err(ErrorCode::TopicAuthorizationFailed);

fn acl(permission: Permission, operation: Operation, principal: &str, name: &str) -> AclImage {
    AclImage {
        id: Uuid::ZERO,
        resource_type: ResourceType::Topic.code(),
        resource_name: name.into(),
        pattern_type: PatternType::Prefixed.code(),
        principal: principal.into(),
        host: "*".into(),
        operation: operation.code(),
        permission_type: permission.code(),
    }
}

fn acls<const COUNT: usize>(all: [AclImage; COUNT]) -> Acls {
    let numbered = (1u128..).zip(all);
    numbered
        .map(|(number, acl)| (Uuid(number.to_be_bytes()), acl))
        .collect()
}

fn alice_writes() -> Acls {
    acls([acl(Allow, Write, "User:alice", "o")])
}

fn access(acls: &Acls) -> Access {
    let config = AuthorizerConfig {
        super_users: BTreeSet::from(["User:admin".into()]),
        allow_without_acl: false,
    };
    Access::new(Some(&config), acls)
}

fn connection(principal: &str) -> ConnectionContext {
    ConnectionContext {
        connection_id: 1,
        peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        peer_port: 1,
        listener_name: "PLAINTEXT".into(),
        principal: principal.into(),
        identity: Default::default(),
        permitted: Default::default(),
        tenant: Default::default(),
        quota: None,
    }
}

fn request(connection: &ConnectionContext) -> Request<'_> {
    Request {
        connection,
        api_key: ApiKey::Produce,
        api_version: 12,
        correlation_id: 1,
        client_id: None,
        body: &[],
        received: Moment::from_micros(1),
    }
}

fn ask(
    access: &Access,
    connection: &ConnectionContext,
    operation: Operation,
    topic: &str,
) -> Result<(), ErrorCode> {
    let caller = access.caller(&request(connection));
    let granted = caller.topic(operation, topic)?;
    assert_eq!(granted.name(), topic);
    Ok(())
}

/// Whether it is remembered that alice may write, by this version of the ACLs.
fn has(connection: &ConnectionContext, version: u64) -> bool {
    let holder = Holder {
        principal: "User:alice",
        address: connection.peer_address,
        version,
    };
    let asked = Asked {
        operation: Write,
        resource_type: ResourceType::Topic,
        name: "orders",
    };
    connection.permitted.has(holder, asked)
}

fn count_denials(access: &Access) -> u64 {
    access.denials().unwrap().iter().map(|(_, count)| count).sum()
}

#[test]
fn a_permission_is_remembered_and_counts_until_it_is_withdrawn() {
    let access = access(&alice_writes());
    let alice = connection("User:alice");
    for _ in 0..2 {
        assert_eq!(ask(&access, &alice, Write, "orders"), Ok(()));
        assert_eq!(ask(&access, &alice, Describe, "orders"), Ok(()));
    }
    assert_eq!(alice.permitted.count(), 1, "one resource");
    assert!(has(&alice, 0) && !has(&alice, 1));
    access.follow(&alice_writes());
    assert_eq!(ask(&access, &alice, Write, "orders"), Ok(()));
    assert!(has(&alice, 1) && !has(&alice, 0));
    access.follow(&acls([]));
    assert_eq!(ask(&access, &alice, Write, "orders"), DENIED);
    assert_eq!(ask(&access, &alice, Describe, "orders"), DENIED);
    access.follow(&alice_writes());
    assert_eq!(ask(&access, &alice, Write, "orders"), Ok(()));
    let denial = acl(Deny, Write, "User:*", "orders");
    access.follow(&acls([acl(Allow, Write, "User:alice", "o"), denial]));
    assert_eq!(ask(&access, &alice, Write, "orders"), DENIED);
}

#[test]
fn a_caller_that_was_kept_is_decided_about_by_the_acls_of_the_moment() {
    let access = access(&alice_writes());
    let alice = connection("User:alice");
    let kept = access.caller(&request(&alice)).keep();
    assert!(kept.borrow().topic(Write, "orders").is_ok());
    assert_eq!(alice.permitted.count(), 1, "it remembers for its connection");
    access.follow(&acls([]));
    assert!(kept.borrow().topic(Write, "orders").is_err());
    assert!(!kept.borrow().may_on_topic(Write, "orders"));
}

#[test]
fn what_one_principal_was_permitted_is_not_permitted_to_another() {
    let access = access(&alice_writes());
    // As when a connection authenticates.
    let mut same = connection("User:alice");
    assert_eq!(ask(&access, &same, Write, "orders"), Ok(()));
    same.principal = "User:bob".into();
    assert_eq!(ask(&access, &same, Write, "orders"), DENIED);
    assert!(!access.caller(&request(&same)).may_on_topic(Write, "orders"));
    same.principal = "User:admin".into();
    assert_eq!(ask(&access, &same, Write, "orders"), Ok(()));
    assert!(access.caller(&request(&same)).is_unlimited());
    same.principal = "User:bob".into();
    assert_eq!(ask(&access, &same, Write, "orders"), DENIED);
    // And between connections.
    let other = connection("User:bob");
    assert_eq!(ask(&access, &connection("User:alice"), Write, "orders"), Ok(()));
    assert_eq!(ask(&access, &other, Write, "orders"), DENIED);
}

#[test]
fn every_denial_is_decided_and_counted() {
    let access = access(&alice_writes());
    let alice = connection("User:alice");
    for count in 1..=3 {
        assert_eq!(ask(&access, &alice, Read, "orders"), DENIED);
        assert_eq!(count_denials(&access), count);
    }
    assert_eq!(alice.permitted.count(), 0);
    access.follow(&acls([acl(Allow, Read, "User:alice", "o")]));
    assert_eq!(ask(&access, &alice, Read, "orders"), Ok(()));
    assert_eq!(count_denials(&access), 3);
}

/// A Metadata request for all topics must not displace what a produce needs.
#[test]
fn the_topics_of_a_list_are_not_remembered() {
    let access = access(&alice_writes());
    let alice = connection("User:alice");
    assert_eq!(ask(&access, &alice, Write, "orders"), Ok(()));
    let caller = access.caller(&request(&alice));
    for number in 0..100 {
        assert!(caller.may_on_topic(Write, &format!("o{number}")));
    }
    assert_eq!(alice.permitted.count(), 1);
}

#[test]
fn without_an_authorizer_nothing_is_asked_or_remembered() {
    let access = Access::new(None, &acls([]));
    let anyone = connection("User:ANONYMOUS");
    assert_eq!(ask(&access, &anyone, Write, "orders"), Ok(()));
    assert_eq!(anyone.permitted.count(), 0);
    assert!(access.caller(&request(&anyone)).keep().borrow().is_unlimited());
}
