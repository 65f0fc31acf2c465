//! What connections cost, whatever their clients do. One test at a time: they measure the memory of the process.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use support::net::{LARGE, LARGE_BYTES, Net, check_answer, echo};
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
    // Answers of 2 GB in all; the broker must stop reading long before.
    client.send(&(0..200).flat_map(|id| echo(id, LARGE)).collect::<Vec<u8>>());
    net.wait_for_open(1);
    net.wait_for_open(0);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 150 << 20, "grew by {grown} bytes");
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
fn ten_thousand_connections_cost_little_memory_and_all_are_served() {
    let _alone = alone();
    // Both ends are in this process, so each connection is two descriptors.
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
