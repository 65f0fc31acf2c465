//! What one listener with TLS shows to its clients: replaced as a whole when its files change, for
//! new connections only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_core::config::ConfigError;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, UnixTime};
use tracing::warn;

use super::certificate::Certificate;
use super::config::{Loaded, TlsSettings};
use super::file_stamp::{FileStamp, stamp};
use super::settings::SslSettings;
use super::stores;

/// One listener's TLS.
#[derive(Debug)]
pub struct TlsListener {
    name: Arc<str>,
    has_sasl: bool,
    current: Mutex<Arc<Current>>,
    tried: Mutex<Tried>,
    /// The last attempt to read the files again has failed.
    is_failing: AtomicBool,
}

/// The settings of a listener, and what was read from its stores.
#[derive(Debug)]
struct Current {
    settings: TlsSettings,
    loaded: Loaded,
}

/// The last attempt to read stores.
#[derive(Debug)]
struct Tried {
    ssl: SslSettings,
    /// Of the stores' files, before they were read.
    stamps: Vec<FileStamp>,
}

impl Tried {
    fn now(ssl: SslSettings) -> Tried {
        Tried {
            stamps: stamps(&ssl),
            ssl,
        }
    }
}

/// Why a client with a valid certificate is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrincipalFault {
    Unreadable,
    /// No rule of `ssl.principal.mapping.rules` applies to this subject.
    NoRule(String),
}

impl TlsListener {
    /// Reads the stores.
    pub fn open(settings: TlsSettings) -> Result<TlsListener, ConfigError> {
        let tried = Tried::now(settings.ssl.clone());
        let loaded = settings.load()?;
        let listener = TlsListener {
            name: settings.ssl.listener().clone(),
            has_sasl: settings.has_sasl,
            current: Mutex::new(Arc::new(Current { settings, loaded })),
            tried: Mutex::new(tried),
            is_failing: AtomicBool::new(false),
        };
        listener.warn_of_expiry();
        Ok(listener)
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether its clients have to authenticate after the handshake.
    pub fn has_sasl(&self) -> bool {
        self.has_sasl
    }

    /// What a new handshake uses.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current().loaded.config.clone()
    }

    /// When the first of the listener's certificates expires, in seconds of Unix time.
    pub fn not_after(&self) -> Option<i64> {
        let current = self.current();
        let certificates = current.loaded.certificates.iter();
        certificates.map(|found| found.not_after).min()
    }

    /// Names certificates in the log that have expired, or soon will.
    pub fn warn_of_expiry(&self) {
        let now = UnixTime::now().as_secs() as i64;
        let listener = self.name();
        for certificate in &self.current().loaded.certificates {
            if let Some(concern) = certificate.concern(now) {
                let subject = &certificate.subject;
                warn!(%listener, %subject, "the listener's certificate {concern}");
            }
        }
    }

    /// The principal of a client with this certificate chain, in Kafka's form; `None` when the
    /// certificate does not tell it.
    pub fn principal(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
    ) -> Result<Option<Arc<str>>, PrincipalFault> {
        // On a SASL_SSL listener the principal is that of SASL.
        let leaf = chain.and_then(<[_]>::first).filter(|_| !self.has_sasl);
        let Some(leaf) = leaf else {
            return Ok(None);
        };
        let found = Certificate::read(leaf).map_err(|_| PrincipalFault::Unreadable)?;
        let name = self.current().settings.rules.name(&found.subject);
        let name = name.ok_or(PrincipalFault::NoRule(found.subject))?;
        Ok(Some(format!("User:{name}").into()))
    }

    /// The stamps of its files now, and those before the last attempt to read them.
    pub fn stamps(&self) -> (Vec<FileStamp>, Vec<FileStamp>) {
        let tried = self.tried();
        (stamps(&tried.ssl), tried.stamps.clone())
    }

    /// Reads the stores again. On an error what was read before stays.
    pub fn reload(&self) -> Result<(), ConfigError> {
        let ssl = self.tried().ssl.clone();
        self.replace(ssl)
    }

    /// Uses other settings from now on, if they are others, or if files have changed since they
    /// were read (KIP-226); returns whether that was so. On an error what was read before stays.
    pub fn follow(&self, ssl: SslSettings) -> Result<bool, ConfigError> {
        if !self.is_other(&ssl) {
            return Ok(false);
        }
        self.replace(ssl).map(|()| true)
    }

    /// Whether the listener could use these settings: reads their stores, and changes nothing.
    pub fn check(&self, ssl: SslSettings) -> Result<(), ConfigError> {
        if !self.is_other(&ssl) {
            return Ok(());
        }
        self.read(ssl).map(drop)
    }

    pub fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    fn is_other(&self, ssl: &SslSettings) -> bool {
        let tried = self.tried();
        self.is_failing() || tried.ssl != *ssl || tried.stamps != stamps(ssl)
    }

    fn replace(&self, ssl: SslSettings) -> Result<(), ConfigError> {
        *self.tried() = Tried::now(ssl.clone());
        let read = self.read(ssl);
        self.is_failing.store(read.is_err(), Ordering::Relaxed);
        *self.lock() = Arc::new(read?);
        self.warn_of_expiry();
        Ok(())
    }

    fn read(&self, ssl: SslSettings) -> Result<Current, ConfigError> {
        let settings = TlsSettings::read(ssl, self.has_sasl)?;
        let loaded = settings.load()?;
        check_change(
            &settings,
            &self.current().loaded.certificates,
            &loaded.certificates,
        )?;
        Ok(Current { settings, loaded })
    }

    fn current(&self) -> Arc<Current> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tried(&self) -> MutexGuard<'_, Tried> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(ssl: &SslSettings) -> Vec<FileStamp> {
    stores::files(ssl).iter().map(|path| stamp(path)).collect()
}

/// KIP-226: a new certificate must be for the same name, unless the settings allow another.
fn check_change(settings: &TlsSettings, old: &[Certificate], new: &[Certificate]) -> Result<(), ConfigError> {
    let fault = |problem: String| Err(settings.ssl.fault("ssl.keystore.location", problem));
    let subjects =
        |found: &[Certificate]| -> Vec<String> { found.iter().map(|found| found.subject.clone()).collect() };
    let (before, after) = (subjects(old), subjects(new));
    if !settings.allows_dn_changes && before != after {
        return fault(format!(
            "has certificates of {}, not of {} as before (ssl.allow.dn.changes)",
            after.join(" and "),
            before.join(" and ")
        ));
    }
    let lacks_name = |(old, new): (&Certificate, &Certificate)| {
        let has = |name: &Vec<u8>| new.alternative_names.contains(name);
        !old.alternative_names.iter().all(has)
    };
    if !settings.allows_san_changes && old.iter().zip(new).any(lacks_name) {
        return fault(
            "has a certificate without an alternative name that it had before (ssl.allow.san.changes)"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Authority, Files, settings, with_names};
    use super::*;

    fn open(lines: &[(&str, &str)], has_sasl: bool) -> Result<TlsListener, ConfigError> {
        TlsListener::open(TlsSettings::read(settings(lines), has_sasl)?)
    }

    fn shown(listener: &TlsListener) -> (String, usize) {
        let current = listener.current();
        let first = &current.loaded.certificates[0];
        (first.subject.clone(), first.alternative_names.len())
    }

    #[test]
    fn new_files_are_taken_if_they_are_for_the_same_names_and_fit_together() {
        let authority = Authority::named("ca");
        let files = Files::new();
        let write =
            |name: &str, names: &[&str]| files.write("a.pem", authority.sign(name, with_names(names)).pem());
        let path = write("a", &["x", "y"]);
        let lines = [
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", path.as_str()),
        ];
        let listener = open(&lines, false).unwrap();
        let first = listener.config();
        let check_kept = |part: &str| {
            let before = listener.config();
            let error = listener.reload().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(&path), "{error}");
            assert!(Arc::ptr_eq(&before, &listener.config()), "{part}");
        };
        write("a", &["x"]);
        check_kept("ssl.allow.san.changes");
        write("b", &["x", "y"]);
        check_kept("not of CN=a as before");
        let [one, other] = [(); 2].map(|()| authority.sign("a", with_names(&["x", "y"])));
        files.write("a.pem", one.key.serialize_pem() + &other.certificate.pem());
        check_kept("certificate of another private key");
        files.write("a.pem", &one.pem()[..300]);
        check_kept("has no");
        std::fs::remove_file(&path).unwrap();
        check_kept("cannot be read");
        write("a", &["z", "y", "x"]);
        listener.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &listener.config()));
        assert_eq!(shown(&listener), ("CN=a".to_owned(), 3));

        let allowed = [
            &lines[..],
            &[
                ("ssl.allow.dn.changes", "true"),
                ("ssl.allow.san.changes", "true"),
            ],
        ];
        let listener = open(&allowed.concat(), false).unwrap();
        write("b", &["x"]);
        listener.reload().unwrap();
        assert_eq!(shown(&listener), ("CN=b".to_owned(), 1));
    }

    #[test]
    fn other_settings_are_taken_if_their_stores_can_be_used() {
        let authority = Authority::named("ca");
        let files = Files::new();
        let write = |file: &str, name: &str, names: &[&str]| {
            files.write(file, authority.sign(name, with_names(names)).pem())
        };
        let [first, second, other] = [
            write("a.pem", "a", &["x"]),
            write("b.pem", "a", &["x", "y"]),
            write("c.pem", "c", &["x"]),
        ];
        let ssl = |path: &str| settings(&[("ssl.keystore.type", "PEM"), ("ssl.keystore.location", path)]);
        let listener = TlsListener::open(TlsSettings::read(ssl(&first), false).unwrap()).unwrap();
        let config = listener.config();
        assert_eq!(listener.follow(ssl(&first)), Ok(false));
        for (path, part) in [
            (other.as_str(), "not of CN=a as before"),
            ("gone.pem", "cannot be read"),
        ] {
            let was_failing = listener.is_failing();
            let error = listener.check(ssl(path)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(path), "{error}");
            assert_eq!(listener.is_failing(), was_failing, "only looked at");
            assert_eq!(listener.follow(ssl(path)).unwrap_err().to_string(), error);
            assert!(listener.is_failing());
            assert!(Arc::ptr_eq(&config, &listener.config()), "{part}");
        }
        listener.check(ssl(&second)).unwrap();
        assert!(Arc::ptr_eq(&config, &listener.config()), "only looked at");
        assert_eq!(listener.follow(ssl(&second)), Ok(true));
        assert!(!listener.is_failing());
        assert_eq!(shown(&listener), ("CN=a".to_owned(), 2));
        // The settings are the same, the file is another.
        write("b.pem", "a", &["x", "y", "z"]);
        assert_eq!(listener.follow(ssl(&second)), Ok(true));
        assert_eq!(shown(&listener), ("CN=a".to_owned(), 3));
    }

    #[test]
    fn the_principal_is_the_mapped_subject_of_the_first_certificate() {
        let authority = Authority::named("ca");
        let files = Files::new();
        let path = files.write("a.pem", authority.sign("a", |_| {}).pem());
        let lines = [
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.location", path.as_str()),
            ("ssl.principal.mapping.rules", "RULE:^CN=([a-z]+)$/$1/U"),
        ];
        let alice = authority.sign("alice", |_| {}).certificate.der().clone();
        let chain = [alice, authority.certificate.der().clone()];
        let principal = |lines: &[(&str, &str)], has_sasl, chain: Option<&[CertificateDer<'_>]>| {
            open(lines, has_sasl).unwrap().principal(chain)
        };
        assert_eq!(
            principal(&lines[..2], false, Some(&chain)),
            Ok(Some("User:CN=alice".into()))
        );
        assert_eq!(
            principal(&lines, false, Some(&chain)),
            Ok(Some("User:ALICE".into()))
        );
        assert_eq!(principal(&lines, false, None), Ok(None));
        assert_eq!(principal(&lines, true, Some(&chain)), Ok(None), "SASL tells it");
        let other = [authority.sign("Bob9", |_| {}).certificate.der().clone()];
        let fault = PrincipalFault::NoRule("CN=Bob9".to_owned());
        assert_eq!(principal(&lines, false, Some(&other)), Err(fault));
        let broken = [CertificateDer::from(vec![0x30, 0])];
        assert_eq!(
            principal(&lines, false, Some(&broken)),
            Err(PrincipalFault::Unreadable)
        );
    }
}
