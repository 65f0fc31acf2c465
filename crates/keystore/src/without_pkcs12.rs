//! Stands in for `pkcs12.rs` in a build without the cargo feature `pkcs12`.

use rustls_pki_types::CertificateDer;

use crate::Identity;

const MISSING: &str = "is a PKCS12 store, which this build cannot read (cargo feature java-keystores)";

pub fn identities(_: &[u8], _: &str) -> Result<Vec<Identity>, String> {
    Err(MISSING.to_owned())
}

pub fn certificates(_: &[u8], _: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    Err(MISSING.to_owned())
}
