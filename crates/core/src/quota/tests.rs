//! Entities, precedence, bounds and throttle times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;

use super::limits::{CLIENT_ID, ClientQuotas, IP, USER, limits_of};
use super::mutation::MutationQuota;
use super::registry::CLIENTS_MAX;
use super::{ClientQuota, QuotaConfig, QuotaKind, Quotas};
use crate::handlers::metadata_tests::Broker;
use crate::request::ConnectionContext;
use crate::tenant::TenantId;
use crate::time::{Clock, Moment, Timestamp};

const SECOND: u64 = 1_000_000;

#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl HandClock {
    fn set(&self, moment: Moment) {
        self.0.store(moment.micros(), Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn moment(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        panic!("the wall clock may be set to anything; quotas must not ask it")
    }
}

type Line<'a> = (&'a [(&'a str, Option<&'a str>)], &'a str, f64);

fn quotas_of(lines: &[Line<'_>]) -> Arc<ClientQuotas> {
    let mut quotas = ClientQuotas::new();
    for (entity, key, value) in lines {
        let mut entity: Vec<_> = entity
            .iter()
            .map(|(entity_type, name)| (Arc::from(*entity_type), name.map(Arc::from)))
            .collect();
        entity.sort();
        quotas.entry(entity).or_default().insert(Arc::from(*key), *value);
    }
    Arc::new(quotas)
}

fn start(config: QuotaConfig, lines: &[Line<'_>]) -> (Quotas, Arc<HandClock>) {
    let clock = Arc::new(HandClock::default());
    (Quotas::new(config, quotas_of(lines), clock.clone(), true), clock)
}

const PRODUCE: &str = "producer_byte_rate";
const FETCH: &str = "consumer_byte_rate";
const REQUEST: &str = "request_percentage";

fn producer_rate(lines: &[Line<'_>], user: &str, client_id: &str) -> Option<f64> {
    let (user, client_id) = (user.into(), client_id.into());
    let limits = limits_of(&quotas_of(lines), (&user, &client_id), (&user, &client_id));
    limits[QuotaKind::Produce as usize]
        .as_ref()
        .map(|limit| limit.per_second)
}

#[test]
fn the_most_specific_quota_wins_in_kafkas_order() {
    // Least specific first: each further line takes precedence over all before it.
    let lines: [Line<'_>; 8] = [
        (&[(CLIENT_ID, None)], PRODUCE, 8.0),
        (&[(CLIENT_ID, Some("c"))], PRODUCE, 7.0),
        (&[(USER, None)], PRODUCE, 6.0),
        (&[(USER, None), (CLIENT_ID, None)], PRODUCE, 5.0),
        (&[(USER, None), (CLIENT_ID, Some("c"))], PRODUCE, 4.0),
        (&[(USER, Some("u"))], PRODUCE, 3.0),
        (&[(USER, Some("u")), (CLIENT_ID, None)], PRODUCE, 2.0),
        (&[(USER, Some("u")), (CLIENT_ID, Some("c"))], PRODUCE, 1.0),
    ];
    for count in 0..=lines.len() {
        let expected = (count > 0).then(|| lines[count - 1].2);
        assert_eq!(producer_rate(&lines[..count], "u", "c"), expected);
    }
    assert_eq!(producer_rate(&lines, "other", "other"), Some(5.0));
    assert_eq!(producer_rate(&lines[..2], "u", "other"), Some(8.0));
}

#[test]
fn each_key_is_searched_for_separately() {
    let (quotas, _) = start(
        QuotaConfig::default(),
        &[
            (&[(USER, Some("u"))], PRODUCE, 10.0),
            (&[(CLIENT_ID, None)], PRODUCE, 20.0),
            (&[(CLIENT_ID, None)], FETCH, 30.0),
            // From a directory of an older Kafka that accepted it: it is ignored.
            (&[(USER, Some("u"))], REQUEST, 0.0),
        ],
    );
    assert_eq!(quotas.limits("u", "c"), [Some(10.0), Some(30.0), None, None]);
}

/// Books `bytes` of a produce request.
fn produce(client: &ClientQuota, bytes: u64, now: Moment) -> u32 {
    client.handled(ApiKey::Produce, bytes, 0, now)
}

#[test]
fn a_users_quota_is_shared_by_its_client_ids_and_a_default_applies_to_each_client() {
    let (quotas, _) = start(
        QuotaConfig::default(),
        &[
            (&[(USER, Some("u"))], PRODUCE, 1_000.0),
            (&[(CLIENT_ID, None)], PRODUCE, 1_000.0),
        ],
    );
    let of = |user, client_id| quotas.client(user, client_id);
    assert_eq!(produce(&of("u", "a"), 1_000, Moment::from_micros(0)), 0);
    assert_eq!(produce(&of("u", "b"), 1_000, Moment::from_micros(0)), 1_000);
    // Client ids without a user's quota: the same default, one bucket each, across users.
    assert_eq!(produce(&of("v", "a"), 1_000, Moment::from_micros(0)), 0);
    assert_eq!(produce(&of("v", "b"), 1_000, Moment::from_micros(0)), 0);
    assert_eq!(produce(&of("w", "b"), 500, Moment::from_micros(0)), 500);
}

#[test]
fn a_change_reaches_the_connections_and_leaves_other_debts_alone() {
    let before: [Line<'_>; 2] = [
        (&[(CLIENT_ID, Some("a"))], PRODUCE, 100.0),
        (&[(CLIENT_ID, Some("b"))], PRODUCE, 100.0),
    ];
    let (quotas, _) = start(QuotaConfig::default(), &before);
    let (a, b) = (quotas.client("u", "a"), quotas.client("u", "b"));
    produce(&a, 1_000, Moment::from_micros(0));
    produce(&b, 1_000, Moment::from_micros(0));
    assert!(quotas.is_newest(&a));
    quotas.follow(&quotas_of(&before), false);
    assert!(quotas.is_newest(&a), "the same quotas are no change");
    let raised = quotas_of(&[(&[(CLIENT_ID, Some("a"))], PRODUCE, 200.0), before[1]]);
    quotas.follow(&raised, false);
    assert!(!quotas.is_newest(&a));
    assert_eq!(
        produce(&quotas.client("u", "a"), 100, Moment::from_micros(0)),
        0,
        "raised: the debt is gone"
    );
    assert_eq!(
        produce(&quotas.client("u", "b"), 0, Moment::from_micros(0)),
        9_000,
        "untouched: the debt stays"
    );
    assert_eq!(quotas.report().len(), 2);
}

#[test]
fn request_time_is_percent_of_one_loop_and_throttled_by_one_window_at_a_time() {
    let (quotas, _) = start(QuotaConfig::default(), &[(&[(CLIENT_ID, None)], REQUEST, 10.0)]);
    let client = quotas.client("u", "c");
    let book = |micros, now| client.handled(ApiKey::Metadata, 100, micros, now);
    // Ten percent of one second is free once.
    assert_eq!(book(100_000, Moment::from_micros(0)), 0);
    assert_eq!(book(10_000, Moment::from_micros(0)), 100);
    assert_eq!(
        book(1_000_000, Moment::from_micros(0)),
        1_000,
        "ten seconds are owed, one is told"
    );
    client.worked(100_000, Moment::from_micros(0));
    assert_eq!(
        book(0, Moment::from_micros(10 * SECOND)),
        1_000,
        "11.1 seconds are owed"
    );
    assert_eq!(
        book(0, Moment::from_micros(11 * SECOND + 99_000)),
        1,
        "the last millisecond"
    );
    assert_eq!(book(0, Moment::from_micros(12 * SECOND)), 0);
}

#[test]
fn a_fetch_reads_at_most_one_window_and_waits_for_shared_debt() {
    let lines: [Line<'_>; 1] = [(&[(CLIENT_ID, None)], FETCH, 5_000.0)];
    let of_two_seconds = QuotaConfig {
        window: Duration::from_secs(2),
        ..QuotaConfig::default()
    };
    let (quotas, _) = start(of_two_seconds, &lines);
    assert_eq!(quotas.client("u", "c").fetch_bytes_max(), 10_000);
    let (quotas, _) = start(QuotaConfig::default(), &lines);
    let client = quotas.client("u", "c");
    assert_eq!(client.fetch_bytes_max(), 5_000);
    assert_eq!(client.answered(ApiKey::Fetch, 5_000, Moment::from_micros(0)), 0);
    assert_eq!(
        client.answered(ApiKey::Metadata, 5_000, Moment::from_micros(0)),
        0
    );
    assert_eq!(client.answered(ApiKey::Fetch, 2_500, Moment::from_micros(0)), 500);
    assert_eq!(client.fetch_debt_ms(Moment::from_micros(0)), 500);
    assert_eq!(client.fetch_debt_ms(Moment::from_micros(SECOND / 2)), 0);
    assert_eq!(quotas.client("u", "d").fetch_debt_ms(Moment::from_micros(0)), 0);
}

#[test]
fn a_dry_run_counts_and_throttles_no_client() {
    let config = QuotaConfig {
        is_dry_run: true,
        ..QuotaConfig::default()
    };
    let lines: [Line<'_>; 3] = [
        (&[(CLIENT_ID, None)], PRODUCE, 1_000.0),
        (&[(CLIENT_ID, None)], FETCH, 1_000.0),
        (&[(IP, None)], "connection_creation_rate", 1.0),
    ];
    let (quotas, _) = start(config, &lines);
    let client = quotas.client("u", "c");
    for second in 0..10 {
        assert_eq!(produce(&client, 3_000, Moment::from_micros(second * SECOND)), 0);
    }
    assert_eq!(
        (
            client.fetch_bytes_max(),
            client.fetch_debt_ms(Moment::from_micros(0))
        ),
        (u64::MAX, 0)
    );
    let report = &quotas.report()[0];
    assert_eq!(report.sums.throttles[QuotaKind::Produce as usize], 10);
    // In each second, two seconds' worth above the limit.
    assert_eq!(
        report.sums.throttle_micros[QuotaKind::Produce as usize],
        20 * SECOND
    );
    let address = "127.0.0.1".parse().unwrap();
    for _ in 0..3 {
        assert_eq!(quotas.connections.admit(address, Moment::from_micros(0)), Ok(()));
    }
    assert_eq!(quotas.connections.throttled(), 2);
    // Switched off on the running broker; every connection notices.
    quotas.follow(&quotas_of(&lines), false);
    assert!(!quotas.is_newest(&client) && !quotas.is_dry_run());
    let client = quotas.client("u", "c");
    assert_eq!(produce(&client, 3_000, Moment::from_micros(20 * SECOND)), 2_000);
    assert!(quotas.connections.admit(address, Moment::from_micros(0)).is_err());
}

/// Whether a connection keeps what it has when it asks a second time.
fn finds_itself(quotas: &Quotas, tenant: TenantId, client_id: &str) -> bool {
    let mut connection = connection(tenant);
    connection.refresh_quota(quotas, Some(client_id));
    let first = connection.quota.clone().unwrap();
    connection.refresh_quota(quotas, Some(client_id));
    Arc::ptr_eq(&first, connection.quota.as_ref().unwrap())
}

fn connection(tenant: TenantId) -> ConnectionContext {
    ConnectionContext {
        connection_id: 1,
        peer_address: "127.0.0.1".parse().unwrap(),
        peer_port: 1,
        listener_name: "PLAINTEXT".into(),
        principal: "User:u".into(),
        identity: Arc::default(),
        permitted: Arc::default(),
        tenant,
        quota: None,
    }
}

#[test]
fn a_connection_keeps_its_quotas_until_they_or_its_client_id_change() {
    let (quotas, _) = start(QuotaConfig::default(), &[]);
    assert!(finds_itself(&quotas, TenantId(7), "a"));
    let mut connection = connection(TenantId(7));
    for (client_id, expected) in [(Some("a"), "a"), (None, ""), (Some("b"), "b")] {
        connection.refresh_quota(&quotas, client_id);
        assert_eq!(&*connection.quota.as_ref().unwrap().client_id, expected);
    }
    quotas.follow(&quotas_of(&[(&[(USER, Some("u"))], PRODUCE, 1.0)]), false);
    connection.refresh_quota(&quotas, Some("b"));
    assert!(produce(connection.quota.as_ref().unwrap(), 100, Moment::from_micros(0)) > 0);
}

#[test]
fn clients_that_make_up_names_share_one_bucket() {
    let (quotas, _) = start(
        QuotaConfig::default(),
        &[(&[(CLIENT_ID, None)], PRODUCE, 1_000.0)],
    );
    let told = |tenant, client_id| {
        let mut connection = connection(tenant);
        connection.refresh_quota(&quotas, Some(client_id));
        produce(connection.quota.as_ref().unwrap(), 1_000, Moment::from_micros(0))
    };
    assert_eq!([told(TenantId(3), "a"), told(TenantId(4), "b")], [0, 0]);
    let crowd = ["c", "d", "e"].map(|client_id| told(TenantId::OTHERS, client_id));
    assert_eq!(crowd, [0, 1_000, 2_000]);
    assert!(finds_itself(&quotas, TenantId::OTHERS, "c"));
    assert_eq!(quotas.report().len(), 3, "a, b and the others");
}

#[test]
fn unbounded_names_share_one_bucket_and_quotas_set_by_name_apply() {
    let (quotas, clock) = start(
        QuotaConfig::default(),
        &[
            (&[(CLIENT_ID, None)], PRODUCE, 1_000.0),
            (&[(CLIENT_ID, Some("important"))], PRODUCE, 1e6),
        ],
    );
    let held: Vec<_> = (0..CLIENTS_MAX)
        .map(|index| quotas.client("u", &format!("c{index}")))
        .collect();
    assert_eq!(quotas.report().len(), CLIENTS_MAX);
    // Each of these would have a bucket of its own.
    let told: Vec<u32> = (0..5)
        .map(|index| {
            produce(
                &quotas.client("u", &format!("late-{index}")),
                1_000,
                Moment::from_micros(0),
            )
        })
        .collect();
    assert_eq!(told, [0, 1_000, 2_000, 3_000, 4_000]);
    assert_eq!(
        produce(
            &quotas.client("u", "important"),
            1_000_000,
            Moment::from_micros(0)
        ),
        0
    );
    assert!(finds_itself(&quotas, TenantId(7), "late-0"));
    assert_eq!(quotas.report().len(), CLIENTS_MAX + 1);
    // Clients with a connection stay; without one they are evicted after a minute if room is
    // needed, and dropped after an hour.
    clock.set(Moment::from_micros(61 * SECOND));
    assert_eq!(
        produce(&quotas.client("u", "later"), 0, Moment::from_micros(0)),
        4_000
    );
    drop(held);
    clock.set(Moment::from_micros(62 * SECOND));
    assert_eq!(
        produce(&quotas.client("u", "latest"), 0, Moment::from_micros(63 * SECOND)),
        0
    );
    assert_eq!(quotas.report().len(), 2);
    quotas.maintain();
    clock.set(Moment::from_micros(4_000 * SECOND));
    quotas.maintain();
    assert_eq!(quotas.report().len(), 1, "the others stay");
}

#[test]
fn a_long_name_is_not_kept() {
    let (quotas, _) = start(QuotaConfig::default(), &[]);
    let name = "n".repeat(30_000);
    assert!(finds_itself(&quotas, TenantId(7), &name));
    let report = quotas.report();
    assert_eq!(report.len(), 1);
    assert_eq!(&*report[0].client_id, "other");
    for (bytes, kept) in [(256, 0), (30_000, 0), (255, 2)] {
        let name = "n".repeat(bytes);
        quotas.client(&name, "c");
        quotas.client("u", &name);
        assert_eq!(quotas.report().len(), 1 + kept, "{bytes}");
    }
}

#[test]
fn a_client_without_connection_is_known_for_an_hour() {
    let (quotas, clock) = start(QuotaConfig::default(), &[]);
    let clients = || {
        let report = quotas.report();
        let clients = report.iter();
        clients
            .map(|client| (client.client_id.to_string(), client.is_connected))
            .collect::<Vec<_>>()
    };
    let known = |name: &str, is_connected| (name.to_owned(), is_connected);
    let held = quotas.client("u", "a");
    assert_eq!(clients(), [known("a", true)]);
    drop(held);
    assert_eq!(clients(), [known("a", false)]);
    quotas.maintain();
    clock.set(Moment::from_micros(100 * SECOND));
    quotas.client("u", "b");
    assert_eq!(clients(), [known("a", false), known("b", false)]);
    for (micros, count) in [(3_600 * SECOND - 1, 2), (3_600 * SECOND, 1)] {
        clock.set(Moment::from_micros(micros));
        quotas.maintain();
        assert_eq!(clients().len(), count, "{micros}");
    }
}

#[test]
fn a_bucket_stays_while_it_is_held_or_in_debt() {
    let lines: [Line<'_>; 1] = [(&[(USER, None)], PRODUCE, 1.0)];
    let (quotas, clock) = start(QuotaConfig::default(), &lines);
    // Held and full: the next client id of the user shares it.
    let first = quotas.client("u", "a");
    quotas.maintain();
    let second = quotas.client("u", "b");
    assert_eq!(produce(&first, 10_001, Moment::from_micros(0)), 10_000_000);
    assert_eq!(produce(&second, 0, Moment::from_micros(0)), 10_000_000);
    // Still in debt when its clients are forgotten.
    clock.set(Moment::from_micros(SECOND));
    quotas.maintain();
    drop((first, second));
    let later = Moment::from_micros(4_000 * SECOND);
    clock.set(later);
    quotas.maintain();
    assert!(quotas.report().is_empty());
    assert_eq!(produce(&quotas.client("u", "c"), 0, later), 6_000_000);
}

/// KIP-599.
#[test]
fn changes_are_refused_or_throttled_once_their_quota_is_in_debt() {
    let config = QuotaConfig {
        controller_window: Duration::from_secs(10),
        ..QuotaConfig::default()
    };
    let lines: [Line<'_>; 1] = [(&[(CLIENT_ID, None)], "controller_mutation_rate", 1.0)];
    let now = Moment::from_micros(0);
    for is_strict in [true, false] {
        let (quotas, _) = start(config, &lines);
        let request = || MutationQuota::new(Some(quotas.client("u", "c")), is_strict, now);
        let mut quota = request();
        // Ten seconds' worth is free, and the request that exceeds it is served.
        assert!(quota.take(10).is_ok());
        assert_eq!(quota.throttle_ms(), 0);
        assert!(quota.take(5).is_ok());
        let told = quota.throttle_ms();
        let again = quota.take(1).map_err(|refusal| refusal.code);
        if is_strict {
            assert_eq!((told, again), (0, Err(ErrorCode::ThrottlingQuotaExceeded)));
            assert_eq!(quota.throttle_ms(), 5_000);
        } else {
            assert_eq!((told, again), (5_000, Ok(())));
            assert_eq!(quota.throttle_ms(), 6_000);
        }
        let fresh = request();
        assert_eq!(fresh.throttle_ms(), 0);
    }
    let dry = QuotaConfig {
        is_dry_run: true,
        ..config
    };
    let (quotas, _) = start(dry, &lines);
    let mut quota = MutationQuota::new(Some(quotas.client("u", "c")), true, now);
    assert!((0..3).all(|_| quota.take(20).is_ok()));
    assert_eq!(quota.throttle_ms(), 0);
}

#[test]
fn whether_quotas_are_only_counted_is_configured() {
    for (value, expected) in [("true", true), ("false", false)] {
        let broker = Broker::new(&[("ottla.quota.dry.run", value)]);
        assert_eq!(broker.node.quotas.is_dry_run(), expected);
    }
}

#[test]
fn connections_are_limited_by_the_rate_of_their_address() {
    let (quotas, clock) = start(
        QuotaConfig::default(),
        &[
            (&[(IP, None)], "connection_creation_rate", 2.0),
            (&[(IP, Some("10.0.0.1"))], "connection_creation_rate", 100.0),
            (&[(IP, Some("FD00:0::1"))], "connection_creation_rate", 50.0),
        ],
    );
    let admit = |address: &str, micros| {
        quotas
            .connections
            .admit(address.parse().unwrap(), Moment::from_micros(micros))
    };
    assert_eq!((admit("10.0.0.9", 0), admit("10.0.0.9", 0)), (Ok(()), Ok(())));
    assert_eq!(admit("10.0.0.9", 0), Err(Duration::from_millis(500)));
    assert_eq!(admit("10.0.0.8", 0), Ok(()), "another address");
    assert_eq!(admit("10.0.0.9", SECOND / 2), Ok(()), "refused ones do not count");
    let many = |address: &str| {
        let now = clock.moment().micros().max(SECOND);
        (0..200).filter(|_| admit(address, now).is_ok()).count()
    };
    assert_eq!(
        (many("10.0.0.1"), many("fd00::1"), many("10.0.0.7")),
        (100, 50, 2)
    );
    clock.set(Moment::from_micros(10 * SECOND));
    quotas.maintain();
    assert_eq!(many("10.0.0.7"), 2, "full again and forgotten in between");
    quotas.follow(&Arc::default(), false);
    assert_eq!(many("10.0.0.7"), 200, "no quota, no limit");
}

#[test]
fn a_connection_rate_below_one_per_window_admits_one_after_that_time_and_0_is_no_limit() {
    let rate = "connection_creation_rate";
    let (quotas, _) = start(
        QuotaConfig::default(),
        &[
            (&[(IP, Some("10.0.0.1"))], rate, 0.5),
            (&[(IP, Some("10.0.0.2"))], rate, 0.0),
        ],
    );
    let admit = |address: &str, micros| {
        quotas
            .connections
            .admit(address.parse().unwrap(), Moment::from_micros(micros))
    };
    let refused = Err(Duration::from_secs(1));
    let one = [0, 0, 2 * SECOND, 2 * SECOND].map(|micros| admit("10.0.0.1", micros));
    assert_eq!(one, [Ok(()), refused, Ok(()), refused]);
    assert!((0..10).all(|_| admit("10.0.0.2", 0).is_ok()));
}

#[test]
fn very_many_addresses_share_one_limit_until_others_have_been_quiet() {
    let (quotas, clock) = start(
        QuotaConfig::default(),
        &[(&[(IP, None)], "connection_creation_rate", 1.0)],
    );
    let admit = |index: u32, micros| {
        let address = std::net::Ipv4Addr::from(index).into();
        quotas
            .connections
            .admit(address, Moment::from_micros(micros))
            .is_ok()
    };
    assert!((0..10_000).all(|index| admit(index, 0)));
    assert_eq!([10_000, 10_001].map(|index| admit(index, 0)), [true, false]);
    clock.set(Moment::from_micros(10 * SECOND));
    quotas.maintain();
    let later = [10_002, 10_003, 10_003].map(|index| admit(index, 10 * SECOND));
    assert_eq!(later, [true, true, false]);
}

/// A machine that slept, one that was stopped for a year, a clock at its end, and one set back to
/// its start.
const JUMPS: [u64; 6] = [
    0,
    8 * 3_600 * SECOND,
    365 * 24 * 3_600 * SECOND,
    u64::MAX,
    0,
    SECOND,
];

#[test]
fn a_clock_that_jumps_forward_gives_one_burst_and_costs_nothing() {
    for jump in [3_600 * SECOND, 365 * 24 * 3_600 * SECOND] {
        let lines: [Line<'_>; 4] = [
            (&[(CLIENT_ID, None)], PRODUCE, 1_000.0),
            (&[(CLIENT_ID, None)], FETCH, 1_000.0),
            (&[(CLIENT_ID, None)], REQUEST, 10.0),
            (&[(IP, None)], "connection_creation_rate", 2.0),
        ];
        let (quotas, clock) = start(QuotaConfig::default(), &lines);
        let (client, address) = (quotas.client("u", "c"), "10.0.0.1".parse().unwrap());
        produce(&client, 5_000, Moment::from_micros(0));
        client.answered(ApiKey::Fetch, 5_000, Moment::from_micros(0));
        let later = Moment::from_micros(jump);
        clock.set(later);
        assert_eq!(
            produce(&client, 1_000, later),
            0,
            "debts are paid, and a second's worth is there"
        );
        assert_eq!(produce(&client, 1_000, later), 1_000, "and no more");
        assert_eq!(client.fetch_debt_ms(later), 0);
        let opened = (0..10)
            .filter(|_| quotas.connections.admit(address, later).is_ok())
            .count();
        assert_eq!(opened, 2);
        // A request in progress when the clock jumps is not charged for the time in between.
        assert_eq!(client.handled(ApiKey::Metadata, 100, jump, later), 1_000);
        client.worked(jump, later);
        let paid = Moment::from_micros(later.micros() + 200 * SECOND);
        assert_eq!(
            client.handled(ApiKey::Metadata, 100, 0, paid),
            0,
            "two steps of ten seconds, at a tenth"
        );
        quotas.maintain();
        let rates = &quotas.report()[0].rates;
        assert!(rates.now.iter().chain(&rates.peak).all(|rate| rate.is_finite()));
    }
}

#[test]
fn no_clock_value_wraps_and_quotas_recover_when_the_clock_is_right_again() {
    let lines: [Line<'_>; 5] = [
        (&[(CLIENT_ID, None)], PRODUCE, 1_000.0),
        (&[(CLIENT_ID, None)], FETCH, 1_000.0),
        (&[(CLIENT_ID, None)], REQUEST, 10.0),
        (&[(CLIENT_ID, None)], "controller_mutation_rate", 1.0),
        (&[(IP, None)], "connection_creation_rate", 2.0),
    ];
    let (quotas, clock) = start(QuotaConfig::default(), &lines);
    let client = quotas.client("u", "c");
    for now in JUMPS.into_iter().cycle().take(30).map(Moment::from_micros) {
        clock.set(now);
        for told in [
            client.handled(ApiKey::Produce, 2_000, 5, now),
            client.answered(ApiKey::Fetch, 2_000, now),
            client.take_mutations(3, now),
            client.mutation_debt_ms(now),
            client.fetch_debt_ms(now),
        ] {
            assert!(told <= i32::MAX as u32, "{told} at {now:?}");
        }
        client.worked(7, now);
        let held_back = quotas.connections.admit("10.0.0.1".parse().unwrap(), now);
        assert!(held_back.is_ok() || held_back.unwrap_err() <= Duration::from_secs(1));
        quotas.client("u", &format!("new at {now:?}"));
        quotas.maintain();
        let report = quotas.report();
        let rates = report
            .iter()
            .flat_map(|client| client.rates.now.iter().chain(&client.rates.peak));
        assert!(
            rates.clone().all(|rate| rate.is_finite() && *rate >= 0.0),
            "{report:?}"
        );
    }
    // A limit that is set now takes effect now.
    let raised = quotas_of(&[(&[(CLIENT_ID, None)], PRODUCE, 2_000.0)]);
    quotas.follow(&raised, false);
    let client = quotas.client("u", "c");
    assert_eq!(
        [
            produce(&client, 2_000, Moment::from_micros(SECOND)),
            produce(&client, 2_000, Moment::from_micros(SECOND))
        ],
        [0, 1_000]
    );
}
