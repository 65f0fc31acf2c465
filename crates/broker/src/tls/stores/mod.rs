//! Key stores and trust stores of a listener: PEM, PKCS12 and JKS, in files or in the settings
//! (`SslConfigs`, KIP-651). Errors name the setting and the file.
//!
//! `ssl.keystore.type` distinguishes PEM from the others only. Java opens a PKCS12 store as JKS and
//! the other way round, so the content decides between those two.

use std::path::{Path, PathBuf};

use ottla_core::config::ConfigError;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::pem::{self, KeyFault};
use super::settings::{Password, SslSettings};
use super::{jks, pkcs12};

/// The largest store or PEM file that is read.
const STORE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A private key with its certificate and those that signed it.
#[derive(Debug)]
pub struct Identity {
    /// Its name in the store; empty in PEM.
    pub alias: String,
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// The names of the settings of one of the two stores.
struct Names {
    kind: &'static str,
    location: &'static str,
    password: &'static str,
}

const KEY_STORE: Names = Names {
    kind: "ssl.keystore.type",
    location: "ssl.keystore.location",
    password: "ssl.keystore.password",
};
const TRUST_STORE: Names = Names {
    kind: "ssl.truststore.type",
    location: "ssl.truststore.location",
    password: "ssl.truststore.password",
};
const KEY: &str = "ssl.keystore.key";
const CHAIN: &str = "ssl.keystore.certificate.chain";
const KEY_PASSWORD: &str = "ssl.key.password";
const CERTIFICATES: &str = "ssl.truststore.certificates";

/// What a file begins with.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    Jks,
    Jceks,
    Pkcs12,
    Pem,
    Unknown,
}

impl Content {
    fn of(bytes: &[u8]) -> Content {
        match bytes.first_chunk::<4>() {
            Some(&jks::MAGIC) => Content::Jks,
            Some(&jks::JCEKS_MAGIC) => Content::Jceks,
            // A SEQUENCE.
            Some([0x30, ..]) => Content::Pkcs12,
            _ if pem::is_pem(bytes) => Content::Pem,
            _ => Content::Unknown,
        }
    }
}

/// The files that the settings name, to be looked at for changes.
pub fn files(settings: &SslSettings) -> Vec<PathBuf> {
    let locations = [KEY_STORE.location, TRUST_STORE.location];
    let named = locations.iter().filter_map(|name| settings.text(name));
    named.map(PathBuf::from).collect()
}

/// Reads the listener's own keys and chains: at least one.
pub fn identities(settings: &SslSettings) -> Result<Vec<Identity>, ConfigError> {
    let inline = [KEY, CHAIN].map(|name| settings.text(name));
    let location = settings.text(KEY_STORE.location);
    let is_pem = is_pem_type(settings, &KEY_STORE)?;
    match (inline, location) {
        ([None, None], None) => Err(settings.fault(
            KEY_STORE.location,
            format_args!(
                "is not set, nor is {KEY}: a listener with TLS needs a private key and a certificate"
            ),
        )),
        ([None, None], Some(location)) => {
            let bytes = read(settings, &KEY_STORE, location)?;
            let content = Content::of(&bytes);
            check_type(settings, &KEY_STORE, is_pem, &content)?;
            if content == Content::Pem {
                pem_identity(settings, [KEY_STORE.location; 2], [&text_of(&bytes); 2])
            } else {
                store_identities(settings, &content, &bytes)
            }
        }
        (_, Some(_)) => Err(settings.secret_fault(
            KEY,
            format_args!("and {CHAIN} cannot be set together with {}", KEY_STORE.location),
        )),
        ([Some(key), Some(chain)], None) if is_pem => pem_identity(settings, [KEY, CHAIN], [key, chain]),
        ([Some(_), Some(_)], None) => {
            Err(settings.fault(KEY_STORE.kind, format_args!("must be PEM if {KEY} is set")))
        }
        _ => Err(settings.secret_fault(KEY, format_args!("and {CHAIN} must be set together"))),
    }
}

/// Reads the certificates that clients' certificates must be signed by; `None` when no trust store
/// is set.
pub fn trusted(settings: &SslSettings) -> Result<Option<Vec<CertificateDer<'static>>>, ConfigError> {
    let is_pem = is_pem_type(settings, &TRUST_STORE)?;
    match (settings.text(CERTIFICATES), settings.text(TRUST_STORE.location)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(settings.secret_fault(
            CERTIFICATES,
            format_args!("cannot be set together with {}", TRUST_STORE.location),
        )),
        (Some(text), None) if is_pem => {
            check_no_password(settings, &TRUST_STORE)?;
            let found = pem::certificates(text);
            found
                .map(Some)
                .map_err(|problem| settings.secret_fault(CERTIFICATES, problem))
        }
        (Some(_), None) => Err(settings.fault(
            TRUST_STORE.kind,
            format_args!("must be PEM if {CERTIFICATES} is set"),
        )),
        (None, Some(location)) => {
            let bytes = read(settings, &TRUST_STORE, location)?;
            let found = trusted_in(settings, is_pem, &bytes)?;
            if found.is_empty() {
                return Err(settings.fault(
                    TRUST_STORE.location,
                    "has no trusted certificate; `keytool -importcert` adds one",
                ));
            }
            Ok(Some(found))
        }
    }
}

fn trusted_in(
    settings: &SslSettings,
    is_pem: bool,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let content = Content::of(bytes);
    check_type(settings, &TRUST_STORE, is_pem, &content)?;
    let fault = |problem: String| settings.fault(TRUST_STORE.location, problem);
    let password = settings.password(TRUST_STORE.password);
    match content {
        Content::Pem => {
            check_no_password(settings, &TRUST_STORE)?;
            pem::certificates(&text_of(bytes)).map_err(fault)
        }
        Content::Jks => {
            let entries = jks::read(bytes, password.as_ref())
                .map_err(|error| jks_fault(settings, &TRUST_STORE, error))?;
            // Like Java, a store of keys trusts the certificates of its keys.
            let found = entries.into_iter().filter_map(|entry| match entry.content {
                jks::Content::Certificate(found) => Some(found),
                jks::Content::Key { chain, .. } => chain.into_iter().next(),
            });
            Ok(found.collect())
        }
        _ => {
            // Java would take a store without its password for an empty one.
            let password = password.ok_or_else(|| {
                settings.secret_fault(
                    TRUST_STORE.password,
                    "is not set: without it the certificates of a PKCS12 store cannot be read",
                )
            })?;
            let keys = pkcs12::identities(bytes, &password).map_err(fault)?;
            let of_keys = keys
                .into_iter()
                .filter_map(|found| found.chain.into_iter().next());
            let mut found = pkcs12::certificates(bytes, &password).map_err(fault)?;
            found.extend(of_keys);
            Ok(found)
        }
    }
}

fn pem_identity(
    settings: &SslSettings,
    [key_name, chain_name]: [&str; 2],
    [key, chain]: [&str; 2],
) -> Result<Vec<Identity>, ConfigError> {
    check_no_password(settings, &KEY_STORE)?;
    let fault = |name: &str, problem: String| match name == KEY_STORE.location {
        true => settings.fault(name, problem),
        false => settings.secret_fault(name, problem),
    };
    let password = settings.password(KEY_PASSWORD);
    if password.is_some() && !pem::has_encrypted_key(key) {
        tracing::warn!(
            listener = %settings.listener(),
            "ssl.key.password is set, but the private key is not encrypted; Apache Kafka refuses this"
        );
    }
    let key = pem::private_key(key, password.as_ref()).map_err(|error| match error {
        KeyFault::Key(problem) => fault(key_name, problem),
        KeyFault::Password(problem) => settings.secret_fault(KEY_PASSWORD, problem),
    })?;
    let chain = pem::certificates(chain).map_err(|problem| fault(chain_name, problem))?;
    Ok(vec![Identity {
        alias: String::new(),
        chain,
        key,
    }])
}

fn store_identities(
    settings: &SslSettings,
    content: &Content,
    bytes: &[u8],
) -> Result<Vec<Identity>, ConfigError> {
    let password = settings.password(KEY_STORE.password).ok_or_else(|| {
        settings.secret_fault(
            KEY_STORE.password,
            format_args!("is not set, but {} is", KEY_STORE.location),
        )
    })?;
    let key_password = settings
        .password(KEY_PASSWORD)
        .unwrap_or_else(|| password.clone());
    let mut found = match content {
        Content::Jks => jks_identities(settings, bytes, &password, &key_password)?,
        _ if key_password != password => {
            return Err(settings.secret_fault(
                KEY_PASSWORD,
                format_args!(
                    "must equal {}: a key with a password of its own in a PKCS12 store is not supported",
                    KEY_STORE.password
                ),
            ));
        }
        _ => pkcs12::identities(bytes, &password)
            .map_err(|problem| settings.fault(KEY_STORE.location, problem))?,
    };
    found.sort_by(|left, right| left.alias.cmp(&right.alias));
    match found.iter().find(|identity| identity.chain.is_empty()) {
        None if found.is_empty() => {
            Err(settings.fault(KEY_STORE.location, "has no private key with a certificate"))
        }
        None => Ok(found),
        Some(identity) => Err(settings.fault(
            KEY_STORE.location,
            format_args!("has no certificate for the key {}", identity.alias),
        )),
    }
}

fn jks_identities(
    settings: &SslSettings,
    bytes: &[u8],
    password: &Password,
    key_password: &Password,
) -> Result<Vec<Identity>, ConfigError> {
    let entries = jks::read(bytes, Some(password)).map_err(|error| jks_fault(settings, &KEY_STORE, error))?;
    let keys = entries.into_iter().filter_map(|entry| match entry.content {
        jks::Content::Key { encrypted, chain } => Some((entry.alias, encrypted, chain)),
        jks::Content::Certificate(_) => None,
    });
    keys.map(|(alias, encrypted, chain)| {
        let key = jks::decrypt(&encrypted, key_password).map_err(|error| match error {
            jks::Fault::WrongPassword => settings.secret_fault(
                KEY_PASSWORD,
                format_args!("does not open the key {alias} of {}", KEY_STORE.location),
            ),
            jks::Fault::Malformed => settings.fault(
                KEY_STORE.location,
                format_args!("has a key {alias} that cannot be read"),
            ),
        })?;
        Ok(Identity { alias, chain, key })
    })
    .collect()
}

fn jks_fault(settings: &SslSettings, names: &Names, fault: jks::Fault) -> ConfigError {
    match fault {
        jks::Fault::Malformed => settings.fault(names.location, "is a JKS store that cannot be read"),
        jks::Fault::WrongPassword => settings.fault(
            names.location,
            format_args!(
                "is a JKS store that {} does not open, or it is damaged",
                names.password
            ),
        ),
    }
}

fn read(settings: &SslSettings, names: &Names, location: &str) -> Result<Vec<u8>, ConfigError> {
    let path = Path::new(location);
    let fault =
        |error: std::io::Error| settings.fault(names.location, format_args!("cannot be read: {error}"));
    let bytes = std::fs::metadata(path).map_err(fault)?.len();
    if bytes > STORE_BYTES_MAX {
        return Err(settings.fault(
            names.location,
            format_args!("has {bytes} bytes, more than the {STORE_BYTES_MAX} that a store may have"),
        ));
    }
    std::fs::read(path).map_err(fault)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_pem_type(settings: &SslSettings, names: &Names) -> Result<bool, ConfigError> {
    let kind = settings.text(names.kind).unwrap_or("JKS");
    match kind.to_ascii_uppercase().as_str() {
        "PEM" => Ok(true),
        "JKS" | "PKCS12" => Ok(false),
        _ => Err(settings.fault(names.kind, "is not PEM, PKCS12 or JKS")),
    }
}

/// Compares what the file is with what its type says.
fn check_type(
    settings: &SslSettings,
    names: &Names,
    is_pem: bool,
    content: &Content,
) -> Result<(), ConfigError> {
    let problem = match content {
        Content::Pem if is_pem => return Ok(()),
        Content::Jks | Content::Pkcs12 if !is_pem => return Ok(()),
        Content::Pem => format!("is in PEM form: set {} to PEM", names.kind),
        Content::Jks | Content::Pkcs12 => format!("is not in PEM form: set {} to JKS or PKCS12", names.kind),
        Content::Jceks => {
            "is a JCEKS store, which is not supported; `keytool -importkeystore` makes a PKCS12 store of it"
                .to_owned()
        }
        Content::Unknown => "is neither PEM nor a PKCS12 or JKS store".to_owned(),
    };
    Err(settings.fault(names.location, problem))
}

fn check_no_password(settings: &SslSettings, names: &Names) -> Result<(), ConfigError> {
    match settings.password(names.password) {
        None => Ok(()),
        Some(_) => Err(settings.secret_fault(
            names.password,
            "cannot be set with PEM; the password of a private key is ssl.key.password",
        )),
    }
}

#[cfg(test)]
mod tests;
