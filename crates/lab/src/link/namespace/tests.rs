//! Real packets on a machine that permits them; elsewhere the sentence that says why not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

/// A link, or `None` if the machine does not permit one, in which case it must give the reason in
/// one line.
fn namespace(spec: &LinkSpec) -> Option<Namespace> {
    match Namespace::create(spec) {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            let support = probe();
            assert_eq!(support.tun.clone().map_err(|_| ()), Err(()), "{error}");
            assert_eq!(support.to_string().lines().count(), 1);
            // Bypasses the test harness, which shows a test's output only when it fails.
            let test = std::thread::current();
            let line = format!("NOT RUN: {}: {support}\n", test.name().unwrap_or("a test"));
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            None
        }
    }
}

/// Answers each byte with a byte, inside the namespace.
fn echo(namespace: &Namespace) -> TcpStream {
    let listener = namespace
        .inside(|| TcpListener::bind((namespace.broker_address(), 0)).unwrap())
        .unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let mut buffer = [0; 65_536];
        while let Ok(bytes @ 1..) = socket.read(&mut buffer) {
            socket.write_all(&buffer[..bytes]).unwrap();
        }
    });
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

#[test]
fn packets_take_at_least_the_round_trip() {
    let spec = LinkSpec {
        round_trip_ms: 30.0,
        ..LinkSpec::default()
    };
    let Some(namespace) = namespace(&spec) else { return };
    let mut socket = echo(&namespace);
    for _ in 0..3 {
        let began = Instant::now();
        socket.write_all(&[1]).unwrap();
        socket.read_exact(&mut [0]).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(30));
    }
}

#[test]
fn packets_take_at_least_the_bandwidths_time_and_come_whole() {
    let spec = LinkSpec {
        bytes_per_second: 2_000_000,
        ..LinkSpec::default()
    };
    let Some(namespace) = namespace(&spec) else { return };
    let mut socket = echo(&namespace);
    let sent: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
    let began = Instant::now();
    let mut writer = socket.try_clone().unwrap();
    let bytes = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
    let mut received = vec![0; sent.len()];
    socket.read_exact(&mut received).unwrap();
    writing.join().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert!(received == sent);
}

#[test]
fn a_child_runs_at_the_far_end() {
    let Some(namespace) = namespace(&LinkSpec::default()) else {
        return;
    };
    let output = namespace.command("ip").args(["-4", "addr"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&namespace.broker_address().to_string()), "{text}");
    assert!(
        !text.contains(&format!("inet {}", namespace.client_address())),
        "{text}"
    );
}

#[test]
fn a_window_is_refused_because_tcp_has_its_own() {
    let spec = LinkSpec {
        window_bytes: 1,
        ..LinkSpec::default()
    };
    let error = Namespace::create(&spec).unwrap_err();
    assert!(error.to_string().contains("link.window_bytes"), "{error}");
}
