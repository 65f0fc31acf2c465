//! Event loops with clients of several tenants: the order of service, and the charges.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_broker::metrics::accounts::{Sum, Sums};
use ottla_core::tenant::TenantKind;
use ottla_wire::api_key::ApiKey;
use support::net::{HOLD, Net, SLOW, check_answer};
use support::{Client, frame_of};

fn request(client_id: &str, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    frame_of(client_id, ApiKey::Metadata, 1, correlation_id, |bytes| {
        bytes.extend_from_slice(body)
    })
}

/// The sums of both loops, by tenant.
fn accounts(net: &Net) -> BTreeMap<(TenantKind, String), Sums> {
    let mut by_name = BTreeMap::<(TenantKind, String), Sums>::new();
    for accounts in &net.accounts {
        accounts.read(|id, _, sums| {
            let name = net.tenants.name(id).unwrap();
            by_name
                .entry((name.kind, name.name.to_string()))
                .or_default()
                .add(&sums);
        });
    }
    by_name
}

#[test]
fn a_tenant_with_a_hundred_busy_connections_delays_only_itself() {
    const CONNECTIONS: i32 = 100;
    const REQUESTS: i32 = 40;
    const EXCHANGES: i32 = 20;
    let net = Net::start();
    let mut victim = net.client();
    victim.send(&request("victim", 0, b"hello"));
    check_answer(&mut victim, 0, b"hello");
    let mut flood: Vec<_> = (0..CONNECTIONS).map(|_| net.client()).collect();
    // Connections are given to the two loops alternately, so both floods are on both.
    for (number, client) in flood.iter_mut().enumerate() {
        let name = ["flood", "other-flood"][number / 2 % 2];
        let all: Vec<u8> = (0..REQUESTS).flat_map(|id| request(name, id, SLOW)).collect();
        client.send(&all);
    }
    let served = || net.echo.slow.load(Ordering::SeqCst);
    while served() < 200 {
        std::thread::yield_now();
    }
    let before = served();
    for id in 1..=EXCHANGES {
        victim.send(&request("victim", id, b"x"));
        check_answer(&mut victim, id, b"x");
    }
    let meanwhile = served() - before;
    // In one FIFO queue with the flood, each exchange would have waited for fifty requests on each
    // loop.
    let of_one_queue = (EXCHANGES * CONNECTIONS) as usize;
    assert!(meanwhile < of_one_queue / 2, "{meanwhile} of {of_one_queue}");
    for client in &mut flood {
        for id in 0..REQUESTS {
            check_answer(client, id, SLOW);
        }
    }
    // A request is accounted for before the next request of its loop is served.
    victim.send(&request("victim", 99, b"x"));
    check_answer(&mut victim, 99, b"x");
    let accounts = accounts(&net);
    let of = |name: &str, sum| accounts[&(TenantKind::ClientId, name.to_owned())].get(sum);
    let flooded = (CONNECTIONS * REQUESTS) as u64 / 2;
    for name in ["flood", "other-flood"] {
        let requests = of(name, Sum::Requests);
        assert!(
            requests > flooded - 100 && requests <= flooded,
            "{requests} of {flooded}"
        );
        assert!(of(name, Sum::HandlingMicros) >= 1_000 * (flooded - 100));
        // They waited for each other, and did so most of the time.
        assert!(of(name, Sum::SufferedMicros) > 1_000 * flooded / 2);
        assert!(of(name, Sum::InflictedMicros) > 1_000 * flooded / 2);
        assert!(of("victim", Sum::InflictedMicros) < of(name, Sum::InflictedMicros) / 10);
    }
}

#[test]
fn requests_and_bytes_are_charged_to_the_client_that_sent_them() {
    let net = Net::start();
    let mut clients: Vec<_> = (0..3).map(|_| net.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        for id in 0..10 {
            client.send(&request(
                &format!("c{number}"),
                id,
                &vec![1; 1_000 * (number + 1)],
            ));
            check_answer(client, id, &vec![1; 1_000 * (number + 1)]);
        }
    }
    drop(clients);
    net.wait_for_open(0);
    let accounts = accounts(&net);
    for number in 0..3u64 {
        let sums = &accounts[&(TenantKind::ClientId, format!("c{number}"))];
        assert_eq!(sums.get(Sum::Requests), 10);
        // A request has api key, version, correlation id and a client id of two letters; an answer
        // has length and correlation id.
        assert_eq!(sums.get(Sum::BytesIn), 10 * (1_000 * (number + 1) + 12));
        assert_eq!(sums.get(Sum::BytesOut), 10 * (1_000 * (number + 1) + 8));
    }
    assert!(net.tenants.known().iter().all(|known| known.connections == 0));
}

#[test]
fn a_client_that_changes_its_name_with_every_request_is_answered_and_takes_few_names() {
    let net = Net::start();
    let mut client = net.client();
    for id in 0..1_000 {
        client.send(&request(&format!("name-{id}"), id, b"x"));
        check_answer(&mut client, id, b"x");
    }
    assert!(net.tenants.known().len() < 30, "{}", net.tenants.known().len());
}

#[test]
fn connections_are_charged_to_the_address_that_opens_them() {
    const CONNECTIONS: u64 = 1_000;
    let net = Net::start();
    for _ in 0..CONNECTIONS {
        drop(net.client());
    }
    while net.counts.accepted() < CONNECTIONS {
        std::thread::yield_now();
    }
    net.wait_for_open(0);
    // The last turn is accounted for after the connection is closed, and before the next one's
    // answer.
    let mut clients = [net.client(), net.client()];
    for client in &mut clients {
        client.send(&request("late", 1, b"x"));
        check_answer(client, 1, b"x");
    }
    let accounts = accounts(&net);
    let sums = &accounts[&(TenantKind::Address, String::from("127.0.0.1"))];
    assert_eq!(sums.get(Sum::Requests), 0);
    // At the very least two system calls each.
    let handling_micros = sums.get(Sum::HandlingMicros);
    assert!(
        handling_micros >= CONNECTIONS,
        "{handling_micros} µs for {CONNECTIONS} connections"
    );
}

#[test]
fn hundreds_of_connections_at_once_are_opened_beside_a_newcomer_and_not_before_it() {
    const CROWD: usize = 300;
    let net = Net::start();
    // Connections are given to the two loops alternately.
    let mut holders = [net.client(), net.client()];
    for holder in &mut holders {
        holder.send(&request("holder", 0, HOLD));
    }
    while net.echo.held() < 2 {
        std::thread::yield_now();
    }
    let connect_and_ask = |source, name, body| {
        let mut client = Client::connect_from(source, net.address());
        client.send(&request(name, 1, body));
        client
    };
    let mut crowd: Vec<Client> = (0..CROWD)
        .map(|_| connect_and_ask([127, 0, 0, 2], "crowd", SLOW))
        .collect();
    let mut newcomer = connect_and_ask([127, 0, 0, 3], "newcomer", b"x");
    // All have been accepted while no loop could serve them.
    while net.counts.unopened() < CROWD + 1 {
        std::thread::yield_now();
    }
    net.echo.let_go();
    check_answer(&mut newcomer, 1, b"x");
    let before = net.echo.slow.load(Ordering::SeqCst);
    assert!(before < CROWD / 4, "{before} of {CROWD} were served before it");
    for client in &mut crowd {
        check_answer(client, 1, SLOW);
    }
    for holder in &mut holders {
        check_answer(holder, 0, HOLD);
    }
}

#[test]
fn a_clock_jump_under_load_loses_no_client() {
    const HOUR_MICROS: i64 = 3_600_000_000;
    const CONNECTIONS: i32 = 20;
    const REQUESTS: i32 = 40;
    let net = Net::start_with(Duration::from_secs(30 * 24 * 3_600), usize::MAX);
    let mut flood: Vec<_> = (0..CONNECTIONS).map(|_| net.client()).collect();
    for client in &mut flood {
        let all: Vec<u8> = (0..REQUESTS).flat_map(|id| request("flood", id, SLOW)).collect();
        client.send(&all);
    }
    let mut victim = net.client();
    // The machine was suspended for eight hours and for a week; then the clock is set back to its
    // start.
    for (id, jump) in [0, 8, 7 * 24, -(8 + 7 * 24), -1, 1].into_iter().enumerate() {
        net.clock.jump(jump * HOUR_MICROS);
        for _ in 0..5 {
            victim.send(&request("victim", id as i32, b"x"));
            check_answer(&mut victim, id as i32, b"x");
        }
        let mut newcomer = net.client();
        newcomer.send(&request("newcomer", 1, b"x"));
        check_answer(&mut newcomer, 1, b"x");
    }
    for client in &mut flood {
        for id in 0..REQUESTS {
            check_answer(client, id, SLOW);
        }
    }
    // Time in which no loop worked is charged to no tenant: a turn counts a second at most.
    let all = accounts(&net);
    let micros: u64 = all.values().map(|sums| sums.loop_micros()).sum();
    assert!(micros < HOUR_MICROS as u64, "{all:?}");
}
