//! Key stores and trust stores of a listener: PEM, PKCS12 and JKS, in files or in the settings
//! (`SslConfigs`, KIP-651). Errors name the setting and the file.

use std::path::{Path, PathBuf};

use ottla_core::config::ConfigError;
pub use ottla_keystore::Identity;
use ottla_keystore::{Fault, STORE_BYTES_MAX, StoreKind, pem};
use rustls::pki_types::CertificateDer;

use super::settings::{Password, SslSettings};

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
            let fault = |fault| store_fault(settings, &KEY_STORE, fault);
            match StoreKind::of(&bytes, is_pem, KEY_STORE.kind).map_err(fault)? {
                StoreKind::Pem => {
                    let text = String::from_utf8_lossy(&bytes);
                    pem_identity(settings, [KEY_STORE.location; 2], [&text; 2])
                }
                kind => store_identities(settings, kind, &bytes),
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
            let fault = |fault| store_fault(settings, &TRUST_STORE, fault);
            let kind = StoreKind::of(&bytes, is_pem, TRUST_STORE.kind).map_err(fault)?;
            if kind == StoreKind::Pem {
                check_no_password(settings, &TRUST_STORE)?;
            }
            let password = settings.password(TRUST_STORE.password);
            let password = password.as_ref().map(Password::reveal);
            ottla_keystore::trusted(kind, &bytes, password)
                .map(Some)
                .map_err(fault)
        }
    }
}

/// Names the setting that a fault is about.
fn store_fault(settings: &SslSettings, names: &Names, fault: Fault) -> ConfigError {
    match fault {
        Fault::Store(problem) => settings.fault(names.location, problem),
        Fault::Password(problem) => settings.secret_fault(names.password, problem),
        Fault::KeyPassword(problem) => settings.secret_fault(KEY_PASSWORD, problem),
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
    let key =
        pem::private_key(key, password.as_ref().map(Password::reveal)).map_err(|error| match error {
            Fault::Store(problem) => fault(key_name, problem),
            error => store_fault(settings, &KEY_STORE, error),
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
    kind: StoreKind,
    bytes: &[u8],
) -> Result<Vec<Identity>, ConfigError> {
    let password = settings.password(KEY_STORE.password).ok_or_else(|| {
        settings.secret_fault(
            KEY_STORE.password,
            format_args!("is not set, but {} is", KEY_STORE.location),
        )
    })?;
    let key_password = settings.password(KEY_PASSWORD);
    let key_password = key_password.as_ref().map(Password::reveal);
    ottla_keystore::identities(kind, bytes, password.reveal(), key_password)
        .map_err(|fault| store_fault(settings, &KEY_STORE, fault))
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

fn is_pem_type(settings: &SslSettings, names: &Names) -> Result<bool, ConfigError> {
    let kind = settings.text(names.kind).unwrap_or("JKS");
    match kind.to_ascii_uppercase().as_str() {
        "PEM" => Ok(true),
        "JKS" | "PKCS12" => Ok(false),
        _ => Err(settings.fault(names.kind, "is not PEM, PKCS12 or JKS")),
    }
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
