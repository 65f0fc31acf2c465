//! Reads certificates and keys from where the settings say: PEM, PKCS12 and JKS.

use std::path::Path;

use ottla_keystore::{Fault, STORE_BYTES_MAX, StoreKind, pem};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Password, StoreSource, TlsIdentity};
use crate::error::Error;

type Chain = Vec<CertificateDer<'static>>;

/// The names of the settings of one store.
struct Names {
    kind: &'static str,
    location: &'static str,
    password: &'static str,
    inline: &'static str,
}

const TRUST: Names = Names {
    kind: "ssl.truststore.type",
    location: "ssl.truststore.location",
    password: "ssl.truststore.password",
    inline: "ssl.truststore.certificates",
};
const CHAIN: Names = Names {
    kind: "ssl.keystore.type",
    location: "ssl.keystore.location",
    password: "ssl.keystore.password",
    inline: "ssl.keystore.certificate.chain",
};
const KEY: Names = Names {
    inline: "ssl.keystore.key",
    ..CHAIN
};

impl Names {
    fn of(&self, source: &StoreSource) -> &'static str {
        match source {
            StoreSource::Inline(_) => self.inline,
            _ => self.location,
        }
    }

    /// Names the setting that a fault is about, and the file.
    fn error(&self, source: &StoreSource, fault: Fault) -> Error {
        let (setting, problem) = match fault {
            Fault::Store(problem) => (self.of(source), problem),
            Fault::Password(problem) => (self.password, problem),
            Fault::KeyPassword(problem) => ("ssl.key.password", problem),
        };
        let place = match source {
            StoreSource::Inline(_) => String::new(),
            StoreSource::Pem(path) | StoreSource::JavaStore { path, .. } => format!(" ({})", path.display()),
        };
        config(setting, format!("{setting}{place} {problem}"))
    }
}

/// The certificates, and the name of the setting that they are from.
///
/// - Errors: `Config`; also where there is none.
pub(super) fn trusted(source: &StoreSource) -> Result<(&'static str, Chain), Error> {
    let found = match source {
        StoreSource::JavaStore { path, password } => {
            let password = password.as_ref().map(Password::reveal);
            java_store(&TRUST, path).and_then(|(kind, bytes)| ottla_keystore::trusted(kind, &bytes, password))
        }
        source => text(&TRUST, source).and_then(|text| pem::certificates(&text).map_err(Fault::Store)),
    };
    let found = found.map_err(|fault| TRUST.error(source, fault))?;
    Ok((TRUST.of(source), found))
}

/// This client's certificate with those that signed it, and its key.
///
/// - Errors: `Config`.
pub(super) fn identity(identity: &TlsIdentity) -> Result<(Chain, PrivateKeyDer<'static>), Error> {
    let TlsIdentity {
        chain,
        key,
        key_password,
        ..
    } = identity;
    let key_password = key_password.as_ref().map(Password::reveal);
    if let StoreSource::JavaStore { path, password } = key {
        let first = java_store(&KEY, path).and_then(|(kind, bytes)| {
            let missing = || Fault::Password("is not set: a store with a private key needs it".to_owned());
            let password = password.as_ref().ok_or_else(missing)?;
            ottla_keystore::identities(kind, &bytes, password.reveal(), key_password)
        });
        let first = first.map_err(|fault| KEY.error(key, fault))?.swap_remove(0);
        return Ok((first.chain, first.key));
    }
    let certificates = text(&CHAIN, chain).and_then(|text| pem::certificates(&text).map_err(Fault::Store));
    let private = text(&KEY, key).and_then(|text| pem::private_key(&text, key_password));
    Ok((
        certificates.map_err(|fault| CHAIN.error(chain, fault))?,
        private.map_err(|fault| KEY.error(key, fault))?,
    ))
}

fn java_store(names: &Names, path: &Path) -> Result<(StoreKind, Vec<u8>), Fault> {
    let bytes = read(path)?;
    Ok((StoreKind::of(&bytes, false, names.kind)?, bytes))
}

/// The text of a PEM file, or of the settings.
fn text(names: &Names, source: &StoreSource) -> Result<String, Fault> {
    match source {
        StoreSource::Inline(text) => Ok(text.reveal().to_owned()),
        StoreSource::Pem(path) | StoreSource::JavaStore { path, .. } => {
            let bytes = read(path)?;
            StoreKind::of(&bytes, true, names.kind)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let failed = |error: std::io::Error| Fault::Store(format!("cannot be read: {error}"));
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > STORE_BYTES_MAX {
        return Err(Fault::Store(format!(
            "has {bytes} bytes, more than the {STORE_BYTES_MAX} that a store may have"
        )));
    }
    std::fs::read(path).map_err(failed)
}

pub(super) fn config(key: &str, message: String) -> Error {
    Error::Config {
        key: key.into(),
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by keytool of OpenJDK 17 and OpenSSL 3.0; the password of all is `changeit`.
    fn made_elsewhere(name: &str, password: Option<&str>) -> StoreSource {
        StoreSource::JavaStore {
            path: format!(
                "{}/../keystore/tests/keystores/{name}",
                env!("CARGO_MANIFEST_DIR")
            )
            .into(),
            password: password.map(Password::new),
        }
    }

    fn leaf() -> Chain {
        let StoreSource::JavaStore { path, .. } = made_elsewhere("leaf.pem", None) else {
            unreachable!("made as one")
        };
        trusted(&StoreSource::Pem(path)).unwrap().1
    }

    fn message<T>(result: Result<T, Error>) -> String {
        result.err().expect("refused").to_string()
    }

    #[test]
    fn trust_stores_of_java_are_read() {
        for name in ["trust.jks", "trust.p12", "keytool.p12"] {
            let found = trusted(&made_elsewhere(name, Some("changeit"))).unwrap();
            assert_eq!(found, ("ssl.truststore.location", leaf()), "{name}");
        }
        // As in Java, a JKS store shows its certificates without its password.
        assert_eq!(trusted(&made_elsewhere("trust.jks", None)).unwrap().1, leaf());
        let said = message(trusted(&made_elsewhere("trust.p12", None)));
        assert!(
            said.contains("ssl.truststore.password") && said.contains("is not set"),
            "{said}"
        );
        let said = message(trusted(&made_elsewhere("trust.jks", Some("s3cret"))));
        assert!(
            said.contains("does not open") && !said.contains("s3cret"),
            "{said}"
        );
        let said = message(trusted(&made_elsewhere("leaf.pem", None)));
        assert!(said.contains("set ssl.truststore.type to PEM"), "{said}");
    }

    #[test]
    fn key_stores_of_java_are_read() {
        let of = |name: &str, password: Option<&str>, key_password: Option<&str>| {
            let store = made_elsewhere(name, password);
            identity(&TlsIdentity {
                chain: store.clone(),
                key: store,
                key_password: key_password.map(Password::new),
            })
        };
        for (name, key_password) in [
            ("keytool.jks", Some("secret42")),
            ("keytool.p12", None),
            ("openssl.p12", None),
            ("openssl-legacy.p12", None),
        ] {
            let (chain, key) = of(name, Some("changeit"), key_password).unwrap();
            assert_eq!(chain, leaf(), "{name}");
            let expected = read(Path::new(&format!(
                "{}/../keystore/tests/keystores/key.der",
                env!("CARGO_MANIFEST_DIR")
            )));
            assert_eq!(key.secret_der(), expected.unwrap(), "{name}");
        }
        for (password, key_password, part) in [
            (None, None, "ssl.keystore.password"),
            (Some("wrong"), None, "ssl.keystore.location"),
            (Some("changeit"), None, "ssl.key.password"),
        ] {
            let said = message(of("keytool.jks", password, key_password));
            assert!(said.contains(part) && said.contains("keytool.jks"), "{said}");
        }
    }

    #[test]
    fn faults_name_the_setting_and_not_the_text() {
        let inline = StoreSource::Inline(Password::new("s3cret without any section"));
        let said = message(identity(&TlsIdentity {
            chain: inline.clone(),
            key: inline,
            key_password: None,
        }));
        assert_eq!(
            said,
            "ssl.keystore.certificate.chain has no certificate in PEM form"
        );
        let said = message(trusted(&StoreSource::Pem("does/not/exist.pem".into())));
        assert!(
            said.starts_with("ssl.truststore.location (does/not/exist.pem) cannot be read: "),
            "{said}"
        );
    }
}
