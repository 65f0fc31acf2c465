//! The network layer with well-behaved, slow, broken and hostile clients.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::time::Duration;

use ottla_broker::clock::SystemClock;
use ottla_core::time::Clock;
use ottla_wire::api_key::ApiKey;
use support::Client;
use support::net::{COLD, COLD_BYTES, Net, PANIC, SILENCE, TORN, WAIT, check_answer, echo};

#[test]
fn requests_in_one_packet_are_answered_in_order() {
    let net = Net::start();
    let mut client = net.client();
    let bodies: Vec<Vec<u8>> = (0..500).map(|number| vec![number as u8; number]).collect();
    let all: Vec<u8> = bodies
        .iter()
        .enumerate()
        .flat_map(|(id, body)| echo(id as i32, body))
        .collect();
    client.send(&all);
    for (id, body) in bodies.iter().enumerate() {
        check_answer(&mut client, id as i32, body);
    }
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let net = Net::start();
    let mut client = net.client();
    for byte in echo(1, b"hello") {
        client.send(&[byte]);
    }
    check_answer(&mut client, 1, b"hello");
}

#[test]
fn requests_of_all_sizes_arrive_whole() {
    let net = Net::start();
    let mut client = net.client();
    for (id, size) in [0, 1, 4_000, 262_130, 262_144, 262_150, 1_000_000, 5_000_000, 3]
        .into_iter()
        .enumerate()
    {
        let body: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        let mut writer = client.socket.try_clone().unwrap();
        let request = [echo(id as i32, &body), echo(-1, b"behind")].concat();
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &request).unwrap());
        check_answer(&mut client, id as i32, &body);
        check_answer(&mut client, -1, b"behind");
        sender.join().unwrap();
    }
}

#[test]
fn a_request_without_an_answer_leaves_no_gap() {
    let net = Net::start();
    let mut client = net.client();
    client.send(&[echo(1, SILENCE), echo(2, b"x")].concat());
    check_answer(&mut client, 2, b"x");
}

#[test]
fn requests_behind_a_waiting_one_are_served_and_answered_in_order() {
    let net = Net::start();
    let mut client = net.client();
    client.send(
        &[
            echo(1, b"a"),
            echo(2, WAIT),
            echo(3, b"b"),
            echo(4, WAIT),
            echo(5, b"c"),
        ]
        .concat(),
    );
    check_answer(&mut client, 1, b"a");
    // All are served although the second is not answered.
    while net.echo.waiting() < 2 {
        std::thread::yield_now();
    }
    client.socket.set_nonblocking(true).unwrap();
    let nothing = std::io::Read::read(&mut client.socket, &mut [0]);
    assert_eq!(nothing.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.socket.set_nonblocking(false).unwrap();
    net.echo.keep_promises();
    for (id, body) in [(2, WAIT), (3, b"b"), (4, WAIT), (5, b"c")] {
        check_answer(&mut client, id, body);
    }
}

#[test]
fn a_closed_connection_frees_what_its_requests_wait_for() {
    let net = Net::start();
    let mut bystander = net.client();
    for _ in 0..50 {
        let mut client = net.client();
        client.send(&[echo(1, WAIT), echo(2, WAIT)].concat());
    }
    while net.echo.waiting() > 0 || net.counts.accepted() < 51 {
        std::thread::yield_now();
    }
    bystander.send(&echo(1, b"x"));
    check_answer(&mut bystander, 1, b"x");
}

#[test]
fn a_connection_with_too_many_unanswered_requests_is_not_read() {
    let net = Net::start();
    let mut client = net.client();
    let total = 20_000;
    let requests: Vec<u8> = (0..total).flat_map(|id| echo(id, WAIT)).collect();
    let mut writer = client.socket.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &requests).unwrap());
    while net.echo.waiting() < 1024 {
        std::thread::yield_now();
    }
    // Nothing more is read, however long the test waits.
    for _ in 0..1_000 {
        assert_eq!(net.echo.waiting(), 1024);
        std::thread::yield_now();
    }
    net.echo.keep_promises();
    for id in 0..total {
        check_answer(&mut client, id, WAIT);
    }
    sender.join().unwrap();
}

#[test]
fn cold_bytes_arrive_in_order_and_complete() {
    let net = Net::start();
    let mut client = net.client();
    client.send(&[echo(1, COLD), echo(2, b"behind"), echo(3, COLD)].concat());
    let content: Vec<u8> = (0..COLD_BYTES).map(|index| (index % 253) as u8).collect();
    let expected = [b"<".as_slice(), &content, b">"].concat();
    check_answer(&mut client, 1, &expected);
    check_answer(&mut client, 2, b"behind");
    check_answer(&mut client, 3, &expected);
}

#[test]
fn a_reply_that_cannot_be_read_from_the_log_closes_the_connection() {
    let net = Net::start();
    let mut client = net.client();
    client.send(&[echo(1, b"before"), echo(2, TORN), echo(3, b"after")].concat());
    check_answer(&mut client, 1, b"before");
    // The announced length can no longer be met.
    assert!(client.closed().len() <= 4 + 4 + 2 + COLD_BYTES);
    net.wait_for_open(0);
}

#[test]
fn a_panic_closes_one_connection_and_harms_no_other() {
    let net = Net::start();
    let mut bystanders: Vec<Client> = (0..4).map(|_| net.client()).collect();
    for _ in 0..2 {
        let mut client = net.client();
        client.send(&[echo(1, b"before"), echo(2, PANIC), echo(3, b"after")].concat());
        check_answer(&mut client, 1, b"before");
        assert_eq!(client.closed(), b"");
    }
    for bystander in &mut bystanders {
        bystander.send(&echo(7, b"still here"));
        check_answer(bystander, 7, b"still here");
    }
}

#[test]
fn impossible_lengths_close_the_connection() {
    let net = Net::start();
    let tls_hello = [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    let oversize = (100i32 << 20 | 1).to_be_bytes();
    let starts: [&[u8]; 5] = [
        b"GET /metrics HTTP/1.1\r\n\r\n",
        &tls_hello,
        &oversize,
        &(-1i32).to_be_bytes(),
        &[0x80, 0, 0, 0],
    ];
    for start in starts {
        let mut client = net.client();
        client.send(start);
        assert_eq!(client.closed(), b"", "{start:?}");
    }
}

#[test]
fn broken_headers_close_the_connection() {
    let net = Net::start();
    let bodies: [&[u8]; 5] = [
        &[],
        &[0, 3],
        // An unknown API.
        &[0x7f, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff],
        // A client id longer than the request.
        &[0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, b'a'],
        // Flexible, with more tagged fields than bytes.
        &[0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ];
    for body in bodies {
        let mut client = net.client();
        client.send(&(body.len() as u32).to_be_bytes());
        client.send(body);
        assert_eq!(client.closed(), b"", "{body:?}");
    }
}

#[test]
fn a_truncated_request_is_dropped_with_its_connection() {
    let net = Net::start();
    let mut client = net.client();
    let request = echo(1, &[9; 10_000]);
    client.send(&request[..5_000]);
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.closed(), b"");
    net.wait_for_open(0);
}

#[test]
fn idle_connections_and_unfinished_requests_are_closed() {
    let net = Net::start_with(Duration::from_millis(300), usize::MAX);
    let mut idle = net.client();
    let mut slow = net.client();
    let mut trickling = net.client();
    slow.send(&echo(1, b"abc")[..7]);
    let dripping = std::thread::spawn(move || {
        // One byte at a time, without end: the request must be complete in time, not merely
        // progressing.
        trickling.send(&[0, 1, 0, 0]);
        while std::io::Write::write_all(&mut trickling.socket, &[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(idle.closed(), b"");
    assert_eq!(slow.closed(), b"");
    dripping.join().unwrap();
    net.wait_for_open(0);
}

#[test]
fn connections_per_address_are_limited() {
    let net = Net::start_with(Duration::from_secs(600), 3);
    let mut open: Vec<Client> = (0..3).map(|_| net.client()).collect();
    net.wait_for_open(3);
    assert_eq!(net.client().closed(), b"");
    for client in &mut open {
        client.send(&echo(1, b"x"));
        check_answer(client, 1, b"x");
    }
    open.pop();
    net.wait_for_open(2);
    let mut again = net.client();
    again.send(&echo(1, b"x"));
    check_answer(&mut again, 1, b"x");
    assert_eq!(net.counts.refused(), 1);
}

#[test]
fn stages_of_a_request_are_recorded_by_api_and_client() {
    let net = Net::start();
    let mut client = net.client();
    for id in 0..10 {
        client.send(&echo(id, b"x"));
        check_answer(&mut client, id, b"x");
    }
    // The last reply arrives before its request is recorded.
    let totals = loop {
        let totals = net.records.totals(SystemClock::default().moment());
        if totals
            .apis
            .get(&ApiKey::Metadata)
            .is_some_and(|records| records.count == 10)
        {
            break totals;
        }
        std::thread::yield_now();
    };
    assert_eq!(totals.clients["test"].apis[&ApiKey::Metadata].count, 10);
    assert_eq!(totals.apis[&ApiKey::Metadata].total.count(), 10);
    assert!(totals.apis[&ApiKey::Metadata].reply_bytes == 10 * (4 + 4 + 1));
}

#[test]
fn a_storm_of_connections_loses_none_and_a_bystander_is_served_during_it() {
    let net = Net::start();
    let mut bystander = net.client();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..500 {
                    let mut client = net.client();
                    // Some send nothing, some close before their answer, some wait for it.
                    if number % 3 > 0 {
                        client.send(&echo(number, b"one of many"));
                    }
                    if number % 3 > 1 {
                        check_answer(&mut client, number, b"one of many");
                    }
                }
            });
        }
        for id in 0..500 {
            bystander.send(&echo(id, b"in the middle of it"));
            check_answer(&mut bystander, id, b"in the middle of it");
            assert!(net.counts.unopened() <= 1_024, "{}", net.counts.unopened());
        }
    });
    // The silent ones may still be in the kernel's backlog.
    while net.counts.accepted() < 2_001 {
        std::thread::yield_now();
    }
    net.wait_for_open(1);
    assert_eq!(net.counts.unopened(), 0);
}

#[test]
fn connections_that_are_idle_together_are_all_closed() {
    let net = Net::start_with(Duration::from_millis(300), usize::MAX);
    let mut idle: Vec<Client> = (0..400).map(|_| net.client()).collect();
    for client in &mut idle {
        assert_eq!(client.closed(), b"");
    }
    net.wait_for_open(0);
    assert_eq!(net.counts.accepted(), 400);
}
