//! Key stores and trust stores: PEM (KIP-651), PKCS12, and Java's own JKS. From the bytes of a
//! file to certificates and keys; settings and their names stay with the callers.

pub mod pem;
pub mod jks;
#[cfg(feature = "pkcs12")]
mod pkcs12;
#[cfg(not(feature = "pkcs12"))]
#[path = "without_pkcs12.rs"]
mod pkcs12;
pub mod der;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The largest store or PEM file that is read.
pub const STORE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A private key with its certificate and those that signed it.
#[derive(Debug)]
pub struct Identity {
    /// Its name in the store; empty in PEM.
    pub alias: String,
    /// The certificate of the key first.
    pub chain: Vec<CertificateDer<'static>>,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: PrivateKeyDer<'static>,
}

/// What is wrong, to be said behind the name of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// About the store.
    Store(String),
    /// About the store's password.
    Password(String),
    /// About the password of a private key.
    KeyPassword(String),
}

/// What a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Java's own format.
    Jks,
    /// RFC 7292.
    Pkcs12,
    /// RFC 7468.
    Pem,
}

impl StoreKind {
    /// Decides by the content: Java opens a PKCS12 store as JKS and the other way round, and a
    /// setting's type distinguishes PEM from the others only.
    ///
    /// - `is_pem`: whether the setting says PEM.
    /// - `setting`: its name, for the text.
    pub fn of(bytes: &[u8], is_pem: bool, setting: &str) -> Result<StoreKind, Fault> {
        let found = match bytes.first_chunk::<4>() {
            Some(&jks::MAGIC) => Some(StoreKind::Jks),
            Some(&jks::JCEKS_MAGIC) => {
                let problem = "is a JCEKS store, which is not supported; `keytool -importkeystore` makes a PKCS12 \
                               store of it";
                return Err(Fault::Store(problem.to_owned()));
            }
            // A SEQUENCE.
            Some([0x30, ..]) => Some(StoreKind::Pkcs12),
            _ => pem::is_pem(bytes).then_some(StoreKind::Pem),
        };
        let problem = match found {
            Some(StoreKind::Pem) if !is_pem => format!("is in PEM form: set {setting} to PEM"),
            Some(StoreKind::Jks | StoreKind::Pkcs12) if is_pem => {
                format!("is not in PEM form: set {setting} to JKS or PKCS12")
            }
            Some(kind) => return Ok(kind),
            None => "is neither PEM nor a PKCS12 or JKS store".to_owned(),
        };
        Err(Fault::Store(problem))
    }
}

/// Reads the trusted certificates of a JKS or PKCS12 store. Like Java, a store of keys trusts the
/// certificates of its keys.
///
/// - Errors: also where there is none.
pub fn trusted(
    kind: StoreKind,
    bytes: &[u8],
    password: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let found: Vec<CertificateDer<'static>> = match kind {
        StoreKind::Pem => pem::certificates(&String::from_utf8_lossy(bytes)).map_err(Fault::Store)?,
        StoreKind::Jks => {
            let entries = jks::read(bytes, password).map_err(jks_fault)?;
            let certificates = entries.into_iter().filter_map(|entry| match entry.content {
                jks::Content::Certificate(found) => Some(found),
                jks::Content::Key { chain, .. } => chain.into_iter().next(),
            });
            certificates.collect()
        }
        StoreKind::Pkcs12 => {
            // Java would take a store without its password for an empty one.
            let password = password.ok_or_else(|| {
                let problem = "is not set: without it the certificates of a PKCS12 store cannot be read";
                Fault::Password(problem.to_owned())
            })?;
            let mut found = pkcs12::certificates(bytes, password).map_err(Fault::Store)?;
            let keys = pkcs12::identities(bytes, password).map_err(Fault::Store)?;
            found.extend(keys.into_iter().filter_map(|key| key.chain.into_iter().next()));
            found
        }
    };
    if found.is_empty() {
        let problem = "has no trusted certificate; `keytool -importcert` adds one";
        return Err(Fault::Store(problem.to_owned()));
    }
    Ok(found)
}

/// Reads the private keys of a JKS or PKCS12 store with their chains, in the order of their names.
///
/// - `key_password`: `None`: that of the store.
/// - Errors: also where there is none, or one without a certificate.
pub fn identities(
    kind: StoreKind,
    bytes: &[u8],
    password: &str,
    key_password: Option<&str>,
) -> Result<Vec<Identity>, Fault> {
    let key_password = key_password.unwrap_or(password);
    let mut found = match kind {
        StoreKind::Jks => jks_identities(bytes, password, key_password)?,
        _ if key_password != password => {
            let problem = "must equal the password of the store: a key with a password of its own in a PKCS12 store is \
                           not supported";
            return Err(Fault::KeyPassword(problem.to_owned()));
        }
        _ => pkcs12::identities(bytes, password).map_err(Fault::Store)?,
    };
    found.sort_by(|left, right| left.alias.cmp(&right.alias));
    match found.iter().find(|identity| identity.chain.is_empty()) {
        None if found.is_empty() => Err(Fault::Store("has no private key with a certificate".to_owned())),
        None => Ok(found),
        Some(identity) => Err(Fault::Store(format!(
            "has no certificate for the key {}",
            identity.alias
        ))),
    }
}

fn jks_identities(bytes: &[u8], password: &str, key_password: &str) -> Result<Vec<Identity>, Fault> {
    let entries = jks::read(bytes, Some(password)).map_err(jks_fault)?;
    let keys = entries.into_iter().filter_map(|entry| match entry.content {
        jks::Content::Key { encrypted, chain } => Some((entry.alias, encrypted, chain)),
        jks::Content::Certificate(_) => None,
    });
    keys.map(|(alias, encrypted, chain)| {
        let key = jks::decrypt(&encrypted, key_password).map_err(|error| match error {
            jks::Fault::WrongPassword => Fault::KeyPassword(format!("does not open the key {alias}")),
            jks::Fault::Malformed => Fault::Store(format!("has a key {alias} that cannot be read")),
        })?;
        Ok(Identity { alias, chain, key })
    })
    .collect()
}

fn jks_fault(fault: jks::Fault) -> Fault {
    Fault::Store(match fault {
        jks::Fault::Malformed => "is a JKS store that cannot be read".to_owned(),
        jks::Fault::WrongPassword => {
            "is a JKS store that its password does not open, or it is damaged".to_owned()
        }
    })
}
