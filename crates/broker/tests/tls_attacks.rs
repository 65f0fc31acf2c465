//! Listeners with TLS against clients that ask for less security than they can have, or for more
//! work than they do themselves.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ottla_broker::net::handshake::Outcome;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ConnectionTrafficSecrets, RootCertStore};
use support::Client;
use support::net::echo;
use support::tls::{Authority, Difference, TlsClient, TlsNet};

const ALERT: u8 = 21;
const DATA: u8 = 23;
const HANDSHAKE_FAILURE: u8 = 40;
const PROTOCOL_VERSION: u8 = 70;

/// A ClientHello without extensions (RFC 5246, 7.4.1.2), as clients of this version send it.
fn hello(version: [u8; 2]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    // No session; ECDHE with AES-GCM, RSA with AES-CBC; no compression.
    body.extend([0, 0, 4, 0xc0, 0x2f, 0x00, 0x2f, 1, 0]);
    let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
    [&[0x16, 3, 1, 0, message.len() as u8][..], &message].concat()
}

#[test]
fn versions_before_tls_1_2_are_refused_by_an_alert() {
    let tls = TlsNet::start(&[]);
    for version in [[3, 0], [3, 1], [3, 2]] {
        let mut client = Client::connect(tls.net.address());
        client.send(&hello(version));
        let answer = client.closed();
        assert_eq!((answer[0], answer.len()), (ALERT, 7), "{version:?}: {answer:?}");
        assert!(
            [PROTOCOL_VERSION, HANDSHAKE_FAILURE].contains(&answer[6]),
            "{version:?}: {answer:?}"
        );
    }
    assert_eq!(tls.handshakes.entrance().counts().get(Outcome::Refused), 3);
    tls.net.wait_for_open(0);
    // Handshakes end one after the other on one thread: this one has seen the ends of all.
    let mut client = tls.client();
    client.send(&echo(1, b"x"));
    client.check_answer(1, b"x");
    let refusals = [("no-common-version".to_owned(), 3)];
    let kinds = tls.handshakes.entrance().counts().kinds();
    assert_eq!(kinds.refusals, refusals.into());
}

#[test]
fn a_client_that_was_talked_out_of_tls_1_3_can_see_it() {
    let tls = TlsNet::start(&[]);
    let mut client = tls.connect(&tls.client_config(&[&TLS12], None));
    let (connection, mut socket) = (&mut client.stream.conn, &client.stream.sock);
    while connection.wants_write() {
        connection.write_tls(&mut socket).unwrap();
    }
    // RFC 8446, 4.1.3: the last bytes of the random number behind two heads and the version.
    let mut answer = [0; 5 + 4 + 2 + 32];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[answer.len() - 8..], b"DOWNGRD\x01");
}

#[test]
fn a_hello_that_drips_is_closed_although_bytes_keep_coming() {
    let tls = TlsNet::start_with(Difference {
        timeout: Duration::from_millis(200),
        ..Difference::default()
    });
    let mut client = Client::connect(tls.net.address());
    let bytes = hello([3, 3]);
    // The rest of the hello would take ten seconds.
    let mut sent = 0;
    while sent < bytes.len() - 1 && client.socket.write_all(&bytes[sent..=sent]).is_ok() {
        sent += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(sent < bytes.len() - 1, "the whole hello was waited for");
    assert_eq!(tls.handshakes.entrance().counts().get(Outcome::Overdue), 1);
    tls.net.wait_for_open(0);
}

#[test]
fn garbage_behind_the_first_byte_ends_with_an_alert_or_nothing() {
    let tls = TlsNet::start(&[]);
    for seed in 0..200u32 {
        let mut client = Client::connect(tls.net.address());
        let mut bytes = hello([3, 3]);
        // Every position behind the first byte in turn, and a length or two.
        let at = 1 + seed as usize % (bytes.len() - 1);
        bytes[at] ^= 1 << (seed % 8);
        client.send(&bytes);
        client.socket.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = client.closed();
        assert!(
            answer.is_empty() || [ALERT, 22].contains(&answer[0]),
            "{seed}: {answer:?}"
        );
    }
    tls.net.wait_for_open(0);
    let mut client = tls.client();
    client.send(&echo(1, b"alive"));
    client.check_answer(1, b"alive");
}

/// A record of TLS 1.2 (RFC 5288): a sequence number in front, which the nonce ends with.
fn seal(key: &LessSafeKey, iv: &[u8], sequence: u64, kind: u8, content: &[u8]) -> Vec<u8> {
    let explicit = sequence.to_be_bytes();
    let nonce: [u8; 12] = [&iv[..4], &explicit].concat().try_into().unwrap();
    let length = (content.len() as u16).to_be_bytes();
    let additional = [&explicit[..], &[kind, 3, 3], &length].concat();
    let mut sealed = content.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::from(additional), &mut sealed)
        .unwrap();
    let length = (sealed.len() as u16 + 8).to_be_bytes();
    [&[kind, 3, 3][..], &length, &explicit, &sealed].concat()
}

/// A client of TLS 1.2 that makes its records by hand, behind a handshake and one request.
struct Sealing {
    socket: TcpStream,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Sealing {
    fn connect(tls: &TlsNet) -> Sealing {
        let mut client = tls.connect(&tls.client_config(&[&TLS12], None));
        client.send(&echo(1, b"x"));
        client.check_answer(1, b"x");
        let (connection, socket) = client.stream.into_parts();
        let (sequence, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
            panic!("not the first of the broker's cipher suites");
        };
        Sealing {
            socket,
            key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap()),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
        }
    }

    fn send(&mut self, kind: u8, content: &[u8]) -> std::io::Result<()> {
        let record = seal(&self.key, &self.iv, self.sequence, kind, content);
        self.sequence += 1;
        self.socket.write_all(&record)
    }

    /// What comes until the broker closes.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.socket.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "not closed: {error}");
        }
        rest
    }

    /// Reads records until they have had this much content: encryption adds 24 bytes to each.
    fn receive(&mut self, bytes: usize) {
        let mut received = 0;
        while received < bytes {
            let mut head = [0; 5];
            self.socket.read_exact(&mut head).unwrap();
            assert_eq!(head[0], DATA, "{head:?}");
            let mut record = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
            self.socket.read_exact(&mut record).unwrap();
            received += record.len() - 24;
        }
        assert_eq!(received, bytes);
    }
}

/// RFC 5246, 6.2.1: content has at most 2^14 bytes, and records of data may be empty.
#[test]
fn records_of_every_allowed_size_are_taken_and_larger_ones_are_refused() {
    const CONTENT_BYTES_MAX: usize = 1 << 14;
    let tls = TlsNet::start(&[]);
    let mut client = Sealing::connect(&tls);
    let head_bytes = echo(2, b"").len();
    let request = echo(2, &vec![7; CONTENT_BYTES_MAX + 1 - head_bytes]);
    assert_eq!(request.len(), CONTENT_BYTES_MAX + 1);
    let (first, rest) = request.split_at(1);
    for content in [first, b"", rest] {
        client.send(DATA, content).unwrap();
    }
    let answer_bytes = request.len() - head_bytes + 8;
    client.receive(answer_bytes);
    for _ in 0..16_000 {
        if client.send(DATA, b"").is_err() {
            break;
        }
    }
    // As many as that may end the connection, and delay no other client.
    let mut other = tls.client();
    other.send(&echo(1, b"alive"));
    other.check_answer(1, b"alive");
    drop(client);
    let mut client = Sealing::connect(&tls);
    // The broker may close before all of it is sent.
    let _ = client.send(DATA, &request);
    let rest = client.rest();
    assert!(rest.first().is_none_or(|kind| *kind == ALERT), "{rest:?}");
    tls.net.wait_for_open(1);
}

/// An extension of 64 KiB less its heads, in a hello of five records.
#[test]
fn an_extension_of_64_kib_is_judged_or_refused_and_keeps_no_client_out() {
    const PADDING: [u8; 2] = [0, 21];
    let tls = TlsNet::start(&[]);
    let small = hello([3, 3]);
    for extension_bytes in [1_000, 16_000, 65_000, 65_531] {
        let mut body = small[9..].to_vec();
        body.extend(((extension_bytes + 4) as u16).to_be_bytes());
        body.extend(PADDING);
        body.extend((extension_bytes as u16).to_be_bytes());
        body.resize(body.len() + extension_bytes, 0);
        let length = (body.len() as u32).to_be_bytes();
        let message = [&[1][..], &length[1..], &body].concat();
        let mut client = Client::connect(tls.net.address());
        for content in message.chunks(1 << 14) {
            let head = [&[22, 3, 1][..], &(content.len() as u16).to_be_bytes()].concat();
            // The broker may refuse the hello, and reset the connection, at any of these steps.
            let _ = client.socket.write_all(&[&head[..], content].concat());
        }
        let _ = client.socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = client.socket.read_to_end(&mut answer);
        assert!(
            answer.first().is_none_or(|kind| [ALERT, 22].contains(kind)),
            "{extension_bytes}: {answer:?}"
        );
    }
    tls.net.wait_for_open(0);
    let mut client = tls.client();
    client.send(&echo(1, b"alive"));
    client.check_answer(1, b"alive");
}

#[test]
fn plaintext_after_the_handshake_ends_the_connection() {
    let tls = TlsNet::start(&[]);
    for versions in [&[&TLS12][..], &[&TLS13]] {
        let mut client = tls.connect(&tls.client_config(versions, None));
        client.send(&echo(1, b"encrypted"));
        client.check_answer(1, b"encrypted");
        // The same request, this time past the encryption.
        client.stream.sock.write_all(&echo(2, b"plain")).unwrap();
        assert!(client.try_receive(2).is_err(), "{versions:?}");
    }
    tls.net.wait_for_open(0);
    let mut client = tls.client();
    client.send(&echo(1, b"alive"));
    client.check_answer(1, b"alive");
}

#[test]
fn a_connection_of_tls_1_2_is_not_renegotiated() {
    let tls = TlsNet::start(&[]);
    let mut client = Sealing::connect(&tls);
    let hello = hello([3, 3])[5..].to_vec();
    for _ in 0..100 {
        if client.send(22, &hello).is_err() {
            break;
        }
    }
    let rest = client.rest();
    // Never the answer of a handshake; alerts at most, encrypted.
    assert!(rest.first().is_none_or(|kind| *kind == ALERT), "{rest:?}");
    assert_eq!(tls.handshakes.entrance().counts().get(Outcome::Full), 1);
    tls.net.wait_for_open(0);
}

/// A client of `tls` that shows `chain` behind its own certificate, which `authority` has signed.
fn with_chain(tls: &TlsNet, authority: &Authority, chain: &[CertificateDer<'static>]) -> TlsClient {
    let mut roots = RootCertStore::empty();
    roots.add(tls.authority.certificate.der().clone()).unwrap();
    let own = authority.sign("alice", |_| {});
    let key = PrivateKeyDer::try_from(own.key.serialized_der().to_vec()).unwrap();
    let chain = [&[own.certificate.der().clone()], chain].concat();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    tls.connect(&Arc::new(config))
}

/// The broker looks for a way from the client's certificate to one that it trusts.
#[test]
fn long_chains_of_certificates_are_judged_or_refused_and_keep_no_client_out() {
    let tls = TlsNet::start(&[("ssl.client.auth", "required")]);
    let stranger = Authority::named("stranger");
    let others: Vec<CertificateDer<'static>> = (0..100)
        .map(|number| {
            Authority::named(&format!("other {number}"))
                .certificate
                .der()
                .clone()
        })
        .collect();
    let mut served = with_chain(&tls, &tls.authority, &others);
    served.send(&echo(1, b"x"));
    served.check_answer(1, b"x");
    let unknown = with_chain(&tls, &stranger, &others).alert();
    assert_eq!(unknown, rustls::AlertDescription::UnknownCA);
    // More than a handshake may have.
    let many: Vec<CertificateDer<'static>> = others.iter().cycle().take(400).cloned().collect();
    let mut refused = with_chain(&tls, &stranger, &many);
    let sent = refused.stream.write_all(&echo(1, b"x"));
    assert!(sent.is_err() || refused.try_receive(1).is_err());
    tls.net.wait_for_open(1);
    served.send(&echo(2, b"alive"));
    served.check_answer(2, b"alive");
}
