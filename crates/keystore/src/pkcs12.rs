//! PKCS#12 stores (RFC 7292), which `keytool` makes since Java 9, and `openssl pkcs12`.

use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Identity;

/// Reads the private keys with their chains, in the order of their aliases.
///
/// - Errors: what is wrong, to be said behind the name of the setting.
pub fn identities(store: &[u8], password: &str) -> Result<Vec<Identity>, String> {
    let store = open(store, password, Pkcs12ImportPolicy::Strict)?;
    let entries = store.entries().filter_map(|(alias, entry)| match entry {
        KeyStoreEntry::PrivateKeyChain(chain) => Some((alias, chain)),
        _ => None,
    });
    let identities = entries.map(|(alias, chain)| Identity {
        alias: alias.clone(),
        chain: chain
            .certs()
            .iter()
            .map(|found| CertificateDer::from(found.as_der().to_vec()))
            .collect(),
        key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(chain.key().as_der().to_vec())),
    });
    Ok(identities.collect())
}

/// Reads the trusted certificates.
pub fn certificates(store: &[u8], password: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let store = open(store, password, Pkcs12ImportPolicy::Strict)?;
    let entries = store.entries().filter_map(|(_, entry)| match entry {
        KeyStoreEntry::Certificate(found) => Some(CertificateDer::from(found.as_der().to_vec())),
        _ => None,
    });
    Ok(entries.collect())
}

fn open(store: &[u8], password: &str, policy: Pkcs12ImportPolicy) -> Result<KeyStore, String> {
    KeyStore::from_pkcs12(store, password, policy).map_err(|error| match error {
        p12_keystore::error::Error::MacError(_) => {
            "is a PKCS12 store that its password does not open".to_owned()
        }
        error => format!("is not a PKCS12 store that can be read: {error}"),
    })
}
