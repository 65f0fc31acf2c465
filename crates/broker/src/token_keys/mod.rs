//! The public keys by which OAUTHBEARER verifies tokens (KIP-768): read from a file or fetched from
//! a server, on a thread for each URL, and read again when they may have changed.

mod fetch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_core::config::{ConfigError, OauthSettings};
use ottla_core::node::Node;
use ottla_core::sasl::jwk::JsonWebKeys;
use ottla_core::sasl::token_keys::TokenKeys;
use tracing::{error, info, warn};

use crate::tls::file_stamp::{FileStamp, stamp};

/// How often the thread looks whether something is to be done.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tokens with unknown keys make the thread fetch at most this often: anyone can send such tokens.
const MISSING_PAUSE: Duration = Duration::from_secs(10);

/// The setting with the URL.
const KEY: &str = "sasl.oauthbearer.jwks.endpoint.url";

/// Where keys are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Server,
}

/// One URL of the settings.
#[derive(Debug)]
struct Source {
    url: Arc<str>,
    place: Place,
    refresh: Duration,
    retry: (Duration, Duration),
    /// Tokens with unknown keys, when that was looked at last.
    missed: u64,
    /// Of the file that was read last.
    seen: FileStamp,
    /// When to fetch from a server again.
    due: Instant,
    fetched: Option<Instant>,
    /// In a row.
    failures: u32,
}

impl Source {
    fn new(settings: &OauthSettings) -> Result<Source, ConfigError> {
        let error = |problem: &str| ConfigError::new(KEY, &settings.keys_url, problem);
        let place = match settings.keys_url.split_once("://") {
            Some(("file", path)) if path.starts_with('/') => Place::File(path.into()),
            Some(("http" | "https", _)) => Place::Server,
            _ => return Err(error("is no URL of file:///, http:// or https://")),
        };
        Ok(Source {
            url: settings.keys_url.clone(),
            place,
            refresh: Duration::from_millis(settings.refresh_ms.max(1_000)),
            retry: (
                Duration::from_millis(settings.retry_ms.0),
                Duration::from_millis(settings.retry_ms.1),
            ),
            missed: 0,
            seen: None,
            due: Instant::now(),
            fetched: None,
            failures: 0,
        })
    }

    fn read(&self) -> Result<JsonWebKeys, String> {
        let text = match &self.place {
            Place::File(path) => {
                std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
            }
            Place::Server => fetch::get(&self.url),
        };
        JsonWebKeys::parse(&text?)
    }

    /// Reads the keys if they may have changed.
    fn look(&mut self, known: &TokenKeys) {
        let now = Instant::now();
        let missed = known.missed();
        let is_missing = missed != std::mem::replace(&mut self.missed, missed);
        let is_due = match &self.place {
            Place::File(path) => {
                let stamp = stamp(path);
                let has_changed = stamp != std::mem::replace(&mut self.seen, stamp);
                // What kept it from being read may have nothing to do with the file.
                has_changed || self.failures > 0 && now >= self.due
            }
            Place::Server => {
                let has_rested = self.fetched.is_none_or(|fetched| now >= fetched + MISSING_PAUSE);
                now >= self.due || is_missing && has_rested
            }
        };
        if is_due {
            self.take(known, now);
        }
    }

    fn take(&mut self, known: &TokenKeys, now: Instant) {
        let url = &self.url;
        self.fetched = Some(now);
        match self.read() {
            Ok(keys) => {
                info!(%url, keys = keys.len(), "the keys of the identity provider were read");
                known.put(url, keys);
                (self.failures, self.due) = (0, now + self.refresh);
            }
            Err(problem) => {
                self.failures += 1;
                let pause = self.retry.0 * 2u32.saturating_pow(self.failures.min(16) - 1);
                self.due = now + pause.min(self.retry.1);
                if known.of(url).is_some() {
                    warn!(%url, problem, "the keys of the identity provider cannot be read; those known before count");
                } else {
                    error!(%url, problem, "the keys of the identity provider cannot be read: no token is accepted");
                }
            }
        }
    }
}

/// All URLs of the settings, and the keys in files.
#[derive(Debug, Default)]
pub struct Sources {
    by_url: BTreeMap<Arc<str>, Source>,
    keys: Vec<(Arc<str>, JsonWebKeys)>,
}

impl Sources {
    /// Reads what is in files. Called before the log directory is opened: a start that is refused
    /// here has changed nothing.
    ///
    /// - Errors: a URL or a file that cannot be used.
    pub fn read(settings: Vec<OauthSettings>) -> Result<Sources, ConfigError> {
        let mut sources = Sources::default();
        for settings in settings {
            let url = settings.keys_url.clone();
            sources.by_url.insert(url, Source::new(&settings)?);
        }
        for (url, source) in &mut sources.by_url {
            if let Place::File(path) = &source.place {
                source.seen = stamp(path);
                let keys = source.read();
                let keys = keys.map_err(|problem| ConfigError::new(KEY, url, problem))?;
                sources.keys.push((url.clone(), keys));
            }
        }
        Ok(sources)
    }

    /// Adds URLs that were set at run time. Their threads read them, and say so if they cannot.
    fn add_later_ones(&mut self, settings: Vec<OauthSettings>) {
        for settings in settings {
            if self.by_url.contains_key(&settings.keys_url) {
                continue;
            }
            match Source::new(&settings) {
                Ok(source) => drop(self.by_url.insert(settings.keys_url.clone(), source)),
                Err(error) => error!(%error, "no keys: no token is accepted"),
            }
        }
    }
}

/// The threads. Dropping it lets them end without waiting: the name of a server may be asked for
/// longer than a stop may take, and a thread holds nothing but the keys.
#[derive(Debug)]
pub struct TokenKeyReader {
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl TokenKeyReader {
    /// Hands over the keys that were read, and starts the threads. `None`: no listener takes
    /// tokens.
    ///
    /// - Errors: no thread.
    pub fn start(mut sources: Sources, node: &Node) -> Result<Option<TokenKeyReader>, ConfigError> {
        sources.add_later_ones(node.oauth_settings());
        let Sources {
            by_url: sources,
            keys,
        } = sources;
        if sources.is_empty() {
            return Ok(None);
        }
        for (url, keys) in keys {
            node.token_keys().put(&url, keys);
        }
        let reader = TokenKeyReader {
            stop: Arc::new((Mutex::new(false), Condvar::new())),
        };
        for source in sources.into_values() {
            reader.spawn(source, node.token_keys().clone())?;
        }
        Ok(Some(reader))
    }

    fn spawn(&self, mut source: Source, known: Arc<TokenKeys>) -> Result<(), ConfigError> {
        let stop = self.stop.clone();
        let work = move || {
            loop {
                source.look(&known);
                if wait(&stop) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ottla-token-keys".to_owned());
        let spawned = thread.spawn(work);
        spawned.map_err(|error| ConfigError::new(KEY, "", format!("no thread: {error}")))?;
        Ok(())
    }
}

impl Drop for TokenKeyReader {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
    }
}

/// Waits one interval; returns whether to stop.
fn wait((stop, woken): &(Mutex<bool>, Condvar)) -> bool {
    let stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = woken.wait_timeout_while(stop, LOOK_INTERVAL, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The key of RFC 7517, A.1.
    const KEYS: &str = r#"{"keys": [{
        "kty": "EC", "kid": "1", "crv": "P-256",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"
    }]}"#;

    /// The start was refused after the log directory had been opened: it removed the mark of the
    /// clean stop, and logs were checked at the next start.
    #[test]
    fn a_missing_file_of_keys_refuses_the_start_before_the_directory_is_opened() {
        const LISTENER: &str = "listener.name.sasl_plaintext.oauthbearer.";
        let directory = crate::broker::TemporaryDirectory::create().unwrap();
        let keys = directory.path().join("keys.json");
        let logs = directory.path().join("logs");
        let lines = [
            ("listeners", "SASL_PLAINTEXT://127.0.0.1:0".to_owned()),
            ("inter.broker.listener.name", "SASL_PLAINTEXT".to_owned()),
            ("sasl.enabled.mechanisms", "OAUTHBEARER".to_owned()),
            ("sasl.oauthbearer.expected.audience", "ottla".to_owned()),
            ("ottla.admin.listener", String::new()),
            ("log.dirs", logs.display().to_string()),
        ];
        let own = [
            (
                "sasl.server.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler".to_owned(),
            ),
            (
                "sasl.oauthbearer.jwks.endpoint.url",
                format!("file://{}", keys.display()),
            ),
        ];
        let own = own.map(|(key, value)| (format!("{LISTENER}{key}"), value));
        let lines = lines.map(|(key, value)| (key.to_owned(), value));
        let properties = lines.into_iter().chain(own).collect();
        std::fs::write(&keys, KEYS).unwrap();
        drop(crate::Broker::start(&properties).unwrap());
        let mark = std::fs::read(logs.join(".kafka_cleanshutdown")).unwrap();
        std::fs::remove_file(&keys).unwrap();
        let refused = crate::Broker::start(&properties).err().unwrap().to_string();
        assert!(refused.contains("jwks.endpoint.url"), "{refused}");
        assert_eq!(std::fs::read(logs.join(".kafka_cleanshutdown")).unwrap(), mark);
    }

    /// A server that takes a connection and never answers held up all other sources, and the stop.
    #[test]
    fn a_server_that_does_not_answer_holds_up_neither_files_nor_the_stop() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let directory = crate::broker::TemporaryDirectory::create().unwrap();
        let path = directory.path().join("keys.json");
        let source = |url: String| {
            Source::new(&OauthSettings {
                keys_url: url.into(),
                refresh_ms: 3_600_000,
                retry_ms: (100, 1_000),
                audiences: Vec::new(),
                issuer: None,
                subject_claim: "sub".to_owned(),
                scope_claim: "scope".to_owned(),
                skew_seconds: 30,
            })
            .unwrap()
        };
        let silent = source(format!("http://{}/keys", server.local_addr().unwrap()));
        let file = source(format!("file://{}", path.display()));
        let url = file.url.clone();
        let known = Arc::new(TokenKeys::default());
        let reader = TokenKeyReader {
            stop: Arc::new((Mutex::new(false), Condvar::new())),
        };
        reader.spawn(silent, known.clone()).unwrap();
        let (held, _) = server.accept().unwrap();
        std::fs::write(&path, KEYS).unwrap();
        reader.spawn(file, known.clone()).unwrap();
        while known.of(&url).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The request is still open: nothing was waited for.
        drop(reader);
        drop(held);
    }
}
