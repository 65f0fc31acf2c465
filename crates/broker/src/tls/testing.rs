//! Certificates, stores and settings for the tests of this module.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

pub use ottla_keystore::testing::{JksWriter, element};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType};

use super::settings::SslSettings;

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

    /// A certificate of the subject `CN=name`.
    pub fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        Signed {
            certificate: params.signed_by(&key, &self.issuer).unwrap(),
            key,
        }
    }
}

impl Signed {
    pub fn pem(&self) -> String {
        format!("{}{}", self.key.serialize_pem(), self.certificate.pem())
    }
}

pub fn with_names(names: &[&str]) -> impl FnOnce(&mut CertificateParams) {
    let names: Vec<SanType> = names
        .iter()
        .map(|name| SanType::DnsName((*name).try_into().unwrap()))
        .collect();
    move |params| params.subject_alt_names = names
}

/// The settings of a listener `OUTSIDE`.
pub fn settings(lines: &[(&str, &str)]) -> SslSettings {
    let properties = lines
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    SslSettings::of_listener(&properties, &"OUTSIDE".into())
}

/// Files in a directory of their own.
pub struct Files(PathBuf);

impl Files {
    pub fn new() -> Files {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ottla-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Files(path)
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // A directory that stays is no failure of a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
