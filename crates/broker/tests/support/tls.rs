//! The network layer behind TLS, and clients of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::broker::TemporaryDirectory;
use ottla_broker::net::handshake::Handshakes;
use ottla_broker::net::listener::TlsDoor;
use ottla_broker::tls::config::TlsSettings;
use ottla_broker::tls::listener::TlsListener;
use ottla_broker::tls::settings::SslSettings;
use ottla_wire::api_key::ApiKey;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::HANG;
use super::net::{Net, REQUEST_BYTES_MAX};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: rcgen::Certificate,
}

/// A certificate and its private key.
pub struct Signed {
    pub certificate: rcgen::Certificate,
    pub key: KeyPair,
}

impl Authority {
    pub fn named(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// A certificate of the subject `CN=name`, for the host localhost.
    pub fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        Signed {
            certificate: params.signed_by(&key, &self.issuer).unwrap(),
            key,
        }
    }

    /// Writes the key store of a broker of this authority, which is trusted to sign the
    /// certificates of clients; returns the settings of a listener that uses them.
    pub fn write_stores(&self, directory: &Path) -> [(&'static str, String); 4] {
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let (key_store, trust_store) = (path("key.pem"), path("trust.pem"));
        let own = self.sign("broker", |_| {});
        std::fs::write(&key_store, own.key.serialize_pem() + &own.certificate.pem()).unwrap();
        std::fs::write(&trust_store, self.certificate.pem()).unwrap();
        [
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", key_store),
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", trust_store),
        ]
    }

    /// What a client needs that trusts this authority and shows `identity`.
    pub fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Signed>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(signed) => {
                let key = PrivateKeyDer::try_from(signed.key.serialized_der().to_vec()).unwrap();
                let chain = vec![signed.certificate.der().clone()];
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.enable_secret_extraction = true;
        Arc::new(config)
    }
}

/// A network whose one listener has TLS.
pub struct TlsNet {
    pub net: Net,
    pub listener: Arc<TlsListener>,
    /// Signed the listener's certificate, and is trusted to sign those of clients.
    pub authority: Authority,
    directory: TemporaryDirectory,
    pub handshakes: Handshakes,
}

/// How a network with TLS differs from the usual one.
pub struct Difference<'a> {
    /// Settings of the listener.
    pub lines: &'a [(&'a str, &'a str)],
    pub timeout: Duration,
    pub handshakes_max: usize,
    /// For requests of all connections together, and of one request.
    pub memory: (usize, usize),
}

impl Default for Difference<'_> {
    fn default() -> Self {
        Difference {
            lines: &[],
            timeout: HANG,
            handshakes_max: 2_048,
            memory: (10 * REQUEST_BYTES_MAX, REQUEST_BYTES_MAX),
        }
    }
}

impl TlsNet {
    pub fn start(lines: &[(&str, &str)]) -> TlsNet {
        TlsNet::start_with(Difference {
            lines,
            ..Difference::default()
        })
    }

    pub fn start_with(difference: Difference<'_>) -> TlsNet {
        let authority = Authority::named("authority");
        let directory = TemporaryDirectory::create().unwrap();
        let stores = authority.write_stores(directory.path());
        let stores = stores.map(|(key, value)| (key.to_owned(), value));
        let lines = difference.lines.iter();
        let lines = lines.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let properties = stores.into_iter().chain(lines).collect();
        let settings = SslSettings::of_listener(&properties, &"SSL".into());
        let settings = TlsSettings::read(settings, false).unwrap();
        let listener = Arc::new(TlsListener::open(settings).unwrap());
        let handshakes = Handshakes::start(difference.timeout, difference.handshakes_max).unwrap();
        let door = TlsDoor {
            listener: listener.clone(),
            entrance: handshakes.entrance().clone(),
        };
        let idle_max = Duration::from_secs(600);
        TlsNet {
            net: Net::start_behind(Some(door), difference.memory, idle_max, usize::MAX),
            listener,
            authority,
            directory,
            handshakes,
        }
    }

    /// The path of one of its files: key.pem or trust.pem.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Replaces the certificates that clients are trusted by.
    pub fn trust(&self, authority: &Authority) {
        let path = self.directory.path().join("trust.pem");
        std::fs::write(path, authority.certificate.pem()).unwrap();
        self.listener.reload().unwrap();
    }

    /// What a client needs that shows `identity`.
    pub fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Signed>,
    ) -> Arc<ClientConfig> {
        self.authority.client_config(versions, identity)
    }

    pub fn connect(&self, config: &Arc<ClientConfig>) -> TlsClient {
        TlsClient::connect(self.net.address(), config)
    }

    /// A client of any version, without a certificate.
    pub fn client(&self) -> TlsClient {
        self.connect(&self.client_config(rustls::ALL_VERSIONS, None))
    }
}

pub struct TlsClient {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
}

impl TlsClient {
    pub fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> TlsClient {
        TlsClient::over(super::Client::connect(address).socket, config)
    }

    /// A client on a connected socket.
    pub fn over(socket: TcpStream, config: &Arc<ClientConfig>) -> TlsClient {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        TlsClient {
            stream: StreamOwned::new(connection, socket),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    pub fn try_receive(&mut self, correlation_id: i32) -> std::io::Result<Vec<u8>> {
        super::receive_from(&mut self.stream, ApiKey::Metadata, 1, correlation_id)
    }

    #[track_caller]
    pub fn check_answer(&mut self, correlation_id: i32, body: &[u8]) {
        let answer = self.try_receive(correlation_id).unwrap();
        assert!(answer == body, "reply {correlation_id} differs");
    }

    /// The alert that ends the connection, however far the handshake has come.
    pub fn alert(&mut self) -> rustls::AlertDescription {
        // The client of TLS 1.3 is done before the broker has seen its certificate.
        let _ = self.stream.write(b"x").and_then(|_| self.stream.flush());
        let error = self.stream.read(&mut [0; 1]).unwrap_err();
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::AlertReceived(alert)) => *alert,
            _ => panic!("no alert: {error:?}"),
        }
    }
}
