//! Tokens of OAUTHBEARER from a server (RFC 6749, 4.4; KIP-768): one before the first connection,
//! and the next before it ends, on a thread of its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use ureq::Agent;
use ureq::http::StatusCode;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::config::{ClientConfig, Password, TokenRefresh, TokenServer, TokenSource};
use crate::error::Error;
use crate::events;
use crate::network::backoff::{Backoff, Random};
use crate::network::sasl::shown;

/// The largest answer; a token may have 64 KiB.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// Until the next try where a token could not be replaced; Kafka's client waits as long.
const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// Replaces the token as long as it lives. The thread is not waited for: an answer may take long.
#[derive(Debug)]
pub struct Login {
    stop: Arc<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits; returns early, and true, if the client has ended.
    fn wait(&self, pause: Duration) -> bool {
        let is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_set, pause, |is_set| !*is_set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        *self.stop.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
    }
}

impl Login {
    /// Waits for the first token, and starts the thread. `None`: the settings name no server.
    ///
    /// - Errors: `Authentication` with the server's URL: why there is no token.
    pub fn start(config: &ClientConfig) -> Result<Option<Login>, Error> {
        let oauth = config.security.sasl.as_ref().and_then(|sasl| sasl.oauth.as_ref());
        let Some(TokenSource::Server(server)) = oauth.map(|oauth| &oauth.source) else {
            return Ok(None);
        };
        let refused = |reason: String| Error::Authentication {
            address: server.url.as_str().into(),
            reason: reason.into(),
        };
        let mut fetcher = Fetcher::new(server, &config.client_id, &roots(&server.url).map_err(refused)?);
        let stop = Arc::new(Stop::default());
        let lifetime = fetcher.log_in(&stop).map_err(refused)?;
        let login = Login {
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new().name("ottla-login".to_owned());
        let spawned = thread.spawn(move || fetcher.keep_fresh(lifetime, &stop));
        spawned.map_err(|error| refused(format!("no thread for the login: {error}")))?;
        Ok(Some(login))
    }
}

/// What a server gave.
#[derive(Debug, PartialEq)]
struct Token {
    text: Password,
    lifetime: Duration,
}

/// Why there is no token.
#[derive(Debug, PartialEq)]
enum Refusal {
    /// Asking again would be answered in the same way.
    Final(String),
    Passing(String),
}

struct Fetcher {
    server: TokenServer,
    client_id: Arc<str>,
    agent: Agent,
    random: Random,
}

impl Fetcher {
    /// - `roots`: whose certificates are trusted.
    fn new(server: &TokenServer, client_id: &Arc<str>, roots: &[CertificateDer<'static>]) -> Fetcher {
        let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .root_certs(RootCerts::from(roots))
            .build();
        let TokenServer {
            connect_timeout,
            read_timeout,
            ..
        } = *server;
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            // A secret is not sent to where an answer points.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_connect(Some(connect_timeout))
            .timeout_global(Some(connect_timeout + read_timeout))
            .user_agent(format!("ottla-client/{}", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Fetcher {
            server: server.clone(),
            client_id: Arc::clone(client_id),
            agent,
            random: Random::new(RandomState::new().hash_one("login")),
        }
    }

    /// Fetches a token, tries again after what may pass, and hands the token over; returns how long
    /// it is good.
    fn log_in(&mut self, stop: &Stop) -> Result<Duration, String> {
        let TokenServer {
            retry_backoff_ms,
            retry_backoff_ms_max,
            ..
        } = self.server;
        let until = Instant::now() + Duration::from_millis(retry_backoff_ms_max);
        let backoff = Backoff::new(retry_backoff_ms, retry_backoff_ms_max);
        let mut failures = 0;
        loop {
            let why = match self.ask() {
                Ok(token) => {
                    self.server.current.put(token.text);
                    return Ok(token.lifetime);
                }
                Err(Refusal::Final(why)) => return Err(why),
                Err(Refusal::Passing(why)) => why,
            };
            let rest = until.saturating_duration_since(Instant::now());
            let pause = Duration::from_nanos(backoff.nanos(failures, &mut self.random));
            if rest.is_zero() || stop.wait(pause.min(rest)) {
                return Err(why);
            }
            failures += 1;
        }
    }

    fn keep_fresh(mut self, lifetime: Duration, stop: &Stop) {
        let mut pause = self.until_refresh(lifetime);
        while !stop.wait(pause) {
            let url = &self.server.url.clone();
            pause = match self.log_in(stop) {
                Ok(lifetime) => {
                    events::token_replaced(&self.client_id, url);
                    self.until_refresh(lifetime)
                }
                Err(why) => {
                    events::token_not_replaced(&self.client_id, url, &why);
                    FAILED_PAUSE
                }
            };
        }
    }

    fn until_refresh(&mut self, lifetime: Duration) -> Duration {
        let chance = self.random.below(1_001) as f64 / 1_000.0;
        until_refresh(lifetime, &self.server.refresh, chance)
    }

    fn ask(&self) -> Result<Token, Refusal> {
        let passing = |error: ureq::Error| Refusal::Passing(format!("no token: {error}"));
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(self.server.scope.as_deref().map(|scope| ("scope", scope)));
        let request = self
            .agent
            .post(&self.server.url)
            .header("Authorization", credentials(&self.server))
            .header("Accept", "application/json");
        let answer = request.send_form(form).map_err(passing)?;
        let (head, body) = answer.into_parts();
        let text = body.into_with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(passing)?;
        if !head.status.is_success() {
            return Err(refusal(head.status, &text));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        token(&text, now).map_err(Refusal::Final)
    }
}

/// What the system trusts, as for brokers without a trust store of their own; nothing for `http`.
fn roots(url: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    if url.starts_with("http://") {
        return Ok(Vec::new());
    }
    super::trust::system_roots().map_err(|why| format!("the system's certificates cannot be read: {why}"))
}

/// RFC 7617, and RFC 6749, 2.3.1, where the setting asks for it.
fn credentials(server: &TokenServer) -> String {
    let written = |text: &str| match server.encodes_header {
        true => percent_encoded(text),
        false => text.to_owned(),
    };
    let pair = format!(
        "{}:{}",
        written(&server.client_id),
        written(server.client_secret.reveal())
    );
    format!("Basic {}", STANDARD.encode(pair))
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._*".contains(&byte) => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// RFC 6749, 5.2: an error has a name, and perhaps a text. A page of a proxy has neither.
fn refusal(status: StatusCode, text: &str) -> Refusal {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let parts = ["error", "error_description"].map(|field| answer[field].as_str().unwrap_or_default());
    let mut why = format!("no token: the server answers {status}");
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        why = format!("{why}: {}", shown(part));
    }
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Refusal::Passing(why),
        status if status.is_server_error() => Refusal::Passing(why),
        _ => Refusal::Final(why),
    }
}

/// RFC 6749, 5.1. Errors say what is missing, and never show the answer.
fn token(text: &str, now: Duration) -> Result<Token, String> {
    let missing = |what: &str| format!("no token: the server's answer {what}");
    let answer: Value = serde_json::from_str(text).map_err(|_| missing("is no JSON"))?;
    let text = answer["access_token"].as_str().filter(|token| !token.is_empty());
    let text = text.ok_or_else(|| missing("has no access_token"))?;
    let lifetime = seconds(&answer["expires_in"]).or_else(|| {
        let expires = seconds(&claims(text)?["exp"])?;
        Some(expires.saturating_sub(now.as_secs()))
    });
    let lifetime =
        lifetime.ok_or_else(|| missing("does not say when the token ends: no expires_in and no exp"))?;
    Ok(Token {
        text: Password::new(text),
        lifetime: Duration::from_secs(lifetime),
    })
}

/// A number, which some servers write as a text.
fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number
            .as_f64()
            .filter(|seconds| *seconds >= 0.0)
            .map(|seconds| seconds as u64),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// What a JSON web token says (RFC 7519), unchecked: the broker checks it.
fn claims(token: &str) -> Option<Value> {
    let part = token.split('.').nth(1)?;
    let text = URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&text).ok()
}

/// How long a new token is used before it is replaced.
///
/// - `chance`: from 0 to 1.
/// - Source: `ExpiringCredentialRefreshingLogin.refreshMs` of Kafka's client.
fn until_refresh(lifetime: Duration, refresh: &TokenRefresh, chance: f64) -> Duration {
    let wished = lifetime.mul_f64(refresh.factor + refresh.jitter * chance);
    let latest = lifetime.saturating_sub(refresh.buffer);
    match refresh.period_min < latest {
        true => wished.clamp(refresh.period_min, latest),
        // The two have no room in so short a life, and do not count.
        false => wished,
    }
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
