//! Identity and trust: `security.protocol`, `sasl.*` and `ssl.*`, checked and typed.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::jaas;
use super::oauth::{self, OauthSettings};
use super::settings::{Settings, config_error, invalid};
use crate::error::{Error, Feature};

/// With neither field set the protocol is PLAINTEXT: neither encrypted nor authenticated.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Security {
    /// `None`: the client does not authenticate with SASL.
    pub sasl: Option<SaslSettings>,
    /// `None`: plaintext.
    pub tls: Option<TlsSettings>,
}

/// A secret text that no `Debug` and no error shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Password {
    /// Takes the secret.
    pub fn new(text: &str) -> Password {
        Password(text.into())
    }

    /// The only access to the text, so that its uses can be found.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// `sasl.mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// RFC 4616; the password itself is sent, so use it with TLS only.
    Plain,
    /// RFC 7677.
    ScramSha256,
    /// RFC 5802 with SHA-512.
    ScramSha512,
    /// RFC 7628; the token itself is sent, so use it with TLS only.
    OauthBearer,
}

impl SaslMechanism {
    /// Every mechanism that this client speaks.
    pub const ALL: [SaslMechanism; 4] = [
        SaslMechanism::Plain,
        SaslMechanism::ScramSha256,
        SaslMechanism::ScramSha512,
        SaslMechanism::OauthBearer,
    ];

    /// The name used in SaslHandshake.
    pub fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
            SaslMechanism::OauthBearer => "OAUTHBEARER",
        }
    }

    fn is_scram(self) -> bool {
        matches!(self, SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512)
    }

    /// The class of `sasl.jaas.config`.
    fn login_module(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                "org.apache.kafka.common.security.scram.ScramLoginModule"
            }
            SaslMechanism::OauthBearer => {
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            }
        }
    }
}

/// How the client authenticates.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SaslSettings {
    /// `sasl.mechanism`.
    pub mechanism: SaslMechanism,
    /// From `sasl.jaas.config` or `sasl.username`; empty only with OAUTHBEARER.
    pub username: Arc<str>,
    /// From `sasl.jaas.config` or `sasl.password`; empty with OAUTHBEARER.
    pub password: Password,
    /// Of OAUTHBEARER.
    pub oauth: Option<OauthSettings>,
}

/// Where certificates and keys come from. Files are read when the client is created.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreSource {
    /// A PEM file.
    Pem(PathBuf),
    /// The PEM text itself, in the settings.
    Inline(Password),
    /// A PKCS12 or JKS store, which its content tells apart.
    JavaStore {
        /// The file.
        path: PathBuf,
        /// Of the store; a trust store in JKS needs none.
        password: Option<Password>,
    },
}

/// This client's certificate chain and private key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsIdentity {
    /// The client's certificate first.
    pub chain: StoreSource,
    /// PKCS#8, PKCS#1 or SEC1; of several in a store the first by name.
    pub key: StoreSource,
    /// Of an encrypted key; `None`: that of the store.
    pub key_password: Option<Password>,
}

/// `ssl.enabled.protocols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsVersions {
    /// TLSv1.2.
    pub v1_2: bool,
    /// TLSv1.3.
    pub v1_3: bool,
}

/// The `ssl.*` settings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// `None`: the system's trust store.
    pub trust: Option<StoreSource>,
    /// `None`: the client has no certificate.
    pub identity: Option<TlsIdentity>,
    /// Whether the certificate must match the host name of the connection.
    pub checks_name: bool,
    /// The versions that are offered.
    pub versions: TlsVersions,
    /// By their IANA names; empty: all that are safe.
    pub cipher_suites: Vec<String>,
}

impl Security {
    pub(super) fn new(settings: &Settings) -> Result<Security, Error> {
        let protocol = settings
            .text("security.protocol")
            .unwrap_or_default()
            .to_ascii_uppercase();
        let is_tls = protocol.ends_with("SSL");
        if is_tls {
            settings.needs(Feature::Tls, "security.protocol", &protocol)?;
        }
        oauth::check_classes(settings)?;
        Ok(Security {
            sasl: protocol
                .starts_with("SASL_")
                .then(|| sasl(settings))
                .transpose()?,
            tls: is_tls.then(|| tls(settings)).transpose()?,
        })
    }
}

fn sasl(settings: &Settings) -> Result<SaslSettings, Error> {
    const KEY: &str = "sasl.mechanism";
    let name = settings.text(KEY).unwrap_or_default();
    if name.is_empty() {
        let why = "When the security.protocol configuration enables SASL, mechanism must be non-null and non-empty string.";
        return Err(invalid(KEY, "null", why));
    }
    let Some(mechanism) = SaslMechanism::ALL.into_iter().find(|known| known.name() == name) else {
        let why = "this client speaks PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER";
        return Err(invalid(KEY, name, why));
    };
    if mechanism == SaslMechanism::OauthBearer {
        return Ok(SaslSettings {
            mechanism,
            username: "".into(),
            password: Password::new(""),
            oauth: Some(OauthSettings::new(settings)?),
        });
    }
    if mechanism.is_scram() {
        settings.needs(Feature::Tls, KEY, name)?;
    }
    let (username, password) = credentials(settings, mechanism)?;
    if username.is_empty() {
        return Err(config_error("sasl.username", "the SASL user name is empty"));
    }
    Ok(SaslSettings {
        mechanism,
        username: username.into(),
        password: Password::new(&password),
        oauth: None,
    })
}

/// Reads an entry of JAAS for the mechanism.
pub(super) fn login(text: &str, mechanism: SaslMechanism) -> Result<jaas::Login, Error> {
    const KEY: &str = "sasl.jaas.config";
    let login = jaas::parse(text).map_err(|why| invalid(KEY, "[hidden]", why))?;
    let expected = mechanism.login_module();
    if login.module == expected {
        return Ok(login);
    }
    let why = format!(
        "{} needs the login module {expected}, not {}",
        mechanism.name(),
        login.module
    );
    Err(invalid(KEY, "[hidden]", &why))
}

fn credentials(settings: &Settings, mechanism: SaslMechanism) -> Result<(String, String), Error> {
    const KEY: &str = "sasl.jaas.config";
    let Some(text) = settings.filled(KEY) else {
        return match (settings.filled("sasl.username"), settings.text("sasl.password")) {
            (Some(username), Some(password)) => Ok((username.to_owned(), password.to_owned())),
            _ => Err(config_error(
                KEY,
                format!(
                    "{} needs sasl.jaas.config, or sasl.username and sasl.password",
                    mechanism.name()
                ),
            )),
        };
    };
    for key in ["sasl.username", "sasl.password"] {
        if settings.is_written(key) {
            return Err(config_error(
                key,
                format!("{key} cannot be set together with {KEY}"),
            ));
        }
    }
    let login = login(text, mechanism)?;
    if login
        .options
        .get("tokenauth")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        return Err(invalid(
            KEY,
            "[hidden]",
            "delegation tokens (tokenauth) are not supported",
        ));
    }
    let option = |name: &str| {
        let missing = || {
            invalid(
                KEY,
                "[hidden]",
                &format!("the login module's option {name} is missing"),
            )
        };
        login.options.get(name).cloned().ok_or_else(missing)
    };
    Ok((option("username")?, option("password")?))
}

fn tls(settings: &Settings) -> Result<TlsSettings, Error> {
    let algorithm = settings
        .text("ssl.endpoint.identification.algorithm")
        .unwrap_or_default();
    if !algorithm.is_empty() && !algorithm.eq_ignore_ascii_case("https") {
        let why = "https checks the name, an empty value does not; there is no other algorithm";
        return Err(invalid("ssl.endpoint.identification.algorithm", algorithm, why));
    }
    Ok(TlsSettings {
        trust: trust(settings)?,
        identity: identity(settings)?,
        checks_name: !algorithm.is_empty(),
        versions: versions(settings.list("ssl.enabled.protocols"))?,
        cipher_suites: settings.list("ssl.cipher.suites").to_vec(),
    })
}

fn trust(settings: &Settings) -> Result<Option<StoreSource>, Error> {
    let location = settings.filled("ssl.truststore.location");
    let certificates = settings.filled("ssl.truststore.certificates");
    match (location, certificates) {
        (Some(_), Some(_)) => Err(config_error(
            "ssl.truststore.certificates",
            "Both SSL trust store location and separate trust certificates are specified.",
        )),
        (Some(path), None) => store(settings, "ssl.truststore", path).map(Some),
        (None, Some(text)) => inline(settings, "ssl.truststore", text).map(Some),
        (None, None) => Ok(None),
    }
}

fn identity(settings: &Settings) -> Result<Option<TlsIdentity>, Error> {
    let location = settings.filled("ssl.keystore.location");
    let key = settings.filled("ssl.keystore.key");
    let chain = settings.filled("ssl.keystore.certificate.chain");
    if location.is_none() && key.is_none() && chain.is_none() {
        return Ok(None);
    }
    let (chain, key) = match (location, chain, key) {
        (Some(path), None, None) => {
            let store = store(settings, "ssl.keystore", path)?;
            (store.clone(), store)
        }
        (None, Some(chain), Some(key)) => {
            let inline = |text| inline(settings, "ssl.keystore", text);
            (inline(chain)?, inline(key)?)
        }
        (Some(_), _, _) => {
            let message = "Both SSL key store location and separate private key are specified.";
            return Err(config_error("ssl.keystore.location", message));
        }
        (None, None, _) => {
            let message = "SSL private key is specified, but certificate chain is not specified.";
            return Err(config_error("ssl.keystore.certificate.chain", message));
        }
        (None, _, None) => {
            let message = "SSL certificate chain is specified, but private key is not specified";
            return Err(config_error("ssl.keystore.key", message));
        }
    };
    Ok(Some(TlsIdentity {
        chain,
        key,
        key_password: settings.filled("ssl.key.password").map(Password::new),
    }))
}

/// The file at `path`: a PEM file, or a store with its password.
///
/// - `prefix`: of the settings `.type` and `.password`.
fn store(settings: &Settings, prefix: &str, path: &str) -> Result<StoreSource, Error> {
    let key = format!("{prefix}.password");
    let password = settings.filled(&key).map(Password::new);
    match (is_pem(settings, prefix)?, password) {
        (true, None) => Ok(StoreSource::Pem(path.into())),
        (true, Some(_)) => Err(config_error(
            &key,
            format!("{key} cannot be set with PEM; the password of a private key is ssl.key.password"),
        )),
        (false, password) => Ok(StoreSource::JavaStore {
            path: path.into(),
            password,
        }),
    }
}

fn inline(settings: &Settings, prefix: &str, text: &str) -> Result<StoreSource, Error> {
    if is_pem(settings, prefix)? {
        return Ok(StoreSource::Inline(Password::new(text)));
    }
    let key = format!("{prefix}.type");
    let message = format!("{key} must be PEM for certificates and keys in the settings");
    Err(config_error(&key, message))
}

fn is_pem(settings: &Settings, prefix: &str) -> Result<bool, Error> {
    let key = format!("{prefix}.type");
    let kind = settings.text(&key).unwrap_or_default();
    match kind.to_ascii_uppercase().as_str() {
        "PEM" => Ok(true),
        "JKS" | "PKCS12" => Ok(false),
        _ => Err(invalid(&key, kind, "is not PEM, PKCS12 or JKS")),
    }
}

fn versions(words: &[String]) -> Result<TlsVersions, Error> {
    const KEY: &str = "ssl.enabled.protocols";
    let mut versions = TlsVersions {
        v1_2: false,
        v1_3: false,
    };
    for word in words {
        match word.as_str() {
            "TLSv1.2" => versions.v1_2 = true,
            "TLSv1.3" => versions.v1_3 = true,
            other => return Err(invalid(KEY, other, "this client speaks TLSv1.2 and TLSv1.3")),
        }
    }
    // As in Java, where an empty list leaves the choice to the engine.
    if words.is_empty() {
        versions = TlsVersions {
            v1_2: true,
            v1_3: true,
        };
    }
    Ok(versions)
}
