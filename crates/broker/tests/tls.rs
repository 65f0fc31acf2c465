//! Listeners with TLS: every size and shape of request, clients that are not admitted, and hostile
//! ones.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{Read, Write};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ottla_broker::net::handshake::Outcome;
use rustls::{AlertDescription, ConnectionTrafficSecrets, HandshakeKind};
use support::Client;
use support::net::{COLD, COLD_BYTES, LARGE, LARGE_BYTES, PRINCIPAL, TORN, echo, until};
use support::tls::{Authority, Difference, TlsClient, TlsNet};

const VERSIONS: [&[&rustls::SupportedProtocolVersion]; 2] =
    [&[&rustls::version::TLS12], &[&rustls::version::TLS13]];

const MUTUAL: [(&str, &str); 1] = [("ssl.client.auth", "required")];

#[test]
fn requests_and_answers_of_all_sizes_pass_in_both_versions() {
    let tls = TlsNet::start(&[]);
    for versions in VERSIONS {
        let mut client = tls.connect(&tls.client_config(versions, None));
        let sizes = [
            0, 1, 4_000, 16_384, 16_385, 262_130, 262_144, 262_150, 1_000_000, 5_000_000, 3,
        ];
        for (id, size) in sizes.into_iter().enumerate() {
            let body: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
            // The broker answers the first request while the others are sent; rustls's client
            // would not read meanwhile, but the buffers of the sockets hold one answer.
            client.send(&echo(id as i32, &body));
            client.check_answer(id as i32, &body);
            client.send(&[echo(1, b"a"), echo(2, b""), echo(3, b"c")].concat());
            for (id, body) in [(1, &b"a"[..]), (2, b""), (3, b"c")] {
                client.check_answer(id, body);
            }
        }
        assert_eq!(client.stream.conn.protocol_version(), Some(versions[0].version));
    }
    until("nothing is kept between requests", || {
        tls.net.memory.used_bytes() == 0
    });
}

#[test]
fn a_request_may_arrive_in_records_of_one_byte_and_in_packets_of_one_byte() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.client();
    for byte in echo(1, b"hello") {
        client.send(&[byte]);
    }
    client.check_answer(1, b"hello");
    let stream = &mut client.stream;
    let many: Vec<u8> = [echo(2, &[7; 1_000]), echo(3, b"x")].concat();
    stream.conn.writer().write_all(&many).unwrap();
    let mut records = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut records).unwrap();
    }
    for byte in records {
        stream.sock.write_all(&[byte]).unwrap();
    }
    client.check_answer(2, &[7; 1_000]);
    client.check_answer(3, b"x");
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let tls = TlsNet::start(&[]);
    for versions in VERSIONS {
        let mut client = tls.connect(&tls.client_config(versions, None));
        client.send(&(0..20).flat_map(|id| echo(id, LARGE)).collect::<Vec<u8>>());
        for id in 0..20 {
            let reply = client.try_receive(id).unwrap();
            assert!(reply.len() == LARGE_BYTES && reply.iter().all(|byte| *byte == 7));
        }
    }
    until("nothing is kept once it is sent", || {
        tls.net.memory.used_bytes() == 0
    });
}

#[test]
fn ranges_of_files_are_sent_from_memory() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.client();
    let content: Vec<u8> = (0..COLD_BYTES).map(|index| (index % 253) as u8).collect();
    let expected = [b"<", &content[..], b">"].concat();
    client.send(&[echo(1, COLD), echo(2, b"behind"), echo(3, TORN)].concat());
    client.check_answer(1, &expected);
    client.check_answer(2, b"behind");
    assert!(
        client.try_receive(3).is_err(),
        "the file is shorter than its range"
    );
}

#[test]
fn the_principal_is_that_of_the_certificate() {
    let rules = [
        ("ssl.client.auth", "requested"),
        ("ssl.principal.mapping.rules", "RULE:^CN=([a-z]+)$/$1/"),
    ];
    let tls = TlsNet::start(&rules);
    let principal = |identity: Option<&support::tls::Signed>| {
        let mut client = tls.connect(&tls.client_config(rustls::ALL_VERSIONS, identity));
        client.send(&echo(1, PRINCIPAL));
        client.try_receive(1).map(|name| String::from_utf8(name).unwrap())
    };
    let alice = tls.authority.sign("alice", |_| {});
    assert_eq!(principal(Some(&alice)).unwrap(), "User:alice");
    assert_eq!(principal(None).unwrap(), "User:ANONYMOUS");
    let number = tls.authority.sign("42", |_| {});
    assert!(principal(Some(&number)).is_err(), "no rule applies");
    tls.net.wait_for_open(0);
}

#[test]
fn a_client_without_a_trusted_certificate_is_told_by_an_alert() {
    let tls = TlsNet::start(&MUTUAL);
    let stranger = Authority::named("stranger");
    let expired = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    };
    for versions in VERSIONS {
        let alert = |identity: Option<&support::tls::Signed>| {
            tls.connect(&tls.client_config(versions, identity)).alert()
        };
        assert_eq!(alert(None), AlertDescription::CertificateRequired);
        assert_eq!(
            alert(Some(&tls.authority.sign("late", expired))),
            AlertDescription::CertificateExpired
        );
        assert_eq!(
            alert(Some(&stranger.sign("s", |_| {}))),
            AlertDescription::UnknownCA
        );
        let mut client = tls.connect(&tls.client_config(versions, Some(&tls.authority.sign("a", |_| {}))));
        client.send(&echo(1, b"x"));
        client.check_answer(1, b"x");
    }
    // A client that does not trust the broker.
    let config = stranger.client_config(VERSIONS[1], None);
    assert!(tls.connect(&config).try_receive(1).is_err());
    // Handshakes end one after the other on one thread: the next one has seen the ends of all.
    let config = tls.client_config(VERSIONS[1], Some(&tls.authority.sign("a", |_| {})));
    let mut client = tls.connect(&config);
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    let kinds = tls.handshakes.entrance().counts().kinds();
    let refusals = [
        ("certificate-expired", 2),
        ("certificate-unknown-issuer", 2),
        ("client-unknown-ca", 1),
        ("no-certificate", 2),
    ];
    let refusals = refusals.map(|(cause, count)| (cause.to_owned(), count));
    assert_eq!(kinds.refusals, refusals.into());
    let spoken: Vec<(String, u64)> = (kinds.spoken.iter())
        .map(|(spoken, count)| (spoken.to_string(), *count))
        .collect();
    let expected = [
        ("TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned(), 1),
        ("TLSv1.3 TLS_AES_256_GCM_SHA384".to_owned(), 2),
    ];
    assert_eq!(spoken, expected);
}

#[test]
fn a_session_is_resumed_until_the_trust_store_changes() {
    let tls = TlsNet::start(&MUTUAL);
    let alice = tls.authority.sign("alice", |_| {});
    for versions in VERSIONS {
        let config = tls.client_config(versions, Some(&alice));
        let kind = || {
            let mut client = tls.connect(&config);
            client.send(&echo(1, PRINCIPAL));
            client.check_answer(1, b"User:CN=alice");
            client.stream.conn.handshake_kind().unwrap()
        };
        assert_eq!(kind(), HandshakeKind::Full);
        assert_eq!(kind(), HandshakeKind::Resumed);
        tls.trust(&Authority::named("another"));
        assert_eq!(tls.connect(&config).alert(), AlertDescription::UnknownCA);
        tls.trust(&tls.authority);
    }
}

#[test]
fn a_client_that_speaks_plaintext_gets_no_byte() {
    let tls = TlsNet::start(&[]);
    for first in [
        &echo(1, b"hello")[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x15, 3, 3, 0, 2, 2, 40],
    ] {
        let mut client = Client::connect(tls.net.address());
        client.send(first);
        assert_eq!(client.closed(), b"");
    }
    tls.net.wait_for_open(0);
}

#[test]
fn broken_records_end_the_connection_with_an_alert() {
    let tls = TlsNet::start(&[]);
    let check = |record: &[u8], expected: AlertDescription| {
        let mut client = tls.client();
        client.send(&echo(1, b"x"));
        client.check_answer(1, b"x");
        client.stream.sock.write_all(record).unwrap();
        let error = client.stream.read(&mut [0; 1]).unwrap_err();
        let alert = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        assert_eq!(alert, Some(&rustls::Error::AlertReceived(expected)));
    };
    check(
        &[
            0x17, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
        ],
        AlertDescription::BadRecordMac,
    );
    // One byte more than 2^14 + 2^11.
    check(&[0x17, 3, 3, 0x48, 1, 0], AlertDescription::DecodeError);
    check(&[0x99, 3, 3, 0, 1, 0], AlertDescription::DecodeError);
    check(b"GET / HTTP/1.1\r\n", AlertDescription::DecodeError);
    tls.net.wait_for_open(0);
}

/// Encrypts records of any kind with a client's keys (RFC 8446, 5.2).
struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    socket: std::net::TcpStream,
}

impl Forger {
    fn new(client: TlsClient) -> Forger {
        let (connection, socket) = client.stream.into_parts();
        let (sequence, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("not the first of the broker's cipher suites");
        };
        Forger {
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap()),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
            socket,
        }
    }

    fn send(&mut self, kind: u8, content: &[u8]) -> std::io::Result<()> {
        let mut nonce = self.iv;
        let masked = self.sequence.to_be_bytes();
        nonce[4..]
            .iter_mut()
            .zip(masked)
            .for_each(|(byte, mask)| *byte ^= mask);
        self.sequence += 1;
        let mut inner = [content, &[kind]].concat();
        let length = (inner.len() as u16 + 16).to_be_bytes();
        let head = [0x17, 3, 3, length[0], length[1]];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(head), &mut inner)
            .unwrap();
        self.socket.write_all(&[&head[..], &inner].concat())
    }

    /// The bytes that came until the broker closed the connection.
    fn closed(mut self) -> usize {
        let mut rest = Vec::new();
        let _ = self.socket.read_to_end(&mut rest);
        rest.len()
    }
}

const DATA: u8 = 23;
const HANDSHAKE: u8 = 22;

fn forger(tls: &TlsNet) -> Forger {
    let mut client = tls.connect(&tls.client_config(VERSIONS[1], None));
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    Forger::new(client)
}

#[test]
fn answers_are_sent_while_a_handshake_message_is_in_parts() {
    let tls = TlsNet::start(&[]);
    let mut forger = forger(&tls);
    // An answer that does not fit into the sockets' buffers; then the first half of a key update,
    // which stays unprocessed while the rest of the answer is encrypted.
    forger.send(DATA, &echo(1, LARGE)).unwrap();
    forger.send(HANDSHAKE, &[24, 0, 0]).unwrap();
    let mut seen = 0;
    let mut page = vec![0; 65_536];
    while seen < LARGE_BYTES {
        let read = forger.socket.read(&mut page).unwrap();
        assert!(read > 0, "closed after {seen} bytes");
        seen += read;
    }
    // The other half: update_not_requested.
    forger.send(HANDSHAKE, &[1, 0]).unwrap();
    drop(forger);
    let mut client = tls.client();
    client.send(&echo(1, b"alive"));
    client.check_answer(1, b"alive");
    tls.net.wait_for_open(1);
}

#[test]
fn empty_records_and_endless_handshake_messages_end_the_connection() {
    let tls = TlsNet::start(&[]);
    let mut empty = forger(&tls);
    while empty.send(DATA, b"").is_ok() {
        assert!(empty.sequence < 100_000, "accepts empty records for ever");
    }
    let mut updates = forger(&tls);
    // Each asks for an answer.
    let _ = updates.send(HANDSHAKE, &[24, 0, 0, 1, 1].repeat(3_000));
    assert!(updates.closed() < 100_000);
    // As large as rustls takes it, in records of one byte: 24 bytes each.
    let mut large = forger(&tls);
    let mut most = 0;
    let mut result = large.send(HANDSHAKE, &[24, 0, 0xff, 0xff]);
    while result.is_ok() && large.sequence < 65_000 {
        result = large.send(HANDSHAKE, &[0]);
        most = most.max(tls.net.memory.used_bytes());
    }
    large.closed();
    assert!((20_000..400_000).contains(&most), "{most} bytes");
    // Connections are given to the event loops in turn.
    for _ in 0..4 {
        let mut client = tls.client();
        client.send(&echo(1, b"alive"));
        client.check_answer(1, b"alive");
    }
    tls.net.wait_for_open(0);
    until("nothing is kept", || tls.net.memory.used_bytes() == 0);
}

#[test]
fn alerts_end_the_connection_that_sends_them() {
    const ALERT: u8 = 21;
    let tls = TlsNet::start(&[]);
    // A failed handshake, the end of the stream, an alert that does not exist, and half of one.
    for content in [&[2, 40][..], &[1, 0], &[2, 250], &[2]] {
        let mut forger = forger(&tls);
        forger.send(ALERT, content).unwrap();
        let bytes = forger.closed();
        assert!(bytes < 1_000, "{content:?}: {bytes}");
    }
    // Warnings that mean nothing, for as long as they are taken.
    let mut warnings = forger(&tls);
    while warnings.send(ALERT, &[1, 90]).is_ok() {
        assert!(warnings.sequence < 100_000, "accepts warnings for ever");
    }
    tls.net.wait_for_open(0);
}

#[test]
fn keys_are_updated_in_both_directions() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.connect(&tls.client_config(VERSIONS[1], None));
    for id in 0..20 {
        client.send(&echo(id, &[1; 20_000]));
        client.check_answer(id, &[1; 20_000]);
        client.stream.conn.refresh_traffic_keys().unwrap();
    }
}

#[test]
fn a_handshake_that_takes_too_long_is_closed_without_an_alert() {
    let tls = TlsNet::start_with(Difference {
        timeout: Duration::from_millis(100),
        ..Difference::default()
    });
    let mut silent = Client::connect(tls.net.address());
    let mut half = Client::connect(tls.net.address());
    half.send(&[0x16, 3, 1, 2, 0, 1, 0]);
    assert_eq!((silent.closed(), half.closed()), (vec![], vec![]));
    tls.net.wait_for_open(0);
}

#[test]
fn half_handshakes_of_one_address_do_not_keep_others_out() {
    let tls = TlsNet::start_with(Difference {
        handshakes_max: 50,
        ..Difference::default()
    });
    let config = tls.client_config(rustls::ALL_VERSIONS, None);
    // The oldest of all, but the only one of its address.
    let early = Client::connect_from([127, 0, 0, 3], tls.net.address());
    let half: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect_from([127, 0, 0, 2], tls.net.address());
            client.send(&[0x16, 3, 1, 2, 0, 1, 0]);
            client
        })
        .collect();
    until("the oldest are dropped", || tls.net.counts.open() == 50);
    let mut client = tls.client();
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    let mut early = TlsClient::over(early.socket, &config);
    early.send(&echo(1, b"x"));
    early.check_answer(1, b"x");
    drop(half);
    tls.net.wait_for_open(2);
}

#[test]
fn a_handshake_of_too_many_bytes_is_closed() {
    let tls = TlsNet::start(&[]);
    let mut client = Client::connect(tls.net.address());
    // A hello in fragments of one byte: 6 bytes each, so that the message stays small.
    let head = [1, 0, 0xff, 0];
    for byte in head.into_iter().chain(std::iter::repeat_n(0, 60_000)) {
        if client.socket.write_all(&[0x16, 3, 1, 0, 1, byte]).is_err() {
            break;
        }
    }
    client.closed();
    tls.net.wait_for_open(0);
    assert_eq!(tls.handshakes.entrance().counts().get(Outcome::TooLarge), 1);
}

#[test]
fn the_end_of_a_stream_is_told_to_clients_when_the_broker_stops() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.client();
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    drop(tls);
    assert_eq!(
        client.stream.read(&mut [0; 1]).unwrap(),
        0,
        "a close_notify, not just an end"
    );
}

#[test]
fn a_client_that_ends_without_a_word_is_gone_even_within_a_record() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.client();
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    client
        .stream
        .sock
        .write_all(&[0x17, 3, 3, 0x40, 0, 1, 2, 3])
        .unwrap();
    client.stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
    tls.net.wait_for_open(0);
    let mut polite = tls.client();
    polite.send(&echo(1, b"x"));
    polite.check_answer(1, b"x");
    polite.stream.conn.send_close_notify();
    polite.stream.flush().unwrap();
    tls.net.wait_for_open(0);
}

#[test]
fn large_requests_wait_for_memory_and_are_all_answered() {
    const CLIENTS: usize = 24;
    const BYTES: usize = 3 << 20;
    let tls = TlsNet::start_with(Difference {
        memory: (16 << 20, 4 << 20),
        ..Difference::default()
    });
    let config = tls.client_config(rustls::ALL_VERSIONS, None);
    let body: Vec<u8> = [support::net::COUNT, &vec![1; BYTES]].concat();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = tls.connect(&config);
                for id in 0..3 {
                    for part in echo(id, &body).chunks(100_000) {
                        client.send(part);
                    }
                    client.check_answer(id, body.len().to_string().as_bytes());
                }
            });
        }
    });
    assert!(tls.net.memory.waits() > 0, "memory was never short");
    tls.net.wait_for_open(0);
    assert_eq!(tls.net.memory.used_bytes(), 0);
}

#[test]
fn a_thousand_small_requests_at_once_are_answered_in_order() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.client();
    let all: Vec<u8> = (0..1_000).flat_map(|id| echo(id, &id.to_be_bytes())).collect();
    client.send(&all);
    for id in 0..1_000 {
        client.check_answer(id, &id.to_be_bytes());
    }
}

#[test]
fn a_broker_listens_with_tls_or_names_the_setting_that_keeps_it_from_starting() {
    use ottla_broker::broker::Broker;
    let tls = TlsNet::start(&[]);
    let key_store = tls.path("key.pem");
    let lines = [
        ("listeners", "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0"),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
        ),
        ("listener.name.outside.ssl.keystore.type", "PEM"),
        ("listener.name.outside.ssl.keystore.location", key_store.as_str()),
    ];
    let broker = Broker::start_temporary(&lines).unwrap();
    let ports: Vec<&str> = broker
        .node()
        .config()
        .listeners
        .iter()
        .map(|listener| &*listener.name)
        .collect();
    assert_eq!(ports, ["PLAINTEXT", "OUTSIDE"]);
    let mut address = broker.address();
    address.set_port(broker.node().config().listeners[1].port);
    let mut client = TlsClient::connect(address, &tls.client_config(rustls::ALL_VERSIONS, None));
    client.send(&support::frame(
        ottla_wire::api_key::ApiKey::ApiVersions,
        0,
        7,
        |_| {},
    ));
    let answer = support::receive_from(&mut client.stream, ottla_wire::api_key::ApiKey::ApiVersions, 0, 7);
    assert!(answer.unwrap().len() > 100);
    let error = Broker::start_temporary(&lines[..3]).err().unwrap().to_string();
    assert!(
        error.contains("ssl.keystore.location") && error.contains("listener OUTSIDE"),
        "{error}"
    );
}

#[test]
fn where_memory_is_short_records_are_read_whole_or_left_in_the_socket() {
    const CROWD: usize = 250;
    let tls = TlsNet::start_with(Difference {
        memory: (16 << 20, 4 << 20),
        ..Difference::default()
    });
    let config = tls.client_config(rustls::ALL_VERSIONS, None);
    let connect = || {
        let mut client = tls.connect(&config);
        client.send(&echo(0, b"x"));
        client.check_answer(0, b"x");
        client
    };
    let began = std::time::Instant::now();
    // Requests that fill the loops' parts of the memory, and stay incomplete.
    let request = echo(1, &[support::net::COUNT, &[1; 100_000]].concat());
    let mut crowd: Vec<TlsClient> = (0..CROWD).map(|_| connect()).collect();
    crowd
        .iter_mut()
        .for_each(|client| client.send(&request[..60_000]));
    until("memory is short", || tls.net.memory.waiting() > 0);
    // Halves of records.
    let mut halves: Vec<TlsClient> = (0..CROWD).map(|_| connect()).collect();
    let small = echo(1, &[2; 10_000]);
    let mut rests = Vec::new();
    for client in &mut halves {
        client.stream.conn.writer().write_all(&small).unwrap();
        let mut record = Vec::new();
        while client.stream.conn.wants_write() {
            client.stream.conn.write_tls(&mut record).unwrap();
        }
        let rest = record.split_off(record.len() / 2);
        client.stream.sock.write_all(&record).unwrap();
        rests.push(rest);
    }
    let mut polite = connect();
    for id in 0..20 {
        polite.send(&echo(id, b"polite"));
        polite.check_answer(id, b"polite");
    }
    // The limit, and what each of the crowd had in its last record.
    let used = tls.net.memory.used_bytes();
    assert!(used < (16 << 20) + CROWD * 20_000, "{used} bytes");
    // On a slow machine the crowd would be closed for standing in the way.
    let micros = began.elapsed().as_micros() as i64;
    tls.net.clock.jump(-micros);
    for client in &mut crowd {
        client.send(&request[60_000..]);
    }
    for client in &mut crowd {
        client.check_answer(1, b"100005");
    }
    for (client, rest) in halves.iter_mut().zip(rests) {
        client.stream.sock.write_all(&rest).unwrap();
        client.check_answer(1, &[2; 10_000]);
    }
    drop((crowd, halves, polite));
    tls.net.wait_for_open(0);
    assert_eq!(tls.net.memory.used_bytes(), 0);
}
