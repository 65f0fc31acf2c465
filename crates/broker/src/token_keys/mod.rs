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
                stamp != std::mem::replace(&mut self.seen, stamp)
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

/// The threads. Dropping it lets them end without waiting: the name of a server may be asked for
/// longer than a stop may take, and a thread holds nothing but the keys.
#[derive(Debug)]
pub struct TokenKeyReader {
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl TokenKeyReader {
    /// Reads what is in files, then starts the threads. `None`: no listener takes tokens.
    ///
    /// - Errors: a URL or a file that cannot be used.
    pub fn start(node: &Node) -> Result<Option<TokenKeyReader>, ConfigError> {
        let mut sources = BTreeMap::new();
        for settings in node.oauth_settings() {
            sources.insert(settings.keys_url.clone(), Source::new(&settings)?);
        }
        if sources.is_empty() {
            return Ok(None);
        }
        for source in sources.values_mut() {
            if let Place::File(path) = &source.place {
                source.seen = stamp(path);
                let keys = source.read();
                let keys = keys.map_err(|problem| ConfigError::new(KEY, &source.url, problem))?;
                node.token_keys().put(&source.url, keys);
            }
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
