//! Stands in for `pkcs12.rs` in a build without the cargo feature `java-keystores`.

use rustls::pki_types::CertificateDer;

use super::settings::Password;
use super::stores::Identity;

const MISSING: &str = "is a PKCS12 store, which this build cannot read (cargo feature java-keystores)";

pub fn identities(_: &[u8], _: &Password) -> Result<Vec<Identity>, String> {
    Err(MISSING.to_owned())
}

pub fn certificates(_: &[u8], _: &Password) -> Result<Vec<CertificateDer<'static>>, String> {
    Err(MISSING.to_owned())
}
