//! The cost of a check of access: `cargo bench -p ottla-core`.
//!
//! `known` is what a produce pays for a topic that its connection has written to before. `decided`
//! is the decision by the ACLs, without memory; `forgotten` the same with memory, where every name
//! is a new one. Times are CPU times of the thread, so that other load on the machine does not
//! matter; minimum of several rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use ottla_core::access::Access;
use ottla_core::access::acl::{Operation, PatternType, Permission, ResourceType};
use ottla_core::config::AuthorizerConfig;
use ottla_core::image::access::AclImage;
use ottla_core::request::{ConnectionContext, Request};
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::Uuid;

const CHECKS: usize = 200_000;
const ROUNDS: usize = 7;
const PRINCIPAL: &str = "User:alice";

fn main() {
    println!("    ACLs  patterns   topics   known ns   decided ns   forgotten ns");
    let none = Access::new(None, &BTreeMap::new());
    let ours = [topic(0)];
    println!(
        "{:>8}  {:>8}  {:>7}  {:>9.1}",
        "off",
        "",
        1,
        nanos(|| known(&none, &ours))
    );
    for pattern_type in [PatternType::Literal, PatternType::Prefixed] {
        for count in [10, 1_000, 10_000] {
            let access = access(count, pattern_type);
            for topics in [1, count.min(300)] {
                let ours: Vec<String> = (0..topics).map(topic).collect();
                println!(
                    "{count:>8}  {:>8}  {topics:>7}  {:>9.1}  {:>11.1}  {:>13.1}",
                    pattern_type.name(),
                    nanos(|| known(&access, &ours)),
                    nanos(|| decided(&access, &ours)),
                    nanos(|| forgotten(&access, count)),
                );
            }
        }
    }
}

/// An ACL for each of as many topics.
fn access(count: usize, pattern_type: PatternType) -> Access {
    let config = AuthorizerConfig {
        super_users: BTreeSet::from(["User:admin".into()]),
        allow_without_acl: false,
    };
    let acl = |number: usize| AclImage {
        id: Uuid((number as u128).to_be_bytes()),
        resource_type: ResourceType::Topic.code(),
        resource_name: topic(number).into(),
        pattern_type: pattern_type.code(),
        principal: PRINCIPAL.into(),
        host: "*".into(),
        operation: Operation::Write.code(),
        permission_type: Permission::Allow.code(),
    };
    let acls = (0..count).map(acl).map(|acl| (acl.id, acl)).collect();
    Access::new(Some(&config), &acls)
}

fn topic(number: usize) -> String {
    format!("team-{}.orders.{number:05}", number % 50)
}

fn connection() -> ConnectionContext {
    ConnectionContext {
        connection_id: 1,
        peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        peer_port: 1,
        listener_name: "PLAINTEXT".into(),
        principal: PRINCIPAL.into(),
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

fn known(access: &Access, topics: &[String]) {
    let connection = connection();
    let request = request(&connection);
    for topic in topics.iter().cycle().take(CHECKS) {
        let caller = black_box(access).caller(black_box(&request));
        assert!(caller.topic(Operation::Write, black_box(topic)).is_ok());
    }
}

fn decided(access: &Access, topics: &[String]) {
    let connection = connection();
    let request = request(&connection);
    for topic in topics.iter().cycle().take(CHECKS) {
        let caller = black_box(access).caller(black_box(&request));
        assert!(caller.may_on_topic(Operation::Write, black_box(topic)));
    }
}

/// More names than are remembered.
fn forgotten(access: &Access, count: usize) {
    let connection = connection();
    let request = request(&connection);
    let names: Vec<String> = (0..5_000)
        .map(|number| format!("{}.{number}", topic(number % count)))
        .collect();
    for topic in names.iter().cycle().take(CHECKS) {
        let caller = black_box(access).caller(black_box(&request));
        let _ = black_box(caller.topic(Operation::Write, black_box(topic)));
    }
}

fn nanos(round: impl Fn()) -> f64 {
    let nanos = (0..ROUNDS).map(|_| {
        let start = cpu_nanos();
        round();
        (cpu_nanos() - start) as f64 / CHECKS as f64
    });
    nanos.fold(f64::INFINITY, f64::min)
}

fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
