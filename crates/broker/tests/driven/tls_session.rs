//! A session of TLS with bytes in any pieces: those of a client that follows the protocol, changed
//! ones, and others. Used by a test and by a fuzz target.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;

use ottla_broker::net::tls_session::{TlsPages, TlsSession};
use ottla_broker::tls::config::TlsSettings;
use ottla_broker::tls::settings::SslSettings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

/// The broker's read of a handshake.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// More than one record.
const CONTENT_BYTES_MAX: usize = 40_000;
/// A session takes this many changes of keys without content between them.
const KEY_UPDATES_MAX: usize = 32;

/// The key and the certificate of `localhost`, good for a hundred years.
const STORE: &str = include_str!("../../../keystore/tests/keystores/localhost.pem");

/// What both sides of a connection need.
pub struct Peers {
    server: Arc<ServerConfig>,
    /// Of TLS 1.2 and of 1.3.
    clients: [Arc<ClientConfig>; 2],
}

impl Peers {
    pub fn new() -> Peers {
        let (key, chain) = STORE.split_at(STORE.find("-----BEGIN CERTIFICATE").unwrap());
        let lines = [
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.key", key),
            ("ssl.keystore.certificate.chain", chain),
        ];
        let properties = lines
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let settings = SslSettings::of_listener(&properties, &"SSL".into());
        let settings = TlsSettings::read(settings, false).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(chain.as_bytes()).unwrap())
            .unwrap();
        Peers {
            server: settings.load().unwrap().config,
            clients: [&TLS12, &TLS13].map(|version| {
                let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
                let builder = ClientConfig::builder_with_provider(provider)
                    .with_protocol_versions(&[version])
                    .unwrap();
                Arc::new(
                    builder
                        .with_root_certificates(roots.clone())
                        .with_no_client_auth(),
                )
            }),
        }
    }
}

/// What a run has come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub has_shaken_hands: bool,
    /// Plaintext that the session has given out.
    pub content_bytes: usize,
    /// The session has refused what it was given.
    pub is_refused: bool,
    /// No byte was changed or added, and the client has not changed its keys too often.
    pub is_genuine: bool,
}

struct Run {
    client: ClientConnection,
    session: TlsSession,
    pages: TlsPages,
    /// From the client, on its way.
    wire: VecDeque<u8>,
    written: Vec<u8>,
    given: Vec<u8>,
    /// Since the last content.
    key_updates: usize,
    is_genuine: bool,
    is_refused: bool,
}

/// Reads `script` as what happens to a connection.
///
/// Whatever happens: no panic, no more plaintext than the client has written, none of it changed;
/// and all of it, if nothing was changed on its way.
pub fn drive(peers: &Peers, script: &[u8]) -> Outcome {
    let mut script = script.iter().copied();
    let mut next = move || script.next();
    let version = usize::from(next().unwrap_or(0) & 1);
    let server_name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(peers.clients[version].clone(), server_name).unwrap();
    client.set_buffer_limit(None);
    let mut run = Run {
        client,
        session: TlsSession::new(peers.server.clone()).unwrap(),
        pages: TlsPages::default(),
        wire: VecDeque::new(),
        written: Vec::new(),
        given: Vec::new(),
        key_updates: 0,
        is_genuine: true,
        is_refused: false,
    };
    while let Some(operation) = next()
        && !run.is_refused
    {
        let number = usize::from(next().unwrap_or(0)) << 8 | usize::from(next().unwrap_or(0));
        match operation % 8 {
            0 => {
                // Bytes of its own, anywhere on the way.
                let at = number % (run.wire.len() + 1);
                let added: Vec<u8> = (0..operation / 8).map_while(|_| next()).collect();
                for byte in added.into_iter().rev() {
                    run.wire.insert(at, byte);
                    run.is_genuine = false;
                }
            }
            1 if !run.wire.is_empty() => {
                let at = number % run.wire.len();
                run.wire[at] ^= 1 << (operation / 8 % 8);
                run.is_genuine = false;
            }
            2 => run.update_keys(),
            3 | 4 => run.write(number % CONTENT_BYTES_MAX, operation),
            5 => run.deliver(number % 8 + 1),
            _ => run.deliver(number % PIECE_BYTES_MAX + 1),
        }
    }
    run.finish()
}

impl Run {
    /// Only TLS 1.3 can, after the handshake.
    fn update_keys(&mut self) {
        if self.client.refresh_traffic_keys().is_ok() {
            self.key_updates += 1;
            self.is_genuine &= self.key_updates <= KEY_UPDATES_MAX;
        }
    }

    fn write(&mut self, bytes: usize, seed: u8) {
        let content: Vec<u8> = (0..bytes).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        // A client that was answered nonsense writes nothing any more.
        if self.client.writer().write_all(&content).is_ok() {
            self.written.extend(content);
            if bytes > 0 {
                self.key_updates = 0;
            }
        }
    }

    /// Hands the next bytes on the way to the session, and its answer to the client.
    fn deliver(&mut self, bytes: usize) {
        self.fill_wire();
        let piece: Vec<u8> = self.wire.drain(..bytes.min(self.wire.len())).collect();
        match self.session.take(&piece, &mut self.pages) {
            Ok(content) => self.given.extend(content),
            Err(_) => self.is_refused = true,
        }
        let answer = self.session.take_outgoing();
        let mut answer = &answer[..];
        // A client that does not understand it says why on the wire.
        while !answer.is_empty() && self.client.read_tls(&mut answer).is_ok_and(|read| read > 0) {
            if self.client.process_new_packets().is_err() {
                break;
            }
        }
        assert!(self.written.starts_with(&self.given), "plaintext of nobody");
    }

    fn fill_wire(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.wire).unwrap();
        }
    }

    /// Delivers the rest.
    fn finish(mut self) -> Outcome {
        self.fill_wire();
        while !self.wire.is_empty() && !self.is_refused {
            self.deliver(PIECE_BYTES_MAX);
            self.fill_wire();
        }
        if self.is_genuine {
            assert!(!self.is_refused, "what the client sent was refused");
            assert_eq!(self.given.len(), self.written.len());
        }
        Outcome {
            has_shaken_hands: !self.session.connection().is_handshaking(),
            content_bytes: self.given.len(),
            is_refused: self.is_refused,
            is_genuine: self.is_genuine,
        }
    }
}
