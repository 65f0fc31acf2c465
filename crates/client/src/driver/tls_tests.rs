//! TLS over real sockets, against a rustls server with valid and invalid certificates.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::tls::TlsConnector;
use super::*;
use crate::admin::Admin;
use crate::config::{Config, Password, StoreSource, TlsIdentity, TlsSettings, TlsVersions};
use crate::consumer::{Consumer, TopicPartition};
use crate::network::io::{Action, Address, ConnectionId, Event, Frame};
use crate::network::testing::client_config;
use crate::producer::{Producer, Record};
use crate::time::{Moment, Timestamp};

/// Connects once, sends frames, reports events, and finishes after that many answers or at the end
/// of the connection.
struct Probe {
    address: Address,
    frames: Vec<Frame>,
    has_begun: bool,
    is_connected: bool,
    awaited: usize,
    report: Sender<Result<Bytes, Error>>,
}

impl Machine for Probe {
    fn handle(&mut self, _now: Moment, event: Event) {
        match event {
            Event::Connected { .. } => self.is_connected = true,
            Event::Received { frame, .. } => {
                self.awaited -= 1;
                self.report.send(Ok(frame)).unwrap();
            }
            Event::Closed { reason, .. } => {
                self.awaited = 0;
                self.report.send(Err(reason)).unwrap();
            }
            Event::RoundTrip { .. } => {}
        }
    }

    fn turn(&mut self, _now: Moment, _wall: Timestamp, actions: &mut Vec<Action>) {
        let connection = ConnectionId(0);
        if !std::mem::replace(&mut self.has_begun, true) {
            let address = self.address.clone();
            actions.push(Action::Connect { connection, address });
        }
        if self.is_connected {
            actions.extend(
                self.frames
                    .drain(..)
                    .map(|frame| Action::Send { connection, frame }),
            );
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        self.awaited == 0
    }
}

/// A test certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, both as PEM.
struct Signed {
    certificate: String,
    key: KeyPair,
}

impl Authority {
    fn new() -> Authority {
        Authority::named("authority")
    }

    fn named(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { certificate, key }
    }
}

fn inline(pem: &str) -> StoreSource {
    StoreSource::Inline(Password::new(pem))
}

fn trusting(authority: &Authority) -> TlsSettings {
    TlsSettings {
        trust: Some(inline(&authority.pem)),
        identity: None,
        checks_name: true,
        versions: TlsVersions {
            v1_2: true,
            v1_3: true,
        },
        cipher_suites: Vec::new(),
    }
}

fn showing(mut settings: TlsSettings, signed: &Signed) -> TlsSettings {
    settings.identity = Some(TlsIdentity {
        chain: inline(&signed.certificate),
        key: inline(&signed.key.serialize_pem()),
        key_password: None,
    });
    settings
}

/// Echoes every frame. `client_authority`: clients must present a certificate of it.
fn echo(signed: &Signed, client_authority: Option<&Authority>) -> Address {
    let builder =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
                .unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certificate = CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(signed.key.serialize_pem().as_bytes()).unwrap();
    let config = Arc::new(builder.with_single_cert(vec![certificate], key).unwrap());
    server(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        let mut length = [0; 4];
        while stream.read_exact(&mut length).is_ok() {
            let mut body = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(&length).unwrap();
            stream.write_all(&body).unwrap();
            stream.flush().unwrap();
        }
    })
}

/// Serves one connection after the other, as a broker would: a client retries when its first
/// connection failed unused.
fn server(mut talk: impl FnMut(TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(&mut talk));
    Address {
        host: "localhost".into(),
        port,
    }
}

fn start(
    address: Address,
    settings: TlsSettings,
    frames: Vec<Frame>,
) -> (Driver, Receiver<Result<Bytes, Error>>) {
    let mut config = client_config(address.clone());
    config.security.tls = Some(settings);
    let setup = DriverSetup::new(&Arc::new(config), &Arc::new(NetworkMetrics::default())).unwrap();
    let (report, reports) = channel();
    let probe = Probe {
        address,
        awaited: frames.len(),
        frames,
        has_begun: false,
        is_connected: false,
        report,
    };
    (setup.start("tls-probe", Box::new(probe)).unwrap(), reports)
}

fn join(mut driver: Driver) {
    assert!(driver.join(Duration::from_secs(60)));
}

fn frame(body: Vec<Bytes>) -> Frame {
    let bytes: usize = body.iter().map(Bytes::len).sum();
    let mut parts = vec![Bytes::copy_from_slice(&(bytes as u32).to_be_bytes())];
    parts.extend(body);
    Frame { parts }
}

/// One small frame there and back.
fn greet(address: Address, settings: TlsSettings) -> Result<Bytes, Error> {
    let (driver, reports) = start(address, settings, vec![frame(vec![Bytes::from_static(b"hello")])]);
    let result = reports.recv().unwrap();
    join(driver);
    result
}

#[track_caller]
fn check_fault(result: Result<Bytes, Error>, expected: &str) {
    match result {
        Err(Error::Tls { reason, .. }) => assert!(reason.contains(expected), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn large_and_small_frames_pass_in_both_versions() {
    for versions in [(true, false), (false, true)] {
        let authority = Authority::new();
        let address = echo(&authority.sign("localhost", |_| {}), None);
        let mut settings = trusting(&authority);
        (settings.versions.v1_2, settings.versions.v1_3) = versions;
        let large: Vec<u8> = (0..5_000_000_u32).map(|i| ((i * 31) >> 7) as u8).collect();
        let large = Bytes::from(large);
        let parts: Vec<Bytes> = (0..500)
            .map(|i| large.slice(i * 10_000..(i + 1) * 10_000))
            .collect();
        let frames = vec![
            frame(vec![Bytes::from_static(b"first")]),
            frame(parts),
            frame(Vec::new()),
            frame(vec![large.clone()]),
            frame(vec![Bytes::from_static(b"last")]),
        ];
        let (driver, reports) = start(address, settings, frames);
        for expected in [&b"first"[..], &large, b"", &large, b"last"] {
            assert!(
                reports.recv().unwrap().unwrap() == expected,
                "{} bytes",
                expected.len()
            );
        }
        join(driver);
    }
}

#[test]
fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let signed = authority.sign("localhost", |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    check_fault(greet(echo(&signed, None), trusting(&authority)), "has expired");
    let mut any_name = trusting(&authority);
    any_name.checks_name = false;
    check_fault(greet(echo(&signed, None), any_name), "has expired");
}

#[test]
fn an_unknown_issuer_is_not_trusted() {
    for (name, expected) in [("other", "trusts (ssl"), ("authority", "but another key")] {
        let signed = Authority::named(name).sign("localhost", |_| {});
        let mut settings = trusting(&Authority::new());
        check_fault(greet(echo(&signed, None), settings.clone()), expected);
        settings.checks_name = false;
        check_fault(greet(echo(&signed, None), settings), expected);
    }
}

#[test]
fn another_name_is_refused_unless_names_are_not_checked() {
    let authority = Authority::new();
    let signed = authority.sign("kafka.example", |_| {});
    let mut settings = trusting(&authority);
    check_fault(greet(echo(&signed, None), settings.clone()), "for another name");
    settings.checks_name = false;
    assert_eq!(greet(echo(&signed, None), settings).unwrap(), "hello");
}

#[test]
fn a_broker_that_requires_a_certificate_gets_one_or_the_error_says_so() {
    let authority = Authority::new();
    let signed = authority.sign("localhost", |_| {});
    let client = authority.sign("client", |_| {});
    let settings = trusting(&authority);
    check_fault(
        greet(echo(&signed, Some(&authority)), settings.clone()),
        "requires a client certificate",
    );
    let shown = showing(settings.clone(), &client);
    assert_eq!(greet(echo(&signed, Some(&authority)), shown).unwrap(), "hello");
    for name in ["other", "authority"] {
        let stranger = Authority::named(name).sign("client", |_| {});
        let shown = showing(settings.clone(), &stranger);
        check_fault(
            greet(echo(&signed, Some(&authority)), shown),
            "does not accept this client's certificate",
        );
    }
}

#[test]
fn an_encrypted_key_is_opened_with_its_password() {
    let authority = Authority::new();
    let signed = authority.sign("localhost", |_| {});
    let client = authority.sign("client", |_| {});
    let der = client.key.serialize_der();
    let parameters =
        pkcs8::pkcs5::pbes2::Parameters::pbkdf2_sha256_aes256cbc(2048, &[5; 16], &[6; 16]).unwrap();
    let encrypted = pkcs8::PrivateKeyInfo::try_from(&der[..])
        .unwrap()
        .encrypt_with_params(parameters, "open sesame")
        .unwrap()
        .to_pem("ENCRYPTED PRIVATE KEY", pkcs8::LineEnding::LF)
        .unwrap();
    let identity = |password: Option<&str>| {
        let mut settings = trusting(&authority);
        settings.identity = Some(TlsIdentity {
            chain: inline(&client.certificate),
            key: inline(&encrypted),
            key_password: password.map(Password::new),
        });
        settings
    };
    assert_eq!(
        greet(echo(&signed, Some(&authority)), identity(Some("open sesame"))).unwrap(),
        "hello"
    );
    for (password, expected) in [(None, "is not set"), (Some("wrong"), "does not open")] {
        let error = TlsConnector::new(&identity(password)).unwrap_err();
        assert!(matches!(&error, Error::Config { key, .. } if &**key == "ssl.key.password"));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn ports_without_tls_are_recognised() {
    let authority = Authority::new();
    let talks = server(|mut stream| {
        let _ = stream.read(&mut [0; 10_000]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    check_fault(greet(talks, trusting(&authority)), "does not speak TLS");
    let closes = server(|mut stream| {
        let _ = stream.read(&mut [0; 1]);
    });
    match greet(closes, trusting(&authority)) {
        Err(Error::Disconnected { reason, .. }) => {
            assert!(reason.contains("may be one without TLS"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_name_that_no_certificate_has_is_refused_before_a_byte_is_sent() {
    let authority = Authority::new();
    let mut address = server(|_stream| {});
    address.host = "127.0.0.1".into();
    let connector = TlsConnector::new(&trusting(&authority)).unwrap();
    let stream = TcpStream::connect((&*address.host, address.port)).unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = mio::net::TcpStream::from_std(stream);
    assert!(matches!(
        connector.open("not a name", stream),
        Err(Error::Tls { .. })
    ));
}

#[test]
fn cipher_suites_are_known_by_their_names() {
    let authority = Authority::new();
    let mut settings = trusting(&authority);
    settings.cipher_suites = vec![
        "TLS_AES_256_GCM_SHA384".into(),
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".into(),
    ];
    TlsConnector::new(&settings).unwrap();
    settings.cipher_suites.push("TLS_RSA_WITH_RC4_128_MD5".into());
    let error = TlsConnector::new(&settings).unwrap_err().to_string();
    assert!(
        error.starts_with("ssl.cipher.suites: TLS_RSA_WITH_RC4_128_MD5 is none of TLS_AES_"),
        "{error}"
    );
}

/// Regression: the consumer's poll and the admin client's calls once did not report it before their
/// timeout.
#[test]
fn every_client_reports_at_once_what_is_wrong_with_a_certificate() {
    let authority = Authority::new();
    let signed = authority.sign("kafka.example", |_| {});
    let config = || {
        Config::new()
            .set("bootstrap.servers", echo(&signed, None))
            .set("security.protocol", "SSL")
            .set("ssl.truststore.type", "PEM")
            .set("ssl.truststore.certificates", &authority.pem)
    };
    let admin = Admin::new(&config()).unwrap();
    check_fault(
        admin.describe_cluster().wait().map(|_| Bytes::new()),
        "for another name",
    );
    let mut consumer = Consumer::new(&config()).unwrap();
    consumer.assign([TopicPartition::new("t", 0)]).unwrap();
    let polled = consumer.poll(Duration::from_secs(60));
    check_fault(polled.map(|_| Bytes::new()), "for another name");
    let record = Record {
        topic: "t",
        ..Record::default()
    };
    let sent = Producer::new(&config()).unwrap().send(&record);
    check_fault(sent.map(|_| Bytes::new()), "for another name");
}
