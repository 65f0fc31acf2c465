//! Answers that clients do not take: they count toward the memory of all connections, and stop only
//! their own connection.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_wire::api_key::ApiKey;
use support::net::{Net, check_answer, echo, echo_of, of_bytes, until};
use support::{Client, frame_of};

const MIB: usize = 1 << 20;

/// Two event loops have a part of 4 MiB each; the other 24 MiB are shared, for large items.
const LIMIT_BYTES: usize = 32 * MIB;
const REQUEST_BYTES_MAX: usize = 8 * MIB;
const SHARED_BYTES: usize = 24 * MIB;

/// More than any socket takes of an answer that is not read.
const ANSWER_BYTES: usize = 8 * MIB;

/// What may exceed the limit: the one answer that each event loop is making.
const PASSED_BYTES_MAX: usize = 2 * (ANSWER_BYTES + MIB);

fn start() -> Net {
    Net::start_within(
        (LIMIT_BYTES, REQUEST_BYTES_MAX),
        Duration::from_secs(600),
        usize::MAX,
    )
}

/// A small request of an API that has small answers.
fn small(client_id: &str, id: i32) -> Vec<u8> {
    frame_of(client_id, ApiKey::Heartbeat, 0, id, |bytes| {
        bytes.extend_from_slice(b"a small one")
    })
}

fn check_served(client: &mut Client, client_id: &str, count: i32) {
    for id in 0..count {
        client.send(&small(client_id, id));
        assert_eq!(client.receive(ApiKey::Heartbeat, 0, id), b"a small one");
    }
}

fn named(net: &Net, client_id: &str) -> Client {
    let mut client = net.client();
    check_served(&mut client, client_id, 1);
    client
}

/// A connection of `client_id` that repeatedly asks for a large answer and takes none.
fn greedy(net: &Net, client_id: &str) -> Client {
    let mut client = named(net, client_id);
    let request = of_bytes(ANSWER_BYTES);
    for id in 1..4 {
        client.send(&echo_of(client_id, id, &request));
    }
    client
}

#[test]
fn a_connection_is_not_read_while_its_client_takes_no_answer() {
    let net = start();
    let mut greedy = greedy(&net, "greedy");
    until("an answer is stuck", || {
        net.memory.used_bytes() >= ANSWER_BYTES / 2
    });
    let mut neighbour = named(&net, "neighbour");
    check_served(&mut neighbour, "neighbour", 50);
    assert_eq!(
        net.echo.large.load(Ordering::SeqCst),
        1,
        "one was served, three were sent"
    );
    // A client that reads late gets everything, in order.
    for id in 1..4 {
        check_answer(&mut greedy, id, &vec![7; ANSWER_BYTES]);
    }
    until("all memory is given back", || net.memory.used_bytes() == 0);
}

/// Below the 1 MiB at which a connection is not read whatever its client does.
#[test]
fn a_connection_is_not_read_while_its_socket_is_full_however_little_that_is() {
    const BYTES: usize = 100_000;
    let net = start();
    let mut greedy = named(&net, "greedy");
    let served = || net.echo.large.load(Ordering::SeqCst) as i32;
    // What a turn leaves behind, rather than what comes and goes within one.
    let is_full = || {
        (0..20).all(|_| {
            std::thread::sleep(Duration::from_millis(1));
            net.memory.used_bytes() > 0
        })
    };
    while !is_full() {
        let id = served() + 1;
        greedy.send(&echo_of("greedy", id, &of_bytes(BYTES)));
        until("it is served", || served() == id);
    }
    let full = served();
    for id in full + 1..full + 6 {
        greedy.send(&echo_of("greedy", id, &of_bytes(BYTES)));
    }
    for number in 0..4 {
        let name = format!("neighbour-{number}");
        check_served(&mut named(&net, &name), &name, 50);
    }
    assert_eq!(served(), full);
    for id in 1..full + 6 {
        check_answer(&mut greedy, id, &vec![7; BYTES]);
    }
    until("all memory is given back", || net.memory.used_bytes() == 0);
}

#[test]
fn unread_answers_of_a_crowd_stay_within_the_memory_of_all() {
    let net = start();
    // The loops learn the size of these answers.
    let mut first: Vec<Client> = (0..2).map(|_| greedy(&net, "greedy")).collect();
    until("both are stuck", || net.memory.used_bytes() >= ANSWER_BYTES);
    let mut crowd: Vec<Client> = (0..200).map(|_| greedy(&net, "greedy")).collect();
    until("the others wait", || net.memory.waiting() >= crowd.len() - 4);
    let most = || net.memory.used_bytes() <= SHARED_BYTES + PASSED_BYTES_MAX;
    assert!(most(), "{}", net.memory.used_bytes());
    // Neither strangers nor clients of the same name wait for memory they do not need.
    for name in ["neighbour", "greedy"] {
        let mut neighbour = named(&net, name);
        check_served(&mut neighbour, name, 100);
    }
    // A stranger's large request and large answer find room, too.
    let mut stranger = named(&net, "stranger");
    let request = echo_of("stranger", 1, &vec![1; 2 * MIB]);
    stranger.send(&request);
    check_answer(&mut stranger, 1, &vec![1; 2 * MIB]);
    assert!(most(), "{}", net.memory.used_bytes());
    // As some read, others get their turn, until all have their answers.
    std::thread::scope(|scope| {
        for client in first.iter_mut().chain(&mut crowd) {
            scope.spawn(move || {
                for id in 1..4 {
                    check_answer(client, id, &vec![7; ANSWER_BYTES]);
                }
            });
        }
        while net.echo.large.load(Ordering::SeqCst) < 3 * 202 {
            assert!(most(), "{}", net.memory.used_bytes());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    until("all memory is given back", || net.memory.used_bytes() == 0);
    assert_eq!(net.memory.waiting(), 0);
}

#[test]
fn small_answers_of_many_requests_at_once_are_bounded_too() {
    let net = start();
    // Small requests with answers of 3 KB: none of them asks for memory.
    let request = of_bytes(3_000);
    let row: Vec<u8> = (1..3_000)
        .flat_map(|id| echo_of("greedy", id, &request))
        .collect();
    let mut crowd: Vec<Client> = (0..200).map(|_| named(&net, "greedy")).collect();
    for client in &mut crowd {
        client.socket.set_nonblocking(true).unwrap();
        // As much as the socket takes.
        let _ = std::io::Write::write(&mut &client.socket, &row);
        client.socket.set_nonblocking(false).unwrap();
    }
    let mut neighbour = named(&net, "neighbour");
    // Until no request is served any more.
    let served = || net.echo.large.load(Ordering::SeqCst);
    until("the crowd is stuck", || {
        let before = served();
        std::thread::sleep(Duration::from_millis(100));
        served() == before && before > crowd.len()
    });
    let served = served();
    check_served(&mut neighbour, "neighbour", 100);
    let used_bytes = net.memory.used_bytes();
    assert!(used_bytes <= LIMIT_BYTES, "{used_bytes}");
    assert!(
        served < 200 * 2_000,
        "{served} of {} were served unread",
        200 * 3_000
    );
}

#[test]
fn a_reader_that_stalls_is_closed_only_while_others_wait_for_its_memory() {
    let net = start();
    // Of two tenants, or the second would wait for the first.
    let mut holders: Vec<Client> = ["one", "two"].map(|name| greedy(&net, name)).into();
    until("they hold", || {
        net.memory.used_bytes() >= 2 * (ANSWER_BYTES - 2 * MIB)
    });
    let mut bystanders: Vec<Client> = (0..4).map(|_| named(&net, "bystander")).collect();
    let mut look = || {
        for bystander in &mut bystanders {
            check_served(bystander, "bystander", 1);
        }
    };
    net.clock.jump(60_000_000);
    look();
    let closed = net
        .records
        .totals(ottla_core::time::Moment::from_micros(0))
        .closed;
    assert_eq!(
        net.counts.open(),
        6,
        "none waits, so they may take their time: {closed:?} {:?}",
        net.memory
    );
    // Others want the rest and more.
    let giant = echo(1, &vec![1; 7_900_000]);
    let mut waiting: Vec<Client> = (0..4).map(|_| net.client()).collect();
    for client in &mut waiting {
        client.send(&giant[..2_000_000]);
    }
    until("some wait", || net.memory.waiting() > 0);
    net.clock.jump(2_000_000);
    look();
    net.wait_for_open(8);
    for holder in &mut holders {
        let taken = holder.closed();
        assert!(taken.len() < ANSWER_BYTES, "cut short: {}", taken.len());
    }
    let closed = net
        .records
        .totals(ottla_core::time::Moment::from_micros(0))
        .closed;
    assert_eq!(closed.get("reader-in-the-way"), Some(&2), "{closed:?}");
    // All at once: their order in the queue is not known.
    std::thread::scope(|scope| {
        for client in &mut waiting {
            let rest = &giant[2_000_000..];
            scope.spawn(move || {
                client.send(rest);
                check_answer(client, 1, &vec![1; 7_900_000]);
            });
        }
    });
}

#[test]
fn a_slow_reader_is_not_closed_while_it_reads() {
    let net = start();
    let mut slow = greedy(&net, "slow");
    until("it holds", || net.memory.used_bytes() >= ANSWER_BYTES / 2);
    let mut giants: Vec<Client> = (0..4).map(|_| named(&net, "giant")).collect();
    for giant in &mut giants {
        // No more than the sockets of any kernel take while the broker does not read.
        giant.send(&echo_of("giant", 1, &vec![1; 7_900_000])[..2_000_000]);
    }
    until("some wait", || net.memory.waiting() > 0);
    let mut bystanders: Vec<Client> = (0..4).map(|_| named(&net, "bystander")).collect();
    // One megabyte buys sixteen seconds; the client takes one per second of eight.
    let mut taken = 0;
    let mut part = vec![0; MIB];
    while taken < 6 * MIB {
        std::io::Read::read_exact(&mut slow.socket, &mut part).unwrap();
        taken += part.len();
        net.clock.jump(8_000_000);
        for bystander in &mut bystanders {
            check_served(bystander, "bystander", 1);
        }
    }
    let mut rest = vec![0; 3 * (ANSWER_BYTES + 8) - taken];
    std::io::Read::read_exact(&mut slow.socket, &mut rest).unwrap();
    let closed = net
        .records
        .totals(ottla_core::time::Moment::from_micros(0))
        .closed;
    assert_eq!(closed.get("reader-in-the-way"), None, "{closed:?}");
}
