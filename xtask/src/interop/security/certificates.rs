//! Certificates of one run: an authority, valid and invalid brokers, clients.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority whose certificate is in a file.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The PEM trust store with its certificate.
    pub file: PathBuf,
}

impl Authority {
    pub fn create(folder: &Path, name: &str) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        let file = folder.join(format!("{name}.pem"));
        write(&file, &params.self_signed(&key)?.pem())?;
        Ok(Authority {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            file,
        })
    }

    /// Creates a PEM key store for these names, with private key and certificate in one file.
    pub fn sign(
        &self,
        file: &str,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<PathBuf> {
        self.sign_key(file, &KeyPair::generate()?, names, change)
    }

    /// The same for a key of any kind.
    pub fn sign_key(
        &self,
        file: &str,
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Result<PathBuf> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer)?;
        let path = self.folder.join(format!("{file}.pem"));
        write(&path, &format!("{}{}", key.serialize_pem(), certificate.pem()))?;
        Ok(path)
    }
}

pub fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 1, 1);
}

fn write(path: &Path, pem: &str) -> Result<()> {
    fs::write(path, pem).with_context(|| format!("writing {}", path.display()))
}
