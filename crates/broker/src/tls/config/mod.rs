//! The settings of a listener with TLS, and the `rustls::ServerConfig` made from them and from the
//! stores.

use std::sync::Arc;

use ottla_core::config::ConfigError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureAlgorithm,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};
use tracing::warn;

use super::certificate::Certificate;
use super::principal_rules::PrincipalRules;
use super::settings::SslSettings;
use super::stores::{self, Identity};

const CLIENT_AUTH: &str = "ssl.client.auth";
const PROTOCOLS: &str = "ssl.enabled.protocols";
const PROTOCOL: &str = "ssl.protocol";
const SUITES: &str = "ssl.cipher.suites";
const RULES: &str = "ssl.principal.mapping.rules";
const KEY_STORE: &str = "ssl.keystore.location";
const TRUST_STORE: &str = "ssl.truststore.location";

/// Tickets per handshake of TLS 1.3: a client that resumes gets a new one each time.
const TICKETS: usize = 1;

/// RSA keys above this size are worth a warning: a signature of 4,096 bits takes several times as
/// long as one of 2,048.
const RSA_KEY_BYTES_MAX: usize = 3072 / 8;

/// What is asked of a client's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    None,
    Requested,
    Required,
}

/// The settings of one listener that its files do not change.
#[derive(Debug)]
pub struct TlsSettings {
    pub ssl: SslSettings,
    /// Of a SASL_SSL listener.
    pub has_sasl: bool,
    pub client_auth: ClientAuth,
    pub rules: PrincipalRules,
    pub allows_dn_changes: bool,
    pub allows_san_changes: bool,
    versions: Vec<&'static SupportedProtocolVersion>,
    suites: Vec<SupportedCipherSuite>,
}

impl TlsSettings {
    /// - `has_sasl`: of a SASL_SSL listener.
    pub fn read(ssl: SslSettings, has_sasl: bool) -> Result<TlsSettings, ConfigError> {
        if ssl.text("ssl.engine.factory.class").is_some() {
            return Err(ssl.fault(
                "ssl.engine.factory.class",
                "names a Java class, which cannot be loaded",
            ));
        }
        if !matches!(ssl.text(PROTOCOL), None | Some("TLS" | "TLSv1.2" | "TLSv1.3")) {
            return Err(ssl.fault(PROTOCOL, "is not TLS, TLSv1.2 or TLSv1.3"));
        }
        let rules = PrincipalRules::parse(ssl.written(RULES).unwrap_or("DEFAULT"));
        Ok(TlsSettings {
            has_sasl,
            client_auth: client_auth(&ssl, has_sasl)?,
            rules: rules.map_err(|problem| ssl.fault(RULES, problem))?,
            allows_dn_changes: ssl.is_true("ssl.allow.dn.changes")?,
            allows_san_changes: ssl.is_true("ssl.allow.san.changes")?,
            versions: versions(&ssl)?,
            suites: suites(&ssl)?,
            ssl,
        })
    }

    /// Reads the stores, and makes of them what new handshakes use.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let identities = stores::identities(&self.ssl)?;
        let trusted = self.trusted()?;
        let provider = CryptoProvider {
            cipher_suites: self.suites.clone(),
            ..aws_lc_rs::default_provider()
        };
        let provider = Arc::new(provider);
        let keys = Keys::new(&self.ssl, identities, &provider)?;
        let certificates = keys.certificates(&self.ssl)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&self.versions)
            .map_err(|_| {
                self.ssl.fault(
                    SUITES,
                    format_args!("has no cipher suite for a version in {PROTOCOLS}"),
                )
            })?;
        let builder = match &trusted {
            None => builder.with_no_client_auth(),
            Some(trusted) => builder.with_client_cert_verifier(self.verifier(trusted, &provider)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(keys));
        // Like Java, the broker's order counts.
        config.ignore_client_order = true;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = TICKETS;
        // A ticket holds the client's certificate, which is not checked again: with a new ticketer
        // no client resumes a session that today's trust store would not admit.
        config.ticketer = aws_lc_rs::Ticketer::new()
            .map_err(|error| self.ssl.fault(KEY_STORE, format_args!("cannot be used: {error}")))?;
        Ok(Loaded {
            config: Arc::new(config),
            certificates,
        })
    }

    /// What clients' certificates are checked against; `None` when they are not asked for any.
    fn trusted(&self) -> Result<Option<Vec<CertificateDer<'static>>>, ConfigError> {
        let found = stores::trusted(&self.ssl)?;
        if self.client_auth == ClientAuth::None {
            return Ok(None);
        }
        // Java would trust every public certificate authority.
        let missing = || {
            self.ssl.fault(
                TRUST_STORE,
                format_args!(
                    "is not set, and {CLIENT_AUTH} asks clients for certificates: which to trust is not known"
                ),
            )
        };
        found.map(Some).ok_or_else(missing)
    }

    fn verifier(
        &self,
        trusted: &[CertificateDer<'static>],
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in trusted.iter().enumerate() {
            roots.add(certificate.clone()).map_err(|error| {
                self.ssl.fault(
                    TRUST_STORE,
                    format_args!(
                        "has a certificate (number {}) that cannot be trusted: {error}",
                        index + 1
                    ),
                )
            })?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let builder = match self.client_auth {
            ClientAuth::Required => builder,
            _ => builder.allow_unauthenticated(),
        };
        let inner = builder.build().map_err(|error| {
            self.ssl
                .fault(TRUST_STORE, format_args!("cannot be used: {error}"))
        })?;
        Ok(Arc::new(ClientVerifier {
            inner,
            trusted: trusted.to_vec(),
        }))
    }
}

/// What new handshakes use, and whose certificates it shows.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Arc<ServerConfig>,
    pub certificates: Vec<Certificate>,
}

fn client_auth(ssl: &SslSettings, has_sasl: bool) -> Result<ClientAuth, ConfigError> {
    // The general value is about SSL listeners: on SASL_SSL the certificate would not count.
    let text = match has_sasl {
        true => {
            let own = ssl.own_text(CLIENT_AUTH);
            if own.is_none() && ssl.text(CLIENT_AUTH).is_some_and(|text| text != "none") {
                let (listener, key) = (ssl.listener(), CLIENT_AUTH);
                warn!(%listener, "{key} has no effect on a SASL_SSL listener unless it is set for this listener");
            }
            own
        }
        false => ssl.text(CLIENT_AUTH),
    };
    match text.unwrap_or("none") {
        "none" => Ok(ClientAuth::None),
        "requested" => Ok(ClientAuth::Requested),
        "required" => Ok(ClientAuth::Required),
        _ => Err(ssl.fault(CLIENT_AUTH, "is not none, requested or required")),
    }
}

fn versions(ssl: &SslSettings) -> Result<Vec<&'static SupportedProtocolVersion>, ConfigError> {
    let mut found = Vec::new();
    for name in ssl.list(PROTOCOLS, "TLSv1.2,TLSv1.3") {
        match name {
            "TLSv1.2" => found.push(&rustls::version::TLS12),
            "TLSv1.3" => found.push(&rustls::version::TLS13),
            "TLSv1" | "TLSv1.1" | "SSLv3" | "SSLv2Hello" => {
                let listener = ssl.listener();
                warn!(%listener, version = name, "{PROTOCOLS}: this version is not secure and not served");
            }
            _ => return Err(ssl.fault(PROTOCOLS, format_args!("names no version of TLS: {name}"))),
        }
    }
    if found.is_empty() {
        return Err(ssl.fault(PROTOCOLS, "names neither TLSv1.2 nor TLSv1.3"));
    }
    Ok(found)
}

/// The suites that are named, in their order; without names all that are secure.
fn suites(ssl: &SslSettings) -> Result<Vec<SupportedCipherSuite>, ConfigError> {
    let all = aws_lc_rs::DEFAULT_CIPHER_SUITES;
    if ssl.text(SUITES).is_none() {
        return Ok(all.to_vec());
    }
    let mut found = Vec::new();
    for name in ssl.list(SUITES, "") {
        match all.iter().find(|suite| suite_name(suite) == name) {
            Some(suite) => found.push(*suite),
            None => {
                let listener = ssl.listener();
                warn!(%listener, suite = name, "{SUITES}: this cipher suite is not served");
            }
        }
    }
    if found.is_empty() {
        let names: Vec<String> = all.iter().map(suite_name).collect();
        return Err(ssl.fault(
            SUITES,
            format_args!("names no cipher suite that is served: {}", names.join(", ")),
        ));
    }
    Ok(found)
}

/// The name that the registry of IANA, and Java, have for a suite.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    name_of(suite.suite())
}

pub fn name_of(suite: CipherSuite) -> String {
    format!("{suite:?}").replace("TLS13_", "TLS_")
}

/// The listener's keys. The name that a client asks for (SNI) plays no part, as in Kafka.
#[derive(Debug)]
struct Keys(Vec<Arc<CertifiedKey>>);

impl Keys {
    fn new(
        ssl: &SslSettings,
        identities: Vec<Identity>,
        provider: &CryptoProvider,
    ) -> Result<Keys, ConfigError> {
        let mut keys: Vec<Arc<CertifiedKey>> = Vec::new();
        for Identity { alias, chain, key } in identities {
            let entry = if alias.is_empty() {
                String::new()
            } else {
                format!(" (entry {alias})")
            };
            let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
                let problem = match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "has a certificate of another private key".to_owned()
                    }
                    error => format!("has a private key that cannot be used: {error}"),
                };
                ssl.fault(KEY_STORE, format_args!("{problem}{entry}"))
            })?;
            // The first of each algorithm; which one a client can use shows in its hello.
            if !keys
                .iter()
                .any(|known| known.key.algorithm() == key.key.algorithm())
            {
                keys.push(Arc::new(key));
            }
        }
        // An elliptic curve's signature costs a tenth of RSA's.
        keys.sort_by_key(|key| key.key.algorithm() == SignatureAlgorithm::RSA);
        Ok(Keys(keys))
    }

    fn certificates(&self, ssl: &SslSettings) -> Result<Vec<Certificate>, ConfigError> {
        self.0
            .iter()
            .map(|key| {
                let found = Certificate::read(&key.cert[0])
                    .map_err(|_| ssl.fault(KEY_STORE, "has a certificate that cannot be read"))?;
                let (listener, subject) = (ssl.listener(), &found.subject);
                if is_large_rsa(key) {
                    warn!(%listener, %subject, "an RSA key of more than 3072 bits makes handshakes slow; a P-256 key costs a small part");
                }
                Ok(found)
            })
            .collect()
    }
}

fn is_large_rsa(key: &CertifiedKey) -> bool {
    // The key of a SubjectPublicKeyInfo is its modulus and little else.
    let info_bytes = key.key.public_key().map_or(0, |info| info.len());
    key.key.algorithm() == SignatureAlgorithm::RSA && info_bytes > RSA_KEY_BYTES_MAX + 64
}

impl ResolvesServerCert for Keys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.signature_schemes();
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(offered).is_some();
        // Without one that fits, rustls finds out with any of them, and says so by the right alert.
        self.0.iter().find(usable).or(self.0.first()).cloned()
    }
}

/// rustls's verifier; besides, a certificate that is in the trust store itself is trusted, as in
/// Java, even if it says that it is an authority's: `openssl req -x509` makes such certificates.
#[derive(Debug)]
struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ClientVerifier {
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> bool {
        let seconds = now.as_secs() as i64;
        self.trusted.contains(certificate)
            && Certificate::read(certificate)
                .is_ok_and(|found| (found.not_before..=found.not_after).contains(&seconds))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(_) if self.is_trusted_itself(end_entity, now) => Ok(ClientCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
