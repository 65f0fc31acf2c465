//! The memory bound on the requests of all connections together: it holds, and no request is lost,
//! starved or left hanging.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

use support::Client;
use support::net::{COUNT, Net, check_answer, echo, echo_of, until};

const MIB: usize = 1 << 20;

/// Two event loops have a part of 1 MiB each; the other 6 MiB are shared, for large requests.
const LIMIT_BYTES: usize = 8 * MIB;
const REQUEST_BYTES_MAX: usize = 4 * MIB;

fn start() -> Net {
    Net::start_within(
        (LIMIT_BYTES, REQUEST_BYTES_MAX),
        Duration::from_secs(600),
        usize::MAX,
    )
}

/// A connection that has sent its client id.
fn named(net: &Net, client_id: &str) -> Client {
    let mut client = net.client();
    client.send(&echo_of(client_id, 0, b"it is me"));
    check_answer(&mut client, 0, b"it is me");
    client
}

fn check_bound(net: &Net) {
    let used_bytes = net.memory.used_bytes();
    assert!(used_bytes <= LIMIT_BYTES, "{used_bytes}: {:?}", net.memory);
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index % 251) as u8).collect()
}

#[test]
fn half_requests_of_a_crowd_stay_within_the_bound_and_become_whole() {
    let net = start();
    let mut bystander = named(&net, "bystander");
    // Answers are small: the socket takes each one, whether its client reads or not.
    let body = [COUNT, &body(1_000_000)].concat();
    let request = echo(1, &body);
    let (start, end) = request.split_at(request.len() - 100);
    // 40 MB without one whole request.
    let mut crowd: Vec<Client> = (0..40).map(|_| net.client()).collect();
    let is_full = Barrier::new(crowd.len() + 1);
    std::thread::scope(|scope| {
        let is_full = &is_full;
        let senders: Vec<_> = crowd
            .iter()
            .map(|client| {
                let mut socket = client.socket.try_clone().unwrap();
                scope.spawn(move || {
                    socket.write_all(&start[..100_000]).unwrap();
                    is_full.wait();
                    socket.write_all(&start[100_000..])?;
                    socket.write_all(end)
                })
            })
            .collect();
        until("most wait", || net.memory.waiting() > crowd.len() / 2);
        is_full.wait();
        for id in 1..200 {
            bystander.send(&echo_of("bystander", id, b"not one of them"));
            check_answer(&mut bystander, id, b"not one of them");
            check_bound(&net);
        }
        // The last one first: no reply may depend on whether another one is taken.
        for client in crowd.iter_mut().rev() {
            check_answer(client, 1, body.len().to_string().as_bytes());
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap().unwrap());
    });
    until("all memory is given back", || net.memory.used_bytes() == 0);
    assert_eq!(net.memory.waiting(), 0);
}

#[test]
fn replies_taken_one_connection_after_the_other_arrive_completely() {
    let net = start();
    // Many small ones in one packet, and some of which only one or two fit at a time.
    let sizes = [
        20, 3_000_000, 20, 20, 70_000, 200_000, 20, 1_000_000, 3_900_000, 5,
    ];
    // Answers are small: those of connections that are not read yet must not block the one that is.
    let bodies = sizes.map(|bytes| [COUNT, &body(bytes)].concat());
    let answer = |body: &Vec<u8>| body.len().to_string().into_bytes();
    let all: Vec<u8> = (0..3)
        .flat_map(|round| {
            let requests = bodies.iter().enumerate();
            requests.flat_map(move |(id, body)| echo(round * 100 + id as i32, body))
        })
        .collect();
    let giant = echo(1, &body(3_900_000));
    let mut holder = net.client();
    holder.send(&giant[..1_000_000]);
    until("it holds its memory", || net.memory.used_bytes() >= 3_900_000);
    let mut clients: Vec<Client> = (0..24).map(|_| net.client()).collect();
    std::thread::scope(|scope| {
        for client in &clients {
            let mut socket = client.socket.try_clone().unwrap();
            let all = &all;
            scope.spawn(move || {
                // An error means a broken connection, which the reader detects.
                let _ = socket.write_all(all);
            });
        }
        until("some wait", || net.memory.waiting() > 0);
        holder.send(&giant[1_000_000..]);
        check_answer(&mut holder, 1, &body(3_900_000));
        drop(holder);
        for client in &mut clients {
            for round in 0..3 {
                for (id, body) in bodies.iter().enumerate() {
                    check_answer(client, round * 100 + id as i32, &answer(body));
                    check_bound(&net);
                }
            }
        }
    });
    drop(clients);
    net.wait_for_open(0);
    assert_eq!((net.memory.used_bytes(), net.memory.waiting()), (0, 0));
}

#[test]
fn a_tenants_waiting_giants_block_no_other_tenant() {
    let net = start();
    let mut victim = named(&net, "victim");
    let giant = echo_of("greedy", 1, &body(3_000_000));
    let mut greedy: Vec<Client> = (0..20).map(|_| named(&net, "greedy")).collect();
    for client in &mut greedy {
        client.send(&giant[..100_000]);
    }
    until("giants wait", || net.memory.waiting() == 19);
    for (id, bytes) in [10, 60_000, 100_000, 1_000_000, 2_000_000]
        .into_iter()
        .enumerate()
        .cycle()
        .take(50)
    {
        let body = body(bytes);
        victim.send(&echo_of("victim", id as i32, &body));
        check_answer(&mut victim, id as i32, &body);
        assert_eq!(net.memory.waiting(), 19);
    }
    // Waiting requests hold no more than has arrived, and leave nothing behind.
    assert!(net.memory.used_bytes() <= LIMIT_BYTES);
    drop(greedy);
    net.wait_for_open(1);
    until("all memory is given back", || net.memory.used_bytes() == 0);
    assert_eq!(net.memory.waiting(), 0);
}

#[test]
fn full_parts_of_the_loops_delay_no_small_requests() {
    let net = start();
    // Incomplete requests of 60 KB fill the parts of both loops, and then their tenant's share of
    // the rest.
    let half = echo_of("greedy", 1, &body(60_000));
    let mut greedy: Vec<Client> = (0..200).map(|_| named(&net, "greedy")).collect();
    for client in &mut greedy {
        client.send(&half[..30_000]);
    }
    until("some wait", || net.memory.waiting() > 0);
    let mut victims: Vec<Client> = (0..4).map(|_| named(&net, "victim")).collect();
    let bodies: Vec<Vec<u8>> = (0..300).map(|number| body(number * 7)).collect();
    let packet: Vec<u8> = (bodies.iter().enumerate())
        .flat_map(|(id, body)| echo_of("victim", id as i32, body))
        .collect();
    for victim in &mut victims {
        // Cut anywhere: the incomplete part stays in the socket or gets its memory.
        for part in packet.chunks(70_001) {
            victim.send(part);
        }
        victim.send(&echo_of("victim", -1, b"a byte at a time")[..1]);
        for (id, body) in bodies.iter().enumerate() {
            check_answer(victim, id as i32, body);
        }
        for byte in &echo_of("victim", -1, b"a byte at a time")[1..] {
            victim.send(&[*byte]);
        }
        check_answer(victim, -1, b"a byte at a time");
    }
    check_bound(&net);
    // Then they do become whole.
    for client in &mut greedy {
        client.send(&half[30_000..]);
    }
    for client in &mut greedy {
        check_answer(client, 1, &body(60_000));
    }
}

#[test]
fn a_sender_that_stalls_is_closed_only_while_others_wait_for_its_memory() {
    let net = start();
    let giant = echo(1, &body(3_900_000));
    let mut slow = net.client();
    slow.send(&giant[..1_000_000]);
    until("it holds its memory", || net.memory.used_bytes() >= 3_900_000);
    let mut bystanders: Vec<Client> = (0..4).map(|_| named(&net, "bystander")).collect();
    // Every loop checks the clock when a request arrives.
    let mut look = || {
        for bystander in &mut bystanders {
            bystander.send(&echo_of("bystander", 9, b"look"));
            check_answer(bystander, 9, b"look");
        }
    };
    net.clock.jump(60_000_000);
    look();
    assert!(
        net.memory.used_bytes() >= 3_900_000,
        "none waits, so it may take its time"
    );
    let mut next = net.client();
    next.send(&giant[..2_000_000]);
    until("another waits", || net.memory.waiting() == 1);
    net.clock.jump(2_000_000);
    look();
    assert_eq!(slow.closed(), b"");
    next.send(&giant[2_000_000..]);
    check_answer(&mut next, 1, &body(3_900_000));
}

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed() {
    let net = start();
    let giant = echo(1, &body(3_900_000));
    let mut holder = net.client();
    holder.send(&giant[..1_000_000]);
    until("it holds its memory", || net.memory.used_bytes() >= 3_900_000);
    let mut waiting: Vec<Client> = (0..30).map(|_| net.client()).collect();
    for client in &mut waiting {
        client.send(&giant[..100_000]);
    }
    until("they wait", || net.memory.waiting() == 30);
    drop(waiting);
    net.wait_for_open(1);
    assert_eq!(net.memory.waiting(), 0);
    holder.send(&giant[1_000_000..]);
    check_answer(&mut holder, 1, &body(3_900_000));
}
