//! Trust and identity for TLS: from the settings to rustls.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedCipherSuite,
};

use super::stores::{self, config};
use crate::config::{StoreSource, TlsSettings};
use crate::error::Error;

/// - Errors: `Config`, naming the setting, for stores that cannot be read or do not match.
pub(super) fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, Error> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if !settings.cipher_suites.is_empty() {
        provider.cipher_suites = cipher_suites(&provider, &settings.cipher_suites)?;
    }
    let provider = Arc::new(provider);
    let mut versions = Vec::new();
    if settings.versions.v1_3 {
        versions.push(&rustls::version::TLS13);
    }
    if settings.versions.v1_2 {
        versions.push(&rustls::version::TLS12);
    }
    let roots = Arc::new(roots(settings.trust.as_ref())?);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| {
            config(
                "ssl.cipher.suites",
                format!("ssl.cipher.suites with ssl.enabled.protocols: {error}"),
            )
        })?;
    let verifier: Arc<dyn ServerCertVerifier> = if settings.checks_name {
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| config("ssl.truststore.location", format!("ssl.truststore: {error}")))?
    } else {
        Arc::new(AnyName {
            roots,
            algorithms: provider.signature_verification_algorithms,
        })
    };
    // The first is rustls's own verifier; the second skips only the name check, which the user
    // disabled.
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let Some(identity) = &settings.identity else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let (chain, key) = stores::identity(identity)?;
    builder
        .with_client_auth_cert(chain, key)
        .map(Arc::new)
        .map_err(|error| {
            config(
                "ssl.keystore.key",
                format!("ssl.keystore: key and certificates do not match: {error}"),
            )
        })
}

fn roots(trust: Option<&StoreSource>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let Some(source) = trust else {
        let found = system_roots().map_err(|why| {
            let message = format!(
                "ssl.truststore.location is not set, and the system's certificates cannot be read: {why}"
            );
            config("ssl.truststore.location", message)
        })?;
        // A system's store sometimes has certificates that strict readers reject; use the others.
        roots.add_parsable_certificates(found);
        return Ok(roots);
    };
    let (setting, certificates) = stores::trusted(source)?;
    for certificate in certificates {
        roots.add(certificate).map_err(|error| {
            config(
                setting,
                format!("{setting}: a certificate cannot be trusted: {error}"),
            )
        })?;
    }
    Ok(roots)
}

/// What the system, or the environment's SSL_CERT_FILE, trusts.
///
/// - Errors: why there is nothing.
pub(super) fn system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if !found.certs.is_empty() {
        return Ok(found.certs);
    }
    let why = found.errors.first().map(ToString::to_string);
    Err(why.unwrap_or_else(|| "there are none".to_owned()))
}

/// By the names of IANA and Java; rustls writes those of TLS 1.3 slightly differently.
fn cipher_suites(provider: &CryptoProvider, names: &[String]) -> Result<Vec<SupportedCipherSuite>, Error> {
    let name_of = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
    let find = |name: &String| {
        let found = provider
            .cipher_suites
            .iter()
            .find(|suite| name_of(suite) == *name);
        found.copied().ok_or_else(|| {
            let known: Vec<String> = provider.cipher_suites.iter().map(name_of).collect();
            let why = format!("ssl.cipher.suites: {name} is none of {}", known.join(", "));
            config("ssl.cipher.suites", why)
        })
    };
    names.iter().map(find).collect()
}

/// `ssl.endpoint.identification.algorithm=` (empty): the chain is checked, the name is not.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Explains a failed handshake in terms of what to change.
pub(super) fn explain(error: &rustls::Error, has_identity: bool) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason),
        rustls::Error::AlertReceived(alert) => match alert {
            // TLS 1.3 has an alert for it; Java's servers send bad_certificate, or
            // handshake_failure with TLS 1.2.
            Alert::CertificateRequired => {
                "the broker requires a client certificate (ssl.keystore.location)".to_owned()
            }
            Alert::BadCertificate | Alert::HandshakeFailure if !has_identity => format!(
                "the broker ended the handshake ({alert:?}); it probably requires a client certificate \
                 (ssl.keystore.location)"
            ),
            Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::DecryptError
                if has_identity =>
            {
                format!("the broker does not accept this client's certificate ({alert:?})")
            }
            _ => format!("the broker ended the handshake ({alert:?})"),
        },
        rustls::Error::InvalidMessage(_) => {
            format!(
                "the port does not speak TLS: security.protocol should be PLAINTEXT or SASL_PLAINTEXT ({error})"
            )
        }
        other => other.to_string(),
    }
}

fn certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the broker's certificate has expired: {reason}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the broker's certificate is not valid yet: {reason}")
        }
        CertificateError::UnknownIssuer => {
            "the broker's certificate is not signed by an issuer that this client trusts (ssl.truststore.location)"
                .to_owned()
        }
        CertificateError::BadSignature => {
            "the broker's certificate is not signed by an issuer that this client trusts: its issuer has the name \
             of a trusted one, but another key (ssl.truststore.location)"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the broker's certificate is for another name: {reason}")
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the broker presents a CA certificate; it needs one of its own, signed by that CA".to_owned()
        }
        other => format!("the broker's certificate is invalid: {other}"),
    }
}
