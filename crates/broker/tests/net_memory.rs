//! The memory that connections cost, whatever their clients do. One test at a time: they measure
//! the memory of the process.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use support::net::{LARGE, LARGE_BYTES, Net, check_answer, echo, echo_of, until};
use support::tls::TlsNet;
use support::{Client, resident_bytes};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_client_that_never_reads_is_bounded_and_then_closed() {
    let _alone = alone();
    let net = Net::start_with(Duration::from_secs(2), usize::MAX);
    let before = resident_bytes();
    let mut client = net.client();
    // Answers of 2 GB in total; the broker must stop reading long before.
    client.send(&(0..200).flat_map(|id| echo(id, LARGE)).collect::<Vec<u8>>());
    net.wait_for_open(1);
    net.wait_for_open(0);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 150 << 20, "grew by {grown} bytes");
}

/// What is encrypted and not taken by the socket is bounded too.
#[test]
fn a_client_of_tls_that_never_reads_is_bounded() {
    let _alone = alone();
    let tls = TlsNet::start(&[]);
    let mut polite = tls.client();
    polite.send(&echo(0, b"warm"));
    polite.check_answer(0, b"warm");
    let before = resident_bytes();
    let mut client = tls.client();
    client.send(&echo(0, b"it is me"));
    client.check_answer(0, b"it is me");
    // Answers of 2 GB in total; the broker must stop reading long before.
    client.send(&(0..200).flat_map(|id| echo(id, LARGE)).collect::<Vec<u8>>());
    until("an answer is stuck", || {
        tls.net.memory.used_bytes() >= LARGE_BYTES - (5 << 20)
    });
    polite.send(&echo(1, b"nobody is stopped"));
    polite.check_answer(1, b"nobody is stopped");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 150 << 20, "grew by {grown} bytes");
    drop(client);
    tls.net.wait_for_open(1);
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let _alone = alone();
    let net = Net::start();
    let mut client = net.client();
    client.send(&(0..20).flat_map(|id| echo(id, LARGE)).collect::<Vec<u8>>());
    for id in 0..20 {
        let reply = client.receive(ApiKey::Metadata, 1, id);
        assert!(reply.len() == LARGE_BYTES && reply.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn announced_bytes_cost_nothing_until_they_arrive() {
    let _alone = alone();
    let net = Net::start();
    let mut polite = net.client();
    polite.send(&echo(0, b"warm"));
    check_answer(&mut polite, 0, b"warm");
    let before = resident_bytes();
    let mut announcers: Vec<Client> = (0..60).map(|_| net.client()).collect();
    for announcer in &mut announcers {
        announcer.send(&(100u32 << 20).to_be_bytes());
        announcer.send(&[0; 1024]);
    }
    net.wait_for_open(61);
    for id in 1..100 {
        polite.send(&echo(id, b"nobody is stopped"));
        check_answer(&mut polite, id, b"nobody is stopped");
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(
        grown < 32 << 20,
        "60 announcements of 100 MiB grew memory by {grown} bytes"
    );
}

#[test]
fn a_flood_of_large_half_requests_is_bounded() {
    let _alone = alone();
    const LIMIT_BYTES: usize = 64 << 20;
    let net = Net::start_within((LIMIT_BYTES, 16 << 20), Duration::from_secs(600), usize::MAX);
    let mut polite = net.client();
    polite.send(&echo(0, b"warm"));
    check_answer(&mut polite, 0, b"warm");
    let before = resident_bytes();
    let request = echo(1, &vec![7; 15 << 20]);
    let half = &request[..8 << 20];
    let mut clients: Vec<Client> = (0..200).map(|_| net.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&echo_of(&format!("tenant {}", number % 10), 0, b"it is me"));
        check_answer(client, 0, b"it is me");
    }
    let mut sent = vec![0; clients.len()];
    for client in &clients {
        client.socket.set_nonblocking(true).unwrap();
    }
    // Send as much as the broker takes; all of it would be 1.6 GB.
    let mut idle_rounds = 0;
    while idle_rounds < 50 {
        let mut is_idle = true;
        for (client, sent) in clients.iter().zip(&mut sent) {
            match std::io::Write::write(&mut &client.socket, &half[*sent..]) {
                Ok(0) => {}
                Ok(bytes) => (*sent, is_idle) = (*sent + bytes, false),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        idle_rounds = if is_idle { idle_rounds + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(2));
    }
    polite.send(&echo(1, b"nobody is stopped"));
    check_answer(&mut polite, 1, b"nobody is stopped");
    let grown = resident_bytes().saturating_sub(before) as usize;
    let total: usize = sent.iter().sum();
    println!(
        "200 half requests: {} MiB sent, {} connections wait, {} MiB counted, memory grew by {} MiB",
        total >> 20,
        net.memory.waiting(),
        net.memory.used_bytes() >> 20,
        grown >> 20
    );
    assert!(net.memory.used_bytes() <= LIMIT_BYTES && net.memory.waiting() > 100);
    // The limit, the free buffers of two loops, and the request held by this test itself.
    assert!(
        grown < LIMIT_BYTES + (16 << 20) + (16 << 20) + (8 << 20),
        "grew by {grown} bytes"
    );
}

#[test]
fn ten_thousand_connections_cost_little_memory_and_all_are_served() {
    let _alone = alone();
    // Both ends are in this process, so each connection takes two descriptors.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .unwrap();
    let descriptors = limit.maximum.unwrap_or(u64::MAX).saturating_sub(2_000);
    let count = 10_000.min(descriptors as usize / 2);
    assert!(
        count >= 1_000,
        "the hard limit of open files allows only {count} connections"
    );
    let net = Net::start();
    let before = resident_bytes();
    let mut clients: Vec<Client> = (0..count).map(|_| net.client()).collect();
    net.wait_for_open(count);
    for (id, client) in clients.iter_mut().enumerate() {
        client.send(&echo(id as i32, b"one of many"));
    }
    for (id, client) in clients.iter_mut().enumerate() {
        check_answer(client, id as i32, b"one of many");
    }
    let each = resident_bytes().saturating_sub(before) / count as u64;
    assert!(each < 4_096, "a connection costs {each} bytes");
    drop(clients);
    net.wait_for_open(0);
}

#[test]
fn the_memory_counted_is_about_the_memory_used() {
    let _alone = alone();
    let net = Net::start_within((1 << 30, 100 << 20), Duration::from_secs(600), usize::MAX);
    let mut clients: Vec<Client> = (0..40).map(|_| net.client()).collect();
    for client in &mut clients {
        client.send(&echo(0, b"warm"));
        check_answer(client, 0, b"warm");
    }
    let before = resident_bytes() as usize;
    for client in &mut clients {
        client.send(&echo(1, LARGE));
    }
    until("all are stuck", || {
        net.memory.used_bytes() >= 40 * (LARGE_BYTES - (5 << 20))
    });
    let (grown, counted) = (resident_bytes() as usize - before, net.memory.used_bytes());
    assert!(
        grown < counted + counted / 4 + (16 << 20),
        "grew by {grown}, counted {counted}"
    );
    drop(clients);
    net.wait_for_open(0);
    until("all memory is given back", || net.memory.used_bytes() == 0);
}
