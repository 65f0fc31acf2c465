//! Tests that clients get the right tenant, and that made-up names stay within bounds.

use std::net::Ipv4Addr;

use super::*;

const START: Moment = Moment::from_micros(1_000_000_000);

fn tenants(key: &[TenantKind], known_max: usize, new_per_minute: u32) -> Arc<Tenants> {
    Arc::new(Tenants::new(TenantConfig {
        key: key.into(),
        limits: TenantLimits {
            known_max,
            new_per_minute,
        },
        metrics_max: 20,
    }))
}

fn claim<'a>(principal: &'a str, client_id: Option<&'a str>, last_octet: u8) -> TenantClaim<'a> {
    TenantClaim {
        principal,
        client_id,
        address: Ipv4Addr::new(10, 0, 0, last_octet).into(),
    }
}

const ANONYMOUS: &str = "User:ANONYMOUS";

fn name(tenants: &Arc<Tenants>, claim: &TenantClaim<'_>) -> (TenantKind, String) {
    let lease = tenants.admit(claim, START);
    let name = tenants.name(lease.id()).unwrap();
    (name.kind, name.name.to_string())
}

#[test]
fn the_first_kind_a_client_has_names_it() {
    let default = Arc::new(Tenants::default());
    let named = |claim| name(&default, &claim);
    assert_eq!(
        named(claim("User:alice", Some("c"), 1)),
        (TenantKind::User, "alice".to_owned())
    );
    assert_eq!(
        named(claim(ANONYMOUS, Some("c"), 1)),
        (TenantKind::ClientId, "c".to_owned())
    );
    assert_eq!(
        named(claim(ANONYMOUS, Some(""), 1)),
        (TenantKind::Address, "10.0.0.1".to_owned())
    );
    assert_eq!(
        named(claim(ANONYMOUS, None, 2)),
        (TenantKind::Address, "10.0.0.2".to_owned())
    );
    let by_address = tenants(&[TenantKind::Address, TenantKind::User], 10, 10);
    assert_eq!(
        name(&by_address, &claim("User:alice", Some("c"), 1)),
        (TenantKind::Address, "10.0.0.1".to_owned())
    );
    let by_user = tenants(&[TenantKind::User], 10, 10);
    assert_eq!(
        name(&by_user, &claim(ANONYMOUS, Some("c"), 1)).0,
        TenantKind::Others
    );
}

#[test]
fn a_user_and_a_client_id_with_the_same_spelling_are_two_tenants() {
    let tenants = Arc::new(Tenants::default());
    let user = tenants.admit(&claim("User:x", None, 1), START);
    let client = tenants.admit(&claim(ANONYMOUS, Some("x"), 1), START);
    assert_ne!(user.id(), client.id());
}

#[test]
fn an_address_that_makes_up_names_falls_into_the_shared_class_until_the_next_minute() {
    let tenants = tenants(&TenantConfig::default().key, 1_000, 5);
    let admit = |number: usize, octet, now| {
        tenants
            .admit(&claim(ANONYMOUS, Some(&format!("n{number}")), octet), now)
            .id()
    };
    let made_up: Vec<TenantId> = (0..100).map(|number| admit(number, 1, START)).collect();
    assert!(made_up[..5].iter().all(|id| *id != TenantId::OTHERS));
    assert!(made_up[5..].iter().all(|id| *id == TenantId::OTHERS));
    // A known name keeps its tenant, and other addresses are not affected.
    assert_eq!(admit(3, 1, START), made_up[3]);
    assert_ne!(admit(200, 2, START), TenantId::OTHERS);
    assert_ne!(
        admit(50, 1, Moment::from_micros(START.micros() + 61_000_000)),
        TenantId::OTHERS
    );
}

#[test]
fn an_ipv6_host_cannot_escape_within_its_network() {
    let tenants = tenants(&TenantConfig::default().key, 1_000, 5);
    let others = (0..100u16)
        .filter(|number| {
            let name = format!("n{number}");
            let claim = TenantClaim {
                principal: ANONYMOUS,
                client_id: Some(&name),
                address: Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, *number).into(),
            };
            tenants.admit(&claim, START).id() == TenantId::OTHERS
        })
        .count();
    assert_eq!(others, 95);
}

#[test]
fn tenants_are_bounded_and_the_longest_absent_is_evicted() {
    let tenants = tenants(&[TenantKind::ClientId], 3, 100);
    let admit = |name| tenants.admit(&claim(ANONYMOUS, Some(name), 1), START);
    let (a, b, c) = (admit("a"), admit("b"), admit("c"));
    let (id_a, id_b) = (a.id(), b.id());
    assert_eq!(admit("d").id(), TenantId::OTHERS);
    drop(b);
    drop(a);
    let d = admit("d");
    assert_eq!((d.id(), d.generation()), (id_b, 1));
    assert_eq!(admit("a").id(), id_a);
    assert_eq!(tenants.known().len(), 4);
    assert!(
        tenants
            .known()
            .iter()
            .all(|known| known.id.index() < tenants.id_limit())
    );
    drop((c, d));
    let connections: usize = tenants.known().iter().map(|known| known.connections).sum();
    assert_eq!(connections, 0);
}

#[test]
fn a_hundred_thousand_addresses_and_names_leave_a_bounded_registry() {
    let tenants = tenants(&TenantConfig::default().key, 100, 10);
    for number in 0..100_000u32 {
        let name = format!("n{number}");
        let claim = TenantClaim {
            principal: ANONYMOUS,
            client_id: Some(&name),
            address: Ipv4Addr::from_bits(number).into(),
        };
        tenants.admit(&claim, START);
    }
    assert_eq!(tenants.known().len(), 101);
    assert!(tenants.lock().bookkeeping_len() <= 2 * 100 + 4_096);
}

#[test]
fn a_long_name_is_cut_at_a_character() {
    let tenants = Arc::new(Tenants::default());
    let (_, name) = name(&tenants, &claim(ANONYMOUS, Some(&"å".repeat(30_000)), 1));
    assert_eq!(name.chars().count(), NAME_CHARACTERS_MAX);
}

#[test]
fn new_names_are_counted_per_minute_however_the_clock_jumps() {
    let tenants = tenants(&TenantConfig::default().key, 1_000, 5);
    let mut number = 0;
    let mut admitted_at = |now| {
        let of_twenty = (0..20).filter(|_| {
            number += 1;
            let name = format!("n{number}");
            tenants
                .admit(&claim(ANONYMOUS, Some(&name), 1), Moment::from_micros(now))
                .id()
                != TenantId::OTHERS
        });
        of_twenty.count()
    };
    // The clock jumps: the machine slept for a day, was stopped for a year; the clock restarts, and
    // overflows.
    for now in [0, 86_400_000_000, 31_536_000_000_000, 0, u64::MAX, 1_000_000] {
        assert_eq!(admitted_at(now), 5, "{now}");
        assert_eq!(admitted_at(now), 0, "{now}");
    }
}
